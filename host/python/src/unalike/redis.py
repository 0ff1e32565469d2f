"""Segments and leases in Redis: as fast as ``HINCRBY``, strictly increasing, and safe from whatever Redis loses.

A durable store grants Redis a large interval of numbers, whose end is the tag's *ceiling*, and Redis hands out its
parts. The ceiling is durable before Redis learns of it. The numbers belong to one *incarnation* of Redis, its
``run_id`` and ``master_replid``: a Redis that was restarted, restored or failed over hands out nothing until it has got
another interval, so losing data costs a gap and never a duplicate. The time that leases may reach to is granted in the
same way.

Keys and scripts are those of the ``unalike`` command and its server, so that programs in Python, Node and Rust share
one Redis and one durable store.
"""

from __future__ import annotations

from typing import Literal, Optional, TypeGuard

from ._given import url_given
from ._plain import Asked
from ._process import uninterrupted_calls
from .lease_rules import DEFAULT_LEASE_LIMITS, LeaseLimits
from .store import (
    FormatOwner,
    FormatPart,
    Lease,
    LeaseAcquire,
    LeaseExtend,
    LeaseStore,
    SegmentStore,
    StoreError,
    TagOptions,
    TagRecord,
    bind_in,
    validate_new_tag,
    validate_public,
)
from .stores import Store

__all__ = ["RedisStore"]


@uninterrupted_calls
class RedisStore(Store):
    """A store in Redis: a :class:`~unalike.SegmentStore` and a :class:`~unalike.LeaseStore`.

    >>> from unalike.redis import RedisStore
    >>> from unalike.sqlite import SqliteStore
    >>> store = RedisStore("redis://cache.example/0", backing=SqliteStore("ids.sqlite"))  # doctest: +SKIP
    >>> store.allocate("order", 1_000, 0)  # doctest: +SKIP
    Segment(start=1, end=1001, stride=1, generation=0, version=1002)

    The URL is ``redis[s]://[USER[:PASSWORD]@]HOST[:PORT][/DATABASE][?PARAMETERS]``; ``rediss`` is TLS. The master that
    Sentinels name is ``redis+sentinel://HOST,HOST/MASTER``, a Cluster ``redis+cluster://HOST,HOST``. The parameters are
    those of the ``unalike`` command:

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
    alone. Redis must be of version 7 or newer. Not covered are keys that somebody copies (``COPY``, ``RESTORE``,
    ``SWAPDB``) within one running server.

    :param backing: The durable store that grants what Redis hands out, and keeps the tags: SQLite or MySQL, say. One
        that a URL names can be given to :class:`unalike.stores.Store` by that URL, with Redis.
    :param leases_in: Where the leases of snowflakes are kept: ``"backing"``, in the durable store itself, as in every
        host of unalike, or ``"redis"``. By default in the durable store, unless that leases no workers. A namespace has
        one place: the other one is refused (``leases-elsewhere``).
    :param lease_limits: What leases in Redis are allowed: ten minutes ahead, and clocks within 10 s of each other, by
        default. Those in the durable store have its limits.
    :raises StoreError: ``unavailable`` when the server does not answer; ``refused`` when it denies access, is too old,
        when Redis knows another durable store, and for a URL that cannot be used. Each says what to do.
    """

    def __init__(
        self,
        url: str,
        *,
        backing: SegmentStore,
        leases_in: Optional[Literal["backing", "redis"]] = None,
        lease_limits: Optional[LeaseLimits] = None,
    ) -> None:
        url = url_given(url, lambda scheme: scheme.startswith("redis"), "redis", "redis://HOST/DATABASE")
        parts = ("allocate", "open_tag", "identity", "close")
        if not all(callable(getattr(backing, part, None)) for part in parts):
            raise StoreError(
                "refused",
                "Redis needs a durable store behind it (backing): open a SqliteStore or a MysqlStore. To use Redis "
                'without one, and have ids that are only as safe as it is, open unalike.stores.Store(URL, backing="none")',
            )
        self._backing = backing
        self._leases_there = _leases_there(backing, leases_in, lease_limits)
        self._own = Asked(backing)
        limits = DEFAULT_LEASE_LIMITS if lease_limits is None else lease_limits
        super().__init__(
            url,
            leases=url if self._leases_there is None else "none",
            lease_horizon_max_ms=limits.max_horizon_ms,
            lease_skew_max_ms=limits.max_skew_ms,
        )

    def create_tag(self, tag: str, options: Optional[TagOptions] = None) -> TagRecord:
        """Creates a tag, in the durable store.

        :raises StoreError: ``tag-exists``, ``tag-invalid``, ``tag-limit``; ``refused`` where the durable store creates
            none.
        """
        validate_new_tag(tag)
        return super().create_tag(tag, options)

    def bind_format(self, owner: FormatOwner, part: FormatPart, first: Optional[int]) -> Optional[int]:
        """As :meth:`unalike.SegmentStore.bind_format`: the durable store keeps it, or keeps none."""
        return bind_in(self._backing, owner, part, first)

    def _check_name(self, tag: str) -> None:
        super()._check_name(tag)
        validate_public(tag)

    def acquire(self, request: LeaseAcquire) -> Lease:
        """As :meth:`unalike.LeaseStore.acquire`."""
        there = self._leases_there
        return super().acquire(request) if there is None else there.acquire(request)

    def extend(self, request: LeaseExtend) -> Lease:
        """As :meth:`unalike.LeaseStore.extend`."""
        there = self._leases_there
        return super().extend(request) if there is None else there.extend(request)

    def release_lease(self, namespace: str, worker: int, grant_id: int, end_ms: int) -> bool:
        """As :meth:`unalike.LeaseStore.release_lease`."""
        there = self._leases_there
        if there is None:
            return super().release_lease(namespace, worker, grant_id, end_ms)
        return there.release_lease(namespace, worker, grant_id, end_ms)

    def lease_identity(self) -> Optional[str]:
        """As :meth:`identity`, of the leases."""
        there = self._leases_there
        return super().lease_identity() if there is None else there.lease_identity()

    def close(self) -> None:
        """Closes the connections, those of the durable store, too. Requests fail from then on."""
        if not self._is_closed:
            super().close()
            self._backing.close()


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
        # A URL may have a password in it.
        given = repr(leases_in) if isinstance(leases_in, str) and leases_in.isalnum() else "no such word"
        raise StoreError("refused", f'leases_in is {given}, it must be "backing" or "redis"')
    if leases_in == "redis" or (leases_in is None and not _is_lease_store(backing)):
        return None
    if not _is_lease_store(backing):
        what = 'the durable store leases no workers: leave leases_in out, or write leases_in="redis"'
        raise StoreError("refused", what)
    if limits is not None:
        what = "lease_limits are those of leases in Redis, and these are in the durable store: give them to that store"
        raise StoreError("refused", f'{what}, or write leases_in="redis"')
    return backing
