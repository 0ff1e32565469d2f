/* What the C library promises, by its own header: program OPTIONS SCENE. It ends with 0, or says which line failed. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "that.h"
#include "unalike.h"

#define THREADS 4
#define CALLS 5000
#define BATCH 50

#define works(call) succeeded(call, __LINE__)
#define fails(call, kind, part) failed(call, kind, part, __LINE__)

static void succeeded(unalike_error *error, int line) {
    if (error != NULL) {
        fprintf(stderr, "line %d: %s: %s\n", line, unalike_error_kind(error), unalike_error_message(error));
        exit(1);
    }
}

static void failed(unalike_error *error, const char *kind, const char *part, int line) {
    if (error == NULL || strcmp(unalike_error_kind(error), kind) != 0 || !strstr(unalike_error_message(error), part)) {
        fprintf(stderr, "line %d: not %s with %s, but %s: %s\n", line, kind, part, unalike_error_kind(error),
                unalike_error_message(error));
        exit(1);
    }
    unalike_error_free(error);
}

static unalike_sequence *sequence;
static unalike_snowflake *flakes;
static uint64_t *taken[THREADS];
enum { EACH = CALLS + CALLS / BATCH * BATCH };

/* Ids one by one and in batches, in turn from both, which ascend for each thread. */
static void *take(void *number) {
    uint64_t *ids = taken[(size_t)number], last = 0, last_flake = 0;
    size_t have = 0;
    while (have < EACH) {
        works(unalike_sequence_next(sequence, &ids[have]));
        works(unalike_snowflake_next(flakes, &ids[have + 1]));
        that(ids[have] > last && ids[have + 1] > last_flake);
        last = ids[have];
        last_flake = ids[have + 1];
        have += 2;
        if (have + 2 * BATCH <= EACH) {
            works(unalike_sequence_take(sequence, BATCH, &ids[have]));
            works(unalike_snowflake_take(flakes, BATCH, &ids[have + BATCH]));
            for (size_t at = have; at < have + BATCH; at++) {
                that(ids[at] > last && ids[at + BATCH] > last_flake);
                last = ids[at];
                last_flake = ids[at + BATCH];
            }
            have += 2 * BATCH;
        }
    }
    return NULL;
}

static int ascending(const void *one, const void *other) {
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
    return a < b ? -1 : a > b;
}

static void are_different(uint64_t *ids, size_t count) {
    qsort(ids, count, sizeof *ids, ascending);
    that(ids[0] > 0);
    for (size_t at = 1; at < count; at++) {
        that(ids[at] > ids[at - 1]);
    }
}

static void threads(unalike_ids *ids) {
    works(unalike_sequence_open(ids, "order", NULL, "{\"step\": 1000}", &sequence));
    works(unalike_snowflake_open(ids, "default", "{\"layout\": \"twitter\"}", &flakes));
    uint64_t *all = calloc(THREADS * EACH, sizeof *all);
    pthread_t running[THREADS];
    for (size_t number = 0; number < THREADS; number++) {
        taken[number] = all + number * EACH;
        that(pthread_create(&running[number], NULL, take, (void *)number) == 0);
    }
    for (size_t number = 0; number < THREADS; number++) {
        that(pthread_join(running[number], NULL) == 0);
    }
    are_different(all, THREADS * EACH);
    /* Those of the sequence are the small ones. Two processes of one store have none in common. */
    printf("%" PRIu64 " %" PRIu64 "\n", all[0], all[THREADS * EACH / 2 - 1]);
    free(all);
    unalike_sequence_free(sequence);
    unalike_snowflake_free(flakes);
}

static atomic_int told, refused;

static void done(void *context, uint64_t id, unalike_error *error) {
    works(error);
    that(id == *(uint64_t *)context);
    uint64_t next;
    unalike_error *nested = unalike_sequence_take(sequence, 1, &next);
    /* On a thread of the library nothing waits. */
    if (nested != NULL && strcmp(unalike_error_kind(nested), "nested") == 0) {
        atomic_fetch_add(&refused, 1);
    }
    unalike_error_free(nested);
    atomic_fetch_add(&told, 1);
}

static void not_done(void *context, uint64_t id, unalike_error *error) {
    that(id == 0);
    fails(error, context, "");
    atomic_fetch_add(&told, 1);
}

