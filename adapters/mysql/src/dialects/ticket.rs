//! Flickr's ticket servers: `REPLACE INTO` a table with `auto_increment`, one table per tag.
//!
//! `REPLACE` leaves one row in the table and moves its counter on; the number comes in the reply to that very
//! statement. A grant is one number, so a node holds some tickets ahead, and what that costs is a round trip each: use
//! another dialect for high rates.
//!
//! **Several servers** number together as Flickr's two did: server i of N has `auto_increment_increment = N` and
//! `auto_increment_offset = i + 1`, in its own configuration. Both are looked at on every new connection, and must be 1
//! and 1 as long as the server stands alone. A stripe's numbers are [counted](StripeNumbers::Counted): ticket t is the
//! grant `(t - offset) / N + 1`, of which the stripes make `(n - 1) * N + i + 1`, the very t that the server gave. So
//! all stores that number by stripes speak of the same thing, "the n-th number of this store", also while the number of
//! stripes changes. Which stripe a server is, is kept in `unalike_ticket`, and every grant reads it in its own
//! statement.
//!
//! **The counter never goes down.** It is raised by a row with an explicit id, which lifts it if it is lower and leaves
//! it alone otherwise, in one step; `ALTER TABLE .. AUTO_INCREMENT` would set a counter that is higher back to the
//! greatest id in the table, which may be lower than ids that were handed out. InnoDB keeps the counter over a crash
//! since MySQL 8.0 and MariaDB 10.2.4; older servers are refused. The id must be `bigint unsigned`: a counter at the
//! end of a smaller type stays there, and `REPLACE` would hand out the last number again and again.
//!
//! A tag ends by renaming its table to `TAG$retired`, which stops Flickr's own statement too. The name shows here that
//! the tag may never be created again.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use sqlx::mysql::MySqlRow;
use sqlx::{AssertSqlSafe, Row as _};
use unalike_storage::{
    ID_MAX, JoinedStripe, Mode, RefillPolicy, Segment, SegmentStore, StepPolicy, StoreError, Stripe, StripeNumbers,
    TagCreation, TagOptions, TagRecord, TailRelease, first_watermark, lock, split_tag, validate_allocate,
    validate_policies, validate_raise, validate_tag,
};

use super::race::Race;
use super::tables::{self, Column, Columns, Holds, Room, Shape, prove_writable};
use crate::database::{Database, Statement, Turn, number};
use crate::error::{AUTO_INCREMENT_FAILED, DEADLOCK, NO_SUCH_TABLE, TABLE_EXISTS, damaged, read_error};
use crate::fence::ServerFacts;
use crate::{DialectStore, MysqlOptions};

/// One row: what the numbers of this server are.
const RECORD_TABLE: &str = "CREATE TABLE IF NOT EXISTS unalike_ticket (
    id TINYINT UNSIGNED NOT NULL PRIMARY KEY CHECK (id = 1),
    stripe_set CHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, -- hexadecimal; empty while the server stands alone
    stripe_index INT UNSIGNED NOT NULL,
    stripe_count INT UNSIGNED NOT NULL
) ENGINE = InnoDB";

const RECORD: Shape<'static> = Shape {
    name: "unalike_ticket",
    ddl: RECORD_TABLE,
    key: &["id"],
    columns: &[
        ("id", Holds::Whole),
        ("stripe_set", Holds::Name),
        ("stripe_index", Holds::Whole),
        ("stripe_count", Holds::Whole),
    ],
};

/// A tag's table: without the key over `stub` each ticket would leave a row behind.
const TICKETS: Shape<'static> =
    Shape { name: "", ddl: "", key: &["stub"], columns: &[("id", Holds::Whole), ("stub", Holds::Name)] };

const RECORD_ROW: &str =
    "INSERT IGNORE INTO unalike_ticket (id, stripe_set, stripe_index, stripe_count) VALUES (1, '', 0, 1)";

/// The tables that tickets are drawn from: those with the right columns, in ascending byte order of their names.
const TICKET_TABLES: &str = "
SELECT t.TABLE_NAME, i.COLUMN_TYPE, i.EXTRA, COALESCE(t.ENGINE, 'none') FROM information_schema.TABLES t
JOIN information_schema.COLUMNS i ON i.TABLE_SCHEMA = t.TABLE_SCHEMA AND i.TABLE_NAME = t.TABLE_NAME AND i.COLUMN_NAME = 'id'
JOIN information_schema.COLUMNS s ON s.TABLE_SCHEMA = t.TABLE_SCHEMA AND s.TABLE_NAME = t.TABLE_NAME AND s.COLUMN_NAME = 'stub'
WHERE t.TABLE_SCHEMA = DATABASE() AND t.TABLE_TYPE = 'BASE TABLE' AND i.EXTRA LIKE '%auto_increment%'
AND t.TABLE_NAME REGEXP '^[A-Za-z0-9_]+$' AND t.TABLE_NAME NOT LIKE 'unalike\\\\_%'
AND CAST(t.TABLE_NAME AS BINARY) > ? ORDER BY CAST(t.TABLE_NAME AS BINARY) LIMIT ?";

