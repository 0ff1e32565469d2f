//! `hosts.json`: what a host does by itself.

use serde_json::{Value, json};
use unalike_core::{ID_MAX, Layout};

use crate::json::{int, layout_value, written};
use crate::script::{File, Script, segment};
use crate::sequences::{BEYOND_DOUBLE, NOW, allocates, options, releases};
use crate::snowflakes::{self, lease};

/// What is no count, as people write it: each of them became one in a host that wrapped, rounded or cut it.
const NO_COUNTS: [&str; 14] = [
    "0",
    "-0",
    "-1",
    "-4294967295",
    "4294967296",
    "4294967297",
    "9007199254740993",
    "18446744073709551615",
    "18446744073709551617",
    "1.5",
    "NaN",
    "Infinity",
    "1e3",
    "",
];

pub(crate) fn file() -> File {
    let mut file = File::new("core");
    numbers(&mut file);
    flakes(&mut file);
    tickets(&mut file);
    traps(&mut file);
    rebuilds(&mut file);
    forks(&mut file);
    file
}

impl Script {
    fn refuses_counts(&mut self, call: &str, name: &str) {
        for count in NO_COUNTS {
            let mut args = json!({ "now": int(NOW) });
            args[name] = json!(count);
            self.call_by_host(call, "a", args).shows("1 to 2^32 - 1", "refused", &json!(name));
        }
    }

    fn rebuilds(&mut self, source: &str, floors: Value, used_until: Value) {
        self.rebuild().shows(source, "floors", &floors).shows(source, "used-until", &used_until);
    }
}

fn numbers(file: &mut File) {
    file.vector("counts of a sequence", |script| {
        script.open("a", "order", json!({}));
        script.refuses_counts("sequence.reserve", "max");
        script
            .call_by_host("sequence.reserve", "a", json!({ "now": int(NOW), "max": "4294967295" }))
            .asks("nothing was asked for before", &allocates("order", 10, 0, "t1"));
        script.grant(1, 11);
        script.refuses_counts("sequence.reserve", "max");
        script.call_by_host("sequence.reserve", "a", json!({ "now": int(NOW), "max": "3" })).gives_run(
            "nothing was handed out before",
            1,
            1,
            3,
        );
    });
    file.vector("counts of an ordered sequence", |script| {
        script.open_ordered("a", "ticket", 0, ID_MAX);
        script.refuses_counts("ordered.begin", "count");
        script
            .call_by_host("ordered.begin", "a", json!({ "now": int(NOW), "count": "4294967295" }))
            .gives("no round was begun before", &json!({ "ok": "1" }))
            .asks("all of it", &allocates("ticket", 4_294_967_295, 0, "t1"));
    });
    file.vector("counts of a snowflake generator", |script| {
        script.open_flake("a", "default", json!({}));
        script.flake("a", NOW, 1);
        script.grant_of(lease(33, NOW, NOW + 60_000));
        script.refuses_counts("snowflake.reserve", "max");
        script.call_by_host("snowflake.reserve", "a", json!({ "now": int(NOW), "max": "4294967295" })).gives_run(
            "a whole tick is left",
            1_724_551_110_456_381_440,
            1,
            4_096,
        );
    });
    file.vector("options of a sequence", |script| {
        let given = |refill: Value| json!({ "tag": "order", "options": options(json!({ "refill": refill })) });
        let args = given(json!({ "share-consumed": 100 }));
        for (name, numbers) in [
            ("step", &["-1", "18446744073709551616", "10.5"][..]),
            ("step-min", &["-10"]),
            ("step-max", &["1e3"]),
            ("grow-below-ms", &["-1"]),
            ("shrink-above-ms", &["NaN"]),
            ("prefetch", &["-1", "4294967297"]),
            ("floor", &["-1", "18446744073709551616"]),
            ("id-max", &["-1", "18446744073709551617"]),
        ] {
            script.refuses("sequence.open", "a", &args, ("/options", name), numbers);
        }
        script.refuses("sequence.open", "a", &args, ("/options/refill", "share-consumed"), &["-1", "256", "0.1"]);
        let args = given(json!({ "remaining": "5" }));
        script.refuses("sequence.open", "a", &args, ("/options/refill", "remaining"), &["-1"]);
        let options = options(json!({ "floor": int(BEYOND_DOUBLE) }));
        script
            .call_by_host("sequence.open", "a", written(&json!({ "tag": "order", "options": options })))
            .gives("it fits", &json!({ "ok": null }));
        script.reserve("a", NOW, 1).asks("not rounded", &allocates("order", 10, 9_007_199_254_740_993, "t1"));
    });
    file.vector("options of an ordered sequence", |script| {
        let args = json!({ "tag": "ticket", "floor": "0", "id-max": "9" });
        script.refuses("ordered.open", "a", &args, ("", "floor"), &["-1", "18446744073709551616"]);
        script.refuses("ordered.open", "a", &args, ("", "id-max"), &["-1", "18446744073709551617"]);
    });
}

