//! A backup that is put back as the page of all stores says, on the stores alone and behind Redis: 100,000 ids before
//! and 100,000 after, and none twice.

#![expect(clippy::panic_in_result_fn, reason = "a test that cannot go on fails")]

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::ensure;
use tempfile::TempDir;
use unalike_tests::mariadb::MariaDb;
use unalike_tests::postgres::Postgres;
use unalike_tests::redis::{Persistence, Redis};
use unalike_tests::server::{self, Server, name_of, run};

/// More than is granted after the backup under any name, and than Redis has in stock.
const LIFT: u64 = 100_000_000;

/// A durable store, whose backup is made and put back.
enum Durable {
    Sqlite,
    MariaDb(&'static MariaDb, String),
    Postgres(&'static Postgres, String),
}

enum Backup {
    File,
    Dump(Vec<u8>),
}

/// A store as a program has it, and all that it ever gave.
struct Case {
    directory: Arc<TempDir>,
    durable: Durable,
    redis: Option<Redis>,
    ids: BTreeSet<(&'static str, u64)>,
}

impl Case {
    fn new(durable: Durable, redis: Option<Redis>) -> anyhow::Result<Self> {
        Ok(Self { directory: Arc::new(TempDir::new()?), durable, redis, ids: BTreeSet::new() })
    }

    /// The URL of the durable store.
    fn url(&self) -> &str {
        match &self.durable {
            Durable::Sqlite => "sqlite://ids.sqlite",
            Durable::MariaDb(_, url) | Durable::Postgres(_, url) => url,
        }
    }

    fn flags(&self) -> Vec<String> {
        let flags = match &self.redis {
            Some(redis) => vec!["--store".to_owned(), redis.url(0, ""), "--backing".to_owned(), self.url().to_owned()],
            None => vec!["--store".to_owned(), self.url().to_owned()],
        };
        [flags, ["--wait-max-ms", "20000"].map(str::to_owned).to_vec()].concat()
    }

    /// Starts a server, takes so many times ten thousand ids, and stops it.
    fn take(&mut self, tags: &[(&'static str, u32)]) -> anyhow::Result<()> {
        let mut server = Server::start_in(Arc::clone(&self.directory), self.flags())?;
        for &(tag, times) in tags {
            for _ in 0..times {
                for id in server.client().ids(&format!("/v1/sequences/{tag}/ids?count=10000"))? {
                    assert!(self.ids.insert((tag, id)), "{id} came twice under {tag}");
                }
            }
        }
        ensure!(server.sigterm()?.success(), "the server did not end in good order");
        Ok(())
    }

    fn back_up(&self) -> anyhow::Result<Backup> {
        Ok(match &self.durable {
            Durable::Sqlite => {
                std::fs::copy(self.directory.path().join("ids.sqlite"), self.directory.path().join("backup"))?;
                Backup::File
            }
            Durable::MariaDb(server, url) => Backup::Dump(server.dump(name_of(url))?),
            Durable::Postgres(server, url) => Backup::Dump(server.dump(name_of(url))?.into_bytes()),
        })
    }

    fn put_back(&self, backup: &Backup) -> anyhow::Result<()> {
        match (&self.durable, backup) {
            (Durable::MariaDb(server, url), Backup::Dump(dump)) => server.load(name_of(url), dump),
            (Durable::Postgres(server, url), Backup::Dump(dump)) => {
                let (name, dump) = (name_of(url), std::str::from_utf8(dump)?);
                server.sql("postgres", &format!("DROP DATABASE {name}"))?;
                server.sql("postgres", &format!("CREATE DATABASE {name}"))?;
                server.load(name, dump)
            }
            _ => {
                for log in ["ids.sqlite-wal", "ids.sqlite-shm"] {
                    let _ = std::fs::remove_file(self.directory.path().join(log));
                }
                std::fs::copy(self.directory.path().join("backup"), self.directory.path().join("ids.sqlite"))?;
                Ok(())
            }
        }
    }

    /// Nothing is given, however often it is tried.
    fn is_refused(&self) -> anyhow::Result<()> {
        let flags = self.flags();
        for _ in 0..3 {
            let arguments = flags.iter().map(String::as_str).chain(["next", "order"]);
            let ran = run(self.directory.path(), arguments)?;
            assert!(ran.code == Some(1) && ran.stdout.is_empty(), "{ran:?}");
            assert!(ran.stderr.contains("--lift COUNT"), "{ran:?}");
        }
        Ok(())
    }

    /// A backup, ids that it lacks, under a name that it lacks too, and the backup in the store's place.
    fn run(mut self) -> anyhow::Result<()> {
        self.take(&[("order", 5)])?;
        let backup = self.back_up()?;
        self.take(&[("order", 4), ("late", 1)])?;
        assert_eq!(self.ids.len(), 100_000);
        self.put_back(&backup)?;
        // A file tells nothing of its age. Redis notices it when its numbers are used up.
        if !matches!(self.durable, Durable::Sqlite) {
            self.is_refused()?;
        }
        let said = server::ok_over(&self.directory, self.url(), &["store", "restored", "--lift", &LIFT.to_string()])?;
        assert!(!said.is_empty(), "it says what it did");
        if let Some(redis) = &self.redis {
            redis.cli(&["FLUSHDB"])?;
        }
        self.take(&[("order", 5)])?;
        self.take(&[("late", 5)])?;
        assert_eq!(self.ids.len(), 200_000);
        Ok(())
    }
}

fn mariadb() -> anyhow::Result<Durable> {
    let server = MariaDb::shared()?;
    let url = server.database()?;
    Ok(Durable::MariaDb(server, url))
}

fn postgres() -> anyhow::Result<Durable> {
    let server = Postgres::shared()?;
    let url = server.database()?;
    Ok(Durable::Postgres(server, url))
}

fn redis() -> anyhow::Result<Option<Redis>> {
    Redis::start(Persistence::AofEverySecond).map(Some)
}

#[test]
fn a_restored_file_repeats_nothing_after_the_printed_command() -> anyhow::Result<()> {
    Case::new(Durable::Sqlite, None)?.run()
}

#[test]
fn a_restored_mariadb_repeats_nothing_after_the_printed_command() -> anyhow::Result<()> {
    Case::new(mariadb()?, None)?.run()
}

#[test]
fn a_restored_postgres_repeats_nothing_after_the_printed_command() -> anyhow::Result<()> {
    Case::new(postgres()?, None)?.run()
}

#[test]
fn a_restored_file_behind_redis_repeats_nothing_after_the_printed_command() -> anyhow::Result<()> {
    Case::new(Durable::Sqlite, redis()?)?.run()
}

#[test]
fn a_restored_mariadb_behind_redis_repeats_nothing_after_the_printed_command() -> anyhow::Result<()> {
    Case::new(mariadb()?, redis()?)?.run()
}

#[test]
fn a_restored_postgres_behind_redis_repeats_nothing_after_the_printed_command() -> anyhow::Result<()> {
    Case::new(postgres()?, redis()?)?.run()
}
