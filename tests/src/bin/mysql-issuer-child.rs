//! A client of a MySQL store in a process of its own: `mysql-issuer-child URL TAG COUNT` asks for COUNT numbers at a
//! time until its standard input ends.

use anyhow::bail;
use unalike_mysql::{MysqlOptions, MysqlStore};
use unalike_tests::clients::ask_until_told_to_stop;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, tag, count] = arguments.as_slice() else { bail!("usage: mysql-issuer-child URL TAG COUNT") };
    let store = MysqlStore::connect(MysqlOptions::from_url(url)?).await?;
    ask_until_told_to_stop(&store, tag, count.parse()?).await
}
