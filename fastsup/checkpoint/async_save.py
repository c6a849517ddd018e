"""Checkpoints written while training goes on: the variables are copied between two steps, the copy is written."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy
from tensorflow.python.client import session as tf_session
from tensorflow.python.framework import dtypes

from fastsup.runtime.graph.operations import operations_behind
from fastsup.runtime.interpreter_end import uninterrupted

__all__ = ["BackgroundSaver"]

# Where the values begin among the inputs of the operations that write them.
_FIRST_VALUE = {"SaveV2": 3, "SaveSlices": 3, "Save": 2}


class BackgroundSaver:
    """Writes the checkpoints of one Saver in a thread, one at a time.

    Args:
      saver: the `tf.compat.v1.train.Saver` whose format, names, rotation and state file are used.
    """

    def __init__(self, saver: Any) -> None:
        self._saver = saver
        self._buffers: dict[int, Any] = {}
        # One thread may wait while another one, a Supervisor's, saves: it sees no thread that isn't started yet.
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._path: Any = None

    def save(
        self,
        session: Any,
        path: str,
        step: Any,
        write_meta_graph: bool = True,
        when_written: Callable[[], None] | None = None,
    ) -> None:
        """Copies the variables, and returns while the copy is written.

        Args:
          session: the `fastsup.Session` with the variables.
          path: path of the checkpoint, without the step.
          step: the global step to name it by.
          write_meta_graph: whether to write the graph beside it.
          when_written: called without arguments, in the thread, once it is written or writing it has failed.

        Raises:
          What writing the checkpoint before has raised, if nobody has waited for that one.
        """
        self.wait()
        tensors = saved_tensors(self._saver, session.graph)
        values = session._copy_values(tensors, [self._buffers.get(id(tensor)) for tensor in tensors]) if tensors else []
        copies = dict(zip(tensors, values, strict=True))
        self._buffers = {id(tensor): value for tensor, value in copies.items() if isinstance(value, numpy.ndarray)}
        snapshot = _Snapshot(session, copies)
        # Not a daemon, whoever saves: a program that ends meanwhile waits for it. But a daemon thread that trains on
        # may save again and again, and an end that has begun would wait for one save after the other.
        is_late = threading.current_thread().daemon and not threading.main_thread().is_alive()
        thread = threading.Thread(
            target=self._write,
            args=(snapshot, path, step, write_meta_graph, when_written),
            name=f"save-{step}",
            daemon=is_late,
        )
        with self._starting:
            thread.start()
            self._thread = thread

    def _write(self, snapshot: _Snapshot, path: str, step: Any, write_meta_graph: bool, when_written: Any) -> None:
        try:
            # A new thread has no default graph, which under TF 2 behaviour means that it executes eagerly.
            with uninterrupted, snapshot.graph.as_default():
                self._path = self._saver.save(snapshot, path, global_step=step, write_meta_graph=write_meta_graph)
        except BaseException as error:
            self._error = error
        finally:
            if when_written is not None:
                when_written()

    def wait(self) -> Any:
        """Returns the path of the checkpoint under way, once it is written; of the last one if there is none.

        Raises:
          What writing it has raised, at the first call.
        """
        with self._starting:
            thread = self._thread
        if thread is not None:
            thread.join()
        error, self._error = self._error, None
        if error is not None:
            raise error
        return self._path


def saved_tensors(saver: Any, graph: Any) -> list[Any]:
    """The tensors whose values a Saver writes, each once. An empty list where they can't be copied."""
    save = graph.as_graph_element(saver.as_saver_def().save_tensor_name)
    tensors: dict[int, Any] = {}
    for op in operations_behind([save]):
        if op.type in _FIRST_VALUE:
            tensors.update((id(tensor), tensor) for tensor in list(op.inputs)[_FIRST_VALUE[op.type] :])
    values = list(tensors.values())
    if any(tensor.dtype in (dtypes.variant, dtypes.resource) or not graph.is_feedable(tensor) for tensor in values):
        return []
    return values


class _Snapshot(tf_session.SessionInterface):  # type: ignore[misc]
    """What a Saver gets in place of the session: the same, with the variables as they were."""

    def __init__(self, session: Any, values: dict[Any, Any]) -> None:
        self._session = session
        self._values = values

    @property
    def graph(self) -> Any:
        return self._session.graph

    @property
    def sess_str(self) -> Any:
        return self._session.sess_str

    def run(self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
        return self._session.run(fetches, {**self._values, **(feed_dict or {})}, options, run_metadata)

    def partial_run_setup(self, fetches: Any, feeds: Any = None) -> Any:
        raise NotImplementedError("A snapshot of variables is for Saver.save() alone.")

    def partial_run(self, handle: Any, fetches: Any, feed_dict: Any = None) -> Any:
        raise NotImplementedError("A snapshot of variables is for Saver.save() alone.")
