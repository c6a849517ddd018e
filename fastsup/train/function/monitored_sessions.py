"""The sessions of a monitored function: they restore eager variables, and keep what the last step has returned."""

from __future__ import annotations

import threading
from typing import Any

from tensorflow.python.eager import context
from tensorflow.python.framework import ops
from tensorflow.python.framework import tensor as tensor_lib
from tensorflow.python.util import nest

from fastsup.eager.choice import runs_in_one_thread
from fastsup.loop.restore import restore_newest
from fastsup.train.function.function_session import FunctionSession
from fastsup.train.function.step_graph import StepGraph
from fastsup.train.session.monitored_session import MonitoredSession
from fastsup.train.session.session_creators import SessionCreator
from fastsup.train.session.session_stack import CoordinatedSessionCreator

__all__ = ["FunctionMonitoredSession", "FunctionSessionCreator", "LastResults"]


class FunctionSessionCreator(SessionCreator):  # type: ignore[misc]
    """Makes the session of a monitored function: restores the newest checkpoint, and opens a session.

    Args:
      step_graph: the step.
      manager: the `tf.train.CheckpointManager`, or None.
      executor: the executor mode.

    Attributes:
      graph: the step's graph.
      restored_step: global step of the checkpoint that was restored last, or None.
    """

    def __init__(self, step_graph: StepGraph, manager: Any, executor: str) -> None:
        self._step_graph, self._manager, self._executor = step_graph, manager, executor
        self.graph: ops.Graph = step_graph.lifted.graph
        self.restored_step: int | None = None
        self._session: FunctionSession | None = None

    def create_session(self) -> Any:
        if self._manager is not None:
            with context.eager_mode():
                if not self._restore() and self._session is None:
                    self._manager.restore_or_initialize()
        if not self.graph.finalized:
            fetches = nest.flatten(self._step_graph.fetches, expand_composites=True)
            runs_in_one_thread(self._step_graph.lifted, self._executor, fetches)
            self._step_graph.lifted.finalize()
        self._session = FunctionSession(self._step_graph.lifted, self._executor)
        return self._session

    def _restore(self) -> bool:
        """Restores the newest checkpoint, and the global step: from the checkpoint's name, if it isn't in the files.

        Returns:
          False without a checkpoint.
        """
        variable = self._step_graph.global_step
        before, no_step = int(variable.numpy()), variable.dtype.max
        variable.assign(no_step)
        number = None
        try:
            number = restore_newest(self._manager)
        finally:
            if int(variable.numpy()) == no_step:
                variable.assign(before if number is None else number)
        if number is None:
            return False
        self.restored_step = int(variable.numpy())
        return True

    def leave_open(self) -> None:
        """Lets the session live as long as the process."""
        if self._session is not None:
            self._session.left_open = True

    def close_session(self) -> None:
        """Closes the session, if there is one."""
        if self._session is not None:
            self._session.close()

    def release_all(self) -> None:
        """Releases the tensors in the step's boxes, unless a daemon thread may still run steps of an open session."""
        is_open = self._session is not None and not self._session._closed
        if not is_open or not any(thread.daemon for thread in threading.enumerate()):
            self._step_graph.lifted.release_all()


class _InStepGraphSessionCreator(CoordinatedSessionCreator):
    """Makes sessions, also in the middle of a run, with the step's graph as the default graph."""

    def create_session(self) -> Any:
        with self._session_creator.graph.as_default():
            return super().create_session()


class LastResults:
    """What the last step has returned.

    Args:
      step_graph: the step.

    Attributes:
      values: the values of the step's results, or None before the first step.
    """

    def __init__(self, step_graph: StepGraph) -> None:
        self._step_graph = step_graph
        self.values: list[Any] | None = None

    def feeds(self) -> dict[Any, Any]:
        """The values as feeds. A run that is fed them doesn't run the step that they come from."""
        results = self._step_graph.fetches[0]
        pairs = zip(results, self.values or [None] * len(results), strict=True)
        last = {result: value for result, value in pairs if value is not None and isinstance(result, tensor_lib.Tensor)}
        feeds = {**self._step_graph.arguments, **last}
        # The others are constants.
        graph = self._step_graph.lifted.graph
        return {tensor: value for tensor, value in feeds.items() if graph.is_feedable(tensor)}


class FunctionMonitoredSession(MonitoredSession):
    """A MonitoredSession that is used, and closed, while another graph may be the default graph.

    Args:
      last_results: what hooks that fetch the step's results in their `end` get.
      creator, hooks, **options: as for `MonitoredSession`.
    """

    _CoordinatedSessionCreator = _InStepGraphSessionCreator

    def __init__(self, last_results: LastResults, creator: Any, hooks: Any, **options: Any) -> None:
        self._last_results = last_results
        super().__init__(creator, hooks, **options)

    def _unfinalize_graph(self) -> None:
        """Leaves the default graph as it is: when the session is closed, it is another one."""

    def _end_hooks(self, failed: bool) -> None:
        session = self._tf_sess()
        feeds = self._last_results.feeds()
        if failed or session is None or not feeds:
            super()._end_hooks(failed)
            return
        run = session.run

        def run_without_step(fetches: Any, feed_dict: Any = None, *args: Any, **kwargs: Any) -> Any:
            return run(fetches, {**feeds, **(feed_dict or {})}, *args, **kwargs)

        # A fetch of a result would be one more step, which nothing counts.
        session.run = run_without_step
        try:
            super()._end_hooks(failed)
        finally:
            del session.run
