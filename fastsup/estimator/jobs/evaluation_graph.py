"""The graph of an evaluation, which serves all checkpoints."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from tensorflow.python.eager import context
from tensorflow.python.framework import ops
from tensorflow.python.training import evaluation

from fastsup.core.timeline import phase

__all__ = ["EvaluationGraph"]


class EvaluationGraph:
    """Evaluates one checkpoint after the other in a graph that is built once: input_fn and model_fn are called once.

    Each evaluation has its own session, and the hooks are called as in `Estimator.evaluate`.

    Args:
      estimator: the `Estimator`.
      input_fn: function that makes the input.
      steps: number of batches of an evaluation; None for all, until the input ends.
      hooks: hooks of the caller.
      name: name of the evaluation, if there are several.
    """

    def __init__(
        self, estimator: Any, input_fn: Callable[..., Any], steps: int | None, hooks: tuple[Any, ...], name: str | None
    ) -> None:
        self._estimator = estimator
        self._input_fn = input_fn
        self._hooks = [*hooks, *estimator._convert_eval_steps_to_hooks(steps)]
        self._output_dir = estimator.eval_dir(name)
        # The graph, and what `Estimator._evaluate_run` is given; None until the graph is built.
        self._built: tuple[Any, dict[str, Any]] | None = None

    def evaluate(self, checkpoint_path: str) -> dict[str, Any]:
        """Evaluates a checkpoint, and writes the metrics. Returns them.

        After an error, and if hooks have added variables to the graph, the next evaluation builds it again.

        Args:
          checkpoint_path: path of the checkpoint.
        """
        strategy = self._estimator._eval_distribution
        built, self._built = self._built, None
        graph = ops.Graph() if built is None else built[0]
        scope = strategy.scope() if strategy else contextlib.nullcontext()
        with phase("evaluate"), context.graph_mode(), graph.as_default(), scope:
            if built is None:
                built = graph, self._build(checkpoint_path)
            variables = _variables_of(graph)
            found: dict[str, Any] = self._estimator._evaluate_run(
                checkpoint_path=checkpoint_path, output_dir=self._output_dir, **built[1]
            )
            if _variables_of(graph) == variables:
                self._built = built
            return found

    def _build(self, checkpoint_path: str) -> dict[str, Any]:
        scaffold, update_op, metrics, hooks = self._estimator._evaluate_build_graph(
            self._input_fn, self._hooks, checkpoint_path
        )
        evaluation._get_or_create_eval_step()  # A variable of every evaluation.
        return {"scaffold": scaffold, "update_op": update_op, "eval_dict": metrics, "all_hooks": hooks}


def _variables_of(graph: Any) -> list[int]:
    """What says that something has added variables to a graph."""
    return [
        len(graph.get_collection_ref(name)) for name in (ops.GraphKeys.GLOBAL_VARIABLES, ops.GraphKeys.LOCAL_VARIABLES)
    ]
