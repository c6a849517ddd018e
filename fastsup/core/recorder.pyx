"""What each hook costs, recorded in C: a histogram for each hook and phase, and a sample of spans for a trace.

A recorder's memory is fixed once each hook and phase was seen; a step allocates none. Times are those that a span took
by itself, without the spans nested in it, so that nothing is counted twice and all of it adds up to the wall clock.
"""

import os
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import fields, is_dataclass

cimport cython
from cpython.ref cimport PyObject
from libc.stdint cimport INT64_MAX, int32_t, int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from fastsup.core.opened import NOBODY, Opened
from fastsup.core.recording import RUNTIME, SESSION
from fastsup.core.schedule cimport changes
from fastsup.core.spans cimport (
    fs_histogram, fs_histogram_add, fs_histogram_merge, fs_histogram_quantile, fs_log_init, fs_scope_end, fs_scope_of,
    fs_span_enter, fs_span_leave, fs_step_begin, fs_step_end, fs_trace_abandon, fs_trace_init, fs_trace_interrupt,
    fs_trace_pause, fs_trace_unfold
)

cdef extern from "clock.h":
    int64_t fs_clock_monotonic_ns() noexcept

# What is under way in the process, of any recorder and thread: the newest in front.
cdef fs_scope* open_scopes = NULL

# The recorder of the whole program: borrowed here for sessions to look at, held there.
cdef void* program_recorder = NULL
cdef Recorder program_recorder_held = None

# How many different (fetches, hooks that fetch) the runtime's time is kept apart for.
cdef Py_ssize_t MAX_RUNTIME_STATS = 64
# How many places that open sessions are told apart, and of each how many sets of fetches after its sessions' ends.
cdef Py_ssize_t MAX_SESSIONS = 32
cdef Py_ssize_t MAX_KEPT_FETCHES = 32
cdef int CALIBRATION_STEPS = 400

OTHER_FETCHES = "other fetches"
cdef object OTHER_SESSIONS = Opened("other sessions")
# How long the description of fetches may get.
cdef Py_ssize_t DESCRIBED = 48


def keep_own_scopes():
    """Forgets what other threads are in the middle of: in the child of a fork they are gone."""
    cdef fs_scope** place = &open_scopes
    while place[0] is not NULL:
        if place[0].trace.ident is fs_thread():
            place = &place[0].next
        else:
            if place[0].trace.ident is not NULL:
                fs_trace_abandon(place[0].trace)
            place[0] = place[0].next


os.register_at_fork(after_in_child=keep_own_scopes)


cdef fs_thread_trace* active_trace() noexcept:
    cdef fs_scope* scope = fs_scope_of(open_scopes, fs_thread())
    if scope is NULL:
        return NULL
    # Whoever asks wants to look at it, or to record something in it.
    fs_trace_unfold(scope.trace)
    return scope.trace


cdef Recorder active_recorder():
    cdef fs_scope* scope = fs_scope_of(open_scopes, fs_thread())
    return None if scope is NULL else <Recorder> <PyObject*> scope.recorder


cdef SessionStats active_session():
    cdef fs_scope* scope = fs_scope_of(open_scopes, fs_thread())
    return (<Recorder> <PyObject*> scope.recorder).session_of(scope.caller)


cdef void** program_wide() noexcept:
    return &program_recorder


cdef class ManualClock:
    """A clock that moves when it is told to, in place of the machine's."""

    cdef int64_t ns

    def advance(self, int64_t ns):
        """Moves on.

        Args:
          ns: by how much, in nanoseconds.
        """
        self.ns += ns


cdef int64_t read_manual_clock(void* context) noexcept:
    return (<ManualClock> <PyObject*> context).ns


cdef class HookStats:
    """What is recorded of a hook."""


# Types of fetches that were found to have no parts: what a hook or a caller fetches is looked at in each run.
cdef set without_parts = set()


cdef object identity(object fetches):
    """What fetches are known by again: the same elements, in the same structure, which may be made anew in each step."""
    cdef object kind = type(fetches)
    if kind in without_parts:
        return id(fetches)
    if kind is str:
        return fetches
    if isinstance(fetches, (list, tuple)):
        return (kind, *[identity(fetch) for fetch in fetches])
    if isinstance(fetches, Mapping):
        return (kind, *[(identity(key), identity(fetch)) for key, fetch in fetches.items()])
    if is_dataclass(fetches):
        return (kind, *[identity(getattr(fetches, field.name)) for field in fields(fetches)])
    if hasattr(kind, "__attrs_attrs__"):
        return (kind, *[identity(getattr(fetches, field.name)) for field in kind.__attrs_attrs__])
    without_parts.add(kind)
    return id(fetches)


