/* Two copies of the library in one process: copies ONE OTHER. It ends with 0, or says which line failed. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "that.h"
#include "unalike.h"

#define FILE_OF_BOTH "{\"store\": \"sqlite://ids.sqlite\"}"
#define SAME_FILE "{\"store\": \"sqlite://./linked/ids.sqlite\"}"
#define OTHER_FILE "{\"store\": \"sqlite://other.sqlite\"}"

typedef struct {
    __typeof__(unalike_open) *open;
    __typeof__(unalike_close) *close;
    __typeof__(unalike_error_kind) *kind;
    __typeof__(unalike_error_message) *message;
    __typeof__(unalike_error_free) *free_error;
    __typeof__(unalike_sequence_open) *sequence_open;
    __typeof__(unalike_sequence_next) *next;
    __typeof__(unalike_sequence_free) *free_sequence;
} copy;

static void *symbol(void *library, const char *name) {
    void *found = dlsym(library, name);
    that(found != NULL);
    return found;
}

static copy load(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    return (copy){
        symbol(library, "unalike_open"),          symbol(library, "unalike_close"),
        symbol(library, "unalike_error_kind"),    symbol(library, "unalike_error_message"),
        symbol(library, "unalike_error_free"),    symbol(library, "unalike_sequence_open"),
        symbol(library, "unalike_sequence_next"), symbol(library, "unalike_sequence_free"),
    };
}

static unalike_ids *opened(const copy *library, const char *options) {
    unalike_ids *ids = NULL;
    unalike_error *error = library->open(options, &ids);
    if (error != NULL) {
        fprintf(stderr, "%s: %s\n", library->kind(error), library->message(error));
        exit(1);
    }
    return ids;
}

static void is_refused(const copy *library, const char *options) {
    unalike_ids *ids = NULL;
    unalike_error *error = library->open(options, &ids);
    that(error != NULL && ids == NULL);
    that(strcmp(library->kind(error), "store") == 0);
    that(strstr(library->message(error), "another copy of this library") != NULL);
    library->free_error(error);
}

static uint64_t an_id(const copy *library, unalike_ids *ids) {
    unalike_sequence *sequence = NULL;
    uint64_t id = 0;
    that(library->sequence_open(ids, "order", NULL, NULL, &sequence) == NULL);
    that(library->next(sequence, &id) == NULL);
    library->free_sequence(sequence);
    return id;
}

typedef struct {
    const copy *library;
    unalike_ids *ids;
} opening;

static void *try_open(void *argument) {
    opening *one = argument;
    unalike_error *error = one->library->open(FILE_OF_BOTH, &one->ids);
    if (error != NULL) {
        one->library->free_error(error);
        one->ids = NULL;
    }
    return NULL;
}

static copy one, other;

static void *scenes(void *unused) {
    (void)unused;
    /* The first has the file, which it makes, for as long as it has it open, however often. */
    unalike_ids *first = opened(&one, FILE_OF_BOTH), *again = opened(&one, FILE_OF_BOTH);
    is_refused(&other, FILE_OF_BOTH);
    is_refused(&other, SAME_FILE);
    that(one.close(first) == NULL);
    is_refused(&other, FILE_OF_BOTH);
    uint64_t id = an_id(&one, again);

    /* Another file is the other's. A child inherits descriptors of the first's, and nobody knows who would close them. */
    unalike_ids *elsewhere = opened(&other, OTHER_FILE);
    is_refused(&one, OTHER_FILE);
    that(other.close(elsewhere) == NULL);
    pid_t child = fork();
    if (child == 0) {
        unalike_ids *none = NULL;
        unalike_error *error = other.open(FILE_OF_BOTH, &none);
        that(error != NULL && strstr(other.message(error), "something else in this process has") != NULL);
        _exit(0);
    }
    int status = 1;
    that(waitpid(child, &status, 0) == child && status == 0);

    /* Then the other has it. */
    that(one.close(again) == NULL);
    unalike_ids *then = opened(&other, FILE_OF_BOTH);
    that(an_id(&other, then) > id);
    is_refused(&one, FILE_OF_BOTH);
    that(other.close(then) == NULL);

    /* Never both, whoever comes first. */
    for (int round = 0; round < 20; round++) {
        opening both[2] = {{&one, NULL}, {&other, NULL}};
        pthread_t threads[2];
        for (int at = 0; at < 2; at++) {
            that(pthread_create(&threads[at], NULL, try_open, &both[at]) == 0);
        }
        for (int at = 0; at < 2; at++) {
            that(pthread_join(threads[at], NULL) == 0);
        }
        that(both[0].ids == NULL || both[1].ids == NULL);
        for (int at = 0; at < 2; at++) {
            that(both[at].ids == NULL || both[at].library->close(both[at].ids) == NULL);
        }
    }
    return NULL;
}

/* Threads run on when the first one has ended, and most of /proc/self is empty then. */
static void *scenes_and_end(void *first) {
    that(pthread_join(*(pthread_t *)first, NULL) == 0);
    scenes(NULL);
    exit(0);
}

int main(int count, char **arguments) {
    that(count == 3);
    alarm(100); /* a call that never ends */
    one = load(arguments[1]);
    other = load(arguments[2]);
    that(one.open != other.open);
    that(symlink(".", "linked") == 0);
    scenes(NULL);

    static pthread_t first, last;
    first = pthread_self();
    that(pthread_create(&last, NULL, scenes_and_end, &first) == 0);
    pthread_exit(NULL);
}
