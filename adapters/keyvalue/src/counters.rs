//! Grants by increments, and what makes an increment one.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use crate::failure::Failure;
use crate::keys;
use crate::records::{Marker, NUMBER_MAX, Record};

/// How often a counter is brought to a floor, for a grant: others may move it in between.
const LIFTS_MAX: u32 = 3;

/// What claims of the probe's numbers are for. No tag is written so.
const PROBE_NAME: &str = ".";

/// What a bucket of a store answers.
pub(crate) trait Bucket {
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, Trouble>;
    fn set(&self, key: &str, value: &str) -> Result<(), Trouble>;
    /// Answers the new number. A draft may have a narrower type than this, and no wider one.
    fn increment(&self, key: &str, delta: u64) -> Result<i128, Trouble>;
}

/// Why a bucket did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// Nothing was done, and never will be.
    Denied,
    /// Whatever else; nobody knows what was done.
    Unclear,
}

impl Trouble {
    /// What it means where nothing can have been granted.
    const fn reading(self) -> Failure {
        match self {
            Self::Denied => DENIED,
            Self::Unclear => Failure::unavailable(),
        }
    }

    /// What it means where something may have been granted.
    const fn granting(self) -> Failure {
        match self {
            Self::Denied => DENIED,
            Self::Unclear => Failure::unknown(),
        }
    }
}

const DENIED: Failure = Failure::refused("the host denies the component what it needs of its key-value store");
const NO_MARKER: Failure = Failure::refused(
    "the key-value store has no marker: it lost its data, or nobody has written unalike.store yet; if it was used \
     before, the marker needs a floor",
);
const OTHER_STORE: Failure =
    Failure::refused("the key-value store is another one than was expected: look at UNALIKE_STORE and unalike.store");
const BAD_MARKER: Failure =
    Failure::refused("unalike.store in the key-value store is no marker: it is NAME, or NAME and a floor");
const BAD_RECORD: Failure = Failure::refused("what is kept beside the tag's counter cannot be read: somebody wrote it");
const BAD_MODE: Failure = Failure::refused("the tag's mode in the key-value store is neither buffered nor ordered");
const NO_COUNTER: Failure =
    Failure::refused("the key-value store's increment is not what its interface says: it did not count on");
const NOT_ATOMIC: Failure = Failure::refused(
    "the key-value store's increment is not atomic: it gave two instances the same number, so none of its are used",
);
const WENT_BACK: Failure = Failure::refused(
    "the tag's counter went back below what was granted: it was lost, replaced or set; raise it above all that was \
     granted, and remove its unalike.refused",
);
const WAS_REFUSED: Failure = Failure::refused(
    "the tag is refused since its counter went back: raise it above all that was granted, and remove its \
     unalike.refused",
);

const STORE_WAS_REFUSED: Failure = Failure::refused(
    "the key-value store is refused since its increments were found not to be atomic: use another one, or remove its \
     unalike.refused",
);

/// What the host's environment says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// The name that the store must have.
    pub(crate) store: Option<String>,
    /// Whether a tag that has no counter gets one.
    pub(crate) creates: bool,
    /// How often an instance counts on the probe when it starts, beside others.
    pub(crate) probes: u64,
}

/// Numbers that were granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Granted {
    pub(crate) first: u64,
    pub(crate) last: u64,
}

/// The counters of a store, as one instance uses them.
pub(crate) struct Counters<B> {
    /// The same bucket, opened twice.
    buckets: [B; 2],
    settings: Settings,
    /// The random name of this instance.
    instance: String,
    /// The store, once it was recognised and probed.
    known: Option<Marker>,
    /// Whether this component may write; grants are recorded where it may.
    writes: bool,
    /// Why this instance uses the store no more.
    refused: Option<Failure>,
    tags: BTreeMap<String, Tag>,
}

#[derive(Clone, Copy, Default)]
struct Tag {
    /// The greatest number that this instance saw.
    last: u64,
    refused: Option<Failure>,
}

impl<B: Bucket> Counters<B> {
    pub(crate) const fn new(buckets: [B; 2], settings: Settings, instance: String) -> Self {
        Self { buckets, settings, instance, known: None, writes: true, refused: None, tags: BTreeMap::new() }
    }

