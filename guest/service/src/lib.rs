//! The front end for edge runtimes: `wasi:http/handler@0.3`, or `wasi:http/incoming-handler@0.2`, over the core
//! component, which makes the ids as it does in every other host.
//!
//! It has the paths of the server that need no administration, and answers them as the server does. What it is not told
//! it does not know: the core component and a storage component are linked to it by `unalike-artifact`.
//!
//! With the feature `facade` it answers other components in the place of HTTP: `unalike:ids/async-sequences`.
//!
//! Natively this crate has its tests alone: it is built for `wasm32-wasip2`, with one of its features.
#![cfg_attr(target_family = "wasm", no_std)]
#![cfg_attr(
    any(not(target_family = "wasm"), feature = "facade"),
    allow(dead_code, reason = "neither its tests nor the facade use all of it")
)]

#[cfg(any(target_family = "wasm", test))]
extern crate alloc;

#[cfg(any(target_family = "wasm", test))]
mod answer;
#[cfg(all(target_family = "wasm", feature = "facade"))]
mod facade;
#[cfg(target_family = "wasm")]
mod failures;
#[cfg(all(target_family = "wasm", feature = "wasi-0-3", not(feature = "facade")))]
mod handler;
#[cfg(all(target_family = "wasm", feature = "wasi-0-2"))]
mod incoming;
#[cfg(any(all(target_family = "wasm", feature = "wasi-0-3"), test))]
mod life;
#[cfg(target_family = "wasm")]
#[path = "../../component/src/memory.rs"]
mod memory;
#[cfg(all(target_family = "wasm", feature = "wasi-0-3"))]
#[path = "../../component/src/one_thread.rs"]
mod one_thread;
#[cfg(any(target_family = "wasm", test))]
mod problem;
#[cfg(any(target_family = "wasm", test))]
mod request;
#[cfg(all(target_family = "wasm", not(feature = "facade")))]
mod routes;
#[cfg(target_family = "wasm")]
mod settings;
#[cfg(all(target_family = "wasm", feature = "wasi-0-3", not(feature = "facade")))]
mod snowflakes;
#[cfg(all(target_family = "wasm", feature = "wasi-0-3"))]
mod tags;
#[cfg(any(all(target_family = "wasm", feature = "wasi-0-3"), test))]
mod turn;

#[cfg(all(target_family = "wasm", feature = "wasi-0-3", not(feature = "facade")))]
#[allow(unsafe_code, clippy::all, clippy::restriction, reason = "generated code")]
mod bindings {
    wit_bindgen::generate!({ path: "wit", world: "unalike:service/front", generate_all });

    export!(Component);
    use super::Component;
}

#[cfg(all(target_family = "wasm", feature = "facade"))]
#[allow(unsafe_code, clippy::all, clippy::restriction, reason = "generated code")]
mod bindings {
    wit_bindgen::generate!({ path: "wit", world: "unalike:service/facade", generate_all });

    export!(Component);
    use super::Component;
}

#[cfg(all(target_family = "wasm", feature = "wasi-0-2"))]
#[allow(unsafe_code, clippy::all, clippy::restriction, reason = "generated code")]
mod bindings {
    wit_bindgen::generate!({ path: "wit/0.2", world: "unalike:service/front", generate_all });

    export!(Component);
    use super::Component;
}

/// The type on which the exported interface is written.
#[cfg(target_family = "wasm")]
struct Component;
