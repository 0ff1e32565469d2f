"""The conformance vectors, through the host's own import tables, floors and checks: see tests/vectors/README.md. They run
in the package's own library, and in wasmtime's Python package.
"""

from __future__ import annotations

import copy
import json
import os
import re
import traceback
from pathlib import Path
from typing import Any, Optional

import pytest
import wasmtime_host
from unalike import IdsError, Segment, StoreError, _component
from unalike._component import CoreInstance, FormatsInstance, Run, Trap
from unalike._process import current
from unalike._values import COUNT
from unalike._requests import GrantOrder, InstanceRequests, Request, Signal
from unalike.layouts import LAYOUTS
from unalike.store import Lease

DIRECTORY = Path(__file__).parents[3] / "tests" / "vectors"
FILES = {
    "sequences.json": "core",
    "ordered.json": "core",
    "snowflakes.json": "core",
    "hosts.json": "core",
    "layouts.json": "formats",
    "texts.json": "formats",
    "formats.json": "formats",
}
TEXTS = {"tag", "namespace", "input", "text", "template", "context", "ticket", "restart", "order", "clock"}
TEXTS |= {"spread", "refill"}
CALL_KEYS = {"call", "on", "args", "imports", "returns", "throws", "traps", "by", "refused", "source"}
LAYOUT_KEYS = ("timestamp-bits", "datacenter-bits", "worker-bits", "sequence-bits", "order", "epoch-ms", "tick-ms")
FAR_AWAY_S = 1e9


class Mismatch(AssertionError):
    pass


def arguments(value: Any, name: str = "") -> Any:
    """What a Python program passes for the numbers of a step."""
    if isinstance(value, dict):
        return {key: arguments(inner, key) for key, inner in value.items()}
    if isinstance(value, list):
        return [arguments(inner, name) for inner in value]
    if isinstance(value, str) and name not in TEXTS:
        if re.fullmatch("-?[0-9]+", value):
            return int(value)
        try:
            return float(value)
        except ValueError:
            return value
    return value


class Captured:
    """Takes the host's requests in the place of its threads."""

    segments: Any
    leases: Any
    holder, preferred_worker = "vectors", None

    def __init__(self) -> None:
        self.segments = self.leases = self
        self.newest: Optional[Request] = None

    def start(self, signal: Signal, what: str, ask: Any) -> Request:
        self.newest = Request(signal, FAR_AWAY_S, what)
        return self.newest

    def release(self, what: str, give_back: Any) -> None:
        pass


class World:
    """One vector's instance and host, in one process."""

    def __init__(self, world: str) -> None:
        self.world = world
        self.requests: dict[str, Request] = {}
        self.tickets: dict[str, int] = {}
        self.resources: dict[str, Any] = {}
        self.used_until: dict[str, int] = {}
        self.layouts: dict[str, tuple[str, dict[str, Any]]] = {}
        self.orders: dict[str, GrantOrder] = {}
        self.calls: list[dict[str, Any]] = []
        self.throws: Optional[str] = None
        self.pending_names: list[str] = []
        self.mark = current()
        self.build()

    def build(self) -> None:
        self.captured = Captured()
        self.resources, self.layouts = {}, {}
        self.host = InstanceRequests(self.captured, self.orders)
        if self.world == "formats":
            self.instance: Any = FormatsInstance()
        else:
            imports = {name: self.watched(name, act) for name, act in self.host.imports().items()}
            self.instance = CoreInstance(imports)

    def watched(self, name: str, act: Any) -> Any:
        """An import of the host's, which says that it was called and throws when it is to."""
        keys = {
            "segments.allocate": ("tag", "count", "at-least"),
            "segments.release": ("tag", "start", "version"),
            "leases.acquire": ("namespace", "layout", "now", "horizon-ms"),
            "leases.extend": ("namespace", "layout", "worker", "grant-id", "now", "horizon-ms"),
            "leases.release": ("namespace", "worker", "grant-id", "end"),
        }.get(name)

        def call(*values: Any) -> Any:
            if self.throws == name:
                raise RuntimeError("thrown by the vector")
            answer = act(*values)
            if keys is not None:
                seen: dict[str, Any] = {"import": name, "args": dict(zip(keys, values))}
                if answer is not None:
                    ticket = self.pending_names.pop(0) if self.pending_names else f"unexpected {answer}"
                    seen["ticket"] = ticket
                    self.tickets[ticket] = answer
                    assert self.captured.newest is not None
                    self.requests[ticket] = self.captured.newest
                self.calls.append(seen)
            return answer

        return call