    /// Whether the store may be used at all.
    pub(crate) fn check(&mut self) -> Result<(), Failure> {
        self.begin()?;
        self.recognise().map(drop)
    }

    /// Whether the ids of a tag are ordered.
    pub(crate) fn open(&mut self, tag: &str) -> Result<bool, Failure> {
        self.begin()?;
        let read = |key: &str| self.bucket().get(key).map_err(Trouble::reading);
        if read(&keys::refusal(tag))?.is_some() {
            return Err(WAS_REFUSED);
        }
        let is_ordered = match read(&keys::mode(tag))?.as_deref() {
            None | Some(b"buffered") => false,
            Some(b"ordered") => true,
            Some(_) => return Err(BAD_MODE),
        };
        if !self.settings.creates && read(&keys::whole_counter(tag))?.is_none() {
            return Err(Failure::tag_unknown());
        }
        Ok(is_ordered)
    }

    /// Grants up to `count` numbers, none below `at_least`.
    pub(crate) fn allocate(&mut self, tag: &str, count: u64, at_least: u64) -> Result<Granted, Failure> {
        let marker = self.begin()?;
        let at_least = at_least.max(marker.floor.saturating_add(1));
        let mut delta = count;
        for _ in 0..LIFTS_MAX {
            let Granted { first, last } = self.increment(tag, delta)?;
            if first >= at_least {
                return Ok(Granted { first, last });
            }
            if last >= at_least {
                return Ok(Granted { first: at_least.max(last.saturating_sub(count - 1)), last });
            }
            // What lies below is a gap.
            let end = (at_least - 1).checked_add(count).filter(|end| *end <= NUMBER_MAX);
            delta = end.ok_or(Failure::exhausted())? - last;
        }
        Err(Failure::unavailable())
    }

    const fn bucket(&self) -> &B {
        let [bucket, _] = &self.buckets;
        bucket
    }

    /// Counts `delta` numbers of a tag, and proves that they are this instance's.
    fn increment(&mut self, tag: &str, delta: u64) -> Result<Granted, Failure> {
        let known = self.tags.get(tag).copied().unwrap_or_default();
        if let Some(refused) = known.refused {
            return Err(refused);
        }
        let (counter, record) = (keys::counter(tag), keys::record(tag));
        // Whatever was recorded by now was counted before.
        let before = self.recorded(&record).map_err(|trouble| trouble.map_or(BAD_RECORD, Trouble::reading))?;
        let number = self.bucket().increment(&counter, delta).map_err(Trouble::granting)?;
        let granted = match counted(number, delta) {
            Counted::Numbers(granted) => granted,
            Counted::Beyond => return Err(Failure::exhausted()),
            Counted::Nothing => return Err(self.refuse_tag(tag, NO_COUNTER)),
        };
        let bound = known.last.max(before.map_or(0, |before| before.last));
        if granted.first <= bound {
            return Err(self.refuse_tag(tag, WENT_BACK));
        }
        self.tags.entry(String::from(tag)).or_default().last = granted.last;
        let name = keys::written(tag);
        let mine = Record { first: granted.first, last: granted.last, instance: self.instance.clone(), name };
        if let Err(failure) = self.claim(&mine, Some(&record)) {
            return Err(if failure == NOT_ATOMIC { self.refuse_tag(tag, failure) } else { failure });
        }
        Ok(granted)
    }

    /// Claims numbers that were counted, unless somebody else does.
    ///
    /// Of two that were given the same numbers, the later one sees the other's claim before it has written its own, or
    /// the earlier one sees the other's after it has: it looks as late as it can.
    fn claim(&mut self, mine: &Record, record: Option<&str>) -> Result<(), Failure> {
        let key = keys::claim(&mine.name, mine.first);
        self.look(&key, mine)?;
        self.write(&key, mine)?;
        if let Some(record) = record {
            self.write(record, mine)?;
        }
        // A store that was emptied before it counted has no marker now.
        if let Err(failure) = self.recognise() {
            return Err(if failure == Failure::unavailable() { Failure::unknown() } else { failure });
        }
        self.look(&key, mine)
    }

