"""A table of short texts that the tasks of a job share: each writes its own and reads those of all.

It is kept in the TensorFlow server of one task, and reached by sessions on that server: where training gets through, it
does. No port and no file is needed.
"""

from __future__ import annotations

import contextlib
from typing import Any

from tensorflow.core.protobuf import config_pb2
from tensorflow.python.client import session as tf_session
from tensorflow.python.framework import dtypes, errors, ops
from tensorflow.python.ops import array_ops, gen_lookup_ops

__all__ = ["StatusBoard"]

# A separate one, so that a reset of the server's usual container doesn't clear it.
_CONTAINER = "fastsup.collective"
_NAME = "status_board"
# Milliseconds after which a call is given up. A server that isn't there answers with an error, one that is stopped with
# nothing.
_TIMEOUT_MS = 3000


class StatusBoard:
    """One task's access to the table. Only one thread may use it.

    Args:
      target: address of the server that keeps the table, such as "grpc://host0:2222".
      task: job and task of that server, such as "/job:chief/task:0".
    """

    def __init__(self, target: str, task: str) -> None:
        self._target = target
        # Without a filter, the server would connect to every task of the cluster, and wait for each.
        self._config = config_pb2.ConfigProto(device_filters=[task], operation_timeout_in_ms=_TIMEOUT_MS)
        self._session: Any = None
        with ops.Graph().as_default() as self._graph, ops.device(f"{task}/device:CPU:0"):
            table = gen_lookup_ops.mutable_hash_table_v2(
                key_dtype=dtypes.int64, value_dtype=dtypes.string, container=_CONTAINER, shared_name=_NAME
            )
            self._key = array_ops.placeholder(dtypes.int64, [])
            self._value = array_ops.placeholder(dtypes.string, [])
            insert = gen_lookup_ops.lookup_table_insert_v2(table, self._key, self._value)
            with ops.control_dependencies([insert]):
                self._export = gen_lookup_ops.lookup_table_export_v2(table, dtypes.int64, dtypes.string)

    def exchange(self, number: int, text: str) -> dict[int, str]:
        """Writes the text of a task, and reads those of all.

        Args:
          number: number of the task that writes.
          text: its text.

        Returns:
          The texts by the numbers of their tasks.

        Raises:
          tf.errors.OpError: the server doesn't answer, or refuses the call.
        """
        try:
            if self._session is None:
                self._session = tf_session.Session(self._target, graph=self._graph, config=self._config)
            keys, values = self._session.run(
                self._export,
                {self._key: number, self._value: text},
                options=config_pb2.RunOptions(timeout_in_ms=_TIMEOUT_MS),
            )
        except errors.OpError:
            # The server may have been started again, and knows the session no more.
            self.close()
            raise
        return {int(key): value.decode() for key, value in zip(keys, values, strict=True)}

    def close(self) -> None:
        """Closes the session. The table stays."""
        session, self._session = self._session, None
        if session is not None:
            with contextlib.suppress(errors.OpError):  # The server is gone.
                session.close()
