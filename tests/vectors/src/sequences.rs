//! `sequences.json`: the buffered mode.

use serde_json::{Value, json};
use unalike_core::ID_MAX;

use crate::drawn::{self, Draw};
use crate::json::int;
use crate::script::{File, Script, segment};

pub(crate) const NOW: u64 = 1_700_000_000_000;
/// A name of which careless decoders make another one: they drop the mark U+FEFF from its beginning, and join letters by
/// a normal form. It ends with the mark, too, and holds letters of two to four bytes.
pub(crate) const WHOLE: &str = "\u{feff}A\u{30a}\u{212b}\u{1f600}\u{feff}";
/// The first whole number that a double does not hold.
pub(crate) const BEYOND_DOUBLE: u64 = (1 << 53) + 1;

const WIT: &str = "wit/sequences.wit";

/// Steps of ten, without adaptation; the next segment is asked for when the current one is used up.
pub(crate) fn options(changes: Value) -> Value {
    let mut options = json!({
        "step": "10",
        "step-min": "10",
        "step-max": "10",
        "grow-below-ms": "0",
        "shrink-above-ms": "0",
        "refill": { "share-consumed": 100 },
        "prefetch": 1,
        "floor": "0",
        "id-max": int(ID_MAX),
    });
    change(&mut options, changes);
    options
}

pub(crate) fn change(options: &mut Value, changes: Value) {
    let Value::Object(changes) = changes else { return };
    for (name, value) in changes {
        assert!(options.get(&name).is_some(), "there is no option {name}");
        options[name] = value;
    }
}

impl Script {
    pub(crate) fn open(&mut self, on: &str, tag: &str, changes: Value) {
        let opened = self.call("sequence.open", on, json!({ "tag": tag, "options": options(changes) }));
        assert_eq!(opened.0["returns"], json!({ "ok": null }), "it opens");
    }

    pub(crate) fn reserve(&mut self, on: &str, now: u64, max: u32) -> crate::script::Seen<'_> {
        self.call("sequence.reserve", on, json!({ "now": int(now), "max": max }))
    }

    pub(crate) fn status(&mut self, on: &str, now: u64) -> crate::script::Seen<'_> {
        self.call("sequence.status", on, json!({ "now": int(now) }))
    }

    pub(crate) fn close(&mut self, on: &str) -> crate::script::Seen<'_> {
        self.call("sequence.close", on, json!({}))
    }

    /// Opens a sequence, and has it granted these numbers.
    fn open_granted(&mut self, changes: Value, granted: Value) {
        self.open("a", "order", changes);
        self.reserve("a", NOW, 1);
        self.grant_of(granted);
    }
}

pub(crate) fn allocates(tag: &str, count: u64, at_least: u64, ticket: &str) -> Value {
    let args = json!({ "tag": tag, "count": int(count), "at-least": int(at_least) });
    json!([{ "import": "segments.allocate", "args": args, "ticket": ticket }])
}

pub(crate) fn releases(tag: &str, start: u64, version: u64) -> Value {
    json!([{ "import": "segments.release", "args": { "tag": tag, "start": int(start), "version": int(version) } }])
}

fn invalid(argument: &str) -> Value {
    json!({ "invalid-argument": argument })
}

pub(crate) fn file() -> File {
    let mut file = File::new("core");
    life(&mut file);
    arithmetic(&mut file);
    arguments(&mut file);
    refills(&mut file);
    steps(&mut file);
    failures(&mut file);
    grants(&mut file);
    bounds(&mut file);
    ends(&mut file);
    for number in 0..12 {
        file.vector(format!("drawn {number}"), |script| drawn::sequences(script, &mut Draw::new(number)));
    }
    file
}

