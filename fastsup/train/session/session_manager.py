"""SessionManager, which creates a session and prepares its model by restoring, initializing or waiting.

A session may wait for the servers of the cluster, for the chief to prepare the model, or for a first checkpoint.
"""

from __future__ import annotations

import contextlib
import math
import random
import time
from collections.abc import Callable, Iterator
from numbers import Real
from typing import Any, NamedTuple

from tensorflow.python.distribute import distribute_lib
from tensorflow.python.framework import errors, ops
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import session_manager as tf_session_manager
from tensorflow.python.util import deprecation

from fastsup.checkpoint.restore import (
    CheckpointRestorer,
    explaining_other_model,
    restore_partially,
    warn_of_other_shapes,
)
from fastsup.cluster.peer_liveness import named_tasks, probe_servers, silent_tasks
from fastsup.cluster.tf_config import TaskType, read_tf_config
from fastsup.common.interpreter_end import no_interpreter_exit
from fastsup.core.checks import check_no_pattern, doubt_about
from fastsup.core.clock import steady
from fastsup.runtime.graph.global_step import track_global_step
from fastsup.runtime.session import Session

__all__ = [
    "WAITING_FOR_MODEL",
    "ModelRestore",
    "Readiness",
    "ReadyCheck",
    "SessionManager",
    "WaitLog",
    "check_recovery_wait_secs",
    "check_restore",
    "deadline_exceeded",
    "explains_result_of",
    "limit_text",
    "number_of_workers",
    "pause_before_look",
    "wait_for_servers",
]

# TensorFlow's line, then the awaited process, the seconds waited and the limit.
WAITING_FOR_MODEL = (
    "Waiting for model to be ready.  Ready_for_local_init_op:  %s, ready: %s. Waiting for %s; %d s so far, %s."
)
# The first pause of a wait with early checks, in seconds, and the share of the wait so far for later pauses.
_FIRST_PAUSE_SECS = 0.5
_PAUSE_SHARE = 0.25
# Maximum number of checks per second by all workers. Each check is a session on every parameter server.
_LOOKS_PER_SEC = 50.0
# Maximum number of tasks that a log line names.
_MOST_NAMES = 8
# Maximum seconds between two log lines of a wait.
_LONGEST_SILENCE_SECS = 600.0


def check_recovery_wait_secs(value: Any) -> None:
    """Rejects an infinite pause between checks. Warns about a negative number, which is treated as 0."""
    if not isinstance(value, Real):
        raise TypeError(f"recovery_wait_secs must be a number of seconds, got {value!r}.")
    if not float(value) < math.inf:
        raise ValueError(f"recovery_wait_secs must be finite, got {value!r}. TensorFlow's default is 30.")
    doubt = doubt_about(
        "recovery_wait_secs", value, "", "there is no pause between two checks", "sessions-and-executors"
    )
    if doubt is not None:
        logging.warning(doubt)


def number_of_workers() -> int:
    """Returns the number of workers in TF_CONFIG, or 1 if it has none or isn't valid. Not every program uses it."""
    try:
        cluster = read_tf_config().get("cluster")
    except ValueError:
        return 1
    workers = cluster.get(TaskType.WORKER) if isinstance(cluster, dict) else None
    return max(1, len(workers)) if isinstance(workers, (list, dict)) else 1


def pause_before_look(waited_secs: float, longest_secs: float, workers: int = 1) -> float:
    """Returns the pause before the next check while waiting for the chief, in seconds.

    A restarting chief usually returns within seconds. The first checks are therefore frequent, and a wait overshoots by
    at most 25%, or half a second. Many workers that lost the same task at the same time use longer pauses of different
    lengths, to spare the parameter servers.
    """
    shortest = workers / _LOOKS_PER_SEC
    if shortest > _FIRST_PAUSE_SECS:
        shortest *= random.uniform(0.5, 1.5)
    return max(0.0, min(longest_secs, max(_FIRST_PAUSE_SECS, shortest, _PAUSE_SHARE * waited_secs)))


