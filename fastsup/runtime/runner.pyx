"""`Session.run` with cached plans: a look-up, one call to the runtime, and building the result."""

from libc.stdint cimport int64_t, uint64_t

import threading
import time
from collections import namedtuple

import numpy

from tensorflow.python.client import session as tf_session
from tensorflow.python.framework import errors, ops
from tensorflow.python.ops.resource_variable_ops import is_resource_variable
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import training_util

from fastsup.common.interpreter_end import no_interpreter_exit
from fastsup.core.probe cimport Part, Probe, ProbeFinder, fs_scope, probe_here, probe_of
from fastsup.core.probe import session_part_here
from fastsup.runtime.graph.effects import VariableAccess
from fastsup.runtime.graph.global_step import track_global_step
from fastsup.runtime.graph.operations import upstream_operations
from fastsup.runtime.plan_maker import PlanMaker
from fastsup.runtime.callables cimport CompiledCallable, SessionLifetime, views_from
from fastsup.runtime.fetches cimport Fetch, add_to_key
from fastsup.runtime.fetches import ELEMENT_TYPES, FetchOne
from fastsup.runtime.plans cimport Plan, PlanCache, PlanFinder, call_plan


cdef class StepGate:
    """Lets steps pass, or holds them back while variables are read.

    A step costs two comparisons here and no lock, because the interpreter doesn't switch threads between them. A `with`
    block closes the gate, waits for the current steps to end, and then runs between steps.

    A current step may itself wait for a step that is held back, as when workers exchange tokens. Steps that are held
    back therefore pass for a moment every `turn_secs` seconds. A step that never ends delays a checkpoint by at most
    `patience_secs` seconds; the gate then logs a warning.
    """

    def __cinit__(self):
        self.changed = threading.Condition(threading.Lock())
        self.saving = threading.RLock()
        self.patience_secs = 60.0
        self.turn_secs = 10.0

    cdef int enter(self) except -1:
        """Starts a step. Waits while the gate is closed."""
        if self.closed and self.closed_by != threading.get_ident():
            self.held_back += 1
            try:
                with self.changed:
                    self.changed.notify_all()
                    while self.closed:
                        self.changed.wait()
            finally:
                self.held_back -= 1
        self.running += 1
        return 0

    cdef int leave(self) except -1:
        """Finishes a step, successful or not."""
        self.running -= 1
        self.passed += 1
        if self.closed:
            with self.changed:
                self.changed.notify_all()
        return 0

    def __enter__(self):
        self.saving.acquire()
        try:
            # A save may contain another save. The gate is then already closed.
            if self.depth == 0:
                self._close()
            self.depth += 1
        except BaseException:
            if self.depth == 0:
                self._open()
            self.saving.release()
            raise
        return self

    def __exit__(self, *error):
        self.depth -= 1
        # A signal handler may raise while this method runs. Without the finally block, the waiting threads would then
        # wait forever.
        try:
            if self.depth == 0:
                self._open()
        finally:
            self.closed = self.depth > 0
            self.saving.release()

    def _close(self):
        """Closes the gate and waits for the current steps."""
        self.closed_by = threading.get_ident()
        self.closed = True
        if self.running == 0:
            return
        started = time.monotonic()
        turn = started
        with self.changed:
            while self.running > 0:
                now = time.monotonic()
                if now - started >= self.patience_secs:
                    logging.warning(
                        "A step has been running for %d seconds. The checkpoint is written in the meantime, so its "
                        "variables may come from different steps. See `python -m fastsup docs dropin#checkpoints`.",
                        now - started,
                    )
                    return
                if self.held_back == 0:
                    turn = now
                elif now - turn >= self.turn_secs:
                    self._let_pass()
                    turn = time.monotonic()
                self.changed.wait(min(self.patience_secs - (now - started), self.turn_secs))

    def _let_pass(self):
        """Opens the gate for the threads that are currently waiting."""
        self.closed = False
        self.changed.notify_all()
        while self.held_back > 0:
            self.changed.wait(0.01)
        self.closed = True

    def _open(self):
        with self.changed:
            self.closed = False
            self.closed_by = None
            self.changed.notify_all()


# TensorFlow's own `Session.run` handles runs that a plan can't express. It is slower, but the results are the same.

cdef object OpError = errors.OpError
cdef object BaseSession = tf_session.BaseSession

