"""Sequences: ids under a tag.

``next`` is served from a run; the component is called once per run, and the size of runs follows demand: one id at a
time while ids are asked for now and then (a crash loses none), thousands while runs are used up within milliseconds.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn, Optional, Union

from ._component import CoreInstance, Run
from ._inside import HAS_GIL, Cell, drained, refuse_inside, section
from ._lane import PENDING, Generator, Later, Opening, Waiting, later_or_error
from ._process import MARK, Forked
from ._requests import Signal
from ._values import COUNT
from .batch import Batch
from .errors import IdsError, caused, closed
from .store import (
    ID_MAX,
    AdaptiveStep,
    FixedStep,
    Mode,
    ShareConsumed,
    StoreError,
    TagRecord,
    split_tag,
    sub_tag,
)

if TYPE_CHECKING:
    from .ids import Home, Ids

__all__ = ["Sequence", "SequenceStatus"]

_RUN_MAX: Final = 8_192
_RUN_QUICK_MS: Final = 5
"""A run that was used up within this doubles the next one; one that lasted longer than the other halves it."""
_RUN_SLOW_MS: Final = 100
_HELD_MAX: Final = 2**32 - 1
_NO_IDS: Final = range(0)
_NONE: Final[Iterator[int]] = iter(_NO_IDS)


@dataclass(frozen=True, slots=True)
class SequenceStatus:
    """Figures of an open sequence, for metrics."""

    issued: int
    """Ids that were handed out by this process since the sequence was opened."""
    remaining: int
    """Numbers that were granted and did not cross into a run yet; 0 in ``ordered`` mode."""
    step: int
    """How many numbers the next request asks for; 0 in ``ordered`` mode."""
    in_flight: bool
    """Whether a request to the store is under way."""


class _RunSize:
    """The size of the next run, by how long the last one lasted."""

    __slots__ = ("last_ms", "next")

    def __init__(self) -> None:
        self.next, self.last_ms = 1, 0

    def adapted(self, now_ms: int) -> int:
        lasted_ms = now_ms - self.last_ms
        if lasted_ms <= _RUN_QUICK_MS:
            return min(self.next * 2, _RUN_MAX)
        return max(self.next // 2, 1) if lasted_ms > _RUN_SLOW_MS else self.next


class _Use:
    """When it was seen last that ids had been handed out."""

    __slots__ = ("_issued", "_since")

    def __init__(self) -> None:
        self._issued, self._since = -1, 0.0

    def idle_s(self, issued: int, now: float) -> float:
        """For how long none were, as far as was looked. Each call is a look."""
        if issued != self._issued:
            self._issued, self._since = issued, now
        return now - self._since


_Hand = tuple[Iterator[int], range]
"""The run in hand: what gives its ids out, and the whole of it."""


class Buffered:
    """A sequence of this process, in buffered mode.

    ``next`` takes from ``ids`` in one step and without a lock. All else is cut from the hand and from the runs that are
    kept behind it: a cut exchanges the hand for an empty one of its own before it looks at it, so no other finds the
    same ids, and puts the rest back afterwards. If it finds another's there, both are dropped: a call from inside of it
    went further, and ids ascend.
    """

    def __init__(self, home: Home, opening: Opening, id_max: int) -> None:
        self.mark = home.mark
        self.ids: Iterator[int] = iter(_NO_IDS)
        self.generator = Generator(home.lane, opening, id_max)
        # So that threads wait for a cut of each other's, and drop nothing.
        self._lock = threading.Lock()
        self._hand: Cell[_Hand] = Cell((_NONE, _NO_IDS))
        self._kept: deque[range] = deque()
        self._size = _RunSize()
        self._reserved = 0
        self._use = _Use()

    def try_next(self) -> Union[int, Later]:
        id = next(self.ids, 0)
        if id:
            return id
        found = self.try_take(1)
        return found if isinstance(found, Later) else found.runs[0][0]

    def try_take(self, count: int) -> Union[Batch, Later]:
        while True:
            taken = self.taken(count)
            if taken is not None:
                return taken
            later = self._reserve(count)
            if later is not None:
                return later

    def taken(self, count: int) -> Optional[Batch]:
        """So many ids, if they are in hand."""
        if self.generator.is_closed:
            raise closed(self.generator.name)
        taken = section(self._lock, self._cut, count)
        return None if taken is None else Batch(taken)

    def _cut(self, count: int) -> Optional[list[range]]:
        """So many ids, if they are there. What is not enough is not touched."""
        if self._left() < count:
            return None
        taken: list[range] = []
        mine = (_NONE, _NO_IDS)
        ids, run = self._hand.exchange(mine)
        begin = drained(ids, run)
        while True:
            end = begin + count
            part = run[begin:end]
            if part:
                taken.append(part)
                count -= len(part)
                if not count:
                    break
            try:
                run, begin = self._kept.popleft(), 0
            except IndexError:
                # A call from inside of this one took them. What was taken is a gap.
                return None
        left = run[end:]
        rest = (iter(left), left)
        other = self._hand.exchange(rest)
        if other is not mine:
            drained(*other)
            drained(*rest)
        if HAS_GIL:
            self.ids = rest[0]
        return taken

    def _reserve(self, count: int) -> Optional[Later]:
        """Keeps another run, if so many ids are not there."""

        def act(instance: CoreInstance, handle: Any, now_ms: int) -> Any:
            lacking = count - self._left()
            if lacking <= 0:  # another thread brought them
                return None
            adapted = self._size.adapted(now_ms)
            answer = instance.reserve("sequence.reserve", handle, now_ms, max(adapted, min(lacking, _HELD_MAX)))
            if not isinstance(answer, Run):
                return answer
            # Waiting for the store is no demand.
            self._size.next, self._size.last_ms = adapted, now_ms
            # Kept by whoever does the work: a caller that is interrupted does not lose it.
            self._reserved += answer.count
            self._kept.append(answer.ids())
            return None

        answer = self.generator.call(act)
        return None if answer is None else later_or_error(self.generator, answer)

    def status(self) -> SequenceStatus:
        found = self.generator.call(lambda instance, handle, now: instance.call("sequence.status", handle, now))
        issued = self._reserved - self._left()
        return SequenceStatus(issued, found["remaining"], found["step"], found["in-flight"])

    def waiting(self, count: Optional[int], wait_max: float) -> Waiting[Any]:
        attempt = self.try_next if count is None else lambda: self.try_take(count)
        return Waiting(self.generator, attempt, wait_max)

    def stop(self) -> None:
        self.generator.stop()
        section(self._lock, self._drop)

    def _drop(self) -> None:
        drained(*self._hand.exchange((_NONE, _NO_IDS)))
        self.ids = _NONE
        self._kept.clear()

    def _left(self) -> int:
        left: int = self._hand.look()[0].__length_hint__()  # type: ignore[attr-defined]
        return left + sum(map(len, list(self._kept))) if self._kept else left

    def idle_s(self, now: float) -> float:
        """For how many seconds it handed out nothing, as far as was looked."""
        return self._use.idle_s(self._reserved - self._left(), now)

    def end(self) -> bool:
        """Closes it, if no request is out. Nobody else has it."""

        def act(instance: CoreInstance, handle: Any, now_ms: int) -> bool:
            if instance.call("sequence.status", handle, now_ms)["in-flight"]:
                return False
            instance.call("sequence.close", handle)
            return True

        return self.generator.end(act)

    def close(self) -> None:
        """Ends it in the component, which gives back what never crossed into a run."""
        self.generator.close("sequence.close")


class _Waiter:
    """A caller of an ordered sequence."""

    __slots__ = ("error", "is_gone", "left", "runs", "signal")

    def __init__(self, count: int, signal: Any) -> None:
        self.left, self.signal = count, signal
        self.runs: list[range] = []
        self.error: Optional[IdsError] = None
        self.is_gone = False


class Ordered:
    """A sequence of this process in ordered mode: callers that wait are served together, by rounds.

    A caller queues; whoever finds no round in flight begins one for all that are queued *then*, so a request is served
    only from an allocation that started after it arrived. Each answer of the store moves the rounds on, and so does
    each caller: nobody depends on another's thread. A caller that went away leaves a gap: its share is never given to a
    later one.

    All of it happens in the lane, which nothing interrupts; a caller does no more than queue.
    """

    def __init__(self, home: Home, opening: Opening, id_max: int) -> None:
        self.mark = home.mark
        self.ids: Iterator[int] = iter(_NO_IDS)
        self.generator = Generator(home.lane, opening, id_max)
        self._queue: deque[_Waiter] = deque()
        self._served: list[_Waiter] = []
        self._round: Optional[int] = None
        self._again_at = 0.0
        self._issued = 0
        self._use = _Use()

    def waiting(self, count: Optional[int], wait_max: float) -> Waiting[Any]:
        return _OrderedWaiting(self, count, wait_max)

    def taken(self, count: int) -> Optional[Batch]:
        """As that of :class:`Buffered`: there is never anything in hand."""
        return None

    def advance(self) -> Later:
        """Moves the rounds on as far as they go without waiting, and says what they wait for.

        :raises IdsError: ``nested``
        """
        return self.generator.lane.enter(self.generator.name, self._advance)

    def _advance(self) -> Later:
        try:
            while True:
                later = self._step()
                if later is not None:
                    return later
        except BaseException:
            # A clock failed, say. The round is over, and those for whom it was are first in the next one.
            self._requeue()
            self._wake_all()
            raise

    def _step(self) -> Optional[Later]:
        """``None`` when there is more to do at once."""
        generator = self.generator
        if self._round is None:
            wait_s = self._again_at - time.monotonic()
            if wait_s > 0:
                return Later(max(1, round(wait_s * 1_000)))
            self._served = self._next_served()
            if not self._served:
                return PENDING
            count = sum(waiter.left for waiter in self._served)
            try:
                begun = generator.call_inside(
                    lambda instance, handle, now: instance.call("ordered.begin", handle, now, count)
                )
                if "ok" in begun:
                    self._round = begun["ok"]
                    return None
                return self._put_off(later_or_error(generator, begun["err"]))
            except IdsError as error:
                self._fail(error)
                return None
        round_number = self._round
        seen = generator.signal.version
        try:
            claimed = generator.call_inside(
                lambda instance, handle, now: instance.call("ordered.claim", handle, now, round_number)
            )
            if "ok" in claimed:
                run = claimed["ok"]
                self._round = None
                self._share(Run(run["first"], run["stride"], run["count"]).ids())
                return None
            later = later_or_error(generator, claimed["err"])
            if later.wait_ms is None:
                # It may have been answered since it was looked at.
                return later if generator.signal.add(self, self._answered, seen) else None
            # The round failed and is over: the next one is for the same callers, who came before it.
            return self._put_off(later)
        except IdsError as error:
            self._fail(error)
            return None

    def _answered(self) -> None:
        try:
            self.advance()
        except Exception:  # noqa: BLE001, the callers find out by themselves
            pass

    def _next_served(self) -> list[_Waiter]:
        """Those for whom the next round is: as many as one run can hold."""
        served: list[_Waiter] = []
        total = 0
        while self._queue:
            waiter = self._queue[0]
            if waiter.is_gone:
                self._queue.popleft()
                continue
            if total + waiter.left > 2**32 - 1:
                break
            total += waiter.left
            served.append(self._queue.popleft())
        return served

    def _put_off(self, later: Later) -> Optional[Later]:
        seen = self.generator.signal.version
        self._requeue()
        if later.wait_ms is not None:
            self._again_at = time.monotonic() + later.wait_ms / 1_000
            # Each of them waits for this moment by itself: this call may be nobody's.
            self._wake_all()
        elif not self.generator.signal.add(self, self._answered, seen):
            return None
        return later

    def _requeue(self) -> None:
        """Ends the round; its callers wait for the next one, before all others."""
        self._round = None
        served, self._served = self._served, []
        self._queue.extendleft(reversed([waiter for waiter in served if not waiter.is_gone]))

    def _wake_all(self) -> None:
        for waiter in list(self._queue):
            waiter.signal.wake()

    def _fail(self, error: IdsError) -> None:
        self._round = None
        served, self._served = self._served, []
        for waiter in served:
            waiter.error = error
            waiter.signal.wake()

    def _share(self, ids: range) -> None:
        """Gives each caller its share. Whoever the store granted too little for stays first in the queue."""
        self._issued += len(ids)
        short: list[_Waiter] = []
        served, self._served = self._served, []
        for waiter in served:
            share, ids = ids[: waiter.left], ids[waiter.left :]
            if share:
                waiter.runs.append(share)
                waiter.left -= len(share)
            if waiter.left:
                short.append(waiter)
            else:
                # The ids of a caller that went away are a gap.
                waiter.signal.wake()
        self._queue.extendleft(reversed(short))

    def status(self) -> SequenceStatus:
        return SequenceStatus(self._issued, 0, 0, self._round is not None)

    def stop(self) -> None:
        self.generator.stop()
        self.generator.lane.enter(self.generator.name, self._stop)

    def _stop(self) -> None:
        waiting = [*self._served, *self._queue]
        self._queue.clear()
        self._served, self._round = [], None
        for waiter in waiting:
            waiter.error = closed(self.generator.name)
            waiter.signal.wake()

    def idle_s(self, now: float) -> float:
        """As that of :class:`Buffered`."""
        return self._use.idle_s(self._issued, now)

    def end(self) -> bool:
        """As that of :class:`Buffered`: rounds go on whose callers went away."""

        def is_quiet(*_: Any) -> bool:
            return self._round is None and all(waiter.is_gone for waiter in list(self._queue))

        return is_quiet() and self.generator.end(is_quiet)

    def close(self) -> None:
        """It holds nothing that could be given back."""

    def enqueue(self, waiter: _Waiter) -> None:
        refuse_inside(self.generator.name)
        self._queue.append(waiter)
        # Whoever stops it looks at the queue afterwards.
        if self.generator.is_closed:
            waiter.is_gone = True
            raise closed(self.generator.name)


class _OrderedWaiting(Waiting[Any]):
    """A caller that queued, until it has its share or goes away."""

    def __init__(self, ordered: Ordered, count: Optional[int], wait_max: float) -> None:
        super().__init__(ordered.generator, self._try, wait_max)
        self._ordered, self._count = ordered, count
        self._waiter = _Waiter(count or 1, Signal())
        self.listen_to(self._waiter.signal)
        ordered.enqueue(self._waiter)

    def step(self) -> Any:
        try:
            return super().step()
        except BaseException:
            self.leave()
            raise

    def leave(self) -> None:
        """It waits no more: nothing is given to it any more, or it is a gap."""
        self._waiter.is_gone = True

    def run(self) -> Any:
        try:
            return super().run()
        finally:
            self.leave()

    def _try(self) -> Any:
        later = PENDING if self._is_done() else self._ordered.advance()
        if not self._is_done():
            return later
        if self._waiter.error is not None:
            raise _again(self._waiter.error)
        return self._waiter.runs[0][0] if self._count is None else Batch(self._waiter.runs)

    def _is_done(self) -> bool:
        return self._waiter.left == 0 or self._waiter.error is not None


def _again(error: IdsError) -> IdsError:
    """An error of its own for each caller that it concerns: each adds its own traceback."""
    copy = IdsError(error.kind, str(error), name=error.name, retry_after_ms=error.retry_after_ms, **error.figures)
    copy.__cause__ = error.__cause__
    return copy


class Sequence:
    """The ids of one tag, or of one sub-key of a tag. Any number of threads may share it.

    In ``buffered`` mode its ids ascend within the process; in ``ordered`` mode across all processes in real time. In a
    forked child it goes on with numbers of its own.

    >>> from unalike import Ids
    >>> from unalike.memory import MemoryStore
    >>> ids = Ids(segments=MemoryStore())
    >>> orders = ids.sequence("order")
    >>> orders.next(), orders.next(), list(orders.take(3))
    (1, 2, [3, 4, 5])
    >>> next(iter(orders))
    6
    >>> ids.close()
    """

    __slots__ = ("__weakref__", "_given", "_here", "_id_max", "_ids", "_name", "_opening", "_record")

    def __init__(self, ids: Ids, name: str, record: TagRecord, given: dict[str, Any]) -> None:
        self._ids, self._name, self._record, self._given = ids, name, record, given
        self._id_max = given["id_max"] or ID_MAX
        self._opening = _opening(name, record, given)
        self._here: Union[Buffered, Ordered] = ids._home().sequence(self)

    @property
    def tag(self) -> str:
        """The tag."""
        return split_tag(self._name)[0]

    @property
    def sub(self) -> Optional[str]:
        """The sub-key, if it is the sequence of one."""
        return split_tag(self._name)[1]

    @property
    def mode(self) -> Mode:
        """``buffered`` or ``ordered``, as the tag's record in the store says."""
        return self._record.options.mode

    def next(self) -> int:
        """The next id. Waits for the store if need be, up to ``wait_max`` of :class:`~unalike.Ids`.

        :raises IdsError:
        """
        here = self._here
        id = next(here.ids, 0)
        while True:
            # Looked at last of all: a handler of a signal may fork at any call before, and return in the child.
            if id and MARK[0] == here.mark:
                return id
            here = self._now()
            id = self._waited(here, None)

    def try_next(self) -> Optional[int]:
        """The next id if one is available without waiting, else ``None``, and more are asked for.

        ``None`` always in ``ordered`` mode, where each id takes an answer of the store.

        :raises IdsError:
        """
        here = self._now()
        if isinstance(here, Ordered):
            return None
        found = here.try_next()
        return None if isinstance(found, Later) or MARK[0] != here.mark else found

    def take(self, count: int) -> Batch:
        """``count`` ids, 1 to 2^32 - 1, all or none. Waits as :meth:`next`.

        What was gathered when the call gives up goes to the next caller.

        :raises IdsError:
        """
        counted, here = COUNT.check(count, "count"), self._now()
        batch: Optional[Batch] = here.taken(counted)
        while True:
            # Looked at last of all, as in `next`.
            if batch is not None and MARK[0] == here.mark:
                return batch
            here = self._now()
            batch = self._waited(here, counted)

    def status(self) -> SequenceStatus:
        """Figures for metrics.

        :raises IdsError: ``closed``, ``rebuilt``
        """
        return self._now().status()

    def __iter__(self) -> Iterator[int]:
        """Ids without end."""
        return iter(self.next, None)

    def __repr__(self) -> str:
        sub = "" if self.sub is None else f", sub={self.sub!r}"
        return f"<Sequence {self.tag!r}{sub}, {self.mode}>"

    def __reduce__(self) -> NoReturn:
        raise refused_to_pickle("Sequence")

    def _waited(self, here: Union[Buffered, Ordered], count: Optional[int]) -> Any:
        """``None`` in a child, which has numbers of its own."""
        try:
            return here.waiting(count, self._ids.wait_max).run()
        except Forked:
            return None

    def _now(self) -> Union[Buffered, Ordered]:
        """What it is in this process."""
        here = self._here
        if MARK[0] != here.mark:
            here = self._here = self._ids._home().sequence(self)
        return here


