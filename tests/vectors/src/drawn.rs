//! Scripts that nobody thought of: drawn from a generator of numbers, the same each time.

use serde_json::json;

use crate::json::int;
use crate::script::{Script, segment};
use crate::sequences::NOW;

/// Numbers that look random: xorshift64* (Vigna, 2014).
pub(crate) struct Draw(u64);

impl Draw {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// Below this.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 16) % end
    }

    pub(crate) fn small(&mut self, end: u32) -> u32 {
        u32::try_from(self.below(u64::from(end))).unwrap()
    }

    pub(crate) fn pick<T: Copy>(&mut self, values: &[T]) -> T {
        values[usize::try_from(self.below(values.len() as u64)).unwrap()]
    }
}

const FAILURES: [&str; 8] = [
    "unavailable",
    "outcome-unknown",
    "tag-unknown",
    "exhausted",
    "workers-exhausted",
    "lease-lost",
    "clock-skew",
    "refused",
];

/// Requests without an answer, as a store of one tag or of three stripes keeps them.
struct Store {
    next: [u64; 3],
    stride: u64,
    version: u64,
    open: Vec<(String, u64, u64)>,
}

impl Store {
    fn new(draw: &mut Draw) -> Self {
        let base = draw.pick(&[1, 1, 1_000_001, (1 << 53) - 9, (1 << 62) + 7]);
        Self { next: [base, base + 1, base + 2], stride: draw.pick(&[1, 1, 1, 3]), version: 0, open: Vec::new() }
    }

    /// Notes what the last step asked for.
    fn note(&mut self, step: &serde_json::Value) {
        for call in step["imports"].as_array().into_iter().flatten() {
            let Some(ticket) = call["ticket"].as_str() else { continue };
            let number = |name: &str| call["args"][name].as_str().and_then(|text| text.parse().ok()).unwrap_or(0);
            self.open.push((ticket.to_owned(), number("count"), number("at-least")));
        }
    }

    /// Answers one of the open requests.
    fn answer(&mut self, script: &mut Script, draw: &mut Draw) {
        if self.open.is_empty() {
            return;
        }
        let at = usize::try_from(draw.below(self.open.len() as u64)).unwrap();
        let (ticket, count, at_least) = self.open.remove(at);
        if draw.below(6) == 0 {
            script.answer(&ticket, json!({ "err": draw.pick(&FAILURES) }));
            return;
        }
        let stripe = if self.stride == 1 { 0 } else { usize::try_from(draw.below(3)).unwrap() };
        let mut start = self.next[stripe];
        while start < at_least {
            start += self.stride * (at_least - start).div_ceil(self.stride);
        }
        let count = if draw.below(3) == 0 { 1 + draw.below(count) } else { count };
        let end = start + count * self.stride;
        self.next[stripe] = end + self.stride * draw.pick(&[0, 0, 5]);
        self.version += 1 + draw.below(3);
        // Now and then it forgets.
        let back = if draw.below(12) == 0 { self.stride * draw.below(30) } else { 0 };
        let (start, end) = (start.saturating_sub(back), end.saturating_sub(back));
        script.answer(&ticket, json!({ "ok": segment(start, end, self.stride, 0, self.version) }));
    }
}

