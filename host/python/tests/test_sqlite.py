"""The store in a SQLite file: on real files, with other processes, and with the ``unalike`` command at once."""

from __future__ import annotations

import fcntl
import gc
import json
import logging
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis_servers import RedisProcess
from servers import binary

from unalike import Ids, _forks
from unalike.memory import MemoryStore
from unalike.redis import RedisStore
from unalike.remote import RemoteStore
from unalike.sqlite import SqliteStore
from unalike.store import (
    ID_MAX,
    AdaptiveStep,
    FixedStep,
    Layout,
    LeaseAcquire,
    LeaseExtend,
    Remaining,
    Segment,
    SegmentStore,
    StoreError,
    TagOptions,
    TailRelease,
    sub_tag,
)
from unalike.stores import Store

LAYOUT = Layout(41, 0, 2, 12, "worker-first", 1_288_834_974_657, 1)
OTHER_LAYOUT = Layout(41, 0, 2, 12, "worker-first", 1_288_834_974_657, 7)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ids.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(path)
    yield opened
    opened.close()


def sql(path: Path, *statements: str) -> str:
    """Runs statements in another process: this one must not open the file by other means than the store's."""
    code = (
        "import sqlite3, sys\n"
        "connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)\n"
        "for statement in sys.argv[2:]:\n"
        "    rows = connection.execute(statement).fetchall()\n"
        "print(rows)\n"
        "connection.close()\n"
    )
    command = [sys.executable, "-c", code, str(path), *statements]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def script(path: Path, statements: str) -> None:
    code = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.executescript(sys.argv[2]); c.close()"
    subprocess.run([sys.executable, "-c", code, str(path), statements], check=True)


def refusal(kind: str, call: object, *args: object, **options: object) -> str:
    assert callable(call)
    with pytest.raises(StoreError) as caught:
        call(*args, **options)
    assert caught.value.kind == kind, caught.value
    return str(caught.value)


def next_ids(path: Path, tag: str, count: int) -> list[int]:
    """By the command of the Rust library."""
    command = [binary(), "next", tag, "-n", str(count), "--store", f"sqlite://{path}"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=path.parent)
    return [int(line) for line in done.stdout.split()]


def numbers(segment: Segment) -> range:
    return range(segment.start, segment.end)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def acquire(holder: str = "", preferred: int | None = None, horizon_ms: int = 60_000) -> LeaseAcquire:
    return LeaseAcquire("default", LAYOUT, holder, preferred, now_ms(), horizon_ms)


# Segments


def test_numbers_ascend_and_none_comes_twice(store: SqliteStore) -> None:
    assert store.allocate("order", 10, 0) == Segment(1, 11, 1, 0, 1)
    assert store.allocate("order", 10, 0) == Segment(11, 21, 1, 0, 2)
    assert store.allocate("order", 10, 100) == Segment(100, 110, 1, 0, 3)
    assert store.allocate("order", 1, 110).start == 110


def test_a_tail_is_given_back_once_and_by_its_version(store: SqliteStore) -> None:
    granted = store.allocate("order", 10, 0)
    assert not store.release("order", TailRelease(5, granted.version + 1))
    assert not store.release("order", TailRelease(11, granted.version))
    assert not store.release("order", TailRelease(2**63, granted.version))
    assert store.release("order", TailRelease(5, granted.version))
    assert not store.release("order", TailRelease(5, granted.version))
    assert store.allocate("order", 1, 0).start == 5


def test_the_last_number_is_granted_and_then_none(store: SqliteStore) -> None:
    last = store.allocate("order", 2**64 - 1, ID_MAX - 1)
    assert (last.start, last.end) == (ID_MAX - 1, ID_MAX + 1)
    assert "exhausted" in refusal("exhausted", store.allocate, "order", 1, 0)
    assert "exhausted" in refusal("exhausted", store.allocate, sub_tag("order", "a"), 1, 0)


def test_options_are_kept_with_all_their_bits(store: SqliteStore) -> None:
    for at, (step, refill) in enumerate(
        [
            (FixedStep(ID_MAX), Remaining(2**64 - 1)),
            (AdaptiveStep(5, 1, ID_MAX, 2**63 + 1, 2**64 - 1), Remaining(0)),
        ]
    ):
        options = TagOptions(start=2**53 + 1, step=step, refill=refill, mode="ordered")
        assert store.create_tag(f"tag-{at}", options).options == options
        assert store.open_tag(f"tag-{at}").options == options
        assert store.allocate(f"tag-{at}", 1, 0).start == 2**53 + 1
    assert "exists" in refusal("tag-exists", store.create_tag, "tag-0")
    refusal("tag-invalid", store.create_tag, "redis-leases")
    refusal("tag-invalid", store.create_tag, " tag")
    assert store.allocate(sub_tag("tag-0", "a"), 1, 0).start == 2**53 + 1


