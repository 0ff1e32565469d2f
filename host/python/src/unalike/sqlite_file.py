"""The connections of one process to a store's file, and whether that is still the file that others find.

Whoever deletes, moves or replaces the file of a store, or one of the two beside it, leaves the programs that have it
open with files that nobody else sees. They and a program that opens what is there now would be granted the same
numbers. So every grant is followed by a look, by name, at the files: while those that are open are found, whoever
comes later opens these, and what was committed before the look is in them. The connections stay open until the store
is closed, so the log (``-wal``) and its index (``-shm``) stay the same files, and another one under either name is an
operator's doing.

The file is opened by no means but SQLite's: closing a file drops all locks that this process holds on it. Whether some
other code did that is looked at, too (``sqlite_locks``).

A child of a fork inherits SQLite's memory, which says that this process holds the locks by which others see that the
file is in use: they are the parent's, and go with it. It also says which descriptors are the file's. So a child first
looks whether it still has these, and takes the locks itself before it opens the file (:func:`_adopt`). A fork waits
until no thread is inside SQLite, whose mutexes a child could otherwise find taken for ever. After a fork that Python
does not hear of, no file that was open is used.
"""

from __future__ import annotations

import ctypes
import os
import sqlite3
import stat
import threading
import time
from collections import deque
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO, Final, Iterator, Mapping, NamedTuple, Optional, Sequence, Union

from . import _process
from ._requests import Signal
from .lease_rules import ClockSteps, Expiry
from .sqlite_locks import IN_USE_LOCKS, Descriptors, File, Mark, Watch, descriptors, file_of, open_twice
from .store import StoreError, StoreErrorKind

APPLICATION_ID: Final = 0x756E_616C
"""Marks the file as unalike's, in its header: "unal" in ASCII."""
USER_VERSION: Final = 2
"""The version of the schema, in the file's header."""
USER_VERSION_BEFORE: Final = 1
"""The version before, which ``upgrade`` makes into this one."""
OLDEST_SQLITE: Final = (3, 37, 0)
"""The first with STRICT tables, which the schema has."""
_RETRY_S: Final = 0.005
"""How long to wait for another process that is just creating the file, before the next look at it."""

_FORK_WAITS_S: Final = 30.0
"""For how long a fork waits for a thread that is inside SQLite, and a thread for a fork."""

Arguments = Sequence[Union[str, int, bytes, None]]


def _read_statements() -> Mapping[str, str]:
    here = Path(__file__).parent
    # In a package the files lie beside the code; in a checkout they are where the Rust adapter has them.
    for place in (here / "sql" / "sqlite", here / "../../../../adapters/sqlite/src/sql"):
        read = {file.stem: file.read_text(encoding="utf-8") for file in place.glob("*.sql")}
        if read:
            return MappingProxyType(read)
    raise RuntimeError("the folder sql/sqlite is missing beside the code: install the package again")


SQL: Final = _read_statements()
"""The very statements of the Rust adapter, by the names of their files."""


