"""The store in Redis: on real servers that are killed, flushed, failed over, paused and full, over SQLite files.

And with the ``unalike`` command and the Node package at once.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

import pytest
from redis_servers import CuttingProxy, RedisProcess, Switched, eventually, free_port, script_sha1, until
from servers import binary, stop

from unalike.memory import MemoryStore
from unalike.redis import RedisStore
from unalike.sqlite import SqliteStore
from unalike.store import (
    ID_MAX,
    Layout,
    Lease,
    LeaseAcquire,
    LeaseExtend,
    Segment,
    StoreError,
    TagOptions,
    TailRelease,
    sub_tag,
    time_tag,
)

LAYOUT = Layout(41, 0, 4, 12, "worker-first", 1_288_834_974_657, 1)
NODE = Path(__file__).resolve().parents[2] / "node" / "dist"


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

    def proxy(self, port: int) -> CuttingProxy:
        proxy = CuttingProxy(port)
        self._closing.append(proxy.close)
        return proxy

    def open(self, url: str, parameters: str = "raise-min=100", file: str = "") -> tuple[RedisStore, Switched]:
        backing = Switched(SqliteStore(self.folder / file if file else self.path))
        store = RedisStore(f"{url}?{parameters}", backing=backing)
        self._closing.append(store.close)
        return store, backing

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


def fails(kind: str, message: Optional[str] = None) -> Any:
    class Fails:
        def __enter__(self) -> Any:
            self._raises = pytest.raises(StoreError, match=message)
            self.info = self._raises.__enter__()
            return self.info

        def __exit__(self, *error: Any) -> Any:
            handled = self._raises.__exit__(*error)
            assert self.info.value.kind == kind, self.info.value
            return handled

    return Fails()


def now_ms() -> int:
    return int(time.time() * 1_000)


def acquiring(store: RedisStore, horizon_ms: int = 2_000, namespace: str = "default", worker: Any = None) -> Lease:
    return store.acquire(LeaseAcquire(namespace, LAYOUT, "", worker, now_ms(), horizon_ms))


def test_a_url_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("secret\n")
    for url, message in [
        ("http://h", "scheme"),
        ("mysql://ids:hidden@h/ids", "scheme is 'mysql'"),
        ("hidden", "cannot be read"),
        ("redis-sentinel://h", r"redis\+sentinel"),
        ("redis://h/x", "database"),
        ("redis://ids:hidden/x@h", "is not a URL|cannot be read"),
        ("redis://ids:hidden#x@h", "is not a URL"),
        ("redis://h?no-such=1", "no-such"),
        ("redis://h?ssl-ca=x", "rediss"),
        ("redis://h?prefix=a{b", "braces"),
        ("redis://h?raise-min=0", "1 to"),
        ("redis://h?raise-max=9007199254740992", "1 to"),
        ("redis://h?raise-min=9&raise-max=8", "in this order"),
        ("redis://h?request-timeout-ms=600001", "1 to 600000"),
        ("redis://h?password=hidden", "password"),
        ("redis://h?sentinel-auth=hidden", "sentinel-auth"),
        ("redis://h?pass=hidden", "pass"),
        ("redis://ids:hidden", "invalid port"),
        (f"redis://:hidden@h?password-file={file}", "more than one way"),
        ("redis://h?password-env=NO_SUCH_VARIABLE", "has no text"),
    ]:
        with fails("refused", message) as failure:
            RedisStore(url, backing=MemoryStore())
        assert "hidden" not in str(failure.value)


def test_an_address_that_is_not_set_is_told() -> None:
    wrong: list[Any] = [None, "", 5]
    said = ("the address is None: is its environment variable set?", "is empty", "is of the type int")
    for url, message in zip(wrong, said):
        with fails("refused", message):
            RedisStore(url, backing=MemoryStore())


def test_many_threads_are_granted_different_numbers_which_only_grow(shared: Shared) -> None:
    redis = shared.redis()
    stores = [shared.open(redis.url)[0] for _ in range(2)]

    def draw(at: int) -> list[Segment]:
        own = [stores[at % 2].allocate("order", at + 1, 0) for _ in range(60)]
        assert all(before.end <= later.start for before, later in zip(own, own[1:]))
        return own

    with ThreadPoolExecutor(6) as threads:
        granted = [segment for own in threads.map(draw, range(6)) for segment in own]
    assert len(numbers(granted)) > 900


def test_numbers_beyond_2_53_and_up_to_the_last_one_are_exact(shared: Shared) -> None:
    store, _ = shared.open(shared.redis().url)
    store.create_tag("big", TagOptions(start=9_007_199_254_740_993))
    first = store.allocate("big", 2, 0)
    assert (first.start, first.end) == (9_007_199_254_740_993, 9_007_199_254_740_995)
    assert store.allocate("big", 1, 0).start == 9_007_199_254_740_995
    store.create_tag("last", TagOptions(start=ID_MAX - 2))
    last = numbers([store.allocate("last", 2, 0), store.allocate("last", 9, 0)])
    assert last == [ID_MAX - 2, ID_MAX - 1, ID_MAX]
    with fails("exhausted"):
        store.allocate("last", 1, 0)
    with fails("exhausted"):
        store.allocate("big", 1, ID_MAX + 1)


def test_a_floor_is_kept_and_a_tail_is_taken_back_once(shared: Shared) -> None:
    url = shared.redis().url
    store, other = shared.open(url)[0], shared.open(url)[0]
    first = store.allocate("order", 10, 0)
    within = store.allocate("order", 20, first.end + 5)
    assert (within.start, within.end) == (first.end + 5, first.end + 20), "the floor lies within what is granted"
    assert store.allocate("order", 5, within.end + 20).start == within.end + 20, "and beyond it"
    far = store.allocate("order", 5, 1_000_000)
    assert far.start == 1_000_000, "beyond the ceiling"
    assert not store.release("order", TailRelease(far.start + 2, far.version + 1))
    assert store.release("order", TailRelease(far.start + 2, far.version))
    assert not store.release("order", TailRelease(far.start + 2, far.version)), "a second time"
    following = store.allocate("order", 3, 0)
    assert following.start == far.start + 2
    other.allocate("order", 1, 0)
    assert not store.release("order", TailRelease(following.start, following.version)), "another grant followed"


def test_tags_are_those_of_the_durable_store(shared: Shared) -> None:
    redis = shared.redis()
    store, _ = shared.open(redis.url)
    store.create_tag("strict", TagOptions(mode="ordered"))
    assert store.open_tag("strict").options.mode == "ordered"
    with fails("tag-exists"):
        store.create_tag("strict", TagOptions())
    assert store.allocate(sub_tag("strict", "a"), 1, 0).start == 1
    assert store.allocate(sub_tag("strict", "b"), 1, 0).start == 1
    for name in ("redis-leases", "redis-leases\x1fdefault", "order\x1fredis-clock:1", "unalike-new-names\x1ffloor"):
        with fails("tag-invalid"):
            store.allocate(name, 1, 0)
        with fails("tag-invalid"):
            store.open_tag(name)
        with fails("tag-invalid"):
            store.release(name, TailRelease(1, 1))
    closed = RedisStore(
        f"{redis.url}?prefix=other", backing=SqliteStore(shared.folder / "closed.sqlite", create_tags=False)
    )
    with fails("tag-unknown"):
        closed.allocate("unknown", 1, 0)
    closed.close()
    with fails("refused", 'backing="none"'):
        RedisStore(redis.url, backing=None)  # type: ignore[arg-type]


def test_what_a_durable_store_of_ones_own_does_wrong_is_told_and_granted_to_nobody(shared: Shared) -> None:
    class Own(Switched):
        wrong: Any = None
        signals: Any = None

        def allocate(self, tag: str, count: int, at_least: int) -> Segment:
            segment = super().allocate(tag, count, at_least)
            self.signals = signal.pthread_sigmask(signal.SIG_BLOCK, ())
            if self.wrong == "fails":
                raise KeyError("after the grant")
            return replace(segment, **self.wrong) if self.wrong else segment

    backing = Own(SqliteStore(shared.path))
    with RedisStore(f"{shared.redis().url}?raise-min=10&raise-max=10", backing=backing) as store:
        granted = [store.allocate("order", 10, 0)]
        backing.wrong = "fails"
        with fails("ceiling-reached", "the durable store failed: KeyError"):
            granted.append(store.allocate("order", 10, 0))
            granted.append(store.allocate("order", 10, 0))
        for wrong in ({"start": -1}, {"end": 1.5}, {"version": None}, {"stride": 2}, {"start": 2**64}, {"end": 2**63 + 9}):
            backing.wrong = wrong
            with fails("refused", "the durable store granted .* which Redis cannot hand out"):
                eventually(lambda: store.allocate("order", 10, 0))
        backing.wrong = None
        granted += [eventually(lambda: store.allocate("order", 10, 0)) for _ in range(3)]
        numbers(granted)
        assert granted[-1].start > backing.granted[5].end, "what was wrong is burnt"
        assert backing.signals == signal.pthread_sigmask(signal.SIG_BLOCK, ()), "of a thread of the program's"


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


def test_tags_of_another_dialect_are_what_that_makes_of_them(shared: Shared) -> None:
    """Ids by the clock are ordered, whatever the durable store's tags are."""
    store, backing = shared.open(shared.redis().url, "dialect=clock")
    assert store.open_tag("order").options.mode == "ordered"
    assert store.allocate("order", 1, 0).start > 2**41


