//! The component compiled once per process, and what links an instance to its host.

use std::sync::LazyLock;

use wasmtime::component::{Component, HasSelf, Linker};
use wasmtime::{Config, Engine, Store};

use crate::imports::Imports;
use crate::{Error, ErrorKind};

/// The Rust face of the WIT package.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::restriction, reason = "generated code")]
pub(crate) mod bindings {
    wasmtime::component::bindgen!({ path: "wit", world: "core" });
}

/// The pre-linked component. Compiling it takes a few milliseconds, so it happens at first use and once.
static LINKED: LazyLock<Result<bindings::CorePre<Imports>, String>> =
    LazyLock::new(|| link().map_err(|error| format!("{error:#}")));

fn link() -> wasmtime::Result<bindings::CorePre<Imports>> {
    let mut config = Config::new();
    // Every call is synchronous, and a synchronous call costs 138 ns without concurrency support and 500 ns with it.
    config.concurrency_support(false);
    let engine = Engine::new(&config)?;
    let component = Component::new(&engine, unalike_artifact::CORE)?;
    let mut linker = Linker::new(&engine);
    bindings::Core::add_to_linker::<_, HasSelf<Imports>>(&mut linker, |imports| imports)?;
    bindings::CorePre::new(linker.instantiate_pre(&component)?)
}

/// A new instance with memory of its own.
pub(crate) fn instantiate(imports: Imports) -> Result<(Store<Imports>, bindings::Core), Error> {
    let linked = LINKED.as_ref().map_err(|reason| ErrorKind::Component { reason: reason.clone() })?;
    let mut store = Store::new(linked.engine(), imports);
    store.limiter(|imports| imports.limits());
    // Every open generator is a handle, and one beyond wasmtime's 100,000 would trap. The memory is what limits them.
    store.set_max_component_handles(usize::MAX);
    let core = linked.instantiate(&mut store).map_err(|error| ErrorKind::Component { reason: format!("{error:#}") })?;
    Ok((store, core))
}
