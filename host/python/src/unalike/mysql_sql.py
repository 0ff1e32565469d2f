"""What is sent to a database and checked of it.

It is read from the file that the Rust adapter is tested against, so that all hosts send the same.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, NamedTuple, Sequence, Union

__all__ = ["SQL", "Argument", "Shape", "bound", "hexadecimal"]


class Shape(NamedTuple):
    """A table, and what grants rest on."""

    name: str
    ddl: str
    key: Sequence[str]
    """The columns of a unique key: these and no other."""
    columns: Sequence[Sequence[str]]
    """Each with what it must hold as it is given: ``name``, ``bytes``, ``whole`` or ``id``."""


_FILE: Final = Path(__file__).parent / "sql" / "mysql" / "shared.json"
"""The very file of the Rust adapter, which the build copies next to this module."""

SQL: Final[dict[str, Any]] = json.loads(_FILE.read_text(encoding="utf-8"))

STORE_TABLE: Final = Shape(**SQL["tables"]["store"])
TAG_TABLE: Final = Shape(**SQL["tables"]["tag"])
LEASE_TABLES: Final = tuple(Shape(**table) for table in SQL["tables"]["leases"])

Argument = Union[int, bytes, str, None]
"""An argument of a statement: a whole number of 64 bits, bytes, text, or nothing."""


def bound(statement: str, args: Sequence[Argument]) -> str:
    """The statement with its arguments in the places of its marks.

    The types are those that a prepared statement has: an unsigned number, binary, text. Nothing that an argument holds
    can end its literal, in whatever SQL mode.
    """
    parts = statement.split("?")
    if len(parts) != len(args) + 1:
        raise ValueError(f"{len(args)} arguments were given to a statement with {len(parts) - 1} marks")
    return parts[0] + "".join(_literal(arg) + part for arg, part in zip(args, parts[1:]))


def _literal(value: Argument) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, int):
        if not 0 <= value < 2**64:
            raise ValueError(f"{value} does not fit 64 bits")
        return f"CAST({value:d} AS UNSIGNED)"
    return f"_utf8mb4 {hexadecimal(value)}" if isinstance(value, str) else hexadecimal(value)


def hexadecimal(value: Union[str, bytes]) -> str:
    """Text or bytes as a constant that nothing can break out of."""
    data = value.encode() if isinstance(value, str) else value
    return f"X'{data.hex()}'"
