//! `snowflakes.json`: ids of timestamp, worker and sequence, under leases.

use serde_json::{Value, json};
use unalike_core::Layout;

use crate::drawn::{self, Draw};
use crate::json::{int, layout_value};
use crate::script::{File, Script, Seen};
use crate::sequences::{BEYOND_DOUBLE, NOW, WHOLE, change};

const WIT: &str = "wit/snowflakes.wit";
/// (`NOW` - 1288834974657) << 22 | 33 << 12: the first id of worker 33 in Twitter's layout.
const FIRST: u64 = 1_724_551_110_456_381_440;
/// From one tick to the next.
const TICK: u64 = 1 << 22;
const ARITHMETIC: &str = "1724551110456381440 = (1700000000000 - 1288834974657) << 22 | 33 << 12; a tick is 2^22";

pub(crate) fn options(changes: Value) -> Value {
    let mut options = json!({
        "layout": layout_value(&Layout::TWITTER),
        "clock": "reject",
        "horizon-ms": "60000",
        "ahead-max-ms": "0",
        "floor": "0",
        "spread": "none",
        "seed": "0",
    });
    change(&mut options, changes);
    options
}

fn fields(timestamp: u8, datacenter: u8, worker: u8, sequence: u8, order: &str, epoch_ms: u64, tick_ms: u32) -> Value {
    json!({
        "timestamp-bits": timestamp,
        "datacenter-bits": datacenter,
        "worker-bits": worker,
        "sequence-bits": sequence,
        "order": order,
        "epoch-ms": int(epoch_ms),
        "tick-ms": tick_ms,
    })
}

pub(crate) fn lease(worker: u32, not_before: u64, valid_until: u64) -> Value {
    json!({
        "worker": worker,
        "grant-id": { "high": "1", "low": "2" },
        "not-before": int(not_before),
        "valid-until": int(valid_until),
    })
}

fn invalid(argument: &str) -> Value {
    json!({ "invalid-argument": argument })
}

impl Script {
    pub(crate) fn open_flake(&mut self, on: &str, namespace: &str, changes: Value) {
        let args = json!({ "namespace": namespace, "options": options(changes) });
        let opened = self.call("snowflake.open", on, args);
        assert_eq!(opened.0["returns"], json!({ "ok": null }), "it opens");
    }

    pub(crate) fn flake(&mut self, on: &str, now: u64, max: u32) -> Seen<'_> {
        self.call("snowflake.reserve", on, json!({ "now": int(now), "max": max }))
    }

    pub(crate) fn flake_status(&mut self, on: &str, now: u64) -> Seen<'_> {
        self.call("snowflake.status", on, json!({ "now": int(now) }))
    }

    pub(crate) fn close_flake(&mut self, on: &str) -> Seen<'_> {
        self.call("snowflake.close", on, json!({}))
    }

    /// Opens a generator, and has it granted this lease.
    fn open_leased(&mut self, changes: Value, granted: Value) {
        self.open_flake("a", "default", changes);
        self.flake("a", NOW, 1).gives_error(WIT, &json!("pending"));
        self.grant_of(granted);
    }
}

fn acquires(now: u64, ticket: &str) -> Value {
    let layout = layout_value(&Layout::TWITTER);
    let args = json!({ "namespace": "default", "layout": layout, "now": int(now), "horizon-ms": "60000" });
    json!([{ "import": "leases.acquire", "args": args, "ticket": ticket }])
}

fn extends(worker: u32, now: u64, ticket: &str) -> Value {
    let mut call = acquires(now, ticket);
    call[0]["import"] = json!("leases.extend");
    call[0]["args"]["worker"] = json!(worker);
    call[0]["args"]["grant-id"] = json!({ "high": "1", "low": "2" });
    call
}

pub(crate) fn releases(worker: u32, end: u64) -> Value {
    let grant_id = json!({ "high": "1", "low": "2" });
    let args = json!({ "namespace": "default", "worker": worker, "grant-id": grant_id, "end": int(end) });
    json!([{ "import": "leases.release", "args": args }])
}

pub(crate) fn file() -> File {
    let mut file = File::new("core");
    life(&mut file);
    ticks(&mut file);
    clocks(&mut file);
    spreads(&mut file);
    leases(&mut file);
    faults(&mut file);
    arguments(&mut file);
    extremes(&mut file);
    for number in 0..8 {
        file.vector(format!("drawn {number}"), |script| drawn::snowflakes(script, &mut Draw::new(900 + number)));
    }
    file
}

