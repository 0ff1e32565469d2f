"""Ids as people see them: permuted under a key, with a shard gene, in a template beside the date of issue.

A :class:`~unalike.formats.Format` says how, and is a pure function; what is decided here is *when* an id was issued,
and what it is counted under. One reading of the clock per call decides both the date in its texts and the period that
its numbers are counted under, so that they cannot disagree: whatever the clocks of two hosts show around midnight, and
if one of them goes back over it, a number comes once per period, and its text shows that period.

The store keeps what the format of a tag was first. Of two programs that begin at once with different formats, one is
refused.
"""

from __future__ import annotations

import time
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Callable, Final, NoReturn, Optional, Union

from ._process import MARK, Forked, current
from ._requests import Steps, waited
from ._values import COUNT, U64
from .batch import Batch
from .errors import IdsError, argument_invalid
from .formats import Format, Issued, format_error
from .lease_rules import layout_text, tick_start_ms
from .sequence import Sequence, refused_to_pickle, sub_name
from .snowflake import Snowflake
from .store import FormatOwner, FormatPart, KeyPart, Layout, SegmentStore, StoreError, bind_in, shown, validate_binding

if TYPE_CHECKING:
    from .ids import Ids

__all__ = ["Formatted"]

Parts = tuple[tuple[FormatPart, int], ...]
"""What a store keeps of a format, part by part: the shape is the first."""

_PERMUTED_BITS_MIN: Final = 20
"""A permutation of fewer bits hides little: a table of all that was seen is soon a table of all."""


@dataclass(frozen=True, slots=True)
class Periods:
    """A tag whose counter starts again: each period is a sub-key of it."""

    tag: str
    sub: Optional[str]
    given: dict[str, Any]
    """What its sequences are opened with."""

    def name(self, format: Format, now_ms: int) -> str:
        """The name of the period in which an instant lies.

        :raises IdsError: ``name_invalid``, ``format``
        """
        # A period holds no @, so that neither two sub-keys nor two periods ever share a name.
        return sub_name(self.tag, f"{self.sub or ''}@{format.period(now_ms)}")


