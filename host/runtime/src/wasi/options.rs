//! How a component is run.

use std::time::Duration;

/// How many requests an instance of WASI 0.3 serves, and how many at once: what wasmtime's own server gives it.
pub(super) const REQUESTS_MAX: usize = 128;
pub(super) const AT_ONCE_MAX: usize = 16;

/// How a component is run.
///
/// Releases add fields: write `..ServiceOptions::default()` at the end.
#[derive(Clone, Debug)]
pub struct ServiceOptions {
    /// How many requests an instance serves before it is dropped: 128 by default, and 1 of WASI 0.2. The component
    /// learns it as `UNALIKE_INSTANCE_REQUESTS`.
    pub instance_requests: Option<usize>,
    /// How many of them at once: 16 by default. Of WASI 0.2 always 1.
    pub instance_at_once: Option<usize>,
    /// How long an instance without requests is kept: 1 s by default.
    pub instance_idle: Duration,
    /// How much memory an instance may take, in bytes, all memories of its modules together: 64 MiB by default.
    pub instance_memory: usize,
    /// How long a request may take: 10 s by default.
    pub request_timeout: Duration,
    /// How many requests may run at once, in all instances, until their answers were taken: 1,000 by default. Others
    /// wait, half as long as a request may take.
    pub requests_at_once: usize,
    /// The hosts that it may send requests to, each with its port if that is not the scheme's own: none by default.
    pub outgoing_hosts: Vec<String>,
    /// Its environment.
    pub environment: Vec<(String, String)>,
}

impl Default for ServiceOptions {
    fn default() -> Self {
        Self {
            instance_requests: None,
            instance_at_once: None,
            instance_idle: Duration::from_secs(1),
            instance_memory: 64 << 20,
            request_timeout: Duration::from_secs(10),
            requests_at_once: 1_000,
            outgoing_hosts: Vec::new(),
            environment: Vec::new(),
        }
    }
}
