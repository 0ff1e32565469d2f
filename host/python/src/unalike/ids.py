"""The stores, the component and the open generators of one application."""

from __future__ import annotations

import _thread
import logging
import sys
import time
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NoReturn, Optional, TypeVar, Union

from ._component import CoreInstance
from ._library import native
from ._inside import refuse_inside, section
from ._lane import Lane, Opening
from ._ports import check_store
from ._process import MARK, ProcessLock, current, uninterrupted
from ._renewal import Renewal
from ._requests import Signal, Steps, Storage, layout_of_wit, layout_to_wit, missing, random_holder, waited
from ._values import U32, U64
from .errors import IdsError, IdsErrorKind, argument_invalid, as_written, because, caused, closed
from .formats import Format
from .formatted import Formatted, Parts, Periods, bind_format, check_format, check_given, layout_shown, parts_of
from .layouts import layout_named
from .lease_rules import layout_text
from .sequence import Buffered, Ordered, Sequence, refused_to_pickle, sub_name
from .snowflake import Clock, Flakes, Snowflake, Spread, clock_to_wit, spread_to_wit
from .store import (
    ID_MAX,
    AdaptiveStep,
    FixedStep,
    FormatOwner,
    Layout,
    LeaseStore,
    Mode,
    RefillPolicy,
    Remaining,
    SegmentStore,
    ShareConsumed,
    StepPolicy,
    StoreError,
    TagOptions,
    TagRecord,
    shown,
    validate_options,
    validate_public,
    validate_tag,
)
from .stores import Store

__all__ = ["Ids"]

log: Final = logging.getLogger("unalike")

T = TypeVar("T")

_HORIZON_MAX_MS: Final = 366 * 86_400_000
_HORIZON_MIN_MS: Final = 300
"""As the server has it: a lease is renewed when a third of it has passed, and a shorter one would end meanwhile."""
_HORIZONS: Final = f"{_HORIZON_MIN_MS} to {_HORIZON_MAX_MS} milliseconds (60000 is one minute)"


class Home:
    """Everything of an :class:`Ids` that belongs to one process: the instance, the threads, and what was granted."""

    def __init__(self, ids: Ids, mark: int, inherited: Optional[Home]) -> None:
        self.mark = mark
        # What was inherited is kept and never touched: to give it back would be to give back what is its parent's.
        self._inherited = inherited
        self._own_store = ids._own_store
        self.storage = Storage(ids._segments, ids._leases, ids._holder, ids._preferred_worker, ids.request_timeout)
        self.lane = Lane(self.storage, ids._clock, ids.wait_max, mark)
        # Without a lock: nobody waits for a thread that a handler or a finalizer stopped at any of these.
        self._open: dict[str, Union[Buffered, Ordered]] = {}
        self._flakes: dict[str, Flakes] = {}
        self._closers: list[Callable[[], object]] = []
        # Whoever closes it takes this.
        self._unclosed = [None]
        self.renewal = _renewal_of(self) if ids._renews_leases else None
        self.life: str = "open" if inherited is None or inherited.life == "open" else "closed"
        if self.life == "closed":
            self._unclosed.clear()

    def sequence(self, sequence: Sequence) -> Union[Buffered, Ordered]:
        """What a sequence is in this process."""
        found = self._open.get(sequence._name)
        if found is None:
            self._check(sequence._name)
            kind = Ordered if sequence.mode == "ordered" else Buffered
            found = self._open.setdefault(sequence._name, kind(self, sequence._opening, sequence._id_max))
            # Whoever closes says so first, and looks for what is open afterwards.
            self._check(sequence._name)
        return found

    def is_idle(self, name: str, idle: float) -> bool:
        """Whether a sequence handed out nothing for so many seconds, or is not open in this process."""
        found = self._open.get(name)
        return found is None or found.idle_s(time.monotonic()) >= idle

    def end(self, name: str) -> Optional[bool]:
        """Closes a sequence that nobody has. ``None`` if it is not open in this process.

        :raises IdsError: ``rebuilt``
        """
        found = self._open.get(name)
        if found is None:
            return None
        if not found.end():
            return False
        self._open.pop(name, None)
        return True

    def snowflake(self, snowflake: Snowflake) -> Flakes:
        """What a snowflake generator is in this process."""
        found = self._flakes.get(snowflake.namespace)
        if found is None:
            self._check(snowflake.namespace)
            found = self._flakes.setdefault(snowflake.namespace, Flakes(self, snowflake))
            self._check(snowflake.namespace)
        return found

    def flakes(self) -> list[Flakes]:
        return list(self._flakes.values())

    def _check(self, name: str) -> None:
        if self.life != "open":
            raise closed(name)

    def close(self, ended: Callable[[], object]) -> None:
        """Has everything closed by one thread, whoever asks how often; ``ended`` is called at the end."""
        self._closers.append(ended)
        try:
            self._unclosed.pop()
        except IndexError:  # somebody closes it, or has
            if self.life == "closed":
                self._tell_closed()
            return
        self.life = "closing"
        try:
            _thread.start_new_thread(self._finish, ())
        except RuntimeError:  # no more threads
            self._finish()

    def _tell_closed(self) -> None:
        while self._closers:
            try:
                ended = self._closers.pop()
            except IndexError:  # another thread told it
                return
            ended()

    def _finish(self) -> None:
        try:
            if self.renewal is not None:
                self.renewal.end()
            generators: list[Any] = [*self._open.values(), *self._flakes.values()]
            for generator in generators:
                generator.stop()
            # A segment that is on its way would stand between the tail and the tag's watermark.
            self._settle("requests")
            for generator in generators:
                try:
                    generator.close()
                except Exception as error:  # noqa: BLE001, the others must be closed too
                    log.warning("closing gave nothing back: %s", error)
            self._settle("releases")
        finally:
            self.storage.pool.end()
            if self._own_store is not None:
                self._own_store.close()
            self.life = "closed"
            self._tell_closed()

    def _settle(self, what: str) -> None:
        if not self.storage.settle():
            log.warning("gave up waiting for %s: what they carry is a gap", what)


