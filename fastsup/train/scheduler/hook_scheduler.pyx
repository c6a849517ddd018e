"""Decides which hooks are called in which run of a session.

A hook with a schedule is skipped in the runs in which TensorFlow's call of it would only keep its own books. Before its
next call its state is brought up to date (`HookList.sync`).

Each run has a RunSnapshot, which goes through these states:

    open_step       before the run: where the global step stands, by counting, by reading, or by a fetch in the run
    reopen_step     after the `before_run` of hooks, which may have moved the step, or feed it
    close_step      after the run: `before` is known now, and becomes the previous step of the next run

The first question, asked before the run, is `any_in_run`; the second, asked after `close_step`, is `any_after_run`. Each
has one predicate, which is asked for the earliest of all hooks and then for each hook. A hook is never called too late.
It may be called in a run in which it isn't due: it then decides that it has nothing to do.
"""

from libc.math cimport HUGE_VAL
from libc.stdint cimport int64_t

from tensorflow.python.training import training_util

from fastsup.core.clock cimport reached, seconds
from fastsup.core.schedule cimport FS_DUE_NEVER, ScheduleTable
from fastsup.runtime.plans cimport Plan
from fastsup.runtime.runner cimport OWN_READ, SessionRunner, StepCount
from fastsup.train.scheduler.hook_list cimport HookList
from fastsup.train.scheduler.scheduled_hook cimport ScheduledHookBase
from fastsup.train.scheduler.run_snapshot cimport (
    COUNTED_STEP, FETCHED_STEP, NO_STEP, READ_STEP, UNUSED_STEP, RunSnapshot, due_after_run, due_in_run, idle_runs,
    runs_until_due
)


