//! The store in PostgreSQL, on real servers.

mod copies;
mod leases;
mod notations;
mod outages;
mod own_tables;
mod pooler;
mod sequences;
mod server;
mod servers;
mod sweep;
