"""One task's training with MultiWorkerMirroredStrategy, from its server to its end."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator
from typing import Any

from tensorflow.core.protobuf import config_pb2
from tensorflow.python.framework import errors, ops
from tensorflow.python.platform import tf_logging as logging

from fastsup.cluster.collective.membership import Membership, lost_task_error
from fastsup.cluster.collective.task import ensure_server, leader_of, training_tasks
from fastsup.cluster.collective.watch import Peer
from fastsup.cluster.peer_liveness import peer_timeout_secs
from fastsup.estimator.collective.saving import FollowerSaverHook, LeaderSaverHook, check_lone_runs
from fastsup.estimator.collective.session import CollectiveSession, CollectiveSessionCreator, leader_hooks
from fastsup.estimator.collective.step_hook import CollectiveStepHook
from fastsup.estimator.collective.stop_signals import StopSignals
from fastsup.train.hooks.checkpoint_saver import TFCheckpointSaverHook

__all__ = ["CollectiveTraining", "collective_training"]

# What a run raises that waits for a lost task, besides errors that are the task's own.
_PERHAPS_LOST = (
    errors.UnavailableError, errors.AbortedError, errors.CancelledError, errors.FailedPreconditionError,
    errors.DeadlineExceededError, errors.InternalError, errors.UnknownError,
)  # fmt: skip


class CollectiveTraining:
    """What a task's training has alongside its graph.

    Args:
      config: the `RunConfig` of the task.
      session_config: ConfigProto of the sessions, which the strategy has configured.
      membership: this task's part in the job.
    """

    def __init__(self, config: Any, session_config: Any, membership: Membership) -> None:
        self._config = config
        self._session_config = session_config
        self.membership = membership
        self.signals: StopSignals = StopSignals()

    def new_saver_hook(self, **options: Any) -> LeaderSaverHook:
        """Makes the hook that saves the checkpoints.

        Args:
          **options: the arguments of `CheckpointSaverHook`.
        """
        return LeaderSaverHook(self.membership, **options)

    def open_session(
        self,
        spec: Any,
        hooks: list[Any],
        chief_hooks: list[Any],
        summary_steps: int | None,
        count_steps: int | None,
    ) -> CollectiveSession:
        """Makes the session, once all tasks are there.

        Args:
          spec: the `EstimatorSpec`.
          hooks: the hooks of every task.
          chief_hooks: the hooks of the task that saves the model.
          summary_steps: global steps between two summaries. 0 or None: no summaries.
          count_steps: global steps between two measurements of the rate. 0 or None: none.
        """
        config, scaffold, step = self._config, spec.scaffold, [spec.train_op, spec.loss]
        own: list[Any] = [CollectiveStepHook(self.membership, self.signals)]
        given = [hook for hook in (*hooks, *chief_hooks) if isinstance(hook, TFCheckpointSaverHook)]
        given = [hook for hook in given if not isinstance(hook, LeaderSaverHook)]
        # Only one task writes to the model directory.
        others = hooks if config.is_chief else [hook for hook in hooks if hook not in given]
        if config.is_chief:
            own += [*chief_hooks, *leader_hooks(scaffold, config, summary_steps, count_steps)]
        elif not given and (config.save_checkpoints_steps or config.save_checkpoints_secs):
            own.append(FollowerSaverHook(self.membership, scaffold, config.save_checkpoints_steps))
        creator = CollectiveSessionCreator(
            self.membership,
            self.signals.raise_pending,
            peer_timeout_secs(config),
            functools.partial(check_lone_runs, graph=ops.get_default_graph(), step=step, saver_hooks=given),
            scaffold=scaffold,
            master=config.master,
            config=self._session_config,
            checkpoint_dir=config.model_dir,
            executor=config.executor,
            recovery_wait_secs=config.recovery_wait_secs,
        )
        return CollectiveSession(creator, [*own, *others], config.profiler)

    def explain(self, error: BaseException) -> BaseException:
        """The error of the lost task that has led to an error; or that error, if none is lost.

        Args:
          error: what has ended the training.
        """
        loss = None
        if isinstance(error, _PERHAPS_LOST) and not hasattr(error, "loss"):
            loss = self.membership.find_loss()
        elif isinstance(error, RuntimeError):  # The session was closed because of the loss.
            loss = self.membership.loss
        if loss is None:
            return error
        lost: BaseException = lost_task_error(loss)
        return lost


def _name(task: tuple[str, int]) -> str:
    return f"{task[0]} {task[1]}" if task[0] != "chief" else "chief"


def _membership_of(config: Any, checkpoint: str | None) -> Membership:
    tasks = {
        task: Peer(number, _name(task), "/job:{}/task:{}".format(*task), address)
        for number, (task, address) in enumerate(training_tasks(config.cluster_spec).items())
    }
    own = tasks.pop((config.task_type, config.task_id))
    leader = tasks.get(leader_of(config.cluster_spec), own)
    return Membership(own, list(tasks.values()), leader, os.path.basename(checkpoint) if checkpoint else "")


@contextlib.contextmanager
def collective_training(
    config: Any, strategy: Any, session_config: Any, checkpoint: str | None
) -> Iterator[CollectiveTraining]:
    """This task's part in a training of collectives, for a `with` block in which it trains.

    Args:
      config: the `RunConfig` of the task.
      strategy: the strategy.
      session_config: ConfigProto of the Estimator's sessions. It stays as it is.
      checkpoint: path of the newest checkpoint, or None.

    Raises:
      tf.errors.UnavailableError: another task is lost, or has failed. The message names it and says why.
      SystemExit: a task has got SIGTERM; with the exit code 143.
    """
    own_config = config_pb2.ConfigProto()
    own_config.CopyFrom(session_config)
    extended = strategy.extended
    if extended._cluster_spec:
        strategy.configure(own_config)
    else:  # Made before TF_CONFIG was set.
        strategy.configure(own_config, config.cluster_spec, config.task_type, config.task_id)
    if not getattr(extended, "_std_server_started", False):
        ensure_server(config, own_config)
    training = CollectiveTraining(config, own_config, _membership_of(config, checkpoint))
    with training.signals.watched():
        try:
            yield training
        except BaseException as error:
            cause = training.explain(error)
            training.membership.leave(cause)
            if cause is error:
                raise
            raise cause from error
        training.membership.leave(None)
    stop = training.membership.stop
    training.signals.raise_pending()
    if stop is not None and stop[2]:
        logging.warning("Training ends, because of %s. All workers have ended at the same step.", stop[1])
        raise SystemExit(128 + stop[2])
