//! Ids as texts in the columns that people keep them in.

use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Connection as _};
use unalike_core::{ID_MAX, Text, decode, encode};
use unalike_tests::mariadb::MariaDb;

/// Ids with each of the last three bits, which stand in the byte of a UUID that MariaDB looks at.
fn ids() -> impl Iterator<Item = u64> {
    [1, 1_000_000, 1_541_815_603_606_036_480, ID_MAX - 8].into_iter().flat_map(|first| first..first + 8)
}

#[tokio::test]
async fn each_notation_is_kept_and_sorted_by_the_type_of_column_that_the_page_names() -> anyhow::Result<()> {
    let database = MariaDb::shared()?.database()?;
    let mut connection = MySqlConnection::connect(&database).await?;
    for (text, column) in [
        (Text::Decimal, "BIGINT"),
        (Text::Padded, "CHAR(19)"),
        (Text::Base36, "CHAR(13)"),
        (Text::Base62, "CHAR(11) COLLATE utf8mb4_bin"),
        (Text::Base32, "CHAR(13)"),
        (Text::Uuid, "UUID"),
    ] {
        sqlx::raw_sql("DROP TABLE IF EXISTS ids").execute(&mut connection).await?;
        let table = format!("CREATE TABLE ids (id {column} NOT NULL PRIMARY KEY) CHARACTER SET utf8mb4");
        sqlx::raw_sql(AssertSqlSafe(table)).execute(&mut connection).await?;
        for id in ids() {
            let written = encode(id, text)?;
            sqlx::query("INSERT INTO ids VALUES (?)").bind(written.as_str()).execute(&mut connection).await?;
        }
        let kept: Vec<String> =
            sqlx::query_scalar("SELECT CAST(id AS CHAR) FROM ids ORDER BY id").fetch_all(&mut connection).await?;
        let read: Vec<u64> = kept.iter().map(|kept| decode(kept, text)).collect::<Result<_, _>>()?;
        assert_eq!(read, ids().collect::<Vec<_>>(), "{text:?} in {column}");
    }
    Ok(())
}
