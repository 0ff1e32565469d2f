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
