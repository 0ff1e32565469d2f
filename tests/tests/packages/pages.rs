//! Every command line of every page, run as it is printed.
//!
//! A page is a Markdown file of the repository. Its fenced blocks `sh` and `console` are run from the top to the bottom
//! in a shell, each section in an empty directory. What a console shows behind a command is what must come out.
//! Configuration that a page shows is checked, and holds for the rest of its section; a file of tokens holds for the
//! rest of its page.
//!
//! A line is changed where it names what is not the test's: hosts and ports become those of private servers, and the
//! directories of a machine's secrets and data those of the test. Lines that are not run stand in [`UNRUN`], each with
//! its reason, and answers that are never the same in [`VARYING`].

#![expect(clippy::panic_in_result_fn, reason = "a test that cannot go on fails")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use tempfile::TempDir;
use unalike_tests::etcd::Etcd;
use unalike_tests::mariadb::MariaDb;
use unalike_tests::postgres::Postgres;
use unalike_tests::process;
use unalike_tests::redis::{Persistence, Program, Redis};
use unalike_tests::redis_cluster::RedisCluster;
use unalike_tests::redis_sentinels::Watched;
use unalike_tests::server::binary;
use unalike_tests::zookeeper::Zookeeper;

/// A line that takes longer than this never ends.
const LINE_MAX: Duration = Duration::from_secs(120);

