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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any, Final, Literal, NoReturn, Optional, Union, overload

from ._component import FormatsInstance, Trap
from ._process import ProcessLock, current, uninterrupted
from ._requests import layout_to_wit
from ._values import U64
from .errors import IdsError, argument_invalid, as_written
from .layouts import layout_named
from .lease_rules import layout_text, rfc3339, worker_max
from .store import Layout

__all__ = [
    "Format",
    "FormatKey",
    "Instant",
    "Issued",
    "KeyCheck",
    "Notation",
    "Parts",
    "Restart",
    "RestartingFormat",
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

Instant = Union[int, datetime]
"""Unix milliseconds, or a ``datetime`` with a time zone."""

_LENGTHS: Final = {"decimal": "1 to 19", "padded": 19, "base36": 13, "base62": 11, "base32": 13, "uuid": 36}


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
    found = _shared.call("codec.encode", id, notation)
    if "err" in found:
        raise argument_invalid("id", id, "a whole number from 1 to 2^63 - 1")
    text: str = found["ok"]
    return text


def decode(text: str, notation: Notation) -> int:
    """An id from text.

    :raises IdsError: ``text``, when it is none; ``argument_invalid``
    """
    found = _shared.call("codec.decode", text, notation)
    if "err" in found:
        case, figure = _case(found["err"]), _figure(found["err"])
        fault = _TEXT_FAULTS[case].format(figure=figure, notation=notation, length=_LENGTHS[notation])
        raise IdsError("text", f"{text[:64]!r} is no id in {notation}: {fault}", fault=case, figure=figure)
    id: int = found["ok"]
    return id


_TEXT_FAULTS: Final = {
    "length": "a text in {notation} has {length} characters, and this has {figure}",
    "character": "the byte at position {figure} occurs in no id of this notation",
    "leading-zero": "a decimal id has no leading zeros",
    "out-of-range": "the number is outside 1 to 2^63 - 1",
}


def unpack(id: int, layout: Union[Layout, str]) -> Parts:
    """The fields of a snowflake id.

    :raises IdsError: ``argument_invalid``, ``layout``
    """
    of = layout_named(layout)
    found = _shared.call("codec.unpack", id, layout_to_wit(of))
    if "err" in found:
        bits = of.timestamp_bits + of.datacenter_bits + of.worker_bits + of.sequence_bits
        raise argument_invalid("id", id, f"1 to {2**bits - 1}, the ids of the layout {_shown(layout)}")
    parts = found["ok"]
    return Parts(parts["ticks"], parts["worker"], parts["sequence"], of.epoch_ms + parts["ticks"] * of.tick_ms)


def pack(parts: Parts, layout: Union[Layout, str]) -> int:
    """The id of these fields.

    :raises IdsError: ``argument_invalid``, ``layout``
    """
    of = layout_named(layout)
    if not isinstance(parts, Parts):
        raise argument_invalid("parts", parts, "Parts(ticks, worker, sequence)")
    fields = {"ticks": parts.ticks, "worker": parts.worker, "sequence": parts.sequence}
    found = _shared.call("codec.pack", fields, layout_to_wit(of))
    if "err" in found:
        most = {"ticks": 2**of.timestamp_bits - 1, "worker": worker_max(of), "sequence": 2**of.sequence_bits - 1}
        for name, figure in fields.items():
            if figure > most[name]:
                raise argument_invalid(name, figure, f"0 to {most[name]} in the layout {_shown(layout)}")
        raise IdsError("argument_invalid", "all fields are 0, and there is no id 0", argument="parts", value=parts)
    id: int = found["ok"]
    return id


def id_range(layout: Union[Layout, str], from_ms: Instant, until_ms: Instant) -> tuple[int, int]:
    """The least and the greatest id whose tick overlaps the time from ``from_ms`` to before ``until_ms``.

    :raises IdsError: ``argument_invalid``, ``layout``
    """
    of = layout_named(layout)
    first, end = _unix_ms("from_ms", from_ms), _unix_ms("until_ms", until_ms)
    found = _shared.call("codec.id-range", layout_to_wit(of), first, end)
    if "err" in found:
        if first >= end:
            fault = "the span of time is empty: it must end after it begins"
        else:
            fault = f"the span of time lies before the epoch of the layout {_shown(layout)} or after its last tick"
        what = f"{fault} ({rfc3339(first)} to {rfc3339(end)})"
        raise IdsError("argument_invalid", what, argument="span", value=(first, end))
    least, greatest = found["ok"]
    return least, greatest


def _shown(layout: Union[Layout, str]) -> str:
    return layout if isinstance(layout, str) else layout_text(layout)


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)


