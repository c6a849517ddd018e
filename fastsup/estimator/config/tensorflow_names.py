"""The names that tf.estimator looks up in TensorFlow's modules at call time, because programs may replace them.

`v1.train.Saver` is the value of `tf.compat.v1.train.Saver`. If a name still has TensorFlow's original value, and
fastsup has a replacement, the replacement is returned.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

import tensorflow
from tensorflow.python.client import session as tf_session
from tensorflow.python.training import basic_session_run_hooks as tf_hooks
from tensorflow.python.training import evaluation as tf_evaluation
from tensorflow.python.training import monitored_session as tf_monitored_session
from tensorflow.python.training import training as tf_training

from fastsup import train
from fastsup.runtime.session import Session

__all__ = [
    "basic_session_run_hooks",
    "evaluation",
    "monitored_session",
    "our_options",
    "run_steps",
    "substitute",
    "tf",
    "training",
    "v1",
]

_TENSORFLOWS_FILES = os.path.dirname(os.path.abspath(tensorflow.__file__)) + os.sep

# Pairs of TensorFlow's and fastsup's objects, by the id of TensorFlow's.
_OURS: dict[int, tuple[Any, Any]] = {}


class _Names:
    """The names of a module and its submodules.

    `module` is a function that returns the module, because an import of Keras 2 recreates `tf.compat.v1`.
    """

    def __init__(self, module: Callable[[], Any]) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._module(), name)
        if isinstance(value, ModuleType):
            return _Names(lambda: value)
        return _OURS.get(id(value), (value, value))[1]


# The modules that tf.estimator reads.
tf = _Names(lambda: tensorflow)
v1 = _Names(lambda: tensorflow.compat.v1)
training = _Names(lambda: tf_training)
evaluation = _Names(lambda: tf_evaluation)
# The modules that TensorFlow's evaluation reads.
monitored_session = _Names(lambda: tf_monitored_session)
basic_session_run_hooks = _Names(lambda: tf_hooks)


def _is_tensorflows(value: Any) -> bool:
    """Returns False if a program replaced a name before it was first read here."""
    code = getattr(value, "__code__", None)
    if code is not None:
        return bool(code.co_filename.startswith(_TENSORFLOWS_FILES))
    return isinstance(value, type) and value.__module__.startswith("tensorflow.")


def substitute(theirs: Any, ours: Any) -> None:
    """Replaces TensorFlow's class or function with fastsup's wherever it is found."""
    if _is_tensorflows(theirs):
        _OURS[id(theirs)] = theirs, ours


def our_options(found: Any, ours: Any, **options: Any) -> dict[str, Any]:
    """Returns the call options that only fastsup's class or function has.

    If fastsup's is called, returns all options. If a program's replacement is called, returns only non-default ones.
    """
    if found is ours:
        return options
    parameters = inspect.signature(ours).parameters
    return {name: value for name, value in options.items() if value != parameters[name].default}


def run_steps(session: Any, fetches: Any, results: list[Any], feed_dict: Any = None) -> None:
    """Runs steps until the session should stop. Puts the last result into `results`, even if an error ends the loop."""
    if isinstance(session, train.MonitoredSession | train.SingularMonitoredSession):
        try:
            session.run_loop(fetches, feed_fn=None if feed_dict is None else lambda: feed_dict)
        finally:
            if session.last_result is not None:
                results[:] = [session.last_result]
        return
    feeds = () if feed_dict is None else (feed_dict,)
    while not session.should_stop():
        results[:] = [session.run(fetches, *feeds)]


for _module in (tf_hooks, tf_monitored_session):
    for _name in train.__all__:
        if _name in vars(_module):
            substitute(vars(_module)[_name], getattr(train, _name))
substitute(tf_session.Session, Session)
