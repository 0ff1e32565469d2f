//! A proxy between a program and MariaDB that passes each statement on to a connection of its choice, as ProxySQL and
//! MaxScale do: it speaks MySQL's protocol as far as such programs do, without TLS and with users who need no password.
//!
//! Each connection of a program has one connection to each server. Statements are prepared on all of them. A
//! transaction stays where it began.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::{Context, ensure};

/// Says by a statement's text which server it goes to, by its place in the list.
pub type Route = Box<dyn FnMut(&str) -> usize + Send>;

/// A proxy on a port of its own, for as long as its value lives.
pub struct Multiplexer {
    port: u16,
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Multiplexer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Multiplexer").field("port", &self.port).finish_non_exhaustive()
    }
}

struct Shared {
    servers: Vec<u16>,
    route: Mutex<Route>,
    /// The number that the next statement with this word is answered with, and not passed on.
    failure: Mutex<Option<(String, u16)>>,
    ended: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
}

impl Multiplexer {
    /// Leads to these ports on this machine.
    ///
    /// # Errors
    /// When there is no free port.
    pub fn start(servers: &[u16], route: Route) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Shared {
            servers: servers.to_vec(),
            route: Mutex::new(route),
            failure: Mutex::default(),
            ended: AtomicBool::new(false),
            open: Mutex::default(),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming() {
                if accepting.ended.load(Ordering::SeqCst) {
                    return;
                }
                let (Ok(client), shared) = (client, Arc::clone(&accepting)) else { continue };
                thread::spawn(move || {
                    if let Ok(copy) = client.try_clone() {
                        shared.open.lock().unwrap_or_else(PoisonError::into_inner).push(copy);
                    }
                    // Its end, or that of a server, ends the connection.
                    let _ = shared.serve(&client);
                    let _ = client.shutdown(Shutdown::Both);
                });
            }
        });
        Ok(Self { port, shared })
    }

    /// The URL of a database, through this proxy.
    #[must_use]
    pub fn url(&self, url: &str) -> String {
        let Some(first) = self.shared.servers.first() else { return url.to_owned() };
        url.replace(&format!(":{first}/"), &format!(":{}/", self.port))
    }

    /// From now on statements go where this says.
    pub fn route(&self, route: Route) {
        *self.shared.route.lock().unwrap_or_else(PoisonError::into_inner) = route;
    }

    /// Answers the next statement with this word in it with an error of this number.
    pub fn fail(&self, word: &str, number: u16) {
        *self.shared.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some((word.to_owned(), number));
    }
}

impl Drop for Multiplexer {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        for stream in self.shared.open.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
        // Wakes the listener, which then ends.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

const DEPRECATE_EOF: u32 = 1 << 24;

/// A statement that was prepared on all servers.
struct Prepared {
    text: String,
    /// Its number on each, or the error there.
    numbers: Vec<Result<u32, Packet>>,
}

impl Shared {
    fn serve(&self, mut client: &TcpStream) -> anyhow::Result<()> {
        let mut servers = Vec::new();
        for port in &self.servers {
            let mut server = TcpStream::connect(("127.0.0.1", *port))?;
            server.set_nodelay(true)?;
            let mut greeting = Packet::read(&mut server)?;
            greeting.offer_no_tls();
            servers.push((server, greeting));
        }
        client.set_nodelay(true)?;
        servers.first().context("no server")?.1.write(&mut client)?;
        let login = Packet::read(&mut client)?;
        let capabilities = u32::from_le_bytes(login.bytes.get(..4).context("a short login")?.try_into()?);
        let mut answer = None;
        for (server, _) in &mut servers {
            login.write(&mut &*server)?;
            let said = Packet::read(server)?;
            ensure!(said.kind() == Some(OK), "the login failed: {said:?}");
            answer = answer.or(Some(said));
        }
        answer.context("no server")?.write(&mut client)?;
        let servers = servers.into_iter().map(|(stream, _)| Server { stream, capabilities }).collect();
        Session { shared: self, servers, prepared: BTreeMap::new(), pinned: None }.run(client)
    }

