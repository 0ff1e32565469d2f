//! etcd: the ordered mode on one key, what a grant costs beside its bare transaction, and programs that contend.
//!
//! A transaction is answered once its entry is flushed on a majority's disks; one member on the disk of this machine
//! stands for that. A flush takes some 100 us to 1 ms, and etcd's own way through its log, its tree and gRPC about as
//! much, so a caller by itself should have some 1,000 to 4,000 transactions a second. etcd gathers what comes at once
//! into one flush, so that eight keys should give several times as much.
//!
//! A grant is one transaction on two conditions with a row of some 200 bytes, so a store should grant nine tenths as
//! often as the bare transaction runs: one that compares a counter's revision and puts the next number.
//!
//! In the ordered mode all who wait are served by one grant, the next one while they take their ids: so the rate should
//! grow with the callers. Programs that contend for one key have one grant a round between them, whatever their number,
//! and none should be left behind: the figure is the share of the one that got least, of an even share.
//!
//! ```text
//! cargo bench -p unalike-benches --bench etcd
//! ```

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::runtime::Runtime;
use unalike::storage::{Mode, SegmentStore, TagOptions};
use unalike::{Ids, Sequence, SequenceOptions};
use unalike_benches::tasks::{self, Tasks};
use unalike_benches::{Bench, Plan, Row};
use unalike_etcd::{EtcdOptions, EtcdStore};
use unalike_tests::etcd::{Etcd, Version};

/// What one caller does, again and again.
enum Caller {
    /// Takes an id of a sequence in the ordered mode.
    Ordered { sequence: Sequence, last: u64 },
    /// Asks a store for a grant.
    Store { store: Arc<EtcdStore>, tag: String },
    /// Compares and puts a number.
    Bare(Bare),
}

/// A counter behind a connection of its own, by hand: gRPC is HTTP/2 with five bytes before each message.
struct Bare {
    requests: hyper::client::conn::http2::SendRequest<Full<bytes::Bytes>>,
    origin: String,
    key: String,
    /// The revision of the counter's last write.
    revision: u64,
}

impl Bare {
    async fn connect(port: u16, key: String) -> Result<Self> {
        let stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
        stream.set_nodelay(true)?;
        let (requests, driver) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
        tokio::spawn(driver);
        Ok(Self { requests, origin: format!("http://127.0.0.1:{port}"), key, revision: 0 })
    }

    /// `if mod(key) == revision { put(key, 20 bytes) }`, by the numbers of etcd's `rpc.proto`.
    async fn put(&mut self) -> Result<()> {
        let key = field(1, self.key.as_bytes());
        // Equal (0, which is left out), the revision of the last write (2), the key, the revision.
        let mut compare = vec![0x10, 2];
        compare.extend(field(3, self.key.as_bytes()));
        compare.push(0x30);
        compare.extend(varint(self.revision));
        let put = [key, field(2, b"12345678901234567890")].concat();
        let message = [field(1, &compare), field(2, &field(2, &put))].concat();
        let mut body = vec![0];
        body.extend(u32::try_from(message.len())?.to_be_bytes());
        body.extend(message);
        let request = http::Request::post(format!("{}/etcdserverpb.KV/Txn", self.origin))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(Full::new(body.into()))?;
        self.requests.ready().await?;
        let answer = self.requests.send_request(request).await?.into_body().collect().await?.to_bytes();
        let answer = answer.get(5..).context("an answer")?;
        // The header comes first, and has the revision in its third field.
        let header = answer.strip_prefix(&[0x0a]).and_then(|rest| rest.split_first()).context("a header")?;
        let header = header.1.get(..usize::from(*header.0)).context("a header")?;
        let (mut at, mut revision) = (0, None);
        while at < header.len() {
            let (tag, after) = read_varint(header, at)?;
            let (value, after) = read_varint(header, after)?;
            if tag == 0x18 {
                revision = Some(value);
            }
            at = after;
        }
        self.revision = revision.context("a revision")?;
        ensure!(answer.windows(2).any(|bytes| bytes == [0x10, 1]), "the counter is another's");
        Ok(())
    }
}

/// A field of a message that holds bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    field.extend(varint(bytes.len() as u64));
    field.extend(bytes);
    field
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number > 0x7f {
        bytes.push(u8::try_from(number & 0x7f).unwrap_or(0) | 0x80);
        number >>= 7;
    }
    bytes.push(u8::try_from(number).unwrap_or(0));
    bytes
}

