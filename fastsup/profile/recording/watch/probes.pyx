"""Records calls that are steps themselves: passes, single calls, and functions within them.

A pass is a call that runs all steps of a loop itself, such as Keras's `fit`, and calls callbacks. At any moment, it is
in its own code, in a callback's method, or in its function for each batch. Python functions that replace Keras's
methods (keras_passes.py) report which, because calling them costs less than calling compiled ones.
"""

import functools
import sys
import weakref

from cpython.ref cimport PyObject

from fastsup.core.probe cimport Probe, fs_scope, probe_here
from fastsup.profile.recording.recorder cimport Recorder, RecorderProbe, new_recorder_probe, recorded_here
from fastsup.profile.recording.statistics cimport (
    FS_ASIDE, FS_PASS, FS_STEP, HookStats, SpanStats, fs_scope_begin, fs_scope_end, fs_span_charge_to, fs_span_enter,
    fs_span_leave, fs_step_switch, fs_step_uncount, fs_thread_trace, trace_of_this_thread
)

from fastsup.core.probe import RECORDS_METHOD, program_profiler_now
from fastsup.profile.recording.phases import IN_A_THREAD, PASS_EPOCHS, PASS_LOOP, PASS_SETUP
from fastsup.profile.recording.statistics import SESSION
from fastsup.profile.recording.watch.timed_method import timed_method

# Maximum number of call sites whose probe is kept.
cdef Py_ssize_t MAX_PLACES = 64


cdef class CallProbe(RecorderProbe):
    """Records the calls of one function from one line of the program, each as a step."""

    cdef int setup_calls(self, object recorder, object origin, object session_info, str phase, str detail) except -1:
        """Starts recording."""
        recorder.interrupt_here()
        self.setup(recorder, recorder.new_caller(origin, session_info), (), False)
        self.main_stats = self.recorder.stats_of(self.session, SESSION, phase, detail)
        self.main_stats.begins_steps = True
        return 0

    cdef object make(self, object function, tuple args, dict kwargs):
        """Runs a call as a step."""
        cdef fs_scope scope
        self.begin(&scope)
        try:
            self.enter(self.main_stats)
            result = function(*args, **kwargs)
            self.called()
            self.leave()
        finally:
            self.end(&scope, True)
        return result

    cdef int called(self) except -1:
        """Called after a call has returned, when the part to charge is known."""
        return 0

    cdef int charge_to(self, SpanStats stats) except -1:
        """Charges the current call to other statistics."""
        fs_span_charge_to(trace_of_this_thread(self.recorder), &stats.c)
        return 0


def recorded_calls(method, str phase not None, key_of, origin_of, session_info_of, is_a_step=None):
    """Wraps a method of another library's object. Each call is a step if nothing is recorded around it.

    Args:
      method: the method.
      phase: the phase of the rows of the calls.
      key_of: function of the object that returns a key that distinguishes its calls from others, or None to use its
        type and the place of the call.
      origin_of: function of the object and a call's frame that returns the call's `SessionOrigin`.
      session_info_of: function of a weak reference to the object that returns the same as `session_info` of
        `Recorder.new_caller`.
      is_a_step: function without arguments that returns False if a call isn't a step, or None if each call is one.
    """
    # The probes by key. The keys are kept alive, because the id of a deleted object may be reused.
    cdef dict probes = {}

    @functools.wraps(method)
    def recorded(self, *args, **kwargs):
        cdef CallProbe probe
        recorder = program_profiler_now()
        if not isinstance(recorder, Recorder) or probe_here() is not None or is_a_step is not None and not is_a_step():
            return method(self, *args, **kwargs)
        frame = sys._getframe(0)
        key = (type(self), frame.f_code, frame.f_lineno) if key_of is None else key_of(self)
        probe = probes.get(key)
        if probe is None or probe.recorder is not recorder:
            if len(probes) >= MAX_PLACES:
                probes.clear()
            probe = CallProbe.__new__(CallProbe)
            info = functools.partial(session_info_of, weakref.ref(self))
            probe.setup_calls(recorder, origin_of(self, frame), info, phase, "")
            probes[key] = probe
        return probe.make(method, (self, *args), kwargs)

    setattr(recorded, RECORDS_METHOD, method)
    return recorded


def timed(function, str phase, detail_of=None, bint of_session=False):
    """Wraps any function as a phase of the calling callback, or of the session. Recursive calls are recorded once.

    Args:
      function: the function.
      phase: name of the phase.
      detail_of: function of the surrounding phase (or "") and the call's arguments that returns the detail of the row,
        or None.
      of_session: True for a phase of the session, even within a callback.
    """
    @functools.wraps(function)
    def timed_function(*args, **kwargs):
        cdef RecorderProbe here = recorded_here()
        cdef SpanStats around
        if here is None:
            return function(*args, **kwargs)
        around = here.recorder.enclosing_span()
        if around is not None and around.phase == phase:
            return function(*args, **kwargs)
        owner = SESSION if around is None or of_session else around.owner
        detail = "" if detail_of is None else detail_of("" if around is None else around.phase, *args, **kwargs)
        return here.call(here.recorder.stats_of(here.session, owner, phase, detail), function, args, kwargs)

    return timed_function


