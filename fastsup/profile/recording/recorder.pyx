"""Records where the time of training goes: a histogram for each phase of each hook, and a sample of spans for a trace.

The memory of a recorder doesn't grow once each hook and phase was seen, and a step allocates none. The time of a span
doesn't include the spans nested in it, so that all times add up to the wall clock.
"""

import os

from cpython.ref cimport PyObject
from libc.stdint cimport INT64_MAX, int64_t
from libc.stdlib cimport calloc, free

from fastsup.core.probe import empty_context, program_profiler_now
from fastsup.core.probe cimport fs_scope, open_scopes, set_program_profiler
from fastsup.core.sessions import NO_ORIGIN
from fastsup.profile.recording.recorder_probe cimport RecorderProbe, new_recorder_probe, probe_within
from fastsup.profile.recording.span_context import Span, StepScope
from fastsup.profile.recording.span_registry cimport HookStats
from fastsup.profile.recording.spans cimport (
    FS_STEP, fs_histogram, fs_histogram_add, fs_histogram_quantile, fs_log_init, fs_span_enter, fs_span_leave,
    fs_step_begin, fs_step_end, fs_thread, fs_thread_trace, fs_trace_abandon, fs_trace_init, fs_trace_interrupt,
    fs_trace_interrupt_between_steps
)
from fastsup.profile.recording.statistics import SESSION
from fastsup.profile.recording.statistics cimport SpanStats

cdef extern from "clock.h":
    int64_t fs_clock_monotonic_ns() noexcept

cdef int CALIBRATION_STEPS = 400


def drop_scopes_of_other_threads():
    """Drops the scopes of all threads but this one. For the child of a fork, where the other threads are gone."""
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
    """A clock for tests, which moves only when `advance` is called."""

    cdef int64_t ns

    def advance(self, int64_t ns):
        """Moves the clock forward.

        Args:
          ns: nanoseconds.
        """
        self.ns += ns


cdef int64_t read_manual_clock(void* context) noexcept:
    return (<ManualClock> <PyObject*> context).ns


cdef class Recorder(SpanRegistry):
    """Records where the time of sessions and loops goes.

    Args:
      skip_steps: number of steps at the start that are left out.
      step_markers: whether sessions and loops enter `step_marker` around each step.
      clock: a `ManualClock`, or None for the machine's monotonic clock.

    Raises:
      TypeError: `skip_steps` isn't an integer, or `clock` isn't a clock.
      ValueError: `skip_steps` is negative, or doesn't fit into 64 bits.
      RuntimeError: `__init__` was called a second time.
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
            raise RuntimeError("A recorder can't be initialised twice: it may be in use. Make another one.")
        self.clock = clock
        self.step_markers = step_markers
        self.no_session = self.new_session(NO_ORIGIN)
        if clock is None:
            self.calibrate()
        else:
            fs_log_init(self.log, read_manual_clock, <PyObject*> clock, open_scopes(), 0)
        self.log.skip_steps = skip_steps

    cdef int calibrate(self) except -1:
        """Initialises the log with the cost of recording, measured on empty spans.

        Medians are used, as other programs may run meanwhile.
        """
        cdef fs_thread_trace trace
        cdef SpanStats stats = SpanStats()
        # Of steps with one span, and of steps with two.
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
        # An empty span takes one reading of the clock; so does an empty pause. Both step times include one as well.
        reading = fs_histogram_quantile(&stats.c.times, 0.5)
        one, two = fs_histogram_quantile(&steps[0], 0.5), fs_histogram_quantile(&steps[1], 0.5)
        free(steps)
        fs_log_init(self.log, NULL, NULL, open_scopes(), 0)
        self.log.cost_in_span = <int64_t> reading
        self.log.cost_between = <int64_t> reading
        self.cost_outside_span = max(two - one - reading, 0.0)
        self.cost_outside_step = max(one - reading - (two - one) - reading, 0.0)
        return 0

    # What sessions and loops ask of a profiler.

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
        """Returns a function that describes a session, as for `new_caller`. A subclass may know sessions."""
        return dict

    def _wait_of_loops(self):
        """Returns a function that waits for the devices of loops' steps; None if there are none. A subclass may know some."""
        return None

    def _watch(self, hooks):
        """Has the parts of hooks' callbacks recorded. A subclass may know hooks.

        Returns:
          A function without arguments that ends it, or None.
        """
        return None

    def used_beside(self, profiler):
        cdef Recorder recorder = self
        while recorder is not None:
            recorder.other_profilers_used = recorder.other_profilers_used or recorder is not profiler
            recorder = recorder.replaced

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
        """Leaves the time up to the next step out of the time between steps, in every thread."""
        cdef fs_thread_trace* trace = self.traces
        while trace is not NULL:
            fs_trace_interrupt(trace)
            trace = trace.next

    def interrupt_here(self):
        """Leaves the time up to the next step out of the time between steps, in this thread. Does nothing in a step."""
        cdef fs_thread_trace* trace = self.traces
        while trace is not NULL:
            if trace.ident is fs_thread():
                fs_trace_interrupt_between_steps(trace)
            trace = trace.next

    # Context managers, for code in Python that is seldom called.

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
        """The probe of the step that this thread is in, if this recorder records it; else one that belongs to no session."""
        cdef RecorderProbe probe = probe_within(self)
        return new_recorder_probe(self, 0, None, False) if probe is None else probe

    def step_marker(self):
        """Returns a context manager that marks a step for another profiler. Here it does nothing."""
        return empty_context

    # The whole program.

    def start(self, replaceable=False):
        """Records every session and loop of the program that doesn't have its own profiler, until `stop`.

        Args:
          replaceable: whether another recorder may be started meanwhile. It then records until it is stopped, and this
            one goes on after that.

        Raises:
          RuntimeError: another recorder is on, and isn't replaceable.
        """
        cdef Recorder before = program_profiler_now()
        if before is not None and not before.replaceable:
            raise RuntimeError("Another profiler is on for the whole program. Only one can be.")
        if before is not None:
            before.interrupt()
        self.replaceable = replaceable
        self.replaced = before
        set_program_profiler(self)

    def stop(self):
        """Ends the recording of the program. Does nothing for a recorder that isn't on."""
        cdef Recorder later = program_profiler_now()
        cdef Recorder before = self.replaced
        if later is self:
            self.replaced = None
            set_program_profiler(before)
        else:
            # A recorder that replaces this one must not bring it back.
            while later is not None:
                if later.replaced is self:
                    later.replaced, self.replaced = before, None
                later = later.replaced
        self.interrupt()
