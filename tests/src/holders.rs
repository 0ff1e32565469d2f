//! Holders of leases in processes of their own, the program `lease-child`: starts them, keeps what all of them said,
//! and checks it.
//!
//! A holder prints each lease that it is granted before it knows of it itself, each id as it gets it, and each error.
//! So what it had said when it was killed is all that anybody could have had from it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::str::{FromStr, Split};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use unalike::{ClockPolicy, Error, FieldOrder, Layout, LayoutFields, SnowflakeOptions};
use unalike_mysql::{MysqlLeases, MysqlOptions};
use unalike_redis::{Backing, RedisLeases, RedisOptions};
use unalike_sqlite::{SqliteOptions, SqliteStore};
use unalike_storage::{GrantId, Lease, LeaseLimits, LeaseStore, StoreError, lock};
use unalike_zookeeper::{ZookeeperLeases, ZookeeperOptions};

use crate::PATIENCE;
use crate::clients::monotonic_ns;
use crate::clock::FakeClock;
use crate::process;

/// How a holder works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Where leases are kept: `sqlite:PATH`, `mysql://..`, `redis:redis://.. PATH` or `zookeeper://..`.
    pub store: String,
    /// The lease namespace.
    pub namespace: String,
    /// The holder's name; `{pid}` in it stands for the number of its process.
    pub holder: String,
    /// Width of the worker field.
    pub worker_bits: u8,
    /// Length of a tick, in milliseconds.
    pub tick_ms: u32,
    /// How far ahead a lease is asked for, in milliseconds.
    pub horizon_ms: u64,
    /// What to do when the clock goes back.
    pub policy: ClockPolicy,
    /// How far the holder's clock may be from the store's, in milliseconds.
    pub max_skew_ms: u64,
    /// How long a call waits for ids, in milliseconds.
    pub wait_max_ms: u64,
    /// How long a request to the store may take, in milliseconds.
    pub request_timeout_ms: u64,
    /// How many ids are taken at once, by turns with single ones.
    pub batch: u32,
    /// The pause between two turns, in microseconds.
    pub pause_us: u64,
    /// Which answers are lost: those of this operation.
    pub loses: Option<Operation>,
    /// One answer in so many is lost.
    pub loses_every: u64,
    /// The process stands still in this place of a release, for good.
    pub stands_still: Option<Place>,
    /// How often it forks while its threads take ids, instead of what holders usually do.
    pub forks: u32,
    /// The file of the [`HandClock`](crate::clock::HandClock) that it goes by, instead of the system's.
    pub clock: Option<PathBuf>,
}

impl Settings {
    /// A holder over this store, in a namespace of 32 workers, under a lease of 2 s.
    ///
    /// Ticks are long and turns short, so that two holders of one worker would meet in every tick.
    #[must_use]
    pub fn new(store: &str) -> Self {
        Self {
            store: store.to_owned(),
            namespace: "processes".to_owned(),
            holder: String::new(),
            worker_bits: 5,
            tick_ms: 10,
            horizon_ms: 2_000,
            policy: ClockPolicy::default(),
            max_skew_ms: LeaseLimits::default().max_skew_ms,
            wait_max_ms: 1_000,
            request_timeout_ms: 10_000,
            batch: 3,
            pause_us: 2_000,
            loses: None,
            loses_every: 1,
            stands_still: None,
            forks: 0,
            clock: None,
        }
    }

    /// The same under this name.
    #[must_use]
    pub fn named(&self, holder: &str) -> Self {
        Self { holder: holder.to_owned(), ..self.clone() }
    }

    /// The layout of the ids.
    ///
    /// # Errors
    /// When there is none of these widths.
    pub fn layout(&self) -> anyhow::Result<Layout> {
        Ok(Layout::new(LayoutFields {
            timestamp_bits: 40,
            datacenter_bits: 0,
            worker_bits: self.worker_bits,
            sequence_bits: 10,
            order: FieldOrder::WorkerFirst,
            epoch_ms: 1_577_836_800_000,
            tick_ms: self.tick_ms,
        })?)
    }