fn flakes(file: &mut File) {
    file.vector("options of a snowflake generator", |script| {
        let args = |changes| json!({ "namespace": "default", "options": snowflakes::options(changes) });
        let plain = args(json!({}));
        for name in ["horizon-ms", "ahead-max-ms", "floor", "seed"] {
            let numbers = ["-1", "18446744073709551617", "1.5"];
            script.refuses("snowflake.open", "a", &plain, ("/options", name), &numbers);
        }
        for name in ["timestamp-bits", "datacenter-bits", "worker-bits", "sequence-bits"] {
            script.refuses("snowflake.open", "a", &plain, ("/options/layout", name), &["-1", "256", "297"]);
        }
        script.refuses("snowflake.open", "a", &plain, ("/options/layout", "tick-ms"), &["-1", "4294967297", "0.5"]);
        script.refuses("snowflake.open", "a", &plain, ("/options/layout", "epoch-ms"), &["-1", "NaN"]);
        let clocks = args(json!({ "clock": { "keep": "5" }, "spread": { "rotating": 3 } }));
        script.refuses("snowflake.open", "a", &clocks, ("/options/clock", "keep"), &["-1", "18446744073709551621"]);
        script.refuses("snowflake.open", "a", &clocks, ("/options/spread", "rotating"), &["-1", "259", "2.5"]);
        script.call_by_host("snowflake.open", "a", written(&plain)).gives("it fits", &json!({ "ok": null }));
    });
}

fn tickets(file: &mut File) {
    file.vector("an answer is there once", |script| {
        script.open("a", "order", json!({}));
        script.reserve("a", NOW, 1);
        script.poll("segments", "t1").gives("it runs", &Value::Null);
        script.grant(1, 11);
        script.poll("segments", "t1").gives("its answer", &json!({ "ok": segment(1, 11, 1, 0, 11) }));
        script.poll("segments", "t1").gives("its ticket is gone", &json!({ "err": "outcome-unknown" }));
        let again = script.answer("t1", json!({ "ok": segment(1, 11, 1, 0, 11) }));
        again.shows("its ticket is gone", "dropped", &json!(true));
        script.reserve("a", NOW, 1).gives_error("its ticket is gone", &json!({ "store-failed": "10" }));
    });
    file.vector("of two answers the first counts", |script| {
        script.open("a", "order", json!({}));
        script.reserve("a", NOW, 1);
        script.grant(1, 11);
        let second = script.answer("t1", json!({ "ok": segment(101, 111, 1, 0, 111) }));
        second.shows("the first counts", "dropped", &json!(true));
        let third = script.answer("t1", json!({ "err": "unavailable" }));
        third.shows("the first counts", "dropped", &json!(true));
        script.reserve("a", NOW, 1).gives_run("the first counts", 1, 1, 1);
        let late = script.answer("t1", json!({ "ok": segment(101, 111, 1, 0, 111) }));
        late.shows("it was taken in", "dropped", &json!(true));
        script.reserve("a", NOW, 1).gives_run("the first counts", 2, 1, 1);
    });
    file.vector("a request that was given up is answered in vain", |script| {
        script.open("a", "order", json!({}));
        script.reserve("a", NOW, 1);
        script.answer("t1", json!({ "err": "outcome-unknown" }));
        let late = script.answer("t1", json!({ "ok": segment(1, 11, 1, 0, 11) }));
        late.shows("rule 26", "dropped", &json!(true));
        script.reserve("a", NOW, 1).gives_error("rule 13", &json!({ "store-failed": "10" }));
        script.reserve("a", NOW + 10, 1).asks("rule 13", &allocates("order", 10, 0, "t2"));
        script.grant(11, 21);
        script.reserve("a", NOW + 10, 1).gives_run("1 to 10 are burnt", 11, 1, 1);
    });
    file.vector("tickets that were never issued", |script| {
        for ticket in ["0", "1", "4294967296", "9007199254740993", "18446744073709551615"] {
            for interface in ["segments", "leases"] {
                script.poll(interface, ticket).gives("nobody knows", &json!({ "err": "outcome-unknown" }));
            }
        }
    });
    file.vector("a ticket of the other interface", |script| {
        script.open("a", "order", json!({}));
        script.reserve("a", NOW, 1);
        script.open_flake("b", "default", json!({}));
        script.flake("b", NOW, 1);
        script.poll("leases", "t1").gives("it is of segments", &json!({ "err": "outcome-unknown" }));
        script.poll("segments", "t2").gives("it is of leases", &json!({ "err": "outcome-unknown" }));
        script.poll("segments", "t1").gives("it runs", &Value::Null);
        script.poll("leases", "t2").gives("it runs", &Value::Null);
        script.answer("t2", json!({ "ok": lease(33, NOW, NOW + 60_000) }));
        script.answer("t1", json!({ "ok": segment(1, 11, 1, 0, 11) }));
        script.flake("b", NOW, 1).gives_run("worker 33", 1_724_551_110_456_381_440, 1, 1);
        script.reserve("a", NOW, 1).gives_run("1 to 10", 1, 1, 1);
    });
    file.vector("an answer that never comes", |script| {
        script.open("a", "order", json!({}));
        script.open("b", "invoice", json!({}));
        script.reserve("a", NOW, 1);
        script.reserve("b", NOW, 1);
        script.grant(1, 11);
        for hours in 1..=3 {
            script.reserve("a", NOW + hours * 3_600_000, 1).gives_error("it is awaited", &json!("pending"));
            script.reserve("b", NOW + hours * 3_600_000, 1).gives_run("others go on", hours, 1, 1);
        }
        script.close("a");
        script.poll("segments", "t1").gives("it still runs", &Value::Null);
    });
}

