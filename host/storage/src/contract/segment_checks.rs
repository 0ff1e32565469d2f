//! The promises of a [`SegmentStore`], one by one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::future::join_all;
use tokio::sync::oneshot;
use unalike_core::NAME_LEN_MAX;

use super::{SegmentFixture, abandoned_after, expected, refused};
use crate::{
    AdaptiveStep, FormatBinding, FormatOwner, FormatPart, ID_MAX, KEPT_CLOCK, KEPT_FLOOR, KEPT_LEASES, Mode,
    RefillPolicy, Segment, SegmentStore, StepPolicy, StoreError, Stripe, StripeNumbers, TagCreation, TagOptions,
    TagRecord, TailRelease, split_tag, sub_tag,
};

type Client = Arc<dyn SegmentStore>;

/// Tags are created on first use, as many as may be.
const OPEN: TagCreation = TagCreation { on_first_use: true, tags_max: 1_000_000 };

/// No tag is created on first use.
const CLOSED: TagCreation = TagCreation { on_first_use: false, tags_max: 1_000_000 };

/// A grant, checked to be what was asked for.
async fn allocate(client: &Client, tag: &str, count: u64, at_least: u64) -> Segment {
    let what = format!("allocate({tag:?}, {count}, {at_least})");
    checked(expected(client.allocate(tag, count, at_least).await, &what), count, at_least)
}

fn checked(segment: Segment, count: u64, at_least: u64) -> Segment {
    assert_eq!(segment.validate(), Ok(()), "a grant is an interval of ids: {segment:?}");
    assert!((1..=count).contains(&segment.count()), "a grant holds 1 to {count} numbers: {segment:?}");
    assert!(segment.start >= at_least, "no number lies below {at_least}: {segment:?}");
    segment
}

/// Grants whose numbers are an interval of the same ones: other remainders of one stride never meet.
fn class(segment: &Segment) -> (u64, u64, u64) {
    (segment.generation, segment.stride, segment.start.checked_rem(segment.stride).unwrap_or_default())
}

/// A grant of the same remainder as another one: the next, or in stripes the one when that stripe has its turn.
async fn allocate_beside(client: &Client, tag: &str, count: u64, at_least: u64, beside: &Segment) -> Segment {
    for _ in 0..beside.stride {
        let segment = allocate(client, tag, count, at_least).await;
        if class(&segment) == class(beside) {
            return segment;
        }
    }
    panic!("each of {} stripes has its turn", beside.stride)
}

/// Panics if two grants of one tag have a number in common.
fn assert_disjoint(segments: &[Segment]) {
    let mut remainders: BTreeMap<(u64, u64, u64), Vec<Segment>> = BTreeMap::new();
    for segment in segments {
        remainders.entry(class(segment)).or_default().push(*segment);
    }
    for segments in remainders.values_mut() {
        segments.sort_by_key(|segment| segment.start);
        let mut end = 0;
        for segment in segments {
            assert!(segment.start >= end, "a number was granted twice: {segment:?} begins below {end}");
            end = segment.end;
        }
    }
}

/// All clients of a store see one identity, whatever happens to its tags. A store without one has none for all.
pub async fn the_identity_is_the_same_for_all(fixture: &dyn SegmentFixture) {
    let (one, other) = (fixture.segment_client(OPEN).await, fixture.segment_client(CLOSED).await);
    let first = expected(one.identity().await, "asking for the identity");
    assert_eq!(expected(other.identity().await, "asking another client for the identity"), first);
    allocate(&one, "contract.identity", 3, 0).await;
    assert_eq!(expected(one.identity().await, "asking for the identity after a grant"), first);
    assert_eq!(expected(other.identity().await, "asking another client after a grant"), first);
}

/// The first number of a new tag is 1, or the start that it was created with; numbers go on from there.
pub async fn the_first_number_is_the_start(fixture: &dyn SegmentFixture) {
    let client = fixture.segment_client(OPEN).await;
    let first = allocate(&client, "contract.first", 3, 0).await;
    assert!(first.start <= first.stride, "the first number is 1 (in stripes: the stripe's): {first:?}");
    let second = allocate_beside(&client, "contract.first", 3, 0, &first).await;
    assert_eq!(second.start, first.end, "numbers go on without a gap while nothing is lost");

    let options = TagOptions { start: 5_000, ..TagOptions::default() };
    let record = expected(client.create_tag("contract.first.started", &options).await, "creating a tag");
    assert_eq!(record.watermark, 4_999, "nothing was granted yet");
    let first = allocate(&client, "contract.first.started", 3, 0).await;
    assert!((5_000..5_000 + first.stride).contains(&first.start), "the first number is the start: {first:?}");
}

/// Grants hold what was asked for or less, ascend, and the version grows with each.
pub async fn grants_are_well_formed_and_ascend(fixture: &dyn SegmentFixture) {
    let client = fixture.segment_client(OPEN).await;
    let version = expected(client.open_tag("contract.ascend").await, "opening a tag").version;
    let mut newest: BTreeMap<(u64, u64, u64), (u64, u64)> = BTreeMap::new();
    let mut last = 0;
    for count in [1, 2, 1_000, 1, 1_000_000_000, 1 << 53, 7] {
        let segment = allocate(&client, "contract.ascend", count, 0).await;
        let (end, before) = newest.insert(class(&segment), (segment.end, segment.version)).unwrap_or((1, version));
        assert!(segment.start >= end, "starts ascend: {segment:?} after {end}");
        if fixture.takes_tails_back() {
            assert!(segment.version > before, "the version grows with every grant: {segment:?} after {before}");
        }
        last = last.max(segment.end - segment.stride);
    }
    let record = expected(client.open_tag("contract.ascend").await, "opening a tag");
    assert!(record.watermark >= last, "nothing above the watermark was granted: {record:?}, {last}");
}

