"""Stores with files, and forks.

SQLite allows no use in a child of what its parent opened: the locks are the parent's, and go with it, and a mutex that
a thread had taken stays taken. So a fork waits until no thread is inside of a store with a file, and closes these
stores. The parent and the child open them anew with the next request. After a fork that Python does not hear of, the
Rust host opens no file in the child.
"""

from __future__ import annotations

import _thread
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from ._process import current
from ._requests import Signal

__all__ = ["Gate", "closed_at_forks", "dropped", "gate"]

_WAITS_S: Final = 30.0
"""For how long a fork waits for a thread that is inside, and a thread for a fork."""


class HasFiles(Protocol):
    """A store with files of SQLite."""

    def _close_for_fork(self) -> None: ...


class Gate:
    """Lets any number of threads into stores with files, and none while this process forks.

    Whoever enters says so first and looks for forks afterwards; a fork says so first and looks for threads afterwards.
    """

    def __init__(self) -> None:
        self._inside: dict[int, int] = {}
        """How deep each thread is inside."""
        self._forking: dict[int, float] = {}
        """Until when each thread that forks keeps others out: what comes after a fork may be interrupted, too."""
        self._changed = Signal()

    def __enter__(self) -> None:
        mark, thread = current(), threading.get_ident()
        deadline = time.monotonic() + _WAITS_S
        depth = self._inside.get(thread, 0)
        while True:
            seen = self._changed.version
            self._inside[thread] = depth + 1
            left = deadline - time.monotonic()
            # Whoever is inside already goes on: the fork waits for it. And whoever forks does not wait for itself.
            if depth or thread in self._forking or left <= 0 or not self._is_forking():
                return
            self._leave(thread)
            self._changed.wait(seen, left, mark)

    def _is_forking(self) -> bool:
        now = time.monotonic()
        return any(now < until for until in list(self._forking.values()))

    def __exit__(self, *_: object) -> None:
        self._leave(threading.get_ident())

    def _leave(self, thread: int) -> None:
        depth = self._inside.get(thread, 0)
        if depth > 1:
            self._inside[thread] = depth - 1
        else:
            self._inside.pop(thread, None)
        if self._forking:
            self._changed.wake()

    def close(self) -> bool:
        """Waits for those inside, and whether nobody is any more. Each of them ends, at the latest after the busy
        timeout; one that a disk holds up for longer does not hold the fork up.
        """
        mark, own = current(), threading.get_ident()
        deadline = time.monotonic() + _WAITS_S
        self._forking[own] = deadline
        while True:
            seen, left = self._changed.version, deadline - time.monotonic()
            inside = list(self._inside)
            # The thread that forks may be inside itself, by a finalizer.
            if left <= 0 or all(thread == own for thread in inside):
                return not inside
            self._changed.wait(seen, left, mark)

    def open(self) -> None:
        """After the fork."""
        self._forking.pop(threading.get_ident(), None)
        self._changed.wake()


_gates: Final[dict[int, Gate]] = {}
"""By the marks of processes: a child has none of the threads that were inside of its parent's."""

_stores: Final[weakref.WeakValueDictionary[int, HasFiles]] = weakref.WeakValueDictionary()


def gate() -> Gate:
    """That of this process."""
    mark = current()
    found = _gates.get(mark)
    # `setdefault` is one step, whatever other threads do.
    return found if found is not None else _gates.setdefault(mark, Gate())


def closed_at_forks(store: HasFiles) -> None:
    """Has a store closed before each fork, from now on."""
    _stores[id(store)] = store


_dropped: Final[deque[Callable[[], None]]] = deque()
"""What closes the files of stores that nobody has any more."""


def dropped(close: Callable[[], None]) -> None:
    """Has the files of a store closed that nobody closed: soon, and before the next fork. It may be called anywhere, as
    finalizers are.
    """
    _dropped.append(close)
    try:
        _thread.start_new_thread(_close_dropped, ())
    except RuntimeError:
        # No more threads, or the interpreter ends.
        pass


def _close_dropped() -> None:
    with gate():
        _close_all_dropped()


def _close_all_dropped() -> None:
    while _dropped:
        try:
            close = _dropped.popleft()
        except IndexError:
            return
        close()


def _before_fork() -> None:
    # The files of one that is at work stay open, and no child opens any then: so all others may stay, too.
    if gate().close():
        _close_all_dropped()
        for reference in _stores.valuerefs():
            store = reference()
            if store is not None:
                store._close_for_fork()


def _after_fork_in_parent() -> None:
    gate().open()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent)
