//! Prints the header of the C library, made from its source: `cargo run --manifest-path tests/header/Cargo.toml`.

use anyhow::Context;
use cbindgen::{Builder, Language, Style};

fn main() -> anyhow::Result<()> {
    Builder::new()
        .with_src(concat!(env!("CARGO_MANIFEST_DIR"), "/../../host/bindings/src/c.rs"))
        .with_language(Language::C)
        .with_style(Style::Both)
        .with_cpp_compat(true)
        .with_include_guard("UNALIKE_H")
        .with_no_includes()
        .with_sys_include("stdbool.h")
        .with_sys_include("stdint.h")
        .with_header(
            "/* unalike for C, and for what calls C: no two ids alike. All texts are UTF-8. Its page is\n   \
             host/bindings/README.md. Made from host/bindings/src/c.rs, not written: cargo run --manifest-path\n   \
             tests/header/Cargo.toml > host/bindings/include/unalike.h */",
        )
        .generate()
        .context("the header cannot be made")?
        .write(std::io::stdout());
    Ok(())
}
