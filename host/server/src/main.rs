//! `unalike`: the HTTP service and the command line, and the only place where stores, component and configuration meet.
//!
//! Errors end here: printed to the standard error with their causes, exit code 1 (2 for a command line that cannot be
//! read). Results go to the standard output, the log to the standard error.

// The OpenAPI document has more members than macros expand to by default.
#![recursion_limit = "256"]

mod arguments;
mod auth;
mod bench;
mod channels;
mod commands;
mod config;
mod connections;
mod cover;
mod doors;
mod flakes;
mod formats;
mod http;
mod import;
mod layout_commands;
mod layouts;
mod leases;
mod log;
mod problem;
mod random_ids;
mod request_id;
mod serve;
mod service;
mod stamps;
mod store_watch;
mod stores;
mod sub_keys;
mod tags;
mod tinyid_tokens;
mod troubles;

use std::process::ExitCode;

use anyhow::Context;
use mimalloc::MiMalloc;
use tokio::runtime::{Builder, Runtime};

use crate::arguments::{Arguments, Command, CommonArguments, ConfigCommand, StoreCommand, StripesCommand};
use crate::config::Config;
use crate::problem::with_causes;

/// What thousands of connections had goes back to the system when they close.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    let arguments = Arguments::of_process();
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("unalike: {}", with_causes(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> anyhow::Result<()> {
    let command = match arguments.command {
        Some(command) => command,
        None => Command::Serve(arguments::ServeArguments::from_environment()),
    };
    let common = &arguments.common;
    match command {
        Command::Serve(serve) => {
            let config = Config::load(common, Some(&serve))?;
            log::start(config.log.as_deref().unwrap_or("info"), config.log_format)?;
            warn_of_variables();
            runtime(&mut Builder::new_multi_thread())?.block_on(serve::serve(config))
        }
        Command::Next(next) => {
            let config = configure_command(common)?;
            runtime(&mut Builder::new_current_thread())?.block_on(commands::next(config, next))
        }
        Command::Tags(tags) => {
            let config = configure_command(common)?;
            runtime(&mut Builder::new_current_thread())?.block_on(commands::tags(config, tags))
        }
        Command::Schema(schema) => {
            let config = configure_command(common)?;
            runtime(&mut Builder::new_current_thread())?.block_on(commands::schema(&config, &schema))
        }
        Command::Store(StoreCommand::Init) => {
            let config = configure_command(common)?;
            runtime(&mut Builder::new_current_thread())?.block_on(stores::initialise(&config))
        }
        Command::Store(StoreCommand::Adopt { lift, yes }) => {
            let config = configure_command(common)?;
            runtime(&mut Builder::new_current_thread())?.block_on(stores::adopt(&config, lift, yes))
        }
        Command::Stripes(StripesCommand::Resize { to, floor, yes }) => {
            let config = configure_command(common)?;
            runtime(&mut Builder::new_current_thread())?.block_on(stores::resize(&config, to, floor, yes))
        }
        Command::Leases(leases) => {
            let config = configure_command(common)?;
            runtime(&mut Builder::new_current_thread())?.block_on(commands::leases(&config, leases))
        }
        Command::Uuid(uuid) => random_ids::uuid(&uuid),
        Command::Ulid(ulid) => random_ids::ulid(&ulid),
        Command::Decode(decode) => layout_commands::decode(&configure_command(common)?, &decode),
        Command::Range(range) => layout_commands::range(&configure_command(common)?, &range),
        Command::Layouts(layouts) => layout_commands::layouts(&configure_command(common)?, layouts.command),
        Command::Bench(bench) => bench::run(&bench),
        Command::Config(ConfigCommand::Check { file }) => commands::check_config(common, file),
        Command::Config(ConfigCommand::Default) => commands::default_config(),
    }
}

/// For the commands that print and end: they say nothing else unless something is wrong.
fn configure_command(common: &CommonArguments) -> anyhow::Result<Config> {
    let config = Config::load(common, None)?;
    log::start(config.log.as_deref().unwrap_or("warn"), config.log_format)?;
    warn_of_variables();
    Ok(config)
}

/// A variable with a slip in its name would be a setting that is not in force.
fn warn_of_variables() {
    for unknown in arguments::unknown_variables() {
        tracing::warn!("{unknown}");
    }
}

fn runtime(builder: &mut Builder) -> anyhow::Result<Runtime> {
    builder.enable_all().build().context("the asynchronous runtime does not start")
}
