//! What `unalike_store` says of its server, and for whom.
//!
//! A database may hold the tables of several dialects. A server that takes over is adopted by one of them at a time, so
//! the record then names those whose tables were lifted, each with the sum of all its lifts: names that are created in
//! tables that have no place for a [floor](unalike_storage::KEPT_FLOOR) begin above that. A record that was never
//! adopted names none, and is valid for all.

use std::collections::BTreeMap;
use std::fmt;

/// The greatest length of a record: what the column holds.
const LENGTH_MAX: usize = 512;

/// What lies between the server and the dialects.
const LIFTED: &str = " lifted ";

/// Between the dialects and the era.
const ERA: &str = " era ";

/// A record: `SERVER`, `SERVER era ..` or `SERVER lifted leaf=1000,-cosid=50 era ..`. A minus says that the tables were
/// lifted for a server before this one, and not for this one yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    server: String,
    /// By dialect: by how much its tables were lifted in sum, and whether for this server too. None in a record that
    /// was never adopted.
    lifted: BTreeMap<String, (u64, bool)>,
    era: Era,
}

/// What marks the rows of `unalike_tag` that were written since the store was made, or its tables were lifted for a
/// server. A row without it was written by the server before, and came by replication. All zeros in a store of a
/// program that marked none, until its tables are lifted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Era {
    /// A random number, in each row.
    pub(crate) mark: u128,
    /// The greatest watermark of a tag when the era began.
    pub(crate) reached: u64,
}

impl Era {
    fn read(text: &str) -> Option<Self> {
        let (mark, reached) = text.split_once(' ')?;
        Some(Self { mark: u128::from_str_radix(mark, 16).ok()?, reached: reached.parse().ok()? })
    }
}

impl Record {
    /// Of a new store on this server, whose rows have this mark.
    pub(crate) fn born(server: &str, mark: u128) -> Self {
        Self { server: server.to_owned(), lifted: BTreeMap::new(), era: Era { mark, reached: 0 } }
    }

    pub(crate) fn read(text: &str) -> Self {
        let born = || {
            let (server, era) = text.rsplit_once(ERA)?;
            Some(Self { server: server.to_owned(), lifted: BTreeMap::new(), era: Era::read(era)? })
        };
        let lifted = |(server, list): (&str, &str)| {
            let (list, era) = list.split_once(ERA).map_or((list, None), |(list, era)| (list, Some(era)));
            let entry = |entry: &str| {
                let (name, sum) = entry.split_once('=')?;
                let (name, is_here) = name.strip_prefix('-').map_or((name, true), |name| (name, false));
                Some((name.to_owned(), (sum.parse().ok()?, is_here)))
            };
            let lifted = list.split(',').map(entry).collect::<Option<_>>()?;
            let era = era.map_or(Some(Era::default()), Era::read)?;
            Some(Self { server: server.to_owned(), lifted, era })
        };
        let read = text.rsplit_once(LIFTED).and_then(lifted).or_else(born);
        // What cannot be read is no server that there is.
        read.unwrap_or_else(|| Self { server: text.to_owned(), lifted: BTreeMap::new(), era: Era::default() })
    }

    /// The server.
    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    /// By how much the dialect's tables were lifted in sum.
    pub(crate) fn lifted(&self, dialect: &str) -> u64 {
        self.lifted.get(dialect).map_or(0, |(sum, _)| *sum)
    }

    /// The era of `unalike_tag`.
    pub(crate) fn era(&self) -> Era {
        self.era
    }

    /// The record with another era.
    pub(crate) fn of_era(self, era: Era) -> Self {
        Self { era, ..self }
    }

    /// Whether the server took over from another one.
    pub(crate) fn was_adopted(&self) -> bool {
        !self.lifted.is_empty()
    }

    /// Whether the dialect's tables go on above what the servers before may have granted.
    pub(crate) fn is_valid_for(&self, dialect: &str) -> bool {
        self.lifted.is_empty() || self.lifted.get(dialect).is_some_and(|(_, is_here)| *is_here)
    }

    /// The record after the dialect's tables were lifted by so much, for this server. If the data are older than what
    /// was lifted before, the tables of the others are not lifted for it any more.
    pub(crate) fn adopted(&self, server: &str, dialect: &str, lift: u64, is_older: bool) -> Self {
        let mut lifted = self.lifted.clone();
        if server != self.server || is_older {
            lifted.values_mut().for_each(|(_, is_here)| *is_here = false);
        }
        lifted.insert(dialect.to_owned(), (self.lifted(dialect).saturating_add(lift), true));
        Self { server: server.to_owned(), lifted, era: self.era }
    }

