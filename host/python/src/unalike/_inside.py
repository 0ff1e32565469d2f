"""Calls from inside of calls: a signal handler, a finalizer, a clock or a log handler that takes an id.

They run between any two steps of the thread that they find, which may hold a lock just then. Two rules keep them from
waiting for themselves, and from each other's ids:

* Whoever is inside of a section waits for no lock of another one. The component's lock is the last: inside of it
  nothing waits, a call from there is answered from what is in hand, or refused.
* What is in hand is one object in a :class:`Cell`, which is exchanged and never changed. Whoever takes from it has
  exchanged it before, so that nobody finds it twice.
"""

from __future__ import annotations

import heapq
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, Generic, TypeVar

from .errors import IdsError
from .store import shown

__all__ = ["HAS_GIL", "Cell", "drained", "in_component", "refuse_inside", "section"]

T = TypeVar("T")

HAS_GIL: Final[bool] = getattr(sys, "_is_gil_enabled", lambda: True)()
"""Whether a call of C is one step for all threads. Without, no id is taken without a lock."""


class _Thread(threading.local):
    sections = 0
    """How many sections this thread is inside of."""
    is_in_component = False


_thread: Final = _Thread()


def section(lock: Any, act: Callable[..., T], *args: Any) -> T:
    """Acts under a lock, which must be one of C: only those are given back whatever interrupts. From inside of another
    section it acts without: whoever has the lock may be waiting for this thread, or be gone when the interpreter ends.
    What ``act`` does must bear that.
    """
    thread = _thread
    if thread.sections or sys.is_finalizing():
        return act(*args)
    thread.sections += 1
    try:
        with lock:
            return act(*args)
    finally:
        thread.sections -= 1


def in_component(lock: Any, act: Callable[[], T]) -> T:
    """Acts under a lock of the component's, inside of which nobody waits for ids or for a store."""
    thread = _thread
    was = thread.is_in_component
    thread.sections += 1
    thread.is_in_component = True
    try:
        with lock:
            return act()
    finally:
        thread.is_in_component = was
        thread.sections -= 1


def refuse_inside(name: str, of: str = "component") -> None:
    """Refuses a call that would wait for the very call from which it came.

    :param of: ``component``, or ``section`` for any.
    :raises IdsError: ``nested``, or ``closed`` from a finalizer when the interpreter ends
    """
    if sys.is_finalizing():
        raise IdsError("closed", f"no ids for {shown(name)}: this process ends, and none are in hand", name=name)
    if _thread.is_in_component or (of == "section" and _thread.sections):
        message = (
            f"{shown(name)} was asked for from inside of a call for ids (by a finalizer, a signal handler, a clock or "
            "a log handler), which can be given only ids that are in hand, and there are not enough: ask after that "
            "call"
        )
        raise IdsError("nested", message, name=name)


class Cell(Generic[T]):
    """A place for one object that is exchanged in one step."""

    __slots__ = ("exchange", "look")

    def __init__(self, first: T) -> None:
        held = [first]
        # Of a heap of one, without comparing. There is no other exchange that is one call of C.
        self.exchange: Callable[[T], T] = partial(heapq.heapreplace, held)  # type: ignore[type-var]
        """Puts another one there and answers which was."""
        self.look: Callable[[], T] = partial(held.__getitem__, 0)
        """Answers which is there."""


def drained(ids: Iterator[int], run: range) -> int:
    """Up to where in its run an iterator has given out; it has nothing any more.

    Others may be about to take from it, so both happen in one step: ``zip`` calls one after the other.
    """
    count = len(run)
    end = partial(ids.__setstate__, count)  # type: ignore[attr-defined]
    left: int = next(zip(iter(ids.__length_hint__, -1), iter(end, 0)))[0]  # type: ignore[attr-defined]
    return count - left
