//! HTTP proxies between hosts and servers that do what no proxy should: they cache, send twice, cut and replace.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use anyhow::Context;

/// What a proxy does with requests for grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misdeed {
    /// Every second request gets the answer to the one before it.
    Caches,
    /// The same, with the header of the request that is answered: it knows how to hide it.
    CachesWithoutHeader,
    /// Requests are sent twice, and the first answer is thrown away.
    SendsTwice,
    /// Half of an answer comes.
    Cuts,
    /// The status of a gateway in place of the answer.
    Replaces,
    /// A megabyte of values in place of the answer's body, under its head: they take many times that once they are
    /// read.
    Swells,
}

impl Misdeed {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Caches, Self::CachesWithoutHeader, Self::SendsTwice, Self::Cuts, Self::Replaces, Self::Swells];
}

/// An HTTP proxy that misbehaves, on a port of its own, as long as the process lives; gives its URL.
///
/// # Errors
/// When there is no free port.
pub fn misbehave(target: &str, misdeed: Misdeed) -> anyhow::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}", listener.local_addr()?);
    let port: u16 = target.rsplit_once(':').context("a port")?.1.parse()?;
    let kept: Arc<Mutex<HashMap<String, Vec<u8>>>> = Arc::default();
    let count = Arc::new(AtomicUsize::new(0));
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let (kept, count) = (Arc::clone(&kept), Arc::clone(&count));
            // A client that is gone is no error.
            std::thread::spawn(move || drop(pass(client, port, misdeed, &kept, &count)));
        }
    });
    Ok(url)
}

fn pass(
    mut client: TcpStream,
    port: u16,
    misdeed: Misdeed,
    kept: &Mutex<HashMap<String, Vec<u8>>>,
    count: &AtomicUsize,
) -> anyhow::Result<()> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        client.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head)?.replacen("\r\n", "\r\nconnection: close\r\n", 1);
    let ask = || -> anyhow::Result<Vec<u8>> {
        let mut server = TcpStream::connect(("127.0.0.1", port))?;
        server.write_all(head.as_bytes())?;
        let mut answer = Vec::new();
        server.read_to_end(&mut answer)?;
        Ok(answer)
    };
    let line = head.lines().next().unwrap_or_default().to_owned();
    let is_odd = line.contains("/segments?") && count.fetch_add(1, Ordering::Relaxed) % 2 == 1;
    let answer = match misdeed {
        Misdeed::Caches | Misdeed::CachesWithoutHeader if is_odd => {
            let former = kept.lock().unwrap().get(&line).cloned();
            let former = former.map_or_else(ask, Ok)?;
            if misdeed == Misdeed::CachesWithoutHeader {
                let text = String::from_utf8(former)?;
                let lines: Vec<_> = text.split("\r\n").filter(|line| !line.starts_with("x-request-id")).collect();
                lines.join("\r\n").into_bytes()
            } else {
                former
            }
        }
        Misdeed::SendsTwice if is_odd => {
            ask()?;
            ask()?
        }
        Misdeed::Cuts if is_odd => {
            let mut answer = ask()?;
            answer.truncate(answer.len() - 20);
            answer
        }
        Misdeed::Replaces if is_odd => {
            ask()?;
            b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 3\r\nconnection: close\r\n\r\nbad".to_vec()
        }
        Misdeed::Swells if is_odd => {
            let answer = String::from_utf8(ask()?)?;
            let (head, _) = answer.split_once("\r\n\r\n").context("a head")?;
            let lines: Vec<_> = head.split("\r\n").filter(|line| !line.starts_with("content-length")).collect();
            let body = format!("[{}0]", "0,".repeat(500_000));
            format!("{}\r\ncontent-length: {}\r\n\r\n{body}", lines.join("\r\n"), body.len()).into_bytes()
        }
        _ => ask()?,
    };
    kept.lock().unwrap().insert(line, answer.clone());
    client.write_all(&answer)?;
    Ok(())
}
