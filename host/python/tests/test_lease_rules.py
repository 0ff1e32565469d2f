"""What is checked of a request for a lease, and how it is written, is as in Rust: ``tests/vectors/leases.json``."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable

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


def acquire_of(args: Json) -> LeaseAcquire:
    return LeaseAcquire(
        namespace=args.get("namespace", "default"),
        layout=LAYOUTS[args["layout"]],
        holder=args["holder"],
        preferred_worker=args["preferred"],
        now_ms=0,
        horizon_ms=int(args.get("horizon", 60_000)),
    )


def extend(args: Json) -> None:
    rules.validate_extend(LeaseExtend(args["namespace"], LAYOUTS[args["layout"]], 0, 1, 0, int(args["horizon"])))


CALLS: dict[str, Callable[[Json], Json]] = {
    "rfc3339": lambda args: rules.rfc3339(int(args["at"])),
    "validate-acquire": lambda args: {"ok": rules.validate_acquire(acquire_of(args))},
    "validate-extend": lambda args: {"ok": extend(args)},
}


def seen(call: str, args: Json, expected: Json) -> Json:
    try:
        return CALLS[call](args)
    except StoreError as error:
        is_compared = "err" in expected and expected["err"]["message"] is not None
        return {"err": {"kind": error.kind, "message": str(error) if is_compared else None}}


def test_the_file_is_of_these_rules_and_its_layouts_are_written_as_rust_writes_them() -> None:
    assert FILE["rules"] == "leases"
    for known in FILE["layouts"]:
        assert rules.fault_of_layout(LAYOUTS[known["name"]]) is None
        assert rules.layout_text(LAYOUTS[known["name"]]) == known["text"]


@pytest.mark.parametrize("call", CALLS)
def test_each_call_answers_as_in_rust(call: str) -> None:
    cases = [known for known in FILE["cases"] if known["call"] == call]
    assert cases
    for known in cases:
        assert seen(call, known["args"], known["returns"]) == known["returns"], known["args"]


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
