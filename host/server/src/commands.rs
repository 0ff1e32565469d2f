//! The commands that print and end.

use std::fmt::Write as _;
use std::io::{self, BufWriter, ErrorKind, Write as _};
use std::path::PathBuf;

use anyhow::{Context, anyhow, bail, ensure};
use unalike::storage::{Ceiling, LeaseRecord, LeaseStore, Mode, SegmentStore, TagOptions, TagRecord, split_tag};
use unalike::{Clock, Formatted, Sequence, Snowflake, SystemClock, Text, encode};
use unalike_mysql::{Dialect, MysqlLeases};

use crate::arguments::{
    CommonArguments, LeasesCommand, NextArguments, SchemaArguments, SchemaCommand, ServeArguments, TagsCommand,
    TextArguments, unknown_variables,
};
use crate::auth::Tokens;
use crate::channels::{Channel, ChannelConfig};
use crate::config::{self, Config};
use crate::formats::{Asked, Notation, ReadText, Secrets, Shown};
use crate::layouts::rfc3339;
use crate::problem::Problem;
use crate::service::{Service, change_tag};
use crate::stores::{self, Purpose, Stores};
use crate::tags::{check_raise_of, plain_tag, reached, refill_text, step_text, stored_name, unchanged};
use crate::{import, leases};

/// Ids that are taken at once: no more than these are lost if the reader goes away.
const BATCH: u32 = 1_000;

/// Tags that are read at once.
pub(crate) const PAGE: u32 = 1_000;

/// `unalike next`
pub(crate) async fn next(config: Config, arguments: NextArguments) -> anyhow::Result<()> {
    let address = std::process::id().to_string();
    let service = Service::open(&config, Tokens::unwanted(), Purpose::Command, &address).await?;
    let printed = print_ids(&service, &arguments).await;
    // Also after an error: what was not used goes back.
    service.close().await;
    printed
}

/// Where the ids come from.
enum Generator<'a> {
    Sequence(Sequence),
    Snowflake(&'a Snowflake),
    Formatted(Formatted),
}

async fn print_ids(service: &Service, arguments: &NextArguments) -> anyhow::Result<()> {
    let name = &arguments.name;
    let told = |problem: Problem| anyhow!("{}", problem.detail());
    let (shown, bits) = if arguments.snowflake || service.is_quick(name) {
        ensure!(
            arguments.sub.is_none(),
            "the tag {name:?} is quick: its ids are those of a snowflake, which has no sub-keys"
        );
        (service.shown_snowflake(name), service.snowflake(name).map_err(told)?.layout().bits())
    } else {
        (service.shown(name), 63)
    };
    let asked = Asked { notation: arguments.format, as_number: false, shard_key: arguments.shard_key };
    let notation = asked.notation(name, shown, bits)?;
    let generator = if arguments.snowflake || service.is_quick(name) {
        match service.formatted_snowflake(name) {
            Some(formatted) => Generator::Formatted(formatted.clone()),
            None => Generator::Snowflake(service.snowflake(name).map_err(told)?),
        }
    } else {
        let sub = service.sub_key(name, arguments.sub.as_deref()).await.map_err(told)?;
        match shown {
            Some(shown) => Generator::Formatted(service.formatted(name, sub, shown).await?),
            None => Generator::Sequence(service.sequence(name, sub).await?),
        }
    };
    let mut out = BufWriter::new(io::stdout().lock());
    let mut left = arguments.count;
    while left > 0 {
        let count = u32::try_from(left).unwrap_or(BATCH).min(BATCH);
        let written = match generator.write(&mut out, notation, arguments.shard_key, count).await {
            Ok(written) => written,
            // The last ones would be lost with this process.
            Err(error) => {
                let last = last_ids(&error);
                if last == 0 {
                    return Err(error);
                }
                let written = generator.write(&mut out, notation, arguments.shard_key, last).await?;
                if !is_closed(written)? {
                    is_closed(out.flush())?;
                }
                let printed = arguments.count - left + u64::from(last);
                bail!(
                    "{name:?} is exhausted: {printed} ids were left and are printed, and {} were asked for",
                    arguments.count
                );
            }
        };
        if is_closed(written)? {
            return Ok(());
        }
        left -= u64::from(count);
    }
    is_closed(out.flush()).map(drop)
}

