//! Writes the components to a folder, `unalike.wasm` and `unalike-formats.wasm`:
//! `cargo run -p unalike-artifact --example save -- FOLDER`.

use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    let folder = PathBuf::from(std::env::args_os().nth(1).unwrap_or_else(|| ".".into()));
    for (name, bytes) in [("unalike.wasm", unalike_artifact::CORE), ("unalike-formats.wasm", unalike_artifact::FORMATS)]
    {
        let path = folder.join(name);
        std::fs::write(&path, bytes)?;
        println!("{} bytes in {}", bytes.len(), path.display());
    }
    Ok(())
}
