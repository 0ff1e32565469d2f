"""The rules of every lease store, as pure functions: which worker is offered, and where its interval begins and ends.

Invariant: an interval begins at or after the greatest end recorded for its worker, and both of its bounds lie on the
layout's tick grid, so two leases of one worker never share a tick. Clocks decide who is offered what and how long,
never whether intervals are disjoint.

A store adds what only it can: its own clock, a durable record per worker, and one transaction around reading the record
and writing it. The Rust stores have the same rules; ``tests/vectors/leases.json`` holds what they answer.

Instants and durations are 0 to 2^64 - 1, in milliseconds unless a name says otherwise.
"""

from __future__ import annotations

import json
import secrets
import threading
import unicodedata
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Callable, Final, Iterable, Literal, Optional, Union

from .store import Layout, LeaseAcquire, LeaseExtend, StoreError

__all__ = [
    "DEFAULT_LEASE_LIMITS",
    "HORIZON_MAX_MS",
    "Candidates",
    "ClockSteps",
    "Clocks",
    "Exhausted",
    "Expiry",
    "LeaseLimits",
    "NamespaceBinding",
    "NeverUsed",
    "UsedWorker",
    "choose",
    "choose_worker",
    "nth_never_used",
    "quarantined",
]

_U32_MAX: Final = 2**32 - 1
_U64_MAX: Final = 2**64 - 1

HORIZON_MAX_MS: Final = 366 * 24 * 60 * 60 * 1_000
"""The longest horizon: 366 days. A lease that long is a static assignment."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """The two clocks of a request, in Unix milliseconds."""

    holder_ms: int
    store_ms: int


@dataclass(frozen=True, slots=True)
class LeaseLimits:
    """What a lease store allows its holders."""

    max_horizon_ms: int = 600_000
    """How far ahead of the store's clock a lease may reach: 1 to :data:`HORIZON_MAX_MS`.

    It becomes a constant of each namespace when that is first used; later limits do not change it.
    """
    max_skew_ms: int = 10_000
    """How far a holder's clock may be from the store's."""

    def validate(self) -> None:
        """Checks the limits themselves.

        :raises StoreError: ``refused``
        """
        if not _is_in(self.max_horizon_ms, 1, HORIZON_MAX_MS):
            rule = f"it must be 1 to {HORIZON_MAX_MS} (366 days)"
            raise StoreError("refused", f"max_horizon_ms is {self.max_horizon_ms}, {rule}")
        if not _is_in(self.max_skew_ms, 0, _U64_MAX):
            raise StoreError("refused", f"max_skew_ms is {self.max_skew_ms}, it must be 0 to 2^64 - 1")

    def check_clocks(self, clocks: Clocks) -> None:
        """Checks that the two clocks are close enough.

        :raises StoreError: ``clock-skew``
        """
        if abs(clocks.holder_ms - clocks.store_ms) > self.max_skew_ms:
            shown = f"the clock is {rfc3339(clocks.holder_ms)}, the store's is {rfc3339(clocks.store_ms)}"
            raise StoreError("clock-skew", f"{shown}, and {self.max_skew_ms} ms apart is the limit: set the clock")


DEFAULT_LEASE_LIMITS: Final = LeaseLimits()
"""Ten minutes ahead, and clocks within 10 s of each other."""


def fault_of_layout(layout: Layout) -> Optional[str]:
    """Why this is no layout; ``None`` if it is one."""
    widths = (layout.timestamp_bits, layout.datacenter_bits, layout.worker_bits, layout.sequence_bits)
    if not all(_is_in(width, 0, 255) for width in widths):
        return "a width is no whole number of bits"
    if sum(widths) > 63:
        return f"the fields sum to {sum(widths)} bits, ids have 63 at most"
    if layout.timestamp_bits == 0 or layout.datacenter_bits + layout.worker_bits > 31 or layout.sequence_bits > 31:
        rule = "timestamp 1 to 63 bits, datacenter and worker together 31 at most, sequence 31 at most"
        return f"a field is too wide or missing: {rule}"
    if layout.order not in ("worker-first", "sequence-first"):
        return f"the order is {layout.order!r}, it must be 'worker-first' or 'sequence-first'"
    if not _is_in(layout.tick_ms, 0, _U32_MAX) or not _is_in(layout.epoch_ms, 0, _U64_MAX):
        return "the tick must be a whole number of 32 bits, and the epoch one of 64"
    if layout.tick_ms == 0:
        return "the tick is 0 ms, it must be 1 ms at least"
    if layout.epoch_ms + (layout.tick_ms << layout.timestamp_bits) > _U64_MAX:
        return "the layout's last tick ends beyond the range of 64-bit milliseconds"
    return None


def layout_text(layout: Layout) -> str:
    """A layout for people: the widths in the order of the bits, then epoch and tick.

    As ``41/5+5/12 epoch 1288834974657 tick 1 ms`` or ``39/8/16 sequence-first epoch 1735689600000 tick 10 ms``.
    Different layouts are written differently.
    """
    worker = f"{layout.datacenter_bits}+{layout.worker_bits}" if layout.datacenter_bits else f"{layout.worker_bits}"
    if layout.order == "sequence-first":
        widths = f"{layout.timestamp_bits}/{layout.sequence_bits}/{worker} sequence-first"
    else:
        widths = f"{layout.timestamp_bits}/{worker}/{layout.sequence_bits}"
    return f"{widths} epoch {layout.epoch_ms} tick {layout.tick_ms} ms"


def worker_max(layout: Layout) -> int:
    """The greatest worker id, datacenter included."""
    return int(2 ** (layout.datacenter_bits + layout.worker_bits)) - 1


def workers_of(layout: Layout) -> int:
    """How many worker ids there are, datacenter included: 1 to 2^31."""
    return worker_max(layout) + 1


def tick_start_ms(layout: Layout, tick: int) -> int:
    """When this tick begins, in Unix milliseconds; 2^64 - 1 where that cannot be said in 64 bits."""
    return _saturated(layout.epoch_ms + tick * layout.tick_ms)


def round_up_ms(layout: Layout, at_ms: int) -> int:
    """The beginning of the first tick that begins at this instant or later, in Unix milliseconds."""
    since_ms = max(at_ms - layout.epoch_ms, 0)
    return tick_start_ms(layout, -(-since_ms // layout.tick_ms))


def round_down_ms(layout: Layout, at_ms: int) -> int:
    """The beginning of the tick in which this instant lies, in Unix milliseconds; the epoch for all that is before."""
    return tick_start_ms(layout, max(at_ms - layout.epoch_ms, 0) // layout.tick_ms)


IN_REDIS: Final = 2
"""The version of a mark that Redis has the leases of a namespace."""

FIGURES_IN_REDIS: Final = {
    "timestamp_bits": 0,
    "datacenter_bits": 0,
    "worker_bits": 0,
    "sequence_bits": 0,
    "sequence_first": 0,
    "epoch_ms": 0,
    "tick_ms": 1,
    "max_horizon_ms": 1,
    "floor_ms": 0,
    "version": IN_REDIS,
}
"""What stands in the place of the figures of a binding where a Redis has the leases.

