//! The C library: what `include/unalike.h` declares, which is made from this file.
//!
//! Handles are opaque, and belong to whoever opened them until they are freed. A call answers `NULL`, or an error that
//! the caller frees. No call keeps a text that it is given, and none unwinds into C.

#![allow(unsafe_code, reason = "C hands over pointers")]
#![allow(non_camel_case_types, reason = "C's names")]
// A declaration in C is what these functions are for.
#![allow(unreachable_pub, reason = "they are called from C")]

use std::ffi::{CStr, CString, c_char, c_void};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use unalike::{Batch, Formatted, Sequence, Snowflake};

use crate::threads::{caught, waiting};
use crate::{Failure, Host, HostOptions, SequenceOptionsText, SnowflakeOptionsText, read_format};

/// What hands out ids, over the stores of a program. One for a process, shared by all its threads.
pub struct unalike_ids(Arc<Host>);

/// The ids of a tag. All threads may share it.
pub struct unalike_sequence(Handle<Sequence>);

/// The ids of a lease namespace. All threads may share it.
pub struct unalike_snowflake(Handle<Snowflake>);

/// The ids of a tag or of a lease namespace as a format shows them. All threads may share it.
pub struct unalike_formatted(Handle<Formatted>);

/// Room for the text of an id, with the NUL at its end.
pub const UNALIKE_TEXT_BYTES: usize = 192;

/// Why a call brought nothing. Free it with `unalike_error_free`.
pub struct unalike_error {
    failure: Failure,
    kind: CString,
    message: CString,
}

/// Is told, once, what a call came to: the first id, or 0 and an error, which the receiver frees. It runs on a thread
/// of the library, also after `unalike_close` has returned, or on the caller's before the call returns. It must return
/// soon, make no call that waits, and throw nothing.
pub type unalike_done = Option<extern "C" fn(context: *mut c_void, id: u64, error: *mut unalike_error)>;

impl unalike_error {
    fn into_raw(failure: Failure) -> *mut Self {
        // C ends a text at its first NUL, which no message should have.
        let text = |text: &str| CString::new(text.replace('\0', "\u{fffd}")).unwrap_or_default();
        Box::into_raw(Box::new(Self { kind: text(failure.kind), message: text(&failure.message), failure }))
    }
}

/// Runs a call. What panics is an error, too: nothing unwinds into C.
fn answer(call: impl FnOnce() -> Result<(), Failure>) -> *mut unalike_error {
    match caught(call) {
        Ok(()) => ptr::null_mut(),
        Err(failure) => unalike_error::into_raw(failure),
    }
}

/// What a pointer of the caller's points to.
///
/// # Safety
/// It is null, or points to a `T` for as long as the call takes.
unsafe fn given<'a, T>(pointer: *const T, name: &str) -> Result<&'a T, Failure> {
    // SAFETY: the caller's word.
    unsafe { pointer.as_ref() }.ok_or_else(|| missing(name))
}

fn missing(name: &str) -> Failure {
    Failure::options(format!("{name} is NULL"))
}

/// A text of the caller's.
///
/// # Safety
/// It is null, or ends with a NUL and lasts for as long as the call takes.
unsafe fn text<'a>(pointer: *const c_char, name: &str) -> Result<&'a str, Failure> {
    // SAFETY: the caller's word.
    unsafe { text_or_none(pointer, name) }?.ok_or_else(|| missing(name))
}

/// The same, where there need be none.
///
/// # Safety
/// As there.
unsafe fn text_or_none<'a>(pointer: *const c_char, name: &str) -> Result<Option<&'a str>, Failure> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's word.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map(Some).map_err(|_| Failure::options(format!("{name} is not UTF-8")))
}

/// A number of the caller's, where there need be none.
///
/// # Safety
/// It is null, or points to a number.
unsafe fn number_or_none(pointer: *const u64) -> Option<u64> {
    // SAFETY: the caller's word.
    unsafe { pointer.as_ref() }.copied()
}

