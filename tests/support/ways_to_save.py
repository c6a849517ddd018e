"""Trainings that save in each of the ways there are: of a folder, to a step.

Each weight grows by 1 in a step, so that a checkpoint of one step has its number in all of its values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from fastsup import estimator, train
from fastsup.loop import CheckpointHook, Checkpoints, EarlyStoppingHook, EvaluateHook, StepLoop, StopAtStepHook

v1 = tf.compat.v1
SIZE = 50_000
EVERY = 5


def graph_step() -> Any:
    """A step in the default graph: each weight grows by 1."""
    weights = v1.get_variable("weights", [SIZE], initializer=v1.zeros_initializer())
    return v1.group(v1.assign_add(weights, tf.ones([SIZE])), v1.assign_add(v1.train.get_or_create_global_step(), 1))


def session(folder: str, last: int, saver: Any = None, loop: bool = False, **options: Any) -> None:
    with tf.Graph().as_default():
        step = graph_step()
        scaffold = train.Scaffold(saver=v1.train.Saver(**(saver or {"max_to_keep": 1})))
        with train.MonitoredTrainingSession(
            checkpoint_dir=folder,
            scaffold=scaffold,
            save_checkpoint_steps=EVERY,
            save_summaries_steps=None,
            log_step_count_steps=None,
            max_recoveries=2,
            hooks=[train.StopAtStepHook(last_step=last)],
            **options,
        ) as training:
            while not training.should_stop():
                training.run_loop(step) if loop else training.run(step)


def async_session(folder: str, last: int) -> None:
    session(folder, last, async_save=True)


def sharded_session(folder: str, last: int) -> None:
    session(folder, last, saver={"max_to_keep": 1, "sharded": True})


def session_with_preserved(folder: str, last: int) -> None:
    """Its saver keeps some checkpoints for ever: here each one."""
    session(folder, last, saver={"max_to_keep": 1, "keep_checkpoint_every_n_hours": 1e-9})


def partial_session(folder: str, last: int) -> None:
    """Restores what the checkpoint has: a name that can't be read must not be taken for one that isn't there."""
    session(folder, last, restore="partial")


def session_loop(folder: str, last: int) -> None:
    session(folder, last, loop=True)


def singular_session(folder: str, last: int) -> None:
    with tf.Graph().as_default():
        step = graph_step()
        scaffold = train.Scaffold(saver=v1.train.Saver(max_to_keep=1))
        hooks = [
            train.CheckpointSaverHook(folder, save_steps=EVERY, scaffold=scaffold),
            train.StopAtStepHook(last_step=last),
        ]
        with train.SingularMonitoredSession(hooks=hooks, scaffold=scaffold, checkpoint_dir=folder) as training:
            while not training.should_stop():
                training.run(step)


def supervisor(folder: str, last: int, **options: Any) -> None:
    with tf.Graph().as_default():
        step = graph_step()
        counter = v1.train.get_global_step()
        saver = v1.train.Saver(max_to_keep=1)
        sv = train.Supervisor(logdir=folder, saver=saver, save_model_secs=0, summary_op=None, **options)
        with sv.managed_session() as managed:
            while (number := managed.run(counter)) < last and not sv.should_stop():
                managed.run(step)
                if (number + 1) % EVERY == 0 or number + 1 == last:
                    sv._save(managed, sv.saver, sv.save_path, global_step=counter)


def async_supervisor(folder: str, last: int) -> None:
    supervisor(folder, last, async_save=True)


def _model_fn(features: Any, labels: Any, mode: str) -> Any:
    step = graph_step()
    loss = tf.reduce_sum(features["x"])
    predictions = {"sum": tf.reduce_sum(v1.get_collection("trainable_variables")[0]) + features["x"]}
    outputs = {"serving_default": estimator.export.PredictOutput(predictions)}
    return estimator.EstimatorSpec(mode, predictions, loss, step, export_outputs=outputs)


def _input_fn() -> Any:
    return tf.data.Dataset.from_tensors(({"x": [1.0]}, [1.0])).repeat()


def _estimator_in(folder: str) -> Any:
    config = estimator.RunConfig(
        folder, save_checkpoints_steps=EVERY, keep_checkpoint_max=1, log_step_count_steps=None, save_summary_steps=None
    )
    return estimator.Estimator(_model_fn, config=config)


def estimator_train(folder: str, last: int) -> None:
    _estimator_in(folder).train(_input_fn, max_steps=last)


def train_and_evaluate(folder: str, last: int) -> None:
    receiver = estimator.export.build_raw_serving_input_receiver_fn({"x": tf.constant([1.0])})
    exporter = estimator.LatestExporter("latest", receiver, exports_to_keep=1)
    estimator.train_and_evaluate(
        _estimator_in(folder),
        estimator.TrainSpec(_input_fn, max_steps=last),
        estimator.EvalSpec(_input_fn, steps=1, exporters=exporter, start_delay_secs=0, throttle_secs=0),
    )


class Model:
    """A step of TF 2."""

    def __init__(self) -> None:
        self.weights = tf.Variable(tf.zeros([SIZE]))
        self.checkpoint = tf.train.Checkpoint(weights=self.weights)

    def step(self) -> Any:
        return self.weights.assign_add(tf.ones([SIZE]))


def step_loop(folder: str, last: int) -> None:
    model = Model()
    saver = CheckpointHook(model.checkpoint, every_steps=EVERY, directory=folder, max_to_keep=1)
    StepLoop(model.step, [saver, StopAtStepHook(last_step=last)], resume_from=saver).run()


def async_step_loop(folder: str, last: int) -> None:
    model = Model()
    saver = CheckpointHook(model.checkpoint, every_steps=EVERY, directory=folder, max_to_keep=1, async_save=True)
    StepLoop(model.step, [saver, StopAtStepHook(last_step=last)], resume_from=saver).run()


def checkpoints(folder: str, last: int) -> None:
    """Without TensorFlow."""
    weights = np.zeros(SIZE, np.float32)

    def step() -> None:
        weights[...] += 1

    saver = Checkpoints(folder, {"weights": weights}, every_steps=EVERY, keep=1)
    StepLoop(step, [saver, StopAtStepHook(last_step=last)], resume_from=saver).run()


def best_checkpoints(folder: str, last: int) -> None:
    """With evaluations: that of step 8 is the best. Its checkpoint stays, and the hook that counts knows it."""
    weights, best_weights = np.zeros(SIZE, np.float32), np.zeros(SIZE, np.float32)
    metric: dict[str, Any] = {"metric": "distance", "mode": "min"}
    saver = Checkpoints(folder, {"weights": weights}, every_steps=EVERY, keep=1, **metric)
    stop = EarlyStoppingHook("distance", "min", patience=100)

    def check(step: int) -> None:
        best_step = 8 if step >= 8 else 4 if step >= 4 else None
        assert stop.best_step == best_step, f"step {step}: the best is {stop.best_step}"
        best = Checkpoints(folder, {"weights": best_weights}, **metric).restore("best")
        found = None if best is None else best.global_step
        assert (found, set(best_weights.tolist())) == (best_step, {best_step or 0}), f"step {step}: {found} is there"

    def step() -> None:
        if loop.steps == 0:
            check(loop.global_step)
        weights[...] += 1

    evaluate = EvaluateHook(lambda: {"distance": abs(float(weights[0]) - 8)}, every_steps=4, at_end=False)
    loop = StepLoop(step, [evaluate, saver, stop, StopAtStepHook(last_step=last)], resume_from=saver)
    loop.run()
    check(loop.global_step)


WAYS: dict[str, Callable[[str, int], None]] = {
    way.__name__: way
    for way in (
        session, async_session, sharded_session, session_with_preserved, partial_session, session_loop,
        singular_session, supervisor, async_supervisor, step_loop, async_step_loop, estimator_train,
        train_and_evaluate, checkpoints, best_checkpoints,
    )
}  # fmt: skip
