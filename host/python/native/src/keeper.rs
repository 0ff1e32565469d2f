//! What the stores warn of, kept until the package asks: it logs by Python's own means, on a thread of the program's.

use std::collections::VecDeque;
use std::fmt::{Debug, Write as _};
use std::sync::Mutex;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// The oldest goes where nobody asks.
const KEPT_MAX: usize = 100;

/// The part of the stores, the level, and the words.
type Kept = (String, u8, String);

static KEPT: Mutex<VecDeque<Kept>> = Mutex::new(VecDeque::new());

/// Keeps them from now on.
pub(crate) fn keep() {
    // One of two that come at once is enough.
    let _ = tracing::subscriber::set_global_default(Keeper);
}

/// Those that were kept.
pub(crate) fn taken() -> Vec<Kept> {
    // Nobody is waited for: in a forked child the lock may be a thread's of the parent.
    KEPT.try_lock().map_or_else(|_| Vec::new(), |mut kept| kept.drain(..).collect())
}

struct Keeper;

impl Subscriber for Keeper {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN && metadata.is_event() && metadata.target().starts_with("unalike")
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
            // As Python's module logging numbers them.
            let level = if *event.metadata().level() == Level::ERROR { 40 } else { 30 };
            kept.push_back((part, level, text.message + &text.fields));
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
