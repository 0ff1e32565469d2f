//! Where things are kept in ZooKeeper's tree, and how: the nodes' paths, and their data as JSON.
//!
//! Everything is read strictly: a node that somebody else wrote, or that was damaged, is an error and never a guess.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use unalike_storage::{GrantId, Lease, LeaseRecord, NamespaceBinding, StoreError, StoreIdentity, percent_decode};

use crate::error::damaged;

/// The paths below one root.
#[derive(Clone, Debug)]
pub(crate) struct Paths {
    /// Empty, or a path that begins with `/` and does not end with one.
    pub(crate) root: String,
    /// The same of Leaf's own.
    pub(crate) leaf_root: String,
}

impl Paths {
    /// The node whose modification time is the store's clock.
    pub(crate) fn clock(&self) -> String {
        format!("{}/unalike/clock", self.root)
    }

    /// The node with the name of all that is kept here.
    pub(crate) fn identity(&self) -> String {
        format!("{}/unalike/identity", self.root)
    }

    pub(crate) fn namespaces(&self) -> String {
        format!("{}/unalike/leases", self.root)
    }

    pub(crate) fn namespace(&self, namespace: &str) -> String {
        format!("{}/{}", self.namespaces(), encode(namespace))
    }

    pub(crate) fn worker(&self, namespace: &str, worker: u32) -> String {
        format!("{}/{worker}", self.namespace(namespace))
    }

    /// Where Leaf's nodes of this name are, one per worker.
    pub(crate) fn leaf_tree(&self, name: &str) -> String {
        format!("{}/snowflake/{name}/forever", self.leaf_root)
    }
}

/// A name as that of a node: letters, digits and underscores as they are, everything else as `%` and two digits, byte
/// by byte. There is no `/`, `.` or `-` in it.
pub(crate) fn encode(name: &str) -> String {
    let mut encoded = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || byte == b'_' {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// The name that a node's name encodes; none where this program would have written another one.
pub(crate) fn decode(encoded: &str) -> Option<String> {
    let name = percent_decode(encoded)?;
    (encode(&name) == encoded).then_some(name)
}

/// What the node with the store's name holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoreName {
    pub(crate) name: StoreIdentity,
    /// No lease of any namespace starts before this instant, in Unix milliseconds, and none that began before is
    /// extended: the store was restored, and may have forgotten leases. 0 where it never was.
    pub(crate) floor_ms: u64,
}

impl StoreName {
    /// The name, and behind a space the floor, if there is one: a version that knows of none refuses it.
    pub(crate) fn write(&self) -> Vec<u8> {
        let Self { name, floor_ms } = self;
        let text = if *floor_ms == 0 { name.to_string() } else { format!("{name} {floor_ms}") };
        text.into_bytes()
    }

    /// # Errors
    /// [`StoreError::Corrupt`].
    pub(crate) fn read(path: &str, data: &[u8]) -> Result<Self, StoreError> {
        let read = std::str::from_utf8(data).ok().and_then(|text| {
            let (name, floor_ms) = text.split_once(' ').unwrap_or((text, "0"));
            Some(Self { name: name.parse().ok()?, floor_ms: floor_ms.parse().ok()? })
        });
        // Nothing that this program would have written otherwise.
        let read = read.filter(|read| read.write() == data);
        read.ok_or_else(|| damaged(path, "it has no name of a store"))
    }
}

/// A tree of Leaf's that a namespace takes its workers from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LeafTree {
    /// Leaf's own name, which its tree is named by.
    pub(crate) name: String,
    /// The transaction that made the tree. Another one means that its sequence began again.
    pub(crate) made_by: i64,
    /// Leaf's last node has stopped.
    pub(crate) stopped: bool,
    /// All workers that nobody else has claimed are the namespace's. A version before this one did not write it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) opened: Option<Opened>,
}

/// All workers that nobody else has claimed are a namespace's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Opened {
    /// The transaction that made the namespace's node. In a copy of it, it is another one.
    pub(crate) made_by: i64,
    /// The workers that other namespaces have claimed, also those below other paths. They stay theirs.
    pub(crate) others: BTreeSet<u32>,
}

impl LeafTree {
    /// The workers of others, once all that are left may be taken.
    pub(crate) fn others(&self) -> Option<&BTreeSet<u32>> {
        self.opened.as_ref().map(|opened| &opened.others)
    }
}

/// What a namespace is bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Namespace {
    pub(crate) binding: NamespaceBinding,
    pub(crate) leaf: Option<LeafTree>,
}

/// What a namespace's node holds.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NamespaceJson {
    binding: BTreeMap<String, u64>,
    leaf: Option<LeafTree>,
}

