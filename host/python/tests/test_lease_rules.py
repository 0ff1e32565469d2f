"""The rules of leases answer what Rust's answer, case by case: ``tests/vectors/leases.json``."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Optional

import pytest

from unalike import lease_rules as rules
from unalike.store import Layout, LeaseAcquire, LeaseExtend, StoreError

FILE = json.loads((Path(__file__).parents[3] / "tests/vectors/leases.json").read_text(encoding="utf-8"))
LAYOUTS = {
    known["name"]: Layout(
        timestamp_bits=known["layout"]["timestamp-bits"],
        datacenter_bits=known["layout"]["datacenter-bits"],
        worker_bits=known["layout"]["worker-bits"],
        sequence_bits=known["layout"]["sequence-bits"],
        order=known["layout"]["order"],
        epoch_ms=int(known["layout"]["epoch-ms"]),
        tick_ms=known["layout"]["tick-ms"],
    )
    for known in FILE["layouts"]
}
Json = Any


def used(value: Json) -> Optional[rules.UsedWorker]:
    return None if value is None else rules.UsedWorker(value[0], int(value[1]))


def listed(worker: rules.UsedWorker) -> Json:
    return [worker.worker, str(worker.end_ms)]


def clocks(args: Json) -> rules.Clocks:
    return rules.Clocks(int(args["holder"]), int(args["store"]))


def binding(args: Json, layout: str = "layout") -> rules.NamespaceBinding:
    return rules.NamespaceBinding(LAYOUTS[args[layout]], int(args.get("max-horizon", 1)), int(args.get("floor", 0)))


def expiry_of(clock: Json) -> rules.Expiry:
    steps = rules.ClockSteps()
    for asked, answered, shown in clock["readings"]:
        steps.read(int(asked), int(answered), int(shown))
    return steps.expiry(int(clock["now-ns"]), int(clock["clock"]), int(clock.get("max-horizon", 2**64 - 1)))


def text(value: Optional[int]) -> Optional[str]:
    return None if value is None else str(value)


def acquire_of(args: Json) -> LeaseAcquire:
    return LeaseAcquire(
        namespace=args.get("namespace", "default"),
        layout=LAYOUTS[args["layout"]],
        holder=args["holder"],
        preferred_worker=args["preferred"],
        now_ms=0,
        horizon_ms=int(args.get("horizon", 60_000)),
    )


def first_use(args: Json) -> Json:
    limits = rules.LeaseLimits(max_horizon_ms=int(args["max-horizon"]))
    figures = rules.NamespaceBinding.first_use(LAYOUTS[args["layout"]], limits).figures()
    return {name: str(figure) for name, figure in figures.items()}


def read_figures(args: Json) -> Json:
    read = rules.NamespaceBinding.read(lambda name: int(args["figures"][name]))
    layout = rules.layout_text(read.layout)
    return {"text": layout, "max-horizon": str(read.max_horizon_ms), "floor": str(read.floor_ms)}


def grant(args: Json) -> Json:
    return [str(bound) for bound in binding(args).grant(int(args["recorded-end"]), clocks(args), int(args["horizon"]))]


def choose(args: Json) -> Json:
    candidates = rules.Candidates(
        workers=int(args["workers"]),
        used=int(args["used"]),
        preferred=used(args["preferred"]),
        previous=used(args["previous"]),
        oldest=used(args["oldest"]),
    )
    choice = rules.choose(candidates, rules.Expiry(int(args["clock"])), int(args["random"]))
    if isinstance(choice, rules.UsedWorker):
        return {"worker": listed(choice)}
    if isinstance(choice, rules.NeverUsed):
        return {"never-used": str(choice.nth)}
    return {"exhausted": str(choice.free_at_ms)}


def choose_worker(args: Json) -> Json:
    known = [(rules.UsedWorker(worker, int(end)), holder) for worker, end, holder in args["used"]]
    return listed(rules.choose_worker(acquire_of(args), expiry_of(args["clock"]), int(args["random"]), known))


def expiry(args: Json) -> Json:
    known = expiry_of(args["clock"])
    return {"plain": known.is_plain, "ends-at": [str(known.ends_at_ms(int(end))) for end in args["ends"]]}


def extend(args: Json) -> None:
    rules.validate_extend(LeaseExtend(args["namespace"], LAYOUTS[args["layout"]], 0, 1, 0, int(args["horizon"])))


# Those that can fail, and those that answer a value.
RESULTS: dict[str, Callable[[Json], Json]] = {
    "limits": lambda args: rules.LeaseLimits(int(args["max-horizon"]), int(args["max-skew"])).validate(),
    "check-clocks": lambda args: rules.LeaseLimits(max_skew_ms=int(args["max-skew"])).check_clocks(clocks(args)),
    "first-use": first_use,
    "check-layout": lambda args: binding(args, "bound").check_layout(args["namespace"], LAYOUTS[args["offered"]]),
    "check-quarantine": lambda args: binding({**args, "layout": "twitter"}).check_quarantine(
        args["namespace"], int(args["store"])
    ),
    "read-figures": read_figures,
    "grant": grant,
    "choose-worker": choose_worker,
    "validate-acquire": lambda args: rules.validate_acquire(acquire_of(args)),
    "validate-extend": extend,
}
VALUES: dict[str, Callable[[Json], Json]] = {
    "rfc3339": lambda args: rules.rfc3339(int(args["at"])),
    "round-up": lambda args: str(rules.round_up_ms(LAYOUTS[args["layout"]], int(args["at"]))),
    "extended-end": lambda args: str(
        binding(args).extended_end_ms(int(args["valid-until"]), int(args["store"]), int(args["horizon"]))
    ),
    "released-end": lambda args: text(
        rules.NamespaceBinding(LAYOUTS[args["layout"]], 1).released_end_ms(
            int(args["not-before"]), int(args["valid-until"]), int(args["end"])
        )
    ),
    "choose": choose,
    "nth-never-used": lambda args: rules.nth_never_used(int(args["nth"]), args["used"]),
    "expiry": expiry,
}


def seen(call: str, args: Json, expected: Json) -> Json:
    if call in VALUES:
        return VALUES[call](args)
    try:
        return {"ok": RESULTS[call](args)}
    except StoreError as error:
        is_compared = "err" in expected and expected["err"]["message"] is not None
        return {"err": {"kind": error.kind, "message": str(error) if is_compared else None}}
    except ValueError as error:
        return {"err": {"message": str(error)}}


def test_the_file_is_of_these_rules_and_its_layouts_are_written_as_rust_writes_them() -> None:
    assert FILE["rules"] == "leases"
    for known in FILE["layouts"]:
        assert rules.fault_of_layout(LAYOUTS[known["name"]]) is None
        assert rules.layout_text(LAYOUTS[known["name"]]) == known["text"]


@pytest.mark.parametrize("call", [*RESULTS, *VALUES])
def test_each_call_answers_as_in_rust(call: str) -> None:
    cases = [known for known in FILE["cases"] if known["call"] == call]
    assert cases
    for known in cases:
        assert seen(call, known["args"], known["returns"]) == known["returns"], known["args"]


def test_all_calls_are_known_and_there_are_hundreds_of_cases() -> None:
    assert {known["call"] for known in FILE["cases"]} == {*RESULTS, *VALUES}
    assert len(FILE["cases"]) > 700
    assert {known["returns"]["plain"] for known in FILE["cases"] if known["call"] == "expiry"} == {True, False}


def test_numbers_and_layouts_that_do_not_fit_are_refused() -> None:
    twitter = LAYOUTS["twitter"]
    acquire = LeaseAcquire("default", twitter, "", None, 0, 60_000)
    rules.validate_acquire(acquire)
    changes: list[dict[str, Any]] = [
        {"now_ms": -1},
        {"now_ms": 2**64},
        {"now_ms": 0.5},
        {"horizon_ms": 2**64},
        {"horizon_ms": 60_000.0},
        {"horizon_ms": True},
        {"preferred_worker": 1.5},
        {"preferred_worker": -1},
        {"namespace": "\ud800"},
        {"namespace": 7},
        {"layout": replace(twitter, worker_bits=-5)},
        {"layout": replace(twitter, timestamp_bits=42)},
        {"layout": replace(twitter, order="up")},  # type: ignore[arg-type]
        {"layout": replace(twitter, tick_ms=2**32)},
        {"layout": replace(twitter, tick_ms=0)},
        {"layout": replace(twitter, epoch_ms=-1)},
    ]
    for wrong in changes:
        with pytest.raises(StoreError) as refused:
            rules.validate_acquire(replace(acquire, **wrong))
        assert refused.value.kind == "refused", wrong
