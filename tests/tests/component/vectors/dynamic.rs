//! A host that knows nothing of what the functions of the components do: it makes values from JSON by the types that a
//! component itself declares.
//!
//! `tests/own-host` has this file, too, with another wasmtime.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use serde_json::{Map, Value, json};
use unalike::component::engine_config;
use unalike_vectors::{Imports, Outcome, Thrown, World};
use wasmtime::component::{Component, Func, Instance, Linker, ResourceAny, Type, Val};
use wasmtime::{Engine, Store};

static ENGINE: LazyLock<Engine> = LazyLock::new(|| Engine::new(&engine_config()).unwrap());
static CORE: LazyLock<Component> = LazyLock::new(|| Component::new(&ENGINE, unalike_artifact::CORE).unwrap());
static FORMATS: LazyLock<Component> = LazyLock::new(|| Component::new(&ENGINE, unalike_artifact::FORMATS).unwrap());

/// The components in wasmtime, over the script's own host.
pub(super) struct Wasmtime {
    script: Script,
    instances: Vec<Both<Script>>,
}

/// What the script's own host keeps.
type Script = Arc<Mutex<Imports>>;

impl World for Wasmtime {
    fn new(imports: Arc<Mutex<Imports>>) -> Self {
        Self { script: imports, instances: Vec::new() }
    }

    fn begin(&mut self) {
        self.instances.push(Both::new(Arc::clone(&self.script)));
    }

    fn end(&mut self) {
        self.instances.pop();
    }

    fn call(&mut self, call: &str, on: &str, args: &Value) -> Outcome {
        self.instances.last_mut().unwrap().call(call, on, args)
    }

    fn drop_resource(&mut self, on: &str) {
        self.instances.last_mut().unwrap().drop_resource(on);
    }
}

/// What carries out the imports of an instance, and is the data of its store.
pub(super) trait Host: 'static {
    /// A request is made: its ticket.
    fn request(&mut self, import: &'static str, args: Value) -> Result<u64, Thrown>;

    fn release(&mut self, import: &'static str, args: Value) -> Result<(), Thrown>;

    fn poll(&mut self, import: &'static str, ticket: u64) -> Result<Value, Thrown>;
}

impl Host for Script {
    fn request(&mut self, import: &'static str, args: Value) -> Result<u64, Thrown> {
        self.lock().unwrap_or_else(PoisonError::into_inner).request(import, args)
    }

    fn release(&mut self, import: &'static str, args: Value) -> Result<(), Thrown> {
        self.lock().unwrap_or_else(PoisonError::into_inner).release(import, args)
    }

    fn poll(&mut self, import: &'static str, ticket: u64) -> Result<Value, Thrown> {
        self.lock().unwrap_or_else(PoisonError::into_inner).poll(import, ticket)
    }
}

/// One instance of each component.
pub(super) struct Both<H: 'static> {
    pub(super) core: Live<H>,
    /// It imports nothing.
    formats: Live<()>,
}

impl<H: Host> Both<H> {
    pub(super) fn new(host: H) -> Self {
        Self { core: Live::new(&CORE, &linker(), host), formats: Live::new(&FORMATS, &Linker::new(&ENGINE), ()) }
    }

    pub(super) fn call(&mut self, call: &str, on: &str, args: &Value) -> Outcome {
        if call.starts_with("codec.") || call.starts_with("format.") {
            self.formats.call(call, on, args)
        } else {
            self.core.call(call, on, args)
        }
    }

    pub(super) fn drop_resource(&mut self, on: &str) {
        if self.core.resources.contains_key(on) {
            self.core.drop_resource(on);
        } else {
            self.formats.drop_resource(on);
        }
    }
}

/// One instance, with what was opened in it.
pub(super) struct Live<T: 'static> {
    pub(super) store: Store<T>,
    instance: Instance,
    functions: HashMap<String, Func>,
    resources: HashMap<String, ResourceAny>,
}

impl<T: 'static> Live<T> {
    fn new(component: &Component, linker: &Linker<T>, data: T) -> Self {
        let mut store = Store::new(&ENGINE, data);
        let instance = linker.instantiate(&mut store, component).unwrap();
        Self { store, instance, functions: HashMap::new(), resources: HashMap::new() }
    }

    fn call(&mut self, call: &str, on: &str, args: &Value) -> Outcome {
        let function = self.function(call);
        let ty = function.ty(&self.store);
        let is_method = ty.params().next().is_some_and(|(name, _)| name == "self");
        let mut given = Map::clone(args.as_object().unwrap());
        let params: Vec<Val> = ty
            .params()
            .map(|(name, ty)| match name {
                "self" if is_method => Val::Resource(self.resources[on]),
                name => value(&given.remove(name).unwrap(), &ty),
            })
            .collect();
        assert!(given.is_empty(), "{call} has no {given:?}");
        let mut results = vec![Val::Bool(false); ty.results().len()];
        if function.call(&mut self.store, &params, &mut results).is_err() {
            return Outcome::Trapped;
        }
        let result = results.pop();
        if let Some(Val::Result(Ok(Some(opened)))) = &result
            && let Val::Resource(resource) = **opened
        {
            assert!(self.resources.insert(on.to_owned(), resource).is_none(), "{on} is open already");
        }
        Outcome::Returned(result.map(|result| json_of(&result)))
    }

    fn drop_resource(&mut self, on: &str) {
        self.resources.remove(on).unwrap().resource_drop(&mut self.store).unwrap();
    }

    /// The export that a script calls `sequence.reserve`, for example.
    fn function(&mut self, call: &str) -> Func {
        if let Some(known) = self.functions.get(call) {
            return *known;
        }
        let (kind, function) = call.split_once('.').unwrap();
        let (interface, name) = match kind {
            "sequence" | "ordered" => ("sequences", None),
            "snowflake" => ("snowflakes", None),
            "format" => ("codec", None),
            _ => ("codec", Some(function.to_owned())),
        };
        let prefix = if function == "open" { "static" } else { "method" };
        let name = name.unwrap_or_else(|| format!("[{prefix}]{kind}.{function}"));
        let interface = format!("unalike:ids/{interface}@0.1.0");
        let interface = self.instance.get_export_index(&mut self.store, None, &interface).unwrap();
        let index = self.instance.get_export_index(&mut self.store, Some(&interface), &name);
        let index = index.unwrap_or_else(|| panic!("no component has {call}"));
        let found = self.instance.get_func(&mut self.store, index).unwrap();
        self.functions.insert(call.to_owned(), found);
        found
    }
}

