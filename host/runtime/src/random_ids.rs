//! Ids of 128 bits that are unique by randomness: UUIDs of the versions 4 and 7, and ULIDs.
//!
//! No store grants them and no lease bounds them. So they are the one kind of id here that is unique *statistically*
//! and not by construction: two of them may be alike, and the bits are so many that nobody will see it. They come from
//! the host, since the component has no source of randomness: it imports its storage and nothing else, and an algorithm
//! whose whole input is random bits would gain nothing from it.

use std::array;
use std::fmt;
use std::sync::{Arc, Mutex};

use unalike_notation::Ulid;
use unalike_storage::Process;
use uuid::{Builder, Uuid};

use crate::clock::Time;
use crate::sync::lock;
use crate::{Clock, Error, ErrorKind};

/// Random bits of one id.
type Bits = [u8; 16];

/// How many ids of a batch are made at once: their random bits stand on the stack, and another thread's id waits for no
/// more than these.
const CHUNK: usize = 64;

/// How many forks a handle lives through, one in the child of the other: each process among them has counters of its
/// own.
const PROCESSES: usize = 16;

/// The bits of a UUID of version 7 behind its time, version and variant left out.
const UUID_V7_RANDOM_BITS: u32 = 74;

/// The latest time that fits 48 bits, in Unix milliseconds: both kinds of id with a time have as many.
const UNIX_MS_MAX: u64 = Ulid::UNIX_MS_MAX;

/// UUIDs of the versions 4 and 7 and ULIDs: ids of 128 bits that need neither store nor lease.
///
/// They are unique because nobody draws the same random bits twice, and that is a matter of probability, unlike
/// everything else in this library:
///
/// | kind | random bits | two are alike |
/// | --- | --- | --- |
/// | UUID version 4 | 122 in all | once in 10^9 tries, among 10^14 ids |
/// | UUID version 7 | 74 in each millisecond | once in 10^6 years, at 10^6 ids per second from many processes |
/// | ULID | 80 in each millisecond | once in 7 x 10^7 years, at the same rate |
///
/// (For n ids that might be alike and b bits, the probability is about n² / 2^(b + 1): for those with a time, n counts
/// the ids of one millisecond, of all processes.) The random bits are the operating system's. They are not secrets:
/// anybody who sees a ULID knows the next one of its millisecond, and an id of version 7 narrows its successor down to
/// 2^32.
///
/// **Ascending.** Within a process, each UUID of version 7 is greater than all that any clone of this handle gave
/// before, on whatever thread, and so is each ULID: as numbers, as texts and as bytes. A clock that stands still or
/// goes back changes nothing about it, since the latest time then stays: RFC 9562, section 6.2, method 2, whose counter
/// is the random part and grows by 1 to 2^32 at random; and the section "Monotonicity" of the ULID's specification,
/// where it grows by 1. If the random part ever ended within a millisecond, the next one would begin early. After a
/// clock that ran ahead has been set right, ids keep the time that they had reached, until the process is started
/// again.
///
/// **Forks.** A child goes on with counters of its own, which begin at new random bits. It needs no other handle.
///
/// It is cheap to clone; make it once.
///
/// ```
/// use unalike::{RandomIds, Ulid};
///
/// let ids = RandomIds::new();
/// assert_eq!(ids.uuid_v4()?.get_version_num(), 4);
/// assert!(ids.uuid_v7()? < ids.uuid_v7()?);
/// let ulid: Ulid = ids.ulid()?;
/// assert!(ids.take_ulids(3)?.iter().all(|later| ulid < *later));
/// println!("{} {ulid}", ids.uuid_v7()?); // 01934e2c-7b1a-7c3f-9d52-64b0f2a917ce 01JD72RYRTH4S8T5M2B0QKX3EG
/// # Ok::<(), unalike::Error>(())
/// ```
#[derive(Clone)]
pub struct RandomIds {
    shared: Arc<Source>,
}

struct Source {
    clock: Time,
    fill: fn(&mut [u8]) -> Result<(), getrandom::Error>,
    /// That made the handle.
    process: Process,
    /// Those of that process, of a child, of a child's child. A lock that a thread held when its process forked stays
    /// taken in the child for ever, so no process touches what another one before it had.
    processes: [Counters; PROCESSES],
}

