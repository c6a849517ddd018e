"""The writer of checkpoints that CheckpointSaverHook and Supervisor share, and the calls to a save's listeners.

It writes while the step waits or in the background, and doesn't overwrite a checkpoint with the same state.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from typing import Any

import numpy
from tensorflow.python.checkpoint import checkpoint_management
from tensorflow.python.client import session as tf_session
from tensorflow.python.framework import dtypes
from tensorflow.python.lib.io import file_io
from tensorflow.python.platform import tf_logging as logging

from fastsup.checkpoint.durable import checkpoint_name, is_plain_saver, name_by_saver, save_durably, saving
from fastsup.common.interpreter_end import no_interpreter_exit
from fastsup.runtime.graph.operations import upstream_operations
from fastsup.runtime.graph.variable_sharing import Snapshot, snapshot_of
from fastsup.runtime.session import Session

__all__ = [
    "UNCHANGED",
    "BackgroundSaver",
    "CheckpointWriter",
    "call_after_save",
    "call_before_save",
    "reuse_unchanged_checkpoint",
]

# Leaves the newest checkpoint unchanged if it already contains the current state.
#
# TensorFlow's hook saves the restored state again, under the same name. The saver truncates the index file in place, so
# the newest checkpoint is torn for a moment, and a program that is killed at that moment loses it.

# The line that is logged instead of TensorFlow's line about a save, with the step and the path of the checkpoint.
UNCHANGED = (
    "The checkpoint of step %d, %s, already contains this state and is left unchanged. "
    "See `python -m fastsup docs dropin#checkpoints`."
)


def reuse_unchanged_checkpoint(
    session: Session, saver: Any, save_path: str, step: Any, write_meta_graph: bool
) -> str | None:
    """Finds the checkpoint that a save would overwrite with the same values.

    If there is one, completes the save: writes the `.meta` file if it is missing, and the state file.

    Args:
      session: the session whose variables should be saved.
      saver: the saver that should save them.
      save_path: path of the checkpoint, without the step.
      step: the global step for the checkpoint's name. If None, the name has no step.
      write_meta_graph: Whether to write a `.meta` file with the graph.

    Returns:
      The path of that checkpoint, or None if the variables must be saved.
    """
    if not is_plain_saver(saver):
        return None
    path = session._unchanged_checkpoint()
    if path is None or step is None or path not in saver.last_checkpoints:
        return None
    if os.path.abspath(str(checkpoint_name(saver, save_path, step))) != os.path.abspath(path):
        return None
    if not checkpoint_management.checkpoint_exists_internal(path):
        return None
    if write_meta_graph:
        meta_graph = checkpoint_management.meta_graph_filename(path)
        if not file_io.file_exists(meta_graph):
            with session.graph.as_default():
                saver.export_meta_graph(meta_graph)
    # The state file may be lost, or may name another checkpoint, which is damaged. The program may also have gone back
    # to an older checkpoint, which is then the newest one, as after a save.
    name_by_saver(saver, path, os.path.dirname(save_path), is_new=saver.last_checkpoints[-1] != path)
    return path


# Writes checkpoints in the background: a snapshot of the variables is taken between steps, and a thread writes it.
#
# A snapshot shares the memory of variables that the runtime copies on write, and copies the others.

# Index of the first value among the inputs of each operation that writes checkpoints.
_FIRST_VALUE = {"SaveV2": 3, "SaveSlices": 3, "Save": 2}


class BackgroundSaver:
    """Writes the checkpoints of one Saver in a thread, one at a time."""

    def __init__(self, saver: Any) -> None:
        self.saver = saver
        # The graph and version for which the snapshot was prepared, the saved tensors, and how their values are kept.
        self._prepared_for: tuple[Any, int] | None = None
        self._tensors: list[Any] = []
        self._snapshot = Snapshot([], [])
        # The memory of the copies of the last save, by the tensor's position, or None for tensors that aren't copied.
        self._buffers: list[Any] = []
        # This lock guards `_thread`. A Supervisor's service may save while another thread waits, and `join` needs a
        # started thread.
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._path: Any = None

    def prepare(self, session: Any) -> None:
        """Does the part of a save that comes before reading the variables, so that steps can run in the meantime.

        Waits for an unfinished earlier write.
        """
        self.wait()
        graph = session.graph
        if self._prepared_for == (graph, graph.version):
            return
        with no_interpreter_exit:
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
        """Creates a snapshot of the variables, and returns while it is being written.

        Waits first for an unfinished earlier write.

        Args:
          session: the `fastsup.Session` that holds the variables.
          path: path of the checkpoint, without the step.
          step: the global step for the checkpoint's name. If None, the name has no step.
          write_meta_graph: Whether to write a `.meta` file with the graph.
          when_written: function without arguments, called in the writing thread when the write has finished or failed.

        Raises:
          Exception: The error of the earlier write, unless `wait` has raised it.
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
        # The thread isn't a daemon, so that a program that exits during the write waits for it. A daemon thread that
        # still trains during the exit could save again and again, so from then on the writing threads are daemons.
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
            # Set a default graph, because without one a new thread executes eagerly under TF 2 behavior.
            with no_interpreter_exit, snapshot.graph.as_default():
                self._path = save_durably(self.saver, snapshot, path, step, write_meta_graph)
            snapshot.saved()
        except BaseException as error:
            self._error = error
        finally:
            if when_written is not None:
                when_written()

    def wait(self) -> Any:
        """Waits for the current write, and raises its error once. Returns the path of the last checkpoint."""
        with self._starting:
            thread = self._thread
        if thread is not None:
            thread.join()
        error, self._error = self._error, None
        if error is not None:
            raise error
        return self._path


