"""The tables: that they are there, that they are what grants rest on, and whose server they are on."""

from __future__ import annotations

import re
import secrets
from typing import Final, NamedTuple, Optional, Sequence

from .mysql_database import (
    ACCESS_DENIED,
    NO_SUCH_TABLE,
    SYNTAX_ERROR,
    TABLE_ACCESS_DENIED,
    UNKNOWN_COLUMN,
    Database,
    Row,
    another_place,
    damaged,
    number,
    text,
)
from .mysql_server import ServerFacts, StoreRecord, born_record, hex_number, mark_in, names_cluster, refused
from .mysql_sql import SQL, STORE_TABLE, Shape
from .store import ID_MAX, StoreError

_DOING: Final = "looking at tables"

_VERSIONED: Final = 4135
"""A table that is to have system versioning has it already."""


class _Recorded(NamedTuple):
    """What the row of ``unalike_store`` says."""

    version: int
    """The version of unalike's own tables."""
    server: str


class _Found:
    """What the server says of a table."""

    def __init__(self) -> None:
        self.columns: list[Row] = []
        """With the kind and the engine of the table in each."""
        self.keys: list[str] = []
        """The columns of each unique key, by name, with commas between."""
        self.triggers: list[tuple[str, str]] = []
        """Their names, and what they do."""


def open_tables(database: Database, shapes: Sequence[Shape]) -> None:
    """Looks at tables, and creates those that are missing if that is allowed.

    :raises StoreError: ``refused`` when one is missing and may not be created, and when grants cannot rest on one.
    """
    found = _find(database, shapes)
    missing = [shape for shape in shapes if shape.name not in found]
    if missing and not database.settings.create_tables:
        raise _table_is_missing(database, missing[0].name)
    if missing:
        for shape in missing:
            database.execute("creating a table", shape.ddl)
        found = _find(database, shapes)
    for shape in shapes:
        if shape.name not in found:
            raise refused(f"{database.at}: the table {shape.name} was there a moment ago, and is gone")
        _judge(database, shape, found[shape.name])


def _table_is_missing(database: Database, table: str) -> StoreError:
    return refused(
        f"{database.at}: the table {table} is missing, and tables are not to be created (create=false): run the "
        "statements that `unalike schema` prints"
    )


def _find(database: Database, shapes: Sequence[Shape]) -> dict[str, _Found]:
    names = [shape.name for shape in shapes]
    places = ", ".join("?" for _ in names)
    lookups = SQL["lookups"]

    def rows(select: str, end: str) -> list[Row]:
        return database.rows(_DOING, f"{select} ({places}) {end}", names)

    def asked(row: Row) -> Optional[str]:
        # One that is looked up may have been found under another case, where the server takes both for one.
        found = text(database, row, "table_name")
        return names[0] if len(names) == 1 else found if found in names else None

    tables: dict[str, _Found] = {}
    for row in rows(lookups["columns"], ""):
        name = asked(row)
        if name is not None:
            tables.setdefault(name, _Found()).columns.append(row)
    if not tables:
        return tables
    for row in rows(lookups["keys"], lookups["keys_end"]):
        table = tables.get(asked(row) or "")
        if table is not None:
            table.keys.append(text(database, row, "names"))
    for row in rows(lookups["triggers"], ""):
        table = tables.get(asked(row) or "")
        if table is not None:
            table.triggers.append((text(database, row, "name"), text(database, row, "body")))
    return tables


