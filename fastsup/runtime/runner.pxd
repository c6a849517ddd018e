from cython cimport final
from libc.stdint cimport int64_t, uint64_t

from fastsup.core.probe cimport Part, Probe, ProbeFinder
from fastsup.runtime.callables cimport SessionLifetime
from fastsup.runtime.plans cimport Plan, PlanCache, PlanFinder


@final
cdef class StepGate:
    # Number of current steps, and number of steps that wait for the gate to open.
    cdef readonly Py_ssize_t running
    cdef Py_ssize_t held_back
    # Number of finished steps, successful or not. While it doesn't change, no variable was written.
    cdef readonly uint64_t passed
    # Whether a save is running, or waits for the steps to end.
    cdef readonly bint closed
    cdef object closed_by
    # Wakes up threads that wait for a change of the fields above.
    cdef object changed
    # The lock that the current save holds; and the number of that save's nested blocks.
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

    # The global step, derived from this session's runs.
    cdef object step_writes
    cdef int64_t steps_counted
    cdef uint64_t step_epoch
    cdef Py_ssize_t writers_running

    # The gate that lets a checkpoint be taken between steps.
    cdef readonly StepGate gate
    # Number of successful steps of a training loop, including their hooks.
    cdef readonly uint64_t runs_ended
    # Number of checkpoints that hooks saved, each on disk and named in the state file.
    cdef public uint64_t saves_ended
    # Whether the session's ConfigProto, rather than the RunOptions, requests metadata for each run.
    cdef public bint fills_metadata
    # The error that an abandoned session raises, or None.
    cdef object given_up_for

    # Records the runs of one thread; and that thread's identifier.
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


# The ways to fetch the global step: TensorFlow's own read, and the variable. A run may feed only one of them.
cdef enum:
    OWN_READ = 1
    VARIABLE = 2


@final
cdef class StepCount:
    cdef readonly SessionRunner session
    # None if the step can't be counted.
    cdef object variable
    # The tensor from which TensorFlow's hooks read the step; and the variable, if fetching it also reads the step.
    cdef object step_read
    cdef object variable_read
    # The tensors that fetch the step, by OWN_READ and VARIABLE; and the operations that each needs, set when requested.
    cdef dict fetched_by
    cdef dict upstream
    # The element to read the step from; its plan; and the plans dictionary in which it is valid.
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