/// Where the caller wants an answer. What is there may be uninitialised.
struct Place<T>(NonNull<T>);

impl<T> Place<T> {
    fn new(pointer: *mut T, name: &str) -> Result<Self, Failure> {
        NonNull::new(pointer).map(Self).ok_or_else(|| missing(name))
    }

    /// # Safety
    /// The caller gave a place that may be written to.
    unsafe fn write(&self, value: T) {
        // SAFETY: the caller's word.
        unsafe { self.0.write(value) };
    }
}

/// Where the caller wants a handle, which is `NULL` until there is one.
///
/// # Safety
/// The pointer is null, or may be written to.
unsafe fn place_of_handle<T>(pointer: *mut *mut T, name: &str) -> Result<Place<*mut T>, Failure> {
    let place = Place::new(pointer, name)?;
    // SAFETY: the caller's word.
    unsafe { place.write(ptr::null_mut()) };
    Ok(place)
}

/// Opens a generator, and gives the caller a handle of it.
///
/// # Safety
/// `ids` is null or open, and `place` is null or may be written to.
unsafe fn open<G, H>(
    ids: *const unalike_ids,
    (place, name): (*mut *mut H, &str),
    handle: fn(Handle<G>) -> H,
    generator: impl FnOnce(&Host) -> Result<G, Failure>,
) -> *mut unalike_error {
    answer(|| {
        // SAFETY: the caller's word.
        let (place, ids) = unsafe { (place_of_handle(place, name)?, given(ids, "ids")?) };
        let host = Arc::clone(&ids.0);
        let generator = generator(&host)?;
        // SAFETY: the caller's word.
        unsafe { place.write(Box::into_raw(Box::new(handle(Handle { host, generator })))) };
        Ok(())
    })
}

/// The version of the library, such as `0.1.0`.
#[unsafe(no_mangle)]
pub extern "C" fn unalike_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// A word for what happened, such as `timeout`. It lasts as long as the error.
///
/// # Safety
/// The error is one that this library gave, and is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unalike_error_kind(error: *const unalike_error) -> *const c_char {
    // SAFETY: the caller's word.
    unsafe { error.as_ref() }.map_or(c"".as_ptr(), |error| error.kind.as_ptr())
}

/// What happened, which value, what to do, in UTF-8. It lasts as long as the error.
///
/// # Safety
/// The error is one that this library gave, and is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unalike_error_message(error: *const unalike_error) -> *const c_char {
    // SAFETY: the caller's word.
    unsafe { error.as_ref() }.map_or(c"".as_ptr(), |error| error.message.as_ptr())
}

/// Whether the same call may succeed later.
///
/// # Safety
/// The error is one that this library gave, and is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unalike_error_is_retryable(error: *const unalike_error) -> bool {
    // SAFETY: the caller's word.
    unsafe { error.as_ref() }.is_some_and(|error| error.failure.is_retryable)
}

/// Whether a store is known to have granted numbers, or may have, that nobody received: they are a gap then.
///
/// # Safety
/// The error is one that this library gave, and is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unalike_error_may_have_granted(error: *const unalike_error) -> bool {
    // SAFETY: the caller's word.
    unsafe { error.as_ref() }.is_some_and(|error| error.failure.may_have_granted)
}

/// After how many milliseconds the same call may succeed; 0 where that is not known.
///
/// # Safety
/// The error is one that this library gave, and is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unalike_error_retry_after_ms(error: *const unalike_error) -> u64 {
    // SAFETY: the caller's word.
    unsafe { error.as_ref() }.and_then(|error| error.failure.retry_after_ms).unwrap_or(0)
}

/// Frees an error; `NULL` is none.
///
/// # Safety
/// The error is one that this library gave, and is used no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unalike_error_free(error: *mut unalike_error) {
    // SAFETY: the caller's word; it came from a box.
    unsafe { free(error) }
}

/// # Safety
/// It is null, or came from a box and is used no more.
unsafe fn free<T>(handle: *mut T) {
    if !handle.is_null() {
        // SAFETY: the caller's word.
        let handle = unsafe { Box::from_raw(handle) };
        // What a destructor panics with ends here.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(handle)));
    }
}