/// However many clients ask at once, no number is granted twice, and each client sees ascending starts.
pub async fn concurrent_clients_never_share_a_number(fixture: &dyn SegmentFixture) {
    const CLIENTS: u64 = 4;
    const TASKS: u64 = 4;
    const GRANTS: u64 = 15;
    let mut tasks = Vec::new();
    for client_number in 0..CLIENTS {
        let client = fixture.segment_client(OPEN).await;
        for task in 0..TASKS {
            let client = Arc::clone(&client);
            tasks.push(tokio::spawn(async move {
                let mut granted: Vec<Segment> = Vec::new();
                for grant in 0..GRANTS {
                    let count = 1 + (client_number + 3 * task + 7 * grant) % 20;
                    let segment = match client.allocate("contract.crowd", count, 0).await {
                        Ok(segment) => checked(segment, count, 0),
                        // A busy store may ask for another try; what it may have granted is lost.
                        Err(error) if error.is_retryable() => continue,
                        Err(error) => panic!("a crowd is no reason to fail for good: {error}"),
                    };
                    let before = granted.iter().rfind(|before| class(before) == class(&segment));
                    let last_end = before.map_or(1, |before| before.end);
                    assert!(segment.start >= last_end, "one client's starts ascend: {segment:?} after {last_end}");
                    granted.push(segment);
                }
                granted
            }));
        }
    }
    let mut granted = Vec::new();
    for task in tasks {
        granted.extend(task.await.unwrap_or_else(|error| panic!("a client failed: {error}")));
    }
    assert!(granted.len() as u64 > CLIENTS * TASKS * GRANTS / 2, "most of a crowd is served");
    assert_disjoint(&granted);
    let client = fixture.segment_client(OPEN).await;
    granted.push(allocate(&client, "contract.crowd", 10, 0).await);
    assert_disjoint(&granted);
}

/// `at_least` skips numbers and is never undercut, also not by requests that ask for less.
pub async fn at_least_skips_up_and_never_back(fixture: &dyn SegmentFixture) {
    let client = fixture.segment_client(OPEN).await;
    let first = allocate(&client, "contract.floor", 10, 0).await;
    let skipped = allocate(&client, "contract.floor", 10, 1_000).await;
    assert!(skipped.start < 1_000 + skipped.stride, "no more is skipped than was asked for: {skipped:?}");
    let below = allocate_beside(&client, "contract.floor", 10, 500, &skipped).await;
    assert!(below.start >= skipped.end, "a lower floor leads nowhere back: {below:?} after {skipped:?}");
    let new = allocate(&client, "contract.floor.new", 10, 77).await;
    assert!((77..77 + new.stride).contains(&new.start), "a new tag skips too: {new:?}");
    assert_disjoint(&[first, skipped, below]);
}

/// Each tag has numbers of its own; names that look alike are different tags.
pub async fn tags_are_independent(fixture: &dyn SegmentFixture) {
    let client = fixture.segment_client(OPEN).await;
    // Letter case, accents, composed and decomposed: collations of databases equate them.
    let names = ["a", "A", "ä", "a\u{308}", " a", "ａ", "ss", "ß"];
    for name in names {
        let tag = format!("contract.apart.{name}");
        let first = allocate(&client, &tag, 10, 0).await;
        assert!(first.start <= first.stride, "{tag:?} has numbers of its own: {first:?}");
    }
    for name in names {
        let record = expected(client.open_tag(&format!("contract.apart.{name}")).await, "opening a tag");
        assert_eq!(record.tag, format!("contract.apart.{name}"), "a tag is listed under its own name");
    }
}

/// An unknown tag is created on first use where that is allowed, else it is an error and stays unknown.
pub async fn unknown_tags_are_created_only_when_allowed(fixture: &dyn SegmentFixture) {
    let closed = fixture.segment_client(CLOSED).await;
    let tag = "contract.unknown";
    for _ in 0..2 {
        let error = refused(closed.allocate(tag, 1, 0).await, "allocating under an unknown tag");
        assert!(matches!(error, StoreError::TagUnknown { .. }), "the tag is unknown: {error:?}");
        let error = refused(closed.open_tag(tag).await, "opening an unknown tag");
        assert!(matches!(error, StoreError::TagUnknown { .. }), "the tag is unknown: {error:?}");
    }
    let open = fixture.segment_client(OPEN).await;
    for (what, answer) in [
        ("changing", open.change_tag(tag, StepPolicy::default(), RefillPolicy::default()).await),
        ("raising", open.raise_tag(tag, 5).await),
        ("looking up", open.tag(tag).await),
    ] {
        let error = refused(answer, what);
        assert!(matches!(error, StoreError::TagUnknown { .. }), "{what} creates no tag: {error:?}");
    }
    let tail = TailRelease { start: 1, version: 0 };
    assert!(!expected(open.release(tag, tail).await, "releasing under an unknown tag"), "nothing was granted");

    let record = expected(open.open_tag(tag).await, "opening a tag on first use");
    let options = TagOptions::default();
    assert_eq!((record.tag.as_str(), record.options, record.watermark), (tag, options, 0), "it has the defaults");
    assert_eq!(expected(closed.tag(tag).await, "looking it up"), record);
    allocate(&closed, tag, 1, 0).await;

    // Tags are created explicitly whatever first use may do.
    let record = expected(closed.create_tag("contract.unknown.made", &options).await, "creating a tag");
    assert_eq!(expected(closed.open_tag("contract.unknown.made").await, "opening it"), record);
    allocate(&closed, "contract.unknown.made", 1, 0).await;
}

/// Bad names, a count of 0, and options out of range are refused, and leave nothing behind.
pub async fn bad_requests_are_refused(fixture: &dyn SegmentFixture) {
    let client = fixture.segment_client(OPEN).await;
    let too_long = "x".repeat(129);
    let too_long_by_bytes = "ß".repeat(65);
    for tag in ["", too_long.as_str(), too_long_by_bytes.as_str(), "a\nb", "\0", "a\u{7f}", "\u{85}"] {
        let (step, refill) = (StepPolicy::default(), RefillPolicy::default());
        let tail = TailRelease { start: 1, version: 1 };
        for (what, error) in [
            ("allocate", client.allocate(tag, 1, 0).await.err()),
            ("open_tag", client.open_tag(tag).await.err()),
            ("tag", client.tag(tag).await.err()),
            ("create_tag", client.create_tag(tag, &TagOptions::default()).await.err()),
            ("change_tag", client.change_tag(tag, step, refill).await.err()),
            ("raise_tag", client.raise_tag(tag, 1).await.err()),
            ("release", client.release(tag, tail).await.err()),
        ] {
            assert!(matches!(error, Some(StoreError::TagInvalid { .. })), "{what} refuses {tag:?}: {error:?}");
        }
    }
    let tag = "contract.bad";
    let error = refused(client.allocate(tag, 0, 0).await, "a count of 0");
    assert!(!error.is_retryable() && !error.may_have_granted(), "a count of 0 is refused for good: {error:?}");
    let bad_options = [
        TagOptions { start: 0, ..TagOptions::default() },
        TagOptions { start: ID_MAX + 1, ..TagOptions::default() },
        TagOptions { step: StepPolicy::Fixed { step: 0 }, ..TagOptions::default() },
        TagOptions { refill: RefillPolicy::ShareConsumed { percent: 101 }, ..TagOptions::default() },
    ];
    for options in bad_options {
        let error = refused(client.create_tag(tag, &options).await, "a bad option");
        assert!(matches!(error, StoreError::TagInvalid { .. }), "{options:?} is refused: {error:?}");
    }
    let closed = fixture.segment_client(CLOSED).await;
    let error = refused(closed.open_tag(tag).await, "opening what was never made");
    assert!(matches!(error, StoreError::TagUnknown { .. }), "a refused request creates no tag: {error:?}");

    expected(client.open_tag(tag).await, "opening a tag");
    for next in [0, ID_MAX + 1, u64::MAX] {
        let error = refused(client.raise_tag(tag, next).await, "raising out of range");
        assert!(matches!(error, StoreError::TagInvalid { .. }), "raising to {next} is refused: {error:?}");
    }
    let step = StepPolicy::Fixed { step: ID_MAX + 1 };
    let error = refused(client.change_tag(tag, step, RefillPolicy::default()).await, "a bad step");
    assert!(matches!(error, StoreError::TagInvalid { .. }), "a bad step is refused: {error:?}");
    let record = expected(client.open_tag(tag).await, "opening a tag");
    assert_eq!((record.watermark, record.options), (0, TagOptions::default()), "refused requests change nothing");
}

