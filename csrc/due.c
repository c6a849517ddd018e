#include "fastsup/due.h"

#include <math.h>

void fs_due_clear(fs_due *due) {
    due->run = FS_DUE_NEVER;
    due->global_step = FS_DUE_NEVER;
    due->time = HUGE_VAL;
}

int fs_due_reached(const fs_due *due, int64_t run, int64_t global_step, double now) {
    return run >= due->run || global_step >= due->global_step || now >= due->time;
}

fs_due fs_due_earlier(fs_due one, fs_due other) {
    if (other.run < one.run) one.run = other.run;
    if (other.global_step < one.global_step) one.global_step = other.global_step;
    if (other.time < one.time) one.time = other.time;
    return one;
}

fs_due fs_due_earliest(const fs_due *entries, size_t n) {
    fs_due earliest;
    fs_due_clear(&earliest);
    for (size_t i = 0; i < n; ++i) earliest = fs_due_earlier(earliest, entries[i]);
    return earliest;
}
