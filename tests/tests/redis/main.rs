//! The stores in Redis, on real servers.

mod alone;
mod ceiling;
mod clock;
mod cluster;
mod connection;
mod dialects;
mod leases;
mod load;
mod outages;
mod places;
mod restored;
mod rules;
mod sentinel;
mod server;
