"""Checkpoints written in the background: a snapshot of the variables is made between two steps, and a thread writes it.

A snapshot shares the memory of variables that the runtime copies on write, and has copies of the others.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy
from tensorflow.python.client import session as tf_session
from tensorflow.python.framework import dtypes

from fastsup.checkpoint.durable import save_durably
from fastsup.common.interpreter_end import completed_before_exit
from fastsup.runtime.graph.operations import upstream_operations
from fastsup.runtime.graph.variable_sharing import Snapshot, snapshot_of

__all__ = ["BackgroundSaver"]

# Index of the first value among the inputs of each operation that writes checkpoints.
_FIRST_VALUE = {"SaveV2": 3, "SaveSlices": 3, "Save": 2}


class BackgroundSaver:
    """Writes the checkpoints of one Saver in a thread, one at a time.

    Args:
      saver: the `tf.compat.v1.train.Saver` that names, writes and rotates the files.
    """

    def __init__(self, saver: Any) -> None:
        self.saver = saver
        # What is saved, as of some version of the graph: its tensors, and how their values are kept.
        self._prepared_for: tuple[Any, int] | None = None
        self._tensors: list[Any] = []
        self._snapshot = Snapshot([], [])
        # The memory of the copies of the last save, by the place of the tensor; None for those that aren't copied.
        self._buffers: list[Any] = []
        # Guards `_thread`: a Supervisor's service may save while another thread waits, and `join` needs a started one.
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._path: Any = None

    def prepare(self, session: Any) -> None:
        """Does what a save does before it looks at the variables, so that steps can run meanwhile.

        Waits for the write before, if that is still under way.

        Args:
          session: the `fastsup.Session` that holds the variables.

        Raises:
          Exception: the error of the write before, unless `wait` has raised it.
        """
        self.wait()
        graph = session.graph
        if self._prepared_for == (graph, graph.version):
            return
        with completed_before_exit:
            self._tensors = saved_tensors(self.saver, graph)
            self._snapshot = snapshot_of(graph, self._tensors, bool(session.sess_str))
            self._buffers = [None] * len(self._tensors)
            self._prepared_for = graph, graph.version

    def save(
        self,
        session: Any,
        path: str,
        step: Any,
        write_meta_graph: bool = True,
        when_written: Callable[[], None] | None = None,
    ) -> None:
        """Makes a snapshot of the variables, and returns while it is being written.

        Waits first for the write before this one, if that is still under way.

        Args:
          session: the `fastsup.Session` that holds the variables.
          path: path of the checkpoint, without the step.
          step: the global step to name the checkpoint by; None for a name without a step.
          write_meta_graph: whether to write a `.meta` file with the graph.
          when_written: function without arguments, called in the writing thread when the write has ended or failed.

        Raises:
          Exception: the error of the write before this one, unless `wait` has raised it.
        """
        self.prepare(session)
        values: list[Any] = []
        if self._tensors:
            values = session._copy_values(self._tensors, self._buffers, self._snapshot.shared, self._snapshot.before)
            self._buffers = [
                value if isinstance(value, numpy.ndarray) and not shared else None
                for value, shared in zip(values, self._snapshot.shared, strict=True)
            ]
        snapshot = _SnapshotSession(session, dict(zip(self._tensors, values, strict=True)))
        # No daemon: a program that ends during the write waits for it. A daemon thread that still trains while the
        # interpreter ends could save again and again, so from then on the writing threads are daemons.
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

    def _write(
        self, snapshot: _SnapshotSession, path: str, step: Any, write_meta_graph: bool, when_written: Any
    ) -> None:
        try:
            # Without a default graph a new thread executes eagerly under TF 2 behaviour.
            with completed_before_exit, snapshot.graph.as_default():
                self._path = save_durably(self.saver, snapshot, path, step, write_meta_graph)
            snapshot.saved()
        except BaseException as error:
            self._error = error
        finally:
            if when_written is not None:
                when_written()

    def wait(self) -> Any:
        """Waits for the write that is under way.

        Returns:
          The path of the checkpoint written last, with the step; None if none was written.

        Raises:
          Exception: the error of the write. The next call doesn't raise it again.
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
    """Finds the tensors whose values a Saver writes.

    Args:
      saver: the `tf.compat.v1.train.Saver`.
      graph: the graph of its operations.

    Returns:
      List of the tensors, each once; empty if the value of one of them can't be copied.
    """
    save = graph.as_graph_element(saver.as_saver_def().save_tensor_name)
    tensors: dict[int, Any] = {}
    for op in upstream_operations([save]):
        if op.type in _FIRST_VALUE:
            tensors.update((id(tensor), tensor) for tensor in list(op.inputs)[_FIRST_VALUE[op.type] :])
    values = list(tensors.values())
    if any(tensor.dtype in (dtypes.variant, dtypes.resource) or not graph.is_feedable(tensor) for tensor in values):
        return []
    return values


class _SnapshotSession(tf_session.SessionInterface):  # type: ignore[misc]
    """Stands in for the session in `Saver.save`: runs in that session, with the snapshot fed for the variables."""

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

    def saved(self) -> None:
        """Counts the checkpoint in the session."""
        self._session.saves_ended += 1

    def partial_run_setup(self, fetches: Any, feeds: Any = None) -> Any:
        raise NotImplementedError("A snapshot of variables is for Saver.save() alone.")

    def partial_run(self, handle: Any, fetches: Any, feed_dict: Any = None) -> Any:
        raise NotImplementedError("A snapshot of variables is for Saver.save() alone.")
