"""CheckpointInputPipelineHook, with which resumed training continues reading its input where it stopped."""

from __future__ import annotations

import functools
import os
from typing import Any

from tensorflow.python.data.experimental.ops.iterator_ops import _convert_external_state_policy_to_enum
from tensorflow.python.data.ops import iterator_ops
from tensorflow.python.framework import ops
from tensorflow.python.training import checkpoint_management, saver, session_run_hook, training_util

from fastsup.checkpoint.directory import list_checkpoints, note_state
from fastsup.checkpoint.durable import save_durably
from fastsup.checkpoint.restore import CheckpointRestorer
from fastsup.core import SecondOrStepTimer
from fastsup.estimator.model.estimator import check_estimator

__all__ = ["CheckpointInputPipelineHook"]


class CheckpointInputPipelineHook(session_run_hook.SessionRunHook):  # type: ignore[misc]
    """Saves the input's iterators whenever the Estimator saves its variables, and restores them in a new session.

    Pass this hook to `train`, not to `evaluate`. The files are in the model directory, separate from the variables'
    files: "input.ckpt-STEP", or "input_TYPE_ID.ckpt-STEP" for a task of a cluster.

    Args:
      estimator: the `Estimator` that is trained.
      external_state_policy: "fail" (or None) to raise an error at the first save if the input depends on external
        state, such as a random generator; "warn" or "ignore" to save the rest.

    Raises:
      TypeError: If `estimator` isn't an Estimator.
      ValueError: If `external_state_policy` has another value.
    """

    def __init__(self, estimator: Any, external_state_policy: str | None = None) -> None:
        check_estimator(estimator)
        policy = "fail" if external_state_policy is None else external_state_policy
        if policy not in ("fail", "ignore", "warn"):
            raise ValueError(f'external_state_policy must be "fail", "warn", "ignore" or None; got {policy!r}.')
        self._policy = _convert_external_state_policy_to_enum(policy)
        config = estimator.config
        task = f"_{config.task_type}_{config.task_id}" if config.num_worker_replicas > 1 else ""
        self._directory = estimator.model_dir
        self._path = os.path.join(self._directory, f"input{task}.ckpt")
        # This state file is separate from the variables' state file, which training restores from.
        self._state_file = f"checkpoint_input{task}"
        self._timer = SecondOrStepTimer(
            every_secs=config.save_checkpoints_secs, every_steps=config.save_checkpoints_steps
        )

    def begin(self) -> None:
        saveables = [
            iterator_ops._IteratorSaveable(resource, resource.name, external_state_policy=self._policy)
            for resource in ops.get_collection(iterator_ops.GLOBAL_ITERATORS)
        ]
        self._saver = saver.Saver(saveables, sharded=True) if saveables else None
        self._global_step = training_util._get_or_create_global_step_read()
        self._first_run = True

    def after_create_session(self, session: Any, coord: Any) -> None:
        del session, coord
        self._first_run = True

    def before_run(self, run_context: Any) -> Any:
        # Don't do this in after_create_session, because a later hook may still initialize the iterators.
        if self._first_run:
            self._restore_or_save(run_context.session)
            self._first_run = False
        return session_run_hook.SessionRunArgs(self._global_step)

    def _restore_or_save(self, session: Any) -> None:
        note_state(os.path.join(self._directory, self._state_file))
        newest = checkpoint_management.latest_checkpoint(self._directory, self._state_file)
        if newest is None:
            self._save(session, session.run(self._global_step))
        elif self._saver is not None:
            # If a save over the newest checkpoint was interrupted, the earlier state has another name.
            listing = list_checkpoints(self._directory, self._state_file)
            restore = functools.partial(self._saver.restore, session)
            CheckpointRestorer(restore, lambda: None).restore_first(listing, self._directory)

    def _save(self, session: Any, step: Any) -> None:
        self._timer.update_last_triggered_step(step)
        if self._saver is not None:
            save_durably(self._saver, session, self._path, step, state_file=self._state_file)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        # The run may have fetched the step before its increment.
        if self._timer.should_trigger_for_step(run_values.results + 1):
            step = run_context.session.run(self._global_step)
            if self._timer.should_trigger_for_step(step):
                self._save(run_context.session, step)

    def end(self, session: Any) -> None:
        step = session.run(self._global_step)
        if step != self._timer.last_triggered_step():
            self._save(session, step)
