//! `unalike completions` and `unalike man`: what shells and readers of manuals are given, made of the command line
//! itself.

use std::path::Path;

use anyhow::Context;
use clap_complete::Shell;

use crate::commands::arguments::Arguments;
use crate::commands::print::print;

/// `unalike completions`
pub(super) fn completions(shell: Shell) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::whole_command(), "unalike", &mut script);
    print(&String::from_utf8(script).context("the script is no text")?)
}

/// `unalike man`
pub(super) fn pages(folder: &Path) -> anyhow::Result<()> {
    let written = clap_mangen::generate_to(Arguments::whole_command(), folder);
    written.with_context(|| format!("the pages cannot be written to {}", folder.display()))
}
