"""The probe of a `fastsup.function`'s calls, with a row for each trace and for the calls that TensorFlow runs."""

import functools
import weakref

from fastsup.eager.calls cimport CachedCall, LiftedCalls, LiftedStep
from fastsup.profile.recording.recorder cimport Recorder
from fastsup.profile.recording.statistics cimport SpanStats, fs_step_uncount, trace_of_this_thread
from fastsup.profile.recording.watch.probes cimport CallProbe

from tensorflow.python.eager import context

from fastsup.core.sessions import PlanExecutor, origin_of_call
from fastsup.eager.function import executor_of
from fastsup.eager.calls import why_not_lifted_here
from fastsup.profile.recording.statistics import RUNTIME, SESSION
from fastsup.profile.recording.phases import BY_TENSORFLOW, FUNCTION_ROLE, TRACING
from fastsup.profile.recording.watch.tracing import signature_text

# Maximum number of one function's traces that have their own rows, and of reasons why TensorFlow runs the function.
cdef Py_ssize_t MAX_ROWS = 32

# The rows of a call before its trace is known, and of traces beyond the limit.
FIRST_CALL = "first call"
OTHER_TRACES = "other traces"


cdef class FunctionProbe(CallProbe):
    """Records the calls of one function."""

    # A weak reference to the function.
    cdef object function
    # The cached call of the last call.
    cdef CachedCall latest
    # For each lifted step, by id: a weak reference to it, and its statistics.
    cdef dict stats_by_step
    # The reasons that have a row.
    cdef set reasons

    cdef int setup_function(self, Recorder recorder, object function, object frame, object gone) except -1:
        self.function = weakref.ref(function, gone)
        self.stats_by_step = {}
        self.reasons = set()
        origin = origin_of_call(f"function {function.__name__}", FUNCTION_ROLE, frame, "fastsup")
        self.setup_calls(recorder, origin, functools.partial(executors_of, self.stats_by_step), RUNTIME, FIRST_CALL)
        return 0

    def __call__(self, function, args, kwargs):
        return self.make(function, args, kwargs)

    def not_lifted(self, function, reason):
        if self.function() is not function:
            return
        if reason is not None or context.executing_eagerly():
            self.charge_to(self.stats_by_tensorflow(why_not_lifted_here() if reason is None else reason))
        else:
            # The call is traced into another function.
            fs_step_uncount(trace_of_this_thread(self.recorder))
            self.charge_to(self.stats_of_phase(TRACING))

    cdef int called(self) except -1:
        cdef LiftedCalls function = self.function()
        cdef CachedCall cached_call = function.latest
        if cached_call is not None and cached_call is not self.latest:
            self.latest = cached_call
            self.main_stats = self.stats_of_trace(cached_call.step)
            self.charge_to(self.main_stats)
        return 0

    cdef SpanStats stats_of_trace(self, LiftedStep step):
        if step is None:
            return self.stats_by_tensorflow(self.function().why_not_lifted)
        known, stats = self.stats_by_step.get(id(step), (None, None))
        if known is not None and known() is step:
            return stats
        if len(self.stats_by_step) >= MAX_ROWS:
            for gone in [key for key, pair in self.stats_by_step.items() if pair[0]() is None]:
                del self.stats_by_step[gone]
        if len(self.stats_by_step) >= MAX_ROWS:
            return self.runtime_stats(OTHER_TRACES)
        stats = self.runtime_stats(signature_text(step.graph.concrete))
        self.stats_by_step[id(step)] = (weakref.ref(step), stats)
        return stats

    cdef SpanStats stats_by_tensorflow(self, str reason):
        """Returns the statistics of calls that TensorFlow runs for one reason."""
        if reason not in self.reasons and len(self.reasons) >= MAX_ROWS:
            return self.runtime_stats(OTHER_TRACES)
        self.reasons.add(reason)
        return self.runtime_stats(f"{BY_TENSORFLOW}: {reason}" if reason else BY_TENSORFLOW)

    cdef SpanStats runtime_stats(self, str detail):
        cdef SpanStats stats = self.recorder.stats_of(self.session, SESSION, RUNTIME, detail)
        stats.begins_steps = True
        return stats


def executors_of(dict stats_by_step):
    """Returns the executors of a function's traces, as required by `Recorder.new_caller`.

    Args:
      stats_by_step: the statistics of its probe.
    """
    cdef LiftedStep step
    cdef SpanStats stats
    plans = []
    for reference, stats in list(stats_by_step.values()):
        step = reference()
        if step is not None:
            on_trial = step.trial is not None and step.chosen is None
            seconds = None if step.trial is None else step.trial.seconds
            plans.append(PlanExecutor((stats.detail,), (), executor_of(step), on_trial, seconds)._asdict())
    return {"asked": "auto", "plans": plans, "operations": 0}


def new_function_probe(Recorder recorder not None, function, frame, dict probes not None):
    """Creates the probe of a function's calls.

    Args:
      recorder: the recorder for the calls.
      function: the function.
      frame: the frame of the first call.
      probes: the probes by id of the function, to which this one is added. It is removed when the function is deleted.
    """
    cdef FunctionProbe probe = FunctionProbe.__new__(FunctionProbe)
    number = id(function)
    probe.setup_function(recorder, function, frame, lambda gone: probes.pop(number, None))
    probes[number] = probe
    return probe