/// What one process has given out.
struct Counters {
    uuid_v7: Mutex<Counter>,
    ulid: Mutex<Counter>,
}

/// Time and random part of the ids of one kind, always ascending.
struct Counter {
    name: &'static str,
    /// The greatest random part.
    random_max: u128,
    /// The most by which it grows within a millisecond, less 1: a power of two less 1, below 2^32.
    growth_mask: u128,
    last: Option<Stamp>,
}

/// What an id is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Stamp {
    unix_ms: u64,
    random: u128,
}

impl Counter {
    const fn of_uuids_v7() -> Self {
        let random_max = (1 << UUID_V7_RANDOM_BITS) - 1;
        Self { name: "uuid v7", random_max, growth_mask: 0xFFFF_FFFF, last: None }
    }

    const fn of_ulids() -> Self {
        Self { name: "ulid", random_max: Ulid::RANDOM_MAX, growth_mask: 0, last: None }
    }

    /// The next stamp, which is greater than all before. Of the 128 random bits the low ones are the random part of a
    /// new millisecond, and the 32 high ones the growth within one: no stamp depends on both.
    fn next(&mut self, now_ms: u64, random: u128) -> Result<Stamp, ErrorKind> {
        let next = match self.last {
            Some(Stamp { unix_ms, random: last }) if now_ms <= unix_ms => {
                // It cannot overflow: the random part has 80 bits at most, and its growth 33.
                let grown = last + 1 + (random >> 96 & self.growth_mask);
                if grown <= self.random_max {
                    Stamp { unix_ms, random: grown }
                } else {
                    Stamp { unix_ms: unix_ms + 1, random: random & self.random_max }
                }
            }
            _ => Stamp { unix_ms: now_ms, random: random & self.random_max },
        };
        if next.unix_ms > UNIX_MS_MAX {
            let what = "the time has 48 bits of milliseconds, which end in the year 10889: set the clock";
            return Err(ErrorKind::Exhausted { name: self.name.to_owned(), what, id_max: None, left: 0 });
        }
        self.last = Some(next);
        Ok(next)
    }
}

impl RandomIds {
    /// A handle whose times are those of the system's clock.
    #[must_use]
    pub fn new() -> Self {
        Self::of(Time::System, getrandom::fill)
    }

