//! `formats.json`: templates, keys, genes, dates.

use serde_json::{Value, json};
use unalike_core::ID_MAX;

use crate::json::int;
use crate::script::{File, Script, Seen};
use crate::sequences::{BEYOND_DOUBLE, NOW, WHOLE, change};

const WIT: &str = "wit/codec.wit";
/// 2023-11-14T22:13:20.000Z is `NOW`.
const DATE: &str = "1700000000000 is 2023-11-14T22:13:20.000Z";
/// The permutation, calculated by another program from its description and SipHash's reference.
const PERMUTED: &str = "ten Feistel rounds of SipHash-2-4, calculated by another program; key 00 01 .. 0f";

fn options(changes: Value) -> Value {
    let mut options = json!({
        "template": "{id}",
        "utc-offset-minutes": 0,
        "restart": "never",
        "bits": 63,
        "gene-bits": 0,
        "key-id-bits": 0,
        "keys": [],
        "context": "order",
    });
    change(&mut options, changes);
    options
}

fn key(id: u8) -> Value {
    json!({ "id": id, "high": "283686952306183", "low": "579005069656919567" })
}

fn issued(id: u64, number: u64, gene: Option<u64>, key_id: Option<u8>, span: Option<(u64, u64)>) -> Value {
    json!({ "ok": {
        "id": int(id),
        "number": int(number),
        "gene": gene.map(int),
        "key-id": key_id,
        "span": span.map(|(from, until)| [int(from), int(until)]),
    } })
}

impl Script {
    fn open_format(&mut self, changes: Value) {
        self.call("format.open", "f", json!({ "options": options(changes) })).gives(WIT, &json!({ "ok": null }));
        self.call("format.id-max", "f", json!({}));
        self.call("format.shape", "f", json!({}));
        self.call("format.key-checks", "f", json!({}));
    }

    fn id_max(&mut self, source: &str, id_max: u64) {
        self.call("format.id-max", "f", json!({})).gives(source, &int(id_max));
    }

    fn period(&mut self, issued: u64) -> Seen<'_> {
        self.call("format.period", "f", json!({ "issued": int(issued) }))
    }

    fn number(&mut self, id: u64, issued: u64, shard_key: Option<u64>) -> Seen<'_> {
        self.call(
            "format.number",
            "f",
            json!({ "id": int(id), "issued": int(issued), "shard-key": shard_key.map(int) }),
        )
    }

    fn original(&mut self, number: u64) -> Seen<'_> {
        self.call("format.original", "f", json!({ "number": int(number) }))
    }

    fn write(&mut self, id: u64, issued: u64, shard_key: Option<u64>) -> Seen<'_> {
        self.call("format.write", "f", json!({ "id": int(id), "issued": int(issued), "shard-key": shard_key.map(int) }))
    }

    fn read(&mut self, text: &str) -> Seen<'_> {
        self.call("format.read", "f", json!({ "text": text }))
    }
}

pub(crate) fn file() -> File {
    let mut file = File::new("formats");
    refused(&mut file);
    templates(&mut file);
    dates(&mut file);
    restarts(&mut file);
    genes(&mut file);
    keys(&mut file);
    kept(&mut file);
    by_host(&mut file);
    file
}

