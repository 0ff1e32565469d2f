//! The components in wasmtime, whose functions take and give Python's values by their types.
//!
//! In Python a record is a dictionary under its WIT names, an enum a text, a variant its name or `{name: value}`, a
//! result `{"ok": value}` or `{"err": value}`, an option `None` or the value, a list a list, and a resource a
//! [`Handle`].
//!
//! A call keeps the interpreter's lock but where an import runs Python: it takes a microsecond, and nothing in it
//! waits. So nobody forks while another thread holds a lock of wasmtime's, which a child would find held for ever.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError, TryLockError};

use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyDict, PyList, PyNotImplemented, PyTuple, PyType};
use wasmtime::component::{Component, Func, Linker, ResourceAny, Type, Val, types};
use wasmtime::{Engine, Store, StoreContextMut, StoreLimits, StoreLimitsBuilder};

use crate::ending::Inside;

/// An instance with 100,000 open tags needs well under this many bytes of memory.
const MEMORY_MAX: usize = 1 << 30;

/// The components, each loaded at its first use: machine code that was compiled with this library.
static CORE: PyOnceLock<Component> = PyOnceLock::new();
static FORMATS: PyOnceLock<Component> = PyOnceLock::new();
static ENGINE: PyOnceLock<Engine> = PyOnceLock::new();

fn engine(py: Python<'_>) -> PyResult<&Engine> {
    ENGINE.get_or_try_init(py, || {
        // As the code was compiled.
        Engine::new(&unalike::component::engine_config()).map_err(failed)
    })
}

fn loaded<'py>(py: Python<'py>, place: &'py PyOnceLock<Component>, code: &[u8]) -> PyResult<&'py Component> {
    place.get_or_try_init(py, || {
        let engine = engine(py)?;
        #[expect(unsafe_code, reason = "machine code is trusted, and there is no safe way to say so")]
        // SAFETY: the bytes are wasmtime's own, made of the component by the build script of `unalike-artifact` and
        // part of this library since: whoever can change them can change the library.
        let component = unsafe { Component::deserialize(engine, code) };
        component.map_err(failed)
    })
}

fn failed(error: wasmtime::Error) -> PyErr {
    PyRuntimeError::new_err(format!("{error:#}"))
}

/// A resource of an instance.
#[pyclass(frozen, module = "unalike._native")]
#[derive(Clone, Copy)]
pub(crate) struct Handle(ResourceAny);

/// An instance of a component. One thread at a time calls it.
#[pyclass(frozen, module = "unalike._native")]
pub(crate) struct Instance(Mutex<Option<Live>>);

struct Live {
    store: Store<Data>,
    functions: HashMap<String, (Func, Vec<Type>, bool)>,
}

/// What the imports of an instance share with whoever calls it.
struct Data {
    limits: StoreLimits,
    /// What an import raised: the call ends with a trap, and this is its cause.
    raised: Option<PyErr>,
}

#[pymethods]
impl Instance {
    /// An instance of the component that decides ids; `imports` are called for its imports, by names such as
    /// `segments.allocate`.
    #[staticmethod]
    fn core(
        py: Python<'_>,
        imports: HashMap<String, Py<PyAny>>,
        exports: HashMap<String, (String, String)>,
    ) -> PyResult<Self> {
        let component = loaded(py, &CORE, unalike_artifact::CORE_PRECOMPILED)?;
        let mut linker = Linker::new(engine(py)?);
        for (name, act) in imports {
            let (interface, function) = name.split_once('.').unwrap_or(("", &name));
            let mut instance = linker.instance(&interface_name(interface)).map_err(failed)?;
            instance.func_new(function, import(act)).map_err(failed)?;
        }
        Ok(Self(Mutex::new(Some(Live::new(component, &linker, &exports)?))))
    }

    /// An instance of the component that reads and writes ids.
    #[staticmethod]
    fn formats(py: Python<'_>, exports: HashMap<String, (String, String)>) -> PyResult<Self> {
        let component = loaded(py, &FORMATS, unalike_artifact::FORMATS_PRECOMPILED)?;
        Ok(Self(Mutex::new(Some(Live::new(component, &Linker::new(engine(py)?), &exports)?))))
    }