def saved_tensors(saver: Any, graph: Any) -> list[Any]:
    """Returns the tensors whose values a Saver writes, each once, or [] if the value of one of them can't be copied."""
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
    """Replaces the session in `Saver.save`: runs in that session, with the snapshot fed for the variables."""

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
        raise NotImplementedError("A snapshot of variables works only with Saver.save().")

    def partial_run(self, handle: Any, fetches: Any, feed_dict: Any = None) -> Any:
        raise NotImplementedError("A snapshot of variables works only with Saver.save().")


class CheckpointWriter:
    """Writes checkpoints one after another, while the caller waits or in the background.

    The newest checkpoint isn't written again if it already holds the state of the session.

    Args:
      remember_state: Whether a checkpoint written here equals the session's state until a step changes the state. The
        next save of the same state then doesn't write.
      when_written: function without arguments, called in the writing thread when a background write has finished.
    """

    def __init__(
        self,
        remember_state: bool = False,
        when_written: Callable[[], None] | None = None,
    ) -> None:
        self._remember_state = remember_state
        self._when_written = when_written
        self._background: BackgroundSaver | None = None
        self._pending_step: Any = None

    def save(
        self,
        session: Session,
        saver: Any,
        path: Any,
        step: Any,
        log_start: Callable[[], None],
        write_meta_graph: bool | None = None,
        in_background: bool = False,
    ) -> Any:
        """Saves the variables of a session.

        Args:
          session: the session that holds the variables.
          saver: the `tf.compat.v1.train.Saver` that writes them.
          path: path of the checkpoint, without the step.
          step: the global step for the checkpoint's name. If None, the name has no step.
          log_start: function without arguments that logs the start of the write. Not called for an unchanged state.
          write_meta_graph: Whether to write a `.meta` file with the graph. If None, uses the saver's default.
          in_background: Whether to return as soon as the variables are copied.

        Returns:
          The path of the checkpoint, with the step, or None while it is being written in the background.

        Raises:
          Exception: The error of the saver, or of the earlier background write.
        """
        has_meta_graph = write_meta_graph is not False
        with no_interpreter_exit, saving(None):
            unchanged = reuse_unchanged_checkpoint(session, saver, path, step, has_meta_graph)
        if unchanged is not None:
            logging.info(UNCHANGED, step, unchanged)
            return unchanged
        log_start()
        if in_background:
            self._background_of(saver).save(session, path, step, has_meta_graph, self._when_written)
            self._pending_step = step
            return None
        # Read this before the write, because the gate may time out and let a step pass.
        passed = session.gate.passed
        with no_interpreter_exit:
            written = save_durably(saver, session, path, step, write_meta_graph)
        session.saves_ended += 1
        if self._remember_state:
            session._note_checkpoint(written, passed)
        return written

    def prepare(self, session: Session, saver: Any) -> None:
        """Does the part of a background save before reading the variables, for a caller that then holds steps back."""
        self._background_of(saver).prepare(session)

    def _background_of(self, saver: Any) -> BackgroundSaver:
        if self._background is None or self._background.saver is not saver:
            self.wait()
            self._background = BackgroundSaver(saver)
        return self._background

    def wait(self) -> Any:
        """Waits for the background write, and raises its error once. Returns the path of the checkpoint, or None."""
        return None if self._background is None else self._background.wait()

    def finish(self) -> Any:
        """Waits for the background write, unless an earlier call did. Returns the step of the checkpoint, or None."""
        step, self._pending_step = self._pending_step, None
        if step is not None:
            self.wait()
        return step

    def wait_and_log(self) -> bool:
        """Waits for the background write, and logs its error instead of raising it. Returns True if there was one."""
        try:
            self.wait()
        except Exception as error:
            logging.error("The checkpoint of step %s could not be written: %s", self._pending_step, error)
            self._pending_step = None
            return True
        return False


def call_before_save(listeners: Iterable[Any], session: Any, step: Any) -> None:
    """Calls the listeners' `before_save`."""
    logging.info("Calling checkpoint listeners before saving checkpoint %d...", step)
    for listener in listeners:
        listener.before_save(session, step)


def call_after_save(listeners: Iterable[Any], session: Any, step: Any) -> bool:
    """Calls the `after_save` of all listeners. Returns True if one of them requested a stop."""
    logging.info("Calling checkpoint listeners after saving checkpoint %d...", step)
    should_stop = False
    for listener in listeners:
        if listener.after_save(session, step):
            logging.info("A CheckpointSaverListener requested that training be stopped. listener: %s", listener)
            should_stop = True
    return should_stop
