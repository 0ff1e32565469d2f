"""Leases that nobody asks for ids are renewed: on real stores, over forks, and at the end of a process."""

from __future__ import annotations

import asyncio
import atexit
import gc
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from mariadb import fresh_database
from redis_servers import RedisProcess
from servers import serving, until
from stores import FileStore
from test_fork import Child, by_fork
from unalike import AsyncIds, Ids, Lease, LeaseAcquire, LeaseExtend, StoreError
from unalike.memory import MemoryStore
from unalike.mysql import MysqlStore
from unalike.redis import RedisStore
from unalike.remote import RemoteStore
from unalike.sqlite import SqliteStore

SOURCE = Path(__file__).parents[1] / "src"
HORIZON_MS = 900


class Watched:
    """A lease store, and what it was asked and granted."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.acquired: list[Lease] = []
        self.extended: list[Lease] = []
        self.failed: list[StoreError] = []
        self.released: list[int] = []
        self.late = 0
        """Extensions that were asked for when the lease had ended."""

    def acquire(self, request: LeaseAcquire) -> Lease:
        return self._watched(self.acquired, lambda: self._store.acquire(request))

    def extend(self, request: LeaseExtend) -> Lease:
        newest = (self.extended or self.acquired)[-1]
        self.late += request.now_ms >= newest.valid_until_ms
        return self._watched(self.extended, lambda: self._store.extend(request))

    def release_lease(self, namespace: str, worker: int, grant_id: int, end_ms: int) -> bool:
        self.released.append(worker)
        taken: bool = self._store.release_lease(namespace, worker, grant_id, end_ms)
        return taken

    def lease_identity(self) -> Any:
        return self._store.lease_identity()

    def close(self) -> None:
        self._store.close()

    def _watched(self, granted: list[Lease], ask: Callable[[], Lease]) -> Lease:
        try:
            lease = ask()
        except StoreError as error:
            self.failed.append(error)
            raise
        granted.append(lease)
        return lease


def renewing_threads() -> int:
    """How many threads of this process renew leases."""
    stacks = [traceback.extract_stack(frame) for frame in sys._current_frames().values()]
    return sum(any(Path(entry.filename).name == "_renewal.py" for entry in stack[:1]) for stack in stacks)


@pytest.fixture(autouse=True)
def every_test_ends_its_threads() -> Iterator[None]:
    assert renewing_threads() == 0
    yield
    until(lambda: renewing_threads() == 0)


@pytest.fixture(params=["memory", "sqlite", "mysql", "redis", "server"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Watched]:
    with ExitStack() as stack:
        made: Any
        if request.param == "memory":
            made = MemoryStore()
        elif request.param == "sqlite":
            made = SqliteStore(tmp_path / "ids.sqlite")
        elif request.param == "mysql":
            made = MysqlStore(fresh_database())
        elif request.param == "redis":
            backing = SqliteStore(tmp_path / "ids.sqlite")
            stack.callback(backing.close)
            server = RedisProcess(tmp_path)
            stack.callback(server.kill)
            made = RedisStore(server.url, backing=backing)
        else:
            made = RemoteStore(stack.enter_context(serving(tmp_path / "ids.sqlite")).url)
        watched = Watched(made)
        stack.callback(watched.close)
        yield watched


def test_a_lease_that_nobody_uses_stays_valid(store: Watched) -> None:
    with Ids(leases=store) as ids:
        flakes = ids.snowflake("default", "twitter", horizon_ms=HORIZON_MS)
        first = flakes.next()
        (lease,) = store.acquired
        until(lambda: len(store.extended) >= 5)
        assert store.extended[-1].valid_until_ms > lease.valid_until_ms + HORIZON_MS
        # A machine may stand still once.
        assert store.late <= 1
        assert {(of.worker, of.grant_id) for of in store.extended} == {(lease.worker, lease.grant_id)}
        assert flakes.next() > first
        assert len(store.acquired) == 1 and renewing_threads() == 1
    assert store.released == [lease.worker] and renewing_threads() == 0


def test_the_thread_starts_with_the_first_lease_and_takes_none_by_itself() -> None:
    store = Watched(MemoryStore())
    with Ids(segments=MemoryStore(), leases=store) as ids:
        ids.sequence("order").next()
        used, unused = ids.snowflake("used", "twitter", horizon_ms=HORIZON_MS), ids.snowflake("unused", "twitter")
        assert renewing_threads() == 0
        used.next()
        until(lambda: len(store.extended) >= 2)
        assert len(store.acquired) == 1
        unused.next()
        assert len(store.acquired) == 2 and renewing_threads() == 1


def test_the_shortest_horizon_counts() -> None:
    """Also that of a snowflake that comes later."""
    store = Watched(MemoryStore())
    with Ids(leases=store) as ids:
        ids.snowflake("long", "twitter", horizon_ms=86_400_000).next()
        until(lambda: renewing_threads() == 1)
        ids.snowflake("short", "twitter", horizon_ms=HORIZON_MS).next()
        until(lambda: len(store.extended) >= 3)
        assert len(store.acquired) == 2


def test_it_may_be_turned_off() -> None:
    store = Watched(MemoryStore())
    with Ids(leases=store, renew_leases=False) as ids:
        flakes = ids.snowflake("default", "twitter", horizon_ms=HORIZON_MS)
        flakes.next()
        assert renewing_threads() == 0
        until(lambda: ids.renew_leases() or store.extended)
        assert renewing_threads() == 0


def test_coroutines() -> None:
    async def main() -> None:
        store = Watched(MemoryStore())
        async with AsyncIds(leases=store) as ids:
            flakes = await ids.snowflake("default", "twitter", horizon_ms=HORIZON_MS)
            await flakes.next()
            # The event loop is blocked meanwhile.
            until(lambda: len(store.extended) >= 2)
        assert renewing_threads() == 0
        async with AsyncIds(leases=store, renew_leases=False) as ids:
            await (await ids.snowflake("default", "twitter")).next()
            assert renewing_threads() == 0

    asyncio.run(main())


def test_an_ids_that_nobody_has_any_more_leaves_no_thread() -> None:
    ids = Ids(leases=MemoryStore())
    ids.snowflake("default", "twitter", horizon_ms=HORIZON_MS).next()
    until(lambda: renewing_threads() == 1)
    del ids
    until(lambda: gc.collect() >= 0 and renewing_threads() == 0)


def test_a_rebuilt_component_takes_another_lease_by_itself() -> None:
    store = Watched(MemoryStore())
    with Ids(leases=store) as ids:
        flakes = ids.snowflake("default", "twitter", horizon_ms=HORIZON_MS)
        flakes.next()
        ids._here.lane._give_up()
        until(lambda: len(store.acquired) == 2 and len(store.extended) >= 2)


def test_a_store_that_is_down_is_not_asked_in_a_loop(tmp_path: Path) -> None:
    """The clock is looked at once per look into the component."""
    looks = 0

    def clock() -> int:
        nonlocal looks
        looks += 1
        return time.time_ns() // 1_000_000

    with serving(tmp_path / "ids.sqlite") as server:
        store = Watched(RemoteStore(server.url))
        with Ids(leases=store, clock=clock) as ids:
            flakes = ids.snowflake("default", "twitter", horizon_ms=HORIZON_MS)
            flakes.next()
            until(lambda: store.extended)
            server.kill()
            failed = len(store.failed)
            looks, began = 0, time.monotonic()
            until(lambda: len(store.failed) >= failed + 3)
            made, seconds = looks, time.monotonic() - began
            # One per turn of a tenth of a second, one per answer, and the ones that had begun.
            assert made <= seconds / 0.1 + len(store.failed) + 3
            server.restart()
            granted = len(store.acquired) + len(store.extended)
            until(lambda: len(store.acquired) + len(store.extended) > granted)
            assert flakes.next() > 0
        store.close()


def test_a_fault_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    is_broken = False

    def clock() -> int:
        if is_broken:
            raise OSError("no clock")
        return time.time_ns() // 1_000_000

    store = Watched(MemoryStore())
    with Ids(leases=store, clock=clock) as ids:
        ids.snowflake("default", "twitter", horizon_ms=HORIZON_MS).next()
        is_broken = True
        until(lambda: "leases were not looked after: OSError('no clock')" in caplog.text)
        is_broken = False
        extended = len(store.extended)
        until(lambda: len(store.extended) > extended)


def test_forks_while_it_runs(tmp_path: Path) -> None:
    """Each child has a lease of its own, and a thread for it only then."""
    store = FileStore(tmp_path / "ids")
    with Ids(leases=store) as ids:
        flakes = ids.snowflake("default", "twitter", horizon_ms=300)
        flakes.next()
        workers = [flakes.status().worker]

        def act() -> list[Any]:
            before = renewing_threads()
            drawn = [flakes.next() for _ in range(100)]
            worker = flakes.status().worker
            renewed, extend = threading.Event(), store.extend

            def extended(request: LeaseExtend) -> Lease:
                renewed.set()
                return extend(request)

            store.extend = extended  # type: ignore[method-assign]
            is_renewed = renewed.wait(20)
            during = renewing_threads()
            ids.close()
            return [worker, [before, is_renewed, during, renewing_threads()], drawn]

        children = [Child(by_fork, act) for _ in range(12)]
        told = [child.told() for child in children]
        drawn = []
        for worker, found, ids_of_one in told:
            assert found == [0, True, 1, 0]
            workers.append(worker)
            drawn += ids_of_one
        assert len(set(workers)) == 13 and len(set(drawn)) == 1_200
        assert renewing_threads() == 1 and flakes.next() not in drawn


def test_children_end_with_the_thread_and_without_it(tmp_path: Path) -> None:
    with Ids(leases=FileStore(tmp_path / "ids")) as ids:
        flakes = ids.snowflake("default", "twitter", horizon_ms=300)
        flakes.next()

        def ended() -> int:
            # As at the end of the interpreter.
            atexit._run_exitfuncs()
            return renewing_threads()

        def used_and_ended() -> list[int]:
            flakes.next()
            until(lambda: renewing_threads() == 1)
            return [ended()]

        assert Child(by_fork, ended).told() == 0
        assert Child(by_fork, used_and_ended).told() == [0]
        assert flakes.next() > 0
        assert renewing_threads() == 1


PROGRAM = """
import sys, threading
from unalike import Ids
from unalike.memory import MemoryStore
is_out, is_stuck = threading.Event(), False
class Slow(MemoryStore):
    def extend(self, request):
        is_out.set()
        if is_stuck:
            threading.Event().wait()
        return super().extend(request)
ids = Ids(leases=Slow())
for number in range(30):
    ids.snowflake(f"ns-{number}", "twitter", horizon_ms=300).next()
is_stuck = "stuck" in sys.argv
is_out.clear()
assert is_out.wait(60)
print("ends")
"""


@pytest.mark.parametrize("how", ["quick", "stuck"])
def test_a_process_ends_at_once_while_it_runs(how: str) -> None:
    for _ in range(5):
        ended = subprocess.run(
            [sys.executable, "-c", PROGRAM, how],
            env={"PYTHONPATH": str(SOURCE)},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "ends\n", "")
