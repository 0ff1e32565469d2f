//! What the tests of servers do in processes of their own: `store-child URL TAG CLIENTS GRANTS`.
//!
//! So many clients, each with connections of its own, take so many grants each and print them: `CLIENT START END
//! STRIDE`, in the order in which the client got them.
#![expect(clippy::unwrap_used, reason = "a child that cannot go on fails its test")]

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use unalike_etcd::{EtcdOptions, EtcdStore};
use unalike_mysql::{MysqlOptions, MysqlStore};
use unalike_postgres::{PostgresOptions, PostgresStore};
use unalike_storage::{SegmentStore, StoreError};

const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, tag, clients, grants] = arguments.as_slice() else {
        panic!("usage: store-child URL TAG CLIENTS GRANTS, not {arguments:?}");
    };
    let (clients, grants): (u64, u64) = (clients.parse().unwrap(), grants.parse().unwrap());
    let mut running = Vec::new();
    for client in 0..clients {
        let (url, tag) = (url.clone(), tag.clone());
        running.push(tokio::spawn(async move {
            let store = loop {
                match connect(&url).await {
                    Ok(store) => break store,
                    // MySQL has room for all that come at once.
                    Err(error) => assert!(error.is_retryable() && !url.starts_with("mysql:"), "{error} ({error:?})"),
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

async fn connect(url: &str) -> Result<Arc<dyn SegmentStore>, StoreError> {
    match url.split_once(':').unwrap().0 {
        "etcd" => {
            let mut options = EtcdOptions::from_url(url).unwrap();
            options.request_timeout = PATIENCE;
            options.connect_timeout = PATIENCE;
            Ok(Arc::new(EtcdStore::connect(options).await?))
        }
        "mysql" => {
            let mut options = MysqlOptions::from_url(url).unwrap();
            options.request_timeout = PATIENCE;
            options.connect_timeout = PATIENCE;
            Ok(Arc::new(MysqlStore::connect(options).await?))
        }
        "postgres" => {
            let mut options = PostgresOptions::from_url(url).unwrap();
            options.request_timeout = PATIENCE;
            options.connect_timeout = PATIENCE;
            Ok(Arc::new(PostgresStore::connect(options).await?))
        }
        other => panic!("no child of the tests uses {other}"),
    }
}
