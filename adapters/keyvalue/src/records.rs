//! The texts that are kept beside counters.

use alloc::string::String;

use crate::keys::push_number;

/// Numbers above this one are not used: a counter that wraps or fails at its type's end is never brought there, however
/// many instances are refused and have counted on by then.
pub(crate) const NUMBER_MAX: u64 = unalike_core::ID_MAX - (1 << 40);

/// The longest name of a store.
const NAME_LEN_MAX: usize = 128;

/// What a store is known by: `NAME`, or `NAME FLOOR`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Marker {
    pub(crate) name: String,
    /// No number up to this one is used: after a loss it is above all that was granted before.
    pub(crate) floor: u64,
}

impl Marker {
    pub(crate) fn read(value: &[u8]) -> Option<Self> {
        let text = core::str::from_utf8(value).ok()?;
        let text = text.strip_suffix('\n').unwrap_or(text);
        let (name, floor) = match text.split_once(' ') {
            // Counters would be brought beyond what they can count, for good.
            Some((name, floor)) => (name, number(floor).filter(|floor| *floor < NUMBER_MAX)?),
            None => (text, 0),
        };
        is_name(name).then(|| Self { name: String::from(name), floor })
    }
}

/// Whether a store may have this name.
pub(crate) fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= NAME_LEN_MAX && name.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Numbers `first` to `last` of a tag that were granted to an instance: `FIRST LAST INSTANCE NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) instance: String,
    /// The tag as it is written in keys, or what is counted in its place.
    pub(crate) name: String,
}

impl Record {
    pub(crate) fn read(value: &[u8]) -> Option<Self> {
        let mut parts = core::str::from_utf8(value).ok()?.split(' ');
        let (first, last) = (number(parts.next()?)?, number(parts.next()?)?);
        let (instance, name) = (parts.next()?, parts.next()?);
        let is_record =
            1 <= first && first <= last && !instance.is_empty() && !name.is_empty() && parts.next().is_none();
        is_record.then(|| Self { first, last, instance: String::from(instance), name: String::from(name) })
    }

    pub(crate) fn written(&self) -> String {
        let mut text = String::new();
        push_number(&mut text, self.first);
        text.push(' ');
        push_number(&mut text, self.last);
        text.push(' ');
        text.push_str(&self.instance);
        text.push(' ');
        text.push_str(&self.name);
        text
    }

    /// Whether another one was given a number of these.
    pub(crate) fn contradicts(&self, other: &Self) -> bool {
        let overlap = self.first <= other.last && other.first <= self.last;
        overlap && self.name == other.name && self.instance != other.instance
    }
}

/// A number as it is written in decimal digits, and in no other way.
pub(crate) fn number(text: &str) -> Option<u64> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if is_number { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString as _;

    use super::*;

    #[test]
    fn markers_are_a_name_and_perhaps_a_floor() {
        let marker = |name: &str, floor| Some(Marker { name: name.to_string(), floor });
        assert_eq!(Marker::read(b"shop"), marker("shop", 0));
        assert_eq!(Marker::read(b"shop\n"), marker("shop", 0));
        assert_eq!(Marker::read(b"shop-2 5000000"), marker("shop-2", 5_000_000));
        for text in ["", " ", " 5", "shop ", "shop five", "shop 05", "shop 5 5", "sh\u{f6}p", "shop\n\n", "shop -5"] {
            assert_eq!(Marker::read(text.as_bytes()), None, "{text:?}");
        }
        for floor in [NUMBER_MAX, 1 << 63, u64::MAX] {
            assert_eq!(Marker::read(alloc::format!("shop {floor}").as_bytes()), None, "{floor}");
        }
        assert_eq!(Marker::read("x".repeat(129).as_bytes()), None);
        assert_eq!(Marker::read(&[0xff]), None);
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        let record = Record { first: 11, last: 20, instance: "5eed".to_string(), name: "a=20b".to_string() };
        assert_eq!(record.written(), "11 20 5eed a=20b");
        assert_eq!(Record::read(record.written().as_bytes()), Some(record));
        for text in
            ["", "11", "11 20", "11 20 x", "20 11 x y", "0 11 x y", "11 20 x ", "11 20 x y z", "+1 2 x y", "a b c d"]
        {
            assert_eq!(Record::read(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn records_of_the_same_numbers_contradict_each_other() {
        let record = |first, last, instance: &str| {
            let (instance, name) = (instance.to_string(), "order".to_string());
            Record { first, last, instance, name }
        };
        let one = record(11, 20, "a");
        for (other, contradicts) in [
            (record(11, 20, "b"), true),
            (record(20, 30, "b"), true),
            (record(1, 11, "b"), true),
            (record(12, 13, "b"), true),
            (record(21, 30, "b"), false),
            (record(1, 10, "b"), false),
            (record(11, 20, "a"), false),
        ] {
            assert_eq!(one.contradicts(&other), contradicts, "{other:?}");
            assert_eq!(other.contradicts(&one), contradicts, "{other:?}");
            assert!(!one.contradicts(&Record { name: "invoice".to_string(), ..other }));
        }
    }
}