static void callbacks(unalike_ids *ids) {
    works(unalike_sequence_open(ids, "order", "acme", NULL, &sequence));
    works(unalike_snowflake_open(ids, "default", "{\"layout\": \"twitter\"}", &flakes));
    uint64_t *all = calloc(200 * BATCH, sizeof *all);
    for (int call = 0; call < 200; call++) {
        uint64_t *room = all + call * BATCH;
        if (call % 2 == 0) {
            unalike_sequence_take_async(sequence, BATCH, room, done, room);
        } else {
            unalike_snowflake_take_async(flakes, BATCH, room, done, room);
        }
    }
    while (atomic_load(&told) < 200) {
        usleep(1000);
    }
    that(atomic_load(&refused) == 200);
    are_different(all, 200 * BATCH);
    unalike_sequence_take_async(sequence, 0, all, not_done, "count_zero");
    unalike_sequence_take_async(sequence, 1, NULL, not_done, "options");
    unalike_snowflake_take_async(NULL, 1, all, not_done, "options");
    unalike_sequence_take_async(sequence, 1, all, NULL, NULL);
    while (atomic_load(&told) < 203) {
        usleep(1000);
    }
    free(all);
    unalike_sequence_free(sequence);
    unalike_snowflake_free(flakes);
}

/* A handle that is not opened is NULL, whatever was there. */
static void opens_none(const char *options, const char *kind, const char *part) {
    unalike_ids *ids = (unalike_ids *)&told;
    fails(unalike_open(options, &ids), kind, part);
    that(ids == NULL);
}

static void no_sequence(unalike_ids *ids, const char *tag, const char *options, const char *kind, const char *part) {
    sequence = (unalike_sequence *)&told;
    fails(unalike_sequence_open(ids, tag, NULL, options, &sequence), kind, part);
    that(sequence == NULL);
}

static void no_flakes(unalike_ids *ids, const char *options, const char *kind, const char *part) {
    flakes = (unalike_snowflake *)&told;
    fails(unalike_snowflake_open(ids, "a", options, &flakes), kind, part);
    that(flakes == NULL);
}

static void misuse(unalike_ids *ids, const char *options) {
    uint64_t id = 7, few[3] = {7, 7, 7};
    fails(unalike_open(options, NULL), "options", "ids is NULL");
    opens_none(NULL, "options", "options is NULL");
    opens_none("{", "options", "cannot be read");
    opens_none("{\"store\": \"\xff\"}", "options", "not UTF-8");
    opens_none("{\"store\": \"redis://ids:secret@h/0\"}", "options", "redis://ids@h/0");
    opens_none("{\"store\": \"mysql://ids@127.0.0.1:1/ids\"}", "store", "127.0.0.1:1");
    opens_none("{\"store\": \"sqlite://a\", \"keys\": {\"1\": {\"secret\": \"0\"}}}", "options", "32 hexadecimal");
    opens_none("{\"store\": \"sqlite://a\", \"keys\": {\"1\": {\"secret_file\": \"none\"}}}", "options", "the file none");
    no_sequence(NULL, "a", NULL, "options", "ids is NULL");
    no_sequence(ids, NULL, NULL, "options", "tag is NULL");
    no_sequence(ids, "", NULL, "name_invalid", "1 to 128 bytes");
    no_sequence(ids, "a", "{\"stp\": 1}", "options", "unknown field `stp`");
    no_sequence(ids, "a", "{\"mode\": \"ordered\"}", "mode_bound", "buffered");
    no_flakes(NULL, "{}", "options", "ids is NULL");
    no_flakes(ids, NULL, "options", "options is NULL");
    no_flakes(ids, "{\"layout\": \"leav\"}", "options", "leav");
    fails(unalike_sequence_next(NULL, &id), "options", "sequence is NULL");
    that(unalike_sequence_try_next(NULL) == 0 && unalike_snowflake_try_next(NULL) == 0);

    works(unalike_sequence_open(ids, "few", NULL, "{\"id_max\": 3}", &sequence));
    fails(unalike_sequence_next(sequence, NULL), "options", "id is NULL");
    fails(unalike_sequence_take(sequence, 0, few), "count_zero", "1 at least");
    fails(unalike_sequence_take(sequence, 3, NULL), "options", "ids is NULL");
    works(unalike_sequence_take(sequence, 2, few));
    that(few[0] == 1 && few[1] == 2 && few[2] == 7);
    fails(unalike_sequence_take(sequence, 3, few), "exhausted", "only 1 id");
    that(few[0] == 1 && few[1] == 2 && few[2] == 7);
    works(unalike_sequence_next(sequence, &id));
    that(id == 3);
    unalike_error *error = unalike_sequence_next(sequence, &id);
    that(error != NULL && !unalike_error_is_retryable(error) && !unalike_error_may_have_granted(error));
    that(unalike_error_retry_after_ms(error) == 0 && id == 3);
    unalike_error_free(error);
    unalike_sequence_free(sequence);
    unalike_error_free(NULL);
    unalike_sequence_free(NULL);
    unalike_snowflake_free(NULL);
    fails(unalike_close(NULL), "options", "ids is NULL");
}

