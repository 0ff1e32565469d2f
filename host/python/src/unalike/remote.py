"""Segments and leases of unalike servers, over HTTP, with nothing but the standard library.

For hosts that have no database within reach, or whose tokens shall not reach it. Each request has a random id, and an
answer without it is not used; every answer names the store that granted, and one of another store is not used. Only an
answer that proves that nothing was granted is tried again, at the next server.
"""

from __future__ import annotations

import http.client
import io
import json
import logging
import os
import re
import secrets
import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NoReturn, Optional, Union
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from ._given import text_given
from ._process import ProcessLock, current, uninterrupted_calls
from ._requests import is_well_formed
from .lease_rules import layout_text
from .store import (
    AdaptiveStep,
    FixedStep,
    Lease,
    LeaseAcquire,
    LeaseExtend,
    RefillPolicy,
    Remaining,
    Segment,
    ShareConsumed,
    StepPolicy,
    StoreError,
    TagOptions,
    TagRecord,
    TailRelease,
    split_tag,
    sub_tag,
    validate_allocate,
    validate_options,
    validate_tag,
)

__all__ = ["RemoteStore"]

log: Final = logging.getLogger("unalike")

_ANSWER_BYTES_MAX: Final = 4 * 1024 * 1024
_AVOIDED_S: Final = (0.25, 10.0)
"""How long a server that failed is asked after all others, at first and at most. It doubles."""
_IDLE_S: Final = 30.0
"""A connection that was not used for longer is not used again."""
_IDLE_MAX: Final = 8
_TIMEOUT_MAX_S: Final = 600.0
_NUMBER: Final = re.compile("0|[1-9][0-9]{0,19}")
_IDENTITY: Final = re.compile("[0-9a-f]{32}")
_PARAMETERS: Final = ("store", "ssl-ca", "connect-timeout-ms", "request-timeout-ms")
_FORM: Final = "write http://HOST:PORT or https://HOST, and further hosts after commas"

_Part = Literal["store", "leases"]
"""Which of a server's stores is meant: the field of ``GET /v1/store``."""


