from libc.stdint cimport int64_t

from fastsup.core.hook cimport fs_hook_fn, fs_loop, fs_schedule, fs_step_fn

cdef extern from "Python.h":
    ctypedef struct PyObject

cdef extern from "fastsup.h":
    const char* FASTSUP_STEP_SIGNATURE
    const char* FASTSUP_HOOK_SIGNATURE
    const char* FASTSUP_CAPSULE_NAME
    int FASTSUP_ABI_VERSION
    int FASTSUP_ABI_REVISION
    ctypedef struct fs_api:
        int abi_version
        int abi_revision
        const char* package_version
        double (*clock)() noexcept nogil
        void (*request_stop)(const fs_loop* loop) noexcept nogil
        int (*fail)(const fs_loop* loop, const char* message) noexcept nogil
        object (*hook_new)(fs_hook_fn, void*, const fs_schedule*, PyObject*)
        object (*loop_new)(fs_step_fn, void*, PyObject*, int64_t, int64_t, PyObject*)
        int (*loop_run)(object) except -1
        const fs_loop* (*loop_state)(object) except NULL
    const fs_api* fastsup_import() except NULL

# The constructors of fastsup.h, for Cython.
cdef object hook_new(fs_hook_fn function, void* context, const fs_schedule* schedule, PyObject* owner)
cdef object loop_new(
    fs_step_fn step, void* context, PyObject* hooks, int64_t max_steps, int64_t initial_step, PyObject* owner
)
