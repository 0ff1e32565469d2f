//! The log: lines on the standard error, for people or for programs, each with the id of the request that caused it.

use std::fmt;
use std::io::{self, IsTerminal};
use std::mem;
use std::sync::{Mutex, PoisonError};

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::config::arguments::LogFormat;
use crate::config::log;
use crate::http::request_id;

/// Begins to log what the filter lets through.
pub(crate) fn start(text: &str, format: LogFormat) -> anyhow::Result<()> {
    let log = tracing_subscriber::fmt().with_env_filter(log::filter(text)?).with_writer(io::stderr);
    match format {
        LogFormat::Text => log.with_ansi(is_coloured()).event_format(Text).init(),
        LogFormat::Json => log.with_ansi(false).event_format(Json).init(),
    }
    Ok(())
}

/// What was logged and not shown, a line each.
static COLLECTED: Mutex<Vec<u8>> = Mutex::new(Vec::new());

/// Keeps what is wrong for whoever asks, in place of a log.
pub(crate) fn collect() -> anyhow::Result<()> {
    let log = tracing_subscriber::fmt().with_env_filter(log::filter("warn")?).with_writer(|| Collected);
    log.with_ansi(false).event_format(Bare).init();
    Ok(())
}

/// What was kept since the last call.
pub(crate) fn collected() -> Vec<String> {
    let lines = mem::take(&mut *COLLECTED.lock().unwrap_or_else(PoisonError::into_inner));
    String::from_utf8_lossy(&lines).lines().map(str::to_owned).collect()
}

struct Collected;

impl io::Write for Collected {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        COLLECTED.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Only the message and its fields.
struct Bare;

impl<S, N> FormatEvent<S, N> for Bare
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut line: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        context.format_fields(line.by_ref(), event)?;
        writeln!(line)
    }
}

/// On a terminal, unless its user wants no colours (<https://no-color.org>).
fn is_coloured() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) && io::stderr().is_terminal()
}

/// `2026-11-21T18:36:23.000000Z  WARN unalike::problem: a request failed error=.. request_id=..`
struct Text;

impl<S, N> FormatEvent<S, N> for Text
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut line: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let metadata = event.metadata();
        SystemTime.format_time(&mut line)?;
        let (colour, plain) = match (line.has_ansi_escapes(), *metadata.level()) {
            (false, _) => ("", ""),
            (true, Level::ERROR) => ("\x1b[31m", "\x1b[0m"),
            (true, Level::WARN) => ("\x1b[33m", "\x1b[0m"),
            (true, _) => ("\x1b[32m", "\x1b[0m"),
        };
        write!(line, " {colour}{:>5}{plain} {}: ", metadata.level().as_str(), metadata.target())?;
        context.format_fields(line.by_ref(), event)?;
        if let Some(written) = request_id::with_current(|id| write!(line, " request_id={id}")) {
            written?;
        }
        writeln!(line)
    }
}

/// `{"fields":{..},"level":"WARN","message":"..","request_id":"..","target":"..","timestamp":".."}`
struct Json;

impl<S, N> FormatEvent<S, N> for Json
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut line: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let metadata = event.metadata();
        let mut fields = Fields(Map::new());
        event.record(&mut fields);
        let mut timestamp = String::new();
        SystemTime.format_time(&mut Writer::new(&mut timestamp))?;
        let mut object = Map::new();
        object.insert("timestamp".to_owned(), timestamp.into());
        object.insert("level".to_owned(), metadata.level().as_str().into());
        object.insert("target".to_owned(), metadata.target().into());
        if let Some(message) = fields.0.remove("message") {
            object.insert("message".to_owned(), message);
        }
        if let Some(id) = request_id::with_current(str::to_owned) {
            object.insert("request_id".to_owned(), id.into());
        }
        object.insert("fields".to_owned(), Value::Object(fields.0));
        writeln!(line, "{}", Value::Object(object))
    }
}

/// The fields of an event as JSON.
struct Fields(Map<String, Value>);

impl Fields {
    fn insert(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.insert(field, format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.insert(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.insert(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.insert(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.insert(field, value);
    }
}