/// Opens the stores that `options` names, a JSON object in UTF-8: `{"store": "sqlite://ids.sqlite"}`. The other keys
/// are `backing`, `leases`, `token`, `create_tags`, `tags_max`, `worker`, `holder`, `lease_horizon_max_ms`,
/// `lease_skew_max_ms`, `keys`, `wait_max_ms` and `request_timeout_ms`. Close it with `unalike_close`.
///
/// How long that may take is up to the stores' own timeouts, which are parameters of their URLs. A process that forks
/// opens another one in the child: what it inherits refuses with the kind `forked`. The library must not be unloaded.
///
/// # Safety
/// `options` ends with a NUL, and `ids` may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unalike_open(options: *const c_char, ids: *mut *mut unalike_ids) -> *mut unalike_error {
    answer(|| {
        // SAFETY: the caller's word.
        let (ids, options) = unsafe { (place_of_handle(ids, "ids")?, text(options, "options")?) };
        let host = Host::open(&HostOptions::read(options)?)?;
        // SAFETY: the caller's word.
        unsafe { ids.write(Box::into_raw(Box::new(unalike_ids(Arc::new(host))))) };
        Ok(())
    })
}

/// Gives back what was not used, waits for that, up to about twice `request_timeout_ms` where a store does not answer,
/// and frees `ids`. What was opened from it stays until it is freed: it may still answer with ids that it had in hand,
/// and then with errors of the kind `closed`. Where an error is returned, `ids` is neither closed nor freed.
///
/// # Safety
/// `ids` is one that `unalike_open` gave, and is used no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unalike_close(ids: *mut unalike_ids) -> *mut unalike_error {
    answer(|| {
        // SAFETY: the caller's word.
        unsafe { given(ids, "ids") }?.0.close()?;
        // SAFETY: the caller's word; it came from a box.
        unsafe { free(ids) };
        Ok(())
    })
}

/// Opens the sequence of a tag or, unless `sub` is `NULL`, of its sub-key. `options` is `NULL`, or a JSON object with
/// some of `step`, `refill`, `prefetch`, `mode`, `order` and `id_max`.
///
/// # Safety
/// `ids` is open, the texts end with a NUL, and `sequence` may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unalike_sequence_open(
    ids: *const unalike_ids,
    tag: *const c_char,
    sub: *const c_char,
    options: *const c_char,
    sequence: *mut *mut unalike_sequence,
) -> *mut unalike_error {
    let open_sequence = |host: &Host| {
        // SAFETY: the caller's word.
        let (tag, sub, options) = unsafe {
            (text(tag, "tag")?, text_or_none(sub, "sub")?, text_or_none(options, "options")?.unwrap_or_default())
        };
        host.sequence(tag, sub, &SequenceOptionsText::read(options)?)
    };
    // SAFETY: the caller's word.
    unsafe { open(ids, (sequence, "sequence"), unalike_sequence, open_sequence) }
}

/// Opens the snowflake generator of a lease namespace. `options` is a JSON object: `{"layout": "twitter"}`, and some of
/// `clock`, `horizon_ms`, `ahead_max_ms` and `spread`.
///
/// # Safety
/// `ids` is open, the texts end with a NUL, and `snowflake` may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unalike_snowflake_open(
    ids: *const unalike_ids,
    namespace: *const c_char,
    options: *const c_char,
    snowflake: *mut *mut unalike_snowflake,
) -> *mut unalike_error {
    let open_snowflake = |host: &Host| {
        // SAFETY: the caller's word.
        let (namespace, options) = unsafe { (text(namespace, "namespace")?, text(options, "options")?) };
        host.snowflake(namespace, &SnowflakeOptionsText::read(options)?)
    };
    // SAFETY: the caller's word.
    unsafe { open(ids, (snowflake, "snowflake"), unalike_snowflake, open_snowflake) }
}

