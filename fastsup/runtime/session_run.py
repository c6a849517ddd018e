"""The runtime's own run of a plan's fetches, which hands large results on instead of having them copied."""

from __future__ import annotations

from typing import Any

from tensorflow.core.protobuf import config_pb2
from tensorflow.python.client import pywrap_tf_session

# Results of fewer bytes in all are copied sooner than handed on.
LARGE_RESULTS_BYTES = 1 << 16
_COPIED_BYTES_PER_SEC = 8e9


class SessionRun:
    """Runs by `TF_SessionRun`, which has a result's memory handed on if only the result holds it, and copied otherwise.

    A callable shows the memory of every result as it is, and doesn't say who else holds it: a variable, a constant, an
    array that was fed.

    Args:
      graph: the session's graph.
      session_handle: the C++ session.
      options: CallableOptions, serialized: feeds, fetches and targets, and the RunOptions.
    """

    def __init__(self, graph: Any, session_handle: Any, options: bytes) -> None:
        wanted = config_pb2.CallableOptions.FromString(options)
        self._session_handle = session_handle
        self._feeds = [graph.as_graph_element(name)._as_tf_output() for name in wanted.feed]
        self._fetches = [graph.as_graph_element(name)._as_tf_output() for name in wanted.fetch]
        self._targets = [graph.as_graph_element(name)._c_op for name in wanted.target]
        self._run = pywrap_tf_session.TF_SessionRun_wrapper
        self._delete_buffer = pywrap_tf_session.TF_DeleteBuffer
        self._run_options = pywrap_tf_session.TF_NewBufferFromString(wanted.run_options.SerializeToString())

    def __call__(self, feeds: tuple[Any, ...] | None) -> list[Any]:
        """Computes the fetches.

        Args:
          feeds: the arrays to feed, or None if there are none.

        Returns:
          List of NumPy values that belong to the caller.
        """
        fed = dict(zip(self._feeds, feeds or (), strict=True))
        values: list[Any] = self._run(self._session_handle, self._run_options, fed, self._fetches, self._targets, None)
        return values

    def __del__(self) -> None:
        options = self.__dict__.get("_run_options")
        if options is not None:
            self._delete_buffer(options)


class LargeResults:
    """Decides when a plan is worth a `SessionRun`, which the runtime compiles once more.

    That is the case when its results have taken as long to copy as the plan took to compile.

    Args:
      graph: the session's graph.
      session_handle: the C++ session.
      compile_secs: how long compiling the plan took, in seconds.
    """

    def __init__(self, graph: Any, session_handle: Any, compile_secs: float) -> None:
        self._graph = graph
        self._session_handle = session_handle
        self._bytes_to_copy = compile_secs * _COPIED_BYTES_PER_SEC
        self._copied = 0

    def copied(self, size: int, options: bytes) -> SessionRun | None:
        """Records a run's results that were copied.

        Args:
          size: their bytes.
          options: the options of the callable that has run.

        Returns:
          What is to run from now on; None as long as that is the callable.
        """
        self._copied += size
        if self._copied < self._bytes_to_copy:
            return None
        return SessionRun(self._graph, self._session_handle, options)