/// Names of 128 bytes and of any script work and come back as they were.
pub async fn odd_names_are_kept_as_they_are(fixture: &dyn SegmentFixture) {
    let client = fixture.segment_client(OPEN).await;
    let longest = "x".repeat(128);
    let longest_by_bytes = "😀".repeat(32);
    let names = [
        longest.as_str(),
        longest_by_bytes.as_str(),
        "' OR 1=1; --",
        "%_\\\"`$1?",
        "../a/b?c=d&e#f",
        "{hash}:tag",
        "شكرا",
        "\u{202e}rtl",
        "null",
    ];
    for tag in names {
        let first = allocate(&client, tag, 5, 0).await;
        let second = allocate_beside(&client, tag, 5, 0, &first).await;
        assert!(first.start <= first.stride && second.start == first.end, "{tag:?} is a tag of its own");
        let record = expected(client.open_tag(tag).await, "opening a tag");
        assert_eq!(record.tag, tag, "a name comes back as it was");
    }
}

/// A space at either end is a slip: where no tag of that name exists, none comes into being, by request or by command.
pub async fn no_name_with_a_space_at_an_end_is_created(fixture: &dyn SegmentFixture) {
    let client = fixture.segment_client(OPEN).await;
    for tag in [" contract.space", "contract.spaces ", "contract.wide\u{3000}", "\u{a0}contract.narrow", " "] {
        for error in [
            refused(client.allocate(tag, 1, 0).await, "a grant under such a name"),
            refused(client.open_tag(tag).await, "opening such a tag"),
        ] {
            assert!(
                matches!(error, StoreError::TagInvalid { .. } | StoreError::TagUnknown { .. }),
                "{tag:?}: {error:?}"
            );
        }
        // What else is wrong with the options may be said first.
        refused(client.create_tag(tag, &TagOptions::default()).await, "creating such a tag");
        let error = refused(client.tag(tag).await, "reading such a tag");
        assert!(matches!(error, StoreError::TagInvalid { .. } | StoreError::TagUnknown { .. }), "{tag:?}: {error:?}");
    }
}

/// Numbers up to 2^63 - 1 are granted, then the tag is exhausted and stays so.
pub async fn numbers_end_at_the_top(fixture: &dyn SegmentFixture) {
    let client = fixture.segment_client(OPEN).await;
    let tag = "contract.top";
    expected(client.open_tag(tag).await, "opening a tag");
    expected(client.raise_tag(tag, ID_MAX - 9_999).await, "raising a tag to near the top");
    let mut granted = Vec::new();
    let exhausted = loop {
        match client.allocate(tag, 1_500, 0).await {
            Ok(segment) => granted.push(checked(segment, 1_500, ID_MAX - 9_999)),
            Err(error) => break error,
        }
        assert!(granted.len() <= 10_000, "10,000 numbers are left and no more");
    };
    assert!(matches!(exhausted, StoreError::Exhausted { .. }), "the tag is exhausted: {exhausted:?}");
    assert_disjoint(&granted);
    let mut numbers: BTreeMap<(u64, u64, u64), u64> = BTreeMap::new();
    for segment in &granted {
        *numbers.entry(class(segment)).or_default() += segment.count();
    }
    for ((_, stride, remainder), numbers) in numbers {
        let all = numbers == 10_000_u64.div_ceil(stride) || numbers == 10_000 / stride;
        assert!(all, "all numbers that are {remainder} modulo {stride} were granted: {numbers}");
    }
    for (count, at_least) in [(1, 0), (u64::MAX, 0), (1, ID_MAX), (u64::MAX, u64::MAX)] {
        let error = refused(client.allocate(tag, count, at_least).await, "a grant beyond the top");
        assert!(matches!(error, StoreError::Exhausted { .. }), "it stays exhausted: {error:?}");
    }
    expected(client.raise_tag(tag, 1).await, "raising an exhausted tag");
    expected(client.raise_tag(tag, ID_MAX).await, "raising an exhausted tag");
    refused(client.allocate(tag, 1, 0).await, "a grant beyond the top after a raise");

    // A request for more than there is gets what there is, and a floor beyond the top nothing.
    let tag = "contract.top.greedy";
    let error = refused(client.allocate(tag, 1, ID_MAX + 1).await, "a floor beyond the top");
    assert!(matches!(error, StoreError::Exhausted { .. }), "no number is so great: {error:?}");
    let first = allocate(&client, tag, 10, 0).await;
    let rest = allocate(&client, tag, u64::MAX, 0).await;
    assert_disjoint(&[first, rest]);
    let tag = "contract.top.last";
    let mut granted = Vec::new();
    let exhausted = loop {
        match client.allocate(tag, u64::MAX, ID_MAX - first.stride + 1).await {
            Ok(last) => granted.push(last),
            Err(error) => break error,
        }
        assert!(granted.len() as u64 <= first.stride, "one number is the last of each remainder: {granted:?}");
    };
    assert!(!granted.is_empty() && granted.iter().all(|last| last.count() == 1), "it is granted: {granted:?}");
    assert_disjoint(&granted);
    assert!(matches!(exhausted, StoreError::Exhausted { .. }), "then it is exhausted: {exhausted:?}");
}

