"""The connections to one Redis server, and the scripts that run there.

A connection is opened when it is needed, checked before it is used, and closed when an answer is late. Nothing is ever
sent twice: neither the driver nor this module repeats a command whose answer was lost. The one exception is a script
that the server says it does not know, which has therefore not run.
"""

from __future__ import annotations

import hashlib
import inspect
import re
import socket
import ssl
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Optional, Sequence

from redis.backoff import NoBackoff
from redis.connection import AbstractConnection, Connection, SSLConnection
from redis.retry import Retry

from .redis_errors import CLUSTER, Access, NotSent, code_of, connect_error, damaged, is_broken, request_error
from .redis_url import RedisSettings
from .store import StoreError

__all__ = ["RedisServer", "Reply", "Script", "script"]

_VERSION_MIN: Final = 7
"""The oldest server whose scripts can ask who they run on (``INFO`` of two sections)."""

_TELLS_MAX: Final = 10
"""A server that forgets a script again and again is told it so many times for one request."""

_CONNECTIONS_MAX: Final = 64
"""So many requests run at once; others wait for their turn."""

_DIRECTORY: Final = Path(__file__).parent / "scripts" / "redis"


@dataclass(frozen=True)
class Script:
    """A script, known to the server by its hash."""

    text: str
    sha1: str


def script(*names: str) -> Script:
    """A script of these files, which may ask for the server's incarnation and its clock: put together as in Rust."""

    def part(name: str) -> str:
        return (_DIRECTORY / f"{name}.lua").read_bytes().decode()

    parts = "\n".join(part(name) for name in names)
    text = f"{part('server')}\n{parts}"
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


class _TimedSocket:
    """A socket on which everything ends at one point of time, however slowly it trickles in."""

    def __init__(self, plain: socket.socket) -> None:
        self._plain = plain
        self.deadline = time.monotonic() + 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plain, name)

    def _limit(self) -> None:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise socket.timeout("timed out")
        self._plain.settimeout(left)

    def recv(self, *args: Any) -> bytes:
        self._limit()
        return self._plain.recv(*args)

    def recv_into(self, *args: Any) -> int:
        self._limit()
        return self._plain.recv_into(*args)

    def sendall(self, data: Any) -> None:
        self._limit()
        self._plain.sendall(data)

    def settimeout(self, value: Optional[float]) -> None:
        """The driver's own limits say nothing here."""

    def is_quiet(self) -> bool:
        """Whether it is open and nothing came that nobody asked for."""
        try:
            self._plain.settimeout(0)
            self._plain.recv(1)
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        except (OSError, ValueError):
            return False
        return False


class _Timed:
    """What both kinds of connections have in common."""

    timed: Optional[_TimedSocket] = None
    first_deadline: float = 0.0

    def _connect(self) -> Any:
        plain = super()._connect()  # type: ignore[misc]
        self.timed = _TimedSocket(plain)
        self.timed.deadline = self.first_deadline
        return self.timed


class _PlainConnection(_Timed, Connection):
    pass


class _TlsConnection(_Timed, SSLConnection):
    pass


