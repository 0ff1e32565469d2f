/* unalike for C, and for what calls C: no two ids alike. All texts are UTF-8. Its page is
   host/bindings/README.md. Made from host/bindings/src/c.rs, not written: cargo run --manifest-path
   tests/header/Cargo.toml > host/bindings/include/unalike.h */

#ifndef UNALIKE_H
#define UNALIKE_H

#include <stdbool.h>
#include <stdint.h>

/**
 * Room for the text of an id, with the NUL at its end.
 */
#define UNALIKE_TEXT_BYTES 192

/**
 * Why a call brought nothing. Free it with `unalike_error_free`.
 */
typedef struct unalike_error unalike_error;

/**
 * The ids of a tag or of a lease namespace as a format shows them. All threads may share it.
 */
typedef struct unalike_formatted unalike_formatted;

/**
 * What hands out ids, over the stores of a program. One for a process, shared by all its threads.
 */
typedef struct unalike_ids unalike_ids;

/**
 * The ids of a tag. All threads may share it.
 */
typedef struct unalike_sequence unalike_sequence;

/**
 * The ids of a lease namespace. All threads may share it.
 */
typedef struct unalike_snowflake unalike_snowflake;

/**
 * Is told, once, what a call came to: the first id, or 0 and an error, which the receiver frees. It runs on a thread
 * of the library, also after `unalike_close` has returned, or on the caller's before the call returns. It must return
 * soon, make no call that waits, and throw nothing.
 */
typedef void (*unalike_done)(void *context, uint64_t id, struct unalike_error *error);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The version of the library, such as `0.1.0`.
 */
const char *unalike_version(void);

/**
 * A word for what happened, such as `timeout`. It lasts as long as the error.
 *
 * # Safety
 * The error is one that this library gave, and is not freed.
 */
const char *unalike_error_kind(const struct unalike_error *error);

/**
 * What happened, which value, what to do, in UTF-8. It lasts as long as the error.
 *
 * # Safety
 * The error is one that this library gave, and is not freed.
 */
const char *unalike_error_message(const struct unalike_error *error);

/**
 * Whether the same call may succeed later.
 *
 * # Safety
 * The error is one that this library gave, and is not freed.
 */
bool unalike_error_is_retryable(const struct unalike_error *error);

/**
 * Whether a store is known to have granted numbers, or may have, that nobody received: they are a gap then.
 *
 * # Safety
 * The error is one that this library gave, and is not freed.
 */
bool unalike_error_may_have_granted(const struct unalike_error *error);

/**
 * After how many milliseconds the same call may succeed; 0 where that is not known.
 *
 * # Safety
 * The error is one that this library gave, and is not freed.
 */
uint64_t unalike_error_retry_after_ms(const struct unalike_error *error);

/**
 * Frees an error; `NULL` is none.
 *
 * # Safety
 * The error is one that this library gave, and is used no more.
 */
void unalike_error_free(struct unalike_error *error);

/**
 * Opens the stores that `options` names, a JSON object in UTF-8: `{"store": "sqlite://ids.sqlite"}`. The other keys
 * are `backing`, `leases`, `token`, `create_tags`, `tags_max`, `worker`, `holder`, `lease_horizon_max_ms`,
 * `lease_skew_max_ms`, `keys`, `wait_max_ms` and `request_timeout_ms`. Close it with `unalike_close`.
 *
 * How long that may take is up to the stores' own timeouts, which are parameters of their URLs. A process that forks
 * opens another one in the child: what it inherits refuses with the kind `forked`. The library must not be unloaded.
 *
 * # Safety
 * `options` ends with a NUL, and `ids` may be written to.
 */
struct unalike_error *unalike_open(const char *options,
                                   struct unalike_ids **ids);

/**
 * Gives back what was not used, waits for that, up to about twice `request_timeout_ms` where a store does not answer,
 * and frees `ids`. What was opened from it stays until it is freed: it may still answer with ids that it had in hand,
 * and then with errors of the kind `closed`. Where an error is returned, `ids` is neither closed nor freed.
 *
 * # Safety
 * `ids` is one that `unalike_open` gave, and is used no more.
 */