    /// Calls a function by its name, such as `sequence.open`. `NotImplemented`: the interpreter is about to end this
    /// thread, for which nothing else may be made any more.
    fn call<'py>(&self, py: Python<'py>, name: &str, arguments: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
        let Some(_inside) = Inside::enter() else { return Ok(PyNotImplemented::get(py).to_owned().into_any()) };
        self.with(|live| {
            let (function, types, has_result) =
                live.functions.get(name).ok_or_else(|| PyTypeError::new_err(format!("no function is named {name}")))?;
            if types.len() != arguments.len() {
                return Err(PyTypeError::new_err(format!("{name} takes {} arguments", types.len())));
            }
            let given: Vec<Val> = types
                .iter()
                .zip(arguments.iter_borrowed())
                .map(|(ty, value)| lower(&value, ty))
                .collect::<PyResult<_>>()?;
            let mut results = vec![Val::Bool(false); usize::from(*has_result)];
            let called = function.call(&mut live.store, &given, &mut results);
            live.not_trapped(py, called)?;
            results.first().map_or_else(|| Ok(py.None().into_bound(py)), |result| lift(py, result))
        })
    }

    /// Drops a resource without closing it.
    fn drop_resource(&self, py: Python<'_>, handle: &Bound<'_, Handle>) -> PyResult<()> {
        let Handle(handle) = *handle.get();
        self.with(|live| {
            let dropped = handle.resource_drop(&mut live.store);
            live.not_trapped(py, dropped)
        })
    }

    /// Nobody calls it any more. Where somebody is in a call, it goes with the last one who has it.
    fn give_up(&self) {
        let live = match self.0.try_lock() {
            Ok(mut live) => live.take(),
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner().take(),
            Err(TryLockError::WouldBlock) => None,
        };
        drop(live);
    }
}

impl Instance {
    fn with<T>(&self, act: impl FnOnce(&mut Live) -> PyResult<T>) -> PyResult<T> {
        let mut live = match self.0.try_lock() {
            Ok(live) => live,
            // A panic has left wasm that nobody may enter again, which wasmtime says.
            Err(TryLockError::Poisoned(poisoned)) => PoisonError::into_inner(poisoned),
            Err(TryLockError::WouldBlock) => return Err(PyRuntimeError::new_err("the component is in a call")),
        };
        act(live.as_mut().ok_or_else(|| PyRuntimeError::new_err("the component was given up"))?)
    }
}

impl Live {
    fn new(
        component: &Component,
        linker: &Linker<Data>,
        exports: &HashMap<String, (String, String)>,
    ) -> PyResult<Self> {
        let limits = StoreLimitsBuilder::new().memory_size(MEMORY_MAX).build();
        let mut store = Store::new(component.engine(), Data { limits, raised: None });
        store.limiter(|data| &mut data.limits);
        // Every open generator is a handle, and one beyond wasmtime's 100,000 would trap. The memory is what limits
        // them.
        store.set_max_component_handles(usize::MAX);
        let instance = linker.instantiate(&mut store, component).map_err(failed)?;
        let mut functions = HashMap::new();
        for (name, (interface, function)) in exports {
            let interface = instance.get_export_index(&mut store, None, &interface_name(interface));
            let index = interface.and_then(|of| instance.get_export_index(&mut store, Some(&of), function));
            let found = index.and_then(|index| instance.get_func(&mut store, index));
            let found = found.ok_or_else(|| PyTypeError::new_err(format!("the component has no {name}")))?;
            let ty = found.ty(&store);
            let types = ty.params().map(|(_, ty)| ty).collect();
            functions.insert(name.clone(), (found, types, ty.results().len() > 0));
        }
        Ok(Self { store, functions })
    }

    /// What a call brought, or a `unalike._component.Trap`, whose cause is what an import raised.
    fn not_trapped<T>(&mut self, py: Python<'_>, called: wasmtime::Result<T>) -> PyResult<T> {
        let raised = self.store.data_mut().raised.take();
        match (called, raised) {
            (Ok(brought), None) => Ok(brought),
            (_, Some(raised)) => {
                let said = raised.value(py).repr().map_or_else(|_| "something".to_owned(), |said| said.to_string());
                let trap = trap(py, format!("an import raised {said}"));
                trap.set_cause(py, Some(raised));
                Err(trap)
            }
            (Err(error), None) => Err(trap(py, error.root_cause().to_string())),
        }
    }
}

/// `unalike._component.Trap`.
fn trap(py: Python<'_>, reason: String) -> PyErr {
    static TRAP: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let made = TRAP.import(py, "unalike._component", "Trap").and_then(|class| class.call1((reason,)));
    made.map_or_else(|error| error, PyErr::from_value)
}

fn interface_name(interface: &str) -> String {
    format!("unalike:ids/{interface}@0.1.0")
}

