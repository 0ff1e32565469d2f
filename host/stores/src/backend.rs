//! What a kind of store answers to those that open it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use unalike_storage::{Layout, LeaseLimits, LeaseStore, SegmentStore, StoreError, TagCreation};

use crate::error::PlaceError;
use crate::url::StoreUrl;

/// A kind of store.
pub trait Backend: Sync {
    /// Its name, for messages: `MySQL`.
    fn title(&self) -> &'static str;

    /// What its URLs look like, for messages: `mysql://USER@HOST/DATABASE`.
    fn form(&self) -> &'static str;

    /// Whether URLs with this scheme name such stores. Those that it refuses with words of its own are among them.
    fn is_scheme(&self, scheme: &str) -> bool;

    /// Reads a URL with one of its schemes. Nothing is opened.
    ///
    /// # Errors
    /// Says what is wrong with the URL, and shows no password.
    fn place(&self, url: &StoreUrl) -> Result<Arc<dyn Place>, PlaceError>;

    /// Whether it can keep sequences; any can keep leases.
    fn has_sequences(&self) -> bool {
        true
    }

    /// Whether it may lose what it said, so that a durable store grants it what it hands out.
    fn is_volatile(&self) -> bool {
        false
    }

    /// Whether its URLs name files of this machine.
    fn is_file(&self) -> bool {
        false
    }

    /// The systems whose tables or keys it can use, its own first.
    fn dialects(&self) -> &'static [&'static str] {
        &[]
    }

    /// The tables of a dialect, in a schema or where a user has them. `None` for an unknown one, and in a store without
    /// tables.
    fn tables(&self, _dialect: &str, _schema: Option<&str>) -> Option<Tables> {
        None
    }

    /// The tables of leases, where they are others than those of every dialect. `None` in a store without tables.
    fn lease_tables(&self, _schema: Option<&str>) -> Option<Tables> {
        None
    }

    /// What its statements say of a schema, for a user as they name it. Asked only where a [`Place`] names one.
    fn schema(&self, _schema: &str, _user: &str) -> Option<SchemaStatements> {
        None
    }

    /// How its statements name this user. Not asked in a store without tables.
    fn account(&self, user: &str) -> Account {
        Account { name: user.to_owned(), creation: String::new() }
    }
}

/// What is to be done with the schema that has tables.
pub struct SchemaStatements {
    /// Before they are created.
    pub before: Vec<String>,
    /// The least privileges on it.
    pub privileges: String,
}

/// A user of a database.
pub struct Account {
    /// As statements have it.
    pub name: String,
    /// The statement that creates it.
    pub creation: String,
}

/// Tables, and what a user must be allowed to do with them.
pub struct Tables {
    /// The kind of store that has them.
    pub backend: &'static dyn Backend,
    /// The schema that they are in, where one was named.
    pub schema: Option<String>,
    /// What creates them.
    pub statements: Vec<String>,
    /// The least privileges on each.
    pub privileges: Vec<(String, &'static str)>,
}

/// What the URL of a store names. Nothing is open.
#[async_trait]
pub trait Place: Send + Sync {
    /// Where the same tags are found, the name is the same.
    ///
    /// # Errors
    /// When the place cannot be named.
    fn name(&self) -> Result<String, PlaceError>;

    /// The kind of store, and whose tables or keys are used there: one place has one, whatever name it goes by. Stores
    /// of one kind are told apart by their [identities](SegmentStore::identity).
    fn kind(&self) -> String;

    /// Where it is, for messages, without user and password.
    fn address(&self) -> String;

    /// Opens the sequences that are kept here. A store on a server that is down may open:
    /// [`connect`](OpenStore::connect) tells.
    ///
    /// # Errors
    /// When it cannot be used.
    async fn open(&self, opening: &Opening) -> Result<Arc<dyn OpenStore>, StoreError>;

    /// Connects to the leases that are kept here.
    ///
    /// # Errors
    /// When they cannot be used.
    async fn connect_leases(&self, opening: &Opening) -> Result<Arc<dyn LeaseStore>, StoreError>;

