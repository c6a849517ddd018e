"""`Session.run` through cached plans: a look-up, one call of the runtime, and the result put together.

Whatever a plan can't express is handed to TensorFlow's own `Session.run`: slower, never different.
"""

import threading
from collections import namedtuple

from libc.stdint cimport int64_t, uint64_t

import numpy

from tensorflow.python.client import session as tf_session
from tensorflow.python.framework import errors

from fastsup.core.probe cimport Part, Probe, ProbeFinder, fs_scope, probe_here, probe_of
from fastsup.runtime.fetches cimport Fetch
from fastsup.runtime.fetches import FetchOne
from fastsup.runtime.graph.variable_access import VariableAccess
from fastsup.common.interpreter_end import completed_before_exit
from fastsup.runtime.plan cimport CompiledCallable, SessionLifetime, Plan, call_plan, views_from
from fastsup.runtime.plan_cache cimport PlanCache
from fastsup.runtime.plan_finder cimport PlanFinder, add_to_key
from fastsup.runtime.plan_maker import PlanMaker
from fastsup.runtime.step_gate cimport StepGate

cdef object OpError = errors.OpError
cdef object BaseSession = tf_session.BaseSession

cdef object ndarray = numpy.ndarray
cdef object copy_to = numpy.copyto
# What the runtime wants of memory that it takes over from an array as it is.
cdef int ALIGNMENT = 64

# Values of `Plan.access`.
cdef int WRITES = VariableAccess.WRITES
cdef int SAVES = VariableAccess.SAVES

PlanCacheInfo = namedtuple("PlanCacheInfo", ["hits", "misses", "left", "currsize", "bytes", "max_bytes"])


cdef dict feed_dict_of(Plan plan, tuple feeds):
    """The tensors that a run was fed, each with its array."""
    return {slot.tensor: array for slot, array in zip(plan.feeds, feeds or ())}