    /// How the generator works.
    ///
    /// # Errors
    /// As [`Settings::layout`].
    pub fn options(&self) -> anyhow::Result<SnowflakeOptions> {
        let mut options = SnowflakeOptions::new(self.layout()?);
        (options.horizon_ms, options.clock) = (self.horizon_ms, self.policy);
        Ok(options)
    }

    /// Opens the store that it names.
    ///
    /// # Errors
    /// As the store's own, and when it is none that is known.
    pub async fn open_store(&self) -> anyhow::Result<Arc<dyn LeaseStore>> {
        let limits = LeaseLimits { max_skew_ms: self.max_skew_ms, ..LeaseLimits::default() };
        let timeout = Duration::from_millis(self.request_timeout_ms);
        let sqlite = |path| SqliteOptions { limits, busy_timeout: timeout / 2, ..SqliteOptions::new(path) };
        match self.store.split_once(':') {
            Some(("sqlite", path)) => Ok(Arc::new(until_it_answers(|| SqliteStore::connect(sqlite(path))).await?)),
            Some(("mysql", _)) => {
                let mut options = MysqlOptions::from_url(&self.store)?;
                (options.limits, options.request_timeout, options.connect_timeout) = (limits, timeout, timeout);
                // So that forty processes do not have more than a server takes.
                options.connections_max = 2;
                Ok(Arc::new(until_it_answers(|| MysqlLeases::connect(options.clone())).await?))
            }
            // The file is the durable store behind it.
            Some(("redis", rest)) => {
                let (url, path) = rest.split_once(' ').context("write redis:URL PATH")?;
                let mut options = RedisOptions::from_url(url)?;
                (options.limits, options.request_timeout, options.connect_timeout) = (limits, timeout, timeout);
                let durable = Arc::new(until_it_answers(|| SqliteStore::connect(sqlite(path))).await?);
                let connect =
                    || RedisLeases::connect(options.clone(), Backing::Durable(Arc::<SqliteStore>::clone(&durable)));
                Ok(Arc::new(until_it_answers(connect).await?))
            }
            Some(("zookeeper", _)) => {
                let mut options = ZookeeperOptions::from_url(&self.store)?;
                (options.limits, options.request_timeout, options.connect_timeout) = (limits, timeout, timeout);
                Ok(Arc::new(until_it_answers(|| ZookeeperLeases::connect(options.clone())).await?))
            }
            _ => bail!("{} is no lease store", self.store),
        }
    }

    /// What `lease-child` is told.
    #[must_use]
    pub fn arguments(&self) -> Vec<String> {
        let policy = match self.policy {
            ClockPolicy::Reject => "reject".to_owned(),
            ClockPolicy::Wait { max_ms } => format!("wait:{max_ms}"),
            ClockPolicy::Keep { max_ms } => format!("keep:{max_ms}"),
        };
        let mut arguments = vec![
            format!("store={}", self.store),
            format!("namespace={}", self.namespace),
            format!("holder={}", self.holder),
            format!("worker-bits={}", self.worker_bits),
            format!("tick-ms={}", self.tick_ms),
            format!("horizon-ms={}", self.horizon_ms),
            format!("policy={policy}"),
            format!("max-skew-ms={}", self.max_skew_ms),
            format!("wait-max-ms={}", self.wait_max_ms),
            format!("request-timeout-ms={}", self.request_timeout_ms),
            format!("batch={}", self.batch),
            format!("pause-us={}", self.pause_us),
            format!("loses-every={}", self.loses_every),
            format!("forks={}", self.forks),
        ];
        arguments.extend(self.loses.map(|operation| format!("loses={operation}")));
        arguments.extend(self.stands_still.map(|place| format!("stands-still={place}")));
        arguments.extend(self.clock.as_ref().map(|clock| format!("clock={}", clock.display())));
        arguments
    }

