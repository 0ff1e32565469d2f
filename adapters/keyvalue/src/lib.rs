//! Storage of the core component over `wasi:keyvalue`: numbers by the atomic increments of a store that an edge
//! runtime has anyway.
//!
//! A counter alone cannot be trusted: hosts have stores that forget, that give each caller a copy, and that read, add
//! and write back. So an answer is used only after what a key-value store can be asked has been asked:
//!
//! - **The store is known by a marker** that its operator writes once and nobody else ever. It is looked for before the
//!   first number and after each one.
//! - **Each grant is recorded beside its counter.** Numbers below the record were counted before.
//! - **Each grant is claimed** under a key that others with the same numbers would use. Who sees another's claim knows
//!   that numbers are not counted in one step.
//! - **A probe** counts on a key that all instances share, when an instance starts.
//!
//! What was not granted beyond doubt is burnt. The page of this crate says what is noticed, and what cannot be.
//!
//! `wasi:keyvalue` exists in two drafts that no host links to each other. The feature `draft2` chooses; all but the
//! bindings is the same. Natively this crate has its tests alone: it is built for `wasm32-wasip2` by
//! `unalike-artifact`.
#![cfg_attr(target_family = "wasm", no_std)]
#![cfg_attr(not(target_family = "wasm"), allow(dead_code, reason = "its tests do not use all of it"))]

#[cfg(any(target_family = "wasm", test))]
extern crate alloc;

#[cfg(any(target_family = "wasm", test))]
mod counters;
#[cfg(any(target_family = "wasm", test))]
mod failure;
#[cfg(any(target_family = "wasm", test))]
mod keys;
#[cfg(target_family = "wasm")]
#[path = "../../../guest/component/src/memory.rs"]
mod memory;
#[cfg(target_family = "wasm")]
#[path = "../../../guest/component/src/one_thread.rs"]
mod one_thread;
#[cfg(any(target_family = "wasm", test))]
mod records;
#[cfg(target_family = "wasm")]
mod storage;

#[cfg(all(target_family = "wasm", not(feature = "draft2")))]
#[allow(unsafe_code, clippy::all, clippy::restriction, reason = "generated code")]
mod bindings {
    wit_bindgen::generate!({ path: "wit", world: "unalike:keyvalue/draft", generate_all });

    export!(Component);
    use super::Component;
    pub(crate) use wasi::keyvalue0_2_0_draft::{atomics, store};
}

#[cfg(all(target_family = "wasm", feature = "draft2"))]
#[allow(unsafe_code, clippy::all, clippy::restriction, reason = "generated code")]
mod bindings {
    wit_bindgen::generate!({ path: "wit", world: "unalike:keyvalue/draft2", generate_all });

    export!(Component);
    use super::Component;
    pub(crate) use wasi::keyvalue0_2_0_draft2::{atomics, store};
}

/// The type on which the exported interfaces are written.
#[cfg(target_family = "wasm")]
struct Component;
