"""What a grant rests on, besides its own rows: which server it is, that its commits last, and how the session is set.

All of it is looked at on every new connection, and stated again as a condition of every statement that grants. The Rust
adapter's ``fence.rs`` and ``record.rs`` say why; the tests compare each answer with theirs.
"""

from __future__ import annotations

import json
import re
import string
from typing import Final, Iterable, Mapping, Optional

from .mysql_sql import SQL, hexadecimal
from .store import StoreError

_OF_DOMAIN: Final = "gtid_slave_pos"
"""Before the position in a server's own domain, as identities have it."""

_OF_ALL: Final = "gtid_slave_positions"
"""Before those in all."""

_OF_CLUSTER: Final = " wsrep_cluster_name "
"""Between the mark and the name of a Galera cluster, as identities have it."""

_UNKNOWN_UUID: Final = "00000000-0000-0000-0000-000000000000"
"""What servers answer for ``server_uuid`` that speak the protocol and have none: all of them the same."""

_OF_VTGATE: Final = "each statement goes to a server of vtgate's choice, and what one says holds for no other"

_OTHER_SERVERS: Final = {
    "tidb": "TiDB answers with settings of MySQL that mean nothing there, and with the same server_uuid on every server",
    "vitess": _OF_VTGATE,
    "planetscale": _OF_VTGATE,
}
"""What others have in their versions that speak the protocol of MySQL, and why they are not used."""

_SPLIT_BRAIN: Final = ("pc.ignore_sb", "pc.ignore_quorum")
"""The options of Galera with which a node goes on without the majority."""

_UNKNOWN: Final = "unknown"
"""What a server says that does not know who it is."""

_NAMES: Final = [*SQL["facts"], *(name for name, _ in SQL["settings"])]

READ_FACTS: Final = f"SHOW VARIABLES WHERE Variable_name IN ({', '.join(repr(name) for name in _NAMES)})"
"""The statement that reads :class:`ServerFacts`."""


class NoIdentity(Exception):
    """Nothing tells a server from others."""


class Fence:
    """The conditions under which a statement may grant."""

    def __init__(self, conditions: str, alone: str, recorded: Optional[str]) -> None:
        self._of_store = self._other = conditions
        if recorded is not None:
            server = f"server = {hexadecimal(recorded)}"
            self._of_store += f" AND {server}"
            # Without a lock, since the session reads what is committed.
            self._other += f" AND EXISTS (SELECT 1 FROM unalike_store WHERE id = 1 AND {server})"
        self._alone = self._other + alone
        # Whoever records another server marks all rows anew in the same transaction: a row's mark says what the record
        # says.
        has_marked_rows = recorded is not None and StoreRecord(recorded).era != 0
        self._of_row = conditions + alone if has_marked_rows else self._alone

    def put_into(self, statement: str) -> str:
        """The statement with these conditions where it says ``{fence}``.

        ``{fence alone}`` if it is a transaction of its own, ``{fence of the store}`` if it concerns the row of
        ``unalike_store``, and ``{fence of a row}`` if it is a transaction of its own and its condition compares a row's
        ``stripe_set``.
        """
        fenced = statement.replace("{fence of the store}", self._of_store).replace("{fence}", self._other)
        return fenced.replace("{fence of a row}", self._of_row).replace("{fence alone}", self._alone)


