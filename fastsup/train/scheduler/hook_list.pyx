"""The hooks of a session, sorted by when they are called, and kept sorted while the program changes them.

- *in-run* hooks have a schedule and act in the run: they fetch or feed. They are called in the runs in which they are due.
- *after-run* hooks have a schedule and decide on the global step after the run. Their `before_run` only fetches the
  step, so it is never called: their `after_run` is called after the runs that make them due.
- *every-run* hooks have callbacks and no schedule. They are called in every run, as TensorFlow calls all hooks.
- *no-op* hooks have no callback and are never called.
"""

from collections import Counter

from cpython.object cimport PyObject
from libc.stdint cimport int64_t
from libc.string cimport memcmp

from tensorflow.python.training import session_run_hook

from fastsup.core.clock cimport times_set_back
from fastsup.core.schedule cimport FS_DUE_NEVER, ScheduleTable, fs_due_table_changed
from fastsup.train.scheduler.scheduled_hook cimport ScheduledHookBase, callbacks_of
from fastsup.train.scheduler.type_versions cimport TypeVersions

cdef object SessionRunHook = session_run_hook.SessionRunHook

cdef extern from "Python.h":
    PyObject** PySequence_Fast_ITEMS(object sequence)

# The callbacks that do nothing.
cdef dict no_op_callbacks = {name: getattr(SessionRunHook, name) for name in ("before_run", "after_run")}


cdef bint overrides(object hook, str callback) except -1:
    """Whether calling a hook's callback can do anything. True for a callback that isn't known to be the default."""
    # Its type, not isinstance(): a mock of a hook says that it is one.
    if not issubclass(type(hook), SessionRunHook) or callback in getattr(hook, "__dict__", ()):
        return True
    return getattr(type(hook), callback) is not no_op_callbacks[callback]