/// How many ids are left, where that is why there are not as many as were asked for.
fn last_ids(error: &anyhow::Error) -> u32 {
    match error.downcast_ref::<unalike::Error>().map(unalike::Error::kind) {
        Some(unalike::ErrorKind::Exhausted { left, .. }) => u32::try_from(*left).unwrap_or(u32::MAX),
        _ => 0,
    }
}

impl Generator<'_> {
    /// Writes so many ids, one per line, and answers how that went.
    async fn write(
        &self,
        out: &mut impl io::Write,
        notation: Notation,
        shard_key: Option<u64>,
        count: u32,
    ) -> anyhow::Result<io::Result<()>> {
        match self {
            Self::Sequence(sequence) => write_numbers(out, notation, sequence.take(count).await?.iter()),
            Self::Snowflake(snowflake) => write_numbers(out, notation, snowflake.take(count).await?.iter()),
            Self::Formatted(formatted) => {
                let batch = formatted.take(count, shard_key).await?;
                if notation == Notation::Template {
                    let mut written = Ok(());
                    batch.each_text(|text| {
                        if written.is_ok() {
                            written = writeln!(out, "{text}");
                        }
                    })?;
                    Ok(written)
                } else {
                    write_numbers(out, notation, batch.numbers()?.into_iter())
                }
            }
        }
    }
}

/// Writes numbers, one per line, and answers how that went.
fn write_numbers(
    out: &mut impl io::Write,
    notation: Notation,
    numbers: impl Iterator<Item = u64>,
) -> anyhow::Result<io::Result<()>> {
    for number in numbers {
        let text = encode(number, notation.text().unwrap_or(Text::Decimal))?;
        if let Err(error) = writeln!(out, "{}", text.as_str()) {
            return Ok(Err(error));
        }
    }
    Ok(Ok(()))
}

/// Whether the reader has gone, as `head` does: no error, and no reason to go on.
pub(crate) fn is_closed(written: io::Result<()>) -> anyhow::Result<bool> {
    match written {
        Ok(()) => Ok(false),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(true),
        Err(error) => Err(error).context("the standard output cannot be written to"),
    }
}

/// `unalike tags`
pub(crate) async fn tags(config: Config, command: TagsCommand) -> anyhow::Result<()> {
    if let TagsCommand::Import(arguments) = &command {
        return import::import(&config, arguments).await;
    }
    let begins = matches!(command, TagsCommand::Create { .. });
    let stores = Stores::open(&config, if begins { Purpose::Command } else { Purpose::LookingInto }).await?;
    let done = run(&stores, command).await;
    stores.close().await;
    done
}

