"""Stores by their URLs, on real servers: what the Rust host has, Python has."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections import UserList
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional, cast

import pytest
from mariadb import eventually, fresh_database, query, required
from redis_servers import RedisProcess
from test_fork import Child, Drawing, by_fork, distinct

from unalike import (
    ID_MAX,
    LAYOUTS,
    AsyncIds,
    FixedStep,
    Ids,
    LeaseAcquire,
    LeaseExtend,
    Remaining,
    StoreError,
    TagOptions,
    TailRelease,
    _native,
)
from unalike.mysql import MysqlStore
from unalike.store import AdaptiveStep, Mode, sub_tag
from unalike.stores import Store

KINDS = ["mysql", "postgres", "etcd", "redis", "stripes"]


class Place:
    """Where a store of a kind is."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.redis: Optional[RedisProcess] = None
        self.backing: Optional[str] = None
        self.leases: Optional[str] = None
        self.url: Any
        self.mode: Mode = "ordered"
        if kind == "stripes":
            self.url = [fresh_database(), fresh_database()]
            self.leases = self.url[0]
            # Several stores have no order among them.
            self.mode = "buffered"
        elif kind == "redis":
            self.redis = RedisProcess(folder)
            self.url, self.backing = self.redis.url, fresh_database()
        elif kind == "mysql":
            self.url = fresh_database()
        elif kind == "postgres":
            server, name = required("UNALIKE_TEST_POSTGRES"), f"unalike_{os.urandom(6).hex()}"
            subprocess.run(["psql", "--quiet", server, "--command", f"CREATE DATABASE {name}"], check=True)
            self.url = f"{server.rpartition('/')[0]}/{name}"
        else:
            self.url = f"{required('UNALIKE_TEST_ETCD')}/{os.urandom(6).hex()}"

    def open(self, **options: Any) -> Store:
        return Store(self.url, backing=self.backing, leases=self.leases, **options)

    def command(self) -> list[str]:
        """What the ``unalike`` command is told."""
        stores = self.url if isinstance(self.url, list) else [self.url]
        told = [part for store in stores for part in ("--store", store)]
        return told if self.backing is None else [*told, "--backing", self.backing]


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    found = Place(request.param, tmp_path)
    yield found
    if found.redis is not None:
        found.redis.kill()


def by_command(place: Place, tag: str, count: int) -> list[int]:
    arguments = [required("UNALIKE_BIN"), "next", tag, "-n", str(count), *place.command()]
    return [int(line) for line in subprocess.run(arguments, check=True, capture_output=True, text=True).stdout.split()]


PROCESS = """
import json, sys
from unalike import FixedStep, Ids
from unalike.stores import Store
url, backing, leases = json.loads(sys.argv[1])
store = Store(url, backing=backing, leases=leases)
with Ids(segments=store, leases=store) as ids:
    orders, flakes = ids.sequence("order", step=FixedStep(50)), ids.snowflake("default", "twitter")
    numbers = [orders.next() for _ in range(2_000)]
    print(json.dumps([numbers, [flakes.next() for _ in range(500)]]))
store.close()
"""


