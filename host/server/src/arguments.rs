//! The command line, and the environment variables beside it. What they mean is in [`crate::config`].

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use serde::Serialize;

use crate::tags::{RefillText, StepText};

const EXAMPLES: &str = "\
Examples:
  unalike                            serve on http://127.0.0.1:8080, ids kept in ./unalike.sqlite
  curl http://127.0.0.1:8080/v1/sequences/order/ids?count=3
  unalike next order -n 5            five ids on the terminal, from the same file
  unalike next default --snowflake   one snowflake id
  unalike decode 1169786042799259000 --layout leaf
  unalike --store sqlite:///var/lib/unalike/ids.sqlite serve --listen 0.0.0.0:8080

Settings: a flag comes before its environment variable, that before the configuration file, that before the default.
Exit codes: 0 done, 1 failed (the reason is on the standard error), 2 the command line cannot be read.";

/// Distributed id generator: no two ids alike.
#[derive(Debug, Parser)]
#[command(name = "unalike", version, about, after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) common: CommonArguments,
    /// Without a command: serve.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// Settings of every command that opens the store.
#[derive(Clone, Debug, Default, Args, Serialize)]
pub(crate) struct CommonArguments {
    /// Where ids are kept: sqlite://PATH, a relative path counts from the working directory
    /// [default: sqlite://unalike.sqlite]
    #[arg(long, global = true, value_name = "URL", env = "UNALIKE_STORE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) store: Option<String>,
    /// A configuration file in TOML, with the same names as the flags: create_tags = false, [snowflakes.NAME] ...
    /// [default: none]
    #[arg(long, global = true, value_name = "FILE", env = "UNALIKE_CONFIG")]
    #[serde(skip)]
    pub(crate) config: Option<PathBuf>,
    /// Whether an unknown tag is created on first use [default: true]
    #[arg(long, global = true, value_name = "BOOL", env = "UNALIKE_CREATE_TAGS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) create_tags: Option<bool>,
    /// No tag is created beyond this many [default: 1000000]
    #[arg(long, global = true, value_name = "COUNT", env = "UNALIKE_TAGS_MAX")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tags_max: Option<u64>,
    /// How long a call waits for ids, in milliseconds: 1 to 600000 [default: 5000]
    #[arg(long, global = true, value_name = "MS", env = "UNALIKE_WAIT_MAX_MS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) wait_max_ms: Option<u64>,
    /// What is logged to the standard error: error, warn, info, debug, trace, or a filter such as
    /// warn,unalike=debug [default: info when serving, else warn]
    #[arg(long, global = true, value_name = "FILTER", env = "UNALIKE_LOG")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) log: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve ids over HTTP (the default command)
    #[command(after_help = SERVE_HELP)]
    Serve(ServeArguments),
    /// Print ids, one per line, straight from the store
    Next(NextArguments),
    /// List, create and change the tags of the store
    #[command(subcommand)]
    Tags(TagsCommand),
    /// Take a snowflake id apart: time, datacenter, worker, sequence
    Decode(DecodeArguments),
    /// List the known snowflake layouts: bits, rate limit per worker, workers, the date they run out
    Layouts,
}

