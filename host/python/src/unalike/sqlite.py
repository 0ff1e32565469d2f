"""Segments and leases in one SQLite file, in the tables that the ``unalike`` command and its server use.

Every grant is on the disk before anybody hears of it: the file runs with write-ahead logging and
``synchronous = FULL``, each grant is one statement, and a statement is stepped to its end (which is the commit) before
its rows are believed. The file must lie on a local disk: write-ahead logging does not work over network file systems.

Outside the promise: a file that is deleted, or restored from an old backup, takes its knowledge of what was granted
with it. A program that has the file open notices before its next grant that it was deleted, moved or replaced (or the
files beside it), and grants nothing any more.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from typing import Final, Optional, Union

from . import _process
from .lease_rules import (
    FIGURES_IN_REDIS,
    Candidates,
    Clocks,
    Exhausted,
    Expiry,
    LeaseLimits,
    NamespaceBinding,
    NeverUsed,
    UsedWorker,
    choose,
    choose_worker,
    fault_of_layout,
    lease_lost,
    leases_elsewhere,
    nth_never_used,
    quarantined,
    random_bits,
    validate_acquire,
    validate_extend,
    workers_exhausted,
    workers_of,
)
from .sqlite_file import SQL, Arguments, Opened, Reader, blob, damaged, number, text
from .sqlite_locks import File
from .sqlite_path import BUSY_TIMEOUT_MAX_MS, read_path
from .store import (
    ID_MAX,
    KEPT_FLOOR,
    KEPT_LEASE_FLOOR,
    AdaptiveStep,
    FixedStep,
    FormatOwner,
    FormatPart,
    Layout,
    Lease,
    LeaseAcquire,
    LeaseExtend,
    Mode,
    RefillPolicy,
    Remaining,
    Segment,
    ShareConsumed,
    StepPolicy,
    StoreError,
    TagOptions,
    TagRecord,
    TailRelease,
    bind_in_tags,
    is_kept,
    is_kept_time,
    shown,
    split_tag,
    validate_allocate,
    validate_new_tag,
    validate_options,
    validate_public,
    validate_release,
    validate_tag,
    time_tag,
)

__all__ = ["SqliteStore"]

_LOG: Final = logging.getLogger("unalike")
_U64: Final = 2**64 - 1
_RACES_MAX: Final = 256
"""How often a request is tried that others were quicker than. Of those that try at once one gets on each time."""


@_process.uninterrupted_calls
class SqliteStore:
    """Segments and leases in one SQLite file, for any number of threads, and for all processes of a machine.

    One process writes at a time, and the others wait for it up to the busy timeout. A child of a fork opens connections
    of its own, and neither uses nor closes those that it inherits. It is refused if it has closed their descriptors, as
    a daemon does, and if Python did not hear of the fork.

    Raising, ending, importing and resizing stay with the ``unalike`` command. A store that is a stripe of a set is
    refused: use it through the ``unalike`` server.

    :param path: The file; SQLite puts a ``-wal`` and a ``-shm`` file beside it. Or the URL that the ``unalike``
        command takes, ``sqlite://PATH``, with its parameters ``create`` and ``busy-timeout-ms``, which then decide.
    :param create: Create the file when it does not exist. Its directory must exist.
    :param create_tags: Whether tags are created on first use.
    :param tags_max: How many tags there may be, sub-keys not counted.
    :param max_horizon_ms: How far ahead of the clock a lease may reach: 1 ms to 366 days.
    :param max_skew_ms: How far a holder's clock may be from the store's.
    :param busy_timeout_ms: How long a request waits for its turn in this process, and again for other processes: 0 to
        600000 ms.
    :raises StoreError: ``refused`` when the file or its directory is missing, is not writable, or belongs to another
        program or to a newer version of this one; ``corrupt`` when it is no database or a damaged one; ``unavailable``
        when another process keeps it locked. Each says what to do.

    >>> import tempfile
    >>> from unalike.sqlite import SqliteStore
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = SqliteStore(f"{folder}/ids.sqlite")
    ...     segment = store.allocate("order", 100, 0)
    ...     store.close()
    >>> segment.start, segment.end
    (1, 101)
    """

    def __init__(
        self,
        path: Union[str, os.PathLike[str]],
        *,
        create: bool = True,
        create_tags: bool = True,
        tags_max: int = 1_000_000,
        max_horizon_ms: int = 600_000,
        max_skew_ms: int = 10_000,
        busy_timeout_ms: int = 5_000,
    ) -> None:
        self._limits: Final = LeaseLimits(max_horizon_ms, max_skew_ms)
        self._limits.validate()
        place = read_path(path)
        create = create if place.create is None else place.create
        busy_timeout_ms = busy_timeout_ms if place.busy_timeout_ms is None else place.busy_timeout_ms
        if not _is_in(busy_timeout_ms, 0, BUSY_TIMEOUT_MAX_MS):
            what = f"a busy timeout of {busy_timeout_ms!r} ms was asked for, 0 to {BUSY_TIMEOUT_MAX_MS} is allowed"
            raise StoreError("refused", what)
        if not _is_in(tags_max, 0, _U64):
            raise StoreError("refused", f"tags_max is {tags_max!r}, it must be 0 to 2^64 - 1")
        self._create_tags: Final = create_tags
        self._tags_max: Final = tags_max
        self._locks: Final = _process.ProcessLock()
        self._path: Final = os.path.abspath(place.path)
        self._busy_timeout_ms: Final = busy_timeout_ms
        self._is_closed = False
        opened = Opened(self._path, create=create, busy_timeout_ms=busy_timeout_ms)
        self._file: Final[File] = opened.file
        self._opened = opened
        if opened.is_new:
            # Whoever mistyped a path must hear that the numbers of another store do not go on here.
            identity = self.identity()
            _LOG.warning("%s: made a new store (%s): every tag begins here at its first number", self._path, identity)

    @property
    def address(self) -> str:
        """The file, for messages."""
        return self._path

    def _files(self) -> Opened:
        """The connections of this process: in a child, its own."""
        opened = self._opened
        if opened.mark == _process.current() and not self._is_closed:
            return opened
        with self._locks.get():
            if self._is_closed:
                raise StoreError("refused", f"{self._path}: the store was closed")
            if self._opened.mark != _process.current():
                # The inherited one is neither closed nor forgotten: `Opened` sees to that.
                fresh = Opened(self._path, create=False, busy_timeout_ms=self._busy_timeout_ms, expected=self._file)
                self._opened = fresh
            return self._opened

    def close(self) -> None:
        """Closes the connections. Not needed for safety. Requests fail from now on."""
        with self._locks.get():
            self._is_closed = True
            if self._opened.mark == _process.current():
                self._opened.close()

    # Segments

    def allocate(self, tag: str, count: int, at_least: int) -> Segment:
        validate_allocate(tag, count, at_least)
        # Twice, when the tag comes into being in between.
        for _ in range(2):
            segment = self._grant(tag, count, at_least)
            if segment is not None:
                return segment
            found = self._find(tag)
            if found is None:
                self._create_on_first_use(tag)
            elif found.watermark == ID_MAX:
                raise _exhausted(tag)
        raise StoreError("unavailable", f"the tag {shown(tag)} changes all the time: try again")

    def release(self, tag: str, tail: TailRelease) -> bool:
        validate_release(tag, tail)
        # No row has a number that does not fit.
        if not _is_in(tail.start, 0, ID_MAX) or not _is_in(tail.version, 0, ID_MAX):
            return False
        args = (tag, tail.start, tail.version, None)
        return bool(self._files().write("releasing a tail", SQL["release"], args))

    def open_tag(self, tag: str) -> TagRecord:
        validate_tag(tag)
        record = self._find_or_create(tag)
        self._check_stripe()
        return record

    def create_tag(self, tag: str, options: TagOptions = TagOptions()) -> TagRecord:
        """Creates a tag, whatever is said of first use; the limit of tags applies.

        :raises StoreError: ``tag-exists``, ``tag-limit``, ``tag-invalid``, and what the file brings.
        """
        validate_options(tag, options)
        validate_public(tag)
        created = self._insert_new(tag, options)
        if created is None:
            raise StoreError("tag-exists", f"the tag {shown(tag)} exists already")
        return created

    def bind_format(self, owner: FormatOwner, part: FormatPart, first: Optional[int]) -> Optional[int]:
        def start_of(name: str) -> Optional[int]:
            found = self._find(name)
            return None if found is None else found.options.start

        return bind_in_tags(
            owner, part, first, start_of, lambda name, options: self._insert(name, options) is not None
        )

    def identity(self) -> str:
        opened = self._files()
        rows = opened.read("reading the identity", "SELECT mark FROM identity")
        if not rows:
            raise damaged(self._path, "it has no identity")
        return blob(self._path, rows[0], "mark").hex()

    def lease_identity(self) -> str:
        return self.identity()

    def _grant(self, tag: str, count: int, at_least: int) -> Optional[Segment]:
        """Numbers from the tag's row; none if there is no row, or no number is left."""
        args = (tag, at_least, min(count, ID_MAX), None)
        rows = self._files().write("allocating a segment", SQL["allocate"], args)
        if not rows:
            self._check_stripe()
            return None
        row = rows[0]
        segment = Segment(
            start=number(self._path, row, "grant_start"),
            # At most 2^63, for the watermark is a positive signed integer.
            end=number(self._path, row, "watermark") + 1,
            stride=1,
            generation=number(self._path, row, "generation"),
            version=number(self._path, row, "version"),
        )
        granted = segment.end - segment.start
        if segment.start < max(at_least, 1) or not 1 <= granted <= count or segment.end > ID_MAX + 1:
            raise damaged(self._path, f"the grant {segment} is not what was asked for")
        return segment

    def _find(self, tag: str) -> Optional[TagRecord]:
        rows = self._files().read("reading a tag", "SELECT * FROM tag WHERE tag = ?1", (tag,))
        return self._tag(rows[0]) if rows else None

    def _find_or_create(self, tag: str) -> TagRecord:
        found = self._find(tag) or self._create_on_first_use(tag) or self._find(tag)
        if found is None:
            raise _unknown(tag)
        return found

    def _create_on_first_use(self, tag: str) -> Optional[TagRecord]:
        """A tag without a row, if first use may create it; none if somebody else was quicker.

        A sub-key of a tag that exists, or may be created, always may be: it has the options of its tag, and ends with
        it.
        """
        owner, sub = split_tag(tag)
        if sub is not None:
            of_owner = self._find_or_create(owner)
            if of_owner.watermark >= ID_MAX:
                raise _exhausted(tag)
            return self._insert_new(tag, of_owner.options)
        if not self._create_tags and not is_kept(tag):
            raise _unknown(tag)
        made = self._insert_new(tag, TagOptions())
        if made is not None:
            # A mistyped tag begins anew, and nothing else tells. Sub-keys come with each day or tenant.
            _LOG.info("created a tag on first use: tag=%s next=%d", shown(tag), made.watermark + 1)
        return made

    def _insert_new(self, tag: str, options: TagOptions) -> Optional[TagRecord]:
        """A row under a name that a new tag may have; none if the tag exists, whatever its name is."""
        try:
            validate_new_tag(tag)
        except StoreError:
            if self._find(tag) is not None:
                return None
            raise
        return self._insert(tag, options)

    def _insert(self, tag: str, options: TagOptions) -> Optional[TagRecord]:
        tags_max = _U64 if is_kept(tag) else self._tags_max
        owner, sub = split_tag(tag)
        args: Arguments = (
            tag,
            options.start,
            options.mode,
            *_policy_columns(options.step, options.refill),
            min(tags_max, ID_MAX),
            None,
            # Times are not numbers.
            None if is_kept_time(tag) else KEPT_FLOOR,
            None if sub is None else owner,
        )
        rows = self._files().write("creating a tag", SQL["create"], args)
        if rows:
            return self._tag(rows[0])
        if self._find(tag) is not None:
            return None
        self._check_stripe()
        if is_kept_time(tag):
            floor = self._find(KEPT_LEASE_FLOOR)
            if floor is not None and floor.watermark > self._files().read_clock():
                raise quarantined(owner if sub is None else sub, floor.watermark)
        if sub is not None:
            found = self._find(owner)
            if found is not None and found.watermark >= ID_MAX:
                raise _exhausted(tag)
        raise StoreError("tag-limit", f"the tag {shown(tag)} was not created: the store has {tags_max} tags, its limit")

    def _check_stripe(self) -> None:
        """Refuses a store that is one of several stripes: this client joined none."""
        sql = "SELECT stripe_set, stripe_index, stripe_count FROM store"
        row = self._files().read("reading the place among stripes", sql)[0]
        if row["stripe_set"] is not None:
            name = blob(self._path, row, "stripe_set")
            index, count = number(self._path, row, "stripe_index"), number(self._path, row, "stripe_count")
            raise StoreError("refused", f"{self._path} is {_shown_stripe(name, index, count)}")

    def _tag(self, row: sqlite3.Row) -> TagRecord:
        def figure(column: str) -> int:
            value = row[column]
            if not isinstance(value, int):
                raise damaged(self._path, f"{column} of a tag is {value!r}, and no whole number")
            return value & _U64

        tag = text(self._path, row, "tag")
        step_policy, refill_policy, mode = row["step_policy"], row["refill_policy"], row["mode"]
        known = step_policy in ("fixed", "adaptive") and refill_policy in ("share-consumed", "remaining")
        if not known or mode not in ("buffered", "ordered"):
            raise damaged(self._path, "a tag has an unknown policy or mode")
        step: StepPolicy
        if step_policy == "fixed":
            step = FixedStep(figure("step"))
        else:
            step = AdaptiveStep(*(figure(name) for name in _ADAPTIVE))
        refill: RefillPolicy
        refill = Remaining(figure("refill")) if refill_policy == "remaining" else ShareConsumed(figure("refill"))
        kept_mode: Mode = mode
        options = TagOptions(number(self._path, row, "start"), step, refill, kept_mode)
        try:
            validate_options(tag, options)
        except StoreError as error:
            raise damaged(self._path, str(error)) from error
        return TagRecord(tag, options, number(self._path, row, "watermark"))

    # Leases

    def acquire(self, request: LeaseAcquire) -> Lease:
        validate_acquire(request)
        opened = self._files()
        store_ms = self._check_clock(opened, request.now_ms)
        for _ in range(_RACES_MAX):
            lease = self._try_acquire(opened, request, store_ms)
            if lease is not None:
                return lease
        raise self._raced("granting a lease")

    def extend(self, request: LeaseExtend) -> Lease:
        validate_extend(request)
        opened = self._files()
        store_ms = self._check_clock(opened, request.now_ms)
        lost = lease_lost(request.namespace, request.worker)
        with opened.reading("reading a namespace") as reader:
            binding = self._binding(reader, request.namespace)
        if binding is None or not _is_in(request.grant_id, 0, 2**128 - 1) or not _is_in(request.worker, 0, ID_MAX):
            raise lost
        binding.check_layout(request.namespace, request.layout)
        end_ms = binding.extended_end_ms(0, store_ms, request.horizon_ms)
        args = (request.namespace, request.worker, _bytes(request.grant_id), _signed_ms(end_ms))
        rows = opened.write("extending a lease", SQL["extend"], args)
        if not rows:
            raise lost
        return self._lease(rows[0])

    def release_lease(self, namespace: str, worker: int, grant_id: int, end_ms: int) -> bool:
        if not _is_in(grant_id, 0, 2**128 - 1) or not _is_in(worker, 0, ID_MAX) or not _is_in(end_ms, 0, _U64):
            return False
        opened = self._files()
        for _ in range(_RACES_MAX):
            with opened.reading("reading a lease") as reader:
                binding = self._binding(reader, namespace)
                row = self._find_lease(reader, namespace, worker)
            lease = None if row is None else self._lease(row)
            if binding is None or row is None or lease is None or lease.grant_id != grant_id or row["released"]:
                return False
            ends_ms = binding.released_end_ms(lease.not_before_ms, lease.valid_until_ms, end_ms)
            if ends_ms is None:
                return False
            args = (namespace, worker, _bytes(grant_id), _signed_ms(ends_ms), _signed_ms(lease.valid_until_ms))
            if opened.write("releasing a lease", SQL["end"], args):
                return True
        raise self._raced("releasing a lease")

    def leave_leases(self, namespace: str) -> None:
        opened, figures = self._files(), FIGURES_IN_REDIS
        bits = ("timestamp_bits", "datacenter_bits", "worker_bits", "sequence_bits")
        times = ("epoch_ms", "tick_ms", "max_horizon_ms")
        counts = tuple(figures[name] for name in (*bits, *times))
        args: Arguments = (namespace, *counts[:4], "worker-first", *counts[4:])
        opened.write("noting that Redis keeps leases", SQL["bind_namespace"], args)
        with opened.reading("reading a namespace") as reader:
            rows = reader.rows("SELECT timestamp_bits FROM namespace WHERE namespace = ?1", (namespace,))
            if not rows or rows[0]["timestamp_bits"] != 0:
                has_time = self._has_granted_time(reader, namespace)
                raise leases_elsewhere(namespace, "in-both" if has_time else "in-store")

    def _has_granted_time(self, reader: Reader, namespace: str) -> bool:
        """Whether time was granted to leases of the namespace in Redis."""
        return bool(reader.rows("SELECT 1 FROM tag WHERE tag = ?1", (time_tag(namespace),)))

    def _check_clock(self, opened: Opened, holder_ms: int) -> int:
        """The store's clock, unless the holder's is too far off."""
        store_ms = opened.read_clock()
        self._limits.check_clocks(Clocks(holder_ms, store_ms))
        return store_ms

    def _try_acquire(self, opened: Opened, request: LeaseAcquire, store_ms: int) -> Optional[Lease]:
        """Grants a lease, if nobody else was quicker.

        What decides is read before, in one snapshot, and without the right to write. What makes it safe is part of the
        statement that grants: the recorded end of the worker is not after the beginning of the interval.
        """
        with opened.reading("looking for a worker") as reader:
            bound = self._binding(reader, request.namespace)
            if self._has_granted_time(reader, request.namespace):
                raise leases_elsewhere(request.namespace, "in-redis" if bound is None else "in-both")
            if bound is not None:
                bound.check_layout(request.namespace, request.layout)
                bound.check_quarantine(request.namespace, store_ms)
            binding = bound or NamespaceBinding.first_use(request.layout, self._limits)
            expiry = opened.expiry(store_ms, binding.max_horizon_ms)
            chosen = self._choose(reader, request, expiry)
        start_ms, end_ms = binding.grant(chosen.end_ms, Clocks(request.now_ms, store_ms), request.horizon_ms)
        lease = Lease(chosen.worker, random_bits(128), start_ms, end_ms)
        if bound is None:
            opened.write("binding a namespace", SQL["bind_namespace"], _binding_columns(request.namespace, binding))
            # What it is bound to now is what somebody else said, perhaps.
            return None
        args = (
            request.namespace,
            lease.worker,
            _bytes(lease.grant_id),
            request.holder,
            _signed_ms(start_ms),
            _signed_ms(end_ms),
            _signed_ms(store_ms),
        )
        return lease if opened.write("granting a lease", SQL["grant"], args) else None

    def _choose(self, reader: Reader, request: LeaseAcquire, expiry: Expiry) -> UsedWorker:
        """The worker that the rule chooses, with the greatest end recorded for it."""
        namespace = request.namespace
        if not expiry.is_plain:
            rows = reader.rows("SELECT * FROM lease WHERE namespace = ?1 ORDER BY worker", (namespace,))
            used = [(self._used(row), text(self._path, row, "holder")) for row in rows]
            return choose_worker(request, expiry, random_bits(64), used)
        preferred: Optional[UsedWorker] = None
        if request.preferred_worker is not None:
            row = self._find_lease(reader, namespace, request.preferred_worker)
            preferred = UsedWorker(request.preferred_worker, 0) if row is None else self._used(row)
        previous: list[sqlite3.Row] = []
        if request.holder:
            previous = reader.rows(SQL["previous"], (namespace, request.holder, _signed_ms(expiry.clock_ms)))
        oldest = reader.rows(SQL["oldest"], (namespace,))
        count = reader.rows("SELECT count(*) AS used FROM lease WHERE namespace = ?1", (namespace,))
        candidates = Candidates(
            workers=workers_of(request.layout),
            used=number(self._path, count[0], "used"),
            preferred=preferred,
            previous=self._used(previous[0]) if previous else None,
            oldest=self._used(oldest[0]) if oldest else None,
        )
        choice = choose(candidates, expiry, random_bits(64))
        if isinstance(choice, UsedWorker):
            return choice
        if isinstance(choice, Exhausted):
            raise workers_exhausted(request, choice.free_at_ms)
        return self._never_used(reader, request, choice, expiry)

    def _never_used(self, reader: Reader, request: LeaseAcquire, choice: NeverUsed, expiry: Expiry) -> UsedWorker:
        rows = reader.rows("SELECT worker FROM lease WHERE namespace = ?1 ORDER BY worker", (request.namespace,))
        worker = nth_never_used(choice.nth, (number(self._path, row, "worker") for row in rows))
        if worker is None:
            raise workers_exhausted(request, expiry.clock_ms)
        return UsedWorker(worker, 0)

    def _binding(self, reader: Reader, namespace: str) -> Optional[NamespaceBinding]:
        rows = reader.rows(SQL["namespace"], (namespace,))
        if not rows:
            return None
        row = rows[0]
        if row["timestamp_bits"] == 0:
            raise leases_elsewhere(namespace, "in-redis")
        layout = Layout(
            timestamp_bits=number(self._path, row, "timestamp_bits"),
            datacenter_bits=number(self._path, row, "datacenter_bits"),
            worker_bits=number(self._path, row, "worker_bits"),
            sequence_bits=number(self._path, row, "sequence_bits"),
            order="sequence-first" if row["field_order"] == "sequence-first" else "worker-first",
            epoch_ms=number(self._path, row, "epoch_ms"),
            tick_ms=number(self._path, row, "tick_ms"),
        )
        fault = fault_of_layout(layout)
        if fault is not None:
            raise damaged(self._path, fault)
        max_horizon_ms, floor_ms = (number(self._path, row, column) for column in ("max_horizon_ms", "floor_ms"))
        return NamespaceBinding(layout, max_horizon_ms, floor_ms)

    def _find_lease(self, reader: Reader, namespace: str, worker: int) -> Optional[sqlite3.Row]:
        rows = reader.rows("SELECT * FROM lease WHERE namespace = ?1 AND worker = ?2", (namespace, worker))
        return rows[0] if rows else None

    def _used(self, row: sqlite3.Row) -> UsedWorker:
        return UsedWorker(self._worker(row), number(self._path, row, "valid_until_ms"))

    def _worker(self, row: sqlite3.Row) -> int:
        worker = number(self._path, row, "worker")
        if worker > 2**32 - 1:
            raise damaged(self._path, "a worker id is too great")
        return worker

    def _lease(self, row: sqlite3.Row) -> Lease:
        return Lease(
            worker=self._worker(row),
            grant_id=int.from_bytes(blob(self._path, row, "grant_id"), "big"),
            not_before_ms=number(self._path, row, "not_before_ms"),
            valid_until_ms=number(self._path, row, "valid_until_ms"),
        )

    def _raced(self, doing: str) -> StoreError:
        """Somebody else was quicker each time."""
        what = f"{doing}, in {self._path}: other programs were quicker {_RACES_MAX} times: try again"
        return StoreError("unavailable", what)


