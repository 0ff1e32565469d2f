//! The settings as flags and environment variables. What is said of each here is its documentation everywhere.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, FromArgMatches as _, ValueEnum};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::config::drop_in::DropIn;
use crate::config::worker::Worker;
use crate::words::likeliest;

/// What our variables begin with.
const VARIABLES_BEGIN: &str = "UNALIKE_";

/// Settings of every command that opens the store.
///
/// What is said here about each key is its documentation everywhere: in the help, and in `unalike config default`.
#[derive(Clone, Debug, Default, Args, Serialize)]
pub(crate) struct CommonArguments {
    /// Where ids are kept: sqlite://PATH, mysql://USER@HOST/DATABASE, postgres://USER@HOST/DATABASE,
    /// etcd://HOST,HOST/PREFIX or redis://HOST/DATABASE; several together are the stripes of one set, always in the
    /// same order
    /// [default: sqlite://unalike.sqlite]
    ///
    /// A relative path is relative to the working directory. A path may be followed by ?create=false, so that a missing
    /// file is not created, and busy-timeout-ms=. A database may be followed by ?dialect=NAME for the tables of another
    /// system (leaf, tinyid, cosid, sequence-table, id-generator, batch, slow-ordered, ticket in MySQL), which are
    /// created only with create=true, or for sequences that exist (sequence in PostgreSQL), and by password-file=PATH
    /// or password-env=NAME for its password, ssl-mode=, ssl-ca=, connections=, .. Several stores are a list in the
    /// file, one --store each on the command line, and one line each in the variable: all but one of them may be down.
    /// Redis needs a backing store, must be the only store, and uses TLS as rediss://HOST/DATABASE?ssl-ca=PATH; the
    /// master that Sentinels name is redis+sentinel://HOST,HOST/MASTER, and a Redis Cluster redis+cluster://HOST,HOST.
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "UNALIKE_STORE",
        hide_env_values = true,
        action = clap::ArgAction::Append,
        value_delimiter = '\n'
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) store: Option<Vec<String>>,
    /// The durable store behind a store or leases in Redis, which need one: sqlite://PATH, mysql://USER@HOST/DATABASE,
    /// postgres://USER@HOST/DATABASE, etcd://HOST,HOST/PREFIX, or none
    ///
    /// It grants Redis its numbers and the time of its leases, and keeps the tags. Whatever Redis loses is then a gap,
    /// and while this store is down Redis hands out what it has. With none, a fail-over of Redis may repeat ids.
    #[arg(long, global = true, value_name = "URL", env = "UNALIKE_BACKING", hide_env_values = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) backing: Option<String>,
    /// Its former name, for one more version.
    #[arg(
        long = "watermark",
        global = true,
        hide = true,
        value_name = "URL",
        env = "UNALIKE_WATERMARK",
        hide_env_values = true,
        conflicts_with = "backing"
    )]
    #[serde(skip)]
    pub(crate) backing_before: Option<String>,
    /// Where the workers of snowflakes are leased: sqlite://PATH, mysql://USER@HOST/DATABASE,
    /// postgres://USER@HOST/DATABASE, etcd://HOST,HOST/PREFIX, redis://HOST/DATABASE, zookeeper://HOST, or none
    /// [default: the store, or the durable store behind it]
    ///
    /// While it is down, snowflakes continue until their leases end (horizon_ms). Sequences are not affected.
    /// Redis needs a backing store here, too. Several stores that number together lease no workers: name one for that.
    #[arg(long, global = true, value_name = "URL", env = "UNALIKE_LEASES", hide_env_values = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) leases: Option<String>,
    /// How far ahead a lease may reach, in milliseconds: 1 to 31622400000 (366 days) [default: 600000]
    ///
    /// A namespace of leases keeps the value that it was first used with; another value is for new namespaces.
    #[arg(long, global = true, value_name = "MS", env = "UNALIKE_LEASE_HORIZON_MAX_MS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lease_horizon_max_ms: Option<u64>,
    /// How far this clock may be from the lease store's, in milliseconds: 0 to 3600000 [default: 10000]
    ///
    /// A process whose clock is further off gets no lease.
    #[arg(long, global = true, value_name = "MS", env = "UNALIKE_LEASE_SKEW_MAX_MS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lease_skew_max_ms: Option<u64>,
    /// A directory on a local disk for running leases: a restarted server continues with them [default: none]
    ///
    /// The server then starts while the lease store is down, and one that was killed keeps no second worker busy. It
    /// does not give its lease back when it ends. One process at a time uses the directory. Commands do without it,
    /// unless the worker is static.
    #[arg(long, global = true, value_name = "DIR", env = "UNALIKE_LOCAL_LEASES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) local_leases: Option<PathBuf>,
    /// The worker to prefer when it is free: a number, or ordinal, the number at the end of the host's name [default:
    /// none]
    ///
    /// Pods of a StatefulSet have such names. The lease store decides; only unsafe_static_worker makes the number
    /// binding.
    #[arg(long, global = true, value_name = "NUMBER", env = "UNALIKE_WORKER")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) worker: Option<Worker>,
    /// Take the worker without a lease: ids repeat if another process ever has the same number [default: false]
    ///
    /// For numbers that something else keeps apart. It needs --leases none, --worker and --local-leases, where a file,
    /// made by `unalike leases init`, guards against a clock that goes back and a second process on this machine, and
    /// against nothing on others.
    #[arg(
        long,
        global = true,
        value_name = "BOOL",
        env = "UNALIKE_UNSAFE_STATIC_WORKER",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) unsafe_static_worker: Option<bool>,
    /// A configuration file in TOML: `unalike config default` prints one [default: none]
    #[arg(long, global = true, value_name = "FILE", env = "UNALIKE_CONFIG")]
    #[serde(skip)]
    pub(crate) config: Option<PathBuf>,
    /// Create a tag when its first id is asked for [default: true]
    ///
    /// With false only `unalike tags create` and POST /v1/tags create tags, and requests create sub-keys only of tags
    /// that have a sub_keys_max in the configuration file. In the tables of other systems the default creates nothing:
    /// a tag is created on first use there only if this is set to true.
    #[arg(long, global = true, value_name = "BOOL", env = "UNALIKE_CREATE_TAGS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) create_tags: Option<bool>,
    /// The most tags: 1 or more [default: 1000000]
    #[arg(long, global = true, value_name = "COUNT", env = "UNALIKE_TAGS_MAX")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tags_max: Option<u64>,
    /// The most sub-keys of a tag, unless its own table has a sub_keys_max [default: 100000]
    ///
    /// Sub-keys do not count as tags. Where a counter starts again the limit holds for each period.
    #[arg(long, global = true, value_name = "COUNT", env = "UNALIKE_SUB_KEYS_MAX")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sub_keys_max: Option<u64>,
    /// How long a call waits for ids, in milliseconds: 1 to 600000 [default: 5000]
    ///
    /// Keep it below request_timeout_ms: then the answer to a late request says what the store said.
    #[arg(long, global = true, value_name = "MS", env = "UNALIKE_WAIT_MAX_MS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) wait_max_ms: Option<u64>,
    /// What to log to standard error: error, warn, info, debug, trace, or a filter such as warn,unalike=debug
    /// [default: info when serving; warn for commands, which print a failure only once, at the end]
    #[arg(long, global = true, value_name = "FILTER", env = "UNALIKE_LOG")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) log: Option<String>,
    /// The form of log lines: text for people, json for programs [default: text]
    #[arg(long, global = true, value_name = "FORMAT", env = "UNALIKE_LOG_FORMAT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) log_format: Option<LogFormat>,
}