fn traps(file: &mut File) {
    file.vector("segments.allocate throws", |script| {
        script.open("a", "order", json!({ "refill": { "share-consumed": 0 } }));
        script.reserve("a", NOW, 1);
        script.grant(1, 11);
        script.call_that_throws("segments.allocate", "sequence.reserve", "a", json!({ "now": int(NOW), "max": 3 }));
        script.rebuilds("1 to 10 were granted; 1 to 3 may have been handed out", json!({ "order": "11" }), json!({}));
        script.open("a", "order", json!({ "floor": "11" }));
        script.reserve("a", NOW, 3).asks("above the floor", &allocates("order", 10, 11, "t2"));
        script.grant(4, 14);
        script.reserve("a", NOW, 3).gives_error("4 is below the floor", &json!({ "grant-refused": "overlap" }));
        script.reserve("a", NOW + 10, 3);
        script.grant(11, 21);
        script.reserve("a", NOW + 10, 3).gives_run("above the floor", 11, 1, 3);
    });
    file.vector("segments.allocate throws at the first request", |script| {
        script.open("a", "order", json!({}));
        script.call_that_throws("segments.allocate", "sequence.status", "a", json!({ "now": int(NOW) }));
        script.rebuilds("nothing was granted", json!({}), json!({}));
        script.open("a", "order", json!({}));
        script.reserve("a", NOW, 1);
        script.grant(1, 11);
        script.reserve("a", NOW, 1).gives_run("nothing was granted before", 1, 1, 1);
    });
    file.vector("segments.poll throws, and takes all generators with it", |script| {
        script.open("a", "order", json!({}));
        script.open("b", "invoice", json!({}));
        script.open_ordered("c", "ticket", 0, ID_MAX);
        script.reserve("b", NOW, 1);
        script.grant(501, 511);
        script.reserve("b", NOW, 2).gives_run("501 to 510", 501, 1, 2);
        script.begin("c", NOW, 2);
        script.grant(7, 9);
        script.claim("c", NOW, 1).gives_run("7 and 8", 7, 1, 2);
        script.begin("c", NOW, 1);
        script.reserve("a", NOW, 1);
        script.call_that_throws("segments.poll", "sequence.reserve", "a", json!({ "now": int(NOW), "max": 1 }));
        let floors = json!({ "invoice": "511", "ticket": "9" });
        script.rebuilds("503 to 510 are lost, too", floors, json!({}));
        for ticket in ["t3", "t4"] {
            let late = script.answer(ticket, json!({ "ok": segment(1, 11, 1, 0, 1) }));
            late.shows("rule 26", "dropped", &json!(true));
        }
        script.open("a", "order", json!({}));
        script.open("b", "invoice", json!({ "floor": "511" }));
        script.open_ordered("c", "ticket", 9, ID_MAX);
        script.reserve("a", NOW, 1).asks("it had nothing", &allocates("order", 10, 0, "t5"));
        script.reserve("b", NOW, 1).asks("above the floor", &allocates("invoice", 10, 511, "t6"));
        script
            .begin("c", NOW, 1)
            .gives("rounds begin anew", &json!({ "ok": "1" }))
            .asks("above the floor", &allocates("ticket", 1, 9, "t7"));
        script.poll("segments", "t3").gives("it is another instance's", &json!({ "err": "outcome-unknown" }));
    });
    file.vector("segments.release throws", |script| {
        script.open("a", "order", json!({}));
        script.reserve("a", NOW, 1);
        script.grant(1, 11);
        script.reserve("a", NOW, 1).gives_run("1 to 10", 1, 1, 1);
        script.call_that_throws("segments.release", "sequence.close", "a", json!({}));
        script.rebuilds("2 to 10 are a gap", json!({ "order": "11" }), json!({}));
    });
    file.vector("segments.allocate throws in an ordered round", |script| {
        script.open_ordered("a", "ticket", 5, ID_MAX);
        script.call_that_throws("segments.allocate", "ordered.begin", "a", json!({ "now": int(NOW), "count": 3 }));
        script.rebuilds("nothing was granted", json!({}), json!({}));
        script.open_ordered("a", "ticket", 5, ID_MAX);
        script.claim("a", NOW, 1).gives_error("rounds begin anew", &json!({ "invalid-argument": "round" }));
        script.begin("a", NOW, 3).gives("rounds begin anew", &json!({ "ok": "1" }));
    });
    file.vector("floors with stripes", |script| {
        script.open("a", "order", json!({}));
        script.open("b", "invoice", json!({}));
        script.reserve("a", NOW, 1);
        script.grant_of(segment(1, 201, 2, 0, 1));
        script.reserve("a", NOW, 100).gives_run("1, 3, .. 199", 1, 2, 100);
        script.grant_of(segment(2, 12, 2, 0, 1));
        script.reserve("a", NOW, 1).gives_run("the other stripe is behind", 2, 2, 1);
        script.reserve("b", NOW, 1);
        script.grant_of(segment(1, 201, 2, 0, 1));
        script.reserve("b", NOW, 1).gives_run("1, 3, .. 199", 1, 2, 1);
        script.open_flake("c", "default", json!({}));
        script.call_that_throws("leases.acquire", "snowflake.reserve", "c", json!({ "now": int(NOW), "max": 1 }));
        script.rebuilds(
            "order: 200 on of one stripe, 12 on of the other; invoice: of a stripe that is unknown, 1 on",
            json!({ "order": "12" }),
            json!({}),
        );
    });
    for (import, at) in [("leases.poll", NOW + 20_000), ("leases.extend", NOW + 20_000)] {
        file.vector(format!("{import} throws"), |script| {
            script.open_flake("a", "default", json!({ "spread": { "rotating": 3 }, "seed": "5" }));
            script.flake("a", NOW, 1);
            script.grant_of(lease(33, NOW, NOW + 60_000));
            script.flake("a", NOW, 10).gives_run("offset 5", 1_724_551_110_456_381_445, 1, 10);
            if import == "leases.poll" {
                script.flake("a", at, 1);
            }
            script.call_that_throws(import, "snowflake.reserve", "a", json!({ "now": int(at), "max": 3 }));
            let used = if import == "leases.poll" { at + 1 } else { NOW + 1 };
            script.rebuilds("the end of the tick that was handed out last", json!({}), json!({ "default": int(used) }));
            if import == "leases.poll" {
                let late = script.answer("t2", json!({ "ok": lease(33, NOW, NOW + 80_000) }));
                late.shows("rule 26", "dropped", &json!(true));
            }
            let changes = json!({ "spread": { "rotating": 3 }, "seed": "6", "floor": int(used) });
            script.open_flake("a", "default", changes);
            script.flake("a", NOW, 1);
            script.grant_of(lease(34, NOW, NOW + 60_000));
            script.flake("a", NOW, 1).gives_error("rule 9: at the next tick", &json!({ "wait": int(used - NOW) }));
            let first = 1_724_551_110_456_381_440 + (used - NOW) * (1 << 22) + 4_096 + 6;
            script.flake("a", used, 1).gives_run("rule 9: at the next tick, of worker 34", first, 1, 1);
        });
    }
    file.vector("leases.release throws", |script| {
        script.open_flake("a", "default", json!({}));
        script.flake("a", NOW, 1);
        script.grant_of(lease(33, NOW, NOW + 60_000));
        script.flake("a", NOW + 4, 1).gives_run("worker 33", 1_724_551_110_456_381_440 + (4 << 22), 1, 1);
        script.call_that_throws("leases.release", "snowflake.close", "a", json!({}));
        script.rebuilds("it was used", json!({}), json!({ "default": int(NOW + 5) }));
    });
}

