//! The component: the `core` world of `unalike:ids` around the generators of `unalike-core`.
//!
//! Glue only: values are translated, from the WIT's to the core's and back. Every decision is the core's.
//! There is no WASI, no clock and no text formatting in here, which keeps the file small and its imports down to the
//! two storage interfaces.
//!
//! Natively this crate is empty: it is built for `wasm32-wasip2` by `unalike-artifact`.
#![cfg_attr(target_family = "wasm", no_std)]

#[cfg(target_family = "wasm")]
extern crate alloc;

#[cfg(target_family = "wasm")]
mod memory;
#[cfg(target_family = "wasm")]
mod one_thread;
#[cfg(target_family = "wasm")]
mod sequences;
#[cfg(target_family = "wasm")]
mod snowflakes;
#[cfg(target_family = "wasm")]
mod translate;

#[cfg(target_family = "wasm")]
#[allow(unsafe_code, clippy::all, clippy::restriction, reason = "generated code")]
mod bindings {
    wit_bindgen::generate!({ path: "wit", world: "core" });

    export!(Component);
    use super::Component;
}

/// The type on which the exported interfaces are written.
#[cfg(target_family = "wasm")]
struct Component;