class ServerFacts:
    """What a server says of itself, on the connection in hand."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = dict(values)

    def value(self, name: str) -> str:
        """A variable's value; empty when the server has no such variable."""
        return self._values.get(name, "")

    def _has(self, name: str) -> bool:
        return name in self._values

    def _is_on(self, name: str) -> bool:
        return self.value(name) in ("ON", "1")

    def identity(self, mark: int) -> str:
        """Which server this is, with this mark in the record of it.

        :raises NoIdentity: When nothing tells it from other servers.
        """
        cluster = self.cluster
        if cluster is not None:
            return f"mark {mark:032x}{_OF_CLUSTER}{cluster}"
        uuid = self.value("server_uuid")
        if uuid not in ("", _UNKNOWN, _UNKNOWN_UUID):
            return f"server_uuid {uuid}"
        figures = self._figures()
        if figures is None:
            raise NoIdentity(
                "it has neither a server_uuid nor a server_id with a gtid_domain_id, so nothing tells it from other "
                "servers: use MySQL 5.6, MariaDB 10.0 or newer, or vouch for it (identity=assumed)"
            )
        return _marked(mark, figures, f"{_OF_DOMAIN} {self._position(figures[1]) or 'none'}")

    def identity_as(self, recorded: str) -> str:
        """The identity in the form of a recorded one, with its mark.

        :raises NoIdentity: As :meth:`identity`.
        """
        mark = mark_in(recorded) or 0
        return self._adopted_identity(mark) if _OF_ALL in recorded else self.identity(mark)

    def _adopted_identity(self, mark: int) -> str:
        """The same of a server that was adopted: what it applied in whichever domain is a part of it."""
        of_domain = self.identity(mark)
        figures = self._figures()
        if figures is None or mark_in(of_domain) is None or self.cluster is not None:
            return of_domain
        return _marked(mark, figures, f"{_OF_ALL} {','.join(self._positions()) or 'none'}")

    @property
    def cluster(self) -> Optional[str]:
        """The name of the cluster that it is a node of: of Galera, which Percona XtraDB Cluster is too."""
        return None if self.value("wsrep_provider") in ("", "none") else self.value("wsrep_cluster_name")

    def _figures(self) -> Optional[tuple[int, int]]:
        server, domain = unsigned(self.value("server_id")), unsigned(self.value("gtid_domain_id"))
        return None if server is None or domain is None else (server, domain)

    def _listed(self) -> list[str]:
        return [position.strip() for position in self.value("gtid_slave_pos").split(",")]

    def _positions(self) -> list[str]:
        """How far replication has come in each domain, in the order of their texts."""
        return sorted(position for position in self._listed() if position)

    def _position(self, domain: int) -> Optional[str]:
        """How far replication has come in this domain."""
        return next((position for position in self._listed() if position.startswith(f"{domain}-")), None)

    @property
    def is_mariadb(self) -> bool:
        return "MariaDB" in self.value("version")

    def _has_own_changes(self) -> bool:
        """Whether the changes that came to it last were once made under its own ``server_id``."""
        figures = self._figures()
        if figures is None:
            return False
        server, domain = figures
        return (self._position(domain) or "").startswith(f"{domain}-{server}-")

    def another_server(self, at: str, recorded: str, found: str) -> StoreError:
        """The error when this server is not the recorded one.

        One that took over may lack the last commits of the one before, and numbers would repeat.
        """
        what = (
            f"the server at {at} is another one than before ({found}, not {recorded}). If it took over from that one, "
            "it may lack its last commits: lift its tags above everything that was handed out with `unalike store "
            "adopt --lift COUNT`, and then restart the programs that knew the other one"
        )
        if self._has_own_changes():
            what += (
                ". If it is the one before, it follows a replica of its own, and its own changes came back to it: stop "
                "that first (STOP SLAVE; RESET SLAVE ALL), since each change that comes back makes it another one "
                "again; then adopt it (--lift 1 will do, as it lost nothing), and restart the programs"
            )
        return refused(what)

    def is_unmarked(self, recorded: str) -> bool:
        """Whether this server is the one of a record as it was written before there were marks.

        Where that can be told: it is found where that one was, and no data ever came to it from another server.
        """
        uid, host = self.value("server_uid"), self.value("hostname")
        if uid:
            found, is_known = f"server_uid {uid}", uid != _UNKNOWN
        else:
            found, is_known = f"{host}:{self.value('port')}{self.value('datadir')}", bool(host)
        is_alone = self._has("gtid_slave_pos") and not self.value("gtid_slave_pos")
        return is_known and found == recorded and is_alone

    def fault_of_durability(self) -> Optional[str]:
        """What is wrong, unless a commit that was reported is on the disk, and in the binary log if there is one."""
        flush = self.value("innodb_flush_log_at_trx_commit")
        if flush != "1":
            return (
                f"innodb_flush_log_at_trx_commit is {flush}: a crash would lose commits, and numbers would repeat; "
                "set it to 1"
            )
        sync = self.value("sync_binlog")
        if self._is_on("log_bin") and sync != "1":
            return (
                f"the binary log is on and sync_binlog is {sync}: a replica that takes over after a crash would lack "
                "commits, and numbers would repeat; set it to 1"
            )
        return None

    def fault_of_log(self) -> Optional[str]:
        """What is wrong, unless replicas are sent what was changed."""
        if self._is_on("log_bin") and self.value("binlog_format") == "STATEMENT":
            return (
                "binlog_format is STATEMENT: replicas would run statements again, and not make the same changes; set "
                "it to MIXED or ROW"
            )
        return None

    def fault_of_kind(self) -> Optional[str]:
        """What is wrong, unless what it says of itself means what it means on MySQL and MariaDB."""
        version = self.value("version")
        spelled = version.lower()
        why = next((why for name, why in _OTHER_SERVERS.items() if name in spelled), None)
        return why and f"its version is {version}: {why}; use MySQL or MariaDB itself, or another store"

    def fault_of_cluster(self, is_vouched: bool) -> Optional[str]:
        """What is wrong, unless a node of a cluster may be used.

        Nothing that it says tells whether the cluster lost commits, so the operator has to promise that it does not.
        """
        cluster = self.cluster
        if cluster is None:
            return None
        if not is_vouched:
            return (
                f"it is a node of the Galera cluster {_quoted(cluster)}: begun anew with a node that was behind, the "
                "cluster would lose commits, nothing in it would tell, and numbers would repeat. Promise that it never "
                "is, or that you run `unalike store adopt` after it was (identity=assumed)"
            )
        if not self._is_on("wsrep_on"):
            return (
                f"wsrep_on is OFF in a session on a node of the Galera cluster {_quoted(cluster)}: what it changes "
                "would not reach the other nodes, and numbers would repeat; set it to ON, and look at init_connect"
            )
        options = (option.partition("=") for option in self.value("wsrep_provider_options").split(";"))
        for name, _, value in ((name.strip(), equal, value.strip().lower()) for name, equal, value in options):
            if name in _SPLIT_BRAIN and value not in ("false", "no", "off", "0"):
                return (
                    f"{name} is {value} in wsrep_provider_options: nodes that lose sight of each other would each go "
                    "on, and numbers would repeat; set it to false"
                )
        return None

    def fault_of_init_connect(self) -> Optional[str]:
        """What is wrong, unless ``init_connect`` does no more than set a session.

        A temporary table of one of our names, which it may make, stands before ours in the session, and is gone with
        it.
        """
        statements = (statement.strip() for statement in self.value("init_connect").split(";"))
        other = next((statement for statement in statements if not _only_sets(statement)), None)
        if other is None:
            return None
        return (
            f"init_connect runs {_quoted(other)} in every session, and may so put other tables before those that "
            "grants are made from: leave nothing there but SET"
        )

    @property
    def only_reads(self) -> bool:
        """Whether nothing can be written, except by users who are exempt from it."""
        return self._is_on("read_only")

    def fault_of_session(self, before: ServerFacts) -> Optional[str]:
        """What is wrong, unless the session is as grants need it. ``before`` was read on the same connection."""
        for name, literal in SQL["settings"]:
            if self._has(name) and not _says(self.value(name), literal):
                return (
                    f"the session variable {name} is {_quoted(self.value(name))}, and grants need {literal}: it could "
                    "not be set; look for it in the server's configuration, in init_connect, and in a proxy between"
                )
        if self._is_on("in_transaction"):
            return (
                "a transaction is open on a new connection: what is granted in it would never be committed; look at "
                "init_connect, and at a proxy between"
            )
        if self._has("timestamp") and self.value("timestamp") == before.value("timestamp"):
            return (
                f"the session variable timestamp stands at {_quoted(self.value('timestamp'))}: the server's clock "
                "cannot be read; look at init_connect, and at a proxy between"
            )
        return None

    def session_statement(self, lock_wait_s: int, idle_s: int) -> str:
        """The statement that sets the session variables which are otherwise than grants need them."""
        parts = [
            f"innodb_lock_wait_timeout = {lock_wait_s}",
            f"lock_wait_timeout = {lock_wait_s}",
            f"wait_timeout = {idle_s}",
        ]
        for name, literal in SQL["settings"]:
            if self._has(name) and not _says(self.value(name), literal) and name not in SQL["checked"]:
                parts.append(f"{name} = {literal}")
        parts += [f"{name} = DEFAULT" for name in SQL["room"] if self._has(name)]
        return f"SET SESSION {', '.join(parts)}"

    def fence(self, is_durable: bool, identity: Optional[str], recorded: Optional[str]) -> Fence:
        """The conditions of statements that run on this very server, in a session that was checked."""
        equal = [(f"@@{name}", literal) for name, literal in SQL["settings"] if self._has(name)]
        logs = self._is_on("log_bin")
        equal += [("@@global.read_only", "0"), ("@@global.log_bin", str(int(logs)))]
        if logs and self._has("binlog_format"):
            equal.append(("@@binlog_format = 'STATEMENT'", "0"))
        if is_durable:
            equal.append(("@@global.innodb_flush_log_at_trx_commit", "1"))
            if logs:
                equal.append(("@@global.sync_binlog", "1"))
        cluster = self.cluster
        if cluster is not None:
            equal += [("@@wsrep_on", "1"), ("@@wsrep_cluster_name", hexadecimal(cluster))]
        elif identity is not None:
            equal += self._identifying(identity)
        alone = " AND @@in_transaction = 0" if self._has("in_transaction") else ""
        return Fence(_all_of(equal), alone, recorded)

    def _identifying(self, identity: str) -> Iterable[tuple[str, str]]:
        if identity.startswith("server_uuid "):
            yield "@@server_uuid", hexadecimal(self.value("server_uuid"))
            return
        # Both are numbers, or there would be no identity.
        server, domain = self._figures() or (0, 0)
        yield "@@global.server_id", str(server)
        yield "@@gtid_domain_id", str(domain)
        if _OF_ALL in identity:
            # In whichever order: as many bytes, and each of them.
            yield "LENGTH(@@global.gtid_slave_pos)", str(len(self.value("gtid_slave_pos").encode()))
            for position in self._positions():
                yield f"{_found(f',{position},')} > 0", "1"
        elif (of_domain := self._position(domain)) is None:
            yield _found(f",{domain}-"), "0"
        else:
            yield f"{_found(f',{of_domain},')} > 0", "1"


