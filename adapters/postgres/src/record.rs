//! What `unalike_store` says of the server of one of its parts.

use std::fmt;

use unalike_storage::{StoreError, random_128};

/// A record: `mark MARK system_identifier NUMBER timeline NUMBER database OID table OID [synchronous]`, or
/// `mark MARK assumed`.
///
/// The mark is random, and another one after each adoption: rows of `unalike_tag` have it too, so that what was written
/// by or for another store is granted by nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) mark: u128,
    /// None where the operator vouches for whichever server there is.
    pub(crate) server: Option<ServerIdentity>,
    /// Each grant waited until a synchronous standby had it, so one that takes over lacks none.
    pub(crate) is_synchronous: bool,
}

/// Which history of which data a server has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ServerIdentity {
    /// Made with the data, and the same on all standbys.
    pub(crate) system: i64,
    /// Another one each time a standby is promoted.
    pub(crate) timeline: u32,
    /// Which database of the server: a copy of it within the server is another one, also in its place.
    pub(crate) database: i64,
    /// Which table `unalike_store` of the database: one that was restored is another one, also in its place.
    pub(crate) table: i64,
}

impl ServerIdentity {
    /// Whether this is the same data as an earlier one, on its timeline or a later one.
    pub(crate) fn continues(&self, earlier: &Self) -> bool {
        self.timeline >= earlier.timeline && Self { timeline: earlier.timeline, ..*self } == *earlier
    }

    /// Whether that is the same server, with a table that was made anew: by a dump that was loaded, or as a copy. A
    /// part of the store that waits until it is adopted has recorded no table.
    pub(crate) fn is_restored_as(&self, found: &Self) -> bool {
        let is_another = (self.database, self.table) != (found.database, found.table);
        self.system == found.system && self.table != 0 && is_another
    }
}

impl Record {
    pub(crate) fn new(server: Option<ServerIdentity>, is_synchronous: bool) -> Result<Self, StoreError> {
        Ok(Self { mark: random_128()?.max(1), server, is_synchronous: is_synchronous && server.is_some() })
    }

    /// None for a text that is no record.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let mut value_of = |name: &str| words.next().filter(|word| *word == name).and_then(|_| words.next());
        let mark = u128::from_str_radix(value_of("mark")?, 16).ok()?;
        if text.ends_with(" assumed") {
            return Some(Self { mark, server: None, is_synchronous: false });
        }
        let system = value_of("system_identifier")?.parse::<u64>().ok()?.cast_signed();
        let timeline = value_of("timeline")?.parse().ok()?;
        let database = value_of("database")?.parse().ok()?;
        let table = value_of("table")?.parse().ok()?;
        let is_synchronous = words.next() == Some("synchronous");
        Some(Self { mark, server: Some(ServerIdentity { system, timeline, database, table }), is_synchronous })
    }

    /// What a row of `unalike_tag` says, in a place among stripes of this set, or in a store that stands alone.
    pub(crate) fn row_mark(&self, stripe_set: u128) -> Vec<u8> {
        (self.mark ^ stripe_set).to_be_bytes().to_vec()
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mark {:032x} ", self.mark)?;
        match &self.server {
            None => f.write_str("assumed"),
            Some(server) => write!(f, "{server}{}", if self.is_synchronous { " synchronous" } else { "" }),
        }
    }
}

impl fmt::Display for ServerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { system, timeline, database, table } = self;
        let system = system.cast_unsigned();
        write!(f, "system_identifier {system} timeline {timeline} database {database} table {table}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written_and_nothing_else_is() {
        let server = Some(ServerIdentity {
            system: 7_711_766_651_233_437_542,
            timeline: 3,
            database: 16_384,
            table: i64::from(u32::MAX),
        });
        for record in [
            Record { mark: 7, server, is_synchronous: false },
            Record { mark: u128::MAX, server, is_synchronous: true },
            Record { mark: 1, server: None, is_synchronous: false },
        ] {
            assert_eq!(Record::read(&record.to_string()), Some(record));
        }
        let short = "mark 7 system_identifier 1 timeline 1";
        for text in ["", "mark", "mark x assumed", "mark 7", "mark 7 system_identifier 1", "mark 7 timeline 1", short] {
            assert_eq!(Record::read(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_later_timeline_continues_the_same_data_alone() {
        let server = ServerIdentity { system: 1, timeline: 3, database: 5, table: 7 };
        assert!(server.continues(&server));
        assert!(ServerIdentity { timeline: 4, ..server }.continues(&server));
        for other in [
            ServerIdentity { timeline: 2, ..server },
            ServerIdentity { system: 2, timeline: 4, ..server },
            ServerIdentity { database: 6, timeline: 4, ..server },
            ServerIdentity { table: 8, timeline: 4, ..server },
        ] {
            assert!(!other.continues(&server), "{other}");
        }
    }

    #[test]
    fn another_table_on_the_same_server_was_restored() {
        let server = ServerIdentity { system: 1, timeline: 3, database: 5, table: 7 };
        for restored in [ServerIdentity { database: 6, ..server }, ServerIdentity { table: 8, timeline: 4, ..server }] {
            assert!(server.is_restored_as(&restored), "{restored}");
        }
        for other in
            [server, ServerIdentity { timeline: 4, ..server }, ServerIdentity { system: 2, table: 8, ..server }]
        {
            assert!(!server.is_restored_as(&other), "{other}");
        }
        assert!(!ServerIdentity { table: 0, ..server }.is_restored_as(&server), "it waits until it is adopted");
    }
}