class Runner:
    def __init__(self, world: str) -> None:
        self.world_name = world
        self.world = World(world)

    def run(self, steps: list[dict[str, Any]]) -> None:
        for number, step in enumerate(steps, 1):
            try:
                self.step(step)
            except Mismatch as error:
                raise Mismatch(f"step {number}: {error}\n{json.dumps(step)[:600]}") from None

    def step(self, step: dict[str, Any]) -> None:
        for kind, act in (
            ("call", self.call),
            ("drop", self.drop),
            ("answer", self.answer),
            ("rebuild", self.rebuild),
            ("fork", self.fork),
        ):
            if kind in step:
                return act(step)
        raise Mismatch(f"unknown step {sorted(step)}")

    def call(self, step: dict[str, Any]) -> None:
        known(step, CALL_KEYS)
        if step.get("by") not in (None, "host"):
            raise Mismatch(f"by {step['by']!r}")
        name, given = step["call"], step["args"]
        if name in ("segments.poll", "leases.poll"):
            return self.poll(step)
        world, function = self.world, name.split(".")[1]
        values = arguments(given)
        kind = name.split(".")[0]
        order = {
            "sequence.open": ("tag", "options"),
            "ordered.open": ("tag", "floor", "id-max"),
            "snowflake.open": ("namespace", "options"),
            "format.open": ("options",),
            "codec.unpack": ("id", "layout"),
            "codec.pack": ("parts", "layout"),
            "codec.id-range": ("layout", "from", "until"),
            "codec.encode": ("id", "text"),
            "codec.decode": ("input", "text"),
            "ordered.begin": ("now", "count"),
            "ordered.claim": ("now", "round"),
            "format.period": ("issued",),
            "format.number": ("id", "issued", "shard-key"),
            "format.write": ("id", "issued", "shard-key"),
            "format.original": ("number",),
            "format.read": ("text",),
        }.get(name, ("now", "max") if function == "reserve" else ("now",) if function == "status" else ())
        if set(order) != set(values):
            raise Mismatch(f"arguments {sorted(values)}, known are {sorted(order)}")
        passed = [values[key] for key in order]
        on = str(step.get("on"))
        if function != "open" and kind != "codec":
            passed.insert(0, world.resources[on])
        world.calls, world.throws = [], step.get("throws")
        world.pending_names = [call["ticket"] for call in step.get("imports", []) if "ticket" in call]
        seen: dict[str, Any] = {}
        try:
            if step.get("by") == "host" and function in ("reserve", "begin"):
                # What the host checks before it calls; without it, the component refuses 0 by itself.
                COUNT.check(passed[2], order[1])
            if function == "reserve":
                found = world.instance.reserve(name, *passed)
                if isinstance(found, Run):
                    ok = {"first": found.first, "stride": found.stride, "count": found.count}
                    self.used(on, found)
                    seen["returns"] = {"ok": ok}
                else:
                    seen["returns"] = {"err": found}
            else:
                found = world.instance.call(name, *passed)
                if function == "open":
                    if "ok" in found:
                        world.resources[on] = found["ok"]
                        if kind == "snowflake":
                            world.layouts[on] = (values["namespace"], values["options"]["layout"])
                        found = {"ok": None}
                if function != "close":
                    seen["returns"] = found
        except Trap:
            seen["traps"] = True
        except IdsError as error:
            if error.kind != "argument_invalid":
                raise
            seen["refused"] = error.figures["argument"]
        if world.calls:
            seen["imports"] = world.calls
        wanted = {key: step[key] for key in ("returns", "traps", "refused", "imports") if key in step}
        same(seen, wanted)

    def used(self, on: Any, run: Run) -> None:
        if on in self.world.layouts:
            namespace, layout = self.world.layouts[on]
            shift = layout["datacenter-bits"] + layout["worker-bits"] + layout["sequence-bits"]
            self.world.used_until[namespace] = layout["epoch-ms"] + ((run.first >> shift) + 1) * layout["tick-ms"]

    def poll(self, step: dict[str, Any]) -> None:
        world, ticket = self.world, step["args"]["ticket"]
        number = world.tickets[ticket] if ticket in world.tickets else int(ticket)
        act = world.host.poll_segment if step["call"] == "segments.poll" else world.host.poll_lease
        same(act(number), step["returns"])

    def drop(self, step: dict[str, Any]) -> None:
        known(step, {"drop"})
        world = self.world
        world.calls, world.throws = [], None
        world.instance.drop(world.resources.pop(step["drop"]))
        same(world.calls, [])

    def answer(self, step: dict[str, Any]) -> None:
        known(step, {"answer", "with", "dropped", "source"})
        world, ticket = self.world, step["answer"]
        content = arguments(step["with"])
        if "err" in content:
            answer: Any = StoreError(content["err"], "of the vector")
        elif "worker" in content["ok"]:
            lease = content["ok"]
            grant_id = lease["grant-id"]["high"] << 64 | lease["grant-id"]["low"]
            answer = Lease(lease["worker"], grant_id, lease["not-before"], lease["valid-until"])
        else:
            answer = Segment(**content["ok"])
        request, number = world.requests[ticket], world.tickets[ticket]
        is_held = number in world.host._segments or number in world.host._leases
        taken = request.answer(answer)
        same(not (taken and is_held), step.get("dropped", False))

    def rebuild(self, step: dict[str, Any]) -> None:
        known(step, {"rebuild", "floors", "used-until", "source"})
        world = self.world
        floors = {tag: order.successor_floor() for tag, order in world.orders.items()}
        same({tag: str(floor) for tag, floor in floors.items() if floor}, step["floors"])
        same({name: str(until) for name, until in world.used_until.items()}, step["used-until"])
        world.instance.give_up()
        world.build()

    def fork(self, step: dict[str, Any]) -> None:
        """A real child, which runs in full before its parent."""
        known(step, {"fork"})
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            failure = b""
            try:
                parent = self.world
                self.world = World(self.world_name)
                assert self.world.mark > parent.mark, "the host does not notice the fork"
                # The names of tickets stay, for answers that come in the wrong process.
                self.world.tickets, self.world.requests = dict(parent.tickets), dict(parent.requests)
                self.run(step["fork"])
            except BaseException:  # noqa: BLE001
                failure = traceback.format_exc().encode()
            os.write(write, failure[-60_000:])
            os._exit(0)
        os.close(write)
        with open(read, "rb") as pipe:
            failure = pipe.read()
        os.waitpid(child, 0)
        if failure:
            raise Mismatch(f"in the child: {failure.decode()}")