def test_a_ceiling_is_raised_in_the_background_before_it_is_reached(shared: Shared) -> None:
    redis = shared.redis()
    store, backing = shared.open(redis.url)
    first = store.allocate("order", 80, 0)
    until(lambda: len(backing.granted) == 2)
    until(lambda: bool(redis.ask("HGET", "unalike:{order}", "end") == str(backing.granted[1].end)))
    assert redis.ask("HGET", "unalike:{order}", "next_end") == "", "the interval continues"
    backing.is_down = True
    assert store.allocate("order", 100, 0).start == first.end, "nobody had to wait"


def test_while_the_durable_store_is_down_numbers_go_on_up_to_the_ceiling(shared: Shared) -> None:
    redis = shared.redis()
    store, backing = shared.open(redis.url)
    granted = [store.allocate("order", 1, 0)]
    backing.is_down = True
    with fails("ceiling-reached", "switched off"):
        while True:
            granted.append(store.allocate("order", 10, 0))
    assert len(numbers(granted)) == 100, "all that Redis had"
    late = Switched(SqliteStore(shared.path))
    late.is_down = True
    other = RedisStore(redis.url, backing=late)
    with fails("ceiling-reached"):
        other.allocate("order", 1, 0)
    backing.is_down = late.is_down = False
    granted += [eventually(lambda: store.allocate("order", 10, 0)), eventually(lambda: other.allocate("order", 10, 0))]
    numbers(granted)
    other.close()


