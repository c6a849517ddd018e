"""The calls of one function: each is run by the lifted graph of its pattern, or goes to TensorFlow."""

import functools
import threading
import weakref

from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject

from fastsup.core.probe cimport probe_here
from fastsup.eager.argument_pattern cimport CallTensors
from fastsup.eager.devices.eager_session cimport records_gradients, scope_of_plain_thread
from fastsup.eager.lifted_step cimport LiftedStep
from fastsup.eager.routes cimport Route, RouteTable

from fastsup.eager.devices.eager_session import has_callbacks, settings

from tensorflow.python.eager import context
from tensorflow.python.eager.polymorphic_function import eager_function_run, polymorphic_function
from tensorflow.python.framework import errors_impl, ops
from tensorflow.python.ops import summary_ops_v2
from tensorflow.python.profiler import profiler_v2

cdef enum:
    # Routes that a function keeps.
    MOST_ROUTES = 2048
    # Calls of a trace that isn't lifted, for want of room, until the function looks whether there is room now.
    CALLS_UNTIL_LOOK = 128

# While a profiler is on: function from a LiftedCalls, of which nothing around a call is recorded, to what makes the call
# in its place, or None.
call_recorder = None

cdef dict context_names = vars(context)
cdef dict run_eagerly_names = vars(eager_function_run)
cdef dict profiler_names = vars(profiler_v2)
cdef dict summary_names = vars(summary_ops_v2)
cdef object graph_stack = ops._default_graph_stack
# The eager context that the sessions share. None while nothing may be lifted.
cdef object shared_context = None
# The name of its device, if it has one alone.
cdef str only_device = ""
# The eager context that collects the graphs of what it runs. None if none does.
cdef object collecting_context = None
# By the id of what TensorFlow counts the calls of a Python function by.
cdef object call_counts = weakref.WeakValueDictionary()


def share(eager_context):
    """Lets lifted graphs run under an eager context.

    Args:
      eager_context: the context; None once nothing may run.
    """
    global shared_context, only_device
    shared_context = eager_context
    if eager_context is not None:
        devices = eager_context.devices()
        only_device = devices[0] if len(devices) == 1 else ""


def _watch_run_metadata():
    """Notices from now on when an eager context begins and ends to collect graphs, of which only its C++ part knows."""
    def watched(method, is_on):
        @functools.wraps(method)
        def replacement(self, *args, **kwargs):
            global collecting_context
            result = method(self, *args, **kwargs)
            collecting_context = self if is_on else None
            return result

        return replacement

    for name, is_on in (("enable_run_metadata", True), ("disable_run_metadata", False)):
        setattr(context.Context, name, watched(getattr(context.Context, name), is_on))


_watch_run_metadata()


def scope_of_devices():
    """Where the calling thread places what asks for no device.

    Returns:
      The name of the device of its `tf.device` scope, an empty string without a scope. None if TensorFlow has one device
      alone.
    """
    return None if only_device or shared_context is None else settings(shared_context)[1]


cdef bint may_run(PyObject** scope) except -1:
    """Whether a lifted graph may run here and now: where it would do the same as TensorFlow's call.

    Args:
      scope: takes what `scope_of_devices` returns, as a borrowed reference.
    """
    cdef PyObject* found
    if shared_context is None or <object>PyDict_GetItem(context_names, "_context") is not shared_context:
        return False
    found = scope_of_plain_thread(shared_context)
    if found is NULL:
        return False
    if only_device:
        if <object>found and <object>found != only_device:
            return False
        scope[0] = <PyObject*>None
    else:
        scope[0] = found
    if <object>PyDict_GetItem(run_eagerly_names, "RUN_FUNCTIONS_EAGERLY") is not False:
        return False
    # The single-threaded executor tells neither of them what it runs.
    if <object>PyDict_GetItem(profiler_names, "_profiler") is not None:
        return False
    if <object>PyDict_GetItem(summary_names, "_current_trace_context") is not None:
        return False
    if collecting_context is not None:
        return False
    if records_gradients():
        return False
    graph = graph_stack._global_default_graph
    return graph is None or not graph._distribution_strategy_stack


