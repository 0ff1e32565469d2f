//! tinyid's own tokens: who may have ids of which business type, by tinyid's paths only.
//!
//! tinyid keeps them in the table `tiny_id_token`, a row for each token and business type, and reads it every minute.
//! This server does the same, and at SIGHUP, where it has tinyid's paths (`drop_in`) and a store in the database of
//! that table: the numbers may still come from tinyid's tables, or have moved to unalike's own. A database without the
//! table has no such tokens. One that does not answer when the server starts lets nobody in by a token of its own until
//! it does.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock};

use anyhow::Context;
use sha2::{Digest, Sha256};
use unalike::storage::StoreError;
use unalike_stores::OpenStore;

use crate::words::with_causes;

/// The business types that each token is good for, by the token's digest.
type Tokens = HashMap<[u8; 32], HashSet<String>>;

/// The tokens of the databases that a server uses.
#[derive(Default)]
pub(crate) struct TinyidTokens {
    /// Those that may have the table.
    databases: Vec<Arc<dyn OpenStore>>,
    /// None: there is no table.
    known: RwLock<Option<Arc<Tokens>>>,
}

impl TinyidTokens {
    /// Reads them.
    ///
    /// # Errors
    /// When a database of tinyid's says that its table must not be read. One that is down is read later.
    pub(crate) async fn read(stores: &[Arc<dyn OpenStore>]) -> anyhow::Result<Self> {
        let databases = stores.to_vec();
        let known = match Self::read_all(&databases).await {
            Ok(known) => known,
            Err(error) if error.is_retryable() => Some(Tokens::new()),
            Err(error) => {
                return Err(error).context(
                    "tinyid's table tiny_id_token, which says who may have ids, cannot be read: GRANT SELECT ON it to the store's \
                     user",
                );
            }
        };
        Ok(Self { databases, known: RwLock::new(known.map(Arc::new)) })
    }

    /// Reads them again. Whatever goes wrong, they stay as they were.
    pub(crate) async fn refresh(&self) {
        if self.databases.is_empty() {
            return;
        }
        match Self::read_all(&self.databases).await {
            Ok(known) => {
                tracing::debug!(tokens = known.as_ref().map(HashMap::len), "the table tiny_id_token was read");
                *self.known.write().unwrap_or_else(PoisonError::into_inner) = known.map(Arc::new);
            }
            Err(error) => {
                let error = with_causes(&error);
                tracing::warn!(error, "the table tiny_id_token was not read again; its tokens stay as they were");
            }
        }
    }

    async fn read_all(databases: &[Arc<dyn OpenStore>]) -> Result<Option<Tokens>, StoreError> {
        let mut tokens: Option<Tokens> = None;
        for database in databases {
            // An empty table is one, too: it lets nobody in.
            let Some(rows) = database.tinyid_tokens().await? else { continue };
            let known = tokens.get_or_insert_default();
            for (token, business_type) in rows {
                known.entry(Sha256::digest(token).into()).or_default().insert(business_type);
            }
        }
        Ok(tokens)
    }

    /// Whether a token is good for a business type; none where there is no table.
    pub(crate) fn permit(&self, token: Option<&str>, business_type: &str) -> Option<bool> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner).clone()?;
        let digest: Option<[u8; 32]> = token.map(|token| Sha256::digest(token).into());
        Some(digest.and_then(|digest| known.get(&digest)).is_some_and(|types| types.contains(business_type)))
    }
}
