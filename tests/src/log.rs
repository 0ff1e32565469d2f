//! What a program logs.

use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::util::SubscriberInitExt as _;

/// What is logged by one thread; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Takes down what this thread logs from now on, at every level, until the value is dropped.
    #[must_use]
    pub fn listen(&self) -> impl Sized + use<> {
        // A subscriber for those threads that nobody listens to. Without it this one may be the only one in the
        // process, and what such a thread is first to say is taken for something that nobody wants to hear.
        let _ = tracing_subscriber::fmt().with_max_level(LevelFilter::OFF).finish().try_init();
        let writer = self.clone();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_max_level(LevelFilter::TRACE);
        subscriber.with_writer(move || writer.clone()).set_default()
    }

    /// All of it.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()).unwrap()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
