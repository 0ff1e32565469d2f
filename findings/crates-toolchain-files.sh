#!/usr/bin/env bash
# A package from crates.io decides which compiler builds it, where cargo was not started through rustup.
#
# Seen with rustup 1.29.0, cargo 1.95.0 and atoi 2.0.0: the package holds the rust-toolchain.toml of its repository
# (channel 1.57.0). cargo runs rustc in the folder of each package. rustup's rustc then obeys that file, unless rustup's
# cargo set RUSTUP_TOOLCHAIN before. So the path of a toolchain's own cargo (CARGO, `rustup which cargo`) builds one
# package of a project with another compiler than the others, or fails: "toolchain '1.57.0-..' is not installed". sqlx
# 0.9.0 (channel 1.94) and embedded-io 0.4.0 (a nightly) have such files too. With RUSTC set to the compiler beside that
# cargo all is well.
#
# Builds a project of one line in a temporary folder, with rustup's toolchain 1.95.0, which has to be installed. Fails
# if the behaviour is another, or if the toolchain 1.57 is there.
set -euo pipefail

toolchain=1.95.0
unset RUSTUP_TOOLCHAIN RUSTC CARGO_BUILD_BUILD_DIR CARGO_TARGET_DIR
export RUSTUP_AUTO_INSTALL=0
cargo=$(rustup which --toolchain "$toolchain" cargo)
if rustup toolchain list | grep -q '^1\.57'; then
    echo "the toolchain 1.57 is installed, and would be used" >&2
    exit 1
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
mkdir src
echo 'pub use atoi::atoi;' >src/lib.rs
cat >Cargo.toml <<TOML
[package]
name = "one-line"
version = "0.1.0"
edition = "2021"

[dependencies]
atoi = "=2.0.0"
TOML

rustup --version 2>/dev/null
"$cargo" --version
echo "== through rustup"
cargo "+$toolchain" build --quiet --target-dir through
echo "built"
echo "== by its path"
if "$cargo" build --quiet --target-dir direct >direct.log 2>&1; then
    echo "it was built" >&2
    exit 1
fi
grep -o "toolchain '1\.57\.0-.*' is not installed" direct.log
grep -o 'could not compile `atoi` (lib)' direct.log
echo "== by its path, with the compiler beside it"
RUSTC="$(dirname "$cargo")/rustc" "$cargo" build --quiet --target-dir beside
echo "built"
echo "as described"
