"""One program for two Estimators: what it finds is compared with what the reference found.

`reference_2_15.json` is what tensorflow-estimator 2.15.0 found, on TensorFlow 2.15.1, in both worlds. To make it again,
in an environment with that: `python tests/estimator/reference_program.py v2 v1 > tests/estimator/reference_2_15.json`.
In the world of v1 the reference reads the step while it is incremented: now and then it warns that the step doesn't
move, or writes a summary more (of step 20 or 25). A run without that is what counts.
"""

from __future__ import annotations

import glob
import json
import logging
import os
import re
import subprocess
import sys
import tempfile
from typing import Any

import numpy as np

X = np.arange(40, dtype=np.float32).reshape(20, 2) / 40
Y = X @ np.array([[1.0], [2.0]], np.float32) + 0.1

# What says when, where or how fast, not what; and what TensorFlow says of names that it calls old.
_VARIES = [
    (re.compile(r"\d{4}-\d\d-\d\dT?-?\d\d:\d\d:\d\d"), "TIME"),
    (re.compile(r"Inference Time : .*"), "Inference Time : SECS"),
    (re.compile(r"global_step/sec: .*"), "global_step/sec: RATE"),
    (re.compile(r"\(\d+\.\d+ sec\)"), "(SECS sec)"),
    (re.compile(r"temp-\d+"), "temp-TIME"),
    (re.compile(r"Using config: .*", re.DOTALL), "Using config: CONFIG"),
    # The true number of digits depends on the release of NumPy.
    (re.compile(r"(\d\.\d{4})\d+"), r"\1"),
]