    /// What `lease-child` was told.
    ///
    /// # Errors
    /// When it is something else.
    pub fn read(arguments: impl IntoIterator<Item = String>) -> anyhow::Result<Self> {
        let mut settings = Self::new("");
        for argument in arguments {
            let (key, value) = argument.split_once('=').with_context(|| format!("{argument} is no KEY=VALUE"))?;
            match key {
                "store" => value.clone_into(&mut settings.store),
                "namespace" => value.clone_into(&mut settings.namespace),
                "holder" => value.clone_into(&mut settings.holder),
                "worker-bits" => settings.worker_bits = value.parse()?,
                "tick-ms" => settings.tick_ms = value.parse()?,
                "horizon-ms" => settings.horizon_ms = value.parse()?,
                "policy" => settings.policy = policy(value)?,
                "max-skew-ms" => settings.max_skew_ms = value.parse()?,
                "wait-max-ms" => settings.wait_max_ms = value.parse()?,
                "request-timeout-ms" => settings.request_timeout_ms = value.parse()?,
                "batch" => settings.batch = value.parse()?,
                "pause-us" => settings.pause_us = value.parse()?,
                "loses-every" => settings.loses_every = value.parse()?,
                "forks" => settings.forks = value.parse()?,
                "loses" => settings.loses = Some(value.parse()?),
                "stands-still" => settings.stands_still = Some(value.parse()?),
                "clock" => settings.clock = Some(value.into()),
                _ => bail!("{key} is unknown"),
            }
        }
        Ok(settings)
    }
}

/// Opens a store; on a busy machine, or a bad network, its first answer may be late.
async fn until_it_answers<T, F: Future<Output = Result<T, StoreError>>>(
    mut connect: impl FnMut() -> F,
) -> Result<T, StoreError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match connect().await {
            Err(error) if error.is_retryable() && Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            connected => return connected,
        }
    }
}

fn policy(text: &str) -> anyhow::Result<ClockPolicy> {
    match text.split_once(':') {
        None if text == "reject" => Ok(ClockPolicy::Reject),
        Some(("wait", max_ms)) => Ok(ClockPolicy::Wait { max_ms: max_ms.parse()? }),
        Some(("keep", max_ms)) => Ok(ClockPolicy::Keep { max_ms: max_ms.parse()? }),
        _ => bail!("{text} is no policy"),
    }
}

/// What is asked of a lease store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// For a worker.
    Acquire,
    /// For more time.
    Extend,
    /// To take a lease back.
    Release,
}

impl Operation {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Acquire, Self::Extend, Self::Release];
}

impl Display for Operation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Acquire => "acquire",
            Self::Extend => "extend",
            Self::Release => "release",
        })
    }
}

impl FromStr for Operation {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let found = Self::ALL.into_iter().find(|operation| operation.to_string() == text);
        found.with_context(|| format!("{text} is no operation"))
    }
}

/// Where a process stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Before the release is sent.
    BeforeRelease,
    /// After it was carried out, before its answer is heard.
    AfterRelease,
}

impl Place {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::BeforeRelease, Self::AfterRelease];
}

impl Display for Place {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BeforeRelease => "before-release",
            Self::AfterRelease => "after-release",
        })
    }
}

impl FromStr for Place {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let found = Self::ALL.into_iter().find(|place| place.to_string() == text);
        found.with_context(|| format!("{text} is no place"))
    }
}

/// One line of a holder's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// When, by the clock that all processes of a machine share, in nanoseconds.
    pub at_ns: u64,
    /// What.
    pub what: What,
}

