//! Windows: when the threads start, how long they work, and whether the machine let them.

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};

use crate::Tally;

/// How a case is measured.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// How many windows to keep.
    pub kept: usize,
    /// How many windows to run at most; on a machine that is never quiet the best of them are kept, and marked.
    pub tries: usize,
    /// The length of a window.
    pub length: Duration,
    /// The sleep before it.
    pub rest: Duration,
    /// How long the threads work before the window begins.
    pub warm_up: Duration,
    /// The share of processor time that every thread must have had. 0 for work that sleeps: nothing is thrown away
    /// then.
    pub cpu_min: f64,
    /// How much longer than at best the probe may have taken, before the window or after it. For one thread only: two
    /// cores are hardly ever undisturbed at once, and a contended cache line depends less on how fast they are.
    pub probe_max: f64,
    /// Time spent asleep counts as processor time; only waiting for a processor does not.
    pub may_park: bool,
    /// Ids ascend within each state alone: a window's may lie below the last one's.
    pub own_order: bool,
}

impl Plan {
    /// The rules in the crate's documentation; fewer windows for `-- --quick`, one each without `--bench`.
    #[must_use]
    pub fn from_args() -> Self {
        let has = |wanted: &str| std::env::args().any(|arg| arg == wanted);
        match (has("--bench"), has("--quick")) {
            (true, false) => Self::of(31),
            (true, true) => Self::of(7),
            (false, _) => Self::smoke(),
        }
    }

    /// One short window, whatever the machine does.
    #[must_use]
    pub fn smoke() -> Self {
        let rest = Duration::from_millis(1);
        Self { rest, tries: 1, ..Self::of(1) }.unfiltered()
    }

    const fn of(kept: usize) -> Self {
        Self {
            kept,
            tries: kept * 10,
            length: Duration::from_millis(3),
            rest: Duration::from_millis(12),
            warm_up: Duration::from_micros(300),
            cpu_min: 0.96,
            probe_max: 1.15,
            may_park: false,
            own_order: false,
        }
    }

    /// Longer or shorter windows, of which `share` times as many are kept.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a small number of windows times a share of it"
    )]
    pub fn windows(self, length: Duration, share: f64) -> Self {
        let kept = ((self.kept as f64 * share).round() as usize).max(1);
        Self { kept, tries: kept * (self.tries / self.kept).max(1), length, ..self }
    }

    /// For work that sleeps: no window is thrown away.
    #[must_use]
    pub fn unfiltered(self) -> Self {
        Self { cpu_min: 0.0, probe_max: f64::INFINITY, ..self }
    }

    /// For threads that may park on a lock.
    #[must_use]
    pub fn may_park(self) -> Self {
        Self { may_park: true, ..self }
    }

    /// For states that have runs of their own.
    #[must_use]
    pub fn own_order(self) -> Self {
        Self { own_order: true, ..self }
    }

    /// This much work before each window.
    #[must_use]
    pub fn warm_up(self, warm_up: Duration) -> Self {
        Self { warm_up, ..self }
    }
}

/// Names a case of a [`crate::Bench`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaseId(pub(crate) usize);

/// One window of all threads.
#[derive(Clone, Copy, Debug)]
struct Window {
    ns_per_id: f64,
    ns_per_call: f64,
    /// The processor share of the thread that got least.
    cpu: f64,
    /// The probe of a thread that was alone; zero for several.
    probe: Duration,
    /// The threads did not begin together.
    apart: bool,
}

/// A piece of work, and the windows that were measured of it.
pub(crate) struct Case<'a> {
    plan: Plan,
    run: Box<dyn FnMut() -> Result<Vec<Share>> + 'a>,
    windows: Vec<Window>,
    /// The greatest id of all windows so far.
    greatest: u64,
}

/// One thread's part of a window.
pub(crate) struct Share {
    tally: Tally,
    wall: Duration,
    /// Processor time, or the time that it did not wait for a processor.
    cpu: Duration,
    /// How long after the common start it began.
    late: Duration,
    /// The slower of the probes before and after.
    probe: Duration,
}

