//! The store in a SQLite file, and files on the disk.

mod disk;
mod durability;
mod files;
mod locks;
mod notations;
mod power;
mod restored;
mod sweep;
