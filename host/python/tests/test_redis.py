"""The store in Redis as Python has it: on real servers, over SQLite files and durable stores of a program's own.

What the Rust host decides has its tests there.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

import pytest
from mariadb import free_port
from redis_servers import RedisProcess, Switched, eventually
from servers import Authority, stop

from unalike.lease_rules import LeaseLimits
from unalike.memory import MemoryStore
from unalike.redis import RedisStore
from unalike.sqlite import SqliteStore
from unalike.store import (
    ID_MAX,
    AdaptiveStep,
    Layout,
    Lease,
    LeaseAcquire,
    LeaseExtend,
    Remaining,
    Segment,
    StoreError,
    TagOptions,
    TailRelease,
)

LAYOUT = Layout(41, 0, 4, 12, "worker-first", 1_288_834_974_657, 1)


class Shared:
    """A Redis, a durable store in a file, and what opens stores over both."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "ids.sqlite"
        self._closing: list[Callable[[], None]] = []

    def redis(self, *settings: str) -> RedisProcess:
        server = RedisProcess(self.folder, *settings)
        self._closing.append(server.kill)
        return server

    def open(
        self, url: str, parameters: str = "raise-min=100", backing: Any = None, **options: Any
    ) -> tuple[RedisStore, Switched]:
        below = Switched(SqliteStore(self.path)) if backing is None else backing
        store = RedisStore(f"{url}?{parameters}", backing=below, **options)
        self._closing.append(store.close)
        return store, below

    def close(self) -> None:
        for close in reversed(self._closing):
            close()


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Shared]:
    opened = Shared(tmp_path)
    yield opened
    opened.close()


def numbers(segments: list[Segment]) -> list[int]:
    """All numbers of what was granted; they must differ."""
    everything = [number for segment in segments for number in range(segment.start, segment.end)]
    assert len(set(everything)) == len(everything), "a number was granted twice"
    return everything


@contextmanager
def fails(kind: str, message: Optional[str] = None) -> Iterator[Any]:
    with pytest.raises(StoreError, match=message) as failure:
        yield failure
    assert failure.value.kind == kind, failure.value


def now_ms() -> int:
    return int(time.time() * 1_000)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        (None, "the address is None: is its environment variable set?"),
        ("", "is empty"),
        (5, "is of the type int"),
        ("http://h", "scheme is 'http', it must be redis: write redis://HOST/DATABASE"),
        ("mysql://ids:hidden@h/ids", "scheme is 'mysql'"),
        ("hidden", "cannot be read"),
        ("redis-sentinel://h", r"redis\+sentinel"),
        ("redis://ids:hidden/x@h", "is not a URL|cannot be read"),
        ("redis://ids:hidden#x@h", "is not a URL"),
        ("redis://ids:hidden", "invalid port"),
        ("redis://h?no-such=1", "no-such"),
        ("redis://h?password=hidden", "password"),
        ("redis://h?sentinel-auth=hidden", "sentinel-auth"),
        ("redis://h?pass=hidden", "pass"),
        ("redis://:hidden@h?password-env=PATH", "more than one way"),
        ("redis://h?password-env=NO_SUCH_VARIABLE", "has no text"),
    ],
)
def test_what_cannot_be_used_is_refused_in_words_without_the_password(url: Any, message: str) -> None:
    with fails("refused", message) as failure:
        RedisStore(url, backing=MemoryStore())
    assert "hidden" not in str(failure.value)


def test_a_store_above_none_is_refused() -> None:
    with fails("refused", 'backing="none"'):
        RedisStore("redis://127.0.0.1:1", backing=None)  # type: ignore[arg-type]


def test_threads_have_different_numbers_which_only_grow_while_the_durable_store_is_asked(shared: Shared) -> None:
    url = shared.redis().url
    stores = [shared.open(url, "raise-min=10&raise-max=20&raise-timeout-ms=20000")[0] for _ in range(2)]

    def draw(at: int) -> list[Segment]:
        own = [eventually(lambda: stores[at % 2].allocate("order", at + 1, 0)) for _ in range(30)]
        assert all(before.end <= later.start for before, later in zip(own, own[1:]))
        return own

    with ThreadPoolExecutor(6) as threads:
        granted = [segment for own in threads.map(draw, range(6)) for segment in own]
    assert len(numbers(granted)) > 300


