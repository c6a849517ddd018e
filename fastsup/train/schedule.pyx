"""Decides which hooks are called in which run of a session.

A hook with a schedule (ScheduledHook) is skipped in runs in which TensorFlow's call would only update its counters.
Before its next call, its state is updated (`HookList.sync`). A HookList contains the hooks of a session in four groups,
and keeps them sorted while the program changes them:

- *in-run* hooks have a schedule and act in the run: they fetch or feed. They are called in the runs in which they are
due. - *after-run* hooks have a schedule and decide on the global step after the run. Their `before_run` would only
fetch the
  step, so it is never called. Their `after_run` is called after the runs that make them due.
- *every-run* hooks have callbacks and no schedule. They are called in every run, as TensorFlow calls all hooks.
- *no-op* hooks have no callbacks and are never called.

Each run has a RunSnapshot. The HookScheduler takes it through these states:

      open_step       before the run: the global step, by counting, by reading, or by a fetch in the run
      reopen_step     after the hooks' `before_run`, which may have changed the step, or feed it
      close_step      after the run: `before` is known now, and becomes the previous step of the next run

`any_in_run` is checked before the run, and `any_after_run` after `close_step`. Each has one predicate in
run_snapshot.pxd, which is applied to the earliest of all hooks and then to each hook. A hook is never called too late.
It may be called in a run in which it isn't due, and then does nothing.
"""

from collections import Counter

import numpy
from tensorflow.python.training import session_run_hook, training_util

from cpython.object cimport PyObject
from libc.math cimport HUGE_VAL, isnan
from libc.stdint cimport INT64_MAX, int64_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp

from fastsup.core.clock cimport reached, seconds, times_set_back
from fastsup.core.schedule cimport FS_DUE_NEVER, Scheduled, ScheduleTable, changes, fs_due, fs_due_table_changed
from fastsup.core.timer cimport Timer
from fastsup.runtime.plans cimport Plan
from fastsup.runtime.runner cimport OWN_READ, SessionRunner, StepCount
from fastsup.train.run_snapshot cimport (
    COUNTED_STEP, FETCHED_STEP, NO_STEP, READ_STEP, UNUSED_STEP, RunSnapshot, due_after_run, due_in_run, idle_runs,
)

cdef object SessionRunHook = session_run_hook.SessionRunHook

cdef extern from "Python.h":
    PyObject** PySequence_Fast_ITEMS(object sequence)
    int PyObject_GenericSetAttr(object instance, object name, object value) except -1

cdef extern from *:
    """
    /* CPython gives a type a new number when it or one of its bases has changed; 0 means that it has none now. */
    #define fs_type_version(type) (((PyTypeObject *)(type))->tp_version_tag)
    """
    unsigned int fs_type_version(PyObject* type) noexcept

# Names that a program assigns to replace a hook's callbacks.
cdef frozenset replaced_by_programs = frozenset(["before_run", "after_run", "__class__"])

cdef object floating = numpy.floating
cdef object timer_decision = Timer.should_trigger_for_step

# For each class that defines a schedule, the callbacks that the schedule was written for. If a program replaces these
# on the class later, the schedule is void.
cdef dict original_callbacks = {}


cdef tuple callbacks_of(object kind):
    """Returns the callbacks (before_run, after_run) that the schedule of a hook's class was written for, or None."""
    for base in kind.__mro__:
        if base in original_callbacks:
            return original_callbacks[base]
    return None


