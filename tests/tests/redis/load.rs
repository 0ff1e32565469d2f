//! Processes that ask for numbers all the time, and what may be said of all that they were granted.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::Path;

use tempfile::TempDir;
use unalike_sqlite::{SqliteOptions, SqliteStore};
use unalike_storage::SegmentStore;
use unalike_tests::clients::{Clients, Grant, assert_ascends_in_real_time, assert_disjoint};

pub(super) const CHILD: &str = env!("CARGO_BIN_EXE_redis-child");

/// How many processes ask.
pub(super) const PROCESSES: usize = 3;

/// How many numbers each asks for at a time.
pub(super) const COUNT: u64 = 10;

/// Each client gets so many grants more before and after a fault: no one is stuck.
pub(super) const GRANTS: usize = 100;

/// Small raises, so that a fault falls among many; and never so few numbers in hand that there are none at a fault.
pub(super) const RAISES: &str = "raise-min=5000&raise-max=50000";

/// Raises that hardly suffice, so that there is nearly always one on its way.
pub(super) const TINY_RAISES: &str = "raise-min=100&raise-max=100";

/// How many numbers between the first and the last one nobody was granted.
pub(super) fn missing(granted: &[Grant]) -> u64 {
    let first = granted.iter().map(|grant| grant.start).min().unwrap();
    let end = granted.iter().map(|grant| grant.end).max().unwrap();
    end - first - granted.iter().map(|grant| grant.end - grant.start).sum::<u64>()
}

/// How often so many faults may have left numbers out: each gives an interval up and burns one, and each process may
/// lose the answer to one request.
#[track_caller]
pub(super) fn assert_few_gaps(granted: &[Grant], faults: usize) {
    let mut granted = granted.to_vec();
    granted.sort_by_key(|grant| grant.start);
    let gaps = granted.iter().zip(granted.iter().skip(1)).filter(|(one, next)| one.end < next.start).count();
    println!("{faults} faults: {gaps} gaps, {} numbers missing", missing(&granted));
    assert!(gaps <= faults * (2 + PROCESSES), "{faults} faults left {gaps} gaps");
}

/// Processes that ask one database, or several by turns, over ceilings in a SQLite file.
pub(super) struct Load {
    directory: TempDir,
    stores: usize,
    pub(super) clients: Clients,
}

impl Load {
    /// Starts them, and waits until all are served.
    pub(super) fn start(urls: &[String]) -> Self {
        let directory = TempDir::new().unwrap();
        let file = directory.path().join("ids.sqlite");
        watermark(&file);
        let count = COUNT.to_string();
        let mut arguments = vec![file.to_str().unwrap(), "order", &count];
        arguments.extend(urls.iter().map(String::as_str));
        let clients = Clients::start_each(CHILD, &arguments, PROCESSES, urls.len()).unwrap();
        let mut load = Self { directory, stores: urls.len(), clients };
        load.served();
        load
    }

    /// Waits until each client has been served some more, by each database.
    pub(super) fn served(&mut self) {
        self.clients.wait_for(GRANTS).unwrap();
    }

    /// The last number that the durable store granted to anybody.
    pub(super) fn watermark(&self) -> u64 {
        watermark(&self.directory.path().join("ids.sqlite"))
    }

    /// Waits until each client has been served some more by the first database.
    pub(super) fn served_by_first(&mut self) {
        self.clients.wait_for_store(0, GRANTS).unwrap();
    }

    /// Waits until all are served once more, stops it and checks what was granted.
    pub(super) fn stop(mut self) -> Vec<Grant> {
        self.served();
        self.end()
    }

    /// Stops it and checks what was granted.
    fn end(self) -> Vec<Grant> {
        let stores = self.stores;
        let granted = self.end_in_any_order();
        for store in 0..stores {
            let of_store: Vec<_> = granted.iter().filter(|grant| grant.client / PROCESSES == store).copied().collect();
            assert_ascends_in_real_time(&of_store);
        }
        granted
    }

    /// The same where one database may be two for a while, each with an order of its own.
    pub(super) fn end_in_any_order(self) -> Vec<Grant> {
        let Self { directory, clients, .. } = self;
        let granted = clients.stop().unwrap();
        assert_disjoint(&granted);
        let last = granted.iter().map(|grant| grant.end - 1).max().unwrap();
        let raised = watermark(&directory.path().join("ids.sqlite"));
        assert!(last <= raised, "{last} was handed out, and the durable store granted no more than {raised}");
        granted
    }
}

/// The last number of the tag that a SQLite file says was granted.
pub(super) fn watermark(file: &Path) -> u64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = SqliteStore::connect(SqliteOptions::new(file)).await.unwrap();
        let watermark = store.open_tag("order").await.unwrap().watermark;
        store.close().await;
        watermark
    })
}
