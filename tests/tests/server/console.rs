//! The console: the figures of real servers, and its page in a real browser.
//!
//! Pictures of the page are written to `target/console/`: look at them after a change.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic_in_result_fn,
    reason = "a test that cannot go on fails"
)]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use unalike_tests::PATIENCE;
use unalike_tests::server::{Answer, Server, ok};

const FIGURES: &str = "/v1/console";
const ORDER: &str = "/v1/sequences/order/ids";
const FLAKES: &str = "/v1/snowflakes/default/ids";

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const READ: &str = "a-token-that-may-look-at-all";
const ADMIN: &str = "a-token-that-may-do-everything";
const BOUND: &str = "a-token-for-the-orders-only";

/// A server with these flags that wants one of the tokens above.
fn with_tokens(flags: &[&str]) -> anyhow::Result<Server> {
    let directory = Arc::new(TempDir::new()?);
    let tokens = format!(
        "[[tokens]]\nname = \"read\"\ntoken = \"{READ}\"\nscope = \"read\"\n\
         [[tokens]]\nname = \"all\"\ntoken = \"{ADMIN}\"\nscope = \"admin\"\n\
         [[tokens]]\nname = \"bound\"\ntoken = \"{BOUND}\"\nscope = \"read\"\ntags = [\"order\"]\n"
    );
    std::fs::write(directory.path().join("tokens.toml"), tokens)?;
    let flags = [&["--tokens", "tokens.toml"], flags].concat();
    Server::start_in(directory, flags.into_iter().map(str::to_owned).collect())
}

