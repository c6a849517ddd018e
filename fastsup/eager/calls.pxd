from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from fastsup.eager.patterns cimport CallPattern, CallTensors
from fastsup.eager.eager_session cimport EagerCallable


cdef class LiftedStep:
    cdef readonly object graph
    cdef readonly object trial
    cdef object __weakref__
    # The time of the last call, as counted by LiftedCalls.now.
    cdef public int64_t used_at
    # Chooses the executor of the step.
    cdef object choose
    # TensorFlow's generator of seeds when the step's random sequences started. `tf.random.set_seed` creates a new one.
    cdef object seeds
    cdef bint keeps_random_sequences
    # Number of running calls, in all threads.
    cdef readonly Py_ssize_t running
    # The chosen executor, and the number of calls until the trial repeats, or -1 for never.
    cdef EagerCallable chosen
    cdef Py_ssize_t calls_until_look
    # How flat results are converted to the function's results. See _template. Without a template, `pack` does it.
    cdef object pack
    cdef object template
    cdef bint is_packed_by_template
    cdef bint is_known

    cdef object run(self, void** inputs)
    cdef int begin_sequences(self, object seeds) except -1
    cdef list run_on_trial(self, void** inputs)
    cdef object packed(self, list flat)


cdef class CachedCall:
    cdef CallPattern pattern
    # None if TensorFlow runs calls of this pattern.
    cdef readonly LiftedStep step
    # Pairs of a slot and the tensor that it must hold. The tensor and the threads of an iterator must not outlive the
    # iterator. `watched` therefore contains weak references to the objects of the pattern, which empty the list when
    # one of these objects is deleted.
    cdef list slot_tensors
    cdef tuple watched
    # The entry of a cached call without a step. See LiftedCalls.call_unlifted.
    cdef readonly object entry
    cdef Py_ssize_t calls
    cdef int64_t since

    cdef bint may_be_taken(self) except -1


cdef class CallCache:
    cdef readonly Py_ssize_t most
    # The cached calls with one shape, by digest, in the order of their last use.
    cdef dict by_digest
    cdef Py_ssize_t count
    # The count at which cached calls that can no longer be taken are searched for.
    cdef Py_ssize_t look_at
    cdef tuple open_calls
    cdef Py_ssize_t refused
    # A pattern for each type of value seen so far.
    cdef readonly dict kinds

    cdef CachedCall find(self, PyObject* scope, tuple args, dict kwargs, CallTensors* tensors, list kept)


cdef class CaptureSlot:
    # The tensor that the slot holds now.
    cdef readonly object tensor
    cdef object write
    cdef readonly object lock


cdef class CallCount:
    cdef object key
    cdef int64_t untold
    cdef readonly int64_t lifted
    cdef public int64_t by_tensorflow
    cdef public int64_t lifts
    cdef public double lift_secs
    cdef public str why_not
    cdef object __weakref__


cdef class LiftedCalls:
    cdef public object original
    cdef CachedCall latest
    cdef readonly CallCache _call_cache
    cdef readonly CallCount calls
    # Counts calls that TensorFlow runs because there is no room. Steps record the count at their last call.
    cdef int64_t now

    cdef object call_on(self, CachedCall cached_call, void** inputs, tuple args, dict kwargs)
    cdef object call_unlifted(self, CachedCall cached_call, tuple args, dict kwargs)
