"""The calls of one function. Each finds its cached call by a pattern, and is run by a lifted graph or by TensorFlow."""

from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject
from cython cimport final
from libc.stdlib cimport free, malloc

import collections
import functools
import threading
import types
import weakref
from time import perf_counter

from tensorflow.python.eager import context
from tensorflow.python.eager.polymorphic_function import eager_function_run, polymorphic_function
from tensorflow.python.framework import errors_impl, ops
from tensorflow.python.ops import summary_ops_v2
from tensorflow.python.profiler import profiler_v2

from fastsup.core.probe cimport Profiler, address_of_program_profiler, probe_here
from fastsup.eager.eager_session cimport EagerCallable, handle_of, records_gradients, scope_of_plain_thread
from fastsup.core.probe import call_not_lifted
from fastsup.eager.eager_session import has_callbacks, settings
from fastsup.eager.patterns cimport CallPattern, CallTensors, digest_of_call


@final
cdef class NamedTemplate:
    """A namedtuple among the results."""

    cdef object kind
    cdef tuple items


cdef class LiftedStep:
    """A ConcreteFunction's graph in a session that shares the eager context's devices.

    Args:
      graph: the LiftedGraph. Its `feeds` are the step's inputs, and its slots hold the others.
      choose: function without arguments that chooses the executor. It returns the EagerCallable, or None if a trial
        decides; and that trial, or None.
      pack: function from the flat list of results to the function's results.

    Raises:
      NotLiftable, tf.errors.OpError: As in `choose`.
    """

    def __init__(self, graph, choose, pack):
        self.graph = graph
        self.choose = choose
        self.pack = pack
        self.keeps_random_sequences = graph.keeps_random_sequences
        self.begin_sequences(_seeds())

    def __call__(self, list tensors):
        """Runs the step.

        Args:
          tensors: an EagerTensor for each feed.

        Returns:
          The function's results.

        Raises:
          TypeError: If a feed isn't an EagerTensor.
          tf.errors.OpError: If the step failed.
        """
        cdef void** inputs = <void**>malloc(max(1, len(tensors)) * sizeof(void*))
        if inputs is NULL:
            raise MemoryError
        cdef Py_ssize_t i
        try:
            for i in range(len(tensors)):
                inputs[i] = handle_of(tensors[i])
                if inputs[i] is NULL:
                    raise TypeError(f"feed {i} must be an EagerTensor, got {tensors[i]!r}.")
            return self.run(inputs)
        finally:
            free(inputs)

    cdef object run(self, void** inputs):
        """Runs the step with handles whose tensors the caller keeps alive."""
        cdef EagerCallable chosen
        cdef list flat
        if self.keeps_random_sequences:
            seeds = _seeds()
            if seeds is not self.seeds:
                self.graph.forget_sessions()
                self.begin_sequences(seeds)
        chosen = self.chosen
        self.running += 1
        try:
            if chosen is None:
                flat = self.run_on_trial(inputs)
            else:
                flat = chosen.run(inputs)
                if self.calls_until_look > 0:
                    self.calls_until_look -= 1
                    if self.calls_until_look == 0:
                        self.trial.recheck()
                        self.chosen = None
        finally:
            self.running -= 1
        return self.packed(flat)

    cdef int begin_sequences(self, object seeds) except -1:
        """Chooses the executor of the step. Its random sequences start here."""
        # Set the seeds first, so that another thread can't restart the sequences.
        self.seeds = seeds
        chosen, trial = self.choose()
        self.calls_until_look = -1
        self.trial = trial
        self.chosen = chosen
        return 0

    def run_inline(self):
        """Runs the step in the calling thread with the ordinary executor from now on, unless that would restart its
        random sequences."""
        if self.graph.executor == "single_threaded" and not self.keeps_random_sequences:
            self.chosen = self.graph.compile("inline")

    def leave_open(self):
        """Keeps the sessions open for the lifetime of the process."""
        self.graph.leave_open()

    def release_all(self):
        """Releases the tensors in the slots, unless a call is running."""
        if not self.running:
            self.graph.release_all()

    cdef list run_on_trial(self, void** inputs):
        cdef EagerCallable candidate = self.trial.next()
        started = perf_counter()
        flat = candidate.run(inputs)
        winner = self.trial.record(candidate, perf_counter() - started)
        if winner is not None:
            self.calls_until_look = self.trial.runs_until_look
            self.chosen = winner
        return flat

    cdef object packed(self, list flat):
        if self.is_packed_by_template:
            if type(self.template) is int:
                return flat[<Py_ssize_t>self.template]
            return _fill(self.template, flat)
        result = self.pack(flat)
        if not self.is_known:
            places = {id(tensor): place for place, tensor in enumerate(flat)}
            try:
                self.template = _template(result, places)
                self.is_packed_by_template = True
            except TypeError:
                pass
            self.is_known = True
        return result


