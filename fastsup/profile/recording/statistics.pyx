"""The data of a recorder, read as numbers: quantiles of histograms, spans as dictionaries, estimates for fetches.

A hook's fetches run in the same runtime call as the step, so their time can't be measured. It is estimated by comparing
runs with and without them. All other times are measured, in a `SpanStats` for each phase. A SpanRegistry determines
these, with their sessions, hooks, fetches and names.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass

from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from fastsup.core.probe import empty_context
from fastsup.core.sessions import NO_ORIGIN, SessionOrigin

cdef extern from "Python.h":
    int Py_EnterRecursiveCall(const char* where) except *
    void Py_LeaveRecursiveCall()

SESSION = "session"
RUNTIME = "runtime"
# The name in the trace of a pass's work around its steps, such as opening its input.
AROUND = "around steps"


cdef class SpanStats(Part):
    """The statistics of one phase of a hook or session: a histogram of durations, and a name."""


cdef class SessionStats:
    """The statistics of the sessions with one origin."""

    def note_input(self, calls, total_ns, max_ns):
        """Adds a wait for input that was measured elsewhere, within the session's call for each batch.

        Args:
          calls: number of batches.
          total_ns: nanoseconds.
          max_ns: the longest wait, or 0 if it is unknown.
        """
        self.input_calls += calls
        self.input_ns += total_ns
        self.input_max_ns = max(self.input_max_ns, max_ns)


cdef class Caller:
    """An open session or loop."""


# Maximum number of combinations of fetches and feeds whose executor is kept, for the sessions of one origin.
cdef Py_ssize_t MAX_EXECUTORS = 64


cdef dict row_of(int32_t session, str owner, str phase, str detail, SpanStats stats):
    about = {"session": session, "owner": owner, "phase": phase, "detail": detail, "aside": bool(stats.c.aside)}
    return {**about, **times_of(&stats.c.times)}


cdef dict times_of(const fs_histogram* times):
    return {
        "calls": times.count,
        "total_ns": times.total,
        "mean_ns": times.total / <double> times.count if times.count else 0.0,
        "p50_ns": fs_histogram_quantile(times, 0.5),
        "p95_ns": fs_histogram_quantile(times, 0.95),
        "p99_ns": fs_histogram_quantile(times, 0.99),
        "max_ns": times.max,
        "max_step": times.max_step if times.count else None,
    }


cdef class Recording(Profiler):
    """The data of a recorder. They can be read while it records."""

    def __cinit__(self, *args, **kwargs):
        self.log = <fs_span_log*> calloc(1, sizeof(fs_span_log))
        if self.log is NULL:
            raise MemoryError()
        self.stats_by_id = []
        self.sessions = []
        self.callers = {}
        self.runtime_stats_by_run = {}
        self.past_estimates = {}
        self.values_fetched = {}

    def __dealloc__(self):
        cdef fs_thread_trace* trace = self.traces
        cdef fs_thread_trace* following
        while trace is not NULL:
            following = trace.next
            free(trace)
            trace = following
        free(self.log)

    cdef fs_thread_trace* trace_of(self, const void* ident) except NULL:
        """Returns a thread's trace after moving it to the front of the list. Creates it the first time.

        Args:
          ident: the thread, from `fs_thread`. Its trace must not be the first one already.
        """
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

    cdef int flush(self) except -1:
        """Adds the step records of all threads to the log."""
        cdef fs_thread_trace* trace = self.traces
        while trace is not NULL:
            fs_trace_flush(trace)
            trace = trace.next
        return 0

    def snapshot(self):
        """Returns the recording so far, as numbers.

        Returns:
          Dictionary. `steps`, `skipped_steps` and `threads` are counts. `wall_ns`, `profiler_ns` and `unaccounted_ns`
          are nanoseconds. `step_time` and `between_steps` are times: dictionaries with calls, total_ns, mean_ns,
          p50_ns, p95_ns, p99_ns, max_ns, max_step. `spans` is a list of dictionaries with session, owner, phase,
          detail, aside (True if it ran alongside the steps, in another thread), and times. `fetches` is the result of
          `fetch_estimates`, and `sessions` of `described_sessions`. `session` in the others is an index into it.
        """
        cdef fs_span_log* log = self.log
        cdef SpanStats stats, runtime
        self.flush()
        rows = []
        runtimes = {}
        accounted = log.between.times.total
        for stats in self.stats_by_id:
            if not stats.c.aside:
                accounted += stats.c.times.total
            if not stats.c.times.count:
                continue
            if stats.owner == SESSION and stats.phase == RUNTIME:
                # One row for the same fetches, in any session of the origin, with the fetches of any hooks.
                runtime = runtimes.setdefault((stats.session.index, stats.detail), SpanStats())
                fs_histogram_merge(&runtime.c.times, &stats.c.times)
            else:
                rows.append(row_of(stats.session.index, stats.owner, stats.phase, stats.detail, stats))
        for (session, detail), runtime in runtimes.items():
            rows.append(row_of(session, SESSION, RUNTIME, detail, runtime))
        steps = log.steps.times.count
        # The subtracted cost is known. The rest of the profiler's cost is estimated by the calibration.
        outside = log.n_spans * self.cost_outside_span + steps * self.cost_outside_step
        rest = log.wall_ns - accounted - log.cost_subtracted
        profiler_ns = log.cost_subtracted + <int64_t> max(0.0, min(outside, rest))
        return {
            "steps": steps,
            "skipped_steps": min(log.begun, log.skip_steps),
            "wall_ns": log.wall_ns,
            "threads": self.threads(),
            "profiler_ns": profiler_ns,
            "unaccounted_ns": log.wall_ns - accounted - profiler_ns,
            "spans": rows,
            "step_time": times_of(&log.steps.times),
            "between_steps": times_of(&log.between.times),
            "fetches": self.fetch_estimates(),
            "sessions": self.described_sessions(),
        }

    def described_sessions(self):
        """Returns the sessions as a list of dictionaries, one for each origin.

        Their keys: kind, role, place, library (of the `SessionOrigin`), sessions (their number), within (session,
        owner, phase and detail of the span in which they were opened, or None), asked_executors, executors,
        tensorflow_hooks, operations_added, and input_wait: number, nanoseconds and longest of the waits for input that
        were measured within the session's call for each batch.
        """
        cdef SessionStats session
        for number in list(self.callers):
            self.read_session_info(number)
        described = []
        for session in self.sessions:
            within = session.within
            described.append({
                "kind": session.origin.kind,
                "role": session.origin.role,
                "place": session.origin.place,
                "library": session.origin.library,
                "input_wait": (session.input_calls, session.input_ns, session.input_max_ns),
                "sessions": session.n_sessions,
                "within": None if within is None else (within.session.index, within.owner, within.phase, within.detail),
                "asked_executors": sorted(session.asked_executors),
                "executors": list(session.executors.values()),
                "tensorflow_hooks": sorted(session.tensorflow_hooks),
                "operations_added": session.operations_added,
            })
        return described

    cdef int read_session_info(self, int64_t number) except -1:
        """Updates the executors of an open session, and the growth of its graph."""
        cdef Caller caller = self.callers[number]
        cdef SessionStats session = caller.stats
        found = caller.session_info()
        if not found:
            return 0
        session.asked_executors.add(found["asked"])
        for plan in found["plans"]:
            # A model may be recompiled for another runner, so both are kept.
            runner = plan["executor"] if session.origin.library == "keras" else ""
            key = (tuple(plan["fetches"]), tuple(plan["feeds"]), runner)
            if key in session.executors or len(session.executors) < MAX_EXECUTORS:
                session.executors[key] = plan
        if caller.operations is not None and found["operations"] > caller.operations:
            session.operations_added += found["operations"] - caller.operations
        caller.operations = found["operations"]
        return 0

    def fetch_estimates(self):
        """Returns the estimated cost of the hooks' fetches, as a list with a dictionary for each hook that fetches.

        Their keys: session, owner, calls, total_ns, basis, and `of`: the nanoseconds by the runtime's row that contains
        them. `basis` is "compared" if the runtime's medians with and without the fetches are compared, and "counted" if
        each run has the fetches, so that only the number of values is known.
        """
        cdef dict estimates = {
            hook: {**estimate, "of": dict(estimate["of"])} for hook, estimate in self.past_estimates.items()
        }
        self.flush()
        self.add_estimates(estimates, self.runtime_stats_by_run)
        return list(estimates.values())

    cdef int add_estimates(self, dict estimates, dict runtime_stats_by_run) except -1:
        """Adds the estimates for some of the runtime's statistics, by key of a hook."""
        cdef SpanStats stats
        medians = {}
        details = {}
        for (fetches, hooks), (stats, *_) in runtime_stats_by_run.items():
            if stats.c.times.count:
                medians[fetches, hooks] = (fs_histogram_quantile(&stats.c.times, 0.5), stats.c.times.count)
                details[fetches] = stats.detail
        for (fetches, hooks), (median, calls) in medians.items():
            if not hooks:
                continue
            # Use the runs with fewer hooks that have the most hooks. The difference is the cost of the missing hooks.
            fewer = [
                other for (its_fetches, other) in medians
                if its_fetches == fetches and len(other) < len(hooks) and set(other) <= set(hooks)
            ]
            known = max(fewer, key=len) if fewer else None
            for hook in hooks:
                session, owner = hook
                estimate = estimates.setdefault(
                    hook,
                    {"session": session, "owner": owner, "calls": 0, "total_ns": 0, "basis": "compared", "of": {}},
                )
                if known is None:
                    cost = self.counted_cost(hook)
                    estimate["basis"] = "counted"
                elif hook in known:
                    cost = self.compared_cost(medians, fetches, known, hook)
                else:
                    cost = max(0.0, median - medians[fetches, known][0]) / (len(hooks) - len(known))
                estimate["calls"] += calls
                estimate["total_ns"] += <int64_t> (cost * calls)
                detail = details[fetches]
                estimate["of"][detail] = estimate["of"].get(detail, 0) + <int64_t> (cost * calls)
        return 0

    cdef double counted_cost(self, object hook) except? -1.0:
        """Returns the cost of a hook's fetches in a run, based on the number of their values, in nanoseconds."""
        return self.values_fetched.get(hook, 1) * self.value_ns

    cdef double compared_cost(self, dict medians, object fetches, tuple hooks, object hook) except? -1.0:
        """Returns the cost of a hook's fetches in nanoseconds, by comparing runs with and without this hook."""
        cdef tuple others = tuple([other for other in hooks if other != hook])
        if (fetches, hooks) in medians and (fetches, others) in medians:
            return max(0.0, medians[fetches, hooks][0] - medians[fetches, others][0])
        return self.counted_cost(hook)

    def step_buckets(self):
        """Returns the histogram of step times as a list of (from, to, count), in nanoseconds, without empty buckets."""
        cdef int64_t low, high
        cdef int i
        buckets = []
        self.flush()
        for i in range(FS_BUCKETS):
            if self.log.steps.times.buckets[i]:
                fs_histogram_bounds(i, &low, &high)
                buckets.append((low, high, self.log.steps.times.buckets[i]))
        return buckets

    cdef dict event(self, const fs_span_event* event):
        cdef SpanStats stats = None if event.stats < 0 else self.stats_by_id[event.stats]
        return {
            "owner": SESSION if stats is None else stats.owner,
            "phase": stats.phase if stats is not None else "step" if event.stats == -1 else AROUND,
            "start_ns": event.start,
            "duration_ns": event.duration,
            "step": event.step,
            "thread": event.thread,
        }

    def slow_steps(self):
        """Returns the longest steps, longest first.

        Returns:
          List of dictionaries: step, duration_ns, and spans as returned by `trace`. The first span is the step itself.
        """
        cdef fs_slow_step* slow
        cdef int i, j
        self.flush()
        steps = []
        for i in range(self.log.n_slow):
            slow = &self.log.slow[i]
            spans = [self.event(&slow.events[j]) for j in range(slow.n_events)]
            steps.append({"step": slow.step, "duration_ns": slow.duration, "spans": spans})
        return sorted(steps, key=lambda step: -step["duration_ns"])

    def trace(self):
        """Returns the spans of a sample of steps, in the order of the steps.

        Returns:
          List of dictionaries: owner, phase, start_ns, duration_ns, step, thread. The phase of a step itself is "step".
        """
        cdef int i
        self.flush()
        return [self.event(&self.log.events[i]) for i in range(self.log.n_events)]

    @property
    def steps_begun(self):
        """Number of steps so far, including skipped ones and the current one."""
        return self.log.begun

    @property
    def sampled_every(self):
        """The interval of the trace in steps. The trace contains every step whose number is a multiple of it."""
        self.flush()
        return self.log.stride

    @property
    def trace_capacity(self):
        """Maximum number of spans in the trace."""
        return FS_TRACE_EVENTS

    cdef int32_t threads(self) noexcept:
        cdef int32_t count = 0
        cdef fs_thread_trace* trace = self.traces
        while trace is not NULL:
            count += 1
            trace = trace.next
        return count

    def __sizeof__(self):
        return (
            sizeof(fs_span_log)
            + len(self.stats_by_id) * sizeof(fs_span_stats)
            + self.threads() * sizeof(fs_thread_trace)
        )