/// The tail of the newest grant is taken back by its version; the same request a second time changes nothing, also when
/// the range was granted again in between.
pub async fn a_tail_is_taken_back_once(fixture: &dyn SegmentFixture) {
    let client = fixture.segment_client(OPEN).await;
    let other = fixture.segment_client(OPEN).await;
    let tag = "contract.tail";
    let first = allocate(&client, tag, 10, 0).await;
    let tail = TailRelease { start: first.start + 4 * first.stride, version: first.version };
    let taken = expected(client.release(tag, tail).await, "giving a tail back");
    assert_eq!(taken, fixture.takes_tails_back(), "the newest grant's tail is taken back");
    if !taken {
        let next = allocate_beside(&client, tag, 10, 0, &first).await;
        assert!(next.start >= first.end, "what was not taken back stays granted");
        return;
    }
    assert!(!expected(client.release(tag, tail).await, "giving it back again"), "a resent release changes nothing");
    let again = allocate_beside(&other, tag, 10, 0, &first).await;
    assert_eq!(again.start, tail.start, "the numbers are granted again, from the tail's start on");
    assert!(again.version > first.version + 1, "the version grew with the release and the grant: {again:?}");
    assert!(!expected(client.release(tag, tail).await, "giving it back late"), "a late release changes nothing");
    let next = allocate_beside(&client, tag, 10, 0, &first).await;
    let kept = Segment { end: tail.start, ..first };
    assert_disjoint(&[kept, again, next]);

    // The whole grant, when nothing of it was used.
    let whole = TailRelease { start: next.start, version: next.version };
    assert!(expected(client.release(tag, whole).await, "giving a whole grant back"), "a whole grant is a tail too");
    assert_eq!(allocate_beside(&client, tag, 10, 0, &first).await.start, next.start, "it is granted again");

    // Two grants of one holder may be one tail; a store that cannot tell refuses.
    let tag = "contract.tail.chain";
    let first = allocate(&client, tag, 10, 0).await;
    let second = allocate_beside(&client, tag, 10, first.end, &first).await;
    let tail = TailRelease { start: first.start + 4 * first.stride, version: second.version };
    let taken = expected(client.release(tag, tail).await, "giving back a tail of two grants");
    let next = allocate_beside(&other, tag, 10, 0, &first).await;
    let expected_start = if taken { tail.start } else { second.end };
    assert_eq!(next.start, expected_start, "either all of it is taken back or nothing");
}

/// What was not granted to the caller is not taken back, whatever version is named.
pub async fn a_tail_that_was_not_granted_is_not_taken_back(fixture: &dyn SegmentFixture) {
    let client = fixture.segment_client(OPEN).await;
    let tag = "contract.foreign";
    let foreign = allocate(&client, tag, 10, 0).await;
    let own = allocate_beside(&client, tag, 10, 0, &foreign).await;
    for (start, version) in [
        (own.end, own.version),
        (own.end + 1_000, own.version),
        (u64::MAX, own.version),
        (0, own.version),
        (foreign.start, own.version),
        (foreign.end - foreign.stride, own.version),
        (own.start, foreign.version),
        (own.start, own.version + 1),
        (own.start, u64::MAX),
        (foreign.start, foreign.version),
    ] {
        let taken = expected(client.release(tag, TailRelease { start, version }).await, "a release of foreign numbers");
        assert!(!taken, "[{start}, ..) under version {version} is not to be taken back after {foreign:?}, {own:?}");
    }
    assert!(allocate_beside(&client, tag, 10, 0, &own).await.start >= own.end, "nothing was taken back");
    // A skipped stretch was never granted either.
    let skipped = allocate(&client, tag, 10, 10_000).await;
    let tail = TailRelease { start: 5_000, version: skipped.version };
    assert!(!expected(client.release(tag, tail).await, "a release of skipped numbers"), "the floor stands");
    assert!(allocate_beside(&client, tag, 10, 0, &skipped).await.start >= skipped.end, "nothing was taken back");
}

/// After a raise no grant starts below it, although a tail from before is given back later.
pub async fn a_raise_stands_against_a_late_release(fixture: &dyn SegmentFixture) {
    let client = fixture.segment_client(OPEN).await;
    let tag = "contract.raise.tail";
    let granted = allocate(&client, tag, 1_000, 0).await;
    let raised = expected(client.raise_tag(tag, 500).await, "raising a tag below its watermark");
    for version in [granted.version, raised.version] {
        let tail = TailRelease { start: granted.start + 10 * granted.stride, version };
        expected(client.release(tag, tail).await, "giving back a tail from before a raise");
    }
    let next = allocate(&client, tag, 10, 0).await;
    assert!(next.start >= 500, "a raise to 500 stands: {next:?}");
}

/// Options come back as they were given; a change replaces only the policies; a second creation is an error.
pub async fn tags_keep_their_options(fixture: &dyn SegmentFixture) {
    let client = fixture.segment_client(OPEN).await;
    let other = fixture.segment_client(OPEN).await;
    let mode = if fixture.keeps_order() { Mode::Ordered } else { Mode::Buffered };
    let adaptive = AdaptiveStep { initial: 5, min: 2, max: ID_MAX, grow_below_ms: 7, shrink_above_ms: u64::MAX };
    let given = [
        ("contract.options.default", TagOptions::default()),
        (
            "contract.options.fixed",
            TagOptions {
                start: 1_000,
                step: StepPolicy::Fixed { step: ID_MAX },
                refill: RefillPolicy::Remaining { count: u64::MAX },
                mode,
            },
        ),
        (
            "contract.options.adaptive",
            TagOptions {
                start: ID_MAX,
                step: StepPolicy::Adaptive(adaptive),
                refill: RefillPolicy::ShareConsumed { percent: 0 },
                mode: Mode::Buffered,
            },
        ),
    ];
    for (tag, options) in given {
        let record = expected(client.create_tag(tag, &options).await, "creating a tag");
        assert_eq!((record.tag.as_str(), record.options), (tag, options), "options are kept");
        assert_eq!(record.watermark, options.start - 1, "nothing is granted yet");
        assert_eq!(expected(other.open_tag(tag).await, "opening it"), record, "all clients see the same");
        let error = refused(other.create_tag(tag, &TagOptions::default()).await, "creating it again");
        assert!(matches!(error, StoreError::TagExists { .. }), "it exists: {error:?}");
        assert_eq!(expected(other.open_tag(tag).await, "opening it"), record, "a refused creation changes nothing");
    }
    let tag = "contract.options.fixed";
    let granted = allocate(&client, tag, 10, 0).await;
    let (step, refill) = (StepPolicy::Adaptive(adaptive), RefillPolicy::ShareConsumed { percent: 100 });
    let record = expected(other.change_tag(tag, step, refill).await, "changing a tag");
    let options = TagOptions { start: 1_000, step, refill, mode };
    assert_eq!(record.options, options, "step and refill are replaced, start and mode stay");
    assert_eq!(expected(client.open_tag(tag).await, "opening it"), record, "all clients see the change");
    assert!(allocate_beside(&client, tag, 10, 0, &granted).await.start >= granted.end, "a change grants nothing again");
    if !fixture.keeps_order() {
        let tag = "contract.options.ordered";
        let options = TagOptions { mode: Mode::Ordered, ..TagOptions::default() };
        let error = refused(client.create_tag(tag, &options).await, "creating an ordered tag where there is no order");
        assert!(error.is_callers_fault(), "an ordered tag is refused for good: {error:?}");
        let error = refused(client.tag(tag).await, "looking it up");
        assert!(matches!(error, StoreError::TagUnknown { .. }), "a refused tag is not created: {error:?}");
    }
}

