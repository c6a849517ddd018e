/* The part of a StepLoop that runs without Python: a step function in C, the count of steps, hooks in C.
 *
 * In C, so that a hook in C costs one call through a pointer, and the GIL can be released. fs_drive_run returns when
 * something needs Python, and is called again afterwards. */
#ifndef FASTSUP_DRIVE_H
#define FASTSUP_DRIVE_H

#include <stddef.h>

#include "fastsup/due.h"
#include "fastsup/loop.h"

#define FS_MESSAGE_SIZE 256

/* A hook of the loop. */
typedef struct {
    fs_hook_fn function; /* NULL: a hook that needs Python */
    void *context;
    fs_schedule schedule;
    fs_due *due; /* when it is due; part of the hook */
} fs_slot;

typedef enum {
    FS_NOTHING_DUE,
    FS_HOOKS_DUE,   /* hooks that need Python may be due. None was called: call those that are due, in order */
    FS_SIGNALS_DUE, /* nothing is due, but it is time for Python's signal handlers */
    FS_ENDED,
    FS_STEP_FAILED,
    FS_HOOK_FAILED
} fs_event;

typedef struct {
    fs_loop loop; /* first, so that a pointer to it is a pointer to the fs_drive */
    int64_t max_steps;
    int stop_requested; /* atomic */
    fs_step_fn step;    /* NULL: a step in Python, which the caller does */
    void *step_context;
    size_t n_slots;
    fs_slot *slots;
    size_t n_always;
    fs_slot **always;        /* the hooks in C that are due after every step */
    fs_due earliest;         /* of all other hooks */
    int clock_replaced;      /* time.time was replaced: only Python can tell whether a time is reached */
    const uint64_t *changes; /* the count of changes to schedules, which code outside the loop makes */
    uint64_t changes_seen;
    int code; /* the code that a failed function has returned */
    char message[FS_MESSAGE_SIZE];
} fs_drive;

/* Makes a loop with slots for n hooks. Returns NULL if there is no memory. */
fs_drive *fs_drive_new(size_t n);
void fs_drive_free(fs_drive *drive);

/* Reads again when the hooks are due. */
void fs_drive_reload(fs_drive *drive);

int fs_drive_is_done(const fs_drive *drive);
void fs_drive_request_stop(const fs_loop *loop);
int fs_drive_fail(const fs_loop *loop, const char *message);

/* Sets when a hook in C is due next, at the begin and after each call. `now`, in seconds since the epoch, is for a hook
 * with `every_secs` alone. */
void fs_slot_advance(fs_slot *slot, int64_t global_step, double now);

/* Calls a hook in C. Returns FS_NOTHING_DUE or FS_HOOK_FAILED. */
fs_event fs_drive_call(fs_drive *drive, const fs_slot *slot);

/* Counts a step. Returns 1 if a hook may be due after it, whether in C or in Python; the caller calls it. */
int fs_drive_count_step(fs_drive *drive);

/* Counts a step, and calls the hooks that are due after it, if they are all in C. */
fs_event fs_drive_step_done(fs_drive *drive);

/* Does steps in C until something needs Python, or the loop ends. Never returns FS_NOTHING_DUE. */
fs_event fs_drive_run(fs_drive *drive);

#endif
