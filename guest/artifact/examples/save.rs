//! Writes the components to a folder, `unalike.wasm` and `unalike-formats.wasm`:
//! `cargo run -p unalike-artifact --example save -- FOLDER`; with `--features service` also `unalike-service.wasm`,
//! `unalike-service-remote.wasm`, the same for hosts of WASI 0.2 (`unalike-service-0.2.wasm`, ..), and for other
//! components `unalike-async.wasm` and `unalike-async-remote.wasm`.

use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    let folder = PathBuf::from(std::env::args_os().nth(1).unwrap_or_else(|| ".".into()));
    let components = [
        ("unalike.wasm", unalike_artifact::CORE),
        ("unalike-formats.wasm", unalike_artifact::FORMATS),
        #[cfg(feature = "service")]
        ("unalike-service.wasm", unalike_artifact::SERVICE),
        #[cfg(feature = "service")]
        ("unalike-service-remote.wasm", unalike_artifact::SERVICE_REMOTE),
        #[cfg(feature = "service")]
        ("unalike-service-0.2.wasm", unalike_artifact::SERVICE_0_2),
        #[cfg(feature = "service")]
        ("unalike-service-remote-0.2.wasm", unalike_artifact::SERVICE_REMOTE_0_2),
        #[cfg(feature = "service")]
        ("unalike-async.wasm", unalike_artifact::ASYNC),
        #[cfg(feature = "service")]
        ("unalike-async-remote.wasm", unalike_artifact::ASYNC_REMOTE),
    ];
    for (name, bytes) in components {
        let path = folder.join(name);
        std::fs::write(&path, bytes)?;
        println!("{} bytes in {}", bytes.len(), path.display());
    }
    Ok(())
}