/// Calls Python for an import. Nothing that it raises leaves wasm but as a trap.
fn import(
    act: Py<PyAny>,
) -> impl Fn(StoreContextMut<'_, Data>, types::ComponentFunc, &[Val], &mut [Val]) -> wasmtime::Result<()> + Send + Sync
{
    move |mut store, ty, given, results| {
        Python::attach(|py| {
            let answered = (|| {
                let given = given.iter().map(|value| lift(py, value)).collect::<PyResult<Vec<_>>>()?;
                let answer = act.bind(py).call1(PyTuple::new(py, given)?)?;
                if let (Some(place), Some(ty)) = (results.first_mut(), ty.results().next()) {
                    *place = lower(&answer, &ty)?;
                }
                Ok(())
            })();
            answered.map_err(|raised: PyErr| {
                store.data_mut().raised = Some(raised);
                wasmtime::Error::msg("an import of the host failed")
            })
        })
    }
}

/// A value for wasm. Its numbers fit, or it is refused.
fn lower(value: &Bound<'_, PyAny>, ty: &Type) -> PyResult<Val> {
    let misfit = || PyTypeError::new_err(format!("a {} stands where the component has {ty:?}", value.get_type()));
    let named = |name: &str| value.cast::<PyDict>().map_err(|_| misfit())?.get_item(name)?.ok_or_else(misfit);
    Ok(match ty {
        Type::Bool => Val::Bool(value.extract()?),
        Type::U8 => Val::U8(value.extract()?),
        Type::S16 => Val::S16(value.extract()?),
        Type::U32 => Val::U32(value.extract()?),
        Type::U64 => Val::U64(value.extract()?),
        Type::String => Val::String(value.extract()?),
        Type::Enum(_) => Val::Enum(value.extract()?),
        Type::Record(record) => {
            let fields =
                record.fields().map(|field| Ok((field.name.to_owned(), lower(&named(field.name)?, &field.ty)?)));
            Val::Record(fields.collect::<PyResult<_>>()?)
        }
        Type::Variant(variant) => {
            let (name, inner) = case_of(value)?.ok_or_else(misfit)?;
            let case = variant.cases().find(|case| case.name == name).ok_or_else(misfit)?;
            let inner = match (case.ty, inner) {
                (Some(ty), Some(inner)) => Some(Box::new(lower(&inner, &ty)?)),
                (None, None) => None,
                _ => return Err(misfit()),
            };
            Val::Variant(name, inner)
        }
        Type::Option(option) => {
            let some = if value.is_none() { None } else { Some(Box::new(lower(value, &option.ty())?)) };
            Val::Option(some)
        }
        Type::Result(result) => {
            let (name, inner) = case_of(value)?.ok_or_else(misfit)?;
            let is_ok = match name.as_str() {
                "ok" => true,
                "err" => false,
                _ => return Err(misfit()),
            };
            let inner = match (if is_ok { result.ok() } else { result.err() }, inner) {
                (Some(ty), Some(inner)) => Some(Box::new(lower(&inner, &ty)?)),
                (None, _) => None,
                (Some(_), None) => return Err(misfit()),
            };
            Val::Result(if is_ok { Ok(inner) } else { Err(inner) })
        }
        Type::List(list) => {
            let items = value.try_iter()?.map(|item| lower(&item?, &list.ty()));
            Val::List(items.collect::<PyResult<_>>()?)
        }
        Type::Own(_) | Type::Borrow(_) => Val::Resource(value.cast::<Handle>().map_err(|_| misfit())?.get().0),
        _ => return Err(misfit()),
    })
}

/// A case by its name, or by `{name: value}`.
fn case_of<'py>(value: &Bound<'py, PyAny>) -> PyResult<Option<(String, Option<Bound<'py, PyAny>>)>> {
    let Ok(dictionary) = value.cast::<PyDict>() else {
        return Ok(Some((value.extract()?, None)));
    };
    let mut items = dictionary.iter();
    Ok(match (items.next(), items.next()) {
        (Some((name, inner)), None) => Some((name.extract()?, Some(inner))),
        _ => None,
    })
}

/// A value of wasm in Python.
fn lift<'py>(py: Python<'py>, value: &Val) -> PyResult<Bound<'py, PyAny>> {
    let inner = |inner: &Option<Box<Val>>| match inner {
        Some(inner) => lift(py, inner),
        None => Ok(py.None().into_bound(py)),
    };
    let with = |name: &str, inner: Bound<'py, PyAny>| -> PyResult<Bound<'py, PyAny>> {
        let dictionary = PyDict::new(py);
        dictionary.set_item(name, inner)?;
        Ok(dictionary.into_any())
    };
    Ok(match value {
        Val::Bool(value) => PyBool::new(py, *value).to_owned().into_any(),
        Val::U8(number) => number.into_pyobject(py)?.into_any(),
        Val::S16(number) => number.into_pyobject(py)?.into_any(),
        Val::U16(number) => number.into_pyobject(py)?.into_any(),
        Val::U32(number) => number.into_pyobject(py)?.into_any(),
        Val::U64(number) => number.into_pyobject(py)?.into_any(),
        Val::String(text) | Val::Enum(text) => text.into_pyobject(py)?.into_any(),
        Val::Record(fields) => {
            let record = PyDict::new(py);
            for (name, value) in fields {
                record.set_item(name, lift(py, value)?)?;
            }
            record.into_any()
        }
        Val::Variant(name, None) => name.into_pyobject(py)?.into_any(),
        Val::Variant(name, Some(inner)) => with(name, lift(py, inner)?)?,
        Val::Option(option) => inner(option)?,
        Val::Result(Ok(value)) => with("ok", inner(value)?)?,
        Val::Result(Err(value)) => with("err", inner(value)?)?,
        Val::List(items) | Val::Tuple(items) => {
            let items = items.iter().map(|item| lift(py, item)).collect::<PyResult<Vec<_>>>()?;
            PyList::new(py, items)?.into_any()
        }
        Val::Resource(resource) => Bound::new(py, Handle(*resource))?.into_any(),
        other => return Err(PyTypeError::new_err(format!("the component answered {other:?}, which nobody reads"))),
    })
}