/// Lines that are not run, why, and what is run in their place.
const UNRUN: &[(&str, &str, Option<&str>)] = &[
    (
        "unalike serve --listen 0.0.0.0:8443 --tls-cert cert.pem --tls-key key.pem --tokens tokens.toml",
        CERTIFICATES,
        None,
    ),
    (
        "curl --cacert ca.pem -H 'Authorization: Bearer d5d2ad50ab1c4b40a9e1' \
         https://ids.example:8443/v1/sequences/order/ids",
        CERTIFICATES,
        None,
    ),
    (
        "unalike serve --tls-cert cert.pem --tls-key key.pem --tls-client-ca clients.pem --tokens \
         tokens.toml --listen 0.0.0.0:8443",
        CERTIFICATES,
        None,
    ),
    (
        "curl --cacert ca.pem --cert billing.pem --key billing.key \
         https://ids.example:8443/v1/sequences/order/ids",
        CERTIFICATES,
        None,
    ),
    (
        "rustup toolchain install && cargo run",
        "a build of many minutes; the binary under test serves in its place",
        Some("unalike"),
    ),
    (
        "cargo run --release -p unalike-artifact --features service --example save -- .",
        "the crate is a part of this test, and has the files",
        Some("cp /var/lib/unalike/*.wasm ."),
    ),
    (
        "wasmtime serve -S cli --addr 127.0.0.1:8081 --env UNALIKE_SERVERS=http://127.0.0.1:8080 \
         unalike-service-remote-0.2.wasm",
        "the test program `edge` runs it",
        None,
    ),
    (
        "wasmtime serve --addr 127.0.0.1:8081 --env UNALIKE_SERVERS=http://127.0.0.1:8080 unalike-service-remote.wasm",
        "the test program `edge` runs it",
        None,
    ),
    (
        "unalike serve --listen 127.0.0.1:8081 --store sqlite://unused.sqlite --component unalike-service-remote.wasm \
         --component-env UNALIKE_SERVERS=http://127.0.0.1:8080 --component-hosts 127.0.0.1:8080",
        "a second server; the test program `edge` runs both",
        None,
    ),
    (
        "cargo build --release --target wasm32-wasip2 --manifest-path host/runtime/examples/application/Cargo.toml",
        EMBEDDING,
        None,
    ),
    (
        "cargo run -p unalike --example http_host --features component -- \
         host/runtime/examples/application/target/wasm32-wasip2/release/application.wasm orders.sqlite 127.0.0.1:8080",
        EMBEDDING,
        None,
    ),
    ("curl http://127.0.0.1:8080/", EMBEDDING, None),
    (
        "cargo build --release --target wasm32-wasip2 --manifest-path host/runtime/examples/shop/Cargo.toml",
        FACADE,
        None,
    ),
    (
        "wac plug host/runtime/examples/shop/target/wasm32-wasip2/release/shop.wasm --plug unalike-async.wasm \
         -o orders.wasm",
        FACADE,
        None,
    ),
    ("unalike serve --component orders.wasm", FACADE, None),
    ("curl -X POST 'http://127.0.0.1:8080/orders?count=3'", FACADE, None),
    ("rustup toolchain install 1.97.0 --profile minimal --target wasm32-wasip2", EMBEDDING, None),
    ("cargo +1.97.0 run --manifest-path tests/own-host/Cargo.toml -- numbers.txt order 3", EMBEDDING, None),
    ("cd guest/artifact && mkdir -p component", WKG, None),
    ("cargo run --release -p unalike-artifact --example save -- component", WKG, None),
    ("wkg wit build --output component/unalike-ids.wasm", WKG, None),
    ("wkg oci push registry.example/unalike/ids:0.1.0 component/unalike-ids.wasm", WKG, None),
    ("wkg oci push registry.example/unalike/core:0.1.0 component/unalike.wasm", WKG, None),
    ("wkg oci push registry.example/unalike/formats:0.1.0 component/unalike-formats.wasm", WKG, None),
    ("cargo build --release -p unalike-bindings", C_LIBRARY, None),
    (
        "cc -o first host/bindings/examples/first.c -I host/bindings/include -L target/release -lunalike_bindings",
        C_LIBRARY,
        None,
    ),
    ("LD_LIBRARY_PATH=target/release ./first", C_LIBRARY, None),
    ("tests/run", "it is what runs this test", None),
    ("cargo bench --workspace", "measurements of hours", None),
    ("cargo run --locked -p unalike-vectors -- write", "it writes files of the repository; a test compares them", None),
    ("cargo install --path host/server", "a build of many minutes; the binary under test is on the path already", None),
    ("npm install unalike", PACKAGES, None),
    ("npm ci && npm pack", PACKAGES, None),
    ("npm install ../unalike/host/node/unalike-0.1.0.tgz", PACKAGES, None),
    ("npm install unalike workerd esbuild", PACKAGES, None),
    (BUNDLE_WORKER, PACKAGES, None),
    ("npx workerd serve config.capnp", PACKAGES, None),
    ("curl http://127.0.0.1:8787/", PACKAGES, None),
    ("pip install unalike", PACKAGES, None),
    ("python build_package.py && pip install -r tests/requirements.txt", PACKAGES, None),
    ("UNALIKE_BIN=/path/to/unalike python -m pytest", PACKAGES, None),
    ("sudo apt install ./unalike_0.1.0-1_amd64.deb", RELEASE, Some("unalike")),
    ("host/server/packaging/build", RELEASE, None),
    ("host/server/packaging/release --binary target/dist/unalike --out target/packages", RELEASE, None),
    ("pip install ./unalike_server-0.1.0-py3-none-manylinux_2_36_x86_64.whl", RELEASE, None),
    ("npm install ./unalike-server-0.1.0.tgz ./unalike-server-linux-x64-0.1.0.tgz", RELEASE, None),
    ("systemctl status unalike", RELEASE, None),
    ("journalctl --unit unalike", RELEASE, None),
    ("podman load --input unalike-0.1.0-linux-amd64.oci.tar", RELEASE, None),
    ("podman run --rm unalike:0.1.0 tokens new billing --scope read > tokens.toml", RELEASE, None),
    (
        "podman run --detach --name ids --read-only --stop-timeout 30 --publish 127.0.0.1:8080:8080 \
         --volume ids:/var/lib/unalike --volume ./tokens.toml:/run/secrets/tokens.toml:ro --env \
         UNALIKE_TOKENS=/run/secrets/tokens.toml --env \
         UNALIKE_STORE=sqlite:///var/lib/unalike/ids.sqlite unalike:0.1.0",
        RELEASE,
        None,
    ),
    ("podman exec ids unalike health", RELEASE, None),
    (
        "kubectl create secret generic unalike --from-file=tokens.toml --from-file=password \
         --from-literal=store='mysql://ids@db.example/ids?password-file=/run/secrets/unalike/password'",
        RELEASE,
        None,
    ),
    ("kubectl apply --filename unalike-0.1.0.kubernetes.yaml", RELEASE, None),
    ("helm install unalike unalike-0.1.0.tgz --set image.repository=registry.example/unalike", RELEASE, None),
    ("sudo host/server/packaging/try --binary target/dist/unalike", RELEASE, None),
];

