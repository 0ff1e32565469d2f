//! `layouts.json`: fields to ids and back, and the ids of a span of time.

use serde_json::{Value, json};
use unalike_core::{ID_MAX, Layout, PRESETS};

use crate::json::{int, layout_value};
use crate::script::{File, Script, Seen};
use crate::sequences::BEYOND_DOUBLE;

impl Script {
    fn unpack(&mut self, id: u64, layout: &Value) -> Seen<'_> {
        self.call("codec.unpack", "", json!({ "id": int(id), "layout": layout }))
    }

    fn pack(&mut self, parts: Value, layout: &Value) -> Seen<'_> {
        self.call("codec.pack", "", json!({ "parts": parts, "layout": layout }))
    }

    fn id_range(&mut self, layout: &Value, from: u64, until: u64) -> Seen<'_> {
        self.call("codec.id-range", "", json!({ "layout": layout, "from": int(from), "until": int(until) }))
    }
}

fn parts(ticks: u64, worker: u32, sequence: u32) -> Value {
    json!({ "ticks": int(ticks), "worker": worker, "sequence": sequence })
}

fn invalid(argument: &str) -> Value {
    json!({ "invalid-argument": argument })
}

fn fields(timestamp: u8, datacenter: u8, worker: u8, sequence: u8, epoch_ms: u64, tick_ms: u32) -> Value {
    json!({
        "timestamp-bits": timestamp,
        "datacenter-bits": datacenter,
        "worker-bits": worker,
        "sequence-bits": sequence,
        "order": "worker-first",
        "epoch-ms": int(epoch_ms),
        "tick-ms": tick_ms,
    })
}

pub(crate) fn file() -> File {
    let mut file = File::new("formats");
    let preset = |preset: &unalike_core::Preset| json!({ "name": preset.name, "layout": layout_value(&preset.layout) });
    file.list("presets", PRESETS.iter().map(preset).collect());
    known(&mut file);
    presets(&mut file);
    limits(&mut file);
    spans(&mut file);
    file
}

/// Ids that others published, with their fields.
fn known(file: &mut File) {
    for (source, id, layout, ticks, worker, sequence) in [
        (
            "Discord's API reference, Snowflakes: 2016-04-30 11:18:25.796 UTC, worker 1, process 0, increment 7",
            175_928_847_299_117_063,
            Layout::DISCORD,
            1_462_015_105_796 - 1_420_070_400_000,
            1 << 5,
            7,
        ),
        (
            "Wikipedia, Snowflake ID: a post of June 2022, 1656432460105 ms since 1970, machine 378",
            1_541_815_603_606_036_480,
            Layout::TWITTER,
            367_597_485_448,
            378,
            0,
        ),
        (
            "the same, with Leaf's one field of 10 bits",
            1_541_815_603_606_036_480,
            Layout::LEAF,
            1_656_432_460_105 - 1_288_834_974_657,
            378,
            0,
        ),
        (
            "Instagram's article of 2012: 1387263000 << 23 | (31341 % 2000) << 10 | 5001 % 1024",
            11_637_205_501_278_089,
            Layout::INSTAGRAM,
            1_387_263_000,
            1_341,
            905,
        ),
        (
            "uid-generator's README has it in 29/21/13, and read as 28/22/13 it is this",
            180_363_646_902_239_241,
            Layout::BAIDU,
            5_249_273,
            4,
            9,
        ),
        (
            "(1760000000000 - 1735689600000) / 10 << 24 | 255 << 16 | 7",
            40_786_083_201_351_687,
            Layout::SONYFLAKE,
            2_431_040_000,
            7,
            255,
        ),
        ("2^41 - 1 << 12 | 7 << 9 | 511 = 2^53 - 1", 9_007_199_254_740_991, Layout::COSID_53, (1 << 41) - 1, 7, 511),
        ("1700000000000 << 16 | 3", 111_411_200_000_000_003, Layout::MASTODON, 1_700_000_000_000, 0, 3),
        ("1 << 12", 4_096, Layout::TWITTER, 0, 1, 0),
    ] {
        file.vector(format!("{id} is {ticks}, {worker}, {sequence}: {source}"), |script| {
            let layout = layout_value(&layout);
            script.unpack(id, &layout).gives(source, &json!({ "ok": parts(ticks, worker, sequence) }));
            script.pack(parts(ticks, worker, sequence), &layout).gives(source, &json!({ "ok": int(id) }));
        });
    }
}

