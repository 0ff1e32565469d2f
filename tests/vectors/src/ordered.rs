//! `ordered.json`: the strict mode.

use serde_json::{Value, json};
use unalike_core::ID_MAX;

use crate::json::int;
use crate::script::{File, Script, Seen, segment};
use crate::sequences::{BEYOND_DOUBLE, NOW, WHOLE, allocates};

const WIT: &str = "wit/sequences.wit: ordered";

impl Script {
    pub(crate) fn open_ordered(&mut self, on: &str, tag: &str, floor: u64, id_max: u64) {
        let args = json!({ "tag": tag, "floor": int(floor), "id-max": int(id_max) });
        self.call("ordered.open", on, args).gives(WIT, &json!({ "ok": null }));
    }

    pub(crate) fn begin(&mut self, on: &str, now: u64, count: u32) -> Seen<'_> {
        self.call("ordered.begin", on, json!({ "now": int(now), "count": count }))
    }

    pub(crate) fn claim(&mut self, on: &str, now: u64, round: u64) -> Seen<'_> {
        self.call("ordered.claim", on, json!({ "now": int(now), "round": int(round) }))
    }
}

fn invalid(argument: &str) -> Value {
    json!({ "invalid-argument": argument })
}

pub(crate) fn file() -> File {
    let mut file = File::new("core");
    rounds(&mut file);
    arguments(&mut file);
    failures(&mut file);
    bounds(&mut file);
    file
}