    /// Whether somebody else has claimed numbers of mine.
    fn look(&mut self, key: &str, mine: &Record) -> Result<(), Failure> {
        match self.recorded(key) {
            Ok(Some(other)) if mine.contradicts(&other) => {
                self.refused = Some(NOT_ATOMIC);
                Err(NOT_ATOMIC)
            }
            Ok(_) => Ok(()),
            Err(Some(trouble)) => Err(trouble.granting()),
            Err(None) => Err(BAD_RECORD),
        }
    }

    fn write(&mut self, key: &str, mine: &Record) -> Result<(), Failure> {
        if !self.writes {
            return Ok(());
        }
        match self.bucket().set(key, &mine.written()) {
            Ok(()) => Ok(()),
            Err(Trouble::Denied) => {
                self.writes = false;
                Ok(())
            }
            Err(Trouble::Unclear) => Err(Failure::unknown()),
        }
    }

    /// The record under a key, if any are kept; an error without a trouble is a record that is none.
    fn recorded(&self, key: &str) -> Result<Option<Record>, Option<Trouble>> {
        if !self.writes {
            return Ok(None);
        }
        match self.bucket().get(key).map_err(Some)? {
            None => Ok(None),
            Some(value) => Record::read(&value).map(Some).ok_or(None),
        }
    }

    /// Refuses a tag here, and for all instances if they can be told.
    fn refuse_tag(&mut self, tag: &str, why: Failure) -> Failure {
        self.tags.entry(String::from(tag)).or_default().refused = Some(why);
        if self.writes {
            // An instance that is not told looks for itself.
            let _ = self.bucket().set(&keys::refusal(tag), why.detail);
        }
        why
    }

    /// The store, recognised and probed.
    fn begin(&mut self) -> Result<Marker, Failure> {
        if let Some(refused) = self.refused {
            return Err(refused);
        }
        if let Some(known) = &self.known {
            return Ok(known.clone());
        }
        let marker = self.recognise()?;
        if self.bucket().get(keys::REFUSAL).map_err(Trouble::reading)?.is_some() {
            return Err(STORE_WAS_REFUSED);
        }
        if let Err(failure) = self.probe() {
            if self.writes && (failure == NOT_ATOMIC || failure == NO_COUNTER) {
                // Those that find it out themselves need not be told.
                let _ = self.bucket().set(keys::REFUSAL, failure.detail);
            }
            return Err(failure);
        }
        self.known = Some(marker.clone());
        Ok(marker)
    }

    /// Reads the marker.
    fn recognise(&mut self) -> Result<Marker, Failure> {
        let value = self.bucket().get(keys::STORE).map_err(Trouble::reading)?;
        let marker = value.map(|value| Marker::read(&value));
        let is_expected = |marker: &Marker| {
            self.settings.store.as_ref().is_none_or(|name| *name == marker.name)
                && self.known.as_ref().is_none_or(|known| known == marker)
        };
        let refused = match marker {
            Some(Some(marker)) if is_expected(&marker) => return Ok(marker),
            Some(Some(_)) => OTHER_STORE,
            Some(None) => BAD_MARKER,
            None => NO_MARKER,
        };
        // One that was used and is no longer what it was is not used again. Before that, an operator may yet begin it.
        if self.known.is_some() {
            self.refused = Some(refused);
        }
        Err(refused)
    }

    /// Counts on a key that all instances share, to see whether anybody else is given the same numbers.
    fn probe(&mut self) -> Result<(), Failure> {
        let mut last = 0;
        // By turns on what was opened twice: a store that gives each opening a copy of itself counts twice from 0.
        for (place, delta) in [(0, 1), (1, 2), (0, 3), (1, 1)] {
            let bucket: Option<&B> = self.buckets.get(place);
            let Some(bucket) = bucket else { continue };
            let number = bucket.increment(keys::PROBE, delta).map_err(Trouble::reading)?;
            last = self.next_of_probe(number, delta, last)?;
        }
        let mut claimed = Vec::new();
        for _ in 0..self.settings.probes {
            let number = self.bucket().increment(keys::PROBE, 1).map_err(Trouble::reading)?;
            last = self.next_of_probe(number, 1, last)?;
            let instance = self.instance.clone();
            claimed.push(Record { first: last, last, instance, name: String::from(PROBE_NAME) });
            if let Some(mine) = claimed.last() {
                self.claim(mine, None)?;
            }
            if !self.writes {
                return Ok(());
            }
        }
        // Once more, so that whoever was slower has written by now.
        claimed.iter().try_for_each(|mine| self.look(&keys::claim(&mine.name, mine.first), mine))
    }

