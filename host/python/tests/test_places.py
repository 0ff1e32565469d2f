"""One namespace, one place: a Redis and the durable store behind it, each of which could lease its workers.

Opened by this package and by the ``unalike`` command, on real servers.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, Optional

import pytest
from mariadb import fresh_database
from redis_servers import RedisProcess
from servers import binary

from unalike.lease_rules import LeaseLimits
from unalike.mysql import MysqlStore
from unalike.redis import RedisStore
from unalike.sqlite import SqliteStore
from unalike.store import KEPT_LEASES, Layout, Lease, LeaseAcquire, StoreError, sub_tag

TWITTER = Layout(41, 5, 5, 12, "worker-first", 1_288_834_974_657, 1)
IN_STORE = "are kept in the durable store itself"
IN_REDIS = "are kept in a Redis above this store"
IN_BOTH = "are kept both in the durable store itself and in a Redis"


class Places:
    """A Redis above a durable store, and what opens both places as a new program does."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.folder = folder
        self.redis = RedisProcess(folder)
        self.url = f"sqlite://{folder / 'ids.sqlite'}" if kind == "sqlite" else fresh_database()
        self._closing: list[Callable[[], None]] = [self.redis.kill]

    def durable(self) -> Any:
        store: Any = MysqlStore(self.url) if self.url.startswith("mysql") else SqliteStore(self.folder / "ids.sqlite")
        self._closing.append(store.close)
        return store

    def open(self, leases_in: Optional[Literal["backing", "redis"]] = None) -> RedisStore:
        # Slow machines.
        url = f"{self.redis.url}?raise-timeout-ms=20000&request-timeout-ms=20000"
        store = RedisStore(url, backing=self.durable(), leases_in=leases_in)
        self._closing.append(store.close)
        return store

    def command(self, namespace: str, *more: str) -> str:
        """What the command says when it takes a snowflake with these settings."""
        settings = ["--store", self.redis.url, "--backing", self.url, *more]
        ran = subprocess.run(
            [binary(), *settings, "next", namespace, "--snowflake"], capture_output=True, text=True, cwd=self.folder
        )
        return ran.stdout.strip() or ran.stderr

    def in_redis(self) -> tuple[str, str]:
        return "--leases", self.redis.url

    def close(self) -> None:
        for close in reversed(self._closing):
            close()


@pytest.fixture(params=["sqlite", "mariadb"])
def places(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Places]:
    opened = Places(tmp_path, request.param)
    yield opened
    opened.close()


def acquire(store: Any, namespace: str = "default") -> Lease:
    lease: Lease = store.acquire(LeaseAcquire(namespace, TWITTER, "", None, time.time_ns() // 1_000_000, 10_000))
    return lease


def refused(store: Any, where: str, namespace: str = "default") -> None:
    with pytest.raises(StoreError, match=where) as caught:
        acquire(store, namespace)
    assert (caught.value.kind, caught.value.failure) == ("leases-elsewhere", "refused")
    assert not caught.value.is_retryable


def test_every_host_keeps_leases_in_the_same_place_by_default(places: Places) -> None:
    acquire(places.open())
    assert places.command("default").isdigit()
    refused(places.open("redis"), IN_STORE)
    assert IN_STORE in places.command("default", *places.in_redis())
    assert places.open("backing").lease_identity() == places.durable().lease_identity()


def test_a_namespace_that_is_begun_in_redis_stays_there(places: Places) -> None:
    acquire(places.open("redis"))
    refused(places.open(), IN_REDIS)
    assert IN_REDIS in places.command("default")
    assert places.command("default", *places.in_redis()).isdigit()
    places.redis.kill()
    places.redis.start()
    refused(places.open(), IN_REDIS)


def test_of_both_places_at_once_one_has_the_namespace(places: Places) -> None:
    stores = [places.open(), places.open("redis"), places.open(), places.open("redis")]

    def ask(store: RedisStore, namespace: str) -> bool:
        try:
            acquire(store, namespace)
        except StoreError as error:
            assert error.kind == "leases-elsewhere" or error.is_retryable, error
            return False
        return True

    with ThreadPoolExecutor(len(stores)) as pool:
        for round_ in range(5):
            granted = list(pool.map(ask, stores, [f"race-{round_}"] * len(stores)))
            assert any(granted[::2]) != any(granted[1::2]), granted


def test_what_was_begun_before_anybody_looked_goes_on(places: Places) -> None:
    durable, in_redis, backing = places.open(), places.open("redis"), places.durable()
    backing.open_tag(sub_tag(KEPT_LEASES, "default"))
    refused(durable, IN_REDIS)
    acquire(in_redis)
    acquire(durable, "both")
    backing.open_tag(sub_tag(KEPT_LEASES, "both"))
    refused(durable, IN_BOTH, "both")
    refused(in_redis, IN_BOTH, "both")


def test_where_leases_are_kept_is_said_by_a_word_that_is_known(tmp_path: Path) -> None:
    class Tags:
        allocate = open_tag = identity = close = lambda self: None

    backing, tags, word = SqliteStore(tmp_path / "ids.sqlite"), Tags(), "Redis"
    limits = LeaseLimits(1_000, 1_000)
    for options, message in (
        ({"backing": backing, "leases_in": word}, "leases_in is 'Redis', it must be"),
        ({"backing": backing, "lease_limits": limits}, "give them to that store"),
        ({"backing": tags, "leases_in": "backing"}, "leases no workers"),
    ):
        with pytest.raises(StoreError, match=message):
            RedisStore("redis://127.0.0.1:1", **options)  # type: ignore[arg-type]
    backing.close()
