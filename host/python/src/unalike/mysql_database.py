"""The connections to one server, and what is checked of it before it is trusted."""

from __future__ import annotations

import math
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Callable, Final, NamedTuple, Optional, Union, cast

try:
    import pymysql
    from pymysql.constants import CLIENT
except ImportError as _error:  # pragma: no cover
    raise ImportError("stores in MySQL and MariaDB need PyMySQL: pip install 'unalike[mysql]'") from _error

from . import _process
from .mysql_options import Settings
from .mysql_server import READ_FACTS, Fence, NoIdentity, ServerFacts, StoreRecord, refused
from .mysql_sql import SQL, Argument, bound
from .store import ID_MAX, StoreError, StoreErrorKind

DUPLICATE_ENTRY: Final = 1062
NO_SUCH_TABLE: Final = 1146
UNKNOWN_COLUMN: Final = 1054
TABLE_ACCESS_DENIED: Final = 1142
SYNTAX_ERROR: Final = 1064
ACCESS_DENIED: Final = 1227

_IDLE_TRUSTED: Final = 1.0
"""A connection that nobody used for so long is asked for a sign of life before it is used.

The server may have been started anew meanwhile. One that breaks within this time is noticed when it is used, and its
statement is burnt."""

_IDLE_MAX: Final = 300.0
"""A connection that nobody used for so long is not used again: a firewall between may have forgotten it."""

_LIFETIME_MAX: Final = 1_800.0
"""No connection is used for longer: load spreads again over servers that share an address."""

_ONLY_READS: Final = "the server only reads just now: is it a replica, or failing over?"
_TLS: Final = "no TLS with a server that can be trusted: check ssl-mode and ssl-ca, and the server's certificate"

Row = dict[str, Optional[bytes]]
"""Each column as the server sends it."""


class Reply(NamedTuple):
    """What a statement answered."""

    rows: list[Row]
    affected: int
    """The rows that its condition matched, whether it changed them or not."""
    insert_id: int
    """What ``LAST_INSERT_ID`` was set to by this very statement."""


class _Expected(NamedTuple):
    """The server that connections must lead to."""

    identity: Optional[str]
    """What it says it is; ``None`` where any server will do."""
    recorded: str
    """What stands in ``unalike_store``."""
    fence: Fence


class _TimedOut(Exception):
    """The time is up; a statement that was sent may have been done."""


class _Broken(Exception):
    """The connection is gone, or answers what cannot be read."""


if TYPE_CHECKING:

    class _Driver(pymysql.connections.Connection[Any]):
        """With what its types leave out."""

        _sock: socket.socket
        _read_timeout: Optional[float]
        _result: Any

        def _force_close(self) -> None: ...

else:
    _Driver = pymysql.connections.Connection


class _Connection(_Driver):
    """The driver's, with one deadline for all that is read and written until the next one is set."""

    def __init__(self, tls: Optional[ssl.SSLContext], **options: Any) -> None:
        self._tls = tls
        super().__init__(**options)

    def _create_ssl_ctx(self, _options: object) -> Optional[ssl.SSLContext]:
        # One for all connections: to read the system's authorities takes its time.
        return self._tls

    deadline: float = math.inf
    is_ready: bool = False
    """Before that nothing is read ahead: what was sent in the clear must not pass for what came by TLS."""
    _unread: bytes = b""

    def _remaining(self) -> float:
        remaining = self.deadline - time.monotonic()
        if remaining <= 0:
            self._force_close()
            raise _TimedOut
        return remaining

    def _read_bytes(self, num_bytes: int) -> bytes:
        # The driver's own waits for each piece anew, so a server that sends them one by one would never be given up.
        read = self._unread
        while len(read) < num_bytes:
            try:
                self._sock.settimeout(self._remaining())
                piece = self._sock.recv(max(65_536 if self.is_ready else 0, num_bytes - len(read)))
            except TimeoutError:
                self._force_close()
                raise _TimedOut from None
            except OSError as error:
                self._force_close()
                raise _Broken(str(error)) from error
            if not piece:
                self._force_close()
                raise _Broken("the server closed the connection")
            read += piece
        self._unread = read[num_bytes:]
        return read[:num_bytes]

    def _write_bytes(self, data: bytes) -> None:
        try:
            self._sock.settimeout(self._remaining())
            self._sock.sendall(data)
        except TimeoutError:
            self._force_close()
            raise _TimedOut from None
        except OSError as error:
            self._force_close()
            raise _Broken(str(error)) from error