/// A sequence with drawn options, used and answered at drawn times.
pub(crate) fn sequences(script: &mut Script, draw: &mut Draw) {
    let mut store = Store::new(draw);
    let step_min = 1 + draw.below(20);
    let step = step_min + draw.below(50);
    let grow_below = draw.pick(&[0, 100, 5_000]);
    let refill = if draw.below(2) == 0 {
        json!({ "share-consumed": draw.below(101) })
    } else {
        json!({ "remaining": int(draw.below(120)) })
    };
    let options = json!({
        "step": int(step),
        "step-min": int(step_min),
        "step-max": int(step + draw.below(1_000)),
        "grow-below-ms": int(grow_below),
        "shrink-above-ms": int(grow_below + draw.below(5_000)),
        "refill": refill,
        "prefetch": 1 + draw.below(4),
        "floor": draw.pick(&["0", "0", "40"]),
        "id-max": draw.pick(&["9223372036854775807", "9007199254740991", "600"]),
    });
    script.open("a", "drawn", options);
    let mut now = NOW;
    for _ in 0..28 {
        now = match draw.below(8) {
            0 => now.saturating_sub(draw.below(2_000)),
            1 => now + draw.below(20_000),
            _ => now + draw.below(40),
        };
        match draw.below(8) {
            0 => store.note(script.status("a", now).0),
            1..=2 => store.answer(script, draw),
            _ => {
                let max = draw.pick(&[1, 1, 3, 10, 50, 200]);
                store.note(script.reserve("a", now, max).0);
                if draw.below(2) == 0 {
                    store.answer(script, draw);
                }
            }
        }
    }
    script.close("a");
    script.reserve("a", now, 1);
}

/// A snowflake generator with drawn options, used and answered at drawn times.
pub(crate) fn snowflakes(script: &mut Script, draw: &mut Draw) {
    let bits = 1 + draw.below(2);
    let clock = [json!("reject"), json!({ "wait": "5" }), json!({ "keep": "50" })];
    let clock = &clock[usize::try_from(draw.below(3)).unwrap()];
    let spread = [json!("none"), json!({ "rotating": 1 }), json!({ "random": 1 })];
    let spread = &spread[usize::try_from(draw.below(3)).unwrap()];
    let options = json!({
        "layout": {
            "timestamp-bits": 41,
            "datacenter-bits": 0,
            "worker-bits": 2,
            "sequence-bits": bits,
            "order": "worker-first",
            "epoch-ms": "1600000000000",
            "tick-ms": draw.pick(&[1, 1, 7]),
        },
        "clock": clock,
        "horizon-ms": "300",
        "ahead-max-ms": draw.pick(&["0", "3", "20"]),
        "floor": int(draw.pick(&[0, NOW + 9])),
        "spread": spread,
        "seed": int(draw.next()),
    });
    script.open_flake("a", "default", options);
    let (mut now, mut ends) = (NOW, [NOW; 4]);
    let mut open: Vec<(String, Option<(usize, u64)>)> = Vec::new();
    let mut grants = 0;
    for _ in 0..36 {
        now = match draw.below(12) {
            0 => now - draw.below(10),
            1 => now - draw.below(600),
            2 => now + draw.below(400),
            _ => now + draw.below(12),
        };
        let step = if draw.below(8) == 0 {
            script.flake_status("a", now)
        } else {
            script.flake("a", now, draw.small(4) + u32::from(draw.below(20) > 0))
        };
        for call in step.0["imports"].as_array().into_iter().flatten() {
            let grant = |name: &str| call["args"]["grant-id"][name].as_str().and_then(|text| text.parse().ok());
            let worker =
                call["args"]["worker"].as_u64().map(|worker| (usize::try_from(worker).unwrap(), grant("low").unwrap()));
            open.push((call["ticket"].as_str().unwrap().to_owned(), worker));
        }
        if open.is_empty() || draw.below(3) == 0 {
            continue;
        }
        let (ticket, extended) = open.remove(0);
        if draw.below(6) == 0 {
            script.answer(&ticket, json!({ "err": draw.pick(&FAILURES) }));
            continue;
        }
        let (worker, grant) = extended.unwrap_or_else(|| {
            grants += 1;
            (usize::try_from(draw.below(4)).unwrap(), grants)
        });
        let not_before = if extended.is_some() { NOW } else { ends[worker].max(now.saturating_sub(draw.below(5))) };
        ends[worker] = ends[worker].max(not_before).max(now + draw.below(400));
        let mut lease = crate::snowflakes::lease(u32::try_from(worker).unwrap(), not_before, ends[worker]);
        lease["grant-id"]["low"] = int(grant);
        script.answer(&ticket, json!({ "ok": lease }));
    }
    script.close_flake("a");
    script.flake("a", now, 1);
}
