//! Runs that one thread or one handle has to itself, runs that wait for somebody, and how large the next run is.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError, Weak};

use unalike_core::Run;

use crate::Batch;

/// The largest run. At this size a crossing costs less than a tenth of a nanosecond per id; runs grow to it only while
/// they are used up within a millisecond each, so what a crash loses is what a millisecond or two use.
pub(crate) const RUN_MAX: u32 = 8_192;
/// A run that lasted longer than this halves the next one; one that was used up within a millisecond doubles it.
const RUN_SLOW_MS: u64 = 100;

/// The size of the next run, by how long the last one lasted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunSize {
    next: u32,
    last_ms: u64,
}

impl RunSize {
    const FIRST: Self = Self { next: 1, last_ms: 0 };

    /// A run was used up: fits the next one to demand.
    pub(crate) fn adapt(&mut self, now_ms: u64) -> u32 {
        let lasted_ms = now_ms.saturating_sub(self.last_ms);
        if lasted_ms <= 1 {
            self.next = self.next.saturating_mul(2).min(RUN_MAX);
        } else if lasted_ms > RUN_SLOW_MS {
            self.next = (self.next / 2).max(1);
        }
        self.last_ms = now_ms;
        self.next
    }
}

impl Default for RunSize {
    fn default() -> Self {
        Self::FIRST
    }
}

/// What a run holds beyond the first `used` of its ids.
pub(crate) fn rest_of(run: Run, used: u32) -> Option<Run> {
    let count = run.count.checked_sub(used).filter(|&count| count > 0)?;
    Some(Run { first: run.first + u64::from(used) * run.stride, count, ..run })
}

/// Runs that crossed and of which nobody has an id, in the order in which they came. A call that needs more ids than
/// there are leaves them here while it waits: if it gives up, they go to the next call, whichever that is.
#[derive(Debug, Default)]
pub(crate) struct Kept(Option<Box<KeptRuns>>);

#[derive(Debug, Default)]
struct KeptRuns {
    runs: VecDeque<Run>,
    count: u64,
}

impl Kept {
    /// How many ids they are.
    pub(crate) fn count(&self) -> u64 {
        self.0.as_ref().map_or(0, |kept| kept.count)
    }

    /// Behind all others.
    pub(crate) fn push(&mut self, run: Run) {
        let KeptRuns { runs, count } = &mut **self.0.get_or_insert_default();
        *count += u64::from(run.count);
        match runs.back_mut() {
            // A store that grants one number at a time must not fill the memory.
            Some(last) if last.stride == run.stride && last.last() + last.stride == run.first => {
                match last.count.checked_add(run.count).filter(|&joined| joined <= HELD_MAX) {
                    Some(joined) => last.count = joined,
                    None => runs.push_back(run),
                }
            }
            _ => runs.push_back(run),
        }
    }

    /// Before all others.
    pub(crate) fn push_first(&mut self, run: Run) {
        let KeptRuns { runs, count } = &mut **self.0.get_or_insert_default();
        *count += u64::from(run.count);
        runs.push_front(run);
    }

    /// The first run.
    pub(crate) fn pop(&mut self) -> Option<Run> {
        let kept = self.0.as_mut()?;
        let run = kept.runs.pop_front();
        kept.count -= run.map_or(0, |run| u64::from(run.count));
        if kept.runs.is_empty() {
            self.0 = None;
        }
        run
    }

    /// The first ids, as many as are wanted or there are; counts down how many still are.
    pub(crate) fn take(&mut self, batch: &mut Batch, left: &mut u32) {
        while *left > 0
            && let Some(run) = self.pop()
        {
            let count = run.count.min(*left);
            if let Some(rest) = rest_of(run, count) {
                self.push_first(rest);
            }
            batch.add(Run { count, ..run }, left);
        }
    }
}

/// The ids that one held run has at most: what is left of it shares a word with its owner's number.
pub(crate) const HELD_MAX: u32 = (1 << OWNER_SHIFT) - 1;
const OWNER_SHIFT: u32 = 24;

/// What is left of runs that nobody else takes from.
#[derive(Debug)]
pub(crate) struct HeldRun {
    next: u64,
    stride: u64,
    /// How many ids the run has left, and above [`OWNER_SHIFT`] the number of the owner: one subtraction tells both.
    owned_left: u64,
    behind: Option<Box<Behind>>,
}