def test_another_durable_store_is_refused(shared: Shared) -> None:
    redis = shared.redis()
    store, _ = shared.open(redis.url)
    store.allocate("order", 1, 0)
    backing = Switched(SqliteStore(shared.folder / "other.sqlite"))
    with fails("refused", "granted by another durable store"):
        RedisStore(redis.url, backing=backing)
    # One that nobody could ask when it was opened.
    backing.is_down = True
    late = RedisStore(redis.url, backing=backing)
    backing.is_down = False
    with fails("refused", "granted by another durable store"):
        late.allocate("new", 1, 0)
    redis.ask("FLUSHALL")
    granted = [store.allocate("order", 1, 0)]
    with fails("refused", "granted by another durable store"):
        while True:
            # What Redis has is anybody's. More is not.
            granted.append(late.allocate("order", 50, 0))
    assert len(numbers(granted)) == 100
    assert not backing.granted
    late.close()
    assert store.identity() == shared.open(redis.url)[0].identity() != store.lease_identity()


def test_a_durable_store_that_lost_data_is_noticed(shared: Shared) -> None:
    redis = shared.redis()
    store, _ = shared.open(redis.url, "raise-min=100&raise-max=200")
    granted = [store.allocate("order", 1, 0)]
    acquiring(store, 5_000)
    store.close()
    shutil.copy(shared.path, shared.folder / "old.sqlite")
    newer, backing = shared.open(redis.url, "raise-min=100&raise-max=200")
    while len(backing.granted) < 3:
        granted.append(newer.allocate("order", 50, 0))
    acquiring(newer, 60_000)
    newer.close()
    # A raise of one number does not get beyond what Redis had.
    restored, durable = shared.open(redis.url, "raise-min=1&raise-max=1", "old.sqlite")
    watermark = durable.open_tag("order").watermark
    with fails("corrupt", "it lost data, or is another store"):
        while True:
            granted.append(restored.allocate("order", 50, 0))
    numbers(granted)
    # Trying again uses the notice up as little as another program does.
    again, _ = shared.open(redis.url, "raise-min=1&raise-max=1", "old.sqlite")
    for one in [restored] * 3 + [again] * 3:
        with fails("corrupt", "it lost data, or is another store"):
            one.allocate("order", 50, 0)
    assert durable.open_tag("order").watermark == watermark, "nothing is granted that had to be burnt"
    redis.ask("HSET", "unalike:leases:{default}", "incarnation", "")
    granted_time = durable.open_tag(time_tag("default"))
    for one in [restored] * 3 + [again] * 3:
        with fails("corrupt", "it lost data, or is another store"):
            acquiring(one)
    assert durable.open_tag(time_tag("default")) == granted_time, "no time is granted that had to be burnt"


