//! How fast a client takes an answer.

/// What a client takes at least, in bytes per millisecond: 4,000 bytes a second.
const BYTES_PER_MS_MIN: u64 = 4;

/// Since when a client is behind: it would have taken what it has if it had begun then and taken the least. One that
/// takes more is never behind for long; one that takes less is behind by what it lacks, however evenly it goes on.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    behind_since_ms: Option<u64>,
}

impl Pace {
    /// It takes nothing now. Since when it is behind, in the milliseconds of the caller's clock.
    pub(crate) fn waits(&mut self, now_ms: u64) -> u64 {
        *self.behind_since_ms.get_or_insert(now_ms)
    }

    /// It has taken so many bytes.
    pub(crate) fn took(&mut self, bytes: usize, now_ms: u64) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        if let Some(since_ms) = &mut self.behind_since_ms {
            *since_ms = since_ms.saturating_add(bytes / BYTES_PER_MS_MIN).min(now_ms);
        }
    }

    /// It has taken all there was.
    pub(crate) fn done(&mut self) {
        self.behind_since_ms = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long a client is behind that takes so many bytes every half second for ten minutes; at most.
    fn behind_ms(bytes: usize) -> u64 {
        let mut pace = Pace::default();
        let waits = (0..1_200_u64).map(|half_second| {
            let now_ms = half_second * 500;
            pace.took(bytes, now_ms);
            now_ms - pace.waits(now_ms)
        });
        waits.max().unwrap_or_default()
    }

    #[test]
    fn whoever_takes_less_than_the_least_is_further_and_further_behind() {
        assert_eq!(behind_ms(0), 599_500);
        assert_eq!(behind_ms(1_024), 599_500 - 1_199 * 256);
        assert!(behind_ms(1_900) > 10_000);
        assert!(behind_ms(2_000) <= 500 && behind_ms(100_000) <= 500);
    }

    #[test]
    fn the_next_answer_begins_anew() {
        let mut pace = Pace::default();
        assert_eq!(pace.waits(1_000), 1_000);
        assert_eq!(pace.waits(9_000), 1_000);
        pace.took(400, 9_000);
        assert_eq!(pace.waits(9_500), 1_100);
        pace.took(usize::MAX, 9_500);
        assert_eq!(pace.waits(9_600), 9_500, "nobody takes anything in advance");
        pace.done();
        assert_eq!(pace.waits(20_000), 20_000);
    }
}