    /// Whether it fits the column.
    pub(crate) fn fits(&self) -> bool {
        self.to_string().chars().count() <= LENGTH_MAX
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.server)?;
        let mut before = LIFTED;
        for (dialect, (sum, is_here)) in &self.lifted {
            let minus = if *is_here { "" } else { "-" };
            write!(f, "{before}{minus}{dialect}={sum}")?;
            before = ",";
        }
        let Era { mark, reached } = self.era;
        if mark == 0 { Ok(()) } else { write!(f, "{ERA}{mark:032x} {reached}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_was_never_adopted_is_valid_for_all() {
        for text in ["server_uuid 3e11fa47", "mark 07 server_id 1 gtid_domain_id 0 gtid_slave_pos none", "assumed", ""]
        {
            let record = Record::read(text);
            assert_eq!((record.server(), record.to_string().as_str()), (text, text));
            assert!(record.is_valid_for("leaf") && record.lifted("leaf") == 0);
        }
        let eras =
            ["x lifted leaf=1 era ", "x lifted leaf=1 era 7", "x lifted leaf=1 era x 7", "x lifted leaf=1 era 7 -1"];
        for unreadable in ["x lifted ", "x lifted leaf", "x lifted leaf=-1", "x lifted leaf=1,"].into_iter().chain(eras)
        {
            assert_eq!(Record::read(unreadable).server(), unreadable);
        }
    }

    #[test]
    fn each_dialect_is_adopted_by_itself_and_its_lifts_are_summed() {
        let first = Record::read("a").adopted("b", "leaf", 1_000, false);
        assert_eq!(first.to_string(), "b lifted leaf=1000");
        assert!(first.is_valid_for("leaf") && !first.is_valid_for("unalike"));
        let both = Record::read(&first.to_string()).adopted("b", "unalike", 5, false);
        assert_eq!(both.to_string(), "b lifted leaf=1000,unalike=5");
        let next = both.adopted("c", "unalike", 7, false);
        assert_eq!(next.to_string(), "c lifted -leaf=1000,unalike=12");
        assert!(!next.is_valid_for("leaf") && next.lifted("leaf") == 1_000);
        assert_eq!(next.adopted("c", "leaf", 1, false), Record::read("c lifted leaf=1001,unalike=12"));
        assert_eq!(next.adopted("c", "leaf", 1, true).to_string(), "c lifted leaf=1001,-unalike=12");
        assert_eq!(next.adopted("c", "unalike", u64::MAX, false).lifted("unalike"), u64::MAX);
    }

    #[test]
    fn the_era_stays_while_other_dialects_are_adopted() {
        let era = Era { mark: 7, reached: 201_000 };
        let record = Record::read("a").adopted("b", "unalike", 5, false).of_era(era);
        assert_eq!(record.to_string(), "b lifted unalike=5 era 00000000000000000000000000000007 201000");
        assert_eq!(Record::read(&record.to_string()), record);
        let later = record.adopted("b", "leaf", 9, false).adopted("c", "leaf", 1, false);
        assert_eq!((later.era(), Record::read(&later.to_string()).era()), (era, era));
    }

    #[test]
    fn a_new_store_has_an_era_from_its_beginning() {
        let born = Record::born("server_uuid 3e11fa47", 7);
        assert_eq!(born.to_string(), "server_uuid 3e11fa47 era 00000000000000000000000000000007 0");
        let read = Record::read(&born.to_string());
        assert_eq!((read.clone(), read.was_adopted(), read.is_valid_for("leaf")), (born, false, true));
        for text in ["a era ", "a era 7", "a era x 7", "a era 7 -1"] {
            assert_eq!((Record::read(text).server(), Record::read(text).era()), (text, Era::default()));
        }
    }

    #[test]
    fn the_column_holds_the_longest() {
        let server = format!(
            "mark {:032x} server_id {n} gtid_domain_id {n} gtid_slave_pos {n}-{n}-{}",
            7,
            u64::MAX,
            n = u32::MAX
        );
        let names = "unalike,leaf,tinyid,cosid,sequence-table,id-generator,batch,slow-ordered,ticket";
        let all =
            names.split(',').fold(Record::read("before"), |record, name| record.adopted("x", name, u64::MAX, false));
        let all = all.of_era(Era { mark: u128::MAX, reached: u64::MAX });
        assert!(Record { server, ..all }.adopted("y", "leaf", 1, false).fits());
    }
}
