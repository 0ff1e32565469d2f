//! What a grant rests on, besides its own rows: which server it is, that its commits last, and how the session is set.
//!
//! All of it is looked at on every new connection, and a random mark is set in the session then. Each statement that
//! grants states as its condition that the mark is there ([`Fence`]). So it runs in the very session that was looked
//! at: on the same server, which cannot go back into recovery or change its timeline without ending its sessions, and
//! with the same settings. A pooler that runs it in another session is granted nothing. What may change under a session
//! is stated beside it: the server's `fsync`, and settings that another client of a pooler could have left in the
//! session.
//!
//! **Identity.** `system_identifier` is made with the data, and all standbys have it. A standby that is promoted begins
//! a new timeline: it may lack the last commits of its primary, so it is another server until it is adopted. A copy
//! within the server (`CREATE DATABASE .. TEMPLATE`), and a dump that is loaded into it again, have another database or
//! another table, by their object identifiers.
//!
//! **What has no mark of its own** is a copy of the data directory that goes on with the same timeline. Programs that
//! were running know how far the log had come when their newest grant was committed, and refuse one that lies behind.
//!
//! **The answer to a commit.** `statement_timeout` is longer than a request may take: a wait for a synchronous standby
//! that is cancelled ends in a success, and nobody is to be left who could take it for one.

use std::time::Duration;

use sqlx::Row as _;
use sqlx::postgres::{PgConnection, PgRow};
use unalike_storage::StoreError;

use crate::record::{Record, ServerIdentity};

const LOOK: &str = include_str!("sql/look_at_server.sql");
const SET: &str = include_str!("sql/set_session.sql");

/// The oldest version that is served.
const VERSION_MIN: u32 = 130_000;

/// What a server says of itself, and of the session in hand.
#[derive(Clone, Debug)]
pub(crate) struct ServerFacts {
    system: i64,
    is_in_recovery: bool,
    /// The name of the file of the log that is written now, which begins with the timeline; empty in recovery.
    log_file: String,
    /// How far the log is written, in bytes; 0 in recovery.
    pub(crate) log_position: i64,
    database_oid: i64,
    /// None before the table is there.
    table_oid: Option<i64>,
    fsync: String,
    zero_damaged_pages: String,
    pub(crate) synchronous_commit: String,
    synchronous_standby_names: String,
    version: u32,
    encoding: String,
    search_path: String,
    pub(crate) session: String,
    pub(crate) schema: Option<String>,
}

impl ServerFacts {
    pub(crate) async fn read(connection: &mut PgConnection) -> Result<Self, sqlx::Error> {
        let rows = sqlx::query(LOOK).fetch_all(connection).await?;
        Self::of(rows.first().ok_or(sqlx::Error::RowNotFound)?)
    }

    fn of(row: &PgRow) -> Result<Self, sqlx::Error> {
        let text = |column: &str| row.try_get::<Option<String>, _>(column).map(Option::unwrap_or_default);
        Ok(Self {
            system: row.try_get("system_identifier")?,
            is_in_recovery: row.try_get("is_in_recovery")?,
            log_file: text("log_file")?,
            log_position: row.try_get("log_position")?,
            database_oid: row.try_get("database_oid")?,
            table_oid: row.try_get("table_oid")?,
            fsync: text("fsync")?,
            zero_damaged_pages: text("zero_damaged_pages")?,
            synchronous_commit: text("synchronous_commit")?,
            synchronous_standby_names: text("synchronous_standby_names")?,
            version: text("version")?.parse().unwrap_or_default(),
            encoding: text("encoding")?,
            search_path: text("search_path")?,
            session: text("session")?,
            schema: row.try_get("schema")?,
        })
    }

    /// Which server this is.
    ///
    /// # Errors
    /// When nothing tells it from other servers.
    pub(crate) fn identity(&self) -> Result<ServerIdentity, String> {
        let timeline = self.log_file.get(..8).and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let (system, database) = (self.system, self.database_oid);
        match timeline {
            // A table that is gone is not the one that was there.
            Some(timeline) if system != 0 => {
                Ok(ServerIdentity { system, timeline, database, table: self.table_oid.unwrap_or(0) })
            }
            _ => Err(
                "it does not say its system_identifier and its timeline, so nothing tells it from other servers: use \
                      PostgreSQL itself, or vouch for it (identity=assumed)"
                    .to_owned(),
            ),
        }
    }

