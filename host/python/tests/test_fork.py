"""Forks: a child has none of its parent's numbers, and waits for none of its locks."""

from __future__ import annotations

import _thread
import copy
import ctypes
import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from stores import FileStore
from unalike import FixedStep, Ids, IdsError, Segment, StoreError, formats
from unalike._process import MARK, current
from unalike.memory import MemoryStore
from unalike.sequence import Buffered

SOURCE = Path(__file__).parents[1] / "src"
LINUX = sys.platform == "linux"
LIMIT_S = 30
# With the interpreter's lock held, as a C extension that forks would.
LIBC = ctypes.PyDLL(None)


def by_fork() -> int:
    return os.fork()


def by_underscore_fork() -> int:
    """No handler hears of it: neither Python's nor those of pthread_atfork."""
    return int(LIBC._Fork())


def by_system_call() -> int:
    """clone(SIGCHLD), which the C library does not hear of either."""
    number = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
    return int(LIBC.syscall(number, signal.SIGCHLD, 0, 0, 0, 0))


@pytest.fixture(autouse=True)
def no_thread_is_interrupted() -> Iterator[None]:
    """A thread that is about to wait does so before another one gets the interpreter's lock."""
    interval = sys.getswitchinterval()
    # Those of earlier tests.
    while _thread._count() > 0:
        time.sleep(0.001)
    sys.setswitchinterval(1_000)
    yield
    sys.setswitchinterval(interval)


FORKS = [by_fork, by_underscore_fork, by_system_call] if LINUX else [by_fork]


class Child:
    """A child that does something, and tells what came of it."""

    def __init__(self, fork: Callable[[], int], act: Callable[[], Any]) -> None:
        read, write = os.pipe()
        self._read = read
        self.pid = fork()
        assert self.pid >= 0
        if self.pid == 0:
            signal.alarm(LIMIT_S)
            sys.setswitchinterval(0.005)
            try:
                told = json.dumps({"ok": act()})
            except BaseException:  # noqa: BLE001
                told = json.dumps({"failed": traceback.format_exc()})
            with open(write, "w") as pipe:
                pipe.write(told)
            os._exit(0)
        os.close(write)

    def told(self) -> Any:
        with open(self._read) as pipe:
            told = pipe.read()
        _, status = os.waitpid(self.pid, 0)
        assert told, f"the child ended with the status {status}, without a word: it hung or crashed"
        answer = json.loads(told)
        assert "ok" in answer, answer["failed"]
        return answer["ok"]


class Drawing:
    """Threads that draw ids until they are stopped."""

    def __init__(self, draw: Callable[[], list[int]], threads: int = 3) -> None:
        self.ids: list[int] = []
        self._draw, self._stop = draw, threading.Event()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            self.ids.extend(self._draw())

    def stop(self) -> list[int]:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        return self.ids


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ids.sqlite"


def distinct(*parts: list[int]) -> None:
    ids = [id for part in parts for id in part]
    assert len(ids) == len(set(ids)) > 0


@pytest.mark.parametrize("mode", ["buffered", "ordered"])
def test_children_while_threads_draw(path: Path, mode: str) -> None:
    """Requests are in flight and locks are held at any moment."""
    ids = Ids(segments=FileStore(path, mode, FixedStep(50)))
    orders = ids.sequence("order")
    first = [orders.next() for _ in range(20)]
    drawing = Drawing(lambda: [orders.next() for _ in range(20)])
    children = []
    for _ in range(8):
        children.append(Child(by_fork, lambda: [orders.next() for _ in range(500)]))
        time.sleep(0)
    drawn = [child.told() for child in children]
    parent = drawing.stop()
    distinct(first, parent, *drawn)
    assert all(len(ids_of_one) == 500 and ids_of_one == sorted(ids_of_one) for ids_of_one in drawn)
    ids.close()


@pytest.mark.parametrize("fork", FORKS)
@pytest.mark.parametrize("mode", ["buffered", "ordered"])
def test_children_of_any_fork(path: Path, fork: Callable[[], int], mode: str) -> None:
    """Also of forks that neither Python nor the C library hears of.

    No other thread runs then: the interpreter itself does not survive such a fork while another one asks for its lock.
    """
    ids = Ids(segments=FileStore(path, mode, FixedStep(50)))
    orders = ids.sequence("order")
    mine: list[int] = []
    children = []
    for _ in range(8):
        mine += [orders.next() for _ in range(77)]
        is_quiet(ids)
        children.append(Child(fork, lambda: [orders.next() for _ in range(500)]))
    drawn = [child.told() for child in children]
    distinct(mine, [orders.next() for _ in range(500)], *drawn)
    ids.close()


