//! `unalike tags`: tags listed, shown, created, changed and raised.

use std::fmt::Write as _;

use anyhow::{Context, bail, ensure};
use unalike::settings::Secrets;
use unalike::storage::{
    Ceiling, FormatLook, FormatOwner, FormatPart, Mode, SegmentStore, StoreError, TagOptions, TagRecord,
    look_at_format, rebind_format, split_tag, validate_new_tag, validate_public,
};
use unalike::{Format, ID_MAX};

use crate::commands::arguments::TagsCommand;
use crate::commands::import;
use crate::commands::print::{PAGE, Table, print};
use crate::config::Config;
use crate::config::channels::ChannelConfig;
use crate::config::names::{plain_tag, stored_name};
use crate::service::stores::{Purpose, Stores};
use crate::service::tags::{change_tag, check_raise_of, instead_of_raise, reached, unchanged};

/// `unalike tags`
pub(crate) async fn tags(config: Config, command: TagsCommand) -> anyhow::Result<()> {
    if let TagsCommand::Import(arguments) = &command {
        return import::import(&config, arguments).await;
    }
    if let TagsCommand::Format { tag, snowflake, accept } = &command {
        return format(&config, tag, *snowflake, *accept).await;
    }
    let purpose = match &command {
        TagsCommand::Create { tag, .. } => {
            // Before the store, so that a mistake creates no file.
            plain_tag(tag)?;
            validate_new_tag(tag)?;
            validate_public(tag)?;
            Purpose::Command
        }
        TagsCommand::List { .. } | TagsCommand::Show { .. } => Purpose::Listing,
        _ => Purpose::LookingInto,
    };
    let stores = Stores::open(&config, purpose).await?;
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
            if let Some(channel) = channel {
                let config = ChannelConfig { channel, buff_size, lowest_critical_value, prefix };
                stores.create(&tag, &config.declared(&tag)?).await?
            } else {
                let defaults = TagOptions::default();
                let options = TagOptions {
                    start,
                    step: step.unwrap_or(defaults.step),
                    refill: refill.unwrap_or(defaults.refill),
                    mode: if ordered { Mode::Ordered } else { Mode::Buffered },
                };
                store.create_tag(&tag, &options).await?
            }
        }
        TagsCommand::Change { tag, step, refill, sub, start: _ } => {
            let name = stored_name(&tag, sub.as_deref())?;
            let before = store.tag(&name).await?;
            let changed = change_tag(store, &name, step, refill).await?;
            if let Some(why) = unchanged(&before, &changed, None) {
                eprintln!("unalike: {why}");
            }
            changed
        }
        TagsCommand::Raise { tag, next, sub, yes } => {
            let name = stored_name(&tag, sub.as_deref())?;
            let before = match reached(store, &name).await {
                Err(StoreError::TagUnknown { .. }) => bail!("{}", instead_of_raise(&name, next)),
                reached => reached?,
            };
            let checked = check_raise_of::<anyhow::Error>(store, &name, next, yes).await;
            checked.context("nothing was changed; add --yes, if it is meant")?;
            let raised = store.raise_tag(&name, next).await?;
            // Of several stores some may have been behind.
            let is_behind = (before.watermark >= next || raised.watermark >= ID_MAX) && store.stripes() == 1;
            if let Some(why) = unchanged(&before, &raised, Some(next)).filter(|_| is_behind) {
                eprintln!("unalike: {why}");
            }
            raised
        }
        // What opens its stores itself.
        TagsCommand::Import(_) | TagsCommand::Format { .. } => return Ok(()),
    };
    let mut table = Table::new(TAG_COLUMNS);
    table.add(tag_row(&record));
    table.print()
}