# Entered while the names of fetches are read. Whoever knows that reading them must not be interrupted puts a guard here.
while_describing = nullcontext()


def guard_describing(guard):
    """Has the names of fetches read within a context.

    Args:
      guard: the context manager, which can be entered again and again.
    """
    global while_describing
    while_describing = guard


def describe(fetches):
    """Fetches as a program would write them, in about 50 characters."""
    cdef Py_ssize_t length = 0
    if fetches is None:
        return ""
    if isinstance(fetches, str):
        return fetches.removesuffix(":0")
    if isinstance(fetches, Mapping):
        parts = [f"{key}: {describe(fetch)}" for key, fetch in fetches.items()]
        begin, end = "{", "}"
    elif isinstance(fetches, (list, tuple)):
        parts = [describe(fetch) for fetch in fetches]
        begin, end = "[]" if isinstance(fetches, list) else "()"
    elif isinstance(getattr(fetches, "name", None), str):
        return fetches.name.removesuffix(":0")
    else:
        return type(fetches).__name__
    for i in range(len(parts)):
        length += len(parts[i])
        if i > 0 and length > DESCRIBED:
            parts[i:] = [f"… {len(parts) - i} more"]
            break
    return begin + ", ".join(parts) + end


cdef class Recorder(Recording):
    """Records where the time of sessions and loops goes.

    Args:
      skip_steps: steps at the start that are left out.
      step_markers: whether sessions and loops mark their steps, by `step_marker`.
      clock: a `ManualClock`, or None for the machine's monotonic clock.

    Raises:
      TypeError: `skip_steps` is no integer, or `clock` no clock.
      ValueError: `skip_steps` is negative, or doesn't fit into 64 bits.
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
        if self.all_stats:
            raise RuntimeError("A recorder can't be made anew: it may be in use.")
        self.clock = clock
        self.stats_by_name = {}
        self.hooks = {}
        self.sessions_by_place = {}
        self.all_runtime_stats = {}
        self.values_fetched = {}
        self.step_markers = step_markers
        self.spare_stats = []
        self.no_session = self.new_session(NOBODY)
        if clock is None:
            self.calibrate()
            fs_log_init(self.log, NULL, NULL, &open_scopes, skip_steps)
            self.log.cost_in_span = self.cost_in_span
            self.log.cost_between = self.cost_between
        else:
            fs_log_init(self.log, read_manual_clock, <PyObject*> clock, &open_scopes, skip_steps)

    cdef int calibrate(self) except -1:
        """Finds out what measuring costs, by measuring nothing. The medians: what comes between isn't its fault."""
        cdef fs_thread_trace trace
        cdef SpanStats stats = SpanStats()
        cdef fs_histogram* pairs = <fs_histogram*> calloc(2, sizeof(fs_histogram))
        cdef int64_t before, after
        cdef int spans, i, j
        if pairs is NULL:
            raise MemoryError()
        fs_log_init(self.log, NULL, NULL, &open_scopes, 0)
        fs_trace_init(&trace, self.log, 0)
        for spans in range(2):
            for i in range(CALIBRATION_STEPS):
                before = fs_clock_monotonic_ns()
                fs_step_begin(&trace, True)
                for j in range(1 + spans):
                    fs_span_enter(&trace, &stats.c)
                    fs_span_leave(&trace)
                fs_step_end(&trace)
                after = fs_clock_monotonic_ns()
                fs_histogram_add(&pairs[spans], after - before, 0)
        # One reading of the clock is a part of each of these times as well.
        reading = fs_histogram_quantile(&stats.c.times, 0.5)
        one, two = fs_histogram_quantile(&pairs[0], 0.5), fs_histogram_quantile(&pairs[1], 0.5)
        free(pairs)
        self.cost_in_span = <int64_t> reading
        self.cost_between = <int64_t> reading
        self.cost_beside_span = max(two - one - reading, 0.0)
        self.cost_beside_step = max(one - reading - (two - one) - reading, 0.0)
        return 0

    # Registration: once a hook and phase, or once a session.

    cdef SpanStats stats_of(self, SessionStats of, str owner, str phase, str detail):
        key = (of.index, owner, phase, detail)
        cdef SpanStats stats = self.stats_by_name.get(key)
        if stats is None:
            stats = self.stats_by_name[key] = self.new_stats(of, owner, phase, detail)
        return stats

    cdef SpanStats new_stats(self, SessionStats of, str owner, str phase, str detail):
        cdef SpanStats stats = SpanStats()
        stats.of = of
        stats.owner = owner
        stats.phase = phase
        stats.detail = detail
        stats.c.id = <int32_t> len(self.all_stats)
        self.all_stats.append(stats)
        return stats

    cdef SessionStats new_session(self, object opened):
        cdef SessionStats session = SessionStats()
        session.index = <int32_t> len(self.sessions)
        session.opened = opened
        session.names = {SESSION}  # A hook's class may be named so.
        session.foreign = set()
        session.kept_fetches = set()
        session.executors = {}
        session.asked_executors = set()
        session.feed_stats = self.stats_of(session, SESSION, "feed conversion", "")
        session.fetch_stats = self.stats_of(session, SESSION, "fetch conversion", "")
        session.other_runtime = self.stats_of(session, SESSION, RUNTIME, OTHER_FETCHES)
        self.sessions.append(session)
        return session

    cdef SessionStats session_of(self, int64_t caller):
        known = self.callers.get(caller)
        return self.no_session if known is None else known[0]

    def new_caller(self, opened=None, facts=dict):
        """Takes note of a session, apart from which no fetches are the same: later ones may have the same identity.

        Sessions that the same lines of a program open are recorded under one name.

        Args:
          opened: the `Opened` that says who has opened it, or None.
          facts: function that gives a dictionary: the executor that was `asked` for, `plans` (dictionaries with fetches,
            feeds, executor, on_trial, seconds), `operations` (the size of the graph). Empty when the session is gone.

        Returns:
          A number for the session.
        """
        cdef SessionStats session
        cdef fs_thread_trace* trace
        opened = NOBODY if opened is None else opened
        session = self.no_session if opened is NOBODY else self.sessions_by_place.get(opened)
        if session is None and len(self.sessions) >= MAX_SESSIONS:
            opened = OTHER_SESSIONS
            session = self.sessions_by_place.get(opened)
        if session is None:
            session = self.sessions_by_place[opened] = self.new_session(opened)
        if session.within is None and session is not self.no_session and active_recorder() is self:
            trace = active_trace()
            if not trace.muted and trace.depth > 0:
                session.within = self.all_stats[trace.frames[trace.depth - 1].stats.id]
        session.sessions += 1
        self.n_callers += 1
        self.callers[self.n_callers] = (session, facts, None)
        self.note_facts(self.n_callers)
        return self.n_callers

    cdef HookStats stats_of_hook(self, object hook):
        cdef HookStats known = self.hooks.get(id(hook))
        return known if known is not None else self.register(hook)

    def register(self, hook, caller=0):
        """Gives a hook its name: that of its class, with a number if another hook of the session has that name.

        Args:
          hook: the hook.
          caller: the number of its session; 0 for none.
        """
        cdef HookStats known = self.hooks.get(id(hook))
        cdef SessionStats of = self.session_of(caller)
        if known is not None:
            return known
        known = HookStats()
        kind = type(hook).__name__
        name, number = kind, 1
        while name in of.names:
            number += 1
            name = f"{kind} #{number}"
        of.names.add(name)
        known.hook = hook
        known.name = name
        known.of = of
        known.key = (of.index, name)
        known.before_run = self.stats_of(of, name, "before_run", "")
        known.after_run = self.stats_of(of, name, "after_run", "")
        if type(hook).__module__.startswith("tensorflow."):
            of.foreign.add(kind)
        self.hooks[id(hook)] = known
        return known

    def forget(self, hooks, caller=0):
        """Lets hooks go, with their session. Hooks of the same classes in a later one are recorded under their names.

        Args:
          hooks: the hooks.
          caller: the number of the session, whose fetches are let go too; 0 for none.
        """
        cdef HookStats known
        for hook in hooks:
            known = self.hooks.pop(id(hook), None)
            if known is not None:
                known.of.names.discard(known.name)
        if caller:
            self.retire(caller)

    cdef int retire(self, int64_t caller) except -1:
        """Lets the fetches of a session go, and the graph that they are of. What they have cost is kept."""
        cdef SpanStats stats, kept
        cdef SessionStats session = self.session_of(caller)
        cdef list keys = [key for key in self.all_runtime_stats if key[0][0] == caller]
        if caller in self.callers:
            self.note_facts(caller)
            del self.callers[caller]
        self.flush()
        self.add_estimates(self.past_estimates, {key: self.all_runtime_stats[key] for key in keys})
        for key in keys:
            stats, _ = self.all_runtime_stats.pop(key)
            if stats.detail in session.kept_fetches or len(session.kept_fetches) < MAX_KEPT_FETCHES:
                session.kept_fetches.add(stats.detail)
                kept = self.stats_of(session, SESSION, RUNTIME, stats.detail)
            else:
                kept = session.other_runtime
            fs_histogram_merge(&kept.c.times, &stats.c.times)
            memset(&stats.c.times, 0, sizeof(stats.c.times))
            self.spare_stats.append(stats)
        self.last_fetches = self.last_runtime = None
        return 0

    def interrupt(self):
        """Says that what comes until the next step is none of the time between two steps: of any thread."""
        cdef fs_thread_trace* trace = self.traces
        while trace is not NULL:
            fs_trace_interrupt(trace)
            trace = trace.next

    def interrupt_here(self):
        """The same of this thread, unless it is in a step."""
        cdef fs_thread_trace* trace = self.traces
        while trace is not NULL:
            if trace.ident is fs_thread():
                fs_trace_pause(trace)
            trace = trace.next

    cdef SpanStats stats_of_step(self, object hook):
        """Where the time of a loop's hook goes: its one callback after a step."""
        cdef HookStats known = self.stats_of_hook(hook)
        return self.stats_of(known.of, known.name, "after_step", "")

    cdef SpanStats runtime_stats(self, int64_t caller, object fetches, tuple names):
        """Where the runtime's time goes for these fetches of a caller's, with fetches of these hooks beside them."""
        cdef SessionStats session
        cdef SpanStats stats
        key = ((caller, identity(fetches)), names)
        known = self.all_runtime_stats.get(key)
        if known is None:
            session = self.session_of(caller)
            if len(self.all_runtime_stats) >= MAX_RUNTIME_STATS:
                return session.other_runtime
            # With the fetches, which else might make room for others of the same identity.
            stats = self.spare_stats.pop() if self.spare_stats else self.new_stats(session, SESSION, RUNTIME, "")
            stats.of = session
            with while_describing:
                stats.detail = describe(fetches)
            known = self.all_runtime_stats[key] = (stats, fetches)
        return known[0]

    cdef SpanStats runtime_alone(self, int64_t caller, object fetches):
        """The same without any hook's fetches. The last ones are at hand."""
        if fetches is not self.last_fetches or caller != self.last_caller or self.last_runtime is None:
            self.last_runtime = self.runtime_stats(caller, fetches, ())
            self.last_fetches = fetches
            self.last_caller = caller
        return self.last_runtime

    def note_values(self, tuple key, int values):
        """Notes how many values a hook fetches in a run that it fetches any in."""
        self.values_fetched[key] = values

    # The steps.

    cdef fs_thread_trace* trace_of(self, const void* ident) except NULL:
        """The trace of the thread that has its own place there: none of the first in the list."""
        cdef fs_thread_trace* trace = self.traces
        cdef fs_thread_trace* before = NULL
        while trace is not NULL and trace.ident is not ident:
            before = trace
            trace = trace.next
        if trace is not NULL:
            before.next = trace.next
        else:
            trace = <fs_thread_trace*> calloc(1, sizeof(fs_thread_trace))
            if trace is NULL:
                raise MemoryError()
            fs_trace_init(trace, self.log, self.threads())
            trace.ident = ident
        trace.next = self.traces
        self.traces = trace
        return trace

    # For what is written in Python: seldom called, or by tests.

    def step(self):
        """A context manager for a step."""
        return StepScope(self, True)

    def span(self, hook, phase):
        """A context manager for what a hook does: in a step, or beside the steps, then as a part of the wall time too.

        Args:
          hook: the hook.
          phase: the phase's name.
        """
        cdef HookStats known = self.stats_of_hook(hook)
        return Span(self, self.stats_of(known.of, known.name, phase, ""))

    def step_marker(self):
        """A context manager that marks a step for another profiler, where `step_markers` asks for it. Here it does nothing."""
        return no_span

    def session_span(self, phase):
        """The same for something that the session does."""
        cdef SessionStats of = active_session() if active_recorder() is self else self.no_session
        return Span(self, self.stats_of(of, SESSION, phase, ""))

    def start(self, gives_way=False):
        """Turns recording on for every session of the program that wasn't given a profiler of its own.

        Args:
          gives_way: whether another one may be turned on: it then records in place of this one, until it is stopped.

        Raises:
          RuntimeError: another one is on, and doesn't give way.
        """
        global program_recorder, program_recorder_held
        if program_recorder is not NULL and not program_recorder_held.gives_way:
            raise RuntimeError("Another profiler is on for the whole program. Only one can be.")
        if program_recorder_held is not None:
            program_recorder_held.interrupt()
        self.gives_way = gives_way
        self.in_place_of = program_recorder_held
        program_recorder = <PyObject*> self
        program_recorder_held = self
        # What loops in C looks at whether it is recorded then.
        changes()[0] += 1

    def stop(self):
        """Turns it off again."""
        global program_recorder, program_recorder_held
        cdef Recorder later = program_recorder_held
        if program_recorder is <PyObject*> self:
            program_recorder_held, self.in_place_of = self.in_place_of, None
            program_recorder = NULL if program_recorder_held is None else <PyObject*> program_recorder_held
            changes()[0] += 1
        else:
            # One in whose place another one records isn't to come back.
            while later is not None:
                if later.in_place_of is self:
                    later.in_place_of, self.in_place_of = self.in_place_of, None
                later = later.in_place_of
        self.interrupt()

