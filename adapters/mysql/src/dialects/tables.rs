//! What all tables have in common: that they are there, that they are what grants rest on, how tags are counted against
//! the limit, and the proof that they can be written to.
//!
//! A grant is a statement, and what the statement promises follows from the table: that a key is unique, so that one
//! row is changed and the second insert fails; that a number is kept whole; that what was committed stays, as it was
//! sent. [`open`] demands all that of each table, other systems' and unalike's own, before anything is granted from it.
//! It looks once. Whoever drops a key or makes a trigger while programs run takes away what they rest on: stop them
//! first. (Where two rows turn up under one key, that is an error of the grant: all but `batch` read the row.)
//!
//! Triggers are seen by users with the privilege TRIGGER; MariaDB shows others that there are some, MySQL nothing.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use sqlx::mysql::MySqlRow;
use sqlx::{AssertSqlSafe, Row as _};
use unalike_storage::{ID_MAX, NotBegun, StoreError, TagCreation};

use crate::MysqlOptions;
use crate::database::Database;
use crate::error::{NO_SUCH_TABLE, TABLE_ACCESS_DENIED, read_error};

/// Asks whether there is a table of this name that this user sees.
macro_rules! has_table {
    ($name:literal) => {
        concat!(
            "SELECT 1 FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = '",
            $name,
            "'"
        )
    };
}
pub(crate) use has_table;

/// A table, and what the grants that come from it rest on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape<'t> {
    pub(crate) name: &'t str,
    /// The statement that creates it.
    pub(crate) ddl: &'t str,
    /// The columns of a unique key: these and no other.
    pub(crate) key: &'t [&'t str],
    /// The columns that are used, in lower case.
    pub(crate) columns: &'t [(&'t str, Holds)],
}

/// What a column must hold as it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holds {
    /// A name, however it is compared.
    Name,
    /// Bytes, each of which counts.
    Bytes,
    /// A whole number.
    Whole,
    /// A whole number of 63 bits.
    Id,
}

impl Holds {
    fn fits(self, column: &Column) -> bool {
        let kind = column.kind.split([' ', '(']).next().unwrap_or_default();
        match self {
            Self::Name => matches!(kind, "varchar" | "char" | "varbinary"),
            Self::Bytes => matches!(kind, "varbinary" | "binary"),
            Self::Whole => column.limit > 0,
            Self::Id => column.limit >= ID_MAX,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Name => "a name: VARCHAR or VARBINARY",
            Self::Bytes => "compared byte by byte: VARBINARY or BINARY, as `unalike schema` prints it",
            Self::Whole => "a whole number: BIGINT",
            Self::Id => "a whole number of 63 bits: BIGINT",
        }
    }
}

/// A column as the server describes it.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    /// Its type in lower case, with all that belongs to it.
    pub(crate) kind: String,
    /// `auto_increment`, say.
    pub(crate) extra: String,
    /// How many characters it has at most (bytes, in a binary column); 0 for a number.
    pub(crate) width: u64,
    /// Empty in a binary column, and for a number.
    pub(crate) charset: String,
    /// How it compares; empty as above.
    pub(crate) collation: String,
    /// The greatest number that fits; 0 where it holds no whole numbers.
    pub(crate) limit: u64,
}

impl Column {
    /// One that holds nothing.
    pub(crate) const fn none() -> Self {
        Self {
            kind: String::new(),
            extra: String::new(),
            width: 0,
            charset: String::new(),
            collation: String::new(),
            limit: 0,
        }
    }

    /// Whether each byte counts in a comparison.
    pub(crate) fn compares_bytes(&self) -> bool {
        self.charset.is_empty()
    }

    /// The collation, where it takes names for one that differ in more than spaces at their end.
    pub(crate) fn folding(&self) -> Option<&str> {
        let compares_characters = self.compares_bytes() || self.collation.ends_with("_bin");
        (!compares_characters).then_some(self.collation.as_str())
    }
}

/// What was found of the columns that a [`Shape`] names.
pub(crate) type Columns = BTreeMap<String, Column>;

