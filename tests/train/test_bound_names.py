"""A program may put our classes under TensorFlow's names, in every module that has them: all of them still run."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path

import pytest
from processes import Processes

PROGRAM = """
    import json, logging, os, re, sys
    import tensorflow as tf
    from tensorflow.python.training import basic_session_run_hooks, monitored_session, session_manager, supervisor
    from fastsup import train

    bind, folder = sys.argv[1] == "bound", sys.argv[2]
    v1 = tf.compat.v1
    if os.environ.get("FASTSUP_TEST_WORLD") == "v1":
        v1.disable_v2_behavior()
    theirs = basic_session_run_hooks.CheckpointSaverHook
    if bind:
        for module in (basic_session_run_hooks, monitored_session, session_manager, supervisor, v1.train):
            for name in train.__all__:
                for there in (name, "_" + name):
                    if hasattr(module, there):
                        setattr(module, there, getattr(train, name))

    said = []

    class Lines(logging.Handler):
        def emit(self, record):
            line = record.getMessage().replace(folder, "FOLDER")
            # The choice of an executor is logged on a slow machine only: it may not count, or the slices below shift.
            if line.startswith(("Using config", "Executor of run(")):
                return
            # A rate may be a whole number.
            said.append(re.sub(r"(?<=global_step/sec: )[0-9.e+-]+|[0-9.e+-]{4,}", "N", line))

    v1.logging.set_verbosity(v1.logging.INFO)
    logging.getLogger("tensorflow").addHandler(Lines())
    HOOKS = {
        "CheckpointSaverHook": lambda step: train.CheckpointSaverHook(place + "/a", save_steps=2),
        "async": lambda step: train.CheckpointSaverHook(place + "/b", save_steps=2, async_save=True),
        "StepCounterHook": lambda step: train.StepCounterHook(every_n_steps=1, output_dir=place + "/c"),
        "SummarySaverHook": lambda step: train.SummarySaverHook(
            save_steps=2, output_dir=place + "/d", summary_op=v1.summary.scalar("s", step)),
        "ProfilerHook": lambda step: train.ProfilerHook(save_steps=2, output_dir=place),
        "LoggingTensorHook": lambda step: train.LoggingTensorHook({"step": step.name}, every_n_iter=2),
        "formatted": lambda step: train.LoggingTensorHook([step.name], every_n_iter=2, formatter=str),
        "at_end": lambda step: train.LoggingTensorHook([step.name], at_end=True),
        "StopAtStepHook": lambda step: train.StopAtStepHook(last_step=3),
        "NanTensorHook": lambda step: train.NanTensorHook(tf.cast(step, tf.float32)),
        "GlobalStepWaiterHook": lambda step: train.GlobalStepWaiterHook(0),
        "FinalOpsHook": lambda step: train.FinalOpsHook(step),
        "FeedFnHook": lambda step: train.FeedFnHook(lambda: {step: 5}),
        "WatchdogHook": lambda step: train.WatchdogHook(60),
        "theirs": lambda step: theirs(place + "/e", save_steps=2),
    }
    results = {}
    for of in ("fastsup", "tensorflow"):
        for name, make in HOOKS.items():
            place = f"{folder}/{of}/{name}"
            os.makedirs(place)
            with tf.Graph().as_default():
                step = v1.train.get_or_create_global_step()
                train_op = v1.assign_add(step, 1)
                read = tf.identity(step, name="read")
                v1.add_to_collection(v1.GraphKeys.SAVERS, v1.train.Saver())
                where = train if of == "fastsup" else v1.train
                with where.MonitoredSession(hooks=[make(read)]) as session:
                    for _ in range(4):
                        if not session.should_stop():
                            session.run(train_op)
                results[of + "." + name] = len(said)

    place = folder

    def run(name, open_session):
        with tf.Graph().as_default():
            train_op = v1.assign_add(v1.train.get_or_create_global_step(), 1)
            with open_session() as session:
                results[name] = int(session.run(train_op))

    run("singular", lambda: v1.train.SingularMonitoredSession(checkpoint_dir=place + "/f"))
    run("training", lambda: v1.train.MonitoredTrainingSession(
        checkpoint_dir=place + "/g", save_checkpoint_steps=2, save_summaries_steps=2, log_step_count_steps=2))
    run("worker", lambda: v1.train.MonitoredSession(v1.train.ChiefSessionCreator(v1.train.Scaffold())))
    if bind or os.environ.get("FASTSUP_TEST_WORLD") == "v1":
        run("supervisor", lambda: v1.train.Supervisor(logdir=place + "/h").managed_session())
    timer = v1.train.SecondOrStepTimer(every_steps=2)
    timer.update_last_triggered_step(1)
    results["timer"] = [timer.should_trigger_for_step(step) for step in (1, 2, 3)]

    from fastsup import estimator as est
    def model_fn(features, labels, mode):
        train_op = v1.assign_add(v1.train.get_global_step(), 1)
        saver = theirs(place + "/i", save_steps=1)
        return est.EstimatorSpec(mode, loss=tf.constant(1.0), train_op=train_op, training_chief_hooks=[saver])
    model = est.Estimator(model_fn, place + "/i")
    listener = v1.train.CheckpointSaverListener()
    model.train(lambda: {"x": tf.constant([1.0])}, steps=2, saving_listeners=[listener])
    results["estimator"] = [int(model.evaluate(lambda: {"x": tf.constant([1.0])}, steps=2)["global_step"])]
    results["of TensorFlow"] = [
        issubclass(train.MonitoredSession, v1.train.MonitoredSession), issubclass(theirs, theirs)]
    print(json.dumps({"results": results, "said": said}))
"""


def outcome(processes: Processes, folder: Path, way: str) -> str:
    place = folder / way
    place.mkdir()
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = processes.python("-c", textwrap.dedent(PROGRAM), way, place, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip().splitlines()[-1]


@pytest.mark.timeout(300)
def test_every_class_runs_under_tensorflows_names(tmp_path: Path, processes: Processes) -> None:
    import json

    bound, unbound = (json.loads(outcome(processes, tmp_path, way)) for way in ("bound", "unbound"))
    bound["results"].pop("supervisor")
    unbound["results"].pop("supervisor", None)

    def of_hooks(found: dict[str, object]) -> dict[str, object]:
        return {name: value for name, value in found.items() if not isinstance(value, int) or "." not in name}

    assert of_hooks(bound["results"]) == of_hooks(unbound["results"])
    # In our own sessions, the same lines in the same order.
    ours = [found["said"][: found["results"]["fastsup.theirs"]] for found in (bound, unbound)]
    assert ours[0] == ours[1]
    for text in ("Saving checkpoints for 4 into", "global_step/sec", "step = "):
        assert any(text in line for line in ours[0])
