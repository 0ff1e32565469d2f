//! The unalike component, as bytes to load into any component host.
//!
//! The crate builds it from source where it can, else brings a copy along; `UNALIKE_COMPONENT_WASM` may name another
//! file at build time. The feature `precompiled` adds it as machine code, for programs without a compiler.
//!
//! ```
//! assert_eq!(&unalike_artifact::CORE[..4], b"\0asm");
//! ```

/// The component of the `core` world of `unalike:ids@0.1.0`: it imports the package's two storage interfaces and
/// nothing else.
pub const CORE: &[u8] = include_bytes!(env!("UNALIKE_COMPONENT"));

/// The same as wasmtime 48 compiles it for this program's target, for `Component::deserialize` in an engine that was
/// made with `Config::concurrency_support(false)`. It runs on every processor of the target's architecture.
#[cfg(feature = "precompiled")]
pub const CORE_PRECOMPILED: &[u8] = include_bytes!(env!("UNALIKE_COMPONENT_PRECOMPILED"));
