//! What happens, and when: drawn from a seed.

use std::fmt;
use std::str::FromStr;

use anyhow::Context as _;
use unalike_storage::FieldOrder;

/// Things go wrong for this long, in milliseconds.
pub(crate) const TROUBLE_MS: u64 = 9_000;

/// How large a world is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scene {
    /// Machines with a process each.
    pub machines: u8,
    /// Callers in each process.
    pub threads: u8,
    /// Stores of segments that there are; those of one tag number together.
    pub stores: u8,
    /// How many of them are used at first.
    pub stores_used: u8,
    /// Tags that are fetched ahead.
    pub tags: u8,
    /// Numbers of a segment, at first.
    pub step: u16,
    /// Ids that a caller asks for at most.
    pub count_max: u16,
    /// Milliseconds between two calls of a caller, on average.
    pub pause_ms: u8,
    /// Width of the worker ids, in bits.
    pub worker_bits: u8,
    /// Width of the sequence, in bits.
    pub sequence_bits: u8,
    /// The tick of the snowflakes, in milliseconds.
    pub tick_ms: u8,
    /// Where the sequence is in a snowflake.
    pub order: FieldOrder,
    /// How far leases reach ahead, in milliseconds.
    pub horizon_ms: u16,
    /// Bits of the start offset of a tick's sequences; 0 for none.
    pub spread_bits: u8,
}

/// Something that happens to a machine, a store, or between them. Machines and stores are named by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the display says it, with its units")]
pub enum Happening {
    Kill { machine: u8, down_ms: u16 },
    Pause { machine: u8, for_ms: u16 },
    Clock { machine: u8, by_ms: i32 },
    Drift { machine: u8, percent: i8 },
    Fork { machine: u8 },
    Trap { machine: u8 },
    Upgrade { machine: u8, step: u16 },
    Twin { machine: u8 },
    OtherLayout { machine: u8 },
    StoreKill { store: u8, down_ms: u16 },
    StorePause { store: u8, for_ms: u16 },
    StoreClock { store: u8, by_ms: i32 },
    FailOver { store: u8, lag_ms: u16 },
    Storm { for_ms: u16, lost_percent: u8, repeated_percent: u8, delay_max_ms: u16 },
    Cut { machine: u8, store: u8, for_ms: u16 },
    Resize { to: u8, is_turned: bool, pause_after_ms: u8, pause_ms: u16, rival_after_ms: Option<u8> },
    EndLease { worker: u8 },
    Raise { tag: u8, by: u16 },
}

impl Happening {
    /// Its kind, for counts.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Kill { .. } => "process killed",
            Self::Pause { .. } => "process paused",
            Self::Clock { .. } => "machine's clock stepped",
            Self::Drift { .. } => "machine's clock drifts",
            Self::Fork { .. } => "process forked",
            Self::Trap { .. } => "component trapped",
            Self::Upgrade { .. } => "process replaced gracefully",
            Self::Twin { .. } => "second process of one name",
            Self::OtherLayout { .. } => "process started with another layout",
            Self::StoreKill { .. } => "store killed",
            Self::StorePause { .. } => "store paused",
            Self::StoreClock { .. } => "store's clock stepped",
            Self::FailOver { .. } => "replica that lags promoted",
            Self::Storm { .. } => "network storm",
            Self::Cut { .. } => "machine cut off from a store",
            Self::Resize { .. } => "stripes resized",
            Self::EndLease { .. } => "lease ended by an operator",
            Self::Raise { .. } => "tag raised",
        }
    }
}

