"""The rules of fastsup/train/run_snapshot.pxd as Python functions."""

from fastsup.core.schedule cimport FS_DUE_NEVER, fs_due
from fastsup.train.run_snapshot cimport (
    COUNTED_STEP, FETCHED_STEP, NO_STEP, READ_STEP, UNUSED_STEP, RunSnapshot, due_after_run, due_in_run, idle_runs
)

NEVER = FS_DUE_NEVER
UNKNOWN = NO_STEP
UNUSED, COUNTED, READ, FETCHED = UNUSED_STEP, COUNTED_STEP, READ_STEP, FETCHED_STEP


cdef fs_due due_at(object run, object step):
    cdef fs_due due
    due.run = NEVER if run is None else run
    due.global_step = NEVER if step is None else step
    due.time = float("inf")
    return due


cdef RunSnapshot view_of(object run, object previous, object before, object delta, object source, object after, object moved):
    cdef RunSnapshot view
    view.source = source
    view.run = run
    view.previous = NO_STEP if previous is None else previous
    view.before = NO_STEP if before is None else before
    view.delta = delta
    view.after = 0 if after is None else after
    view.moved = moved
    view.counted = view.epoch = view.fed = view.feeds_known = 0
    view.latest = view.before
    return view


def in_run(due, run, previous, before=None, delta=0, by_coming_step=False):
    """The step before the run is known if `before` is given."""
    cdef fs_due positions = due_at(due[0], due[1])
    cdef RunSnapshot view = view_of(run, previous, before, delta, READ_STEP, None, False)
    return bool(due_in_run(&view, &positions, by_coming_step))


def idle(due, run, before, delta):
    cdef fs_due positions = due_at(due[0], due[1])
    cdef RunSnapshot view = view_of(run, None, before, delta, COUNTED_STEP, None, False)
    return idle_runs(&view, &positions)


def after_run(due, watches_stall, needs_true_step, run, previous, before, source, after, moved):
    cdef fs_due positions = due_at(due[0], due[1])
    cdef RunSnapshot view = view_of(run, previous, before, 0, source, after, moved)
    return bool(due_after_run(&view, &positions, watches_stall, needs_true_step))