cdef class ScheduledHookBase(Scheduled):
    """The compiled part of ScheduledHook, which adds the schedule to TensorFlow's callbacks.

    The callbacks (`before_run`, `after_run`) do the same as TensorFlow's, if they are called in every run or only in
    runs in which they do something. A session that supports schedules uses the methods below to find these runs. Any
    other session calls the callbacks in every run.
    """

    # The attributes of TensorFlow's hook that the schedule is computed from. If a program sets them, the session
    # recomputes the schedule.
    _schedule_reads = frozenset()

    def _reschedule(self):
        """Makes the session recompute the schedule. Call this after a change of anything else that it is computed from."""
        self.version += 1
        changes()[0] += 1

    def _schedule(self, run, step_read):
        """Sets the due positions from the hook's state.

        Args:
          run: number of the coming run, counted from 0.
          step_read: the tensor that the graph's global step is read from.

        Returns:
          False if the hook must be called in every run, because it was changed in an unexpected way.
        """
        return False

    def _sync(self, skipped_runs, previous_step):
        """Updates the state after runs in which the hook was skipped.

        Args:
          skipped_runs: number of these runs.
          previous_step: the global step before the last of these runs.
        """

    def _before_end(self):
        """Called at the end of the loop, on every exit path, before any hook's `end`. Not called in all sessions."""

    def _before_close(self):
        """Called right before the session is closed, on every exit path, after `end` if that is called."""

    def _watch(self, fetch):
        """Makes every run fetch `fetch`, and calls the hook after those in which it is NaN or not a number."""
        self.watched_fetch = fetch

    cdef bint accepts(self, object value) except -1:
        """Returns True if the value of the watched fetch needs no call of `after_run`."""
        return isinstance(value, floating) and not isnan(<double> value)

    def _follow(self, Scheduled other):
        """Recomputes the schedule when the due positions of another object change."""
        self.followed = other

    def _decide_on_coming_step(self):
        """Declares that an in-run hook decides on the step after the run, unlike TensorFlow's hooks."""
        self.by_coming_step = True

    def _watch_stall(self):
        """Also calls an after-run hook after a run before which the global step hasn't changed."""
        self.watches_stall = True

    def _decide_after_run(self, on_true_step=False):
        """Declares that the hook decides after the run whether to act, and needs only the global step from the run.

        Its `before_run` isn't called then. The result of its `after_run` is the step before the run.

        Args:
          on_true_step: True to decide on the global step after the run, False on the step before the run plus 1.
        """
        self.is_after_run = True
        self.needs_true_step = on_true_step

    cdef int clear_schedule(self) except -1:
        self.never_due()
        self.watched_fetch = None
        self.is_after_run = self.watches_stall = self.needs_true_step = self.by_coming_step = False
        return 0

    def _due_with_timer(self, timer):
        """Sets the due positions from a timer.

        Args:
          timer: the hook's timer.

        Returns:
          False for a timer of another class, whose answers can't be predicted.
        """
        if not isinstance(timer, Timer) or type(timer).should_trigger_for_step is not timer_decision:
            return False
        if "should_trigger_for_step" in timer.__dict__:
            return False
        cdef double time = (<Timer> timer).next_time()
        cdef int64_t step = (<Timer> timer).next_step()
        if time != HUGE_VAL:
            self.due_at_time(time)
        elif step != INT64_MAX:
            self.due_at_step(step)
        return True

    def __setattr__(self, name, value):
        PyObject_GenericSetAttr(self, name, value)
        if name in replaced_by_programs or name in self._schedule_reads:
            self._reschedule()

    cdef bint is_current(self) except -1:
        """Returns True if nothing has changed, here or in the timer, since `set_current`. False if it can't be determined."""
        if self.version != self.scheduled_version or not self.follows():
            return False
        timer = getattr(self, "_timer", None)
        if timer is not self.scheduled_timer:
            return False
        if timer is None:
            return True
        return isinstance(timer, Timer) and (<Timer> timer).version == self.scheduled_timer_version

    cdef bint follows(self) noexcept:
        """Returns True if the followed object still has the due positions from which the schedule was computed."""
        return self.followed is None or memcmp(&self.followed.due, &self.followed_due, sizeof(fs_due)) == 0

    cdef int set_current(self) except -1:
        """Records the state from which the schedule was computed."""
        if self.followed is not None:
            self.followed_due = self.followed.due
        self.scheduled_timer = getattr(self, "_timer", None)
        self.scheduled_version = self.version
        if isinstance(self.scheduled_timer, Timer):
            self.scheduled_timer_version = (<Timer> self.scheduled_timer).version
        return 0


class ScheduledHook(ScheduledHookBase):
    """Base of the standard hooks.

    If a class defines `_schedule`, the schedule is valid for the callbacks that the class has at its definition. A
    subclass that overrides a callback, and defines no schedule, is called in every run.
    """

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if "_schedule" in cls.__dict__:
            original_callbacks[cls] = (getattr(cls, "before_run", None), getattr(cls, "after_run", None))


cdef class TypeVersions:
    """The current versions of some classes, to detect a changed class at the cost of one comparison per class."""

    def __cinit__(self, types):
        self.types = list(dict.fromkeys(types))
        self.versions = <unsigned int*> malloc(max(len(self.types), 1) * sizeof(unsigned int))
        if self.versions is NULL:
            raise MemoryError()
        for i, kind in enumerate(self.types):
            # A look-up makes CPython assign a number to the type.
            getattr(kind, "after_run", None)
            self.versions[i] = fs_type_version(<PyObject*> kind)

    def __dealloc__(self):
        free(self.versions)

    cdef bint changed(self) noexcept:
        """Returns True if one of the classes has changed, or may have."""
        cdef Py_ssize_t i
        cdef unsigned int version
        for i in range(len(self.types)):
            version = fs_type_version(<PyObject*> self.types[i])
            if version != self.versions[i] or version == 0:
                return True
        return False