A program that knows no such mark refuses it: it is no layout.
"""

_KEPT: Final = {
    "in-store": "in the durable store itself, and not in the Redis above it that was asked: open them there (leases of "
    "the durable store, which is RedisStore's default), or use another namespace",
    "in-redis": "in a Redis above this store, and not in the store itself, which was asked: open them there (the option "
    'leases_in="redis" of RedisStore), or use another namespace',
    "in-both": "both in the durable store itself and in a Redis above it, so that two holders may have one worker: "
    "nothing more is granted until an operator has ended one of them (adapters/README.md, "
    '"One namespace, one place")',
}


def leases_elsewhere(namespace: str, kept: Literal["in-store", "in-redis", "in-both"]) -> StoreError:
    """The error of a namespace whose leases are kept in another place."""
    return StoreError("leases-elsewhere", f"the leases of {quoted(namespace)} are kept {_KEPT[kept]}")


@dataclass(frozen=True, slots=True)
class NamespaceBinding:
    """What a namespace was bound to when it was first used; never changes."""

    layout: Layout
    """The layout of its ids: a valid one."""
    max_horizon_ms: int
    """How far ahead of the store's clock its leases may reach."""
    floor_ms: int = 0
    """No lease starts before this instant: the end of a quarantine, where the store may have forgotten leases."""

    @classmethod
    def first_use(cls, layout: Layout, limits: LeaseLimits) -> NamespaceBinding:
        """The binding of a namespace that is used for the first time.

        :raises StoreError: ``refused`` when the horizon has no room for a tick of the layout.
        """
        _validate_layout(layout)
        limits.validate()
        if limits.max_horizon_ms < layout.tick_ms:
            why = f"shorter than a tick of the layout {layout_text(layout)}: no lease would hold one"
            raise StoreError("refused", f"max_horizon_ms is {limits.max_horizon_ms}, {why}")
        return cls(layout, limits.max_horizon_ms)

    def figures(self) -> dict[str, int]:
        """What a store without columns of its own keeps: names and whole numbers, in the order of Rust."""
        layout = self.layout
        return {
            "timestamp_bits": layout.timestamp_bits,
            "datacenter_bits": layout.datacenter_bits,
            "worker_bits": layout.worker_bits,
            "sequence_bits": layout.sequence_bits,
            "sequence_first": int(layout.order == "sequence-first"),
            "epoch_ms": layout.epoch_ms,
            "tick_ms": layout.tick_ms,
            "max_horizon_ms": self.max_horizon_ms,
            "floor_ms": self.floor_ms,
            "version": 1,
        }

    @classmethod
    def read(cls, figure: Callable[[str], int]) -> NamespaceBinding:
        """The binding of these figures, of which ``figure`` gives one by its name, or raises.

        :raises ValueError: when they are not a binding of this version; the message says why.
        """
        version = figure("version")
        if version != 1:
            raise ValueError(f"the lease namespace has the version {version}, and this program knows only 1")
        # What does not fit is out of every range.
        tick_ms = figure("tick_ms")
        layout = Layout(
            timestamp_bits=min(figure("timestamp_bits"), 255),
            datacenter_bits=min(figure("datacenter_bits"), 255),
            worker_bits=min(figure("worker_bits"), 255),
            sequence_bits=min(figure("sequence_bits"), 255),
            order="worker-first" if figure("sequence_first") == 0 else "sequence-first",
            epoch_ms=figure("epoch_ms"),
            tick_ms=0 if tick_ms > _U32_MAX else tick_ms,
        )
        binding = cls(layout, figure("max_horizon_ms"), figure("floor_ms"))
        fault = fault_of_layout(layout)
        if fault is not None:
            raise ValueError(fault)
        return binding

    def check_quarantine(self, namespace: str, store_ms: int) -> None:
        """Refuses everything while the store may have forgotten leases that still run.

        :raises StoreError: ``quarantined``
        """
        if self.floor_ms > store_ms:
            raise quarantined(namespace, self.floor_ms)

    def check_layout(self, namespace: str, offered: Layout) -> None:
        """Checks that a request is for the layout that the namespace is bound to.

        :raises StoreError: ``layout-mismatch``
        """
        if offered != self.layout:
            bound = f"the namespace {quoted(namespace)} is bound to the layout {layout_text(self.layout)}"
            what = f"{bound}, and {layout_text(offered)} was offered: use another namespace"
            raise StoreError("layout-mismatch", what)

    def grant(self, recorded_end_ms: int, clocks: Clocks, horizon_ms: int) -> tuple[int, int]:
        """The interval of a new lease, its start and its end, which is not in it.

        ``recorded_end_ms`` is the greatest end recorded for its worker, 0 if that was never used. The interval begins
        at the earlier clock, so that a holder whose clock is behind need not wait for it, and at the beginning of the
        tick in which that clock is: the tick is the worker's own from the recorded end on.

        :raises StoreError: ``refused`` when it would hold no tick.
        """
        bound_ms = max(recorded_end_ms, self.floor_ms)
        earlier_ms = min(clocks.holder_ms, clocks.store_ms)
        start_ms = max(round_up_ms(self.layout, bound_ms), round_down_ms(self.layout, earlier_ms))
        end_ms = self._horizon_end_ms(clocks.store_ms, horizon_ms)
        if start_ms >= end_ms:
            begin = f"{rfc3339(start_ms)}, where the lease could begin"
            end = f"{rfc3339(end_ms)}, where it would have to end"
            what = f"no tick of the layout {layout_text(self.layout)} lies between {begin}, and {end}"
            raise StoreError("refused", f"{what}; the store's clock is {rfc3339(clocks.store_ms)}")
        if start_ms < bound_ms:
            raise AssertionError("a lease never begins before its predecessor's end")
        return start_ms, end_ms

    def extended_end_ms(self, valid_until_ms: int, store_ms: int, horizon_ms: int) -> int:
        """Where a lease that ends at ``valid_until_ms`` ends after an extension: never earlier."""
        return max(valid_until_ms, self._horizon_end_ms(store_ms, horizon_ms))

    def released_end_ms(self, not_before_ms: int, valid_until_ms: int, end_ms: int) -> Optional[int]:
        """Where a lease of these bounds ends when its holder gives it back at ``end_ms``.

        ``None`` when that is past its end. Never before its start, whatever the holder says: what lies there belongs to
        predecessors.
        """
        if end_ms > valid_until_ms:
            return None
        return min(max(round_up_ms(self.layout, end_ms), not_before_ms), valid_until_ms)

    def _horizon_end_ms(self, store_ms: int, horizon_ms: int) -> int:
        return round_down_ms(self.layout, _saturated(store_ms + min(horizon_ms, self.max_horizon_ms)))


