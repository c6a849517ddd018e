"""monitored_function: a step of TF 2 under a MonitoredSession, with its sessions, and what saves its checkpoints."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

from tensorflow.python.checkpoint import checkpoint as tracking_checkpoint
from tensorflow.python.eager import context
from tensorflow.python.framework import ops
from tensorflow.python.framework import tensor as tensor_lib
from tensorflow.python.framework.ops import inside_function
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import basic_session_run_hooks as tf_hooks
from tensorflow.python.util import nest

from fastsup.checkpoint.directory import directory_argument
from fastsup.core.checks import check_flag, check_fuse, check_no_pattern, check_number
from fastsup.core.session_origin import session_role
from fastsup.eager import bridge
from fastsup.eager.choice import runs_in_one_thread
from fastsup.eager.devices.eager_session import SESSION_TARGET
from fastsup.eager.devices.shared_session import OverEagerContext
from fastsup.eager.lift import LiftedGraph
from fastsup.events.writers import flush_summaries
from fastsup.loop.checkpoint import ManagedSaves, manager_in, restore_newest
from fastsup.runtime.executor import check_executor, config_for
from fastsup.runtime.session import Session
from fastsup.train.function.step_graph import StepGraph
from fastsup.train.hooks.checkpoint_saver import CheckpointSaverHook
from fastsup.train.hooks.event_files import StepCounterHook
from fastsup.train.hooks.progress import hooks_with_progress
from fastsup.train.session.monitored_session import MonitoredSession, hooks_argument
from fastsup.train.session.session_creators import SessionCreator
from fastsup.train.session.training_session import USE_DEFAULT, interval_of, is_on
from fastsup.train.session.wrapped_sessions import CoordinatedSessionCreator

__all__ = [
    "FunctionCheckpointHook",
    "FunctionMonitoredSession",
    "FunctionSession",
    "FunctionSessionCreator",
    "LastResults",
    "MonitoredFunction",
    "monitored_function",
]


class FunctionSession(OverEagerContext, Session):
    """A `fastsup.Session` over the eager context's devices, and so over the variables of eager code."""

    def __init__(self, lifted: LiftedGraph, executor: str) -> None:
        config = config_for(executor, lifted.graph, "", lifted.session_config(single_threaded=False))
        super().__init__(SESSION_TARGET, lifted.graph, config, executor)
        # Its devices are in this process: from here on it is as one that was given no target.
        self._target: Any = ""


class FunctionSessionCreator(SessionCreator):  # type: ignore[misc]
    """Makes the session of a monitored function: restores the newest checkpoint, and opens a session."""

    def __init__(self, step_graph: StepGraph, manager: Any, executor: str) -> None:
        self._step_graph, self._manager, self._executor = step_graph, manager, executor
        self.graph: ops.Graph = step_graph.lifted.graph
        self.restored_step: int | None = None
        self._session: FunctionSession | None = None

    def create_session(self) -> Any:
        if self._manager is not None:
            with context.eager_mode():
                if not self._restore() and self._session is None:
                    self._manager.restore_or_initialize()
        if not self.graph.finalized:
            fetches = nest.flatten(self._step_graph.fetches, expand_composites=True)
            runs_in_one_thread(self._step_graph.lifted, self._executor, fetches)
            self._step_graph.lifted.finalize()
        self._session = FunctionSession(self._step_graph.lifted, self._executor)
        return self._session

    def _restore(self) -> bool:
        """Restores the newest checkpoint, and the global step: from the checkpoint's name, if it isn't in the files."""
        variable = self._step_graph.global_step
        before, no_step = int(variable.numpy()), variable.dtype.max
        variable.assign(no_step)
        number = None
        try:
            number = restore_newest(self._manager)
        finally:
            if int(variable.numpy()) == no_step:
                variable.assign(before if number is None else number)
        if number is None:
            return False
        self.restored_step = int(variable.numpy())
        return True

    def leave_open(self) -> None:
        """Lets the session live as long as the process."""
        if self._session is not None:
            self._session.left_open = True

    def close_session(self) -> None:
        """Closes the session, if there is one."""
        if self._session is not None:
            self._session.close()

    def release_all(self) -> None:
        """Releases the tensors in the step's boxes, unless a daemon thread may still run steps of an open session."""
        is_open = self._session is not None and not self._session._closed
        if not is_open or not any(thread.daemon for thread in threading.enumerate()):
            self._step_graph.lifted.release_all()


