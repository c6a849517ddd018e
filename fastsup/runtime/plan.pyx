"""A run plan: one combination of fetches and feeds, resolved, with the runtime's callable that computes it."""

cimport cython
from cpython.object cimport PyObject
from libc.math cimport fabs

from time import perf_counter

import numpy

from tensorflow.python.client import pywrap_tf_session
from tensorflow.python.client import session as tf_session

from fastsup.common.interpreter_end import completed_before_exit
from fastsup.runtime.metadata_buffer cimport give_back, seen_in, take_buffer
from fastsup.runtime.session_run import LARGE_RESULTS_BYTES as _LARGE_RESULTS_BYTES

cdef object run_callable = pywrap_tf_session.TF_SessionRunCallable
cdef object release_callable = pywrap_tf_session.TF_SessionReleaseCallable
cdef object ndarray = numpy.ndarray
cdef object generic = numpy.generic
cdef object copy_array = numpy.ndarray.copy

cdef Py_ssize_t LARGE_RESULTS_BYTES = _LARGE_RESULTS_BYTES
cdef int64_t FOREVER = 1 << 62
# A fed array with this many times the rows that its plan was tried with makes another step of it.
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
cdef class SessionLifetime:
    """Whether a session is open, and what it is to release: shared by the session and its callables, which would else
    refer to each other."""

    def __cinit__(self):
        self.open = True
        self.unused = []

    cdef int release_unused(self, object session_handle) except -1:
        """Releases callables that are no longer referenced.

        Not where the last reference goes: releasing lets other threads run, in the middle of the assignment that it is
        dropped by.
        """
        if self.open and self.unused:
            with completed_before_exit:
                while self.open and self.unused:
                    release_callable(session_handle, self.unused.pop())
        return 0


@cython.no_gc_clear
cdef class CompiledCallable:
    """A callable of the C++ session. To be released after its last reference, unless its session was closed before.

    Args:
      session_handle: the C++ session.
      lifetime: whether the session is open.
      options: CallableOptions, serialised.
      size: an estimate of the memory that it takes, in bytes.
    """

    def __init__(self, session_handle, lifetime, options, size=0):
        self.session_handle = session_handle
        self.lifetime = lifetime
        self.options = options
        self.size = size
        started = perf_counter()
        buffer = pywrap_tf_session.TF_NewBufferFromString(options)
        # First: another thread may ask for room meanwhile.
        self.lifetime.callables += 1
        self.lifetime.callable_bytes += self.size
        try:
            with completed_before_exit:
                self.handle = pywrap_tf_session.TF_SessionMakeCallable(session_handle, buffer)
        finally:
            pywrap_tf_session.TF_DeleteBuffer(buffer)
            if self.handle is None:
                self.lifetime.callables -= 1
                self.lifetime.callable_bytes -= self.size
        self.compile_secs = perf_counter() - started
        self.function = run_callable
        self.metadata = take_buffer()
        self.metadata_seen = seen_in(self.metadata)
        self.metadata_is_free = self.metadata is not None
        self.arguments = (session_handle, self.handle, (), self.metadata)
        self.arguments_without = (session_handle, self.handle, (), None)

    def __dealloc__(self):
        if self.handle is not None and self.lifetime is not None:
            self.lifetime.callables -= 1
            self.lifetime.callable_bytes -= self.size
            if self.lifetime.open:
                self.lifetime.unused.append(self.handle)
        give_back(self.metadata)


cdef object key_of_feed(object feed):
    """What a plan's key has for something that is fed: its name, or the address of the graph element, which isn't always
    hashable."""
    return feed if type(feed) is str else <size_t> <PyObject*> feed


