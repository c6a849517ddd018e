"""Sessions, saves, Estimator, profiler and signals where the work is on a GPU. Each test is its own process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.gpu
Run = Callable[..., Any]

EVERY_EXECUTOR = """
for executor in ("auto", "thread_pool", "inline", "single_threaded"):
    with tf.Graph().as_default():
        with tf.device("/cpu:0"):
            x = v1.placeholder_with_default(np.ones((64, 64), np.float32), [64, 64])
        with tf.device(DEVICE):
            w = v1.get_variable("w", initializer=np.eye(64, dtype=np.float32), use_resource=True)
            product = x @ w
            total = tf.reduce_sum(product)
        with tf.device("/cpu:0"):
            doubled = total * 2.0
        with fastsup.Session(config=config, executor=executor) as session:
            try:
                session.run(v1.global_variables_initializer())
                for n in (1, 2) * 60:
                    result = session.run(doubled, {x: np.full((64, 64), n, np.float32)})
                    assert result == 8192.0 * n, (executor, n, result)
                modes = {plan.executor for plan in session.executor_info()}
            except tf.errors.UnimplementedError:
                modes = "refused"
        print(executor, modes)
"""


def test_each_executor_is_right_or_refuses_the_step(run_program: Run) -> None:
    lines = dict(line.split(" ", 1) for line in run_program(EVERY_EXECUTOR).stdout.splitlines())
    assert lines.keys() == {"auto", "thread_pool", "inline", "single_threaded"}
    assert lines["single_threaded"] == "refused"
    assert "single_threaded" not in lines["auto"]
    assert "refused" not in (lines["auto"], lines["thread_pool"], lines["inline"])


VALUES = """
for kind in (np.float32, np.float16, np.int64, np.int32, np.bool_):
    for size in (1, 1000, 3_000_000):
        value = (np.arange(size) % 7).astype(kind)
        results = []
        for session_class in (v1.Session, fastsup.Session):
            with tf.Graph().as_default():
                x = v1.placeholder(kind, [None])
                with tf.device(DEVICE):
                    y = tf.identity(tf.reverse(x, [0]))
                config.allow_soft_placement = True
                with session_class(config=config) as session:
                    results.append([session.run(y, {x: value}) for _ in range(3)])
        for theirs, ours in zip(*results):
            np.testing.assert_array_equal(theirs, ours)
            assert ours.flags.writeable and type(ours) is type(theirs)
            ours[0] = 1  # The program's own: nothing else changes.
        np.testing.assert_array_equal(value, (np.arange(size) % 7).astype(kind))
"""


def test_values_that_are_fed_and_fetched_are_tensorflows(run_program: Run) -> None:
    run_program(VALUES)


TRAIN = """
folder, save = sys.argv[1], sys.argv[2] == "async"
with tf.Graph().as_default():
    train_op, weights = model()
    hooks = [train.StopAtStepHook(last_step=50)]
    with train.MonitoredTrainingSession(
        checkpoint_dir=folder, config=config, hooks=hooks, save_checkpoint_steps=7, async_save=save
    ) as session:
        if len(sys.argv) > 3:
            session.run_loop(train_op)
        while not session.should_stop():
            session.run(train_op)
for path in tf.train.get_checkpoint_state(folder).all_model_checkpoint_paths:
    reader = tf.train.load_checkpoint(path)
    values = set(reader.get_tensor("weights").ravel())
    assert values == {float(reader.get_tensor("global_step"))}, (path, values)
assert path.endswith("-50"), path
"""


@pytest.mark.parametrize("save", ["sync", "async"])
@pytest.mark.parametrize("loop", [[], ["loop"]], ids=["run", "run_loop"])
def test_training_ends_at_its_step_and_each_checkpoint_is_of_one_step(
    run_program: Run, tmp_path: Any, save: str, loop: list[str]
) -> None:
    run_program(TRAIN, tmp_path / "model", save, *loop)


SIGTERM = """
import signal, threading
with tf.Graph().as_default():
    train_op, weights = model()
    with train.MonitoredTrainingSession(checkpoint_dir=sys.argv[1], config=config, save_checkpoint_secs=None,
                                        save_checkpoint_steps=10**6) as session:
        for _ in range(20):
            session.run(train_op)
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM)).start()
        while not session.should_stop():
            session.run(train_op)
