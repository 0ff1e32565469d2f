//! Writes scripts: each step is performed by the native core, and what came of it is written down.

use serde_json::{Value, json};

use crate::Native;
use crate::json::{int, line, written};
use crate::runner::Player;

/// One file.
pub(crate) struct File {
    world: &'static str,
    /// Further keys of it: their names, and the lines of their lists.
    lists: Vec<(&'static str, Vec<Value>)>,
    vectors: Vec<Script>,
}

impl File {
    pub(crate) fn new(world: &'static str) -> Self {
        Self { world, lists: Vec::new(), vectors: Vec::new() }
    }

    pub(crate) fn list(&mut self, name: &'static str, list: Vec<Value>) {
        self.lists.push((name, list));
    }

    /// A vector of this name.
    pub(crate) fn vector(&mut self, name: impl Into<String>, steps: impl FnOnce(&mut Script)) {
        self.vector_of(name, None, steps);
    }

    /// A vector for hosts that can do something.
    pub(crate) fn vector_of(
        &mut self,
        name: impl Into<String>,
        host: Option<&'static str>,
        steps: impl FnOnce(&mut Script),
    ) {
        let name = name.into();
        assert!(self.vectors.iter().all(|known| known.name != name), "two vectors are called {name:?}");
        let mut script = Script { name, host, steps: Vec::new(), player: Player::new() };
        steps(&mut script);
        self.vectors.push(script);
    }

    pub(crate) fn text(&self) -> String {
        let mut text = format!("{{\n\"wit\":\"unalike:ids@0.1.0\",\n\"world\":{},\n", json!(self.world));
        for (name, list) in &self.lists {
            text += &format!("{}:[\n{}\n],\n", json!(name), lines(list));
        }
        text += "\"vectors\":[\n";
        let vectors: Vec<String> = self.vectors.iter().map(Script::text).collect();
        text + &vectors.join(",\n") + "\n]\n}\n"
    }
}

fn lines(values: &[Value]) -> String {
    values.iter().map(line).collect::<Vec<_>>().join(",\n")
}

/// One vector while it is written.
pub(crate) struct Script {
    name: String,
    host: Option<&'static str>,
    steps: Vec<Value>,
    player: Player<Native>,
}

impl Script {
    fn text(&self) -> String {
        let host = self.host.map_or(String::new(), |host| format!("\"host\":{},", json!(host)));
        format!("{{\"name\":{},{host}\"steps\":[\n{}\n]}}", json!(self.name), lines(&self.steps))
    }

    /// Performs a step, and writes it down: what was seen.
    pub(crate) fn step(&mut self, step: &Value) -> Seen<'_> {
        let seen = self.player.perform(step);
        self.steps.push(seen);
        Seen(self.steps.last_mut().unwrap())
    }

    /// A call.
    pub(crate) fn call(&mut self, call: &str, on: &str, args: Value) -> Seen<'_> {
        let mut step = json!({ "call": call, "args": args });
        if !on.is_empty() {
            step["on"] = json!(on);
        }
        self.step(&step)
    }

    /// A call during which an import throws.
    pub(crate) fn call_that_throws(&mut self, import: &str, call: &str, on: &str, args: Value) -> Seen<'_> {
        let seen = self.step(&json!({ "call": call, "on": on, "args": args, "throws": import }));
        assert_eq!(seen.0["traps"], json!(true));
        seen
    }

    /// A call with numbers as they are written in the host's language.
    pub(crate) fn call_by_host(&mut self, call: &str, on: &str, args: Value) -> Seen<'_> {
        self.step(&json!({ "by": "host", "call": call, "on": on, "args": args }))
    }

    /// Calls with a number that does not fit: each in the place of this argument, or of this field of an argument.
    pub(crate) fn refuses(
        &mut self,
        call: &str,
        on: &str,
        args: &Value,
        (record, name): (&str, &str),
        numbers: &[&str],
    ) {
        for number in numbers {
            let mut args = written(args);
            let record = if record.is_empty() { &mut args } else { args.pointer_mut(record).unwrap() };
            assert!(record.get(name).is_some(), "there is no {name} in {record}");
            record[name] = json!(number);
            let mut step = json!({ "by": "host", "call": call, "args": args });
            if !on.is_empty() {
                step["on"] = json!(on);
            }
            self.step(&step).shows("it does not fit", "refused", &json!(name));
        }
    }

    /// The host's own function is asked.
    pub(crate) fn poll(&mut self, interface: &str, ticket: &str) -> Seen<'_> {
        self.step(&json!({ "by": "host", "call": format!("{interface}.poll"), "args": { "ticket": ticket } }))
    }

    pub(crate) fn answer(&mut self, ticket: &str, with: Value) -> Seen<'_> {
        self.step(&json!({ "answer": ticket, "with": with }))
    }

    pub(crate) fn rebuild(&mut self) -> Seen<'_> {
        self.step(&json!({ "rebuild": true }))
    }

    /// The name of the newest ticket that a step of this script asked for.
    pub(crate) fn newest(&self) -> String {
        let named = |step: &Value| {
            let calls = step.get("imports")?.as_array()?;
            calls.iter().rev().find_map(|call| call.get("ticket")?.as_str().map(str::to_owned))
        };
        self.steps.iter().rev().find_map(named).unwrap()
    }

    /// The newest request is granted these numbers, each one after the other.
    pub(crate) fn grant(&mut self, start: u64, end: u64) {
        self.grant_of(segment(start, end, 1, 0, end));
    }

    pub(crate) fn grant_of(&mut self, granted: Value) {
        let newest = self.newest();
        let answered = self.answer(&newest, json!({ "ok": granted }));
        assert!(answered.0.get("dropped").is_none(), "nobody waits for {}", line(answered.0));
    }

    pub(crate) fn fail(&mut self, error: &str) {
        let newest = self.newest();
        let answered = self.answer(&newest, json!({ "err": error }));
        assert!(answered.0.get("dropped").is_none(), "nobody waits for {}", line(answered.0));
    }
}

pub(crate) fn segment(start: u64, end: u64, stride: u64, generation: u64, version: u64) -> Value {
    json!({
        "start": int(start),
        "end": int(end),
        "stride": int(stride),
        "generation": int(generation),
        "version": int(version),
    })
}

/// What was seen of a step, to be compared with what was derived by hand.
pub(crate) struct Seen<'s>(pub(crate) &'s mut Value);

impl Seen<'_> {
    /// It returned this, as follows from the source.
    pub(crate) fn gives(self, source: &str, returns: &Value) -> Self {
        self.shows(source, "returns", returns)
    }

    /// It was granted a run: `first`, `stride` and `count`, as follows from the source.
    pub(crate) fn gives_run(self, source: &str, first: u64, stride: u64, count: u32) -> Self {
        self.gives(source, &json!({ "ok": { "first": int(first), "stride": int(stride), "count": count } }))
    }

    pub(crate) fn gives_error(self, source: &str, error: &Value) -> Self {
        self.gives(source, &json!({ "err": error }))
    }

    /// It called these imports, as follows from the source.
    pub(crate) fn asks(self, source: &str, imports: &Value) -> Self {
        self.shows(source, "imports", imports)
    }

    pub(crate) fn shows(self, source: &str, key: &str, expected: &Value) -> Self {
        let seen = self.0.get(key).unwrap_or(&Value::Null);
        assert_eq!(seen, expected, "{key} of {} does not follow from: {source}", line(self.0));
        self.0["source"] = json!(source);
        self
    }
}