fn refused(file: &mut File) {
    file.vector("templates that are none", |script| {
        let long = format!("{{id}}{}", "x".repeat(125));
        for (template, at, fault) in [
            ("", 0, "id-missing"),
            ("ORD-", 4, "id-missing"),
            ("{gene:4}", 8, "id-missing"),
            ("{id", 0, "brace"),
            ("id}", 2, "brace"),
            ("{id}}", 4, "brace"),
            ("{{id}", 4, "brace"),
            ("ORD-{ID}", 4, "placeholder"),
            ("{}", 0, "placeholder"),
            ("{id:0}{id}", 0, "placeholder"),
            ("{id:10}", 0, "placeholder"),
            ("{id:020}", 0, "placeholder"),
            ("{id:base64}", 0, "placeholder"),
            ("{gene:0}{id}", 0, "placeholder"),
            ("{gene:17}{id}", 0, "placeholder"),
            ("{gene}{id}", 0, "placeholder"),
            ("{yyy}{id}", 0, "placeholder"),
            ("{yyyymmdd}{id}", 0, "placeholder"),
            ("{yyyy}{mm}{id}", 6, "placeholder"),
            ("{id}{id}", 4, "twice"),
            ("{id}{id:base36}", 4, "twice"),
            ("{gene:4}{id}{gene:4}", 12, "twice"),
            ("{id}\n", 4, "character"),
            ("\u{7f}{id}", 0, "character"),
            ("\u{e9}\u{85}{id}", 2, "character"),
            (long.as_str(), 128, "too-long"),
        ] {
            script
                .call("format.open", "f", json!({ "options": options(json!({ "template": template })) }))
                .gives_error("wit/codec.wit: template-fault", &json!({ "template": [at, fault] }));
        }
        script
            .call(
                "format.open",
                "f",
                json!({ "options": options(json!({ "template": "{id}{gene:4}", "gene-bits": 4 })) }),
            )
            .gives_error("a gene where the number has one", &json!({ "template": [4, "twice"] }));
        let longest = format!("{{id}}{}", "x".repeat(124));
        script
            .call("format.open", "f", json!({ "options": options(json!({ "template": longest })) }))
            .gives("128 bytes", &json!({ "ok": null }));
    });
    file.vector("options out of range", |script| {
        for (changes, error) in [
            (json!({ "utc-offset-minutes": 1_081 }), json!("utc-offset")),
            (json!({ "utc-offset-minutes": -1_081 }), json!("utc-offset")),
            (json!({ "utc-offset-minutes": i16::MIN }), json!("utc-offset")),
            (json!({ "restart": "year" }), json!("restart")),
            (json!({ "restart": "year", "template": "{yy}{id}" }), json!("restart")),
            (json!({ "restart": "month", "template": "{yyyy}{id}" }), json!("restart")),
            (json!({ "restart": "day", "template": "{yyyyMM}{id}" }), json!("restart")),
            (json!({ "bits": 0 }), json!("bits")),
            (json!({ "bits": 64 }), json!("bits")),
            (json!({ "bits": 255 }), json!("bits")),
            (json!({ "gene-bits": 17 }), json!("bits")),
            (json!({ "bits": 4, "gene-bits": 4 }), json!("bits")),
            (json!({ "key-id-bits": 1 }), json!("bits")),
            (json!({ "key-id-bits": 9, "keys": [key(1)] }), json!("bits")),
            (json!({ "bits": 1, "keys": [key(0)] }), json!("bits")),
            (json!({ "keys": [key(1)] }), json!({ "key": 1 })),
            (json!({ "key-id-bits": 3, "keys": [key(8)] }), json!({ "key": 8 })),
            (json!({ "key-id-bits": 3, "keys": [key(0)] }), json!({ "key": 0 })),
            (json!({ "key-id-bits": 3, "keys": [key(5), key(5)] }), json!({ "key": 5 })),
            (json!({ "keys": [key(0), key(0)] }), json!({ "key": 0 })),
            (json!({ "key-id-bits": 8, "keys": [key(255), key(255)] }), json!({ "key": 255 })),
            (json!({ "template": "{id:010}", "keys": [key(0)] }), json!({ "digits": 10 })),
            (json!({ "template": "{id:01}", "gene-bits": 4 }), json!({ "digits": 1 })),
        ] {
            script
                .call("format.open", "f", json!({ "options": options(changes) }))
                .gives_error("wit/codec.wit: format-options", &error);
        }
        for offset in [-1_080, 1_080] {
            script
                .call(
                    "format.open",
                    &format!("f{offset}"),
                    json!({ "options": options(json!({ "utc-offset-minutes": offset })) }),
                )
                .gives("18 hours", &json!({ "ok": null }));
        }
    });
}

