//! The id of a request: in its answer's header, in the log lines that it causes, and in a problem document.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::{HeaderMap, HeaderName, HeaderValue};

/// The header that carries it, both ways.
pub(crate) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Longer ones than any system makes are replaced: each line of the log repeats them.
const BYTES_MAX: usize = 128;

tokio::task_local! {
    /// The id of the request that this task is working on.
    static CURRENT: HeaderValue;
}

/// The id that came with a request, if it is well formed (1 to 128 letters, digits and `-_.:;=+/@`) and no secret. Else
/// a new one.
pub(crate) fn of(headers: &HeaderMap, is_secret: impl FnOnce(&[u8]) -> bool) -> HeaderValue {
    match headers.get(X_REQUEST_ID) {
        Some(id) if is_well_formed(id.as_bytes()) && !is_secret(id.as_bytes()) => id.clone(),
        _ => made(),
    }
}

fn is_well_formed(id: &[u8]) -> bool {
    (1..=BYTES_MAX).contains(&id.len())
        && id.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:;=+/@".contains(byte))
}

/// 16 hexadecimal digits that count up from a random number: unlike within a process, and between processes by chance.
fn made() -> HeaderValue {
    static NEXT: LazyLock<AtomicU64> = LazyLock::new(|| AtomicU64::new(RandomState::new().hash_one(0)));
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut digits = [0; 16];
    for (place, digit) in digits.iter_mut().enumerate() {
        let value = (number >> (60 - 4 * place)) & 0xf;
        *digit = b"0123456789abcdef".get(usize::try_from(value).unwrap_or(0)).copied().unwrap_or(b'0');
    }
    // Digits are valid in a header.
    HeaderValue::from_bytes(&digits).unwrap_or_else(|_| HeaderValue::from_static("0"))
}

/// Works on the request with this id.
pub(crate) async fn within<F: Future>(id: HeaderValue, work: F) -> F::Output {
    CURRENT.scope(id, work).await
}

/// Gives the id of the request that is worked on here, if one is.
pub(crate) fn with_current<T>(use_it: impl FnOnce(&str) -> T) -> Option<T> {
    CURRENT.try_with(|id| id.to_str().ok().map(use_it)).ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn well_formed_ids_are_kept_and_others_replaced() {
        let given = |value: &[u8]| {
            let mut headers = HeaderMap::new();
            headers.insert(X_REQUEST_ID, HeaderValue::from_bytes(value).unwrap());
            of(&headers, |id| id == b"secret")
        };
        for id in
            ["a", "5f2b6c1e-8a3d-4b0e-9f61-2f0d4c7e9a11", "Root=1-67891233-abcdef012345678912345678", &"x".repeat(128)]
        {
            assert_eq!(given(id.as_bytes()), id);
        }
        for id in [&b""[..], b"a b", b"a\"b", b"\xff", "x".repeat(129).as_bytes(), b"secret"] {
            let made = given(id);
            assert!(made.len() == 16 && made.as_bytes().iter().all(u8::is_ascii_hexdigit), "{made:?}");
        }
        assert_ne!(of(&HeaderMap::new(), |_| false), of(&HeaderMap::new(), |_| false));
    }
}