fn presets(file: &mut File) {
    for preset in PRESETS {
        file.vector(format!("the preset {}", preset.name), |script| {
            let layout = preset.layout;
            let value = layout_value(&layout);
            let most = parts(layout.max_tick(), layout.worker_max(), layout.sequence_max());
            script.pack(most.clone(), &value).gives("all bits", &json!({ "ok": int(layout.id_max()) }));
            script.unpack(layout.id_max(), &value).gives("all bits", &json!({ "ok": most }));
            script.pack(parts(1, 0, 0), &value);
            script.pack(parts(12_345_678, layout.worker_max().min(5), layout.sequence_max().min(3)), &value);
            script.unpack(0, &value).gives_error("0 is no id", &invalid("id"));
            script.unpack(layout.id_max() + 1, &value).gives_error("beyond its bits", &invalid("id"));
            for beyond in [
                parts(layout.max_tick() + 1, 0, 1),
                parts(1, layout.worker_max() + 1, 0),
                parts(1, 0, layout.sequence_max() + 1),
            ] {
                script.pack(beyond, &value).gives_error("beyond its field", &invalid("id"));
            }
            let from = layout.epoch_ms() + 1_000_000_000;
            script.id_range(&value, from, from + 86_400_000);
            script.id_range(&value, 0, u64::MAX).gives("all", &json!({ "ok": ["1", int(layout.id_max())] }));
        });
    }
}

fn limits(file: &mut File) {
    file.vector("fields that do not fit", |script| {
        let twitter = layout_value(&Layout::TWITTER);
        for parts in [
            parts(0, 0, 0),
            parts(u64::MAX, 0, 0),
            parts(1, u32::MAX, 0),
            parts(1, 0, u32::MAX),
            parts(BEYOND_DOUBLE, 0, 1),
        ] {
            script.pack(parts, &twitter).gives_error("wit/types.wit: argument.id", &invalid("id"));
        }
        for id in [0, ID_MAX + 1, u64::MAX] {
            script.unpack(id, &twitter).gives_error("wit/types.wit: argument.id", &invalid("id"));
        }
        script.unpack(ID_MAX, &twitter).gives("all bits", &json!({ "ok": parts((1 << 41) - 1, 1_023, 4_095) }));
        script
            .unpack(BEYOND_DOUBLE, &twitter)
            .gives("2^53 + 1 = 2^31 << 22 | 1", &json!({ "ok": parts(1 << 31, 0, 1) }));
    });
    let layouts = [
        ("64 bits", false, fields(42, 5, 5, 12, 0, 1)),
        ("no timestamp", false, fields(0, 5, 5, 12, 0, 1)),
        ("32 bits of worker", false, fields(20, 16, 16, 0, 0, 1)),
        ("32 bits of sequence", false, fields(20, 0, 0, 32, 0, 1)),
        ("no tick", false, fields(41, 5, 5, 12, 0, 0)),
        ("widths whose sum is above 8 bits", false, fields(255, 255, 255, 255, 0, 1)),
        ("an epoch too late", false, fields(41, 5, 5, 12, u64::MAX - (1 << 41) + 1, 1)),
        ("ticks too long", false, fields(63, 0, 0, 0, 0, 3)),
        ("the latest epoch", true, fields(41, 5, 5, 12, u64::MAX - (1 << 41), 1)),
        ("63 bits of time", true, fields(63, 0, 0, 0, 0, 1)),
        ("one bit of time", true, fields(1, 0, 31, 31, 0, u32::MAX)),
        ("the timestamp alone", true, fields(1, 0, 0, 0, 0, 1)),
        ("31 bits of datacenter", true, fields(1, 31, 0, 31, 0, 1)),
    ];
    file.vector("layouts", |script| {
        for (what, is_layout, layout) in layouts {
            let source = format!("wit/types.wit: layout: {what}");
            let expected =
                if is_layout { json!({ "ok": parts(1, 0, 0) }) } else { json!({ "err": invalid("layout") }) };
            let lower = |name: &str| layout[name].as_u64().unwrap();
            let below =
                if is_layout { lower("datacenter-bits") + lower("worker-bits") + lower("sequence-bits") } else { 0 };
            script.unpack(1 << below, &layout).gives(&source, &expected);
            if !is_layout {
                script.pack(parts(1, 0, 0), &layout).gives_error(&source, &invalid("layout"));
                script.id_range(&layout, 0, 1).gives_error(&source, &invalid("layout"));
            }
        }
    });
    file.vector("numbers that do not fit, by the host", |script| {
        let layout = layout_value(&Layout::TWITTER);
        let wrapping = ["-1", "18446744073709551617", "1.5", "NaN"];
        script.refuses("codec.unpack", "", &json!({ "id": "1", "layout": layout }), ("", "id"), &wrapping);
        let args = json!({ "parts": parts(1, 1, 1), "layout": layout });
        script.refuses("codec.pack", "", &args, ("/parts", "ticks"), &wrapping);
        script.refuses("codec.pack", "", &args, ("/parts", "worker"), &["-1", "4294967297", "1.5"]);
        script.refuses("codec.pack", "", &args, ("/parts", "sequence"), &["-1", "4294967297", "1.5"]);
        script.refuses("codec.pack", "", &args, ("/layout", "worker-bits"), &["-1", "261"]);
        let args = json!({ "layout": layout, "from": "0", "until": int(u64::MAX) });
        script.refuses("codec.id-range", "", &args, ("", "from"), &wrapping);
        script.refuses("codec.id-range", "", &args, ("", "until"), &wrapping);
    });
    file.vector("the sequence above the worker", |script| {
        let mut layout = fields(41, 5, 5, 12, 1_288_834_974_657, 1);
        layout["order"] = json!("sequence-first");
        script.pack(parts(7, 1_023, 1), &layout).gives("7 << 22 | 1 << 10 | 1023", &json!({ "ok": "29362175" }));
        script.unpack(29_362_175, &layout).gives("7 << 22 | 1 << 10 | 1023", &json!({ "ok": parts(7, 1_023, 1) }));
    });
}