class _Open:
    """One connection. Used by one thread at a time."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def connect(self, deadline: float) -> None:
        self._connection.first_deadline = deadline
        self._connection.connect()

    @property
    def is_usable(self) -> bool:
        timed: Optional[_TimedSocket] = self._connection.timed
        return timed is not None and timed.is_quiet()

    def send(self, deadline: float, *arguments: str) -> Any:
        """Sends a command once and waits for its answer until the deadline."""
        timed: Optional[_TimedSocket] = self._connection.timed
        if timed is None or self._connection._sock is None:
            # The driver would open another connection, which nobody has checked.
            raise NotSent("it is closed")
        timed.deadline = deadline
        self._connection.send_command(*arguments)
        return self._connection.read_response()

    def close(self) -> None:
        self._connection.disconnect()


class RedisServer:
    """One server. Several threads may use it."""

    def __init__(self, settings: RedisSettings) -> None:
        """Opens nothing yet: see :meth:`connect`."""
        self._settings = settings
        self.address: Final = settings.address
        self._lock = threading.Lock()
        self._idle: list[_Open] = []
        self._is_closed = False
        self._turns = threading.BoundedSemaphore(_CONNECTIONS_MAX)
        if settings.ssl_ca is not None:
            _check_certificates(settings.ssl_ca)

    def connect(self) -> None:
        """Connects and checks the server.

        :raises StoreError: ``unavailable`` when it does not answer, ``refused`` when it cannot be used.
        """
        self._give_back(self._take())

    def script(
        self, doing: str, access: Access, script: Script, keys: Sequence[str], arguments: Sequence[str]
    ) -> Reply:
        """Runs a script on a key, and one that it looks at beside it.

        :raises StoreError: What ``access`` makes of the driver's error, saying what was being done.
        """
        limit = self._settings.request_timeout_ms / 1_000
        if not self._turns.acquire(timeout=limit):
            raise StoreError("unavailable", f"{doing}, at {self.address}: {_CONNECTIONS_MAX} requests run already")
        try:
            connection = self._take()
            # Also when the program is interrupted: the answer may come, and whoever asked is gone.
            is_whole = False
            try:
                answer = _run(connection, limit, access, script, keys, arguments)
                is_whole = True
            except _Failed as failed:
                is_whole = not is_broken(failed.error)
                raise request_error(self.address, doing, failed.access, failed.error) from None
            finally:
                if is_whole:
                    self._give_back(connection)
                else:
                    connection.close()
        finally:
            self._turns.release()
        return Reply(f"the key {keys[0]} on {self.address}", answer)

    def close(self) -> None:
        """Closes the connections that no request uses; those of others close with them. Requests fail from now on."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _give_back(self, connection: _Open) -> None:
        with self._lock:
            if not self._is_closed:
                self._idle.append(connection)
                return
        connection.close()

    def _take(self) -> _Open:
        """A connection that nobody else uses."""
        while True:
            with self._lock:
                if self._is_closed:
                    raise self._closed()
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                return self._open()
            if connection.is_usable:
                return connection
            connection.close()

    def _closed(self) -> StoreError:
        return StoreError("refused", f"{self.address}: the store was closed")

    def _open(self) -> _Open:
        """Opens a connection and checks it, all within the time for that."""
        settings = self._settings
        limit = settings.connect_timeout_ms / 1_000
        deadline = time.monotonic() + limit
        connection = _Open(_connection(settings, limit))
        try:
            connection.connect(deadline)
            self._check(connection, deadline)
        except Exception as error:
            connection.close()
            if isinstance(error, StoreError):
                raise
            if time.monotonic() >= deadline:
                what = "is it a Redis server, and is rediss:// or redis:// right?"
                message = f"no connection to {self.address} within {settings.connect_timeout_ms} ms: {what}"
                raise StoreError("unavailable", message) from None
            raise connect_error(self.address, error) from None
        except BaseException:
            connection.close()
            raise
        return connection

    def _check(self, connection: _Open, deadline: float) -> None:
        """Checks that the server is one that can be used."""
        at = self.address
        info = connection.send(deadline, "INFO", "server")
        lines = info.decode("utf-8", "replace").splitlines() if isinstance(info, bytes) else []
        of = dict(line.split(":", 1) for line in lines if ":" in line)
        # Valkey calls it so.
        mode = of.get("redis_mode", of.get("server_mode"))
        if mode is None:
            # It may be anything: a node of a Cluster, or something between that answers for several.
            raise StoreError(
                "refused",
                f"{at}: its answer to INFO names no redis_mode, so it may be a Cluster or a proxy before several "
                f"servers: "
                "give the address of one server that stands alone",
            )
        if mode == "cluster":
            raise StoreError("refused", f"{at}: {CLUSTER}")
        if mode == "sentinel":
            what = "is a Sentinel, which keeps no data: give the address that leads to the master"
            raise StoreError("refused", f"{at} {what}")
        if mode != "standalone":
            raise StoreError("refused", f"{at} runs in the mode {mode!r}, which is not supported")
        version = of.get("redis_version", "of unknown version")
        major = re.match(r"([0-9]+)\.", version)
        if major is None or int(major[1]) < _VERSION_MIN:
            raise StoreError("refused", f"{at} is Redis {version}, it must be {_VERSION_MIN} or newer")
        if self._settings.database != 0:
            connection.send(deadline, "SELECT", str(self._settings.database))