cdef object _seeds():
    """Returns TensorFlow's generator of seeds, or None before the first `tf.random.set_seed`."""
    return getattr(context._context, "_rng", None)


cdef object _template(object result, dict places):
    """Returns the structure of a result, with places instead of tensors. TypeError if only TensorFlow can create it."""
    if result is None:
        return None
    if id(result) in places:
        return places[id(result)]
    kind = type(result)
    if kind is dict:
        return {key: _template(value, places) for key, value in result.items()}
    if kind is list:
        return [_template(value, places) for value in result]
    if not issubclass(kind, tuple):
        raise TypeError
    items = tuple([_template(value, places) for value in result])
    if kind is tuple:
        return items
    if not hasattr(kind, "_make") or not hasattr(kind, "_fields"):
        raise TypeError
    cdef NamedTemplate named = NamedTemplate.__new__(NamedTemplate)
    named.kind = kind
    named.items = items
    return named


cdef object _fill(object template, list flat):
    kind = type(template)
    if kind is int:
        return flat[<Py_ssize_t>template]
    if template is None:
        return None
    if kind is dict:
        return {key: _fill(value, flat) for key, value in (<dict>template).items()}
    if kind is list:
        return [_fill(value, flat) for value in <list>template]
    if kind is tuple:
        return tuple([_fill(value, flat) for value in <tuple>template])
    named = <NamedTemplate>template
    return named.kind._make([_fill(value, flat) for value in (<NamedTemplate>named).items])


cdef enum:
    # Maximum number of cached calls per digest.
    MOST_OF_ONE_DIGEST = 64
    # A full table accepts one of this many new cached calls, so that it adapts to a program that changes its shapes, and
    # costs nothing if a program has more shapes than the table can hold.
    REFUSED_IN_TURN = 16


cdef class CachedCall:
    """How calls of one pattern are run.

    Args:
      pattern: the CallPattern.
      step: the LiftedStep, or None if TensorFlow runs these calls.
      slot_tensors: list of pairs of a CaptureSlot and its tensor in these calls.
      entry: the function's entry for the trace if it may be lifted later, or None.
    """

    def __init__(self, CallPattern pattern, LiftedStep step, list slot_tensors, entry=None):
        self.pattern = pattern
        self.step = step
        self.slot_tensors = slot_tensors
        self.entry = entry
        objects = pattern.objects if slot_tensors else ()
        self.watched = tuple([weakref.ref(known(), lambda gone: release(slot_tensors)) for known in objects])

    cdef bint may_be_taken(self) except -1:
        """Returns True if a call can still match: all objects of the pattern exist."""
        for known in self.pattern.objects:
            if known() is None:
                return False
        return True


