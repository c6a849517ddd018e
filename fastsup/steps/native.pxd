cdef class Bound:
    # The step function, its positional and its keyword arguments.
    cdef readonly object step
    cdef readonly tuple args
    cdef readonly dict kwargs
    # Whether an iterator of tf.data is among them, whose end is the end of the loop.
    cdef bint takes_from_iterator