/// A raise lifts the watermark to just below its number and never lowers it.
pub async fn a_raise_lifts_and_never_lowers(fixture: &dyn SegmentFixture) {
    let client = fixture.segment_client(OPEN).await;
    let tag = "contract.raise";
    expected(client.open_tag(tag).await, "opening a tag");
    let record = expected(client.raise_tag(tag, 1_000).await, "raising a tag");
    assert_eq!(record.watermark, 999, "the watermark is just below");
    let first = allocate(&client, tag, 10, 0).await;
    assert!((1_000..1_000 + first.stride).contains(&first.start), "the next grant starts there: {first:?}");
    let before = expected(client.open_tag(tag).await, "opening a tag");
    let record = expected(client.raise_tag(tag, 5).await, "raising a tag to where it was");
    assert_eq!(record.watermark, before.watermark, "a raise never lowers");
    assert!(allocate_beside(&client, tag, 10, 0, &first).await.start >= first.end, "nothing is granted again");
}

/// Tags are listed in ascending byte order, page by page, each once.
pub async fn tags_are_listed_in_byte_order(fixture: &dyn SegmentFixture) {
    let client = fixture.segment_client(OPEN).await;
    let prefix = "contract.list.";
    // In UTF-16, and in most collations, these are in another order.
    let mut created: Vec<TagRecord> = Vec::new();
    for name in ["b", "a", "😀", "B", "\u{fffd}", "é", "a b", "_", "10", "9"] {
        let options = TagOptions { start: 1 + created.len() as u64, ..TagOptions::default() };
        created.push(expected(client.create_tag(&format!("{prefix}{name}"), &options).await, "creating a tag"));
    }
    created.sort_by(|a, b| a.tag.as_bytes().cmp(b.tag.as_bytes()));
    for limit in [1, 3, 1_000] {
        let mut listed: Vec<TagRecord> = Vec::new();
        loop {
            let after = listed.last().map(|last| last.tag.clone());
            let page = expected(client.tags(after.as_deref(), limit).await, "listing tags");
            assert!(page.len() as u64 <= u64::from(limit), "a page holds {limit} tags at most");
            if page.is_empty() {
                break;
            }
            listed.extend(page);
        }
        let ascends = listed.is_sorted_by(|a, b| a.tag.as_bytes() < b.tag.as_bytes());
        assert!(ascends, "tags are listed in byte order, each once (pages of {limit})");
        listed.retain(|record| record.tag.starts_with(prefix));
        assert_eq!(listed, created, "all tags are listed as they are (pages of {limit})");
    }
    let after = expected(client.tags(Some("contract.list.a!"), 1).await, "listing after a tag that does not exist");
    assert_eq!(after.first().map(|record| record.tag.as_str()), Some("contract.list.b"), "the list goes on after it");
    let none = expected(client.tags(None, 0).await, "listing no tags");
    assert!(none.is_empty(), "a limit of 0 lists nothing");
    expected(client.check().await, "a readiness check");
}

/// A request that its caller drops anywhere in the middle costs numbers at most, and the store goes on.
pub async fn an_abandoned_request_costs_only_numbers(fixture: &dyn SegmentFixture) {
    let client = fixture.segment_client(OPEN).await;
    let tag = "contract.abandon";
    let mut granted = Vec::new();
    for polls in 1..=15 {
        if let Some(answer) = abandoned_after(polls, client.allocate(tag, 10, 0)).await {
            granted.push(checked(expected(answer, "a request that was not dropped"), 10, 0));
        }
        granted.push(allocate(&client, tag, 10, 0).await);
        assert_disjoint(&granted);
        let new = format!("contract.abandon.{polls}");
        let _ = abandoned_after(polls, client.open_tag(&new)).await;
        allocate(&client, &new, 1, 0).await;
        let _ = abandoned_after(polls, client.check()).await;
        let _ = abandoned_after(polls, client.tags(None, 100)).await;
    }
    expected(client.check().await, "a readiness check");
}

/// No tag is created beyond the limit; those that exist go on.
pub async fn the_tag_limit_holds(fixture: &dyn SegmentFixture) {
    let open = fixture.segment_client(OPEN).await;
    let listed = expected(open.tags(None, 100_000).await, "listing tags");
    let tags = listed.iter().filter(|record| split_tag(&record.tag).1.is_none()).count() as u64;
    let limited = fixture.segment_client(TagCreation { on_first_use: true, tags_max: tags + 2 }).await;
    expected(limited.open_tag("contract.limit.1").await, "opening a tag below the limit");
    allocate(&limited, "contract.limit.2", 1, 0).await;
    let (options, tag) = (TagOptions::default(), "contract.limit.3");
    for (what, error) in [
        ("open_tag", limited.open_tag(tag).await.err()),
        ("allocate", limited.allocate(tag, 1, 0).await.err()),
        ("create_tag", limited.create_tag(tag, &options).await.err()),
    ] {
        let at_limit = matches!(&error, Some(StoreError::TagLimit { tags_max, .. }) if *tags_max == tags + 2);
        assert!(at_limit, "{what} stops at the limit: {error:?}");
    }
    allocate(&limited, "contract.limit.2", 1, 0).await;
    expected(limited.open_tag("contract.limit.1").await, "opening a tag that exists");
    let error = refused(limited.create_tag("contract.limit.1", &options).await, "creating a tag that exists");
    assert!(matches!(error, StoreError::TagExists { .. }), "that it exists is the more useful answer: {error:?}");
    allocate(&open, tag, 1, 0).await;
}

/// After a restart grants go on above all that was granted, and tags are as they were.
pub async fn a_restart_repeats_nothing(fixture: &dyn SegmentFixture) {
    let tag = "contract.restart";
    let client = fixture.segment_client(OPEN).await;
    let mode = if fixture.keeps_order() { Mode::Ordered } else { Mode::Buffered };
    let options = TagOptions { start: 100, mode, ..TagOptions::default() };
    expected(client.create_tag(tag, &options).await, "creating a tag");
    let mut granted = Vec::new();
    for _ in 0..5 {
        granted.push(allocate(&client, tag, 10, 0).await);
    }
    let before = expected(client.open_tag(tag).await, "opening a tag");
    drop(client);
    fixture.restart().await;
    let client = fixture.segment_client(OPEN).await;
    assert_eq!(expected(client.open_tag(tag).await, "opening a tag"), before, "a restart changes nothing");
    granted.push(allocate(&client, tag, 10, 0).await);
    assert_disjoint(&granted);
}

