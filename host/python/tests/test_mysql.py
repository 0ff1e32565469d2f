"""The store in MySQL and MariaDB as Python has it, on real servers. What the Rust host decides has its tests there."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Iterator, Optional, Sequence
from urllib.parse import quote, urlsplit

import pymysql
import pytest
from mariadb import MariaDb, Proxy, eventually, fresh_database, query
from servers import Authority

from unalike.mysql import MysqlStore
from unalike.store import (
    ID_MAX,
    SUB_SEPARATOR,
    Layout,
    Lease,
    LeaseAcquire,
    LeaseExtend,
    Segment,
    StoreError,
    TagOptions,
    TailRelease,
)

LAYOUT = Layout(41, 5, 5, 12, "worker-first", 1_288_834_974_657, 1)
LOCK_OF_ORDER = "SELECT * FROM unalike_tag WHERE tag = 'order' FOR UPDATE"

_opened: list[MysqlStore] = []


def store_at(url: str, **options: Any) -> MysqlStore:
    store = MysqlStore(url, **options)
    _opened.append(store)
    return store


@pytest.fixture(autouse=True)
def _close_stores() -> Iterator[None]:
    """A server has no end of connections for the stores of all tests."""
    yield
    while _opened:
        _opened.pop().close()


@contextmanager
def failure(*kinds: str, match: Optional[str] = None) -> Iterator[None]:
    """What must fail, with an error of one of these kinds."""
    with pytest.raises(StoreError, match=match) as caught:
        yield
    assert caught.value.kind in kinds, caught.value


def assert_disjoint(segments: Sequence[Segment]) -> None:
    ordered = sorted(segments, key=lambda segment: segment.start)
    assert all(segment.start < segment.end for segment in ordered)
    assert all(one.end <= other.start for one, other in zip(ordered, ordered[1:])), "two grants overlap"


@contextmanager
def locked(url: str, statement: str) -> Iterator[None]:
    """Holds what this statement locks."""
    parts = urlsplit(url)
    place = {"host": parts.hostname, "port": parts.port or 3306, "user": parts.username, "database": parts.path[1:]}
    connection = pymysql.connect(**place)
    try:
        with connection.cursor() as cursor:
            cursor.execute(statement)
        yield
    finally:
        connection.close()


def until_one_waits(url: str) -> None:
    eventually("it waits", lambda: query(url, "SELECT 1 FROM information_schema.INNODB_LOCK_WAITS"))


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class TestValues:
    def test_numbers_beyond_what_a_double_holds_are_exact_up_to_the_last(self) -> None:
        store = store_at(fresh_database())
        odd = 9_007_199_254_740_993
        store.create_tag("odd", TagOptions(start=odd))
        for at in range(6):
            segment = store.allocate("odd", 1, 0)
            assert (segment.start, segment.end) == (odd + at, odd + at + 1)
        assert store.allocate("odd", 3, odd + 1_001).start == odd + 1_001
        top = 2**63 - 10
        store.create_tag("top", TagOptions(start=top))
        first = store.allocate("top", 3, 0)
        assert (first.start, first.end) == (top, top + 3)
        tail = TailRelease(top + 1, first.version)
        assert store.release("top", tail) is True
        assert store.release("top", tail) is False, "a second time"
        assert store.release("top", TailRelease(0, 0)) is False
        rest = store.allocate("top", 1_000, 0)
        assert (rest.start, rest.end) == (top + 1, ID_MAX + 1)
        with failure("exhausted", match="every number up to 9223372036854775807"):
            store.allocate("top", 1, 0)
        with failure("exhausted"):
            store.allocate("top", 1, ID_MAX + 1)
        everything = store.allocate("all", 2**64 - 1, 0)
        assert (everything.start, everything.end) == (1, ID_MAX + 1)

    def test_leases_have_the_limits_of_the_options_and_errors_their_kinds(self) -> None:
        store = store_at(fresh_database(), max_horizon_ms=100_000, max_skew_ms=5_000)

        def acquire(**more: Any) -> Lease:
            return store.acquire(replace(LeaseAcquire("default", LAYOUT, "host-a", None, now_ms(), 60_000), **more))

        def extend(lease: Lease, **more: Any) -> Lease:
            request = LeaseExtend("default", LAYOUT, lease.worker, lease.grant_id, now_ms(), 120_000)
            return store.extend(replace(request, **more))

        with failure("clock-skew", match="5000 ms apart is the limit"):
            acquire(now_ms=now_ms() - 6_000)
        lease = acquire(preferred_worker=7)
        assert lease.worker == 7 and 0 < lease.grant_id < 2**128
        assert now_ms() < lease.valid_until_ms <= now_ms() + 61_000
        longer = extend(lease)
        assert longer == replace(lease, valid_until_ms=longer.valid_until_ms)
        assert lease.valid_until_ms < longer.valid_until_ms <= now_ms() + 101_000, "as far as the option allows"
        for stranger in ({"grant_id": lease.grant_id ^ 1}, {"worker": 8}):
            with failure("lease-lost"):
                extend(lease, **stranger)
        one_worker = replace(LAYOUT, datacenter_bits=0, worker_bits=0)
        with failure("layout-mismatch", match=r"bound to the layout 41/5\+5/12.*use another namespace"):
            acquire(layout=one_worker)
        acquire(namespace="one", layout=one_worker)
        with failure("workers-exhausted", match='all 1 worker ids of "one"'):
            acquire(namespace="one", layout=one_worker)
        end_ms = lease.not_before_ms
        assert store.release_lease("default", 7, lease.grant_id ^ 1, end_ms) is False
        assert store.release_lease("default", 7, lease.grant_id, end_ms) is True
        assert re.fullmatch("[0-9a-f]{32}", store.lease_identity() or "")
        assert store.lease_identity() != store.identity()
        with failure("refused", match="lease_horizon_max_ms is 0"):
            store_at("mysql://root@h/ids", max_horizon_ms=0)

    def test_tags_are_made_by_first_use_unless_the_options_say_otherwise(self) -> None:
        url = fresh_database()
        store, closed, few = store_at(url), store_at(url, create_tags=False), store_at(url, tags_max=2)
        with failure("tag-unknown", match="unalike tags create"):
            closed.open_tag("order")
        assert store.open_tag("order").options == TagOptions()
        assert closed.allocate("order", 1, 0).start == 1
        few.open_tag("second")
        with failure("tag-limit", match="has 2 tags, its limit"):
            few.open_tag("third")
        with failure("tag-exists"):
            few.create_tag("order")


class TestUrl:
    @pytest.mark.parametrize(
        ("url", "options", "expected"),
        [
            (None, {}, "the address is None: is its environment variable set"),
            ("", {}, "the address is empty"),
            (5, {}, "the address is of the type int"),
            ("mysql://root@h/ids", {"password": 5}, "the password is of the type int"),
            ("mysql://h/ids", {"password": "s3cret"}, "names no user: write mysql://USER@HOST/DATABASE$"),
            ("mysql://root:s3cret@h/ids", {"password": "s3cret"}, "more than one way"),
            ("mysql://root:s3cret@h/ids?password-env=PATH", {}, "more than one way"),
            ("mysql://root@h/ids?password-env=UNALIKE_NO_SUCH", {}, "has no text"),
            ("mysql://root@h/ids?password-file=/nowhere", {}, "cannot be read"),
            ("mysql://root@h/ids?password=s3cret", {}, "belongs before the @"),
            ("postgres://root:s3cret@h/ids", {}, "must be mysql"),
            ("s3cret", {}, "must be mysql"),
            ("mysql://h/ids", {}, "names no user: write mysql://USER@HOST/DATABASE$"),
            ("mysql://:s3cret@h/ids", {}, "names no user"),
            ("mysql://root:s3cret@h:port/ids", {}, "port"),
            ("mysql://root:s3cret@x@h/y@ids", {}, "percent-encoded"),
            ("mysql://root@h", {}, "names no database"),
            ("mysql://root@h/ids?dialect=other", {}, "dialect"),
            ("mysql://root@h/ids?colour=red", {}, "is unknown: there are dialect"),
            ("mysql://root@h/ids?connections=0", {}, "whole number from 1 to 10000"),
            ("mysql://root@h/ids?request-timeout-ms=600001", {}, "from 1 to 600000"),
            ("mysql://root@h/ids?durability=yes", {}, "checked or assumed"),
            ("mysql://root@h/ids?ssl-mode=on", {}, "disabled, preferred"),
            ("mysql://root@h/ids?create=maybe", {}, "true or false"),
        ],
    )
    def test_what_cannot_be_used_is_refused_in_words_without_the_password(
        self, url: Any, options: Any, expected: str
    ) -> None:
        with pytest.raises(StoreError, match=expected) as caught:
            store_at(url, **options)
        assert caught.value.kind == "refused" and "s3cret" not in str(caught.value)

    def test_the_password_is_in_the_url_or_a_file_or_the_environment_or_given_beside(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        url = fresh_database()
        user = f"u{os.urandom(4).hex()}"
        password = "p@ss/wörd ?#'\\"
        query(url, f"CREATE USER '{user}' IDENTIFIED BY 'p@ss/wörd ?#\\'\\\\'", f"GRANT ALL ON *.* TO '{user}'")
        place = url.rpartition("@")[2]
        bare = f"mysql://{user}@{place}"
        with failure("refused", match="denied access"):
            store_at(bare)
        file = tmp_path / "password"
        file.write_text(f"{password}\n")
        monkeypatch.setenv("UNALIKE_TEST_PASSWORD", password)
        store_at(f"{bare}?password-file={file}")
        store_at(f"{bare}?password-env=UNALIKE_TEST_PASSWORD")
        store_at(bare, password=password)
        store_at(f"MariaDB://{user}:{quote(password, safe='')}@{place}")


class TestServers:
    def test_grants_through_a_server_that_is_killed_come_once(self) -> None:
        # The names of tags do not depend on what sessions begin with.
        with MariaDb("--character-set-server=latin1", "--sql-mode=NO_BACKSLASH_ESCAPES") as server:
            stores = [store_at(server.url()) for _ in range(2)]
            assert stores[0].open_tag("ördér \\").tag == "ördér \\"
            segments: list[Segment] = []
            kinds: set[str] = set()
            is_over = threading.Event()

            def client(store: MysqlStore) -> None:
                while not is_over.is_set():
                    try:
                        segments.append(store.allocate("ördér \\", 7, 0))
                    except StoreError as error:
                        assert error.kind in ("unavailable", "outcome-unknown") and error.is_retryable, error
                        kinds.add(error.kind)
                        time.sleep(0.01)

            with ThreadPoolExecutor(8) as threads:
                clients = [threads.submit(client, store) for store in stores * 4]
                try:
                    for is_last in (False, True):
                        goal = len(segments) + 40
                        eventually("grants go on", lambda: len(segments) >= goal or any(it.done() for it in clients))
                        if not is_last:
                            server.kill()
                            server.restart()
                finally:
                    is_over.set()
                for one in clients:
                    one.result()
            assert_disjoint(segments)
            assert kinds

    def test_an_answer_that_comes_byte_by_byte_ends_the_request_in_time_too(self) -> None:
        with Proxy(fresh_database()) as proxy:
            store_at(proxy.url).open_tag("order")
            store = store_at(f"{proxy.url}?request-timeout-ms=2000")
            first = store.allocate("order", 10, 0)
            proxy.drips = True
            with failure("outcome-unknown", match="no answer within 2000 ms"):
                store.allocate("order", 10, 0)
            proxy.drips = False
            assert store.allocate("order", 10, 0).start == first.end + 10, "what was granted to nobody is burnt"

    def test_a_tag_that_a_lock_keeps_from_being_made_leaves_no_transaction_open(self) -> None:
        url = fresh_database()
        store = store_at(f"{url}?request-timeout-ms=2500")
        store.allocate("order", 1, 0)
        with locked(url, "SELECT * FROM unalike_store FOR UPDATE"):
            with failure("unavailable", match="holds the row for too long"):
                store.create_tag("other")
        with locked(url, LOCK_OF_ORDER):
            with failure("unavailable", match="holds the row for too long"):
                store.allocate(f"order{SUB_SEPARATOR}a", 1, 0)
        is_open = (
            "SELECT t.trx_id FROM information_schema.INNODB_TRX t JOIN information_schema.PROCESSLIST p "
            "ON p.id = t.trx_mysql_thread_id WHERE p.db = DATABASE()"
        )
        eventually("no transaction is open", lambda: query(url, is_open) == [])
        assert store.allocate("order", 1, 0).start == 2
        assert store.create_tag("other").tag == "other"

    @pytest.mark.parametrize(
        ("statement", "expected"),
        [
            ("ALTER TABLE unalike_tag MODIFY version INT UNSIGNED NOT NULL", r"version int\(10\) unsigned"),
            ("ALTER TABLE unalike_tag MODIFY tag VARCHAR(128) NOT NULL", "compared byte by byte"),
            ("ALTER TABLE unalike_store DROP CONSTRAINT unalike_store_stripe, DROP COLUMN tags", "no column tags"),
        ],
    )
    def test_a_table_whose_columns_cannot_hold_grants_is_refused(self, statement: str, expected: str) -> None:
        url = fresh_database()
        store_at(url)
        query(url, statement)
        with failure("refused", match=expected):
            store_at(url)

    def test_tls_is_used_as_far_as_it_is_asked_for(self, tmp_path: Path) -> None:
        authority = Authority(tmp_path)
        authority.sign("DNS:localhost")
        ca, cert, key = authority.file, *(tmp_path / f"authority-signed-0.{kind}" for kind in ("pem", "key"))
        with MariaDb(f"--ssl-cert={cert}", f"--ssl-key={key}") as server:
            url = server.url()
            store_at(url)
            store_at(f"{url}?ssl-mode=verify_ca&ssl-ca={ca}").allocate("order", 1, 0)
            with failure("refused", match="no TLS with a server that can be trusted"):
                store_at(f"{url}?ssl-mode=verify_ca")
        with MariaDb("--skip-ssl") as plain:
            with failure("refused", match="no TLS with"):
                store_at(f"{plain.url()}?ssl-mode=required")


class TestCalls:
    def test_an_interrupted_request_goes_to_its_end(self) -> None:
        """Its only connection serves the next one then."""
        url = fresh_database()
        store = store_at(f"{url}?connections=1")
        store.allocate("order", 1, 0)
        with locked(url, LOCK_OF_ORDER):

            def interrupt() -> None:
                until_one_waits(url)
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

            # A program that a shell runs in the background ignores it.
            before = signal.signal(signal.SIGINT, signal.default_int_handler)
            thread = threading.Thread(target=interrupt)
            thread.start()
            with pytest.raises(KeyboardInterrupt):
                while True:
                    # On a busy machine the wait for the row may end before it is seen.
                    with contextlib.suppress(StoreError):
                        store.allocate("order", 1, 0)
            thread.join()
            signal.signal(signal.SIGINT, before)
        later = store.allocate("order", 1, 0)
        assert later.start >= 2

    def test_threads_that_are_more_than_connections_are_served_in_turn_and_none_after_close(self) -> None:
        store = store_at(f"{fresh_database()}?connections=2")
        with ThreadPoolExecutor(24) as threads:
            segments = list(threads.map(lambda _: store.allocate("order", 5, 0), range(24)))
        assert len(segments) == 24
        assert_disjoint(segments)
        store.close()
        with failure("refused", match="the store was closed"):
            store.allocate("order", 1, 0)
        store.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
class TestFork:
    def test_a_child_has_connections_of_its_own_and_leaves_those_of_its_parent(self) -> None:
        url = fresh_database()
        store = store_at(url)
        parents = [store.allocate("order", 5, 0)]
        connected = "SELECT id FROM information_schema.PROCESSLIST WHERE db = DATABASE() AND id <> CONNECTION_ID()"
        own = eventually("one is connected", lambda: the_one(query(url, connected)))

        def child() -> list[Segment]:
            granted = [store.allocate("order", 5, 0) for _ in range(10)]
            lease = store.acquire(LeaseAcquire("default", LAYOUT, "", None, now_ms(), 60_000))
            store.release_lease("default", lease.worker, lease.grant_id, lease.not_before_ms)
            store.close()
            return granted

        children = in_child(child, lambda: None)
        assert own in query(url, connected), "the parent's connection is open"
        children += in_child(child, lambda: parents.extend(store.allocate("order", 5, 0) for _ in range(10)))
        assert own in query(url, connected), "and the parent uses it"
        assert len(children) == 20
        assert_disjoint(parents + children)

    def test_a_child_waits_for_no_lock_and_no_connection_of_a_thread_of_its_parent(self) -> None:
        url = fresh_database()
        store = store_at(f"{url}?connections=1")
        store.allocate("order", 1, 0)
        with ThreadPoolExecutor(1) as threads:
            with locked(url, LOCK_OF_ORDER):
                waiting: Future[Segment] = threads.submit(store.allocate, "order", 1, 0)
                until_one_waits(url)
                children = in_child(lambda: [store.allocate("other", 5, 0)], lambda: None)
            assert children[0].start == 1
            assert waiting.result().start == 2, "nor does the parent hear of it"


def the_one(rows: list[dict[str, Any]]) -> Optional[dict[str, Any]]:
    """The row, if there is one and no other."""
    return rows[0] if len(rows) == 1 else None


def in_child(work: Callable[[], list[Segment]], meanwhile: Callable[[], Any]) -> list[Segment]:
    """What this answers in a child that is forked from here."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            signal.alarm(60)
            said = json.dumps([[segment.start, segment.end] for segment in work()])
            os.write(writer, said.encode())
            code = 0
        except BaseException as error:
            os.write(writer, repr(error).encode())
        finally:
            os._exit(code)
    os.close(writer)
    meanwhile()
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    _, status = os.waitpid(pid, 0)
    assert status == 0, said
    return [Segment(start, end, 1, 0, 0) for start, end in json.loads(said)]