@uninterrupted_calls
class RemoteStore:
    """Segments and leases of unalike servers. Any number of threads may share it; a forked child has connections of its
    own.

    :param servers: ``http://HOST:PORT`` or ``https://HOST``, several separated by commas or in a list, in order of
        preference. All must have one store.
    :param token: A token of the scope ``lease``, where the servers want one.
    :param store: The identity of the store of segments, as ``GET /v1/store`` answers it: 32 hexadecimal digits. Without
        it, several servers must all answer before the first is used.
    :param lease_store: The same of the store of leases.
    :param ssl_ca: A file with the certificates of the authorities that ``https`` trusts, as PEM, in the place of the
        system's. The servers' certificates must have the names by which they are addressed.
    :param connect_timeout: How long opening a connection may take, TLS included, in seconds up to 600: 1 by default.
        After that the next server is asked.
    :param request_timeout: How long a request may take in all, in seconds up to 600: 5 by default. After that what it
        may have been granted is burnt.

    A URL may have the parameters that the Rust library knows, too: ``store``, ``ssl-ca``, ``connect-timeout-ms`` and
    ``request-timeout-ms``, as in ``https://ids-1.example,ids-2.example?ssl-ca=ca.pem``.

    :raises StoreError: ``refused``, when an argument cannot be used. The servers are first asked when numbers are.

    The namespace of a lease is a snowflake that the servers have in their configuration, with the same layout.

    >>> from unalike.remote import RemoteStore
    >>> RemoteStore("http://ids-1.example:8080,ids-2.example:8080")
    <RemoteStore http://ids-1.example:8080,ids-2.example:8080>
    """

    def __init__(
        self,
        servers: Union[str, Sequence[str]],
        *,
        token: Optional[str] = None,
        store: Optional[str] = None,
        lease_store: Optional[str] = None,
        ssl_ca: Optional[Union[str, os.PathLike[str]]] = None,
        connect_timeout: Optional[float] = None,
        request_timeout: Optional[float] = None,
    ) -> None:
        addresses, of_url = _addresses(servers)
        for parameter, argument in (
            ("store", store),
            ("ssl-ca", ssl_ca),
            ("connect-timeout-ms", connect_timeout),
            ("request-timeout-ms", request_timeout),
        ):
            if argument is not None and parameter in of_url:
                raise _unusable(f"has the parameter {parameter}, which is given by itself as well")
        store, ssl_ca = of_url.get("store", store), of_url.get("ssl-ca", ssl_ca)
        connect_timeout = _timeout(of_url, "connect-timeout-ms", 1.0 if connect_timeout is None else connect_timeout)
        request_timeout = _timeout(of_url, "request-timeout-ms", 5.0 if request_timeout is None else request_timeout)
        if token is not None:
            _check_token(token)
        authorities = None if ssl_ca is None else os.fspath(ssl_ca)
        context = _trusting(authorities, addresses)
        shared = _Shared(token, authorities, context, connect_timeout, request_timeout)
        self._parts: dict[_Part, _Servers] = {
            "store": _Servers(shared, addresses, "store", _identity_given(store)),
            "leases": _Servers(shared, addresses, "leases", _identity_given(lease_store)),
        }
        self._segments, self._leases = self._parts["store"], self._parts["leases"]

    def allocate(self, tag: str, count: int, at_least: int) -> Segment:
        """At most as many numbers as the server's ``segment_count_max``."""
        validate_allocate(tag, count, at_least)
        name, sub = split_tag(tag)
        asked = _Request(
            f"granting numbers of {name!r}",
            "POST",
            ("v1", "sequences", name, "segments"),
            [*_sub_of(tag), ("count", str(count)), ("at_least", str(at_least))],
        )
        granted = self._segments.ask(asked, _granted_segment)
        segment = granted.segment
        is_asked_for = (
            (granted.tag, granted.sub) == (name, sub)
            and is_well_formed(segment)
            and segment.start >= at_least
            and (segment.end - segment.start) // segment.stride <= count
        )
        if not is_asked_for:
            raise StoreError(
                "outcome-unknown",
                f"{count} numbers of {name!r} from {at_least} on were asked for, and {self._segments.address} granted "
                f"{segment} of {granted.tag!r} {granted.sub!r}, which is not used",
            )
        return segment

    def release(self, tag: str, tail: TailRelease) -> bool:
        validate_tag(tag)
        name, _ = split_tag(tag)
        asked = _Request(
            f"giving numbers of {name!r} back",
            "POST",
            ("v1", "sequences", name, "segments", "release"),
            [*_sub_of(tag), ("start", str(tail.start)), ("version", str(tail.version))],
        )
        return self._segments.ask(asked, _released).released

    def open_tag(self, tag: str) -> TagRecord:
        validate_tag(tag)
        name, _ = split_tag(tag)
        path = ("v1", "sequences", name, "open")
        asked = _Request(f"opening {name!r}", "POST", path, _sub_of(tag), only_reads=True)
        return self._segments.ask(asked, _opened_tag).record

    def create_tag(self, tag: str, options: Optional[TagOptions] = None) -> TagRecord:
        """Creates a tag, which takes a token of the scope ``admin``.

        :raises StoreError: ``tag-exists``, ``tag-invalid``
        """
        options = options or TagOptions()
        validate_options(tag, options)
        if split_tag(tag)[1] is not None:
            raise StoreError("refused", "servers create sub-keys when their ids are first asked for, and not before")
        body = {
            "tag": tag,
            "start": str(options.start),
            "step": _step_json(options.step),
            "refill": _refill_json(options.refill),
            "mode": options.mode,
        }
        asked = _Request(f"creating {tag!r}", "POST", ("v1", "tags"), [], body=body)
        return self._segments.ask(asked, _created_tag).record

    def identity(self) -> Optional[str]:
        return self._segments.identity()

    def acquire(self, request: LeaseAcquire) -> Lease:
        query = [("layout", layout_text(request.layout)), ("now_ms", str(request.now_ms))]
        query.append(("horizon_ms", str(request.horizon_ms)))
        if request.holder:
            query.append(("holder", request.holder))
        if request.preferred_worker is not None:
            query.append(("preferred_worker", str(request.preferred_worker)))
        path = ("v1", "snowflakes", request.namespace, "leases")
        asked = _Request(f"leasing a worker of {request.namespace!r}", "POST", path, query)
        most = 1 << (request.layout.datacenter_bits + request.layout.worker_bits)
        return self._lease(request.namespace, asked, lambda lease: lease.worker < most)

    def extend(self, request: LeaseExtend) -> Lease:
        namespace, worker = request.namespace, request.worker
        asked = _Request(
            f"extending the lease of worker {worker} of {namespace!r}",
            "POST",
            ("v1", "snowflakes", namespace, "leases", str(worker), "extend"),
            [
                ("grant_id", f"{request.grant_id:032x}"),
                ("layout", layout_text(request.layout)),
                ("now_ms", str(request.now_ms)),
                ("horizon_ms", str(request.horizon_ms)),
            ],
        )
        same = (worker, request.grant_id)
        return self._lease(namespace, asked, lambda lease: (lease.worker, lease.grant_id) == same)

    def release_lease(self, namespace: str, worker: int, grant_id: int, end_ms: int) -> bool:
        asked = _Request(
            f"giving worker {worker} of {namespace!r} back",
            "POST",
            ("v1", "snowflakes", namespace, "leases", str(worker), "release"),
            [("grant_id", f"{grant_id:032x}"), ("end_ms", str(end_ms))],
        )
        return self._leases.ask(asked, _released).released

    def lease_identity(self) -> Optional[str]:
        return self._leases.identity()

    def check(self) -> None:
        """Asks the servers which store of segments they have, as the first request does.

        :raises StoreError: ``unavailable`` when no server answers, or when one of several does not; ``refused`` when
            they have different stores, or want a token.
        """
        self._segments.check()

    def close(self) -> None:
        """Closes the connections that are not in use."""
        for part in self._parts.values():
            part.close()

    def __enter__(self) -> RemoteStore:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<RemoteStore {self._segments.address}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a RemoteStore cannot be pickled: it holds a token. Make one in each process")

    def _lease(self, namespace: str, asked: _Request, is_asked_for: Callable[[Lease], bool]) -> Lease:
        granted = self._leases.ask(asked, _granted_lease)
        if granted.snowflake != namespace or not is_asked_for(granted.lease):
            said = f"{granted.lease} of {granted.snowflake!r}"
            message = f"{asked.doing}: {self._leases.address} answered {said}, which was not asked for and is not used"
            raise StoreError("outcome-unknown", message)
        return granted.lease