fn life(file: &mut File) {
    file.vector("a sequence asks, hands out what it was granted, and gives the rest back", |script| {
        script.open("a", "order", json!({}));
        script.reserve("a", NOW, 5).gives_error(WIT, &json!("pending")).asks(WIT, &allocates("order", 10, 0, "t1"));
        script.reserve("a", NOW, 5).gives_error("never two requests at once", &json!("pending"));
        script
            .status("a", NOW)
            .gives(WIT, &json!({ "wake": int(u64::MAX), "remaining": "0", "step": "10", "in-flight": true }));
        script.grant(1, 11);
        script.reserve("a", NOW, 4).gives_run("1 to 10 were granted", 1, 1, 4);
        script.status("a", NOW).gives(
            "6 of 10 are left",
            &json!({ "wake": int(u64::MAX), "remaining": "6", "step": "10", "in-flight": false }),
        );
        script
            .reserve("a", NOW, 100)
            .gives_run("6 of 10 are left", 5, 1, 6)
            .asks("100 percent are used; the floor is the end", &allocates("order", 10, 11, "t2"));
        script.reserve("a", NOW, 1).gives_error(WIT, &json!("pending"));
        script.grant(11, 21);
        script.reserve("a", NOW, 1).gives_run("11 to 20 were granted", 11, 1, 1);
        script.close("a").asks("12 to 20 are left, of version 21", &releases("order", 12, 21));
        script.reserve("a", NOW, 1).gives_error(WIT, &json!("closed"));
        script.status("a", NOW).gives(
            "a closed sequence has nothing left",
            &json!({ "wake": int(u64::MAX), "remaining": "0", "step": "10", "in-flight": false }),
        );
        script.close("a");
        script.reserve("a", NOW, 0).gives_error(WIT, &json!("closed"));
    });
    file.vector("a tag crosses with all its letters", |script| {
        script.open("a", WHOLE, json!({}));
        script.reserve("a", NOW, 5).gives_error(WIT, &json!("pending")).asks(WIT, &allocates(WHOLE, 10, 0, "t1"));
        script.grant(1, 11);
        script.reserve("a", NOW, 4).gives_run("1 to 10 were granted", 1, 1, 4);
        script.close("a").asks("5 to 10 are left, of version 11", &releases(WHOLE, 5, 11));
    });
    file.vector("a status asks, and takes answers in, without handing out", |script| {
        script.open("a", "order", json!({}));
        script.status("a", NOW).asks(WIT, &allocates("order", 10, 0, "t1"));
        script.grant(1, 11);
        script.status("a", NOW).gives(
            "10 were granted",
            &json!({ "wake": int(u64::MAX), "remaining": "10", "step": "10", "in-flight": false }),
        );
        script.reserve("a", NOW, 10).gives_run("1 to 10 were granted", 1, 1, 10);
    });
    file.vector("several sequences share an instance, and answers come in another order", |script| {
        script.open("a", "order", json!({}));
        script.open("b", "invoice", json!({}));
        script.open("c", "order", json!({}));
        for on in ["a", "b", "c"] {
            script.reserve(on, NOW, 3);
        }
        script.answer("t3", json!({ "ok": segment(11, 21, 1, 0, 2) }));
        script.answer("t2", json!({ "ok": segment(1, 11, 1, 0, 1) }));
        script.reserve("a", NOW, 3).gives_error("its answer is the one of t1", &json!("pending"));
        script.reserve("b", NOW, 3).gives_run("its answer is the one of t2", 1, 1, 3);
        script.reserve("c", NOW, 3).gives_run("its answer is the one of t3", 11, 1, 3);
        script.answer("t1", json!({ "ok": segment(1, 11, 1, 0, 1) }));
        script.reserve("a", NOW, 3).gives_run("its answer is the one of t1", 1, 1, 3);
        script.step(&json!({ "drop": "b" }));
        script.close("c").asks("14 to 20 are left", &releases("order", 14, 2));
        script.close("a").asks("4 to 10 are left", &releases("order", 4, 1));
        script.open("b", "invoice", json!({}));
        script.reserve("b", NOW, 1).gives_error("it is another one", &json!("pending"));
    });
    file.vector("a sequence is dropped while its answer is on its way", |script| {
        script.open("a", "order", json!({}));
        script.reserve("a", NOW, 1);
        script.step(&json!({ "drop": "a" }));
        script.grant(1, 11);
        script.open("b", "order", json!({}));
        script
            .reserve("b", NOW, 1)
            .gives_error("the answer of t1 is nobody's", &json!("pending"))
            .asks("the answer of t1 is nobody's", &allocates("order", 10, 0, "t2"));
    });
}