/* Ids as a format shows them: each text is read back, and nothing is taken where it could not be shown. */
static void formats(unalike_ids *ids) {
    static char texts[BATCH][UNALIKE_TEXT_BYTES];
    uint64_t id, numbers[BATCH], shard_key = 37;
    unalike_formatted *orders, *web, *daily, *other = (unalike_formatted *)&told;
    const char *keyed = "{\"template\": \"ORD-{id:08}\", \"bits\": 26, \"keys\": [1]}";
    works(unalike_formatted_open(ids, "order", NULL, keyed, NULL, &orders));
    fails(unalike_formatted_take(orders, 1, &shard_key, texts[0]), "format", "shard key");
    fails(unalike_formatted_take(orders, 0, NULL, texts[0]), "count_zero", "1 at least");
    fails(unalike_formatted_take(orders, 1, NULL, NULL), "options", "texts is NULL");
    fails(unalike_formatted_take_numbers(orders, 1, NULL, NULL), "options", "numbers is NULL");
    works(unalike_formatted_take(orders, BATCH, NULL, texts[0]));
    for (size_t at = 0; at < BATCH; at++) {
        that(strlen(texts[at]) == 12 && strncmp(texts[at], "ORD-", 4) == 0);
        works(unalike_formatted_read(orders, texts[at], &id));
        that(id == at + 1);
        that(strtoull(texts[at] + 4, NULL, 10) != id);
    }
    works(unalike_formatted_take_numbers(orders, BATCH, NULL, numbers));
    for (size_t at = 0; at < BATCH; at++) {
        snprintf(texts[0], sizeof texts[0], "ORD-%08" PRIu64, numbers[at]);
        works(unalike_formatted_read(orders, texts[0], &id));
        that(id == BATCH + at + 1);
    }
    fails(unalike_formatted_read(orders, "ORD-1", &id), "text", "ORD-1");
    fails(unalike_formatted_read(orders, NULL, &id), "options", "text is NULL");
    fails(unalike_formatted_read(orders, "ORD-1", NULL), "options", "id is NULL");
    fails(unalike_formatted_open(ids, "order", NULL, "{\"template\": \"A{id}\"}", NULL, &other), "store", "order");
    that(other == NULL);
    fails(unalike_formatted_open(ids, "a", NULL, "{\"keys\": [2]}", NULL, &other), "options", "there is no key 2");
    fails(unalike_formatted_open(ids, "a", NULL, "{\"templat\": \"\"}", NULL, &other), "options", "unknown field");
    fails(unalike_formatted_open(ids, "a", NULL, NULL, NULL, &other), "options", "format is NULL");
    unalike_formatted_free(orders);

    /* Where a counter starts again, only whole texts are unique. */
    const char *restarts = "{\"template\": \"D{yyyyMMdd}-{id:04}\", \"restart\": \"day\", \"utc_offset\": \"+08:00\"}";
    works(unalike_formatted_open(ids, "daily", "acme", restarts, NULL, &daily));
    fails(unalike_formatted_take_numbers(daily, 1, NULL, numbers), "format_misfit", "whole texts");
    works(unalike_formatted_take(daily, 1, NULL, texts[0]));
    that(strlen(texts[0]) == 14 && strcmp(texts[0] + 9, "-0001") == 0);
    unalike_formatted_free(daily);

    /* The longest text there is. */
    char template[129], json[200];
    memset(template, 'x', 128);
    memcpy(template + 119, "{id:uuid}", 10);
    snprintf(json, sizeof json, "{\"template\": \"%s\"}", template);
    works(unalike_formatted_open(ids, "long", NULL, json, NULL, &other));
    works(unalike_formatted_take(other, 2, NULL, texts[0]));
    that(strlen(texts[0]) == 155 && texts[0][118] == 'x' && texts[1][118] == 'x' && strcmp(texts[0], texts[1]) != 0);
    unalike_formatted_free(other);

    fails(unalike_formatted_snowflake_open(ids, "web", "{}", NULL, &web), "options", "options is NULL");
    works(unalike_formatted_snowflake_open(ids, "web", "{\"gene_bits\": 4}", "{\"layout\": \"twitter\"}", &web));
    fails(unalike_formatted_take_numbers(web, 1, NULL, numbers), "format", "shard key");
    works(unalike_formatted_take_numbers(web, BATCH, &shard_key, numbers));
    for (size_t at = 0; at < BATCH; at++) {
        that(numbers[at] % 16 == shard_key % 16);
    }
    are_different(numbers, BATCH);
    unalike_formatted_free(web);

    /* A text is read as one of an id that the layout can have, on its day. */
    const char *dated = "{\"template\": \"{yyyyMMdd}-{id}\"}";
    works(unalike_formatted_snowflake_open(ids, "dated", dated, "{\"layout\": \"twitter\"}", &web));
    works(unalike_formatted_take(web, 1, NULL, texts[0]));
    works(unalike_formatted_read(web, texts[0], &id));
    memcpy(texts[0], "20200101", 8);
    fails(unalike_formatted_read(web, texts[0], &id), "text", "date");
    unalike_formatted_free(web);
    unalike_formatted_free(NULL);
}