fn rounds(file: &mut File) {
    file.vector("a tag crosses with all its letters", |script| {
        script.open_ordered("a", WHOLE, 0, ID_MAX);
        script
            .begin("a", NOW, 3)
            .gives("the first round", &json!({ "ok": "1" }))
            .asks(WIT, &allocates(WHOLE, 3, 0, "t1"));
    });
    file.vector("a round is claimed once, by its number", |script| {
        script.open_ordered("a", "ticket", 0, ID_MAX);
        script
            .begin("a", NOW, 3)
            .gives("the first round", &json!({ "ok": "1" }))
            .asks(WIT, &allocates("ticket", 3, 0, "t1"));
        script.begin("a", NOW, 1).gives_error(WIT, &json!("pending"));
        script.claim("a", NOW, 1).gives_error(WIT, &json!("pending"));
        script.claim("a", NOW, 0).gives_error(WIT, &invalid("round"));
        script.grant(7, 10);
        script.claim("a", NOW, 2).gives_error("no such round was begun", &invalid("round"));
        script.claim("a", NOW, u64::MAX).gives_error("no such round was begun", &invalid("round"));
        script.claim("a", NOW, 1).gives_run("7 to 9 were granted", 7, 1, 3);
        script.claim("a", NOW, 1).gives_error("it was claimed", &invalid("round"));
        script
            .begin("a", NOW, 2)
            .gives("the second round", &json!({ "ok": "2" }))
            .asks("9 was granted", &allocates("ticket", 2, 10, "t2"));
        script.claim("a", NOW, 1).gives_error("it is not the latest", &invalid("round"));
        script.grant(10, 12);
        script.claim("a", NOW, 2).gives_run("10 and 11 were granted", 10, 1, 2);
        script.step(&json!({ "drop": "a" }));
    });
    file.vector("before the first round there is none to claim", |script| {
        script.open_ordered("a", "ticket", 0, ID_MAX);
        for round in [0, 1, BEYOND_DOUBLE] {
            script.claim("a", NOW, round).gives_error(WIT, &invalid("round"));
        }
    });
    file.vector("a round that nobody claimed is dropped with its ids", |script| {
        script.open_ordered("a", "ticket", 0, ID_MAX);
        script.begin("a", NOW, 3);
        script.grant(1, 4);
        script
            .begin("a", NOW, 2)
            .gives("rule 24", &json!({ "ok": "2" }))
            .asks("1 to 3 are lost", &allocates("ticket", 2, 4, "t2"));
        script.claim("a", NOW, 1).gives_error("rule 24", &invalid("round"));
        script.grant(4, 6);
        script.claim("a", NOW, 2).gives_run("rule 24", 4, 1, 2);
    });
    file.vector("a run has no more ids than its round asked for, and may have fewer", |script| {
        script.open_ordered("a", "ticket", 0, ID_MAX);
        script.begin("a", NOW, 3);
        script.grant(1, 101);
        script.claim("a", NOW, 1).gives_run("4 to 100 are lost", 1, 1, 3);
        script.begin("a", NOW, 3).asks("the whole grant is above the floor", &allocates("ticket", 3, 101, "t2"));
        script.grant(101, 102);
        script.claim("a", NOW, 2).gives_run("one was granted", 101, 1, 1);
        script.begin("a", NOW, 3);
        script.grant_of(segment(104, 164, 20, 0, 9));
        script.claim("a", NOW, 3).gives_run("104, 124, 144", 104, 20, 3);
        script.begin("a", NOW, 2);
        script.grant_of(segment(164, 264, 20, 0, 10));
        script.claim("a", NOW, 4).gives_run("164 and 184", 164, 20, 2);
    });
    file.vector("ids above 2^53, and the last one", |script| {
        script.open_ordered("a", "ticket", BEYOND_DOUBLE, ID_MAX);
        script.begin("a", NOW, 2).asks("the floor", &allocates("ticket", 2, BEYOND_DOUBLE, "t1"));
        script.grant(BEYOND_DOUBLE, BEYOND_DOUBLE + 2);
        script.claim("a", NOW, 1).gives_run("2^53 + 1", 9_007_199_254_740_993, 1, 2);
        script
            .begin("a", u64::MAX, u32::MAX)
            .asks("2^32 - 1", &allocates("ticket", 4_294_967_295, BEYOND_DOUBLE + 2, "t2"));
        script.grant_of(segment(ID_MAX, ID_MAX + 1, 1, 0, u64::MAX));
        script.claim("a", 0, 2).gives_run("2^63 - 1", 9_223_372_036_854_775_807, 1, 1);
        script.begin("a", NOW, 1).gives_error("every number was granted", &json!("exhausted"));
    });
    file.vector("an answer that comes late serves its own round", |script| {
        script.open_ordered("a", "ticket", 0, ID_MAX);
        script.open_ordered("b", "ticket", 0, ID_MAX);
        script.begin("a", NOW, 1);
        script.begin("b", NOW, 1);
        script.answer("t2", json!({ "ok": segment(1, 2, 1, 0, 1) }));
        script.claim("b", NOW, 1).gives_run("t2 is its ticket", 1, 1, 1);
        script.claim("a", NOW + 60_000, 1).gives_error("t1 is its ticket", &json!("pending"));
        script.answer("t1", json!({ "ok": segment(2, 3, 1, 0, 2) }));
        script.claim("a", NOW + 60_001, 1).gives_run("t1 is its ticket", 2, 1, 1);
    });
    file.vector("an ordered sequence that is dropped gives nothing back", |script| {
        script.open_ordered("a", "ticket", 0, ID_MAX);
        script.begin("a", NOW, 1);
        script.grant(1, 2);
        script.step(&json!({ "drop": "a" }));
        script.open_ordered("a", "ticket", 2, ID_MAX);
        script.begin("a", NOW, 1).gives("rounds begin anew", &json!({ "ok": "1" }));
    });
}

fn arguments(file: &mut File) {
    file.vector("arguments out of range", |script| {
        for id_max in [0, ID_MAX + 1, u64::MAX] {
            let args = json!({ "tag": "ticket", "floor": "0", "id-max": int(id_max) });
            script.call("ordered.open", "a", args).gives_error(WIT, &invalid("id"));
        }
        for tag in ["", "a\tb", "\u{1f}", "\u{85}"] {
            let args = json!({ "tag": tag, "floor": "0", "id-max": "1" });
            script.call("ordered.open", "a", args).gives_error(WIT, &invalid("name"));
        }
        script.open_ordered("a", "chat\u{1f}user_1", 0, ID_MAX);
        script.begin("a", NOW, 0).gives_error(WIT, &invalid("count"));
        script.begin("a", NOW, 1).gives("no round was begun before", &json!({ "ok": "1" }));
        script.begin("a", NOW, 0).gives_error(WIT, &invalid("count"));
        script.grant(1, 2);
        script.begin("a", NOW, 0).gives_error("the round stays", &invalid("count"));
        script.claim("a", NOW, 1).gives_run("the round stays", 1, 1, 1);
    });
}