class _Failed(Exception):
    """What the driver failed with, and whether the script may have been run."""

    def __init__(self, access: Access, error: Exception) -> None:
        super().__init__()
        self.access, self.error = access, error


def _run(
    connection: _Open, limit: float, access: Access, script: Script, keys: Sequence[str], arguments: Sequence[str]
) -> Any:
    call = ("EVALSHA", script.sha1, str(len(keys)), *keys, *arguments)
    told = 0
    while True:
        try:
            return connection.send(time.monotonic() + limit, *call)
        except Exception as error:
            if code_of(error) != "NOSCRIPT" or told == _TELLS_MAX:
                raise _Failed(access, error) from None
        told += 1
        try:
            connection.send(time.monotonic() + limit, "SCRIPT", "LOAD", script.text)
        except Exception as error:
            # The script was not run: nothing is in doubt.
            raise _Failed("reads", error) from None


def _connection(settings: RedisSettings, limit: float) -> Any:
    options: dict[str, Any] = {
        "host": settings.host,
        "port": settings.port,
        "username": settings.username,
        "password": settings.password,
        "socket_timeout": limit,
        "socket_connect_timeout": limit,
        "socket_keepalive": True,
        # Nothing is ever sent again.
        "retry": Retry(NoBackoff(), 0),
        "retry_on_timeout": False,
        "health_check_interval": 0,
        "protocol": 2,
    }
    known = inspect.signature(AbstractConnection.__init__).parameters
    # Commands that tell the server the driver's name, and that it may forbid.
    for name in ("driver_info",) if "driver_info" in known else ("lib_name", "lib_version"):
        options[name] = None
    kind: Any = _PlainConnection
    if settings.is_tls:
        kind = _TlsConnection
        options |= {"ssl_ca_certs": settings.ssl_ca, "ssl_cert_reqs": "required", "ssl_check_hostname": True}
    return kind(**options)


def _check_certificates(path: str) -> None:
    what = f"the certificates in {path} (ssl-ca) cannot be read"
    try:
        ssl.create_default_context(cafile=path)
    except ssl.SSLError:
        raise StoreError("refused", f"{what}: it holds no certificate in PEM") from None
    except OSError as error:
        raise StoreError("refused", what) from error


class Reply:
    """A script's answer, field by field."""

    def __init__(self, at: str, answer: object) -> None:
        self._at = at
        self._fields: list[object] = answer if isinstance(answer, list) else []
        self._next = 0

    def text(self) -> str:
        """:raises StoreError: ``corrupt`` when there is none."""
        field = self._fields[self._next] if self._next < len(self._fields) else None
        self._next += 1
        if not isinstance(field, bytes):
            raise self.damaged("a field is missing")
        try:
            return field.decode()
        except UnicodeDecodeError:
            raise self.damaged(f"{field[:32]!r} is not UTF-8") from None

    def number(self) -> int:
        """:raises StoreError: ``corrupt`` when there is none."""
        text = self.text()
        number = int(text) if re.fullmatch(r"[0-9]{1,20}", text) else -1
        if not 0 <= number < 2**64:
            raise self.damaged(f"{text!r} is not a number")
        return number

    def number_or_none(self) -> Optional[int]:
        """A number, or ``None`` where the field is empty.

        :raises StoreError: ``corrupt`` when it is neither.
        """
        if self._next < len(self._fields) and self._fields[self._next] == b"":
            self._next += 1
            return None
        return self.number()

    def pairs(self) -> dict[str, str]:
        """What is left of it, names with their values.

        :raises StoreError: ``corrupt`` when a value is missing.
        """
        pairs: dict[str, str] = {}
        while self._next < len(self._fields):
            name = self.text()
            pairs[name] = self.text()
        return pairs

    def damaged(self, what: str) -> StoreError:
        """Something in the answer that should not be there."""
        return damaged(self._at, what)
