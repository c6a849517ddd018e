"""Records where the time of training goes: a histogram per phase of each hook, and a sample of spans for a trace.

A recorder's memory doesn't grow once each hook and phase has occurred, and a step allocates none. The time of a span
excludes the spans nested in it, so that all times add up to the wall clock.
"""

import os

from cpython.ref cimport PyObject
from cython cimport no_gc_clear
from libc.stdint cimport INT64_MAX, int64_t
from libc.stdlib cimport calloc, free

from fastsup.core.probe cimport Part, Probe, fs_scope, open_scopes, probe_here, set_program_profiler
from fastsup.profile.recording.statistics cimport (
    FS_STEP, fs_histogram, fs_histogram_add, fs_histogram_quantile, fs_log_init, fs_scope_begin, fs_scope_end,
    fs_span_enter, fs_span_enter_first, fs_span_leave, fs_span_leave_last, fs_step_begin, fs_step_end, fs_step_next,
    fs_step_uncount, fs_thread, fs_thread_trace, fs_trace_abandon, fs_trace_expand, fs_trace_init,
    fs_trace_interrupt, fs_trace_interrupt_between_steps, HookStats, Recording, SpanRegistry, SpanStats,
    trace_of_this_thread
)

from fastsup.core.probe import empty_context, program_profiler_now
from fastsup.core.sessions import NO_ORIGIN
from fastsup.profile.recording.statistics import SESSION

cdef extern from "clock.h":
    int64_t fs_clock_monotonic_ns() noexcept

cdef int CALIBRATION_STEPS = 400


def drop_scopes_of_other_threads():
    """Drops the scopes of all threads except this one, for the child of a fork, which lacks the other threads."""
    cdef fs_scope** place = open_scopes()
    cdef fs_thread_trace* trace
    while place[0] is not NULL:
        trace = <fs_thread_trace*> place[0].trace
        if trace.ident is fs_thread():
            place = &place[0].next
        else:
            if trace.ident is not NULL:
                fs_trace_abandon(trace)
            place[0] = place[0].next


os.register_at_fork(after_in_child=drop_scopes_of_other_threads)


cdef class ManualClock:
    """A clock for tests, which changes only when `advance` is called."""

    cdef int64_t ns

    def advance(self, int64_t ns):
        """Moves the clock forward.

        Args:
          ns: nanoseconds.
        """
        self.ns += ns


cdef int64_t read_manual_clock(void* context) noexcept:
    return (<ManualClock> <PyObject*> context).ns


# These classes are context managers for Python code that is rarely called.

@no_gc_clear
cdef class StepScope:
    """A context manager that records a step, or work alongside the steps."""

    cdef Recording recorder
    cdef Probe probe
    cdef fs_scope scope
    cdef bint is_step
    cdef bint entered

    def __init__(self, Recording recorder not None, Probe probe not None, is_step):
        self.recorder = recorder
        self.probe = probe
        self.is_step = is_step

    def __enter__(self):
        if self.entered:
            raise RuntimeError("The step has already started.")
        fs_scope_begin(&self.scope, trace_of_this_thread(self.recorder), <PyObject*> self.probe, self.is_step)
        self.entered = True

    def __exit__(self, *error):
        self.leave()

    def __dealloc__(self):
        self.leave()

    cdef void leave(self) noexcept:
        if self.entered:
            self.entered = False
            fs_scope_end(&self.scope)


@no_gc_clear
cdef class Span(StepScope):
    """A context manager that records a span. Outside a step, the span is work alongside the steps."""

    cdef SpanStats stats

    def __init__(self, Recording recorder not None, Probe probe not None, SpanStats stats not None):
        StepScope.__init__(self, recorder, probe, False)
        self.stats = stats

    def __enter__(self):
        StepScope.__enter__(self)
        fs_span_enter(<fs_thread_trace*> self.scope.trace, &self.stats.c)


def count_values(fetches):
    """Returns the number of values in a hook's fetches.

    Args:
      fetches: a tensor, or nested lists, tuples and dictionaries of tensors. Operations have no value.
    """
    if isinstance(fetches, dict):
        return sum(map(count_values, fetches.values()))
    if isinstance(fetches, (list, tuple)):
        return sum(map(count_values, fetches))
    # Among fetchable objects, only operations have a node_def. They have no value.
    return 0 if hasattr(fetches, "node_def") else 1


cdef RecorderProbe new_recorder_probe(SpanRegistry recorder, int64_t caller, object hooks, bint is_loop):
    cdef RecorderProbe probe = RecorderProbe.__new__(RecorderProbe)
    probe.setup(recorder, caller, () if hooks is None else hooks, is_loop)
    return probe


