"""The thread that renews leases while nobody asks for ids.

It looks after the snowflakes of one :class:`~unalike.Ids` in one process: a look has the component ask for what is due,
and the answer is taken in as soon as it comes. With the next call it could come after the end of the lease that it
prolongs.
"""

from __future__ import annotations

import _thread
import atexit
import logging
import threading
import weakref
from collections.abc import Callable
from typing import Final

from ._process import MARK

__all__ = ["Renewal"]

log: Final = logging.getLogger("unalike")

_EVERY_MIN_S: Final = 0.05
_EVERY_MAX_S: Final = 1.0
_END_MAX_S: Final = 1.0
"""For how long whoever ends it waits for the look that is under way, which waits for no store."""


class Renewal:
    """The thread, which runs from :meth:`begin` to :meth:`end`, or until nobody has the ``Ids`` any more."""

    def __init__(self, mark: int, look: Callable[[Callable[[], None]], bool]) -> None:
        """``look`` looks once, has the function that it is given called with answers, and says whether to go on."""
        self.mark = mark
        self._look = look
        self._condition = threading.Condition(threading.Lock())
        self._every_s = _EVERY_MAX_S
        self._is_running = self._is_woken = self._is_ended = False

    def begin(self, horizon_ms: int) -> bool:
        """Has leases with this horizon renewed, too. Answers whether a thread does."""
        with self._condition:
            if self._is_ended:
                return True
            # A lease is due when a third of it has passed.
            self._every_s = max(min(horizon_ms / 6_000, self._every_s), _EVERY_MIN_S)
            if self._is_running:
                self._wake()
                return True
        try:
            # Not a Thread: another thread may have held the locks of that module when this process was forked by a call
            # that the interpreter does not hear of.
            _thread.start_new_thread(self._run, ())
        except RuntimeError:  # no more threads, or the interpreter is about to end
            return False
        return True

    def wake(self) -> None:
        """Has it look at once."""
        with self._condition:
            self._wake()

    def end(self) -> None:
        """Ends the thread for good."""
        with self._condition:
            self._is_ended = True
            self._wake()
            self._condition.wait_for(lambda: not self._is_running, _END_MAX_S)

    def _wake(self) -> None:
        self._is_woken = True
        self._condition.notify_all()

    def _run(self) -> None:
        with self._condition:
            if self._is_running or self._is_ended:
                return
            self._is_running = True
        _running.add(self)
        try:
            while self._wait():
                try:
                    if not self._look(self.wake):
                        return
                except Exception as error:  # noqa: BLE001, a clock that was given may fail now and then
                    log.warning("leases were not looked after: %r", error)
        finally:
            _running.discard(self)
            with self._condition:
                self._is_running = False
                self._condition.notify_all()

    def _wait(self) -> bool:
        """Answers whether to look again."""
        with self._condition:
            self._condition.wait_for(lambda: self._is_woken or self._is_ended, self._every_s)
            self._is_woken = False
            return not self._is_ended


_running: Final[weakref.WeakSet[Renewal]] = weakref.WeakSet()


def _end_all() -> None:
    """Before the interpreter ends, which stops threads in the middle of a call into the component."""
    for renewal in list(_running):
        if renewal.mark == MARK[0]:
            renewal.end()


atexit.register(_end_all)
