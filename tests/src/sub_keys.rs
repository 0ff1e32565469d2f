//! A tag that ends in MariaDB while somebody makes a sub-key of it.

use std::time::{Duration, Instant};

use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _};
use unalike_mysql::{MysqlOptions, MysqlStore};
use unalike_storage::{SegmentStore, StoreError, sub_tag};

use crate::PATIENCE;
use crate::mariadb::MariaDb;

const TAG: &str = "order";

/// The tables of a dialect, by statements on the tag `order` and on its sub-key `shop`.
#[derive(Debug)]
pub struct SubKeyTables {
    /// The dialect's name.
    pub dialect: &'static str,
    /// Locks the row of the tag.
    pub lock: &'static str,
    /// Ends the tag, as the store does.
    pub end: &'static str,
    /// Locks what the making of the sub-key waits for once it has looked at the tag.
    pub pause: &'static str,
}

/// How many transactions wait for others.
async fn waiting(connection: &mut MySqlConnection) -> i64 {
    let waiting = "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'";
    sqlx::query_scalar(waiting).fetch_one(connection).await.unwrap()
}

/// Waits until something is done, or so many transactions wait for others.
async fn until_waiting(connection: &mut MySqlConnection, transactions: i64, is_done: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_done() && waiting(connection).await < transactions {
        assert!(Instant::now() < deadline, "nobody waits");
        // The server looks again when nobody has asked for a tenth of a second.
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
}

/// Panics if a sub-key is made that whoever listed them after the end of the tag did not see. The server must be the
/// caller's own.
pub async fn assert_none_after_the_end(server: &MariaDb, tables: &SubKeyTables) {
    let SubKeyTables { dialect, lock, end, pause } = tables;
    let name = sub_tag(TAG, "shop").unwrap();
    for is_paused in [true, false] {
        let url = server.database().unwrap();
        let options = format!("{url}?dialect={dialect}&create=true&request-timeout-ms=60000");
        let store = MysqlStore::connect(MysqlOptions::from_url(&options).unwrap()).await.unwrap();
        store.allocate(TAG, 10, 0).await.unwrap();
        let mut holding = MySqlConnection::connect(&url).await.unwrap();
        let mut looking = MySqlConnection::connect(&url).await.unwrap();
        holding.execute("START TRANSACTION").await.unwrap();
        let held = if is_paused { pause } else { lock };
        holding.execute(AssertSqlSafe(*held)).await.unwrap();
        let making = {
            let (store, name) = (store.clone(), name.clone());
            tokio::spawn(async move { store.allocate(&name, 1, 0).await })
        };
        until_waiting(&mut looking, 1, || making.is_finished()).await;
        if is_paused {
            let ending = {
                let store = store.clone();
                tokio::spawn(async move {
                    store.retire_tag(TAG).await.unwrap();
                    store.tags(Some(TAG), 10).await.unwrap()
                })
            };
            until_waiting(&mut looking, 2, || ending.is_finished()).await;
            holding.execute("ROLLBACK").await.unwrap();
            let (made, listed) = (making.await.unwrap(), ending.await.unwrap());
            let is_there = store.tag(&name).await.is_ok();
            assert_eq!(is_there, listed.iter().any(|record| record.tag == name), "{made:?}, {listed:?}");
            assert_eq!(made.is_ok(), is_there, "{made:?}, {listed:?}");
        } else {
            holding.execute(AssertSqlSafe(*end)).await.unwrap();
            holding.execute("COMMIT").await.unwrap();
            let made = making.await.unwrap();
            assert!(matches!(made, Err(StoreError::Exhausted { .. })), "{made:?}");
            assert_eq!(store.tags(Some(TAG), 10).await.unwrap(), []);
        }
        store.close().await;
    }
}