class Reader:
    """A transaction that only reads, all of it at one instant. It keeps nobody from writing."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def rows(self, sql: str, args: Arguments = ()) -> list[sqlite3.Row]:
        rows: list[sqlite3.Row] = self._connection.execute(sql, args).fetchall()
        return rows


class _Gate:
    """Lets any number of threads into SQLite, and none while this process forks.

    Whoever enters says so first and looks for forks afterwards; a fork says so first and looks for threads afterwards.
    """

    def __init__(self) -> None:
        self.held_lock = threading.Lock()
        """For the files that are held."""
        self._inside: dict[int, int] = {}
        """How deep each thread is inside."""
        self._forking: set[int] = set()
        self._changed = Signal()

    def __enter__(self) -> None:
        mark, thread = _process.current(), threading.get_ident()
        deadline = time.monotonic() + _FORK_WAITS_S
        depth = self._inside.get(thread, 0)
        while True:
            seen = self._changed.version
            self._inside[thread] = depth + 1
            left = deadline - time.monotonic()
            # Whoever is inside already goes on: the fork waits for it.
            if depth or not self._forking or left <= 0:
                return
            self._leave(thread)
            self._changed.wait(seen, left, mark)

    def __exit__(self, *_: object) -> None:
        self._leave(threading.get_ident())

    def _leave(self, thread: int) -> None:
        depth = self._inside.get(thread, 0)
        if depth > 1:
            self._inside[thread] = depth - 1
        else:
            self._inside.pop(thread, None)
        if self._forking:
            self._changed.wake()

    def before_fork(self) -> None:
        """Waits for those inside. Each of them ends, at the latest after the busy timeout; one that a disk holds up for
        longer does not hold the fork up, and its child cannot use the file.
        """
        mark, own = _process.current(), threading.get_ident()
        deadline = time.monotonic() + _FORK_WAITS_S
        self._forking.add(own)
        while True:
            seen, left = self._changed.version, deadline - time.monotonic()
            if left <= 0 or all(thread == own for thread in list(self._inside)):
                return
            self._changed.wait(seen, left, mark)

    def after_fork(self) -> None:
        self._forking.discard(threading.get_ident())
        self._changed.wake()


_GATE = _Gate()


class _Held:
    """The files of a store that this process has open."""

    def __init__(self, files: tuple[File, ...], watch: Watch) -> None:
        self.files: Final = files
        self.watch: Final = watch
        self.count = 0
        """How often."""
        self.loss: Optional[tuple[str, str]] = None
        """Which name lost its file, and how. What others were granted since is in no file that is put back."""


class _Inherited(NamedTuple):
    """The files of a store that was open when this process was forked."""

    files: tuple[File, ...]
    descriptors: Optional[Descriptors]
    """Those of its parent at the fork, which this process has, too. None if they cannot be told."""
    is_announced: bool
    """Whether Python heard of the fork."""


class _Holding:
    """What one :class:`Opened` has, until all its connections are closed."""

    def __init__(self, real: str) -> None:
        self.real: Final = real
        self.file: Optional[File] = None
        self.watch: Optional[Watch] = None
        self.links = 0
        self.is_over = False
        self.is_kept = False
        """SQLite closes nothing any more: that would close files of others, or drop their locks."""

    def may_close(self) -> bool:
        self.is_kept = self.is_kept or not (self.watch is None or self.watch.is_sound())
        return not self.is_kept


_held: Final[dict[File, _Held]] = {}
"""What this process has open, by the first file of each store."""
_marks: Final[dict[str, tuple[int, Optional[Mark]]]] = {}
"""How often a path is open, or about to be, and what tells others so."""
_inherited: Final[dict[File, _Inherited]] = {}
"""What its parents had open when they forked."""
_adopted: Final[dict[File, list[BinaryIO]]] = {}
"""Files that stay open as long as this process lives, by the first file of each store: they have its locks."""
_kept: Final[list[object]] = []
"""What must not be closed in this process."""
_lost: Final[dict[str, str]] = {}
"""Why a path is not opened in this process any more."""
_dropped: Final[deque[_Holding]] = deque()
"""What was collected as garbage, at an instant when no lock could be taken."""
_at_fork: Final[dict[int, dict[File, Optional[Descriptors]]]] = {}
"""What is open, by the thread that is forking."""
_owner: Final = [_process.current()]
"""The process that all of this is of."""


def _let_go(holding: _Holding) -> None:
    """After the last connection was closed, with the lock."""
    if holding.is_over:
        return
    holding.is_over = True
    held = None if holding.file is None else _held.get(holding.file)
    if held is not None and holding.file is not None:
        held.count -= 1
        if not held.count:
            del _held[holding.file]
    count, mark = _marks.pop(holding.real)
    if count > 1:
        _marks[holding.real] = (count - 1, mark)
    elif mark is not None:
        mark.remove()


def _sweep() -> None:
    while _dropped:
        _let_go(_dropped.popleft())


def _before_fork() -> None:
    _notice_fork()
    _GATE.before_fork()
    if _GATE.held_lock.acquire(timeout=_FORK_WAITS_S):
        try:
            _sweep()
            _at_fork[threading.get_ident()] = {file: held.watch.descriptors() for file, held in _held.items()}
        finally:
            _GATE.held_lock.release()


def _after_fork_in_parent() -> None:
    _at_fork.pop(threading.get_ident(), None)
    _GATE.after_fork()


def _in_child() -> None:
    _begin_as_child(_at_fork.get(threading.get_ident(), {}), is_announced=True)


def _notice_fork() -> None:
    """A fork that Python did not hear of waited for no thread, so SQLite's mutexes may be taken for ever."""
    if _owner[0] != _process.current():
        for file, before in list(_inherited.items()):
            _inherited[file] = before._replace(descriptors=None, is_announced=False)
        _begin_as_child({}, is_announced=False)


def _begin_as_child(seen: Mapping[File, Optional[Descriptors]], is_announced: bool) -> None:
    global _GATE
    # Of the parent's threads only this one is here.
    _GATE = _Gate()
    _inherited.update((file, _Inherited(held.files, seen.get(file), is_announced)) for file, held in _held.items())
    # The locks of its files are the parent's.
    _kept.extend(_adopted.values())
    for of_parent in (_held, _marks, _adopted, _at_fork):
        of_parent.clear()
    _dropped.clear()
    _owner[0] = _process.current()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_in_child)


def _begin(path: str) -> _Holding:
    """Before SQLite looks at the file.

    :raises StoreError: ``refused`` when another copy of SQLite has it open in this process, or may have.
    """
    holding = _Holding(os.path.realpath(path))
    with _GATE.held_lock:
        _sweep()
        if holding.real in _lost:
            raise StoreError("refused", _lost[holding.real])
        count, mark = _marks.get(holding.real, (0, None))
        _marks[holding.real] = (count + 1, mark if count else Mark.of(holding.real))
    try:
        if os.path.exists(path):
            _adopt(path)
            _look_for_others(path, holding.real)
    except BaseException:
        with _GATE.held_lock:
            _let_go(holding)
        raise
    return holding