def fallback_reason():
    """Why no lifted graph may run in the calling thread now.

    Returns:
      The reason; an empty string if one may.
    """
    cdef PyObject* scope = NULL
    if may_run(&scope):
        return ""
    if shared_context is None or context._context is not shared_context:
        return "the eager context isn't the one that the sessions share"
    is_eager, device, is_async = settings(shared_context)
    if not is_eager:
        return "TensorFlow doesn't execute eagerly here"
    if only_device and device and device != only_device:
        return f"a tf.device scope, {device}, is open"
    if is_async:
        return "operations run asynchronously here"
    if has_callbacks(shared_context):
        return "a tool of tf.debugging watches the operations here"
    if profiler_v2._profiler is not None:
        return "TensorFlow's profiler is on"
    if summary_ops_v2._current_trace_context is not None:
        return "tf.summary.trace_on is on"
    if collecting_context is not None:
        return "the eager context collects graphs (enable_run_metadata)"
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
        # A tensor may go, and its box be emptied, while another thread puts another one into it; also within `store`.
        self.lock = threading.RLock()

    def store(self, tensor):
        """Stores a tensor in the box, if the box doesn't hold it.

        Args:
          tensor: the tensor.
        """
        with self.lock:
            if self.tensor is not tensor:
                self.tensor = None
                self.write(tensor)
                self.tensor = tensor

    def release(self, tensor):
        """Empties the box, if it holds a tensor.

        Args:
          tensor: the tensor.
        """
        with self.lock:
            if self.tensor is tensor:
                self.tensor = None
                self.write(None)


cdef class CallCount:
    """Counts calls that haven't traced, until TensorFlow, which warns of too much retracing, is told of them.

    Args:
      key: what TensorFlow counts the calls by. None if it doesn't.
    """

    def __init__(self, key):
        self.key = key

    def add(self):
        """Counts one call."""
        self.untold += 1

    def tell(self):
        """Tells TensorFlow of the calls since the last time: before a call that may trace."""
        cdef int64_t count = self.untold
        self.untold = 0
        if count == 0 or self.key is None:
            return
        detectors = polymorphic_function._frequent_tracing_detector_manager
        detectors.called_without_tracing(self.key)
        with detectors._lock:
            detector = detectors._get_detector(self.key)
            calls = detector._calls_per_tracings
            calls[len(calls) - 1] += count - 1
            detector._call_count += count - 1


def call_count(key):
    """The CallCount of all functions of one Python function.

    Args:
      key: what TensorFlow counts their calls by.
    """
    found = call_counts.get(id(key))
    # It keeps the key alive, so that no other one gets its id.
    return call_counts.setdefault(id(key), CallCount(key)) if found is None else found