class Formatted:
    """The ids of a tag or of a snowflake, as a :class:`~unalike.formats.Format` shows them: what
    :meth:`unalike.Ids.formatted` answers. Any number of threads may share it. In a forked child it goes on with numbers
    of its own.

    >>> from unalike import Ids
    >>> from unalike.formats import Format
    >>> from unalike.memory import MemoryStore
    >>> daily = Format("ORD-{yyyyMMdd}-{id:06}-{gene:4}", utc_offset_minutes=8 * 60, restart="day")
    >>> ids = Ids(segments=MemoryStore(), clock=lambda: 1_795_348_800_000)
    >>> orders = ids.formatted("order", daily)
    >>> buyer = 123_456_789
    >>> orders.next(buyer)
    'ORD-20261122-000001-05'
    >>> orders.take(2, buyer)
    ['ORD-20261122-000002-05', 'ORD-20261122-000003-05']
    >>> orders.read("ORD-20261122-000003-05").id
    3
    >>> ids.close()
    """

    __slots__ = ("_format", "_ids", "_name", "_source")

    def __init__(self, ids: Ids, name: str, format: Format, source: Union[Sequence, Periods, Snowflake]) -> None:
        self._ids, self._name, self._format, self._source = ids, name, format, source

    @property
    def name(self) -> str:
        """The tag or the namespace."""
        return self._name

    @property
    def format(self) -> Format:
        """How they are shown."""
        return self._format

    def next(self, shard_key: Optional[int] = None) -> str:
        """The next id as text. Waits as :meth:`unalike.Sequence.next`.

        :param shard_key: Given if the format carries a gene, and only then.
        :raises IdsError: ``format`` for a shard key that is missing or not wanted, which costs no id; and others
        """
        while True:
            mark = current()
            texts = self._texts(1, shard_key)
            # Looked at last of all, as in Sequence.next.
            if texts and MARK[0] == mark:
                return texts[0]

    def take(self, count: int, shard_key: Optional[int] = None) -> list[str]:
        """The next ``count`` ids as texts, 1 to 2^32 - 1, all or none. They share the shard key, and the period.

        :raises IdsError:
        """
        while True:
            mark = current()
            texts = self._texts(count, shard_key)
            # Looked at last of all, as in Sequence.next.
            if texts and MARK[0] == mark:
                return texts

    def next_number(self, shard_key: Optional[int] = None) -> int:
        """The number that is shown for the next id, for callers that write it themselves.

        :raises IdsError: ``format_misfit`` where the counter starts again, and as :meth:`next`
        """
        self._check_numbers()
        while True:
            mark = current()
            numbers = self._numbers(1, shard_key)
            # Looked at last of all, as in Sequence.next.
            if numbers and MARK[0] == mark:
                return numbers[0]

    def take_numbers(self, count: int, shard_key: Optional[int] = None) -> list[int]:
        """The numbers that are shown for the next ``count`` ids, 1 to 2^32 - 1, all or none. They share the shard key.

        :raises IdsError: as :meth:`next_number`
        """
        # Before ids are taken that would be lost.
        self._check_numbers()
        while True:
            mark = current()
            numbers = self._numbers(count, shard_key)
            # Looked at last of all, as in Sequence.next.
            if numbers and MARK[0] == mark:
                return numbers

    def read(self, text: str) -> Issued:
        """What a text says. The time that a snowflake's id was issued at is that of its tick.

        :raises IdsError: ``format``
        """
        issued = self._format.read(text)
        return _issued_by(self._source.layout, issued) if isinstance(self._source, Snowflake) else issued

    def __repr__(self) -> str:
        return f"<Formatted {self._name!r}, {self._format._options['template']!r}>"

    def __reduce__(self) -> NoReturn:
        raise refused_to_pickle("Formatted")

    def _texts(self, count: int, shard_key: Optional[int]) -> list[str]:
        """None in a child, which has numbers of its own."""
        try:
            return self._written(*self._taken(count, shard_key), shard_key)
        except Forked:
            return []

    def _numbers(self, count: int, shard_key: Optional[int]) -> list[int]:
        """None in a child, which has numbers of its own."""
        try:
            return self._numbered(*self._taken(count, shard_key), shard_key)
        except Forked:
            return []

    def _taken(self, count: int, shard_key: Optional[int]) -> tuple[Batch, int]:
        """Ids, and the reading of the clock that decides their date and their period.

        :raises Forked: in a child
        """
        counted = self._checked(count, shard_key)
        began, now_ms = time.monotonic(), self._ids._clock()
        source = waited(self._opened(now_ms))
        batch: Batch = source._now().waiting(counted, self._left(began)).run()
        return batch, now_ms

    def _opened(self, now_ms: int) -> Steps[Union[Sequence, Snowflake]]:
        """What the ids of an instant are taken from. The first call of a period looks its row up."""
        source = self._source
        if not isinstance(source, Periods):
            return source
        return (yield from self._ids._open(source.name(self._format, now_ms), **source.given))

    def _left(self, began: float) -> float:
        """For how many seconds a call may still wait."""
        return self._ids.wait_max - (time.monotonic() - began)

    def _checked(self, count: int, shard_key: Optional[int]) -> int:
        """The count. What would be refused afterwards is refused before an id is taken."""
        needed = self._format.needs_shard_key
        if shard_key is None and needed:
            raise format_error("shard-key-missing")
        if shard_key is not None and not needed:
            raise format_error("shard-key-unwanted")
        if shard_key is not None:
            U64.check(shard_key, "shard_key")
        return COUNT.check(count, "count")

    def _check_numbers(self) -> None:
        if isinstance(self._source, Periods):
            what = "its numbers start again in each period, so that only whole texts are unique"
            raise _misfit(self._name, "numbers_repeat", f"{what}, and no numbers are given")

    def _written(self, ids: Batch, now_ms: int, shard_key: Optional[int]) -> list[str]:
        write, issued_ms = self._format.write, self._issued_ms(now_ms)
        return [write(id, issued_ms(id), shard_key) for id in ids]

    def _numbered(self, ids: Batch, now_ms: int, shard_key: Optional[int]) -> list[int]:
        number, issued_ms = self._format.number, self._issued_ms(now_ms)
        return [number(id, issued_ms(id), shard_key) for id in ids]

    def _issued_ms(self, now_ms: int) -> Callable[[int], int]:
        """When an id was issued: all at one instant, or, of a snowflake, each in its own tick."""
        source = self._source
        if not isinstance(source, Snowflake):
            return lambda id: now_ms
        layout = source.layout
        return lambda id: _tick_ms(layout, id)


def parts_of(format: Format) -> Parts:
    """What a store keeps of it."""
    keys = [(KeyPart(key.id, key.bits), key.check) for key in format.key_checks()]
    return (("shape", format.shape()), *keys)


def check_format(store: SegmentStore, owner: FormatOwner, parts: Parts) -> Parts:
    """Compares a format with what is bound to its owner, and answers what is to be bound of it. What the store does not
    keep is taken for the same.

    :raises StoreError: ``format-bound``, and any error of the connection
    """
    validate_binding(owner, "shape", None)
    looks = [(part, number, bind_in(store, owner, part, None)) for part, number in parts]
    _refuse(owner, [part for part, number, bound in looks if bound is not None and bound != number])
    unbound = tuple((part, number) for part, number, bound in looks if bound is None)
    # It binds nothing new, but a store that is a server hears in which format the tag is shown.
    bind_format(store, owner, tuple(one for one in parts[:1] if one not in unbound))
    return unbound


