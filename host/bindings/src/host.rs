//! Stores, a runtime and the open generators of a program in any language.

use std::future::Future;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::Instant;
use unalike::settings::{FormatSettings, Secrets};
use unalike::{Formatted, Ids, Sequence, Snowflake};
use unalike_stores::Opening;

use crate::options::unfit;
use crate::stores::OpenStores;
use crate::threads::{Threads, waiting};
use crate::{Failure, HostOptions, SequenceOptionsText, SnowflakeOptionsText};

/// What a file takes to close that nobody keeps locked, and more.
const FILE_CLOSES: Duration = Duration::from_secs(1);

/// How often leases are looked after, as nobody else does it.
const RENEWAL: Duration = Duration::from_secs(1);

/// What a program opens: see the [crate's example](crate).
///
/// A process that forks opens another one in the child: what it inherits refuses with the kind `forked`.
pub struct Host {
    /// Dropped in its own process only, as the stores are.
    ids: ManuallyDrop<Ids>,
    stores: ManuallyDrop<OpenStores>,
    secrets: Secrets,
    /// After how long a close leaves files open.
    close_max: Duration,
    /// What looks after the leases.
    renewal: Option<AbortHandle>,
    threads: Threads,
}

impl Host {
    /// Opens the stores, and connects to those of the sequences; unalike servers are connected to when they are first
    /// needed. How long that may take is up to the stores' own timeouts, which are parameters of their URLs.
    ///
    /// # Errors
    /// When one cannot be used: kind `options` or `store`. The kind `nested` in a callback.
    pub fn open(options: &HostOptions) -> Result<Self, Failure> {
        waiting("unalike_open", || Self::open_here(options))
    }

    fn open_here(options: &HostOptions) -> Result<Self, Failure> {
        let secrets = options.secrets()?;
        let threads = Threads::start()?;
        let close_max = 2 * Duration::from_millis(options.request_timeout_ms);
        let options = options.clone();
        let (ids, stores) = threads.run(async move {
            let stores = OpenStores::open(&options, Opening::default()).await?;
            match connect(&options, &stores).await {
                Ok(ids) => Ok((ids, stores)),
                Err(failure) => {
                    stores.close_files().await;
                    Err(failure)
                }
            }
        })?;
        let looked_after = ids.clone();
        let renewal = threads.spawn(async move {
            loop {
                tokio::time::sleep(RENEWAL).await;
                looked_after.renew_leases();
            }
        });
        let (ids, stores) = (ManuallyDrop::new(ids), ManuallyDrop::new(stores));
        Ok(Self { ids, stores, secrets, close_max, renewal, threads })
    }

    /// The sequence of a tag, or of its sub-key: [`Ids::sequence`], [`Ids::sequence_of`].
    ///
    /// # Errors
    /// As there. The kind `nested` in a callback.
    pub fn sequence(&self, tag: &str, sub: Option<&str>, options: &SequenceOptionsText) -> Result<Sequence, Failure> {
        let options = options.options();
        waiting("unalike_sequence_open", || {
            Ok(match sub {
                Some(sub) => self.ids.sequence_of_blocking(tag, sub, options)?,
                None => self.ids.sequence_blocking(tag, options)?,
            })
        })
    }

    /// The snowflake generator of a lease namespace: [`Ids::snowflake`].
    ///
    /// # Errors
    /// As there. The kind `nested` in a callback.
    pub fn snowflake(&self, namespace: &str, options: &SnowflakeOptionsText) -> Result<Snowflake, Failure> {
        let options = options.options()?;
        waiting("unalike_snowflake_open", || Ok(self.ids.snowflake_blocking(namespace, options)?))
    }

    /// The ids of a tag, or of its sub-key, as a format shows them: [`Ids::formatted`].
    ///
    /// # Errors
    /// As there, and the kind `options` for settings that give no format. The kind `nested` in a callback.
    pub fn formatted(
        &self,
        tag: &str,
        sub: Option<&str>,
        format: &FormatSettings,
        options: &SequenceOptionsText,
    ) -> Result<Formatted, Failure> {
        let format = format.of_tag(tag, &self.secrets).map_err(unfit)?;
        let options = options.options();
        waiting("unalike_formatted_open", || Ok(self.ids.formatted_blocking(tag, sub, options, format)?))
    }

    /// The ids of a snowflake as a format shows them: [`Ids::formatted_snowflake`].
    ///
    /// # Errors
    /// As there, and the kind `options` for settings that give no format. The kind `nested` in a callback.
    pub fn formatted_snowflake(
        &self,
        namespace: &str,
        format: &FormatSettings,
        options: &SnowflakeOptionsText,
    ) -> Result<Formatted, Failure> {
        let options = options.options()?;
        let format = format.of_snowflake(namespace, &self.secrets, options.layout).map_err(unfit)?;
        let open = || Ok(self.ids.formatted_snowflake_blocking(namespace, options, format)?);
        waiting("unalike_formatted_snowflake_open", open)
    }

    /// Whether this is the process that opened it.
    pub fn is_own_process(&self) -> bool {
        self.threads.is_own_process()
    }

    /// Runs a call on the host's threads. In a forked child, which has none of them, it is dropped: see
    /// [`is_own_process`](Self::is_own_process).
    pub fn spawn(&self, call: impl Future<Output = ()> + Send + 'static) {
        self.threads.spawn(call);
    }

    /// Gives back what was not used, and waits for that: [`Ids::close`]. In a forked child it does nothing.
    ///
    /// # Errors
    /// The kind `nested` in a callback.
    pub fn close(&self) -> Result<(), Failure> {
        waiting("unalike_close", || {
            if !self.is_own_process() {
                return Ok(());
            }
            let until = Instant::now() + self.close_max;
            if let Some(renewal) = &self.renewal {
                renewal.abort();
            }
            self.ids.close_blocking();
            let stores = OpenStores::clone(&self.stores);
            // A file that is well closes at once.
            let until = until.max(Instant::now() + FILE_CLOSES);
            self.threads.run(async move {
                // One that is not closed by then counts as open, for children.
                let _ = tokio::time::timeout_at(until, stores.close_files()).await;
                Ok(())
            })
        })
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if self.threads.end() {
            #[expect(unsafe_code, reason = "they are not dropped where they were inherited")]
            // SAFETY: nobody uses them after this.
            unsafe {
                ManuallyDrop::drop(&mut self.ids);
                ManuallyDrop::drop(&mut self.stores);
            }
        }
    }
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").field("ids", &self.ids).finish_non_exhaustive()
    }
}

/// The generators of a program over its open stores.
async fn connect(options: &HostOptions, stores: &OpenStores) -> Result<Ids, Failure> {
    let mut builder = Ids::builder()
        .wait_max(Duration::from_millis(options.wait_max_ms))
        .request_timeout(Duration::from_millis(options.request_timeout_ms));
    if let Some(segments) = &stores.segments {
        builder = builder.segments(Arc::clone(segments));
    }
    if let Some(leases) = &stores.leases {
        builder = builder.leases(Arc::clone(leases));
    }
    if let Some(worker) = options.worker {
        builder = builder.preferred_worker(worker);
    }
    if let Some(holder) = &options.holder {
        builder = builder.holder(holder);
    }
    Ok(builder.build().await?)
}