async fn run(stores: &Stores, command: TagsCommand) -> anyhow::Result<()> {
    let store = stores.segments().as_ref();
    let record = match command {
        TagsCommand::Show { tag, sub } => {
            return show(store, &[store.tag(&stored_name(&tag, sub.as_deref())?).await?]).await;
        }
        TagsCommand::List { after, after_sub, limit } => {
            let after = after.map(|after| stored_name(&after, after_sub.as_deref())).transpose()?;
            return list(store, after, limit).await;
        }
        TagsCommand::Create {
            tag,
            start,
            step,
            refill,
            ordered,
            channel,
            buff_size,
            lowest_critical_value,
            prefix,
        } => {
            plain_tag(&tag)?;
            if let Some(channel) = channel {
                let config = ChannelConfig { channel, buff_size, lowest_critical_value, prefix };
                stores.create(&tag, &config.declared(&tag)?).await?
            } else {
                let defaults = TagOptions::default();
                let options = TagOptions {
                    start,
                    step: step.map_or(defaults.step, |step| step.0),
                    refill: refill.map_or(defaults.refill, |refill| refill.0),
                    mode: if ordered { Mode::Ordered } else { Mode::Buffered },
                };
                store.create_tag(&tag, &options).await?
            }
        }
        TagsCommand::Change { tag, step, refill, sub } => {
            let name = stored_name(&tag, sub.as_deref())?;
            let before = store.tag(&name).await?;
            let changed = change_tag(store, &name, step.map(|step| step.0), refill.map(|refill| refill.0)).await?;
            if let Some(why) = unchanged(&before, &changed, None) {
                eprintln!("unalike: {why}");
            }
            changed
        }
        TagsCommand::Raise { tag, next, sub, yes } => {
            let name = stored_name(&tag, sub.as_deref())?;
            let before = reached(store, &name).await?;
            let checked = check_raise_of::<anyhow::Error>(store, &name, next, yes).await;
            checked.context("nothing was changed; add --yes, if it is meant")?;
            let raised = store.raise_tag(&name, next).await?;
            // Of several stores some may have been behind.
            let is_behind = before.watermark >= next && store.stripes() == 1;
            if let Some(why) = unchanged(&before, &raised, Some(next)).filter(|_| is_behind) {
                eprintln!("unalike: {why}");
            }
            raised
        }
        // It opens more than one store.
        TagsCommand::Import(_) => return Ok(()),
    };
    let mut table = Table::new(TAG_COLUMNS);
    table.add(tag_row(&record));
    table.print()
}

async fn list(store: &dyn SegmentStore, mut after: Option<String>, limit: u64) -> anyhow::Result<()> {
    let mut left = limit;
    let mut listed = Vec::new();
    while left > 0 {
        let page = u32::try_from(left).unwrap_or(PAGE).min(PAGE);
        let records = store.tags(after.as_deref(), page).await?;
        let Some(last) = records.last() else { break };
        after = Some(last.tag.clone());
        left = left.saturating_sub(u64::from(page));
        listed.extend(records);
    }
    show(store, &listed).await
}

/// Prints tags, with their ceilings if any has one.
async fn show(store: &dyn SegmentStore, records: &[TagRecord]) -> anyhow::Result<()> {
    let mut ceilings = Vec::with_capacity(records.len());
    for record in records {
        ceilings.push(store.ceiling(&record.tag).await?);
    }
    if ceilings.iter().all(Option::is_none) {
        let mut table = Table::new(TAG_COLUMNS);
        records.iter().for_each(|record| table.add(tag_row(record)));
        return table.print();
    }
    let with = |row, more| {
        let ([tag, sub, mode, start, watermark, step, refill], [cur, max, recently, long_term]) = (row, more);
        [tag, sub, mode, start, watermark, step, refill, cur, max, recently, long_term]
    };
    let mut table = Table::new(with(TAG_COLUMNS.map(str::to_owned), CEILING_COLUMNS.map(str::to_owned)));
    for (record, ceiling) in records.iter().zip(ceilings) {
        let figures = ceiling.map(|Ceiling { last, max, used_recently, used_long_term }| {
            [last, max, used_recently, used_long_term].map(|figure| figure.to_string())
        });
        table.add(with(tag_row(record), figures.unwrap_or_default()));
    }
    table.print()
}

const TAG_COLUMNS: [&str; 7] = ["TAG", "SUB", "MODE", "START", "WATERMARK", "STEP", "REFILL"];

/// How far a tag has got, and how much it was used.
const CEILING_COLUMNS: [&str; 4] = ["CUR", "MAX", "RECENTLY", "LONG-TERM"];

fn tag_row(record: &TagRecord) -> [String; 7] {
    let options = &record.options;
    let (tag, sub) = split_tag(&record.tag);
    [
        tag.to_owned(),
        sub.unwrap_or_default().to_owned(),
        options.mode.name().to_owned(),
        options.start.to_string(),
        record.watermark.to_string(),
        step_text(options.step),
        refill_text(options.refill),
    ]
}