impl Namespace {
    pub(crate) fn write(&self) -> Vec<u8> {
        let binding = self.binding.figures().map(|(name, figure)| (name.to_owned(), figure)).into();
        json(&NamespaceJson { binding, leaf: self.leaf.clone() })
    }

    /// Reads the data of a node that this transaction made.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`].
    pub(crate) fn read(path: &str, data: &[u8], made_by: i64) -> Result<Self, StoreError> {
        let NamespaceJson { binding: figures, mut leaf } = parse(path, data)?;
        if let Some(tree) = &mut leaf
            && tree.opened.as_ref().is_some_and(|opened| opened.made_by != made_by)
        {
            // A copy, to which nothing was opened.
            (tree.stopped, tree.opened) = (false, None);
        }
        let mut known = 0;
        let read = NamespaceBinding::read(|name| {
            known += 1;
            figures.get(name).copied().ok_or_else(|| damaged(path, &format!("it lacks {name}")))
        });
        let binding = read?.map_err(|reason| damaged(path, &reason))?;
        if known != figures.len() {
            return Err(damaged(path, "it has figures that this program does not know"));
        }
        Ok(Self { binding, leaf })
    }
}

/// A worker's newest lease. Its `valid_until_ms` is the greatest end recorded for the worker.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WorkerJson {
    version: u32,
    grant_id: String,
    holder: String,
    not_before_ms: u64,
    valid_until_ms: u64,
    acquired_ms: u64,
    is_final: bool,
}

const WORKER_VERSION: u32 = 1;

pub(crate) fn write_worker(record: &LeaseRecord) -> Vec<u8> {
    let LeaseRecord { lease, holder, acquired_ms, is_final } = record;
    json(&WorkerJson {
        version: WORKER_VERSION,
        grant_id: format!("{:032x}", lease.grant_id.0),
        holder: holder.clone(),
        not_before_ms: lease.not_before_ms,
        valid_until_ms: lease.valid_until_ms,
        acquired_ms: *acquired_ms,
        is_final: *is_final,
    })
}

/// # Errors
/// [`StoreError::Corrupt`].
pub(crate) fn read_worker(path: &str, worker: u32, data: &[u8]) -> Result<LeaseRecord, StoreError> {
    let json: WorkerJson = parse(path, data)?;
    if json.version != WORKER_VERSION {
        return Err(damaged(path, &format!("it has the version {}, and this program knows only 1", json.version)));
    }
    let has_digits = json.grant_id.len() == 32 && json.grant_id.bytes().all(|digit| digit.is_ascii_hexdigit());
    let grant_id = has_digits.then(|| u128::from_str_radix(&json.grant_id, 16).ok()).flatten();
    let grant_id = grant_id.ok_or_else(|| damaged(path, "its grant id has not 32 hexadecimal digits"))?;
    if json.not_before_ms > json.valid_until_ms {
        return Err(damaged(path, "its lease ends before it begins"));
    }
    let (not_before_ms, valid_until_ms) = (json.not_before_ms, json.valid_until_ms);
    let lease = Lease { worker, grant_id: GrantId(grant_id), not_before_ms, valid_until_ms };
    Ok(LeaseRecord { lease, holder: json.holder, acquired_ms: json.acquired_ms, is_final: json.is_final })
}

/// The worker that a node's name encodes; none where this program would have written another one.
pub(crate) fn read_worker_name(name: &str) -> Option<u32> {
    name.parse().ok().filter(|worker: &u32| worker.to_string() == name)
}

fn json(value: &impl Serialize) -> Vec<u8> {
    // Numbers, texts and flags always have a form in JSON.
    serde_json::to_vec(value).unwrap_or_default()
}

fn parse<'d, T: Deserialize<'d>>(path: &str, data: &'d [u8]) -> Result<T, StoreError> {
    serde_json::from_slice(data).map_err(|error| damaged(path, &format!("its data is not unalike's ({error})")))
}

#[cfg(test)]
mod tests {
    use unalike_storage::{Layout, LeaseLimits};

    use super::*;

