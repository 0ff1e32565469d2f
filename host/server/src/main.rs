//! `unalike`: the HTTP service and the command line, and the only place where stores, component and configuration meet.
//!
//! Errors end here: printed to the standard error with their causes, exit code 1 (2 for a command line that cannot be
//! read). Results go to the standard output, the log to the standard error.

mod arguments;
mod bench;
mod commands;
mod config;
mod http;
mod layouts;
mod problem;
mod serve;
mod service;
mod tags;

use std::io::{self, IsTerminal};
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use tokio::runtime::{Builder, Runtime};
use tracing_subscriber::EnvFilter;

use crate::arguments::{Arguments, Command, CommonArguments};
use crate::config::Config;
use crate::problem::with_causes;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
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
        // `unalike` alone is `unalike serve`, with the environment that goes with it.
        None => Command::Serve(arguments::ServeArguments::from_environment()),
    };
    let common = &arguments.common;
    match command {
        Command::Serve(serve) => {
            let config = Config::load(common, Some(&serve))?;
            start_log(config.log.as_deref().unwrap_or("info"))?;
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
        Command::Decode(decode) => commands::decode(&decode),
        Command::Layouts => commands::layouts(),
        Command::Bench(bench) => bench::run(&bench),
    }
}

/// For the commands that print and end: they say nothing else unless something is wrong.
fn configure_command(common: &CommonArguments) -> anyhow::Result<Config> {
    let config = Config::load(common, None)?;
    start_log(config.log.as_deref().unwrap_or("warn"))?;
    Ok(config)
}

fn runtime(builder: &mut Builder) -> anyhow::Result<Runtime> {
    builder.enable_all().build().context("the asynchronous runtime does not start")
}

fn start_log(filter: &str) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(filter)
        .with_context(|| format!("the log filter {filter:?} cannot be read: give a level such as info (--log)"))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .init();
    Ok(())
}
