//! The promises of a [`SegmentStore`], one by one.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{SegmentFixture, abandoned_after, expected, refused};
use crate::{
    AdaptiveStep, ID_MAX, Mode, RefillPolicy, Segment, SegmentStore, StepPolicy, StoreError, TagCreation, TagOptions,
    TagRecord, TailRelease,
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

/// Panics if two grants of one tag have a number in common.
fn assert_disjoint(segments: &[Segment]) {
    // Numbers of one remainder are an interval; other remainders of the same stride never meet.
    let mut remainders: BTreeMap<(u64, u64, u64), Vec<Segment>> = BTreeMap::new();
    for segment in segments {
        let remainder = segment.start.checked_rem(segment.stride).unwrap_or_default();
        remainders.entry((segment.generation, segment.stride, remainder)).or_default().push(*segment);
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

/// The first number of a new tag is 1, or the start that it was created with; numbers go on from there.
pub async fn the_first_number_is_the_start(fixture: &dyn SegmentFixture) {
    let client = fixture.segment_client(OPEN).await;
    let first = allocate(&client, "contract.first", 3, 0).await;
    assert!(first.start <= first.stride, "the first number is 1 (in stripes: the stripe's): {first:?}");
    let second = allocate(&client, "contract.first", 3, 0).await;
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
    let mut before = expected(client.open_tag("contract.ascend").await, "opening a tag").version;
    let (mut end, mut stride) = (1, 1);
    for count in [1, 2, 1_000, 1, 1_000_000_000, 1 << 53, 7] {
        let segment = allocate(&client, "contract.ascend", count, 0).await;
        assert!(segment.start >= end, "starts ascend: {segment:?} after {end}");
        if fixture.takes_tails_back() {
            assert!(segment.version > before, "the version grows with every grant: {segment:?} after {before}");
        }
        (end, stride, before) = (segment.end, segment.stride, segment.version);
    }
    let record = expected(client.open_tag("contract.ascend").await, "opening a tag");
    assert!(record.watermark >= end - stride, "nothing above the watermark was granted: {record:?}, {end}");
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
                    let last_end = granted.last().map_or(1, |last| last.end);
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
    let below = allocate(&client, "contract.floor", 10, 500).await;
    assert!(below.start >= skipped.end, "a lower floor leads nowhere back: {below:?} after {skipped:?}");
    let new = allocate(&client, "contract.floor.new", 10, 77).await;
    assert!((77..77 + new.stride).contains(&new.start), "a new tag skips too: {new:?}");
    assert_disjoint(&[first, skipped, below]);
}

/// Each tag has numbers of its own; names that look alike are different tags.
pub async fn tags_are_independent(fixture: &dyn SegmentFixture) {
    let client = fixture.segment_client(OPEN).await;
    // Letter case, accents, composed and decomposed, and a space at the end: collations of databases equate them.
    let names = ["a", "A", "ä", "a\u{308}", "a ", " a", "ａ", "ss", "ß"];
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
        let second = allocate(&client, tag, 5, 0).await;
        assert!(first.start <= first.stride && second.start == first.end, "{tag:?} is a tag of its own");
        let record = expected(client.open_tag(tag).await, "opening a tag");
        assert_eq!(record.tag, tag, "a name comes back as it was");
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
    let numbers: u64 = granted.iter().map(Segment::count).sum();
    let stride = granted.first().map_or(1, |segment| segment.stride);
    assert!(numbers == 10_000_u64.div_ceil(stride) || numbers == 10_000 / stride, "all were granted: {numbers}");
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
    let last = allocate(&client, tag, u64::MAX, ID_MAX - first.stride + 1).await;
    assert!(last.count() == 1 && last.start <= ID_MAX, "the last number is granted: {last:?}");
    let error = refused(client.allocate(tag, 1, 0).await, "a grant beyond the last");
    assert!(matches!(error, StoreError::Exhausted { .. }), "it is exhausted: {error:?}");
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
        assert!(allocate(&client, tag, 10, 0).await.start >= first.end, "what was not taken back stays granted");
        return;
    }
    assert!(!expected(client.release(tag, tail).await, "giving it back again"), "a resent release changes nothing");
    let again = allocate(&other, tag, 10, 0).await;
    assert_eq!(again.start, tail.start, "the numbers are granted again, from the tail's start on");
    assert!(again.version > first.version + 1, "the version grew with the release and the grant: {again:?}");
    assert!(!expected(client.release(tag, tail).await, "giving it back late"), "a late release changes nothing");
    let next = allocate(&client, tag, 10, 0).await;
    let kept = Segment { end: tail.start, ..first };
    assert_disjoint(&[kept, again, next]);

    // The whole grant, when nothing of it was used.
    let whole = TailRelease { start: next.start, version: next.version };
    assert!(expected(client.release(tag, whole).await, "giving a whole grant back"), "a whole grant is a tail too");
    assert_eq!(allocate(&client, tag, 10, 0).await.start, next.start, "it is granted again");

    // Two grants of one holder may be one tail; a store that cannot tell refuses.
    let tag = "contract.tail.chain";
    let first = allocate(&client, tag, 10, 0).await;
    let second = allocate(&client, tag, 10, first.end).await;
    let tail = TailRelease { start: first.start + 4 * first.stride, version: second.version };
    let taken = expected(client.release(tag, tail).await, "giving back a tail of two grants");
    let next = allocate(&other, tag, 10, 0).await;
    let expected_start = if taken { tail.start } else { second.end };
    assert_eq!(next.start, expected_start, "either all of it is taken back or nothing");
}

/// What was not granted to the caller is not taken back, whatever version is named.
pub async fn a_tail_that_was_not_granted_is_not_taken_back(fixture: &dyn SegmentFixture) {
    let client = fixture.segment_client(OPEN).await;
    let tag = "contract.foreign";
    let foreign = allocate(&client, tag, 10, 0).await;
    let own = allocate(&client, tag, 10, 0).await;
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
    assert!(allocate(&client, tag, 10, 0).await.start >= own.end, "nothing was taken back");
    // A skipped stretch was never granted either.
    let skipped = allocate(&client, tag, 10, 10_000).await;
    let tail = TailRelease { start: 5_000, version: skipped.version };
    assert!(!expected(client.release(tag, tail).await, "a release of skipped numbers"), "the floor stands");
    assert!(allocate(&client, tag, 10, 0).await.start >= skipped.end, "nothing was taken back");
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

/// Options come back as they were given; a change replaces the policies alone; a second creation is an error.
pub async fn tags_keep_their_options(fixture: &dyn SegmentFixture) {
    let client = fixture.segment_client(OPEN).await;
    let other = fixture.segment_client(OPEN).await;
    let adaptive = AdaptiveStep { initial: 5, min: 2, max: ID_MAX, grow_below_ms: 7, shrink_above_ms: u64::MAX };
    let given = [
        ("contract.options.default", TagOptions::default()),
        (
            "contract.options.fixed",
            TagOptions {
                start: 1_000,
                step: StepPolicy::Fixed { step: ID_MAX },
                refill: RefillPolicy::Remaining { count: u64::MAX },
                mode: Mode::Ordered,
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
    let options = TagOptions { start: 1_000, step, refill, mode: Mode::Ordered };
    assert_eq!(record.options, options, "step and refill are replaced, start and mode stay");
    assert_eq!(expected(client.open_tag(tag).await, "opening it"), record, "all clients see the change");
    assert!(allocate(&client, tag, 10, 0).await.start >= granted.end, "a change grants nothing again");
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
    assert!(allocate(&client, tag, 10, 0).await.start >= first.end, "nothing is granted again");
}

/// Tags are listed in ascending byte order, page by page, each once.
pub async fn tags_are_listed_in_byte_order(fixture: &dyn SegmentFixture) {
    let client = fixture.segment_client(OPEN).await;
    let prefix = "contract.list.";
    // In UTF-16, and in most collations, these are in another order.
    let mut created: Vec<TagRecord> = Vec::new();
    for name in ["b", "a", "😀", "B", "\u{fffd}", "é", "a ", "_", "10", "9"] {
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
    assert_eq!(after.first().map(|record| record.tag.as_str()), Some("contract.list.b"), "the list goes on behind it");
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
    let tags = expected(open.tags(None, 100_000).await, "listing tags").len() as u64;
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
    let options = TagOptions { start: 100, mode: Mode::Ordered, ..TagOptions::default() };
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
