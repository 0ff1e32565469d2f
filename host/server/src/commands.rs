//! The commands: one file each, and how they print. Nothing else prints.

pub(crate) mod arguments;
mod bench;
mod config;
mod import;
mod layouts;
mod leases;
mod log;
mod next;
mod policies;
mod random_ids;
mod schema;
mod serve;
mod store;
mod stripes;
mod tags;

use std::io::{self, ErrorKind, Write as _};

use anyhow::Context;
use tokio::runtime::{Builder, Runtime};

use crate::commands::arguments::{Arguments, Command, ConfigCommand, StoreCommand, StripesCommand};
use crate::config::Config;
use crate::config::arguments::{CommonArguments, ServeArguments, unknown_variables};

/// Runs what the command line says.
///
/// # Errors
/// Those of the command.
pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let command = match arguments.command {
        Some(command) => command,
        None => Command::Serve(ServeArguments::from_environment()),
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
            runtime(&mut Builder::new_current_thread())?.block_on(next::next(config, next))
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
        Command::Store(StoreCommand::Adopt { lift, yes }) => {
            let config = configure_command(common)?;
            runtime(&mut Builder::new_current_thread())?.block_on(store::adopt(&config, lift, yes))
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
        Command::Decode(decode) => layouts::decode(&configure_command(common)?, &decode),
        Command::Range(range) => layouts::range(&configure_command(common)?, &range),
        Command::Layouts(layouts) => layouts::layouts(&configure_command(common)?, layouts.command),
        Command::Bench(bench) => bench::run(&bench),
        Command::Config(ConfigCommand::Check { file }) => config::check(common, file),
        Command::Config(ConfigCommand::Default) => config::default(),
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
    for unknown in unknown_variables() {
        tracing::warn!("{unknown}");
    }
}

fn runtime(builder: &mut Builder) -> anyhow::Result<Runtime> {
    builder.enable_all().build().context("the asynchronous runtime does not start")
}

/// Tags that are read at once.
pub(crate) const PAGE: u32 = 1_000;

/// Whether the reader has gone, as `head` does: no error, and no reason to go on.
pub(crate) fn is_closed(written: io::Result<()>) -> anyhow::Result<bool> {
    match written {
        Ok(()) => Ok(false),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(true),
        Err(error) => Err(error).context("the standard output cannot be written to"),
    }
}

/// Columns of text, each as wide as its widest cell.
pub(crate) struct Table<const COLUMNS: usize> {
    rows: Vec<[String; COLUMNS]>,
}

impl<const COLUMNS: usize> Table<COLUMNS> {
    pub(crate) fn new(titles: [impl Into<String>; COLUMNS]) -> Self {
        Self { rows: vec![titles.map(Into::into)] }
    }

    pub(crate) fn add(&mut self, row: [String; COLUMNS]) {
        self.rows.push(row);
    }

    /// Whether there is nothing below the titles.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.len() == 1
    }

    pub(crate) fn print(&self) -> anyhow::Result<()> {
        let mut widths = [0; COLUMNS];
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        let mut text = String::new();
        for row in &self.rows {
            let cells: Vec<_> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            text.push_str(cells.join("  ").trim_end());
            text.push('\n');
        }
        print(&text)
    }
}

pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    is_closed(out.write_all(text.as_bytes()).and_then(|()| out.flush())).map(drop)
}