/// Why what needs certificates is not run here.
const CERTIFICATES: &str = "there are no certificates here; the tests of TLS make some, and ask by curl as well";

/// Why releases are neither built nor installed here.
const RELEASE: &str = "the tests in `release` make the files, and `host/server/packaging/try` installs and starts them";

/// Why what installs the packages of other hosts is not run here.
const PACKAGES: &str = "the test program `hosts` installs the packages of this build and runs their suites";

/// Why the C library is not built here.
const C_LIBRARY: &str = "the test program `bindings` compiles and runs it, with the library that is built already";

/// Why programs that embed the component are not run here.
const EMBEDDING: &str = "the tests in `embedding` build and run these programs";

/// Why an application is linked to ids elsewhere.
const FACADE: &str =
    "the tests in `facade` of the test program `edge` build the shop, link it as `wac` does, and run it";

/// Why nothing is packaged for a registry here.
const WKG: &str = "`wkg` is a build of many minutes; the test `the_wit_is_packaged_and_read_back` encodes what it does";

/// Builds the Worker of the page on Cloudflare's Workers.
const BUNDLE_WORKER: &str = "npx esbuild worker.js --bundle --format=esm --outdir=built --external:cloudflare:* \
    --loader:.wasm=copy --asset-names=[name]";

/// The pages, for a copy without its history.
const PAGES: &[&str] = &[
    "README.md",
    "adapters/README.md",
    "adapters/etcd/README.md",
    "adapters/mysql/README.md",
    "adapters/redis/README.md",
    "benches/README.md",
    "guest/artifact/README.md",
    "guest/service/README.md",
    "host/node/README.md",
    "host/node/workers.md",
    "host/python/README.md",
    "host/runtime/README.md",
    "host/server/README.md",
    "host/server/clients.md",
    "host/server/metrics.md",
    "host/server/operating.md",
    "host/server/packaging/README.md",
    "tests/README.md",
    "tests/vectors/README.md",
    "wit/README.md",
];

/// Lines whose answer has a time, a random number or a state of its own, so that it is not compared.
const VARYING: &[&str] =
    &["unalike leases list", "unalike leases release default 455", "unalike next order --shard-key 37", GRANT_BY_HAND];

/// Numbers for a host, whose answer names the store.
const GRANT_BY_HAND: &str = "curl -X POST -H 'X-Request-Id: 8f14e45fceea167a5a36dedd4bea2543' \
    'http://127.0.0.1:8080/v1/sequences/order/segments?count=1000'";

/// A counter of another system, which Redis keeps in a hash.
const COUNTER_OF_REDIS: &str = "unalike tags import --from \
    'redis://cache.example/0?dialect=id-generator&keys=order:id_order' --source-stopped";

/// A backup of a store that was used.
const RESTORED: &str =
    "unalike --store 'mysql://ids@db.example/ids?password-file=/run/secrets/ids' store restored --lift 1000000";

/// What a reader of a page has done before a line, as its text says.
const BEFORE: &[(&str, &[&str])] = &[
    // The worker of the page's own lease.
    ("unalike leases list", &["unalike --worker 455", "curl http://127.0.0.1:8080/v1/snowflakes/default/ids"]),
    (GRANT_BY_HAND, &["unalike"]),
    (RESTORED, &["unalike --store 'mysql://ids@db.example/ids?password-file=/run/secrets/ids' next order"]),
    // What the other system had counted to.
    (COUNTER_OF_REDIS, &["redis-cli -u redis://cache.example/0 HSET id_order cur 5 max 1000"]),
];