class WaitLog:
    """Logs a wait immediately, and then at intervals that double. A first interval of 0 or less means 1 second."""

    def __init__(self, interval: float) -> None:
        self._started = steady()
        self._interval = interval if interval > 0 else 1.0
        self._due = self._started

    def waited(self) -> float:
        """Returns the seconds since the wait started."""
        return steady() - self._started

    def is_due(self) -> bool:
        """Returns True if `info` would log a line now."""
        return steady() >= self._due

    def info(self, text: str, *args: Any) -> None:
        """Logs a line at INFO if one is due."""
        if not self.is_due():
            return
        logging.info(text, *args)
        self._due = steady() + self._interval
        self._interval = min(2 * self._interval, max(_LONGEST_SILENCE_SECS, self._interval))


def limit_text(seconds: float | None) -> str:
    """Describes the limit of a wait in seconds. None or infinity means no limit."""
    return "without a limit" if seconds is None or seconds == math.inf else f"{seconds} s at most"


def deadline_exceeded(limit: float, awaited: str) -> errors.DeadlineExceededError:
    """Creates the error of a wait that reached its limit."""
    text = f"Session was not ready after waiting {int(limit)} secs. Waited for {awaited}"
    return errors.DeadlineExceededError(None, None, text)


def wait_for_servers(master: str, config: Any, limit: float, log_interval: float, log: WaitLog | None = None) -> None:
    """Waits until all tasks of a cluster answer. A session's first run would block forever without them."""
    probe = probe_servers(master, config)
    log = log or WaitLog(log_interval)

    def awaited() -> str:
        tasks = named_tasks(config.device_filters if config is not None else ())
        silent = list(silent_tasks(tasks).values())
        which = f": {', '.join(silent[:_MOST_NAMES])}{', ...' if len(silent) > _MOST_NAMES else ''}" if silent else ""
        return f"an answer from every task of the cluster of {master}, one of which isn't up or can't be reached{which}"

    poll_secs = log_interval if log_interval > 0 else 1.0
    while not probe.has_returned(max(0.0, min(poll_secs, limit - log.waited()))):
        if log.waited() >= limit:
            raise deadline_exceeded(limit, awaited())
        if log.is_due():
            log.info(WAITING_FOR_MODEL, None, None, awaited(), log.waited(), limit_text(limit))


# A fast check that a model is ready. It fetches the variables' initialization flags instead of the report of names.
#
# TensorFlow's report of uninitialized variables selects names by a mask, in a dozen operations. Every new session
# compiles two reports: one for the variables that `local_init_op` needs, and one for all. If every flag of the mask is
# true, the report is empty. The flags of the second report include those of the first, so one small fetch replaces
# both.

_REPORTS_BY_MASK = ("GatherV2", "Squeeze", "Where", "Reshape", "LogicalNot", "Pack")
_FLAGS = frozenset({"VarIsInitializedOp", "IsVariableInitialized"})


@contextlib.contextmanager
def explains_result_of(argument: str, operation: Any) -> Iterator[None]:
    """Explains an error about the result of a ready op, by adding the op's argument and the required result."""
    try:
        yield
    except (AttributeError, TypeError) as error:
        raise type(error)(
            f"{error}. The result of {argument}={operation!r} must be an empty 1-D string tensor if the model is "
            "ready, else the names of the missing variables."
        ) from error


class Readiness(NamedTuple):
    """The state of a session's model.

    Args:
      local_init_done: Whether the model was ready for `local_init_op`, which then ran.
      model_ready: Whether the model is ready.
      missing_for_local_init: message about the variables that are missing for `local_init_op`, or None.
      missing: message about the variables that are missing in the model, or None.
    """

    local_init_done: bool
    model_ready: bool
    missing_for_local_init: Any
    missing: Any


