//! unalike for other languages: the surface that they share, over the Rust host, and the C library `unalike.h`.
//!
//! [`Host`] is what a program opens, from [`HostOptions`] that are read from JSON and have the names of the server's
//! configuration keys. It has a runtime of its own, so that a thread of any language can ask, and wait. A binding adds
//! what its language wants: how a wait is interrupted, how a result comes back, how an error is raised. [`Stores`] are
//! for one that hands out ids itself, and [`warnings`] what they warn of. [`Failure`] is every error.
//!
//! ```
//! use unalike_bindings::{Failure, Host, HostOptions, SequenceOptionsText};
//!
//! # let directory = tempfile::tempdir().unwrap();
//! # let json = format!(r#"{{"store": "sqlite://{}/ids.sqlite"}}"#, directory.path().display());
//! // Such as {"store": "sqlite://ids.sqlite"}.
//! let host = Host::open(&HostOptions::read(&json)?)?;
//! let orders = host.sequence("order", None, &SequenceOptionsText::default())?;
//! assert_eq!(orders.next_blocking()?, 1);
//! host.close()?;
//! # Ok::<(), Failure>(())
//! ```
//!
//! The functions of the C library are in [`c`], and its page is `host/bindings/README.md`.

pub mod c;
mod failure;
mod host;
mod options;
mod stores;
mod threads;
pub mod warnings;

pub use failure::Failure;
pub use host::Host;
pub use options::{HostOptions, SequenceOptionsText, SnowflakeOptionsText, read_format};
pub use stores::Stores;
