"""One lifted graph: run in the executor that suits it, its results in the structure that the function returns."""

from time import perf_counter

from cython cimport final
from libc.stdlib cimport free, malloc

from fastsup.eager.devices.eager_session cimport EagerCallable, handle_of

from tensorflow.python.eager import context


@final
cdef class NamedTemplate:
    """A namedtuple among the results."""

    cdef object kind
    cdef tuple items


cdef class LiftedStep:
    """A ConcreteFunction's graph in a session that shares the eager context's devices.

    Args:
      graph: the LiftedGraph, whose `feeds` are the step's inputs and whose boxes hold the others.
      choose: function without arguments that chooses what runs the graph. It returns the EagerCallable, or None if
        a trial decides; and that trial, or None.
      pack: function from the flat list of results to what the function returns.

    Raises:
      NotLiftable, tf.errors.OpError: those of `choose`.
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
          What the function returns.

        Raises:
          TypeError: one of the feeds isn't an EagerTensor.
          tf.errors.OpError: the step has failed.
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
        """Chooses what runs the step. Its random sequences begin with that."""
        # First: another thread must not begin them again.
        self.seeds = seeds
        chosen, trial = self.choose()
        self.calls_until_look = -1
        self.trial = trial
        self.chosen = chosen
        return 0

    def run_inline(self):
        """Runs the step in the calling thread by the ordinary executor from now on, unless that has to begin again."""
        if self.graph.executor == "single_threaded" and not self.keeps_random_sequences:
            self.chosen = self.graph.compile("inline")

    def leave_open(self):
        """Lets the sessions live as long as the process."""
        self.graph.leave_open()

    def release_all(self):
        """Lets the tensors in the boxes go, unless a call is under way."""
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
    """TensorFlow's generator of the seeds of operations without one. None before the first `tf.random.set_seed`."""
    return getattr(context._context, "_rng", None)


cdef object _template(object result, dict places):
    """The structure of a result, with the place of each tensor among the flat results in its stead.

    Raises:
      TypeError: the structure is one that only TensorFlow can make.
    """
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