impl<'a> Case<'a> {
    /// One thread per state; `chunk` does a small part of the work, some microseconds long.
    pub(crate) fn new<S: Send + 'a>(
        plan: Plan,
        mut states: Vec<S>,
        chunk: impl Fn(&mut S, &mut Tally) -> Result<()> + Sync + 'a,
    ) -> Self {
        let run = Box::new(move || window(&plan, &mut states, &chunk));
        Self { plan, run, windows: Vec::new(), greatest: 0 }
    }

    fn kept(&self, probe_best: Duration) -> impl Iterator<Item = &Window> {
        // Not 0: 0 times infinity is no bound.
        let probe_max = probe_best.as_secs_f64().max(1e-9) * self.plan.probe_max;
        let is_kept =
            move |window: &&Window| window.cpu >= self.plan.cpu_min && window.probe.as_secs_f64() <= probe_max;
        self.windows.iter().filter(is_kept)
    }

    /// Whether it needs no further window; `probe_best` is the fastest probe of the whole bench.
    pub(crate) fn is_done(&self, probe_best: Duration) -> bool {
        self.windows.len() >= self.plan.tries || self.kept(probe_best).count() >= self.plan.kept
    }

    /// The probes of windows with one thread.
    pub(crate) fn probes(&self) -> impl Iterator<Item = Duration> {
        self.windows.iter().map(|window| window.probe).filter(|probe| !probe.is_zero())
    }

    /// Runs one window, and checks the ids in it.
    pub(crate) fn advance(&mut self) -> Result<()> {
        let shares = (self.run)()?;
        let mut ids_rate = 0.0;
        let mut calls_rate = 0.0;
        let mut cpu = f64::INFINITY;
        let mut apart = false;
        for Share { tally, wall, cpu: used, late, .. } in &shares {
            let counted = if tally.timed.is_zero() { *wall } else { tally.timed };
            ids_rate += tally.ids as f64 / counted.as_secs_f64();
            calls_rate += tally.calls as f64 / counted.as_secs_f64();
            cpu = cpu.min(used.as_secs_f64() / wall.as_secs_f64());
            // A thread that came late left the others alone with what they share.
            apart |= shares.len() > 1 && *late > self.plan.length / 20;
        }
        let probe = if let [share] = &shares[..] { share.probe } else { Duration::ZERO };
        let tallies = || shares.iter().map(|share| &share.tally).filter(|tally| tally.checked > 0);
        if let (Some(least), Some(greatest)) =
            (tallies().map(|tally| tally.first).min(), tallies().map(|tally| tally.last).max())
        {
            ensure!(self.plan.own_order || least > self.greatest, "the id {least} came after {}", self.greatest);
            // More ids than there are numbers between the least and the greatest: some came twice.
            let checked: u64 = tallies().map(|tally| tally.checked).sum();
            ensure!(checked <= greatest - least + 1, "{checked} ids between {least} and {greatest}");
            self.greatest = greatest;
        }
        let window = Window { ns_per_id: 1e9 / ids_rate, ns_per_call: 1e9 / calls_rate, cpu, probe, apart };
        self.windows.push(window);
        Ok(())
    }

    /// The kept windows in ns per call or per id, and whether they had to be the least disturbed ones, because the
    /// machine left too few to keep.
    pub(crate) fn samples(&self, per_call: bool, probe_best: Duration) -> (Vec<f64>, bool) {
        let figure = |window: &Window| if per_call { window.ns_per_call } else { window.ns_per_id };
        let kept: Vec<_> = self.kept(probe_best).map(figure).collect();
        let wanted = self.plan.kept.div_ceil(3);
        if kept.len() >= wanted {
            return (kept, false);
        }
        let mut windows: Vec<_> = self.windows.iter().collect();
        windows.sort_by(|one, two| {
            let disturbed = |window: &Window| (window.apart, window.cpu < self.plan.cpu_min, window.probe);
            disturbed(one).cmp(&disturbed(two)).then(two.cpu.total_cmp(&one.cpu))
        });
        (windows.into_iter().take(wanted).map(figure).collect(), true)
    }

    /// How many windows were measured.
    pub(crate) fn tried(&self) -> usize {
        self.windows.len()
    }
}

fn window<S: Send>(
    plan: &Plan,
    states: &mut [S],
    chunk: &(impl Fn(&mut S, &mut Tally) -> Result<()> + Sync),
) -> Result<Vec<Share>> {
    let start = Instant::now() + plan.rest + plan.warm_up;
    thread::scope(|scope| {
        let threads: Vec<_> = states
            .iter_mut()
            .map(|state| {
                let work = move || work(plan, start, state, chunk);
                // The name tells profilers the measured threads from the others.
                thread::Builder::new().name("window".to_owned()).spawn_scoped(scope, work)
            })
            .collect::<std::io::Result<_>>()?;
        threads.into_iter().map(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?).collect()
    })
}

fn work<S>(
    plan: &Plan,
    start: Instant,
    state: &mut S,
    chunk: &(impl Fn(&mut S, &mut Tally) -> Result<()> + Sync),
) -> Result<Share> {
    let mut tally = Tally::default();
    thread::sleep((start - plan.warm_up).saturating_duration_since(Instant::now()));
    let before = probe();
    loop {
        chunk(state, &mut tally)?;
        if Instant::now() >= start {
            break;
        }
    }
    tally.begin();
    let end = start + plan.length;
    let (waited_before, cpu_before, began) = (run_delay(plan)?, thread_cpu()?, Instant::now());
    loop {
        chunk(state, &mut tally)?;
        if Instant::now() >= end {
            break;
        }
    }
    let (wall, cpu_after) = (began.elapsed(), thread_cpu()?);
    let cpu = if plan.may_park {
        wall.saturating_sub(run_delay(plan)?.saturating_sub(waited_before))
    } else {
        cpu_after.saturating_sub(cpu_before)
    };
    std::hint::black_box(tally.xor);
    let probe = probe().max(before);
    Ok(Share { tally, wall, cpu, late: began.saturating_duration_since(start), probe })
}

