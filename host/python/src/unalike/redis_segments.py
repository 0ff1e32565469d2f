"""Segments out of the intervals that a durable store grants to Redis.

A request is one call of ``allocate.lua``. When that has nothing to give, because the hash is missing, belongs to
another incarnation, or is spent, one client raises the ceiling: it claims the tag, looks at its generation, takes an
interval from the durable store, and installs it under that generation, once. A background thread looks at the use of
the tags that this client serves, and raises their ceilings before they are reached.
"""

from __future__ import annotations

import threading
import time
import weakref
from dataclasses import dataclass, replace
from typing import Final, Optional, Sequence

from .redis_errors import Access
from .redis_growth import NUMBERS_MAX, Demand, uses
from .redis_raising import ASK_AGAIN, DONE, Elsewhere, HashKey, Raise, Raising, Turns, nonce
from .redis_server import RedisServer, Reply, Script, script
from .redis_url import RedisSettings
from .store import ID_MAX, Segment, SegmentStore, StoreError, TailRelease, shown

__all__ = ["RedisSegments"]

_ALLOCATE: Final = script("tag", "allocate")
_LOOK: Final = script("tag", "look")
_INSTALL: Final = script("tag", "durable", "install")
_SKIP: Final = script("tag", "skip")
_RELEASE: Final = script("tag", "release")

_NEW: Final = (
    ("incarnation", ""),
    ("end", "0"),
    ("left", "0"),
    ("next_end", ""),
    ("next_left", "0"),
    ("durable_version", "0"),
    ("version_base", "0"),
    ("given", "0"),
    ("raised_by", "0"),
    ("raised_ms", "0"),
    ("low", "0"),
    ("samples", ""),
    ("sampled_ms", "0"),
)
"""What a new hash has beside its generation and its first claim."""

_SAMPLE_MS: Final = 60_000
"""How old the newest note of a tag's use gets."""
_IDLE: Final = 60 * 60.0
"""A tag that nobody asked for so many seconds is no longer looked after."""
_KEEP_EVERY: Final = 10.0
"""How often the use of tags is noted and looked at, in seconds."""
_ROUNDS_MAX: Final = 6
"""A tag that nobody uses is looked after half as often each time, down to once in so many rounds."""


@dataclass(frozen=True)
class _Newest:
    start: int
    end: int
    version: int
    """As the caller knows it."""
    generation: str
    redis_version: str
    """As Redis knows it."""


class _Known:
    """What this client knows of a tag that it uses."""

    def __init__(self) -> None:
        self.turns: Final = Turns()
        self.asked = 0.0
        self.every_rounds = 1
        """In which rounds it is looked after: in every so manieth one."""
        self.rounds_left = 1
        """How many there are to the next look."""
        self.used = 0
        """How much of it was used at the last look, by all hosts."""
        self.lock: Final = threading.Lock()
        self.newest: Optional[_Newest] = None
        """The newest grant, as long as its tail can be given back."""


@dataclass(frozen=True)
class _Grant:
    """What ``allocate.lua`` granted, and the intervals it took it from."""

    segment: Segment
    generation: str
    redis_version: str
    first_end: int
    """Behind the last number of the first interval."""
    all_end: int
    """Behind the last number of all."""
    left: int
    """Of both."""
    low: int


@dataclass(frozen=True)
class _View:
    """What ``look.lua`` sees."""

    generation: str
    incarnation: str
    all_end: int
    held: int
    """How many numbers Redis may still hand out."""
    has_next: bool
    """Whether some of them are of a second interval."""
    demand: Demand
    low: int
    used: int
    """How many numbers all hosts used."""


@dataclass(frozen=True)
class _Wanted:
    """A request for so many found none, and takes none below ``at_least``."""

    count: int
    at_least: int