impl fmt::Display for Happening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Kill { machine, down_ms } => write!(f, "machine {machine}: killed, starts again after {down_ms} ms"),
            Self::Pause { machine, for_ms } => write!(f, "machine {machine}: paused for {for_ms} ms"),
            Self::Clock { machine, by_ms } => write!(f, "machine {machine}: its clock steps by {by_ms} ms"),
            Self::Drift { machine, percent } => {
                write!(f, "machine {machine}: its clock is off by {percent} % from now on")
            }
            Self::Fork { machine } => write!(f, "machine {machine}: the process forks"),
            Self::Trap { machine } => write!(f, "machine {machine}: the component traps"),
            Self::Upgrade { machine, step } => write!(f, "machine {machine}: replaced by one with a step of {step}"),
            Self::Twin { machine } => write!(f, "machine {machine}: a second process with its name"),
            Self::OtherLayout { machine } => write!(f, "machine {machine}: starts again with another layout"),
            Self::StoreKill { store, down_ms } => write!(f, "store {store}: killed, starts again after {down_ms} ms"),
            Self::StorePause { store, for_ms } => write!(f, "store {store}: paused for {for_ms} ms"),
            Self::StoreClock { store, by_ms } => write!(f, "store {store}: its clock steps by {by_ms} ms"),
            Self::FailOver { store, lag_ms } => write!(f, "store {store}: a replica takes over that lacks {lag_ms} ms"),
            Self::Storm { for_ms, lost_percent, repeated_percent, delay_max_ms } => write!(
                f,
                "network: for {for_ms} ms it loses {lost_percent} %, repeats {repeated_percent} %, and takes up to \
                 {delay_max_ms} ms"
            ),
            Self::Cut { machine, store, for_ms } => {
                write!(f, "machine {machine}: no way to store {store} for {for_ms} ms")
            }
            Self::Resize { to, is_turned, pause_after_ms, pause_ms, rival_after_ms } => {
                let order = if is_turned { ", the last one first" } else { "" };
                write!(
                    f,
                    "operator: resizes to {to} stores{order}, and is paused after {pause_after_ms} ms for {pause_ms} ms"
                )?;
                match rival_after_ms {
                    Some(after_ms) => write!(f, "; another one does so in the other order after {after_ms} ms"),
                    None => Ok(()),
                }
            }
            Self::EndLease { worker } => write!(f, "operator: ends the lease of worker {worker}"),
            Self::Raise { tag, by } => write!(f, "operator: raises tag {tag} by {by}"),
        }
    }
}

/// A world and what happens in it.
///
/// As text it is its seed, and behind a colon the numbers of the happenings that are kept, if not all are: `42` or
/// `42:3,7`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    seed: u64,
    scene: Scene,
    /// What is drawn, by the millisecond.
    drawn: Vec<(u64, Happening)>,
    /// The numbers of what happens, ascending.
    kept: Vec<usize>,
}

impl Plan {
    /// The plan of a seed, or so much of it.
    #[must_use]
    pub fn of(seed: u64, kept: Option<&[usize]>) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let scene = Scene::draw(&mut rng);
        let mut drawn: Vec<_> =
            (0..rng.usize(3..24)).map(|_| (rng.u64(500..TROUBLE_MS), scene.draw_happening(&mut rng))).collect();
        drawn.sort_by_key(|(at_ms, _)| *at_ms);
        let kept = match kept {
            Some(kept) => kept.iter().copied().filter(|number| *number < drawn.len()).collect(),
            None => (0..drawn.len()).collect(),
        };
        Self { seed, scene, drawn, kept }
    }

    /// Its seed.
    #[must_use]
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// How large the world is.
    #[must_use]
    pub const fn scene(&self) -> &Scene {
        &self.scene
    }

    /// The numbers of what happens.
    #[must_use]
    pub fn kept(&self) -> &[usize] {
        &self.kept
    }

    /// What happens, by the millisecond from the beginning on.
    pub fn happenings(&self) -> impl Iterator<Item = (u64, Happening)> {
        self.kept.iter().filter_map(|&number| self.drawn.get(number).copied())
    }

    /// Its line: what [`Plan::from_str`] reads.
    #[must_use]
    pub fn line(&self) -> String {
        if self.kept.len() == self.drawn.len() {
            return self.seed.to_string();
        }
        let kept: Vec<_> = self.kept.iter().map(ToString::to_string).collect();
        format!("{}:{}", self.seed, kept.join(","))
    }
}

impl FromStr for Plan {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (seed, kept) = match text.split_once(':') {
            None => (text, None),
            Some((seed, kept)) => (seed, Some(kept)),
        };
        let seed = seed.parse().with_context(|| format!("{seed:?} is no seed: give a number of 0 to 2^64 - 1"))?;
        let Some(kept) = kept else { return Ok(Self::of(seed, None)) };
        let numbers = kept.split(',').filter(|number| !number.is_empty());
        let numbers: Result<Vec<usize>, _> = numbers.map(str::parse).collect();
        let numbers = numbers.with_context(|| format!("{kept:?} are no numbers of happenings: 3,7 would be some"))?;
        Ok(Self::of(seed, Some(&numbers)))
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Scene {
            machines, threads, stores, stores_used, tags, step, worker_bits, sequence_bits, horizon_ms, ..
        } = self.scene;
        writeln!(
            f,
            "plan {}: {machines} machines of {threads} threads, {stores_used} of {stores} stores, {tags} tags of step {step}, \
             snowflakes of {worker_bits} + {sequence_bits} bits under leases of {horizon_ms} ms",
            self.line()
        )?;
        for (at_ms, happening) in self.happenings() {
            writeln!(f, "{at_ms:>6} ms  {happening}")?;
        }
        Ok(())
    }
}

