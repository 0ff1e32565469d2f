//! The commands about layouts and texts of ids: they need no store, and ask it only whether a tag exists.

use std::fmt::Write as _;

use anyhow::{Context, anyhow, ensure};
use unalike::settings::Secrets;
use unalike::storage::StoreError;
use unalike::{Clock, FieldOrder, Layout, LayoutFields, Role, Scheme, SnowflakeOptions, Spread, SystemClock};

use crate::commands::arguments::{DecodeArguments, LayoutsCommand, RangeArguments, TextArguments};
use crate::commands::print::{Table, print};
use crate::config::Config;
use crate::config::formats::{IdFormat, ReadText, Refusal};
use crate::config::layouts::{Candidate, LayoutFigures, Layouts, Named, What, figures};
use crate::config::names::plain_tag;
use crate::service::stores::{Purpose, Stores};
use crate::words::rfc3339;

/// `unalike decode`
pub(crate) async fn decode(config: &Config, arguments: &DecodeArguments) -> anyhow::Result<()> {
    if let Some(read) = read_text(config, &arguments.id, &arguments.text)? {
        if let Some(tag) = &arguments.text.tag {
            check_known(config, tag).await?;
        }
        return print(&read);
    }
    let layouts = config.layouts()?;
    let Some(layout) = &arguments.layout else { return guess(&layouts, arguments) };
    let decoded = layouts.decode(&arguments.id, layout)?;
    let mut text = String::new();
    if let (Some(time), Some(unix_ms)) = (&decoded.time, decoded.unix_ms) {
        writeln!(text, "{:<11} {time} ({unix_ms} Unix ms)", "time")?;
    }
    for (name, value, own) in decoded.fields.iter() {
        match own {
            Some(own) => writeln!(text, "{name:<11} {value} ({own})")?,
            None => writeln!(text, "{name:<11} {value}")?,
        }
    }
    print(&text)
}

/// Refuses a tag that is configured nowhere and does not exist. Where there is no store, nobody can tell.
async fn check_known(config: &Config, tag: &str) -> anyhow::Result<()> {
    if config.tags.contains_key(tag) {
        return Ok(());
    }
    let Ok(stores) = Stores::open(config, Purpose::Listing).await else { return Ok(()) };
    let found = stores.segments().tag(tag).await;
    stores.close().await;
    let is_unknown = matches!(found, Err(StoreError::TagUnknown { .. }));
    ensure!(
        !is_unknown,
        "the tag {tag:?} is unknown: no configuration file (--config) has it, nor has the store {}",
        config.store
    );
    Ok(())
}

fn guess(layouts: &Layouts, arguments: &DecodeArguments) -> anyhow::Result<()> {
    let guessed = layouts.candidates(&arguments.id, arguments.all)?;
    if guessed.candidates.is_empty() {
        let all = layouts.candidates(&arguments.id, true)?.candidates;
        // Each once: there is a candidate for every layout.
        let mut numbers: Vec<(&str, &str)> = Vec::new();
        for number in all.iter().filter_map(|it| Some((it.read_as, it.number.as_deref()?))) {
            if number.0 != "decimal" && !numbers.contains(&number) {
                numbers.push(number);
            }
        }
        let read = numbers.iter().map(|(read_as, number)| format!(" As {read_as} it is the number {number}."));
        return print(&format!(
            "It has no time that makes sense in any known layout: it may be a number of a sequence.{} --all shows what each \
             layout would read in it.\n",
            read.collect::<String>()
        ));
    }
    let mut table = Table::new(["LAYOUT", "IN USE", "TIME", "WORKER", "SEQUENCE", "OTHERS", "WHY"]);
    for candidate in &guessed.candidates {
        table.add(row(candidate));
    }
    table.print()
}

