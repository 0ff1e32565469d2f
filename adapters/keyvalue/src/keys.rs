//! The keys in a bucket. Others may read them: each is plain text, and so is each value.
//!
//! A tag is part of a key as it is written, but for characters other than Latin letters, digits, `-` and `_`, which are
//! written as `=` and two hexadecimal digits for each byte. So no two tags share a key, and every store takes it: NATS
//! knows no other characters, and a dot separates parts there.

use alloc::string::String;

use unalike_core::SUB_SEPARATOR;

/// The store's name, and the floor of its numbers. An operator writes it.
pub(crate) const STORE: &str = "unalike.store";

/// What instances count on when they start.
pub(crate) const PROBE: &str = "unalike.probe";

/// Why the whole store is refused, once it is. An operator removes it.
pub(crate) const REFUSAL: &str = "unalike.refused";

/// Under how many keys claims are kept. Who claims overwrites an older claim, so the more there are, the longer a claim
/// is seen.
const CLAIMS: u64 = 1_024;

/// The counter of a tag: the greatest number that was granted.
pub(crate) fn counter(tag: &str) -> String {
    of_tag("unalike.ids.", tag)
}

/// The newest grant of a tag.
pub(crate) fn record(tag: &str) -> String {
    of_tag("unalike.seen.", tag)
}

/// Why a tag is refused, once it is. An operator removes it.
pub(crate) fn refusal(tag: &str) -> String {
    of_tag("unalike.refused.", tag)
}

/// How ids of a tag are made, with all of its sub-keys: `buffered`, or `ordered`. An operator writes it.
pub(crate) fn mode(tag: &str) -> String {
    of_tag("unalike.mode.", whole(tag))
}

/// The counter of the tag without its sub-key.
pub(crate) fn whole_counter(tag: &str) -> String {
    counter(whole(tag))
}

fn whole(tag: &str) -> &str {
    tag.split_once(SUB_SEPARATOR).map_or(tag, |(whole, _)| whole)
}

/// Whose numbers of a tag are those from this one on. All tags share these keys.
pub(crate) fn claim(name: &str, first: u64) -> String {
    // FNV-1a, of what two that were given the same numbers have in common.
    let bytes = name.bytes().chain(first.to_le_bytes());
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let mut key = String::from("unalike.claim.");
    push_number(&mut key, (hash ^ (hash >> 32)) % CLAIMS);
    key
}

/// A tag as it is part of a key.
pub(crate) fn written(tag: &str) -> String {
    of_tag("", tag)
}

fn of_tag(prefix: &str, tag: &str) -> String {
    let mut key = String::from(prefix);
    for byte in tag.bytes() {
        if byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_' {
            key.push(char::from(byte));
        } else {
            key.push('=');
            for digit in [byte >> 4, byte & 0xf] {
                key.push(char::from(if digit < 10 { b'0' + digit } else { b'A' + digit - 10 }));
            }
        }
    }
    key
}

/// Decimal digits, without what formatting takes.
pub(crate) fn push_number(text: &mut String, number: u64) {
    if number >= 10 {
        push_number(text, number / 10);
    }
    text.extend(char::from_digit(u32::try_from(number % 10).unwrap_or(0), 10));
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn keys_are_written_as_others_expect_them() {
        assert_eq!(counter("order"), "unalike.ids.order");
        assert_eq!(counter("Order-2_b"), "unalike.ids.Order-2_b");
        assert_eq!(record("a.b c/ä=\u{1f}x"), "unalike.seen.a=2Eb=20c=2F=C3=A4=3D=1Fx");
        assert_eq!(mode("chat\u{1f}user 1"), "unalike.mode.chat");
        assert_eq!(whole_counter("chat\u{1f}user 1"), "unalike.ids.chat");
        assert_eq!(written("a b"), "a=20b");
        let claim = claim("a=20b", 7);
        let place = claim.strip_prefix("unalike.claim.").and_then(|place| place.parse::<u64>().ok());
        assert!(place.is_some_and(|place| place < CLAIMS), "{claim}");
    }

    #[test]
    fn no_two_tags_share_a_key() {
        let mut seen = HashSet::new();
        let parts = ["a", "A", ".", "=", "=2E", "2E", " ", "\u{1f}", "é", "e\u{301}", "=C3=A9", "-", "_", "%", "1F"];
        for one in parts {
            for two in parts {
                for three in parts {
                    let tag = [one, two, three].concat();
                    if seen.insert(tag.clone()) {
                        assert!(seen.insert(counter(&tag)), "{tag:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn claims_of_numbers_in_a_row_or_in_steps_have_keys_of_their_own() {
        for step in [1, 16, 128, 1_000, 1_024] {
            let keys: HashSet<_> = (0..100).map(|place| claim("order", 1 + place * step)).collect();
            assert!(keys.len() > 85, "{} keys of 100 at a step of {step}", keys.len());
        }
        assert_ne!(claim("order", 1), claim("invoice", 1));
    }

    #[test]
    fn numbers_are_decimal() {
        for number in [0, 9, 10, 1_234_567_890, u64::MAX] {
            let mut text = String::new();
            push_number(&mut text, number);
            assert_eq!(text, number.to_string());
        }
    }
}