fn read_varint(bytes: &[u8], mut at: usize) -> Result<(u64, usize)> {
    let (mut number, mut shift) = (0_u64, 0);
    loop {
        let byte = bytes.get(at).context("a number that ends")?;
        number |= u64::from(byte & 0x7f) << shift;
        (at, shift) = (at + 1, shift + 7);
        if byte & 0x80 == 0 {
            return Ok((number, at));
        }
    }
}

impl tasks::Caller for Caller {
    async fn request(&mut self) -> Result<u64> {
        match self {
            Self::Ordered { sequence, last } => {
                let id = sequence.next().await?;
                ensure!(id > *last, "{id} came after {last}");
                *last = id;
            }
            Self::Store { store, tag } => {
                store.allocate(tag, 1_000, 0).await?;
            }
            Self::Bare(bare) => bare.put().await?,
        }
        Ok(1)
    }
}

fn main() -> Result<()> {
    let plan = Plan::from_args();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let server = Etcd::start_with(Version::V3_4, 1, &["--snapshot-count=10000"])?;
    ordered(plan, &runtime, &server)?;
    grants(plan, &runtime, &server)?;
    contended(plan, &runtime, &server)
}

fn connect(runtime: &Runtime, url: &str) -> Result<Arc<EtcdStore>> {
    Ok(Arc::new(runtime.block_on(EtcdStore::connect(EtcdOptions::from_url(url)?))?))
}

fn ordered(plan: Plan, runtime: &Runtime, server: &Etcd) -> Result<()> {
    let mut bench = Bench::new("etcd: strictly increasing ids of one key, each grant a commit", plan);
    let url = server.url();
    let store = connect(runtime, &url)?;
    let ids = runtime.block_on(Ids::builder().segments(store.clone()).build())?;
    let options = TagOptions { mode: Mode::Ordered, ..TagOptions::default() };
    runtime.block_on(store.create_tag("ordered", &options))?;
    let sequence = runtime.block_on(ids.sequence("ordered", SequenceOptions::default()))?;
    const CALLERS: [usize; 3] = [32, 500, 5_000];
    let case = |callers: usize| {
        Tasks::new((0..callers).map(|_| Caller::Ordered { sequence: sequence.clone(), last: 0 }).collect())
    };
    let mut cases = CALLERS.map(case);
    Tasks::measure(runtime, plan, Duration::from_millis(300), &mut cases)?;
    runtime.block_on(ids.close());
    for (callers, case) in CALLERS.into_iter().zip(cases) {
        bench.row(Row::samples(format!("{callers} callers"), case.rates, "/s"));
    }
    bench.run()
}

fn grants(plan: Plan, runtime: &Runtime, server: &Etcd) -> Result<()> {
    let mut bench = Bench::new("etcd: grants beside the bare transaction, each a commit", plan);
    let port = *server.ports().first().context("a port")?;
    for callers in [1, 8] {
        let store = connect(runtime, &server.url())?;
        // A key for each, so that none spoils another's condition: what is measured is the way to etcd.
        let (mut of_bare, mut of_ours) = (Vec::new(), Vec::new());
        for number in 0..callers {
            let tag = format!("tag_{number}");
            runtime.block_on(store.allocate(&tag, 1, 0))?;
            let key = format!("bare-{callers}-{number}");
            of_bare.push(Caller::Bare(runtime.block_on(Bare::connect(port, key))?));
            of_ours.push(Caller::Store { store: Arc::clone(&store), tag });
        }
        let mut cases = [Tasks::new(of_bare), Tasks::new(of_ours)];
        Tasks::measure(runtime, plan, Duration::from_millis(200), &mut cases)?;
        let [bare, ours] = cases;
        let base = bench.row(Row::samples(format!("{callers} at a time: the bare transaction"), bare.rates, "/s"));
        let name = format!("{callers} at a time: grants");
        bench.row(Row::samples(name, ours.rates, "/s").against(base).ratio_at_least(0.9));
    }
    bench.run()
}

fn contended(plan: Plan, runtime: &Runtime, server: &Etcd) -> Result<()> {
    let mut bench = Bench::new("etcd: programs that contend for one key", plan);
    for programs in [1, 4, 16] {
        let url = server.url();
        let caller = |_| Ok(Caller::Store { store: connect(runtime, &url)?, tag: "order".to_owned() });
        let mut case = [Tasks::new((0..programs).map(caller).collect::<Result<_>>()?)];
        Tasks::measure(runtime, plan, Duration::from_millis(1_000), &mut case)?;
        let [case] = case;
        bench.row(Row::samples(format!("{programs} programs: grants of all"), case.rates, "/s"));
        bench.row(Row::samples(format!("{programs} programs: who got least, of an even share"), case.shares, "%"));
    }
    bench.run()
}