/// How a line of the log is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Settings of the HTTP service, documented as those of [`CommonArguments`] are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ServeArguments {
    /// Where to listen: HOST:PORT, port 0 takes a free one [default: 127.0.0.1:8080]
    ///
    /// An address that other machines reach needs tokens, or insecure_no_auth.
    #[arg(long, value_name = "ADDR", env = "UNALIKE_LISTEN")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) listen: Option<String>,
    /// A file of tokens; each request needs one of them: TOML with [[tokens]] tables [default: none]
    ///
    /// Each table has name, token (or sha256, the token's hash), scope ("read", "lease" or "admin"), and perhaps tags,
    /// a list of the tags and snowflakes that it is valid for: whole names, or prefixes followed by "*"; expires, the
    /// day that ends it; and ids_per_s, its quota. In place of a token it may have client, a name in the certificates
    /// of clients (tls_client_ca). SIGHUP reads it again.
    #[arg(long, value_name = "FILE", env = "UNALIKE_TOKENS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tokens: Option<PathBuf>,
    /// Listen beyond this machine without tokens: everyone who reaches the port may do everything [default: false]
    #[arg(
        long,
        value_name = "BOOL",
        env = "UNALIKE_INSECURE_NO_AUTH",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) insecure_no_auth: Option<bool>,
    /// The server's certificate, a PEM file with the whole chain, its own certificate first: the port speaks HTTPS
    /// [default: none]
    ///
    /// It needs tls_key. SIGHUP reads certificate, key and client authorities again.
    #[arg(long, value_name = "FILE", env = "UNALIKE_TLS_CERT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The private key of that certificate, a PEM file without a password [default: none]
    #[arg(long, value_name = "FILE", env = "UNALIKE_TLS_KEY")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tls_key: Option<PathBuf>,
    /// The authorities whose client certificates are accepted, a PEM file [default: none]
    ///
    /// What a client with a certificate may do is said in the file of tokens (client = "NAME"). A client may come
    /// without one, and send a token.
    #[arg(long, value_name = "FILE", env = "UNALIKE_TLS_CLIENT_CA")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tls_client_ca: Option<PathBuf>,
    /// Say nothing of tokens that come from other machines without TLS: a proxy encrypts them [default: false]
    #[arg(
        long,
        value_name = "BOOL",
        env = "UNALIKE_INSECURE_NO_TLS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) insecure_no_tls: Option<bool>,
    /// The names by which requests may call this server in their Host header, besides localhost and its own address
    /// [default: none more; any where tokens are required]
    ///
    /// Names without a port, *.NAME for all names that end in .NAME, or * for any. Otherwise a page could point a name
    /// of its own at this address, and the browser that shows it would take ids and raise tags. A server behind a proxy
    /// that forwards the Host of its clients needs their names here, unless it requires tokens.
    #[arg(long, value_name = "NAMES", env = "UNALIKE_ALLOWED_HOSTS", value_delimiter = ',')]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) allowed_hosts: Option<Vec<String>>,
    /// The origins whose pages may use this server, as browsers write them (https://app.example), or * for any
    /// [default: none]
    ///
    /// They may read the answers, too (CORS). Pages of others get 403 from everything that changes a tag or uses
    /// numbers up.
    #[arg(long, value_name = "ORIGINS", env = "UNALIKE_ALLOWED_ORIGINS", value_delimiter = ',')]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) allowed_origins: Option<Vec<String>>,
    /// The most ids that one request gets: 1 to 1000000 [default: 10000]
    ///
    /// 10,000 are some 220 KB of text, which one client can have without others noticing.
    #[arg(long, value_name = "COUNT", env = "UNALIKE_COUNT_MAX")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) count_max: Option<u32>,
    /// Close a sequence or sub-key after this time without use, in milliseconds: 1000 to 2678400000 (31 days)
    /// [default: 900000]
    ///
    /// What it has left goes back to the store. The next request for its ids opens it again.
    #[arg(long, value_name = "MS", env = "UNALIKE_SEQUENCE_IDLE_MS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sequence_idle_ms: Option<u64>,
    /// The most numbers of a segment for a host that makes ids itself, or a client of CosId or tinyid: 1 to 1000000000
    /// [default: 1000000]
    #[arg(long, value_name = "COUNT", env = "UNALIKE_SEGMENT_COUNT_MAX")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) segment_count_max: Option<u64>,
    /// The largest request body, in bytes: 1 to 1048576 [default: 65536]
    ///
    /// The largest that makes sense is below 1 KB.
    #[arg(long, value_name = "BYTES", env = "UNALIKE_BODY_MAX_BYTES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) body_max_bytes: Option<usize>,
    /// The longest URL, in bytes: 256 to 65534; a longer one is answered with 414 [default: 8192]
    ///
    /// The longest tag takes 384 bytes, percent-encoded.
    #[arg(long, value_name = "BYTES", env = "UNALIKE_URL_MAX_BYTES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) url_max_bytes: Option<usize>,
    /// The largest head of a request, URL and headers together, in bytes: 1024 to 1048576; a larger one is answered
    /// with 431 [default: 16384]
    ///
    /// Proxies allow clients 8 to 16 KB, and add some of their own. It is also the most that is read ahead of a
    /// connection, at least 8 KiB.
    #[arg(long, value_name = "BYTES", env = "UNALIKE_HEAD_MAX_BYTES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) head_max_bytes: Option<usize>,
    /// The most headers of a request: 1 to 1000; more are answered with 431 [default: 100]
    ///
    /// Up to 100 are read without allocating.
    #[arg(long, value_name = "COUNT", env = "UNALIKE_HEADERS_MAX")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) headers_max: Option<usize>,
    /// The most open connections: 1 to 1000000; one more is answered with 503 and closed [default: 20000]
    ///
    /// A busy one holds some 20 KB, an idle one some 5 KB, and each a file descriptor. The limit of open files is
    /// raised to the hard one at the start; when that is not enough, fewer are taken, and the log says how many.
    #[arg(long, value_name = "COUNT", env = "UNALIKE_CONNECTIONS_MAX")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) connections_max: Option<usize>,
    /// How long a client may take for the head of a request, in milliseconds: 100 to 600000; then it is answered with
    /// 408 [default: 10000]
    ///
    /// A head is one packet, seldom three; the time leaves room for two that were lost. It begins with the connection
    /// or with the first byte after another request.
    #[arg(long, value_name = "MS", env = "UNALIKE_HEAD_TIMEOUT_MS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) head_timeout_ms: Option<u64>,
    /// How long a connection may be idle between requests, or take no byte of an answer, in milliseconds: 100 to
    /// 3600000 [default: 75000]
    ///
    /// Longer than a load balancer keeps its own idle connections (60 s with most), so that it never sends a request
    /// into a connection that is being closed.
    #[arg(long, value_name = "MS", env = "UNALIKE_IDLE_TIMEOUT_MS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) idle_timeout_ms: Option<u64>,
    /// After how long a request is answered with 503, in milliseconds: 1 to 600000 [default: 10000]
    #[arg(long, value_name = "MS", env = "UNALIKE_REQUEST_TIMEOUT_MS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) request_timeout_ms: Option<u64>,
    /// How long the server continues to serve after SIGTERM while /health/ready says 503, in milliseconds: 0 to 600000
    /// [default: 5000]
    ///
    /// Load balancers and Kubernetes take some seconds until they send no more requests. SIGINT (Ctrl-C) does not wait.
    #[arg(long, value_name = "MS", env = "UNALIKE_DRAIN_MS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) drain_ms: Option<u64>,
    /// How long running requests may take after that, in milliseconds: 0 to 600000 [default: 10000]
    #[arg(long, value_name = "MS", env = "UNALIKE_SHUTDOWN_TIMEOUT_MS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) shutdown_timeout_ms: Option<u64>,
    /// How many tags /metrics shows one by one: 0 to 100000; the others are added up [default: 1000]
    #[arg(long, value_name = "COUNT", env = "UNALIKE_METRICS_TAGS_MAX")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) metrics_tags_max: Option<usize>,
    /// A stable name of this process, to get its last worker again [default: the host's name and the address]
    ///
    /// `unalike leases list` shows it. Two processes with one name stay unique.
    #[arg(long, value_name = "NAME", env = "UNALIKE_HOLDER")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) holder: Option<String>,
    /// Other id services whose paths the server also has, so that their clients work unchanged [default: none]
    ///
    /// leaf, tinyid and cosid. Where tokens are required, tinyid's clients send one in their parameter token; for
    /// Leaf's and CosId's a proxy has to add the header.
    #[arg(long, value_name = "NAMES", env = "UNALIKE_DROP_IN", value_delimiter = ',')]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) drop_in: Option<Vec<DropIn>>,
}

