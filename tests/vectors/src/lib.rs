//! The conformance vectors: what makes them, from the native core, and what runs them against any host of Rust.
//!
//! [`files`] makes all files of this folder; `cargo run -p unalike-vectors -- write` writes them. [`run`] plays a file
//! against a [`World`], which is the [`Native`] core or whatever hosts the component. `README.md` describes the files.
#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a script that is wrong ends the program that makes or checks it"
)]

mod drawn;
mod formats;
mod hosts;
mod imports;
mod json;
mod layouts;
mod leases;
mod native;
mod ordered;
mod runner;
mod script;
mod sequences;
mod snowflakes;
mod texts;

pub use imports::{Imports, Thrown};
pub use native::{Native, NativeInstance};
pub use runner::{Outcome, World, run};

/// The names and the texts of all files: scripts of calls of the component, and [`rules`].
#[must_use]
pub fn files() -> Vec<(&'static str, String)> {
    [scripts(), rules()].concat()
}

/// What stores answer without the component: no scripts, so [`run`] does not know them.
#[must_use]
pub fn rules() -> Vec<(&'static str, String)> {
    vec![("leases.json", leases::text())]
}

/// The files that [`run`] plays.
#[must_use]
pub fn scripts() -> Vec<(&'static str, String)> {
    vec![
        ("sequences.json", sequences::file().text()),
        ("ordered.json", ordered::file().text()),
        ("snowflakes.json", snowflakes::file().text()),
        ("layouts.json", layouts::file().text()),
        ("texts.json", texts::file().text()),
        ("formats.json", formats::file().text()),
        ("hosts.json", hosts::file().text()),
    ]
}
