//! `unalike-core` by itself, with a store that answers every request at once: what the component does, without the
//! component around it.

use anyhow::{Result, anyhow};
use unalike_core::{
    GrantId, Lease, LeaseRequest, ReserveError, Run, Segment, SegmentBuffer, SequenceOptions, Snowflake,
    SnowflakeOptions, StepPolicy,
};

/// A segment buffer over a counter.
#[derive(Debug)]
pub struct NativeSequence {
    buffer: SegmentBuffer,
    next: u64,
}

impl NativeSequence {
    /// Segments of `step` numbers.
    ///
    /// # Errors
    /// A step out of range.
    pub fn new(step: u64) -> Result<Self> {
        let options = SequenceOptions { step: StepPolicy::Fixed { step }, ..SequenceOptions::default() };
        Ok(Self { buffer: SegmentBuffer::new(options, 0)?, next: 1 })
    }

    /// What the component does in `sequence.reserve`: takes ids, and starts the request that is due.
    ///
    /// # Errors
    /// None with a counter as the store, before it runs out.
    #[inline]
    pub fn reserve(&mut self, now_ms: u64, max: u32) -> Result<Run> {
        loop {
            let run = self.buffer.reserve(now_ms, max);
            if let Some(request) = self.buffer.request(now_ms) {
                let (start, end) = (self.next, self.next + request.count);
                self.next = end;
                let segment = Segment { start, end, stride: 1, generation: 0, version: 0 };
                self.buffer.granted(now_ms, segment).map_err(|fault| anyhow!("{fault:?}"))?;
            }
            match run {
                Ok(run) => return Ok(run),
                Err(ReserveError::Pending) => {}
                Err(error) => return Err(anyhow!("{error:?}")),
            }
        }
    }
}

/// A snowflake generator on worker 1, on a clock of its own that moves on when the generator asks to wait.
#[derive(Debug)]
pub struct NativeSnowflake {
    snowflake: Snowflake,
    horizon_ms: u64,
    now_ms: u64,
}

impl NativeSnowflake {
    /// A generator whose clock starts at `now_ms`.
    ///
    /// # Errors
    /// Options out of range.
    pub fn new(options: SnowflakeOptions, now_ms: u64) -> Result<Self> {
        Ok(Self { snowflake: Snowflake::new(options)?, horizon_ms: options.horizon_ms, now_ms })
    }

    /// The next millisecond has come.
    pub fn tick(&mut self) {
        self.now_ms += 1;
    }

    /// What the component does in `snowflake.reserve`.
    ///
    /// # Errors
    /// None before the layout's last tick.
    #[inline]
    pub fn reserve(&mut self, max: u32) -> Result<Run> {
        loop {
            let run = self.snowflake.reserve(self.now_ms, max);
            if let Some(request) = self.snowflake.request(self.now_ms) {
                self.answer(request)?;
            }
            match run {
                Ok(run) => return Ok(run),
                Err(ReserveError::Pending) => {}
                Err(ReserveError::Wait { wait_ms }) => self.now_ms += wait_ms,
                Err(error) => return Err(anyhow!("{error:?}")),
            }
        }
    }

    #[cold]
    fn answer(&mut self, request: LeaseRequest) -> Result<()> {
        let (worker, grant_id) = match request {
            LeaseRequest::Acquire => (1, GrantId(1)),
            LeaseRequest::Extend { worker, grant_id } => (worker, grant_id),
        };
        // The clock may be borrowed from by as much as the options allow; the lease reaches beyond that.
        let valid_until_ms = self.now_ms + self.horizon_ms;
        let lease = Lease { worker, grant_id, not_before_ms: self.now_ms, valid_until_ms };
        self.snowflake.granted(self.now_ms, lease).map_err(|fault| anyhow!("{fault:?}"))
    }
}

#[cfg(test)]
mod tests {
    use unalike_core::Layout;

    use super::*;

    #[test]
    fn sequences_go_on_across_segments_and_snowflakes_across_ticks_and_leases() {
        let mut sequence = NativeSequence::new(100).unwrap();
        let ids: Vec<_> = (0..1_000).flat_map(|_| sequence.reserve(0, 7).unwrap().ids()).collect();
        assert!(ids.iter().copied().eq(1..=ids.len() as u64));

        let options = SnowflakeOptions { horizon_ms: 50, ..SnowflakeOptions::new(Layout::TWITTER) };
        let mut snowflake = NativeSnowflake::new(options, 1_700_000_000_000).unwrap();
        let runs: Vec<_> = (0..1_000).map(|_| snowflake.reserve(u32::MAX).unwrap()).collect();
        assert!(runs.is_sorted_by(|one, two| one.last() < two.first));
        assert!(runs.iter().all(|run| run.count == 4_096));
    }
}
