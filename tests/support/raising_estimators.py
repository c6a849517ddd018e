"""Trainings of an Estimator of which one callback raises: of a hook, a listener, an evaluation or an exporter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import raising_sessions
import tensorflow as tf
from raising_callbacks import ERRORS, EVERY, LAST, Case, Record

v1 = tf.compat.v1

ENDINGS = ("stop", "input", "hook_error", "signal", "recovery")
# Callbacks in train_and_evaluate; which call raises: in the first evaluation, or in the last one, after training.
EVALUATED = {
    "e.begin": {"first": 0, "last": 2},
    "e.before_run": {"first": 0, "last": 2},
    "e.end": {"first": 0, "last": 2},
}
EVALUATED["x.export"] = {"first": 0, "last": 2}


def cases() -> Iterator[Case]:
    """All combinations, but for those in which the ending plays no part."""
    for case in raising_sessions.cases(("run",)):
        if case.ending in ENDINGS and not (case.callback.startswith("l.") and case.place == "recovery"):
            yield case._replace(way="estimator")


def evaluated_cases() -> Iterator[Case]:
    """The combinations of `train_and_evaluate`."""
    for callback, places in EVALUATED.items():
        for place in places:
            for error in ERRORS:
                yield Case("train_and_evaluate", callback, place, "stop", error)


class EstimatorProgram(raising_sessions.Program):
    """One run of `Estimator.train`, or of `train_and_evaluate`. Its saver comes before the hooks."""

    def __init__(self, case: Case | None, folder: str, way: str) -> None:
        super().__init__("fastsup", case, folder, "run_loop")
        self.evaluates = way == "train_and_evaluate"

    def called(self, callback: str, step: Any = None) -> None:
        if callback.startswith(("l.", "m.")) and step == LAST:
            self.record.phase = "ending"
        if self.case is not None and callback in EVALUATED and callback == self.case.callback:
            number = self._calls[callback] = self._calls.get(callback, -1) + 1
            self.record.note(callback)
            if number == EVALUATED[callback][self.case.place]:
                self.record.raise_error(ERRORS[self.case.error](f"raised by {callback}"), callback)
        else:
            super().called(callback, step)

    def model_fn(self, features: Any, labels: Any, mode: str) -> Any:
        from fastsup import estimator

        weight = v1.get_variable("weight", [], tf.int64, v1.zeros_initializer())
        if mode == estimator.ModeKeys.TRAIN:
            self.weight = weight
        one = tf.constant(1, tf.int64)
        with tf.control_dependencies([features]):
            train_op = v1.group(v1.assign_add(weight, one), v1.assign_add(v1.train.get_global_step(), one))
        return estimator.EstimatorSpec(mode, loss=tf.constant(1.0), train_op=train_op)

    def input_fn(self) -> Any:
        return tf.data.Dataset.range(LAST if self.ending == "input" else 1000)

    def step_in(self, session: Any) -> int:
        return int(session.run(self.weight))

    def eval_hook(self) -> Any:
        program = self

        class Evaluates(v1.train.SessionRunHook):
            """Notes its callbacks."""

            def begin(self) -> None:
                program.called("e.begin")

            def before_run(self, run_context: Any) -> None:
                program.called("e.before_run")

            def end(self, session: Any) -> None:
                program.called("e.end")

        return Evaluates()

    def exporter(self) -> Any:
        from fastsup import estimator

        program = self

        class Exports(estimator.Exporter):
            """Notes its calls."""

            @property
            def name(self) -> str:
                return "x"

            def export(self, *args: Any, **options: Any) -> None:
                program.called("x.export")

        return Exports()

    def run_in_graph(self) -> None:
        from fastsup import estimator

        config = estimator.RunConfig(
            self.folder, save_checkpoints_steps=EVERY, save_summary_steps=None, log_step_count_steps=None
        )
        trained = estimator.Estimator(self.model_fn, config=config)
        hooks = self.hooks()
        if not self.evaluates:
            listeners = [self.listener("l"), self.listener("m")]
            trained.train(self.input_fn, hooks=hooks, saving_listeners=listeners)
            return
        eval_spec = estimator.EvalSpec(
            self.input_fn, steps=1, hooks=[self.eval_hook()], exporters=[self.exporter()], throttle_secs=0
        )
        try:
            estimator.train_and_evaluate(trained, estimator.TrainSpec(self.input_fn, hooks=hooks), eval_spec)
        finally:
            # The writer of the metrics stays open for the next evaluation.
            writer = v1.summary.FileWriterCache._cache.pop(trained.eval_dir(), None)
            if writer is not None:
                writer.close()


def run(case: Case | None, folder: str, way: str) -> Record:
    """Runs a case; without one, a training of two steps more."""
    return EstimatorProgram(case, folder, way).run()