/// Asks for the figures until they are as wanted.
fn until(server: &Server, is_wanted: impl Fn(&Value) -> bool) -> anyhow::Result<Value> {
    let (client, deadline) = (server.client(), Instant::now() + PATIENCE);
    loop {
        let figures = client.get(FIGURES)?.json()?;
        if is_wanted(&figures) {
            return Ok(figures);
        }
        ensure!(Instant::now() < deadline, "it did not become so: {figures}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// The figures of a tag.
fn of_tag<'a>(figures: &'a Value, tag: &str) -> Option<&'a Value> {
    figures["tags"].as_array()?.iter().find(|known| known["tag"] == tag)
}

fn floats(series: &Value) -> Vec<f64> {
    series.as_array().into_iter().flatten().filter_map(Value::as_f64).collect()
}

#[test]
fn the_page_needs_no_token_and_may_load_nothing_but_its_own() -> anyhow::Result<()> {
    let server = with_tokens(&[])?;
    let client = server.client();
    let foreign = client.clone().with("sec-fetch-site", "cross-site").with("sec-fetch-mode", "navigate");
    for (path, media) in
        [("/console", "text/html"), ("/console/style.css", "text/css"), ("/console/script.js", "text/javascript")]
    {
        // As an element of the page asks for it, and by a link of another page.
        let element = client.clone().with("accept", "text/css,*/*;q=0.1").get(path)?;
        for answer in [client.get(path)?, element, foreign.get(path)?] {
            assert_eq!(answer.status, 200, "{path}: {answer:?}");
            assert_eq!(answer.header("content-type"), Some(format!("{media}; charset=utf-8").as_str()));
            assert_eq!(answer.header("content-security-policy"), Some(POLICY));
            assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
            assert_eq!(answer.header("referrer-policy"), Some("no-referrer"));
            assert!(!answer.body.contains("http://") || path.ends_with(".js"), "{path} names another host");
        }
        let head = client.send("HEAD", path, "text/plain", "")?;
        assert_eq!((head.status, head.body.as_str()), (200, ""), "{path}");
        assert_eq!(client.send("POST", path, "text/plain", "")?.status, 405, "{path}");
    }
    Ok(())
}

#[test]
fn the_figures_are_for_tokens_of_all_tags_and_for_no_other_page() -> anyhow::Result<()> {
    let server = with_tokens(&[])?;
    let client = server.client();
    let refused = |answer: Answer, status: u16, problem: &str| {
        assert_eq!(answer.status, status, "{answer:?}");
        assert_eq!(answer.problem().unwrap(), problem, "{answer:?}");
    };
    refused(client.get(FIGURES)?, 401, "unauthorized");
    refused(client.clone().with_token("no-token-that-is-known").get(FIGURES)?, 401, "unauthorized");
    refused(client.clone().with_token(BOUND).get(FIGURES)?, 403, "forbidden");
    refused(client.clone().with_token(READ).with("origin", "http://evil.example").get(FIGURES)?, 403, "origin-refused");
    for token in [READ, ADMIN] {
        let answer = client.clone().with_token(token).get(FIGURES)?;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        for secret in [READ, ADMIN, BOUND] {
            assert!(!answer.body.contains(secret), "{answer:?}");
        }
        assert_eq!(answer.json()?["server"]["tokens_required"], true);
    }
    Ok(())
}

#[test]
fn the_figures_are_of_this_server() -> anyhow::Result<()> {
    let server = Server::start()?;
    let client = server.client();
    client.ids(&format!("{ORDER}?count=90"))?;
    client.ids("/v1/sequences/order/ids?sub=eu&count=5")?;
    client.send_json("POST", "/v1/tags", &json!({ "tag": "strict", "mode": "ordered" }))?;
    client.ids("/v1/sequences/strict/ids")?;
    client.get(FLAKES)?;
    assert_eq!(client.get("/v1/nothing")?.status, 404);
    let figures = until(&server, |figures| {
        let has_rates =
            of_tag(figures, "order").is_some_and(|order| floats(&order["rates"]).iter().any(|rate| *rate > 0.0));
        let has_refused = floats(&figures["series"]["refused_per_second"]).iter().any(|rate| *rate > 0.0);
        let is_leased = figures["snowflakes"][0]["leased"]["leases"][0].is_object();
        has_rates && has_refused && is_leased && !figures["store"]["identity"].is_null()
    })?;
    assert_eq!(figures["ready"], json!({ "status": "ready" }));
    assert_eq!((&figures["tags_open"], figures["server"]["tokens_required"].as_bool()), (&json!(3), Some(false)));

    let order = of_tag(&figures, "order").context("no order")?;
    assert_eq!((&order["open"], &order["issued"], &order["mode"]), (&json!(2), &json!("95"), &json!("buffered")));
    assert_eq!(order["left"], "1905", "of a thousand each");
    assert!(order["cover_seconds"].as_f64().is_some_and(|seconds| seconds > 1.0), "{order}");
    assert_eq!(order["rates"].as_array().map(Vec::len), order["covers"].as_array().map(Vec::len));
    let strict = of_tag(&figures, "strict").context("no strict")?;
    assert_eq!((&strict["mode"], &strict["cover_seconds"]), (&json!("ordered"), &Value::Null));

    let series = &figures["series"];
    for name in ["ids_per_second", "requests_per_second", "grants_per_second", "grant_median_ms", "grant_longest_ms"] {
        assert!(floats(&series[name]).iter().any(|figure| *figure > 0.0), "{name}: {series}");
    }
    assert!(floats(&series["probe_ms"]).iter().any(|figure| *figure > 0.0), "{series}");

    let flake = &figures["snowflakes"][0];
    assert_eq!((&flake["snowflake"], &flake["ready"], &flake["why"]), (&json!("default"), &json!(true), &Value::Null));
    let leased = &flake["leased"];
    assert_eq!((&leased["held"], &leased["free"], &leased["error"]), (&json!(1), &json!(1_023), &Value::Null));
    let lease = &leased["leases"][0];
    assert_eq!((&lease["worker"], &lease["state"]), (&flake["worker"], &json!("running")));
    assert!(lease["holder"].as_str().is_some_and(|holder| holder.contains("127.0.0.1")), "{lease}");

    let store = &figures["store"];
    assert_eq!(store["address"], "sqlite://unalike.sqlite");
    assert_eq!(store["identity"], client.get("/v1/store")?.json()?["store"], "{store}");
    Ok(())
}

#[test]
fn the_figures_are_bounded_and_a_lease_store_that_is_down_holds_nothing_up() -> anyhow::Result<()> {
    const SECRET: &str = "hunter2-and-more";
    let leases = format!("mysql://unalike:{SECRET}@127.0.0.1:1/ids");
    let server = Server::start_with(["--leases", leases.as_str()])?;
    let client = server.client();
    for at in 0..260 {
        client.ids(&format!("/v1/sequences/tag{at}/ids"))?;
    }
    client.ids("/v1/sequences/busy/ids?count=900")?;
    // Longer than anybody has to wait for an answer of this server.
    let figures = until(&server, |figures| {
        of_tag(figures, "busy").is_some() && !figures["snowflakes"][0]["leased"]["error"].is_null()
    })?;
    assert_eq!(figures["tags"].as_array().map(Vec::len), Some(200));
    assert_eq!(figures["tags_open"], 261);
    assert_eq!(figures["store"]["leases"], "mysql://unalike@127.0.0.1:1/ids");
    assert_eq!(figures["ready"]["status"], "ready");
    let text = client.get(FIGURES)?.body;
    assert!(!text.contains(SECRET), "{text}");
    assert!(text.len() < 400 * 1_024, "{} bytes", text.len());
    Ok(())
}

/// A browser that shows the console of a server.
struct Browser {
    process: Child,
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Browser {
    fn start() -> anyhow::Result<Self> {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/server/console_browser.mjs");
        let mut process = Command::new("node")
            .arg(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("node does not start")?;
        let commands = process.stdin.take();
        let answers = BufReader::new(process.stdout.take().context("no output")?);
        Ok(Self { process, commands, answers })
    }

    #[track_caller]
    fn tell(&mut self, command: &Value) -> Value {
        self.ask(command).unwrap()
    }

    fn ask(&mut self, command: &Value) -> anyhow::Result<Value> {
        writeln!(self.commands.as_mut().context("it is closed")?, "{command}")?;
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        let answer: Value = serde_json::from_str(&line).with_context(|| format!("{command}: {line:?}"))?;
        ensure!(answer.get("failed").is_none(), "{command}: {}", answer["failed"].as_str().unwrap_or_default());
        Ok(answer["is"].clone())
    }

    #[track_caller]
    fn open(&mut self, server: &Server) {
        self.tell(&json!({ "open": format!("{}/console", server.url()) }));
    }

    #[track_caller]
    fn reload(&mut self) {
        self.tell(&json!({ "reload": true }));
    }

    #[track_caller]
    fn run(&mut self, expression: &str) -> Value {
        self.tell(&json!({ "run": expression }))
    }

    #[track_caller]
    fn until(&mut self, expression: &str) {
        self.tell(&json!({ "until": expression }));
    }

    /// Waits until the page says this of the server.
    #[track_caller]
    fn until_state(&mut self, words: &str) {
        self.until(&format!("document.getElementById('state').textContent === {}", json!(words)));
    }

    /// Waits until an element says this, among other things.
    #[track_caller]
    fn until_said(&mut self, id: &str, words: &str) {
        self.until(&format!("document.getElementById('{id}').textContent.includes({})", json!(words)));
    }

    /// Writes into a field by keys, and sends its form by the key for it.
    #[track_caller]
    fn enter(&mut self, id: &str, text: &str) {
        self.write(id, text);
        self.tell(&json!({ "press": "Enter" }));
    }

    #[track_caller]
    fn write(&mut self, id: &str, text: &str) {
        self.run(&format!("(document.getElementById('{id}').focus(), document.getElementById('{id}').select())"));
        self.tell(&json!({ "type": text }));
    }

    #[track_caller]
    fn picture(&mut self, name: &str) -> PathBuf {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/console");
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join(format!("{name}.png"));
        self.tell(&json!({ "picture": file }));
        file
    }

    /// The page at this width and in this scheme of colours: nothing is wider than the window. Gives it a picture.
    #[track_caller]
    fn look(&mut self, name: &str, width: u32, is_dark: bool) {
        self.tell(&json!({ "width": width, "height": 800, "dark": is_dark }));
        let widths = self.run("[document.documentElement.scrollWidth, document.body.scrollWidth, innerWidth]");
        let [page, body, window] = [0, 1, 2].map(|at: usize| widths[at].as_u64().unwrap());
        assert!(page <= window && body <= window, "{name}: {widths}");
        self.picture(name);
    }

    /// The state in light and dark, and on a telephone; nothing to complain of, and all controls have names.
    #[track_caller]
    fn look_all_over(&mut self, state: &str) {
        self.look(&format!("{state}-light"), 1_120, false);
        self.look(&format!("{state}-dark"), 1_120, true);
        self.look(&format!("{state}-narrow-light"), 360, false);
        self.look(&format!("{state}-narrow-dark"), 360, true);
        self.tell(&json!({ "width": 1_120 }));
        let controls = self.tell(&json!({ "controls": true }));
        let controls = controls.as_array().unwrap();
        assert!(controls.len() > 2, "{controls:?}");
        for control in controls {
            assert_ne!(control["name"].as_str().unwrap_or_default().trim(), "", "{state}: {control}");
        }
        self.is_content();
    }

    /// The browser complained of nothing.
    #[track_caller]
    fn is_content(&mut self) {
        assert_eq!(self.tell(&json!({ "said": true })), json!([]));
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The end of its input is its end, and Chromium's.
        drop(self.commands.take());
        let _ = self.process.wait();
    }
}

#[test]
fn the_page_shows_a_server_that_is_well() -> anyhow::Result<()> {
    const HOSTILE: &str = "<img src=x onerror=\"document.title='owned'\">";
    let server = Server::start()?;
    let client = server.client();
    for (tag, count) in [("order", 640), ("invoice", 35), ("customer", 260)] {
        client.ids(&format!("/v1/sequences/{tag}/ids?count={count}"))?;
    }
    client.send_json("POST", "/v1/tags", &json!({ "tag": "ledger", "mode": "ordered" }))?;
    client.ids("/v1/sequences/ledger/ids?count=3")?;
    let id = client.get(FLAKES)?.ids()?[0].to_string();

    let mut browser = Browser::start()?;
    browser.open(&server);
    browser.until_state("Ready");
    browser.until("document.querySelectorAll('#tags-table tbody tr').length === 4");
    browser.until("document.querySelectorAll('#tags-table path.curve').length >= 3");
    browser.until("document.querySelectorAll('#store-times path.curve').length > 0");
    browser.until_said("flakes", "1 of 1,024 workers are leased, 1,023 are free");
    browser.until("document.querySelector('#flakes rect.mine') !== null");
    assert_eq!(browser.run("document.getElementById('ask').hidden"), true);
    // Which of the layouts that fit comes first depends on the worker, so this one is chosen.
    let choose = |by: &str, name: &str| {
        format!(
            "(() => {{ const by = document.getElementById('decode-by'); by.value = {};
               by.dispatchEvent(new Event('change')); document.getElementById('decode-name').value = {}; }})()",
            json!(by),
            json!(name)
        )
    };
    browser.run(&choose("layout", "twitter"));
    browser.enter("decode-id", &id);
    browser.until("document.querySelectorAll('.bits rect').length === 63");
    assert_eq!(
        browser.run("[...document.querySelectorAll('#decoded .bits + .table tbody th')].map((th) => th.innerText)"),
        json!(["time", "datacenter", "worker", "sequence"])
    );
    let read =
        browser.run("[...document.querySelectorAll('#decoded .bits + .table code')].map((c) => c.innerText).join('')");
    assert_eq!(u64::from_str_radix(read.as_str().context("no bits")?, 2)?.to_string(), id, "all bits are drawn");
    browser.run(&choose("", ""));
    browser.enter("decode-id", &id);
    browser.until("document.querySelectorAll('#decoded details tbody tr').length > 1");
    browser.until("document.querySelectorAll('#tiles path.curve').length >= 4");
    browser.look_all_over("healthy");

    // By the keyboard alone, seen wherever one is.
    browser.run("document.activeElement.blur()");
    let mut seen = Vec::new();
    for _ in 0..30 {
        browser.tell(&json!({ "press": "Tab" }));
        let at = browser.run(
            "(() => { const e = document.activeElement; const s = getComputedStyle(e);
               return [e.id || e.textContent, e === document.body || s.outlineStyle !== 'none']; })()",
        );
        assert_eq!(at[1], true, "{at}: the focus is not seen");
        seen.push(at[0].clone());
    }
    for wanted in ["filter", "open-name", "ledger", "decode-id", "decode-by", "Take an id of default"] {
        assert!(seen.contains(&json!(wanted)), "{wanted} is not reached: {seen:?}");
    }

    // What has markup for a name is shown by it, and does nothing.
    client.send_json("POST", "/v1/tags", &json!({ "tag": HOSTILE }))?;
    client.get("/v1/sequences/%3Cimg%20src=x%20onerror=%22document.title='owned'%22%3E/ids")?.ids()?;
    browser.until_said("tags-table", HOSTILE);
    browser
        .run("[...document.querySelectorAll('#tags-table button')].find((b) => b.innerText.includes('img')).click()");
    browser.until_said("tag-facts", "Watermark");
    browser.until_said("tag-title", HOSTILE);
    browser.enter("take-count", "2");
    browser.until_said("take-said", "2 ids were taken");
    browser.until_said("take-said", "2\n3");
    assert_eq!(browser.run("[document.title, document.images.length]"), json!(["unalike console", 0]));
    browser.look("hostile", 360, false);
    browser.enter("decode-id", HOSTILE);
    browser.until_said("decoded", "The id is not valid");
    assert_eq!(browser.run("[document.title, document.images.length]"), json!(["unalike console", 0]));
    browser.is_content();
    Ok(())
}

