//! How long single calls take, where the mean hides the rare slow one.

use std::time::{Duration, Instant};

use anyhow::Result;
use hdrhistogram::Histogram;

/// The durations of single calls, a reading of the clock (some 28 ns) included.
#[derive(Clone, Debug)]
pub struct Latencies {
    histogram: Histogram<u64>,
}

impl Default for Latencies {
    fn default() -> Self {
        // Three digits of each figure, up to a minute; only bounds that make no sense are refused.
        Self {
            histogram: Histogram::new_with_max(60_000_000_000, 3).unwrap_or_else(|_| unreachable!("bounds are fine")),
        }
    }
}

impl Latencies {
    /// Makes `count` calls, timing each.
    ///
    /// # Errors
    /// What a call fails with.
    pub fn measure(count: usize, mut call: impl FnMut() -> Result<u64>) -> Result<Self> {
        let mut latencies = Self::default();
        let mut before = Instant::now();
        let mut xor = 0;
        for _ in 0..count {
            xor ^= call()?;
            let after = Instant::now();
            latencies.add(after - before);
            before = after;
        }
        std::hint::black_box(xor);
        Ok(latencies)
    }

    /// A call took so long.
    #[inline]
    pub fn add(&mut self, duration: Duration) {
        self.histogram.saturating_record(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Nanoseconds per call; 0 without calls.
    #[must_use]
    pub fn mean_ns(&self) -> f64 {
        self.histogram.mean()
    }

    /// The latency that this share of the calls did not exceed; 0 without calls.
    #[must_use]
    pub fn quantile_ns(&self, share: f64) -> u64 {
        self.histogram.value_at_quantile(share)
    }

    /// Mean, quantiles and maximum in one line.
    #[must_use]
    pub fn line(&self, name: &str) -> String {
        let quantiles: Vec<_> = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("p99.99", 0.9999), ("max", 1.0)]
            .into_iter()
            .map(|(label, share)| format!("{label} {} ns", self.quantile_ns(share)))
            .collect();
        format!("{name}: {} calls, mean {:.1} ns, {}", self.histogram.len(), self.mean_ns(), quantiles.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_samples() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.quantile_ns(0.5), 0);
        (1..=1_001).for_each(|ns| latencies.add(Duration::from_nanos(ns)));
        assert_eq!([0.0, 0.5, 0.99, 1.0].map(|share| latencies.quantile_ns(share)), [1, 501, 991, 1_001]);
        assert!(latencies.line("x").starts_with("x: 1001 calls, mean 501.0 ns, p50 501 ns"));
    }
}
