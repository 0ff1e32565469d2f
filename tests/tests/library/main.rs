//! The library as applications use it.

mod embed;
mod engines;
mod formats;
mod layouts;
mod leases;
mod lifetimes;
mod local;
#[cfg(target_os = "linux")]
mod memory;
mod stripes;
mod upstream_defects;
mod wide;
