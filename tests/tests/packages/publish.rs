//! The packages as crates.io would serve them: `.ci/publish` makes them, and a fresh project that sees nothing of this
//! source tree builds with them and gets ids from SQLite.
//!
//! The project is built in the workspace's target directory and with its profile, so that what is compiled there
//! already, wasmtime above all, is not compiled again.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tempfile::TempDir;
use unalike_tests::process::{cargo, outside_cargo};
use unalike_tests::server::target;

/// The crates that are for others, and no more.
const PUBLIC: [&str; 16] = [
    "unalike",
    "unalike-artifact",
    "unalike-core",
    "unalike-etcd",
    "unalike-local",
    "unalike-memory",
    "unalike-mysql",
    "unalike-notation",
    "unalike-postgres",
    "unalike-redis",
    "unalike-remote",
    "unalike-server",
    "unalike-sqlite",
    "unalike-storage",
    "unalike-stores",
    "unalike-zookeeper",
];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn succeeded(what: &str, output: Output) -> Result<String> {
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{what} ended with {}:\n{stderr}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}

/// Makes the packages and unpacks them here, each in a folder of its name.
fn unpack(into: &Path) -> Result<()> {
    let target = target();
    let packages = target.join("package");
    let is_package = |path: &Path| path.extension().is_some_and(|extension| extension == "crate");
    let listed = || -> Result<Vec<PathBuf>> {
        match fs::read_dir(&packages) {
            Ok(entries) => Ok(entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    };
    for old in listed()?.iter().filter(|path| is_package(path)) {
        fs::remove_file(old)?;
    }
    let mut publish = Command::new(workspace().join(".ci/publish"));
    outside_cargo(&mut publish);
    // A change that is being tested need not be committed; the project below is the build.
    publish.args(["--package", "--allow-dirty"]).env("CARGO_TARGET_DIR", &target);
    succeeded(".ci/publish", publish.output()?)?;
    for package in listed()?.iter().filter(|path| is_package(path)) {
        succeeded("tar", Command::new("tar").arg("-xzf").arg(package).arg("-C").arg(into).output()?)?;
    }
    for entry in fs::read_dir(into)? {
        let path = entry?.path();
        let folder = path.file_name().and_then(|name| name.to_str()).context("a package's folder has a name")?;
        let name = folder.strip_suffix(concat!("-", env!("CARGO_PKG_VERSION")));
        fs::rename(&path, into.join(name.with_context(|| format!("{folder} is of another version"))?))?;
    }
    Ok(())
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        ensure!(!entry.file_type()?.is_symlink(), "{} is a symbolic link", entry.path().display());
        if entry.file_type()?.is_dir() {
            found.extend(files(&entry.path())?);
        } else {
            found.push(entry.path());
        }
    }
    Ok(found)
}

const PROGRAM: &str = r#"
use std::sync::Arc;
use unalike::{Ids, Layout, SequenceOptions, SnowflakeOptions};
use unalike_sqlite::{SqliteOptions, SqliteStore};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = Arc::new(SqliteStore::connect(SqliteOptions::new("ids.sqlite")).await?);
    let ids = Ids::builder().segments(store.clone()).leases(store).build().await?;
    let orders = ids.sequence("order", SequenceOptions::default()).await?;
    let flakes = ids.snowflake("default", SnowflakeOptions::new(Layout::TWITTER)).await?;
    let (first, batch, flake) = (orders.next().await?, orders.take(1_000).await?, flakes.next().await?);
    ids.close().await;
    println!("{first} {} {}", batch.iter().last().unwrap_or(0), Layout::TWITTER.unpack(flake).is_ok());
    Ok(())
}
"#;

/// A project in this folder that takes the packages as its registry would give them.
fn project(folder: &Path, packages: &Path) -> Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    let patches: String =
        PUBLIC.iter().map(|name| format!("{name} = {{ path = {:?} }}\n", packages.join(name))).collect();
    fs::create_dir_all(folder.join("src"))?;
    fs::write(folder.join("src/main.rs"), PROGRAM)?;
    fs::write(
        folder.join("Cargo.toml"),
        format!(
            "[workspace]\nmembers = [\"beside\"]\nresolver = \"1\"\n\n\
             [package]\nname = \"shop\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n\
             [dependencies]\nunalike = {{ version = \"{version}\", features = [\"precompiled\"] }}\nunalike-sqlite = \"{version}\"\n\
             tokio = {{ version = \"1\", features = [\"macros\", \"rt\"] }}\n\n\
             [patch.crates-io]\n{patches}"
        ),
    )?;
    // The same versions as here, so that the same builds are found.
    fs::copy(workspace().join("Cargo.lock"), folder.join("Cargo.lock"))?;
    // And with the same features, which cargo adds up over a workspace: a crate that asks for what this workspace asks
    // for.
    let beside = folder.join("beside");
    fs::create_dir_all(beside.join("src"))?;
    fs::write(beside.join("src/lib.rs"), "")?;
    let dependencies = third_party()?;
    fs::write(
        beside.join("Cargo.toml"),
        format!(
            "[package]\nname = \"beside\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[dependencies]\n{dependencies}"
        ),
    )?;
    Ok(())
}

