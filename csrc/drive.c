#include "drive.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "clock.h"

/* The longest time without Python: its signal handlers, and a replaced clock, must be noticed. */
#define SIGNALS_SECONDS 0.05

fs_drive *fs_drive_new(size_t n) {
    fs_drive *drive = calloc(1, sizeof *drive);
    if (drive == NULL) return NULL;
    /* One more than needed: calloc(0) may return NULL. */
    drive->slots = calloc(n + 1, sizeof *drive->slots);
    drive->always = calloc(n + 1, sizeof *drive->always);
    if (drive->slots == NULL || drive->always == NULL) {
        fs_drive_free(drive);
        return NULL;
    }
    drive->n_slots = n;
    drive->max_steps = INT64_MAX;
    drive->loop.result = NAN;
    fs_due_clear(&drive->earliest);
    return drive;
}

void fs_drive_free(fs_drive *drive) {
    if (drive == NULL) return;
    free(drive->slots);
    free(drive->always);
    free(drive);
}

void fs_drive_reload(fs_drive *drive) {
    fs_due_clear(&drive->earliest);
    drive->n_always = 0;
    drive->changes_seen = __atomic_load_n(drive->changes, __ATOMIC_RELAXED);
    for (size_t i = 0; i < drive->n_slots; ++i) {
        fs_slot *slot = &drive->slots[i];
        if (slot->function != NULL && slot->due->run <= drive->loop.steps) drive->always[drive->n_always++] = slot;
        else drive->earliest = fs_due_earlier(drive->earliest, *slot->due);
    }
}

int fs_drive_is_done(const fs_drive *drive) {
    return drive->loop.steps >= drive->max_steps || __atomic_load_n(&drive->stop_requested, __ATOMIC_RELAXED);
}

void fs_drive_request_stop(const fs_loop *loop) {
    __atomic_store_n(&((fs_drive *)loop)->stop_requested, 1, __ATOMIC_RELAXED);
}

int fs_drive_fail(const fs_loop *loop, const char *message) {
    snprintf(((fs_drive *)loop)->message, FS_MESSAGE_SIZE, "%s", message == NULL ? "" : message);
    return -1;
}

void fs_slot_advance(fs_slot *slot, int64_t global_step, double now) {
    int64_t every = slot->schedule.every_steps;
    if (every == 1) slot->due->run = 0;
    if (every > 1) {
        /* The next multiple of the interval, so that a resumed loop calls the hook at the same steps. */
        int64_t last_multiple = global_step - global_step % every;
        slot->due->global_step = last_multiple > INT64_MAX - every ? FS_DUE_NEVER : last_multiple + every;
    }
    if (slot->schedule.every_secs > 0.0) slot->due->time = now + slot->schedule.every_secs;
}

static fs_event failed(fs_drive *drive, fs_event event, int code) {
    drive->code = code;
    return event;
}

fs_event fs_drive_call(fs_drive *drive, const fs_slot *slot) {
    int code = slot->function(&drive->loop, slot->context);
    if (code == FS_GO_ON) return FS_NOTHING_DUE;
    if (code != FS_STOP) return failed(drive, FS_HOOK_FAILED, code);
    fs_drive_request_stop(&drive->loop);
    return FS_NOTHING_DUE;
}

static int anything_is_due(const fs_drive *drive, int64_t run) {
    const fs_due *earliest = &drive->earliest;
    if (run >= earliest->run || drive->loop.global_step >= earliest->global_step) return 1;
    if (earliest->time == HUGE_VAL) return 0;
    return drive->clock_replaced || fs_clock_steady_reached(earliest->time);
}

/* Calls the due hooks in order, if they are all in C. */
static fs_event call_due(fs_drive *drive, int64_t run) {
    double now = drive->earliest.time == HUGE_VAL ? 0.0 : fs_clock_steady();
    int64_t step = drive->loop.global_step;
    fs_event event = FS_NOTHING_DUE;
    if (drive->clock_replaced && drive->earliest.time != HUGE_VAL) return FS_HOOKS_DUE;
    for (size_t i = 0; i < drive->n_slots; ++i)
        if (drive->slots[i].function == NULL && fs_due_reached(drive->slots[i].due, run, step, now))
            return FS_HOOKS_DUE;
    for (size_t i = 0; i < drive->n_slots && event == FS_NOTHING_DUE; ++i) {
        fs_slot *slot = &drive->slots[i];
        if (!fs_due_reached(slot->due, run, step, now)) continue;
        fs_slot_advance(slot, step, now);
        event = fs_drive_call(drive, slot);
    }
    fs_drive_reload(drive);
    return event;
}

static int changed_from_outside(const fs_drive *drive) {
    return __atomic_load_n(drive->changes, __ATOMIC_RELAXED) != drive->changes_seen;
}

int fs_drive_count_step(fs_drive *drive) {
    int64_t run = drive->loop.steps++;
    drive->loop.global_step++;
    return changed_from_outside(drive) || drive->n_always > 0 || anything_is_due(drive, run);
}

fs_event fs_drive_step_done(fs_drive *drive) {
    int64_t run = drive->loop.steps++;
    drive->loop.global_step++;
    if (changed_from_outside(drive)) return FS_HOOKS_DUE;
    if (anything_is_due(drive, run)) return call_due(drive, run);
    for (size_t i = 0; i < drive->n_always; ++i) {
        fs_event event = fs_drive_call(drive, drive->always[i]);
        if (event != FS_NOTHING_DUE) return event;
    }
    return FS_NOTHING_DUE;
}

fs_event fs_drive_run(fs_drive *drive) {
    double signals_due = fs_clock_ticking() + SIGNALS_SECONDS;
    while (!fs_drive_is_done(drive)) {
        int code = drive->step(&drive->loop, drive->step_context);
        if (code == FS_STOP) return FS_ENDED;
        if (code != FS_GO_ON) return failed(drive, FS_STEP_FAILED, code);
        fs_event event = fs_drive_step_done(drive);
        if (event != FS_NOTHING_DUE) return event;
        if (fs_clock_ticking() >= signals_due) return FS_SIGNALS_DUE;
    }
    return FS_ENDED;
}
