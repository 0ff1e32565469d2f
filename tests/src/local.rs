//! Requests for a local lease, and the arguments of a process that holds one: for the tests and for that process.

use std::path::PathBuf;

use unalike_storage::{FieldOrder, Layout, LayoutFields, Lease, LeaseAcquire, LeaseExtend};

/// A layout with ticks of so many milliseconds.
pub fn layout(tick_ms: u32) -> Layout {
    let fields = LayoutFields {
        timestamp_bits: 41,
        datacenter_bits: 0,
        worker_bits: 8,
        sequence_bits: 12,
        order: FieldOrder::WorkerFirst,
        // Off the grid of every tick but the shortest.
        epoch_ms: 1_577_836_800_337,
        tick_ms,
    };
    Layout::new(fields).unwrap()
}

/// A request for a worker of the namespace `default`.
pub fn acquire(now_ms: u64, tick_ms: u32, horizon_ms: u64) -> LeaseAcquire {
    LeaseAcquire {
        namespace: "default".to_owned(),
        layout: layout(tick_ms),
        holder: "holder".to_owned(),
        preferred_worker: None,
        now_ms,
        horizon_ms,
    }
}

/// A request to prolong that lease.
pub fn extend(lease: &Lease, now_ms: u64, tick_ms: u32, horizon_ms: u64) -> LeaseExtend {
    LeaseExtend {
        namespace: "default".to_owned(),
        layout: layout(tick_ms),
        worker: lease.worker,
        grant_id: lease.grant_id,
        now_ms,
        horizon_ms,
    }
}

/// What `local-child run` is told.
#[derive(Clone, Debug)]
pub struct Run {
    /// Where it keeps its lease.
    pub directory: PathBuf,
    /// Its lease store, a SQLite file.
    pub store: PathBuf,
    /// Its worker, if that is assigned statically.
    pub worker: Option<u32>,
    /// The tick of its layout.
    pub tick_ms: u32,
    /// How long a piece is.
    pub lead_ms: u64,
    /// How far a lease reaches.
    pub horizon_ms: u64,
    /// How far its clock is ahead of the system's.
    pub offset_ms: i64,
    /// The file of the [`HandClock`](crate::clock::HandClock) that it goes by instead.
    pub clock: Option<PathBuf>,
    /// Whether it gives its lease back when it is closed.
    pub give_back: bool,
}

impl Run {
    /// The arguments behind the role.
    #[must_use]
    pub fn arguments(&self) -> Vec<String> {
        let Self { directory, store, worker, tick_ms, lead_ms, horizon_ms, offset_ms, clock, give_back } = self;
        let worker = worker.map_or_else(|| "none".to_owned(), |worker| worker.to_string());
        let clock = clock.as_ref().map_or("none", |clock| clock.to_str().unwrap());
        let paths = [directory, store].map(|path| path.to_str().unwrap().to_owned());
        let figures = [
            worker,
            tick_ms.to_string(),
            lead_ms.to_string(),
            horizon_ms.to_string(),
            offset_ms.to_string(),
            clock.to_owned(),
            give_back.to_string(),
        ];
        paths.into_iter().chain(figures).collect()
    }

    /// What [`Run::arguments`] gave.
    #[must_use]
    pub fn parse(arguments: &[String]) -> Self {
        let [directory, store, worker, tick_ms, lead_ms, horizon_ms, offset_ms, clock, give_back] = arguments else {
            panic!("a run is told nine things, not {arguments:?}");
        };
        Self {
            directory: directory.into(),
            store: store.into(),
            worker: worker.parse().ok(),
            tick_ms: tick_ms.parse().unwrap(),
            lead_ms: lead_ms.parse().unwrap(),
            horizon_ms: horizon_ms.parse().unwrap(),
            offset_ms: offset_ms.parse().unwrap(),
            clock: (clock != "none").then(|| clock.into()),
            give_back: give_back.parse().unwrap(),
        }
    }
}
