//! The interfaces: requests that the core component makes, and the front end that has them run.
//!
//! Functions of `wasi:keyvalue` block, so a request that is run is over when its call returns: no two run at once in an
//! instance.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::Component;
use crate::bindings::exports::unalike::edge::grants;
use crate::bindings::exports::unalike::ids::{leases, segments};
use crate::bindings::unalike::ids::types::{Layout, StoreError};
use crate::bindings::wasi::cli::environment::get_environment;
use crate::bindings::wasi::random::random;
use crate::bindings::{atomics, store};
use crate::counters::{Bucket, Counters, Granted, Settings, Trouble};
use crate::failure::{Denied, Failure};
use crate::one_thread::OneThread;
use crate::records::{is_name, number};

/// The bucket, where nothing is said.
const BUCKET: &str = "default";

/// How often an instance counts on the probe, and how often it may be told to.
const PROBES: u64 = 8;
const PROBES_MAX: u64 = 64;

/// The requests of this instance.
struct Requests {
    last_ticket: u64,
    /// Requests that were made and not run yet.
    made: VecDeque<Made>,
    /// The answers to those that were made (none) or run.
    answers: BTreeMap<u64, Option<Result<Granted, Denied>>>,
    /// Why the newest request for a tag was granted nothing.
    failures: BTreeMap<String, Failure>,
}

struct Made {
    ticket: u64,
    tag: String,
    count: u64,
    at_least: u64,
}

static REQUESTS: OneThread<Requests> = OneThread::new(Requests {
    last_ticket: 0,
    made: VecDeque::new(),
    answers: BTreeMap::new(),
    failures: BTreeMap::new(),
});

/// The store, once it was opened. Apart from the requests: it is in use while the host does its part.
static COUNTERS: OneThread<Option<Counters<store::Bucket>>> = OneThread::new(None);

fn requests<T>(act: impl FnOnce(&mut Requests) -> T) -> T {
    act(&mut REQUESTS.cell().borrow_mut())
}

fn counters<T>(act: impl FnOnce(&mut Counters<store::Bucket>) -> Result<T, Failure>) -> Result<T, Failure> {
    // A host that lets another request in meanwhile has that one come again.
    let mut counters = COUNTERS.cell().try_borrow_mut().map_err(|_| Failure::unavailable())?;
    let opened = match counters.take() {
        Some(opened) => opened,
        None => open()?,
    };
    act(counters.insert(opened))
}

/// Opens the bucket that the environment names.
fn open() -> Result<Counters<store::Bucket>, Failure> {
    let mut bucket = String::from(BUCKET);
    let mut settings = Settings { store: None, creates: true, probes: PROBES };
    for (name, value) in get_environment() {
        match name.as_str() {
            "UNALIKE_BUCKET" => bucket = value,
            "UNALIKE_STORE" if is_name(&value) => settings.store = Some(value),
            "UNALIKE_STORE" => {
                return Err(Failure::refused("UNALIKE_STORE is no name: it has 1 to 128 visible ASCII characters"));
            }
            "UNALIKE_CREATE" => {
                settings.creates = match value.as_str() {
                    "true" => true,
                    "false" => false,
                    _ => return Err(Failure::refused("UNALIKE_CREATE is neither true nor false")),
                }
            }
            "UNALIKE_PROBES" => {
                let probes = number(&value).filter(|probes| *probes <= PROBES_MAX);
                settings.probes = probes.ok_or(Failure::refused("UNALIKE_PROBES is not a number from 0 to 64"))?;
            }
            _ => {}
        }
    }
    let open = || {
        store::open(&bucket).map_err(|error| match error {
            store::Error::NoSuchStore => {
                Failure::refused("the host has no bucket of this name: look at UNALIKE_BUCKET")
            }
            store::Error::AccessDenied => Failure::refused("the host denies the bucket: look at UNALIKE_BUCKET"),
            store::Error::Other(_) => Failure::unavailable(),
        })
    };
    let buckets = [open()?, open()?];
    let name = random::get_random_u64();
    let digits = name.to_be_bytes().into_iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
    let name = digits.filter_map(|digit| char::from_digit(u32::from(digit), 16)).collect();
    Ok(Counters::new(buckets, settings, name))
}

fn trouble(error: store::Error) -> Trouble {
    match error {
        store::Error::NoSuchStore | store::Error::AccessDenied => Trouble::Denied,
        store::Error::Other(_) => Trouble::Unclear,
    }
}

impl Bucket for store::Bucket {
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, Trouble> {
        Self::get(self, key).map_err(trouble)
    }

