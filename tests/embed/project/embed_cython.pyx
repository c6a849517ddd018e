"""A hook, a step and a hook function of somebody else's, in Cython."""

from libc.stdint cimport int64_t

from fastsup.core cimport Loop, LoopHook, fs_loop
from fastsup.core.capi cimport PyObject, fastsup_import, fs_api, hook_new, loop_new
from fastsup.core.clock cimport seconds
from fastsup.core.hook cimport FS_GO_ON, FS_STOP, fs_schedule
from fastsup.core.schedule cimport FS_DUE_NEVER, Scheduled
from fastsup.core.timer cimport Timer


cdef class Counter(LoopHook):
    """Called without a Python call: there is no Python method that would do it."""

    cdef readonly int64_t calls
    cdef readonly int64_t last_step
    cdef readonly double last_result
    cdef readonly int64_t every

    def __init__(self, int64_t every):
        self.every = every

    def begin(self, loop):
        self.due_at_step((<Loop> loop).state.global_step + self.every)

    cdef int on_due(self, object loop, const fs_loop* state) except -1:
        self.calls += 1
        self.last_step = state.global_step
        self.last_result = state.result
        self.due_at_step(state.global_step + self.every)
        return 0


cdef class Fails(Counter):
    cdef int on_due(self, object loop, const fs_loop* state) except -1:
        raise ArithmeticError(f"at step {state.global_step}")


cdef class Returns(Counter):
    """Ends the loop, or fails: by a code that there isn't, or with a text."""

    cdef readonly int code
    cdef bytes text

    def __init__(self, int64_t every, int code, bytes text):
        super().__init__(every)
        self.code = code
        self.text = text

    cdef int on_due(self, object loop, const fs_loop* state) except -1:
        return fastsup.fail(state, self.text) if self.text else self.code


cdef class Forgetful(LoopHook):
    """Never says when it is due."""

    cdef int on_due(self, object loop, const fs_loop* state) except -1:
        return 0


cdef class Quiet(LoopHook):
    """A class whose hook function runs without the GIL."""

    cdef readonly int64_t calls

    def __cinit__(self):
        self.function = count_quietly
        self.context = <void*> &self.calls

    def begin(self, loop):
        self.due_every_run()


cdef int count_quietly(const fs_loop* loop, void* context) noexcept nogil:
    (<int64_t*> context)[0] += 1
    return FS_GO_ON


# Names of these two are in embed_cython.pxd: so they are in __pyx_capi__, as capsules named by their signatures.
cdef int halve(fs_loop* loop, void* context) noexcept nogil:
    loop.result = 1.0 / (loop.global_step + 1)
    return FS_GO_ON


cdef int stop_at_10(const fs_loop* loop, void* context) noexcept nogil:
    return FS_STOP if loop.global_step >= 10 else FS_GO_ON


cdef int add(fs_loop* loop, void* context) noexcept nogil:
    cdef double* sum = <double*> context
    sum[0] += loop.global_step
    loop.result = sum[0]
    return FS_GO_ON


cdef const fs_api* fastsup = fastsup_import()


cdef api int fail_at_3(fs_loop* loop, void* context) noexcept nogil:
    if loop.global_step == 2:
        fastsup.fail(loop, "not this time")
    return fastsup.fail(loop, "at three") if loop.global_step == 3 else FS_GO_ON


cdef class Sum:
    """A loop in C around a value in C, which lives as long as the loop: the loop keeps its owner."""

    cdef readonly double value

    def loop(self, hooks, int64_t max_steps):
        cdef void* kept = <void*> self
        cdef void* given = <void*> hooks
        return loop_new(add, &self.value, <PyObject*> given, max_steps, 0, <PyObject*> kept)


def now():
    return seconds()


def every_three_steps():
    """A hook in C made in Cython."""
    cdef fs_schedule schedule
    schedule.every_steps = 3
    schedule.every_secs = 0.0
    return hook_new(stop_at_10, NULL, &schedule, NULL)


def timer_says(Timer timer):
    """What a timer's compiled side says is next."""
    return timer.next_step()


def is_idle(Scheduled hook):
    return hook.due.run == FS_DUE_NEVER and hook.due.global_step == FS_DUE_NEVER