def _marked(mark: int, figures: tuple[int, int], position: str) -> str:
    return f"mark {mark:032x} server_id {figures[0]} gtid_domain_id {figures[1]} {position}"


class StoreRecord:
    """What ``unalike_store`` says of its server.

    ``SERVER``, ``SERVER era MARK REACHED``, or ``SERVER lifted unalike=1000,-leaf=50 era MARK REACHED``.
    """

    def __init__(self, text: str) -> None:
        self.server: str = text
        """The server."""
        self.era: int = 0
        """What marks the rows of ``unalike_tag`` that were written since the store was made, or its tables were lifted
        for a server; else 0."""
        self._lifted: dict[str, bool] = {}
        # What cannot be read is no server that there is.
        _ = self._read_lifted(text) or self._read_born(text)

    def _read_lifted(self, text: str) -> bool:
        server, lifted, rest = text.rpartition(" lifted ")
        entries, has_era, said = rest.partition(" era ")
        pairs = [entry.partition("=") for entry in entries.split(",")]
        figures = [unsigned(total) for _, _, total in pairs]
        era = _read_era(said) if has_era else 0
        if not lifted or None in figures or era is None:
            return False
        self.server, self.era = server, era
        self._lifted = {name.removeprefix("-"): not name.startswith("-") for name, _, _ in pairs}
        return True

    def _read_born(self, text: str) -> bool:
        """Of a store whose tables were never lifted."""
        server, has_era, said = text.rpartition(" era ")
        era = _read_era(said) if has_era else None
        if era is not None:
            self.server, self.era = server, era
        return era is not None

    @property
    def was_adopted(self) -> bool:
        """Whether the server took over from another one."""
        return bool(self._lifted)

    @property
    def is_valid(self) -> bool:
        """Whether the tables of unalike's own go on above what the servers before may have granted."""
        return not self._lifted or self._lifted.get("unalike", False)


