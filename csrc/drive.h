/* The part of a loop that runs without Python: a step function in C, the count of steps, the hooks in C.
 *
 * C, because a hook in C that is called from here costs a call through a pointer, and because the GIL is released
 * meanwhile. It returns whenever something needs Python, and is called again. */
#ifndef FASTSUP_DRIVE_H
#define FASTSUP_DRIVE_H

#include <stddef.h>

#include "fastsup/due.h"
#include "fastsup/loop.h"

#define FS_MESSAGE_SIZE 256

/* A hook in a loop. */
typedef struct {
    fs_hook_fn function; /* NULL: a hook that needs Python */
    void *context;
    fs_schedule schedule;
    fs_due *due; /* the hook's own position */
} fs_slot;

typedef enum {
    FS_NOTHING_DUE,     /* nothing to do */
    FS_HOOKS_DUE, /* hooks that need Python may be due, and none has been called: call those that are, in order */
    FS_SIGNALS_DUE,   /* nothing is due, but Python has not been looked after for a while */
    FS_ENDED,
    FS_STEP_FAILED,
    FS_HOOK_FAILED
} fs_event;

typedef struct {
    fs_loop loop; /* first: a pointer to it is a pointer to all */
    int64_t max_steps;
    int stop_requested; /* atomic */
    fs_step_fn step;    /* NULL: the step is done by somebody else */
    void *step_context;
    size_t n_slots;
    fs_slot *slots;
    size_t n_always;
    fs_slot **always;           /* the hooks in C that are due after every step */
    fs_due earliest;            /* of all others */
    int clock_replaced;             /* the clock is not ours: whoever waits for a time must be asked */
    const uint64_t *changes;    /* moves when a position was changed from outside */
    uint64_t changes_seen;
    int code;                   /* what a function that failed has returned */
    char message[FS_MESSAGE_SIZE];
} fs_drive;

/* Makes a loop with places for n hooks. Returns NULL if there is no memory. */
fs_drive *fs_drive_new(size_t n);
void fs_drive_free(fs_drive *drive);

/* Reads the hooks' positions again. */
void fs_drive_reload(fs_drive *drive);

int fs_drive_is_done(const fs_drive *drive);
void fs_drive_request_stop(const fs_loop *loop);
int fs_drive_fail(const fs_loop *loop, const char *message);

/* Sets when a hook in C is due for the first time, or after a call. `now` matters to one that waits for a time. */
void fs_slot_advance(fs_slot *slot, int64_t global_step, double now);

/* Calls a hook in C. Returns FS_NOTHING_DUE or FS_HOOK_FAILED. */
fs_event fs_drive_call(fs_drive *drive, const fs_slot *slot);

/* Counts a step. Returns whether a hook may be due after it, for who calls all of them himself. */
int fs_drive_count_step(fs_drive *drive);

/* Counts a step, and calls what is due after it if that is in C. */
fs_event fs_drive_step_done(fs_drive *drive);

/* Does steps in C until something else must be done. Never returns FS_NOTHING_DUE. */
fs_event fs_drive_run(fs_drive *drive);

#endif