    fn next_of_probe(&mut self, number: i128, delta: u64, last: u64) -> Result<u64, Failure> {
        match counted(number, delta) {
            Counted::Numbers(granted) if granted.first > last => Ok(granted.last),
            Counted::Beyond => Err(Failure::exhausted()),
            _ => {
                self.refused = Some(NO_COUNTER);
                Err(NO_COUNTER)
            }
        }
    }
}

/// What a counter's answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counted {
    Numbers(Granted),
    /// Too near the type's end, or past it.
    Beyond,
    /// No counter answers this.
    Nothing,
}

fn counted(number: i128, delta: u64) -> Counted {
    let first = number - i128::from(delta) + 1;
    if delta == 0 || first < 1 {
        return Counted::Nothing;
    }
    match (u64::try_from(first), u64::try_from(number)) {
        (Ok(first), Ok(last)) if last <= NUMBER_MAX => Counted::Numbers(Granted { first, last }),
        _ => Counted::Beyond,
    }
}

#[cfg(test)]
mod tests {
    use alloc::rc::Rc;
    use alloc::string::ToString as _;
    use core::cell::RefCell;

    use super::*;

    /// What is answered where a number is counted to.
    type Lie = fn(i128) -> Result<i128, Trouble>;

    /// A store whose contents the test sees and changes, and which lies as the test says.
    #[derive(Clone, Default)]
    struct Faulty(Rc<Contents>);

    #[derive(Default)]
    struct Contents {
        counters: RefCell<BTreeMap<String, i128>>,
        values: RefCell<BTreeMap<String, String>>,
        /// Changes what the next increments of tags answer.
        lies: RefCell<Vec<Lie>>,
        is_read_only: bool,
    }

    impl Bucket for Faulty {
        fn get(&self, key: &str) -> Result<Option<Vec<u8>>, Trouble> {
            let value = self.0.values.borrow().get(key).cloned();
            let counted = || self.0.counters.borrow().get(key).map(ToString::to_string);
            Ok(value.or_else(counted).map(String::into_bytes))
        }

        fn set(&self, key: &str, value: &str) -> Result<(), Trouble> {
            if self.0.is_read_only {
                return Err(Trouble::Denied);
            }
            self.0.values.borrow_mut().insert(key.to_string(), value.to_string());
            Ok(())
        }

        fn increment(&self, key: &str, delta: u64) -> Result<i128, Trouble> {
            let mut counters = self.0.counters.borrow_mut();
            let number = counters.entry(key.to_string()).or_default();
            *number += i128::from(delta);
            let lie = if key == keys::PROBE { None } else { self.0.lies.borrow_mut().pop() };
            lie.map_or(Ok(*number), |lie| lie(*number))
        }
    }

    const ORDER: &str = "unalike.ids.order";

    impl Faulty {
        fn begun() -> Self {
            let faulty = Self::default();
            faulty.0.values.borrow_mut().insert(keys::STORE.to_string(), "shop".to_string());
            faulty
        }

        fn instance(&self, name: &str) -> Counters<Self> {
            self.instance_with(name, Settings { store: None, creates: true, probes: 2 })
        }

        fn instance_with(&self, name: &str, settings: Settings) -> Counters<Self> {
            Counters::new([self.clone(), self.clone()], settings, name.to_string())
        }

        fn write(&self, key: &str, value: &str) {
            self.0.values.borrow_mut().insert(key.to_string(), value.to_string());
        }

        fn forget(&self, key: &str) {
            self.0.values.borrow_mut().remove(key);
            self.0.counters.borrow_mut().remove(key);
        }

        fn count(&self, key: &str, number: i128) {
            self.0.counters.borrow_mut().insert(key.to_string(), number);
        }
    }

    fn granted(first: u64, last: u64) -> Result<Granted, Failure> {
        Ok(Granted { first, last })
    }

