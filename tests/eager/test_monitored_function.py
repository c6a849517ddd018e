"""`fastsup.train.monitored_function`: a TF 2 step with the session layer's hooks, checkpoints and recovery."""

from __future__ import annotations

import gc
import os
import signal
import textwrap
from collections.abc import Callable
from pathlib import Path
from subprocess import PIPE
from typing import Any, NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf
from processes import Processes

import fastsup
from fastsup import train
from fastsup.train import monitored_function
from fastsup.train.function.monitored_function import FunctionSession

pytestmark = pytest.mark.timeout(120)


class Model(tf.Module):
    """A weight that comes nearer to what it is fed."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = tf.Variable(0.0)
        self.only_read = tf.Variable(3, dtype=tf.int64)

    @fastsup.function(fallback="raise")
    def step(self, x: Any) -> Any:
        self.weight.assign_sub(0.5 * (self.weight - x) * tf.cast(self.only_read > 0, tf.float32))
        return tf.identity(self.weight - x, name="error")

    @fastsup.function(fallback="raise")
    def from_iterator(self, iterator: Any) -> Any:
        return self.weight.assign_add(next(iterator))


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def checkpoint(model: Model) -> Any:
    return tf.train.Checkpoint(model=model)


class Trace(train.SessionRunHook):  # type: ignore[misc]
    """Takes down what is called, and whether eager code may run there."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, bool]] = []

    def _note(self, name: str) -> None:
        self.calls.append((name, tf.executing_eagerly()))

    def begin(self) -> None:
        self._note("begin")

    def after_create_session(self, session: Any, coord: Any) -> None:
        self._note("after_create_session")

    def before_run(self, run_context: Any) -> None:
        self._note("before_run")

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self._note("after_run")

    def end(self, session: Any) -> None:
        self._note("end")


class FailOnce(train.SessionRunHook):  # type: ignore[misc]
    """Fails before one run, as a preemption does."""

    def __init__(self, run: int) -> None:
        self.left = run

    def before_run(self, run_context: Any) -> None:
        self.left -= 1
        if self.left == 0:
            raise tf.errors.AbortedError(None, None, "preempted")


def bound(model: Model, value: float = 1.0) -> Any:
    return fastsup.bind(model.step, tf.constant(value))


def steps_of(folder: Path) -> list[int]:
    return sorted(int(path.stem.rpartition("-")[2]) for path in folder.glob("ckpt-*.index"))


def test_variables_are_those_of_eager_code(model: Model) -> None:
    with monitored_function(bound(model), hooks=[train.StopAtStepHook(last_step=4)]) as training:
        assert training() == pytest.approx(-0.5)
        model.weight.assign(3.0)
        assert training() == pytest.approx(1.0)
        assert training.global_step == 2
        while not training.should_stop():
            training()
    assert float(model.weight) == pytest.approx(1.25)
    assert training.global_step == 4
    with pytest.raises(RuntimeError, match="The monitored function is closed"):
        training()


def test_results_are_those_of_the_function() -> None:
    random = np.random.default_rng(0).normal(size=[50, 8]).astype(np.float32)
    results = []

    def new_step() -> Any:
        weights = tf.Variable(tf.ones([8]))

        def step(x: Any) -> Any:
            weights.assign_sub(0.1 * tf.sin(weights * x))
            return {"sum": tf.reduce_sum(weights), "weights": weights + 0.0}

        return step

    for monitored in (False, True):
        step = new_step()
        if not monitored:
            results.append([tf.nest.map_structure(lambda t: t.numpy(), tf.function(step)(x)) for x in random])
            continue
        signature = [tf.TensorSpec([8])]
        with monitored_function(fastsup.function(step, input_signature=signature)) as training:
            results.append([training(x) for x in random])
    for expected, got in zip(*results, strict=True):
        assert expected["sum"] == got["sum"]
        np.testing.assert_array_equal(expected["weights"], got["weights"])