@dataclass(frozen=True)
class _Request:
    """A request to any of the servers."""

    doing: str
    """For messages: "granting numbers of .."."""
    method: str
    path: tuple[str, ...]
    query: list[tuple[str, str]]
    only_reads: bool = False
    """Nothing becomes of it when its answer is lost."""
    body: Optional[dict[str, Any]] = None


_LOOK: Final = _Request("asking which store it has", "GET", ("v1", "store"), [], only_reads=True)


@dataclass(frozen=True)
class _Answer:
    """What was answered, whatever it was: each has the fields that it needs."""

    store: Optional[str] = None
    names_store: bool = True
    """Whether the answer says which store it is from."""
    tag: str = ""
    sub: Optional[str] = None
    snowflake: str = ""
    released: bool = False
    segment: Segment = Segment(0, 0, 0, 0, 0)
    lease: Lease = Lease(0, 0, 0, 0)
    record: TagRecord = field(default_factory=lambda: TagRecord("", TagOptions(), 0))


class _Failure(Exception):
    """Why a server granted nothing that may be used."""

    def __init__(self, error: StoreError, is_servers: bool) -> None:
        super().__init__(str(error))
        self.error = error
        self.is_servers = is_servers
        """Another server may do better."""


@dataclass(frozen=True)
class _Shared:
    token: Optional[str]
    ssl_ca: Optional[str]
    context: Optional[ssl.SSLContext]
    connect_timeout: float
    request_timeout: float


