"""The requests that the component starts: each runs on a thread of the host's, named by a ticket.

Nobody waits here. An answer goes to its own request, which one instance holds, so one that comes after the instance is
gone, or after the request was given up, lands nowhere: the grant is burnt.
"""

from __future__ import annotations

import _thread
import itertools
import logging
import secrets
import time
from collections.abc import Callable, Generator
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final, Optional, TypeVar

from ._process import current, wait_for
from .store import (
    ID_MAX,
    Layout,
    Lease,
    LeaseAcquire,
    LeaseExtend,
    LeaseStore,
    Segment,
    SegmentStore,
    StoreError,
    TailRelease,
    shown,
    validate_public,
)

__all__ = [
    "GrantOrder",
    "InstanceRequests",
    "Pool",
    "Request",
    "Signal",
    "Steps",
    "Storage",
    "layout_of_wit",
    "layout_to_wit",
    "waited",
]

T = TypeVar("T")

log: Final = logging.getLogger("unalike")

_tickets = itertools.count(1)
"""Unique in the process, whichever instance they belong to."""

_U64_MAX: Final = 2**64 - 1
_CLASSES_MAX: Final = 1_024


class Signal:
    """How those who wait for one generator hear of answers.

    It has no lock, since those who wake and those who are about to wait may be interrupted by one another on one
    thread: each step is one of the interpreter's, in an order that loses nobody.
    """

    __slots__ = ("_versions", "_wakers", "deadline", "last_error", "version")

    def __init__(self) -> None:
        self._versions = itertools.count(1)
        self._wakers: dict[object, Callable[[], object]] = {}
        self.version = 0
        self.last_error: Optional[StoreError] = None
        """The newest failure that the component was told of; none after a success."""
        self.deadline: Optional[float] = None
        """When the newest request is given up."""

    def add(self, key: object, waker: Callable[[], object], seen: int) -> bool:
        """Has ``waker`` called with the next answer. ``False`` if there was one after ``seen``."""
        wakers = self._wakers
        wakers[key] = waker
        # Whoever woke before this line did so under another version; whoever does later finds the waker.
        if self.version != seen:
            wakers.pop(key, None)
            return False
        return True

    def remove(self, key: object) -> None:
        self._wakers.pop(key, None)

    def wake(self) -> None:
        """Wakes all who wait."""
        self.touch()
        wakers, self._wakers = self._wakers, {}
        for waker in list(wakers.values()):
            waker()

    def touch(self) -> None:
        """Counts an answer for those who are about to wait."""
        # No version comes twice, in whatever order two of these end.
        self.version = next(self._versions)

    def wait(self, seen: int, seconds: float, mark: int) -> None:
        """Waits for an answer after ``seen``, at most so long.

        :param mark: Of the process in which the call began that waits.
        :raises Forked: if a handler of a signal forked since, and returned in the child
        """
        # Not an Event: that is Python, and keeps its locks when it is interrupted.
        asleep = _thread.allocate_lock()
        asleep.acquire()
        if self.add(asleep, partial(_release, asleep), seen):
            try:
                wait_for(asleep, seconds, mark)
            finally:
                self.remove(asleep)


def _release(lock: Any) -> None:
    try:
        lock.release()
    except RuntimeError:  # it was woken before
        pass


Steps = Generator[tuple[Signal, int, float], None, T]
"""What a call does between its waits. It says what to wait for, and does not wait itself: for which signal, what was
seen of it, and for how many seconds."""


def waited(steps: Steps[T]) -> T:
    """Does the steps, and waits on this thread.

    :raises Forked: if a handler of a signal forked meanwhile, and returned in the child
    """
    mark = current()
    while True:
        try:
            signal, seen, seconds = next(steps)
        except StopIteration as ended:
            answer: T = ended.value
            return answer
        signal.wait(seen, seconds, mark)


