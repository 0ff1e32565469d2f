//! `unalike`: the HTTP service and the command line, and the only place where stores, component and configuration meet.
//!
//! Errors end here: printed to the standard error with their causes, exit code 1 (2 for a command line that cannot be
//! read). Results go to the standard output, the log to the standard error.

// The OpenAPI document has more members than macros expand to by default.
#![recursion_limit = "256"]

mod commands;
mod config;
mod http;
mod quotas;
mod service;
mod words;

use std::process::ExitCode;

use mimalloc::MiMalloc;

use crate::commands::arguments::Arguments;
use crate::words::with_causes;

/// What thousands of connections had goes back to the system when they close.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    let arguments = Arguments::of_process();
    match commands::run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("unalike: {}", with_causes(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}
