"""What is done with ids after they were issued: texts, fields, templates. No store is needed.

>>> from unalike import formats
>>> formats.encode(1_000, "base62"), formats.decode("000000000G8", "base62")
('000000000G8', 1000)
>>> parts = formats.unpack(1169786042799259000, "leaf")
>>> parts.worker, parts.sequence, parts.unix_ms
(39, 3448, 1567733700834)
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NoReturn, Optional, Union

from ._component import FormatsInstance, Trap
from ._process import ProcessLock, current, uninterrupted
from ._requests import layout_to_wit
from .errors import IdsError, argument_invalid
from .layouts import layout_named
from .store import Layout

__all__ = [
    "Format",
    "FormatKey",
    "Issued",
    "Notation",
    "Parts",
    "Restart",
    "decode",
    "encode",
    "id_range",
    "pack",
    "unpack",
]

Notation = Literal["decimal", "padded", "base36", "base62", "base32", "uuid"]
"""How a number is written.

``decimal``: 1 to 19 digits. The others have one width each, so that texts sort as their ids do. ``padded``: 19 digits.
``base36``: 13 characters. ``base62``: 11. ``base32``: Crockford's, 13 characters, the text of a TSID. ``uuid``: a UUID
of version 8, 36 characters.
"""

Restart = Literal["never", "year", "month", "day"]
"""When the counter of a tag starts again at 1."""

_LAYOUT_FAULT: Final = "widths that sum to 63 at most, with 1 bit of time, and a tick of 1 ms or more"


@dataclass(frozen=True, slots=True)
class Parts:
    """The fields of a snowflake id."""

    ticks: int
    """Ticks since the layout's epoch."""
    worker: int
    """Datacenter and worker as one number."""
    sequence: int
    unix_ms: int = 0
    """When the tick begins, in Unix milliseconds; :func:`pack` does not look at it."""


def encode(id: int, notation: Notation) -> str:
    """An id as text.

    :raises IdsError: ``argument_invalid``
    """
    text: str = _ok(_shared.call("codec.encode", id, notation), id=id)
    return text


def decode(text: str, notation: Notation) -> int:
    """An id from text.

    :raises IdsError: ``text``, when it is none; ``argument_invalid``
    """
    found = _shared.call("codec.decode", text, notation)
    if "err" in found:
        case, figure = _case(found["err"]), _figure(found["err"])
        message = f"{text[:64]!r} is no id in {notation}: {_TEXT_FAULTS[case].format(figure)}"
        raise IdsError("text", message, fault=case, figure=figure)
    id: int = found["ok"]
    return id


_TEXT_FAULTS: Final = {
    "length": "it has {} bytes, and no id has that length",
    "character": "the byte at position {} occurs in no id",
    "leading-zero": "it has leading zeros",
    "out-of-range": "the number is not within 1 to 2^63 - 1",
}


def unpack(id: int, layout: Union[Layout, str]) -> Parts:
    """The fields of a snowflake id.

    :raises IdsError: ``argument_invalid``, ``layout``
    """
    of = layout_named(layout)
    found = _ok(_shared.call("codec.unpack", id, layout_to_wit(of)), id=id, layout=of)
    return Parts(found["ticks"], found["worker"], found["sequence"], of.epoch_ms + found["ticks"] * of.tick_ms)


def pack(parts: Parts, layout: Union[Layout, str]) -> int:
    """The id of these fields.

    :raises IdsError: ``argument_invalid``, ``layout``
    """
    of = layout_named(layout)
    fields = {"ticks": parts.ticks, "worker": parts.worker, "sequence": parts.sequence}
    id: int = _ok(_shared.call("codec.pack", fields, layout_to_wit(of)), id=parts, layout=of)
    return id


def id_range(layout: Union[Layout, str], from_ms: int, until_ms: int) -> tuple[int, int]:
    """The least and the greatest id whose tick overlaps the time from ``from_ms`` to before ``until_ms``.

    :raises IdsError: ``argument_invalid``, ``layout``
    """
    of = layout_named(layout)
    span = f"{from_ms} to {until_ms}"
    least, greatest = _ok(_shared.call("codec.id-range", layout_to_wit(of), from_ms, until_ms), span=span, layout=of)
    return least, greatest


@dataclass(frozen=True, slots=True)
class FormatKey:
    """A secret of 128 random bits, under which ids are permuted, and its number."""

    secret: bytes = field(repr=False)
    """16 random bytes: keep them, or what was shown cannot be read."""
    id: int = 0
    """Written above each number that the key permuted: 1 to 2^``key_id_bits`` - 1, or 0 without bits for it."""

    @staticmethod
    def generate(id: int = 0) -> FormatKey:
        """A fresh one."""
        return FormatKey(secrets.token_bytes(16), id)


