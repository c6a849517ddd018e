"""A loop whose steps are made elsewhere, such as in a session: what the hooks of a `StepLoop` see there."""

from fastsup.core.loop cimport Loop


cdef class OutsideLoop(Loop):
    """OutsideLoop(hooks)\n--\n
    Calls hooks after steps that the caller makes.

    Args:
      hooks: iterable of `fastsup.core.Hook`.
    """

    def __init__(self, hooks):
        self.hold(hooks)

    def run(self):
        """Raises RuntimeError.

        Raises:
          RuntimeError: always.
        """
        raise RuntimeError("The session runs the steps of this loop: loop.run() can't.")

    def _begin(self, steps, global_step):
        """Calls the hooks' `begin`.

        Args:
          steps: number of steps made so far.
          global_step: the global step after them.
        """
        self.move_to(steps, global_step)
        for hook in self.hooks:
            self.begin_hook(hook)

    def _move_to(self, steps, global_step):
        """Says how many steps were made, and where the global step stands. Calls no hook."""
        self.move_to(steps, global_step)

    def _after_step(self, steps, global_step, result):
        """Calls the hooks that are due after a step.

        Args:
          steps: number of steps made so far, this one included.
          global_step: the global step after it.
          result: what the step has returned for the hooks.
        """
        self.move_to(steps, global_step)
        try:
            self.call_hooks_after(result)
        except Exception as error:
            self.note_hook(error)
            raise