class _Link:
    """A connection in the pool."""

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection
        self.opened_at = self.used_at = time.monotonic()

    @classmethod
    def open(cls, settings: Settings, deadline: float) -> _Link:
        options: dict[str, Any] = {}
        if settings.ssl_mode == "disabled":
            options["ssl_disabled"] = True
        elif settings.ssl_mode != "preferred":
            options["ssl"] = settings.tls
        connection = _Connection(
            settings.tls,
            host=settings.host,
            port=settings.port,
            user=settings.user,
            # As bytes: of text the driver takes Latin letters alone.
            password=(settings.password or "").encode(),
            database=settings.database,
            charset="utf8mb4",
            # Columns as they are sent.
            conv={},
            # Rows count that were matched, whether they were changed or not.
            client_flag=CLIENT.FOUND_ROWS,
            # What the session is set to is looked at later.
            autocommit=None,
            defer_connect=True,
            **options,
        )
        connection.deadline = deadline
        try:
            plain = _dial(settings, deadline)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            # The handshake of TLS is the driver's, and waits by the socket's own timeout, for each piece.
            connection._read_timeout = max(0.001, deadline - time.monotonic())
            connection.connect(plain)
            connection.is_ready = True
        except BaseException as error:
            connection._force_close()
            if isinstance(error, TimeoutError):
                raise _TimedOut from error
            if isinstance(error, Exception) and not isinstance(error, _TimedOut):
                raise _connect_error(settings.at, error) from error
            raise
        return cls(connection)

    def send(self, sql: str, deadline: float) -> Reply:
        """Sends a statement as it is."""
        connection = self._connection
        connection.deadline = deadline
        connection.query(sql.encode())
        result = connection._result
        names = [column[0] for column in result.description or ()]
        rows = [dict(zip(names, map(_as_bytes, row))) for row in result.rows or ()]
        return Reply(rows, result.affected_rows, result.insert_id or 0)

    def ping(self, deadline: float) -> bool:
        self._connection.deadline = deadline
        try:
            self._connection.ping()
        except Exception:
            return False
        return True

    def destroy(self) -> None:
        """At once and without a word: on a server that hangs, a farewell would hang too."""
        self._connection._force_close()

    def farewell(self, timeout: float) -> None:
        """So that the server notes no broken connection."""
        self._connection.deadline = time.monotonic() + timeout
        try:
            self._connection.close()
        except Exception:
            self.destroy()


def _dial(settings: Settings, deadline: float) -> socket.socket:
    """A connection to whichever address of the host answers first, all of them within one time."""
    failed: Exception = OSError(f"{settings.host} has no address")
    for family, kind, protocol, _, address in socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM):
        dialled = socket.socket(family, kind, protocol)
        try:
            dialled.settimeout(max(0.001, deadline - time.monotonic()))
            dialled.connect(address)
            return dialled
        except BaseException as error:
            dialled.close()
            if not isinstance(error, OSError):
                raise
            failed = error
    raise failed


def _as_bytes(value: Union[str, bytes, None]) -> Optional[bytes]:
    return value.encode() if isinstance(value, str) else value


class _Pool:
    """The connections of one process: a child has another one, and so never waits for a lock of its parent's."""

    def __init__(self) -> None:
        self.process = _process.current()
        self.changed = threading.Condition()
        self.idle: list[_Link] = []
        """The one that was used last is used next, so that those of a burst become idle."""
        self.taken: set[_Link] = set()
        self.in_use = 0