class ReadyCheck:
    """Checks a model by the flags of its two reports of uninitialized variables.

    It supports the reports of `tf.compat.v1.report_uninitialized_variables` and `Scaffold`. For any other op, or None,
    each check returns False, and the caller must run the op.
    """

    def __init__(self, ready_op: Any, ready_for_local_init_op: Any) -> None:
        self._flags = _packed_flags(ready_op)
        self._local_init_flags = _packed_flags(ready_for_local_init_op)
        # The positions of the flags for local_init_op among all flags, or None if some aren't among them.
        self._local_init_positions: list[int] | None = None
        if self._flags is not None and self._local_init_flags is not None:
            position = {_flag_key(flag): i for i, flag in enumerate(_unpacked(self._flags))}
            keys = [_flag_key(flag) for flag in _unpacked(self._local_init_flags)]
            if all(key in position for key in keys):
                self._local_init_positions = [position[key] for key in keys]

    def is_ready(self, session: Any) -> bool:
        """Returns True if every variable is initialized. False also if the flags don't show it."""
        return _all_true(session, self._flags)

    def is_ready_for_local_init(self, session: Any) -> bool:
        """Returns True if every variable for `local_init_op` is initialized. False also if the flags don't show it."""
        if self._local_init_positions is None:
            return _all_true(session, self._local_init_flags)
        values = _values(session, self._flags)
        return values is not None and all(values[i] for i in self._local_init_positions)


def _packed_flags(report: Any) -> list[Any] | None:
    """Returns the vectors of flags in a report (which is empty if all are true), or None for another kind of op."""
    op = getattr(report, "op", None)
    if op is None:
        return None
    # The last input of a ConcatV2 is the axis.
    parts = list(op.inputs)[:-1] if op.type == "ConcatV2" else [report]
    packed = []
    for part in parts:
        if part.op.type == "Const" and part.shape.num_elements() == 0:
            continue
        flags = _mask_of(part)
        if flags is None:
            return None
        packed.append(flags)
    return packed or None


def _mask_of(part: Any) -> Any:
    """Returns the vector of flags that selects a report's names, or None if the report is created differently."""
    *above, last = _REPORTS_BY_MASK
    for op_type in above:
        if part.op.type != op_type:
            return None
        # The second input of GatherV2 has the indices.
        part = part.op.inputs[1 if op_type == "GatherV2" else 0]
    return part if part.op.type == last else None


def _unpacked(packed: list[Any]) -> list[Any]:
    return [flag for vector in packed for flag in vector.op.inputs]


def _flag_key(flag: Any) -> Any:
    """Returns a key that is equal for two flags of the same variable."""
    return (flag.op.type, flag.op.inputs[0].name) if flag.op.type in _FLAGS else flag.name


def _values(session: Any, packed: list[Any] | None) -> list[bool] | None:
    if packed is None:
        return None
    try:
        return [bool(value) for vector in session.run(packed) for value in vector]
    except errors.FailedPreconditionError:
        return None  # The report also fails, with the better message.


def _all_true(session: Any, packed: list[Any] | None) -> bool:
    values = _values(session, packed)
    return values is not None and all(values)


_RESTORE_MODES = ("strict", "partial")


def check_restore(value: Any) -> None:
    """Rejects an unknown restore mode."""
    if value not in _RESTORE_MODES:
        raise ValueError(f"restore must be one of {', '.join(map(repr, _RESTORE_MODES))}, got {value!r}.")


class ModelRestore:
    """Restores the model of one session."""

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
        # Initialize before each attempt, so that no value of a failed attempt remains in the model.
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
        """Restores one checkpoint."""
        with no_interpreter_exit:
            self._restorer.restore_checkpoint(path)
        return str(path)

    def from_directory(self, directory: Any, max_wait_secs: float, poll_secs: float) -> str | None:
        """Restores the newest intact checkpoint of a directory."""
        check_no_pattern("checkpoint_dir", directory)
        waited = 0.0
        log = WaitLog(poll_secs)
        while True:
            may_wait = waited < max_wait_secs
            with no_interpreter_exit:
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
            # If poll_secs is 0, the sum of the pauses remains 0, so the clock also counts.
            waited = max(waited + poll_secs, log.waited())


def _name_of(operation: Any) -> str:
    if operation is None:
        return "None"
    return str(operation.name) if hasattr(operation, "name") else f"<no name for {type(operation)}>"