cdef class HookScheduler:
    """The schedules of a session's hooks.

    Args:
      hooks: the hooks. The program may change a list while it is used.
      session: the `fastsup.Session` that the hooks are called around.
    """

    def __init__(self, hooks, SessionRunner session):
        self.step_read = training_util._get_global_step_read(session.graph)
        self.count = StepCount(session, self.step_read)
        self.hooks = HookList(hooks, self.step_read)
        self.previous_step = NO_STEP
        self.refresh()

    cdef int refresh(self) except -1:
        """Brings the schedules up to date."""
        return self.hooks.refresh(self.runs, self.previous_step)

    # The global step around a run.

    cdef int open_step(self, RunSnapshot* snapshot, Plan plan) except -1:
        """Finds out, before a run, where the global step stands.

        Args:
          snapshot: the run's snapshot, to be filled.
          plan: the plan of the run; None if there is none.
        """
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
            # What is read now may be long past when this run begins, if other threads have runs under way.
            step = None if count.session.writers_running else count.read()
            snapshot.source = FETCHED_STEP if step is None else READ_STEP
            snapshot.before = NO_STEP if step is None else step
        return 0

    cdef int read_counters(self, RunSnapshot* snapshot) except -1:
        snapshot.counted = self.count.session.steps_counted
        snapshot.epoch = self.count.session.step_epoch
        return 0

    cdef int reopen_step(self, RunSnapshot* snapshot, object feed_dict, bint fed_by_hooks) except -1:
        """Finds the step again after the hooks' `before_run`.

        Args:
          snapshot: the run's snapshot.
          feed_dict: everything that the run is fed, or None.
          fed_by_hooks: whether hooks feed some of it.
        """
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
        """Ends a run that went well. The only place that changes the previous step.

        Args:
          snapshot: the run's snapshot.
          fetched: the global step that the run has fetched, or None.
        """
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
        """Opens the next run of a loop. The step before it is where the run before it has left it."""
        snapshot.run = self.runs
        snapshot.previous = self.previous_step
        if snapshot.source == COUNTED_STEP:
            snapshot.before = self.count.value()
        return self.read_counters(snapshot)

    cdef int64_t delta_of(self, Plan plan) except? -2:
        """The number that a run adds to the global step; negative if unknown."""
        if plan is None or self.count.variable is None:
            return -1
        return plan.step_delta if plan.step_delta_known else self.count.session.delta_of(plan)

    cdef int find_step_after(self, RunSnapshot* snapshot) noexcept:
        """Finds out where a counted step stands after the run, and whether anything but the run has moved it."""
        cdef SessionRunner session = self.count.session
        if snapshot.source == COUNTED_STEP:
            snapshot.after = self.count.value()
            snapshot.moved = session.step_epoch != snapshot.epoch
        return 0

    cdef int find_latest(self, RunSnapshot* snapshot) noexcept:
        """Finds the latest step that the run can have begun at: runs of other threads have ended since it was opened."""
        cdef SessionRunner session = self.count.session
        cdef int64_t others = session.steps_counted - snapshot.counted - max(snapshot.delta, 0)
        if snapshot.source == COUNTED_STEP and session.step_epoch == snapshot.epoch:
            snapshot.before += others
            others = 0
        # Of the runs whose effect isn't known, each is taken to have added 1.
        snapshot.latest = snapshot.before + others + <int64_t> (session.step_epoch - snapshot.epoch) - (snapshot.delta < 0)
        return 0

    # Hooks that act in the run.

    cdef bint any_in_run(self, RunSnapshot* snapshot) except -1:
        """Whether any hook is to be called in the coming run."""
        return len(self.hooks.every_run) > 0 or due_in_run(snapshot, &self.hooks.in_run.table.earliest, False)

    cdef list hooks_in_run(self, RunSnapshot* snapshot):
        """The hooks to call in the coming run, in their order."""
        cdef ScheduledHookBase scheduled
        cdef list called = []
        cdef Py_ssize_t i = 0
        cdef HookList hooks = self.hooks
        # Held: a clock in Python may let another thread replace the table.
        cdef ScheduleTable table = hooks.in_run
        cdef object entries = table.entries
        for hook in hooks.hooks:
            if i < len(entries) and hook is entries[i]:
                scheduled = <ScheduledHookBase> hook
                # The value that a hook watches is fetched by its call.
                if scheduled.watched_fetch is not None or due_in_run(
                    snapshot, table.table.dues[i], scheduled.by_coming_step
                ):
                    called.append(hook)
                i += 1
            elif id(hook) in hooks.every_run_ids:
                called.append(hook)
        return called

    cdef list hooks_in_unknown_run(self, RunSnapshot* snapshot):
        """The hooks to call in a run without a plan: all, as it may do anything, but those that wouldn't decide themselves."""
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
        """How many runs like the coming one come before the first in which a hook may act. At least 1.

        Args:
          snapshot: that of the coming run, opened; no hook is called in that run.
        """
        if snapshot.source == READ_STEP or snapshot.source == FETCHED_STEP:
            return 1  # A step that isn't counted has to be found before each run.
        return idle_runs(snapshot, &self.hooks.in_run.table.earliest)

    cdef int64_t steps_at_once(self, RunSnapshot* snapshot) except -1:
        """How many runs like the coming one can be made before anything is asked of a hook. At least 1.

        After the last of them, after-run hooks may be due.

        Args:
          snapshot: that of the coming run, opened; no hook is called in that run.
        """
        cdef int64_t until_due = runs_until_due(
            snapshot, &self.hooks.after_run.table.earliest, self.hooks.watches_stall
        )
        return min(self.idle_steps(snapshot), until_due)

    cdef double seconds_until_due(self) except? -1.0:
        """The seconds until a hook is due by time; infinite if none is, negative if one is due."""
        cdef double due = min(self.hooks.in_run.table.earliest.time, self.hooks.after_run.table.earliest.time)
        return due if due == HUGE_VAL else due - seconds()

    cdef int close_steps(self, RunSnapshot* snapshot, int64_t steps) except -1:
        """Ends several runs that went well, and have been counted. As `close_step` after each of them.

        Args:
          snapshot: that of the first of them, whose step is counted or unused.
          steps: their number.
        """
        cdef int64_t before_last = steps - 1
        if before_last > 0:
            self.runs += before_last
            snapshot.run += before_last
            if snapshot.source == COUNTED_STEP:
                self.previous_step = snapshot.before + (before_last - 1) * snapshot.delta
                snapshot.before += before_last * snapshot.delta
                snapshot.counted += before_last * snapshot.delta
            snapshot.previous = self.previous_step
        return self.close_step(snapshot, None)

    cdef bint due_by_time(self) except -1:
        """Whether an in-run hook is due by time."""
        return self.hooks.in_run.table.earliest.time != HUGE_VAL and reached(self.hooks.in_run.table.earliest.time)

    # Hooks that act after the run.

    cdef bint any_after_run(self, RunSnapshot* snapshot) except -1:
        """Whether any hook is to be called after a run that has ended."""
        cdef HookList hooks = self.hooks
        return (snapshot.source == COUNTED_STEP and snapshot.moved) or due_after_run(
            snapshot, &hooks.after_run.table.earliest, hooks.watches_stall, hooks.needs_true_step
        )

    cdef bint is_due_after_run(self, RunSnapshot* snapshot, object candidate) except -1:
        """Whether a hook that isn't called in the run is to be called after it."""
        if not isinstance(candidate, ScheduledHookBase):
            return False
        cdef ScheduledHookBase hook = candidate
        if not (hook.is_scheduled and hook.is_after_run) or id(candidate) in self.hooks.every_run_ids:
            return False
        if not hook.is_current():
            return True  # A hook called before it has changed its schedule: it decides on its own.
        # A hook called before it may have moved the step.
        self.find_step_after(snapshot)
        return due_after_run(
            snapshot, &hook.due, hook.watches_stall, hook.needs_true_step and hook.due.global_step != FS_DUE_NEVER
        )

    # Calls of hooks.

    # Runs are numbered in the order in which they end: others may have ended since this one was opened.

    cdef int sync_before_run(self, object hook) except -1:
        """Brings the state of a hook that is about to be called up to date with the runs that have ended."""
        if isinstance(hook, ScheduledHookBase):
            self.hooks.sync(<ScheduledHookBase> hook, self.runs, self.previous_step)
        return 0

    cdef int mark_synced(self, object hook) except -1:
        """Notes, before `close_step`, that a hook is called in the run that ends."""
        if isinstance(hook, ScheduledHookBase):
            self.hooks.synced_to[id(hook)] = self.runs
        return 0

    cdef int sync_after_run(self, RunSnapshot* snapshot, object hook) except -1:
        """Brings the state of a hook up to date after `close_step`, and notes that the hook knows of the run."""
        if isinstance(hook, ScheduledHookBase):
            self.hooks.sync(<ScheduledHookBase> hook, self.runs - 1, snapshot.previous)
            self.hooks.synced_to[id(hook)] = self.runs - 1
        return 0

    cdef int skip_remaining(self, RunSnapshot* snapshot, object failed, list hooks) except -1:
        """Notes that a hook's `after_run` has failed: the hooks after it aren't called for the run."""
        cdef bint is_after = False
        for hook in hooks:
            if is_after and self.hooks.synced_to.get(id(hook)) != self.runs - 1:
                self.sync_after_run(snapshot, hook)
            is_after = is_after or hook is failed
        return 0

    cdef object known_step(self, RunSnapshot* snapshot):
        """The global step before the coming run, of its NumPy type; None if the run has to fetch it.

        Fetched in the run, it would be the step before the increment or the one after it, in no order.
        """
        cdef bint is_unknown = snapshot.source == FETCHED_STEP and not snapshot.fed & OWN_READ
        if is_unknown or not self.count.can_be_fetched():
            return None
        # The count leaves out the runs that are under way in other threads.
        if self.count.session.writers_running == 0:
            if snapshot.before != NO_STEP:
                return self.count.as_fetched(snapshot.before)
            if self.count.know():
                return self.count.as_fetched(self.count.value())
        return self.count.read()

    cdef object step_before(self, RunSnapshot* snapshot):
        """The global step before a run that has ended, of its NumPy type; None in a graph without its read."""
        if self.step_read is None:
            return None
        if snapshot.before != NO_STEP:
            return self.count.as_fetched(snapshot.latest)
        # No hook needed the step before this run, so it is read now.
        return self.count.session.run(self.step_read) - self.count.as_fetched(max(snapshot.delta, 0))

    cdef int tell_step_after(self, RunSnapshot* snapshot, ScheduledHookBase hook) except -1:
        """Lets a hook know, for its `after_run`, where the global step stands after the run, if that is counted."""
        self.find_step_after(snapshot)
        if snapshot.source != COUNTED_STEP or snapshot.moved or id(hook) in self.hooks.every_run_ids:
            return 0
        # The count leaves out the runs that are under way in other threads.
        if self.count.session.writers_running == 0:
            hook.counted_step = self.count.as_fetched(snapshot.after)
        return 0

    def sync_all(self):
        """Brings the state of every hook up to date, for readers outside a run."""
        for table in (self.hooks.in_run, self.hooks.after_run):
            for hook in table.entries:
                self.hooks.sync(hook, self.runs, self.previous_step)
                hook._before_end()