struct unalike_error *unalike_close(struct unalike_ids *ids);

/**
 * Opens the sequence of a tag or, unless `sub` is `NULL`, of its sub-key. `options` is `NULL`, or a JSON object with
 * some of `step`, `refill`, `prefetch`, `mode`, `order` and `id_max`.
 *
 * # Safety
 * `ids` is open, the texts end with a NUL, and `sequence` may be written to.
 */
struct unalike_error *unalike_sequence_open(const struct unalike_ids *ids,
                                            const char *tag,
                                            const char *sub,
                                            const char *options,
                                            struct unalike_sequence **sequence);

/**
 * Opens the snowflake generator of a lease namespace. `options` is a JSON object: `{"layout": "twitter"}`, and some of
 * `clock`, `horizon_ms`, `ahead_max_ms` and `spread`.
 *
 * # Safety
 * `ids` is open, the texts end with a NUL, and `snowflake` may be written to.
 */
struct unalike_error *unalike_snowflake_open(const struct unalike_ids *ids,
                                             const char *namespace_,
                                             const char *options,
                                             struct unalike_snowflake **snowflake);

/**
 * Opens the ids of a tag or, unless `sub` is `NULL`, of its sub-key, as a format shows them. `format` is a JSON object
 * with some of `template`, `utc_offset`, `restart`, `bits`, `gene_bits`, `keys` and `key_id_bits`; `options` is as in
 * `unalike_sequence_open`. The store binds the format to the tag, and another one is refused; nothing is compared if
 * the store is CosId's counters in Redis. Texts are unique within one sub-key: where texts of several meet, give
 * each its own tag, with its own prefix in the template.
 *
 * # Safety
 * `ids` is open, the texts end with a NUL, and `formatted` may be written to.
 */
struct unalike_error *unalike_formatted_open(const struct unalike_ids *ids,
                                             const char *tag,
                                             const char *sub,
                                             const char *format,
                                             const char *options,
                                             struct unalike_formatted **formatted);

/**
 * Opens the ids of a lease namespace as a format shows them. `format` is as in `unalike_formatted_open`, without
 * `restart`; `options` is as in `unalike_snowflake_open`.
 *
 * # Safety
 * `ids` is open, the texts end with a NUL, and `formatted` may be written to.
 */
struct unalike_error *unalike_formatted_snowflake_open(const struct unalike_ids *ids,
                                                       const char *namespace_,
                                                       const char *format,
                                                       const char *options,
                                                       struct unalike_formatted **formatted);

/**
 * Frees what `unalike_formatted_open` or `unalike_formatted_snowflake_open` gave; `NULL` is none.
 *
 * # Safety
 * It is one that this library gave, and is used no more.
 */
void unalike_formatted_free(struct unalike_formatted *formatted);

/**
 * The next `count` ids, 1 or more, as texts: each ends with a NUL, and begins `UNALIKE_TEXT_BYTES` behind the one
 * before. They share the shard key, which is `NULL` for a format without a gene. It waits as `unalike_sequence_take`
 * and `unalike_snowflake_take` do. On an error `texts` is as it was.
 *
 * # Safety
 * `formatted` is open, `texts` has room for `count` times `UNALIKE_TEXT_BYTES`, and `shard_key` is `NULL` or points to
 * a number.
 */
struct unalike_error *unalike_formatted_take(const struct unalike_formatted *formatted,
                                             uint32_t count,
                                             const uint64_t *shard_key,
                                             char *texts);

/**
 * The next `count` ids, 1 or more, as the numbers that their texts show. Refused where the counter starts again: only
 * whole texts are unique there. The rest is as in `unalike_formatted_take`.
 *
 * # Safety
 * `formatted` is open, `numbers` has room for `count` numbers, and `shard_key` is `NULL` or points to a number.
 */
