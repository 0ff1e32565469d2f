//! How long single calls take, where the mean hides the rare slow one.

use std::time::{Duration, Instant};

use anyhow::Result;

/// The durations of single calls, a reading of the clock (some 28 ns) included.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    sorted_ns: Vec<u64>,
}

impl Latencies {
    /// Makes `count` calls, timing each.
    ///
    /// # Errors
    /// What a call fails with.
    pub fn measure(count: usize, mut call: impl FnMut() -> Result<u64>) -> Result<Self> {
        let mut sorted_ns = Vec::with_capacity(count);
        let mut before = Instant::now();
        let mut xor = 0;
        for _ in 0..count {
            xor ^= call()?;
            let after = Instant::now();
            sorted_ns.push(nanos(after - before));
            before = after;
        }
        std::hint::black_box(xor);
        sorted_ns.sort_unstable();
        Ok(Self { sorted_ns })
    }

    /// The latency that this share of the calls did not exceed; 0 without calls.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share, from 0 to 1, of a number of samples"
    )]
    pub fn quantile_ns(&self, share: f64) -> u64 {
        let last = self.sorted_ns.len().saturating_sub(1);
        let at = (last as f64 * share.clamp(0.0, 1.0)).round() as usize;
        self.sorted_ns.get(at).copied().unwrap_or(0)
    }

    /// Mean, quantiles and maximum in one line.
    #[must_use]
    pub fn line(&self, name: &str) -> String {
        let mean = self.sorted_ns.iter().sum::<u64>() as f64 / self.sorted_ns.len().max(1) as f64;
        let quantiles: Vec<_> = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("p99.99", 0.9999), ("max", 1.0)]
            .into_iter()
            .map(|(label, share)| format!("{label} {} ns", self.quantile_ns(share)))
            .collect();
        format!("{name}: {} calls, mean {mean:.1} ns, {}", self.sorted_ns.len(), quantiles.join(", "))
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_sorted_samples() {
        let latencies = Latencies { sorted_ns: (1..=1_001).collect() };
        assert_eq!([0.0, 0.5, 0.99, 1.0].map(|share| latencies.quantile_ns(share)), [1, 501, 991, 1_001]);
        assert_eq!(Latencies::default().quantile_ns(0.5), 0);
        assert!(latencies.line("x").starts_with("x: 1001 calls, mean 501.0 ns, p50 501 ns"));
    }
}