const SERVE_HELP: &str = "\
Routes (GET and POST where ids are handed out):
  /v1/sequences/TAG/ids?count=N&as=string|number     {\"tag\":\"order\",\"ids\":[\"1\",\"2\"]}
  /v1/snowflakes/NAME/ids?count=N&as=string|number   the snowflake \"default\" needs no configuration
  /v1/tags  /v1/tags/TAG                             list, create (POST), change (PATCH)
  /v1/decode/ID?layout=NAME  /v1/layouts
  /health/live  /health/ready  /metrics

`Accept: text/plain` gives one id per line. Errors are application/problem+json.

A configuration file:
  listen = \"0.0.0.0:8080\"
  store = \"sqlite:///var/lib/unalike/ids.sqlite\"
  create_tags = false
  [snowflakes.web]          # GET /v1/snowflakes/web/ids
  layout = \"cosid-53\"     # see `unalike layouts`; horizon_ms and ahead_max_ms may follow

SIGTERM or SIGINT ends it: running requests finish, unused ids go back to the store. A second one ends it at once.";

/// Settings of the HTTP service.
#[derive(Clone, Debug, Default, Args, Serialize)]
pub(crate) struct ServeArguments {
    /// Where to listen: HOST:PORT, port 0 takes a free one [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR", env = "UNALIKE_LISTEN")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) listen: Option<String>,
    /// The most ids that one request gets: 1 to 1000000 [default: 10000]
    #[arg(long, value_name = "COUNT", env = "UNALIKE_COUNT_MAX")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) count_max: Option<u32>,
    /// The largest request body, in bytes: 1 to 16777216 [default: 65536]
    #[arg(long, value_name = "BYTES", env = "UNALIKE_BODY_MAX_BYTES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) body_max_bytes: Option<usize>,
    /// After how long a request is answered with 503, in milliseconds: 1 to 600000 [default: 10000]
    #[arg(long, value_name = "MS", env = "UNALIKE_REQUEST_TIMEOUT_MS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) request_timeout_ms: Option<u64>,
    /// How long running requests may take once it was told to end, in milliseconds: 0 to 600000 [default: 10000]
    #[arg(long, value_name = "MS", env = "UNALIKE_SHUTDOWN_TIMEOUT_MS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) shutdown_timeout_ms: Option<u64>,
    /// How many tags /metrics shows one by one: 0 to 100000; the others are added up [default: 1000]
    #[arg(long, value_name = "COUNT", env = "UNALIKE_METRICS_TAGS_MAX")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) metrics_tags_max: Option<usize>,
    /// A stable name of this process, by which the store prefers the worker it had before [default: a random one]
    #[arg(long, value_name = "NAME", env = "UNALIKE_HOLDER")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) holder: Option<String>,
}

impl ServeArguments {
    /// What `unalike serve` without flags gets.
    pub(crate) fn from_environment() -> Self {
        #[derive(Parser)]
        #[command(name = "unalike")]
        struct Alone {
            #[command(flatten)]
            serve: ServeArguments,
        }
        Alone::parse_from(["unalike"]).serve
    }
}

/// Which ids to print.
#[derive(Debug, Args)]
pub(crate) struct NextArguments {
    /// The tag of a sequence, or the name of a snowflake
    pub(crate) name: String,
    /// How many ids
    #[arg(short = 'n', long = "count", value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: u64,
    /// Ids of a timestamp, a worker and a sequence instead of a tag's numbers
    #[arg(long)]
    pub(crate) snowflake: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TagsCommand {
    /// List tags in the byte order of their names
    List {
        /// Only tags after this name
        #[arg(long, value_name = "TAG")]
        after: Option<String>,
        /// The most tags to list
        #[arg(long, value_name = "COUNT", default_value_t = u64::MAX, hide_default_value = true)]
        limit: u64,
    },
    /// Create a tag
    Create {
        /// Its name: 1 to 128 bytes of UTF-8 without control characters
        tag: String,
        /// The first number: 1 to 2^63 - 1
        #[arg(long, value_name = "NUMBER", default_value_t = 1)]
        start: u64,
        /// How many numbers a segment asks for: a number, adaptive, or adaptive:MIN..MAX [default: adaptive]
        #[arg(long, value_name = "STEP")]
        step: Option<StepText>,
        /// When the next segment is asked for: a share used (10%), or a number remaining (500) [default: 10%]
        #[arg(long, value_name = "REFILL")]
        refill: Option<RefillText>,
        /// Ids ascend across all nodes in real time; each request goes to the store
        #[arg(long)]
        ordered: bool,
    },
    /// Change a tag's step and refill; processes that use the tag follow when they open it again
    Change {
        /// Its name
        tag: String,
        /// How many numbers a segment asks for: a number, adaptive, or adaptive:MIN..MAX
        #[arg(long, value_name = "STEP", required_unless_present = "refill")]
        step: Option<StepText>,
        /// When the next segment is asked for: a share used (10%), or a number remaining (500)
        #[arg(long, value_name = "REFILL")]
        refill: Option<RefillText>,
    },
    /// Raise a tag's next number; it is never lowered
    Raise {
        /// Its name
        tag: String,
        /// Every later segment starts here or above: 1 to 2^63 - 1
        next: u64,
    },
}

/// Which id to take apart.
#[derive(Debug, Args)]
pub(crate) struct DecodeArguments {
    /// The id, in decimal
    pub(crate) id: String,
    /// The layout of the id: `unalike layouts` lists them
    #[arg(long, value_name = "NAME", default_value = crate::layouts::LAYOUT_DEFAULT)]
    pub(crate) layout: String,
}