/// What a holder says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// It got these ids by one call.
    Ids(Vec<u64>),
    /// It is about to hear that it was granted this: a new lease or a new end of one.
    Lease(Lease),
    /// It is about to give a lease back that it used up to this time.
    Releases {
        /// The lease's name.
        grant_id: u128,
        /// The end of the last tick that it used, in Unix milliseconds.
        end_ms: u64,
    },
    /// It was told whether its lease was taken back.
    Released(bool),
    /// The answer of an operation that was carried out is lost.
    Lost(Operation),
    /// The process stands still here.
    StandsStill(Place),
    /// A child that it forked ended thus: 0 if it abandoned everything that it inherited.
    Forked(i32),
    /// A call failed.
    Error(Failure),
}

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The library's word for it.
    pub kind: String,
    /// When the same call may succeed, in milliseconds; for a clock that went back, by how much it did.
    pub retry_after_ms: Option<u64>,
    /// What the store said.
    pub store: Refusal,
    /// The message.
    pub message: String,
}

/// What a store says that grants nothing, with its figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Nothing.
    None,
    /// All workers are under a lease.
    WorkersExhausted {
        /// How many there are.
        workers: u64,
        /// When the next one is free, in Unix milliseconds.
        free_at_ms: u64,
    },
    /// The clocks are too far apart.
    ClockSkew {
        /// The holder's, in Unix milliseconds.
        holder_ms: u64,
        /// The store's, in Unix milliseconds.
        store_ms: u64,
    },
    /// It cannot be reached, or does not answer in time.
    Unavailable,
    /// Its answer was lost.
    OutcomeUnknown,
    /// Something else.
    Other,
}

impl From<&Error> for Failure {
    fn from(error: &Error) -> Self {
        let store = match error.store_error() {
            None => Refusal::None,
            Some(&StoreError::WorkersExhausted { workers, free_at_ms, .. }) => {
                Refusal::WorkersExhausted { workers, free_at_ms }
            }
            Some(&StoreError::ClockSkew { holder_ms, store_ms, .. }) => Refusal::ClockSkew { holder_ms, store_ms },
            Some(StoreError::Unavailable { .. }) => Refusal::Unavailable,
            Some(StoreError::OutcomeUnknown { .. }) => Refusal::OutcomeUnknown,
            Some(_) => Refusal::Other,
        };
        Self {
            kind: error.kind().name().to_owned(),
            retry_after_ms: error.retry_after_ms(),
            store,
            message: error.to_string(),
        }
    }
}

impl Display for Said {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.at_ns)?;
        match &self.what {
            What::Ids(ids) => {
                f.write_str("ids")?;
                ids.iter().try_for_each(|id| write!(f, " {id}"))
            }
            What::Lease(Lease { worker, grant_id, not_before_ms, valid_until_ms }) => {
                write!(f, "lease {worker} {} {not_before_ms} {valid_until_ms}", grant_id.0)
            }
            What::Releases { grant_id, end_ms } => write!(f, "releases {grant_id} {end_ms}"),
            What::Released(taken_back) => write!(f, "released {taken_back}"),
            What::Lost(operation) => write!(f, "lost {operation}"),
            What::StandsStill(place) => write!(f, "stands-still {place}"),
            What::Forked(status) => write!(f, "forked {status}"),
            What::Error(Failure { kind, retry_after_ms, store, message }) => {
                let retry_after = retry_after_ms.map_or_else(|| "never".to_owned(), |ms| ms.to_string());
                write!(f, "error {kind} {retry_after} ")?;
                match store {
                    Refusal::None => f.write_str("none")?,
                    Refusal::WorkersExhausted { workers, free_at_ms } => {
                        write!(f, "workers-exhausted {workers} {free_at_ms}")?;
                    }
                    Refusal::ClockSkew { holder_ms, store_ms } => write!(f, "clock-skew {holder_ms} {store_ms}")?,
                    Refusal::Unavailable => f.write_str("unavailable")?,
                    Refusal::OutcomeUnknown => f.write_str("outcome-unknown")?,
                    Refusal::Other => f.write_str("other")?,
                }
                write!(f, " {}", message.replace('\n', " "))
            }
        }
    }
}

