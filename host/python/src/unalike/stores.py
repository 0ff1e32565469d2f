"""Any store by its URL, as the ``unalike`` command and its server open it: the host in Rust talks to it."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, Optional, TypeVar, Union

from ._forks import closed_at_forks, dropped, gate
from ._given import text_given
from ._library import native
from ._plain import Asked, layout_parts, option_parts, record
from ._process import MARK, ProcessLock, current, uninterrupted_calls
from .errors import IdsError
from .lease_rules import validate_acquire, validate_extend
from .store import (
    FormatOwner,
    FormatPart,
    KeyPart,
    Lease,
    LeaseAcquire,
    LeaseExtend,
    Segment,
    StoreError,
    TagOptions,
    TagRecord,
    TailRelease,
    split_tag,
    validate_allocate,
    validate_binding,
    validate_options,
    validate_public,
    validate_release,
    validate_tag,
)

if TYPE_CHECKING:
    from . import _native

__all__ = ["Store"]

S = TypeVar("S", bound="Store")
T = TypeVar("T")

_U32_MAX: Final = 2**32 - 1
_U64_MAX: Final = 2**64 - 1
_U128_MAX: Final = 2**128 - 1

_SQLITE: Final = "sqlite://"
_NO_URL: Final = re.compile("[?#]|%[0-9a-fA-F]{2}")
"""What is in no path of such a URL."""
_CLOSED: Final = -1
"""The mark of no process."""


@uninterrupted_calls
class Store:
    """Segments and leases in the store that a URL names, for any number of threads.

    ``mysql://ids@db.example/ids``, ``postgres://ids@db.example/ids``, ``etcd://host:2379``,
    ``redis+sentinel://h1:26379,h2:26379/ids`` above a durable store, and all others that the ``unalike`` command knows,
    with the same parameters. A list of URLs is a set of stores, its stripes.

    A request whose answer is lost counts as done, and what it granted is never offered again. A child of a fork opens
    connections of its own. What :class:`unalike.sqlite.SqliteStore` says of processes is true of ``sqlite://PATH``.

    :param url: Where the store is, or the stripes of a set in their order. A password belongs into the parameter
        ``password-file`` or ``password-env``.
    :param backing: The URL of the durable store behind one in Redis; ``"none"`` if there is none, and ids are only as
        safe as that Redis is.
    :param leases: The URL of the store that leases workers, or ``"none"``. By default the durable store of the
        sequences; none for a set of stores.
    :param token: For unalike servers, with the scope ``lease``.
    :param create_tags: Whether tags are created by their first use. By default they are in a store of unalike's own.
    :param tags_max: How many tags there may be, sub-keys not counted.
    :param lease_horizon_max_ms: How far ahead of the store's clock a lease may reach: 1 ms to 366 days.
    :param lease_skew_max_ms: How far a holder's clock may be from the store's, up to an hour.
    :raises StoreError: ``unavailable`` when the store does not answer; ``refused`` when it denies access, when grants
        cannot rest on it, and for options that are wrong. Each says what to do.

    >>> from unalike import Ids
    >>> from unalike.stores import Store
    >>> store = Store("postgres://ids@db.example/ids?password-env=DB_PASSWORD")  # doctest: +SKIP
    >>> ids = Ids(segments=store, leases=store)  # doctest: +SKIP
    """

    # The durable store below one in Redis, where it is not named by a URL.
    _own: Optional[Asked] = None

    def __init__(
        self,
        url: Union[str, Sequence[str]],
        *,
        backing: Optional[str] = None,
        leases: Optional[str] = None,
        token: Optional[str] = None,
        create_tags: Optional[bool] = None,
        tags_max: int = 1_000_000,
        lease_horizon_max_ms: int = 600_000,
        lease_skew_max_ms: int = 10_000,
    ) -> None:
        if isinstance(url, Sequence) and not isinstance(url, (str, bytes)):
            place: Any = [text_given("the address of a stripe", one) for one in url]
        else:
            place = text_given("the address", url)
        options = {
            "store": place,
            "backing": backing,
            "leases": leases,
            "token": token,
            "create_tags": create_tags,
            "tags_max": tags_max,
            "lease_horizon_max_ms": lease_horizon_max_ms,
            "lease_skew_max_ms": lease_skew_max_ms,
        }
        options = {name: value for name, value in options.items() if value is not None}
        self._files: Final = [_File(url) for url in _urls(place, backing, leases) if _is_file(url)]
        try:
            self._options: Final = json.dumps(options)
        except (TypeError, ValueError):
            # Not in the words of the module, which may show a password.
            what = "texts, backing, leases and token too, create_tags True or False, and all others whole numbers"
            raise StoreError("refused", f"the options of the store cannot be used: addresses must be {what}") from None
        self._opening: Final = ProcessLock()
        self._is_closed = False
        # What a process inherits is kept, and left alone.
        self._inherited: Final[list[_Opened]] = []
        # Whether the newest answers of one with files were refusals.
        self._is_refused = False
        self._opened: Optional[_Opened] = None
        try:
            with self._inside():
                opened = self._opened = self._open(self._options)
                if self._files:
                    closed_at_forks(self)
        finally:
            _log_warnings()
        # The shapes of formats that were bound here to tags. Requests to a server name them.
        self._shapes: Final[dict[str, int]] = {}
        # How often they were opened anew, and why that failed.
        self._tries = 0
        self._failure: Optional[StoreError] = None
        self._address: Final = opened.stores.address() or "the store"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._address!r})"

    def __reduce__(self) -> NoReturn:
        name = type(self).__name__
        what = "it holds connections, and may hold a password. Make one in each process"
        raise TypeError(f"a {name} cannot be pickled or copied: {what}")

    def __enter__(self: S) -> S:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def address(self) -> str:
        """Where it is, for messages: host, port and database."""
        return self._address

    def allocate(self, tag: str, count: int, at_least: int) -> Segment:
        """Grants numbers: :meth:`unalike.store.SegmentStore.allocate`."""
        validate_allocate(tag, count, at_least)
        self._check_name(tag)
        return Segment(*self._ask(lambda stores: stores.allocate(tag, count, at_least), tag=tag))

    def release(self, tag: str, tail: TailRelease) -> bool:
        """Takes numbers back: :meth:`unalike.store.SegmentStore.release`."""
        self._check_name(tag)
        validate_release(tag, tail)
        if not (1 <= tail.start <= _U64_MAX and 0 <= tail.version <= _U64_MAX):
            return False
        return self._ask(lambda stores: stores.release(tag, tail.start, tail.version), tag=tag)

    def open_tag(self, tag: str) -> TagRecord:
        """The tag as the store keeps it: :meth:`unalike.store.SegmentStore.open_tag`."""
        self._check_name(tag)
        return record(tag, *self._ask(lambda stores: stores.open_tag(tag), tag=tag))

    def create_tag(self, tag: str, options: Optional[TagOptions] = None) -> TagRecord:
        """Creates a tag, whatever is said of first use; the limit of tags applies.

        :raises StoreError: ``tag-exists``, ``tag-limit``, ``tag-invalid``, and any error of the connection.
        """
        options = TagOptions() if options is None else options
        validate_options(tag, options)
        validate_public(tag)
        parts = option_parts(options)
        return record(tag, *self._ask(lambda stores: stores.create_tag(tag, parts)))

    def bind_format(self, owner: FormatOwner, part: FormatPart, first: Optional[int]) -> Optional[int]:
        """What is bound of a format: :meth:`unalike.store.SegmentStore.bind_format`."""
        validate_binding(owner, part, first)
        key = (part.id, part.bits) if isinstance(part, KeyPart) else None

        def bind(stores: _native.Stores) -> Optional[int]:
            bound = stores.bind_format(owner.kind, owner.name, key, first)
            if owner.kind == "tag" and key is None and first is not None and bound == first:
                self._shapes[owner.name] = first
                opened = self._opened
                if opened is not None and opened.stores is stores:
                    opened.bound.add(owner.name)
            return bound

        return self._ask(bind)

    def identity(self) -> Optional[str]:
        """The random name of the store's data: :meth:`unalike.store.SegmentStore.identity`."""
        return self._ask(lambda stores: stores.identity())

    def acquire(self, request: LeaseAcquire) -> Lease:
        """Grants a worker: :meth:`unalike.store.LeaseStore.acquire`."""
        validate_acquire(request)
        layout = layout_parts(request.layout)
        return Lease(
            *self._ask(
                lambda stores: stores.acquire(
                    request.namespace,
                    layout,
                    request.holder,
                    request.preferred_worker,
                    request.now_ms,
                    request.horizon_ms,
                ),
                "leases",
            )
        )

    def extend(self, request: LeaseExtend) -> Lease:
        """Moves the end of a running lease: :meth:`unalike.store.LeaseStore.extend`."""
        validate_extend(request)
        if not (0 <= request.worker <= _U32_MAX and 0 <= request.grant_id <= _U128_MAX):
            raise StoreError("lease-lost", f"worker {request.worker} of {request.namespace!r} was never leased so")
        layout = layout_parts(request.layout)
        return Lease(
            *self._ask(
                lambda stores: stores.extend(
                    request.namespace, layout, request.worker, request.grant_id, request.now_ms, request.horizon_ms
                ),
                "leases",
            )
        )

    def release_lease(self, namespace: str, worker: int, grant_id: int, end_ms: int) -> bool:
        """Ends a lease: :meth:`unalike.store.LeaseStore.release_lease`."""
        if not (0 <= worker <= _U32_MAX and 0 <= grant_id <= _U128_MAX and 0 <= end_ms <= _U64_MAX):
            return False
        return self._ask(lambda stores: stores.release_lease(namespace, worker, grant_id, end_ms), "leases")

    def lease_identity(self) -> Optional[str]:
        """As :meth:`identity`, of the leases."""
        return self._ask(lambda stores: stores.lease_identity(), "leases")

    def leave_leases(self, namespace: str) -> None:
        """Notes that a Redis keeps the leases of a namespace, unless this store does."""
        self._ask(lambda stores: stores.leave_leases(namespace))

    def close(self) -> None:
        """Closes the connections. Not needed for safety. Requests fail from then on."""
        self._is_closed = True
        # Whoever is opening the stores of a child closes them then.
        with self._inside(), self._opening.get():
            opened = self._opened
            # A child of a fork may have none yet.
            if opened is not None and MARK[0] == opened.mark:
                opened.stores.close()
                opened.has_files = False

    def _ask(
        self,
        ask: Callable[[_native.Stores], T],
        part: Literal["store", "leases"] = "store",
        tag: Optional[str] = None,
    ) -> T:
        try:
            with self._inside():
                opened = self._here()
                if tag is not None:
                    self._bind_again(opened, split_tag(tag)[0])
                answer = ask(opened.stores)
                self._check_answer(opened, part)
                return answer
        except StoreError as error:
            self._is_refused = self._is_refused or error.kind == "refused"
            # It may have been closed meanwhile.
            if self._is_closed and error.kind == "unavailable":
                raise self._closed() from error
            raise
        except (OverflowError, TypeError, ValueError) as error:
            raise StoreError("refused", f"{self._address} was asked for what no store can grant: {error}") from error
        finally:
            _log_warnings()

    def _here(self) -> _Opened:
        """Those of this process."""
        if self._is_closed:
            raise self._closed()
        opened = self._opened
        if opened is not None and MARK[0] == opened.mark:
            return opened
        tries = self._tries
        with self._opening.get():
            if self._is_closed:
                raise self._closed()
            opened = self._opened
            if opened is None or opened.mark != current():
                failure = self._failure
                if self._tries > tries and failure is not None:
                    # Another thread tried meanwhile, for this one as well.
                    raise StoreError(failure.kind, str(failure))
                self._tries += 1
                self._failure = None
                try:
                    anew = self._open(self._options_anew())
                except StoreError as error:
                    self._failure = error
                    raise
                if opened is not None and opened.mark != _CLOSED:
                    self._inherited.append(opened)
                opened = self._opened = anew
            return opened

    def _open(self, options: str) -> _Opened:
        """Opens them: the very files that they had before."""
        for file in self._files:
            file.check()
        opened = _Opened(options, self._own)
        opened.has_files = bool(self._files)
        for file in self._files:
            file.check(is_open=True)
        return opened

    def _inside(self) -> AbstractContextManager[None]:
        """Where no fork interrupts one with files."""
        return gate() if self._files else nullcontext()

    def _close_for_fork(self) -> None:
        """Called when no thread is inside. Nothing of SQLite is open then: the next request opens it anew."""
        opened = self._opened
        if opened is None or opened.mark != MARK[0]:
            return
        if self._is_refused:
            try:
                opened.stores.identity()
                self._is_refused = False
            except StoreError as error:
                if error.kind == "refused":
                    # One that has lost its file grants nothing any more, also when that is put back.
                    return
        # First: a handler of a signal may interrupt this, and what it left open is closed as one that was dropped is.
        opened.mark = _CLOSED
        opened.stores.close()
        opened.has_files = False

    def _bind_again(self, opened: _Opened, tag: str) -> None:
        """Tells stores that were opened anew in which format a tag is shown."""
        shape = self._shapes.get(tag)
        if shape is not None and tag not in opened.bound:
            opened.stores.bind_format("tag", tag, None, shape)
            opened.bound.add(tag)

    def _options_anew(self) -> str:
        if not self._files:
            return self._options
        anew = {file.url: file.url_anew for file in self._files}
        options = json.loads(self._options)
        for name in ("store", "backing", "leases"):
            urls = options.get(name)
            if isinstance(urls, list):
                options[name] = [anew.get(url, url) for url in urls]
            elif urls is not None:
                options[name] = anew.get(urls, urls)
        return json.dumps(options)

    def _check_name(self, tag: str) -> None:
        validate_tag(tag)

    def _check_answer(self, opened: _Opened, part: Literal["store", "leases"]) -> None:
        """Called with those that answered, before anybody gets the answer."""

    def _closed(self) -> StoreError:
        return StoreError("refused", f"{self._address}: the store was closed")