def _renewal_of(home: Home) -> Renewal:
    """What looks after the leases. It keeps nothing that nobody uses any more."""
    found = weakref.ref(home)

    def look(answered: Callable[[], None]) -> bool:
        home = found()
        if home is None:
            return False
        for flakes in home.flakes():
            flakes.renew(answered)
        return True

    return Renewal(home.mark, look)


class _Known:
    """A sequence that is open, and how. It is open without a handle, too, until it is closed as idle."""

    __slots__ = ("given", "handle", "record")

    def __init__(self, record: TagRecord, given: dict[str, Any], handle: weakref.ref[Sequence]) -> None:
        self.record, self.given, self.handle = record, given, handle


class Ids:
    """Hands out ids from the store of a URL, or from the stores that it is given. One for a process, shared by all its
    threads.

    :param url: Where numbers and workers come from, as :class:`unalike.stores.Store` takes it, such as
        ``sqlite://ids.sqlite``. It is opened now, and closed with the ``Ids``. Where more is to be said of it, give a
        store.
    :param segments: Where sequences get their numbers. A store is yours: close it after the ``Ids``.
    :param leases: Where snowflakes get their worker ids; often the same store.
    :param holder: A stable name of this process (a host name and port, say), by which a lease store prefers the worker
        that it had before. It proves nothing. A random name by default.
    :param preferred_worker: A worker id that this process would like to have, if it is free.
    :param wait_max: How long a call waits for ids, in seconds.
    :param request_timeout: After how long a request to a store is given up, in seconds, and what it may have been
        granted is burnt.
    :param clock: Where the time comes from: milliseconds since 1970. It may jump or stand still, which costs
        availability, never uniqueness. It may be called while a call for ids is under way, and should take none.
    :param renew_leases: Whether a daemon thread renews the leases of snowflakes while no ids are asked for. It starts
        with the first lease, holds no process up, and is gone after :meth:`close`. Without it, call
        :meth:`renew_leases`, or the first id after a rest may wait for another lease.
    :raises IdsError: ``argument_invalid``, also without any store
    :raises StoreError: when the store of the URL cannot be opened

    In a forked child everything inherited is abandoned, and the same object goes on with an instance, threads and
    numbers of its own. It cannot be pickled: with ``spawn`` and ``forkserver`` each process makes its own.

    >>> from unalike import Ids
    >>> from unalike.memory import MemoryStore
    >>> with Ids(segments=MemoryStore()) as ids:
    ...     orders = ids.sequence("order")
    ...     orders.next()
    1
    """

    def __init__(
        self,
        url: Optional[Union[str, list[str]]] = None,
        *,
        segments: Optional[SegmentStore] = None,
        leases: Optional[LeaseStore] = None,
        holder: Optional[str] = None,
        preferred_worker: Optional[int] = None,
        wait_max: float = 5.0,
        request_timeout: float = 10.0,
        clock: Optional[Callable[[], int]] = None,
        renew_leases: bool = True,
    ) -> None:
        self.wait_max = _seconds("wait_max", wait_max)
        self.request_timeout = _seconds("request_timeout", request_timeout)
        self.closing_max = 2 * self.request_timeout + self.wait_max
        if url is not None and (segments is not None or leases is not None):
            message = "a URL and stores were given: write Ids(URL), or Ids(segments=store, leases=store)"
            raise IdsError("argument_invalid", message, argument="url")
        check_store("segments", segments)
        check_store("leases", leases)
        if holder is not None and not isinstance(holder, str):
            raise argument_invalid("holder", holder, "a text")
        if not isinstance(renew_leases, bool):
            raise argument_invalid("renew_leases", renew_leases, "True or False")
        self._segments, self._leases = segments, leases
        self._holder = random_holder() if holder is None else holder
        self._preferred_worker = (
            None if preferred_worker is None else U32.check(preferred_worker, "preferred_worker")
        )
        self._clock = _now_ms if clock is None else _checked(clock)
        if url is None and segments is None and leases is None:
            message = "no store was given: Ids(URL), or Ids(segments=store, leases=store)"
            raise IdsError("argument_invalid", message, argument="segments")
        self._renews_leases = renew_leases
        self._renewing = ProcessLock()
        self._sequences: dict[str, _Known] = {}
        # The formats that tags were found to be bound to.
        self._formats: dict[str, Parts] = {}
        self._snowflakes: dict[str, Snowflake] = {}
        # Before the process has threads of its own or forks, and not at the first id.
        uninterrupted(native)
        self._own_store: Any = None
        if url is not None:
            self._own_store = self._segments = self._leases = Store(url)
        self._here = Home(self, current(), None)

    def sequence(
        self,
        tag: str,
        *,
        step: Optional[StepPolicy] = None,
        refill: Optional[RefillPolicy] = None,
        prefetch: int = 1,
        mode: Optional[Mode] = None,
        id_max: Optional[int] = None,
    ) -> Sequence:
        """The ids of a tag. Looks the tag up in its store, which creates it if it is to.

        It stays open until :meth:`close` or :meth:`close_idle`, and is the same object for all that have it.

        :param step: How many numbers are asked for at once, in the place of what the tag's record says.
        :param refill: When the next ones are asked for, likewise.
        :param prefetch: How many whole segments are held ahead, 1 to 64.
        :param mode: Refuses a tag of the other mode. The mode itself is the tag's.
        :param id_max: No id is above this, 1 to 2^63 - 1: 2^53 - 1 is the greatest that JavaScript's numbers hold.
        :raises IdsError: ``name_invalid``, ``store``, ``timeout``, ``mode_bound``, ``open_otherwise``,
            ``argument_invalid``, ``closed``
        """
        steps = self._open(tag, step=step, refill=refill, prefetch=prefetch, mode=mode, id_max=id_max)
        return waited(steps)

    def sequence_of(
        self,
        tag: str,
        sub: str,
        *,
        step: Optional[StepPolicy] = None,
        refill: Optional[RefillPolicy] = None,
        prefetch: int = 1,
        mode: Optional[Mode] = None,
        id_max: Optional[int] = None,
    ) -> Sequence:
        """The ids of a sub-key, which are counted by themselves under the tag's options: of a tenant, say, or a day.

        Parameters and errors are those of :meth:`sequence`.
        """
        name = sub_name(tag, sub)
        return self.sequence(name, step=step, refill=refill, prefetch=prefetch, mode=mode, id_max=id_max)

    def snowflake(
        self,
        namespace: str,
        layout: Union[Layout, str],
        *,
        clock: Clock = Clock.keep(2_000),
        horizon_ms: int = 60_000,
        ahead_max_ms: int = 10,
        spread: Spread = Spread.none(),
    ) -> Snowflake:
        """The ids of a lease namespace: timestamp, worker, sequence. No request is made yet; the same object each time.

        :param namespace: Which set of worker ids: ids are unique within it.
        :param layout: Widths, epoch and tick, or the name of a preset, such as ``twitter`` (see
            :data:`~unalike.LAYOUTS`).
        :param clock: What to do when the clock goes back: :class:`~unalike.Clock`.
        :param horizon_ms: How far ahead of now a lease is asked for, 300 ms to 366 days. It is renewed when a third has
            passed, so an outage of the lease store is ridden out for two thirds of it at least.
        :param ahead_max_ms: How far ahead of the clock a tick may begin when the one before is spent; 0: never.
        :param spread: Where in a tick the sequences begin: :class:`~unalike.Spread`.
        :raises IdsError: ``name_invalid``, ``layout``, ``argument_invalid``, ``open_otherwise``, ``closed``
        """
        _check_name(namespace)
        refuse_inside(namespace, "section")
        _check_type("clock", clock, Clock, "Clock.reject(), Clock.wait(5) or Clock.keep(2_000), say")
        _check_type("spread", spread, Spread, "Spread.none(), Spread.rotating(3) or Spread.random(3), say")
        self._check_open(namespace)
        options = {
            "layout": layout_to_wit(layout_named(layout)),
            "clock": clock_to_wit(clock),
            "horizon-ms": horizon_ms,
            "ahead-max-ms": ahead_max_ms,
            "spread": spread_to_wit(spread),
        }
        found = self._snowflakes.get(namespace)
        if found is None:
            check_snowflake(namespace, options)
            made = Snowflake(self, namespace, layout_named(layout), options, clock)
            found = self._snowflakes.setdefault(namespace, made)
        if found._options != options:
            raise _open_otherwise(namespace, found._options, options)
        return found

    def formatted(
        self,
        tag: str,
        format: Format,
        sub: Optional[str] = None,
        *,
        step: Optional[StepPolicy] = None,
        refill: Optional[RefillPolicy] = None,
        prefetch: int = 1,
        mode: Optional[Mode] = None,
        id_max: Optional[int] = None,
    ) -> Formatted:
        """The ids of a tag, or of one of its sub-keys, as a format shows them.

        The sequence never gives an id above what the format can show; it ends then. Where the counter starts again,
        each period has numbers of its own under the sub-key ``@2026-11-22`` (``sub@2026-11-22`` of a sub-key): a row in
        the store, made at its first use, and a sequence in this process until :meth:`close_idle` finds it idle.

        **Texts are unique within one sub-key.** Sub-keys share the format of their tag and count by themselves, so two
        of them show the same texts. Where texts of several meet, give each its own tag, with its own prefix in the
        template.

        If the ids of one tag are shown in two formats, or if its template, restart, widths or a secret change, two ids
        could be shown alike. So the format is bound to the tag in the store at its first use. Another one is refused,
        in this program and in every other. Keys are bound one by one: one with a number of its own may come or go.
        Nothing is compared in CosId's counters in Redis, and in a store of your own without ``bind_format``. Bare
        sequences of the tag compare nothing, except on a server.

        Other parameters are those of :meth:`sequence`.

        :param format: Made by :class:`unalike.formats.Format`.
        :param sub: The sub-key.
        :raises IdsError: ``format_bound`` for another format, and as :meth:`sequence_of`

        >>> from unalike import Ids
        >>> from unalike.formats import Format
        >>> from unalike.memory import MemoryStore
        >>> with Ids(segments=MemoryStore()) as ids:
        ...     ids.formatted("order", Format("ORD-{id:06}")).next()
        'ORD-000001'
        """
        given = {"step": step, "refill": refill, "prefetch": prefetch, "mode": mode, "id_max": id_max}
        return waited(self._formatted(tag, format, sub, given))

    def formatted_snowflake(
        self,
        namespace: str,
        layout: Union[Layout, str],
        format: Format,
        *,
        clock: Clock = Clock.keep(2_000),
        horizon_ms: int = 60_000,
        ahead_max_ms: int = 10,
        spread: Spread = Spread.none(),
    ) -> Formatted:
        """The ids of a snowflake as a format shows them. The date in a text is that of its id's own tick.

        A gene takes the lowest bits of the layout's sequence: the namespace is bound to the layout without them, and
        what is shown without a key is an id of the layout as it is given.

        The format is bound to the namespace as one is to a tag by :meth:`formatted`, in the store of the sequences.
        Without such a store nothing is compared. Other parameters are those of :meth:`snowflake`.

        :raises IdsError: ``format_misfit`` where the format cannot show the ids of the layout, ``format_bound`` for
            another format, and as :meth:`snowflake`

        >>> from unalike import Ids
        >>> from unalike.formats import Format
        >>> from unalike.memory import MemoryStore
        >>> with Ids(leases=MemoryStore()) as ids:
        ...     flakes = ids.formatted_snowflake("web", "twitter", Format("{id}", gene_bits=4))
        ...     flakes.next_number(37) % 16
        5
        """
        options = {"clock": clock, "horizon_ms": horizon_ms, "ahead_max_ms": ahead_max_ms, "spread": spread}
        return waited(self._formatted_snowflake(namespace, layout, format, options))

    def renew_leases(self) -> None:
        """Has leases renewed that are due. It never waits.

        Call it once a second, or six times in a horizon if that is shorter, in a process that made its ``Ids`` with
        ``renew_leases=False`` and rarely asks for snowflakes. Ordinary calls do the same.
        """
        for flakes in self._home().flakes():
            try:
                flakes.status()
            except IdsError as error:
                log.warning("a lease was not renewed: %s", error)

    def close_idle(self, idle: float) -> int:
        """Closes the sequences that handed out nothing for so many seconds and that nobody has any more.

        It answers how many those were. Their tails go back to the store, and their memory is free.

        It is for services whose tags, sub-keys and periods come and go: they call it from a timer, and ask for
        ``ids.sequence(..)`` each time, keeping none. A sequence that somebody has, or that waits for its store, stays
        open. One that was closed is opened again by the next :meth:`sequence`, with the options that it gives.

        It never waits. Use is looked at only in these calls, so a sequence is closed after this time plus up to one
        interval between calls.

        :param idle: In seconds, 0 or more.

        >>> from unalike import Ids
        >>> from unalike.memory import MemoryStore
        >>> ids = Ids(segments=MemoryStore())
        >>> orders = ids.sequence("order")
        >>> ids.sequence("invoice").next()
        1
        >>> ids.close_idle(0)  # the orders are in use
        1
        >>> ids.close_idle(600)
        0
        >>> ids.sequence("invoice").next()
        2
        >>> ids.close()
        """
        if isinstance(idle, bool) or not isinstance(idle, (int, float)) or not idle >= 0:
            raise argument_invalid("idle", idle, "a number of seconds, 0 or more")
        home, closed = self._home(), 0
        for name in list(self._sequences):
            known = self._sequences.get(name)
            if home.life != "open":
                return closed
            if known is None or not home.is_idle(name, idle) or known.handle() is not None:
                continue
            refuse_inside(name, "section")
            end = partial(self._end_idle, home, name, idle)
            try:
                # Whoever wants the tag meanwhile waits, so that it is open once at most.
                closed += uninterrupted(partial(section, self._renewing.get(), end))
            except IdsError as error:
                log.warning("a sequence was not closed: %s", error)
        return closed

    def _end_idle(self, home: Home, name: str, idle: float) -> bool:
        known = self._sequences.get(name)
        if home.life != "open" or known is None or not home.is_idle(name, idle) or known.handle() is not None:
            return False
        ended = home.end(name)
        if ended is not False:
            del self._sequences[name]
        return ended is True

    def close(self) -> None:
        """Ends all generators and gives back what was not used: tails of segments, and leases.

        Calls that wait end with ``closed``. It takes no longer than two requests may; the work is done by one thread,
        and everybody who closes waits for it. The stores stay open. Closing twice is harmless.
        """
        if sys.is_finalizing():
            return  # whoever would do it does not run any more
        home, is_over = self._home(), _thread.allocate_lock()
        is_over.acquire()
        uninterrupted(lambda: home.close(is_over.release))
        is_over.acquire(timeout=self.closing_max)

    def __enter__(self) -> Ids:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Ids of {self._holder!r}>"

    def __reduce__(self) -> NoReturn:
        raise refused_to_pickle("Ids")

    def _home(self) -> Home:
        """What it is in this process."""
        home = self._here
        if MARK[0] == home.mark:
            return home
        with self._renewing.get():
            mark = current()
            if self._here.mark != mark:
                self._here = Home(self, mark, self._here)
            return self._here

    def _check_open(self, name: str) -> Home:
        home = self._home()
        if home.life != "open":
            raise closed(name)
        return home

    def _asked(self, name: str, **given: Any) -> tuple[Home, dict[str, Any]]:
        """Checks what a sequence is to be opened with."""
        _check_name(name)
        options = TagOptions()
        step = options.step if given["step"] is None else given["step"]
        refill = options.refill if given["refill"] is None else given["refill"]
        _check_type("step", step, (FixedStep, AdaptiveStep), "FixedStep(1_000) or an AdaptiveStep, say")
        _check_type("refill", refill, (ShareConsumed, Remaining), "ShareConsumed(10) or Remaining(500), say")
        try:
            validate_public(name)
            validate_options(name, TagOptions(step=step, refill=refill))
        except StoreError as error:
            raise caused(IdsError("store", f"no ids for {shown(name)}: {error}", name=name), error) from None
        prefetch, id_max = given["prefetch"], given["id_max"]
        if type(prefetch) is not int or not 1 <= prefetch <= 64:
            raise argument_invalid("prefetch", prefetch, "a whole number from 1 to 64")
        if id_max is not None and (type(id_max) is not int or not 1 <= id_max <= ID_MAX):
            raise argument_invalid("id_max", id_max, "a whole number from 1 to 2^63 - 1")
        if given["mode"] not in (None, "buffered", "ordered"):
            raise argument_invalid("mode", given["mode"], "'buffered' or 'ordered'")
        refuse_inside(name, "section")
        return self._check_open(name), given

    def _formatted(self, tag: str, format: Format, sub: Optional[str], given: dict[str, Any]) -> Steps[Formatted]:
        check_given(format)
        home, given = self._asked(tag if sub is None else sub_name(tag, sub), **given)
        id_max = min(given["id_max"] or ID_MAX, format.id_max)
        given = {**given, "id_max": id_max if id_max < ID_MAX else None}
        if format._options["restart"] != "never":
            # The period makes the name longer: one that is too long binds nothing.
            Periods(tag, sub, given).name(format, self._clock())
        owner, parts = FormatOwner("tag", tag), parts_of(format)
        is_known = self._formats.get(tag) == parts
        # Before anything is opened for a format that is refused.
        unbound: Parts = () if is_known else (yield from self._unbound(home, owner, parts))
        try:
            formatted = yield from self._shown(home, owner, format, sub, given, unbound)
        except IdsError as error:
            said = error.store_error
            if not unbound or said is None or said.kind != "refused":
                raise
            # Another program has bound a format meanwhile. A server then gives no numbers of the tag until this program
            # says that it has the same one. It does so here, once.
            unbound = yield from self._unbound(home, owner, parts)
            formatted = yield from self._shown(home, owner, format, sub, given, unbound)
        self._formats[tag] = parts
        return formatted

    def _shown(
        self, home: Home, owner: FormatOwner, format: Format, sub: Optional[str], given: dict[str, Any], unbound: Parts
    ) -> Steps[Formatted]:
        """Opens what the texts of a tag are made from, and binds what is not bound yet of their format."""
        tag = owner.name
        if format._options["restart"] == "never":
            sequence = yield from self._open(tag if sub is None else sub_name(tag, sub), **given)
            yield from self._bind(home, owner, unbound)
            return Formatted(self, tag, format, sequence)
        if unbound:
            # Before a period is opened: servers make periods for those whose format has them.
            _check_mode(tag, (yield from self._look_up(home, tag)), given)
            yield from self._bind(home, owner, unbound)
        formatted = Formatted(self, tag, format, Periods(tag, sub, given))
        # Whatever else may be wrong with the tag shows now.
        yield from formatted._opened(self._clock())
        return formatted

    def _formatted_snowflake(
        self, namespace: str, layout: Union[Layout, str], format: Format, options: dict[str, Any]
    ) -> Steps[Formatted]:
        check_given(format)
        _check_name(namespace)
        of = layout_shown(namespace, layout_named(layout), format)
        refuse_inside(namespace, "section")
        home, owner = self._check_open(namespace), FormatOwner("snowflake", namespace)
        unbound: Parts = ()
        if self._segments is not None:
            unbound = yield from self._unbound(home, owner, parts_of(format))
        snowflake = self.snowflake(namespace, of, **options)
        yield from self._bind(home, owner, unbound)
        return Formatted(self, namespace, format, snowflake)

    def _unbound(self, home: Home, owner: FormatOwner, parts: Parts) -> Steps[Parts]:
        """Compares a format with what the store has bound; answers what is to be bound before an id is shown."""
        what = f"comparing the format of {shown(owner.name)}"
        return self._ask_store(home, owner.name, what, lambda store: check_format(store, owner, parts))

    def _bind(self, home: Home, owner: FormatOwner, unbound: Parts) -> Steps[None]:
        def bind(store: SegmentStore) -> bool:
            bind_format(store, owner, unbound)
            return True

        if unbound:
            yield from self._ask_store(home, owner.name, f"binding the format of {shown(owner.name)}", bind)

    def _open(self, tag: str, **given: Any) -> Steps[Sequence]:
        """Opens a sequence, if it is not open."""
        home, given = self._asked(tag, **given)
        found = self._if_open(tag)
        if found is None:
            record = yield from self._look_up(home, tag)
            found = self._opened(tag, record, given)
        return self._alike(found, given)

    def _look_up(self, home: Home, tag: str) -> Steps[TagRecord]:
        return self._ask_store(home, tag, f"looking {shown(tag)} up", lambda store: store.open_tag(tag))

    def _ask_store(self, home: Home, name: str, what: str, ask: Callable[[SegmentStore], T]) -> Steps[T]:
        """What the store of the sequences answers.

        :raises IdsError: ``timeout``, ``name_invalid``, ``format_bound``, ``store``
        """
        store = self._segments

        def asked() -> T:
            if store is None:
                raise missing("segment")
            return ask(store)

        signal, wait_max = Signal(), min(self.wait_max, self.request_timeout)
        request = uninterrupted(lambda: home.storage.start(signal, what, asked))
        deadline = time.monotonic() + wait_max
        while True:
            seen = signal.version
            answer: Any = request.collect(time.monotonic())
            left = deadline - time.monotonic()
            if answer is not None or left <= 0:
                break
            yield signal, seen, left
        if answer is None:
            waited_ms = round(wait_max * 1_000)
            message = f"no ids for {shown(name)} within {waited_ms} ms: the store did not answer"
            raise IdsError("timeout", message, name=name, waited_ms=waited_ms)
        if isinstance(answer, StoreError):
            if answer.kind == "tag-invalid":
                raise caused(IdsError("name_invalid", str(answer), name=name), answer)
            kind: IdsErrorKind = "format_bound" if answer.kind == "format-bound" else "store"
            raise caused(IdsError(kind, f"no ids for {shown(name)}{because(answer)}", name=name), answer)
        found: T = answer
        return found

    def _opened(self, tag: str, record: TagRecord, given: dict[str, Any]) -> Sequence:
        """The sequence, once its tag was looked up."""
        _check_mode(tag, record, given)
        self._check_open(tag)
        return section(self._renewing.get(), self._open_once, tag, record, given)

    def _open_once(self, tag: str, record: TagRecord, given: dict[str, Any]) -> Sequence:
        # Somebody may have opened it meanwhile: a process has one buffer per tag.
        found = self._open_again(tag)
        if found is None:
            found = Sequence(self, tag, record, given)
            self._sequences[tag] = _Known(record, given, weakref.ref(found))
        return found

    def _if_open(self, tag: str) -> Optional[Sequence]:
        known = self._sequences.get(tag)
        found = None if known is None else known.handle()
        if known is None or found is not None:
            return found
        return section(self._renewing.get(), self._open_again, tag)

    def _open_again(self, tag: str) -> Optional[Sequence]:
        known = self._sequences.get(tag)
        if known is None:
            return None
        found = known.handle()
        if found is None:
            found = Sequence(self, tag, known.record, known.given)
            known.handle = weakref.ref(found)
        return found

    @staticmethod
    def _alike(found: Sequence, given: dict[str, Any]) -> Sequence:
        asked = given["mode"]
        given = {**given, "mode": found._given["mode"]}
        if found._given != given:
            raise _open_otherwise(found._name, found._given, given)
        if asked is not None and asked != found.mode:
            message = f"the tag {shown(found._name)} is {found.mode} in its store and was asked for as {asked}"
            raise IdsError("mode_bound", message, name=found._name, stored=found.mode, asked=asked)
        return found


