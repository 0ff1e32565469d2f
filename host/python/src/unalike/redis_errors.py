"""From Redis' errors to the one error of every store."""

from __future__ import annotations

import re
import ssl
from typing import Final, Literal, Optional

from redis import exceptions

from .store import StoreError, StoreErrorKind

__all__ = ["CLUSTER", "Access", "NotSent", "code_of", "connect_error", "damaged", "is_broken", "request_error"]

Access = Literal["reads", "writes"]
"""Whether a request changes something: then an answer that is lost leaves its outcome open."""

CLUSTER: Final = "the server is a node of a Redis Cluster, which is not supported: use one server with its replicas"

_DENIED: Final = "the server denied access: check user and password"

_NOT_ALLOWED: Final = (
    "the user may not do it: for his keys (~unalike:*, or as the URL's prefix says) allow him +evalsha +script|load "
    "+info "
    "+time +hget +hmget +hset +hincrby +set, for leases +hgetall +hkeys +hdel +scan, and +select for another "
    "database than 0"
)

_LACKS: Final = (
    "the server lacks a command that is needed: is it Redis 7 or newer, and is there a rename-command in its "
    "configuration?"
)

_TLS: Final = (
    "no TLS with a server that can be trusted: check rediss:// and ssl-ca, the host's name, and the server's "
    "certificate; "
    "a server that asks for the client's needs `tls-auth-clients no`"
)

_Class = tuple[StoreErrorKind, str]

_BY_CODE: Final[dict[str, _Class]] = {
    "LOADING": ("unavailable", "the server is still loading its data"),
    "READONLY": ("unavailable", "the server only reads just now: is it a replica, or failing over?"),
    "MASTERDOWN": ("unavailable", "the server is a replica that has lost its master"),
    "TRYAGAIN": ("unavailable", "the server asks for another try"),
    "NOSCRIPT": ("unavailable", "the server forgot the script at once: SCRIPT FLUSH, again and again?"),
    "MOVED": ("refused", CLUSTER),
    "ASK": ("refused", CLUSTER),
    "CROSSSLOT": ("refused", CLUSTER),
    "CLUSTERDOWN": ("refused", CLUSTER),
    "NOPERM": ("refused", _NOT_ALLOWED),
    "NOAUTH": ("refused", _DENIED),
    "WRONGPASS": ("refused", _DENIED),
    "OOM": ("unavailable", "the server's memory is full: make room, or raise maxmemory"),
    "MISCONF": ("unavailable", "the server cannot save its data and takes no writes: look at its log"),
    "NOREPLICAS": ("unavailable", "the server has too few replicas to take writes"),
    "BUSY": ("unavailable", "the server is busy with a slow script"),
    # Of the scripts.
    "DAMAGED": ("corrupt", "the key does not hold what it should; find out who changed it"),
    "DENIED": ("refused", "the server is in protected mode: give it a password, or an address to bind to"),
    "WRONGTYPE": ("corrupt", "the key holds something else; find out who uses it"),
}

_CODES: Final[tuple[tuple[type[Exception], str], ...]] = (
    # The driver takes these codes off the messages. Derived classes come first.
    (exceptions.NoScriptError, "NOSCRIPT"),
    (exceptions.ReadOnlyError, "READONLY"),
    (exceptions.BusyLoadingError, "LOADING"),
    (exceptions.OutOfMemoryError, "OOM"),
    (exceptions.NoPermissionError, "NOPERM"),
    (exceptions.TryAgainError, "TRYAGAIN"),
    (exceptions.MasterDownError, "MASTERDOWN"),
    (exceptions.MovedError, "MOVED"),
    (exceptions.AskError, "ASK"),
    (exceptions.ClusterCrossSlotError, "CROSSSLOT"),
    (exceptions.ClusterDownError, "CLUSTERDOWN"),
    (exceptions.AuthenticationError, "NOAUTH"),
)


class NotSent(Exception):
    """The command was not sent at all."""