cdef class CallCache:
    """The cached calls of one function. A full table drops the least recently used cached calls.

    A call with one shape is found by the digest of its arguments, regardless of the number of cached calls. Calls with
    open dimensions, of which each trace has few, are compared one by one.

    Args:
      most: maximum number of cached calls of each kind.
    """

    def __init__(self, Py_ssize_t most):
        self.most = most
        self.by_digest = {}
        self.open_calls = ()
        self.kinds = {}
        self.look_at = MOST_OF_ONE_DIGEST

    def __len__(self):
        return self.count + len(self.open_calls)

    cdef CachedCall find(self, PyObject* scope, tuple args, dict kwargs, CallTensors* tensors, list kept):
        """Returns the cached call for a call in a scope of devices, or None. Writes tensors' handles. See CallPattern.fits."""
        cdef CachedCall cached_call
        cdef Py_ssize_t i
        cdef tuple cached_calls
        if self.count:
            digest = digest_of_call(args, kwargs, self.kinds)
            cached_calls = self.by_digest.get(digest, ())
            for i in range(len(cached_calls) - 1, -1, -1):
                cached_call = cached_calls[i]
                if cached_call.pattern.is_of(scope) and cached_call.pattern.fits(args, kwargs, tensors, kept):
                    # Another thread, or a comparison of two values, may have changed the table.
                    now = self.by_digest.pop(digest, None)
                    if now is not None:
                        self.by_digest[digest] = now
                    return cached_call
        cached_calls = self.open_calls
        for i in range(len(cached_calls) - 1, -1, -1):
            cached_call = cached_calls[i]
            if cached_call.pattern.is_of(scope) and cached_call.pattern.fits(args, kwargs, tensors, kept):
                return cached_call
        return None

    def takes_more(self):
        """Returns True if a new cached call should be added: if there is room, or every few calls."""
        if self.count < self.most and len(self.open_calls) < self.most:
            return True
        self.refused += 1
        return self.refused % REFUSED_IN_TURN == 0

    def add(self, CachedCall cached_call, tuple args, dict kwargs):
        """Adds a cached call.

        Args:
          cached_call: the call to add.
          args: the positional arguments of a call that takes it.
          kwargs: the keyword arguments.
        """
        if cached_call.pattern.is_open:
            self.open_calls = (*_living(self.open_calls)[-(self.most - 1):], cached_call)
            return
        digest = digest_of_call(args, kwargs, self.kinds)
        cached_calls = self.by_digest.pop(digest, ())
        kept = (*_living(cached_calls)[-(MOST_OF_ONE_DIGEST - 1):], cached_call)
        self.by_digest[digest] = kept
        self.count += len(kept) - len(cached_calls)
        if self.count >= self.look_at:
            self.keep(_living)
            self.look_at = max(2 * self.count, MOST_OF_ONE_DIGEST)
        while self.count > self.most and self.by_digest:
            self.count -= len(self.by_digest.pop(next(iter(self.by_digest))))

    def drop(self, step=None, entry=None):
        """Removes the cached calls to a step, or an entry's cached calls, or all cached calls if neither is given."""
        def others(cached_calls):
            if step is None and entry is None:
                return ()
            return tuple([
                cached_call for cached_call in cached_calls
                if not (step is not None and (<CachedCall>cached_call).step is step)
                and not (entry is not None and (<CachedCall>cached_call).entry is entry)
            ])

        self.keep(others)
        self.open_calls = others(self.open_calls)

    def keep(self, chosen):
        """Keeps only the cached calls of each digest that a function selects."""
        # Deleting objects may let another thread run.
        kept = {digest: chosen(cached_calls) for digest, cached_calls in list(self.by_digest.items())}
        self.by_digest = {digest: cached_calls for digest, cached_calls in kept.items() if cached_calls}
        self.count = sum([len(cached_calls) for cached_calls in self.by_digest.values()])


cdef tuple _living(tuple cached_calls):
    return tuple([cached_call for cached_call in cached_calls if (<CachedCall>cached_call).may_be_taken()])


def release(list slot_tensors):
    """Empties slots whose tensors no later call needs, and the list of them.

    Args:
      slot_tensors: list of pairs of a CaptureSlot and a tensor.
    """
    pairs = list(slot_tensors)
    slot_tensors.clear()
    for slot, tensor in pairs:
        slot.release(tensor)


