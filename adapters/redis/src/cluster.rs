//! A Redis Cluster: which of its nodes has a key, and where a request goes when that changes.
//!
//! A request is sent again only where a node says that it did not carry it out: it sent the request to another node
//! (`MOVED`, `ASK`), asked for another try (`TRYAGAIN`), or serves nothing just now (`CLUSTERDOWN`); and where nothing
//! was sent at all. Whatever else comes of it is the caller's: a lost answer is never asked for twice.
//!
//! All nodes are asked at once who has which slot, and the newest answer of those that see the whole Cluster counts. A
//! node that is cut off and behind costs a detour and no number: one server's numbers are never another one's.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use redis::{ErrorKind, RedisError, ServerErrorKind, Value};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use unalike_storage::{Process, StoreError};

use crate::ask_all::{Worth, hear};
use crate::error::read_error;
use crate::node::{Demands, Failure, Node, Request, field};
use crate::place::{Clients, Place};

/// Into how many slots the keys of a Cluster fall.
const SLOTS: u16 = 16_384;

/// A request that cannot be carried out just now is sent again so soon.
const TRY_AGAIN: Duration = Duration::from_millis(20);

/// One that is sent from node to node so many times in a row goes slower from then on.
const HOPS: u32 = 5;

/// The nodes of one Cluster; clones share their connections.
#[derive(Clone)]
pub(crate) struct Cluster(Arc<Inner>);

struct Inner {
    /// Where it can be asked for first.
    places: Vec<Place>,
    address: String,
    clients: Clients,
    demands: Demands,
    process: Process,
    map: RwLock<Map>,
    /// One request at a time asks who has which slot.
    asking: tokio::sync::Mutex<()>,
}

/// What is known of the Cluster.
#[derive(Default)]
struct Map {
    /// How often all was read anew.
    version: u64,
    /// Something went wrong since: it is read anew before it is used.
    is_stale: bool,
    is_closed: bool,
    /// The master of each slot, where it is known.
    owners: HashMap<u16, Place>,
    nodes: HashMap<Place, Node>,
}

/// Which slots belong to which master, as one node sees it.
struct Layout {
    /// The greatest epoch that the node has heard of.
    epoch: u64,
    /// It sees enough of the Cluster to serve requests.
    is_whole: bool,
    slots: Vec<(u16, u16, Place)>,
}

/// What becomes of a request that has no answer yet.
enum Next {
    /// It goes to this node, although the slot is only on its way there.
    Ask(Place),
    /// It goes to the slot's master, which is known better now.
    Again,
    /// The same after a while, when all was asked for anew.
    Later,
    /// Nothing.
    End,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("address", &self.0.address).finish_non_exhaustive()
    }
}

impl Cluster {
    pub(crate) fn new(places: Vec<Place>, address: String, clients: Clients, mut demands: Demands) -> Self {
        // A node that does not answer leaves time for those that took its slots over.
        demands.connect_timeout /= 2;
        let (process, map) = (Process::current(), RwLock::default());
        Self(Arc::new(Inner { places, address, clients, demands, process, map, asking: tokio::sync::Mutex::default() }))
    }

    /// All masters that have slots.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when no node tells, [`StoreError::Refused`] when the nodes cannot be used.
    pub(crate) async fn masters(&self) -> Result<BTreeSet<Place>, StoreError> {
        self.check_process()?;
        let version = self.read().version;
        self.read_anew(version).await?;
        Ok(self.read().owners.values().cloned().collect())
    }