class SessionManager(tf_session_manager.SessionManager):  # type: ignore[misc]
    """Creates sessions and prepares their models.

    A model is restored from the newest intact checkpoint. A warning reports the path and cause of a damaged or
    incomplete checkpoint, which remains on the disk. If there are checkpoints and none is intact, an error is raised: a
    trained model never silently restarts from its initial values.

    Args:
      local_init_op: operation to run in every new session, or None.
      ready_op: 1-D string tensor, which is empty if the model is ready, and otherwise contains the names of missing
        variables. If None, the model isn't checked.
      ready_for_local_init_op: the same for `local_init_op`, which runs only if the tensor is empty. If None, the model
        isn't checked.
      graph: the graph. Defaults to the default graph.
      recovery_wait_secs: seconds between checks of a model that another process prepares.
      local_init_run_options: RunOptions for `local_init_op`.
      local_init_feed_dict: feeds for `local_init_op`.
      executor: executor mode of the sessions, as for `fastsup.Session`.
      restore: "strict", as in TensorFlow: the checkpoint must contain every tensor of the saver. "partial": the model
        is initialized first, then the checkpoint's tensors are restored. The log lists missing tensors, and tensors
        that the model doesn't have. A tensor with another shape or type is an error in both modes.

    Raises:
      TypeError: If `recovery_wait_secs` isn't a number.
      ValueError: If `ready_for_local_init_op` is given without `local_init_op`, `recovery_wait_secs` isn't finite, or
        `restore` is unknown.
    """

    def __init__(
        self,
        local_init_op: Any = None,
        ready_op: Any = None,
        ready_for_local_init_op: Any = None,
        graph: Any = None,
        recovery_wait_secs: float = 30,
        local_init_run_options: Any = None,
        local_init_feed_dict: Any = None,
        executor: str = "auto",
        restore: str = "strict",
        *,
        _looks_early: bool = False,
    ) -> None:
        check_recovery_wait_secs(recovery_wait_secs)
        check_restore(restore)
        super().__init__(
            local_init_op,
            ready_op,
            ready_for_local_init_op,
            graph,
            recovery_wait_secs,
            local_init_run_options,
            local_init_feed_dict,
        )
        self._executor = executor
        self._restore = restore
        # Whether the first checks while waiting for the chief are more frequent than `recovery_wait_secs`. A program
        # that creates its own SessionManager gets TensorFlow's pauses.
        self._looks_early = _looks_early
        self._ready_check = ReadyCheck(ready_op, ready_for_local_init_op)

    def prepare_session(
        self,
        master: str,
        init_op: Any = None,
        saver: Any = None,
        checkpoint_dir: Any = None,
        checkpoint_filename_with_path: Any = None,
        wait_for_checkpoint: bool = False,
        max_wait_secs: float = 7200,
        config: Any = None,
        init_feed_dict: Any = None,
        init_fn: Callable[[Any], Any] | None = None,
    ) -> Session:
        """Creates a session and restores its model from a checkpoint, or initializes it if there is none.

        Args:
          master: the execution engine to connect to.
          init_op: operation that initializes the model, or None. It doesn't run after a restore. With
            `restore="partial"`, it runs before the restore.
          saver: `Saver` to restore with. If None, restores nothing.
          checkpoint_dir: directory whose newest intact checkpoint is restored. Exclusive with the path below.
          checkpoint_filename_with_path: path of the checkpoint to restore.
          wait_for_checkpoint: Whether to wait until `checkpoint_dir` has a checkpoint.
          max_wait_secs: maximum seconds to wait for a checkpoint.
          config: ConfigProto of the session, or None.
          init_feed_dict: feeds for `init_op`.
          init_fn: function of the session, called after `init_op`, or None.

        Returns:
          The session, ready to run.

        Raises:
          RuntimeError: If there is neither a checkpoint nor a way to initialize the model, or the model isn't ready
            after it was initialized.
          ValueError: If both `checkpoint_dir` and `checkpoint_filename_with_path` are given, or the latter doesn't
            exist.
          NoIntactCheckpointError: If there are checkpoints, but none is intact. This is a tf.errors.DataLossError.
          tf.errors.NotFoundError, tf.errors.InvalidArgumentError: If the checkpoint doesn't match the model.
        """

        def initialize(session: Any) -> None:
            if init_op is not None:
                session.run(init_op, feed_dict=init_feed_dict)
            if init_fn:
                init_fn(session)

        session, restored = self._restore_checkpoint(
            master,
            saver,
            checkpoint_dir,
            checkpoint_filename_with_path,
            wait_for_checkpoint,
            max_wait_secs,
            config,
            initialize,
        )
        with self._closed_on_error(session):
            if not restored:
                if init_op is None and not init_fn and self._local_init_op is None:
                    raise RuntimeError("Model is not initialized and no init_op or init_fn or local_init_op was given")
                initialize(session)
            readiness = self._get_ready(session)
            init = f"Init op: {_name_of(init_op)}, init fn: {init_fn}"
            if not readiness.local_init_done:
                raise RuntimeError(
                    f"Init operations did not make model ready for local_init.  {init}, "
                    f"error: {readiness.missing_for_local_init}"
                )
            if not readiness.model_ready:
                raise RuntimeError(
                    f"Init operations did not make model ready.  {init}, local_init_op: {self._local_init_op}, "
                    f"error: {readiness.missing}"
                )
            self._remember_restored(session, restored)
        return session

    def recover_session(
        self,
        master: str,
        saver: Any = None,
        checkpoint_dir: Any = None,
        checkpoint_filename_with_path: Any = None,
        wait_for_checkpoint: bool = False,
        max_wait_secs: float = 7200,
        config: Any = None,
    ) -> tuple[Session, bool]:
        """Creates a session and restores its model from a checkpoint, if there is one.

        Args:
          master: the execution engine to connect to.
          saver: `Saver` to restore with. If None, restores nothing.
          checkpoint_dir: directory whose newest intact checkpoint is restored. Exclusive with the path below.
          checkpoint_filename_with_path: path of the checkpoint to restore.
          wait_for_checkpoint: Whether to wait until `checkpoint_dir` has a checkpoint.
          max_wait_secs: maximum seconds to wait for a checkpoint.
          config: ConfigProto of the session, or None.

        Returns:
          (session, ready). `ready` is True if a checkpoint was restored and the model is then ready.

        Raises:
          ValueError: If both `checkpoint_dir` and `checkpoint_filename_with_path` are given, or the latter doesn't
            exist.
          NoIntactCheckpointError: If there are checkpoints, but none is intact. This is a tf.errors.DataLossError.
          tf.errors.NotFoundError, tf.errors.InvalidArgumentError: If the checkpoint doesn't match the model.
        """
        session, restored = self._restore_checkpoint(
            master, saver, checkpoint_dir, checkpoint_filename_with_path, wait_for_checkpoint, max_wait_secs, config
        )
        with self._closed_on_error(session):
            if not restored:
                self._try_run_local_init_op(session)
                return session, False
            readiness = self._get_ready(session)
            source = checkpoint_dir or checkpoint_filename_with_path
            if readiness.model_ready:
                self._remember_restored(session, restored)
                logging.info("Restored model from %s", source)
            elif readiness.local_init_done:
                logging.info("Restoring model from %s did not make model ready: %s", source, readiness.missing)
            else:
                logging.info(
                    "Restoring model from %s did not make model ready for local init: %s",
                    source,
                    readiness.missing_for_local_init,
                )
            return session, readiness.model_ready

    def wait_for_session(self, master: str, config: Any = None, max_wait_secs: float | None = float("inf")) -> Session:
        """Creates a session once another process has prepared the model.

        The model is checked every `recovery_wait_secs`. The log lists the missing variables, at growing intervals.

        Args:
          master: the execution engine to connect to.
          config: ConfigProto of the session, or None.
          max_wait_secs: maximum seconds to wait. If None, there is no limit.

        Returns:
          The session, ready to run.

        Raises:
          tf.errors.DeadlineExceededError: If the model wasn't ready after `max_wait_secs`.
        """
        limit = math.inf if max_wait_secs is None else max_wait_secs
        looks_early = self._looks_early and bool(master)
        workers = number_of_workers() if looks_early else 1
        log = WaitLog(self._recovery_wait_secs)
        if master:
            wait_for_servers(master, config, limit, self._recovery_wait_secs, log)
            awaited = f"the process that initializes or restores the model at {master}, usually the chief"
        else:
            awaited = "a model in this process (master is ''), which no other process can initialize"
        while True:
            session = self._make_session(master, config)
            with self._closed_on_error(session):
                readiness = self._get_ready(session)
            if readiness.model_ready:
                return session
            self._safe_close(session)
            missing = readiness.missing_for_local_init, readiness.missing
            pause = max(0.0, self._recovery_wait_secs)
            if looks_early:
                pause = pause_before_look(log.waited(), pause, workers)
            if limit - log.waited() < pause:
                raise deadline_exceeded(limit, "{}. Ready_for_local_init_op: {}, ready: {}".format(awaited, *missing))
            log.info(WAITING_FOR_MODEL, *missing, awaited, log.waited(), limit_text(limit))
            time.sleep(pause)

    def _make_session(self, master: str, config: Any) -> Session:
        self._target = master
        session = Session(master, graph=self._graph, config=config, executor=self._executor)
        # Track the step from the first run on, so that the count includes every step that is running when a loop
        # starts.
        track_global_step(session)
        return session

    @contextlib.contextmanager
    def _closed_on_error(self, session: Session) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._safe_close(session)
            raise

    def _get_ready(self, session: Session) -> Readiness:
        """Runs `local_init_op` if the model is ready for it, and then checks the model."""
        local_init_done, missing_for_local_init = self._try_run_local_init_op(session)
        if not local_init_done:
            return Readiness(False, False, missing_for_local_init, None)
        model_ready, missing = self._model_ready(session)
        return Readiness(True, bool(model_ready), missing_for_local_init, missing)

    def _model_ready(self, sess: Any) -> Any:
        with explains_result_of("ready_op", self._ready_op):
            return (True, None) if self._ready_check.is_ready(sess) else super()._model_ready(sess)

    def _model_ready_for_local_init(self, sess: Any) -> Any:
        with explains_result_of("ready_for_local_init_op", self._ready_for_local_init_op):
            if self._ready_check.is_ready_for_local_init(sess):
                return True, None
            return super()._model_ready_for_local_init(sess)

    def _restore_checkpoint(
        self,
        master: str,
        saver: Any = None,
        checkpoint_dir: Any = None,
        checkpoint_filename_with_path: Any = None,
        wait_for_checkpoint: bool = False,
        max_wait_secs: float = 7200,
        config: Any = None,
        initialize: Callable[[Any], None] | None = None,
    ) -> tuple[Session, str | None]:
        """Creates a session and restores a checkpoint if there is one. Returns (session, checkpoint path or None)."""
        # Initializing a TPU clears the TPU's memory, so the initialization precedes the restore.
        strategy = distribute_lib.get_strategy()
        initialize_system = getattr(strategy.extended, "_experimental_initialize_system", None)
        if initialize_system is not None:
            initialize_system()
        session = self._make_session(master, config)
        with self._closed_on_error(session):
            directory, path = checkpoint_dir, checkpoint_filename_with_path
            if directory and path:
                raise ValueError("Can not provide both checkpoint_dir and checkpoint_filename_with_path.")
            if not saver or not (directory or path):
                return session, None
            restore = ModelRestore(session, saver, self._restore, initialize)
            if path:
                return session, restore.from_path(path)
            limit = max_wait_secs if wait_for_checkpoint else 0.0
            return session, restore.from_directory(directory, limit, self._recovery_wait_secs)

    def _remember_restored(self, session: Session, path: str | None) -> None:
        """Records that the session's state equals a checkpoint's. `local_init_op` runs again after each restart."""
        if path is not None and self._restore == "strict":
            session._note_checkpoint(path, session.gate.passed)