/// What the databases of the pages hold: those of others as these made them, and users of each.
const DATABASES: &str = "
    CREATE DATABASE ids; CREATE DATABASE leaf; CREATE DATABASE tinyid;
    CREATE USER ids IDENTIFIED BY 'a secret'; GRANT ALL ON ids.* TO ids;
    GRANT SLAVE MONITOR ON *.* TO ids;
    CREATE USER leaf; GRANT ALL ON leaf.* TO leaf;
    CREATE USER tinyid; GRANT ALL ON tinyid.* TO tinyid;
    CREATE TABLE leaf.leaf_alloc (biz_tag VARCHAR(128) NOT NULL DEFAULT '' PRIMARY KEY, max_id BIGINT NOT NULL DEFAULT 1,
        step INT NOT NULL, description VARCHAR(256),
        update_time TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP) ENGINE = InnoDB;
    INSERT INTO leaf.leaf_alloc (biz_tag, max_id, step) VALUES ('order', 2001, 2000);
    CREATE TABLE tinyid.tiny_id_info (id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
        biz_type VARCHAR(63) NOT NULL DEFAULT '' UNIQUE, begin_id BIGINT NOT NULL DEFAULT 0, max_id BIGINT NOT NULL DEFAULT 0,
        step INT DEFAULT 0, delta INT NOT NULL DEFAULT 1, remainder INT NOT NULL DEFAULT 0,
        create_time TIMESTAMP NOT NULL DEFAULT '2010-01-01 00:00:00',
        update_time TIMESTAMP NOT NULL DEFAULT '2010-01-01 00:00:00', version BIGINT NOT NULL DEFAULT 0) ENGINE = InnoDB;
    INSERT INTO tinyid.tiny_id_info (biz_type, max_id, step) VALUES ('order', 1000, 100);
    CREATE TABLE tinyid.tiny_id_token (id INT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, token VARCHAR(255) NOT NULL,
        biz_type VARCHAR(63) NOT NULL, remark VARCHAR(255) NOT NULL DEFAULT '',
        create_time TIMESTAMP NOT NULL DEFAULT '2010-01-01 00:00:00',
        update_time TIMESTAMP NOT NULL DEFAULT '2010-01-01 00:00:00') ENGINE = InnoDB;
    INSERT INTO tinyid.tiny_id_token (token, biz_type) VALUES ('0f673adf80504e2eaa552f5d791b644c', 'order')";

/// The servers that the pages name, and the directory with what they keep elsewhere.
struct World {
    mariadb: MariaDb,
    postgres: Postgres,
    redis: Redis,
    watched: Watched,
    cluster: RedisCluster,
    zookeeper: Zookeeper,
    etcd: Etcd,
    /// `bin`, `secrets`, `data`.
    machine: TempDir,
}

impl World {
    fn start() -> anyhow::Result<Self> {
        let mariadb = MariaDb::start()?;
        mariadb.sql("", DATABASES)?;
        let postgres = Postgres::start()?;
        for statement in [
            "CREATE ROLE ids LOGIN PASSWORD 'a secret'",
            "CREATE DATABASE ids OWNER ids",
            "CREATE DATABASE shop OWNER ids",
        ] {
            postgres.sql("postgres", statement)?;
        }
        postgres.sql("shop", "SET ROLE ids; CREATE SEQUENCE order_id_seq INCREMENT BY 50")?;
        let machine = TempDir::new()?;
        for directory in ["bin", "secrets", "data"] {
            std::fs::create_dir(machine.path().join(directory))?;
        }
        symlink(binary()?, machine.path().join("bin/unalike"))?;
        std::fs::write(machine.path().join("data/unalike-service.wasm"), unalike_artifact::SERVICE)?;
        std::fs::write(machine.path().join("data/unalike-service-remote.wasm"), unalike_artifact::SERVICE_REMOTE)?;
        std::fs::write(machine.path().join("data/unalike-service-0.2.wasm"), unalike_artifact::SERVICE_0_2)?;
        std::fs::write(machine.path().join("secrets/ids"), "a secret\n")?;
        std::fs::write(machine.path().join("secrets/id-key-1"), "000102030405060708090a0b0c0d0e0f\n")?;
        Ok(Self {
            mariadb,
            postgres,
            redis: Redis::start(Persistence::Nothing)?,
            watched: Watched::start(Program::Redis)?,
            cluster: RedisCluster::start(Program::Redis)?,
            zookeeper: Zookeeper::start()?,
            etcd: Etcd::start()?,
            machine,
        })
    }

