/* What the programs here check with: each counts what failed, and says where. */
#ifndef FASTSUP_CHECK_H
#define FASTSUP_CHECK_H

#include <stdio.h>

static int failures;

#define CHECK(condition)                                                \
    do {                                                                \
        if (!(condition)) {                                             \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            ++failures;                                                 \
        }                                                               \
    } while (0)

#endif