impl FromStr for Said {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> anyhow::Result<Self> {
        let mut words = line.split(' ');
        let at_ns = next(&mut words)?;
        let what = match next::<String>(&mut words)?.as_str() {
            "ids" => What::Ids(words.map(str::parse).collect::<Result<_, _>>()?),
            "lease" => What::Lease(Lease {
                worker: next(&mut words)?,
                grant_id: GrantId(next(&mut words)?),
                not_before_ms: next(&mut words)?,
                valid_until_ms: next(&mut words)?,
            }),
            "releases" => What::Releases { grant_id: next(&mut words)?, end_ms: next(&mut words)? },
            "released" => What::Released(next(&mut words)?),
            "lost" => What::Lost(next::<String>(&mut words)?.parse()?),
            "stands-still" => What::StandsStill(next::<String>(&mut words)?.parse()?),
            "forked" => What::Forked(next(&mut words)?),
            "error" => {
                let kind = next(&mut words)?;
                let retry_after = next::<String>(&mut words)?;
                let retry_after_ms = (retry_after != "never").then(|| retry_after.parse()).transpose()?;
                let store = match next::<String>(&mut words)?.as_str() {
                    "none" => Refusal::None,
                    "workers-exhausted" => {
                        Refusal::WorkersExhausted { workers: next(&mut words)?, free_at_ms: next(&mut words)? }
                    }
                    "clock-skew" => Refusal::ClockSkew { holder_ms: next(&mut words)?, store_ms: next(&mut words)? },
                    "unavailable" => Refusal::Unavailable,
                    "outcome-unknown" => Refusal::OutcomeUnknown,
                    _ => Refusal::Other,
                };
                What::Error(Failure { kind, retry_after_ms, store, message: words.collect::<Vec<_>>().join(" ") })
            }
            other => bail!("{other} is nothing that a holder says"),
        };
        Ok(Self { at_ns, what })
    }
}

fn next<T: FromStr<Err: std::error::Error + Send + Sync + 'static>>(words: &mut Split<'_, char>) -> anyhow::Result<T> {
    Ok(words.next().context("the line ends too early")?.parse()?)
}

/// What one process said from its start to its end.
type Record = Arc<Mutex<Vec<Said>>>;

/// All holders of one namespace that there ever were.
#[derive(Debug)]
pub struct Holders {
    program: &'static str,
    layout: Layout,
    lives: Vec<Record>,
}

impl Holders {
    /// None yet. They are processes of this program, and have the layout of these settings.
    ///
    /// # Errors
    /// As [`Settings::layout`].
    pub fn new(program: &'static str, settings: &Settings) -> anyhow::Result<Self> {
        Ok(Self { program, layout: settings.layout()?, lives: Vec::new() })
    }