@dataclass(frozen=True, slots=True)
class UsedWorker:
    """A worker that was granted before, or is asked for by number."""

    worker: int
    end_ms: int
    """The greatest end recorded for it, in Unix milliseconds; 0 if it was never granted."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """What a store must look up to choose a worker; each is one indexed read in a store that has many."""

    workers: int
    """How many worker ids the layout has."""
    used: int = 0
    """How many of them were ever granted."""
    preferred: Optional[UsedWorker] = None
    """The worker that the holder asked for."""
    previous: Optional[UsedWorker] = None
    """Of the ended leases of this holder's name, the worker of the one that ended last."""
    oldest: Optional[UsedWorker] = None
    """Of all workers ever granted, the one that ended, or will end, first."""


@dataclass(frozen=True, slots=True)
class NeverUsed:
    """A worker is offered that was never granted: see :func:`nth_never_used`."""

    nth: int
    """Its place among those that were never granted, counted from 0."""


@dataclass(frozen=True, slots=True)
class Exhausted:
    """No worker is offered: all are under a lease."""

    free_at_ms: int
    """When the first lease ends, in Unix milliseconds."""


Choice = Union[UsedWorker, NeverUsed, Exhausted]
"""Which worker is offered."""


def choose(candidates: Candidates, expiry: Expiry, random: int) -> Choice:
    """Chooses a worker.

    The preferred one when it is free, else the holder's previous one when its interval has ended, else one that was
    never used, else the one that ended longest ago. ``random`` (64 bits) places the choice among the workers that were
    never used: at random, so that even separate stores seldom meet.
    """
    for candidate in (candidates.preferred, candidates.previous):
        if candidate is not None and expiry.has_ended(candidate.end_ms):
            return candidate
    if candidates.workers > candidates.used:
        return NeverUsed(random % (candidates.workers - candidates.used))
    oldest = candidates.oldest
    if oldest is None:
        # A layout has one worker at least, so a store that has no oldest has one that was never used.
        return Exhausted(expiry.clock_ms)
    return oldest if expiry.has_ended(oldest.end_ms) else Exhausted(expiry.ends_at_ms(oldest.end_ms))