/// What is looked at once per run.
#[derive(Debug, Default)]
struct Behind {
    /// Gone when the owner is. None of a handle of its own.
    owner: Option<Weak<Owner>>,
    size: RunSize,
    /// The runs after the one in hand.
    ahead: Kept,
}

impl HeldRun {
    pub(crate) const EMPTY: Self = Self { next: 0, stride: 1, owned_left: 0, behind: None };

    fn of(owner: &Arc<Owner>) -> Self {
        let behind = Behind { owner: Some(Arc::downgrade(owner)), ..Behind::default() };
        Self { owned_left: owner.number << OWNER_SHIFT, behind: Some(Box::new(behind)), ..Self::EMPTY }
    }

    /// The next id of the run in hand.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<u64> {
        self.take_of(self.owned_left & !u64::from(HELD_MAX))
    }

    /// The same if it is this owner's: its number, shifted.
    #[inline]
    fn take_of(&mut self, owner: u64) -> Option<u64> {
        let (id, next) = id_of(owner, self.owned_left, self.next, self.stride)?;
        self.owned_left -= 1;
        self.next = next;
        Some(id)
    }

    /// The next id, of the run after the one in hand too.
    pub(crate) fn take_ahead(&mut self) -> Option<u64> {
        self.take().or_else(|| {
            let run = self.behind().ahead.pop()?;
            self.hold(run);
            self.take()
        })
    }

    /// Takes ids as [`Kept::take`] does.
    pub(crate) fn take_batch(&mut self, batch: &mut Batch, left: &mut u32) {
        let count = u32::try_from(self.left()).unwrap_or(HELD_MAX).min(*left);
        if count > 0 {
            batch.add(Run { first: self.next, stride: self.stride, count }, left);
            self.owned_left -= u64::from(count);
            self.next = self.next.wrapping_add(u64::from(count).wrapping_mul(self.stride));
        }
        self.behind().ahead.take(batch, left);
    }

    /// How many ids it has.
    pub(crate) fn count(&self) -> u64 {
        self.left() + self.behind.as_ref().map_or(0, |behind| behind.ahead.count())
    }

    pub(crate) fn size(&mut self) -> &mut RunSize {
        &mut self.behind().size
    }

    /// Takes a run behind those that it has.
    pub(crate) fn push(&mut self, run: Run) {
        if self.count() == 0 && run.count <= HELD_MAX {
            self.hold(run);
        } else {
            self.behind().ahead.push(run);
        }
    }

    fn left(&self) -> u64 {
        self.owned_left & u64::from(HELD_MAX)
    }

    fn behind(&mut self) -> &mut Behind {
        self.behind.get_or_insert_default()
    }

    fn hold(&mut self, run: Run) {
        assert!(self.left() == 0, "the ids of a run are handed out before the next one comes");
        assert!(run.count <= HELD_MAX, "a run is held whole: {run:?}");
        (self.next, self.stride) = (run.first, run.stride);
        self.owned_left += u64::from(run.count);
    }

    /// The owner's place, while it lives.
    fn place(&self) -> Option<usize> {
        self.behind.as_ref()?.owner.as_ref()?.upgrade().map(|owner| owner.place)
    }
}

/// The next id of a run if it is this owner's and has one left, and the id after that.
#[inline]
fn id_of(owner: u64, owned_left: u64, next: u64, stride: u64) -> Option<(u64, u64)> {
    // Of another owner, at least 2^24 are left or many more.
    let left = owned_left.wrapping_sub(owner).wrapping_sub(1);
    // Only past the last id of a run may the sum leave the range of ids, and then it is not used.
    (left < u64::from(HELD_MAX)).then(|| (next, next.wrapping_add(stride)))
}

/// How many runs a thread has at hand.
const AT_HAND: usize = 8;

/// What a call needs of a run. It lies in the thread's own memory, which costs no borrow and no walk along a vector.
struct AtHand {
    next: Cell<u64>,
    stride: Cell<u64>,
    /// As [`HeldRun::owned_left`].
    owned_left: Cell<u64>,
    place: Cell<usize>,
}

impl AtHand {
    const fn empty() -> Self {
        Self { next: Cell::new(0), stride: Cell::new(1), owned_left: Cell::new(0), place: Cell::new(0) }
    }