fn templates(file: &mut File) {
    file.vector("a template crosses with all its letters", |script| {
        script.open_format(json!({ "template": format!("{WHOLE}{{id}}{WHOLE}"), "context": WHOLE }));
        let text = format!("{WHOLE}7{WHOLE}");
        script.write(7, NOW, None).gives("the letters of the template", &json!({ "ok": text }));
        script.read(&text).gives("the letters of the template", &issued(7, 7, None, None, None));
    });
    file.vector("{id}", |script| {
        script.open_format(json!({}));
        script.id_max("63 bits", ID_MAX);
        for id in [1, BEYOND_DOUBLE, ID_MAX] {
            let text = id.to_string();
            script.write(id, NOW, None).gives("decimal", &json!({ "ok": text }));
            script.read(&text).gives("decimal", &issued(id, id, None, None, None));
            script.number(id, u64::MAX, None).gives("as it is", &json!({ "ok": text }));
            script.original(id).gives("as it is", &issued(id, id, None, None, None));
        }
        for id in [0, ID_MAX + 1, u64::MAX] {
            script.write(id, NOW, None).gives_error(WIT, &json!({ "id": int(ID_MAX) }));
            script.number(id, NOW, None).gives_error(WIT, &json!({ "id": int(ID_MAX) }));
            script.original(id).gives_error(WIT, &json!({ "number": 0 }));
        }
        script.write(1, NOW, Some(7)).gives_error(WIT, &json!("shard-key-unwanted"));
        script.write(1, u64::MAX, None).gives("it shows no date", &json!({ "ok": "1" }));
        for (text, error) in [
            ("", json!({ "length": 0 })),
            ("12345678901234567890", json!({ "length": 20 })),
            ("12a", json!({ "character": 2 })),
            ("0", json!({ "number": 0 })),
            ("01", json!({ "character": 0 })),
            ("9223372036854775808", json!({ "number": 0 })),
        ] {
            script.read(text).gives_error(WIT, &error);
        }
    });
    for (template, id, text) in [
        ("ORD-{id}", 42, "ORD-42"),
        ("{id:010}", 42, "0000000042"),
        ("{id:019}", ID_MAX, "9223372036854775807"),
        ("{id:base36}", 1_000_000, "000000000lfls"),
        ("{id:base62}", 1_000_000, "00000004C92"),
        ("{id:base32}", 1_000_000, "000000000YGJ0"),
        ("{id:uuid}", 1_000_000, "00000000-001e-8848-8100-000000000000"),
        ("{{{id}}}", 7, "{7}"),
        ("\u{8ba2}\u{5355}{id:04}\u{e9}", 7, "\u{8ba2}\u{5355}0007\u{e9}"),
        ("}}{{{id:base62}", 61, "}{0000000000z"),
    ] {
        file.vector(template, |script| {
            script.open_format(json!({ "template": template }));
            script.write(id, NOW, None).gives(WIT, &json!({ "ok": text }));
            script.read(text).gives(WIT, &issued(id, id, None, None, None));
            script.read(&format!("{text} "));
            script.read(&format!("x{}", text.chars().skip(1).collect::<String>()));
        });
    }
    file.vector("a width bounds the ids", |script| {
        script.open_format(json!({ "template": "{id:04}" }));
        script.id_max("four digits", 9_999);
        script.write(9_999, NOW, None).gives("four digits", &json!({ "ok": "9999" }));
        script.write(10_000, NOW, None).gives_error("four digits", &json!({ "id": "9999" }));
        script.read("10000").gives_error("four digits", &json!({ "length": 5 }));
        script.read("0000").gives_error("0 is no id", &json!({ "number": 0 }));
    });
    file.vector("bits bound the ids", |script| {
        script.open_format(json!({ "bits": 10 }));
        script.id_max("2^10 - 1", 1_023);
        script.write(1_023, NOW, None).gives("2^10 - 1", &json!({ "ok": "1023" }));
        script.write(1_024, NOW, None).gives_error("2^10 - 1", &json!({ "id": "1023" }));
        script.read("1024").gives_error("2^10 - 1", &json!({ "number": 0 }));
        script.original(1_024).gives_error("2^10 - 1", &json!({ "number": 0 }));
    });
}