fn row(candidate: &Candidate) -> [String; 7] {
    let name = match candidate.read_as {
        read_as @ ("padded" | "base36" | "base62" | "base32" | "uuid") if !candidate.layout.starts_with("uuid") => {
            format!("{} ({read_as})", candidate.layout)
        }
        _ => candidate.layout.clone(),
    };
    let in_use = match (&candidate.in_use.since, &candidate.in_use.until) {
        (Some(since), Some(until)) => format!("{} to {}", day(since), day(until)),
        (Some(since), None) => format!("since {}", day(since)),
        (None, _) => String::new(),
    };
    let (mut worker, mut sequence, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for (field, value, _) in candidate.fields.iter() {
        match field {
            "worker" => worker.push(value.to_string()),
            "sequence" => sequence.push(value.to_string()),
            other => others.push(format!("{other} {value}")),
        }
    }
    [
        name,
        in_use,
        candidate.time.clone().unwrap_or_default(),
        worker.join(" "),
        sequence.join(" "),
        others.join(", "),
        if candidate.plausible { candidate.why.clone() } else { format!("no: {}", candidate.why) },
    ]
}

/// `unalike range`
pub(crate) fn range(config: &Config, arguments: &RangeArguments) -> anyhow::Result<()> {
    let ids = config.layouts()?.range(&arguments.layout, &arguments.from, &arguments.to)?;
    let (first, last) = (&ids.first, &ids.last);
    print(&format!("first  {first}\nlast   {last}\nsql    id BETWEEN {first} AND {last}\n"))
}

/// `unalike layouts`
pub(crate) fn layouts(config: &Config, command: Option<LayoutsCommand>) -> anyhow::Result<()> {
    let layouts = config.layouts()?;
    match command {
        None | Some(LayoutsCommand::List) => list(&layouts),
        Some(LayoutsCommand::Show { layout, spread }) => show(&layouts.find(&layout)?, spread),
    }
}

fn list(layouts: &Layouts) -> anyhow::Result<()> {
    let mut table =
        Table::new(["LAYOUT", "BITS = TIME + NODE + SEQUENCE", "IDS/S PER WORKER", "WORKERS", "ENDS", "NOTE"]);
    for layout in layouts.all() {
        let note = note(&layout).unwrap_or_default().to_owned();
        let figure = |figure: Option<u64>| figure.map(|figure| figure.to_string()).unwrap_or_default();
        table.add([
            layout.name,
            format!("{} = {}", layout.bits, layout.widths),
            figure(layout.ids_per_second),
            figure(layout.workers),
            layout.ends.as_deref().map(day).unwrap_or_default(),
            note,
        ]);
    }
    table.print()
}

fn note(layout: &LayoutFigures) -> Option<&'static str> {
    if layout.reading_only {
        Some("for reading only")
    } else if layout.ended {
        Some("has ended: for reading only")
    } else if layout.ends_soon {
        Some("ends within ten years")
    } else {
        None
    }
}

/// The day of a time.
fn day(time: &str) -> String {
    time.get(..10).filter(|_| time.starts_with(|letter: char| letter.is_ascii_digit())).unwrap_or(time).to_owned()
}

fn show(named: &Named, spread: Option<Spread>) -> anyhow::Result<()> {
    let scheme = named.scheme();
    let layout = match &named.what {
        What::Layout(layout) => Some(*layout),
        What::Scheme(_) => None,
    };
    let mut text = format!("{}\n{}", named.name, picture(&scheme));
    let mut line = |title: &str, value: String| writeln!(text, "{title:<12} {value}");
    if let Some(layout) = layout {
        line("layout", layout.to_string())?;
    }
    line("from", named.source.clone())?;
    if let Some(ends_ms) = scheme.ends_ms() {
        line("first date", format!("{}, the epoch", rfc3339(scheme.epoch_ms())))?;
        line("last date", rfc3339(ends_ms.saturating_sub(1)))?;
        line("tick", format!("{} ms", scheme.tick_ms()))?;
    }
    if let Some(layout) = layout {
        let now_ms = SystemClock.now_ms();
        let figures = figures(named, now_ms);
        let (rate, workers) = (figures.ids_per_second.unwrap_or_default(), figures.workers.unwrap_or_default());
        let in_all = u128::from(rate) * u128::from(workers);
        line("rate", format!("{rate} ids/s per worker, {in_all} in all"))?;
        line("workers", workers.to_string())?;
        line(
            "JavaScript",
            match &figures.above_53_bits {
                None => "every id fits a number (53 bits)".to_owned(),
                Some(from) => format!("ids from {} on are above 2^53 - 1: strings, not numbers", day(from)),
            },
        )?;
        if let Some(spread) = spread {
            line("spread", cost(&layout, spread)?)?;
        }
        let begins_ms = layout.tick_start_ms(1);
        if now_ms < begins_ms {
            line("WARNING", format!("no id is issued before {}: its epoch is in the future", rfc3339(begins_ms)))?;
        }
        let ends = figures.ends.unwrap_or_default();
        if figures.ended {
            line("WARNING", format!("it ended at {ends}: it makes no more ids, and reads those that there are"))?;
        } else if figures.ends_soon {
            line("WARNING", format!("it ends within ten years, at {ends}: begin no new ids with it"))?;
        }
    } else {
        ensure!(spread.is_none(), "{} is for reading only: --spread is for ids that are made", named.name);
        line("use", "for reading only: its fields are not those of a snowflake of this program".to_owned())?;
    }
    print(&text)
}

