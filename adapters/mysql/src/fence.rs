//! What a grant rests on, besides its own rows: which server it is, that its commits last, and how the session is set.
//!
//! All of it is looked at on every new connection, and stated again as a condition of every statement that grants: a
//! proxy may run each statement on another connection, a server may be set otherwise while connections are open, and
//! another server may take an address over. A statement whose condition does not hold changes no row.
//!
//! **Identity.** MySQL keeps a `server_uuid` beside its data. MariaDB has nothing of the kind: its `server_uid` is made
//! of the address of a network card and the port. So a record of ours identifies it, a random mark in the data, with
//! three of the server's figures as they were when the record was written: `server_id`, which a replica cannot share
//! with its primary while it follows it; `gtid_domain_id`; and how far replication had come in this domain,
//! `gtid_slave_pos`. Each server keeps the last one for itself, and each transaction of others that it applies moves it
//! on, the one with our record too. So a replica never stands where the record says, whatever configuration, host and
//! port it is given afterwards. The same data elsewhere does. A server that was adopted is identified by its position
//! in all domains: whatever it applies afterwards, from a relay log that was left say, may have written old numbers
//! over those that were lifted, and makes it another one. What somebody empties by hand
//! (`SET GLOBAL gtid_slave_pos = ''`) on a replica that also has its primary's `server_id` proves nothing any more: no
//! data tell them apart.
//!
//! **Galera.** The nodes of a cluster have the same data, and any of them may lose its own: one that joins is sent
//! those of another. So no node has an identity, and neither has the cluster: begun anew with a node that was behind,
//! it has the same `wsrep_cluster_state_uuid` as before and all the records in its tables, but not the last commits.
//! Nothing that a server says tells the two apart: `wsrep_cluster_conf_id` begins at 1 again and comes to where it was.
//! So a cluster is used only where the operator promises that this does not happen (`identity=assumed`). What can be
//! known is checked all the same: it has the name that is recorded, it is a cluster and not a node of it alone, and no
//! node goes on without the majority. Its rows may be changed on any node: of two statements that change one row at the
//! same time the cluster commits one. What a statement only reads it does not compare: see
//! `Database::check_rows_read`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Executor as _, Row as _};
use unalike_storage::StoreError;

use crate::record::Record;

/// The session variables that a grant rests on: what each must be, as a statement says it. A variable that a server
/// does not have is left out; one that is otherwise on a new connection is set.
///
/// - A transaction that is open already would take a grant in and never commit it: `autocommit`, `completion_type`.
/// - A number that does not fit is an error, never cut off, and assignments run from left to right: `sql_mode`.
/// - A condition that reads `unalike_store` must not lock its row: isolation.
/// - Without checks of keys and constraints, rows may come twice, or be granted to programs that know no stripes.
/// - `SET insert_id` gives a row the number that somebody chose.
/// - A list that is cut off, or sorted by a part of the names, leaves tags out that were to be lifted.
/// - A statement has the store's own time limit, and no other.
/// - Names in another character set would be those of other tags.
/// - A change that replicas skip is lost when they take over.
pub(crate) const SETTINGS: [(&str, &str); 27] = [
    ("autocommit", "1"),
    ("completion_type", "'NO_CHAIN'"),
    ("sql_mode", "'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'"),
    ("tx_isolation", "'READ-COMMITTED'"),
    ("transaction_isolation", "'READ-COMMITTED'"),
    ("tx_read_only", "0"),
    ("transaction_read_only", "0"),
    // On by default since MariaDB 11.6.2: then a grant that waited for another one of its row fails (error 1020).
    ("innodb_snapshot_isolation", "0"),
    ("unique_checks", "1"),
    ("foreign_key_checks", "1"),
    ("check_constraint_checks", "1"),
    ("insert_id", "0"),
    ("sql_safe_updates", "0"),
    ("sql_auto_is_null", "0"),
    ("sql_big_selects", "1"),
    ("sql_select_limit", "18446744073709551615"),
    ("max_sort_length", "1024"),
    ("group_concat_max_len", "1024"),
    ("max_statement_time", "0"),
    ("max_execution_time", "0"),
    ("system_versioning_asof", "'DEFAULT'"),
    ("character_set_client", "'utf8mb4'"),
    ("character_set_connection", "'utf8mb4'"),
    ("character_set_results", "'utf8mb4'"),
    ("skip_replication", "0"),
    ("pseudo_slave_mode", "0"),
    ("sql_log_bin", "1"),
];