/// `unalike tags format`
async fn format(config: &Config, name: &str, is_snowflake: bool, accept: bool) -> anyhow::Result<()> {
    let formats = config.formats(&Secrets::read(&config.keys)?)?;
    // The ids of a quick tag are those of the snowflake of its name.
    let is_snowflake = is_snowflake || formats.quick.contains(name);
    let (owner, shown) = if is_snowflake {
        // One is there without a configuration.
        ensure!(formats.layouts.contains_key(name), "the snowflake {name:?} is not in the configuration");
        (FormatOwner::Snowflake(name), formats.snowflakes.get(name))
    } else {
        plain_tag(name)?;
        let is_tag = config.tags.contains_key(name);
        ensure!(is_tag || !config.snowflakes.contains_key(name), "{name:?} is a snowflake: add --snowflake");
        (FormatOwner::Tag(name), formats.tags.get(name))
    };
    let stores = Stores::open(config, Purpose::LookingInto).await?;
    let store = stores.segments().as_ref();
    let done = match shown {
        Some(shown) => compare(store, owner, shown.format(), accept).await,
        None => look_without(config, store, owner, accept).await,
    };
    stores.close().await;
    done
}

/// Compares a configured format with the bound one.
async fn compare(
    store: &dyn SegmentStore,
    owner: FormatOwner<'_>,
    format: &Format,
    accept: bool,
) -> anyhow::Result<()> {
    let looks = match look_at_format(store, owner, format).await {
        // They may differ from stripe to stripe, which is what is mended.
        Err(error @ StoreError::Refused { .. }) if accept => {
            eprintln!("unalike: {error}");
            rebind_format(store, owner, format).await?;
            return print(ACCEPTED);
        }
        looks => looks?,
    };
    // Once it was asked: before, it may not be open.
    ensure!(
        store.keeps_formats(),
        "nothing is compared: --store keeps no formats, since it has keys of another system"
    );
    let differing: Vec<&FormatLook> = looks.iter().filter(|look| look.differs()).collect();
    if looks.iter().all(|look| look.bound.is_none()) {
        return print(&format!(
            "no format is bound to {owner} yet: the first program that shows its ids binds the configured one\n"
        ));
    }
    if differing.is_empty() {
        return print(&format!("{owner} is bound to the configured format: nothing repeats\n"));
    }
    let mut text = format!("{owner} is bound to another format than the configured one:\n");
    for look in differing {
        writeln!(text, "- {look}: {}", what_repeats(look))?;
    }
    print(&text)?;
    ensure!(
        accept,
        "nothing was changed: go back to the former configuration, use another name, or accept what can repeat (--accept)"
    );
    rebind_format(store, owner, format).await?;
    print(ACCEPTED)
}

const ACCEPTED: &str = "accepted: restart all programs that show its ids, since they go on as before until then\n";

/// What a store has of a format, where the configuration has none.
async fn look_without(
    config: &Config,
    store: &dyn SegmentStore,
    owner: FormatOwner<'_>,
    accept: bool,
) -> anyhow::Result<()> {
    let configuration =
        if config.has_file { "the configuration has none" } else { "no configuration is given (--config FILE)" };
    let looks = look_at_format(store, owner, &Format::default()).await?;
    ensure!(
        looks.iter().all(|look| look.bound.is_none()),
        "nothing was changed: a format is bound to {owner}, and {configuration}. Its bare numbers could be ids that were shown \
         before; to accept them, configure template = \"{{id}}\""
    );
    if let FormatOwner::Tag(tag) = owner {
        // It says so if there is no such tag.
        store.tag(tag).await?;
    }
    ensure!(!accept, "nothing was accepted: no format is bound to {owner}, and {configuration}");
    print(&format!("no format is bound to {owner}, and {configuration}: its ids are bare numbers\n"))
}

/// What can be shown twice after a change.
fn what_repeats(look: &FormatLook) -> &'static str {
    let FormatPart::Shape = look.part else {
        return "the numbers of ids change, and new ones can be those that were shown before. Give a new secret a number of \
                its own: then nothing repeats";
    };
    let Some(changes) = look.shape_changes() else { return "this release cannot say what repeats" };
    if changes.only_adds_keys() {
        "nothing repeats, once all programs that show ids without keys are stopped"
    } else if changes.in_restart() {
        "numbers that were counted before come again, and whole texts with them unless the templates tell them apart"
    } else if changes.in_numbers() {
        "the numbers of ids change, and new ones can be those that were shown before"
    } else {
        "numbers do not change. A text repeats if both templates can make it, as A{id} and A1{id} do"
    }
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
        options.step.to_string(),
        options.refill.to_string(),
    ]
}
