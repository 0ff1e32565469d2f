//! The running lease of a namespace, handed out in short pieces.
//!
//! Invariant: a piece begins where the last one ended, and the local bound is on the disk before anything below it is
//! handed out. So no two pieces share a tick, whether one process or ten hold them one after the other, and whatever
//! any clock says: clocks only decide how long a piece is.

use std::sync::{Arc, Mutex, MutexGuard};

use unalike_storage::{GrantId, Layout, Lease, StoreError};

use crate::file::{Directory, Kept, Kind};

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
        {
            return Err(StoreError::Corrupt {
                what: format!(
                    "the store granted worker {worker} of {:?} from {not_before_ms} on, and it was used here up to {} \
                     (Unix ms): it has forgotten leases, as one that was restored from a backup has; it is asked again",
                    kept.namespace, kept.local_bound_ms
                ),
                source: None,
            });
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

    /// The store moved the end of a lease: more of it may be handed out, if it is the one in hand. The file follows with
    /// the next piece, and promises less until then.
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
        let end_ms = grid_up(&kept.layout, end_ms).clamp(piece.not_before_ms, kept.local_bound_ms);
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
        grid_up(layout, now_ms.saturating_add(self.lead_ms))
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

/// The beginning of the first tick that begins at `at_ms` or later.
pub(crate) fn grid_up(layout: &Layout, at_ms: u64) -> u64 {
    let since_ms = at_ms.saturating_sub(layout.epoch_ms());
    layout.tick_start_ms(since_ms.div_ceil(u64::from(layout.tick_ms())))
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
        self.0.lock().map_err(|_| StoreError::Corrupt {
            what: "a panic interrupted a change of the local lease: restart the process".to_owned(),
            source: None,
        })
    }
}

/// Runs what may wait for the disk on a thread for such work.
pub(crate) async fn on_disk<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
        Err(StoreError::outcome_unknown("work on the local lease was broken off".to_owned(), error))
    })
}
