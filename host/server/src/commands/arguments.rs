//! The command line, and the environment variables beside it. What they mean is in [`crate::config`].

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgGroup, Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use clap_complete::Shell;
use unalike::{ID_MAX, RefillPolicy, Spread, StepPolicy};

use crate::commands::bench::arguments::{BENCH_HELP, BenchArguments};
use crate::config::arguments::{CommonArguments, ServeArguments, told};
use crate::config::channels::{Channel, PREFIX_MAX};
use crate::config::formats::Notation;
use crate::config::tokens::Scope;
use crate::service::random_ids::UuidVersion;
use crate::words::decimal;

const EXAMPLES: &str = "\
Examples:
  unalike                            serve on http://127.0.0.1:8080, ids kept in ./unalike.sqlite
  curl http://127.0.0.1:8080/v1/sequences/order/ids?count=3
  unalike next order -n 5            five ids on the terminal, from the same file
  unalike next default --snowflake   one snowflake id
  unalike uuid -n 3                  three UUIDs of version 7, without any store
  unalike decode 1169786042799259000 --layout leaf     without --layout: whose id it may be
  unalike range --layout leaf --from 2026-01-01 --to 2026-02-01     the ids of a month, for an index
  unalike decode ORD-20261122-0000000042 --tag order     by the template in the configuration
  unalike config default > unalike.toml     a configuration file to start from
  unalike --store 'mysql://ids@db/ids?password-file=/etc/ids.pw'     sequences and leases in MySQL
  unalike --store 'postgres://ids@db/ids?password-file=/etc/ids.pw'  the same in PostgreSQL
  unalike --store etcd://etcd1,etcd2,etcd3/ids                       and in etcd
  unalike --leases zookeeper://zk1,zk2,zk3 --local-leases /var/lib/unalike  workers from ZooKeeper
  unalike leases list                who holds which worker, and until when
  unalike --store 'mysql://ids@db/ids' tags import --from leaf   continue where Leaf's tables end
  unalike --store redis://cache/0 --backing sqlite://backing.sqlite  from Redis, which may lose data
  unalike --store sqlite:///var/lib/ids.sqlite serve --listen 0.0.0.0:8080 --tokens tokens.toml

Settings, by precedence: the flag, its environment variable, the configuration file, the default.
Exit codes: 0 done, 1 failed (the standard error says why), 2 the command line cannot be read.";

impl Arguments {
    /// Those of this process. A command line that cannot be read ends it with exit code 2.
    pub(crate) fn of_process() -> Self {
        Self::read_from(std::env::args_os()).unwrap_or_else(|error| error.exit())
    }

    /// The whole command line, as its help shows it.
    pub(crate) fn whole_command() -> clap::Command {
        arranged(Self::command())
    }