/// The names of tables that tickets are drawn from.
const NAMES: &str = "'^[A-Za-z0-9_]+$'";

/// One lock per database, for what creates and ends tags: statements that change tables are transactions of their own.
/// A lock's name has 64 characters at most, and MySQL 9.7 has no SHA1().
const LOCK: &str = "SELECT GET_LOCK(CONCAT('unalike:', LEFT(SHA2(DATABASE(), 256), 40)), 2) AS locked";
const UNLOCK: &str = "SELECT RELEASE_LOCK(CONCAT('unalike:', LEFT(SHA2(DATABASE(), 256), 40))) AS locked";

/// Appended to the name of a tag's table when the tag ends. No tag has such a name.
const RETIRED: &str = "$retired";

/// Names of tables have 64 characters at most.
const NAME_LEN_MAX: usize = 64;

/// Tickets that a node holds ahead.
const AHEAD: u64 = 10;

/// The statements that create its tables: that of `Tickets64` stands for those of all tags.
pub(crate) fn ddl() -> Vec<String> {
    let tickets = ticket_table("Tickets64", 1).replacen("CREATE TABLE", "CREATE TABLE IF NOT EXISTS", 1);
    vec![RECORD_TABLE.to_owned(), RECORD_ROW.to_owned(), tickets]
}

/// The least privileges on its tables; each tag's table needs those of `Tickets64`.
pub(crate) fn privileges() -> Vec<(String, &'static str)> {
    vec![("unalike_ticket".to_owned(), "SELECT, UPDATE"), ("Tickets64".to_owned(), "SELECT, INSERT, DELETE")]
}

fn ticket_table(tag: &str, next: u64) -> String {
    format!(
        "CREATE TABLE `{tag}` (
    id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
    stub CHAR(1) NOT NULL DEFAULT '',
    UNIQUE KEY stub (stub)
) ENGINE = InnoDB AUTO_INCREMENT = {next}"
    )
}

pub(crate) async fn open(database: &Database, options: &MysqlOptions) -> Result<Arc<dyn DialectStore>, StoreError> {
    tables::open(database, options, &[RECORD]).await?;
    let mut turn = database.turn("looking at the server").await?;
    let facts = turn.look().await?;
    turn.give_back();
    let refused = |why: String| StoreError::refused(format!("the server at {}: {why}", database.at()));
    check_counter(&facts).map_err(refused)?;
    let steps = Steps::of(&facts).map_err(refused)?;
    database.require(move |facts| {
        check_counter(facts)?;
        let found = Steps::of(facts)?;
        if found == steps { Ok(()) } else { Err(format!("it has {found} now, and had {steps} before: set it back")) }
    });
    let store = Tickets {
        database: database.clone(),
        creation: options.creation,
        create_tables: options.create_tables,
        room: Room::default(),
        steps,
        joined: None,
        known: Mutex::default(),
    };
    if store.find_numbering().await?.is_none() {
        database.execute("filling unalike_ticket", sqlx::query(RECORD_ROW)).await?;
    }
    Ok(Arc::new(store))
}

/// Whether the server's counters are the only ones, and outlive a crash.
fn check_counter(facts: &ServerFacts) -> Result<(), String> {
    if let Some(cluster) = facts.cluster() {
        return Err(format!(
            "it is a node of the Galera cluster {cluster:?}, where each node has a counter of its own, whose steps change when \
             nodes come and go: use the dialect unalike"
        ));
    }
    let version = facts.value("version");
    let mut parts = version.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or_default());
    let mut part = || parts.next().unwrap_or_default();
    let found = (part(), part(), part());
    let least = if version.contains("MariaDB") { (10, 2, 4) } else { (8, 0, 0) };
    if found >= least {
        return Ok(());
    }
    Err(format!(
        "its version is {version:?}, which forgets counters of auto_increment in a crash, and numbers would repeat: use \
         MySQL 8.0 or MariaDB 10.2.4 or newer"
    ))
}

/// How a connection steps: its two variables, 1 or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Steps {
    increment: u64,
    offset: u64,
}

impl Steps {
    fn of(facts: &ServerFacts) -> Result<Self, String> {
        let value = |name: &str| {
            let value = facts.value(name).parse().ok().filter(|&value: &u64| value >= 1);
            value.ok_or_else(|| format!("{name} is {:?}, it must be 1 or more", facts.value(name)))
        };
        Ok(Self { increment: value("auto_increment_increment")?, offset: value("auto_increment_offset")? })
    }

    /// That the session steps so.
    fn condition(self) -> String {
        format!("@@auto_increment_increment = {} AND @@auto_increment_offset = {}", self.increment, self.offset)
    }
}

impl std::fmt::Display for Steps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "auto_increment_increment = {} and auto_increment_offset = {}", self.increment, self.offset)
    }
}

/// What the record says that the server's tickets are: place `index` of `count`, or 0 of 1 without a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Numbering {
    stripe: Option<Stripe>,
}

impl Numbering {
    const ALONE: Self = Self { stripe: None };

    fn set(self) -> String {
        self.stripe.map_or_else(String::new, |stripe| format!("{:032x}", stripe.set))
    }

    /// As it is recorded, also while the stripes are resized.
    fn index(self) -> u32 {
        self.stripe.map_or(0, |stripe| stripe.index)
    }

