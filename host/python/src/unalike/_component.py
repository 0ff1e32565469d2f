"""The calls of the two components, each over one instance. Types are those of ``wit/``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Union

from ._library import native
from ._values import BITS, GENE_BITS, HANDLE, KEY_ID_BITS, TEXT, U8, U32, U64, UTC_OFFSET_MINUTES
from ._values import Enum, ListOf, Option, Record, Type, Variant, lower
from .errors import IdsError, caused

if TYPE_CHECKING:
    from . import _native

__all__ = ["CoreInstance", "FormatsInstance", "Imports", "Run", "Trap"]

Arguments = tuple[tuple[str, Type], ...]

_LAYOUT: Final = Record(
    timestamp_bits=U8,
    datacenter_bits=U8,
    worker_bits=U8,
    sequence_bits=U8,
    order=Enum("worker-first", "sequence-first"),
    epoch_ms=U64,
    tick_ms=U32,
)
_SEQUENCE_OPTIONS: Final = Record(
    step=U64,
    step_min=U64,
    step_max=U64,
    grow_below_ms=U64,
    shrink_above_ms=U64,
    refill=Variant(share_consumed=U8, remaining=U64),
    prefetch=U32,
    floor=U64,
    id_max=U64,
)
_SNOWFLAKE_OPTIONS: Final = Record(
    layout=_LAYOUT,
    clock=Variant(reject=None, wait=U64, keep=U64),
    horizon_ms=U64,
    ahead_max_ms=U64,
    floor=U64,
    spread=Variant(none=None, rotating=U8, random=U8),
    seed=U64,
)
_TEXT_KIND: Final = Enum("decimal", "padded", "base36", "base62", "base32", "uuid")
_FORMAT_OPTIONS: Final = Record(
    template=TEXT,
    utc_offset_minutes=UTC_OFFSET_MINUTES,
    restart=Enum("never", "year", "month", "day"),
    bits=BITS,
    gene_bits=GENE_BITS,
    key_id_bits=KEY_ID_BITS,
    keys=ListOf(Record(id=U8, high=U64, low=U64)),
    context=TEXT,
)

_CORE_CALLS: Final[dict[str, tuple[str, str, Arguments]]] = {
    "sequence.open": ("sequences", "[static]sequence.open", (("tag", TEXT), ("options", _SEQUENCE_OPTIONS))),
    "sequence.reserve": ("sequences", "[method]sequence.reserve", (("self", HANDLE), ("now", U64), ("max", U32))),
    "sequence.status": ("sequences", "[method]sequence.status", (("self", HANDLE), ("now", U64))),
    "sequence.close": ("sequences", "[method]sequence.close", (("self", HANDLE),)),
    "ordered.open": ("sequences", "[static]ordered.open", (("tag", TEXT), ("floor", U64), ("id-max", U64))),
    "ordered.begin": ("sequences", "[method]ordered.begin", (("self", HANDLE), ("now", U64), ("count", U32))),
    "ordered.claim": ("sequences", "[method]ordered.claim", (("self", HANDLE), ("now", U64), ("round", U64))),
    "snowflake.open": ("snowflakes", "[static]snowflake.open", (("namespace", TEXT), ("options", _SNOWFLAKE_OPTIONS))),
    "snowflake.reserve": ("snowflakes", "[method]snowflake.reserve", (("self", HANDLE), ("now", U64), ("max", U32))),
    "snowflake.status": ("snowflakes", "[method]snowflake.status", (("self", HANDLE), ("now", U64))),
    "snowflake.close": ("snowflakes", "[method]snowflake.close", (("self", HANDLE),)),
}

_PARTS: Final = Record(ticks=U64, worker=U32, sequence=U32)
_WRITE: Final[Arguments] = (("self", HANDLE), ("id", U64), ("issued", U64), ("shard-key", Option(U64)))

_FORMATS_CALLS: Final[dict[str, tuple[str, str, Arguments]]] = {
    "codec.unpack": ("codec", "unpack", (("id", U64), ("layout", _LAYOUT))),
    "codec.pack": ("codec", "pack", (("parts", _PARTS), ("layout", _LAYOUT))),
    "codec.id-range": ("codec", "id-range", (("layout", _LAYOUT), ("from", U64), ("until", U64))),
    "codec.encode": ("codec", "encode", (("id", U64), ("text", _TEXT_KIND))),
    "codec.decode": ("codec", "decode", (("input", TEXT), ("text", _TEXT_KIND))),
    "format.open": ("codec", "[static]format.open", (("options", _FORMAT_OPTIONS),)),
    "format.id-max": ("codec", "[method]format.id-max", (("self", HANDLE),)),
    "format.period": ("codec", "[method]format.period", (("self", HANDLE), ("issued", U64))),
    "format.number": ("codec", "[method]format.number", _WRITE),
    "format.original": ("codec", "[method]format.original", (("self", HANDLE), ("number", U64))),
    "format.write": ("codec", "[method]format.write", _WRITE),
    "format.read": ("codec", "[method]format.read", (("self", HANDLE), ("text", TEXT))),
    "format.shape": ("codec", "[method]format.shape", (("self", HANDLE),)),
    "format.key-checks": ("codec", "[method]format.key-checks", (("self", HANDLE),)),
}

Import = Callable[..., Any]
Imports = dict[str, Import]
"""What is called for each import, by names such as ``segments.allocate``."""


class Trap(Exception):
    """The instance failed and may not be called again."""


class Run:
    """Ids that crossed in one call."""

    __slots__ = ("count", "first", "stride")

    def __init__(self, first: int, stride: int, count: int) -> None:
        self.first, self.stride, self.count = first, stride, count

    def ids(self) -> range:
        return range(self.first, self.first + self.stride * self.count, self.stride)


class _Instance:
    """An instance of a component. One thread at a time may call it."""

    def __init__(
        self, make: Callable[[], _native.Instance], calls: dict[str, tuple[str, str, Arguments]]
    ) -> None:
        try:
            self._made = make()
        except RuntimeError as error:
            what = f"the component cannot be started, which takes 16 MiB of address space, and 1 MiB of memory: {error}"
            raise caused(IdsError("component", what), error) from None
        self._arguments = {name: arguments for name, (_, _, arguments) in calls.items()}

    def call(self, name: str, *values: Any) -> Any:
        """Calls a function by its WIT name, such as ``sequence.open``; a resource comes first.

        :raises IdsError: ``argument_invalid``, and ``closed`` when the interpreter ends; the component was not called.
        :raises Trap: The instance is of no use any more.
        """
        answer = self._made.call(name, lower(self._arguments[name], values))
        if answer is NotImplemented:
            raise IdsError("closed", "no ids: this process ends, and its interpreter waits for no thread")
        return answer

    def drop(self, handle: Any) -> None:
        """Drops a resource without closing it.

        :raises Trap:
        """
        self._made.drop_resource(handle)

    def give_up(self) -> None:
        """Nobody calls it any more."""
        self._made.give_up()


def _exports(calls: dict[str, tuple[str, str, Arguments]]) -> dict[str, tuple[str, str]]:
    return {name: (interface, function) for name, (interface, function, _) in calls.items()}


_CORE_EXPORTS: Final = _exports(_CORE_CALLS)
_FORMATS_EXPORTS: Final = _exports(_FORMATS_CALLS)


class CoreInstance(_Instance):
    """An instance of the component that decides ids."""

    def __init__(self, imports: Imports) -> None:
        super().__init__(lambda: native().Instance.core(imports, _CORE_EXPORTS), _CORE_CALLS)

    def reserve(self, kind: str, handle: Any, now: int, count: int) -> Union[Run, Any]:
        """As ``sequence.reserve`` or ``snowflake.reserve``: a run, or the error."""
        answer = self.call(kind, handle, now, count)
        found = answer.get("ok")
        return answer["err"] if found is None else Run(found["first"], found["stride"], found["count"])


class FormatsInstance(_Instance):
    """An instance of the component that reads and writes ids."""

    def __init__(self) -> None:
        super().__init__(lambda: native().Instance.formats(_FORMATS_EXPORTS), _FORMATS_CALLS)