def _judge(database: Database, shape: Shape, found: _Found) -> None:
    """Refuses a table that grants cannot rest on."""
    table = shape.name
    columns = {name: holds for name, holds in shape.columns}

    def wrong(what: str) -> StoreError:
        return refused(f"{database.at}: the table {table} {what}")

    seen = set()
    for row in found.columns:
        kind, engine = text(database, row, "kind_of_table"), text(database, row, "engine")
        if kind == "VIEW":
            raise wrong("is a view, and grants come only from tables: rename the table to it")
        if kind != "BASE TABLE":
            raise wrong(f"is not a plain table but {kind}: numbers could repeat; make it a plain one")
        if engine.lower() != "innodb":
            raise wrong(
                f"is kept in {engine}, which can lose commits, and numbers would repeat: ALTER TABLE {table} ENGINE = "
                "InnoDB"
            )
        name = text(database, row, "name")
        if name not in columns:
            continue
        if text(database, row, "generation_expression"):
            raise wrong(f"computes its column {name} from others, and must take what is given: make it an ordinary one")
        column_type = text(database, row, "kind")
        if not _fits(columns[name], column_type):
            raise wrong(f"has the column {name} {column_type}, which must be {_HOLDS[columns[name]]}")
        seen.add(name)
    for name in columns:
        if name not in seen:
            raise wrong(f"has no column {name}: `unalike schema` prints what is needed")
    if ",".join(sorted(name.lower() for name in shape.key)) not in found.keys:
        names = ", ".join(shape.key)
        raise wrong(
            f"has no unique key over exactly {names} (whole columns, no prefix, not USING HASH): the same numbers "
            f"could be granted twice; add one (ALTER TABLE {table} ADD UNIQUE ({names}))"
        )
    for name, body in found.triggers:
        # It can change no column that it does not name.
        words = set(re.split(r"\W+", body))
        what = next((column for column in columns if column in words), None if body else "what this user may not read")
        if what is not None:
            raise wrong(
                f"has the trigger {name}, which runs before a row is written and names {what}: it could change what is "
                "granted; drop it, or have it run AFTER"
            )


_HOLDS: Final = {
    "name": "a name: VARCHAR or VARBINARY",
    "bytes": "compared byte by byte: VARBINARY or BINARY, as `unalike schema` prints it",
    "whole": "a whole number: BIGINT",
    "id": "a whole number of 63 bits: BIGINT",
}


def _fits(holds: str, column_type: str) -> bool:
    kind = re.split(r"[ (]", column_type)[0]
    if holds == "name":
        return kind in ("varchar", "char", "varbinary")
    if holds == "bytes":
        return kind in ("varbinary", "binary")
    return _integer_limit(kind, column_type) >= (ID_MAX if holds == "id" else 1)


def _integer_limit(kind: str, column_type: str) -> int:
    """The greatest number that fits a column of this type; 0 where it holds no whole numbers."""
    bits = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}.get(kind)
    return 0 if bits is None else 2 ** (bits if "unsigned" in column_type else bits - 1) - 1


def open_store(database: Database, facts: ServerFacts) -> int:
    """Reads the row of ``unalike_store``, or writes it into a new database, and answers the version of the tables.

    It makes sure that the server is the one that the row names: it alone, from now on.

    :raises StoreError: ``refused`` when the tables are missing and may not be created, when they are of another
        version, and when the server is another one than before, or the data are a copy of those that were used before.
    """
    version = _open_record(database, facts)
    _open_place(database, facts)
    return version


def _open_record(database: Database, facts: ServerFacts) -> int:
    settings = database.settings

    def new_identity() -> str:
        if settings.assume_identity and facts.cluster is None:
            return "assumed"
        return database.identity_of(lambda: facts.identity(secrets.randbits(128)))

    row = _read_store(database)
    if row is None:
        row = _create_store(database, born_record(new_identity(), secrets.randbits(128) or 1))
    open_tables(database, [STORE_TABLE])
    # The record of a cluster is looked at all the same: a node of it that runs alone is not the cluster.
    if settings.assume_identity and not names_cluster(row.server):
        database.expect(facts, None, row.server)
        return row.version
    if mark_in(row.server) is None and facts.is_unmarked(row.server):
        # Somebody else may do the same.
        identity = new_identity()
        replace = facts.fence(not settings.assume_durable, identity, None).put_into(SQL["store"]["replace"])
        with database.turn("recording the server") as turn:
            updated = turn.try_execute(replace, (identity, row.server), (TABLE_ACCESS_DENIED,))
            turn.give_back()
        if isinstance(updated, int):
            # Who only leases may not. It goes on with the record as it is, until somebody else changes it.
            database.expect(facts, database.identity_of(lambda: facts.identity(0)), row.server)
            return row.version
        row = _read_store(database) or _no_row(database)
    recorded = row.server
    found = database.identity_of(lambda: facts.identity_as(recorded))
    record = StoreRecord(recorded)
    if record.server != found:
        raise facts.another_server(database.at, record.server, found)
    database.expect(facts, found, recorded)
    return row.version


