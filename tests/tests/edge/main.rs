//! Components in edge runtimes: run by our own `serve --component`, which links the crates of wasmtime's own server,
//! and by that server.

mod blocking;
mod facade;
mod service;
mod vectors;
mod wasmtime;
