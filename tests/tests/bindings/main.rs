//! What other languages are bound to: the C library, by programs in C that know it from its header alone.

mod c;
mod header;

// The library is built beside this program, as a dependency of it.
use unalike_bindings as _;