/// What else is looked at.
pub(crate) const FACTS: [&str; 25] = [
    "server_uuid",
    "server_uid",
    "server_id",
    "gtid_domain_id",
    "gtid_slave_pos",
    "wsrep_on",
    "wsrep_provider",
    "wsrep_provider_options",
    "wsrep_cluster_name",
    "hostname",
    "port",
    "datadir",
    "version",
    "innodb_flush_log_at_trx_commit",
    "log_bin",
    "sync_binlog",
    "binlog_format",
    "read_only",
    "in_transaction",
    "timestamp",
    "init_connect",
    "auto_increment_increment",
    "auto_increment_offset",
    ROOM[0],
    ROOM[1],
];

/// How much room a session has to list tables: what the server gives to others, whatever was set for this session.
pub(crate) const ROOM: [&str; 2] = ["sort_buffer_size", "tmp_disk_table_size"];

/// Lists are read whole: variables, before they are looked at. The comment is a part of the statement on MySQL alone.
pub(crate) const READ_WHOLE_LISTS: &str =
    "SET SESSION sql_select_limit = 18446744073709551615, sql_big_selects = 1 /*!50708 , max_execution_time = 0 */";

/// What a server says of itself, on the connection in hand.
#[derive(Clone, Debug)]
pub(crate) struct ServerFacts(BTreeMap<String, String>);

impl ServerFacts {
    pub(crate) async fn read(connection: &mut MySqlConnection) -> Result<Self, sqlx::Error> {
        let mut names = String::new();
        for name in FACTS.into_iter().chain(SETTINGS.map(|(name, _)| name)) {
            let comma = if names.is_empty() { "" } else { ", " };
            // Writing to a text cannot fail.
            let _ = write!(names, "{comma}'{name}'");
        }
        let statement = AssertSqlSafe(format!("SHOW VARIABLES WHERE Variable_name IN ({names})"));
        let mut facts = BTreeMap::new();
        for row in sqlx::query(statement).fetch_all(connection).await? {
            facts.insert(row.try_get(0)?, row.try_get(1)?);
        }
        Ok(Self(facts))
    }

    #[cfg(test)]
    pub(crate) fn of(values: BTreeMap<String, String>) -> Self {
        Self(values)
    }

