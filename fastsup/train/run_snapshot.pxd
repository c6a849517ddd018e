"""The global step around one run, and the rules by which it makes hooks due. Pure: no lock, no clock except for times.

Apart from schedule.pxd, so that the tests compile the rules without TensorFlow.
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
    READ_STEP  # The step before the run is known, as far as it can be read. The number that the run adds isn't.
    FETCHED_STEP  # The run fetches the step before it.


# Belongs to one run: several threads may run steps of one session at the same time. Only HookScheduler changes it.
cdef struct RunSnapshot:
    StepSource source
    # Number of the run, counted from 0.
    int64_t run
    # Global step before the previous run, and before this one. NO_STEP if unknown, or not yet known.
    int64_t previous
    int64_t before
    # The number that the run adds to the global step. Below 0: unknown.
    int64_t delta
    # The session's counters when `before` was found: the steps counted, and the epoch of the step.
    int64_t counted
    uint64_t epoch
    # What of the global step the run is fed, as `StepCount.fed_of` says. `feeds_known`: the feeds of the program are known
    # from the plan.
    int fed
    bint feeds_known
    # After the run: `before`, and what the runs of other threads can have added to it before this one began. TensorFlow's
    # hooks decide by a fetch in the run, which can have read as much.
    int64_t latest
    # Of a counted step, after the run: where it stands, and whether something has moved it that isn't counted.
    int64_t after
    bint moved


cdef inline bint due_in_run(const RunSnapshot* snapshot, const fs_due* due, bint by_coming_step) except -1:
    """Whether an in-run hook is to be called in the coming run. For `due`, one hook's or the earliest of all.

    Args:
      snapshot: the coming run's snapshot.
      due: the due positions.
      by_coming_step: whether the hook decides on the step after the coming run, with an unknown increment counted as 1.
        Otherwise, and where the step isn't known, it decides on the step that it foresaw in the previous run, two after
        the one before it, as TensorFlow's hooks do. After no run, each hook that waits for a step decides. False for
        the earliest of all: the later of the two steps then counts.
    """
    cdef int64_t step = ANY_STEP if snapshot.previous == NO_STEP else snapshot.previous + 2
    cdef int64_t coming
    if snapshot.before != NO_STEP:
        coming = snapshot.before + (1 if snapshot.delta < 0 else snapshot.delta)
        step = coming if by_coming_step else max(step, coming)
    return due_reached(due, snapshot.run, step)


cdef inline int64_t idle_runs(const RunSnapshot* snapshot, const fs_due* earliest) noexcept:
    """How many runs that each add `delta` come before one in which an in-run hook is due by its number or step. At least 1.

    The coming run isn't one of these. Rounded down: being early costs a check, being late would be wrong.
    """
    cdef int64_t idle = earliest.run - snapshot.run
    if earliest.global_step != FS_DUE_NEVER:
        # The run after the coming one foresees `before + 2`, or leads to 2 `delta` more, and each further one to `delta` more.
        if snapshot.before + 2 >= earliest.global_step:
            return 1
        if snapshot.delta > 0:
            idle = min(idle, (earliest.global_step - snapshot.before - 1) // snapshot.delta)
    return max(idle, 1)


cdef inline bint due_after_run(
    const RunSnapshot* snapshot, const fs_due* due, bint watches_stall, bint needs_true_step
) except -1:
    """Whether an after-run hook is to be called after a run. One hook's, or of all: the earliest, and any of the flags.

    Args:
      snapshot: the finished run's snapshot.
      due: the due positions.
      watches_stall: whether the hook wants to know that the step before this run was that before the previous one.
      needs_true_step: whether the hook decides on the step after the run. Else it decides on the step before the run
        plus 1, as TensorFlow's hooks do.
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