def _open_place(database: Database, facts: ServerFacts) -> None:
    """Makes sure that the data are where the store was, and that every connection from now on finds them there.

    A store that knows no place is given this one. The Rust adapter's ``place.rs`` says why.
    """
    settings = database.settings
    # The operator vouches for whatever is there.
    if settings.assume_identity:
        return
    statement: str = SQL["place"]["on_mariadb" if facts.is_mariadb else "on_mysql"]
    with database.turn("looking where the store is") as turn:
        rows = turn.try_rows(SQL["place"]["known"], (), NO_SUCH_TABLE) or []
        here = turn.place(statement)
        turn.give_back()
    known = [text(database, row, "dialect") for row in rows]
    made: str = SQL["place"]["made"]
    if not known:
        here = _make_place(database, facts, statement)
        if here is None:
            settings.warn(
                f"a dump of the store in {database.at} that is loaded again cannot be told from the store: use MySQL "
                "8, MariaDB 10.3.4 or newer, and let a user with the privileges CREATE and ALTER open it once, or run "
                "the statements that `unalike schema` prints"
            )
            return
        args = (f"{made}{here}", f"{secrets.randbits(128):032x}")
        database.execute("recording where the store is", SQL["identity"]["insert"], args)
    elif here is None or f"{made}{here}" not in known:
        raise another_place(database.at, here)
    database.expect_place(statement, here)


def _make_place(database: Database, facts: ServerFacts, statement: str) -> Optional[str]:
    """Makes what says the place, where that is missing; ``None`` where this user may not."""
    with database.turn("making a place for the store") as turn:
        if database.settings.create_tables:
            turn.try_execute(SQL["identity"]["ddl"], (), (TABLE_ACCESS_DENIED,))
            looked = turn.try_text(statement, (NO_SUCH_TABLE, UNKNOWN_COLUMN))
            if facts.is_mariadb and looked == UNKNOWN_COLUMN:
                # Somebody else may do the same. Versions before 10.3 know no versioning.
                expected = (TABLE_ACCESS_DENIED, _VERSIONED, SYNTAX_ERROR)
                turn.try_execute(SQL["place"]["add_versioning"], (), expected)
        if facts.is_mariadb:
            args = (SQL["place"]["row"], f"{secrets.randbits(128):032x}")
            turn.try_execute(SQL["identity"]["insert"], args, (NO_SUCH_TABLE, TABLE_ACCESS_DENIED))
        here = turn.place(statement)
        turn.give_back()
    return here


def current_version(database: Database) -> int:
    """The version of the tables as it is now."""
    return (_read_store(database) or _no_row(database)).version


def _read_store(database: Database) -> Optional[_Recorded]:
    """The row; ``None`` when the table is missing or has no row."""
    with database.turn("reading unalike_store") as turn:
        rows = turn.try_rows(SQL["store"]["read"], (), NO_SUCH_TABLE)
        turn.give_back()
    if not rows:
        return None
    version = number(database, rows[0], "schema_version")
    oldest, newest = SQL["versions"]
    if not oldest <= version <= newest:
        advice = "upgrade this program" if version > newest else "upgrade the tables with the program before this one"
        raise refused(
            f"{database.at}: its tables have the version {version}, and this program serves {oldest} to {newest}: "
            f"{advice}"
        )
    return _Recorded(version, text(database, rows[0], "server"))


