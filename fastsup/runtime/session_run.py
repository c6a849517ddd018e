"""The runtime's own run of a plan's fetches, which passes large results on instead of copying them."""

from __future__ import annotations

from typing import Any

from tensorflow.core.protobuf import config_pb2
from tensorflow.python.client import pywrap_tf_session

# Results with fewer bytes in total are faster to copy than to pass on.
LARGE_RESULTS_BYTES = 1 << 16
_COPIED_BYTES_PER_SEC = 8e9


class SessionRun:
    """Runs with `TF_SessionRun`, which passes a result's memory on unless something else refers to it.

    A callable returns the memory of every result, without information about other references: a variable, a constant, a
    fed array.

    Args:
      graph: the session's graph.
      session_handle: the C++ session.
      options: serialized CallableOptions: feeds, fetches and targets, and the RunOptions.
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
    """Decides when a plan is worth a `SessionRun`, which the runtime must compile again.

    This is the case once copying its results has taken as long as compiling the plan.

    Args:
      graph: the session's graph.
      session_handle: the C++ session.
      compile_secs: seconds that compiling the plan took.
    """

    def __init__(self, graph: Any, session_handle: Any, compile_secs: float) -> None:
        self._graph = graph
        self._session_handle = session_handle
        self._bytes_to_copy = compile_secs * _COPIED_BYTES_PER_SEC
        self._copied = 0

    def copied(self, size: int, options: bytes) -> SessionRun | None:
        """Records a run whose results were copied.

        Args:
          size: the results' bytes.
          options: the options of the callable that ran.

        Returns:
          The object to run from now on, or None to continue with the callable.
        """
        self._copied += size
        if self._copied < self._bytes_to_copy:
            return None
        return SessionRun(self._graph, self._session_handle, options)