/// How long a fixed piece of arithmetic takes, some 10 µs at best: how fast the core is just now.
///
/// Four chains that do not wait for each other fill the core's units, so that a busy sibling (of this machine or, where
/// the machine is a virtual one, of another) shows, as a low clock rate does.
fn probe() -> Duration {
    let mut chains = [1_u64, 2, 3, 4];
    let once = |chains: &mut [u64; 4]| {
        let began = Instant::now();
        for _ in 0..4_096 {
            for chain in chains.iter_mut() {
                *chain = (chain.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (*chain >> 29)).rotate_left(7);
            }
        }
        std::hint::black_box(*chains);
        began.elapsed()
    };
    // The lesser of two: an interrupt in one of them says nothing about the core.
    once(&mut chains).min(once(&mut chains))
}

/// The processor time that this thread has had.
fn thread_cpu() -> Result<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    #[expect(unsafe_code, reason = "the standard library does not read this clock")]
    // SAFETY: it writes one `timespec`, through a pointer to one.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    ensure!(result == 0, "no processor time of a thread: {}", std::io::Error::last_os_error());
    Ok(Duration::new(u64::try_from(time.tv_sec)?, u32::try_from(time.tv_nsec)?))
}

/// Repeats what takes milliseconds, up to `times` times, and keeps what the probe before and after says was not
/// disturbed.
///
/// # Errors
/// What `work` fails with.
pub fn undisturbed<T>(times: usize, mut work: impl FnMut() -> Result<T>) -> Result<Vec<T>> {
    let mut all = Vec::with_capacity(times);
    for _ in 0..times {
        thread::sleep(Duration::from_millis(12));
        let before = probe();
        let done = work()?;
        all.push((before.max(probe()), done));
    }
    let best = all.iter().map(|(probe, _)| *probe).min().unwrap_or_default();
    Ok(all.into_iter().filter(|(probe, _)| *probe <= best.mul_f64(1.15)).map(|(_, done)| done).collect())
}

/// How long this thread has waited for a processor, ready to run; zero when the plan does not ask.
fn run_delay(plan: &Plan) -> Result<Duration> {
    if !plan.may_park {
        return Ok(Duration::ZERO);
    }
    // Nanoseconds run, nanoseconds waited, time slices (Linux, Documentation/scheduler/sched-stats.rst).
    let path = "/proc/thread-self/schedstat";
    let figures = std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    let waited = figures.split_ascii_whitespace().nth(1).with_context(|| format!("{path} says {figures:?}"))?;
    Ok(Duration::from_nanos(waited.parse()?))
}

/// Takes `count` ids per state, each state on a thread of its own, and fails if any two are the same. Not measured.
///
/// # Errors
/// An id that came twice, or what `next` fails with.
pub fn check_unique<S: Send>(
    what: &str,
    states: &mut [S],
    count: usize,
    next: impl Fn(&mut S) -> Result<u64> + Sync,
) -> Result<()> {
    let all = Mutex::new(Vec::with_capacity(count * states.len()));
    thread::scope(|scope| {
        let threads: Vec<_> = states
            .iter_mut()
            .map(|state| {
                scope.spawn(|| {
                    let ids = (0..count).map(|_| next(state)).collect::<Result<Vec<_>>>()?;
                    ensure!(ids.is_sorted_by(|one, two| one < two), "{what}: a thread saw ids go down");
                    all.lock().map_err(|_| anyhow!("a thread panicked"))?.extend(ids);
                    Ok(())
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?)
    })?;
    let mut ids = all.into_inner()?;
    let total = ids.len();
    ids.sort_unstable();
    ids.dedup();
    ensure!(ids.len() == total, "{what}: {} of {total} ids came twice", total - ids.len());
    println!("checked: {total} ids of {what}, all different");
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    fn case<'a>(chunk: impl Fn(&mut u64, &mut Tally) -> Result<()> + Sync + 'a) -> Case<'a> {
        Case::new(Plan::smoke(), vec![0, 0], chunk)
    }

    #[test]
    fn ids_that_come_twice_fail_the_bench() {
        let constant = case(|_, tally| tally.ids(10, || Ok(7))).advance();
        assert!(constant.is_err_and(|error| error.to_string().contains("did not ascend")));
        let each_its_own = case(|own, tally| {
            tally.ids(10, || {
                *own += 1;
                Ok(*own)
            })
        });
        let twice = { each_its_own }.advance();
        assert!(twice.is_err_and(|error| error.to_string().contains("ids between 1 and")));
        let repeat = check_unique("a constant", &mut [0, 0], 1, |_| Ok(7));
        assert!(repeat.is_err_and(|error| error.to_string().contains("1 of 2 ids came twice")));
    }

    #[test]
    fn a_window_counts_what_all_threads_did() {
        let counter = AtomicU64::new(1);
        let mut case = case(|_, tally| tally.ids(10, || Ok(counter.fetch_add(1, Ordering::Relaxed))));
        assert!(!case.is_done(Duration::ZERO));
        case.advance().unwrap();
        assert!(case.is_done(Duration::ZERO) && case.tried() == 1);
        let (samples, marked) = case.samples(false, Duration::ZERO);
        assert!(matches!(samples[..], [ns] if ns > 0.0 && ns < 1e6) && !marked, "{samples:?}");
    }
}