class Request:
    """A request that is out. What becomes of it is decided once, by whoever writes first."""

    __slots__ = ("_fate", "deadline", "signal", "what")

    def __init__(self, signal: Signal, deadline: float, what: str) -> None:
        self._fate: dict[str, Any] = {}
        self.signal, self.deadline, self.what = signal, deadline, what

    def begin(self) -> bool:
        """Whether anybody still waits for it."""
        began: bool = self._fate.setdefault("began", True)
        return began and "answer" not in self._fate

    def answer(self, answer: Any) -> bool:
        """Puts the answer there, the first only: a :class:`StoreError`, or what was granted."""
        is_first = self._put(answer)
        if is_first:
            self.signal.wake()
        return is_first

    def refuse(self, error: StoreError) -> None:
        """The same within the call that asks, where nobody may be woken: its caller looks again by itself."""
        if self._put(error):
            self.signal.touch()

    def _put(self, answer: Any) -> bool:
        mine = (answer,)
        return self._fate.setdefault("answer", mine) is mine

    def collect(self, now: float) -> Any:
        """The answer, or ``None`` while it runs. A request that takes too long is given up, and its grant burnt."""
        if "answer" not in self._fate:
            if now < self.deadline:
                return None
            if self._fate.setdefault("began", False):
                self._put(StoreError("outcome-unknown", f"{self.what} got no answer in time: it was given up"))
            else:
                message = f"{self.what} did not begin in time: other requests to the store hold all threads"
                self._put(StoreError("unavailable", message))
        return self._fate["answer"][0]


_start: Final = _thread.start_new_thread
"""Bound with the queue: a program may have gevent replace one of them afterwards, and a greenlet must not wait on a queue
of threads."""


class Pool:
    """A few daemon threads. They are started when there is something to do, and end when there was nothing for long.

    A job may be given to it from inside of anything, also of a thread of its own: nothing here waits for a lock.
    """

    _THREADS_MAX: Final = 8
    _IDLE_S: Final = 10.0

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Any] = SimpleQueue()
        # Whoever starts a thread takes one of these, and the thread brings it back.
        self._places = [None] * self._THREADS_MAX
        self._idle: set[int] = set()
        self._is_ended = False

    def end(self) -> None:
        """Lets the threads go that have nothing to do."""
        self._is_ended = True
        for _ in range(len(self._idle)):
            self._jobs.put(None)

    def submit(self, job: Callable[[], None], failed: Callable[[], None]) -> None:
        """Runs ``job`` on a thread, or ``failed`` on this one if there is none and none can be started."""
        self._jobs.put((job, failed))
        self._staff()

    def _staff(self) -> None:
        """Starts a thread if there are more jobs than idle threads."""
        # Whoever is about to be idle looks at the jobs afterwards, and whoever put one looks here afterwards.
        if self._jobs.qsize() <= len(self._idle):
            return
        try:
            self._places.pop()
        except IndexError:  # as many as there may be
            return
        try:
            # Not a Thread: another thread may have held the locks of that module when this process was forked by a
            # call that the interpreter does not hear of. The process does not wait for it when it ends.
            _start(self._run, ())
        except RuntimeError:  # no more threads, or the interpreter is about to end
            self._places.append(None)
            if len(self._places) == self._THREADS_MAX:
                self._fail_all()

    def _fail_all(self) -> None:
        while True:
            try:
                found = self._jobs.get_nowait()
            except Empty:
                return
            if found is not None:
                found[1]()

    def _run(self) -> None:
        mine = _thread.get_ident()
        while True:
            found = self._next(mine)
            if found is None:
                self._places.append(None)
                # A job that came since it was looked for found this thread idle.
                self._staff()
                return
            try:
                found[0]()
            except BaseException:  # noqa: BLE001, the thread must go on: others wait for it
                log.exception("a request ended with an error of the host's")
            del found

    def _next(self, mine: int) -> Any:
        deadline = time.monotonic() + self._IDLE_S
        while True:
            self._idle.add(mine)
            try:
                left = 0.0 if self._is_ended else deadline - time.monotonic()
                found = self._jobs.get(timeout=left) if left > 0 else self._jobs.get_nowait()
            except Empty:
                return None
            finally:
                self._idle.discard(mine)
                # It may have been counted for a job that came after this one.
                self._staff()
            if found is not None:
                return found