class RedisSegments:
    """Several threads may use it."""

    def __init__(self, server: RedisServer, durable: SegmentStore, settings: RedisSettings) -> None:
        """
        :raises StoreError: As :meth:`Raising.recognise`.
        """
        self._server = server
        self._prefix = settings.prefix
        self._bounds = (settings.raise_min, settings.raise_max)
        self._raising = Raising(server, durable, settings, "sequences", _NEW)
        self._lock = threading.Lock()
        self._tags: dict[str, _Known] = {}
        self._raising.recognise()
        self._closed = threading.Event()
        # It holds the store weakly: one that nobody has any more is not looked after.
        arguments = (weakref.ref(self), self._closed)
        self._keeper = threading.Thread(target=_keep, args=arguments, name="unalike-redis-keeper", daemon=True)
        self._keeper.start()
        weakref.finalize(self, self._closed.set)

    def allocate(self, tag: str, count: int, at_least: int) -> Segment:
        known = self._tag(tag)
        deadline = self._raising.deadline()
        while True:
            raised = known.turns.raised
            grant = self._grant(tag, count)
            if grant is None:
                wanted = _Wanted(count, at_least)
                try:
                    self._raising.wait(tag, known.turns, raised, deadline, lambda: self._raise(tag, known, wanted))
                except StoreError as error:
                    if error.kind in ("tag-unknown", "tag-invalid", "tag-limit"):
                        # There is no such tag: it is not looked after.
                        with self._lock:
                            self._tags.pop(tag, None)
                    raise
                continue
            if grant.left < grant.low:
                self._raise_soon(tag, known)
            segment = grant.segment
            if segment.end <= at_least:
                # All of it lies below, and so does what would come next.
                self._leave(tag, grant, at_least)
                continue
            segment = replace(segment, start=max(segment.start, at_least))
            newest = _Newest(segment.start, segment.end, segment.version, grant.generation, grant.redis_version)
            with known.lock:
                known.newest = newest
            return segment

    def release(self, tag: str, tail: TailRelease) -> bool:
        with self._lock:
            known = self._tags.get(tag)
        if known is None:
            return False
        with known.lock:
            newest = known.newest
            if newest is None or newest.version != tail.version or not newest.start <= tail.start < newest.end:
                return False
            # Taken out, so that it is sent once at most.
            known.newest = None
        arguments = (newest.generation, newest.redis_version, str(newest.end - tail.start))
        reply = self._script("taking back numbers of", "writes", _RELEASE, tag, arguments)
        return reply.text() == "taken"

    def close(self) -> None:
        self._closed.set()

    def look_after_all(self) -> None:
        """Looks after the tags that are in use. Any number of hosts may do so at once."""
        now = time.monotonic()
        with self._lock:
            for tag, known in list(self._tags.items()):
                if now - known.asked >= _IDLE and not known.turns.turn.locked():
                    del self._tags[tag]
            for known in self._tags.values():
                known.rounds_left -= 1
            tags = [(tag, known) for tag, known in self._tags.items() if known.rounds_left <= 0]
        for tag, known in tags:
            try:
                self._look_after(tag, known)
            except StoreError as error:
                if error.is_retryable:
                    # The server is asked again in a while.
                    return

    def _key(self, tag: str) -> str:
        """In braces, so that all that may ever belong to a tag lies on one node."""
        return f"{self._prefix}:{{{tag}}}"

    def _tag(self, tag: str) -> _Known:
        with self._lock:
            known = self._tags.setdefault(tag, _Known())
            known.asked = time.monotonic()
            known.rounds_left = 1
            return known

    def _script(self, doing: str, access: Access, script: Script, tag: str, arguments: Sequence[str]) -> Reply:
        key = self._key(tag)
        return self._server.script(f"{doing} {shown(tag)}, the key {key}", access, script, (key,), arguments)

    def _grant(self, tag: str, wanted: int) -> Optional[_Grant]:
        """One call; ``None`` when there is nothing to grant."""
        wanted = min(wanted, NUMBERS_MAX)
        reply = self._script("granting numbers of", "writes", _ALLOCATE, tag, (str(wanted),))
        if reply.text() != "granted":
            return None
        generation = reply.text()
        end, left, count = reply.number(), reply.number(), reply.number()
        next_end, next_left = reply.number_or_none(), reply.number()
        redis_version, durable_version, low = reply.number(), reply.number(), reply.number()
        if left > end or not 1 <= count <= min(left, wanted):
            raise reply.damaged("its numbers make no interval")
        version = redis_version + durable_version
        if version >= 2**64:
            raise reply.damaged("its version is not a number")
        start = end - left
        if start < 1 or start + count - 1 > ID_MAX:
            raise reply.damaged("its numbers are out of range")
        return _Grant(
            segment=Segment(start, start + count, 1, 0, version),
            generation=generation,
            redis_version=str(redis_version),
            first_end=end,
            all_end=end if next_end is None else next_end,
            left=left - count + next_left,
            low=low,
        )

    def _look(self, tag: str) -> Optional[_View]:
        reply = self._script("looking at", "reads", _LOOK, tag, (str(_SAMPLE_MS),))
        if reply.text() == "missing":
            return None
        generation, incarnation = reply.text(), reply.text()
        is_valid = reply.text() == "1"
        end, left = reply.number(), reply.number()
        next_end, next_left = reply.number_or_none(), reply.number()
        used = reply.number()
        raised_by, raised_ms, low = reply.number(), reply.number(), reply.number()
        samples = reply.text()
        now_ms = reply.number()
        recently, long_term = uses(samples, now_ms, used)
        return _View(
            generation=generation,
            incarnation=incarnation,
            all_end=end if next_end is None else next_end,
            held=left + next_left if is_valid else 0,
            has_next=is_valid and next_left > 0,
            # What was lost says nothing of how long it would have lasted.
            demand=Demand(recently, long_term, raised_by, max(now_ms - raised_ms, 0) if is_valid else None),
            low=low,
            used=used,
        )

    def _raise_soon(self, tag: str, known: _Known) -> None:
        self._raising.soon(tag, known.turns, lambda: self._raise(tag, known, None))

    def _raise(self, tag: str, known: _Known, wanted: Optional[_Wanted]) -> Raise:
        """Gets more numbers for a tag, if nobody else does and they are due.

        They are due since ``wanted`` found none, or without it since they will not last.
        """
        place = HashKey(tag, tag, self._key(tag))
        return self._raising.claimed(place, known.turns, lambda: self._raise_claimed(place, wanted))

    def _raise_claimed(self, place: HashKey, wanted: Optional[_Wanted]) -> Raise:
        tag = place.tag
        view = self._look(tag)
        if view is None:
            return Elsewhere(ASK_AGAIN)
        low = view.demand.low()
        is_due = view.held < low if wanted is None else view.held == 0
        if not is_due:
            self._raising.settle(place, low)
            return DONE
        # Looks before it asks: a grant that is burnt moves the watermark, and the next look would find nothing wrong.
        granted_until = self._raising.granted_until(place, tag)
        _check_not_behind(tag, granted_until, view.all_end)
        if wanted is None and view.has_next and granted_until != view.all_end:
            # Numbers in between were burnt, or are another's: a third interval has no room, and would be burnt, too.
            self._raising.settle(place, 0)
            return DONE
        count = view.demand.raise_by(view.held, 0 if wanted is None else wanted.count, *self._bounds)
        granted = self._raising.grant(place, tag, count, 0 if wanted is None else wanted.at_least)
        _check_not_behind(tag, granted.start, view.all_end)
        size = granted.end - granted.start
        more = [str(number) for number in (size, granted.version, view.demand.raised(size).low())]
        read = (view.generation, view.incarnation)
        return self._raising.install(place, _INSTALL, read, (granted.start, granted.end), more)

    def _leave(self, tag: str, grant: _Grant, following: int) -> None:
        """Leaves no numbers below ``following`` of the intervals of this grant, if the tag is of its generation."""
        left = [str(min(max(end - following, 0), NUMBERS_MAX)) for end in (grant.first_end, grant.all_end)]
        self._script("skipping numbers of", "writes", _SKIP, tag, (grant.generation, *left, nonce()))

    def _look_after(self, tag: str, known: _Known) -> None:
        """Looks at the use of a tag, and raises its ceiling if it is near."""
        view = self._look(tag)
        if view is None:
            return
        low = view.demand.low()
        is_resting = view.used == known.used and view.held >= low
        known.every_rounds = min(2 * known.every_rounds, _ROUNDS_MAX) if is_resting else 1
        known.rounds_left = known.every_rounds
        known.used = view.used
        if view.held < low:
            self._raise_soon(tag, known)
        elif abs(low - view.low) > view.low // 10:
            self._raising.note_low(HashKey(tag, tag, self._key(tag)), low)


def _check_not_behind(tag: str, following: int, end: int) -> None:
    """Refuses a durable store that would grant numbers from ``following`` on, where Redis had all up to ``end``."""
    if following < end:
        raise StoreError(
            "corrupt",
            f"the durable store has granted {shown(tag)} up to {max(following - 1, 0)}, and Redis had it up to {end - 1} "
            "before: it lost data, or is another store; find out which, and raise the tag there above "
            f"{end - 1}",
        )


def _keep(store: weakref.ref[RedisSegments], closed: threading.Event) -> None:
    while not closed.wait(_KEEP_EVERY):
        segments = store()
        if segments is None:
            return
        segments.look_after_all()
        del segments