    #[test]
    fn instances_share_a_counter() {
        let store = Faulty::begun();
        let (mut one, mut two) = (store.instance("one"), store.instance("two"));
        assert_eq!(one.open("order"), Ok(false));
        assert_eq!(one.allocate("order", 10, 0), granted(1, 10));
        assert_eq!(two.allocate("order", 5, 0), granted(11, 15));
        assert_eq!(one.allocate("order", 1, 11), granted(16, 16));
        assert_eq!(store.0.values.borrow()["unalike.seen.order"], "16 16 one order");
        assert_eq!(one.allocate("other", 1, 0), granted(1, 1));
        assert_eq!(one.check(), Ok(()));
    }

    #[test]
    fn a_floor_is_counted_up_to_and_what_lies_below_is_a_gap() {
        let store = Faulty::begun();
        store.write(keys::STORE, "shop 1000");
        let mut one = store.instance("one");
        assert_eq!(one.allocate("order", 10, 0), granted(1_001, 1_010));
        assert_eq!(one.allocate("order", 10, 1_016), granted(1_016, 1_020), "only its end is above");
        assert_eq!(one.allocate("order", 10, 5_000), granted(5_000, 5_009));
        // Beyond what is used nothing is counted up to.
        assert_eq!(one.allocate("order", 10, NUMBER_MAX), Err(Failure::exhausted()));
        assert_eq!(one.allocate("order", 10, 0), granted(5_020, 5_029));
    }

    #[test]
    fn what_was_lost_is_noticed_by_instances_that_knew_and_that_did_not() {
        // All of it: nobody has written the marker again.
        let store = Faulty::begun();
        let mut knew = store.instance("knew");
        assert_eq!(knew.allocate("order", 10, 0), granted(1, 10));
        store.0.values.borrow_mut().clear();
        store.0.counters.borrow_mut().clear();
        assert_eq!(knew.allocate("other", 10, 0), Err(NO_MARKER), "a tag that it has not used");
        assert_eq!(knew.allocate("order", 10, 0), Err(NO_MARKER), "for good");
        assert_eq!(store.instance("fresh").allocate("order", 10, 0), Err(NO_MARKER));
        assert_eq!(store.instance("fresh").open("order"), Err(NO_MARKER));

        // The counter alone.
        for who in ["knew", "fresh"] {
            let store = Faulty::begun();
            let mut knew = store.instance("knew");
            assert_eq!(knew.allocate("order", 10, 0), granted(1, 10));
            store.forget(ORDER);
            if who == "fresh" {
                knew = store.instance("fresh");
            }
            assert_eq!(knew.allocate("order", 3, 0), Err(WENT_BACK), "{who}");
            store.count(ORDER, 500);
            assert_eq!(knew.allocate("order", 3, 0), Err(WENT_BACK), "{who}, for good");
            assert_eq!(store.instance("fresh").open("order"), Err(WAS_REFUSED));
            store.forget("unalike.refused.order");
            assert_eq!(store.instance("fresh").allocate("order", 3, 0), granted(501, 503));
        }

        // The counter and its record, under an instance that knew.
        let store = Faulty::begun();
        let mut knew = store.instance("knew");
        assert_eq!(knew.allocate("order", 10, 0), granted(1, 10));
        store.forget(ORDER);
        store.forget("unalike.seen.order");
        assert_eq!(knew.allocate("order", 3, 0), Err(WENT_BACK));

        // The marker alone; and another store.
        let store = Faulty::begun();
        let mut knew = store.instance("knew");
        assert_eq!(knew.allocate("order", 10, 0), granted(1, 10));
        store.write(keys::STORE, "another");
        assert_eq!(knew.allocate("order", 10, 0), Err(OTHER_STORE));
        let settings = Settings { store: Some("shop".to_string()), creates: true, probes: 2 };
        assert_eq!(store.instance_with("fresh", settings).check(), Err(OTHER_STORE));
        store.write(keys::STORE, "no marker at all");
        assert_eq!(store.instance("fresh").check(), Err(BAD_MARKER));
    }

