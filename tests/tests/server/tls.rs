//! TLS and HTTP/2 on the port of real servers: who is served, by which certificate, and who is not waited for.

#![expect(clippy::unwrap_used, clippy::panic_in_result_fn, reason = "a test that cannot go on fails")]

use std::collections::HashSet;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use h2::Reason;
use h2::client::Builder;
use rcgen::SanType;
use rustls::{ClientConfig, HandshakeKind};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio_rustls::TlsConnector;
use unalike::{Ids, SequenceOptions};
use unalike_remote::{RemoteOptions, RemoteStore};
use unalike_tests::authority::{Authority, Valid};
use unalike_tests::http2::{Http2, connector, tls, whole};
use unalike_tests::server::{Server, fails, ok, run};

const ORDER: &str = "/v1/sequences/order/ids";
const ADMIN: &str = "admin-0123456789abcdef";

/// A server with a certificate of this authority, and these flags.
fn secure(authority: &Authority, flags: &[&str]) -> Result<Server> {
    secure_in(Arc::new(TempDir::new()?), authority, flags)
}

fn secure_in(directory: Arc<TempDir>, authority: &Authority, flags: &[&str]) -> Result<Server> {
    let (certificate, key) = (authority.file("server.pem"), authority.file("key.pem"));
    let flags = [&["--tls-cert", &certificate, "--tls-key", &key], flags].concat();
    Server::start_in(directory, flags.into_iter().map(str::to_owned).collect())
}

/// A server that takes client certificates of this authority, and has these tokens.
fn with_clients(authority: &Authority, tokens: &str, flags: &[&str]) -> Result<Server> {
    let directory = Arc::new(TempDir::new()?);
    let admin = format!("[[tokens]]\nname = \"admin\"\ntoken = \"{ADMIN}\"\nscope = \"admin\"\n");
    std::fs::write(directory.path().join("tokens.toml"), admin + tokens)?;
    let ca = authority.file("ca.pem");
    secure_in(directory, authority, &[&["--tokens", "tokens.toml", "--tls-client-ca", &ca], flags].concat())
}

fn dns(name: &str) -> SanType {
    SanType::DnsName(name.try_into().unwrap())
}

/// What curl, run with these arguments, said of its one request.
#[derive(Debug)]
struct Said {
    /// The protocol and the status: `2 200`.
    how: String,
    body: String,
}

fn try_curl(arguments: &[&str]) -> Result<Output> {
    let format = ["--silent", "--show-error", "--max-time", "60", "--write-out", "\n%{http_version} %{http_code}"];
    Command::new("curl").args(format).args(arguments).output().context("curl does not start")
}

/// The answer that curl got.
fn curl(arguments: &[&str]) -> Result<Said> {
    let output = try_curl(arguments)?;
    let printed = String::from_utf8(output.stdout)?;
    ensure!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    let (body, how) = printed.rsplit_once('\n').context("no answer")?;
    Ok(Said { how: how.to_owned(), body: body.to_owned() })
}

impl Said {
    fn detail(&self) -> Result<String> {
        let document: Value = serde_json::from_str(&self.body).with_context(|| format!("no JSON: {self:?}"))?;
        Ok(document.get("detail").and_then(Value::as_str).unwrap_or_default().to_owned())
    }
}

/// Waits until the server has closed this connection; gives what it sent before.
fn until_closed(mut stream: &TcpStream) -> Result<Vec<u8>> {
    let mut read = Vec::new();
    match stream.read_to_end(&mut read) {
        Ok(_) => Ok(read),
        // It closed with something unread.
        Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(read),
        Err(error) => Err(error.into()),
    }
}

/// A figure of a server that needs no token.
fn figure(server: &Server, ca: &str, name: &str) -> Result<f64> {
    let scraped = curl(&["--cacert", ca, &format!("{}/metrics", server.url())])?;
    let line = scraped.body.lines().find(|line| line.starts_with(&format!("{name} ")));
    Ok(line.with_context(|| format!("no {name}"))?.rsplit_once(' ').context("no figure")?.1.parse()?)
}

