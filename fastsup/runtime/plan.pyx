"""A run plan: one combination of fetches and feeds, resolved, with the runtime's callable that computes it."""

cimport cython
from libc.math cimport fabs

from time import perf_counter

import numpy

from tensorflow.python.client import pywrap_tf_session
from tensorflow.python.client import session as tf_session

from fastsup.runtime.interpreter_end import uninterrupted
from fastsup.runtime.metadata_buffer cimport give_back, seen_in, take_buffer
from fastsup.runtime.session_run import LARGE_RESULTS_BYTES as _LARGE_RESULTS_BYTES

cdef object run_callable = pywrap_tf_session.TF_SessionRunCallable
cdef object release_callable = pywrap_tf_session.TF_SessionReleaseCallable
cdef object ndarray = numpy.ndarray
cdef object generic = numpy.generic
cdef object copy_array = numpy.ndarray.copy

cdef Py_ssize_t LARGE_RESULTS_BYTES = _LARGE_RESULTS_BYTES
cdef int64_t FOREVER = 1 << 62
# A fed array with so many times the rows that its plan was tried with makes another step of it.
cdef Py_ssize_t MORE_ROWS = 4

# What Session.run makes arrays with; numpy.asarray before TensorFlow 2.17.
if hasattr(tf_session, "numpy_compat"):
    as_array = tf_session.numpy_compat.np_asarray
else:
    as_array = numpy.asarray


cdef list own_values(list values):
    """The same values, those copied that show the runtime's own memory: a later step may write there, and the caller as
    well."""
    cdef Py_ssize_t i
    for i in range(len(values)):
        if type(values[i]) is ndarray and values[i].base is not None:
            values[i] = copy_array(values[i])
    return values


cdef Py_ssize_t bytes_to_copy(list values) except -1:
    """How much `own_values` will copy."""
    cdef Py_ssize_t size = 0
    for value in values:
        if type(value) is ndarray and value.base is not None:
            size += value.nbytes
    return size


@cython.no_gc
cdef class Liveness:
    """Whether a session is open, and what it is to release: shared by the session and its callables, which would else
    refer to each other."""

    def __cinit__(self):
        self.open = True
        self.unused = []

    cdef int release_unused(self, object session_handle) except -1:
        """Releases the callables that nobody has any more.

        Not where the last reference goes: releasing lets other threads run, in the middle of the assignment that it is
        dropped by.
        """
        if self.open and self.unused:
            with uninterrupted:
                while self.open and self.unused:
                    release_callable(session_handle, self.unused.pop())
        return 0


@cython.no_gc_clear
cdef class CompiledCallable:
    """A callable of the C++ session. To be released after its last reference, unless its session was closed before.

    Args:
      session_handle: the C++ session.
      liveness: whether the session is open.
      options: CallableOptions, serialised.
    """

    def __init__(self, session_handle, liveness, options):
        self.session_handle = session_handle
        self.liveness = liveness
        self.options = options
        buffer = pywrap_tf_session.TF_NewBufferFromString(options)
        try:
            with uninterrupted:
                self.handle = pywrap_tf_session.TF_SessionMakeCallable(session_handle, buffer)
        finally:
            pywrap_tf_session.TF_DeleteBuffer(buffer)
        self.function = run_callable
        self.metadata = take_buffer()
        self.metadata_seen = seen_in(self.metadata)
        self.metadata_is_free = self.metadata is not None
        self.arguments = (session_handle, self.handle, (), self.metadata)
        self.arguments_without = (session_handle, self.handle, (), None)

    def __dealloc__(self):
        if self.handle is not None and self.liveness is not None and self.liveness.open:
            self.liveness.unused.append(self.handle)
        give_back(self.metadata)