/* What a child inherited refuses at once, and its parent goes on. */
static void forks(unalike_ids *ids) {
    uint64_t before, after;
    works(unalike_sequence_open(ids, "order", NULL, NULL, &sequence));
    works(unalike_snowflake_open(ids, "default", "{\"layout\": \"twitter\"}", &flakes));
    works(unalike_sequence_next(sequence, &before));
    pid_t child = fork();
    that(child >= 0);
    if (child == 0) {
        uint64_t id = 7;
        unalike_sequence *again;
        alarm(20); /* a call that never ends */
        that(unalike_sequence_try_next(sequence) == 0 && unalike_snowflake_try_next(flakes) == 0);
        fails(unalike_sequence_next(sequence, &id), "forked", "open it again");
        fails(unalike_sequence_take(sequence, 1, &id), "forked", "open it again");
        fails(unalike_snowflake_next(flakes, &id), "forked", "open it again");
        fails(unalike_sequence_open(ids, "order", NULL, NULL, &again), "forked", "open it again");
        unalike_sequence_take_async(sequence, 1, &id, not_done, "forked");
        that(atomic_load(&told) == 1 && id == 7);
        unalike_sequence_free(sequence);
        unalike_snowflake_free(flakes);
        works(unalike_close(ids));
        _exit(0);
    }
    int status;
    that(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    works(unalike_sequence_next(sequence, &after));
    that(after == before + 1);
    unalike_sequence_free(sequence);
    unalike_snowflake_free(flakes);
}

/* A child that opens another one gets other ids; its parent goes on. */
static void child(unalike_ids *ids, const char *options) {
    uint64_t before, after, theirs;
    int ends[2];
    works(unalike_sequence_open(ids, "order", NULL, NULL, &sequence));
    works(unalike_sequence_next(sequence, &before));
    that(pipe(ends) == 0);
    pid_t child = fork();
    that(child >= 0);
    if (child == 0) {
        unalike_ids *own;
        unalike_sequence *again;
        uint64_t id;
        alarm(20);
        works(unalike_open(options, &own));
        works(unalike_sequence_open(own, "order", NULL, NULL, &again));
        works(unalike_sequence_next(again, &id));
        that(write(ends[1], &id, sizeof id) == sizeof id);
        unalike_sequence_free(again);
        works(unalike_close(own));
        _exit(0);
    }
    int status;
    that(read(ends[0], &theirs, sizeof theirs) == sizeof theirs);
    that(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    works(unalike_sequence_next(sequence, &after));
    that(theirs != before && theirs != after && before != after);
    unalike_sequence_free(sequence);
}

/* The store is killed between two calls, by whoever runs this: calls fail in the end, and the program lives. */
static void outlives(unalike_ids *ids) {
    uint64_t room[BATCH];
    char answer;
    works(unalike_sequence_open(ids, "order", NULL, "{\"step\": 10, \"prefetch\": 1}", &sequence));
    works(unalike_sequence_take(sequence, BATCH, room));
    that(write(1, "killed?\n", 8) == 8 && read(0, &answer, 1) == 1);
    unalike_error *error;
    /* As long as ids are in hand. */
    while ((error = unalike_sequence_take(sequence, BATCH, room)) == NULL) {
    }
    that(unalike_error_is_retryable(error));
    unalike_error_free(error);
    unalike_sequence_free(sequence);
}

static void close_inside(void *ids, uint64_t id, unalike_error *error) {
    works(error);
    that(id > 0);
    fails(unalike_close(ids), "nested", "unalike_close");
    atomic_fetch_add(&told, 1);
}

/* Callbacks come when the handle is gone, and nothing is closed in one. */
static void freed(unalike_ids *ids) {
    static uint64_t room[BATCH];
    works(unalike_sequence_open(ids, "freed", NULL, NULL, &sequence));
    unalike_sequence_take_async(sequence, BATCH, room, close_inside, ids);
    unalike_sequence_free(sequence);
    while (atomic_load(&told) < 1) {
        usleep(1000);
    }
    that(room[BATCH - 1] == BATCH);
}

static unalike_ids *last;

static void at_exit(void) {
    works(unalike_close(last));
}

/* What `atexit` was given closes, when the thread has given up much of its own already. */
static void exits(unalike_ids *ids) {
    uint64_t id;
    works(unalike_sequence_open(ids, "exits", NULL, NULL, &sequence));
    works(unalike_sequence_next(sequence, &id));
    unalike_sequence_free(sequence);
    last = ids;
    that(atexit(at_exit) == 0);
    exit(0);
}

/* A child may open a file that its parent has closed. */
static void closed(unalike_ids *ids, const char *options) {
    works(unalike_close(ids));
    pid_t child = fork();
    that(child >= 0);
    if (child == 0) {
        alarm(20);
        works(unalike_open(options, &ids));
        works(unalike_close(ids));
        _exit(0);
    }
    int status;
    that(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    exit(0);
}

static void closing(const char *options) {
    unalike_ids *ids;
    uint64_t id;
    works(unalike_open(options, &ids));
    works(unalike_sequence_open(ids, "closing", NULL, NULL, &sequence));
    works(unalike_snowflake_open(ids, "closing", "{\"layout\": \"twitter\"}", &flakes));
    works(unalike_sequence_next(sequence, &id));
    that(id == 1);
    works(unalike_close(ids));
    fails(unalike_sequence_next(sequence, &id), "closed", "is closed");
    fails(unalike_snowflake_next(flakes, &id), "closed", "is closed");
    unalike_sequence_take_async(sequence, 1, &id, not_done, "closed");
    unalike_sequence_free(sequence);
    unalike_snowflake_free(flakes);
    while (atomic_load(&told) < 1) {
        usleep(1000);
    }
    /* What was not used came back: nothing is skipped. */
    works(unalike_open(options, &ids));
    works(unalike_sequence_open(ids, "closing", NULL, NULL, &sequence));
    works(unalike_sequence_next(sequence, &id));
    that(id == 2);
    unalike_sequence_free(sequence);
    works(unalike_close(ids));
}

int main(int count, char **arguments) {
    that(count == 3);
    alarm(100); /* a call that never ends */
    const char *options = arguments[1], *scene = arguments[2];
    if (strcmp(scene, "closing") == 0) {
        closing(options);
        return 0;
    }
    unalike_ids *ids;
    works(unalike_open(options, &ids));
    if (strcmp(scene, "threads") == 0) {
        threads(ids);
    } else if (strcmp(scene, "callbacks") == 0) {
        callbacks(ids);
    } else if (strcmp(scene, "misuse") == 0) {
        misuse(ids, options);
    } else if (strcmp(scene, "child") == 0) {
        child(ids, options);
    } else if (strcmp(scene, "outlives") == 0) {
        outlives(ids);
    } else if (strcmp(scene, "atexit") == 0) {
        exits(ids);
    } else if (strcmp(scene, "closed") == 0) {
        closed(ids, options);
    } else if (strcmp(scene, "formats") == 0) {
        formats(ids);
    } else if (strcmp(scene, "freed") == 0) {
        freed(ids);
    } else {
        that(strcmp(scene, "forks") == 0);
        forks(ids);
    }
    works(unalike_close(ids));
    return 0;
}