/// Opens the ids of a tag or, unless `sub` is `NULL`, of its sub-key, as a format shows them. `format` is a JSON object
/// with some of `template`, `utc_offset`, `restart`, `bits`, `gene_bits`, `keys` and `key_id_bits`; `options` is as in
/// `unalike_sequence_open`. The store binds the format to the tag, and another one is refused; nothing is compared if
/// the store is CosId's counters in Redis. Texts are unique within one sub-key: where texts of several meet, give
/// each its own tag, with its own prefix in the template.
///
/// # Safety
/// `ids` is open, the texts end with a NUL, and `formatted` may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unalike_formatted_open(
    ids: *const unalike_ids,
    tag: *const c_char,
    sub: *const c_char,
    format: *const c_char,
    options: *const c_char,
    formatted: *mut *mut unalike_formatted,
) -> *mut unalike_error {
    let open_formatted = |host: &Host| {
        // SAFETY: the caller's word.
        let (tag, sub, format) = unsafe { (text(tag, "tag")?, text_or_none(sub, "sub")?, text(format, "format")?) };
        // SAFETY: the caller's word.
        let options = unsafe { text_or_none(options, "options")? }.unwrap_or_default();
        host.formatted(tag, sub, &read_format(format)?, &SequenceOptionsText::read(options)?)
    };
    // SAFETY: the caller's word.
    unsafe { open(ids, (formatted, "formatted"), unalike_formatted, open_formatted) }
}

/// Opens the ids of a lease namespace as a format shows them. `format` is as in `unalike_formatted_open`, without
/// `restart`; `options` is as in `unalike_snowflake_open`.
///
/// # Safety
/// `ids` is open, the texts end with a NUL, and `formatted` may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unalike_formatted_snowflake_open(
    ids: *const unalike_ids,
    namespace: *const c_char,
    format: *const c_char,
    options: *const c_char,
    formatted: *mut *mut unalike_formatted,
) -> *mut unalike_error {
    let open_formatted = |host: &Host| {
        // SAFETY: the caller's word.
        let (namespace, format, options) =
            unsafe { (text(namespace, "namespace")?, text(format, "format")?, text(options, "options")?) };
        host.formatted_snowflake(namespace, &read_format(format)?, &SnowflakeOptionsText::read(options)?)
    };
    // SAFETY: the caller's word.
    unsafe { open(ids, (formatted, "formatted"), unalike_formatted, open_formatted) }
}

/// Frees what `unalike_formatted_open` or `unalike_formatted_snowflake_open` gave; `NULL` is none.
///
/// # Safety
/// It is one that this library gave, and is used no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unalike_formatted_free(formatted: *mut unalike_formatted) {
    // SAFETY: the caller's word; it came from a box.
    unsafe { free(formatted) }
}

/// The next `count` ids, 1 or more, as texts: each ends with a NUL, and begins `UNALIKE_TEXT_BYTES` behind the one
/// before. They share the shard key, which is `NULL` for a format without a gene. It waits as `unalike_sequence_take`
/// and `unalike_snowflake_take` do. On an error `texts` is as it was.
///
/// # Safety
/// `formatted` is open, `texts` has room for `count` times `UNALIKE_TEXT_BYTES`, and `shard_key` is `NULL` or points to
/// a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unalike_formatted_take(
    formatted: *const unalike_formatted,
    count: u32,
    shard_key: *const u64,
    texts: *mut c_char,
) -> *mut unalike_error {
    answer(|| {
        // SAFETY: the caller's word.
        let (formatted, shard_key) = unsafe { (given(formatted, "formatted")?, number_or_none(shard_key)) };
        let place = Place::new(texts, "texts")?;
        let ids = &formatted.0.generator;
        let taken = waiting("unalike_formatted_take", || Ok(ids.take_blocking(count, shard_key)?.texts()?))?;
        assert!(taken.iter().all(|text| text.len() < UNALIKE_TEXT_BYTES), "no text needs more room");
        for (at, text) in taken.iter().enumerate() {
            // SAFETY: the caller gave room for as many, and no text is longer than its own.
            unsafe {
                let room = place.0.add(at * UNALIKE_TEXT_BYTES).cast::<u8>();
                room.copy_from_nonoverlapping(NonNull::from(text.as_bytes()).cast(), text.len());
                room.add(text.len()).write(0);
            }
        }
        Ok(())
    })
}

