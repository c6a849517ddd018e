"""The parts of steps that each step passes through: the call of a bound step, and the copy of a batch's rows."""

from libc.stdint cimport int64_t

from tensorflow.python.data.ops import iterator_ops
from tensorflow.python.framework import errors_impl
from tensorflow.python.util import nest

from fastsup.common.errors import is_end_of_input


cdef class Bound:
    """A call of a step function with arguments that stay the same. See `fastsup.bind`.

    Args:
      step: the step function.
      args: tuple of its positional arguments.
      kwargs: dict of its keyword arguments.

    Raises:
      TypeError: `step` can't be called.
    """

    def __init__(self, step, tuple args, dict kwargs):
        if not callable(step):
            raise TypeError(f"step must be callable, got {step!r}.")
        self.step = step
        self.args = args
        self.kwargs = kwargs
        self.takes_from_iterator = any(
            [isinstance(value, iterator_ops.OwnedIterator) for value in nest.flatten([args, kwargs])]
        )

    def __call__(self):
        try:
            return self.step(*self.args, **self.kwargs)
        except errors_impl.OutOfRangeError as error:
            if not self.takes_from_iterator or not is_end_of_input(error):
                raise
            raise StopIteration from error

    def __repr__(self):
        return f"<fastsup.bind of {self.step!r}>"


cdef extern from "rows.h":
    void fs_take_rows(char* to, const char* source, size_t row_bytes, const int64_t* rows, size_t n) nogil


def take_rows(unsigned char[:, ::1] to, const unsigned char[:, ::1] source, const int64_t[::1] rows):
    """Copies rows of one array to another one.

    Args:
      to: the array that is filled, as bytes, of shape [number of rows to take, bytes of a row].
      source: the array that they are in, as bytes, of shape [number of rows, bytes of a row].
      rows: the numbers of the rows to take, int64, of shape [number of rows to take].

    Raises:
      ValueError: the shapes don't fit together, or a row doesn't exist.
    """
    cdef Py_ssize_t i
    cdef int64_t count = source.shape[0]
    cdef bint exist = True
    if to.shape[0] != rows.shape[0] or to.shape[1] != source.shape[1]:
        raise ValueError(
            f"{rows.shape[0]} rows of {source.shape[1]} bytes don't fit into {to.shape[0]} rows of {to.shape[1]} bytes."
        )
    if rows.shape[0] == 0 or to.shape[1] == 0:
        return
    with nogil:
        for i in range(rows.shape[0]):
            exist &= 0 <= rows[i] < count
        if exist:
            fs_take_rows(<char*> &to[0, 0], <const char*> &source[0, 0], to.shape[1], &rows[0], rows.shape[0])
    if not exist:
        raise ValueError(f"rows must lie between 0 and {count - 1}, got {min(rows)} to {max(rows)}.")