#[test]
fn the_page_says_that_the_store_is_down_and_that_it_is_back() -> anyhow::Result<()> {
    let server = Server::start()?;
    let client = server.client();
    client.ids(&format!("{ORDER}?count=300"))?;
    let mut browser = Browser::start()?;
    browser.open(&server);
    browser.until_state("Ready");
    browser.until("document.querySelectorAll('#tags-table path.curve').length > 0");
    let lock = server.lock_store()?;
    // In use until the page says so, however long that takes, and then no more.
    let (stop, stopped) = mpsc::channel::<()>();
    let asking = client.clone();
    let user = thread::spawn(move || {
        while stopped.recv_timeout(Duration::from_millis(250)) == Err(mpsc::RecvTimeoutError::Timeout) {
            let _ = asking.get(ORDER);
        }
    });
    browser.until_state("Store down, ids go on");
    browser.until_said("ready-note", "The store is down since");
    browser.until_said("ready-note", "is used up first");
    drop(stop);
    user.join().unwrap();
    browser.look_all_over("store-down");
    // All that is left.
    for count in [100, 1] {
        while client.get(&format!("{ORDER}?count={count}"))?.status == 200 {}
    }
    browser.until_state("Not ready");
    browser.until_said("ready-note", "The store is unavailable");
    browser.look_all_over("store-down-and-used-up");
    drop(lock);
    browser.until_state("Ready");
    assert_eq!(browser.run("document.getElementById('ready-note').textContent"), "");
    browser.is_content();
    Ok(())
}