class Database:
    """A pool of connections to one database, all of them checked."""

    def __init__(self, settings: Settings) -> None:
        self.settings: Final = settings
        self._expected: Optional[_Expected] = None
        self._expected_place: Optional[tuple[str, str]] = None
        """The statement that says where the data are, and where that is, once it is known."""
        self._looked_at = -math.inf
        """When somebody last looked there."""
        self._broke_at = -math.inf
        """When a connection last broke: those that are older are probably broken too, and are not used again."""
        self._is_closed = False
        self._current_pool = _Pool()

    @property
    def at(self) -> str:
        """Host, port and database."""
        return self.settings.at

    @property
    def process(self) -> int:
        """Whose connections these are."""
        return self._pool().process

    def expect(self, facts: ServerFacts, identity: Optional[str], recorded: str) -> None:
        """From now on every connection must lead to this server, and to a store that has this record of it."""
        fence = facts.fence(not self.settings.assume_durable, identity, None if identity is None else recorded)
        self._expected = _Expected(identity, recorded, fence)

    def expect_place(self, statement: str, here: str) -> None:
        """From now on the data must be at this place, as the statement says it."""
        self._expected_place = (statement, here)

    def check_adopted(self) -> bool:
        """Refuses a server that was adopted with the tables of other dialects, and not with unalike's own.

        Answers whether it was adopted.
        """
        expected = self._expected
        if expected is None or expected.identity is None:
            return False
        record = StoreRecord(expected.recorded)
        if record.is_valid:
            return record.was_adopted
        raise refused(
            f"the server at {self.at} took over from another one, and was adopted with the tables of other dialects in "
            f"this database ({expected.recorded}): those of the dialect unalike may lack the last commits. Run "
            "`unalike store adopt --lift COUNT` with this URL as well, and then restart the programs that use this "
            "database"
        )

    @property
    def row_set(self) -> bytes:
        """What rows of this era say, in the tables of a store that stands alone."""
        era = 0 if self._expected is None else StoreRecord(self._expected.recorded).era
        return era.to_bytes(16, "big")

    def fenced(self, statement: str) -> str:
        """A statement that grants, with the conditions that every grant rests on."""
        if "{fence" not in statement:
            raise ValueError(f"a statement without a fence: {statement}")
        if self._expected is None:
            # Before a server is known, nothing is granted.
            return Fence("1 = 0", "", None).put_into(statement)
        return self._expected.fence.put_into(statement)

    def check_fence(self) -> None:
        """Says why a statement was held back by its fence, unless it was not.

        :raises StoreError: ``refused`` on another server, or on one that may lose commits; ``unavailable`` where
            another connection may do. The connections that are open are not used again.
        """
        with self.turn("looking at the server") as turn:
            before = turn.look()
            facts = turn.look()
            rows = turn.try_rows(SQL["store"]["recorded"], (), NO_SUCH_TABLE)
            # A store that is gone is another one.
            recorded = text(self, rows[0], "server") if rows else ""
            try:
                self._check(facts, recorded)
                fault = facts.fault_of_session(before) or (_ONLY_READS if facts.only_reads else None)
                if fault is not None:
                    raise unavailable(f"{self.at}: {fault}")
                if self._expected_place is not None:
                    statement, expected = self._expected_place
                    here = turn.place(statement)
                    if here != expected:
                        raise another_place(self.at, here)
            except StoreError:
                # Those that were opened before may all lead there.
                self._note_broken()
                raise
            turn.give_back()

    def held_back(self, doing: str) -> StoreError:
        """The error of a statement that its fence held back."""
        try:
            self.check_fence()
        except StoreError as error:
            return error
        # On this connection it would not have been.
        self._note_broken()
        return self._no_connection(doing, "the connection led to another server, or was set otherwise: try again")

    def execute(self, doing: str, sql: str, args: Sequence[Argument] = ()) -> Reply:
        """Runs one statement that writes, in a transaction of its own."""
        with self.turn(doing) as turn:
            reply = turn.execute(sql, args)
            turn.give_back()
        return reply

    def rows(self, doing: str, sql: str, args: Sequence[Argument] = ()) -> list[Row]:
        """Runs one statement that reads."""
        with self.turn(doing) as turn:
            rows = turn.rows(sql, args)
            turn.give_back()
        return rows

    @contextmanager
    def turn(self, doing: str) -> Iterator[Turn]:
        """A connection for some statements, all of them within the time that a request may take.

        Unless it is given back, it is closed: nobody knows what is still under way on it.
        """
        deadline = time.monotonic() + self.settings.request_timeout
        pool = self._pool()
        turn = Turn(self, pool, doing, deadline)
        try:
            turn.begin_with(self._take)
            yield turn
        finally:
            turn.drop()

    @contextmanager
    def transaction_alone(self, doing: str) -> Iterator[Turn]:
        """A transaction on the expected server; nobody else creates a tag or changes the stripe until it ends."""
        with self.turn(doing) as turn:
            turn.begin()
            if not turn.rows(self.fenced(SQL["store"]["alone"])):
                turn.drop()
                raise self.held_back(doing)
            yield turn

    def close(self) -> None:
        """Closes what nobody uses now; the others are closed when they are given back."""
        self._is_closed = True
        pool = self._pool()
        with pool.changed:
            idle, pool.idle = pool.idle, []
            pool.changed.notify_all()
        for link in idle:
            link.farewell(self.settings.connect_timeout)

    def identity_of(self, read: Callable[[], str]) -> str:
        """An identity, or the error that there is none."""
        try:
            return read()
        except NoIdentity as error:
            raise self._refused(str(error)) from None

    def _pool(self) -> _Pool:
        pool = self._current_pool
        if pool.process != _process.current():
            # The parent's. Nothing is sent on them: both would read the other's answers. What is closed are this
            # process' own descriptors, without a word, so that the parent's connections end when the parent does.
            inherited, pool = pool, _Pool()
            self._current_pool = pool
            for link in (*inherited.idle, *inherited.taken):
                link.destroy()
        return pool

    @property
    def _wait_max(self) -> float:
        return min(self.settings.connect_timeout, self.settings.request_timeout)

    def _take(self, pool: _Pool, doing: str) -> _Link:
        deadline = time.monotonic() + self._wait_max
        with pool.changed:
            while not self._is_closed and pool.in_use >= self.settings.connections_max:
                if not pool.changed.wait(max(0.0, deadline - time.monotonic())) and time.monotonic() >= deadline:
                    raise self._no_connection(doing, self._no_answer())
            if self._is_closed:
                raise refused(f"{doing}, at {self.at}: the store was closed")
            pool.in_use += 1
        try:
            while True:
                with pool.changed:
                    link = pool.idle.pop() if pool.idle else None
                if link is None:
                    return self._connect(deadline)
                if self._may_be_used_again(link):
                    return link
                link.destroy()
        except BaseException as error:
            self._leave(pool)
            if isinstance(error, _TimedOut):
                raise self._no_connection(doing, self._no_answer()) from error
            raise

    def _leave(self, pool: _Pool) -> None:
        with pool.changed:
            pool.in_use -= 1
            pool.changed.notify()

    def take_back(self, pool: _Pool, link: _Link, is_as_new: bool) -> None:
        """A connection that is not needed any more."""
        pool.taken.discard(link)
        if is_as_new and not self._is_closed and pool.process == _process.current():
            link.used_at = time.monotonic()
            with pool.changed:
                pool.idle.append(link)
        else:
            link.destroy()
        self._leave(pool)

    def _may_be_used_again(self, link: _Link) -> bool:
        now = time.monotonic()
        idle = now - link.used_at
        if link.opened_at <= self._broke_at or idle > _IDLE_MAX or now - link.opened_at > _LIFETIME_MAX:
            return False
        is_time_to_look = self._expected_place is not None and now - self._looked_at > _IDLE_TRUSTED
        # Half of the time, so that the other half is left for a new connection.
        if (idle > _IDLE_TRUSTED or is_time_to_look) and not self._is_alive(link, now + self._wait_max / 2):
            self._note_broken()
            return False
        return True

    def _connect(self, deadline: float) -> _Link:
        link = _Link.open(self.settings, deadline)
        try:
            self._look_at(link, deadline)
        except BaseException:
            link.destroy()
            raise
        return link

    def _is_alive(self, link: _Link, deadline: float) -> bool:
        """Whether it gives a sign of life, and the data are where they were."""
        if self._expected_place is None:
            return link.ping(deadline)
        try:
            self._look_for_place(link, deadline)
        except (StoreError, _TimedOut):
            # Whoever opens the next one says what it was.
            return False
        return True

    def _look_for_place(self, link: _Link, deadline: float) -> None:
        if self._expected_place is None:
            return
        self._looked_at = time.monotonic()
        statement, expected = self._expected_place
        try:
            here = _place_in(link.send(statement, deadline).rows)
        except _TimedOut:
            raise
        except Exception as error:
            if _code_of(error) not in (NO_SUCH_TABLE, UNKNOWN_COLUMN):
                raise _read_error(self.at, _LOOKING_FOR_PLACE, error) from error
            here = None
        if here != expected:
            raise another_place(self.at, here)

    def _look_at(self, link: _Link, deadline: float) -> None:
        """Sets a new connection up and checks where it leads."""

        def send(sql: str) -> Reply:
            try:
                return link.send(sql, deadline)
            except _TimedOut:
                raise
            except Exception as error:
                raise _read_error(self.at, "setting a connection up", error) from error

        send(SQL["session"]["read_whole_lists"])
        before = _facts_in(send(READ_FACTS))
        # Whole seconds. A wait for a lock that ends before the request does leaves no doubt about what was done. And
        # the server is not to close what is idle before it is dropped here.
        lock_wait_s = max(1, int(self.settings.request_timeout) - 1)
        send(before.session_statement(lock_wait_s, int(2 * _IDLE_MAX)))
        send(SQL["session"]["roll_back"])
        facts = _facts_in(send(READ_FACTS))
        self._check(facts, None)
        fault = facts.fault_of_session(before)
        if fault is not None:
            raise self._refused(fault)
        try:
            self._look_for_place(link, deadline)
        except StoreError as error:
            if error.kind != "refused":
                raise
            # Of other data, and of a store that was adopted since, this says more.
            try:
                rows = link.send(SQL["store"]["recorded"], deadline).rows
            except _TimedOut:
                raise
            except Exception as unread:
                if _code_of(unread) != NO_SUCH_TABLE:
                    raise _read_error(self.at, _LOOKING_FOR_PLACE, unread) from unread
                rows = []
            self._check(facts, text(self, rows[0], "server") if rows else "")
            raise

    def _check(self, facts: ServerFacts, recorded: Optional[str]) -> None:
        """Checks the server, and what is recorded there if that was read."""
        kind = facts.fault_of_kind()
        if kind is not None:
            raise self._refused(kind)
        durability = None if self.settings.assume_durable else facts.fault_of_durability()
        if durability is not None:
            raise self._refused(f"{durability} (or vouch for it: durability=assumed)")
        fault = facts.fault_of_cluster(self.settings.assume_identity)
        fault = fault or facts.fault_of_log() or facts.fault_of_init_connect()
        if fault is not None:
            raise self._refused(fault)
        expected = self._expected
        if expected is None or expected.identity is None:
            return
        identity = expected.identity
        found = self.identity_of(lambda: facts.identity_as(identity))
        if found != identity:
            raise facts.another_server(self.at, identity, found)
        if recorded is not None and recorded != expected.recorded:
            if StoreRecord(recorded).server == StoreRecord(expected.recorded).server:
                raise self._refused(
                    f"tables in its database were lifted since this program began ({recorded}, not "
                    f"{expected.recorded}): restart this program"
                )
            raise facts.another_server(self.at, expected.recorded, recorded)

    def _refused(self, why: str) -> StoreError:
        return refused(f"the server at {self.at}: {why}")

    def _no_connection(self, doing: str, why: str) -> StoreError:
        """No connection, so nothing was done."""
        return unavailable(f"{doing}, at {self.at}: {why}")

    def _no_answer(self) -> str:
        wait_ms = round(self._wait_max * 1_000)
        return f"no connection within {wait_ms} ms: no MySQL or MariaDB server answers there, or too many requests wait"

    def _note_broken(self) -> None:
        self._broke_at = time.monotonic()

    def note_failure(self, error: BaseException) -> None:
        """A statement failed: those who know that its connection is gone close the others, too."""
        code = _code_of(error)
        if code is None or any(first <= code <= last for first, last in SQL["ends_connection"]):
            self._note_broken()


