"""The calls of the two components, each over one instance. Types are those of ``wit/``."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable
from typing import Any, Final, Optional, Union

import wasmtime
from wasmtime import _ffi as ffi
from wasmtime.component import Linker

from ._engine import BUILD, CORE, FORMATS, component, engine
from ._inside import in_component
from ._values import BITS, GENE_BITS, HANDLE, KEY_ID_BITS, TEXT, U8, U32, U64, UTC_OFFSET_MINUTES
from ._values import Enum, ListOf, Option, Record, Result, Type, Value, Variant, lift, lower

__all__ = ["CoreInstance", "FormatsInstance", "Imports", "Run", "Trap"]

Arguments = tuple[tuple[str, Type], ...]

_LAYOUT: Final = Record(
    timestamp_bits=U8,
    datacenter_bits=U8,
    worker_bits=U8,
    sequence_bits=U8,
    order=Enum("worker-first", "sequence-first"),
    epoch_ms=U64,
    tick_ms=U32,
)
_GRANT_ID: Final = Record(high=U64, low=U64)
_STORE_ERROR: Final = Enum(
    "unavailable",
    "outcome-unknown",
    "tag-unknown",
    "exhausted",
    "workers-exhausted",
    "lease-lost",
    "clock-skew",
    "refused",
)
_SEGMENT: Final = Record(start=U64, end=U64, stride=U64, generation=U64, version=U64)
_LEASE: Final = Record(worker=U32, grant_id=_GRANT_ID, not_before=U64, valid_until=U64)
_SEQUENCE_OPTIONS: Final = Record(
    step=U64,
    step_min=U64,
    step_max=U64,
    grow_below_ms=U64,
    shrink_above_ms=U64,
    refill=Variant(share_consumed=U8, remaining=U64),
    prefetch=U32,
    floor=U64,
    id_max=U64,
)
_SNOWFLAKE_OPTIONS: Final = Record(
    layout=_LAYOUT,
    clock=Variant(reject=None, wait=U64, keep=U64),
    horizon_ms=U64,
    ahead_max_ms=U64,
    floor=U64,
    spread=Variant(none=None, rotating=U8, random=U8),
    seed=U64,
)
_TEXT_KIND: Final = Enum("decimal", "padded", "base36", "base62", "base32", "uuid")
_FORMAT_OPTIONS: Final = Record(
    template=TEXT,
    utc_offset_minutes=UTC_OFFSET_MINUTES,
    restart=Enum("never", "year", "month", "day"),
    bits=BITS,
    gene_bits=GENE_BITS,
    key_id_bits=KEY_ID_BITS,
    keys=ListOf(Record(id=U8, high=U64, low=U64)),
    context=TEXT,
)

_CORE_CALLS: Final[dict[str, tuple[str, str, Arguments]]] = {
    "sequence.open": ("sequences", "[static]sequence.open", (("tag", TEXT), ("options", _SEQUENCE_OPTIONS))),
    "sequence.reserve": ("sequences", "[method]sequence.reserve", (("self", HANDLE), ("now", U64), ("max", U32))),
    "sequence.status": ("sequences", "[method]sequence.status", (("self", HANDLE), ("now", U64))),
    "sequence.close": ("sequences", "[method]sequence.close", (("self", HANDLE),)),
    "ordered.open": ("sequences", "[static]ordered.open", (("tag", TEXT), ("floor", U64), ("id-max", U64))),
    "ordered.begin": ("sequences", "[method]ordered.begin", (("self", HANDLE), ("now", U64), ("count", U32))),
    "ordered.claim": ("sequences", "[method]ordered.claim", (("self", HANDLE), ("now", U64), ("round", U64))),
    "snowflake.open": ("snowflakes", "[static]snowflake.open", (("namespace", TEXT), ("options", _SNOWFLAKE_OPTIONS))),
    "snowflake.reserve": ("snowflakes", "[method]snowflake.reserve", (("self", HANDLE), ("now", U64), ("max", U32))),
    "snowflake.status": ("snowflakes", "[method]snowflake.status", (("self", HANDLE), ("now", U64))),
    "snowflake.close": ("snowflakes", "[method]snowflake.close", (("self", HANDLE),)),
}

_PARTS: Final = Record(ticks=U64, worker=U32, sequence=U32)
_WRITE: Final[Arguments] = (("self", HANDLE), ("id", U64), ("issued", U64), ("shard-key", Option(U64)))

_FORMATS_CALLS: Final[dict[str, tuple[str, str, Arguments]]] = {
    "codec.unpack": ("codec", "unpack", (("id", U64), ("layout", _LAYOUT))),
    "codec.pack": ("codec", "pack", (("parts", _PARTS), ("layout", _LAYOUT))),
    "codec.id-range": ("codec", "id-range", (("layout", _LAYOUT), ("from", U64), ("until", U64))),
    "codec.encode": ("codec", "encode", (("id", U64), ("text", _TEXT_KIND))),
    "codec.decode": ("codec", "decode", (("input", TEXT), ("text", _TEXT_KIND))),
    "format.open": ("codec", "[static]format.open", (("options", _FORMAT_OPTIONS),)),
    "format.id-max": ("codec", "[method]format.id-max", (("self", HANDLE),)),
    "format.period": ("codec", "[method]format.period", (("self", HANDLE), ("issued", U64))),
    "format.number": ("codec", "[method]format.number", _WRITE),
    "format.original": ("codec", "[method]format.original", (("self", HANDLE), ("number", U64))),
    "format.write": ("codec", "[method]format.write", _WRITE),
    "format.read": ("codec", "[method]format.read", (("self", HANDLE), ("text", TEXT))),
    "format.shape": ("codec", "[method]format.shape", (("self", HANDLE),)),
    "format.key-checks": ("codec", "[method]format.key-checks", (("self", HANDLE),)),
}

_WITHOUT_RESULT: Final = frozenset({"sequence.close", "snowflake.close"})

Import = Callable[..., Any]
Imports = dict[str, Import]
"""What is called for each import, by names such as ``segments.allocate``."""

_IMPORTS: Final[dict[str, Optional[Type]]] = {
    "segments.allocate": U64,
    "segments.poll": Option(Result(_SEGMENT, _STORE_ERROR)),
    "segments.release": None,
    "leases.acquire": U64,
    "leases.extend": U64,
    "leases.poll": Option(Result(_LEASE, _STORE_ERROR)),
    "leases.release": None,
}

_MEMORY_MAX: Final = 1 << 30
"""An instance with 100,000 open tags needs well under this many bytes of memory."""


class Trap(Exception):
    """The instance failed and may not be called again."""


class Run:
    """Ids that crossed in one call."""

    __slots__ = ("count", "first", "stride")

    def __init__(self, first: int, stride: int, count: int) -> None:
        self.first, self.stride, self.count = first, stride, count

    def ids(self) -> range:
        return range(self.first, self.first + self.stride * self.count, self.stride)


# With the interpreter's lock held: a call takes a microsecond or two, and asking for the lock again can take 5 ms.
_call_prototype: Any = ctypes.PYFUNCTYPE(
    ctypes.POINTER(ffi.wasmtime_error_t),
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_void_p,
    ctypes.c_size_t,
)
_call_raw: Final = _call_prototype(("wasmtime_component_func_call", ffi.dll))
_clone_raw: Final = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(
    ("wasmtime_component_val_clone", ffi.dll)
)
_delete_raw: Final = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(("wasmtime_component_val_delete", ffi.dll))

_numbers = itertools.count(1)


def _called(number: Any, context: Any, of: Any, args: Any, nargs: Any, results: Any, nresults: Any) -> Any:
    """Every import of every instance. Nothing that Python raises may leave it."""
    instance = None
    try:
        instance, act, result = _imports[number]
        answer = act(*[lift(args[at]) for at in range(nargs)])
        if result is not None:
            kept: list[Any] = []
            place = Value()
            result.put(place, answer, kept, "the answer of an import")
            # A copy that belongs to the engine.
            _clone_raw(ctypes.addressof(place), ctypes.addressof(results.contents))
        return 0
    except BaseException as raised:  # noqa: BLE001, also KeyboardInterrupt: the call ends with a trap, and raises it
        if instance is not None:
            instance.raised = raised
        error = ffi.wasmtime_error_new(b"an import of the host failed")
        return ctypes.cast(error, ctypes.c_void_p).value


_on_import: Final = ffi.wasmtime_component_func_callback_t(_called)
_imports: dict[int, tuple["_Instance", Import, Optional[Type]]] = {}
_no_finalizer: Final = ctypes.cast(0, ctypes.CFUNCTYPE(None, ctypes.c_void_p))


class _Instance:
    """An instance of a component in a store of its own. One thread at a time may call it."""

    def __init__(self, name: str, calls: dict[str, tuple[str, str, Arguments]], imports: Optional[Imports]) -> None:
        code = component(name)
        self.raised: Optional[BaseException] = None
        self._numbers: list[int] = []
        in_component(BUILD.get(), lambda: self._build(code, calls, imports))
        self._context = ctypes.cast(self._store._context(), ctypes.c_void_p).value

    def _build(self, code: Any, calls: dict[str, tuple[str, str, Arguments]], imports: Optional[Imports]) -> None:
        self._store = wasmtime.Store(engine())
        self._store.set_limits(memory_size=_MEMORY_MAX)
        self._linker = Linker(engine())
        if imports is not None:
            self._link(imports)
        self._instance = self._linker.instantiate(self._store, code)
        self._functions = {name: self._function(*found) for name, found in calls.items()}

    def _link(self, imports: Imports) -> None:
        with self._linker.root() as root:
            for interface in ("segments", "leases"):
                with root.add_instance(f"unalike:ids/{interface}@0.1.0") as instance:
                    for name, result in _IMPORTS.items():
                        of, function = name.split(".")
                        if of == interface:
                            self._add(instance, function, imports[name], result)

    def _add(self, instance: Any, name: str, act: Import, result: Optional[Type]) -> None:
        number = next(_numbers)
        _imports[number] = (self, act, result)
        self._numbers.append(number)
        encoded = name.encode()
        buffer = ctypes.create_string_buffer(encoded)
        error = ffi.wasmtime_component_linker_instance_add_func(
            instance.ptr(), buffer, len(encoded), _on_import, number, _no_finalizer
        )
        if error:
            raise wasmtime.WasmtimeError._from_ptr(error)

    def _function(self, interface: str, name: str, arguments: Arguments) -> tuple[Any, Arguments]:
        outer = self._instance.get_export_index(self._store, f"unalike:ids/{interface}@0.1.0")
        index = self._instance.get_export_index(self._store, name, outer)
        found = index and self._instance.get_func(self._store, index)
        if not found:
            raise wasmtime.WasmtimeError(f"the component has no {interface}.{name}")
        return found._func, arguments

    def call(self, name: str, *values: Any) -> Any:
        """Calls a function by its WIT name, such as ``sequence.open``; a resource comes first.

        :raises IdsError: ``argument_invalid``; the component was not called then.
        :raises Trap: The instance is of no use any more.
        """
        function, types = self._functions[name]
        kept: list[Any] = []
        arguments = lower(types, values, kept)
        has_result = name not in _WITHOUT_RESULT
        result = Value()
        self._enter(function, ctypes.addressof(arguments), len(types), ctypes.addressof(result), has_result)
        if not has_result:
            return None
        answer = lift(result)
        _delete_raw(ctypes.addressof(result))
        return answer

    def _enter(self, function: Any, arguments_at: int, count: int, result_at: int, has_result: bool) -> None:
        """The result belongs to this call and is deleted by it, once: an interrupt before costs some bytes."""
        error = _call_raw(
            ctypes.addressof(function), self._context, arguments_at, count, result_at, 1 if has_result else 0
        )
        raised = self.raised
        if error or raised is not None:
            self.raised = None
            reason = str(wasmtime.WasmtimeError._from_ptr(error)) if error else "an import failed"
            trap = Trap(reason.splitlines()[-1].strip() if raised is None else f"an import raised {raised!r}")
            if raised is not None and not isinstance(raised, Exception):
                raise trap from raised
            trap.__cause__ = raised
            raise trap

    def drop(self, handle: Any) -> None:
        """Drops a resource without closing it.

        :raises Trap:
        """
        try:
            handle.drop(self._store)
        except wasmtime.WasmtimeError as error:
            raise Trap(str(error)) from error

    def give_up(self) -> None:
        """Nobody calls it any more: it goes when nobody has it in hand.

        wasmtime's ``close`` is not called, which an interrupt would have called a second time.
        """
        for number in self._numbers:
            _imports.pop(number, None)


_ENTRY_BYTES: Final = ctypes.sizeof(ffi.wasmtime_component_valrecord_entry_t)
_VAL_OF: Final = ffi.wasmtime_component_valrecord_entry_t.val.offset + Value.of.offset


class CoreInstance(_Instance):
    """An instance of the component that decides ids."""

    def __init__(self, imports: Imports) -> None:
        super().__init__(CORE, _CORE_CALLS, imports)
        # The arguments of `reserve`, written anew for each call.
        self._arguments = (Value * 3)()
        self._arguments_at = ctypes.addressof(self._arguments)
        handle, now, count = self._arguments
        self._kept: list[Any] = []
        U64.put(now, 0, self._kept, "now")
        U32.put(count, 1, self._kept, "max")
        self._handle, self._now, self._max = handle, now.of, count.of

    def reserve(self, kind: str, handle: Any, now: int, count: int) -> Union[Run, Any]:
        """As ``sequence.reserve`` or ``snowflake.reserve``: a run, or the error. Some microseconds."""
        function = self._functions[kind][0]
        self._handle.of.resource = handle.ptr()
        self._handle.kind = 21
        self._now.u64 = U64.check(now, "now")
        self._max.u32 = U32.check(count, "max")
        place = Value()
        self._enter(function, self._arguments_at, 3, ctypes.addressof(place), True)
        result = place.of.result
        answer: Any
        if result.is_ok:
            at = ctypes.addressof(result.val.contents.of.record.data.contents) + _VAL_OF
            answer = Run(
                ctypes.c_uint64.from_address(at).value,
                ctypes.c_uint64.from_address(at + _ENTRY_BYTES).value,
                ctypes.c_uint32.from_address(at + 2 * _ENTRY_BYTES).value,
            )
        else:
            answer = lift(result.val.contents)
        _delete_raw(ctypes.addressof(place))
        return answer


class FormatsInstance(_Instance):
    """An instance of the component that reads and writes ids."""

    def __init__(self) -> None:
        super().__init__(FORMATS, _FORMATS_CALLS, None)
