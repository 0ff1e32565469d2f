//! Time that a durable store grants to Redis: numbers of a tag of its own, each of them one ms of Unix time.
//!
//! A namespace's time ends at its *bound*, and so do all of its leases. It belongs to one incarnation of Redis; what
//! another one gets comes after all that was ever granted. So the bound is what a lost Redis costs. It is as far ahead
//! as somebody asked for, plus a [lead](lead_ms), so that it is raised in the background while leases are extended.
//!
//! Time that was granted and not installed is a gap after the bound, since another Redis may have it. Leases continue
//! up to the bound; then the namespace begins anew after the gap. A namespace that begins anew before its time has come
//! takes one ms of it, and the rest when it is there. So the incarnation before gets no more of it, and of two Redis
//! that run at once, the one that asks first has the next turn.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tokio::time::Instant;
use unalike_storage::{KEPT_LEASES, NamespaceBinding, Rfc3339, SegmentStore, StoreError, leases_left, time_of_leases};

use super::hash::{Kept, NamespaceView, write_binding};
use super::{INSTALL, Namespace, look};
use crate::RedisOptions;
use crate::raising::{ASK_AGAIN, HashKey, Kind, KnownTurns, Raise, Raising, lock};
use crate::server::Server;

/// The tag whose sub-keys are the namespaces, in the durable store.
const OWNER: &str = KEPT_LEASES;

/// What a new hash has beside its generation and its first claim.
const NEW: [(&str, &str); 3] = [("incarnation", ""), ("bound_ms", "0"), ("low", "0")];

/// The least and the most that the bound is raised by beyond what is asked for, in milliseconds.
const LEAD_MS: (u64, u64) = (1_000, 60_000);

/// How much further than a horizon the bound is raised, in milliseconds: holders extend after a third of a horizon, so
/// half of one is enough for the next time, and then it is raised in the background.
pub(super) fn lead_ms(horizon_ms: u64) -> u64 {
    let (least_ms, most_ms) = LEAD_MS;
    (horizon_ms / 2).clamp(least_ms, most_ms)
}

/// Gets time for namespaces.
pub(super) struct GrantedTime {
    server: Server,
    durable: Arc<dyn SegmentStore>,
    raising: Raising,
    turns: KnownTurns,
    /// The namespaces of which the durable store knows that their leases are here.
    placed: Mutex<HashSet<String>>,
}

/// How far the bound of a namespace shall reach, in Unix milliseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct WantedTime {
    /// Somebody else may have raised it so far: then it is enough.
    pub(super) least_ms: u64,
    pub(super) until_ms: u64,
    /// What the namespace is bound to if it has to begin anew, with the earliest time that is of use as its floor; none
    /// where what is left is used first.
    pub(super) anew: Option<NamespaceBinding>,
}

impl GrantedTime {
    /// # Errors
    /// As [`Raising::recognise`]; [`StoreError::Unavailable`] when the system gives no random numbers.
    pub(super) async fn open(
        server: &Server,
        durable: Arc<dyn SegmentStore>,
        options: &RedisOptions,
    ) -> Result<Self, StoreError> {
        let raising = Raising::new(server.clone(), Arc::clone(&durable), options, Kind::Leases, &NEW)?;
        raising.recognise().await?;
        Ok(Self { server: server.clone(), durable, raising, turns: KnownTurns::default(), placed: Mutex::default() })
    }

    /// Waits until the bound was raised, or needs not be, at most until the deadline. Whether all was done that can be;
    /// otherwise somebody else was at it, perhaps for less.
    ///
    /// # Errors
    /// What the durable store failed with.
    pub(super) async fn wait(
        self: &Arc<Self>,
        namespace: &Namespace,
        wanted: WantedTime,
        deadline: Instant,
    ) -> Result<bool, StoreError> {
        let turns = self.turns.of(&namespace.key);
        let is_done = Arc::new(AtomicBool::new(false));
        let (raising, done) = (Arc::clone(self).raise(namespace.clone(), wanted), Arc::clone(&is_done));
        let raise = async move {
            let raise = raising.await;
            done.store(matches!(raise, Ok(Raise::Done)), Ordering::Release);
            raise
        };
        let name = namespace.name.as_str();
        let waited = self.raising.wait(name, &turns, turns.raised(), deadline, raise).await;
        waited.map(|()| is_done.load(Ordering::Acquire)).map_err(|error| match error {
            StoreError::CeilingReached { retry_after_ms, source, .. } => {
                let what = format!(
                    "the durable store has not granted Redis more time for the leases of {name:?}: try again in {retry_after_ms} ms"
                );
                StoreError::Unavailable { what, source }
            }
            StoreError::TagUnknown { .. } => StoreError::refused(format!(
                "the durable store has no tag {OWNER:?}, under which it grants Redis time for leases, and makes none: let it \
                 create tags on first use"
            )),
            other => other,
        })
    }