/// The next `count` ids, 1 or more, as the numbers that their texts show. Refused where the counter starts again: only
/// whole texts are unique there. The rest is as in `unalike_formatted_take`.
///
/// # Safety
/// `formatted` is open, `numbers` has room for `count` numbers, and `shard_key` is `NULL` or points to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unalike_formatted_take_numbers(
    formatted: *const unalike_formatted,
    count: u32,
    shard_key: *const u64,
    numbers: *mut u64,
) -> *mut unalike_error {
    answer(|| {
        // SAFETY: the caller's word.
        let (formatted, shard_key) = unsafe { (given(formatted, "formatted")?, number_or_none(shard_key)) };
        let place = Place::new(numbers, "numbers")?;
        let ids = &formatted.0.generator;
        let taken = waiting("unalike_formatted_take_numbers", || Ok(ids.take_numbers_blocking(count, shard_key)?))?;
        for (at, number) in taken.into_iter().enumerate() {
            // SAFETY: the caller gave room for as many.
            unsafe { place.0.add(at).write(number) };
        }
        Ok(())
    })
}

/// The id that a text shows. The kind is `text` for one that this format does not show.
///
/// # Safety
/// `formatted` is open, `text` ends with a NUL, and `id` may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unalike_formatted_read(
    formatted: *const unalike_formatted,
    text: *const c_char,
    id: *mut u64,
) -> *mut unalike_error {
    answer(|| {
        // SAFETY: the caller's word.
        let (formatted, text) = unsafe { (given(formatted, "formatted")?, self::text(text, "text")?) };
        let place = Place::new(id, "id")?;
        let issued = formatted
            .0
            .generator
            .read(text)
            .map_err(|error| Failure::of("text", format!("{text:?} cannot be read: {error}")))?;
        // SAFETY: the caller's word.
        unsafe { place.write(issued.id) };
        Ok(())
    })
}

/// Frees a sequence; `NULL` is none. Its numbers are given back when its `unalike_ids` is closed.
///
/// # Safety
/// It is one that this library gave, and is used no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unalike_sequence_free(sequence: *mut unalike_sequence) {
    // SAFETY: the caller's word; it came from a box.
    unsafe { free(sequence) }
}

/// Frees a snowflake generator; `NULL` is none. Its lease is given back when its `unalike_ids` is closed.
///
/// # Safety
/// It is one that this library gave, and is used no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unalike_snowflake_free(snowflake: *mut unalike_snowflake) {
    // SAFETY: the caller's word; it came from a box.
    unsafe { free(snowflake) }
}

/// The next id; waits for the store where none is in hand, at most `wait_max_ms`.
///
/// # Safety
/// `sequence` is open, and `id` may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unalike_sequence_next(sequence: *const unalike_sequence, id: *mut u64) -> *mut unalike_error {
    // SAFETY: the caller's word.
    answer(|| unsafe { given(sequence, "sequence")?.0.next(&Place::new(id, "id")?) })
}

/// The next id if there is one without waiting, or 0. Where there is none, the store has been asked for more, and
/// `unalike_sequence_next` says what is wrong if something is.
///
/// # Safety
/// `sequence` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unalike_sequence_try_next(sequence: *const unalike_sequence) -> u64 {
    // SAFETY: the caller's word.
    let next = caught(|| Ok(unsafe { given(sequence, "sequence") }?.0.generator.try_next()?));
    next.ok().flatten().unwrap_or(0)
}

