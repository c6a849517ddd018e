"""Step loops of which one callback raises: at each place, for each way to end."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from raising_callbacks import ERRORS, EVERY, LAST, Case, Record, noted

from fastsup.loop import CheckpointHook, Hook, StepLoop, StopAtStepHook

WAYS = ("step_loop", "async_step_loop")
ENDINGS = ("stop", "input", "step_error", "hook_error", "request", "signal", "recovery")
PLACES: dict[str, dict[str, int]] = {
    "r.begin": {"start": 0},
    "r.after_step": {"first": 0, "middle": 2, "save": 1, "last": LAST - 1},
    "r.end": {"end": 0},
    "r.on_error": {"error": 0},
    "s.save": {"middle": 0, "end": 2},
}


def cases() -> Iterator[Case]:
    """All combinations, but for those in which the ending plays no part."""
    for way in WAYS:
        for callback, places in PLACES.items():
            for place in places:
                for ending in ENDINGS:
                    if callback == "s.save" and way != "step_loop":
                        continue  # A function that saves can't do so in a thread.
                    if (callback == "r.on_error" or place == "last") and ending not in ("step_error", "hook_error"):
                        continue
                    if place == "end" and ending in ("step_error", "hook_error"):
                        continue
                    if place in ("start", "first", "middle", "save") and ending != "stop":
                        continue
                    for error in ERRORS:
                        yield Case(way, callback, place, ending, error)


class LoopProgram:
    """One run of a StepLoop with a CheckpointHook.

    Args:
      case: the combination; None for a run without a raising callback, of two steps more.
      folder: the directory of the checkpoints.
      way: how it saves.
    """

    def __init__(self, case: Case | None, folder: str, way: str) -> None:
        self.case, self.way = case, way
        self.ending = case.ending if case is not None else "two steps more"
        self.record = Record()
        self.weight = tf.Variable(0, dtype=tf.int64)
        self.manager = tf.train.CheckpointManager(tf.train.Checkpoint(weight=self.weight), folder, max_to_keep=5)
        self._calls: dict[str, int] = {}
        self._steps_called = 0

    def called(self, callback: str) -> None:
        """Notes a call, and raises the error of the case if it is time."""
        number = self._calls[callback] = self._calls.get(callback, -1) + 1
        self.record.note(callback)
        if self.case is not None and callback == self.case.callback and number == PLACES[callback][self.case.place]:
            self.record.raise_error(ERRORS[self.case.error](f"raised by {callback}"), callback)

    def hook(self, name: str) -> Hook:
        program, record = self, self.record

        class Noting(Hook):
            """Notes its callbacks."""

            def __repr__(self) -> str:
                return f"<hook {name}>"

            def begin(self, loop: Any) -> None:
                self.due_every_run()
                program.called(f"{name}.begin")

            def after_step(self, loop: Any, value: Any) -> None:
                record.phase = "running"
                program.called(f"{name}.after_step")
                if name == "z" and record.last_step == LAST:
                    program.after_last_step(loop)

            def end(self, loop: Any) -> None:
                record.phase = "ending"
                program.called(f"{name}.end")

            def on_error(self, loop: Any, error: BaseException) -> None:
                program.called(f"{name}.on_error")

        return Noting()

    def after_last_step(self, loop: Any) -> None:
        if self.ending == "hook_error":
            self.record.raise_error(KeyError("of the last hook"), "z.after_step")
        elif self.ending == "request":
            loop.request_stop()
        elif self.ending == "signal":
            self.record.signalled = True
            signal.raise_signal(signal.SIGTERM)

    def step(self) -> int:
        self._steps_called += 1
        if self.ending == "recovery" and self._steps_called == 4:
            raise tf.errors.AbortedError(None, None, "the preemption")
        if self.record.last_step == LAST and self.ending == "input":
            raise StopIteration
        if self.record.last_step == LAST and self.ending == "step_error":
            self.record.raise_error(ArithmeticError("of the step"), "program")
        self.record.last_step = int(self.weight.assign_add(1))
        return self.record.last_step

    def save(self, step: int) -> None:
        self.called("s.save")
        self.manager.save(checkpoint_number=step)

    def new_saver(self) -> CheckpointHook:
        if self.case is not None and self.case.callback == "s.save":
            return CheckpointHook(self.save, every_steps=EVERY)
        return CheckpointHook(self.manager, every_steps=EVERY, async_save=self.way == "async_step_loop")

    def run(self) -> Record:
        """Runs the loop, and notes what leaves it."""
        last = {"stop": [StopAtStepHook(LAST)], "recovery": [StopAtStepHook(LAST)]}.get(self.ending, [])
        last = [StopAtStepHook(num_steps=2)] if self.case is None else last
        hooks = [self.hook("a"), self.new_saver(), self.hook("r"), self.hook("z"), *last]
        with noted(self.record):
            StepLoop(self.step, hooks, resume_from=self.manager, max_recoveries=2).run()
        return self.record


def state(folder: str) -> tuple[int, int] | None:
    """The step of the newest checkpoint and the weight in it; None if there is none."""
    path = tf.train.latest_checkpoint(folder)
    if path is None:
        return None
    weight = tf.train.load_checkpoint(path).get_tensor("weight/.ATTRIBUTES/VARIABLE_VALUE")
    return int(path.rpartition("-")[2]), int(weight)
