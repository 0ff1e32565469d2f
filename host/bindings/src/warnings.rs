//! What the stores warn of, kept until a binding asks: it tells by its language's own means, on a thread of the
//! program's.
//!
//! ```
//! use unalike_bindings::warnings;
//!
//! warnings::keep();
//! for warning in warnings::taken() {
//!     eprintln!("{}: {}", warning.part, warning.message);
//! }
//! ```

use std::collections::VecDeque;
use std::fmt::{Debug, Write as _};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// The oldest goes where nobody asks.
const KEPT_MAX: usize = 100;

/// What a store warned of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The part of the stores that did, such as `unalike.mysql`.
    pub part: String,
    /// Whether it is an error.
    pub is_error: bool,
    /// Whether it is news, of which nobody needs to be warned.
    pub is_news: bool,
    /// In words, with their figures.
    pub message: String,
}

static KEPT: Mutex<VecDeque<Warning>> = Mutex::new(VecDeque::new());

/// Whether one was kept since: who asks after each request seldom takes the lock that stores need.
static ARE_NEW: AtomicBool = AtomicBool::new(false);

/// Keeps them from now on, in this process. A program in Rust that has a subscriber of its own gets them there.
pub fn keep() {
    keep_from(Level::WARN);
}

/// The same, and news as well, such as that a tag was created on first use.
pub fn keep_news() {
    keep_from(Level::INFO);
}

fn keep_from(least: Level) {
    // One of two that come at once is enough.
    let _ = tracing::subscriber::set_global_default(Keeper { least });
}

/// Those that were kept since the last call: the newest hundred.
pub fn taken() -> Vec<Warning> {
    if !ARE_NEW.swap(false, Ordering::Relaxed) {
        return Vec::new();
    }
    // Who has the lock just now takes them, or says afterwards that there are new ones. Nobody is waited for: in a
    // forked child the lock may be a thread's of the parent.
    KEPT.try_lock().map_or_else(|_| Vec::new(), |mut kept| kept.drain(..).collect())
}

struct Keeper {
    least: Level,
}

impl Subscriber for Keeper {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.least && metadata.is_event() && metadata.target().starts_with("unalike")
    }

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        let target = event.metadata().target();
        let part = target.split("::").next().unwrap_or(target).replace('_', ".");
        if let Ok(mut kept) = KEPT.try_lock() {
            if kept.len() == KEPT_MAX {
                kept.pop_front();
            }
            let level = *event.metadata().level();
            let (is_error, is_news) = (level == Level::ERROR, level == Level::INFO);
            kept.push_back(Warning { part, is_error, is_news, message: text.message + &text.fields });
            drop(kept);
            ARE_NEW.store(true, Ordering::Relaxed);
        }
    }

    // There are no spans.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// An event in words.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing to a text does not fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            "error" => write!(self.fields, ": {value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_is_taken_once() {
        keep();
        tracing::info!("nobody is warned");
        tracing::warn!(at = "here", error = ?"why", "said the test");
        tracing::error!("said it, too");
        let of_test = |warning: &Warning| warning.part == "unalike.bindings";
        let taken: Vec<_> = taken().into_iter().filter(of_test).collect();
        let told: Vec<_> = taken.iter().map(|warning| (warning.is_error, warning.message.as_str())).collect();
        assert_eq!(told, [(false, "said the test at=\"here\": \"why\""), (true, "said it, too")]);
        assert!(!super::taken().iter().any(of_test));
    }
}
