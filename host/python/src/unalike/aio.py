"""The same for asyncio. Stores work in threads of the host's: the event loop never waits for one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, NoReturn, Optional, TypeVar, Union

from ._lane import Waiting
from ._process import MARK, Forked, current, uninterrupted
from ._requests import Signal, Steps
from ._values import COUNT
from .batch import Batch
from .errors import argument_invalid
from .formats import Format, Issued
from .formatted import Formatted
from .ids import Ids
from .sequence import Sequence, SequenceStatus, refused_to_pickle, sub_name
from .snowflake import Clock, Snowflake, SnowflakeStatus, Spread
from .store import Layout, LeaseStore, Mode, RefillPolicy, SegmentStore, StepPolicy

__all__ = ["AsyncFormatted", "AsyncIds", "AsyncSequence", "AsyncSnowflake"]

T = TypeVar("T")


class AsyncIds:
    """As :class:`~unalike.Ids`, for coroutines: parameters, errors and promises are the same.

    A coroutine that is cancelled loses no id of a buffered sequence: it takes one only when it goes on. It may be used
    from several event loops. A URL is opened when it is made, which waits for the store: make it before the loop runs, or
    in a thread.

    >>> import asyncio
    >>> from unalike import AsyncIds
    >>> from unalike.memory import MemoryStore
    >>> async def main() -> int:
    ...     async with AsyncIds(segments=MemoryStore()) as ids:
    ...         orders = await ids.sequence("order")
    ...         return await orders.next()
    >>> asyncio.run(main())
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
        self._ids = Ids(
            url,
            segments=segments,
            leases=leases,
            holder=holder,
            preferred_worker=preferred_worker,
            wait_max=wait_max,
            request_timeout=request_timeout,
            clock=clock,
            renew_leases=renew_leases,
        )

    @classmethod
    def of(cls, ids: Ids) -> AsyncIds:
        """The coroutines of an :class:`~unalike.Ids`, which threads use at the same time.

        :raises IdsError: ``argument_invalid``
        """
        if not isinstance(ids, Ids):
            raise argument_invalid("ids", ids, "an Ids")
        made = cls.__new__(cls)
        made._ids = ids
        return made

    async def sequence(
        self,
        tag: str,
        *,
        step: Optional[StepPolicy] = None,
        refill: Optional[RefillPolicy] = None,
        prefetch: int = 1,
        mode: Optional[Mode] = None,
        id_max: Optional[int] = None,
    ) -> AsyncSequence:
        """As :meth:`unalike.Ids.sequence`.

        :raises IdsError:
        """
        steps = self._ids._open(tag, step=step, refill=refill, prefetch=prefetch, mode=mode, id_max=id_max)
        return AsyncSequence(await _waited(steps))

    async def sequence_of(
        self,
        tag: str,
        sub: str,
        *,
        step: Optional[StepPolicy] = None,
        refill: Optional[RefillPolicy] = None,
        prefetch: int = 1,
        mode: Optional[Mode] = None,
        id_max: Optional[int] = None,
    ) -> AsyncSequence:
        """As :meth:`unalike.Ids.sequence_of`.

        :raises IdsError:
        """
        name = sub_name(tag, sub)
        return await self.sequence(name, step=step, refill=refill, prefetch=prefetch, mode=mode, id_max=id_max)

    async def snowflake(
        self,
        namespace: str,
        layout: Union[Layout, str],
        *,
        clock: Clock = Clock.keep(2_000),
        horizon_ms: int = 60_000,
        ahead_max_ms: int = 10,
        spread: Spread = Spread.none(),
    ) -> AsyncSnowflake:
        """As :meth:`unalike.Ids.snowflake`.

        :raises IdsError:
        """
        found = self._ids.snowflake(
            namespace, layout, clock=clock, horizon_ms=horizon_ms, ahead_max_ms=ahead_max_ms, spread=spread
        )
        return AsyncSnowflake(found)

    async def formatted(
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
    ) -> AsyncFormatted:
        """As :meth:`unalike.Ids.formatted`.

        :raises IdsError:
        """
        given = {"step": step, "refill": refill, "prefetch": prefetch, "mode": mode, "id_max": id_max}
        return AsyncFormatted(await _waited(self._ids._formatted(tag, format, sub, given)))

    async def formatted_snowflake(
        self,
        namespace: str,
        layout: Union[Layout, str],
        format: Format,
        *,
        clock: Clock = Clock.keep(2_000),
        horizon_ms: int = 60_000,
        ahead_max_ms: int = 10,
        spread: Spread = Spread.none(),
    ) -> AsyncFormatted:
        """As :meth:`unalike.Ids.formatted_snowflake`.

        :raises IdsError:
        """
        options = {"clock": clock, "horizon_ms": horizon_ms, "ahead_max_ms": ahead_max_ms, "spread": spread}
        return AsyncFormatted(await _waited(self._ids._formatted_snowflake(namespace, layout, format, options)))

    def renew_leases(self) -> None:
        """As :meth:`unalike.Ids.renew_leases`: it never waits."""
        self._ids.renew_leases()

    def close_idle(self, idle: float) -> int:
        """As :meth:`unalike.Ids.close_idle`: it never waits.

        :raises IdsError: ``argument_invalid``
        """
        return self._ids.close_idle(idle)

    async def close(self) -> None:
        """As :meth:`unalike.Ids.close`. It goes on if its coroutine is cancelled."""
        loop = asyncio.get_running_loop()
        ended = loop.create_future()
        home = self._ids._home()
        uninterrupted(lambda: home.close(lambda: _soon(loop, ended)))
        await asyncio.wait([ended], timeout=self._ids.closing_max)

    async def __aenter__(self) -> AsyncIds:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<Async{repr(self._ids)[1:]}"

    def __reduce__(self) -> NoReturn:
        raise refused_to_pickle("AsyncIds")


