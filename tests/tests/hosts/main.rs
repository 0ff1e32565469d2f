//! The hosts in other languages: each runs its own suite, against real servers.

mod node;
mod python;
mod together;
