#include "rows.h"

#include <string.h>

/* Number of rows that are fetched into the cache ahead, because shuffled rows usually aren't in the cache. */
#define ROWS_AHEAD 8

/* Copies rows of a size that the compiler knows, so that each copy is a few instructions instead of a call. */
#define TAKE_ROWS_OF(size)                                                                                             \
    for (size_t i = 0; i < n; ++i) memcpy(to + i * (size), from + (size_t)rows[i] * (size), (size))

void fs_take_rows(char *to, const char *from, size_t row_bytes, const int64_t *rows, size_t n) {
    switch (row_bytes) {
    case 1:
        TAKE_ROWS_OF(1);
        return;
    case 4:
        TAKE_ROWS_OF(4);
        return;
    case 8:
        TAKE_ROWS_OF(8);
        return;
    default:
        break;
    }
    for (size_t i = 0; i < n; ++i) {
        if (i + ROWS_AHEAD < n) __builtin_prefetch(from + (size_t)rows[i + ROWS_AHEAD] * row_bytes);
        memcpy(to + i * row_bytes, from + (size_t)rows[i] * row_bytes, row_bytes);
    }
}