def _unix_ms(argument: str, value: Instant) -> int:
    """:raises IdsError: ``argument_invalid``"""
    if isinstance(value, datetime):
        if value.utcoffset() is None:
            expected = "a time with a zone: datetime.now(timezone.utc), or Unix milliseconds"
            raise argument_invalid(argument, value, expected)
        value = (value - _EPOCH) // timedelta(milliseconds=1)
    expected = "Unix milliseconds, such as int(time.time() * 1000), or a datetime with a time zone, from 1970 on"
    try:
        return U64.check(value, argument)
    except IdsError:
        raise argument_invalid(argument, value, expected) from None


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


@dataclass(frozen=True, slots=True)
class KeyCheck:
    """What a store keeps of a key, to know again how it permutes. It tells nothing of the secret."""

    id: int
    """The key's number."""
    bits: int
    """The width of what it permutes: ``bits`` without ``gene_bits`` and ``key_id_bits``."""
    check: int
    """1 to 2^63 - 1, of the secret, the context and the width."""


class Format:
    """How the ids of a tag are shown: permuted under a key, joined with a gene, written into a template; and back.

    It is a pure tool, and compares nothing: :meth:`unalike.Ids.formatted` shows the ids of a tag in it, and refuses
    another format of the tag in every program.

    :param template: Text with placeholders, 128 bytes at most: exactly one of ``{id}``, ``{id:010}``, ``{id:base36}``,
        ``{id:base62}``, ``{id:base32}`` and ``{id:uuid}``; any of ``{yyyy}``, ``{yy}``, ``{MM}``, ``{dd}``, ``{HH}``,
        ``{mm}``, ``{ss}`` and ``{SSS}``, several in one as in ``{yyyyMMdd}``; ``{gene:4}``; ``{{`` and ``}}``.
    :param utc_offset_minutes: The offset of the date from UTC: -1080 to 1080.
    :param restart: When the counter starts again at 1: the template must show the period, and numbers are counted under
        the sub-key that :meth:`period` gives.
    :param bits: Width of the greatest number that is shown as the id: 1 to 63.
    :param gene_bits: The lowest bits of the number, taken from the shard key: 0 to 16.
    :param key_id_bits: Width of the key's id: 0 to 8, and 0 without keys.
    :param keys: The first writes; all of them read. Without keys, ids are shown as they are. For keys,
        :meth:`unalike.Ids.formatted` wants 20 bits at least: ``bits`` without ``gene_bits`` and ``key_id_bits``.
    :param context: What the ids belong to, such as their tag: under one key, each has its own permutation.
    :raises IdsError: ``format``, ``argument_invalid``

    With ``restart`` it is a :class:`RestartingFormat`, whose :meth:`period` is a text.

    >>> from unalike.formats import Format
    >>> orders = Format("ORD-{yyyyMMdd}-{id:06}", bits=19)
    >>> orders.write(7, issued_ms=1_700_000_000_000)
    'ORD-20231114-000007'
    >>> orders.read("ORD-20231114-000007").id
    7
    """

    __slots__ = ("_opened", "_options", "id_max", "needs_shard_key")

    _options: dict[str, Any]
    _opened: Any
    id_max: int
    """The greatest id that can be shown: the ``id_max`` for the sequence."""
    needs_shard_key: bool
    """Whether the ids carry a gene, and so a shard key must be given."""

    @overload
    def __new__(
        cls,
        template: str,
        *,
        utc_offset_minutes: int = 0,
        restart: Literal["year", "month", "day"],
        bits: int = 63,
        gene_bits: int = 0,
        key_id_bits: int = 0,
        keys: Sequence[FormatKey] = (),
        context: str = "",
    ) -> RestartingFormat: ...

    @overload
    def __new__(
        cls,
        template: str,
        *,
        utc_offset_minutes: int = 0,
        restart: Restart = "never",
        bits: int = 63,
        gene_bits: int = 0,
        key_id_bits: int = 0,
        keys: Sequence[FormatKey] = (),
        context: str = "",
    ) -> Format: ...

    def __new__(
        cls,
        template: str,
        *,
        utc_offset_minutes: int = 0,
        restart: Restart = "never",
        bits: int = 63,
        gene_bits: int = 0,
        key_id_bits: int = 0,
        keys: Sequence[FormatKey] = (),
        context: str = "",
    ) -> Format:
        made = object.__new__(RestartingFormat if cls is Format and restart != "never" else cls)
        made._options = {
            "template": template,
            "utc-offset-minutes": utc_offset_minutes,
            "restart": restart,
            "bits": bits,
            "gene-bits": gene_bits,
            "key-id-bits": key_id_bits,
            "keys": _keys(keys),
            "context": context,
        }
        made._opened = None
        made.id_max = _shared.call_format(made, "format.id-max")
        # The first id, in 1970: nothing else can be wrong with it.
        made.needs_shard_key = "err" in _shared.call_format(made, "format.write", 1, 0, None)
        return made

    def period(self, issued_ms: Instant) -> Optional[str]:
        """The period of an instant, ``2026-11-22``, ``2026-11`` or ``2026``: the sub-key that its numbers are counted
        under; ``None`` where the counter never starts again.

        :raises IdsError: ``format``, ``argument_invalid``
        """
        issued = _unix_ms("issued_ms", issued_ms)
        period: Optional[str] = _format_ok(_shared.call_format(self, "format.period", issued))
        return period

    def number(self, id: int, issued_ms: Instant, shard_key: Optional[int] = None) -> int:
        """The number that is shown for an id, in any notation.

        :raises IdsError: ``format``, ``argument_invalid``
        """
        issued = _unix_ms("issued_ms", issued_ms)
        number: int = _format_ok(_shared.call_format(self, "format.number", id, issued, shard_key))
        return number

    def original(self, number: int) -> Issued:
        """The id behind a number.

        :raises IdsError: ``format``, always where the counter starts again.
        """
        return _issued(_format_ok(_shared.call_format(self, "format.original", number)))

    def write(self, id: int, issued_ms: Instant, shard_key: Optional[int] = None) -> str:
        """An id as text.

        :param issued_ms: When it was issued, in Unix milliseconds, or as a ``datetime`` with a time zone.
        :raises IdsError: ``format``, ``argument_invalid``
        """
        issued = _unix_ms("issued_ms", issued_ms)
        text: str = _format_ok(_shared.call_format(self, "format.write", id, issued, shard_key))
        return text

    def read(self, text: str) -> Issued:
        """What a text says.

        :raises IdsError: ``format``
        """
        return _issued(_format_ok(_shared.call_format(self, "format.read", text)))

    def shape(self) -> int:
        """What a store keeps of the template, the restart and the widths, to know them again: 1 to 2^63 - 1."""
        shape: int = _shared.call_format(self, "format.shape")
        return shape

    def key_checks(self) -> list[KeyCheck]:
        """What a store keeps of each key, to know again how it permutes."""
        checks = _shared.call_format(self, "format.key-checks")
        return [KeyCheck(check["id"], check["bits"], check["check"]) for check in checks]

    def __repr__(self) -> str:
        return f"<Format {self._options['template']!r}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Format cannot be pickled: its keys are secret. Make it again where it is needed")


