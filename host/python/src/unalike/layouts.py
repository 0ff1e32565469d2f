"""Named layouts: those of the systems whose ids and workers unalike takes over."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from types import MappingProxyType
from typing import Final, Literal, Optional, Union

from .errors import IdsError
from .lease_rules import fault_of_layout, layout_text
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
        "shardingsphere": Layout(41, 0, 10, 12, "worker-first", 1_477_929_600_000, 1),
        "seata-1.4.1": Layout(41, 0, 10, 12, "worker-first", 1_588_435_200_000, 1),
    }
)
"""The presets by name. The sources are in the list of ``unalike layouts``."""


def layout_named(layout: Union[Layout, str]) -> Layout:
    """The layout of that name or that text, or the layout itself.

    :raises IdsError: ``layout``
    """
    if isinstance(layout, str):
        named = LAYOUTS.get(layout)
        if named is not None:
            return named
        if "/" not in layout:
            raise IdsError("layout", f"there is no layout {layout!r}: there are {', '.join(LAYOUTS)}")
        layout = _read(layout)
    if not isinstance(layout, Layout):
        what = f"the layout is of the type {type(layout).__name__}"
        raise IdsError("layout", f"{what}: give a Layout, or the name of one, such as 'twitter'")
    fault = fault_of_layout(layout)
    if fault is not None:
        raise IdsError("layout", f"the layout {layout_text(layout)} is not valid: {fault}")
    return layout


def _read(text: str) -> Layout:
    """A layout as the Rust library prints and reads it, such as ``41/5+5/12 epoch 2024-01-01 tick 1 ms``."""

    def wrong(what: str) -> IdsError:
        return IdsError("layout", f"{text[:100]!r} is no layout: {what}")

    first, *words = text.split()
    widths = re.fullmatch(r"(\d{1,3})/(?:(\d{1,3})\+)?(\d{1,3})/(?:(\d{1,3})\+)?(\d{1,3})", first, re.ASCII)
    if widths is None:
        raise wrong(_WIDTHS)
    rest = re.findall(r"(sequence-first)|epoch (\S+)|tick (\d{1,10}) ?(m?s)\b|(\S+)", " ".join(words), re.ASCII)
    order: Literal["worker-first", "sequence-first"] = "worker-first"
    epoch_ms, tick_ms, seen = None, 1, set()
    for is_reversed, epoch, tick, unit, other in rest:
        word = "sequence-first" if is_reversed else "epoch" if epoch else "tick" if tick else other
        if other == "tick":
            raise wrong("the tick must be a whole number of ms or s, such as tick 10 ms")
        if other == "epoch":
            raise wrong(f"the epoch cannot be read: {_TIME}")
        if other or word in seen:
            raise wrong(f"the word {word!r} is unknown or there twice: {_WORDS}")
        seen.add(word)
        if is_reversed:
            order = "sequence-first"
        elif epoch:
            epoch_ms = _instant(epoch)
            if epoch_ms is None:
                raise wrong(f"the epoch cannot be read: {_TIME}")
        else:
            tick_ms = int(tick) * (1_000 if unit == "s" else 1)
    timestamp, above, upper, below, lower = widths.groups()
    if epoch_ms is None:
        raise wrong("the epoch is missing: epoch 2024-01-01, say")
    if order == "worker-first":
        datacenter, worker, sequence, none = above, upper, lower, below
    else:
        datacenter, worker, sequence, none = below, lower, upper, above
    if none is not None:
        raise wrong(_WIDTHS)
    return Layout(int(timestamp), int(datacenter or 0), int(worker), int(sequence), order, epoch_ms, tick_ms)


_WIDTHS: Final = (
    "it begins with its widths in bits, TIME/WORKER/SEQUENCE or TIME/DATACENTER+WORKER/SEQUENCE, such as 41/10/12 or "
    "41/5+5/12"
)
_WORDS: Final = "after the widths come epoch TIME, and perhaps tick NUMBER ms (or s) and sequence-first"
_TIME: Final = (
    "a time is written as a date (2026-01-31, at 00:00 UTC), as RFC 3339 (2026-01-31T08:00:00Z, or with +08:00 in "
    "place of Z), or as Unix milliseconds"
)


def _instant(text: str) -> Optional[int]:
    """An instant in Unix milliseconds: these in decimal, a date, or RFC 3339 with milliseconds at most."""
    if re.fullmatch(r"\d{1,20}", text, re.ASCII):
        return int(text)
    date, time = r"(\d{4})-(\d\d)-(\d\d)", r"(\d\d):(\d\d):(\d\d)(?:\.(\d{1,3})0*)?"
    parts = re.fullmatch(rf"{date}(?:[Tt]{time}(?:[Zz]|([+-])(\d\d):([0-5]\d)))?", text, re.ASCII)
    if parts is None:
        return None
    year, month, day, hour, minute, second = (int(part or 0) for part in parts.groups()[:6])
    fraction, sign, hours, minutes = parts.groups()[6:]
    offset = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
    try:
        local = datetime(year, month, day, hour, minute, second, tzinfo=timezone.utc)
    except ValueError:
        return None
    epoch = datetime(1970, 1, 1, tzinfo=timezone.utc)
    unix = local - epoch - (-offset if sign == "-" else offset)
    ms = unix // timedelta(milliseconds=1) + int((fraction or "").ljust(3, "0"))
    return ms if ms >= 0 and offset < timedelta(days=1) else None