#[test]
fn the_page_shows_a_lease_that_is_about_to_end_and_one_that_has() -> anyhow::Result<()> {
    let directory = Arc::new(TempDir::new()?);
    let config = "[snowflakes.default]\nlayout = \"twitter\"\nhorizon_ms = 3000\n";
    std::fs::write(directory.path().join("unalike.toml"), config)?;
    let flags = ["--config", "unalike.toml"].map(str::to_owned).to_vec();
    let server = Server::start_in(Arc::clone(&directory), flags)?;
    let client = server.client();
    client.get(FLAKES)?.ids()?;
    let mut browser = Browser::start()?;
    browser.open(&server);
    browser.until_said("flakes", "gives ids");
    let worker = until(&server, |figures| figures["snowflakes"][0]["worker"].is_u64())?;
    let worker = worker["snowflakes"][0]["worker"].to_string();
    ok(directory.path(), &["leases", "release", "default", &worker]);
    browser.until("/extension forbidden|ended/.test(document.getElementById('flakes').textContent)");
    browser.look_all_over("lease-ending");

    let lock = server.lock_store()?;
    while client.get(FLAKES)?.status == 200 {}
    browser.until_said("flakes", "gives no ids");
    browser.until_state("Not ready");
    browser.until("document.querySelector('#flakes .note.bad') !== null");
    browser.look_all_over("lease-ended");
    drop(lock);
    while client.get(FLAKES)?.status != 200 {}
    browser.until_said("flakes", "gives ids");
    browser.until_state("Ready");
    browser.is_content();
    Ok(())
}

