"""Formats as a program sees them; the vectors have the figures."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable
from typing import Any, cast, get_args

import pytest
from test_fork import Child, by_fork
from test_ids import raised
from unalike import LAYOUTS, Ids, IdsError, Layout, formats
from unalike.formats import Format, FormatKey, KeyCheck, Notation, Parts, RestartingFormat
from unalike.layouts import layout_named
from unalike.lease_rules import layout_text
from unalike.memory import MemoryStore

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize("notation", get_args(Notation))
def test_notations(notation: Any) -> None:
    roman: Any = "roman"
    for id in (1, 9, 62, 2**53, 2**63 - 1):
        assert formats.decode(formats.encode(id, notation), notation) == id
    for id in (0, -1, 2**63, 2**64, True, 1.0, "1"):
        with raised("argument_invalid", argument="id"):
            formats.encode(id, notation)  # type: ignore[arg-type]
    with raised("text"):
        formats.decode("", notation)
    with raised("argument_invalid", argument="text"):
        formats.decode("\ud800", notation)
    for call in (lambda: formats.encode(1, roman), lambda: formats.decode("1", roman)):
        with raised("argument_invalid", argument="notation") as error:
            call()
        assert str(error.value).startswith("notation is 'roman', it must be one of decimal, ")


def test_fields() -> None:
    id = formats.pack(Parts(1_000, 33, 7), "twitter")
    assert formats.unpack(id, "twitter") == Parts(1_000, 33, 7, 1_288_834_974_657 + 1_000)
    least, greatest = formats.id_range("twitter", NOW_MS, NOW_MS + 1)
    assert formats.unpack(least, "twitter").unix_ms == formats.unpack(greatest, "twitter").unix_ms == NOW_MS
    assert greatest - least == 2**22 - 1
    with raised("argument_invalid", argument="span"):
        formats.id_range("twitter", NOW_MS, NOW_MS)
    with raised("argument_invalid", argument="worker"):
        formats.pack(Parts(0, 1_024, 0), "twitter")
    with raised("argument_invalid", argument="parts"):
        formats.pack(Parts(0, 0, 0), "twitter")
    with raised("layout"):
        formats.unpack(1, "no such")


def test_templates() -> None:
    key = FormatKey(bytes(range(16)), 1)
    orders = Format("ORD-{yyyyMMdd}-{id:base36}-{gene:4}", bits=60, gene_bits=0, key_id_bits=3, keys=[key])
    text = orders.write(42, NOW_MS, 7)
    day = datetime.datetime.fromtimestamp(NOW_MS / 1_000, datetime.timezone.utc)
    assert text.startswith(f"ORD-{day:%Y%m%d}-")
    issued = orders.read(text)
    assert (issued.id, issued.gene, issued.key_id) == (42, 7, 1)
    assert issued.span is not None and issued.span[0] <= NOW_MS < issued.span[1]
    assert orders.original(orders.number(42, NOW_MS, 7)).id == 42
    assert "secret" not in repr(key) and len(FormatKey.generate().secret) == 16
    with pytest.raises(TypeError, match="secret"):
        __import__("pickle").dumps(orders)
    daily = Format("{yyyyMMdd}{id:06}", bits=19, restart="day")
    assert daily.period(NOW_MS) == "2023-11-14" and daily.id_max == 2**19 - 1
    with raised("format", fault="id"):
        daily.write(2**19, NOW_MS)
    with raised("format", fault="template"):
        Format("{")
    with raised("format", fault="length"):
        daily.read("x")
    with raised("argument_invalid", argument="bits"):
        Format("{id}", bits=256)
    with raised("argument_invalid", argument="keys"):
        Format("{id}", keys=[b"0" * 16])  # type: ignore[list-item]


def test_what_is_wrong_is_said_in_the_words_of_the_rust_library() -> None:
    key = FormatKey(bytes(16), 1)
    text: Any = "00" * 16
    wrong: list[tuple[Callable[[], Any], str]] = [
        (lambda: Format("ORD-{date}-{id}"), "at byte 4: there is no placeholder {date}; there are {id}, {id:010}"),
        (lambda: Format("{id}{id}"), "at byte 4: {id} stands there twice: leave one of them out"),
        (lambda: Format("{id}-{id:06}"), "at byte 5: {id} stands there twice"),
        (lambda: Format("{gene:2}{id}{gene:2}"), "at byte 12: {gene} stands there twice: leave one of them out"),
        (lambda: Format("{id}{gene:2}", gene_bits=2), "at byte 4: the gene is in the id already (gene_bits)"),
        (lambda: Format("é{"), "at byte 2: a brace without its other one; write {{ or }} for the brace itself"),
        (lambda: Format("ORD"), "at byte 3: without an id, {id} for example, all would be alike"),
        (lambda: Format("{id}" + "-" * 130), "it has more than 128 bytes; shorten it"),
        (lambda: Format("{id:03}", keys=[FormatKey(bytes(16))]), "3 digits for the id, and the number may need more"),
        (lambda: Format("{id}", restart="day"), "must show the period: {yyyy} for a year, {yyyyMM} for a month"),
        (lambda: Format("{id}", keys=[key]), "the key 1 has a number, and there are no bits for it: set key_id_bits"),
        (lambda: Format("{id}", key_id_bits=1, keys=[key, key]), "the key 1 is given twice, or its number does"),
        (lambda: Format("{id}").write(0, NOW_MS), "the id is outside 1 to 9223372036854775807"),
        (lambda: Format("{id}").write(1, NOW_MS, 1), "a shard key was given, and the ids carry no gene: leave it out"),
        (lambda: Format("{id:03}", bits=6).read("0001"), "no text of this format is 4 bytes long"),
        (lambda: Format("{id}", keys=[FormatKey(text)]), "the key 0 is a text, it must be 16 bytes: bytes."),
        (lambda: Format("{id}", keys=[FormatKey(b"00")]), "the secret of the key 0 has 2 bytes, it must have 16"),
        (lambda: Format("{id}", keys=cast(Any, key)), "keys must be a list of FormatKeys: keys=[key]"),
        (lambda: Format("{id}", gene_bits=cast(Any, "2")), "gene_bits is '2', it must be a whole number from 0 to 16"),
        (lambda: Format("{id}", bits=256), "bits is 256, it must be a whole number from 1 to 63"),
        (lambda: Format("{id}", bits=64), "the bits do not fit: 1 to 63 in all (bits)"),
        (lambda: Format("{id}", key_id_bits=-1), "key_id_bits is -1, it must be a whole number from 0 to 8"),
        (lambda: Format("{id}", utc_offset_minutes=2**15), "is 32768, it must be a whole number from -1080 to 1080"),
        (lambda: Format("{id}", utc_offset_minutes=1_081), "more than 18 hours: give -1080 to 1080 minutes"),
        (lambda: Format("{id}", key_id_bits=8, keys=[FormatKey(bytes(16), 256)]), "from 0 to 255"),
        (lambda: formats.decode("1000000", "base62"), "a text in base62 has 11 characters, and this has 7"),
        (lambda: formats.decode("", "decimal"), "a text in decimal has 1 to 19 characters, and this has 0"),
        (lambda: formats.pack(Parts(1, 5_000, 0), "leaf"), "worker is 5000, it must be 0 to 1023 in the"),
        (lambda: formats.unpack(0, "leaf"), "it must be 1 to 9223372036854775807, the ids of the layout leaf"),
        (lambda: formats.id_range("leaf", 7, 7), "the span of time is empty: it must end after it begins"),
        (lambda: formats.id_range("leaf", 0, 7), "lies before the epoch of the layout leaf or after its last tick"),
        (lambda: formats.id_range("leaf", cast(Any, "2026-01-01"), 7), "from_ms is '2026-01-01', it must be Unix"),
        (lambda: Format("{id}").write(1, cast(Any, 1.5)), "issued_ms is 1.5, it must be Unix milliseconds, such as"),
    ]
    for call, words in wrong:
        with pytest.raises(IdsError) as error:
            call()
        assert words in str(error.value) and text not in str(error.value)


def test_instants_may_be_datetimes() -> None:
    orders = Format("{yyyyMMddHHmmssSSS}-{id}")
    when = datetime.datetime(2026, 1, 31, 23, 30, 0, 7_999, datetime.timezone(datetime.timedelta(hours=8)))
    assert orders.write(1, when) == "20260131153000007-1" == orders.write(1, int(when.timestamp() * 1_000))
    assert formats.id_range("leaf", when, when + datetime.timedelta(seconds=1)) == formats.id_range(
        "leaf", int(when.timestamp() * 1_000), int(when.timestamp() * 1_000) + 1_000
    )
    with raised("argument_invalid", argument="issued_ms") as error:
        orders.write(1, when.replace(tzinfo=None))
    assert "it must be a time with a zone: datetime.now(timezone.utc)" in str(error.value)
    with raised("argument_invalid", argument="issued_ms"):
        orders.write(1, datetime.datetime(1969, 12, 31, tzinfo=datetime.timezone.utc))


def test_a_counter_that_starts_again_has_a_period() -> None:
    """As the types say, which the program of the package's test uses."""
    assert isinstance(Format("{yyyyMMdd}{id:06}", bits=19, restart="day"), RestartingFormat)
    never = Format("{id}")
    assert not isinstance(never, RestartingFormat) and never.period(NOW_MS) is None


