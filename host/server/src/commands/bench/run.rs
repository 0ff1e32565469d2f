//! A run: what every connection of it needs to know.

use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use tokio::sync::Notify;

use crate::commands::reach::ClientTls;

/// What every connection of the run needs to know.
pub(super) struct Run {
    pub(super) addresses: Vec<SocketAddr>,
    /// None: plain HTTP.
    pub(super) tls: Option<ClientTls>,
    /// As many requests as a connection sends at once.
    pub(super) requests: Vec<u8>,
    /// The bytes of one.
    pub(super) request_bytes: usize,
    pub(super) pipeline: u32,
    pub(super) count: u32,
    /// No request is sent after this.
    pub(super) until: Option<Instant>,
    /// Requests that may still be sent.
    pub(super) left: AtomicU64,
    /// Answers so far, whatever they said: for the progress, and to notice silence.
    pub(super) answered: AtomicU64,
    /// The server is silent: nobody waits any longer.
    pub(super) gave_up: Notify,
}