@dataclass(frozen=True, slots=True)
class Issued:
    """What a text says."""

    id: int
    """The id that the generator gave."""
    number: int
    """The number that is shown."""
    gene: Optional[int]
    """The low bits of the shard key."""
    key_id: Optional[int]
    """The key that was used; ``None`` for an id that was written before the format had keys."""
    span: Optional[tuple[int, int]]
    """The time of the date in the text, in Unix milliseconds; its end is not included."""


class Format:
    """How the ids of a tag are shown: permuted under a key, joined with a gene, written into a template; and back.

    :param template: Text with placeholders, 128 bytes at most: exactly one of ``{id}``, ``{id:010}``, ``{id:base36}``,
        ``{id:base62}``, ``{id:base32}`` and ``{id:uuid}``; any of ``{yyyy}``, ``{yy}``, ``{MM}``, ``{dd}``, ``{HH}``,
        ``{mm}``, ``{ss}`` and ``{SSS}``, several in one as in ``{yyyyMMdd}``; ``{gene:4}``; ``{{`` and ``}}``.
    :param utc_offset_minutes: The offset of the date from UTC: -1080 to 1080.
    :param restart: When the counter starts again at 1: the template must show the period, and numbers are counted under
        the sub-key that :meth:`period` gives.
    :param bits: Width of the greatest number that is shown as the id: 1 to 63.
    :param gene_bits: The lowest bits of the number, taken from the shard key: 0 to 16.
    :param key_id_bits: Width of the key's id: 0 to 8, and 0 without keys.
    :param keys: The first writes; all of them read. Without keys, ids are shown as they are.
    :param context: What the ids belong to, such as their tag: under one key, each has its own permutation.
    :raises IdsError: ``format``, ``argument_invalid``

    >>> from unalike.formats import Format
    >>> orders = Format("ORD-{yyyyMMdd}-{id:06}", bits=19)
    >>> orders.write(7, issued_ms=1_700_000_000_000)
    'ORD-20231114-000007'
    >>> orders.read("ORD-20231114-000007").id
    7
    """

    __slots__ = ("_opened", "_options", "id_max")

    def __init__(
        self,
        template: str,
        *,
        utc_offset_minutes: int = 0,
        restart: Restart = "never",
        bits: int = 63,
        gene_bits: int = 0,
        key_id_bits: int = 0,
        keys: Sequence[FormatKey] = (),
        context: str = "",
    ) -> None:
        self._options = {
            "template": template,
            "utc-offset-minutes": utc_offset_minutes,
            "restart": restart,
            "bits": bits,
            "gene-bits": gene_bits,
            "key-id-bits": key_id_bits,
            "keys": [_key(key) for key in keys],
            "context": context,
        }
        self._opened: Any = None
        self.id_max: Final[int] = _shared.call_format(self, "format.id-max")
        """The greatest id that can be shown: the ``id_max`` for the sequence."""

    def period(self, issued_ms: int) -> Optional[str]:
        """The period of an instant, ``2026-11-22``, ``2026-11`` or ``2026``: the sub-key that its numbers are counted
        under; ``None`` where the counter never starts again.

        :raises IdsError: ``format``
        """
        period: Optional[str] = _format_ok(_shared.call_format(self, "format.period", issued_ms))
        return period

    def number(self, id: int, issued_ms: int, shard_key: Optional[int] = None) -> int:
        """The number that is shown for an id, in any notation.

        :raises IdsError: ``format``
        """
        number: int = _format_ok(_shared.call_format(self, "format.number", id, issued_ms, shard_key))
        return number

    def original(self, number: int) -> Issued:
        """The id behind a number.

        :raises IdsError: ``format``, always where the counter starts again.
        """
        return _issued(_format_ok(_shared.call_format(self, "format.original", number)))

    def write(self, id: int, issued_ms: int, shard_key: Optional[int] = None) -> str:
        """An id as text.

        :raises IdsError: ``format``
        """
        text: str = _format_ok(_shared.call_format(self, "format.write", id, issued_ms, shard_key))
        return text

    def read(self, text: str) -> Issued:
        """What a text says.

        :raises IdsError: ``format``
        """
        return _issued(_format_ok(_shared.call_format(self, "format.read", text)))

    def __repr__(self) -> str:
        return f"<Format {self._options['template']!r}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Format cannot be pickled: its keys are secret. Make it again where it is needed")


