//! The host in Rust among hosts in other languages: see `tests/tests/hosts/together.rs`, which says what each of them
//! does and writes.
#![expect(clippy::unwrap_used, reason = "a child that cannot go on fails its test")]

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::sync::Arc;

use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;
use unalike::{Ids, Layout, SequenceOptions, SnowflakeOptions};
use unalike_mysql::{MysqlLeases, MysqlOptions, MysqlStore};
use unalike_redis::{Backing, RedisOptions, RedisStore};

/// How many ids a batch has.
const BATCH: u32 = 1_000;

#[tokio::main]
async fn main() {
    let task: Value = serde_json::from_str(&std::env::args().nth(1).unwrap()).unwrap();
    let text = |name: &str| task.get(name).unwrap().as_str().unwrap().to_owned();
    let number = |name: &str| usize::try_from(task.get(name).unwrap().as_u64().unwrap()).unwrap();
    let options = MysqlOptions::from_url(&text("mysql")).unwrap();
    let mysql = Arc::new(MysqlStore::connect(options.clone()).await.unwrap());
    let leases = Arc::new(MysqlLeases::connect(options).await.unwrap());
    let redis = RedisOptions::from_url(&text("redis")).unwrap();
    let redis = RedisStore::connect(redis, Backing::Durable(Arc::<MysqlStore>::clone(&mysql))).await.unwrap();
    let ids = Ids::builder().segments(mysql).leases(leases).build().await.unwrap();
    let strict = Ids::builder().segments(Arc::new(redis)).build().await.unwrap();
    let file = |of: &str| BufWriter::new(File::create(Path::new(&text("out")).join(format!("rust.{of}"))).unwrap());

    let orders = ids.sequence("order", SequenceOptions::default()).await.unwrap();
    let flakes = ids.snowflake("default", SnowflakeOptions::new(Layout::TWITTER)).await.unwrap();
    let chats = strict.sequence("chat", SequenceOptions::default()).await.unwrap();
    let (mut order_file, mut flake_file, mut chat_file) = (file("order"), file("flake"), file("chat"));
    let buffered = async {
        let mut taken = 0;
        while taken < number("orders") {
            order_file.write_all(&orders.next().await.unwrap().to_le_bytes()).unwrap();
            for id in &orders.take(BATCH - 1).await.unwrap() {
                order_file.write_all(&id.to_le_bytes()).unwrap();
            }
            taken += BATCH as usize;
        }
    };
    let stamped = async {
        for _ in 0..number("flakes") {
            flake_file.write_all(&flakes.next().await.unwrap().to_le_bytes()).unwrap();
        }
    };
    let ordered = async {
        for _ in 0..number("chats") {
            let began = monotonic_ns();
            let id = chats.next().await.unwrap();
            for figure in [began, monotonic_ns(), id] {
                chat_file.write_all(&figure.to_le_bytes()).unwrap();
            }
        }
    };
    tokio::join!(buffered, stamped, ordered);
    for mut file in [order_file, flake_file, chat_file] {
        file.flush().unwrap();
    }
    ids.close().await;
    strict.close().await;
}

/// The clock that all processes of the machine share.
fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap()
}
