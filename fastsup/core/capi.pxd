from libc.stdint cimport int64_t

from fastsup.core.hook cimport fs_hook_fn, fs_loop, fs_schedule, fs_step_fn

cdef extern from "Python.h":
    ctypedef struct PyObject

# The constructors of fastsup.h, for Cython.
cdef object hook_new(fs_hook_fn function, void* context, const fs_schedule* schedule, PyObject* owner)
cdef object loop_new(
    fs_step_fn step, void* context, PyObject* hooks, int64_t max_steps, int64_t initial_step, PyObject* owner
)
