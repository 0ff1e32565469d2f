//! How many numbers to ask for, when the host ends an instance without a word.
//!
//! Hosts give an instance so many requests and then drop it, with whatever it holds; so what is held must fit the
//! requests that are still to come. An instance learns what they ask for while it runs: each grant covers those who
//! wait, and as many numbers more as were used so far, but no more than the rest of the instance's life will need. The
//! first rule bounds what a short life loses, the second what a full one does.
//!
//! Some hosts never end an instance. It would ask for as much again each time, and hold ever more; so it
//! [goes on](Life::go_on) with the second half of the life that was said, again and again, and forgets half of what was
//! used before. What it asks for follows what the latest requests needed, and is never more than so many of them need.

/// The life of an instance, in requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Life {
    /// How many the host gives it.
    requests_max: u64,
    /// How many it was given.
    requests: u64,
}

impl Life {
    pub(crate) const fn new(requests_max: u64) -> Self {
        Self { requests_max, requests: 0 }
    }

    /// Another request.
    pub(crate) fn begin(&mut self) {
        self.requests = self.requests.saturating_add(1);
    }

    /// A life that would be over goes on with its second half: whether it does. What was used is to be
    /// [halved](Use::halve) then.
    #[cfg(any(feature = "facade", test))]
    pub(crate) fn go_on(&mut self) -> bool {
        let is_over = self.requests >= self.requests_max;
        if is_over {
            self.requests = self.requests_max / 2;
        }
        is_over
    }

    /// How many are expected still. A host that gives more than was said may give as many again.
    const fn requests_left(&self) -> u64 {
        match self.requests_max.checked_sub(self.requests) {
            Some(left) => left,
            None => self.requests,
        }
    }
}

/// What was asked for of one tag.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Use {
    /// Ids that were handed out.
    pub(crate) handed_out: u64,
    /// Ids that requests wait for.
    pub(crate) awaited: u64,
}

impl Use {
    /// Forgets half of what was handed out: whether nothing is left.
    #[cfg(any(feature = "facade", test))]
    pub(crate) fn halve(&mut self) -> bool {
        self.handed_out /= 2;
        self.handed_out == 0 && self.awaited == 0
    }

    /// How many numbers to ask for now: 1 or more.
    pub(crate) fn grant(&self, life: &Life) -> u64 {
        let used = self.handed_out.saturating_add(self.awaited);
        // Of the requests so far, each asked for so many of this tag, on average.
        let (requests, left) = (life.requests.max(1), life.requests_left());
        let ahead = if left < requests { used.saturating_mul(left) / requests } else { used };
        self.awaited.saturating_add(ahead).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests one after the other, each for `count` of one of `tags` tags in turn: numbers granted, and grants.
    fn serve(requests: u64, requests_max: u64, tags: u64, count: u64) -> (u64, u64) {
        let mut life = Life::new(requests_max);
        let (mut granted, mut grants) = (0, 0);
        let mut uses = vec![(Use::default(), 0); usize::try_from(tags).unwrap()];
        for request in 0..requests {
            life.begin();
            let (tag, held) = &mut uses[usize::try_from(request % tags).unwrap()];
            if *held < count {
                let grant = Use { awaited: count - *held, ..*tag }.grant(&life);
                (granted, grants, *held) = (granted + grant, grants + 1, *held + grant);
            }
            *held -= count;
            tag.handed_out += count;
        }
        (granted, grants)
    }

    #[test]
    fn a_full_life_loses_next_to_nothing_and_asks_a_few_times() {
        for (tags, count, grants_max) in [(1, 1, 9), (1, 100, 9), (2, 1, 18), (10, 10, 60)] {
            let (granted, grants) = serve(128, 128, tags, count);
            let (used, lost) = (128 * count, granted - 128 * count);
            assert!(
                lost * if tags > 2 { 10 } else { 20 } <= used,
                "{tags} tags, {count} each: {lost} of {granted} are lost"
            );
            assert!(grants <= grants_max, "{tags} tags, {count} each: {grants} grants");
        }
    }

    #[test]
    fn a_short_life_loses_half_at_most() {
        for requests in 1..128 {
            let (granted, _) = serve(requests, 128, 1, 1);
            assert!(granted <= 2 * requests, "{granted} for {requests}");
        }
    }

    #[test]
    fn a_life_that_is_longer_than_was_said_goes_on() {
        let (granted, grants) = serve(100_000, 128, 1, 1);
        assert!(granted <= 200_000 && grants < 30, "{granted} in {grants}");
        assert_eq!(serve(1, 1, 1, 5), (5, 1));
        assert_eq!(serve(1_000, 1_000, 1, 0).1, 0);
    }

    #[test]
    fn a_life_without_end_asks_for_what_its_latest_requests_used() {
        for requests_max in [1, 2, 3, 128, 10_000] {
            let mut life = Life::new(requests_max);
            let (mut held, mut used, mut grants) = (0, Use::default(), 0);
            // Ten times as many for a while.
            for count in (0..300_000_u64).map(|request| if request / 100_000 == 1 { 10 } else { 1 }) {
                if life.go_on() {
                    used.halve();
                }
                life.begin();
                if held < count {
                    let grant = Use { awaited: count - held, ..used }.grant(&life);
                    assert!(grant <= 10 * requests_max, "{grant} at once in a life of {requests_max}");
                    (held, grants) = (held + grant, grants + 1);
                }
                held -= count;
                used.handed_out += count;
            }
            assert!(held <= requests_max, "{held} are held in a life of {requests_max}");
            let lives = 300_000 / requests_max;
            assert!(grants <= 4 * lives + 20, "{grants} grants in {lives} lives of {requests_max}");
        }
    }

    #[test]
    fn what_is_not_used_any_more_is_forgotten() {
        let mut used = Use { handed_out: 1_000, awaited: 0 };
        assert_eq!((0..).find(|_| used.halve()), Some(9));
        assert!(!Use { handed_out: 0, awaited: 1 }.halve());
    }
}