fn life(file: &mut File) {
    file.vector("a generator takes a lease, stamps inside it, and gives the rest of its time back", |script| {
        script.open_flake("a", "default", json!({}));
        script.flake("a", NOW, 1).gives_error(WIT, &json!("pending")).asks(WIT, &acquires(NOW, "t1"));
        script.flake("a", NOW, 1).gives_error("never two requests at once", &json!("pending"));
        script.flake_status("a", NOW).gives(
            "no lease yet",
            &json!({
                "wake": int(u64::MAX),
                "worker": null,
                "valid-until": "0",
                "used-until": "0",
                "in-flight": true,
                "blocked": "pending",
            }),
        );
        script.grant_of(lease(33, NOW, NOW + 60_000));
        script.flake("a", NOW, 10).gives_run(ARITHMETIC, FIRST, 1, 10);
        script.flake_status("a", NOW).gives(
            "renewal after a third of 60 s",
            &json!({
                "wake": int(NOW + 20_000),
                "worker": 33,
                "valid-until": int(NOW + 60_000),
                "used-until": int(NOW + 1),
                "in-flight": false,
                "blocked": null,
            }),
        );
        script.flake("a", NOW + 7, 2).gives_run(ARITHMETIC, FIRST + 7 * TICK, 1, 2);
        script.close_flake("a").asks("the tick of NOW + 7 was the last", &releases(33, NOW + 8));
        script.flake("a", NOW + 8, 1).gives_error(WIT, &json!("closed"));
        script.flake("a", 0, 0).gives_error(WIT, &json!("closed"));
        script.flake_status("a", NOW + 8);
        script.close_flake("a");
    });
    file.vector("a lease that was never used is given back from its start", |script| {
        script.open_leased(json!({}), lease(33, NOW + 5, NOW + 60_000));
        script.close_flake("a").asks("its start", &releases(33, NOW + 5));
    });
    file.vector("a lease that comes after the end is dropped", |script| {
        script.open_flake("a", "default", json!({}));
        script.flake_status("a", NOW).asks("a status asks, too", &acquires(NOW, "t1"));
        script.close_flake("a");
        script.grant_of(lease(33, NOW, NOW + 60_000));
        script.flake("a", NOW, 1).gives_error(WIT, &json!("closed"));
        script.close_flake("a");
    });
    file.vector("two generators of one namespace", |script| {
        script.open_flake("a", "default", json!({}));
        script.open_flake("b", "default", json!({}));
        script.flake("a", NOW, 1);
        script.flake("b", NOW, 1);
        script.answer("t2", json!({ "ok": lease(34, NOW, NOW + 60_000) }));
        script.answer("t1", json!({ "ok": lease(33, NOW, NOW + 60_000) }));
        script.flake("b", NOW, 1).gives_run("worker 34 is 2^12 above 33", FIRST + 4_096, 1, 1);
        script.flake("a", NOW, 1).gives_run(ARITHMETIC, FIRST, 1, 1);
        script.step(&json!({ "drop": "b" }));
        script.flake("a", NOW, 1).gives_run(ARITHMETIC, FIRST + 1, 1, 1);
    });
}