/// The next `count` ids, 1 or more, ascending and not always consecutive. On an error `ids` is as it was, and no id of
/// a buffered sequence is lost.
///
/// # Safety
/// `sequence` is open, and `ids` has room for `count` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unalike_sequence_take(
    sequence: *const unalike_sequence,
    count: u32,
    ids: *mut u64,
) -> *mut unalike_error {
    // SAFETY: the caller's word.
    answer(|| unsafe { given(sequence, "sequence") }?.0.take(&Room::new(ids, count)?))
}

/// The next id of a snowflake generator; waits where there is none yet, at most `wait_max_ms`.
///
/// # Safety
/// `snowflake` is open, and `id` may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unalike_snowflake_next(
    snowflake: *const unalike_snowflake,
    id: *mut u64,
) -> *mut unalike_error {
    // SAFETY: the caller's word.
    answer(|| unsafe { given(snowflake, "snowflake")?.0.next(&Place::new(id, "id")?) })
}

/// The next id of a snowflake generator if there is one without waiting, or 0.
///
/// # Safety
/// `snowflake` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unalike_snowflake_try_next(snowflake: *const unalike_snowflake) -> u64 {
    // SAFETY: the caller's word.
    let next = caught(|| Ok(unsafe { given(snowflake, "snowflake") }?.0.generator.try_next()?));
    next.ok().flatten().unwrap_or(0)
}

/// The next `count` ids of a snowflake generator, 1 or more, ascending. It lasts as long as the ticks that so many ids
/// fill, and each wait in it at most `wait_max_ms`. On an error `ids` is as it was.
///
/// # Safety
/// `snowflake` is open, and `ids` has room for `count` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unalike_snowflake_take(
    snowflake: *const unalike_snowflake,
    count: u32,
    ids: *mut u64,
) -> *mut unalike_error {
    // SAFETY: the caller's word.
    answer(|| unsafe { given(snowflake, "snowflake") }?.0.take(&Room::new(ids, count)?))
}

/// `unalike_sequence_take` without a wait: `done` is told when all of them are in `ids`, the first one with it. Where
/// `done` is `NULL` nothing happens.
///
/// # Safety
/// `sequence` is open; `ids` has room for `count` numbers until `done` was called; `context` may be used by another
/// thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unalike_sequence_take_async(
    sequence: *const unalike_sequence,
    count: u32,
    ids: *mut u64,
    done: unalike_done,
    context: *mut c_void,
) {
    let Some(call) = Call::new(done, context) else { return };
    // SAFETY: the caller's word.
    call.begin(|| Ok((&unsafe { given(sequence, "sequence") }?.0, Room::new(ids, count)?)));
}

/// `unalike_snowflake_take` without a wait: `done` is told when all of them are in `ids`, the first one with it. Where
/// `done` is `NULL` nothing happens.
///
/// # Safety
/// `snowflake` is open; `ids` has room for `count` numbers until `done` was called; `context` may be used by another
/// thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unalike_snowflake_take_async(
    snowflake: *const unalike_snowflake,
    count: u32,
    ids: *mut u64,
    done: unalike_done,
    context: *mut c_void,
) {
    let Some(call) = Call::new(done, context) else { return };
    // SAFETY: the caller's word.
    call.begin(|| Ok((&unsafe { given(snowflake, "snowflake") }?.0, Room::new(ids, count)?)));
}

/// A generator, and what it lives in.
struct Handle<G> {
    host: Arc<Host>,
    generator: G,
}

impl<G: Generator> Handle<G> {
    /// # Safety
    /// The caller gave a place that may be written to.
    unsafe fn next(&self, id: &Place<u64>) -> Result<(), Failure> {
        let next = match self.generator.try_next()? {
            Some(next) => next,
            None => waiting(G::NEXT, || Ok(self.generator.next_blocking()?))?,
        };
        // SAFETY: the caller's word.
        unsafe { id.write(next) };
        Ok(())
    }

    fn take(&self, room: &Room) -> Result<(), Failure> {
        let count = room.count;
        room.fill(&waiting(G::TAKE, || Ok(self.generator.take_blocking(count)?))?);
        Ok(())
    }
}

