"""The calls of one function: each is run by the lifted graph of its pattern, or goes to TensorFlow."""

import threading
import weakref

from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject

from fastsup.eager.call_pattern cimport CallPattern, CallTensors
from fastsup.eager.eager_session cimport is_plain_thread, records_gradients
from fastsup.eager.lifted_step cimport LiftedStep

from fastsup.eager.eager_session import has_callbacks, settings

from tensorflow.python.eager import context
from tensorflow.python.eager.polymorphic_function import eager_function_run
from tensorflow.python.framework import errors_impl, ops
from tensorflow.python.ops import summary_ops_v2
from tensorflow.python.profiler import profiler_v2

cdef enum:
    # Patterns that a function keeps. The one that has been used the longest time ago goes first.
    MOST_ROUTES = 128

cdef dict context_names = vars(context)
cdef dict run_eagerly_names = vars(eager_function_run)
cdef dict profiler_names = vars(profiler_v2)
cdef dict summary_names = vars(summary_ops_v2)
cdef object graph_stack = ops._default_graph_stack
# The eager context that the sessions share. None while nothing may be lifted.
cdef object shared_context = None
# The name of its one device.
cdef str shared_device = ""


def share(eager_context):
    """Lets lifted graphs run under an eager context.

    Args:
      eager_context: the context; None if nothing may run any more.
    """
    global shared_context, shared_device
    shared_context = eager_context
    if eager_context is not None:
        shared_device = eager_context.devices()[0]


cdef bint may_run() except -1:
    """Whether a lifted graph may run here and now: where it would do the same as TensorFlow's call."""
    if shared_context is None or <object>PyDict_GetItem(context_names, "_context") is not shared_context:
        return False
    if not is_plain_thread(shared_context, shared_device):
        return False
    if <object>PyDict_GetItem(run_eagerly_names, "RUN_FUNCTIONS_EAGERLY") is not False:
        return False
    # The single-threaded executor tells neither of them what it runs.
    if <object>PyDict_GetItem(profiler_names, "_profiler") is not None:
        return False
    if <object>PyDict_GetItem(summary_names, "_current_trace_context") is not None:
        return False
    if records_gradients():
        return False
    graph = graph_stack._global_default_graph
    return graph is None or not graph._distribution_strategy_stack


def why_not_now():
    """Why no lifted graph may run in the calling thread now.

    Returns:
      The reason; an empty string if one may.
    """
    if may_run():
        return ""
    if shared_context is None or context._context is not shared_context:
        return "the eager context isn't the one that the sessions share"
    is_eager, device, is_async = settings(shared_context)
    if not is_eager:
        return "TensorFlow doesn't execute eagerly here"
    if device and device != shared_device:
        return f"a tf.device scope, {device}, is open"
    if is_async:
        return "operations run asynchronously here"
    if has_callbacks(shared_context):
        return "a tool of tf.debugging watches the operations here"
    if profiler_v2._profiler is not None:
        return "TensorFlow's profiler is on"
    if summary_ops_v2._current_trace_context is not None:
        return "tf.summary.trace_on is on"
    if eager_function_run.RUN_FUNCTIONS_EAGERLY is not False:
        return "tf.config.run_functions_eagerly is on"
    if records_gradients():
        return "a gradient tape or a forward accumulator records"
    return "a tf.distribute strategy's scope is open"


cdef class Box:
    """A place outside the graph for a tensor that a session can't be fed: a resource, a variant.

    Args:
      tensor: what it holds first; None if nothing.
      write: function that is called with the tensor that the box is to hold; None if nothing.
    """

    def __init__(self, tensor, write):
        self.tensor = tensor
        self.write = write
        # A tensor may go, and its box be emptied, while another thread puts another one into it; also within `put`.
        self.lock = threading.RLock()

    def put(self, tensor):
        """Puts a tensor into the box, if the box doesn't hold it.

        Args:
          tensor: the tensor.
        """
        with self.lock:
            if self.tensor is not tensor:
                self.tensor = None
                self.write(tensor)
                self.tensor = tensor

    def let_go(self, tensor):
        """Empties the box, if it holds a tensor.

        Args:
          tensor: the tensor.
        """
        with self.lock:
            if self.tensor is tensor:
                self.tensor = None
                self.write(None)