/// The imports by their names, over the data of the store that calls them.
fn linker<H: Host>() -> Linker<H> {
    let mut linker = Linker::new(&ENGINE);
    for import in [
        "segments.allocate",
        "segments.release",
        "segments.poll",
        "leases.acquire",
        "leases.extend",
        "leases.release",
        "leases.poll",
    ] {
        let (interface, function) = import.split_once('.').unwrap();
        let mut instance = linker.instance(&format!("unalike:ids/{interface}@0.1.0")).unwrap();
        let define = move |mut store: wasmtime::StoreContextMut<'_, H>,
                           ty: wasmtime::component::types::ComponentFunc,
                           given: &[Val],
                           results: &mut [Val]| {
            let names = ty.params().map(|(name, _)| name.to_owned());
            let args = Value::Object(names.zip(given.iter().map(json_of)).collect());
            let thrown = |_: Thrown| wasmtime::Error::msg("the import throws");
            let host = store.data_mut();
            match (function, given) {
                ("poll", [Val::U64(ticket)]) => {
                    let answer = host.poll(import, *ticket).map_err(thrown)?;
                    results[0] = value(&answer, &ty.results().next().unwrap());
                }
                ("release", _) => host.release(import, args).map_err(thrown)?,
                _ => results[0] = Val::U64(host.request(import, args).map_err(thrown)?),
            }
            Ok(())
        };
        instance.func_new(function, define).unwrap();
    }
    linker
}

/// A value of this type, from JSON.
fn value(json: &Value, ty: &Type) -> Val {
    let boxed = |json: &Value, ty: Option<Type>| ty.map(|ty| Box::new(value(json, &ty)));
    let fits = |what: &str| panic!("{json} is no {what}");
    match ty {
        Type::U64 => json.as_str().and_then(|text| text.parse().ok()).map_or_else(|| fits("u64"), Val::U64),
        Type::U32 => number(json).map_or_else(|| fits("u32"), Val::U32),
        Type::U8 => number(json).map_or_else(|| fits("u8"), Val::U8),
        Type::S16 => number(json).map_or_else(|| fits("s16"), Val::S16),
        Type::String => Val::String(json.as_str().unwrap().to_owned()),
        Type::Enum(_) => Val::Enum(json.as_str().unwrap().to_owned()),
        Type::Record(record) => {
            assert_eq!(json.as_object().unwrap().len(), record.fields().len(), "{json}");
            Val::Record(
                record.fields().map(|field| (field.name.to_owned(), value(&json[field.name], &field.ty))).collect(),
            )
        }
        Type::Variant(variant) => {
            let (name, payload) = match json {
                Value::String(name) => (name, &Value::Null),
                _ => json.as_object().unwrap().iter().next().unwrap(),
            };
            let case = variant.cases().find(|case| case.name == name).unwrap();
            Val::Variant(name.clone(), boxed(payload, case.ty))
        }
        Type::Option(option) => Val::Option((!json.is_null()).then(|| Box::new(value(json, &option.ty())))),
        Type::Result(result) => Val::Result(match json.get("ok") {
            Some(ok) => Ok(boxed(ok, result.ok())),
            None => Err(boxed(&json["err"], result.err())),
        }),
        Type::List(list) => Val::List(json.as_array().unwrap().iter().map(|item| value(item, &list.ty())).collect()),
        ty => panic!("the WIT has no {ty:?}"),
    }
}

fn number<T: TryFrom<i64>>(json: &Value) -> Option<T> {
    json.as_i64().and_then(|number| T::try_from(number).ok())
}

/// A value as JSON, whatever its type.
fn json_of(value: &Val) -> Value {
    let payload = |value: &Option<Box<Val>>| value.as_deref().map_or(Value::Null, json_of);
    match value {
        Val::Bool(value) => json!(value),
        Val::U64(value) => json!(value.to_string()),
        Val::U32(value) => json!(value),
        Val::U8(value) => json!(value),
        Val::S16(value) => json!(value),
        Val::String(text) | Val::Enum(text) | Val::Variant(text, None) => json!(text),
        Val::Variant(name, value) => json!({ name: payload(value) }),
        Val::Option(value) => payload(value),
        Val::Result(Ok(value)) => json!({ "ok": payload(value) }),
        Val::Result(Err(value)) => json!({ "err": payload(value) }),
        Val::Record(fields) => fields.iter().map(|(name, value)| (name.clone(), json_of(value))).collect(),
        Val::Tuple(values) | Val::List(values) => values.iter().map(json_of).collect(),
        Val::Resource(_) => Value::Null,
        value => panic!("the WIT has no {value:?}"),
    }
}