def test_numbers_beyond_2_53_and_up_to_the_last_one_are_exact(shared: Shared) -> None:
    store, _ = shared.open(shared.redis().url)
    store.create_tag("big", TagOptions(start=9_007_199_254_740_993))
    first = store.allocate("big", 2, 0)
    assert (first.start, first.end) == (9_007_199_254_740_993, 9_007_199_254_740_995)
    tail = TailRelease(first.start + 1, first.version)
    assert store.release("big", tail) is True
    assert store.release("big", tail) is False, "a second time"
    assert store.allocate("big", 1, 0).start == 9_007_199_254_740_994
    store.create_tag("last", TagOptions(start=ID_MAX - 2))
    last = numbers([store.allocate("last", 2, 0), store.allocate("last", 9, 0)])
    assert last == [ID_MAX - 2, ID_MAX - 1, ID_MAX]
    with fails("exhausted"):
        store.allocate("last", 1, 0)
    with fails("exhausted"):
        store.allocate("big", 1, ID_MAX + 1)


def test_tags_go_to_the_durable_store_and_back_as_they_are(shared: Shared) -> None:
    redis = shared.redis()
    store, backing = shared.open(redis.url)
    step = AdaptiveStep(10, 5, 2**63 - 1, 2**53 + 1, 2**63)
    options = TagOptions(start=5, step=step, refill=Remaining(2**53 + 1), mode="ordered")
    assert store.create_tag("strict", options).options == options
    assert store.open_tag("strict").options == backing.open_tag("strict").options == options
    assert store.open_tag("plain").options == TagOptions()
    with fails("tag-exists"):
        store.create_tag("strict", TagOptions())
    for name in ("redis-leases", "redis-leases\x1fdefault", "order\x1fredis-clock:1", "unalike-new-names\x1ffloor"):
        with fails("tag-invalid"):
            store.allocate(name, 1, 0)
        with fails("tag-invalid"):
            store.open_tag(name)
        with fails("tag-invalid"):
            store.release(name, TailRelease(1, 1))
    closed, _ = shared.open(redis.url, "prefix=other", SqliteStore(shared.folder / "closed.sqlite", create_tags=False))
    with fails("tag-unknown"):
        closed.allocate("unknown", 1, 0)


def test_leases_in_redis_have_the_limits_of_the_options_and_errors_their_kinds(shared: Shared) -> None:
    store, _ = shared.open(shared.redis().url, leases_in="redis", lease_limits=LeaseLimits(100_000, 5_000))

    def acquire(**more: Any) -> Lease:
        return store.acquire(replace(LeaseAcquire("default", LAYOUT, "", None, now_ms(), 2_000), **more))

    def extend(**more: Any) -> Lease:
        request = LeaseExtend("default", LAYOUT, lease.worker, lease.grant_id, now_ms(), 900_000)
        return store.extend(replace(request, **more))

    with fails("clock-skew", "5000 ms apart is the limit"):
        acquire(now_ms=now_ms() - 6_000)
    lease = acquire(preferred_worker=7)
    assert lease.worker == 7 and 0 < lease.grant_id < 2**128
    assert now_ms() < lease.valid_until_ms <= now_ms() + 3_000
    longer = extend()
    assert longer == replace(lease, valid_until_ms=longer.valid_until_ms)
    assert lease.valid_until_ms < longer.valid_until_ms <= now_ms() + 101_000, "as far as the option allows"
    for stranger in ({"grant_id": lease.grant_id ^ 1}, {"worker": 8}):
        with fails("lease-lost"):
            extend(**stranger)
    one_worker = replace(LAYOUT, worker_bits=0)
    with fails("layout-mismatch"):
        extend(layout=one_worker)
    acquire(namespace="one", layout=one_worker)
    with fails("workers-exhausted", "all 1 worker ids"):
        acquire(namespace="one", layout=one_worker)
    assert store.release_lease("default", 7, lease.grant_id ^ 1, lease.not_before_ms) is False
    assert store.release_lease("default", 7, lease.grant_id, lease.not_before_ms) is True
    assert store.identity() != store.lease_identity() is not None


