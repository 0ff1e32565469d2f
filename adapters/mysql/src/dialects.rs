//! The tables of other systems, read and written in place: one module each.

pub(crate) mod batch;
pub(crate) mod cosid;
pub(crate) mod id_generator;
pub(crate) mod leaf;
mod race;
pub(crate) mod sequence_table;
pub(crate) mod slow_ordered;
mod tables;
pub(crate) mod ticket;
pub(crate) mod tinyid;
