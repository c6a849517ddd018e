"""SessionManager: makes a session and gets its model ready, by restoring it, initialising it, or waiting for it."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from numbers import Real
from typing import Any

from tensorflow.python.distribute import distribute_lib
from tensorflow.python.framework import errors, ops
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import session_manager as tf_session_manager

from fastsup.checkpoint.partial_restore import restore_partially
from fastsup.checkpoint.restore import Recovery
from fastsup.cluster.server_probe import Contact
from fastsup.core.checks import doubt_about
from fastsup.runtime.graph.global_step import track_global_step
from fastsup.runtime.interpreter_end import uninterrupted
from fastsup.runtime.session import Session
from fastsup.train.session.ready_check import InitialisedFlags

__all__ = ["SessionManager"]

_RESTORE_MODES = ("strict", "partial")
# A wait is logged at growing intervals, but never goes unmentioned for longer than this.
_LONGEST_SILENCE_SECS = 600.0
# TensorFlow's line, and then for whom and how long.
_WAITING = "Waiting for model to be ready.  Ready_for_local_init_op:  %s, ready: %s. Waiting for %s; %d s so far, %s."


def check_recovery_wait_secs(value: Any) -> None:
    """Refuses what can't be the seconds between two looks. 0 is no pause between them."""
    if not isinstance(value, Real):
        raise TypeError(f"recovery_wait_secs must be a number of seconds, got {value!r}.")
    if not float(value) < math.inf:
        raise ValueError(f"recovery_wait_secs must be finite, got {value!r}. TensorFlow's default is 30.")
    doubt = doubt_about("recovery_wait_secs", value, "", "there is no pause between two looks")
    if doubt is not None:
        logging.warning(doubt)


def check_restore(value: Any) -> None:
    """Refuses what is no way to restore."""
    if value not in _RESTORE_MODES:
        raise ValueError(f"restore must be one of {', '.join(map(repr, _RESTORE_MODES))}, got {value!r}.")


def _name_of(operation: Any) -> str:
    if operation is None:
        return "None"
    return str(operation.name) if hasattr(operation, "name") else f"<no name for {type(operation)}>"


def _at_most(seconds: float | None) -> str:
    return "without a limit" if seconds is None or seconds == math.inf else f"{seconds} s at most"


def _not_ready_after(limit: float, waited_for: str) -> errors.DeadlineExceededError:
    text = f"Session was not ready after waiting {int(limit)} secs. Waited for {waited_for}"
    return errors.DeadlineExceededError(None, None, text)


@contextlib.contextmanager
def _names(argument: str, operation: Any) -> Iterator[None]:
    """Where the answer of an operation isn't understood: which one it was, and what it should answer."""
    try:
        yield
    except (AttributeError, TypeError) as error:
        raise type(error)(
            f"{error}. That came of {argument}={operation!r}, which must give an empty 1-D string tensor if the model "
            "is ready, else the names of what is missing."
        ) from error


class _WaitLog:
    """Says that and for what somebody waits: at once, then at intervals that double.

    Args:
      interval: seconds of the first interval.
    """

    def __init__(self, interval: float) -> None:
        self._started = time.time()
        # Looks without a pause are not lines without a pause.
        self._interval = interval if interval > 0 else 1.0
        self._due = self._started

    def waited(self) -> float:
        return time.time() - self._started

    def info(self, text: str, *args: Any) -> None:
        now = time.time()
        if now < self._due:
            return
        logging.info(text, *args)
        self._due = now + self._interval
        self._interval = min(2 * self._interval, max(_LONGEST_SILENCE_SECS, self._interval))