class _InStepGraphSessionCreator(CoordinatedSessionCreator):
    """Makes sessions, also in the middle of a run, with the step's graph as the default graph."""

    def create_session(self) -> Any:
        with self._session_creator.graph.as_default():
            return super().create_session()


class LastResults:
    """What the last step has returned."""

    def __init__(self, step_graph: StepGraph) -> None:
        self._step_graph = step_graph
        self.values: list[Any] | None = None

    def feeds(self) -> dict[Any, Any]:
        """The values as feeds. A run that is fed them doesn't run the step that they come from."""
        results = self._step_graph.fetches[0]
        pairs = zip(results, self.values or [None] * len(results), strict=True)
        last = {result: value for result, value in pairs if value is not None and isinstance(result, tensor_lib.Tensor)}
        feeds = {**self._step_graph.arguments, **last}
        # The others are constants.
        graph = self._step_graph.lifted.graph
        return {tensor: value for tensor, value in feeds.items() if graph.is_feedable(tensor)}


class FunctionMonitoredSession(MonitoredSession):
    """A MonitoredSession that is used, and closed, while another graph may be the default graph."""

    _CoordinatedSessionCreator = _InStepGraphSessionCreator

    def __init__(self, last_results: LastResults, creator: Any, hooks: Any, **options: Any) -> None:
        self._last_results = last_results
        super().__init__(creator, hooks, **options)

    def _unfinalize_graph(self) -> None:
        """Leaves the default graph as it is: when the session is closed, it is another one."""

    def _end_hooks(self, failed: bool) -> None:
        session = self._tf_sess()
        feeds = self._last_results.feeds()
        if failed or session is None or not feeds:
            super()._end_hooks(failed)
            return
        run = session.run

        def run_without_step(fetches: Any, feed_dict: Any = None, *args: Any, **kwargs: Any) -> Any:
            return run(fetches, {**feeds, **(feed_dict or {})}, *args, **kwargs)

        # A fetch of a result would be one more step, which nothing counts.
        session.run = run_without_step
        try:
            super()._end_hooks(failed)
        finally:
            del session.run


class FunctionCheckpointHook(CheckpointSaverHook):
    """Saves a `tf.train.Checkpoint` when a CheckpointSaverHook saves the variables of its graph."""

    def __init__(
        self,
        manager: Any,
        restored_step: Callable[[], int | None],
        save_secs: float | None,
        save_steps: int | None,
        async_save: bool,
    ) -> None:
        name = getattr(manager, "_checkpoint_name", "ckpt")
        super().__init__(
            manager.directory, save_secs, save_steps, checkpoint_basename=name, save_graph_def=False, _ends_last=True
        )
        self._manager = manager
        self._restored_step = restored_step
        self._saves = ManagedSaves(manager, async_save)

    def _write_graph_and_save(self, session: Any, step: Any) -> None:
        if step != self._restored_step():
            self._save(session, step)

    def _save(self, session: Any, step: Any) -> bool:
        flush_summaries(self._summary_writer)
        self._save_failed = True
        self._finish_background_write(session)
        logging.info("Saving checkpoints for %d into %s.", step, self._manager.directory)
        with context.eager_mode():
            if self._saves.save(int(step)):
                session.saves_ended += 1
        self._save_failed = False
        return self._announce_checkpoint(session, step)

    def _wait_for_write(self, session: Any) -> None:
        # The listeners were called when the write began.
        with context.eager_mode():
            if self._saves.wait():
                session.saves_ended += 1

    def end(self, session: Any) -> None:
        super().end(session)
        self._finish_background_write(session)

    def _before_close(self) -> None:
        # Training may have failed: what is raised here would hide that, and keep the session open.
        try:
            with context.eager_mode():
                self._saves.wait()
        except Exception as error:
            logging.error("A checkpoint in %s could not be written: %s", self._manager.directory, error)


