"""Which process this is. A child inherits the memory of its parent, and none of its grants.

The process id does not tell: parent and child may have the same one in two namespaces, and ids come back. So each
process marks a word, and the kernel wipes the word in every child that gets a copy of the memory
(``MADV_WIPEONFORK``, Linux 4.14), by whichever call it was made: ``os.fork``, ``_Fork`` or the bare system call, which
run no handlers. Looking costs less than a system call. Elsewhere the process id is compared, and a handler of
``os.register_at_fork`` wipes the word.
"""

from __future__ import annotations

import mmap
import os
import threading
from typing import Any, Final, Optional, Protocol

__all__ = ["MARK", "ProcessLock", "current"]

_WIPE_ON_FORK: Final = 18


class _Word(Protocol):
    def __getitem__(self, index: int, /) -> int: ...

    def __setitem__(self, index: int, value: int, /) -> None: ...


class _OfOneId:
    """A word that reads 0 under another process id than that under which it was written."""

    __slots__ = ("_pid", "_word")

    def __init__(self) -> None:
        self._pid, self._word = -1, 0

    def __getitem__(self, index: int, /) -> int:
        return self._word if self._pid == os.getpid() else 0

    def __setitem__(self, index: int, value: int, /) -> None:
        self._pid, self._word = os.getpid(), value


def _wiped_word() -> Optional[_Word]:
    """A word on a page of its own, which every child finds empty."""
    try:
        page = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        try:
            page.madvise(-1)
        except OSError:
            page.madvise(_WIPE_ON_FORK)
            return memoryview(page).cast("Q")
    except (AttributeError, OSError, ValueError):
        pass
    # Who takes an advice that does not exist (an emulator) takes the other one for nothing, too.
    return None


MARK: Final[_Word] = _wiped_word() or _OfOneId()
"""``MARK[0]`` is this process' mark, and 0 in one that has not looked yet. What was made under another is inherited."""

_last = 0
"""The greatest mark that any process before this one may have had."""


def current() -> int:
    """The mark of this process: 1 or more, and greater than that of each process that it descends from."""
    global _last
    mark = MARK[0]
    if not mark:
        # Recorded before it is used: a child that is born in between takes another one.
        _last += 1
        MARK[0] = _last
        mark = MARK[0]
    return mark


class ProcessLock:
    """A lock that no child waits for: each process has one of its own."""

    __slots__ = ("_locks",)

    def __init__(self) -> None:
        self._locks: dict[int, Any] = {}

    def was_held(self) -> bool:
        """Whether another thread held an ancestor's lock when this process was born."""
        mark = current()
        for inherited in [lock for of, lock in self._locks.items() if of != mark]:
            if not inherited.acquire(blocking=False):
                return True
            inherited.release()
        return False

    def get(self) -> Any:
        """The lock of this process."""
        mark = current()
        lock = self._locks.get(mark)
        # `setdefault` is one step, whatever other threads do.
        return lock if lock is not None else self._locks.setdefault(mark, threading.RLock())


def _forget_parent() -> None:
    MARK[0] = 0
    current()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parent)