    /// A line, or a file, as it stands on the page, with what is the test's own in place of a machine's.
    fn place(&self, text: &str, port: u16) -> String {
        let at = |name: &str| format!("{}/", self.machine.path().join(name).display());
        let zookeeper = format!("127.0.0.1:{}", self.zookeeper.port());
        let listed =
            |ports: Vec<u16>| ports.iter().map(|port| format!("127.0.0.1:{port}")).collect::<Vec<_>>().join(",");
        text.replace("@db.example/", &format!("@127.0.0.1:{}/", self.mariadb.port()))
            .replace("@pg.example/", &format!("@127.0.0.1:{}/", self.postgres.port()))
            .replace("cache.example/", &format!("127.0.0.1:{}/", self.redis.port()))
            .replace("zk1,zk2,zk3", &zookeeper)
            .replace("etcd1,etcd2,etcd3", &listed(self.etcd.ports()))
            .replace("s1.example,s2.example,s3.example", &listed(self.watched.sentinels.ports()))
            .replace(
                "n1.example,n2.example,n3.example",
                &listed(self.cluster.nodes().iter().map(Redis::port).collect()),
            )
            .replace("127.0.0.1:8080", &format!("127.0.0.1:{port}"))
            .replace("0.0.0.0:8080", &format!("0.0.0.0:{port}"))
            .replace("/run/secrets/", &at("secrets"))
            .replace("/var/lib/unalike/", &at("data"))
    }
}

/// A fenced block of a page.
#[derive(Debug)]
struct Block {
    /// The heading that it stands under.
    section: String,
    language: String,
    text: String,
    line: usize,
}

/// The fenced blocks of a page.
fn blocks(page: &str) -> Vec<Block> {
    let (mut blocks, mut section, mut open): (Vec<Block>, String, Option<Block>) = (Vec::new(), String::new(), None);
    for (line, text) in (1..).zip(page.lines()) {
        match (&mut open, text.strip_prefix("```")) {
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(block), None) => {
                block.text.push_str(text);
                block.text.push('\n');
            }
            (None, Some(language)) => {
                let language = language.to_owned();
                open = Some(Block { section: section.clone(), language, text: String::new(), line });
            }
            (None, None) if text.starts_with('#') => text.clone_into(&mut section),
            (None, None) => {}
        }
    }
    blocks
}

/// A command, without its remark, and what comes out, where the page shows it.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    command: String,
    output: Option<String>,
}

/// The commands of a block.
fn lines(block: &Block) -> Vec<Line> {
    let is_console = block.language == "console";
    let mut lines: Vec<Line> = Vec::new();
    for text in block.text.lines() {
        let command = if is_console { text.strip_prefix("$ ") } else { Some(text) };
        match (command, lines.last_mut()) {
            (Some(command), _) => {
                let command = without_remark(command);
                if !command.is_empty() {
                    lines.push(Line { command: command.to_owned(), output: None });
                }
            }
            (None, Some(line)) => {
                let output = line.output.get_or_insert_default();
                output.push_str(text);
                output.push('\n');
            }
            (None, None) => {}
        }
    }
    lines
}

/// A line of the shell without the remark behind it.
fn without_remark(line: &str) -> &str {
    let mut quote = None;
    let mut before = ' ';
    for (at, letter) in line.char_indices() {
        match (quote, letter) {
            (None, '#') if before == ' ' => return line.get(..at).unwrap_or(line).trim_end(),
            (None, '\'' | '"') => quote = Some(letter),
            (Some(open), letter) if open == letter => quote = None,
            _ => {}
        }
        before = letter;
    }
    line.trim_end()
}

/// A text with its long numbers left out: times, and ids made of them.
fn without_long_numbers(text: &str) -> String {
    let mut kept = String::new();
    for part in text.split_inclusive(|letter: char| !letter.is_ascii_digit()) {
        let digits = part.len() - part.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
        if digits >= 13 {
            kept.push('#');
            kept.push_str(part.get(digits..).unwrap_or_default());
        } else {
            kept.push_str(part);
        }
    }
    kept
}