    fn choose(&self, text: &str) -> usize {
        self.route.lock().unwrap_or_else(PoisonError::into_inner)(text)
    }
}

struct Session<'s> {
    shared: &'s Shared,
    servers: Vec<Server>,
    prepared: BTreeMap<u32, Prepared>,
    /// Where a transaction is open.
    pinned: Option<usize>,
}

impl Session<'_> {
    fn run(&mut self, mut client: &TcpStream) -> anyhow::Result<()> {
        loop {
            let request = Packet::read(&mut client)?;
            let rest = request.bytes.get(1..).unwrap_or_default();
            let answers = match request.kind() {
                Some(QUERY) => self.query(&request, &String::from_utf8_lossy(rest))?,
                Some(PREPARE) => self.prepare(&request, String::from_utf8_lossy(rest).into_owned())?,
                Some(EXECUTE) => self.execute(&request)?,
                // Forgotten with the connection.
                Some(CLOSE) => continue,
                Some(PING) => vec![Packet::ok()],
                _ => return Ok(()),
            };
            for answer in answers {
                answer.write(&mut client)?;
            }
        }
    }

    fn place(&mut self, text: &str) -> usize {
        let place = self.pinned.unwrap_or_else(|| self.shared.choose(text));
        let is_begin = text.starts_with("START TRANSACTION") || text.starts_with("BEGIN");
        let is_end = text.starts_with("COMMIT") || text.starts_with("ROLLBACK");
        self.pinned = if is_begin { Some(place) } else { self.pinned.filter(|_| !is_end) };
        place
    }

    /// The error that this statement is to be answered with, if it is one.
    fn failure(&self, text: &str) -> Option<Vec<Packet>> {
        let mut failure = self.shared.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.take_if(|(word, _)| text.contains(word.as_str())).map(|(_, number)| vec![Packet::error(number)])
    }

    fn server(&mut self, place: usize) -> anyhow::Result<&mut Server> {
        self.servers.get_mut(place).context("no such server")
    }

    fn query(&mut self, request: &Packet, text: &str) -> anyhow::Result<Vec<Packet>> {
        if let Some(failure) = self.failure(text) {
            return Ok(failure);
        }
        let place = self.place(text);
        self.server(place)?.ask(request)
    }

    fn prepare(&mut self, request: &Packet, text: String) -> anyhow::Result<Vec<Packet>> {
        let mut answers = Vec::new();
        for server in &mut self.servers {
            answers.push(server.ask_to_prepare(request)?);
        }
        let number = |answer: &Vec<Packet>| match answer.first() {
            Some(first) if first.kind() == Some(OK) => Ok(first.number(1)),
            first => Err(first.cloned().unwrap_or_else(|| Packet::error(1_105))),
        };
        let numbers: Vec<_> = answers.iter().map(number).collect();
        // A program is told of the first server's number, or of an error if it is to see that.
        let answer = answers.into_iter().next().context("no server")?;
        if let Some(Ok(name)) = numbers.first() {
            self.prepared.insert(*name, Prepared { text, numbers });
        }
        Ok(answer)
    }

    fn execute(&mut self, request: &Packet) -> anyhow::Result<Vec<Packet>> {
        let Some(Prepared { text, numbers }) = self.prepared.remove(&request.number(1)) else {
            return Ok(vec![Packet::error(1_243)]);
        };
        let (failure, place) = (self.failure(&text), self.place(&text));
        let number = numbers.get(place).cloned().context("no such server")?;
        self.prepared.insert(request.number(1), Prepared { text, numbers });
        match (failure, number) {
            (Some(failure), _) => Ok(failure),
            (None, Ok(number)) => {
                let mut request = request.clone();
                request.bytes.get_mut(1..5).context("a short request")?.copy_from_slice(&number.to_le_bytes());
                self.server(place)?.ask(&request)
            }
            (None, Err(error)) => Ok(vec![error.follow(request.sequence)]),
        }
    }
}

struct Server {
    stream: TcpStream,
    capabilities: u32,
}