def test_processes_threads_and_the_command_share_one_store(place: Place) -> None:
    store = place.open()
    arguments = [sys.executable, "-c", PROCESS, json.dumps([place.url, place.backing, place.leases])]
    processes = [subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    drawn: list[int] = []
    flakes: list[int] = []
    with Ids(segments=store, leases=store) as ids:
        orders, of_default = ids.sequence("order", step=FixedStep(50)), ids.snowflake("default", "twitter")
        with ThreadPoolExecutor(4) as threads:
            for numbers in [threads.submit(lambda: [orders.next() for _ in range(1_000)]) for _ in range(4)]:
                drawn += numbers.result()
        flakes += of_default.take(500)
        drawn += by_command(place, "order", 100)
    for process in processes:
        said, _ = process.communicate(timeout=120)
        assert process.returncode == 0
        numbers, more = json.loads(said)
        drawn, flakes = drawn + numbers, flakes + more
    assert len(drawn) == 4_000 + 4_000 + 100
    distinct(drawn)
    distinct(flakes)
    store.close()


def test_tags_tails_and_numbers_at_the_end(place: Place) -> None:
    store = place.open(tags_max=100)
    options = TagOptions(
        start=5, step=AdaptiveStep(10, 5, 2**63 - 1, 2**53 + 1, 2**63), refill=Remaining(2**53 + 1), mode=place.mode
    )
    assert store.create_tag("invoice", options).options == options
    assert store.open_tag("invoice").options == options
    with pytest.raises(StoreError) as raised:
        store.create_tag("invoice")
    assert raised.value.kind == "tag-exists" and not raised.value.is_retryable
    segment = store.allocate("order", 10, 0)
    assert store.release("order", TailRelease(segment.start + 3 * segment.stride, segment.version)) in (True, False)
    name = sub_tag("order", "a/b +&?%é")
    assert store.open_tag(name).tag == name
    last = store.allocate("last", 5, ID_MAX - segment.stride)
    assert ID_MAX - 2 * segment.stride < last.end - last.stride <= ID_MAX
    with pytest.raises(StoreError) as raised:
        while True:
            store.allocate("last", 1, ID_MAX)
    assert raised.value.kind == "exhausted"
    for count, at_least in ((0, 0), (-1, 0), (2**64, 0), (1, 2**64), (1.5, 0), (True, 0)):
        with pytest.raises(StoreError) as raised:
            store.allocate("order", count, at_least)  # type: ignore[arg-type]
        assert raised.value.kind == "refused"
    for tag in ("", "a\0b", "a\ud800", "x" * 129, "unalike-formats", 5):
        with pytest.raises(StoreError) as raised:
            store.create_tag(tag)  # type: ignore[arg-type]
        assert raised.value.kind == "tag-invalid", tag
    assert len(store.identity() or "") == 32
    store.close()
    store.close()
    with pytest.raises(StoreError, match="the store was closed") as raised:
        store.allocate("order", 1, 0)
    assert raised.value.kind == "refused"


def test_a_child_goes_on_with_connections_of_its_own(place: Place) -> None:
    # The store's threads may hold locks of the C library, which frees them in a child that it hears of.
    store = place.open()
    ids = Ids(segments=store, leases=store, renew_leases=False)
    orders, flakes = ids.sequence("order", step=FixedStep(10)), ids.snowflake("default", "twitter")
    drawn, of_parent = [orders.next() for _ in range(5)], [flakes.next()]

    def draw() -> Any:
        return [orders.next() for _ in range(40)], list(flakes.take(3))

    children = [Child(by_fork, draw) for _ in range(2)]
    drawn += [orders.next() for _ in range(40)]
    of_parent += flakes.take(3)
    for child in children:
        numbers, more = child.told()
        drawn, of_parent = drawn + numbers, of_parent + more
    distinct(drawn)
    distinct(of_parent)
    ids.close()
    store.close()


def test_children_that_are_born_while_threads_ask(place: Place) -> None:
    """Connections, locks and answers of the parent are anywhere."""
    store = place.open()
    store.open_tag("order")

    def draw() -> list[int]:
        segment = store.allocate("order", 3, 0)
        return list(range(segment.start, segment.end, segment.stride))

    drawing = Drawing(draw, 6)
    children = [Child(os.fork, lambda: [id for _ in range(20) for id in draw()]) for _ in range(6)]
    # One that is born while another thread of a child opens its stores.
    children.append(Child(os.fork, lambda: [id for numbers in _in_threads(draw) for id in numbers]))
    told = [child.told() for child in children]
    distinct(drawing.stop(), *told)
    store.close()


def _in_threads(draw: Any) -> list[list[int]]:
    with ThreadPoolExecutor(4) as threads:
        drawn = [threads.submit(draw) for _ in range(4)]
        grandchild = Child(os.fork, draw)
        return [grandchild.told(), *[numbers.result() for numbers in drawn]]


def test_what_is_no_lease_is_told_as_by_any_store() -> None:
    store = Store(fresh_database())
    twitter = LAYOUTS["twitter"]
    now_ms = time.time_ns() // 1_000_000
    acquire = LeaseAcquire("default", twitter, "", None, now_ms, 60_000)
    wrong: list[Any] = [
        replace(acquire, layout=replace(twitter, order=cast(Any, "worker_first"))),
        replace(acquire, layout=replace(twitter, worker_bits=300)),
        replace(acquire, horizon_ms=-1),
        replace(acquire, now_ms=2**64),
        replace(acquire, namespace="a\ud800"),
    ]
    for request in wrong:
        with pytest.raises(StoreError) as raised:
            store.acquire(request)
        assert raised.value.kind == "refused", request
    lease = store.acquire(acquire)
    for worker, grant_id in ((-1, lease.grant_id), (2**32, lease.grant_id), (lease.worker, 2**128), (lease.worker, -1)):
        assert not store.release_lease("default", worker, grant_id, now_ms)
        with pytest.raises(StoreError) as raised:
            store.extend(LeaseExtend("default", twitter, worker, grant_id, now_ms, 60_000))
        assert raised.value.kind == "lease-lost"
    assert not store.release_lease("default", lease.worker, lease.grant_id, 2**64)
    assert store.release_lease("default", lease.worker, lease.grant_id, lease.not_before_ms)
    store.close()


def test_whoever_logs_may_take_ids_or_fail() -> None:
    """A handler runs where nobody waits for it."""
    store = Store(f"{fresh_database()}?durability=assumed")
    drawn: list[int] = []

    class Taking(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            drawn.append(store.allocate("log", 1, 0).start)

    class Failing(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            raise RuntimeError("said the test")

    handler, filter = Taking(), Failing()
    log = logging.getLogger("unalike")
    log.addHandler(handler)
    try:
        Store(fresh_database()).close()
        assert drawn == [1]
        logging.getLogger("unalike.mysql").addFilter(filter)
        Store(fresh_database()).close()
    finally:
        log.removeHandler(handler)
        logging.getLogger("unalike.mysql").removeFilter(filter)
    store.close()


def test_the_url_of_mysql_takes_its_password_apart() -> None:
    url = fresh_database().replace("mysql://", "MYSQL://")
    with pytest.raises(StoreError, match="denied access"):
        MysqlStore(f"{url}?connect-timeout-ms=20000", password="wrong")
    for password in ("", "wrong"):
        with pytest.raises(StoreError, match="percent-encoded"):
            MysqlStore(f"{url}?ssl-mode=verify_ca&ssl-ca=/a@b", password=password)
    with pytest.raises(StoreError, match="not valid Unicode"):
        MysqlStore(url, password="\ud800")


def test_ids_of_a_url_open_its_store_and_close_it(tmp_path: Path) -> None:
    url = fresh_database()
    connected = "SELECT id FROM information_schema.PROCESSLIST WHERE db = DATABASE() AND id <> CONNECTION_ID()"
    with Ids(url, renew_leases=False) as ids:
        orders = ids.sequence("order", step=FixedStep(10))
        drawn = [orders.next() for _ in range(15)] + [ids.snowflake("default", "twitter").next()]

        def draw() -> list[int]:
            taken = [orders.next() for _ in range(15)]
            ids.close()
            return taken

        drawn += Child(os.fork, draw).told()
        drawn += [orders.next() for _ in range(15)]
        assert query(url, connected), "the parent's connections are open"
    distinct(drawn)
    eventually("its connections are closed", lambda: not query(url, connected))
    file = f"sqlite://{tmp_path / 'ids.sqlite'}"
    for numbers in ([1, 2], [3, 4]):
        with Ids(file) as ids:
            assert list(ids.sequence("order").take(2)) == numbers
    for wrong in ("ids.sqlite", ["mysql://ids@h/a", 5]):
        with pytest.raises(StoreError) as raised:
            Ids(wrong)  # type: ignore[arg-type]
        assert raised.value.kind == "refused"


def test_a_child_of_a_closed_store_has_a_closed_one() -> None:
    store = Store(fresh_database())
    store.close()

    def ask() -> str:
        with pytest.raises(StoreError) as raised:
            store.allocate("order", 1, 0)
        return raised.value.kind

    assert Child(os.fork, ask).told() == "refused"


def test_leaf_s_table_in_place() -> None:
    url = fresh_database()
    query(
        url,
        "CREATE TABLE leaf_alloc (biz_tag VARCHAR(128) NOT NULL PRIMARY KEY, max_id BIGINT NOT NULL DEFAULT 1, "
        "step INT NOT NULL, description VARCHAR(256), update_time TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP)",
        "INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('order', 5000, 100)",
        "COMMIT",
    )
    for store in (Store(f"{url}?dialect=leaf"), MysqlStore(f"{url}?dialect=leaf")):
        first = query(url, "SELECT max_id FROM leaf_alloc")[0]["max_id"]
        with Ids(segments=store) as ids:
            assert ids.sequence("order").next() >= first
        with pytest.raises(StoreError) as raised:
            store.open_tag("unknown")
        assert raised.value.kind == "tag-unknown"
        store.close()


def test_what_an_operator_should_hear_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "unalike"):
        Store(fresh_database()).close()
    (record,) = [record for record in caplog.records if record.name == "unalike.mysql"]
    assert record.levelno == logging.WARNING and "new" in record.getMessage(), record.getMessage()


def test_a_store_without_leases_says_so() -> None:
    store = Store(fresh_database(), leases="none")
    with Ids(segments=store, leases=store) as ids:
        assert ids.sequence("order").next() == 1
        with pytest.raises(Exception, match="nothing leases workers here"):
            ids.snowflake("default", "twitter").next()
    store.close()


async def _drawn(store: Store) -> list[int]:
    async with AsyncIds(segments=store) as ids:
        orders = await ids.sequence("order")
        return [await orders.next() for _ in range(100)]


def test_coroutines(place: Place) -> None:
    import asyncio

    store = place.open()
    assert len(set(asyncio.run(_drawn(store)))) == 100
    store.close()


def test_a_store_that_is_down_ends_each_call_in_time() -> None:
    began = time.monotonic()
    with pytest.raises(StoreError) as raised:
        Store("postgres://ids:hunter2@127.0.0.1:1/ids?connect-timeout-ms=1000")
    assert raised.value.kind == "unavailable" and raised.value.is_retryable
    assert "hunter2" not in str(raised.value) and time.monotonic() - began < 30


@pytest.mark.parametrize(
    ("url", "options", "expected"),
    [
        (None, {}, "the address is None: is its environment variable set"),
        ("", {}, "the address is empty"),
        (5, {}, "the address is of the type int"),
        ([], {}, "there is no store"),
        (["mysql://ids:hunter2@h/a", None], {}, "the address of a stripe is None"),
        (["mysql://ids:hunter2@h/a", "mysql://ids:hunter2@h/a"], {}, "given twice"),
        ("ids.sqlite", {}, "is not a URL"),
        (UserList(["ids.sqlite"]), {}, "is not a URL"),
        ("SQLITE://ids.sqlite", {}, "scheme \"SQLITE\" is unknown"),
        ("postgres://ids@h/ids", {"leases": " sqlite://ids.sqlite"}, "scheme \" sqlite\" is unknown"),
        (b"mysql://ids:hunter2@h/a", {}, "the address is of the type bytes"),
        ("oracle://ids:hunter2@h/ids", {}, "scheme \"oracle\" is unknown: write sqlite://PATH, mysql://"),
        ("redis://ids:hunter2@h/0", {}, "--backing"),
        ("redis://ids:hunter2@h/0", {"backing": 5}, "backing"),
        ("postgres://ids:hunter2@h/ids", {"backing": "none"}, "is not in Redis"),
        ("postgres://ids:hunter2@h/ids", {"colour": "red"}, "colour"),
        ("postgres://ids:hunter2@h/ids?colour=red", {}, "colour"),
        ("postgres://ids:hunter2@h/ids", {"tags_max": 0}, "tags_max is 0, it must be 1 at least"),
        ("postgres://ids:hunter2@h/ids", {"tags_max": -1}, "tags_max: "),
        ("postgres://ids:hunter2@h/ids", {"tags_max": object()}, "all others whole numbers"),
        ("postgres://ids:hunter2@h/ids", {"create_tags": 1}, "create_tags: "),
        ("postgres://ids:hunter2@h/ids", {"lease_horizon_max_ms": 0}, "lease_horizon_max_ms is 0"),
        ("postgres://ids:hunter2@h/ids", {"token": "hunter2"}, "token is for unalike servers"),
        ("http://h", {"token": ["hunter2"]}, "token"),
        ("http://ids:hunter2@h", {}, "no server takes"),
    ],
)
def test_what_cannot_be_used_is_refused_in_words_without_a_password(url: Any, options: Any, expected: str) -> None:
    with pytest.raises((StoreError, TypeError), match=expected) as raised:
        Store(url, **options)
    assert "hunter2" not in str(raised.value)
    assert isinstance(raised.value, TypeError) or cast(Any, raised.value).kind == "refused"


def test_many_threads_open_and_close_stores_at_once() -> None:
    url = fresh_database()
    Store(url).close()
    before = threading.active_count()

    def turn(_: int) -> list[int]:
        store = Store(url)
        try:
            segment = store.allocate("order", 3, 0)
            return list(range(segment.start, segment.end))
        finally:
            store.close()

    with ThreadPoolExecutor(8) as threads:
        distinct([id for numbers in threads.map(turn, range(64)) for id in numbers])
    assert threading.active_count() <= before
    assert _native.warnings() == []
