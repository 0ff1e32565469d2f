//! A network between a client and MariaDB, PostgreSQL, Redis or ZooKeeper that a test can stall, cut, lead elsewhere,
//! and make lose exactly one answer.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// A TCP proxy on a port of its own, for as long as its value lives.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// The port on this machine that new connections lead to.
    target: u16,
    /// Nothing is passed on, and connections stay open.
    stalled: bool,
    /// Whatever is sent is passed on so much later.
    delay: Duration,
    /// The next request with these bytes in it stalls everything before it is passed on.
    stall_at: Option<Vec<u8>>,
    /// The answer that is to be lost.
    loss: Option<Loss>,
    links: Vec<Arc<Link>>,
    /// How often all connections were cut.
    cuts: u64,
    /// How often clients sent something.
    requests: usize,
    ended: bool,
}

/// Which answer is to be lost.
#[derive(Debug)]
enum Loss {
    /// The next one.
    Next,
    /// That to a request of MySQL's, after so many that are still passed on; then nothing else may be passed on.
    After { passed: u32, stalls: bool },
    /// The next one with these bytes in it.
    With(Vec<u8>),
    /// That to the next request with these bytes in it.
    To(Vec<u8>),
}

/// One connection through the proxy.
#[derive(Debug)]
struct Link {
    client: TcpStream,
    server: TcpStream,
    /// Whatever is sent from now on is swallowed, for good.
    swallows: AtomicBool,
    /// The server's next answer is swallowed, and then the connection cut.
    loses: AtomicBool,
}

impl Link {
    fn cut(&self) {
        // An error means that it is closed already.
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.server.shutdown(Shutdown::Both);
    }
}