/// `unalike schema`
pub(crate) async fn schema(config: &Config, arguments: &SchemaArguments) -> anyhow::Result<()> {
    if let Some(SchemaCommand::Upgrade) = arguments.command {
        return stores::upgrade(config).await;
    }
    let is_in_mysql = stores::is_in_mysql(config)?;
    let leases_are_named = leases::are_in_mysql(config, false)?;
    // What stands beside a store that is not in MySQL would move there with it.
    let has_leases = leases::are_in_mysql(config, arguments.dialect.is_some() || !is_in_mysql)?;
    let dialect = match &arguments.dialect {
        Some(name) => Some(Dialect::named(name).ok_or_else(|| {
            anyhow!(
                "the dialect {name:?} is unknown: it is one of unalike, leaf, tinyid, cosid, sequence-table, id-generator, \
                 batch, slow-ordered and ticket (--dialect)"
            )
        })?),
        // A database for leases alone.
        None if leases_are_named && !is_in_mysql => None,
        None => Some(stores::dialect(config)?),
    };
    let mut statements = dialect.as_ref().map(Dialect::ddl).unwrap_or_default();
    let mut privileges = dialect.as_ref().map(Dialect::privileges).unwrap_or_default();
    if has_leases {
        let more: Vec<_> = MysqlLeases::ddl().into_iter().filter(|statement| !statements.contains(statement)).collect();
        statements.extend(more);
        let is_new = |table: &String| privileges.iter().all(|(known, _)| known != table);
        let more: Vec<_> = MysqlLeases::privileges().into_iter().filter(|(table, _)| is_new(table)).collect();
        privileges.extend(more);
    }
    let mut text = String::new();
    for statement in statements {
        writeln!(text, "{};\n", statement.trim().trim_end_matches(';'))?;
    }
    let user = account(&arguments.user);
    writeln!(text, "-- The least that the user needs: CREATE USER {user} IDENTIFIED BY '..';")?;
    for (table, privileges) in privileges {
        writeln!(text, "GRANT {privileges} ON {table} TO {user};")?;
    }
    print(&text)
}

/// `'NAME'@'HOST'`, as statements have it.
fn account(user: &str) -> String {
    let (name, host) = user.rsplit_once('@').unwrap_or((user, "%"));
    let quoted = |text: &str| format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''"));
    format!("{}@{}", quoted(name), quoted(host))
}

/// `unalike leases`
pub(crate) async fn leases(config: &Config, command: LeasesCommand) -> anyhow::Result<()> {
    if let LeasesCommand::Init { namespace, layout, not_before_ms } = &command {
        return leases::initialise(config, namespace, layout.as_deref(), *not_before_ms).await;
    }
    let leases = Stores::leases_alone(config).await?;
    let done = match leases.store() {
        None => Err(anyhow!("there is no store of leases to look into: name it (--leases URL)")),
        Some(store) => look_into(store.as_ref(), command).await,
    };
    leases.close().await;
    done
}

async fn look_into(store: &dyn LeaseStore, command: LeasesCommand) -> anyhow::Result<()> {
    match command {
        LeasesCommand::List { namespace } => {
            let namespaces = match namespace {
                Some(namespace) => vec![namespace],
                None => store.namespaces().await?,
            };
            let mut table = Table::new(["NAMESPACE", "WORKER", "HOLDER", "TAKEN", "UNTIL", "STATE", "GRANT"]);
            for namespace in namespaces {
                let records = store.leases(&namespace).await?;
                records.iter().for_each(|record| table.add(lease_row(&namespace, record)));
            }
            table.print()
        }
        LeasesCommand::Release { namespace, worker } => {
            let record = store.forbid_extension(&namespace, worker).await?;
            let record = record.with_context(|| {
                format!(
                    "worker {worker} of {namespace:?} was never leased: `unalike leases list` shows those that were"
                )
            })?;
            let (until, holder) = (rfc3339(record.lease.valid_until_ms), record.holder);
            let left_ms = record.lease.valid_until_ms.saturating_sub(SystemClock.now_ms());
            print(&match left_ms {
                0 => format!("worker {worker} of {namespace:?}: its lease ended at {until}\n"),
                _ => format!(
                    "worker {worker} of {namespace:?}: its lease is not extended any more; {holder:?} may use it until \
                     {until}, for {} s\n",
                    left_ms.div_ceil(1_000)
                ),
            })
        }
        // It needs no open store.
        LeasesCommand::Init { .. } => Ok(()),
    }
}