cdef object ndarray = numpy.ndarray
cdef object copy_to = numpy.copyto
# The alignment that the runtime requires to use an array's memory without a copy.
cdef int ALIGNMENT = 64

# Values of `Plan.access`.
cdef int WRITES = VariableAccess.WRITES
cdef int SAVES = VariableAccess.SAVES

PlanCacheInfo = namedtuple("PlanCacheInfo", ["hits", "misses", "left", "currsize", "bytes", "max_bytes"])


cdef dict feed_dict_of(Plan plan, tuple feeds):
    """Returns a dictionary from a run's fed tensors to their arrays."""
    return {slot.tensor: array for slot, array in zip(plan.feeds, feeds or ())}


cdef object new_buffer(object shape, object dtype):
    """Creates an array that can be fed to the runtime without a copy."""
    cdef Py_ssize_t size = dtype.itemsize
    for length in shape:
        size *= length
    if dtype.hasobject:
        return numpy.empty(shape, dtype)
    memory = numpy.empty(size + ALIGNMENT, numpy.uint8)
    cdef Py_ssize_t start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)


cdef class SessionRunner:
    """The part of `fastsup.Session` that every step passes through."""

    def __cinit__(self, *args, **kwargs):
        self.probes = ProbeFinder()

    def _set_up_runner(self, max_plan_bytes, executor):
        """Sets the runner's fields. Called once the TensorFlow session exists."""
        self.lifetime = SessionLifetime()
        self.cache = PlanCache(self._graph, self._session, self.lifetime, max_plan_bytes)
        self.maker = PlanMaker(self._graph, executor, self.cache, self.fills_metadata)
        self.finder = PlanFinder(self._graph, self.cache, self.lifetime, self.maker)
        self.gate = StepGate()

    def run(self, fetches, feed_dict=None, options=None, run_metadata=None):
        """Runs operations and evaluates tensors, like `tf.compat.v1.Session.run`.

        Args:
          fetches: a graph element, a name, or a nested structure of them.
          feed_dict: dictionary from graph elements or names to values, or None.
          options: `tf.compat.v1.RunOptions`, or None.
          run_metadata: `tf.compat.v1.RunMetadata` to fill, or None.

        Returns:
          The values of `fetches`, in its structure.

        Raises:
          RuntimeError: If the session is closed, or its graph is empty.
          TypeError, ValueError: If `fetches` or `feed_dict` can't be interpreted in the session's graph.
          tf.errors.OpError: If the run failed.
        """
        cdef Plan plan
        cdef tuple feeds = None
        cdef Probe probe
        if self.probes.profiler[0] is not NULL and probe_here() is None and threading.get_ident() == self.recorded_thread:
            probe = probe_of(self.probes, self)
            if probe.records and options is None and run_metadata is None:
                return self.run_recorded(probe, fetches, feed_dict)
        if options is None and run_metadata is None and self.lifetime is not None and self.lifetime.open:
            plan = self.find_plan(fetches, feed_dict)
            if plan is not None:
                if plan.feeds:
                    feeds = plan.convert_feeds(feed_dict)
                if feeds is not None or not plan.feeds:
                    return plan.structure.build(self.execute(plan, feeds))
        if options is not None:
            self._executor.warn_of_no_trace(options)
        try:
            return super().run(fetches, feed_dict, options, run_metadata)
        except (OpError, RuntimeError) as error:
            self.raise_given_up(error)
            raise

    def _record_runs(self, profiler, opened=None):
        """Records every run in this thread, except runs within a recorded step.

        If the profiler is None, the program's profiler records the runs whenever one is on. `opened` is the
        `SessionOrigin`.
        """
        self.probes.origin = opened
        self.probes.record(profiler)
        self.recorded_thread = threading.get_ident()

    def _forget_fetches(self):
        """Makes the profiler forget the fetches of recorded runs."""
        self.probes.close()

    cdef object run_recorded(self, Probe probe, object fetches, object feed_dict):
        """Executes a run as a separate step in the profile."""
        cdef fs_scope scope
        cdef Plan plan
        probe.begin(&scope)
        try:
            plan = self.find_plan(fetches, feed_dict) if self.lifetime is not None and self.lifetime.open else None
            return self.run_in_parts(probe, probe.run_part(fetches, None, None, False), plan, fetches, feed_dict)
        finally:
            probe.end(&scope, True)

    cdef object run_in_parts(self, Probe probe, Part part, Plan plan, object fetches, object feed_dict):
        """Executes a run by a plan in a recorded step, with separate parts. `part` is the runtime's part."""
        cdef tuple feeds = None
        if plan is not None and plan.feeds:
            probe.enter(probe.feed_conversion)
            feeds = plan.convert_feeds(feed_dict)
            probe.leave()
        probe.enter(part)
        if plan is None or (feeds is None and plan.feeds):
            # This thread is in a recorded step, so `run` doesn't start another one.
            result = self.run(fetches, feed_dict)
            probe.leave()
            return result
        values = self.execute(plan, feeds)
        probe.leave()
        return self.build(probe, plan, values)

    cdef object build(self, Probe probe, Plan plan, list values):
        """Builds the result of a run. Building a result from several values is a part of the step."""
        if type(plan.structure) is Fetch or type(plan.structure) is FetchOne:
            return plan.structure.build(values)
        probe.enter(probe.fetch_conversion)
        result = plan.structure.build(values)
        probe.leave()
        return result

    def _give_up(self, reason):
        """Closes the session, even during a run. The current and all later runs raise `reason`."""
        self.given_up_for = reason
        self.close()

    def _leave_to_parent(self, reason):
        """Abandons the session in a child of `os.fork()`. Every run then raises `reason`."""
        self.given_up_for = reason
        # Release nothing, because releasing calls the runtime, whose threads don't exist in this process.
        self.lifetime.open = False
        self.finder.forget()

    cdef int raise_given_up(self, object error) except -1:
        if self.given_up_for is not None and error is not self.given_up_for and isinstance(error, Exception):
            raise self.given_up_for from error
        return 0

    cdef Plan find_plan(self, object fetches, object feed_dict, bint to_run=True):
        """Finds the plan of a run. See `PlanFinder.find`."""
        return self.finder.find(self, fetches, feed_dict, to_run)

    def _release_unused(self):
        """Releases callables that are no longer referenced."""
        self.lifetime.release_unused(self._session)

    def _drop_plans(self):
        """Removes all plans. Their callables are released when no thread runs them."""
        self.finder.drop(self)

    def _read_step_directly(self, variable):
        """Fetches the global step from its variable from now on. See `PlanMaker.read_step_directly`."""
        self.finder.read_step_directly(variable)

    def plan_cache_info(self):
        """Returns statistics about the cache of compiled combinations of fetches and feeds.

        Returns:
          PlanCacheInfo, a named tuple: `hits`, look-ups of compiled combinations; `misses`, other look-ups; `left`, the
          misses that TensorFlow's own executors ran, because the limit of compiled combinations was reached;
          `currsize`, the number of compiled combinations; `bytes`, an estimate of their memory; `max_bytes`, the limit
          of that memory.
        """
        return PlanCacheInfo(
            self.finder.hits, self.finder.misses, self.cache.left_runs, len(self.cache.compiled_plans()), self.lifetime.callable_bytes,
            self.cache.max_bytes,
        )

    cdef list execute(self, Plan plan, tuple feeds):
        """Runs a plan, between steps if it saves variables, so that all values are from the same step."""
        if plan.access == SAVES:
            with self.gate:
                return self.execute_now(plan, feeds)
        return self.execute_now(plan, feeds)

    cdef list execute_now(self, Plan plan, tuple feeds):
        """Runs a plan, counts the global step, and raises the same errors as `Session.run`."""
        cdef int64_t delta = 0 if self.step_writes is None else self.delta_of(plan)
        cdef list values
        if plan.access == WRITES:
            if self.gate.closed:
                self.gate.enter()
            else:
                self.gate.running += 1
        if delta != 0:
            self.writers_running += 1
        try:
            values = call_plan(plan, feeds)
        except BaseException as error:
            if delta != 0:
                # The run may or may not have incremented the step.
                self.writers_running -= 1
                self.step_epoch += 1
            if plan.access == WRITES:
                self.gate.leave()
            self.raise_given_up(error)
            if isinstance(error, OpError):
                self._raise_as_run_does(error, plan.elements, feed_dict_of(plan, feeds))
            raise
        if delta != 0:
            self.writers_running -= 1
            if delta > 0:
                self.steps_counted += delta
            else:
                self.step_epoch += 1
        if plan.access == WRITES:
            if self.gate.closed:
                self.gate.leave()
            else:
                # Do the work of leave() without the call.
                self.gate.running -= 1
                self.gate.passed += 1
        if plan.returns_feeds:
            values.extend(feeds)
        return values

    def _execute_plan(self, Plan plan):
        """Returns a plan's result, for `make_callable`, which raises the runtime's errors unchanged."""
        try:
            return plan.structure.build(self.execute(plan, None))
        except OpError as error:
            if error is self.given_up_for:
                raise
            raise error.__context__ or error from None

    def _copy_values(self, tensors, buffers, shared, before=()):
        """Returns the values of tensors that depend only on variables, all from the same moment between steps.

        Args:
          tensors: list of tensors.
          buffers: list of arrays with the tensors' shapes and types to copy the values to, or None for a new array.
            Writing to used memory is several times as fast as writing to new memory.
          shared: for each tensor, whether its value may share the runtime's memory instead. That memory isn't written
            to while the value is referenced.
          before: list of operations to run first, at the same moment.

        Returns:
          List of values.
        """
        cdef Plan plan = self.find_plan(tensors, None)
        cdef CompiledCallable compiled = None if plan is None else plan.callable
        cdef list values, copies = []
        if compiled is None:
            with self.gate:
                return self.run(tensors)
        if before:
            self.find_plan(before, None)  # Compile the operations while steps may run.
        try:
            with self.gate:
                if before:
                    self.run(before)
                values = plan.structure.build(views_from(compiled, None))
                for i, value in enumerate(values):
                    if type(value) is ndarray and not shared[i]:
                        buffer = buffers[i]
                        if buffer is None or buffer.shape != value.shape or buffer.dtype != value.dtype:
                            buffer = new_buffer(value.shape, value.dtype)
                        copy_to(buffer, value)
                        value = buffer
                    copies.append(value)
                # Drop the references before a step writes to the shared memory.
                values = value = None
        except OpError as error:
            self._raise_as_run_does(error, plan.elements, {})
        return copies

    def _has_plan_key(self, fetches):
        """Returns True if a plan can be made for these fetches."""
        return add_to_key([], fetches)

    cdef int64_t delta_of(self, Plan plan) except? -2:
        if not plan.step_delta_known:
            with no_interpreter_exit:
                plan.step_delta = self.step_writes.delta_of(plan.elements, [slot.tensor for slot in plan.feeds])
            plan.step_delta_known = True
        return plan.step_delta

    def _begin_unknown_run(self):
        """Starts a run without a plan, which may write variables, including the global step, until it ends."""
        self.gate.enter()
        self.writers_running += 1
        self.step_epoch += 1

    def _end_unknown_run(self):
        self.writers_running -= 1
        self.step_epoch += 1
        self.gate.leave()

    def _track_global_step(self, step_writes):
        """Counts the global step from now on. `step_writes.delta_of` returns a run's increment; negative if unknown."""
        self.step_writes = step_writes
        self.step_epoch += 1

    @property
    def _tracks_global_step(self):
        return self.step_writes is not None


