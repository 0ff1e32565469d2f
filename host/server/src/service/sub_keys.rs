//! How many sub-keys a tag may have, and whether requests may make new ones.
//!
//! A sub-key is a row in the store that its first use makes, for ever. So who may ask for ids of a tag may make as many
//! as [`SubKeys`] allows, counted in the store and not in this process: a restart gives nobody new ones. They are apart
//! from the limit of tags, which is not reached by them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use unalike::storage::{SegmentStore, StoreError, split_tag};
use unalike::{Restart, SUB_SEPARATOR, instant};

use crate::config::Config;
use crate::config::names::stored_name;
use crate::service::issue_error::IssueError;
use crate::service::problem::{Kind, Problem};
use crate::words::shortened;

/// How many rows are read at once when sub-keys are counted.
const PAGE: u32 = 10_000;

/// A tag that was found to be full is not counted again for this long.
const FULL_FOR: Duration = Duration::from_secs(10);

/// The limits of all tags, and what is known of how near they are.
pub(crate) struct SubKeys {
    /// Of the tags that the configuration says it of.
    limits: HashMap<String, u64>,
    /// Of all others; none where requests create nothing of theirs.
    limit: Option<u64>,
    rooms: Mutex<HashMap<String, Arc<tokio::sync::Mutex<Room>>>>,
}

/// What is known of one tag.
#[derive(Default)]
struct Room {
    /// What it is about: a period, or nothing.
    period: Option<String>,
    /// How many more this process makes before it counts them again.
    free: u64,
    full_since: Option<Instant>,
}

impl SubKeys {
    /// As it is configured.
    pub(crate) fn new(config: &Config) -> Self {
        let limits = config.tags.iter().filter_map(|(name, tag)| Some((name.clone(), tag.sub_keys_max?))).collect();
        Self { limits, limit: config.create_tags.then_some(config.sub_keys_max), rooms: Mutex::default() }
    }

    /// Whether requests create what is not configured.
    pub(crate) fn are_created(&self) -> bool {
        self.limit.is_some()
    }

    /// Sees to it that a sub-key is there, if it may be. Where the tag's counter starts again it has a row for each
    /// period, and the limit holds for each: `period` is the one at hand.
    ///
    /// # Errors
    /// [`Kind::TagUnknown`] where requests make none, [`Kind::SubKeyLimit`], and what the store says.
    pub(crate) async fn admit(
        &self,
        store: &dyn SegmentStore,
        tag: &str,
        sub: &str,
        period: Option<&str>,
    ) -> Result<(), IssueError> {
        let name = stored(tag, sub, period)?;
        if exists(store, &name).await? {
            return Ok(());
        }
        let Some(limit) = self.limits.get(tag).copied().or(self.limit) else {
            let (tag, sub) = (shortened(tag), shortened(sub));
            let detail = format!(
                "the tag {tag:?} has no sub-key {sub:?}, and requests create none here: the server's configuration has \
                 create_tags = false, and no sub_keys_max for this tag"
            );
            return Err(Problem::new(Kind::TagUnknown, detail).with("tag", tag).with("sub", sub).into());
        };
        if self.limit.is_some() {
            // So that there is no sub-key of a tag that is not there and not counted.
            store.open_tag(tag).await?;
        }
        let room = {
            let mut rooms = self.rooms.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(rooms.entry(tag.to_owned()).or_default())
        };
        // One is made at a time, and counted before the next.
        let mut room = room.lock().await;
        if !exists(store, &name).await? {
            room.take(store, tag, limit, period).await?;
            store.open_tag(&name).await?;
        }
        Ok(())
    }
}

impl Room {
    /// Close to the limit each new sub-key counts all that there are. Farther from it, several servers may together
    /// pass the limit by what they had left: it keeps a client from filling the store, and is not a quota.
    async fn take(
        &mut self,
        store: &dyn SegmentStore,
        tag: &str,
        limit: u64,
        period: Option<&str>,
    ) -> Result<(), IssueError> {
        if self.period.as_deref() != period {
            *self = Self { period: period.map(str::to_owned), ..Self::default() };
        }
        if self.free > 0 {
            self.free -= 1;
            return Ok(());
        }
        if self.full_since.is_none_or(|since| since.elapsed() >= FULL_FOR) {
            let free = limit - count(store, tag, limit, period).await?;
            self.full_since = (free == 0).then(Instant::now);
            if free > 0 {
                // One is taken now; of a thousand that are free, some sixty may be taken without another look.
                self.free = (free - 1) / 16;
                return Ok(());
            }
        }
        let tag = shortened(tag);
        let detail = format!(
            "the tag {tag:?} may have {limit} sub-keys and has no fewer: those that exist still work; for more, raise \
             sub_keys_max in [tags.{tag}]"
        );
        Err(Problem::new(Kind::SubKeyLimit, detail).with("tag", tag).with("sub_keys_max", limit).into())
    }
}