def _urls(*given: object) -> list[str]:
    urls = (url for urls in given for url in (urls if isinstance(urls, list) else [urls]))
    return [url for url in urls if isinstance(url, str)]


def _is_file(url: str) -> bool:
    return url.startswith(_SQLITE)


class _File:
    """A file of SQLite, which is the same whenever it is opened again."""

    def __init__(self, url: str) -> None:
        self.url: Final = url
        path, _, query = url[len(_SQLITE) :].partition("?")
        whole = path
        if not os.path.isabs(path):
            try:
                whole = os.path.join(os.getcwd(), path)
            except OSError:
                # The host refuses it.
                pass
        # Whatever the working directory is by then, unless that cannot be part of a URL.
        self._path: Final = path if _NO_URL.search(whole) else whole
        self.url_anew: Final = f"{_SQLITE}{self._path}?{query}{'&' if query else ''}create=false"
        self._found: Optional[tuple[int, int]] = None
        self._pin: Optional[_Pin] = None

    def check(self, is_open: bool = False) -> None:
        """Looks whether it is the one that it was, if it was ever open. A look opens nothing.

        :raises StoreError: ``refused``
        """
        try:
            found = os.stat(self._path)
        except (OSError, ValueError):
            what = "was deleted or moved" if self._found or is_open else None
        else:
            if is_open and self._found is None:
                self._pin = _Pin.of(self._path)
                self._found = found.st_dev, found.st_ino
            what = "was replaced" if self._found not in (None, (found.st_dev, found.st_ino)) else None
        if what is not None:
            raise StoreError(
                "refused",
                f"{self._path} {what} while this process had it open: whoever opens the store now would be granted "
                "numbers that were granted before, so this process grants none any more. Stop all programs that use "
                "the store. If the file is there under another name, move it back, with its -wal and -shm, and start them "
                "again. If it is lost, put a backup or a new store there (unalike tags create), and run `unalike store "
                "restored --lift COUNT` before any program uses it",
            )