def test_nothing_comes_twice_when_redis_loses_data(shared: Shared) -> None:
    redis = shared.redis("--appendonly", "yes", "--appendfsync", "always")
    stores = [shared.open(redis.url)[0] for _ in range(2)]
    granted: list[Segment] = []

    def draw() -> None:
        for store in stores:
            granted.append(eventually(lambda: store.allocate("order", 7, 0)))

    def demoted() -> None:
        redis.ask("REPLICAOF", "127.0.0.1", str(free_port()))
        with fails("unavailable", "only reads"):
            stores[0].allocate("order", 1, 0)
        redis.ask("REPLICAOF", "NO", "ONE")

    draw()
    for change in (
        redis.restart,
        lambda: redis.ask("FLUSHALL"),
        lambda: redis.ask("SCRIPT", "FLUSH"),
        redis.restart,
        lambda: redis.ask("DEL", "unalike:{order}"),
        demoted,
    ):
        change()
        draw()
        draw()
    everything = numbers(granted)
    assert everything == sorted(everything), "whoever asks later has greater numbers"


def test_a_replica_that_is_promoted_grants_nothing_of_its_old_data(shared: Shared, tmp_path: Path) -> None:
    redis = shared.redis()
    store, _ = shared.open(redis.url)
    granted = [store.allocate("order", 5, 0)]
    folder = tmp_path / "replica"
    folder.mkdir()
    replica = RedisProcess(folder, "--replicaof", "127.0.0.1", str(redis.port))
    try:
        until(lambda: replica.ask("HGET", "unalike:{order}", "left") is not None)
        with fails("unavailable", "only reads"):
            shared.open(replica.url)[0].allocate("order", 1, 0)
        # It is behind from now on.
        replica.ask("REPLICAOF", "NO", "ONE")
        granted.append(store.allocate("order", 5, 0))
        promoted = shared.open(replica.url)[0]
        for _ in range(30):
            granted += [promoted.allocate("order", 5, 0), store.allocate("order", 5, 0)]
        numbers(granted)
    finally:
        replica.kill()