impl Proxy {
    /// Leads to this port on this machine.
    ///
    /// # Errors
    /// When there is no free port.
    pub fn start(target: u16) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let state = State {
            target,
            stalled: false,
            delay: Duration::ZERO,
            stall_at: None,
            loss: None,
            links: Vec::new(),
            cuts: 0,
            requests: 0,
            ended: false,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming() {
                if accepting.lock().ended {
                    return;
                }
                // A client whose server is not there sees its connection closed.
                if let Ok(client) = client {
                    let _ = accepting.link(client);
                }
            }
        });
        Ok(Self { port, shared })
    }

    /// Where it listens.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL of a database, through this proxy.
    #[must_use]
    pub fn url(&self, url: &str) -> String {
        let target = self.shared.lock().target;
        url.replace(&format!(":{target}/"), &format!(":{}/", self.port))
    }

    /// Stops passing anything on, or goes on where it stopped.
    pub fn stall(&self, stalled: bool) {
        self.shared.lock().stalled = stalled;
        self.shared.changed.notify_all();
    }

    /// Passes whatever is sent on so much later.
    pub fn delay(&self, delay: Duration) {
        self.shared.lock().delay = delay;
    }

    /// Stops passing anything on when the next request with this word in it comes, before it is passed on.
    pub fn stall_at(&self, word: &str) {
        self.shared.lock().stall_at = Some(word.as_bytes().to_vec());
    }

    /// How often clients have sent something: many requests at once count little more than one.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.shared.lock().requests
    }

    /// Whether nothing is passed on.
    #[must_use]
    pub fn is_stalled(&self) -> bool {
        self.shared.lock().stalled
    }

    /// Swallows whatever is sent on the connections that are open now, for good, and leaves them open: a network that
    /// forgot them.
    pub fn swallow(&self) {
        for link in &self.shared.lock().links {
            link.swallows.store(true, Ordering::SeqCst);
        }
    }

    /// Cuts all connections. Others can be opened.
    pub fn cut(&self) {
        let mut state = self.shared.lock();
        state.cuts += 1;
        state.links.drain(..).for_each(|link| link.cut());
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Leads new connections to another port, and cuts the others: another server takes the address over.
    pub fn lead_to(&self, target: u16) {
        self.shared.lock().target = target;
        self.cut();
    }

    /// Loses the answer to whatever is sent to the server next, with its connection.
    pub fn lose_next_answer(&self) {
        self.shared.lock().loss = Some(Loss::Next);
    }

    /// Passes `passed` requests to MariaDB on, and then one whose answer is lost, with its connection.
    pub fn lose_answer_after(&self, passed: u32) {
        self.shared.lock().loss = Some(Loss::After { passed, stalls: false });
    }

    /// Passes `passed` requests to MariaDB on, and then one whose answer is lost, with its connection; from there on it
    /// passes nothing.
    pub fn lose_answer_and_stall(&self, passed: u32) {
        self.shared.lock().loss = Some(Loss::After { passed, stalls: true });
    }

    /// Loses the next answer that has this word in it, with its connection: what it tells of was done.
    pub fn lose_answer_with(&self, word: &str) {
        self.shared.lock().loss = Some(Loss::With(word.as_bytes().to_vec()));
    }

    /// Loses the answer to the next request that has this word in it, with its connection.
    pub fn lose_answer_to(&self, word: &str) {
        self.shared.lock().loss = Some(Loss::To(word.as_bytes().to_vec()));
    }

    /// Whether the answer that was to be lost came and was lost.
    #[must_use]
    pub fn has_lost(&self) -> bool {
        let state = self.shared.lock();
        // The connection is cut, and forgotten, when the answer comes.
        state.loss.is_none() && state.links.iter().all(|link| !link.loses.load(Ordering::SeqCst))
    }

    /// Whether no such answer came; none is waited for any longer.
    #[must_use]
    pub fn lost_none(&self) -> bool {
        self.shared.lock().loss.take().is_some()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.cut();
        // Wakes the listener, which then ends.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn link(self: &Arc<Self>, client: TcpStream) -> std::io::Result<()> {
        let (target, cuts) = {
            let state = self.lock();
            (state.target, state.cuts)
        };
        let server = TcpStream::connect(("127.0.0.1", target))?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let link = Link { client, server, swallows: AtomicBool::new(false), loses: AtomicBool::new(false) };
        let link = Arc::new(link);
        let mut state = self.lock();
        if state.cuts != cuts {
            // All connections were cut while this one was made, and it may lead where no other one does.
            link.cut();
            return Ok(());
        }
        state.links.push(Arc::clone(&link));
        drop(state);
        for from_client in [true, false] {
            let (shared, link) = (Arc::clone(self), Arc::clone(&link));
            thread::spawn(move || {
                // An end of one side, or an error, ends both.
                let _ = shared.pump(&link, from_client);
                // Forgotten first: who sees it cut may ask at once whether an answer was lost.
                shared.lock().links.retain(|open| !Arc::ptr_eq(open, &link));
                link.cut();
            });
        }
        Ok(())
    }

    /// Passes on what one side sends, until it ends.
    fn pump(&self, link: &Link, from_client: bool) -> std::io::Result<()> {
        let (mut from, mut to) = if from_client { (&link.client, &link.server) } else { (&link.server, &link.client) };
        let mut buffer = [0; 16 * 1_024];
        loop {
            let length = from.read(&mut buffer)?;
            let Some(sent) = buffer.get(..length).filter(|sent| !sent.is_empty()) else { return Ok(()) };
            let mut state = self.lock();
            state.requests += usize::from(from_client);
            if from_client && state.stall_at.take_if(|word| has(sent, word)).is_some() {
                state.stalled = true;
            }
            let is_lost = |link: &Link| !from_client && link.loses.load(Ordering::SeqCst);
            while state.stalled && !state.ended && !is_lost(link) {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            let State { loss, stalled, .. } = &mut *state;
            let loses = match loss {
                Some(Loss::After { passed, stalls }) if from_client && is_request(sent) => {
                    let loses = *passed == 0;
                    *stalled |= loses && *stalls;
                    *passed = passed.saturating_sub(1);
                    loses
                }
                Some(Loss::Next) => from_client,
                Some(Loss::With(word)) if !from_client => has(sent, word),
                Some(Loss::To(word)) if from_client => has(sent, word),
                _ => false,
            };
            if loses {
                state.loss = None;
                link.loses.store(true, Ordering::SeqCst);
            }
            let delay = state.delay;
            drop(state);
            if !delay.is_zero() {
                thread::sleep(delay);
            }
            if link.swallows.load(Ordering::SeqCst) {
                continue;
            }
            if is_lost(link) {
                return Ok(());
            }
            to.write_all(sent)?;
        }
    }
}

fn has(sent: &[u8], word: &[u8]) -> bool {
    sent.windows(word.len()).any(|bytes| bytes == word)
}

/// Whether this is a command that the server answers. Of MySQL: the first packet of an exchange, and neither a farewell
/// (1) nor the end of a prepared statement (25). Of PostgreSQL: a query, or what prepares or binds one.
fn is_request(sent: &[u8]) -> bool {
    let is_mysql = matches!(sent, [_, _, _, 0, command, ..] if !matches!(command, 1 | 25));
    let is_postgres = match sent {
        [b'Q' | b'P' | b'B', a, b, c, d, ..] => {
            usize::try_from(u32::from_be_bytes([*a, *b, *c, *d])).is_ok_and(|length| length < sent.len())
        }
        _ => false,
    };
    is_mysql || is_postgres
}