cdef inline PassProbe pass_here():
    """Returns this thread's current pass if nothing else is recorded within it now, or None."""
    cdef Probe probe = probe_here()
    return <PassProbe> probe if isinstance(probe, PassProbe) else None


cdef class PassProbe(RecorderProbe):
    """A context manager that records a pass.

    Args:
      recorder: the `Recorder`.
      origin: its `SessionOrigin`.
      function: name of the function that the pass calls for each batch.
      session_info: as for `Recorder.new_caller`, with the executor of that function.
    """

    def __init__(self, Recorder recorder not None, origin, str function not None, session_info):
        self.setup(recorder, recorder.new_caller(origin, session_info), (), False)
        self.setup_stats = self.stats_of_phase(PASS_SETUP)
        self.loop_stats = self.stats_of_phase(PASS_LOOP)
        self.epochs_stats = self.stats_of_phase(PASS_EPOCHS)
        self.function_stats = self.stats_of_phase(function)
        self.of_threads = new_recorder_probe(recorder, 0, None, False)
        self.timed_methods = []
        self.inputs = []

    def __enter__(self):
        cdef PassProbe around = pass_here()
        if self.entered:
            raise RuntimeError("The pass has already started.")
        if around is not None and around.in_function:
            # The call for a batch reached the end of the input, and an evaluation follows.
            around.settle()
        if around is not None:
            around.leave_loop()
        fs_scope_begin(&self.scope, trace_of_this_thread(self.recorder), <PyObject*> self, FS_PASS)
        self.entered = True
        self.depth = (<fs_thread_trace*> self.scope.trace).depth
        fs_span_enter(<fs_thread_trace*> self.scope.trace, &self.setup_stats.c)
        return self

    def __exit__(self, *error):
        self.entered = False
        self.settle()
        fs_scope_end(&self.scope)
        for method in self.timed_methods:
            method.restore()
        for timed_input, before in () if self.skips_waits else self.inputs:
            self.session.note_input(*timed_input.read().since(before))
        self.inputs = []
        self.timed_methods = []
        self.callback_list = None
        self.close()

    cdef int unwind(self) except -1:
        """Leaves everything that the pass is in, except its own code."""
        cdef fs_thread_trace* trace = <fs_thread_trace*> self.scope.trace
        while trace.depth > self.depth + 1:
            fs_span_leave(trace)
        self.in_function = False
        return 0

    def begin_loop(self, callback_list, names):
        """Called when the loop starts. Records its callbacks' methods from here on. Ignores a loop within the pass."""
        if self.callback_list is not None:
            return
        self.callback_list = callback_list
        self.watch(callback_list.callbacks, names)
        self.unwind()
        fs_span_leave(<fs_thread_trace*> self.scope.trace)
        fs_span_enter(<fs_thread_trace*> self.scope.trace, &self.epochs_stats.c)

    def begin_batch(self):
        """Called when a batch starts."""
        self.unwind()
        fs_step_switch(<fs_thread_trace*> self.scope.trace, FS_STEP, &self.loop_stats.c)
        self.in_batch = True
        if self.skips_waits and not (<fs_thread_trace*> self.scope.trace).muted:
            # Waits in skipped steps are also skipped.
            self.skips_waits = False
            self.inputs = [(timed_input, timed_input.read()) for timed_input, _ in self.inputs]

    def begin_function(self):
        """Called when the loop's function for the batch starts."""
        fs_span_enter(<fs_thread_trace*> self.scope.trace, &self.function_stats.c)
        self.in_function = True

    def end_function(self):
        """Called when that function has returned."""
        if self.in_function:
            self.unwind()

    def end_batch(self):
        """Called when the batch is complete."""
        self.leave_batch()

    def leave_batches(self):
        """Called when an epoch starts or ends, or when the loop ends."""
        self.settle()
        self.leave_loop()

    cdef int leave_batch(self) except -1:
        self.unwind()
        fs_step_switch(<fs_thread_trace*> self.scope.trace, FS_PASS, &self.loop_stats.c)
        self.in_batch = False
        return 0

    cdef int settle(self) except -1:
        """Ends a batch that isn't counted, because the input has ended or the pass failed."""
        if self.in_batch:
            self.unwind()
            fs_step_uncount(<fs_thread_trace*> self.scope.trace)
            self.leave_batch()
        return 0

    cdef int leave_loop(self) except -1:
        """Charges the pass's own code since the last batch to its work between epochs."""
        cdef fs_thread_trace* trace = <fs_thread_trace*> self.scope.trace
        if not self.in_batch and trace.depth == self.depth + 1:
            fs_span_charge_to(trace, &self.epochs_stats.c)
        return 0

    cdef SpanStats stats_of_method(self, object callback, str name, bint aside):
        """Returns the statistics of a callback's method in this pass."""
        cdef HookStats known = self.recorder.stats_of_hook(callback)
        cdef SpanStats stats = self.recorder.stats_of(
            self.session, known.name + IN_A_THREAD if aside else known.name, name, ""
        )
        stats.c.aside = aside
        return stats

    cdef int watch(self, object callbacks, object names) except -1:
        """Records methods of callbacks until the pass ends, except those that Keras leaves empty.

        Callbacks that are already recorded don't change.
        """
        found = [
            callback for callback in callbacks
            if hasattr(callback, "__dict__") and getattr(callback, "profile_name", None) != ""
            and not any(hasattr(value, RECORDS_METHOD) for value in vars(callback).values())
        ]
        self.hooks = (*self.hooks, *found)
        for callback in found:
            self.recorder.register(callback, self.caller)
            for name in names:
                method = getattr(callback, name, None)
                if method is not None and not hasattr(method, "_is_default"):
                    self.timed_methods.append(TimedMethod(self, callback, name, method))
        return 0

    def waits_for(self, timed_input):
        """Counts the wait for an input from now on."""
        if not any(known is timed_input for known, _ in self.inputs):
            self.inputs.append((timed_input, timed_input.read()))
            self.skips_waits = self.skips_waits or (<fs_thread_trace*> self.scope.trace).muted


