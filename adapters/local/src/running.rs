//! The running lease of a namespace, handed out in short pieces.
//!
//! Invariant: a piece begins where the last one ended, and the local bound is on the disk before anything below it is
//! handed out. So no two pieces share a tick, whether one process or ten hold them one after the other, and whatever
//! any clock says: clocks only decide how long a piece is.

use std::sync::{Arc, Mutex, MutexGuard};

use unalike_storage::{GrantId, Layout, Lease, Rfc3339, StoreError};

use crate::file::{Directory, Granter, Kept, Kind};

/// The running lease of a namespace, as a file says it, and who holds its newest piece.
#[derive(Debug)]
pub(crate) struct Running {
    directory: Arc<Directory>,
    lead_ms: u64,
    /// As the file has it; the end of the interval may be later, until the next write.
    kept: Option<Kept>,
    piece: Option<Piece>,
}

/// The newest piece, in the hands of whoever acquired it. It ends at the local bound.
#[derive(Clone, Copy, Debug)]
struct Piece {
    grant_id: GrantId,
    not_before_ms: u64,
}

/// A piece, and the whole interval that it is of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handed {
    pub(crate) piece: Lease,
    pub(crate) whole: Lease,
}

/// The answer to a wish for a longer piece.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Raised {
    /// It is as long as it should be.
    Enough(Handed),
    /// It has reached the end of the whole interval, or the clock has.
    AtEnd(Handed),
}

impl Running {
    /// What the directory keeps of a namespace.
    pub(crate) fn load(
        directory: &Arc<Directory>,
        kind: Kind,
        namespace: &str,
        lead_ms: u64,
    ) -> Result<Self, StoreError> {
        let kept = directory.read(kind, namespace)?;
        Ok(Self { directory: Arc::clone(directory), lead_ms, kept, piece: None })
    }

    /// What is kept of the namespace, void or not.
    pub(crate) fn kept(&self) -> Option<&Kept> {
        self.kept.as_ref()
    }

    /// Gives the lease in hand up if another store granted it than this one: others may have its worker here. Answers
    /// whether it did.
    pub(crate) fn disown_unless_of(&mut self, granter: &Granter) -> bool {
        let Some(kept) = self.kept.take_if(|kept| !kept.granter.may_be(granter)) else { return false };
        self.piece = None;
        tracing::warn!(
            namespace = kept.namespace,
            worker = kept.lease.worker,
            granted_by = ?kept.granter,
            store = ?granter,
            "the lease that was kept here was granted by another store: it is given up"
        );
        true
    }

    /// Hands out the next piece of the lease in hand, under this name; none if it has no time left at `now_ms`, or if
    /// the clock is so far behind what was used that somebody who knows better must be asked.
    pub(crate) fn go_on(&mut self, grant_id: GrantId, now_ms: u64) -> Result<Option<Handed>, StoreError> {
        let Some(kept) = self.kept.as_ref().filter(|kept| !kept.is_void && now_ms < kept.lease.valid_until_ms) else {
            return Ok(None);
        };
        // A tick further than an extension reaches, so that a process which is restarted within a tick has a piece to
        // wait for. No further: pieces that nobody uses would move the bound ahead of the clock.
        let reach_ms = self.reach_ms(&kept.layout, now_ms).saturating_add(u64::from(kept.layout.tick_ms()));
        let bound_ms = reach_ms.min(kept.lease.valid_until_ms);
        if bound_ms <= kept.local_bound_ms {
            return Ok(None);
        }
        let piece = Piece { grant_id, not_before_ms: kept.local_bound_ms };
        self.hand_out(Kept { local_bound_ms: bound_ms, ..kept.clone() }, piece).map(Some)
    }

    /// Hands out the first piece of a lease that was just granted and takes the place of the one in hand. `granted` has
    /// its local bound at its beginning.
    pub(crate) fn begin(&mut self, granted: Kept, now_ms: u64) -> Result<Handed, StoreError> {
        let Lease { worker, grant_id, not_before_ms, valid_until_ms } = granted.lease;
        if let Some(kept) = self.kept.as_ref()
            && kept.lease.worker == worker
            && not_before_ms < kept.local_bound_ms
            && kept.lease.not_before_ms < valid_until_ms
        {
            return Err(StoreError::corrupt(format!(
                "the store granted worker {worker} of {:?} from {} to {}, and it was used here from {} to {}: it has \
                     forgotten leases, as one that was restored from a backup has",
                kept.namespace,
                Rfc3339(not_before_ms),
                Rfc3339(valid_until_ms),
                Rfc3339(kept.lease.not_before_ms),
                Rfc3339(kept.local_bound_ms)
            )));
        }
        let first_tick_end_ms = not_before_ms.saturating_add(u64::from(granted.layout.tick_ms()));
        let bound_ms = self.reach_ms(&granted.layout, now_ms).max(first_tick_end_ms).min(valid_until_ms);
        self.hand_out(Kept { local_bound_ms: bound_ms, ..granted }, Piece { grant_id, not_before_ms })
    }

