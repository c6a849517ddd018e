"""What watches a program from within: it adds callbacks of the program's own library, and writes what they see.

A probe is installed before the program runs, and adds its callbacks where the library's loop starts. There are two
kinds of callbacks: those at the ends of epochs, for the time of a step, and one after each step, which tells the first
step and ends the process at a step. Only one kind is added to a run, as a callback after each step costs time.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import threading
import time
from typing import Any

__all__ = ["PROBES", "Events", "modified"]

_ORBIT_EPOCH = 43


class Events:
    """Writes events, each a line of JSON that a kill doesn't lose.

    Args:
      path: the file.
      mode: "epochs" or "steps": which callbacks are added.
      kill_at: the global step at which the process sends itself a signal; 0 for none.
      kill_by: the name of that signal.
    """

    def __init__(self, path: str, mode: str, kill_at: int = 0, kill_by: str = "SIGKILL") -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.each_step = mode == "steps"
        self.kill_at, self._kill_by = kill_at, kill_by
        self._epoch_started: float | None = None
        self._has_stepped = False

    def write(self, event: str, **values: Any) -> None:
        """Writes an event with the time."""
        os.write(self._file, (json.dumps({"event": event, "at": time.time(), **values}) + "\n").encode())

    def after_step(self, step: int, kill_now: bool | None = None) -> None:
        """Called after a step.

        Args:
          step: the global step after it.
          kill_now: whether this is the step for the signal; None: if it is `kill_at`.
        """
        if not self._has_stepped:
            self._has_stepped = True
            self.write("first step", step=step)
        if step == self.kill_at if kill_now is None else kill_now:
            self.write("signal", step=step)
            self.kill_at = 0
            os.kill(os.getpid(), getattr(signal, self._kill_by))

    def before_epoch(self) -> None:
        """Called when evaluation, saves and callbacks of the last epoch are done."""
        self._epoch_started = time.perf_counter()

    def after_epoch(self) -> None:
        """Called after the last step of an epoch, before its evaluation and its saves."""
        if self._epoch_started is not None:
            self.write("epoch", secs=time.perf_counter() - self._epoch_started)

    def evaluated(self, accuracy: Any) -> None:
        """Called after an evaluation."""
        self.write("evaluation", accuracy=float(accuracy))


def modified(source: str, last_epoch: int | None, patience: int | None, frozen: bool, epoch_steps: int) -> str:
    """A program with other numbers in it.

    Args:
      source: the program.
      last_epoch: the epoch that it ends with; None to leave it.
      patience: the evaluations without a better one that it waits for; None to leave it.
      frozen: whether no step changes the model.
      epoch_steps: the steps of an epoch.

    Raises:
      ValueError: the program hasn't these numbers.
    """

    def replaced(choices: dict[str, str]) -> None:
        nonlocal source
        found = [old for old in choices if source.count(old) == 1]
        if len(found) != 1:
            raise ValueError(f"The program must have one of these, once: {', '.join(choices)}.")
        source = source.replace(found[0], choices[found[0]])

    if last_epoch is not None:
        steps = last_epoch * epoch_steps
        replaced(
            {
                "max_steps=5000": f"max_steps={steps}",
                "max_steps = 5000": f"max_steps = {steps}",
                "epochs=117": f"epochs={last_epoch}",
            }
        )
    if patience is not None:
        replaced({"patience=20": f"patience={patience}", "patience = 20": f"patience = {patience}"})
    if frozen:
        replaced({"Adam(1e-3)": "Adam(0.0)", "lr=1e-3": "lr=0.0", "adam(1e-3)": "adam(0.0)"})
    return source


def _fastsup(events: Events) -> None:
    import fastsup.loop.training as training
    from fastsup.loop import PeriodicHook

    class Step(PeriodicHook):
        def act(self, loop: Any) -> None:
            events.after_step(loop.global_step)

    class Begin(PeriodicHook):
        def begin(self, loop: Any) -> None:
            super().begin(loop)
            events.before_epoch()

        def act(self, loop: Any) -> None:
            events.before_epoch()

    class End(PeriodicHook):
        def act(self, loop: Any) -> None:
            # JAX computes in the background.
            getattr(loop.result, "block_until_ready", bool)()
            events.after_epoch()

        def on_evaluation(self, loop: Any, metrics: dict[str, float]) -> None:
            events.evaluated(metrics["accuracy"])

    made = training.StepLoop

    def make(step: Any, hooks: list[Any], *args: Any, **settings: Any) -> Any:
        watching = [Step(every_steps=1)] if events.each_step else []
        around = [*watching, End(every_epochs=1), *hooks, Begin(every_epochs=1)]
        return made(step, around, *args, **settings)

    training.StepLoop = make


def _keras(events: Events) -> None:
    import keras

    class Probe(keras.callbacks.Callback):
        def on_train_begin(self, logs: Any = None) -> None:
            events.before_epoch()

        def on_test_begin(self, logs: Any = None) -> None:
            events.after_epoch()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            events.evaluated(logs["val_accuracy"])
            events.before_epoch()

    class EachStep(Probe):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            events.after_step(int(self.model.optimizer.iterations))

    fit = keras.Sequential.fit

    def watched(self: Any, *args: Any, callbacks: list[Any], **settings: Any) -> Any:
        probe = EachStep() if events.each_step else Probe()
        return fit(self, *args, callbacks=[*callbacks, probe], **settings)

    keras.Sequential.fit = watched


def _lightning(events: Events) -> None:
    import lightning

    class Probe(lightning.Callback):
        def on_train_start(self, trainer: Any, module: Any) -> None:
            events.before_epoch()

        def on_validation_start(self, trainer: Any, module: Any) -> None:
            if trainer.state.fn == "fit" and not trainer.sanity_checking:
                events.after_epoch()

        def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
            events.evaluated(trainer.callback_metrics["accuracy"])
            events.before_epoch()

    class EachStep(Probe):
        def on_train_batch_end(self, trainer: Any, *args: Any) -> None:
            events.after_step(trainer.global_step)

    fit = lightning.Trainer.fit

    def watched(self: Any, *args: Any, **settings: Any) -> Any:
        # The last callback: those that save come before it.
        self.callbacks.append(EachStep() if events.each_step else Probe())
        return fit(self, *args, **settings)

    lightning.Trainer.fit = watched


def _ignite(events: Events) -> None:
    from ignite.engine import Engine
    from ignite.engine import Events as At

    run = Engine.run
    trainers: list[Any] = []

    def watched(self: Any, *args: Any, **settings: Any) -> Any:
        if trainers:
            found = run(self, *args, **settings)
            events.evaluated(found.metrics["accuracy"])
            return found
        trainers.append(self)
        self.add_event_handler(At.STARTED, events.before_epoch)
        self.add_event_handler(At.EPOCH_COMPLETED, events.after_epoch)
        handlers = self._event_handlers[At.EPOCH_COMPLETED]
        handlers.insert(0, handlers.pop())
        self.add_event_handler(At.EPOCH_COMPLETED, events.before_epoch)
        if events.each_step:
            self.add_event_handler(At.ITERATION_COMPLETED, lambda engine: events.after_step(engine.state.iteration))
        return run(self, *args, **settings)

    Engine.run = watched


def _orbit(events: Events) -> None:
    from orbit import Controller

    train, evaluate, init = Controller._train_n_steps, Controller.evaluate, Controller.__init__

    @functools.wraps(init)
    def watched_init(self: Any, *args: Any, **settings: Any) -> None:
        init(self, *args, **settings)
        if events.each_step:
            # The steps of an epoch are one call of a function: a thread looks at the variable meanwhile.
            threading.Thread(target=watch, args=(self, int(self.global_step)), daemon=True).start()

    def watch(controller: Any, begun: int) -> None:
        step = begun
        has_begun = False
        while True:
            before, step = step, int(controller.global_step)
            if step > begun and not has_begun:
                has_begun = True
                events.after_step(begun + 1, kill_now=False)
            if has_begun and step != before:
                # Where the thread is late, the next epoch will do.
                events.after_step(step, kill_now=0 < events.kill_at <= step and 10 <= step % _ORBIT_EPOCH <= 35)
            time.sleep(1e-4)

    def watched_train(self: Any, steps: int) -> Any:
        events.before_epoch()
        found = train(self, steps)
        events.after_epoch()
        return found

    def watched_evaluate(self: Any, *args: Any, **settings: Any) -> Any:
        found = evaluate(self, *args, **settings)
        events.evaluated(found["accuracy"])
        return found

    Controller.__init__, Controller._train_n_steps, Controller.evaluate = watched_init, watched_train, watched_evaluate


# By the name of the loop: installs the callbacks.
PROBES = {"fastsup": _fastsup, "keras": _keras, "lightning": _lightning, "ignite": _ignite, "orbit": _orbit}