class Turn:
    """A connection in use."""

    def __init__(self, database: Database, pool: _Pool, doing: str, deadline: float) -> None:
        self._database, self._pool, self._doing, self._deadline = database, pool, doing, deadline
        self._link: Optional[_Link] = None

    def begin_with(self, take: Callable[[_Pool, str], _Link]) -> None:
        """Gets its connection."""
        self._link = take(self._pool, self._doing)
        self._pool.taken.add(self._link)

    def execute(self, sql: str, args: Sequence[Argument] = ()) -> Reply:
        """Runs a statement that writes. After an error nothing more can be done."""
        statement = bound(sql, args)
        try:
            return self._run(statement)
        except Exception as error:
            raise _write_error(self._database.at, self._doing, error) from error

    def try_execute(self, sql: str, args: Sequence[Argument], expected: Sequence[int]) -> Union[Reply, int]:
        """The same, where some of the server's error numbers are the caller's business.

        The statement was not done then, and the connection is as good as before.
        """
        statement = bound(sql, args)
        try:
            return self._run(statement)
        except Exception as error:
            code = _code_of(error)
            if code is not None and code in expected:
                return code
            raise _write_error(self._database.at, self._doing, error) from error

    def rows(self, sql: str, args: Sequence[Argument] = ()) -> list[Row]:
        """Runs a statement that reads."""
        statement = bound(sql, args)
        try:
            return self._run(statement).rows
        except Exception as error:
            raise _read_error(self._database.at, self._doing, error) from error

    def try_rows(self, sql: str, args: Sequence[Argument], expected: int) -> Optional[list[Row]]:
        """The same, and one of the server's error numbers; ``None`` when the server answers with it."""
        found = self.try_text(bound(sql, args), (expected,))
        return None if isinstance(found, int) else found

    def try_text(self, sql: str, expected: Sequence[int]) -> Union[list[Row], int]:
        """The same without arguments, and several of these numbers."""
        try:
            return self._run(sql).rows
        except Exception as error:
            code = _code_of(error)
            if code is not None and code in expected:
                return code
            raise _read_error(self._database.at, self._doing, error) from error

    def look(self) -> ServerFacts:
        """What the server says of itself."""
        found = self.try_text(READ_FACTS, ())
        return _facts_in(Reply(cast("list[Row]", found), 0, 0))

    def place(self, statement: str) -> Optional[str]:
        """Where the data are; ``None`` where no table says it."""
        found = self.try_text(statement, (NO_SUCH_TABLE, UNKNOWN_COLUMN))
        return None if isinstance(found, int) else _place_in(found)

    def begin(self) -> None:
        """Begins a transaction, on a connection that has none. Without a commit it is rolled back."""
        self.rows(SQL["session"]["begin"])

    def commit(self) -> None:
        """Commits, and gives the connection back."""
        self.execute(SQL["session"]["commit"])
        self.give_back()

    def roll_back(self) -> None:
        """Rolls back, and gives the connection back."""
        self.rows(SQL["session"]["roll_back"])
        self.give_back()

    def give_back(self) -> None:
        """Nothing is under way on the connection: it is as good as new."""
        self._end(True)

    def drop(self) -> None:
        """Closes the connection, unless it was given back."""
        self._end(False)

    def _end(self, is_as_new: bool) -> None:
        link, self._link = self._link, None
        if link is not None:
            self._database.take_back(self._pool, link, is_as_new)

    def _run(self, sql: str) -> Reply:
        if self._link is None:
            raise RuntimeError("the connection was given back")
        try:
            return self._link.send(sql, self._deadline)
        except BaseException as error:
            self._database.note_failure(error)
            if isinstance(error, _TimedOut):
                limit_ms = round(self._database.settings.request_timeout * 1_000)
                raise _TimedOut(f"no answer within {limit_ms} ms") from None
            raise


