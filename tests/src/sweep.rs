//! The settings sweep: every variable of a real server that a session or an operator can set, every value of its type
//! that says something, one at a time and in random pairs, before the server starts and while programs are connected.
//!
//! What is looked at is what a user relies on: an interval that was granted is not granted again, whatever the server
//! was told, and after `kill -9` as well; or the store refuses, and says why. The lists come from the server under
//! test, so a newer server has its new variables tried. [`Ledger`] knows nothing of how intervals are granted.
//!
//! [`Subject`] is one server with one store on it; there is one file per server program.

mod judge;
pub mod mysql;
mod plan;
pub mod postgres;
pub mod redis;
mod report;
pub mod sqlite;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use unalike_storage::{FieldOrder, Layout, LayoutFields, LeaseAcquire, LeaseStore, SegmentStore, StoreError};

pub use judge::{Judge, Ledger, Outcome, Trial};
pub use plan::{Case, Plan, draw_pairs};
pub use report::Report;

/// A call to a store that takes longer never ends: its own limits are some seconds.
pub const CALL_MAX: Duration = Duration::from_secs(30);

/// A server that is not ready after this long does not start.
pub const START_MAX: Duration = Duration::from_secs(20);

/// Numbers in a grant.
pub const COUNT: u64 = 1_000;

/// How a variable is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// In the server's command line.
    Start,
    /// By an operator, while a program is connected.
    Running,
    /// For one user, whose program is connected already and connects again.
    User,
    /// For one database, likewise.
    Database,
    /// In every session that begins, while a program is connected.
    Session,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Start => "start",
            Self::Running => "running",
            Self::User => "user",
            Self::Database => "database",
            Self::Session => "session",
        })
    }
}

/// What can be set, and to what.
#[derive(Clone, Debug)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// The values that are tried, none of them the one that it has.
    pub values: Vec<String>,
    /// How it is set; with how many of the values each.
    pub ways: Vec<(Way, usize)>,
}

/// One variable of a trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Of this name, or what a definition is called.
    pub name: String,
    /// To this value.
    pub value: String,
}

/// The variables of a server.
#[derive(Clone, Debug, Default)]
pub struct Variables {
    /// Those that are tried.
    pub tried: Vec<Variable>,
    /// Those that are not, and why.
    pub left_out: Vec<(String, &'static str)>,
}

/// An interval that somebody was granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// Of what: the tag, or the worker.
    pub of: String,
    /// The first.
    pub start: u64,
    /// Behind the last.
    pub end: u64,
}

/// What a client was granted, and what it was refused with.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// The intervals.
    pub granted: Vec<Granted>,
    /// The first error.
    pub refusal: Option<String>,
}

/// Somebody who takes grants.
#[async_trait]
pub trait Client: Send + Sync {
    /// Takes one of each kind; this is the how manieth trial.
    async fn grant(&self, turn: u32) -> Answer;

    /// Ends.
    async fn close(&self);
}

/// What came of something that a server may refuse: its words.
pub type Said = Result<(), String>;

/// One private server with one store on it.
#[async_trait]
pub trait Subject: Send + Sized {
    /// A new one, with nothing granted: with a client that stands for the systems that unalike replaces, or the
    /// product.
    async fn begin(is_control: bool) -> anyhow::Result<Self>;

    /// What can be set here.
    async fn variables(&mut self, plan: &Plan) -> anyhow::Result<Variables>;

    /// The definitions of tables, and the rights of users, that are tried: a name, and the statements that bring it
    /// about after a store was made and used.
    fn definitions(&self) -> Vec<(&'static str, Vec<String>)>;

    /// Sets something while the server runs.
    async fn set(&mut self, way: Way, changes: &[Change]) -> anyhow::Result<Said>;

    /// Kills the server with SIGKILL and starts it again, with nothing set but these.
    async fn kill_and_start(&mut self, changes: &[Change]) -> anyhow::Result<Said>;

    /// Makes another store on the same server, and uses it from now on.
    async fn renew_store(&mut self) -> anyhow::Result<()>;

    /// Runs statements in the store's database, as its owner.
    async fn define(&mut self, statements: &[String]) -> anyhow::Result<Said>;

    /// A new client, with connections of its own.
    async fn connect(&self) -> Result<Box<dyn Client>, String>;

    /// The greatest number that the store says was granted, as another session sees it; none where that is not known.
    async fn granted_up_to(&mut self) -> Option<u64>;
}

/// The product's stores, as a program uses them.
pub struct Product {
    segments: Arc<dyn SegmentStore>,
    leases: Option<Arc<dyn LeaseStore>>,
}

impl Product {
    /// Takes numbers from one, and workers from the other.
    pub fn boxed(segments: Arc<dyn SegmentStore>, leases: Option<Arc<dyn LeaseStore>>) -> Box<dyn Client> {
        Box::new(Self { segments, leases })
    }
}

/// The tag.
pub const TAG: &str = "order";

#[async_trait]
impl Client for Product {
    async fn grant(&self, turn: u32) -> Answer {
        let mut answer = Answer::default();
        match self.segments.allocate(TAG, COUNT, 0).await {
            Ok(segment) => {
                answer.granted.push(Granted { of: TAG.to_owned(), start: segment.start, end: segment.end });
            }
            Err(error) => answer.refusal = Some(told(&error)),
        }
        let Some(leases) = &self.leases else { return answer };
        match leases.acquire(&worker(turn)).await {
            Ok(lease) => answer.granted.push(Granted {
                of: format!("worker {}", lease.worker),
                start: lease.not_before_ms,
                end: lease.valid_until_ms,
            }),
            Err(error) => answer.refusal = answer.refusal.or_else(|| Some(told(&error))),
        }
        answer
    }

    async fn close(&self) {
        self.segments.close().await;
    }
}

/// Each trial asks for a worker of its own, again and again: a lease that was lost shows when it is granted again.
fn worker(turn: u32) -> LeaseAcquire {
    let fields = LayoutFields {
        timestamp_bits: 41,
        datacenter_bits: 0,
        worker_bits: 20,
        sequence_bits: 2,
        order: FieldOrder::WorkerFirst,
        epoch_ms: 1_577_836_800_000,
        tick_ms: 1,
    };
    LeaseAcquire {
        namespace: "sweep".to_owned(),
        layout: Layout::new(fields).unwrap(),
        holder: String::new(),
        preferred_worker: Some(turn % (1 << 20)),
        now_ms: crate::leases::now_ms(),
        horizon_ms: 30_000,
    }
}

/// An error with what it rests on, on one line.
#[must_use]
pub fn told(error: &StoreError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