    /// Starts one.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(&mut self, settings: &Settings) -> anyhow::Result<Holder> {
        self.start_as(&mut Command::new(self.program), settings)
    }

    /// Starts one whose wall clock is this one.
    ///
    /// # Errors
    /// As [`Holders::start`].
    pub fn start_with_clock(&mut self, settings: &Settings, clock: &FakeClock) -> anyhow::Result<Holder> {
        let mut command = Command::new(self.program);
        let holder = self.start_as(command.envs(clock.environment()), settings)?;
        clock.read_by(holder.child.id());
        Ok(holder)
    }

    /// Starts one in a process namespace of its own, where its process is number 1.
    ///
    /// # Errors
    /// As [`Holders::start`], and when the system does not allow it.
    pub fn start_as_first(&mut self, settings: &Settings) -> anyhow::Result<Holder> {
        self.start_as(unshare().arg(self.program), settings)
    }

    fn start_as(&mut self, command: &mut Command, settings: &Settings) -> anyhow::Result<Holder> {
        let mut child = command.args(settings.arguments()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take().context("its standard input")?;
        let output = child.stdout.take().context("its standard output")?;
        let record = Record::default();
        self.lives.push(Arc::clone(&record));
        let said = Arc::clone(&record);
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                let line = line.unwrap();
                lock(&said).push(line.parse().with_context(|| line.clone()).unwrap());
            }
        });
        Ok(Holder { child, input: Some(input), reader: Some(reader), record })
    }

    /// The layout of their ids.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The beginning of an id's tick, in Unix milliseconds.
    #[must_use]
    pub fn stamp_ms(&self, id: u64) -> u64 {
        self.layout.tick_start_ms(self.layout.unpack(id).unwrap().ticks)
    }

    /// Checks what all holders said so far: [the rules](Checked) that no crash, clock or network may break.
    pub fn check(&self) -> Checked {
        let mut checked = Checked::default();
        let mut ends = Ends::default();
        for (life, record) in self.lives.iter().enumerate() {
            self.check_life(life, &lock(record), &mut checked, &mut ends);
        }
        let mut intervals: Vec<_> =
            ends.0.iter().map(|(grant, end)| (end.worker, end.from_ms, end.to_ms, grant)).collect();
        intervals.sort_unstable();
        for pair in intervals.windows(2) {
            if let [(worker, _, to_ms, grant), (next_worker, from_ms, _, next_grant)] = pair {
                let apart = worker != next_worker || to_ms <= from_ms;
                assert!(apart, "the leases {grant} and {next_grant} of worker {worker} overlap by {}", to_ms - from_ms);
            }
        }
        checked
    }

    fn check_life(&self, life: usize, said: &[Said], checked: &mut Checked, ends: &mut Ends) {
        let mut last_of = BTreeMap::<u32, u64>::new();
        let mut granted = BTreeMap::<u128, Granted>::new();
        for said in said {
            match &said.what {
                What::Lease(lease) => {
                    self.check_bounds(lease);
                    ends.grant(life, lease);
                    checked.workers.insert(lease.worker);
                    let known = granted.entry(lease.grant_id.0).or_insert(Granted { lease: *lease, used_until_ms: 0 });
                    // A later answer may say less, and then changes nothing.
                    known.lease.valid_until_ms = known.lease.valid_until_ms.max(lease.valid_until_ms);
                }
                What::Releases { grant_id, end_ms } => {
                    let lease = granted.get(grant_id).unwrap();
                    assert!(lease.used_until_ms <= *end_ms, "it gives back at {end_ms} what it used: {lease:?}");
                    // It uses nothing behind, whatever the store makes of it.
                    ends.release(*grant_id, *end_ms);
                }
                What::Ids(ids) => {
                    for &id in ids {
                        let parts = self.layout.unpack(id).unwrap();
                        // With another worker it may go on at an earlier time, where a clock was ahead.
                        let last = last_of.insert(parts.worker, id);
                        assert!(last.is_none_or(|last| last < id), "{id} came after {last:?} in process {life}");
                        let (from_ms, to_ms) =
                            (self.layout.tick_start_ms(parts.ticks), self.layout.tick_start_ms(parts.ticks + 1));
                        let lease = granted.values_mut().find(|Granted { lease, .. }| {
                            lease.worker == parts.worker
                                && lease.not_before_ms <= from_ms
                                && to_ms <= lease.valid_until_ms
                        });
                        let lease =
                            lease.unwrap_or_else(|| panic!("{id} ({parts:?}) is of no lease of process {life}"));
                        lease.used_until_ms = to_ms;
                        let place = (parts.worker, parts.ticks, parts.sequence);
                        let before = checked.places.insert(place, life);
                        assert_eq!(before, None, "process {life} got {id} ({parts:?}), and that process before");
                    }
                }
                What::Error(_) | What::Released(_) | What::Lost(_) | What::StandsStill(_) | What::Forked(_) => {}
            }
        }
    }

    fn check_bounds(&self, &Lease { not_before_ms, valid_until_ms, .. }: &Lease) {
        assert!(not_before_ms < valid_until_ms, "an empty lease: {not_before_ms} to {valid_until_ms}");
        for bound_ms in [not_before_ms, valid_until_ms] {
            let past_ms = (bound_ms - self.layout.epoch_ms()) % u64::from(self.layout.tick_ms());
            assert_eq!(past_ms, 0, "a lease begins or ends within a tick");
        }
    }
}