    /// As it is recorded.
    fn count(self) -> u32 {
        self.stripe.map_or(1, |stripe| stripe.count)
    }

    fn steps(self) -> Steps {
        let (index, count) = self.stripe.map_or((0, 1), |stripe| stripe.numbering());
        Steps { increment: u64::from(count), offset: u64::from(index) + 1 }
    }

    /// The ticket that is the n-th of this server (1, 2, 3, ..); `None` beyond 2^63 - 1.
    fn ticket(self, n: u64) -> Option<u64> {
        let Steps { increment, offset } = self.steps();
        let ticket = n.checked_sub(1)?.checked_mul(increment)?.checked_add(offset)?;
        (ticket <= ID_MAX).then_some(ticket)
    }

    /// The inverse of [`Numbering::ticket`]; `None` for a ticket of another server.
    fn ordinal(self, ticket: u64) -> Option<u64> {
        let Steps { increment, offset } = self.steps();
        let above = ticket.checked_sub(offset)?;
        above.is_multiple_of(increment).then(|| above / increment + 1)
    }

    /// How many tickets of this server lie below a counter.
    fn drawn(self, counter: u64) -> u64 {
        let Steps { increment, offset } = self.steps();
        counter.saturating_sub(offset).div_ceil(increment)
    }

    fn describe(self) -> String {
        self.stripe.map_or_else(|| "a server that is used alone".to_owned(), |stripe| stripe.to_string())
    }
}

#[derive(Debug)]
struct Tickets {
    database: Database,
    creation: TagCreation,
    create_tables: bool,
    room: Room,
    /// Those of every connection.
    steps: Steps,
    /// The stripe that this client joined.
    joined: Option<Stripe>,
    /// Tags whose tables were looked at.
    known: Mutex<BTreeSet<String>>,
}

impl Tickets {
    async fn find_numbering(&self) -> Result<Option<Numbering>, StoreError> {
        let statement = sqlx::query("SELECT stripe_set, stripe_index, stripe_count FROM unalike_ticket WHERE id = 1");
        let rows = self.database.rows("reading unalike_ticket", statement).await?;
        rows.first().map(|row| self.numbering_of(row)).transpose()
    }

    async fn numbering(&self) -> Result<Numbering, StoreError> {
        self.find_numbering().await?.ok_or_else(|| self.no_record())
    }

    fn no_record(&self) -> StoreError {
        damaged(self.database.at(), "the table unalike_ticket has no row")
    }

    fn numbering_of(&self, row: &MySqlRow) -> Result<Numbering, StoreError> {
        let set: String =
            row.try_get_unchecked("stripe_set").map_err(|error| self.unreadable("reading unalike_ticket", error))?;
        if set.is_empty() {
            return Ok(Numbering::ALONE);
        }
        let figure = |column: &str| Ok::<_, StoreError>(u32::try_from(number(&self.database, row, column)?).ok());
        match (u128::from_str_radix(&set, 16), figure("stripe_index")?, figure("stripe_count")?) {
            (Ok(set), Some(index), Some(count)) if (Stripe { set, index, count }).validate_record().is_ok() => {
                Ok(Numbering { stripe: Some(Stripe { set, index, count }) })
            }
            _ => Err(damaged(self.database.at(), "the stripe in unalike_ticket is not valid")),
        }
    }

    fn unreadable(&self, doing: &'static str, error: sqlx::Error) -> StoreError {
        read_error(self.database.at(), doing, error)
    }

    /// Draws a ticket, if the server's record is that which this client joined.
    ///
    /// The record is locked for reading until the ticket is drawn, so whoever writes it knows that all others were
    /// drawn before.
    async fn draw(&self, tag: &str, numbering: Numbering) -> Result<Drawn, StoreError> {
        let statement = sqlx::query(self.database.fenced(&format!(
            "REPLACE INTO `{tag}` (stub) SELECT 'a' FROM unalike_ticket \
             WHERE id = 1 AND stripe_set = ? AND stripe_index = ? AND stripe_count = ? AND {} \
             AND {{fence alone}} LOCK IN SHARE MODE",
            self.steps.condition()
        )));
        let statement = statement.bind(numbering.set()).bind(numbering.index()).bind(numbering.count());
        let mut turn = self.database.turn("drawing a ticket").await?;
        let done = turn.try_execute(statement, &[DEADLOCK, AUTO_INCREMENT_FAILED, NO_SUCH_TABLE]).await?;
        turn.give_back();
        Ok(match done {
            // The number and the count of rows are from one and the same reply; without a row the number is an old one.
            Ok(done) if done.rows_affected() >= 1 => Drawn::Ticket(done.last_insert_id()),
            Ok(_) => Drawn::OtherRecord,
            Err(NO_SUCH_TABLE) => Drawn::NoTable,
            Err(_) => Drawn::Lost,
        })
    }

    /// What this client may draw; an error when its connections step otherwise.
    fn joined(&self) -> Result<Numbering, StoreError> {
        let numbering = Numbering { stripe: self.joined };
        if numbering.steps() == self.steps {
            return Ok(numbering);
        }
        Err(StoreError::refused(format!(
            "the server at {} has {}, but as {} it needs {}: set both variables, for all new connections, in the server's \
             configuration",
            self.database.at(),
            self.steps,
            numbering.describe(),
            numbering.steps()
        )))
    }

