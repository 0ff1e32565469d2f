//! `unalike tokens new`: a token, and its entry for the file of tokens.

use unalike::{Clock as _, SystemClock};

use crate::commands::arguments::TokenArguments;
use crate::commands::print::print;
use crate::config::tokens::new_token;

const DAY_S: u64 = 24 * 60 * 60;

/// Prints the entry where it can be added to a file, and the token itself beside it, once.
pub(crate) fn new(arguments: &TokenArguments) -> anyhow::Result<()> {
    let TokenArguments { name, scope, tags, days, ids_per_s } = arguments;
    let now_s = SystemClock.now_ms() / 1_000;
    let expires_ms = days.map(|days| (now_s + days * DAY_S) * 1_000);
    let tags: Vec<_> = tags.iter().map(|tag| tag.trim().to_owned()).collect();
    let (token, entry) = new_token(name, *scope, &tags, expires_ms, *ids_per_s)?;
    print(&format!("{entry}\n"))?;
    eprintln!("the token of {name:?}, which is shown only now:\n{token}");
    Ok(())
}
