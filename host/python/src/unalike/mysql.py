"""Segments and leases in MySQL and MariaDB, in the tables that the ``unalike`` command and its server use."""

from __future__ import annotations

import logging
import time
from datetime import datetime, timezone
from typing import Any, Final, Optional, Union

from ._process import uninterrupted_calls
from .mysql_database import DUPLICATE_ENTRY, Database, Row, Turn, damaged, data, figure, number, text
from .mysql_leases import MysqlLeases
from .mysql_options import read_options
from .mysql_server import refused
from .mysql_sql import SQL, TAG_TABLE, Argument
from .mysql_tables import current_version, identity_of, open_store, open_tables, refuse_unnoticed
from .store import (
    ID_MAX,
    KEPT_FLOOR,
    AdaptiveStep,
    FixedStep,
    Lease,
    LeaseAcquire,
    LeaseExtend,
    RefillPolicy,
    Remaining,
    Segment,
    ShareConsumed,
    StepPolicy,
    StoreError,
    TagOptions,
    TagRecord,
    TailRelease,
    is_kept,
    is_kept_time,
    shown,
    split_tag,
    validate_allocate,
    validate_new_tag,
    validate_options,
    validate_public,
    validate_tag,
)

__all__ = ["MysqlStore"]

_LOG: Final = logging.getLogger("unalike.mysql")
_U64_MAX: Final = 2**64 - 1