fn lease_row(namespace: &str, record: &LeaseRecord) -> [String; 7] {
    let lease = record.lease;
    let state = if lease.valid_until_ms <= SystemClock.now_ms() {
        "ended"
    } else if record.is_final {
        "extension forbidden"
    } else {
        "running"
    };
    [
        namespace.to_owned(),
        lease.worker.to_string(),
        // A static worker has neither.
        if record.holder.is_empty() { "-".to_owned() } else { record.holder.clone() },
        if record.acquired_ms == 0 { "-".to_owned() } else { rfc3339(record.acquired_ms) },
        rfc3339(lease.valid_until_ms),
        state.to_owned(),
        format!("{:032x}", lease.grant_id.0),
    ]
}

/// What a text says, if it is said whose it is or in which notation.
pub(crate) fn read_text(config: &Config, text: &str, arguments: &TextArguments) -> anyhow::Result<Option<String>> {
    let read = match (&arguments.tag, &arguments.snowflake, arguments.format) {
        (None, None, None) => return Ok(None),
        (None, None, Some(notation)) => ReadText::of_notation(text, notation)?,
        (tag, snowflake, notation) => {
            let formats = config.formats(&Secrets::read(&config.keys)?)?;
            let is_quick = |tag: &String| config.tags.get(tag).is_some_and(|tag| tag.channel == Some(Channel::Quick));
            match tag.as_ref().filter(|tag| !is_quick(tag)) {
                Some(tag) => {
                    plain_tag(tag)?;
                    let format = formats.tags.get(tag);
                    let issued = Shown::or_plain(format, tag).read(text, notation, None);
                    ReadText::new(text, &issued.with_context(|| hint(config, tag, format))?)
                }
                None => {
                    let name = tag.as_ref().or(snowflake.as_ref()).map_or("", String::as_str);
                    let told = || anyhow!("{}", Problem::snowflake_unknown(name).detail());
                    let layout = config.snowflakes()?.get(name).with_context(told)?.layout;
                    let format = formats.snowflakes.get(name);
                    let issued = Shown::or_plain(format, name).read(text, notation, Some(layout));
                    ReadText::new(text, &issued.with_context(|| hint(config, name, format))?)
                }
            }
        }
    };
    let mut lines = format!("id          {}\nnumber      {}\n", read.id, read.number);
    let more = [
        ("gene", read.gene.map(|gene| gene.to_string())),
        ("key", read.key_id.map(|key| key.to_string())),
        ("from", read.from),
        ("until", read.until),
    ];
    for (name, value) in more {
        if let Some(value) = value {
            writeln!(lines, "{name:<12}{value}")?;
        }
    }
    Ok(Some(lines))
}

/// What the error of a text begins with: without the server's configuration file nothing is known of templates.
fn hint(config: &Config, name: &str, format: Option<&Shown>) -> String {
    if format.is_some() {
        return format!("it is no text of {name:?}");
    }
    let file = if config.has_file {
        "the configuration file has"
    } else {
        "without a configuration file (--config FILE) there is"
    };
    format!("{file} no format of {name:?}, so the text is read as a plain number")
}

/// `unalike config check`
pub(crate) fn check_config(common: &CommonArguments, file: Option<PathBuf>) -> anyhow::Result<()> {
    let mut common = common.clone();
    common.config = file.or(common.config);
    for unknown in unknown_variables() {
        eprintln!("unalike: {unknown}");
    }
    print(&config::effective_text(&common, &ServeArguments::from_environment())?)
}

/// `unalike config default`
pub(crate) fn default_config() -> anyhow::Result<()> {
    print(&config::default_text()?)
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
