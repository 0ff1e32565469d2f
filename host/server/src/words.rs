//! How values appear in messages, and how numbers in texts are read.

use std::str::FromStr;

use unalike::storage::Rfc3339;
pub(crate) use unalike::storage::with_causes;

/// RFC 3339 in UTC with milliseconds; beyond the year 9999 there is none.
pub(crate) fn rfc3339(unix_ms: u64) -> String {
    Rfc3339(unix_ms).to_string()
}

/// At most 32 characters, for messages, and `..` where there are more.
pub(crate) fn shortened(text: &str) -> String {
    match text.char_indices().nth(32) {
        Some((end, _)) => format!("{}..", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// The one that was probably meant.
pub(crate) fn likeliest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let like = known.iter().map(|known| (strsim::jaro_winkler(name, known), *known));
    let (likeness, meant) = like.max_by(|one, other| one.0.total_cmp(&other.0))?;
    (likeness > 0.8).then_some(meant)
}

/// A whole number in digits only: no sign, which `parse` would take.
pub(crate) fn decimal<T: FromStr>(text: &str) -> Option<T> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}