class _Shared:
    """The instance of this process, which holds nothing but open formats: another may take its place at any time."""

    def __init__(self) -> None:
        self._lock = ProcessLock()
        self._mark = 0
        self._instance: Optional[FormatsInstance] = None
        # Never touched in a child.
        self._inherited: list[Any] = []

    def call(self, name: str, *values: Any) -> Any:
        return self._act(lambda instance: instance.call(name, *values))

    def call_format(self, format: Format, name: str, *values: Any) -> Any:
        def act(instance: FormatsInstance) -> Any:
            opened = format._opened
            if opened is None or opened[0] is not instance:
                found = instance.call("format.open", format._options)
                if opened is not None:
                    # Of an instance that is gone, or of a parent's: never touched again.
                    self._inherited.append(opened)
                opened = format._opened = (instance, _format_ok(found))
            return instance.call(name, opened[1], *values)

        return self._act(act)

    def _act(self, act: Any) -> Any:
        while True:
            made = None
            if self._instance is None or self._mark != current():
                # Before the lock: whoever has it waits for nothing, and a finalizer in here may want it.
                made = uninterrupted(FormatsInstance)
            with self._lock.get():
                if made is not None:
                    self._take(made)
                instance = self._instance
                if instance is not None and self._mark == current():
                    return self._called(act, instance)

    def _take(self, made: FormatsInstance) -> None:
        mark = current()
        if self._instance is None or self._mark != mark:
            if self._mark != mark:
                self._inherited.append(self._instance)
            self._instance, self._mark = made, mark

    def _called(self, act: Any, instance: FormatsInstance) -> Any:
        try:
            return act(instance)
        except Trap as trap:
            self._instance = None
            cause = trap.__cause__
            if cause is not None and not isinstance(cause, Exception):
                raise cause from None
            raise IdsError("component", f"the component for formats failed: {trap}") from trap


_shared: Final = _Shared()


def _key(key: FormatKey) -> dict[str, int]:
    if not isinstance(key, FormatKey) or not isinstance(key.secret, bytes) or len(key.secret) != 16:
        raise IdsError("argument_invalid", "a key is a FormatKey with 16 random bytes", argument="keys")
    return {"id": key.id, "high": int.from_bytes(key.secret[:8], "big"), "low": int.from_bytes(key.secret[8:], "big")}


def _issued(found: dict[str, Any]) -> Issued:
    span = found["span"]
    return Issued(found["id"], found["number"], found["gene"], found["key-id"], span and (span[0], span[1]))


def _case(error: Any) -> str:
    return error if isinstance(error, str) else str(next(iter(error)))


def _figure(error: Any) -> Any:
    return None if isinstance(error, str) else next(iter(error.values()))


def _ok(found: dict[str, Any], **values: Any) -> Any:
    """What was answered.

    :raises IdsError: For the component's ``invalid-argument``, with the value that it was.
    """
    if "ok" in found:
        return found["ok"]
    argument = str(_figure(found["err"]))
    value = values.get(argument)
    if argument == "layout":
        raise IdsError("layout", f"the layout {value} is not valid: a layout has {_LAYOUT_FAULT}")
    expected = {
        "id": "from 1 to 2^63 - 1, and each field must fit its width",
        "span": "a span of time that is not empty, and in which the layout has ids",
    }
    raise argument_invalid(argument, value, expected.get(argument, "valid"))


_FORMAT_FAULTS: Final = {
    "template": "the template is wrong at byte {0[0]}: {0[1]}",
    "restart": "the counter starts again, and the template does not show when",
    "bits": "the widths leave no bits for the id, or are out of range",
    "key": "the key id {0} is too wide, occurs twice, is 0 where there are bits for it, or is of no known key",
    "digits": "the template has {0} digits for the id, too few for the greatest number",
    "utc-offset": "an offset from UTC of more than 18 hours",
    "id": "the id is 0 or greater than {0}, the greatest that can be shown",
    "shard-key-missing": "the format has a gene, and no shard key was given",
    "shard-key-unwanted": "a shard key was given, and the format has no gene",
    "time": "the date is after the year 9999",
    "length": "no text of the format has {0} bytes",
    "character": "all texts of the format have another byte at position {0}",
    "date": "the date does not exist, or contradicts itself at position {0}",
    "number": "the number at position {0} shows no id",
}


def _format_ok(found: dict[str, Any]) -> Any:
    if "ok" in found:
        return found["ok"]
    case, figure = _case(found["err"]), _figure(found["err"])
    raise IdsError("format", _FORMAT_FAULTS[case].format(figure), fault=case, figure=figure)