def _create_store(database: Database, record: str) -> _Recorded:
    # Each of these statements is a transaction of its own in MySQL, and each may be repeated. Where the table was made
    # by hand, only the row is missing, and the user may not be one who creates tables.
    inserted = _insert_store(database, record)
    if inserted is None and database.settings.create_tables:
        database.execute("creating unalike_store", STORE_TABLE.ddl)
        inserted = _insert_store(database, record)
    if inserted is None:
        raise _table_is_missing(database, STORE_TABLE.name)
    if inserted == 1:
        # Whoever mistyped a database must hear that the numbers of another store do not go on here.
        database.settings.warn(f"made a new store in {database.at}: recorded its server ({record})")
    # As somebody else may have written it, a moment before.
    return _read_store(database) or _no_row(database)


def _insert_store(database: Database, identity: str) -> Optional[int]:
    """Writes the row unless there is one; ``None`` without a table, else how many rows were written."""
    with database.turn("filling unalike_store") as turn:
        args = (SQL["versions"][1], identity)
        reply = turn.try_execute(SQL["store"]["insert"], args, (NO_SUCH_TABLE,))
        turn.give_back()
    return None if isinstance(reply, int) else reply.affected


def _no_row(database: Database) -> _Recorded:
    raise refused(f"{database.at}: the table unalike_store is missing or has no row: run `unalike schema`")


def refuse_unnoticed(database: Database, facts: ServerFacts) -> None:
    """Refuses an adopted server that follows another one, where nothing in its statements would notice what it applies.

    :raises StoreError: ``refused``, saying what to run.
    """
    if facts.is_mariadb:
        return
    source = None
    with database.turn("looking for replication") as turn:
        # MySQL before 8.0.22 knows the second one.
        for statement in ("SHOW REPLICA STATUS", "SHOW SLAVE STATUS"):
            reply = turn.try_text(statement, (SYNTAX_ERROR, ACCESS_DENIED))
            if not isinstance(reply, int):
                source = _source_in(reply[0]) if reply else None
                break
            if reply == ACCESS_DENIED:
                break
        turn.give_back()
    if source is not None:
        raise refused(
            f"the server at {database.at} was adopted, and replicates from {source}: what it applies may write old "
            "rows over those that were lifted. End that (STOP REPLICA; RESET REPLICA ALL), and adopt it again"
        )


def _source_in(row: Row) -> str:
    host = row.get("Master_Host") or row.get("Source_Host")
    return host.decode(errors="replace") if host else "another server"


def identity_of(database: Database, dialect: str) -> str:
    """The random name of what is kept under this word, 32 hexadecimal digits; made when somebody first asks for it.

    :raises StoreError: ``refused`` when the table is missing and must not be created, and any error of the connection.
    """
    has_table, found = _read_identity(database, dialect)
    if found is not None:
        return found
    if not has_table:
        if not database.settings.create_tables:
            raise _table_is_missing(database, "unalike_identity")
        with database.turn("creating unalike_identity") as turn:
            reply = turn.try_execute(SQL["identity"]["ddl"], (), (TABLE_ACCESS_DENIED,))
            turn.give_back()
        if isinstance(reply, int):
            raise _table_is_missing(database, "unalike_identity")
    # Of two who come at once, one name stays.
    args = (dialect, f"{secrets.randbits(128):032x}")
    database.execute("naming the store in unalike_identity", SQL["identity"]["insert"], args)
    _, found = _read_identity(database, dialect)
    if found is None:
        raise damaged(database.at, "unalike_identity has lost the row that was just written")
    return found


def _read_identity(database: Database, dialect: str) -> tuple[bool, Optional[str]]:
    """Whether there is a table, and the name if there is one."""
    with database.turn("reading unalike_identity") as turn:
        rows = turn.try_rows(SQL["identity"]["read"], (dialect,), NO_SUCH_TABLE)
        turn.give_back()
    if not rows:
        return rows is not None, None
    mark = text(database, rows[0], "mark")
    identity = hex_number(mark)
    if identity is None:
        raise damaged(database.at, f"{mark!r} in unalike_identity is no name")
    return True, f"{identity:032x}"