def test_a_request_without_an_answer_ends_and_its_grant_is_burnt(shared: Shared) -> None:
    redis = shared.redis()
    store, _ = shared.open(redis.url, "raise-min=100&request-timeout-ms=200&connect-timeout-ms=200")
    granted = [store.allocate("order", 1, 0)]

    def clients() -> int:
        return str(redis.ask("CLIENT", "LIST")).count("cmd=evalsha")

    before = clients()
    stop(redis.process)
    with fails("outcome-unknown"):
        store.allocate("order", 1, 0)
    redis.process.send_signal(signal.SIGCONT)
    granted.append(eventually(lambda: store.allocate("order", 1, 0)))
    redis.ask("CLIENT", "PAUSE", "1000", "WRITE")
    with fails("outcome-unknown"):
        store.allocate("order", 1, 0)
    redis.ask("CLIENT", "UNPAUSE")
    granted += [eventually(lambda: store.allocate("order", 1, 0)) for _ in range(20)]
    numbers(granted)
    until(lambda: clients() <= before + 1)


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


def test_an_answer_that_is_lost_after_the_script_was_sent_burns_the_grant(shared: Shared) -> None:
    redis = shared.redis()
    proxy = shared.proxy(redis.port)
    store, backing = shared.open(proxy.url)
    granted = [store.allocate("order", 1, 0)]
    allocate, install = (script_sha1(*parts) for parts in (("tag", "allocate"), ("tag", "durable", "install")))
    proxy.cuts = lambda sent: allocate in sent
    with fails("outcome-unknown"):
        store.allocate("order", 1, 0)
    proxy.cuts = lambda sent: False
    granted.append(store.allocate("order", 1, 0))
    assert granted[1].start == granted[0].end + 1, "what was granted to nobody is a gap"
    # An installation that was made and not heard of is not made again.
    redis.ask("FLUSHALL")
    redis.ask("SCRIPT", "FLUSH")
    cut, before = proxy.cut, len(backing.granted)
    proxy.cuts = lambda sent: install in sent and proxy.cut == cut
    granted.append(eventually(lambda: store.allocate("order", 1, 0)))
    assert proxy.cut > cut and len(backing.granted) > before
    granted += [eventually(lambda: store.allocate("order", 3, 0)) for _ in range(150)]
    numbers(granted)