class MonitoredFunction:
    """A step function under a `MonitoredSession`. `fastsup.train.monitored_function` makes it.

    Attributes:
      session: the `MonitoredSession`.
      graph: the `tf.Graph` of the step.
      outputs: what the step returns, as tensors of that graph.
    """

    def __init__(
        self,
        step_graph: StepGraph,
        creator: FunctionSessionCreator,
        hooks: list[Any],
        options: dict[str, Any],
    ) -> None:
        self._step_graph = step_graph
        self.graph: ops.Graph = step_graph.lifted.graph
        self.outputs: Any = step_graph.outputs
        self._last_results = LastResults(step_graph)
        try:
            with self.graph.as_default(), session_role("train"):
                self.session: MonitoredSession = FunctionMonitoredSession(self._last_results, creator, hooks, **options)
        except BaseException:
            creator.close_session()
            for hook in hooks:
                if isinstance(hook, FunctionCheckpointHook):
                    hook._before_close()
            raise
        bridge.keep_track(creator)

    def __repr__(self) -> str:
        return f"<fastsup.train.monitored_function of {self._step_graph}>"

    @property
    def global_step(self) -> int:
        """The value of the global step."""
        with context.eager_mode():
            return int(self._step_graph.global_step.numpy())

    @property
    def fused(self) -> bool:
        """True if `run_loop` makes many steps in one compiled call now, where no hook is due between them."""
        at_once = self._step_graph.steps_at_once
        return not isinstance(at_once, str) and at_once.fused

    @property
    def why_not_fused(self) -> str:
        """Why `run_loop` doesn't make many steps in one compiled call now. An empty string if it does."""
        at_once = self._step_graph.steps_at_once
        return at_once if isinstance(at_once, str) else at_once.fallback_reason

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs one step, with the hooks that are due.

        Args:
          *args: positional arguments of a step that isn't bound.
          **kwargs: its keyword arguments.

        Returns:
          What the step returns, as NumPy arrays in its structure.

        Raises:
          RuntimeError: the session is closed.
          TypeError: the arguments aren't those of the step.
          tf.errors.OutOfRangeError: the iterator has no more elements. It ends a `with` block normally.
          Exception: as for `MonitoredSession.run`.
        """
        self._check_open()
        values, _ = self.session.run(self._step_graph.fetches, self._step_graph.feeds(*args, **kwargs))
        self._last_results.values = values
        return self._step_graph.result(values)

    def run_loop(self, steps: int | None = None) -> Any:
        """Runs step after step until `should_stop()`. The step must be bound, or take no arguments.

        Args:
          steps: steps after which to return, or None for no limit but `should_stop()`.

        Returns:
          What the last step has returned, as NumPy arrays; None if no step was run.

        Raises:
          TypeError: the step takes arguments, and isn't bound.
          Exception: as for `MonitoredSession.run_loop`.
        """
        self._check_open()
        feed_fn = self._step_graph.feed_fn()
        at_once = self._step_graph.steps_at_once
        before = self.session.last_result
        try:
            last = self.session._run_loop(
                self._step_graph.fetches, steps, feed_fn, None if isinstance(at_once, str) else at_once
            )
        except BaseException:
            if self.session.last_result is not before and self.session.last_result is not None:
                self._last_results.values = self.session.last_result[0]
            raise
        if last is None:
            return None
        self._last_results.values = last[0]
        return self._step_graph.result(last[0])

    def _check_open(self) -> None:
        if self.session._sess is None:
            raise RuntimeError("The monitored function is closed: its `with` block or its loop has ended.")
        if bridge.forked_reason():
            raise RuntimeError(f"{self!r} can't run: {bridge.forked_reason()}.")

    def should_stop(self) -> bool:
        """Whether a hook has requested a stop, or the session is closed."""
        return bool(self.session.should_stop())

    def request_stop(self) -> None:
        """Requests a stop: `should_stop` returns True from now on."""
        self.session.request_stop()

    def close(self) -> None:
        """Calls the hooks' `end`, which saves the last checkpoint, and closes the session.

        Raises:
          Exception: as for `MonitoredSession.close`.
        """
        self.session.close()

    def __enter__(self) -> MonitoredFunction:
        return self

    def __exit__(self, exception_type: Any, exception_value: Any, traceback: Any) -> bool:
        return self.session.__exit__(exception_type, exception_value, traceback)


def monitored_function(
    step: Callable[..., Any],
    checkpoint: Any = None,
    checkpoint_dir: Any = None,
    hooks: Iterable[Any] | Callable[[Any], Iterable[Any]] | None = None,
    *,
    global_step: Any = None,
    save_checkpoint_secs: Any = USE_DEFAULT,
    save_checkpoint_steps: Any = USE_DEFAULT,
    max_to_keep: int | None = 5,
    async_save: bool = False,
    log_step_count_steps: int | None = 100,
    executor: str = "auto",
    stop_grace_period_secs: float = 120,
    max_recoveries: int | None = 10,
    handle_signals: bool = True,
    profiler: Any = None,
    progress: bool = False,
    fuse: str = "auto",
) -> MonitoredFunction:
    """Runs a step function of TF 2 under a `MonitoredSession`, with session-run hooks, recovery and checkpoints.

        checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)
        with monitored_function(fastsup.bind(step, iterator), checkpoint, logdir,
                                hooks=[StopAtStepHook(last_step=10_000)]) as training:
            while not training.should_stop():
                loss = training()

    Variables are those of eager code, and checkpoints are those of `tf.train.Checkpoint`. If `checkpoint_dir` has
    checkpoints, the newest that can be read is restored, also after a preemption. The hooks' `begin` and
    `after_create_session` are called with the step's graph as the default graph. The other methods may use eager code.

    Args:
      step: a `fastsup.function`, a `tf.function`, a ConcreteFunction or a Python function; or `fastsup.bind` of one
        with its arguments, of which arrays are read once; or `fastsup.bind_batches` of one, of which each call takes
        the next batch of an `ArrayBatches` or a `tf.data.Dataset`. One that isn't bound takes the arguments of each
        call, and needs an `input_signature`. One that isn't bound and takes an iterator must be called by one thread.
      checkpoint: `tf.train.Checkpoint` of what is saved and restored; or a `tf.train.CheckpointManager`.
      checkpoint_dir: directory of the checkpoints. Not with a CheckpointManager, which has its own.
      hooks: `SessionRunHook`s; or a function that is called with the tensors that the step returns, and returns hooks.
        Hooks that take tensors by name find those of the step: `tf.identity(loss, name="loss")` is "loss:0". The
        results of a step that returns a dict have their keys as names, where no operation has them already.
      global_step: integer variable that the step counts up, such as `optimizer.iterations`. None: each step counts one.
      save_checkpoint_secs: seconds between two checkpoints. Defaults to 600, unless `save_checkpoint_steps` is given.
        None or 0: none by time.
      save_checkpoint_steps: global steps between two checkpoints. None or 0: none by steps. Not with a number for
        `save_checkpoint_secs`. With neither, no checkpoint is written.
      max_to_keep: number of checkpoints that stay in `checkpoint_dir`. None: all.
      async_save: whether TensorFlow copies the values and writes them in a thread while training goes on.
      log_step_count_steps: global steps between two logs of the rate of steps, with a `checkpoint`. None or 0: no logs.
      executor: executor mode, as for `fastsup.Session`.
      stop_grace_period_secs: seconds that threads have to end in `close`.
      max_recoveries: number of preemptions in a row to recover from, as for `MonitoredSession`.
      handle_signals: whether SIGTERM and SIGINT end the loop between two steps, with a checkpoint, as for
        `MonitoredSession`. Only with a `checkpoint`.
      profiler: `fastsup.HookProfiler`, as for `MonitoredSession`.
      progress: whether to show the progress on stderr.
      fuse: whether `run_loop` makes the steps between two hooks in one compiled call, if XLA compiles the step
        (`jit_compile=True`), as for `fastsup.loop.StepLoop`: "auto" if a trial says that it is faster, "always" or
        "never".

    Returns:
      A `MonitoredFunction`.

    Raises:
      TypeError: `step` isn't a function, its arguments aren't known, another argument is of the wrong type, or `hooks`
        has a CheckpointSaverHook, whose work `checkpoint` does.
      ValueError: `global_step` isn't an integer variable that the step changes, or `checkpoint` has no directory.
      RuntimeError: the step can't be lifted, none of the checkpoints can be read, or steps can't be made at once though
        `fuse` is "always".
      Exception: as for `MonitoredSession`.
    """
    check_executor(executor)
    check_fuse(fuse)
    check_flag(async_save=async_save, handle_signals=handle_signals)
    check_number("stop_grace_period_secs", stop_grace_period_secs, "a number of seconds")
    if max_to_keep is not None:
        check_number("max_to_keep", max_to_keep, "a number of checkpoints or None")
    if inside_function():
        raise RuntimeError("monitored_function can't be called while a tf.function is traced: call it outside.")
    manager = _manager(checkpoint, checkpoint_dir, max_to_keep)
    with context.eager_mode():
        step_graph = StepGraph(step, global_step, fuse)

    creator = FunctionSessionCreator(step_graph, manager, executor)
    steps, secs = interval_of(save_checkpoint_steps, save_checkpoint_secs, None, 600)
    steps = steps if is_on(save_checkpoint_steps=steps) else None
    secs = secs if is_on(save_checkpoint_secs=secs) else None
    if steps is not None and secs is not None:
        raise ValueError(
            f"save_checkpoint_steps={steps} and save_checkpoint_secs={secs} can't both be given. Pass one of them."
        )
    own: list[Any] = []
    with creator.graph.as_default():
        given = hooks_argument("hooks", hooks(step_graph.outputs) if callable(hooks) else hooks)
        _check_hooks(given)
        if manager is not None and is_on(log_step_count_steps=log_step_count_steps):
            own.append(StepCounterHook(log_step_count_steps, output_dir=manager.directory))
        if manager is not None and (steps is not None or secs is not None):
            own.append(FunctionCheckpointHook(manager, lambda: creator.restored_step, secs, steps, async_save))
        all_hooks = [*own, *hooks_with_progress(progress, given)]
    options = {
        "stop_grace_period_secs": stop_grace_period_secs,
        "max_recoveries": max_recoveries,
        "handle_signals": handle_signals and manager is not None,
        "profiler": profiler,
    }
    return MonitoredFunction(step_graph, creator, all_hooks, options)


def _check_hooks(hooks: list[Any]) -> None:
    """Refuses a CheckpointSaverHook that would look for the Saver of the step's graph, which has no variables."""
    for hook in hooks:
        if isinstance(hook, tf_hooks.CheckpointSaverHook) and hook._saver is hook._scaffold is None:
            raise TypeError(
                f"hooks has {hook!r}, which saves the variables of a graph, but a monitored_function has those of "
                "eager code. Pass checkpoint=tf.train.Checkpoint(...), checkpoint_dir and save_checkpoint_steps in its "
                "place."
            )


def _manager(checkpoint: Any, checkpoint_dir: Any, max_to_keep: int | None) -> Any:
    if checkpoint_dir is not None:
        if not isinstance(checkpoint, tracking_checkpoint.Checkpoint):
            raise TypeError(
                f"checkpoint must be a tf.train.Checkpoint of what is saved in checkpoint_dir={checkpoint_dir!r}, got "
                f"{checkpoint!r}. A tf.train.CheckpointManager has its own directory."
            )
        return manager_in(directory_argument("checkpoint_dir", checkpoint_dir), checkpoint, max_to_keep)
    if checkpoint is None or all(hasattr(checkpoint, name) for name in ("latest_checkpoint", "checkpoints", "save")):
        check_no_pattern("directory", getattr(checkpoint, "directory", None) or "")
        return checkpoint
    if not isinstance(checkpoint, tracking_checkpoint.Checkpoint):
        raise TypeError(
            "checkpoint must be a tf.train.Checkpoint, a tf.train.CheckpointManager or None, got "
            f"{checkpoint!r} of type {type(checkpoint).__name__}."
        )
    raise ValueError(
        f"checkpoint_dir must be given for {checkpoint!r}: the folder of its checkpoints. Or pass a "
        "tf.train.CheckpointManager."
    )
