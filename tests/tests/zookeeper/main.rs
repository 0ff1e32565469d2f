//! Leases in ZooKeeper, on real servers.

mod leaf;
mod leases;
