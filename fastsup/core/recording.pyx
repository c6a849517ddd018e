"""What was recorded, as numbers: histograms made into quantiles, spans into dictionaries, fetches into estimates."""

from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free

from fastsup.core.spans cimport (
    FS_BUCKETS, FS_TRACE_EVENTS, fs_histogram, fs_histogram_bounds, fs_histogram_merge, fs_histogram_quantile,
    fs_slow_step, fs_trace_flush
)

SESSION = "session"
RUNTIME = "runtime"


cdef class SpanStats:
    """The times of one phase of a hook, or of the session."""


cdef class SessionStats:
    """What is recorded of the sessions that one place in the program opens."""


# How many combinations of fetches and feeds are kept of the sessions that one place opens.
cdef Py_ssize_t MAX_EXECUTORS = 64


cdef dict row_of(int32_t session, str owner, str phase, str detail, SpanStats stats):
    return {"session": session, "owner": owner, "phase": phase, "detail": detail, **describe(&stats.c.times)}


cdef dict describe(const fs_histogram* times):
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


cdef class Recording:
    """What a recorder has recorded: to be looked at, also while it records."""

    def __cinit__(self, *args, **kwargs):
        self.log = <fs_span_log*> calloc(1, sizeof(fs_span_log))
        if self.log is NULL:
            raise MemoryError()
        self.all_stats = []
        self.sessions = []
        self.callers = {}
        self.past_estimates = {}

    def __dealloc__(self):
        cdef fs_thread_trace* trace = self.traces
        cdef fs_thread_trace* following
        while trace is not NULL:
            following = trace.next
            free(trace)
            trace = following
        free(self.log)

    cdef int flush(self) except -1:
        """Has everything recorded that is only noted down so far."""
        cdef fs_thread_trace* trace = self.traces
        while trace is not NULL:
            fs_trace_flush(trace)
            trace = trace.next
        return 0

    def snapshot(self):
        """What was recorded so far, as numbers.

        Returns:
          Dictionary: steps, skipped_steps, wall_ns, threads, profiler_ns, unaccounted_ns, `spans` (a list of
          dictionaries with session, owner, phase, detail and times), step_time and between_steps (times), `fetches`
          (what the hooks' fetches cost, by an estimate: dictionaries with session, owner, calls, total_ns and basis), and
          `sessions` (dictionaries, in the order of the numbers that the others have for `session`).
        """
        cdef fs_span_log* log = self.log
        cdef SpanStats stats, runtime
        self.flush()
        rows = []
        runtimes = {}
        accounted = log.between.times.total
        for stats in self.all_stats:
            accounted += stats.c.times.total
            if not stats.c.times.count:
                continue
            if stats.owner == SESSION and stats.phase == RUNTIME:
                # The same fetches of several sessions, and with fetches of different hooks.
                runtime = runtimes.setdefault((stats.of.index, stats.detail), SpanStats())
                fs_histogram_merge(&runtime.c.times, &stats.c.times)
            else:
                rows.append(row_of(stats.of.index, stats.owner, stats.phase, stats.detail, stats))
        for (session, detail), runtime in runtimes.items():
            rows.append(row_of(session, SESSION, RUNTIME, detail, runtime))
        steps = log.steps.times.count
        # What was taken off is known; the rest of the profiler's cost is what spans and steps have cost when calibrated.
        beside = log.spans * self.cost_beside_span + steps * self.cost_beside_step
        rest = log.wall - accounted - log.taken_off
        own = log.taken_off + <int64_t> max(0.0, min(beside, rest))
        return {
            "steps": steps,
            "skipped_steps": min(log.begun, log.skip),
            "wall_ns": log.wall,
            "threads": self.threads(),
            "profiler_ns": own,
            "unaccounted_ns": log.wall - accounted - own,
            "spans": rows,
            "step_time": describe(&log.steps.times),
            "between_steps": describe(&log.between.times),
            "fetches": self.fetch_estimates(),
            "sessions": self.described_sessions(),
        }

    def described_sessions(self):
        """The sessions, by the places that open them: dictionaries."""
        cdef SessionStats session
        for caller in list(self.callers):
            self.note_facts(caller)
        described = []
        for session in self.sessions:
            within = session.within
            described.append({
                "kind": session.opened.kind,
                "role": session.opened.role,
                "place": session.opened.place,
                "sessions": session.sessions,
                "within": None if within is None else (within.of.index, within.owner, within.phase, within.detail),
                "asked_executors": sorted(session.asked_executors),
                "executors": list(session.executors.values()),
                "tensorflow_hooks": sorted(session.foreign),
                "operations_added": session.operations_added,
            })
        return described

    cdef int note_facts(self, int64_t caller) except -1:
        """Asks a session in which executors it runs, and how much its graph has grown."""
        cdef SessionStats session
        session, facts, operations = self.callers[caller]
        found = facts()
        if not found:
            return 0
        session.asked_executors.add(found["asked"])
        for plan in found["plans"]:
            key = (tuple(plan["fetches"]), tuple(plan["feeds"]))
            if key in session.executors or len(session.executors) < MAX_EXECUTORS:
                session.executors[key] = plan
        if operations is not None and found["operations"] > operations:
            session.operations_added += found["operations"] - operations
        self.callers[caller] = (session, facts, found["operations"])
        return 0

    def fetch_estimates(self):
        """What the hooks' fetches cost: the runtime's median with them less that without them, times the runs."""
        cdef dict found = {
            name: {**entry, "of": dict(entry["of"])} for name, entry in self.past_estimates.items()
        }
        self.flush()
        self.add_estimates(found, self.all_runtime_stats)
        return list(found.values())

    cdef int add_estimates(self, dict found, dict all_runtime_stats) except -1:
        """Adds the estimates for some statistics to those found so far, by hook."""
        cdef SpanStats stats
        medians = {}
        details = {}
        for (caller, names), (stats, *_) in all_runtime_stats.items():
            if stats.c.times.count:
                medians[caller, names] = (fs_histogram_quantile(&stats.c.times, 0.5), stats.c.times.count)
                details[caller] = stats.detail
        for (caller, names), (median, calls) in medians.items():
            if not names:
                continue
            # The runs that had most of the same fetches: what is left is the share of the hooks that they lack.
            fewer = [
                other for (its_caller, other) in medians
                if its_caller == caller and len(other) < len(names) and set(other) <= set(names)
            ]
            known = max(fewer, key=len) if fewer else None
            for name in names:
                session, owner = name
                entry = found.setdefault(
                    name,
                    {"session": session, "owner": owner, "calls": 0, "total_ns": 0, "basis": "compared", "of": {}},
                )
                if known is None:
                    cost = self.values_fetched.get(name, 1) * self.value_ns
                    entry["basis"] = "counted"
                elif name in known:
                    # Known from other runs.
                    cost = found_cost(medians, caller, known, name, self)
                else:
                    cost = max(0.0, median - medians[caller, known][0]) / (len(names) - len(known))
                entry["calls"] += calls
                entry["total_ns"] += <int64_t> (cost * calls)
                # The runtime's rows that it is a part of.
                detail = details[caller]
                entry["of"][detail] = entry["of"].get(detail, 0) + <int64_t> (cost * calls)
        return 0

    def step_buckets(self):
        """The histogram of step times: a list of (from, to, count), in nanoseconds, of those that aren't empty."""
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
        cdef SpanStats stats = None if event.stats < 0 else self.all_stats[event.stats]
        return {
            "owner": SESSION if stats is None else stats.owner,
            "phase": "step" if stats is None else stats.phase,
            "start_ns": event.start,
            "duration_ns": event.duration,
            "step": event.step,
            "thread": event.thread,
        }

    def slow_steps(self):
        """The longest steps, longest first: dictionaries with step, duration_ns and spans, the step's own first."""
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
        """The spans of a sample of steps, in the order of the steps: dictionaries."""
        cdef int i
        self.flush()
        return [self.event(&self.log.events[i]) for i in range(self.log.n_events)]

    @property
    def steps_begun(self):
        """Steps so far, with those that are left out and the one under way."""
        return self.log.begun

    @property
    def sampled_every(self):
        """Of how many steps one is in the trace."""
        self.flush()
        return self.log.stride

    @property
    def trace_capacity(self):
        """How many spans the trace can hold at most."""
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
            sizeof(fs_span_log) + len(self.all_stats) * sizeof(fs_span_stats) + self.threads() * sizeof(fs_thread_trace)
        )


cdef double found_cost(dict medians, object caller, tuple names, object name, Recording recorded) except? -1.0:
    """What a hook's fetches cost in runs of which others with fewer hooks are known; else by their number."""
    cdef tuple without = tuple([other for other in names if other != name])
    if (caller, names) in medians and (caller, without) in medians:
        return max(0.0, medians[caller, names][0] - medians[caller, without][0])
    return recorded.values_fetched.get(name, 1) * recorded.value_ns
