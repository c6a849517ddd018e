"""Session hooks in a loop: `StepLoop` calls TensorFlow's `SessionRunHook`s around its steps.

These hooks fetch tensors from a session's graph. The loop therefore gives them a session. Its graph contains the global
step and the step's results by name, with the loop's current values.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Iterable
from typing import Any

from fastsup.core import Hook
from fastsup.core.errors import end_all_hooks, notify_hooks
from fastsup.core.hook import LoopHook
from fastsup.core.loop import check_hook

__all__ = ["SessionHooks", "checked_hooks", "with_session_hooks"]

_logger = logging.getLogger("fastsup")
_NAME_OF_OPERATION = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.-]*")
# Hooks that require the program's own graph, and their replacements in a loop.
_OF_GRAPHS = {
    "CheckpointSaverHook": "it saves the variables of a graph. Use fastsup.loop.CheckpointHook in a loop",
    "SummarySaverHook": "it runs the summaries of a graph. Use fastsup.loop.SummaryHook in a loop",
    "FeedFnHook": "it feeds a graph. Use fastsup.bind_batches to pass batches to a step function",
}


def with_session_hooks(hooks: Any, step: Any) -> Any:
    """Returns the hooks of a loop, with all session hooks combined in one `SessionHooks` at the end.

    It comes last because other hooks may end the loop, and then no `before_run` is called for a further step.

    Args:
      hooks: `fastsup.core.Hook`s, capsules and `SessionRunHook`s.
      step: the step of the loop.

    Raises:
      TypeError: If a hook acts on a graph, which a loop doesn't have.
    """
    if not isinstance(hooks, Iterable):
        return hooks  # The loop reports the mistake.
    hooks = checked_hooks(hooks)
    of_sessions = [hook for hook in hooks if _is_of_sessions(hook)]
    if not of_sessions:
        return hooks
    others = [hook for hook in hooks if not _is_of_sessions(hook)]
    return [*others, SessionHooks(of_sessions, _result_specs_of(step))]


def checked_hooks(hooks: Iterable[Any]) -> list[Any]:
    """Lists the hooks of a loop. The errors contain an index in the program's own list.

    Args:
      hooks: `fastsup.core.Hook`s, capsules and `SessionRunHook`s.

    Raises:
      TypeError: If an object isn't a hook, or the hook acts on a graph, which a loop doesn't have.
    """
    hooks = list(hooks)
    for place, hook in enumerate(hooks):
        if not _is_of_sessions(hook):
            check_hook(hook, place)
            continue
        for kind in type(hook).__mro__:
            if kind.__name__ in _OF_GRAPHS and kind.__module__.startswith(("tensorflow.", "fastsup.")):
                raise TypeError(f"hooks must be hooks that a loop can call, got {hook!r}: {_OF_GRAPHS[kind.__name__]}.")
    return hooks


def _result_specs_of(step: Any) -> Callable[[], Any] | None:
    trace = getattr(step, "get_concrete_function", None)
    if trace is not None:
        return lambda: trace().structured_outputs
    specs: Callable[[], Any] | None = getattr(step, "result_specs", None)
    return specs


def _is_of_sessions(hook: Any) -> bool:
    # A program with a session hook has imported TensorFlow.
    module: Any = sys.modules.get("tensorflow.python.training.session_run_hook")
    # An adapter around a loop hook counts as that loop hook.
    is_adapter = isinstance(getattr(hook, "loop_hook", None), LoopHook)
    return module is not None and isinstance(hook, module.SessionRunHook) and not is_adapter


class SessionHooks(Hook):
    """Calls session hooks in each step of a loop.

    A step's `before_run` is called at the end of the previous step, or when the loop starts. `session.run` in a
    callback runs operations that the hook created in its `begin`.

    Args:
      hooks: the `SessionRunHook`s.
      result_specs: function that returns the `tf.TensorSpec`s of a step's results, in their structure; None if unknown.

    Raises:
      ValueError: If a hook feeds tensors. Raised in `begin` and `after_step`.
    """

    def __init__(self, hooks: list[Any], result_specs: Callable[[], Any] | None) -> None:
        self._hooks = hooks
        self._result_specs = result_specs
        self._session: Any = None
        self._value: Any = None
        self._coordinator: Any = None
        self._run: Any = None
        # Pairs of a hook and its request for the next step.
        self._requests: list[tuple[Any, Any]] = []

    def __repr__(self) -> str:
        return f"<the hooks of sessions {self.profile_name}>"

    @property
    def profile_name(self) -> str:
        """The name of the hook in a profile."""
        return ", ".join(type(hook).__name__ for hook in self._hooks)

    def begin(self, loop: Any) -> None:
        import tensorflow as tf

        from fastsup.runtime.session import Session

        self._close()
        graph = tf.Graph()
        specs = None if self._result_specs is None else self._result_specs()
        with graph.as_default():
            counter = tf.compat.v1.train.create_global_step()
            self._new_step = tf.compat.v1.placeholder(tf.int64, [])
            self._set_step = tf.compat.v1.assign(counter, self._new_step).op
            self._count_step = tf.compat.v1.assign_add(counter, 1).op
            self._results = tf.nest.map_structure(_placeholder, specs)
            self._fed = [] if specs is None else tf.nest.flatten(self._results)
            if isinstance(self._results, dict):
                for name, tensor in self._results.items():
                    is_name = isinstance(name, str) and _NAME_OF_OPERATION.fullmatch(name) and name != counter.op.name
                    if is_name and isinstance(tensor, tf.Tensor):
                        tf.identity(tensor, name=name)
            for hook in self._hooks:
                hook.begin()
            initializers = tf.compat.v1.global_variables_initializer(), tf.compat.v1.local_variables_initializer()
            graph.finalize()
            # Run operations inline, because they take less time than starting a pool thread.
            self._session = Session(graph=graph, executor="inline")
            self._run = self._session.run
            self._session.run = self._run_with_results
            self._run(initializers)
            self._move_to(loop.global_step)
            self._coordinator = tf.train.Coordinator()
            for hook in self._hooks:
                hook.after_create_session(self._session, self._coordinator)
        self.due_every_run()
        self._call_before_run(loop)

    def after_step(self, loop: Any, value: Any) -> None:
        from tensorflow.python.training.session_run_hook import SessionRunValues

        self._value = value
        if self._step != loop.global_step - 1:
            self._move_to(loop.global_step - 1)  # The loop recovered.
        wanted = {place: args.fetches for place, (_, args) in enumerate(self._requests) if args.fetches is not None}
        fetched = self._run(wanted, self._feeds()) if wanted else {}
        self._run(self._count_step)
        self._step += 1
        for place, (hook, args) in enumerate(self._requests):
            context = self._context(args)
            hook.after_run(
                context, SessionRunValues(results=fetched.get(place), options=args.options, run_metadata=None)
            )
            if context.stop_requested:
                loop.request_stop()
        self._call_before_run(loop)

    def end(self, loop: Any) -> None:
        try:
            end_all_hooks(self._hooks, lambda hook: hook.end(self._session), _logger.error)
        finally:
            self._close()

    def on_error(self, loop: Any, error: BaseException) -> None:
        try:
            able = [hook for hook in self._hooks if callable(getattr(hook, "on_error", None))]
            notify_hooks(able, lambda hook: hook.on_error(self._context(None), error))
        finally:
            self._close()

    def _call_before_run(self, loop: Any) -> None:
        from tensorflow.python.training.session_run_hook import SessionRunArgs

        self._requests = []
        if self._coordinator.should_stop():
            loop.request_stop()
        if loop.should_stop() or (loop.max_steps is not None and loop.global_step >= loop.max_steps):
            return
        original = SessionRunArgs(self._results)
        for hook in self._hooks:
            context = self._context(original)
            args = hook.before_run(context)
            if args is None:
                args = SessionRunArgs(None)
            if args.feed_dict:
                raise ValueError(
                    f"before_run of {hook!r} feeds {list(args.feed_dict)}: a loop's step accepts no feeds. Pass "
                    "values to the step function, with fastsup.bind."
                )
            self._requests.append((hook, args))
            if context.stop_requested:
                loop.request_stop()

    def _context(self, args: Any) -> Any:
        from tensorflow.python.training.session_run_hook import SessionRunContext

        return SessionRunContext(args, self._session)

    def _run_with_results(self, fetches: Any, feed_dict: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Runs `session.run` of a hook, with the last step's results."""
        return self._run(fetches, {**self._feeds(), **(feed_dict or {})}, *args, **kwargs)

    def _feeds(self) -> dict[Any, Any]:
        import numpy as np
        from tensorflow import nest

        if not self._fed or self._value is None:
            return {}
        pairs = zip(self._fed, nest.flatten(self._value), strict=True)
        return {tensor: np.asarray(part) for tensor, part in pairs if tensor is not None}

    def _move_to(self, global_step: int) -> None:
        self._run(self._set_step, {self._new_step: global_step})
        self._step = global_step

    def _close(self) -> None:
        session, self._session, self._run, self._value = self._session, None, None, None
        if session is not None:
            del session.run
            session.close()


def _placeholder(spec: Any) -> Any:
    import tensorflow as tf

    is_tensor = isinstance(spec, tf.TensorSpec | tf.Tensor)
    return tf.compat.v1.placeholder(spec.dtype, spec.shape) if is_tensor else None