def _look_for_others(path: str, real: str) -> None:
    """SQLite empties the index when it sees nobody else's lock, and it does not see those of its own process."""
    index = f"{real}-shm"
    if os.name == "nt" or not os.path.exists(index):
        return
    file = _look_at(path)
    with _GATE.held_lock:
        held = _held.get(file)
        if held is not None:
            held.watch.check_alone()
        elif _marks[real][0] == 1:
            seen = descriptors([_look_at(index)])
            if seen is not None and set(seen.of) - _known_index(file):
                raise open_twice(index)


def _known_index(file: File) -> frozenset[int]:
    """The descriptors of the index that are no other copy's."""
    held, inherited = _held.get(file), _inherited.get(file)
    if held is not None:
        return held.watch.index
    if inherited is None or inherited.descriptors is None:
        return frozenset()
    of_parent = (number for number, of in inherited.descriptors.of.items() if of == inherited.files[2])
    return frozenset((*of_parent, *(adopted.fileno() for adopted in _adopted.get(file, ()))))


def _adopt(path: str) -> None:
    """Takes the locks, in a child, that SQLite's inherited memory says this process has.

    They are those by which others see that the file and the index of its log are in use: without them another process
    that ends would take the log away, and one that begins would empty the index. They are shared locks, which belong to
    the process, whichever way it opened the file (<https://www.sqlite.org/walformat.html>, section 2.3).

    :raises StoreError: ``refused`` when this process closed descriptors that it inherited, or when the log that SQLite
        remembers is there no more.
    """
    file = _look_at(path)
    inherited = _inherited.get(file)
    if inherited is None:
        return
    real = os.path.realpath(path)
    paths = (real, f"{real}-wal", f"{real}-shm")
    _check_inherited(paths, inherited)
    with _GATE.held_lock:
        held = _held.get(file)
        # Locks that were lost must not look as if they had been there all the time.
        if held is None:
            _take_locks(paths, inherited, _adopted.setdefault(file, []))
        else:
            held.watch.check_alone()
    # With the locks, nobody takes them away any more.
    if not all(os.path.exists(name) for name in paths) or tuple(_look_at(name) for name in paths) != inherited.files:
        raise _closed_by_parent(path)


def _check_inherited(paths: Sequence[str], inherited: _Inherited) -> None:
    """SQLite would take its locks by the numbers of the descriptors that it remembers, whatever has them now."""
    path = paths[0]
    how = "close the store before the fork (SqliteStore.close)"
    if not inherited.is_announced:
        what = "by a call that Python does not hear of (such as daemon(3)), so SQLite has none of its locks here"
        how = f"{how}, use os.fork, or do not open the store before the fork, but in the child"
        raise StoreError("refused", f"{path} was open when this process was forked {what}: {how}")
    if inherited.descriptors is None:
        what = "and its parent had lost SQLite's locks, or the system does not list descriptors"
        raise StoreError("refused", f"{path} was open when this process was forked, {what}: {how}")
    changed = inherited.descriptors.changed()
    if changed is not None:
        name = paths[inherited.files.index(changed)]
        what = f"and this process has since closed or replaced a descriptor of {name}, as daemons do. SQLite needs them"
        how = f"{how}, or open it for the first time after the descriptors were closed"
        raise StoreError("refused", f"{path} was open when this process was forked, {what}: {how}")


def _take_locks(paths: Sequence[str], inherited: _Inherited, adopted: list[BinaryIO]) -> None:
    import fcntl

    for place, (at, start, length) in enumerate(IN_USE_LOCKS):
        name = paths[at]
        try:
            if place == len(adopted):
                adopted.append(open(name, "rb", buffering=0))
            if file_of(adopted[place].fileno()) != inherited.files[at]:
                raise _closed_by_parent(paths[0])
            fcntl.lockf(adopted[place], fcntl.LOCK_SH | fcntl.LOCK_NB, length, start)
        except FileNotFoundError:
            raise _closed_by_parent(paths[0]) from None
        except OSError as error:
            what = f"{name} cannot be locked in this child of a fork: another process is just opening or closing it"
            raise StoreError("unavailable", f"{what} ({error})") from error


def _closed_by_parent(path: str) -> StoreError:
    what = f"{path} was open when this process was forked, and all who had it open closed it before this child used it"
    return StoreError("refused", f"{what}: SQLite cannot open it here any more; use it in a new process")


