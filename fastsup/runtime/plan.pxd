from cpython.object cimport PyObject
from cython cimport final
from libc.stdint cimport int64_t, uint64_t

from fastsup.runtime.fetches cimport Fetch
from fastsup.runtime.metadata_buffer cimport TF_Buffer, empty_buffer


cdef extern from "Python.h":
    object PyObject_Call(object callable, object args, PyObject* kwargs)


@final
cdef class SessionLifetime:
    cdef public bint open
    # Handles of callables that are no longer referenced.
    cdef list unused
    # How many callables are still referenced, and an estimate of the memory that they take.
    cdef Py_ssize_t callables
    cdef readonly Py_ssize_t callable_bytes

    cdef int release_unused(self, object session_handle) except -1


@final
cdef class CompiledCallable:
    cdef object session_handle
    cdef object handle
    cdef SessionLifetime lifetime
    cdef object function
    # What the runtime writes a run's unwanted metadata to; and whether no run has it now.
    cdef object metadata
    cdef TF_Buffer* metadata_seen
    cdef bint metadata_is_free
    # Of a run without feeds that has it, and of one that hasn't.
    cdef tuple arguments
    cdef tuple arguments_without
    cdef readonly bytes options
    cdef Py_ssize_t size
    cdef readonly double compile_secs


@final
cdef class FeedSlot:
    cdef readonly object tensor
    # The key of the feed dictionary, and which of the callable's feeds it is.
    cdef object key
    cdef Py_ssize_t place
    cdef object dtype
    cdef object numpy_type
    cdef object static_shape
    cdef tuple dims
    cdef bint exact_shape
    cdef double largest_int
    # The most rows that don't make another step of it, where shapes may differ; and whether more have been fed.
    cdef Py_ssize_t rows_tried
    cdef bint has_grown

    cdef int read_shape(self) except -1
    cdef object convert(self, object value)


@final
cdef class Plan:
    cdef readonly Fetch structure
    cdef readonly tuple feeds
    # The same slots in the order of the last feed dictionary, and by what the plan's key has for each key of a feed.
    cdef readonly tuple feed_order
    cdef dict slots_by_key
    # Whether the result holds values that are fed.
    cdef bint returns_feeds
    cdef readonly tuple elements
    cdef readonly object pinned
    # CallableOptions, serialised, and an estimate of the bytes of what is compiled of them; 0 until that is known.
    cdef readonly bytes options
    cdef readonly Py_ssize_t size
    # Whether the callable may be released before the session is closed.
    cdef readonly bint is_releasable
    # None if the plan has only been looked at; or if TensorFlow's own executors run it, by `session_run`.
    cdef readonly CompiledCallable callable
    # How many runs are left until one is watched; 0 where every one is.
    cdef int64_t unwatched_runs
    cdef readonly object trial
    # What makes large results cheaper, and whether results are looked at for that. What runs the plan in place of the
    # callable, or None. A plan that can be run has one of both, at each moment at which another thread may look.
    cdef object large_results
    cdef object session_run
    cdef bint watches_results
    cdef int64_t look_distance
    # What the run does to variables: a VariableAccess.
    cdef readonly int access
    # What a run adds to the global step: 0 nothing, below 0 unknown. Filled in when it is first read.
    cdef int64_t step_delta
    cdef bint step_delta_known
    # What of the global step is fed, as StepCount.fed_of says; below 0 unknown, until a run needs it.
    cdef int step_fed
    cdef uint64_t last_used
    # What to know the same fetches by, where that is easily done: one element or a list of them.
    cdef object cached_fetches
    # The plan of the same run that fetches more, and what that is: for hooks.
    cdef Plan augmented
    cdef list extra_fetches

    cdef int order_feeds(self, object feed_dict) except -1
    cdef tuple convert_feeds(self, dict feed_dict)
    cdef int hand_over(self, object session_run) except -1
    cdef list call_watched(self, tuple feeds)
    cdef int64_t runs_until_look(self, object trial) except -1


cdef list own_values(list values)
cdef object key_of_feed(object feed)

# What every step passes through is compiled into the modules that run steps: the code of another one, in other pages of
# memory, is cold again after each step.

cdef inline list views_from(CompiledCallable compiled, tuple feeds):
    """Computes the fetches: a list of NumPy values, in the order of the options. They may show the runtime's memory."""
    if not compiled.metadata_is_free:
        # Another thread runs it, or what it runs does.
        if feeds is None:
            return PyObject_Call(compiled.function, compiled.arguments_without, NULL)
        return PyObject_Call(compiled.function, (compiled.session_handle, compiled.handle, feeds, None), NULL)
    compiled.metadata_is_free = False
    try:
        if feeds is None:
            return PyObject_Call(compiled.function, compiled.arguments, NULL)
        return PyObject_Call(
            compiled.function, (compiled.session_handle, compiled.handle, feeds, compiled.metadata), NULL
        )
    finally:
        empty_buffer(compiled.metadata_seen)
        compiled.metadata_is_free = True


cdef inline list values_from(CompiledCallable compiled, tuple feeds):
    """The same, with arrays that are the caller's own."""
    cdef list values = views_from(compiled, feeds)
    return own_values(values) if len(values) > 0 else values


cdef inline list call_plan(Plan plan, tuple feeds):
    """Computes what a plan fetches, from the arrays to feed, or None if it has none."""
    if plan.unwatched_runs > 0:
        plan.unwatched_runs -= 1
        return values_from(plan.callable, feeds)
    return plan.call_watched(feeds)