cdef object new_buffer(object shape, object dtype):
    """An array that the runtime can be fed without a copy."""
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
        """Called once the TensorFlow session is there.

        Args:
          max_plan_bytes: how much memory compiled plans may take.
          executor: the `SessionExecutor`.
        """
        self.lifetime = SessionLifetime()
        self.cache = PlanCache(self._graph, self._session, self.lifetime, max_plan_bytes)
        self.maker = PlanMaker(self._graph, executor, self.cache, self.fills_metadata)
        self.finder = PlanFinder(self._graph, self.cache, self.lifetime, self.maker)
        self.gate = StepGate()

    def run(self, fetches, feed_dict=None, options=None, run_metadata=None):
        """Runs operations and evaluates tensors. The same as `tf.compat.v1.Session.run`.

        Args:
          fetches: a graph element, a name, or a nested structure of them.
          feed_dict: dictionary from graph elements or names to values, or None.
          options: `tf.compat.v1.RunOptions`, or None.
          run_metadata: `tf.compat.v1.RunMetadata` to fill, or None.

        Returns:
          What `fetches` stands for, in its structure.

        Raises:
          RuntimeError: the session is closed, or its graph is empty.
          TypeError, ValueError: `fetches` or `feed_dict` can't be interpreted in the session's graph.
          tf.errors.OpError: the run failed.
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
        """Records every run that is made in this thread, but for those made within a recorded step.

        Args:
          profiler: a `HookProfiler`; or None, for the one that is on for the whole program, whenever one is.
          opened: the `SessionOrigin` that says who has opened the session, or None.
        """
        self.probes.origin = opened
        self.probes.record(profiler)
        self.recorded_thread = threading.get_ident()

    def _forget_fetches(self):
        """Lets the profiler forget the fetches of recorded runs."""
        self.probes.close()

    cdef object run_recorded(self, Probe probe, object fetches, object feed_dict):
        """A run as a separate step in the profile."""
        cdef fs_scope scope
        cdef Plan plan
        probe.begin(&scope)
        try:
            plan = self.find_plan(fetches, feed_dict) if self.lifetime is not None and self.lifetime.open else None
            return self.run_in_parts(probe, probe.run_part(fetches, None, None, False), plan, fetches, feed_dict)
        finally:
            probe.end(&scope, True)

    cdef object run_in_parts(self, Probe probe, Part part, Plan plan, object fetches, object feed_dict):
        """`run` by a plan in a recorded step, its parts told apart. `part`: the runtime's."""
        cdef tuple feeds = None
        if plan is not None and plan.feeds:
            probe.enter(probe.feed_conversion)
            feeds = plan.convert_feeds(feed_dict)
            probe.leave()
        probe.enter(part)
        if plan is None or (feeds is None and plan.feeds):
            # This thread is in a recorded step, so `run` doesn't begin another.
            result = self.run(fetches, feed_dict)
            probe.leave()
            return result
        values = self.execute(plan, feeds)
        probe.leave()
        return self.build(probe, plan, values)

    cdef object build(self, Probe probe, Plan plan, list values):
        """The result of a run; making it of more than one value is a part of the step."""
        if type(plan.structure) is Fetch or type(plan.structure) is FetchOne:
            return plan.structure.build(values)
        probe.enter(probe.fetch_conversion)
        result = plan.structure.build(values)
        probe.leave()
        return result

    def _give_up(self, reason):
        """Closes the session, also in the middle of a run: that one, and all that are tried later, raise `reason`.

        Args:
          reason: the exception.
        """
        self.given_up_for = reason
        self.close()

    def _leave_to_parent(self, reason):
        """In a child of `os.fork()`: leaves the session to the process that has made it. Every run raises `reason`.

        Args:
          reason: the exception.
        """
        self.given_up_for = reason
        # Nothing is released: that is a call of the runtime, whose threads aren't here.
        self.lifetime.open = False
        self.finder.forget()

    cdef int raise_given_up(self, object error) except -1:
        if self.given_up_for is not None and error is not self.given_up_for and isinstance(error, Exception):
            raise self.given_up_for from error
        return 0

    cdef Plan find_plan(self, object fetches, object feed_dict, bint to_run=True):
        """The plan for this combination, made if need be; None if only `Session.run` can handle it.

        Args:
          fetches: what is fetched.
          feed_dict: what is fed.
          to_run: whether it is to be run. Else it may be one that says what a run does and isn't compiled yet.
        """
        return self.finder.find(self, fetches, feed_dict, to_run)

    def _release_unused(self):
        """Releases callables that are no longer referenced."""
        self.lifetime.release_unused(self._session)

    def _drop_plans(self):
        """Forgets every plan; their callables are released when no thread runs them any longer."""
        self.finder.drop(self)

    def _read_step_directly(self, variable):
        """Fetches the global step from its variable from now on. See `PlanMaker.read_step_directly`."""
        self.finder.read_step_directly(variable)

    def plan_cache_info(self):
        """How well combinations of fetches and feeds are found again.

        Returns:
          PlanCacheInfo, a named tuple: `hits`, runs of compiled combinations; `misses`, the other runs; `left`, those of
          them that TensorFlow's own executors have run, because the limit of compiled ones was reached; `currsize`, the number of
          compiled combinations; `bytes`, an estimate of what they take; `max_bytes`, what they may take.
        """
        return PlanCacheInfo(
            self.finder.hits, self.finder.misses, self.cache.left_runs, len(self.cache.compiled_plans()), self.lifetime.callable_bytes,
            self.cache.max_bytes,
        )

    cdef list execute(self, Plan plan, tuple feeds):
        """Runs a plan; one that saves variables between two steps, so that all of them are of one step."""
        if plan.access == SAVES:
            with self.gate:
                return self.execute_now(plan, feeds)
        return self.execute_now(plan, feeds)

    cdef list execute_now(self, Plan plan, tuple feeds):
        """Runs a plan, keeps count of the global step, and raises what `Session.run` would."""
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
                # It may have got to the increment, or not.
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
                # The same, without the call.
                self.gate.running -= 1
                self.gate.passed += 1
        if plan.returns_feeds:
            values.extend(feeds)
        return values

    cdef tuple run_at_once(self, object several, int64_t limit, double seconds, list watched, int64_t delta):
        """Has several runs of a step made in one call, and counts their steps, which this session's plans don't.

        Args:
          several: who makes them. See `fastsup.train.session.graph_loop`.
          limit, seconds, watched: the arguments of its `run_steps`.
          delta: what each run adds to the global step, negative if unknown.

        Returns:
          What `run_steps` returns: a tuple that begins with the number of runs, or None if none was made.
        """
        cdef tuple made = None
        self.writers_running += 1
        try:
            made = several.run_steps(limit, seconds, watched)
            if delta < 0:
                self.step_epoch += 1
            elif made is not None:
                self.steps_counted += delta * <int64_t> made[0]
        except BaseException:
            self.step_epoch += 1
            raise
        finally:
            self.writers_running -= 1
        return made

    def _execute_plan(self, Plan plan):
        """A plan's result, for `make_callable`, which raises the runtime's errors as they are."""
        try:
            return plan.structure.build(self.execute(plan, None))
        except OpError as error:
            if error is self.given_up_for:
                raise
            raise error.__context__ or error from None

    def _copy_values(self, tensors, buffers, shared, before=()):
        """The values of tensors that depend on variables alone, all of the same moment between two steps.

        Args:
          tensors: list of tensors.
          buffers: where the values are copied to: a list of arrays of the tensors' shapes and types, or None for those
            that get a new one. Memory that was used before is written several times as fast as new memory.
          shared: for each tensor, whether its value may share the runtime's memory instead, which isn't written to as
            long as the value is held.
          before: list of operations to run before, at the same moment.

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
            self.find_plan(before, None)  # Compiles it while steps may run.
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
                # Before a step writes what is shared no longer.
                values = value = None
        except OpError as error:
            self._raise_as_run_does(error, plan.elements, {})
        return copies

    def _has_plan_key(self, fetches):
        """Whether a plan can be made for these fetches."""
        return add_to_key([], fetches)

    cdef int64_t delta_of(self, Plan plan) except? -2:
        if not plan.step_delta_known:
            with completed_before_exit:
                plan.step_delta = self.step_writes.delta_of(plan.elements, [slot.tensor for slot in plan.feeds])
            plan.step_delta_known = True
        return plan.step_delta

    def _begin_unknown_run(self):
        """Something runs that no plan describes: it may write variables, the global step too, until it has ended."""
        self.gate.enter()
        self.writers_running += 1
        self.step_epoch += 1

    def _end_unknown_run(self):
        self.writers_running -= 1
        self.step_epoch += 1
        self.gate.leave()

    def _track_global_step(self, step_writes):
        """Counts the global step from now on.

        Args:
          step_writes: object whose `delta_of(elements, fed_tensors)` is what a run adds, or negative if that isn't known.
        """
        self.step_writes = step_writes
        self.step_epoch += 1

    @property
    def _tracks_global_step(self):
        return self.step_writes is not None
