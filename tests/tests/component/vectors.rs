//! The conformance vectors of `tests/vectors`, against the native core and against the components in wasmtime.
//!
//! The host here is dynamic: it makes values from JSON by the types that the component itself declares, so it knows
//! nothing of what the functions do.
#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a helper of a test that cannot do its work fails the test"
)]

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value, json};
use unalike::component::IdsCtx;
use unalike_vectors::{Imports, Native, Outcome, Thrown, World, run};
use wasmtime::component::{Component, Func, Instance, Linker, ResourceAny, Type, Val};
use wasmtime::{Config, Engine, Store};

static ENGINE: LazyLock<Engine> = LazyLock::new(|| {
    let mut config = Config::new();
    config.concurrency_support(false);
    Engine::new(&config).unwrap()
});
static CORE: LazyLock<Component> = LazyLock::new(|| Component::new(&ENGINE, unalike_artifact::CORE).unwrap());
static FORMATS: LazyLock<Component> = LazyLock::new(|| Component::new(&ENGINE, unalike_artifact::FORMATS).unwrap());

mod library;

use library::{Library, NativeLibrary};

/// What an instance's store keeps: what the library keeps for it, if it is the library's.
type Data = Option<IdsCtx>;

/// One instance of each component, made when it is first needed.
#[derive(Default)]
struct Both {
    core: Option<Live>,
    formats: Option<Live>,
    resources: HashMap<String, ResourceAny>,
    /// What the library has for it before it is made.
    context: Data,
}

struct Live {
    store: Store<Data>,
    instance: Instance,
    functions: HashMap<String, Func>,
}

/// The components in wasmtime, over the script's own host, or over the library's.
struct Wasmtime<const LIBRARY: bool> {
    imports: Arc<Mutex<Imports>>,
    library: Option<Arc<Library>>,
    instances: Vec<Both>,
    /// For the instance that takes the place of one that was given up.
    successor: Data,
}

impl<const LIBRARY: bool> World for Wasmtime<LIBRARY> {
    fn new(imports: Arc<Mutex<Imports>>) -> Self {
        let library = LIBRARY.then(|| Arc::new(Library::new()));
        Self { imports, library, instances: Vec::new(), successor: None }
    }

    fn begin(&mut self) {
        // A forked child has nothing of its parent's.
        let inherited = if self.instances.is_empty() { self.successor.take() } else { None };
        let context = inherited.or_else(|| self.library.as_ref().map(|library| library.context()));
        self.instances.push(Both { context, ..Both::default() });
    }

    fn end(&mut self) {
        let ended = self.instances.pop();
        if self.instances.is_empty() {
            self.successor = ended.as_ref().and_then(Both::context).map(IdsCtx::successor);
        }
    }

    fn answered(&mut self, ticket: u64, answer: &Value) {
        if let Some(library) = &self.library {
            library.answer(ticket, answer);
        }
    }

    fn poll(&mut self, import: &str, ticket: u64) -> Option<Value> {
        let library = self.library.as_ref()?;
        let Both { core, context, .. } = self.instances.last_mut().unwrap();
        let ids = core.as_mut().map_or(context.as_mut(), |live| live.store.data_mut().as_mut());
        Some(library.poll(ids.unwrap(), import, library.ticket(ticket)))
    }

    fn floors(&self) -> Option<Value> {
        let ids = self.instances.last().unwrap().context()?;
        self.library.as_ref().map(|library| library.floors(ids))
    }

