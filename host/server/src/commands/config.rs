//! `unalike config`: the configuration checked, or a file with every key.

use std::path::PathBuf;

use anyhow::bail;

use crate::commands::print::print;
use crate::config;
use crate::config::arguments::{CommonArguments, ServeArguments, unknown_variables};

/// `unalike config check`
pub(super) fn check(common: &CommonArguments, file: Option<PathBuf>) -> anyhow::Result<()> {
    let mut common = common.clone();
    // The variable is there for every command.
    let of_environment = std::env::var_os("UNALIKE_CONFIG").map(PathBuf::from);
    if let (Some(file), Some(flag)) = (&file, common.config.as_ref().filter(|_| common.config != of_environment))
        && file != flag
    {
        bail!("two configuration files are named, {} and {} (--config): name one", file.display(), flag.display());
    }
    common.config = file.or(common.config);
    for unknown in unknown_variables() {
        eprintln!("unalike: {unknown}");
    }
    print(&config::effective_text(&common, &ServeArguments::from_environment())?)
}

/// `unalike config default`
pub(super) fn default() -> anyhow::Result<()> {
    print(&config::default_text()?)
}