class _Servers:
    """The servers of one store, in order of preference."""

    def __init__(self, shared: _Shared, addresses: list[_Address], part: _Part, store: Optional[str]) -> None:
        self._shared, self._part = shared, part
        self._servers = [_Server(address, shared) for address in addresses]
        self.address = f"{addresses[0].scheme}://{','.join(address.host_and_port for address in addresses)}"
        self._lock = ProcessLock()
        # The store of all of them, once it is known. Known and none: the only server's store has no name.
        self._is_given = store is not None
        self._is_known = store is not None
        self._store = store

    def identity(self) -> Optional[str]:
        if not self._is_known:
            self.check()
        return self._store

    def check(self) -> None:
        """Asks which store it is, and whether it is the known one."""
        self.ask(_LOOK, self._store_in)

    def ask(self, request: _Request, read: Callable[[Any], _Answer]) -> _Answer:
        """Asks the servers in order of preference until one answers. The next one is asked only after one that proves
        that it has granted nothing.

        :raises StoreError: What the last server that was asked brings.
        """
        self._recognise_all()
        last: Optional[StoreError] = None
        for server in self._in_order():
            try:
                answer = self._ask_one(server, request, read)
            except _Failure as failure:
                if not failure.is_servers:
                    raise failure.error from failure.__cause__
                server.avoid()
                if failure.error.may_have_granted:
                    raise failure.error from failure.__cause__
                last = failure.error
                last.__cause__ = failure.__cause__
            else:
                server.failures, server.avoided_until = 0, 0.0
                return answer
        raise last or self._nobody()

    def _recognise_all(self) -> None:
        """Compares the stores of several servers before the first is used, where only they can tell which is meant.

        :raises StoreError:
        """
        if self._is_known or len(self._servers) == 1:
            return
        stores = []
        for server in self._servers:
            try:
                store = self._look_at(server)
            except _Failure as failure:
                raise self._needs_all(server, failure.error) from failure.__cause__
            if store is None:
                message = (
                    f"the store of the server {server.name} has no name by which it could be told from another one: "
                    "name this server by itself"
                )
                raise StoreError("refused", message)
            stores.append(store)
        for server, store in zip(self._servers, stores):
            if store != stores[0]:
                pairs = zip(self._servers, stores)
                every = ", ".join(f"{one.name} has {theirs}" for one, theirs in pairs)
                message = (
                    f"the servers have different stores, so their ids would repeat ({every}): name servers with one "
                    f"store only; {server.name} is the first that differs"
                )
                raise StoreError("refused", message)
        with self._lock.get():
            if not self._is_known:
                self._store, self._is_known = stores[0], True
        # Each is compared with what is known by now: another thread may have looked at other answers.
        for server, store in zip(self._servers, stores):
            self._recognise(server, store)

    def close(self) -> None:
        for server in self._servers:
            server.close()

    def _ask_one(self, server: _Server, request: _Request, read: Callable[[Any], _Answer]) -> _Answer:
        if not server.is_known:
            self._recognise_first(server)
        answer = self._send(server, request, read)
        # Before anything is made of it.
        if answer.names_store:
            self._recognise_or_fail(server, answer.store)
        return answer

    def _recognise_first(self, server: _Server) -> None:
        self._recognise_or_fail(server, self._look_at(server))

    def _recognise_or_fail(self, server: _Server, store: Optional[str]) -> None:
        try:
            self._recognise(server, store)
        except StoreError as error:
            raise _Failure(error, is_servers=True) from None

    def _in_order(self) -> list[_Server]:
        """Those that are not avoided first; none that was refused."""
        now = time.monotonic()
        usable = [server for server in self._servers if server.refused is None]
        return sorted(usable, key=lambda server: now < server.avoided_until)

    def _nobody(self) -> StoreError:
        refused = "; ".join(server.refused for server in self._servers if server.refused is not None)
        return StoreError("refused", f"no server of {self.address} can be used: {refused}")

    def _look_at(self, server: _Server) -> Optional[str]:
        """Which store a server has."""
        return self._send(server, _LOOK, self._store_in).store

    def _store_in(self, found: Any) -> _Answer:
        return _Answer(store=_identity(found[self._part]))

    def _recognise(self, server: _Server, store: Optional[str]) -> None:
        """Takes the server's store for that of all, or refuses the server.

        :raises StoreError: ``refused``
        """
        is_only = len(self._servers) == 1
        with self._lock.get():
            if not self._is_known and is_only:
                self._store, self._is_known = store, True
            expected = self._store
            if self._is_known and store == expected and (store is not None or (is_only and not self._is_given)):
                server.is_known = True
                return
            message = (
                f"the server {server.name} has the store {store or 'without a name'}, and "
                f"{expected or 'one without a name'} was expected: its ids would repeat those of the other one, so "
                "nothing that it grants is used. Name servers with one store only, or restart this program if the "
                "store was meant to change"
            )
            server.is_known, server.refused = False, message
        log.error(message)
        raise StoreError("refused", message)

    @staticmethod
    def _needs_all(server: _Server, error: StoreError) -> StoreError:
        if not error.is_retryable:
            return error
        message = (
            f"the server {server.name} does not say which store it has, and several servers must agree before the "
            "first one is used: start it, or name the store by the identity that the others answer at GET /v1/store: "
            f"{error}"
        )
        return StoreError("unavailable", message)

    def _send(self, server: _Server, request: _Request, read: Callable[[Any], _Answer]) -> _Answer:
        """Sends a request to one server, once."""
        at = f"{request.doing}, at {server.name}"

        def lost(what: str) -> _Failure:
            kind: Literal["unavailable", "outcome-unknown"] = "unavailable" if request.only_reads else "outcome-unknown"
            return _Failure(StoreError(kind, f"{at} {what}"), is_servers=True)

        for part in request.path:
            if part in (".", ".."):
                # Whatever is done about it, proxies leave them out.
                message = f"{at}: the name {part!r} cannot be part of a URL"
                raise _Failure(StoreError("refused", message), is_servers=False)
        try:
            target = "/" + "/".join(quote(part, safe="") for part in request.path)
            target += f"?{urlencode(request.query)}" if request.query else ""
        except UnicodeEncodeError as error:
            raise _Failure(StoreError("refused", f"{at}: {error}"), is_servers=False) from None
        id = secrets.token_hex(16)
        headers = {"X-Request-Id": id, "Accept": "application/json"}
        if self._shared.token is not None:
            headers["Authorization"] = f"Bearer {self._shared.token}"
        body = None
        if request.body is not None:
            headers["Content-Type"], body = "application/json", json.dumps(request.body)
        try:
            connection = server.connection()
        except (OSError, http.client.HTTPException) as error:
            # It was never sent.
            what = _unopened(error, self._shared)
            unreachable = StoreError("unavailable", f"{at}: no connection could be opened: {what}")
            raise _Failure(unreachable, is_servers=True) from error
        is_whole = False
        try:
            try:
                connection.begin(self._shared.request_timeout)
                connection.request(request.method, target, body, headers)
                response = connection.getresponse()
            except (OSError, http.client.HTTPException, ValueError) as error:
                # What a server that speaks TLS says to a request without it, or it hangs up.
                is_no_http = isinstance(error, (http.client.BadStatusLine, ConnectionResetError))
                is_first = self._shared.context is None and not server.is_known
                hint = "; is it https?" if is_no_http and is_first else ""
                raise lost(f"brought no answer: {error!r}{hint}") from error
            status = response.status
            # Of a cache, or of a proxy that gives one answer to several: whose grant it is nobody knows.
            ids = response.headers.get_all("X-Request-Id")
            if ids is None:
                raise lost(
                    f"was answered with the status {status} by something that is no unalike server, or by way of a "
                    "proxy that drops the header X-Request-Id"
                )
            if ids != [id]:
                raise lost(
                    f"brought the answer to another request, with the status {status}: its X-Request-Id is not the one "
                    "that was sent. If there is a proxy before the server, have it pass this header, and cache and "
                    "collapse nothing"
                )
            try:
                content = response.read(_ANSWER_BYTES_MAX + 1)
                is_too_long = len(content) > _ANSWER_BYTES_MAX
                # What was promised and did not come.
                if not is_too_long and response.length:
                    raise http.client.IncompleteRead(content, response.length)
            except (OSError, http.client.HTTPException, ValueError) as error:
                raise lost(f"brought half of an answer: {error!r}") from error
            if is_too_long:
                raise lost("brought an answer that is too long")
            is_whole = not response.will_close
        finally:
            server.give_back(connection, is_whole)
        if not 200 <= status < 300:
            failure = _problem(at, status, content, self._shared.token is not None)
            raise failure or lost(f"brought the status {status}, and no problem that an unalike server describes")
        try:
            return read(json.loads(content))
        except StoreError as error:
            raise _Failure(error, is_servers=False) from None
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise lost(f"brought an answer that cannot be read: {error!r}") from error