    /// The file that it is, if it is one.
    fn file(&self) -> Option<&Path> {
        None
    }

    /// Whether another system's sequences are only read here.
    fn is_only_read(&self) -> bool {
        false
    }

    /// Whether it must be told, and was not, that the system whose tables or keys these are has been stopped.
    fn asks_whether_source_stopped(&self) -> bool {
        false
    }

    /// Whether its tags can have any sub-key, as a counter that starts again needs for its periods.
    fn has_sub_keys(&self) -> bool {
        true
    }

    /// The layout of all snowflakes whose workers it leases, where another system that shares them decides it.
    fn layout(&self) -> Option<Layout> {
        None
    }

    /// The tables that it uses for sequences. `None` in a store without tables.
    fn tables(&self) -> Option<Tables> {
        None
    }

    /// The schema of its database that it names.
    fn schema(&self) -> Option<&str> {
        None
    }

    /// The commands by which an administrator lets a user do what this program does, and no more. `None` in a store
    /// with tables, and in one without users.
    fn user_commands(&self, _user: &str) -> Option<Vec<String>> {
        None
    }

    /// Whether it keeps leases in tables.
    fn has_lease_tables(&self) -> bool {
        false
    }

    /// Brings its tables to the version of this program.
    ///
    /// # Errors
    /// When they cannot be; and in a store without tables.
    async fn upgrade(&self) -> Result<(), StoreError> {
        Err(StoreError::refused(format!("{} has no tables", self.address())))
    }

    /// Accepts the server behind the address in the place of the one that was there before, or data that were restored.
    ///
    /// # Errors
    /// When it was not accepted, and where there is no server that could be another one.
    async fn adopt(&self, url: &StoreUrl, _adoption: &Adoption) -> Result<Adopted, PlaceError> {
        Err(PlaceError::new(format!("the store {url} has no server to adopt")))
    }

    /// Moves what the durable store `before` granted to another one, and has a volatile store know that.
    ///
    /// # Errors
    /// When a store does not answer or cannot be left, and in a store without a durable one behind it.
    async fn rebind(
        &self,
        _before: &Arc<dyn SegmentStore>,
        _durable: &Arc<dyn SegmentStore>,
    ) -> Result<Rebound, StoreError> {
        Err(StoreError::refused(format!("{} has no durable store behind it", self.address())))
    }

    /// Makes an empty volatile store one without a durable store behind it. Answers whether it was none before.
    ///
    /// # Errors
    /// When it cannot be; and in a store that begins with its first use.
    async fn initialise(&self) -> Result<bool, StoreError> {
        Err(begins_by_itself(&self.address()))
    }

