//! Ids as texts in the columns that people keep them in.

use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Connection as _};
use unalike_core::{Text, decode};
use unalike_tests::mariadb::MariaDb;
use unalike_tests::notations::{ALIKE_BUT_FOR_CASE, ids, write};

/// An empty table with a column of this type.
async fn make_table(connection: &mut MySqlConnection, column: &str) -> sqlx::Result<()> {
    sqlx::raw_sql("DROP TABLE IF EXISTS ids").execute(&mut *connection).await?;
    let table = format!("CREATE TABLE ids (id {column} NOT NULL PRIMARY KEY) CHARACTER SET utf8mb4");
    sqlx::raw_sql(AssertSqlSafe(table)).execute(connection).await.map(drop)
}

async fn insert(connection: &mut MySqlConnection, written: &str) -> sqlx::Result<()> {
    sqlx::query("INSERT INTO ids VALUES (?)").bind(written).execute(connection).await.map(drop)
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
        make_table(&mut connection, column).await?;
        assert_eq!(write(ids(), text, async |written| insert(&mut connection, written).await).await?, 0);
        let kept: Vec<String> =
            sqlx::query_scalar("SELECT CAST(id AS CHAR) FROM ids ORDER BY id").fetch_all(&mut connection).await?;
        let read: Vec<u64> = kept.iter().map(|kept| decode(kept, text)).collect::<Result<_, _>>()?;
        assert_eq!(read, ids().collect::<Vec<_>>(), "{text:?} in {column}");
    }
    Ok(())
}

#[tokio::test]
async fn where_case_is_ignored_base_62_alone_collides() -> anyhow::Result<()> {
    let database = MariaDb::shared()?.database()?;
    let mut connection = MySqlConnection::connect(&database).await?;
    for (text, column, refused) in [
        (Text::Base62, "CHAR(11) COLLATE utf8mb4_bin", 0),
        // The server's default, whichever that is.
        (Text::Base62, "CHAR(11)", 1),
        (Text::Base62, "CHAR(11) COLLATE utf8mb4_general_ci", 1),
        (Text::Base36, "CHAR(13)", 0),
        (Text::Base32, "CHAR(13)", 0),
    ] {
        make_table(&mut connection, column).await?;
        let all = ids().chain(ALIKE_BUT_FOR_CASE);
        let found = write(all, text, async |written| insert(&mut connection, written).await).await?;
        assert_eq!(found, refused, "{text:?} in {column}");
    }
    Ok(())
}