cdef object Operation = ops.Operation
cdef frozenset element_types = ELEMENT_TYPES


cdef bint can_be_read(SessionRunner session, object variable) except -1:
    """Returns True if the global step has a value, so that fetching it needs no guard."""
    try:
        session.run(variable)
    except errors.OpError:
        return False
    return True


cdef class StepCount:
    """The global step of a session's graph.

    Args:
      session: a `fastsup.Session`.
      step_read: the tensor that TensorFlow's hooks read the global step from; None if there is none.
    """

    def __init__(self, SessionRunner session, step_read):
        self.session = session
        self.variable = track_global_step(session)
        self.step_read = step_read
        if self.variable is not None:
            # Use the variable's graph element, because plans don't support every class of variables.
            self.element_read = session.graph.as_graph_element(self.variable)
        elif not session.sess_str:
            self.element_read = step_read
        self.fetched_by = {} if step_read is None else {OWN_READ: step_read}
        if self.variable is not None:
            self.fetched_by[VARIABLE] = session.graph.as_graph_element(self.variable)
            # Fetching a reference variable returns the value after the run.
            if is_resource_variable(self.variable):
                self.variable_read = self.variable
        for tensor in self.fetched_by.values():
            self.numpy_type = tensor.dtype.base_dtype.as_numpy_dtype

    cdef int prepare_fetch(self) except -1:
        """Prepares a run that fetches the step: checks once whether the fetch needs its guard."""
        cdef SessionRunner session = self.session
        if self.fetch_prepared:
            return 0
        self.fetch_prepared = True
        if not session.graph.finalized:
            return 0
        variable = training_util.get_global_step(session.graph)
        if variable is not None and isinstance(variable.op, Operation) and can_be_read(session, variable):
            session.finder.read_step_directly(variable)
        return 0

    cdef bint know(self) except -1:
        """Returns True if `value` is the current global step. Reads an initialized step if needed."""
        cdef SessionRunner session = self.session
        cdef uint64_t step_epoch = session.step_epoch
        cdef int64_t counted
        if self.known and step_epoch == self.epoch_seen:
            return True
        self.known = False
        # A value read during a run that writes the step may or may not include the run's increment.
        if self.variable is None or session.writers_running:
            return False
        counted = session.steps_counted
        step = self.read()
        if step is None:
            return False
        if session.writers_running or session.step_epoch != step_epoch or session.steps_counted != counted:
            return False
        if not self.ever_known:
            self.ever_known = self.fetch_prepared = True
            session.finder.read_step_directly(self.variable)
        self.base = <int64_t> int(step) - counted
        self.epoch_seen = step_epoch
        self.known = True
        return True

    cdef object read(self):
        """Reads the step with a separate run. Returns None without a value, or if reading would call a server."""
        cdef SessionRunner session = self.session
        cdef Plan plan
        if self.element_read is None or not session.lifetime.open:
            return None
        if self.plan is None or self.plan.callable is None or self.plans_seen is not session.cache.plans:
            # Another thread or the look-up itself may drop the plans. The next call then looks the plan up again.
            plans = session.cache.plans
            self.plan = session.find_plan(self.element_read, None)
            self.plans_seen = plans
        plan = self.plan
        if plan is None:
            return None
        plan.last_used = session.cache.clock
        try:
            with session_part_here("step read"):
                return plan.structure.build(session.execute(plan, None))
        except errors.OpError:
            return None

    cdef int64_t value(self) noexcept:
        return self.base + self.session.steps_counted

    cdef bint is_step(self, object fetch, int fed) noexcept:
        """Returns True if a fetch returns the global step before the run: its variable, or TensorFlow's own read.

        `fed` is the result of `fed_of`, because fetching a fed element returns the fed value.
        """
        if fetch is None:
            return False
        return (fetch is self.step_read and not fed & OWN_READ) or (fetch is self.variable_read and not fed & VARIABLE)

    cdef int fed_of(self, Plan plan) except -1:
        """Returns which of OWN_READ and VARIABLE a run of the plan feeds, directly or through an upstream element."""
        if plan.step_fed < 0:
            plan.step_fed = self.is_step_fed([slot.tensor for slot in plan.feeds])
        return plan.step_fed

    cdef int is_step_fed(self, object feeds) except -1:
        """Returns which of OWN_READ and VARIABLE are fed. Ignores keys outside the graph, which the run rejects."""
        cdef int fed = 0
        if self.upstream is None:
            self.upstream = {by: upstream_operations((tensor,)) for by, tensor in self.fetched_by.items()}
        try:
            feeds = iter(feeds)
        except TypeError:
            return 0  # The run rejects values that aren't dictionaries.
        for feed in feeds:
            if type(feed) not in element_types:
                try:
                    feed = self.session.graph.as_graph_element(feed)
                except (TypeError, ValueError, KeyError):
                    continue
            for by, operations in self.upstream.items():
                if getattr(feed, "op", feed) in operations:
                    fed |= <int> by
        return fed

    cdef bint can_be_fetched(self) except -1:
        """Returns False if `Graph.prevent_fetching` excludes the step."""
        cdef object unfetchable = self.session.finder.unfetchable
        if len(unfetchable) > 0:
            for tensor in self.fetched_by.values():
                if tensor.op in unfetchable:
                    return False
        return True

    cdef object as_fetched(self, int64_t step):
        """Converts a step to the type that a run returns."""
        return self.numpy_type(step)