    /// Sends a request to the master that has a key.
    ///
    /// # Errors
    /// [`Failure`]; nothing was carried out where nothing was sent.
    pub(crate) async fn send(&self, key: &str, request: Request<'_>) -> Result<Value, Failure> {
        self.check_process().map_err(Failure::Unsent)?;
        let slot = slot(key.as_bytes());
        let deadline = Instant::now() + 2 * self.0.demands.connect_timeout;
        let (mut asked, mut hops) = (None, 0);
        loop {
            let (version, owner) = self.owner(slot).await.map_err(Failure::Unsent)?;
            let (asks, place) = match asked.take() {
                Some(place) => (true, Some(place)),
                None => (false, owner),
            };
            let answer = match &place {
                Some(place) => self.node(place).map_err(Failure::Unsent)?.send(request, asks).await,
                None => Err(Failure::Unsent(self.unserved(slot))),
            };
            let failure = match answer {
                Ok(value) => return Ok(value),
                Err(failure) => failure,
            };
            hops += 1;
            let next = self.next(&failure, slot, place.as_ref());
            let is_late = Instant::now() + TRY_AGAIN >= deadline;
            match next {
                Next::End => return Err(failure),
                _ if is_late => return Err(self.given_up(failure)),
                Next::Ask(place) => asked = Some(place),
                Next::Again if hops < HOPS => {}
                Next::Again | Next::Later => {
                    tokio::time::sleep(TRY_AGAIN).await;
                    // What it fails with says less than the request.
                    let _ = self.read_anew(version).await;
                }
            }
        }
    }

    /// Sends a request to this master.
    ///
    /// # Errors
    /// [`Failure`].
    pub(crate) async fn send_to(&self, place: &Place, request: Request<'_>) -> Result<Value, Failure> {
        self.check_process().map_err(Failure::Unsent)?;
        let answer = self.node(place).map_err(Failure::Unsent)?.send(request, false).await;
        if answer.is_err() {
            self.write().is_stale = true;
        }
        answer
    }

    /// Closes all connections, when the requests that use them have ended; others fail from now on.
    pub(crate) async fn close(&self) {
        if !self.0.process.is_current() {
            return;
        }
        let nodes = {
            let mut map = self.write();
            map.is_closed = true;
            std::mem::take(&mut map.nodes)
        };
        for node in nodes.into_values() {
            node.close().await;
        }
    }

    /// Refuses a child.
    pub(crate) fn check_process(&self) -> Result<(), StoreError> {
        self.0.process.check(&format!("the store at {}", self.0.address))
    }

