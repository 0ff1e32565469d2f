//! What the key `PREFIX/store` says: which cluster this store is in, what became of it, and its place among stripes.
//!
//! Each write states as its condition that this key is as the program knows it. So whatever changes here (an adoption,
//! another stripe) holds from then on for every program, in the same instant.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};
use unalike_storage::{StoreError, StoreIdentity, Stripe, random_128};

use crate::wire::KeyValue;

/// The version of what this program writes.
const VERSION: u32 = 2;

/// The versions that this program reads. Version 1 has neither [`History::created`] nor [`Record::writes`], and its
/// tags, namespaces and workers have no count of writes.
const READ: RangeInclusive<u32> = 1..=VERSION;

/// The record of a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Record {
    pub(crate) version: u32,
    /// Random, and another one after each adoption: a program that knows another one is granted nothing.
    #[serde(with = "hex")]
    pub(crate) mark: u128,
    /// The random name of the data.
    #[serde(with = "hex")]
    pub(crate) identity: u128,
    /// The cluster; none where the operator vouches for whichever there is.
    pub(crate) cluster: Option<History>,
    /// What each adoption lifted, the oldest first. A row says how many it has seen.
    pub(crate) lifts: Vec<Lift>,
    /// The revision of the last adoption, or a later one. None without an adoption, and until the first write after it.
    #[serde(default)]
    pub(crate) adopted: Option<i64>,
    /// The place among stripes.
    pub(crate) stripe: Option<StripeJson>,
    /// Of leases: the greatest horizon that a program ever allowed, in milliseconds.
    pub(crate) max_horizon_ms: u64,
    /// Of leases: none begins before, in Unix milliseconds.
    pub(crate) floor_ms: u64,
    /// How often the key was written by then, as etcd counts: a copy was written less often. 0 in version 1.
    #[serde(default)]
    pub(crate) writes: i64,
}

/// A cluster, and how much of its history there must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct History {
    /// Made from the names and addresses of its first members: a cluster that is restored with the same has the same.
    #[serde(with = "hex")]
    pub(crate) id: u128,
    /// How far the index of its log is ahead of its revision, at least: see [`lead`].
    pub(crate) lead: i64,
    /// The revision that created the record's key: no copy of the key has the same. None until the first program that
    /// opens the store notes it.
    #[serde(default)]
    pub(crate) created: Option<i64>,
}

/// What an adoption lifted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Lift {
    /// Every tag, and the floor of new names.
    pub(crate) numbers: u64,
    /// Time that is granted to clocks, in milliseconds.
    pub(crate) kept_ms: u64,
    /// Time that is granted to leases continues above, in Unix milliseconds.
    pub(crate) kept_until_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StripeJson {
    #[serde(with = "hex")]
    set: u128,
    index: u32,
    count: u32,
}

/// How far the index of a cluster's log is ahead of the store's revision.
///
/// Each entry of the log raises the revision by one at most, and some do not: elections, members, transactions whose
/// condition does not hold. So in one history this never falls. A cluster that is restored from a snapshot begins its
/// log anew and keeps the revision of the snapshot: there it is far lower, as a rule below 0.
#[must_use]
pub(crate) fn lead(index: u64, revision: i64) -> i64 {
    i64::try_from(index).unwrap_or(i64::MAX).saturating_sub(revision)
}

/// Whether a value that records so many writes of its key is not the one that was written last. One of version 1
/// records none.
fn was_put_back(writes: i64, kv: &KeyValue) -> bool {
    ![0, kv.version].contains(&writes)
}

/// In words, how often that is.
fn times(count: i64) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}

impl Record {
    /// That of a store that is begun.
    pub(crate) fn new(cluster: Option<History>) -> Result<Self, StoreError> {
        Ok(Self {
            version: VERSION,
            mark: random_128()?,
            identity: random_128()?,
            cluster,
            lifts: Vec::new(),
            adopted: None,
            stripe: None,
            max_horizon_ms: 0,
            floor_ms: 0,
            writes: 0,
        })
    }

    /// Reads the key's value.
    ///
    /// # Errors
    /// In words, what is wrong with it.
    pub(crate) fn read(value: &[u8]) -> Result<Self, String> {
        /// Said first: of a later version nothing else is known.
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        let unreadable = |error: serde_json::Error| format!("is not unalike's ({error})");
        let Versioned { version } = serde_json::from_slice(value).map_err(unreadable)?;
        if !READ.contains(&version) {
            return Err(format!(
                "has the version {version}, and this program reads {} to {VERSION}: upgrade the program",
                READ.start()
            ));
        }
        let record: Self = serde_json::from_slice(value).map_err(unreadable)?;
        if let Some(stripe) = record.place()
            && let Err(error) = stripe.validate_record()
        {
            return Err(format!("has a stripe that is not valid ({error})"));
        }
        Ok(record)
    }

    /// The key's value once it is written over what was read.
    pub(crate) fn write(&self) -> Vec<u8> {
        // Numbers and texts always have a form in JSON.
        serde_json::to_vec(&self.written()).unwrap_or_default()
    }

    /// The record as it is then.
    pub(crate) fn written(&self) -> Self {
        Self { version: VERSION, writes: self.writes.saturating_add(1), ..self.clone() }
    }

    /// In words, what etcd says otherwise of the key than its value does; none if they agree.
    pub(crate) fn differs_from(&self, kv: &KeyValue) -> Option<String> {
        let created = self.cluster.and_then(|cluster| cluster.created);
        if let Some(created) = created.filter(|created| *created != kv.create_revision) {
            return Some(format!("created in the revision {}, and records {created}", kv.create_revision));
        }
        was_put_back(self.writes, kv).then(|| format!("written {}, and records {}", times(kv.version), self.writes))
    }