def wait_for_contact(master: str, config: Any, limit: float, log_interval: float, log: _WaitLog | None = None) -> None:
    """Returns when all tasks of a cluster answer: without them, not even a look at the model would return.

    Args:
      master: the execution engine to connect to.
      config: ConfigProto of the session, or None. Its device filters say which tasks are needed.
      limit: seconds to wait at most.
      log_interval: seconds between the first two log lines.
      log: the log of a wait that this is the first part of.

    Raises:
      tf.errors.DeadlineExceededError: one of them didn't answer.
    """
    contact = Contact(master, config)
    log = log or _WaitLog(log_interval)
    whom = f"an answer from every task of the cluster of {master}, one of which isn't up or can't be reached"
    look_secs = log_interval if log_interval > 0 else 1.0
    while not contact.made(within=max(0.0, min(look_secs, limit - log.waited()))):
        if log.waited() >= limit:
            raise _not_ready_after(limit, whom)
        log.info(_WAITING, None, None, whom, log.waited(), _at_most(limit))


class SessionManager(tf_session_manager.SessionManager):  # type: ignore[misc]
    """Makes sessions whose model is ready to be used.

    A model is restored from the newest checkpoint that can be restored. One that is damaged or incomplete is reported
    by a warning, with its path and cause, and left as it is. Where there are checkpoints and none is intact, that is an
    error: a model that had been trained never starts anew without anybody having said so.

    Args:
      local_init_op: operation to run in every new session, or None.
      ready_op: operation that tells whether the model is ready: an empty 1-D string tensor if so, else what is
        missing. None: it isn't asked.
      ready_for_local_init_op: the same, asked before `local_init_op` is run.
      graph: the graph. Defaults to the default graph.
      recovery_wait_secs: seconds between two looks at a model that somebody else gets ready.
      local_init_run_options: RunOptions for `local_init_op`.
      local_init_feed_dict: feeds for `local_init_op`.
      executor: executor mode of the sessions, as for `fastsup.Session`.
      restore: "strict", as TensorFlow: a checkpoint must hold all that the saver wants. "partial": the model is
        initialised, and then what the checkpoint holds is restored over it; what was missing, and what the checkpoint
        holds beyond the model, is logged. A tensor of another shape or type stays an error.

    Raises:
      TypeError: `recovery_wait_secs` is no number.
      ValueError: `ready_for_local_init_op` without `local_init_op`, `recovery_wait_secs` isn't finite, or `restore`
        is something else.
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
        self._initialised = InitialisedFlags(ready_op, ready_for_local_init_op)

    def _make_session(self, master: str, config: Any) -> Session:
        self._target = master
        session = Session(master, graph=self._graph, config=config, executor=self._executor)
        # From the first run on, so that nothing that is under way when a loop starts was missed.
        track_global_step(session)
        return session

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
        """A new session, and the path of the checkpoint that was restored into it, if any was.

        Args:
          initialize: function that initialises the model of a session, for a partial restore; None: nothing does.
        """
        strategy = distribute_lib.get_strategy()
        initialize_system = getattr(strategy.extended, "_experimental_initialize_system", None)
        if initialize_system is not None:
            initialize_system()
        session = self._make_session(master, config)
        try:
            if checkpoint_dir and checkpoint_filename_with_path:
                raise ValueError("Can not provide both checkpoint_dir and checkpoint_filename_with_path.")
            if not saver or not (checkpoint_dir or checkpoint_filename_with_path):
                return session, None
            recovery = self._recovery_into(session, saver, initialize)
            if checkpoint_filename_with_path:
                with uninterrupted:
                    recovery.from_file(checkpoint_filename_with_path)
                return session, str(checkpoint_filename_with_path)
            return session, self._recover_from(recovery, saver, checkpoint_dir, wait_for_checkpoint, max_wait_secs)
        except BaseException:
            self._safe_close(session)
            raise

    def _recovery_into(self, session: Session, saver: Any, initialize: Callable[[Any], None] | None) -> Recovery:
        saved_model_initializers = ops.get_collection("saved_model_initializers")
        partial = self._restore == "partial"

        def prepare() -> None:
            # Before each attempt: what an attempt that failed half-way has set must not stay.
            if partial and initialize is not None:
                initialize(session)
            if saved_model_initializers:
                session.run(saved_model_initializers)

        def restore(path: str) -> None:
            if partial:
                restore_partially(session, saver, path)
            else:
                saver.restore(session, path)

        return Recovery(restore, prepare)

    def _recover_from(
        self, recovery: Recovery, saver: Any, directory: Any, wait_for_checkpoint: bool, max_wait_secs: float
    ) -> str | None:
        """Restores from a directory, if need be after a wait; the path of what was restored, if there was something."""
        waited = 0.0
        log = _WaitLog(self._recovery_wait_secs)
        while True:
            may_wait = wait_for_checkpoint and waited < max_wait_secs
            with uninterrupted:
                restored = recovery.from_directory(directory, none_named_yet=may_wait)
            if restored is not None:
                saver.recover_last_checkpoints(restored[1])
                return restored[0]
            if not may_wait:
                return None
            log.info(
                "Waiting for checkpoint to be available. In %s, for %d s so far, %s.",
                directory,
                waited,
                _at_most(max_wait_secs),
            )
            time.sleep(max(0.0, self._recovery_wait_secs))
            # Looks without a pause take time too.
            waited = max(waited + self._recovery_wait_secs, log.waited())

    def _model_ready(self, sess: Any) -> Any:
        with _names("ready_op", self._ready_op):
            if self._initialised.all_set(sess):
                return True, None
            return super()._model_ready(sess)

    def _model_ready_for_local_init(self, sess: Any) -> Any:
        with _names("ready_for_local_init_op", self._ready_for_local_init_op):
            if self._initialised.first_set(sess):
                return True, None
            return super()._model_ready_for_local_init(sess)

    def _note_restored(self, session: Session, path: str | None) -> None:
        """Takes note of what the model is now. `local_init_op` has run by then: after a restart it will run again."""
        if path is not None and self._restore == "strict":
            session._note_checkpoint(path, session.gate.passed)

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
        """A new session whose model is restored from a checkpoint, or initialised if there is none.

        Args:
          master: the execution engine to connect to.
          init_op: operation that initialises the model, or None. Not run if a checkpoint was restored, but for
            `restore="partial"`, where it is run before.
          saver: `Saver` to restore with; None: nothing is restored.
          checkpoint_dir: directory to restore the newest intact checkpoint from; or
          checkpoint_filename_with_path: checkpoint to restore. At most one of the two.
          wait_for_checkpoint: whether to wait until there is a checkpoint in `checkpoint_dir`.
          max_wait_secs: seconds to wait for that at most.
          config: ConfigProto of the session, or None.
          init_feed_dict: feeds for `init_op`.
          init_fn: function called with the session after `init_op`, or None.

        Returns:
          The session.

        Raises:
          RuntimeError: there is no checkpoint and nothing to initialise the model with, or the model isn't ready
            after all that.
          ValueError: both `checkpoint_dir` and `checkpoint_filename_with_path` are given, or the latter doesn't exist.
          NoIntactCheckpointError: there are checkpoints, and each of them is damaged. A tf.errors.DataLossError.
          tf.errors.NotFoundError, tf.errors.InvalidArgumentError: the checkpoint doesn't fit the model.
        """

        def initialize(session: Any) -> None:
            if init_op is not None:
                session.run(init_op, feed_dict=init_feed_dict)
            if init_fn:
                init_fn(session)

        session, restored = self._restore_checkpoint(
            master,
            saver,
            checkpoint_dir=checkpoint_dir,
            checkpoint_filename_with_path=checkpoint_filename_with_path,
            wait_for_checkpoint=wait_for_checkpoint,
            max_wait_secs=max_wait_secs,
            config=config,
            initialize=initialize,
        )
        try:
            if not restored:
                if init_op is None and not init_fn and self._local_init_op is None:
                    raise RuntimeError("Model is not initialized and no init_op or init_fn or local_init_op was given")
                initialize(session)
            initialised, reason = self._try_run_local_init_op(session)
            if not initialised:
                raise RuntimeError(
                    "Init operations did not make model ready for local_init.  "
                    f"Init op: {_name_of(init_op)}, init fn: {init_fn}, error: {reason}"
                )
            ready, reason = self._model_ready(session)
            if not ready:
                raise RuntimeError(
                    f"Init operations did not make model ready.  Init op: {_name_of(init_op)}, init fn: {init_fn}, "
                    f"local_init_op: {self._local_init_op}, error: {reason}"
                )
            self._note_restored(session, restored)
        except BaseException:
            self._safe_close(session)
            raise
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
        """A new session, restored from a checkpoint if there is one, and whether its model is ready after that.

        Args:
          master: the execution engine to connect to.
          saver: `Saver` to restore with; None: nothing is restored.
          checkpoint_dir: directory to restore the newest intact checkpoint from; or
          checkpoint_filename_with_path: checkpoint to restore. At most one of the two.
          wait_for_checkpoint: whether to wait until there is a checkpoint in `checkpoint_dir`.
          max_wait_secs: seconds to wait for that at most.
          config: ConfigProto of the session, or None.

        Returns:
          The session, and whether a checkpoint was restored and has made the model ready.

        Raises:
          ValueError: both `checkpoint_dir` and `checkpoint_filename_with_path` are given, or the latter doesn't exist.
          NoIntactCheckpointError: there are checkpoints, and each of them is damaged. A tf.errors.DataLossError.
          tf.errors.NotFoundError, tf.errors.InvalidArgumentError: the checkpoint doesn't fit the model.
        """
        session, restored = self._restore_checkpoint(
            master,
            saver,
            checkpoint_dir=checkpoint_dir,
            checkpoint_filename_with_path=checkpoint_filename_with_path,
            wait_for_checkpoint=wait_for_checkpoint,
            max_wait_secs=max_wait_secs,
            config=config,
        )
        try:
            initialised, reason = self._try_run_local_init_op(session)
            if not restored:
                return session, False
            source = checkpoint_dir or checkpoint_filename_with_path
            if not initialised:
                logging.info("Restoring model from %s did not make model ready for local init: %s", source, reason)
                return session, False
            ready, reason = self._model_ready(session)
        except BaseException:
            self._safe_close(session)
            raise
        if not ready:
            logging.info("Restoring model from %s did not make model ready: %s", source, reason)
            return session, False
        self._note_restored(session, restored)
        logging.info("Restored model from %s", source)
        return session, True

    def wait_for_session(self, master: str, config: Any = None, max_wait_secs: float | None = float("inf")) -> Session:
        """A new session, once somebody else has got the model ready.

        What is missing is looked at every `recovery_wait_secs`, and logged at intervals that grow.

        Args:
          master: the execution engine to connect to.
          config: ConfigProto of the session, or None.
          max_wait_secs: seconds to wait at most; None for no limit.

        Returns:
          The session.

        Raises:
          tf.errors.DeadlineExceededError: the model wasn't ready after `max_wait_secs`. Says what it lacked.
        """
        limit = math.inf if max_wait_secs is None else max_wait_secs
        log = _WaitLog(self._recovery_wait_secs)
        if master:
            wait_for_contact(master, config, limit, self._recovery_wait_secs, log)
        whom = (
            f"whoever initialises or restores the model at {master}, usually the chief"
            if master
            else "a model of this process alone (master is ''), which no other process can make ready"
        )
        while True:
            session = self._make_session(master, config)
            not_ready = None
            try:
                initialised, not_ready_for_local_init = self._try_run_local_init_op(session)
                if initialised:
                    ready, not_ready = self._model_ready(session)
                    if ready:
                        return session
            except BaseException:
                self._safe_close(session)
                raise
            self._safe_close(session)
            if limit - log.waited() < max(0.0, self._recovery_wait_secs):
                raise _not_ready_after(
                    limit, f"{whom}. Ready_for_local_init_op: {not_ready_for_local_init}, ready: {not_ready}"
                )
            log.info(_WAITING, not_ready_for_local_init, not_ready, whom, log.waited(), _at_most(limit))
            time.sleep(max(0.0, self._recovery_wait_secs))
