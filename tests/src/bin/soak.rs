//! Runs nodes of the product under faults for as long as is wanted: see [`unalike_tests::faults`].

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use unalike_tests::faults::{Soak, StoreKind};

const HELP: &str = "\
Runs nodes on a real server while processes are killed and paused, networks cut and clocks stepped, and looks at each id.

usage: soak [--store NAME] [--seconds N] [--nodes N] [--seed N] [--control]

  --store NAME     sqlite (default), mariadb, postgres, redis or etcd; it is started, and killed at the end
  --seconds N      for how long faults happen; 60 by default
  --nodes N        every other one gives snowflakes; 4 by default
  --seed N         what happens, and when; 1 by default
  --control        gives one node another store than the others: the run must end badly
";

fn main() -> anyhow::Result<ExitCode> {
    let Some(soak) = arguments(std::env::args().skip(1))? else {
        print!("{HELP}");
        return Ok(ExitCode::SUCCESS);
    };
    let report = soak.run()?;
    println!("{report}");
    Ok(if report.is_valid() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What is asked for; nothing when that is help.
fn arguments(mut words: impl Iterator<Item = String>) -> anyhow::Result<Option<Soak>> {
    let mut soak =
        Soak { store: StoreKind::Sqlite, seed: 1, nodes: 4, duration: Duration::from_mins(1), control: false };
    while let Some(word) = words.next() {
        match word.as_str() {
            "--help" | "-h" => return Ok(None),
            "--control" => {
                soak.control = true;
                continue;
            }
            _ => {}
        }
        let value = words.next().with_context(|| format!("{word} needs a value: see soak --help"))?;
        let number = || value.parse::<u64>().with_context(|| format!("{word} {value}: it is no whole number"));
        match word.as_str() {
            "--store" => {
                let named = StoreKind::ALL.into_iter().find(|(name, _)| *name == value);
                let names = StoreKind::ALL.map(|(name, _)| name).join(", ");
                soak.store = named.with_context(|| format!("--store {value}: it must be one of {names}"))?.1;
            }
            "--seconds" => soak.duration = Duration::from_secs(number()?),
            "--nodes" => soak.nodes = usize::try_from(number()?)?,
            "--seed" => soak.seed = number()?,
            _ => bail!("{word} is unknown: see soak --help"),
        }
    }
    Ok(Some(soak))
}
