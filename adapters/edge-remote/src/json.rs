//! JSON, as far as answers of servers need it. Numbers are kept as they are written.

use alloc::string::String;
use alloc::vec::Vec;

/// How deep values may lie in each other.
const DEPTH_MAX: u32 = 16;

/// How many members an object may have. Each is compared with those before it.
const MEMBERS_MAX: usize = 100;

/// How many values a document has at most that is no list of ids.
pub(crate) const VALUES_MAX: usize = 256;

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    /// As it is written.
    Number(String),
    Text(String),
    Array(Vec<Self>),
    Object(Vec<(String, Self)>),
}

impl Value {
    /// The whole of a text; none where it is not JSON, names a member twice, or has more values than this. A value
    /// takes many times the memory of its text.
    pub(crate) fn read(bytes: &[u8], values_max: usize) -> Option<Self> {
        let mut rest = Rest { text: core::str::from_utf8(bytes).ok()?.as_bytes(), values: values_max };
        let value = rest.value(DEPTH_MAX)?;
        rest.skip_space();
        rest.text.is_empty().then_some(value)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Self> {
        let Self::Object(members) = self else { return None };
        members.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    pub(crate) fn text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    /// A whole number of 64 bits, which answers have as a string without leading zeros.
    pub(crate) fn whole(&self) -> Option<u64> {
        let text = self.text()?;
        let is_decimal = !text.is_empty()
            && text.bytes().all(|byte| byte.is_ascii_digit())
            && (text == "0" || !text.starts_with('0'));
        if is_decimal { text.parse().ok() } else { None }
    }
}

struct Rest<'a> {
    text: &'a [u8],
    /// How many values may still come.
    values: usize,
}

impl Rest<'_> {
    fn skip_space(&mut self) {
        while let [b' ' | b'\t' | b'\n' | b'\r', rest @ ..] = self.text {
            self.text = rest;
        }
    }

    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.text.split_first()?;
        self.text = rest;
        Some(*first)
    }

    fn expect(&mut self, text: &[u8]) -> Option<()> {
        self.text = self.text.strip_prefix(text)?;
        Some(())
    }

    fn value(&mut self, depth: u32) -> Option<Value> {
        self.skip_space();
        self.values = self.values.checked_sub(1)?;
        match self.text.first()? {
            b'n' => self.expect(b"null").map(|()| Value::Null),
            b't' => self.expect(b"true").map(|()| Value::Bool(true)),
            b'f' => self.expect(b"false").map(|()| Value::Bool(false)),
            b'"' => self.text().map(Value::Text),
            b'[' => self.array(depth.checked_sub(1)?),
            b'{' => self.object(depth.checked_sub(1)?),
            b'-' | b'0'..=b'9' => {
                let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
                let end = self.text.iter().position(|byte| !is_part(byte)).unwrap_or(self.text.len());
                let (number, rest) = self.text.split_at(end);
                self.text = rest;
                String::from_utf8(number.to_vec()).ok().map(Value::Number)
            }
            _ => None,
        }
    }

    fn array(&mut self, depth: u32) -> Option<Value> {
        let mut values = Vec::new();
        self.next()?;
        self.skip_space();
        if self.expect(b"]").is_some() {
            return Some(Value::Array(values));
        }
        loop {
            values.push(self.value(depth)?);
            self.skip_space();
            match self.next()? {
                b',' => {}
                b']' => return Some(Value::Array(values)),
                _ => return None,
            }
        }
    }

    fn object(&mut self, depth: u32) -> Option<Value> {
        let mut members: Vec<(String, Value)> = Vec::new();
        self.next()?;
        self.skip_space();
        if self.expect(b"}").is_some() {
            return Some(Value::Object(members));
        }
        loop {
            self.skip_space();
            let name = self.text()?;
            // Two readers might take another one of them each.
            if members.len() == MEMBERS_MAX || members.iter().any(|(known, _)| *known == name) {
                return None;
            }
            self.skip_space();
            self.expect(b":")?;
            members.push((name, self.value(depth)?));
            self.skip_space();
            match self.next()? {
                b',' => {}
                b'}' => return Some(Value::Object(members)),
                _ => return None,
            }
        }
    }

    fn text(&mut self) -> Option<String> {
        self.expect(b"\"")?;
        let mut bytes = Vec::new();
        loop {
            match self.next()? {
                b'"' => return String::from_utf8(bytes).ok(),
                b'\\' => {
                    let character = self.escaped()?;
                    bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                }
                0..=0x1f => return None,
                byte => bytes.push(byte),
            }
        }
    }

    fn escaped(&mut self) -> Option<char> {
        Some(match self.next()? {
            b'"' => '"',
            b'\\' => '\\',
            b'/' => '/',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let first = self.unit()?;
                if !(0xd800..0xdc00).contains(&first) {
                    return char::from_u32(first);
                }
                self.expect(b"\\u")?;
                let second = self.unit()?.checked_sub(0xdc00).filter(|low| *low < 0x400)?;
                char::from_u32(0x1_0000 + ((first - 0xd800) << 10) + second)?
            }
            _ => return None,
        })
    }

    fn unit(&mut self) -> Option<u32> {
        let mut unit = 0;
        for _ in 0..4 {
            unit = unit << 4 | char::from(self.next()?).to_digit(16)?;
        }
        Some(unit)
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    fn read(text: &str) -> Option<Value> {
        Value::read(text.as_bytes(), VALUES_MAX)
    }

    #[test]
    fn json_is_read() {
        let value =
            read(r#" {"a": ["x\n\"\u00fc\ud83d\ude00", 1.5e3, true, null, {}], "b": {"c": "18446744073709551615"}} "#);
        let value = value.unwrap();
        let Some(Value::Array(values)) = value.get("a") else { panic!("{value:?}") };
        assert_eq!(values[0].text(), Some("x\n\"ü😀"));
        assert_eq!(values[1], Value::Number("1.5e3".to_string()));
        assert_eq!(value.get("b").and_then(|b| b.get("c")).and_then(Value::whole), Some(u64::MAX));
    }

    #[test]
    fn what_is_no_json_is_refused() {
        for text in [
            "",
            "{",
            "[1,]",
            "{\"a\":1,}",
            "{\"a\" 1}",
            "{a:1}",
            "\"a",
            "\"\\x\"",
            "\"\\ud83d\"",
            "nul",
            "1 2",
            "<html>",
            "{\"a\":1,\"a\":2}",
            "\"\u{1}\"",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
        let members = |count: usize| {
            let members: Vec<_> = (0..count).map(|member| alloc::format!("\"{member}\":0")).collect();
            alloc::format!("{{{}}}", members.join(","))
        };
        assert!(read(&members(MEMBERS_MAX)).is_some() && read(&members(MEMBERS_MAX + 1)).is_none());
        assert!(read(&"[".repeat(100)).is_none() && Value::read(b"\"\xff\"", 1).is_none());
        assert!(read(&alloc::format!("{}{}", "[".repeat(16), "]".repeat(16))).is_some());
    }

    #[test]
    fn no_more_values_are_read_than_are_wanted() {
        // With the array itself.
        for (text, values) in [("0", 1), ("[0,0]", 3), (r#"{"a":[[]]}"#, 3)] {
            assert!(Value::read(text.as_bytes(), values).is_some(), "{text}");
            assert_eq!(Value::read(text.as_bytes(), values - 1), None, "{text}");
        }
    }

    #[test]
    fn numbers_are_exact() {
        for text in ["1", "\"1.0\"", "\"-1\"", "\"+1\"", "\"01\"", "\"\"", "\"18446744073709551616\"", "null"] {
            assert_eq!(read(text).unwrap().whole(), None, "{text}");
        }
        assert_eq!(read("\"0\"").unwrap().whole(), Some(0));
    }
}