def choose_worker(
    acquire: LeaseAcquire, expiry: Expiry, random: int, used: Iterable[tuple[UsedWorker, str]]
) -> UsedWorker:
    """Chooses a worker where the store has all that were ever granted at hand.

    ``used`` has them by worker, ascending: the greatest end that is recorded for each and the name of its last holder.

    :raises StoreError: ``workers-exhausted``
    """
    preferred = None if acquire.preferred_worker is None else UsedWorker(acquire.preferred_worker, 0)
    previous: Optional[UsedWorker] = None
    oldest: Optional[UsedWorker] = None
    numbers: list[int] = []
    for worker, holder in used:
        numbers.append(worker.worker)
        if preferred is not None and preferred.worker == worker.worker:
            preferred = worker
        is_previous = acquire.holder != "" and holder == acquire.holder and expiry.has_ended(worker.end_ms)
        if is_previous and (previous is None or previous.end_ms < worker.end_ms):
            previous = worker
        if oldest is None or expiry.ends_at_ms(worker.end_ms) < expiry.ends_at_ms(oldest.end_ms):
            oldest = worker
    candidates = Candidates(workers_of(acquire.layout), len(numbers), preferred, previous, oldest)
    choice = choose(candidates, expiry, random)
    if isinstance(choice, UsedWorker):
        return choice
    if isinstance(choice, Exhausted):
        raise workers_exhausted(acquire, choice.free_at_ms)
    never_used = nth_never_used(choice.nth, numbers)
    if never_used is None:
        raise workers_exhausted(acquire, expiry.clock_ms)
    return UsedWorker(never_used, 0)