def known(step: dict[str, Any], keys: set[str]) -> None:
    if not step.keys() <= keys:
        raise Mismatch(f"unknown keys {sorted(step.keys() - keys)}")


def same(seen: Any, wanted: Any, where: str = "") -> None:
    """Compares exactly: also which keys there are, and of a number its type in the WIT as far as the file says it."""
    if isinstance(wanted, dict):
        if not isinstance(seen, dict) or seen.keys() != wanted.keys():
            raise Mismatch(f"{where}: seen {seen!r}, wanted {wanted!r}")
        for key, inner in wanted.items():
            same(seen[key], inner, f"{where}.{key}")
    elif isinstance(wanted, list):
        if not isinstance(seen, list) or len(seen) != len(wanted):
            raise Mismatch(f"{where}: seen {seen!r}, wanted {wanted!r}")
        for at, inner in enumerate(wanted):
            same(seen[at], inner, f"{where}[{at}]")
    elif type(seen) is int and isinstance(wanted, str):
        if str(seen) != wanted:
            raise Mismatch(f"{where}: seen {seen}, wanted {wanted}")
    elif type(seen) is not type(wanted) or seen != wanted:
        raise Mismatch(f"{where}: seen {seen!r}, wanted {wanted!r}")


def check_file(content: dict[str, Any], world: str) -> int:
    """Runs a file; answers how many vectors ran."""
    if not content.keys() <= {"wit", "world", "vectors", "presets", "others"}:
        raise Mismatch(f"unknown keys of the file: {sorted(content)}")
    if content["wit"] != "unalike:ids@0.1.0" or content["world"] != world:
        raise Mismatch(f"it is of {content['wit']}, {content['world']}")
    ran = 0
    for vector in content["vectors"]:
        known(vector, {"name", "host", "steps"})
        if vector.get("host") not in (None, "fork"):
            raise Mismatch(f"unknown host {vector['host']!r}")
        try:
            Runner(world).run(vector["steps"])
        except Mismatch as error:
            raise Mismatch(f"{vector['name']}, {error}") from None
        ran += 1
    return ran