    /// What is recorded, if it is what this client joined.
    async fn check_joined(&self) -> Result<Numbering, StoreError> {
        let recorded = self.numbering().await?;
        let name = format!("the server at {}", self.database.at());
        Stripe::check_grant(&name, recorded.stripe.as_ref(), self.joined.as_ref())?;
        Ok(recorded)
    }

    /// Lifts a table's counter to this ticket, unless it is there or above.
    async fn lift(&self, turn: &mut Turn, tag: &str, ticket: u64) -> Result<Result<(), u16>, StoreError> {
        if ticket <= 1 {
            // An id of 0 would draw a ticket.
            return Ok(Ok(()));
        }
        let statement = format!("REPLACE INTO `{tag}` (id, stub) SELECT ?, 'a' FROM DUAL WHERE {{fence}}");
        let statement = sqlx::query(self.database.fenced(&statement));
        let done =
            turn.try_execute(statement.bind(ticket - 1), &[DEADLOCK, AUTO_INCREMENT_FAILED, NO_SUCH_TABLE]).await?;
        match done {
            Ok(done) if done.rows_affected() == 0 => Err(self.database.held_back("raising a counter").await),
            done => Ok(done.map(drop)),
        }
    }

    /// The counter of a table, the next ticket at the least; `None` when there is no table.
    async fn counter(&self, turn: &mut Turn, table: &str) -> Result<Option<u64>, StoreError> {
        const DOING: &str = "reading a counter";
        // The server's other tables of counters are up to a day old.
        let statement = sqlx::query(AssertSqlSafe(format!("SHOW CREATE TABLE `{table}`")));
        let Some(rows) = turn.try_rows(statement, NO_SUCH_TABLE).await? else { return Ok(None) };
        let Some(row) = rows.first() else { return Ok(None) };
        let text: String = row.try_get_unchecked(1).map_err(|error| self.unreadable(DOING, error))?;
        // Options of the table come last, its comment behind the counter.
        let options = text.rsplit_once("\n) ").map_or("", |(_, options)| options);
        let counter = options.split_once(" AUTO_INCREMENT=").map(|(_, rest)| rest);
        let Some(counter) = counter else { return Ok(Some(1)) };
        let digits: String = counter.chars().take_while(char::is_ascii_digit).collect();
        let counter =
            digits.parse().map_err(|_| damaged(self.database.at(), &format!("the counter of {table} is {digits}")))?;
        Ok(Some(counter))
    }

    async fn find(&self, tag: &str) -> Result<Option<TagRecord>, StoreError> {
        let numbering = self.numbering().await?;
        let mut turn = self.database.turn("reading a counter").await?;
        let counter = self.counter(&mut turn, tag).await?;
        turn.give_back();
        Ok(counter.map(|counter| record(tag, numbering.drawn(counter))))
    }

    /// Whether there is such a table; an error if tickets cannot be drawn from it.
    async fn look_at(&self, tag: &str) -> Result<bool, StoreError> {
        if lock(&self.known).contains(tag) {
            return Ok(true);
        }
        let looked = tables::look(&self.database, Shape { name: tag, ..TICKETS }).await;
        let looked = looked.map_err(|error| match error {
            StoreError::Refused { what, .. } => not_for_tickets(what),
            error => error,
        })?;
        let Some(columns) = looked else { return Ok(false) };
        check_id(&columns).map_err(|found| {
            not_for_tickets(format!("{}: the table {tag} has the column id {found}", self.database.at()))
        })?;
        lock(&self.known).insert(tag.to_owned());
        Ok(true)
    }

    /// The tag's table, created if first use may do that.
    async fn look_at_or_create(&self, tag: &str) -> Result<(), StoreError> {
        if self.look_at(tag).await? {
            return Ok(());
        }
        if !self.creation.of(tag).on_first_use {
            return Err(StoreError::tag_unknown(tag));
        }
        self.create(tag, 1).await?;
        // It is new, or somebody else was quicker.
        if self.look_at(tag).await? { Ok(()) } else { Err(StoreError::tag_unknown(tag)) }
    }

    /// Creates the tag's table with this ordinal as the first; whether it is new.
    async fn create(&self, tag: &str, start: u64) -> Result<bool, StoreError> {
        if !self.create_tables {
            return Err(StoreError::refused(format!(
                "{}: the table {tag} is missing, and tables are not to be created (create=false): {}",
                self.database.at(),
                ticket_table(tag, 1)
            )));
        }
        let start = match first_watermark(tag, start, self.database.lifted()) {
            ID_MAX => return Err(StoreError::exhausted(tag)),
            watermark => watermark + 1,
        };
        let ticket = self.numbering().await?.ticket(start).ok_or_else(|| StoreError::exhausted(tag))?;
        self.room.take(tag, self.creation.of(tag), self.count()).await?;
        let mut turn = self.locked().await?;
        if self.counter(&mut turn, &retired(tag)).await?.is_some() {
            self.unlock(turn).await?;
            return Err(StoreError::refused(format!(
                "the tag {tag:?} was ended, and its numbers continue elsewhere: use another tag"
            )));
        }
        let done = turn.try_execute(sqlx::query(AssertSqlSafe(ticket_table(tag, ticket))), &[TABLE_EXISTS]).await?;
        self.unlock(turn).await?;
        Ok(done.is_ok())
    }

