"""Ids as a format shows them: around midnight, under keys, with genes; and one format for a tag, in every program.

Several stores, on real servers, with the ``unalike`` command beside this package.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Optional

import pytest
from mariadb import fresh_database
from redis_servers import RedisProcess
from servers import Server, binary
from stores import FileStore, Gated
from test_fork import Child, by_fork
from test_ids import raised

from unalike import (
    LAYOUTS,
    AsyncIds,
    FormatOwner,
    Ids,
    IdsError,
    KeyPart,
    Spread,
    StoreError,
    TagOptions,
    TagRecord,
    TailRelease,
    formats,
)
from unalike.formats import Format, FormatKey
from unalike.memory import MemoryStore
from unalike.mysql import MysqlStore
from unalike.redis import RedisStore
from unalike.remote import RemoteStore
from unalike.sqlite import SqliteStore
from unalike.store import format_name, is_kept, is_kept_time, validate_new_tag

MIDNIGHT_MS = 1_795_363_200_000
"""2026-11-22T16:00:00Z: midnight in Shanghai."""
SECRET = "5a3c0b9d1e7f4826a1b2c3d4e5f60718"
KEY = FormatKey(bytes.fromhex(SECRET), 1)
ANOTHER = "is bound to another format in the store"
SHAPE = "its template, restart, or a width is another one"
OF_KEY = "the key 1 has another secret or context"


class HandClock:
    """A clock that a test moves."""

    def __init__(self, now_ms: int = MIDNIGHT_MS) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms


def daily(template: str, **options: Any) -> Format:
    made: Format = Format(template, utc_offset_minutes=8 * 60, restart="day", **options)
    return made


def keyed(**changed: Any) -> Format:
    """What a tag is shown in first, or the same with something changed."""
    first = {"template": "ORD-{yyyy}-{id:08}", "bits": 24, "key_id_bits": 2, "keys": [KEY], "context": "order"}
    made: Format = Format(**{"restart": "year", **first, **changed})
    return made


def rows(store: MemoryStore) -> set[str]:
    return set(store._rows)


def test_numbers_begin_again_each_day_and_a_clock_that_goes_back_repeats_none() -> None:
    store, clock = MemoryStore(), HandClock(MIDNIGHT_MS - 1)
    with Ids(segments=store, clock=clock) as ids:
        orders = ids.formatted("order", daily("{yyyyMMdd}-{id:04}"))
        assert [orders.next(), orders.next()] == ["20261122-0001", "20261122-0002"]
        clock.now_ms = MIDNIGHT_MS
        assert orders.next() == "20261123-0001"
        assert orders.take(2) == ["20261123-0002", "20261123-0003"]
        # Back over midnight, and on again: each day goes on where it was.
        clock.now_ms = MIDNIGHT_MS - 5
        assert orders.next() == "20261122-0003"
        clock.now_ms = MIDNIGHT_MS + 5
        assert orders.next() == "20261123-0004"
        assert (orders.name, orders.format.id_max) == ("order", 9_999)
        assert repr(orders) == "<Formatted 'order', '{yyyyMMdd}-{id:04}'>"
        with pytest.raises(TypeError, match="Formatted cannot be pickled"):
            pickle.dumps(orders)
    with raised("closed"):
        orders.next()
    assert {"order", "order\x1f@2026-11-22", "order\x1f@2026-11-23"} < rows(store)


def test_one_reading_of_the_clock_decides_the_date_and_the_period() -> None:
    """Each reading is another day."""
    days = iter(range(1_000))
    with Ids(segments=MemoryStore(), clock=lambda: MIDNIGHT_MS) as ids:
        orders = ids.formatted("order", daily("{yyyyMMdd}-{id}"))
        ids._clock = lambda: MIDNIGHT_MS + next(days) * 86_400_000
        texts = [text for _ in range(20) for text in orders.take(2)]
        assert len(set(texts)) == 40 and {text.partition("-")[2] for text in texts} == {"1", "2"}
        assert all(texts[at][:8] == texts[at + 1][:8] for at in range(0, 40, 2)), "one call, two days"


@pytest.mark.parametrize("mode", ["buffered", "ordered"])
def test_no_text_comes_twice_while_clocks_go_over_midnight_and_back(mode: Any) -> None:
    """Threads of two programs."""
    store = MemoryStore()
    store.create_tag("order", TagOptions(mode=mode))
    clocks = [HandClock(MIDNIGHT_MS - 1) for _ in range(2)]
    programs = [Ids(segments=store, clock=clock) for clock in clocks]
    opened = [ids.formatted("order", daily("{yyyyMMdd}-{id}")) for ids in programs]

    def draw(number: int) -> list[str]:
        orders, clock = opened[number % 2], clocks[number % 2]
        texts = []
        for round_ in range(60):
            clock.now_ms = MIDNIGHT_MS - 2 + (round_ * (7 + number) + number) % 5
            texts += orders.take(round_ % 4 + 1)
        return texts

    with ThreadPoolExecutor(6) as threads:
        texts = [text for drawn in threads.map(draw, range(6)) for text in drawn]
    assert len(texts) == 900 == len(set(texts))
    assert {"20261122-1", "20261123-1"} < set(texts), "each day begins at 1"
    for ids in programs:
        ids.close()


def test_sub_keys_and_periods_share_no_numbers() -> None:
    store = MemoryStore()
    with Ids(segments=store, clock=HandClock(MIDNIGHT_MS - 1)) as ids:
        days = daily("{yyyyMMdd}-{id}")
        for sub in (None, "a", "a@2026-11-22", "@2026-11-22", "@", "x" * 111):
            assert ids.formatted("order", days, sub).next() == "20261122-1", sub
        for sub in ("", "a\nb", "x" * 112):
            with raised("name_invalid"):
                ids.formatted("order", days, sub)
        assert ids.formatted("bill", Format("{yyyyMM}-{id}", restart="month")).next() == "202611-1"
        assert ids.formatted("year", Format("{yyyy}-{id}", restart="year")).next() == "2026-1"
        plain = Format("{id:03}")
        assert (ids.formatted("ticket", plain).next(), ids.formatted("ticket", plain, "a").next()) == ("001", "001")
    assert {"bill\x1f@2026-11", "year\x1f@2026", "order\x1f@2026-11-22", "order\x1fa@2026-11-22"} < rows(store)


def test_periods_that_are_over_are_closed_when_idle() -> None:
    clock = HandClock(MIDNIGHT_MS - 1)
    with Ids(segments=MemoryStore(), clock=clock) as ids:
        orders = ids.formatted("order", daily("{yyyyMMdd}-{id}"))
        orders.next()
        assert ids.close_idle(0) == 1
        assert orders.next().endswith("-2"), "what did not cross into a run was given back"


def test_numbers_alone_are_refused_where_they_repeat_and_cost_nothing() -> None:
    with Ids(segments=MemoryStore(), clock=HandClock()) as ids:
        orders = ids.formatted("order", daily("{yyyyMMdd}-{id}"))
        for call in (orders.next_number, lambda: orders.take_numbers(3)):
            with raised("format_misfit", misfit="numbers_repeat"):
                call()
        assert orders.next() == "20261123-1", "the refused calls took no number"


def test_a_shard_key_that_is_missing_or_not_wanted_costs_no_id() -> None:
    with Ids(segments=MemoryStore()) as ids:
        for template, gene_bits in (("{id}", 4), ("{id}-{gene:4}", 0)):
            orders = ids.formatted(f"order-{gene_bits}", Format(template, gene_bits=gene_bits))
            for call in (orders.next, orders.next_number, lambda: orders.take(3)):
                with raised("format", fault="shard-key-missing"):
                    call()
            for key in (-1, 2**64, True, "37"):
                with raised("argument_invalid", argument="shard_key"):
                    orders.next(key)  # type: ignore[arg-type]
            assert orders.next_number(37) == (1 << 4 | 5 if gene_bits else 1)
        plain = ids.formatted("plain", Format("{id}"))
        with raised("format", fault="shard-key-unwanted"):
            plain.next(37)
        with raised("argument_invalid", argument="count"):
            plain.take(0)
        assert (plain.next(), plain.take_numbers(2)) == ("1", [2, 3])


def test_a_sequence_ends_before_its_texts_are_too_long() -> None:
    clock = HandClock(MIDNIGHT_MS - 1)
    with Ids(segments=MemoryStore(), clock=clock) as ids:
        orders = ids.formatted("order", daily("{yyyyMMdd}-{id:02}"))
        assert [orders.next() for _ in range(99)][-1] == "20261122-99"
        with raised("exhausted", id_max=99) as error:
            orders.next()
        assert "up to 99, the greatest that is allowed (the digits of its template, bits or id_max" in str(error.value)
        clock.now_ms = MIDNIGHT_MS
        assert orders.next() == "20261123-01"
        few = ids.formatted("few", Format("{id:02}"), id_max=3)
        assert few.take(3) == ["01", "02", "03"]
        with raised("exhausted", id_max=3):
            few.next()


def test_a_snowflake_carries_its_gene_in_the_sequence_and_its_date_is_its_own() -> None:
    clock = HandClock(MIDNIGHT_MS - 1)
    store = MemoryStore(clock=clock)
    with Ids(segments=store, leases=store, clock=clock) as ids:
        format = Format("{yyyyMMddHHmmssSSS}/{id}", utc_offset_minutes=8 * 60, gene_bits=4)
        # More ids than one tick has, some of them ahead of the clock: each has the date of its own tick.
        web = ids.formatted_snowflake("web", "twitter", format, ahead_max_ms=1_000)
        dates = set()
        for text in web.take(600, 37):
            issued = web.read(text)
            parts = formats.unpack(issued.number, "twitter")
            assert (issued.number % 16, issued.gene, issued.id) == (5, 5, issued.number >> 4)
            assert issued.span == (parts.unix_ms, parts.unix_ms + 1)
            dates.add(text[:8])
        assert dates == {"20261122", "20261123"}
        assert web.next_number(37) % 16 == 5
        assert ids._snowflakes["web"].layout.sequence_bits == 8, "the namespace has the narrower layout"
        other = text.replace("20261123", "20261124")
        with raised("format", fault="date"):
            web.read(other)


def test_a_format_that_does_not_fit_a_snowflake_opens_nothing() -> None:
    store = MemoryStore()
    with Ids(segments=store, leases=store) as ids:
        for layout, format, misfit in (
            ("twitter", Format("{yyyyMMdd}-{id}", restart="day"), "restart"),
            ("sonyflake", Format("{id}", gene_bits=4), "gene"),
            ("twitter", Format("{id}", gene_bits=13), "gene"),
            ("twitter", Format("{id:018}"), "width"),
        ):
            with raised("format_misfit", misfit=misfit):
                ids.formatted_snowflake("web", layout, format)
        # A spread needs as many bits of what is left.
        with raised("argument_invalid", argument="spread"):
            ids.formatted_snowflake("web", "twitter", Format("{id}", gene_bits=4), spread=Spread.random(9))
        for given in ("{id}", None):
            with raised("argument_invalid", argument="format"):
                ids.formatted_snowflake("web", "twitter", given)  # type: ignore[arg-type]
            with raised("argument_invalid", argument="format"):
                ids.formatted("web", given)  # type: ignore[arg-type]
        assert not ids._snowflakes and not rows(store)
    with Ids(leases=store) as ids:
        # Without a store of sequences nothing is compared.
        for template in ("A{id}", "{id}"):
            assert ids.formatted_snowflake("web", LAYOUTS["twitter"], Format(template)).next()


def test_coroutines() -> None:
    async def main() -> None:
        clock = HandClock(MIDNIGHT_MS - 1)
        store = MemoryStore(clock=clock)
        async with AsyncIds(segments=store, leases=store, clock=clock) as ids:
            orders = await ids.formatted("order", daily("{yyyyMMdd}-{id:04}"))
            assert await orders.next() == "20261122-0001"
            clock.now_ms = MIDNIGHT_MS
            assert await orders.take(2) == ["20261123-0001", "20261123-0002"]
            assert (orders.name, orders.read("20261123-0002").id) == ("order", 2)
            assert repr(orders) == "<AsyncFormatted 'order', '{yyyyMMdd}-{id:04}'>"
            with raised("format_misfit"):
                await orders.next_number()
            drawn = await asyncio.gather(*[orders.next() for _ in range(100)])
            assert len(set(drawn)) == 100
            with raised("format_bound"):
                await ids.formatted("order", daily("{yyyyMMdd}/{id:04}"))
            web = await ids.formatted_snowflake("web", "twitter", Format("{id}", gene_bits=4))
            assert [number % 16 for number in await web.take_numbers(3, 37)] == [5, 5, 5]
            with raised("format", fault="shard-key-missing"):
                await web.next()

    asyncio.run(main())


class Shop:
    """A store that several programs open."""

    def __init__(self, folder: Path, kind: str) -> None:
        self._folder, self._kind = folder, kind
        self._closing: list[Callable[[], None]] = []
        self._memory = MemoryStore()
        self.url: Any = f"sqlite://{folder / 'ids.sqlite'}"
        if kind == "mysql":
            self.url = fresh_database()
        elif kind == "redis":
            redis = RedisProcess(folder)
            self._closing.append(redis.kill)
            self.redis = redis.url
        elif kind == "server":
            self.server = Server(folder / "ids.sqlite", "127.0.0.1:0", *self.served())
            self._closing.append(self.server.stop)

    def served(self) -> tuple[str, ...]:
        """What a server is started with, which leases workers of one snowflake."""
        config = self._folder / "server.toml"
        config.write_text(
            '[snowflakes.web]\nlayout = "twitter"\n'
            '[tags.shown]\ntemplate = "S-{yyyy}-{id}"\nrestart = "year"\n'
        )
        return "--config", str(config)

    def store(self) -> Any:
        if self._kind == "memory":
            return self._memory
        store: Any
        if self._kind == "mysql":
            store = MysqlStore(self.url)
        elif self._kind == "server":
            store = RemoteStore(self.server.url)
        else:
            store = SqliteStore(self._folder / "ids.sqlite")
        if self._kind == "redis":
            # Slow machines.
            url = f"{self.redis}?raise-timeout-ms=20000&request-timeout-ms=20000"
            self._closing.append(store.close)
            store = RedisStore(url, backing=store)
        self._closing.append(store.close)
        return store

    def ids(self, **options: Any) -> Ids:
        """A program of its own."""
        store = self.store()
        ids = Ids(segments=store, leases=store, wait_max=30.0, request_timeout=30.0, **options)
        self._closing.append(ids.close)
        return ids

    def show(self, format: Format, tag: str = "order", sub: Optional[str] = None) -> str:
        return self.ids().formatted(tag, format, sub).next()

    def command(self, config: str, *arguments: str) -> str:
        """What the command says with this configuration."""
        file = self._folder / "config.toml"
        file.write_text(config)
        place = ["--store", self.redis, "--backing", self.url] if self._kind == "redis" else ["--store", self.url]
        ran = subprocess.run(
            [binary(), "--config", str(file), *place, *arguments],
            capture_output=True,
            text=True,
            cwd=self._folder,
            env={**os.environ, "UNALIKE_TEST_KEY": SECRET},
        )
        return ran.stdout.strip() or ran.stderr

    def close(self) -> None:
        for close in reversed(self._closing):
            close()


@pytest.fixture(params=["memory", "sqlite", "mysql", "redis", "server"])
def shop(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Shop]:
    opened = Shop(tmp_path, request.param)
    yield opened
    opened.close()


CHANGED: dict[str, tuple[dict[str, Any], str]] = {
    "template": ({"template": "{yyyy}-{id:08}"}, SHAPE),
    "restart": ({"restart": "never"}, SHAPE),
    "bits": ({"bits": 26}, SHAPE),
    "gene_bits": ({"gene_bits": 2}, SHAPE),
    "key_id_bits": ({"key_id_bits": 3}, SHAPE),
    "secret": ({"keys": [FormatKey(bytes(16), 1)]}, OF_KEY),
    "context": ({"context": "orders"}, OF_KEY),
    "both": ({"template": "{yyyy}-{id:08}", "context": "orders"}, f"{SHAPE}; {OF_KEY}"),
}


def test_a_tag_is_shown_in_the_format_that_it_had_first(shop: Shop) -> None:
    """Each of these differs from the first in one line."""
    first = shop.show(keyed())
    for changed, differs in CHANGED.values():
        for sub in (None, "shop"):
            with raised("format_bound") as error:
                shop.show(keyed(**changed), sub=sub)
            said, cause = str(error.value), error.value.__cause__
            assert f"the tag 'order' {ANOTHER}, and two ids can look the same: " in said
            assert differs in said and "`unalike tags format -- order`" in said
            assert isinstance(cause, StoreError) and cause.kind == "format-bound" and not error.value.is_retryable
    # The zone of the date, a key more and a key less repeat nothing.
    later = FormatKey(bytes(range(16)), 2)
    texts = [shop.show(keyed(**of)) for of in ({"utc_offset_minutes": 60}, {"keys": [later, KEY]}, {"keys": [later]})]
    assert len({first, *texts}) == 4
    # Another tag is another matter, and so is a snowflake of this name.
    assert shop.show(Format("{id}"), "ticket") == "1"


def test_a_snowflake_is_shown_in_the_format_that_it_had_first(shop: Shop) -> None:
    def show(template: str) -> str:
        return shop.ids().formatted_snowflake("web", "twitter", Format(template)).next()

    assert show("W{id}").startswith("W")
    with raised("format_bound") as error:
        show("{id}W")
    assert f"the snowflake 'web' {ANOTHER}" in str(error.value)
    assert "`unalike tags format --snowflake -- web`" in str(error.value)
    assert show("W{id}").startswith("W")


def test_a_format_that_is_refused_binds_nothing(shop: Shop) -> None:
    shop.show(keyed(keys=[KEY]))
    another = FormatKey(bytes(16), 3)
    with raised("format_bound"):
        shop.show(keyed(template="{yyyy}-{id:08}", keys=[another]))
    assert shop.show(keyed(keys=[FormatKey(bytes(range(16)), 3)])), "the key 3 is bound to nothing"


def test_of_formats_that_come_first_at_once_one_is_shown(shop: Shop) -> None:
    letters = "ABCDEFGH"
    programs = [shop.ids() for _ in letters * 2]

    def show(number: int) -> Optional[str]:
        try:
            return programs[number].formatted("order", Format(f"{letters[number % 8]}{{id}}")).next()
        except IdsError as error:
            assert error.kind == "format_bound", error
            return None

    with ThreadPoolExecutor(8) as threads:
        shown = [text for text in threads.map(show, range(16)) if text is not None]
    assert len({text[0] for text in shown}) == 1 and len(set(shown)) == len(shown) == 2


class Raced(MemoryStore):
    """What a server is to a program, when another one binds the shape of a format between its look and its opening."""

    def __init__(self, other: Format, hears: bool = True) -> None:
        super().__init__()
        self._other, self._hears, self._is_told = other, hears, False
        self.opened = 0

    def bind_format(self, owner: FormatOwner, part: Any, first: Optional[int]) -> Optional[int]:
        bound = super().bind_format(owner, part, first)
        self._is_told = self._is_told or (self._hears and first is not None and bound == first)
        return bound

    def open_tag(self, tag: str) -> TagRecord:
        self.opened += 1
        super().bind_format(FormatOwner("tag", "order"), "shape", self._other.shape())
        if not self._is_told:
            raise StoreError("refused", "the tag is shown in a format, said the test")
        return super().open_tag(tag)


@pytest.mark.parametrize("restart", ["never", "year"])
def test_a_format_that_another_program_binds_meanwhile_is_compared_once_more(restart: Any) -> None:
    format = keyed(restart=restart)
    store = Raced(format)
    with Ids(segments=store) as ids:
        assert format.read(ids.formatted("order", format).next()).id == 1
    # The other program had bound no key yet.
    key = format.key_checks()[0]
    assert store.bind_format(FormatOwner("tag", "order"), KeyPart(key.id, key.bits), None) == key.check
    with Ids(segments=Raced(keyed(restart=restart, template="O-{yyyy}-{id:08}"))) as ids, raised("format_bound"):
        ids.formatted("order", format)
    store = Raced(format, hears=False)
    with Ids(segments=store) as ids, raised("store"):
        ids.formatted("order", format)
    assert store.opened == 2, "there is one more attempt"


def test_a_key_for_a_few_bits_hides_nothing() -> None:
    store = MemoryStore()
    with Ids(segments=store, leases=store) as ids:
        few = keyed(bits=23, gene_bits=2)
        for show in (lambda: ids.formatted("order", few), lambda: ids.formatted_snowflake("web", "twitter", few)):
            with raised("format", fault="bits") as error:
                show()
            assert "19 bits hides nothing: of 23 bits, gene_bits takes 2 and key_id_bits 2" in str(error.value)
        assert not rows(store)
        assert ids.formatted("order", keyed(gene_bits=2)).next(0)


def test_a_name_that_is_too_long_with_its_period_binds_nothing() -> None:
    store = MemoryStore()
    with Ids(segments=store, clock=HandClock()) as ids:
        for tag, sub in (("x" * 120, None), ("order", "x" * 112)):
            with raised("name_invalid"):
                ids.formatted(tag, daily("{yyyyMMdd}-{id}"), sub)
    assert not rows(store)


@pytest.mark.parametrize("kind", ["sqlite", "mysql", "redis", "server"])
def test_a_child_goes_on(tmp_path: Path, kind: str) -> None:
    """Its connections are others: a server hears again in which format the tag is shown."""
    shop = Shop(tmp_path, kind)
    try:
        ids = shop.ids(renew_leases=False)
        orders, tickets = ids.formatted("order", keyed()), ids.formatted("ticket", Format("T{id}"))
        mine = [orders.next(), tickets.next()]

        def draw() -> list[str]:
            years = ids.formatted("order", keyed(), "shop")
            return [orders.next(), tickets.next(), *orders.take(40), *tickets.take(40)] if years.next() else []

        children = [Child(by_fork, draw) for _ in range(2)]
        texts = [*mine, *orders.take(40), *tickets.take(40)] + [text for child in children for text in child.told()]
        assert len(texts) == 82 * 3 == len(set(texts))
    finally:
        shop.close()


def test_what_a_server_knows_of_a_format(tmp_path: Path) -> None:
    shop = Shop(tmp_path, "server")
    try:
        store = shop.store()
        ids = Ids(segments=store)
        orders = ids.formatted("order", keyed())
        first = orders.next()
        # Connections that are opened anew name the format, too.
        store.close()
        assert orders.take(20_000)[0] != first
        # Bare numbers of the tag may be what the texts show.
        for of in (shop.ids().sequence, lambda tag: shop.ids().sequence_of(tag, "@2026")):
            with pytest.raises(IdsError, match="format") as error:
                of("order").next()
            assert not error.value.is_retryable
        # One that its configuration has: the same is shown, and another one is refused.
        with pytest.raises(IdsError, match="format"):
            shop.ids().formatted("shown", Format("S-{yyyy}-{id:08}", restart="year")).next()
        numbers = [int(shop.show(Format("S-{yyyy}-{id}", restart="year"), "shown").split("-")[2]) for _ in range(2)]
        assert len(set(numbers)) == 2
        ids.close()
    finally:
        shop.close()


CONFIG = """
[tags.order]
template = "TEMPLATE"
restart = "year"
bits = 24
key_id_bits = 2
keys = [1]
[keys.1]
secret_env = "UNALIKE_TEST_KEY"
"""


@pytest.mark.parametrize("kind", ["sqlite", "mysql", "redis"])
@pytest.mark.parametrize("is_first", [True, False])
def test_the_command_and_this_package_refuse_each_others_other_format(
    tmp_path: Path, kind: str, is_first: bool
) -> None:
    shop = Shop(tmp_path, kind)
    same, other = (CONFIG.replace("TEMPLATE", template) for template in ("ORD-{yyyy}-{id:08}", "O-{yyyy}-{id:08}"))
    try:
        mine = [shop.show(keyed())] if is_first else []
        theirs = shop.command(same, "next", "order", "-n", "3").split()
        assert ANOTHER in shop.command(other, "next", "order")
        assert ANOTHER in shop.command("", "next", "order"), "the bare numbers"
        mine += [shop.show(keyed()) for _ in range(2)]
        with raised("format_bound"):
            shop.show(keyed(template="O-{yyyy}-{id:08}"))
        with raised("format_bound"):
            shop.show(keyed(context="orders"))
        # They count in one row for the year.
        read = [keyed().read(text) for text in mine + theirs]
        assert len({issued.id for issued in read}) == len(read) and {issued.key_id for issued in read} == {1}
        assert "nothing repeats" in shop.command(same, "tags", "format", "--", "order")
    finally:
        shop.close()


def test_connections_that_are_opened_anew_hear_in_which_format_a_tag_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first request for it. The library is a stand-in, which notes what it is asked."""
    asked: list[Any] = []
    bound: dict[Any, int] = {}

    class Stores:
        def __init__(self, options: str, own: Any) -> None:
            asked.append("opened")

        def address(self) -> str:
            return "somewhere"

        def bind_format(self, kind: str, name: str, key: Any, first: Optional[int]) -> Optional[int]:
            asked.append(("bind", kind, name, key, first))
            return bound.get((kind, name, key)) if first is None else bound.setdefault((kind, name, key), first)

        def release(self, tag: str, start: int, version: int) -> bool:
            asked.append(("release", tag))
            return True

        def identity(self) -> None:
            return None

        def close(self) -> None:
            pass

    monkeypatch.setattr("unalike.stores._library", lambda: SimpleNamespace(Stores=Stores, warnings=list))
    store = RemoteStore("http://ids-1")
    order, released = FormatOwner("tag", "order"), ("release", "order\x1f@2026")
    store.bind_format(FormatOwner("snowflake", "order"), "shape", 5)
    assert store.bind_format(order, "shape", None) is None
    assert store.bind_format(order, KeyPart(1, 24), 6) == 6 and store.bind_format(order, "shape", 7) == 7
    assert store.bind_format(FormatOwner("tag", "other"), "shape", 8) == 8 != store.bind_format(order, "shape", 8)
    assert [binding[2:] for binding in asked[3:5]] == [("order", (1, 24), 6), ("order", None, 7)]
    for opened_anew in (False, True):
        del asked[:]
        if opened_anew:
            store.close()
        for _ in range(2):
            assert store.release("order\x1f@2026", TailRelease(1, 1)) and store.release("ticket", TailRelease(1, 1))
        said = ["opened", ("bind", "tag", "order", None, 7)] if opened_anew else []
        assert asked == [*said, released, ("release", "ticket"), released, ("release", "ticket")]


