//! Provides the bytes of the two components, each from the first of these that there is:
//!
//! 1. the file that `UNALIKE_COMPONENT_WASM` or `UNALIKE_FORMATS_WASM` names;
//! 2. in the source tree, a build of `guest/component` or `guest/formats` for wasm32-wasip2;
//! 3. the copy packaged with this crate (`component/unalike.wasm`, `component/unalike-formats.wasm`), as on crates.io.
//!
//! Otherwise it ends with the command that helps. With the feature `precompiled` it also compiles the one that issues
//! ids to machine code for the target of the program.

#![expect(clippy::expect_used, reason = "a build script that cannot go on ends the build")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

const TARGET: &str = "wasm32-wasip2";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let here = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let component = component(&here, "UNALIKE_COMPONENT_WASM", "component", "unalike.wasm");
    println!("cargo:rustc-env=UNALIKE_COMPONENT={}", component.display());
    let formats = self::component(&here, "UNALIKE_FORMATS_WASM", "formats", "unalike-formats.wasm");
    println!("cargo:rustc-env=UNALIKE_FORMATS={}", formats.display());
    #[cfg(feature = "precompiled")]
    println!("cargo:rustc-env=UNALIKE_COMPONENT_PRECOMPILED={}", precompile(&component).display());
}

/// The component as machine code, for any processor of the target: no instruction beyond the architecture's baseline.
#[cfg(feature = "precompiled")]
fn precompile(component: &Path) -> PathBuf {
    let target = variable("TARGET");
    let mut config = wasmtime::Config::new();
    // As the host's own engine is set: wasmtime refuses code that was compiled under other settings.
    config.concurrency_support(false);
    config.target(&target).unwrap_or_else(|error| {
        panic!(
            "the component cannot be compiled ahead of time for {target}: leave the feature `precompiled` out: {error}"
        )
    });
    let engine = wasmtime::Engine::new(&config).expect("these settings fit together");
    let bytes = fs::read(component).expect("the component can be read");
    let code = engine.precompile_component(&bytes).expect("the component is valid");
    let path = PathBuf::from(variable("OUT_DIR")).join("unalike.cwasm");
    fs::write(&path, code).expect("OUT_DIR can be written to");
    path
}

/// One component: the file that a variable names, or what its crate below `guest` gives, or its copy.
fn component(here: &Path, override_name: &str, crate_name: &str, file_name: &str) -> PathBuf {
    println!("cargo:rerun-if-env-changed={override_name}");
    if let Some(path) = env::var_os(override_name) {
        let path = PathBuf::from(path);
        println!("cargo:rerun-if-changed={}", path.display());
        assert!(path.is_file(), "{override_name} names {}, which is no file", path.display());
        return fs::canonicalize(&path).expect("a file that exists has a canonical path");
    }
    let packaged = here.join("component").join(file_name);
    let source = here.join("..").join(crate_name).join("Cargo.toml");
    // Documentation builds have no wasm target; they need any bytes, not these.
    let in_tree = source.is_file() && env::var_os("DOCS_RS").is_none();
    if in_tree && has_target() {
        return build(&source, crate_name, file_name);
    }
    println!("cargo:rerun-if-changed={}", packaged.display());
    assert!(
        packaged.is_file(),
        "the unalike components cannot be built: the target {TARGET} is not installed. Run\n\n    \
         rustup target add {TARGET}\n\nor set {override_name} to a built {file_name}."
    );
    packaged
}

fn has_target() -> bool {
    Command::new(variable("RUSTC")).args(["--print=target-libdir", "--target", TARGET]).output().is_ok_and(|output| {
        output.status.success() && Path::new(String::from_utf8_lossy(&output.stdout).trim()).exists()
    })
}