cdef RecorderProbe recorded_here():
    cdef Probe probe = probe_here()
    return <RecorderProbe> probe if isinstance(probe, RecorderProbe) else None


cdef RecorderProbe probe_within(SpanRegistry recorder):
    cdef RecorderProbe probe = recorded_here()
    return probe if probe is not None and probe.recorder is recorder else None


cdef class RecorderProbe(Probe):
    """The probe of a session or loop. Created by `Recorder.new_probe`."""

    cdef int setup(self, SpanRegistry recorder, int64_t caller, object hooks, bint is_loop) except -1:
        """Starts recording a session or loop. Takes the arguments of `new_recorder_probe`."""
        self.recorder = recorder
        self.caller = caller
        self.hooks = hooks
        self.is_loop = is_loop
        self.session = recorder.session_of(caller)
        self.records = True
        self.marks_steps = recorder.step_markers
        self.markers = {}
        self.batch_phases = {}
        self.dispatch = self.session.dispatch_stats
        self.feed_conversion = self.session.feed_stats
        self.fetch_conversion = self.session.fetch_stats
        return 0

    cdef fs_thread_trace* trace(self) except NULL:
        """Returns this thread's trace, ready to be read."""
        cdef fs_thread_trace* trace = trace_of_this_thread(self.recorder)
        fs_trace_expand(trace)
        return trace

    cdef SpanStats stats_of_phase(self, str phase):
        return self.recorder.stats_of(self.session, SESSION, phase, "")

    cdef object call(self, SpanStats stats, object function, tuple args, dict kwargs):
        """Calls a function in a span."""
        cdef fs_thread_trace* trace = trace_of_this_thread(self.recorder)
        fs_span_enter(trace, &stats.c)
        try:
            return function(*args, **kwargs)
        finally:
            fs_span_leave(trace)

    cdef int begin(self, fs_scope* scope) except -1:
        fs_scope_begin(scope, trace_of_this_thread(self.recorder), <PyObject*> self, FS_STEP)
        self.steps_under_way += 1
        if self.marks_steps:
            self.begin_marker(<size_t> scope)
        return 0

    cdef int begin_marker(self, size_t scope) except -1:
        try:
            marker = self.recorder.step_marker()
            marker.__enter__()
            self.markers[scope] = marker
        except BaseException:
            self.end(<fs_scope*> scope, True)
            raise
        return 0

    cdef int end(self, fs_scope* scope, bint is_step) except -1:
        if not is_step:
            fs_step_uncount(<fs_thread_trace*> scope.trace)
        fs_scope_end(scope)
        self.steps_under_way -= 1
        if self.closes_later and self.steps_under_way == 0:
            self.closes_later = False
            self.close_now()
        if self.marks_steps:
            marker = self.markers.pop(<size_t> scope, None)
            if marker is not None:
                marker.__exit__(None, None, None)
        return 0

    cdef int next(self, Part part) except -1:
        fs_step_next(trace_of_this_thread(self.recorder), &(<SpanStats> part).c)
        return 0

    cdef int enter(self, Part part) except -1:
        cdef SpanStats stats = part
        if stats.begins_steps:
            fs_span_enter_first(trace_of_this_thread(self.recorder), &stats.c)
        else:
            fs_span_enter(trace_of_this_thread(self.recorder), &stats.c)
        return 0

    cdef int leave(self) except -1:
        fs_span_leave_last(trace_of_this_thread(self.recorder))
        return 0

    cdef Part run_part(self, object fetches, list hooks, list requests, bint with_step):
        cdef SpanRegistry recorder = self.recorder
        cdef list keys = []
        cdef Py_ssize_t i
        if (
            requests is None
            and self.last_part is not None
            and fetches is self.last_fetches
            and hooks is self.last_hooks
            and with_step == self.last_with_step
        ):
            return self.last_part
        for i in range(0 if hooks is None else len(hooks)):
            if requests is not None and requests[i] is None:
                continue
            key = recorder.stats_of_hook(hooks[i]).key
            keys.append(key)
            if requests is None:
                recorder.note_values(key, 1)
            elif key not in recorder.values_fetched:
                recorder.note_values(key, count_values(requests[i]))
        if with_step:
            # The session itself fetches the step for skipped hooks, and counts as one of the hooks here.
            keys.append((self.session.index, SESSION))
        stats = recorder.runtime_stats(self.caller, fetches, tuple(keys))
        if requests is None:
            self.last_part = stats
            self.last_fetches = fetches
            self.last_hooks = hooks
            self.last_with_step = with_step
        return stats

    cdef Part callback_part(self, object hook, bint before):
        cdef HookStats known = self.recorder.stats_of_hook(hook)
        if self.is_loop:
            return self.recorder.stats_of(known.session, known.name, "after_step", "")
        return known.before_run if before else known.after_run

    def beside_steps(self, hook, phase):
        cdef HookStats known = self.recorder.stats_of_hook(hook)
        return Span(self.recorder, self, self.recorder.stats_of(known.session, known.name, phase, ""))

    def within_callback(self, phase, detail):
        cdef SpanStats around = self.recorder.enclosing_span()
        if around is None or around.owner == SESSION:
            return empty_context
        return Span(self.recorder, self, self.recorder.stats_of(around.session, around.owner, phase, detail))

    def within(self, phase):
        cdef SpanStats around = self.recorder.enclosing_span()
        if around is not None and around.phase == phase:
            return empty_context
        owner = SESSION if around is None else around.owner
        return Span(self.recorder, self, self.recorder.stats_of(self.session, owner, phase, ""))

    def within_session(self, phase):
        cdef fs_thread_trace* trace = self.trace()
        if trace.muted or trace.depth > 0:
            return empty_context
        return self.recorder.session_span(phase)

    def close(self):
        if self.steps_under_way > 0:
            self.closes_later = True
        else:
            self.close_now()

    cdef int close_now(self) except -1:
        if self.unwatch is not None:
            self.unwatch()
            self.unwatch = None
        self.recorder.forget(self.hooks, self.caller)
        self.recorder.interrupt_here()
        self.last_part = self.last_fetches = self.last_hooks = None
        return 0