def sub_name(tag: str, sub: str) -> str:
    """:raises IdsError: ``name_invalid``"""
    try:
        return sub_tag(tag, sub)
    except StoreError as error:
        raise caused(IdsError("name_invalid", str(error), name=str(tag)[:32]), error) from None


def refused_to_pickle(what: str) -> TypeError:
    return TypeError(
        f"{what} cannot be pickled or copied: it holds numbers of this process. Make an Ids in each process, at module "
        "level for example; a forked child goes on with the one that it inherits"
    )


def _opening(name: str, record: TagRecord, given: dict[str, Any]) -> Opening:
    id_max = given["id_max"] or ID_MAX
    if record.options.mode == "ordered":
        return Opening("ordered", name, {"id-max": id_max})
    step = given["step"] or record.options.step
    if isinstance(step, FixedStep):
        step = AdaptiveStep(step=step.step, min=step.step, max=step.step)
    if given["id_max"] is not None and given["step"] is None:
        # A step that takes all that there is at once would leave nothing to other processes.
        share = max((id_max - record.options.start) // 64, 1)
        first, least, most = min(step.step, share), min(step.min, share), min(step.max, share)
        step = AdaptiveStep(first, least, most, step.grow_below_ms, step.shrink_above_ms)
    refill = given["refill"] or record.options.refill
    part = {"share-consumed": refill.percent} if isinstance(refill, ShareConsumed) else {"remaining": refill.numbers}
    options = {
        "step": step.step,
        "step-min": step.min,
        "step-max": step.max,
        "grow-below-ms": step.grow_below_ms,
        "shrink-above-ms": step.shrink_above_ms,
        "refill": part,
        "prefetch": given["prefetch"],
        "id-max": id_max,
    }
    return Opening("sequence", name, options)