    /// A variable's value; empty when the server has no such variable.
    pub(crate) fn value(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    fn is_on(&self, name: &str) -> bool {
        matches!(self.value(name), "ON" | "1")
    }

    /// Which server this is, with this mark in the record of it.
    ///
    /// # Errors
    /// When nothing tells it from other servers.
    pub(crate) fn identity(&self, mark: u128) -> Result<String, String> {
        if let Some(cluster) = self.cluster() {
            return Ok(format!("mark {mark:032x}{OF_CLUSTER}{cluster}"));
        }
        let uuid = self.value("server_uuid");
        if !["", UNKNOWN, UNKNOWN_UUID].contains(&uuid) {
            return Ok(format!("server_uuid {uuid}"));
        }
        let (Ok(server), Ok(domain)) = (self.figure("server_id"), self.figure("gtid_domain_id")) else {
            return Err(
                "it has neither a server_uuid nor a server_id with a gtid_domain_id, so nothing tells it from \
                        other servers: use MySQL 5.6, MariaDB 10.0 or newer, or vouch for it (identity=assumed)"
                    .to_owned(),
            );
        };
        let position = self.position(domain).unwrap_or("none");
        Ok(marked(mark, server, domain, &format!("{OF_DOMAIN} {position}")))
    }

    /// The same of a server that is adopted: what it applied in whichever domain is a part of it.
    ///
    /// # Errors
    /// As [`ServerFacts::identity`].
    pub(crate) fn adopted_identity(&self, mark: u128) -> Result<String, String> {
        let of_domain = self.identity(mark)?;
        let (Ok(server), Ok(domain)) = (self.figure("server_id"), self.figure("gtid_domain_id")) else {
            return Ok(of_domain);
        };
        if mark_in(&of_domain).is_none() || self.cluster().is_some() {
            return Ok(of_domain);
        }
        let positions = self.positions();
        let positions = if positions.is_empty() { "none".to_owned() } else { positions.join(",") };
        Ok(marked(mark, server, domain, &format!("{OF_ALL} {positions}")))
    }

    /// The identity in the form of a recorded one, with its mark.
    ///
    /// # Errors
    /// As [`ServerFacts::identity`].
    pub(crate) fn identity_as(&self, recorded: &str) -> Result<String, String> {
        let mark = mark_in(recorded).unwrap_or_default();
        if recorded.contains(OF_ALL) { self.adopted_identity(mark) } else { self.identity(mark) }
    }

    /// The name of the cluster that it is a node of: of Galera, which Percona XtraDB Cluster is too.
    pub(crate) fn cluster(&self) -> Option<&str> {
        let is_node = !matches!(self.value("wsrep_provider"), "" | "none");
        is_node.then(|| self.value("wsrep_cluster_name"))
    }

    /// How far replication has come in each domain, in the order of their texts.
    fn positions(&self) -> Vec<&str> {
        let mut positions: Vec<_> =
            self.value("gtid_slave_pos").split(',').map(str::trim).filter(|position| !position.is_empty()).collect();
        positions.sort_unstable();
        positions
    }

    /// Whether it is a MariaDB.
    pub(crate) fn is_mariadb(&self) -> bool {
        self.value("version").contains("MariaDB")
    }

    fn figure(&self, name: &str) -> Result<u64, std::num::ParseIntError> {
        self.value(name).parse()
    }

    /// How far replication has come in this domain.
    fn position(&self, domain: u64) -> Option<&str> {
        let domain = format!("{domain}-");
        self.value("gtid_slave_pos").split(',').map(str::trim).find(|position| position.starts_with(&domain))
    }

    /// Whether the changes that came to it last were once made under its own `server_id`.
    pub(crate) fn has_own_changes(&self) -> bool {
        let (Ok(server), Ok(domain)) = (self.figure("server_id"), self.figure("gtid_domain_id")) else { return false };
        self.position(domain).is_some_and(|position| position.starts_with(&format!("{domain}-{server}-")))
    }

    /// The error when this server is not the recorded one: one that took over may lack the last commits of the one
    /// before, and numbers would repeat.
    pub(crate) fn another_server(&self, at: &str, recorded: &str, found: &str) -> StoreError {
        let mut what = format!(
            "the server at {at} is another one than before ({found}, not {recorded}). If it took over from that one, it may \
             lack its last commits: lift its tags above everything that was handed out with `unalike store adopt --lift COUNT`, \
             and then restart the programs that knew the other one"
        );
        if self.has_own_changes() {
            what.push_str(
                ". If it is the one before, it follows a replica of its own, and its own changes came back to it: stop that first \
                 (STOP SLAVE; RESET SLAVE ALL), since each change that comes back makes it another one again; then adopt it \
                 (--lift 1 will do, as it lost nothing), and restart the programs",
            );
        }
        StoreError::refused(what)
    }

    /// Whether this server is the one of a record as it was written before there were marks, where that can be told:
    /// it is found where that one was, and no data ever came to it from another server.
    pub(crate) fn is_unmarked(&self, recorded: &str) -> bool {
        let uid = self.value("server_uid");
        let (found, is_known) = if uid.is_empty() {
            let at = format!("{}:{}{}", self.value("hostname"), self.value("port"), self.value("datadir"));
            (at, !self.value("hostname").is_empty())
        } else {
            (format!("server_uid {uid}"), uid != UNKNOWN)
        };
        is_known && found == recorded && self.has("gtid_slave_pos") && self.value("gtid_slave_pos").is_empty()
    }

    /// Whether a commit that was reported is on the disk, and in the binary log if there is one: replicas that take
    /// over have it from there.
    pub(crate) fn check_durability(&self) -> Result<(), String> {
        let flush = self.value("innodb_flush_log_at_trx_commit");
        if flush != "1" {
            return Err(format!(
                "innodb_flush_log_at_trx_commit is {flush}: a crash would lose commits, and numbers would repeat; set it \
                 to 1"
            ));
        }
        let sync = self.value("sync_binlog");
        if self.is_on("log_bin") && sync != "1" {
            return Err(format!(
                "the binary log is on and sync_binlog is {sync}: a replica that takes over after a crash would lack \
                 commits, and numbers would repeat; set it to 1"
            ));
        }
        Ok(())
    }

    /// Whether replicas are sent what was changed.
    ///
    /// With the text of a statement they would run it again, each with variables of its own, and its condition would
    /// not hold there.
    pub(crate) fn check_log(&self) -> Result<(), String> {
        if self.is_on("log_bin") && self.value("binlog_format") == "STATEMENT" {
            return Err("binlog_format is STATEMENT: replicas would run statements again, and not make the same \
                        changes; set it to MIXED or ROW"
                .to_owned());
        }
        Ok(())
    }

    /// Whether the server may be used, where the operator vouches for some of it: that its commits last, and which
    /// server it is.
    pub(crate) fn check(&self, is_durable: bool, is_known: bool) -> Result<(), String> {
        self.check_kind()?;
        if !is_durable {
            self.check_durability().map_err(|why| format!("{why} (or vouch for it: durability=assumed)"))?;
        }
        self.check_cluster(is_known)?;
        self.check_log()?;
        self.check_init_connect()
    }

    /// Whether what it says of itself means what it means on MySQL and MariaDB.
    pub(crate) fn check_kind(&self) -> Result<(), String> {
        let version = self.value("version");
        let spelled = version.to_ascii_lowercase();
        match OTHER_SERVERS.iter().find(|(name, _)| spelled.contains(name)) {
            Some((_, why)) => {
                Err(format!("its version is {version}: {why}; use MySQL or MariaDB itself, or another store"))
            }
            None => Ok(()),
        }
    }

    /// Whether a node of a cluster may be used: nothing that it says tells whether the cluster lost commits, so the
    /// operator has to promise that it does not.
    pub(crate) fn check_cluster(&self, is_vouched: bool) -> Result<(), String> {
        let Some(cluster) = self.cluster() else { return Ok(()) };
        if !is_vouched {
            return Err(format!(
                "it is a node of the Galera cluster {cluster:?}: begun anew with a node that was behind, the cluster would lose \
                 commits, nothing in it would tell, and numbers would repeat. Promise that it never is, or that you run \
                 `unalike store adopt` after it was (identity=assumed)"
            ));
        }
        if !self.is_on("wsrep_on") {
            return Err(format!(
                "wsrep_on is OFF in a session on a node of the Galera cluster {cluster:?}: what it changes would not reach the other \
                 nodes, and numbers would repeat; set it to ON, and look at init_connect"
            ));
        }
        let options = self.value("wsrep_provider_options").split(';').filter_map(|option| option.split_once('='));
        let mut options = options.map(|(name, value)| (name.trim(), value.trim().to_ascii_lowercase()));
        let alone = options.find(|(name, value)| {
            SPLIT_BRAIN.contains(name) && !matches!(value.as_str(), "false" | "no" | "off" | "0")
        });
        match alone {
            Some((name, value)) => Err(format!(
                "{name} is {value} in wsrep_provider_options: nodes that lose sight of each other would each go on, and numbers \
                 would repeat; set it to false"
            )),
            None => Ok(()),
        }
    }

    /// Whether `init_connect` does no more than set a session: a temporary table of one of our names, which it may
    /// make, stands before ours in the session, and is gone with it.
    pub(crate) fn check_init_connect(&self) -> Result<(), String> {
        let only_sets = |statement: &str| {
            let mut words = statement.split_whitespace().map(str::to_ascii_uppercase);
            let (first, second) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            match first.as_str() {
                "" | "COMMIT" | "ROLLBACK" => true,
                // `SET STATEMENT .. FOR` runs any other one; `BEGIN NOT ATOMIC` runs many.
                "SET" => second != "STATEMENT" && !second.starts_with("STATEMENT/"),
                "BEGIN" => matches!(second.as_str(), "" | "WORK"),
                "START" => second == "TRANSACTION",
                _ => false,
            }
        };
        let init = self.value("init_connect");
        match init.split(';').map(str::trim).find(|statement| !only_sets(statement)) {
            Some(statement) => Err(format!(
                "init_connect runs {statement:?} in every session, and may so put other tables before those that grants are \
                 made from: leave nothing there but SET"
            )),
            None => Ok(()),
        }
    }

    /// Whether nothing can be written, except by users who are exempt from it.
    pub(crate) fn only_reads(&self) -> bool {
        self.is_on("read_only")
    }

    /// Whether the session is as grants need it. `before` was read on the same connection.
    pub(crate) fn check_session(&self, before: &Self) -> Result<(), String> {
        let wrong = SETTINGS.iter().find(|(name, literal)| self.has(name) && !says(self.value(name), literal));
        if let Some((name, literal)) = wrong {
            return Err(format!(
                "the session variable {name} is {:?}, and grants need {literal}: it could not be set; look for it in the \
                 server's configuration, in init_connect, and in a proxy between",
                self.value(name)
            ));
        }
        if self.is_on("in_transaction") {
            return Err("a transaction is open on a new connection: what is granted in it would never be committed; \
                        look at init_connect, and at a proxy between"
                .to_owned());
        }
        if self.has("timestamp") && self.value("timestamp") == before.value("timestamp") {
            return Err(format!(
                "the session variable timestamp stands at {:?}: the server's clock cannot be read; look at init_connect, and \
                 at a proxy between",
                self.value("timestamp")
            ));
        }
        Ok(())
    }

    /// Sets the session variables that are otherwise than grants need them, and ends what is under way.
    pub(crate) async fn set_session(
        &self,
        connection: &mut MySqlConnection,
        lock_wait_s: u64,
        idle_s: u64,
    ) -> Result<(), sqlx::Error> {
        connection.execute(AssertSqlSafe(self.session_statement(lock_wait_s, idle_s))).await?;
        connection.execute(ROLL_BACK).await.map(drop)
    }

    /// The statement that sets them.
    pub(crate) fn session_statement(&self, lock_wait_s: u64, idle_s: u64) -> String {
        let mut statement = format!(
            "SET SESSION innodb_lock_wait_timeout = {lock_wait_s}, lock_wait_timeout = {lock_wait_s}, wait_timeout = {idle_s}"
        );
        for (name, literal) in SETTINGS {
            if self.has(name) && !says(self.value(name), literal) && !CHECKED.contains(&name) {
                let _ = write!(statement, ", {name} = {literal}");
            }
        }
        for name in ROOM.into_iter().filter(|name| self.has(name)) {
            let _ = write!(statement, ", {name} = DEFAULT");
        }
        statement
    }

    /// The conditions of statements that run on this very server, in a session that was checked.
    pub(crate) fn fence(&self, is_durable: bool, identity: Option<&str>) -> Fence {
        let mut all = AllOf::default();
        for (name, literal) in SETTINGS.into_iter().filter(|(name, _)| self.has(name)) {
            all.equal(format!("@@{name}"), literal);
        }
        let log_bin = u8::from(self.is_on("log_bin"));
        all.equal("@@global.read_only", 0);
        all.equal("@@global.log_bin", log_bin);
        if log_bin == 1 && self.has("binlog_format") {
            all.equal("@@binlog_format = 'STATEMENT'", 0);
        }
        if is_durable {
            all.equal("@@global.innodb_flush_log_at_trx_commit", 1);
            if log_bin == 1 {
                all.equal("@@global.sync_binlog", 1);
            }
        }
        if let Some(cluster) = self.cluster() {
            all.equal("@@wsrep_on", 1);
            all.equal("@@wsrep_cluster_name", hexadecimal(cluster));
        } else if let Some(identity) = identity {
            self.identify(identity, &mut all);
        }
        let alone = if self.has("in_transaction") { " AND @@in_transaction = 0" } else { "" };
        Fence { conditions: all.condition(), alone, recorded: None, has_marked_rows: false }
    }

    fn identify(&self, identity: &str, all: &mut AllOf) {
        if identity.starts_with("server_uuid ") {
            all.equal("@@server_uuid", hexadecimal(self.value("server_uuid")));
            return;
        }
        // Both are numbers, or there would be no identity.
        let (server, domain) = (self.figure("server_id").unwrap_or(0), self.figure("gtid_domain_id").unwrap_or(0));
        all.equal("@@global.server_id", server);
        all.equal("@@gtid_domain_id", domain);
        let found = |what: &str| format!("LOCATE({}, CONCAT(',', @@global.gtid_slave_pos, ','))", hexadecimal(what));
        if identity.contains(OF_ALL) {
            // In whichever order: as many bytes, and each of them.
            all.equal("LENGTH(@@global.gtid_slave_pos)", self.value("gtid_slave_pos").len());
            for position in self.positions() {
                all.equal(format!("{} > 0", found(&format!(",{position},"))), 1);
            }
        } else {
            match self.position(domain) {
                Some(position) => all.equal(format!("{} > 0", found(&format!(",{position},"))), 1),
                None => all.equal(found(&format!(",{domain}-")), 0),
            }
        }
    }
}

fn marked(mark: u128, server: u64, domain: u64, position: &str) -> String {
    format!("mark {mark:032x} server_id {server} gtid_domain_id {domain} {position}")
}

/// Those of them that not every user may set, or that cannot be set to this: they are checked alone.
pub(crate) const CHECKED: [&str; 2] = ["sql_log_bin", "system_versioning_asof"];

/// What servers answer for `server_uuid` that speak the protocol and have none: all of them the same.
const UNKNOWN_UUID: &str = "00000000-0000-0000-0000-000000000000";

/// Before the position in a server's own domain, and before those in all, as identities have it.
const OF_DOMAIN: &str = "gtid_slave_pos";
const OF_ALL: &str = "gtid_slave_positions";

/// Between the mark and the name of a Galera cluster, as identities have it.
const OF_CLUSTER: &str = " wsrep_cluster_name ";

/// What others have in their versions that speak the protocol of MySQL, and why they are not used.
const OTHER_SERVERS: [(&str, &str); 3] = [
    (
        "tidb",
        "TiDB answers with settings of MySQL that mean nothing there, and with the same server_uuid on every server",
    ),
    ("vitess", "each statement goes to a server of vtgate's choice, and what one says holds for no other"),
    ("planetscale", "each statement goes to a server of vtgate's choice, and what one says holds for no other"),
];

/// The options of Galera with which a node goes on without the majority.
const SPLIT_BRAIN: [&str; 2] = ["pc.ignore_sb", "pc.ignore_quorum"];

/// What a server says that does not know who it is.
const UNKNOWN: &str = "unknown";

/// Whatever `completion_type` says.
pub(crate) const ROLL_BACK: &str = "ROLLBACK AND NO CHAIN NO RELEASE";

/// Whatever `completion_type` says.
pub(crate) const COMMIT: &str = "COMMIT AND NO CHAIN NO RELEASE";

/// Whether a value, as `SHOW VARIABLES` gives it, is what a statement says in this way.
fn says(value: &str, literal: &str) -> bool {
    let is_alike = |other: &str| value.eq_ignore_ascii_case(other);
    match literal {
        "1" => is_alike("ON") || value == "1",
        // Some are seconds with decimals.
        "0" => is_alike("OFF") || value.parse() == Ok(0.0),
        _ => is_alike(literal.trim_matches('\'')),
    }
}

/// One condition that holds when all of these do: one row of values equals another. What is neither true nor false
/// makes the comparison neither, so that no row is changed.
///
/// As a list of conditions they would cost three times as much: a server looks at each of a list for what it says of
/// the others, each time that the statement is run. Their sum costs a third more than the rows.
#[derive(Default)]
struct AllOf {
    found: Vec<String>,
    needed: Vec<String>,
}

impl AllOf {
    fn equal(&mut self, found: impl Into<String>, needed: impl ToString) {
        self.found.push(found.into());
        self.needed.push(needed.to_string());
    }