async fn exists(store: &dyn SegmentStore, name: &str) -> Result<bool, StoreError> {
    match store.tag(name).await {
        Ok(_) => Ok(true),
        Err(StoreError::TagUnknown { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The name under which stores keep a sub-key, in a period if the tag's counter starts again.
///
/// # Errors
/// [`StoreError::TagInvalid`].
pub(crate) fn stored(tag: &str, sub: &str, period: Option<&str>) -> Result<String, StoreError> {
    // With a period after it anything would look like a name.
    let plain = stored_name(tag, Some(sub))?;
    period.map_or(Ok(plain), |period| stored_name(tag, Some(&format!("{sub}@{period}"))))
}

/// The sub-key and the period in the name of a row that a host counts a period under: `shop@2026-11-22`, and of the tag
/// itself `@2026-11-22`. `None` where it is no such name, or the calendar has no such day.
pub(crate) fn of_period(sub: &str, restart: Restart) -> Option<(&str, &str)> {
    let (pattern, first_day) = match restart {
        Restart::Never => return None,
        Restart::Year => ("0000", "-01-01"),
        Restart::Month => ("0000-00", "-01"),
        Restart::Day => ("0000-00-00", ""),
    };
    let (sub, period) = sub.rsplit_once('@')?;
    let fits = |(byte, wanted): (u8, u8)| if wanted == b'0' { byte.is_ascii_digit() } else { byte == wanted };
    let is_period = period.len() == pattern.len()
        && period.bytes().zip(pattern.bytes()).all(fits)
        && instant(&format!("{period}{first_day}")).is_ok();
    is_period.then_some((sub, period))
}

/// How many sub-keys a tag has, counted up to this many.
async fn count(store: &dyn SegmentStore, tag: &str, most: u64, period: Option<&str>) -> Result<u64, StoreError> {
    let ending = period.map(|period| format!("@{period}"));
    let (mut counted, mut after) = (0, format!("{tag}{SUB_SEPARATOR}"));
    while counted < most {
        let page = store.tags(Some(&after), PAGE).await?;
        let Some(last) = page.last() else { break };
        let is_last = page.len() < PAGE as usize;
        for record in &page {
            let (Some(sub), true) = (split_tag(&record.tag).1, split_tag(&record.tag).0 == tag) else {
                return Ok(counted.min(most));
            };
            // Only this program, and hosts that show ids in a format that has periods, make one.
            counted +=
                u64::from(ending.as_ref().is_none_or(|ending| sub.len() > ending.len() && sub.ends_with(ending)));
        }
        if is_last {
            break;
        }
        after.clone_from(&last.tag);
    }
    Ok(counted.min(most))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_names_the_period_behind_the_sub_key() {
        assert_eq!(of_period("@2026-11-22", Restart::Day), Some(("", "2026-11-22")));
        assert_eq!(of_period("a@b@2026-11", Restart::Month), Some(("a@b", "2026-11")));
        assert_eq!(of_period("shop@2026", Restart::Year), Some(("shop", "2026")));
        assert_eq!(of_period("shop@2026", Restart::Never), None);
        for sub in ["shop", "2026-11-22", "@2026-11", "@2026-11-2\u{e9}", "@2026_11_22", "@", ""] {
            assert_eq!(of_period(sub, Restart::Day), None, "{sub}");
        }
        // Days that there are not, and days before all ids.
        assert_eq!(of_period("@2028-02-29", Restart::Day), Some(("", "2028-02-29")));
        for (sub, restart) in [
            ("@2026-13-29", Restart::Day),
            ("@2026-02-29", Restart::Day),
            ("@2026-11-00", Restart::Day),
            ("@1969-12-31", Restart::Day),
            ("@2026-13", Restart::Month),
            ("@2026-00", Restart::Month),
            ("@1969", Restart::Year),
            ("@0000", Restart::Year),
        ] {
            assert_eq!(of_period(sub, restart), None, "{sub}");
        }
    }
}