cdef class FeedSlot:
    """A fed tensor, and how a value for it becomes an array."""

    def __init__(self, tensor, key=None, place=0):
        self.tensor = tensor
        self.key = key
        self.place = place
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
      feeds: what is fed, in the order of the options: pairs of a key of the feed dictionary and its tensor.
      elements: the graph elements (tensors and operations) that the run computes.
      pinned: what the plan's key names by address: kept alive, so that no other object gets the address.
      options: CallableOptions, serialised.
      access: what the run does to variables: a VariableAccess.
      returns_feeds: whether a fed tensor is fetched: the values to build the result from are then the runtime's and the feeds.
    """

    def __init__(self, structure, feeds, elements, pinned, options, access=0, returns_feeds=False):
        cdef FeedSlot slot
        self.structure = structure
        self.feeds = tuple([FeedSlot(tensor, key, place) for place, (key, tensor) in enumerate(feeds)])
        self.feed_order = self.feeds
        self.slots_by_key = {key_of_feed(slot.key): slot for slot in self.feeds}
        self.elements = tuple(elements)
        self.pinned = pinned
        self.options = options
        self.access = access
        self.returns_feeds = returns_feeds
        self.is_releasable = True
        self.step_fed = -1 if feeds else 0

    def set_size(self, size, is_releasable):
        """Says how much memory a callable of the plan takes.

        Args:
          size: an estimate, in bytes.
          is_releasable: whether that memory may be freed before the session is closed.
        """
        self.size = size
        self.is_releasable = is_releasable

    def compiled_to(self, CompiledCallable callable, trial=None, large_results=None):
        """Has a callable run the plan from now on.

        Args:
          callable: the `CompiledCallable`.
          trial: `Trial` of the executors to choose from; None when there is nothing to choose.
          large_results: `LargeResults` of a plan whose results may be large; None of one whose results can't.
        """
        self.trial = trial
        self.large_results = large_results
        self.callable = callable
        self.unwatched_runs = 0 if trial is not None or large_results is not None else FOREVER
        self.session_run = None

    cdef int hand_over(self, object session_run) except -1:
        """Has a `SessionRun` run the plan from now on, and releases the callable."""
        # Held until all is replaced: letting go may let other threads run.
        replaced = (self.callable, self.trial, self.large_results)
        self.session_run = session_run
        self.unwatched_runs = 0
        self.callable = None
        self.trial = None
        self.large_results = None
        del replaced
        return 0

    cdef int order_feeds(self, object feed_dict) except -1:
        """Expects the feeds in the order of this feed dictionary from now on."""
        if feed_dict:
            self.feed_order = tuple([self.slots_by_key[key_of_feed(key)] for key in feed_dict])
        return 0

    cdef tuple convert_feeds(self, dict feed_dict):
        """The arrays to feed, or None where Session.run must judge a value itself."""
        cdef tuple expected = self.feed_order
        cdef list arrays = [None] * len(expected)
        cdef FeedSlot slot
        cdef Py_ssize_t i = 0
        for key, value in feed_dict.items():
            slot = <FeedSlot> expected[i]
            if key is not slot.key:
                slot = self.slots_by_key[key_of_feed(key)]
            try:
                array = slot.convert(value)
            except Exception:
                return None  # Session.run fails on it too, and says why.
            if array is None:
                return None
            if slot.has_grown:
                slot.has_grown = False
                if self.trial is not None and self.session_run is None:
                    self.trial.restart()
                    self.unwatched_runs = 0
            arrays[slot.place] = array
            i += 1
        return tuple(arrays)

    cdef list call_watched(self, tuple feeds):
        """Runs the plan and looks at the run: how long it takes, while executors are on trial, and how much it gives."""
        cdef CompiledCallable candidate
        cdef list values
        cdef Py_ssize_t size = 0
        cdef int64_t runs
        run = self.session_run
        if run is not None:
            return run(feeds)
        candidate = self.callable
        trial = self.trial
        # What large results cost is looked at when the executor is chosen.
        if trial is not None and not trial.on_trial and (not self.watches_results or trial.is_open):
            trial.recheck()
        if trial is not None and trial.on_trial:
            candidate = trial.next()
            started = perf_counter()
            values = views_from(candidate, feeds)
            chosen = trial.record(candidate, perf_counter() - started)
            # Another thread may have handed the plan over meanwhile: here, and below.
            if chosen is not None and self.trial is trial:
                self.callable = candidate = chosen
        else:
            values = views_from(candidate, feeds)
        large_results = self.large_results
        if large_results is not None:
            size = bytes_to_copy(values)
        self.watches_results = size >= LARGE_RESULTS_BYTES
        if trial is None or not trial.on_trial:
            if self.watches_results and (trial is None or not trial.is_open):
                run = large_results.copied(size, candidate.options)
                if run is not None:
                    self.session_run = run
            else:
                runs = self.runs_until_look(trial)
                if self.callable is not None:
                    self.unwatched_runs = runs
        return own_values(values)

    cdef int64_t runs_until_look(self, object trial) except -1:
        if trial is not None:
            return trial.runs_until_look
        self.look_distance = 2 * self.look_distance + 1
        return self.look_distance