fn ticks(file: &mut File) {
    file.vector("a spent tick is waited out", |script| {
        script.open_leased(json!({}), lease(33, NOW, NOW + 60_000));
        script.flake("a", NOW, 4_000).gives_run(ARITHMETIC, FIRST, 1, 4_000);
        script.flake("a", NOW, u32::MAX).gives_run("96 of 4096 are left", FIRST + 4_000, 1, 96);
        script.flake("a", NOW, 1).gives_error("nothing may be borrowed", &json!({ "wait": "1" }));
        script.flake_status("a", NOW);
        script.flake("a", NOW + 1, 1).gives_run(ARITHMETIC, FIRST + TICK, 1, 1);
    });
    file.vector("a spent tick overflows into the next ones, as far ahead as may be", |script| {
        script.open_leased(json!({ "ahead-max-ms": "3" }), lease(33, NOW, NOW + 60_000));
        for ahead in 0..=3 {
            script.flake("a", NOW, u32::MAX).gives_run(ARITHMETIC, FIRST + ahead * TICK, 1, 4_096);
        }
        script.flake("a", NOW, 1).gives_error("NOW + 4 is 4 ahead", &json!({ "wait": "1" }));
        script.flake("a", NOW + 1, 1).gives_run("NOW + 4 is 3 ahead", FIRST + 4 * TICK, 1, 1);
        script.flake("a", NOW + 4, 1).gives_run("a tick is entered once", FIRST + 4 * TICK + 1, 1, 1);
        script.flake("a", NOW + 5, 1).gives_run(ARITHMETIC, FIRST + 5 * TICK, 1, 1);
    });
    file.vector("what is left of a tick is handed out while the clock stands still, and not after", |script| {
        script.open_leased(json!({}), lease(33, NOW, NOW + 60_000));
        script.flake("a", NOW, 1).gives_run(ARITHMETIC, FIRST, 1, 1);
        script.flake("a", NOW, 0).gives_error(WIT, &invalid("count"));
        script.flake("a", NOW, 1).gives_run(ARITHMETIC, FIRST + 1, 1, 1);
        script.flake("a", NOW + 2, 1).gives_run(ARITHMETIC, FIRST + 2 * TICK, 1, 1);
    });
    file.vector("a lease that begins later, and a floor", |script| {
        script.open_leased(json!({ "floor": int(NOW + 3) }), lease(33, NOW + 2, NOW + 60_000));
        script.flake("a", NOW, 1).gives_error("the floor is 3 ahead", &json!({ "wait": "3" }));
        script.flake("a", NOW + 2, 1).gives_error("the floor is 1 ahead", &json!({ "wait": "1" }));
        script.flake("a", NOW + 3, 1).gives_run(ARITHMETIC, FIRST + 3 * TICK, 1, 1);
    });
    // 2431040000 = (1760000000000 - 1735689600000) / 10 ticks of Sonyflake's second version.
    let (sonyflake, now) = (layout_value(&Layout::SONYFLAKE), 1_760_000_000_000_u64);
    let arithmetic = "2431040000 << 24 | sequence << 16 | 7, with ticks of 10 ms since 2025-01-01";
    file.vector("the sequence above the worker, and ticks of 10 ms", |script| {
        script.open_flake("a", "default", json!({ "layout": sonyflake }));
        script.flake("a", now + 3, 1).gives_error(WIT, &json!("pending"));
        script.grant_of(lease(7, now, now + 60_000));
        script.flake("a", now + 3, 255).gives_run(arithmetic, 40_786_083_184_640_007, 1 << 16, 255);
        script.flake("a", now + 9, 9).gives_run(arithmetic, 40_786_083_201_351_687, 1 << 16, 1);
        script.flake("a", now + 9, 9).gives_error("the next tick begins in 1 ms", &json!({ "wait": "1" }));
        script.flake("a", now + 10, 9).gives_run(arithmetic, 40_786_083_184_640_007 + (1 << 24), 1 << 16, 9);
        script.close_flake("a").asks("the end of the tick", &releases(7, now + 20));
    });
    file.vector("a tick is used only if it lies wholly inside the lease", |script| {
        script.open_flake("a", "default", json!({ "layout": layout_value(&Layout::SONYFLAKE) }));
        script.flake("a", now, 1);
        script.grant_of(lease(7, now + 1, now + 29));
        script.flake("a", now + 1, 1).gives_error("rule 1: from now + 10 on", &json!({ "wait": "9" }));
        script.flake("a", now + 10, 1).gives_run(arithmetic, 40_786_083_184_640_007 + (1 << 24), 1 << 16, 1);
        script.flake("a", now + 20, 1).gives_error("rule 1: now + 20 to now + 29", &json!("pending"));
    });
}

