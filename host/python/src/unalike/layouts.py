"""Named layouts: those of the systems whose ids and workers unalike takes over."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Union

from .errors import IdsError
from .store import Layout

__all__ = ["LAYOUTS", "layout_named"]

LAYOUTS: Final[Mapping[str, Layout]] = MappingProxyType(
    {
        "twitter": Layout(41, 5, 5, 12, "worker-first", 1_288_834_974_657, 1),
        "leaf": Layout(41, 0, 10, 12, "worker-first", 1_288_834_974_657, 1),
        "hutool": Layout(41, 5, 5, 12, "worker-first", 1_288_834_974_657, 1),
        "worker5": Layout(41, 0, 5, 12, "worker-first", 1_577_808_000_000, 1),
        "redis-sharded": Layout(41, 0, 12, 10, "worker-first", 0, 1),
        "baidu": Layout(28, 0, 22, 13, "worker-first", 1_463_673_600_000, 1_000),
        "sonyflake": Layout(39, 0, 16, 8, "sequence-first", 1_735_689_600_000, 10),
        "sonyflake-v1": Layout(39, 0, 16, 8, "sequence-first", 1_409_529_600_000, 10),
        "instagram": Layout(40, 0, 13, 10, "worker-first", 1_314_220_021_721, 1),
        "discord": Layout(41, 5, 5, 12, "worker-first", 1_420_070_400_000, 1),
        "mastodon": Layout(47, 0, 0, 16, "worker-first", 0, 1),
        "cosid": Layout(41, 0, 10, 12, "worker-first", 1_577_203_200_000, 1),
        "cosid-53": Layout(41, 0, 3, 9, "worker-first", 1_577_203_200_000, 1),
        "tsid": Layout(41, 0, 10, 12, "worker-first", 1_577_836_800_000, 1),
        "yitter": Layout(51, 0, 6, 6, "worker-first", 1_582_136_402_000, 1),
        "yitter-53": Layout(41, 0, 6, 6, "worker-first", 1_582_136_402_000, 1),
        "yitter-js": Layout(51, 0, 6, 6, "worker-first", 1_577_836_800_000, 1),
        "yitter-csharp": Layout(51, 0, 6, 6, "worker-first", 1_582_165_202_020, 1),
    }
)
"""The presets by name. The sources are in the list of ``unalike layouts``."""


def layout_named(layout: Union[Layout, str]) -> Layout:
    """The layout of that name, or the layout itself.

    :raises IdsError: ``layout``
    """
    if isinstance(layout, Layout):
        return layout
    found = LAYOUTS.get(layout) if isinstance(layout, str) else None
    if found is None:
        message = f"there is no layout {layout!r}: there are {', '.join(LAYOUTS)}"
        raise IdsError("layout", message)
    return found
