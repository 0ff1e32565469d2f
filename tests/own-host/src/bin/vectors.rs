//! The conformance vectors in this wasmtime.
//!
//! ```text
//! vectors FOLDER
//! ```
//!
//! plays all scripts in that folder against both components, and prints how many vectors and calls of each passed. It
//! ends with 1 and the first difference otherwise.

#[path = "../../../tests/component/vectors/dynamic.rs"]
mod dynamic;

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use unalike_vectors::{Imports, Outcome, World, run, scripts};

use dynamic::Wasmtime;

/// How often a component was called since this was last read.
static CALLS: AtomicUsize = AtomicUsize::new(0);

/// The components, with their calls counted.
struct Counted(Wasmtime);

impl World for Counted {
    fn new(imports: Arc<Mutex<Imports>>) -> Self {
        Self(Wasmtime::new(imports))
    }

    fn begin(&mut self) {
        self.0.begin();
    }

    fn end(&mut self) {
        self.0.end();
    }

    fn call(&mut self, call: &str, on: &str, args: &Value) -> Outcome {
        CALLS.fetch_add(1, Ordering::Relaxed);
        self.0.call(call, on, args)
    }

    fn drop_resource(&mut self, on: &str) {
        self.0.drop_resource(on);
    }
}

fn main() -> ExitCode {
    match play() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn play() -> Result<(), String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder] = arguments.as_slice() else { return Err("usage: vectors FOLDER".to_owned()) };
    for (name, _) in scripts() {
        let path = Path::new(folder).join(name);
        let file = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let vectors = run::<Counted>(name, &file)?;
        println!("{name}: {vectors} vectors, {} calls", CALLS.swap(0, Ordering::Relaxed));
    }
    Ok(())
}
