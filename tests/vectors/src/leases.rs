//! `leases.json`: what the rules of leases answer, function by function, for stores in other languages.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use unalike_core::{FieldOrder, GrantId, Layout, LayoutFields, Lease, PRESETS, Rfc3339};
use unalike_storage::{
    Candidates, Choice, ClockSteps, Clocks, Expiry, LeaseAcquire, LeaseExtend, LeaseLimits, NamespaceBinding,
    StoreError, UsedWorker, choose_worker, nth_never_used,
};

use crate::drawn::Draw;
use crate::json::{int, layout_value, line};

const NOW: u64 = 1_700_000_000_000;
const DAY: u64 = 86_400_000;

/// The whole file.
pub(crate) fn text() -> String {
    let mut file = File { layouts: layouts(), cases: Vec::new() };
    let mut draw = Draw::new(0x6c65_6173_6573);
    file.instants(&mut draw);
    file.limits();
    file.bindings();
    file.figures();
    file.grants(&mut draw);
    file.choices(&mut draw);
    file.steps(&mut draw);
    file.one_step(&mut draw);
    file.requests();
    file.text()
}

struct File {
    layouts: Vec<(String, Layout)>,
    cases: Vec<Value>,
}

/// The presets, and some with long ticks, few workers, and ends near those of 64 bits.
fn layouts() -> Vec<(String, Layout)> {
    let of = |timestamp_bits, datacenter_bits, worker_bits, sequence_bits, epoch_ms, tick_ms| {
        let order = if sequence_bits == 7 { FieldOrder::SequenceFirst } else { FieldOrder::WorkerFirst };
        Layout::new(LayoutFields {
            timestamp_bits,
            datacenter_bits,
            worker_bits,
            sequence_bits,
            order,
            epoch_ms,
            tick_ms,
        })
        .unwrap()
    };
    let mut layouts: Vec<_> = PRESETS.iter().map(|preset| (preset.name.to_owned(), preset.layout)).collect();
    for (name, layout) in [
        ("four-workers", of(41, 0, 2, 12, 1_003, 1)),
        ("ticks-of-7", of(41, 0, 2, 12, 1_003, 7)),
        ("ticks-of-1000", of(41, 1, 1, 7, 1_003, 1_000)),
        ("one-worker", of(41, 0, 0, 22, NOW - 5, 10)),
        ("most-workers", of(32, 15, 16, 0, 0, 1)),
        ("latest", of(41, 5, 5, 12, u64::MAX - (1 << 41), 1)),
        ("longest-ticks", of(31, 0, 4, 7, 0, u32::MAX)),
        ("all-time", of(63, 0, 0, 0, 0, 1)),
    ] {
        layouts.push((name.to_owned(), layout));
    }
    layouts
}

impl File {
    fn case(&mut self, call: &str, args: Value, returns: Value) {
        self.cases.push(json!({ "call": call, "args": args, "returns": returns }));
    }

    fn layout(&self, name: &str) -> Layout {
        self.layouts.iter().find(|(known, _)| known == name).unwrap().1
    }

    fn text(&self) -> String {
        let lines = |values: Vec<Value>| values.iter().map(line).collect::<Vec<_>>().join(",\n");
        let layout = |(name, layout): &(String, Layout)| {
            let text = layout.to_string();
            json!({ "name": name, "layout": layout_value(layout), "text": text })
        };
        let layouts = lines(self.layouts.iter().map(layout).collect());
        format!(
            "{{\n\"rules\":\"leases\",\n\"layouts\":[\n{layouts}\n],\n\"cases\":[\n{}\n]\n}}\n",
            lines(self.cases.clone())
        )
    }