    /// Makes the newest piece longer, if this is its name; none if it is another's.
    pub(crate) fn raise(&mut self, worker: u32, grant_id: GrantId, now_ms: u64) -> Result<Option<Raised>, StoreError> {
        let Some((kept, piece)) = self.held(worker, grant_id) else { return Ok(None) };
        let end_ms = kept.lease.valid_until_ms;
        let bound_ms = self.reach_ms(&kept.layout, now_ms).min(end_ms);
        if now_ms < end_ms && kept.local_bound_ms < bound_ms {
            return self
                .hand_out(Kept { local_bound_ms: bound_ms, ..kept.clone() }, piece)
                .map(|handed| Some(Raised::Enough(handed)));
        }
        let unchanged = handed(kept, piece);
        let is_at_end = end_ms <= now_ms || end_ms == kept.local_bound_ms;
        Ok(Some(if is_at_end { Raised::AtEnd(unchanged) } else { Raised::Enough(unchanged) }))
    }

    /// The store moved the end of a lease: more of it may be handed out, if it is the one in hand. The file follows
    /// with the next piece, and promises less until then.
    pub(crate) fn prolong(&mut self, extended: &Lease) -> Option<Lease> {
        let kept = self.kept.as_mut().filter(|kept| !kept.is_void && names(&kept.lease) == names(extended))?;
        // An answer below the known end changes nothing.
        kept.lease.valid_until_ms = kept.lease.valid_until_ms.max(on_grid(&kept.layout, extended).valid_until_ms);
        Some(kept.lease)
    }

    /// Ends the newest piece at `end_ms`, if this is its name and it reaches so far; answers the whole lease and where
    /// it ends. The next piece begins there, unless the lease is now void.
    ///
    /// The piece is over at once. If the file cannot be written, it goes on to say that the piece was used up.
    pub(crate) fn end(
        &mut self,
        worker: u32,
        grant_id: GrantId,
        end_ms: u64,
        is_void: bool,
    ) -> Result<Option<(Lease, u64)>, StoreError> {
        let Some((kept, piece)) = self.held(worker, grant_id).filter(|(kept, _)| end_ms <= kept.local_bound_ms) else {
            return Ok(None);
        };
        let end_ms = kept.layout.round_up_ms(end_ms).clamp(piece.not_before_ms, kept.local_bound_ms);
        let ended = Kept { local_bound_ms: end_ms, is_void, ..kept.clone() };
        let whole = ended.lease;
        self.piece = None;
        let written = self.directory.write(&ended);
        if let Some(kept) = self.kept.as_mut() {
            // Whatever the disk says: what was to be given back is not used here any more.
            kept.is_void = is_void;
        }
        written?;
        self.kept = Some(ended);
        Ok(Some((whole, end_ms)))
    }

    fn held(&self, worker: u32, grant_id: GrantId) -> Option<(&Kept, Piece)> {
        let (kept, piece) = (self.kept.as_ref()?, self.piece?);
        (!kept.is_void && kept.lease.worker == worker && piece.grant_id == grant_id).then_some((kept, piece))
    }

    /// The end of a piece that is asked for now.
    fn reach_ms(&self, layout: &Layout, now_ms: u64) -> u64 {
        layout.round_up_ms(now_ms.saturating_add(self.lead_ms))
    }

    /// Writes first, and then changes what is handed out.
    #[expect(clippy::panic_in_result_fn, reason = "the promise of this module, checked in release builds too")]
    fn hand_out(&mut self, kept: Kept, piece: Piece) -> Result<Handed, StoreError> {
        let handed = handed(&kept, piece);
        let (first_tick, end_tick) = handed.piece.ticks(&kept.layout);
        assert!(first_tick < end_tick, "a piece holds a tick: {handed:?}");
        self.directory.write(&kept)?;
        self.kept = Some(kept);
        self.piece = Some(piece);
        Ok(handed)
    }
}

