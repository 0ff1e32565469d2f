"""Plain values, as the Rust host takes and gives them."""

from __future__ import annotations

import _thread
import logging
import signal
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Optional, Protocol, cast

from ._process import is_ending
from .store import (
    AdaptiveStep,
    FixedStep,
    Layout,
    Remaining,
    SegmentStore,
    ShareConsumed,
    StoreError,
    TagOptions,
    TagRecord,
    TailRelease,
    is_u64,
    shown,
)

if TYPE_CHECKING:
    from . import _native

__all__ = ["Asked", "layout_parts", "option_parts", "record"]

_HAS_MASKS: Final = hasattr(signal, "pthread_sigmask")
_log: Final = logging.getLogger("unalike")


class _CreatesTags(Protocol):
    """A store that creates tags by request."""

    def create_tag(self, tag: str, options: TagOptions) -> TagRecord: ...


class Asked:
    """A store of the program's own, as the Rust host asks it: each time on a thread, which ends with the interpreter."""

    def __init__(self, store: SegmentStore) -> None:
        self._store: Final = store
        # That of the program: the threads of the host block all signals, and a process would inherit that.
        self._signals: Final = signal.pthread_sigmask(signal.SIG_BLOCK, ()) if _HAS_MASKS else None

    def start(self, answer: _native.Answer, what: str, arguments: tuple[Any, ...]) -> None:
        if is_ending():
            raise StoreError("unavailable", "the interpreter is about to end")
        start = _thread.start_new_thread
        if isinstance(start, types.BuiltinFunctionType):
            start(self._run, (answer, what, arguments))
        else:
            # Under gevent it starts a greenlet of this thread, which would end with it.
            self._run(answer, what, arguments)

    def _run(self, answer: _native.Answer, what: str, arguments: tuple[Any, ...]) -> None:
        tag = arguments[0] if arguments else ""
        try:
            if self._signals is not None:
                signal.pthread_sigmask(signal.SIG_SETMASK, self._signals)
            brought = getattr(self, what)(*arguments)
        except StoreError as error:
            answer.failed(error.kind, tag, str(error))
        except BaseException as error:  # noqa: BLE001, it may have come after a grant
            answer.failed("outcome-unknown", tag, f"the durable store failed: {error!r}")
            # Afterwards: a handler may ask for ids.
            _log.error("the durable store behind Redis failed", exc_info=True)
        else:
            answer.brought(brought)

    def allocate(self, tag: str, count: int, at_least: int) -> _native.SegmentParts:
        granted = self._store.allocate(tag, count, at_least)
        parts = granted.start, granted.end, granted.stride, granted.generation, granted.version
        if not all(is_u64(part) for part in parts):
            what = "which Redis cannot hand out: all parts must be whole numbers below 2^64"
            raise StoreError("refused", f"the durable store granted {granted} for {shown(tag)}, {what}")
        return parts

    def release(self, tag: str, start: int, version: int) -> bool:
        return self._store.release(tag, TailRelease(start, version))

    def open_tag(self, tag: str) -> tuple[_native.OptionParts, int]:
        opened = self._store.open_tag(tag)
        return option_parts(opened.options), opened.watermark

    def create_tag(self, tag: str, options: _native.OptionParts) -> tuple[_native.OptionParts, int]:
        if not callable(getattr(self._store, "create_tag", None)):
            what = "creates no tags by request: use `unalike tags create`"
            raise StoreError("refused", f"the durable store behind Redis {what}")
        created = cast(_CreatesTags, self._store).create_tag(tag, record(tag, options, 0).options)
        return option_parts(created.options), created.watermark

    def identity(self) -> Optional[str]:
        return self._store.identity()

    def leave_leases(self, namespace: str) -> None:
        leave: Optional[Callable[[str], None]] = getattr(self._store, "leave_leases", None)
        if leave is not None:
            leave(namespace)
        elif callable(getattr(self._store, "acquire", None)):
            what = "and has no method leave_leases, by which it hears that Redis does: leave leases_in out, or give it one"
            raise StoreError("refused", f"the durable store leases workers, too, {what}")


def record(tag: str, options: _native.OptionParts, watermark: int) -> TagRecord:
    start, (first, bounds), (is_share, left), is_ordered = options
    step = FixedStep(first) if bounds is None else AdaptiveStep(first, *bounds)
    refill = ShareConsumed(left) if is_share else Remaining(left)
    return TagRecord(tag, TagOptions(start, step, refill, "ordered" if is_ordered else "buffered"), watermark)


def option_parts(options: TagOptions) -> _native.OptionParts:
    step, refill = options.step, options.refill
    if isinstance(step, FixedStep):
        steps: _native.StepParts = (step.step, None)
    else:
        steps = (step.step, (step.min, step.max, step.grow_below_ms, step.shrink_above_ms))
    refills = (False, refill.numbers) if isinstance(refill, Remaining) else (True, refill.percent)
    return options.start, steps, refills, options.mode == "ordered"


def layout_parts(layout: Layout) -> _native.LayoutParts:
    bits = layout.timestamp_bits, layout.datacenter_bits, layout.worker_bits, layout.sequence_bits
    return (*bits, layout.order == "worker-first", layout.epoch_ms, layout.tick_ms)