class AsyncSequence:
    """As :class:`~unalike.Sequence`, for coroutines."""

    __slots__ = ("_sequence",)

    def __init__(self, sequence: Sequence) -> None:
        self._sequence = sequence

    @property
    def tag(self) -> str:
        """The tag."""
        return self._sequence.tag

    @property
    def sub(self) -> Optional[str]:
        """The sub-key, if it is the sequence of one."""
        return self._sequence.sub

    @property
    def mode(self) -> Mode:
        """``buffered`` or ``ordered``."""
        return self._sequence.mode

    async def next(self) -> int:
        """The next id.

        :raises IdsError:
        """
        sequence = self._sequence
        here = sequence._here
        id = next(here.ids, 0)
        # Looked at last of all, as in Sequence.next.
        if id and MARK[0] == here.mark:
            return id
        waited: int = await _run(sequence._now().waiting(None, sequence._ids.wait_max))
        return waited

    def try_next(self) -> Optional[int]:
        """As :meth:`unalike.Sequence.try_next`.

        :raises IdsError:
        """
        return self._sequence.try_next()

    async def take(self, count: int) -> Batch:
        """``count`` ids, 1 to 2^32 - 1, all or none.

        :raises IdsError:
        """
        sequence = self._sequence
        counted = COUNT.check(count, "count")
        batch: Batch = await _run(sequence._now().waiting(counted, sequence._ids.wait_max))
        return batch

    def status(self) -> SequenceStatus:
        """Figures for metrics.

        :raises IdsError:
        """
        return self._sequence.status()

    async def __aiter__(self) -> AsyncIterator[int]:
        """Ids without end."""
        while True:
            yield await self.next()

    def __repr__(self) -> str:
        return f"<Async{repr(self._sequence)[1:]}"

    def __reduce__(self) -> NoReturn:
        raise refused_to_pickle("AsyncSequence")


class AsyncSnowflake:
    """As :class:`~unalike.Snowflake`, for coroutines."""

    __slots__ = ("_snowflake",)

    def __init__(self, snowflake: Snowflake) -> None:
        self._snowflake = snowflake

    @property
    def namespace(self) -> str:
        """The lease namespace."""
        return self._snowflake.namespace

    @property
    def layout(self) -> Layout:
        """The layout of the ids."""
        return self._snowflake.layout

    async def next(self) -> int:
        """The next id.

        :raises IdsError:
        """
        snowflake = self._snowflake
        here = snowflake._here
        id = snowflake._next_here(here)
        # Looked at last of all, as in Sequence.next.
        if id and MARK[0] == here.mark:
            return id
        waited: int = await _run(snowflake._now().waiting(None, snowflake._ids.wait_max))
        return waited

    def try_next(self) -> Optional[int]:
        """As :meth:`unalike.Snowflake.try_next`.

        :raises IdsError:
        """
        return self._snowflake.try_next()

    async def take(self, count: int) -> Batch:
        """``count`` ids, 1 to 2^32 - 1, all or none.

        :raises IdsError:
        """
        snowflake = self._snowflake
        counted = COUNT.check(count, "count")
        batch: Batch = await _run(snowflake._now().waiting(counted, snowflake._ids.wait_max))
        return batch

    def status(self) -> SnowflakeStatus:
        """Figures for metrics.

        :raises IdsError:
        """
        return self._snowflake.status()

    async def __aiter__(self) -> AsyncIterator[int]:
        """Ids without end."""
        while True:
            yield await self.next()

    def __repr__(self) -> str:
        return f"<Async{repr(self._snowflake)[1:]}"

    def __reduce__(self) -> NoReturn:
        raise refused_to_pickle("AsyncSnowflake")


