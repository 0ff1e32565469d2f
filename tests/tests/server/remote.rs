//! Hosts that are granted segments and leases by servers: the two ports over HTTP, and what may stand between.

#![expect(clippy::unwrap_used, clippy::panic_in_result_fn, reason = "a test that cannot go on fails")]

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinSet;
use unalike::{
    Format, FormatKey, FormatOptions, ID_MAX, Ids, Layout, Mode, Restart, SequenceOptions, SnowflakeOptions,
};
use unalike_remote::{RemoteLeases, RemoteOptions, RemoteStore};
use unalike_storage::contract::{self, Fixture, SegmentFixture};
use unalike_storage::{
    FormatBinding, FormatOwner, FormatPart, GrantId, LeaseAcquire, LeaseExtend, LeaseStore, SegmentStore, StoreError,
    TagCreation, TagOptions, TailRelease, sub_tag,
};
use unalike_tests::leases::now_ms;
use unalike_tests::misdeeds::{Misdeed, misbehave};
use unalike_tests::proxy::Proxy;
use unalike_tests::refusals::stays_refused;
use unalike_tests::server::{Client, Server};

/// Servers over one file, one for each way to create tags.
struct OverOneFile {
    directory: Arc<TempDir>,
    servers: Mutex<Vec<(TagCreation, Server)>>,
}

impl OverOneFile {
    fn new() -> Self {
        Self { directory: Arc::new(TempDir::new().unwrap()), servers: Mutex::default() }
    }

    fn url(&self, creation: TagCreation) -> String {
        let mut servers = self.servers.lock().unwrap();
        if let Some((_, server)) = servers.iter().find(|(known, _)| *known == creation) {
            return server.url().to_owned();
        }
        let (on_first_use, tags_max) = (creation.on_first_use.to_string(), creation.tags_max.to_string());
        let flags = ["--create-tags", &on_first_use, "--tags-max", &tags_max, "--segment-count-max", "1000000000"];
        let server = Server::start_in(Arc::clone(&self.directory), flags.map(str::to_owned).to_vec()).unwrap();
        let url = server.url().to_owned();
        servers.push((creation, server));
        url
    }
}

#[async_trait]
impl Fixture for OverOneFile {
    async fn restart(&self) {
        self.servers.lock().unwrap().clear();
    }
}

#[async_trait]
impl SegmentFixture for OverOneFile {
    async fn segment_client(&self, creation: TagCreation) -> Arc<dyn SegmentStore> {
        Arc::new(connect(&self.url(creation)).await.unwrap())
    }

    fn ends_tags(&self) -> bool {
        false
    }

    fn has_rules_for_sub_keys(&self) -> bool {
        true
    }

    fn has_rules_for_formats(&self) -> bool {
        true
    }

    fn can_be_a_stripe(&self) -> bool {
        false
    }
}

async fn connect(url: &str) -> Result<RemoteStore, StoreError> {
    RemoteStore::connect(RemoteOptions::from_url(url)?).await
}

/// Several servers as one address.
fn list(servers: &[&str]) -> String {
    let hosts: Vec<_> = servers.iter().map(|url| url.strip_prefix("http://").unwrap()).collect();
    format!("http://{}", hosts.join(","))
}