class Pair(NamedTuple):
    first: Any
    second: Any


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        (lambda one: None, None),
        (lambda one: one, 1),
        (lambda one: [one], [1]),
        (lambda one: {"a": one, "b": None, "c": (one + 1, [one])}, {"a": 1, "b": None, "c": (2, [1])}),
        (lambda one: Pair(one, None), Pair(1, None)),
        (lambda one: (one, one), (1, 1)),
    ],
)
def test_the_structure_of_results(returned: Callable[[Any], Any], expected: Any) -> None:
    count = tf.Variable(0)

    def step() -> Any:
        count.assign_add(1)
        return returned(tf.constant(1))

    with monitored_function(step) as training:
        assert training() == expected
        assert training.run_loop(steps=3) == expected
        assert type(training()) is type(expected) or expected == 1
    assert int(count) == 5


def test_composite_tensors_are_as_a_session_returns_them() -> None:
    def step() -> Any:
        return tf.sparse.from_dense([0, 5]), tf.ragged.constant([[1], [2, 3]])

    with monitored_function(step) as training:
        sparse, ragged = training()
    assert isinstance(sparse, tf.compat.v1.SparseTensorValue)
    assert sparse.values.tolist() == [5]
    assert ragged.to_list() == [[1], [2, 3]]


def test_checkpoints_are_those_of_tf_2(tmp_path: Path, model: Model, checkpoint: Any) -> None:
    hooks = [train.StopAtStepHook(last_step=7)]
    with monitored_function(bound(model), checkpoint, tmp_path, hooks, save_checkpoint_steps=3) as training:
        training.run_loop()
    assert steps_of(tmp_path) == [0, 3, 6, 7]
    again = Model()
    tf.train.Checkpoint(model=again).restore(tf.train.latest_checkpoint(tmp_path)).assert_consumed()
    assert float(again.weight) == float(model.weight)
    events = [path for path in tmp_path.iterdir() if path.name.startswith("events.out")]
    assert len(events) == 1


def test_goes_on_where_it_has_ended(tmp_path: Path, model: Model, checkpoint: Any) -> None:
    with monitored_function(bound(model), checkpoint, tmp_path, [train.StopAtStepHook(last_step=3)]) as training:
        training.run_loop()
    before = os.stat(tmp_path / "ckpt-3.index").st_mtime_ns
    again = Model()
    manager = tf.train.CheckpointManager(tf.train.Checkpoint(model=again), tmp_path, max_to_keep=2)
    with monitored_function(bound(again), manager, hooks=[train.StopAtStepHook(num_steps=2)]) as training:
        assert (training.global_step, float(again.weight)) == (3, float(model.weight))
        assert os.stat(tmp_path / "ckpt-3.index").st_mtime_ns == before, "the checkpoint was written again"
        training.run_loop()
    assert training.global_step == 5
    assert steps_of(tmp_path)[-1] == 5


def test_a_damaged_checkpoint_is_left_for_an_older_one(tmp_path: Path, model: Model, checkpoint: Any) -> None:
    hooks = [train.StopAtStepHook(last_step=4)]
    with monitored_function(bound(model), checkpoint, tmp_path, hooks, save_checkpoint_steps=2) as training:
        training.run_loop()
    (tmp_path / "ckpt-4.index").write_bytes(b"damaged")
    with monitored_function(bound(model), checkpoint, tmp_path) as training:
        assert training.global_step == 2
        assert float(model.weight) == pytest.approx(0.75)


@pytest.mark.parametrize("content", [None, b"", b'model_checkpoint_path: "ck', bytes(range(128, 256))])
def test_a_state_file_that_is_lost_costs_nothing(
    tmp_path: Path, model: Model, checkpoint: Any, content: bytes | None
) -> None:
    def train_to(last_step: int) -> int:
        with train.monitored_function(
            bound(model), checkpoint, tmp_path, hooks=[train.StopAtStepHook(last_step=last_step)]
        ) as training:
            training.run_loop()
            return training.global_step

    train_to(3)
    (tmp_path / "checkpoint").unlink()
    if content is not None:
        (tmp_path / "checkpoint").write_bytes(content)
    assert train_to(5) == 5
    assert steps_of(tmp_path)[-2:] == [3, 5]


def test_a_checkpoint_of_which_nothing_fits(tmp_path: Path, model: Model, checkpoint: Any) -> None:
    with train.monitored_function(bound(model), checkpoint, tmp_path) as training:
        training()
    renamed = tf.train.Checkpoint(another=model)
    with pytest.raises(AssertionError, match="has no value for any of"):
        train.monitored_function(bound(model), renamed, tmp_path)