/// What the crates of this workspace ask of crates.io, added up, as lines of a manifest.
fn third_party() -> Result<String> {
    let mut cargo = cargo();
    cargo.args(["metadata", "--no-deps", "--format-version=1", "--offline"]).current_dir(workspace());
    let metadata: Value = serde_json::from_str(&succeeded("cargo metadata", cargo.output()?)?)?;
    // Name to requirement, whether the default features are wanted, and the other ones.
    let mut wanted: BTreeMap<&str, (&str, bool, BTreeSet<&str>)> = BTreeMap::new();
    let packages = metadata.get("packages").and_then(Value::as_array).context("cargo lists packages")?;
    for dependency in packages.iter().filter_map(|package| package["dependencies"].as_array()).flatten() {
        if !dependency["path"].is_null() || !dependency["target"].is_null() {
            continue;
        }
        let name = dependency["name"].as_str().context("a dependency has a name")?;
        let requirement = dependency["req"].as_str().context("a dependency has a requirement")?;
        let (_, default, features) = wanted.entry(name).or_insert((requirement, false, BTreeSet::new()));
        *default |= dependency["uses_default_features"] == true;
        features.extend(dependency["features"].as_array().into_iter().flatten().filter_map(Value::as_str));
    }
    let lines = wanted.into_iter().map(|(name, (requirement, default, features))| {
        format!(
            "{name} = {{ version = {requirement:?}, default-features = {default}, features = {:?} }}\n",
            features.into_iter().collect::<Vec<_>>()
        )
    });
    Ok(lines.collect())
}

/// Builds the project, in a copy of this workspace's profile, and answers with what to run.
fn build(folder: &Path) -> Result<PathBuf> {
    let target = target();
    let mut cargo = cargo();
    cargo.args(["build", "--offline", "--workspace"]).current_dir(folder).env("CARGO_TARGET_DIR", &target);
    cargo.env_remove("UNALIKE_COMPONENT_WASM");
    let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
    if profile == "release" {
        cargo.arg("--release");
    }
    // Profiles of a workspace hold in it alone.
    let manifest = fs::read_to_string(workspace().join("Cargo.toml"))?;
    let profiles = manifest.find("[profile.").and_then(|begin| manifest.get(begin..)).context("it has profiles")?;
    fs::write(folder.join("profiles.toml"), profiles)?;
    cargo.args(["--config", "profiles.toml"]);
    let output = cargo.output()?;
    // For whoever wonders what the test took so long for.
    eprintln!("{}", String::from_utf8_lossy(&output.stderr));
    succeeded("the build of the project", output)?;
    Ok(target.join(profile).join("shop"))
}

#[test]
fn a_project_outside_the_source_tree_gets_ids_with_the_packages_alone() -> Result<()> {
    let directory = TempDir::new()?;
    let packages = directory.path().join("packages");
    fs::create_dir(&packages)?;
    unpack(&packages)?;

    let names: BTreeSet<String> = fs::read_dir(&packages)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<_>>()?;
    assert_eq!(names, PUBLIC.map(str::to_owned).into(), "these are published, and nothing else");
    for name in PUBLIC {
        let files = files(&packages.join(name))?;
        assert!(files.iter().any(|file| file.ends_with("README.md")), "{name} has no README");
        let manifest = fs::read_to_string(packages.join(name).join("Cargo.toml"))?;
        for key in ["description", "license", "readme", "rust-version", "keywords", "categories"] {
            assert!(manifest.contains(&format!("\n{key} = ")), "{name} says no {key}:\n{manifest}");
        }
    }
    let component = fs::read(packages.join("unalike-artifact/component/unalike.wasm"))?;
    assert_eq!(component, unalike_artifact::CORE, "the component travels with its crate");
    let formats = fs::read(packages.join("unalike-artifact/component/unalike-formats.wasm"))?;
    assert_eq!(formats, unalike_artifact::FORMATS, "so does the one for formats");
    assert!(packages.join("unalike/wit/world.wit").is_file(), "the bindings are generated from the WIT files");

    let shop = directory.path().join("shop");
    project(&shop, &packages)?;
    let program = build(&shop)?;
    let run = || succeeded("the project", Command::new(&program).current_dir(&shop).output()?);
    assert_eq!(run()?, "1 1001 true\n");
    let second = run()?;
    let first: u64 = second.split(' ').next().context("it prints three words")?.parse()?;
    assert!(first > 1_001, "it goes on above where it ended: {second}");
    Ok(())
}
