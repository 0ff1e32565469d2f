//! The built components in wasmtime, through their WIT.

mod exports;
mod formats;
mod own_store;
mod vectors;