    /// One with times of another clock, for tests.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use unalike::{Clock, RandomIds};
    ///
    /// struct Stopped;
    ///
    /// impl Clock for Stopped {
    ///     fn now_ms(&self) -> u64 {
    ///         1_700_000_000_000
    ///     }
    /// }
    ///
    /// let ids = RandomIds::with_clock(Arc::new(Stopped));
    /// let (first, second) = (ids.ulid()?, ids.ulid()?);
    /// assert_eq!((second.unix_ms(), second.random()), (1_700_000_000_000, first.random() + 1));
    /// # Ok::<(), unalike::Error>(())
    /// ```
    #[must_use]
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        Self::of(Time::Given(clock), getrandom::fill)
    }

    fn of(clock: Time, fill: fn(&mut [u8]) -> Result<(), getrandom::Error>) -> Self {
        let processes = array::from_fn(|_| Counters {
            uuid_v7: Mutex::new(Counter::of_uuids_v7()),
            ulid: Mutex::new(Counter::of_ulids()),
        });
        Self { shared: Arc::new(Source { clock, fill, process: Process::current(), processes }) }
    }

    /// A UUID of version 4: 122 random bits, in no order.
    ///
    /// # Errors
    /// [`ErrorKind::RandomMissing`] when the operating system gives no random bits.
    pub fn uuid_v4(&self) -> Result<Uuid, Error> {
        let mut bits = [[0; 16]];
        self.fill(&mut bits)?;
        let [bits] = bits;
        Ok(uuid_v4_of(bits))
    }

    /// A UUID of version 7: 48 bits of Unix milliseconds and 74 random bits, greater than those before.
    ///
    /// # Errors
    /// [`ErrorKind::RandomMissing`]; [`ErrorKind::Exhausted`] when the clock shows the year 10889 or later; and
    /// [`ErrorKind::Forked`] in a process that is the sixteenth, each one a child of the one before, since the handle
    /// was made: it makes another.
    pub fn uuid_v7(&self) -> Result<Uuid, Error> {
        self.next(|counters| &counters.uuid_v7).map(uuid_v7_of)
    }

    /// A ULID: 48 bits of Unix milliseconds and 80 random bits, greater than those before.
    ///
    /// # Errors
    /// As [`RandomIds::uuid_v7`].
    pub fn ulid(&self) -> Result<Ulid, Error> {
        self.next(|counters| &counters.ulid).map(ulid_of)
    }

    /// So many UUIDs of version 4, in no order.
    ///
    /// # Errors
    /// As [`RandomIds::uuid_v4`], and [`ErrorKind::CountZero`].
    pub fn take_uuids_v4(&self, count: u32) -> Result<Vec<Uuid>, Error> {
        self.take(count, |bits, uuids| {
            uuids.extend(bits.iter().map(|bits| uuid_v4_of(*bits)));
            Ok(())
        })
    }

    /// So many UUIDs of version 7, ascending. Those of other threads may lie between them.
    ///
    /// ```
    /// let uuids = unalike::RandomIds::new().take_uuids_v7(1_000)?;
    /// assert!(uuids.len() == 1_000 && uuids.is_sorted_by(|one, next| one < next));
    /// # Ok::<(), unalike::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`RandomIds::uuid_v7`], and [`ErrorKind::CountZero`].
    pub fn take_uuids_v7(&self, count: u32) -> Result<Vec<Uuid>, Error> {
        self.take_next(count, |counters| &counters.uuid_v7, uuid_v7_of)
    }

    /// So many ULIDs, ascending. Those of other threads may lie between them.
    ///
    /// # Errors
    /// As [`RandomIds::uuid_v7`], and [`ErrorKind::CountZero`].
    pub fn take_ulids(&self, count: u32) -> Result<Vec<Ulid>, Error> {
        self.take_next(count, |counters| &counters.ulid, ulid_of)
    }

    fn next(&self, counter: fn(&Counters) -> &Mutex<Counter>) -> Result<Stamp, Error> {
        let mut bits = [[0; 16]];
        self.fill(&mut bits)?;
        let [bits] = bits;
        let (counter, now_ms) = (counter(self.counters()?), self.shared.clock.now_ms());
        Ok(lock(counter).next(now_ms, u128::from_ne_bytes(bits))?)
    }

    fn take_next<T>(
        &self,
        count: u32,
        counter: fn(&Counters) -> &Mutex<Counter>,
        make: fn(Stamp) -> T,
    ) -> Result<Vec<T>, Error> {
        self.take(count, |bits, ids| {
            let (counter, now_ms) = (counter(self.counters()?), self.shared.clock.now_ms());
            let mut counter = lock(counter);
            for bits in bits {
                ids.push(make(counter.next(now_ms, u128::from_ne_bytes(*bits))?));
            }
            Ok(())
        })
    }

    /// Ids from random bits, a chunk at a time.
    fn take<T>(
        &self,
        count: u32,
        mut make: impl FnMut(&[Bits], &mut Vec<T>) -> Result<(), Error>,
    ) -> Result<Vec<T>, Error> {
        if count == 0 {
            return Err(ErrorKind::CountZero.into());
        }
        let mut left = usize::try_from(count).unwrap_or(usize::MAX);
        let mut ids = Vec::with_capacity(left);
        let mut bits = [[0; 16]; CHUNK];
        while left > 0 {
            let (bits, _) = bits.split_at_mut(left.min(CHUNK));
            self.fill(bits)?;
            make(bits, &mut ids)?;
            left -= bits.len();
        }
        Ok(ids)
    }

    /// Those of this process.
    fn counters(&self) -> Result<&Counters, Error> {
        let generation = Process::current().generations_after(self.shared.process);
        let counters = usize::try_from(generation).ok().and_then(|generation| self.shared.processes.get(generation));
        counters.ok_or_else(|| ErrorKind::Forked { name: "random ids".to_owned() }.into())
    }

    /// New random bits of the operating system's. Nothing is changed before they are there.
    fn fill(&self, bits: &mut [Bits]) -> Result<(), Error> {
        let missing = |error: getrandom::Error| ErrorKind::RandomMissing { reason: error.to_string() };
        Ok((self.shared.fill)(bits.as_flattened_mut()).map_err(missing)?)
    }
}

