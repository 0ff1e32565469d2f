"""How a hash in Redis gets more from the durable store.

By one client at a time, by one thread of it, and not at once again after a failure. All this only spares work and
numbers. What keeps grants apart is how an interval is installed: under the generation that was read before the durable
store was asked, and at most once. Whatever comes of an installation but success, the interval is burnt.
"""

from __future__ import annotations

import logging
import re
import secrets
import threading
import time
from dataclasses import dataclass
from typing import Callable, Final, Literal, Optional, Sequence, TypeVar

from .redis_server import RedisServer, Reply, Script, script
from .redis_url import RedisSettings
from .store import ID_MAX, Segment, SegmentStore, StoreError, shown

__all__ = ["ASK_AGAIN", "DONE", "Elsewhere", "HashKey", "Raise", "Raising", "Turns", "nonce"]

_T = TypeVar("_T")

_LOG: Final = logging.getLogger("unalike.redis")

_RECOGNISE: Final = script("durable", "recognise")
_CLAIM: Final = script("durable", "claim")
_SETTLE: Final = script("settle")

_CLAIM_MS: Final = 3_000
"""Who gets more for a hash is let alone for this long."""

ASK_AGAIN: Final = 0.01
"""How often it is asked whether another client has got more, in seconds."""

_ANSWER_MAX: Final = 10.0
"""A durable store that has not answered after so many seconds counts as one that failed."""

_BACKOFF: Final = (0.1, 5.0)
"""The durable store is left alone for so many seconds after a failure, and twice as long after each further one."""

Kind = Literal["sequences", "leases"]
"""The kinds of hashes. Their names are written in Redis: they stay."""


@dataclass(frozen=True)
class HashKey:
    """A hash in Redis that gives out parts of what the durable store granted."""

    tag: str
    """Whose it is, as callers name it."""
    owner: str
    """The tag that the durable store must know, or create, before there is such a hash."""
    key: str


@dataclass(frozen=True)
class Elsewhere:
    """Somebody else gets more, for so many seconds at most."""

    left: float


@dataclass(frozen=True)
class Done:
    """There is more, or enough."""


DONE: Final = Done()

Raise = Done | Elsewhere


class Turns:
    """The threads of this client that want more for one hash: one at a time."""

    def __init__(self) -> None:
        self.turn: Final = threading.Lock()
        self.raised = 0
        """How often one got more."""


def nonce() -> str:
    """A word that nobody else has."""
    return secrets.token_hex(16)


class _Task:
    """A call in a thread of its own: what was begun is finished although the caller may go away."""

    def __init__(self, call: Callable[[], object], ended: Callable[[], None] = lambda: None) -> None:
        self._done = threading.Event()
        self._answer: object = None
        self._error: Optional[BaseException] = None

        def run() -> None:
            try:
                self._answer = call()
            except BaseException as error:
                self._error = error
            finally:
                try:
                    ended()
                finally:
                    self._done.set()

        # A program that has nothing else to do may end.
        threading.Thread(target=run, name="unalike-redis", daemon=True).start()

    def wait(self, limit: float) -> bool:
        return self._done.wait(max(0.0, limit))

    def answer(self) -> object:
        if self._error is not None:
            raise self._error
        return self._answer


def _within(limit: float, call: Callable[[], _T], late: StoreError) -> _T:
    """What a call answers within so many seconds. It goes on, and its answer is nobody's."""
    answers: list[_T] = []
    task = _Task(lambda: answers.append(call()))
    if not task.wait(limit):
        raise late
    task.answer()
    return answers[0]


def _reached(tag: str, retry_after: float, cause: Optional[StoreError]) -> StoreError:
    """The error of a request that found no numbers."""
    again = max(1, int(retry_after * 1_000 + 0.999))
    why = "" if cause is None else f" ({cause})"
    message = f"the tag {shown(tag)} has reached its ceiling, which was not raised: try again in {again} ms{why}"
    error = StoreError("ceiling-reached", message)
    error.__cause__ = cause
    return error


