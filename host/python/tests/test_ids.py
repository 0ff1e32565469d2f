"""Sequences and snowflakes as a program sees them."""

from __future__ import annotations

import bisect
import itertools
import math
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from servers import until
from stores import FileStore, Forgetful, Gated, failing
from unalike import (
    LAYOUTS,
    AdaptiveStep,
    AsyncIds,
    Batch,
    Clock,
    FixedStep,
    Ids,
    IdsError,
    Layout,
    LeaseAcquire,
    Segment,
    Spread,
    StoreError,
    TagOptions,
    TagRecord,
    formats,
)
from unalike._component import CoreInstance
from unalike._lane import Traps
from unalike._requests import Pool
from unalike.lease_rules import rfc3339
from unalike.memory import MemoryStore
from unalike.store import sub_tag, validate_new_tag, validate_tag

SOURCE = Path(__file__).parents[1] / "src"


def raised(kind: str, **figures: Any) -> Any:
    def check(error: IdsError) -> bool:
        return error.kind == kind and all(error.figures[name] == value for name, value in figures.items())

    return pytest.raises(IdsError, check=check)


def trap(ids: Ids) -> None:
    """Has the component trap in the next call that needs the store."""
    _, requests = ids._here.lane._here("-")

    def broken(*_: Any) -> Any:
        raise RuntimeError("the test breaks an import")

    requests._storage, requests._read = None, broken


def test_ids_ascend_and_nothing_is_lost() -> None:
    store = MemoryStore()
    store.create_tag("order", TagOptions(start=100, step=FixedStep(10)))
    with Ids(segments=store) as ids:
        orders = ids.sequence("order")
        drawn = [orders.next() for _ in range(50)] + list(orders.take(100)) + list(itertools.islice(orders, 50))
        assert drawn == list(range(100, 300))
        assert (orders.tag, orders.sub, orders.mode) == ("order", None, "buffered")
        assert orders.status().issued == 200
        assert ids.sequence("order") is orders


def test_what_was_not_used_goes_back() -> None:
    store = MemoryStore()
    for expected in (1, 2, 3):
        with Ids(segments=store) as ids:
            assert ids.sequence("order").next() == expected


def test_a_batch_takes_no_list() -> None:
    with Ids(segments=MemoryStore()) as ids:
        orders = ids.sequence("order")
        batch = orders.take(3_000_000)
        assert len(batch) == 3_000_000 and sum(len(run) for run in batch.runs) == 3_000_000
        assert sum(batch) == sum(range(1, 3_000_001)) and next(iter(batch)) == 1
        assert 3_000_000 in batch and 0 not in batch
        assert batch == Batch([range(1, 3_000_001)]) and hash(batch) == hash(Batch([range(1, 3_000_001)]))
        assert orders.next() == 3_000_001


COUNTS: list[Any] = [0, -1, 2**32, 2**32 + 1, 1.5, 1.0, True, False, math.nan, math.inf, "1", None, b"1", 10**30]


@pytest.mark.parametrize("count", COUNTS, ids=repr)
def test_counts_that_are_none(count: Any) -> None:
    store = Gated()
    with Ids(segments=store, leases=store) as ids:
        for of in (ids.sequence("order"), ids.snowflake("default", "twitter")):
            with raised("argument_invalid", argument="count"):
                of.take(count)
        assert store.asked == 0, "the component was not called"


def test_other_numbers_count_as_well() -> None:
    class Three:
        def __index__(self) -> int:
            return 3

    with Ids(segments=MemoryStore()) as ids:
        assert list(ids.sequence("order").take(Three())) == [1, 2, 3]  # type: ignore[arg-type]


def test_threads_share_a_sequence() -> None:
    with Ids(segments=MemoryStore()) as ids:
        orders = ids.sequence("order", step=FixedStep(1_000))
        drawn: list[list[int]] = [[] for _ in range(8)]

        def draw(into: list[int]) -> None:
            for _ in range(200):
                into.extend(orders.next() for _ in range(20))
                into.extend(orders.take(7))

        threads = [threading.Thread(target=draw, args=(into,)) for into in drawn]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        together = sorted(itertools.chain(*drawn))
        assert together == list(range(1, 8 * 200 * 27 + 1)), "none twice, and none lost"
        assert all(into == sorted(into) for into in drawn)


def test_sub_keys_are_counted_by_themselves() -> None:
    store = MemoryStore()
    with Ids(segments=store) as ids:
        ids.sequence("order").next()
        tenant = ids.sequence_of("order", "tenant")
        assert [tenant.next(), tenant.next(), ids.sequence("order").next()] == [1, 2, 2]
        assert (tenant.tag, tenant.sub) == ("order", "tenant")