/// A lease that a holder was granted.
#[derive(Debug)]
struct Granted {
    lease: Lease,
    /// The end of the last tick that it had an id of, in Unix milliseconds.
    used_until_ms: u64,
}

fn unshare() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--pid", "--fork", "--kill-child"]);
    command
}

/// Whether the system allows [`Holders::start_as_first`].
#[must_use]
pub fn may_start_as_first() -> bool {
    unshare().arg("true").output().is_ok_and(|output| output.status.success())
}

/// What was checked of all that all holders said: the ids of each ascend under each worker, each lies inside a lease
/// that its process had been granted, none was handed out twice (told by worker, tick and sequence), and the leases of
/// one worker do not overlap as far as they were not given back.
#[derive(Debug, Default)]
pub struct Checked {
    /// Each (worker, tick, sequence) that was handed out, and by which process.
    places: BTreeMap<(u32, u64, u32), usize>,
    /// Each worker that was granted.
    pub workers: BTreeSet<u32>,
}

impl Checked {
    /// How many ids there were.
    #[must_use]
    pub fn ids(&self) -> usize {
        self.places.len()
    }

    /// How many holders had ids of each worker.
    #[must_use]
    pub fn holders_by_worker(&self) -> BTreeMap<u32, usize> {
        let mut holders = BTreeMap::<u32, BTreeSet<usize>>::new();
        for ((worker, ..), life) in &self.places {
            holders.entry(*worker).or_default().insert(*life);
        }
        holders.into_iter().map(|(worker, lives)| (worker, lives.len())).collect()
    }
}

/// How far each lease may be used, by its name.
#[derive(Debug, Default)]
struct Ends(BTreeMap<u128, End>);

#[derive(Debug)]
struct End {
    life: usize,
    worker: u32,
    from_ms: u64,
    to_ms: u64,
}

impl Ends {
    fn grant(&mut self, life: usize, lease: &Lease) {
        let Lease { worker, grant_id, not_before_ms: from_ms, valid_until_ms: to_ms } = *lease;
        let end = self.0.entry(grant_id.0).or_insert(End { life, worker, from_ms, to_ms });
        assert_eq!((end.life, end.worker), (life, worker), "two leases are called {grant_id:?}");
        end.to_ms = end.to_ms.max(to_ms);
    }

    fn release(&mut self, grant_id: u128, end_ms: u64) {
        let end = self.0.get_mut(&grant_id).unwrap();
        assert!(end_ms <= end.to_ms, "a lease was used up to {end_ms}, and ended at {}", end.to_ms);
        end.to_ms = end_ms.max(end.from_ms);
    }
}

/// A holder that runs.
#[derive(Debug)]
pub struct Holder {
    child: Child,
    input: Option<ChildStdin>,
    reader: Option<JoinHandle<()>>,
    record: Record,
}

impl Holder {
    /// The number of its process.
    #[must_use]
    pub fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// What it said so far.
    #[must_use]
    pub fn said(&self) -> Vec<Said> {
        lock(&self.record).clone()
    }

    /// How many lines it said so far: a place to go on from in [`Holder::wait_for`].
    #[must_use]
    pub fn lines(&self) -> usize {
        lock(&self.record).len()
    }