fn dates(file: &mut File) {
    file.vector("every part of a date", |script| {
        script.open_format(json!({ "template": "{yyyy-MM-dd HH:mm:ss.SSS} {yy}/{id}" }));
        script.write(7, NOW, None).gives(DATE, &json!({ "ok": "2023-11-14 22:13:20.000 23/7" }));
        script.read("2023-11-14 22:13:20.000 23/7").gives(DATE, &issued(7, 7, None, None, Some((NOW, NOW + 1))));
        script.write(7, 0, None).gives("1970", &json!({ "ok": "1970-01-01 00:00:00.000 70/7" }));
        script.write(7, 253_402_300_799_999, None).gives("9999", &json!({ "ok": "9999-12-31 23:59:59.999 99/7" }));
        script.write(7, 253_402_300_800_000, None).gives_error("10000", &json!("time"));
        script.write(7, u64::MAX, None).gives_error(WIT, &json!("time"));
        script
            .write(7, 951_782_400_000, None)
            .gives("2000 is a leap year", &json!({ "ok": "2000-02-29 00:00:00.000 00/7" }));
        for (text, at) in [
            ("2023-11-14 22:13:20.000 24/7", 24),
            ("2023-13-14 22:13:20.000 23/7", 5),
            ("2023-00-14 22:13:20.000 23/7", 5),
            ("2023-02-29 22:13:20.000 23/7", 8),
            ("2023-11-14 24:13:20.000 23/7", 11),
            ("2023-11-14 22:60:20.000 23/7", 14),
            ("2023-11-14 22:13:60.000 23/7", 17),
        ] {
            script.read(text).gives_error("wit/codec.wit: format-error.date", &json!({ "date": at }));
        }
        script.read("1969-12-31 23:59:59.999 69/7");
        script.read("2023-11-14_22:13:20.000 23/7").gives_error(WIT, &json!({ "character": 10 }));
        script.read("2023-11-1x 22:13:20.000 23/7").gives_error(WIT, &json!({ "character": 9 }));
    });
    file.vector("the offset from UTC", |script| {
        for (on, minutes, text) in
            [("e", 480, "20231115061320"), ("w", -570, "20231114124320"), ("m", 1_080, "20231115161320")]
        {
            let options = options(json!({ "template": "{yyyyMMddHHmmss}-{id}", "utc-offset-minutes": minutes }));
            script.call("format.open", on, json!({ "options": options }));
            let args = json!({ "id": "1", "issued": int(NOW), "shard-key": null });
            script.call("format.write", on, args).gives(DATE, &json!({ "ok": format!("{text}-1") }));
            script
                .call("format.read", on, json!({ "text": format!("{text}-1") }))
                .gives(DATE, &issued(1, 1, None, None, Some((NOW, NOW + 1_000))));
        }
        let early = options(json!({ "template": "{yyyyMMdd}{id}", "utc-offset-minutes": -60 }));
        script.call("format.open", "b", json!({ "options": early }));
        script.call("format.write", "b", json!({ "id": "1", "issued": "0", "shard-key": null }));
    });
    file.vector("spans are as fine as the date", |script| {
        for (at, (template, text, from, until)) in [
            ("{yyyy}-{id}", "2023-1", 1_672_531_200_000, 1_704_067_200_000),
            ("{yyyyMM}-{id}", "202311-1", 1_698_796_800_000, 1_701_388_800_000),
            ("{yyyyMMdd}-{id}", "20231114-1", 1_699_920_000_000, 1_700_006_400_000),
            ("{yyyyMMddHH}-{id}", "2023111422-1", 1_699_999_200_000, 1_700_002_800_000),
            ("{yyyyMMddHHmm}-{id}", "202311142213-1", 1_699_999_980_000, 1_700_000_040_000),
        ]
        .into_iter()
        .enumerate()
        {
            let on = format!("f{at}");
            script.call("format.open", &on, json!({ "options": options(json!({ "template": template })) }));
            let args = json!({ "id": "1", "issued": int(NOW), "shard-key": null });
            script.call("format.write", &on, args).gives(DATE, &json!({ "ok": text }));
            script
                .call("format.read", &on, json!({ "text": text }))
                .gives(DATE, &issued(1, 1, None, None, Some((from, until))));
        }
        for (on, template, text) in
            [("g0", "{yy}-{id}", "23-1"), ("g1", "{MMdd}-{id}", "1114-1"), ("g2", "{yyyy}{dd}-{id}", "202314-1")]
        {
            script.call("format.open", on, json!({ "options": options(json!({ "template": template })) }));
            script.call("format.read", on, json!({ "text": text }));
        }
    });
}