class _Log(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()
        if not any(text in line for text in ("deprecated", "Please fix", "AutoGraph", "It seems that global step")):
            self.lines.append(line)

    def take(self, *directories: str) -> list[str]:
        lines, self.lines = self.lines, []
        for directory in directories:
            lines = [line.replace(directory, "DIR") for line in lines]
        for pattern, text in _VARIES:
            lines = [pattern.sub(text, line) for line in lines]
        return lines


def signatures_of(path: Any) -> dict[str, Any]:
    """The signatures of a SavedModel: by tags and by name, the method and the names of the tensors."""
    from tensorflow.python.saved_model import loader_impl

    found = {}
    for graph in loader_impl.parse_saved_model(path).meta_graphs:
        found[",".join(sorted(graph.meta_info_def.tags))] = {
            name: [
                signature.method_name,
                {key: tensor.name for key, tensor in sorted(signature.inputs.items())},
                {key: tensor.name for key, tensor in sorted(signature.outputs.items())},
            ]
            for name, signature in graph.signature_def.items()
        }
    return found


def events_of(directory: str) -> list[str]:
    """The events of a directory, as "step:kind:tags"."""
    import tensorflow as tf

    found = []
    for path in sorted(glob.glob(os.path.join(directory, "events*"))):
        for event in tf.compat.v1.train.summary_iterator(path):
            tags = ",".join(sorted(value.tag for value in event.summary.value))
            found.append(f"{event.step}:{event.WhichOneof('what')}:{tags}")
    return found


def files_of(directory: str) -> list[str]:
    """The files of a model directory, exports left out."""
    found = []
    for parent, _, names in os.walk(directory):
        inside = os.path.relpath(parent, directory)
        if not inside.startswith("export"):
            found += [os.path.normpath(os.path.join(inside, name)) for name in names]
    return sorted(re.sub(r"events\.out\.tfevents\..*", "events", name) for name in found)


def run(est: Any, inputs: Any, train: Any) -> dict[str, Any]:
    """Trains, evaluates, predicts, exports and starts warm; returns what was to be seen of it.

    Args:
      est: the names of `tf.estimator`.
      inputs: those of `tf.estimator.inputs`.
      train: those of `tf.compat.v1.train`.
    """
    import tensorflow as tf

    v1 = tf.compat.v1
    log = _Log()
    logger = logging.getLogger("tensorflow")
    before, level = logger.handlers, logger.level
    logger.handlers, logger.propagate = [log], False
    logger.setLevel("INFO")
    losses: list[float] = []

    class Losses(train.SessionRunHook):  # type: ignore[misc,name-defined]
        def begin(self) -> None:
            self.loss = v1.get_collection(v1.GraphKeys.LOSSES)[0]

        def before_run(self, run_context: Any) -> Any:
            return train.SessionRunArgs(self.loss)

        def after_run(self, run_context: Any, run_values: Any) -> None:
            losses.append(float(run_values.results))

    def input_fn() -> Any:
        return tf.data.Dataset.from_tensor_slices(({"x": X}, Y)).batch(4)

    def model_fn(features: Any, labels: Any, mode: str, params: Any, config: Any) -> Any:
        with v1.variable_scope("lin"):
            w = v1.get_variable("w", [2, 1], initializer=v1.truncated_normal_initializer(seed=3))
            b = v1.get_variable("b", [1], initializer=v1.zeros_initializer())
        p = tf.matmul(features["x"], w) + b
        if mode == est.ModeKeys.PREDICT:
            return est.EstimatorSpec(mode, predictions={"p": p, "double": 2 * p})
        loss = tf.reduce_mean(tf.square(p - labels))
        op = v1.train.MomentumOptimizer(params["lr"], 0.9).minimize(loss, v1.train.get_global_step())
        metrics = {"mae": v1.metrics.mean_absolute_error(labels, p)}
        return est.EstimatorSpec(mode, loss=loss, train_op=op, predictions={"p": p}, eval_metric_ops=metrics)

    def supervised() -> Any:
        x, y = v1.placeholder(tf.float32, [None, 2], name="fx"), v1.placeholder(tf.float32, [None, 1], name="fl")
        return est.experimental.build_raw_supervised_input_receiver_fn({"x": x}, y)()

    def serving() -> Any:
        x = v1.placeholder(tf.float32, [None, 2], name="fx")
        return est.export.ServingInputReceiver({"x": x}, {"x": x}, {"raw": {"other": x}})

    found: dict[str, Any] = {}
    directory = tempfile.mkdtemp()
    try:
        config = est.RunConfig(
            tf_random_seed=1, save_checkpoints_steps=10, save_summary_steps=5, log_step_count_steps=10
        )
        model = est.Estimator(model_fn, directory, config, params={"lr": 0.1})
        model.train(lambda: input_fn().repeat(), steps=20, hooks=[Losses()])
        found["losses"], found["train log"] = losses[:], log.take(directory)
        model.train(input_fn)
        found["train to the end of the input log"] = log.take(directory)
        model.train(input_fn, max_steps=25)
        found["train past max_steps log"] = log.take(directory)
        found["evaluation"] = {name: float(value) for name, value in model.evaluate(input_fn).items()}
        found["evaluation log"] = log.take(directory)
        two = model.evaluate(input_fn, steps=2, name="two")
        found["evaluation of 2 steps"] = {name: float(value) for name, value in two.items()}
        found["evaluation of 2 steps log"] = log.take(directory)
        model.evaluate(lambda: input_fn().repeat(), steps=25)
        found["evaluation of 25 steps log"] = [line for line in log.take() if line.startswith("Evaluation")]
        predictions = list(model.predict(lambda: input_fn().map(lambda x, y: x)))
        found["predictions"] = [{name: value.tolist() for name, value in each.items()} for each in predictions[:3]]
        found["prediction log"] = log.take(directory)
        found["variables"] = {name: model.get_variable_value(name).tolist() for name in model.get_variable_names()}
        exported = model.export_saved_model(os.path.join(directory, "export"), serving)
        found["export log"] = log.take(directory)
        found["signatures"] = signatures_of(exported)
        every_mode = {est.ModeKeys.TRAIN: supervised, est.ModeKeys.EVAL: supervised, est.ModeKeys.PREDICT: serving}
        of_all = model.experimental_export_all_saved_models(os.path.join(directory, "export_all"), every_mode)
        found["signatures of all modes"] = signatures_of(of_all)
        found["files"], found["events"] = files_of(directory), events_of(directory)
        found["evaluation events"] = events_of(os.path.join(directory, "eval"))
        with open(os.path.join(directory, "checkpoint")) as state:
            found["state file"] = state.read()

        other = est.Estimator(model_fn, tempfile.mkdtemp(), est.RunConfig(tf_random_seed=1), params={"lr": 0.1})
        del losses[:]
        epochs = inputs.numpy_input_fn({"x": X}, Y, batch_size=8, num_epochs=2, shuffle=False)
        other.train(epochs, hooks=[Losses()])
        found["losses of numpy_input_fn"] = losses[:]
        found["events of numpy_input_fn"] = events_of(other.model_dir)
        evaluated = other.evaluate(inputs.numpy_input_fn({"x": X}, Y, batch_size=8, shuffle=False))
        found["evaluation of numpy_input_fn"] = {name: float(value) for name, value in evaluated.items()}

        for name, settings in {
            "trainable": directory,
            "regular expression": est.WarmStartSettings(directory, ".*w.*"),
            "other name": est.WarmStartSettings(
                directory, "lin/w", var_name_to_prev_var_name={"lin/w": "lin/w/Momentum"}
            ),
            "all": est.WarmStartSettings(directory, [".*"]),
            "SavedModel": exported.decode(),
        }.items():
            own = tempfile.mkdtemp()
            warm = est.Estimator(
                model_fn, own, est.RunConfig(tf_random_seed=1), params={"lr": 0.0}, warm_start_from=settings
            )
            log.take()
            warm.train(input_fn, steps=1)
            names = ("lin/w", "lin/b", "lin/w/Momentum")
            found[f"warm start, {name}"] = [warm.get_variable_value(name).tolist() for name in names]
            found[f"warm start, {name} log"] = log.take(os.path.join(directory, "export"), directory, own)
            found[f"warm start, {name} log"] = [
                re.sub(r"DIR/\d+", "DIR/TIME", line) for line in found[f"warm start, {name} log"]
            ]
    finally:
        logger.handlers = before
        logger.setLevel(level)
    return found


def main(worlds: list[str]) -> None:
    if len(worlds) == 1:
        import tensorflow as tf

        if worlds == ["v1"]:
            tf.compat.v1.disable_v2_behavior()
        found = run(tf.estimator, tf.compat.v1.estimator.inputs, tf.compat.v1.train)
        print(json.dumps(found))
        return
    # TensorFlow's behaviour is a switch of the whole process.
    everything = {}
    for world in worlds:
        output = subprocess.run([sys.executable, __file__, world], check=True, stdout=subprocess.PIPE).stdout
        everything[world] = json.loads(output.splitlines()[-1])
    print(json.dumps(everything, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
