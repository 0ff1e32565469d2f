"""What a request for a lease must be, and how layouts and instants are written for people.

The rules of leases are the stores': the Rust host, and the server, apply them. ``tests/vectors/leases.json`` holds what
they answer.

Instants and durations are 0 to 2^64 - 1, in milliseconds unless a name says otherwise.
"""

from __future__ import annotations

import json
import unicodedata
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal, Optional, Union

from .store import Layout, LeaseAcquire, LeaseExtend, StoreError

__all__ = ["DEFAULT_LEASE_LIMITS", "LeaseLimits"]

_U32_MAX: Final = 2**32 - 1
_U64_MAX: Final = 2**64 - 1


@dataclass(frozen=True, slots=True)
class LeaseLimits:
    """What a lease store allows its holders."""

    max_horizon_ms: int = 600_000
    """How far ahead of the store's clock a lease may reach: 1 ms to 366 days.

    It becomes a constant of each namespace when that is first used; later limits do not change it.
    """
    max_skew_ms: int = 10_000
    """How far a holder's clock may be from the store's."""


DEFAULT_LEASE_LIMITS: Final = LeaseLimits()
"""Ten minutes ahead, and clocks within 10 s of each other."""


def fault_of_layout(layout: Layout) -> Optional[str]:
    """Why this is no layout; ``None`` if it is one."""
    widths = (layout.timestamp_bits, layout.datacenter_bits, layout.worker_bits, layout.sequence_bits)
    if not all(_is_in(width, 0, 255) for width in widths):
        return "a width is no whole number of bits"
    if sum(widths) > 63:
        return f"the fields sum to {sum(widths)} bits, ids have 63 at most"
    if layout.timestamp_bits == 0 or layout.datacenter_bits + layout.worker_bits > 31 or layout.sequence_bits > 31:
        rule = "timestamp 1 to 63 bits, datacenter and worker together 31 at most, sequence 31 at most"
        return f"a field is too wide or missing: {rule}"
    if layout.order not in ("worker-first", "sequence-first"):
        return f"the order is {layout.order!r}, it must be 'worker-first' or 'sequence-first'"
    if not _is_in(layout.tick_ms, 0, _U32_MAX) or not _is_in(layout.epoch_ms, 0, _U64_MAX):
        return "the tick must be a whole number of 32 bits, and the epoch one of 64"
    if layout.tick_ms == 0:
        return "the tick is 0 ms, it must be 1 ms at least"
    if layout.epoch_ms + (layout.tick_ms << layout.timestamp_bits) > _U64_MAX:
        return "the layout's last tick ends beyond the range of 64-bit milliseconds"
    return None


def layout_text(layout: Layout) -> str:
    """A layout for people: the widths in the order of the bits, then epoch and tick.

    As ``41/5+5/12 epoch 1288834974657 tick 1 ms`` or ``39/8/16 sequence-first epoch 1735689600000 tick 10 ms``.
    Different layouts are written differently.
    """
    worker = f"{layout.datacenter_bits}+{layout.worker_bits}" if layout.datacenter_bits else f"{layout.worker_bits}"
    if layout.order == "sequence-first":
        widths = f"{layout.timestamp_bits}/{layout.sequence_bits}/{worker} sequence-first"
    else:
        widths = f"{layout.timestamp_bits}/{worker}/{layout.sequence_bits}"
    return f"{widths} epoch {layout.epoch_ms} tick {layout.tick_ms} ms"


def worker_max(layout: Layout) -> int:
    """The greatest worker id, datacenter included."""
    return int(2 ** (layout.datacenter_bits + layout.worker_bits)) - 1


def tick_start_ms(layout: Layout, tick: int) -> int:
    """When this tick begins, in Unix milliseconds; 2^64 - 1 where that cannot be said in 64 bits."""
    return _saturated(layout.epoch_ms + tick * layout.tick_ms)


def validate_acquire(acquire: LeaseAcquire) -> None:
    """Checks a request for a worker id.

    :raises StoreError: ``refused`` when a name is not well formed, the preferred worker does not fit the layout, the
        horizon is shorter than a tick, or a number is none of 64 bits.
    """
    validate_name("namespace", acquire.namespace)
    if acquire.holder != "":
        validate_name("holder", acquire.holder)
    _validate_layout(acquire.layout)
    preferred = acquire.preferred_worker
    if preferred is not None and not _is_in(preferred, 0, worker_max(acquire.layout)):
        workers = f"the workers of the layout {layout_text(acquire.layout)} are 0 to {worker_max(acquire.layout)}"
        raise StoreError("refused", f"worker {preferred} is preferred, but {workers}")
    _validate_times(acquire)


def validate_extend(extend: LeaseExtend) -> None:
    """Checks a request to prolong a lease.

    :raises StoreError: ``refused`` as :func:`validate_acquire`.
    """
    validate_name("namespace", extend.namespace)
    _validate_layout(extend.layout)
    _validate_times(extend)


def validate_name(what: Literal["namespace", "holder"], name: str) -> None:
    """Checks the name of a namespace or of a holder.

    :raises StoreError: ``refused``
    """
    is_name = (
        isinstance(name, str)
        and name != ""
        and not {unicodedata.category(character) for character in name} & {"Cc", "Cs"}
        and len(name.encode()) <= 128
    )
    if not is_name:
        rule = "a name is 1 to 128 bytes of UTF-8 without control characters"
        raise StoreError("refused", f"the {what} {quoted(str(name)[:32])} is not valid: {rule}")


def _validate_layout(layout: Layout) -> None:
    fault = fault_of_layout(layout)
    if fault is not None:
        raise StoreError("refused", f"the layout is not valid: {fault}")


def _validate_times(request: Union[LeaseAcquire, LeaseExtend]) -> None:
    for what, value in (("clock", request.now_ms), ("horizon", request.horizon_ms)):
        if not _is_in(value, 0, _U64_MAX):
            raise StoreError("refused", f"the {what} is {value!r} ms, it must be a whole number of 0 to 2^64 - 1")
    if request.horizon_ms < request.layout.tick_ms:
        why = f"shorter than a tick of the layout {layout_text(request.layout)}: no lease would hold one"
        raise StoreError("refused", f"a horizon of {request.horizon_ms} ms was asked for, {why}")


def rfc3339(unix_ms: int) -> str:
    """An instant in Unix milliseconds, for people: RFC 3339 in UTC, with milliseconds."""
    if unix_ms > 253_402_300_799_999:
        return "after the year 9999"
    return (datetime(1970, 1, 1) + timedelta(milliseconds=unix_ms)).isoformat(timespec="milliseconds") + "Z"


def quoted(name: str) -> str:
    """A name for people, in double quotes, as Rust and Node write it."""
    return json.dumps(name, ensure_ascii=False)


def _saturated(value: int) -> int:
    return min(value, _U64_MAX)


def _is_in(value: object, least: int, greatest: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= greatest
