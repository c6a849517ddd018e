/* fastsup for extension modules in C and C++.
 *
 *     const fs_api *fastsup = fastsup_import();        in the module's init function; NULL: an exception is set
 *     PyObject *loop = fastsup->loop_new(step, context, hooks, 1000, 0, NULL);
 *     int failed = fastsup->loop_run(loop);            the step and the hooks in C run without the GIL
 *
 * The folder of this file is fastsup.get_include(). docs/embedding.md has the whole story. */
#ifndef FASTSUP_H
#define FASTSUP_H

#include <Python.h>

#include "fastsup/loop.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Programs of another version can't work together. */
#define FASTSUP_ABI_VERSION 1
/* Grows with what is added: a program needs at least the revision that it was compiled against. */
#define FASTSUP_ABI_REVISION 0

#define FASTSUP_CAPSULE_NAME "fastsup._C_API"

typedef struct {
    int abi_version;
    int abi_revision;
    const char *package_version;

    /* From any thread, with or without the GIL. */

    /* Seconds since the epoch. */
    double (*clock)(void);
    /* Ends the loop after the step that is under way. */
    void (*request_stop)(const fs_loop *loop);

    /* From a step function or a hook of this loop, with or without the GIL: the text of the RuntimeError that the loop
     * ends with. Returns -1, for `return fastsup->fail(loop, "...")`. A Python exception that is set goes before. */
    int (*fail)(const fs_loop *loop, const char *message);

    /* With the GIL. What returns an object returns a new reference, or NULL with an exception set. `owner`, an object
     * or NULL, is kept alive as long as the hook or the loop: give what the context belongs to. */

    /* A hook for any StepLoop, made in C or in Python. */
    PyObject *(*hook_new)(fs_hook_fn function, void *context, const fs_schedule *schedule, PyObject *owner);
    /* A StepLoop. `hooks`: any iterable of hooks, in Python, Cython or C, or NULL. max_steps < 0: without limit. */
    PyObject *(*loop_new)(fs_step_fn step, void *context, PyObject *hooks, int64_t max_steps, int64_t initial_step,
                          PyObject *owner);
    /* Runs the loop to its end. Returns 0, or -1 with an exception set. */
    int (*loop_run)(PyObject *loop);
    /* The state of a StepLoop, which lives as long as the loop; NULL with an exception set for any other object. */
    const fs_loop *(*loop_state)(PyObject *loop);
} fs_api;

/* The functions of the installed fastsup, or NULL with an ImportError set that names both versions. */
static inline const fs_api *fastsup_import(void) {
    const fs_api *api = (const fs_api *)PyCapsule_Import(FASTSUP_CAPSULE_NAME, 0);
    if (api == NULL) return NULL;
    if (api->abi_version == FASTSUP_ABI_VERSION && api->abi_revision >= FASTSUP_ABI_REVISION) return api;
    PyErr_Format(PyExc_ImportError,
                 "this module was compiled for fastsup's C ABI %d.%d, but fastsup %s has C ABI %d.%d. %s",
                 FASTSUP_ABI_VERSION, FASTSUP_ABI_REVISION, api->package_version, api->abi_version, api->abi_revision,
                 api->abi_version <= FASTSUP_ABI_VERSION
                     ? "Install a newer fastsup, or compile the module against this one."
                     : "Compile the module against this fastsup.");
    return NULL;
}

#ifdef __cplusplus
}
#endif

#endif