/// One letter for each bit, from the highest of 64, and below it what they mean.
fn picture(scheme: &Scheme) -> String {
    let mut bits = "0".repeat(64_usize.saturating_sub(usize::from(scheme.bits())));
    let mut meanings = Vec::new();
    for (field, letter) in scheme.fields().iter().zip('a'..) {
        if !bits.is_empty() {
            bits.push('|');
        }
        // Most begin with different letters; where they do not, the alphabet tells them apart.
        let initial = field.name.chars().next().unwrap_or(letter);
        let is_alone = scheme.fields().iter().filter(|other| other.name.starts_with(initial)).count() == 1;
        let letter = if is_alone { initial } else { letter.to_ascii_uppercase() };
        bits.extend(std::iter::repeat_n(letter, usize::from(field.bits)));
        meanings.push(match field.role {
            Role::Fixed(value) => format!("{letter} {} {}, always {value}", field.name, field.bits),
            _ => format!("{letter} {} {}", field.name, field.bits),
        });
    }
    format!("{bits}\n{}\n\n", meanings.join(", "))
}

/// What a spread costs of a tick's ids.
fn cost(layout: &Layout, spread: Spread) -> anyhow::Result<String> {
    let mut options = SnowflakeOptions::new(*layout);
    options.spread = spread;
    let LayoutFields { sequence_bits, order, .. } = layout.fields();
    options.validate().map_err(|error| match order {
        FieldOrder::WorkerFirst => anyhow!("{}: BITS must be 1 to {sequence_bits} for this layout", spread),
        FieldOrder::SequenceFirst => error.into(),
    })?;
    let bits = match spread {
        Spread::None => return Ok("none: each tick begins with sequence 0".to_owned()),
        Spread::Rotating { bits } | Spread::Random { bits } => bits,
    };
    let (places, ids) = (1_u64 << bits, layout.ids_per_tick());
    let (lost, permille) = (places - 1, (places - 1) * 500 / ids);
    Ok(format!(
        "ticks begin at {places} places: {}.{} of {ids} ids per tick are left out on average ({}.{}%), {lost} at most",
        lost / 2,
        if lost % 2 == 0 { 0 } else { 5 },
        permille / 10,
        permille % 10
    ))
}

/// What a text says, if it is said whose it is or in which notation.
fn read_text(config: &Config, text: &str, arguments: &TextArguments) -> anyhow::Result<Option<String>> {
    let read = match (&arguments.tag, &arguments.snowflake, arguments.format) {
        (None, None, None) => return Ok(None),
        (None, None, Some(notation)) => ReadText::of_notation(text, notation)?,
        (tag, snowflake, notation) => {
            let formats = config.formats(&Secrets::read(&config.keys)?)?;
            let (name, format, read) = match (tag, snowflake) {
                (Some(tag), _) => {
                    plain_tag(tag)?;
                    (tag.as_str(), formats.of_tag(tag), formats.read_of_tag(tag, text, notation))
                }
                (None, snowflake) => {
                    let name = snowflake.as_deref().unwrap_or_default();
                    (name, formats.snowflakes.get(name), formats.read_of_snowflake(name, text, notation))
                }
            };
            match read {
                Err(Refusal::SnowflakeUnknown { .. }) => return Err(anyhow!(formats.unknown_snowflake(name))),
                read => read.with_context(|| hint(config, name, format))?,
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
fn hint(config: &Config, name: &str, format: Option<&IdFormat>) -> String {
    if format.is_some() {
        return format!("it is not an id of {name:?}");
    }
    let file = if config.has_file {
        "the configuration file has"
    } else {
        "without a configuration file (--config FILE) there is"
    };
    format!("{file} no format of {name:?}, so the text is read as a plain number")
}