    #[test]
    fn names_are_nodes_and_back() {
        for name in ["default", "a/b c%2F", ".", "..", "é", "😀", "a-b", "A_9", "zookeeper"] {
            let encoded = encode(name);
            assert!(encoded.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_%".contains(&byte)), "{encoded}");
            assert_eq!(decode(&encoded).as_deref(), Some(name));
        }
        for foreign in ["a-b", "%61", "%2f", "%2", "%", "%C3", "é", "%+1"] {
            assert_eq!(decode(foreign), None, "{foreign}");
        }
        assert_eq!(
            ["7", "0", "07", "+7", "-1", "", "4294967296"].map(read_worker_name),
            [Some(7), Some(0), None, None, None, None, None]
        );
    }

    #[test]
    fn nodes_keep_what_was_written() {
        let binding = NamespaceBinding::new(Layout::LEAF, LeaseLimits::default()).unwrap();
        let leaf = LeafTree { name: "orders".to_owned(), made_by: i64::MAX, stopped: false, opened: None };
        let others = [7, 1_023].into();
        let opened = LeafTree { stopped: true, opened: Some(Opened { made_by: 9, others }), ..leaf.clone() };
        let copy = Namespace { binding, leaf: Some(opened.clone()) }.write();
        assert_eq!(Namespace::read("/n", &copy, 10).unwrap().leaf, Some(leaf.clone()));
        for leaf in [None, Some(leaf), Some(opened)] {
            let namespace = Namespace { binding: NamespaceBinding { floor_ms: u64::MAX, ..binding }, leaf };
            assert_eq!(Namespace::read("/n", &namespace.write(), 9).unwrap(), namespace);
        }
        let lease =
            Lease { worker: 3, grant_id: GrantId(u128::MAX - 1), not_before_ms: 1 << 53, valid_until_ms: u64::MAX };
        let record = LeaseRecord { lease, holder: "\"\n".to_owned(), acquired_ms: (1 << 53) + 1, is_final: true };
        assert_eq!(read_worker("/n/3", 3, &write_worker(&record)).unwrap(), record);
    }

    #[test]
    fn the_name_of_a_store_is_kept_with_its_floor() {
        let name = StoreIdentity(0x5eed);
        for floor_ms in [0, 1, u64::MAX] {
            let named = StoreName { name, floor_ms };
            assert_eq!(StoreName::read("/i", &named.write()).unwrap(), named);
        }
        // As versions wrote it that knew of no floor; they take nothing else for a name.
        assert_eq!(StoreName { name, floor_ms: 0 }.write(), name.to_string().into_bytes());
        for bad in
            ["", " ", "5eed", "{name}x", "{name} ", "{name} 0", "{name} 07", "{name} +7", "{name} 7 ", "{name}  7"]
        {
            let bad = bad.replace("{name}", &name.to_string());
            let read = StoreName::read("/i", bad.as_bytes());
            assert!(matches!(read, Err(StoreError::Corrupt { .. })), "{bad:?}: {read:?}");
        }
        assert!(StoreName::read("/i", &[0xff; 32]).is_err());
    }

    #[test]
    fn damaged_nodes_are_refused() {
        let lease = Lease { worker: 3, grant_id: GrantId(1), not_before_ms: 100, valid_until_ms: 200 };
        let record = LeaseRecord { lease, holder: "a".to_owned(), acquired_ms: 100, is_final: false };
        let good = String::from_utf8(write_worker(&record)).unwrap();
        for (what, by) in [
            ("\"version\":1", "\"version\":2"),
            ("\"not_before_ms\":100", "\"not_before_ms\":201"),
            ("\"not_before_ms\":100", "\"not_before_ms\":100.0"),
            ("\"valid_until_ms\":200", "\"valid_until_ms\":-1"),
            ("\"valid_until_ms\":200", "\"valid_until_ms\":18446744073709551616"),
            ("00001\"", "0001\""),
            ("\"00", "\"+0"),
            ("\"is_final\":false", "\"is_final\":false,\"more\":1"),
            ("\"holder\":\"a\",", ""),
            ("}", ""),
        ] {
            let bad = good.replacen(what, by, 1);
            assert_ne!(bad, good);
            let read = read_worker("/n/3", 3, bad.as_bytes());
            assert!(matches!(read, Err(StoreError::Corrupt { .. })), "{bad}: {read:?}");
        }
        let binding = NamespaceBinding::new(Layout::LEAF, LeaseLimits::default()).unwrap();
        let good = String::from_utf8(Namespace { binding, leaf: None }.write()).unwrap();
        for (what, by) in [
            ("\"epoch_ms\":", "\"epoch\":"),
            ("\"epoch_ms\":", "\"more\":1,\"epoch_ms\":"),
            ("\"version\":1", "\"version\":2"),
            ("\"leaf\":null", "\"leaf\":{}"),
            ("{", ""),
        ] {
            let bad = good.replacen(what, by, 1);
            assert_ne!(bad, good);
            let read = Namespace::read("/n", bad.as_bytes(), 9);
            assert!(matches!(read, Err(StoreError::Corrupt { .. })), "{bad}: {read:?}");
        }
    }
}
