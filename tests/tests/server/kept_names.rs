//! What the product keeps for itself among the tags of a store: no request, command, configuration or program names it,
//! and what concerns all tags passes it by.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use serde_json::json;
use tempfile::TempDir;
use unalike::{Clock, ErrorKind, Ids, SequenceOptions, SystemClock};
use unalike_memory::{MemoryOptions, MemoryStore};
use unalike_mysql::{MysqlOptions, MysqlStore};
use unalike_storage::{
    ID_MAX, KEPT_FLOOR, PublicTags, RefillPolicy, SegmentStore, StepPolicy, StoreError, TagCreation, TagOptions,
    TailRelease, is_kept, resize_stripes, sub_tag,
};
use unalike_tests::mariadb::MariaDb;
use unalike_tests::server::{Server, run, run_with};

/// The names, as stores have them: time for leases, and for ids by Redis' clock. Not the floor of new names.
fn kept() -> [String; 3] {
    let sub = |tag, sub| sub_tag(tag, sub).unwrap();
    ["redis-leases".to_owned(), sub("redis-leases", "default"), sub("order", "redis-clock:60")]
}

/// As Redis' adapters do it.
async fn grant_time(store: &dyn SegmentStore) {
    store.open_tag("order").await.unwrap();
    for name in kept() {
        store.open_tag(&name).await.unwrap();
        store.allocate(&name, 1_000, 1_700_000_000_000).await.unwrap();
    }
}

#[track_caller]
fn invalid<T: std::fmt::Debug>(result: Result<T, StoreError>) {
    let error = result.unwrap_err();
    assert!(matches!(&error, StoreError::TagInvalid { .. }) && error.is_callers_fault(), "{error:?}");
    assert!(error.to_string().contains("use another"), "{error}");
}

