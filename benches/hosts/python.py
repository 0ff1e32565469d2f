"""What ids cost in Python: python python.py CASE URL MILLISECONDS prints the nanoseconds for one, or the first id."""

from __future__ import annotations

import sys

name, url, milliseconds = sys.argv[1:]
CALLERS = 50


def opened():
    from unalike import Ids

    if url == "-":
        from unalike.memory import MemoryStore

        return Ids(segments=MemoryStore())
    from unalike.remote import RemoteStore

    return Ids(segments=RemoteStore(url))


def measure(count, work):
    import time

    work()
    began = time.perf_counter_ns()
    end = began + int(milliseconds) * 1_000_000
    now, done = began, 0
    while now < end:
        work()
        done += count
        now = time.perf_counter_ns()
    print((now - began) / done)


def options():
    from unalike import FixedStep

    return {} if url != "-" else {"step": FixedStep(10_000_000)}


def first():
    with opened() as ids:
        print(ids.sequence("order").next(), flush=True)


def single():
    with opened() as ids:
        orders = ids.sequence("order", **options())

        def work():
            for _ in range(1_000):
                orders.next()

        measure(1_000, work)


def batch():
    with opened() as ids:
        orders = ids.sequence("order", **options())
        measure(1_000, lambda: sum(orders.take(1_000)))


def runs():
    with opened() as ids:
        orders = ids.sequence("order", **options())
        measure(1_000, lambda: orders.take(1_000))


def ordered():
    """Callers on threads of their own, as in a server with a pool of them."""
    from concurrent.futures import ThreadPoolExecutor

    with opened() as ids, ThreadPoolExecutor(CALLERS) as pool:
        tickets = ids.sequence("ticket")

        def caller(_):
            for _ in range(10):
                tickets.next()

        measure(CALLERS * 10, lambda: list(pool.map(caller, range(CALLERS))))


{"first": first, "single": single, "batch": batch, "runs": runs, "ordered": ordered}[name]()
