"""How far the ceiling of a tag is raised, and when: by what was used in the last 5 and 30 minutes.

The rules are those of the ``unalike`` server, so that it and this program may look after one tag together: forecast the
use of the next hour, and raise the ceiling by it when what is left will not last 15 minutes, or when less than a
quarter of the newest raise is left. A raise that did not last 15 minutes is followed by one twice as large.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final, Optional

__all__ = ["NUMBERS_MAX", "Demand", "Use", "uses"]

NUMBERS_MAX: Final = 2**53 - 1
"""Numbers that Redis can keep count of: below 2^53."""

_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 60 * _MINUTE_MS
_COVER_MS: Final = 15 * _MINUTE_MS
"""What is left must last this long."""
_RECENTLY_MS: Final = 5 * _MINUTE_MS
_LONG_TERM_MS: Final = 30 * _MINUTE_MS


@dataclass(frozen=True)
class Use:
    """Numbers used over a stretch of time."""

    numbers: int = 0
    over_ms: int = 0

    def in_an_hour(self) -> int:
        """As many in an hour, if it goes on so.

        A stretch of less than a minute counts as one: the first moments of a tag say little.
        """
        over_ms = max(self.over_ms, _MINUTE_MS)
        return -(-self.numbers * _HOUR_MS // over_ms)


@dataclass(frozen=True)
class Demand:
    """What is known of a tag's use."""

    recently: Use = Use()
    """In the last 5 minutes."""
    long_term: Use = Use()
    """In the last 30 minutes."""
    raised_by: int = 0
    """How many numbers the newest raise had; 0 before the first one."""
    raised_ago_ms: Optional[int] = None
    """How long ago it was, where that is known."""

    def next_hour(self) -> int:
        """What the next hour will use: as much as the busier of the two stretches promises."""
        return max(self.recently.in_an_hour(), self.long_term.in_an_hour())

    def low(self) -> int:
        """A raise is due when fewer numbers than this are left."""
        return max(self.next_hour() * _COVER_MS // _HOUR_MS, self.raised_by // 4)

    def raise_by(self, left: int, wanted: int, least: int, most: int) -> int:
        """How many numbers a raise has now, where ``left`` are left and somebody waits for ``wanted``."""
        was_short = self.raised_by > 0 and self.raised_ago_ms is not None and self.raised_ago_ms < _COVER_MS
        jump = 2 * self.raised_by if was_short else 0
        wish = max(self.next_hour(), jump, wanted)
        return min(max(wish, least), most, max(NUMBERS_MAX - left, 1))

    def raised(self, count: int) -> Demand:
        """The same after a raise by ``count``, just now."""
        return replace(self, raised_by=count, raised_ago_ms=0)


def uses(samples: str, now_ms: int, used: int) -> tuple[Use, Use]:
    """The use of the last 5 and of the last 30 minutes.

    ``samples`` says what had been used at points of time: ``ms used;ms used;..`` in ascending order.
    """
    notes: list[tuple[int, int]] = []
    for sample in samples.split(";"):
        note = re.fullmatch(r"([0-9]{1,20}) ([0-9]{1,20})", sample)
        # A clock that went back makes the newest ones useless.
        if note is not None and int(note[1]) <= now_ms:
            notes.append((int(note[1]), int(note[2])))

    def over(window_ms: int) -> Use:
        if not notes:
            return Use()
        at_ms, before = next((note for note in reversed(notes) if now_ms - note[0] >= window_ms), notes[0])
        return Use(max(used - before, 0), now_ms - at_ms)

    return over(_RECENTLY_MS), over(_LONG_TERM_MS)