    /// Raises the bound in the background, if nobody here is at it.
    pub(super) fn soon(self: &Arc<Self>, namespace: &Namespace, wanted: WantedTime) {
        let turns = self.turns.of(&namespace.key);
        self.raising.soon(&namespace.name, &turns, Arc::clone(self).raise(namespace.clone(), wanted));
    }

    pub(super) async fn close(&self) {
        self.durable.close().await;
    }

    /// Makes sure that the durable store leases no workers of this namespace itself, and never will. Whatever it
    /// refuses, nothing was written here before.
    async fn place(&self, name: &str) -> Result<(), StoreError> {
        let left = self.raising.ask(name, self.durable.leave_leases(name)).await;
        leases_left(left, |time| async move { self.raising.ask(name, self.durable.tag(&time)).await }).await?;
        lock(&self.placed).insert(name.to_owned());
        Ok(())
    }

    async fn raise(self: Arc<Self>, namespace: Namespace, wanted: WantedTime) -> Result<Raise, StoreError> {
        if !lock(&self.placed).contains(&namespace.name) {
            self.place(&namespace.name).await?;
        }
        let place = HashKey { tag: &namespace.name, owner: OWNER, key: &namespace.key };
        let turns = self.turns.of(&namespace.key);
        self.raising.claimed(place, &turns, self.raise_claimed(place, &namespace, wanted)).await
    }

    async fn raise_claimed(
        &self,
        place: HashKey<'_>,
        namespace: &Namespace,
        wanted: WantedTime,
    ) -> Result<Raise, StoreError> {
        let view = look(&self.server, namespace, &[]).await?;
        let is_valid = view.valid().is_some();
        let NamespaceView { here, now_ms, hash: Some(hash) } = view else { return Ok(Raise::Elsewhere(ASK_AGAIN)) };
        let Kept::UnderBound { bound_ms } = hash.kept else { return Err(namespace.kept_otherwise()) };
        if is_valid && bound_ms >= wanted.least_ms {
            self.raising.settle(place, None).await?;
            return Ok(Raise::Done);
        }
        let tag = time_of_leases(&namespace.name)?;
        let granted_until_ms = self.raising.granted_until(place, &tag).await?;
        if granted_until_ms == 0 {
            // Nothing was granted yet, or the durable store has lost that, and perhaps what it noted of this namespace.
            self.place(&namespace.name).await?;
        }
        if granted_until_ms < bound_ms {
            let what = format!(
                "the durable store granted time up to {} under {tag:?}, and Redis had it up to {bound} before: it lost data, \
                 or is another store; find out which. If it lost data, wait until {bound} has passed and another minute, when \
                 all of these leases have ended whatever clocks show, and delete the key {} in Redis",
                Rfc3339(granted_until_ms),
                namespace.key,
                bound = Rfc3339(bound_ms)
            );
            return Err(StoreError::corrupt(what));
        }
        let (start_ms, anew) = if is_valid && granted_until_ms == bound_ms {
            (bound_ms, None)
        } else if let Some(binding) = wanted.anew {
            (granted_until_ms.max(binding.floor_ms).max(1), Some(binding))
        } else {
            self.raising.settle(place, None).await?;
            return Ok(Raise::Done);
        };
        // Time that has not come yet is only begun: nobody else gets what follows, and a Redis that is lost again
        // before costs next to nothing more.
        let until_ms = if anew.is_some() && start_ms > now_ms { 0 } else { wanted.until_ms };
        let count = until_ms.saturating_sub(start_ms).max(1);
        let granted = self.raising.grant(place, &tag, count, start_ms).await?;
        let binding = anew.map(|binding| {
            let floor_ms = binding.layout.round_up_ms(granted.start);
            write_binding(&NamespaceBinding { floor_ms, ..binding })
        });
        if let Some((cause, _)) = hash.cause(&here).zip(binding.as_ref()) {
            let (name, from_ms) = (namespace.name.as_str(), granted.start);
            tracing::warn!(namespace = name, cause, from_ms, "the leases are void, and begin anew");
        }
        let read = (hash.generation.as_str(), here.as_str());
        self.raising.install(place, &INSTALL, read, &granted, &[binding.as_deref().unwrap_or_default()]).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lead_is_half_a_horizon_within_bounds() {
        for (horizon_ms, lead) in
            [(0, 1_000), (2_000, 1_000), (60_000, 30_000), (120_000, 60_000), (86_400_000, 60_000)]
        {
            assert_eq!(lead_ms(horizon_ms), lead);
        }
    }
}
