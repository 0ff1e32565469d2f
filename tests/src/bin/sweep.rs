//! Sweeps a store's settings: see [`unalike_tests::sweep`].

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use unalike_tests::sweep::mysql::Mysql;
use unalike_tests::sweep::postgres::Postgresql;
use unalike_tests::sweep::redis::RedisAboveSqlite;
use unalike_tests::sweep::sqlite::{SqliteFile, serve};
use unalike_tests::sweep::{Plan, Report};

const HELP: &str = "\
Sets every variable of a server to the values of its type, before the start and while a program is connected, and looks
at each id. It ends with a table, and with an error when an id came twice or a call did not end.

usage: sweep --store mysql|postgres|redis|sqlite

  --seed N       draws other pairs
  --pairs N      so many random pairs after the single variables; 100 by default
  --only NAME    this variable, or definition, alone; may be repeated
  --servers N    so many servers at a time; 2 by default
  --control      a client that stands for the systems that unalike replaces: it must be found out
";

fn main() -> anyhow::Result<ExitCode> {
    let mut plan = Plan { shows_progress: true, ..Plan::default() };
    let mut store = None;
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--help" | "-h" => {
                print!("{HELP}");
                return Ok(ExitCode::SUCCESS);
            }
            "--control" => {
                plan.is_control = true;
                continue;
            }
            _ => {}
        }
        let value = words.next().with_context(|| format!("{word} needs a value: see sweep --help"))?;
        let number = || value.parse::<usize>().with_context(|| format!("{word} {value}: it is no whole number"));
        match word.as_str() {
            "--client" | "--naive-client" => {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                runtime.block_on(serve(Path::new(&value), word == "--naive-client"))?;
                return Ok(ExitCode::SUCCESS);
            }
            "--store" => store = Some(value),
            "--seed" => plan.seed = u64::try_from(number()?)?,
            "--pairs" => plan.pairs = number()?,
            "--servers" => plan.servers = number()?,
            "--only" => plan.only.push(value),
            _ => bail!("{word:?} is no option: see sweep --help"),
        }
    }
    let report = match store.as_deref() {
        Some("mysql") => Report::make::<Mysql>(&plan)?,
        Some("postgres") => Report::make::<Postgresql>(&plan)?,
        Some("redis") => Report::make::<RedisAboveSqlite>(&plan)?,
        Some("sqlite") => Report::make::<SqliteFile>(&plan)?,
        _ => {
            print!("{HELP}");
            return Ok(ExitCode::FAILURE);
        }
    };
    print!("{report}");
    Ok(if report.is_bad() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