class _Link:
    """One connection, and whose turn it is."""

    def __init__(self, connection: sqlite3.Connection, mark: int, holding: _Holding) -> None:
        self.connection: Final = connection
        self.lock: Final = threading.Lock()
        self._mark: Final = mark
        self._holding: Final = holding
        self._is_closed = False
        holding.links += 1

    def close(self) -> None:
        """Closes the connection, unless that closed what is not SQLite's any more."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._holding.may_close():
            self.connection.close()
            self._holding.links -= 1
        else:
            _kept.append(self.connection)

    def __del__(
        self,
        current: object = _process.current,
        keep: object = ctypes.pythonapi.Py_IncRef,
        holder: object = ctypes.py_object,
        dropped: object = _dropped.append,
    ) -> None:
        if self._is_closed:
            return
        # A child must not close what it inherits: SQLite would take the locks, and perhaps the log, from its parent.
        if current() != self._mark or not self._holding.may_close():  # type: ignore[operator]
            keep(holder(self.connection))  # type: ignore[operator]
            return
        self.connection.close()
        self._holding.links -= 1
        if not self._holding.links:
            dropped(self._holding)  # type: ignore[operator]


class Opened:
    """The connections of this process.

    :param expected: The file that the parent of this process had open: another one is refused.
    """

    def __init__(
        self, path: str, *, create: bool, busy_timeout_ms: int, expected: Optional[File] = None
    ) -> None:
        if sqlite3.sqlite_version_info < OLDEST_SQLITE:
            what = f"Python's SQLite is {sqlite3.sqlite_version}, and the tables of a store need 3.37.0 or newer"
            raise StoreError("refused", f"{what}: use a newer Python, or another store")
        self.mark: Final = _process.current()
        self._path: Final = path
        self._busy_timeout_ms: Final = busy_timeout_ms
        self._steps: Final = ClockSteps()
        self._files: Optional[tuple[File, ...]] = None
        self._shared: Optional[_Held] = None
        self._is_closed = False
        _notice_fork()
        with _GATE:
            self._open(create, expected)
        try:
            # What it shows from now on is compared with this. One that cannot be read is told of by who needs it.
            self.read_clock()
        except StoreError:
            pass

    def _open(self, create: bool, expected: Optional[File]) -> None:
        path = self._path
        _look_at_file(path, create)
        if expected is not None and _look_at(path) != expected:
            raise _gone(path, "was replaced")
        self._holding = _begin(path)
        try:
            if os.path.exists(path):
                self._check_header()
            # SQLite keeps the other two beside the file itself, wherever a symbolic link to it is.
            self._writer = self._link("rwc" if create else "rw")
            real = os.path.realpath(path)
            self._paths = (path, f"{real}-wal", f"{real}-shm")
            self.is_new = self._prepare_file()
            self._reader = self._link("rw", query_only=True)
            self._hold()
            if expected is not None and self.file != expected:
                raise _gone(path, "was replaced")
            self._prove_writable()
        except BaseException:
            self.close()
            raise

    @property
    def file(self) -> File:
        """The file itself."""
        assert self._files is not None, "a store that is open holds its files"
        return self._files[0]

    def write(self, doing: str, sql: str, args: Arguments = ()) -> list[sqlite3.Row]:
        """Runs one statement that writes, to its end, and answers its rows.

        They come before its commit, so they count only after it; and only if the files that are open are still those
        that others find. Whatever is written is one statement: whoever is stopped between two statements of a
        transaction stops all others.
        """
        self.check()
        with self._turn(self._writer, doing) as connection:
            try:
                rows: list[sqlite3.Row] = connection.execute(sql, args).fetchall()
            except sqlite3.Error as error:
                raise write_error(self._path, doing, error) from error
        self.check(is_granted=True)
        return rows

    def read(self, doing: str, sql: str, args: Arguments = ()) -> list[sqlite3.Row]:
        """Runs one statement that reads."""
        self.check()
        with self._turn(self._reader, doing) as connection:
            try:
                rows: list[sqlite3.Row] = connection.execute(sql, args).fetchall()
            except sqlite3.Error as error:
                raise read_error(self._path, doing, error) from error
        return rows

    @contextmanager
    def reading(self, doing: str) -> Iterator[Reader]:
        """Several statements that read at one instant."""
        self.check()
        with self._turn(self._reader, doing) as connection:
            try:
                connection.execute("BEGIN")
                yield Reader(connection)
            except sqlite3.Error as error:
                raise read_error(self._path, doing, error) from error

    def read_clock(self) -> int:
        """The store's clock, in Unix milliseconds."""
        asked_ns = time.monotonic_ns()
        rows = self.read("reading the clock", SQL["clock"])
        now_ms = rows[0][0]
        if not isinstance(now_ms, int) or now_ms < 0:
            raise StoreError("unavailable", f"the store's clock is before 1970 ({now_ms} ms): set it")
        self._steps.read(asked_ns, time.monotonic_ns(), now_ms)
        return now_ms

    def expiry(self, store_ms: int, max_horizon_ms: int) -> Expiry:
        """Which leases have ended, by this reading of the clock."""
        return self._steps.expiry(time.monotonic_ns(), store_ms, max_horizon_ms)

    def check(self, is_granted: bool = False) -> None:
        """Refuses to go on when other files than those that are open have their names, or none has, or that was
        noticed before, or when the locks on them are gone.

        Some looks at what the kernel has at hand: microseconds, before a flush of milliseconds.

        :param is_granted: Looks also whether a second copy of SQLite may have disregarded the lock meanwhile.
        """
        if self._files is not None and not self._is_closed:
            watch = self._holding.watch
            assert watch is not None, "a store that is open is watched"
            if is_granted:
                watch.check_alone()
            else:
                watch.check()
            shared = self._shared
            assert shared is not None, "a store that is open is held"
            for path, held in zip(self._paths, self._files):
                if shared.loss is None:
                    found = _find(path)
                    if found == held:
                        continue
                    shared.loss = (path, _DELETED if found is None else "was replaced")
                raise _gone(*shared.loss)

    def close(self) -> None:
        """Closes the connections: in the process that opened them."""
        if self._is_closed:
            return
        self._is_closed = True
        links = [getattr(self, name) for name in ("_reader", "_writer") if hasattr(self, name)]
        with ExitStack() as turns:
            # Whoever is at it ends first: each request ends.
            for link in links:
                turns.enter_context(link.lock)
            turns.enter_context(_GATE)
            for link in links:
                link.close()
            if not self._holding.is_kept:
                with _GATE.held_lock:
                    _let_go(self._holding)

    @contextmanager
    def _turn(self, link: _Link, doing: str) -> Iterator[sqlite3.Connection]:
        if not link.lock.acquire(timeout=max(self._busy_timeout_ms, 1) / 1_000):
            what = "no turn within the busy timeout: too many requests are waiting"
            raise StoreError("unavailable", f"{doing}, in {self._path}: {what}")
        try:
            if self._is_closed:
                raise StoreError("refused", f"{doing}, in {self._path}: the store was closed")
            with _GATE:
                try:
                    yield link.connection
                finally:
                    _roll_back(link.connection)
        finally:
            link.lock.release()

    def _link(self, mode: str, query_only: bool = False) -> _Link:
        try:
            link = _Link(self._connect(f"mode={mode}"), self.mark, self._holding)
            # On macOS fsync alone leaves data in the drive's cache; elsewhere those two do nothing.
            for pragma in ("foreign_keys = ON", "synchronous = FULL", "fullfsync = ON", "checkpoint_fullfsync = ON"):
                link.connection.execute(f"PRAGMA {pragma}").fetchall()
            if query_only:
                link.connection.execute("PRAGMA query_only = ON").fetchall()
            synchronous = link.connection.execute("PRAGMA synchronous").fetchone()[0]
        except sqlite3.Error as error:
            raise open_error(self._path, error) from error
        if synchronous != 2:
            what = f"{self._path}: this SQLite cannot be told to flush each commit (synchronous is {synchronous})"
            raise StoreError("refused", what)
        return link

    def _connect(self, query: str) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"{Path(self._path).as_uri()}?{query}",
            uri=True,
            timeout=self._busy_timeout_ms / 1_000,
            isolation_level=None,
            check_same_thread=False,
        )
        connection.row_factory = sqlite3.Row
        return connection

    def _check_header(self) -> None:
        """Refuses a file that is not ours before anything could change it.

        An immutable connection reads only the file, takes no lock and leaves no other files behind. What it sees may be
        older than the log, so it is looked at again later. It may also be half of what another process is just writing
        while it creates the file, so a refusal needs a second look.
        """
        for is_last in (False, True):
            try:
                connection = self._connect("mode=ro&immutable=1")
                try:
                    self._schema_version(connection)
                    return
                finally:
                    connection.close()
            except sqlite3.Error as error:
                if is_last:
                    raise open_error(self._path, error) from error
            except StoreError:
                if is_last:
                    raise
            time.sleep(_RETRY_S)

    def _schema_version(self, connection: sqlite3.Connection) -> Optional[int]:
        """The version of the store's schema, one that this program can use; none when the file is empty."""
        application_id = _value(connection, "PRAGMA application_id")
        version = _value(connection, "PRAGMA user_version")
        if application_id == APPLICATION_ID:
            if version in (USER_VERSION_BEFORE, USER_VERSION):
                return version
            if version > USER_VERSION:
                known = f"schema {version}, this one knows {USER_VERSION}"
                what = f"{self._path} was written by a newer version of unalike ({known}): upgrade this process"
                raise StoreError("refused", what)
            raise damaged(self._path, f"its schema has the version {version}")
        if (application_id, version) == (0, 0) and not _value(connection, "SELECT count(*) FROM sqlite_schema"):
            return None
        whose = f"the database of another program (application id {application_id:#x})"
        raise StoreError("refused", f"{self._path} is {whose}: name another file")

    def _prepare_file(self) -> bool:
        """Creates the tables in a new file, or checks those of an old one; whether it created them.

        And switches the file to write-ahead logging.
        """
        connection = self._writer.connection
        try:
            # In a transaction, so that all of it is read before or after another process creates the tables.
            connection.execute("BEGIN")
            version = self._schema_version(connection)
            connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise open_error(self._path, error) from error
        is_new = version != USER_VERSION and self._write_schema()
        self._change_schema("counting tags without their sub-keys", SQL["counts_sub_keys"], SQL["count_tags_alone"])
        self._change_schema("giving the store an identity", SQL["lacks_identity"], SQL["give_identity"])
        tries_left = self._busy_timeout_ms // 5
        while True:
            try:
                mode = [row[0] for row in connection.execute("PRAGMA journal_mode = WAL").fetchall()]
            except sqlite3.Error as error:
                # Two processes that start at once: SQLite does not wait by itself in this statement.
                if _primary_code(error) not in (_BUSY, _LOCKED) or tries_left <= 0:
                    raise write_error(self._path, "switching to write-ahead logging", error) from error
                tries_left -= 1
                time.sleep(_RETRY_S)
                continue
            if mode != ["wal"]:
                what = f"write-ahead logging is not possible there (journal mode {mode}): use a local disk"
                raise StoreError("refused", f"{self._path}: {what}")
            return is_new

    def _write_schema(self) -> bool:
        """Creates the tables, or upgrades them; whether it created them."""
        connection = self._writer.connection
        try:
            connection.execute("BEGIN EXCLUSIVE")
            # Another process may have been quicker.
            version = self._schema_version(connection)
            if version == USER_VERSION:
                connection.execute("ROLLBACK")
                return False
            _run_all(connection, SQL["schema" if version is None else "upgrade"])
            connection.execute("COMMIT")
            return version is None
        except sqlite3.Error as error:
            raise write_error(self._path, "writing the schema", error) from error

    def _change_schema(self, doing: str, is_due: str, statements: str) -> None:
        """Runs statements that change the schema of an earlier program, if this question has the answer 1 or more."""
        connection = self._writer.connection
        try:
            if not _value(connection, is_due):
                return
        except sqlite3.Error as error:
            raise open_error(self._path, error) from error
        try:
            connection.execute("BEGIN EXCLUSIVE")
            # Another process may have been quicker.
            if _value(connection, is_due):
                _run_all(connection, statements)
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise write_error(self._path, doing, error) from error

    def _hold(self) -> None:
        """Holds on to the files as they are now, of a store that is in write-ahead mode."""
        _check_mount(self._path)
        try:
            # A connection opens the log, and its index, when it first reads.
            self._reader.connection.execute("SELECT id FROM store").fetchall()
        except sqlite3.Error as error:
            raise open_error(self._path, error) from error
        files = tuple(_look_at(path) for path in self._paths)
        with _GATE.held_lock:
            try:
                watch = Watch(self._paths, files, _known_index(files[0]))
            except StoreError as error:
                # Another copy of SQLite has it open, whose locks go when this one closes it.
                self._holding.is_kept = True
                _lost[self._holding.real] = str(error)
                raise
            held = _held.setdefault(files[0], _Held(files, watch))
            held.count += 1
            self._holding.file, self._holding.watch = files[0], watch
            self._shared = held
        self._files = files

    def _prove_writable(self) -> None:
        """Takes the write lock and gives it back."""
        try:
            # It writes nothing, but SQLite takes the lock first.
            self._writer.connection.execute("UPDATE store SET tags = tags WHERE id = 0").fetchall()
        except sqlite3.Error as error:
            raise read_error(self._path, "checking that the store can be written to", error) from error