impl ServeArguments {
    /// These with the flags before the word `serve`, which override the environment; `late` has the flags after it.
    pub(crate) fn with(&self, early: &Self, late: Option<&ArgMatches>) -> Result<Self, clap::Error> {
        let mut keys = self.keys()?;
        for (key, value) in early.keys()? {
            if late.is_some_and(|late| late.value_source(&key) == Some(ValueSource::CommandLine)) {
                let flag = flag_of(&key);
                let what = format!("the flag {flag} is given before and after the word serve: give it once\n");
                return Err(clap::Error::raw(ErrorKind::ArgumentConflict, what));
            }
            keys.insert(key, value);
        }
        serde_json::from_value(Value::Object(keys)).map_err(|error| clap::Error::raw(ErrorKind::ValueValidation, error))
    }

    /// Refuses flags of `serve` before another command.
    pub(crate) fn refuse(&self, matches: &ArgMatches) -> Result<(), clap::Error> {
        let Some(key) = self.keys()?.keys().next().cloned() else { return Ok(()) };
        let command = matches.subcommand_name().unwrap_or_default();
        let what = format!("the flag {} is one of serve, and {command} has none such: leave it out\n", flag_of(&key));
        Err(clap::Error::raw(ErrorKind::UnknownArgument, what))
    }

