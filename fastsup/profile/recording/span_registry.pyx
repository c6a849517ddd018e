"""The statistics of a recorder: which there are, of which sessions, hooks and fetches, and under which names."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass

from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

from fastsup.core.probe import empty_context
from fastsup.profile.recording.statistics import RUNTIME, SESSION
from fastsup.profile.recording.statistics cimport Caller
from fastsup.core.sessions import NO_ORIGIN, SessionOrigin
from fastsup.profile.recording.spans cimport fs_histogram_merge

cdef extern from "Python.h":
    int Py_EnterRecursiveCall(const char* where) except *
    void Py_LeaveRecursiveCall()

OTHER_FETCHES = "other fetches"
cdef object OTHER_SESSIONS = SessionOrigin("other sessions")

# The most pairs of (fetches of a caller, hooks with fetches in the run) that have their own statistics.
cdef Py_ssize_t MAX_RUNTIME_STATS = 64
# The most origins of sessions, and the most fetches of ended sessions of each, that have their own statistics.
cdef Py_ssize_t MAX_SESSIONS = 32
cdef Py_ssize_t MAX_KEPT_FETCHES = 32
# The description of fetches is cut at about this many characters.
cdef Py_ssize_t DESCRIPTION_LENGTH = 48

# The types of fetches that have no parts, remembered because the key is made in each recorded run.
cdef set leaf_types = set()

cdef object fetches_key(object fetches):
    """A key that is the same for the same elements in the same structure, though the structure be a new object."""
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
      The text; "" for None.
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
        """The statistics of a phase. Makes them the first time."""
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

    # Sessions.

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
        """The span that this thread is in, if this recorder records it; else None."""
        return None

    def new_caller(self, origin=None, session_info=dict):
        """Registers a session or loop. Sessions of the same origin share their statistics.

        Args:
          origin: the `SessionOrigin`, or None.
          session_info: function that returns a dictionary: `asked`, the executor mode of the session; `plans`, a list
            of `PlanExecutor`s as dictionaries; `operations`, the size of the graph. Empty once the session is gone.

        Returns:
          The caller's number, from 1. It isn't used again, while the identity of a session's fetches may be.
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
        """Lets a session's graph and fetches go. Their statistics become rows of its origin, and estimates."""
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

    # Hooks.

    cdef HookStats stats_of_hook(self, object hook):
        cdef HookStats known = self.hooks.get(id(hook))
        return known if known is not None else self.register(hook)

    def register(self, hook, caller=0):
        """Names a hook by its class, with a number if another hook of the session has that name.

        Args:
          hook: the hook.
          caller: number of its session or loop; 0 for none.

        Returns:
          The `HookStats`, the same as before for a hook that is registered already.
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
        """Lets hooks and their session go. Hooks of the same classes in a later session get the same names.

        Args:
          hooks: the hooks.
          caller: number of the session or loop, whose fetches are let go too; 0 for none.
        """
        cdef HookStats known
        for hook in hooks:
            known = self.hooks.pop(id(hook), None)
            if known is not None:
                known.session.hook_names.discard(known.name)
        if caller:
            self.end_caller(caller)

    # The runtime.

    cdef SpanStats runtime_stats(self, int64_t caller, object fetches, tuple names):
        """The statistics of the runtime for a caller's fetches, in runs in which hooks with these keys fetch too."""
        cdef SessionStats session
        cdef SpanStats stats
        key = ((caller, fetches_key(fetches)), names)
        known = self.runtime_stats_by_run.get(key)
        if known is None:
            session = self.session_of(caller)
            if len(self.runtime_stats_by_run) >= MAX_RUNTIME_STATS:
                return session.other_runtime
            # The fetches are kept: the id of an object that is gone may become another one's.
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
        """Notes how many values a hook fetches in a run in which it fetches any.

        Args:
          key: the key of its `HookStats`.
          values: the number of values.
        """
        self.values_fetched[key] = values