class Raising:
    """Gets more for the hashes of one kind."""

    def __init__(
        self,
        server: RedisServer,
        durable: SegmentStore,
        settings: RedisSettings,
        kind: Kind,
        new: Sequence[tuple[str, str]],
    ) -> None:
        """``new`` is what a new hash has beside its generation and its first claim."""
        self._server = server
        self._durable = durable
        self._kind = kind
        self._durable_key = f"{settings.prefix}:durable"
        self._new = [part for pair in new for part in pair]
        self._timeout = settings.raise_timeout_ms / 1_000
        # Names this client where it claims a hash.
        self._name = nonce()
        self._lock = threading.Lock()
        self._identity: Optional[str] = None
        self._failures = 0
        # Until when the durable store is left alone, and why.
        self._until = 0.0
        self._error: Optional[StoreError] = None

    def recognise(self) -> None:
        """Refuses a durable store that is not the one that Redis knows.

        A Redis that knows none knows this one from now on. While the durable store is down nobody can tell, and numbers
        that Redis has are handed out: before it gets more it is asked again, in :meth:`claimed`.

        :raises StoreError: ``refused`` for another durable store and for one that has no identity; what Redis fails
            with.
        """
        late = StoreError("unavailable", "the durable store behind Redis does not answer")
        try:
            identity = _within(self._timeout, self._identity_of, late)
        except Exception as fault:
            error = _as_store_error(fault)
            if error.is_retryable:
                return
            raise error from fault.__cause__
        keys = (self._durable_key, self._durable_key)
        reply = self._server.script("recognising the durable store", "reads", _RECOGNISE, keys, (self._kind, identity))
        if reply.text() == "other":
            raise self._other_durable(reply.text(), identity)

    def deadline(self) -> float:
        """Until when a request that begins now may wait."""
        return time.monotonic() + self._timeout

    def ask(self, tag: str, request: Callable[[], _T]) -> _T:
        """Asks the durable store; what may work later becomes the ceiling's error.

        :raises StoreError:
        """
        what = f"the durable store did not answer for {shown(tag)} in {_ANSWER_MAX:.0f} s"
        try:
            return _within(_ANSWER_MAX, request, StoreError("outcome-unknown", what))
        except Exception as fault:
            error = _as_store_error(fault)
            if error.is_retryable:
                raise self._failed(tag, error) from error
            raise error from None

    def granted_until(self, place: HashKey, tag: str) -> int:
        """Behind the greatest number that the durable store has granted under ``tag``.

        :raises StoreError: As :meth:`ask`.
        """
        return self.ask(place.tag, lambda: self._durable.open_tag(tag)).watermark + 1

    def grant(self, place: HashKey, tag: str, count: int, at_least: int) -> Segment:
        """What the durable store grants under ``tag`` for a hash: up to ``count`` numbers, from ``at_least`` on.

        :raises StoreError: As :meth:`ask`; ``refused`` for a grant that is not so.
        """
        granted = self.ask(place.tag, lambda: self._durable.allocate(tag, count, at_least))
        with self._lock:
            # One that answers and grants nothing has not recovered.
            self._failures, self._until, self._error = 0, 0.0, None
        is_usable = (
            granted.stride == 1
            and granted.generation == 0
            and granted.version >= 0
            and max(at_least, 1) <= granted.start < granted.end <= ID_MAX + 1
            and granted.end - granted.start <= count
        )
        if not is_usable:
            raise StoreError(
                "refused",
                f"the durable store granted {granted} for {shown(tag)}, which Redis cannot hand out: numbers without "
                f"gaps, "
                f"in one generation, no more than {count} and none below {at_least}, were asked for",
            )
        return granted

    def install(
        self, place: HashKey, script: Script, read: tuple[str, str], granted: tuple[int, int], more: Sequence[str]
    ) -> Raise:
        """Gives a hash what was granted for it.

        The script does so only for the generation and the incarnation that were read before the durable store was
        asked. It is sent once: whatever comes of it but success, the grant is burnt.

        :raises StoreError: Whatever is not worth a retry.
        """
        identity = self._identity_of()
        arguments = (*read, nonce(), str(granted[0]), str(granted[1]), *more, self._kind, identity)
        doing = f"raising the ceiling of {shown(place.tag)}, the key {place.key}"
        try:
            reply = self._server.script(doing, "writes", script, (place.key, self._durable_key), arguments)
            if reply.text() == "installed":
                return DONE
            why = reply.text()
        except StoreError as error:
            if not error.is_retryable:
                raise
            why = str(error)
        _LOG.info("a grant of the durable store for %s was burnt: %s", shown(place.tag), why)
        return Elsewhere(ASK_AGAIN)

    def wait(self, tag: str, turns: Turns, raised: int, deadline: float, raise_: Callable[[], Raise]) -> None:
        """Waits until there is more, at most until the deadline.

        ``raised`` is how often there was when the caller asked; ``raise_`` gets more, and goes on although nobody may
        wait for it any more.

        :raises StoreError:
        """
        if not turns.turn.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise _reached(tag, ASK_AGAIN, None)
        if turns.raised != raised:
            turns.turn.release()
            return
        backoff = self._backoff()
        if backoff is not None:
            turns.turn.release()
            raise _reached(tag, *backoff)
        outcomes: list[Raise] = []
        try:
            task = _Task(lambda: outcomes.append(raise_()), turns.turn.release)
        except RuntimeError as error:
            turns.turn.release()
            raise StoreError("unavailable", f"the ceiling of {shown(tag)} was not raised: {error}") from error
        if not task.wait(deadline - time.monotonic()):
            raise _reached(tag, ASK_AGAIN, None)
        task.answer()
        outcome = outcomes[0]
        if isinstance(outcome, Elsewhere):
            pause = min(ASK_AGAIN, outcome.left)
            if time.monotonic() + pause >= deadline:
                raise _reached(tag, outcome.left, None)
            time.sleep(pause)

    def soon(self, tag: str, turns: Turns, raise_: Callable[[], Raise]) -> None:
        """Gets more in the background, if nobody here is at it: before anybody needs it, so a failure is nobody's."""
        if self._backoff() is not None or not turns.turn.acquire(blocking=False):
            return

        def quietly() -> None:
            try:
                raise_()
            except StoreError as error:
                _LOG.warning("the ceiling of %s was not raised: %s", shown(tag), error)

        try:
            _Task(quietly, turns.turn.release)
        except RuntimeError:
            # The system has no thread, or the program is ending.
            turns.turn.release()

    def claimed(self, place: HashKey, turns: Turns, raise_: Callable[[], Raise]) -> Raise:
        """Gets more by ``raise_``, if no other client is at it.

        :raises StoreError:
        """
        left = self._claim(place)
        if left is not None:
            return Elsewhere(left)
        try:
            outcome = raise_()
        except StoreError as error:
            # Nobody needs to wait until the claim ends by itself. What cannot get more is left alone until it is looked
            # after again.
            self._settle_quietly(place, None if error.is_retryable else 0)
            raise
        if isinstance(outcome, Done):
            turns.raised += 1
        else:
            self._settle_quietly(place, None)
        return outcome

    def settle(self, place: HashKey, low: Optional[int]) -> None:
        """Gives the claim up, and notes when more is due."""
        self._settled(place, self._name, low)

    def note_low(self, place: HashKey, low: int) -> None:
        """Notes when more is due, whoever has a claim."""
        self._settled(place, "", low)

    def _settle_quietly(self, place: HashKey, low: Optional[int]) -> None:
        try:
            self.settle(place, low)
        except StoreError:
            # Where Redis is gone, so is the claim.
            pass

    def _settled(self, place: HashKey, claim: str, low: Optional[int]) -> None:
        arguments = (claim, "" if low is None else str(low))
        self._server.script(f"looking after {shown(place.tag)}", "reads", _SETTLE, (place.key,), arguments)

    def _claim(self, place: HashKey) -> Optional[float]:
        """Claims a hash; answers how long another client has it, if one has.

        A hash that is missing is made, if the durable store knows its tag or creates it.
        """
        # It says nothing of how the durable store does now.
        identity = self._identity or self.ask(place.tag, self._identity_of)

        def claim(generation: str) -> Reply:
            arguments = (self._name, str(_CLAIM_MS), generation, *self._new, self._kind, identity)
            keys = (place.key, self._durable_key)
            return self._server.script(f"claiming {shown(place.tag)}", "reads", _CLAIM, keys, arguments)

        reply = claim("")
        answer = reply.text()
        if answer == "missing":
            self.ask(place.tag, lambda: self._durable.open_tag(place.owner))
            reply = claim(nonce())
            answer = reply.text()
        if answer == "yours":
            return None
        if answer == "other":
            raise self._other_durable(reply.text(), identity)
        return reply.number() / 1_000

    def _identity_of(self) -> str:
        if self._identity is None:
            identity = self._durable.identity()
            if identity is None or re.fullmatch(r"[0-9a-f]{32}", identity) is None:
                what = "has no identity, by which Redis would know it again: take another one"
                raise StoreError("refused", f"the durable store behind Redis {what}")
            self._identity = identity
        return self._identity

    def _other_durable(self, recorded: str, identity: str) -> StoreError:
        return StoreError(
            "refused",
            f"the numbers in {self._server.address} are granted by another durable store: the key "
            f"{self._durable_key} has "
            f"{recorded} for its {self._kind}, and the durable store of this program is {identity}. Name the other "
            f"one, or "
            "use another prefix; if its tags are to be moved to this one, run `unalike store rebind`",
        )

    def _backoff(self) -> Optional[tuple[float, Optional[StoreError]]]:
        with self._lock:
            left = self._until - time.monotonic()
            return (left, self._error) if left > 0 else None

    def _failed(self, tag: str, error: StoreError) -> StoreError:
        """Notes that the durable store failed; the ceiling's error."""
        first, most = _BACKOFF
        with self._lock:
            wait = min(first * 2 ** min(self._failures, 16), most)
            self._failures += 1
            self._until = time.monotonic() + wait
            self._error = error
        return _reached(tag, wait, error)


def _as_store_error(error: Exception) -> StoreError:
    """An error that is no store's may have come after a grant."""
    if isinstance(error, StoreError):
        return error
    failure = StoreError("outcome-unknown", f"the durable store failed: {error}")
    failure.__cause__ = error
    return failure
