//! The component compiled once per process, and what links an instance to its host.

use std::sync::LazyLock;

use wasmtime::component::{Component, Linker};
use wasmtime::{Config, Engine, Store};

use crate::component::{self, Core, CorePre};
use crate::lane::Imports;
use crate::{Error, ErrorKind};

/// The pre-linked component. Compiling it takes a few milliseconds, so it happens at first use and once.
static LINKED: LazyLock<Result<CorePre<Imports>, String>> =
    LazyLock::new(|| link().map_err(|error| format!("{error:#}")));

fn link() -> wasmtime::Result<CorePre<Imports>> {
    let mut config = Config::new();
    // Every call is synchronous, and a synchronous call costs 138 ns without concurrency support and 500 ns with it.
    config.concurrency_support(false);
    let engine = Engine::new(&config)?;
    let component = Component::new(&engine, unalike_artifact::CORE)?;
    let mut linker = Linker::new(&engine);
    component::add_to_linker(&mut linker, |imports: &mut Imports| imports.ids.view())?;
    CorePre::new(linker.instantiate_pre(&component)?)
}

/// A new instance with memory of its own.
pub(crate) fn instantiate(imports: Imports) -> Result<(Store<Imports>, Core), Error> {
    let linked = LINKED.as_ref().map_err(|reason| ErrorKind::Component { reason: reason.clone() })?;
    let mut store = Store::new(linked.engine(), imports);
    store.limiter(|imports| imports.limits());
    let core = linked.instantiate(&mut store).map_err(|error| ErrorKind::Component { reason: format!("{error:#}") })?;
    Ok((store, core))
}