def test_first_use_may_be_forbidden_and_tags_are_counted_without_sub_keys(path: Path) -> None:
    strict = SqliteStore(path, create_tags=False, tags_max=1)
    assert "unalike tags create" in refusal("tag-unknown", strict.allocate, "order", 1, 0)
    strict.create_tag("order")
    for sub in "abc":
        strict.allocate(sub_tag("order", sub), 1, 0)
    assert "limit" in refusal("tag-limit", strict.create_tag, "other")
    strict.close()
    assert sql(path, "SELECT tags FROM store") == "[(1,)]"


def test_new_names_begin_above_the_floor(path: Path, store: SqliteStore) -> None:
    floor = "unalike-new-names\x1ffloor"
    store.allocate(floor, 1, 0)
    sql(path, f"UPDATE tag SET watermark = 1000, settled = 1000 WHERE tag = '{floor}'")
    assert store.allocate("order", 1, 0).start == 1_001
    assert store.allocate("redis-leases\x1fdefault", 1, 0).start == 1


def test_a_stripe_is_refused(path: Path, store: SqliteStore) -> None:
    store.allocate("order", 1, 0)
    place = "stripe_set = x'000000000000000000000000005eed00', stripe_index = 1, stripe_count = 3"
    sql(path, f"UPDATE store SET {place}")
    words = "is stripe 1 of 3 in the set 000000000000000000000000005eed00: use it together"
    for tag in ("order", "b"):
        assert words in refusal("refused", store.allocate, tag, 1, 0)
    assert not store.release("order", TailRelease(1, 1))
    sql(path, "UPDATE store SET stripe_index = 1 << 31")
    assert "fenced while its tags are moved" in refusal("refused", store.allocate, "order", 1, 0)


def test_threads_share_a_store(path: Path) -> None:
    # A disk that is busy with something else takes its time.
    store = SqliteStore(path, busy_timeout_ms=60_000)
    granted: list[int] = []

    def work() -> None:
        for _ in range(50):
            granted.extend(numbers(store.allocate("order", 3, 0)))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store.close()
    assert sorted(granted) == list(range(1, 901))


# Leases


def test_workers_are_granted_extended_and_released(store: SqliteStore) -> None:
    leases = [store.acquire(acquire("a")) for _ in range(4)]
    assert sorted(lease.worker for lease in leases) == [0, 1, 2, 3]
    assert len({lease.grant_id for lease in leases}) == 4
    assert "all 4 worker ids" in refusal("workers-exhausted", store.acquire, acquire())
    first = leases[0]
    extend = LeaseExtend("default", LAYOUT, first.worker, first.grant_id, now_ms(), 120_000)
    extended = store.extend(extend)
    assert extended.valid_until_ms > first.valid_until_ms and extended.not_before_ms == first.not_before_ms
    refusal("lease-lost", store.extend, LeaseExtend("default", LAYOUT, first.worker, 7, now_ms(), 120_000))
    refusal("layout-mismatch", store.extend, LeaseExtend("default", OTHER_LAYOUT, 0, 7, now_ms(), 120_000))
    assert not store.release_lease("default", first.worker, first.grant_id, extended.valid_until_ms + 1)
    end_ms = first.not_before_ms + 5
    assert store.release_lease("default", first.worker, first.grant_id, end_ms)
    assert not store.release_lease("default", first.worker, first.grant_id, end_ms)
    refusal("lease-lost", store.extend, extend)
    # Its workers are free from then on.
    while now_ms() < end_ms:
        time.sleep(0.001)
    again = store.acquire(acquire())
    assert again.worker == first.worker and again.not_before_ms >= end_ms


def test_a_file_that_was_restored_goes_on_above_what_was_lost(path: Path) -> None:
    store = SqliteStore(path)
    assert store.allocate("order", 2, 0).end == 3
    before = store.acquire(acquire())
    store.close()
    command = [binary(), "store", "restored", "--lift", "1000", "--store", f"sqlite://{path}"]
    subprocess.run(command, check=True, capture_output=True, cwd=path.parent)
    store = SqliteStore(path)
    assert store.allocate("order", 1, 0).start == 1_003
    assert store.allocate("late", 1, 0).start == 1_001
    extend = LeaseExtend("default", LAYOUT, before.worker, before.grant_id, now_ms(), 120_000)
    refusal("lease-lost", store.extend, extend)
    for namespace in ("default", "lost"):
        late = LeaseAcquire(namespace, LAYOUT, "", None, now_ms(), 60_000)
        assert "may have forgotten leases" in refusal("quarantined", store.acquire, late)
    store.close()


