//! The stores in MySQL, on real MariaDB servers.

mod dialects;
mod galera;
mod issuer;
mod lease_outages;
mod leases;
mod notations;
mod outages;
mod own_tables;
mod restored;
mod server;
mod servers;
mod sweep;
