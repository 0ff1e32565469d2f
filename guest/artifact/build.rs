//! Provides the bytes of the components, each from the first of these that there is:
//!
//! 1. the file that `UNALIKE_COMPONENT_WASM` or `UNALIKE_FORMATS_WASM` names, and with the feature `service`
//!    `UNALIKE_SERVICE_WASM`, `UNALIKE_SERVICE_REMOTE_WASM`, or those with `_0_2` before `_WASM`,
//!    `UNALIKE_ASYNC_WASM` or `UNALIKE_ASYNC_REMOTE_WASM`;
//! 2. in the source tree, a build of `guest/component` or `guest/formats` for wasm32-wasip2, and for the services a
//!    composition of that with `guest/service` and `adapters/edge-remote`;
//! 3. the copy packaged with this crate (`component/unalike.wasm`, `component/unalike-formats.wasm`, ..), as on
//!    crates.io.
//!
//! Otherwise it ends with the command that helps. With the feature `precompiled` it also compiles the two to
//! machine code for the target of the program.

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
    #[cfg(feature = "service")]
    services(&here, &component);
    #[cfg(feature = "precompiled")]
    for (variable, component, file_name) in [
        ("UNALIKE_COMPONENT_PRECOMPILED", &component, "unalike.cwasm"),
        ("UNALIKE_FORMATS_PRECOMPILED", &formats, "unalike-formats.cwasm"),
    ] {
        println!("cargo:rustc-env={variable}={}", precompile(component, file_name).display());
    }
}

/// A component as machine code, for any processor of the target: no instruction beyond the architecture's baseline.
#[cfg(feature = "precompiled")]
fn precompile(component: &Path, file_name: &str) -> PathBuf {
    let target = variable("TARGET");
    let mut config = wasmtime::Config::new();
    // As `unalike::component::engine_config` sets the engine: wasmtime refuses code compiled under other settings.
    config
        .concurrency_support(false)
        .signals_based_traps(false)
        .memory_reservation(16 << 20)
        .memory_reservation_for_growth(16 << 20)
        .memory_guard_size(0)
        .guard_before_linear_memory(false);
    config.target(&target).unwrap_or_else(|error| {
        panic!(
            "the component cannot be compiled ahead of time for {target}: leave the feature `precompiled` out: {error}"
        )
    });
    let engine = wasmtime::Engine::new(&config).expect("these settings fit together");
    let bytes = fs::read(component).expect("the component can be read");
    let code = engine.precompile_component(&bytes).expect("the component is valid");
    let path = PathBuf::from(variable("OUT_DIR")).join(file_name);
    fs::write(&path, code).expect("OUT_DIR can be written to");
    path
}

/// A front end: for hosts of WASI 0.3 or of 0.2, or for other components.
#[cfg(feature = "service")]
struct Front {
    /// Of its crate.
    feature: &'static str,
    /// What it exports.
    exported: &'static str,
    /// What it imports of the storage.
    grants: &'static str,
}

/// The front ends, around the same core component: with storage that servers grant, and without.
#[cfg(feature = "service")]
fn services(here: &Path, core: &Path) {
    let grants = "unalike:edge/grants@0.1.0";
    let wasi_0_3 = Front { feature: "wasi-0-3", exported: "wasi:http/handler@0.3.0", grants };
    let wasi_0_2 = Front {
        feature: "wasi-0-2",
        exported: "wasi:http/incoming-handler@0.2.0",
        grants: "unalike:edge/blocking@0.1.0",
    };
    let facade = Front { feature: "facade", exported: "unalike:ids/async-sequences@0.1.0", grants };
    // With each front end, the feature of the storage that goes with it.
    for (name, file_name, front, storage) in [
        ("UNALIKE_SERVICE", "unalike-service.wasm", &wasi_0_3, None),
        ("UNALIKE_SERVICE_REMOTE", "unalike-service-remote.wasm", &wasi_0_3, Some("wasi-0-3")),
        ("UNALIKE_SERVICE_0_2", "unalike-service-0.2.wasm", &wasi_0_2, None),
        ("UNALIKE_SERVICE_REMOTE_0_2", "unalike-service-remote-0.2.wasm", &wasi_0_2, Some("wasi-0-2")),
        ("UNALIKE_ASYNC", "unalike-async.wasm", &facade, None),
        ("UNALIKE_ASYNC_REMOTE", "unalike-async-remote.wasm", &facade, Some("wasi-0-3")),
    ] {
        let service = provided(here, &format!("{name}_WASM"), file_name, || {
            let options = ["--no-default-features", "--features", front.feature];
            let built = build_in_tree(here, "../service", "unalike_service", "unalike-front.wasm", &options)?;
            let storage = match storage {
                Some(feature) => {
                    let (folder, file_name) = ("../../adapters/edge-remote", "unalike-edge-remote.wasm");
                    let options = ["--no-default-features", "--features", feature];
                    Some(build_in_tree(here, folder, "unalike_edge_remote", file_name, &options)?)
                }
                None => None,
            };
            Some(compose(front, &built, core, storage.as_deref(), file_name))
        });
        println!("cargo:rustc-env={name}={}", service.display());
    }
}