/// Each of these ends with a list of names. With one name the server looks that table up; with several it looks at all.
pub(crate) const COLUMNS: &str = "SELECT CAST(t.TABLE_NAME AS CHAR) AS table_name, CAST(t.TABLE_TYPE AS CHAR) AS kind_of_table, \
    CAST(COALESCE(t.ENGINE, 'none') AS CHAR) AS engine, CAST(LOWER(c.COLUMN_NAME) AS CHAR) AS name, \
    CAST(LOWER(c.COLUMN_TYPE) AS CHAR) AS kind, CAST(LOWER(c.EXTRA) AS CHAR) AS extra, \
    CAST(COALESCE(c.CHARACTER_MAXIMUM_LENGTH, 0) AS UNSIGNED) AS width, \
    CAST(COALESCE(c.CHARACTER_SET_NAME, '') AS CHAR) AS charset, CAST(COALESCE(c.COLLATION_NAME, '') AS CHAR) AS collation_name, \
    CAST(COALESCE(c.GENERATION_EXPRESSION, '') AS CHAR) AS generation_expression \
    FROM information_schema.TABLES t JOIN information_schema.COLUMNS c \
    ON c.TABLE_SCHEMA = t.TABLE_SCHEMA AND c.TABLE_NAME = t.TABLE_NAME \
    WHERE t.TABLE_SCHEMA = DATABASE() AND c.TABLE_SCHEMA = DATABASE() AND t.TABLE_NAME IN";

/// The columns of each unique key, in the order of their names. A key over the beginnings of names is another one. Keys
/// by a hash are left out: MariaDB has let the same name in twice by them (MDEV-37199).
pub(crate) const KEYS: &str = "SELECT CAST(TABLE_NAME AS CHAR) AS table_name, \
    CAST(LOWER(GROUP_CONCAT(COLUMN_NAME ORDER BY LOWER(COLUMN_NAME))) AS CHAR) AS names \
    FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = DATABASE() AND NON_UNIQUE = 0 AND TABLE_NAME IN";

pub(crate) const KEYS_END: &str = "GROUP BY TABLE_NAME, INDEX_NAME HAVING COUNT(COLUMN_NAME) = COUNT(*) AND MAX(SUB_PART) IS NULL \
    AND MIN(INDEX_TYPE) = 'BTREE' AND MAX(INDEX_TYPE) = 'BTREE'";

/// What may change a row before it is written, and what it does, unless the user may not know.
pub(crate) const TRIGGERS: &str = "SELECT CAST(EVENT_OBJECT_TABLE AS CHAR) AS table_name, CAST(TRIGGER_NAME AS CHAR) AS name, \
    CAST(LOWER(COALESCE(ACTION_STATEMENT, '')) AS CHAR) AS body FROM information_schema.TRIGGERS \
    WHERE EVENT_OBJECT_SCHEMA = DATABASE() AND ACTION_TIMING = 'BEFORE' AND EVENT_MANIPULATION <> 'DELETE' \
    AND EVENT_OBJECT_TABLE IN";