    /// Those that are said, by their names.
    fn keys(&self) -> Result<Map<String, Value>, clap::Error> {
        match serde_json::to_value(self) {
            Ok(Value::Object(keys)) => Ok(keys),
            Ok(_) => Ok(Map::new()),
            Err(error) => Err(clap::Error::raw(ErrorKind::ValueValidation, error)),
        }
    }

    /// What `unalike serve` without flags gets.
    pub(crate) fn from_environment() -> Self {
        let mut command = Self::augment_args(clap::Command::new("unalike"));
        let matches = command.try_get_matches_from_mut(["unalike"]);
        let serve = matches.and_then(|matches| Self::from_arg_matches(&matches));
        serve.unwrap_or_else(|error| told(error, &[], &mut command).exit())
    }
}

/// The flag of a key.
fn flag_of(key: &str) -> String {
    format!("--{}", key.replace('_', "-"))
}

/// The error of a value, in words, and with the variable that it comes from.
pub(crate) fn told(error: clap::Error, line: &[OsString], command: &mut clap::Command) -> clap::Error {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    let (Some(argument), Some(value)) = (text(ContextKind::InvalidArg), text(ContextKind::InvalidValue)) else {
        return error;
    };
    let Some(flag) = argument.split(['=', ' ', '[']).next().filter(|flag| flag.starts_with("--")) else { return error };
    let is_given = line.iter().filter_map(|word| word.to_str()).any(|word| word.split('=').next() == Some(flag));
    let variable = format!("{VARIABLES_BEGIN}{}", flag.trim_start_matches('-').replace('-', "_").to_uppercase());
    let is_variable = !is_given && std::env::var_os(&variable).is_some();
    let why = match (error.kind(), std::error::Error::source(&error)) {
        (ErrorKind::ValueValidation, Some(source)) if source.is::<std::num::ParseIntError>() => {
            "it must be a whole number".to_owned()
        }
        (ErrorKind::ValueValidation, Some(source)) => match source.to_string().split_once(" is not in ") {
            Some((_, range)) => format!("it must be a whole number from {}", range.replace("..=", " to ")),
            None if is_variable => source.to_string(),
            None => return error,
        },
        (ErrorKind::InvalidValue, _) if is_variable => match error.get(ContextKind::ValidValue) {
            Some(ContextValue::Strings(values)) => format!("it must be {}", values.join(" or ")),
            _ => return error,
        },
        _ => return error,
    };
    let place = if is_variable { format!("the variable {variable}") } else { argument };
    error_of(line, command, error.kind(), format!("the value {value:?} of {place} is not valid: {why}"))
}

