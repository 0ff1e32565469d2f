//! The built components in wasmtime, through their WIT.

mod exports;
mod formats;
mod interrupted;
mod own_store;
mod vectors;
