"""The interface through which sessions and loops report their steps to a profiler. An unrecorded step only pays for a
test.

A session or loop has a `ProbeFinder`, which finds the `Probe` of its next step. The probe has these functions:

    begin, end      a step, or work alongside the steps; `next` does both in a loop
    enter, leave    a part of a step: the runtime's run, a hook's callback, the conversion of values

After an error, parts may stay open; the end of their step also ends them. `fastsup.profile` has the recording profiler.
"""

from contextlib import contextmanager

from cpython.ref cimport PyObject

from fastsup.core.schedule cimport changes

# The attribute, on a function that replaces a library's method while a profiler is on, that holds the method.
RECORDS_METHOD = "_fastsup_records_method"

cdef extern from "spans.h":
    const void* fs_thread() noexcept
    fs_scope* fs_scope_of_thread(fs_scope* scopes, const void* thread) noexcept

cdef fs_scope* scopes_under_way = NULL

# The profiler of the whole program: a pointer for sessions to read, and the reference that keeps it alive.
cdef void* program_profiler = NULL
cdef Profiler program_profiler_held = None
# A NULL profiler, for sessions that must not be recorded.
cdef void* no_profiler = NULL


cdef fs_scope** open_scopes() noexcept:
    return &scopes_under_way


cdef Probe probe_here():
    cdef fs_scope* scope = fs_scope_of_thread(scopes_under_way, fs_thread())
    return None if scope is NULL else <Probe> <PyObject*> scope.probe


cdef int set_program_profiler(Profiler profiler) except -1:
    global program_profiler, program_profiler_held
    replaced = program_profiler_held  # Keep the object alive until the pointer to it is replaced.
    program_profiler_held = profiler
    program_profiler = NULL if profiler is None else <PyObject*> profiler
    # A session's compiled loop then checks whether it is recorded.
    changes()[0] += 1
    return 0


cdef void** address_of_program_profiler() noexcept:
    return &program_profiler


def program_profiler_now():
    """Returns the profiler that is on for the whole program, or None."""
    return program_profiler_held


@contextmanager
def nothing_recorded():
    """Returns a context manager that turns the program's profiler off, for the profiler's own work."""
    before = program_profiler_held
    set_program_profiler(None)
    try:
        yield
    finally:
        set_program_profiler(before)


cdef class EmptyContext:
    """A context manager that does nothing, at less cost than `contextlib.nullcontext`."""

    def __enter__(self):
        pass

    def __exit__(self, *error):
        pass


empty_context = EmptyContext()


cdef class Part:
    """A part of a step. A profiler's subclass has the numbers."""


cdef class Probe:
    """Records the steps of one session or loop. This class records nothing; a profiler has a subclass.

    The parts are None here. A profiler returns the same part object for the same fetches or hook.
    """

    cdef int begin(self, fs_scope* scope) except -1:
        """Starts a step. Unless this raises, the caller must call `end` on every path."""
        return 0

    cdef int end(self, fs_scope* scope, bint is_step) except -1:
        """Ends a step. `is_step` is False if no step ran."""
        return 0

    cdef int next(self, Part part) except -1:
        """Ends a step and starts the next one in a part, in a loop that does nothing between its steps."""
        return 0

    cdef int enter(self, Part part) except -1:
        return 0

    cdef int leave(self) except -1:
        return 0

    cdef Part run_part(self, object fetches, list hooks, list requests, bint with_step):
        """Returns the part of a step for the runtime's run.

        Args:
          fetches: the caller's fetches.
          hooks: the hooks for which the run fetches values, or None.
          requests: for each hook, the fetches that the run adds for it, or None. None if each hook watches one fetch.
          with_step: whether the run fetches the global step for hooks that were skipped.
        """
        return None

    cdef Part callback_part(self, object hook, bint before):
        """Returns the part for a hook's callback before or after the run, or in a loop after the step."""
        return None

    # Context managers, for rare events.

    def beside_steps(self, hook, phase):
        """Returns a context manager for a callback of a hook that is called alongside the steps.

        Args:
          hook: the hook.
          phase: name of the callback.
        """
        return empty_context

    def within_callback(self, phase, detail):
        """Returns a context manager for a part of this thread's current callback. See `callback_part_here`."""
        return empty_context

    def within_session(self, phase):
        """Returns a context manager for a part of the session's own work. See `session_part_here`."""
        return empty_context

    def within(self, phase):
        """Returns a context manager for a part of this thread's current callback or step. See `part_here`."""
        return empty_context

    def not_lifted(self, function, reason):
        """Records that TensorFlow runs the call of this step. See `call_not_lifted`."""

    def close(self):
        """Makes the profiler forget the session or loop, after its current steps."""


cdef Probe nothing = Probe()