@uninterrupted_calls
class MysqlStore:
    """Segments and leases in one database, over one pool of connections, for any number of threads.

    Every connection is set and checked before it is used: commits must be durable, and the server must be the one that
    was used before. Each statement that grants states the same as its condition. A statement whose answer is lost
    counts as done, and what it granted is never offered again. A child of a fork opens connections of its own.

    Raising, ending, importing, resizing and adopting stay with the ``unalike`` command; where one is needed, the error
    says which. A store that is a stripe of a set is refused, and so are the tables of other systems: use both through
    the ``unalike`` server.

    The URL is ``mysql://USER[:PASSWORD]@HOST[:PORT]/DATABASE[?PARAMETERS]``, or ``mariadb:``. Its parameters are:

    - ``ssl-mode``: ``disabled``, ``preferred`` (the default), ``required``, ``verify_ca``, ``verify_identity``;
    - ``ssl-ca``: a file with the certificates of the authorities to trust instead of the system's;
    - ``create``: ``false``, and no table is created;
    - ``connections``: the most at a time, 1 to 10000, 10 by default;
    - ``connect-timeout-ms``, ``request-timeout-ms``: milliseconds, 1 to 600000, 3000 and 5000 by default;
    - ``durability=assumed``: a server that may lose a commit in a crash is taken;
    - ``identity=assumed``: a server that is not the one that was used before is taken;
    - ``password-file``, ``password-env``: a file with the password, or the environment variable that holds it.

    Another parameter is an error.

    :param url: Where the database is.
    :param password: The password, instead of one in the URL.
    :param create_tags: Whether tags are created on first use.
    :param tags_max: How many tags there may be, sub-keys not counted.
    :param max_horizon_ms: How far ahead of the server's clock a lease may reach: 1 ms to 366 days.
    :param max_skew_ms: How far a holder's clock may be from the server's.
    :raises StoreError: ``unavailable`` when the server does not answer; ``refused`` when it denies access, when its
        commits are not durable, when it is another server than before, when its tables are missing, of another version
        or not what grants can rest on, and for options that are wrong. Each says what to do.

    >>> from unalike.mysql import MysqlStore
    >>> store = MysqlStore("mysql://ids@db.example/ids?password-env=DB_PASSWORD")  # doctest: +SKIP
    >>> store.allocate("order", 100, 0)  # doctest: +SKIP
    Segment(start=1, end=101, stride=1, generation=0, version=117670595261956096)
    """

    def __init__(
        self,
        url: str,
        *,
        password: Optional[str] = None,
        create_tags: bool = True,
        tags_max: int = 1_000_000,
        max_horizon_ms: int = 600_000,
        max_skew_ms: int = 10_000,
    ) -> None:
        settings = read_options(
            url,
            password=password,
            create_tags=create_tags,
            tags_max=tags_max,
            max_horizon_ms=max_horizon_ms,
            max_skew_ms=max_skew_ms,
            warn=_LOG.warning,
        )
        self._database: Final = Database(settings)
        self._leases: Final = MysqlLeases(self._database)
        try:
            with self._database.turn("looking at the server") as turn:
                facts = turn.look()
                turn.give_back()
            fault = facts.fault_of_durability() if settings.assume_durable else None
            if fault is not None:
                _LOG.warning(
                    "%s: commits may be lost (%s); durability=assumed takes the server all the same", settings.at, fault
                )
            self._version = open_store(self._database, facts)
            """Of the tables when they were last looked at; they may be newer by now."""
            if self._database.check_adopted():
                refuse_unnoticed(self._database, facts)
            open_tables(self._database, [TAG_TABLE])
        except BaseException:
            self._database.close()
            raise

    def __repr__(self) -> str:
        return f"MysqlStore({self._database.at!r})"

    @property
    def address(self) -> str:
        """Host, port and database, for messages."""
        return self._database.at

    def allocate(self, tag: str, count: int, at_least: int) -> Segment:
        """Grants numbers: :meth:`unalike.store.SegmentStore.allocate`."""
        validate_allocate(tag, count, at_least)
        # Twice, when the tag comes into being in between.
        for _ in range(2):
            segment = self._grant(tag, count, at_least)
            if segment is not None:
                return segment
            row = self._find(tag)
            if row is None:
                self._create_on_first_use(tag)
            elif row.watermark == ID_MAX:
                raise _exhausted(tag)
        raise StoreError(
            "unavailable", f"the store is unavailable: the tag {shown(tag)} changes all the time: try again"
        )

    def release(self, tag: str, tail: TailRelease) -> bool:
        """Takes numbers back: :meth:`unalike.store.SegmentStore.release`."""
        validate_tag(tag)
        if not (1 <= tail.start <= _U64_MAX and 0 <= tail.version <= _U64_MAX):
            return False
        assignments, conditions = (tail.start - 1,) * 2, (tail.version, tail.start, tail.start)
        sql, args, _ = self._change("release", tag, assignments, conditions)
        return self._database.execute("releasing a tail", sql, args).affected == 1

    def open_tag(self, tag: str) -> TagRecord:
        """The tag as the store keeps it: :meth:`unalike.store.SegmentStore.open_tag`."""
        validate_tag(tag)
        row = self._find_or_create(tag)
        self._check_stripe()
        return row

    def create_tag(self, tag: str, options: Optional[TagOptions] = None) -> TagRecord:
        """Creates a tag, whatever is said of first use; the limit of tags applies.

        :raises StoreError: ``tag-exists``, ``tag-limit``, ``tag-invalid``, and any error of the connection.
        """
        options = TagOptions() if options is None else options
        validate_options(tag, options)
        validate_public(tag)
        row = self._insert_new(tag, options)
        if row is None:
            raise StoreError("tag-exists", f"the tag {shown(tag)} exists already")
        return row

    def identity(self) -> str:
        """The random name of the store's data, 32 hexadecimal digits."""
        return identity_of(self._database, "unalike")

    def acquire(self, request: LeaseAcquire) -> Lease:
        """Grants a worker: :meth:`unalike.store.LeaseStore.acquire`."""
        return self._leases.acquire(request)

    def extend(self, request: LeaseExtend) -> Lease:
        """Moves the end of a running lease: :meth:`unalike.store.LeaseStore.extend`."""
        return self._leases.extend(request)

    def release_lease(self, namespace: str, worker: int, grant_id: int, end_ms: int) -> bool:
        """Ends a lease: :meth:`unalike.store.LeaseStore.release_lease`."""
        return self._leases.release(namespace, worker, grant_id, end_ms)

    def lease_identity(self) -> str:
        """As :meth:`identity`, of the leases."""
        return self._leases.identity()

    def leave_leases(self, namespace: str) -> None:
        """Notes that a Redis keeps the leases of a namespace, unless this store does."""
        self._leases.leave(namespace)

    def close(self) -> None:
        """Closes the connections. Not needed for safety."""
        self._database.close()

    @property
    def _has_stripes(self) -> bool:
        return self._version >= 2

    def _of(self, change: dict[str, str]) -> str:
        return change["striped" if self._has_stripes else "plain"]

    def _of_stripe(self, argument: Argument) -> tuple[Argument, ...]:
        """What a statement with stripes has as one more argument."""
        return (argument,) if self._has_stripes else ()

    def _grant(self, tag: str, count: int, at_least: int) -> Optional[Segment]:
        """Numbers from the tag's row; ``None`` if there is none or no number is left."""
        others = min(count, ID_MAX) - 1
        assignments = (at_least, at_least, at_least, others, at_least)
        sql, args, version = self._change("allocate", tag, assignments, ())
        reply = self._database.execute("allocating a segment", sql, args)
        if reply.affected == 1:
            start = reply.insert_id
            end = start + min(others, ID_MAX - start) + 1
            if not max(1, at_least) <= start <= ID_MAX:
                raise damaged(self._database.at, f"the grant from {start} to {end} is not what was asked for")
            return Segment(start, end, 1, 0, version)
        self._database.check_fence()
        self._check_row(tag)
        return None

    def _change(
        self, name: str, tag: str, assignments: tuple[Argument, ...], conditions: tuple[Argument, ...]
    ) -> tuple[str, tuple[Argument, ...], int]:
        """A change of the tag's row, its arguments, and the version that it proposes."""
        version = _propose_version()
        args = (
            *assignments,
            version,
            *self._of_stripe(version),
            tag.encode(),
            *conditions,
            *self._of_stripe(self._database.row_set),
        )
        return self._database.fenced(self._of(SQL["segments"][name])), args, version

    def _find(self, tag: str) -> Optional[TagRecord]:
        rows = self._database.rows("reading a tag", SQL["segments"]["find"], (tag.encode(),))
        return self._tag_row(rows[0]) if rows else None

    def _find_or_create(self, tag: str) -> TagRecord:
        found = self._find(tag) or self._create_on_first_use(tag) or self._find(tag)
        if found is None:
            raise _unknown(tag)
        return found

    def _create_on_first_use(self, tag: str) -> Optional[TagRecord]:
        """A tag without a row, if first use may create it; ``None`` if somebody else was quicker.

        A sub-key of a tag that exists, or may be created, always may be: it has the options of its tag, and ends with
        it.
        """
        owner, sub = split_tag(tag)
        if sub is not None:
            of_owner = self._find_or_create(owner)
            if of_owner.watermark >= ID_MAX:
                raise _exhausted(tag)
            return self._insert_new(tag, of_owner.options)
        if not self._database.settings.create_tags and not is_kept(tag):
            raise _unknown(tag)
        return self._insert_new(tag, TagOptions())

    def _insert_new(self, tag: str, options: TagOptions) -> Optional[TagRecord]:
        """A row under a name that a new tag may have; ``None`` if the tag exists, whatever its name is."""
        try:
            validate_new_tag(tag)
        except StoreError:
            if self._find(tag) is not None:
                return None
            raise
        return self._insert(tag, options)

    def _insert(self, tag: str, options: TagOptions) -> Optional[TagRecord]:
        segments = SQL["segments"]
        tags_max = _U64_MAX if is_kept(tag) else self._database.settings.tags_max
        counted, limit = (1, tags_max) if split_tag(tag)[1] is None else (0, _U64_MAX)
        refusal: Optional[StoreError] = None
        with self._database.transaction_alone("creating a tag") as turn:
            count = (counted, *self._of_stripe(counted), limit, *self._of_stripe(bytes(16)))
            if turn.execute(self._of(segments["count"]), count).affected == 0:
                turn.roll_back()
                what = f"the tag {shown(tag)} was not created: the store has {tags_max} tags, its limit"
                refusal = StoreError("tag-limit", what)
            else:
                floor = self._floor(turn)
                if self._has_owner_ended(turn, tag):
                    turn.roll_back()
                    refusal = _exhausted(tag)
                else:
                    if is_kept_time(tag):
                        self._check_new_time(turn, tag)
                    watermark = _first_watermark(tag, options.start, floor)
                    row = (
                        tag.encode(),
                        options.start,
                        options.mode,
                        *_policy_columns(options.step, options.refill),
                        watermark,
                        watermark,
                        *self._of_stripe(self._database.row_set),
                    )
                    if isinstance(turn.try_execute(self._of(segments["insert"]), row, (DUPLICATE_ENTRY,)), int):
                        turn.roll_back()
                        return None
                    turn.commit()
                    return TagRecord(tag, options, watermark)
        if refusal.kind == "tag-limit":
            self._check_stripe()
        if self._find(tag) is None:
            raise refusal
        return None

    def _floor(self, turn: Turn) -> int:
        """The floor of new names, which nobody makes or lifts before this transaction has ended."""
        rows = turn.rows(SQL["segments"]["floor"], (KEPT_FLOOR.encode(),))
        return number(self._database, rows[0], "watermark") if rows else 0

    def _check_new_time(self, turn: Turn, name: str) -> None:
        """Refuses a new row of time, granted to leases or clocks in Redis, while leases of the server before may run.

        The row may have been lost, and what was granted under it is not known.

        :raises StoreError: ``quarantined``
        """
        if not turn.rows(SQL["leases"]["has_store"]):
            return
        rows = turn.rows(SQL["leases"]["time_floor"])
        until_ms = number(self._database, rows[0], "floor_ms") if rows else 0
        if rows and until_ms > number(self._database, rows[0], "now_ms"):
            turn.roll_back()
            when = datetime.fromtimestamp(until_ms / 1000, timezone.utc).isoformat(timespec="milliseconds")
            what = f"the store may have forgotten leases of {shown(name)}: it grants none before {when}"
            raise StoreError("quarantined", f"{what}, when all that it could have granted have ended")

    def _has_owner_ended(self, turn: Turn, name: str) -> bool:
        """Whether this is a new sub-key of a tag that has ended.

        Until this transaction ends, nobody ends the tag: so whoever lists its sub-keys afterwards sees this one.
        """
        tag, sub = split_tag(name)
        rows = [] if sub is None else turn.rows(SQL["segments"]["find_locked"], (tag.encode(),))
        # Without a row there is nothing to end.
        return bool(rows) and self._tag_row(rows[0]).watermark >= ID_MAX

    def _tag_row(self, row: Row) -> TagRecord:
        database = self._database

        def of(column: str) -> int:
            return figure(database, row, column)

        def broken(what: str) -> StoreError:
            return damaged(database.at, f"unalike_tag has a row with {what}")

        step_policy, refill_policy = text(database, row, "step_policy"), text(database, row, "refill_policy")
        step: StepPolicy
        refill: RefillPolicy
        if step_policy == "fixed":
            step = FixedStep(of("step"))
        elif step_policy == "adaptive":
            bounds = of("step_min"), of("step_max"), of("grow_below_ms"), of("shrink_above_ms")
            step = AdaptiveStep(of("step"), *bounds)
        else:
            raise broken(f"the policies {step_policy!r} and {refill_policy!r}")
        if refill_policy == "share-consumed":
            refill = ShareConsumed(of("refill"))
        elif refill_policy == "remaining":
            refill = Remaining(of("refill"))
        else:
            raise broken(f"the policies {step_policy!r} and {refill_policy!r}")
        mode: Any = text(database, row, "mode")
        tag = text(database, row, "tag")
        options = TagOptions(of("start"), step, refill, mode)
        try:
            validate_options(tag, options)
        except StoreError as error:
            raise broken(str(error)) from None
        watermark = of("watermark")
        if watermark > ID_MAX:
            raise broken(f"the watermark {watermark}, and 2^63 - 1 is the greatest")
        return TagRecord(tag, options, watermark)

    def _check_stripe(self) -> None:
        """Makes sure that the store stands alone: this host joins no stripes."""
        database = self._database
        if not self._has_stripes:
            self._version = current_version(database)
            if not self._has_stripes:
                return
        rows = database.rows("reading the stripe", SQL["store"]["stripe"])
        if not rows:
            raise refused(f"{database.at}: the table unalike_store is missing or has no row: run `unalike schema`")
        name = data(database, rows[0], "stripe_set")
        if any(name):
            index, count = number(database, rows[0], "stripe_index"), number(database, rows[0], "stripe_count")
            raise refused(f"the store at {database.at} is {_stripe_in_words(name.hex(), index, count)}")

    def _check_row(self, tag: str) -> None:
        """Makes sure that the tag's row is of a store that stands alone, and of this client's era."""
        self._check_stripe()
        if not self._has_stripes:
            return
        database = self._database
        rows = database.rows("reading a row's stripe", SQL["segments"]["row_stripe"], (tag.encode(),))
        if not rows or data(database, rows[0], "stripe_set") == database.row_set:
            return
        raise refused(
            f"{database.at}: the row of the tag {tag!r} was written by another server than the one that "
            "unalike_store records, or unalike_store was made anew since. End replication if it goes on here "
            "(MySQL: STOP REPLICA; RESET REPLICA ALL. MariaDB: STOP ALL SLAVES; RESET SLAVE ALL), lift the tags above "
            "everything that was handed out with "
            "`unalike store adopt --lift COUNT`, and restart the programs"
        )