cdef class HookList:
    """The hooks of a session in four groups.

    Args:
      hooks: the hooks. The program may change a list while it is used.
      step_read: the tensor that the graph's global step is read from, or None.
    """

    def __init__(self, hooks, step_read):
        # Only a list or a tuple can be iterated more than once for certain.
        self.hooks = hooks if isinstance(hooks, (list, tuple)) else list(hooks)
        self.step_read = step_read
        self.synced_to = {}
        self.times_set_back = times_set_back()

    cdef bint is_outdated(self) noexcept:
        """Whether anything has changed that the groups and schedules were made from."""
        return (
            fs_due_table_changed(&self.in_run.table)
            or self.times_set_back[0] != self.set_back_seen
            or self.hooks_changed()
            or self.types.changed()
            or self.no_op_hook_changed()
        )

    cdef bint hooks_changed(self) noexcept:
        """Whether the list holds other hooks, or the same in another order."""
        cdef Py_ssize_t n = len(self.hooks_seen)
        if not isinstance(self.hooks, list):
            return False
        return len(<list> self.hooks) != n or memcmp(
            PySequence_Fast_ITEMS(self.hooks), PySequence_Fast_ITEMS(self.hooks_seen), n * sizeof(PyObject*)
        ) != 0

    cdef bint no_op_hook_changed(self) noexcept:
        """Whether a no-op hook may have got a callback: its class or the number of its attributes has changed."""
        cdef Py_ssize_t i
        if self.no_op is None:
            return True
        for i in range(len(self.no_op)):
            if type(self.no_op[i]) is not self.no_op_types[i] or len(<dict> self.no_op_dicts[i]) != self.no_op_sizes[i]:
                return True
        return False

    cdef int refresh(self, int64_t run, int64_t previous_step) except -1:
        """Brings groups and schedules up to date.

        Args:
          run: number of the coming run, counted from 0.
          previous_step: global step before the previous run.
        """
        cdef ScheduledHookBase hook
        cdef bint was_scheduled, was_after_run
        if self.types is None or self.times_set_back[0] != self.set_back_seen:
            return self.sort(run, previous_step)
        if self.hooks_changed() or self.types.changed() or self.no_op_hook_changed():
            return self.sort(run, previous_step)
        for candidate in self.schedulable:
            hook = <ScheduledHookBase> candidate
            was_scheduled, was_after_run = hook.is_scheduled, hook.is_after_run
            if self.has_schedule(hook, run, previous_step, False) != was_scheduled or hook.is_after_run != was_after_run:
                return self.sort(run, previous_step)
        self.in_run.reload()
        self.after_run.reload()
        return self.recompute_aggregates(self.in_run, self.after_run)

    cdef int sort(self, int64_t run, int64_t previous_step) except -1:
        """Finds the group of every hook."""
        cdef list in_run = [], after_run = [], every_run = [], no_op = []
        cdef list hooks = list(self.hooks)
        self.set_back_seen = self.times_set_back[0]
        cdef TypeVersions types = TypeVersions(
            [type(candidate) for candidate in hooks] + [type(getattr(candidate, "_timer", None)) for candidate in hooks]
        )
        counts = Counter(map(id, hooks))
        for candidate in self.hooks_seen or ():
            # A hook that has left the list. If it comes back, it is told nothing of the runs meanwhile.
            if id(candidate) not in counts and isinstance(candidate, ScheduledHookBase):
                if (<ScheduledHookBase> candidate).is_scheduled:
                    self.sync(<ScheduledHookBase> candidate, run, previous_step)
                self.synced_to.pop(id(candidate), None)
        for candidate in hooks:
            if counts[id(candidate)] == 1 and self.has_schedule(candidate, run, previous_step, True):
                (after_run if (<ScheduledHookBase> candidate).is_after_run else in_run).append(candidate)
            elif overrides(candidate, "before_run") or overrides(candidate, "after_run"):
                every_run.append(candidate)
            else:
                no_op.append(candidate)
        cdef list schedulable = [candidate for candidate in hooks if isinstance(candidate, ScheduledHookBase)]
        cdef list no_op_types = list(map(type, no_op)), no_op_dicts = list(map(vars, no_op))
        cdef list no_op_sizes = list(map(len, no_op_dicts))
        cdef set every_run_ids = set(map(id, every_run))
        cdef bint has_twins = len(counts) < len(hooks)
        # From here on no other thread may run, as it reads all of this: nothing is made, and all that is replaced is held
        # until the end, as it may hold the last reference to a hook.
        replaced = (
            self.types, self.hooks_seen, self.schedulable, self.in_run, self.after_run, self.every_run, self.every_run_ids,
            self.no_op, self.no_op_types, self.no_op_dicts, self.no_op_sizes, self.watching, self.watched_fetches,
        )
        self.recompute_aggregates(ScheduleTable(in_run), ScheduleTable(after_run))
        self.types = types
        self.hooks_seen = hooks
        self.has_twins = has_twins
        self.schedulable = schedulable
        self.every_run = every_run
        self.every_run_ids = every_run_ids
        self.no_op = no_op
        self.no_op_types = no_op_types
        self.no_op_dicts = no_op_dicts
        self.no_op_sizes = no_op_sizes
        del replaced
        return 0

    cdef int recompute_aggregates(self, ScheduleTable in_run, ScheduleTable after_run) except -1:
        """Takes over two tables, and the sums over the hooks in them."""
        cdef ScheduledHookBase hook
        cdef list watching = [], watched_fetches = []
        cdef bint watches_stall = False, needs_true_step = False
        replaced = (self.in_run, self.after_run, self.watching, self.watched_fetches)
        for entry in in_run.entries:
            hook = <ScheduledHookBase> entry
            if hook.watched_fetch is not None:
                watching.append(hook)
                watched_fetches.append(hook.watched_fetch)
        for entry in after_run.entries:
            hook = <ScheduledHookBase> entry
            watches_stall = watches_stall or hook.watches_stall
            needs_true_step = needs_true_step or (hook.needs_true_step and hook.due.global_step != FS_DUE_NEVER)
        self.in_run = in_run
        self.after_run = after_run
        self.watching = watching
        self.watched_fetches = watched_fetches
        self.watches_stall = watches_stall
        self.needs_true_step = needs_true_step
        self.needs_step = (
            watches_stall
            or in_run.table.earliest.global_step != FS_DUE_NEVER
            or after_run.table.earliest.global_step != FS_DUE_NEVER
        )
        del replaced
        return 0

    cdef bint has_schedule(self, object candidate, int64_t run, int64_t previous_step, bint ask) except -1:
        """Whether a hook has a schedule. Brings the schedule up to date.

        Args:
          candidate: the hook.
          run: number of the coming run.
          previous_step: global step before the previous run.
          ask: whether to ask the hook even if neither the hook nor its timer has changed.
        """
        if not isinstance(candidate, ScheduledHookBase):
            return False
        cdef ScheduledHookBase hook = candidate
        if ask or not hook.is_current():
            hook.is_scheduled = self.update_schedule(hook, run, previous_step)
            # Only now: making the schedule may have set an attribute.
            hook.set_current()
        return hook.is_scheduled

    cdef bint update_schedule(self, ScheduledHookBase hook, int64_t run, int64_t previous_step) except -1:
        """Has a hook compute its schedule. False if it has none."""
        self.sync(hook, run, previous_step)
        if "before_run" in hook.__dict__ or "after_run" in hook.__dict__:
            return False
        cdef object kind = type(hook)
        if (kind.before_run, kind.after_run) != callbacks_of(kind):
            return False  # A subclass overrides a callback, or the program has replaced one.
        hook.clear_schedule()
        return hook._schedule(run, self.step_read)

    cdef int sync(self, ScheduledHookBase hook, int64_t run, int64_t previous_step) except -1:
        """Brings the state of a hook up to date with the runs that it was skipped in, all those before `run`."""
        cdef int64_t skipped = run - 1 - <int64_t> self.synced_to.get(id(hook), run - 1)
        if skipped > 0:
            hook._sync(skipped, previous_step)
        self.synced_to[id(hook)] = run - 1
        return 0
