"""The global step around one run, and the rules that determine when it makes hooks due. No lock, no clock except times.

This is separate from schedule.pxd, so that the tests compile the rules without TensorFlow.
"""

from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint64_t

from fastsup.core.schedule cimport FS_DUE_NEVER, due_reached, fs_due

cdef extern from *:
    """
    /* A global step that isn't known: far below every step, so that nothing computed from it is due. */
    #define FS_NO_STEP (INT64_MIN / 2)
    /* A step at which everything is due that is due at any step at all. */
    #define FS_ANY_STEP (INT64_MAX - 1)
    """
    const int64_t NO_STEP "FS_NO_STEP"
    const int64_t ANY_STEP "FS_ANY_STEP"


cdef enum StepSource:
    UNUSED_STEP  # No hook depends on the global step.
    COUNTED_STEP  # The step before the run is known, and so is the number that the run adds to it.
    READ_STEP  # The step before the run is known, as far as it can be read. The run's increment isn't known.
    FETCHED_STEP  # The run fetches the step before it.


# A snapshot belongs to one run, because several threads may run steps of one session at the same time. Only
# HookScheduler changes it.
cdef struct RunSnapshot:
    StepSource source
    # Number of the run, counted from 0.
    int64_t run
    # Global step before the previous run, and before this one. NO_STEP if unknown, or not yet known.
    int64_t previous
    int64_t before
    # The number that the run adds to the global step. Negative if unknown.
    int64_t delta
    # The session's counters when `before` was found: the steps counted, and the epoch of the step.
    int64_t counted
    uint64_t epoch
    # The part of the global step that the run is fed, as returned by `StepCount.fed_of`. `feeds_known` is True if the
    # program's feeds are known from the plan.
    int fed
    bint feeds_known
    # After the run: `before`, plus what other threads' runs can have added to it before this run started. TensorFlow's
    # hooks decide by a fetch in the run, which can have read this value.
    int64_t latest
    # For a counted step, after the run: the value of the step, and whether something that isn't counted changed it.
    int64_t after
    bint moved


cdef inline bint due_in_run(const RunSnapshot* snapshot, const fs_due* due, bint by_coming_step) except -1:
    """True if an in-run hook must be called in the coming run. `due` belongs to one hook, or is the earliest of all.

    Args:
      snapshot: the coming run's snapshot.
      due: the due positions.
      by_coming_step: True if the hook decides on the step after the coming run, where an unknown increment counts as 1.
        Otherwise, and if the step isn't known, it decides on the step that it predicted in the previous run, two after
        the step before that run, as TensorFlow's hooks do. Before the first run, each hook that waits for a step
        decides. False for the earliest of all, for which the later of the two steps is used.
    """
    cdef int64_t step = ANY_STEP if snapshot.previous == NO_STEP else snapshot.previous + 2
    cdef int64_t coming
    if snapshot.before != NO_STEP:
        coming = snapshot.before + (1 if snapshot.delta < 0 else snapshot.delta)
        step = coming if by_coming_step else max(step, coming)
    return due_reached(due, snapshot.run, step)


cdef inline int64_t idle_runs(const RunSnapshot* snapshot, const fs_due* earliest) noexcept:
    """Returns the number of runs with an increment of `delta` before one in which an in-run hook is due. At least 1.

    Considers the run's number and step. The coming run isn't counted. The result is rounded down, because an early
    check is cheap, and a late one would be wrong.
    """
    cdef int64_t idle = earliest.run - snapshot.run
    if earliest.global_step != FS_DUE_NEVER:
        # The run after the coming one predicts `before + 2`, or leads to 2 `delta` more, and each further one to
        # `delta` more.
        if snapshot.before + 2 >= earliest.global_step:
            return 1
        if snapshot.delta > 0:
            idle = min(idle, (earliest.global_step - snapshot.before - 1) // snapshot.delta)
    return max(idle, 1)


cdef inline bint due_after_run(
    const RunSnapshot* snapshot, const fs_due* due, bint watches_stall, bint needs_true_step
) except -1:
    """True if an after-run hook must be called after a run. For all hooks: the earliest positions, and any of the flags.

    Args:
      snapshot: the finished run's snapshot.
      due: the due positions.
      watches_stall: True if the hook must be called when the step before this run equals the step before the previous
        one.
      needs_true_step: True if the hook decides on the step after the run. Otherwise it decides on the step before the
        run plus 1, as TensorFlow's hooks do.
    """
    cdef int64_t step
    if snapshot.source == UNUSED_STEP:
        step = NO_STEP
    elif watches_stall and snapshot.before == snapshot.previous and snapshot.before != NO_STEP:
        return True
    elif snapshot.source == COUNTED_STEP:
        step = ANY_STEP if snapshot.moved else max(snapshot.latest + 1, snapshot.after)
    else:
        step = ANY_STEP if needs_true_step else snapshot.latest + 1
    return due_reached(due, snapshot.run, step)
