"""Coroutines: the event loop waits for no store, and a cancelled one loses nothing."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Coroutine
from typing import Any

import pytest
from servers import until
from stores import Gated
from test_ids import raised
from unalike import AsyncIds, FixedStep, Ids, IdsError, TagOptions
from unalike.memory import MemoryStore


def run(main: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(main, 60))


def ordered(store: MemoryStore) -> MemoryStore:
    store.create_tag("ticket", TagOptions(mode="ordered"))
    return store


def test_ids() -> None:
    async def main() -> None:
        store = ordered(MemoryStore())
        async with AsyncIds(segments=store, leases=store) as ids:
            orders, tickets = await ids.sequence("order"), await ids.sequence("ticket")
            flakes = await ids.snowflake("default", "twitter")
            assert [await orders.next(), await orders.next(), *(await orders.take(3))] == [1, 2, 3, 4, 5]
            assert [await tickets.next(), *(await tickets.take(2))] == [1, 2, 3]
            drawn = []
            async for id in orders:
                drawn.append(id)
                if len(drawn) == 100:
                    break
            assert drawn == list(range(6, 106)) and orders.try_next() == 106
            stamped = [await flakes.next(), *(await flakes.take(5_000))]
            async for id in flakes:
                stamped.append(id)
                break
            assert stamped == sorted(set(stamped))
            sub = await ids.sequence_of("order", "tenant")
            assert (await sub.next(), sub.tag, sub.sub, sub.mode) == (1, "order", "tenant", "buffered")
            assert orders.status().issued == 106 and flakes.status().worker == 0
            for count in (0, True, 2**32):
                with raised("argument_invalid"):
                    await orders.take(count)
        with raised("closed"):
            await orders.next()
        assert 107 <= store.allocate("order", 1, 0).start < 300, "a run in hand is a gap, and the segment goes back"

    run(main())


def test_many_coroutines() -> None:
    async def main() -> None:
        store = ordered(Gated(lambda what: time.sleep(0.001)))
        async with AsyncIds(segments=store) as ids:
            for tag in ("order", "ticket"):
                sequence = await ids.sequence(tag)

                async def draw(of: Any = sequence) -> list[int]:
                    return [await of.next() for _ in range(20)] + list(await of.take(5))

                drawn = await asyncio.gather(*(draw() for _ in range(200)))
                together = list(itertools.chain(*drawn))
                assert len(set(together)) == 5_000
                assert all(ids_of_one == sorted(ids_of_one) for ids_of_one in drawn)

    run(main())


def test_the_loop_goes_on_while_a_store_is_slow() -> None:
    async def main() -> None:
        go = threading.Event()
        store = ordered(Gated(lambda what: go.wait(60) and None))  # type: ignore[arg-type, return-value]
        ids = AsyncIds(segments=store, wait_max=30)
        for tag in ("order", "ticket"):
            go.clear()
            sequence = await ids.sequence(tag)
            waiting = asyncio.create_task(sequence.next())
            for _ in range(100):
                await asyncio.sleep(0)
            assert not waiting.done()
            go.set()
            assert await waiting == 1
        await ids.close()

    run(main())


def test_cancelling_loses_nothing() -> None:
    async def main() -> None:
        go = threading.Event()
        store = Gated(lambda what: go.wait(60) and None)  # type: ignore[arg-type, return-value]
        ids = AsyncIds(segments=store, wait_max=30)
        orders = await ids.sequence("order", step=FixedStep(10))
        waiting = [asyncio.create_task(orders.next()) for _ in range(10)]
        waiting += [asyncio.create_task(orders.take(3)) for _ in range(5)]  # type: ignore[misc]
        await asyncio.sleep(0)
        for task in waiting[::2]:
            task.cancel()
        go.set()
        found = await asyncio.gather(*waiting, return_exceptions=True)
        drawn: list[int] = []
        for one in found:
            if isinstance(one, int):
                drawn.append(one)
            elif not isinstance(one, BaseException):
                drawn.extend(one)
        assert sum(isinstance(one, asyncio.CancelledError) for one in found) == 8
        assert sorted(drawn) == list(range(1, len(drawn) + 1)), "none of theirs is lost"
        # At every moment: what is drawn is drawn in a row.
        for steps in range(40):
            task = asyncio.create_task(orders.take(7))
            for _ in range(steps % 7):
                await asyncio.sleep(0)
            task.cancel()
            try:
                drawn.extend(await task)
            except asyncio.CancelledError:
                pass
        drawn.append(await orders.next())
        assert sorted(drawn) == list(range(1, len(drawn) + 1))
        await ids.close()

    run(main())


def test_cancelling_between_the_answer_and_its_use() -> None:
    async def main() -> None:
        go = threading.Event()
        store = Gated(lambda what: go.wait(60) and None)  # type: ignore[arg-type]
        ids = AsyncIds(segments=store, wait_max=30)
        orders = await ids.sequence("order", step=FixedStep(1))
        drawn: list[int] = []
        for turn in range(60):
            go.clear()
            signal = orders._sequence._here.generator.signal
            task = asyncio.create_task(orders.next())
            await asyncio.sleep(0)
            seen = signal.version
            go.set()
            if not task.done():
                until(lambda: signal.version != seen)
            for _ in range(turn % 6):
                await asyncio.sleep(0)
            task.cancel()
            try:
                drawn.append(await task)
            except asyncio.CancelledError:
                pass
        drawn.extend(await orders.take(3))
        assert drawn == list(range(1, len(drawn) + 1))
        await ids.close()

    run(main())


def test_a_cancelled_ordered_caller_leaves_the_others_alone() -> None:
    async def main() -> None:
        go, asked = threading.Event(), threading.Event()

        def before(what: str) -> None:
            asked.set()
            go.wait(60)

        store = ordered(Gated(before))
        ids = AsyncIds(segments=store, wait_max=30)
        tickets = await ids.sequence("ticket")
        first = asyncio.create_task(tickets.next())
        await asyncio.sleep(0)
        until(asked.is_set)
        others = [asyncio.create_task(tickets.next()) for _ in range(6)]
        await asyncio.sleep(0)
        first.cancel()
        others[2].cancel()
        await asyncio.sleep(0)
        go.set()
        found = await asyncio.gather(first, *others, return_exceptions=True)
        assert [one for one in found if isinstance(one, int)] == [2, 3, 4, 5, 6], "1 is a gap"
        await ids.close()

    run(main())


def test_timeouts_of_the_caller() -> None:
    async def main() -> None:
        go = threading.Event()
        store = ordered(Gated(lambda what: go.wait(60) and None))  # type: ignore[arg-type, return-value]
        ids = AsyncIds(segments=store, wait_max=0.05, request_timeout=0.2)
        for tag in ("order", "ticket"):
            sequence = await ids.sequence(tag)
            with raised("timeout"):
                await sequence.next()
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(sequence.next(), 0.01)
        go.set()
        await ids.close()

    run(main())


def test_closing_is_not_cancelled() -> None:
    async def main() -> None:
        go, released = threading.Event(), threading.Event()

        class Slow(MemoryStore):
            def release(self, tag: str, tail: Any) -> bool:
                released.set()
                go.wait(60)
                return super().release(tag, tail)

        store = Slow()
        ids = AsyncIds(segments=store)
        await (await ids.sequence("order")).next()
        closing = [asyncio.create_task(ids.close()) for _ in range(3)]
        await asyncio.sleep(0)
        until(released.is_set)
        closing[0].cancel()
        await asyncio.sleep(0)
        go.set()
        await asyncio.gather(*closing[1:])
        assert store.allocate("order", 1, 0).start == 2

    run(main())


def test_loops_and_threads_share_ids() -> None:
    shared = Ids(segments=MemoryStore())
    drawn: list[int] = []

    async def main() -> None:
        orders = await AsyncIds.of(shared).sequence("order")
        for _ in range(300):
            drawn.append(await orders.next())

    threads = [threading.Thread(target=lambda: run(main())) for _ in range(3)]
    for thread in threads:
        thread.start()
    orders = shared.sequence("order")
    drawn.extend([orders.next() for _ in range(300)])
    for thread in threads:
        thread.join()
    assert sorted(drawn) == list(range(1, 1_201))
    shared.close()


def test_a_loop_that_ended_before_the_answer() -> None:
    go = threading.Event()
    store = Gated(lambda what: go.wait(60) and None)  # type: ignore[arg-type, return-value]
    ids = Ids(segments=store, wait_max=30)

    async def main() -> None:
        orders = await AsyncIds.of(ids).sequence("order")
        asyncio.create_task(orders.next())
        await asyncio.sleep(0)

    asyncio.run(main())
    go.set()
    assert ids.sequence("order").next() == 1
    ids.close()


def test_errors_reach_the_coroutine() -> None:
    async def main() -> None:
        async with AsyncIds(leases=MemoryStore()) as ids:
            with pytest.raises(IdsError, match="segments="):
                await ids.sequence("order")

    run(main())
