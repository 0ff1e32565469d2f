"""What an id costs: python host/python/benches/bench.py [NAME ..]

Each line is the best of five. A store in memory answers, so that the host is measured and no database.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
sys.path.insert(0, str(SOURCE))

from unalike import AdaptiveStep, AsyncIds, FixedStep, Ids, TagOptions, formats  # noqa: E402
from unalike._component import CoreInstance  # noqa: E402
from unalike._requests import GrantOrder, InstanceRequests  # noqa: E402
from unalike.memory import MemoryStore  # noqa: E402

STEP = AdaptiveStep(step=1_000_000, min=1_000_000, max=1_000_000)


def best(act: Callable[[], object], count: int) -> float:
    """Nanoseconds for one."""
    found = []
    for _ in range(5):
        began = time.perf_counter_ns()
        act()
        found.append((time.perf_counter_ns() - began) / count)
    return min(found)


def opened() -> Ids:
    store = MemoryStore()
    store.create_tag("ticket", TagOptions(mode="ordered"))
    return Ids(segments=store, leases=store)


def next_id() -> None:
    with opened() as ids:
        orders = ids.sequence("order", step=STEP)

        def act() -> None:
            for _ in range(500_000):
                orders.next()

        print(f"next()                        {best(act, 500_000):12,.0f} ns")


def take() -> None:
    with opened() as ids:
        orders = ids.sequence("order", step=STEP)

        def taken() -> None:
            for _ in range(500):
                orders.take(1_000)

        def summed() -> None:
            for _ in range(500):
                sum(orders.take(1_000))

        print(f"take(1000)                    {best(taken, 500):12,.0f} ns")
        print(f"take(1000), each id used      {best(summed, 500_000):12,.1f} ns an id")


def snowflake() -> None:
    with opened() as ids:
        flakes = ids.snowflake("default", "twitter")

        def act() -> None:
            for _ in range(300_000):
                flakes.next()

        print(f"snowflake next()              {best(act, 300_000):12,.0f} ns")


def ordered() -> None:
    with opened() as ids:
        tickets = ids.sequence("ticket")

        def act() -> None:
            for _ in range(1_000):
                tickets.next()

        print(f"ordered next(), one caller    {best(act, 1_000):12,.0f} ns")


class _Answered:
    """Grants at once, within the call that asks."""

    segments = leases = None


def reserve() -> None:
    tickets: dict[int, dict[str, object]] = {}
    granted = [1]

    def allocate(tag: str, count: int, at_least: int) -> int:
        start = granted[0]
        granted[0] = start + count
        ticket = len(tickets) + 1
        segment = {"start": start, "end": start + count, "stride": 1, "generation": 0, "version": 1}
        tickets[ticket] = {"ok": segment}
        return ticket

    requests = InstanceRequests(_Answered(), dict[str, GrantOrder]())
    instance = CoreInstance({**requests.imports(), "segments.allocate": allocate, "segments.poll": tickets.get})
    options = {
        "step": 10**12,
        "step-min": 10**12,
        "step-max": 10**12,
        "grow-below-ms": 0,
        "shrink-above-ms": 0,
        "refill": {"share-consumed": 100},
        "prefetch": 1,
        "floor": 0,
        "id-max": 2**63 - 1,
    }
    handle = instance.call("sequence.open", "order", options)["ok"]
    instance.reserve("sequence.reserve", handle, 0, 1)

    def act() -> None:
        for now in range(50_000):
            instance.reserve("sequence.reserve", handle, now, 1_000)

    print(f"reserve, a call into wasm     {best(act, 50_000):12,.0f} ns")


def encode() -> None:
    def act() -> None:
        for id in range(1, 20_001):
            formats.encode(id, "base62")

    print(f"formats.encode                {best(act, 20_000):12,.0f} ns")


def coroutines() -> None:
    async def main() -> float:
        store = MemoryStore()
        async with AsyncIds(segments=store) as ids:
            orders = await ids.sequence("order", step=FixedStep(1_000_000))
            found = []
            for _ in range(5):
                began = time.perf_counter_ns()
                for _ in range(300_000):
                    await orders.next()
                found.append((time.perf_counter_ns() - began) / 300_000)
            return min(found)

    print(f"await next()                  {asyncio.run(main()):12,.0f} ns")


START = """
import time
began = time.perf_counter_ns()
from unalike import Ids
from unalike.memory import MemoryStore
imported = time.perf_counter_ns()
Ids(segments=MemoryStore()).sequence("order").next()
print(imported - began, time.perf_counter_ns() - imported)
"""


def start() -> None:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}

    def once() -> tuple[float, float]:
        ran = subprocess.run([sys.executable, "-c", START], env=environment, capture_output=True, check=True)
        imported, first = ran.stdout.split()
        return int(imported) / 1e6, int(first) / 1e6

    once()
    imported, first = min((once() for _ in range(7)), key=sum)
    print(f"import                        {imported:12,.1f} ms")
    print(f"first id                      {first:12,.1f} ms")


BENCHES = {act.__name__: act for act in (next_id, take, snowflake, ordered, reserve, encode, coroutines, start)}

if __name__ == "__main__":
    for name in sys.argv[1:] or BENCHES:
        BENCHES[name]()