/// Links the front end to the core component, and both to one instance of the storage. What nobody of them gives is
/// imported.
#[cfg(feature = "service")]
fn compose(front: &Front, built: &Path, core: &Path, storage: Option<&Path>, file_name: &str) -> PathBuf {
    use wac_graph::types::Package;
    use wac_graph::{CompositionGraph, EncodeOptions};

    let mut graph = CompositionGraph::new();
    let mut instantiate = |name: &str, path: &Path| {
        let bytes = fs::read(path).expect("the component can be read");
        let package = Package::from_bytes(name, None, bytes, graph.types_mut()).expect("the component is one");
        let package = graph.register_package(package).expect("its name is its own");
        graph.instantiate(package)
    };
    let storage = storage.map(|path| instantiate("unalike:storage", path));
    let core = instantiate("unalike:core", core);
    let service = instantiate("unalike:service", built);
    let mut link = |from, to, interface: &str| {
        let given = graph.alias_instance_export(from, interface).expect("the one exports the interface");
        graph.set_instantiation_argument(to, interface, given).expect("the other imports it");
    };
    if let Some(storage) = storage {
        link(storage, core, "unalike:ids/segments@0.1.0");
        link(storage, core, "unalike:ids/leases@0.1.0");
        link(storage, service, front.grants);
    }
    link(core, service, "unalike:ids/sequences@0.1.0");
    let exported = graph.alias_instance_export(service, front.exported).expect("the front end exports it");
    graph.export(exported, front.exported).expect("nothing else is exported");
    let composed = graph.encode(EncodeOptions::default()).expect("the components fit together");
    let path = PathBuf::from(variable("OUT_DIR")).join(file_name);
    fs::write(&path, without_custom_sections(&composed)).expect("OUT_DIR can be written to");
    path
}

/// One component: the file that a variable names, or what its crate below `guest` gives, or its copy.
fn component(here: &Path, override_name: &str, crate_name: &str, file_name: &str) -> PathBuf {
    provided(here, override_name, file_name, || {
        build_in_tree(here, &format!("../{crate_name}"), &format!("unalike_{crate_name}"), file_name, &[])
    })
}

/// A file: the one that a variable names, or what `made` gives, or its copy.
fn provided(here: &Path, override_name: &str, file_name: &str, made: impl FnOnce() -> Option<PathBuf>) -> PathBuf {
    println!("cargo:rerun-if-env-changed={override_name}");
    if let Some(path) = env::var_os(override_name) {
        let path = PathBuf::from(path);
        println!("cargo:rerun-if-changed={}", path.display());
        assert!(path.is_file(), "{override_name} names {}, which is no file", path.display());
        return fs::canonicalize(&path).expect("a file that exists has a canonical path");
    }
    if let Some(made) = made() {
        return made;
    }
    let packaged = here.join("component").join(file_name);
    println!("cargo:rerun-if-changed={}", packaged.display());
    assert!(
        packaged.is_file(),
        "the unalike components cannot be built: the target {TARGET} is not installed. Run\n\n    \
         rustup target add {TARGET}\n\nor set {override_name} to a built {file_name}."
    );
    packaged
}

/// What a crate gives that is built here; none where there is no source, or no target to build it for.
fn build_in_tree(here: &Path, folder: &str, library: &str, file_name: &str, options: &[&str]) -> Option<PathBuf> {
    let source = here.join(folder).join("Cargo.toml");
    // Documentation builds have no wasm target; they need any bytes, not these.
    let in_tree = source.is_file() && env::var_os("DOCS_RS").is_none();
    (in_tree && has_target()).then(|| build(&source, library, file_name, options))
}

fn has_target() -> bool {
    Command::new(variable("RUSTC")).args(["--print=target-libdir", "--target", TARGET]).output().is_ok_and(|output| {
        output.status.success() && Path::new(String::from_utf8_lossy(&output.stdout).trim()).exists()
    })
}

/// Builds the component in a target directory of its own, so that the outer cargo's lock is not needed. What it depends
/// on is compiled once for checks, tests and releases.
fn build(source: &Path, library: &str, file_name: &str, options: &[&str]) -> PathBuf {
    let target_dir = PathBuf::from(variable("OUT_DIR"));
    let mut cargo = Command::new(variable("CARGO"));
    cargo
        .args(["build", "--locked", "--profile", "guest", "--target", TARGET, "--manifest-path"])
        .arg(source)
        .arg("--target-dir")
        .arg(&target_dir)
        // BUILD/PROFILE/build/unalike-artifact-HASH/out
        .env("CARGO_BUILD_BUILD_DIR", target_dir.ancestors().nth(4).unwrap_or(&target_dir).join("guest"))
        .args(options);
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
    let built = release.join(format!("{library}.wasm"));
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
    for extra in ["../core/Cargo.toml", "../../wit", "../service/wit"] {
        println!("cargo:rerun-if-changed={extra}");
    }
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}
