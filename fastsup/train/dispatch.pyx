"""Which hooks are called in which run.

A hook without a schedule is called in every run, if it has a callback at all. A scheduled hook is left out of the
runs in which TensorFlow's call of it would do nothing but keep its own books, and catches up before its next call.
"""

from collections import Counter

from cpython.object cimport PyObject
from libc.math cimport HUGE_VAL
from libc.stdint cimport INT64_MIN, int64_t
from libc.string cimport memcmp

from tensorflow.python.training import session_run_hook, training_util

from fastsup.core.clock cimport reached
from fastsup.core.schedule cimport FS_DUE_NEVER, ScheduleTable
from fastsup.runtime.plan cimport Plan
from fastsup.runtime.runner cimport SessionRunner
from fastsup.runtime.step_count cimport StepCount
from fastsup.train.scheduled cimport ScheduledHook
from fastsup.train.type_versions cimport TypeVersions

cdef object SessionRunHook = session_run_hook.SessionRunHook

cdef extern from "Python.h":
    PyObject** PySequence_Fast_ITEMS(object sequence)

# Far below every step, so that what is computed from it is due nowhere.
cdef int64_t NO_STEP = INT64_MIN // 2

# The callbacks that do nothing.
cdef dict empty_callbacks = {name: getattr(SessionRunHook, name) for name in ("before_run", "after_run")}


cdef bint overrides(object hook, str callback) except -1:
    """Whether calling a hook's callback can do anything. True for whatever isn't known to be the empty default."""
    # Its type, not isinstance(): a mock of a hook says that it is one.
    if not issubclass(type(hook), SessionRunHook) or callback in getattr(hook, "__dict__", ()):
        return True
    return getattr(type(hook), callback) is not empty_callbacks[callback]


# What each class's callbacks were when it was first seen: a program may replace them, on the class that wrote the
# schedule as well, and then its schedule says nothing any more.
cdef dict original_callbacks = {}


def remember_callbacks(kind):
    """Records the callbacks that a class's schedule was written for. A class decorator."""
    original_callbacks[kind] = (kind.before_run, kind.after_run)
    return kind


