//! The rules that all stores keep: the contract suite, models that are searched through, and processes that die.

mod contract;
mod lease_clocks;
mod lease_model;
mod lease_processes;
mod resize_model;
mod simulation;
