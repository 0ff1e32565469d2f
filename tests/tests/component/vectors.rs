//! The conformance vectors of `tests/vectors`, against the native core and against the components in wasmtime.
#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a helper of a test that cannot do its work fails the test"
)]

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use unalike::component::IdsCtx;
use unalike_vectors::{Imports, Native, Outcome, Thrown, World, run};

mod dynamic;
mod library;

use dynamic::{Both, Host, Wasmtime};
use library::{Library, NativeLibrary};

/// The components in wasmtime, over the library's host. The script only keeps a record.
struct LibraryInWasmtime {
    imports: Arc<Mutex<Imports>>,
    library: Arc<Library>,
    instances: Vec<Both<Recorded>>,
    /// For the instance that takes the place of one that was given up.
    successor: Option<IdsCtx>,
}

impl LibraryInWasmtime {
    fn newest(&mut self) -> &mut Both<Recorded> {
        self.instances.last_mut().unwrap()
    }
}

impl World for LibraryInWasmtime {
    fn new(imports: Arc<Mutex<Imports>>) -> Self {
        Self { imports, library: Arc::new(Library::new()), instances: Vec::new(), successor: None }
    }

    fn begin(&mut self) {
        // A forked child has nothing of its parent's.
        let inherited = if self.instances.is_empty() { self.successor.take() } else { None };
        let ids = inherited.unwrap_or_else(|| self.library.context());
        let (imports, library) = (Arc::clone(&self.imports), Arc::clone(&self.library));
        self.instances.push(Both::new(Recorded { imports, library, ids }));
    }

    fn end(&mut self) {
        let ended = self.instances.pop();
        if self.instances.is_empty() {
            self.successor = ended.map(|ended| ended.core.store.data().ids.successor());
        }
    }

    fn answered(&mut self, ticket: u64, answer: &Value) {
        self.library.answer(ticket, answer);
    }

    fn poll(&mut self, import: &str, ticket: u64) -> Option<Value> {
        let Recorded { library, ids, .. } = self.newest().core.store.data_mut();
        Some(library.poll(ids, import, library.ticket(ticket)))
    }

    fn floors(&self) -> Option<Value> {
        let Recorded { library, ids, .. } = self.instances.last().unwrap().core.store.data();
        Some(library.floors(ids))
    }

    fn call(&mut self, call: &str, on: &str, args: &Value) -> Outcome {
        let outcome = self.newest().call(call, on, args);
        self.library.drive();
        outcome
    }

    fn drop_resource(&mut self, on: &str) {
        self.newest().drop_resource(on);
    }
}

/// The library's context as an instance's host, of which the script keeps a record.
struct Recorded {
    imports: Arc<Mutex<Imports>>,
    library: Arc<Library>,
    ids: IdsCtx,
}

impl Host for Recorded {
    fn request(&mut self, import: &'static str, args: Value) -> Result<u64, Thrown> {
        let ticket = self.imports.request(import, args.clone())?;
        Ok(self.library.request(&mut self.ids, import, &args, ticket))
    }

    fn release(&mut self, import: &'static str, args: Value) -> Result<(), Thrown> {
        self.imports.release(import, args.clone())?;
        self.library.release(&mut self.ids, import, &args);
        Ok(())
    }

    fn poll(&mut self, import: &'static str, ticket: u64) -> Result<Value, Thrown> {
        self.imports.lock().unwrap_or_else(PoisonError::into_inner).throw(import)?;
        Ok(self.library.poll(&mut self.ids, import, ticket))
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
    conforms::<Wasmtime>()
}

#[test]
fn the_library_conforms() -> Result<()> {
    library_conforms::<LibraryInWasmtime>()
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