    /// Waits until something can be found in what it said after so many lines.
    ///
    /// # Errors
    /// When that takes too long.
    pub fn wait_for<T>(&self, what: &str, after: usize, find: impl Fn(&What) -> Option<T>) -> anyhow::Result<T> {
        let deadline = Instant::now() + PATIENCE;
        let mut looked_at = after;
        loop {
            let said = lock(&self.record);
            if let Some(found) = said.iter().skip(looked_at).find_map(|said| find(&said.what)) {
                return Ok(found);
            }
            looked_at = said.len().max(after);
            let newest: Vec<_> = said.iter().rev().take(5).cloned().collect();
            drop(said);
            ensure!(Instant::now() < deadline, "{what}: it does not come; it said last {newest:?}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until it gets an id from now on; answers the id.
    ///
    /// # Errors
    /// As [`Holder::wait_for`].
    pub fn wait_for_id(&self) -> anyhow::Result<u64> {
        self.wait_for("an id", self.lines(), id)
    }

    /// Waits until a call fails from now on; answers why.
    ///
    /// # Errors
    /// As [`Holder::wait_for`].
    pub fn wait_for_error(&self) -> anyhow::Result<Failure> {
        self.wait_for("an error", self.lines(), failure)
    }

    /// The ids that it got so far, and when.
    #[must_use]
    pub fn ids(&self) -> Vec<(u64, u64)> {
        let said = lock(&self.record);
        let ids = |said: &Said| match &said.what {
            What::Ids(ids) => ids.iter().map(|id| (said.at_ns, *id)).collect(),
            _ => Vec::new(),
        };
        said.iter().flat_map(ids).collect()
    }

    /// What it was granted so far, each new end of a lease by itself.
    #[must_use]
    pub fn leases(&self) -> Vec<Lease> {
        let said = lock(&self.record);
        let leases = said.iter().filter_map(|said| match said.what {
            What::Lease(lease) => Some(lease),
            _ => None,
        });
        leases.collect()
    }

    /// The errors that it met so far, and when.
    #[must_use]
    pub fn errors(&self) -> Vec<(u64, Failure)> {
        lock(&self.record).iter().filter_map(|said| Some((said.at_ns, failure(&said.what)?))).collect()
    }

    /// Ends it with SIGKILL: it gets no chance to put anything in order.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub fn kill9(mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.wait()?;
        Ok(())
    }

    /// Tells it to end; it gives its lease back.
    pub fn tell_to_end(&mut self) {
        self.input = None;
    }

    /// Tells it to end, and waits until it has.
    ///
    /// # Errors
    /// When it ends with an error.
    pub fn end(self) -> anyhow::Result<()> {
        self.end_and_say().map(|_| ())
    }

    /// The same; answers all that it said.
    ///
    /// # Errors
    /// As [`Holder::end`].
    pub fn end_and_say(mut self) -> anyhow::Result<Vec<Said>> {
        self.tell_to_end();
        let deadline = Instant::now() + PATIENCE;
        while self.child.try_wait()?.is_none() {
            ensure!(Instant::now() < deadline, "it does not end");
            std::thread::sleep(Duration::from_millis(1));
        }
        let status = self.wait()?;
        ensure!(status.success(), "it ended with {status}");
        Ok(self.said())
    }

    /// Stops it where it is.
    ///
    /// # Errors
    /// When it does not stop.
    pub fn pause(&self) -> anyhow::Result<()> {
        process::pause(&self.child)
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// When there is no such process.
    pub fn resume(&self) -> anyhow::Result<()> {
        process::signal(&self.child, libc::SIGCONT)
    }

    /// Waits until it has ended and all that it said was read.
    fn wait(&mut self) -> anyhow::Result<ExitStatus> {
        let status = self.child.wait()?;
        let read = self.reader.take().is_none_or(|reader| reader.join().is_ok());
        ensure!(read, "it said what a holder does not say");
        Ok(status)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The first of these ids, if it is about ids.
#[must_use]
pub fn id(what: &What) -> Option<u64> {
    match what {
        What::Ids(ids) => ids.first().copied(),
        _ => None,
    }
}

/// The failure, if it is about one.
#[must_use]
pub fn failure(what: &What) -> Option<Failure> {
    match what {
        What::Error(failure) => Some(failure.clone()),
        _ => None,
    }
}

/// Prints what a holder says, in one piece: a process that is killed has said it or has not.
pub fn say(what: What) {
    use std::io::Write as _;
    let line = format!("{}\n", Said { at_ns: monotonic_ns(), what });
    std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
}
