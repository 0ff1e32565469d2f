"""Leases in Redis: one hash per namespace, with the newest lease of each worker, within time that a durable store
grants.

A request looks at the hash by one script, decides by the rules of every lease store, and writes one worker by another
script, sent once. That one writes only if the server is the same incarnation, the namespace did not begin anew, and the
worker's field is, byte for byte, what was seen; otherwise the request looks again.

A namespace's time ends at its *bound*, and so do all of its leases. It belongs to one incarnation of Redis; what
another one gets comes after all that was ever granted. So a Redis that was restarted, flushed, restored or failed over
costs a wait and never an overlap, whatever any clock says.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace
from typing import Callable, Final, Optional, Sequence

from .lease_rules import (
    Clocks,
    ClockSteps,
    LeaseLimits,
    NamespaceBinding,
    UsedWorker,
    choose_worker,
    lease_lost,
    quoted,
    random_bits,
    rfc3339,
    round_up_ms,
    validate_acquire,
    validate_extend,
)
from .redis_lease_hash import (
    FIELDS,
    MS_MAX,
    LeaseRecord,
    NamespaceView,
    Valid,
    Worker,
    read_namespace,
    worker_field,
    write_binding,
    write_worker,
)
from .redis_raising import ASK_AGAIN, DONE, Done, Elsewhere, HashKey, Raise, Raising, Turns
from .redis_server import RedisServer, script
from .redis_url import RedisSettings
from .store import KEPT_LEASES, Layout, Lease, LeaseAcquire, LeaseExtend, SegmentStore, StoreError, time_tag

__all__ = ["RedisLeases", "lead_ms"]

_LOOK: Final = script("leases_look")
_WRITE: Final = script("leases", "leases_write")
_INSTALL: Final = script("leases", "durable", "leases_install")

_NEW: Final = (("incarnation", ""), ("bound_ms", "0"), ("low", "0"))
"""What a new hash has beside its generation and its first claim."""

_LEAD_MS: Final = (1_000, 60_000)
"""The least and the most that the bound is raised by beyond what is asked for."""

_KNOWN_MAX: Final = 1_024
"""The turns of so many namespaces are known before those that nobody waits for are forgotten."""

_TRIES_AT_ONCE: Final = 4
"""The first tries, which follow each other at once. Each one after them waits a ms longer than the one before."""

_PAUSE_MAX_MS: Final = 20
"""The longest wait before a try, in milliseconds."""


@dataclass(frozen=True)
class _Namespace:
    name: str
    key: str


@dataclass(frozen=True)
class _Wanted:
    """How far the bound of a namespace shall reach, in Unix milliseconds."""

    least_ms: int
    """Somebody else may have raised it so far: then it is enough."""
    until_ms: int
    anew: Optional[NamespaceBinding] = None
    """What the namespace is bound to if it has to begin anew, with the earliest time that is of use as its floor.

    ``None`` where what is left is used first.
    """


def lead_ms(horizon_ms: int) -> int:
    """How much further than a horizon the bound is raised.

    Holders extend after a third of a horizon, so half of one is enough for the next time, and then it is raised in the
    background.
    """
    return min(max(horizon_ms // 2, _LEAD_MS[0]), _LEAD_MS[1])


class RedisLeases:
    """Several threads may use it."""

    def __init__(
        self, server: RedisServer, durable: SegmentStore, settings: RedisSettings, limits: LeaseLimits
    ) -> None:
        """
        :raises StoreError: As :meth:`Raising.recognise`; ``refused`` for limits that are out of range.
        """
        limits.validate()
        self._server = server
        self._prefix = settings.prefix
        self._limits = limits
        self._steps = ClockSteps()
        self._durable = durable
        self._raising = Raising(server, durable, settings, "leases", _NEW)
        self._lock = threading.Lock()
        self._turns: dict[str, Turns] = {}
        # The namespaces of which the durable store knows that their leases are here.
        self._placed: set[str] = set()
        # How long a request tries in all.
        self._patience = (settings.raise_timeout_ms + settings.request_timeout_ms) / 1_000
        self._raising.recognise()

    def acquire(self, request: LeaseAcquire) -> Lease:
        validate_acquire(request)
        namespace = self._namespace(request.namespace)
        tries = _Tries(self, namespace, request.now_ms)
        deadline = self._raising.deadline()
        has_asked = False
        while True:
            holder_ms = tries.next()
            view = self._look(namespace, ())
            clocks = Clocks(holder_ms, view.now_ms)
            self._limits.check_clocks(clocks)
            self._check_kept(namespace, view)
            valid = view.valid()
            binding = self._begins_with(namespace, view, request.layout) if valid is None else valid.binding
            binding.check_layout(namespace.name, request.layout)
            # A request that is refused binds nothing.
            replace(binding, floor_ms=0).grant(0, clocks, request.horizon_ms)
            horizon_ms = min(request.horizon_ms, binding.max_horizon_ms)
            least_ms = view.now_ms + horizon_ms
            until_ms = least_ms + lead_ms(horizon_ms)
            reach_ms = 0 if valid is None else _reach_ms(valid, view.now_ms, horizon_ms)
            if valid is not None:
                valid.binding.check_quarantine(namespace.name, view.now_ms)
            # Behind the bound no lease begins or ends, whatever the holder's clock says.
            if valid is None or reach_ms == 0 or not _holds_tick(valid.binding, clocks, reach_ms):
                # Somewhat before the earlier clock, so that a holder whose clock is behind need not wait.
                floor_ms = max(view.now_ms - self._limits.max_skew_ms - binding.layout.tick_ms, 0)
                self._wait(namespace, _Wanted(least_ms, until_ms, replace(binding, floor_ms=floor_ms)), deadline)
                continue
            if reach_ms < horizon_ms and not has_asked:
                try:
                    has_asked = self._wait(namespace, _Wanted(least_ms, until_ms), deadline)
                except StoreError:
                    # The lease is shorter than was asked for.
                    has_asked = True
                continue
            lease = self._acquire_once(namespace, view, valid, request, clocks)
            if lease is not None:
                self._raise_soon(namespace, valid, least_ms, horizon_ms)
                return lease

    def extend(self, request: LeaseExtend) -> Lease:
        validate_extend(request)
        namespace = self._namespace(request.namespace)
        tries = _Tries(self, namespace, request.now_ms)
        deadline = self._raising.deadline()
        has_asked = False
        failure: Optional[StoreError] = None
        while True:
            holder_ms = tries.next()
            view = self._look(namespace, (request.worker,))
            self._limits.check_clocks(Clocks(holder_ms, view.now_ms))
            self._check_kept(namespace, view)
            valid = view.valid()
            if valid is None:
                raise lease_lost(namespace.name, request.worker)
            valid.binding.check_layout(namespace.name, request.layout)
            worker = valid.hash.running(request.worker, request.grant_id)
            if worker is None:
                raise lease_lost(namespace.name, request.worker)
            horizon_ms = min(request.horizon_ms, valid.binding.max_horizon_ms)
            least_ms = view.now_ms + horizon_ms
            reach_ms = _reach_ms(valid, view.now_ms, horizon_ms)
            if reach_ms < horizon_ms and not has_asked:
                try:
                    has_asked = self._wait(namespace, _Wanted(least_ms, least_ms + lead_ms(horizon_ms)), deadline)
                except StoreError as error:
                    has_asked, failure = True, error
                continue
            before_ms = worker.record.lease.valid_until_ms
            valid_until_ms = before_ms
            if reach_ms > 0:
                valid_until_ms = valid.binding.extended_end_ms(before_ms, view.now_ms, reach_ms)
            if valid_until_ms == before_ms:
                if valid.binding.extended_end_ms(before_ms, view.now_ms, horizon_ms) == before_ms:
                    return worker.record.lease
                if failure is not None:
                    raise failure
                if before_ms <= view.now_ms:
                    # Whatever the durable store granted behind it is not here: the holder gets a lease anew.
                    raise lease_lost(namespace.name, request.worker)
                raise _at_bound(namespace, before_ms)
            lease = replace(worker.record.lease, valid_until_ms=valid_until_ms)
            if self._write(namespace, valid, worker, replace(worker.record, lease=lease), valid_until_ms):
                self._raise_soon(namespace, valid, least_ms, horizon_ms)
                return lease

    def release_lease(self, name: str, worker_id: int, grant_id: int, end_ms: int) -> bool:
        namespace = self._namespace(name)
        tries = _Tries(self, namespace, 0)
        while True:
            tries.next()
            view = self._look(namespace, (worker_id,))
            self._check_kept(namespace, view)
            valid = view.valid()
            worker = None if valid is None else valid.hash.running(worker_id, grant_id)
            if valid is None or worker is None:
                return False
            lease = worker.record.lease
            released_ms = valid.binding.released_end_ms(lease.not_before_ms, lease.valid_until_ms, end_ms)
            if released_ms is None:
                return False
            record = replace(worker.record, lease=replace(lease, valid_until_ms=released_ms), is_final=True)
            if self._write(namespace, valid, worker, record, 0):
                return True

    def _namespace(self, name: str) -> _Namespace:
        # In braces, so that all that may ever belong to a namespace lies on one node.
        return _Namespace(name, f"{self._prefix}:leases:{{{name}}}")

    @property
    def patience(self) -> float:
        """How long a request tries in all, in seconds."""
        return self._patience

    @property
    def address(self) -> str:
        return self._server.address

    def _look(self, namespace: _Namespace, workers: Sequence[int], only_fields: bool = False) -> NamespaceView:
        """Looks at a namespace and these workers of it, or all of them where none is named."""
        arguments = (*FIELDS, *(worker_field(worker) for worker in workers)) if workers or only_fields else ()
        asked = time.monotonic_ns()
        doing = f"looking at the leases of {quoted(namespace.name)}"
        view = read_namespace(self._server.script(doing, "reads", _LOOK, (namespace.key,), arguments))
        self._steps.read(asked, time.monotonic_ns(), view.now_ms)
        return view

    def _check_kept(self, namespace: _Namespace, view: NamespaceView) -> None:
        """Checks that a namespace is kept with a durable store."""
        if view.hash is not None and view.hash.bound_ms is None:
            raise self._kept_otherwise(namespace)

    def _kept_otherwise(self, namespace: _Namespace) -> StoreError:
        return StoreError(
            "refused",
            f"the leases of {quoted(namespace.name)}, the key {namespace.key} on {self._server.address}, are kept "
            f"the other "
            "way: without a durable store. Open them with the `unalike` server as they were; or end all leases and "
            "wait until "
            "the last has ended and another minute, delete the key, and begin anew",
        )

    def _begins_with(self, namespace: _Namespace, view: NamespaceView, layout: Layout) -> NamespaceBinding:
        """What a namespace is bound to that begins anew: its old layout and horizon, where they are known."""
        known = None if view.hash is None else view.hash.binding
        binding = NamespaceBinding.first_use(layout, self._limits) if known is None else known
        binding.check_layout(namespace.name, layout)
        return binding

    def _acquire_once(
        self, namespace: _Namespace, view: NamespaceView, valid: Valid, request: LeaseAcquire, clocks: Clocks
    ) -> Optional[Lease]:
        """``None`` when another client was faster."""
        binding = valid.binding
        binding.check_quarantine(namespace.name, view.now_ms)
        used = [
            (UsedWorker(worker, found.record.lease.valid_until_ms), found.record.holder)
            for worker, found in valid.hash.workers.items()
        ]
        expiry = self._steps.expiry(time.monotonic_ns(), view.now_ms, binding.max_horizon_ms)
        chosen = choose_worker(request, expiry, random_bits(64), used)
        reach_ms = _reach_ms(valid, view.now_ms, request.horizon_ms)
        start_ms, end_ms = binding.grant(chosen.end_ms, clocks, reach_ms)
        lease = Lease(chosen.worker, random_bits(128), start_ms, end_ms)
        record = LeaseRecord(lease, request.holder, view.now_ms, False)
        before = valid.hash.workers.get(chosen.worker)
        return lease if self._write(namespace, valid, before, record, end_ms) else None

    def _write(
        self,
        namespace: _Namespace,
        valid: Valid,
        before: Optional[Worker],
        record: LeaseRecord,
        granted_until_ms: int,
    ) -> bool:
        """Writes the newest lease of a worker in the place of what was seen; whether that was still so.

        Time is granted up to ``granted_until_ms``, 0 where none is.
        """
        lease = record.lease
        if max(lease.not_before_ms, lease.valid_until_ms, record.acquired_ms) > MS_MAX:
            what = f"a lease of worker {lease.worker} is of a time beyond {rfc3339(MS_MAX)}"
            raise StoreError("refused", what)
        seen = "" if before is None else before.text
        arguments = (
            valid.hash.generation,
            valid.hash.incarnation,
            worker_field(lease.worker),
            seen,
            write_worker(record),
            str(granted_until_ms),
            str(valid.binding.max_horizon_ms),
        )
        doing = f"writing the lease of worker {lease.worker} of {quoted(namespace.name)}"
        reply = self._server.script(doing, "writes", _WRITE, (namespace.key,), arguments)
        answer = reply.text()
        if answer not in ("written", "changed"):
            raise reply.damaged(f"a script answered {answer!r}")
        return answer == "written"

    def _raise_soon(self, namespace: _Namespace, valid: Valid, needed_ms: int, horizon_ms: int) -> None:
        """Raises the bound before it is too short for the next request of its kind."""
        lead = lead_ms(horizon_ms)
        least_ms = needed_ms + lead // 2
        if valid.bound_ms < least_ms:
            turns = self._turns_of(namespace)
            wanted = _Wanted(least_ms, needed_ms + lead)
            self._raising.soon(namespace.name, turns, lambda: self._raise(namespace, turns, wanted))

    def _turns_of(self, namespace: _Namespace) -> Turns:
        with self._lock:
            turns = self._turns.get(namespace.key)
            if turns is None:
                if len(self._turns) >= _KNOWN_MAX:
                    self._turns = {key: known for key, known in self._turns.items() if known.turn.locked()}
                turns = self._turns[namespace.key] = Turns()
            return turns

    def _wait(self, namespace: _Namespace, wanted: _Wanted, deadline: float) -> bool:
        """Waits until the bound was raised, or needs not be, at most until the deadline.

        Answers whether all was done that can be; otherwise somebody else was at it, perhaps for less.
        """
        turns = self._turns_of(namespace)
        outcomes: list[Raise] = []

        def raise_() -> Raise:
            outcome = self._raise(namespace, turns, wanted)
            outcomes.append(outcome)
            return outcome

        try:
            self._raising.wait(namespace.name, turns, turns.raised, deadline, raise_)
        except StoreError as error:
            if error.kind == "ceiling-reached":
                cause = error.__cause__
                why = "" if cause is None else f" ({cause})"
                what = f"the durable store has not granted Redis more time for the leases of {quoted(namespace.name)}"
                raise StoreError("unavailable", f"{what}: try again{why}") from cause
            if error.kind == "tag-unknown":
                raise StoreError(
                    "refused",
                    f"the durable store has no tag {quoted(KEPT_LEASES)}, under which it grants Redis time for "
                    f"leases, and "
                    "makes none: let it create tags on first use",
                ) from error
            raise
        return any(isinstance(outcome, Done) for outcome in outcomes)

    def _place(self, name: str) -> None:
        """Makes sure that the durable store leases no workers of this namespace itself, and never will.

        Whatever it refuses, nothing was written in Redis before.
        """
        leave: Optional[Callable[[str], None]] = getattr(self._durable, "leave_leases", None)
        if leave is not None:
            self._raising.ask(name, lambda: leave(name))
        self._placed.add(name)

    def _raise(self, namespace: _Namespace, turns: Turns, wanted: _Wanted) -> Raise:
        if namespace.name not in self._placed:
            self._place(namespace.name)
        place = HashKey(namespace.name, KEPT_LEASES, namespace.key)
        return self._raising.claimed(place, turns, lambda: self._raise_claimed(place, namespace, wanted))

    def _raise_claimed(self, place: HashKey, namespace: _Namespace, wanted: _Wanted) -> Raise:
        view = self._look(namespace, (), only_fields=True)
        is_valid = view.valid() is not None
        if view.hash is None:
            return Elsewhere(ASK_AGAIN)
        bound_ms = view.hash.bound_ms
        if bound_ms is None:
            raise self._kept_otherwise(namespace)
        if is_valid and bound_ms >= wanted.least_ms:
            self._raising.settle(place, None)
            return DONE
        tag = time_tag(namespace.name)
        # Looks before it asks: a grant that is burnt moves the watermark, and the next look would find nothing wrong.
        granted_until_ms = self._raising.granted_until(place, tag)
        if granted_until_ms <= 1:
            # Nothing was granted yet, or the durable store has lost that, and perhaps what it noted of this namespace.
            self._place(namespace.name)
        if granted_until_ms < bound_ms:
            until, bound = rfc3339(granted_until_ms), rfc3339(bound_ms)
            raise StoreError(
                "corrupt",
                f"the durable store granted time up to {until} under {quoted(tag)}, and Redis had it up to {bound} "
                "before: it lost data, or is another store; find out which. If it lost data, wait until "
                f"{bound} has passed and another minute, when all of these leases have ended whatever clocks show, and "
                f"delete the key {namespace.key} in Redis",
            )
        start_ms, anew = bound_ms, None
        if not is_valid or granted_until_ms != bound_ms:
            if wanted.anew is None:
                self._raising.settle(place, None)
                return DONE
            anew = wanted.anew
            start_ms = max(granted_until_ms, anew.floor_ms)
        # Time that has not come yet is only begun: nobody else gets what follows, and a Redis that is lost again before
        # costs next to nothing more.
        until_ms = 0 if anew is not None and start_ms > view.now_ms else wanted.until_ms
        granted = self._raising.grant(place, tag, max(until_ms - start_ms, 1), start_ms)
        binding = ""
        if anew is not None:
            binding = write_binding(replace(anew, floor_ms=round_up_ms(anew.layout, granted.start)))
        read = (view.hash.generation, view.here)
        return self._raising.install(place, _INSTALL, read, (granted.start, granted.end), (binding,))


class _Tries:
    """The tries of one request."""

    def __init__(self, leases: RedisLeases, namespace: _Namespace, holder_ms: int) -> None:
        self._leases = leases
        self._namespace = namespace
        self._holder_ms = holder_ms
        self._began = time.monotonic()
        self._count = 0

    def next(self) -> int:
        """The holder's clock, which goes on while the request is tried again.

        :raises StoreError: ``unavailable`` when it was tried for too long.
        """
        self._count += 1
        if self._count == 1:
            return self._holder_ms
        pause_ms = min(self._count - _TRIES_AT_ONCE, _PAUSE_MAX_MS)
        if pause_ms > 0:
            time.sleep(pause_ms / 1_000)
        waited = time.monotonic() - self._began
        if waited >= self._leases.patience:
            what = (
                f"the leases of {quoted(self._namespace.name)} on {self._leases.address} change all the time: try again"
            )
            raise StoreError("unavailable", what)
        return self._holder_ms + int(waited * 1_000)


def _reach_ms(valid: Valid, now_ms: int, horizon_ms: int) -> int:
    """How far ahead of the clock a lease may reach: ``horizon_ms``, and no further than the bound; 0 behind that."""
    return min(horizon_ms, valid.binding.max_horizon_ms, max(valid.bound_ms - now_ms, 0))


def _holds_tick(binding: NamespaceBinding, clocks: Clocks, reach_ms: int) -> bool:
    """Whether a new lease that reaches so far would hold a tick."""
    try:
        binding.grant(0, clocks, reach_ms)
    except StoreError:
        return False
    return True


def _at_bound(namespace: _Namespace, bound_ms: int) -> StoreError:
    """The error of an extension beyond time that was granted and never installed."""
    return StoreError(
        "unavailable",
        f"the time that the durable store granted Redis for the leases of {quoted(namespace.name)} ends at "
        f"{rfc3339(bound_ms)}, and behind it some was lost: they begin anew then",
    )
