"""A host of the components in wasmtime's own Python package, as small as it gets: what ``unalike._native`` does with
them, so that the vectors run on it as well. See tests/vectors/README.md.

The variables ``UNALIKE_COMPONENT_WASM`` and ``UNALIKE_FORMATS_WASM`` name the files of the components.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Optional

import wasmtime
from unalike._component import Trap
from wasmtime.component import Component, Linker
from wasmtime.component import ListType, OptionType, Record, RecordType, ResultType, TupleType, Variant, VariantType

ENGINE = wasmtime.Engine()
COMPONENTS: dict[str, Component] = {}

Exports = dict[str, tuple[str, str]]


class Instance:
    """An instance of a component."""

    def __init__(self, name: str, imports: dict[str, Callable[..., Any]], exports: Exports) -> None:
        code = COMPONENTS.get(name)
        if code is None:
            code = COMPONENTS[name] = Component(ENGINE, Path(os.environ[name]).read_bytes())
        self._store = wasmtime.Store(ENGINE)
        self._raised: Optional[BaseException] = None
        linker = Linker(ENGINE)
        with linker.root() as root:
            for interface in {name.split(".")[0] for name in imports}:
                with root.add_instance(f"unalike:ids/{interface}@0.1.0") as instance:
                    for imported, act in imports.items():
                        of, function = imported.split(".")
                        if of == interface:
                            instance.add_func(function, self._import(code, interface, function, act))
        found = linker.instantiate(self._store, code)
        self._functions = {}
        for exported, (interface, function) in exports.items():
            outer = found.get_export_index(self._store, f"unalike:ids/{interface}@0.1.0")
            index = found.get_export_index(self._store, function, outer)
            assert index is not None
            self._functions[exported] = found.get_func(self._store, index)

    @staticmethod
    def core(imports: dict[str, Callable[..., Any]], exports: Exports) -> Instance:
        return Instance("UNALIKE_COMPONENT_WASM", imports, exports)

    @staticmethod
    def formats(exports: Exports) -> Instance:
        return Instance("UNALIKE_FORMATS_WASM", {}, exports)

    def _import(self, code: Component, interface: str, function: str, act: Callable[..., Any]) -> Callable[..., Any]:
        imported: Any = code.type.imports(ENGINE)[f"unalike:ids/{interface}@0.1.0"].ty
        of = imported.exports(ENGINE)[function].ty

        def call(_store: Any, *values: Any) -> Any:
            try:
                answer = act(*[taken(ty, value) for (_, ty), value in zip(of.params, values)])
                return None if of.result is None else given(of.result, answer)
            except BaseException as raised:
                self._raised = raised
                raise

        return call

    def call(self, name: str, arguments: tuple[Any, ...]) -> Any:
        function = self._functions[name]
        assert function is not None
        of = function.type(self._store)
        try:
            result = function(self._store, *[given(ty, value) for (_, ty), value in zip(of.params, arguments)])
        except BaseException as error:
            raise Trap(str(error)) from self._raised
        return None if of.result is None else taken(of.result, result)

    def drop_resource(self, handle: Any) -> None:
        handle.drop(self._store)

    def give_up(self) -> None:
        pass


def cases(ty: Any) -> list[tuple[str, Any]]:
    return [("ok", ty.ok), ("err", ty.err)] if isinstance(ty, ResultType) else ty.cases


def given(ty: Any, value: Any) -> Any:
    """A value as wasmtime takes it."""
    if isinstance(ty, RecordType):
        record = Record()
        for name, of in ty.fields:
            setattr(record, name, given(of, value[name]))
        return record
    if isinstance(ty, (VariantType, ResultType)):
        ((case, inner),) = value.items() if isinstance(value, dict) else [(value, None)]
        of = dict(cases(ty))[case]
        inner = None if of is None else given(of, inner)
        return Variant(case, inner) if ty._tagged() else inner
    if isinstance(ty, OptionType):
        return None if value is None else given(ty.payload, value)
    if isinstance(ty, ListType):
        return [given(ty.element, inner) for inner in value]
    return value


def taken(ty: Any, value: Any) -> Any:
    """A value of wasmtime's as the package has it."""
    if isinstance(ty, RecordType):
        return {name: taken(of, getattr(value, name)) for name, of in ty.fields}
    if isinstance(ty, (VariantType, ResultType)):
        if ty._tagged():
            case, inner = value.tag, value.payload
        else:
            case, inner = next(name for name, of in cases(ty) if is_of(of, value)), value
        of = dict(cases(ty))[case]
        if of is None and isinstance(ty, VariantType):
            return case
        return {case: None if of is None else taken(of, inner)}
    if isinstance(ty, OptionType):
        return None if value is None else taken(ty.payload, value)
    if isinstance(ty, ListType):
        return [taken(ty.element, inner) for inner in value]
    if isinstance(ty, TupleType):
        return [taken(of, inner) for of, inner in zip(ty.elements, value)]
    return value


def is_of(ty: Any, value: Any) -> bool:
    if ty is None:
        return value is None
    if isinstance(ty, OptionType):
        # Its own classes are those of any value.
        return value is None or is_of(ty.payload, value)
    classes: set[type] = set()
    ty.add_classes(classes)
    return isinstance(value, tuple(classes))
