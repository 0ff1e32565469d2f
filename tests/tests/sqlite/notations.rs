//! Ids as texts in the columns that people keep them in.

use sqlx::sqlite::SqliteConnection;
use sqlx::{AssertSqlSafe, Connection as _};
use unalike_core::{Text, decode};
use unalike_tests::notations::{ALIKE_BUT_FOR_CASE, ids, write};

/// An empty table with a column of this type.
async fn make_table(connection: &mut SqliteConnection, column: &str) -> sqlx::Result<()> {
    let table = format!("DROP TABLE IF EXISTS ids; CREATE TABLE ids (id {column} NOT NULL PRIMARY KEY)");
    sqlx::raw_sql(AssertSqlSafe(table)).execute(connection).await.map(drop)
}

async fn insert(connection: &mut SqliteConnection, written: &str) -> sqlx::Result<()> {
    sqlx::query("INSERT INTO ids VALUES (?)").bind(written).execute(connection).await.map(drop)
}

#[tokio::test]
async fn each_notation_is_kept_and_sorted_by_columns_of_these_types() -> anyhow::Result<()> {
    let mut connection = SqliteConnection::connect("sqlite::memory:").await?;
    for (text, column) in [
        (Text::Decimal, "INTEGER"),
        (Text::Padded, "TEXT"),
        (Text::Base36, "TEXT"),
        (Text::Base62, "TEXT"),
        (Text::Base32, "TEXT"),
        (Text::Uuid, "TEXT"),
    ] {
        make_table(&mut connection, column).await?;
        assert_eq!(write(ids(), text, async |written| insert(&mut connection, written).await).await?, 0);
        let kept: Vec<String> =
            sqlx::query_scalar("SELECT CAST(id AS TEXT) FROM ids ORDER BY ids.id").fetch_all(&mut connection).await?;
        let read: Vec<u64> = kept.iter().map(|kept| decode(kept, text)).collect::<Result<_, _>>()?;
        assert_eq!(read, ids().collect::<Vec<_>>(), "{text:?} in {column}");
    }
    Ok(())
}

#[tokio::test]
async fn where_case_is_ignored_base_62_alone_collides() -> anyhow::Result<()> {
    let mut connection = SqliteConnection::connect("sqlite::memory:").await?;
    for (text, column, refused) in [
        (Text::Base62, "TEXT", 0),
        (Text::Base62, "TEXT COLLATE NOCASE", 1),
        (Text::Base36, "TEXT COLLATE NOCASE", 0),
        (Text::Base32, "TEXT COLLATE NOCASE", 0),
    ] {
        make_table(&mut connection, column).await?;
        let all = ids().chain(ALIKE_BUT_FOR_CASE);
        let found = write(all, text, async |written| insert(&mut connection, written).await).await?;
        assert_eq!(found, refused, "{text:?} in {column}");
    }
    Ok(())
}
