//! The commands about layouts: they need no store.

use std::fmt::Write as _;

use anyhow::ensure;
use unalike::{Clock, Layout, Role, SCHEMES, Scheme, SnowflakeOptions, Spread, SystemClock};

use crate::arguments::{DecodeArguments, LayoutsCommand, RangeArguments};
use crate::commands::{Table, print, read_text};
use crate::config::Config;
use crate::layouts::{Candidate, LayoutFigures, Layouts, Named, TakenApart, What, figures, rfc3339};
use crate::stamps::SpreadText;

/// `unalike decode`
pub(crate) fn decode(config: &Config, arguments: &DecodeArguments) -> anyhow::Result<()> {
    if let Some(read) = read_text(config, &arguments.id, &arguments.text)? {
        return print(&read);
    }
    let layouts = config.layouts()?;
    let Some(layout) = &arguments.layout else { return guess(&layouts, arguments) };
    match layouts.decode(&arguments.id, layout)? {
        TakenApart::Layout(decoded) => print(&format!(
            "time        {} ({} Unix ms)\ndatacenter  {}\nworker      {}\nsequence    {}\n",
            decoded.time, decoded.unix_ms, decoded.datacenter, decoded.worker, decoded.sequence
        )),
        TakenApart::Scheme(decoded) => {
            let mut text = String::new();
            if let (Some(time), Some(unix_ms)) = (&decoded.time, decoded.unix_ms) {
                writeln!(text, "{:<11} {time} ({unix_ms} Unix ms)", "time")?;
            }
            for (name, value) in &decoded.fields {
                writeln!(text, "{name:<11} {}", value.as_str().unwrap_or_default())?;
            }
            print(&text)
        }
    }
}

fn guess(layouts: &Layouts, arguments: &DecodeArguments) -> anyhow::Result<()> {
    let guessed = layouts.candidates(&arguments.id, arguments.all)?;
    if guessed.candidates.is_empty() {
        return print(
            "It has no time that makes sense in any known layout: it may be a number of a sequence. --all shows what each \
             layout would read in it.\n",
        );
    }
    let mut table = Table::new(["LAYOUT", "TIME", "WORKER", "SEQUENCE", "OTHERS", "WHY"]);
    for candidate in &guessed.candidates {
        table.add(row(candidate));
    }
    table.print()
}

fn row(candidate: &Candidate) -> [String; 6] {
    let name = match candidate.read_as {
        read_as @ ("padded" | "base36" | "base62" | "base32" | "uuid") if !candidate.layout.starts_with("uuid") => {
            format!("{} ({read_as})", candidate.layout)
        }
        _ => candidate.layout.clone(),
    };
    let (mut worker, mut sequence, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for (field, value) in &candidate.fields {
        let value = value.as_str().unwrap_or_default();
        match field.as_str() {
            "worker" | "machine" => worker.push(value.to_owned()),
            "sequence" => sequence.push(value.to_owned()),
            other => others.push(format!("{other} {value}")),
        }
    }
    [
        name,
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
        table.add([
            layout.name,
            format!("{} = {}", layout.bits, layout.widths),
            layout.ids_per_second.to_string(),
            layout.workers.to_string(),
            day(&layout.ends),
            note,
        ]);
    }
    for foreign in SCHEMES {
        let widths: Vec<_> =
            foreign.scheme.fields().iter().map(|field| format!("{} {}", field.name, field.bits)).collect();
        table.add([
            foreign.name.to_owned(),
            format!("{} = {}", foreign.scheme.bits(), widths.join(" + ")),
            String::new(),
            String::new(),
            foreign.scheme.ends_ms().map(|ends_ms| day(&rfc3339(ends_ms))).unwrap_or_default(),
            "for reading only".to_owned(),
        ]);
    }
    table.print()
}

fn note(layout: &LayoutFigures) -> Option<&'static str> {
    if layout.ended {
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

fn show(named: &Named, spread: Option<SpreadText>) -> anyhow::Result<()> {
    let (scheme, layout) = match &named.what {
        What::Layout(layout) => (Scheme::from(*layout), Some(*layout)),
        What::Scheme(scheme) => (**scheme, None),
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
        let figures = figures(&named.name, &layout, &named.source, now_ms);
        let in_all = u128::from(figures.ids_per_second) * u128::from(figures.workers);
        line("rate", format!("{} ids/s per worker, {in_all} in all", figures.ids_per_second))?;
        line("workers", figures.workers.to_string())?;
        line(
            "JavaScript",
            match &figures.above_53_bits {
                None => "every id fits a number (53 bits)".to_owned(),
                Some(from) => format!("ids from {} on are above 2^53 - 1: strings, not numbers", day(from)),
            },
        )?;
        if let Some(SpreadText(spread)) = spread {
            line("spread", cost(&layout, spread)?)?;
        }
        if figures.ended {
            line("WARNING", format!("it has ended at {}: there are no ids any more, for reading only", figures.ends))?;
        } else if figures.ends_soon {
            line("WARNING", format!("it ends within ten years, at {}: begin no new ids with it", figures.ends))?;
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
    options.validate()?;
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
