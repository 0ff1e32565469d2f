"""Segments and leases in Redis: as fast as ``HINCRBY``, strictly increasing, and safe from whatever Redis loses.

A durable store grants Redis a large interval of numbers, whose end is the tag's *ceiling*, and Redis hands out its
parts. The ceiling is durable before Redis learns of it. The numbers belong to one *incarnation* of Redis, its
``run_id`` and ``master_replid``: a Redis that was restarted, restored or failed over hands out nothing until it has got
another interval, so losing data costs a gap and never a duplicate. The time that leases may reach to is granted in the
same way.

Keys and scripts are those of the ``unalike`` server, so that programs in Python, Node and Rust share one Redis and one
durable store. It needs the driver: ``pip install unalike[redis]``.
"""

from __future__ import annotations

import hashlib
from typing import Final, Literal, Optional, Protocol, TypeGuard, Union, cast

try:
    import redis as _driver
except ImportError as _error:  # pragma: no cover
    raise ImportError("stores in Redis need redis-py: pip install 'unalike[redis]'") from _error

from ._process import ProcessLock, current, uninterrupted_calls
from .lease_rules import DEFAULT_LEASE_LIMITS, LeaseLimits
from .redis_leases import RedisLeases
from .redis_segments import RedisSegments
from .redis_server import RedisServer
from .redis_url import RedisSettings, read_redis_url
from .store import (
    Lease,
    LeaseAcquire,
    LeaseExtend,
    LeaseStore,
    Segment,
    SegmentStore,
    StoreError,
    TagOptions,
    TagRecord,
    TailRelease,
    validate_allocate,
    validate_new_tag,
    validate_options,
    validate_public,
    validate_tag,
)

__all__ = ["RedisStore"]

del _driver

_INHERITED: Final[list[object]] = []
"""What belongs to the parent of this process: kept as it is, so that nothing of it is closed here."""


class _CreatesTags(Protocol):
    def create_tag(self, tag: str, options: TagOptions) -> TagRecord: ...


def _is_lease_store(store: object) -> TypeGuard[LeaseStore]:
    parts = ("acquire", "extend", "release_lease", "lease_identity")
    return all(callable(getattr(store, part, None)) for part in parts)


def _leases_there(
    backing: SegmentStore, leases_in: Optional[str], limits: Optional[LeaseLimits]
) -> Optional[LeaseStore]:
    """The durable store, if the leases are kept there.

    :raises StoreError: ``refused``
    """
    if leases_in not in (None, "backing", "redis"):
        raise StoreError("refused", f'leases_in is {leases_in!r}, it must be "backing" or "redis"')
    if leases_in == "redis" or (leases_in is None and not _is_lease_store(backing)):
        return None
    if not _is_lease_store(backing):
        what = 'the durable store leases no workers: leave leases_in out, or write leases_in="redis"'
        raise StoreError("refused", what)
    if limits is not None:
        what = "lease_limits are those of leases in Redis, and these are in the durable store: give them to that store"
        raise StoreError("refused", f'{what}, or write leases_in="redis"')
    return backing


class _Opened:
    """The connections of one process, and all that it knows."""

    def __init__(self, settings: RedisSettings, backing: SegmentStore, limits: LeaseLimits) -> None:
        self._settings, self._backing, self._limits = settings, backing, limits
        self._lock = ProcessLock()
        self._leases: Optional[RedisLeases] = None
        self.mark: Final = current()
        self.server: Final = RedisServer(settings)
        self.server.connect()
        try:
            self.segments: Final = RedisSegments(self.server, backing, settings)
        except BaseException:
            self.server.close()
            raise

    def leases(self) -> RedisLeases:
        """Opened when leases are first asked for."""
        with self._lock.get():
            if self._leases is None:
                self._leases = RedisLeases(self.server, self._backing, self._settings, self._limits)
            return self._leases

    def close(self) -> None:
        self.segments.close()
        self.server.close()