    /// As [`HeldRun::take_of`].
    #[inline]
    fn take_of(&self, owner: u64) -> Option<u64> {
        let owned_left = self.owned_left.get();
        let (id, next) = id_of(owner, owned_left, self.next.get(), self.stride.get())?;
        self.owned_left.set(owned_left - 1);
        self.next.set(next);
        Some(id)
    }

    /// Whether this owner may put a run here: nobody else takes from what is here.
    fn is_free_for(&self, owner: u64, held: &[HeldRun]) -> bool {
        let (number, left) = (self.owned_left.get() >> OWNER_SHIFT, self.owned_left.get() & u64::from(HELD_MAX));
        let run = held.get(slot_of(self.place.get(), held.len())).filter(|run| run.owned_left >> OWNER_SHIFT == number);
        left == 0 || number == owner >> OWNER_SHIFT || run.is_none_or(|run| run.place().is_none())
    }

    /// Takes the ids over that the held run has in hand.
    fn take_over(&self, place: usize, run: &mut HeldRun) {
        self.next.set(run.next);
        self.stride.set(run.stride);
        self.owned_left.set(run.owned_left);
        self.place.set(place);
        run.owned_left &= !u64::from(HELD_MAX);
    }

    /// Gives them back, if they are this owner's.
    fn give_back(&self, owner: u64, run: &mut HeldRun) {
        let owned_left = self.owned_left.get();
        if owned_left & !u64::from(HELD_MAX) == owner {
            (run.next, run.stride, run.owned_left) = (self.next.get(), self.stride.get(), owned_left);
            self.owned_left.set(0);
        }
    }
}

thread_local! {
    /// The runs that this thread took from last, each where its owner's place says. What another run is in the way of
    /// stays in [`HELD`].
    static HAND: [AtHand; AT_HAND] = const { [const { AtHand::empty() }; AT_HAND] };

    /// This thread's runs, without what is at hand. Each is where the lowest bits of its owner's place say; the length
    /// is a power of two, or 0.
    static HELD: RefCell<Vec<HeldRun>> = const { RefCell::new(Vec::new()) };
}

/// Places are used again when their owners are gone, so that the runs of a thread take little memory; numbers never
/// are, so that no sequence finds a run of another.
static FREE_PLACES: Mutex<Vec<usize>> = Mutex::new(Vec::new());
static NEXT_PLACE: AtomicUsize = AtomicUsize::new(0);
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);

/// A forked child may have inherited the lock from a thread that is not there. It does without: the places are lost.
fn free_places() -> Option<MutexGuard<'static, Vec<usize>>> {
    (0..1_000).find_map(|_| match FREE_PLACES.try_lock() {
        Ok(places) => Some(places),
        Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
        Err(TryLockError::WouldBlock) => {
            std::thread::yield_now();
            None
        }
    })
}

/// A sequence of which each thread has a run.
#[derive(Debug)]
struct Owner {
    place: usize,
    number: u64,
}

impl Owner {
    fn new() -> Self {
        let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
        assert!(number < 1 << (u64::BITS - OWNER_SHIFT), "numbers of owners are never used again");
        let free = free_places().and_then(|mut places| places.pop());
        Self { place: free.unwrap_or_else(|| NEXT_PLACE.fetch_add(1, Ordering::Relaxed)), number }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if let Some(mut places) = free_places() {
            places.push(self.place);
        }
    }
}

/// Where each thread keeps its run of one sequence.
#[derive(Debug)]
pub(crate) struct ThreadRuns {
    /// As the owner's, without the way there: its number is shifted.
    place: usize,
    number: u64,
    owner: Arc<Owner>,
}

impl ThreadRuns {
    pub(crate) fn new() -> Self {
        let owner = Owner::new();
        Self { place: owner.place, number: owner.number << OWNER_SHIFT, owner: Arc::new(owner) }
    }

    /// The next id of this thread's run.
    #[inline]
    pub(crate) fn take(&self) -> Option<u64> {
        self.at_hand(|at_hand| at_hand.take_of(self.number)).or_else(|| self.take_held())
    }

    /// Where this run may be at hand.
    #[inline]
    fn at_hand<T>(&self, look: impl FnOnce(&AtHand) -> T) -> T {
        const { assert!(AT_HAND.is_power_of_two()) };
        HAND.with(|hand| {
            let Some(at_hand) = hand.get(self.place % AT_HAND) else {
                unreachable!("a remainder is below its divisor")
            };
            look(at_hand)
        })
    }