fn clocks(file: &mut File) {
    for (name, clock, behind, expected) in [
        ("reject: 1 ms behind", json!("reject"), 1, json!({ "clock-moved-back": "1" })),
        ("wait 5: 5 ms behind", json!({ "wait": "5" }), 5, json!({ "wait": "10" })),
        ("wait 5: 6 ms behind", json!({ "wait": "5" }), 6, json!({ "clock-moved-back": "6" })),
        ("keep 2000: 2001 ms behind", json!({ "keep": "2000" }), 2_001, json!({ "clock-moved-back": "2001" })),
        ("wait 0 is reject", json!({ "wait": "0" }), 1, json!({ "clock-moved-back": "1" })),
        ("reject: a horizon behind", json!("reject"), 60_000, json!({ "clock-moved-back": "60000" })),
    ] {
        file.vector(name, |script| {
            script.open_leased(json!({ "clock": clock }), lease(33, NOW - 5_000, NOW + 60_000));
            script.flake("a", NOW, 1).gives_run(ARITHMETIC, FIRST, 1, 1);
            script.flake("a", NOW - behind, 1).gives_error("wit/snowflakes.wit: clock-policy", &expected);
            script.flake_status("a", NOW - behind);
            script.flake("a", NOW, 1).gives_run("nothing changed", FIRST + 1, 1, 1);
        });
    }
    file.vector("keep uses the last tick up, and borrows within bounds of the clock as it stands", |script| {
        let changes = json!({ "clock": { "keep": "2000" }, "ahead-max-ms": "10" });
        script.open_leased(changes, lease(33, NOW - 5_000, NOW + 60_000));
        script.flake("a", NOW, 1).gives_run(ARITHMETIC, FIRST, 1, 1);
        script.flake("a", NOW - 2_000, u32::MAX).gives_run("the last tick is used up", FIRST + 1, 1, 4_095);
        script
            .flake("a", NOW - 2_000, 1)
            .gives_error("NOW + 1 may begin 10 ms ahead: 2001 - 10", &json!({ "wait": "1991" }));
        for ahead in 1..=9 {
            script.flake("a", NOW - 1, u32::MAX).gives_run(ARITHMETIC, FIRST + ahead * TICK, 1, 4_096);
        }
        script.flake("a", NOW - 1, 1).gives_error("NOW + 10 is 11 ahead", &json!({ "wait": "1" }));
    });
    file.vector("a clock that went back by more than a horizon takes another lease", |script| {
        script.open_leased(json!({}), lease(33, NOW, NOW + 60_000));
        script.flake("a", NOW, 1).gives_run(ARITHMETIC, FIRST, 1, 1);
        let back = NOW - 60_001;
        script.flake("a", back, 1).gives_error(WIT, &json!("pending")).asks(WIT, &acquires(back, "t2"));
        script.flake_status("a", back);
        script.grant_of(lease(34, back, back + 60_000));
        script.flake("a", back, 1).gives_run("60001 ticks back, worker 34", FIRST - 60_001 * TICK + 4_096, 1, 1);
    });
    file.vector("the same worker again is waited for", |script| {
        script.open_leased(json!({}), lease(33, NOW, NOW + 60_000));
        script.flake("a", NOW, 1).gives_run(ARITHMETIC, FIRST, 1, 1);
        let back = NOW - 70_000;
        script.flake("a", back, 1);
        script.grant_of(lease(33, back, back + 60_000));
        script.flake("a", back, 1).gives_error("it overlaps the lease in hand", &json!({ "grant-refused": "overlap" }));
        script.flake("a", back + 10, 1);
        script.grant_of(lease(33, NOW + 60_000, NOW + 120_000));
        script.flake("a", back + 10, 1);
        script.flake_status("a", back + 10);
        script.flake("a", NOW + 60_000, 1).gives_run(ARITHMETIC, FIRST + 60_000 * TICK, 1, 1);
    });
    file.vector("a clock before the epoch", |script| {
        script.open_leased(json!({}), lease(33, NOW, NOW + 60_000));
        let first = Layout::TWITTER.epoch_ms() + 1;
        for now in [0, Layout::TWITTER.epoch_ms() - 1] {
            script.flake("a", now, 1).gives_error("tick 0 is never used", &json!({ "clock-before-epoch": int(first) }));
        }
        script.flake_status("a", 0);
    });
    file.vector("tick 0 is never used", |script| {
        let layout = fields(41, 0, 10, 12, "worker-first", NOW, 1);
        script.open_leased(json!({ "layout": layout }), lease(0, NOW, NOW + 60_000));
        script.flake("a", NOW, 1).gives_error("it would give the id 0", &json!({ "wait": "1" }));
        script.flake("a", NOW + 1, 1).gives_run("1 << 22", 4_194_304, 1, 1);
    });
    file.vector("the end of the timestamps", |script| {
        let layout = fields(4, 0, 1, 1, "worker-first", NOW - 13, 1);
        script.open_leased(json!({ "layout": layout, "ahead-max-ms": "5" }), lease(1, NOW, NOW + 60_000));
        script.flake("a", NOW, 9).gives_run("13 << 2 | 1 << 1", 54, 1, 2);
        script.flake("a", NOW, 9).gives_run("14 << 2 | 1 << 1", 58, 1, 2);
        script.flake("a", NOW, 9).gives_run("15 << 2 | 1 << 1", 62, 1, 2);
        script.flake("a", NOW, 9).gives_error("there is no tick 16", &json!("exhausted"));
        script.flake("a", NOW + 3, 9).gives_error("there is no tick 16", &json!("exhausted"));
        script.flake_status("a", NOW + 3);
    });
}