def bind_format(store: SegmentStore, owner: FormatOwner, parts: Parts) -> None:
    """Binds what is not bound yet, before the first id is shown.

    :raises StoreError: ``format-bound`` when somebody else bound another format meanwhile; any error of the connection
    """
    for part, number in parts:
        bound = bind_in(store, owner, part, number)
        # Nothing more is bound of a format that is refused: its keys beside another shape would refuse everybody.
        _refuse(owner, [part] if bound is not None and bound != number else [])


def _refuse(owner: FormatOwner, differing: SequenceOf[FormatPart]) -> None:
    if not differing:
        return
    what = f"{owner} is bound to another format in the store, and two ids can look the same"
    do = "Use the format from before, or another name"
    more = f"`{owner.command}`, with this format in its --config and with the same --store, says what can repeat"
    raise StoreError("format-bound", f"{what}: {'; '.join(map(_difference, differing))}. {do}; {more}")


def _difference(part: FormatPart) -> str:
    if not isinstance(part, KeyPart):
        return "its template, restart, or a width is another one"
    return f"the key{f' {part.id}' if part.id else ''} has another secret or context"


def layout_shown(namespace: str, layout: Layout, format: Format) -> Layout:
    """The layout of a snowflake whose ids a format shows: a gene takes the lowest bits of the sequence.

    :raises IdsError: ``format_misfit``, where the format cannot show every id of it, or shows one as another.
    """
    gene_bits = format._options["gene-bits"]
    if gene_bits:
        if layout.order != "worker-first" or layout.sequence_bits < gene_bits:
            what = "are taken from the layout's sequence, which must have as many and stand last"
            raise _misfit(namespace, "gene", f"{gene_bits} bits for a gene {what}", gene_bits=gene_bits)
        layout = replace(layout, sequence_bits=layout.sequence_bits - gene_bits)
    if format._options["restart"] != "never":
        raise _misfit(namespace, "restart", "a snowflake has no counter that could start again")
    layout_max, format_max = _id_max(layout), format.id_max
    if layout_max > format_max:
        what = f"ids of the layout reach {layout_max}, and the format shows none above {format_max}"
        figures = {"layout_max": layout_max, "format_max": format_max}
        raise _misfit(namespace, "width", f"{what}: give it more bits or digits", **figures)
    return layout


def check_given(format: Format) -> None:
    """:raises IdsError: ``argument_invalid``; ``format`` where its keys hide nothing"""
    if not isinstance(format, Format):
        raise argument_invalid("format", format, "a Format: Format('ORD-{id}'), say")
    bits, gene_bits, key_id_bits = (format._options[name] for name in ("bits", "gene-bits", "key-id-bits"))
    left = bits - gene_bits - key_id_bits
    if format._options["keys"] and left < _PERMUTED_BITS_MIN:
        taken = f"of {bits} bits, gene_bits takes {gene_bits} and key_id_bits {key_id_bits}"
        message = f"a key for {left} bits hides nothing: {taken}, and {_PERMUTED_BITS_MIN} at least must be left"
        raise IdsError("format", message, fault="bits", figure=left)


def _misfit(name: str, misfit: str, what: str, **figures: Any) -> IdsError:
    message = f"the format of {shown(name)} does not fit: {what}"
    return IdsError("format_misfit", message, name=name, misfit=misfit, **figures)


def _issued_by(layout: Layout, issued: Issued) -> Issued:
    """What was read of a snowflake's id, with the tick of its layout for when it was issued.

    :raises IdsError: ``format``
    """
    if issued.id > _id_max(layout):
        what = f"{issued.id} is no id of the layout {layout_text(layout)}"
        raise IdsError("format", what, fault="layout", figure=issued.id)
    start_ms = _tick_ms(layout, issued.id)
    if issued.span is not None and not issued.span[0] <= start_ms < issued.span[1]:
        raise IdsError("format", "the date in the text is not that of its id", fault="date", figure=None)
    return replace(issued, span=(start_ms, start_ms + layout.tick_ms))


def _id_max(layout: Layout) -> int:
    bits = layout.timestamp_bits + layout.datacenter_bits + layout.worker_bits + layout.sequence_bits
    return int(2**bits) - 1


def _tick_ms(layout: Layout, id: int) -> int:
    """When the tick of an id begins, in Unix milliseconds."""
    return tick_start_ms(layout, id >> (layout.datacenter_bits + layout.worker_bits + layout.sequence_bits))
