//! The OpenAPI document against real servers: what it says is so, and a client that is made from it finds nothing
//! amiss.

#![expect(clippy::panic_in_result_fn, reason = "a test that cannot go on fails")]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, ensure};
use serde_json::Value;
use tempfile::TempDir;
use unalike_tests::redis::{Persistence, Redis};
use unalike_tests::server::Server;

const DROP_IN: [&str; 2] = ["--drop-in", "leaf,tinyid,cosid"];

fn document(server: &Server) -> anyhow::Result<Value> {
    let answer = server.get("/openapi.json")?;
    ensure!(answer.status == 200 && answer.header("content-type") == Some("application/json"), "{answer:?}");
    answer.json()
}

#[test]
fn each_path_has_the_methods_of_the_document_and_no_others() -> anyhow::Result<()> {
    let server = Server::start_with(DROP_IN)?;
    let client = server.client();
    let document = document(&server)?;
    let paths = document["paths"].as_object().context("no paths")?;
    for (path, item) in paths {
        let operations = item.as_object().context("no path item")?;
        let mut url = path.clone();
        for parameter in operations.values().flat_map(|operation| operation["parameters"].as_array()).flatten() {
            if parameter["in"] == "path" {
                let (name, example) = (parameter["name"].as_str().unwrap(), parameter["example"].as_str().unwrap());
                url = url.replace(&format!("{{{name}}}"), example);
            }
        }
        ensure!(!url.contains('{'), "{path}: a parameter is not described");
        let documented: BTreeSet<String> = operations.keys().map(|method| method.to_uppercase()).collect();
        // All that a document can name.
        for method in ["GET", "PUT", "POST", "DELETE", "OPTIONS", "PATCH", "TRACE"] {
            let answer = client.send(method, &url, "text/plain", "")?;
            assert_eq!(answer.status != 405, documented.contains(method), "{method} {path}: {answer:?}");
        }
        let answer = client.send("BREW", &url, "text/plain", "")?;
        let group = operations.values().find_map(|operation| operation["tags"][0].as_str());
        if matches!(group, Some("leaf" | "tinyid")) {
            assert_ne!(answer.status, 405, "{path}: these take any method");
            let head = client.send("HEAD", &url, "text/plain", "")?;
            assert_eq!(head.status, 405, "{path}: an id would be lost");
            let allow = head.header("allow").with_context(|| format!("{path}: {head:?}"))?;
            let allowed: BTreeSet<String> = allow.split(',').map(|method| method.trim().to_owned()).collect();
            assert_eq!(documented, allowed, "{path}");
            continue;
        }
        // What it says is there is all that is there.
        let mut taken = documented.clone();
        if client.send("HEAD", &url, "text/plain", "")?.status != 405 {
            taken.insert("HEAD".to_owned());
        }
        for method in ["BREW", "HEAD", "GET", "PUT", "POST", "DELETE", "OPTIONS", "PATCH", "TRACE"] {
            let answer = client.send(method, &url, "text/plain", "")?;
            if answer.status == 405 {
                let allow = answer.header("allow").with_context(|| format!("{method} {path}: {answer:?}"))?;
                let allowed: BTreeSet<String> = allow.split(',').map(|method| method.trim().to_owned()).collect();
                assert_eq!(taken, allowed, "{method} {path}");
            }
        }
    }
    Ok(())
}

#[test]
fn the_document_has_what_is_configured() -> anyhow::Result<()> {
    let plain = document(&Server::start_with(["--count-max", "77"])?)?;
    assert_eq!(plain["paths"].as_object().unwrap().get("/ids"), None);
    let count = &plain["paths"]["/v1/sequences/{tag}/ids"]["get"]["parameters"][1];
    assert_eq!((&count["name"], &count["schema"]["maximum"]), (&"count".into(), &77.into()));
    let cosid = document(&Server::start_with(["--drop-in", "cosid"])?)?;
    assert!(cosid["paths"]["/ids"].is_object());
    assert_eq!(cosid["paths"].as_object().unwrap().get("/tinyid/id/nextId"), None);
    Ok(())
}

/// Has schemathesis make requests from the document, good ones and bad ones, and judge the answers.
fn explore(server: &Server, arguments: &[&str]) -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("no root")?;
    let program = root.join("target/schemathesis/bin/schemathesis");
    ensure!(
        program.exists(),
        "schemathesis is missing; install it: python3 -m venv target/schemathesis && target/schemathesis/bin/pip install \
         -r tests/schemathesis/requirements.txt (tests/run does that)"
    );
    let output = Command::new(program)
        .arg("--config-file")
        .arg(root.join("tests/schemathesis/schemathesis.toml"))
        .args(["run", "--no-color"])
        .args(arguments)
        .arg(format!("{}/openapi.json", server.url()))
        // It leaves files behind; and its hooks are found from here.
        .current_dir(server.directory())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("SCHEMATHESIS_HOOKS", root.join("tests/schemathesis/hooks.py"))
        .stdin(Stdio::null())
        .output()
        .context("schemathesis does not start")?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.success() && said.contains("No issues found"),
        "{said}{}\nthe server's log:\n{}",
        String::from_utf8_lossy(&output.stderr),
        server.log()?
    );
    Ok(())
}

#[test]
fn a_client_made_from_the_document_finds_nothing_amiss() -> anyhow::Result<()> {
    explore(&Server::start_with(DROP_IN)?, &[])
}

#[test]
fn a_client_finds_nothing_amiss_over_redis() -> anyhow::Result<()> {
    let redis = Redis::start(Persistence::Nothing)?;
    let store = redis.url(0, "");
    // CosId's clients say how many numbers they take at once, and Redis may have fewer.
    let over = ["--store", store.as_str(), "--backing", "sqlite://ids.sqlite", "--drop-in", "leaf,tinyid"];
    explore(&Server::start_with(over)?, &[])
}

#[test]
fn a_client_with_a_token_finds_nothing_amiss() -> anyhow::Result<()> {
    const TOKEN: &str = "a-token-that-may-do-everything";
    let directory = Arc::new(TempDir::new()?);
    let path = directory.path().join("tokens.toml");
    std::fs::write(&path, format!("[[tokens]]\nname = \"all\"\ntoken = \"{TOKEN}\"\nscope = \"admin\"\n"))?;
    let path = path.to_str().context("a path of UTF-8")?;
    let arguments = [&DROP_IN[..], &["--tokens", path]].concat();
    let server = Server::start_in(directory, arguments.into_iter().map(str::to_owned).collect())?;
    explore(&server, &["--header", &format!("Authorization: Bearer {TOKEN}")])
}