fn spreads(file: &mut File) {
    file.vector("a rotating spread", |script| {
        script.open_leased(json!({ "spread": { "rotating": 2 }, "seed": "1" }), lease(33, NOW, NOW + 60_000));
        for (tick, offset) in (0..).zip([1_u32, 2, 3, 0, 1]) {
            let first = FIRST + tick * TICK + u64::from(offset);
            script.flake("a", NOW + tick, 1).gives_run("seed + number of the tick, of 4", first, 1, 1);
            script.flake("a", NOW + tick, u32::MAX).gives_run("to the last one", first + 1, 1, 4_095 - offset);
        }
    });
    file.vector("a rotating spread counts the ticks that were used", |script| {
        script.open_leased(
            json!({ "spread": { "rotating": 12 }, "seed": int(u64::MAX), "ahead-max-ms": "1" }),
            lease(33, NOW, NOW + 60_000),
        );
        script.flake("a", NOW, 9).gives_run("2^64 - 1, of 4096", FIRST + 4_095, 1, 1);
        script.flake("a", NOW, 9).gives_run("2^64: 0", FIRST + TICK, 1, 9);
        script.flake("a", NOW + 50, 9).gives_run("2^64 + 1: 1", FIRST + 50 * TICK + 1, 1, 9);
    });
    // By hand: splitmix64 of seed + tick, of which the lowest bits count.
    file.vector("a random spread is a mix of seed and tick", |script| {
        for (at, seed) in [0, 1, BEYOND_DOUBLE, u64::MAX].into_iter().enumerate() {
            let on = format!("s{at}");
            let changes = json!({ "spread": { "random": 5 }, "seed": int(seed) });
            script.open_flake(&on, "default", changes);
            script.flake(&on, NOW, 1);
            script.grant_of(lease(33, NOW, NOW + 60_000));
            for tick in 0..4 {
                script.flake(&on, NOW + tick, 2);
            }
        }
    });
    file.vector("spreads out of range", |script| {
        let reversed = layout_value(&Layout::SONYFLAKE);
        for (layout, spread) in [
            (layout_value(&Layout::TWITTER), json!({ "rotating": 0 })),
            (layout_value(&Layout::TWITTER), json!({ "rotating": 13 })),
            (layout_value(&Layout::TWITTER), json!({ "random": 0 })),
            (layout_value(&Layout::TWITTER), json!({ "random": 255 })),
            (reversed.clone(), json!({ "random": 3 })),
            (reversed, json!({ "rotating": 3 })),
            (fields(41, 0, 10, 0, "worker-first", 0, 1), json!({ "rotating": 1 })),
        ] {
            let options = options(json!({ "layout": layout, "spread": spread }));
            let args = json!({ "namespace": "default", "options": options });
            script.call("snowflake.open", "a", args).gives_error("wit/snowflakes.wit: spread", &invalid("spread"));
        }
        script.open_flake("a", "default", json!({ "spread": { "random": 12 } }));
    });
}

