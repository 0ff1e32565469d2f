//! What the host's environment says.

use crate::bindings::wasi::cli::environment::get_environment;
use crate::request::decimal;

/// What is not said, and the limits of what may be said.
const INSTANCE_REQUESTS: u64 = 128;
const COUNT_MAX: u64 = 10_000;
const COUNT_MAX_MAX: u64 = 1_000_000;

/// The settings of an instance.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// `UNALIKE_INSTANCE_REQUESTS`: how many requests the host gives an instance.
    #[cfg_attr(feature = "wasi-0-2", expect(dead_code, reason = "nothing is held for a next request there"))]
    pub(crate) instance_requests: u64,
    /// `UNALIKE_COUNT_MAX`: how many ids a request may ask for.
    pub(crate) count_max: u32,
}

impl Settings {
    /// A value that cannot be read counts as not said: an instance has nobody to tell.
    pub(crate) fn of_environment() -> Self {
        let (mut instance_requests, mut count_max) = (INSTANCE_REQUESTS, COUNT_MAX);
        for (name, value) in get_environment() {
            let place = match name.as_str() {
                "UNALIKE_INSTANCE_REQUESTS" => &mut instance_requests,
                "UNALIKE_COUNT_MAX" => &mut count_max,
                _ => continue,
            };
            if let Some(number) = decimal(&value).filter(|number| *number > 0) {
                *place = number;
            }
        }
        let count_max = u32::try_from(count_max.min(COUNT_MAX_MAX)).unwrap_or(u32::MAX);
        Self { instance_requests, count_max }
    }
}