/// Builds the component in a target directory of its own, so that the outer cargo's lock is not needed.
fn build(source: &Path, crate_name: &str, file_name: &str) -> PathBuf {
    let target_dir = PathBuf::from(variable("OUT_DIR"));
    let mut cargo = Command::new(variable("CARGO"));
    cargo
        .args(["build", "--locked", "--profile", "guest", "--target", TARGET, "--manifest-path"])
        .arg(source)
        .arg("--target-dir")
        .arg(&target_dir);
    // What the outer build sets for its own target, or for clippy, is not meant for this one.
    for name in [
        "RUSTFLAGS",
        "CARGO_ENCODED_RUSTFLAGS",
        "CARGO_BUILD_RUSTFLAGS",
        "RUSTC_WRAPPER",
        "RUSTC_WORKSPACE_WRAPPER",
        "CARGO_BUILD_TARGET",
        "RUSTDOCFLAGS",
    ] {
        cargo.env_remove(name);
    }
    // Each call and each address in the code takes the bytes that its number needs, not five; and an address is a
    // number, not the sum of one and of where a loader would have put the module.
    cargo.env("RUSTFLAGS", "-C link-arg=--compress-relocations -C relocation-model=static");
    let status = cargo.status().expect("cargo runs");
    assert!(status.success(), "the build of the component failed: see above");
    let release = target_dir.join(TARGET).join("guest");
    let built = release.join(format!("unalike_{crate_name}.wasm"));
    rerun_if_changed(&built.with_extension("d"));
    println!("cargo:rerun-if-changed={}", source.display());
    let built = fs::read(built).expect("cargo leaves the component");
    let stripped = target_dir.join(file_name);
    fs::write(&stripped, without_custom_sections(&built)).expect("OUT_DIR can be written to");
    stripped
}

/// The component without its names and producers, which nothing needs at run time and which are a tenth of it.
///
/// After an eight-byte header a component is a list of sections: one byte of kind (0 is custom), the size in LEB128,
/// the content (<https://github.com/WebAssembly/component-model/blob/main/design/mvp/Binary.md>). The modules and
/// components within (1 and 4) are made alike, and have their own.
fn without_custom_sections(component: &[u8]) -> Vec<u8> {
    let (header, mut rest) = component.split_at(8);
    // Version and layer: a module has version 1 in all four bytes, and other kinds of sections.
    let is_component = !header.ends_with(&[1, 0, 0, 0]);
    let mut stripped = header.to_vec();
    while let Some((&kind, after_kind)) = rest.split_first() {
        let (mut size, mut size_len) = (0, 0);
        for &byte in after_kind {
            size |= usize::from(byte & 0x7F) << (7 * size_len);
            size_len += 1;
            if byte & 0x80 == 0 {
                break;
            }
        }
        let (_, content) = after_kind.split_at(size_len);
        let (content, next) = content.split_at(size);
        match kind {
            0 => {}
            1 | 4 if is_component => push_section(&mut stripped, kind, &without_custom_sections(content)),
            _ => push_section(&mut stripped, kind, content),
        }
        rest = next;
    }
    stripped
}

fn push_section(binary: &mut Vec<u8>, kind: u8, content: &[u8]) {
    binary.push(kind);
    let mut size = content.len();
    loop {
        let [low, ..] = size.to_le_bytes();
        size >>= 7;
        // Seven bits each, and the eighth says that there are more.
        binary.push(if size > 0 { low | 0x80 } else { low & 0x7F });
        if size == 0 {
            break;
        }
    }
    binary.extend_from_slice(content);
}

/// Every file that the component was made of, as rustc listed it: `output: input input ..` in make's notation.
fn rerun_if_changed(listing: &Path) {
    let listing = fs::read_to_string(listing).expect("cargo leaves a list of the component's sources");
    for line in listing.lines() {
        let Some((_, inputs)) = line.split_once(": ") else { continue };
        for input in inputs.replace("\\ ", "\0").split_whitespace() {
            println!("cargo:rerun-if-changed={}", input.replace('\0', " "));
        }
    }
    for extra in ["../core/Cargo.toml", "../../wit"] {
        println!("cargo:rerun-if-changed={extra}");
    }
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}