/// A sub-key of a tag has numbers of its own and the options of its tag, also where first use creates no tags. It takes
/// no tag's place.
pub async fn sub_keys_have_the_options_of_their_tag(fixture: &dyn SegmentFixture) {
    let open = fixture.segment_client(OPEN).await;
    let closed = fixture.segment_client(CLOSED).await;
    let name = |tag: &str, sub: &str| expected(sub_tag(tag, sub), "naming a sub-key");
    let tag = "contract.sub";
    let options = TagOptions { start: 100, step: StepPolicy::Fixed { step: 7 }, ..TagOptions::default() };
    expected(open.create_tag(tag, &options).await, "creating a tag");
    for sub in ["a", "A", "ä"] {
        let first = allocate(&closed, &name(tag, sub), 10, 0).await;
        assert!((100..100 + first.stride).contains(&first.start), "{sub:?} starts where its tag does: {first:?}");
    }
    let record = expected(closed.open_tag(&name(tag, "b")).await, "opening a sub-key");
    assert_eq!((record.tag, record.options, record.watermark), (name(tag, "b"), options, 99), "it is a row of its own");
    let record = expected(open.tag(tag).await, "looking the tag up");
    assert_eq!(record.watermark, 99, "its sub-keys take none of a tag's numbers");

    let orphan = name("contract.sub.none", "a");
    let error = refused(closed.allocate(&orphan, 1, 0).await, "a sub-key of an unknown tag");
    assert!(matches!(error, StoreError::TagUnknown { .. }), "there is no such tag: {error:?}");
    let error = refused(closed.open_tag(&orphan).await, "a sub-key of an unknown tag");
    assert!(matches!(error, StoreError::TagUnknown { .. }), "there is no such tag: {error:?}");
    let first = allocate(&open, &orphan, 1, 0).await;
    assert!(first.start <= first.stride, "where first use creates tags, it creates this one: {first:?}");
    expected(closed.tag("contract.sub.none").await, "looking up a tag that its sub-key created");
    let full = fixture.segment_client(TagCreation { tags_max: 0, ..OPEN }).await;
    allocate(&full, &name(tag, "c"), 1, 0).await;
    expected(full.open_tag(&name(tag, "d")).await, "opening a sub-key where no more tags are created");
    let error = refused(full.allocate(&name("contract.sub.full", "a"), 1, 0).await, "a sub-key of one tag too many");
    assert!(matches!(error, StoreError::TagLimit { .. }), "its tag is not created: {error:?}");
    for tag in ["contract.sub\u{1f}", "\u{1f}a", "contract.sub\u{1f}a\u{1f}b"] {
        let error = refused(open.allocate(tag, 1, 0).await, "a sub-key that is not a name");
        assert!(matches!(error, StoreError::TagInvalid { .. }), "{tag:?} is refused: {error:?}");
    }
}

/// A tag that was ended grants nothing any more, to nobody; its record from before says where numbers can go on.
pub async fn an_ended_tag_grants_nothing(fixture: &dyn SegmentFixture) {
    let client = fixture.segment_client(OPEN).await;
    let other = fixture.segment_client(OPEN).await;
    let tag = "contract.end";
    let error = refused(client.retire_tag(tag).await, "ending an unknown tag");
    assert!(matches!(error, StoreError::TagUnknown { .. }), "there is no such tag: {error:?}");
    let granted = allocate(&client, tag, 10, 0).await;
    let before = expected(client.tag(tag).await, "looking a tag up");
    let ended = expected(other.retire_tag(tag).await, "ending a tag");
    assert_eq!(ended, before, "the record is as it was");
    assert!(ended.watermark >= granted.end - granted.stride, "nothing above its watermark was granted: {ended:?}");

    let tail = TailRelease { start: granted.start, version: granted.version };
    assert!(!expected(client.release(tag, tail).await, "giving a tail back"), "no tail is taken back after the end");
    expected(client.raise_tag(tag, 1_000).await, "raising an ended tag");
    expected(client.change_tag(tag, StepPolicy::default(), RefillPolicy::default()).await, "changing an ended tag");
    for client in [&client, &other, &fixture.segment_client(OPEN).await] {
        for at_least in [0, granted.end, ID_MAX] {
            let error = refused(client.allocate(tag, 1, at_least).await, "a grant of an ended tag");
            assert!(matches!(error, StoreError::Exhausted { .. }), "it has no numbers: {error:?}");
        }
    }
    // Its sub-keys continue where the tag does, also those that nobody has used yet. Some stores have none.
    let new = expected(sub_tag(tag, "new"), "naming a sub-key");
    for client in [&client, &other, &fixture.segment_client(OPEN).await] {
        for _ in 0..2 {
            let error = refused(client.allocate(&new, 1, 0).await, "a grant of a new sub-key of an ended tag");
            assert!(is_end(&error), "it ended with its tag: {error:?}");
        }
    }
    let error = refused(client.create_tag(&new, &ended.options).await, "creating a sub-key of an ended tag");
    assert!(!error.is_retryable(), "it ended with its tag: {error:?}");
    expected(client.retire_tag(tag).await, "ending it again");
}

/// Whoever lists the sub-keys of a tag after its end sees all that there will ever be, however many others are making
/// some.
pub async fn no_sub_key_is_made_after_the_end_of_its_tag(fixture: &dyn SegmentFixture) {
    const ROUNDS: u32 = 10;
    const CLIENTS: u32 = 4;
    const SUB_KEYS_MAX: u32 = 100;
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(fixture.segment_client(OPEN).await);
    }
    let ending = fixture.segment_client(OPEN).await;
    for round in 0..ROUNDS {
        let tag = format!("contract.end.race.{round}");
        expected(ending.open_tag(&tag).await, "opening a tag");
        let (first, begun) = oneshot::channel();
        let (mut first, mut making) = (Some(first), Vec::new());
        for (number, client) in clients.iter().enumerate() {
            let (client, tag, mut first) = (Arc::clone(client), tag.clone(), first.take());
            making.push(tokio::spawn(async move {
                let mut made = Vec::new();
                for sub in 0..SUB_KEYS_MAX {
                    let name = expected(sub_tag(&tag, &format!("{number}.{sub}")), "naming a sub-key");
                    match client.allocate(&name, 1, 0).await {
                        Ok(_) => made.push(name),
                        // It ended, or the store has none.
                        Err(error) if is_end(&error) => break,
                        Err(error) => assert!(error.is_retryable(), "a race is no reason to fail: {error:?}"),
                    }
                    if let Some(first) = first.take() {
                        let _ = first.send(());
                    }
                }
                made
            }));
        }
        // Now they are at it; or there are none.
        let _ = begun.await;
        while let Err(error) = ending.retire_tag(&tag).await {
            assert!(error.is_retryable(), "a race is no reason to fail: {error:?}");
        }
        let listed = expected(ending.tags(Some(&tag), 1_000).await, "listing its sub-keys");
        let listed: BTreeSet<_> = listed.into_iter().map(|record| record.tag).collect();
        for making in making {
            for name in making.await.unwrap_or_else(|error| panic!("a client failed: {error}")) {
                assert!(listed.contains(&name), "{name:?} was made after the end of its tag: {listed:?}");
            }
        }
    }
}

