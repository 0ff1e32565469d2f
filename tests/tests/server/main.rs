//! The server and its command line, over SQLite files.

mod alerts;
mod bench;
mod cli;
mod clients;
mod doors;
mod drop_in;
mod formats;
mod http;
mod kept_names;
mod leases;
mod manners;
mod metrics;
mod migrating;
mod openapi;
mod remote;
mod service;