    async fn count(&self) -> Result<u64, StoreError> {
        Ok(u64::try_from(self.tables("", u32::MAX).await?.len()).unwrap_or(u64::MAX))
    }

    /// The tables to draw from, those after this name only.
    async fn tables(&self, after: &str, limit: u32) -> Result<Vec<String>, StoreError> {
        self.listed(sqlx::query(TICKET_TABLES).bind(after.as_bytes()).bind(limit)).await
    }

    /// The tags that were ended, those after this name only: a table's last part is less than what a name goes on with.
    async fn ended(&self, after: &str, limit: u32) -> Result<Vec<String>, StoreError> {
        let statement = TICKET_TABLES.replace(NAMES, "'^[A-Za-z0-9_]+[$]retired$'");
        let statement = sqlx::query(AssertSqlSafe(statement)).bind(retired(after).into_bytes()).bind(limit);
        let tag = |table: String| table.strip_suffix(RETIRED).map(str::to_owned);
        Ok(self.listed(statement).await?.into_iter().filter_map(tag).collect())
    }

    async fn listed(&self, statement: Statement<'_>) -> Result<Vec<String>, StoreError> {
        const DOING: &str = "listing tables";
        let rows = self.database.rows(DOING, statement).await?;
        let name = |row: &MySqlRow| row.try_get_unchecked(0).map_err(|error| self.unreadable(DOING, error));
        rows.iter().map(name).collect()
    }

    /// A connection that holds the lock for creating and ending tags; the lock goes with the connection at the latest.
    async fn locked(&self) -> Result<Turn, StoreError> {
        let mut turn = self.database.turn("creating or ending a tag").await?;
        let rows = turn.rows(sqlx::query(LOCK)).await?;
        if rows.first().and_then(|row| row.try_get_unchecked::<Option<i64>, _>("locked").ok().flatten()) == Some(1) {
            return Ok(turn);
        }
        let what = "other programs create or end tags just now: try again".to_owned();
        Err(StoreError::unavailable(what))
    }

    async fn unlock(&self, mut turn: Turn) -> Result<(), StoreError> {
        turn.rows(sqlx::query(UNLOCK)).await?;
        turn.give_back();
        Ok(())
    }

    /// The record, locked until the transaction ends: no ticket is drawn meanwhile.
    async fn locked_numbering(&self, turn: &mut Turn) -> Result<Numbering, StoreError> {
        let select = "SELECT stripe_set, stripe_index, stripe_count FROM unalike_ticket WHERE id = 1 FOR UPDATE";
        let rows = turn.rows(sqlx::query(select)).await?;
        rows.first().map_or_else(|| Err(self.no_record()), |row| self.numbering_of(row))
    }

    async fn write_numbering(&self, turn: &mut Turn, numbering: Numbering) -> Result<(), StoreError> {
        let update = "UPDATE unalike_ticket SET stripe_set = ?, stripe_index = ?, stripe_count = ? WHERE id = 1";
        let update = sqlx::query(update).bind(numbering.set()).bind(numbering.index()).bind(numbering.count());
        turn.execute(update).await.map(drop)
    }
}

/// What came of drawing a ticket.
enum Drawn {
    Ticket(u64),
    /// The record is not that which this client joined.
    OtherRecord,
    NoTable,
    /// Against another one, for the row or for the counter's lock; the statement was rolled back.
    Lost,
}

#[async_trait]
impl SegmentStore for Tickets {
    async fn allocate(&self, tag: &str, count: u64, at_least: u64) -> Result<Segment, StoreError> {
        validate_allocate(tag, count, at_least)?;
        validate(tag)?;
        let numbering = self.joined()?;
        // A floor without a ticket of 63 bits is never reached.
        let floor =
            if at_least == 0 { 0 } else { numbering.ticket(at_least).ok_or_else(|| StoreError::exhausted(tag))? };
        let mut race = Race::new();
        loop {
            self.look_at_or_create(tag).await?;
            match self.draw(tag, numbering).await? {
                Drawn::Ticket(ticket) if ticket > ID_MAX => return Err(StoreError::exhausted(tag)),
                Drawn::Ticket(ticket) => {
                    let Some(n) = numbering.ordinal(ticket) else {
                        let what = format!("the ticket {ticket} of {tag} is not one of {}", numbering.describe());
                        return Err(damaged(self.database.at(), &what));
                    };
                    if ticket >= floor {
                        return Ok(Segment { start: n, end: n + 1, stride: 1, generation: 0, version: n });
                    }
                    // This ticket is a gap.
                    let mut turn = self.database.turn("raising a counter").await?;
                    let _lost = self.lift(&mut turn, tag, floor).await?;
                    turn.give_back();
                }
                Drawn::OtherRecord => {
                    self.database.check_fence().await?;
                    let recorded = self.numbering().await?;
                    if recorded == numbering {
                        return Err(self.database.held_back("drawing a ticket").await);
                    }
                    return Err(StoreError::refused(format!(
                        "the server at {} is {}, and was used as {}: open it as what it is",
                        self.database.at(),
                        recorded.describe(),
                        numbering.describe()
                    )));
                }
                Drawn::NoTable => {
                    lock(&self.known).remove(tag);
                }
                Drawn::Lost => {}
            }
            race.lost(tag).await?;
        }
    }