@dataclass(frozen=True)
class _Address:
    scheme: str
    host: str
    port: int
    host_and_port: str


class _Server:
    def __init__(self, address: _Address, shared: _Shared) -> None:
        self._address, self._shared = address, shared
        self.name = f"{address.scheme}://{address.host_and_port}"
        self.is_known = False
        """Its store is the one of the others."""
        self.refused: Optional[str] = None
        """Why it is never asked again."""
        self.failures = 0
        self.avoided_until = 0.0
        self._kept = _Kept(current())
        self._inherited: list[_Kept] = []

    def avoid(self) -> None:
        """Has the others asked first, for a while."""
        first, most = _AVOIDED_S
        self.avoided_until = time.monotonic() + min(first * 2 ** min(self.failures, 16), most)
        self.failures += 1

    def connection(self) -> _Connection:
        """One that is open and was asked nothing."""
        kept = self._here()
        while True:
            try:
                connection = kept.idle.pop()
            except IndexError:
                break
            if connection.is_idle():
                return connection
            connection.close()
        opened = _Connection(self._address, self._shared)
        try:
            opened.connect()
        except BaseException:
            opened.close()
            raise
        return opened

    def give_back(self, connection: _Connection, is_whole: bool) -> None:
        kept = self._here()
        if is_whole and len(kept.idle) < _IDLE_MAX and connection.mark == kept.mark:
            connection.idle_since = time.monotonic()
            kept.idle.append(connection)
        else:
            connection.close()

    def close(self) -> None:
        kept = self._here()
        while kept.idle:
            kept.idle.pop().close()

    def _here(self) -> _Kept:
        kept, mark = self._kept, current()
        if kept.mark != mark:
            # Those of the parent are left alone: what is written to one, or said at its end, its server would take for
            # the parent's.
            self._inherited.append(kept)
            kept = self._kept = _Kept(mark)
        return kept


class _Kept:
    """The connections of one process that wait for a request."""

    def __init__(self, mark: int) -> None:
        self.mark = mark
        self.idle: deque[_Connection] = deque()


class _Connection(http.client.HTTPConnection):
    """A connection whose requests end in time, however slowly the bytes come."""

    def __init__(self, address: _Address, shared: _Shared) -> None:
        super().__init__(address.host, address.port, timeout=shared.connect_timeout)
        self.mark = current()
        self.idle_since = 0.0
        self._counted: Optional[_Deadline] = None
        self._context = shared.context
        self._connect_timeout = shared.connect_timeout

    def connect(self) -> None:
        # One time for all addresses that the name has, and for TLS.
        deadline = time.monotonic() + self._connect_timeout
        raw = _opened(self.host, self.port, deadline)
        try:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._context is not None:
                raw = self._context.wrap_socket(raw, server_hostname=self.host, do_handshake_on_connect=False)
                raw.settimeout(_left(deadline))
                raw.do_handshake()
        except BaseException:
            raw.close()
            raise
        self.sock = self._counted = _Deadline(raw)

    def begin(self, timeout: float) -> None:
        """A request begins now, and may take so long."""
        if self._counted is not None:
            self._counted.deadline = time.monotonic() + timeout

    def is_idle(self) -> bool:
        """Whether it is open, and nothing came that nobody asked for."""
        if self.sock is None or self._counted is None or time.monotonic() - self.idle_since > _IDLE_S:
            return False
        return not self._counted.has_something()


