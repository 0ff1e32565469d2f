//! Which lines the log has.

use anyhow::{Context, ensure};
use tracing_subscriber::EnvFilter;

use crate::words::likeliest;

/// The levels, from none to all.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// What a filter lets through.
///
/// # Errors
/// When it cannot be read, and when a single word in it is not a level: it would be taken for a module, and silence the
/// others.
pub(crate) fn filter(text: &str) -> anyhow::Result<EnvFilter> {
    for word in text.split(',').map(str::trim).filter(|word| !word.contains(['=', '[', ':'])) {
        let is_level = LEVELS.iter().any(|level| level.eq_ignore_ascii_case(word));
        let meant = match likeliest(word, &LEVELS) {
            Some(meant) => format!("did you mean {meant}?"),
            None => format!("the levels are {}, and a module has its own as in warn,unalike=debug", LEVELS.join(", ")),
        };
        ensure!(is_level, "the log filter {text:?} has the level {word:?}, which is unknown (--log): {meant}");
    }
    // The driver warns of each slow statement, and prints it whole.
    let directives = if text.contains("sqlx") { text.to_owned() } else { format!("sqlx::query=error,{text}") };
    EnvFilter::try_new(directives)
        .with_context(|| format!("the log filter {text:?} cannot be read: give a level such as info (--log)"))
}