impl Server {
    /// Runs a statement: an answer without rows, or columns and rows.
    fn ask(&mut self, request: &Packet) -> anyhow::Result<Vec<Packet>> {
        request.write(&mut self.stream)?;
        let first = Packet::read(&mut self.stream)?;
        let is_short = matches!(first.kind(), Some(OK | ERROR));
        let columns = first.bytes.first().copied().unwrap_or_default();
        let mut packets = vec![first];
        if is_short {
            return Ok(packets);
        }
        self.columns(usize::from(columns), &mut packets)?;
        loop {
            let row = Packet::read(&mut self.stream)?;
            let is_last = row.kind() == Some(ERROR) || row.kind() == Some(END) && row.bytes.len() < 0xff_ffff;
            packets.push(row);
            if is_last {
                return Ok(packets);
            }
        }
    }

    fn ask_to_prepare(&mut self, request: &Packet) -> anyhow::Result<Vec<Packet>> {
        request.write(&mut self.stream)?;
        let first = Packet::read(&mut self.stream)?;
        let count = |at: usize| {
            let bytes = first.bytes.get(at..at + 2).unwrap_or_default();
            bytes.iter().rev().fold(0_usize, |count, &byte| count * 256 + usize::from(byte))
        };
        let (columns, parameters) = (count(5), count(7));
        let is_prepared = first.kind() == Some(OK);
        let mut packets = vec![first];
        if is_prepared {
            self.columns(parameters, &mut packets)?;
            self.columns(columns, &mut packets)?;
        }
        Ok(packets)
    }

    /// So many descriptions, and what marks their end.
    fn columns(&mut self, count: usize, packets: &mut Vec<Packet>) -> anyhow::Result<()> {
        let marks = usize::from(count > 0 && self.capabilities & DEPRECATE_EOF == 0);
        for _ in 0..count + marks {
            packets.push(Packet::read(&mut self.stream)?);
        }
        Ok(())
    }
}

const OK: u8 = 0x00;
const END: u8 = 0xfe;
const ERROR: u8 = 0xff;
const QUERY: u8 = 0x03;
const PING: u8 = 0x0e;
const PREPARE: u8 = 0x16;
const EXECUTE: u8 = 0x17;
const CLOSE: u8 = 0x19;

#[derive(Clone, Debug)]
struct Packet {
    sequence: u8,
    bytes: Vec<u8>,
}

impl Packet {
    fn read(stream: &mut impl Read) -> anyhow::Result<Self> {
        let mut head = [0; 4];
        stream.read_exact(&mut head)?;
        let [a, b, c, sequence] = head;
        let mut bytes = vec![0; usize::try_from(u32::from_le_bytes([a, b, c, 0]))?];
        stream.read_exact(&mut bytes)?;
        Ok(Self { sequence, bytes })
    }

    fn write(&self, stream: &mut impl Write) -> anyhow::Result<()> {
        let [a, b, c, _] = u32::try_from(self.bytes.len())?.to_le_bytes();
        let mut packet = vec![a, b, c, self.sequence];
        packet.extend_from_slice(&self.bytes);
        Ok(stream.write_all(&packet)?)
    }

    /// In a server's greeting: behind its version and 14 more bytes are the lower two bytes of what it can.
    fn offer_no_tls(&mut self) {
        let version_end = self.bytes.iter().position(|byte| *byte == 0).unwrap_or_default();
        if let Some(capabilities) = self.bytes.get_mut(version_end + 15) {
            *capabilities &= !0x08;
        }
    }

    fn kind(&self) -> Option<u8> {
        self.bytes.first().copied()
    }

    /// A number of four bytes.
    fn number(&self, at: usize) -> u32 {
        let bytes = self.bytes.get(at..at + 4).unwrap_or_default();
        bytes.iter().rev().fold(0, |number, &byte| number << 8 | u32::from(byte))
    }

    /// The answer to a request that was numbered so.
    fn follow(mut self, sequence: u8) -> Self {
        self.sequence = sequence.wrapping_add(1);
        self
    }

    fn ok() -> Self {
        // No rows, no number, autocommit, no warnings.
        Self { sequence: 1, bytes: vec![OK, 0, 0, 2, 0, 0, 0] }
    }

    fn error(number: u16) -> Self {
        let [low, high] = number.to_le_bytes();
        let mut bytes = vec![ERROR, low, high];
        bytes.extend_from_slice(b"#HY000a proxy says so");
        Self { sequence: 1, bytes }
    }
}
