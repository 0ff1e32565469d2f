"""The thread that renews leases while nobody asks for ids.

It looks after the snowflakes of one :class:`~unalike.Ids` in one process: a look has the component ask for what is due,
and the answer is taken in as soon as it comes. With the next call it could come after the end of the lease that it
prolongs.
"""

from __future__ import annotations

import _thread
import atexit
import logging
import time
import weakref
from collections.abc import Callable
from typing import Final

from ._process import MARK
from ._requests import Signal

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
        self._signal = Signal()
        self._everies = {_EVERY_MAX_S}
        # Whoever starts the thread takes this, and the thread brings it back.
        self._places = [None]
        self._is_ended = False

    def begin(self, horizon_ms: int) -> bool:
        """Has leases with this horizon renewed, too. Answers whether a thread does."""
        # A lease is due when a third of it has passed.
        self._everies.add(max(min(horizon_ms / 6_000, _EVERY_MAX_S), _EVERY_MIN_S))
        if self._is_ended:
            return True
        try:
            self._places.pop()
        except IndexError:  # it runs
            self.wake()
            return True
        try:
            # Not a Thread: another thread may have held the locks of that module when this process was forked by a call
            # that the interpreter does not hear of.
            _thread.start_new_thread(self._run, ())
        except RuntimeError:  # no more threads, or the interpreter is about to end
            self._places.append(None)
            return False
        return True

    def wake(self) -> None:
        """Has it look at once."""
        self._signal.wake()

    def end(self) -> None:
        """Ends the thread for good."""
        self._is_ended = True
        deadline = time.monotonic() + _END_MAX_S
        self._signal.wake()
        while not self._places:
            seen, left = self._signal.version, deadline - time.monotonic()
            if left <= 0:
                return
            if not self._places:
                self._signal.wait(seen, left, self.mark)

    def _run(self) -> None:
        _running.add(self)
        try:
            seen = self._signal.version
            while not self._is_ended:
                self._signal.wait(seen, min(self._everies), self.mark)
                seen = self._signal.version
                if self._is_ended:
                    return
                try:
                    if not self._look(self.wake):
                        return
                except Exception as error:  # noqa: BLE001, a clock that was given may fail now and then
                    log.warning("leases were not looked after: %r", error)
        finally:
            _running.discard(self)
            self._places.append(None)
            self._signal.wake()


_running: Final[weakref.WeakSet[Renewal]] = weakref.WeakSet()


def _end_all() -> None:
    """Before the interpreter ends, which stops threads in the middle of a call into the component."""
    for renewal in list(_running):
        if renewal.mark == MARK[0]:
            renewal.end()


atexit.register(_end_all)
