"""Values of the component model, by ctypes.

wasmtime's own conversion asks the component for its types at each call, which takes some 100 us. The types of this
component never change, so they stand here (as in ``wit/``), and a value on its way out describes itself. In Python a
record is a dictionary under its WIT names, an enum a string, a variant its name or ``{name: value}``, a result
``{"ok": value}`` or ``{"err": value}``, an option ``None`` or the value, a tuple or list a list.

Every number is checked before it goes in: ctypes would cut what does not fit.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Final, Optional, Protocol

from wasmtime import _ffi as ffi
from wasmtime.component import ResourceAny

from .errors import argument_invalid

__all__ = ["Value", "lift", "lower"]

Value: Any = ffi.wasmtime_component_val_t

_BOOL: Final = ffi.WASMTIME_COMPONENT_BOOL.value
_STRING: Final = ffi.WASMTIME_COMPONENT_STRING.value
_LIST: Final = ffi.WASMTIME_COMPONENT_LIST.value
_RECORD: Final = ffi.WASMTIME_COMPONENT_RECORD.value
_TUPLE: Final = ffi.WASMTIME_COMPONENT_TUPLE.value
_VARIANT: Final = ffi.WASMTIME_COMPONENT_VARIANT.value
_ENUM: Final = ffi.WASMTIME_COMPONENT_ENUM.value
_OPTION: Final = ffi.WASMTIME_COMPONENT_OPTION.value
_RESULT: Final = ffi.WASMTIME_COMPONENT_RESULT.value
_RESOURCE: Final = ffi.WASMTIME_COMPONENT_RESOURCE.value

_NUMBERS: Final = {
    ffi.WASMTIME_COMPONENT_U8.value: "u8",
    ffi.WASMTIME_COMPONENT_U16.value: "u16",
    ffi.WASMTIME_COMPONENT_U32.value: "u32",
    ffi.WASMTIME_COMPONENT_U64.value: "u64",
    ffi.WASMTIME_COMPONENT_S16.value: "s16",
    ffi.WASMTIME_COMPONENT_S32.value: "s32",
    ffi.WASMTIME_COMPONENT_S64.value: "s64",
}


class Type(Protocol):
    """A type of the WIT."""

    def put(self, into: Any, value: Any, kept: list[Any], name: str) -> None:
        """Writes a value of this type. Its memory stays Python's: ``kept`` must live as long as it is used.

        :raises IdsError: ``argument_invalid``, with the name of the argument or field.
        """
        ...


class Number:
    """A whole number of so many bits."""

    def __init__(self, kind: Any, field: str, least: int, greatest: int, said: Optional[str] = None) -> None:
        self._kind, self._field, self._least, self._greatest = kind.value, field, least, greatest
        self._said = said or f"a whole number from {least} to {greatest}"

    def check(self, value: Any, name: str) -> int:
        """The number, if it is one that fits."""
        if type(value) is int and self._least <= value <= self._greatest:
            return value
        # Other types that are whole numbers, such as those of numpy; a truth value is none.
        if not isinstance(value, bool):
            try:
                number = value.__index__()
            except (AttributeError, TypeError):
                raise argument_invalid(name, value, self._said) from None
            if self._least <= number <= self._greatest:
                return int(number)
        raise argument_invalid(name, value, self._said)

    def put(self, into: Any, value: Any, kept: list[Any], name: str) -> None:
        setattr(into.of, self._field, self.check(value, name))
        into.kind = self._kind


U8: Final = Number(ffi.WASMTIME_COMPONENT_U8, "u8", 0, 2**8 - 1)
U32: Final = Number(ffi.WASMTIME_COMPONENT_U32, "u32", 0, 2**32 - 1)
U64: Final = Number(ffi.WASMTIME_COMPONENT_U64, "u64", 0, 2**64 - 1)
COUNT: Final = Number(ffi.WASMTIME_COMPONENT_U32, "u32", 1, 2**32 - 1, "a whole number from 1 to 2^32 - 1")
"""How many ids are asked for."""

# Of a format. What is beyond the bounds that these name and within those of the integer, the component refuses.
UTC_OFFSET_MINUTES: Final = Number(
    ffi.WASMTIME_COMPONENT_S16, "s16", -(2**15), 2**15 - 1, "a whole number from -1080 to 1080"
)
BITS: Final = Number(ffi.WASMTIME_COMPONENT_U8, "u8", 0, 2**8 - 1, "a whole number from 1 to 63")
GENE_BITS: Final = Number(ffi.WASMTIME_COMPONENT_U8, "u8", 0, 2**8 - 1, "a whole number from 0 to 16")
KEY_ID_BITS: Final = Number(ffi.WASMTIME_COMPONENT_U8, "u8", 0, 2**8 - 1, "a whole number from 0 to 8")


def _set_name(into: Any, text: bytes, kept: list[Any]) -> None:
    buffer = ctypes.create_string_buffer(text, len(text) + 1)
    kept.append(buffer)
    into.size = len(text)
    into.data = ctypes.cast(buffer, ctypes.POINTER(ffi.wasm_byte_t))


class _Text:
    def put(self, into: Any, value: Any, kept: list[Any], name: str) -> None:
        if not isinstance(value, str):
            raise argument_invalid(name, value, "a text")
        try:
            encoded = value.encode()
        except UnicodeEncodeError:
            raise argument_invalid(name, value, "valid Unicode") from None
        _set_name(into.of.string, encoded, kept)
        into.kind = _STRING


TEXT: Final = _Text()


class Enum:
    """One of some names."""

    def __init__(self, *names: str) -> None:
        self._names = {name: name.encode() for name in names}

    def put(self, into: Any, value: Any, kept: list[Any], name: str) -> None:
        encoded = self._names.get(value) if isinstance(value, str) else None
        if encoded is None:
            raise argument_invalid(name, value, f"one of {', '.join(self._names)}")
        _set_name(into.of.enumeration, encoded, kept)
        into.kind = _ENUM


class Record:
    """Some fields, all of them."""

    def __init__(self, **fields: Type) -> None:
        self._fields = {name.rstrip("_").replace("_", "-"): of for name, of in fields.items()}
        self._names = {name: name.encode() for name in self._fields}

    def put(self, into: Any, value: Any, kept: list[Any], name: str) -> None:
        if not isinstance(value, dict) or value.keys() != self._fields.keys():
            raise argument_invalid(name, value, f"a record of {', '.join(self._fields)}")
        entries = (ffi.wasmtime_component_valrecord_entry_t * len(self._fields))()
        kept.append(entries)
        for entry, (field, of) in zip(entries, self._fields.items()):
            _set_name(entry.name, self._names[field], kept)
            of.put(entry.val, value[field], kept, field)
        into.of.record.size = len(self._fields)
        into.of.record.data = entries
        into.kind = _RECORD


class Variant:
    """One of some names, perhaps with a value."""

    def __init__(self, **cases: Optional[Type]) -> None:
        self._cases = {name.replace("_", "-"): of for name, of in cases.items()}

    def put(self, into: Any, value: Any, kept: list[Any], name: str) -> None:
        case, inner = value, None
        if isinstance(value, dict) and len(value) == 1:
            ((case, inner),) = value.items()
        is_case = isinstance(case, str) and case in self._cases
        if not is_case or (self._cases[case] is None) != isinstance(value, str):
            raise argument_invalid(name, value, f"one of {', '.join(self._cases)}")
        of = self._cases[case]
        if of is not None:
            place = Value()
            kept.append(place)
            of.put(place, inner, kept, case)
            into.of.variant.val = ctypes.pointer(place)
        _set_name(into.of.variant.discriminant, case.encode(), kept)
        into.kind = _VARIANT


class Option:
    """A value, or ``None``."""

    def __init__(self, of: Type) -> None:
        self._of = of

    def put(self, into: Any, value: Any, kept: list[Any], name: str) -> None:
        if value is not None:
            place = Value()
            kept.append(place)
            self._of.put(place, value, kept, name)
            into.of.option = ctypes.pointer(place)
        into.kind = _OPTION


class Result:
    """``{"ok": value}`` or ``{"err": value}``."""

    def __init__(self, ok: Type, err: Type) -> None:
        self._cases = {"ok": ok, "err": err}

    def put(self, into: Any, value: Any, kept: list[Any], name: str) -> None:
        ((case, inner),) = value.items()
        place = Value()
        kept.append(place)
        self._cases[case].put(place, inner, kept, name)
        into.of.result.is_ok = case == "ok"
        into.of.result.val = ctypes.pointer(place)
        into.kind = _RESULT


class ListOf:
    """Any number of values."""

    def __init__(self, of: Type) -> None:
        self._of = of

    def put(self, into: Any, value: Any, kept: list[Any], name: str) -> None:
        if not isinstance(value, (list, tuple)):
            raise argument_invalid(name, value, "a list")
        places = (Value * len(value))()
        kept.append(places)
        for place, inner in zip(places, value):
            self._of.put(place, inner, kept, name)
        into.of.list.size = len(value)
        into.of.list.data = places
        into.kind = _LIST


class _Handle:
    def put(self, into: Any, value: ResourceAny, kept: list[Any], name: str) -> None:
        kept.append(value)
        into.of.resource = value.ptr()
        into.kind = _RESOURCE


HANDLE: Final = _Handle()
"""A resource, lent for the call."""


def lower(types: Sequence[tuple[str, Type]], values: Sequence[Any], kept: list[Any]) -> Any:
    """The arguments of a call, which live as long as ``kept``."""
    places = (Value * len(types))()
    kept.append(places)
    for place, (name, of), value in zip(places, types, values):
        of.put(place, value, kept, name)
    return places


def lift(value: Any) -> Any:
    """The value in Python. A resource is taken out of it; everything else still belongs to ``value``."""
    kind, of = value.kind, value.of
    number = _NUMBERS.get(kind)
    if number is not None:
        return getattr(of, number)
    if kind == _RESULT:
        inner = of.result.val
        return {"ok" if of.result.is_ok else "err": lift(inner.contents) if inner else None}
    if kind == _RECORD:
        record = of.record
        entries = record.data
        return {_text(entries[at].name): lift(entries[at].val) for at in range(record.size)}
    if kind == _ENUM:
        return _text(of.enumeration)
    if kind == _VARIANT:
        case, inner = _text(of.variant.discriminant), of.variant.val
        return {case: lift(inner.contents)} if inner else case
    if kind == _OPTION:
        return lift(of.option.contents) if of.option else None
    if kind == _STRING:
        return _text(of.string)
    if kind == _TUPLE or kind == _LIST:
        items = of.tuple if kind == _TUPLE else of.list
        return [lift(items.data[at]) for at in range(items.size)]
    if kind == _RESOURCE:
        return ResourceAny._from_ptr(ffi.take_pointer(of, "resource"))
    if kind == _BOOL:
        return of.boolean
    raise TypeError(f"a value of the unknown kind {kind}")


def _text(name: Any) -> str:
    return ctypes.string_at(name.data, name.size).decode() if name.size else ""