fn arithmetic(file: &mut File) {
    file.vector("a segment with a stride", |script| {
        script.open_granted(json!({}), segment(3, 63, 20, 0, 7));
        script.reserve("a", NOW, 2).gives_run("3, 23, 43: 63 is not granted", 3, 20, 2);
        script
            .status("a", NOW)
            .gives("43 is left", &json!({ "wake": int(u64::MAX), "remaining": "1", "step": "10", "in-flight": false }));
        script
            .reserve("a", NOW, 9)
            .gives_run("43 is left", 43, 20, 1)
            .asks("stripes are held to the common floor", &allocates("order", 10, 0, "t2"));
        script.grant_of(segment(63, 103, 20, 0, 8));
        script.reserve("a", NOW, 1).gives_run("63 and 83 were granted", 63, 20, 1);
        script.close("a").asks("83 is left", &releases("order", 83, 8));
    });
    file.vector("stripes take turns, and each ascends by itself", |script| {
        script.open_granted(json!({}), segment(1_001, 1_004, 3, 0, 1));
        script.reserve("a", NOW, 1).gives_run("1001 alone", 1_001, 3, 1);
        script.grant_of(segment(3, 9, 3, 0, 1));
        script.reserve("a", NOW, 9).gives_run("another stripe is behind: 3 and 6", 3, 3, 2);
        script.grant_of(segment(4, 10, 3, 0, 1));
        script.reserve("a", NOW, 9).gives_run("the third: 4 and 7", 4, 3, 2);
        script.grant_of(segment(9, 12, 3, 0, 2));
        script.reserve("a", NOW, 9).gives_run("the second again: 9", 9, 3, 1);
        script.grant_of(segment(6, 9, 3, 0, 3));
        script
            .reserve("a", NOW, 9)
            .gives_error("6 was granted before: rule 12", &json!({ "grant-refused": "overlap" }));
    });
    file.vector("after a change of the stride nothing is below what was granted", |script| {
        script.open_granted(json!({}), segment(1, 31, 3, 0, 1));
        script.reserve("a", NOW, 10).gives_run("1, 4, .. 28", 1, 3, 10);
        script.grant_of(segment(30, 40, 5, 0, 2));
        script.reserve("a", NOW, 1).gives_error("30 is below 31", &json!({ "grant-refused": "overlap" }));
        script.status("a", NOW + 10);
        script.grant_of(segment(35, 45, 5, 0, 3));
        script.reserve("a", NOW + 10, 5).gives_run("35 and 40", 35, 5, 2);
    });
    file.vector("numbers above 2^53", |script| {
        let first = BEYOND_DOUBLE;
        script.open_granted(json!({}), segment(first, first + 10, 1, 0, first));
        script.reserve("a", NOW, 1).gives_run("2^53 + 1", 9_007_199_254_740_993, 1, 1);
        script.reserve("a", NOW, 1).gives_run("2^53 + 2", 9_007_199_254_740_994, 1, 1);
        script.close("a").asks("2^53 + 3", &releases("order", 9_007_199_254_740_995, 9_007_199_254_740_993));
    });
    file.vector("the last numbers there are", |script| {
        script
            .open_granted(json!({ "floor": int(ID_MAX - 4) }), segment(ID_MAX - 4, ID_MAX + 1, 1, u64::MAX, u64::MAX));
        script.reserve("a", NOW, 3).gives_run("2^63 - 5", 9_223_372_036_854_775_803, 1, 3);
        script.reserve("a", NOW, 3).gives_run("2^63 - 2 and 2^63 - 1", 9_223_372_036_854_775_806, 1, 2);
        script.reserve("a", NOW, 3).gives_error("every number was granted", &json!("exhausted"));
        script.status("a", NOW);
        script.close("a");
    });
    file.vector("a stride of 2^62", |script| {
        script.open_granted(json!({}), segment(1 << 62, (1 << 62) * 3, 1 << 62, 0, 0));
        script.reserve("a", NOW, 9).gives_error("2^63 is no id", &json!({ "grant-refused": "malformed" }));
        script.status("a", NOW + 10);
        script.grant_of(segment((1 << 62) - 1, (3 << 62) - 1, 1 << 62, 0, u64::MAX));
        script.reserve("a", NOW + 10, 9).gives_run("2^62 - 1 and 2^63 - 1", (1 << 62) - 1, 1 << 62, 2);
    });
    file.vector("the greatest count that a run can have", |script| {
        script.open_granted(json!({ "step": int(ID_MAX), "step-max": int(ID_MAX) }), segment(1, ID_MAX + 1, 1, 0, 1));
        script.reserve("a", NOW, u32::MAX).gives_run("2^32 - 1 ids", 1, 1, u32::MAX);
        script.reserve("a", NOW, u32::MAX).gives_run("from 2^32 on", 1 << 32, 1, u32::MAX);
        script.status("a", NOW).gives(
            "2^63 - 1 - 2 (2^32 - 1)",
            &json!({
                "wake": int(u64::MAX),
                "remaining": "9223372028264841217",
                "step": int(ID_MAX),
                "in-flight": false,
            }),
        );
        script.close("a").asks("from 2^33 - 1 on", &releases("order", (1 << 33) - 1, 1));
    });
}

