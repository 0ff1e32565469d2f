//! All who take numbers of one store while it is killed: two servers with a client each, and a program.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};

use crate::PATIENCE;
use crate::server::Server;

/// How often the store is killed.
const KILLS: u64 = 10;

/// Answers of the servers between two kills.
const ANSWERS: u64 = 100;

/// Clients in the program, and grants of each.
const PROGRAM: (u64, u64) = (4, 150);

/// Who they are.
#[derive(Clone, Copy, Debug)]
pub struct Users<'a> {
    /// The store.
    pub url: &'a str,
    /// After this time the servers give a request up.
    pub request_timeout_ms: u64,
    /// A program of the tests that prints a line for each grant: `CLIENT START END STRIDE`.
    pub program: &'a str,
}

impl Users<'_> {
    /// Kills the store ten times, a hundred answers of `count` ids apart. Gives how many ids there were, all different.
    ///
    /// # Errors
    /// When an id came twice, the servers no longer answer, or something does not start.
    pub fn repeat_nothing(self, count: u32, mut kill: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<usize> {
        const ORDER: &str = "/v1/sequences/order/ids";
        let store = format!("--store={}?request-timeout-ms={}", self.url, self.request_timeout_ms);
        let servers = [Server::start_with([store.as_str()])?, Server::start_with([store.as_str()])?];
        servers[0].client().ids(ORDER)?;
        let (clients_in_it, grants) = PROGRAM;
        let program = Command::new(self.program)
            .args([self.url, "order", &clients_in_it.to_string(), &grants.to_string()])
            .stdout(Stdio::piped())
            .spawn()?;
        let (ending, answers) = (AtomicBool::new(false), AtomicU64::new(0));
        let path = format!("{ORDER}?count={count}");
        let take = |server: &Server| {
            let (client, mut ids) = (server.client(), Vec::new());
            while !ending.load(Ordering::SeqCst) {
                // It may be without cover while the store is down.
                if let Ok(more) = client.ids(&path) {
                    ids.extend(more);
                    answers.fetch_add(1, Ordering::SeqCst);
                }
            }
            ids
        };
        let mut ids = thread::scope(|scope| -> anyhow::Result<Vec<u64>> {
            let clients = servers.each_ref().map(|server| scope.spawn(|| take(server)));
            let killed = (0..KILLS).try_for_each(|_| {
                let (from, deadline) = (answers.load(Ordering::SeqCst), Instant::now() + PATIENCE);
                while answers.load(Ordering::SeqCst) < from + ANSWERS {
                    ensure!(Instant::now() < deadline, "the servers do not answer");
                    thread::sleep(Duration::from_millis(1));
                }
                kill()
            });
            // Whatever happened, or they would never end.
            ending.store(true, Ordering::SeqCst);
            let taken = clients.into_iter().flat_map(|client| client.join().unwrap()).collect();
            killed.map(|()| taken)
        })?;
        let output = program.wait_with_output()?;
        ensure!(output.status.success(), "the program ended with an error");
        let printed = String::from_utf8(output.stdout)?;
        for line in printed.lines() {
            let figures: Vec<u64> = line.split(' ').map(str::parse).collect::<Result<_, _>>()?;
            let [_, start, end, 1] = figures[..] else { bail!("the program printed {line:?}") };
            ids.extend(start..end);
        }
        let said = printed.lines().count();
        ensure!(u64::try_from(said)? == clients_in_it * grants, "the program had {said} grants");
        let taken = ids.len();
        ids.sort_unstable();
        ids.dedup();
        ensure!(ids.len() == taken, "{} ids came twice", taken - ids.len());
        Ok(taken)
    }
}