fn handed(kept: &Kept, piece: Piece) -> Handed {
    let Piece { grant_id, not_before_ms } = piece;
    let whole = kept.lease;
    Handed {
        piece: Lease { worker: whole.worker, grant_id, not_before_ms, valid_until_ms: kept.local_bound_ms },
        whole,
    }
}

pub(crate) fn names(lease: &Lease) -> (u32, GrantId) {
    (lease.worker, lease.grant_id)
}

/// The same lease without the ticks that do not lie wholly inside it.
pub(crate) fn on_grid(layout: &Layout, lease: &Lease) -> Lease {
    let (first_tick, end_tick) = lease.ticks(layout);
    Lease { not_before_ms: layout.tick_start_ms(first_tick), valid_until_ms: layout.tick_start_ms(end_tick), ..*lease }
}

/// The running lease of one namespace, shared by all who ask for it; none until it was looked for.
#[derive(Debug, Default)]
pub(crate) struct Slot(Mutex<Option<Running>>);

impl Slot {
    /// Does something with it on a thread that may wait for the disk, to its end also when the caller goes away.
    pub(crate) async fn on_disk<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&mut Option<Running>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let slot = Arc::clone(self);
        on_disk(move || work(&mut *slot.lock()?)).await
    }

    fn lock(&self) -> Result<MutexGuard<'_, Option<Running>>, StoreError> {
        // After a panic in the middle of a change nobody knows what was handed out: nothing is any more.
        self.0.lock().map_err(|_| {
            StoreError::corrupt("a panic interrupted a change of the local lease: restart the process".to_owned())
        })
    }
}

/// Runs what may wait for the disk on a thread for such work.
pub(crate) async fn on_disk<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
        Err(StoreError::outcome_unknown("work on the local lease was broken off".to_owned()).with_source(error))
    })
}

#[cfg(test)]
mod tests {
    use unalike_storage::LayoutFields;

    use super::*;

    const NOW_MS: u64 = 1_700_000_000_000;

    fn layout(tick_ms: u32) -> Layout {
        Layout::new(LayoutFields { epoch_ms: 1_600_000_000_003, tick_ms, ..Layout::TWITTER.fields() }).unwrap()
    }

    fn granted(tick_ms: u32, worker: u32, not_before_ms: u64, valid_until_ms: u64) -> Kept {
        let grant_id = GrantId(u128::from(not_before_ms));
        let layout = layout(tick_ms);
        let lease = on_grid(&layout, &Lease { worker, grant_id, not_before_ms, valid_until_ms });
        Kept {
            kind: Kind::StoreLease,
            namespace: "default".to_owned(),
            layout,
            holder: String::new(),
            acquired_ms: NOW_MS,
            lease,
            local_bound_ms: lease.not_before_ms,
            is_void: false,
            granter: Granter::default(),
        }
    }

    fn running(directory: &tempfile::TempDir, lead_ms: u64) -> Running {
        let locked = Arc::new(Directory::lock(directory.path()).unwrap());
        Running::load(&locked, Kind::StoreLease, "default", lead_ms).unwrap()
    }

    #[test]
    fn pieces_of_coarse_ticks_hold_whole_ticks_and_reach_a_lead_ahead() {
        let directory = tempfile::tempdir().unwrap();
        let mut running = running(&directory, 1_000);
        let first = running.begin(granted(1_000, 7, NOW_MS, NOW_MS + 60_000), NOW_MS).unwrap();
        let Lease { worker, grant_id, .. } = first.piece;
        let mut bound_ms = first.piece.valid_until_ms;
        for now_ms in (NOW_MS..NOW_MS + 55_000).step_by(50) {
            let Some(Raised::Enough(raised)) = running.raise(worker, grant_id, now_ms).unwrap() else {
                panic!("it is not at its end at {now_ms}")
            };
            assert!(raised.piece.valid_until_ms >= now_ms + 1_000, "a lead ahead: {raised:?} at {now_ms}");
            assert!(raised.piece.valid_until_ms < now_ms + 2_000, "and not a tick more: {raised:?} at {now_ms}");
            assert!(raised.piece.valid_until_ms >= bound_ms);
            bound_ms = raised.piece.valid_until_ms;
        }
    }