def test_stores_that_keep_no_formats_compare_nothing(tmp_path: Path) -> None:
    """One of the program's own, without the method."""
    store = FileStore(tmp_path / "ids")
    for template in ("A{id}", "B{id}"):
        with Ids(segments=store) as ids:
            assert ids.formatted("order", Format(template)).next().startswith(template[0])


def test_what_the_store_says_is_asked_once_and_an_outage_binds_nothing() -> None:
    class Counting(Gated):
        asked_for_formats = 0
        fails = False

        def bind_format(self, owner: FormatOwner, part: Any, first: Optional[int]) -> Optional[int]:
            self.asked_for_formats += 1
            if self.fails:
                raise StoreError("unavailable", "said the test")
            return super().bind_format(owner, part, first)

    store = Counting()
    with Ids(segments=store) as ids:
        store.fails = True
        with raised("store") as error:
            ids.formatted("order", keyed())
        assert error.value.is_retryable and not rows(store)
        store.fails = False
        ids.formatted("order", keyed())
        asked = store.asked_for_formats
        ids.formatted("order", keyed(), "shop")
        assert store.asked_for_formats == asked
        with raised("format_bound"):
            ids.formatted("order", keyed(bits=26))
        with raised("mode_bound"):
            ids.formatted("ticket", keyed(), mode="ordered")
        assert format_name(FormatOwner("tag", "ticket"), "shape", 1) not in rows(store)