def _roll_back(connection: sqlite3.Connection) -> None:
    """Ends the transaction, if one is open."""
    try:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    except sqlite3.Error:
        # After an error in a commit SQLite has rolled back by itself.
        pass


def _value(connection: sqlite3.Connection, sql: str) -> int:
    value = connection.execute(sql).fetchall()[0][0]
    return value if isinstance(value, int) else 0


def _run_all(connection: sqlite3.Connection, statements: str) -> None:
    """Several statements within a transaction, which ``executescript`` would commit first."""
    statement = ""
    for part in statements.split(";"):
        statement += part
        # What follows the last one is white space.
        if not statement.strip():
            continue
        statement += ";"
        # A trigger has statements within.
        if sqlite3.complete_statement(statement):
            connection.execute(statement).fetchall()
            statement = ""
    assert not statement.strip(";\n "), f"a statement is not complete: {statement}"


def _look_at_file(path: str, create: bool) -> None:
    """Checks what can be seen without opening the file."""
    try:
        path.encode()
        found = os.stat(path)
    except UnicodeError:
        raise StoreError("refused", f"the path {path!r} is not UTF-8, which SQLite needs: choose another") from None
    except ValueError as error:
        raise StoreError("refused", f"the path {path!r} is not usable: {error}") from error
    except FileNotFoundError:
        directory = os.path.dirname(path)
        if not os.path.isdir(directory):
            raise StoreError("refused", f"the directory {directory} does not exist: create it") from None
        if os.path.exists(f"{path}-wal"):
            what = (
                f"{path} does not exist, and its log {path}-wal does: it was deleted or moved while a program had it "
                "open. Stop all programs that use the store and put the file back beside its log. If it is lost, "
                "remove the log, put a backup or a new store there (unalike tags create), and run `unalike store "
                "restored --lift COUNT` before any program uses it"
            )
            raise StoreError("refused", what) from None
        if not create:
            what = f"{path} does not exist, and is not to be made here (create is False): check the path"
            raise StoreError("refused", what) from None
        return
    except OSError as error:
        what = f"{path} cannot be looked at: this user must be able to enter its directory"
        raise StoreError("refused", what) from error
    if stat.S_ISDIR(found.st_mode):
        raise StoreError("refused", f"{path} is a directory: name a file in it")
    if found.st_size == 0 and not create:
        what = "restore it from a backup, or have it made anew (create) if nothing was ever handed out from it"
        raise StoreError("refused", f"{path} is empty: {what}")


