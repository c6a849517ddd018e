/* When an entry, such as a hook, is due, and the earliest due position of many entries.
 *
 * A loop compares its position only with the earliest one, so a step on which nothing is due costs the same for one
 * entry and for a thousand. A position has three axes: the number of runs, the global step (which need not grow by one
 * in each run) and the time. An entry is due if it is due on any axis. */
#ifndef FASTSUP_DUE_H
#define FASTSUP_DUE_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#define FS_DUE_NEVER INT64_MAX

typedef struct {
    int64_t run;         /* due in the run with this number, counted from 0 */
    int64_t global_step; /* due in the run that takes the global step to this value */
    double time;         /* due once the clock reads this, in seconds; HUGE_VAL for never */
} fs_due;

/* Returns whether a clock has reached a time: 1, 0, or -1 after an error. */
typedef int (*fs_time_reached_fn)(double time);

/* Decides whether something is due; no other code decides this. Reads the clock only if the entry can be due only by
 * time, and then returns the result of `time_reached`. */
static inline int fs_due_reached(const fs_due *due, int64_t run, int64_t global_step, fs_time_reached_fn time_reached) {
    if (run >= due->run || global_step >= due->global_step) return 1;
    return due->time == HUGE_VAL ? 0 : time_reached(due->time);
}

/* Number of runs, each of which adds 1 to the global step, up to and including the run in which something is due by a
 * count. `run` is the number of the first of these runs, and `global_step` is the step before it. If the result is
 * below 1, it is already due. */
static inline int64_t fs_due_runs_until(const fs_due *due, int64_t run, int64_t global_step) {
    int64_t by_run = due->run == FS_DUE_NEVER ? FS_DUE_NEVER : due->run - run + 1;
    int64_t by_step = due->global_step == FS_DUE_NEVER ? FS_DUE_NEVER : due->global_step - global_step;
    return by_run < by_step ? by_run : by_step;
}

extern const fs_due fs_due_never;

void fs_due_clear(fs_due *due);

/* The earlier of two positions, axis by axis. */
fs_due fs_due_earlier(fs_due one, fs_due other);

/* The due positions of many entries, which the entries hold, and the earliest of them. */
typedef struct {
    size_t n;
    const fs_due **dues;
    fs_due earliest;
    const uint64_t *changes; /* counts the changes to schedules, which code outside the loop makes */
    uint64_t changes_seen;
} fs_due_table;

/* Creates a table of n entries that are never due. The caller then fills `dues`. Returns -1 if there is no memory. */
int fs_due_table_init(fs_due_table *table, size_t n, const uint64_t *changes);
void fs_due_table_free(fs_due_table *table);

/* Reads the positions of all entries again. */
void fs_due_table_reload(fs_due_table *table);

/* Returns 1 if schedules have changed since `fs_due_table_reload`. */
static inline int fs_due_table_changed(const fs_due_table *table) {
    return __atomic_load_n(table->changes, __ATOMIC_RELAXED) != table->changes_seen;
}

#endif