def test_a_slow_store_holds_nobody_up_for_ever() -> None:
    go = threading.Event()

    class Slow(MemoryStore):
        def bind_format(self, owner: FormatOwner, part: Any, first: Optional[int]) -> Optional[int]:
            go.wait(60)
            return super().bind_format(owner, part, first)

    ids = Ids(segments=Slow(), wait_max=0.05)
    began = time.monotonic()
    with raised("timeout"):
        ids.formatted("order", keyed())
    assert time.monotonic() - began < 30
    go.set()
    ids.close()


def test_each_part_of_a_format_has_a_row() -> None:
    """The names of the Rust library: they are written in stores, and stay so for ever."""
    order, web = FormatOwner("tag", "order"), FormatOwner("snowflake", "order")
    assert format_name(order, "shape", 1) == "unalike-formats\x1ftag 1 shape:order"
    assert format_name(order, KeyPart(3, 24), 12) == "unalike-formats\x1ftag 12 key 3 of 24 bits:order"
    assert format_name(web, "shape", 1) == "unalike-formats\x1fsnowflake 1 shape:order"
    for name in ("order ", "x" * 128, "\U0001f600" * 32):
        stored, other = (
            format_name(FormatOwner("snowflake", of), KeyPart(255, 63), 1_000) for of in (name, f"y{name[1:]}")
        )
        assert len(stored.encode()) <= 128 and is_kept(stored) and not is_kept_time(stored) and stored != other
        validate_new_tag(stored)
    assert str(web) == "the snowflake 'order'" and FormatOwner("tag", "a b").command == "unalike tags format -- 'a b'"