fn port_of(url: &str) -> u16 {
    url.rsplit_once(':').unwrap().1.parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_keep_the_contract_of_segments() {
    contract::segments(&OverOneFile::new()).await;
}

#[test]
fn a_grant_is_exact_and_names_its_store() -> anyhow::Result<()> {
    let server = Server::start()?;
    let client = server.client().with("X-Request-Id", "0123456789abcdef0123456789abcdef");
    let post = |path: &str| client.send("POST", path, "application/json", "");
    let stores = client.get("/v1/store")?.json()?;
    let store = stores["store"].as_str().unwrap_or_default();
    assert!(store.len() == 32 && stores["leases"].is_string(), "{stores}");
    let answer = post("/v1/sequences/order/segments?count=1000&at_least=9007199254740993")?;
    assert_eq!(answer.header("x-request-id"), Some("0123456789abcdef0123456789abcdef"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let expected = json!({
        "tag": "order", "store": store, "segment": {
            "start": "9007199254740993", "end": "9007199254741993", "stride": "1", "generation": "0", "version": "1",
        },
    });
    assert_eq!(answer.json()?, expected);
    let released = post("/v1/sequences/order/segments/release?start=9007199254741000&version=1")?;
    assert_eq!(released.json()?, json!({ "released": true, "store": store }));
    let again = post("/v1/sequences/order/segments?count=1")?;
    assert_eq!(again.json()?["segment"]["start"], json!("9007199254741000"));
    let opened = post("/v1/sequences/order/open")?.json()?;
    assert_eq!((&opened["tag"]["tag"], &opened["tag"]["watermark"]), (&json!("order"), &json!("9007199254741000")));
    // What is bound once stays, and whoever names it is granted numbers.
    let shape = "/v1/sequences/shown/format?part=shape";
    assert_eq!(post(shape)?.json()?, json!({ "bound": null, "store": store }));
    for first in ["4611686018427387905", "4611686018427387904"] {
        let bound = post(&format!("{shape}&first={first}"))?.json()?;
        assert_eq!(bound, json!({ "bound": "4611686018427387905", "store": store }));
    }
    let key = post("/v1/snowflakes/default/format?part=key&key_id=255&key_bits=63&first=7")?.json()?;
    assert_eq!(key, json!({ "bound": "7", "store": store }));
    for request in ["segments?count=1", "open?sub=shop", "segments/release?start=1&version=9"] {
        let path = format!("/v1/sequences/shown/{request}");
        for (path, is_shown_so) in [
            (path.replace("?sub=shop", ""), false),
            (format!("{path}&shape=4611686018427387904"), false),
            (format!("{path}&shape=4611686018427387905"), true),
        ] {
            let answer = post(&path)?;
            assert_eq!(answer.status == 200, is_shown_so, "{path}: {answer:?}");
            assert!(is_shown_so || answer.problem()? == "format-bound", "{path}: {answer:?}");
        }
    }
    for (path, status, kind) in [
        ("/v1/sequences/order/format", 400, "query-invalid"),
        ("/v1/sequences/order/format?part=name", 400, "query-invalid"),
        ("/v1/sequences/order/format?part=shape&key_id=1", 400, "query-invalid"),
        ("/v1/sequences/order/format?part=key&key_id=1", 400, "query-invalid"),
        ("/v1/sequences/order/format?part=key&key_id=256&key_bits=24", 400, "query-invalid"),
        ("/v1/sequences/order/format?part=key&key_id=1&key_bits=64", 400, "query-invalid"),
        ("/v1/sequences/order/format?part=shape&first=0", 400, "query-invalid"),
        ("/v1/sequences/order/format?part=shape&first=9007199254740993", 400, "query-invalid"),
        ("/v1/sequences/order/format?part=shape&first=9223372036854775808", 400, "query-invalid"),
        ("/v1/sequences/%20order/format?part=shape&first=4611686018427387905", 400, "tag-invalid"),
        ("/v1/sequences/order/segments?count=1&shape=0", 400, "query-invalid"),
        ("/v1/sequences/order/segments?count=1&shape=9007199254740993", 400, "query-invalid"),
        ("/v1/sequences/order/segments", 400, "query-invalid"),
        ("/v1/sequences/order/segments?count=0", 400, "count-invalid"),
        ("/v1/sequences/order/segments?count=-1", 400, "query-invalid"),
        ("/v1/sequences/order/segments?count=1.0", 400, "query-invalid"),
        ("/v1/sequences/order/segments?count=1&count=2", 400, "query-invalid"),
        ("/v1/sequences/order/segments?count=1&step=2", 400, "query-invalid"),
        ("/v1/sequences/order/segments?count=1&at_least=9223372036854775808", 410, "exhausted"),
        ("/v1/sequences/%20order/segments?count=1", 400, "tag-invalid"),
        ("/v1/sequences/order/segments/release?start=1", 400, "query-invalid"),
        ("/v1/snowflakes/default/leases?layout=41/10/12&now_ms=1&horizon_ms=1", 400, "layout-unknown"),
        ("/v1/snowflakes/nobody/leases?layout=41/10/12%20epoch%200&now_ms=1&horizon_ms=1", 404, "snowflake-unknown"),
        ("/v1/snowflakes/default/leases?now_ms=1&horizon_ms=1", 400, "query-invalid"),
        (
            "/v1/snowflakes/default/leases?layout=41/10/12%20epoch%200&now_ms=1&horizon_ms=9&preferred_worker=1024",
            400,
            "query-invalid",
        ),
        ("/v1/snowflakes/default/leases?layout=41/10/12%20epoch%200&now_ms=1&horizon_ms=9", 409, "layout-refused"),
        ("/v1/snowflakes/default/leases/x/extend", 400, "query-invalid"),
        ("/v1/snowflakes/default/leases/7/release?grant_id=7&end_ms=1", 400, "query-invalid"),
    ] {
        let answer = post(path)?;
        assert_eq!((answer.status, answer.problem()?.as_str()), (status, kind), "{path}: {answer:?}");
    }
    for path in ["/v1/sequences/order/segments?count=1", "/v1/sequences/order/open", "/v1/snowflakes/default/leases"] {
        assert_eq!(client.get(path)?.status, 405, "{path}");
    }
    Ok(())
}

#[test]
fn grants_need_the_scope_lease() -> anyhow::Result<()> {
    let directory = Arc::new(TempDir::new()?);
    let token = |name: &str, scope: &str| {
        format!("[[tokens]]\nname = \"{name}\"\ntoken = \"{name}-0123456789abcdef\"\nscope = \"{scope}\"\n")
    };
    let bound = format!("{}tags = [\"order\"]\n", token("bound", "lease"));
    let tokens = [token("reader", "read"), token("host", "lease"), token("admin", "admin"), bound].concat();
    std::fs::write(directory.path().join("tokens.toml"), tokens)?;
    let server = Server::start_in(directory, ["--tokens", "tokens.toml"].map(str::to_owned).to_vec())?;
    let status = |token: Option<&str>, method: &str, path: &str| {
        let client = server.client();
        let client = match token {
            Some(token) => client.with_token(&format!("{token}-0123456789abcdef")),
            None => client,
        };
        client.send(method, path, "application/json", "").map(|answer| answer.status)
    };
    let lease = format!(
        "/v1/snowflakes/default/leases?layout={}&now_ms={}&horizon_ms=1000",
        Layout::TWITTER.to_string().replace('+', "%2B").replace(' ', "%20"),
        now_ms()
    );
    for (method, path) in [
        ("GET", "/v1/store"),
        ("POST", "/v1/sequences/order/format?part=shape"),
        ("POST", "/v1/snowflakes/default/format?part=key&key_id=1&key_bits=24"),
        ("POST", "/v1/sequences/order/open"),
        ("POST", "/v1/sequences/order/segments?count=5"),
        ("POST", "/v1/sequences/order/segments/release?start=5&version=9"),
        ("POST", lease.as_str()),
    ] {
        assert_eq!(status(None, method, path)?, 401, "{path}");
        assert_eq!(status(Some("reader"), method, path)?, 403, "{path}");
        assert_eq!(status(Some("host"), method, path)?, 200, "{path}");
        assert_eq!(status(Some("admin"), method, path)?, 200, "{path}");
    }
    assert_eq!(status(Some("bound"), "POST", "/v1/sequences/order/segments?count=5")?, 200);
    assert_eq!(status(Some("bound"), "POST", "/v1/sequences/invoice/segments?count=5")?, 403);
    assert_eq!(status(Some("bound"), "POST", &lease)?, 403);
    assert_eq!(status(Some("host"), "POST", "/v1/tags")?, 403);
    // Nor does a host end a tag by what it makes up.
    let far = |tag: &str, at_least: u64| format!("/v1/sequences/{tag}/segments?count=1&at_least={at_least}");
    for (at_least, expected) in [(1 << 62, 403), (ID_MAX, 403), (1_000_000_100, 403), (1_000_000_001, 200)] {
        assert_eq!(status(Some("bound"), "POST", &far("order", at_least))?, expected, "{at_least}");
    }
    // From where that one is on.
    assert_eq!(status(Some("bound"), "POST", &far("order", 2_000_000_002))?, 200);
    assert_eq!(status(Some("bound"), "POST", &far("order", 3_000_000_004))?, 403);
    assert_eq!(status(Some("host"), "POST", &far("new", 1_000_000_002))?, 403);
    assert_eq!(status(Some("admin"), "POST", &far("order", 1 << 62))?, 200);
    let client = server.client().with_token("host-0123456789abcdef");
    let refused = client.send("POST", &far("order", ID_MAX), "application/json", "")?;
    assert_eq!(refused.json()?["type"], "urn:unalike:problem:forbidden");
    assert_eq!(refused.json()?["watermark"], (1_u64 << 62).to_string());
    Ok(())
}

#[test]
fn a_host_writes_its_layout_as_people_do() -> anyhow::Result<()> {
    let directory = Arc::new(TempDir::new()?);
    std::fs::write(directory.path().join("unalike.toml"), "[layouts]\nours = \"41/5+5/12 epoch 1288834974657\"\n")?;
    let server = Server::start_in(directory, ["--config", "unalike.toml"].map(str::to_owned).to_vec())?;
    let lease = |layout: &str, now_ms: u64| {
        let path = format!("/v1/snowflakes/default/leases?layout={layout}&now_ms={now_ms}&horizon_ms=1000");
        server.client().send("POST", &path, "application/json", "")
    };
    for layout in ["twitter", "ours", "41/5%2B5/12%20epoch%201288834974657"] {
        assert_eq!(lease(layout, now_ms())?.status, 200, "{layout}");
    }
    for (layout, now_ms, status, named) in [
        ("41/5+5/12", now_ms(), 400, "write + as %2B"),
        ("twiter", now_ms(), 400, "did you mean twitter?"),
        ("leaf", now_ms(), 409, "has the layout"),
        ("twitter", 12, 503, "the holder's clock (now_ms) is 1970-01-01T00:00:00.012Z"),
    ] {
        let answer = lease(layout, now_ms)?;
        assert_eq!(answer.status, status, "{layout}: {answer:?}");
        assert!(answer.json()?["detail"].as_str().is_some_and(|detail| detail.contains(named)), "{layout}: {answer:?}");
    }
    Ok(())
}

#[test]
fn what_a_format_cannot_show_is_not_granted() -> anyhow::Result<()> {
    let directory = Arc::new(TempDir::new()?);
    let config = "[tags.short]\ntemplate = \"{id:02}\"\n[tags.daily]\ntemplate = \"{yyyyMMdd}{id:04}\"\nrestart = \"day\"\n\
                  [tags.fast]\nchannel = \"quick\"\n[snowflakes.fast]\nlayout = \"twitter\"\n";
    std::fs::write(directory.path().join("unalike.toml"), config)?;
    let server = Server::start_in(directory, ["--config", "unalike.toml"].map(str::to_owned).to_vec())?;
    let client = server.client();
    let post = |path: &str| client.send("POST", path, "application/json", "");
    let bounds = |answer: &Value| (answer["segment"]["start"].clone(), answer["segment"]["end"].clone());
    let first = post("/v1/sequences/short/segments?count=60")?.json()?;
    assert_eq!(bounds(&first), (json!("1"), json!("61")));
    let second = post("/v1/sequences/short/segments?count=60")?.json()?;
    assert_eq!(bounds(&second), (json!("61"), json!("100")), "39 are left");
    let third = post("/v1/sequences/short/segments?count=60")?;
    assert_eq!((third.status, third.problem()?.as_str()), (410, "exhausted"));
    for (tag, kind) in [("daily", "format-invalid"), ("fast", "tag-invalid")] {
        let answer = post(&format!("/v1/sequences/{tag}/segments?count=1"))?;
        assert_eq!((answer.status, answer.problem()?.as_str()), (400, kind), "{answer:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_are_leased_prolonged_and_given_back() -> anyhow::Result<()> {
    let server = Server::start()?;
    let leases = RemoteLeases::connect(RemoteOptions::from_url(server.url())?).await?;
    let acquire = LeaseAcquire {
        namespace: "default".to_owned(),
        layout: Layout::TWITTER,
        holder: "a host & its port:8080".to_owned(),
        preferred_worker: Some(77),
        now_ms: now_ms(),
        horizon_ms: 30_000,
    };
    let lease = leases.acquire(&acquire).await?;
    assert_eq!(lease.worker, 77);
    let other = leases.acquire(&acquire).await?;
    assert!(other.worker != 77 && other.grant_id != lease.grant_id, "{other:?}");
    let extend = |grant_id| LeaseExtend {
        namespace: "default".to_owned(),
        layout: Layout::TWITTER,
        worker: 77,
        grant_id,
        now_ms: now_ms(),
        horizon_ms: 60_000,
    };
    let longer = leases.extend(&extend(lease.grant_id)).await?;
    assert!(longer.valid_until_ms > lease.valid_until_ms && longer.grant_id == lease.grant_id, "{longer:?}");
    let stranger = leases.extend(&extend(GrantId(7))).await.unwrap_err();
    assert!(matches!(&stranger, StoreError::LeaseLost { worker: 77, .. }), "{stranger:?}");
    assert!(leases.release("default", 77, lease.grant_id, lease.not_before_ms).await?);
    assert!(!leases.release("default", 77, lease.grant_id, lease.not_before_ms).await?, "once");
    let refused = |change: fn(&mut LeaseAcquire)| {
        let mut acquire = acquire.clone();
        change(&mut acquire);
        let leases = leases.clone();
        async move { leases.acquire(&acquire).await.unwrap_err() }
    };
    let error = refused(|acquire| acquire.layout = Layout::SONYFLAKE).await;
    assert!(matches!(&error, StoreError::LayoutMismatch { .. }), "{error:?}");
    let error = refused(|acquire| acquire.namespace = "nobody".to_owned()).await;
    assert!(matches!(&error, StoreError::Refused { .. }) && error.to_string().contains("nobody"), "{error:?}");
    let error = refused(|acquire| acquire.now_ms -= 3_600_000).await;
    assert!(matches!(&error, StoreError::ClockSkew { max_skew_ms, .. } if *max_skew_ms > 0), "{error:?}");
    Ok(())
}

/// Ids of both kinds over two hosts and the servers themselves.
#[tokio::test(flavor = "multi_thread")]
async fn hosts_and_servers_never_make_one_id_twice() -> anyhow::Result<()> {
    let first = Server::start()?;
    let second = first.start_beside()?;
    let servers = list(&[first.url(), second.url()]);
    let mut hosts = Vec::new();
    for _ in 0..2 {
        let ids = Ids::builder()
            .segments(Arc::new(connect(&servers).await?))
            .leases(Arc::new(RemoteLeases::connect(RemoteOptions::from_url(&servers)?).await?))
            .build()
            .await?;
        hosts.push(ids);
    }
    let mut seen = HashSet::new();
    let mut snowflakes = HashSet::new();
    for round in 0..20 {
        for ids in &hosts {
            let order = ids.sequence("order", SequenceOptions::default()).await?;
            for id in order.take(500).await?.iter() {
                assert!(seen.insert(id), "{id} came twice in round {round}");
            }
            let flake = ids.snowflake("default", SnowflakeOptions::new(Layout::TWITTER)).await?;
            for id in flake.take(50).await?.iter() {
                assert!(snowflakes.insert(id), "{id} came twice in round {round}");
            }
        }
        for server in [&first, &second] {
            for id in server.client().ids("/v1/sequences/order/ids?count=100")? {
                assert!(seen.insert(id), "{id} came twice in round {round}");
            }
            for id in server.client().ids("/v1/snowflakes/default/ids?count=50")? {
                assert!(snowflakes.insert(id), "{id} came twice in round {round}");
            }
        }
    }
    for ids in hosts {
        ids.close().await;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn ordered_tags_ascend_over_hosts() -> anyhow::Result<()> {
    let server = Server::start()?;
    let admin = connect(server.url()).await?;
    admin.create_tag("bill", &TagOptions { mode: Mode::Ordered, ..TagOptions::default() }).await?;
    let mut last = 0;
    let hosts = [
        Ids::builder().segments(Arc::new(connect(server.url()).await?)).build().await?,
        Ids::builder().segments(Arc::new(connect(server.url()).await?)).build().await?,
    ];
    for _ in 0..50 {
        for ids in &hosts {
            let id = ids.sequence("bill", SequenceOptions::default()).await?.next().await?;
            assert!(id > last, "{id} after {last}");
            last = id;
        }
    }
    assert_eq!(last, 100, "one allocation a call, without a gap");
    Ok(())
}

/// Many callers of two hosts at once. The server grants less than they want together, so rounds bring too little:
/// nobody is left behind, and each id is above all whose calls had ended before its call began.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn callers_of_an_ordered_tag_are_served_together_over_hosts() -> anyhow::Result<()> {
    let server = Server::start_with(["--segment-count-max", "20"])?;
    let admin = connect(server.url()).await?;
    admin.create_tag("bill", &TagOptions { mode: Mode::Ordered, ..TagOptions::default() }).await?;
    let greatest = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for host in 0..2_u32 {
        let ids = Ids::builder().segments(Arc::new(connect(server.url()).await?)).build().await?;
        let bills = ids.sequence("bill", SequenceOptions::default()).await?;
        for caller in 0..30 {
            let (bills, greatest) = (bills.clone(), Arc::clone(&greatest));
            tasks.push(tokio::spawn(async move {
                let mut taken = Vec::new();
                for turn in 0..20 {
                    let before = greatest.load(Ordering::SeqCst);
                    let batch = bills.take((host + caller + turn) % 3 + 1).await?;
                    assert!(batch.iter().all(|id| id > before), "{batch:?} after {before}");
                    greatest.fetch_max(batch.iter().max().unwrap(), Ordering::SeqCst);
                    taken.extend(batch.iter());
                }
                anyhow::Ok(taken)
            }));
        }
    }
    let mut all = Vec::new();
    for task in tasks {
        all.extend(task.await??);
    }
    let count = all.len();
    assert_eq!(all.into_iter().collect::<HashSet<_>>().len(), count, "an id came twice");
    let granted = admin.allocate("bill", 1, 0).await?;
    assert!(granted.version < 2 * 30 * 20, "together, by {} allocations", granted.version);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_with_different_stores_are_refused() -> anyhow::Result<()> {
    let (first, stranger) = (Server::start()?, Server::start()?);
    let error = connect(&list(&[first.url(), stranger.url()])).await.unwrap_err();
    assert!(matches!(&error, StoreError::Refused { .. }) && error.to_string().contains("different stores"), "{error}");
    let leases = RemoteLeases::connect(RemoteOptions::from_url(&list(&[first.url(), stranger.url()]))?).await;
    assert!(leases.unwrap_err().to_string().contains("different stores"));
    // Named, the other one is left out from the beginning.
    let name = first.client().get("/v1/store")?.json()?["store"].as_str().unwrap_or_default().to_owned();
    let error = connect(&format!("{}?store={name}", stranger.url())).await.unwrap_err();
    assert!(error.to_string().contains(&name), "{error}");
    connect(&format!("{}?store={name}", first.url())).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_down_at_the_start_is_waited_for_unless_the_store_is_named() -> anyhow::Result<()> {
    let server = Server::start()?;
    let nowhere = "http://127.0.0.1:1";
    let servers = list(&[nowhere, server.url()]);
    let error = connect(&servers).await.unwrap_err();
    assert!(error.is_retryable() && error.to_string().contains("store=IDENTITY"), "{error}");
    let name = server.client().get("/v1/store")?.json()?["store"].as_str().unwrap_or_default().to_owned();
    let store = connect(&format!("{servers}?store={name}")).await?;
    assert_eq!(store.allocate("order", 10, 0).await?.start, 1);
    Ok(())
}

/// The file behind a running server is replaced, as by a deployment that lost its volume.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_changes_its_store_is_not_used_any_more() -> anyhow::Result<()> {
    let server = Server::start()?;
    let stranger = Server::start()?;
    let proxy = Proxy::start(port_of(server.url()))?;
    let store = connect(&format!("http://127.0.0.1:{}", proxy.port())).await?;
    assert_eq!(store.allocate("order", 10, 0).await?.start, 1);
    proxy.lead_to(port_of(stranger.url()));
    proxy.cut();
    // Of the connection that was cut nobody knows what it granted.
    stays_refused(async || store.allocate("order", 10, 0).await, &["would repeat"]).await;
    proxy.lead_to(port_of(server.url()));
    proxy.cut();
    stays_refused(async || store.allocate("order", 10, 0).await, &["would repeat"]).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_server_is_asked_only_after_one_that_granted_nothing() -> anyhow::Result<()> {
    let first = Server::start()?;
    let second = first.start_beside()?;
    let proxy = Proxy::start(port_of(first.url()))?;
    let servers = list(&[&format!("http://127.0.0.1:{}", proxy.port()), second.url()]);
    let store = connect(&format!("{servers}?request-timeout-ms=3000")).await?;
    assert_eq!(store.allocate("order", 10, 0).await?.start, 1);
    // It granted, and nobody knows: burnt, and not asked of the other one.
    proxy.lose_answer_to("/segments");
    let error = store.allocate("order", 10, 0).await.unwrap_err();
    assert!(matches!(error, StoreError::OutcomeUnknown { .. }), "{error}");
    assert_eq!(store.allocate("order", 10, 0).await?.start, 21, "11 to 20 are burnt");
    // Nobody listens there: the other one is asked at once.
    proxy.cut();
    drop(proxy);
    for start in [31, 41, 51] {
        assert_eq!(store.allocate("order", 10, 0).await?.start, start);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn no_proxy_makes_an_id_come_twice() -> anyhow::Result<()> {
    for misdeed in Misdeed::ALL {
        let server = Server::start()?;
        let url = misbehave(server.url(), misdeed)?;
        let mut seen = HashSet::new();
        let (mut granted, mut burnt) = (0, 0);
        let stores = [connect(&url).await?, connect(&url).await?];
        for _ in 0..20 {
            for store in &stores {
                match store.allocate("order", 10, 0).await {
                    Ok(segment) => {
                        granted += 1;
                        for id in segment.start..segment.end {
                            assert!(seen.insert(id), "{id} came twice, as the proxy {misdeed:?}");
                        }
                    }
                    Err(error) => {
                        assert!(matches!(error, StoreError::OutcomeUnknown { .. }), "{misdeed:?}: {error:?}");
                        burnt += 1;
                    }
                }
            }
        }
        assert!(granted >= 20, "{misdeed:?}: {granted}");
        assert_eq!(burnt > 0, misdeed != Misdeed::SendsTwice, "{misdeed:?}: {burnt}");
        // A program gets its ids all the same.
        let ids =
            Ids::builder().segments(Arc::new(connect(&url).await?)).wait_max(Duration::from_secs(20)).build().await?;
        let order = ids.sequence("order", SequenceOptions::default()).await?;
        for id in order.take(3_000).await?.iter() {
            assert!(seen.insert(id), "{id} came twice, as the proxy {misdeed:?}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tail_goes_back_over_http() -> anyhow::Result<()> {
    let server = Server::start()?;
    let store = connect(server.url()).await?;
    let segment = store.allocate("order", 100, 0).await?;
    assert!(store.release("order", TailRelease { start: 51, version: segment.version }).await?);
    assert!(!store.release("order", TailRelease { start: 51, version: segment.version }).await?, "once");
    assert_eq!(store.allocate("order", 10, 0).await?.start, 51);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn sub_keys_are_granted_by_the_rules_of_the_server() -> anyhow::Result<()> {
    let directory = Arc::new(TempDir::new()?);
    std::fs::write(directory.path().join("unalike.toml"), "[tags.chat]\nsub_keys_max = 1\n")?;
    let server = Server::start_in(directory, ["--config", "unalike.toml"].map(str::to_owned).to_vec())?;
    let store = connect(server.url()).await?;
    let (one, other) = (sub_tag("chat", "user 1&2")?, sub_tag("chat", "user 3")?);
    assert_eq!(store.allocate(&one, 10, 0).await?.start, 1);
    assert_eq!(store.open_tag(&one).await?.tag, one);
    assert_eq!(store.tag(&one).await?.watermark, 10);
    assert_eq!(store.allocate(&one, 10, 0).await?.start, 11);
    let error = store.allocate(&other, 10, 0).await.unwrap_err();
    assert!(error.to_string().contains("may have 1 sub-keys"), "{error}");
    assert_eq!(store.allocate("chat", 10, 0).await?.start, 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_sent_and_never_shown() -> anyhow::Result<()> {
    let directory = Arc::new(TempDir::new()?);
    let tokens = "[[tokens]]\nname = \"host\"\ntoken = \"hunter2-hunter2-hunter2\"\nscope = \"lease\"\n";
    std::fs::write(directory.path().join("tokens.toml"), tokens)?;
    let server = Server::start_in(directory, ["--tokens", "tokens.toml"].map(str::to_owned).to_vec())?;
    let options = RemoteOptions::from_url(server.url())?;
    let error = RemoteStore::connect(options.clone()).await.unwrap_err();
    assert!(error.to_string().contains("needs a token with the scope lease"), "{error}");
    let wrong = RemoteStore::connect(options.clone().token("hunter2-hunter2-hunter3")).await.unwrap_err();
    assert!(!format!("{wrong:?}").contains("hunter2-"), "{wrong:?}");
    let store = RemoteStore::connect(options.token("hunter2-hunter2-hunter2")).await?;
    assert_eq!(store.allocate("order", 10, 0).await?.start, 1);
    let error = store.create_tag("bill", &TagOptions::default()).await.unwrap_err();
    assert!(error.to_string().contains("scope admin"), "{error}");
    assert!(!format!("{store:?} {error:?}").contains("hunter2-"));
    Ok(())
}

/// A plain client may do the same by hand, as pages say.
#[test]
fn the_same_with_nothing_but_http() -> anyhow::Result<()> {
    let server = Server::start()?;
    let client = Client::new(server.url());
    let granted = client.send("POST", "/v1/sequences/order/segments?count=3", "application/json", "")?.json()?;
    assert_eq!(granted["segment"]["end"], json!("4"));
    assert_eq!(client.ids("/v1/sequences/order/ids")?, [4]);
    Ok(())
}

async fn ids_over(url: &str) -> anyhow::Result<Ids> {
    let leases = RemoteLeases::connect(RemoteOptions::from_url(url)?).await?;
    Ok(Ids::builder().segments(Arc::new(connect(url).await?)).leases(Arc::new(leases)).build().await?)
}

/// What a program of its own shows of a tag, or of its sub-key.
async fn shown(url: &str, tag: &str, sub: Option<&str>, format: &FormatOptions<'_>) -> anyhow::Result<Vec<String>> {
    let shown = ids_over(url).await?.formatted(tag, sub, SequenceOptions::default(), Format::new(format)?).await?;
    Ok(shown.take(100, None).await?.texts()?)
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_over_one_server_show_a_tag_in_one_format() -> anyhow::Result<()> {
    let server = Server::start()?;
    let keys = [FormatKey { id: 1, secret: 0x5a3c_0b9d_1e7f_4826_a1b2_c3d4_e5f6_0718 }];
    let others = [FormatKey { secret: 7, ..keys[0] }];
    let plain = FormatOptions { context: "order", ..FormatOptions::default() };
    let first = FormatOptions { template: "ORD-{id}", bits: 24, key_id_bits: 2, keys: &keys, ..plain };
    let mut texts: HashSet<String> = shown(server.url(), "order", None, &first).await?.into_iter().collect();
    for (options, said) in [
        (FormatOptions { template: "ORD{id}", ..first }, "template is another one"),
        (FormatOptions { bits: 26, ..first }, "bits was 24, and is 26"),
        (FormatOptions { keys: &others, ..first }, "the key 1 has another secret or context"),
        (FormatOptions { template: "ORD-{id}", ..plain }, "are shown without"),
    ] {
        let refused = shown(server.url(), "order", None, &options).await.unwrap_err().to_string();
        assert!(refused.contains(said) && refused.contains("unalike tags format -- 'order'"), "{refused}");
    }
    texts.extend(shown(server.url(), "order", None, &first).await?);
    assert_eq!(texts.len(), 200);
    assert_eq!(shown(server.url(), "order", Some("shop"), &first).await?.len(), 100, "a sub-key is shown as its tag");

    // Nobody is given its numbers as they are.
    let bare = ids_over(server.url()).await?.sequence("order", SequenceOptions::default()).await;
    let refused = bare.map(drop).unwrap_err().to_string();
    assert!(refused.contains("in another format"), "{refused}");
    assert!(connect(server.url()).await?.allocate("order", 10, 0).await.is_err());
    assert_eq!(server.get("/v1/sequences/order/ids")?.problem()?, "format-bound");
    // Nor after another format of its own was refused.
    let ids = ids_over(server.url()).await?;
    let other = Format::new(&FormatOptions { template: "ORD{id}", ..first })?;
    assert!(ids.formatted("order", None, SequenceOptions::default(), other).await.is_err());
    let bare = ids.sequence("order", SequenceOptions::default()).await;
    assert!(bare.map(drop).unwrap_err().to_string().contains("in another format"));
    assert!(ids_over(server.url()).await?.sequence("other", SequenceOptions::default()).await?.next().await.is_ok());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_that_come_first_at_once_all_show_their_one_format() -> anyhow::Result<()> {
    let server = Server::start()?;
    for tag in ["order", "bill", "ticket"] {
        let mut programs = JoinSet::new();
        for _ in 0..8 {
            let url = server.url().to_owned();
            programs.spawn(async move {
                let keys = [FormatKey { id: 1, secret: 0x5a3c_0b9d_1e7f_4826_a1b2_c3d4_e5f6_0718 }];
                let plain = FormatOptions { context: tag, ..FormatOptions::default() };
                let keyed = FormatOptions { template: "ORD-{id}", bits: 24, key_id_bits: 2, keys: &keys, ..plain };
                shown(&url, tag, None, &keyed).await
            });
        }
        let mut texts = HashSet::new();
        for shown in programs.join_all().await {
            texts.extend(shown?);
        }
        assert_eq!(texts.len(), 800, "{tag}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_counter_starts_again_through_a_server() -> anyhow::Result<()> {
    let directory = Arc::new(TempDir::new()?);
    std::fs::write(directory.path().join("unalike.toml"), "[tags.daily]\nsub_keys_max = 1\n")?;
    let server = Server::start_in(directory, ["--config", "unalike.toml"].map(str::to_owned).to_vec())?;
    let daily = FormatOptions { template: "{yyyyMMdd}-{id}", restart: Restart::Day, ..FormatOptions::default() };
    let texts = shown(server.url(), "daily", None, &daily).await?;
    assert!(texts[0].ends_with("-1"), "{texts:?}");
    let period = format!("@{}-{}-{}", &texts[0][..4], &texts[0][4..6], &texts[0][6..8]);
    let again = shown(server.url(), "daily", None, &daily).await?;
    assert!(again.iter().all(|text| !texts.contains(text)), "{again:?}");
    assert!(shown(server.url(), "daily", Some("shop"), &daily).await?[0].ends_with("-1"));
    let limited = shown(server.url(), "daily", Some("mill"), &daily).await.unwrap_err().to_string();
    assert!(limited.contains("may have 1 sub-keys"), "in each period: {limited}");
    let store = connect(server.url()).await?;
    for sub in [period.clone(), format!("shop{period}")] {
        assert!(store.tag(&sub_tag("daily", &sub)?).await?.watermark >= 100, "{sub}");
    }
    assert_eq!(store.tag("daily").await?.watermark, 0, "all of them are counted under periods");

    let never = FormatOptions { restart: Restart::Never, ..daily };
    let refused = shown(server.url(), "daily", None, &never).await.unwrap_err().to_string();
    assert!(refused.contains("restart was day, and is never"), "{refused}");
    let shape = Format::new(&daily)?.shape().number();
    for sub in ["shop", "@2026-11", "@tomorrow00", "@2026-13-29", "shop@2026-02-29"] {
        let path = format!("/v1/sequences/daily/segments?count=1&shape={shape}&sub={sub}");
        let answer = server.client().send("POST", &path, "application/json", "")?;
        assert_eq!((answer.status, answer.problem()?.as_str()), (400, "query-invalid"), "{sub}: {answer:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_shows_itself_is_shown_so_by_hosts() -> anyhow::Result<()> {
    let directory = Arc::new(TempDir::new()?);
    let config = "[tags.daily]\ntemplate = \"{yyyyMMdd}-{id:06}\"\nrestart = \"day\"\n\
                  [snowflakes.web]\nlayout = \"twitter\"\ntemplate = \"W{id}\"\n";
    std::fs::write(directory.path().join("unalike.toml"), config)?;
    let server = Server::start_in(directory, ["--config", "unalike.toml"].map(str::to_owned).to_vec())?;
    let daily = FormatOptions { template: "{yyyyMMdd}-{id:06}", restart: Restart::Day, ..FormatOptions::default() };
    // Before anything is bound, too.
    for _ in 0..2 {
        for (options, said) in [
            (FormatOptions { template: "{yyyyMMdd}{id:06}", ..daily }, "template is another one"),
            (FormatOptions { restart: Restart::Month, ..daily }, "restart was day, and is month"),
        ] {
            let refused = shown(server.url(), "daily", None, &options).await.unwrap_err().to_string();
            assert!(refused.contains(said), "{refused}");
        }
        let bare = connect(server.url()).await?.allocate("daily", 10, 0).await.unwrap_err();
        assert!(bare.to_string().contains("daily") && bare.to_string().contains("ids.formatted(..)"), "{bare}");
        let mut texts: HashSet<String> = shown(server.url(), "daily", None, &daily).await?.into_iter().collect();
        let answer = server.get("/v1/sequences/daily/ids?count=100")?.json()?;
        texts.extend(answer["ids"].as_array().unwrap().iter().map(|id| id.as_str().unwrap().to_owned()));
        assert_eq!(texts.len(), 200, "they count together");
    }
    for (template, is_shown_so) in [("{id}W", false), ("W{id}", true)] {
        let format = Format::new(&FormatOptions { template, ..FormatOptions::default() })?;
        let ids = ids_over(server.url()).await?;
        let shown = ids.formatted_snowflake("web", SnowflakeOptions::new(Layout::TWITTER), format).await;
        assert_eq!(shown.is_ok(), is_shown_so, "{template}: {shown:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snowflake_has_one_format_through_a_server() -> anyhow::Result<()> {
    let mut server = Server::start()?;
    let show = async |server: &Server, template: &str| {
        let format = Format::new(&FormatOptions { template, ..FormatOptions::default() })?;
        let ids = ids_over(server.url()).await?;
        let flakes = ids.formatted_snowflake("default", SnowflakeOptions::new(Layout::TWITTER), format).await?;
        anyhow::Ok(flakes.next(None).await?)
    };
    assert_eq!(server.get("/v1/snowflakes/default/ids")?.status, 200);
    assert!(show(&server, "W{id}").await?.starts_with('W'));
    assert!(show(&server, "{id}W").await.unwrap_err().to_string().contains("template is another one"));
    assert!(show(&server, "W{id}").await.is_ok());
    assert_eq!(server.get("/v1/snowflakes/default/ids")?.problem()?, "format-bound", "which shows them bare");
    // Nobody configured it, so that no start fails for it.
    server.restart()?;
    assert_eq!(server.get("/v1/snowflakes/default/ids")?.problem()?, "format-bound");
    assert_eq!(server.get("/v1/sequences/order/ids")?.status, 200);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_bind_formats_once_and_only_to_what_there_may_be() -> anyhow::Result<()> {
    let server = Server::start_with(["--create-tags", "false"])?;
    let store = connect(server.url()).await?;
    let bind = async |owner: FormatOwner<'static>, binding| store.bind_format(owner, FormatPart::Shape, binding).await;
    let (order, first) = (FormatOwner::Tag("order"), FormatBinding::First(1 << 62));
    assert!(store.keeps_formats());
    assert!(matches!(bind(order, first).await, Err(StoreError::TagUnknown { .. })));
    assert_eq!(bind(order, FormatBinding::Look).await?, None);
    let unknown = bind(FormatOwner::Snowflake("nobody"), first).await.unwrap_err().to_string();
    assert!(unknown.contains("nobody"), "{unknown}");
    store.create_tag("order", &TagOptions::default()).await?;
    for owner in [order, FormatOwner::Snowflake("default")] {
        assert_eq!(bind(owner, first).await?, Some(1 << 62));
        assert_eq!(bind(owner, FormatBinding::First(1 << 62 | 1)).await?, Some(1 << 62));
        assert_eq!(bind(owner, FormatBinding::Look).await?, Some(1 << 62));
    }
    let refused = bind(order, FormatBinding::Always(1 << 62 | 1)).await.unwrap_err().to_string();
    assert!(refused.contains("`unalike tags format --accept -- 'order'`"), "{refused}");
    assert_eq!(bind(order, FormatBinding::Look).await?, Some(1 << 62));
    Ok(())
}
