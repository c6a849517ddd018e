#include "due.h"

#include <math.h>

void fs_due_clear(fs_due *due) {
    due->run = FS_DUE_NEVER;
    due->global_step = FS_DUE_NEVER;
    due->time = HUGE_VAL;
}

int fs_due_reached(const fs_due *due, int64_t run, int64_t global_step, double now) {
    return run >= due->run || global_step >= due->global_step || now >= due->time;
}

fs_due fs_due_earliest(const fs_due *entries, size_t n) {
    fs_due earliest;
    fs_due_clear(&earliest);
    for (size_t i = 0; i < n; ++i) {
        if (entries[i].run < earliest.run) earliest.run = entries[i].run;
        if (entries[i].global_step < earliest.global_step) earliest.global_step = entries[i].global_step;
        if (entries[i].time < earliest.time) earliest.time = entries[i].time;
    }
    return earliest;
}