/// The error of a line, with the usage of its own command.
fn error_of(line: &[OsString], command: &mut clap::Command, kind: ErrorKind, text: String) -> clap::Error {
    let names: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
    let at = line.iter().position(|word| names.iter().any(|name| *word == **name));
    if let Some((word, rest)) = at.and_then(|at| line.get(at..)?.split_first())
        && let Some(found) = command.find_subcommand_mut(word)
    {
        return error_of(rest, found, kind, text);
    }
    command.error(kind, text)
}

/// Variables that begin like ours and that other programs set: Kubernetes those of a service named `unalike`, and the
/// builds of the component and of the packages.
fn is_anothers(variable: &str) -> bool {
    let of_service = ["UNALIKE_PORT", "UNALIKE_SERVICE_"].iter().any(|begin| variable.starts_with(begin));
    let of_builds = ["UNALIKE_COMPONENT_WASM", "UNALIKE_FORMATS_WASM", "UNALIKE_NATIVE", "UNALIKE_NODE_NATIVE"];
    of_service || of_builds.contains(&variable)
}

/// One sentence for each variable of the environment that begins like ours and that nothing reads.
pub(crate) fn unknown_variables() -> Vec<String> {
    let settings = ServeArguments::augment_args(CommonArguments::augment_args(clap::Command::new("unalike")));
    let known: Vec<&str> = settings
        .get_arguments()
        .filter_map(|argument| argument.get_env()?.to_str()?.strip_prefix(VARIABLES_BEGIN))
        .collect();
    let mut unknown: Vec<String> = std::env::vars_os()
        .filter_map(|(name, _)| name.into_string().ok())
        .filter(|name| !is_anothers(name))
        .filter_map(|name| name.strip_prefix(VARIABLES_BEGIN).map(str::to_owned))
        .filter(|name| !known.contains(&name.as_str()))
        .map(|name| {
            let meant = match likeliest(&name, &known) {
                Some(meant) => format!("did you mean {VARIABLES_BEGIN}{meant}?"),
                None => "`unalike serve --help` names those that are known".to_owned(),
            };
            format!("the variable {VARIABLES_BEGIN}{name} is unknown, and changes nothing: {meant}")
        })
        .collect();
    unknown.sort();
    unknown
}
