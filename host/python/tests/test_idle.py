"""Sequences that nobody has and nobody used for a time are closed."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mariadb import fresh_database
from servers import until
from stores import FileStore, Gated
from test_fork import Child, by_fork
from unalike import AsyncIds, FixedStep, Ids, IdsError, TagOptions
from unalike.memory import MemoryStore
from unalike.mysql import MysqlStore
from unalike.sqlite import SqliteStore

STEP = FixedStep(100)


@pytest.fixture(params=["memory", "sqlite", "mysql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    made: Any
    if request.param == "memory":
        made = MemoryStore()
    elif request.param == "sqlite":
        made = SqliteStore(tmp_path / "ids.sqlite")
    else:
        made = MysqlStore(fresh_database())
    yield made
    made.close()


def test_what_is_idle_and_has_no_handle_is_closed_and_its_tail_given_back(store: Any) -> None:
    store.create_tag("ordered", TagOptions(mode="ordered"))
    ids = Ids(segments=store)
    held = ids.sequence("held", step=STEP)
    assert list(held.take(10)) == list(range(1, 11))
    for tag in ("buffered", "ordered"):
        assert list(ids.sequence(tag, step=STEP).take(10)) == list(range(1, 11))
    ids.sequence_of("buffered", "tenant", step=STEP).next()
    ids.sequence("untouched")
    assert ids.close_idle(3_600) == 0, "none was idle for so long"
    closed = 0

    def all_closed() -> bool:
        nonlocal closed
        closed += ids.close_idle(0)
        return closed == 4

    until(all_closed)
    assert ids.close_idle(0) == 0
    assert set(ids._here._open) == set(ids._sequences) == set(ids._here.lane.orders) == {"held"}
    assert list(held.take(90)) == list(range(11, 101)), "whoever holds a handle notices nothing"
    # The tail went back, and other options may be given.
    until(lambda: not ids._here.storage._under_way)
    again = ids.sequence("buffered", step=FixedStep(7))
    assert list(again.take(7)) == list(range(11, 18))
    assert ids.sequence_of("buffered", "tenant").next() == 2
    assert ids.sequence("ordered").next() == 11
    ids.close()
    assert ids.close_idle(0) == 0
    assert store.allocate("buffered", 1, 0).start == 18


def test_one_that_is_open_without_a_handle_is_the_same_one() -> None:
    with Ids(segments=MemoryStore()) as ids:
        assert ids.sequence("order", step=STEP).next() == 1
        assert ids.sequence("order", step=STEP).next() == 2
        with pytest.raises(IdsError) as error:
            ids.sequence("order", step=FixedStep(7))
        assert error.value.kind == "open_otherwise"
        held = ids.sequence("order", step=STEP)
        assert held is ids.sequence("order", step=STEP)
        assert ids.close_idle(0) == 0
        next_id = held.next
        del held
        assert ids.close_idle(0) == 0 and next_id() == 3, "what is bound to it has it"
        # What was raised has its frames, and they have the sequence.
        del next_id, error
        gc.collect()
        assert ids.close_idle(0) == 1


def test_use_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000.0
    monkeypatch.setattr("unalike.ids.time.monotonic", lambda: now)
    with Ids(segments=MemoryStore()) as ids:
        ids.sequence("order").next()
        assert ids.close_idle(60) == 0
        now += 59
        ids.sequence("order").next()
        assert ids.close_idle(60) == 0
        now += 59
        assert ids.close_idle(60) == 0, "it was used a minute ago"
        now += 1
        assert ids.close_idle(60) == 1


def test_a_sequence_that_waits_for_the_store_is_not_closed() -> None:
    for mode in ("buffered", "ordered"):
        go = threading.Event()
        store = Gated(lambda what, go=go: go.wait(60) and None)  # type: ignore[misc]
        store.create_tag("order", TagOptions(mode=mode))  # type: ignore[arg-type]
        ids = Ids(segments=store, wait_max=0.05)
        with pytest.raises(IdsError):
            ids.sequence("order", step=STEP).next()
        # What was raised has its frames, and they have the sequence.
        gc.collect()
        assert store.asked == 1 and ids.close_idle(0) == 0 and ids._sequences["order"].handle() is None
        go.set()
        until(lambda: gc.collect() >= 0 and ids.close_idle(0) == 1)
        ids.close()
        assert store.allocate("order", 1, 0).start == (1 if mode == "buffered" else 2), "what was granted went back"


def test_sequences_that_come_and_go_give_no_id_twice_and_ids_ascend(tmp_path: Path) -> None:
    """Four threads use them, and a fifth closes them, for as long as it takes to close some in between."""
    ids = Ids(segments=FileStore(tmp_path / "ids", step=FixedStep(20)))
    drawn: list[list[tuple[str, int]]] = [[] for _ in range(4)]
    newest = {f"tag-{number}": 0 for number in range(4)}
    closed, descending = 0, 0

    def use(number: int) -> None:
        nonlocal descending
        at = 0
        while at < 150 or closed <= 10:
            tag = f"tag-{(number + at) % 4}"
            before = newest[tag]
            batch = list(ids.sequence(tag).take(at % 30 + 1))
            descending += batch[0] <= before
            newest[tag] = max(newest[tag], batch[-1])
            drawn[number] += [(tag, id) for id in batch]
            at += 1

    threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        closed += ids.close_idle(0)
    ids.close()
    every = [one for of in drawn for one in of]
    assert len(every) == len(set(every)) >= 4 * 150 and closed > 10 and descending == 0


def test_a_trap_in_between() -> None:
    with Ids(segments=MemoryStore()) as ids:
        assert ids.sequence("order", step=STEP).next() == 1
        ids._here.lane._give_up()
        assert ids.close_idle(0) == 1, "it is open in no instance"
        assert ids.sequence("order", step=STEP).next() == 101


def test_a_forked_child_closes_nothing_of_its_parents(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "ids", step=STEP)
    with Ids(segments=store) as ids:
        ids.sequence("order").next()

        def act() -> list[int]:
            found = [ids.close_idle(0), store.end("order")]
            return [*found, ids.sequence("order").next(), ids.close_idle(0)]

        assert Child(by_fork, act).told() == [0, 101, 101, 1]
        assert ids.sequence("order").next() == 2
        assert ids.close_idle(0) == 1


def test_coroutines() -> None:
    async def main() -> None:
        async with AsyncIds(segments=MemoryStore()) as ids:
            orders = await ids.sequence("order", step=STEP)
            assert await orders.next() == 1
            assert ids.close_idle(0) == 0
            del orders
            assert ids.close_idle(0) == 1

    asyncio.run(main())


@pytest.mark.parametrize("idle", [-1, float("nan"), "1", None, True])
def test_times_that_are_none(idle: Any) -> None:
    with Ids(segments=MemoryStore()) as ids, pytest.raises(IdsError) as error:
        ids.close_idle(idle)
    assert error.value.kind == "argument_invalid"