async fn a_public_store_has_no_kept_names(store: Arc<dyn SegmentStore>) {
    grant_time(&*store).await;
    let public = PublicTags::new(Arc::clone(&store));
    store.create_tag(KEPT_FLOOR, &TagOptions::default()).await.unwrap();
    for name in kept().into_iter().chain([KEPT_FLOOR.to_owned()]) {
        let before = store.tag(&name).await.unwrap();
        invalid(public.allocate(&name, 1, 0).await);
        invalid(public.release(&name, TailRelease { start: 1_700_000_000_500, version: before.version }).await);
        invalid(public.open_tag(&name).await);
        invalid(public.tag(&name).await);
        invalid(public.create_tag(&name, &TagOptions::default()).await);
        invalid(public.change_tag(&name, StepPolicy::default(), RefillPolicy::default()).await);
        invalid(public.raise_tag(&name, ID_MAX).await);
        invalid(public.retire_tag(&name).await);
        invalid(public.ceiling(&name).await);
        invalid(public.beyond_record(&name).await);
        assert_eq!(store.tag(&name).await.unwrap(), before, "{name:?}");
    }
    public.open_tag("zebra").await.unwrap();
    for limit in [1, 2, 100] {
        let mut listed = Vec::new();
        loop {
            let page = public.tags(listed.last().map(String::as_str), limit).await.unwrap();
            if page.is_empty() {
                break;
            }
            listed.extend(page.into_iter().map(|record| record.tag));
        }
        assert_eq!(listed, ["order", "zebra"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn in_every_store_they_are_out_of_reach() {
    a_public_store_has_no_kept_names(Arc::new(MemoryStore::default())).await;
    let directory = TempDir::new().unwrap();
    let file = unalike_tests::sqlite::open(&directory.path().join("ids.sqlite")).await.unwrap();
    a_public_store_has_no_kept_names(Arc::new(file)).await;
    let server = MariaDb::start().unwrap();
    let url = server.database().unwrap();
    let database = MysqlStore::connect(MysqlOptions::from_url(&url).unwrap()).await.unwrap();
    a_public_store_has_no_kept_names(Arc::new(database)).await;
}

#[tokio::test]
async fn a_program_cannot_name_them() {
    let store = Arc::new(MemoryStore::default());
    grant_time(&*store).await;
    let ids = Ids::builder().segments(store.clone()).build().await.unwrap();
    for (tag, sub) in [("redis-leases", None), ("redis-leases", Some("default")), ("order", Some("redis-clock:60"))] {
        let options = SequenceOptions::default();
        let error = match sub {
            None => ids.sequence(tag, options).await.unwrap_err(),
            Some(sub) => ids.sequence_of(tag, sub, options).await.unwrap_err(),
        };
        let ErrorKind::Store { source, .. } = error.kind() else { panic!("{error:?}") };
        assert!(matches!(**source, StoreError::TagInvalid { .. }), "{error:?}");
    }
    ids.sequence("order", SequenceOptions::default()).await.unwrap().next().await.unwrap();
    ids.close().await;
}

/// Leases need them whatever users may create.
#[tokio::test]
async fn they_come_into_being_where_no_other_tag_may() {
    let creation = TagCreation { on_first_use: false, tags_max: 0 };
    let store = MemoryStore::new(MemoryOptions { creation, ..MemoryOptions::default() });
    store.allocate("redis-leases\u{1f}default", 10, 0).await.unwrap();
    assert!(matches!(store.allocate("order", 10, 0).await, Err(StoreError::TagUnknown { .. })));
    assert!(matches!(store.create_tag("order", &TagOptions::default()).await, Err(StoreError::TagLimit { .. })));
}

#[tokio::test]
async fn a_resize_refuses_a_store_that_grants_time() {
    let used: Arc<dyn SegmentStore> = Arc::new(MemoryStore::default());
    grant_time(&*used).await;
    let before = used.tags(None, 100).await.unwrap();
    let new: Arc<dyn SegmentStore> = Arc::new(MemoryStore::default());
    let error = resize_stripes(std::slice::from_ref(&used), &[used.clone(), new], 0).await.unwrap_err();
    assert!(matches!(&error, StoreError::Refused { what, .. } if what.contains("time")), "{error:?}");
    assert_eq!(used.tags(None, 100).await.unwrap(), before);
    used.allocate("order", 1, 0).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_took_over_lifts_ids_by_the_figure_and_time_by_the_longest_lease() {
    const LIFT: u64 = 1_000_000_000;
    let mut first = MariaDb::start().unwrap();
    let url = first.database().unwrap();
    let store = MysqlStore::connect(MysqlOptions::from_url(&url).unwrap()).await.unwrap();
    store.allocate("order", 10, 0).await.unwrap();
    grant_time(&store).await;
    store.close().await;
    first.kill9().unwrap();
    let second = first.start_copy().unwrap();
    let (_, name) = url.rsplit_once('/').unwrap();
    let copy = format!("mysql://root@127.0.0.1:{}/{name}", second.port());
    let adopted = MysqlStore::adopt_server(MysqlOptions::from_url(&copy).unwrap(), LIFT).await.unwrap();
    assert_eq!(adopted.tags, 1, "tags of users");
    let store = MysqlStore::connect(MysqlOptions::from_url(&copy).unwrap()).await.unwrap();
    assert_eq!(store.tag("order").await.unwrap().watermark, LIFT + 10);
    assert_eq!(store.tag(KEPT_FLOOR).await.unwrap().watermark, LIFT);
    let [_, leases, clock] = kept();
    let now_ms = SystemClock.now_ms();
    let horizon_ms = 11 * 60_000;
    let leases = store.tag(&leases).await.unwrap().watermark;
    assert!((now_ms - 600_000 + horizon_ms..=now_ms + horizon_ms).contains(&leases), "{leases} at {now_ms}");
    assert_eq!(store.tag(&clock).await.unwrap().watermark, 1_700_000_000_999 + horizon_ms);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_passes_them_by() {
    let directory = TempDir::new().unwrap();
    let source = unalike_tests::sqlite::open(&directory.path().join("old.sqlite")).await.unwrap();
    grant_time(&source).await;
    source.allocate("order", 10, 0).await.unwrap();
    source.close().await;
    let import = ["tags", "import", "--from", "sqlite://old.sqlite", "--source-stopped"];
    let ran = run(directory.path(), import).unwrap();
    assert!(ran.code == Some(0) && ran.stdout.contains("order") && !ran.stdout.contains("redis-"), "{ran:?}");
    let target = unalike_tests::sqlite::open(&directory.path().join("unalike.sqlite")).await.unwrap();
    let known = target.tags(None, 100).await.unwrap();
    assert_eq!(known.iter().map(|record| record.tag.as_str()).collect::<Vec<_>>(), ["order"]);
}

#[test]
fn no_request_names_them() -> anyhow::Result<()> {
    let server = Server::start_with(["--drop-in", "leaf,tinyid,cosid"])?;
    let client = server.client();
    client.ids("/v1/sequences/order/ids?count=1")?;
    for path in [
        "/v1/sequences/redis-leases/ids",
        "/v1/sequences/unalike-new-names/ids?sub=floor",
        "/v1/tags/unalike-new-names",
        "/v1/tags/unalike-formats",
        "/v1/sequences/redis-leases/ids?sub=default&count=10000",
        "/v1/sequences/order/ids?sub=redis-clock:60",
        "/v1/tags/redis-leases",
        "/ids/redis-leases",
        "/segments/redis-leases",
    ] {
        let answer = client.get(path)?;
        assert!((400..=404).contains(&answer.status), "{path}: {answer:?}");
    }
    let answer = client.get("/api/segment/get/redis-leases")?;
    assert!(answer.status >= 400 || answer.body.parse::<u64>().is_err(), "{answer:?}");
    let answer = client.get("/tinyid/id/nextId?bizType=redis-leases")?;
    assert!(answer.status >= 400 || answer.json()?["code"] != json!(200), "{answer:?}");
    let answer = client.send_json("POST", "/v1/tags", &json!({ "tag": "redis-leases" }))?;
    assert_eq!(answer.status, 400, "{answer:?}");
    let listed = client.get("/v1/tags")?.body;
    assert!(listed.contains("order") && !listed.contains("redis-"), "{listed}");
    Ok(())
}

#[test]
fn no_command_and_no_configuration_names_them() -> anyhow::Result<()> {
    let directory = TempDir::new()?;
    for arguments in [
        &["next", "redis-leases"][..],
        &["next", "redis-leases", "--sub", "default"],
        &["next", "order", "--sub", "redis-clock:60"],
        &["tags", "create", "redis-leases"],
        &["tags", "raise", "redis-leases", "--sub", "default", "1000"],
        &["tags", "retire", "redis-leases"],
        &["tags", "create", "unalike-new-names"],
        &["tags", "raise", "unalike-new-names", "--sub", "floor", "1000"],
    ] {
        let ran = run(directory.path(), arguments.iter().copied())?;
        assert!(ran.code != Some(0) && ran.stdout.is_empty(), "{arguments:?}: {ran:?}");
        assert!(!ran.stderr.contains("panicked"), "{ran:?}");
    }
    std::fs::write(
        directory.path().join("unalike.toml"),
        "[tags.redis-leases]\nchannel = \"unordered\"\nbuff_size = 50\n",
    )?;
    let ran = run_with(directory.path(), ["serve", "--config", "unalike.toml", "--listen", "127.0.0.1:0"], &[])?;
    assert!(ran.code != Some(0) && ran.stderr.contains("redis-leases"), "{ran:?}");
    assert!(kept().iter().all(|name| is_kept(name)));
    Ok(())
}