def born_record(server: str, mark: int) -> str:
    """The record of a new store on this server, whose rows have this mark."""
    return f"{server} era {mark:032x} 0"


def _read_era(said: str) -> Optional[int]:
    """The mark in ``MARK REACHED``."""
    mark, _, reached = said.partition(" ")
    return None if unsigned(reached) is None else hex_number(mark)


def mark_in(recorded: str) -> Optional[int]:
    """What the record of a server that has a mark says it is."""
    return hex_number(recorded[5:].split(" ")[0]) if recorded.startswith("mark ") else None


def names_cluster(recorded: str) -> bool:
    """Whether a record names a Galera cluster."""
    return mark_in(recorded) is not None and _OF_CLUSTER in recorded


def hex_number(text: str) -> Optional[int]:
    """A number of 128 bits at most, from hexadecimal digits."""
    number = int(text, 16) if re.fullmatch(r"\+?[0-9a-fA-F]+", text) else None
    return number if number is not None and number < 2**128 else None


def unsigned(text: str) -> Optional[int]:
    """A number of 64 bits, from decimal digits."""
    number = int(text) if re.fullmatch(r"\+?[0-9]+", text) else None
    return number if number is not None and number < 2**64 else None


def refused(what: str) -> StoreError:
    """The error of what is refused, in the words of every store."""
    return StoreError("refused", f"the store refused: {what}")