def workers_exhausted(acquire: LeaseAcquire, free_at_ms: int) -> StoreError:
    """All workers of the namespace are under a lease, of which the first ends at ``free_at_ms``."""
    what = f"all {workers_of(acquire.layout)} worker ids of {quoted(acquire.namespace)} are under a lease"
    return StoreError("workers-exhausted", f"{what}; the next is free at {rfc3339(free_at_ms)}")


def quarantined(namespace: str, until_ms: int) -> StoreError:
    """The store may have forgotten leases that run until then."""
    what = f"the store may have forgotten leases of {quoted(namespace)}"
    until = f"it grants none before {rfc3339(until_ms)}, when all that it could have granted have ended"
    return StoreError("quarantined", f"{what}: {until}")


def lease_lost(namespace: str, worker: int) -> StoreError:
    """No lease with this worker and grant id is running."""
    return StoreError("lease-lost", f"worker {worker} of {quoted(namespace)} is no longer leased to this holder")


def nth_never_used(nth: int, used: Iterable[int]) -> Optional[int]:
    """The ``nth`` worker, counted from 0, that is not among ``used``, which ascends without repetition.

    ``None`` past 2^32 - 1.
    """
    worker = nth
    for other in used:
        if other > worker:
            break
        worker += 1
    return worker if worker <= _U32_MAX else None


def validate_acquire(acquire: LeaseAcquire) -> None:
    """Checks a request for a worker id.

    :raises StoreError: ``refused`` when a name is not well formed, the preferred worker does not fit the layout, the
        horizon is shorter than a tick, or a number is none of 64 bits.
    """
    validate_name("namespace", acquire.namespace)
    if acquire.holder != "":
        validate_name("holder", acquire.holder)
    _validate_layout(acquire.layout)
    preferred = acquire.preferred_worker
    if preferred is not None and not _is_in(preferred, 0, worker_max(acquire.layout)):
        workers = f"the workers of the layout {layout_text(acquire.layout)} are 0 to {worker_max(acquire.layout)}"
        raise StoreError("refused", f"worker {preferred} is preferred, but {workers}")
    _validate_times(acquire)


def validate_extend(extend: LeaseExtend) -> None:
    """Checks a request to prolong a lease.

    :raises StoreError: ``refused`` as :func:`validate_acquire`.
    """
    validate_name("namespace", extend.namespace)
    _validate_layout(extend.layout)
    _validate_times(extend)


def validate_name(what: Literal["namespace", "holder"], name: str) -> None:
    """Checks the name of a namespace or of a holder.

    :raises StoreError: ``refused``
    """
    is_name = (
        isinstance(name, str)
        and name != ""
        and not {unicodedata.category(character) for character in name} & {"Cc", "Cs"}
        and len(name.encode()) <= 128
    )
    if not is_name:
        rule = "a name is 1 to 128 bytes of UTF-8 without control characters"
        raise StoreError("refused", f"the {what} {quoted(str(name)[:32])} is not valid: {rule}")


def _validate_layout(layout: Layout) -> None:
    fault = fault_of_layout(layout)
    if fault is not None:
        raise StoreError("refused", f"the layout is not valid: {fault}")


def _validate_times(request: Union[LeaseAcquire, LeaseExtend]) -> None:
    for what, value in (("clock", request.now_ms), ("horizon", request.horizon_ms)):
        if not _is_in(value, 0, _U64_MAX):
            raise StoreError("refused", f"the {what} is {value!r} ms, it must be a whole number of 0 to 2^64 - 1")
    if request.horizon_ms < request.layout.tick_ms:
        why = f"shorter than a tick of the layout {layout_text(request.layout)}: no lease would hold one"
        raise StoreError("refused", f"a horizon of {request.horizon_ms} ms was asked for, {why}")


