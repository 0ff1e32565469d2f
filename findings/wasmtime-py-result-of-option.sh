#!/usr/bin/env bash
# A host function in Python that cannot answer with an error, by wasmtime's own package.
#
# Seen with wasmtime 50.0.1 of PyPI, Python 3.11. The package maps a `result` or a `variant` to bare Python values
# where it takes their classes to tell the cases apart, and to `Variant(tag, payload)` where they do not. The classes
# of an `option` count as `object` (for none) and those of its value, so `result<option<string>, u32>` counts as told
# apart: object and str beside int. But when a host function answers, the first case whose class fits is taken, and
# every value is an object: 7 is read as an ok, whose option then fits no case. Neither 7 nor Variant("err", 7) can be
# given: "ValueError: value not valid for this variant", and the call traps. With `result<string, u32>` an error is 7,
# and with `result<option<string>, string>`, whose cases share a class, it is Variant("err", "gone").
#
# Installs into a temporary folder, from PyPI. Fails if the behaviour is another.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv tools
tools/bin/pip install --quiet --disable-pip-version-check wasmtime==50.0.1
cat >ask.py <<'PYTHON'
import wasmtime
from wasmtime.component import Component, Linker, Variant

# `is-err` asks the host's `find`, and says which case of the result came.
COMPONENT = """
(component
  (import "find" (func $find (result (result TYPES))))
  (core module $memory
    (memory (export "memory") 1)
    (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 1024)))
  (core instance $m (instantiate $memory))
  (core func $lowered
    (canon lower (func $find) (memory (core memory $m "memory")) (realloc (core func $m "realloc"))))
  (core module $main
    (import "" "find" (func $find (param i32)))
    (import "" "memory" (memory 1))
    (func (export "is-err") (result i32) (call $find (i32.const 16)) (i32.load8_u (i32.const 16))))
  (core instance $i (instantiate $main (with "" (instance
    (export "find" (func $lowered))
    (export "memory" (memory $m "memory"))))))
  (func (export "is-err") (result bool) (canon lift (core func $i "is-err"))))
"""


def asked(types, answer):
    engine = wasmtime.Engine()
    store, linker = wasmtime.Store(engine), Linker(engine)
    with linker.root() as root:
        root.add_func("find", lambda _: answer)
    instance = linker.instantiate(store, Component(engine, COMPONENT.replace("TYPES", types)))
    try:
        return "err" if instance.get_func(store, "is-err")(store) else "ok"
    except ValueError as error:
        return f"ValueError: {error}"


misfit = "ValueError: value not valid for this variant"
for types, answer, wanted in [
    ("(option string) (error u32)", "text", "ok"),
    ("(option string) (error u32)", None, "ok"),
    ("(option string) (error u32)", 7, misfit),
    ("(option string) (error u32)", Variant("err", 7), misfit),
    ("string (error u32)", 7, "err"),
    ("(option string) (error string)", Variant("err", "gone"), "err"),
]:
    seen = asked(types, answer)
    print(f"result {types}: {answer!r} is {seen}")
    assert seen == wanted, wanted
PYTHON
tools/bin/python ask.py
echo "as described"
