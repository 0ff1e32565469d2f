//! What a host keeps for an instance: the tickets of its requests, and what it was granted.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use unalike_core::{GrantOrder, Segment};

use crate::json::{int, segment};

/// The first ticket: a host that rounds to 53 bits, or loses the sign of the 64th, does not find it again.
const FIRST_TICKET: u64 = (1 << 63) + 1;

/// The call of an import ended as the script wants: by a throw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thrown;

/// A request that the instance has out.
struct Held {
    name: String,
    /// `segments` or `leases`.
    interface: &'static str,
    answer: Option<Value>,
}

/// The host's side of one instance.
#[derive(Default)]
pub struct Imports {
    /// Over all instances: a ticket never comes twice.
    issued: u64,
    held: BTreeMap<u64, Held>,
    floors: BTreeMap<String, GrantOrder>,
    /// What was called since [`Imports::take_calls`], with the numbers of tickets.
    calls: Vec<Value>,
    throws: Option<String>,
}

impl Imports {
    /// Carries a call of `segments.allocate`, `leases.acquire` or `leases.extend` out: the ticket.
    ///
    /// # Errors
    /// [`Thrown`] when the script says so.
    pub fn request(&mut self, import: &'static str, args: Value) -> Result<u64, Thrown> {
        self.throw(import)?;
        let interface = if import.starts_with("segments") { "segments" } else { "leases" };
        let named = if interface == "segments" { &args["tag"] } else { &args["namespace"] };
        let name = named.as_str().unwrap_or_default().to_owned();
        let ticket = FIRST_TICKET + self.issued;
        self.issued += 1;
        self.held.insert(ticket, Held { name, interface, answer: None });
        self.calls.push(json!({ "import": import, "args": args, "ticket": ticket.to_string() }));
        Ok(ticket)
    }

    /// Carries a call of `segments.release` or `leases.release` out.
    ///
    /// # Errors
    /// [`Thrown`] when the script says so.
    pub fn release(&mut self, import: &'static str, args: Value) -> Result<(), Thrown> {
        self.throw(import)?;
        self.calls.push(json!({ "import": import, "args": args }));
        Ok(())
    }

    /// Carries a call of `segments.poll` or `leases.poll` out.
    ///
    /// # Errors
    /// [`Thrown`] when the script says so.
    pub fn poll(&mut self, import: &'static str, ticket: u64) -> Result<Value, Thrown> {
        self.throw(import)?;
        let interface = import.trim_end_matches(".poll");
        let Some(held) = self.held.get(&ticket).filter(|held| held.interface == interface) else {
            return Ok(json!({ "err": "outcome-unknown" }));
        };
        let Some(answer) = held.answer.clone() else { return Ok(Value::Null) };
        if let (Some(granted), "segments") = (answer.get("ok"), interface) {
            let granted: Segment = segment(granted);
            let order = self.floors.entry(held.name.clone()).or_insert(GrantOrder::new(0));
            // What is refused leaves no floor.
            let _ = order.admit(&granted);
        }
        self.held.remove(&ticket);
        Ok(answer)
    }

    /// Throws if the script says so: for hosts that answer a poll by themselves.
    ///
    /// # Errors
    /// [`Thrown`].
    pub fn throw(&mut self, import: &str) -> Result<(), Thrown> {
        if self.throws.as_deref() != Some(import) {
            return Ok(());
        }
        self.throws = None;
        Err(Thrown)
    }

    pub(crate) fn set_throws(&mut self, import: Option<&str>) {
        self.throws = import.map(str::to_owned);
    }

    pub(crate) fn is_still_to_throw(&self) -> bool {
        self.throws.is_some()
    }

    pub(crate) fn take_calls(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.calls)
    }

    /// An answer arrives: whether anybody has it coming.
    pub(crate) fn answer(&mut self, ticket: u64, answer: Value) -> bool {
        match self.held.get_mut(&ticket) {
            Some(held) if held.answer.is_none() => {
                held.answer = Some(answer);
                true
            }
            _ => false,
        }
    }

    /// Where the successors of all tags begin.
    pub(crate) fn floors(&self) -> Value {
        let floors = self.floors.iter().filter(|(_, order)| order.successor_floor() > 0);
        Value::Object(floors.map(|(tag, order)| (tag.clone(), int(order.successor_floor()))).collect())
    }

    /// The instance is given up: nobody has its tickets any more.
    pub(crate) fn forget_tickets(&mut self) {
        self.held.clear();
    }

    /// A forked child begins, which has neither tickets nor floors; what this answers is the parent's.
    pub(crate) fn begin_child(&mut self) -> Self {
        let child = Self { issued: self.issued, ..Self::default() };
        std::mem::replace(self, child)
    }

    /// The child ends, and the parent goes on.
    pub(crate) fn end_child(&mut self, parent: Self) {
        let issued = self.issued;
        *self = Self { issued, ..parent };
    }
}