cdef class Dispatch:
    """The schedules of a session's hooks.

    Args:
      hooks: the hooks; more may be appended while it is used.
      session: the `fastsup.Session` that they are called around.
    """

    def __init__(self, hooks, SessionRunner session):
        # What is no list is looked at once, as it may not bear being looked at twice.
        self.hooks = hooks if isinstance(hooks, (list, tuple)) else list(hooks)
        self.step_read = training_util._get_global_step_read(session.graph)
        self.count = StepCount(session, self.step_read)
        self.called_in = {}
        self.stale_step = NO_STEP
        self.refresh()

    cdef bint is_outdated(self) noexcept:
        """Whether something has changed that schedules were computed from."""
        return (
            self.table.changes[0] != self.table.changes_seen
            or self.hooks_changed()
            or self.types.changed()
            or self.quiet_hook_changed()
        )

    cdef bint hooks_changed(self) noexcept:
        """Whether there are other hooks than there were, or in another order."""
        cdef Py_ssize_t n = len(self.hooks_seen)
        if type(self.hooks) is not list:
            return False
        return len(<list> self.hooks) != n or memcmp(
            PySequence_Fast_ITEMS(self.hooks), PySequence_Fast_ITEMS(self.hooks_seen), n * sizeof(PyObject*)
        ) != 0

    cdef bint quiet_hook_changed(self) noexcept:
        """Whether a hook without callbacks may have got one: an attribute of its own, or another class."""
        cdef Py_ssize_t i
        if self.quiet is None:
            return True
        for i in range(len(self.quiet)):
            if type(self.quiet[i]) is not self.quiet_types[i] or len(<dict> self.quiet_dicts[i]) != self.quiet_sizes[i]:
                return True
        return False

    cdef int refresh(self) except -1:
        """Brings the schedules up to date: of the hooks that have changed, or of all of them."""
        cdef bint had
        if (
            self.types is None
            or self.hooks_changed()
            or self.types.changed()
            or self.quiet_hook_changed()
        ):
            return self.sort_hooks()
        for hook in self.schedulable:
            had = (<ScheduledHook> hook).has_schedule
            if self.follows_schedule(hook, False) != had:
                return self.sort_hooks()
        self.table.reload()
        return self.sum_up(self.table)

    cdef int sort_hooks(self) except -1:
        """Finds out of every hook whether it has a schedule, has to be called in every run, or never."""
        cdef list scheduled = [], every_run = [], quiet = []
        cdef list hooks = list(self.hooks)
        cdef TypeVersions types = TypeVersions(
            [type(candidate) for candidate in hooks] + [type(getattr(candidate, "_timer", None)) for candidate in hooks]
        )
        counts = Counter(map(id, hooks))
        for candidate in hooks:
            if counts[id(candidate)] == 1 and self.follows_schedule(candidate, True):
                scheduled.append(candidate)
            elif overrides(candidate, "before_run") or overrides(candidate, "after_run"):
                every_run.append(candidate)
            else:
                quiet.append(candidate)
        cdef list schedulable = [candidate for candidate in hooks if isinstance(candidate, ScheduledHook)]
        cdef list quiet_types = list(map(type, quiet)), quiet_dicts = list(map(vars, quiet))
        cdef list quiet_sizes = list(map(len, quiet_dicts))
        cdef set every_run_ids = set(map(id, every_run))
        cdef bint has_twins = len(counts) < len(hooks)
        # From here on nothing may let another thread run, which goes by all this: nothing is made, and what is replaced
        # is held until the end, as it may be the last that holds a hook.
        replaced = (
            self.types, self.hooks_seen, self.schedulable, self.table, self.every_run, self.every_run_ids, self.quiet,
            self.quiet_types, self.quiet_dicts, self.quiet_sizes, self.watching, self.watched_fetches,
        )
        self.sum_up(ScheduleTable(scheduled))
        self.types = types
        self.hooks_seen = hooks
        self.has_twins = has_twins
        self.schedulable = schedulable
        self.every_run = every_run
        self.every_run_ids = every_run_ids
        self.quiet = quiet
        self.quiet_types = quiet_types
        self.quiet_dicts = quiet_dicts
        self.quiet_sizes = quiet_sizes
        del replaced
        return 0

    cdef int sum_up(self, ScheduleTable table) except -1:
        """Takes over a table, and what its schedules say together."""
        cdef ScheduledHook hook
        cdef list watching = [], watched_fetches = []
        cdef bint needs_step = False, watches_stall = False, wants_true_step = False
        cdef int64_t earliest_foreseen = FS_DUE_NEVER
        cdef double time_before = HUGE_VAL, time_after = HUGE_VAL
        replaced = (self.table, self.watching, self.watched_fetches)
        for entry in table.entries:
            hook = <ScheduledHook> entry
            if hook.watched_fetch is not None:
                watching.append(hook)
                watched_fetches.append(hook.watched_fetch)
            watches_stall = watches_stall or hook.watches_stall
            needs_step = needs_step or hook.watches_stall or hook.due.global_step != FS_DUE_NEVER
            if hook.decides_after:
                time_after = min(time_after, hook.due.time)
            else:
                time_before = min(time_before, hook.due.time)
                earliest_foreseen = min(earliest_foreseen, hook.due.global_step)
            if hook.needs_true_step and hook.due.global_step != FS_DUE_NEVER:
                wants_true_step = True
        self.table = table
        self.watching = watching
        self.watched_fetches = watched_fetches
        self.needs_step = needs_step
        self.watches_stall = watches_stall
        self.wants_true_step = wants_true_step
        self.earliest_foreseen = earliest_foreseen
        self.time_before = time_before
        self.time_after = time_after
        del replaced
        return 0

    cdef bint follows_schedule(self, object candidate, bint anew) except -1:
        """Whether a hook has a schedule that can be relied on now. Brings it up to date if so.

        Args:
          candidate: the hook.
          anew: whether that is to be found out even if neither the hook nor its timer has changed.
        """
        if not isinstance(candidate, ScheduledHook):
            return False
        cdef ScheduledHook hook = candidate
        if anew or not hook.is_current():
            hook.has_schedule = self.set_schedule(hook)
            # Only now: making the schedule may have set an attribute.
            hook.set_current()
        return hook.has_schedule

    cdef bint set_schedule(self, ScheduledHook hook) except -1:
        """Has a hook say when it is next due. False if it can't."""
        self.catch_up(hook)
        if "before_run" in hook.__dict__ or "after_run" in hook.__dict__:
            return False
        cdef object kind = type(hook)
        for base in kind.__mro__:
            if base in original_callbacks:
                if (kind.before_run, kind.after_run) != original_callbacks[base]:
                    return False
                break
        else:
            return False
        hook.never_due()
        hook.watched_fetch = None
        hook.watches_stall = False
        return hook._schedule(self.runs, self.step_read)

    cdef bint nothing_due(self, Look* look, Plan plan) except -1:
        """Whether no hook has to be called in the coming run of this plan, as far as that can be told before it."""
        if self.is_outdated():
            self.refresh()
        return not self.anything_due(look, plan)

    cdef bint idle_run_ended(self, Look* look) except -1:
        """Takes note of a run that called no hook and fetched no step, and says whether a hook may want a call yet."""
        self.note_run(look)
        return self.left_out_too_much(look)

    cdef bint anything_due(self, Look* look, Plan plan) except -1:
        """Whether a hook may have to be called in the coming run of this plan. Looks at the global step before it."""
        self.look_at_step(look, plan)
        if len(self.every_run) > 0 or self.runs >= self.table.earliest.run or self.comes_due_by_time():
            return True
        if not self.needs_step:
            return False
        if look.step_known:
            return (
                self.position(look) >= self.table.earliest.global_step
                or (self.watches_stall and self.count.value() == self.stale_step)
            )
        return (
            self.wants_true_step
            or self.stale_step + 2 >= self.earliest_foreseen
            or (self.stale_step == NO_STEP and self.table.earliest.global_step != FS_DUE_NEVER)
        )

    cdef int look_at_step(self, Look* look, Plan plan) except -1:
        """Finds out where the global step stands before a run, or that the run has to fetch it.

        Args:
          look: gets that.
          plan: the plan of the run; None if there is none.
        """
        cdef StepCount count = self.count
        look.step_known = look.step_unforeseen = look.step_fetched = look.acting = look.moved = False
        look.step_before = NO_STEP
        look.feeds_known = plan is not None
        look.step_fed = look.feeds_known and len(plan.feeds) > 0 and count.is_fed(plan)
        if not self.needs_step:
            return 0
        look.delta = self.delta_of(plan)
        return self.find_step(look)

    cdef int find_step(self, Look* look) except -1:
        """Finds the global step, of whose move in the coming run `look` knows."""
        cdef StepCount count = self.count
        look.step_known = look.step_unforeseen = look.step_fetched = False
        if look.step_fed:
            look.step_unforeseen = look.step_fetched = True
            look.step_before = NO_STEP
        elif (count.known and count.session.disturbances == count.disturbances_seen) or count.know():
            look.step_known = look.delta >= 0
            look.step_unforeseen = not look.step_known
            look.step_before = count.value()
            self.begin_next_run(look)
        else:
            look.step_unforeseen = True
            count.prepare_fetch()
            self.begin_next_run(look)
            step = count.read()
            look.step_fetched = step is None
            look.step_before = NO_STEP if step is None else step
        return 0

    cdef int look_again(self, Look* look, object feed_dict, bint fed_by_hooks) except -1:
        """Looks at the step again after the hooks' `before_run`: they may have moved it, and they may feed it.

        Args:
          look: what was seen before.
          feed_dict: all that the run is fed, or None.
          fed_by_hooks: whether there is something of the hooks among it.
        """
        cdef SessionRunner session = self.count.session
        cdef int64_t before = look.step_before
        if feed_dict and (fed_by_hooks or not look.feeds_known) and self.count.is_fed_by(feed_dict):
            look.step_fed = True
        elif not self.needs_step or look.step_fetched:
            return 0
        elif (
            self.count.variable is not None
            and session.disturbances == look.disturbances_before
            and session.steps_counted == look.counted_before
        ):
            return 0
        if self.needs_step:
            self.find_step(look)
            look.moved = look.step_before != before
        return 0

    cdef int64_t delta_of(self, Plan plan) except? -2:
        """What a run adds to the global step; negative if that isn't known."""
        if plan is None or self.count.variable is None:
            return -1
        return plan.step_delta if plan.step_delta_known else self.count.session.delta_of(plan)

    cdef int64_t idle_runs(self, Look* look, Plan plan) except -1:
        """How many runs of this plan come before one in which a hook may be due: by its number or its global step."""
        cdef int64_t runs
        # Where the step has to be looked at before every run, that run does so itself.
        if (self.needs_step and self.delta_of(plan) < 0) or not self.nothing_due(look, plan) or look.step_unforeseen:
            return 0
        runs = self.table.earliest.run - self.runs
        if self.table.earliest.global_step != FS_DUE_NEVER and look.delta > 0:
            # Rounded down: coming too early costs a look, coming too late would be wrong.
            runs = min(runs, (self.table.earliest.global_step - self.position(look)) // look.delta)
        elif self.needs_step:
            # A run that doesn't move the step is something that a hook may want to know.
            return 1
        return max(runs, 1)

    cdef bint comes_due_by_time(self) except -1:
        """Whether a hook that decides before a run has come due meanwhile."""
        return self.time_before != HUGE_VAL and reached(self.time_before)

    cdef int begin_next_run(self, Look* look) except -1:
        """The global step before the coming run is where the run before has left it."""
        if look.step_known:
            look.step_before = self.count.value()
        look.counted_before = self.count.session.steps_counted
        look.disturbances_before = self.count.session.disturbances
        return 0

    cdef int64_t position(self, Look* look) noexcept:
        """Where the coming run stands on the axis of the global step.

        That is the step after the run; or the step after it as foreseen in the run before, on which some hooks decide.
        """
        if not look.step_known:
            return INT64_MIN
        return max(self.count.value() + look.delta, self.stale_step + 2)

    cdef list due(self, Look* look):
        """The hooks to call in the coming run, in their order."""
        cdef list called = []
        cdef Py_ssize_t i = 0
        cdef object entries = self.table.entries
        for hook in self.hooks:
            if i < len(entries) and hook is entries[i]:
                if self.hook_is_due(look, i, hook):
                    if (<ScheduledHook> hook).acts_on_step and look.step_known and self.count.value() != self.stale_step:
                        look.acting = True
                    else:
                        called.append(hook)
                i += 1
            elif id(hook) in self.every_run_ids:
                called.append(hook)
        return called

    cdef bint hook_is_due(self, Look* look, Py_ssize_t i, ScheduledHook hook) except -1:
        """Whether a hook has to be called in the coming run, where others are, as far as that can be told before it."""
        cdef int64_t step = hook.due.global_step
        if hook.watched_fetch is not None:
            return True  # What it watches is fetched by its call.
        if look.step_unforeseen and step != FS_DUE_NEVER:
            # What decides after the run does so on the step before this one; the others on the run before.
            if hook.needs_true_step or self.stale_step == NO_STEP:
                return True
            if not hook.decides_after and self.stale_step + 2 >= step:
                return True
        elif look.step_known and hook.watches_stall and self.count.value() == self.stale_step:
            return True
        return self.table.entry_is_due(i, self.runs, self.position(look))

    cdef int catch_up(self, object hook) except -1:
        """Tells a scheduled hook about the runs that it was left out of."""
        if not isinstance(hook, ScheduledHook):
            return 0
        cdef int64_t skipped = self.runs - <int64_t> self.called_in.get(id(hook), self.runs - 1) - 1
        if skipped > 0:
            hook._catch_up(skipped, self.stale_step)
        self.called_in[id(hook)] = self.runs - 1
        return 0

    cdef int catch_up_late(self, ScheduledHook hook) except -1:
        """The same after a run, for a hook that is called for it only now."""
        cdef int64_t skipped = self.runs - 2 - <int64_t> self.called_in.get(id(hook), self.runs - 2)
        if skipped > 0:
            hook._catch_up(skipped, self.stale_step_before)
        self.called_in[id(hook)] = self.runs - 1
        return 0

    cdef int tell_step(self, Look* look, ScheduledHook hook) except -1:
        """Tells a hook that is called where the global step stands after the run, if that is known."""
        if look.step_known and id(hook) not in self.every_run_ids and not self.step_moved_unforeseen(look):
            hook.counted_step = self.count.as_fetched(self.count.value())
        return 0

    cdef bint step_moved_unforeseen(self, Look* look) noexcept:
        """Whether the run did something to the global step that wasn't known before it."""
        cdef SessionRunner session = self.count.session
        return look.step_known and (
            session.disturbances != look.disturbances_before
            or session.steps_counted != look.counted_before + look.delta
        )

    cdef bint left_out_too_much(self, Look* look) except -1:
        """Whether a hook that was left out of the run may have to be called after it, all the same."""
        if look.acting or look.moved:
            return True
        if look.step_unforeseen and (
            look.step_before + 1 >= self.table.earliest.global_step or look.step_before == self.stale_step_before
        ):
            return True
        return self.step_moved_unforeseen(look) or (self.time_after != HUGE_VAL and reached(self.time_after))

    cdef bint wanted_late(self, Look* look, object candidate) except -1:
        """Whether a hook that was left out of the run has to be called after it."""
        if not isinstance(candidate, ScheduledHook):
            return False
        cdef ScheduledHook hook = candidate
        if not hook.decides_after or id(candidate) in self.every_run_ids:
            return False
        if hook.due.time != HUGE_VAL and reached(hook.due.time):
            return True
        if look.step_unforeseen:
            if hook.watches_stall and look.step_before == self.stale_step_before:
                return True
            return hook.due.global_step != FS_DUE_NEVER and look.step_before + 1 >= hook.due.global_step
        if hook.due.global_step == FS_DUE_NEVER:
            return False
        if self.step_moved_unforeseen(look):
            return True
        if look.moved:
            return max(look.step_before + 1, self.count.value()) >= hook.due.global_step
        return look.acting and hook.acts_on_step and self.count.value() >= hook.due.global_step

    cdef bint can_act(self, Look* look, ScheduledHook hook) noexcept:
        """Whether a hook that was left out of the run can act on the step after it, without its callbacks."""
        if not hook.acts_on_step:
            return False
        if look.step_unforeseen:
            return look.step_before != self.stale_step_before
        return look.step_known and not self.step_moved_unforeseen(look)

    cdef int act(self, Look* look, ScheduledHook hook) except -1:
        """Has it do that."""
        stale = self.late_values(look, self.step_read)
        if look.step_unforeseen:
            step = self.count.session.run(self.step_read)
        else:
            step = self.count.as_fetched(self.count.value())
        hook._act(stale, step)
        return 0

    cdef object known_step(self, Look* look):
        """The global step before the coming run, as it would be fetched; None if the run has to fetch it.

        Read in the run, it would be the step before the increment or after it, as it happens.
        """
        if look.step_fetched or look.step_fed or not self.count.can_be_fetched():
            return None
        # The count says nothing of runs that are under way in other threads.
        if self.count.session.writers_running == 0:
            if look.step_before != NO_STEP:
                return self.count.as_fetched(look.step_before)
            if self.count.know():
                return self.count.as_fetched(self.count.value())
        return self.count.read()

    cdef object late_values(self, Look* look, object fetches):
        """What a run that is over would have fetched: the global step before it, if that is all that is asked for."""
        if fetches is not self.step_read:
            raise RuntimeError(f"{fetches!r} can't be known after the run.")
        if look.step_before != NO_STEP:
            return self.count.as_fetched(look.step_before)
        return self.count.session.run(fetches)

    cdef int run_ended(self, Look* look, list called, object fetched_step) except -1:
        """Takes note that a run has been made.

        Args:
          called: the hooks that are called in it, or None.
          fetched_step: the global step, if the run was to fetch it.
        """
        if called is not None:
            for hook in called:
                if isinstance(hook, ScheduledHook):
                    self.called_in[id(hook)] = self.runs
        if fetched_step is not None:
            look.step_before = fetched_step
        self.note_run(look)
        return 0

    cdef int failed_at(self, object failed, list hooks) except -1:
        """Takes note that a hook's `after_run` has failed: the hooks behind it don't hear of the run at all."""
        cdef bint behind = False
        for hook in hooks:
            if behind and isinstance(hook, ScheduledHook) and self.called_in.get(id(hook)) != self.runs - 1:
                self.catch_up_late(hook)
            behind = behind or hook is failed
        return 0

    cdef void note_run(self, Look* look) noexcept:
        self.runs += 1
        self.stale_step_before = self.stale_step
        self.stale_step = look.step_before

    cdef int call_all(self, Look* look) except -1:
        """Prepares a run in which every hook is called, whatever its schedule says."""
        if self.is_outdated():
            self.refresh()
        # What such a run does isn't known. On the step before it some hooks decide in the next one.
        return self.look_at_step(look, None)

    def settle(self):
        """Brings every hook up to date, for whoever looks at it outside a run."""
        for hook in self.table.entries:
            self.catch_up(hook)
            hook._leave()
