"""Which process this is. A child inherits the memory of its parent, and none of its grants.

The process id does not tell: parent and child may have the same one in two namespaces, and ids come back. So each
process marks a word, and the kernel wipes the word in every child that gets a copy of the memory
(``MADV_WIPEONFORK``, Linux 4.14), by whichever call it was made: ``os.fork``, ``_Fork`` or the bare system call, which
run no handlers. Looking costs less than a system call. Elsewhere the process id is compared, and a handler of
``os.register_at_fork`` wipes the word.
"""

from __future__ import annotations

import _thread
import atexit
import functools
import mmap
import os
import sys
import threading
import time
import types
from collections.abc import Callable
from typing import Any, Final, Optional, Protocol, TypeVar

from .errors import IdsError
from .store import StoreError

__all__ = [
    "MARK",
    "Forked",
    "ProcessLock",
    "current",
    "end_at_exit",
    "is_ending",
    "uninterrupted",
    "uninterrupted_calls",
    "wait_for",
]

T = TypeVar("T")
C = TypeVar("C", bound=type)

_WIPE_ON_FORK: Final = 18

_LOOK_S: Final = 0.1
"""How often a thread that waits for another one looks whether it is in a child, which has no other."""


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


class Forked(IdsError):
    """This process is a child that a handler of a signal forked in the middle of a call, and returned to it."""

    def __init__(self) -> None:
        message = (
            "this process was forked in the middle of the call, and a child has nothing that its parent asked for: ask "
            "again"
        )
        super().__init__("rebuilt", message, retry_after_ms=1)


def wait_for(lock: Any, seconds: float, mark: int) -> bool:
    """Waits, at most so long, until another thread gives a lock back.

    :raises Forked: in a child of the process of this mark, where no other thread is
    """
    end = time.monotonic() + seconds
    while True:
        left = end - time.monotonic()
        if lock.acquire(timeout=min(max(left, 0.0), _LOOK_S)):
            return True
        if MARK[0] != mark:
            raise Forked
        if left <= 0:
            return False


_ending = 0
"""The mark of the process whose interpreter is about to end."""


@functools.cache
def end_at_exit(wait: Callable[[], None]) -> None:
    """Has ``wait`` called when the interpreter is about to end, after what was registered later."""

    def end() -> None:
        global _ending
        _ending = current()
        wait()

    atexit.register(end)


def is_ending() -> bool:
    """Whether nothing may be begun any more that another thread would have to end."""
    return _ending == current()


def uninterrupted(act: Callable[[], T], mark: Optional[int] = None) -> T:
    """Does something that no handler of a signal interrupts, Ctrl-C above all: on the main thread, where handlers run,
    by another one. What a handler raises while the main thread waits is raised; the work goes on to its end, and what
    it brings is nobody's.

    An import of the component that is interrupted is a trap, which costs all that the component holds, and what is half
    given back is given back twice.

    :param mark: Of the process to which it belongs; this one by default.
    :raises Forked: if a handler forked meanwhile, and returned in the child
    """
    mark = current() if mark is None else mark
    if _thread.get_ident() != threading.main_thread().ident or _ending == mark or sys.is_finalizing():
        # No other thread runs any more when the interpreter ends.
        return act()
    found: list[T] = []
    failed: list[BaseException] = []
    is_over = _thread.allocate_lock()
    is_over.acquire()

    def run() -> None:
        try:
            found.append(act())
        except BaseException as error:  # noqa: BLE001, raised where it was asked for
            failed.append(error)
        finally:
            is_over.release()

    try:
        _thread.start_new_thread(run, ())
    except RuntimeError:  # no more threads
        return act()
    # A handler that forks may return in the child, where nobody gives it back.
    wait_for(is_over, float("inf"), mark)
    if MARK[0] != mark:
        raise Forked
    if failed:
        raise failed.pop()
    return found[0]


def uninterrupted_calls(made: C) -> C:
    """Has a class make itself, and do what it does in public, :func:`uninterrupted`.

    Stores wait with conditions, semaphores and drivers, all of which is Python: interrupted in the middle, these keep
    their locks, and a connection its place. Threads of the host's lose nothing by it.
    """
    for name, act in list(vars(made).items()):
        if isinstance(act, types.FunctionType) and (name == "__init__" or not name.startswith("_")):
            setattr(made, name, _uninterrupted_call(act))
    return made


def _uninterrupted_call(act: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(act)
    def call(*args: Any, **named: Any) -> Any:
        try:
            return uninterrupted(lambda: act(*args, **named))
        except Forked as error:
            raise StoreError("outcome-unknown", str(error)) from None

    return call


def _forget_parent() -> None:
    MARK[0] = 0
    current()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parent)