class RestartingFormat(Format):
    """A :class:`Format` whose counter starts again: what ``Format(.., restart="day")`` makes."""

    __slots__ = ()

    def period(self, issued_ms: Instant) -> str:
        """The period of an instant, ``2026-11-22``, ``2026-11`` or ``2026``: the sub-key that its numbers are counted
        under.

        :raises IdsError: ``format``, ``argument_invalid``
        """
        period = super().period(issued_ms)
        assert period is not None, "the template shows it"
        return period


class _Shared:
    """The instance of this process, which holds nothing but open formats: another may take its place at any time."""

    def __init__(self) -> None:
        self._lock = ProcessLock()
        self._mark = 0
        self._instance: Optional[FormatsInstance] = None
        # Never touched in a child.
        self._inherited: list[Any] = []

    def call(self, name: str, *values: Any) -> Any:
        try:
            return self._act(lambda instance: instance.call(name, *values))
        except IdsError as error:
            raise as_written(error, {"text": "notation", "input": "text"}) from error.__cause__

    def call_format(self, format: Format, name: str, *values: Any) -> Any:
        def act(instance: FormatsInstance) -> Any:
            opened = format._opened
            if opened is None or opened[0] is not instance:
                found = instance.call("format.open", format._options)
                if opened is not None:
                    # Of an instance that is gone, or of a parent's: never touched again.
                    self._inherited.append(opened)
                opened = format._opened = (instance, _opened_ok(found, format._options))
            return instance.call(name, opened[1], *values)

        try:
            return self._act(act)
        except IdsError as error:
            raise as_written(error, {}) from error.__cause__

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


def _keys(keys: Any) -> list[dict[str, int]]:
    if isinstance(keys, FormatKey) or not isinstance(keys, Iterable):
        raise IdsError("argument_invalid", "keys must be a list of FormatKeys: keys=[key]", argument="keys")
    return [_key(key) for key in keys]


def _key(key: Any) -> dict[str, int]:
    """No message shows a secret."""
    if not isinstance(key, FormatKey):
        what = f"one of the keys is of the type {type(key).__name__}, it must be a FormatKey"
        raise IdsError("argument_invalid", what, argument="keys")
    secret, fault = key.secret, None
    if isinstance(secret, str):
        fault = "is a text, it must be 16 bytes: bytes.fromhex(..)"
    elif not isinstance(secret, bytes):
        fault = f"is of the type {type(secret).__name__}, it must be 16 bytes"
    elif len(secret) != 16:
        fault = f"has {len(secret)} bytes, it must have 16"
    if fault is not None:
        raise IdsError("argument_invalid", f"the secret of the key {key.id} {fault}", argument="keys")
    return {"id": key.id, "high": int.from_bytes(secret[:8], "big"), "low": int.from_bytes(secret[8:], "big")}


