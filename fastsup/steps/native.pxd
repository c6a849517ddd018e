cdef class Bound:
    # The step function, its positional and its keyword arguments.
    cdef readonly object step
    cdef readonly tuple args
    cdef readonly dict kwargs
    # True if a tf.data iterator is among the arguments. Its end is the end of the loop.
    cdef bint takes_from_iterator