class _Pin:
    """Keeps a file's number from another file, which a system may give it once the file is deleted: while nothing is
    open for a fork, the number is what tells the file. It reads nothing, and takes no lock away when it goes.
    """

    def __init__(self, number: int, is_pin: Callable[[], int]) -> None:
        self._number: Final = number
        self._is_pin: Final = is_pin

    @classmethod
    def of(cls, path: str) -> Optional[_Pin]:
        """:raises StoreError: ``unavailable``"""
        flag = getattr(os, "O_PATH", None)
        if flag is None:
            return None
        import fcntl

        try:
            number = os.open(path, flag | os.O_CLOEXEC)
            return cls(number, lambda: fcntl.fcntl(number, fcntl.F_GETFL) & flag)
        except OSError as error:
            raise StoreError("unavailable", f"{path} cannot be kept from being replaced unseen: {error}") from error

    def __del__(self) -> None:
        try:
            # Whoever closed it has given its number to another file, perhaps: to one of SQLite's, say.
            if self._is_pin():
                os.close(self._number)
        except (OSError, TypeError, AttributeError):
            # It is closed, or the interpreter ends.
            pass


class _Opened:
    """The stores that one process opened."""

    __slots__ = ("bound", "checked", "has_files", "mark", "stores")

    def __init__(self, options: str, own: Optional[Asked]) -> None:
        # Whether files of SQLite are open.
        self.has_files = False
        self.mark = current()
        self.stores: _native.Stores = _library().Stores(options, own)
        # The parts whose answers need not be looked at again.
        self.checked: set[str] = set()
        # The tags of which they know in which format they are shown.
        self.bound: set[str] = set()

    def __del__(self) -> None:
        if self.has_files and self.mark in (MARK[0], _CLOSED):
            dropped(self.stores.close)


def _library() -> Any:
    """The library of the Rust host, which the package is built with.

    :raises StoreError: ``refused``
    """
    try:
        return native()
    except IdsError as error:
        raise StoreError("refused", str(error)) from error.__cause__


def _log_warnings() -> None:
    """Logs what the stores warned of. Called where this thread holds no lock that a handler could wait for."""
    try:
        for part, level, message in _library().warnings():
            logging.getLogger(part).log(level, "%s", message)
    except Exception:  # noqa: BLE001, a fault of whoever logs takes no grant away
        pass
