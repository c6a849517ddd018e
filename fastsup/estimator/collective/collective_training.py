"""One task's training with MultiWorkerMirroredStrategy: its server, stop signals, hook and session."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

from tensorflow.core.protobuf import config_pb2
from tensorflow.python.framework import errors, ops
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import session_run_hook

from fastsup import train
from fastsup.cluster.collective.membership import Membership, lost_task_error
from fastsup.cluster.collective.task import ensure_server, leader_of, training_tasks
from fastsup.cluster.collective.watch import Peer
from fastsup.cluster.peer_liveness import peer_timeout_secs
from fastsup.common import stop_signals
from fastsup.core.sessions import session_role
from fastsup.estimator.collective.saving import FollowerSaverHook, LeaderSaverHook, check_lone_runs
from fastsup.train.hooks.checkpoint_saver import TFCheckpointSaverHook
from fastsup.train.session.monitored_session import MonitoredSession, _MonitoredSession
from fastsup.train.session.session_creators import ChiefSessionCreator
from fastsup.train.session.session_manager import SessionManager

__all__ = [
    "CollectiveSession",
    "CollectiveSessionCreator",
    "CollectiveStepHook",
    "CollectiveTraining",
    "StopSignals",
    "collective_training",
    "leader_hooks",
]


class StopSignals:
    """Records SIGTERM and SIGINT unless the program handles them. The sessions continue.

    Attributes:
      number: number of the signal that was received, or 0.
    """

    def __init__(self) -> None:
        self.number: int = 0

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Records signals during a `with` block. Works only in the main thread."""
        watches = stop_signals.install("all workers will end after the next step, with a checkpoint.", self._receive)
        try:
            yield
        finally:
            if watches:
                stop_signals.uninstall()

    def _receive(self, number: int) -> None:
        self.number = number

    def raise_pending(self) -> None:
        """Raises the exception for the received signal, if there is one."""
        interrupt = stop_signals.interrupt_of(self.number)
        if interrupt is not None:
            raise interrupt


class CollectiveStepHook(session_run_hook.SessionRunHook):  # type: ignore[misc]
    """Measures steps. Runs before all other hooks, so that their work isn't counted as waiting for other tasks."""

    def __init__(self, membership: Membership, signals: StopSignals) -> None:
        self._membership = membership
        self._signals = signals
        self._asked = False

    def before_run(self, run_context: Any) -> None:
        """Marks the start of a step."""
        del run_context
        self._membership.begin_wait()

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Marks the end of a step. Requests a stop after the last step of all tasks."""
        del run_values
        if self._membership.end_step():
            run_context.request_stop()
        elif self._signals.number and not self._asked:
            self._asked = True
            number = self._signals.number
            self._membership.ask_stop(f"it has got {signal.Signals(number).name}", number)


class _WatchedSessionManager(SessionManager):
    """Registers each session with the membership before anything runs in it."""

    def __init__(self, membership: Membership, **options: Any) -> None:
        super().__init__(**options)
        self._membership = membership

    def _make_session(self, master: str, config: Any) -> Any:
        session = super()._make_session(master, config)
        self._membership.watch_session(session)
        return session


class CollectiveSessionCreator(ChiefSessionCreator):
    """Creates a task's session once all tasks have joined. Each copies the initial values of the first task."""

    def __init__(
        self,
        membership: Membership,
        interrupted: Callable[[], None],
        limit_secs: float,
        check: Callable[[Any], None],
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._membership = membership
        self._interrupted = interrupted
        self._limit_secs = limit_secs
        self._check = check

    def _new_session_manager(self, **options: Any) -> Any:
        return _WatchedSessionManager(self._membership, **options)

    def _finalize_graph(self) -> Any:
        manager = super()._finalize_graph()
        self._check(self._scaffold)
        return manager

    def create_session(self) -> Any:
        """Waits for the other tasks, and creates a session."""
        self._finalize_graph()
        self._membership.join(self._limit_secs, self._interrupted)
        self._membership.begin_wait()
        try:
            return super().create_session()
        finally:
            self._membership.end_wait()


class CollectiveSession(MonitoredSession):
    """A `MonitoredSession` without recovery, because TensorFlow's collectives can't recover from the loss of a task."""

    def __init__(self, session_creator: CollectiveSessionCreator, hooks: list[Any], profiler: Any) -> None:
        with session_role("train"):
            # The tasks agree on a stop through `StopSignals`.
            _MonitoredSession.__init__(
                self, session_creator, hooks, should_recover=False, handle_signals=False, profiler=profiler
            )


def leader_hooks(scaffold: Any, config: Any, summary_steps: int | None, count_steps: int | None) -> list[Any]:
    """Returns the hooks that write events, as in `MonitoredTrainingSession`."""
    hooks: list[Any] = []
    if count_steps:
        hooks.append(train.StepCounterHook(count_steps, output_dir=config.model_dir))
    if summary_steps:
        hooks.append(train.SummarySaverHook(summary_steps, output_dir=config.model_dir, scaffold=scaffold))
    return hooks


# Errors that a run raises if it waits for a lost task. The task's own errors can have the same types.
_PERHAPS_LOST = (
    errors.UnavailableError, errors.AbortedError, errors.CancelledError, errors.FailedPreconditionError,
    errors.DeadlineExceededError, errors.InternalError, errors.UnknownError,
)  # fmt: skip


class CollectiveTraining:
    """The parts of a task's training outside its graph."""

    def __init__(self, config: Any, session_config: Any, membership: Membership) -> None:
        self._config = config
        self._session_config = session_config
        self.membership = membership
        self.signals: StopSignals = StopSignals()

    def new_saver_hook(self, **options: Any) -> LeaderSaverHook:
        """Creates the hook that saves the checkpoints."""
        return LeaderSaverHook(self.membership, **options)

    def open_session(
        self,
        spec: Any,
        hooks: list[Any],
        chief_hooks: list[Any],
        summary_steps: int | None,
        count_steps: int | None,
    ) -> CollectiveSession:
        """Creates the session once all tasks have joined."""
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
        """Returns the error for the lost task that caused an error, or the same error if no task is lost."""
        loss = None
        if isinstance(error, _PERHAPS_LOST) and not hasattr(error, "loss"):
            loss = self.membership.find_loss()
        elif isinstance(error, RuntimeError):  # The session was closed because a task was lost.
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
    """Makes this task a member of collective training during a `with` block."""
    own_config = config_pb2.ConfigProto()
    own_config.CopyFrom(session_config)
    extended = strategy.extended
    if extended._cluster_spec:
        strategy.configure(own_config)
    else:  # The strategy was created before TF_CONFIG was set.
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