#[test]
fn ids_come_by_each_protocol() -> Result<()> {
    let authority = Authority::new("127.0.0.1");
    let ca = authority.file("ca.pem");
    let (server, plain) = (secure(&authority, &[])?, Server::start()?);
    assert!(server.url().starts_with("https://127.0.0.1:"), "{}", server.url());
    let (url, plain_url) = (format!("{}{ORDER}", server.url()), format!("{}{ORDER}", plain.url()));
    for (arguments, id, how) in [
        (&["--cacert", &ca, "--http1.1", &url][..], 1, "1.1 200"),
        (&["--cacert", &ca, "--http2", &url], 2, "2 200"),
        (&["--cacert", &ca, "--tls-max", "1.2", &url], 3, "2 200"),
        (&["--cacert", &ca, "--http1.1", "--tls-max", "1.2", "--json", "{\"count\":1}", &url], 4, "1.1 200"),
        (&["--cacert", &ca, "--http2", "--json", "{\"count\":1}", &url], 5, "2 200"),
        (&["--http1.1", &plain_url], 1, "1.1 200"),
        (&["--http2-prior-knowledge", &plain_url], 2, "2 200"),
        // An offer to change to HTTP/2 is not taken up, and harms nobody.
        (&["--http2", &plain_url], 3, "1.1 200"),
    ] {
        let said = curl(arguments)?;
        assert_eq!((said.body, said.how.as_str()), (format!("{{\"tag\":\"order\",\"ids\":[\"{id}\"]}}"), how));
    }
    let twice = curl(&["--cacert", &ca, "--http1.1", &url, &url])?;
    assert_eq!(twice.body.matches("ids").count(), 2, "a connection serves more than one request: {twice:?}");
    assert_eq!(server.troubles()?, Vec::<String>::new());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn no_id_comes_twice_over_streams_at_once() -> Result<()> {
    let authority = Authority::new("127.0.0.1");
    let connector = connector(&authority, None)?;
    for server in [secure(&authority, &[])?, Server::start()?] {
        let mut asking = Vec::new();
        for _ in 0..4 {
            let connection = match server.url().starts_with("https") {
                true => Http2::tls(server.address()?, &connector).await?,
                false => Http2::plain(server.address()?).await?,
            };
            for _ in 0..50 {
                let mut sender = connection.sender();
                asking.push(tokio::spawn(async move {
                    let mut ids = Vec::new();
                    for _ in 0..10 {
                        ids.extend(sender.ids(&format!("{ORDER}?count=10")).await?);
                    }
                    anyhow::Ok(ids)
                }));
            }
        }
        let mut seen = HashSet::new();
        for ids in asking {
            for id in ids.await?? {
                assert!(seen.insert(id), "{id} came twice");
            }
        }
        assert_eq!(seen.len(), 20_000);
    }
    Ok(())
}

#[test]
fn a_client_is_known_by_its_certificate() -> Result<()> {
    let authority = Authority::new("127.0.0.1");
    let uri = SanType::URI("spiffe://internal/operator".try_into().unwrap());
    let mail = SanType::Rfc822Name("reports@internal.example".try_into().unwrap());
    authority.certify_client("billing", &[dns("other.internal"), dns("billing.internal")], Valid::Now);
    authority.certify_client("operator", &[uri], Valid::Now);
    authority.certify_client("reports", &[mail], Valid::Now);
    authority.certify_client("guest", &[dns("guest.internal"), dns("*.internal")], Valid::Now);
    // Only the subject says billing.internal, or a name of another kind.
    authority.certify_client("nameless", &[], Valid::Now);
    authority.certify_client("posing", &[SanType::Rfc822Name("billing.internal".try_into().unwrap())], Valid::Now);
    authority.certify_client("late", &[dns("late.internal")], Valid::Now);
    let entry = |name: &str, client: &str, rest: &str| {
        format!("[[tokens]]\nname = \"{name}\"\nclient = \"{client}\"\n{rest}\n")
    };
    let tokens = [
        entry("billing", "billing.internal", "scope = \"read\"\ntags = [\"order\", \"invoice*\"]"),
        entry("operator", "spiffe://internal/operator", "scope = \"admin\""),
        entry("reports", "reports@internal.example", "scope = \"read\"\nids_per_s = 1"),
        entry("late", "late.internal", "scope = \"read\"\nexpires = 2020-01-01"),
    ];
    let server = with_clients(&authority, &tokens.concat(), &[])?;
    let (ca, url) = (authority.file("ca.pem"), server.url());
    let ask = |protocol: &str, client: &str, path: &str, rest: &[&str]| {
        let (url, files) = (format!("{url}{path}"), [format!("{client}.pem"), format!("{client}.key")]);
        let [certificate, key] = files.each_ref().map(|file| authority.file(file));
        let mut arguments = vec![protocol, "--cacert", &ca];
        if !client.is_empty() {
            arguments.extend(["--cert", &certificate, "--key", &key]);
        }
        curl(&[&arguments, rest, &[url.as_str()]].concat())
    };
    let bearer = |token: &str| format!("Authorization: Bearer {token}");
    let (admin, wrong) = (bearer(ADMIN), bearer("nobody-has-this-token"));
    for (protocol, version) in [("--http1.1", "1.1"), ("--http2", "2")] {
        for (client, path, rest, status, part) in [
            ("billing", ORDER, &[][..], "200", "\"ids\""),
            ("billing", "/v1/sequences/order/ids?count=3", &[], "200", "\"ids\""),
            ("billing", "/v1/sequences/invoice-2/ids", &["--request", "POST"], "200", "\"ids\""),
            ("billing", "/v1/sequences/chat/ids", &[], "403", "not valid for \\\"chat\\\""),
            ("billing", "/v1/tags", &[], "403", "for some tags only"),
            ("billing", "/v1/sequences/order/segments?count=1", &["--request", "POST"], "403", "the scope lease"),
            ("operator", "/v1/tags", &[], "200", "order"),
            ("operator", "/metrics", &[], "200", "unalike_ids_total"),
            ("reports", "/v1/sequences/order/ids?count=100", &[], "400", "count"),
            ("guest", ORDER, &[], "401", "guest.internal, *.internal"),
            ("nameless", ORDER, &[], "401", "no name"),
            ("posing", ORDER, &[], "401", "no name"),
            ("late", ORDER, &[], "401", "expired at 2020-01-01"),
            ("", ORDER, &[], "401", "Authorization: Bearer"),
            ("", ORDER, &["--header", &admin], "200", "\"ids\""),
            // Whoever sends a token is judged by it.
            ("billing", "/v1/sequences/chat/ids", &["--header", &admin], "200", "\"ids\""),
            ("operator", ORDER, &["--header", &wrong], "401", "not known"),
            ("guest", "/health/ready", &[], "200", "ready"),
        ] {
            let said = ask(protocol, client, path, rest)?;
            assert_eq!(said.how, format!("{version} {status}"), "{client} {path}: {said:?}");
            assert!(said.body.contains(part), "{client} {path}: {said:?}");
        }
    }
    let scraped = ask("--http2", "operator", "/metrics", &[])?;
    assert!(scraped.body.contains("unalike_tokens_refused_total{reason=\"client\"} 6\n"), "{}", scraped.body);
    Ok(())
}

#[test]
fn certificates_that_nobody_vouches_for_are_refused() -> Result<()> {
    let (authority, stranger) = (Authority::new("127.0.0.1"), Authority::new("127.0.0.1"));
    let billing = "[[tokens]]\nname = \"billing\"\nclient = \"billing.internal\"\nscope = \"admin\"\n";
    let server = with_clients(&authority, billing, &[])?;
    let (ca, url) = (authority.file("ca.pem"), format!("{}/metrics", server.url()));
    authority.certify_client("billing", &[dns("billing.internal")], Valid::Now);
    authority.certify_client("ended", &[dns("billing.internal")], Valid::Ended);
    authority.certify_client("later", &[dns("billing.internal")], Valid::Later);
    // A certificate of a server is none of a client.
    authority.certify_server("billing.internal", Valid::Now, "serving.pem", "serving.key");
    stranger.certify_client("billing", &[dns("billing.internal")], Valid::Now);
    let ask = |from: &Authority, client: &str, protocol: &str| {
        let [certificate, key] = ["pem", "key"].map(|kind| from.file(&format!("{client}.{kind}")));
        try_curl(&[protocol, "--cacert", &ca, "--cert", &certificate, "--key", &key, &url])
    };
    let mut failed = 0;
    for protocol in ["--http1.1", "--http2"] {
        for (from, client) in
            [(&stranger, "billing"), (&authority, "ended"), (&authority, "later"), (&authority, "serving")]
        {
            let output = ask(from, client, protocol)?;
            assert!(!output.status.success(), "{client}: {output:?}");
            assert!(output.stdout.ends_with(b" 000"), "{client} got an answer: {output:?}");
            failed += 1;
        }
        let output = ask(&authority, "billing", protocol)?;
        let scraped = String::from_utf8(output.stdout)?;
        assert!(scraped.contains(&format!("unalike_tls_handshakes_failed_total {failed}\n")), "{scraped}");
    }
    // Whoever does not trust the server ends the handshake, too.
    let output = try_curl(&["--cacert", &stranger.file("ca.pem"), &url])?;
    assert!(!output.status.success() && output.stdout.ends_with(b" 000"), "{output:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn sighup_reads_certificate_key_and_authorities_again() -> Result<()> {
    let (authority, other) = (Authority::new("127.0.0.1"), Authority::new("127.0.0.1"));
    let directory = Arc::new(TempDir::new()?);
    let file = |name: &str| directory.path().join(name);
    let install = |from: &Authority, certificate: &str, key: &str, ca: &str| -> Result<()> {
        for (source, target) in [(certificate, "cert.pem"), (key, "cert.key"), (ca, "clients.pem")] {
            std::fs::copy(from.file(source), file(target))?;
        }
        Ok(())
    };
    install(&authority, "server.pem", "key.pem", "ca.pem")?;
    let billing = "[[tokens]]\nname = \"billing\"\nclient = \"billing.internal\"\nscope = \"read\"\n";
    std::fs::write(file("tokens.toml"), billing)?;
    let flags = "--tls-cert cert.pem --tls-key cert.key --tls-client-ca clients.pem --tokens tokens.toml";
    let server = Server::start_in(Arc::clone(&directory), flags.split(' ').map(str::to_owned).collect())?;
    let address = server.address()?;
    for each in [&authority, &other] {
        each.certify_client("billing", &[dns("billing.internal")], Valid::Now);
    }
    let (first, second) = (connector(&authority, Some("billing"))?, connector(&other, Some("billing"))?);
    let old = Http2::tls(address, &first).await?;
    assert_eq!(old.sender().ids(ORDER).await?, [1]);
    Http2::tls(address, &second).await.err().context("its certificate is of another authority")?;

    install(&other, "server.pem", "key.pem", "ca.pem")?;
    server.signal(libc::SIGHUP)?;
    server.wait_for_log("the certificate was read again", 1)?;
    let new = Http2::tls(address, &second).await?;
    assert_eq!(new.sender().ids(ORDER).await?, [2]);
    assert_eq!(old.sender().ids(ORDER).await?, [3], "it goes on as it began");
    Http2::tls(address, &first).await.err().context("that certificate is gone")?;

    // The key of another certificate: nothing changes.
    let mut refused = 0;
    for (name, text) in [("cert.key", std::fs::read(authority.file("key.pem"))?), ("clients.pem", b"none".to_vec())] {
        std::fs::write(file(name), text)?;
        refused += 1;
        server.signal(libc::SIGHUP)?;
        server.wait_for_log("the certificate stays as it was", refused)?;
        let still = Http2::tls(address, &second).await?;
        assert_eq!(still.sender().get(ORDER).await?.status(), 200);
        install(&other, "server.pem", "key.pem", "ca.pem")?;
    }
    std::fs::remove_file(file("cert.pem"))?;
    server.signal(libc::SIGHUP)?;
    server.wait_for_log("the certificate stays as it was", refused + 1)?;
    let log = server.log()?;
    for part in ["cert.key does not belong to the certificate cert.pem", "clients.pem", "there is no certificate in it"]
    {
        assert!(log.contains(part), "{part}: {log}");
    }
    assert!(!log.contains("PRIVATE KEY-----\n"), "{log}");
    // Tokens are read again all the same.
    std::fs::write(file("tokens.toml"), billing.replace("billing.internal", "else.internal"))?;
    server.signal(libc::SIGHUP)?;
    server.wait_for_log("the token file was read again", 5)?;
    assert_eq!(new.sender().get(ORDER).await?.status(), 401);
    Ok(())
}

#[test]
fn files_that_cannot_be_used_fail_the_start() -> Result<()> {
    let (authority, other) = (Authority::new("127.0.0.1"), Authority::new("127.0.0.1"));
    let directory = TempDir::new()?;
    let at = directory.path();
    let [certificate, key, ca] = ["server.pem", "key.pem", "ca.pem"].map(|name| authority.file(name));
    let other_key = other.file("key.pem");
    let encrypted = at.join("encrypted.key").display().to_string();
    let mut openssl = Command::new("openssl");
    openssl.args(["pkey", "-aes256", "-passout", "pass:secret", "-in", &key, "-out", &encrypted]);
    ensure!(openssl.status()?.success(), "openssl encrypts no key");
    std::fs::write(at.join("empty.pem"), "")?;
    std::fs::write(at.join("half.pem"), "-----BEGIN CERTIFICATE-----\nMIIB\n")?;
    std::fs::write(at.join("nonsense.pem"), "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n")?;
    std::fs::write(
        at.join("clients.toml"),
        "[[tokens]]\nname = \"billing\"\nclient = \"billing.internal\"\nscope = \"read\"\n",
    )?;
    for (flags, named) in [
        (&["--tls-cert", certificate.as_str()][..], &["tls_cert", "tls_key", "--tls-key"][..]),
        (&["--tls-key", &key], &["tls_key", "tls_cert", "--tls-cert"]),
        (&["--tls-client-ca", &ca, "--tokens", "clients.toml"], &["tls_client_ca", "--tls-cert"]),
        (&["--tls-cert", &certificate, "--tls-key", &key, "--tls-client-ca", &ca], &["without tokens", "--tokens"]),
        (
            &[
                "--tls-cert",
                &certificate,
                "--tls-key",
                &key,
                "--tls-client-ca",
                &certificate,
                "--tokens",
                "clients.toml",
            ],
            &["--tls-client-ca", "its certificate 1", "could sign any name"],
        ),
        (&["--tls-cert", "none.pem", "--tls-key", &key], &["none.pem", "--tls-cert", "No such file"]),
        (&["--tls-cert", &certificate, "--tls-key", "none.key"], &["none.key", "--tls-key", "No such file"]),
        (&["--tls-cert", "empty.pem", "--tls-key", &key], &["empty.pem", "no certificate in it"]),
        (&["--tls-cert", "half.pem", "--tls-key", &key], &["half.pem", "--tls-cert"]),
        (&["--tls-cert", "nonsense.pem", "--tls-key", &key], &["nonsense.pem", "--tls-cert"]),
        (&["--tls-cert", &key, "--tls-key", &key], &["key.pem", "no certificate in it"]),
        (&["--tls-cert", &certificate, "--tls-key", &certificate], &["server.pem", "no private key in it"]),
        (&["--tls-cert", &certificate, "--tls-key", &other_key], &["does not belong to the certificate", "key.pem"]),
        (&["--tls-cert", &certificate, "--tls-key", &encrypted], &["encrypted.key", "openssl pkey"]),
        (
            &[
                "--tls-cert",
                &certificate,
                "--tls-key",
                &key,
                "--tls-client-ca",
                "empty.pem",
                "--tokens",
                "clients.toml",
            ],
            &["empty.pem", "--tls-client-ca"],
        ),
        (
            &["--tls-cert", &certificate, "--tls-key", &key, "--tokens", "clients.toml"],
            &["clients.toml", "\"billing\"", "--tls-client-ca"],
        ),
    ] {
        let ran = fails(at, &[&["serve", "--listen", "127.0.0.1:0"], flags].concat(), 1, named);
        assert!(!ran.stderr.contains("MII"), "what is in a file is not said: {}", ran.stderr);
        let keys = flags.chunks(2).map(|pair| {
            let key = pair[0].trim_start_matches("--").replace('-', "_");
            format!("{key} = {}\n", Value::from(pair[1]))
        });
        std::fs::write(at.join("unalike.toml"), keys.collect::<String>())?;
        fails(at, &["config", "check", "unalike.toml"], 1, named);
    }
    assert!(!at.join("unalike.sqlite").exists(), "a mistake creates no store");
    let file = format!("tls_cert = {}\ntls_key = {}\n", Value::from(certificate), Value::from(key));
    std::fs::write(at.join("unalike.toml"), file)?;
    let checked = ok(at, &["config", "check", "unalike.toml"]);
    assert!(checked.contains("# the certificate and its key are valid, until 2200-01-01"), "{checked}");
    Ok(())
}

#[test]
fn what_is_wrong_though_it_works_is_told() -> Result<()> {
    let authority = Authority::new("127.0.0.1");
    authority.certify_server("127.0.0.1", Valid::Ended, "ended.pem", "ended.key");
    authority.certify_server("127.0.0.1", Valid::Later, "later.pem", "later.key");
    authority.certify_server("127.0.0.1", Valid::Now, "open.pem", "open.key");
    std::fs::set_permissions(authority.file("open.key"), std::fs::Permissions::from_mode(0o644))?;
    let soon = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "3"])
        .args(["-subj", "/CN=soon", "-addext", "subjectAltName=IP:127.0.0.1"])
        .args(["-out", &authority.file("soon.pem"), "-keyout", &authority.file("soon.key")])
        .output()?;
    ensure!(soon.status.success(), "{soon:?}");
    let directory = TempDir::new()?;
    let at = directory.path();
    std::fs::write(
        at.join("tokens.toml"),
        format!("[[tokens]]\nname = \"a\"\ntoken = \"{ADMIN}\"\nscope = \"admin\"\n"),
    )?;
    std::fs::set_permissions(at.join("tokens.toml"), std::fs::Permissions::from_mode(0o600))?;
    for (name, told, verdict, code) in [
        ("ended", "ended.pem ended at 2001-01-01", "wrong", 1),
        ("later", "later.pem is valid from 2199-01-01", "risk", 0),
        ("soon", "soon.pem ends at ", "risk", 0),
        ("open", "open.key can be read by every user of this machine: chmod 600 it", "risk", 0),
    ] {
        let files = ["pem", "key"].map(|kind| authority.file(&format!("{name}.{kind}")));
        let flags = ["--tls-cert", &files[0], "--tls-key", &files[1]];
        let server = Server::start_with(flags)?;
        let troubles = server.troubles()?;
        assert!(troubles.len() == 1 && troubles[0].contains(told), "{troubles:?}");
        let ran = run(at, [&["doctor", "--json"], &flags[..]].concat())?;
        assert_eq!(ran.code, Some(code), "{ran:?}");
        let report: Value = serde_json::from_str(&ran.stdout)?;
        let findings = report["findings"].as_array().unwrap();
        assert!(
            findings.iter().any(|finding| finding["subject"] == "certificate" && finding["verdict"] == verdict),
            "{report:#}"
        );
    }
    let [certificate, key] = ["server.pem", "key.pem"].map(|name| authority.file(name));
    let secure = ["--tls-cert", &certificate, "--tls-key", &key];
    let told = "tokens come to 0.0.0.0:0 without encryption";
    for (flags, is_told) in [(&[][..], true), (&["--insecure-no-tls"], false), (&secure, false)] {
        let open = ["--listen", "0.0.0.0:0", "--tokens", "tokens.toml"];
        let ran = run(at, [&["doctor", "--json"], &open[..], flags].concat())?;
        let report: Value = serde_json::from_str(&ran.stdout)?;
        let port = report["findings"].as_array().unwrap().iter().find(|finding| finding["subject"] == "port");
        assert_eq!(port.unwrap()["verdict"], if is_told { "risk" } else { "ok" }, "{report:#}");
        let directory = Arc::new(TempDir::new()?);
        std::fs::copy(at.join("tokens.toml"), directory.path().join("tokens.toml"))?;
        let flags = [&["--tokens", "tokens.toml"], flags].concat().into_iter().map(str::to_owned).collect();
        let server = Server::start_open(directory, flags)?;
        assert_eq!(server.log()?.contains(told), is_told, "{}", server.log()?);
    }
    Ok(())
}

