//! The files of a release, made of the server that is tested here. Installing and starting them is a command of its
//! own: `host/server/packaging/try`.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;
use unalike_tests::hosts::repository;
use unalike_tests::server::{binary, ok};

/// What a program prints.
fn said(command: &mut Command, install: &str) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}: {install}"));
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8(text).unwrap();
    assert!(output.status.success(), "{command:?}: {text}");
    text
}

fn packaging(name: &str) -> PathBuf {
    repository().join("host/server/packaging").join(name)
}

/// The files of a part of a release, made of the server that is tested here.
fn made(directory: &Path, parts: &[&str]) -> Vec<PathBuf> {
    let out = directory.join("out");
    let mut release = Command::new(packaging("release"));
    release.arg("--binary").arg(binary().unwrap()).arg("--out").arg(&out).args(["--level", "1"]).args(parts);
    said(&mut release, "install bash");
    let sums = std::fs::read_to_string(out.join("SHA256SUMS")).unwrap();
    sums.lines().filter_map(|line| line.split_once("  ")).map(|(_, name)| out.join(name)).collect()
}

/// What a line of the unit says.
fn of_unit(unit: &str, key: &str) -> String {
    let line = unit.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    line.unwrap_or_else(|| panic!("the unit has no {key}")).to_owned()
}

#[test]
fn the_package_holds_the_server_and_what_it_needs_to_be_a_service() {
    let directory = TempDir::new().unwrap();
    let out = directory.path().join("out");
    let files = made(directory.path(), &["deb", "kubernetes", "chart"]);
    let package = files.iter().find(|file| file.extension().is_some_and(|extension| extension == "deb")).unwrap();
    assert_eq!(files.len(), 3, "{files:?}");
    said(Command::new("sha256sum").args(["--check", "SHA256SUMS"]).current_dir(&out), "install coreutils");

    let root = directory.path().join("root");
    let unpacked = said(Command::new("dpkg-deb").arg("--vextract").arg(package).arg(&root), "apt-get install dpkg");
    for file in [
        "usr/bin/unalike",
        "usr/lib/systemd/system/unalike.service",
        "usr/share/man/man1/unalike-serve.1.gz",
        "usr/share/bash-completion/completions/unalike",
        "usr/share/doc/unalike/copyright",
    ] {
        assert!(root.join(file).is_file(), "{file} is not in the package: {unpacked}");
    }
    let version = said(Command::new(root.join("usr/bin/unalike")).arg("--version"), "");
    assert!(package.to_string_lossy().contains(version.trim().trim_start_matches("unalike ")), "{version}");
    // Its configuration is one that the server takes, where the directory of the unit is there.
    let config = std::fs::read_to_string(root.join("etc/unalike/unalike.toml")).unwrap();
    let store = "sqlite:///var/lib/unalike/ids.sqlite";
    assert_eq!(config.matches(store).count(), 1, "{config}");
    std::fs::write(directory.path().join("unalike.toml"), config.replace(store, "sqlite://ids.sqlite")).unwrap();
    ok(directory.path(), &["config", "check", "unalike.toml"]);
}

#[test]
fn pip_and_npm_install_the_server() {
    let directory = TempDir::new().unwrap();
    let files = made(directory.path(), &["wheel", "npm"]);
    let ending = |ending: &'static str| files.iter().filter(move |file| file.to_string_lossy().ends_with(ending));
    assert_eq!((files.len(), ending(".whl").count(), ending(".tgz").count()), (3, 1, 2), "{files:?}");
    let python = directory.path().join("python");
    said(Command::new("python3").args(["-m", "venv"]).arg(&python), "apt-get install python3-venv");
    let mut pip = Command::new(python.join("bin/pip"));
    said(pip.args(["install", "--no-index", "--disable-pip-version-check"]).args(ending(".whl")), "");
    let node = directory.path().join("node");
    std::fs::create_dir(&node).unwrap();
    let mut npm = Command::new("npm");
    npm.args(["install", "--offline", "--no-audit", "--no-fund"]).args(ending(".tgz")).current_dir(&node);
    said(&mut npm, "apt-get install npm");

    let programs = [python.join("bin"), node.join("node_modules/.bin")];
    let programs = programs.iter().flat_map(|folder| [folder.join("unalike"), folder.join("unalike-server")]);
    for (at, program) in (1..).zip(programs) {
        let next = Command::new(&program).args(["next", "order"]).current_dir(directory.path()).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&next.stdout), format!("{at}\n"), "{}", program.display());
    }
    // Which ends as it was told to end, also by what started it.
    let mut serving = Command::new(node.join("node_modules/.bin/unalike-server"));
    serving.args(["serve", "--listen", "127.0.0.1:0", "--drain-ms", "0"]).current_dir(directory.path());
    let mut serving = serving.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(serving.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.contains("http://127.0.0.1:"), "{first}");
    said(Command::new("kill").arg(serving.id().to_string()), "apt-get install procps");
    assert!(serving.wait().unwrap().success());
}

#[test]
fn scanners_are_told_what_the_server_is_built_from() {
    let directory = TempDir::new().unwrap();
    let files = made(directory.path(), &["sbom"]);
    let document: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(files.first().unwrap()).unwrap()).unwrap();
    assert_eq!(document["bomFormat"], "CycloneDX");
    let components = document["components"].as_array().unwrap();
    let named = |name: &str| components.iter().find(|component| component["name"] == name);
    let sqlx = named("sqlx").unwrap();
    assert_eq!(sqlx["licenses"][0]["expression"], "MIT OR Apache-2.0");
    assert_eq!(sqlx["hashes"][0]["content"].as_str().unwrap().len(), 64);
    assert!(named("unalike-core").is_some() && named("proptest").is_none(), "what is built, and no tests");
}

#[test]
fn the_unit_confines_the_server_and_lets_it_drain() {
    let path = packaging("debian/unalike.service");
    let mut analyse = Command::new("systemd-analyze");
    let analysed = said(analyse.args(["security", "--offline=true"]).arg(&path), "apt-get install systemd");
    let exposure = analysed.split_once("Overall exposure level for unalike.service: ").unwrap().1;
    let exposure: f64 = exposure.split_whitespace().next().unwrap().parse().unwrap();
    assert!(exposure < 2.0, "{analysed}");

    let unit = std::fs::read_to_string(path).unwrap();
    let stop_ms = of_unit(&unit, "TimeoutStopSec").trim_end_matches('s').parse::<u64>().unwrap() * 1_000;
    let default = ok(Path::new("/"), &["config", "default"]);
    let of_default = |key: &str| {
        let line = default.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "));
        line.unwrap_or_else(|| panic!("there is no {key}")).parse::<u64>().unwrap()
    };
    assert!(stop_ms > of_default("drain_ms") + of_default("shutdown_timeout_ms"), "it is killed while it drains");
    let files: u64 = of_unit(&unit, "LimitNOFILE").parse().unwrap();
    assert!(files > of_default("connections_max"), "there are fewer files than connections");
}