struct unalike_error *unalike_formatted_take_numbers(const struct unalike_formatted *formatted,
                                                     uint32_t count,
                                                     const uint64_t *shard_key,
                                                     uint64_t *numbers);

/**
 * The id that a text shows. The kind is `text` for one that this format does not show.
 *
 * # Safety
 * `formatted` is open, `text` ends with a NUL, and `id` may be written to.
 */
struct unalike_error *unalike_formatted_read(const struct unalike_formatted *formatted,
                                             const char *text,
                                             uint64_t *id);

/**
 * Frees a sequence; `NULL` is none. Its numbers are given back when its `unalike_ids` is closed.
 *
 * # Safety
 * It is one that this library gave, and is used no more.
 */
void unalike_sequence_free(struct unalike_sequence *sequence);

/**
 * Frees a snowflake generator; `NULL` is none. Its lease is given back when its `unalike_ids` is closed.
 *
 * # Safety
 * It is one that this library gave, and is used no more.
 */
void unalike_snowflake_free(struct unalike_snowflake *snowflake);

/**
 * The next id; waits for the store where none is in hand, at most `wait_max_ms`.
 *
 * # Safety
 * `sequence` is open, and `id` may be written to.
 */
struct unalike_error *unalike_sequence_next(const struct unalike_sequence *sequence, uint64_t *id);

/**
 * The next id if there is one without waiting, or 0. Where there is none, the store has been asked for more, and
 * `unalike_sequence_next` says what is wrong if something is.
 *
 * # Safety
 * `sequence` is open.
 */
uint64_t unalike_sequence_try_next(const struct unalike_sequence *sequence);

/**
 * The next `count` ids, 1 or more, ascending and not always consecutive. On an error `ids` is as it was, and no id of
 * a buffered sequence is lost.
 *
 * # Safety
 * `sequence` is open, and `ids` has room for `count` numbers.
 */
struct unalike_error *unalike_sequence_take(const struct unalike_sequence *sequence,
                                            uint32_t count,
                                            uint64_t *ids);

/**
 * The next id of a snowflake generator; waits where there is none yet, at most `wait_max_ms`.
 *
 * # Safety
 * `snowflake` is open, and `id` may be written to.
 */
struct unalike_error *unalike_snowflake_next(const struct unalike_snowflake *snowflake,
                                             uint64_t *id);

/**
 * The next id of a snowflake generator if there is one without waiting, or 0.
 *
 * # Safety
 * `snowflake` is open.
 */
uint64_t unalike_snowflake_try_next(const struct unalike_snowflake *snowflake);

/**
 * The next `count` ids of a snowflake generator, 1 or more, ascending. It lasts as long as the ticks that so many ids
 * fill, and each wait in it at most `wait_max_ms`. On an error `ids` is as it was.
 *
 * # Safety
 * `snowflake` is open, and `ids` has room for `count` numbers.
 */
struct unalike_error *unalike_snowflake_take(const struct unalike_snowflake *snowflake,
                                             uint32_t count,
                                             uint64_t *ids);

/**
 * `unalike_sequence_take` without a wait: `done` is told when all of them are in `ids`, the first one with it. Where
 * `done` is `NULL` nothing happens.
 *
 * # Safety
 * `sequence` is open; `ids` has room for `count` numbers until `done` was called; `context` may be used by another
 * thread.
 */
void unalike_sequence_take_async(const struct unalike_sequence *sequence,
                                 uint32_t count,
                                 uint64_t *ids,
                                 unalike_done done,
                                 void *context);

/**
 * `unalike_snowflake_take` without a wait: `done` is told when all of them are in `ids`, the first one with it. Where
 * `done` is `NULL` nothing happens.
 *
 * # Safety
 * `snowflake` is open; `ids` has room for `count` numbers until `done` was called; `context` may be used by another
 * thread.
 */
void unalike_snowflake_take_async(const struct unalike_snowflake *snowflake,
                                  uint32_t count,
                                  uint64_t *ids,
                                  unalike_done done,
                                  void *context);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* UNALIKE_H */
