//! The commands: one file each, and how they print. Nothing else prints.

pub(crate) mod arguments;
mod bench;
mod config;
mod doctor;
mod health;
mod import;
mod layouts;
mod leases;
mod log;
mod maelstrom;
mod manual;
mod next;
mod print;
mod random_ids;
mod reach;
mod schema;
mod serve;
mod store;
mod stripes;
mod tags;
mod tokens;

use anyhow::Context;
use tokio::runtime::{Builder, Runtime};
use unalike_stores::StoreUrl;

use crate::commands::arguments::{Arguments, Command, ConfigCommand, StoreCommand, StripesCommand, TokensCommand};
use crate::config::Config;
use crate::config::arguments::{CommonArguments, ServeArguments, unknown_variables};

/// Runs what the command line says.
///
/// # Errors
/// Those of the command.
pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let command = match arguments.command {
        Some(command) => command,
        None => Command::Serve(ServeArguments::from_environment().into()),
    };
    let common = &arguments.common;
    match command {
        Command::Serve(serve) => {
            let config = Config::load(common, Some(&serve.settings))?;
            log::start(config.log.as_deref().unwrap_or("info"), config.log_format)?;
            warn_of_variables();
            runtime(&mut Builder::new_multi_thread())?.block_on(serve::serve(config, serve))
        }
        Command::Next(next) => {
            let config = configure_command(common)?;
            runtime(&mut Builder::new_current_thread())?.block_on(next::next(config, next))
        }
        Command::Maelstrom(maelstrom) => {
            let config = configure_command(common)?;
            runtime(&mut Builder::new_current_thread())?.block_on(maelstrom::maelstrom(&config, maelstrom))
        }
        Command::Tags(tags) => {
            let config = configure_command(common)?;
            runtime(&mut Builder::new_current_thread())?.block_on(tags::tags(config, tags))
        }
        Command::Schema(schema) => {
            let config = configure_command(common)?;
            runtime(&mut Builder::new_current_thread())?.block_on(schema::schema(&config, &schema))
        }
        Command::Store(StoreCommand::Init) => {
            let config = configure_command(common)?;
            runtime(&mut Builder::new_current_thread())?.block_on(store::initialise(&config))
        }
        Command::Store(StoreCommand::Rebind { from }) => {
            let config = configure_command(common)?;
            runtime(&mut Builder::new_current_thread())?.block_on(store::rebind(&config, &from))
        }
        Command::Store(StoreCommand::Adopt { lift, yes, replication_ended }) => {
            let (config, leases) = configure_adoption(common)?;
            let adopt = store::adopt(&config, leases.as_ref(), (lift, yes), replication_ended, false);
            runtime(&mut Builder::new_current_thread())?.block_on(adopt)
        }
        Command::Store(StoreCommand::Restored { lift, yes, replication_ended }) => {
            let (config, leases) = configure_adoption(common)?;
            let restored = store::adopt(&config, leases.as_ref(), (lift, yes), replication_ended, true);
            runtime(&mut Builder::new_current_thread())?.block_on(restored)
        }
        Command::Stripes(StripesCommand::Resize { to, floor, yes }) => {
            let config = configure_command(common)?;
            runtime(&mut Builder::new_current_thread())?.block_on(stripes::resize(&config, to, floor, yes))
        }
        Command::Leases(leases) => {
            let config = configure_command(common)?;
            runtime(&mut Builder::new_current_thread())?.block_on(leases::leases(&config, leases))
        }
        Command::Uuid(uuid) => random_ids::uuid(&uuid),
        Command::Ulid(ulid) => random_ids::ulid(&ulid),
        Command::Decode(decode) => {
            let config = configure_command(common)?;
            runtime(&mut Builder::new_current_thread())?.block_on(layouts::decode(&config, &decode))
        }
        Command::Range(range) => layouts::range(&configure_command(common)?, &range),
        Command::Layouts(layouts) => layouts::layouts(&configure_command(common)?, layouts.command),
        Command::Bench(bench) => bench::run(&bench),
        Command::Health(health) => {
            let config = Config::load(common, Some(&ServeArguments::from_environment()))?;
            runtime(&mut Builder::new_current_thread())?.block_on(health::health(&config, &health))
        }
        Command::Doctor(doctor) => {
            // What it finds is in its report.
            log::collect()?;
            warn_of_variables();
            let loaded = Config::load(common, Some(&doctor.settings));
            runtime(&mut Builder::new_current_thread())?.block_on(doctor::doctor(loaded, doctor.json))
        }
        Command::Tokens(TokensCommand::New(token)) => tokens::new(&token),
        Command::Config(ConfigCommand::Check { file }) => config::check(common, file),
        Command::Config(ConfigCommand::Default) => config::default(),
        Command::Completions { shell } => manual::completions(shell),
        Command::Man { folder } => manual::pages(&folder),
    }
}

/// What the commands that print and end log, unless the user says otherwise: what is wrong though they succeed. These
/// modules report failures, which a command prints once, at its end.
const LOGGED_BY_COMMANDS: &str =
    "warn,unalike::lease_watch=off,unalike::service::flakes=off,unalike::service::troubles=off";

/// For the commands that print and end: they say nothing else unless something is wrong.
fn configure_command(common: &CommonArguments) -> anyhow::Result<Config> {
    let config = Config::load(common, None)?;
    log::start(config.log.as_deref().unwrap_or(LOGGED_BY_COMMANDS), config.log_format)?;
    warn_of_variables();
    Ok(config)
}

/// The same for what is said of one store (--store), with that store where it keeps leases only: every other command
/// refuses such a store there.
fn configure_adoption(common: &CommonArguments) -> anyhow::Result<(Config, Option<StoreUrl>)> {
    let Some([text]) = common.store.as_deref() else { return Ok((configure_command(common)?, None)) };
    let url = StoreUrl::new(text.as_str());
    if !url.keeps_only_leases() {
        return Ok((configure_command(common)?, None));
    }
    let common = CommonArguments { store: None, leases: Some(text.clone()), ..common.clone() };
    Ok((configure_command(&common)?, Some(url)))
}

/// A variable with a slip in its name would be a setting that is not in force.
fn warn_of_variables() {
    for unknown in unknown_variables() {
        tracing::warn!("{unknown}");
    }
}

fn runtime(builder: &mut Builder) -> anyhow::Result<Runtime> {
    builder.enable_all().build().context("the asynchronous runtime does not start")
}