def test_what_a_durable_store_of_ones_own_does_wrong_is_told_and_granted_to_nobody(shared: Shared) -> None:
    class Own(Switched):
        wrong: Any = None
        signals: Any = None

        def allocate(self, tag: str, count: int, at_least: int) -> Segment:
            segment = super().allocate(tag, count, at_least)
            first.setdefault(tag, segment)
            self.signals = signal.pthread_sigmask(signal.SIG_BLOCK, ())
            if isinstance(self.wrong, Exception):
                raise self.wrong
            return replace(segment, **self.wrong) if self.wrong else segment

    first: dict[str, Segment] = {}
    unfit = "the durable store granted .* which Redis cannot hand out"
    backing = Own(SqliteStore(shared.path))
    url = f"{shared.redis().url}?raise-min=10&raise-max=10&raise-timeout-ms=5000"
    with RedisStore(url, backing=backing) as store:
        for at, (wrong, kind, message) in enumerate(
            [
                (KeyError("after the grant"), "ceiling-reached", "the durable store failed: KeyError"),
                (StoreError("outcome-unknown", "it is lost"), "ceiling-reached", "it is lost"),
                (StoreError("exhausted", "nothing is left"), "exhausted", "nothing is left"),
                (StoreError("refused", "not today"), "refused", "not today"),
                ({"start": -1}, "refused", unfit),
                ({"end": 1.5}, "refused", unfit),
                ({"version": None}, "refused", unfit),
                ({"stride": 2}, "refused", unfit),
                ({"start": 2**64}, "refused", unfit),
                ({"end": 2**63 + 9}, "refused", unfit),
            ]
        ):
            tag = f"order-{at}"
            backing.wrong = wrong
            with fails(kind, message):
                store.allocate(tag, 10, 0)
            backing.wrong = None
            # What a durable store said is remembered for a moment.
            following = eventually(lambda: store.allocate(tag, 10, 0), "exhausted", "refused")
            assert following.start >= first[tag].end, "what was wrong is burnt"
        assert backing.signals == signal.pthread_sigmask(signal.SIG_BLOCK, ()), "of a thread of the program's"


def test_a_durable_store_that_is_down_or_another_one_is_told_of(shared: Shared) -> None:
    redis = shared.redis()
    store, backing = shared.open(redis.url)
    granted = [store.allocate("order", 1, 0)]
    other = Switched(SqliteStore(shared.folder / "other.sqlite"))
    with fails("refused", "granted by another durable store"):
        RedisStore(redis.url, backing=other)
    # One that nobody could ask when it was opened.
    other.is_down = True
    late, _ = shared.open(redis.url, "raise-min=100", other)
    with fails("ceiling-reached", "switched off"):
        late.allocate("new", 1, 0)
    other.is_down = False
    with fails("refused", "granted by another durable store"):
        eventually(lambda: late.allocate("new", 1, 0))
    assert not other.granted
    backing.is_down = True
    with fails("ceiling-reached", "switched off"):
        while True:
            granted.append(store.allocate("order", 10, 0))
    assert len(numbers(granted)) == 100, "all that Redis had"
    backing.is_down = False
    granted.append(eventually(lambda: store.allocate("order", 10, 0)))
    numbers(granted)
    assert store.identity() == shared.open(redis.url)[0].identity()


def test_a_log_handler_may_ask_for_what_it_is_told_of(shared: Shared) -> None:
    class Failing(Switched):
        def allocate(self, tag: str, count: int, at_least: int) -> Segment:
            if len(self.granted) == 1:
                self.granted.clear()
                raise OSError("once")
            return super().allocate(tag, count, at_least)

    class Asking(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "durable store" in record.getMessage():
                granted.append(eventually(lambda: store.allocate("order", 1, 0)))
                told.set()

    granted: list[Segment] = []
    told = threading.Event()
    store = RedisStore(
        f"{shared.redis().url}?raise-min=5&raise-max=5", backing=Failing(SqliteStore(shared.path))
    )
    log, handler = logging.getLogger("unalike"), Asking()
    log.addHandler(handler)
    try:
        granted += [eventually(lambda: store.allocate("order", 1, 0)) for _ in range(40)]
        assert told.wait(60)
        numbers(granted)
    finally:
        log.removeHandler(handler)
        store.close()


def test_the_interpreter_ends_while_the_durable_store_is_asked(shared: Shared) -> None:
    """At any moment, and waits for nothing."""
    program = f"""
import random, sys, threading, time
from unalike.memory import MemoryStore
from unalike.redis import RedisStore
from unalike.store import StoreError

class Slow(MemoryStore):
    def allocate(self, tag, count, at_least):
        time.sleep(random.choice([0, 0.001, 600]))
        return super().allocate(tag, count, at_least)

url = "{shared.redis().url}?raise-min=1&raise-max=1&raise-timeout-ms=50&prefix=" + sys.argv[1]
store = RedisStore(url, backing=Slow())

def draw(tag):
    while True:
        try:
            store.allocate(tag, 1, 0)
        except StoreError:
            pass

for at in range(8):
    threading.Thread(target=draw, args=(f"order-{{at}}",), daemon=True).start()
time.sleep(random.random() / 5)
print("ends")
"""
    for round in range(8):
        command = [sys.executable, "-c", program, f"round-{round}"]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "src")}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout) == (0, "ends\n"), done.stderr