cdef enum:
    # Maximum number of cached calls per function.
    MOST_CACHED_CALLS = 2048
    # Number of calls to a trace that isn't lifted because there is no room, until the function checks again.
    CALLS_UNTIL_LOOK = 128

# The location of the pointer to the profiler of the whole program.
cdef void** program_profiler = address_of_program_profiler()

cdef dict context_names = vars(context)
cdef dict run_eagerly_names = vars(eager_function_run)
cdef dict profiler_names = vars(profiler_v2)
cdef dict summary_names = vars(summary_ops_v2)
cdef object graph_stack = ops._default_graph_stack
# The eager context that the sessions share. None while nothing may be lifted.
cdef object shared_context = None
# The name of this context's device, if the context has only one device.
cdef str only_device = ""
# The eager context that collects the graphs of the functions that it runs, or None.
cdef object collecting_context = None
# Maps the id of the key by which TensorFlow counts a Python function's calls to the count.
cdef object call_counts = weakref.WeakValueDictionary()
# The latest counts of code, which outlive their functions, because a program may create the next function from the
# code.
cdef object latest_counts = collections.deque(maxlen=256)


def share(eager_context):
    """Makes lifted graphs run under an eager context.

    Args:
      context: the context, or None if nothing may run any longer.
    """
    global shared_context, only_device
    shared_context = eager_context
    if eager_context is not None:
        devices = eager_context.devices()
        only_device = devices[0] if len(devices) == 1 else ""


def _watch_collections():
    """Records when an eager context starts and stops collecting graphs, which only its C++ part stores."""
    def watched(method, is_on):
        @functools.wraps(method)
        def replacement(self, *args, **kwargs):
            global collecting_context
            result = method(self, *args, **kwargs)
            collecting_context = self if is_on else None
            return result

        return replacement

    # One of the context's flags has both names.
    for kind in ("run_metadata", "graph_collection"):
        for verb, is_on in (("enable", True), ("disable", False)):
            name = f"{verb}_{kind}"
            setattr(context.Context, name, watched(getattr(context.Context, name), is_on))


_watch_collections()


def scope_of_devices():
    """Returns the device on which the calling thread places operations that request none.

    Returns:
      The name of the device of its `tf.device` scope, or "" without a scope. None if TensorFlow has only one device.
    """
    return None if only_device or shared_context is None else settings(shared_context)[1]


cdef bint may_run(PyObject** scope) except -1:
    """Whether a lifted graph may run in the current context, because it would do the same as TensorFlow's call. Sets
    the scope."""
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
    # The single-threaded executor doesn't report its operations to a profiler or to a summary trace.
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


