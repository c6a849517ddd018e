from cython cimport final
from libc.stdint cimport int64_t, uint64_t

from fastsup.core.probe cimport Part, Probe, ProbeFinder
from fastsup.runtime.callables cimport SessionLifetime
from fastsup.runtime.plans cimport Plan, PlanCache, PlanFinder


@final
cdef class StepGate:
    # Steps under way, and those that wait for the gate to open.
    cdef readonly Py_ssize_t running
    cdef Py_ssize_t held_back
    # Number of finished steps, successful or not: while it doesn't change, nothing has written a variable.
    cdef readonly uint64_t passed
    # Whether a save is under way, or waits for the steps to end.
    cdef readonly bint closed
    cdef object closed_by
    # Wakes up who waits for one of the above to change.
    cdef object changed
    # Held by the save under way: one at a time. And how many blocks of that save are nested.
    cdef object saving
    cdef Py_ssize_t depth
    cdef public double patience_secs
    cdef public double turn_secs

    cdef int enter(self) except -1
    cdef int leave(self) except -1


cdef class SessionRunner:
    cdef readonly PlanCache cache
    cdef readonly SessionLifetime lifetime
    cdef readonly object maker
    cdef PlanFinder finder

    # The global step, as far as the runs of this session tell.
    cdef object step_writes
    cdef int64_t steps_counted
    cdef uint64_t step_epoch
    cdef Py_ssize_t writers_running

    # Where a checkpoint is taken: between two steps.
    cdef readonly StepGate gate
    # Steps of a training loop that have succeeded, all that hooks do around them included.
    cdef readonly uint64_t runs_ended
    # Checkpoints that hooks have saved, each of them on the disk and named in the state file.
    cdef public uint64_t saves_ended
    # Whether a run has metadata that its RunOptions don't ask for: the session's ConfigProto does.
    cdef public bint fills_metadata
    # The error that an abandoned session raises; or None.
    cdef object given_up_for

    # Records the runs that are made in one thread, and the identifier of that thread.
    cdef ProbeFinder probes
    cdef object recorded_thread

    cdef Plan find_plan(self, object fetches, object feed_dict, bint to_run=*)
    cdef list execute(self, Plan plan, tuple feeds)
    cdef list execute_now(self, Plan plan, tuple feeds)
    cdef object run_recorded(self, Probe probe, object fetches, object feed_dict)
    cdef object run_in_parts(self, Probe probe, Part part, Plan plan, object fetches, object feed_dict)
    cdef object build(self, Probe probe, Plan plan, list values)
    cdef int raise_given_up(self, object error) except -1
    cdef int64_t delta_of(self, Plan plan) except? -2


# What the global step is fetched by: TensorFlow's own read of it, and its variable. A run may be fed one without the other.
cdef enum:
    OWN_READ = 1
    VARIABLE = 2


@final
cdef class StepCount:
    cdef readonly SessionRunner session
    # None where the step can't be counted.
    cdef object variable
    # The tensor that TensorFlow's hooks read it from, and the variable where a fetch of that reads it as well.
    cdef object step_read
    cdef object variable_read
    # The tensors that it is fetched by, by OWN_READ and VARIABLE, and the operations that each needs, once requested.
    cdef dict fetched_by
    cdef dict upstream
    # What to read it from, by a plan that is as good as the session's plans are the ones that it was found among.
    cdef object element_read
    cdef Plan plan
    cdef dict plans_seen
    cdef object numpy_type
    cdef int64_t base
    cdef uint64_t epoch_seen
    cdef bint known
    cdef bint ever_known
    cdef bint fetch_prepared

    cdef int prepare_fetch(self) except -1
    cdef bint know(self) except -1
    cdef object read(self)
    cdef int64_t value(self) noexcept
    cdef bint is_step(self, object fetch, int fed) noexcept
    cdef int fed_of(self, Plan plan) except -1
    cdef int is_step_fed(self, object feeds) except -1
    cdef bint can_be_fetched(self) except -1
    cdef object as_fetched(self, int64_t step)