    /// What becomes of a request to the master of this slot, or another node, after a failure.
    fn next(&self, failure: &Failure, slot: u16, place: Option<&Place>) -> Next {
        let error = match failure {
            Failure::Unsent(error) if error.is_retryable() => return Next::Later,
            Failure::Unsent(_) | Failure::Done(_) => return Next::End,
            Failure::Answer(error) => error,
        };
        match error.kind() {
            ErrorKind::Server(ServerErrorKind::Moved) => match redirected(error, place) {
                Some(owner) => {
                    self.write().owners.insert(slot, owner);
                    Next::Again
                }
                None => Next::Later,
            },
            ErrorKind::Server(ServerErrorKind::Ask) => redirected(error, place).map_or(Next::Later, Next::Ask),
            ErrorKind::Server(ServerErrorKind::TryAgain | ServerErrorKind::ClusterDown) => Next::Later,
            // It has become a replica; or what became of the request is not known.
            ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown) => {
                self.write().is_stale = true;
                Next::End
            }
            ErrorKind::Server(_) | ErrorKind::Extension => Next::End,
            _ => {
                self.write().is_stale = true;
                Next::End
            }
        }
    }

    /// The error of a request that no node carried out in time.
    fn given_up(&self, failure: Failure) -> Failure {
        match failure {
            Failure::Answer(error) => {
                let what = format!("no node of the Cluster at {} carries the request out just now", self.0.address);
                Failure::Unsent(StoreError::unavailable(what).with_source(error))
            }
            failure @ (Failure::Unsent(_) | Failure::Done(_)) => failure,
        }
    }

    fn unserved(&self, slot: u16) -> StoreError {
        StoreError::unavailable(format!("no node of the Cluster at {} has the slot {slot}", self.0.address))
    }

    fn read(&self) -> RwLockReadGuard<'_, Map> {
        self.0.map.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Map> {
        self.0.map.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The master of a slot, if it is known, and how new that is.
    async fn owner(&self, slot: u16) -> Result<(u64, Option<Place>), StoreError> {
        let known = |map: &Map| (map.version, map.owners.get(&slot).cloned());
        let (version, is_usable) = {
            let map = self.read();
            (map.version, !map.is_stale && map.owners.contains_key(&slot))
        };
        if !is_usable && let Err(error) = self.read_anew(version).await {
            // An old map is better than none.
            let map = self.read();
            return if map.owners.contains_key(&slot) { Ok(known(&map)) } else { Err(error) };
        }
        Ok(known(&self.read()))
    }

    /// The node there.
    fn node(&self, place: &Place) -> Result<Node, StoreError> {
        if let Some(node) = self.read().nodes.get(place) {
            return Ok(node.clone());
        }
        let mut map = self.write();
        if map.is_closed {
            return Err(StoreError::unavailable(format!("{}: the store was closed", self.0.address)));
        }
        if let Some(node) = map.nodes.get(place) {
            return Ok(node.clone());
        }
        let node = Node::at(place, format!("{place} (of the Cluster)"), &self.0.clients, self.0.demands)?;
        map.nodes.insert(place.clone(), node.clone());
        Ok(node)
    }

    /// Asks all nodes which has which slot, unless that was done since the map had this version.
    async fn read_anew(&self, version: u64) -> Result<(), StoreError> {
        let deadline = Instant::now() + 2 * self.0.demands.connect_timeout;
        let turn = timeout_at(deadline, self.0.asking.lock()).await;
        let Ok(_turn) = turn else { return Err(self.silent()) };
        if self.read().version != version {
            return Ok(());
        }
        let mut places: BTreeSet<Place> = self.0.places.iter().cloned().collect();
        places.extend(self.read().nodes.keys().cloned());
        let mut asked = JoinSet::new();
        for place in places {
            let node = self.node(&place)?;
            asked.spawn(async move {
                layout(&node, &place).await.inspect_err(|error| {
                    tracing::debug!(%place, error = error as &dyn std::error::Error, "a node tells no slots");
                })
            });
        }
        let mut best: Option<Layout> = None;
        let failed = hear(asked, deadline, |layout| {
            // One that is cut off is of no use to others.
            let worth = if layout.is_whole { Worth::Something } else { Worth::Little };
            let rank = |layout: &Layout| (layout.is_whole, layout.epoch);
            if best.as_ref().is_none_or(|best| rank(best) < rank(&layout)) {
                best = Some(layout);
            }
            worth
        });
        let failed = failed.await;
        let Some(layout) = best else { return Err(failed.unwrap_or_else(|| self.silent())) };
        let mut map = self.write();
        map.owners.clear();
        for (first, last, place) in layout.slots {
            map.owners.extend((first..=last).map(|slot| (slot, place.clone())));
        }
        let owners: BTreeSet<Place> = map.owners.values().cloned().collect();
        // Replicas that were asked, and those that have left, are asked again by their places if they are named.
        map.nodes.retain(|place, _| owners.contains(place) || self.0.places.contains(place));
        map.version += 1;
        map.is_stale = false;
        Ok(())
    }

    fn silent(&self) -> StoreError {
        StoreError::unavailable(format!("no node of the Cluster at {} answers", self.0.address))
    }
}

/// Where a node says that a request belongs. One that names no host means its own.
fn redirected(error: &RedisError, from: Option<&Place>) -> Option<Place> {
    let (address, _) = error.redirect_node()?;
    let (host, port) = address.rsplit_once(':')?;
    let host = if matches!(host, "" | "?") { from.map(|place| place.host.as_str())? } else { host };
    Some(Place::new(host, port.parse().ok()?))
}