    async fn release(&self, tag: &str, _tail: TailRelease) -> Result<bool, StoreError> {
        validate_tag(tag).map(|()| false)
    }

    async fn open_tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        validate(tag)?;
        self.look_at_or_create(tag).await?;
        self.find(tag).await?.ok_or_else(|| StoreError::tag_unknown(tag))
    }

    async fn tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        validate(tag)?;
        if self.look_at(tag).await?
            && let Some(record) = self.find(tag).await?
        {
            return Ok(record);
        }
        let mut turn = self.database.turn("reading a counter").await?;
        let ended = self.counter(&mut turn, &retired(tag)).await?;
        turn.give_back();
        // As the list has it.
        ended.map(|_| record(tag, ID_MAX)).ok_or_else(|| StoreError::tag_unknown(tag))
    }

    async fn create_tag(&self, tag: &str, wanted: &TagOptions) -> Result<TagRecord, StoreError> {
        wanted.validate(tag)?;
        validate(tag)?;
        let is_usual = wanted.step == StepPolicy::default() || wanted.step == options().step;
        let is_usual = is_usual && (wanted.refill == RefillPolicy::default() || wanted.refill == options().refill);
        if !is_usual || wanted.mode != Mode::Buffered {
            return Err(StoreError::refused(format!(
                "the tag {tag:?} was not created: tickets are drawn one by one and buffered, and have no other step, refill \
                 point or mode"
            )));
        }
        if self.look_at(tag).await? || !self.create(tag, wanted.start).await? {
            return Err(StoreError::TagExists { tag: tag.to_owned() });
        }
        self.tag(tag).await
    }

    async fn change_tag(&self, tag: &str, step: StepPolicy, refill: RefillPolicy) -> Result<TagRecord, StoreError> {
        validate_policies(tag, step, refill)?;
        let record = self.tag(tag).await?;
        if (record.options.step, record.options.refill) == (step, refill) {
            return Ok(record);
        }
        Err(StoreError::refused(format!(
            "the tag {tag:?} keeps its step and refill point: tickets are drawn one by one"
        )))
    }

    async fn raise_tag(&self, tag: &str, next: u64) -> Result<TagRecord, StoreError> {
        validate_raise(tag, next)?;
        validate(tag)?;
        let mut race = Race::new();
        loop {
            if !self.look_at(tag).await? {
                // One that was ended is as high as it can be.
                return self.tag(tag).await;
            }
            let numbering = self.check_joined().await?;
            let ticket = numbering.ticket(next).ok_or_else(|| {
                let reason = format!("its next number was to be {next}, and its ticket is beyond 2^63 - 1");
                StoreError::TagInvalid { tag: tag.to_owned(), reason }
            })?;
            if ticket <= 1 {
                // An id of 0 would draw a ticket.
                return self.tag(tag).await;
            }
            // In the same statement as the look at the record: otherwise it might be of another numbering meanwhile.
            let statement = sqlx::query(AssertSqlSafe(format!(
                "REPLACE INTO `{tag}` (id, stub) SELECT ?, 'a' FROM unalike_ticket \
                 WHERE id = 1 AND stripe_set = ? AND stripe_index = ? AND stripe_count = ? LOCK IN SHARE MODE"
            )));
            let statement = statement.bind(ticket - 1);
            let statement = statement.bind(numbering.set()).bind(numbering.index()).bind(numbering.count());
            let mut turn = self.database.turn("raising a counter").await?;
            let lifted = turn.try_execute(statement, &[DEADLOCK, AUTO_INCREMENT_FAILED, NO_SUCH_TABLE]).await?;
            turn.give_back();
            match lifted {
                Ok(done) if done.rows_affected() >= 1 => return self.tag(tag).await,
                Err(NO_SUCH_TABLE) => {
                    lock(&self.known).remove(tag);
                    return self.tag(tag).await;
                }
                Ok(_) | Err(_) => race.lost(tag).await?,
            }
        }
    }

    async fn retire_tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        validate(tag)?;
        let retired = retired(tag);
        if retired.len() > NAME_LEN_MAX {
            return Err(StoreError::refused(format!(
                "the table of {tag:?} cannot be renamed to {retired}: names of tables have {NAME_LEN_MAX} characters at most"
            )));
        }
        let numbering = self.check_joined().await?;
        let mut turn = self.locked().await?;
        let rename = sqlx::query(AssertSqlSafe(format!("RENAME TABLE `{tag}` TO `{retired}`")));
        // Without the table it may have been ended before, by a request whose answer was lost.
        let renamed = turn.try_execute(rename, &[NO_SUCH_TABLE, TABLE_EXISTS]).await?;
        // MySQL looks for the new name first, and says that it is there where the old one is gone.
        if matches!(renamed, Err(TABLE_EXISTS)) && self.counter(&mut turn, tag).await?.is_some() {
            self.unlock(turn).await?;
            return Err(StoreError::refused(format!(
                "both tables are there, {tag} and {retired}: drop the one that is not in use"
            )));
        }
        lock(&self.known).remove(tag);
        // Nobody draws from it any more, so this is its last word.
        let counter = self.counter(&mut turn, &retired).await?;
        self.unlock(turn).await?;
        counter.map(|counter| record(tag, numbering.drawn(counter))).ok_or_else(|| StoreError::tag_unknown(tag))
    }

    async fn tags(&self, after: Option<&str>, limit: u32) -> Result<Vec<TagRecord>, StoreError> {
        let numbering = self.numbering().await?;
        let tables = self.tables(after.unwrap_or_default(), limit).await?;
        let mut turn = self.database.turn("reading counters").await?;
        let mut records = Vec::with_capacity(tables.len());
        for tag in tables {
            // One that was ended meanwhile is left out.
            if let Some(counter) = self.counter(&mut turn, &tag).await? {
                records.push(record(&tag, numbering.drawn(counter)));
            }
        }
        turn.give_back();
        // Ended tags are told, too: whoever brought half of them elsewhere has to find the rest.
        for tag in self.ended(after.unwrap_or_default(), limit).await? {
            // A table of that name was put there again.
            if records.iter().all(|record| record.tag != tag) {
                records.push(record(&tag, ID_MAX));
            }
        }
        records.sort_by(|one, other| one.tag.cmp(&other.tag));
        records.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        Ok(records)
    }

    async fn folds_names(&self) -> Result<Option<String>, StoreError> {
        // Elsewhere a table's name is compared by its bytes.
        let select = sqlx::query("SELECT @@lower_case_table_names <> 0 AS folds");
        let rows = self.database.rows("reading lower_case_table_names", select).await?;
        let folds = rows.first().map_or(Ok(0), |row| number(&self.database, row, "folds"))?;
        Ok((folds != 0).then(|| "tags are tables, and lower_case_table_names is not 0".to_owned()))
    }

    async fn beyond_record(&self, tag: &str) -> Result<Option<String>, StoreError> {
        validate(tag)?;
        let steps = self.steps;
        Ok((steps != Numbering::ALONE.steps())
            .then(|| format!("its server has {steps}, and others count the tickets between")))
    }

    async fn check(&self) -> Result<(), StoreError> {
        prove_writable(&self.database).await
    }

    async fn stripe(&self) -> Result<Option<Stripe>, StoreError> {
        Ok(self.numbering().await?.stripe)
    }

    async fn join_stripe(&self, stripe: &Stripe) -> Result<JoinedStripe, StoreError> {
        let wanted = Numbering { stripe: Some(*stripe) };
        if wanted.steps() != self.steps {
            return Err(StoreError::refused(format!(
                "the server at {} has {}, but as {stripe} it needs {}: set both variables, for all new connections, in the \
                 server's configuration",
                self.database.at(),
                self.steps,
                wanted.steps()
            )));
        }
        let tables = self.tables("", u32::MAX).await?;
        let mut turn = self.database.begin("joining a stripe").await?;
        let recorded = self.locked_numbering(&mut turn).await?;
        if recorded == Numbering::ALONE {
            for table in &tables {
                if self.counter(&mut turn, table).await?.is_some_and(|counter| counter > 1) {
                    turn.roll_back().await?;
                    return Err(StoreError::refused(format!(
                        "the server at {} was used alone, tickets were drawn from {table}: it can become {stripe} by \
                         resizing only",
                        self.database.at()
                    )));
                }
            }
            self.write_numbering(&mut turn, wanted).await?;
        } else if recorded != wanted {
            turn.roll_back().await?;
            let (at, recorded) = (self.database.at(), recorded.describe());
            return Err(StoreError::refused(format!(
                "the server at {at} is recorded as {recorded}, and was to be {stripe}"
            )));
        }
        turn.commit().await?;
        let joined = Self {
            database: self.database.clone(),
            room: Room::default(),
            joined: Some(*stripe),
            known: Mutex::default(),
            ..*self
        };
        Ok(JoinedStripe { store: Arc::new(joined), numbers: StripeNumbers::Counted })
    }

    async fn restripe(&self, expected: Option<&Stripe>, stripe: Option<&Stripe>) -> Result<(), StoreError> {
        let wanted = Numbering { stripe: stripe.copied() };
        let tables = self.tables("", u32::MAX).await?;
        let mut turn = self.database.begin("recording another stripe").await?;
        let recorded = self.locked_numbering(&mut turn).await?;
        let name = format!("the server at {}", self.database.at());
        if let Err(refused) = Stripe::check_change(&name, recorded.stripe.as_ref(), expected, stripe) {
            turn.roll_back().await?;
            return Err(refused);
        }
        // Each tag goes on behind as many tickets as before: as the n-th of this server, whatever their numbers are
        // then.
        for table in &tables {
            let Some(counter) = self.counter(&mut turn, table).await? else { continue };
            // One that has no such ticket is exhausted.
            let next = wanted.ticket(recorded.drawn(counter) + 1).unwrap_or(ID_MAX + 1);
            if next <= counter {
                continue;
            }
            if let Err(DEADLOCK | AUTO_INCREMENT_FAILED) = self.lift(&mut turn, table, next).await? {
                let what = format!("raising the counter of {table} lost against another transaction: try again");
                return Err(StoreError::unavailable(what));
            }
        }
        self.write_numbering(&mut turn, wanted).await?;
        turn.commit().await
    }

    async fn close(&self) {
        self.database.close().await;
    }
}