def _opened(host: str, port: int, deadline: float) -> socket.socket:
    """A connection to the first address of a host that answers.

    :raises OSError:
    """
    addresses = socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM)
    failure: OSError = OSError(f"the name {host!r} has no address")
    for at, (family, kind, protocol, _, address) in enumerate(addresses):
        raw: Optional[socket.socket] = None
        try:
            raw = socket.socket(family, kind, protocol)
            # Those that follow have their share.
            raw.settimeout(_left(deadline) / (len(addresses) - at))
            raw.connect(address)
            return raw
        except BaseException as error:
            if raw is not None:
                raw.close()
            if not isinstance(error, OSError):
                raise
            failure = error
    raise failure


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("the time to connect is up")
    return left


_UNTRUSTED: Final = (18, 19, 20, 21)
"""What OpenSSL says of a certificate that no known authority signed."""
_MISNAMED: Final = (62, 63, 64)
"""And of one that was made for another host."""


def _unopened(error: Exception, shared: _Shared) -> str:
    """Why there is no connection, and what to do about it."""
    if isinstance(error, TimeoutError):
        return f"not within {shared.connect_timeout:g} s (connect_timeout)"
    if isinstance(error, ssl.SSLCertVerificationError):
        why = error.verify_message
        if error.verify_code in _UNTRUSTED:
            trusted = "the system trusts" if shared.ssl_ca is None else f"{shared.ssl_ca} holds"
            return (
                f"its certificate is signed by no authority that {trusted} ({why}): give ssl_ca the file of the "
                "authority that signed it"
            )
        if error.verify_code in _MISNAMED:
            return f"its certificate is for another name ({why}): address it by a name that the certificate has"
        return f"its certificate is not valid ({why})"
    if isinstance(error, ssl.SSLError):
        return f"no TLS: {error}. Write http:// if it has none"
    return str(error)


class _Deadline:
    """A socket that counts down."""

    def __init__(self, raw: socket.socket) -> None:
        self._raw = raw
        self.deadline = 0.0
        self.has_more = False
        """More came than an answer."""

    def sendall(self, data: Any) -> None:
        self._raw.settimeout(self._left())
        self._raw.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        return _Buffered(self)

    def receive_into(self, buffer: Any) -> int:
        self._raw.settimeout(self._left())
        return self._raw.recv_into(buffer)

    def has_something(self) -> bool:
        """Bytes, or the end. TLS keeps bytes of its own."""
        if self.has_more:
            return True
        if isinstance(self._raw, ssl.SSLSocket) and self._raw.pending():
            return True
        try:
            poll = select.poll()
            poll.register(self._raw, select.POLLIN)
            return bool(poll.poll(0))
        except AttributeError:  # Windows
            return bool(select.select([self._raw], [], [], 0)[0])

    def close(self) -> None:
        self._raw.close()

    def _left(self) -> float:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the time for the request is up")
        return left


class _Reader(io.RawIOBase):
    def __init__(self, of: _Deadline) -> None:
        self._of = of
        self.is_over = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> Optional[int]:
        return None if self.is_over else self._of.receive_into(buffer)


class _Buffered(io.BufferedReader):
    """Reads one answer, and says at its end whether it had read into another."""

    def __init__(self, of: _Deadline) -> None:
        self._reader, self._of = _Reader(of), of
        super().__init__(self._reader)

    def close(self) -> None:
        if not self.closed:
            self._reader.is_over = True
            self._of.has_more = self._of.has_more or bool(self.peek(1))
        super().close()


def _problem(at: str, status: int, content: bytes, has_token: bool = True) -> Optional[_Failure]:
    """What an answer that is not a success proves; ``None`` where it proves nothing.

    A problem is one of this server's about this request: the caller has checked the request's id.
    """
    try:
        document = json.loads(content)
        kind, detail = document["type"], str(document.get("detail", ""))
        if not isinstance(kind, str) or not kind.startswith("urn:unalike:problem:"):
            return None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    kind, message = kind.removeprefix("urn:unalike:problem:"), f"{at}: {detail}"
    if kind == "unauthorized" and not has_token:
        return _Failure(StoreError("refused", f"{at} needs a token: give it to the store, token=.."), is_servers=False)
    if kind in ("outcome-unknown", "timeout"):
        return _Failure(StoreError("outcome-unknown", message), is_servers=True)
    # Nothing was granted, and another server may be better off.
    if kind in ("store-unavailable", "closing", "connections-max", "head-timeout"):
        return _Failure(StoreError("unavailable", message), is_servers=True)
    known = _PROBLEMS.get(kind)
    if kind == "clock-wrong":
        known = "clock-skew" if document.get("store_ms") is not None else "unavailable"
    elif kind in ("layout-mismatch", "layout-refused"):
        known = "layout-mismatch" if document.get("bound") and document.get("offered") else "refused"
    elif known is None and 400 <= status < 500:
        known = "refused"
    return None if known is None else _Failure(StoreError(known, message), is_servers=False)


