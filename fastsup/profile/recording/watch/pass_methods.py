"""What stands in the place of methods of Keras's list of callbacks while a profiler is on. Each gets the method."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from fastsup.profile.recording.watch.pass_probe import enter_phase, leave_phase, pass_of_list, pass_of_this_thread

__all__ = ["begin_batch", "begin_loop", "between_batches", "end_batch", "timed_batch_part"]

_Method = Callable[..., Any]


def begin_batch(method: _Method) -> _Method:
    """A batch begins."""

    @functools.wraps(method)
    def on_batch_begin(self: Any, batch: int, logs: Any = None) -> None:
        here = pass_of_list(self)
        if here is None:
            method(self, batch, logs)
            return
        here.begin_batch()
        method(self, batch, logs)
        here.begin_function()

    return on_batch_begin


def end_batch(method: _Method) -> _Method:
    """A batch ends."""

    @functools.wraps(method)
    def on_batch_end(self: Any, batch: int, logs: Any = None) -> None:
        here = pass_of_list(self)
        if here is None:
            method(self, batch, logs)
            return
        here.end_function()
        method(self, batch, logs)
        here.end_batch()

    return on_batch_end


def begin_loop(method: _Method, names: Sequence[str]) -> _Method:
    """The loop begins. From here on its callbacks' methods of these names are recorded."""

    @functools.wraps(method)
    def on_begin(self: Any, logs: Any = None) -> None:
        here = pass_of_this_thread()
        if here is not None:
            here.begin_loop(self, names)
        method(self, logs)

    return on_begin


def between_batches(method: _Method) -> _Method:
    """The begin or end of an epoch, or the end of the loop."""

    @functools.wraps(method)
    def on_event(self: Any, *args: Any, **kwargs: Any) -> None:
        here = pass_of_list(self)
        if here is not None:
            here.leave_batches()
        method(self, *args, **kwargs)

    return on_event


def timed_batch_part(function: _Method, phase: str) -> _Method:
    """A function of one argument that is called for each batch, at less cost than `timed` has.

    Args:
      function: the function. A call whose argument is false, such as empty logs, isn't recorded.
      phase: name of the row.
    """

    @functools.wraps(function)
    def batch_part(argument: Any) -> Any:
        if not argument or not enter_phase(phase):
            return function(argument)
        try:
            return function(argument)
        finally:
            leave_phase()

    return batch_part
