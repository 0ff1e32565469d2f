"""A store in memory, for tests: numbers and leases are gone with the process, and no other process has them."""

from __future__ import annotations

import secrets
import threading
import time
from dataclasses import dataclass
from typing import Callable, Optional

from ._process import current, uninterrupted_calls
from .lease_rules import layout_text
from .store import (
    ID_MAX,
    FormatOwner,
    FormatPart,
    Layout,
    Lease,
    LeaseAcquire,
    LeaseExtend,
    Segment,
    StoreError,
    TagOptions,
    TagRecord,
    TailRelease,
    bind_in_tags,
    shown,
    split_tag,
    validate_allocate,
    validate_new_tag,
    validate_options,
    validate_public,
    validate_release,
    validate_tag,
)

__all__ = ["MemoryStore"]


@dataclass
class _Row:
    options: TagOptions
    next: int
    version: int = 0


@dataclass
class _Worker:
    grant_id: int
    end_ms: int


@uninterrupted_calls
class MemoryStore:
    """Segments and leases in memory.

    It belongs to the process that made it. A child of a fork has a copy, which would grant what its parent's grants,
    too: there it refuses every request.

    >>> from unalike.memory import MemoryStore
    >>> from unalike import TagOptions
    >>> store = MemoryStore()
    >>> store.create_tag("order", TagOptions(start=100)).tag
    'order'
    >>> store.allocate("order", 10, 0).start
    100
    """

    def __init__(
        self,
        *,
        create_tags: bool = True,
        max_horizon_ms: int = 366 * 86_400_000,
        clock: Optional[Callable[[], int]] = None,
    ) -> None:
        self._mark = current()
        self._own_lock = threading.Lock()
        self._rows: dict[str, _Row] = {}
        self._layouts: dict[str, Layout] = {}
        self._workers: dict[str, dict[int, _Worker]] = {}
        self._create_tags, self._max_horizon_ms = create_tags, max_horizon_ms
        self._clock = clock or (lambda: time.time_ns() // 1_000_000)
        self._identity = secrets.token_hex(16)

    def create_tag(self, tag: str, options: Optional[TagOptions] = None) -> TagRecord:
        """Creates a tag.

        :raises StoreError: ``tag-exists``, ``tag-invalid``
        """
        options = options or TagOptions()
        validate_options(tag, options)
        validate_public(tag)
        validate_new_tag(tag)
        with self._lock:
            if not self._create(tag, options):
                raise StoreError("tag-exists", f"the tag {shown(tag)} exists already")
        return TagRecord(tag, options, options.start - 1)

    def allocate(self, tag: str, count: int, at_least: int) -> Segment:
        validate_allocate(tag, count, at_least)
        with self._lock:
            row = self._row(tag)
            start = max(row.next, at_least)
            if start > ID_MAX:
                raise StoreError("exhausted", f"every number of {shown(tag)} was granted")
            end = min(start + count, ID_MAX + 1)
            row.next, row.version = end, row.version + 1
            return Segment(start, end, 1, 0, row.version)

    def release(self, tag: str, tail: TailRelease) -> bool:
        validate_release(tag, tail)
        with self._lock:
            row = self._rows.get(tag)
            if row is None or row.version != tail.version or not row.options.start <= tail.start <= row.next:
                return False
            row.next, row.version = tail.start, row.version + 1
            return True

    def open_tag(self, tag: str) -> TagRecord:
        validate_tag(tag)
        validate_public(tag)
        with self._lock:
            row = self._row(tag)
            return TagRecord(tag, row.options, row.next - 1)

    def bind_format(self, owner: FormatOwner, part: FormatPart, first: Optional[int]) -> Optional[int]:
        def start_of(name: str) -> Optional[int]:
            row = self._rows.get(name)
            return None if row is None else row.options.start

        with self._lock:
            return bind_in_tags(owner, part, first, start_of, self._create)

    def identity(self) -> Optional[str]:
        with self._lock:
            return self._identity

    def lease_identity(self) -> Optional[str]:
        return self.identity()

    def acquire(self, request: LeaseAcquire) -> Lease:
        with self._lock:
            now = self._clock()
            bound = self._layouts.setdefault(request.namespace, request.layout)
            if bound != request.layout:
                message = (
                    f"the namespace {request.namespace!r} is bound to the layout {layout_text(bound)}, and "
                    f"{layout_text(request.layout)} was offered: use another namespace"
                )
                raise StoreError("layout-mismatch", message)
            workers = self._workers.setdefault(request.namespace, {})
            free = [worker for worker, held in workers.items() if held.end_ms <= now]
            unused = len(workers)
            if request.preferred_worker in free:
                worker = request.preferred_worker or 0
            elif unused < 1 << (request.layout.datacenter_bits + request.layout.worker_bits):
                worker = unused
            elif free:
                worker = free[0]
            else:
                message = f"every worker of {request.namespace!r} is leased: one becomes free later"
                raise StoreError("workers-exhausted", message)
            layout = request.layout
            before = workers[worker].end_ms if worker in workers else 0
            not_before = _up(layout, max(before, now))
            until = _down(layout, now + min(request.horizon_ms, self._max_horizon_ms))
            if until <= not_before:
                raise StoreError("refused", f"a horizon of {request.horizon_ms} ms holds no tick of the layout")
            held = workers[worker] = _Worker(secrets.randbits(128), until)
            return Lease(worker, held.grant_id, not_before, until)

    def extend(self, request: LeaseExtend) -> Lease:
        with self._lock:
            held = self._held(request.namespace, request.worker, request.grant_id)
            until = _down(request.layout, self._clock() + min(request.horizon_ms, self._max_horizon_ms))
            held.end_ms = max(held.end_ms, until)
            return Lease(request.worker, request.grant_id, 0, held.end_ms)

    def release_lease(self, namespace: str, worker: int, grant_id: int, end_ms: int) -> bool:
        with self._lock:
            held = self._workers.get(namespace, {}).get(worker)
            if held is None or held.grant_id != grant_id or end_ms > held.end_ms:
                return False
            held.end_ms, held.grant_id = end_ms, -1
            return True

    def close(self) -> None:
        pass

    @property
    def _lock(self) -> threading.Lock:
        """The lock, in the process that it belongs to: in a child a thread of the parent's may hold it for ever.

        :raises StoreError: ``refused``
        """
        if current() != self._mark:
            message = (
                "this store in memory was made before the fork, and its parent process goes on with its numbers: make "
                "one in each process for tests, and use a SqliteStore where processes share a store"
            )
            raise StoreError("refused", message)
        return self._own_lock

    def _create(self, tag: str, options: TagOptions) -> bool:
        """Creates a tag, and answers whether there was none."""
        made = _Row(options, options.start)
        return self._rows.setdefault(tag, made) is made

    def _row(self, tag: str) -> _Row:
        row = self._rows.get(tag)
        if row is None:
            parent, sub = split_tag(tag)
            if sub is None and not self._create_tags:
                raise StoreError("tag-unknown", f"there is no tag {shown(tag)}: create it first")
            options = TagOptions() if sub is None else self._row(parent).options
            if sub is None:
                validate_new_tag(tag)
            row = self._rows[tag] = _Row(options, options.start)
        return row

    def _held(self, namespace: str, worker: int, grant_id: int) -> _Worker:
        held = self._workers.get(namespace, {}).get(worker)
        if held is None or held.grant_id != grant_id:
            raise StoreError("lease-lost", f"worker {worker} of {namespace!r} has another lease, or none")
        return held


def _up(layout: Layout, at_ms: int) -> int:
    return layout.epoch_ms - (layout.epoch_ms - at_ms) // layout.tick_ms * layout.tick_ms


def _down(layout: Layout, at_ms: int) -> int:
    return layout.epoch_ms + (at_ms - layout.epoch_ms) // layout.tick_ms * layout.tick_ms