fn is_end(error: &StoreError) -> bool {
    matches!(error, StoreError::Exhausted { .. } | StoreError::TagInvalid { .. } | StoreError::Refused { .. })
}

/// A store that is one of several grants only to those who know it, and remembers its place. Runs in a store that has
/// never granted anything, and leaves it standing alone.
pub async fn a_stripe_grants_only_to_those_who_joined_it(fixture: &dyn SegmentFixture) -> StripeNumbers {
    let tag = "contract.stripe";
    let stripe = Stripe { set: 1 << 127 | 5, index: 1, count: 3 };
    let client = fixture.segment_client(OPEN).await;
    let other = fixture.segment_client(OPEN).await;
    assert_eq!(expected(client.stripe().await, "asking for the place"), None, "a new store stands alone");
    for bad in [
        Stripe { set: 0, ..stripe },
        Stripe { index: 3, ..stripe },
        Stripe { index: 0, count: 1, ..stripe },
        Stripe { count: Stripe::COUNT_MAX + 1, ..stripe },
    ] {
        assert_refused(client.join_stripe(&bad).await, "a place that does not exist");
        assert_refused(client.restripe(None, Some(&bad)).await, "a place that does not exist");
    }
    assert_eq!(expected(client.stripe().await, "asking for the place"), None, "what was refused is not recorded");

    let joined = expected(client.join_stripe(&stripe).await, "joining as the first");
    let numbers = joined.numbers;
    assert_eq!(expected(other.stripe().await, "asking for the place"), Some(stripe), "all clients see the place");
    let is_ours = |segment: &Segment| match numbers {
        StripeNumbers::Counted => segment.stride == 1,
        StripeNumbers::Strided => segment.stride.is_multiple_of(3) && segment.start % 3 == 2,
    };
    let mut granted = vec![allocate(&joined.store, tag, 10, 0).await];
    // Whoever goes on with the client that it was joined through counts as before.
    assert_refused(client.allocate(tag, 10, 0).await, "a grant to the client that another one joined through");
    assert_refused(other.allocate(tag, 10, 0).await, "a grant to a client that did not join");
    for another in [Stripe { set: 6, ..stripe }, Stripe { index: 0, ..stripe }, Stripe { count: 2, ..stripe }] {
        assert_refused(other.join_stripe(&another).await, "joining a store as what it is not");
    }
    assert_refused(other.allocate(tag, 10, 0).await, "a grant after a refused joining");
    let second = expected(other.join_stripe(&stripe).await, "joining as the second");
    assert_eq!(second.numbers, numbers);
    granted.push(allocate(&second.store, tag, 10, 0).await);
    let again = expected(joined.store.join_stripe(&stripe).await, "joining again");
    granted.push(allocate(&again.store, tag, 10, 0).await);
    granted.push(allocate(&joined.store, tag, 10, 0).await);
    drop((client, other, joined, second, again));
    fixture.restart().await;

    let client = fixture.segment_client(OPEN).await;
    assert_eq!(expected(client.stripe().await, "asking for the place"), Some(stripe), "a restart forgets no place");
    assert_refused(client.allocate(tag, 10, 0).await, "a grant to a client that did not join");
    let joined = expected(client.join_stripe(&stripe).await, "joining after a restart").store;
    granted.push(allocate(&joined, tag, 10, 0).await);
    assert!(granted.iter().all(is_ours), "numbers are of the stripe: {granted:?}");

    // Resized: who joined before is granted nothing, until it joins the new place.
    let other = fixture.segment_client(OPEN).await;
    let moved = Stripe { set: 7, index: 0, count: 2 };
    for another in [None, Some(&moved), Some(&Stripe { index: 0, ..stripe })] {
        assert_not_changed(other.restripe(another, Some(&moved)).await, Some(stripe));
        assert_eq!(expected(client.stripe().await, "asking for the place"), Some(stripe), "another one was expected");
    }
    expected(other.restripe(Some(&stripe), Some(&moved)).await, "recording another place");
    assert_not_changed(client.restripe(Some(&stripe), None).await, Some(moved));
    assert_not_changed(client.restripe(None, None).await, Some(moved));
    for client in [&*client, &*other, &*joined] {
        assert_eq!(expected(client.stripe().await, "asking for the place"), Some(moved), "the place is another");
        let error = assert_refused(client.allocate(tag, 10, 0).await, "a grant to one who did not join the new place");
        assert!(!error.may_have_granted(), "nothing was granted: {error:?}");
        assert_refused(client.allocate("contract.stripe.new", 10, 0).await, "a grant under a new tag");
        assert_refused(client.join_stripe(&stripe).await, "joining the old place");
        assert_refused(client.raise_tag(tag, 1_000).await, "raising a tag by one who counts otherwise");
        assert_refused(client.retire_tag(tag).await, "ending a tag by one who counts otherwise");
    }
    if numbers == StripeNumbers::Counted {
        // Through the client that used the old place: that one is still refused.
        let moved = expected(joined.join_stripe(&moved).await, "joining the new place").store;
        granted.push(allocate(&moved, tag, 10, 0).await);
        assert_refused(joined.allocate(tag, 10, 0).await, "a grant to a client of the old place");
    }
    expected(other.restripe(Some(&moved), None).await, "making it stand alone");
    assert_eq!(expected(client.stripe().await, "asking for the place"), None, "it stands alone");
    if numbers == StripeNumbers::Counted {
        assert_refused(joined.allocate(tag, 10, 0).await, "a grant to one who joined");
    }
    let alone = fixture.segment_client(OPEN).await;
    granted.push(allocate(&alone, tag, 10, 0).await);
    assert_disjoint(&granted);
    assert_refused(alone.join_stripe(&stripe).await, "making a stripe of a store that was used alone");
    assert_eq!(expected(alone.stripe().await, "asking for the place"), None, "it stands alone");
    numbers
}