/// Which slots belong to which master, as this node sees it.
async fn layout(node: &Node, place: &Place) -> Result<Layout, StoreError> {
    let asking = "asking which node has which slot (+cluster|info +cluster|slots)";
    let ask = async |what: &str| {
        let command = redis::cmd("CLUSTER").arg(what).to_owned();
        let answer = node.send(Request { command: &command, script: None }, false).await;
        answer.map_err(|failure| match failure {
            Failure::Unsent(error) | Failure::Done(error) => error,
            Failure::Answer(error) => read_error(node.address(), asking, error),
        })
    };
    let unread = |what: &str| StoreError::unavailable(format!("{}: {what} cannot be read", node.address()));
    let info: String = redis::from_redis_value(ask("INFO").await?).map_err(|_| unread("CLUSTER INFO"))?;
    let epoch = field(&info, "cluster_current_epoch").and_then(|epoch| epoch.parse().ok());
    let epoch = epoch.ok_or_else(|| unread("CLUSTER INFO"))?;
    let is_whole = field(&info, "cluster_state") == Some("ok");
    let slots = read_slots(ask("SLOTS").await?, place).ok_or_else(|| unread("CLUSTER SLOTS"))?;
    Ok(Layout { epoch, is_whole, slots })
}

/// What `CLUSTER SLOTS` says of masters: first slot, last slot, and each node's host and port.
fn read_slots(answer: Value, asked: &Place) -> Option<Vec<(u16, u16, Place)>> {
    let Value::Array(ranges) = answer else { return None };
    let mut slots = Vec::new();
    for range in ranges {
        let Value::Array(range) = range else { return None };
        let [first, last, Value::Array(master), ..] = range.as_slice() else { return None };
        let [host, port, ..] = master.as_slice() else { return None };
        let (first, last) = (read::<u16>(first)?, read::<u16>(last)?);
        let host = match host {
            // It knows no better name than the one that it was asked by.
            Value::Nil => asked.host.clone(),
            host => match read::<String>(host)?.as_str() {
                "" | "?" => asked.host.clone(),
                host => host.to_owned(),
            },
        };
        if first > last || last >= SLOTS {
            return None;
        }
        slots.push((first, last, Place::new(&host, read::<u16>(port)?)));
    }
    Some(slots)
}

fn read<T: redis::FromRedisValue>(value: &Value) -> Option<T> {
    T::from_redis_value_ref(value).ok()
}

/// The slot of a key: that of what stands between its first braces, if that is anything.
fn slot(key: &[u8]) -> u16 {
    let tag = || {
        let open = key.iter().position(|&byte| byte == b'{')? + 1;
        let tag = key.get(open..)?;
        let tag = tag.get(..tag.iter().position(|&byte| byte == b'}')?)?;
        (!tag.is_empty()).then_some(tag)
    };
    crc16(tag().unwrap_or(key)) % SLOTS
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, &byte| {
        (0..8).fold(
            crc ^ (u16::from(byte) << 8),
            |crc: u16, _| {
                if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
            },
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_the_slot_of_its_hash_tag() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        for (key, expected) in [("foo", 12_182), ("unalike:{foo}", 12_182), ("{foo}{bar}", 12_182), ("", 0)] {
            assert_eq!(slot(key.as_bytes()), expected, "{key}");
        }
        assert_eq!(slot(b"foo{}{bar}"), crc16(b"foo{}{bar}") % SLOTS, "nothing in the first braces");
        assert_eq!(slot(b"foo{{bar}}"), crc16(b"{bar") % SLOTS);
        assert_eq!(slot(b"foo{bar"), crc16(b"foo{bar") % SLOTS);
    }

    #[test]
    fn slots_are_read_with_the_host_that_was_asked_where_none_is_named() {
        let asked = Place::new("10.0.0.1", 7_000);
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let node = |host: Value, port| Value::Array(vec![host, Value::Int(port), text("id"), Value::Array(Vec::new())]);
        let range = |first, last, node| Value::Array(vec![Value::Int(first), Value::Int(last), node]);
        let slots =
            Value::Array(vec![range(0, 1, node(text("10.0.0.2"), 7_001)), range(2, 16_383, node(Value::Nil, 7_002))]);
        let read = read_slots(slots, &asked).unwrap();
        assert_eq!(read, [(0, 1, Place::new("10.0.0.2", 7_001)), (2, 16_383, Place::new("10.0.0.1", 7_002))]);
        for wrong in [range(1, 0, node(Value::Nil, 1)), range(0, 16_384, node(Value::Nil, 1)), Value::Nil] {
            assert!(read_slots(Value::Array(vec![wrong]), &asked).is_none());
        }
    }
}