def test_the_end_of_a_hook_that_fails(tmp_path: Path, model: Model, checkpoint: Any) -> None:
    class Fails(train.SessionRunHook):  # type: ignore[misc]
        def end(self, session: Any) -> None:
            raise ArithmeticError("of the end")

    with pytest.raises(ArithmeticError, match="of the end"):
        with train.monitored_function(bound(model), checkpoint, tmp_path, hooks=[Fails()]) as training:
            training()
    assert steps_of(tmp_path)[-1] == 1


def test_saves_that_fail_count_until_one_succeeds(
    tmp_path: Path, model: Model, checkpoint: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The steps between two saves end well, and don't begin the count again."""
    failed = []

    def fail(*args: Any, **kwargs: Any) -> None:
        failed.append(1)
        raise tf.errors.UnavailableError(None, None, "Host is down")

    monkeypatch.setattr("fastsup.checkpoint.durable.write_whole", fail)
    monkeypatch.setattr("time.sleep", lambda secs: None)
    with pytest.raises(tf.errors.UnavailableError, match="Host is down"):
        with train.monitored_function(
            bound(model), checkpoint, tmp_path, save_checkpoint_steps=3, max_recoveries=4
        ) as training:
            training.run_loop(steps=1000)
    assert len(failed) == 5


def test_hooks_and_where_they_may_run_eagerly(model: Model) -> None:
    trace = Trace()
    seen = []
    log = train.LoggingTensorHook(["error"], every_n_iter=1, formatter=lambda values: seen.append(values["error"]))
    with monitored_function(bound(model), hooks=[trace, log]) as training:
        training()
        training.run_loop(steps=1)
    eager = ["before_run", "after_run"] * 2 + ["end"]
    assert trace.calls == [("begin", False), ("after_create_session", False), *((name, True) for name in eager)]
    assert seen == pytest.approx([-0.5, -0.25])


def test_results_in_a_dict_have_their_keys_as_names() -> None:
    weight = tf.Variable(1.0)

    @tf.function
    def step() -> Any:
        with tf.name_scope("loss"):
            doubled = weight * 2.0
        return {"loss": doubled, "taken": tf.identity(doubled + 1.0, name="other"), "two words": doubled,
                "other": weight + 0.0, "nested": {"inner": doubled}, "none": None}  # fmt: skip

    seen: dict[str, Any] = {}
    log = train.LoggingTensorHook(["loss", "taken", "other"], every_n_iter=1, formatter=seen.update)
    with monitored_function(step, hooks=[log]) as training:
        result = training()
        assert result["loss"] == 2.0
        assert result["nested"] == {"inner": 2.0}
    # An operation that has a name keeps it.
    assert seen == {"loss": 2.0, "taken": 3.0, "other": 3.0}


def test_hooks_of_what_the_step_returns(model: Model) -> None:
    def hooks(outputs: Any) -> list[Any]:
        return [train.NanTensorHook(outputs, fail_on_nan_loss=False)]

    with monitored_function(bound(model), hooks=hooks) as training:
        training()
        assert not training.should_stop()
        model.weight.assign(float("nan"))
        training()
        assert training.should_stop()


@pytest.mark.parametrize("how", ["call", "run_loop"])
def test_a_fetch_of_a_result_at_the_end_is_no_step(model: Model, how: str, tf_log: Any) -> None:
    """Hooks get the results of the last step, and what is computed from them."""

    hooks: list[Any] = []

    def hooks_of(error: Any) -> list[Any]:
        hooks.append(train.LoggingTensorHook({"error": error}, at_end=True))
        hooks.append(train.FinalOpsHook({"error": error, "double": error * 2.0}))
        return hooks

    with monitored_function(bound(model), hooks=hooks_of) as training:
        if how == "call":
            for _ in range(3):
                last = training()
        else:
            last = training.run_loop(steps=3)
    assert training.global_step == 3
    assert model.weight.numpy() == 1 - 0.5**3
    assert hooks[1].final_ops_values == {"error": last, "double": 2 * last}
    assert f"error = {last}" in tf_log.text


def test_a_refused_loop_leaves_the_last_results(model: Model) -> None:
    hooks: list[Any] = []

    def hooks_of(error: Any) -> list[Any]:
        hooks.append(train.FinalOpsHook(error))
        return hooks

    with monitored_function(bound(model), hooks=hooks_of) as training:
        training.run_loop(steps=2)
        last = training()
        with pytest.raises(ValueError, match="steps must not be negative"):
            training.run_loop(steps=-1)
    assert hooks[0].final_ops_values == last
    assert training.global_step == 3


def test_without_a_step_the_end_fetches_as_before(model: Model) -> None:
    hooks: list[Any] = []

    def hooks_of(error: Any) -> list[Any]:
        hooks.append(train.FinalOpsHook(error))
        return hooks

    with monitored_function(bound(model), hooks=hooks_of):
        pass
    assert hooks[0].final_ops_values == -0.5


def test_the_end_of_the_input_ends_training(model: Model) -> None:
    numbers = iter(tf.data.Dataset.range(5).map(lambda x: tf.cast(x, tf.float32)))
    with monitored_function(fastsup.bind(model.from_iterator, numbers)) as training:
        training()
        training.run_loop()
    assert (float(model.weight), training.global_step) == (10.0, 5)


def test_a_preemption_restores_the_newest_checkpoint(tmp_path: Path, model: Model, checkpoint: Any) -> None:
    hooks = [train.StopAtStepHook(last_step=6), FailOnce(run=6)]
    trace = Trace()
    with monitored_function(bound(model), checkpoint, tmp_path, [*hooks, trace], save_checkpoint_steps=4) as training:
        while not training.should_stop():
            training()
    assert trace.calls.count(("after_create_session", False)) == 2
    assert training.global_step == 6
    # Step 5 was lost with the preemption, and done again from checkpoint 4.
    assert float(model.weight) == pytest.approx(1 - 0.5**6)


def test_a_preemption_without_checkpoint_keeps_the_variables(model: Model) -> None:
    with monitored_function(bound(model), hooks=[train.StopAtStepHook(last_step=6), FailOnce(run=4)]) as training:
        training.run_loop()
    assert (training.global_step, float(model.weight)) == (6, pytest.approx(1 - 0.5**6))


@pytest.mark.parametrize("kind", ["tf.Variable", "keras.Variable"])
def test_a_global_step_of_the_program(tmp_path: Path, kind: str) -> None:
    optimizer = keras.optimizers.SGD(0.1)
    weight = tf.Variable(1.0)
    optimizer.build([weight])
    counter = tf.Variable(0, dtype=tf.int64)

    def step() -> Any:
        optimizer.apply([tf.constant(1.0)], [weight])
        counter.assign_add(1)

    global_step = counter if kind == "tf.Variable" else optimizer.iterations
    checkpoint = tf.train.Checkpoint(counter=counter, optimizer=optimizer)
    hooks = [train.StopAtStepHook(last_step=5)]
    with monitored_function(step, checkpoint, tmp_path, hooks, global_step=global_step) as training:
        training.run_loop()
    assert (int(counter), int(optimizer.iterations.numpy()), training.global_step) == (5, 5, 5)
    counter.assign(0)
    with monitored_function(step, checkpoint, tmp_path, global_step=global_step) as training:
        assert (training.global_step, int(counter)) == (5, 5)


def test_a_global_step_in_the_checkpoint_counts_more_than_its_name(tmp_path: Path) -> None:
    """Programs of TF 2 often number their checkpoints otherwise."""
    counter = tf.Variable(1000, dtype=tf.int64)
    manager = tf.train.CheckpointManager(tf.train.Checkpoint(counter=counter), tmp_path, max_to_keep=3)
    manager.save()
    counter.assign(0)
    hooks = [train.StopAtStepHook(num_steps=2)]
    with monitored_function(lambda: counter.assign_add(1), manager, hooks=hooks, global_step=counter) as training:
        assert training.global_step == 1000
        training.run_loop()
    assert int(counter) == 1002
    assert steps_of(tmp_path)[-1] == 1002


@pytest.mark.parametrize("executor", ["auto", "thread_pool", "inline", "single_threaded"])
def test_executors(model: Model, executor: str) -> None:
    with monitored_function(bound(model), executor=executor) as training:
        training.run_loop(steps=200)
        assert training.session.executor_info()
    assert training.global_step == 200


def test_the_costs_of_hooks_are_recorded(model: Model) -> None:
    profiler = fastsup.HookProfiler()
    with monitored_function(bound(model), hooks=[Trace()], profiler=profiler) as training:
        training.run_loop(steps=10)
    snapshot = profiler.snapshot()
    assert snapshot["steps"] == 10
    assert "Trace" in str(snapshot)


def test_async_save(tmp_path: Path, model: Model, checkpoint: Any) -> None:
    hooks = [train.StopAtStepHook(last_step=5)]
    with monitored_function(
        bound(model), checkpoint, tmp_path, hooks, save_checkpoint_steps=2, async_save=True
    ) as training:
        training.run_loop()
    assert steps_of(tmp_path)[-1] == 5
    again = Model()
    tf.train.Checkpoint(model=again).restore(str(tmp_path / "ckpt-5"))
    assert float(again.weight) == float(model.weight)


def test_an_async_write_that_fails_is_raised_at_the_end(
    tmp_path: Path, model: Model, checkpoint: Any, wait_for: Callable[..., Any]
) -> None:
    class Spoil(train.SessionRunHook):  # type: ignore[misc]
        def end(self, session: Any) -> None:
            # The first checkpoint is written in the background: its state file comes last, and is rewritten at once.
            wait_for((tmp_path / "logs" / "checkpoint").exists)
            (tmp_path / "logs").rename(tmp_path / "moved")
            (tmp_path / "logs").write_text("no folder")

    hooks = [train.StopAtStepHook(last_step=3), Spoil()]
    options = {"save_checkpoint_steps": 100, "async_save": True, "log_step_count_steps": None}
    with pytest.raises(tf.errors.OpError):
        with monitored_function(bound(model), checkpoint, tmp_path / "logs", hooks, **options) as training:
            training.run_loop()
    # Raised once: the program's end has nothing to report any more.
    checkpoint._async_checkpointer_impl._check_async_thread_error()


def test_a_session_that_is_not_begun_is_closed(tmp_path: Path, model: Model, checkpoint: Any) -> None:
    class Fails(train.SessionRunHook):  # type: ignore[misc]
        def after_create_session(self, session: Any, coord: Any) -> None:
            raise KeyError("no such thing")

    with pytest.raises(KeyError, match="no such thing"):
        monitored_function(bound(model), checkpoint, tmp_path, [Fails()], save_checkpoint_steps=1, async_save=True)
    opened = [thing for thing in gc.get_objects() if isinstance(thing, FunctionSession)]
    assert all(session._closed for session in opened)
    # What was begun to be written is complete.
    assert steps_of(tmp_path) == [0]


def test_a_managers_init_fn_is_called_once(tmp_path: Path, model: Model, checkpoint: Any) -> None:
    steps = []
    counter = tf.Variable(7, dtype=tf.int64)

    def initialize() -> None:
        steps.append(int(counter))
        model.weight.assign(100.0)

    def step() -> Any:
        model.weight.assign_add(1.0)
        return counter.assign_add(1)

    manager = tf.train.CheckpointManager(checkpoint, tmp_path, max_to_keep=3, init_fn=initialize)
    hooks = [train.StopAtStepHook(num_steps=5), FailOnce(run=3)]
    with monitored_function(step, manager, hooks=hooks, global_step=counter, save_checkpoint_secs=0) as training:
        training.run_loop()
    assert steps == [7]
    assert float(model.weight) == 105.0


def test_other_graphs_stay_as_they_are(model: Model) -> None:
    training = monitored_function(bound(model))
    with tf.Graph().as_default() as other:
        other.finalize()
        training.close()
        assert other.finalized


def test_intervals_of_0_are_none(tmp_path: Path, model: Model, checkpoint: Any) -> None:
    hooks = [train.StopAtStepHook(last_step=4)]
    options = {"save_checkpoint_secs": 0, "save_checkpoint_steps": 2}
    with monitored_function(bound(model), checkpoint, tmp_path, hooks, **options) as training:
        training.run_loop()
    assert steps_of(tmp_path) == [0, 2, 4]


def test_not_beside_asynchronous_eager_code(model: Model) -> None:
    tf.config.experimental.set_synchronous_execution(False)
    try:
        with pytest.raises(RuntimeError, match="eager operations run asynchronously"):
            monitored_function(bound(model))
    finally:
        tf.config.experimental.set_synchronous_execution(True)


def test_a_forked_child_says_why_it_cannot_run(run: Any) -> None:
    program = """
    import os, warnings
    warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of a fork where there are threads.
    process = os.fork()
    if process == 0:
        try:
            training.run_loop()
        except RuntimeError as error:
            os._exit(7 if "os.fork()" in str(error) else 8)
        os._exit(9)
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
    """
    assert run(program) == (7, "")


def test_a_forked_child_that_leaves_the_block_ends(run: Any, tmp_path: Path) -> None:
    program = """
    import os, warnings
    warnings.simplefilter("ignore", DeprecationWarning)
    with training:
        training.run_loop(steps=3)
        if (process := os.fork()) == 0:
            sys.exit(7)
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
    """
    assert run(program) == (7, "")
    assert steps_of(tmp_path)[-1] == 4


def test_not_in_a_function(model: Model) -> None:
    with pytest.raises(RuntimeError, match=r"while a tf\.function is traced"):
        tf.function(lambda: monitored_function(bound(model)))()


def test_errors_of_the_function_itself() -> None:
    def step() -> Any:
        raise TypeError("no step")

    with pytest.raises(TypeError, match=r"(?s)^(?!The arguments of).*no step"):
        monitored_function(tf.function(step))


def test_wrong_arguments(tmp_path: Path, model: Model, checkpoint: Any) -> None:
    unused = tf.Variable(0, dtype=tf.int64)
    for arguments, error, message in [
        ((5,), TypeError, "step must be a function, got 5"),
        ((bound(model), str(tmp_path)), TypeError, r"checkpoint must be a tf.train.Checkpoint, .* of type str"),
        ((tf.function(lambda x: x),), TypeError, "arguments of <lambda> aren't known"),
        ((bound(model), checkpoint), ValueError, "checkpoint_dir must be given"),
        ((bound(model), model, tmp_path), TypeError, "checkpoint must be a tf.train.Checkpoint of what is saved in"),
        ((bound(model), None, tmp_path), TypeError, "got None"),
    ]:
        with pytest.raises(error, match=message):
            monitored_function(*arguments)
    for options, error, message in [
        ({"global_step": unused}, ValueError, "which it doesn't use"),
        ({"global_step": model.only_read}, ValueError, "which it only reads"),
        ({"max_to_keep": "5"}, TypeError, "max_to_keep must be a number of checkpoints or None, got '5'"),
        ({"stop_grace_period_secs": None}, TypeError, "stop_grace_period_secs must be a number of seconds, got None"),
        ({"global_step": 5}, ValueError, "global_step must be a tf.Variable or a keras.Variable, got 5"),
        ({"global_step": model.weight}, ValueError, "global_step must be one integer"),
        ({"save_checkpoint_secs": 5, "save_checkpoint_steps": 2}, ValueError, "can't both be given"),
        ({"executor": "quick"}, ValueError, "executor must be one of"),
        ({"hooks": [object()]}, (TypeError, AttributeError), "begin"),
        (
            {"hooks": [train.CheckpointSaverHook(str(tmp_path), 5)]},
            TypeError,
            r"Pass checkpoint=tf.train.Checkpoint\(...\)",
        ),
    ]:
        with pytest.raises(error, match=message):
            monitored_function(bound(model), **options)


def test_arguments_of_a_call(model: Model) -> None:
    def step(x: Any) -> Any:
        return model.weight.assign_add(x)

    with monitored_function(fastsup.function(step, input_signature=[tf.TensorSpec([])])) as training:
        assert [float(training(value)) for value in (1.0, np.float32(2), tf.constant(3.0))] == [1.0, 3.0, 6.0]
        with pytest.raises(TypeError, match="missing"):
            training()
        with pytest.raises(TypeError):
            training([1.0, 2.0], 3)
        with pytest.raises(TypeError, match=r"step takes arguments: .*missing.* Pass fastsup\.bind\(step, \*args\)"):
            training.run_loop(steps=1)
    with monitored_function(bound(model)) as training:
        with pytest.raises(TypeError, match="is bound to its arguments, so a step takes none"):
            training(1.0)


def test_what_cannot_be_lifted_says_why() -> None:
    def step() -> Any:
        return tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[])

    with pytest.raises(RuntimeError, match="it returns a resource or a variant, which a session can't fetch"):
        monitored_function(step)