/// Looks at tables, and creates those that are missing if that is allowed.
///
/// # Errors
/// [`StoreError::Refused`] when one is missing and may not be created, and when grants cannot rest on one.
pub(crate) async fn open(
    database: &Database,
    options: &MysqlOptions,
    shapes: &[Shape<'_>],
) -> Result<Vec<Columns>, StoreError> {
    open_begun(database, options, shapes, None).await
}

/// The same, unless this statement answers a row: one is there only if the tables were. Then those that are missing
/// were lost, and would begin anew.
///
/// # Errors
/// As [`open`], and [`StoreError::Refused`] when a table was lost.
pub(crate) async fn open_begun(
    database: &Database,
    options: &MysqlOptions,
    shapes: &[Shape<'_>],
    begun: Option<&'static str>,
) -> Result<Vec<Columns>, StoreError> {
    let names: Vec<&str> = shapes.iter().map(|shape| shape.name).collect();
    let mut found = find(database, &names).await?;
    let missing: Vec<&Shape<'_>> = shapes.iter().filter(|shape| !found.contains_key(shape.name)).collect();
    if let (Some(lost), Some(begun)) = (missing.first(), begun) {
        refuse_lost(database, lost.name, begun).await?;
    }
    if let Some(refused) = missing.iter().find(|shape| !options.may_create(shape.name)) {
        return Err(table_is_missing(database, options, refused.name));
    }
    if !missing.is_empty() {
        for shape in missing {
            database.execute("creating a table", sqlx::query(AssertSqlSafe(shape.ddl.trim().to_owned()))).await?;
            tracing::info!(database = database.at(), table = shape.name, "created a table");
        }
        found = find(database, &names).await?;
    }
    let judged = shapes.iter().map(|shape| {
        let gone = || {
            StoreError::refused(format!(
                "{}: the table {} was there a moment ago, and is gone",
                database.at(),
                shape.name
            ))
        };
        found.remove(shape.name).ok_or_else(gone)?.judge(database, shape)
    });
    judged.collect()
}

/// Refuses a database where this table is missing, if the statement answers a row: see [`open_begun`].
///
/// # Errors
/// [`StoreError::Refused`], and any error of the connection.
pub(crate) async fn refuse_lost(database: &Database, table: &str, begun: &'static str) -> Result<(), StoreError> {
    let mut turn = database.turn(DOING).await?;
    // A server denies access to a table of which it does not say whether it is there.
    let begun = turn.try_text(begun, &[NO_SUCH_TABLE, TABLE_ACCESS_DENIED]).await?.unwrap_or_default();
    turn.give_back();
    // Another program may have made the tables, and begun, since this one looked.
    if begun.is_empty() || find(database, &[table]).await?.contains_key(table) {
        return Ok(());
    }
    Err(StoreError::refused(format!(
        "the table {table} is missing (or this user has no privilege on it), and the store at {} has begun: restore it from \
         a backup, then run `unalike store restored --lift COUNT`",
        database.at()
    )))
}

/// Refuses a database that has not all of these tables, which belong to another system.
///
/// # Errors
/// [`StoreError::Refused`].
pub(crate) async fn require(database: &Database, options: &MysqlOptions, names: &[String]) -> Result<(), StoreError> {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    if names.is_empty() {
        return Ok(());
    }
    let found = find(database, &names).await?;
    let missing = names.iter().find(|name| !found.contains_key(**name));
    missing.map_or(Ok(()), |missing| Err(table_is_missing(database, options, missing)))
}

/// The error where a table is missing that is not to be created.
pub(crate) fn table_is_missing(database: &Database, options: &MysqlOptions, table: &str) -> StoreError {
    let at = database.at();
    if options.create_tables {
        return StoreError::refused(format!(
            "{at}: the table {table} is missing, and it belongs to another system: is this the database of that system? If it \
             is to begin here, run the statements that `unalike schema` prints, or start the server or create a tag with \
             create=true in the URL; a command that only looks creates no table"
        ));
    }
    let what = format!(
        "{at}: the table {table} is missing, and tables are not to be created (create=false, or a command that begins no \
         store): run the statements that `unalike schema` prints"
    );
    StoreError::refused(what).with_source(NotBegun)
}

/// Looks at a table; none when it is missing.
///
/// # Errors
/// [`StoreError::Refused`] when grants cannot rest on it.
pub(crate) async fn look(database: &Database, shape: Shape<'_>) -> Result<Option<Columns>, StoreError> {
    let found = find(database, &[shape.name]).await?.remove(shape.name);
    found.map(|found| found.judge(database, &shape)).transpose()
}

/// What the server says of a table.
#[derive(Default)]
struct FoundTable {
    /// With the kind and the engine of the table in each.
    columns: Vec<MySqlRow>,
    /// The columns of each unique key, by name, with commas between.
    keys: Vec<String>,
    /// Their names, and what they do.
    triggers: Vec<(String, String)>,
}

const DOING: &str = "looking at tables";

/// What there is of these tables.
async fn find<'t>(database: &Database, names: &[&'t str]) -> Result<BTreeMap<&'t str, FoundTable>, StoreError> {
    let failed = |error| read_error(database.at(), DOING, error);
    let places = vec!["?"; names.len()].join(", ");
    let rows = async |select: &str, end: &str| {
        let mut statement = sqlx::query(AssertSqlSafe(format!("{select} ({places}) {end}")));
        for name in names {
            statement = statement.bind((*name).to_owned());
        }
        database.rows(DOING, statement).await
    };
    let text = |row: &MySqlRow, column: &str| row.try_get::<String, _>(column).map_err(failed);
    // One that is looked up may have been found under another case, where the server takes both for one.
    let asked = |row: &MySqlRow| {
        let found = text(row, "table_name")?;
        Ok::<_, StoreError>(names.iter().copied().find(|name| names.len() == 1 || *name == found))
    };
    let mut tables: BTreeMap<&str, FoundTable> = BTreeMap::new();
    for row in rows(COLUMNS, "").await? {
        if let Some(name) = asked(&row)? {
            tables.entry(name).or_default().columns.push(row);
        }
    }
    if tables.is_empty() {
        return Ok(tables);
    }
    for row in rows(KEYS, KEYS_END).await? {
        if let Some(table) = asked(&row)?.and_then(|name| tables.get_mut(name)) {
            table.keys.push(text(&row, "names")?);
        }
    }
    for row in rows(TRIGGERS, "").await? {
        if let Some(table) = asked(&row)?.and_then(|name| tables.get_mut(name)) {
            table.triggers.push((text(&row, "name")?, text(&row, "body")?));
        }
    }
    Ok(tables)
}

