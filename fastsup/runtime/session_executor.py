"""The executor of a session's steps: the mode that was asked for, and what it comes to for each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tensorflow.core.protobuf import config_pb2
from tensorflow.python.framework import ops
from tensorflow.python.platform import tf_logging as logging

from fastsup.core.plan_executor import PlanExecutor
from fastsup.runtime.executor import INLINE, POOL, REMEDY, REMEDY_FOR_CONFIG, SINGLE, SINGLE_THREADED, decide
from fastsup.runtime.graph.devices import check_one_device, devices_of_step, is_on_one_device
from fastsup.runtime.graph.nested_conditionals import check_threads
from fastsup.runtime.plan import Plan

__all__ = ["SessionExecutor"]


class SessionExecutor:
    """Chooses the executor of each step of a session. Methods that look at devices are given the session.

    Args:
      asked: the executor mode that was asked for.
      config: the session's ConfigProto.

    Attributes:
      mode: the mode that was asked for; "single_threaded" also where "auto" has chosen it.
    """

    def __init__(self, asked: str, config: Any) -> None:
        self.mode: str = SINGLE if config.experimental.executor_type == SINGLE_THREADED else asked
        self._config = config
        self._remedy = REMEDY if asked == SINGLE else REMEDY_FOR_CONFIG
        self._device_names: list[str] = []
        # Names of fetches and feeds for which the runtime takes its thread pool, whatever was asked for.
        self._pooled: set[tuple[Any, ...]] = set()
        self._trace_warned = False

    def of_plan(self, plan: Plan) -> PlanExecutor:
        """The executor that runs a compiled plan."""
        fetches = tuple(element.name for element in plan.elements)
        feeds = tuple(slot.tensor.name for slot in plan.feeds)
        trial = plan.trial
        if trial is not None:
            return PlanExecutor(fetches, feeds, trial.executor, trial.is_open, trial.seconds)
        # Of what has no trial, "auto" stays with TensorFlow's own mode.
        is_pooled = self.mode == "auto" or (fetches, feeds) in self._pooled
        return PlanExecutor(fetches, feeds, POOL if is_pooled else self.mode, False, None)

    def choose(self, session: Any, plan: Plan, operations: set[ops.Operation], writes_checkpoint: bool) -> str:
        """The executor of a plan. Says so, once, if it can't be the one that was asked for.

        Args:
          session: the session.
          plan: the plan.
          operations: what it runs.
          writes_checkpoint: whether it does that.

        Returns:
          What `decide` returns.
        """
        feeds = [slot.tensor for slot in plan.feeds]
        values = [*feeds, *(element for element in plan.elements if not isinstance(element, ops.Operation))]

        def has_one_executor() -> bool:
            # Those of several devices wait for each other: none of them may hold a thread.
            if session._target and self.mode == INLINE:
                return True
            devices = self._devices(session)
            return len(devices) == 1 or (not session._target and is_on_one_device(operations, values, devices))

        chosen = decide(self.mode, operations, writes_checkpoint=writes_checkpoint, has_one_executor=has_one_executor)
        if self.mode == INLINE and chosen == POOL:
            self._warn_of_pool(devices_of_step(operations, values, self._devices(session)))
            self._pooled.add((tuple(element.name for element in plan.elements), tuple(feed.name for feed in feeds)))
        return chosen

    def _warn_of_pool(self, places: dict[str, str]) -> None:
        if not self._pooled:
            logging.warning(
                'executor="inline" has no effect on a step of several devices, which TensorFlow runs on its thread '
                "pool: %s. See `python -m fastsup docs executors`.",
                ", ".join(f"{what} on {name}" for name, what in places.items()),
            )

    def _devices(self, session: Any) -> list[str]:
        if not self._device_names:
            self._device_names = [device.name for device in session.list_devices()]
        return self._device_names

    def check(self, session: Any, operations: Callable[[], set[ops.Operation]], feeds: Sequence[Any]) -> None:
        """Refuses a step that the single-threaded executor would run without an end.

        Args:
          session: the session.
          operations: function that returns what the step runs.
          feeds: the tensors that it is fed.

        Raises:
          tf.errors.UnimplementedError: it is such a step. The message says what to do.
        """
        if self.mode != SINGLE or session._target or session._closed:
            return
        found = operations()
        if len(self._devices(session)) > 1:
            check_one_device(found, feeds, self._devices(session), self._remedy)
        check_threads(found, self._config, self._remedy)

    def warn_of_no_trace(self, options: Any) -> None:
        """Says so, once, when step statistics are asked of an executor that records none.

        Args:
          options: the RunOptions of a run.
        """
        traced = getattr(options, "trace_level", 0) != config_pb2.RunOptions.NO_TRACE
        if traced and self.mode == SINGLE and not self._trace_warned:
            self._trace_warned = True
            logging.warning(
                "The single-threaded executor records no step statistics: the RunMetadata of this run has none. "
                'Pass executor="inline" or executor="thread_pool" to trace runs. See '
                "`python -m fastsup docs dropin#sessions-and-executors`."
            )
