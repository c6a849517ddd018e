"""The restore of a new session's model: from one checkpoint or from a directory, strict or partial."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tensorflow.python.framework import ops
from tensorflow.python.util import deprecation

from fastsup.checkpoint.other_model import explaining_other_model, warn_of_other_shapes
from fastsup.checkpoint.partial_restore import restore_partially
from fastsup.checkpoint.restore import CheckpointRestorer
from fastsup.common.interpreter_end import completed_before_exit
from fastsup.core.checks import check_no_pattern
from fastsup.runtime.session import Session
from fastsup.train.session.session_wait import WaitLog, limit_text

__all__ = ["ModelRestore", "check_restore"]

_RESTORE_MODES = ("strict", "partial")


def check_restore(value: Any) -> None:
    """Refuses an unknown restore mode.

    Args:
      value: the argument `restore`.

    Raises:
      ValueError: `value` is neither "strict" nor "partial".
    """
    if value not in _RESTORE_MODES:
        raise ValueError(f"restore must be one of {', '.join(map(repr, _RESTORE_MODES))}, got {value!r}.")


class ModelRestore:
    """Restores the model of one session.

    Args:
      session: the session.
      saver: the `Saver` to restore with.
      mode: "strict" or "partial", as for `SessionManager`.
      initialize: function of the session that initialises its model before a partial restore, or None.
    """

    def __init__(
        self, session: Session, saver: Any, mode: str, initialize: Callable[[Any], None] | None = None
    ) -> None:
        self._session = session
        self._saver = saver
        self._partial = mode == "partial"
        self._initialize = initialize
        self._saved_model_initializers = ops.get_collection("saved_model_initializers")
        self._restorer = CheckpointRestorer(self._restore, self._prepare)

    def _prepare(self) -> None:
        # Before each attempt, so that no value of a failed attempt is left in the model.
        if self._partial and self._initialize is not None:
            self._initialize(self._session)
        if self._saved_model_initializers:
            self._session.run(self._saved_model_initializers)

    def _restore(self, path: str) -> None:
        with explaining_other_model(self._session.graph, self._saver, path, self._partial):
            if self._partial:
                restore_partially(self._session, self._saver, path)
            else:
                self._saver.restore(self._session, path)
        if not self._partial:
            warn_of_other_shapes(self._session.graph.get_collection(ops.GraphKeys.GLOBAL_VARIABLES), path)

    def from_path(self, path: Any) -> str:
        """Restores one checkpoint.

        Args:
          path: path of the checkpoint.

        Returns:
          The path, as a string.

        Raises:
          Exception: as `CheckpointRestorer.restore_checkpoint`.
        """
        with completed_before_exit:
            self._restorer.restore_checkpoint(path)
        return str(path)

    def from_directory(self, directory: Any, max_wait_secs: float, poll_secs: float) -> str | None:
        """Restores the newest intact checkpoint of a directory.

        Args:
          directory: path of the directory.
          max_wait_secs: seconds to wait for a first checkpoint at most; 0 for no wait.
          poll_secs: seconds between two looks at the directory.

        Returns:
          The path of the checkpoint; None if there is none.

        Raises:
          Exception: as `CheckpointRestorer.restore_newest`.
        """
        check_no_pattern("checkpoint_dir", directory)
        waited = 0.0
        log = WaitLog(poll_secs)
        while True:
            may_wait = waited < max_wait_secs
            with completed_before_exit:
                restored = self._restorer.restore_newest(directory, expects_writer=may_wait)
            if restored is not None:
                path, rotation = restored
                with deprecation.silence():  # TensorFlow's saver calls a deprecated function.
                    self._saver.recover_last_checkpoints(rotation)
                return path
            if not may_wait:
                return None
            log.info(
                "Waiting for checkpoint to be available. In %s, for %d s so far, %s.",
                directory,
                waited,
                limit_text(max_wait_secs),
            )
            time.sleep(max(0.0, poll_secs))
            # Without a pause the sum of the pauses stays 0, so the clock counts too.
            waited = max(waited + poll_secs, log.waited())
