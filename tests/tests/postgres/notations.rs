//! Ids as texts in the columns that people keep them in.

use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection as _};
use unalike_core::{Text, decode};
use unalike_tests::notations::{ALIKE_BUT_FOR_CASE, ids, write};
use unalike_tests::postgres::Postgres;

/// An empty table with a column of this type.
async fn make_table(connection: &mut PgConnection, column: &str) -> sqlx::Result<()> {
    let table = format!("DROP TABLE IF EXISTS ids; CREATE TABLE ids (id {column} PRIMARY KEY)");
    sqlx::raw_sql(AssertSqlSafe(table)).execute(connection).await.map(drop)
}

/// The table is another one each time, and so is a statement's plan: none is kept.
async fn insert(connection: &mut PgConnection, kind: &str, written: &str) -> sqlx::Result<()> {
    let insert = AssertSqlSafe(format!("INSERT INTO ids VALUES (CAST($1::text AS {kind}))"));
    sqlx::query(insert).persistent(false).bind(written).execute(connection).await.map(drop)
}

#[tokio::test]
async fn each_notation_is_kept_and_sorted_by_columns_of_these_types() -> anyhow::Result<()> {
    let database = Postgres::shared()?.database()?;
    let mut connection = PgConnection::connect(&database).await?;
    for (text, kind, collation) in [
        (Text::Decimal, "bigint", ""),
        (Text::Padded, "text", ""),
        (Text::Base36, "text", ""),
        // A language sorts `a` before `B`.
        (Text::Base62, "text", " COLLATE \"C\""),
        (Text::Base32, "text", ""),
        (Text::Uuid, "uuid", ""),
    ] {
        make_table(&mut connection, &format!("{kind}{collation}")).await?;
        assert_eq!(write(ids(), text, async |written| insert(&mut connection, kind, written).await).await?, 0);
        let select = sqlx::query_scalar("SELECT CAST(id AS text) FROM ids ORDER BY ids.id").persistent(false);
        let kept: Vec<String> = select.fetch_all(&mut connection).await?;
        let read: Vec<u64> = kept.iter().map(|kept| decode(kept, text)).collect::<Result<_, _>>()?;
        assert_eq!(read, ids().collect::<Vec<_>>(), "{text:?} in {kind}{collation}");
    }
    Ok(())
}

#[tokio::test]
async fn where_case_is_ignored_base_62_alone_collides() -> anyhow::Result<()> {
    let database = Postgres::shared()?.database()?;
    let mut connection = PgConnection::connect(&database).await?;
    let no_case = "CREATE COLLATION no_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false)";
    sqlx::raw_sql(no_case).execute(&mut connection).await?;
    for (text, collation, refused) in [
        (Text::Base62, "", 0),
        (Text::Base62, " COLLATE no_case", 1),
        (Text::Base36, " COLLATE no_case", 0),
        (Text::Base32, " COLLATE no_case", 0),
    ] {
        make_table(&mut connection, &format!("text{collation}")).await?;
        let all = ids().chain(ALIKE_BUT_FOR_CASE);
        let found = write(all, text, async |written| insert(&mut connection, "text", written).await).await?;
        assert_eq!(found, refused, "{text:?} in text{collation}");
    }
    Ok(())
}