    fn instants(&mut self, draw: &mut Draw) {
        let mut instants = vec![0, 1, 999, 951_782_400_000, NOW, 4_107_542_400_000, 253_402_300_799_999];
        instants.extend([253_402_300_800_000, (1 << 53) + 1, u64::MAX]);
        instants.extend((0..20).map(|_| draw.below(253_402_300_799_999)));
        for at in instants {
            self.case("rfc3339", json!({ "at": int(at) }), json!(Rfc3339(at).to_string()));
        }
        for (name, layout) in self.layouts.clone() {
            let (epoch, tick, end) = (layout.epoch_ms(), u64::from(layout.tick_ms()), layout.ends_ms());
            let mut instants = vec![0, epoch, epoch + 1, epoch + tick - 1, epoch + tick, end, u64::MAX - 1, u64::MAX];
            instants.extend([epoch.saturating_sub(1), NOW, (1 << 53) + 1, end.saturating_add(1)]);
            instants.extend((0..2).map(|_| draw.next()));
            for at in instants {
                let args = json!({ "layout": name, "at": int(at) });
                self.case("round-up", args, int(layout.round_up_ms(at)));
            }
        }
    }

    fn limits(&mut self) {
        for max_horizon_ms in [0, 1, 600_000, LeaseLimits::HORIZON_MAX_MS, LeaseLimits::HORIZON_MAX_MS + 1, u64::MAX] {
            let limits = LeaseLimits { max_horizon_ms, max_skew_ms: 0 };
            let args = json!({ "max-horizon": int(max_horizon_ms), "max-skew": "0" });
            self.case("limits", args, result(limits.validate(), |()| Value::Null));
        }
        for (holder_ms, store_ms, max_skew_ms) in [
            (NOW, NOW, 0),
            (NOW + 1, NOW, 0),
            (NOW, NOW + 1, 0),
            (NOW + 10_000, NOW, 10_000),
            (NOW + 10_001, NOW, 10_000),
            (NOW - 10_000, NOW, 10_000),
            (NOW - 10_001, NOW, 10_000),
            (0, u64::MAX, u64::MAX),
            (0, u64::MAX, u64::MAX - 1),
            ((1 << 53) + 1, 1 << 53, 0),
        ] {
            let limits = LeaseLimits { max_skew_ms, ..LeaseLimits::default() };
            let args = json!({ "max-skew": int(max_skew_ms), "holder": int(holder_ms), "store": int(store_ms) });
            let checked = limits.check_clocks(Clocks { holder_ms, store_ms });
            self.case("check-clocks", args, result(checked, |()| Value::Null));
        }
    }

    fn bindings(&mut self) {
        for (name, layout) in self.layouts.clone() {
            let tick = u64::from(layout.tick_ms());
            for max_horizon_ms in [tick - 1, tick, 600_000, LeaseLimits::HORIZON_MAX_MS] {
                let limits = LeaseLimits { max_horizon_ms, ..LeaseLimits::default() };
                let args = json!({ "layout": name, "max-horizon": int(max_horizon_ms) });
                let figures = |binding: NamespaceBinding| {
                    binding.figures().iter().map(|(name, figure)| ((*name).to_owned(), int(*figure))).collect()
                };
                let bound = NamespaceBinding::new(layout, limits);
                self.case("first-use", args, result(bound, figures));
            }
        }
        for (bound, offered) in [
            ("twitter", "twitter"),
            ("twitter", "four-workers"),
            ("four-workers", "ticks-of-7"),
            ("ticks-of-1000", "ticks-of-7"),
            ("latest", "twitter"),
        ] {
            let binding = NamespaceBinding { layout: self.layout(bound), max_horizon_ms: 1, floor_ms: 0 };
            for namespace in ["default", "a \"b\" \\ c", "\u{4e2d}\u{6587}"] {
                let args = json!({ "bound": bound, "offered": offered, "namespace": namespace });
                let checked = binding.check_layout(namespace, self.layout(offered));
                self.case("check-layout", args, result(checked, |()| Value::Null));
            }
        }
        for (floor_ms, store_ms) in [(0, 0), (1, 0), (NOW, NOW), (NOW + 1, NOW), (NOW, NOW + 1), (u64::MAX, NOW)] {
            let binding = NamespaceBinding { layout: Layout::TWITTER, max_horizon_ms: 1, floor_ms };
            let args = json!({ "floor": int(floor_ms), "store": int(store_ms), "namespace": "default" });
            let checked = binding.check_quarantine("default", store_ms);
            self.case("check-quarantine", args, result(checked, |()| Value::Null));
        }
    }

