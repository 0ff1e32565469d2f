//! Writes the component to a file: `cargo run -p unalike-artifact --example save -- unalike.wasm`.

fn main() -> std::io::Result<()> {
    let path = std::env::args_os().nth(1).unwrap_or_else(|| "unalike.wasm".into());
    std::fs::write(&path, unalike_artifact::CORE)?;
    println!("{} bytes in {}", unalike_artifact::CORE.len(), path.display());
    Ok(())
}