# The callbacks that do nothing.
cdef dict no_op_callbacks = {name: getattr(SessionRunHook, name) for name in ("before_run", "after_run")}


cdef bint overrides(object hook, str callback) except -1:
    """Returns True if calling a hook's callback can do anything. True for a callback that isn't known to be the default."""
    # Check the type instead of calling isinstance(), because a mock passes isinstance().
    if not issubclass(type(hook), SessionRunHook) or callback in getattr(hook, "__dict__", ()):
        return True
    return getattr(type(hook), callback) is not no_op_callbacks[callback]


cdef class HookList:
    """The hooks of a session in four groups. The program may change a list of hooks while it is used."""

    def __init__(self, hooks, step_read):
        # Only a list or a tuple can certainly be iterated more than once.
        self.hooks = hooks if isinstance(hooks, (list, tuple)) else list(hooks)
        self.step_read = step_read
        self.synced_to = {}
        self.times_set_back = times_set_back()

    cdef bint is_outdated(self) noexcept:
        """Returns True if anything has changed that the groups and schedules depend on."""
        return (
            fs_due_table_changed(&self.in_run.table)
            or self.times_set_back[0] != self.set_back_seen
            or self.hooks_changed()
            or self.types.changed()
            or self.no_op_hook_changed()
        )

    cdef bint hooks_changed(self) noexcept:
        """Returns True if the list contains other hooks, or the same hooks in another order."""
        cdef Py_ssize_t n = len(self.hooks_seen)
        if not isinstance(self.hooks, list):
            return False
        return len(<list> self.hooks) != n or memcmp(
            PySequence_Fast_ITEMS(self.hooks), PySequence_Fast_ITEMS(self.hooks_seen), n * sizeof(PyObject*)
        ) != 0

    cdef bint no_op_hook_changed(self) noexcept:
        """Returns True if a no-op hook may have a new callback: its class or its number of attributes has changed."""
        cdef Py_ssize_t i
        if self.no_op is None:
            return True
        for i in range(len(self.no_op)):
            if type(self.no_op[i]) is not self.no_op_types[i] or len(<dict> self.no_op_dicts[i]) != self.no_op_sizes[i]:
                return True
        return False

    cdef int refresh(self, int64_t run, int64_t previous_step) except -1:
        """Updates the groups and schedules. `run` is the number of the coming run, counted from 0."""
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
            # Update a hook that has left the list now. If it is added again, it isn't updated for the runs in between.
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
        # From here on, no other thread may run, because other threads read all of these fields. Therefore nothing is
        # created, and all replaced objects are kept until the end, because they may hold the last reference to a hook.
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
        """Adopts two tables, and the sums over the hooks in them."""
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
        """Returns True if a hook has a schedule, and updates it. With `ask`, also if neither hook nor timer has changed."""
        if not isinstance(candidate, ScheduledHookBase):
            return False
        cdef ScheduledHookBase hook = candidate
        if ask or not hook.is_current():
            hook.is_scheduled = self.update_schedule(hook, run, previous_step)
            # Do this last, because computing the schedule may have set an attribute.
            hook.set_current()
        return hook.is_scheduled

    cdef bint update_schedule(self, ScheduledHookBase hook, int64_t run, int64_t previous_step) except -1:
        """Makes a hook compute its schedule. Returns False if it has none."""
        self.sync(hook, run, previous_step)
        if "before_run" in hook.__dict__ or "after_run" in hook.__dict__:
            return False
        cdef object kind = type(hook)
        if (kind.before_run, kind.after_run) != callbacks_of(kind):
            return False  # A subclass overrides a callback, or the program has replaced one.
        hook.clear_schedule()
        return hook._schedule(run, self.step_read)

    cdef int sync(self, ScheduledHookBase hook, int64_t run, int64_t previous_step) except -1:
        """Updates a hook's state for the runs in which it was skipped, all of them before `run`."""
        cdef int64_t skipped = run - 1 - <int64_t> self.synced_to.get(id(hook), run - 1)
        if skipped > 0:
            hook._sync(skipped, previous_step)
        self.synced_to[id(hook)] = run - 1
        return 0