cdef class LiftedCalls:
    """A callable that knows the lifted graphs of one function by the patterns of their calls.

    A subclass defines `_call_new(args, kwargs)`, for calls of no known pattern, `_may_be_lifted_now()`, whether a call
    may be lifted although no lifted graph could run, `_explained(error, step, args, kwargs)`, which returns the error
    that a failed step raises, and `_lift_late(entry, since)`, which lifts a trace for which was past the limit, if there
    is another one that wasn't called since then.

    Args:
      original: TensorFlow's function, for calls that can't be lifted.
      calls: the CallCount of its calls.
      most_routes: the most routes that it keeps.
    """

    def __init__(self, original, CallCount calls not None, Py_ssize_t most_routes=MOST_ROUTES):
        self.original = original
        self.calls = calls
        self._routes = RouteTable(most_routes)

    def __call__(self, *args, **kwargs):
        cdef CallTensors tensors
        cdef list kept = []
        cdef Route route = self.latest
        cdef PyObject* scope = NULL
        if call_recorder is not None and probe_here() is None:
            recorded = call_recorder(self)
            if recorded is not None:
                return recorded(self, args, kwargs)
        if not may_run(&scope):
            return self._call_elsewhere(args, kwargs)
        tensors.handles = tensors.few
        if route is not None and route.pattern.is_of(scope) and route.pattern.fits(args, kwargs, &tensors, kept):
            return self.call_on(route, tensors.handles, args, kwargs)
        route = self._routes.find(scope, args, kwargs, &tensors, kept)
        if route is not None:
            self.latest = route
            return self.call_on(route, tensors.handles, args, kwargs)
        return self._call_new(args, kwargs)

    cdef object call_on(self, Route route, void** inputs, tuple args, dict kwargs):
        cdef LiftedStep step = route.step
        if step is None:
            return self.call_unlifted(route, args, kwargs)
        step.used_at = self.now
        cdef bint holds_boxes = len(route.boxed) > 0
        if holds_boxes and not hold_boxes(step, route.boxed):
            return self.original(*args, **kwargs)
        try:
            result = step.run(inputs)
            self.calls.untold += 1
            return result
        except errors_impl.OpError as error:
            raise self._explained(error, step, args, kwargs) from None
        finally:
            step.running -= holds_boxes

    cdef object call_unlifted(self, Route route, tuple args, dict kwargs):
        """A call that TensorFlow runs. Counts it, if its trace may be lifted later."""
        if route.entry is not None:
            self.now += 1
            if route.calls == 0:
                route.since = self.now
            route.calls += 1
            if route.calls == CALLS_UNTIL_LOOK:
                route.calls = 0
                self._lift_late(route.entry, route.since)
        return self.original(*args, **kwargs)

    def _call_elsewhere(self, args, kwargs):
        """A call where no lifted graph may run: TensorFlow's own.

        It isn't in Python: the lines of Python that are on the stack become those of the operations that it traces.
        """
        if self._may_be_lifted_now():
            return self(*args, **kwargs)
        if self.calls.untold:
            self.calls.tell()
        return self.original(*args, **kwargs)

    def _may_be_lifted_now(self):
        raise NotImplementedError

    def _call_new(self, args, kwargs):
        raise NotImplementedError

    def _explained(self, error, LiftedStep step, args, kwargs):
        raise NotImplementedError

    def _lift_late(self, entry, since):
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
        step.used_at = self.now
        if not hold_boxes(step, boxed):
            return self.original(*args, **kwargs)
        try:
            return step(tensors)
        except errors_impl.OpError as error:
            raise self._explained(error, step, args, kwargs) from None
        finally:
            step.running -= 1

    def _add_route(self, Route route, tuple args, dict kwargs):
        """Lets calls of a new pattern take a route.

        Args:
          route: the route.
          args: the positional arguments of the first call that takes it.
          kwargs: its keyword arguments.
        """
        self._routes.add(route, args, kwargs)
        self.latest = route

    def _drop_routes(self, step=None, entry=None):
        """Forgets the routes to a step, or those of an entry; all routes if neither is given."""
        self.latest = None
        self._routes.drop(step, entry)


cdef bint hold_boxes(LiftedStep step, list boxed) except -1:
    """Puts tensors into a step's boxes for a run, which the caller makes and then takes from `step.running`.

    Counted before the run: whatever comes between, such as a garbage collection, may let another thread run.

    Returns:
      False if another thread's call needs what is in the boxes now. Nothing is counted then.
    """
    cdef Box box
    cdef bint are_filled = True
    for box, tensor in boxed:
        are_filled = are_filled and box.tensor is tensor
    if step.running and not are_filled:
        return False
    step.running += 1
    if not are_filled:
        # At once: while this call waits for the lock of a box, none may take it for filled with another tensor.
        for box, _ in boxed:
            box.tensor = None
        try:
            for box, tensor in boxed:
                box.store(tensor)
        except BaseException:
            step.running -= 1
            raise
    return True
