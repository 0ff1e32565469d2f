//! What is written: ids, and JSON by hand. Numbers and texts are all there is, and formatting machinery would be half
//! of the component.

use alloc::string::String;
use alloc::vec::Vec;

use crate::request::Form;

/// The greatest whole number up to which JavaScript's numbers are exact.
pub(crate) const SAFE_MAX: u64 = (1 << 53) - 1;

/// An answer that ids are written into.
pub(crate) struct Ids {
    bytes: Vec<u8>,
    form: Form,
    is_first: bool,
}

impl Ids {
    pub(crate) fn begin(label: &str, name: &str, sub: Option<&str>, form: Form) -> Self {
        let mut bytes = Vec::new();
        if form != Form::Lines {
            bytes.push(b'{');
            push_text(&mut bytes, label);
            bytes.push(b':');
            push_text(&mut bytes, name);
            if let Some(sub) = sub {
                bytes.extend_from_slice(b",\"sub\":");
                push_text(&mut bytes, sub);
            }
            bytes.extend_from_slice(b",\"ids\":[");
        }
        Self { bytes, form, is_first: true }
    }

    pub(crate) fn add(&mut self, id: u64) {
        if self.form == Form::Lines {
            push_number(&mut self.bytes, id);
            self.bytes.push(b'\n');
            return;
        }
        if !self.is_first {
            self.bytes.push(b',');
        }
        self.is_first = false;
        let quotes: &[u8] = if self.form == Form::Strings { b"\"" } else { b"" };
        self.bytes.extend_from_slice(quotes);
        push_number(&mut self.bytes, id);
        self.bytes.extend_from_slice(quotes);
    }

    /// The kind of text, and the text.
    pub(crate) fn finish(mut self) -> (&'static str, Vec<u8>) {
        if self.form == Form::Lines {
            return ("text/plain; charset=utf-8", self.bytes);
        }
        self.bytes.extend_from_slice(b"]}");
        ("application/json", self.bytes)
    }
}

/// A number in decimal.
pub(crate) fn push_number(bytes: &mut Vec<u8>, number: u64) {
    let mut digits = [0; 20];
    let (mut rest, mut at) = (number, digits.len());
    for digit in digits.iter_mut().rev() {
        // A remainder of ten is a digit.
        *digit = b'0' + u8::try_from(rest % 10).unwrap_or(0);
        rest /= 10;
        at -= 1;
        if rest == 0 {
            break;
        }
    }
    bytes.extend_from_slice(digits.get(at..).unwrap_or_default());
}

/// A number in decimal, for messages.
pub(crate) fn number(number: u64) -> String {
    let mut bytes = Vec::new();
    push_number(&mut bytes, number);
    String::from_utf8(bytes).unwrap_or_default()
}

/// A JSON string.
pub(crate) fn push_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.push(b'"');
    for &byte in text.as_bytes() {
        match byte {
            b'"' | b'\\' => bytes.extend_from_slice(&[b'\\', byte]),
            b'\n' => bytes.extend_from_slice(b"\\n"),
            b'\r' => bytes.extend_from_slice(b"\\r"),
            b'\t' => bytes.extend_from_slice(b"\\t"),
            0..=0x1f => {
                bytes.extend_from_slice(b"\\u00");
                for digit in [byte >> 4, byte & 0xf] {
                    bytes.push(if digit < 10 { b'0' + digit } else { b'a' + digit - 10 });
                }
            }
            _ => bytes.push(byte),
        }
    }
    bytes.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_written_as_the_server_writes_them() {
        let written = |form| {
            let mut ids = Ids::begin("tag", "a\"b", Some("u"), form);
            ids.add(1);
            ids.add(u64::MAX >> 1);
            let (media, bytes) = ids.finish();
            (media, String::from_utf8(bytes).unwrap())
        };
        let json = |ids: &str| ("application/json", alloc::format!(r#"{{"tag":"a\"b","sub":"u","ids":[{ids}]}}"#));
        assert_eq!(written(Form::Strings), json(r#""1","9223372036854775807""#));
        assert_eq!(written(Form::Numbers), json("1,9223372036854775807"));
        assert_eq!(written(Form::Lines), ("text/plain; charset=utf-8", "1\n9223372036854775807\n".into()));
    }

    #[test]
    fn texts_and_numbers_are_json() {
        let mut bytes = Vec::new();
        push_text(&mut bytes, "a\u{1}\u{1f}\n\\ü");
        assert_eq!(String::from_utf8(bytes).unwrap(), "\"a\\u0001\\u001f\\n\\\\ü\"");
        for value in [0, 9, 10, 99, 100, u64::MAX] {
            assert_eq!(number(value), value.to_string());
        }
    }
}