/// A section of a page while its lines are run.
struct Section<'w> {
    world: &'w World,
    directory: TempDir,
    /// The server that runs, and its port.
    server: Option<(Child, u16)>,
    /// Variables that a line of the section has set.
    variables: BTreeMap<String, String>,
}

impl Drop for Section<'_> {
    fn drop(&mut self) {
        self.end_server();
    }
}

impl<'w> Section<'w> {
    fn begin(world: &'w World, tokens: Option<&str>) -> anyhow::Result<Self> {
        let directory = TempDir::new()?;
        if let Some(tokens) = tokens {
            std::fs::write(directory.path().join("tokens.toml"), tokens)?;
        }
        Ok(Self { world, directory, server: None, variables: BTreeMap::new() })
    }

    fn end_server(&mut self) {
        if let Some((mut server, _)) = self.server.take() {
            // It may have ended already.
            let _ = server.kill();
            let _ = server.wait();
        }
    }

    /// Keeps a configuration that the page shows, and has it checked.
    fn configure(&mut self, text: &str) -> anyhow::Result<()> {
        let text = self.world.place(text, 0);
        std::fs::write(self.directory.path().join("unalike.toml"), text)?;
        self.variables.insert("UNALIKE_CONFIG".to_owned(), "unalike.toml".to_owned());
        self.run("unalike config check").map(drop)
    }

    fn command(&self, line: &str, port: u16) -> anyhow::Result<Command> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let own = [self.world.machine.path().join("bin")];
        let path = std::env::join_paths(own.into_iter().chain(std::env::split_paths(&path)))?;
        let mut command = Command::new("sh");
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("UNALIKE_")) {
            command.env_remove(name);
        }
        command.args(["-c", &line.replacen("unalike", "exec unalike", usize::from(line.starts_with("unalike")))]);
        command.current_dir(self.directory.path()).env("PATH", path).envs(&self.variables);
        command.env("UNALIKE_DRAIN_MS", "0").env("ID_KEY_2", "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff");
        // Where the line itself says nothing.
        command.env("UNALIKE_LISTEN", format!("127.0.0.1:{port}"));
        Ok(command)
    }

    /// Runs a line to its end, or, where it serves, until it does; what it printed.
    fn run(&mut self, line: &str) -> anyhow::Result<String> {
        if let Some((name, value)) = line.strip_prefix("export ").and_then(|set| set.split_once('=')) {
            let value = self.world.place(value.trim_matches(['\'', '"']), 0);
            self.variables.insert(name.to_owned(), value);
            return Ok(String::new());
        }
        let serving = self.server.as_ref().map(|(_, port)| *port);
        // A command of ours may serve.
        let port = match serving.filter(|_| !line.starts_with("unalike") || line.starts_with("unalike bench")) {
            Some(port) => port,
            None => process::free_port()?,
        };
        let mut placed = self.world.place(line, port);
        if line.starts_with("unalike bench") {
            write!(placed, " http://127.0.0.1:{port}")?;
        }
        let log = std::fs::File::create(self.directory.path().join("stderr"))?;
        let mut child = self.command(&placed, port)?.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn()?;
        let stdout = child.stdout.take().context("the standard output is not piped")?;
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            let mut stdout = BufReader::new(stdout);
            let mut text = String::new();
            let read = stdout.read_line(&mut text);
            if !text.starts_with("listening on ") && read.is_ok() {
                // What is no text is an error of the comparison.
                let _ = stdout.read_to_string(&mut text);
            }
            let _ = sender.send(text);
            // To its end, so that a server can go on writing.
            let _ = std::io::copy(&mut stdout, &mut std::io::sink());
        });
        let said = receiver.recv_timeout(LINE_MAX);
        let stderr = || std::fs::read_to_string(self.directory.path().join("stderr")).unwrap_or_default();
        let Ok(text) = said else {
            let _ = child.kill();
            bail!("it does not end: {placed}: {}", stderr());
        };
        if text.starts_with("listening on ") {
            self.end_server();
            self.server = Some((child, port));
            return Ok(String::new());
        }
        let status = child.wait()?;
        ensure!(status.success(), "{placed}: {status}: {text}{}", stderr());
        Ok(text)
    }
}