#[test]
fn a_token_is_asked_for_once_and_kept_for_the_tab_and_changes_are_made_by_the_page() -> anyhow::Result<()> {
    let mut server = with_tokens(&[])?;
    let admin = server.client().with_token(ADMIN);
    admin.ids(&format!("{ORDER}?count=7"))?;
    let mut browser = Browser::start()?;
    browser.open(&server);
    browser.until_state("Token wanted");
    assert_eq!(browser.run("document.activeElement.id"), "token");
    browser.look_all_over("no-token");
    browser.enter("token", "no-token-that-is-known");
    browser.until_state("Token refused");
    browser.enter("token", BOUND);
    browser.until_said("alert", "This token may not see the figures of this server");
    browser.look("token-refused", 360, false);
    browser.enter("token", READ);
    browser.until_state("Ready");
    assert_eq!(browser.run("document.getElementById('ask').hidden"), true);
    assert_eq!(
        browser.run("[Object.values(sessionStorage), localStorage.length, document.cookie, location.href]"),
        json!([[READ], 0, "", format!("{}/console", server.url())])
    );
    browser.reload();
    browser.until_state("Ready");
    assert_eq!(browser.run("document.getElementById('ask').hidden"), true, "it was asked for once");

    // It may look and take ids, and change nothing: the server's words are shown.
    browser.run("document.getElementById('create').open = true");
    browser.enter("create-name", "invoice");
    browser.until_said("create-said", "\"type\": \"urn:unalike:problem:forbidden\"");
    browser.run("document.getElementById('forget').click()");
    browser
        .until("document.readyState === 'complete' && document.getElementById('state').textContent === 'Token wanted'");
    assert_eq!(browser.run("sessionStorage.length"), 0);

    browser.enter("token", ADMIN);
    browser.until_state("Ready");
    browser.run("document.getElementById('create').open = true");
    browser.write("create-start", "1,000");
    browser.write("create-step", "50");
    browser.enter("create-name", "invoice");
    browser.until_said("create-said", "The tag invoice was created");
    browser.until_said("tag-title", "Tag invoice");
    let record = admin.get("/v1/tags/invoice")?.json()?;
    assert_eq!((&record["start"], &record["step"]["step"]), (&json!("1000"), &json!("50")));
    browser.enter("create-name", "invoice");
    browser.until_said("create-said", "urn:unalike:problem:tag-exists");

    browser.enter("step", "75");
    browser.until_said("step-said", "Each later grant of invoice has 75 numbers.");
    assert_eq!(admin.get("/v1/tags/invoice")?.json()?["step"]["step"], "75");
    // Beyond what a double has exactly, and asked for twice.
    browser.enter("raise", "9007199254740993");
    browser.until("document.getElementById('sure').open");
    browser.until_said("sure-what", "9,007,199,254,739,993 numbers are skipped");
    browser.picture("raise");
    browser.tell(&json!({ "press": "Escape" }));
    browser.until("!document.getElementById('sure').open");
    assert_eq!(admin.get("/v1/tags/invoice")?.json()?["watermark"], "999", "it was left");
    browser.enter("raise", "9007199254740993");
    browser.until("document.getElementById('sure').open");
    browser.run("document.getElementById('sure-yes').click()");
    browser.until_said("raise-said", "Every later grant of invoice begins at 9,007,199,254,740,993 or above.");
    assert_eq!(admin.get("/v1/tags/invoice")?.json()?["watermark"], "9007199254740992");
    browser.enter("take-count", "1");
    browser.until_said("take-said", "9007199254740993");
    browser.look_all_over("tag");

    // A server that hangs is told, and asked again.
    server.signal(libc::SIGSTOP)?;
    browser.until_state("Server gone");
    browser.until_said("alert", "gave no answer within 10 s");
    server.signal(libc::SIGCONT)?;
    browser.until_state("Ready");
    server.kill9()?;
    browser.until_state("Server gone");
    browser.until_said("alert", "does not answer");
    browser.look("server-gone", 1_120, false);
    browser.is_content();
    Ok(())
}
