//! The generators as a host holds them: each state machine with the request that it has out.
//!
//! The component and hosts without WebAssembly run these very functions; they differ in who carries the requests. In
//! every call an answer that has come is taken in first, then the call is served, then the request that is due starts.

use alloc::string::String;
use alloc::sync::Arc;

use crate::{
    GrantId, Layout, Lease, LeaseRelease, LeaseRequest, OptionsError, OrderedBuffer, OrderedOptions, ReserveError, Run,
    Segment, SegmentBuffer, SequenceOptions, Snowflake, SnowflakeOptions, StoreFailure, TailRelease,
};

/// Carries requests to a segment store: the interface `segments` of the WIT. Nothing here waits.
pub trait Segments {
    /// Starts a request for `count` numbers, none below `at_least`. Answers a ticket that is never used again.
    fn allocate(&mut self, tag: &str, count: u64, at_least: u64) -> u64;

    /// The answer of a ticket, once; none while it has not come.
    fn poll(&mut self, ticket: u64) -> Option<Result<Segment, StoreFailure>>;

    /// Gives a tail back. Nobody hears what becomes of it.
    fn release(&mut self, tag: &str, tail: TailRelease);
}

/// Carries requests to a lease store: the interface `leases` of the WIT. Nothing here waits.
pub trait Leases {
    /// Starts a request for a worker until `horizon_ms` after `now_ms`. Answers a ticket that is never used again.
    fn acquire(&mut self, namespace: &str, layout: &Layout, now_ms: u64, horizon_ms: u64) -> u64;

    /// The same for more time of a worker that is held.
    fn extend(&mut self, namespace: &str, layout: &Layout, held: (u32, GrantId), now_ms: u64, horizon_ms: u64) -> u64;

    /// The answer of a ticket, once; none while it has not come.
    fn poll(&mut self, ticket: u64) -> Option<Result<Lease, StoreFailure>>;

    /// Ends a lease. Nobody hears what becomes of it.
    fn release(&mut self, namespace: &str, release: LeaseRelease);
}

/// A buffered sequence and its request.
///
/// ```
/// use unalike_core::{ReserveError, Segment, Segments, SequenceGenerator, SequenceOptions, StoreFailure, TailRelease};
///
/// /// Grants at once.
/// struct Counter(u64);
///
/// impl Segments for Counter {
///     fn allocate(&mut self, _: &str, count: u64, _: u64) -> u64 {
///         self.0 = count;
///         1
///     }
///     fn poll(&mut self, _: u64) -> Option<Result<Segment, StoreFailure>> {
///         Some(Ok(Segment { start: 1, end: 1 + self.0, stride: 1, generation: 0, version: 1 }))
///     }
///     fn release(&mut self, _: &str, _: TailRelease) {}
/// }
///
/// let mut store = Counter(0);
/// let mut orders = SequenceGenerator::open("order".into(), SequenceOptions::default(), 0)?;
/// assert_eq!(orders.reserve(&mut store, 0, 10), Err(ReserveError::Pending)); // asks
/// assert_eq!(orders.reserve(&mut store, 0, 10).unwrap().first, 1); // and has its answer
/// # Ok::<(), unalike_core::OptionsError>(())
/// ```
#[derive(Debug)]
pub struct SequenceGenerator {
    tag: String,
    buffer: SegmentBuffer,
    ticket: Option<u64>,
}

impl SequenceGenerator {
    /// A generator that has nothing yet, of a tag that [is one](crate::is_tag). No number is below `floor`.
    ///
    /// # Errors
    /// As [`SegmentBuffer::new`].
    pub fn open(tag: String, options: impl Into<Arc<SequenceOptions>>, floor: u64) -> Result<Self, OptionsError> {
        Ok(Self { tag, buffer: SegmentBuffer::new(options, floor)?, ticket: None })
    }

    /// As [`SegmentBuffer::reserve`].
    ///
    /// # Errors
    /// As [`SegmentBuffer::reserve`].
    pub fn reserve(&mut self, segments: &mut impl Segments, now_ms: u64, max: u32) -> Result<Run, ReserveError> {
        self.settle(segments, now_ms);
        let run = self.buffer.reserve(now_ms, max);
        self.request(segments, now_ms);
        run
    }

    /// Moves things along without taking a number, and shows how they stand.
    pub fn status(&mut self, segments: &mut impl Segments, now_ms: u64) -> &SegmentBuffer {
        self.settle(segments, now_ms);
        self.request(segments, now_ms);
        &self.buffer
    }

    /// Ends it, and gives back what was not used.
    pub fn close(&mut self, segments: &mut impl Segments) {
        // A segment that has arrived belongs to the tail; when it did no longer matters.
        self.settle(segments, 0);
        if let Some(tail) = self.buffer.close() {
            segments.release(&self.tag, tail);
        }
    }

    /// Takes an answer in, if there is one.
    #[inline(never)]
    fn settle(&mut self, segments: &mut impl Segments, now_ms: u64) {
        match answer(&mut self.ticket, segments) {
            None => {}
            // A fault is remembered by the buffer, which tells it to the next caller.
            Some(Ok(segment)) => drop(self.buffer.granted(now_ms, segment)),
            Some(Err(failure)) => self.buffer.failed(now_ms, failure),
        }
    }

