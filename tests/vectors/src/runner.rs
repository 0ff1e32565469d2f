//! Plays scripts: performs each step and sees what comes of it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value, json};

use crate::Imports;
use crate::json::{int, layout, line, long, number, text};

/// What a call came to.
#[derive(Debug)]
pub enum Outcome {
    /// It returned this; nothing from a function without a result.
    Returned(Option<Value>),
    /// It ended with a trap.
    Trapped,
}

/// What hosts instances of the components, or of what stands for them.
pub trait World {
    /// Whose instances call these imports.
    fn new(imports: Arc<Mutex<Imports>>) -> Self;

    /// Makes an instance. Those before stay as they are.
    fn begin(&mut self);

    /// Gives the newest instance up, and goes on with the one before.
    fn end(&mut self);

    /// Calls a function of the newest instance. `open` gives what it opens the name `on`.
    fn call(&mut self, call: &str, on: &str, args: &Value) -> Outcome;

    /// Drops a resource of the newest instance.
    fn drop_resource(&mut self, on: &str);

    /// The store's answer to this ticket arrived, whether or not anybody has it coming: for hosts with tables of their
    /// own.
    fn answered(&mut self, ticket: u64, answer: &Value) {
        let _ = (ticket, answer);
    }

    /// What the host's own `segments.poll` or `leases.poll` answers, if it has one.
    fn poll(&mut self, import: &str, ticket: u64) -> Option<Value> {
        let _ = (import, ticket);
        None
    }

    /// Where the host has the successors of tags begin, if it knows.
    fn floors(&self) -> Option<Value> {
        None
    }
}

/// Plays all vectors of a file. Answers how many there are.
///
/// # Errors
/// The first step that came out otherwise than the file says: the file, the vector, the step and both values.
pub fn run<W: World>(name: &str, file: &str) -> Result<usize, String> {
    let file: Value = serde_json::from_str(file).map_err(|error| format!("{name}: {error}"))?;
    if file["wit"] != "unalike:ids@0.1.0" {
        return Err(format!("{name} is of another WIT: {}", file["wit"]));
    }
    let vectors = file["vectors"].as_array().ok_or_else(|| format!("{name} has no vectors"))?;
    for vector in vectors {
        let mut player = Player::<W>::new();
        for (at, step) in vector["steps"].as_array().into_iter().flatten().enumerate() {
            let seen = player.perform(step);
            if let Some((path, seen, expected)) = difference(&seen, step) {
                let place = format!("{name}, {}, step {}", vector["name"], at + 1);
                return Err(format!("{place}, {path}:\n  seen     {seen}\n  expected {expected}\n  in {}", line(step)));
            }
        }
    }
    Ok(vectors.len())
}

/// Where two steps differ, and how.
fn difference(seen: &Value, expected: &Value) -> Option<(String, String, String)> {
    let (Value::Object(seen), Value::Object(expected)) = (seen, expected) else {
        return (seen != expected).then(|| (String::new(), seen.to_string(), expected.to_string()));
    };
    let keys = seen.keys().chain(expected.keys()).find(|key| seen.get(*key) != expected.get(*key))?;
    let show = |side: &Map<String, Value>| side.get(keys).map_or("nothing".to_owned(), line);
    Some((keys.clone(), show(seen), show(expected)))
}

/// What is known of an open generator.
struct Opened {
    name: String,
    layout: Option<unalike_core::Layout>,
}

/// Performs the steps of one vector.
pub(crate) struct Player<W> {
    world: W,
    imports: Arc<Mutex<Imports>>,
    /// Tickets by their names.
    tickets: BTreeMap<String, u64>,
    opened: BTreeMap<String, Opened>,
    used_until: BTreeMap<String, u64>,
    /// The instance has trapped.
    is_dead: bool,
}

impl<W: World> Player<W> {
    pub(crate) fn new() -> Self {
        let imports = Arc::<Mutex<Imports>>::default();
        let mut world = W::new(Arc::clone(&imports));
        world.begin();
        Self {
            world,
            imports,
            tickets: BTreeMap::new(),
            opened: BTreeMap::new(),
            used_until: BTreeMap::new(),
            is_dead: false,
        }
    }

    fn imports(&self) -> MutexGuard<'_, Imports> {
        self.imports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Performs a step: what it says to do, with what came of it.
    pub(crate) fn perform(&mut self, step: &Value) -> Value {
        let given = step.as_object().unwrap();
        let keep = |keys: &[&str]| {
            let kept = given.iter().filter(|(key, _)| keys.contains(&key.as_str()));
            kept.map(|(key, value)| (key.clone(), value.clone())).collect::<Map<String, Value>>()
        };
        let mut seen = keep(&["source", "by", "call", "on", "args", "throws", "answer", "with", "drop"]);
        if step.get("answer").is_some() {
            let ticket = self.tickets[text(step, "answer")];
            self.world.answered(ticket, &step["with"]);
            if !self.imports().answer(ticket, step["with"].clone()) {
                seen.insert("dropped".to_owned(), json!(true));
            }
        } else if step.get("drop").is_some() {
            self.world.drop_resource(text(step, "drop"));
        } else if step.get("rebuild").is_some() {
            seen.insert("rebuild".to_owned(), json!(true));
            let floors = self.world.floors().unwrap_or_else(|| self.imports().floors());
            seen.insert("floors".to_owned(), floors);
            let used = self.used_until.iter().map(|(namespace, until)| (namespace.clone(), int(*until)));
            seen.insert("used-until".to_owned(), Value::Object(used.collect()));
            self.world.end();
            self.imports().forget_tickets();
            self.world.begin();
            self.opened.clear();
            self.is_dead = false;
        } else if let Some(steps) = step.get("fork") {
            let parent = self.imports().begin_child();
            let outside = (std::mem::take(&mut self.opened), std::mem::take(&mut self.used_until));
            self.world.begin();
            let steps = steps.as_array().unwrap().iter().map(|step| self.perform(step)).collect();
            seen.insert("fork".to_owned(), Value::Array(steps));
            self.world.end();
            (self.opened, self.used_until) = outside;
            self.imports().end_child(parent);
        } else if step["call"].as_str().is_some_and(|call| call.ends_with(".poll")) {
            seen.insert("returns".to_owned(), self.poll(step));
        } else {
            self.call(step, &mut seen);
        }
        Value::Object(seen)
    }