def _check_mode(tag: str, record: TagRecord, given: dict[str, Any]) -> None:
    """:raises IdsError: ``mode_bound``"""
    stored, asked = record.options.mode, given["mode"]
    if asked is not None and asked != stored:
        message = (
            f"the tag {shown(tag)} is {stored} in its store and was asked for as {asked}: "
            "a tag has one mode for all processes"
        )
        raise IdsError("mode_bound", message, name=tag, stored=stored, asked=asked)


def check_snowflake(namespace: str, options: dict[str, Any]) -> None:
    """Has the component look at the options, in an instance that is thrown away.

    :raises IdsError:
    """

    def none(*_: Any) -> NoReturn:
        raise AssertionError("opening makes no request")

    names = ("segments.allocate", "segments.poll", "segments.release")
    more = ("leases.acquire", "leases.extend", "leases.poll", "leases.release")

    def open_one() -> Any:
        instance = CoreInstance({name: none for name in (*names, *more)})
        try:
            return instance.call("snowflake.open", namespace, {**options, "floor": 0, "seed": 0})
        except IdsError as error:
            raise as_written(error, {}) from error.__cause__
        finally:
            instance.give_up()

    opened = uninterrupted(open_one)
    if "err" in opened:
        fault = opened["err"]
        argument = fault.get("invalid-argument", "layout") if isinstance(fault, dict) else str(fault)
        if argument == "layout":
            message = f"the layout of {shown(namespace)} is not valid: its widths, epoch or tick are out of range"
            raise IdsError("layout", message, name=namespace)
        if argument == "horizon":
            raise argument_invalid("horizon_ms", options["horizon-ms"], _HORIZONS)
        expected = "1 bit to as many as the sequence has, and the sequence must be the lowest field of the layout"
        raise argument_invalid("spread", options["spread"], expected)
    if options["horizon-ms"] < _HORIZON_MIN_MS:
        raise argument_invalid("horizon_ms", options["horizon-ms"], _HORIZONS)


