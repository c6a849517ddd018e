"""A loop over any step function, with hooks that are called when they are due and cost nothing when they are not."""

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport INT64_MAX, int64_t

from fastsup.core.recorder cimport Recorder, end_scope, fs_scope, fs_span_enter, fs_span_leave, fs_track, program_wide
from fastsup.core.recorder import recorder_of
from fastsup.core.schedule cimport Scheduled, ScheduleTable

# How many steps another thread may have to wait for the interpreter.
cdef int64_t YIELD_STEPS = 64


cdef class LoopHook(Scheduled):
    """Something to do in a `StepLoop`, on the steps on which it says that it is due.

    A subclass overrides the callbacks, and says when it is next due with `due_at_run`, `due_at_step`, `due_at_time`
    or `due_every_run`, in `begin` for the first time and in `after_step` for each next one. It stays due until it
    says otherwise.
    """

    def begin(self, loop):
        """Called once before the first step."""

    def after_step(self, loop, value):
        """Called after each step on which the hook is due.

        Args:
          loop: the `StepLoop`.
          value: what the step function returned.
        """

    def end(self, loop):
        """Called once after the last step; not when the step function or a hook raised."""


cdef class Loop:
    """Calls a step function until it is told to stop.

    Args:
      step: a callable without arguments.
      hooks: iterable of `Hook`.
      max_steps: steps after which the loop ends, or None.
      initial_step: value of the global step before the first step.
      profiler: `fastsup.HookProfiler` that records what hooks and steps cost; None for the one that is on for the whole
        program, if there is one.

    Raises:
      TypeError: `step` can't be called, a hook isn't a `Hook`, or `profiler` no profiler.
      ValueError: `max_steps` is negative.
    """

    def __init__(self, step, hooks=(), max_steps=None, initial_step=0, profiler=None):
        if not callable(step):
            raise TypeError(f"step must be callable, got {step!r}")
        if max_steps is not None and max_steps < 0:
            raise ValueError(f"max_steps must not be negative, got {max_steps!r}. Pass None for a loop without limit.")
        hooks = tuple(hooks)
        for hook in hooks:
            if not isinstance(hook, LoopHook):
                raise TypeError(f"hooks must be fastsup.core.Hook objects, got {hook!r}")
        self.recorder = recorder_of(profiler)
        self.step_function = step
        self.table = ScheduleTable(hooks)
        self.max_steps = INT64_MAX if max_steps is None else max_steps
        self.first_step = initial_step
        self.steps_done = 0
        self.stop_requested = False

    @property
    def hooks(self):
        """The hooks, in the order in which they are called."""
        return self.table.entries

    @property
    def steps(self):
        """Steps done by this loop."""
        return self.steps_done

    @property
    def global_step(self):
        """`initial_step` and the steps done since."""
        return self.first_step + self.steps_done

    def request_stop(self):
        """Ends the loop after the step that is under way."""
        self.stop_requested = True

    def should_stop(self):
        """Whether the loop was asked to stop, or has done its steps."""
        return self.stop_requested or self.steps_done >= self.max_steps

    def run(self):
        """Runs to the end: `max_steps` done, a stop requested, or StopIteration raised by the step function.

        Returns:
          What the last step returned; None if there was none.

        Raises:
          Whatever the step function or a hook raises, but for the step function's StopIteration.
        """
        self.begin_recording()
        try:
            return self.run_steps()
        finally:
            self.end_recording()

    cdef object run_steps(self):
        cdef object value = None
        cdef object step = self.step_function
        cdef int64_t run
        for hook in self.table.entries:
            hook.begin(self)
        while not self.stop_requested and self.steps_done < self.max_steps:
            if self.recording is not None:
                try:
                    value = self.recorded_step(step)
                except StopIteration:
                    break
            else:
                try:
                    value = step()
                except StopIteration:
                    break
                run = self.steps_done
                self.steps_done = run + 1
                if self.table.is_due(run, self.first_step + run + 1):
                    self.call_due(run, value, NULL)
            # A loop in C otherwise never lets a signal handler run, nor, around a step in C, another thread.
            PyErr_CheckSignals()
            if self.steps_done % YIELD_STEPS == 1:
                with nogil:
                    pass
        for hook in self.table.entries:
            hook.end(self)
        return value

    cdef int begin_recording(self) except -1:
        self.recording = self.recorder
        if self.recording is None and program_wide()[0] is not NULL:
            self.recording = <Recorder> program_wide()[0]
        if self.recording is not None:
            self.recording.interrupt()
            for hook in self.table.entries:
                self.recording.register(hook)
        return 0

    cdef int end_recording(self) except -1:
        if self.recording is not None:
            self.recording.forget(self.table.entries)
            self.recording.interrupt()
            self.recording = None
        return 0

    cdef object recorded_step(self, object step):
        """A step, with the hooks that are due after it, as one of the profile."""
        cdef fs_scope scope
        cdef Recorder recorder = self.recording
        cdef int64_t run = self.steps_done
        recorder.begin(&scope, True)
        try:
            fs_span_enter(scope.track, &recorder.runtime_alone(None).c)
            try:
                value = step()
            except StopIteration:
                scope.track.counts = False
                raise
            fs_span_leave(scope.track)
            self.steps_done = run + 1
            if self.table.is_due(run, self.first_step + run + 1):
                self.call_due(run, value, scope.track)
        finally:
            end_scope(&scope)
        return value

    cdef int call_due(self, int64_t run, object value, fs_track* track) except -1:
        cdef Py_ssize_t i
        for i in range(len(self.table.entries)):
            if self.table.entry_is_due(i, run, self.first_step + run + 1):
                if track is not NULL:
                    fs_span_enter(track, &self.recording.cell_of_step(self.table.entries[i]).c)
                self.table.entries[i].after_step(self, value)
                if track is not NULL:
                    fs_span_leave(track)
        self.table.reload()
        return 0