#[test]
fn whoever_does_not_go_on_is_not_waited_for() -> Result<()> {
    let authority = Authority::new("127.0.0.1");
    let ca = authority.file("ca.pem");
    let quick = ["--head-timeout-ms", "2000", "--idle-timeout-ms", "2000"];
    let (server, plain) = (secure(&authority, &quick)?, Server::start_with(quick)?);
    let began = |server: &Server, bytes: &[u8]| -> Result<TcpStream> {
        let mut stream = server.connect()?;
        stream.write_all(bytes)?;
        Ok(stream)
    };
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let settings = b"\0\0\0\x04\0\0\0\0\0";
    let waiting = [
        // Nothing, and the beginning of a handshake.
        began(&server, b"")?,
        began(&server, b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03")?,
        // Nothing, parts of the preface, and all of it without a request.
        began(&plain, b"")?,
        began(&plain, b"PRI")?,
        began(&plain, b"PRI * HTTP/2.0\r\n\r\n")?,
        began(&plain, PREFACE)?,
        began(&plain, &[PREFACE, settings].concat())?,
        // A head that has no end: HEADERS for stream 1, without END_HEADERS.
        began(&plain, &[PREFACE, settings, b"\0\0\x01\x01\0\0\0\0\x01\x82"].concat())?,
    ];
    for stream in &waiting {
        until_closed(stream)?;
    }
    let failed = || figure(&server, &ca, "unalike_tls_handshakes_failed_total");
    // The connection is closed before it is counted.
    while failed()? < 1.0 {}
    assert_eq!(failed()?, 1.0);
    assert_eq!(figure(&server, &ca, "unalike_connections_open")?, 1.0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_connection_is_said_goodbye_to() -> Result<()> {
    let authority = Authority::new("127.0.0.1");
    let connector = connector(&authority, None)?;
    let quick = ["--idle-timeout-ms", "2000"];
    for server in [secure(&authority, &quick)?, Server::start_with(quick)?] {
        let connection = match server.url().starts_with("https") {
            true => Http2::tls(server.address()?, &connector).await?,
            false => Http2::plain(server.address()?).await?,
        };
        assert_eq!(connection.sender().ids(ORDER).await?, [1]);
        // It ends with GOAWAY and no error, which is nothing to report.
        connection.ends().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_takes_no_answer_is_not_kept() -> Result<()> {
    let server = Server::start_with(["--idle-timeout-ms", "300", "--head-timeout-ms", "300"])?;
    let mut closed = Builder::new();
    closed.initial_window_size(0);
    let stream = tokio::net::TcpStream::connect(server.address()?).await?;
    let connection = Http2::over(stream, "http", server.address()?, &closed).await?;
    let mut sender = connection.sender();
    let mut answers = Vec::new();
    for _ in 0..40 {
        answers.push(sender.send(sender.request(&format!("{ORDER}?count=10000"))).await?);
    }
    let (mut untaken, mut waiting) = (Vec::new(), Vec::new());
    for answer in answers {
        let answer = answer.await?;
        assert_eq!(answer.status(), 200);
        untaken.push(answer);
    }
    for _ in 0..40 {
        // The server may have had enough.
        let more = sender.send(sender.request(&format!("{ORDER}?count=10000"))).await;
        let Ok(more) = more else { break };
        waiting.push(more);
    }
    // No byte of a body is ever taken.
    // How it ends is not said: nobody listens.
    let _ = connection.ended.await?;
    // What was asked for while so much waited was not even made.
    let figures = server.get("/metrics")?.body;
    let made = figures.lines().find_map(|line| line.strip_prefix("unalike_ids_total{tag=\"order\"} "));
    let made: u64 = made.context("no figure")?.parse()?;
    assert_eq!(made, 400_000);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_takes_no_small_answers_in_tls_is_not_kept() -> Result<()> {
    let authority = Authority::new("127.0.0.1");
    let server = secure(&authority, &["--idle-timeout-ms", "300", "--head-timeout-ms", "300"])?;
    let address = server.address()?;
    let connector = connector(&authority, None)?;
    let mut config = ClientConfig::clone(connector.config());
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let socket = tokio::net::TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(4_096)?;
    let stream = socket.connect(address.parse()?).await?;
    let mut stream = TlsConnector::from(Arc::new(config)).connect("127.0.0.1".try_into()?, stream).await?;
    // Each answer fits into the buffers of TLS, all together do not, and none is ever read.
    let request = format!("GET {ORDER}?count=1000 HTTP/1.1\r\nHost: {address}\r\n\r\n").repeat(2_000);
    // It is written as far as the server reads, which closes then.
    let _ = stream.write_all(request.as_bytes()).await;
    let ca = authority.file("ca.pem");
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while figure(&server, &ca, "unalike_connections_open")? > 1.0 {
        ensure!(std::time::Instant::now() < deadline, "the connection is kept");
    }
    drop(stream);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_of_a_client_with_a_certificate_is_not_resumed() -> Result<()> {
    let authority = Authority::new("127.0.0.1");
    authority.certify_client("billing", &[dns("billing.internal")], Valid::Now);
    let billing = "[[tokens]]\nname = \"billing\"\nclient = \"billing.internal\"\nscope = \"read\"\n";
    let with = with_clients(&authority, billing, &[])?;
    let without = secure(&authority, &[])?;
    for (server, client, resumes) in [(&with, Some("billing"), false), (&without, None, true)] {
        let connector = connector(&authority, client)?;
        for before in 0..3 {
            let stream = tls(server.address()?, &connector).await?;
            let kind = stream.get_ref().1.handshake_kind();
            let is_resumed = kind == Some(HandshakeKind::Resumed);
            assert_eq!(is_resumed, resumes && before > 0, "{client:?}, the connection after {before}: {kind:?}");
            let connection = Http2::over(stream, "https", server.address()?, &Builder::new()).await?;
            assert_eq!(connection.sender().get(ORDER).await?.status(), 200);
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_that_are_reset_at_once_harm_nobody_else() -> Result<()> {
    let server = Server::start()?;
    let connection = Http2::plain(server.address()?).await?;
    let mut sender = connection.sender();
    for _ in 0..20_000 {
        // The server may have had enough.
        let Ok(answer) = sender.send(sender.request(ORDER)).await else { break };
        drop(answer);
    }
    let other = Http2::plain(server.address()?).await?;
    assert_eq!(other.sender().get(ORDER).await?.status(), 200);
    assert_eq!(server.troubles()?, Vec::<String>::new());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_hold_for_http2() -> Result<()> {
    let flags = "--head-max-bytes 2000 --headers-max 20 --url-max-bytes 256 --body-max-bytes 100 --request-timeout-ms 300 \
                 --connections-max 2";
    let server = Server::start_with(flags.split(' ').filter(|flag| !flag.is_empty()))?;
    let connection = Http2::plain(server.address()?).await?;
    let mut sender = connection.sender();
    let kind = |body: &str| -> Result<String> {
        let document: Value = serde_json::from_str(body)?;
        Ok(document["type"].as_str().unwrap_or_default().replace("urn:unalike:problem:", ""))
    };
    let long = sender.ask(sender.request(ORDER).header("x-long", "x".repeat(4_000))).await?;
    assert_eq!(long.status(), 431);
    let many = (0..30).fold(sender.request(ORDER), |request, number| request.header(format!("x-{number}"), "x"));
    let many = sender.ask(many).await?;
    assert_eq!((many.status().as_u16(), kind(many.body())?.as_str()), (431, "head-too-large"));
    let url = sender.get(&format!("{ORDER}?{}", "x".repeat(300))).await?;
    assert_eq!((url.status().as_u16(), kind(url.body())?.as_str()), (414, "url-too-long"));
    for size in [200, 60_000] {
        let post = sender.request(ORDER).method("POST").header("content-type", "application/json");
        let body = sender.send_body(post, Some(vec![b' '; size].into())).await?;
        let body = whole(body).await?;
        assert_eq!((body.status().as_u16(), kind(body.body())?.as_str()), (413, "body-too-large"));
        assert!(!body.headers().contains_key("connection"), "{body:?}");
    }
    // A body that never ends.
    let (unfinished, _open) = sender.begin(sender.request(ORDER).method("POST")).await?;
    let late = whole(unfinished).await?;
    assert_eq!((late.status().as_u16(), kind(late.body())?.as_str()), (503, "timeout"));
    // None of this was the connection's end.
    assert_eq!(sender.get(ORDER).await?.status(), 200);
    let _second = server.connect()?;
    let third = server.connect()?;
    let refused = String::from_utf8(until_closed(&third)?)?;
    assert!(refused.contains("connections-max"), "{refused}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_authority_counts_as_the_host() -> Result<()> {
    let server = Server::start()?;
    let (address, port) = (server.address()?, server.address()?.rsplit_once(':').unwrap().1);
    let ask = async |authority: &str, headers: &[(&'static str, &str)]| -> Result<(u16, String)> {
        let stream = tokio::net::TcpStream::connect(address).await?;
        let connection = Http2::over(stream, "http", authority, &Builder::new()).await?;
        let mut sender = connection.sender();
        let request =
            headers.iter().fold(sender.request(ORDER), |request, (name, value)| request.header(*name, *value));
        let answer = sender.ask(request).await?;
        Ok((answer.status().as_u16(), answer.into_body()))
    };
    let localhost = format!("localhost:{port}");
    for (authority, headers, status, part) in [
        (address, &[][..], 200, "\"ids\""),
        (&localhost, &[], 200, "\"ids\""),
        (&localhost, &[("host", localhost.as_str())], 200, "\"ids\""),
        ("evil.example", &[], 421, "evil.example"),
        (&localhost, &[("host", "evil.example")], 400, "not its :authority"),
        ("evil.example", &[("host", &localhost)], 400, "not its :authority"),
        (&localhost, &[("origin", "http://evil.example")], 403, "evil.example"),
        (&localhost, &[("origin", &format!("http://{localhost}"))], 200, "\"ids\""),
        (&localhost, &[("origin", &format!("https://{localhost}"))], 403, "https://localhost"),
        (&localhost, &[("sec-fetch-site", "cross-site")], 403, "another site"),
    ] {
        let (got, body) = ask(authority, headers).await?;
        assert!(got == status && body.contains(part), "{authority} {headers:?}: {got} {body}");
    }
    Ok(())
}

#[test]
fn a_page_of_the_server_s_own_has_its_scheme() -> Result<()> {
    let authority = Authority::new("127.0.0.1");
    let ca = authority.file("ca.pem");
    let server = secure(&authority, &[])?;
    let url = format!("{}{ORDER}", server.url());
    for (origin, status) in [
        (server.url().to_owned(), "200"),
        (server.url().replace("https", "http"), "403"),
        ("https://evil.example".to_owned(), "403"),
    ] {
        for (protocol, version) in [("--http1.1", "1.1"), ("--http2", "2")] {
            let said = curl(&["--cacert", &ca, protocol, "--header", &format!("Origin: {origin}"), &url])?;
            assert_eq!(said.how, format!("{version} {status}"), "{origin}: {said:?}");
        }
    }
    Ok(())
}

#[test]
fn plain_http_at_a_port_of_https_is_told_so() -> Result<()> {
    let authority = Authority::new("127.0.0.1");
    let server = secure(&authority, &[])?;
    let url = format!("{}{ORDER}", server.url().replace("https", "http"));
    let said = curl(&[&url])?;
    assert_eq!(said.how, "1.1 400");
    assert_eq!(said.detail()?, "this port speaks HTTPS: ask for https:// in place of http://");
    let mut posting = server.connect()?;
    posting.write_all(b"POST /v1/sequences/order/ids HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}")?;
    assert!(String::from_utf8(until_closed(&posting)?)?.starts_with("HTTP/1.1 400 "));
    // What is neither is refused, too.
    let mut noise = server.connect()?;
    noise.write_all(b"\0\x01nothing that anybody speaks\r\n\r\n")?;
    until_closed(&noise)?;
    assert_eq!(figure(&server, &authority.file("ca.pem"), "unalike_tls_handshakes_failed_total")?, 1.0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_run_when_the_server_ends_are_answered() -> Result<()> {
    let authority = Authority::new("127.0.0.1");
    let connector = connector(&authority, None)?;
    for is_secure in [true, false] {
        let mut server = if is_secure { secure(&authority, &[])? } else { Server::start()? };
        let connection = match is_secure {
            true => Http2::tls(server.address()?, &connector).await?,
            false => Http2::plain(server.address()?).await?,
        };
        let mut sender = connection.sender();
        assert_eq!(sender.ids(ORDER).await?, [1]);
        let lock = server.lock_store()?;
        let mut running = Vec::new();
        for number in 0..20 {
            running.push(sender.send(sender.request(&format!("/v1/sequences/new-{number}/ids"))).await?);
        }
        // It was read when one that was sent after it is answered.
        assert_eq!(sender.ids(ORDER).await?, [2]);
        server.signal(libc::SIGTERM)?;
        server.wait_for_log("ending; another signal", 1)?;
        drop(lock);
        for answer in running {
            let answer = whole(answer).await?;
            assert_eq!(
                (answer.status().as_u16(), answer.body().contains("\"ids\":[\"1\"]")),
                (200, true),
                "{answer:?}"
            );
        }
        connection.ends().await?;
        assert!(server.wait()?.success());
        assert!(!server.log()?.contains("broken off"), "{}", server.log()?);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_connection_is_told_to_go_and_loses_no_request() -> Result<()> {
    let authority = Authority::new("127.0.0.1");
    let connector = connector(&authority, None)?;
    // Longer than the test: the server goes on, and the connection must not.
    let mut server = secure(&authority, &["--drain-ms", "600000"])?;
    let connection = Http2::tls(server.address()?, &connector).await?;
    let mut sender = connection.sender();
    assert_eq!(sender.ids(ORDER).await?, [1]);
    server.signal(libc::SIGTERM)?;
    server.wait_for_log("ending; another signal", 1)?;
    let mut answered = 0_u64;
    let told = loop {
        match sender.get(ORDER).await {
            Ok(answer) => {
                assert_eq!(answer.status(), 200);
                assert!(!answer.headers().contains_key("connection"), "{answer:?}");
                answered += 1;
            }
            Err(error) => break error,
        }
    };
    assert!(answered > 0 && told.is_go_away() && told.reason() == Some(Reason::NO_ERROR), "{answered} {told:?}");
    connection.ends().await?;
    // Whoever comes anew is served, and loses nothing either: no number was made that nobody got.
    let next = Http2::tls(server.address()?, &connector).await?;
    assert_eq!(next.sender().ids(ORDER).await?, [answered + 2]);
    server.kill9()?;
    Ok(())
}

#[test]
fn commands_reach_a_server_in_tls() -> Result<()> {
    let (authority, stranger) = (Authority::new("127.0.0.1"), Authority::new("127.0.0.1"));
    let [ca, strange] = [&authority, &stranger].map(|authority| authority.file("ca.pem"));
    let server = secure(&authority, &[])?;
    let (url, address) = (server.url(), server.address()?);
    let at = server.directory();
    assert_eq!(ok(at, &["health", url, "--ca", &ca]), "ready\n");
    assert_eq!(ok(at, &["health", &format!("{url}/"), "--ca", &ca, "--live"]), "live\n");
    fails(at, &["health", url, "--ca", &strange], 1, &["no server answers at", "certificate"]);
    // The system's authorities know nothing of it.
    fails(at, &["health", url], 1, &[]);
    fails(at, &["health", address], 1, &["HTTPS"]);
    let settings = format!(
        "listen = {}\ntls_cert = {}\ntls_key = {}\n",
        Value::from(address),
        Value::from(authority.file("server.pem")),
        Value::from(authority.file("key.pem"))
    );
    std::fs::write(at.join("unalike.toml"), settings)?;
    assert_eq!(ok(at, &["health", "--config", "unalike.toml"]), "ready\n");
    fails(at, &["health", "--config", "unalike.toml", "--ca", &strange], 1, &["certificate"]);
    let bench = ["bench", url, "--requests", "100", "--connections", "4", "--json"];
    let report: Value = serde_json::from_str(&ok(at, &[&bench[..], &["--ca", &ca]].concat()))?;
    assert_eq!(report["ids"], 100, "{report:#}");
    fails(at, &[&bench[..], &["--ca", &strange]].concat(), 1, &["no TLS with 127.0.0.1"]);
    Ok(())
}

#[tokio::test]
async fn a_host_is_granted_numbers_over_tls() -> Result<()> {
    let authority = Authority::new("127.0.0.1");
    let server = secure(&authority, &[])?;
    let options = RemoteOptions::from_url(&format!("{}?ssl-ca={}", server.url(), authority.file("ca.pem")))?;
    let store = RemoteStore::connect(options).await?;
    let ids = Ids::builder().segments(Arc::new(store)).build().await?;
    let sequence = ids.sequence("order", SequenceOptions::default()).await?;
    assert_eq!(sequence.next().await?, 1);
    Ok(())
}
