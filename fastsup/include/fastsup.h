/* fastsup for extension modules in C and C++.
 *
 *     const fs_api *fastsup = fastsup_import();        in the module's init function; NULL if an exception is set
 *     PyObject *loop = fastsup->loop_new(step, context, hooks, 1000, 0, NULL);
 *     int failed = fastsup->loop_run(loop);            the step and the hooks in C run without the GIL
 *
 * fastsup.get_include() returns the folder of this file. See docs/embedding.md. */
#ifndef FASTSUP_H
#define FASTSUP_H

#include <Python.h>

#include "fastsup/loop.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A module compiled for another version can't be used. */
#define FASTSUP_ABI_VERSION 1
/* Grows with each addition. A module needs at least the revision that it was compiled for. */
#define FASTSUP_ABI_REVISION 0

#define FASTSUP_CAPSULE_NAME "fastsup._C_API"

typedef struct {
    int abi_version;
    int abi_revision;
    const char *package_version;

    /* These functions may be called from any thread, with or without the GIL. */

    /* Returns the seconds since the epoch. */
    double (*clock)(void);
    /* Ends the loop after the current step. */
    void (*request_stop)(const fs_loop *loop);

    /* Call this in a step function or a hook of this loop, with or without the GIL. Sets the text of the RuntimeError
     * that ends the loop, and returns -1, which the function must return: `return fastsup->fail(loop, "...")`. If the
     * function returns FS_GO_ON instead, the loop continues without an error; after FS_STOP it ends without one. The
     * loop keeps 255 bytes of the text. If a Python exception is set, the loop raises that exception instead. */
    int (*fail)(const fs_loop *loop, const char *message);

    /* These functions require the GIL. If they return an object, it is a new reference, or NULL with an exception set.
     * The hook or loop keeps `owner` alive, an object or NULL: pass the object that the context belongs to. */

    /* Creates a hook for any StepLoop, whether created in C or in Python. If `schedule` is NULL, the hook is due after
     * every step. */
    PyObject *(*hook_new)(fs_hook_fn function, void *context, const fs_schedule *schedule, PyObject *owner);
    /* Creates a StepLoop. `hooks`: an iterable of hooks, in Python, Cython or C; or NULL. `max_steps`: the global step
     * at which the loop ends, or a negative number for no limit. To run a number of steps, pass initial_step plus that
     * number. */
    PyObject *(*loop_new)(fs_step_fn step, void *context, PyObject *hooks, int64_t max_steps, int64_t initial_step,
                          PyObject *owner);
    /* Runs the loop to its end. Returns 0, or -1 with an exception set. After an exception, another call continues
     * after the last counted step. */
    int (*loop_run)(PyObject *loop);
    /* Returns the state of a StepLoop, which lives as long as the loop. For any other object, returns NULL with an
     * exception set. */
    const fs_loop *(*loop_state)(PyObject *loop);
} fs_api;

/* Returns the functions of the installed fastsup. If the versions don't match, returns NULL with an ImportError set
 * that names both versions. */
static inline const fs_api *fastsup_import(void) {
    const fs_api *api = (const fs_api *)PyCapsule_Import(FASTSUP_CAPSULE_NAME, 0);
    if (api == NULL) return NULL;
    if (api->abi_version == FASTSUP_ABI_VERSION && api->abi_revision >= FASTSUP_ABI_REVISION) return api;
    PyErr_Format(
        PyExc_ImportError, "this module was compiled for fastsup's C ABI %d.%d, but fastsup %s has C ABI %d.%d. %s",
        FASTSUP_ABI_VERSION, FASTSUP_ABI_REVISION, api->package_version, api->abi_version, api->abi_revision,
        api->abi_version <= FASTSUP_ABI_VERSION ? "Install a newer fastsup, or compile the module against this one."
                                                : "Compile the module against this fastsup.");
    return NULL;
}

#ifdef __cplusplus
}
#endif

#endif