def test_what_a_store_says_of_a_name_or_a_layout() -> None:
    store = MemoryStore()
    with Ids(segments=store, leases=store) as ids:
        with raised("name_invalid") as error:
            ids.sequence("order ")
        assert "has a space at an end" in str(error.value) and not error.value.is_retryable
        ids.snowflake("default", "twitter").next()
    with Ids(leases=store) as ids, raised("store") as error:
        ids.snowflake("default", "leaf").next()
    since = "epoch 1288834974657 tick 1 ms"
    assert f"bound to the layout 41/5+5/12 {since}, and 41/10/12 {since} was offered: use another" in str(error.value)


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 129, "\ud800", 7, None])
def test_names_that_are_none(name: Any) -> None:
    with Ids(segments=MemoryStore(), leases=MemoryStore()) as ids:
        with raised("name_invalid"):
            ids.sequence(name)
        with raised("name_invalid"):
            ids.snowflake(name, "twitter")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: validate_tag(""), "the tag '' is not valid: it is empty, and a name has 1 to 128 bytes"),
        (
            lambda: validate_tag("é" * 65),
            f"the tag '{'é' * 32}' is not valid: its name begins so and has 130 bytes, and a name has 1 to 128 bytes",
        ),
        (lambda: validate_tag("a\tb"), r"the tag 'a\tb' is not valid: it holds a control character"),
        (lambda: sub_tag("chat", ""), "the tag 'chat' is not valid: its sub-key is empty"),
        (lambda: sub_tag("chat", "a\n"), "the tag 'chat' is not valid: its sub-key holds a control character"),
        (lambda: sub_tag("chat\x1fa", "b"), "its sub-key holds a control character"),
        (lambda: sub_tag("chat", cast(str, 7)), "the tag 'chat' is not valid: its sub-key is 7, and must be a string"),
        (
            lambda: sub_tag("chat", "x" * 124),
            "the tag 'chat' is not valid: with its sub-key it has 128 bytes, 127 at most are allowed",
        ),
        (
            lambda: validate_new_tag(" chat"),
            "the tag ' chat' is not valid: its name has a space at an end, and no new one may: leave the space out",
        ),
        (
            lambda: validate_new_tag(sub_tag("chat", "a ")),
            "tag 'chat' is not valid: its sub-key 'a ' has a space at an end, and no new one may: leave the space out",
        ),
    ],
)
def test_what_is_wrong_with_a_name(call: Callable[[], object], words: str) -> None:
    with pytest.raises(StoreError) as caught:
        call()
    assert caught.value.kind == "tag-invalid" and str(caught.value).endswith(words)


def test_a_tag_that_has_a_space_at_an_end_has_new_sub_keys() -> None:
    validate_new_tag(sub_tag(" imported ", "a"))
    assert len(sub_tag("chat", "x" * 123).encode()) == 128


def test_names_that_the_product_keeps_are_refused() -> None:
    with Ids(segments=MemoryStore()) as ids:
        for name in ("redis-leases", "unalike-new-names", "unalike-formats"):
            with pytest.raises(IdsError, match="use another"):
                ids.sequence(name)


def test_options_that_are_none() -> None:
    with Ids(segments=MemoryStore(), leases=MemoryStore()) as ids:
        for options in ({"prefetch": 0}, {"prefetch": True}, {"id_max": 0}, {"id_max": 2**63}, {"mode": "fast"}):
            with raised("argument_invalid", argument=next(iter(options))):
                ids.sequence("order", **options)  # type: ignore[arg-type]
        with raised("store"):
            ids.sequence("order", step=FixedStep(0))
        with raised("layout"):
            ids.snowflake("default", "no such")
        with raised("layout"):
            ids.snowflake("default", Layout(41, 5, 5, 60, "worker-first", 0, 1))
        for of, argument in (
            ({"horizon_ms": 0}, "horizon_ms"),
            ({"horizon_ms": 299}, "horizon_ms"),
            ({"horizon_ms": 2**64}, "horizon_ms"),
            ({"horizon_ms": 1.5}, "horizon_ms"),
            ({"ahead_max_ms": -1}, "ahead_max_ms"),
            ({"spread": Spread.random(13)}, "spread"),
            ({"clock": Clock.wait(-1)}, "wait"),
        ):
            with raised("argument_invalid", argument=argument):
                ids.snowflake("default", "twitter", **of)  # type: ignore[arg-type]
        with raised("argument_invalid", argument="wait_max"):
            Ids(wait_max=0)
        # Meant as seconds.
        with pytest.raises(IdsError, match=r"horizon_ms is 60, it must be 300 to .* \(60000 is one minute\)"):
            ids.snowflake("default", "twitter", horizon_ms=60)
        ids.snowflake("default", "twitter", horizon_ms=300)


def test_options_of_another_type() -> None:
    """The message says which, what it is, and what is expected."""
    store = MemoryStore()
    with Ids(segments=store, leases=store) as ids:
        for value in (5, 0, "5", True):
            for argument, words in (("step", "FixedStep"), ("refill", "Remaining")):
                options: Any = {argument: value}
                with raised("argument_invalid", argument=argument, value=value) as error:
                    ids.sequence("order", **options)
                assert f"{argument} is {value!r}, it must be " in str(error.value) and words in str(error.value)
                with pytest.raises(StoreError, match=f"its {argument} is {value!r}, it must be "):
                    store.create_tag("order", TagOptions(**options))
        for value in (5, None, "keep"):
            for argument, words in (("clock", "Clock.keep"), ("spread", "Spread.rotating")):
                options = {argument: value}
                with raised("argument_invalid", argument=argument, value=value) as error:
                    ids.snowflake("default", "twitter", **options)
                assert f"{argument} is {value!r}, it must be " in str(error.value) and words in str(error.value)
    for clock in (0, 5, "now"):
        with raised("argument_invalid", argument="clock", value=clock):
            Ids(clock=cast(Any, clock))


