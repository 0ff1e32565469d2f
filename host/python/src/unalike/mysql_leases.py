"""Leases: one row per worker of a namespace, in tables of their own beside whatever keeps tags.

Invariant: an interval begins at or after the greatest end that was ever recorded for its worker. The statement that
grants states it as its condition, and a worker has one row, so it holds whatever was read before and however many ask
at once. The lock on the namespace's row only has acquires wait for each other.
"""

from __future__ import annotations

import time
from typing import Final, NamedTuple, Optional, Union

from .lease_rules import (
    Candidates,
    Clocks,
    ClockSteps,
    Exhausted,
    FIGURES_IN_REDIS,
    IN_REDIS,
    LeaseLimits,
    NamespaceBinding,
    UsedWorker,
    choose,
    choose_worker,
    lease_lost,
    leases_elsewhere,
    nth_never_used,
    quoted,
    random_bits,
    rfc3339,
    validate_acquire,
    validate_extend,
    worker_max,
    workers_exhausted,
    workers_of,
)
from .mysql_database import DUPLICATE_ENTRY, Database, Row, Turn, damaged, data, number, text, unavailable
from .mysql_server import refused
from .mysql_sql import LEASE_TABLES, SQL, Argument
from .mysql_tables import identity_of, open_tables
from .store import Lease, LeaseAcquire, LeaseExtend, StoreError, time_tag

_U32_MAX: Final = 2**32 - 1
_U64_MAX: Final = 2**64 - 1


class _Record(NamedTuple):
    """A worker's newest lease."""

    lease: Lease
    holder: str
    is_final: bool
    """Whether its end is fixed, so that it is never extended."""


class _Look(NamedTuple):
    """What the server said of itself, a namespace and a worker, at one instant."""

    store_ms: int
    """The server's clock, in Unix milliseconds."""
    binding: Optional[NamespaceBinding]
    record: Optional[_Record]

    def running(self, grant_id: int) -> Optional[tuple[NamespaceBinding, Lease]]:
        """Namespace and lease, if the lease runs under this grant id and may be extended and released.

        One that began before the end of a quarantine may be another's by now.
        """
        if self.binding is None or self.record is None or self.record.is_final:
            return None
        lease = self.record.lease
        is_running = lease.grant_id == grant_id and lease.not_before_ms >= self.binding.floor_ms
        return (self.binding, lease) if is_running else None

    def check_layout(self, request: Union[LeaseAcquire, LeaseExtend]) -> None:
        if self.binding is not None:
            self.binding.check_layout(request.namespace, request.layout)


class _OfProcess:
    """What a process has seen by itself; a child begins anew, and waits for no lock of its parent's."""

    def __init__(self, process: int) -> None:
        self.process = process
        self.steps = ClockSteps()
        """Where the server's clock was set."""
        self.is_open = False
        """The tables are looked at when the first lease is asked for."""


