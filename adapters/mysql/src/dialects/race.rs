//! A statement that loses against others is tried again: after a random pause, and not for ever.

use std::time::Duration;

use tokio::time::Instant;
use unalike_storage::StoreError;

/// The longest that tries go on, as in the issuer that the dialects come from.
const PATIENCE: Duration = Duration::from_secs(2);

/// The longest pause before the second try; it doubles with each try.
const PAUSE: Duration = Duration::from_micros(500);

/// No pause is longer than this.
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// The tries of one request.
#[derive(Debug)]
pub(crate) struct Race {
    deadline: Instant,
    pause: Duration,
    tries: u32,
}

impl Race {
    pub(crate) fn new() -> Self {
        Self { deadline: Instant::now() + PATIENCE, pause: PAUSE, tries: 0 }
    }

    /// Whether no try was lost before.
    pub(crate) fn is_new(&self) -> bool {
        self.tries == 0
    }

    /// Waits until the next try: somewhere between not at all and the current pause, so that those who lost together do
    /// not meet again.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when the time is up; nothing was granted.
    pub(crate) async fn lost(&mut self, tag: &str) -> Result<(), StoreError> {
        self.tries += 1;
        let pause = self.pause.mul_f64(fastrand::f64());
        if Instant::now() + pause >= self.deadline {
            return Err(StoreError::unavailable(format!(
                "others were quicker {} times within {} ms under the tag {tag:?}: too many ask for its numbers at once",
                self.tries,
                PATIENCE.as_millis()
            )));
        }
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        tokio::time::sleep(pause).await;
        Ok(())
    }
}