@uninterrupted_calls
class RedisStore:
    """A store in Redis: a :class:`~unalike.SegmentStore` and a :class:`~unalike.LeaseStore`.

    >>> from unalike.redis import RedisStore
    >>> from unalike.sqlite import SqliteStore
    >>> store = RedisStore("redis://cache.example/0", backing=SqliteStore("ids.sqlite"))  # doctest: +SKIP
    >>> store.allocate("order", 1_000, 0)  # doctest: +SKIP
    Segment(start=1, end=1001, stride=1, generation=0, version=1002)

    The URL is ``redis[s]://[USER[:PASSWORD]@]HOST[:PORT][/DATABASE][?PARAMETERS]``; ``rediss`` is TLS. The parameters
    are those of the ``unalike`` server:

    ``ssl-ca``
        After ``rediss://``: a file with the certificates of the authorities to trust. The system's by default.
    ``prefix``
        What unalike's keys begin with: ``unalike`` by default. Programs with another one see other tags.
    ``raise-min``, ``raise-max``
        How many numbers the ceiling is raised by: 1 to 2^53 - 1; 100000 and 2^40 by default.
    ``connect-timeout-ms``, ``request-timeout-ms``, ``raise-timeout-ms``
        How long opening a connection and a command may take, and how long a request waits while the ceiling is raised:
        1 to 600000, 1000 by default. A command that takes longer is given up with its connection, and its grant is
        burnt.
    ``password-file``, ``password-env``
        Where the password is, instead of before the ``@``.

    In the user's name and the password, ``%``, ``/``, ``?``, ``#`` and ``@`` are written ``%25``, ``%2F``, ``%3F``,
    ``%23`` and ``%40``.

    Several threads may use it. A child that is forked opens connections of its own and leaves those of its parent
    alone. Neither Redis Cluster nor Sentinel is supported, and Redis must be of version 7 or newer. Not covered are
    keys that somebody copies (``COPY``, ``RESTORE``, ``SWAPDB``) within one running server.

    :param backing: The durable store that grants what Redis hands out, and keeps the tags: SQLite or MySQL, say.
    :param leases_in: Where the leases of snowflakes are kept: ``"backing"``, in the durable store itself, as in every
        host of unalike, or ``"redis"``. By default in the durable store, unless that leases no workers. A namespace has
        one place: the other one is refused (``leases-elsewhere``).
    :param lease_limits: What leases in Redis are allowed: ten minutes ahead, and clocks within 10 s of each other, by
        default. Those in the durable store have its limits.
    :raises StoreError: ``unavailable`` when the server does not answer; ``refused`` when it denies access, is a node of
        a cluster or too old, when Redis knows another durable store, and for a URL that cannot be used. Each says what
        to do.
    """

    def __init__(
        self,
        url: str,
        *,
        backing: SegmentStore,
        leases_in: Optional[Literal["backing", "redis"]] = None,
        lease_limits: Optional[LeaseLimits] = None,
    ) -> None:
        self._settings = read_redis_url(url)
        parts = ("allocate", "open_tag", "identity", "close")
        if not all(callable(getattr(backing, part, None)) for part in parts):
            raise StoreError(
                "refused",
                "Redis needs a durable store behind it (backing): open a SqliteStore or a MysqlStore. To use Redis "
                "without one, run the `unalike` server with --backing none, and ask it over HTTP",
            )
        self._backing = backing
        self._leases_there = _leases_there(backing, leases_in, lease_limits)
        self._limits = DEFAULT_LEASE_LIMITS if lease_limits is None else lease_limits
        self._lock = ProcessLock()
        self._is_closed = False
        self._opened = _Opened(self._settings, backing, self._limits)

    def allocate(self, tag: str, count: int, at_least: int) -> Segment:
        """As :meth:`unalike.SegmentStore.allocate`."""
        validate_allocate(tag, count, at_least)
        validate_public(tag)
        return self._here().segments.allocate(tag, count, at_least)

    def release(self, tag: str, tail: TailRelease) -> bool:
        """As :meth:`unalike.SegmentStore.release`."""
        validate_tag(tag)
        validate_public(tag)
        return self._here().segments.release(tag, tail)

    def open_tag(self, tag: str) -> TagRecord:
        """As :meth:`unalike.SegmentStore.open_tag`: in the durable store."""
        validate_tag(tag)
        validate_public(tag)
        return self._backing.open_tag(tag)

    def create_tag(self, tag: str, options: TagOptions) -> TagRecord:
        """Creates a tag, in the durable store.

        :raises StoreError: ``tag-exists``, ``tag-invalid``, ``tag-limit``; ``refused`` where the durable store creates
            none.
        """
        validate_new_tag(tag)
        validate_options(tag, options)
        validate_public(tag)
        if not callable(getattr(self._backing, "create_tag", None)):
            what = "creates no tags by request: use `unalike tags create`"
            raise StoreError("refused", f"the durable store behind Redis {what}")
        return cast(_CreatesTags, self._backing).create_tag(tag, options)

    def identity(self) -> Optional[str]:
        """As :meth:`unalike.SegmentStore.identity`: the name of this part of what the durable store grants."""
        return self._identity_of("sequences")

    def acquire(self, request: LeaseAcquire) -> Lease:
        """As :meth:`unalike.LeaseStore.acquire`."""
        return self._lease_store().acquire(request)

    def extend(self, request: LeaseExtend) -> Lease:
        """As :meth:`unalike.LeaseStore.extend`."""
        return self._lease_store().extend(request)

    def release_lease(self, namespace: str, worker: int, grant_id: int, end_ms: int) -> bool:
        """As :meth:`unalike.LeaseStore.release_lease`."""
        return self._lease_store().release_lease(namespace, worker, grant_id, end_ms)

    def lease_identity(self) -> Optional[str]:
        """As :meth:`identity`, of the leases."""
        there = self._leases_there
        return self._identity_of("leases") if there is None else there.lease_identity()

    def close(self) -> None:
        """Closes the connections, those of the durable store, too. Requests fail from then on."""
        if self._is_closed:
            return
        self._is_closed = True
        opened = self._opened
        if opened.mark == current():
            opened.close()
        self._backing.close()

    def __enter__(self) -> RedisStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _lease_store(self) -> Union[LeaseStore, RedisLeases]:
        return self._here().leases() if self._leases_there is None else self._leases_there

    def _here(self) -> _Opened:
        """What this process has opened.

        A child has nothing yet: it takes neither connections nor locks of its parent.
        """
        opened = self._opened
        if opened.mark == current():
            return opened
        with self._lock.get():
            opened = self._opened
            if opened.mark != current():
                if self._is_closed:
                    raise StoreError("refused", f"{self._settings.address}: the store was closed")
                _INHERITED.append(opened)
                opened = self._opened = _Opened(self._settings, self._backing, self._limits)
            return opened

    def _identity_of(self, part: str) -> Optional[str]:
        identity = self._backing.identity()
        if identity is None:
            return None
        name = f"redis {part} {self._settings.prefix}".encode()
        return hashlib.sha256(bytes.fromhex(identity) + name).hexdigest()[:32]
