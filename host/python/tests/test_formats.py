"""Formats as a program sees them; the vectors have the figures."""

from __future__ import annotations

import datetime
import threading
from typing import Any, get_args

import pytest
from test_fork import Child, by_fork
from test_ids import raised
from unalike import Ids, formats
from unalike.formats import Format, FormatKey, Notation, Parts
from unalike.memory import MemoryStore

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize("notation", get_args(Notation))
def test_notations(notation: Any) -> None:
    for id in (1, 9, 62, 2**53, 2**63 - 1):
        assert formats.decode(formats.encode(id, notation), notation) == id
    for id in (0, -1, 2**63, 2**64, True, 1.0, "1"):
        with raised("argument_invalid", argument="id"):
            formats.encode(id, notation)  # type: ignore[arg-type]
    with raised("text"):
        formats.decode("", notation)
    with raised("argument_invalid", argument="input"):
        formats.decode("\ud800", notation)
    with raised("argument_invalid", argument="text"):
        formats.encode(1, "roman")  # type: ignore[arg-type]


def test_fields() -> None:
    id = formats.pack(Parts(1_000, 33, 7), "twitter")
    assert formats.unpack(id, "twitter") == Parts(1_000, 33, 7, 1_288_834_974_657 + 1_000)
    least, greatest = formats.id_range("twitter", NOW_MS, NOW_MS + 1)
    assert formats.unpack(least, "twitter").unix_ms == formats.unpack(greatest, "twitter").unix_ms == NOW_MS
    assert greatest - least == 2**22 - 1
    with raised("argument_invalid", argument="span"):
        formats.id_range("twitter", NOW_MS, NOW_MS)
    with raised("argument_invalid", argument="id"):
        formats.pack(Parts(0, 1_024, 0), "twitter")
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