fn leases(file: &mut File) {
    file.vector("a namespace crosses with all its letters", |script| {
        let named = |mut calls: Value| {
            calls[0]["args"]["namespace"] = json!(WHOLE);
            calls
        };
        script.open_flake("a", WHOLE, json!({}));
        script.flake("a", NOW, 1).gives_error(WIT, &json!("pending")).asks(WIT, &named(acquires(NOW, "t1")));
        script.grant_of(lease(33, NOW, NOW + 60_000));
        script.flake("a", NOW, 10).gives_run(ARITHMETIC, FIRST, 1, 10);
        script.flake_status("a", NOW + 20_000).asks("a third is 20 s", &named(extends(33, NOW + 20_000, "t2")));
        script.close_flake("a").asks("the tick of NOW was the last", &named(releases(33, NOW + 1)));
    });
    file.vector("a lease is extended when a third of its time has passed", |script| {
        script.open_leased(json!({}), lease(33, NOW, NOW + 60_000));
        let seen = script.flake("a", NOW, 1);
        assert!(seen.0.get("imports").is_none());
        let seen = script.flake("a", NOW + 19_999, 1).gives_run(ARITHMETIC, FIRST + 19_999 * TICK, 1, 1);
        assert!(seen.0.get("imports").is_none(), "a third is 20 s");
        script
            .flake("a", NOW + 20_000, 1)
            .gives_run(ARITHMETIC, FIRST + 20_000 * TICK, 1, 1)
            .asks("a third is 20 s", &extends(33, NOW + 20_000, "t2"));
        script.grant_of(lease(33, NOW, NOW + 80_000));
        script.flake_status("a", NOW + 20_001);
        script.flake("a", NOW + 79_999, 1).gives_run("the last tick of the lease", FIRST + 79_999 * TICK, 1, 1);
        script.grant_of(lease(33, NOW, NOW + 140_000));
        script.flake("a", NOW + 80_000, 1).gives_run(ARITHMETIC, FIRST + 80_000 * TICK, 1, 1);
    });
    file.vector("a status renews, too", |script| {
        script.open_leased(json!({}), lease(33, NOW, NOW + 60_000));
        script.flake_status("a", NOW);
        script.flake_status("a", NOW + 20_000).asks("a third is 20 s", &extends(33, NOW + 20_000, "t2"));
    });
    file.vector("nothing is stamped at the end of a lease", |script| {
        script.open_leased(json!({}), lease(33, NOW, NOW + 10));
        script.flake("a", NOW + 9, 1).gives_run(ARITHMETIC, FIRST + 9 * TICK, 1, 1);
        script.flake("a", NOW + 10, 1).gives_error("rule 4", &json!("pending"));
        script.fail("unavailable");
        script.flake("a", NOW + 10, 1).gives_error("the old bound stays", &json!({ "store-failed": "10" }));
        script.flake("a", NOW + 20, 1).gives_error("the pause is over", &json!("pending"));
        script.grant_of(lease(33, NOW, NOW + 60_000));
        script.flake("a", NOW + 20, 1).gives_run(ARITHMETIC, FIRST + 20 * TICK, 1, 1);
    });
    file.vector("borrowing ends with the lease", |script| {
        script.open_leased(json!({ "ahead-max-ms": "10" }), lease(33, NOW, NOW + 2));
        script.flake("a", NOW, u32::MAX).gives_run(ARITHMETIC, FIRST, 1, 4_096);
        script.flake("a", NOW, u32::MAX).gives_run(ARITHMETIC, FIRST + TICK, 1, 4_096);
        script.flake("a", NOW, 1).gives_error("rule 4", &json!("pending"));
    });
    file.vector("an extension whose answer is lost leaves the old bound, and may be asked for again", |script| {
        script.open_leased(json!({}), lease(33, NOW, NOW + 60_000));
        script.flake("a", NOW, 1);
        script.flake("a", NOW + 20_000, 1).asks(WIT, &extends(33, NOW + 20_000, "t2"));
        script.fail("outcome-unknown");
        script.flake("a", NOW + 20_001, 1).gives_run("rule 3", FIRST + 20_001 * TICK, 1, 1);
        script.flake_status("a", NOW + 20_001);
        script.flake("a", NOW + 20_011, 1).asks("after 10 ms", &extends(33, NOW + 20_011, "t3"));
        script.grant_of(lease(33, NOW, NOW + 59_000));
        script.flake("a", NOW + 59_999, 1).gives_run(
            "an answer below the bound changes nothing",
            FIRST + 59_999 * TICK,
            1,
            1,
        );
    });
    file.vector("a lease that is lost is used to its end, and another is asked for", |script| {
        script.open_leased(json!({}), lease(33, NOW, NOW + 60_000));
        script.flake("a", NOW, 1);
        script.flake("a", NOW + 20_000, 1).asks(WIT, &extends(33, NOW + 20_000, "t2"));
        script.fail("lease-lost");
        script.flake("a", NOW + 20_000, 1).asks("at once", &acquires(NOW + 20_000, "t3"));
        script.flake("a", NOW + 30_000, 1).gives_run("to its end", FIRST + 30_000 * TICK, 1, 1);
        script.grant_of(lease(35, NOW + 30_000, NOW + 90_000));
        script.flake("a", NOW + 30_000, 1).gives_error("ids ascend: the tick was used", &json!({ "wait": "1" }));
        script.flake("a", NOW + 30_001, 1).gives_run("worker 35", FIRST + 30_001 * TICK + 2 * 4_096, 1, 1);
        script.close_flake("a").asks("the newest lease", &releases(35, NOW + 30_002));
    });
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
            script.open_flake("a", "default", json!({}));
            script.flake("a", NOW, 1);
            script.fail(error);
            script.flake("a", NOW, 1).gives_error("wit/types.wit: error", &answer);
            script.flake_status("a", NOW);
            script.flake("a", NOW + 1_000, 1).gives_error("the pause is over", &json!("pending"));
            script.grant_of(lease(33, NOW, NOW + 60_000));
            script.flake("a", NOW + 1_000, 1).gives_run(ARITHMETIC, FIRST + 1_000 * TICK, 1, 1);
        });
    }
    file.vector("a lease that has ended when it comes", |script| {
        script.open_leased(json!({}), lease(33, NOW - 60_000, NOW));
        script.flake("a", NOW, 1).gives_error("as if the clock were ahead", &json!({ "store-failed": "10" }));
        script.flake("a", NOW + 10, 1).asks("it is extended", &extends(33, NOW + 10, "t2"));
        script.grant_of(lease(33, NOW - 60_000, NOW + 60_000));
        script.flake("a", NOW + 10, 1).gives_run(ARITHMETIC, FIRST + 10 * TICK, 1, 1);
    });
}