def test_grants_through_a_redis_that_is_killed_and_flushed_and_stopped_come_once(shared: Shared) -> None:
    redis = shared.redis("--appendonly", "yes", "--appendfsync", "always")
    stores = [shared.open(redis.url, "raise-min=100&request-timeout-ms=500")[0] for _ in range(2)]
    granted: list[Segment] = []

    def draw() -> None:
        for store in stores:
            granted.append(eventually(lambda: store.allocate("order", 7, 0)))

    def stopped() -> None:
        stop(redis.process)
        with fails("outcome-unknown") as failure:
            stores[0].allocate("order", 7, 0)
        assert failure.value.is_retryable
        redis.process.send_signal(signal.SIGCONT)

    draw()
    for change in (redis.restart, stopped, lambda: redis.ask("FLUSHALL"), redis.restart):
        change()
        draw()
        draw()
    everything = numbers(granted)
    assert everything == sorted(everything), "whoever asks later has greater numbers"


def test_an_answer_that_trickles_in_ends_a_request_in_time(shared: Shared) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def trickle() -> None:
            client, _ = listening.accept()
            with client:
                client.recv(65_536)
                client.sendall(b"$100000\r\n")
                while True:
                    try:
                        client.sendall(b"x")
                    except OSError:
                        return
                    time.sleep(0.02)

        thread = threading.Thread(target=trickle, daemon=True)
        thread.start()
        with fails("unavailable", "within 300 ms"):
            shared.open(f"redis://127.0.0.1:{listening.getsockname()[1]}", "connect-timeout-ms=300")
        thread.join(10)
        assert not thread.is_alive(), "its connection was closed"


def test_a_connection_with_tls_trusts_only_whom_it_is_told_to(shared: Shared, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.sign("IP:127.0.0.1")
    ca, cert, key = authority.file, *(tmp_path / f"authority-signed-0.{kind}" for kind in ("pem", "key"))
    port = free_port()
    settings = ["--tls-port", str(port), "--tls-cert-file", str(cert), "--tls-key-file", str(key)]
    shared.redis(*settings, "--tls-ca-cert-file", str(ca), "--tls-auth-clients", "no")
    url = f"rediss://127.0.0.1:{port}/0"
    with fails("refused", "no TLS with a server that can be trusted"):
        shared.open(url)
    with fails("refused", "holds no certificate"):
        shared.open(url, f"ssl-ca={key}")
    store, _ = shared.open(url, f"ssl-ca={ca}")
    assert store.allocate("order", 1, 0).start == 1


def test_a_child_opens_its_own_connections(shared: Shared) -> None:
    redis = shared.redis()
    backing = Switched(SqliteStore(shared.path))
    store = RedisStore(f"{redis.url}?raise-min=1000", backing=backing)
    granted = [store.allocate("order", 5, 0)]
    for _ in range(5):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                own = [store.allocate("order", 3, 0) for _ in range(20)]
                os.write(writing, json.dumps([[segment.start, segment.end] for segment in own]).encode())
            finally:
                os._exit(0)
        os.close(writing)
        granted += [store.allocate("order", 3, 0) for _ in range(20)]
        with os.fdopen(reading) as pipe:
            drawn = json.loads(pipe.read())
        os.waitpid(child, 0)
        granted += [replace(granted[0], start=start, end=end) for start, end in drawn]
        granted.append(store.allocate("order", 1, 0))
    numbers(granted)
    store.close()