class AsyncFormatted:
    """As :class:`~unalike.Formatted`, for coroutines."""

    __slots__ = ("_formatted",)

    def __init__(self, formatted: Formatted) -> None:
        self._formatted = formatted

    @property
    def name(self) -> str:
        """The tag or the namespace."""
        return self._formatted.name

    @property
    def format(self) -> Format:
        """How they are shown."""
        return self._formatted.format

    async def next(self, shard_key: Optional[int] = None) -> str:
        """As :meth:`unalike.Formatted.next`.

        :raises IdsError:
        """
        mark = current()
        texts = self._formatted._written(*await self._taken(1, shard_key), shard_key)
        # Looked at last of all, as in Sequence.next.
        if MARK[0] != mark:
            raise Forked
        return texts[0]

    async def take(self, count: int, shard_key: Optional[int] = None) -> list[str]:
        """As :meth:`unalike.Formatted.take`.

        :raises IdsError:
        """
        mark = current()
        texts = self._formatted._written(*await self._taken(count, shard_key), shard_key)
        # Looked at last of all, as in Sequence.next.
        if MARK[0] != mark:
            raise Forked
        return texts

    async def next_number(self, shard_key: Optional[int] = None) -> int:
        """As :meth:`unalike.Formatted.next_number`.

        :raises IdsError:
        """
        self._formatted._check_numbers()
        mark = current()
        numbers = self._formatted._numbered(*await self._taken(1, shard_key), shard_key)
        # Looked at last of all, as in Sequence.next.
        if MARK[0] != mark:
            raise Forked
        return numbers[0]

    async def take_numbers(self, count: int, shard_key: Optional[int] = None) -> list[int]:
        """As :meth:`unalike.Formatted.take_numbers`.

        :raises IdsError:
        """
        self._formatted._check_numbers()
        mark = current()
        numbers = self._formatted._numbered(*await self._taken(count, shard_key), shard_key)
        # Looked at last of all, as in Sequence.next.
        if MARK[0] != mark:
            raise Forked
        return numbers

    def read(self, text: str) -> Issued:
        """As :meth:`unalike.Formatted.read`.

        :raises IdsError: ``format``
        """
        return self._formatted.read(text)

    def __repr__(self) -> str:
        return f"<Async{repr(self._formatted)[1:]}"

    def __reduce__(self) -> NoReturn:
        raise refused_to_pickle("AsyncFormatted")

    async def _taken(self, count: int, shard_key: Optional[int]) -> tuple[Batch, int]:
        formatted = self._formatted
        counted = formatted._checked(count, shard_key)
        began, now_ms = time.monotonic(), formatted._ids._clock()
        source = await _waited(formatted._opened(now_ms))
        batch: Batch = await _run(source._now().waiting(counted, formatted._left(began)))
        return batch, now_ms


async def _waited(steps: Steps[T]) -> T:
    """Does the steps, and waits in a coroutine."""
    while True:
        try:
            waits = next(steps)
        except StopIteration as ended:
            answer: T = ended.value
            return answer
        await _wait(*waits)


async def _run(waiting: Waiting[T]) -> T:
    """Waits in a coroutine. Between the step that brings a result and its return nothing can be cancelled.

    :raises Forked: in a child, whose parent the result is
    """
    try:
        while True:
            waits = waiting.step()
            if waits is None:
                break
            await _wait(*waits)
    finally:
        waiting.leave()
    # Looked at last of all, as in Sequence.next: no handler runs while a coroutine returns.
    if MARK[0] != waiting.mark:
        raise Forked
    return waiting.result  # type: ignore[return-value]


async def _wait(signal: Signal, seen: int, seconds: float) -> None:
    loop = asyncio.get_running_loop()
    woken: asyncio.Future[None] = loop.create_future()
    if not signal.add(woken, lambda: _soon(loop, woken), seen):
        return
    timer = loop.call_later(seconds, _set, woken)
    try:
        await woken
    finally:
        timer.cancel()
        signal.remove(woken)


def _soon(loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any]) -> None:
    try:
        loop.call_soon_threadsafe(_set, future)
    except RuntimeError:
        pass  # the loop has ended, and nobody waits in it


def _set(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_result(None)