fn restarts(file: &mut File) {
    for (restart, template, period, text) in [
        ("never", "{id}", Value::Null, "7"),
        ("year", "{yyyy}-{id}", json!("2023"), "2023-7"),
        ("month", "{yyyyMM}-{id}", json!("2023-11"), "202311-7"),
        ("day", "{yyyyMMdd}-{id}", json!("2023-11-14"), "20231114-7"),
    ] {
        file.vector(format!("a counter that starts again: {restart}"), |script| {
            script.open_format(json!({ "template": template, "restart": restart }));
            script.period(NOW).gives(DATE, &json!({ "ok": period }));
            script.period(0);
            script.write(7, NOW, None).gives(DATE, &json!({ "ok": text }));
            script.read(text);
            let original = script.original(7);
            if restart == "never" {
                original.gives(WIT, &issued(7, 7, None, None, None));
                script.period(u64::MAX).gives(WIT, &json!({ "ok": null }));
            } else {
                original.gives_error("always where the counter starts again", &json!({ "number": 0 }));
                script.period(253_402_300_800_000).gives_error("10000", &json!("time"));
                script.number(7, u64::MAX, None).gives_error("10000", &json!("time"));
            }
        });
    }
    file.vector("a period is of the offset's day", |script| {
        script.open_format(json!({ "template": "{yyyyMMdd}{id:06}", "restart": "day", "utc-offset-minutes": 480 }));
        script.period(NOW).gives("22:13 UTC is 06:13 the next day", &json!({ "ok": "2023-11-15" }));
        script.write(7, NOW, None).gives("22:13 UTC is 06:13 the next day", &json!({ "ok": "20231115000007" }));
    });
    file.vector("each day has a permutation of its own", |script| {
        let changes = json!({ "template": "{yyyyMMdd}-{id}", "restart": "day", "bits": 33, "keys": [key(0)] });
        script.open_format(changes);
        // 2026-11-22T00:00:00Z
        let day = 1_795_305_600_000;
        for (id, number) in [(1, 2_140_045_096_u64), (2, 703_467_199), (3, 5_514_315_934)] {
            script.number(id, day, None).gives(PERMUTED, &json!({ "ok": int(number) }));
            let text = format!("20261122-{number}");
            script.write(id, day, None).gives(PERMUTED, &json!({ "ok": text }));
            script.read(&text).gives(PERMUTED, &issued(id, number, None, Some(0), Some((day, day + 86_400_000))));
        }
        script.write(1, day + 86_400_000, None);
    });
}

fn genes(file: &mut File) {
    file.vector("a gene in the number", |script| {
        script.open_format(json!({ "gene-bits": 4 }));
        script.id_max("59 bits", (1 << 59) - 1);
        script.number(5, NOW, Some(0xABCB)).gives("5 << 4 | 11", &json!({ "ok": "91" }));
        script.write(5, NOW, Some(u64::MAX)).gives("5 << 4 | 15", &json!({ "ok": "95" }));
        script.read("91").gives("5 << 4 | 11", &issued(5, 91, Some(11), None, None));
        script.original(91).gives("5 << 4 | 11", &issued(5, 91, Some(11), None, None));
        script.write(5, NOW, None).gives_error(WIT, &json!("shard-key-missing"));
        script.write(1 << 59, NOW, Some(1)).gives_error(WIT, &json!({ "id": int((1 << 59) - 1) }));
        script.read("11").gives_error("0 << 4 | 11", &json!({ "number": 0 }));
        script.original(15).gives_error("0 << 4 | 15", &json!({ "number": 0 }));
    });
    file.vector("a gene in the text", |script| {
        script.open_format(json!({ "template": "{gene:4}-{id}" }));
        script.write(5, NOW, Some(0xABCB)).gives("two digits hold 15", &json!({ "ok": "11-5" }));
        script.write(5, NOW, Some(0)).gives("two digits hold 15", &json!({ "ok": "00-5" }));
        script.read("11-5").gives(WIT, &issued(5, 5, Some(11), None, None));
        script.read("16-5").gives_error("4 bits", &json!({ "number": 0 }));
        script.write(5, NOW, None).gives_error(WIT, &json!("shard-key-missing"));
    });
    file.vector("sixteen bits of gene", |script| {
        script.open_format(json!({ "template": "{id}/{gene:16}" }));
        script.write(5, NOW, Some(u64::MAX)).gives("five digits hold 65535", &json!({ "ok": "5/65535" }));
        script.read("5/65536").gives_error("16 bits", &json!({ "number": 2 }));
    });
}

