"""The interface through which sessions and loops report their steps to a profiler. A step that nothing records pays a
test for it.

A session or loop has a `ProbeFinder`, which finds the `Probe` of its next step. The probe has these functions:

    begin, end      a step, or work alongside the steps; `next` does both in a loop
    enter, leave    a part of it: the runtime's run, a callback of a hook, the conversion of values

After an error, parts may stay open: the end of their step ends them. `fastsup.profile` has the profiler that records.
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
# What sessions read that aren't to be recorded.
cdef void* no_profiler = NULL


cdef fs_scope** open_scopes() noexcept:
    return &scopes_under_way


cdef Probe probe_here():
    cdef fs_scope* scope = fs_scope_of_thread(scopes_under_way, fs_thread())
    return None if scope is NULL else <Probe> <PyObject*> scope.probe


cdef int set_program_profiler(Profiler profiler) except -1:
    global program_profiler, program_profiler_held
    replaced = program_profiler_held  # Held until the pointer to it is replaced.
    program_profiler_held = profiler
    program_profiler = NULL if profiler is None else <PyObject*> profiler
    # A compiled loop of a session then looks whether it is recorded.
    changes()[0] += 1
    return 0


cdef void** address_of_program_profiler() noexcept:
    return &program_profiler


def program_profiler_now():
    """Returns the profiler that is on for the whole program, or None."""
    return program_profiler_held


@contextmanager
def nothing_recorded():
    """Returns a `with` block in which the profiler of the whole program is off, for the profiler's own work."""
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
    """A part of a step. A profiler has its numbers in a subclass."""


cdef class Probe:
    """Records the steps of one session or loop. This one records nothing; a profiler has a subclass.

    Its parts are None here, and a profiler's for the same fetches or hook are the same objects.
    """

    cdef int begin(self, fs_scope* scope) except -1:
        """Begins a step. Unless this raises, `end` ends it on every path."""
        return 0

    cdef int end(self, fs_scope* scope, bint is_step) except -1:
        """Ends a step. `is_step`: False if no step was left to do."""
        return 0

    cdef int next(self, Part part) except -1:
        """Ends a step and starts the next one in a part, in a loop that does nothing between its steps."""
        return 0

    cdef int enter(self, Part part) except -1:
        return 0

    cdef int leave(self) except -1:
        return 0

    cdef Part run_part(self, object fetches, list hooks, list requests, bint with_step):
        """Returns the runtime's part in a step.

        Args:
          fetches: the caller's fetches.
          hooks: the hooks for which the run fetches something, or None.
          requests: for each of the hooks, the fetches that the run makes for it, or None. None for hooks that watch one
            fetch each.
          with_step: whether the run fetches the global step for hooks that were skipped.
        """
        return None

    cdef Part callback_part(self, object hook, bint before):
        """Returns the part of a hook's callback before or after the run; in a loop, of its callback after the step."""
        return None

    # Context managers, for what happens seldom.

    def beside_steps(self, hook, phase):
        """Returns a context manager for a callback of a hook that is called alongside the steps.

        Args:
          hook: the hook.
          phase: name of the callback.
        """
        return empty_context

    def within_callback(self, phase, detail):
        """Returns a context manager for a part of the callback that this thread is in. See `callback_part_here`."""
        return empty_context

    def within_session(self, phase):
        """Returns a context manager for a part of the session's own work. See `session_part_here`."""
        return empty_context

    def within(self, phase):
        """Returns a context manager for a part of whatever this thread is in. See `part_here`."""
        return empty_context

    def not_lifted(self, function, reason):
        """TensorFlow runs the call that is this step. See `call_not_lifted`."""

    def close(self):
        """Lets the profiler forget the session or loop: now, or after the steps under way."""


cdef Probe nothing = Probe()


cdef class Profiler:
    """The type of the argument `profiler` of sessions and loops. `fastsup.HookProfiler` is the class that records."""

    def prepare(self, hooks, session):
        """Gets ready to record a session or loop. Called before `new_probe`, perhaps by several threads.

        Args:
          hooks: as for `new_probe`.
          session: as for `new_probe`.
        """

    def new_probe(self, origin, hooks, session):
        """Registers a session or loop with the profiler.

        Args:
          origin: its `SessionOrigin`, or None.
          hooks: its hooks; None if it calls none.
          session: the session; None for a loop.

        Returns:
          The `Probe` of its steps.
        """
        raise NotImplementedError

    def used_beside(self, profiler):
        """Notes that a session or loop has got another profiler, while this one is on for the whole program.

        Args:
          profiler: the other profiler.
        """

    def function_probe(self, function):
        """Returns a callable, of a `fastsup.function` and its arguments, that records the call as a step.

        Args:
          function: the function. Nothing is recorded around its call.

        Returns:
          The callable, or None.
        """
        return None

    def note_function(self, note):
        """Takes a note of what became of a `fastsup.function`.

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
        """Has every step recorded from now on.

        Args:
          profiler: a `HookProfiler`; or None, for the one that is on for the whole program, whenever one is.

        Raises:
          TypeError: If `profiler` is neither.
        """
        replaced = self.own  # Held until the pointers to it are replaced.
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
            return self.known  # Another thread was first.
        self.close()
        self.attached_to = profiler
        try:
            self.known = profiler.new_probe(self.origin, self.hooks, session)
        except BaseException:
            self.attached_to = None
            raise
        return self.known

    def close(self):
        """Lets the profiler forget the session or loop: now, or after the steps under way."""
        cdef Probe known = self.known
        self.attached_to = None
        self.known = self.nothing
        known.close()


def callback_part_here(str phase, str detail=""):
    """Returns a context manager for a part of the callback that this thread is in; an empty one outside of callbacks.

    Args:
      phase: name of the part.
      detail: which of several of that name it is, or "".
    """
    cdef Probe probe = probe_here()
    return empty_context if probe is None else probe.within_callback(phase, detail)


def session_part_here(str phase):
    """Returns a context manager for a part of the session's own work; an empty one within a part, or outside a step.

    Args:
      phase: name of the part.
    """
    cdef Probe probe = probe_here()
    return empty_context if probe is None else probe.within_session(phase)


def part_here(str phase):
    """Returns a context manager for a part of whatever this thread is in: a callback, or the session's own work.

    Args:
      phase: name of the part.
    """
    cdef Probe probe = probe_here()
    return empty_context if probe is None else probe.within(phase)


def call_not_lifted(function, str reason):
    """TensorFlow runs the call of a `fastsup.function` that this thread is in.

    Args:
      function: the function.
      reason: why the call isn't lifted; None if no lifted graph may run here.
    """
    cdef Probe probe = probe_here()
    if probe is not None:
        probe.not_lifted(function, reason)


def note_function(note):
    """Gives a note of a `fastsup.function` to the profiler of the whole program, if one is on.

    Args:
      note: the `FunctionNote`.
    """
    if program_profiler_held is not None:
        program_profiler_held.note_function(note)