fn rebuilds(file: &mut File) {
    file.vector("an instance is given up without a trap", |script| {
        script.open("a", "order", json!({}));
        script.reserve("a", NOW, 1);
        script.grant(1, 11);
        script.reserve("a", NOW, 10).gives_run("1 to 10", 1, 1, 10);
        script.rebuilds("a request is under way", json!({ "order": "11" }), json!({}));
        script.open("a", "order", json!({ "floor": "11" }));
        script.reserve("a", NOW, 1).asks("above the floor", &allocates("order", 10, 11, "t3"));
        let late = script.answer("t2", json!({ "ok": segment(11, 21, 1, 0, 21) }));
        late.shows("rule 26", "dropped", &json!(true));
        script.reserve("a", NOW, 1).gives_error("t2 was another instance's", &json!("pending"));
        script.answer("t3", json!({ "ok": segment(21, 31, 1, 0, 31) }));
        script.reserve("a", NOW, 1).gives_run("11 to 20 are a gap", 21, 1, 1);
        script.rebuilds("21 to 30 were granted", json!({ "order": "31" }), json!({}));
        script.open("a", "order", json!({ "floor": "31" }));
        script.close("a");
    });
    file.vector("what was refused leaves no floor", |script| {
        script.open("a", "order", json!({}));
        script.reserve("a", NOW, 1);
        script.grant_of(segment(1, ID_MAX + 3, 1, 0, 1));
        script.reserve("a", NOW, 1).gives_error("it is malformed", &json!({ "grant-refused": "malformed" }));
        script.rebuilds("it is malformed", json!({}), json!({}));
    });
    file.vector("a floor above 2^53 and a time above it", |script| {
        script.open("a", "order", json!({}));
        script.reserve("a", NOW, 1);
        script.grant_of(segment(BEYOND_DOUBLE, BEYOND_DOUBLE + 10, 1, 0, 1));
        script.reserve("a", NOW, 1);
        let layout = json!({
            "timestamp-bits": 63,
            "datacenter-bits": 0,
            "worker-bits": 0,
            "sequence-bits": 0,
            "order": "worker-first",
            "epoch-ms": "0",
            "tick-ms": 1,
        });
        script.open_flake("b", "default", json!({ "layout": layout }));
        script.flake("b", BEYOND_DOUBLE, 1);
        script.grant_of(lease(0, BEYOND_DOUBLE, BEYOND_DOUBLE + 60_000));
        script.flake("b", BEYOND_DOUBLE, 1).gives_run("its tick is the id", 9_007_199_254_740_993, 1, 1);
        script.rebuilds(
            "2^53 + 11; 2^53 + 2",
            json!({ "order": "9007199254741003" }),
            json!({ "default": "9007199254740994" }),
        );
    });
}

