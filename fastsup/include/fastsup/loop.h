/* What a step function and a hook in C see of a loop. Needs no Python.
 *
 * A program compiled against this file goes on working with a later fastsup as long as FASTSUP_ABI_VERSION is the
 * same; see fastsup.h. */
#ifndef FASTSUP_LOOP_H
#define FASTSUP_LOOP_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A running loop. fastsup makes it; what is added later is added at the end. Only `result` may be written, and only
 * by the step function. */
typedef struct {
    int64_t global_step; /* in a step function: before the step; in a hook: after it */
    int64_t steps;       /* steps done by this loop */
    double result;       /* what the step amounts to, its loss say; NaN where there is no number */
} fs_loop;

/* What a function in C returns. Anything else than these two is a failure, which ends the loop with an error. */
#define FS_GO_ON 0
#define FS_STOP 1 /* from a step function: there was no step to do. From a hook: the loop ends after this step */

typedef int (*fs_step_fn)(fs_loop *loop, void *context);
typedef int (*fs_hook_fn)(const fs_loop *loop, void *context);

/* Names of the capsules that carry such functions into Python. The capsule's context is the function's. */
#define FASTSUP_STEP_SIGNATURE "int (fs_loop *, void *)"
#define FASTSUP_HOOK_SIGNATURE "int (fs_loop const *, void *)"

/* When a hook in C is due: at the first of the two that comes. */
typedef struct {
    int64_t every_steps; /* at global steps that are multiples of this; 1: after every step; 0: not by steps */
    double every_secs;   /* seconds since the loop's begin or the last call; 0: not by time */
} fs_schedule;

#ifdef __cplusplus
}
#endif

#endif