cdef class Profiler:
    """The type of the argument `profiler` of sessions and loops. `fastsup.HookProfiler` is the recording class."""

    def prepare(self, hooks, session):
        """Prepares to record a session or loop. Called before `new_probe`, possibly by several threads.

        Args:
          hooks: as for `new_probe`.
          session: as for `new_probe`.
        """

    def new_probe(self, origin, hooks, session):
        """Registers a session or loop with the profiler.

        Args:
          origin: its `SessionOrigin`, or None.
          hooks: the hooks that it calls, or None.
          session: the session; None for a loop.

        Returns:
          The `Probe` of its steps.
        """
        raise NotImplementedError

    def used_beside(self, profiler):
        """Records that a session or loop has another profiler while this profiler is on for the whole program.

        Args:
          profiler: the other profiler.
        """

    def function_probe(self, function):
        """Returns a callable that calls a `fastsup.function` with its arguments, and records the call as a step.

        Args:
          function: the function. Pass it only if no step is being recorded around its call.

        Returns:
          The callable, or None.
        """
        return None

    def note_function(self, note):
        """Records the status of a `fastsup.function`.

        Args:
          note: the `FunctionNote`, which may change later.
        """

    def callback(self, hook, phase):
        """Returns a context manager for a callback of a hook after the last step.

        Args:
          hook: the hook.
          phase: name of the callback.
        """
        return empty_context


def check_profiler(profiler):
    """Checks the `profiler` argument of a session or loop.

    Args:
      profiler: the argument.

    Returns:
      The profiler, or None for None.

    Raises:
      TypeError: If `profiler` is neither a HookProfiler nor None.
    """
    if profiler is not None and not isinstance(profiler, Profiler):
        raise TypeError(
            f"profiler must be a fastsup.HookProfiler or None, got {profiler!r} of type {type(profiler).__name__}."
        )
    if profiler is not None and program_profiler_held is not None:
        program_profiler_held.used_beside(profiler)
    return profiler


cdef class ProbeFinder:
    """Finds the probe of the steps of one session or loop.

    Args:
      hooks: the hooks that are called around the steps; None if none are.
    """

    def __cinit__(self, *args, **kwargs):
        self.profiler = &no_profiler
        self.known = self.nothing = nothing

    def __init__(self, hooks=None):
        self.hooks = hooks

    def record(self, profiler):
        """Records every step from now on.

        Args:
          profiler: a `HookProfiler`; or None for the program's profiler, whenever one is on.

        Raises:
          TypeError: If `profiler` is neither a `HookProfiler` nor None.
        """
        replaced = self.own  # Keep the object alive until the pointers to it are replaced.
        self.own = check_profiler(profiler)
        self.own_pointer = <PyObject*> self.own
        self.profiler = &program_profiler if profiler is None else &self.own_pointer
        del replaced

    cdef Probe find(self, object session):
        cdef Profiler profiler = <Profiler> self.profiler[0]
        if profiler is self.attached_to:
            return self.known
        profiler.prepare(self.hooks, session)
        if profiler is self.attached_to:
            return self.known  # Another thread already registered the session.
        self.close()
        self.attached_to = profiler
        try:
            self.known = profiler.new_probe(self.origin, self.hooks, session)
        except BaseException:
            self.attached_to = None
            raise
        return self.known

    def close(self):
        """Makes the profiler forget the session or loop, after its current steps."""
        cdef Probe known = self.known
        self.attached_to = None
        self.known = self.nothing
        known.close()


def callback_part_here(str phase, str detail=""):
    """Returns a context manager for a part of this thread's current callback; outside callbacks, it does nothing.

    Args:
      phase: name of the part.
      detail: text that distinguishes parts with the same name, or "".
    """
    cdef Probe probe = probe_here()
    return empty_context if probe is None else probe.within_callback(phase, detail)


def session_part_here(str phase):
    """Returns a context manager for a part of the session's own work; within a part or outside a step, it does nothing.

    Args:
      phase: name of the part.
    """
    cdef Probe probe = probe_here()
    return empty_context if probe is None else probe.within_session(phase)


def part_here(str phase):
    """Returns a context manager for a part of this thread's current callback, or of the session's own work.

    Args:
      phase: name of the part.
    """
    cdef Probe probe = probe_here()
    return empty_context if probe is None else probe.within(phase)


def call_not_lifted(function, str reason):
    """Records that TensorFlow runs this thread's current call to a `fastsup.function`.

    Args:
      function: the function.
      reason: the reason why the call isn't lifted; None if no lifted graph may run here.
    """
    cdef Probe probe = probe_here()
    if probe is not None:
        probe.not_lifted(function, reason)


def note_function(note):
    """Passes a note about a `fastsup.function` to the program's profiler, if one is on.

    Args:
      note: the `FunctionNote`.
    """
    if program_profiler_held is not None:
        program_profiler_held.note_function(note)
