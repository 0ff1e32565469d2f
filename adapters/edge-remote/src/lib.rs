//! Storage of the core component for edge runtimes: numbers that unalike servers grant, over `wasi:http/client@0.3` or
//! `wasi:http/outgoing-handler@0.2`.
//!
//! It is `unalike-remote` for hosts that are components themselves, and decides by the same table what answers prove.
//! With the feature `wasi-0-3` calls of the core component never wait: a request is kept until a front end waits for it
//! (`unalike:edge/grants.drive`). With `wasi-0-2` each call ends when it has its answer (`unalike:edge/blocking`).
//!
//! - **Several servers** are asked in order of preference. One that grants nothing, or whose answer is lost, is passed
//!   over: what it may have granted is burnt.
//! - **One answer, one caller.** Each request has a random `X-Request-Id` of 128 bits; an answer with another one is
//!   burnt.
//! - **One store.** Each answer names the store that granted. Several servers take the name of their store in the
//!   address (`store=`): an instance lives for a second or two, too short to ask them all.
//! - **No leases.** A lease per instance would leave no worker to anybody, so they are refused.
//!
//! Natively this crate has its tests alone: it is built for `wasm32-wasip2` by `unalike-artifact`, with one
//! of its features.
#![cfg_attr(target_family = "wasm", no_std)]
#![cfg_attr(not(target_family = "wasm"), allow(dead_code, reason = "its tests do not use all of it"))]

#[cfg(any(target_family = "wasm", test))]
extern crate alloc;

#[cfg(any(target_family = "wasm", test))]
mod address;
#[cfg(any(target_family = "wasm", test))]
mod answers;
#[cfg(all(target_family = "wasm", feature = "wasi-0-2"))]
mod blocking;
#[cfg(all(target_family = "wasm", feature = "wasi-0-2"))]
#[path = "blocking_client.rs"]
mod client;
#[cfg(all(target_family = "wasm", feature = "wasi-0-3"))]
mod client;
#[cfg(target_family = "wasm")]
mod exchange;
#[cfg(any(target_family = "wasm", test))]
mod json;
#[cfg(target_family = "wasm")]
#[path = "../../../guest/component/src/memory.rs"]
mod memory;
#[cfg(target_family = "wasm")]
#[path = "../../../guest/component/src/one_thread.rs"]
mod one_thread;
#[cfg(target_family = "wasm")]
mod questions;
#[cfg(target_family = "wasm")]
mod servers;
#[cfg(all(target_family = "wasm", feature = "wasi-0-3"))]
mod storage;

#[cfg(all(target_family = "wasm", feature = "wasi-0-3"))]
#[allow(unsafe_code, clippy::all, clippy::restriction, reason = "generated code")]
mod bindings {
    wit_bindgen::generate!({ path: "wit", world: "unalike:service/remote", generate_all });

    export!(Component);
    use super::Component;
}

#[cfg(all(target_family = "wasm", feature = "wasi-0-2"))]
#[allow(unsafe_code, clippy::all, clippy::restriction, reason = "generated code")]
mod bindings {
    wit_bindgen::generate!({ path: "wit/0.2", world: "unalike:service/remote", generate_all });

    export!(Component);
    use super::Component;
}

/// The type on which the exported interfaces are written.
#[cfg(target_family = "wasm")]
struct Component;