def why_not_lifted_here():
    """Returns the reason why no lifted graph may run in the calling thread now.

    Returns:
      The reason, or "" if one may run.
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
        return "a tf.debugging tool observes the operations here"
    if profiler_v2._profiler is not None:
        return "TensorFlow's profiler is on"
    if summary_ops_v2._current_trace_context is not None:
        return "tf.summary.trace_on is on"
    if collecting_context is not None:
        return "the eager context collects graphs (enable_run_metadata, enable_graph_collection)"
    if eager_function_run.RUN_FUNCTIONS_EAGERLY is not False:
        return "tf.config.run_functions_eagerly is on"
    if records_gradients():
        return "a gradient tape or a forward accumulator records"
    return "a tf.distribute strategy's scope is open"


cdef class CaptureSlot:
    """A place outside the graph for a tensor that can't be fed to a session: a resource or a variant.

    Args:
      tensor: its initial content, or None.
      write: function that is called with the tensor that the slot should hold, or None.
    """

    def __init__(self, tensor, write):
        self.tensor = tensor
        self.write = write
        # A tensor may be deleted, and its slot emptied, while another thread stores a new one, even within `store`.
        self.lock = threading.RLock()

    def store(self, tensor):
        """Stores a tensor in the slot, unless the slot already holds it.

        Args:
          tensor: the tensor.
        """
        with self.lock:
            if self.tensor is not tensor:
                self.tensor = None
                self.write(tensor)
                self.tensor = tensor

    def release(self, tensor):
        """Empties the slot if it holds a tensor.

        Args:
          tensor: the tensor.
        """
        with self.lock:
            if self.tensor is tensor:
                self.tensor = None
                self.write(None)


cdef class CallCount:
    """Counts calls without tracing until they are reported to TensorFlow, which warns about too much retracing.

    For a report, it also counts the calls of lifted graphs, and the calls that TensorFlow ran.

    Args:
      key: the key by which TensorFlow counts the calls, or None.

    Attributes:
      lifted, by_tensorflow: numbers of calls.
      lifts: the number of lifted traces.
      lift_secs: approximate seconds that lifting them took.
      why_not: reason why TensorFlow ran calls that might have been lifted, or "".
    """

    def __init__(self, key):
        self.key = key
        self.why_not = ""

    def add(self):
        """Counts one call by TensorFlow that didn't trace."""
        self.untold += 1

    def tell(self):
        """Reports the calls since the last report to TensorFlow, before a call that may trace."""
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
    """Returns the CallCount for all functions of one Python function.

    Args:
      key: the key by which TensorFlow counts their calls.
    """
    found = call_counts.get(id(key))
    if found is None:
        # The count keeps the key alive, so that no other key gets the same id.
        found = call_counts.setdefault(id(key), CallCount(key))
        if isinstance(key, types.CodeType):  # A key of another type may keep a whole model alive.
            latest_counts.append(found)
    return found


