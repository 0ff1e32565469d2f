//! The server and its command line, over SQLite files.

mod alerts;
mod bench;
mod cli;
mod clients;
mod console;
mod doctor;
mod doors;
mod drop_in;
mod faults;
mod formats;
mod http;
mod kept_names;
mod leases;
mod manners;
mod metrics;
mod migrating;
mod openapi;
mod prometheus;
mod quotas;
mod remote;
mod scopes;
mod service;
mod tls;