fn by_host(file: &mut File) {
    file.vector("numbers that do not fit, by the host", |script| {
        let args = json!({ "options": options(json!({})) });
        script.refuses("format.open", "f", &args, ("/options", "utc-offset-minutes"), &["65536", "-65536", "1.5"]);
        for name in ["bits", "gene-bits", "key-id-bits"] {
            script.refuses("format.open", "f", &args, ("/options", name), &["-1", "256", "319", "NaN"]);
        }
        script.open_format(json!({ "gene-bits": 4 }));
        let numbers = ["-1", "18446744073709551617", "1.5"];
        let args = json!({ "id": "1", "issued": "0", "shard-key": "1" });
        for name in ["id", "issued", "shard-key"] {
            script.refuses("format.number", "f", &args, ("", name), &numbers);
            script.refuses("format.write", "f", &args, ("", name), &numbers);
        }
        script.refuses("format.period", "f", &json!({ "issued": "0" }), ("", "issued"), &numbers);
        script.refuses("format.original", "f", &json!({ "number": "1" }), ("", "number"), &numbers);
        script.write(1, 0, Some(1)).gives("1 << 4 | 1", &json!({ "ok": "17" }));
    });
}

fn keys(file: &mut File) {
    file.vector("a key without an id", |script| {
        script.open_format(json!({ "bits": 40, "keys": [key(0)] }));
        let numbers =
            [(1, 151_056_420_932_u64), (2, 781_770_433_254), (3, 535_757_954_732), ((1 << 40) - 1, 254_157_782_604)];
        for (id, number) in numbers {
            script.number(id, NOW, None).gives(PERMUTED, &json!({ "ok": int(number) }));
            script.original(number).gives(PERMUTED, &issued(id, number, None, Some(0), None));
            script.write(id, NOW, None).gives(PERMUTED, &json!({ "ok": number.to_string() }));
        }
        script.number(1 << 40, NOW, None).gives_error(WIT, &json!({ "id": int((1 << 40) - 1) }));
        script.original(1 << 40).gives_error(WIT, &json!({ "number": 0 }));
        script.original(0).gives_error(WIT, &json!({ "number": 0 }));
    });
    file.vector("63 bits, and another context", |script| {
        script.open_format(json!({ "keys": [key(0)] }));
        for (id, number) in [
            (1, 5_062_073_074_317_177_519_u64),
            (2, 698_981_183_320_676_678),
            (3, 9_172_950_073_952_880_583),
            (ID_MAX, 5_359_508_300_871_613_711),
        ] {
            script.number(id, NOW, None).gives(PERMUTED, &json!({ "ok": int(number) }));
            script.original(number).gives(PERMUTED, &issued(id, number, None, Some(0), None));
        }
        let options = options(json!({ "bits": 40, "keys": [key(0)], "context": "invoice" }));
        script.call("format.open", "g", json!({ "options": options }));
        let args = json!({ "id": "1", "issued": "0", "shard-key": null });
        script.call("format.number", "g", args).gives(PERMUTED, &json!({ "ok": "569289893563" }));
    });
    file.vector("two bits are a permutation, too", |script| {
        script.open_format(json!({ "bits": 2, "keys": [key(0)] }));
        for id in 1..=3_u64 {
            script.number(id, NOW, None).gives(PERMUTED, &json!({ "ok": int(id) }));
        }
    });
    file.vector("a key's id above the number, and a gene below it", |script| {
        let other = json!({ "id": 6, "high": "1", "low": int(u64::MAX) });
        script.open_format(json!({ "bits": 47, "gene-bits": 4, "key-id-bits": 3, "keys": [key(5), other] }));
        script.id_max("47 - 4 - 3 bits", (1 << 40) - 1);
        let number = 90_377_832_957_003;
        script.number(1, NOW, Some(11)).gives("5 << 40 | permuted 1, << 4 | 11", &json!({ "ok": int(number) }));
        script.original(number).gives(PERMUTED, &issued(1, number, Some(11), Some(5), None));
        script.original(1 << 4 | 11).gives("before there were keys", &issued(1, 27, Some(11), None, None));
        script.original(6 << 44 | 1 << 4);
        script.original(7 << 44 | 1 << 4).gives_error("key 7 is unknown", &json!({ "key": 7 }));
        script.read(&(7_u64 << 44 | 1 << 4).to_string()).gives_error("key 7 is unknown", &json!({ "key": 7 }));
        script.original(8 << 44).gives_error("48 bits", &json!({ "number": 0 }));
    });
    file.vector("a written text, all of it together", |script| {
        script.open_format(json!({
            "template": "INV-{yyyyMMdd}-{id:base32}",
            "utc-offset-minutes": 60,
            "restart": "month",
            "bits": 60,
            "gene-bits": 10,
            "key-id-bits": 8,
            "keys": [json!({ "id": 255, "high": int(u64::MAX), "low": int(1 << 63) })],
            "context": "\u{8ba2}\u{5355}",
        }));
        script.period(NOW);
        script.write(123_456_789, NOW, Some(BEYOND_DOUBLE));
        let text = script.write(123_456_789, NOW, Some(u64::MAX)).0["returns"]["ok"].as_str().unwrap().to_owned();
        script.read(&text);
        script.read(&text.to_lowercase());
        script.read(&text.replace("202311", "202312"));
    });
}