fn arguments(file: &mut File) {
    file.vector("names", |script| {
        let long = "x".repeat(129);
        let (longest, wide, wider) = ("x".repeat(128), "\u{4f1a}".repeat(42), "\u{4f1a}".repeat(43));
        let tags: [(&str, bool); 18] = [
            ("", false),
            ("a\nb", false),
            ("a\u{0}b", false),
            ("\u{7f}", false),
            ("\u{80}", false),
            ("\u{85}", false),
            ("\u{9f}", false),
            (&long, false),
            (&wider, false),
            ("\u{1f}", false),
            ("a\u{1f}", false),
            ("a\u{1f}b\u{1f}c", false),
            ("a\u{1f}b", true),
            (&longest, true),
            (&wide, true),
            ("\u{a0}", true),
            ("\u{1f600} order/1", true),
            ("123", true),
        ];
        for (at, (tag, is_name)) in tags.into_iter().enumerate() {
            let on = format!("s{at}");
            let expected = if is_name { json!({ "ok": null }) } else { json!({ "err": invalid("name") }) };
            script
                .call("sequence.open", &on, json!({ "tag": tag, "options": options(json!({})) }))
                .gives("wit/types.wit: argument.name; one sub-key after U+001F", &expected);
            if is_name {
                script
                    .reserve(&on, NOW, 1)
                    .asks("the tag comes as it was given", &allocates(tag, 10, 0, &format!("t{}", at - 11)));
            }
        }
    });
    file.vector("options out of range", |script| {
        let refused = [
            ("step", json!({ "step": "0" })),
            ("step", json!({ "step": "9" })),
            ("step", json!({ "step": "11" })),
            ("step", json!({ "step": "0", "step-min": "0" })),
            ("step", json!({ "step-min": "11" })),
            ("step", json!({ "step-max": int(ID_MAX + 1) })),
            ("step", json!({ "step-max": int(u64::MAX) })),
            ("step", json!({ "grow-below-ms": "1" })),
            ("step", json!({ "grow-below-ms": int(u64::MAX), "shrink-above-ms": int(u64::MAX - 1) })),
            ("refill", json!({ "refill": { "share-consumed": 101 } })),
            ("refill", json!({ "refill": { "share-consumed": 255 } })),
            ("refill", json!({ "prefetch": 0 })),
            ("refill", json!({ "prefetch": 65 })),
            ("refill", json!({ "prefetch": u32::MAX })),
            ("id", json!({ "id-max": "0" })),
            ("id", json!({ "id-max": int(ID_MAX + 1) })),
            ("id", json!({ "id-max": int(u64::MAX) })),
        ];
        for (argument, changes) in refused {
            let options = options(changes);
            script
                .call("sequence.open", "a", json!({ "tag": "order", "options": options }))
                .gives_error("wit/sequences.wit: sequence-options", &invalid(argument));
        }
        for (at, changes) in [
            json!({ "step-max": int(ID_MAX) }),
            json!({ "step": "1", "step-min": "1", "step-max": "1" }),
            json!({ "grow-below-ms": int(u64::MAX), "shrink-above-ms": int(u64::MAX) }),
            json!({ "refill": { "share-consumed": 0 } }),
            json!({ "refill": { "remaining": "0" } }),
            json!({ "refill": { "remaining": int(u64::MAX) } }),
            json!({ "prefetch": 64 }),
            json!({ "floor": int(u64::MAX) }),
            json!({ "id-max": "1" }),
            json!({ "id-max": int(ID_MAX) }),
        ]
        .into_iter()
        .enumerate()
        {
            let on = format!("s{at}");
            script
                .call("sequence.open", &on, json!({ "tag": "order", "options": options(changes) }))
                .gives("wit/sequences.wit: sequence-options", &json!({ "ok": null }));
            script.reserve(&on, NOW, 1);
        }
    });
    file.vector("a count of 0 changes nothing", |script| {
        script.open("a", "order", json!({}));
        script.reserve("a", NOW, 0).gives_error(WIT, &invalid("count"));
        script.grant(1, 11);
        script.reserve("a", NOW, 0).gives_error(WIT, &invalid("count"));
        script.reserve("a", NOW, 1).gives_run("nothing was lost", 1, 1, 1);
    });
    file.vector("any time is a time", |script| {
        script.open("a", "order", json!({}));
        script.reserve("a", u64::MAX, 1).gives_error(WIT, &json!("pending"));
        script.fail("unavailable");
        script.reserve("a", u64::MAX, 1).gives_error("no time is left for a pause", &json!("pending"));
        script.status("a", u64::MAX);
        script.reserve("a", 0, 1).gives_error("the request is under way", &json!("pending"));
        script.grant(1, 11);
        script.reserve("a", 0, 1).gives_run("1 to 10 were granted", 1, 1, 1);
        script.reserve("a", BEYOND_DOUBLE, 1).gives_run("1 to 10 were granted", 2, 1, 1);
        script.reserve("a", 1 << 63, 1).gives_run("1 to 10 were granted", 3, 1, 1);
    });
}

