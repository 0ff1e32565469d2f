//! What an open tag takes of the memory: hundreds of thousands of them are kept open.
#![expect(clippy::unwrap_used, reason = "a test that cannot do its work fails")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use unalike::storage::{Segment, SegmentStore, StoreError, TagOptions, TagRecord, TailRelease};
use unalike::{Ids, RefillPolicy, SequenceOptions, StepPolicy};
use unalike_tests::process::alone;

const TAGS: u64 = 100_000;

/// Around the component: the name, the run in hand, what hears of answers, and the place in a lane.
const ALLOCATED_BYTES_MAX: u64 = 672;
/// In all, as the system sees it, with what the component and the tables of its handles take.
const RESIDENT_BYTES_MAX: u64 = 1_024;

/// Counts what is allocated outside the component.
struct Counting;

static ALLOCATED: AtomicU64 = AtomicU64::new(0);

#[expect(unsafe_code, reason = "an allocator that counts")]
// SAFETY: all of it is the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: as the caller has it.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: as the caller has it.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Grants whatever is asked for, and remembers nothing: what grows is the library alone.
struct Forgetful;

#[async_trait]
impl SegmentStore for Forgetful {
    async fn allocate(&self, _: &str, count: u64, at_least: u64) -> Result<Segment, StoreError> {
        let start = at_least.max(1);
        Ok(Segment { start, end: start + count, stride: 1, generation: 0, version: 1 })
    }

    async fn release(&self, _: &str, _: TailRelease) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn open_tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        let (tag, options) = (tag.to_owned(), TagOptions::default());
        Ok(TagRecord { tag, options, watermark: 0, version: 0 })
    }

    async fn tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        self.open_tag(tag).await
    }

    async fn create_tag(&self, tag: &str, _: &TagOptions) -> Result<TagRecord, StoreError> {
        self.open_tag(tag).await
    }

    async fn change_tag(&self, tag: &str, _: StepPolicy, _: RefillPolicy) -> Result<TagRecord, StoreError> {
        self.open_tag(tag).await
    }

    async fn raise_tag(&self, tag: &str, _: u64) -> Result<TagRecord, StoreError> {
        self.open_tag(tag).await
    }

    async fn tags(&self, _: Option<&str>, _: u32) -> Result<Vec<TagRecord>, StoreError> {
        Ok(Vec::new())
    }

    async fn check(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4_096
}

#[test]
fn an_open_tag_takes_no_more_than_it_needs() {
    alone(module_path!(), "an_open_tag_takes_no_more_than_it_needs", || {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(open_many());
    });
}

async fn open_many() {
    let ids = Ids::builder().segments(Arc::new(Forgetful)).lanes(1).build().await.unwrap();
    let open = async |from: u64, to: u64| {
        for number in from..to {
            let sequence = ids.sequence(&format!("tag-{number:06}"), SequenceOptions::default()).await.unwrap();
            assert_eq!(sequence.next().await.unwrap(), 1);
        }
    };
    // What is there once is there.
    open(0, 1_000).await;
    let (before, allocated) = (resident_bytes(), ALLOCATED.load(Ordering::Relaxed));
    open(1_000, 1_000 + TAGS).await;
    let each = (resident_bytes() - before) / TAGS;
    let allocated = (ALLOCATED.load(Ordering::Relaxed) - allocated) / TAGS;
    println!("{each} bytes for each open tag, {allocated} of them allocated outside the component");
    assert!(allocated <= ALLOCATED_BYTES_MAX, "{allocated} bytes are allocated for each open tag");
    assert!(each <= RESIDENT_BYTES_MAX, "{each} bytes for each open tag");
}
