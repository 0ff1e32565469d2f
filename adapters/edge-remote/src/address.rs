//! Where the servers are: `http[s]://HOST[:PORT][,HOST[:PORT]..][?PARAMETERS]`, as `unalike-remote` has it.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::answers::store_name;

/// The longest timeout, in milliseconds.
const TIMEOUT_MAX_MS: u64 = 600_000;

/// The servers, and how they are asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) is_https: bool,
    /// Hosts with their ports, in order of preference; at least one.
    pub(crate) hosts: Vec<String>,
    /// The store that all of them must have.
    pub(crate) store: Option<u128>,
    /// The store that their snowflakes' workers are leased from; the same unless something else is said.
    pub(crate) leases: Option<u128>,
    pub(crate) connect_timeout_ms: u64,
    pub(crate) request_timeout_ms: u64,
}

impl Address {
    /// Reads an address.
    ///
    /// # Errors
    /// What is wrong with it. It repeats no part of the address, which may hold a secret.
    pub(crate) fn read(text: &str) -> Result<Self, &'static str> {
        let (is_https, rest) = match (text.strip_prefix("http://"), text.strip_prefix("https://")) {
            (Some(rest), _) => (false, rest),
            (None, Some(rest)) => (true, rest),
            (None, None) => {
                return Err("UNALIKE_SERVERS has another scheme than http and https: write http://HOST:PORT");
            }
        };
        let (hosts, query) = rest.split_once('?').unwrap_or((rest, ""));
        let hosts = hosts.strip_suffix('/').unwrap_or(hosts);
        if hosts.contains('@') {
            return Err("UNALIKE_SERVERS has a user or password, which no server takes: set UNALIKE_TOKEN");
        }
        // The search for a string would be 2 KiB of code.
        if hosts.as_bytes().windows(3).any(|part| part == b"://") {
            return Err("UNALIKE_SERVERS names a scheme twice: hosts after a comma have none (http://HOST,HOST)");
        }
        // A URL takes \ for /.
        if hosts.contains(['/', '\\']) || rest.contains('#') {
            return Err("UNALIKE_SERVERS has a path, which no server takes");
        }
        let mut address = Self {
            is_https,
            hosts: Vec::new(),
            store: None,
            leases: None,
            connect_timeout_ms: 1_000,
            request_timeout_ms: 5_000,
        };
        for host in hosts.split(',') {
            let is_host = !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_graphic());
            if !is_host || address.hosts.iter().any(|known| known == host) {
                return Err("UNALIKE_SERVERS has a host that is none, or one that is named twice");
            }
            address.hosts.push(host.to_string());
        }
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (parameter, value) = pair.split_once('=').unwrap_or((pair, ""));
            let timeout = value.parse().ok().filter(|ms| (1..=TIMEOUT_MAX_MS).contains(ms));
            let wrong = "UNALIKE_SERVERS has a timeout that is not a number of milliseconds from 1 to 600000";
            match parameter {
                "store" | "leases" => {
                    let name =
                        store_name(value).ok_or("UNALIKE_SERVERS has a store that is not 32 hexadecimal digits")?;
                    *(if parameter == "store" { &mut address.store } else { &mut address.leases }) = Some(name);
                }
                "connect-timeout-ms" => address.connect_timeout_ms = timeout.ok_or(wrong)?,
                "request-timeout-ms" => address.request_timeout_ms = timeout.ok_or(wrong)?,
                _ => {
                    return Err(
                        "UNALIKE_SERVERS has an unknown parameter: there are store, leases, connect-timeout-ms \
                                and request-timeout-ms",
                    );
                }
            }
        }
        address.leases = address.leases.or(address.store);
        if address.hosts.len() > 1 && address.store.is_none() {
            return Err(
                "UNALIKE_SERVERS names several servers: name their store, too, by the identity that all of them \
                        answer at GET /v1/store (?store=IDENTITY)",
            );
        }
        Ok(address)
    }
}

/// A path of these parts, and a query of these pairs. None where a part is one that URLs leave out.
pub(crate) fn path(parts: &[&str], query: &[(&str, &str)]) -> Option<String> {
    let mut path = String::new();
    for part in parts {
        if matches!(*part, "." | "..") {
            return None;
        }
        path.push('/');
        push_encoded(&mut path, part);
    }
    for (place, (name, value)) in query.iter().enumerate() {
        path.push(if place == 0 { '?' } else { '&' });
        path.push_str(name);
        path.push('=');
        push_encoded(&mut path, value);
    }
    Some(path)
}

/// Percent-encoded but for what is never anything else in a URL (RFC 3986, section 2.3).
fn push_encoded(text: &mut String, part: &str) {
    for byte in part.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            text.push('%');
            for digit in [byte >> 4, byte & 0xf] {
                text.push(char::from(if digit < 10 { b'0' + digit } else { b'A' + digit - 10 }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let read = |text: &str| Address::read(text).unwrap();
        let one = read("http://127.0.0.1:8080/");
        assert_eq!((one.hosts.len(), one.is_https, one.store, one.request_timeout_ms), (1, false, None, 5_000));
        let several = read("https://a.example,[::1]:9090?store=00000000000000000000000000005eed&request-timeout-ms=20");
        assert_eq!((several.hosts.len(), several.is_https, several.store), (2, true, Some(0x5eed)));
        assert_eq!((several.request_timeout_ms, several.connect_timeout_ms), (20, 1_000));
    }

    #[test]
    fn leases_are_of_the_same_store_unless_another_is_named() {
        let (one, two) = ("00000000000000000000000000005eed", "00000000000000000000000000001ea5");
        let leases = |query: &str| Address::read(&alloc::format!("http://a?{query}")).unwrap().leases;
        assert_eq!(leases(""), None);
        assert_eq!(leases(&alloc::format!("store={one}")), Some(0x5eed));
        assert_eq!(leases(&alloc::format!("leases={two}&store={one}")), Some(0x1ea5));
    }

    #[test]
    fn addresses_that_are_none_are_refused_without_their_secrets() {
        for (text, what) in [
            ("ids.example", "scheme"),
            ("ftp://ids.example", "scheme"),
            ("http://", "host"),
            ("http://a,,b", "host"),
            ("http://a,a", "twice"),
            ("http://a b", "host"),
            ("http://a,http://b", "hosts after a comma"),
            ("http://a/v1", "path"),
            ("http://a\\v1", "path"),
            ("http://a#b", "path"),
            ("http://ids:hunter2@a", "user or password"),
            ("http://a?token=hunter2", "unknown parameter"),
            ("http://a?store=5eed", "32 hexadecimal digits"),
            ("http://a?request-timeout-ms=0", "1 to 600000"),
            ("http://a,b", "name their store"),
        ] {
            let error = Address::read(text).unwrap_err();
            assert!(error.contains(what) && !error.contains("hunter2"), "{text}: {error}");
        }
    }

    #[test]
    fn names_become_paths_that_mean_them() {
        let made = path(&["v1", "sequences", "a b/ü?", "segments"], &[("count", "1"), ("sub", "x&y")]).unwrap();
        assert_eq!(made, "/v1/sequences/a%20b%2F%C3%BC%3F/segments?count=1&sub=x%26y");
        assert_eq!(path(&["v1", "..", "x"], &[]), None);
    }
}