    /// Whether it can be served at all: it is new enough, no standby, and has text in UTF-8.
    pub(crate) fn check_kind(&self) -> Result<(), StoreError> {
        if self.is_in_recovery {
            return Err(StoreError::unavailable(crate::error::ONLY_READS));
        }
        if self.version < VERSION_MIN {
            let what = format!("its version is {}: use PostgreSQL 13 or newer", self.version / 10_000);
            return Err(StoreError::refused(what));
        }
        if self.encoding != "UTF8" {
            let what = format!(
                "the database's encoding is {}, and names need UTF8: create it with ENCODING 'UTF8' TEMPLATE template0",
                self.encoding
            );
            return Err(StoreError::refused(what));
        }
        Ok(())
    }

    /// Whether a commit that was reported is on the disk.
    pub(crate) fn check_durability(&self) -> Result<(), String> {
        if self.fsync != "on" {
            return Err(
                "fsync is off: a crash of the machine would lose commits, and numbers would repeat; set it to on, \
                        after which the server must write all of its data (see PostgreSQL's manual)"
                    .to_owned(),
            );
        }
        if self.synchronous_commit == "off" {
            return Err("synchronous_commit is off, and could not be set otherwise: a crash would lose commits, and numbers \
                        would repeat; set it to on at the server, the database (ALTER DATABASE .. RESET synchronous_commit) \
                        and the role"
                .to_owned());
        }
        if self.zero_damaged_pages != "off" {
            return Err(
                "zero_damaged_pages is on: tags in a damaged part of a table would be taken for new ones, and numbers \
                        would repeat; set it to off"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// Whether a commit that was reported is on a synchronous standby too.
    pub(crate) fn check_synchronous(&self) -> Result<(), String> {
        if self.synchronous_standby_names.is_empty() {
            return Err(
                "synchronous_standby_names is empty, and the store is to wait for a synchronous standby \
                        (failover=synchronous in a URL, now or before): name the standbys, or end that with failover=refused"
                    .to_owned(),
            );
        }
        if !matches!(self.synchronous_commit.as_str(), "on" | "remote_apply") {
            return Err(format!(
                "synchronous_commit is {}, and the store is to wait for a synchronous standby \
                 (failover=synchronous): set it to on",
                self.synchronous_commit
            ));
        }
        Ok(())
    }

    /// Sets the session up, and puts a mark into it.
    pub(crate) async fn set_session(
        connection: &mut PgConnection,
        mark: &str,
        schema: &str,
        request_timeout: Duration,
    ) -> Result<(), sqlx::Error> {
        let ms = |duration: Duration| duration.as_millis().to_string();
        let set = sqlx::query(SET)
            .bind(mark)
            .bind(schema)
            // A wait for a lock that ends before the request does leaves no doubt about what was done.
            .bind(ms((request_timeout * 3 / 4).max(Duration::from_millis(1))))
            .bind(ms(request_timeout + Duration::from_secs(1)))
            // What a program that was stopped has locked becomes free.
            .bind(ms(request_timeout + Duration::from_secs(5)));
        set.fetch_all(connection).await.map(drop)
    }

    /// The conditions of a grant.
    pub(crate) fn fence(&self, is_durable: bool, record: &Record) -> Fence {
        let mut text = format!(
            "current_setting('unalike.session', true) = $1 AND current_setting('search_path') = '{}'",
            self.search_path.replace('\'', "''")
        );
        if is_durable {
            text.push_str(
                " AND current_setting('fsync') = 'on' AND current_setting('synchronous_commit') <> 'off' \
                 AND current_setting('zero_damaged_pages') = 'off'",
            );
        }
        if let Some(server) = record.server {
            text.push_str(&format!(
                " AND pg_walfile_name(pg_current_wal_insert_lsn()) LIKE '{:08X}%' \
                 AND to_regclass('unalike_store')::oid = '{}'::oid",
                server.timeline, server.table
            ));
        }
        if record.is_synchronous {
            text.push_str(
                " AND current_setting('synchronous_standby_names') <> '' \
                 AND current_setting('synchronous_commit') IN ('on', 'remote_apply')",
            );
        }
        Fence(text)
    }
}

/// What each statement that grants states as its condition; `$1` is the mark of the session.
#[derive(Clone, Debug)]
pub(crate) struct Fence(String);

impl Fence {
    /// Before a server is known, nothing is granted.
    pub(crate) fn closed() -> Self {
        Self("$1 = '' AND false".to_owned())
    }

    pub(crate) fn put_into(&self, statement: &str) -> String {
        assert!(statement.contains("{fence}"), "a statement without a fence: {statement}");
        statement.replace("{fence}", &self.0)
    }
}