_LEFT: Final = 1 << 30
"""In the index of a mark of a resize: the store left."""
_FENCED: Final = 1 << 31
"""In the same place: it is fenced."""


def _stripe_in_words(name: str, index: int, count: int) -> str:
    if index < _LEFT:
        return (
            f"stripe {index} of {count} in the set {name}: use it together with all stores of its set, in their order; "
            "this program joins no stripes, so use them through the `unalike` server"
        )
    mark = "fenced while its tags are moved" if index >= _FENCED else "left, as its tags were moved to other stores"
    return (
        f"{mark} ({name}): restart this program with the stores that have its tags now; if that was broken off, repeat "
        "`unalike stripes resize`, or `unalike store rebind`"
    )


_last_version = 0


def _propose_version() -> int:
    """The version that a row shall have after the statement that is about to run, at least.

    The Rust adapter says why that is enough. Proposals need not be unique; they grow with the clock across restarts.
    """
    global _last_version
    # 2^47 ms are some 4,000 years.
    clock = min(max(0, time.time_ns() // 1_000_000), 2**47 - 1) << 16
    _last_version = proposed = max(clock, _last_version + 1)
    return proposed


def _first_watermark(name: str, start: int, floor: int) -> int:
    """The greatest number that counts as granted under a name that is created just now."""
    return min(start - 1 + (0 if is_kept_time(name) else floor), ID_MAX)


def _policy_columns(step: StepPolicy, refill: RefillPolicy) -> tuple[Union[int, str, None], ...]:
    """What a row says of its policies, in the order in which the statements name the columns."""
    left: tuple[str, int]
    if isinstance(refill, Remaining):
        left = "remaining", refill.numbers
    else:
        left = "share-consumed", refill.percent
    if isinstance(step, FixedStep):
        return ("fixed", step.step, None, None, None, None, *left)
    return ("adaptive", step.step, step.min, step.max, step.grow_below_ms, step.shrink_above_ms, *left)


def _exhausted(tag: str) -> StoreError:
    return StoreError(
        "exhausted",
        f"the tag {shown(tag)} is exhausted: it was moved or ended, as an import does, and its numbers continue "
        f"elsewhere, or every number up to {ID_MAX} has been granted",
    )


def _unknown(name: str) -> StoreError:
    tag, sub = split_tag(name)
    if sub is None:
        what = (
            f"the tag {tag!r} is unknown: create it first, with `unalike tags create` or, where that is allowed, by "
            "taking an id of it"
        )
    else:
        what = f"the tag {tag!r} has no sub-key {sub!r}: its first id creates it"
    return StoreError("tag-unknown", what)
