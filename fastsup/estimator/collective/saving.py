"""Saves of a model with variables that are reduced over all tasks when they are read. Every task must take part.

Such variables have `VariableSynchronization.ON_READ`, for example the averages of a batch normalization. The leader
writes the files. The other tasks run the operations that the leader's save waits for. The leader saves any other
model on its own.
"""

from __future__ import annotations

from typing import Any

from tensorflow.python.training import session_run_hook, training_util

from fastsup import train
from fastsup.cluster.collective.membership import Membership
from fastsup.core import SecondOrStepTimer
from fastsup.runtime.graph.operations import upstream_operations

__all__ = ["FollowerSaverHook", "LeaderSaverHook", "check_lone_runs"]


def upstream_collectives(elements: list[Any]) -> list[Any]:
    """Returns the collective operations that tensors and operations depend on."""
    return [op for op in upstream_operations(elements) if op.type.startswith("Collective")]


def collectives_of_save(saver: Any, graph: Any) -> list[Any]:
    """Returns the collective operations that a save runs."""
    if saver is None:
        return []
    return upstream_collectives([graph.as_graph_element(saver.as_saver_def().save_tensor_name)])


def check_lone_runs(scaffold: Any, graph: Any, step: list[Any], saver_hooks: list[Any]) -> None:
    """Rejects operations that the leader would run alone, and which would then wait forever for the other tasks."""
    saved = collectives_of_save(scaffold.saver, graph)
    if saved and saver_hooks:
        raise ValueError(
            f"{saver_hooks[0]!r} can't save this model: it has variables that are reduced over the workers when they "
            f"are read (VariableSynchronization.ON_READ), by {saved[0].name!r}, so all workers must save together. "
            "Leave the hook out, and set RunConfig's save_checkpoints_steps or save_checkpoints_secs."
        )
    if scaffold.summary_op is None:
        return
    in_step = set(upstream_collectives(step))
    lone = [op for op in upstream_collectives([scaffold.summary_op]) if op not in in_step]
    if lone:
        raise ValueError(
            f"The summaries need {lone[0].name!r}, which waits for the other workers, but only one worker writes "
            "summaries. Make the value part of the step, by a control dependency of train_op; or pass "
            "RunConfig(save_summary_steps=0)."
        )


class LeaderSaverHook(train.CheckpointSaverHook):
    """Saves the checkpoints of collective training."""

    _schedule_reads = train.CheckpointSaverHook._schedule_reads | {"_collective"}

    def __init__(self, membership: Membership, **options: Any) -> None:
        super().__init__(**options)
        self._membership = membership
        self._by_time = options.get("save_steps") is None
        self._collective = False
        # The number of runs after which all tasks save. It is set once the time is up.
        self._save_after: int | None = None

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Saves the first checkpoint."""
        self._collective = bool(collectives_of_save(self._get_saver(), session.graph))
        if self._collective and self._async_save:
            raise ValueError(
                "async_save=True can't save this model: it has variables that are reduced over the workers when they "
                "are read (VariableSynchronization.ON_READ). Pass RunConfig(async_save=False)."
            )
        super().after_create_session(session, coord)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Saves if a save is due."""
        if not (self._collective and self._by_time):
            super().after_run(run_context, run_values)
        elif self._save_after is None:
            # Notify the other tasks first, because they may be in the next step already.
            if self._timer.should_trigger_for_step(run_values.results + 1):
                self._save_after = self._membership.ask_save()
        elif self._membership.status.runs >= self._save_after:
            self._save_after = None
            step = run_context.session.run(training_util.get_global_step(run_context.session.graph))
            self._timer.update_last_triggered_step(step)
            if self._save(run_context.session, step):
                run_context.request_stop()

    def _save(self, session: Any, step: Any) -> bool:
        if not self._collective:
            return super()._save(session, step)
        # Without this, each task would have to decide whether to keep a restored checkpoint, with the same result.
        session._forget_checkpoint()
        self._membership.begin_wait()
        try:
            return super()._save(session, step)
        finally:
            self._membership.end_wait()

    def _schedule(self, run: int, step_read: Any) -> bool:
        if self._collective and self._by_time:
            self.due_every_run()
            return True
        return super()._schedule(run, step_read)


class FollowerSaverHook(session_run_hook.SessionRunHook):  # type: ignore[misc]
    """Takes part in the leader's saves. `save_steps` is None if the leader decides by time."""

    def __init__(self, membership: Membership, scaffold: Any, save_steps: int | None) -> None:
        self._membership = membership
        self._scaffold = scaffold
        self._timer = SecondOrStepTimer(every_steps=save_steps) if save_steps else None
        self._operations: list[Any] = []
        self._last_step: int | None = None

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Takes part in the first save."""
        del coord
        self._operations = collectives_of_save(self._scaffold.saver, session.graph)
        if self._operations:
            self._take_part(session, self._step(session))

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Takes part if the leader saves after this step."""
        del run_values
        if not self._operations:
            return
        session = run_context.session
        if self._timer is None:
            if self._membership.save_after == self._membership.status.runs:
                self._take_part(session, self._step(session))
            return
        step = self._step(session)
        if self._timer.should_trigger_for_step(step):
            self._take_part(session, step)

    def end(self, session: Any) -> None:
        """Takes part in the last save."""
        if self._operations:
            step = self._step(session)
            if step != self._last_step:
                self._take_part(session, step)

    @staticmethod
    def _step(session: Any) -> int:
        return int(session.run(training_util.get_global_step(session.graph)))

    def _take_part(self, session: Any, step: int) -> None:
        self._last_step = step
        if self._timer is not None:
            self._timer.update_last_triggered_step(step)
        self._membership.begin_wait()
        try:
            session.run(self._operations)
        finally:
            self._membership.end_wait()
