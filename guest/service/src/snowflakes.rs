//! Ids of snowflakes, made by somebody who has a worker, and handed out here within a second.
//!
//! An instance has no worker of its own: it lives for a second or two, and a lease keeps a worker busy for longer than
//! that. A run of ids costs as many requests as a slice of somebody's lease would, and needs no clock here.

use alloc::collections::{BTreeMap, BinaryHeap, VecDeque};
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::mem;

use crate::bindings::unalike::edge::grants;
use crate::bindings::unalike::ids::types::StoreError;
use crate::failures::REQUEST_TIMEOUT_MS;
use crate::life::Use;
use crate::one_thread::OneThread;
use crate::problem::Problem;
use crate::tags::{check_time, now_ms, told, worth_asking_for};
use crate::turn::Turn;

/// How long after they came ids are handed out. It bounds how old their timestamps are; nothing else depends on it.
const STALE_MS: u64 = 1_000;

/// The most that are asked for at a time, unless a request wants more, and the most that may be.
const AHEAD_MAX: u64 = 1_000;
const COUNT_MAX: u64 = 10_000;

#[derive(Default)]
struct Snowflake {
    turn: Turn,
    /// What came last and is not handed out, and when it came.
    held: RefCell<(VecDeque<u64>, u64)>,
    used: Cell<Use>,
    /// The servers give no more than a request needs: less than is worth asking for.
    is_scarce: Cell<bool>,
}

static SNOWFLAKES: OneThread<BTreeMap<String, Rc<Snowflake>>> = OneThread::new(BTreeMap::new());

/// Hands out ids of a snowflake: `count` of them, ascending.
///
/// # Errors
/// What callers are told. Ids that it had by then are a gap.
pub(crate) async fn take(name: &str, count: u32) -> Result<Vec<u64>, Problem> {
    let snowflake = Rc::clone(SNOWFLAKES.cell().borrow_mut().entry(String::from(name)).or_default());
    let deadline_ms = now_ms().saturating_add(REQUEST_TIMEOUT_MS);
    let mut waiting = Waiting { snowflake: &snowflake, left: 0 };
    waiting.begin(count);
    let mut ids = Vec::new();
    waiting.take(&mut ids);
    if waiting.left > 0 {
        let _turn = snowflake.turn.take().await;
        // Of the one before.
        waiting.take(&mut ids);
        while waiting.left > 0 {
            check_time(deadline_ms)?;
            let left = u64::from(waiting.left);
            let wanted = worth_asking_for(snowflake.used.get()).min(AHEAD_MAX).max(left).min(COUNT_MAX);
            let wanted = if snowflake.is_scarce.get() { left.min(COUNT_MAX) } else { wanted };
            let ask = |count: u64| grants::snowflakes(String::from(name), u32::try_from(count).unwrap_or(1));
            let mut asked = ask(wanted).await;
            if wanted > left && asked.as_ref().is_err_and(|failure| matches!(failure.error, StoreError::Refused)) {
                // The most that servers give may be less.
                snowflake.is_scarce.set(true);
                asked = ask(left).await;
            }
            let came = asked.map_err(|failure| {
                // Names that nobody may use must not fill the memory.
                SNOWFLAKES.cell().borrow_mut().remove(name);
                told(failure).of_snowflake(name)
            })?;
            *snowflake.held.borrow_mut() = (came.into(), now_ms());
            waiting.take(&mut ids);
        }
    }
    // Each grant ascends, and two of them may be of different workers. A heap takes a tenth of the code of
    // `sort_unstable`.
    Ok(BinaryHeap::from(ids).into_sorted_vec())
}

/// A request that waits for ids.
struct Waiting<'a> {
    snowflake: &'a Snowflake,
    left: u32,
}

impl Waiting<'_> {
    fn begin(&mut self, count: u32) {
        self.left = count;
        self.change(|used| used.awaited = used.awaited.saturating_add(u64::from(count)));
    }

    /// Takes what is held and fresh.
    fn take(&mut self, ids: &mut Vec<u64>) {
        let (held, came_ms) = &mut *self.snowflake.held.borrow_mut();
        // A clock that went back says nothing.
        let is_fresh = now_ms().checked_sub(*came_ms).is_some_and(|age_ms| age_ms <= STALE_MS);
        if !is_fresh {
            held.clear();
        }
        let mut count = 0;
        while self.left > 0 {
            let Some(id) = held.pop_front() else { break };
            ids.push(id);
            (self.left, count) = (self.left - 1, count + 1);
        }
        self.change(|used| {
            used.awaited = used.awaited.saturating_sub(count);
            used.handed_out = used.handed_out.saturating_add(count);
        });
    }

    fn change(&self, change: impl FnOnce(&mut Use)) {
        let mut used = self.snowflake.used.get();
        change(&mut used);
        self.snowflake.used.set(used);
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let left = u64::from(mem::take(&mut self.left));
        self.change(|used| used.awaited = used.awaited.saturating_sub(left));
    }
}