fn faults(file: &mut File) {
    for (what, granted, fault) in [
        ("a worker beyond the layout", lease(1_024, NOW, NOW + 60_000), "worker"),
        ("the greatest worker of 32 bits", lease(u32::MAX, NOW, NOW + 60_000), "worker"),
        ("no time", lease(33, NOW, NOW), "malformed"),
        ("a time that is reversed", lease(33, NOW + 1, NOW), "malformed"),
        ("a time before the epoch", lease(33, 0, 1_000), "malformed"),
    ] {
        file.vector(format!("a lease with {what} is refused"), |script| {
            script.open_leased(json!({}), granted);
            script.flake("a", NOW, 1).gives_error("wit/leases.wit: lease", &json!({ "grant-refused": fault }));
            script.flake_status("a", NOW);
            script.flake("a", NOW + 10, 1).asks("another is asked for", &acquires(NOW + 10, "t2"));
            script.grant_of(lease(1_023, NOW, NOW + 60_000));
            script.flake("a", NOW + 10, 1).gives_run("990 workers above 33", FIRST + 10 * TICK + 990 * 4_096, 1, 1);
        });
    }
    for (what, mut granted) in
        [("another worker", lease(34, NOW, NOW + 90_000)), ("another grant", lease(33, NOW, NOW + 90_000))]
    {
        if what == "another grant" {
            granted["grant-id"]["low"] = json!("3");
        }
        file.vector(format!("an extension of {what} is refused"), |script| {
            script.open_leased(json!({}), lease(33, NOW, NOW + 60_000));
            script.flake("a", NOW, 1).gives_run(ARITHMETIC, FIRST, 1, 1);
            script.flake("a", NOW + 20_000, 1).asks(WIT, &extends(33, NOW + 20_000, "t2"));
            script.grant_of(granted);
            script.flake("a", NOW + 59_999, 1).gives_run("rule 2: the old bound stays", FIRST + 59_999 * TICK, 1, 1);
            script.flake_status("a", NOW + 60_000);
        });
    }
}