class MysqlLeases:
    """Leases in one database, over the connections of a store."""

    def __init__(self, database: Database) -> None:
        settings = database.settings
        self._database: Final = database
        self._limits: Final = LeaseLimits(settings.max_horizon_ms, settings.max_skew_ms)
        self._limits.validate()
        self._seen = _OfProcess(database.process)

    def acquire(self, request: LeaseAcquire) -> Lease:
        """Grants a worker."""
        validate_acquire(request)
        asked = time.monotonic()
        self._open()
        preferred = request.preferred_worker or 0
        namespace = request.namespace.encode()
        with self._database.turn("acquiring a worker") as turn:
            before = self._look(turn, request.namespace, preferred)
            try:
                self._check_clock(request.now_ms, before.store_ms, asked)
                before.check_layout(request)
            except StoreError:
                turn.give_back()
                raise
            turn.begin()
            if before.binding is None:
                # Binds the namespace, if nobody else was quicker, and keeps other acquires in it waiting.
                figures = NamespaceBinding.first_use(request.layout, self._limits).figures()
                turn.execute(SQL["leases"]["bind"], (namespace, *figures.values()))
            else:
                turn.rows(SQL["leases"]["lock"], (namespace,))
            seen = self._look(turn, request.namespace, preferred)
            if self._has_granted_time(turn, request.namespace):
                turn.roll_back()
                raise leases_elsewhere(request.namespace, "in-redis" if before.binding is None else "in-both")
            chosen = self._choose(turn, request, seen)
            lease = chosen if isinstance(chosen, StoreError) else self._grant(request, seen, chosen)
            if isinstance(chosen, StoreError) or isinstance(lease, StoreError):
                # A request that is refused binds nothing.
                turn.roll_back()
                assert isinstance(lease, StoreError)
                raise lease
            is_first = chosen.end_ms == 0
            grant: tuple[Argument, ...] = (
                lease.grant_id.to_bytes(16, "big"),
                request.holder.encode(),
                lease.not_before_ms,
                lease.valid_until_ms,
                seen.store_ms,
                namespace,
                lease.worker,
            )
            if not is_first:
                grant += (lease.not_before_ms,)
            sql = self._database.fenced(SQL["leases"]["grant_first" if is_first else "grant_again"])
            written = turn.try_execute(sql, grant, (DUPLICATE_ENTRY,))
            if not isinstance(written, int) and written.affected == 1:
                turn.commit()
                return lease
            turn.roll_back()
        self._database.check_fence()
        # Its holder extended it since it was looked at.
        what = f"worker {lease.worker} of {quoted(request.namespace)} was prolonged a moment ago: try again"
        raise unavailable(what)

    def extend(self, request: LeaseExtend) -> Lease:
        """Moves the end of a running lease."""
        validate_extend(request)
        asked = time.monotonic()
        lost = lease_lost(request.namespace, request.worker)
        if not (_is_in(request.worker, _U32_MAX) and _is_in(request.grant_id, 2**128 - 1)):
            raise lost
        self._open()
        refusal = lost
        with self._database.turn("extending a lease") as turn:
            seen = self._look(turn, request.namespace, request.worker)
            running = seen.running(request.grant_id)
            try:
                self._check_clock(request.now_ms, seen.store_ms, asked)
                seen.check_layout(request)
            except StoreError as error:
                running, refusal = None, error
            if running is None:
                turn.give_back()
            else:
                binding, lease = running
                end_ms = binding.extended_end_ms(lease.valid_until_ms, seen.store_ms, request.horizon_ms)
                args = (end_ms, request.namespace.encode(), request.worker, request.grant_id.to_bytes(16, "big"))
                updated = turn.execute(self._database.fenced(SQL["leases"]["extend"]), args)
                turn.give_back()
                if updated.affected == 1:
                    if updated.insert_id < end_ms:
                        what = f"an extension to {rfc3339(end_ms)} gave {rfc3339(updated.insert_id)}"
                        raise damaged(self._database.at, what)
                    return Lease(lease.worker, lease.grant_id, lease.not_before_ms, updated.insert_id)
                # Released, or granted to another since it was looked at.
        # Another server may know nothing of the lease.
        self._database.check_fence()
        raise refusal

    def release(self, namespace: str, worker: int, grant_id: int, end_ms: int) -> bool:
        """Ends a lease at ``end_ms``."""
        if not (_is_in(worker, _U32_MAX) and _is_in(grant_id, 2**128 - 1) and _is_in(end_ms, _U64_MAX)):
            return False
        self._open()
        with self._database.turn("releasing a lease") as turn:
            running = self._look(turn, namespace, worker).running(grant_id)
            end: Optional[int] = None
            if running is not None:
                binding, lease = running
                end = binding.released_end_ms(lease.not_before_ms, lease.valid_until_ms, end_ms)
            if end is None:
                turn.give_back()
                return False
            # An extension that came in between only moved the end further away.
            args = (end, namespace.encode(), worker, grant_id.to_bytes(16, "big"), end)
            updated = turn.execute(self._database.fenced(SQL["leases"]["release"]), args)
            turn.give_back()
        return updated.affected == 1

    def leave(self, namespace: str) -> None:
        """Notes that a Redis keeps the leases of a namespace, unless this store does.

        Where nobody made the tables of leases, and this user may not, nothing is leased in them, and the time that
        Redis is granted says where the leases are.
        """
        try:
            self._open()
        except StoreError as error:
            if error.kind == "refused" and not self._database.rows("looking for leases", SQL["leases"]["has_store"]):
                return
            raise
        with self._database.turn("noting that Redis keeps leases") as turn:
            turn.execute(SQL["leases"]["bind"], (namespace.encode(), *FIGURES_IN_REDIS.values()))
            rows = turn.rows(SQL["leases"]["kept"], (namespace.encode(),))
            has_time = self._has_granted_time(turn, namespace)
            turn.give_back()
        if not rows:
            raise damaged(self._database.at, "unalike_lease_store has no row")
        if number(self._database, rows[0], "version") != IN_REDIS:
            raise leases_elsewhere(namespace, "in-both" if has_time else "in-store")

    def _has_granted_time(self, turn: Turn, namespace: str) -> bool:
        """Whether time was granted to leases of the namespace in Redis.

        The tags of other dialects are not looked at: a Redis above them has its mark written at its next start.
        """
        if not turn.rows(SQL["leases"]["has_tags"]):
            return False
        return bool(turn.rows(SQL["leases"]["granted_time"], (time_tag(namespace).encode(),)))

    def identity(self) -> str:
        """The random name of the leases."""
        return identity_of(self._database, "leases")

    def _of_process(self) -> _OfProcess:
        seen = self._seen
        if seen.process != self._database.process:
            self._seen = seen = _OfProcess(self._database.process)
        return seen

    def _open(self) -> None:
        """Makes sure of the tables, once; after a failure again. Two threads that do so do no harm."""
        seen = self._of_process()
        if seen.is_open:
            return
        doing, database, leases = "reading unalike_lease_store", self._database, SQL["leases"]
        horizon_ms = self._limits.max_horizon_ms
        open_tables(database, LEASE_TABLES)
        rows = database.rows(doing, leases["read_store"])
        if not rows:
            database.execute(doing, leases["insert_store"], (SQL["lease_version"], horizon_ms))
            # As somebody else may have written it, a moment before.
            rows = database.rows(doing, leases["read_store"])
        if not rows:
            raise damaged(database.at, "unalike_lease_store has no row")
        version = number(database, rows[0], "version")
        if version != SQL["lease_version"]:
            raise refused(
                f"{database.at}: its tables of leases have the version {version}, and this program serves "
                f"{SQL['lease_version']} alone: upgrade the program"
            )
        if number(database, rows[0], "max_horizon_ms") < horizon_ms:
            # Whoever takes the server's place must know how far ahead a lease may reach.
            if database.execute(doing, database.fenced(leases["raise_horizon"]), (horizon_ms,)).affected == 0:
                raise database.held_back(doing)
        # The other tables: what is missing in them is known from the beginning.
        with database.turn("looking at the tables of leases") as turn:
            self._look(turn, "", 0)
            turn.give_back()
        seen.is_open = True

    def _look(self, turn: Turn, namespace: str, worker: int) -> _Look:
        """What the server says now: its clock, and of a namespace and a worker of it."""
        asked = time.monotonic_ns()
        rows = turn.rows(SQL["leases"]["look"], (namespace.encode(), worker))
        if not rows:
            raise damaged(self._database.at, "the server's clock gives no row")
        row = rows[0]
        store_ms = number(self._database, row, "store_ms")
        self._of_process().steps.read(asked, time.monotonic_ns(), store_ms)
        return _Look(
            store_ms,
            None if row["version"] is None else self._binding(row, namespace),
            None if row["worker"] is None else self._record(row),
        )

    def _check_clock(self, holder_ms: int, store_ms: int, asked: float) -> None:
        """Refuses a holder's clock that is off.

        It is looked at before the request waits for locks: afterwards every holder's clock would look slow.
        """
        # While the request waited for a connection and for this answer, the holder's clock went on.
        latest_ms = holder_ms + int((time.monotonic() - asked) * 1_000)
        nearest_ms = min(max(store_ms, holder_ms), latest_ms)
        try:
            self._limits.check_clocks(Clocks(nearest_ms, store_ms))
        except StoreError:
            # As the holder sent it.
            self._limits.check_clocks(Clocks(holder_ms, store_ms))

    def _binding(self, row: Row, namespace: str) -> NamespaceBinding:
        if number(self._database, row, "version") == IN_REDIS:
            raise leases_elsewhere(namespace, "in-redis")
        try:
            return NamespaceBinding.read(lambda figure: number(self._database, row, figure))
        except ValueError as error:
            raise damaged(self._database.at, f"a row of unalike_lease_namespace is not a binding: {error}") from None

    def _worker(self, row: Row) -> int:
        worker = number(self._database, row, "worker")
        if worker > _U32_MAX:
            raise damaged(self._database.at, f"there is no worker {worker}")
        return worker

    def _record(self, row: Row) -> _Record:
        grant_id = data(self._database, row, "grant_id")
        if len(grant_id) != 16:
            raise damaged(self._database.at, "a lease's grant id has not 16 bytes")
        lease = Lease(
            self._worker(row),
            int.from_bytes(grant_id, "big"),
            number(self._database, row, "not_before_ms"),
            number(self._database, row, "valid_until_ms"),
        )
        if lease.not_before_ms > lease.valid_until_ms:
            raise damaged(self._database.at, f"the lease of worker {lease.worker} ends before it begins")
        is_final = number(self._database, row, "is_final") != 0
        return _Record(lease, text(self._database, row, "holder"), is_final)

    def _choose(self, turn: Turn, request: LeaseAcquire, seen: _Look) -> Union[UsedWorker, StoreError]:
        """The worker that the rule chooses, with the greatest end recorded for it; or why there is none."""
        leases, namespace, database = SQL["leases"], request.namespace.encode(), self._database
        random = random_bits(64)
        horizon_ms = self._limits.max_horizon_ms if seen.binding is None else seen.binding.max_horizon_ms
        expiry = self._of_process().steps.expiry(time.monotonic_ns(), seen.store_ms, horizon_ms)
        if not expiry.is_plain:
            records = [self._record(row) for row in turn.rows(leases["list"], (namespace,))]
            used = [(UsedWorker(lease.worker, lease.valid_until_ms), holder) for lease, holder, _ in records]
            try:
                return choose_worker(request, expiry, random, used)
            except StoreError as error:
                return error

        def one(name: str, *args: Argument) -> Optional[UsedWorker]:
            rows = turn.rows(leases[name], (namespace, *args))
            return UsedWorker(self._worker(rows[0]), number(database, rows[0], "valid_until_ms")) if rows else None

        preferred = previous = None
        if request.preferred_worker is not None:
            end_ms = 0 if seen.record is None else seen.record.lease.valid_until_ms
            preferred = UsedWorker(request.preferred_worker, end_ms)
        if request.holder:
            previous = one("previous", request.holder.encode(), seen.store_ms)
        oldest = one("oldest")
        count = number(database, turn.rows(leases["count"], (namespace,))[0], "used")
        candidates = Candidates(workers_of(request.layout), count, preferred, previous, oldest)
        choice = choose(candidates, expiry, random)
        if isinstance(choice, UsedWorker):
            return choice
        if isinstance(choice, Exhausted):
            return workers_exhausted(request, choice.free_at_ms)
        workers = [self._worker(row) for row in turn.rows(leases["workers"], (namespace,))]
        worker = nth_never_used(choice.nth, workers)
        return workers_exhausted(request, seen.store_ms) if worker is None else UsedWorker(worker, 0)

    def _grant(self, request: LeaseAcquire, seen: _Look, chosen: UsedWorker) -> Union[Lease, StoreError]:
        """The lease of the chosen worker; or why it cannot be granted."""
        binding = seen.binding
        try:
            if binding is None:
                # It is bound from the one row there.
                what = f"the lease namespace {quoted(request.namespace)} was not bound: unalike_lease_store has no row"
                raise damaged(self._database.at, what)
            binding.check_layout(request.namespace, request.layout)
            binding.check_quarantine(request.namespace, seen.store_ms)
            if chosen.worker > worker_max(binding.layout):
                what = f"{quoted(request.namespace)} has leased the worker {chosen.worker}, which its layout has not"
                raise damaged(self._database.at, what)
            clocks = Clocks(request.now_ms, seen.store_ms)
            start_ms, end_ms = binding.grant(chosen.end_ms, clocks, request.horizon_ms)
        except StoreError as error:
            return error
        return Lease(chosen.worker, random_bits(128), start_ms, end_ms)


def _is_in(value: object, greatest: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= greatest