PROGRAM = """
import sys
import tensorflow as tf
import fastsup
from fastsup import train

weight = tf.Variable(0.0)
checkpoint = tf.train.Checkpoint(weight=weight)
numbers = iter(tf.data.Dataset.range(10**9).map(lambda x: x + 1, num_parallel_calls=2).prefetch(4))

@fastsup.function
def step(iterator):
    next(iterator)
    return weight.assign_add(1.0)

training = train.monitored_function(fastsup.bind(step, numbers), checkpoint, sys.argv[1])
training()
"""


@pytest.fixture
def run(processes: Processes, tmp_path: Path, without_cpp_log: Callable[[str], str]) -> Any:
    """Runs a program after `PROGRAM`, and gives its exit code and what it has said."""

    def run(program: str) -> tuple[int, str]:
        done = processes.python("-c", PROGRAM + textwrap.dedent(program), tmp_path)
        return done.returncode, without_cpp_log(done.stderr)

    return run


def test_sigterm_saves_and_ends_the_program(processes: Processes, tmp_path: Path) -> None:
    program = PROGRAM + "with training:\n  print('begun', flush=True)\n  training.run_loop()"
    process = processes.start_python("-c", program, tmp_path, stdout=PIPE, stderr=PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 143, errors
    assert "Traceback" not in errors
    last = steps_of(tmp_path)[-1]
    assert last >= 1
    assert f"After the signal: the last checkpoint is {tmp_path / f'ckpt-{last}'}." in errors
    weight = tf.Variable(0.0)
    tf.train.Checkpoint(weight=weight).restore(str(tmp_path / f"ckpt-{last}"))
    assert float(weight) == last


@pytest.mark.parametrize(
    "program",
    [
        "",
        "sys.exit(0)",
        "del training",
        "import threading\nthreading.Thread(target=training.run_loop, daemon=True).start()",
    ],
)
def test_programs_that_never_close_it_end_well(run: Any, program: str) -> None:
    assert run(program) == (0, "")


@pytest.mark.parametrize("kind", ["arrays", "dataset"])
@pytest.mark.parametrize("loops", [True, False])
def test_batches(kind: str, loops: bool, tmp_path: Path) -> None:
    """Each step takes the next batch; a checkpoint has the place; a batch of another shape is one too."""
    data = np.arange(10.0, dtype=np.float32)

    def new() -> Any:
        total = tf.Variable(0.0)
        function = fastsup.function(lambda scale, x: total.assign_add(scale * tf.reduce_sum(x)))
        batches = fastsup.ArrayBatches(data, 4, epochs=3)
        source = batches if kind == "arrays" else iter(tf.data.Dataset.from_tensor_slices(data).batch(4).repeat(3))
        checkpoint = tf.train.Checkpoint(total=total, source=source)
        return total, fastsup.bind_batches(function, source, 2.0), checkpoint

    total, step, checkpoint = new()
    hooks = [fastsup.train.StopAtStepHook(last_step=5)]
    with monitored_function(step, checkpoint, str(tmp_path), hooks, save_checkpoint_steps=2) as training:
        while not training.should_stop():
            training.run_loop() if loops else training()
    assert float(total) == 2.0 * (45 + 22 + 6)
    total, step, checkpoint = new()
    with monitored_function(step, checkpoint, str(tmp_path), save_checkpoint_steps=100) as training:
        while not training.should_stop():
            training.run_loop() if loops else training()
    assert float(total) == 2.0 * 3 * 45
    assert training.global_step == 9


def test_batches_that_say_nothing_of_themselves() -> None:
    with pytest.raises(
        TypeError, match=r"batches must be a fastsup.ArrayBatches or a tf.data.Dataset, whose element_spec"
    ):
        monitored_function(fastsup.bind_batches(fastsup.function(lambda x: x), [np.zeros(3)]))
