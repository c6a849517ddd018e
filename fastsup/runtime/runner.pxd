from libc.stdint cimport int64_t, uint64_t

from fastsup.core.probe cimport Part, Probe, ProbeFinder
from fastsup.runtime.plan cimport SessionLifetime, Plan
from fastsup.runtime.plan_cache cimport PlanCache
from fastsup.runtime.plan_finder cimport PlanFinder
from fastsup.runtime.step_gate cimport StepGate


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
    # Steps of a training loop that have ended well, all that hooks do around them included.
    cdef readonly uint64_t runs_ended
    # Checkpoints that hooks have saved, each of them on the disk and named in the state file.
    cdef public uint64_t saves_ended
    # Whether a run has metadata that its RunOptions don't ask for: the session's ConfigProto does.
    cdef public bint fills_metadata
    # What a session that was given up raises from then on; or None.
    cdef object given_up_for

    # Records the runs that are made in one thread, and the identifier of that thread.
    cdef ProbeFinder probes
    cdef object recorded_thread

    cdef Plan find_plan(self, object fetches, object feed_dict, bint to_run=*)
    cdef list execute(self, Plan plan, tuple feeds)
    cdef list execute_now(self, Plan plan, tuple feeds)
    cdef tuple run_at_once(self, object several, int64_t limit, double seconds, list watched, int64_t delta)
    cdef object run_recorded(self, Probe probe, object fetches, object feed_dict)
    cdef object run_in_parts(self, Probe probe, Part part, Plan plan, object fetches, object feed_dict)
    cdef object build(self, Probe probe, Plan plan, list values)
    cdef int raise_given_up(self, object error) except -1
    cdef int64_t delta_of(self, Plan plan) except? -2