    /// The flags of `serve` are before that word, after it, or without it.
    fn read_from(line: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> Result<Self, clap::Error> {
        // Without the environment, which is read once, at the word; its help tells of it.
        let serve = ServeArguments::augment_args(clap::Command::new("serve"));
        let flags = serve.get_arguments().map(|flag| flag.clone().env(None::<&'static str>).hide(true));
        let mut command = arranged(Self::command().args(flags));
        let line: Vec<OsString> = line.into_iter().map(Into::into).collect();
        let matches = command.try_get_matches_from_mut(&line).map_err(|error| told(error, &line, &mut command))?;
        let arguments = Self::from_arg_matches(&matches).and_then(|mut arguments| {
            let early = ServeArguments::from_arg_matches(&matches)?;
            arguments.command = Some(match arguments.command {
                None => Command::Serve(ServeArguments::from_environment().with(&early, None)?.into()),
                Some(Command::Serve(late)) => Command::Serve(ServeCommand {
                    settings: late.settings.with(&early, matches.subcommand_matches("serve"))?,
                    ..late
                }),
                Some(other) => {
                    early.refuse(&matches)?;
                    other
                }
            });
            Ok(arguments)
        });
        arguments.map_err(|error| error.format(&mut command))
    }
}

/// The command with what the derivation does not say: flags under headings, and numbers with a sign taken for what they
/// are, so that the error is about the number.
fn arranged(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|argument| {
        let heading = heading(argument.get_id().as_str());
        let argument = match heading {
            Some(heading) => argument.help_heading(heading),
            None => argument,
        };
        let takes_values = argument.get_action().takes_values();
        if takes_values { argument.allow_negative_numbers(true) } else { argument }
    });
    let names: Vec<String> = command.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    names.iter().fold(command, |command, name| command.mut_subcommand(name, arranged))
}

/// Under which heading a setting is in the help; what a command has for itself comes first.
fn heading(setting: &str) -> Option<&'static str> {
    match setting {
        "store" | "backing" | "create_tags" | "config" => Some("Store"),
        "leases"
        | "lease_horizon_max_ms"
        | "lease_skew_max_ms"
        | "local_leases"
        | "worker"
        | "unsafe_static_worker"
        | "holder" => Some("Leases"),
        "listen" | "tokens" | "insecure_no_auth" | "drop_in" | "drain_ms" | "shutdown_timeout_ms" => Some("HTTP"),
        "tags_max" | "sub_keys_max" | "wait_max_ms" | "count_max" | "segment_count_max" | "sequence_idle_ms"
        | "body_max_bytes" | "url_max_bytes" | "head_max_bytes" | "headers_max" | "connections_max"
        | "head_timeout_ms" | "idle_timeout_ms" | "request_timeout_ms" | "metrics_tags_max" => Some("Limits"),
        "log" | "log_format" => Some("Logging"),
        _ => None,
    }
}

/// A whole number of the command line, from `MIN` to `MAX`.
fn whole<const MIN: u64, const MAX: u64>(text: &str) -> Result<u64, String> {
    let number = decimal(text).filter(|number| (MIN..=MAX).contains(number));
    number.ok_or_else(|| match MAX {
        ID_MAX => format!("it must be a whole number from {MIN} to 2^63 - 1 ({ID_MAX})"),
        u64::MAX => format!("it must be a whole number from {MIN} to 2^64 - 1 ({MAX})"),
        _ => format!("it must be a whole number from {MIN} to {MAX}"),
    })
}

/// The number of a worker that is leased.
fn leased_worker(text: &str) -> Result<u32, String> {
    let wanted = "it must be the number that `unalike leases list` shows under WORKER";
    decimal(text).ok_or_else(|| wanted.to_owned())
}

/// A tag begins once.
fn no_start(_: &str) -> Result<u64, String> {
    Err("the start of a tag never changes: raise its next number, with `unalike tags raise`".to_owned())
}

/// Distributed id generator: no two ids alike.
#[derive(Debug, Parser)]
#[command(name = "unalike", version, after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) common: CommonArguments,
    /// Without a command: serve.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// What `unalike serve` is told: settings, and what is no setting since it changes what the server is.
#[derive(Debug, Default, Args)]
pub(crate) struct ServeCommand {
    #[command(flatten)]
    pub(crate) settings: ServeArguments,
    #[cfg(feature = "component")]
    #[command(flatten)]
    pub(crate) component: ComponentArguments,
}

impl From<ServeArguments> for ServeCommand {
    #[cfg_attr(not(feature = "component"), allow(clippy::needless_update, reason = "settings are all there is then"))]
    fn from(settings: ServeArguments) -> Self {
        Self { settings, ..Self::default() }
    }
}

/// A component that answers in the server's place.
#[cfg(feature = "component")]
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ComponentArguments {
    /// Have this component answer, with the store behind it: a file of wasm that exports wasi:http 0.3 or 0.2
    ///
    /// It gets all requests but those to /health/.. and /metrics; /health/ready asks it, too. It reaches the store's
    /// numbers, the hosts in --component-hosts, clocks and random numbers, and nothing else. Where tokens are required,
    /// its requests need one, too, which is valid for all tags.
    #[arg(long, value_name = "FILE", help_heading = "Component")]
    pub(crate) component: Option<PathBuf>,
    /// A variable of the component's environment; once for each. NAME alone has the value of the server's own
    #[arg(long, value_name = "NAME[=VALUE]", value_parser = variable, requires = "component", help_heading = "Component")]
    pub(crate) component_env: Vec<(String, String)>,
    /// The hosts that the component may send requests to: HOST or HOST:PORT, as it writes them [default: none]
    #[arg(long, value_name = "HOSTS", value_delimiter = ',', value_parser = outgoing_host, requires = "component", help_heading = "Component")]
    pub(crate) component_hosts: Vec<String>,
    /// How many requests an instance of the component serves before it is dropped [default: 128; of wasi:http 0.2 1]
    #[arg(long, value_name = "COUNT", value_parser = whole::<1, 4_294_967_295>, requires = "component", help_heading = "Component")]
    pub(crate) component_requests: Option<u64>,
    /// How many of them at once; of wasi:http 0.2 always 1 [default: 16]
    #[arg(long, value_name = "COUNT", value_parser = whole::<1, 10_000>, requires = "component", help_heading = "Component")]
    pub(crate) component_at_once: Option<u64>,
    /// How many requests the component serves at once, in all its instances; others wait [default: 1000]
    #[arg(long, value_name = "COUNT", value_parser = whole::<1, 1_000_000>, requires = "component", help_heading = "Component")]
    pub(crate) component_concurrency: Option<u64>,
    /// How much memory an instance may take, in MiB [default: 64]
    #[arg(long, value_name = "MIB", value_parser = whole::<1, 4_096>, requires = "component", help_heading = "Component")]
    pub(crate) component_memory: Option<u64>,
}

#[cfg(feature = "component")]
fn variable(text: &str) -> Result<(String, String), String> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, value.to_owned()),
        None => {
            let own = std::env::var(text);
            (text, own.map_err(|_| "the server has no such variable: write NAME=VALUE, or set it before")?)
        }
    };
    if name.is_empty() { Err("it must be NAME or NAME=VALUE".to_owned()) } else { Ok((name.to_owned(), value)) }
}

