/* What programs that test the library hold, or end with the line that does not. */
#include <stdio.h>
#include <stdlib.h>

#define that(condition)                                                  \
    do {                                                                 \
        if (!(condition)) {                                              \
            fprintf(stderr, "line %d: not %s\n", __LINE__, #condition);  \
            exit(1);                                                     \
        }                                                                \
    } while (0)