/// What sequences and snowflakes have in common.
trait Generator: Clone + Send + Sync + 'static {
    /// The calls that may wait, as C names them.
    const NEXT: &str;
    const TAKE: &str;

    fn try_next(&self) -> Result<Option<u64>, unalike::Error>;
    fn next_blocking(&self) -> Result<u64, unalike::Error>;
    fn take_blocking(&self, count: u32) -> Result<Batch, unalike::Error>;
    fn take(&self, count: u32) -> impl Future<Output = Result<Batch, unalike::Error>> + Send;
}

macro_rules! generator {
    ($type:ty, $next:literal, $take:literal) => {
        impl Generator for $type {
            const NEXT: &str = $next;
            const TAKE: &str = $take;

            fn try_next(&self) -> Result<Option<u64>, unalike::Error> {
                self.try_next()
            }

            fn next_blocking(&self) -> Result<u64, unalike::Error> {
                self.next_blocking()
            }

            fn take_blocking(&self, count: u32) -> Result<Batch, unalike::Error> {
                self.take_blocking(count)
            }

            fn take(&self, count: u32) -> impl Future<Output = Result<Batch, unalike::Error>> + Send {
                self.take(count)
            }
        }
    };
}

generator!(Sequence, "unalike_sequence_next", "unalike_sequence_take");
generator!(Snowflake, "unalike_snowflake_next", "unalike_snowflake_take");

/// Where the caller wants so many ids.
struct Room {
    ids: *mut u64,
    count: u32,
}

// SAFETY: the caller says that another thread may write to it.
unsafe impl Send for Room {}

impl Room {
    fn new(ids: *mut u64, count: u32) -> Result<Self, Failure> {
        if ids.is_null() { Err(missing("ids")) } else { Ok(Self { ids, count }) }
    }

    /// Writes the ids, and answers the first.
    fn fill(&self, batch: &Batch) -> u64 {
        assert_eq!(batch.len(), u64::from(self.count), "a batch has as many ids as were asked for");
        let mut first = 0;
        for (place, id) in batch.iter().enumerate() {
            if place == 0 {
                first = id;
            }
            // SAFETY: the caller gave room for as many, and it is used by nobody until the call ends.
            unsafe { self.ids.add(place).write(id) };
        }
        first
    }
}

/// A call whose end is told, once, whatever becomes of it.
struct Call {
    done: extern "C" fn(*mut c_void, u64, *mut unalike_error),
    context: *mut c_void,
    is_told: bool,
}

// SAFETY: whoever makes the call says that another thread may have the context.
unsafe impl Send for Call {}

impl Call {
    fn new(done: unalike_done, context: *mut c_void) -> Option<Self> {
        done.map(|done| Self { done, context, is_told: false })
    }

    fn end(mut self, came_to: Result<u64, Failure>) {
        self.tell(came_to);
    }

    fn tell(&mut self, came_to: Result<u64, Failure>) {
        self.is_told = true;
        match came_to {
            Ok(id) => (self.done)(self.context, id, ptr::null_mut()),
            Err(failure) => (self.done)(self.context, 0, unalike_error::into_raw(failure)),
        }
    }

    /// Ends when the batch is there, for which the host lasts, or at once where there will be none.
    fn begin<'h, G: Generator>(self, asked: impl FnOnce() -> Result<(&'h Handle<G>, Room), Failure>) {
        let (Handle { host, generator }, room) = match caught(asked) {
            Ok(asked) => asked,
            Err(failure) => return self.end(Err(failure)),
        };
        if !host.is_own_process() {
            return self.end(Err(Failure::forked()));
        }
        let (kept, generator) = (Arc::clone(host), generator.clone());
        let told = async move {
            let came_to = generator.take(room.count).await.map_err(Failure::from);
            self.end(came_to.map(|batch| room.fill(&batch)));
            drop(kept);
        };
        // Where it cannot be run it is dropped, and told by that.
        let _ = catch_unwind(AssertUnwindSafe(|| host.spawn(told)));
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if !self.is_told {
            self.tell(Err(Failure::panicked()));
        }
    }
}