cdef class TimedMethod:
    """Records a callback's method through a function in the callback's dictionary, while a pass is recorded."""

    def __init__(self, PassProbe probe not None, callback, str name not None, method):
        self.probe, self.callback, self.name, self.method = probe, callback, name, method
        self.stats = probe.stats_of_method(callback, name, False)
        self.replaced = vars(callback).get(name)
        self.placed = vars(callback)[name] = timed_method(self, method)

    def enter(self):
        """Called when the method starts.

        Returns:
          None if it is recorded in this thread's pass; call `leave` afterwards. Otherwise a function to call instead.
        """
        cdef PassProbe here = pass_here()
        cdef SpanStats stats = self.stats
        if here is not self.probe:
            if here is None:
                return self.method if probe_here() is not None else self.call_aside
            stats = here.stats_of_method(self.callback, self.name, False)
        fs_span_enter(<fs_thread_trace*> here.scope.trace, &stats.c)
        return None

    def leave(self):
        """Called when the method has returned or failed."""
        cdef PassProbe here = pass_here()
        if here is not None:
            fs_span_leave(<fs_thread_trace*> here.scope.trace)

    def call_aside(self, *args, **kwargs):
        """Calls the method in another thread of Keras, at the same time as the loop."""
        cdef fs_scope scope
        cdef SpanStats stats = self.probe.stats_of_method(self.callback, self.name, True)
        cdef fs_thread_trace* trace = trace_of_this_thread(self.probe.recorder)
        fs_scope_begin(&scope, trace, <PyObject*> self.probe.of_threads, FS_ASIDE)
        fs_span_enter(trace, &stats.c)
        try:
            return self.method(*args, **kwargs)
        finally:
            fs_scope_end(&scope)

    def restore(self):
        """Restores the callback's own method, unless the program has replaced it."""
        place = vars(self.callback)
        if place.get(self.name) is self.placed:
            if self.replaced is None:
                del place[self.name]
            else:
                place[self.name] = self.replaced


def pass_of_this_thread():
    """Returns this thread's current `PassProbe`, or None, also in a step of something else."""
    return pass_here()


def pass_of_list(callback_list):
    """Returns this thread's `PassProbe` whose loop calls a list of callbacks, or None."""
    cdef PassProbe here = pass_here()
    return here if here is not None and here.callback_list is callback_list else None


def enter_phase(str phase):
    """Called when a part of a batch starts. Returns True if it is recorded; call `leave_phase` afterwards."""
    cdef RecorderProbe here = recorded_here()
    if here is None:
        return False
    stats = here.batch_phases.get(phase)
    if stats is None:
        stats = here.batch_phases[phase] = here.stats_of_phase(phase)
    fs_span_enter(trace_of_this_thread(here.recorder), &(<SpanStats> stats).c)
    return True


def leave_phase():
    """Called when the part is complete."""
    cdef RecorderProbe here = recorded_here()
    if here is not None:
        fs_span_leave(trace_of_this_thread(here.recorder))