def code_of(error: BaseException) -> Optional[str]:
    """The code that Redis' error begins with, ``ERR`` for one without, ``None`` for what is no answer of Redis."""
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    if isinstance(error, exceptions.ResponseError):
        word = re.match(r"[A-Z]+(?= )", str(error))
        return "ERR" if word is None else word[0]
    # The driver has no class for it.
    return "ERR" if str(error).startswith("max number of clients") else None


def request_error(at: str, doing: str, access: Access, error: Exception) -> StoreError:
    """The error of a command or script.

    The question that matters is whether it may have been done although no success was reported. Redis runs a command as
    a whole or, if it answers with an error, not at all: every script makes its checks before its one write. An answer
    that did not come leaves the question open, and so does everything that is not known.
    """
    kind, advice = _class_of(error)
    if kind == "outcome-unknown" and access == "reads":
        kind = "unavailable"
    return StoreError(kind, f"{doing}, at {at}: {advice} ({error})")


def connect_error(at: str, error: Exception) -> StoreError:
    """The error of connecting: nothing was granted.

    No message holds what the server repeats: it may be the password.
    """
    code = code_of(error)
    if code is not None:
        kind, advice = _class_of(error)
        return StoreError("unavailable" if kind == "outcome-unknown" else kind, f"connecting, at {at}: {advice}")
    causes: list[BaseException] = [error]
    while (following := causes[-1].__cause__ or causes[-1].__context__) is not None and len(causes) < 8:
        causes.append(following)
    if any(isinstance(cause, ssl.SSLError) for cause in causes) or "SSL" in str(error) or "certificate" in str(error):
        return StoreError("refused", f"{at}: {_TLS}")
    if isinstance(error, exceptions.InvalidResponse):
        advice = "what answers is not a Redis server: check host and port, and whether it demands TLS (rediss://)"
        return StoreError("refused", f"{at}: {advice}")
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
        advice = "nothing listens there"
    elif any(isinstance(cause, (ConnectionError, EOFError)) for cause in causes) or "closed by server" in str(error):
        advice = "it hung up: is it a Redis server, and is rediss:// or redis:// right?"
    else:
        advice = "check host and port"
    return StoreError("unavailable", f"the server at {at} cannot be reached: {advice}")


def is_broken(error: BaseException) -> bool:
    """Whether the connection is of no use any more: after all but the plain answers of a server that takes writes."""
    # A master that became a replica keeps its connections; another server may be behind the address by now.
    return code_of(error) in (None, "READONLY", "MASTERDOWN") or isinstance(error, exceptions.ConnectionError)


def damaged(at: str, what: str) -> StoreError:
    """Something in Redis that should not be there."""
    return StoreError("corrupt", f"{at}: {what}; find out who changed it")


def _class_of(error: BaseException) -> _Class:
    if isinstance(error, NotSent):
        return "unavailable", "the connection was closed before it was asked"
    code = code_of(error)
    if code is None:
        if isinstance(error, exceptions.InvalidResponse):
            return "outcome-unknown", "the answer cannot be read: is it a Redis server?"
        return "outcome-unknown", "the answer did not come"
    return _BY_CODE.get(code) or _class_by_detail(str(error))


def _class_by_detail(detail: str) -> _Class:
    """What is behind an error that has no code of its own."""
    detail = detail.removeprefix("ERR ")
    if "killed by user" in detail:
        # SCRIPT KILL ends only those that wrote nothing yet.
        return "unavailable", "the script was killed before it wrote"
    if detail.startswith("max number of clients"):
        return "unavailable", "the server has too many clients: raise maxclients"
    if detail.startswith(("unknown command", "Unknown Redis command")):
        return "refused", _LACKS
    if detail.startswith(("The user executing the script", "ACL failure in script")):
        return "refused", _NOT_ALLOWED
    if detail.startswith("DB index"):
        return "refused", "the server has no such database: raise `databases`, or use another one"
    if detail.startswith(("AUTH", "invalid password", "Client sent AUTH")):
        return "refused", _DENIED
    return "refused", "the server refused the command"
