"""A lane: one instance of the component behind a short lock. No call into it waits for anything.

A trap poisons an instance for good. The lane then drops it with everything that it was granted, and the next call
builds another, after a pause that grows with each further trap; generators are opened again as they are used, above
what their predecessors may have handed out.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Generic, Optional, TypeVar, Union

from ._component import CoreInstance, Trap
from ._inside import in_component, refuse_inside
from ._process import MARK, Forked, uninterrupted
from ._requests import GrantOrder, InstanceRequests, Signal, Storage
from .errors import IdsError, because, caused, closed
from .lease_rules import rfc3339
from .store import ID_MAX, StoreError, shown

__all__ = ["Generator", "Lane", "Later", "Opening"]

log: Final = logging.getLogger("unalike")

T = TypeVar("T")

_PAUSE_S: Final = 1.0
"""The pause before an instance is built when a trap follows another; it doubles with each further one."""
_PAUSE_MAX_S: Final = 60.0
_CALM_S: Final = 600.0
"""Traps count as one fault until there was none for so long."""


class Traps:
    """The traps of one fault, and when the next instance may be built."""

    def __init__(self) -> None:
        self.in_a_row = 0
        self._last: Optional[float] = None

    def record(self, now: float) -> None:
        is_same_fault = self._last is not None and now - self._last < _CALM_S
        self.in_a_row = self.in_a_row + 1 if is_same_fault else 1
        self._last = now

    def pause_left(self, now: float) -> float:
        """For how many seconds no instance may be built."""
        if self._last is None or self.in_a_row < 2:
            return 0.0
        pause: float = min(_PAUSE_S * 2 ** min(self.in_a_row - 2, 16), _PAUSE_MAX_S)
        return max(0.0, pause - (now - self._last))


class Later:
    """Nothing yet: after so many milliseconds, or, without any, after an answer of the store."""

    __slots__ = ("wait_ms",)

    def __init__(self, wait_ms: Optional[int] = None) -> None:
        self.wait_ms = wait_ms


PENDING: Final = Later()

Open = Callable[[CoreInstance, int], Any]


class Opening:
    """How a generator is opened, and opened again above a floor."""

    def __init__(self, kind: str, name: str, options: dict[str, Any]) -> None:
        self.kind, self.name, self.options = kind, name, options

    def open(self, instance: CoreInstance, floor: int) -> Any:
        """Answers the result of the component's ``open``."""
        if self.kind == "ordered":
            return instance.call("ordered.open", self.name, floor, self.options["id-max"])
        options = {**self.options, "floor": floor}
        if self.kind == "snowflake":
            options["seed"] = secrets.randbits(64)
        return instance.call(f"{self.kind}.open", self.name, options)


class Generator:
    """An open generator of this process: its name, its place in the lane, and how it hears of answers."""

    def __init__(self, lane: Lane, opening: Opening, id_max: int = ID_MAX) -> None:
        self.lane, self.opening, self.name, self.id_max = lane, opening, opening.name, id_max
        self.signal = Signal()
        self.is_closed = False
        self.opened: Optional[tuple[CoreInstance, Any]] = None
        """The instance in which it is open, and its handle there."""
        self.used_until_ms = 0
        """The end of the greatest tick that a snowflake run came from."""
        self.ended: Optional[tuple[int, int]] = None
        """The worker of a lease that has ended while there is no other, and when it ended."""

    @property
    def handle(self) -> Any:
        return None if self.opened is None else self.opened[1]

    def close(self, function: str) -> None:
        """Ends it in the component, if it is open in the instance that there is."""
        if self.opened is not None and self.lane.has(self.opened[0]):
            self.lane.call(self, lambda instance, handle, _: instance.call(function, handle))

    def end(self, act: Callable[[CoreInstance, Any, int], bool]) -> bool:
        """Ends it for good where ``act`` does, and frees its place in the component. Answers whether it ended.

        :raises IdsError: ``rebuilt``
        """

        def ended(instance: CoreInstance, handle: Any, now_ms: int) -> bool:
            if not act(instance, handle, now_ms):
                return False
            instance.drop(handle)
            self.opened = None
            return True

        if self.opened is not None and self.lane.has(self.opened[0]) and not self.lane.call(self, ended):
            return False
        self.is_closed = True
        # The next one of this name has no predecessor: what this one had went back, and the store grants it anew.
        self.lane.orders.pop(self.name, None)
        return True

    def call(self, act: Callable[[CoreInstance, Any, int], T]) -> T:
        """Calls the component, if the generator may still be used.

        :raises IdsError: ``closed``, ``rebuilt``, ``timeout``
        """
        return self.lane.enter(self.name, lambda: self.call_inside(act))

    def call_inside(self, act: Callable[[CoreInstance, Any, int], T]) -> T:
        """The same for those who entered the lane."""
        if self.is_closed:
            raise closed(self.name)
        return self.lane.call_inside(self, act)

    def stop(self) -> None:
        """Ends it here: calls fail from now on, and so do those that wait."""
        self.is_closed = True
        self.signal.wake()