_STEP_MS: Final = 1_000
"""A clock that gains more than this from one reading to the next, against the monotonic one, was set."""
_STEPS_MAX: Final = 64
"""So many steps are remembered, the newest."""


@dataclass(frozen=True, slots=True)
class _Reading:
    """What a clock showed, or would have shown without a step, and when."""

    at_ns: int
    clock_ms: int

    def shows_ms(self, at_ns: int) -> int:
        """What it would show at that instant, had nobody set it."""
        return _saturated(self.clock_ms + max(at_ns - self.at_ns, 0) // 1_000_000)


class ClockSteps:
    """Steps forward of a store's clock, which end nobody's lease.

    A clock that shows tomorrow for an instant, or that is set right, says nothing of how long a holder has not asked.

    Invariant: a lease that was running by the clock before a step forward is taken to run for as long as it would have
    without the step, measured by the process's monotonic clock. Intervals are disjoint whatever this says: it decides
    who is offered what, and no more. What a process has not seen it does not know: a clock that is wrong when it starts
    is the clock to it.

    Monotonic instants are in nanoseconds, as :func:`time.monotonic_ns` gives them. Several threads may use one.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: Optional[_Reading] = None
        self._steps: list[_Reading] = []

    def read(self, asked_ns: int, answered_ns: int, clock_ms: int) -> None:
        """Notes what the clock shows. To be called with each reading, with when it was asked and answered."""
        with self._lock:
            last = self._last
            if last is not None:
                # The answers of two requests may come in the other order: the older one tells nothing.
                if last.at_ns > asked_ns:
                    return
                expected_ms = last.shows_ms(answered_ns)
                if clock_ms > _saturated(expected_ms + _STEP_MS):
                    self._steps = [*self._steps, _Reading(answered_ns, expected_ms)][-_STEPS_MAX:]
            self._last = _Reading(asked_ns, clock_ms)

    def expiry(self, now_ns: int, clock_ms: int, max_horizon_ms: int) -> Expiry:
        """Which leases have ended, by this reading of the clock, in a namespace with this bound of its leases."""
        with self._lock:
            longest_ns = HORIZON_MAX_MS * 1_000_000
            self._steps = [step for step in self._steps if max(now_ns - step.at_ns, 0) < longest_ns]
            steps = self._steps
        running = ((step.shows_ms(now_ns), _saturated(step.clock_ms + max_horizon_ms)) for step in steps)
        # Where the clock before is not behind, it says nothing else.
        return Expiry(clock_ms, tuple((after, up_to) for after, up_to in running if after < min(up_to, clock_ms)))


@dataclass(frozen=True, slots=True)
class Expiry:
    """Which leases have ended: a reading of a store's clock, and what is known of its steps."""

    clock_ms: int
    """The clock, in Unix milliseconds."""
    running: tuple[tuple[int, int], ...] = ()
    """Ends of leases that are still to come by a clock before a step: after the first, up to the second."""

    @property
    def is_plain(self) -> bool:
        """Whether only the clock says it."""
        return not self.running

    def has_ended(self, end_ms: int) -> bool:
        """Whether a lease with this recorded end, in Unix milliseconds, has ended."""
        return self.ends_at_ms(end_ms) <= self.clock_ms

    def ends_at_ms(self, end_ms: int) -> int:
        """When it will have ended, or has, by the clock as it runs now."""
        if end_ms > self.clock_ms:
            return end_ms
        left = [end_ms - after_ms for after_ms, up_to_ms in self.running if after_ms < end_ms <= up_to_ms]
        return _saturated(self.clock_ms + max(left)) if left else end_ms


def rfc3339(unix_ms: int) -> str:
    """An instant in Unix milliseconds, for people: RFC 3339 in UTC, with milliseconds."""
    if unix_ms > 253_402_300_799_999:
        return "after the year 9999"
    return (datetime(1970, 1, 1) + timedelta(milliseconds=unix_ms)).isoformat(timespec="milliseconds") + "Z"


def random_bits(count: int) -> int:
    """So many random bits: 64 to choose a worker by, 128 for a grant id, which nobody else has."""
    return secrets.randbits(count)


def quoted(name: str) -> str:
    """A name for people, in double quotes, as Rust and Node write it."""
    return json.dumps(name, ensure_ascii=False)


def _saturated(value: int) -> int:
    return min(value, _U64_MAX)


def _is_in(value: object, least: int, greatest: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= greatest