OTHER_FETCHES = "other fetches"
cdef object OTHER_SESSIONS = SessionOrigin("other sessions")

# Maximum number of pairs (fetches of a caller, hooks with fetches in the run) with their own statistics.
cdef Py_ssize_t MAX_RUNTIME_STATS = 64
# Maximum numbers of session origins, and of ended sessions' fetches per origin, with their own statistics.
cdef Py_ssize_t MAX_SESSIONS = 32
cdef Py_ssize_t MAX_KEPT_FETCHES = 32
# The description of fetches is truncated to about this many characters.
cdef Py_ssize_t DESCRIPTION_LENGTH = 48

# The types of fetches without parts. They are cached because each recorded run creates the key.
cdef set leaf_types = set()


cdef object fetches_key(object fetches):
    """Returns a key that is the same for the same elements in the same structure, even in a new object."""
    cdef object kind = type(fetches)
    if kind in leaf_types:
        return id(fetches)
    if kind is str:
        return fetches
    # A structure may contain itself.
    Py_EnterRecursiveCall(" in the fetches of a run")
    try:
        if isinstance(fetches, (list, tuple)):
            return (kind, *[fetches_key(fetch) for fetch in fetches])
        if isinstance(fetches, Mapping):
            return (kind, *[(fetches_key(key), fetches_key(fetch)) for key, fetch in fetches.items()])
        if is_dataclass(fetches):
            return (kind, *[fetches_key(getattr(fetches, field.name)) for field in fields(fetches)])
        if hasattr(kind, "__attrs_attrs__"):
            return (kind, *[fetches_key(getattr(fetches, field.name)) for field in kind.__attrs_attrs__])
    finally:
        Py_LeaveRecursiveCall()
    leaf_types.add(kind)
    return id(fetches)


