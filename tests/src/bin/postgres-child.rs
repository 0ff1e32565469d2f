//! What the tests of PostgreSQL do in processes of their own: `postgres-child URL TAG CLIENTS GRANTS`.
//!
//! So many clients, each with connections of its own, take so many grants each and print them: `CLIENT START END
//! STRIDE`, in the order in which the client got them.
#![expect(clippy::unwrap_used, reason = "a child that cannot go on fails its test")]

use std::io::Write as _;
use std::time::Duration;

use unalike_postgres::{PostgresOptions, PostgresStore};
use unalike_storage::SegmentStore;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, tag, clients, grants] = arguments.as_slice() else {
        panic!("usage: postgres-child URL TAG CLIENTS GRANTS, not {arguments:?}");
    };
    let (clients, grants): (u64, u64) = (clients.parse().unwrap(), grants.parse().unwrap());
    let mut running = Vec::new();
    for client in 0..clients {
        let (url, tag) = (url.clone(), tag.clone());
        running.push(tokio::spawn(async move {
            let mut options = PostgresOptions::from_url(&url).unwrap();
            options.request_timeout = Duration::from_secs(60);
            options.connect_timeout = Duration::from_secs(60);
            let store = loop {
                match PostgresStore::connect(options.clone()).await {
                    Ok(store) => break store,
                    Err(error) => assert!(error.is_retryable(), "{error} ({error:?})"),
                }
            };
            let mut granted = 0;
            while granted < grants {
                // Counts of all sizes, one of them an old program's.
                let count = match (client + granted) % 5 {
                    0 => 1,
                    1 => 7,
                    2 => 1_000,
                    3 => 3,
                    _ => 2_500,
                };
                match store.allocate(&tag, count, 0).await {
                    Ok(segment) => {
                        let mut output = std::io::stdout().lock();
                        writeln!(output, "{client} {} {} {}", segment.start, segment.end, segment.stride).unwrap();
                        granted += 1;
                    }
                    Err(error) => assert!(error.is_retryable(), "{error} ({error:?})"),
                }
            }
        }));
    }
    for client in running {
        client.await.unwrap();
    }
    // No close: a process may end at any time.
}
