//! `texts.json`: the notations of an id.

use serde_json::{Value, json};
use unalike_core::ID_MAX;

use crate::json::int;
use crate::script::{File, Script, Seen};

const NOTATIONS: [&str; 6] = ["decimal", "padded", "base36", "base62", "base32", "uuid"];

/// Ids in all notations, one a line in the order of [`NOTATIONS`], converted by other programs: JavaScript's
/// `toString(36)`, and digit by digit for base 62, Crockford's base 32 and the bits of RFC 9562, section 5.8.
const KNOWN: &str = "
    1 0000000000000000001 0000000000001 00000000001 0000000000001 00000000-0000-8000-8900-000000000000
    31 0000000000000000031 000000000000v 0000000000V 000000000000Z 00000000-0000-8003-b900-000000000000
    1000000 0000000000001000000 000000000lfls 00000004C92 000000000YGJ0 00000000-001e-8848-8100-000000000000
    9007199254740991 0009007199254740991 002gosa7pa2gv 00fFgnDxSe7 007ZZZZZZZZZZ 003fffff-ffff-8fff-b900-000000000000
    9007199254740993 0009007199254740993 002gosa7pa2gx 00fFgnDxSe9 0080000000001 00400000-0000-8000-8900-000000000000
    1541815603606036480 1541815603606036480 0bppc0m3ju134 1ptWyK4WgZU 1ASD13XH1F800 2acb423e-c42f-8400-8100-000000000000
    175928847299117063 0175928847299117063 01c49kkphnxtz 0Czks0tP37X 04W86BB0G4007 04e20cb5-8204-8000-b900-000000000000
    9223372036854775807 9223372036854775807 1y2p0ij32e8e7 AzL8n0Y58m7 7ZZZZZZZZZZZZ ffffffff-ffff-8fff-b900-000000000000
";

impl Script {
    fn encode(&mut self, id: u64, text: &str) -> Seen<'_> {
        self.call("codec.encode", "", json!({ "id": int(id), "text": text }))
    }

    fn decode(&mut self, input: &str, text: &str) -> Seen<'_> {
        self.call("codec.decode", "", json!({ "input": input, "text": text }))
    }

    fn is_no_id(&mut self, source: &str, text: &str, input: &str, error: Value) {
        self.decode(input, text).gives_error(source, &error);
    }
}

/// An id of another kind, as it was published.
fn other(kind: &str, text: &str, unix_ms: u64, source: &str) -> Value {
    json!({ "kind": kind, "text": text, "unix-ms": int(unix_ms), "source": source })
}

fn character(at: u32) -> Value {
    json!({ "character": at })
}

fn length(bytes: u32) -> Value {
    json!({ "length": bytes })
}

