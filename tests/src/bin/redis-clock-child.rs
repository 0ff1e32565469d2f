//! A client of snowflakes by Redis' clock in a process of its own: `redis-clock-child URL FILE TAG COUNT` asks for
//! COUNT ids at a time until its standard input ends; FILE is the SQLite file that is the durable store.

use std::sync::Arc;

use anyhow::bail;
use unalike_redis::{Backing, RedisOptions, RedisStore};
use unalike_sqlite::{SqliteOptions, SqliteStore};
use unalike_tests::clients::ask_until_told_to_stop;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, file, tag, count] = arguments.as_slice() else { bail!("usage: redis-clock-child URL FILE TAG COUNT") };
    let durable = Backing::Durable(Arc::new(SqliteStore::connect(SqliteOptions::new(file)).await?));
    let store = RedisStore::connect(RedisOptions::from_url(url)?, durable).await?;
    ask_until_told_to_stop(&store, tag, count.parse()?).await
}