    fn call(&mut self, call: &str, on: &str, args: &Value) -> Outcome {
        let (imports, library) = (&self.imports, &self.library);
        let Both { core, formats, resources, context } = self.instances.last_mut().unwrap();
        let live = if call.starts_with("codec.") || call.starts_with("format.") {
            formats.get_or_insert_with(|| Live::new(&FORMATS, &Linker::new(&ENGINE), None))
        } else {
            core.get_or_insert_with(|| Live::new(&CORE, &linker(imports, library.as_ref()), context.take()))
        };
        let function = live.function(call);
        let ty = function.ty(&live.store);
        let is_method = ty.params().next().is_some_and(|(name, _)| name == "self");
        let mut given = Map::clone(args.as_object().unwrap());
        let params: Vec<Val> = ty
            .params()
            .map(|(name, ty)| match name {
                "self" if is_method => Val::Resource(resources[on]),
                name => value(&given.remove(name).unwrap(), &ty),
            })
            .collect();
        assert!(given.is_empty(), "{call} has no {given:?}");
        let mut results = vec![Val::Bool(false); ty.results().len()];
        let outcome = function.call(&mut live.store, &params, &mut results);
        if let Some(library) = library {
            library.drive();
        }
        if outcome.is_err() {
            return Outcome::Trapped;
        }
        let result = results.pop();
        if let Some(Val::Result(Ok(Some(opened)))) = &result
            && let Val::Resource(resource) = **opened
        {
            assert!(resources.insert(on.to_owned(), resource).is_none(), "{on} is open already");
        }
        Outcome::Returned(result.map(|result| json_of(&result)))
    }

    fn drop_resource(&mut self, on: &str) {
        let Both { core, resources, .. } = self.instances.last_mut().unwrap();
        resources.remove(on).unwrap().resource_drop(&mut core.as_mut().unwrap().store).unwrap();
    }
}

impl Both {
    /// What the library keeps for it.
    fn context(&self) -> Option<&IdsCtx> {
        self.core.as_ref().map_or(self.context.as_ref(), |live| live.store.data().as_ref())
    }
}

