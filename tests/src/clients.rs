//! Clients of one store in processes of their own, which ask for numbers until they are told to stop.

use std::io::{BufRead, BufReader, Read};
use std::ops::Range;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use unalike_storage::{SegmentStore, lock};

use crate::PATIENCE;

/// Numbers that one client was granted, and when it asked and heard, by the clock that all processes of a machine
/// share.
#[derive(Clone, Copy, Debug)]
pub struct Grant {
    /// Which client. Where each of P processes asks several stores, process p is client p + P s of store s.
    pub client: usize,
    /// Before it asked.
    pub asked_ns: u64,
    /// When it had the answer.
    pub heard_ns: u64,
    /// The first number.
    pub start: u64,
    /// Behind the last number.
    pub end: u64,
    /// The distance between numbers.
    pub stride: u64,
}

/// Nanoseconds of the clock that no process can set, the same for all of them.
#[must_use]
pub fn monotonic_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(time.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap()
}

/// What a client does: asks for `count` numbers of `tag` again and again until its standard input ends, and prints what
/// it was granted. Errors that are worth a retry are nothing to it.
///
/// # Errors
/// Any other error of the store.
pub async fn ask_until_told_to_stop(store: &dyn SegmentStore, tag: &str, count: u64) -> anyhow::Result<()> {
    ask_each_until_told_to_stop(&[store], tag, count).await
}