fn refills(file: &mut File) {
    for (percent, due_at) in [(0, 0), (1, 1), (10, 1), (11, 2), (50, 5), (99, 10), (100, 10)] {
        file.vector(format!("{percent} percent of ten are used after {due_at}"), |script| {
            script.open_granted(json!({ "refill": { "share-consumed": percent } }), segment(1, 11, 1, 0, 1));
            if due_at == 0 {
                script.status("a", NOW).asks("0 percent are always used", &allocates("order", 10, 11, "t2"));
            }
            for used in 1..=10_u64 {
                let seen = script.reserve("a", NOW, 1).gives_run("1 to 10 were granted", used, 1, 1);
                let is_due = seen.0.get("imports").is_some();
                assert_eq!(is_due, used == due_at, "that share, rounded up");
            }
        });
    }
    file.vector("percent of a great segment are counted without a product that overflows", |script| {
        let end = ID_MAX + 1;
        let changes = json!({ "refill": { "share-consumed": 99 }, "step-max": int(ID_MAX) });
        script.open_granted(changes, segment(1, end, 1, 0, 1));
        script.reserve("a", NOW, u32::MAX);
        script.status("a", NOW);
    });
    for count in [0, 1, 5, 25] {
        file.vector(format!("fewer than {count} numbers left"), |script| {
            let changes = json!({ "refill": { "remaining": int(count) }, "step-max": "100" });
            script.open_granted(changes, segment(1, 11, 1, 0, 1));
            for end in [21, 31, 41] {
                script.reserve("a", NOW, 4);
                let is_asked = script.status("a", NOW).0["returns"]["in-flight"] == json!(true);
                if is_asked {
                    script.grant(end - 10, end);
                }
                script.status("a", NOW);
            }
        });
    }
    for prefetch in [1_u32, 2, 64] {
        file.vector(format!("{prefetch} segments ahead"), |script| {
            let changes = json!({ "refill": { "share-consumed": 0 }, "prefetch": prefetch });
            script.open_granted(changes, segment(1, 11, 1, 0, 1));
            for at in 1..=u64::from(prefetch) {
                script
                    .status("a", NOW)
                    .asks("another one is to be held", &allocates("order", 10, at * 10 + 1, &format!("t{}", at + 1)));
                script.grant(at * 10 + 1, at * 10 + 11);
            }
            let seen = script.status("a", NOW);
            assert!(seen.0.get("imports").is_none(), "as many are held as are to be");
            script.reserve("a", NOW, u32::MAX).gives_run("a run ends with its segment", 1, 1, 10);
            script.reserve("a", NOW, 3).gives_run("the next one", 11, 1, 3);
            script
                .close("a")
                .asks("14 on; the version is the newest", &releases("order", 14, u64::from(prefetch) * 10 + 11));
        });
    }
}

/// The status of a sequence that has no pause.
fn status(step: u64, remaining: u64, in_flight: bool) -> Value {
    json!({ "wake": int(u64::MAX), "remaining": int(remaining), "step": int(step), "in-flight": in_flight })
}

fn steps(file: &mut File) {
    let adaptive = json!({
        "step": "100",
        "step-min": "25",
        "step-max": "400",
        "grow-below-ms": "1000",
        "shrink-above-ms": "2000",
        "refill": { "share-consumed": 50 },
    });
    file.vector("a step that is used quickly doubles, up to its bound", |script| {
        script.open_granted(adaptive.clone(), segment(1, 101, 1, 0, 1));
        script.reserve("a", NOW, 50).asks("50 in 0 ms: 100 doubles", &allocates("order", 200, 101, "t2"));
        script.grant(101, 301);
        script.status("a", NOW).gives("Leaf's rule", &status(200, 250, false));
        script.reserve("a", NOW, 50);
        script.reserve("a", NOW + 999, 100).asks("200 last 1332 ms: no change", &allocates("order", 200, 301, "t3"));
        script.grant(301, 501);
        script.reserve("a", NOW + 999, 100);
        script.reserve("a", NOW + 1_000, 100).asks("200 in 1 ms: doubles", &allocates("order", 400, 501, "t4"));
        script.grant(501, 901);
        script.reserve("a", NOW + 1_000, 100);
        script.reserve("a", NOW + 1_000, 200).asks("400 is the greatest", &allocates("order", 400, 901, "t5"));
    });
    file.vector("a step that lasts long halves, down to its bound", |script| {
        script.open_granted(adaptive.clone(), segment(1, 101, 1, 0, 1));
        script.status("a", NOW);
        let mut now = NOW;
        for (count, end) in [(50, 151), (25, 176), (25, 201)] {
            now += 60_000;
            script.reserve("a", now, 50);
            let newest = script.newest();
            script.answer(&newest, json!({ "ok": segment(end - count, end, 1, 0, end) }));
            script.status("a", now);
            script.reserve("a", now, 50);
        }
    });
    file.vector("a buffer that ran dry doubles its step at once, and covers what was asked for", |script| {
        script.open_granted(json!({ "step-max": "1000" }), segment(1, 11, 1, 0, 1));
        script.reserve("a", NOW + 10_000_000, 10).gives_run("1 to 10 were granted", 1, 1, 10);
        script.grant(11, 21);
        script.reserve("a", NOW + 10_000_000, 10);
        script.reserve("a", NOW + 10_000_000, 300).gives_error(WIT, &json!("pending"));
        script.grant(21, 31);
        script.reserve("a", NOW + 10_000_000, 300);
        script.reserve("a", NOW + 10_000_000, 300);
        script.fail("unavailable");
        script.reserve("a", NOW + 10_000_000, 2_000);
        script.reserve("a", NOW + 10_000_010, 2_000);
        script.status("a", NOW + 10_000_010);
    });
    file.vector("a step whose bounds are equal never changes", |script| {
        let changes = json!({ "grow-below-ms": int(u64::MAX), "shrink-above-ms": int(u64::MAX) });
        script.open_granted(changes, segment(1, 11, 1, 0, 1));
        for at in 1..=4_u64 {
            let (start, ticket) = (at * 10 + 1, format!("t{}", at + 1));
            script.reserve("a", NOW, 10).asks("always ten", &allocates("order", 10, start, &ticket));
            script.reserve("a", NOW, 10).gives_error(WIT, &json!("pending"));
            script.grant(start, start + 10);
        }
    });
    file.vector("a store may grant fewer, and more", |script| {
        script.open_granted(json!({}), segment(1, 2, 1, 0, 1));
        script.reserve("a", NOW, 5).gives_run("one was granted", 1, 1, 1);
        script.grant(2, 1_002);
        script.reserve("a", NOW, 5).gives_run("a thousand were granted", 2, 1, 5);
        script.status("a", NOW).gives("995 are left", &status(10, 995, false));
    });
}