impl Live {
    fn new(component: &Component, linker: &Linker<Data>, context: Data) -> Self {
        let mut store = Store::new(&ENGINE, context);
        let instance = linker.instantiate(&mut store, component).unwrap();
        Self { store, instance, functions: HashMap::new() }
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

/// The imports by their names, over the script's host; or over the library's, of which the script only keeps a record.
fn linker(imports: &Arc<Mutex<Imports>>, library: Option<&Arc<Library>>) -> Linker<Data> {
    let mut linker = Linker::new(&ENGINE);
    for (import, params) in [
        ("segments.allocate", &["tag", "count", "at-least"][..]),
        ("segments.release", &["tag", "start", "version"]),
        ("segments.poll", &["ticket"]),
        ("leases.acquire", &["namespace", "layout", "now", "horizon-ms"]),
        ("leases.extend", &["namespace", "layout", "worker", "grant-id", "now", "horizon-ms"]),
        ("leases.release", &["namespace", "worker", "grant-id", "end"]),
        ("leases.poll", &["ticket"]),
    ] {
        let (interface, function) = import.split_once('.').unwrap();
        let (imports, library) = (Arc::clone(imports), library.cloned());
        let mut instance = linker.instance(&format!("unalike:ids/{interface}@0.1.0")).unwrap();
        let define = move |mut store: wasmtime::StoreContextMut<'_, Data>,
                           ty: wasmtime::component::types::ComponentFunc,
                           given: &[Val],
                           results: &mut [Val]| {
            let args: Map<String, Value> =
                params.iter().map(|name| (*name).to_owned()).zip(given.iter().map(json_of)).collect();
            assert_eq!(args.len(), given.len(), "{import} has other parameters");
            let mut imports = imports.lock().unwrap_or_else(PoisonError::into_inner);
            let thrown = |_: Thrown| wasmtime::Error::msg("the import throws");
            let mut library = library.as_ref().zip(store.data_mut().as_mut());
            match (import, given) {
                (_, [Val::U64(ticket)]) => {
                    let answer = match &mut library {
                        Some((library, ids)) => {
                            imports.throw(import).map_err(thrown)?;
                            library.poll(ids, import, *ticket)
                        }
                        None => imports.poll(import, *ticket).map_err(thrown)?,
                    };
                    results[0] = value(&answer, &ty.results().next().unwrap());
                }
                ("segments.release" | "leases.release", _) => {
                    let args = Value::Object(args);
                    imports.release(import, args.clone()).map_err(thrown)?;
                    if let Some((library, ids)) = &mut library {
                        library.release(ids, import, &args);
                    }
                }
                _ => {
                    let args = Value::Object(args);
                    let ticket = imports.request(import, args.clone()).map_err(thrown)?;
                    results[0] = Val::U64(match &mut library {
                        Some((library, ids)) => library.request(ids, import, &args, ticket),
                        None => ticket,
                    });
                }
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

/// The files of the folder that are scripts of calls of the component, with their names.
fn scripts() -> Result<Vec<(String, String)>> {
    let rules = unalike_vectors::rules();
    let is_script = |name: &String| rules.iter().all(|(rules, _)| rules != name);
    Ok(files()?.into_iter().filter(|(name, _)| is_script(name)).collect())
}

/// The files of the folder, with their names.
fn files() -> Result<Vec<(String, String)>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors");
    let mut files = Vec::new();
    for entry in std::fs::read_dir(&folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "json") {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            files.push((name, std::fs::read_to_string(&path)?));
        }
    }
    files.sort();
    Ok(files)
}

#[test]
fn the_files_are_what_the_native_core_answers() -> Result<()> {
    let made = unalike_vectors::files();
    let read = files()?;
    let names: Vec<&str> = read.iter().map(|(name, _)| name.as_str()).collect();
    for (name, text) in &made {
        let known = read.iter().find(|(known, _)| known == name).with_context(|| format!("there is no {name}"))?;
        ensure!(known.1 == *text, "{name} is not what `cargo run -p unalike-vectors -- write` writes");
    }
    ensure!(names.len() == made.len(), "nothing makes one of {names:?}");
    let bytes: usize = read.iter().map(|(_, text)| text.len()).sum();
    ensure!(bytes < 1_000_000, "the files have {bytes} bytes: fewer steps say the same");
    Ok(())
}

#[test]
fn the_native_core_conforms() -> Result<()> {
    conforms::<Native>()
}

#[test]
fn the_components_conform() -> Result<()> {
    conforms::<Wasmtime<false>>()
}

#[test]
fn the_library_conforms() -> Result<()> {
    library_conforms::<Wasmtime<true>>()
}

#[test]
fn the_library_conforms_without_wasmtime() -> Result<()> {
    library_conforms::<NativeLibrary>()
}

fn library_conforms<W: World>() -> Result<()> {
    let mut vectors = 0;
    for (name, text) in scripts()? {
        for vector in alone(&text)? {
            let text = vector.to_string();
            // A stripe that repeats itself is refused by the library, which knows what predecessors were granted; the
            // component never sees the grant.
            let steps = vector["vectors"][0]["steps"].as_array().unwrap();
            let has_stripes =
                steps.iter().any(|step| step["with"]["ok"]["stride"].as_str().is_some_and(|it| it != "1"));
            if !(has_stripes && text.contains(r#""grant-refused":"overlap""#)) {
                vectors += run::<W>(&name, &text).map_err(anyhow::Error::msg)?;
            }
        }
    }
    ensure!(vectors > 250, "{vectors} vectors are not all there are");
    Ok(())
}

fn conforms<W: World>() -> Result<()> {
    let mut vectors = 0;
    for (name, text) in scripts()? {
        vectors += run::<W>(&name, &text).map_err(anyhow::Error::msg)?;
    }
    ensure!(vectors > 250, "{vectors} vectors are not all there are");
    Ok(())
}

/// Each vector alone, as a file of its own.
fn alone(file: &str) -> Result<Vec<Value>> {
    let mut file: Value = serde_json::from_str(file)?;
    let vectors = file["vectors"].take();
    let alone = |vector: &Value| {
        let mut alone = file.clone();
        alone["vectors"] = json!([vector]);
        alone
    };
    Ok(vectors.as_array().context("no vectors")?.iter().map(alone).collect())
}

/// Paths to what steps say is seen: numbers, names, truths.
fn seen_leaves(steps: &Value, path: &str, leaves: &mut Vec<String>) {
    for (at, step) in steps.as_array().into_iter().flatten().enumerate() {
        for (key, value) in step.as_object().unwrap() {
            let path = format!("{path}/{at}/{key}");
            match key.as_str() {
                "fork" => seen_leaves(value, &path, leaves),
                "returns" | "imports" | "floors" | "used-until" | "dropped" | "refused" | "traps" => {
                    all_leaves(value, &path, leaves);
                }
                _ => {}
            }
        }
    }
}

fn all_leaves(value: &Value, path: &str, leaves: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(key, value)| all_leaves(value, &format!("{path}/{key}"), leaves))
        }
        Value::Array(values) => {
            values.iter().enumerate().for_each(|(at, value)| all_leaves(value, &format!("{path}/{at}"), leaves));
        }
        Value::Null => {}
        _ => leaves.push(path.to_owned()),
    }
}

/// Another value, as near as can be.
fn changed(value: &Value) -> Value {
    match value {
        Value::Bool(truth) => json!(!truth),
        Value::Number(number) => json!(number.as_u64().map_or(0, |number| number ^ 1)),
        Value::String(text) => match text.parse::<u64>() {
            Ok(number) => json!((number ^ 1).to_string()),
            Err(_) => json!(format!("{text}-")),
        },
        other => panic!("{other} is no leaf"),
    }
}

#[test]
fn a_vector_with_one_number_changed_fails() -> Result<()> {
    let mut changes = 0;
    for (name, text) in scripts()? {
        for vector in alone(&text)? {
            let mut leaves = Vec::new();
            seen_leaves(&vector["vectors"][0]["steps"], "/vectors/0/steps", &mut leaves);
            // A step has a dozen; one of each dozen or so, another one in each vector.
            for leaf in leaves.iter().skip(changes % 7).step_by(7) {
                // Names of tickets are bound, not compared, up to where they are used.
                if leaf.ends_with("/ticket") {
                    continue;
                }
                let mut vector = vector.clone();
                let value = vector.pointer_mut(leaf).unwrap();
                *value = changed(value);
                let outcome = run::<Native>(&name, &vector.to_string());
                ensure!(
                    outcome.is_err(),
                    "{name}, {}: {leaf} can be {value}",
                    vector["vectors"][0]["name"],
                    value = vector.pointer(leaf).unwrap()
                );
                changes += 1;
            }
        }
    }
    ensure!(changes > 1_000, "{changes} changes are not all there are");
    Ok(())
}

/// Plays a file against one world.
type Play = fn(&str, &str) -> Result<usize, String>;

/// A host with a defect, of those that hosts have had.
struct Defective<const DEFECT: usize>(Native);

/// By their numbers: what they do to a call, and to what it returns.
const DEFECTS: [&str; 6] = [
    "asks for one more than it was told",
    "counts time in seconds",
    "hands numbers through a double",
    "loses the last of a run",
    "signs what has 64 bits",
    "takes an error for nothing",
];

impl<const DEFECT: usize> Defective<DEFECT> {
    fn before(args: &mut Value) {
        match DEFECT {
            0 => {
                for name in ["max", "count"] {
                    if let Some(count) = args.get(name).and_then(Value::as_u64) {
                        args[name] = json!((count + 1).min(u64::from(u32::MAX)));
                    }
                }
            }
            1 => each_number(args, "now", &|number| number / 1_000 * 1_000),
            _ => {}
        }
    }

    fn after(returned: &mut Value) {
        match DEFECT {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_precision_loss,
                clippy::cast_sign_loss,
                reason = "the defect itself"
            )]
            2 => each_number(returned, "", &|number| number as f64 as u64),
            3 => {
                if let Some(count) = returned.pointer_mut("/ok/count") {
                    *count = json!(count.as_u64().map_or(0, |count| count - 1));
                }
            }
            4 => each_number(returned, "", &|number| number & (u64::MAX >> 1)),
            5 if returned.get("err").is_some() => *returned = json!({ "ok": null }),
            _ => {}
        }
    }
}