cdef class FeedSlot:
    """A fed tensor, and how a value for it becomes an array."""

    def __init__(self, tensor):
        self.tensor = tensor
        self.rows_tried = -1
        self.numpy_type = tensor.dtype.as_numpy_dtype
        self.dtype = numpy.dtype(self.numpy_type)
        self.read_shape()
        # The integers that every dtype of this kind holds exactly; others are left to Session.run to judge.
        self.largest_int = {"f4": 2.0**24, "f8": 2.0**53, "i4": 2.0**31 - 1, "i8": 2.0**53}.get(self.dtype.str[1:], -1.0)

    cdef int read_shape(self) except -1:
        shape = self.tensor.shape
        # The object itself: set_shape() replaces it, and is noticed by that.
        self.static_shape = self.tensor._shape_val
        self.exact_shape = shape.is_fully_defined()
        self.dims = None if shape.rank is None else tuple(shape.as_list())
        return 0

    cdef object convert(self, object value):
        """The array to feed, or None where Session.run must judge the value itself."""
        cdef object shape
        cdef object kind = type(value)
        if kind is ndarray:
            if value.dtype is not self.dtype:
                value = as_array(value, self.numpy_type)
        elif kind is int:
            # An integer that doesn't fit its tensor's type is an error.
            if not fabs(value) <= self.largest_int:
                return None
            value = as_array(value, self.numpy_type)
        elif kind in (float, list, tuple, str, bytes) or isinstance(value, generic):
            value = as_array(value, self.numpy_type)
        else:
            return None
        # A shape that is all known can't become another; asking TensorFlow costs.
        if not self.exact_shape and self.tensor._shape_val is not self.static_shape:
            self.read_shape()
        shape = value.shape
        if self.dims is not None and shape != self.dims:
            if self.exact_shape or len(<tuple> shape) != len(self.dims):
                return None
            for actual, expected in zip(shape, self.dims):
                if expected is not None and actual != expected:
                    return None
        if not self.exact_shape and len(<tuple> shape) > 0 and <Py_ssize_t> (<tuple> shape)[0] > self.rows_tried:
            self.rows_tried = MORE_ROWS * <Py_ssize_t> (<tuple> shape)[0]
            self.has_grown = True
        return value


cdef class Plan:
    """What a run needs once fetches and feed keys are known.

    Args:
      structure: the `Fetch` that builds the result.
      feeds: the fed tensors, in the order of the feed dictionary.
      elements: the graph elements (tensors and operations) that the run computes.
      pinned: what the plan's key names by address: kept alive, so that no other object gets the address.
      callable: the `CompiledCallable` to run; None for a plan that is only looked at.
      trial: `Trial` of the executors to choose from; None when there is nothing to choose.
      access: what the run does to variables, as `variable_access` has it.
      returns_feeds: whether a fed tensor is fetched: the values to build the result from are then the runtime's and the feeds.
      large_results: `LargeResults` of a plan whose results may be large; None of one whose results can't.
    """

    def __init__(self, structure, feeds, elements, pinned, callable, trial=None, access=0, large_results=None,
                 returns_feeds=False):
        self.structure = structure
        self.feeds = tuple([FeedSlot(tensor) for tensor in feeds])
        self.elements = tuple(elements)
        self.pinned = pinned
        self.callable = callable
        self.trial = trial
        self.access = access
        self.large_results = large_results
        self.returns_feeds = returns_feeds
        self.unwatched_runs = 0 if trial is not None or large_results is not None else FOREVER
        self.step_fed = -1 if feeds else 0

    cdef tuple convert_feeds(self, dict feed_dict):
        """The arrays to feed, or None where Session.run must judge a value itself."""
        cdef list arrays = []
        cdef FeedSlot slot
        cdef Py_ssize_t i = 0
        for value in feed_dict.values():
            slot = self.feeds[i]
            try:
                array = slot.convert(value)
            except Exception:
                return None  # Session.run fails on it too, and says why.
            if array is None:
                return None
            if slot.has_grown:
                slot.has_grown = False
                if self.trial is not None and self.session_run is None:
                    self.trial.start_over()
                    self.unwatched_runs = 0
            arrays.append(array)
            i += 1
        return tuple(arrays)

    cdef list call_watched(self, tuple feeds):
        """Runs the plan and looks at the run: how long it takes, while executors are on trial, and how much it gives."""
        cdef CompiledCallable candidate = self.callable
        cdef list values
        cdef Py_ssize_t size = 0
        run = self.session_run
        if run is not None:
            return run(feeds)
        trial = self.trial
        if trial is not None and not trial.on_trial and not self.watches_results:
            trial.look_again()
        if trial is not None and trial.on_trial:
            candidate = trial.next()
            started = perf_counter()
            values = views_from(candidate, feeds)
            chosen = trial.record(candidate, perf_counter() - started)
            if chosen is not None:
                self.callable = candidate = chosen
        else:
            values = views_from(candidate, feeds)
        if self.large_results is not None:
            size = bytes_to_copy(values)
        self.watches_results = size >= LARGE_RESULTS_BYTES
        if trial is None or not trial.on_trial:
            if self.watches_results:
                self.session_run = self.large_results.copied(size, candidate.options)
            else:
                self.unwatched_runs = self.runs_until_look()
        return own_values(values)

    cdef int64_t runs_until_look(self) except -1:
        if self.trial is not None:
            return self.trial.runs_until_look
        self.look_distance = 2 * self.look_distance + 1
        return self.look_distance
