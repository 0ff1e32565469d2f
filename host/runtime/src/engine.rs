//! The component compiled once per process, and what links an instance to its host.

use std::sync::LazyLock;

use wasmtime::component::{Component, Linker};
use wasmtime::{Config, Engine, Store};

use crate::component::{self, Core, CorePre};
use crate::lane::Imports;
use crate::{Error, ErrorKind};

#[cfg(not(any(feature = "compiler", feature = "precompiled")))]
compile_error!(
    "the component must be compiled: enable the feature `compiler`, or `precompiled`, of the crate `unalike`"
);

/// The linked component. Compiling it takes some 70 ms, so it happens at first use and once; code that was compiled
/// ahead of time is loaded within a millisecond.
static LINKED: LazyLock<Result<CorePre<Imports>, String>> =
    LazyLock::new(|| link().map_err(|error| format!("{error:#}")));

fn link() -> wasmtime::Result<CorePre<Imports>> {
    let mut config = Config::new();
    // Every call is synchronous, and a synchronous call costs 138 ns without concurrency support and 500 ns with it.
    config.concurrency_support(false);
    let engine = Engine::new(&config)?;
    let component = load(&engine)?;
    let mut linker = Linker::new(&engine);
    component::add_to_linker(&mut linker, |imports: &mut Imports| imports.ids.view())?;
    CorePre::new(linker.instantiate_pre(&component)?)
}

/// The component as machine code: as it was compiled ahead of time, else compiled now.
#[cfg(feature = "precompiled")]
fn load(engine: &Engine) -> wasmtime::Result<Component> {
    #[expect(unsafe_code, reason = "machine code is trusted, and there is no safe way to say so")]
    // SAFETY: the bytes are wasmtime's own, made of the component by the build script of `unalike-artifact` and part of
    // this program since: whoever can change them can change the program. Another version's or engine's are refused.
    let precompiled = unsafe { Component::deserialize(engine, unalike_artifact::CORE_PRECOMPILED) };
    #[cfg(feature = "compiler")]
    let precompiled = precompiled.or_else(|error| {
        tracing::warn!(error = format!("{error:#}"), "the precompiled component is not usable, so it is compiled now");
        Component::new(engine, unalike_artifact::CORE)
    });
    precompiled
}

/// The component, compiled now.
#[cfg(all(feature = "compiler", not(feature = "precompiled")))]
fn load(engine: &Engine) -> wasmtime::Result<Component> {
    Component::new(engine, unalike_artifact::CORE)
}

/// A new instance with memory of its own.
pub(crate) fn instantiate(imports: Imports) -> Result<(Store<Imports>, Core), Error> {
    let linked = LINKED.as_ref().map_err(|reason| ErrorKind::Component { reason: reason.clone() })?;
    let mut store = Store::new(linked.engine(), imports);
    store.limiter(|imports| imports.limits());
    // Every open generator is a handle, and one beyond wasmtime's 100,000 would trap. The memory is what limits them.
    store.set_max_component_handles(usize::MAX);
    let core = linked.instantiate(&mut store).map_err(|error| ErrorKind::Component { reason: format!("{error:#}") })?;
    Ok((store, core))
}