fn forks(file: &mut File) {
    let sequence = options(json!({ "floor": "0" }));
    let fork = Some("fork");
    file.vector_of("a child has none of its parent's numbers", fork, |script| {
        script.open("a", "order", json!({ "refill": { "share-consumed": 50 } }));
        script.reserve("a", NOW, 1);
        script.grant(1, 11);
        script.reserve("a", NOW, 5).gives_run("1 to 10", 1, 1, 5);
        let reserve = json!({ "call": "sequence.reserve", "on": "a", "args": { "now": int(NOW), "max": 3 } });
        let child = script.step(&json!({ "fork": [
            { "answer": "t2", "with": { "ok": segment(11, 21, 1, 0, 21) } },
            { "by": "host", "call": "segments.poll", "args": { "ticket": "t2" } },
            { "call": "sequence.open", "on": "a", "args": { "tag": "order", "options": sequence } },
            reserve,
            { "answer": "t3", "with": { "ok": segment(21, 31, 1, 0, 31) } },
            reserve,
            { "call": "sequence.close", "on": "a", "args": {} },
            { "rebuild": true },
        ] }));
        let steps = child.0["fork"].as_array_mut().unwrap();
        steps[0]["source"] = json!("rule 28: the answer is the parent's");
        steps[1]["source"] = json!("rule 28: the ticket is the parent's");
        steps[5]["source"] = json!("rule 28: from a grant of its own");
        assert_eq!(steps[0]["dropped"], json!(true));
        assert_eq!(steps[1]["returns"], json!({ "err": "outcome-unknown" }));
        assert_eq!(steps[3]["imports"], allocates("order", 10, 0, "t3"));
        assert_eq!(steps[5]["returns"], json!({ "ok": { "first": "21", "stride": "1", "count": 3 } }));
        assert_eq!(steps[6]["imports"], releases("order", 24, 31));
        assert_eq!(steps[7]["floors"], json!({ "order": "31" }));
        script.reserve("a", NOW, 5).gives_run("the parent goes on", 6, 1, 5);
        script.answer("t2", json!({ "ok": segment(11, 21, 1, 0, 21) }));
        script.reserve("a", NOW, 5).gives_run("its answer is its own", 11, 1, 5);
        script.rebuilds("21 to 30 are the child's", json!({ "order": "21" }), json!({}));
    });
    file.vector_of("a child has none of its parent's time", fork, |script| {
        script.open_flake("a", "default", json!({}));
        script.flake("a", NOW, 1);
        script.grant_of(lease(33, NOW, NOW + 60_000));
        script.flake("a", NOW, 1).gives_run("worker 33", 1_724_551_110_456_381_440, 1, 1);
        let options = json!({
            "layout": layout_value(&Layout::TWITTER),
            "clock": "reject",
            "horizon-ms": "60000",
            "ahead-max-ms": "0",
            "floor": "0",
            "spread": "none",
            "seed": "0",
        });
        let reserve = json!({ "call": "snowflake.reserve", "on": "a", "args": { "now": int(NOW), "max": 1 } });
        let child = script.step(&json!({ "fork": [
            { "call": "snowflake.open", "on": "a", "args": { "namespace": "default", "options": options } },
            reserve,
            { "answer": "t2", "with": { "ok": lease(34, NOW, NOW + 60_000) } },
            reserve,
            { "call": "snowflake.close", "on": "a", "args": {} },
        ] }));
        let steps = child.0["fork"].as_array_mut().unwrap();
        steps[1]["source"] = json!("rule 28: a lease of its own");
        assert_eq!(steps[1]["returns"], json!({ "err": "pending" }));
        assert_eq!(steps[3]["returns"]["ok"]["first"], json!("1724551110456385536"));
        assert_eq!(steps[4]["imports"], snowflakes::releases(34, NOW + 1));
        script.flake("a", NOW, 1).gives_run("the parent goes on", 1_724_551_110_456_381_441, 1, 1);
    });
    file.vector_of("a child has none of its parent's rounds", fork, |script| {
        script.open_ordered("a", "ticket", 0, ID_MAX);
        script.begin("a", NOW, 1);
        let open = json!({ "tag": "ticket", "floor": "0", "id-max": int(ID_MAX) });
        let child = script.step(&json!({ "fork": [
            { "call": "ordered.open", "on": "a", "args": open },
            { "call": "ordered.claim", "on": "a", "args": { "now": int(NOW), "round": "1" } },
            { "call": "ordered.begin", "on": "a", "args": { "now": int(NOW), "count": 1 } },
            { "answer": "t2", "with": { "ok": segment(2, 3, 1, 0, 2) } },
            { "call": "ordered.claim", "on": "a", "args": { "now": int(NOW), "round": "1" } },
        ] }));
        let steps = child.0["fork"].as_array_mut().unwrap();
        steps[1]["source"] = json!("rule 28: no round was begun");
        assert_eq!(steps[1]["returns"], json!({ "err": { "invalid-argument": "round" } }));
        assert_eq!(steps[4]["returns"], json!({ "ok": { "first": "2", "stride": "1", "count": 1 } }));
        script.answer("t1", json!({ "ok": segment(1, 2, 1, 0, 1) }));
        script.claim("a", NOW, 1).gives_run("the parent goes on", 1, 1, 1);
    });
}
