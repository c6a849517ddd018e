/* When an entry, such as a hook, is due; and the earliest of many.
 *
 * A loop compares its position with the earliest only, so a step on which nothing is due costs the same for one entry
 * and for a thousand. A position has three axes: the number of runs, the global step (which need not grow by one in
 * each run) and the time. An entry is due if it is due on any of them. */
#ifndef FASTSUP_DUE_H
#define FASTSUP_DUE_H

#include <stddef.h>
#include <stdint.h>

#define FS_DUE_NEVER INT64_MAX

typedef struct {
    int64_t run;         /* due in the run with this number, counted from 0 */
    int64_t global_step; /* due in the run that takes the global step to this value */
    double time;         /* due once the clock reads this, in seconds; HUGE_VAL: never */
} fs_due;

void fs_due_clear(fs_due *due);
int fs_due_reached(const fs_due *due, int64_t run, int64_t global_step, double now);

/* The earlier of two positions, axis by axis. */
fs_due fs_due_earlier(fs_due one, fs_due other);

/* The earliest position of n entries, axis by axis. */
fs_due fs_due_earliest(const fs_due *entries, size_t n);

#endif