_DELETED: Final = "was deleted or moved"


def _look_at(path: str) -> File:
    found = _find(path)
    if found is None:
        raise _gone(path, _DELETED)
    return found


def _find(path: str) -> Optional[File]:
    """The file that has this name, if one has."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        what = (
            f"{path} cannot be looked at, so nobody knows whether it is still the one that others use: this user must "
            "be able to enter its directory"
        )
        raise StoreError("unavailable", what) from error
    if os.name == "nt":
        # There a file that is open is not deleted.
        return File(0, 0)
    if found.st_nlink > 1:
        # Another name has another log: programs that use both grant the same numbers.
        what = (
            f"{path} has {found.st_nlink} names (hard links), and a program that uses another one would grant the same "
            "numbers: remove the others; a copy of the file is made with `sqlite3 FILE 'VACUUM INTO ..'`"
        )
        raise StoreError("refused", what)
    return File(found.st_dev, found.st_ino)


def _check_mount(path: str) -> None:
    """Refuses a file that was mounted by itself, as containers do with single files.

    Its log would lie in another directory, which the next container has not, and what was committed last would be lost
    with it.
    """
    try:
        mounts = Path("/proc/self/mountinfo").read_bytes().splitlines()
    except OSError:
        return
    # Spaces and the like are written as octal numbers.
    written = os.fsencode(os.path.realpath(path))
    for character in b"\\ \t\n":
        written = written.replace(bytes([character]), b"\\%03o" % character)
    if any(fields[4] == written for fields in (line.split(b" ") for line in mounts) if len(fields) > 4):
        what = (
            f"{path} is mounted as a single file, so its log ({path}-wal) would lie elsewhere, and with it what was "
            "granted last: mount the directory that the file is in"
        )
        raise StoreError("refused", what)


def _gone(path: str, what: str) -> StoreError:
    return StoreError(
        "refused",
        f"{path} {what} while this process had it open: whoever opens the store now would be granted numbers that "
        "were granted before, so this process grants none any more. Stop all programs that use the store. If the "
        "database itself is in its place, a second copy of SQLite may have removed what is beside it: start them again, "
        "with one copy. If the file is there under another name, move it back, with its -wal and -shm, and start them again. If it is "
        "lost, put a backup or a new store there (unalike tags create), and run `unalike store restored --lift COUNT` "
        "before any program uses it",
    )


# Primary result codes, the low 8 bits of the extended ones: <https://www.sqlite.org/rescode.html>.
_PERM: Final = 3
_ABORT: Final = 4
_BUSY: Final = 5
_LOCKED: Final = 6
_NOMEM: Final = 7
_READONLY: Final = 8
_INTERRUPT: Final = 9
_IOERR: Final = 10
_CORRUPT: Final = 11
_FULL: Final = 13
_CANTOPEN: Final = 14
_PROTOCOL: Final = 15
_SCHEMA: Final = 17
_CONSTRAINT: Final = 19
_MISUSE: Final = 21
_AUTH: Final = 23
_FORMAT: Final = 24
_NOTADB: Final = 26

_NO_DATABASE: Final = (
    "is not a SQLite database: name another file. If unalike made this one, its beginning was overwritten: stop all "
    "processes, restore it from a backup, and raise every tag above what was handed out since (or start a new file "
    "under new tags)"
)
_ROLLED_BACK: Final[tuple[StoreErrorKind, str]] = ("unavailable", "the statement was broken off and rolled back")
_MAY_NOT: Final[tuple[StoreErrorKind, str]] = (
    "refused",
    "this process may not write: make the file and its directory writable for its user",
)
_HELD: Final[tuple[StoreErrorKind, str]] = (
    "unavailable",
    "another process holds the file's write lock for longer than the busy timeout",
)
_ADVICE: Final[Mapping[int, tuple[StoreErrorKind, str]]] = {
    _BUSY: _HELD,
    _LOCKED: _HELD,
    _PROTOCOL: _HELD,
    # The pages did not fit the write-ahead log, so its commit record was never written, and SQLite has rolled the
    # transaction back: nothing was granted.
    _FULL: (
        "unavailable",
        "the disk that the file is on is full, so nothing was written and nothing was granted: free some space "
        "there, and it goes on by itself",
    ),
    _CANTOPEN: ("unavailable", "the file or its -wal or -shm file cannot be opened"),
    _NOMEM: _ROLLED_BACK,
    _INTERRUPT: _ROLLED_BACK,
    _ABORT: _ROLLED_BACK,
    _SCHEMA: _ROLLED_BACK,
    _READONLY: _MAY_NOT,
    _PERM: _MAY_NOT,
    _AUTH: _MAY_NOT,
    # SQLite says the same of a page that makes no sense and of one that the disk could not read.
    _CORRUPT: (
        "corrupt",
        "the disk reported an input/output error while it read the file, or the file is damaged. Look for disk "
        "errors in the system's log (dmesg) first: if there are some, the file may be whole, so stop all programs "
        "that use it, copy it with its -wal and -shm to a disk that works, and start them there. If there are none, "
        "stop them, restore the file from a backup, and raise every tag above what was handed out since (or start a "
        "new file under new tags)",
    ),
    _NOTADB: ("corrupt", _NO_DATABASE),
    _FORMAT: ("corrupt", _NO_DATABASE),
    _IOERR: (
        "outcome-unknown",
        "the disk reported an input/output error while it read or wrote the file or its -wal. It goes on by itself "
        "when the disk works again; look at the system's log (dmesg), and if the errors stay, stop all programs that "
        "use the file and move it, with its -wal and -shm, to another disk",
    ),
}

# Before Python 3.11 an error has no code, and is told by SQLite's own words.
_WORDS: Final = {
    "database is locked": _BUSY,
    "database table is locked": _LOCKED,
    "out of memory": _NOMEM,
    "attempt to write a readonly database": _READONLY,
    "access permission denied": _PERM,
    "interrupted": _INTERRUPT,
    "disk I/O error": _IOERR,
    "database disk image is malformed": _CORRUPT,
    "database or disk is full": _FULL,
    "unable to open database file": _CANTOPEN,
    "locking protocol": _PROTOCOL,
    "database schema has changed": _SCHEMA,
    "file is not a database": _NOTADB,
}


def write_error(path: str, doing: str, error: sqlite3.Error) -> StoreError:
    """The error of a statement that writes, or of its commit.

    The question that matters is whether the commit may be in the file although it was reported as failed. SQLite
    rolls a transaction back in the file on every error but one kind: after an I/O error (a failed fsync above all)
    the commit record may have reached the disk, and a recovery would find it valid. So I/O errors, and everything
    that is not known, are of unknown outcome.
    """
    code = _primary_code(error)
    if code is None:
        kind, advice = _ADVICE[_IOERR][0], "the connection broke"
    else:
        # Our own statements are refused only when a row breaks an invariant of the schema; it was rolled back.
        kind, advice = _ADVICE.get(code, ("refused", "SQLite refused the statement"))
    what = f"{path} {advice}" if advice is _NO_DATABASE else f"{doing}, in {path}: {advice}"
    return StoreError(kind, f"{what} ({error})")


def read_error(path: str, doing: str, error: sqlite3.Error) -> StoreError:
    """The error of a statement that only reads: nothing can have been granted."""
    told = write_error(path, doing, error)
    return StoreError("unavailable", str(told)) if told.kind == "outcome-unknown" else told


def open_error(path: str, error: sqlite3.Error) -> StoreError:
    """The error of opening the file: what exists and cannot be opened is a matter of permissions."""
    if _primary_code(error) == _CANTOPEN:
        what = "it cannot be opened: this user must be able to read and write the file and its directory"
        return StoreError("refused", f"opening {path}: {what} ({error})")
    return read_error(path, "opening", error)


def _primary_code(error: sqlite3.Error) -> Optional[int]:
    code = getattr(error, "sqlite_errorcode", None)
    if isinstance(code, int):
        return code & 0xFF
    if isinstance(error, sqlite3.IntegrityError):
        return _CONSTRAINT
    if isinstance(error, sqlite3.ProgrammingError):
        return _MISUSE
    return _WORDS.get(str(error))


def damaged(path: str, what: str) -> StoreError:
    """A value in the file that unalike never writes."""
    return StoreError("corrupt", f"{path}: {what}; restore the file from a backup, or find out who changed it")


def number(path: str, row: sqlite3.Row, column: str) -> int:
    """A column that holds a number of 0 or more."""
    value = row[column]
    if not isinstance(value, int) or value < 0:
        raise damaged(path, f"{column} is {value!r}, and is never negative")
    return value


def text(path: str, row: sqlite3.Row, column: str) -> str:
    """A column that holds a text."""
    value = row[column]
    if not isinstance(value, str):
        raise damaged(path, f"{column} is {value!r}, and no text")
    return value


def blob(path: str, row: sqlite3.Row, column: str) -> bytes:
    """A column that holds 16 bytes."""
    value = row[column]
    if not isinstance(value, bytes) or len(value) != 16:
        raise damaged(path, f"{column} has not 16 bytes")
    return value