/// Changes the 64-bit numbers of this name; all of them without one.
fn each_number(value: &mut Value, name: &str, change: &dyn Fn(u64) -> u64) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match value.as_str().and_then(|text| text.parse().ok()) {
                    Some(number) if name.is_empty() || key == name => *value = json!(change(number).to_string()),
                    _ => each_number(value, name, change),
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| each_number(value, name, change)),
        _ => {}
    }
}

impl<const DEFECT: usize> World for Defective<DEFECT> {
    fn new(imports: Arc<Mutex<Imports>>) -> Self {
        Self(Native::new(imports))
    }

    fn begin(&mut self) {
        self.0.begin();
    }

    fn end(&mut self) {
        self.0.end();
    }

    fn call(&mut self, call: &str, on: &str, args: &Value) -> Outcome {
        let mut args = args.clone();
        Self::before(&mut args);
        match self.0.call(call, on, &args) {
            Outcome::Returned(Some(mut returned)) => {
                Self::after(&mut returned);
                Outcome::Returned(Some(returned))
            }
            other => other,
        }
    }

    fn drop_resource(&mut self, on: &str) {
        self.0.drop_resource(on);
    }
}

#[test]
fn a_host_with_a_defect_fails() -> Result<()> {
    let defective: [Play; DEFECTS.len()] = [
        run::<Defective<0>>,
        run::<Defective<1>>,
        run::<Defective<2>>,
        run::<Defective<3>>,
        run::<Defective<4>>,
        run::<Defective<5>>,
    ];
    for (name, text) in scripts()? {
        if !["sequences.json", "snowflakes.json"].contains(&name.as_str()) {
            continue;
        }
        for (what, run) in DEFECTS.iter().zip(defective) {
            // A panic of the script is a failure, too.
            let outcome = std::panic::catch_unwind(|| run(&name, &text));
            ensure!(!matches!(outcome, Ok(Ok(_))), "{name}: a host that {what} passes");
        }
    }
    Ok(())
}

