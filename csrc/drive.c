#include "drive.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "clock.h"

/* Maximum time without Python, because Python must handle signals and notice a replaced clock. */
#define SIGNALS_SECONDS 0.05

const fs_drive_clock fs_steady_clock = {fs_clock_steady_reached, fs_clock_steady};

fs_drive *fs_drive_new(size_t n, const uint64_t *changes) {
    fs_drive *drive = calloc(1, sizeof *drive);
    if (drive == NULL) return NULL;
    /* Allocate one more than needed, because calloc(0) may return NULL. */
    drive->slots = calloc(n + 1, sizeof *drive->slots);
    drive->always = calloc(n + 1, sizeof *drive->always);
    if (drive->slots == NULL || drive->always == NULL || fs_due_table_init(&drive->table, n, changes) != 0) {
        fs_drive_free(drive);
        return NULL;
    }
    drive->n_slots = n;
    drive->max_steps = INT64_MAX;
    drive->loop.result = NAN;
    drive->clock = &fs_steady_clock;
    return drive;
}

void fs_drive_free(fs_drive *drive) {
    if (drive == NULL) return;
    free(drive->slots);
    free(drive->always);
    fs_due_table_free(&drive->table);
    free(drive);
}

void fs_drive_reload(fs_drive *drive) {
    drive->n_always = 0;
    drive->next_slot = 0;
    for (size_t i = 0; i < drive->n_slots; ++i) {
        fs_slot *slot = &drive->slots[i];
        int every_step = slot->due->run <= drive->loop.steps;
        int always = every_step && slot->function != NULL;
        if (always) drive->always[drive->n_always++] = slot;
        int left_out = always || (every_step && drive->makes_several && slot->takes_several);
        drive->table.dues[i] = left_out ? &fs_due_never : slot->due;
    }
    fs_due_table_reload(&drive->table);
}

int fs_drive_is_done(const fs_drive *drive) {
    return drive->loop.global_step >= drive->max_steps || __atomic_load_n(&drive->stop_requested, __ATOMIC_RELAXED);
}

void fs_drive_request_stop(const fs_loop *loop) {
    __atomic_store_n(&((fs_drive *)loop)->stop_requested, 1, __ATOMIC_RELAXED);
}

int fs_drive_fail(const fs_loop *loop, const char *message) {
    fs_drive *drive = (fs_drive *)loop;
    snprintf(drive->message, FS_MESSAGE_SIZE, "%s", message == NULL ? "" : message);
    drive->message_steps = loop->steps;
    return -1;
}

void fs_slot_advance(fs_slot *slot, int64_t global_step, double now) {
    int64_t every = slot->schedule.every_steps;
    if (every == 1) slot->due->run = 0;
    if (every > 1) {
        /* Use the next multiple of the interval, so that a resumed loop calls the hook at the same steps. */
        int64_t last_multiple = global_step - global_step % every;
        slot->due->global_step = last_multiple > INT64_MAX - every ? FS_DUE_NEVER : last_multiple + every;
    }
    if (slot->schedule.every_secs > 0.0) slot->due->time = now + slot->schedule.every_secs;
}

fs_event fs_drive_failed(fs_drive *drive, fs_event event, int code) {
    drive->code = code;
    if (drive->message_steps != drive->loop.steps) drive->message[0] = '\0';
    return event;
}

static fs_event clock_failed(fs_drive *drive) {
    drive->due_slot = NULL;
    return fs_drive_failed(drive, FS_HOOK_FAILED, -1);
}

fs_event fs_drive_call(fs_drive *drive, fs_slot *slot) {
    int code = slot->function(&drive->loop, slot->context);
    if (code == FS_GO_ON) return FS_NOTHING_DUE;
    if (code != FS_STOP) {
        drive->due_slot = slot;
        return fs_drive_failed(drive, FS_HOOK_FAILED, code);
    }
    fs_drive_request_stop(&drive->loop);
    return FS_NOTHING_DUE;
}

fs_event fs_drive_call_due(fs_drive *drive) {
    int64_t run = drive->loop.steps - 1;
    while (drive->next_slot < drive->n_slots) {
        fs_slot *slot = &drive->slots[drive->next_slot++];
        int due = fs_due_reached(slot->due, run, drive->loop.global_step, drive->clock->reached);
        if (due == 0) continue;
        if (due < 0) return clock_failed(drive);
        if (slot->function != NULL) {
            double now = slot->schedule.every_secs > 0.0 ? drive->clock->now() : 0.0;
            fs_slot_advance(slot, drive->loop.global_step, now);
        }
        drive->due_slot = slot;
        if (slot->function == NULL || drive->calls_no_hook) return FS_HOOK_DUE;
        fs_event event = fs_drive_call(drive, slot);
        if (event != FS_NOTHING_DUE) return event;
    }
    fs_drive_reload(drive);
    return FS_NOTHING_DUE;
}

fs_event fs_drive_step_done(fs_drive *drive) {
    int64_t run = drive->loop.steps++;
    drive->loop.global_step++;
    if (fs_due_table_changed(&drive->table)) return FS_SCHEDULES_CHANGED;
    int due = fs_due_reached(&drive->table.earliest, run, drive->loop.global_step, drive->clock->reached);
    if (due < 0) return clock_failed(drive);
    if (due || (drive->n_always > 0 && drive->calls_no_hook)) return fs_drive_call_due(drive);
    for (size_t i = 0; i < drive->n_always; ++i) {
        fs_event event = fs_drive_call(drive, drive->always[i]);
        if (event != FS_NOTHING_DUE) return event;
    }
    return FS_NOTHING_DUE;
}

int64_t fs_drive_steps_until_due(const fs_drive *drive) {
    if (drive->n_always > 0) return 1;
    int64_t steps = drive->max_steps - drive->loop.global_step;
    int64_t until_due = fs_due_runs_until(&drive->table.earliest, drive->loop.steps, drive->loop.global_step);
    if (until_due < steps) steps = until_due;
    return steps < 1 ? 1 : steps;
}

fs_event fs_drive_steps_done(fs_drive *drive, int64_t steps) {
    drive->loop.steps += steps - 1;
    drive->loop.global_step += steps - 1;
    return fs_drive_step_done(drive);
}

fs_event fs_drive_run(fs_drive *drive) {
    double signals_due = fs_clock_ticking() + SIGNALS_SECONDS;
    while (!fs_drive_is_done(drive)) {
        int code = drive->step(&drive->loop, drive->step_context);
        if (code == FS_STOP) return FS_ENDED;
        if (code != FS_GO_ON) return fs_drive_failed(drive, FS_STEP_FAILED, code);
        fs_event event = fs_drive_step_done(drive);
        if (event != FS_NOTHING_DUE) return event;
        if (fs_clock_ticking() >= signals_due) return FS_SIGNALS_DUE;
    }
    return FS_ENDED;
}
