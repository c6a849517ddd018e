"""The call to a bound step, which every step uses."""

from tensorflow.python.data.ops import iterator_ops
from tensorflow.python.framework import errors_impl
from tensorflow.python.util import nest

from fastsup.common.errors import is_end_of_input


cdef class Bound:
    """A call to a step function with fixed arguments. See `fastsup.bind`.

    Args:
      step: the step function.
      args: tuple of its positional arguments.
      kwargs: dict of its keyword arguments.

    Raises:
      TypeError: If `step` can't be called.
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