/// What every tag has.
fn options() -> TagOptions {
    TagOptions {
        start: 1,
        step: StepPolicy::Fixed { step: 1 },
        refill: RefillPolicy::Remaining { count: AHEAD },
        mode: Mode::Buffered,
    }
}

fn record(tag: &str, drawn: u64) -> TagRecord {
    TagRecord { tag: tag.to_owned(), options: options(), watermark: drawn, version: drawn }
}

fn retired(tag: &str) -> String {
    format!("{tag}{RETIRED}")
}

/// The error of a table that something else was meant by, or that was changed.
fn not_for_tickets(why: String) -> StoreError {
    StoreError::refused(format!(
        "{why}. It is not one to draw tickets from: these have the columns `id bigint unsigned auto_increment` and `stub \
         char(1)`, with a unique key over `stub`"
    ))
}

/// Whether a table's counter ends above all ids; else what it is.
fn check_id(columns: &Columns) -> Result<(), String> {
    let Column { kind, extra, .. } = columns.get("id").cloned().unwrap_or(Column::none());
    if is_ticket_id(&kind, &extra) { Ok(()) } else { Err(format!("{kind} {extra}")) }
}

/// Whether counters of this type end above all ids.
fn is_ticket_id(id_type: &str, extra: &str) -> bool {
    let id_type = id_type.to_ascii_lowercase();
    id_type.starts_with("bigint")
        && id_type.contains("unsigned")
        && extra.to_ascii_lowercase().contains("auto_increment")
}

