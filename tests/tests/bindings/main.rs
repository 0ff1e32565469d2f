//! What other languages are bound to: the C library, by programs in C that know it from its header alone, and the
//! stores of a language that hands out ids itself.

mod c;
mod header;
mod stores;