def describe(fetches):
    """Describes fetches as a program would write them, in about 50 characters: "[train_op, loss]".

    Args:
      fetches: tensors, operations or names, in any structure; None.

    Returns:
      The text, or "" for None.
    """
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
    elif hasattr(type(fetches), "__attrs_attrs__"):
        parts = [describe(getattr(fetches, field.name)) for field in type(fetches).__attrs_attrs__]
        begin, end = type(fetches).__name__ + "(", ")"
    elif isinstance(getattr(fetches, "name", None), str):
        return fetches.name.removesuffix(":0")
    else:
        return type(fetches).__name__
    for i in range(len(parts)):
        length += len(parts[i])
        if i > 0 and length > DESCRIPTION_LENGTH:
            parts[i:] = [f"… {len(parts) - i} more"]
            break
    return begin + ", ".join(parts) + end


cdef class HookStats:
    """The statistics of a hook."""


cdef class SpanRegistry(Recording):
    """A recording to which statistics can be added."""

    def __cinit__(self, *args, **kwargs):
        self.stats_by_name = {}
        self.hooks = {}
        self.sessions_by_origin = {}
        self.free_runtime_stats = []
        self.description_guard = empty_context

    cdef SpanStats stats_of(self, SessionStats session, str owner, str phase, str detail):
        """Returns the statistics of a phase. Creates them the first time."""
        key = (session.index, owner, phase, detail)
        cdef SpanStats stats = self.stats_by_name.get(key)
        if stats is None:
            stats = self.stats_by_name[key] = self.new_stats(session, owner, phase, detail)
        return stats

    cdef SpanStats new_stats(self, SessionStats session, str owner, str phase, str detail):
        cdef SpanStats stats = SpanStats()
        stats.session = session
        stats.owner = owner
        stats.phase = phase
        stats.detail = detail
        stats.c.id = <int32_t> len(self.stats_by_id)
        self.stats_by_id.append(stats)
        return stats

    # Methods for sessions.

    cdef SessionStats new_session(self, object origin):
        cdef SessionStats session = SessionStats()
        session.index = <int32_t> len(self.sessions)
        session.origin = origin
        session.hook_names = {SESSION}  # A hook's class may have that name.
        session.tensorflow_hooks = set()
        session.kept_fetches = set()
        session.executors = {}
        session.asked_executors = set()
        session.feed_stats = self.stats_of(session, SESSION, "feed conversion", "")
        session.fetch_stats = self.stats_of(session, SESSION, "fetch conversion", "")
        session.dispatch_stats = self.stats_of(session, SESSION, "hook dispatch", "")
        session.other_runtime = self.stats_of(session, SESSION, RUNTIME, OTHER_FETCHES)
        session.other_runtime.begins_steps = True
        self.sessions.append(session)
        return session

    cdef SessionStats session_of(self, int64_t caller):
        cdef Caller known = self.callers.get(caller)
        return self.no_session if known is None else known.stats

    cdef SpanStats enclosing_span(self):
        """Returns this thread's current span if this recorder records it, or None."""
        return None

    def new_caller(self, origin=None, session_info=dict):
        """Registers a session or loop. Sessions with the same origin share their statistics.

        Args:
          origin: the `SessionOrigin`, or None.
          session_info: function that returns a dictionary: `asked`, the session's executor mode; `plans`, a list of
            `PlanExecutor`s as dictionaries; `operations`, the size of the graph. Empty after the session is deleted.

        Returns:
          The caller's number, from 1. It isn't reused, unlike the identity of a session's fetches.
        """
        cdef SessionStats session
        cdef Caller caller = Caller()
        origin = NO_ORIGIN if origin is None else origin
        session = self.no_session if origin is NO_ORIGIN else self.sessions_by_origin.get(origin)
        if session is None and len(self.sessions) >= MAX_SESSIONS:
            origin = OTHER_SESSIONS
            session = self.sessions_by_origin.get(origin)
        if session is None:
            session = self.sessions_by_origin[origin] = self.new_session(origin)
        if session.within is None and session is not self.no_session:
            session.within = self.enclosing_span()
        session.n_sessions += 1
        self.n_callers += 1
        caller.stats = session
        caller.session_info = session_info
        self.callers[self.n_callers] = caller
        self.read_session_info(self.n_callers)
        return self.n_callers

    cdef int end_caller(self, int64_t caller) except -1:
        """Releases a session's graph and fetches. Their statistics become rows of its origin, and estimates."""
        cdef SpanStats stats, kept
        cdef SessionStats session = self.session_of(caller)
        cdef list keys = [key for key in self.runtime_stats_by_run if key[0][0] == caller]
        if caller in self.callers:
            self.read_session_info(caller)
            del self.callers[caller]
        self.flush()
        self.add_estimates(self.past_estimates, {key: self.runtime_stats_by_run[key] for key in keys})
        for key in keys:
            stats, _ = self.runtime_stats_by_run.pop(key)
            if stats.detail in session.kept_fetches or len(session.kept_fetches) < MAX_KEPT_FETCHES:
                session.kept_fetches.add(stats.detail)
                kept = self.stats_of(session, SESSION, RUNTIME, stats.detail)
            else:
                kept = session.other_runtime
            fs_histogram_merge(&kept.c.times, &stats.c.times)
            memset(&stats.c.times, 0, sizeof(stats.c.times))
            self.free_runtime_stats.append(stats)
        return 0

    # Methods for hooks.

    cdef HookStats stats_of_hook(self, object hook):
        cdef HookStats known = self.hooks.get(id(hook))
        return known if known is not None else self.register(hook)

    def register(self, hook, caller=0):
        """Names a hook by its class, with a number if another hook of the session has that name.

        Args:
          hook: the hook.
          caller: number of its session or loop, or 0 for none.

        Returns:
          The `HookStats`. An already registered hook gets the same one.
        """
        cdef HookStats known = self.hooks.get(id(hook))
        cdef SessionStats session = self.session_of(caller)
        if known is not None:
            return known
        known = HookStats()
        kind = getattr(hook, "profile_name", None) or type(hook).__name__
        name, number = kind, 1
        while name in session.hook_names:
            number += 1
            name = f"{kind} #{number}"
        session.hook_names.add(name)
        known.hook = hook
        known.name = name
        known.session = session
        known.key = (session.index, name)
        known.before_run = self.stats_of(session, name, "before_run", "")
        known.after_run = self.stats_of(session, name, "after_run", "")
        if type(hook).__module__.startswith("tensorflow."):
            session.tensorflow_hooks.add(kind)
        self.hooks[id(hook)] = known
        return known

    def forget(self, hooks, caller=0):
        """Releases hooks and their session. Hooks with the same classes in a later session get the same names.

        Args:
          hooks: the hooks.
          caller: number of the session or loop, whose fetches are also released, or 0 for none.
        """
        cdef HookStats known
        for hook in hooks:
            known = self.hooks.pop(id(hook), None)
            if known is not None:
                known.session.hook_names.discard(known.name)
        if caller:
            self.end_caller(caller)

    # Methods for the runtime.

    cdef SpanStats runtime_stats(self, int64_t caller, object fetches, tuple names):
        """Returns the runtime's statistics for a caller's fetches, in runs in which hooks with these keys also fetch."""
        cdef SessionStats session
        cdef SpanStats stats
        key = ((caller, fetches_key(fetches)), names)
        known = self.runtime_stats_by_run.get(key)
        if known is None:
            session = self.session_of(caller)
            if len(self.runtime_stats_by_run) >= MAX_RUNTIME_STATS:
                return session.other_runtime
            # The fetches are kept, because the id of a deleted object may be reused.
            stats = (
                self.free_runtime_stats.pop() if self.free_runtime_stats
                else self.new_stats(session, SESSION, RUNTIME, "")
            )
            stats.session = session
            stats.begins_steps = True
            with self.description_guard:
                stats.detail = describe(fetches)
            known = self.runtime_stats_by_run[key] = (stats, fetches)
        return known[0]

    def note_values(self, tuple key, int values):
        """Records the number of values that a hook fetches in a run in which it fetches any.

        Args:
          key: the key of its `HookStats`.
          values: the number of values.
        """
        self.values_fetched[key] = values