    fn set(&self, key: &str, value: &str) -> Result<(), Trouble> {
        Self::set(self, key, value.as_bytes()).map_err(trouble)
    }

    #[cfg_attr(
        not(feature = "draft2"),
        expect(clippy::useless_conversion, reason = "the other draft has another type")
    )]
    fn increment(&self, key: &str, delta: u64) -> Result<i128, Trouble> {
        // A number that the draft's type has not would have been refused by the core component.
        let delta = delta.try_into().map_err(|_| Trouble::Denied)?;
        atomics::increment(self, key, delta).map(i128::from).map_err(trouble)
    }
}

impl segments::Guest for Component {
    fn allocate(tag: String, count: u64, at_least: u64) -> u64 {
        requests(|requests| {
            // No instance lives for 2^64 requests.
            requests.last_ticket += 1;
            let ticket = requests.last_ticket;
            requests.answers.insert(ticket, None);
            requests.made.push_back(Made { ticket, tag, count, at_least });
            ticket
        })
    }

    fn poll(ticket: u64) -> Option<Result<segments::Segment, StoreError>> {
        requests(|requests| match requests.answers.get(&ticket) {
            None => Some(Err(StoreError::OutcomeUnknown)),
            Some(None) => None,
            Some(Some(_)) => {
                let answer = requests.answers.remove(&ticket).flatten()?;
                Some(answer.map(segment).map_err(store_error))
            }
        })
    }

    /// Nothing is given back: a counter is never set back.
    fn release(_tag: String, _start: u64, _version: u64) {}
}

fn segment(Granted { first, last }: Granted) -> segments::Segment {
    // No number is near the type's end.
    segments::Segment { start: first, end: last + 1, stride: 1, generation: 0, version: last }
}

const fn store_error(denied: Denied) -> StoreError {
    match denied {
        Denied::Unavailable => StoreError::Unavailable,
        Denied::OutcomeUnknown => StoreError::OutcomeUnknown,
        Denied::TagUnknown => StoreError::TagUnknown,
        Denied::Exhausted => StoreError::Exhausted,
        Denied::Refused => StoreError::Refused,
    }
}

/// A ticket that answers `refused`.
const NO_LEASE: u64 = 0;

impl leases::Guest for Component {
    fn acquire(_: String, _: Layout, _: u64, _: u64) -> u64 {
        NO_LEASE
    }

    fn extend(_: String, _: Layout, _: u32, _: leases::GrantId, _: u64, _: u64) -> u64 {
        NO_LEASE
    }

    fn poll(_: u64) -> Option<Result<leases::Lease, StoreError>> {
        Some(Err(StoreError::Refused))
    }

    fn release(_: String, _: u32, _: leases::GrantId, _: u64) {}
}

impl grants::Guest for Component {
    async fn open(tag: String) -> Result<grants::Mode, grants::Failure> {
        counters(|counters| counters.open(&tag))
            .map(|is_ordered| if is_ordered { grants::Mode::Ordered } else { grants::Mode::Buffered })
            .map_err(|failure| told(&failure))
    }

    async fn drive(tag: String, count: u64) {
        let made = requests(|requests| {
            let place = requests.made.iter().position(|made| made.tag == tag)?;
            requests.made.remove(place)
        });
        let Some(made) = made else { return };
        let count = count.clamp(1, made.count.max(1));
        let granted = counters(|counters| counters.allocate(&made.tag, count, made.at_least));
        requests(|requests| {
            match &granted {
                Ok(_) => drop(requests.failures.remove(&tag)),
                Err(failure) => drop(requests.failures.insert(tag, *failure)),
            }
            requests.answers.insert(made.ticket, Some(granted.map_err(|failure| failure.denied)));
        });
    }

    fn last_failure(tag: String) -> Option<grants::Failure> {
        requests(|requests| requests.failures.get(&tag).map(told))
    }

    /// There are none: nobody here has a worker.
    async fn snowflakes(_name: String, _count: u32) -> Result<Vec<u64>, grants::Failure> {
        let refused = Failure::refused("a key-value store leases no worker, so there are no snowflakes");
        Err(grants::Failure { problem: "snowflake-unknown".to_string(), ..told(&refused) })
    }

    async fn check() -> Result<(), grants::Failure> {
        counters(Counters::check).map_err(|failure| told(&failure))
    }
}

fn told(failure: &Failure) -> grants::Failure {
    grants::Failure {
        error: store_error(failure.denied),
        problem: failure.problem.to_string(),
        detail: failure.detail.to_string(),
        retry_after_ms: failure.retry_after_ms,
    }
}
