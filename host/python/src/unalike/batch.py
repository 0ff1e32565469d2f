"""Ids that were taken together."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

__all__ = ["Batch"]


class Batch:
    """Ids that one caller took together, kept as the runs that they came in: a million ids take no list.

    They ascend. Iterate over it as often as you like; ``len`` tells how many there are; ``list(batch)`` makes a list.

    >>> from unalike import Ids
    >>> from unalike.memory import MemoryStore
    >>> with Ids(segments=MemoryStore()) as ids:
    ...     batch = ids.sequence("order").take(3)
    >>> list(batch), len(batch), batch.runs
    ([1, 2, 3], 3, (range(1, 4),))
    """

    __slots__ = ("_count", "_runs")

    def __init__(self, runs: Sequence[range]) -> None:
        self._runs = tuple(runs)
        self._count = sum(map(len, self._runs))

    @property
    def runs(self) -> tuple[range, ...]:
        """The runs, each a ``range``."""
        return self._runs

    def __iter__(self) -> Iterator[int]:
        return itertools.chain.from_iterable(self._runs)

    def __len__(self) -> int:
        return self._count

    def __contains__(self, id: object) -> bool:
        return any(id in run for run in self._runs)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Batch):
            return NotImplemented
        return self._count == other._count and all(mine == other_s for mine, other_s in zip(self, other))

    def __hash__(self) -> int:
        return hash((next(iter(self), None), self._count))

    def __repr__(self) -> str:
        shown = ", ".join(_shown(run) for run in self._runs[:3])
        return f"<Batch of {self._count}: {shown}{', ..' if len(self._runs) > 3 else ''}>"


def _shown(run: range) -> str:
    return str(run[0]) if len(run) == 1 else f"{run[0]}..{run[-1]}"