fn spans(file: &mut File) {
    let epoch = Layout::TWITTER.epoch_ms();
    let twitter = layout_value(&Layout::TWITTER);
    let of = |script: &mut Script, from, until, first: u64, last: u64, source: &str| {
        script.id_range(&twitter, from, until).gives(source, &json!({ "ok": [int(first), int(last)] }));
    };
    file.vector("the ids of a span of time", |script| {
        of(script, epoch, epoch + 1, 1, (1 << 22) - 1, "tick 0, without the id 0");
        of(script, epoch + 1, epoch + 2, 1 << 22, (2 << 22) - 1, "tick 1");
        of(script, epoch + 1, epoch + 3, 1 << 22, (3 << 22) - 1, "ticks 1 and 2");
        of(script, 0, epoch + 2, 1, (2 << 22) - 1, "what is before the epoch is left out");
        of(script, 1_656_432_460_105, 1_656_432_460_106, 367_597_485_448 << 22, (367_597_485_449 << 22) - 1, "1 ms");
        of(script, 0, u64::MAX, 1, ID_MAX, "all of it");
        let last = epoch + (1 << 41) - 1;
        of(script, last, u64::MAX, ID_MAX - (1 << 22) + 1, ID_MAX, "what is after the last tick is left out");
        for (from, until) in
            [(epoch, epoch), (epoch + 1, epoch), (0, 0), (0, epoch), (last + 1, u64::MAX), (u64::MAX, u64::MAX)]
        {
            script.id_range(&twitter, from, until).gives_error("wit/types.wit: argument.span", &invalid("span"));
        }
    });
    file.vector("the ids of a span of time, with ticks of 10 ms", |script| {
        let sonyflake = layout_value(&Layout::SONYFLAKE);
        let epoch = Layout::SONYFLAKE.epoch_ms();
        for (from, until, first, last, source) in [
            (10, 20, 1, 1, "tick 1"),
            (19, 21, 1, 2, "whose tick overlaps it"),
            (9, 11, 0, 1, "whose tick overlaps it"),
            (19, 20, 1, 1, "its end is not included"),
        ] {
            let first = if first == 0 { 1 } else { first << 24 };
            let ids = json!([int(first), int(((last + 1) << 24) - 1)]);
            script.id_range(&sonyflake, epoch + from, epoch + until).gives(source, &json!({ "ok": ids }));
        }
    });
    file.vector("tick 0 of a timestamp alone has no id", |script| {
        let layout = fields(4, 0, 0, 0, 1_000, 1);
        script.id_range(&layout, 1_000, 1_001).gives_error("0 is no id", &invalid("span"));
        script.id_range(&layout, 1_000, 1_002).gives("1 alone", &json!({ "ok": ["1", "1"] }));
    });
}