class GrantOrder:
    """What was granted under a tag, and where a successor begins: the rules of the component's own order."""

    __slots__ = ("_classes", "_floor", "_generation", "_stride", "first")

    def __init__(self, first: object = None) -> None:
        self.first = first
        """Whose requests brought the first grant."""
        self._floor, self._generation, self._stride = 0, 0, 1
        self._classes: dict[int, int] = {}

    def successor_floor(self) -> int:
        """Above all that was granted; with several stripes above what each of them granted, if all are known."""
        if self._stride == 1:
            return self._ceiling()
        if len(self._classes) != self._stride:
            return self._floor
        return max(min(self._classes.values()), self._floor)

    def admit(self, segment: Segment) -> Optional[str]:
        """Takes a grant in, or answers what is wrong with it: ``malformed`` or ``overlap``."""
        if not is_well_formed(segment):
            return "malformed"
        if segment.generation < self._generation:
            return "overlap"
        new_generation = segment.generation > self._generation and bool(self._classes)
        remainder = segment.start % segment.stride
        known = self._classes.get(remainder)
        restart = segment.stride != self._stride or (known is None and len(self._classes) >= _CLASSES_MAX)
        if new_generation:
            floor = 0
        elif restart:
            floor = self._ceiling()
        else:
            floor = self._floor if known is None else max(known, self._floor)
        if segment.start < floor:
            return "overlap"
        if new_generation or restart:
            self._floor = floor
            self._classes.clear()
        self._generation, self._stride = segment.generation, segment.stride
        self._classes[remainder] = segment.end
        return None

    def _ceiling(self) -> int:
        return max(self._classes.values(), default=self._floor) if self._classes else self._floor


_SEGMENT_FIELDS: Final = ("start", "end", "stride", "generation", "version")


def _is_number(value: object, most: int = _U64_MAX) -> bool:
    return type(value) is int and 0 <= value <= most


def is_well_formed(segment: Segment) -> bool:
    """Whether it is an interval of ids."""
    return (
        all(_is_number(getattr(segment, name)) for name in _SEGMENT_FIELDS)
        and 1 <= segment.start < segment.end
        and segment.stride >= 1
        and (segment.end - segment.start) % segment.stride == 0
        and segment.end - segment.stride <= ID_MAX
    )


class Storage:
    """The stores and the threads that ask them, in one process."""

    def __init__(
        self,
        segments: Optional[SegmentStore],
        leases: Optional[LeaseStore],
        holder: str,
        preferred_worker: Optional[int],
        request_timeout: float,
    ) -> None:
        self.segments, self.leases = segments, leases
        self.holder, self.preferred_worker = holder, preferred_worker
        self.request_timeout = request_timeout
        self.pool = Pool()
        self._under_way: set[int] = set()
        self._settled = Signal()

    def start(self, signal: Signal, what: str, ask: Callable[[], Any]) -> Request:
        """Has a store asked."""
        request = Request(signal, time.monotonic() + self.request_timeout, what)
        signal.deadline = request.deadline
        number = self._begin()

        def job() -> None:
            try:
                if request.begin():
                    answer = _asked(ask, what)
                    request.answer(_no_grant(answer) if answer is None else answer)
            finally:
                self._ended(number)

        def failed() -> None:
            request.refuse(StoreError("unavailable", f"{what} was not made: no thread could be started for it"))
            self._ended(number)

        self.pool.submit(job, failed)
        return request

    def release(self, what: str, give_back: Callable[[], bool]) -> None:
        """Has something given back. Nobody waits for it but a graceful end."""
        number = self._begin()

        def job() -> None:
            try:
                answer = _asked(give_back, what)
                if isinstance(answer, StoreError):
                    log.warning("%s failed, it is a gap: %s", what, answer)
            finally:
                self._ended(number)

        self.pool.submit(job, lambda: self._ended(number))

    def settle(self) -> bool:
        """Waits until nothing is on its way, at most as long as a request may take; answers whether that was so."""
        mark = current()
        deadline = time.monotonic() + self.request_timeout
        while True:
            seen = self._settled.version
            if not self._under_way:
                return True
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self._settled.wait(seen, left, mark)

    def _begin(self) -> int:
        number = next(_tickets)
        self._under_way.add(number)
        return number

    def _ended(self, number: int) -> None:
        self._under_way.discard(number)
        if not self._under_way:
            self._settled.wake()