def test_what_a_namespace_is_bound_to_stays(path: Path, store: SqliteStore) -> None:
    lease = store.acquire(acquire(horizon_ms=2**64 - 1))
    assert lease.valid_until_ms <= now_ms() + 600_000
    other = SqliteStore(path, max_horizon_ms=1_000)
    assert other.acquire(acquire(horizon_ms=60_000)).valid_until_ms > now_ms() + 50_000
    offered = LeaseAcquire("default", OTHER_LAYOUT, "", None, now_ms(), 60_000)
    assert "is bound to the layout 41/2/12" in refusal("layout-mismatch", other.acquire, offered)
    late = LeaseAcquire("default", LAYOUT, "", None, now_ms() + 60_000, 60_000)
    assert "set the clock" in refusal("clock-skew", other.acquire, late)
    other.close()


def test_the_preferred_and_the_previous_worker_come_first(store: SqliteStore) -> None:
    mine = store.acquire(acquire("me", preferred=2))
    assert mine.worker == 2
    assert store.release_lease("default", 2, mine.grant_id, 0)
    assert store.acquire(acquire("me")).worker == 2
    assert store.acquire(acquire("me", preferred=2)).worker != 2


def test_threads_are_never_granted_one_interval_twice(store: SqliteStore) -> None:
    leases = []

    def work() -> None:
        granted = 0
        while granted < 8:
            try:
                lease = store.acquire(acquire(horizon_ms=50))
            except StoreError as error:
                assert error.kind == "workers-exhausted", error
                continue
            granted += 1
            end_ms = lease.valid_until_ms
            if granted % 2 and store.release_lease("default", lease.worker, lease.grant_id, lease.not_before_ms + 1):
                end_ms = lease.not_before_ms + 1
            leases.append((lease.worker, lease.not_before_ms, end_ms))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    leases.sort()
    assert len(leases) == 48
    for one, other in zip(leases, leases[1:]):
        assert one[0] != other[0] or one[2] <= other[1], (one, other)


# The file