fn failures(file: &mut File) {
    for (error, answer, retries) in [
        ("unavailable", json!({ "store-failed": "10" }), true),
        ("outcome-unknown", json!({ "store-failed": "10" }), true),
        ("workers-exhausted", json!({ "store-failed": "10" }), true),
        ("lease-lost", json!({ "store-failed": "10" }), true),
        ("clock-skew", json!({ "store-failed": "10" }), true),
        ("tag-unknown", json!({ "store-failed": "0" }), false),
        ("refused", json!({ "store-failed": "0" }), false),
        ("exhausted", json!("exhausted"), false),
    ] {
        file.vector(format!("the store answers {error}"), |script| {
            script.open("a", "order", json!({}));
            script.reserve("a", NOW, 1);
            script.fail(error);
            script.reserve("a", NOW, 1).gives_error("wit/types.wit: error; 0: asking again cannot help", &answer);
            let pause = if retries { 10 } else { 1_000 };
            script.status("a", NOW).gives(
                "a pause of 10 ms after the first failure, of 1 s if it stays",
                &json!({ "wake": int(NOW + pause), "remaining": "0", "step": "10", "in-flight": false }),
            );
            script.reserve("a", NOW + pause - 1, 1);
            script
                .reserve("a", NOW + pause, 1)
                .gives_error("the pause is over", &json!("pending"))
                .asks("the pause is over", &allocates("order", 10, 0, "t2"));
            script.grant(1, 11);
            script.reserve("a", NOW + pause, 1).gives_run("1 to 10 were granted", 1, 1, 1);
        });
    }
    file.vector("the pause doubles with each failure in a row, up to a second", |script| {
        script.open("a", "order", json!({}));
        let mut now = NOW;
        for pause in [10, 20, 40, 80, 160, 320, 640, 1_000, 1_000] {
            script.reserve("a", now, 1).gives_error(WIT, &json!("pending"));
            script.fail("unavailable");
            script.reserve("a", now, 1).gives_error("10 ms, doubled", &json!({ "store-failed": int(pause) }));
            now += pause;
        }
        script.reserve("a", now, 1);
        script.grant(1, 11);
        script.reserve("a", now, 10).gives_run("1 to 10 were granted", 1, 1, 10);
        script.fail("outcome-unknown");
        script.reserve("a", now, 1).gives_error("a success ends the row", &json!({ "store-failed": "10" }));
    });
    file.vector("what is held is handed out while the store fails", |script| {
        script.open_granted(json!({ "refill": { "share-consumed": 0 } }), segment(1, 11, 1, 0, 1));
        script.reserve("a", NOW, 5).gives_run("1 to 10 were granted", 1, 1, 5);
        script.fail("unavailable");
        script.reserve("a", NOW, 4).gives_run("nothing is lost", 6, 1, 4);
        script.status("a", NOW);
        script.reserve("a", NOW + 9, 1).gives_run("nothing is lost", 10, 1, 1);
        script.reserve("a", NOW + 9, 1).gives_error("1 ms is left of the pause", &json!({ "store-failed": "1" }));
    });
    file.vector("an answer that comes late", |script| {
        script.open("a", "order", json!({}));
        script.reserve("a", NOW, 1);
        script.reserve("a", NOW + 86_400_000, 1).gives_error("it is still awaited", &json!("pending"));
        script.grant(1, 11);
        script.reserve("a", NOW + 86_400_001, 1).gives_run("1 to 10 were granted", 1, 1, 1);
    });
}

