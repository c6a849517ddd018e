from libc.stdint cimport int64_t

from fastsup.eager.devices.eager_session cimport EagerCallable


cdef class LiftedStep:
    cdef readonly object graph
    cdef readonly object trial
    cdef object __weakref__
    # When it was called last: see LiftedCalls.now.
    cdef public int64_t used_at
    # Chooses what runs the step.
    cdef object choose
    # TensorFlow's generator of seeds when the step's random sequences began: `tf.random.set_seed` makes another one.
    cdef object seeds
    cdef bint keeps_random_sequences
    # Calls under way, in all threads.
    cdef readonly Py_ssize_t running
    # What runs the step, once that is decided, and the calls until the trial looks again; -1 if it never does.
    cdef EagerCallable chosen
    cdef Py_ssize_t calls_until_look
    # How flat results become what the function returns: see _template. Without a template, `pack` does it.
    cdef object pack
    cdef object template
    cdef bint is_packed_by_template
    cdef bint is_known

    cdef object run(self, void** inputs)
    cdef int begin_sequences(self, object seeds) except -1
    cdef list run_on_trial(self, void** inputs)
    cdef object packed(self, list flat)
