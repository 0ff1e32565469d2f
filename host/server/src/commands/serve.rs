//! The service's life: start, serve, drain, end.

use std::io::Write;
use std::net::SocketAddr;
#[cfg(feature = "component")]
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::net::{TcpListener, TcpSocket};
use tokio::signal::unix::{Signal, SignalKind, signal};
use unalike::{Clock as _, SystemClock};
use unalike_local::LocalOptions;

#[cfg(feature = "component")]
use crate::commands::arguments::ComponentArguments;
use crate::commands::arguments::ServeCommand;
use crate::config::tls::Tls;
use crate::config::tokens::warn_if_open;
use crate::config::{Checked, Config};
use crate::http::Front;
#[cfg(feature = "component")]
use crate::http::component::Component;
use crate::http::connections::Connections;
use crate::http::console::Console;
use crate::http::metrics::Metrics;
use crate::service::Service;
#[cfg(feature = "component")]
use crate::service::component_numbers::ComponentNumbers;
use crate::service::cover::SAMPLE_EVERY;
use crate::service::stores::Purpose;
use crate::service::troubles;
use crate::words::{rfc3339, with_causes};

/// How often leases are looked after, at most and at least: well within the third after which they are due, so that one
/// look and one answer may be late.
const RENEW_EVERY_MIN: Duration = Duration::from_millis(50);
const RENEW_EVERY_MAX: Duration = Duration::from_secs(1);

/// How often the store is looked after while something is wrong with it.
const LOOK_AFTER_EVERY: Duration = Duration::from_secs(1);

/// How often a lease store that refused to open is asked again.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// How often tinyid's tokens are read.
const TINYID_TOKENS_EVERY: Duration = Duration::from_secs(60);

/// Connections that the kernel has accepted and the server has not yet: a burst of clients that start together.
const BACKLOG: u32 = 4_096;

/// Those who have come are accepted before the listener is closed, if it does not take longer.
const LAST_ARRIVALS_MAX: Duration = Duration::from_secs(1);

/// The exit code of a process that was told twice to end.
const EXIT_AT_ONCE: i32 = 1;

/// Serves until it is told to end, then gives back what was not used.
pub(crate) async fn serve(config: Config, command: ServeCommand) -> anyhow::Result<()> {
    // The signals first, so that none is missed, and tokens, component and address before the store, so that a mistake
    // creates no file.
    let mut ends = Ends::watch()?;
    let now_ms = SystemClock.now_ms();
    // The others go on.
    if let Err(error) = config.check_ends(now_ms) {
        tracing::error!("{error}");
    }
    let Checked { tokens, tls } = config.check()?;
    // A layout that begins later is a slip, and nobody uses it yet.
    config.check_begins(now_ms)?;
    let tls = tls.map(Arc::new);
    #[cfg(feature = "component")]
    anyhow::ensure!(
        command.component.component.is_none() || config.drop_ins().is_empty(),
        "the paths of other services (--drop-in) are not served beside --component, which answers all: leave one of them out"
    );
    #[cfg(feature = "component")]
    let component = AnsweringComponent::build(command.component, &config).await?;
    config.tokens.as_deref().inspect(|path| warn_if_open(path));
    tokens.warn_of_expiry();
    if let Some(tls) = &tls {
        tls.warn();
    }
    if config.shows_tokens()? {
        tracing::warn!(
            "tokens come to {} without encryption, and can be read on their way: give the server a certificate (--tls-cert, \
             --tls-key), or say that a proxy encrypts (--insecure-no-tls)",
            config.listen
        );
    }
    let listener = listen(&config)?;
    let address = listener.local_addr().context("the listener has no address")?;
    let metrics = Arc::new(Metrics::install(config.metrics_tags_max)?);
    let service = Arc::new(Service::open(&config, tokens, Purpose::Serving, &address.to_string()).await?);

    let idle = Duration::from_millis(config.sequence_idle_ms);
    let closing = tokio::spawn(close_idle(Arc::clone(&service), idle));
    let renewing = tokio::spawn(renew(Arc::clone(&service), renew_every(&config)?));
    let looking = tokio::spawn(look_for_leases(Arc::clone(&service)));
    let refreshing = tokio::spawn(refresh_tinyid_tokens(Arc::clone(&service)));
    let files = Files { service: Arc::clone(&service), has_tokens: config.tokens.is_some(), tls: tls.clone() };
    tokio::spawn(reload(Arc::new(files), watch(SignalKind::hangup())?));
    #[cfg_attr(not(feature = "component"), expect(unused_mut, reason = "a component is all that is added"))]
    let mut front = Front::new(&config, Arc::clone(&service), Arc::clone(&metrics), address.ip());
    let sampling = tokio::spawn(watch_cover(Arc::clone(&service), Arc::clone(front.console())));
    #[cfg(feature = "component")]
    if let Some(component) = component {
        let component = component.begin(&service);
        metrics.watch_component(component.clone());
        front.component = Some(Component::new(component));
    }
    #[cfg(not(feature = "component"))]
    drop(command);
    if let Some(tls) = &tls {
        metrics.watch_tls(Arc::clone(tls));
    }
    let scheme = if tls.is_some() { "https" } else { "http" };
    let connections = Connections::new(&config, front, tls);
    let watching = tokio::spawn(Arc::clone(&connections).watch());
    let accepting = tokio::spawn(Arc::clone(&connections).accept(listener));

    // For people and programs that started it; nothing is lost if nobody reads it.
    let _ = writeln!(std::io::stdout(), "listening on {scheme}://{address}");
    let backing = config.backing.as_ref().map(tracing::field::display);
    tracing::info!(%address, store = %config.store, backing, tokens = service.tokens.count(), "ready");

    let end = ends.next().await;
    service.end();
    let drain_ms = if end == End::Terminate { config.drain_ms } else { 0 };
    tracing::info!(signal = end.name(), drain_ms, "ending; another signal ends it at once");
    tokio::spawn(async move {
        ends.next().await;
        std::process::exit(EXIT_AT_ONCE);
    });
    tokio::time::sleep(Duration::from_millis(drain_ms)).await;

    // Ends with the listener: who comes now is refused by the kernel, and can go to another server.
    connections.stop_accepting();
    let abort = accepting.abort_handle();
    if tokio::time::timeout(LAST_ARRIVALS_MAX, accepting).await.is_err() {
        abort.abort();
    }
    connections.end();
    let left = connections.closed_within(Duration::from_millis(config.shutdown_timeout_ms)).await;
    if left > 0 {
        let limit_ms = config.shutdown_timeout_ms;
        tracing::warn!("{left} connections had requests running after {limit_ms} ms: they are broken off");
    }
    watching.abort();
    closing.abort();
    renewing.abort();
    sampling.abort();
    looking.abort();
    refreshing.abort();
    troubles::finish();
    tracing::info!("giving back what was not used");
    service.close().await;
    tracing::info!("ended");
    Ok(())
}