"""

CHECK = """
reader = tf.train.load_checkpoint(sys.argv[1])
step = float(reader.get_tensor("global_step"))
assert step > 20 and set(reader.get_tensor("weights").ravel()) == {step}, step
"""


def test_sigterm_ends_between_two_steps_with_a_checkpoint(run_program: Run, tmp_path: Any) -> None:
    run_program(SIGTERM, tmp_path, code=143)
    run_program(CHECK, tmp_path)


OUT_OF_MEMORY = """
with tf.Graph().as_default():
    train_op, weights = model()
    with tf.device(DEVICE):
        n = v1.placeholder(tf.int64, [])
        # Far more than any device has: 4 exabytes.
        large = tf.reduce_sum(tf.ones(tf.stack([n, n])))
    failed = []
    class Errors(train.SessionRunHook):
        def on_error(self, run_context, error):
            failed.append(type(error).__name__)
    with train.MonitoredTrainingSession(checkpoint_dir=sys.argv[1], config=config, save_checkpoint_secs=None,
                                        save_checkpoint_steps=5, hooks=[Errors()]) as session:
        for _ in range(7):
            session.run(train_op)
        try:
            session.run(large, {n: 2**30})
        except tf.errors.ResourceExhaustedError as error:
            print("exhausted")
        # The session still works.
        for _ in range(7):
            session.run(train_op)
    assert failed == ["ResourceExhaustedError"], failed
reader = tf.train.load_checkpoint(sys.argv[1])
step = float(reader.get_tensor("global_step"))
assert step == 14 and set(reader.get_tensor("weights").ravel()) == {step}, step
"""


def test_an_out_of_memory_error_loses_no_checkpoint(run_program: Run, tmp_path: Any) -> None:
    assert run_program(OUT_OF_MEMORY, tmp_path).stdout.splitlines()[-1] == "exhausted"


ESTIMATOR = """
strategies = {"none": lambda: None, "one device": lambda: tf.distribute.OneDeviceStrategy(DEVICE),
              "mirrored": lambda: tf.distribute.MirroredStrategy([DEVICE])}
strategy = strategies[sys.argv[2]]()
settings = dict(session_config=config, train_distribute=strategy, save_checkpoints_steps=40)
trained = estimator.Estimator(model_fn, config=estimator.RunConfig(sys.argv[1], **settings))
result, _ = estimator.train_and_evaluate(
    trained, estimator.TrainSpec(numbers, max_steps=100), estimator.EvalSpec(numbers, steps=5, throttle_secs=0))
assert result["global_step"] == 100 and result["loss"] < 1e-2, result
assert abs(trained.get_variable_value("weight")[0, 0] - 3.0) < 0.1
"""


@pytest.mark.parametrize("strategy", ["none", "one device", "mirrored"])
def test_train_and_evaluate(run_program: Run, tmp_path: Any, strategy: str) -> None:
    run_program(ESTIMATOR, tmp_path / "model", strategy)


PROFILE = """
import time
profiler = fastsup.HookProfiler()
with tf.Graph().as_default():
    step = v1.train.get_or_create_global_step()
    with tf.device(DEVICE):
        w = v1.get_variable("w", initializer=np.eye(1024, dtype=np.float32), use_resource=True)
        product = w
        for _ in range(16):
            product = product @ w
        update = w.assign(product)
        read = tf.reduce_sum(w)
    with tf.control_dependencies([update]):
        train_op = v1.assign_add(step, tf.constant(1, tf.int64)).op
    with train.MonitoredTrainingSession(config=config, profiler=profiler) as session:
        for _ in range(3):
            session.run(train_op)
        before = profiler.snapshot()["wall_ns"]
        started = time.perf_counter()
        for _ in range(10):
            session.run(train_op)
        session.run_without_hooks(read)  # Waits for all that the device has still to do.
        waited = time.perf_counter() - started
        recorded = (profiler.snapshot()["wall_ns"] - before) * 1e-9
print(recorded / waited)
"""


def test_the_profiler_does_not_report_a_step_before_its_kernels_have_finished(run_program: Run) -> None:
    # The read after the steps takes a few per cent of them at most, unless the steps had only been begun.
    assert float(run_program(PROFILE).stdout.splitlines()[-1]) > 0.8


FUNCTION = """
weights = tf.Variable(tf.zeros([4]))

@fastsup.function(fallback="silent")
def step(x):
    weights.assign_add(x)
    return tf.reduce_sum(weights)

results = [float(step(tf.ones([4]))) for _ in range(30)]
assert results == [4.0 * n for n in range(1, 31)], results
print(step.lifted, step.why_not_lifted)
"""


def test_a_function_is_right_whether_it_is_lifted_or_not(run_program: Run) -> None:
    lifted, _, reason = run_program(FUNCTION).stdout.splitlines()[-1].partition(" ")
    assert lifted == "True" or len(reason) > 10
