"""Records where the time of training goes: a histogram for each phase of each hook, and a sample of spans for a trace.

The memory of a recorder doesn't grow once each hook and phase has come, and a step allocates none. The time of a span
doesn't include the spans nested in it, so that all times add up to the wall clock.
"""

import os

from cpython.ref cimport PyObject
from libc.stdint cimport INT64_MAX, int64_t
from libc.stdlib cimport calloc, free

from fastsup.core.recording import SESSION
from fastsup.core.recording cimport SpanStats
from fastsup.core.schedule cimport changes
from fastsup.core.session_origin import NO_ORIGIN
from fastsup.core.span_context import Span, StepScope, empty_context
from fastsup.core.span_registry cimport HookStats
from fastsup.core.spans cimport (
    fs_histogram, fs_histogram_add, fs_histogram_quantile, fs_log_init, fs_scope_of_thread, fs_span_enter,
    fs_span_leave, fs_step_begin, fs_step_end, fs_trace_abandon, fs_trace_expand, fs_trace_init, fs_trace_interrupt,
    fs_trace_interrupt_between_steps
)

cdef extern from "clock.h":
    int64_t fs_clock_monotonic_ns() noexcept

# The scopes under way in the process, of all recorders and threads, newest first.
cdef fs_scope* open_scopes = NULL

# The recorder of the whole program: a pointer for sessions to read, and the reference that keeps it alive.
cdef void* program_recorder = NULL
cdef Recorder program_recorder_held = None

cdef int CALIBRATION_STEPS = 400


def drop_scopes_of_other_threads():
    """Drops the scopes of all threads but this one. For the child of a fork, where the other threads are gone."""
    cdef fs_scope** place = &open_scopes
    while place[0] is not NULL:
        if place[0].trace.ident is fs_thread():
            place = &place[0].next
        else:
            if place[0].trace.ident is not NULL:
                fs_trace_abandon(place[0].trace)
            place[0] = place[0].next


os.register_at_fork(after_in_child=drop_scopes_of_other_threads)


cdef fs_thread_trace* active_trace() noexcept:
    cdef fs_scope* scope = fs_scope_of_thread(open_scopes, fs_thread())
    if scope is NULL:
        return NULL
    fs_trace_expand(scope.trace)
    return scope.trace


cdef Recorder active_recorder():
    cdef fs_scope* scope = fs_scope_of_thread(open_scopes, fs_thread())
    return None if scope is NULL else <Recorder> <PyObject*> scope.recorder


cdef SessionStats active_session():
    cdef fs_scope* scope = fs_scope_of_thread(open_scopes, fs_thread())
    return (<Recorder> <PyObject*> scope.recorder).session_of(scope.caller)


cdef void** program_wide() noexcept:
    return &program_recorder


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
      TypeError: `skip_steps` is no integer, or `clock` no clock.
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
            fs_log_init(self.log, read_manual_clock, <PyObject*> clock, &open_scopes, 0)
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
        fs_log_init(self.log, NULL, NULL, &open_scopes, 0)
        fs_trace_init(&trace, self.log, 0)
        for more in range(2):
            for i in range(CALIBRATION_STEPS):
                before = fs_clock_monotonic_ns()
                fs_step_begin(&trace, True)
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
        fs_log_init(self.log, NULL, NULL, &open_scopes, 0)
        self.log.cost_in_span = <int64_t> reading
        self.log.cost_between = <int64_t> reading
        self.cost_outside_span = max(two - one - reading, 0.0)
        self.cost_outside_step = max(one - reading - (two - one) - reading, 0.0)
        return 0

    cdef SpanStats enclosing_span(self):
        cdef fs_thread_trace* trace
        if active_recorder() is not self:
            return None
        trace = active_trace()
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
        return StepScope(self, True)

    def span(self, hook, phase):
        """Returns a context manager that records a span of a hook, in a step or beside the steps.

        Args:
          hook: the hook.
          phase: name of the phase.
        """
        cdef HookStats known = self.stats_of_hook(hook)
        return Span(self, self.stats_of(known.session, known.name, phase, ""))

    def session_span(self, phase):
        """Returns a context manager that records a span of the session, in a step or beside the steps.

        Args:
          phase: name of the phase.
        """
        cdef SessionStats session = active_session() if active_recorder() is self else self.no_session
        return Span(self, self.stats_of(session, SESSION, phase, ""))

    def step_marker(self):
        """Returns a context manager that marks a step for another profiler. Here it does nothing."""
        return empty_context

    # The whole program.

    def start(self, replaceable=False):
        """Records every session and loop of the program that has no profiler of its own, until `stop`.

        Args:
          replaceable: whether another recorder may be started meanwhile. It then records until it is stopped, and this
            one goes on after that.

        Raises:
          RuntimeError: another recorder is on, and isn't replaceable.
        """
        global program_recorder, program_recorder_held
        if program_recorder is not NULL and not program_recorder_held.replaceable:
            raise RuntimeError("Another profiler is on for the whole program. Only one can be.")
        if program_recorder_held is not None:
            program_recorder_held.interrupt()
        self.replaceable = replaceable
        self.replaced = program_recorder_held
        program_recorder = <PyObject*> self
        program_recorder_held = self
        # A compiled loop of a session then looks whether it is recorded.
        changes()[0] += 1

    def stop(self):
        """Ends the recording of the program. Does nothing for a recorder that isn't on."""
        global program_recorder, program_recorder_held
        cdef Recorder later = program_recorder_held
        if program_recorder is <PyObject*> self:
            program_recorder_held, self.replaced = self.replaced, None
            program_recorder = NULL if program_recorder_held is None else <PyObject*> program_recorder_held
            changes()[0] += 1
        else:
            # A recorder that replaces this one must not bring it back.
            while later is not None:
                if later.replaced is self:
                    later.replaced, self.replaced = self.replaced, None
                later = later.replaced
        self.interrupt()


def span_here(str phase, str detail=""):
    """Returns a context manager that records a part of the callback that this thread is in; an empty one outside it.

    Args:
      phase: name of the phase.
      detail: which of several of that phase it is, or "".
    """
    cdef Recorder recorder = active_recorder()
    cdef SpanStats stats = None if recorder is None else recorder.enclosing_span()
    if stats is None or stats.owner == SESSION:
        return empty_context
    return Span(recorder, recorder.stats_of(stats.session, stats.owner, phase, detail))


def session_span_here(str phase):
    """Returns a context manager that records a span of the session; an empty one within a span, or outside a step.

    Args:
      phase: name of the phase.
    """
    cdef fs_thread_trace* trace = active_trace()
    if trace is NULL or trace.muted or trace.depth > 0:
        return empty_context
    return active_recorder().session_span(phase)


def recorder_of(profiler):
    """Checks the `profiler` argument of a session or loop.

    Args:
      profiler: the argument.

    Returns:
      The recorder, or None for None.

    Raises:
      TypeError: `profiler` is neither a HookProfiler nor None.
    """
    if profiler is not None and not isinstance(profiler, Recorder):
        raise TypeError(
            f"profiler must be a fastsup.HookProfiler or None, got {profiler!r} of type {type(profiler).__name__}."
        )
    cdef Recorder recorder = program_recorder_held
    while profiler is not None and recorder is not None:
        recorder.other_profilers_used = recorder.other_profilers_used or recorder is not profiler
        recorder = recorder.replaced
    return profiler


def program_recorder_now():
    """Returns the recorder that is on for the whole program, or None."""
    return program_recorder_held