def test_the_file_is_as_the_rust_adapter_makes_it(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours.sqlite", tmp_path / "theirs.sqlite"
    SqliteStore(ours).close()
    next_ids(theirs, "order", 1)
    query = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name"
    assert sql(ours, query) == sql(theirs, query)
    for pragma in ("application_id", "user_version", "journal_mode"):
        assert sql(ours, f"PRAGMA {pragma}") == sql(theirs, f"PRAGMA {pragma}")


@pytest.mark.parametrize(
    ("statements", "kind", "words"),
    [
        ("CREATE TABLE theirs (a); PRAGMA application_id = 7", "refused", "database of another program"),
        ("CREATE TABLE theirs (a)", "refused", "database of another program"),
        ("PRAGMA application_id = 1970168172; PRAGMA user_version = 3", "refused", "a newer version of unalike"),
        ("PRAGMA application_id = 1970168172; PRAGMA user_version = 0", "corrupt", "its schema has the version 0"),
    ],
)
def test_a_file_that_is_not_ours_is_left_as_it_is(path: Path, statements: str, kind: str, words: str) -> None:
    script(path, statements)
    before = path.read_bytes()
    assert words in refusal(kind, SqliteStore, path)
    assert path.read_bytes() == before and os.listdir(path.parent) == [path.name]


def test_a_url_is_the_file_that_the_command_means(path: Path) -> None:
    with_path = SqliteStore(path)
    store = SqliteStore(f"sqlite://{path}?create=false&busy-timeout-ms=0")
    assert store.identity() == with_path.identity() and store.address == str(path)
    for made in (store, with_path):
        made.close()
    path.unlink()
    assert "is not to be made here" in refusal("refused", SqliteStore, f"sqlite://{path}?create=false")
    unused = f"sqlite://{path}"
    for url, words in (
        ("sqlite://", "names no file: write sqlite://PATH"),
        ("sqlite://:memory:", "means no plain file to SQLite, and numbers must be kept"),
        (f"{unused}#x", "neither a # nor a %"),
        (f"{unused}%20", "neither a # nor a %"),
        (f"{unused}?mode=rwc", "the parameter \"mode\", which is unknown: there are create (true or false)"),
        (f"{unused}?create=yes", "has create=yes: create is true or false"),
        (f"{unused}?busy-timeout-ms=600001", "a whole number from 0 to 600000"),
    ):
        assert words in refusal("refused", SqliteStore, url), url
    assert os.listdir(path.parent) == []


def test_what_is_no_path_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    for wrong, words in (
        (None, "the path is None: is its environment variable set?"),
        ("", "the path is empty"),
        (5, "the path is of the type int, it must be a text"),
        (":memory:", "means no plain file to SQLite, and numbers must be kept"),
        ("a#b.sqlite", "neither a # nor a %"),
        ("a%20b.sqlite", "neither a # nor a %"),
        ("a?create=false", "has a ?, after which a URL has parameters"),
        (b"\xff.sqlite", "is not UTF-8, which SQLite needs"),
        ("file:ids.sqlite", "means no plain file to SQLite"),
        (Path("sqlite://ids.sqlite"), "write the path alone, or sqlite://PATH as a text"),
        ("sqlite:ids.sqlite", "write the path alone, or sqlite://PATH as a text"),
        ("sqlite:", "write the path alone, or sqlite://PATH as a text"),
        ("mysql://root:secret@host/db", "begins with mysql: give it to MysqlStore"),
    ):
        said = refusal("refused", SqliteStore, wrong)
        assert words in said and "secret" not in said, wrong
    assert os.listdir(path.parent) == []
    Path("sqlite:ids.sqlite").touch()
    said = refusal("refused", SqliteStore, "sqlite:ids.sqlite")
    assert said.endswith("a file 'sqlite:ids.sqlite' is there: rename it to go on with it")


def test_a_tail_that_is_none_is_refused(path: Path) -> None:
    """Before any server is asked."""
    stores: list[SegmentStore] = [SqliteStore(path), MemoryStore(), RemoteStore("http://127.0.0.1:9")]
    for store in stores:
        for tail in (None, (1, 1)):
            said = refusal("refused", store.release, "order", tail)
            assert f"the tail of 'order' is {tail!r}, it must be a TailRelease(start, version)" in said
        store.close()


def test_what_cannot_be_a_store_is_refused(tmp_path: Path, path: Path) -> None:
    assert "is a directory" in refusal("refused", SqliteStore, tmp_path)
    assert "does not exist: create it" in refusal("refused", SqliteStore, tmp_path / "none" / "ids.sqlite")
    assert "is not to be made here" in refusal("refused", SqliteStore, path, create=False)
    path.write_bytes(b"")
    assert "is empty" in refusal("refused", SqliteStore, path, create=False)
    path.write_bytes(b"no database, but a text that is longer than its header would be" * 20)
    assert "is not a SQLite database" in refusal("corrupt", SqliteStore, path)
    path.unlink()
    Path(f"{path}-wal").write_bytes(b"left")
    assert "its log" in refusal("refused", SqliteStore, path)
    refusal("refused", SqliteStore, path, busy_timeout_ms=600_001)
    refusal("refused", SqliteStore, path, max_horizon_ms=0)


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
@pytest.mark.parametrize("deed", ["deleted", "replaced", "moved"])
def test_a_file_that_is_not_the_same_any_more_grants_nothing(path: Path, suffix: str, deed: str) -> None:
    store = SqliteStore(path)
    store.allocate("order", 10, 0)
    lease = store.acquire(acquire())
    victim = Path(f"{path}{suffix}")
    if deed == "moved":
        victim.rename(f"{victim}.moved")
    elif deed == "deleted":
        victim.unlink()
    else:
        Path(f"{victim}.new").write_bytes(b"")
        os.replace(f"{victim}.new", victim)
    for call in (
        lambda: store.allocate("order", 1, 0),
        lambda: store.release("order", TailRelease(5, 1)),
        lambda: store.acquire(acquire()),
        lambda: store.extend(LeaseExtend("default", LAYOUT, lease.worker, lease.grant_id, now_ms(), 60_000)),
        lambda: store.release_lease("default", lease.worker, lease.grant_id, now_ms()),
        lambda: store.identity(),
    ):
        assert "while this process had it open" in refusal("refused", call)
    if deed == "moved":
        Path(f"{victim}.moved").rename(victim)
        for call in (lambda: store.allocate("order", 1, 0), lambda: SqliteStore(path)):
            assert "while this process had it open" in refusal("refused", call)
    store.close()
    if deed == "moved":
        # As after a restart.
        again = SqliteStore(path)
        assert again.allocate("order", 1, 0).start == 11
        again.close()


def test_a_second_name_of_the_file_is_refused(path: Path, store: SqliteStore) -> None:
    os.link(path, f"{path}.other")
    assert "2 names (hard links)" in refusal("refused", store.allocate, "order", 1, 0)
    os.unlink(f"{path}.other")
    assert store.allocate("order", 1, 0).start == 1


def test_a_file_that_another_process_keeps_locked_is_unavailable(path: Path) -> None:
    store = SqliteStore(path, busy_timeout_ms=50)
    code = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "c.execute('BEGIN IMMEDIATE'); print('locked', flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None and other.stdout.readline() == "locked\n"
    assert "another process holds" in refusal("unavailable", store.allocate, "order", 1, 0)
    assert len(store.identity()) == 32, "it keeps nobody from reading"
    other.communicate()
    assert store.allocate("order", 1, 0).start == 1
    store.close()


def test_a_store_that_was_closed_says_so(path: Path) -> None:
    store = SqliteStore(path)
    store.close()
    assert "was closed" in refusal("refused", store.allocate, "order", 1, 0)


# Processes


TAKE = """
import sys
from unalike.sqlite import SqliteStore
store = SqliteStore(sys.argv[1], busy_timeout_ms=60_000)
for _ in range(int(sys.argv[2])):
    segment = store.allocate("order", 3, 0)
    print(*range(segment.start, segment.end), flush=True)
"""


def taking(path: Path, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", TAKE, str(path), str(count)], stdout=subprocess.PIPE, text=True)


def test_processes_and_the_rust_command_share_a_file_through_kill_9(path: Path) -> None:
    others = [taking(path, 100_000) for _ in range(2)]
    taken: list[int] = []
    printed: list[list[str]] = [[], []]
    for other, lines in zip(others, printed):
        assert other.stdout is not None
        lines.append(other.stdout.readline())
    store = SqliteStore(path, busy_timeout_ms=60_000)
    for round_ in range(3):
        for _ in range(30):
            taken.extend(numbers(store.allocate("order", 5, 0)))
        taken.extend(next_ids(path, "order", 20))
        if round_ < 2:
            others[round_].kill()
            rest = others[round_].communicate()[0]
            # A line may be cut off by the kill.
            printed[round_].extend(line for line in rest.splitlines(keepends=True) if line.endswith("\n"))
    store.close()
    for lines in printed:
        taken.extend(int(number) for line in lines for number in line.split())
    assert len(taken) > 200 and len(set(taken)) == len(taken)


def in_child(work: object) -> str:
    """What a forked child answers, or its error."""
    assert callable(work)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            answer = repr(work())
        except BaseException as error:  # noqa: BLE001
            answer = f"{type(error).__name__}: {error}"
        os.write(write, answer.encode())
        os._exit(0)
    os.close(write)
    answer = b""
    while part := os.read(read, 65_536):
        answer += part
    os.close(read)
    os.waitpid(child, 0)
    return answer.decode()


def test_a_child_opens_connections_of_its_own(path: Path, store: SqliteStore) -> None:
    store.allocate("order", 1, 0)
    assert in_child(lambda: store.allocate("order", 1, 0).start) == "2"
    assert in_child(lambda: in_child(lambda: store.allocate("order", 1, 0).start)) == "'3'"
    assert in_child(lambda: SqliteStore(path).allocate("order", 1, 0).start) == "4"
    assert store.allocate("order", 1, 0).start == 5


def test_a_child_holds_the_file_when_its_parent_has_gone(path: Path) -> None:
    store = SqliteStore(path)
    store.allocate("order", 1, 0)
    told, tell = os.pipe()

    def work() -> object:
        os.close(tell)
        first = store.allocate("order", 1, 0).start
        os.write(ready, b"1")
        os.read(told, 1)
        # Whoever closes the file as the last one takes the log away: this process holds it, so nobody is.
        rows = sql(path, "SELECT watermark FROM tag")
        return first, rows, store.allocate("order", 1, 0).start

    waits, ready = os.pipe()
    answers: list[str] = []
    thread = threading.Thread(target=lambda: answers.append(in_child(work)))
    thread.start()
    os.read(waits, 1)
    store.close()
    os.close(tell)
    thread.join()
    assert answers == ["(2, '[(2,)]', 3)"]


def test_parent_and_child_open_the_very_file_again(path: Path, tmp_path: Path) -> None:
    store = SqliteStore(path)
    store.allocate("order", 10, 0)
    away = tmp_path / "away"

    def work() -> object:
        path.rename(away)
        said = [refusal("refused", store.allocate, "order", 1, 0)]
        SqliteStore(path).close()
        said.append(refusal("refused", store.allocate, "order", 1, 0))
        away.rename(path)
        return [words in text for words, text in zip(("was deleted or moved", "was replaced"), said)]

    assert in_child(work) == "[True, True]"
    assert store.allocate("order", 1, 0).start == 11
    # What was lost before the fork stays lost.
    path.rename(away)
    assert "was deleted or moved" in refusal("refused", store.allocate, "order", 1, 0)
    away.rename(path)
    assert "was forked from one" in in_child(lambda: store.allocate("order", 1, 0))
    assert "was deleted or moved" in refusal("refused", store.allocate, "order", 1, 0)
    store.close()


def test_a_backup_that_was_put_there_while_the_file_was_closed_is_refused(path: Path, store: SqliteStore) -> None:
    store.allocate("order", 100, 0)
    assert in_child(lambda: "closed") == "'closed'"
    backup = path.read_bytes()
    store.allocate("order", 100, 0)
    assert in_child(lambda: "closed") == "'closed'"
    # A system gives the number of a file that is gone to the next one.
    path.unlink()
    path.write_bytes(backup)
    assert "was replaced" in refusal("refused", store.allocate, "order", 1, 0)
    assert "was replaced" in in_child(lambda: refusal("refused", store.allocate, "order", 1, 0))


def test_a_relative_path_is_that_of_the_beginning(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    store = SqliteStore(path.name)
    assert store.address == str(path)
    os.mkdir("other")
    monkeypatch.chdir("other")
    assert in_child(lambda: store.allocate("order", 1, 0).start) == "1"
    assert store.allocate("order", 1, 0).start == 2
    store.close()


def test_files_among_other_stores(path: Path, tmp_path: Path) -> None:
    stripes = [f"sqlite://{tmp_path / name}" for name in ("a.sqlite", "b.sqlite")]
    store = Store(stripes, leases=f"sqlite://{path}")
    numbers_of = [store.allocate("order", 10, 0).start]
    numbers_of.append(int(in_child(lambda: store.allocate("order", 10, 0).start)))
    numbers_of.append(store.allocate("order", 10, 0).start)
    assert len(set(numbers_of)) == 3
    workers = [store.acquire(acquire()).worker, int(in_child(lambda: store.acquire(acquire()).worker))]
    assert len({*workers, store.acquire(acquire()).worker}) == 3
    store.close()
    with Ids(f"sqlite://{path}") as ids:
        orders = ids.sequence("order")
        drawn = [orders.next(), int(in_child(orders.next)), orders.next()]
        assert len(set(drawn)) == 3


def test_files_behind_redis_are_closed_for_forks(path: Path, tmp_path: Path) -> None:
    redis = RedisProcess(tmp_path)
    url = f"{redis.url}?raise-min=5&raise-max=5&raise-timeout-ms=20000&request-timeout-ms=20000"
    stores = [Store(url, backing=f"sqlite://{path}"), RedisStore(f"{url}&prefix=own", backing=SqliteStore(path))]
    try:
        for tag, store in zip("ab", stores):
            granted = [store.allocate(tag, 3, 0) for _ in range(3)]
            for _ in range(3):
                child = in_child(lambda: [number for _ in range(3) for number in numbers(store.allocate(tag, 3, 0))])
                granted += [Segment(number, number + 1, 1, 0, 0) for number in json.loads(child)]
                granted += [store.allocate(tag, 3, 0)]
            taken = [number for segment in granted for number in numbers(segment)]
            assert len(taken) > 30 and len(taken) == len(set(taken))
    finally:
        for store in stores:
            store.close()
        redis.kill()


def test_a_fork_waits_for_threads_that_are_at_it(path: Path) -> None:
    store = SqliteStore(path, busy_timeout_ms=60_000)
    store.allocate("order", 1, 0)
    # In write-ahead mode the right to write is byte 120 of the -shm file: a lock of the whole process, so of another.
    code = (
        "import fcntl, sys; f = open(sys.argv[1], 'r+b'); fcntl.lockf(f, fcntl.LOCK_EX, 1, 120)\n"
        "print('locked', flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, f"{path}-shm"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None and other.stdout.readline() == "locked\n"
    granted: list[int] = []
    thread = threading.Thread(target=lambda: granted.append(store.allocate("order", 1, 0).start))
    thread.start()
    while not _forks.gate()._inside:
        time.sleep(0.001)
    # Until it waits for the other process.
    time.sleep(0.1)
    timer = threading.Timer(0.2, other.communicate)
    timer.start()
    assert in_child(lambda: store.allocate("order", 1, 0).start) == "3"
    thread.join()
    timer.join()
    assert granted == [2]
    store.close()


def test_a_child_that_ends_closes_nothing_of_its_parent(path: Path) -> None:
    code = (
        "import gc, os, sys\n"
        "from unalike.sqlite import SqliteStore\n"
        "store = SqliteStore(sys.argv[1])\n"
        "store.allocate('order', 1, 0)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    del store\n"
        "    gc.collect()\n"
        "    sys.exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "print(store.allocate('order', 1, 0).start)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], check=True, capture_output=True, text=True)
    assert done.stdout == "2\n"


def targets(but: int = 0) -> dict[str, int]:
    """The descriptors of this process, by what they are of, without those that have such a flag."""
    found = {}
    for number in os.listdir("/proc/self/fd"):
        try:
            target, flags = os.readlink(f"/proc/self/fd/{number}"), fcntl.fcntl(int(number), fcntl.F_GETFL)
        except OSError:
            continue
        if not flags & but:
            found[target] = int(number)
    return found


def closed(end: str) -> None:
    """Closes the descriptors of this process whose files end so; as the number is free then, another file gets it."""
    while found := [number for target, number in targets().items() if target.endswith(end)]:
        for number in found:
            os.close(number)


def replaced() -> None:
    while found := [number for target, number in targets().items() if "/ids.sqlite" in target]:
        other = os.open("/dev/null", os.O_RDWR)
        for number in found:
            os.dup2(other, number)
        os.close(other)


CLOSINGS = {
    "ids.sqlite": lambda: closed("/ids.sqlite"),
    "ids.sqlite-wal": lambda: closed("/ids.sqlite-wal"),
    "ids.sqlite-shm": lambda: closed("/ids.sqlite-shm"),
    "replaced": replaced,
}


@pytest.mark.skipif(sys.platform != "linux", reason="it looks at /proc")
def test_a_child_may_close_what_it_inherited(path: Path, store: SqliteStore) -> None:
    store.allocate("order", 1, 0)

    def work() -> object:
        # What keeps the number of a file reads nothing.
        inherited = {target for target in targets(but=os.O_PATH) if "/ids.sqlite" in target}
        assert not inherited, "nothing of SQLite is inherited"
        for what in CLOSINGS.values():
            what()
        return store.allocate("order", 1, 0).start, SqliteStore(path).allocate("order", 1, 0).start

    assert in_child(work) == "(2, 3)"
    assert store.allocate("order", 1, 0).start == 4


@pytest.mark.skipif(sys.platform != "linux", reason="it looks at /proc")
# No lock is on the log.
@pytest.mark.parametrize("what", [what for what in CLOSINGS if what != "ids.sqlite-wal"])
def test_a_process_that_closed_its_own_descriptors_is_granted_nothing(path: Path, what: str) -> None:
    def work() -> object:
        store = SqliteStore(path)
        store.allocate("order", 1, 0)
        CLOSINGS[what]()
        said = [refusal("refused", store.allocate, "order", 1, 0), refusal("refused", SqliteStore, path)]
        said.append(in_child(lambda: refusal("refused", store.allocate, "order", 1, 0)))
        # Descriptors of these numbers are not SQLite's any more.
        numbers = [os.open("/dev/null", os.O_RDONLY) for _ in range(20)]
        store.close()
        assert all(os.fstat(number) for number in numbers)
        said.append(refusal("refused", SqliteStore, path))
        return all("locks" in each for each in said) or said

    assert in_child(work) == "True"
    assert next_ids(path, "order", 1) == [2]


@pytest.mark.skipif(sys.platform != "linux", reason="it looks at /proc")
def test_code_that_reads_a_file_of_the_store_drops_the_locks(path: Path) -> None:
    for end in ("", "-shm"):

        def work() -> object:
            store = SqliteStore(path)
            start = store.allocate("order", 1, 0).start
            Path(f"{path}{end}").read_bytes()
            return f"{path}{end}: this process" in refusal("refused", store.allocate, "order", 1, 0) and start

        assert in_child(work) == ("1" if end == "" else "2")


DAEMON = """
import ctypes, os, sys
from unalike.sqlite import SqliteStore
from unalike.store import StoreError
path, how, ready, told = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
store = SqliteStore(path)
store.allocate("order", 1, 0)
libc = ctypes.PyDLL(None)
if how == "daemon":
    libc.daemon(1, 1)
elif libc._Fork():
    os._exit(0)
os.write(ready, b"1")
os.read(told, 1)
said = []
for ask in (lambda: store.allocate("order", 1, 0), lambda: SqliteStore(path)):
    try:
        said.append(repr(ask()))
    except StoreError as error:
        said.append(f"{error.kind} {error}")
os.write(ready, "\\n".join(said).encode())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the process id is all that tells")
@pytest.mark.parametrize("how", ["daemon", "_Fork"])
def test_a_fork_that_python_does_not_hear_of(path: Path, how: str) -> None:
    read, ready = os.pipe()
    told, tell = os.pipe()
    command = [sys.executable, "-c", DAEMON, str(path), how, str(ready), str(told)]
    subprocess.run(command, check=True, pass_fds=(ready, told))
    os.close(ready)
    assert os.read(read, 1) == b"1"
    # The parent is gone, and its locks with it: whoever comes now begins the log and its index anew.
    assert next_ids(path, "order", 2) == [2, 3]
    os.close(tell)
    said = b""
    while part := os.read(read, 65_536):
        said += part
    for line in said.decode().splitlines():
        assert line.startswith("refused ") and "daemon(3)" in line, said
    assert len(said.decode().splitlines()) == 2, "the child crashed"
    assert next_ids(path, "order", 1) == [4]


def by_sqlite3(path: Path) -> sqlite3.Connection:
    """Python's own SQLite, which is a second one."""
    other = sqlite3.connect(path)
    other.execute("SELECT * FROM tag").fetchall()
    return other


@pytest.mark.skipif(sys.platform != "linux", reason="it is noticed nowhere else")
@pytest.mark.parametrize("how", ["open", "closed", "first"])
def test_two_copies_of_sqlite_in_one_process(path: Path, how: str) -> None:
    def work() -> object:
        SqliteStore(path).close()
        if how == "first":
            other = by_sqlite3(path)
            said = refusal("refused", SqliteStore, path)
            other.close()
            return "of SQLite" in said and SqliteStore(path).allocate("order", 1, 0).start
        store = SqliteStore(path)
        start = store.allocate("order", 1, 0).start
        other = by_sqlite3(path)
        if how == "closed":
            other.close()
        calls = [lambda: store.allocate("order", 1, 0), lambda: SqliteStore(path)] * 2
        return all("of SQLite" in refusal("refused", call) for call in calls) and start

    assert in_child(work) == "1"
    assert next_ids(path, "order", 1) == [2]


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="no other mark is known")
def test_another_copy_of_the_library_is_told(path: Path) -> None:
    folder = os.stat(path.parent)
    name = f"unalike-sqlite-{os.getpid()}-{folder.st_dev:x}-{folder.st_ino:x}-{path.name}-"
    # As each copy of the Rust library marks.
    other = os.memfd_create(f"{name}abcdef")
    assert "by another copy of this library" in refusal("refused", SqliteStore, path)
    assert not path.exists()
    os.close(other)

    def marks() -> list[str]:
        links = (Path("/proc/self/fd") / number for number in os.listdir("/proc/self/fd"))
        return [target for link in links if link.is_symlink() and name in (target := os.readlink(link))]

    first, second = SqliteStore(path), SqliteStore(path)
    first.close()
    assert len(marks()) == 1 and marks()[0].startswith("/memfd:")
    second.close()
    assert not marks()


def test_a_store_that_was_dropped_is_opened_again(path: Path) -> None:
    for number in range(1, 7, 2):
        assert SqliteStore(path).allocate("order", 1, 0).start == number
        gc.collect()
        assert in_child(lambda: SqliteStore(path).allocate("order", 1, 0).start) == str(number + 1)


def test_a_tag_that_first_use_creates_is_told(store: SqliteStore, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "unalike"):
        store.create_tag("made")
        caplog.clear()
        store.allocate("order", 1, 0)
        store.allocate("order", 1, 0)
        store.open_tag("order")
        store.allocate(sub_tag("order", "a"), 1, 0)
        store.allocate("made", 1, 0)
    assert caplog.messages == ['created a tag on first use tag="order" next=1']
