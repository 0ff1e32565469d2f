"""What the components' functions take: the types that stand in ``wit/``, with what a wrong value is told.

A record is a dictionary under its WIT names, an enum a text, a variant its name or ``{name: value}``, an option ``None``
or the value.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Final, Optional, Protocol

from .errors import argument_invalid

__all__ = ["lower"]


class Type(Protocol):
    """A type of the WIT."""

    def check(self, value: Any, name: str) -> Any:
        """The value as the component's library takes it.

        :raises IdsError: ``argument_invalid``, with the name of the argument or field.
        """
        ...


class Number:
    """A whole number within bounds."""

    def __init__(self, least: int, greatest: int, said: Optional[str] = None) -> None:
        self._least, self._greatest = least, greatest
        self._said = said or f"a whole number from {least} to {greatest}"

    def check(self, value: Any, name: str) -> int:
        if type(value) is int and self._least <= value <= self._greatest:
            return value
        # Other types that are whole numbers, such as those of numpy; a truth value is none.
        if not isinstance(value, bool):
            try:
                number = operator.index(value)
            except Exception:  # noqa: BLE001, whatever a type of somebody else's raises
                raise argument_invalid(name, value, self._said) from None
            if self._least <= number <= self._greatest:
                return number
        raise argument_invalid(name, value, self._said)


U8: Final = Number(0, 2**8 - 1)
U32: Final = Number(0, 2**32 - 1)
U64: Final = Number(0, 2**64 - 1)
COUNT: Final = Number(1, 2**32 - 1, "a whole number from 1 to 2^32 - 1")
"""How many ids are asked for."""

# Of a format. What is beyond the bounds that these name and within those of the integer, the component refuses.
UTC_OFFSET_MINUTES: Final = Number(-(2**15), 2**15 - 1, "a whole number from -1080 to 1080")
BITS: Final = Number(0, 2**8 - 1, "a whole number from 1 to 63")
GENE_BITS: Final = Number(0, 2**8 - 1, "a whole number from 0 to 16")
KEY_ID_BITS: Final = Number(0, 2**8 - 1, "a whole number from 0 to 8")


_CHARACTERS_MAX: Final = 1 << 20


class _Text:
    def check(self, value: Any, name: str) -> str:
        if not isinstance(value, str) or len(value) > _CHARACTERS_MAX:
            raise argument_invalid(name, value, "a text of no more than 2^20 characters")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise argument_invalid(name, value, "valid Unicode") from None
        return value


TEXT: Final = _Text()


class Enum:
    """One of some names."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def check(self, value: Any, name: str) -> str:
        if not isinstance(value, str) or value not in self._names:
            raise argument_invalid(name, value, f"one of {', '.join(self._names)}")
        return value


class Record:
    """Some fields, all of them."""

    def __init__(self, **fields: Type) -> None:
        self._fields = {name.rstrip("_").replace("_", "-"): of for name, of in fields.items()}

    def check(self, value: Any, name: str) -> dict[str, Any]:
        if not isinstance(value, dict) or value.keys() != self._fields.keys():
            raise argument_invalid(name, value, f"a record of {', '.join(self._fields)}")
        return {field: of.check(value[field], field) for field, of in self._fields.items()}


class Variant:
    """One of some names, perhaps with a value."""

    def __init__(self, **cases: Optional[Type]) -> None:
        self._cases = {name.replace("_", "-"): of for name, of in cases.items()}

    def check(self, value: Any, name: str) -> Any:
        case, inner = value, None
        if isinstance(value, dict) and len(value) == 1:
            ((case, inner),) = value.items()
        is_case = isinstance(case, str) and case in self._cases
        of = self._cases[case] if is_case else None
        if not is_case or (of is None) != isinstance(value, str):
            raise argument_invalid(name, value, f"one of {', '.join(self._cases)}")
        return value if of is None else {case: of.check(inner, case)}


class Option:
    """A value, or ``None``."""

    def __init__(self, of: Type) -> None:
        self._of = of

    def check(self, value: Any, name: str) -> Any:
        return None if value is None else self._of.check(value, name)


class ListOf:
    """Any number of values."""

    def __init__(self, of: Type) -> None:
        self._of = of

    def check(self, value: Any, name: str) -> list[Any]:
        if not isinstance(value, (list, tuple)):
            raise argument_invalid(name, value, "a list")
        return [self._of.check(inner, name) for inner in value]


class _Handle:
    def check(self, value: Any, name: str) -> Any:
        return value


HANDLE: Final = _Handle()
"""A resource, lent for the call."""


def lower(types: Sequence[tuple[str, Type]], values: Sequence[Any]) -> tuple[Any, ...]:
    """The arguments of a call."""
    return tuple(of.check(value, name) for (name, of), value in zip(types, values))