@cython.no_gc_clear
cdef class StepScope:
    """A step, as a context manager."""

    cdef Recorder recorder
    cdef fs_scope scope
    cdef bint counts
    cdef bint entered

    def __init__(self, Recorder recorder not None, counts):
        self.recorder = recorder
        self.counts = counts

    def __enter__(self):
        if self.entered:
            raise RuntimeError("It is under way already.")
        # Of the session whose step this is in.
        cdef fs_scope* around = fs_scope_of(open_scopes, fs_thread())
        caller = 0 if around is NULL or around.recorder is not <PyObject*> self.recorder else around.caller
        begin_scope(&self.scope, self.recorder, self.counts, caller)
        self.entered = True

    def __exit__(self, *error):
        self.leave()

    def __dealloc__(self):
        self.leave()

    cdef void leave(self) noexcept:
        if self.entered:
            self.entered = False
            fs_scope_end(&self.scope)


@cython.no_gc_clear
cdef class Span(StepScope):
    """A span, as a context manager."""

    cdef SpanStats stats

    def __init__(self, Recorder recorder not None, SpanStats stats not None):
        # Within a step of the same recorder this begins none; else it is work beside the steps.
        StepScope.__init__(self, recorder, False)
        self.stats = stats

    def __enter__(self):
        StepScope.__enter__(self)
        fs_span_enter(self.scope.trace, &self.stats.c)