class Lane:
    """One instance, in one process."""

    def __init__(self, storage: Storage, clock: Callable[[], int], wait_max: float, mark: int) -> None:
        self.storage, self.clock, self.wait_max, self.mark = storage, clock, wait_max, mark
        self.orders: dict[str, GrantOrder] = {}
        # Reentrant for what cannot be: a finalizer that finds its thread about to enter.
        self._lock = threading.RLock()
        self._instance: Optional[tuple[CoreInstance, InstanceRequests]] = None
        self._traps = Traps()
        self._said: deque[str] = deque()
        """What is to be logged. A log handler is the user's, and may ask for ids: nothing is held when it is called."""

    def call(self, generator: Generator, act: Callable[[CoreInstance, Any, int], T]) -> T:
        """Calls the component for one generator; the time is read inside the lock.

        :raises IdsError: ``nested`` from inside of another call
        """
        return self.enter(generator.name, lambda: self.call_inside(generator, act))

    def enter(self, name: str, act: Callable[[], T]) -> T:
        """Does something that no other call does at the same time, and that nothing interrupts.

        :raises Forked: in a child, which has a lane of its own
        """
        refuse_inside(name)
        if MARK[0] != self.mark:
            raise Forked
        try:
            return uninterrupted(lambda: in_component(self._lock, act), self.mark)
        finally:
            while self._said:
                try:
                    message = self._said.popleft()
                except IndexError:  # somebody else logged it
                    break
                log.error("%s", message)

    def call_inside(self, generator: Generator, act: Callable[[CoreInstance, Any, int], T]) -> T:
        """Calls the component for those who entered."""
        instance, requests = self._here(generator.name)
        # A clock that fails has called nothing.
        now_ms = self.clock()
        requests.signal = generator.signal
        try:
            if generator.opened is None or generator.opened[0] is not instance:
                self._open(generator, instance)
            return act(instance, generator.handle, now_ms)
        except Trap as trap:
            raise self._trapped(generator, trap) from trap.__cause__
        except IdsError:
            raise
        except BaseException:
            # Half a call may have been made. What it brought is nobody's.
            self._give_up()
            raise

    def has(self, instance: CoreInstance) -> bool:
        """Whether this is its instance."""
        return self._instance is not None and self._instance[0] is instance

    def _here(self, name: str) -> tuple[CoreInstance, InstanceRequests]:
        if self._instance is None:
            left = self._traps.pause_left(time.monotonic())
            if left > 0:
                retry_after_ms = max(1, round(left * 1_000))
                reason = f"it trapped {self._traps.in_a_row} times, and is built again in {retry_after_ms} ms"
                raise _rebuilt(name, reason, retry_after_ms)
            requests = InstanceRequests(self.storage, self.orders, self._said.append)
            self._instance = (CoreInstance(requests.imports()), requests)
        return self._instance

    def _open(self, generator: Generator, instance: CoreInstance) -> None:
        opening = generator.opening
        if opening.kind == "snowflake":
            floor = generator.used_until_ms
        else:
            order = self.orders.get(generator.name)
            floor = order.successor_floor() if order is not None else 0
        opened = opening.open(instance, floor)
        if "err" in opened:
            message = f"the component refused to open {shown(generator.name)}: {opened['err']}"
            raise IdsError("component", message, name=generator.name)
        generator.opened = (instance, opened["ok"])

    def _trapped(self, generator: Generator, trap: Trap) -> BaseException:
        self._said.append(f"the component of {shown(generator.name)} trapped, its grants are abandoned: {trap}")
        self._give_up()
        cause = trap.__cause__
        if cause is not None and not isinstance(cause, Exception):
            return cause
        retry_after_ms = max(1, round(self._traps.pause_left(time.monotonic()) * 1_000))
        return _rebuilt(generator.name, str(trap), retry_after_ms)

    def _give_up(self) -> None:
        """Drops the instance with everything that it was granted. Generators notice that theirs is another one."""
        self._traps.record(time.monotonic())
        instance, self._instance = self._instance, None
        if instance is not None:
            instance[0].give_up()


def _rebuilt(name: str, reason: str, retry_after_ms: int) -> IdsError:
    message = f"the component of {shown(name)} failed, and its grants are abandoned: try again ({reason})"
    return IdsError("rebuilt", message, name=name, retry_after_ms=retry_after_ms, reason=reason)


_LASTING: Final = ("workers-exhausted", "clock-skew", "quarantined")
"""What stays so for longer than a caller waits is told at once."""


_GRANT_FAULTS: Final = {
    "malformed": "it is not an interval of ids",
    "overlap": "it overlaps or precedes one that the store gave before, as after a restored backup",
    "worker": "its worker id does not fit the layout",
}