_ADAPTIVE: Final = ("step", "step_min", "step_max", "grow_below_ms", "shrink_above_ms")


def _policy_columns(step: StepPolicy, refill: RefillPolicy) -> tuple[Union[str, int, None], ...]:
    """All policies, in the order in which the statements number them; all 64 bits are kept."""
    columns: tuple[Union[str, int, None], ...]
    if isinstance(step, FixedStep):
        columns = ("fixed", _signed(step.step), None, None, None, None)
    else:
        figures = (step.step, step.min, step.max, step.grow_below_ms, step.shrink_above_ms)
        columns = ("adaptive", *map(_signed, figures))
    if isinstance(refill, Remaining):
        return (*columns, "remaining", _signed(refill.numbers))
    return (*columns, "share-consumed", refill.percent)


def _binding_columns(namespace: str, binding: NamespaceBinding) -> Arguments:
    layout = binding.layout
    return (
        namespace,
        layout.timestamp_bits,
        layout.datacenter_bits,
        layout.worker_bits,
        layout.sequence_bits,
        layout.order,
        _signed_ms(layout.epoch_ms),
        layout.tick_ms,
        _signed_ms(binding.max_horizon_ms),
    )


def _shown_stripe(name: bytes, index: int, count: int) -> str:
    """What a store is that is one of several, and what to do."""
    # Marks of a resize: see the Rust library's stripes.
    if index >= 2**31:
        mark = "fenced while its tags are moved"
    elif index >= 2**30:
        mark = "left, as its tags were moved to other stores"
    else:
        what = f"stripe {index} of {count} in the set {name.hex()}"
        return f"{what}: use it together with all stores of its set, in their order, through the unalike server"
    return (
        f"{mark} ({name.hex()}): restart this program with the stores that have its tags now; if that was broken off, "
        "repeat `unalike stripes resize`, or `unalike store rebind`"
    )


def _exhausted(tag: str) -> StoreError:
    what = "it was moved or ended, as an import does, and its numbers continue elsewhere"
    return StoreError(
        "exhausted", f"the tag {shown(tag)} is exhausted: {what}, or every number up to {ID_MAX} has been granted"
    )


def _unknown(name: str) -> StoreError:
    tag, sub = split_tag(name)
    if sub is not None:
        return StoreError("tag-unknown", f"the tag {tag!r} has no sub-key {sub!r}: its first id creates it")
    how = "with `unalike tags create` or, where that is allowed, by taking an id of it"
    return StoreError("tag-unknown", f"the tag {tag!r} is unknown: create it first, {how}")


def _signed(figure: int) -> int:
    """All 64 bits, as a column holds them."""
    return figure - 2**64 if figure > ID_MAX else figure


def _signed_ms(ms: int) -> int:
    """An instant or a duration as a column holds it; those beyond are 292 million years away."""
    if ms > ID_MAX:
        raise StoreError("refused", f"{ms} ms is too great a time")
    return ms


def _bytes(grant_id: int) -> bytes:
    return grant_id.to_bytes(16, "big")


def _is_in(value: object, least: int, greatest: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= greatest
