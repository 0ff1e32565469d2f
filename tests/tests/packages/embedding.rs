//! Programs that do not take the library as it comes: without wasmtime, with a wasmtime host of their own, with another
//! wasmtime, or in C.

#![expect(clippy::panic_in_result_fn, reason = "a test that cannot go on fails")]

use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tempfile::TempDir;
use unalike_tests::process;
use unalike_tests::server::{Client, target};
use wit_component::DecodedWasm;
use wit_parser::Resolve;

use crate::examples;

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn cargo(arguments: &[&str]) -> Command {
    let mut cargo = process::cargo();
    cargo.args(arguments).current_dir(workspace());
    cargo
}

/// What a program prints that ends well.
fn output(command: &mut Command) -> Result<String> {
    let output = command.output()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} ended with {}: {stderr}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}

/// A folder of this name below the target directory.
fn below_target(name: &str) -> Result<PathBuf> {
    let folder = target().join(name);
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

#[test]
fn the_native_core_brings_no_wasmtime() -> Result<()> {
    let tree = |features: &[&str]| {
        let arguments = ["tree", "--locked", "-p", "unalike", "--edges", "normal,build", "--prefix", "none"];
        output(cargo(&arguments).args(features))
    };
    let is_of_wasm = |line: &&str| ["wasm", "cranelift", "unalike-artifact", "wit-"].iter().any(|of| line.contains(of));
    let native = tree(&["--no-default-features", "--features", "native"])?;
    let wasm: Vec<&str> = native.lines().filter(is_of_wasm).collect();
    assert!(wasm.is_empty(), "{wasm:?}");
    assert!(native.contains("unalike-core v"), "{native}");
    assert!(tree(&[])?.lines().any(|line| is_of_wasm(&line)), "the component is the default");
    Ok(())
}

/// The header says what the source does, word for word.
#[test]
fn the_header_of_the_c_library_is_made_from_its_source() -> Result<()> {
    let arguments = ["run", "--quiet", "--locked", "--manifest-path", "tests/header/Cargo.toml", "--target-dir"];
    let made = output(cargo(&arguments).arg(below_target("header")?))?;
    let path = workspace().join("host/bindings/include/unalike.h");
    ensure!(
        fs::read_to_string(path)? == made,
        "host/bindings/include/unalike.h does not say what src/c.rs does: cargo run --manifest-path \
         tests/header/Cargo.toml > host/bindings/include/unalike.h makes it anew"
    );
    Ok(())
}

/// What `tests/own-host` is built with.
const NEWER_RUST: &str = "1.97.0";

/// A host that has another major version of wasmtime than everything else here, bindings of its own, and a store of its
/// own. The conformance vectors pass in that wasmtime.
#[test]
fn own_host_takes_ids_with_another_wasmtime() -> Result<()> {
    let target = below_target("own-host")?;
    // Its wasmtime wants a newer compiler than all the rest.
    output(process::outside_cargo(Command::new("rustup").args([
        "toolchain",
        "install",
        NEWER_RUST,
        "--profile=minimal",
    ])))?;
    let mut build = Command::new("rustup");
    build.args(["run", NEWER_RUST, "cargo", "build", "--quiet", "--locked", "--manifest-path"]);
    build.arg("tests/own-host/Cargo.toml").arg("--target-dir").arg(&target).current_dir(workspace());
    process::outside_cargo(&mut build).env_remove("CARGO").env_remove("RUSTC");
    // The components are built already. A file that is written again has its build script run again.
    for (variable, name, bytes) in [
        ("UNALIKE_COMPONENT_WASM", "unalike.wasm", unalike_artifact::CORE),
        ("UNALIKE_FORMATS_WASM", "unalike-formats.wasm", unalike_artifact::FORMATS),
    ] {
        let path = target.join(name);
        if fs::read(&path).ok().as_deref() != Some(bytes) {
            fs::write(&path, bytes)?;
        }
        build.env(variable, path);
    }
    output(&mut build)?;
    let lock = fs::read_to_string(workspace().join("tests/own-host/Cargo.lock"))?;
    let ours = fs::read_to_string(workspace().join("Cargo.lock"))?;
    let version = |lock: &str| -> Result<String> {
        let (_, behind) = lock.split_once("name = \"wasmtime\"\nversion = \"").context("there is wasmtime")?;
        Ok(behind.split('.').next().context("it has a major version")?.to_owned())
    };
    assert_ne!(version(&lock)?, version(&ours)?, "it shows another major version");
    // Here, since the program is built only once for both.
    every_vector_passes(&target.join("debug/vectors"))?;

    let directory = TempDir::new()?;
    let file = directory.path().join("numbers.txt");
    let program = target.join("debug/own-host");
    let take = |tag: &str, count: u32| -> Result<Vec<u64>> {
        let printed = output(Command::new(&program).arg(&file).args([tag, &count.to_string()]))?;
        let ids = printed.lines().map(str::parse).collect::<Result<Vec<u64>, _>>()?;
        ensure!(ids.len() == count as usize && ids.is_sorted_by(|one, next| one < next), "{ids:?}");
        Ok(ids)
    };
    let first = take("order", 2_500)?;
    assert!(first.iter().copied().eq(1..=2_500), "{first:?}");
    assert_eq!(take("invoice", 3)?, [1, 2, 3]);
    // Each run begins above all that earlier ones were granted, whether they used it or not.
    let mut last = 2_500;
    for _ in 0..3 {
        let ids = take("order", 10)?;
        assert!(ids.iter().all(|id| *id > last), "{ids:?} after {last}");
        last = ids.iter().copied().max().context("there are some")?;
    }
    // Also one that is killed while it prints.
    let mut child = Command::new(&program);
    child.arg(&file).args(["order", "4000000000"]).stdout(Stdio::piped());
    let mut killed = Killed(child.spawn()?);
    let mut seen = last;
    for line in BufReader::new(killed.0.stdout.take().context("it is piped")?).lines().take(100_000) {
        seen = line?.parse()?;
    }
    drop(killed);
    assert!(take("order", 1)?.iter().all(|id| *id > seen), "above {seen}");
    // Whatever the file is called, what lies beside it is called otherwise.
    for name in ["ids.lock", "ids.new"] {
        for first in [1, 1_001] {
            let printed = output(Command::new(&program).arg(directory.path().join(name)).args(["order", "3"]))?;
            assert_eq!(printed, format!("{first}\n{}\n{}\n", first + 1, first + 2), "{name}");
        }
    }
    // A file that says something else is no beginning.
    fs::OpenOptions::new().append(true).open(&file)?.write_all(b"nonsense\n")?;
    let refused = Command::new(&program).arg(&file).args(["order", "1"]).output()?;
    assert!(!refused.status.success() && refused.stdout.is_empty(), "{refused:?}");
    Ok(())
}

/// The program plays every vector of every file, and finds one changed digit.
fn every_vector_passes(program: &Path) -> Result<()> {
    let folder = workspace().join("tests/vectors");
    let mut expected = Vec::new();
    for entry in fs::read_dir(&folder)? {
        let path = entry?.path();
        if path.extension().is_none_or(|end| end != "json") {
            continue;
        }
        let name = path.file_name().context("it has a name")?.to_string_lossy();
        let file: Value = serde_json::from_str(&fs::read_to_string(&path)?)?;
        // What lease stores answer is no script.
        let Some(vectors) = file.get("vectors").and_then(Value::as_array) else { continue };
        let calls: usize = vectors.iter().map(|vector| calls(vector.get("steps"))).sum();
        ensure!(!vectors.is_empty() && calls >= vectors.len(), "{name} has {} vectors", vectors.len());
        expected.push(format!("{name}: {} vectors, {calls} calls", vectors.len()));
    }
    ensure!(expected.len() >= 7, "{expected:?}");
    let printed = output(Command::new(program).arg(&folder))?;
    let mut passed: Vec<&str> = printed.lines().collect();
    passed.sort_unstable();
    expected.sort_unstable();
    assert_eq!(passed, expected);

    let changed = TempDir::new()?;
    let text = fs::read_to_string(folder.join("sequences.json"))?;
    let wrong = text.replacen(r#""returns":{"ok":{"first":"1""#, r#""returns":{"ok":{"first":"2""#, 1);
    ensure!(wrong != text, "no run begins with 1");
    fs::write(changed.path().join("sequences.json"), wrong)?;
    let failed = Command::new(program).arg(changed.path()).output()?;
    let stderr = String::from_utf8_lossy(&failed.stderr);
    assert!(failed.status.code() == Some(1) && failed.stdout.is_empty(), "{failed:?}");
    assert!(stderr.starts_with("sequences.json, ") && stderr.contains("  expected "), "{stderr}");
    Ok(())
}

/// How often steps call a component: not where the host refuses the call, or is asked itself.
fn calls(steps: Option<&Value>) -> usize {
    let of_step = |step: &Value| {
        let call = step.get("call").and_then(Value::as_str);
        let is_of_component = call.is_some_and(|call| !call.ends_with(".poll")) && step.get("refused").is_none();
        usize::from(is_of_component) + calls(step.get("fork"))
    };
    steps.and_then(Value::as_array).into_iter().flatten().map(of_step).sum()
}

/// A process that is killed when it goes.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An application that owns its host: another component answers HTTP, and its numbers are ours.
#[test]
fn http_host_runs_another_component_beside_ours() -> Result<()> {
    let target = below_target("application")?;
    let manifest = "host/runtime/examples/application/Cargo.toml";
    let mut build = cargo(&["build", "--quiet", "--locked", "--target", "wasm32-wasip2", "--manifest-path", manifest]);
    output(build.arg("--target-dir").arg(&target))?;
    let application = target.join("wasm32-wasip2/debug/application.wasm");

    let directory = TempDir::new()?;
    let file = directory.path().join("orders.sqlite");
    let start = || -> Result<(Killed, Client)> {
        let mut host = examples::example("http_host", &directory)?;
        host.arg(&application).arg(&file).arg("127.0.0.1:0").stdout(Stdio::piped());
        let mut host = Killed(host.spawn()?);
        let mut line = String::new();
        let mut lines = BufReader::new(host.0.stdout.as_mut().context("it is piped")?);
        lines.read_line(&mut line)?;
        let address = line.trim().strip_prefix("listening on ").with_context(|| line.clone())?;
        Ok((host, Client::new(address)))
    };
    let order = |client: &Client| -> Result<u64> {
        let answer = client.get("/")?;
        ensure!(answer.status == 201, "{answer:?}");
        Ok(answer.body.trim().strip_prefix("order ").with_context(|| answer.body.clone())?.parse()?)
    };
    let (host, client) = start()?;
    for id in 1..=5 {
        assert_eq!(order(&client)?, id);
    }
    let ids = std::thread::scope(|scope| {
        let clients: Vec<_> =
            (0..8).map(|_| scope.spawn(|| (0..50).map(|_| order(&client)).collect::<Result<Vec<u64>>>())).collect();
        let taken =
            clients.into_iter().map(|client| client.join().map_err(|_| anyhow::anyhow!("a client panicked"))?);
        Ok::<_, anyhow::Error>(taken.collect::<Result<Vec<_>>>()?.concat())
    })?;
    let mut sorted = ids.clone();
    sorted.sort_unstable();
    assert!(sorted.iter().copied().eq(6..=405), "each number once: {sorted:?}");
    // Killed, it burns what it held.
    drop(host);
    let (mut host, client) = start()?;
    let next = order(&client)?;
    assert!(next > 405, "{next}");
    // Ended, it gives back what it did not use.
    let id = libc::pid_t::try_from(host.0.id())?;
    #[expect(unsafe_code, reason = "kill takes two integers, and the child was not waited for yet")]
    let sent = unsafe { libc::kill(id, libc::SIGINT) };
    ensure!(sent == 0, "the signal was not sent");
    ensure!(host.0.wait()?.success(), "it did not end well");
    let (_host, client) = start()?;
    assert_eq!(order(&client)?, next + 1);
    Ok(())
}

/// As `wkg wit build` does it: the text as a package in WebAssembly, which names the worlds that the components are of.
#[test]
fn the_wit_is_packaged_and_read_back() -> Result<()> {
    let folder = TempDir::new()?;
    for (name, text) in unalike_artifact::WIT {
        fs::write(folder.path().join(name), text)?;
    }
    let listed = fs::read_dir(workspace().join("wit"))?.collect::<Result<Vec<_>, _>>()?;
    let is_wit = |entry: &&fs::DirEntry| entry.path().extension().is_some_and(|extension| extension == "wit");
    assert_eq!(listed.iter().filter(is_wit).count(), unalike_artifact::WIT.len(), "all of the folder travels");

    let mut written = Resolve::default();
    let (package, _) = written.push_dir(folder.path())?;
    let bytes = wit_component::encode(&written, package)?;
    let DecodedWasm::WitPackage(read, package) = wit_component::decode(&bytes)? else {
        bail!("a component is no package of WIT");
    };
    let named = read.packages.get(package).context("it is the package that was read")?;
    assert_eq!(named.name.to_string(), "unalike:ids@0.1.0");
    for (world, component, other) in [
        ("core", unalike_artifact::CORE, unalike_artifact::FORMATS),
        ("formats", unalike_artifact::FORMATS, unalike_artifact::CORE),
    ] {
        let id = read.select_world(&[package], Some(world))?;
        wit_component::targets(&read, id, component).with_context(|| format!("the component of the world {world}"))?;
        assert!(wit_component::targets(&read, id, other).is_err(), "the other component is not of the world {world}");
    }
    Ok(())
}

/// What `wkg` 0.16 knows of `wkg.toml`; it refuses all else.
#[test]
fn the_package_of_the_wit_says_what_it_is() -> Result<()> {
    let manifest: toml::Table = fs::read_to_string(workspace().join("guest/artifact/wkg.toml"))?.parse()?;
    assert!(manifest.keys().all(|key| key == "metadata"), "{manifest:?}");
    let metadata = manifest.get("metadata").and_then(toml::Value::as_table).context("it has metadata")?;
    let known = ["authors", "description", "licenses", "source", "homepage", "revision"];
    for (key, value) in metadata {
        assert!(known.contains(&key.as_str()) && value.is_str(), "{key} = {value}");
    }
    let licenses = metadata.get("licenses").and_then(toml::Value::as_str);
    assert_eq!(licenses, Some(env!("CARGO_PKG_LICENSE")));
    Ok(())
}