fn grants(file: &mut File) {
    for (what, granted) in [
        ("begins with 0", segment(0, 10, 1, 0, 1)),
        ("is empty", segment(5, 5, 1, 0, 1)),
        ("is reversed", segment(10, 5, 1, 0, 1)),
        ("has no stride", segment(1, 11, 0, 0, 1)),
        ("is off its stride", segment(1, 11, 3, 0, 1)),
        ("ends past 2^63 - 1", segment(ID_MAX, ID_MAX + 2, 1, 0, 1)),
        ("begins past 2^63 - 1", segment(ID_MAX + 1, ID_MAX + 2, 1, 0, 1)),
        ("ends with 2^64 - 1", segment(1, u64::MAX, 1, 0, 1)),
        ("has a stride beyond its end", segment(1, 11, u64::MAX, 0, 1)),
    ] {
        file.vector(format!("a grant that {what} is refused"), |script| {
            script.open_granted(json!({}), granted);
            script
                .reserve("a", NOW, 1)
                .gives_error("wit/segments.wit: segment", &json!({ "grant-refused": "malformed" }));
            script.reserve("a", NOW + 10, 1).asks("it leaves no floor", &allocates("order", 10, 0, "t2"));
            script.grant(1, 11);
            script.reserve("a", NOW + 10, 1).gives_run("the next one is taken", 1, 1, 1);
        });
    }
    file.vector("a grant that overlaps or precedes another is refused", |script| {
        script.open_granted(json!({}), segment(101, 111, 1, 0, 1));
        script.reserve("a", NOW, 10).gives_run("101 to 110", 101, 1, 10);
        for (at, (start, end)) in [(110, 120), (101, 111), (1, 11), (110, 111)].into_iter().enumerate() {
            script.grant(start, end);
            let now = NOW + at as u64 * 1_000;
            script.reserve("a", now, 1).gives_error("rule 12", &json!({ "grant-refused": "overlap" }));
            script
                .reserve("a", now + 1_000, 1)
                .asks("the floor stays", &allocates("order", 10, 111, &format!("t{}", at + 3)));
        }
        script.grant(111, 121);
        script.reserve("a", NOW + 5_000, 1).gives_run("111 to 120", 111, 1, 1);
    });
    file.vector("a grant below the floor is refused", |script| {
        script.open("a", "order", json!({ "floor": "21" }));
        script.reserve("a", NOW, 1).asks("the floor goes with the request", &allocates("order", 10, 21, "t1"));
        script.grant(20, 30);
        script.reserve("a", NOW, 1).gives_error("20 is below 21", &json!({ "grant-refused": "overlap" }));
        script.reserve("a", NOW + 10, 1);
        script.grant(21, 31);
        script.reserve("a", NOW + 10, 1).gives_run("21 to 30", 21, 1, 1);
    });
    file.vector("another generation begins anew, and none before it is taken", |script| {
        script.open_granted(json!({}), segment(501, 511, 1, 3, 1));
        script.reserve("a", NOW, 10).gives_run("501 to 510", 501, 1, 10);
        script.grant_of(segment(1, 11, 1, 4, 1));
        script.reserve("a", NOW, 10).gives_run("generation 4 begins with 1", 1, 1, 10);
        script.grant_of(segment(511, 521, 1, 3, 2));
        script.reserve("a", NOW, 1).gives_error("generation 3 is over", &json!({ "grant-refused": "overlap" }));
        script.reserve("a", NOW + 10, 1);
        script.grant_of(segment(10, 20, 1, 4, 2));
        script.reserve("a", NOW + 10, 1).gives_error("10 was granted in 4", &json!({ "grant-refused": "overlap" }));
        script.reserve("a", NOW + 1_000, 1);
        script.grant_of(segment(1, 11, 1, u64::MAX, 2));
        script.reserve("a", NOW + 1_000, 1).gives_run("the last generation", 1, 1, 1);
    });
    file.vector("the first grant's generation is any, and the floor holds in it", |script| {
        script.open("a", "order", json!({ "floor": "50" }));
        script.reserve("a", NOW, 1);
        script.grant_of(segment(1, 11, 1, 9, 1));
        script.reserve("a", NOW, 1).gives_error("1 is below 50", &json!({ "grant-refused": "overlap" }));
    });
}

