//! Which lines the log has.

use anyhow::{Context, ensure};
use tracing_subscriber::EnvFilter;

use crate::words::likeliest;

/// The levels, from none to all.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Crates that say too much, unless the filter names them. The driver warns of each slow statement, and prints it
/// whole, and of each wait for a connection; wasmtime warns of each request of a component that fails, as many as there
/// are while its servers are down; and HTTP/2 of each client that does what none should.
const QUIETED: [(&str, &str); 4] = [
    ("sqlx", "sqlx::query=error"),
    ("sqlx", "sqlx::pool=error"),
    ("wasmtime_wasi_http", "wasmtime_wasi_http=error"),
    ("h2", "h2=error"),
];

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
    let quieted = QUIETED.iter().filter(|(crate_name, _)| !text.contains(crate_name));
    let directives: Vec<&str> = quieted.map(|(_, directive)| *directive).chain([text]).collect();
    EnvFilter::try_new(directives.join(","))
        .with_context(|| format!("the log filter {text:?} cannot be read: give a level such as info (--log)"))
}