    #[test]
    fn a_tag_without_a_counter_is_unknown_where_none_is_made() {
        let store = Faulty::begun();
        let settings = Settings { store: None, creates: false, probes: 2 };
        let mut one = store.instance_with("one", settings);
        assert_eq!(one.open("order"), Err(Failure::tag_unknown()));
        assert_eq!(one.open("order\u{1f}a"), Err(Failure::tag_unknown()));
        store.count(ORDER, 0);
        assert_eq!((one.open("order"), one.open("order\u{1f}a")), (Ok(false), Ok(false)));
        store.write("unalike.mode.order", "ordered");
        assert_eq!((one.open("order"), one.open("order\u{1f}a")), (Ok(true), Ok(true)));
        store.write("unalike.mode.order", "strict");
        assert_eq!(one.open("order"), Err(BAD_MODE));
    }

    #[test]
    fn answers_that_no_counter_gives_are_refused() {
        let lies: [(Lie, Failure); 9] = [
            (|_| Ok(0), NO_COUNTER),
            (|_| Ok(-5), NO_COUNTER),
            (|_| Ok(i128::from(i64::MIN)), NO_COUNTER),
            (|_| Ok(1), NO_COUNTER),
            (|number| Ok(number - 1), WENT_BACK),
            (|_| Ok(20), WENT_BACK),
            (|_| Ok(i128::from(i64::MAX)), Failure::exhausted()),
            (|_| Ok(i128::from(u64::MAX)), Failure::exhausted()),
            (|_| Err(Trouble::Unclear), Failure::unknown()),
        ];
        for (place, (lie, failure)) in lies.into_iter().enumerate() {
            for fresh in [false, true] {
                let store = Faulty::begun();
                let mut one = store.instance("one");
                assert_eq!(one.allocate("order", 20, 0), granted(1, 20));
                if fresh {
                    one = store.instance("fresh");
                }
                store.0.lies.borrow_mut().push(lie);
                assert_eq!(one.allocate("order", 5, 0), Err(failure), "lie {place}, fresh: {fresh}");
                let is_over = failure == NO_COUNTER || failure == WENT_BACK;
                let next = one.allocate("order", 5, 0);
                assert_eq!(next, if is_over { Err(failure) } else { granted(26, 30) }, "lie {place}");
            }
        }
    }

    #[test]
    fn numbers_that_two_were_given_are_used_by_none_who_sees_it() {
        let store = Faulty::begun();
        let (mut one, mut two) = (store.instance("one"), store.instance("two"));
        assert_eq!(one.allocate("order", 20, 0), granted(1, 20));
        // Another one has been given the next five as well, and has recorded them just now.
        store.write(&keys::claim("order", 21), "21 25 another order");
        assert_eq!(two.allocate("order", 3, 0), Err(NOT_ATOMIC));
        assert_eq!(two.allocate("order", 1, 0), Err(NOT_ATOMIC), "for good");
        assert_eq!(two.allocate("other", 1, 0), Err(NOT_ATOMIC), "and no tag of it");
        assert_eq!(store.0.values.borrow()["unalike.refused.order"], NOT_ATOMIC.detail);
    }

    #[test]
    fn a_store_of_which_each_opening_is_a_copy_is_refused_at_the_start() {
        let settings = || Settings { store: None, creates: true, probes: 0 };
        let copies = [Faulty::begun(), Faulty::begun()];
        let mut counters = Counters::new(copies.clone(), settings(), "one".to_string());
        assert_eq!(counters.check(), Err(NO_COUNTER));
        let mut counters = Counters::new(copies, settings(), "two".to_string());
        assert_eq!(counters.check(), Err(STORE_WAS_REFUSED));
        // A number of the probe that another instance was given, too.
        let store = Faulty::begun();
        store.write(&keys::claim(".", 8), "8 8 another .");
        assert_eq!(store.instance("one").check(), Err(NOT_ATOMIC));
    }

    #[test]
    fn a_store_that_lets_nobody_write_is_used_without_records() {
        let values = BTreeMap::from([(keys::STORE.to_string(), "shop".to_string())]);
        let store = Faulty(Rc::new(Contents { values: values.into(), is_read_only: true, ..Contents::default() }));
        let mut one = store.instance("one");
        assert_eq!(one.allocate("order", 10, 0), granted(1, 10));
        store.count(ORDER, 0);
        assert_eq!(one.allocate("order", 5, 0), Err(WENT_BACK));
    }
}