fn bounds(file: &mut File) {
    file.vector("no id is above the bound, and then nothing is asked for", |script| {
        script.open_granted(json!({ "id-max": "12" }), segment(6, 16, 1, 0, 1));
        script.reserve("a", NOW, 5).gives_run("6 to 10", 6, 1, 5);
        script.reserve("a", NOW, 5).gives_run("11 and 12", 11, 1, 2);
        script.reserve("a", NOW, 5).gives_error(WIT, &json!("exhausted"));
        let status = script.status("a", NOW + 1_000_000);
        assert!(status.0.get("imports").is_none());
        script.close("a");
    });
    file.vector("the greatest that JavaScript's numbers hold", |script| {
        let most = BEYOND_DOUBLE - 2;
        script.open_granted(json!({ "id-max": int(most) }), segment(most - 1, most + 9, 1, 0, 1));
        script.reserve("a", NOW, 5).gives_run("2^53 - 2 and 2^53 - 1", 9_007_199_254_740_990, 1, 2);
        script.reserve("a", NOW, 5).gives_error(WIT, &json!("exhausted"));
    });
    file.vector("a floor above the bound", |script| {
        script.open("a", "order", json!({ "id-max": "12", "floor": "13" }));
        let seen = script.reserve("a", NOW, 5).gives_error(WIT, &json!("exhausted"));
        assert!(seen.0.get("imports").is_none());
    });
    file.vector("a grant wholly above the bound", |script| {
        script.open_granted(json!({ "id-max": "12" }), segment(13, 23, 1, 0, 1));
        script.reserve("a", NOW, 5).gives_error("it has the one stripe there is", &json!("exhausted"));
        let seen = script.reserve("a", NOW + 100_000, 5).gives_error(WIT, &json!("exhausted"));
        assert!(seen.0.get("imports").is_none());
    });
    file.vector("another stripe may be behind", |script| {
        script.open_granted(json!({ "id-max": "12" }), segment(13, 33, 2, 0, 1));
        script.reserve("a", NOW, 5).gives_error("wit/sequences.wit: reserve", &json!({ "wait": "10" }));
        script.reserve("a", NOW + 10, 5).asks("the even ones", &allocates("order", 10, 0, "t2"));
        script.grant_of(segment(10, 30, 2, 0, 1));
        script.reserve("a", NOW + 10, 5).gives_run("10 and 12", 10, 2, 2);
        script.reserve("a", NOW + 10, 5).gives_error("both stripes are above 12", &json!("exhausted"));
    });
    file.vector("a bound between two numbers of a stride", |script| {
        script.open_granted(json!({ "id-max": "42" }), segment(3, 103, 20, 0, 1));
        script.reserve("a", NOW, 5).gives_run("3 and 23: 43 is above", 3, 20, 2);
    });
}

fn ends(file: &mut File) {
    file.vector("a sequence that was never used is closed", |script| {
        script.open("a", "order", json!({}));
        let seen = script.close("a");
        assert!(seen.0.get("imports").is_none());
    });
    file.vector("a grant that comes after the end is dropped", |script| {
        script.open("a", "order", json!({}));
        script.reserve("a", NOW, 1);
        script.close("a");
        script.grant(1, 11);
        script.reserve("a", NOW, 1).gives_error(WIT, &json!("closed"));
        script.status("a", NOW);
        script.close("a");
    });
    file.vector("a grant that has arrived is taken in and given back", |script| {
        script.open("a", "order", json!({}));
        script.reserve("a", NOW, 1);
        script.grant(1, 11);
        script.close("a").asks(WIT, &releases("order", 1, 11));
    });
    file.vector("a tail goes on over segments that follow each other", |script| {
        let changes = json!({ "refill": { "share-consumed": 0 }, "prefetch": 3 });
        script.open_granted(changes, segment(1, 11, 1, 0, 1));
        script.reserve("a", NOW, 4);
        script.grant_of(segment(11, 21, 1, 0, 2));
        script.status("a", NOW);
        script.grant_of(segment(21, 31, 1, 0, 3));
        script.close("a").asks("5 to 30, of the newest version", &releases("order", 5, 3));
    });
    file.vector("a tail ends where somebody else was granted numbers", |script| {
        let changes = json!({ "refill": { "share-consumed": 0 }, "prefetch": 3 });
        script.open_granted(changes, segment(1, 11, 1, 0, 1));
        script.reserve("a", NOW, 4);
        script.grant_of(segment(21, 31, 1, 0, 3));
        script.status("a", NOW);
        script.grant_of(segment(31, 41, 1, 0, 4));
        script.close("a").asks("21 to 40: 11 to 20 are another's", &releases("order", 21, 4));
    });
    file.vector("a sequence that has handed out all it had gives nothing back", |script| {
        script.open_granted(json!({}), segment(1, 11, 1, 0, 1));
        script.reserve("a", NOW, 10);
        let seen = script.close("a");
        assert!(seen.0.get("imports").is_none());
    });
}
