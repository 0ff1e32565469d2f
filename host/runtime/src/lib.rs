//! unalike in a Rust application: unique ids from one small WebAssembly component, over any store.
//!
//! The component decides every id; this crate embeds it in wasmtime, carries its storage requests to your stores, and
//! hands its runs out natively. Ids are whole numbers from 1 to 2^63 - 1. They stay unique through crashes, pauses,
//! lost replies and clock jumps, because every id comes from a *grant*: an interval that the store gave to one holder,
//! for ever.
//!
//! ```
//! use std::sync::Arc;
//! use unalike::{Ids, Layout, SequenceOptions, SnowflakeOptions};
//! use unalike_memory::MemoryStore;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // A real application takes a durable store here, unalike-sqlite for example.
//! let store = Arc::new(MemoryStore::default());
//! let ids = Ids::builder().segments(store.clone()).leases(store).build().await?;
//!
//! let orders = ids.sequence("order", SequenceOptions::default()).await?; // Clone + Send + Sync
//! assert_eq!(orders.next().await?, 1);
//! assert!(orders.take(3).await?.iter().eq([2, 3, 4]));
//!
//! let flakes = ids.snowflake("default", SnowflakeOptions::new(Layout::TWITTER)).await?;
//! assert!(flakes.next().await? < flakes.next().await?);
//!
//! ids.close().await; // gives back what was not used
//! # Ok(())
//! # }
//! ```
//!
//! The core runs as the component by default. With `default-features = false, features = ["native"]` it is compiled
//! into the program instead, which then holds no wasmtime and hands out the same ids: see [`Engine`].
//!
//! A thread outside any asynchronous runtime uses [`IdsBuilder::build_blocking`] and the `.._blocking` calls.

/// What the dispenser is made of; its model check puts others in their place.
mod atomic {
    pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
}
mod batch;
mod clock;
#[cfg(feature = "component")]
pub mod component;
#[cfg(all(feature = "wasm", not(feature = "component")))]
#[allow(dead_code, unreachable_pub, unused_imports, reason = "a part is for other hosts alone")]
mod component;
#[cfg_attr(not(feature = "component"), allow(dead_code, unreachable_pub, reason = "a part is for other hosts alone"))]
mod context;
mod dispenser;
#[cfg(test)]
mod dispenser_model;
#[cfg(test)]
mod dispenser_tests;
mod error;
mod executor;
mod formatted;
mod generator;
mod ids;
mod instance;
mod lane;
mod lease_watch;
pub mod metrics;
mod ordered;
mod random_ids;
#[cfg_attr(not(feature = "component"), allow(dead_code, unreachable_pub, reason = "a part is for other hosts alone"))]
mod requests;
mod runs;
mod sequence;
#[cfg(feature = "settings")]
pub mod settings;
mod snowflake;
mod sync;
#[cfg(feature = "wasi")]
pub mod wasi;

pub use batch::{Batch, BatchIds};
pub use clock::{Clock, SystemClock};
pub use error::{Error, ErrorKind};
pub use formatted::{FormatMisfit, Formatted, FormattedBatch, Misread, issued_by};
pub use ids::{Ids, IdsBuilder};
pub use instance::Engine;
pub use random_ids::RandomIds;
pub use sequence::{LocalSequence, Order, Sequence, SequenceOptions, SequenceStatus, Supply, WeakSequence};
pub use snowflake::{Snowflake, SnowflakeStatus};
pub use unalike_core::{
    AdaptiveStep, ClockPolicy, FieldOrder, Format, FormatError, FormatKey, FormatOptions, FormatShape, Gene,
    GrantFault, ID_MAX, InstantError, Issued, Layout, LayoutError, LayoutFields, LayoutTextError, OptionsError,
    PRESETS, Parts, Permutation, PolicyTextError, Preset, ReadError, RefillPolicy, Restart, Rfc3339, Run,
    SUB_SEPARATOR, ShapeChanges, SnowflakeOptions, Spread, StepPolicy, TemplateFault, Text, TextBuffer, TextError,
    WriteError, decode, encode, instant, preset,
};
pub use unalike_notation::{
    COSID_GENERATOR, CosidText, Field, Foreign, Guess, Known, Role, SCHEMES, Scheme, SchemeError, Shape, Ulid, Verdict,
    guess, known_layouts, scheme,
};
pub use unalike_storage as storage;
pub use unalike_storage::Mode;
pub use uuid;
#[cfg(feature = "component")]
pub use wasmtime;
