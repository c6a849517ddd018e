/* The part of a StepLoop that runs without Python: a step function in C, the count of steps, and hooks in C.
 *
 * It is in C so that a hook in C costs one call through a pointer, and the GIL can be released. fs_drive_run returns
 * when something needs Python, and is called again afterwards. */
#ifndef FASTSUP_DRIVE_H
#define FASTSUP_DRIVE_H

#include <stddef.h>

#include "fastsup/due.h"
#include "fastsup/loop.h"

#define FS_MESSAGE_SIZE 256

/* A hook of the loop. */
typedef struct {
    fs_hook_fn function; /* NULL if the hook needs Python */
    void *context;
    fs_schedule schedule;
    fs_due *due;       /* when the hook is due; part of the hook */
    int takes_several; /* 1 if the hook needs Python and takes the results of several steps in one call */
} fs_slot;

/* The clock of due times. */
typedef struct {
    fs_time_reached_fn reached;
    double (*now)(void); /* seconds */
} fs_drive_clock;

/* A monotonic clock. */
extern const fs_drive_clock fs_steady_clock;

typedef enum {
    FS_NOTHING_DUE,
    FS_HOOK_DUE,          /* call the hook of `due_slot`, and then fs_drive_call_due for the hooks after it */
    FS_SCHEDULES_CHANGED, /* call fs_drive_call_due at a time when nothing changes schedules */
    FS_SIGNALS_DUE,       /* nothing is due, but it is time for Python's signal handlers */
    FS_ENDED,
    FS_STEP_FAILED, /* a step in C failed with a code */
    FS_STEP_RAISED, /* a step in Python raised an error; this file doesn't return it */
    FS_HOOK_FAILED
} fs_event;

typedef struct {
    fs_loop loop;       /* first, so that a pointer to it is a pointer to the fs_drive */
    int64_t max_steps;  /* the global step at which the loop ends */
    int stop_requested; /* atomic */
    fs_step_fn step;    /* NULL for a step in Python, which the caller runs */
    void *step_context;
    size_t n_slots;
    fs_slot *slots;
    fs_due_table table; /* when the slots are due, except those in `always` */
    size_t n_always;
    fs_slot **always; /* the hooks in C that are due after every step */
    const fs_drive_clock *clock;
    int calls_no_hook; /* 1 if the caller also calls the hooks in C */
    int makes_several; /* 1 if the caller runs several steps per call: hooks that are due after every step and take
                        * several results then don't count for the earliest due position */
    size_t next_slot;  /* the first slot that isn't checked yet after this step */
    fs_slot *due_slot; /* the slot that is due or has failed; NULL if the clock has failed */
    int code;          /* the code that a failed function returned; a failed hook is in `due_slot` */
    char message[FS_MESSAGE_SIZE];
    int64_t message_steps; /* `loop.steps` when the message was set: a function may set a message and not fail */
} fs_drive;

/* Creates a loop with slots for n hooks. Fill all slots before you call fs_drive_reload. `changes` counts the changes
 * to schedules. Returns NULL if there is no memory. */
fs_drive *fs_drive_new(size_t n, const uint64_t *changes);
void fs_drive_free(fs_drive *drive);

/* Reads the due positions of the hooks again. */
void fs_drive_reload(fs_drive *drive);

int fs_drive_is_done(const fs_drive *drive);
void fs_drive_request_stop(const fs_loop *loop);
int fs_drive_fail(const fs_loop *loop, const char *message);

/* Sets when a hook in C is due next. Call it at the start and after each call to the hook. `now`, in seconds since the
 * epoch, is only for a hook with `every_secs`. */
void fs_slot_advance(fs_slot *slot, int64_t global_step, double now);

/* Calls a hook in C. Returns FS_NOTHING_DUE or FS_HOOK_FAILED. */
fs_event fs_drive_call(fs_drive *drive, fs_slot *slot);

/* Keeps the code that a function returned, and the message that it set in this step. Returns the event. */
fs_event fs_drive_failed(fs_drive *drive, fs_event event, int code);

/* Counts a step, and calls the hooks that are due after it. */
fs_event fs_drive_step_done(fs_drive *drive);

/* Number of steps that may run before a hook must be called or the loop ends, as far as counts determine it. At least
 * 1. */
int64_t fs_drive_steps_until_due(const fs_drive *drive);

/* Counts steps that ran in one call, and calls the hooks that are due after the last step. */
fs_event fs_drive_steps_done(fs_drive *drive, int64_t steps);

/* Calls, in order, the hooks that are due after the last step and aren't checked yet. Returns FS_NOTHING_DUE,
 * FS_HOOK_DUE or FS_HOOK_FAILED. */
fs_event fs_drive_call_due(fs_drive *drive);

/* Runs steps in C until something needs Python, or the loop ends. Never returns FS_NOTHING_DUE. */
fs_event fs_drive_run(fs_drive *drive);

#endif