    /// Bindings as a store keeps them, whole and damaged.
    fn figures(&mut self) {
        let read = |file: &mut Self, figures: &[(&'static str, u64)]| {
            let kept: Value = figures.iter().map(|(name, figure)| ((*name).to_owned(), int(*figure))).collect();
            let figure =
                |name: &'static str| figures.iter().find(|(known, _)| *known == name).map(|kept| kept.1).ok_or(());
            let read = NamespaceBinding::read(figure).unwrap();
            let shown = |binding: NamespaceBinding| {
                json!({
                    "text": binding.layout.to_string(),
                    "max-horizon": int(binding.max_horizon_ms),
                    "floor": int(binding.floor_ms),
                })
            };
            let returns = match read {
                Ok(binding) => json!({ "ok": shown(binding) }),
                Err(why) => json!({ "err": { "message": why } }),
            };
            file.case("read-figures", json!({ "figures": kept }), returns);
        };
        for (_, layout) in self.layouts.clone() {
            let binding = NamespaceBinding { layout, max_horizon_ms: 5_000, floor_ms: (1 << 53) + 1 };
            read(self, &binding.figures());
        }
        let whole = NamespaceBinding { layout: Layout::TWITTER, max_horizon_ms: 5_000, floor_ms: 0 }.figures();
        for damage in [
            ("version", 0),
            ("version", 2),
            ("version", u64::MAX),
            ("tick_ms", 0),
            ("tick_ms", 1 << 32),
            ("tick_ms", (1 << 32) + 1),
            ("timestamp_bits", 0),
            ("timestamp_bits", 42),
            ("timestamp_bits", 256 + 41),
            ("datacenter_bits", 27),
            ("worker_bits", 255),
            ("worker_bits", 256),
            ("sequence_bits", 32),
            ("sequence_bits", u64::MAX),
            ("sequence_first", 2),
            ("sequence_first", u64::MAX),
            ("epoch_ms", u64::MAX),
            ("epoch_ms", u64::MAX - (1 << 41)),
            ("epoch_ms", u64::MAX - (1 << 41) + 1),
            ("max_horizon_ms", 0),
            ("max_horizon_ms", u64::MAX),
            ("floor_ms", u64::MAX),
        ] {
            let damaged: Vec<_> = whole.iter().map(|&kept| if kept.0 == damage.0 { damage } else { kept }).collect();
            read(self, &damaged);
        }
        let narrow: Vec<_> = whole
            .iter()
            .map(|&kept| match kept.0 {
                "timestamp_bits" => (kept.0, 20),
                "datacenter_bits" | "worker_bits" => (kept.0, 16),
                _ => kept,
            })
            .collect();
        read(self, &narrow);
    }

    fn grant(&mut self, name: &str, bound: (u64, u64), recorded_end_ms: u64, clocks: Clocks, horizon_ms: u64) {
        let (max_horizon_ms, floor_ms) = bound;
        let binding = NamespaceBinding { layout: self.layout(name), max_horizon_ms, floor_ms };
        let args = json!({
            "layout": name,
            "max-horizon": int(max_horizon_ms),
            "floor": int(floor_ms),
            "recorded-end": int(recorded_end_ms),
            "holder": int(clocks.holder_ms),
            "store": int(clocks.store_ms),
            "horizon": int(horizon_ms),
        });
        let interval = binding.grant(recorded_end_ms, clocks, horizon_ms);
        self.case("grant", args, result(interval, |interval| json!([int(interval.start), int(interval.end)])));
    }

    fn grants(&mut self, draw: &mut Draw) {
        let at = |store_ms| Clocks { holder_ms: store_ms, store_ms };
        for (name, bound, recorded_end_ms, clocks, horizon_ms) in [
            ("twitter", (600_000, 0), NOW + 5, at(NOW), 60_000),
            ("twitter", (600_000, 0), 0, at(NOW), u64::MAX),
            ("twitter", (600_000, 0), NOW + 600_000, at(NOW), u64::MAX),
            ("twitter", (600_000, 0), NOW + 599_999, at(NOW), u64::MAX),
            ("twitter", (600_000, NOW + 77), 0, at(NOW), 60_000),
            ("twitter", (600_000, u64::MAX), 0, at(NOW), 60_000),
            ("twitter", (600_000, 0), u64::MAX, at(NOW), 60_000),
            ("twitter", (600_000, 0), 0, at(u64::MAX), 60_000),
            ("twitter", (600_000, 0), 0, Clocks { holder_ms: NOW, store_ms: u64::MAX }, 60_000),
            ("twitter", (600_000, 0), 0, at(0), 60_000),
            ("twitter", (600_000, 0), 0, at(Layout::TWITTER.epoch_ms() - 1), 1),
            ("twitter", (600_000, 0), 0, at(Layout::TWITTER.epoch_ms() - 1), 2),
            ("four-workers", (5_000, 0), 0, Clocks { holder_ms: 9_000, store_ms: 9_400 }, 100),
            ("four-workers", (5_000, 0), 9_300, Clocks { holder_ms: 9_000, store_ms: 9_400 }, 100),
            ("four-workers", (5_000, 0), 9_600, Clocks { holder_ms: 9_000, store_ms: 9_400 }, 100),
            ("four-workers", (5_000, 0), 0, Clocks { holder_ms: 9_800, store_ms: 9_400 }, 100),
            ("four-workers", (5_000, 9_500), 0, Clocks { holder_ms: 9_000, store_ms: 9_500 }, 100),
            ("ticks-of-7", (5_000, 0), 0, at(9_000), 7),
            ("ticks-of-7", (5_000, 0), 9_001, at(9_000), 14),
            ("ticks-of-1000", (5_000, 0), 0, at(9_002), 1_000),
            ("ticks-of-1000", (5_000, 0), 0, at(9_003), 1_000),
            ("longest-ticks", (1 << 40, 0), 1, at(NOW), 1 << 39),
            ("latest", (600_000, 0), 0, at(u64::MAX), u64::MAX),
            ("all-time", (600_000, 0), u64::MAX - 1, at(u64::MAX - 2), 600_000),
        ] {
            self.grant(name, bound, recorded_end_ms, clocks, horizon_ms);
        }
        for _ in 0..84 {
            let name =
                draw.pick(&["four-workers", "ticks-of-7", "ticks-of-1000", "sonyflake", "twitter", "one-worker"]);
            let around = |draw: &mut Draw, far: u64| NOW - far + draw.below(2 * far + 1);
            let store_ms = around(draw, 3);
            let holder_ms = around(draw, 12_000);
            let recorded_end_ms = if draw.below(3) == 0 { 0 } else { around(draw, 4_000) };
            let floor_ms = if draw.below(3) == 0 { around(draw, 4_000) } else { 0 };
            let horizon_ms = 1 + draw.below(9_000);
            let bound = (draw.pick(&[1_000, 5_000, 600_000]), floor_ms);
            self.grant(name, bound, recorded_end_ms, Clocks { holder_ms, store_ms }, horizon_ms);
        }
        for at in 0..20 {
            let name = draw.pick(&["four-workers", "ticks-of-7", "ticks-of-1000", "sonyflake"]);
            let layout = self.layout(name);
            let max_horizon_ms = draw.pick(&[1_000, 5_000]);
            let binding = NamespaceBinding { layout, max_horizon_ms, floor_ms: 0 };
            let valid_until_ms = NOW - 6_000 + draw.below(12_000);
            let horizon_ms = if at == 0 { u64::MAX } else { draw.below(9_000) };
            let store_ms = if at == 1 { u64::MAX } else { NOW };
            let extended = binding.extended_end_ms(valid_until_ms, store_ms, horizon_ms);
            let args = json!({
                "layout": name,
                "max-horizon": int(max_horizon_ms),
                "valid-until": int(valid_until_ms),
                "store": int(store_ms),
                "horizon": int(horizon_ms),
            });
            self.case("extended-end", args, int(extended));

            let not_before_ms = layout.round_up_ms(NOW - draw.below(5_000));
            let valid_until_ms = layout.round_up_ms(not_before_ms + 1 + draw.below(5_000));
            let lease = Lease { worker: 0, grant_id: GrantId(1), not_before_ms, valid_until_ms };
            for end_ms in [0, not_before_ms + 1, valid_until_ms - 1, valid_until_ms, NOW - 2_500 + draw.below(5_000)] {
                let args = json!({
                    "layout": name,
                    "not-before": int(not_before_ms),
                    "valid-until": int(valid_until_ms),
                    "end": int(end_ms),
                });
                let released = binding.released_end_ms(&lease, end_ms);
                self.case("released-end", args, released.map_or(Value::Null, int));
            }
        }
    }

    fn choices(&mut self, draw: &mut Draw) {
        for at in 0..56 {
            let workers = draw.pick(&[1, 2, 4, 1_024, 1 << 31]);
            let used = draw.below(workers.min(5) + 1);
            let candidate = |draw: &mut Draw| {
                let worker = draw.small(5);
                (draw.below(3) > 0).then(|| UsedWorker { worker, end_ms: NOW - 3 + draw.below(6) })
            };
            let candidates = Candidates {
                workers,
                used,
                preferred: candidate(draw),
                previous: candidate(draw),
                oldest: if used == 0 { None } else { candidate(draw) },
            };
            let random = if at < 4 { u64::MAX } else { draw.next() };
            let args = json!({
                "workers": int(workers),
                "used": int(used),
                "preferred": candidates.preferred.map(used_worker),
                "previous": candidates.previous.map(used_worker),
                "oldest": candidates.oldest.map(used_worker),
                "clock": int(NOW),
                "random": int(random),
            });
            let returns = match candidates.choose(NOW, random) {
                Choice::Worker(worker) => json!({ "worker": used_worker(worker) }),
                Choice::NeverUsed { nth } => json!({ "never-used": int(nth) }),
                Choice::Exhausted { free_at_ms } => json!({ "exhausted": int(free_at_ms) }),
            };
            self.case("choose", args, returns);
        }
        for (nth, used) in [
            (0, vec![]),
            (0, vec![0, 1, 3]),
            (1, vec![0, 1, 3]),
            (2, vec![0, 2, 3, 7]),
            (5, vec![]),
            (u64::from(u32::MAX), vec![]),
            (u64::from(u32::MAX), vec![0]),
            (u64::from(u32::MAX) - 1, vec![0]),
            (u64::MAX - 1, vec![0]),
            (0, vec![1, 2, 3]),
            (3, vec![0, 1, 2, u32::MAX]),
        ] {
            let args = json!({ "nth": int(nth), "used": used });
            self.case("nth-never-used", args, nth_never_used(nth, used).map_or(Value::Null, |worker| json!(worker)));
        }
        for _ in 0..60 {
            let expiry = Expiry::from(NOW);
            self.choose_worker(draw, &expiry, &json!({ "readings": [], "now-ns": "0", "clock": int(NOW) }));
        }
    }

    /// A choice among all workers that were ever granted, drawn.
    fn choose_worker(&mut self, draw: &mut Draw, expiry: &Expiry, clock: &Value) {
        let few = ["four-workers", "ticks-of-7", "ticks-of-1000", "one-worker"];
        let name =
            if expiry.is_plain() { draw.pick(&["twitter", few[0], few[3], "most-workers"]) } else { draw.pick(&few) };
        let layout = self.layout(name);
        let holders = ["", "a", "b"];
        let mut used = Vec::new();
        for worker in 0..u32::try_from(layout.workers().min(6)).unwrap() {
            if draw.below(16) > 0 {
                let end_ms = draw.pick(&[NOW, NOW, expiry.clock_ms()]) - 300_000 + draw.below(600_000);
                used.push((UsedWorker { worker, end_ms }, draw.pick(&holders)));
            }
        }
        let acquire = LeaseAcquire {
            namespace: "default".to_owned(),
            layout,
            holder: draw.pick(&holders).to_owned(),
            preferred_worker: (draw.below(3) == 0).then(|| draw.small(layout.worker_max().min(5) + 1)),
            now_ms: NOW,
            horizon_ms: 60_000,
        };
        let random = draw.next();
        let listed: Vec<Value> =
            used.iter().map(|(used, holder)| json!([used.worker, int(used.end_ms), holder])).collect();
        let args = json!({
            "layout": name,
            "holder": acquire.holder,
            "preferred": acquire.preferred_worker,
            "clock": clock,
            "random": int(random),
            "used": listed,
        });
        let chosen = choose_worker(&acquire, expiry.clone(), random, used);
        self.case("choose-worker", args, result(chosen, used_worker));
    }

    /// Clocks that are set while they are read, and the leases that run on.
    fn steps(&mut self, draw: &mut Draw) {
        let began = Instant::now();
        let at = |nanos: u64| began + Duration::from_nanos(nanos);
        for scene in 0..40 {
            let steps = ClockSteps::default();
            let mut readings = Vec::new();
            // So many readings that the oldest steps are forgotten; else a few.
            let count = if scene == 0 { 80 } else { 2 + draw.below(6) };
            let (mut time_ns, mut clock_ms) = (draw.below(2_000_000), NOW);
            for _ in 0..count {
                let passed_ns = draw.below(40_000_000_000);
                let took_ns = if scene == 0 { 0 } else { draw.pick(&[0, 0, 999_999, 3_000_000_000]) };
                let set_ms = if scene == 0 { 2_000 } else { draw.pick(&[0, 0, 999, 1_000, 1_001, 90_000, DAY]) };
                let back_ms = if scene == 0 { 0 } else { draw.pick(&[0, 0, 0, 500, DAY]) };
                // Some answers come in the other order.
                let asked_ns = if scene > 0 && draw.below(8) == 0 { time_ns / 2 } else { time_ns + passed_ns };
                let answered_ns = asked_ns.max(time_ns + passed_ns) + took_ns;
                clock_ms = clock_ms + (answered_ns - time_ns) / 1_000_000 + set_ms - back_ms;
                time_ns = answered_ns;
                steps.note(at(asked_ns), at(answered_ns), clock_ms);
                readings.push(json!([int(asked_ns), int(answered_ns), int(clock_ms)]));
            }
            let later_ns = draw.pick(&[0, 1, 30_000_000_000, 367 * DAY * 1_000_000]);
            let now_ns = if scene == 0 { time_ns } else { time_ns + later_ns };
            let clock_ms = clock_ms + (now_ns - time_ns) / 1_000_000;
            let max_horizon_ms = if scene == 0 { DAY } else { draw.pick(&[1, 60_000, 600_000, DAY, u64::MAX]) };
            let expiry = steps.expiry_at(at(now_ns), clock_ms, max_horizon_ms);
            let mut ends = vec![0, NOW, clock_ms - 1, clock_ms, clock_ms + 1, u64::MAX];
            ends.extend((0..8).map(|_| NOW + draw.below(700_000)));
            ends.extend((0..4).map(|_| clock_ms - draw.below(700_000)));
            let clock = json!({
                "readings": readings,
                "now-ns": int(now_ns),
                "clock": int(clock_ms),
                "max-horizon": int(max_horizon_ms),
            });
            self.expiry(&expiry, &clock, &ends);
            if scene % 2 == 1 {
                self.choose_worker(draw, &expiry, &clock);
            }
        }
    }

    /// A clock that shows another time from one reading to the next, ten milliseconds later.
    fn one_step(&mut self, draw: &mut Draw) {
        let began = Instant::now();
        for (first, second) in [(NOW, NOW + 10 + DAY), (u64::MAX - DAY, u64::MAX - 5), (u64::MAX - 500, u64::MAX)] {
            let (steps, later) = (ClockSteps::default(), began + Duration::from_millis(10));
            steps.note(began, began, first);
            steps.note(later, later, second);
            let expiry = steps.expiry_at(later, second, 600_000);
            let clock = json!({
                "readings": [["0", "0", int(first)], ["10000000", "10000000", int(second)]],
                "now-ns": "10000000",
                "clock": int(second),
                "max-horizon": "600000",
            });
            let (was, most) = (first.saturating_add(10), first.saturating_add(600_010));
            self.expiry(&expiry, &clock, &[was - 1, was, was + 1, most - 1, most, most.saturating_add(1), second]);
            for _ in 0..if first == NOW { 40 } else { 0 } {
                self.choose_worker(draw, &expiry, &clock);
            }
        }
    }

    fn expiry(&mut self, expiry: &Expiry, clock: &Value, ends: &[u64]) {
        let ends_at: Vec<Value> = ends.iter().map(|&end| int(expiry.ends_at_ms(end))).collect();
        let ends: Vec<Value> = ends.iter().copied().map(int).collect();
        let returns = json!({ "plain": expiry.is_plain(), "ends-at": ends_at });
        self.case("expiry", json!({ "clock": clock, "ends": ends }), returns);
    }

    fn requests(&mut self) {
        let long = "x".repeat(128);
        let wide = "\u{4e2d}".repeat(43);
        let names = ["default", "\u{4e2d}\u{6587} \u{1f600}", " a ", "a\nb", "a\tb", "", &long, &wide];
        let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        let odd = ["a\u{7f}", "a\u{85}b", "a\u{1f}b", "\u{0}", &format!("{long}y"), &format!("{wide}x"), "a\u{a0}"];
        let names = names.into_iter().chain(odd.into_iter().map(str::to_owned));
        for name in names {
            for is_holder in [false, true] {
                let (namespace, holder) = if is_holder { ("default", name.as_str()) } else { (name.as_str(), "") };
                self.acquire(namespace, "twitter", holder, None, 60_000);
            }
            self.extend(&name, "twitter", 60_000);
        }
        for (layout, preferred) in [
            ("twitter", 0),
            ("twitter", 1_023),
            ("twitter", 1_024),
            ("twitter", u32::MAX),
            ("one-worker", 0),
            ("one-worker", 1),
            ("most-workers", u32::MAX >> 1),
            ("most-workers", 1 << 31),
        ] {
            self.acquire("default", layout, "a", Some(preferred), 60_000);
        }
        for (layout, horizon_ms) in [
            ("twitter", 0),
            ("twitter", 1),
            ("twitter", u64::MAX),
            ("ticks-of-7", 6),
            ("ticks-of-7", 7),
            ("longest-ticks", u64::from(u32::MAX) - 1),
            ("longest-ticks", u64::from(u32::MAX)),
        ] {
            self.acquire("default", layout, "", None, horizon_ms);
            self.extend("default", layout, horizon_ms);
        }
    }

    fn acquire(&mut self, namespace: &str, layout: &str, holder: &str, preferred_worker: Option<u32>, horizon_ms: u64) {
        let args = json!({
            "namespace": namespace,
            "layout": layout,
            "holder": holder,
            "preferred": preferred_worker,
            "horizon": int(horizon_ms),
        });
        let acquire = LeaseAcquire {
            namespace: namespace.to_owned(),
            layout: self.layout(layout),
            holder: holder.to_owned(),
            preferred_worker,
            now_ms: NOW,
            horizon_ms,
        };
        self.case("validate-acquire", args, result(acquire.validate(), |()| Value::Null));
    }

    fn extend(&mut self, namespace: &str, layout: &str, horizon_ms: u64) {
        let args = json!({ "namespace": namespace, "layout": layout, "horizon": int(horizon_ms) });
        let extend = LeaseExtend {
            namespace: namespace.to_owned(),
            layout: self.layout(layout),
            worker: 0,
            grant_id: GrantId(1),
            now_ms: NOW,
            horizon_ms,
        };
        self.case("validate-extend", args, result(extend.validate(), |()| Value::Null));
    }
}

fn used_worker(used: UsedWorker) -> Value {
    json!([used.worker, int(used.end_ms)])
}

/// A value, or the kind of an error and what it says.
fn result<T>(result: Result<T, StoreError>, ok: impl FnOnce(T) -> Value) -> Value {
    match result {
        Ok(value) => json!({ "ok": ok(value) }),
        Err(error) => {
            let (kind, message) = match &error {
                StoreError::Refused { what, .. } => ("refused", what.clone()),
                StoreError::ClockSkew { .. } => ("clock-skew", error.to_string()),
                StoreError::LayoutMismatch { .. } => ("layout-mismatch", error.to_string()),
                StoreError::Quarantined { .. } => ("quarantined", error.to_string()),
                StoreError::WorkersExhausted { .. } => ("workers-exhausted", error.to_string()),
                other => panic!("the rules have no {other:?}"),
            };
            // Each language escapes what cannot be printed in its own way.
            let is_escaped = ["\\u{", "\\0"].iter().any(|escape| message.contains(escape));
            let message = if is_escaped { Value::Null } else { json!(message) };
            json!({ "err": { "kind": kind, "message": message } })
        }
    }
}