def _asked(ask: Callable[[], Any], what: str) -> Any:
    """What was answered, or the error. Whatever a store raises is one: it may have granted before."""
    try:
        return ask()
    except StoreError as error:
        return error
    except BaseException as error:  # noqa: BLE001, else its caller would wait for nothing
        unknown = StoreError("outcome-unknown", f"{what} failed in the store's code: {error!r}")
        unknown.__cause__ = error
        return unknown


class InstanceRequests:
    """The imports of one instance, and the requests that it has out."""

    def __init__(
        self, storage: Any, orders: dict[str, GrantOrder], tell: Callable[[str], None] = log.error
    ) -> None:
        self._storage, self._tell = storage, tell
        self._orders = orders
        self._segments: dict[int, tuple[str, Request]] = {}
        self._leases: dict[int, Request] = {}
        self.signal = Signal()
        """Hears of the requests that are started from now on."""

    def imports(self) -> dict[str, Callable[..., Any]]:
        """What the component imports."""
        return {
            "segments.allocate": self.allocate,
            "segments.poll": self.poll_segment,
            "segments.release": self.release_tail,
            "leases.acquire": self.acquire,
            "leases.extend": self.extend,
            "leases.poll": self.poll_lease,
            "leases.release": self.release_lease,
        }

    def allocate(self, tag: str, count: int, at_least: int) -> int:
        ticket = next(_tickets)
        store = self._storage.segments

        def ask() -> Segment:
            if store is None:
                raise missing("segment")
            validate_public(tag)
            segment: Segment = store.allocate(tag, count, at_least)
            return segment

        what = f"the request for numbers under {shown(tag)}"
        self._segments[ticket] = (tag, self._storage.start(self.signal, what, ask))
        return ticket

    def poll_segment(self, ticket: int) -> Any:
        return self._read(self._segments, ticket, lambda: self._poll_segment(ticket))

    def _poll_segment(self, ticket: int) -> Any:
        tag, request = self._segments.get(ticket, ("", None))
        answer = self._collect(self._segments, ticket, request)
        if answer is None or isinstance(answer, dict):
            return answer
        if not isinstance(answer, Segment) or not all(_is_number(getattr(answer, name)) for name in _SEGMENT_FIELDS):
            return self._failed(request, _no_grant(answer))
        order = self._orders.get(tag)
        if order is None:
            order = self._orders[tag] = GrantOrder(self)
        fault = order.admit(answer)
        # The component refuses by itself what it can know of. What one of several stores granted to its predecessor is
        # known here alone.
        if fault == "overlap" and answer.stride > 1 and order.first is not self:
            message = f"one of the stripes of {shown(tag)} granted again what it had granted: it lost data ({answer})"
            self._tell(message)
            return self._failed(request, StoreError("refused", message))
        return {"ok": {name: getattr(answer, name) for name in _SEGMENT_FIELDS}}

    def release_tail(self, tag: str, start: int, version: int) -> None:
        store = self._storage.segments
        if store is not None:
            tail = TailRelease(start, version)
            self._storage.release(f"giving numbers of {shown(tag)} back", lambda: store.release(tag, tail))

    def acquire(self, namespace: str, layout: dict[str, Any], now: int, horizon_ms: int) -> int:
        storage = self._storage
        asked = LeaseAcquire(
            namespace, layout_of_wit(layout), storage.holder, storage.preferred_worker, now, horizon_ms
        )
        return self._lease(f"the request for a worker of {namespace!r}", lambda store: store.acquire(asked))

    def extend(
        self, namespace: str, layout: dict[str, Any], worker: int, grant_id: dict[str, int], now: int, horizon_ms: int
    ) -> int:
        asked = LeaseExtend(namespace, layout_of_wit(layout), worker, _joined(grant_id), now, horizon_ms)
        what = f"the request to extend the lease of worker {worker} of {namespace!r}"
        return self._lease(what, lambda store: store.extend(asked))

    def poll_lease(self, ticket: int) -> Any:
        return self._read(self._leases, ticket, lambda: self._poll_lease(ticket))

    def _poll_lease(self, ticket: int) -> Any:
        request = self._leases.get(ticket)
        answer = self._collect(self._leases, ticket, request)
        if answer is None or isinstance(answer, dict):
            return answer
        is_lease = (
            isinstance(answer, Lease)
            and _is_number(answer.worker, 2**32 - 1)
            and _is_number(answer.grant_id, 2**128 - 1)
            and _is_number(answer.not_before_ms)
            and _is_number(answer.valid_until_ms)
        )
        if not is_lease:
            return self._failed(request, _no_grant(answer))
        return {
            "ok": {
                "worker": answer.worker,
                "grant-id": {"high": answer.grant_id >> 64, "low": answer.grant_id & _U64_MAX},
                "not-before": answer.not_before_ms,
                "valid-until": answer.valid_until_ms,
            }
        }

    def release_lease(self, namespace: str, worker: int, grant_id: dict[str, int], end: int) -> None:
        store, grant = self._storage.leases, _joined(grant_id)
        if store is not None:
            what = f"giving worker {worker} of {namespace!r} back"
            self._storage.release(what, lambda: store.release_lease(namespace, worker, grant, end))

    def _lease(self, what: str, ask: Callable[[LeaseStore], Lease]) -> int:
        ticket = next(_tickets)
        store = self._storage.leases

        def asked() -> Lease:
            if store is None:
                raise missing("lease")
            return ask(store)

        self._leases[ticket] = self._storage.start(self.signal, what, asked)
        return ticket

    def _read(self, held: dict[int, Any], ticket: int, read: Callable[[], Any]) -> Any:
        """What a ticket brings. What a store of the program's own answered may fail wherever it is looked at."""
        found = held.get(ticket)
        try:
            return read()
        except Exception as raised:  # noqa: BLE001, else the component traps with all that it holds
            held.pop(ticket, None)
            message = f"the store answered what cannot be read ({type(raised).__name__}): it is not used"
            request = found[1] if isinstance(found, tuple) else found
            return self._failed(request, StoreError("corrupt", message))

    def _collect(self, held: dict[int, Any], ticket: int, request: Optional[Request]) -> Any:
        """The answer of a ticket, once; an error as the component is told of it. One that is not held: nobody knows."""
        if request is None:
            return {"err": "outcome-unknown"}
        answer = request.collect(time.monotonic())
        if answer is None:
            return None
        del held[ticket]
        if isinstance(answer, StoreError):
            return self._failed(request, answer)
        request.signal.last_error = None
        return answer

    @staticmethod
    def _failed(request: Optional[Request], error: StoreError) -> Any:
        if request is not None:
            request.signal.last_error = error
        return {"err": error.failure}


def missing(kind: str) -> StoreError:
    return StoreError("refused", f"no {kind} store was given to Ids: pass {kind}s=..")


def _no_grant(answer: object) -> StoreError:
    return StoreError("corrupt", f"the store granted {answer!r}, which is no grant")


def _joined(grant_id: dict[str, int]) -> int:
    return grant_id["high"] << 64 | grant_id["low"]


def layout_of_wit(layout: dict[str, Any]) -> Layout:
    return Layout(
        layout["timestamp-bits"],
        layout["datacenter-bits"],
        layout["worker-bits"],
        layout["sequence-bits"],
        layout["order"],
        layout["epoch-ms"],
        layout["tick-ms"],
    )


def layout_to_wit(layout: Layout) -> dict[str, Any]:
    return {
        "timestamp-bits": layout.timestamp_bits,
        "datacenter-bits": layout.datacenter_bits,
        "worker-bits": layout.worker_bits,
        "sequence-bits": layout.sequence_bits,
        "order": layout.order,
        "epoch-ms": layout.epoch_ms,
        "tick-ms": layout.tick_ms,
    }


def random_holder() -> str:
    """Names a holder that has no name of its own."""
    return f"unnamed-{secrets.token_hex(8)}"