_PROBLEMS: Final[dict[str, Any]] = {
    # Another server counts for itself, and would give what this one is told not to.
    "quota-reached": "unavailable",
    "ceiling-reached": "ceiling-reached",
    "quarantined": "quarantined",
    "workers-exhausted": "workers-exhausted",
    "lease-lost": "lease-lost",
    "tag-unknown": "tag-unknown",
    "tag-exists": "tag-exists",
    "tag-invalid": "tag-invalid",
    "tag-limit": "tag-limit",
    "exhausted": "exhausted",
    "store-corrupt": "corrupt",
    # The server says what is wrong with the request, or that its store refuses, before anything is granted.
    "store-refused": "refused",
    "leases-missing": "refused",
}


def _number(value: Any) -> int:
    """A whole number of 64 bits, which JSON has as a string."""
    if isinstance(value, str) and _NUMBER.fullmatch(value) and int(value) < 2**64:
        return int(value)
    raise ValueError(f"{value!r} is not a whole number of 64 bits")


def _small(value: Any, most: int) -> int:
    if type(value) is int and 0 <= value <= most:
        return value
    raise ValueError(f"{value!r} is not a whole number up to {most}")


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise ValueError(f"{value!r} is not a text")


def _identity(value: Any) -> Optional[str]:
    if value is None:
        return None
    if not isinstance(value, str) or not _IDENTITY.fullmatch(value.lower()):
        raise ValueError(f"{value!r} is not the name of a store")
    return value.lower()


def _identity_given(value: Optional[str]) -> Optional[str]:
    try:
        return _identity(value)
    except ValueError:
        message = f"the store {value!r} is not 32 hexadecimal digits, as GET /v1/store answers them"
        raise StoreError("refused", message) from None


def _granted_segment(found: Any) -> _Answer:
    of = found["segment"]
    numbers = (_number(of[name]) for name in ("start", "end", "stride", "generation", "version"))
    sub = None if found.get("sub") is None else _text(found["sub"])
    return _Answer(store=_identity(found["store"]), tag=_text(found["tag"]), sub=sub, segment=Segment(*numbers))


def _granted_lease(found: Any) -> _Answer:
    of = found["lease"]
    if not _IDENTITY.fullmatch(_text(of["grant_id"]).lower()):
        raise ValueError(f"{of['grant_id']!r} is not the name of a grant")
    worker, grant_id = _small(of["worker"], 2**32 - 1), int(of["grant_id"], 16)
    lease = Lease(worker, grant_id, _number(of["not_before_ms"]), _number(of["valid_until_ms"]))
    if lease.not_before_ms > lease.valid_until_ms:
        raise ValueError(f"{lease} ends before it begins")
    return _Answer(store=_identity(found["store"]), snowflake=_text(found["snowflake"]), lease=lease)


def _released(found: Any) -> _Answer:
    if not isinstance(found["released"], bool):
        raise ValueError(f"{found['released']!r} does not say whether it was taken back")
    return _Answer(store=_identity(found["store"]), released=found["released"])


def _opened_tag(found: Any) -> _Answer:
    return _Answer(store=_identity(found["store"]), record=_record(found["tag"]))


def _created_tag(found: Any) -> _Answer:
    return _Answer(names_store=False, record=_record(found))


def _record(found: Any) -> TagRecord:
    mode, step, refill = found["mode"], found["step"], found["refill"]
    if mode not in ("buffered", "ordered"):
        message = f"the server has {found['tag']!r} in the mode {mode!r}, which this program does not know"
        raise StoreError("corrupt", message)
    if step["policy"] == "fixed":
        of_step: StepPolicy = FixedStep(_number(step["step"]))
    elif step["policy"] == "adaptive":
        names = ("initial", "min", "max", "grow_below_ms", "shrink_above_ms")
        of_step = AdaptiveStep(*(_number(step[name]) for name in names))
    else:
        raise ValueError(f"{step!r} is no policy for the step")
    if refill["policy"] == "share-consumed":
        of_refill: RefillPolicy = ShareConsumed(_small(refill["percent"], 255))
    elif refill["policy"] == "remaining":
        of_refill = Remaining(_number(refill["count"]))
    else:
        raise ValueError(f"{refill!r} is no policy for the refill")
    name, sub = _text(found["tag"]), found.get("sub")
    tag = name if sub is None else sub_tag(name, _text(sub))
    options = TagOptions(_number(found["start"]), of_step, of_refill, mode)
    return TagRecord(tag, options, _number(found["watermark"]))


def _step_json(step: StepPolicy) -> dict[str, str]:
    if isinstance(step, FixedStep):
        return {"policy": "fixed", "step": str(step.step)}
    return {
        "policy": "adaptive",
        "initial": str(step.step),
        "min": str(step.min),
        "max": str(step.max),
        "grow_below_ms": str(step.grow_below_ms),
        "shrink_above_ms": str(step.shrink_above_ms),
    }


