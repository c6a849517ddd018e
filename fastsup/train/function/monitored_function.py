"""`monitored_function`: a step of TF 2 with all that a MonitoredSession has around its steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tensorflow.python.checkpoint import checkpoint as tracking_checkpoint
from tensorflow.python.eager import context
from tensorflow.python.framework import ops
from tensorflow.python.framework.ops import inside_function
from tensorflow.python.training import basic_session_run_hooks as tf_hooks

from fastsup.checkpoint.directory import directory_argument
from fastsup.core.checks import check_flag, check_fuse, check_no_pattern, check_number
from fastsup.core.sessions import session_role
from fastsup.eager import bridge
from fastsup.loop.managers import manager_in
from fastsup.runtime.executor import check_executor
from fastsup.train.function.checkpoint_saver import FunctionCheckpointHook
from fastsup.train.function.monitored_sessions import FunctionMonitoredSession, FunctionSessionCreator, LastResults
from fastsup.train.function.step_graph import StepGraph
from fastsup.train.hooks.progress import hooks_with_progress
from fastsup.train.hooks.step_counter import StepCounterHook
from fastsup.train.session.hook_arguments import hooks_argument
from fastsup.train.session.monitored_session import MonitoredSession
from fastsup.train.session.training_session import USE_DEFAULT, interval_of, is_on

__all__ = ["MonitoredFunction", "monitored_function"]


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
