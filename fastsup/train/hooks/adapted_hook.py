"""AdaptedHook, with which a session calls a hook of step loops."""

from __future__ import annotations

import math
import sys
import threading
from typing import Any

from tensorflow.python.framework import ops
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import basic_session_run_hooks, evaluation, session_run_hook, training_util

from fastsup.core.checks import misspelt_callbacks
from fastsup.core.clock import now, steady
from fastsup.core.hook import LoopHook
from fastsup.core.loop import DrivenLoop
from fastsup.loop.periodic import stop_steps
from fastsup.train.hooks.bases import GlobalStepHook

__all__ = ["AdaptedHook", "SessionLoop"]


class SessionLoop(DrivenLoop):
    """The loop that a loop hook sees in a session. It counts the session's runs as steps.

    In an evaluation, and in a graph without a global step, the global step is the number of runs.

    Attributes:
      session: the session, to run other operations in.
      evaluates: Whether the steps are batches of an evaluation.
      result_step: global step after the run that `result` belongs to, or None.
    """

    def __init__(self, hook: LoopHook, evaluates: bool) -> None:
        super().__init__([hook])
        self.session: Any = None
        self.evaluates = evaluates
        self.result_step: int | None = None
        self.stop_requested: bool = False
        self._coordinator: Any = None
        self._ends: list[Any] = []
        # Loop hooks that end the session, and the global step from which they count.
        self._loop_ends: list[LoopHook] = []
        self._first_step = 0

    def _begin(self, steps: int, global_step: int) -> None:
        self._first_step = global_step
        super()._begin(steps, global_step)

    @property
    def max_steps(self) -> int | None:
        """The global step at which the session's own hooks end it, or None if that is unknown."""
        attribute = "_num_evals" if self.evaluates else "_last_step"
        ends = [getattr(hook, attribute, None) for hook in self._ends]
        known = [int(end) for end in ends if end is not None and math.isfinite(end)]
        return min([*known, *stop_steps(self._loop_ends, self._first_step)], default=None)

    def request_stop(self) -> None:
        """Ends the session's loop after the current step. Any thread may call this."""
        self.stop_requested = True
        super().request_stop()
        if self._coordinator is not None:
            self._coordinator.request_stop()

    def should_stop(self) -> bool:
        """Returns True once a stop was requested."""
        return super().should_stop() or (self._coordinator is not None and bool(self._coordinator.should_stop()))