    fn take_held(&self) -> Option<u64> {
        HELD.try_with(|held| {
            let mut held = held.borrow_mut();
            let at = slot_of(self.place, held.len());
            held.get_mut(at)?.take_of(self.number)
        })
        .ok()
        .flatten()
    }

    /// Works on this thread's run, which is away meanwhile: the work may call whatever it likes.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut HeldRun) -> T) -> T {
        let held = HELD.try_with(|held| {
            let mut run = std::mem::replace(self.slot(&mut held.borrow_mut()), HeldRun::EMPTY);
            self.at_hand(|at_hand| at_hand.give_back(self.number, &mut run));
            run
        });
        let mut held = held.unwrap_or(HeldRun::EMPTY);
        let result = work(&mut held);
        // A thread that is ending keeps no runs: what is left is a gap.
        let _ = HELD.try_with(|runs| {
            let mut runs = runs.borrow_mut();
            *self.slot(&mut runs) = held;
            self.at_hand(|at_hand| {
                if at_hand.is_free_for(self.number, &runs) {
                    at_hand.take_over(self.place, self.slot(&mut runs));
                }
            });
        });
        result
    }

    /// This thread's run, made if there is none.
    fn slot<'a>(&self, held: &'a mut Vec<HeldRun>) -> &'a mut HeldRun {
        let number = self.owner.number;
        while held.get(slot_of(self.place, held.len())).is_none_or(|run| {
            // A run whose owner is gone gives way; two that live need more room, and have it once it is more than there
            // are places.
            run.owned_left >> OWNER_SHIFT != number && run.place().is_some()
        }) {
            let len = (held.len() * 2).max(4);
            let before = std::mem::replace(held, std::iter::repeat_with(|| HeldRun::EMPTY).take(len).collect());
            for run in before {
                if let Some(slot) = run.place().and_then(|place| held.get_mut(slot_of(place, len))) {
                    *slot = run;
                }
            }
        }
        let at = slot_of(self.place, held.len());
        let Some(slot) = held.get_mut(at) else { unreachable!("the loop made room for it") };
        if slot.owned_left >> OWNER_SHIFT != number {
            *slot = HeldRun::of(&self.owner);
        }
        slot
    }
}

/// Where the run of a place is among so many.
#[inline]
const fn slot_of(place: usize, len: usize) -> usize {
    place & len.wrapping_sub(1)
}