impl Scene {
    fn draw(rng: &mut fastrand::Rng) -> Self {
        let stores = rng.choice([1, 1, 1, 2, 3]).unwrap_or(1);
        let worker_bits = rng.u8(2..=8);
        let sequence_bits = rng.u8(3..=12);
        let order = if rng.u8(0..4) == 0 { FieldOrder::SequenceFirst } else { FieldOrder::WorkerFirst };
        let is_spread = order == FieldOrder::WorkerFirst && rng.u8(0..3) == 0;
        Self {
            machines: rng.u8(1..=4),
            threads: rng.u8(1..=3),
            stores,
            stores_used: rng.u8(1..=stores),
            tags: rng.u8(1..=2),
            step: rng.choice([1, 10, 100, 1_000, 10_000]).unwrap_or(100),
            count_max: rng.choice([1, 5, 50, 500, 2_000]).unwrap_or(1),
            pause_ms: rng.choice([2, 10, 40]).unwrap_or(10),
            worker_bits,
            sequence_bits,
            tick_ms: rng.choice([1, 1, 1, 10]).unwrap_or(1),
            order,
            horizon_ms: rng.choice([500, 2_000, 5_000]).unwrap_or(2_000),
            spread_bits: if is_spread { rng.u8(1..=sequence_bits) } else { 0 },
        }
    }

    /// The number of the store of leases; those of segments come first.
    pub(crate) const fn lease_store(&self) -> u8 {
        self.stores
    }

    fn draw_happening(&self, rng: &mut fastrand::Rng) -> Happening {
        let machine = rng.u8(0..self.machines);
        let store = rng.u8(0..=self.stores);
        // Stripes are put together again by `resize`, which is tried by itself.
        let may_lag = self.stores == 1 || store == self.lease_store();
        let step_ms = |rng: &mut fastrand::Rng| match rng.u8(0..4) {
            0 => rng.i32(-50..50),
            1 => rng.i32(-3_000..0),
            2 => rng.i32(0..3_000),
            _ => rng.i32(-60_000..60_000),
        };
        let for_ms = |rng: &mut fastrand::Rng| match rng.u8(0..3) {
            0 => rng.u16(1..100),
            1 => rng.u16(100..1_000),
            _ => rng.u16(1_000..8_000),
        };
        match rng.u8(0..24) {
            0..3 => Happening::Kill { machine, down_ms: for_ms(rng) },
            3..5 => Happening::Pause { machine, for_ms: for_ms(rng) },
            5..7 => Happening::Clock { machine, by_ms: step_ms(rng) },
            7 => Happening::Drift { machine, percent: rng.i8(-20..20) },
            8 => Happening::Fork { machine },
            9 => Happening::Trap { machine },
            10 => Happening::Upgrade { machine, step: rng.choice([1, 10, 100, 1_000]).unwrap_or(1) },
            11 => Happening::Twin { machine },
            12 => Happening::OtherLayout { machine },
            13..15 => Happening::StoreKill { store, down_ms: for_ms(rng) },
            15 => Happening::StorePause { store, for_ms: for_ms(rng) },
            16 => Happening::StoreClock { store, by_ms: step_ms(rng) },
            17..19 if may_lag => Happening::FailOver { store, lag_ms: rng.u16(0..3_000) },
            17..20 if self.stores > 1 => Happening::Resize {
                to: rng.u8(1..=self.stores),
                is_turned: rng.bool(),
                pause_after_ms: rng.u8(0..90),
                pause_ms: rng.choice([0, 50, 500]).unwrap_or(0),
                rival_after_ms: rng.bool().then(|| rng.u8(0..150)),
            },
            20 => Happening::Cut { machine, store, for_ms: for_ms(rng) },
            21 => Happening::EndLease { worker: rng.u8(0..=u8::MAX >> (8 - self.worker_bits)) },
            22 => Happening::Raise { tag: rng.u8(0..self.tags), by: rng.u16(..) },
            _ => Happening::Storm {
                for_ms: for_ms(rng),
                lost_percent: rng.u8(0..60),
                repeated_percent: rng.u8(0..40),
                delay_max_ms: rng.choice([5, 100, 4_000]).unwrap_or(5),
            },
        }
    }
}