_LOOKING_FOR_PLACE: Final = "looking where the store is"


def _place_in(rows: Sequence[Row]) -> Optional[str]:
    place = rows[0].get("place") if rows else None
    return None if place is None else place.decode("latin-1")


def another_place(at: str, here: Optional[str]) -> StoreError:
    """The error of data that are not where the store was."""
    return refused(
        f"the data at {at} are not those that were used before: they were loaded from a dump, or the table "
        f"unalike_identity was built anew (its time here is {here or 'unknown'}, which is not recorded in it). They may "
        "lack what was granted since: lift the tags above everything that was handed out with `unalike store restored "
        "--lift COUNT`, and then restart the programs"
    )


def _facts_in(reply: Reply) -> ServerFacts:
    def shown(value: Optional[bytes]) -> str:
        return (value or b"").decode()

    return ServerFacts({shown(row["Variable_name"]): shown(row["Value"]) for row in reply.rows})


def _code_of(error: BaseException) -> Optional[int]:
    """The server's error number; none for an error of the driver's or of the network's."""
    code = error.args[0] if isinstance(error, pymysql.err.MySQLError) and error.args else None
    return code if isinstance(code, int) and code > 0 else None


_WORDS: Final = {
    "unavailable": "the store is unavailable",
    "outcome-unknown": "the store's answer was lost, so the grant is abandoned",
    "refused": "the store refused",
    "corrupt": "the store's data cannot be used",
}