/// Tags are names of tables.
fn validate(tag: &str) -> Result<(), StoreError> {
    validate_tag(tag)?;
    let (name, sub) = split_tag(tag);
    let invalid = |reason: String| Err(StoreError::TagInvalid { tag: name.to_owned(), reason });
    if let Some(sub) = sub {
        return invalid(format!("tickets have no sub-keys, and {sub:?} was given: use a tag for each"));
    }
    if name.len() > NAME_LEN_MAX || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return invalid(
            "tickets are drawn from a table of its name, which may have 1 to 64 of A-Z a-z 0-9 _".to_owned(),
        );
    }
    if name.to_ascii_lowercase().starts_with("unalike_") {
        return invalid("tables that begin with unalike_ are for other purposes".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stripe(index: u32, count: u32) -> Numbering {
        Numbering { stripe: Some(Stripe { set: 1, index, count }) }
    }

    #[test]
    fn tickets_and_their_ordinals_are_one_to_one() {
        for numbering in [Numbering::ALONE, stripe(0, 2), stripe(1, 2), stripe(4, 7)] {
            let steps = numbering.steps();
            for n in [1, 2, 3, 1_000, (ID_MAX - steps.offset) / steps.increment + 1] {
                let ticket = numbering.ticket(n).unwrap();
                assert_eq!(numbering.ordinal(ticket), Some(n), "{numbering:?}");
                // As stripes make ids of ordinals.
                assert_eq!(ticket, (n - 1) * steps.increment + steps.offset);
                assert_eq!((numbering.drawn(ticket), numbering.drawn(ticket + 1)), (n - 1, n));
            }
            assert_eq!(numbering.ticket((ID_MAX - steps.offset) / steps.increment + 2), None, "beyond 63 bits");
            assert_eq!((numbering.ticket(0), numbering.drawn(1)), (None, 0));
        }
        assert_eq!(stripe(1, 2).ordinal(3), None, "another server's");
        assert_eq!(stripe(1, 2).ordinal(1), None);
    }

    #[test]
    fn tags_are_plain_names_of_tables() {
        for tag in ["Tickets64", "a", "_", "9", &"x".repeat(64)] {
            assert!(validate(tag).is_ok(), "{tag}");
        }
        let sub = unalike_storage::sub_tag("order", "a").unwrap();
        for tag in ["", "a b", "a`b", "a.b", "a$b", "é", &"x".repeat(65), "unalike_store", "Unalike_x", &sub] {
            assert!(matches!(validate(tag), Err(StoreError::TagInvalid { .. })), "{tag}");
        }
    }

    #[test]
    fn only_counters_that_end_above_all_ids_are_used() {
        assert!(
            is_ticket_id("bigint(20) unsigned", "auto_increment") && is_ticket_id("bigint unsigned", "auto_increment")
        );
        for id_type in ["bigint(20)", "int(10) unsigned", "int unsigned", ""] {
            assert!(!is_ticket_id(id_type, "auto_increment"), "{id_type}");
        }
        assert!(!is_ticket_id("bigint unsigned", ""));
    }
}
