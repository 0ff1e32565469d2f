//! The files of a release, made of the server that is tested here. Installing and starting them is a command of its
//! own: `host/server/packaging/try`.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::Path;
use std::process::Command;

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

fn packaging(name: &str) -> std::path::PathBuf {
    repository().join("host/server/packaging").join(name)
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
    let mut release = Command::new(packaging("release"));
    release.arg("--binary").arg(binary().unwrap()).arg("--out").arg(&out);
    said(release.args(["--level", "1", "deb", "kubernetes", "chart"]), "install bash");
    let sums = std::fs::read_to_string(out.join("SHA256SUMS")).unwrap();
    let package = sums.lines().filter_map(|line| line.split_once("  ")).find(|(_, name)| name.ends_with(".deb"));
    let package = out.join(package.unwrap().1);
    assert_eq!(sums.lines().count(), 3, "{sums}");
    said(Command::new("sha256sum").args(["--check", "SHA256SUMS"]).current_dir(&out), "install coreutils");

    let root = directory.path().join("root");
    let unpacked = said(Command::new("dpkg-deb").arg("--vextract").arg(&package).arg(&root), "apt-get install dpkg");
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
