//! The commands that print and end.

use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::PathBuf;

use anyhow::{Context, anyhow};
use unalike::storage::{Mode, SegmentStore, TagOptions, TagRecord};
use unalike::{Sequence, Snowflake};

use unalike_sqlite::SqliteStore;

use crate::arguments::{CommonArguments, DecodeArguments, NextArguments, ServeArguments, TagsCommand};
use crate::auth::Tokens;
use crate::config::{self, Config};
use crate::layouts;
use crate::service::{Service, change_tag, connect};
use crate::tags::{refill_text, step_text};

/// Ids that are taken at once: no more than these are lost if the reader goes away.
const BATCH: u32 = 1_000;

/// Tags that are read at once.
const PAGE: u32 = 1_000;

/// `unalike next`
pub(crate) async fn next(config: Config, arguments: NextArguments) -> anyhow::Result<()> {
    let service = Service::open(&config, Tokens::unwanted()).await?;
    let printed = print_ids(&service, &arguments).await;
    // Also after an error: what was not used goes back.
    service.close().await;
    printed
}

/// Where the ids come from.
enum Generator<'a> {
    Sequence(Sequence),
    Snowflake(&'a Snowflake),
}

async fn print_ids(service: &Service, arguments: &NextArguments) -> anyhow::Result<()> {
    let name = &arguments.name;
    let generator = if arguments.snowflake {
        let unknown = "is configured: add [snowflakes.NAME] to the configuration file (--config)";
        Generator::Snowflake(service.snowflake(name).ok_or_else(|| anyhow!("no snowflake {name:?} {unknown}"))?)
    } else {
        Generator::Sequence(service.sequence(name).await?)
    };
    let mut out = BufWriter::new(io::stdout().lock());
    let mut left = arguments.count;
    while left > 0 {
        let count = u32::try_from(left).unwrap_or(BATCH).min(BATCH);
        let batch = match &generator {
            Generator::Sequence(sequence) => sequence.take(count).await?,
            Generator::Snowflake(snowflake) => snowflake.take(count).await?,
        };
        left -= u64::from(count);
        for id in &batch {
            if is_closed(writeln!(out, "{id}"))? {
                return Ok(());
            }
        }
    }
    is_closed(out.flush()).map(drop)
}

/// Whether the reader has gone, as `head` does: no error, and no reason to go on.
fn is_closed(written: io::Result<()>) -> anyhow::Result<bool> {
    match written {
        Ok(()) => Ok(false),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(true),
        Err(error) => Err(error).context("the standard output cannot be written to"),
    }
}

/// `unalike tags`
pub(crate) async fn tags(config: Config, command: TagsCommand) -> anyhow::Result<()> {
    let store = connect(&config).await?;
    let done = run(&store, command).await;
    store.close().await;
    done
}

async fn run(store: &SqliteStore, command: TagsCommand) -> anyhow::Result<()> {
    let record = match command {
        TagsCommand::List { after, limit } => return list(store, after, limit).await,
        TagsCommand::Create { tag, start, step, refill, ordered } => {
            let defaults = TagOptions::default();
            let options = TagOptions {
                start,
                step: step.map_or(defaults.step, |step| step.0),
                refill: refill.map_or(defaults.refill, |refill| refill.0),
                mode: if ordered { Mode::Ordered } else { Mode::Buffered },
            };
            store.create_tag(&tag, &options).await?
        }
        TagsCommand::Change { tag, step, refill } => {
            change_tag(store, &tag, step.map(|step| step.0), refill.map(|refill| refill.0)).await?
        }
        TagsCommand::Raise { tag, next } => store.raise_tag(&tag, next).await?,
    };
    let mut table = Table::new(TAG_COLUMNS);
    table.add(tag_row(&record));
    table.print()
}

async fn list(store: &SqliteStore, mut after: Option<String>, limit: u64) -> anyhow::Result<()> {
    let mut left = limit;
    let mut table = Table::new(TAG_COLUMNS);
    while left > 0 {
        let page = u32::try_from(left).unwrap_or(PAGE).min(PAGE);
        let records = store.tags(after.as_deref(), page).await?;
        let Some(last) = records.last() else { break };
        after = Some(last.tag.clone());
        left = left.saturating_sub(u64::from(page));
        for record in &records {
            table.add(tag_row(record));
        }
    }
    table.print()
}

const TAG_COLUMNS: [&str; 6] = ["TAG", "MODE", "START", "WATERMARK", "STEP", "REFILL"];

fn tag_row(record: &TagRecord) -> [String; 6] {
    let options = &record.options;
    [
        record.tag.clone(),
        options.mode.name().to_owned(),
        options.start.to_string(),
        record.watermark.to_string(),
        step_text(options.step),
        refill_text(options.refill),
    ]
}

/// `unalike decode`
pub(crate) fn decode(arguments: &DecodeArguments) -> anyhow::Result<()> {
    let decoded = layouts::decode(&arguments.id, &arguments.layout)?;
    let text = format!(
        "time        {} ({} Unix ms)\ndatacenter  {}\nworker      {}\nsequence    {}\n",
        decoded.time, decoded.unix_ms, decoded.datacenter, decoded.worker, decoded.sequence
    );
    print(&text)
}

/// `unalike layouts`
pub(crate) fn layouts() -> anyhow::Result<()> {
    let mut table =
        Table::new(["LAYOUT", "BITS = TIME + NODE + SEQUENCE", "IDS/S PER WORKER", "WORKERS", "ENDS", "NOTE"]);
    for layout in layouts::all_layouts() {
        table.add([
            layout.name.to_owned(),
            format!("{} = {}", layout.bits, layout.widths),
            layout.ids_per_second.to_string(),
            layout.workers.to_string(),
            layout.ends.get(..10).unwrap_or(&layout.ends).to_owned(),
            if layout.ended { "has ended: for reading only".to_owned() } else { String::new() },
        ]);
    }
    table.print()
}

/// `unalike config check`
pub(crate) fn check_config(common: &CommonArguments, file: Option<PathBuf>) -> anyhow::Result<()> {
    let mut common = common.clone();
    common.config = file.or(common.config);
    print(&config::effective_text(&common, &ServeArguments::from_environment())?)
}

/// `unalike config default`
pub(crate) fn default_config() -> anyhow::Result<()> {
    print(&config::default_text()?)
}

/// Columns of text, each as wide as its widest cell.
struct Table<const COLUMNS: usize> {
    rows: Vec<[String; COLUMNS]>,
}

impl<const COLUMNS: usize> Table<COLUMNS> {
    fn new(titles: [&str; COLUMNS]) -> Self {
        Self { rows: vec![titles.map(str::to_owned)] }
    }

    fn add(&mut self, row: [String; COLUMNS]) {
        self.rows.push(row);
    }

    fn print(&self) -> anyhow::Result<()> {
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

fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    is_closed(out.write_all(text.as_bytes()).and_then(|()| out.flush())).map(drop)
}
