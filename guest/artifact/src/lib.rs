//! The unalike components, as bytes to load into any component host: [`CORE`] issues ids, [`FORMATS`] is for what is
//! done with them afterwards.
//!
//! The crate builds them from source where it can, else brings copies along; `UNALIKE_COMPONENT_WASM` and
//! `UNALIKE_FORMATS_WASM` may name other files at build time. The feature `precompiled` adds the first as machine code,
//! for programs without a compiler.
//!
//! ```
//! assert_eq!(&unalike_artifact::CORE[..4], b"\0asm");
//! ```

/// The component of the `core` world of `unalike:ids@0.1.0`: it imports the package's two storage interfaces and
/// nothing else.
pub const CORE: &[u8] = include_bytes!(env!("UNALIKE_COMPONENT"));

/// The component of the `formats` world: text, fields and formats of ids, as pure functions. It imports nothing.
pub const FORMATS: &[u8] = include_bytes!(env!("UNALIKE_FORMATS"));

/// The same as wasmtime 48 compiles it for this program's target, for `Component::deserialize` in an engine that was
/// made with `Config::concurrency_support(false)`. It runs on every processor of the target's architecture.
#[cfg(feature = "precompiled")]
pub const CORE_PRECOMPILED: &[u8] = include_bytes!(env!("UNALIKE_COMPONENT_PRECOMPILED"));