    #[test]
    fn pieces_that_nobody_uses_do_not_run_ahead_of_the_clock() {
        for tick_ms in [1, 10, 1_000] {
            let directory = tempfile::tempdir().unwrap();
            let mut running = running(&directory, 1_000);
            let mut end_ms =
                running.begin(granted(tick_ms, 7, NOW_MS, NOW_MS + 60_000), NOW_MS).unwrap().piece.valid_until_ms;
            for number in 0..20 {
                if let Some(next) = running.go_on(GrantId(number), NOW_MS).unwrap() {
                    assert_eq!(next.piece.not_before_ms, end_ms, "pieces follow one another");
                    end_ms = next.piece.valid_until_ms;
                }
            }
            assert!(end_ms > NOW_MS + 1_000 && end_ms <= NOW_MS + 1_000 + 2 * u64::from(tick_ms), "{end_ms}");
        }
    }

    #[test]
    fn the_end_is_moved_up_only_and_only_by_an_answer_of_the_same_lease() {
        let directory = tempfile::tempdir().unwrap();
        let mut running = running(&directory, 1_000);
        let whole = running.begin(granted(10, 7, NOW_MS, NOW_MS + 3_000), NOW_MS).unwrap().whole;
        let answer = |running: &mut Running, lease: Lease| running.prolong(&lease).map(|lease| lease.valid_until_ms);
        let end_ms = whole.valid_until_ms;
        assert_eq!(answer(&mut running, Lease { valid_until_ms: end_ms - 1_000, ..whole }), Some(end_ms));
        assert_eq!(answer(&mut running, Lease { valid_until_ms: end_ms + 19, ..whole }), Some(end_ms + 10));
        assert_eq!(answer(&mut running, Lease { worker: 8, valid_until_ms: end_ms + 50, ..whole }), None);
        assert_eq!(answer(&mut running, Lease { grant_id: GrantId(1), valid_until_ms: end_ms + 50, ..whole }), None);
        running.end(whole.worker, whole.grant_id, NOW_MS, true).unwrap().unwrap();
        assert_eq!(answer(&mut running, Lease { valid_until_ms: end_ms + 50, ..whole }), None, "it was given back");
        assert!(running.go_on(GrantId(9), NOW_MS).unwrap().is_none());
    }

    #[test]
    fn a_grant_of_what_was_used_here_is_refused_across_restarts_too() {
        let directory = tempfile::tempdir().unwrap();
        running(&directory, 1_000).begin(granted(1, 7, NOW_MS, NOW_MS + 60_000), NOW_MS).unwrap();
        let mut running = running(&directory, 1_000);
        for (worker, from_ms, is_refused) in
            [(7, 999, true), (7, 0, true), (8, 0, false), (7, 1_000, false), (7, 2_000, false)]
        {
            let begun = running.begin(granted(1, worker, NOW_MS + from_ms, NOW_MS + 90_000), NOW_MS + 500);
            assert_eq!(begun.is_err(), is_refused, "worker {worker} from {from_ms}: {begun:?}");
            if worker == 8 {
                running.begin(granted(1, 7, NOW_MS + 60_000, NOW_MS + 60_001), NOW_MS + 500).unwrap();
                // Older than what is in hand, and beside it: two requests were answered in another order.
                running.begin(granted(1, 7, NOW_MS, NOW_MS + 1_000), NOW_MS).unwrap();
            }
        }
    }

    #[test]
    fn a_piece_is_ended_once_within_its_bounds_and_the_next_begins_there() {
        let directory = tempfile::tempdir().unwrap();
        let mut running = running(&directory, 1_000);
        let first = running.begin(granted(10, 7, NOW_MS, NOW_MS + 60_000), NOW_MS).unwrap().piece;
        let end = |running: &mut Running, grant_id, end_ms| {
            running.end(7, grant_id, end_ms, false).unwrap().map(|(_, end_ms)| end_ms)
        };
        assert_eq!(end(&mut running, GrantId(1), first.not_before_ms), None);
        assert_eq!(end(&mut running, first.grant_id, first.valid_until_ms + 1), None);
        let end_ms = first.not_before_ms + 20;
        assert_eq!(end(&mut running, first.grant_id, end_ms - 3), Some(end_ms), "the whole tick is used");
        assert_eq!(end(&mut running, first.grant_id, end_ms), None, "once");
        assert!(running.raise(7, first.grant_id, NOW_MS + 500).unwrap().is_none(), "and it stays ended");
        let second = running.go_on(GrantId(5), NOW_MS).unwrap().unwrap().piece;
        assert_eq!(second.not_before_ms, end_ms);
        assert_eq!(end(&mut running, second.grant_id, 0), Some(end_ms), "what lies before belongs to others");
    }
}