def later_or_error(generator: Generator, said_by_it: Union[str, dict[str, Any]]) -> Later:
    """The component's error as what to wait for.

    :raises IdsError: Where waiting does not help.
    """
    name, said = generator.name, generator.signal.last_error
    case, figure = (said_by_it, None) if isinstance(said_by_it, str) else next(iter(said_by_it.items()))
    if case == "pending":
        return PENDING
    if case == "wait":
        return Later(figure)
    if case == "store-failed":
        if figure and (said is None or said.kind not in _LASTING):
            return Later(figure)
        reason = said or StoreError("unavailable", "the clock is ahead of every lease")
        error = IdsError("store", f"no ids for {shown(name)}: {reason}", name=name)
        raise explained(generator, caused(error, reason))
    if case == "clock-moved-back":
        message = f"the clock went back by {figure} ms, which is more than the clock policy of {shown(name)} bridges"
        raise IdsError("clock_moved_back", message, name=name, retry_after_ms=figure, behind_ms=figure)
    if case == "clock-before-epoch":
        begin = f"the clock is before the layout of {shown(name)} begins, at {rfc3339(figure or 0)}"
        message = f"{begin}: set the clock, or correct the layout's epoch"
        raise IdsError("clock_before_epoch", message, name=name, retry_after_ms=1_000, first_ms=figure)
    if case == "exhausted":
        by_store = said is not None and said.kind == "exhausted"
        id_max = None if by_store or generator.id_max >= ID_MAX else generator.id_max
        limit = "the greatest that is allowed (the digits of its template, bits or id_max set it)"
        bound = "" if id_max is None else f" up to {id_max}, {limit}"
        what = "no number is left" if generator.opening.kind != "snowflake" else "no timestamp of its layout is left"
        raise caused(IdsError("exhausted", f"no ids for {shown(name)}: {what}{bound}", name=name, id_max=id_max), said)
    if case == "grant-refused":
        fault = _GRANT_FAULTS.get(str(figure), figure)
        message = f"a grant for {shown(name)} was refused and is not used: {fault}. Look at the store"
        raise IdsError("grant_refused", message, name=name, fault=figure)
    if case == "closed":
        raise closed(name)
    if said_by_it == {"invalid-argument": "round"}:
        # The trap of another generator took the instance away in which the round was begun.
        raise _rebuilt(name, "its round was lost", 1)
    raise IdsError("component", f"the component refused what the host had checked: {said_by_it}", name=name)


def explained(generator: Generator, error: IdsError) -> IdsError:
    """The error that says most: why there is no lease is the story of the one that ended."""
    if generator.ended is None:
        return error
    worker, ended_ms = generator.ended
    message = f"{error}; the lease of worker {worker} ended at {rfc3339(ended_ms)}, and there is no other"
    told = IdsError("lease_ended", message, name=error.name, worker=worker, ended_ms=ended_ms)
    return caused(told, error.__cause__)


class Waiting(Generic[T]):
    """A call that tries again after each answer of the store, and whenever told to, until time is up.

    It says what to wait for and does not wait itself: threads and event loops have their own ways.
    """

    def __init__(self, generator: Generator, attempt: Callable[[], Union[T, Later]], wait_max: float) -> None:
        self._generator, self._attempt, self._signal = generator, attempt, generator.signal
        self.mark = generator.lane.mark
        self._began = time.monotonic()
        self._wait_max = wait_max
        self.result: Optional[T] = None

    def listen_to(self, signal: Signal) -> None:
        """Has the call wait for another signal than its generator's."""
        self._signal = signal

    def step(self) -> Optional[tuple[Signal, int, float]]:
        """``None`` when the result is there; else the signal to wait for, what was seen of it, and for how long.

        :raises Forked: in a child, whose parent the result is
        :raises IdsError:
        """
        seen = self._signal.version
        outcome = self._attempt()
        # A handler of a signal may have forked meanwhile, and returned in the child. It may do so later, too: whoever
        # returns the result looks again.
        if MARK[0] != self.mark:
            raise Forked
        if not isinstance(outcome, Later):
            self.result = outcome
            return None
        generator, now = self._generator, time.monotonic()
        left = self._began + self._wait_max - now
        said = generator.signal.last_error
        if outcome.wait_ms is None:
            wait = left
            deadline = generator.signal.deadline
            if deadline is not None and deadline > now:
                wait = min(left, deadline - now + 0.001)
        else:
            wait = max(outcome.wait_ms, 1) / 1_000
            if wait > left and said is None:
                message = f"no ids for {shown(generator.name)} before {outcome.wait_ms} ms have passed"
                figures = {"retry_after_ms": outcome.wait_ms, "wait_ms": outcome.wait_ms}
                raise explained(generator, IdsError("not_yet", message, name=generator.name, **figures))
            wait = min(wait, left)
        if left <= 0:
            waited_ms = round((now - self._began) * 1_000)
            message = f"no ids for {shown(generator.name)} within {waited_ms} ms{because(said)}"
            error = IdsError("timeout", message, name=generator.name, waited_ms=waited_ms)
            raise explained(generator, caused(error, said))
        return self._signal, seen, wait

    def leave(self) -> None:
        """The caller went away."""

    def run(self) -> T:
        """Waits on this thread."""
        while True:
            waits = self.step()
            if waits is None:
                return self.result  # type: ignore[return-value]
            signal, seen, seconds = waits
            signal.wait(seen, seconds, self.mark)