/// The functions that the components export, and the cases of all enums and variants, as the WIT files name them.
fn names_of_the_wit() -> Result<(Vec<String>, Vec<String>)> {
    let (mut functions, mut cases) = (Vec::new(), Vec::new());
    for entry in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../wit"))? {
        let path = entry?.path();
        if path.extension().is_none_or(|end| end != "wit") {
            continue;
        }
        let (mut resource, mut is_of_cases) = (None, false);
        // Neither exported by the components, which import the first two and are behind the third.
        let is_others = ["segments.wit", "leases.wit", "async-sequences.wit"].iter().any(|file| path.ends_with(file));
        for line in std::fs::read_to_string(&path)?.lines() {
            let line = line.trim();
            let word = line.split([':', ',', '(', ' ']).next().unwrap_or_default().trim_start_matches('%').to_owned();
            if line.starts_with("//") {
                continue;
            } else if line.ends_with('{') {
                is_of_cases = word == "enum" || word == "variant";
                resource =
                    line.strip_prefix("resource ").map(|rest| rest.trim_end_matches(" {").to_owned()).or(resource);
            } else if line.starts_with('}') {
                is_of_cases = false;
            } else if line.contains(" func(") && !is_others {
                functions.push(format!("{}.{word}", resource.as_deref().unwrap_or("codec")));
            } else if is_of_cases {
                cases.push(word);
            }
        }
    }
    Ok((functions, cases))
}

#[test]
fn every_function_and_every_case_of_the_wit_occurs() -> Result<()> {
    let (functions, cases) = names_of_the_wit()?;
    ensure!(functions.len() == 25 && cases.len() == 74, "{functions:?}, {cases:?}");
    let all: String = files()?.into_iter().map(|(_, text)| text).collect();
    for function in functions {
        ensure!(all.contains(&format!(r#""call":"{function}""#)), "no vector calls {function}");
    }
    for case in cases {
        // As a value, or as the key of one.
        let occurs = [format!(r#":"{case}""#), format!(r#"{{"{case}":"#), format!(r#","{case}"]"#)];
        ensure!(occurs.iter().any(|text| all.contains(text)), "no vector has the case {case}");
    }
    Ok(())
}

#[test]
fn ids_of_others_are_read_as_they_were_published() -> Result<()> {
    let (_, texts) = files()?.into_iter().find(|(name, _)| name == "texts.json").context("no texts.json")?;
    let texts: Value = serde_json::from_str(&texts)?;
    for other in texts["others"].as_array().context("no others")? {
        let (text, unix_ms) = (other["text"].as_str().unwrap(), other["unix-ms"].as_str().unwrap());
        let read = match other["kind"].as_str().unwrap() {
            "ulid" => text.parse::<unalike_notation::Ulid>()?.unix_ms(),
            // Its first 48 bits.
            "uuid-v7" => u64::from_str_radix(&text.replace('-', "")[..12], 16)?,
            kind => anyhow::bail!("what is {kind}?"),
        };
        ensure!(read.to_string() == unix_ms, "{text} was made at {read}");
    }
    Ok(())
}