def _open_otherwise(name: str, options: dict[str, Any], asked: dict[str, Any]) -> IdsError:
    """Says which option differs first."""
    option = next(option for option, value in options.items() if value != asked[option])
    is_open, is_asked = _told(options[option]), _told(asked[option])
    told = f"{shown(name)} is open with {option.replace('-', '_')}={is_open}, and was asked for with {is_asked}"
    return IdsError("open_otherwise", f"{told}: open it once, and share it", name=name)


def _told(value: Any) -> str:
    """An option, or what the component is given for it."""
    if not isinstance(value, dict):
        return str(value)
    if "timestamp-bits" in value:
        return layout_text(layout_of_wit(value))
    return ", ".join(f"{case}({figure})" for case, figure in value.items())


def _check_name(name: str) -> None:
    try:
        validate_tag(name)
    except StoreError as error:
        raise caused(IdsError("name_invalid", str(error), name=str(name)[:32]), error) from None


def _check_type(argument: str, value: object, types: Any, expected: str) -> None:
    if not isinstance(value, types):
        raise argument_invalid(argument, value, expected)


def _checked(clock: Callable[[], int]) -> Callable[[], int]:
    """A clock of the user's, whose times are."""
    if not callable(clock):
        raise argument_invalid("clock", clock, "a function that answers the milliseconds since 1970")

    def now_ms() -> int:
        now, what = clock(), "what the clock answered"
        try:
            return U64.check(now, what)
        except IdsError:
            expected = "a whole number of milliseconds since 1970, such as time.time_ns() // 1_000_000"
            raise argument_invalid(what, now, expected) from None

    return now_ms


def _seconds(argument: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 86_400:
        raise argument_invalid(argument, value, "a number of seconds above 0 and up to 86400")
    return float(value)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
