//! Worker leases in ZooKeeper.