def read(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((DIRECTORY / name).read_text())
    return content


@pytest.mark.parametrize("host", ["library", "wasmtime"])
@pytest.mark.parametrize("name", FILES)
def test_file(name: str, host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if host == "wasmtime":
        monkeypatch.setattr(_component, "native", lambda: wasmtime_host)
    content = read(name)
    assert check_file(content, FILES[name]) == len(content["vectors"]) > 0


def test_every_file_is_known() -> None:
    # The rules of leases are of the stores: test_lease_rules.py.
    assert {path.name for path in DIRECTORY.glob("*.json")} == {*FILES, "leases.json"}


def test_presets() -> None:
    wanted = [(preset["name"], preset["layout"]) for preset in read("layouts.json")["presets"]]
    assert [name for name, _ in wanted] == list(LAYOUTS)
    for name, layout in wanted:
        same({key: getattr(LAYOUTS[name], key.replace("-", "_")) for key in LAYOUT_KEYS}, layout, name)


def test_a_changed_digit_fails() -> None:
    """One digit of each kind of thing that is compared, and a key that nobody knows."""
    changed = 0
    for name, world in FILES.items():
        for vector in read(name)["vectors"][:6]:
            for number, step in enumerate(vector["steps"]):
                for key in ("returns", "imports", "floors", "used-until", "dropped", "refused"):
                    if key not in step:
                        continue
                    broken = copy.deepcopy(vector)
                    text = json.dumps(step[key])
                    digit = re.search("[1-9]", text)
                    if key == "dropped":
                        del broken["steps"][number][key]
                    elif key == "refused":
                        broken["steps"][number][key] = "something"
                    elif digit is None:
                        continue
                    else:
                        other = "1" if digit.group() != "1" else "2"
                        edited = text[: digit.start()] + other + text[digit.end() :]
                        broken["steps"][number][key] = json.loads(edited)
                    content = {"wit": "unalike:ids@0.1.0", "world": world, "vectors": [broken]}
                    with pytest.raises(Mismatch):
                        check_file(content, world)
                    changed += 1
                    break
                else:
                    continue
                break
    assert changed > 30
    vector = {"name": "-", "steps": [{"call": "codec.encode", "args": {"id": "1", "text": "decimal"}, "extra": 1}]}
    with pytest.raises(Mismatch, match="unknown keys"):
        check_file({"wit": "unalike:ids@0.1.0", "world": "formats", "vectors": [vector]}, "formats")
