//! The component of the world `formats` of `unalike:ids`: what is done with ids after they were issued, by
//! `unalike-core`.
//!
//! Glue only, as the component that issues them is, and apart from it: whoever reads, writes or hides ids needs no
//! store for that, so this one has no import at all; and whoever issues them need not carry it.
//!
//! Natively this crate is empty: it is built for `wasm32-wasip2` by `unalike-artifact`.
#![cfg_attr(target_family = "wasm", no_std)]

#[cfg(target_family = "wasm")]
extern crate alloc;

#[cfg(target_family = "wasm")]
mod codec;
#[cfg(target_family = "wasm")]
#[path = "../../component/src/memory.rs"]
mod memory;

#[cfg(target_family = "wasm")]
#[allow(unsafe_code, clippy::all, clippy::restriction, reason = "generated code")]
mod bindings {
    wit_bindgen::generate!({ path: "wit", world: "formats" });

    export!(Component);
    use super::Component;
}

/// The type on which the exported interface is written.
#[cfg(target_family = "wasm")]
struct Component;