    fn condition(&self) -> String {
        format!("({}) = ({})", self.found.join(", "), self.needed.join(", "))
    }
}

/// Text as a constant that no text can break out of.
pub(crate) fn hexadecimal(text: &str) -> String {
    let mut constant = String::from("X'");
    for byte in text.bytes() {
        let _ = write!(constant, "{byte:02x}");
    }
    constant.push('\'');
    constant
}

/// What the record of a server that has a mark says it is.
pub(crate) fn mark_in(recorded: &str) -> Option<u128> {
    let mark = recorded.strip_prefix("mark ")?.split(' ').next()?;
    u128::from_str_radix(mark, 16).ok()
}

/// Whether a record names a Galera cluster.
pub(crate) fn names_cluster(recorded: &str) -> bool {
    mark_in(recorded).is_some() && recorded.contains(OF_CLUSTER)
}

/// The conditions under which a statement may grant.
#[derive(Clone, Debug)]
pub(crate) struct Fence {
    conditions: String,
    /// One more for a statement that is a transaction of its own.
    alone: &'static str,
    /// What `unalike_store` must say.
    recorded: Option<String>,
    /// Rows of `unalike_tag` have a mark that says which record they are of.
    has_marked_rows: bool,
}

impl Fence {
    /// On the server that this record names.
    pub(crate) fn recorded(mut self, recorded: &str) -> Self {
        self.recorded = Some(hexadecimal(recorded));
        self.has_marked_rows = Record::read(recorded).era().mark != 0;
        self
    }