impl Default for HeldRun {
    fn default() -> Self {
        Self::EMPTY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_runs_follows_demand() {
        let mut runs = RunSize::default();
        assert_eq!(runs.adapt(1_000), 1, "now and then: one at a time");
        assert_eq!((0..15).map(|_| runs.adapt(1_000)).last(), Some(RUN_MAX));
        assert_eq!(runs.adapt(1_050), RUN_MAX);
        assert_eq!(runs.adapt(1_200), RUN_MAX / 2);
        assert_eq!((1..20).map(|second| runs.adapt(second * 10_000)).last(), Some(1));
    }

    #[test]
    fn the_rest_of_a_run_begins_after_what_was_used() {
        let run = Run { first: 10, stride: 5, count: 3 };
        assert_eq!(rest_of(run, 0), Some(run));
        assert_eq!(rest_of(run, 1), Some(Run { first: 15, stride: 5, count: 2 }));
        assert_eq!((rest_of(run, 3), rest_of(run, 4)), (None, None));
    }

    fn batch(held: &mut HeldRun, count: u32) -> Batch {
        let (mut batch, mut left) = (Batch::default(), count);
        held.take_batch(&mut batch, &mut left);
        batch
    }

    #[test]
    fn a_held_run_ends_with_its_last_id() {
        let mut held = HeldRun::EMPTY;
        assert_eq!(held.take(), None);
        held.push(Run { first: unalike_core::ID_MAX - 4, stride: 2, count: 3 });
        assert_eq!(held.take(), Some(unalike_core::ID_MAX - 4));
        assert_eq!(batch(&mut held, 9).runs(), [Run { first: unalike_core::ID_MAX - 2, stride: 2, count: 2 }]);
        assert!(batch(&mut held, 9).is_empty() && held.take().is_none() && held.take_ahead().is_none());
    }

    #[test]
    fn runs_that_are_kept_come_in_order_and_those_that_touch_are_one() {
        let mut kept = Kept::default();
        for (first, count) in [(20, 5), (25, 1), (40, 2), (42, HELD_MAX), (42 + u64::from(HELD_MAX), 1)] {
            kept.push(Run { first, stride: 1, count });
        }
        kept.push_first(Run { first: 7, stride: 3, count: 2 });
        assert_eq!(kept.count(), 2 + 6 + 2 + u64::from(HELD_MAX) + 1);
        let (mut batch, mut left) = (Batch::default(), 9);
        kept.take(&mut batch, &mut left);
        assert!(left == 0 && batch.iter().eq([7, 10, 20, 21, 22, 23, 24, 25, 40]), "{batch:?}");
        assert_eq!(kept.pop(), Some(Run { first: 41, stride: 1, count: 1 }));
        assert_eq!(kept.pop().map(|run| (run.first, run.count)), Some((42, HELD_MAX)));
        kept.take(&mut batch, &mut 7);
        assert_eq!((kept.count(), kept.pop(), batch.len()), (0, None, 10));
    }

    #[test]
    fn each_thread_has_a_run_of_its_own() {
        let (one, other) = (ThreadRuns::new(), ThreadRuns::new());
        one.with(|held| held.push(Run { first: 1, stride: 1, count: 2 }));
        assert_eq!(other.take(), None);
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(one.take(), None));
        });
        assert_eq!([one.take(), one.take(), one.take()], [Some(1), Some(2), None]);
    }

    #[test]
    fn runs_that_are_in_each_others_way_give_each_id_once_and_in_order() {
        let mut open: Vec<ThreadRuns> = (0..5 * AT_HAND).map(|_| ThreadRuns::new()).collect();
        let mut last = vec![0; open.len()];
        for round in 0..100 {
            for at in 0..open.len() {
                if (round + at) % 37 == 0 {
                    // Its ids are lost, and its place goes to another.
                    (open[at], last[at]) = (ThreadRuns::new(), 0);
                }
                let (runs, last) = (&open[at], &mut last[at]);
                match (round * at) % 5 {
                    0 => {
                        let batch = runs.with(|held| batch(held, 3));
                        for id in &batch {
                            assert_eq!(id, *last + 1, "of {at} in round {round}");
                            *last = id;
                        }
                    }
                    _ => {
                        let id = runs.take().unwrap_or_else(|| {
                            runs.with(|held| {
                                held.push(Run { first: *last + 1, stride: 1, count: 4 });
                                held.take().unwrap()
                            })
                        });
                        assert_eq!(id, *last + 1, "of {at} in round {round}");
                        *last = id;
                    }
                }
            }
        }
    }

    #[test]
    fn a_place_is_used_again_and_no_run_is_found_by_another_owner() {
        let last = ThreadRuns::new();
        for round in 0..10_000 {
            let run = ThreadRuns::new();
            assert_eq!((run.take(), run.with(|held| held.take())), (None, None), "in round {round}");
            run.with(|held| held.push(Run { first: 1, stride: 1, count: 2 }));
            assert_eq!(run.take(), Some(1));
            // Other tests of this process have places of their own.
            assert!(run.owner.place < last.owner.place + 1_000, "{} after {round} rounds", run.owner.place);
        }
    }

    #[test]
    fn a_thread_has_room_for_the_sequences_that_it_uses_and_not_for_all() {
        let open: Vec<ThreadRuns> = (0..20_000).map(|_| ThreadRuns::new()).collect();
        let room = |used: &[&ThreadRuns]| {
            std::thread::scope(|scope| {
                let work = || {
                    for (first, runs) in (1..).zip(used) {
                        runs.with(|held| held.push(Run { first: first * 10, stride: 1, count: 2 }));
                    }
                    for (first, runs) in (1..).zip(used) {
                        assert_eq!(
                            [runs.take(), runs.take(), runs.take()],
                            [Some(first * 10), Some(first * 10 + 1), None]
                        );
                    }
                    HELD.with(|held| held.borrow().len())
                };
                scope.spawn(work).join().unwrap()
            })
        };
        assert_eq!(room(&[&open[19_999]]), 4);
        assert!(room(&open.iter().take(100).collect::<Vec<_>>()) <= 256);
        assert!(room(&open.iter().collect::<Vec<_>>()) <= 65_536);
    }
}
