"""Snowflakes: ids of a timestamp, a worker and a sequence, under a lease.

The component hands out the rest of a tick as one run; the host hands its ids out while the clock is in that tick, and
drops what is left when the clock has moved on, so that an id's timestamp is the time of its issue.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, Optional, Union

from ._component import CoreInstance, Run
from ._inside import HAS_GIL, Cell, drained, section
from ._lane import Generator, Later, Opening, Waiting, later_or_error
from ._process import MARK, Forked, uninterrupted
from ._values import COUNT
from .batch import Batch
from .errors import IdsError, closed
from .sequence import refused_to_pickle
from .store import Layout

if TYPE_CHECKING:
    from .ids import Home, Ids

__all__ = ["Clock", "Snowflake", "SnowflakeStatus", "Spread"]

log: Final = logging.getLogger("unalike")

_NO_IDS: Final = range(0)


@dataclass(frozen=True, slots=True)
class Clock:
    """What to do when the clock is behind a time that it showed before. Uniqueness does not depend on it."""

    policy: Literal["reject", "wait", "keep"]
    max_ms: int = 0

    @staticmethod
    def reject() -> Clock:
        """Refuse: ``clock_moved_back`` (Twitter)."""
        return Clock("reject")

    @staticmethod
    def wait(max_ms: int) -> Clock:
        """Wait, up to a difference of so many milliseconds (Leaf: 5). Beyond: refuse."""
        return Clock("wait", max_ms)

    @staticmethod
    def keep(max_ms: int) -> Clock:
        """Go on with the last timestamp, up to a difference of so many milliseconds (hutool: 2000). Beyond: refuse."""
        return Clock("keep", max_ms)


@dataclass(frozen=True, slots=True)
class Spread:
    """The first sequence of each tick: with 0 always, ``id % 2^n`` sends the ids of a quiet generator to one shard."""

    kind: Literal["none", "rotating", "random"]
    bits: int = 0

    @staticmethod
    def none() -> Spread:
        """Every tick begins with sequence 0."""
        return Spread("none")

    @staticmethod
    def rotating(bits: int) -> Spread:
        """One further with each tick that is used, below 2^bits."""
        return Spread("rotating", bits)

    @staticmethod
    def random(bits: int) -> Spread:
        """Anywhere below 2^bits."""
        return Spread("random", bits)


def clock_to_wit(clock: Clock) -> Any:
    return clock.policy if clock.policy == "reject" else {clock.policy: clock.max_ms}


def spread_to_wit(spread: Spread) -> Any:
    return spread.kind if spread.kind == "none" else {spread.kind: spread.bits}


@dataclass(frozen=True, slots=True)
class SnowflakeStatus:
    """Figures of an open snowflake generator, for metrics."""

    issued: int
    """Ids that were handed out by this process since the generator was opened."""
    worker: Optional[int]
    """The worker under lease."""
    valid_until_ms: int
    """The end of the lease, in Unix milliseconds; 0 without one."""
    used_until_ms: int
    """The end of the greatest tick used, in Unix milliseconds; 0 before the first."""
    in_flight: bool
    """Whether a request to the lease store is under way."""


_Hand = tuple[int, int, Iterator[int], range]
"""From and until which times the run in hand is handed out, what gives its ids out, and the whole of it."""


def _hand(run: range, from_ms: int = 0, until_ms: int = 0) -> _Hand:
    return from_ms, until_ms, iter(run), run


class Flakes:
    """A snowflake generator of this process. Cuts are those of a buffered sequence."""

    def __init__(self, home: Home, snowflake: Snowflake) -> None:
        self.mark = home.mark
        self.clock = home.lane.clock
        self._hand = Cell(_hand(_NO_IDS))
        self.hand = self._hand.look()
        """What is taken from without a lock, one id at a time."""
        self._lock = threading.Lock()
        opening = Opening("snowflake", snowflake.namespace, snowflake._options)
        self.generator = Generator(home.lane, opening)
        self._layout, self._kept_ms = snowflake.layout, snowflake._kept_ms
        self._issued = 0
        self._renewal, self._horizon_ms = home.renewal, snowflake._options["horizon-ms"]
        self._renewal_fails = False

    def try_next(self) -> Union[int, Later]:
        run = self._try_run(1)
        return run if isinstance(run, Later) else run[0]

    def try_gather(self, gathered: list[range], count: int) -> Union[Batch, Later]:
        """Adds to what one call has gathered so far: its ids come from several ticks."""
        left = count - sum(len(run) for run in gathered)
        while left:
            run = self._try_run(left)
            if isinstance(run, Later):
                return run
            gathered.append(run)
            left -= len(run)
        return Batch(gathered)

    def _try_run(self, most: int) -> Union[range, Later]:
        """At least one id and at most so many, from the run in hand or from the next one."""
        while True:
            if self.generator.is_closed:
                raise closed(self.generator.name)
            # Read while nothing is held: the clock may be the user's.
            run = section(self._lock, self._cut, most, self.clock())
            if run:
                return run
            found = self._reserve(most)
            if found is not None:
                return found

    def _cut(self, most: int, now_ms: int) -> range:
        """What is in hand and of its time, up to so many ids."""
        if not self._has(now_ms):
            return _NO_IDS
        mine = _hand(_NO_IDS)
        from_ms, until_ms, ids, whole = self._hand.exchange(mine)
        run = whole[drained(ids, whole) :]
        rest = _hand(run[most:], from_ms, until_ms)
        self._put(rest, mine)
        return run[:most] if from_ms <= now_ms < until_ms else _NO_IDS

    def _has(self, now_ms: int) -> bool:
        from_ms, until_ms, ids, _ = self._hand.look()
        return from_ms <= now_ms < until_ms and ids.__length_hint__() > 0  # type: ignore[attr-defined]

    def _put(self, rest: _Hand, mine: _Hand) -> None:
        other = self._hand.exchange(rest)
        if other is not mine:
            # A call from inside of this one went further: no id of an earlier tick comes after one of a later tick.
            drained(*other[2:])
            drained(*rest[2:])
        if HAS_GIL:
            self.hand = rest

    def _reserve(self, most: int) -> Union[range, Later, None]:
        """Up to so many ids of another run, the rest of which is then in hand."""
        generator, layout = self.generator, self._layout

        def act(instance: CoreInstance, handle: Any, now_ms: int) -> Any:
            if self._has(now_ms):  # another thread brought it
                return None
            # The whole rest of the tick: what is not used in time is worth nothing later.
            answer = instance.reserve("snowflake.reserve", handle, now_ms, 2**32 - 1)
            if not isinstance(answer, Run):
                status = instance.call("snowflake.status", handle, now_ms)
                has_ended = status["worker"] is not None and status["valid-until"] <= now_ms
                generator.ended = (status["worker"], status["valid-until"]) if has_ended else None
                return answer
            shift = layout.datacenter_bits + layout.worker_bits + layout.sequence_bits
            until_ms = layout.epoch_ms + ((answer.first >> shift) + 1) * layout.tick_ms
            # Recorded before anything can take this instance's place.
            generator.used_until_ms, generator.ended = until_ms, None
            run = answer.ids()
            # A clock that goes back as far as the policy bridges finds the run still in hand: the last tick is kept.
            hand = _hand(run[most:], now_ms - self._kept_ms, until_ms)
            # What is left of an earlier tick must not come after this one's.
            _, _, ids, whole = self._hand.exchange(hand)
            self._issued += len(run) - (len(whole) - drained(ids, whole))
            if HAS_GIL:
                self.hand = hand
            return run[:most]

        answer = generator.call(act)
        self._look_after()
        if answer is None or isinstance(answer, range):
            return answer
        return later_or_error(generator, answer)

    def status(self) -> SnowflakeStatus:
        found = self.generator.call(lambda instance, handle, now: instance.call("snowflake.status", handle, now))
        self._look_after()
        left: int = self._hand.look()[2].__length_hint__()  # type: ignore[attr-defined]
        return SnowflakeStatus(
            self._issued - left,
            found["worker"],
            found["valid-until"],
            found["used-until"],
            found["in-flight"],
        )

    def _look_after(self) -> None:
        """Has its lease renewed from the first call on that asks for one."""
        renewal = self._renewal
        if renewal is not None and uninterrupted(lambda: renewal.begin(self._horizon_ms)):
            self._renewal = None

    def renew(self, answered: Callable[[], None]) -> None:
        """Asks for what is due, if anybody ever used it. ``answered`` is called when the answer is there."""
        generator = self.generator
        signal = generator.signal
        if generator.opened is None or generator.is_closed:
            return
        seen = signal.version
        try:
            status = self.status()
        except IdsError as error:
            # Those that follow say the same.
            if not self._renewal_fails and error.kind != "closed":
                log.warning("a lease was not renewed: %s", error)
            self._renewal_fails = True
            return
        self._renewal_fails = False
        if status.in_flight and not signal.add(answered, answered, seen):
            answered()

    def waiting(self, count: Optional[int], wait_max: float) -> Waiting[Any]:
        gathered: list[range] = []
        attempt = self.try_next if count is None else lambda: self.try_gather(gathered, count)
        return Waiting(self.generator, attempt, wait_max)

    def stop(self) -> None:
        self.generator.stop()
        nothing = _hand(_NO_IDS)
        drained(*self._hand.exchange(nothing)[2:])
        self.hand = nothing

    def close(self) -> None:
        """Ends it in the component, which gives the time after the greatest used tick back."""
        self.generator.close("snowflake.close")


class Snowflake:
    """The snowflake ids of one lease namespace. All threads share one worker.

    Ids ascend within the process under each worker; it takes another one only after its clock was ahead of true time by
    more than a horizon. No id is handed out twice in its namespace, whatever the clocks do. In a forked child it goes
    on under a lease of its own.

    >>> from unalike import Ids
    >>> from unalike.memory import MemoryStore
    >>> with Ids(leases=MemoryStore()) as ids:
    ...     flakes = ids.snowflake("default", "twitter")
    ...     flakes.next() < flakes.next()
    True
    """

    __slots__ = ("__weakref__", "_here", "_ids", "_kept_ms", "_options", "layout", "namespace")

    def __init__(self, ids: Ids, namespace: str, layout: Layout, options: dict[str, Any], clock: Clock) -> None:
        self._ids, self._options = ids, options
        self._kept_ms = clock.max_ms if clock.policy == "keep" else 0
        self.namespace = namespace
        """The lease namespace."""
        self.layout = layout
        """The layout of the ids."""
        self._here = ids._home().snowflake(self)

    def next(self) -> int:
        """The next id. Waits, if need be, for a lease or for the next tick, up to ``wait_max`` of the ``Ids``.

        :raises IdsError:
        """
        here = self._here
        id = self._next_here(here)
        while True:
            # Looked at last of all: a handler of a signal may fork at any call before, and return in the child.
            if id and MARK[0] == here.mark:
                return id
            here = self._now()
            id = self._waited(here, None)

    def try_next(self) -> Optional[int]:
        """The next id if one is available without waiting, else ``None``, and what is due is asked for.

        :raises IdsError:
        """
        here = self._now()
        found = here.try_next()
        return None if isinstance(found, Later) or MARK[0] != here.mark else found

    def take(self, count: int) -> Batch:
        """``count`` ids, 1 to 2^32 - 1, all or none. Waits as :meth:`next`; what was gathered then is a gap.

        :raises IdsError:
        """
        counted = COUNT.check(count, "count")
        while True:
            here = self._now()
            batch: Optional[Batch] = self._waited(here, counted)
            # Looked at last of all, as in `next`.
            if batch is not None and MARK[0] == here.mark:
                return batch

    def status(self) -> SnowflakeStatus:
        """Figures for metrics; it also asks for what is due.

        :raises IdsError: ``closed``, ``rebuilt``
        """
        return self._now().status()

    def __iter__(self) -> Iterator[int]:
        """Ids without end."""
        return iter(self.next, None)

    def __repr__(self) -> str:
        return f"<Snowflake {self.namespace!r}>"

    def __reduce__(self) -> NoReturn:
        raise refused_to_pickle("Snowflake")

    def _next_here(self, here: Flakes) -> int:
        """The next id of the run in hand, or 0. Whoever asks looks afterwards whether it is in a child."""
        if MARK[0] == here.mark:
            now_ms = here.clock()
            from_ms, until_ms, ids, _ = here.hand
            if from_ms <= now_ms < until_ms:
                return next(ids, 0)
        return 0

    def _waited(self, here: Flakes, count: Optional[int]) -> Any:
        """``None`` in a child, which has a lease of its own."""
        try:
            return here.waiting(count, self._ids.wait_max).run()
        except Forked:
            return None

    def _now(self) -> Flakes:
        """What it is in this process."""
        here = self._here
        if MARK[0] != here.mark:
            here = self._here = self._ids._home().snowflake(self)
        return here