cdef class LiftedCalls:
    """A callable that finds one function's lifted graphs by the patterns of their calls.

    A subclass defines `_call_new(args, kwargs)`, for calls without a known pattern; `_may_be_lifted_now()`, which
    returns True if a call may be lifted although no lifted graph could run; `_explained(error, step, args, kwargs)`,
    which returns the error that a failed step raises; and `_lift_late(entry, since)`, which lifts a trace that was
    called often enough, if there is room or another trace wasn't called since then.

    Args:
      original: TensorFlow's function, for calls that can't be lifted.
      calls: the CallCount of its calls.
      most_cached_calls: maximum number of cached calls.
    """

    def __init__(self, original, CallCount calls not None, Py_ssize_t most_cached_calls=MOST_CACHED_CALLS):
        self.original = original
        self.calls = calls
        self._call_cache = CallCache(most_cached_calls)

    def __call__(self, *args, **kwargs):
        cdef CallTensors tensors
        cdef list kept = []
        cdef CachedCall cached_call = self.latest
        cdef PyObject* scope = NULL
        if program_profiler[0] is not NULL and probe_here() is None:
            recorded = (<Profiler> program_profiler[0]).function_probe(self)
            if recorded is not None:
                return recorded(self, args, kwargs)
        if not may_run(&scope):
            return self._call_elsewhere(args, kwargs)
        tensors.handles = tensors.few
        if (
            cached_call is not None
            and cached_call.pattern.is_of(scope)
            and cached_call.pattern.fits(args, kwargs, &tensors, kept)
        ):
            return self.call_on(cached_call, tensors.handles, args, kwargs)
        cached_call = self._call_cache.find(scope, args, kwargs, &tensors, kept)
        if cached_call is not None:
            self.latest = cached_call
            return self.call_on(cached_call, tensors.handles, args, kwargs)
        return self._call_new(args, kwargs)

    cdef object call_on(self, CachedCall cached_call, void** inputs, tuple args, dict kwargs):
        cdef LiftedStep step = cached_call.step
        if step is None:
            return self.call_unlifted(cached_call, args, kwargs)
        step.used_at = self.now
        cdef bint has_slots = len(cached_call.slot_tensors) > 0
        if has_slots and not fill_slots(step, cached_call.slot_tensors):
            return self.original(*args, **kwargs)
        try:
            result = step.run(inputs)
            self.calls.untold += 1
            self.calls.lifted += 1
            return result
        except errors_impl.OpError as error:
            raise self._explained(error, step, args, kwargs) from None
        finally:
            step.running -= has_slots

    cdef object call_unlifted(self, CachedCall cached_call, tuple args, dict kwargs):
        """Runs a call with TensorFlow. Counts it if its trace may be lifted later, and lifts the trace if that is due."""
        cdef double started
        entry = cached_call.entry
        self.calls.by_tensorflow += 1
        if entry is None:
            return self.original(*args, **kwargs)
        self.now += 1
        if cached_call.calls == 0:
            cached_call.since = self.now
        cached_call.calls += 1
        started = perf_counter()
        result = self.original(*args, **kwargs)
        entry.spent += min(perf_counter() - started, entry.most_saved)
        if cached_call.calls >= CALLS_UNTIL_LOOK if entry.lift_secs is None else entry.spent >= entry.lift_secs:
            cached_call.calls = 0
            self._lift_late(entry, cached_call.since)
        return result

    def _call_elsewhere(self, args, kwargs):
        """Runs a call with TensorFlow, in a context in which no lifted graph may run.

        Not in Python code, because the Python lines on the stack become the lines of the traced operations.
        """
        call_not_lifted(self, None)
        if self._may_be_lifted_now():
            return self(*args, **kwargs)
        if self.calls.untold:
            self.calls.tell()
        self.calls.by_tensorflow += 1
        return self.original(*args, **kwargs)

    def _may_be_lifted_now(self):
        raise NotImplementedError

    def _call_new(self, args, kwargs):
        raise NotImplementedError

    def _explained(self, error, LiftedStep step, args, kwargs):
        raise NotImplementedError

    def _lift_late(self, entry, since):
        raise NotImplementedError

    def _run(self, LiftedStep step, list tensors, list slot_tensors, args, kwargs):
        """Runs a lifted graph whose inputs are known.

        Args:
          step: the LiftedStep.
          tensors: list of its feeds.
          slot_tensors: list of pairs of a CaptureSlot and the tensor that it must hold.
          args: the positional arguments of the call.
          kwargs: its keyword arguments.

        Returns:
          The function's results.
        """
        step.used_at = self.now
        if not fill_slots(step, slot_tensors):
            return self.original(*args, **kwargs)
        try:
            return step(tensors)
        except errors_impl.OpError as error:
            raise self._explained(error, step, args, kwargs) from None
        finally:
            step.running -= 1

    def _add_cached_call(self, CachedCall cached_call, tuple args, dict kwargs):
        """Makes calls of a new pattern use a cached call, from their first call on."""
        self._call_cache.add(cached_call, args, kwargs)
        self.latest = cached_call

    def _drop_cached_calls(self, step=None, entry=None):
        """Removes the cached calls to a step, or an entry's cached calls, or all cached calls if neither is given."""
        self.latest = None
        self._call_cache.drop(step, entry)


cdef bint fill_slots(LiftedStep step, list slot_tensors) except -1:
    """Puts tensors into a step's slots for a run. The caller executes the run, and then decrements `step.running`.

    Incremented before the run, because anything in between, such as a garbage collection, may let another thread run.

    Returns:
      False if another thread's call needs the current content of the slots. Nothing is counted then.
    """
    cdef CaptureSlot slot
    cdef bint are_filled = True
    for slot, tensor in slot_tensors:
        are_filled = are_filled and slot.tensor is tensor
    if step.running and not are_filled:
        return False
    step.running += 1
    if not are_filled:
        # Empty the slots immediately, so that no other call finds another tensor in a slot while this call waits for
        # the slot's lock.
        for slot, _ in slot_tensors:
            slot.tensor = None
        try:
            for slot, tensor in slot_tensors:
                slot.store(tensor)
        except BaseException:
            step.running -= 1
            raise
    return True