cdef class Recorder(SpanRegistry):
    """Records where the time of sessions and loops goes.

    Args:
      skip_steps: number of steps to skip at the start.
      step_markers: Whether sessions and loops enter `step_marker` around each step.
      clock: a `ManualClock`, or None for the machine's monotonic clock.

    Raises:
      TypeError: If `skip_steps` isn't an integer, or `clock` isn't a clock.
      ValueError: If `skip_steps` is negative, or doesn't fit into 64 bits.
      RuntimeError: If `__init__` is called a second time.
    """

    def __init__(self, skip_steps=0, step_markers=False, clock=None):
        if isinstance(skip_steps, bool) or not hasattr(skip_steps, "__index__"):
            raise TypeError(f"skip_steps must be an integer, got {skip_steps!r}.")
        if skip_steps < 0:
            raise ValueError(f"skip_steps must not be negative, got {skip_steps!r}. Pass 0 to leave no step out.")
        if skip_steps > INT64_MAX:
            raise ValueError(f"skip_steps must fit into 64 bits, got {skip_steps!r}.")
        if clock is not None and not isinstance(clock, ManualClock):
            raise TypeError(f"clock must be a ManualClock or None, got {clock!r}.")
        if self.no_session is not None:
            raise RuntimeError("A recorder can't be initialized twice: it may be in use. Create another one.")
        self.clock = clock
        self.step_markers = step_markers
        self.no_session = self.new_session(NO_ORIGIN)
        if clock is None:
            self.calibrate()
        else:
            fs_log_init(self.log, read_manual_clock, <PyObject*> clock, open_scopes(), 0)
        self.log.skip_steps = skip_steps

    cdef int calibrate(self) except -1:
        """Initializes the log with the cost of recording, measured on empty spans.

        Uses medians, because other programs may run at the same time.
        """
        cdef fs_thread_trace trace
        cdef SpanStats stats = SpanStats()
        # Histograms of steps with one span, and of steps with two spans.
        cdef fs_histogram* steps = <fs_histogram*> calloc(2, sizeof(fs_histogram))
        cdef int64_t before, after
        cdef int more, i, j
        if steps is NULL:
            raise MemoryError()
        fs_log_init(self.log, NULL, NULL, open_scopes(), 0)
        fs_trace_init(&trace, self.log, 0)
        for more in range(2):
            for i in range(CALIBRATION_STEPS):
                before = fs_clock_monotonic_ns()
                fs_step_begin(&trace, FS_STEP)
                for j in range(1 + more):
                    fs_span_enter(&trace, &stats.c)
                    fs_span_leave(&trace)
                fs_step_end(&trace)
                after = fs_clock_monotonic_ns()
                fs_histogram_add(&steps[more], after - before, 0)
        # An empty span takes one reading of the clock, and so does an empty pause. Both step times also include one
        # reading.
        reading = fs_histogram_quantile(&stats.c.times, 0.5)
        one, two = fs_histogram_quantile(&steps[0], 0.5), fs_histogram_quantile(&steps[1], 0.5)
        free(steps)
        fs_log_init(self.log, NULL, NULL, open_scopes(), 0)
        self.log.cost_in_span = <int64_t> reading
        self.log.cost_between = <int64_t> reading
        self.cost_outside_span = max(two - one - reading, 0.0)
        self.cost_outside_step = max(one - reading - (two - one) - reading, 0.0)
        return 0

    # The profiler's interface for sessions and loops.

    def new_probe(self, origin, hooks, session):
        cdef RecorderProbe probe
        self.interrupt_here()
        caller = self.new_caller(origin, dict if session is None else self._session_info_of(session))
        for hook in hooks or ():
            self.register(hook, caller)
        probe = new_recorder_probe(self, caller, hooks, session is None)
        if session is None:
            probe.wait_for_devices = self._wait_of_loops()
        else:
            probe.unwatch = self._watch(hooks or ())
        return probe

    def _session_info_of(self, session):
        """Returns a function that describes a session, as for `new_caller`. A subclass may support sessions."""
        return dict

    def _wait_of_loops(self):
        """Returns a function that waits for the devices of loops' steps, or None. A subclass may support devices."""
        return None

    def _watch(self, hooks):
        """Records the parts of hooks' callbacks. A subclass may support hooks.

        Returns:
          A function without arguments that stops it, or None.
        """
        return None

    def used_beside(self, profiler):
        cdef Recorder recorder = self
        while recorder is not None:
            recorder.other_profilers_used = recorder.other_profilers_used or recorder is not profiler
            recorder = recorder.replaced

    def note_function(self, note):
        # The replaced recorder observes the whole program.
        if self.replaced is not None:
            self.replaced.note_function(note)

    def callback(self, hook, phase):
        return empty_context if self.log.begun == 0 else self.span(hook, phase)

    cdef SpanStats enclosing_span(self):
        cdef RecorderProbe probe = probe_within(self)
        cdef fs_thread_trace* trace
        if probe is None:
            return None
        trace = probe.trace()
        if trace.muted or trace.depth == 0:
            return None
        return self.stats_by_id[trace.frames[trace.depth - 1].stats.id]

    def interrupt(self):
        """Excludes the time until the next step from the time between steps, in every thread."""
        cdef fs_thread_trace* trace = self.traces
        while trace is not NULL:
            fs_trace_interrupt(trace)
            trace = trace.next

    def interrupt_here(self):
        """Excludes the time until the next step from the time between steps, in this thread. Does nothing in a step."""
        cdef fs_thread_trace* trace = self.traces
        while trace is not NULL:
            if trace.ident is fs_thread():
                fs_trace_interrupt_between_steps(trace)
            trace = trace.next

    # These methods return context managers for Python code that is rarely called.

    def step(self):
        """Returns a context manager that records a step."""
        return StepScope(self, self.probe_around(), True)

    def span(self, hook, phase):
        """Returns a context manager that records a span of a hook, in a step or alongside the steps.

        Args:
          hook: the hook.
          phase: name of the phase.
        """
        cdef HookStats known = self.stats_of_hook(hook)
        return Span(self, self.probe_around(), self.stats_of(known.session, known.name, phase, ""))

    def session_span(self, phase):
        """Returns a context manager that records a span of the session, in a step or alongside the steps.

        Args:
          phase: name of the phase.
        """
        cdef RecorderProbe probe = self.probe_around()
        return Span(self, probe, self.stats_of(probe.session, SESSION, phase, ""))

    cdef RecorderProbe probe_around(self):
        """Returns the probe of this thread's current step if this recorder records it, or one without a session."""
        cdef RecorderProbe probe = probe_within(self)
        return new_recorder_probe(self, 0, None, False) if probe is None else probe

    def step_marker(self):
        """Returns a context manager that marks a step for another profiler. Here it does nothing."""
        return empty_context

    # Methods for recording the whole program.

    def start(self, replaceable=False):
        """Records every session and loop of the program that doesn't have its own profiler, until `stop`.

        Args:
          replaceable: Whether another recorder may be started in the meantime. It then records until it is stopped,
            and this one continues.

        Raises:
          RuntimeError: If another recorder is on and isn't replaceable.
        """
        cdef Recorder before = program_profiler_now()
        if before is not None and not before.replaceable:
            which = "This" if before is self else "Another"
            raise RuntimeError(f"{which} profiler is already on for the whole program. End its block, or stop it.")
        if before is not None:
            before.interrupt()
        self.replaceable = replaceable
        self.replaced = before
        set_program_profiler(self)

    def stop(self):
        """Stops recording the program. Does nothing for a recorder that isn't on."""
        cdef Recorder later = program_profiler_now()
        cdef Recorder before = self.replaced
        if later is self:
            self.replaced = None
            set_program_profiler(before)
        else:
            # A recorder that replaces this one must not restore it.
            while later is not None:
                if later.replaced is self:
                    later.replaced, self.replaced = before, None
                later = later.replaced
        self.interrupt()