def _found(what: str) -> str:
    return f"LOCATE({hexadecimal(what)}, CONCAT(',', @@global.gtid_slave_pos, ','))"


def _only_sets(statement: str) -> bool:
    words = [*map(_ascii_upper, statement.split()), "", ""]
    first, second = words[:2]
    if first == "SET":
        # `SET STATEMENT .. FOR` runs any other one; `BEGIN NOT ATOMIC` runs many.
        return second != "STATEMENT" and not second.startswith("STATEMENT/")
    if first == "BEGIN":
        return second in ("", "WORK")
    if first == "START":
        return second == "TRANSACTION"
    return first in ("", "COMMIT", "ROLLBACK")


def _says(value: str, literal: str) -> bool:
    """Whether a value, as ``SHOW VARIABLES`` gives it, is what a statement says in this way."""
    if literal == "1":
        return _ascii_upper(value) == "ON" or value == "1"
    if literal == "0":
        # Some are seconds with decimals.
        is_number = re.fullmatch(r"[+-]?[0-9]+(\.[0-9]*)?", value) is not None
        return _ascii_upper(value) == "OFF" or (is_number and float(value) == 0)
    return _ascii_upper(value) == _ascii_upper(literal.strip("'"))


def _all_of(equal: list[tuple[str, str]]) -> str:
    """One condition that holds when all of these do: one row of values equals another.

    As a list of conditions they would cost the server three times as much.
    """
    return f"({', '.join(found for found, _ in equal)}) = ({', '.join(needed for _, needed in equal)})"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _ascii_upper(text: str) -> str:
    return text.translate(_UPPER)


_UPPER: Final = str.maketrans(string.ascii_lowercase, string.ascii_uppercase)