def _failure(kind: StoreErrorKind, what: str, error: BaseException) -> StoreError:
    return StoreError(kind, f"{_WORDS[kind]}: {what}: {error or type(error).__name__}")


def _write_error(at: str, doing: str, error: Exception) -> StoreError:
    """The error of a statement that writes, or of its commit.

    The question is whether the commit may stand although no success was reported. An answer that did not come leaves
    that open, and so does everything that is not known.
    """
    if isinstance(error, StoreError):
        return error
    kind, advice = _judge(_code_of(error))
    return _failure(kind, f"{doing}, at {at}: {advice}", error)


def _read_error(at: str, doing: str, error: Exception) -> StoreError:
    """The error of a statement that only reads, or of connecting: nothing can have been granted."""
    if isinstance(error, StoreError):
        return error
    kind, advice = _judge(_code_of(error))
    return _failure("unavailable" if kind == "outcome-unknown" else kind, f"{doing}, at {at}: {advice}", error)


def _judge(code: Optional[int]) -> tuple[StoreErrorKind, str]:
    if code is None:
        return "outcome-unknown", "the connection broke"
    for first, last, kind, advice in SQL["errors"]:
        if first <= code <= last:
            return kind, advice
    return "refused", "the server refused the statement"


def _connect_error(at: str, error: Exception) -> StoreError:
    origin = getattr(error, "original_exception", error)
    code = _code_of(error)
    # 2026: the server offers no TLS, and it is demanded.
    if isinstance(origin, ssl.SSLError) or code == 2026:
        return _failure("refused", f"{at}: {_TLS}", error)
    if isinstance(error, (OSError, _Broken)) or code == 2003:
        return _failure("unavailable", f"the server at {at} cannot be reached", error)
    return _read_error(at, "connecting", error)