impl FoundTable {
    /// Whether grants can rest on the table, and what its columns are.
    fn judge(self, database: &Database, shape: &Shape<'_>) -> Result<Columns, StoreError> {
        let table = shape.name;
        let failed = |error| read_error(database.at(), DOING, error);
        let wrong = |what: String| Err(StoreError::refused(format!("{}: the table {table} {what}", database.at())));

        let mut columns = Columns::new();
        for row in &self.columns {
            let text = |column: &str| row.try_get::<String, _>(column).map_err(failed);
            match (text("kind_of_table")?.as_str(), text("engine")?) {
                ("BASE TABLE", engine) if engine.eq_ignore_ascii_case("InnoDB") => {}
                ("BASE TABLE", engine) => {
                    return wrong(format!(
                        "is kept in {engine}, which can lose commits, and numbers would repeat: ALTER TABLE {table} ENGINE = InnoDB"
                    ));
                }
                ("VIEW", _) => {
                    return wrong("is a view, and grants come only from tables: rename the table to it".to_owned());
                }
                (kind, _) => {
                    return wrong(format!(
                        "is not a plain table but {kind}: numbers could repeat; make it a plain one"
                    ));
                }
            }
            let name = text("name")?;
            let Some((_, holds)) = shape.columns.iter().find(|(column, _)| *column == name) else { continue };
            if !text("generation_expression")?.is_empty() {
                return wrong(format!(
                    "computes its column {name} from others, and must take what is given: make it an ordinary one"
                ));
            }
            let kind = text("kind")?;
            let column = Column {
                limit: integer_limit(&kind).unwrap_or_default(),
                kind,
                extra: text("extra")?,
                width: row.try_get("width").map_err(failed)?,
                charset: text("charset")?,
                collation: text("collation_name")?,
            };
            if !holds.fits(&column) {
                return wrong(format!("has the column {name} {}, which must be {}", column.kind, holds.name()));
            }
            columns.insert(name, column);
        }
        if let Some((name, _)) = shape.columns.iter().find(|(name, _)| !columns.contains_key(*name)) {
            return wrong(format!("has no column {name}: `unalike schema` prints what is needed"));
        }

        let mut key: Vec<String> = shape.key.iter().map(|name| name.to_lowercase()).collect();
        key.sort_unstable();
        if !self.keys.contains(&key.join(",")) {
            let key = shape.key.join(", ");
            return wrong(format!(
                "has no unique key over exactly {key} (whole columns, no prefix, not USING HASH): the same numbers could be \
                 granted twice; add one (ALTER TABLE {table} ADD UNIQUE ({key}))"
            ));
        }

        for (name, body) in &self.triggers {
            // It can change no column that it does not name.
            let is_named =
                |column: &str| body.split(|it: char| !it.is_alphanumeric() && it != '_').any(|word| word == column);
            let named = shape.columns.iter().map(|(column, _)| *column).find(|column| is_named(column));
            if let Some(what) = named.or(body.is_empty().then_some("what this user may not read")) {
                return wrong(format!(
                    "has the trigger {name}, which runs before a row is written and names {what}: it could change what is \
                     granted; drop it, or have it run AFTER"
                ));
            }
        }
        Ok(columns)
    }
}

/// The greatest number that fits a column of this type.
fn integer_limit(column_type: &str) -> Option<u64> {
    let bits = match column_type.split([' ', '(']).next()? {
        "tinyint" => 8,
        "smallint" => 16,
        "mediumint" => 24,
        "int" => 32,
        "bigint" => 64,
        _ => return None,
    };
    Some(u64::MAX >> (64 - bits) >> u32::from(!column_type.contains("unsigned")))
}

/// Whether the server answers and takes writes just now: a row of our own is written as it is.
pub(crate) async fn prove_writable(database: &Database) -> Result<(), StoreError> {
    let statement = sqlx::query("UPDATE unalike_store SET schema_version = schema_version WHERE id = 1");
    database.execute("checking that the server takes writes", statement).await.map(drop)
}

/// How many more tags this process creates before it counts them all again: counting reads every row.
///
/// Close to the limit each creation counts. Farther from it, several processes may together pass the limit by what they
/// had left: it keeps a bug from filling the store, and is no quota.
#[derive(Debug, Default)]
pub(crate) struct Room(AtomicU64);

impl Room {
    /// Takes the room for one more tag.
    ///
    /// # Errors
    /// [`StoreError::TagLimit`], and what counting brings.
    pub(crate) async fn take(
        &self,
        tag: &str,
        creation: TagCreation,
        count: impl Future<Output = Result<u64, StoreError>>,
    ) -> Result<(), StoreError> {
        let left = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if left.is_ok() {
            return Ok(());
        }
        let free = creation.tags_max.saturating_sub(count.await?);
        if free == 0 {
            return Err(StoreError::TagLimit { tag: tag.to_owned(), tags_max: creation.tags_max });
        }
        // One is taken now; of a thousand that are free, some sixty may be taken without another look.
        self.0.store((free - 1) / 16, Ordering::Relaxed);
        Ok(())
    }
}
