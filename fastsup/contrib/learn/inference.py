"""Functions of `tf.contrib.learn` that run tensors in a separate session with the values of a checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tensorflow.python.ops import lookup_ops, resources, variables
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import coordinator, queue_runner_impl
from tensorflow.python.training import saver as tf_saver

from fastsup.runtime.session import Session

__all__ = [
    "infer",
    "run_feeds",
    "run_feeds_iter",
    "run_n",
]


def run_feeds_iter(
    output_dict: Mapping[str, Any], feed_dicts: Iterable[Any], restore_checkpoint_path: Any = None
) -> Iterator[Any]:
    """Runs tensors once for each of several feed dictionaries.

    Args:
      output_dict: dictionary from names to tensors of one graph.
      feed_dicts: the feed dictionaries.
      restore_checkpoint_path: path of a checkpoint to restore. If None, initializes the variables.

    Yields:
      Dictionary from names to values, for each feed dictionary.

    Raises:
      ValueError: If there are no tensors, or no feed dictionaries.
    """
    if not output_dict:
        raise ValueError(f"output_dict is invalid: {output_dict}.")
    if not feed_dicts:
        raise ValueError(f"feed_dicts is invalid: {feed_dicts}.")
    graph = next(iter(output_dict.values())).graph
    with graph.as_default(), Session("", graph=graph) as session:
        shared = resources.shared_resources() + resources.local_resources()
        session.run(resources.initialize_resources(shared))
        if restore_checkpoint_path:
            logging.info("Loading model from checkpoint: %s.", restore_checkpoint_path)
            if variables._all_saveable_objects():
                tf_saver.Saver(sharded=True).restore(session, restore_checkpoint_path)
        else:
            session.run(variables.global_variables_initializer())
        session.run([variables.local_variables_initializer(), lookup_ops.tables_initializer()])
        coord = coordinator.Coordinator()
        threads: list[Any] = []
        try:
            threads = queue_runner_impl.start_queue_runners(session, coord=coord)
            for feed_dict in feed_dicts:
                yield session.run(output_dict, feed_dict)
        finally:
            coord.request_stop()
            coord.join(threads, stop_grace_period_secs=120)


def run_feeds(
    output_dict: Mapping[str, Any], feed_dicts: Iterable[Any], restore_checkpoint_path: Any = None
) -> list[Any]:
    """Returns a list of the dictionaries that `run_feeds_iter` yields."""
    return list(run_feeds_iter(output_dict, feed_dicts, restore_checkpoint_path))


def run_n(
    output_dict: Mapping[str, Any], feed_dict: Any = None, restore_checkpoint_path: Any = None, n: int = 1
) -> list[Any]:
    """Runs tensors several times. The other arguments are the same as for `run_feeds_iter`.

    Args:
      feed_dict: feed dictionary for every run, or None.
      n: number of runs.

    Returns:
      A dictionary from names to values for each run.
    """
    return run_feeds(output_dict, [feed_dict] * n, restore_checkpoint_path)


def infer(restore_checkpoint_path: Any, output_dict: Mapping[str, Any], feed_dict: Any = None) -> Any:
    """Runs tensors once. The other arguments are the same as for `run_feeds_iter`.

    Args:
      feed_dict: feed dictionary, or None.

    Returns:
      Dictionary from names to values.
    """
    return run_feeds(output_dict, [feed_dict], restore_checkpoint_path)[0]