/// The component that answers in the server's place, built before there is a store.
#[cfg(feature = "component")]
struct AnsweringComponent {
    path: PathBuf,
    answers: unalike::wasi::Service,
    numbers: Arc<ComponentNumbers>,
}

#[cfg(feature = "component")]
impl AnsweringComponent {
    /// Compiles the component, if there is one, and looks whether an instance of it starts.
    async fn build(arguments: ComponentArguments, config: &Config) -> anyhow::Result<Option<Self>> {
        use unalike::wasi::{ServiceBuilder, ServiceOptions};

        let Some(path) = arguments.component else { return Ok(None) };
        let named = || format!("the component {}", path.display());
        let read = || format!("{} cannot be read", named());
        // A pipe may never end.
        let is_file = std::fs::metadata(&path).with_context(read)?.is_file();
        anyhow::ensure!(is_file, "{} is no file: name the file that it is in", named());
        let component = std::fs::read(&path).with_context(read)?;
        let count = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        let defaults = ServiceOptions::default();
        // What is given for the component itself comes later, and counts.
        let mut environment = vec![("UNALIKE_COUNT_MAX".to_owned(), config.count_max.to_string())];
        environment.extend(arguments.component_env);
        let options = ServiceOptions {
            instance_requests: arguments.component_requests.map(count),
            instance_at_once: arguments.component_at_once.map(count),
            instance_memory: arguments.component_memory.map_or(defaults.instance_memory, |mib| count(mib) << 20),
            // Before the server's own time is over, so that it is known what took it.
            request_timeout: Duration::from_millis(config.request_timeout_ms - config.request_timeout_ms / 20),
            requests_at_once: arguments.component_concurrency.map_or(defaults.requests_at_once, count),
            outgoing_hosts: arguments.component_hosts,
            environment,
            ..defaults
        };
        let numbers = Arc::new(ComponentNumbers::default());
        let built = ServiceBuilder::new(&component).segments(Arc::clone(&numbers) as _).options(options).build();
        let answers = built.with_context(named)?;
        answers.check().await.with_context(named)?;
        Ok(Some(Self { path, answers, numbers }))
    }

    /// Gives it the numbers of the service.
    fn begin(self, service: &Arc<Service>) -> unalike::wasi::Service {
        let Self { path, answers, numbers } = self;
        numbers.begin(service);
        tracing::info!(component = %path.display(), "a component answers");
        answers
    }
}

/// Listens where the configuration says, unless that is open to others who then could do everything.
fn listen(config: &Config) -> anyhow::Result<TcpListener> {
    let mut refused = std::io::Error::other("the name has no address");
    for address in config.addresses()? {
        match bind(address) {
            Ok(listener) => return Ok(listener),
            Err(error) => refused = error,
        }
    }
    Err(config.cannot_listen(&refused))
}

fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A server that is started again finds the closed connections of the one before.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// A sixth of the shortest lease, which is a piece of one where leases are kept locally.
fn renew_every(config: &Config) -> anyhow::Result<Duration> {
    let pieces = config.local_leases.as_ref().map(|directory| LocalOptions::new(directory).lead_ms);
    let horizons = config.snowflakes()?.into_values().map(|options| options.horizon_ms);
    let shortest_ms = horizons.chain(pieces).min().unwrap_or(u64::MAX);
    Ok(Duration::from_millis(shortest_ms / 6).clamp(RENEW_EVERY_MIN, RENEW_EVERY_MAX))
}

async fn renew(service: Arc<Service>, every: Duration) {
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut looked: Option<Instant> = None;
    loop {
        ticks.tick().await;
        service.renew_leases();
        if looked.is_none_or(|looked| looked.elapsed() >= RENEW_EVERY_MAX) {
            service.look_at_snowflakes();
            looked = Some(Instant::now());
        }
    }
}

/// Idleness is counted between two looks: a sequence is closed between one and one and a half times this.
async fn close_idle(service: Arc<Service>, idle: Duration) {
    let mut ticks = tokio::time::interval(idle / 2);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        service.close_idle(idle);
    }
}

/// Notices when a lease store that refused can be used, because its tables were made meanwhile, say.
async fn look_for_leases(service: Arc<Service>) {
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        service.look_for_leases().await;
    }
}

/// Reads tinyid's tokens again, as often as tinyid does.
async fn refresh_tinyid_tokens(service: Arc<Service>) {
    let mut ticks = tokio::time::interval(TINYID_TOKENS_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    // The first is at once, and they were just read.
    ticks.tick().await;
    loop {
        ticks.tick().await;
        service.tinyid_tokens.refresh().await;
    }
}

/// Measures how quickly tags are used, notices when the store goes down and comes back, and says what is over.
async fn watch_cover(service: Arc<Service>, console: Arc<Console>) {
    let mut ticks = tokio::time::interval(LOOK_AFTER_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut said = String::new();
    let mut sampled: Option<Instant> = None;
    loop {
        ticks.tick().await;
        troubles::look();
        let is_due = sampled.is_none_or(|sampled| sampled.elapsed() >= SAMPLE_EVERY);
        if is_due {
            service.covers.sample(service.ids());
            console.sample(&service);
            sampled = Some(Instant::now());
        }
        let refusal = service.look_after_store(is_due).await.map(|error| with_causes(&*error)).unwrap_or_default();
        if !refusal.is_empty() && refusal != said {
            tracing::error!(error = refusal, "the store refuses");
        }
        said = refusal;
    }
}

/// What is read again at SIGHUP.
struct Files {
    service: Arc<Service>,
    has_tokens: bool,
    tls: Option<Arc<Tls>>,
}

/// At each SIGHUP, which would end the process if nobody listened. The next one is not held up by what takes long.
async fn reload(files: Arc<Files>, mut hangup: Signal) {
    while hangup.recv().await.is_some() {
        let files = Arc::clone(&files);
        tokio::spawn(async move {
            let service = &files.service;
            tokio::join!(
                service.tinyid_tokens.refresh(),
                reload_token_file(service, files.has_tokens),
                reload_certificate(files.tls.as_deref())
            );
        });
    }
}

async fn reload_certificate(tls: Option<&Tls>) {
    let Some(tls) = tls else { return };
    match tls.reload().await {
        Ok(()) => {
            let ends_ms = tls.validity().ends_ms();
            tracing::info!("the certificate was read again: it is valid until {}", rfc3339(ends_ms));
        }
        Err(error) => tracing::error!(error = format!("{error:#}"), "the certificate stays as it was"),
    }
}

async fn reload_token_file(service: &Service, has_tokens: bool) {
    if !has_tokens {
        tracing::info!("SIGHUP: there is no token file to read again (--tokens)");
        return;
    }
    match service.tokens.reload().await {
        Ok(()) => tracing::info!(tokens = service.tokens.count(), "the token file was read again"),
        Err(error) => tracing::error!(error = format!("{error:#}"), "the tokens stay as they were"),
    }
}

/// The signals that end a process.
struct Ends {
    terminate: Signal,
    interrupt: Signal,
}

/// Which of them came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// A supervisor's: requests are still on their way here.
    Terminate,
    /// Ctrl-C: somebody waits.
    Interrupt,
}

impl End {
    fn name(self) -> &'static str {
        match self {
            Self::Terminate => "SIGTERM",
            Self::Interrupt => "SIGINT",
        }
    }
}

impl Ends {
    fn watch() -> anyhow::Result<Self> {
        Ok(Self { terminate: watch(SignalKind::terminate())?, interrupt: watch(SignalKind::interrupt())? })
    }

    async fn next(&mut self) -> End {
        tokio::select! {
            _ = self.terminate.recv() => End::Terminate,
            _ = self.interrupt.recv() => End::Interrupt,
        }
    }
}

fn watch(kind: SignalKind) -> anyhow::Result<Signal> {
    signal(kind).context("signals cannot be watched")
}
