//! What the ids of tags look like, where the tags are in tables of another system.
//!
//! Those tables have no place for a format. It is kept beside them in `unalike_tag`, in the very rows and by the very
//! statements that keep it for unalike's own tags. That table is made when the first format is bound: whoever shows
//! none needs neither the table nor a privilege on it.

use std::fmt;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use unalike_storage::{
    FormatBinding, FormatOwner, FormatPart, JoinedStripe, SegmentLayer, SegmentStore, StoreError, Stripe,
};

use crate::database::Database;
use crate::dialects::tables::has_table;
use crate::error::{NO_SUCH_TABLE, TABLE_ACCESS_DENIED};
use crate::schema::Schema;
use crate::{Dialect, DialectStore, MysqlOptions, leases, segments};

const LOOKING: &str = "looking for formats";

/// Whether this user sees the store's own record.
const HAS_STORE: &str = has_table!("unalike_store");

/// Tags in tables of another system, with their formats.
pub(crate) struct Beside {
    tags: Arc<dyn SegmentStore>,
    formats: Arc<Formats>,
}

impl Beside {
    pub(crate) fn new(
        tags: Arc<dyn DialectStore>,
        database: &Database,
        schema: Schema,
        options: &MysqlOptions,
    ) -> Self {
        let (database, options) = (database.clone(), options.clone());
        Self { tags, formats: Arc::new(Formats { database, schema, options, rows: OnceLock::new() }) }
    }

    /// The name under which the format of a tag is kept: that of its row. A table may take several names for one row,
    /// by letter case, accents or spaces at the end; their numbers are the same, so they have one format. A row that
    /// has no name has its key.
    async fn name_in_rows(&self, tag: &str) -> Result<String, StoreError> {
        let dialect = &self.formats.options.dialect;
        if let Dialect::IdGenerator { keys, .. } = dialect
            && let Some(key) = keys.get(tag)
        {
            return Ok(format!("id-generator:{key}"));
        }
        match self.tags.tag(tag).await {
            Ok(record) if *dialect == Dialect::Ticket && self.tags.folds_names().await?.is_some() => {
                Ok(record.tag.to_lowercase())
            }
            Ok(record) => Ok(record.tag),
            Err(StoreError::TagUnknown { .. } | StoreError::TagInvalid { .. }) => Ok(tag.to_owned()),
            Err(error) => Err(error),
        }
    }
}

impl fmt::Debug for Beside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Beside").field("formats", &self.formats).finish_non_exhaustive()
    }
}

/// The formats in one database.
#[derive(Debug)]
struct Formats {
    database: Database,
    schema: Schema,
    options: MysqlOptions,
    /// `unalike_tag`, once it was found usable.
    rows: OnceLock<Arc<dyn DialectStore>>,
}

impl Formats {
    /// The rows for this request. None for one that only looks, where there is no table, or none that this user may
    /// look into.
    ///
    /// # Errors
    /// [`StoreError::Refused`] where the table is missing and must not be created, or cannot be used.
    async fn rows(&self, binding: FormatBinding) -> Result<Option<Arc<dyn DialectStore>>, StoreError> {
        if let Some(rows) = self.rows.get() {
            return Ok(Some(Arc::clone(rows)));
        }
        if binding == FormatBinding::Look {
            let has_tags = self.database.rows(LOOKING, sqlx::query(leases::HAS_TAGS)).await?;
            if has_tags.is_empty() {
                return Ok(None);
            }
        }
        let opened = segments::open_beside(&self.database, self.schema, &self.options).await;
        let rows = opened.map_err(StoreError::in_table_of_formats)?;
        Ok(Some(Arc::clone(self.rows.get_or_init(|| rows))))
    }
}

#[async_trait]
impl SegmentLayer for Beside {
    fn below(&self) -> Option<&dyn SegmentStore> {
        Some(&*self.tags)
    }

    fn keeps_formats(&self) -> bool {
        true
    }

    async fn bind_format(
        &self,
        owner: FormatOwner<'_>,
        part: FormatPart,
        binding: FormatBinding,
    ) -> Result<Option<u64>, StoreError> {
        let Some(rows) = self.formats.rows(binding).await? else { return Ok(None) };
        match owner {
            FormatOwner::Tag(tag) => {
                let name = self.name_in_rows(tag).await?;
                rows.bind_format(FormatOwner::Tag(&name), part, binding).await
            }
            FormatOwner::Snowflake(_) => rows.bind_format(owner, part, binding).await,
        }
    }

    async fn hides_formats(&self) -> Result<Option<String>, StoreError> {
        if self.formats.rows.get().is_some() {
            return Ok(None);
        }
        let look = sqlx::query("SELECT 1 FROM unalike_tag LIMIT 1");
        let mut turn = self.formats.database.turn(LOOKING).await?;
        let looked = turn.try_execute(look, &[NO_SUCH_TABLE, TABLE_ACCESS_DENIED]).await?;
        // The server denies access to a table that is missing, too. Where no store has begun, none has formats.
        let is_hidden =
            looked.err() == Some(TABLE_ACCESS_DENIED) && !turn.rows(sqlx::query(HAS_STORE)).await?.is_empty();
        turn.give_back();
        Ok(is_hidden.then(|| {
            "formats are kept in the table unalike_tag, which this user may not look into: let it, and make the table \
             first where it is missing (`unalike schema` prints both)"
                .to_owned()
        }))
    }

    async fn join_stripe(&self, stripe: &Stripe) -> Result<JoinedStripe, StoreError> {
        let joined = self.tags.join_stripe(stripe).await?;
        Ok(joined.behind(|tags| Self { tags, formats: Arc::clone(&self.formats) }))
    }
}