/// The same with several stores, which are asked by turns.
///
/// # Errors
/// As [`ask_until_told_to_stop`].
pub async fn ask_each_until_told_to_stop(stores: &[&dyn SegmentStore], tag: &str, count: u64) -> anyhow::Result<()> {
    let stopped = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&stopped);
    thread::spawn(move || {
        let _ = std::io::stdin().read(&mut [0]);
        stop.store(true, Ordering::SeqCst);
    });
    while !stopped.load(Ordering::SeqCst) {
        for (number, store) in stores.iter().enumerate() {
            let asked_ns = monotonic_ns();
            match store.allocate(tag, count, 0).await {
                Ok(segment) => {
                    let heard_ns = monotonic_ns();
                    println!("{number} {asked_ns} {heard_ns} {} {} {}", segment.start, segment.end, segment.stride);
                }
                // A server that is down is asked again, but not as fast as possible.
                Err(error) if error.is_retryable() => tokio::time::sleep(Duration::from_millis(5)).await,
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

/// Clients that run.
#[derive(Debug)]
pub struct Clients {
    processes: Vec<(Child, ChildStdin, JoinHandle<()>)>,
    /// How many stores each process asks.
    stores: usize,
    granted: Arc<Mutex<Vec<Grant>>>,
}

impl Clients {
    /// Starts so many processes of this program with these arguments.
    ///
    /// # Errors
    /// When one cannot be started.
    pub fn start(program: &str, arguments: &[&str], processes: usize) -> anyhow::Result<Self> {
        Self::start_each(program, arguments, processes, 1)
    }

    /// The same where each process asks so many stores.
    ///
    /// # Errors
    /// As [`Clients::start`].
    pub fn start_each(program: &str, arguments: &[&str], processes: usize, stores: usize) -> anyhow::Result<Self> {
        let granted = Arc::new(Mutex::new(Vec::new()));
        let mut clients = Self { processes: Vec::new(), stores, granted: Arc::clone(&granted) };
        for process in 0..processes {
            let mut child =
                Command::new(program).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
            let input = child.stdin.take().context("its standard input")?;
            let output = child.stdout.take().context("its standard output")?;
            let granted = Arc::clone(&granted);
            let reader = thread::spawn(move || {
                for line in BufReader::new(output).lines() {
                    let figures: Vec<u64> = line.unwrap().split(' ').map(|figure| figure.parse().unwrap()).collect();
                    let &[store, asked_ns, heard_ns, start, end, stride] = figures.as_slice() else {
                        panic!("a grant is six figures, not {figures:?}");
                    };
                    let client = process + processes * usize::try_from(store).unwrap();
                    lock(&granted).push(Grant { client, asked_ns, heard_ns, start, end, stride });
                }
            });
            clients.processes.push((child, input, reader));
        }
        Ok(clients)
    }

    /// Waits until every client has been granted something so many times more, by each store that it asks.
    ///
    /// # Errors
    /// When that takes too long, or a client ended.
    pub fn wait_for(&mut self, grants: usize) -> anyhow::Result<()> {
        self.wait_for_clients(0..self.processes.len() * self.stores, grants)
    }

    /// The same by this store alone.
    ///
    /// # Errors
    /// As [`Clients::wait_for`].
    pub fn wait_for_store(&mut self, store: usize, grants: usize) -> anyhow::Result<()> {
        let processes = self.processes.len();
        self.wait_for_clients(store * processes..(store + 1) * processes, grants)
    }

    fn wait_for_clients(&mut self, clients: Range<usize>, grants: usize) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let counts = |granted: &[Grant]| {
            let of = |client| granted.iter().filter(|grant| grant.client == client).count();
            clients.clone().map(of).collect::<Vec<_>>()
        };
        let before = counts(&lock(&self.granted));
        loop {
            let now = counts(&lock(&self.granted));
            if now.iter().zip(&before).all(|(now, before)| *now >= before + grants) {
                return Ok(());
            }
            for (child, ..) in &mut self.processes {
                ensure!(child.try_wait()?.is_none(), "a client ended by itself");
            }
            ensure!(Instant::now() < deadline, "the clients get no further: {before:?}, {now:?}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Tells all to stop; what they were granted.
    ///
    /// # Errors
    /// When one ended with an error.
    pub fn stop(mut self) -> anyhow::Result<Vec<Grant>> {
        let mut running = Vec::new();
        for (child, input, reader) in std::mem::take(&mut self.processes) {
            drop(input);
            running.push((child, reader));
        }
        for (mut child, reader) in running {
            ensure!(child.wait()?.success(), "a client ended with an error");
            ensure!(reader.join().is_ok(), "a client printed something else");
        }
        Ok(std::mem::take(&mut *lock(&self.granted)))
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        for (child, ..) in &mut self.processes {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Checks that no number was granted twice. Strides are all the same.
pub fn assert_disjoint(granted: &[Grant]) {
    let mut granted = granted.to_vec();
    granted.sort_by_key(|grant| (grant.start % grant.stride, grant.start));
    for pair in granted.windows(2) {
        if let [a, b] = pair {
            let apart = a.end <= b.start || a.start % a.stride != b.start % b.stride;
            assert!(apart, "a number was granted twice: {a:?} {b:?}");
        }
    }
}

/// Checks that what a client hears later lies above what it heard before.
pub fn assert_each_ascends(granted: &[Grant]) {
    let mut granted = granted.to_vec();
    granted.sort_by_key(|grant| (grant.client, grant.heard_ns));
    for pair in granted.windows(2) {
        if let [a, b] = pair {
            assert!(a.client != b.client || a.end <= b.start, "a client went back: {a:?} {b:?}");
        }
    }
}

/// Checks that each number lies above all that anybody had heard of before it was asked for.
pub fn assert_ascends_in_real_time(granted: &[Grant]) {
    let (mut asked, mut heard) = (granted.to_vec(), granted.to_vec());
    asked.sort_by_key(|grant| grant.asked_ns);
    heard.sort_by_key(|grant| grant.heard_ns);
    let (mut heard, mut floor) = (heard.into_iter().peekable(), 0);
    for grant in asked {
        while let Some(before) = heard.next_if(|before| before.heard_ns < grant.asked_ns) {
            floor = floor.max(before.end);
        }
        assert!(grant.start >= floor, "{grant:?} lies below {floor}, which was heard of before it was asked for");
    }
}
