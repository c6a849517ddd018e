"""A loop whose steps are made elsewhere, such as in a session: what the hooks of a `StepLoop` see there."""

from libc.stdint cimport int64_t

from fastsup.core.drive cimport fs_drive, fs_drive_call_due, fs_drive_reload
from fastsup.core.loop cimport Loop, as_double, clock_to_use


def no_step():
    """The step function of an `OutsideLoop`.

    Raises:
      RuntimeError: always.
    """
    raise RuntimeError("The session runs the steps of this loop: loop.run() can't.")


cdef class OutsideLoop(Loop):
    """OutsideLoop(hooks)\n--\n
    Calls hooks after steps that the caller makes.

    Args:
      hooks: iterable of `fastsup.core.Hook`.
    """

    def __init__(self, hooks):
        Loop.__init__(self, no_step, hooks)

    def _begin(self, steps, global_step):
        """Calls the hooks' `begin`.

        Args:
          steps: number of steps made so far.
          global_step: the global step after them.
        """
        self._move_to(steps, global_step)
        for hook in self.hooks:
            self.begin_hook(hook)
        fs_drive_reload(<fs_drive*> self.state)

    def _move_to(self, int64_t steps, int64_t global_step):
        """Says how many steps were made, and where the global step stands. Calls no hook."""
        cdef fs_drive* drive = <fs_drive*> self.state
        drive.loop.steps = steps
        drive.loop.global_step = global_step

    def _after_step(self, steps, global_step, result):
        """Calls the hooks that are due after a step.

        Args:
          steps: number of steps made so far, this one included.
          global_step: the global step after it.
          result: what the step has returned for the hooks.
        """
        cdef fs_drive* drive = <fs_drive*> self.state
        self._move_to(steps, global_step)
        self.last_result = result
        drive.loop.result = as_double(result)
        drive.clock = clock_to_use()
        fs_drive_reload(drive)
        self.handle(fs_drive_call_due(drive))