cdef class NoSpan:
    def __enter__(self):
        pass

    def __exit__(self, *error):
        pass


cdef NoSpan no_span = NoSpan()


def span_here(str phase, str detail=""):
    """A context manager for a part of what the hook does whose callback this thread is in; outside one, for nothing.

    Args:
      phase: the phase's name.
      detail: which of several there are of it, or "".
    """
    cdef fs_thread_trace* trace = active_trace()
    cdef Recorder recorder
    cdef SpanStats stats
    if trace is NULL or trace.muted or trace.depth == 0:
        return no_span
    recorder = active_recorder()
    stats = recorder.all_stats[trace.frames[trace.depth - 1].stats.id]
    if stats.owner == SESSION:
        return no_span
    return Span(recorder, recorder.stats_of(stats.of, stats.owner, phase, detail))


def session_span_here(str phase):
    """A context manager for something that the session does in a step; for nothing within a span, or outside a step.

    Args:
      phase: the phase's name.
    """
    cdef fs_thread_trace* trace = active_trace()
    if trace is NULL or trace.muted or trace.depth > 0:
        return no_span
    return active_recorder().session_span(phase)


def recorder_of(profiler):
    """The recorder to use where `profiler` was given, or None.

    Raises:
      TypeError: `profiler` is neither a HookProfiler nor None.
    """
    if profiler is not None and not isinstance(profiler, Recorder):
        raise TypeError(
            f"profiler must be a fastsup.HookProfiler or None, got {profiler!r} of type {type(profiler).__name__}."
        )
    cdef Recorder recorder = program_recorder_held
    while profiler is not None and recorder is not None:
        recorder.saw_others = recorder.saw_others or recorder is not profiler
        recorder = recorder.in_place_of
    return profiler


def program_recorder_now():
    """The recorder that is on for the whole program, or None."""
    return program_recorder_held
