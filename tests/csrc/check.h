/* CHECK, which counts the failed checks of a program and prints where they are. */
#ifndef FASTSUP_CHECK_H
#define FASTSUP_CHECK_H

#include <stdio.h>

static int failures;

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                            \
            ++failures;                                                                                                \
        }                                                                                                              \
    } while (0)

#endif