fn failures(file: &mut File) {
    for (error, answer) in [
        ("unavailable", json!({ "store-failed": "10" })),
        ("outcome-unknown", json!({ "store-failed": "10" })),
        ("workers-exhausted", json!({ "store-failed": "10" })),
        ("lease-lost", json!({ "store-failed": "10" })),
        ("clock-skew", json!({ "store-failed": "10" })),
        ("tag-unknown", json!({ "store-failed": "0" })),
        ("refused", json!({ "store-failed": "0" })),
        ("exhausted", json!("exhausted")),
    ] {
        file.vector(format!("the store answers {error}"), |script| {
            script.open_ordered("a", "ticket", 0, ID_MAX);
            script.begin("a", NOW, 1);
            script.fail(error);
            script.claim("a", NOW, 1).gives_error("the round is over", &answer);
            script.claim("a", NOW, 1).gives_error("the round is over", &invalid("round"));
            script.begin("a", NOW, 1).gives("another round may begin", &json!({ "ok": "2" }));
            script.grant(1, 2);
            script.claim("a", NOW, 2).gives_run("another round may begin", 1, 1, 1);
        });
    }
    file.vector("a grant that is refused ends its round", |script| {
        script.open_ordered("a", "ticket", 21, ID_MAX);
        for (round, (granted, fault)) in (1..).zip([
            (segment(20, 21, 1, 0, 1), "overlap"),
            (segment(0, 1, 1, 0, 1), "malformed"),
            (segment(30, 30, 1, 0, 1), "malformed"),
            (segment(30, 31, 0, 0, 1), "malformed"),
        ]) {
            script.begin("a", NOW, 1);
            script.grant_of(granted);
            script.claim("a", NOW, round).gives_error("wit/segments.wit: segment", &json!({ "grant-refused": fault }));
        }
        script.begin("a", NOW, 1).asks("the floor stays", &allocates("ticket", 1, 21, "t5"));
        script.grant(21, 22);
        script.claim("a", NOW, 5).gives_run("21 was granted", 21, 1, 1);
        script.begin("a", NOW, 1);
        script.grant(21, 22);
        script.claim("a", NOW, 6).gives_error("21 was granted before", &json!({ "grant-refused": "overlap" }));
    });
    file.vector("failures in a row", |script| {
        script.open_ordered("a", "ticket", 0, ID_MAX);
        for (round, pause) in (1..).zip([10, 20, 40]) {
            script.begin("a", NOW, 1);
            script.fail("unavailable");
            script.claim("a", NOW, round).gives_error("10 ms, doubled", &json!({ "store-failed": int(pause) }));
        }
    });
}

fn bounds(file: &mut File) {
    file.vector("no id is above the bound", |script| {
        script.open_ordered("a", "ticket", 6, 12);
        script.begin("a", NOW, 10);
        script.grant(11, 21);
        script.claim("a", NOW, 1).gives_run("11 and 12", 11, 1, 2);
        script.begin("a", NOW, 1).gives_error(WIT, &json!("exhausted"));
        script.claim("a", NOW, 1).gives_error("it was claimed", &invalid("round"));
    });
    file.vector("a grant wholly above the bound", |script| {
        script.open_ordered("a", "ticket", 0, 12);
        script.begin("a", NOW, 1);
        script.grant(13, 14);
        script.claim("a", NOW, 1).gives_error(WIT, &json!("exhausted"));
        script.begin("a", NOW, 1).gives_error(WIT, &json!("exhausted"));
    });
    file.vector("a floor above the bound", |script| {
        script.open_ordered("a", "ticket", 13, 12);
        script.begin("a", NOW, 1).gives_error(WIT, &json!("exhausted"));
    });
    file.vector("another stripe may be behind", |script| {
        script.open_ordered("a", "ticket", 0, 12);
        script.begin("a", NOW, 1);
        script.grant_of(segment(13, 15, 2, 0, 1));
        script.claim("a", NOW, 1).gives_error(WIT, &json!({ "wait": "10" }));
        script.begin("a", NOW, 1).gives(WIT, &json!({ "ok": "2" }));
        script.grant_of(segment(12, 14, 2, 0, 1));
        script.claim("a", NOW, 2).gives_run("12 is the bound", 12, 2, 1);
        script.begin("a", NOW, 1).gives_error("both stripes are above 12", &json!("exhausted"));
    });
}