cdef class StepRequest:
    """Fetches that include the global step: the step alone, or a list, a tuple or a dictionary of fetches."""

    cdef object build(self, object step, list values):
        """Returns the result."""
        cdef list whole
        cdef Py_ssize_t n = 0
        if self.kind is None:
            return step
        whole = []
        for is_step in self.is_step:
            if is_step:
                whole.append(step)
            else:
                whole.append(values[n])
                n += 1
        if self.kind is dict:
            return dict(zip(self.keys, whole))
        return tuple(whole) if self.kind is tuple else whole


cdef StepRequest request_for_step(StepCount count, object fetches, int fed):
    """Returns the remaining fetches if the step is known, or None if the step isn't requested in a form that allows this."""
    cdef StepRequest request = StepRequest.__new__(StepRequest)
    cdef object kind = type(fetches)
    cdef list rest = []
    if count.is_step(fetches, fed):
        return request
    if kind is not dict and kind is not list and kind is not tuple:
        return None
    request.kind = kind
    request.is_step = []
    if kind is dict:
        request.keys = list(fetches)
        fetches = list((<dict> fetches).values())
    for fetch in fetches:
        if fetch is None:
            return None  # The run reports the mistake.
        # Don't use `in`, which compares tensors.
        is_step = count.is_step(fetch, fed)
        request.is_step.append(is_step)
        if not is_step:
            rest.append(fetch)
    if len(rest) == len(request.is_step):
        return None
    request.rest = rest or None
    return request