    /// The adoptions that another key's value has not seen, which saw so many of them, and records so many writes.
    ///
    /// # Errors
    /// In words, that it knows of adoptions that the store does not, or is not the one that was written last.
    pub(crate) fn unseen_lifts(&self, seen: usize, writes: i64, kv: &KeyValue) -> Result<&[Lift], String> {
        let unseen = self.lifts.get(seen..).ok_or("has seen adoptions that the store knows nothing of")?;
        // An adoption lifts above whatever was put back before, and whatever is written after it has seen it.
        let is_old = match unseen {
            [] => was_put_back(writes, kv),
            // Leases of version 1 do not say what they have seen.
            _ => writes != 0 && self.adopted.is_some_and(|revision| kv.mod_revision > revision),
        };
        if is_old {
            return Err(format!(
                "has a value of its write {writes}, and was written {}: an old value was put back, or something else than unalike \
                 writes there. Ids would repeat: run `unalike store adopt --lift COUNT`, where COUNT exceeds what was granted under \
                 any tag since that write",
                times(kv.version)
            ));
        }
        Ok(unseen)
    }

    /// The same, to be written over what was read.
    pub(crate) fn read_from(self, kv: &KeyValue) -> Self {
        let adopted = self.adopted.or((!self.lifts.is_empty()).then_some(kv.mod_revision));
        Self { writes: kv.version, adopted, ..self }
    }

    /// Whether a program of before wrote it last.
    pub(crate) const fn is_of_earlier_version(&self) -> bool {
        self.version < VERSION
    }

    pub(crate) const fn name(&self) -> StoreIdentity {
        StoreIdentity(self.identity)
    }

    pub(crate) fn place(&self) -> Option<Stripe> {
        self.stripe.map(|StripeJson { set, index, count }| Stripe { set, index, count })
    }

    /// The same in another place.
    pub(crate) fn in_place(&self, stripe: Option<&Stripe>) -> Self {
        let stripe = stripe.map(|&Stripe { set, index, count }| StripeJson { set, index, count });
        Self { stripe, ..self.clone() }
    }

    /// The same after an adoption, of this cluster.
    pub(crate) fn adopted(&self, cluster: Option<History>, lift: Lift, floor_ms: u64) -> Result<Self, StoreError> {
        let floor_ms = self.floor_ms.max(floor_ms);
        let mut record = Self { mark: random_128()?, cluster, floor_ms, adopted: None, ..self.clone() };
        record.lifts.push(lift);
        Ok(record)
    }
}

/// 128 bits, and the 64 of a cluster's id, as hexadecimal digits: JSON's readers make doubles of great numbers.
mod hex {
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(number: &u128, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{number:032x}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u128, D::Error> {
        let text = String::deserialize(deserializer)?;
        let has_digits = text.len() == 32 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
        let number = has_digits.then(|| u128::from_str_radix(&text, 16).ok()).flatten();
        number.ok_or_else(|| D::Error::custom("a name has 32 hexadecimal digits"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written_and_nothing_else_is() {
        let cluster = Some(History { id: u64::MAX.into(), lead: -7, created: Some(9) });
        let lift = Lift { numbers: u64::MAX, kept_ms: 1, kept_until_ms: 2 };
        let stripe = Stripe { set: 7, index: 1, count: 3 };
        let begun = Record::new(cluster).unwrap();
        for record in [begun.clone(), begun.in_place(Some(&stripe)), begun.adopted(None, lift, 5).unwrap()] {
            assert_eq!(Record::read(&record.write()), Ok(Record { writes: 1, ..record }));
        }
        let text = String::from_utf8(begun.write()).unwrap();
        assert!(
            Record::read(text.replace("\"version\":2", "\"version\":3").as_bytes()).unwrap_err().contains("upgrade")
        );
        let earlier = [("\"version\":2", "\"version\":1"), (",\"created\":9", ""), (",\"writes\":1", "")];
        let earlier = earlier.iter().fold(text.clone(), |text, (from, to)| text.replace(from, to));
        let cluster = cluster.map(|cluster| History { created: None, ..cluster });
        let read = Record::read(earlier.as_bytes()).unwrap();
        assert_eq!(read, Record { version: 1, cluster, writes: 0, ..begun.clone() });
        assert!(read.is_of_earlier_version() && !read.written().is_of_earlier_version());
        // Who reads it after an adoption knows that one's revision, until the next adoption.
        let kv = |mod_revision| KeyValue { mod_revision, version: 1, ..KeyValue::default() };
        let adopted = begun.adopted(None, lift, 5).unwrap().read_from(&kv(20));
        assert_eq!((begun.clone().read_from(&kv(7)).adopted, adopted.adopted), (None, Some(20)));
        assert_eq!(adopted.clone().read_from(&kv(30)).adopted, Some(20));
        assert_eq!(adopted.adopted(None, lift, 5).unwrap().adopted, None);
        let copied = Record { writes: 5, ..begun.clone() }.differs_from(&KeyValue { create_revision: 9, ..kv(20) });
        assert_eq!(copied.as_deref(), Some("written once, and records 5"));
        for damaged in ["{}".to_owned(), String::new(), text.replace("mark", "mask"), text.replace("-7", "-7.5")] {
            assert!(Record::read(damaged.as_bytes()).is_err(), "{damaged}");
        }
    }
}
