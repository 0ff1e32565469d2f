//! The stores in Redis, on real servers.

mod ceiling;
mod clock;
mod connection;
mod dialects;
mod leases;
mod outages;
mod rules;
mod server;