    /// Starts the request that is due, if one is.
    #[inline(never)]
    fn request(&mut self, segments: &mut impl Segments, now_ms: u64) {
        if let Some(request) = self.buffer.request(now_ms) {
            self.ticket = Some(segments.allocate(&self.tag, request.count, request.at_least));
        }
    }
}

/// An ordered sequence and its request.
#[derive(Debug)]
pub struct OrderedGenerator {
    tag: String,
    buffer: OrderedBuffer,
    ticket: Option<u64>,
}

impl OrderedGenerator {
    /// A generator without a round, of a tag that [is one](crate::is_tag).
    ///
    /// # Errors
    /// As [`OrderedBuffer::new`].
    pub fn open(tag: String, options: OrderedOptions) -> Result<Self, OptionsError> {
        Ok(Self { tag, buffer: OrderedBuffer::new(options)?, ticket: None })
    }

    /// As [`OrderedBuffer::begin`], and its request starts: the round.
    ///
    /// # Errors
    /// As [`OrderedBuffer::begin`].
    pub fn begin(&mut self, segments: &mut impl Segments, now_ms: u64, count: u32) -> Result<u64, ReserveError> {
        self.settle(segments, now_ms);
        let (round, request) = self.buffer.begin(count)?;
        self.ticket = Some(segments.allocate(&self.tag, request.count, request.at_least));
        Ok(round)
    }

    /// As [`OrderedBuffer::claim`].
    ///
    /// # Errors
    /// As [`OrderedBuffer::claim`].
    pub fn claim(&mut self, segments: &mut impl Segments, now_ms: u64, round: u64) -> Result<Run, ReserveError> {
        self.settle(segments, now_ms);
        self.buffer.claim(round)
    }

    fn settle(&mut self, segments: &mut impl Segments, now_ms: u64) {
        match answer(&mut self.ticket, segments) {
            None => {}
            // A fault is remembered by the round, which tells it to its claimant.
            Some(Ok(segment)) => drop(self.buffer.granted(now_ms, segment)),
            Some(Err(failure)) => self.buffer.failed(now_ms, failure),
        }
    }
}

/// The answer to the request in flight, if it has come; its ticket is gone then.
#[inline(never)]
fn answer(ticket: &mut Option<u64>, segments: &mut impl Segments) -> Option<Result<Segment, StoreFailure>> {
    let answer = ticket.and_then(|held| segments.poll(held))?;
    *ticket = None;
    Some(answer)
}

/// A snowflake generator and the request for its lease.
#[derive(Debug)]
pub struct SnowflakeGenerator {
    namespace: String,
    layout: Layout,
    horizon_ms: u64,
    snowflake: Snowflake,
    ticket: Option<u64>,
}

impl SnowflakeGenerator {
    /// A generator without a lease, of a namespace that [is a tag](crate::is_tag).
    ///
    /// # Errors
    /// As [`Snowflake::new`].
    pub fn open(namespace: String, options: SnowflakeOptions) -> Result<Self, OptionsError> {
        let (layout, horizon_ms) = (options.layout, options.horizon_ms);
        Ok(Self { namespace, layout, horizon_ms, snowflake: Snowflake::new(options)?, ticket: None })
    }

    /// As [`Snowflake::reserve`].
    ///
    /// # Errors
    /// As [`Snowflake::reserve`].
    pub fn reserve(&mut self, leases: &mut impl Leases, now_ms: u64, max: u32) -> Result<Run, ReserveError> {
        self.settle(leases, now_ms);
        let run = self.snowflake.reserve(now_ms, max);
        self.request(leases, now_ms);
        run
    }

    /// Moves things along without taking an id, and shows how they stand.
    pub fn status(&mut self, leases: &mut impl Leases, now_ms: u64) -> &Snowflake {
        self.settle(leases, now_ms);
        self.request(leases, now_ms);
        &self.snowflake
    }

    /// Ends it, and its lease.
    pub fn close(&mut self, leases: &mut impl Leases) {
        // A lease that has arrived goes back too; when it did no longer matters.
        self.settle(leases, 0);
        if let Some(release) = self.snowflake.close() {
            leases.release(&self.namespace, release);
        }
    }

    /// Takes an answer in, if there is one.
    #[inline(never)]
    fn settle(&mut self, leases: &mut impl Leases, now_ms: u64) {
        if let Some(answer) = self.ticket.and_then(|held| leases.poll(held)) {
            self.ticket = None;
            match answer {
                // A fault is remembered by the generator, which tells it to the next caller.
                Ok(lease) => drop(self.snowflake.granted(now_ms, lease)),
                Err(failure) => self.snowflake.failed(now_ms, failure),
            }
        }
    }

    /// Starts the request that is due, if one is.
    #[inline(never)]
    fn request(&mut self, leases: &mut impl Leases, now_ms: u64) {
        let (namespace, layout, horizon_ms) = (&self.namespace, &self.layout, self.horizon_ms);
        match self.snowflake.request(now_ms) {
            None => {}
            Some(LeaseRequest::Acquire) => {
                self.ticket = Some(leases.acquire(namespace, layout, now_ms, horizon_ms));
            }
            Some(LeaseRequest::Extend { worker, grant_id }) => {
                self.ticket = Some(leases.extend(namespace, layout, (worker, grant_id), now_ms, horizon_ms));
            }
        }
    }
}
