//! What to send, and for how long: the flags of `unalike bench`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use jiff::SignedDuration;

/// The longest run: a day.
const DURATION_MAX: Duration = Duration::from_secs(86_400);

/// Paragraphs have no line breaks: the help is wrapped to the terminal.
pub(crate) const BENCH_HELP: &str = "\
Examples:
  unalike bench                                            the server on this machine, 10 seconds
  unalike bench http://ids.internal:8080 --connections 200 --duration 1m
  unalike bench --snowflake default --count 100 --json
  unalike bench --requests 1000000 --pipeline 16

Each connection sends its next requests when the last ones were answered. The ids that come are used up. If the server \
creates tags on first use it creates the tag \"bench\", which stays: no tag is ever deleted, since its numbers must not come \
again. --tag NAME or --snowflake NAME uses one that is there. An id that comes twice, a connection that is lost and cannot \
be opened again, or a run in which every request failed ends with exit code 1.";

/// What to send, and for how long.
#[derive(Debug, Args)]
pub(crate) struct BenchArguments {
    /// The server: http://HOST:PORT or https://HOST:PORT
    #[arg(value_name = "URL", default_value = "http://127.0.0.1:8080")]
    pub(super) url: String,
    /// The tag whose ids are asked for
    #[arg(long, value_name = "TAG", default_value = "bench", conflicts_with = "snowflake")]
    pub(super) tag: String,
    /// Ask for ids of this snowflake instead
    #[arg(long, value_name = "NAME")]
    pub(super) snowflake: Option<String>,
    /// How many connections are kept open: 1 to 50000
    #[arg(long, value_name = "COUNT", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=50_000))]
    pub(super) connections: u32,
    /// Ids per request: 1 to 1000000
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(super) count: u32,
    /// For how long: 10 (seconds), 500ms, 1m30s; a day at most
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    pub(super) duration: Duration,
    /// How many requests, whatever time they take, instead
    #[arg(long, value_name = "COUNT", conflicts_with = "duration", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) requests: Option<u64>,
    /// Requests that a connection sends at once, before it reads the first answer: 1 to 1000
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(super) pipeline: u32,
    /// Threads that share the connections: 1 to 64. One is enough unless the report says that it was busy throughout
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(super) threads: u32,
    /// A PEM file of the authorities that may vouch for an https:// server [default: those of the system]
    #[arg(long, value_name = "FILE")]
    pub(super) ca: Option<PathBuf>,
    /// A file that holds the bearer token, if the server asks for one
    #[arg(long, value_name = "FILE", conflicts_with = "token_env")]
    pub(super) token_file: Option<PathBuf>,
    /// The environment variable that holds it
    #[arg(long, value_name = "NAME")]
    pub(super) token_env: Option<String>,
    /// Memory for the check that no id comes twice: 0 (no check) to 65536 MiB. A quarter of a KiB keeps up to 512 ids
    /// that lie together; what comes once the memory is full is counted as unchecked
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u32).range(0..=65_536))]
    pub(super) check_memory_mib: u32,
    /// Print the report as JSON
    #[arg(long)]
    pub(super) json: bool,
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    let duration: SignedDuration = match text.parse() {
        Ok(seconds) => SignedDuration::from_secs(seconds),
        Err(_) => text.parse().map_err(|_| "it must be seconds, or a time such as 500ms, 10s or 1m30s".to_owned())?,
    };
    let duration = Duration::try_from(duration).map_err(|_| "it is negative".to_owned())?;
    if duration.is_zero() || duration > DURATION_MAX {
        return Err("it must be more than nothing and a day at most".to_owned());
    }
    Ok(duration)
}
