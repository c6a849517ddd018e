#include "fastsup/due.h"

#include <stdlib.h>

const fs_due fs_due_never = {FS_DUE_NEVER, FS_DUE_NEVER, HUGE_VAL};

void fs_due_clear(fs_due *due) {
    *due = fs_due_never;
}

fs_due fs_due_earlier(fs_due one, fs_due other) {
    if (other.run < one.run) one.run = other.run;
    if (other.global_step < one.global_step) one.global_step = other.global_step;
    if (other.time < one.time) one.time = other.time;
    return one;
}

int fs_due_table_init(fs_due_table *table, size_t n, const uint64_t *changes) {
    /* Allocate one more than needed, because calloc(0) may return NULL. */
    table->dues = calloc(n + 1, sizeof *table->dues);
    if (table->dues == NULL) return -1;
    for (size_t i = 0; i < n; ++i) table->dues[i] = &fs_due_never;
    table->n = n;
    table->changes = changes;
    fs_due_table_reload(table);
    return 0;
}

void fs_due_table_free(fs_due_table *table) {
    free(table->dues);
    table->dues = NULL;
}

void fs_due_table_reload(fs_due_table *table) {
    table->changes_seen = __atomic_load_n(table->changes, __ATOMIC_RELAXED);
    table->earliest = fs_due_never;
    for (size_t i = 0; i < table->n; ++i) table->earliest = fs_due_earlier(table->earliest, *table->dues[i]);
}
