/* The interface of step functions and hooks in C, which don't need Python.
 *
 * A program compiled against this file works with any later fastsup that has the same FASTSUP_ABI_VERSION; see
 * fastsup.h. */
#ifndef FASTSUP_LOOP_H
#define FASTSUP_LOOP_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The state of a loop, which fastsup creates. Later versions add fields at the end. Only the step function may write to
 * it, and only to `result`. */
typedef struct {
    int64_t global_step; /* in a step function: before the step; in a hook: after the step */
    int64_t steps;       /* number of steps that this loop has run */
    double result;       /* the number that the step returns, such as its loss; unchanged if a step in C doesn't set it,
                          * NaN before the first step that does */
} fs_loop;

/* The codes that a function in C returns. Any other code is a failure, which ends the loop with an error. */
#define FS_GO_ON 0
#define FS_STOP 1 /* from a step function: there was no step to run; from a hook: the loop ends after this step */

typedef int (*fs_step_fn)(fs_loop *loop, void *context);
typedef int (*fs_hook_fn)(const fs_loop *loop, void *context);

/* The names of capsules that pass functions in C to Python. The capsule's context is the function's context. */
#define FASTSUP_STEP_SIGNATURE "int (fs_loop *, void *)"
#define FASTSUP_HOOK_SIGNATURE "int (fs_loop const *, void *)"

/* When a hook in C is due. If both intervals are set, the one that passes first counts. If both are 0, the hook is due
 * after every step. A negative interval is an error. */
typedef struct {
    int64_t every_steps; /* at global steps that are multiples of this; 1: after every step; 0: not by steps */
    double every_secs;   /* seconds since the start of the loop or the last call; 0: not by time */
} fs_schedule;

#ifdef __cplusplus
}
#endif

#endif