def _issued(found: dict[str, Any]) -> Issued:
    span = found["span"]
    return Issued(found["id"], found["number"], found["gene"], found["key-id"], span and (span[0], span[1]))


def _case(error: Any) -> str:
    return error if isinstance(error, str) else str(next(iter(error)))


def _figure(error: Any) -> Any:
    return None if isinstance(error, str) else next(iter(error.values()))


_TEMPLATE_FAULTS: Final = {
    "brace": "a brace without its other one; write {{ or }} for the brace itself",
    "placeholder": (
        "there are {id}, {id:010}, {id:base36}, {id:base62}, {id:base32}, {id:uuid}, {gene:4} with 1 to 16 bits, and "
        "{yyyy}, {yy}, {MM}, {dd}, {HH}, {mm}, {ss}, {SSS} or several of these in one, as {yyyyMMdd}; "
        "{MM} is the month; {mm} is the minute, and beside a date needs {HH}"
    ),
    "character": "a control character; leave it out",
    "twice": "stands there twice: leave one of them out",
    "id-missing": "without an id, {id} for example, all would be alike",
    "too-long": "it has more than 128 bytes; shorten it",
}

_OPEN_FAULTS: Final = {
    "restart": (
        "the counter starts again, so the template must show the period: {yyyy} for a year, {yyyyMM} for a month, "
        "{yyyyMMdd} for a day"
    ),
    "bits": (
        "the bits do not fit: 1 to 63 in all (bits), of which a gene takes 16 at most (gene_bits) and a key's id 8 "
        "(key_id_bits, and none without keys), and something must be left for the id"
    ),
    "utc-offset": "the distance from UTC is more than 18 hours: give -1080 to 1080 minutes",
}

_FORMAT_FAULTS: Final = {
    "id": "the id is outside 1 to {0}, the ids that the format can show",
    "shard-key-missing": "the ids carry a shard gene: give the shard key that it is taken from",
    "shard-key-unwanted": "a shard key was given, and the ids carry no gene: leave it out",
    "time": "the date of issue lies after the year 9999: check the clock",
    "length": "no text of this format is {0} bytes long",
    "character": "the byte at position {0} is another one in every text of this format",
    "date": "there is no such date, or its figures contradict each other at position {0}",
    "number": "the number at position {0} belongs to no id of this format",
    "key": "it was written with the key {0}, which is not among those that are known: add it",
}


def _opened_ok(found: dict[str, Any], options: dict[str, Any]) -> Any:
    """What was opened.

    :raises IdsError: ``format``, in the words of the Rust library.
    """
    if "ok" in found:
        return found["ok"]
    case, figure = _case(found["err"]), _figure(found["err"])
    if case == "template":
        message = _fault_of_template(options, *figure)
    elif case == "key" and figure and not options["key-id-bits"]:
        message = f"the key {figure} has a number, and there are no bits for it: set key_id_bits, 1 to 8"
    elif case == "key":
        rule = "it is 1 to 2^key_id_bits - 1, and 0 without such bits"
        message = f"the key {figure} is given twice, or its number does not fit: {rule}"
    elif case == "digits":
        what = f"the template has {figure} digits for the id, and the number may need more"
        message = f"{what}: give it more, or fewer bits"
    else:
        message = _OPEN_FAULTS[case]
    raise IdsError("format", message, fault=case, figure=figure)


def _fault_of_template(options: dict[str, Any], at: int, fault: str) -> str:
    placeholder = options["template"].encode()[at:].decode(errors="replace").partition("}")[0][:32] + "}"
    what = _TEMPLATE_FAULTS[fault]
    if fault == "placeholder":
        what = f"there is no placeholder {placeholder}; {what}"
    elif fault == "twice" and placeholder.startswith("{id"):
        what = f"{{id}} {what}"
    elif fault == "twice":
        is_in_id = options["gene-bits"] > 0
        what = "the gene is in the id already (gene_bits): leave one of them out" if is_in_id else f"{{gene}} {what}"
    return f"the template is wrong at byte {at}: {what}"


def _format_ok(found: dict[str, Any]) -> Any:
    if "ok" in found:
        return found["ok"]
    raise format_error(_case(found["err"]), _figure(found["err"]))


def format_error(fault: str, figure: Any = None) -> IdsError:
    return IdsError("format", _FORMAT_FAULTS[fault].format(figure), fault=fault, figure=figure)
