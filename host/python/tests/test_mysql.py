"""The store in MySQL and MariaDB, on real servers."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import threading
import time
from collections import defaultdict
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Callable, Iterator, Optional, Sequence
from urllib.parse import quote

import pymysql
import pytest
from mariadb import MariaDb, Proxy, dump, eventually, fresh_database, load, new_directory, query, required, set_clock
from servers import Authority, stop

from unalike.mysql import MysqlStore
from unalike.store import (
    ID_MAX,
    SUB_SEPARATOR,
    FixedStep,
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

ROOT = Path(__file__).parents[3]
LAYOUT = Layout(41, 5, 5, 12, "worker-first", 1_288_834_974_657, 1)
FOUR_WORKERS = replace(LAYOUT, datacenter_bits=0, worker_bits=2)
FOUR_IN_WORDS = "41/2/12 epoch 1288834974657 tick 1 ms"
TWO_WORKERS = replace(LAYOUT, datacenter_bits=0, worker_bits=1)


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


def command(url: str, tag: str, count: int) -> list[int]:
    """Numbers that the ``unalike`` command takes."""
    arguments = [required("UNALIKE_BIN"), "next", tag, "-n", str(count), "--store", url]
    said = subprocess.run(arguments, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    numbers = [int(line) for line in said.split()]
    assert len(numbers) == count
    return numbers


def together(*work: Callable[[], None]) -> None:
    """All at once, each in a thread."""
    with ThreadPoolExecutor(len(work)) as threads:
        for done in [threads.submit(one) for one in work]:
            done.result()


class TestSegments:
    def test_many_clients_are_granted_disjoint_numbers_each_at_or_above_its_floor(self) -> None:
        url = fresh_database()
        stores = [store_at(url) for _ in range(3)]
        segments: list[Segment] = []

        def client(number: int) -> None:
            last = 0
            for turn in range(25):
                floor = last + number * 7 if turn % 3 == 0 else 0
                count = 1 + (turn * 31 + number) % 50
                segment = stores[number % 3].allocate("order", count, floor)
                assert segment.start >= floor and segment.start > last, "starts ascend"
                assert segment.end - segment.start == count
                last = segment.start
                segments.append(segment)

        together(*[partial(client, number) for number in range(12)])
        assert len(segments) == 300
        assert_disjoint(segments)

    def test_a_tail_is_taken_back_once_and_only_while_its_version_stands(self) -> None:
        store = store_at(fresh_database())
        first = store.allocate("order", 100, 0)
        tail = TailRelease(first.start + 40, first.version)
        assert store.release("order", tail)
        assert not store.release("order", tail), "a second time"
        second = store.allocate("order", 10, 0)
        assert second.start == tail.start
        assert not store.release("order", tail), "a late one"
        third = store.allocate("order", 10, second.end)
        assert not store.release("order", TailRelease(second.start, second.version))
        # Who goes on from right behind its own grant holds one tail.
        assert store.release("order", TailRelease(second.start, third.version))
        assert store.allocate("order", 1, 0).start == second.start
        assert not store.release("unknown", tail)
        assert not store.release("order", TailRelease(0, 0))

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
        assert store.release("top", TailRelease(top + 1, first.version))
        rest = store.allocate("top", 1_000, 0)
        assert (rest.start, rest.end) == (top + 1, ID_MAX + 1)
        with failure("exhausted", match="every number up to 9223372036854775807"):
            store.allocate("top", 1, 0)
        with failure("exhausted"):
            store.allocate("top", 1, ID_MAX + 1)
        everything = store.allocate("all", 2**64 - 1, 0)
        assert (everything.start, everything.end) == (1, ID_MAX + 1)

    def test_first_use_creates_tags_unless_it_may_not_and_up_to_the_limit(self) -> None:
        url = fresh_database()
        store, closed, few = store_at(url), store_at(url, create_tags=False), store_at(url, tags_max=2)
        with failure("tag-unknown", match="unalike tags create"):
            closed.allocate("order", 1, 0)
        with failure("tag-unknown"):
            closed.open_tag("order")
        assert store.open_tag("order").options == TagOptions()
        assert closed.allocate("order", 1, 0).start == 1
        # Sub-keys are always created, and do not count.
        assert closed.allocate(f"order{SUB_SEPARATOR}shop", 1, 0).start == 1
        few.open_tag("second")
        with failure("tag-limit", match="has 2 tags, its limit"):
            few.open_tag("third")
        few.allocate(f"second{SUB_SEPARATOR}a", 1, 0)
        with failure("tag-limit"):
            few.create_tag("third")
        with failure("tag-exists"):
            few.create_tag("order")
        with failure("tag-unknown"):
            closed.allocate(f"third{SUB_SEPARATOR}a", 1, 0)
        assert query(url, "SELECT tags FROM unalike_store") == [{"tags": 2}]

    def test_a_sub_key_has_the_options_of_its_tag_and_ends_with_it(self) -> None:
        url = fresh_database()
        store = store_at(url)
        options = TagOptions(500, FixedStep(7), Remaining(2**64 - 1), "ordered")
        assert store.create_tag("order", options).options == options
        assert store_at(url).open_tag("order").options == options
        assert store.open_tag(f"order{SUB_SEPARATOR}a").options == options
        assert store.allocate(f"order{SUB_SEPARATOR}a", 5, 0).start == 500
        query(
            url,
            "UPDATE unalike_tag SET settled = 9223372036854775807, watermark = 9223372036854775807, "
            "stripe_version = version + 1, version = version + 1 WHERE tag = 'order'",
            "COMMIT",
        )
        with failure("exhausted"):
            store.allocate("order", 1, 0)
        with failure("exhausted"):
            store.allocate(f"order{SUB_SEPARATOR}b", 1, 0)
        assert store.allocate(f"order{SUB_SEPARATOR}a", 5, 0).start == 505, "one that was there goes on"

    def test_new_names_begin_above_the_floor_and_what_is_kept_does_not(self) -> None:
        url = fresh_database()
        store = store_at(url)
        query(
            url,
            "INSERT INTO unalike_tag (tag, start, mode, step_policy, step, refill_policy, refill, settled, watermark) "
            "VALUES (CONCAT('unalike-new-names', CHAR(31), 'floor'), 1, 'buffered', 'fixed', 1, 'remaining', 1, 1000, "
            "1000)",
            "COMMIT",
        )
        assert store.allocate("order", 1, 0).start == 1_001
        assert store.allocate(f"redis-leases{SUB_SEPARATOR}x", 1, 0).start == 1
        with failure("tag-invalid"):
            store.create_tag("redis-leases")
        for name in ("", "a\0", "x" * 129, " order"):
            with failure("tag-invalid"):
                store.open_tag(name)
        name = "naïve '\"\\ %_?%s\U0001f600"
        assert store.open_tag(name).tag == name
        assert store.open_tag("ORDER").tag == "ORDER"
        with failure("refused"):
            store.allocate("order", 0, 0)

    def test_one_tag_that_many_create_at_once_is_created_once(self) -> None:
        url = fresh_database()
        stores = [store_at(url) for _ in range(4)]
        segments: list[Segment] = []

        def client(store: MysqlStore) -> None:
            segments.append(store.allocate("order", 10, 0))

        together(*[partial(client, store) for store in stores * 3])
        assert len(segments) == 12
        assert_disjoint(segments)
        assert query(url, "SELECT tags FROM unalike_store") == [{"tags": 1}]
        names = {store.identity() for store in stores}
        assert len(names) == 1 and re.fullmatch("[0-9a-f]{32}", names.pop())

    def test_it_makes_the_tables_that_the_unalike_command_makes_and_goes_on_in_them(self) -> None:
        ours, theirs = fresh_database(), fresh_database()
        store_at(ours)
        command(theirs, "order", 5)
        for table in ("unalike_store", "unalike_tag"):
            assert query(ours, f"SHOW CREATE TABLE {table}") == query(theirs, f"SHOW CREATE TABLE {table}")
        for url in (ours, theirs):
            (row,) = query(url, "SELECT server, schema_version FROM unalike_store")
            form = r"mark [0-9a-f]{32} server_id \d+ gtid_domain_id \d+ gtid_slave_pos none era [0-9a-f]{32} 0"
            assert re.fullmatch(form, row["server"]) and row["schema_version"] == 2
        before = query(theirs, "SELECT server FROM unalike_store")
        assert store_at(theirs).allocate("order", 5, 0).start > 5
        assert query(theirs, "SELECT server FROM unalike_store") == before
        assert command(ours, "order", 5)[0] == 1

    def test_with_the_unalike_command_and_node_at_once_nothing_comes_twice(self) -> None:
        module = ROOT / "host" / "node" / "dist" / "mysql.js"
        assert module.exists(), "build host/node first: npm --prefix host/node run build"
        url = fresh_database()
        store = store_at(url)
        store.open_tag("order")
        program = f"""
            const {{ MysqlStore }} = await import({json.dumps(module.as_uri())});
            const store = await MysqlStore.open({json.dumps(url)});
            const one = async () => {{
              for (let round = 0; round < 40; round += 1) {{
                const {{ start, end }} = await store.allocate('order', 3n, 0n);
                for (let number = start; number < end; number += 1n) console.log(String(number));
              }}
            }};
            await Promise.all([one(), one(), one()]);
        """
        numbers: list[int] = []

        def python() -> None:
            for _ in range(120):
                segment = store.allocate("order", 3, 0)
                numbers.extend(range(segment.start, segment.end))

        def node() -> None:
            arguments = ["node", "--input-type=module", "-e", program]
            said = subprocess.run(arguments, check=True, stdout=subprocess.PIPE, text=True).stdout
            found = [int(line) for line in said.split()]
            assert len(found) == 360
            numbers.extend(found)

        def rust() -> None:
            for _ in range(4):
                numbers.extend(command(url, "order", 30))

        together(python, node, rust, node, python, rust)
        assert len(numbers) == 720 + 720 + 240
        assert len(set(numbers)) == len(numbers), "a number came twice"

    def test_a_stripe_of_a_set_is_refused(self) -> None:
        url = fresh_database()
        store = store_at(url)
        store.allocate("order", 1, 0)
        query(
            url,
            "UPDATE unalike_store SET stripe_set = X'000102030405060708090a0b0c0d0e0f', stripe_index = 1, stripe_count "
            "= 3, stripe_tags = tags",
            "UPDATE unalike_tag SET stripe_set = X'000102030405060708090a0b0c0d0e0f', stripe_version = version",
            "COMMIT",
        )
        what = "is stripe 1 of 3 in the set 000102030405060708090a0b0c0d0e0f: use it together with all"
        for attempt in (lambda: store.allocate("order", 1, 0), lambda: store.create_tag("other")):
            with failure("refused", match=what):
                attempt()

    def test_a_row_that_another_server_wrote_is_refused(self) -> None:
        url = fresh_database()
        store = store_at(url)
        store.allocate("order", 1, 0)
        query(
            url,
            "UPDATE unalike_tag SET stripe_set = X'ff000000000000000000000000000000', stripe_version = version",
            "COMMIT",
        )
        with failure("refused", match="unalike store adopt --lift COUNT"):
            store.allocate("order", 1, 0)


class TestDumps:
    COPY = "not those that were used before: they were loaded from a dump.*unalike store restored --lift COUNT"

    def test_one_that_is_loaded_again_is_refused_until_an_operator_says_that_the_store_was_restored(self) -> None:
        url = fresh_database()
        store = store_at(url)
        granted = [store.allocate("order", 10, 0)]
        dumped = dump(url)
        granted.append(store.allocate("order", 10, 0))
        late = [store.allocate("late", 10, 0)]
        store.close()
        load(url, dumped)
        for _ in range(4):
            with failure("refused", match=self.COPY):
                store_at(url)
        arguments = [required("UNALIKE_BIN"), "store", "restored", "--lift", "1000", "--store", url]
        subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        restored = store_at(url)
        granted.append(restored.allocate("order", 10, 0))
        assert_disjoint(granted)
        late.append(restored.allocate("late", 10, 0))
        assert_disjoint(late)

    def test_one_that_is_loaded_under_a_program_that_runs_is_noticed(self) -> None:
        url = fresh_database()
        store = store_at(url)
        store.allocate("order", 10, 0)
        load(url, dump(url))
        # It looks once a second.
        time.sleep(1.1)
        for _ in range(3):
            with failure("refused", match=self.COPY):
                store.allocate("order", 10, 0)


class TestWhatGrantsRestOn:
    @pytest.mark.parametrize(
        ("statement", "expected"),
        [
            ("ALTER TABLE unalike_tag DROP PRIMARY KEY, ADD INDEX (tag)", "no unique key over exactly tag"),
            ("ALTER TABLE unalike_tag DROP PRIMARY KEY, ADD UNIQUE (tag(20))", "no unique key"),
            ("ALTER TABLE unalike_tag ENGINE = Aria", "is kept in Aria"),
            ("ALTER TABLE unalike_tag MODIFY version INT UNSIGNED NOT NULL", r"version int\(10\) unsigned"),
            ("ALTER TABLE unalike_tag MODIFY tag VARCHAR(128) NOT NULL", "compared byte by byte"),
            (
                "CREATE TRIGGER moves BEFORE UPDATE ON unalike_tag FOR EACH ROW SET NEW.watermark = OLD.watermark",
                "the trigger moves, which runs before",
            ),
            ("ALTER TABLE unalike_store DROP CONSTRAINT unalike_store_stripe, DROP COLUMN tags", "no column tags"),
            ("RENAME TABLE unalike_tag TO tags; CREATE VIEW unalike_tag AS SELECT * FROM tags", "is a view"),
            ("UPDATE unalike_store SET schema_version = 3; COMMIT", "version 3.*serves 1 to 2: upgrade this program"),
        ],
    )
    def test_it_is_refused_when_it_is_not_so(self, statement: str, expected: str) -> None:
        url = fresh_database()
        store_at(url)
        query(url, *statement.split("; "))
        with failure("refused", match=expected):
            store_at(url)

    def test_nothing_is_created_where_that_is_not_allowed(self) -> None:
        url = fresh_database()
        with failure("refused", match="unalike_store is missing.*create=false.*unalike schema"):
            store_at(f"{url}?create=false")
        assert query(url, "SHOW TABLES") == []
        store_at(url)
        assert store_at(f"{url}?create=false").allocate("order", 1, 0).start == 1

    def test_tables_of_version_1_without_stripes_are_served(self) -> None:
        url = fresh_database()
        store_at(url)
        query(
            url,
            "ALTER TABLE unalike_store DROP CONSTRAINT unalike_store_stripe, DROP COLUMN stripe_set, "
            "DROP COLUMN stripe_index, DROP COLUMN stripe_count, DROP COLUMN stripe_tags",
            "ALTER TABLE unalike_tag DROP CONSTRAINT unalike_tag_stripe, DROP COLUMN stripe_set, DROP COLUMN "
            "stripe_version",
            "UPDATE unalike_store SET schema_version = 1",
            "COMMIT",
        )
        store = store_at(url)
        segment = store.allocate("order", 10, 0)
        assert store.release("order", TailRelease(5, segment.version))
        assert store.allocate("order", 1, 0).start == 5
        assert len(command(url, "order", 1)) == 1


class TestUrl:
    @pytest.mark.parametrize(
        ("url", "expected"),
        [
            ("mysql://root@h/ids?dialect=other", "dialect"),
            ("mysql://root@h/ids?colour=red", "is unknown: there are dialect"),
            ("mysql://root@h/ids?connections=0", "whole number from 1 to 10000"),
            ("mysql://root@h/ids?request-timeout-ms=600001", "from 1 to 600000"),
            ("mysql://root@h/ids?durability=yes", "checked or assumed"),
            ("mysql://root@h/ids?ssl-mode=on", "disabled, preferred"),
            ("mysql://root@h/ids?create=maybe", "true or false"),
            ("mysql://root@h/ids?password=s3cret", "belongs before the @"),
            ("mysql://root:s3cret@h/ids?password-env=PATH", "more than one way"),
            ("mysql://root@h/ids?password-env=UNALIKE_NO_SUCH", "has no text"),
            ("mysql://root@h/ids?password-file=/nowhere", "cannot be read"),
            ("mysql://root@h", "names no database"),
            ("mysql://h/ids", "the store's URL names no user: write mysql://USER@HOST/DATABASE$"),
            ("mysql://:s3cret@h/ids", "names no user"),
            ("mysql://root:s3cret@h:port/ids", "port"),
            ("postgres://root:s3cret@h/ids", "must be mysql"),
            ("mysql://root:s3cret@x@h/y@ids", "percent-encoded"),
            ("s3cret", "must be mysql"),
        ],
    )
    def test_it_is_refused_in_words_without_the_password(self, url: str, expected: str) -> None:
        with pytest.raises(StoreError, match=expected) as caught:
            store_at(url)
        assert caught.value.kind == "refused" and "s3cret" not in str(caught.value)

    @pytest.mark.parametrize(
        ("url", "password", "expected"),
        [
            (None, None, "the address is None: is its environment variable set"),
            ("", None, "the address is empty"),
            (5, None, "the address is of the type int"),
            ("mysql://root@h/ids", 5, "the password is of the type int"),
        ],
    )
    def test_an_address_that_is_not_set_is_told(self, url: Any, password: Any, expected: str) -> None:
        with pytest.raises(StoreError, match=expected) as caught:
            MysqlStore(url, password=password)
        assert caught.value.kind == "refused"

    def test_it_says_where_the_password_is(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
        store_at(f"mysql://{user}:{quote(password, safe='')}@{place}")


class TestFailures:
    def test_a_server_that_is_killed_in_the_middle_of_grants_repeats_none(self) -> None:
        with MariaDb() as server:
            stores = [store_at(server.url()) for _ in range(2)]
            stores[0].open_tag("order")
            segments: list[Segment] = []
            kinds: set[str] = set()
            is_over = threading.Event()

            def client(store: MysqlStore) -> None:
                while not is_over.is_set():
                    try:
                        segments.append(store.allocate("order", 7, 0))
                    except StoreError as error:
                        assert error.kind in ("unavailable", "outcome-unknown"), error
                        kinds.add(error.kind)
                        time.sleep(0.01)

            with ThreadPoolExecutor(8) as threads:
                clients = [threads.submit(client, store) for store in stores * 4]
                try:
                    for is_last in (False, False, True):
                        goal = len(segments) + 40
                        eventually("grants go on", lambda: len(segments) >= goal or any(it.done() for it in clients))
                        if not is_last:
                            server.stop()
                            server.restart()
                finally:
                    is_over.set()
                for one in clients:
                    one.result()
            assert_disjoint(segments)
            assert kinds

    def test_a_server_that_hangs_keeps_nobody_waiting_and_goes_on_afterwards(self) -> None:
        with MariaDb() as server:
            store = store_at(f"{server.url()}?connect-timeout-ms=2000&request-timeout-ms=3000")
            before = store.allocate("order", 10, 0)
            assert server.process is not None
            stop(server.process)
            late = "no answer within 3000 ms|no connection within 2000 ms"
            with failure("outcome-unknown", "unavailable", match=late):
                store.allocate("order", 10, 0)
            with failure("unavailable", match="no connection within 2000 ms"):
                store.allocate("order", 10, 0)
            with failure("unavailable"):
                store_at(f"{server.url()}?connect-timeout-ms=1000")
            server.send(signal.SIGCONT)
            later = eventually("it serves again", lambda: store.allocate("order", 10, 0))
            assert_disjoint([before, later])

    def test_an_answer_that_is_lost_after_the_commit_has_its_grant_burnt(self) -> None:
        with Proxy(fresh_database()) as proxy:
            store = store_at(proxy.url)
            first = store.allocate("order", 10, 0)
            # The statement is prepared, so that the tag alone is sent.
            proxy.cut_at = b"order"
            with failure("outcome-unknown", match="answer was lost, so the grant is abandoned: allocating a segment"):
                store.allocate("order", 10, 0)
            assert proxy.cuts == 1, "it was sent once"
            with failure("outcome-unknown"):
                store.release("order", TailRelease(5, first.version))
            proxy.cut_at = b"COMMIT AND"
            with failure("outcome-unknown"):
                store.create_tag("other")
            proxy.cut_at = None
            with failure("tag-exists"):
                store.create_tag("other")
            assert store.allocate("order", 10, 0).start == first.end + 10, "what was burnt stays so"

    def test_an_answer_that_comes_byte_by_byte_ends_the_request_in_time_too(self) -> None:
        with Proxy(fresh_database()) as proxy:
            store_at(proxy.url).open_tag("order")
            store = store_at(f"{proxy.url}?request-timeout-ms=3000")
            first = store.allocate("order", 10, 0)
            proxy.drips = True
            with failure("outcome-unknown", match="no answer within 3000 ms"):
                store.allocate("order", 10, 0)
            proxy.drips = False
            assert store.allocate("order", 10, 0).start == first.end + 10

    def test_a_row_that_is_locked_for_too_long_keeps_no_transaction_open(self) -> None:
        url = fresh_database()
        store = store_at(f"{url}?request-timeout-ms=2500")
        store.allocate("order", 1, 0)
        with pymysql_lock(url, "SELECT * FROM unalike_store FOR UPDATE"):
            with failure("unavailable", match="holds the row for too long"):
                store.create_tag("other")
        with pymysql_lock(url, "SELECT * FROM unalike_tag WHERE tag = 'order' FOR UPDATE"):
            with failure("unavailable", match="holds the row for too long"):
                store.allocate(f"order{SUB_SEPARATOR}a", 1, 0)
        is_open = (
            "SELECT t.trx_id FROM information_schema.INNODB_TRX t JOIN information_schema.PROCESSLIST p "
            "ON p.id = t.trx_mysql_thread_id WHERE p.db = DATABASE()"
        )
        eventually("no transaction is open", lambda: query(url, is_open) == [])
        assert store.allocate("order", 1, 0).start == 2
        assert store.create_tag("other").tag == "other"

    def test_a_copy_that_lags_is_refused_until_it_is_adopted(self) -> None:
        with MariaDb() as server:
            store = store_at(server.url())
            store.allocate("order", 10, 0)
            server.stop(signal.SIGTERM)
            copy = server.copy_data()
            server.restart()
            lost = eventually("it serves again", lambda: store.allocate("order", 10, 0))
            server.stop(signal.SIGTERM)
            with MariaDb("--server-id=2", data=copy, port=server.port) as replica:
                another = r"another one than before \(.*server_id 2.*unalike store adopt --lift COUNT"
                for _ in range(2):
                    with failure("refused", match=another):
                        refused_at(store)
                with failure("refused", match=another):
                    store_at(replica.url())
                arguments = [required("UNALIKE_BIN"), "store", "adopt", "--lift", "1000", "--store", replica.url()]
                subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                # Who knew the other one has to be started again.
                with failure("refused"):
                    store.allocate("order", 10, 0)
                adopted = store_at(replica.url())
                following = adopted.allocate("order", 10, 0)
                assert_disjoint([lost, following])
                assert following.start > 1_000
                assert adopted.allocate("new", 1, 0).start > 1_000, "new names begin above the lift"
                with failure("quarantined", match='may have forgotten leases of "default": it grants none before'):
                    adopted.acquire(acquire())

    def test_a_server_that_may_lose_commits_or_is_set_otherwise_while_it_runs_grants_nothing(self) -> None:
        with MariaDb() as server:
            store = store_at(server.url())
            before = store.allocate("order", 1, 0)
            query(server.url(), "SET GLOBAL innodb_flush_log_at_trx_commit = 2")
            with failure("refused", match="a crash would lose commits"):
                store.allocate("order", 1, 0)
            with failure("refused"):
                store.create_tag("other")
            with failure("refused"):
                store_at(server.url())
            assert store_at(f"{server.url()}?durability=assumed").allocate("order", 1, 0).start == before.end
            query(server.url(), "SET GLOBAL innodb_flush_log_at_trx_commit = 1", "SET GLOBAL read_only = 1")
            with failure("unavailable", match="only reads just now"):
                store.allocate("order", 1, 0)
            query(server.url(), "SET GLOBAL read_only = 0")
            assert store.allocate("order", 1, 0).start == before.end + 1

    def test_a_server_with_odd_settings_of_sessions_grants_as_any_other_and_commits(self) -> None:
        settings = (
            "--completion-type=CHAIN",
            "--autocommit=0",
            "--sql-mode=ANSI_QUOTES,PIPES_AS_CONCAT,NO_BACKSLASH_ESCAPES,IGNORE_SPACE",
            "--transaction-isolation=SERIALIZABLE",
            "--init-connect=SET SESSION sql_select_limit = 1; SET NAMES latin1; SET insert_id = 77; BEGIN",
            "--character-set-server=latin1",
        )
        with MariaDb(*settings) as server:
            query(server.url(), "CREATE USER plain IDENTIFIED BY ''", "GRANT ALL ON ids.* TO plain", "COMMIT")
            url = server.url("ids", "plain")
            store = store_at(url)
            first = store.allocate("ördér", 10, 0)
            assert store.release("ördér", TailRelease(6, first.version))
            assert store.allocate("ördér", 10, 0).start == 6
            store.create_tag("other", TagOptions(start=5))
            server.stop()
            server.restart()
            again = store_at(url)
            assert again.allocate("ördér", 1, 0).start == 16, "what was granted was committed"
            assert again.open_tag("other").options.start == 5
            query(server.url(), "SET GLOBAL init_connect = 'CREATE TEMPORARY TABLE unalike_tag (a INT)'")
            with failure("refused", match='init_connect runs "CREATE TEMPORARY TABLE'):
                store_at(url)

    def test_tls_is_used_as_far_as_it_is_asked_for(self, tmp_path: Path) -> None:
        authority = Authority(tmp_path)
        authority.sign("DNS:localhost")
        ca, cert, key = authority.file, *(tmp_path / f"authority-signed-0.{kind}" for kind in ("pem", "key"))
        with MariaDb(f"--ssl-cert={cert}", f"--ssl-key={key}") as server:
            query(server.url(), "CREATE USER safe REQUIRE SSL", "GRANT ALL ON ids.* TO safe")
            url = server.url("ids", "safe")
            store_at(url)
            store_at(f"{url}?ssl-mode=required")
            store_at(f"{url}?ssl-mode=verify_ca&ssl-ca={ca}").allocate("order", 1, 0)
            with failure("refused"):
                store_at(f"{url}?ssl-mode=disabled")
            named = url.replace("127.0.0.1", "localhost")
            store_at(f"{named}?ssl-mode=verify_identity&ssl-ca={ca}")
            untrusted = ("verify_ca", "verify_ca&ssl-ca=/nowhere.pem", f"verify_identity&ssl-ca={ca}")
            for mode in untrusted:
                with failure("refused", match="no TLS with a server that can be trusted"):
                    store_at(f"{url}?ssl-mode={mode}")
        with MariaDb("--skip-ssl") as plain:
            store_at(plain.url())
            with failure("refused", match="no TLS with"):
                store_at(f"{plain.url()}?ssl-mode=required")

    def test_an_interrupted_request_goes_to_its_end(self) -> None:
        """Its only connection serves the next one then."""
        url = fresh_database()
        store = store_at(f"{url}?connections=1")
        store.allocate("order", 1, 0)
        with pymysql_lock(url, "SELECT * FROM unalike_tag WHERE tag = 'order' FOR UPDATE"):

            def interrupt() -> None:
                eventually("it waits", lambda: query(url, "SELECT 1 FROM information_schema.INNODB_LOCK_WAITS"))
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

    def test_more_requests_than_connections_are_served_in_turn_and_none_after_close(self) -> None:
        store = store_at(f"{fresh_database()}?connections=2")
        segments: list[Segment] = []
        together(*[lambda: segments.append(store.allocate("order", 5, 0))] * 24)
        assert len(segments) == 24
        assert_disjoint(segments)
        store.close()
        with failure("refused", match="the store was closed"):
            store.allocate("order", 1, 0)
        store.close()


def refused_at(store: MysqlStore) -> None:
    """Asks until the server, which was just started, refuses."""

    def attempt() -> Optional[StoreError]:
        try:
            store.allocate("order", 10, 0)
        except StoreError as error:
            return error if error.kind == "refused" else None
        raise AssertionError("it was granted")

    refusal = eventually("it refuses", attempt)
    assert refusal is not None
    raise refusal


@contextmanager
def pymysql_lock(url: str, statement: str) -> Iterator[None]:
    """Holds what this statement locks."""
    host, port = re.search(r"@([^:/]+):(\d+)/", url).groups()  # type: ignore[union-attr]
    user = url.partition("://")[2].partition("@")[0]
    connection = pymysql.connect(host=host, port=int(port), user=user, database=url.rpartition("/")[2])
    try:
        with connection.cursor() as cursor:
            cursor.execute(statement)
        yield
    finally:
        connection.close()


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
            lease = store.acquire(acquire())
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
            with pymysql_lock(url, "SELECT * FROM unalike_tag WHERE tag = 'order' FOR UPDATE"):
                waiting: Future[Segment] = threads.submit(store.allocate, "order", 1, 0)
                eventually("it waits", lambda: query(url, "SELECT 1 FROM information_schema.INNODB_LOCK_WAITS"))
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


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def acquire(**options: Any) -> LeaseAcquire:
    fields: dict[str, Any] = {
        "namespace": "default",
        "layout": LAYOUT,
        "holder": "",
        "preferred_worker": None,
        "now_ms": now_ms(),
        "horizon_ms": 60_000,
    }
    return LeaseAcquire(**{**fields, **options})


def extend(lease: Lease, **options: Any) -> LeaseExtend:
    fields: dict[str, Any] = {
        "namespace": "default",
        "layout": LAYOUT,
        "worker": lease.worker,
        "grant_id": lease.grant_id,
        "now_ms": now_ms(),
        "horizon_ms": 120_000,
    }
    return LeaseExtend(**{**fields, **options})


def assert_intervals_disjoint(leases: Sequence[Lease]) -> None:
    """No two intervals of one worker overlap."""
    by_worker = defaultdict(list)
    for lease in leases:
        assert lease.not_before_ms <= lease.valid_until_ms
        by_worker[lease.worker].append(lease)
    for worker, intervals in by_worker.items():
        # An empty one comes before the one that begins where it does.
        intervals.sort(key=lambda lease: (lease.not_before_ms, lease.valid_until_ms))
        pairs = zip(intervals, intervals[1:])
        assert all(one.valid_until_ms <= other.not_before_ms for one, other in pairs), f"worker {worker} twice at once"
    assert len({lease.grant_id for lease in leases}) == len(leases)


class TestLeases:
    def test_many_holders_in_three_languages_have_one_worker_each_and_never_one_that_runs(self) -> None:
        module = ROOT / "host" / "node" / "dist" / "mysql.js"
        assert module.exists(), "build host/node first: npm --prefix host/node run build"
        url = fresh_database()
        stores = [store_at(url) for _ in range(2)]
        leases: list[Lease] = []

        def holder(store: MysqlStore, name: str) -> None:
            for turn in range(8):
                try:
                    lease = store.acquire(acquire(namespace="four", layout=FOUR_WORKERS, holder=name, horizon_ms=5_000))
                except StoreError as error:
                    assert error.kind in ("workers-exhausted", "unavailable"), error
                    continue
                if turn % 2 == 0:
                    lease = store.extend(extend(lease, namespace="four", layout=FOUR_WORKERS, horizon_ms=6_000))
                end_ms = lease.not_before_ms + turn % 3
                assert store.release_lease("four", lease.worker, lease.grant_id, end_ms)
                leases.append(replace(lease, valid_until_ms=end_ms))

        layout = "{ timestampBits: 41, datacenterBits: 0, workerBits: 2, sequenceBits: 12, order: 'worker-first', "
        layout += "epochMs: 1288834974657n, tickMs: 1 }"
        program = f"""
            const {{ MysqlStore }} = await import({json.dumps(module.as_uri())});
            const store = await MysqlStore.open({json.dumps(url)});
            const one = async (holder) => {{
              for (let round = 0; round < 8; round += 1) {{
                const request = {{ namespace: 'four', layout: {layout}, holder, preferredWorker: null }};
                let lease;
                try {{
                  lease = await store.acquire({{ ...request, nowMs: BigInt(Date.now()), horizonMs: 5000n }});
                }} catch (error) {{
                  if (!['workers-exhausted', 'unavailable'].includes(error.kind)) throw error;
                  continue;
                }}
                const end = lease.notBeforeMs + BigInt(round % 3);
                if (!(await store.release('four', lease.worker, lease.grantId, end))) throw new Error('not released');
                console.log([lease.worker, lease.grantId, lease.notBeforeMs, end].join(' '));
              }}
            }};
            await Promise.all([one('a'), one('b')]);
        """

        def node() -> None:
            arguments = ["node", "--input-type=module", "-e", program]
            said = subprocess.run(arguments, check=True, stdout=subprocess.PIPE, text=True).stdout
            found = [Lease(*map(int, line.split())) for line in said.splitlines()]
            assert found
            leases.extend(found)

        with server_of(url) as address:

            def rust() -> None:
                count = 0
                for _ in range(16):
                    parameters = f"layout={quote(FOUR_IN_WORDS)}&now_ms={now_ms()}&horizon_ms=5000"
                    granted = post(f"{address}/v1/snowflakes/four/leases?{parameters}")
                    if granted is None:
                        continue
                    lease = granted["lease"]
                    worker, grant_id, start = lease["worker"], lease["grant_id"], int(lease["not_before_ms"])
                    path = f"/v1/snowflakes/four/leases/{worker}/release?grant_id={grant_id}&end_ms={start + 2}"
                    released = post(f"{address}{path}")
                    assert released is not None and released["released"]
                    leases.append(Lease(worker, int(grant_id, 16), start, start + 2))
                    count += 1
                assert count > 0

            holders = [partial(holder, stores[at % 2], f"holder-{at}") for at in range(4)]
            together(*holders, node, rust, rust, node)
        assert len(leases) > 20
        assert_intervals_disjoint(leases)

    def test_a_lease_is_extended_and_ended_by_its_grant_id_alone(self) -> None:
        store = store_at(fresh_database(), max_horizon_ms=100_000)
        lease = store.acquire(acquire(holder="host-a", preferred_worker=7))
        assert lease.worker == 7
        assert now_ms() < lease.valid_until_ms <= now_ms() + 61_000
        longer = store.extend(extend(lease))
        assert (longer.worker, longer.grant_id, longer.not_before_ms) == (7, lease.grant_id, lease.not_before_ms)
        assert lease.valid_until_ms < longer.valid_until_ms <= now_ms() + 101_000, "as far as the namespace allows"
        assert store.extend(extend(lease, horizon_ms=10)).valid_until_ms == longer.valid_until_ms, "never back"
        for stranger in (replace(lease, grant_id=lease.grant_id ^ 1), replace(lease, worker=8)):
            with failure("lease-lost"):
                store.extend(extend(stranger))
        assert not store.release_lease("default", 7, lease.grant_id ^ 1, lease.not_before_ms)
        assert not store.release_lease("default", 7, lease.grant_id, longer.valid_until_ms + 1)
        end_ms = lease.not_before_ms + 5
        assert store.release_lease("default", 7, lease.grant_id, end_ms)
        assert not store.release_lease("default", 7, lease.grant_id, end_ms)
        with failure("lease-lost"):
            store.extend(extend(lease))

        def again() -> Optional[Lease]:
            found = store.acquire(acquire(holder="host-a"))
            return found if found.worker == 7 else None

        following = eventually("the end has passed", again)
        assert following is not None
        assert following.not_before_ms >= end_ms and following.grant_id != lease.grant_id
        assert re.fullmatch("[0-9a-f]{32}", store.lease_identity())
        assert store.lease_identity() != store.identity()

    def test_what_cannot_be_leased_is_refused_and_binds_nothing(self) -> None:
        url = fresh_database()
        store = store_at(url)
        with failure("clock-skew", match="10000 ms apart is the limit"):
            store.acquire(acquire(now_ms=now_ms() + 3_600_000))
        for wrong in ({"preferred_worker": 1_024}, {"horizon_ms": 0}, {"namespace": ""}):
            with failure("refused"):
                store.acquire(acquire(**wrong))
        with failure("refused"):
            store.acquire(acquire(layout=replace(LAYOUT, epoch_ms=now_ms() + 3_600_000)))
        assert query(url, "SELECT * FROM unalike_lease_namespace") == []
        store.acquire(acquire())
        with failure("layout-mismatch", match=r"bound to the layout 41/5\+5/12.*use another namespace"):
            store.acquire(acquire(layout=FOUR_WORKERS))
        four = {"namespace": "four", "layout": FOUR_WORKERS}
        assert sorted(store.acquire(acquire(**four)).worker for _ in range(4)) == [0, 1, 2, 3]
        with failure("workers-exhausted", match='all 4 worker ids of "four"'):
            store.acquire(acquire(**four))
        with failure("refused"):
            store_at(url, max_horizon_ms=0)

    def test_the_longest_horizon_is_recorded_and_stays_that_of_the_namespace(self) -> None:
        url = fresh_database()
        short, long = store_at(url, max_horizon_ms=5_000), store_at(url, max_horizon_ms=900_000)
        short.acquire(acquire())
        long.acquire(acquire(namespace="other"))
        assert query(url, "SELECT max_horizon_ms FROM unalike_lease_store") == [{"max_horizon_ms": 900_000}]
        assert long.acquire(acquire()).valid_until_ms <= now_ms() + 6_000

    def test_a_lease_whose_answer_was_lost_is_nobodys_and_its_worker_busy_until_its_end(self) -> None:
        url = fresh_database()
        with Proxy(url) as proxy:
            store = store_at(proxy.url)
            two = {"layout": TWO_WORKERS, "horizon_ms": 2_000}
            first = store.acquire(acquire(**two))
            proxy.cut_at = b"COMMIT AND"
            with failure("outcome-unknown"):
                store.acquire(acquire(**two))
            proxy.cut_at = b"UPDATE unalike_lease SET valid"
            with failure("outcome-unknown"):
                store.extend(extend(first, layout=TWO_WORKERS))
            proxy.cut_at = None
            with failure("workers-exhausted"):
                store.acquire(acquire(**two))
            rows = query(url, "SELECT worker, valid_until_ms FROM unalike_lease")
            assert len(rows) == 2
            following = eventually("the lost one ends", lambda: store.acquire(acquire(**two)))
            (ended,) = [row["valid_until_ms"] for row in rows if row["worker"] == following.worker]
            assert following.not_before_ms >= ended

    def test_a_clock_that_is_set_ahead_ends_no_lease(self, tmp_path: Path) -> None:
        clock = tmp_path / "clock"
        set_clock(clock, "+0s")
        with MariaDb(clock=clock) as server:
            store = store_at(server.url())
            two = {"layout": TWO_WORKERS}
            held = store.acquire(acquire(**two))
            store.acquire(acquire(**two))
            set_clock(clock, "+1d")
            day = 86_400_000

            def shows_tomorrow() -> bool:
                try:
                    store.acquire(acquire(**two))
                except StoreError as error:
                    return error.kind == "clock-skew"
                return False

            eventually("the server shows tomorrow", shows_tomorrow)
            with failure("workers-exhausted"):
                store.acquire(acquire(**two, now_ms=now_ms() + day))
            assert store.extend(extend(held, **two, now_ms=now_ms() + day)).worker == held.worker
            # One that has not seen the step takes the clock as it is; its interval is behind all that were granted.
            following = store_at(server.url()).acquire(acquire(**two, now_ms=now_ms() + day))
            assert following.worker != held.worker and following.not_before_ms > held.valid_until_ms

    def test_an_operator_forbids_an_extension(self) -> None:
        url = fresh_database()
        store = store_at(url)
        lease = store.acquire(acquire())
        arguments = [required("UNALIKE_BIN"), "leases", "release", "--store", url, "default", str(lease.worker)]
        subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with failure("lease-lost"):
            store.extend(extend(lease))


@contextmanager
def server_of(url: str) -> Iterator[str]:
    """An ``unalike`` server on this store: its address."""
    configuration = new_directory() / "unalike.toml"
    configuration.write_text(f'[snowflakes.four]\nlayout = "{FOUR_IN_WORDS}"\n')
    arguments = [required("UNALIKE_BIN"), "--config", str(configuration), "--store", url, "--listen", "127.0.0.1:0"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout is not None
            said = server.stdout.readline()
            address = re.search(r"listening on (http://\S+)", said)
            assert address is not None, said
            yield address[1]
        finally:
            server.kill()


def post(url: str) -> Optional[Any]:
    """What is answered; ``None`` for a refusal that passes."""
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    try:
        with urlopen(Request(url, method="POST"), timeout=30) as answer:
            return json.load(answer)
    except HTTPError as error:
        assert error.code in (409, 429, 503), error.read()
        return None
