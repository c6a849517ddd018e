"""The phases of a whole program, in nanoseconds, and the names of phases that several modules use.

A timeline belongs to the thread that runs the program. At any moment, that thread is in exactly one phase, so the
phases add up to the elapsed time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from fastsup.core import timeline

__all__ = [
    "BATCH_CALLS",
    "BETWEEN",
    "BY_PYTORCH",
    "BY_TENSORFLOW",
    "BY_TENSORFLOW_EAGERLY",
    "BY_TENSORFLOW_FUNCTION",
    "FEED_CONVERSION",
    "FETCHES",
    "FETCH_CONVERSION",
    "FUNCTION_ROLE",
    "HOOK_DISPATCH",
    "INPUT_TRACES",
    "INPUT_WAIT",
    "IN_A_THREAD",
    "KERAS_STEPS",
    "LIFTING",
    "LISTENER",
    "LOGS",
    "MADE_AGAIN",
    "OPEN_INPUT",
    "PASS_EPOCHS",
    "PASS_FUNCTIONS",
    "PASS_LOOP",
    "PASS_SETUP",
    "PLAN_MAKING",
    "SAVE",
    "STEP_FETCH",
    "TRACING",
    "WAIT_FOR_CALLBACKS",
    "WEIGHTS",
    "Timeline",
]

FETCHES = "fetches"
# The session's own fetch of the step, for hooks that count by the step and aren't called in the run.
STEP_FETCH = "global step"
BETWEEN = "between steps"
# The session's own work in a run that calls hooks.
HOOK_DISPATCH = "hook dispatch"
PLAN_MAKING = "plan making"
FEED_CONVERSION = "feed conversion"
FETCH_CONVERSION = "fetch conversion"
SAVE = "save"
LISTENER = "listener"
# The own code of a pass (a call that runs all steps itself): before the first epoch, between epochs, around batches.
PASS_SETUP = "setup"
PASS_EPOCHS = "between epochs"
PASS_LOOP = "Keras's loop"
# The function that a pass calls for each batch.
PASS_FUNCTIONS = ("train_function", "test_function", "predict_function")
# Converting logs to Python numbers for callbacks, which waits until the batch is complete.
LOGS = "logs to Python"
# Tracing a function into a graph.
TRACING = "tracing"
# The end of a trace's detail if a function with the same name was traced before.
MADE_AGAIN = "made again"
OPEN_INPUT = "open input"
INPUT_WAIT = "wait for input"
# The loop's wait for callbacks that Keras runs in another thread.
WAIT_FOR_CALLBACKS = "wait for callbacks"
# Keras's methods that run one batch each.
BATCH_CALLS = ("train_on_batch", "test_on_batch", "predict_on_batch")
# Names of the functions and methods for batches. Each call to one of them is a step.
KERAS_STEPS = (*PASS_FUNCTIONS, *BATCH_CALLS)
# Converting a model's weights to arrays.
WEIGHTS = "weights to Python"
# Converting a trace of a `fastsup.function` to a separate graph.
LIFTING = "lifting"
# The start of the detail if TensorFlow runs a call to a `fastsup.function`.
BY_TENSORFLOW = "by TensorFlow"
# The executors of a pass's function: TensorFlow's own call to the function, or Python, one operation at a time.
BY_TENSORFLOW_FUNCTION = "TensorFlow"
BY_PYTORCH = "PyTorch"
BY_TENSORFLOW_EAGERLY = "run eagerly"
# The detail of traces of a dataset's functions.
INPUT_TRACES = "of tf.data's functions"
# The role of calls to a `fastsup.function`, instead of a session's role.
FUNCTION_ROLE = "call"
# The end of the owner's name for a callback's work in another thread.
IN_A_THREAD = ", in a thread"


_ORDER = ("import", "build", "open", "train", "run", "save", "listeners", "evaluate", "predict", "end", "program")


class _Entry:
    """An open phase."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name: str = name


class Timeline:
    """The phases of a program, from the creation of this object.

    Time outside all phases is "build" if a session is opened later, and otherwise "end".

    Args:
      now: a clock: function that returns nanoseconds.
    """

    def __init__(self, now: Callable[[], int] = time.perf_counter_ns) -> None:
        self._now = now
        self._thread = threading.get_ident()
        self._open: list[_Entry] = []
        self._totals: dict[str, list[int]] = {}
        self._outside = 0
        self._last = now()
        self._stopped = False

    def start(self) -> None:
        """Makes this the program's timeline."""
        timeline.set_program_timeline(self)

    def stop(self) -> None:
        """Ends the timeline and the open phases. From then on, `phases` returns the same result."""
        self._charge()
        self._open.clear()
        self._stopped = True
        if timeline.program_timeline() is self:
            timeline.set_program_timeline(None)

    def begin(self, name: str) -> _Entry | None:
        """Starts a phase within the open ones. Arguments and result are the same as for the function `begin`."""
        if threading.get_ident() != self._thread:
            return None
        self._charge()
        if not self._open and name != "import":
            self._add("build", self._outside)
            self._outside = 0
        entry = _Entry(name)
        self._open.append(entry)
        self._totals.setdefault(name, [0, 0])[1] += 1
        return entry

    def finish(self, entry: _Entry | None) -> None:
        """Ends a phase. Phases may end in any order. A second call does nothing.

        Args:
          entry: the result of `begin`.
        """
        if entry is not None and entry in self._open and threading.get_ident() == self._thread:
            self._charge()
            self._open.remove(entry)

    def phases(self) -> list[tuple[str, int, int]]:
        """Returns the phases so far, in the order of a program: (name, nanoseconds, number of times it was started)."""
        if not self._stopped and (self._open or threading.get_ident() == self._thread):
            self._charge()
        worked = any(name not in ("import", "build") for name in self._totals)
        phases = {name: (ns, count) for name, (ns, count) in self._totals.items()}
        last = "end" if worked else "program"
        ns, count = phases.get(last, (0, 0))
        phases[last] = (ns + self._outside, count)
        ordered = sorted(phases, key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER))
        return [(name, *phases[name]) for name in ordered if any(phases[name])]

    def _charge(self) -> None:
        now = self._now()
        if self._open:
            self._add(self._open[-1].name, now - self._last)
        else:
            self._outside += now - self._last
        self._last = now

    def _add(self, name: str, ns: int) -> None:
        self._totals.setdefault(name, [0, 0])[0] += ns