def test_a_server_that_cannot_be_used_is_told_of_in_words(shared: Shared, tmp_path: Path) -> None:
    redis = shared.redis()
    store, _ = shared.open(redis.url)
    store.allocate("order", 1, 0)
    redis.ask("CONFIG", "SET", "maxmemory", "1")
    with fails("unavailable", "memory is full"):
        store.allocate("order", 1, 0)
    redis.ask("CONFIG", "SET", "maxmemory", "0")
    redis.ask("HSET", "unalike:{order}", "left", "x")
    with fails("corrupt", "left is x"):
        store.allocate("order", 1, 0)
    redis.ask("SET", "unalike:{text}", "x")
    with fails("corrupt"):
        store.allocate("text", 1, 0)
    rights = ["~unalike:*", "+evalsha", "+script|load", "+info", "+time", "+hget", "+hmget", "+hset", "+hincrby"]
    redis.ask("ACL", "SETUSER", "ids", "on", ">hidden", *rights, "+hgetall", "+hkeys", "+hdel")
    allowed, _ = shared.open(f"redis://ids:hidden@127.0.0.1:{redis.port}")
    allowed.allocate("allowed", 1, 0)
    acquiring(allowed)
    redis.ask("ACL", "SETUSER", "ids", "-hset")
    with fails("refused", "the user may not do it"):
        allowed.allocate("more", 1, 0)
    for user in ("ids:hidden2", "nobody:hidden2"):
        with fails("refused", "denied access") as failure:
            shared.open(f"redis://{user}@127.0.0.1:{redis.port}")
        assert "hidden" not in str(failure.value)
    with fails("refused", "no such database"):
        shared.open(f"redis://127.0.0.1:{redis.port}/99")
    with fails("unavailable", "nothing listens"):
        shared.open(f"redis://127.0.0.1:{free_port()}")
    with pytest.raises(StoreError):
        shared.open(f"rediss://127.0.0.1:{redis.port}")
    folder = tmp_path / "cluster"
    folder.mkdir()
    cluster = RedisProcess(folder, "--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    try:
        with fails("refused", "Cluster"):
            shared.open(cluster.url)
    finally:
        cluster.kill()


def test_a_connection_with_tls_trusts_only_whom_it_is_told_to(shared: Shared, tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "ca.pem"
    command: list[Any] = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes"]
    command += ["-keyout", key, "-out", certificate, "-days"]
    subject = ["2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subject += ["-addext", "basicConstraints=CA:FALSE"]
    subprocess.run([*command, *subject], check=True, capture_output=True)
    port = free_port()
    settings = ["--tls-port", str(port), "--tls-cert-file", str(certificate), "--tls-key-file", str(key)]
    shared.redis(*settings, "--tls-ca-cert-file", str(certificate), "--tls-auth-clients", "no")
    url = f"rediss://127.0.0.1:{port}/0"
    with fails("refused", "no TLS with a server that can be trusted"):
        shared.open(url)
    with fails("refused", "holds no certificate"):
        shared.open(url, f"ssl-ca={key}")
    store, _ = shared.open(url, f"ssl-ca={certificate}")
    assert store.allocate("order", 1, 0).start == 1
    assert store.allocate("order", 1, 0).start == 2


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


def test_each_namespace_has_its_own_tag_of_time() -> None:
    assert time_tag("default") == "redis-leases\x1fdefault"
    assert time_tag("x" * 115) == "redis-leases\x1f" + "x" * 115
    assert time_tag("x" * 116) != time_tag("x" * 117) and len(time_tag("x" * 116)) == 128
    assert len(time_tag("\U0001f600" * 32).encode()) <= 128


def are_disjoint(leases: list[Lease]) -> None:
    assert len({lease.grant_id for lease in leases}) == len(leases)
    by_worker: dict[int, list[Lease]] = defaultdict(list)
    for lease in sorted(leases, key=lambda lease: (lease.not_before_ms, lease.valid_until_ms)):
        by_worker[lease.worker].append(lease)
    for own in by_worker.values():
        for before, later in zip(own, own[1:]):
            assert before.valid_until_ms <= later.not_before_ms, f"two leases of a worker meet: {before} {later}"


def test_leases_of_one_worker_never_meet_whatever_happens_to_redis(shared: Shared) -> None:
    redis = shared.redis()
    stores = [shared.open(redis.url)[0] for _ in range(2)]
    granted: list[Lease] = []
    for round in range(4):
        for store in stores:
            lease = eventually(lambda: acquiring(store, 300, worker=3))
            try:
                extend = LeaseExtend("default", LAYOUT, lease.worker, lease.grant_id, now_ms(), 900)
                lease = store.extend(extend)
            except StoreError as error:
                assert error.is_retryable
            used_ms = min(now_ms(), lease.valid_until_ms)
            if round % 2 == 0 and store.release_lease("default", lease.worker, lease.grant_id, used_ms):
                lease = replace(lease, valid_until_ms=max(used_ms, lease.not_before_ms))
            granted.append(lease)
        if round == 1:
            redis.restart()
        else:
            redis.ask("FLUSHALL")
    are_disjoint(granted)


def test_a_lease_is_extended_and_released_by_its_grant_id_only(shared: Shared) -> None:
    redis = shared.redis()
    store, backing = shared.open(redis.url)
    lease = acquiring(store)
    extend = LeaseExtend("default", LAYOUT, lease.worker, lease.grant_id, now_ms(), 4_000)
    extended = store.extend(extend)
    assert extended.valid_until_ms > lease.valid_until_ms and extended.not_before_ms == lease.not_before_ms
    assert store.extend(replace(extend, horizon_ms=1)).valid_until_ms == extended.valid_until_ms, "never back"
    with fails("lease-lost"):
        store.extend(replace(extend, grant_id=lease.grant_id ^ 1))
    with fails("layout-mismatch"):
        store.extend(replace(extend, layout=replace(LAYOUT, worker_bits=5)))
    with fails("clock-skew"):
        store.extend(replace(extend, now_ms=now_ms() - 60_000))
    assert not store.release_lease("default", lease.worker, lease.grant_id ^ 1, lease.not_before_ms)
    assert not store.release_lease("default", lease.worker, lease.grant_id, extended.valid_until_ms + 1)
    assert store.release_lease("default", lease.worker, lease.grant_id, now_ms())
    with fails("lease-lost"):
        store.extend(extend)
    for _ in range(16):
        eventually(lambda: acquiring(store, namespace="full"))
    with fails("workers-exhausted", "all 16 worker ids"):
        acquiring(store, namespace="full")
    # Without the durable store leases go on as far as time was granted.
    backing.is_down = True
    assert acquiring(store, 1_000).valid_until_ms > now_ms()
    redis.ask("FLUSHALL")
    with fails("unavailable", "has not granted Redis more time"):
        acquiring(store)
    backing.is_down = False
    redis.ask("HSET", "unalike:leases:{alone}", "generation", "g", "incarnation", "", "begun_by", "use")
    with fails("refused", "kept the other way"):
        acquiring(store, namespace="alone")


def test_a_holder_whose_time_is_over_is_told_so_and_gets_a_lease_anew(shared: Shared) -> None:
    redis = shared.redis()
    store, backing = shared.open(redis.url, "raise-min=100&raise-timeout-ms=2000")
    lease = acquiring(store, 500)
    bound_ms = int(redis.ask("HGET", "unalike:leases:{default}", "bound_ms"))
    # As if an answer had been lost, or as another Redis does.
    lost_until_ms = backing.allocate(time_tag("default"), 700, 0).end
    assert lost_until_ms == bound_ms + 700
    until(lambda: now_ms() > bound_ms)
    with fails("lease-lost"):
        store.extend(LeaseExtend("default", LAYOUT, lease.worker, lease.grant_id, now_ms(), 500))
    # With a clock that is behind, the time that is over is no place for a lease either.
    try:
        late = store.acquire(LeaseAcquire("default", LAYOUT, "", None, bound_ms - 200, 500))
        assert late.not_before_ms >= lost_until_ms
    except StoreError as error:
        assert error.kind == "quarantined", error
    again = eventually(lambda: acquiring(store, 500, worker=lease.worker))
    assert again.worker == lease.worker and again.not_before_ms >= lost_until_ms


NODE_PROGRAM = """
import { createInterface } from 'node:readline';
import { RedisStore } from '%(node)s/redis.js';
import { SqliteStore } from '%(node)s/sqlite.js';
process.removeAllListeners('warning').on('warning', () => {});
const layout = { timestampBits: 41, datacenterBits: 0, workerBits: 4, sequenceBits: 12, order: 'worker-first',
  epochMs: 1288834974657n, tickMs: 1 };
const backing = await SqliteStore.open('%(path)s');
const store = await RedisStore.open({ url: '%(url)s', backing, leasesIn: 'redis' });
for await (const line of createInterface({ input: process.stdin })) {
  let answer;
  try {
    if (line === 'lease') {
      const nowMs = BigInt(Date.now());
      const lease = await store.acquire(
        { namespace: 'default', layout, holder: 'node', preferredWorker: 5, nowMs, horizonMs: 400n });
      answer = [lease.worker, lease.grantId, lease.notBeforeMs, lease.validUntilMs];
    } else {
      const { start, end } = await store.allocate('order', 3n, 0n);
      answer = [start, end];
    }
  } catch (error) {
    if (!error.isRetryable) throw error;
    answer = [];
  }
  console.log(answer.join(' '));
}
await store.close();
"""


class NodeProgram:
    """The Node package over the same Redis and the same file."""

    def __init__(self, url: str, path: Path) -> None:
        assert (NODE / "redis.js").is_file(), f"{NODE} has no package: run tests/run --test hosts, which builds it"
        program = NODE_PROGRAM % {"node": NODE.as_uri(), "url": url, "path": path}
        command = ["node", "--input-type=module", "-e", program]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, what: str) -> list[int]:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line.endswith("\n"), "the Node program has ended"
        return [int(number) for number in line.split()]

    def close(self) -> None:
        self._process.communicate(timeout=30)


def test_rust_node_and_python_draw_from_one_redis_while_it_is_killed_and_flushed(shared: Shared) -> None:
    redis = shared.redis("--appendonly", "yes")
    url = f"{redis.url}?raise-min=100"
    store, _ = shared.open(redis.url)
    node = NodeProgram(url, shared.path)
    ids: list[int] = []
    works = 0

    def command(count: int) -> tuple[list[int], bool]:
        arguments = [
            binary(),
            "next",
            "order",
            "-n",
            str(count),
            "--store",
            url,
            "--backing",
            f"sqlite://{shared.path}",
        ]
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=60)
        # While Redis is down the command fails, and what it printed before counts.
        return [int(line) for line in done.stdout.split()], done.returncode == 0

    leases: list[Lease] = []
    with ThreadPoolExecutor(3) as threads:
        for round in range(6):
            running = [threads.submit(command, 5) for _ in range(2)]
            for at in range(30):
                segment = eventually(lambda: store.allocate("order", 3, 0))
                ids += range(segment.start, segment.end)
                drawn = node.ask("ids")
                ids += range(*drawn) if drawn else ()
                if at == 15 and round % 2 == 1:
                    redis.restart() if round % 4 == 1 else redis.ask("FLUSHALL")
            for done in running:
                printed, is_right = done.result()
                ids += printed
                works += is_right
            lease = eventually(lambda: acquiring(store, 400, worker=5))
            leases.append(lease)
            found = node.ask("lease")
            if found:
                leases.append(Lease(*found))
    node.close()
    assert works > 4, "the command got ids"
    assert len(leases) > 6, "both got leases"
    assert len(set(ids)) == len(ids), "an id came twice"
    are_disjoint(leases)


def test_rust_and_python_lease_one_worker_in_turns(shared: Shared) -> None:
    redis = shared.redis()
    store, _ = shared.open(redis.url)
    places = ["--store", redis.url, "--leases", redis.url, "--backing", f"sqlite://{shared.path}"]
    twitter = Layout(41, 5, 5, 12, "worker-first", 1_288_834_974_657, 1)
    leases: list[Lease] = []
    worker = None
    used: list[tuple[int, int]] = []
    command = [binary(), "next", "default", "--snowflake", "-n", "3", *places]
    for _ in range(6):
        for line in subprocess.run(command, check=True, capture_output=True, text=True).stdout.split():
            worker = int(line) >> 12 & 1023
            used.append((worker, (int(line) >> 22) + twitter.epoch_ms))
        request = LeaseAcquire("default", twitter, "", worker, now_ms(), 500)
        leases.append(eventually(lambda: store.acquire(replace(request, now_ms=now_ms()))))
    assert len(used) == 18 and {lease.worker for lease in leases} & {worker for worker, _ in used}
    for lease in leases:
        for worker, at_ms in used:
            is_in_use = lease.not_before_ms <= at_ms < lease.valid_until_ms
            assert worker != lease.worker or not is_in_use, f"an id of Rust lies in {lease}"
    are_disjoint(leases)
    shown = subprocess.run([binary(), "leases", "list", "default", *places], check=True, capture_output=True, text=True)
    assert str(leases[-1].worker) in shown.stdout.split()