impl Default for RandomIds {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for RandomIds {
    /// Without the counters, from which the next ids could be guessed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RandomIds").finish_non_exhaustive()
    }
}

/// RFC 9562, section 5.4.
fn uuid_v4_of(bits: Bits) -> Uuid {
    Builder::from_random_bytes(bits).into_uuid()
}

/// RFC 9562, section 5.7: 48 bits of time, the version, 12 bits of the random part, the variant, and its other 62.
fn uuid_v7_of(Stamp { unix_ms, random }: Stamp) -> Uuid {
    let (high, low) = (random >> 62, random & ((1 << 62) - 1));
    Uuid::from_u128(u128::from(unix_ms) << 80 | 7 << 76 | high << 64 | 0b10 << 62 | low)
}

fn ulid_of(Stamp { unix_ms, random }: Stamp) -> Ulid {
    // The counter keeps both in range.
    Ulid::from_parts(unix_ms, random).unwrap_or_else(|| unreachable!("a stamp of ULIDs has 48 and 80 bits"))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use uuid::Variant;

    use super::*;

    /// A clock that is set by hand.
    #[derive(Default)]
    struct Hand(AtomicU64);

    impl Hand {
        fn set(&self, now_ms: u64) {
            self.0.store(now_ms, Ordering::SeqCst);
        }
    }

    impl Clock for Hand {
        fn now_ms(&self) -> u64 {
            self.0.load(Ordering::SeqCst)
        }
    }

    fn by_hand(now_ms: u64) -> (Arc<Hand>, RandomIds) {
        let clock = Arc::new(Hand(AtomicU64::new(now_ms)));
        (Arc::clone(&clock), RandomIds::with_clock(clock))
    }

    fn unix_ms(uuid: Uuid) -> u64 {
        u64::try_from(uuid.as_u128() >> 80).unwrap()
    }

    fn distinct<T: Ord + Clone>(ids: &[T]) -> usize {
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        ids.dedup();
        ids.len()
    }

    /// RFC 9562, appendices A.3 and A.6.
    #[test]
    fn the_bits_stand_where_the_rfc_has_them() {
        let bits = 0x9191_08F7_52D1_3320_5BAC_F847_DB41_48A8_u128.to_be_bytes();
        assert_eq!(uuid_v4_of(bits).to_string(), "919108f7-52d1-4320-9bac-f847db4148a8");
        let (rand_a, rand_b) = (0xCC3_u128, 0b01 << 60 | 0x8C4_DC0C_0C07_398F_u128);
        let stamp = Stamp { unix_ms: 0x017F_22E2_79B0, random: rand_a << 62 | rand_b };
        assert_eq!(stamp.unix_ms, 1_645_557_742_000, "2022-02-22T19:22:22Z");
        assert_eq!(uuid_v7_of(stamp).to_string(), "017f22e2-79b0-7cc3-98c4-dc0c0c07398f");
        let greatest = Stamp { unix_ms: UNIX_MS_MAX, random: Counter::of_uuids_v7().random_max };
        assert_eq!(uuid_v7_of(greatest).to_string(), "ffffffff-ffff-7fff-bfff-ffffffffffff");
        let greatest = Stamp { unix_ms: UNIX_MS_MAX, random: Counter::of_ulids().random_max };
        assert_eq!(ulid_of(greatest).to_string(), "7ZZZZZZZZZZZZZZZZZZZZZZZZZ");
    }

    /// Version and variant are constant, and every other bit is both 0 and 1 among a thousand: that one is not,
    /// although it is random, happens once in 2^1000.
    #[test]
    fn every_other_bit_is_random() {
        let ids = RandomIds::new();
        let constant = |uuids: &[Uuid]| {
            let (all, none) = uuids.iter().fold((u128::MAX, u128::MAX), |(ones, zeros), uuid| {
                assert_eq!(uuid.get_variant(), Variant::RFC4122);
                (ones & uuid.as_u128(), zeros & !uuid.as_u128())
            });
            all | none
        };
        let v4 = ids.take_uuids_v4(1_000).unwrap();
        assert_eq!(constant(&v4), 0xF << 76 | 0b11 << 62);
        assert!(v4.iter().all(|uuid| uuid.get_version_num() == 4));
        // Handles of their own, so that each begins anew, at one time.
        let fresh = |_| by_hand(1_700_000_000_000).1;
        let v7: Vec<_> = (0..1_000).map(fresh).map(|ids| ids.uuid_v7().unwrap()).collect();
        assert_eq!(constant(&v7) & ((1 << 80) - 1), 0xF << 76 | 0b11 << 62);
        assert!(v7.iter().all(|uuid| uuid.get_version_num() == 7 && unix_ms(*uuid) == 1_700_000_000_000));
        let ulids: Vec<_> = (0..1_000).map(fresh).map(|ids| ids.ulid().unwrap()).collect();
        let (all, none) =
            ulids.iter().fold((u128::MAX, u128::MAX), |(ones, zeros), ulid| (ones & ulid.0, zeros & !ulid.0));
        assert_eq!((all | none) & Ulid::RANDOM_MAX, 0);
    }

    #[test]
    fn within_a_millisecond_ulids_grow_by_one_and_uuids_by_chance() {
        let (_clock, ids) = by_hand(5);
        let ulids = ids.take_ulids(1_000).unwrap();
        assert!(ulids.windows(2).all(|pair| pair[1].0 == pair[0].0 + 1 && pair[1].unix_ms() == 5));
        let uuids: Vec<_> = (0..1_000).map(|_| ids.uuid_v7().unwrap()).collect();
        assert!(uuids.is_sorted_by(|one, next| one < next));
        assert!(uuids.iter().all(|uuid| unix_ms(*uuid) == 5));
        // Version and variant stand inside, so the difference is that of the random parts as long as they are far from
        // the end of the lower one.
        let growths: Vec<_> =
            uuids.windows(2).map(|pair| (pair[1].as_u128() - pair[0].as_u128()) & 0xFFFF_FFFF).collect();
        assert!(distinct(&growths) > 990, "1000 numbers of 32 bits hardly repeat");
    }

    #[test]
    fn a_clock_that_stands_or_goes_back_changes_nothing_about_the_order() {
        let (clock, ids) = by_hand(1_000);
        let mut uuids = vec![ids.uuid_v7().unwrap()];
        let mut ulids = vec![ids.ulid().unwrap()];
        for (now_ms, shown_ms) in
            [(1_000, 1_000), (999, 1_000), (0, 1_000), (1_001, 1_001), (5_000, 5_000), (10, 5_000)]
        {
            clock.set(now_ms);
            uuids.push(ids.uuid_v7().unwrap());
            uuids.extend(ids.take_uuids_v7(200).unwrap());
            ulids.push(ids.ulid().unwrap());
            ulids.extend(ids.take_ulids(200).unwrap());
            assert_eq!((unix_ms(*uuids.last().unwrap()), ulids.last().unwrap().unix_ms()), (shown_ms, shown_ms));
        }
        assert!(uuids.is_sorted_by(|one, next| one < next) && ulids.is_sorted_by(|one, next| one < next));
        let texts: Vec<_> = uuids.iter().map(Uuid::to_string).collect();
        assert!(texts.is_sorted_by(|one, next| one < next));
    }

    #[test]
    fn a_clock_before_1970_is_no_reason_to_begin_at_zero() {
        for mut counter in [Counter::of_ulids(), Counter::of_uuids_v7()] {
            assert_eq!(counter.next(0, 77).unwrap(), Stamp { unix_ms: 0, random: 77 });
            assert_eq!(counter.next(0, 0).unwrap(), Stamp { unix_ms: 0, random: 78 });
        }
    }

    #[test]
    fn a_random_part_at_its_end_begins_the_next_millisecond() {
        for mut counter in [Counter::of_ulids(), Counter::of_uuids_v7()] {
            let random_max = counter.random_max;
            assert_eq!(counter.next(7, random_max - 1).unwrap(), Stamp { unix_ms: 7, random: random_max - 1 });
            assert_eq!(counter.next(7, 0).unwrap(), Stamp { unix_ms: 7, random: random_max });
            assert_eq!(counter.next(7, 123).unwrap(), Stamp { unix_ms: 8, random: 123 }, "new random bits");
            assert_eq!(counter.next(7, 0).unwrap(), Stamp { unix_ms: 8, random: 124 }, "the clock is behind now");
            assert_eq!(counter.next(8, 0).unwrap(), Stamp { unix_ms: 8, random: 125 });
            assert_eq!(counter.next(9, 5).unwrap(), Stamp { unix_ms: 9, random: 5 });
        }
        // The greatest growth is 2^32, and takes nothing from the bits of a new random part.
        let mut counter = Counter::of_uuids_v7();
        counter.next(7, 0).unwrap();
        assert_eq!(counter.next(7, u128::MAX).unwrap().random, 1 << 32);
        assert_eq!(counter.next(7, u128::MAX >> 32).unwrap().random, (1 << 32) + 1);
        counter.last = Some(Stamp { unix_ms: 7, random: counter.random_max - (1 << 32) + 1 });
        assert_eq!(counter.next(7, u128::MAX).unwrap(), Stamp { unix_ms: 8, random: counter.random_max });
    }

    #[test]
    fn the_end_of_time_is_told_and_changes_nothing() {
        for mut counter in [Counter::of_ulids(), Counter::of_uuids_v7()] {
            let ended = |answer: Result<Stamp, ErrorKind>| matches!(answer, Err(ErrorKind::Exhausted { .. }));
            assert!(ended(counter.next(UNIX_MS_MAX + 1, 1)) && ended(counter.next(u64::MAX, 1)));
            assert_eq!(counter.last, None);
            let last = counter.next(UNIX_MS_MAX, counter.random_max).unwrap();
            assert!(ended(counter.next(5, 1)), "the time would go on");
            assert_eq!(counter.last, Some(last));
        }
        let (clock, ids) = by_hand(UNIX_MS_MAX + 1);
        for error in [ids.ulid().unwrap_err(), ids.take_uuids_v7(3).unwrap_err(), ids.uuid_v7().unwrap_err()] {
            assert!(
                matches!(error.kind(), ErrorKind::Exhausted { .. }) && error.to_string().contains("10889"),
                "{error}"
            );
        }
        // With a clock that is right again, ids go on.
        clock.set(4);
        assert_eq!((ids.ulid().unwrap().unix_ms(), unix_ms(ids.uuid_v7().unwrap())), (4, 4));
        assert_eq!(ids.uuid_v4().unwrap().get_version_num(), 4);
    }

    #[test]
    fn without_random_bits_there_are_no_ids() {
        let (clock, good) = by_hand(9);
        let ids = RandomIds::of(Time::Given(clock), |_| Err(getrandom::Error::UNSUPPORTED));
        let errors = [
            ids.uuid_v4().unwrap_err(),
            ids.uuid_v7().unwrap_err(),
            ids.ulid().unwrap_err(),
            ids.take_uuids_v4(2).unwrap_err(),
            ids.take_uuids_v7(2).unwrap_err(),
            ids.take_ulids(2).unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(error.kind(), ErrorKind::RandomMissing { .. }), "{error}");
            assert!(error.is_retryable() && error.retry_after_ms() == Some(1_000));
            assert_eq!(error.kind().name(), "random_missing");
        }
        assert!(lock(&ids.shared.processes[0].ulid).last.is_none(), "nothing has changed");
        good.ulid().unwrap();
    }

    #[test]
    fn batches_are_whole_and_none_is_empty() {
        let ids = RandomIds::new();
        for count in [1, 2, 63, 64, 65, 128, 1_000] {
            let len = usize::try_from(count).unwrap();
            let (v4, v7, ulids) =
                (ids.take_uuids_v4(count).unwrap(), ids.take_uuids_v7(count).unwrap(), ids.take_ulids(count).unwrap());
            assert_eq!((distinct(&v4), distinct(&v7), distinct(&ulids)), (len, len, len));
            assert!(v7.is_sorted() && ulids.is_sorted());
        }
        for error in [ids.take_uuids_v4(0).err(), ids.take_uuids_v7(0).err(), ids.take_ulids(0).err()] {
            assert!(matches!(error.unwrap().kind(), ErrorKind::CountZero));
        }
    }

    /// What the handle's memory says is no help to a reader of logs.
    #[test]
    fn debug_shows_no_counter() {
        let ids = RandomIds::default();
        ids.ulid().unwrap();
        assert_eq!(format!("{ids:?}"), "RandomIds { .. }");
    }

    #[cfg(unix)]
    mod forks {
        use super::*;

        /// Runs this in a forked child, which has 20 seconds, and gives what it returned.
        #[expect(unsafe_code, reason = "fork is what is tested")]
        fn in_child(act: impl FnOnce() -> u8) -> Option<i32> {
            // SAFETY: the child makes no call that needs another thread, and leaves by _exit.
            let pid = unsafe { libc::fork() };
            assert!(pid >= 0);
            if pid == 0 {
                // SAFETY: as above. A signal ends a child that hangs.
                unsafe { libc::alarm(20) };
                let code = act();
                // SAFETY: as above.
                unsafe { libc::_exit(i32::from(code)) };
            }
            let mut status = 0;
            // SAFETY: the child exists and `status` is a place for its status.
            assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
            libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status))
        }

        #[test]
        fn a_child_has_counters_of_its_own() {
            let (_clock, ids) = by_hand(1_000);
            let (ulid, uuid) = (ids.ulid().unwrap(), ids.uuid_v7().unwrap());
            // One in 2^40 lies so close by chance.
            let is_far = |one: u128, other: u128| one.abs_diff(other) > 1 << 34;
            let code = in_child(|| match (ids.ulid(), ids.uuid_v7(), ids.ulid()) {
                (Ok(one), Ok(other), Ok(next)) => {
                    let far = is_far(one.0, ulid.0) && is_far(other.as_u128(), uuid.as_u128());
                    let own = far && next.0 == one.0 + 1;
                    // And the child's child begins anew.
                    let grandchild = in_child(|| u8::from(!ids.ulid().is_ok_and(|its| is_far(its.0, one.0))));
                    u8::from(!own || grandchild != Some(0))
                }
                _ => 2,
            });
            assert_eq!(code, Some(0));
            assert_eq!(ids.ulid().unwrap().0, ulid.0 + 1, "the parent goes on where it was");
        }

        #[test]
        fn a_lock_that_the_parent_holds_does_not_stop_a_child() {
            let ids = RandomIds::new();
            let counters = ids.counters().unwrap();
            let held = (lock(&counters.ulid), lock(&counters.uuid_v7));
            let code = in_child(|| {
                u8::from(
                    ids.ulid().is_err()
                        || ids.uuid_v7().is_err()
                        || ids.take_ulids(100).is_err()
                        || ids.uuid_v4().is_err(),
                )
            });
            drop(held);
            assert_eq!(code, Some(0), "none means that it hung");
        }

        #[test]
        fn a_child_beyond_the_last_counters_is_told_so() {
            fn at_depth(ids: &RandomIds, depth: usize) -> u8 {
                let forked = |error: Error| matches!(error.kind(), ErrorKind::Forked { .. });
                let as_expected = match (ids.ulid(), ids.uuid_v7()) {
                    (Ok(_), Ok(_)) => depth < PROCESSES,
                    (Err(ulid), Err(uuid)) => depth >= PROCESSES && forked(ulid) && forked(uuid),
                    _ => false,
                };
                if !as_expected || ids.uuid_v4().is_err() || RandomIds::new().ulid().is_err() {
                    return u8::try_from(depth).unwrap_or(u8::MAX - 1) + 1;
                }
                if depth > PROCESSES {
                    return 0;
                }
                in_child(|| at_depth(ids, depth + 1)).and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
            }
            assert_eq!(at_depth(&RandomIds::new(), 0), 0, "one more than the depth at which it was not so");
        }
    }
}