def unavailable(what: str) -> StoreError:
    """The error that nothing was done, and that it may work later."""
    return StoreError("unavailable", f"{_WORDS['unavailable']}: {what}")


def damaged(at: str, what: str) -> StoreError:
    """The error of a value in the database that should not be there."""
    return StoreError("corrupt", f"{_WORDS['corrupt']}: {at}: {what}; find out who changed it")


def data(database: Database, row: Row, column: str) -> bytes:
    """A column of bytes."""
    value = row.get(column)
    if value is None:
        raise damaged(database.at, f"{column} is missing in a row")
    return value


def text(database: Database, row: Row, column: str) -> str:
    """A column of text."""
    try:
        return data(database, row, column).decode()
    except UnicodeDecodeError:
        raise damaged(database.at, f"{column} is not text") from None


def figure(database: Database, row: Row, column: str) -> int:
    """A column of whole numbers of 64 bits."""
    value = data(database, row, column)
    if not value.isdigit():
        raise damaged(database.at, f"{column} is {value!r}, and is a whole number of 0 or more")
    return int(value)


def number(database: Database, row: Row, column: str) -> int:
    """A column of whole numbers of 63 bits."""
    value = figure(database, row, column)
    if value > ID_MAX:
        raise damaged(database.at, f"{column} is {value}, and is 0 to 2^63 - 1")
    return value