/// Runs the lines of a page.
fn run(page: &str, world: &World) -> anyhow::Result<usize> {
    let (mut tokens, mut section, mut count): (Option<String>, Option<(String, Section<'_>)>, usize) = (None, None, 0);
    for block in blocks(page) {
        if section.as_ref().is_none_or(|(heading, _)| *heading != block.section) {
            // The one before ends first.
            drop(section.take());
            section = Some((block.section.clone(), Section::begin(world, tokens.as_deref())?));
        }
        let Some((_, current)) = &mut section else { continue };
        match block.language.as_str() {
            "toml" if block.text.contains("[[tokens]]") => {
                std::fs::write(current.directory.path().join("tokens.toml"), &block.text)?;
                tokens = Some(block.text.clone());
            }
            "toml" => current.configure(&block.text).with_context(|| format!("the file in line {}", block.line))?,
            "sh" | "console" => {
                for line in lines(&block) {
                    let run_one = run_line(current, &line);
                    run_one.with_context(|| format!("`{}`, in the block of line {}", line.command, block.line))?;
                    count += 1;
                }
            }
            _ => {}
        }
    }
    Ok(count)
}

fn run_line(section: &mut Section<'_>, line: &Line) -> anyhow::Result<()> {
    let command = line.command.as_str();
    for (_, before) in BEFORE.iter().filter(|(known, _)| *known == command) {
        for before in *before {
            section.run(before).with_context(|| format!("before it: {before}"))?;
        }
    }
    if let Some((_, _, instead)) = UNRUN.iter().find(|(known, ..)| *known == command) {
        return instead.map_or(Ok(()), |instead| section.run(instead).map(drop));
    }
    let printed = section.run(command)?;
    match &line.output {
        Some(output) if !VARYING.contains(&command) => {
            // Terminals end a text where files do not.
            let (wanted, printed) = (without_long_numbers(output.trim_end()), without_long_numbers(printed.trim_end()));
            ensure!(wanted == printed, "it prints:\n{printed}\nand the page shows:\n{wanted}");
        }
        _ => {}
    }
    Ok(())
}

/// The pages of the repository.
fn pages(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let listed = Command::new("git").args(["ls-files", "*.md"]).current_dir(root).output();
    let names = match listed {
        Ok(listed) if listed.status.success() => String::from_utf8(listed.stdout)?,
        // A copy without its history.
        _ => PAGES.join("\n"),
    };
    Ok(names.lines().map(|name| root.join(name)).collect())
}

#[test]
fn every_command_line_of_every_page_runs_as_it_is_printed() -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let world = World::start()?;
    let mut commands = Vec::new();
    let mut count = 0;
    for path in pages(&root)? {
        let page = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        count += run(&page, &world).with_context(|| path.display().to_string())?;
        commands.extend(blocks(&page).iter().flat_map(lines).map(|line| line.command));
    }
    assert!(count > 30, "{count} lines are few: were they found?");
    let known = UNRUN.iter().map(|(line, ..)| *line).chain(VARYING.iter().copied()).chain(BEFORE.iter().map(|it| it.0));
    for line in known {
        assert!(commands.iter().any(|command| command == line), "no page has the line any more: {line}");
    }
    Ok(())
}

#[test]
fn commands_are_found_without_their_remarks() {
    let page =
        "# A\n```sh\n# remark\nunalike  # serve\na '#' \"b # c\" # d\n```\n## B\n```console\n$ x\n1\n2\n$ y\n```\n";
    let blocks = blocks(page);
    let found: Vec<Line> = blocks.iter().flat_map(lines).collect();
    let line =
        |command: &str, output: Option<&str>| Line { command: command.to_owned(), output: output.map(str::to_owned) };
    let wanted = [line("unalike", None), line("a '#' \"b # c\"", None), line("x", Some("1\n2\n")), line("y", None)];
    assert_eq!(found, wanted);
    assert_eq!(blocks.iter().map(|block| block.section.as_str()).collect::<Vec<_>>(), ["# A", "## B"]);
    assert_eq!(without_long_numbers("a 1795288712382 12 x2091879713353478144"), "a # 12 x#");
}
