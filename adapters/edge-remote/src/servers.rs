//! Which server is asked, and whether its answer may be believed.

use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};

use crate::address::Address;
use crate::answers::{Failure, digits_of_store, store_of};
use crate::bindings::wasi::cli::environment::get_environment;
use crate::bindings::wasi::clocks::monotonic_clock;
use crate::client::send;
use crate::exchange::{Access, Question};
use crate::json::Value;
use crate::one_thread::OneThread;

/// How long a server that failed is asked after all others, at first and at most. It doubles.
const AVOIDED_NS: (u64, u64) = (250_000_000, 10_000_000_000);

static SERVERS: OneThread<Option<Result<Rc<Servers>, &'static str>>> = OneThread::new(None);

/// The servers of one store, in order of preference.
pub(crate) struct Servers {
    address: Address,
    token: Option<String>,
    states: RefCell<Vec<State>>,
    /// The store of all of them, once it is known. `Some(None)`: the only server's store has no name.
    store: Cell<Option<Option<u128>>>,
}

#[derive(Clone, Default)]
struct State {
    /// Has another store than the others: never asked again.
    is_refused: bool,
    failures: u32,
    avoided_until_ns: u64,
}

impl Servers {
    /// Those that the environment names.
    pub(crate) fn of_environment() -> Result<Rc<Self>, Failure> {
        let mut known = SERVERS.cell().borrow_mut();
        let servers = known.get_or_insert_with(|| {
            let (mut address, mut token) = (None, None);
            for (name, value) in get_environment() {
                match name.as_str() {
                    "UNALIKE_SERVERS" => address = Some(value),
                    "UNALIKE_TOKEN" => token = Some(value),
                    _ => {}
                }
            }
            let address =
                address.ok_or("UNALIKE_SERVERS is not set: it is the address of the servers that grant numbers");
            let address = Address::read(&address?)?;
            if token.as_deref().is_some_and(|token: &str| !token.bytes().all(|byte| byte.is_ascii_graphic())) {
                return Err("UNALIKE_TOKEN has a character that no token has, such as a line's end: remove it");
            }
            let states = RefCell::new(alloc::vec![State::default(); address.hosts.len()]);
            let store = Cell::new(address.store.map(Some));
            Ok(Rc::new(Self { address, token, states, store }))
        });
        servers.clone().map_err(Failure::refused)
    }

    /// The store that the workers of snowflakes must be leased from, if one is named.
    pub(crate) fn leases(&self) -> Option<u128> {
        self.address.leases
    }

    /// Asks the servers in order of preference until one answers. One whose answer is lost is passed over as well: what
    /// it may have granted is burnt, and the next one is asked for other numbers. Where an instance serves one request,
    /// nobody else would ever ask the next one.
    ///
    /// `read` makes something of an answer, and nothing of one that was not asked for.
    pub(crate) async fn ask<T>(
        &self,
        question: Question<'_>,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Result<T, Failure> {
        let mut made = None;
        self.ask_in_order(question, &mut |answer| {
            made = read(answer);
            made.is_some()
        })
        .await?;
        made.ok_or_else(|| question.access.lost())
    }

    /// Asks until `accept` takes an answer. It is compiled once, whatever is made of answers.
    async fn ask_in_order(
        &self,
        question: Question<'_>,
        accept: &mut dyn FnMut(&Value) -> bool,
    ) -> Result<(), Failure> {
        let mut last = Failure::refused("no server can be used: their stores differ");
        for place in self.in_order() {
            let Some(host) = self.address.hosts.get(place) else { continue };
            let answer = send(&self.address, host, self.token.as_deref(), question).await;
            let accepted = answer.and_then(|answer| {
                if question.is_store_named {
                    self.recognise(place, &answer, question.access)?;
                }
                if accept(&answer) { Ok(()) } else { Err(question.access.lost()) }
            });
            let Err(failure) = accepted else {
                self.note(place, |state| (state.failures, state.avoided_until_ns) = (0, 0));
                return Ok(());
            };
            if !failure.is_servers {
                return Err(failure);
            }
            let now = monotonic_clock::now();
            self.note(place, |state| {
                let (first, most) = AVOIDED_NS;
                state.avoided_until_ns =
                    now.saturating_add(first.saturating_mul(1 << state.failures.min(16)).min(most));
                state.failures = state.failures.saturating_add(1);
            });
            if !last.outweighs(&failure) {
                last = failure;
            }
        }
        Err(last)
    }

    /// Refuses an answer of another store than that of all servers, before anything is made of it.
    fn recognise(&self, place: usize, answer: &Value, access: Access) -> Result<(), Failure> {
        let store = store_of(answer).ok_or_else(|| access.lost())?;
        let is_only = self.address.hosts.len() == 1;
        let expected = match self.store.get() {
            Some(expected) => expected,
            // Several have the name of their store from the address.
            None if is_only => {
                self.store.set(Some(store));
                store
            }
            None => None,
        };
        if store != expected || (store.is_none() && !is_only) {
            // Where it is named, each request or answer shows again which store it is of: a server counts again that a
            // proxy led elsewhere for a while. A snowflake's answer does not, so without a name it is over.
            if self.address.store.is_none() {
                self.note(place, |state| state.is_refused = true);
            }
            return Err(Failure { is_servers: true, ..Failure::refused(&another_store(store, expected)) });
        }
        Ok(())
    }

    fn note(&self, place: usize, note: impl FnOnce(&mut State)) {
        if let Some(state) = self.states.borrow_mut().get_mut(place) {
            note(state);
        }
    }

    /// The places of those that are not avoided first; none that was refused.
    fn in_order(&self) -> Vec<usize> {
        let now = monotonic_clock::now();
        let states = self.states.borrow();
        let usable = states.iter().enumerate().filter(|(_, state)| !state.is_refused);
        let (avoided, mut order): (Vec<_>, Vec<_>) = usable.partition(|(_, state)| now < state.avoided_until_ns);
        order.extend(avoided);
        order.into_iter().map(|(place, _)| place).collect()
    }
}

/// What is wrong with a server, by the names that servers answer at `GET /v1/store`.
fn another_store(store: Option<u128>, expected: Option<u128>) -> String {
    let name = |store: Option<u128>| store.map_or_else(|| String::from("without a name"), digits_of_store);
    let mut words = String::from("a server has the store ");
    words.push_str(&name(store));
    words.push_str(", and not ");
    words.push_str(&name(expected));
    words.push_str(" as was expected: nothing that it grants is used");
    words
}