def is_quiet(ids: Ids) -> None:
    """Waits until the host's threads have nothing to do and sleep, and no others run."""
    pool = ids._here.storage.pool
    while True:
        threads = pool._THREADS_MAX - len(pool._places)
        is_idle = len(pool._idle) == threads == _thread._count() and pool._jobs.empty()
        if is_idle and others_sleep():
            return
        time.sleep(0.001)


def others_sleep() -> bool:
    """Whether each other thread is inside the kernel. One on its way there may hold a lock of the interpreter's or of
    the C library's, which is then taken for ever in a child that they do not hear of."""
    if not LINUX:
        return True
    states = {}
    for thread in Path("/proc/self/task").iterdir():
        try:
            states[int(thread.name)] = (thread / "stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return False
    del states[threading.get_native_id()]
    return all(state == "S" for state in states.values())


@pytest.mark.parametrize("fork", FORKS)
def test_snowflakes_of_children(path: Path, fork: Callable[[], int]) -> None:
    # The thread that renews leases would be one that runs: test_renewal.py forks beside it.
    ids = Ids(leases=FileStore(path), renew_leases=False)
    flakes = ids.snowflake("default", "twitter")
    first = [flakes.next() for _ in range(100)]
    is_quiet(ids)
    children = [Child(fork, lambda: [*flakes.take(3_000), flakes.next(), flakes.status().worker]) for _ in range(4)]
    drawn = [child.told() for child in children]
    workers = [ids_of_one.pop() for ids_of_one in drawn]
    distinct(first, [flakes.next() for _ in range(100)], *drawn)
    assert len({*workers, flakes.status().worker}) == 5
    ids.close()


@pytest.mark.parametrize("fork", FORKS)
def test_locks_that_were_held_are_not_waited_for(path: Path, fork: Callable[[], int]) -> None:
    """Another thread holds every lock of the library's at the fork."""
    ids = Ids(segments=FileStore(path), leases=FileStore(path))
    orders, flakes = ids.sequence("order"), ids.snowflake("default", "twitter")
    orders.next(), flakes.next(), formats.encode(1, "base62")
    held, go = threading.Event(), threading.Event()
    home = ids._here
    assert isinstance(orders._here, Buffered)
    locks: list[Any] = [home.lane._lock, orders._here._lock, flakes._here._lock]
    locks += [ids._renewing.get(), formats._shared._lock.get()]

    def hold() -> None:
        for lock in locks:
            lock.acquire()
        held.set()
        go.wait()
        for lock in reversed(locks):
            lock.release()

    holder = threading.Thread(target=hold, daemon=True)
    holder.start()
    held.wait()

    def act() -> list[int]:
        mine = [orders.next() for _ in range(5)] + [flakes.next(), len(formats.encode(1, "base62"))]
        ids.sequence("invoice").next()
        ids.close()
        return mine

    child = Child(fork, act)
    assert len(child.told()) == 7
    go.set()
    holder.join()
    assert orders.next() > 0
    ids.close()


@pytest.mark.parametrize("fork", FORKS)
def test_a_grandchild_whose_parent_never_looked(path: Path, fork: Callable[[], int]) -> None:
    ids = Ids(segments=FileStore(path))
    orders = ids.sequence("order")
    mine = [orders.next() for _ in range(300)]

    def act() -> Any:
        return Child(fork, lambda: [orders.next() for _ in range(300)]).told()

    is_quiet(ids)
    theirs = Child(fork, act).told()
    distinct(mine, theirs, [orders.next() for _ in range(300)])
    ids.close()


def test_a_fork_while_a_request_is_out(path: Path) -> None:
    """The parent's answer is the parent's: the child asks for itself."""
    is_asked, go = threading.Event(), threading.Event()
    parent = os.getpid()

    class Slow(FileStore):
        def allocate(self, tag: str, count: int, at_least: int) -> Segment:
            if os.getpid() == parent:
                is_asked.set()
                go.wait(LIMIT_S)
            return super().allocate(tag, count, at_least)

    ids = Ids(segments=Slow(path))
    orders = ids.sequence("order")
    found: list[int] = []
    waiting = threading.Thread(target=lambda: found.append(orders.next()))
    waiting.start()
    assert is_asked.wait(LIMIT_S)
    child = Child(by_fork, lambda: [orders.next() for _ in range(3)])
    assert child.told() == [1, 2, 3]
    go.set()
    waiting.join()
    assert found == [1_001], "behind the segment of the child"
    ids.close()


def test_a_child_gives_nothing_back_that_is_its_parents(path: Path) -> None:
    store = FileStore(path, step=FixedStep(1_000))
    ids = Ids(segments=store)
    orders = ids.sequence("order")
    assert orders.next() == 1

    def act() -> int:
        ids.close()
        return store.end("order")

    assert Child(by_fork, act).told() == 1_001
    assert orders.next() == 2
    ids.close()
    assert store.end("order") < 20


def test_closed_before_the_fork_is_closed_after_it(path: Path) -> None:
    ids = Ids(segments=FileStore(path))
    orders = ids.sequence("order")
    ids.close()

    def act() -> str:
        try:
            orders.next()
        except Exception as error:  # noqa: BLE001
            return getattr(error, "kind", repr(error))
        return "handed out"

    assert Child(by_fork, act).told() == "closed"


@pytest.mark.parametrize("fork", FORKS)
def test_every_child_is_another_process(fork: Callable[[], int]) -> None:
    mine = current()

    def act() -> list[int]:
        before = MARK[0]
        return [before, current(), Child(fork, current).told()]

    before, child, grandchild = Child(fork, act).told()
    assert (before if fork is not by_fork else 0) == 0
    assert mine < child < grandchild
    assert MARK[0] == mine


WORKER: Any = None


def worker_ids() -> Any:
    """What a worker process makes for itself, or inherits."""
    global WORKER
    if WORKER is None:
        WORKER = Ids(segments=FileStore(Path(os.environ["UNALIKE_TEST_PATH"]), step=FixedStep(500))).sequence("order")
    return WORKER


def draw(count: int) -> list[int]:
    return [worker_ids().next() for _ in range(count)]


@pytest.fixture
def worker_path(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    global WORKER
    monkeypatch.setenv("UNALIKE_TEST_PATH", str(path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(SOURCE), str(Path(__file__).parent)]))
    yield
    if WORKER is not None:
        WORKER._ids.close()
    WORKER = None


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_multiprocessing(worker_path: None, method: str) -> None:
    mine = draw(1_000)
    drawing = Drawing(lambda: draw(10), threads=2)
    with multiprocessing.get_context(method).Pool(8) as pool:
        theirs = pool.map(draw, [2_000] * 16, chunksize=1)
    distinct(mine, drawing.stop(), *theirs)


@pytest.mark.parametrize("fork", FORKS)
def test_a_store_in_memory_grants_nothing_in_a_child(fork: Callable[[], int]) -> None:
    """Its copy would grant what the parent's grants; and a thread of the parent's may hold its lock."""
    store = MemoryStore()
    ids = Ids(segments=store, renew_leases=False)
    orders = ids.sequence("order")
    first = orders.take(10)

    def act() -> list[str]:
        said = []
        for ask in (lambda: store.allocate("order", 1, 0), lambda: store.identity(), lambda: orders.next()):
            try:
                ask()
            except (StoreError, IdsError) as error:
                said.append(f"{error.kind} {error.is_retryable} {error}")
        return said

    with store._lock:
        child = Child(fork, act)
    said = child.told()
    assert len(said) == 3 and said[0].startswith("refused False") and said[2].startswith("store False")
    assert all("make one in each process" in each for each in said)
    assert orders.next() == 11 and list(first) == list(range(1, 11))
    ids.close()


def test_compiling_in_a_child_does_not_hang(tmp_path: Path) -> None:
    """The parent has compiled one component, with threads if it could; its child compiles the other."""
    program = """
import os, sys
from unalike import formats
formats.encode(1, "base62")
pid = os.fork()
if pid == 0:
    from unalike import Ids
    from unalike.memory import MemoryStore
    with Ids(segments=MemoryStore()) as ids:
        assert ids.sequence("order").next() == 1
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": str(SOURCE)}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=LIMIT_S)


def test_pickling_is_refused_in_words(path: Path) -> None:
    ids = Ids(segments=FileStore(path), leases=FileStore(path))
    for what in (ids, ids.sequence("order"), ids.snowflake("default", "twitter")):
        for copying in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="cannot be pickled or copied: .* Make an Ids in each process"):
                copying(what)
    ids.close()