cdef class Route:
    """Where the calls of one pattern go.

    Args:
      pattern: the CallPattern.
      step: the LiftedStep; None if TensorFlow runs these calls.
      boxed: list of pairs of a Box and the tensor that it holds in these calls.
    """

    def __init__(self, CallPattern pattern, LiftedStep step, list boxed):
        self.pattern = pattern
        self.step = step
        self.boxed = boxed
        self.watched = tuple([weakref.ref(known(), lambda gone: let_go(boxed)) for known in pattern.objects if boxed])

    cdef bint may_be_taken(self) except -1:
        """Whether a call can still fit its pattern: all objects of the pattern are there."""
        for known in self.pattern.objects:
            if known() is None:
                return False
        return True


cdef class LiftedCalls:
    """A callable that knows the lifted graphs of one function by the patterns of their calls.

    A subclass defines `_call_new(args, kwargs)`, for calls of no known pattern, and `_explained(error, step, args,
    kwargs)`, which returns the error that a failed step raises.

    Args:
      original: TensorFlow's function, for calls that can't be lifted.
    """

    def __init__(self, original):
        self.original = original
        self.routes = []

    def __call__(self, *args, **kwargs):
        cdef CallTensors tensors
        cdef list kept = []
        cdef Route route = self.latest
        cdef Py_ssize_t i
        if not may_run():
            return self._call_elsewhere(args, kwargs)
        if route is not None and route.pattern.fits(args, kwargs, &tensors, kept):
            return self.call_on(route, tensors.handles, args, kwargs)
        for i in range(len(self.routes) - 1, -1, -1):
            if i >= len(self.routes):
                continue  # Another thread, or a comparison of two values, has changed the routes.
            route = <Route>self.routes[i]
            if route.pattern.fits(args, kwargs, &tensors, kept):
                self.latest = route
                return self.call_on(route, tensors.handles, args, kwargs)
        return self._call_new(args, kwargs)

    cdef object call_on(self, Route route, void** inputs, tuple args, dict kwargs):
        cdef LiftedStep step = route.step
        if step is None:
            return self.original(*args, **kwargs)
        if route.boxed and not put_all(step, route.boxed):
            return self.original(*args, **kwargs)
        try:
            return step.run(inputs)
        except errors_impl.OpError as error:
            raise self._explained(error, step, args, kwargs) from None

    def _call_elsewhere(self, args, kwargs):
        return self.original(*args, **kwargs)

    def _call_new(self, args, kwargs):
        raise NotImplementedError

    def _explained(self, error, LiftedStep step, args, kwargs):
        raise NotImplementedError

    def _run(self, LiftedStep step, list tensors, list boxed, args, kwargs):
        """Runs a lifted graph whose inputs are known.

        Args:
          step: the LiftedStep.
          tensors: list of its feeds.
          boxed: list of pairs of a Box and the tensor that it must hold.
          args: the positional arguments of the call.
          kwargs: its keyword arguments.

        Returns:
          What the function returns.
        """
        if not put_all(step, boxed):
            return self.original(*args, **kwargs)
        try:
            return step(tensors)
        except errors_impl.OpError as error:
            raise self._explained(error, step, args, kwargs) from None

    def _add_route(self, Route route):
        """Lets calls of a new pattern take a route."""
        routes = [other for other in self.routes if (<Route>other).may_be_taken()]
        self.routes = [*routes[-(MOST_ROUTES - 1):], route]
        self.latest = route

    def _drop_routes(self, step=None):
        """Forgets the routes to a step; all routes if there is no step."""
        self.latest = None
        self.routes = [] if step is None else [route for route in self.routes if (<Route>route).step is not step]


def let_go(list boxed):
    """Empties boxes of tensors that no call will need any more, and the list of them.

    Args:
      boxed: list of pairs of a Box and a tensor.
    """
    pairs = list(boxed)
    boxed.clear()
    for box, tensor in pairs:
        box.let_go(tensor)


cdef bint put_all(LiftedStep step, list boxed) except -1:
    """Puts tensors into a step's boxes. False if another thread's call needs what is in them now."""
    cdef Box box
    for box, tensor in boxed:
        if box.tensor is not tensor:
            if step.running:
                return False
            step.running += 1
            try:
                box.put(tensor)
            finally:
                step.running -= 1
    return True
