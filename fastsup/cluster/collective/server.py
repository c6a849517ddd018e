"""The TensorFlow server of a task of a job of collectives: one for each process, which no training ends."""

from __future__ import annotations

from typing import Any

from tensorflow.core.protobuf import config_pb2
from tensorflow.python.platform import tf_logging as logging

from fastsup.cluster.server import start_server

__all__ = ["ensure_server"]

# The cluster and the task of the server of this process, and the server.
_started: dict[str, Any] = {}


def ensure_server(config: Any, session_config: Any) -> None:
    """Starts the server of this task, unless an earlier call has started it. TensorFlow can't end one.

    Args:
      config: configuration of the task, with `cluster_spec`, `task_type`, `task_id` and `protocol`.
      session_config: ConfigProto of the training sessions, with the leader of the collectives.

    Raises:
      RuntimeError: this process has the server of another cluster, or of another task.
      tf.errors.UnknownError: the server can't listen at the task's address.
    """
    wanted = f"{config.task_type} {config.task_id} of {config.cluster_spec.as_dict()}"
    if wanted in _started:
        return
    if _started:
        raise RuntimeError(
            f"This process is {next(iter(_started))}, by an earlier training. It can't become {wanted}: TensorFlow's "
            "server can't be ended. Train it in its own process."
        )
    options = config_pb2.ConfigProto()
    options.CopyFrom(session_config)
    # Those of one training's sessions. Another training may want others.
    del options.device_filters[:]
    logging.info("Start Tensorflow server.")
    _started[wanted] = start_server(config, options, protocol=config.protocol)