/// A host is compared as it is written, so what is none would allow nothing, without a word.
#[cfg(feature = "component")]
fn outgoing_host(text: &str) -> Result<String, String> {
    let is_host = !text.is_empty() && !text.contains(['/', '@', '?', '#', '*']) && !text.contains(char::is_whitespace);
    if is_host {
        Ok(text.to_owned())
    } else {
        Err("it must be HOST or HOST:PORT, without a scheme and a path".to_owned())
    }
}

#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant, reason = "a process has one of them")]
pub(crate) enum Command {
    /// Serve ids over HTTP (the default command)
    #[command(after_help = SERVE_HELP)]
    Serve(ServeCommand),
    /// Print ids, one per line, from the store
    Next(NextArguments),
    /// Print UUIDs, one per line: unique by randomness, without a store
    Uuid(UuidArguments),
    /// Print ULIDs, one per line: unique by randomness, without a store
    Ulid(UlidArguments),
    /// List, create and change the tags of the store
    #[command(subcommand)]
    Tags(TagsCommand),
    /// Print the tables for MySQL or PostgreSQL and the least privileges on them, or in etcd; or upgrade the tables
    #[command(after_help = SCHEMA_HELP)]
    Schema(SchemaArguments),
    /// Accept another server behind a store, or make an empty Redis a store
    #[command(subcommand)]
    Store(StoreCommand),
    /// Change a set of stores that number together
    #[command(subcommand)]
    Stripes(StripesCommand),
    /// List the workers that snowflakes lease, or end a lease
    #[command(subcommand)]
    Leases(LeasesCommand),
    /// Take an id apart, or say which layouts it fits
    Decode(DecodeArguments),
    /// Print the first and last id of a span of time, for a search in an index
    Range(RangeArguments),
    /// List the snowflake layouts, or show one: bits, rates, workers, the date it ends
    Layouts(LayoutsArguments),
    /// Measure a running server: rates, latencies, and that no id comes twice
    #[command(after_help = BENCH_HELP)]
    Bench(BenchArguments),
    /// Be a node of Maelstrom's workload `unique-ids`, for Jepsen's checker
    #[command(after_help = MAELSTROM_HELP)]
    Maelstrom(MaelstromArguments),
    /// Ask a server whether it is ready: exit code 0 if it is, for probes that start a program
    Health(HealthArguments),
    /// Look at the configuration, the stores and this machine, and say what is wrong, what is risky and what to do
    ///
    /// It takes no id, and makes no file and no table; in tables that are there and empty, and in Redis, it notes whose
    /// they are, as the first start would. The exit code is 0 unless something is wrong; risks are only told.
    Doctor(DoctorArguments),
    /// Make a token for the file of tokens
    #[command(subcommand)]
    Tokens(TokensCommand),
    /// Check the configuration, or print a file with every key
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print a script that completes commands and flags in a shell
    ///
    /// For bash: unalike completions bash > /usr/share/bash-completion/completions/unalike
    Completions {
        /// The shell
        #[arg(value_enum)]
        shell: Shell,
    },
    /// Write manual pages: unalike.1, and one for each command
    ///
    /// unalike man .; man ./unalike-serve.1
    Man {
        /// The folder they go to, which is there
        folder: PathBuf,
    },
}

/// Which server is asked, and what.
#[derive(Debug, Args)]
pub(crate) struct HealthArguments {
    /// Where it listens: HOST:PORT, http://HOST:PORT or https://HOST:PORT [default: the setting `listen`, from
    /// UNALIKE_LISTEN or the configuration file]
    ///
    /// Without a scheme the settings say it: https where they have a certificate (tls_cert). That server is this
    /// machine's own and is sent no secret: whatever certificate it has is taken, unless --ca is given.
    pub(crate) address: Option<String>,
    /// A PEM file of the authorities that may vouch for the server
    /// [default: those of the system for an https:// address]
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// Ask only whether it is alive, whatever its store does
    #[arg(long)]
    pub(crate) live: bool,
    /// Ask whether ids of this tag can be given, whatever else the server is used for
    #[arg(long, conflicts_with = "live")]
    pub(crate) tag: Option<String>,
    /// Ask whether ids of this snowflake can be given, whatever else the server is used for
    #[arg(long, value_name = "NAME", conflicts_with = "live")]
    pub(crate) snowflake: Option<String>,
}