    /// The host's own function is asked.
    fn poll(&mut self, step: &Value) -> Value {
        let name = text(&step["args"], "ticket");
        let ticket = self.tickets.get(name).copied().or_else(|| name.parse().ok()).unwrap();
        let import = if text(step, "call") == "segments.poll" { "segments.poll" } else { "leases.poll" };
        self.world.poll(import, ticket).unwrap_or_else(|| self.imports().poll(import, ticket).unwrap())
    }

    fn call(&mut self, step: &Value, seen: &mut Map<String, Value>) {
        let (call, on) = (text(step, "call"), step["on"].as_str().unwrap_or_default());
        assert!(!self.is_dead, "the instance has trapped: {}", line(step));
        let args = match step.get("by") {
            None => step["args"].clone(),
            Some(_) => match converted(&step["args"]) {
                Ok(args) => args,
                Err(refused) => {
                    seen.insert("refused".to_owned(), json!(refused));
                    return;
                }
            },
        };
        self.imports().set_throws(step["throws"].as_str());
        let outcome = self.world.call(call, on, &args);
        let calls = self.imports().take_calls();
        assert!(!self.imports().is_still_to_throw(), "nothing threw in {}", line(step));
        if !calls.is_empty() {
            let calls = calls.into_iter().map(|call| self.named(call)).collect();
            seen.insert("imports".to_owned(), Value::Array(calls));
        }
        match outcome {
            Outcome::Trapped => {
                self.is_dead = true;
                seen.insert("traps".to_owned(), json!(true));
            }
            Outcome::Returned(None) => {}
            Outcome::Returned(Some(returned)) => {
                self.note(call, on, &args, &returned);
                seen.insert("returns".to_owned(), returned);
            }
        }
    }

    /// Gives a request's ticket a name.
    fn named(&mut self, mut call: Value) -> Value {
        if let Some(ticket) = call.get("ticket").and_then(number) {
            let name = format!("t{}", self.tickets.len() + 1);
            let former = self.tickets.values().any(|known| *known == ticket);
            assert!(!former, "the ticket {ticket} came twice");
            call["ticket"] = json!(name);
            self.tickets.insert(name, ticket);
        }
        call
    }

    /// Keeps what a successor must know.
    fn note(&mut self, call: &str, on: &str, args: &Value, returned: &Value) {
        let Some(ok) = returned.get("ok") else { return };
        if let "sequence.open" | "ordered.open" | "snowflake.open" = call {
            let name = args["tag"].as_str().or(args["namespace"].as_str()).unwrap().to_owned();
            let layout = args["options"].get("layout").and_then(|fields| layout(fields).ok());
            self.opened.insert(on.to_owned(), Opened { name, layout });
        } else if call == "snowflake.reserve" {
            let Opened { name, layout } = &self.opened[on];
            let layout = layout.unwrap();
            let tick = layout.unpack(long(ok, "first")).unwrap().ticks;
            let until = self.used_until.entry(name.clone()).or_default();
            *until = layout.tick_start_ms(tick + 1).max(*until);
        }
    }
}

/// Numbers as people write them, as the WIT's: or the name of the first that is none. Lists and records have fields of
/// their own; words and texts stay.
fn converted(args: &Value) -> Result<Value, String> {
    const WORDS: [&str; 11] =
        ["tag", "namespace", "clock", "spread", "refill", "order", "input", "text", "template", "context", "restart"];
    let mut converted = Map::new();
    for (name, value) in args.as_object().unwrap() {
        let value = match value {
            Value::String(written) if !WORDS.contains(&name.as_str()) => {
                integer(name, written).ok_or_else(|| name.clone())?
            }
            Value::Object(_) => self::converted(value)?,
            other => other.clone(),
        };
        converted.insert(name.clone(), value);
    }
    Ok(Value::Object(converted))
}

/// A number in the width that its name has in the WIT.
fn integer(name: &str, written: &str) -> Option<Value> {
    match name {
        "max" | "count" => written.parse::<u32>().ok().filter(|count| *count > 0).map(|count| json!(count)),
        "prefetch" | "tick-ms" | "worker" | "sequence" => written.parse::<u32>().ok().map(|number| json!(number)),
        "share-consumed" | "rotating" | "random" => written.parse::<u8>().ok().map(|number| json!(number)),
        "utc-offset-minutes" => written.parse::<i16>().ok().map(|number| json!(number)),
        _ if name == "bits" || name.ends_with("-bits") => written.parse::<u8>().ok().map(|number| json!(number)),
        _ => written.parse::<u64>().ok().map(int),
    }
}