def test_what_is_bound_is_bound_once_until_somebody_accepts_another(tmp_path: Path) -> None:
    owner = FormatOwner("tag", "order")
    for store in (MemoryStore(), SqliteStore(tmp_path / "ids.sqlite")):
        asked: list[Any] = [None, 7, None, 8, 7]
        assert [store.bind_format(owner, "shape", first) for first in asked] == [None, 7, 7, 7, 7]
        assert store.bind_format(owner, KeyPart(0, 63), 2**63 - 1) == 2**63 - 1 == store.bind_format(
            owner, KeyPart(0, 63), None
        )
        assert store.bind_format(FormatOwner("snowflake", "order"), "shape", None) is None
        for first in (0, 2**63, True, "1"):
            with pytest.raises(StoreError, match="it must be 1 to"):
                store.bind_format(owner, "shape", first)  # type: ignore[arg-type]
        parts: list[Any] = [KeyPart(256, 1), "key", (1, 24)]
        for part in parts:
            with pytest.raises(StoreError, match="the part of a format is"):
                store.bind_format(owner, part, 1)
        for name in ("", "a\nb", "order\x1fa", "x" * 129):
            with pytest.raises(StoreError) as caught:
                store.bind_format(FormatOwner("tag", name), "shape", 1)
            assert caught.value.kind == "tag-invalid"
        with pytest.raises(StoreError, match="what the ids of tags look like is kept under this name"):
            store.create_tag("unalike-formats\x1ftag 2 shape:order")
        # As the command adds it, for an operator who knows what can repeat.
        if isinstance(store, MemoryStore):
            assert store._create(format_name(owner, "shape", 2), TagOptions(start=9))
            assert [store.bind_format(owner, "shape", first) for first in (None, 7)] == [9, 9]
        store.close()
