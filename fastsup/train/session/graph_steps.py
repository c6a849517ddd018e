"""Which loops of a session can make several steps in one run: those whose steps XLA may compile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensorflow.python.client import session as tf_session
from tensorflow.python.framework import ops

from fastsup.runtime.executor import is_jit_on
from fastsup.runtime.session import Session
from fastsup.steps.fused import FusedCalls, Fusion
from fastsup.train.engine.steps_at_once import StepsAtOnce
from fastsup.train.session.graph_loop import GraphLoop

__all__ = ["GraphSteps"]

# Combinations of fetches whose loops a graph gets.
_MOST_LOOPS = 8


class GraphSteps:
    """What is known of the loops of a monitored session.

    Args:
      session: returns the session below all hooks; None if it is closed.

    Attributes:
      last: of the loop that was begun last, the `StepsAtOnce`, or why it makes one step after the other.
    """

    def __init__(self, session: Callable[[], Any]) -> None:
        self._session = session
        self._known: dict[Any, StepsAtOnce] = {}
        self.last: StepsAtOnce | str = ""

    def of(self, fetches: Any) -> StepsAtOnce | None:
        """Who can make several steps of a loop in one run; None if it has to make one after the other.

        Args:
          fetches: what each step fetches.
        """
        session = self._session()
        reason = _why_not(session)
        if not reason:
            handler = tf_session._FetchHandler(session.graph, fetches, {})
            key = (session.graph, *map(id, handler.fetches()), None, *map(id, handler.targets()))
            if key in self._known or len(self._known) < _MOST_LOOPS:
                self.last = self._known[key] = self._known.get(key) or self._new(session.graph, handler)
                return self.last
            reason = f"the session has had loops of {_MOST_LOOPS} other combinations of fetches"
        self.last = reason
        return None

    def _new(self, graph: ops.Graph, handler: Any) -> StepsAtOnce:
        leaves, targets = list(handler.fetches()), list(handler.targets())
        count = len(leaves)

        def make() -> GraphLoop:
            return GraphLoop(graph, leaves, targets, self._session)

        def build(values: list[Any]) -> Any:
            return handler.build_results(self._session(), values[:count])

        names = ", ".join(element.name for element in (leaves + targets)[:3])
        calls = FusedCalls(f"The step that fetches {names}", make, Fusion(), is_forced=False)
        return StepsAtOnce(calls, graph, leaves, True, build)


def _why_not(session: Any) -> str:
    """Why steps of a session can't be made at once, as far as that is known without looking at the step."""
    if not isinstance(session, Session) or session.sess_str:
        return "the session isn't a fastsup.Session of this process"
    if not is_jit_on(session._config):
        return "XLA doesn't compile the step: the session's global_jit_level isn't on, or not for the CPU"
    devices = [device for device in session.list_devices() if "XLA" not in device.device_type]
    return "" if len(devices) == 1 else "TensorFlow has several devices"