/// A name that is new begins above the floor of new names, whoever creates it and however; one that exists goes on.
pub async fn new_names_begin_above_their_floor(fixture: &dyn SegmentFixture) {
    let client = fixture.segment_client(OPEN).await;
    let old = "contract.floor.old";
    let before = allocate(&client, old, 10, 0).await;
    let floor = expected(client.create_tag(KEPT_FLOOR, &TagOptions::default()).await, "making the floor");
    assert_eq!(floor.watermark, 0, "it is 0 at first");
    assert_eq!(allocate(&client, "contract.floor.none", 10, 0).await.start, 1, "nothing is lifted by 0");
    expected(client.raise_tag(KEPT_FLOOR, 1_001).await, "lifting the floor");
    drop(client);
    fixture.restart().await;

    let client = fixture.segment_client(OPEN).await;
    assert_eq!(allocate(&client, old, 10, 0).await.start, before.end, "what exists goes on");
    let late = TagOptions { start: 500, ..TagOptions::default() };
    let created = expected(client.create_tag("contract.floor.created", &late).await, "creating a tag");
    assert_eq!((created.options, created.watermark), (late, 1_499), "a record says how far it is");
    assert_eq!(expected(client.tag("contract.floor.created").await, "reading it"), created);
    assert_eq!(allocate(&client, "contract.floor.created", 10, 0).await.start, 1_500);
    let sub = |tag: &str| expected(sub_tag(tag, "user"), "a name");
    for name in [sub(old), sub("contract.floor.created"), "contract.floor.used".to_owned(), sub("contract.floor.both")]
    {
        let start = if name.starts_with("contract.floor.created") { 1_500 } else { 1_001 };
        assert_eq!(allocate(&client, &name, 10, 0).await.start, start, "{name:?}");
    }
    let several = [("contract.floor.several".to_owned(), late), (sub("contract.floor.several"), late)];
    if let Some(created) = expected(client.create_tags(&several).await, "creating tags in one step") {
        for (record, (tag, options)) in created.iter().zip(&several) {
            assert_eq!((&record.tag, record.options, record.watermark), (tag, *options, 1_499));
            assert_eq!(allocate(&client, tag, 10, 0).await.start, 1_500, "{tag:?}");
        }
    }
    let opened = expected(client.open_tag("contract.floor.opened").await, "opening a tag");
    assert_eq!((opened.options.start, opened.watermark), (1, 1_000));
    // Milliseconds are not ids.
    for time in [format!("{KEPT_LEASES}\u{1f}contract"), format!("{old}\u{1f}{KEPT_CLOCK}9")] {
        assert_eq!(expected(client.open_tag(&time).await, "opening a time").watermark, 0, "{time:?}");
    }

    expected(client.raise_tag(KEPT_FLOOR, ID_MAX).await, "lifting the floor");
    let last = allocate(&client, "contract.floor.last", 10, 0).await;
    assert_eq!((last.start, last.count()), (ID_MAX, 1), "one number is left");
    for (name, floor) in [("contract.floor.beyond", ID_MAX - 1), ("contract.floor.full", ID_MAX)] {
        if floor == ID_MAX {
            expected(client.retire_tag(KEPT_FLOOR).await, "ending the floor");
        }
        let created = expected(client.create_tag(name, &late).await, "creating a tag for which no number is left");
        assert_eq!((created.options.start, created.watermark), (500, ID_MAX));
        let error = refused(client.allocate(name, 1, 0).await, "a grant where no number is left");
        assert!(matches!(error, StoreError::Exhausted { .. }), "{error:?}");
    }
}

/// What is bound of a format stays, also over a restart, until somebody who knows it binds another; of several that
/// come first at once, one is.
pub async fn what_is_bound_of_a_format_stays(fixture: &dyn SegmentFixture) {
    let none_created = TagCreation { on_first_use: false, tags_max: 1 };
    let client = fixture.segment_client(none_created).await;
    let (owner, shape) = (FormatOwner::Tag("contract.format"), FormatPart::Shape);
    let bound = |answer: Result<Option<u64>, StoreError>| expected(answer, "binding a format");
    let look = FormatBinding::Look;
    assert_eq!(bound(client.bind_format(owner, shape, look).await), None, "nothing is bound at first");
    let first = bound(client.bind_format(owner, shape, FormatBinding::First(ID_MAX)).await);
    if !client.keeps_formats() {
        assert_eq!(first, None);
        return;
    }
    assert_eq!(first, Some(ID_MAX));
    assert_eq!(bound(client.bind_format(owner, shape, FormatBinding::First(1)).await), first);
    let others = [
        (owner, FormatPart::Key { id: 1, bits: 24 }),
        (FormatOwner::Snowflake("contract.format"), shape),
        (FormatOwner::Tag("f"), shape),
    ];
    for ((owner, part), number) in others.into_iter().zip([1, 2, 1 << 62]) {
        assert_eq!(bound(client.bind_format(owner, part, look).await), None, "{owner} {part:?}");
        assert_eq!(bound(client.bind_format(owner, part, FormatBinding::First(number)).await), Some(number));
    }
    let unknown = client.tag("contract.format").await;
    assert!(matches!(unknown, Err(StoreError::TagUnknown { .. })), "no tag is made of it: {unknown:?}");

    let longest = "x".repeat(NAME_LEN_MAX);
    let crowd = (1..=8).map(|number| {
        let longest = &longest;
        async move {
            let client = fixture.segment_client(none_created).await;
            client.bind_format(FormatOwner::Tag(longest), shape, FormatBinding::First(number)).await
        }
    });
    let answers: Vec<Option<u64>> = join_all(crowd).await.into_iter().map(bound).collect();
    assert!(
        answers.iter().all(|answer| answer.is_some() && answers.first() == Some(answer)),
        "one of them is bound: {answers:?}"
    );

    drop(client);
    fixture.restart().await;
    let client = fixture.segment_client(none_created).await;
    assert_eq!(bound(client.bind_format(owner, shape, FormatBinding::First(1)).await), first);
    for number in [5, ID_MAX, 7] {
        assert_eq!(bound(client.bind_format(owner, shape, FormatBinding::Always(number)).await), Some(number));
        assert_eq!(bound(client.bind_format(owner, shape, FormatBinding::First(1)).await), Some(number));
    }
}

#[track_caller]
fn assert_not_changed(result: Result<(), StoreError>, is: Option<Stripe>) {
    let error = refused(result, "a change of the place that expects another one");
    assert!(matches!(error, StoreError::PlaceChanged { recorded, .. } if recorded == is), "{error:?}");
}

/// The refusal, or a panic.
fn assert_refused<T: std::fmt::Debug>(result: Result<T, StoreError>, what: &str) -> StoreError {
    let error = refused(result, what);
    assert!(matches!(error, StoreError::Refused { .. }), "{what} is refused: {error:?}");
    error
}
