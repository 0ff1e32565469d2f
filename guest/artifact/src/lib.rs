//! The unalike components, as bytes to load into any component host: [`CORE`] issues ids, [`FORMATS`] is for what is
//! done with them afterwards; and with the feature `service`, whole services for edge runtimes around the first, and a
//! facade that other components link to.
//!
//! The crate builds them from source where it can, else brings copies along; `UNALIKE_COMPONENT_WASM` and
//! `UNALIKE_FORMATS_WASM` may name other files at build time. The feature `precompiled` adds both as machine code, for
//! programs without a compiler.
//!
//! ```
//! assert_eq!(&unalike_artifact::CORE[..4], b"\0asm");
//! ```

/// The component of the `core` world of `unalike:ids@0.1.0`: it imports the package's two storage interfaces and
/// nothing else.
pub const CORE: &[u8] = include_bytes!(env!("UNALIKE_COMPONENT"));

/// The component of the `formats` world: text, fields and formats of ids, as pure functions. It imports nothing.
pub const FORMATS: &[u8] = include_bytes!(env!("UNALIKE_FORMATS"));

/// The contract as text: the files of the WIT package `unalike:ids@0.1.0`, with their names. A host of another
/// language, or of another major version of wasmtime, makes its bindings of them: a build script writes them to a
/// folder.
///
/// ```
/// let folder = std::env::temp_dir().join(format!("wit-{}", std::process::id()));
/// std::fs::create_dir_all(&folder)?;
/// for (name, text) in unalike_artifact::WIT {
///     std::fs::write(folder.join(name), text)?;
/// }
/// assert!(folder.join("world.wit").is_file());
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub const WIT: [(&str, &str); 8] = [
    ("types.wit", include_str!("../wit/types.wit")),
    ("segments.wit", include_str!("../wit/segments.wit")),
    ("leases.wit", include_str!("../wit/leases.wit")),
    ("sequences.wit", include_str!("../wit/sequences.wit")),
    ("snowflakes.wit", include_str!("../wit/snowflakes.wit")),
    ("codec.wit", include_str!("../wit/codec.wit")),
    ("async-sequences.wit", include_str!("../wit/async-sequences.wit")),
    ("world.wit", include_str!("../wit/world.wit")),
];

/// The front end for edge runtimes, around the core component: it exports `wasi:http/handler@0.3.0`. Its host gives it
/// numbers (`unalike:ids/segments`, `unalike:edge/grants`), as `unalike serve --component` does.
#[cfg(feature = "service")]
pub const SERVICE: &[u8] = include_bytes!(env!("UNALIKE_SERVICE"));

/// The same, with storage that unalike servers grant over `wasi:http/client`: every host of WASI 0.3 runs it as it is.
#[cfg(feature = "service")]
pub const SERVICE_REMOTE: &[u8] = include_bytes!(env!("UNALIKE_SERVICE_REMOTE"));

/// [`SERVICE`] for hosts of WASI 0.2: it exports `wasi:http/incoming-handler@0.2.0`, and its host gives it numbers by
/// `unalike:ids/segments` and `unalike:edge/blocking`.
#[cfg(feature = "service")]
pub const SERVICE_0_2: &[u8] = include_bytes!(env!("UNALIKE_SERVICE_0_2"));

/// [`SERVICE_REMOTE`] for hosts of WASI 0.2, over `wasi:http/outgoing-handler`.
#[cfg(feature = "service")]
pub const SERVICE_REMOTE_0_2: &[u8] = include_bytes!(env!("UNALIKE_SERVICE_REMOTE_0_2"));

/// The core component for other components, which it gives ids by `unalike:ids/async-sequences@0.1.0`: each of its
/// calls may wait. Its host gives it numbers, as [`SERVICE`].
#[cfg(feature = "service")]
pub const ASYNC: &[u8] = include_bytes!(env!("UNALIKE_ASYNC"));

/// The same, with storage that unalike servers grant, as [`SERVICE_REMOTE`]: it imports WASI 0.3 and nothing else.
#[cfg(feature = "service")]
pub const ASYNC_REMOTE: &[u8] = include_bytes!(env!("UNALIKE_ASYNC_REMOTE"));

/// The core component as wasmtime 48 compiles it for this program's target, for `Component::deserialize` in an engine
/// that is set as `unalike::component::engine_config` sets one. It runs on every processor of the target's
/// architecture.
#[cfg(feature = "precompiled")]
pub const CORE_PRECOMPILED: &[u8] = include_bytes!(env!("UNALIKE_COMPONENT_PRECOMPILED"));

/// The component [`FORMATS`], in the same way.
#[cfg(feature = "precompiled")]
pub const FORMATS_PRECOMPILED: &[u8] = include_bytes!(env!("UNALIKE_FORMATS_PRECOMPILED"));
