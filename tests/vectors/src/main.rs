//! Writes the conformance vectors, or says which of them are not as they would be written.

use std::path::Path;
use std::process::ExitCode;
use std::{env, fs, io};

fn main() -> ExitCode {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let outcome = match env::args().nth(1).as_deref() {
        Some("write") => write(folder),
        Some("check") => check(folder),
        _ => {
            Err(io::Error::other("say what to do: write (all files) or check (that they are as they would be written)"))
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn write(folder: &Path) -> io::Result<()> {
    for (name, text) in unalike_vectors::files() {
        fs::write(folder.join(name), text)?;
    }
    Ok(())
}

fn check(folder: &Path) -> io::Result<()> {
    for (name, text) in unalike_vectors::files() {
        if fs::read_to_string(folder.join(name))? != text {
            let what = "differs from what the core answers: look at the change, then write it";
            return Err(io::Error::other(format!("{name} {what}: cargo run -p unalike-vectors -- write")));
        }
    }
    Ok(())
}
