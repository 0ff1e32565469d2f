//! Ids as other systems make and write them.
//!
//! Nothing here issues an id, and none of it is in a component: hosts use it to say what an id is, and to read what
//! others wrote.
//!
//! - [`Scheme`] takes the ids of other generators apart, and puts them together again.
//! - [`guess`] says which systems an id, a text or a number may come from.
//! - [`Ulid`] reads and writes ULIDs.
//!
//! ```
//! use unalike_notation::scheme;
//! let seata = scheme("seata").unwrap().scheme;
//! assert_eq!(seata.fields().len(), seata.take_apart(1 << 40)?.len());
//! # Ok::<(), unalike_notation::SchemeError>(())
//! ```
#![no_std]

extern crate alloc;

#[cfg(test)]
mod dated_ids;
mod foreign;
mod guess;
mod ulid;

pub use foreign::{COSID_GENERATOR, CosidText, Field, Foreign, Role, SCHEMES, Scheme, SchemeError, scheme};
pub use guess::{Guess, Known, Shape, Verdict, guess, known_layouts};
pub use ulid::Ulid;