def _refill_json(refill: RefillPolicy) -> dict[str, Any]:
    if isinstance(refill, ShareConsumed):
        return {"policy": "share-consumed", "percent": refill.percent}
    return {"policy": "remaining", "count": str(refill.numbers)}


def _sub_of(tag: str) -> list[tuple[str, str]]:
    sub = split_tag(tag)[1]
    return [] if sub is None else [("sub", sub)]


def _addresses(servers: Union[str, Sequence[str]]) -> tuple[list[_Address], dict[str, str]]:
    """Reads the servers' addresses, and the parameters.

    :raises StoreError: ``refused``, in words that hold no secret.
    """
    is_one = isinstance(servers, (str, bytes)) or not isinstance(servers, Iterable)
    texts = [servers] if is_one else list(servers)
    found: list[_Address] = []
    parameters: dict[str, str] = {}
    for given in texts:
        scheme, separator, rest = text_given("the address", given).partition("://")
        if scheme not in ("http", "https") or not separator:
            raise _unusable("has another scheme than http and https")
        if "@" in rest:
            # Anywhere: a password may have a ? in it, and must not be told.
            what = "has a user or password, which no server takes: leave out what is before the @, and give token="
            raise _unusable(f"{what}; in a path an @ is written %40")
        hosts, _, query = rest.partition("?")
        for name, value in parse_qsl(query, keep_blank_values=True):
            if name in parameters:
                raise _unusable(f"has the parameter {name} twice")
            if name in ("token", "password"):
                raise _unusable("has a secret in it: give the token by itself, as token=")
            if name not in _PARAMETERS:
                raise _unusable(f"has the parameter {name!r}, and there are {', '.join(_PARAMETERS)}")
            parameters[name] = value
        hosts = hosts.removesuffix("/")
        if "/" in hosts.replace("://", "") or "#" in rest:
            raise _unusable("has a path, which no server takes")
        for host in hosts.split(","):
            if "://" in host:
                raise _unusable("has a scheme after a comma: hosts there have none of their own")
            address = _address(scheme, host)
            if address in found:
                raise _unusable(f"names {host!r} twice")
            found.append(address)
    if not found:
        raise _unusable("is missing: give one server at least")
    if len({address.scheme for address in found}) > 1:
        raise _unusable("mixes http and https")
    return found, parameters


def _timeout(of_url: dict[str, str], parameter: str, argument: float) -> float:
    """A time in seconds, of the URL or else as it was given."""
    most = _TIMEOUT_MAX_S
    if parameter in of_url:
        text = of_url[parameter]
        ms = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
        if not 1 <= ms <= most * 1_000:
            expected = f"a number of milliseconds from 1 to {most * 1_000:.0f}"
            raise StoreError("refused", f"{parameter} is {text!r}, it must be {expected}")
        return ms / 1_000
    if isinstance(argument, bool) or not isinstance(argument, (int, float)) or not 0 < argument <= most:
        name = parameter.removesuffix("-ms").replace("-", "_")
        expected = f"a number of seconds above 0 and up to {most:.0f}"
        raise StoreError("refused", f"{name} is {argument!r}, it must be {expected}")
    return float(argument)


def _address(scheme: str, host: str) -> _Address:
    try:
        parts = urlsplit(f"{scheme}://{host}/")
        name, port = parts.hostname, parts.port
    except ValueError as error:
        raise _unusable(f"has the host {host!r}: {error}") from None
    if not name or any(letter.isspace() for letter in host):
        raise _unusable(f"has the host {host!r}, which is none")
    return _Address(scheme, name, port or (443 if scheme == "https" else 80), host)


def _unusable(what: str) -> StoreError:
    return StoreError("refused", f"the address of the servers {what}; {_FORM}")


def _check_token(token: str) -> None:
    """No message shows it.

    :raises StoreError: ``refused``
    """
    text_given("the token", token)
    if token.strip() != token:
        raise StoreError("refused", "the token has a space or a line end at an end: strip it")
    if token.lower().startswith("bearer "):
        raise StoreError("refused", "the token begins with Bearer: leave that out")
    if not all(" " <= letter <= "~" for letter in token):
        raise StoreError("refused", "the token has letters that no header may have")


def _trusting(ssl_ca: Optional[str], addresses: list[_Address]) -> Optional[ssl.SSLContext]:
    if addresses[0].scheme == "http":
        if ssl_ca is not None:
            raise StoreError("refused", "ssl_ca needs servers with https")
        return None
    try:
        context = ssl.create_default_context(cafile=ssl_ca)
    except (OSError, ssl.SSLError) as error:
        none = isinstance(error, ssl.SSLError) and "there is none, as PEM"
        raise StoreError("refused", f"the certificates in {ssl_ca}: {none or error}") from None
    if ssl_ca is not None:
        # Authorities of one's own are not as strict as newer versions of Python want them.
        context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
    return context