@pytest.mark.parametrize("time_of", ["x", None, 1.5, -1, 2**64, True])
def test_a_clock_that_answers_no_time(time_of: Any) -> None:
    """Calls fail while it does, and nothing is lost by it."""
    store, is_wrong = MemoryStore(), True
    store.create_tag("ticket", TagOptions(mode="ordered"))
    clock = cast(Any, lambda: time_of if is_wrong else time.time_ns() // 1_000_000)
    with Ids(segments=store, leases=store, clock=clock) as ids:
        sequences = ids.sequence("order"), ids.sequence("ticket"), ids.snowflake("default", "twitter")
        for sequence in sequences:
            for act in (sequence.next, lambda: sequence.take(2)):
                with raised("argument_invalid", argument="what the clock answered", value=time_of) as error:
                    act()
                assert "milliseconds since 1970" in str(error.value)
        is_wrong = False
        assert [sequence.next() for sequence in sequences[:2]] == [1, 1] and sequences[2].next() > 0


def test_open_otherwise() -> None:
    store = MemoryStore()
    with Ids(segments=store, leases=store) as ids:
        ids.sequence("order", step=FixedStep(5))
        with raised("open_otherwise") as error:
            ids.sequence("order")
        assert "is open with step=FixedStep(step=5), and was asked for with None: open it once" in str(error.value)
        with raised("mode_bound", stored="buffered", asked="ordered"):
            ids.sequence("invoice", mode="ordered")
        ids.snowflake("default", "twitter")
        with raised("open_otherwise") as error:
            ids.snowflake("default", "leaf")
        assert "is open with layout=41/5+5/12 epoch 1288834974657 tick 1 ms, and was asked for" in str(error.value)
        with raised("open_otherwise") as error:
            ids.snowflake("default", "twitter", clock=Clock.wait(5))
        assert "is open with clock=keep(2000), and was asked for with wait(5)" in str(error.value)
        with raised("open_otherwise") as error:
            ids.snowflake("default", "twitter", horizon_ms=5_000)
        assert "is open with horizon_ms=60000, and was asked for with 5000" in str(error.value)


def test_id_max_ends_a_sequence() -> None:
    for mode in ("buffered", "ordered"):
        store = MemoryStore()
        store.create_tag("order", TagOptions(mode=mode))  # type: ignore[arg-type]
        with Ids(segments=store) as ids:
            orders = ids.sequence("order", id_max=37)
            assert list(orders.take(37)) == list(range(1, 38))
            for _ in range(2):
                with raised("exhausted", id_max=37):
                    orders.next()


def test_the_last_number() -> None:
    store = MemoryStore()
    store.create_tag("order", TagOptions(start=2**63 - 3))
    with Ids(segments=store) as ids:
        orders = ids.sequence("order")
        assert [orders.next() for _ in range(3)] == [2**63 - 3, 2**63 - 2, 2**63 - 1]
        with pytest.raises(IdsError) as error:
            orders.next()
        assert (error.value.kind, error.value.is_retryable) == ("exhausted", False)


def test_no_store_was_given() -> None:
    store = MemoryStore()
    with Ids(leases=store) as ids, pytest.raises(IdsError, match="segments="):
        ids.sequence("order")
    with Ids(segments=store) as ids, pytest.raises(IdsError, match="leases="):
        ids.snowflake("default", "twitter").next()
    wrong: list[tuple[dict[str, Any], str]] = [
        ({}, "no store was given: Ids(URL), or Ids(segments=store, leases=store)"),
        ({"url": "sqlite://a", "segments": MemoryStore()}, "a URL and stores were given: write Ids(URL), or"),
        ({"leases": store, "holder": 5}, "holder is 5, it must be a text"),
        ({"leases": store, "renew_leases": "no"}, "renew_leases is 'no', it must be True or False"),
    ]
    for given, said in wrong:
        with raised("argument_invalid") as error:
            Ids(**given)
        assert said in str(error.value)
    with pytest.raises(StoreError, match="its options are of the type dict, they must be TagOptions"):
        store.create_tag("some", cast(Any, {"mode": "ordered"}))


def test_errors_of_the_store() -> None:
    for kind, is_retryable in (("refused", False), ("tag-unknown", False), ("corrupt", False)):
        store = Gated(failing(kind, "the disk is on fire"))
        with Ids(segments=store) as ids:
            orders = ids.sequence("order")
            with pytest.raises(IdsError, match="the disk is on fire") as error:
                orders.next()
            assert error.value.kind == "store" and error.value.name == "order"
            assert isinstance(error.value.__cause__, StoreError) and error.value.__cause__.kind == kind
            assert error.value.is_retryable == is_retryable
            assert error.value.store_error is error.value.__cause__
            again = pickle.loads(pickle.dumps(error.value))
            assert (again.kind, str(again), again.name) == (error.value.kind, str(error.value), "order")


def test_a_store_that_is_down_for_a_while() -> None:
    store = Gated(failing("unavailable"))
    with Ids(segments=store, wait_max=30) as ids:
        orders = ids.sequence("order")
        found: list[int] = []
        thread = threading.Thread(target=lambda: found.append(orders.next()))
        thread.start()
        until(lambda: store.asked >= 2)
        store.before = lambda what: None
        thread.join()
        assert found == [1]


def test_every_wait_ends() -> None:
    """A store that never answers: the caller's time is up, then the request's, and what it grants later is burnt."""
    go = threading.Event()
    store = Gated(lambda what: go.wait(60) and None)  # type: ignore[arg-type, return-value]
    ids = Ids(segments=store, leases=store, wait_max=0.05, request_timeout=0.3)
    orders, flakes = ids.sequence("order"), ids.snowflake("default", "twitter")
    for of in (orders, flakes):
        with raised("timeout"):
            of.next()
        with raised("timeout"):
            of.take(3)
        assert of.try_next() is None
    assert store.asked == 1, "one request at a time"
    ids.wait_max = ids._here.lane.wait_max = 30
    later = threading.Timer(1, go.set)
    later.start()
    # The first was given up after 0.3 s, and its numbers are nobody's, whichever they are.
    drawn = list(orders.take(2_000))
    assert len(set(drawn)) == 2_000 and min(drawn) % 1_000 == 1
    ids.close()
    later.join()


def test_a_request_that_waits_for_a_thread_is_not_made_in_vain() -> None:
    go = threading.Event()
    store = Gated(lambda what: go.wait(60) and None)  # type: ignore[arg-type, return-value]
    ids = Ids(segments=store, wait_max=0.4, request_timeout=0.2)
    sequences = [ids.sequence(f"tag-{number}") for number in range(Pool._THREADS_MAX + 1)]
    for sequence in sequences:
        assert sequence.try_next() is None
    until(lambda: store.asked == Pool._THREADS_MAX)
    with pytest.raises(IdsError, match="did not begin in time") as error:
        sequences[-1].next()
    assert error.value.store_error is not None and error.value.store_error.kind == "unavailable"
    go.set()
    ids.wait_max = 30
    assert sequences[-1].next() == 1, "nothing was granted for it"
    ids.close()


def test_what_is_no_store_is_refused_when_it_is_given() -> None:
    """And not at the first id, as a store that may answer later."""

    async def opened() -> MemoryStore:
        return MemoryStore()

    coroutine = opened()
    wrong: dict[str, Any] = {
        "a text, it must be a store: give SqliteStore(..)": "mysql://root:secret@host/db",
        "the class MemoryStore, it must be a store: write MemoryStore(..)": MemoryStore,
        "a coroutine, it must be a store: await it first": coroutine,
        "a dict, it must be a store, and has no method a": {},
    }
    for said, value in wrong.items():
        for argument in ("segments", "leases"):
            with raised("argument_invalid", argument=argument) as error:
                Ids(**{argument: value})
            assert f"{argument} is {said}" in str(error.value) and not error.value.is_retryable
            assert "secret" not in str(error.value)
    coroutine.close()
    with raised("argument_invalid", argument="ids"):
        AsyncIds.of(cast(Any, None))


def test_whatever_a_store_raises_or_answers() -> None:
    """It costs a gap at most, and nobody waits for it."""
    bad: list[Any] = [KeyError("x"), SystemExit(3), None, Segment(0, 1, 1, 0, 1), Segment(1, 2**70, 1, 0, 1)]
    bad += [Segment(-5, 5, 1, 0, 1), Segment(1.0, 11, 1, 0, 1)]  # type: ignore[arg-type]

    class Bad(MemoryStore):
        answers: list[Any] = []

        def allocate(self, tag: str, count: int, at_least: int) -> Segment:
            if not self.answers:
                return super().allocate(tag, count, at_least)
            answer = self.answers.pop()
            if isinstance(answer, BaseException):
                raise answer
            return answer  # type: ignore[no-any-return]

    for answer in bad:
        store = Bad()
        store.answers = [answer]
        with Ids(segments=store, wait_max=30) as ids:
            orders = ids.sequence("order")

            def drawn() -> Any:
                try:
                    return orders.next()
                except IdsError as error:
                    assert error.kind in ("store", "grant_refused"), error
                    return None

            assert until(drawn) == 1 and not store.answers


def test_a_store_that_grants_twice() -> None:
    """Rule 12: an overlap is refused, also after a rebuild."""
    for is_rebuilt in (False, True):
        store = Forgetful()
        with Ids(segments=store) as ids:
            orders = ids.sequence("order", step=FixedStep(100))
            first = list(orders.take(100))
            store.forgot = True
            if is_rebuilt:
                trap(ids)
                with raised("rebuilt"):
                    orders.take(10_000)
            after: list[int] = []
            with raised("grant_refused", fault="overlap") as error:
                while True:
                    after.append(orders.next())
            assert "overlaps or precedes one that the store gave before" in str(error.value)
            assert first == list(range(1, 101)) and all(id > 100 for id in after)


def test_a_trap_costs_one_retryable_error_and_a_gap() -> None:
    for mode in ("buffered", "ordered"):
        store = MemoryStore()
        store.create_tag("order", TagOptions(mode=mode))  # type: ignore[arg-type]
        with Ids(segments=store, leases=store) as ids:
            orders, flakes = ids.sequence("order"), ids.snowflake("default", "twitter")
            before, stamped = list(orders.take(10)), list(flakes.take(10))
            trap(ids)
            with pytest.raises(IdsError) as error:
                orders.take(10_000)
            assert error.value.kind == "rebuilt" and error.value.is_retryable and error.value.retry_after_ms == 1
            after, stamped_after = list(orders.take(10)), list(flakes.take(10))
            assert min(after) > max(before) and min(stamped_after) > max(stamped)
            assert set(before).isdisjoint(after)


def test_a_rebuilt_snowflake_begins_at_the_next_tick() -> None:
    """Rule 9, while the clock stands still."""
    clock = Clockwork()
    store = MemoryStore(clock=clock)
    with Ids(segments=store, leases=store, clock=clock) as ids:
        orders, flakes = ids.sequence("order"), ids.snowflake("default", "twitter")
        before = [flakes.next() for _ in range(10)]
        trap(ids)
        with raised("rebuilt"):
            orders.take(10)
        # What is left of the run in hand is handed out first.
        drawn = list(flakes.take(8_000))
        workers = [formats.unpack(id, "twitter") for id in drawn]
        mine = formats.unpack(before[0], "twitter")
        later = [parts for parts in workers if parts.worker != mine.worker]
        assert later and min(parts.ticks for parts in later) > mine.ticks
        assert len({*before, *drawn}) == 8_010


def test_a_fault_that_stays_is_met_less_and_less_often() -> None:
    store = MemoryStore()
    with Ids(segments=store) as ids:
        orders = ids.sequence("order", step=FixedStep(5))
        orders.next()
        for retry_after_ms in (1, None):
            trap(ids)
            with pytest.raises(IdsError) as error:
                orders.take(100)
            assert error.value.kind == "rebuilt"
            assert retry_after_ms is None or error.value.retry_after_ms == retry_after_ms
        with pytest.raises(IdsError, match="built again in") as error:
            orders.take(100)
        assert error.value.retry_after_ms is not None and 1 <= error.value.retry_after_ms <= 1_000
    traps, now, pauses = Traps(), 0.0, []
    for _ in range(12):
        traps.record(now)
        pauses.append(traps.pause_left(now))
        now += pauses[-1]
    assert pauses == [0, 1, 2, 4, 8, 16, 32, 60, 60, 60, 60, 60]
    traps.record(now + 601)
    assert traps.pause_left(now + 601) == 0, "the first of another fault"


def test_an_interrupt_of_the_keyboard_ends_the_call() -> None:
    """It is raised, wherever it came, and no id comes twice afterwards."""
    program = Path(__file__).parent / "interrupted.py"
    ended = subprocess.run(
        [sys.executable, str(program)],
        env={"PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (ended.returncode, ended.stdout) == (0, "no id came twice\n"), ended.stderr


def test_ordered_callers_share_rounds() -> None:
    """Rule 24: a caller is served only from an allocation that started after it came."""
    started: list[float] = []

    def before(what: str) -> None:
        started.append(time.monotonic())
        time.sleep(0.002)

    store = Gated(before)
    store.create_tag("order", TagOptions(mode="ordered"))
    with Ids(segments=store) as ids:
        orders = ids.sequence("order")
        served: list[tuple[float, float, int]] = []
        lock = threading.Lock()

        def draw(take: bool) -> None:
            for _ in range(40):
                came = time.monotonic()
                found = list(orders.take(3)) if take else [orders.next()]
                with lock:
                    served.extend((came, time.monotonic(), id) for id in found)

        threads = [threading.Thread(target=draw, args=(number % 2 == 0,)) for number in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        numbers = [id for _, _, id in served]
        assert len(numbers) == len(set(numbers)) == 6 * 40 * 4
        assert len(started) < len(numbers) / 2, "they were served together"
        # Whoever came after another was served has a greater id.
        served.sort(key=lambda one: one[1])
        ended = [end for _, end, _ in served]
        greatest = list(itertools.accumulate((id for _, _, id in served), max))
        for came, _, id in served:
            at = bisect.bisect_left(ended, came)
            assert at == 0 or id > greatest[at - 1]
        assert orders.try_next() is None


def test_an_ordered_caller_that_goes_away_leaves_a_gap() -> None:
    go, asked = threading.Event(), threading.Event()

    def before(what: str) -> None:
        asked.set()
        go.wait(60)

    store = Gated(before)
    store.create_tag("order", TagOptions(mode="ordered"))
    ids = Ids(segments=store, wait_max=0.05)
    orders = ids.sequence("order")
    with raised("timeout"):
        orders.take(5)
    assert asked.is_set()
    ids.wait_max = 30
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(orders.next()))
    thread.start()
    until(lambda: len(orders._here._queue) == 1)  # type: ignore[union-attr]
    go.set()
    thread.join()
    assert found == [6], "1 to 5 were granted before it came"
    ids.close()


def test_an_ordered_store_that_grants_little() -> None:
    class Little(MemoryStore):
        def allocate(self, tag: str, count: int, at_least: int) -> Segment:
            return super().allocate(tag, min(count, 3), at_least)

    store = Little()
    store.create_tag("order", TagOptions(mode="ordered"))
    with Ids(segments=store) as ids:
        orders = ids.sequence("order")
        assert list(orders.take(10)) == list(range(1, 11)) and orders.next() == 11


def test_close_is_done_once_and_everybody_waits_for_it() -> None:
    released = threading.Event()
    go = threading.Event()

    class Slow(MemoryStore):
        releases = 0

        def release(self, tag: str, tail: Any) -> bool:
            self.releases += 1
            released.set()
            go.wait(60)
            return super().release(tag, tail)

    store = Slow()
    ids = Ids(segments=store)
    orders = ids.sequence("order")
    assert orders.next() == 1
    ended: list[int] = []
    closers = [threading.Thread(target=lambda: (ids.close(), ended.append(1))) for _ in range(4)]
    for closer in closers:
        closer.start()
    released.wait(60)
    with raised("closed"):
        orders.next()
    assert ended == []
    go.set()
    for closer in closers:
        closer.join()
    ids.close()
    assert store.releases == 1 and len(ended) == 4
    for of in (orders.next, lambda: orders.take(1), orders.try_next, orders.status, lambda: ids.sequence("other")):
        with raised("closed") as error:
            of()
        assert str(error.value).endswith(": this Ids was closed")
    assert store.allocate("order", 1, 0).start == 2


def test_close_ends_those_who_wait() -> None:
    go = threading.Event()
    for mode in ("buffered", "ordered"):
        go.clear()
        store = Gated(lambda what: go.wait(60) and None)  # type: ignore[arg-type, return-value]
        store.create_tag("order", TagOptions(mode=mode))  # type: ignore[arg-type]
        ids = Ids(segments=store, wait_max=30, request_timeout=0.2)
        orders = ids.sequence("order")
        kinds: list[str] = []

        def wait() -> None:
            try:
                orders.next()
            except IdsError as error:
                kinds.append(error.kind)

        threads = [threading.Thread(target=wait) for _ in range(3)]
        for thread in threads:
            thread.start()
        until(lambda: store.asked == 1)
        ids.close()
        for thread in threads:
            thread.join()
        assert kinds == ["closed"] * 3
        go.set()


def test_a_process_that_ends_is_not_held_up() -> None:
    program = """
import threading
from unalike import Ids
from unalike.memory import MemoryStore
class Never(MemoryStore):
    def allocate(self, *asked):
        threading.Event().wait()
ids = Ids(segments=Never(), wait_max=0.1)
orders = ids.sequence("order")
try:
    orders.next()
except Exception as error:
    print(error.kind)
"""
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "timeout\n", "")


class Clockwork:
    """A clock that stands where it is put."""

    def __init__(self, now: int = 1_700_000_000_000) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


def test_snowflakes() -> None:
    clock = Clockwork()
    store = MemoryStore(clock=clock)
    with Ids(leases=store, clock=clock) as ids:
        flakes = ids.snowflake("default", "twitter", ahead_max_ms=0)
        first = [flakes.next() for _ in range(4_096)]
        parts = [formats.unpack(id, "twitter") for id in first]
        assert [part.sequence for part in parts] == list(range(4_096))
        assert {(part.unix_ms, part.worker) for part in parts} == {(clock.now, flakes.status().worker)}
        assert flakes.try_next() is None, "the tick is spent, and the clock stands still"
        clock.now += 1
        assert formats.unpack(flakes.next(), "twitter").unix_ms == clock.now
        clock.now += 5
        assert formats.unpack(flakes.next(), "twitter").unix_ms == clock.now, "what was left of the tick is dropped"
        assert flakes.status().issued == 4_098


def test_a_clock_that_goes_back() -> None:
    clock = Clockwork()
    store = MemoryStore(clock=clock)
    with Ids(leases=store, clock=clock, wait_max=0.2) as ids:
        kept = ids.snowflake("kept", "twitter")
        rejecting = ids.snowflake("rejecting", "twitter", clock=Clock.reject())
        drawn = [kept.next(), rejecting.next()]
        clock.now -= 100
        drawn += [kept.next() for _ in range(50)]
        with raised("clock_moved_back", behind_ms=100):
            rejecting.next()
        clock.now += 100
        drawn.append(rejecting.next())
        assert len(drawn) == 53 and len(set(drawn)) == 51, "two namespaces, with one worker and one time"
        clock.now = LAYOUTS["twitter"].epoch_ms - 10
        with pytest.raises(IdsError) as error:
            ids.snowflake("early", "twitter").next()
        assert error.value.kind == "clock_before_epoch" and error.value.is_retryable
        assert error.value.retry_after_ms == 1_000
        assert "begins, at 2010-11-04T01:42:54.658Z: set the clock, or correct the layout's" in str(error.value)


def test_presets_have_ids() -> None:
    store = MemoryStore()
    with Ids(leases=store) as ids:
        for name, layout in LAYOUTS.items():
            flakes = ids.snowflake(name, name)
            try:
                drawn = list(flakes.take(300))
            except IdsError as error:
                assert name == "baidu" and error.kind in ("exhausted", "store"), (name, error)
                continue
            assert len(set(drawn)) == 300 and drawn == sorted(drawn), name
            assert formats.unpack(drawn[0], layout).worker == flakes.status().worker


def test_spread() -> None:
    clock = Clockwork()
    store = MemoryStore(clock=clock)
    with Ids(leases=store, clock=clock) as ids:
        for spread in (Spread.rotating(4), Spread.random(4)):
            flakes = ids.snowflake(spread.kind, "twitter", spread=spread)
            offsets = set()
            for _ in range(64):
                clock.now += 1
                offsets.add(formats.unpack(flakes.next(), "twitter").sequence)
            assert max(offsets) < 16 and len(offsets) > 8


def test_leases_are_renewed_and_given_back() -> None:
    clock = Clockwork()
    store = MemoryStore(clock=clock)
    with Ids(leases=store, clock=clock) as ids:
        flakes = ids.snowflake("default", "twitter", horizon_ms=60_000)
        flakes.next()
        until_ms = flakes.status().valid_until_ms
        clock.now += 30_000
        ids.renew_leases()
        until(lambda: flakes.status().valid_until_ms > until_ms)
        worker = flakes.status().worker
        used = flakes.status().used_until_ms
    # The next holder of the worker begins where this one ended, and not at the end of its lease.
    clock.now += 1
    layout = LAYOUTS["twitter"]
    lease = store.acquire(LeaseAcquire("default", layout, "", worker, clock.now, 1_000))
    assert lease.worker == worker and used <= lease.not_before_ms == clock.now


def test_a_lease_that_ended_is_told() -> None:
    clock = Clockwork()
    store = Gated(clock=clock)
    with Ids(leases=store, clock=clock, wait_max=0.1) as ids:
        flakes = ids.snowflake("default", "twitter", horizon_ms=1_000)
        worker = formats.unpack(flakes.next(), "twitter").worker
        ended_ms = flakes.status().valid_until_ms
        store.before = failing("refused", "the table is gone")
        clock.now = ended_ms + 5
        with pytest.raises(IdsError, match="the table is gone") as error:
            while True:
                flakes.next()
        assert error.value.kind == "lease_ended"
        assert error.value.figures == {"worker": worker, "ended_ms": ended_ms}
        assert f"worker {worker} ended at {rfc3339(ended_ms)}, and there is no other" in str(error.value)


def test_an_outage_of_the_lease_store_is_ridden_out() -> None:
    clock = Clockwork()
    store = Gated(clock=clock)
    with Ids(leases=store, clock=clock, wait_max=0.1) as ids:
        flakes = ids.snowflake("default", "twitter", horizon_ms=60_000)
        drawn = [flakes.next()]
        store.before = failing("unavailable")
        for _ in range(59):
            clock.now += 1_000
            drawn.append(flakes.next())
        assert len(set(drawn)) == 60 and len({formats.unpack(id, "twitter").worker for id in drawn}) == 1
        clock.now += 2_000
        with pytest.raises(IdsError) as error:
            flakes.next()
        assert error.value.is_retryable


def test_many_tags_in_one_instance() -> None:
    store = MemoryStore()
    with Ids(segments=store) as ids:
        sequences = [ids.sequence(f"tag-{number}", step=FixedStep(10)) for number in range(3_000)]
        assert [sequence.next() for sequence in sequences] == [1] * 3_000
        assert [sequence.next() for sequence in sequences] == [2] * 3_000
    assert {store.allocate(f"tag-{number}", 1, 0).start for number in range(3_000)} == {3}


def test_adaptive_steps_and_slow_stores() -> None:
    """A prefetch does not block callers: with a store of 2 ms, a thousand ids wait seldom."""
    store = Gated(lambda what: time.sleep(0.002))
    with Ids(segments=store) as ids:
        orders = ids.sequence("order", step=AdaptiveStep(step=100, min=100, max=10_000))
        drawn = [orders.next() for _ in range(20_000)]
        assert drawn == list(range(1, 20_001)) and store.asked < 60


def test_two_processes_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "ids"
    with Ids(segments=FileStore(path, step=FixedStep(10))) as one, Ids(segments=FileStore(path)) as other:
        first, second = one.sequence("order"), other.sequence("order", step=FixedStep(7))
        drawn = [of.next() for _ in range(500) for of in (first, second)]
        assert len(set(drawn)) == 1_000


def test_one_lock_per_instance() -> None:
    """Threads that call many sequences of one instance at once."""
    with Ids(segments=MemoryStore(), leases=MemoryStore()) as ids:
        sequences = [ids.sequence(f"tag-{number}", step=FixedStep(3)) for number in range(6)]
        flakes = ids.snowflake("default", "twitter")
        drawn: list[list[int]] = [[] for _ in range(7)]
        acts: list[Callable[[], int]] = [*(sequence.next for sequence in sequences), flakes.next]
        threads = [
            threading.Thread(target=lambda into=into, act=act: into.extend(act() for _ in range(400)))
            for into, act in zip(drawn, acts)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(into == list(range(1, 401)) for into in drawn[:6])
        assert len(set(drawn[6])) == 400


def test_nothing_leaks() -> None:
    """Calls, errors and instances: the memory of this process stays as it is."""
    resource = pytest.importorskip("resource")

    def memory() -> int:
        return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)

    def work() -> None:
        with Ids(segments=MemoryStore(), leases=MemoryStore()) as ids:
            orders = ids.sequence("order", step=FixedStep(1))
            for _ in range(300):
                orders.next()
        for number in range(1_000):
            formats.encode(number + 1, "uuid")
            with pytest.raises(IdsError):
                formats.decode("no id", "uuid")

    for _ in range(3):
        work()
    before = memory()
    for _ in range(12):
        work()
    assert memory() < before + 8_000, "kilobytes"


def test_an_instance_says_what_it_was_asked() -> None:
    """Values go in and come out whole, at the ends of their ranges."""
    seen: list[Any] = []
    imports: dict[str, Any] = {
        name: lambda *values: seen.append(values)
        for name in ("segments.release", "leases.release", "leases.extend", "leases.poll")
    }
    imports["segments.allocate"] = lambda *values: seen.append(values) or 2**64 - 1
    imports["leases.acquire"] = lambda *values: seen.append(values) or 2**63
    imports["segments.poll"] = lambda ticket: seen.append(ticket)
    instance = CoreInstance(imports)
    tag = "é" * 64
    opened = instance.call("ordered.open", tag, 2**63, 2**63 - 1)
    assert instance.call("ordered.begin", opened["ok"], 2**64 - 1, 2**32 - 1) == {"err": "exhausted"}
    opened = instance.call("ordered.open", tag, 7, 2**63 - 1)
    assert instance.call("ordered.begin", opened["ok"], 2**64 - 1, 2**32 - 1) == {"ok": 1}
    assert instance.call("ordered.claim", opened["ok"], 0, 1) == {"err": "pending"}
    assert seen == [(tag, 2**32 - 1, 7), 2**64 - 1]
    instance.give_up()


def test_records() -> None:
    assert TagRecord("order", TagOptions(), 0).options.step == AdaptiveStep()


@pytest.mark.parametrize("kind", ["nonsense", None, 5])
def test_a_kind_that_a_store_made_up(kind: Any) -> None:
    """Nothing is known of what it granted, and the component goes on."""

    class Failing(MemoryStore):
        def allocate(self, tag: str, count: int, at_least: int) -> Segment:
            if tag == "bad":
                raise StoreError(kind, "said")
            return super().allocate(tag, count, at_least)

    with Ids(segments=Failing(), wait_max=0.2) as ids:
        good, bad = ids.sequence("good"), ids.sequence("bad")
        assert good.next() == 1
        with raised("timeout"):
            bad.next()
        assert good.next() == 2, "what it held is still there"


def test_a_grant_that_cannot_be_shown() -> None:
    class Failing(MemoryStore):
        def allocate(self, tag: str, count: int, at_least: int) -> Segment:
            granted = super().allocate(tag, count, at_least)
            return Segment(granted.start, 10**5_000, 1, 0, 1) if tag == "bad" else granted

    with Ids(segments=Failing(), wait_max=0.2) as ids:
        good, bad = ids.sequence("good"), ids.sequence("bad")
        assert good.next() == 1
        with raised("store"):
            bad.next()
        assert good.next() == 2


def test_numbers_that_cannot_be_shown() -> None:
    class Odd:
        def __index__(self) -> int:
            raise ValueError("said the test")

    with Ids(segments=MemoryStore()) as ids:
        for count in (10**5_000, Odd()):
            with raised("argument_invalid", argument="count"):
                ids.sequence("order").take(count)  # type: ignore[arg-type]


HANDLERS = """
import faulthandler, resource, sys
from unalike import Ids, formats
from unalike.memory import MemoryStore

def caught():
    return next(line for line in open("/proc/self/status") if line.startswith("SigCgt"))

def kilobytes():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmSize"))

before, room = caught(), kilobytes() * 1_024 + (1 << 30)
resource.setrlimit(resource.RLIMIT_AS, (room, room))
for _ in range(5):
    ids = Ids(segments=MemoryStore())
    assert ids.sequence("order").next() == 1
assert formats.decode("1", "decimal") == 1
assert caught() == before, (before, caught())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it looks at /proc")
def test_a_process_keeps_its_handlers_of_signals_and_its_address_space() -> None:
    subprocess.run([sys.executable, "-c", HANDLERS], check=True)
