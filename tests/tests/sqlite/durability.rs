//! `kill -9` under load, again and again: no id twice, and ids go on where the dead process may have been.

#![expect(clippy::expect_used, clippy::panic_in_result_fn, reason = "a test that cannot go on fails")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::ensure;
use unalike_tests::PATIENCE;
use unalike_tests::server::{Client, Server};

const KILLS: usize = 20;

/// Answers of every client that a server gives before it is killed, the last ones in the middle of something.
const ANSWERS_MIN: u64 = 100;

/// A batch of 700 leaves a part of a segment each time; singly, the runs grow to a thousand.
const PATHS: [&str; 4] = [
    "/v1/sequences/order/ids?count=700",
    "/v1/sequences/order/ids",
    "/v1/snowflakes/default/ids?count=700",
    "/v1/snowflakes/default/ids",
];

/// Asks until the server is gone; gives the ids that arrived.
fn ask(client: &Client, path: &str, answers: &AtomicU64, ending: &AtomicBool) -> anyhow::Result<Vec<u64>> {
    let mut ids = Vec::new();
    loop {
        match client.get_as(path, "text/plain") {
            Ok(answer) => {
                ensure!(answer.status == 200, "{path}: {answer:?}");
                for line in answer.body.lines() {
                    ids.push(line.parse()?);
                }
                answers.fetch_add(1, Ordering::Relaxed);
            }
            // An answer that was cut off counts for nothing: its ids may be a gap.
            Err(_) if ending.load(Ordering::SeqCst) => return Ok(ids),
            Err(error) => return Err(error),
        }
    }
}

/// One life of a server under load, ended by SIGKILL: the ids of each path.
fn live_and_die(server: &mut Server) -> anyhow::Result<[Vec<u64>; 4]> {
    let ending = AtomicBool::new(false);
    let answers = PATHS.map(|_| AtomicU64::new(0));
    thread::scope(|scope| {
        let clients: Vec<_> = PATHS
            .iter()
            .zip(&answers)
            .map(|(path, answers)| {
                let client = server.client();
                let ending = &ending;
                scope.spawn(move || ask(&client, path, answers, ending))
            })
            .collect();
        let deadline = Instant::now() + PATIENCE;
        while answers.iter().any(|answers| answers.load(Ordering::Relaxed) < ANSWERS_MIN) {
            if clients.iter().any(thread::ScopedJoinHandle::is_finished) || Instant::now() > deadline {
                break;
            }
            thread::sleep(Duration::from_micros(200));
        }
        ending.store(true, Ordering::SeqCst);
        server.kill9()?;
        let mut lives = [const { Vec::new() }; 4];
        for (life, client) in lives.iter_mut().zip(clients) {
            *life = client.join().expect("a client does not panic")?;
        }
        ensure!(lives.iter().all(|life| life.len() as u64 >= ANSWERS_MIN), "the server gave too little");
        Ok(lives)
    })
}

#[test]
fn no_id_is_handed_out_twice_over_twenty_kills() -> anyhow::Result<()> {
    let mut server = Server::start()?;
    let (mut numbers, mut flakes) = (Vec::new(), Vec::new());
    for kill in 1..=KILLS {
        let [number_batches, number_singles, flake_batches, flake_singles] = live_and_die(&mut server)?;
        for (all, life) in
            [(&mut numbers, [number_batches, number_singles]), (&mut flakes, [flake_batches, flake_singles])]
        {
            let before: Option<u64> = all.iter().max().copied();
            let life = life.concat();
            let first = life.iter().min().copied();
            // An id below one of the life before would be out of order at least.
            assert!(first > before, "after kill {kill}: {first:?} after {before:?}");
            all.extend(life);
        }
        server.restart()?;
    }
    for mut ids in [numbers, flakes] {
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), count, "an id was handed out twice");
    }
    assert_eq!(server.get("/health/ready")?.status, 200, "the store is whole");
    Ok(())
}