pub(crate) fn file() -> File {
    let mut file = File::new("formats");
    for (at, notation) in NOTATIONS.into_iter().enumerate() {
        file.vector(format!("{notation}: ids and their texts"), |script| {
            for texts in KNOWN.trim().lines() {
                let texts: Vec<&str> = texts.split_whitespace().collect();
                let id = texts[0].parse().unwrap();
                script.encode(id, notation).gives("converted by another program", &json!({ "ok": texts[at] }));
                script.decode(texts[at], notation).gives("converted by another program", &json!({ "ok": int(id) }));
            }
            let mut id = 3;
            while id < ID_MAX / 100 {
                id = id * 97 + 41;
                script.encode(id, notation);
            }
            for id in [0, ID_MAX + 1, u64::MAX] {
                script.encode(id, notation).gives_error("1 to 2^63 - 1", &json!({ "invalid-argument": "id" }));
            }
        });
    }
    file.vector("numbers that do not fit, by the host", |script| {
        let numbers = ["-1", "18446744073709551616", "18446744073709551617", "1.5", "NaN", ""];
        script.refuses("codec.encode", "", &json!({ "id": "1", "text": "decimal" }), ("", "id"), &numbers);
    });
    file.list(
        "others",
        vec![
            other("ulid", "01ARYZ6S41TSV4RRFFQ69G5FAV", 1_469_918_176_385, "https://github.com/ulid/spec"),
            other("ulid", "7ZZZZZZZZZZZZZZZZZZZZZZZZZ", (1 << 48) - 1, "https://github.com/ulid/spec: the greatest"),
            other("uuid-v7", "017f22e2-79b0-7cc3-98c4-dc0c0c07398f", 1_645_557_742_000, "RFC 9562, appendix A.6"),
        ],
    );
    file.vector("decimal: what is no id", |script| {
        for (input, error) in [
            ("", length(0)),
            ("12345678901234567890", length(20)),
            ("18446744073709551615", length(20)),
            ("0", json!("out-of-range")),
            ("9223372036854775808", json!("out-of-range")),
            ("9999999999999999999", json!("out-of-range")),
            ("00", json!("leading-zero")),
            ("007", json!("leading-zero")),
            ("-1", character(0)),
            ("+1", character(0)),
            (" 1", character(0)),
            ("1 ", character(1)),
            ("1.0", character(1)),
            ("1e3", character(1)),
            ("1_000", character(1)),
            ("0x1", character(1)),
            ("NaN", character(0)),
            ("12\u{0}", character(2)),
            ("1\u{661}", character(1)),
            ("\u{ff11}", character(0)),
        ] {
            script.is_no_id("wit/codec.wit: text.decimal", "decimal", input, error);
        }
    });
    file.vector("padded: what is no id", |script| {
        for (input, error) in [
            ("1", length(1)),
            ("000000000000000001", length(18)),
            ("00000000000000000001", length(20)),
            ("0000000000000000000", json!("out-of-range")),
            ("9223372036854775808", json!("out-of-range")),
            ("000000000000000000a", character(18)),
        ] {
            script.is_no_id("wit/codec.wit: text.padded", "padded", input, error);
        }
    });
    file.vector("base36: both cases, and what is no id", |script| {
        script.decode("1Y2P0IJ32E8E7", "base36").gives("upper case", &json!({ "ok": int(ID_MAX) }));
        for (input, error) in [
            ("1y2p0ij32e8e8", json!("out-of-range")),
            ("zzzzzzzzzzzzz", json!("out-of-range")),
            ("0000000000000", json!("out-of-range")),
            ("00000000000_1", character(11)),
            ("1y2p0ij32e8e", length(12)),
        ] {
            script.is_no_id("wit/codec.wit: text.base36", "base36", input, error);
        }
    });
    file.vector("base62: case counts, and what is no id", |script| {
        script.decode("0000000000A", "base62").gives("0-9A-Za-z", &json!({ "ok": "10" }));
        script.decode("0000000000a", "base62").gives("0-9A-Za-z", &json!({ "ok": "36" }));
        script.decode("0000000000z", "base62").gives("0-9A-Za-z", &json!({ "ok": "61" }));
        for (input, error) in [
            ("AzL8n0Y58m8", json!("out-of-range")),
            ("zzzzzzzzzzz", json!("out-of-range")),
            ("00000000000", json!("out-of-range")),
            ("0000000000-", character(10)),
            ("0000000\u{e9}00", character(7)),
            ("000000000001", length(12)),
        ] {
            script.is_no_id("wit/codec.wit: text.base62", "base62", input, error);
        }
    });
    file.vector("base32: what is read as another letter, and what is no id", |script| {
        let known = json!({ "ok": "175928847299117063" });
        script.decode("04w86bbog4oo7", "base32").gives("lower case, o for 0", &known);
        script.decode("O4W86BBOG4OO7", "base32").gives("O for 0", &known);
        for one in ["I", "i", "L", "l"] {
            script.decode(&format!("000000000000{one}"), "base32").gives("for 1", &json!({ "ok": "1" }));
        }
        for (input, error) in [
            ("8000000000000", json!("out-of-range")),
            ("ZZZZZZZZZZZZZ", json!("out-of-range")),
            ("0000000000000", json!("out-of-range")),
            ("000000000000U", character(12)),
            ("00000-0000000", character(5)),
            ("00000000000001", length(14)),
        ] {
            script.is_no_id("wit/codec.wit: text.base32", "base32", input, error);
        }
    });
    file.vector("uuid: both cases, and what is no id", |script| {
        script
            .decode("04E20CB5-8204-8000-B900-000000000000", "uuid")
            .gives("upper case", &json!({ "ok": "175928847299117063" }));
        for (input, error) in [
            ("00000000-0000-8000-8100-000000000000", json!("out-of-range")),
            ("04e20cb5-8204-4000-b900-000000000000", character(14)),
            ("04e20cb5-8204-7000-b900-000000000000", character(14)),
            ("04e20cb5-8204-8000-f900-000000000000", character(19)),
            ("04e20cb5-8204-8000-3900-000000000000", character(19)),
            ("04e20cb5-8204-8000-b800-000000000000", character(20)),
            ("04e20cb5-8204-8000-bb00-000000000000", character(20)),
            ("04e20cb5-8204-8000-b900-000000000001", character(35)),
            ("04e20cb5-8204-8000-b900-00000000000g", character(35)),
            ("04e20cb5_8204-8000-b900-000000000000", character(8)),
            ("04e20cb582048000b900000000000000", length(32)),
            ("{04e20cb5-8204-8000-b900-000000000000}", length(38)),
            ("00000000-0000-0000-0000-000000000000", character(14)),
        ] {
            script.is_no_id("RFC 9562, section 5.8, with zeros at the end", "uuid", input, error);
        }
    });
    file
}