fn arguments(file: &mut File) {
    file.vector("options out of range", |script| {
        for horizon in [0, 366 * 86_400_000 + 1, u64::MAX] {
            let args = json!({ "namespace": "default", "options": options(json!({ "horizon-ms": int(horizon) })) });
            script.call("snowflake.open", "a", args).gives_error("1 ms to 366 days", &invalid("horizon"));
        }
        for namespace in ["", "a\u{7f}", "a\u{1f}b\u{1f}c"] {
            let args = json!({ "namespace": namespace, "options": options(json!({})) });
            script.call("snowflake.open", "a", args).gives_error("wit/types.wit: argument", &invalid("name"));
        }
        for layout in [
            fields(42, 5, 5, 12, "worker-first", 0, 1),
            fields(0, 5, 5, 12, "worker-first", 0, 1),
            fields(20, 16, 16, 0, "worker-first", 0, 1),
            fields(20, 0, 0, 32, "worker-first", 0, 1),
            fields(41, 5, 5, 12, "worker-first", 0, 0),
            fields(41, 5, 5, 12, "worker-first", u64::MAX, 1),
            fields(63, 0, 0, 0, "worker-first", 0, u32::MAX),
            fields(255, 255, 255, 255, "sequence-first", 0, 1),
        ] {
            let args = json!({ "namespace": "default", "options": options(json!({ "layout": layout })) });
            script.call("snowflake.open", "a", args).gives_error("wit/types.wit: layout", &invalid("layout"));
        }
        script.open_flake("a", "default", json!({ "horizon-ms": int(366 * 86_400_000) }));
        script.flake("a", NOW, 1);
    });
    file.vector("a count of 0 changes nothing", |script| {
        script.open_flake("a", "default", json!({}));
        script.flake("a", NOW, 0).gives_error("a lease is to come first", &json!("pending"));
        script.grant_of(lease(33, NOW, NOW + 60_000));
        script.flake("a", NOW, 0).gives_error(WIT, &invalid("count"));
        script.flake("a", NOW, 1).gives_run(ARITHMETIC, FIRST, 1, 1);
    });
}

fn extremes(file: &mut File) {
    file.vector("grant ids of 128 bits come back as they were", |script| {
        let mut granted = lease(33, NOW, NOW + 60_000);
        granted["grant-id"] = json!({ "high": int(u64::MAX), "low": int(BEYOND_DOUBLE) });
        script.open_leased(json!({}), granted);
        script.flake("a", NOW, 1).gives_run(ARITHMETIC, FIRST, 1, 1);
        let seen = script.flake("a", NOW + 20_000, 1);
        assert_eq!(
            seen.0["imports"][0]["args"]["grant-id"],
            json!({ "high": int(u64::MAX), "low": "9007199254740993" })
        );
        let seen = script.close_flake("a");
        assert_eq!(
            seen.0["imports"][0]["args"]["grant-id"],
            json!({ "high": int(u64::MAX), "low": "9007199254740993" })
        );
    });
    file.vector("63 bits of time, and the last of them", |script| {
        let layout = fields(63, 0, 0, 0, "worker-first", 0, 1);
        let most = (1_u64 << 63) - 1;
        script.open_flake("a", "default", json!({ "layout": layout, "seed": int(u64::MAX) }));
        script.flake("a", most, 9);
        script.grant_of(lease(0, most, u64::MAX));
        script.flake("a", most, 9).gives_run("its tick is the id", 9_223_372_036_854_775_807, 1, 1);
        script.flake("a", most, 9).gives_error("there is no tick 2^63", &json!("exhausted"));
        script.flake("a", u64::MAX, 9).gives_error("there is no tick 2^63", &json!("exhausted"));
        script.flake_status("a", u64::MAX);
        script.close_flake("a");
    });
    file.vector("a lease to the end of all time", |script| {
        let changes = json!({ "clock": { "keep": int(u64::MAX) }, "ahead-max-ms": int(u64::MAX) });
        script.open_leased(changes, lease(33, 0, u64::MAX));
        script.flake("a", NOW, u32::MAX).gives_run(ARITHMETIC, FIRST, 1, 4_096);
        script.flake("a", NOW, 1).gives_run(ARITHMETIC, FIRST + TICK, 1, 1);
        script.flake("a", 1_288_834_974_658, 1).gives_run("kept", FIRST + TICK + 1, 1, 1);
        script.flake_status("a", NOW);
        script.close_flake("a").asks("two ticks were used", &releases(33, NOW + 2));
    });
    file.vector("31 bits of worker, and of sequence", |script| {
        let layout = fields(1, 15, 16, 31, "worker-first", NOW - 1, 1);
        script.open_flake("a", "default", json!({ "layout": layout }));
        script.flake("a", NOW, 1);
        script.grant_of(lease((1 << 31) - 1, NOW, NOW + 60_000));
        script.flake("a", NOW, u32::MAX).gives_run(
            "1 << 62 | (2^31 - 1) << 31; 2^31 sequences",
            (1 << 62) | 0x7FFF_FFFF << 31,
            1,
            1 << 31,
        );
        script.flake("a", NOW, 1).gives_error("there is no tick 2", &json!("exhausted"));
    });
}
