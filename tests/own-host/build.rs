//! Takes the component and its WIT out of `unalike-artifact`, and has wasmtime's own macro make the bindings.

use std::path::PathBuf;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    println!("cargo:rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets it"));
    fs::write(out.join("unalike.wasm"), unalike_artifact::CORE)?;
    let wit = out.join("wit");
    fs::create_dir_all(&wit)?;
    for (name, text) in unalike_artifact::WIT {
        fs::write(wit.join(name), text)?;
    }
    let bindings = format!("wasmtime::component::bindgen!({{ path: {wit:?}, world: \"core\" }});");
    fs::write(out.join("bindings.rs"), bindings)
}