    /// The statement with these conditions where it says `{fence}`; `{fence alone}` if it is a transaction of its own;
    /// `{fence of the store}` if it concerns the row of `unalike_store`; and `{fence of a row}` if it is a transaction
    /// of its own and its condition compares a row's `stripe_set`.
    ///
    /// Whoever records another server marks all rows anew in the same transaction, so a row of this era says what the
    /// record says, and costs nothing: to look for the record takes a fifth of a grant's time.
    pub(crate) fn put_into(&self, statement: &str) -> String {
        let (mut store, mut other) = (self.conditions.clone(), self.conditions.clone());
        if let Some(recorded) = &self.recorded {
            let _ = write!(store, " AND server = {recorded}");
            // Without a lock, since the session reads what is committed.
            let _ = write!(other, " AND EXISTS (SELECT 1 FROM unalike_store WHERE id = 1 AND server = {recorded})");
        }
        let row = if self.has_marked_rows { &self.conditions } else { &other };
        let fenced = statement.replace("{fence of the store}", &store).replace("{fence}", &other);
        let fenced = fenced.replace("{fence of a row}", &(row.clone() + self.alone));
        fenced.replace("{fence alone}", &(other + self.alone))
    }
}

#[cfg(test)]
#[path = "managed.rs"]
mod managed;

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(values: &[(&str, &str)]) -> ServerFacts {
        ServerFacts(values.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    const MARIADB: [(&str, &str); 4] =
        [("server_uid", "xyz="), ("server_id", "1"), ("gtid_domain_id", "0"), ("gtid_slave_pos", "")];

    #[test]
    fn mysql_is_known_by_its_uuid_and_mariadb_by_a_mark_and_its_replication() {
        let mysql = facts(&[("server_uuid", "3e11fa47"), ("server_id", "1")]);
        assert_eq!(mysql.identity(7).unwrap(), "server_uuid 3e11fa47");
        let mariadb = facts(&MARIADB);
        let identity = mariadb.identity(7).unwrap();
        assert_eq!(identity, "mark 00000000000000000000000000000007 server_id 1 gtid_domain_id 0 gtid_slave_pos none");
        assert_eq!(mark_in(&identity), Some(7));
        assert_eq!(mark_in("server_uid xyz="), None);
        let mut follower = MARIADB;
        // Positions of other domains are other primaries' business.
        follower[3] = ("gtid_slave_pos", "10-4-8,0-3-5");
        assert!(facts(&follower).identity(7).unwrap().ends_with("gtid_slave_pos 0-3-5"));
        follower[3] = ("gtid_slave_pos", "10-4-8");
        assert_eq!(facts(&follower).identity(7).unwrap(), identity);
    }

    #[test]
    fn an_adopted_server_is_another_one_whatever_it_applies() {
        let mut server = MARIADB;
        let adopted = facts(&server).adopted_identity(7).unwrap();
        assert!(adopted.ends_with("gtid_domain_id 0 gtid_slave_positions none"), "{adopted}");
        server[3] = ("gtid_slave_pos", "10-4-8,0-3-5");
        let applied = facts(&server);
        assert_ne!(applied.identity_as(&adopted).unwrap(), adopted);
        let adopted = applied.adopted_identity(7).unwrap();
        assert!(adopted.ends_with("gtid_slave_positions 0-3-5,10-4-8"), "{adopted}");
        server[3] = ("gtid_slave_pos", "0-3-5,10-4-8");
        assert_eq!(facts(&server).identity_as(&adopted).unwrap(), adopted, "in whichever order");
        let mysql = facts(&[("server_uuid", "3e11fa47")]);
        assert_eq!(mysql.adopted_identity(7), mysql.identity(7));
    }

    #[test]
    fn what_knows_nothing_of_itself_has_no_identity() {
        for values in [&[][..], &[("server_uuid", "unknown")], &[("server_uid", "unknown"), ("hostname", "a")]] {
            assert!(facts(values).identity(7).is_err(), "{values:?}");
        }
        let mut unknown = MARIADB;
        assert!(facts(&unknown).is_unmarked("server_uid xyz="));
        assert!(!facts(&unknown).is_unmarked("server_uid abc="));
        unknown[0] = ("server_uid", "unknown");
        assert!(!facts(&unknown).is_unmarked("server_uid unknown"));
        let mut follower = MARIADB;
        follower[3] = ("gtid_slave_pos", "5-1-1");
        assert!(!facts(&follower).is_unmarked("server_uid xyz="));
    }

    #[test]
    fn what_every_session_begins_with_only_sets_it() {
        let check = |init: &str| facts(&[("init_connect", init)]).check_init_connect();
        for init in ["", "SET autocommit = 0", " set names latin1 ; SET @a = 1;", "BEGIN", "start transaction"] {
            assert_eq!(check(init), Ok(()), "{init}");
        }
        for init in [
            "CREATE TEMPORARY TABLE unalike_tag (a INT)",
            "SET @a = 1; create temporary table t (a INT)",
            "SET STATEMENT max_statement_time = 1 FOR CREATE TEMPORARY TABLE t (a INT)",
            "BEGIN NOT ATOMIC CREATE TEMPORARY TABLE t (a INT); END",
            "/* */ CREATE TEMPORARY TABLE t (a INT)",
            "CALL prepare()",
            "INSERT INTO log VALUES (1)",
        ] {
            assert!(check(init).unwrap_err().contains("init_connect"), "{init}");
        }
        assert_eq!(facts(&[]).check_init_connect(), Ok(()));
    }

    #[test]
    fn values_are_known_in_every_spelling() {
        assert!(says("ON", "1") && says("1", "1") && !says("OFF", "1"));
        assert!(says("OFF", "0") && says("0.000000", "0") && !says("1", "0") && !says("", "0"));
        assert!(says("NO_CHAIN", "'NO_CHAIN'") && !says("CHAIN", "'NO_CHAIN'"));
    }
}
