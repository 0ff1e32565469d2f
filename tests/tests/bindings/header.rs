//! The header names what the library has. What it says of each is compared where the header is made anew, by
//! `packages`.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};

/// What follows these words, up to a bracket, in each line that has them.
fn names<'t>(text: &'t str, before: &'t str) -> BTreeSet<&'t str> {
    let behind = text.lines().filter_map(|line| line.split_once(before)?.1.split_once('('));
    behind.map(|(name, _)| name.trim_start_matches('*')).collect()
}

#[test]
fn the_header_has_each_function_of_the_library_and_no_other() -> Result<()> {
    let source = names(include_str!("../../../host/bindings/src/c.rs"), "extern \"C\" fn ");
    let header = include_str!("../../../host/bindings/include/unalike.h");
    let in_header = |name: &&&str| header.contains(&format!("{name}("));
    ensure!(source.len() > 15, "{source:?}");
    let missing: Vec<_> = source.iter().filter(|name| !in_header(name)).collect();
    ensure!(missing.is_empty(), "host/bindings/include/unalike.h lacks {missing:?}");
    let words = header.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    let calls = words.filter(|word| word.starts_with("unalike_") && header.contains(&format!("{word}(")));
    let unknown: Vec<_> = calls.filter(|call| !source.contains(call)).collect();
    ensure!(unknown.is_empty(), "host/bindings/include/unalike.h has {unknown:?}, and the library has not");
    Ok(())
}
