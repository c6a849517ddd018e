/* Copies rows of an array in a given order, to take batches from data in memory. */
#ifndef FASTSUP_ROWS_H
#define FASTSUP_ROWS_H

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

/* Copies the rows `rows[0]` to `rows[n - 1]` of `from` to `to`, one after the other. A row has `row_bytes` bytes. The
 * caller has checked that each row exists. */
void fs_take_rows(char *to, const char *from, size_t row_bytes, const int64_t *rows, size_t n);

#pragma GCC visibility pop

#endif