/// What a store keeps of a format.
fn kept(file: &mut File) {
    let source = "guest/core/src/format_shape.rs: calculated by another program, from SipHash-2-4";
    // 0x9f3c_1e5b_7a2d_4860_0c41_e6d2_b8f5_730a
    let (high, low) = (11_474_079_328_873_826_400_u64, 883_240_794_661_942_026_u64);
    let id_3 = json!({ "id": 3, "high": int(high), "low": int(low) });
    file.vector("what a store keeps of a format stays as it was written", |script| {
        script.open_format(json!({}));
        script.call("format.shape", "f", json!({})).gives(source, &json!("8372328055664279552"));
        script.call("format.key-checks", "f", json!({})).gives("it has no key", &json!([]));
        let changes = json!({ "bits": 24, "gene-bits": 4, "key-id-bits": 2, "keys": [id_3] });
        script.call("format.open", "g", json!({ "options": options(changes) }));
        script.call("format.shape", "g", json!({})).gives(source, &json!("8372328055664291906"));
        let check = json!([{ "id": 3, "bits": 18, "check": "2612544401778816104" }]);
        script.call("format.key-checks", "g", json!({})).gives(source, &check);
    });
    file.vector("what a store keeps of a format: widths without keys, and offsets, are not in it", |script| {
        let dated = json!({ "template": "{yyyyMMdd}-{id}" });
        for (on, changes) in [
            ("a", json!({})),
            ("b", json!({ "bits": 53 })),
            ("c", json!({ "utc-offset-minutes": 60 })),
            ("d", json!({ "restart": "month" })),
            ("e", json!({ "gene-bits": 4 })),
            ("f", json!({ "bits": 53, "keys": [key(0)] })),
        ] {
            let mut options = options(dated.clone());
            change(&mut options, changes);
            script.call("format.open", on, json!({ "options": options }));
            script.call("format.shape", on, json!({}));
        }
    });
}