def test_what_a_store_keeps_of_a_format() -> None:
    """Numbers as a program sees them; the vectors have more."""
    plain = Format("{id}", bits=53)
    assert (plain.shape(), plain.key_checks(), plain.needs_shard_key) == (8_372_328_055_664_279_552, [], False)
    key = FormatKey(bytes.fromhex("9f3c1e5b7a2d48600c41e6d2b8f5730a"), 3)
    keyed = Format("{id}", bits=24, gene_bits=4, key_id_bits=2, keys=[key], context="order")
    assert (keyed.shape(), keyed.needs_shard_key) == (8_372_328_055_664_291_906, True)
    assert keyed.key_checks() == [KeyCheck(3, 18, 2_612_544_401_778_816_104)]
    assert Format("{id}-{gene:4}").needs_shard_key and Format("{{gene:4}}{id}").needs_shard_key is False


@pytest.mark.parametrize(
    ("text", "layout"),
    [
        ("41/5+5/12 epoch 1288834974657 tick 1 ms", LAYOUTS["twitter"]),
        ("39/8/16 sequence-first epoch 2025-01-01 tick 10 ms", LAYOUTS["sonyflake"]),
        ("28/22/13 tick 1s epoch 1463673600000", LAYOUTS["baidu"]),
        ("  41/3/9\tepoch  2019-12-24T16:00:00Z ", LAYOUTS["cosid-53"]),
        ("41/0+3/9 tick 1ms epoch 2019-12-25T00:00:00+08:00", LAYOUTS["cosid-53"]),
        ("41/5+5/12 epoch 2010-11-04t01:42:54.657000z", LAYOUTS["twitter"]),
    ],
)
def test_a_layout_may_be_written_out(text: str, layout: Layout) -> None:
    assert layout_named(text) == layout_named(layout_text(layout)) == layout


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("twiter", "there is no layout 'twiter': there are twitter, leaf"),
        ("41/10 epoch 0", "it begins with its widths in bits, TIME/WORKER/SEQUENCE"),
        ("41/10/1+2 epoch 0", "it begins with its widths in bits"),
        ("41/10/12", "the epoch is missing: epoch 2024-01-01, say"),
        ("41/10/12 since 2024-01-01", "the word 'since' is unknown or there twice: after the widths come epoch TIME"),
        ("41/10/12 epoch 0 epoch 0", "the word 'epoch' is unknown or there twice"),
        ("41/10/12 epoch yesterday", "the epoch cannot be read: a time is written as a date (2026-01-31, at"),
        ("41/10/12 epoch 2026-02-29", "the epoch cannot be read"),
        ("41/10/12 epoch 1969-12-31", "the epoch cannot be read"),
        ("41/10/12 epoch 0 tick 10", "the tick must be a whole number of ms or s, such as tick 10 ms"),
        ("60/10/12 epoch 0", "is not valid: the fields sum to 82 bits, ids have 63 at most"),
        (Layout(41, 0, 10, 12, "worker-first", 0, 0), "is not valid: the tick is 0 ms, it must be 1 ms at least"),
        (None, "the layout is of the type NoneType: give a Layout, or the name of one"),
    ],
)
def test_what_is_no_layout(text: Any, words: str) -> None:
    with raised("layout") as error:
        formats.unpack(1, text)
    assert words in str(error.value)
    with Ids(leases=MemoryStore()) as ids, raised("layout") as error:
        ids.snowflake("default", text)
    assert words in str(error.value)


def test_a_sequence_that_fits_its_format() -> None:
    orders = Format("{id:03}", bits=6)
    with Ids(segments=MemoryStore()) as ids:
        numbers = ids.sequence("order", id_max=orders.id_max)
        texts = [orders.write(numbers.next(), NOW_MS) for _ in range(63)]
        assert texts[-1] == "063"
        with raised("exhausted"):
            numbers.next()


def test_threads_and_children() -> None:
    orders = Format("{id:base62}", keys=[FormatKey(bytes(16))])
    wanted = [orders.write(id, NOW_MS) for id in range(1, 200)]
    found: list[list[str]] = []

    def write() -> list[str]:
        return [orders.write(id, NOW_MS) for id in range(1, 200)]

    threads = [threading.Thread(target=lambda: found.append(write())) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert Child(by_fork, write).told() == wanted
    for thread in threads:
        thread.join()
    assert found == [wanted] * 4
