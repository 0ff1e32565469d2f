/* The first ids in C: it goes on where it ended, or a little behind that, each time that it runs. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "unalike.h"

/* Ends the program if a call failed. */
static void check(unalike_error *error) {
    if (error == NULL) {
        return;
    }
    fprintf(stderr, "%s: %s\n", unalike_error_kind(error), unalike_error_message(error));
    unalike_error_free(error);
    exit(1);
}

int main(void) {
    unalike_ids *ids;
    unalike_sequence *orders;
    unalike_snowflake *flakes;
    uint64_t id, batch[1000];

    check(unalike_open("{\"store\": \"sqlite://ids.sqlite\"}", &ids));
    check(unalike_sequence_open(ids, "order", NULL, NULL, &orders));
    check(unalike_sequence_next(orders, &id));
    printf("order %" PRIu64 "\n", id);
    check(unalike_sequence_take(orders, 1000, batch));
    printf("orders %" PRIu64 " to %" PRIu64 "\n", batch[0], batch[999]);

    check(unalike_snowflake_open(ids, "default", "{\"layout\": \"twitter\"}", &flakes));
    check(unalike_snowflake_next(flakes, &id));
    printf("snowflake %" PRIu64 "\n", id);

    unalike_snowflake_free(flakes);
    unalike_sequence_free(orders);
    check(unalike_close(ids)); /* gives back what was not used */
    return 0;
}