class AdaptedHook(GlobalStepHook, session_run_hook.SessionRunHook):  # type: ignore[misc]
    """A session-run hook that calls a step-loop hook in the steps in which it is due.

    fastsup's sessions create one for each `fastsup.core.Hook` that they are given. TensorFlow's own sessions call it in
    every step, and it determines whether the hook is due.

    A hook belongs to one session at a time. Its `begin` is called before the session's first run. After a failed run
    and `on_error`, `begin` is called again before the next run.

    Args:
      hook: the `fastsup.core.Hook`.

    Raises:
      TypeError: If `hook` is another object.
    """

    def __init__(self, hook: LoopHook) -> None:
        if not isinstance(hook, LoopHook):
            raise TypeError(f"hook must be a fastsup.core.Hook, got {hook!r}.")
        for warning in misspelt_callbacks(hook, LoopHook):
            logging.warning("%s", warning)
        #: The adapted hook. A `StepLoop` that gets this object uses it.
        self.loop_hook = hook
        self._loop = SessionLoop(hook, False)
        self._global_step_tensor: Any = None
        # Number of this session's runs, and the global step after the last run in which this hook was called.
        self._runs = 0
        self._has_begun = False
        # Whether the session calls this hook only in runs in which it may be due, and whether the schedule is for a
        # hook with fetches.
        self._is_skipped = False
        self._is_for_fetches = False
        # Serializes the runs of several threads. The hook may run the session itself.
        self._lock = threading.RLock()

    @property
    def profile_name(self) -> str:
        """The name of the hook in a profile."""
        return type(self.loop_hook if type(self) is AdaptedHook else self).__name__

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.loop_hook!r}>"

    def begin(self) -> None:
        """Finds the global step in the graph."""
        graph = ops.get_default_graph()
        # The global step doesn't change in an evaluation, which this collection identifies.
        evaluates = bool(graph.get_collection(ops.GraphKeys.EVAL_STEP))
        self._loop = SessionLoop(self.loop_hook, evaluates)
        has_step = not evaluates and training_util.get_global_step(graph) is not None
        self._global_step_tensor = training_util._get_or_create_global_step_read(graph) if has_step else None
        self._has_begun = False

    def bind_hooks(self, hooks: list[Any]) -> None:
        """Finds the hooks that end the session. The session calls this after the hooks' `begin`."""
        kinds = basic_session_run_hooks.StopAtStepHook, evaluation._StopAfterNEvalsHook
        self._loop._ends = [hook for hook in hooks if isinstance(hook, kinds)]
        self._loop._loop_ends = [hook.loop_hook for hook in hooks if isinstance(hook, AdaptedHook)]

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Prepares for the runs of a session."""
        self._give_up(RuntimeError("The session was replaced by another session."))
        self._runs = 0
        self._is_skipped = False
        self._loop.session = session
        self._loop._coordinator = coord
        self._reschedule()

    def before_run(self, run_context: Any) -> Any:
        """Requests the hook's fetches if it may be due."""
        hook = self.loop_hook
        may_be_due = self._is_skipped and self._has_begun
        if not self._has_begun:
            with self._lock:
                self._begin_loop(run_context.session)
        # A session that skips runs calls this hook when it may be due.
        request = {}
        if hook.fetches is not None and (may_be_due or hook._is_due(self._loop.steps, self._loop.global_step + 1)):
            request["value"] = hook.fetches
        if self._global_step_tensor is not None:
            request["step"] = self._global_step_tensor
        return session_run_hook.SessionRunArgs(request) if request else None

    def _begin_loop(self, session: Any) -> None:
        if self._has_begun:
            return  # Another thread has already begun the loop.
        step = self._runs if self._global_step_tensor is None else session.run(self._global_step_tensor)
        self._loop.session = session
        self._loop._begin(self._runs, int(step))
        self._has_begun = True
        self._reschedule()

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Calls the hook if it is due."""
        results = run_values.results
        with self._lock:
            self._after_run(run_context, results if isinstance(results, dict) else {"step": results})

    def _after_run(self, run_context: Any, results: dict[str, Any]) -> None:
        loop, hook = self._loop, self.loop_hook
        self._runs += 1
        step = self._runs
        if self._global_step_tensor is not None:
            step = int(results["step"]) + 1
            if self._is_skipped or hook._is_due(self._runs - 1, step):
                step = int(self._step_after_run(run_context.session))
        if hook.fetches is not None and "value" not in results:
            loop._move_to(self._runs, step)  # The hook is due in the next run, which fetches the values for the hook.
        else:
            if "value" in results:
                loop.result_step = step
            loop._after_step(self._runs, step, results.get("value"))
        if (hook.fetches is not None) != self._is_for_fetches:
            self._reschedule()
        if loop.stop_requested or DrivenLoop.should_stop(loop):
            run_context.request_stop()

    def end(self, session: Any) -> None:
        """Calls the hook's `end` with the current global step."""
        if self._has_begun:
            self._has_begun = False
            step = self._runs if self._global_step_tensor is None else self._loop.global_step
            # A session in another process may no longer exist.
            if self._global_step_tensor is not None and not getattr(session, "sess_str", b""):
                step = int(session.run(self._global_step_tensor))
            self._loop._move_to(self._runs, step)
            self.loop_hook.end(self._loop)

    def on_error(self, run_context: Any, exception: BaseException) -> None:
        """Reports the error to the hook once."""
        self._give_up(exception)

    def _before_close(self) -> None:
        self._give_up(sys.exc_info()[1] or RuntimeError("The session was closed before its end."))

    def _give_up(self, error: BaseException) -> None:
        """Calls `on_error` of a hook that was started and whose `end` won't be called."""
        if self._has_begun:
            self._has_begun = False
            self._reschedule()
            try:
                self.loop_hook.on_error(self._loop, error)
            except Exception:
                logging.error("on_error of the hook %r failed", self.loop_hook, exc_info=True)

    def _schedule(self, run: int, step_read: Any) -> bool:
        self._is_skipped = True
        self._follow(self.loop_hook)
        hook = self.loop_hook
        if not self._has_begun:
            self.due_every_run()
            return True
        if self._global_step_tensor is not None and not self._counts(step_read):
            self._is_skipped = False
            return False
        self._is_for_fetches = hook.fetches is not None
        if self._is_for_fetches:
            self._decide_on_coming_step()
        else:
            self._decide_after_run(on_true_step=True)
        if hook.next_time is not None:
            # The session uses the time of day.
            self.due_at_time(now() + hook.next_time - steady())
        runs = [hook.next_run]
        if self._global_step_tensor is None:
            runs.append(None if hook.next_step is None else hook.next_step - 1)
        elif hook.next_step is not None:
            self.due_at_step(hook.next_step)
        if any(at is not None for at in runs):
            self.due_at_run(min(at for at in runs if at is not None))
        return True

    def _sync(self, skipped_runs: int, previous_step: int) -> None:
        self._runs += skipped_runs