/// Which server it is about, and how it reports.
#[derive(Debug, Args)]
pub(crate) struct DoctorArguments {
    #[command(flatten)]
    pub(crate) settings: ServeArguments,
    /// Report in JSON: {"wrong":0,"risks":1,"findings":[{"subject":"..","verdict":"ok","finding":".."}]}
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokensCommand {
    /// Print an entry for the file of tokens, and its token on the standard error
    ///
    /// The entry has the token's SHA-256 alone, so whoever reads the file learns no token. Add it to the file, and send
    /// the server SIGHUP: unalike tokens new billing --scope read >> tokens.toml
    New(TokenArguments),
}

/// What a new token is good for.
#[derive(Debug, Args)]
pub(crate) struct TokenArguments {
    /// Its name, for the log
    pub(crate) name: String,
    /// What it may do: read hands out ids and looks at things, lease also grants segments and workers to hosts, admin
    /// also creates, changes and raises tags
    #[arg(long, value_enum, value_name = "SCOPE")]
    pub(crate) scope: Scope,
    /// The tags and snowflakes that it is valid for, of which each may end in a * [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) tags: Vec<String>,
    /// After how many days it expires [default: never]
    #[arg(long, value_name = "DAYS", value_parser = whole::<1, 36_500>)]
    pub(crate) days: Option<u64>,
    /// The most ids that it may take of each server per second [default: any number]
    #[arg(long, value_name = "IDS", value_parser = whole::<1, 4_294_967_295>)]
    pub(crate) ids_per_s: Option<u64>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print each setting and where it comes from; exit code 1 where the server could not do its work
    Check {
        /// The configuration file [default: --config, UNALIKE_CONFIG, or none]
        file: Option<PathBuf>,
    },
    /// Print a configuration file with every key, its meaning and its default
    Default,
}

const SERVE_HELP: &str = "\
Routes (GET and POST where ids are handed out):
  /v1/sequences/TAG/ids?count=N&sub=KEY              {\"tag\":\"order\",\"ids\":[\"1\",\"2\"]}
  /v1/snowflakes/NAME/ids?count=N                    the snowflake \"default\" needs no configuration
    &format=decimal|padded|base36|base62|base32|uuid|template&shard_key=N&as=string|number
  /v1/uuids?version=4|7&count=N  /v1/ulids?count=N   {\"version\":7,\"uuids\":[..]}; without any store
  /v1/tags  /v1/tags/TAG                             list, create (POST), change (PATCH)
  /v1/decode/ID?layout=NAME  /v1/layouts             without a layout: whose id it may be
  /v1/decode/TEXT?tag=TAG|snowflake=NAME|format=FORMAT   a text as it was shown
  /v1/range?layout=NAME&from=TIME&to=TIME            the least and the greatest id of a span of time
  /health/live  /health/ready  /metrics  /openapi.json
  --drop-in leaf,tinyid,cosid                        the paths of these services, for their clients

`Accept: text/plain` gives one id per line. Errors are application/problem+json.

A configuration file (`unalike config default` prints one with every key):
  listen = \"0.0.0.0:8080\"
  tokens = \"/etc/unalike/tokens.toml\"
  store = \"sqlite:///var/lib/unalike/ids.sqlite\"
  create_tags = false
  [snowflakes.web]          # GET /v1/snowflakes/web/ids
  layout = \"cosid-53\"     # see `unalike layouts`, or written out; `unalike config default` has more

A token file, for --tokens (`unalike tokens new` makes entries); requests then carry `Authorization: Bearer TOKEN`, except \
for /health/.. and /openapi.json:
  [[tokens]]
  name = \"billing\"
  token = \"at-least-16-characters\"   # or sha256 = \"..\"
  scope = \"read\"                    # or \"lease\": also grant segments and workers to hosts
                                    # or \"admin\": also create, change and raise tags
  tags = [\"order\", \"invoice*\"]    # may be left out
  expires = 2027-12-31              # may be left out

SIGTERM or SIGINT ends it: running requests finish, unused ids go back to the store. A second one ends it at once. \
On SIGTERM it keeps serving for drain_ms first, while /health/ready says 503. SIGHUP reads the token file again.";

/// Which ids to print.
#[derive(Debug, Args)]
pub(crate) struct NextArguments {
    /// The tag of a sequence, or the name of a snowflake
    pub(crate) name: String,
    /// How many ids
    #[arg(short = 'n', long = "count", value_name = "COUNT", default_value_t = 1, value_parser = whole::<1, { u64::MAX }>)]
    pub(crate) count: u64,
    /// Also more than 1000000 ids
    #[arg(long)]
    pub(crate) yes: bool,
    /// Take ids of the snowflake of this name, in place of a tag's numbers
    #[arg(long)]
    pub(crate) snowflake: bool,
    /// A sub-key of the tag, which has numbers of its own
    #[arg(long, value_name = "KEY", conflicts_with = "snowflake")]
    pub(crate) sub: Option<String>,
    /// How ids are written [default: by the template in the configuration, or in decimal]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: Option<Notation>,
    /// The shard key, where ids carry bits of one: for example a user's id
    #[arg(long, value_name = "NUMBER", value_parser = whole::<0, { u64::MAX }>)]
    pub(crate) shard_key: Option<u64>,
}

const MAELSTROM_HELP: &str = "\
Maelstrom starts one such process per node, and speaks with it by lines of JSON on the standard input and output:
  #!/bin/sh
  exec unalike --store 'mysql://ids@db/ids' maelstrom

  maelstrom test -w unique-ids --bin ./node.sh --node-count 3 \\
    --time-limit 30 --rate 1000 --nemesis partition";

/// Which ids a node of Maelstrom's gives.
#[derive(Debug, Args)]
pub(crate) struct MaelstromArguments {
    /// The tag of a sequence, or the name of a snowflake
    #[arg(default_value = "maelstrom")]
    pub(crate) name: String,
    /// Give ids of the snowflake of this name, in place of a tag's numbers
    #[arg(long)]
    pub(crate) snowflake: bool,
}

/// Which UUIDs to print.
#[derive(Debug, Args)]
pub(crate) struct UuidArguments {
    /// The version by RFC 9562
    #[arg(long, value_name = "VERSION", value_enum, default_value_t = UuidVersion::DEFAULT)]
    pub(crate) version: UuidVersion,
    /// How many
    #[arg(short = 'n', long = "count", value_name = "COUNT", default_value_t = 1, value_parser = whole::<1, { u64::MAX }>)]
    pub(crate) count: u64,
}

/// Which ULIDs to print.
#[derive(Debug, Args)]
pub(crate) struct UlidArguments {
    /// How many
    #[arg(short = 'n', long = "count", value_name = "COUNT", default_value_t = 1, value_parser = whole::<1, { u64::MAX }>)]
    pub(crate) count: u64,
}

const SCHEMA_HELP: &str = "\
For those who do not let programs create tables: run what it prints as an administrator, and add create=false to the URL.
  unalike schema --dialect leaf --user ids | mariadb leaf
  unalike --store postgres://ids@db/ids schema --user ids | psql ids
  unalike --store mysql://admin@db/ids schema upgrade
Of etcd it prints the commands that let a user read and write below the prefix, and nothing else:
  unalike --store etcd://etcd1,etcd2,etcd3/ids schema --user ids | sh";

/// Which tables to print.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct SchemaArguments {
    /// Whose tables: unalike, leaf, tinyid, cosid, sequence-table, id-generator, batch, slow-ordered, ticket; in
    /// PostgreSQL unalike, sequence [default: those of --store; SQLite needs none, and gets MySQL's]
    #[arg(long, value_name = "NAME")]
    pub(crate) dialect: Option<String>,
    /// The user that the privileges are for: NAME, or NAME@HOST
    #[arg(long, value_name = "NAME", default_value = "unalike")]
    pub(crate) user: String,
    #[command(subcommand)]
    pub(crate) command: Option<SchemaCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SchemaCommand {
    /// Bring unalike's own tables in --store to the version of this program; older programs keep running
    Upgrade,
}

#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Make an empty Redis a store, without a durable one behind it (--backing none)
    ///
    /// A Redis that has lost its data is empty too, and would begin again at 1: so it is never made a store by its use.
    Init,
    /// Use the server that is now behind --store, for example after a fail-over
    ///
    /// A server that is not the one that was used before is refused, as it may lack that one's last commits. This lifts
    /// every tag, so that numbers whose grants were lost are not granted again, and records the server. Tags and
    /// sub-keys that it has lost begin as far above their start. Where several dialects have tables in one database,
    /// each is adopted by its own URL, and refused until then; start the programs after that.
    Adopt {
        /// By how many numbers each tag is lifted: more than were granted in the commits that may be lost
        #[arg(long, value_name = "COUNT", value_parser = whole::<1, { u64::MAX }>)]
        lift: u64,
        /// Also by more than 1000000000 numbers, which nobody gets then
        #[arg(long)]
        yes: bool,
        /// Replication to this server was ended by hand; only for a user who may not look (MariaDB: SLAVE MONITOR)
        #[arg(long)]
        replication_ended: bool,
    },
    /// Go on with data that were restored from a backup, a dump or a snapshot
    ///
    /// Such data lack what was granted since. This lifts every tag by COUNT, and has each tag or sub-key that the
    /// backup lacks begin COUNT above its start. No lease begins before all earlier ones have ended. Run it before any
    /// program uses the store, with the URL of the store itself (--store): behind Redis that is the durable one, and
    /// Redis itself where there is none (--backing none). ZooKeeper is named there too; it keeps leases only, so COUNT
    /// lifts nothing. It can be run again if it is interrupted; each run lifts once more.
    Restored {
        /// By how many numbers each tag is lifted: more than the watermark of any one tag moved since the backup
        /// (raises and earlier lifts count), and more than the greatest number of a tag that the backup lacks
        #[arg(long, value_name = "COUNT", value_parser = whole::<1, { u64::MAX }>)]
        lift: u64,
        /// Also by more than 1000000000 numbers, which nobody gets then
        #[arg(long)]
        yes: bool,
        /// Replication to this server was ended by hand; only for a user who may not look (MariaDB: SLAVE MONITOR)
        #[arg(long)]
        replication_ended: bool,
    },
    /// Let another durable store (--backing) grant what a store in Redis hands out
    ///
    /// Moves all tags there, with the time that leases and clocks were granted, and makes Redis record it. The previous
    /// store grants nothing from then on, to anybody: programs that still use it hand out what Redis has, and then fail
    /// until they are restarted with the new one. It can be run again if it is interrupted, and once for each Redis,
    /// database and prefix that the store backed.
    Rebind {
        /// The durable store that was used until now
        #[arg(long, value_name = "URL")]
        from: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum StripesCommand {
    /// Move the tags of --store to other stores: more, fewer, or others in their place
    ///
    /// Every store of both lists must answer. Two resizes at once do no harm: one of them, or both, say so and must be
    /// repeated. Programs that use the old set get errors from then on, until they are started again with the new one.
    /// It can be run again if it is interrupted.
    Resize {
        /// The stores of the new set, in its order; a single one is no longer part of a set
        #[arg(long, value_name = "URL", required = true, num_args = 1..)]
        to: Vec<String>,
        /// No tag or sub-key continues below this number, or begins below it if it is new: needed when a store of the
        /// old set is lost, whose names and numbers nobody knows; without it all stores of the old set must be named
        #[arg(long, value_name = "NUMBER", default_value_t = 0, value_parser = whole::<0, ID_MAX>)]
        floor: u64,
        /// Confirm a floor above 1000000000, below which nobody gets any more numbers
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum LeasesCommand {
    /// List the newest lease of each worker, by namespace
    ///
    /// A lease runs, has ended, or runs out because its extension is forbidden. Its ids have timestamps from
    /// FROM to UNTIL, in UTC: both are the same where it was given back unused. GRANT is the lease's own name.
    List {
        /// The namespace: the name of a snowflake [default: all]
        namespace: Option<String>,
    },
    /// Forbid the extension of a worker's lease: its holder may use it until it ends, and asks for another
    Release {
        /// The namespace: the name of a snowflake
        namespace: String,
        /// The worker's number
        #[arg(id = "leased_worker", value_name = "WORKER", value_parser = leased_worker)]
        worker: u32,
    },
    /// Say that nobody holds a lease of a namespace, where no durable store knows it: in Redis with --backing none,
    /// and for --unsafe-static-worker
    ///
    /// Without it, leases of a new namespace in Redis with --backing none begin when all that it could have forgotten
    /// have ended, and a static worker does not begin at all.
    Init {
        /// The namespace: the name of a snowflake
        namespace: String,
        /// The layout of its ids, by name or written out [default: that of the configured snowflake]
        #[arg(long, value_name = "LAYOUT")]
        layout: Option<String>,
        /// For a static worker that was used before, elsewhere: an instant after all its timestamps, in Unix
        /// milliseconds [default: it was never used]
        #[arg(long, value_name = "MS")]
        not_before_ms: Option<u64>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum TagsCommand {
    /// Show a tag; over Redis how far it has got below its ceiling, and how much it was used
    ///
    /// CUR is the number that was handed out last and MAX the ceiling, RECENTLY and LONG-TERM are how many numbers were
    /// handed out in the last 5 and 30 minutes.
    Show {
        /// Its name
        tag: String,
        /// Only this sub-key
        #[arg(long, value_name = "KEY")]
        sub: Option<String>,
    },
    /// List tags in the byte order of their names
    List {
        /// Only tags after this name
        #[arg(long, value_name = "TAG")]
        after: Option<String>,
        /// Of that tag, only its sub-keys after this one
        #[arg(long, value_name = "KEY", requires = "after")]
        after_sub: Option<String>,
        /// The most tags to list
        #[arg(long, value_name = "COUNT", default_value_t = u64::MAX, hide_default_value = true, value_parser = whole::<1, { u64::MAX }>)]
        limit: u64,
    },
    /// Create a tag
    Create {
        /// Its name: 1 to 128 bytes of UTF-8 without control characters
        tag: String,
        /// The first number: 1 to 2^63 - 1
        #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = whole::<1, ID_MAX>)]
        start: u64,
        /// How many numbers a segment asks for: a number, adaptive, or adaptive:MIN..MAX [default: adaptive]
        #[arg(long, value_name = "STEP")]
        step: Option<StepPolicy>,
        /// When the next segment is asked for: a share used (10%), or a number remaining (500) [default: 10%]
        #[arg(long, value_name = "REFILL")]
        refill: Option<RefillPolicy>,
        /// Ids ascend across all servers in real time; each request waits for the store
        #[arg(long)]
        ordered: bool,
        /// Create it as this channel of an issuer, in place of --start, --step, --refill and --ordered
        #[arg(long, value_name = "NAME", conflicts_with_all = ["start", "step", "refill", "ordered"])]
        channel: Option<Channel>,
        /// How many ids an unordered tag fetches at once [default: 5000]
        #[arg(long, value_name = "COUNT", requires = "channel", value_parser = whole::<1, ID_MAX>)]
        buff_size: Option<u64>,
        /// Fetch the next when this many are left [default: 500, a tenth of a smaller buff-size]
        #[arg(long, value_name = "COUNT", requires = "channel", value_parser = whole::<0, ID_MAX>)]
        lowest_critical_value: Option<u64>,
        /// What the ids of an unordered tag begin with
        #[arg(long, value_name = "NUMBER", requires = "channel", value_parser = whole::<1, PREFIX_MAX>)]
        prefix: Option<u64>,
    },
    /// Change a tag's step and refill; processes that use the tag follow when they open it again
    #[command(group(ArgGroup::new("change").args(["step", "refill"]).required(true).multiple(true)))]
    Change {
        /// Its name
        tag: String,
        /// How many numbers a segment asks for: a number, adaptive, or adaptive:MIN..MAX
        #[arg(long, value_name = "STEP")]
        step: Option<StepPolicy>,
        /// When the next segment is asked for: a share used (10%), or a number remaining (500)
        #[arg(long, value_name = "REFILL")]
        refill: Option<RefillPolicy>,
        /// Only this sub-key
        #[arg(long, value_name = "KEY")]
        sub: Option<String>,
        /// Not there: what to do in its place is said.
        #[arg(long, hide = true, value_parser = no_start)]
        start: Option<u64>,
    },
    /// Raise a tag's next number; a number that was passed already changes nothing
    Raise {
        /// Its name
        tag: String,
        /// Every later segment starts here or above: 1 to 2^63 - 1
        #[arg(value_parser = whole::<1, ID_MAX>)]
        next: u64,
        /// Only this sub-key
        #[arg(long, value_name = "KEY")]
        sub: Option<String>,
        /// Also by more than 1000000000 numbers, which nobody gets then
        #[arg(long)]
        yes: bool,
    },
    /// Compare a tag's or a snowflake's configured format with the one in the store, and say what can repeat
    ///
    /// The store keeps the first format that a tag was shown in, and servers refuse another. Stop them before --accept
    /// binds the configured one in its place. It exits with 1 if the formats differ.
    Format {
        /// The tag's name; with --snowflake, the snowflake's
        tag: String,
        /// Look at a snowflake, and not at a tag
        #[arg(long)]
        snowflake: bool,
        /// Bind the configured format, whatever repeats
        #[arg(long)]
        accept: bool,
    },
    /// Continue in --store where the tags of another store end
    ///
    /// Each tag is ended in the other store, for every program that uses it, in the transaction that reads it, and then
    /// created here from the next number on, or raised to it. It can be run again; a tag is never lowered.
    Import(ImportArguments),
}

/// Which tags go where.
#[derive(Debug, Args)]
pub(crate) struct ImportArguments {
    /// The other store: a URL, or the name of a dialect (leaf, tinyid, ..) for other tables or keys in the database of
    /// --store; parameters may follow: id-generator?keys=TAG:KEY,TAG:KEY
    #[arg(long, value_name = "URL|DIALECT")]
    pub(crate) from: String,
    /// Only this tag, with its sub-keys [default: all that it has]
    #[arg(long = "tag", value_name = "TAG")]
    pub(crate) tags: Vec<String>,
    /// Continue at this number, above all that the other store granted; also finishes an interrupted import
    #[arg(long, value_name = "NUMBER", requires = "tags", value_parser = whole::<1, ID_MAX>)]
    pub(crate) at: Option<u64>,
    /// With --at: only this sub-key of the tag
    #[arg(long, value_name = "KEY", requires = "at")]
    pub(crate) sub: Option<String>,
    /// Every client writes each name as the other store has it. Where that store ignores letter case, for example,
    /// another spelling is a tag of its own here and begins at 1
    #[arg(long)]
    pub(crate) names_as_written: bool,
    /// Only read the other store: every program that used it was stopped for good
    #[arg(long)]
    pub(crate) source_stopped: bool,
    /// With --at: confirm a jump by more than 1000000000 numbers, which nobody then gets
    #[arg(long, requires = "at")]
    pub(crate) yes: bool,
}

/// Which id to take apart.
#[derive(Debug, Args)]
pub(crate) struct DecodeArguments {
    /// The id: in decimal; without --layout, in any notation that its shape identifies
    pub(crate) id: String,
    /// The layout of the id, by name (`unalike layouts` lists them) or written out: "41/10/12 epoch 2024-01-01"
    /// [default: all that the id fits]
    #[arg(long, value_name = "LAYOUT")]
    pub(crate) layout: Option<String>,
    /// Also layouts that it does not fit, with the reason
    #[arg(long, conflicts_with = "layout")]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) text: TextArguments,
}

/// Whose the id is, in place of a layout: it is read as it was shown.
#[derive(Debug, Args)]
pub(crate) struct TextArguments {
    /// Read a text by the configured format of this tag
    #[arg(long, value_name = "TAG", conflicts_with_all = ["layout", "all", "snowflake"])]
    pub(crate) tag: Option<String>,
    /// Read a text by the configured format of this snowflake
    #[arg(long, value_name = "NAME", conflicts_with_all = ["layout", "all"])]
    pub(crate) snowflake: Option<String>,
    /// How the id is written [default: by the template of the tag or snowflake, or in decimal]
    #[arg(long, value_name = "FORMAT", conflicts_with_all = ["layout", "all"])]
    pub(crate) format: Option<Notation>,
}

/// The ids of which time.
#[derive(Debug, Args)]
pub(crate) struct RangeArguments {
    /// The layout of the ids, by name (`unalike layouts` lists them) or written out: "41/10/12 epoch 2024-01-01"
    #[arg(long, value_name = "LAYOUT", default_value = crate::config::layouts::LAYOUT_DEFAULT)]
    pub(crate) layout: String,
    /// When it begins: a date (00:00 UTC), RFC 3339, or Unix milliseconds
    #[arg(long, value_name = "TIME")]
    pub(crate) from: String,
    /// When it ends: the first instant that is not in it
    #[arg(long, value_name = "TIME")]
    pub(crate) to: String,
}

/// Whether to list or to show.
#[derive(Debug, Args)]
pub(crate) struct LayoutsArguments {
    /// Without a command: list.
    #[command(subcommand)]
    pub(crate) command: Option<LayoutsCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LayoutsCommand {
    /// List the known layouts and those of the configuration
    List,
    /// Show a layout: its bits, rate limits, first and last date, what JavaScript makes of its ids, where it comes from
    Show {
        /// The layout, by name or written out: "41/10/12 epoch 2024-01-01"; also tick 10 ms, and sequence-first
        #[arg(value_name = "LAYOUT", default_value = crate::config::layouts::LAYOUT_DEFAULT)]
        layout: String,
        /// Also show what it costs to begin ticks elsewhere: none, rotating:BITS or random:BITS
        #[arg(long, value_name = "SPREAD")]
        spread: Option<Spread>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::drop_in::DropIn;

    fn served(line: &[&str]) -> Result<ServeArguments, String> {
        match Arguments::read_from(line).map_err(|error| error.to_string())?.command {
            Some(Command::Serve(serve)) => Ok(serve.settings),
            other => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn lines_that_must_not_be_wrapped_fit_100_columns() {
        for help in [EXAMPLES, SERVE_HELP, SCHEMA_HELP, MAELSTROM_HELP, BENCH_HELP] {
            for line in help.lines().filter(|line| line.starts_with("  ")) {
                assert!(line.chars().count() <= 100, "{line}");
            }
        }
    }

    #[test]
    fn flags_of_serve_stand_before_it_behind_it_or_without_it() {
        let wanted = ServeArguments {
            drop_in: Some(vec![DropIn::Leaf, DropIn::Cosid]),
            insecure_no_auth: Some(true),
            ..ServeArguments::default()
        };
        let flags = ["--drop-in", "leaf,cosid", "--insecure-no-auth"];
        let [drop_in, names, open] = flags;
        for line in [
            ["unalike", drop_in, names, open].as_slice(),
            &["unalike", "serve", drop_in, names, open],
            &["unalike", drop_in, names, open, "serve"],
            &["unalike", drop_in, names, "serve", open],
            &["unalike", open, "serve", drop_in, names],
        ] {
            assert_eq!(served(line).as_ref(), Ok(&wanted), "{line:?}");
        }
        let common = Arguments::read_from(["unalike", "--drop-in", "leaf", "serve", "--store", "sqlite://a"]);
        assert_eq!(common.unwrap().common.store, Some(vec!["sqlite://a".to_owned()]));
    }

    #[test]
    fn flags_of_serve_are_said_once_and_of_serve_alone() {
        let twice = served(&["unalike", "--listen", "[::1]:0", "serve", "--listen", "[::1]:1"]).unwrap_err();
        assert!(twice.contains("--listen") && twice.contains("give it once"), "{twice}");
        let other = served(&["unalike", "--drop-in", "leaf", "next", "order"]).unwrap_err();
        assert!(other.contains("--drop-in is one of serve, and next"), "{other}");
        let unknown = served(&["unalike", "--drop-inn", "leaf"]).unwrap_err();
        assert!(unknown.contains("--drop-inn"), "{unknown}");
    }
}
