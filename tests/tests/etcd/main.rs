//! The store in etcd, on real members.

mod clusters;
mod leases;
mod outages;
mod own_keys;
mod server;