    /// The same for the leases of a namespace.
    ///
    /// # Errors
    /// As there.
    async fn initialise_leases(
        &self,
        _namespace: &str,
        _layout: Layout,
        _limits: LeaseLimits,
    ) -> Result<bool, StoreError> {
        Err(begins_by_itself(&self.address()))
    }
}

/// How a store is opened.
#[derive(Clone)]
pub struct Opening {
    /// One that is not there is begun, if its URL does not say otherwise.
    pub may_begin: bool,
    /// Tables of unalike's own may be made beside those of another system.
    pub makes_tables: bool,
    /// Another system's tags are read also where no store was begun beside them. Nothing is granted then.
    pub only_looks: bool,
    /// How many tags there may be.
    pub tags_max: u64,
    /// Whether tags are created on first use, where it was said: else they are in a store of unalike's own.
    pub on_first_use: Option<bool>,
    /// What grants a volatile store what it hands out. `None`: nothing, and ids are as safe as that store is.
    pub durable: Option<Arc<dyn SegmentStore>>,
    /// A volatile store gets its numbers of known tags beforehand, unless its URL says otherwise.
    pub preheats: bool,
    /// What leases are allowed.
    pub limits: LeaseLimits,
}

impl Default for Opening {
    /// A store that is not there is begun, with no durable one behind it.
    fn default() -> Self {
        Self {
            may_begin: true,
            makes_tables: true,
            only_looks: false,
            tags_max: TagCreation::default().tags_max,
            on_first_use: None,
            durable: None,
            preheats: true,
            limits: LeaseLimits::default(),
        }
    }
}

impl Opening {
    /// Whether tags are created on first use, where a URL by itself means this.
    pub(crate) fn creation(&self, of_url: TagCreation) -> TagCreation {
        TagCreation { on_first_use: self.on_first_use.unwrap_or(of_url.on_first_use), tags_max: self.tags_max }
    }
}

/// An open store of sequences.
#[async_trait]
pub trait OpenStore: SegmentStore {
    /// Connects to the server that it is on, if it is on one and has not yet.
    ///
    /// # Errors
    /// When it cannot be used, [`StoreError::Unavailable`] when it is down.
    async fn connect(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// The leases that are kept in the same place, over the same connections.
    ///
    /// # Errors
    /// When they cannot be used.
    async fn leases(self: Arc<Self>) -> Result<Arc<dyn LeaseStore>, StoreError>;

    /// Notes what an unordered tag is like, in a store whose tables say it in no column. Answers whether this is one.
    ///
    /// # Errors
    /// Any error of the connection.
    async fn declare_unordered(&self, _tag: &str, _declared: UnorderedTag) -> Result<bool, StoreError> {
        Ok(false)
    }

    /// tinyid's own tokens, each with the business type that it is good for. `None` where there is no such table.
    ///
    /// # Errors
    /// [`StoreError::Refused`] when they must not be read, and any error of the connection.
    async fn tinyid_tokens(&self) -> Result<Option<Vec<(String, String)>>, StoreError> {
        Ok(None)
    }
}

/// What an unordered tag is declared to be like.
#[derive(Clone, Copy, Debug)]
pub struct UnorderedTag {
    /// What its ids begin with.
    pub prefix: Option<u64>,
    /// How many ids are fetched at once.
    pub buff_size: u64,
    /// How many are left when the next are fetched.
    pub lowest_critical_value: u64,
}

/// How a server is accepted.
#[derive(Clone, Copy, Debug)]
pub struct Adoption {
    /// How many numbers every tag is lifted by.
    pub lift: u64,
    /// What leases were allowed.
    pub limits: LeaseLimits,
    /// The operator vouches that the server applies nothing of another one any more.
    pub replication_ended: bool,
    /// What is there was restored from a backup, whether that can be seen or not.
    pub is_restored: bool,
    /// It was said by name that no durable store stands behind a volatile one.
    pub is_alone: bool,
}

impl Adoption {
    /// What an error begins with.
    pub(crate) const fn refusal(&self) -> &'static str {
        if self.is_restored { "nothing was lifted" } else { "the server was not adopted" }
    }
}

/// What became of the store of a server that was accepted.
#[derive(Clone, Copy, Debug)]
pub struct Adopted {
    /// How many tags were lifted.
    pub tags: u64,
    /// What they are.
    pub kind: LiftedTags,
    /// From when on workers are leased in every namespace, in Unix milliseconds.
    pub leases_from_ms: u64,
    /// Whether its own changes have come back to it from a replica.
    pub follows_itself: bool,
}

/// What was lifted, and what becomes of names that were lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LiftedTags {
    /// unalike's own tags. A name that was lost begins above its start.
    Own,
    /// Rows of another system's tables. So do names that unalike creates there, but not the rows that others insert.
    Rows,
    /// Sequences, by so many values. unalike creates none.
    Sequences,
}

/// Which durable stores a volatile one knew, by kind of its numbers, and which it knows now.
#[derive(Clone, Debug)]
pub struct Rebound {
    /// The identity of the durable store before, by kind of numbers.
    pub before: BTreeMap<String, String>,
    /// The identity of the durable store now.
    pub identity: String,
}

fn begins_by_itself(address: &str) -> StoreError {
    StoreError::refused(format!("{address} begins with its first use, and by no command"))
}