cdef class HookScheduler:
    """The schedules of a session's hooks."""

    def __init__(self, hooks, SessionRunner session):
        self.step_read = training_util._get_global_step_read(session.graph)
        self.count = StepCount(session, self.step_read)
        self.hooks = HookList(hooks, self.step_read)
        self.previous_step = NO_STEP
        self.refresh()

    cdef int refresh(self) except -1:
        """Updates the schedules."""
        return self.hooks.refresh(self.runs, self.previous_step)

    # Methods for the global step around a run.

    cdef int open_step(self, RunSnapshot* snapshot, Plan plan) except -1:
        """Determines the global step before a run."""
        if self.hooks.is_outdated():
            self.refresh()
        snapshot.source = UNUSED_STEP
        snapshot.delta = self.delta_of(plan)
        snapshot.run = self.runs
        snapshot.previous = self.previous_step
        snapshot.before = NO_STEP
        snapshot.feeds_known = plan is not None
        snapshot.fed = self.count.fed_of(plan) if snapshot.feeds_known and len(plan.feeds) > 0 else 0
        if not self.hooks.needs_step:
            return 0
        return self.find_step(snapshot)

    cdef int find_step(self, RunSnapshot* snapshot) except -1:
        cdef StepCount count = self.count
        if snapshot.fed & OWN_READ:
            snapshot.source = FETCHED_STEP
            snapshot.before = NO_STEP
            self.read_counters(snapshot)
        elif ((count.known and count.session.step_epoch == count.epoch_seen) or count.know()) and (
            snapshot.delta >= 0 or count.session.writers_running == 0
        ):
            snapshot.source = COUNTED_STEP if snapshot.delta >= 0 else READ_STEP
            snapshot.before = count.value()
            self.read_counters(snapshot)
        else:
            count.prepare_fetch()
            self.read_counters(snapshot)
            # A value read now may be outdated when this run starts, if other threads are running steps.
            step = None if count.session.writers_running else count.read()
            snapshot.source = FETCHED_STEP if step is None else READ_STEP
            snapshot.before = NO_STEP if step is None else step
        return 0

    cdef int read_counters(self, RunSnapshot* snapshot) except -1:
        snapshot.counted = self.count.session.steps_counted
        snapshot.epoch = self.count.session.step_epoch
        return 0

    cdef int reopen_step(self, RunSnapshot* snapshot, object feed_dict, bint fed_by_hooks) except -1:
        """Finds the step again after the hooks' `before_run`."""
        cdef SessionRunner session = self.count.session
        if feed_dict and (fed_by_hooks or not snapshot.feeds_known):
            snapshot.fed = self.count.is_step_fed(feed_dict)
        if snapshot.source == UNUSED_STEP or snapshot.source == FETCHED_STEP:
            return 0
        if (
            not snapshot.fed & OWN_READ
            and self.count.variable is not None
            and session.step_epoch == snapshot.epoch
            and session.steps_counted == snapshot.counted
        ):
            return 0
        return self.find_step(snapshot)

    cdef int close_step(self, RunSnapshot* snapshot, object fetched) except -1:
        """Ends a successful run. Only this method changes the previous step."""
        if fetched is not None:
            snapshot.before = fetched
        self.find_step_after(snapshot)
        snapshot.latest = snapshot.before
        if self.runs != snapshot.run and snapshot.source != UNUSED_STEP:
            self.find_latest(snapshot)
        self.runs += 1
        self.previous_step = snapshot.before
        return 0

    cdef int next_step(self, RunSnapshot* snapshot) except -1:
        """Opens the next run of a loop. The step before it is the step after the previous run."""
        snapshot.run = self.runs
        snapshot.previous = self.previous_step
        if snapshot.source == COUNTED_STEP:
            snapshot.before = self.count.value()
        return self.read_counters(snapshot)

    cdef int64_t delta_of(self, Plan plan) except? -2:
        """Returns the number that a run adds to the global step, or a negative number if unknown."""
        if plan is None or self.count.variable is None:
            return -1
        return plan.step_delta if plan.step_delta_known else self.count.session.delta_of(plan)

    cdef int find_step_after(self, RunSnapshot* snapshot) noexcept:
        """Determines a counted step after the run, and whether anything except the run has changed it."""
        cdef SessionRunner session = self.count.session
        if snapshot.source == COUNTED_STEP:
            snapshot.after = self.count.value()
            snapshot.moved = session.step_epoch != snapshot.epoch
        return 0

    cdef int find_latest(self, RunSnapshot* snapshot) noexcept:
        """Finds the latest step at which the run can have started, because other threads' runs ended after it was opened."""
        cdef SessionRunner session = self.count.session
        cdef int64_t others = session.steps_counted - snapshot.counted - max(snapshot.delta, 0)
        if snapshot.source == COUNTED_STEP and session.step_epoch == snapshot.epoch:
            snapshot.before += others
            others = 0
        # Each run with an unknown effect counts as an increment of 1.
        snapshot.latest = snapshot.before + others + <int64_t> (session.step_epoch - snapshot.epoch) - (snapshot.delta < 0)
        return 0

    # Methods for hooks that act in the run.

    cdef bint any_in_run(self, RunSnapshot* snapshot) except -1:
        """Returns True if any hook must be called in the coming run."""
        return len(self.hooks.every_run) > 0 or due_in_run(snapshot, &self.hooks.in_run.table.earliest, False)

    cdef list hooks_in_run(self, RunSnapshot* snapshot):
        """Returns the hooks to call in the coming run, in order."""
        cdef ScheduledHookBase scheduled
        cdef list called = []
        cdef Py_ssize_t i = 0
        cdef HookList hooks = self.hooks
        # Hold a reference, because a clock in Python may let another thread replace the table.
        cdef ScheduleTable table = hooks.in_run
        cdef object entries = table.entries
        for hook in hooks.hooks:
            if i < len(entries) and hook is entries[i]:
                scheduled = <ScheduledHookBase> hook
                # Call a hook that watches a value, because the call fetches the value.
                if scheduled.watched_fetch is not None or due_in_run(
                    snapshot, table.table.dues[i], scheduled.by_coming_step
                ):
                    called.append(hook)
                i += 1
            elif id(hook) in hooks.every_run_ids:
                called.append(hook)
        return called

    cdef list hooks_in_unknown_run(self, RunSnapshot* snapshot):
        """Returns the hooks to call in a run without a plan: all, except those that wouldn't decide on their own."""
        cdef ScheduledHookBase scheduled
        cdef list called = []
        for hook in list(self.hooks.hooks):
            if isinstance(hook, ScheduledHookBase):
                scheduled = <ScheduledHookBase> hook
                if scheduled.is_scheduled and scheduled.by_coming_step and not due_in_run(snapshot, &scheduled.due, True):
                    continue
            called.append(hook)
        return called

    cdef int64_t idle_steps(self, RunSnapshot* snapshot) except -1:
        """Returns the number of runs like the coming one before the first in which a hook may act. At least 1."""
        if snapshot.source == READ_STEP or snapshot.source == FETCHED_STEP:
            return 1  # A step that isn't counted must be found before each run.
        return idle_runs(snapshot, &self.hooks.in_run.table.earliest)

    cdef bint due_by_time(self) except -1:
        """Returns True if an in-run hook is due by time."""
        return self.hooks.in_run.table.earliest.time != HUGE_VAL and reached(self.hooks.in_run.table.earliest.time)

    # Methods for hooks that act after the run.

    cdef bint any_after_run(self, RunSnapshot* snapshot) except -1:
        """Returns True if any hook must be called after the finished run."""
        cdef HookList hooks = self.hooks
        return (snapshot.source == COUNTED_STEP and snapshot.moved) or due_after_run(
            snapshot, &hooks.after_run.table.earliest, hooks.watches_stall, hooks.needs_true_step
        )

    cdef bint is_due_after_run(self, RunSnapshot* snapshot, object candidate) except -1:
        """Returns True if a hook that isn't called in the run must be called after it."""
        if not isinstance(candidate, ScheduledHookBase):
            return False
        cdef ScheduledHookBase hook = candidate
        if not (hook.is_scheduled and hook.is_after_run) or id(candidate) in self.hooks.every_run_ids:
            return False
        if not hook.is_current():
            return True  # A hook called before this one changed its schedule, so it decides on its own.
        # A hook called before this one may have changed the step.
        self.find_step_after(snapshot)
        return due_after_run(
            snapshot, &hook.due, hook.watches_stall, hook.needs_true_step and hook.due.global_step != FS_DUE_NEVER
        )

    # Methods for calls to hooks.

    # Runs are numbered in the order in which they end. Other runs may have ended since this one was opened.

    cdef int sync_before_run(self, object hook) except -1:
        """Updates the state of a hook that is about to be called, for the finished runs."""
        if isinstance(hook, ScheduledHookBase):
            self.hooks.sync(<ScheduledHookBase> hook, self.runs, self.previous_step)
        return 0

    cdef int mark_synced(self, object hook) except -1:
        """Records, before `close_step`, that a hook is called in the run that ends."""
        if isinstance(hook, ScheduledHookBase):
            self.hooks.synced_to[id(hook)] = self.runs
        return 0

    cdef int sync_after_run(self, RunSnapshot* snapshot, object hook) except -1:
        """Updates a hook's state after `close_step`, and records that the hook knows the run."""
        if isinstance(hook, ScheduledHookBase):
            self.hooks.sync(<ScheduledHookBase> hook, self.runs - 1, snapshot.previous)
            self.hooks.synced_to[id(hook)] = self.runs - 1
        return 0

    cdef int skip_remaining(self, RunSnapshot* snapshot, object failed, list hooks) except -1:
        """Records that a hook's `after_run` failed. The hooks after it aren't called for the run."""
        cdef bint is_after = False
        for hook in hooks:
            if is_after and self.hooks.synced_to.get(id(hook)) != self.runs - 1:
                self.sync_after_run(snapshot, hook)
            is_after = is_after or hook is failed
        return 0

    cdef object known_step(self, RunSnapshot* snapshot):
        """Returns the global step before the coming run, with its NumPy type, or None if the run must fetch it.

        A fetch in the run could return the step before or after the increment.
        """
        cdef bint is_unknown = snapshot.source == FETCHED_STEP and not snapshot.fed & OWN_READ
        if is_unknown or not self.count.can_be_fetched():
            return None
        # The count excludes other threads' unfinished runs.
        if self.count.session.writers_running == 0:
            if snapshot.before != NO_STEP:
                return self.count.as_fetched(snapshot.before)
            if self.count.know():
                return self.count.as_fetched(self.count.value())
        return self.count.read()

    cdef object step_before(self, RunSnapshot* snapshot):
        """Returns the global step before a finished run, with its NumPy type, or None if the graph has no read of it."""
        if self.step_read is None:
            return None
        if snapshot.before != NO_STEP:
            return self.count.as_fetched(snapshot.latest)
        # No hook needed the step before this run, so read it now.
        return self.count.session.run(self.step_read) - self.count.as_fetched(max(snapshot.delta, 0))

    cdef int tell_step_after(self, RunSnapshot* snapshot, ScheduledHookBase hook) except -1:
        """Passes the global step after the run to a hook for its `after_run`, if the step is counted."""
        self.find_step_after(snapshot)
        if snapshot.source != COUNTED_STEP or snapshot.moved or id(hook) in self.hooks.every_run_ids:
            return 0
        # The count excludes other threads' unfinished runs.
        if self.count.session.writers_running == 0:
            hook.counted_step = self.count.as_fetched(snapshot.after)
        return 0

    def sync_all(self):
        """Updates the state of every hook, for readers outside a run."""
        for table in (self.hooks.in_run, self.hooks.after_run):
            for hook in table.entries:
                self.hooks.sync(hook, self.runs, self.previous_step)
                hook._before_end()
