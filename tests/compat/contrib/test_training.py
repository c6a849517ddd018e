"""contrib.training: the same bodies on the package tf_slim, which has TensorFlow 1's code, and on fastsup."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from fastsup.compat.moved_names import MovedNames
from fastsup.contrib import training

v1 = tf.compat.v1


def _slim() -> Any:
    pytest.importorskip("tf_slim", reason="tf_slim is TensorFlow 1's code, to compare with")
    from tf_slim.training import evaluation
    from tf_slim.training import training as loops

    return SimpleNamespace(**{**vars(loops), **vars(evaluation)})


@pytest.fixture(params=["tf_slim", "fastsup"])
def impl(request: pytest.FixtureRequest) -> Iterator[Any]:
    moved = MovedNames()
    moved.patch_all()
    try:
        yield training if request.param == "fastsup" else _slim()
    finally:
        moved.restore()


def line() -> tuple[Any, Any]:
    """A linear model: labels and predictions."""
    x = tf.constant([[0.0], [1.0], [2.0], [3.0]])
    slope = v1.get_variable("slope", [1, 1], initializer=v1.zeros_initializer(), use_resource=True)
    offset = v1.get_variable("offset", [1], initializer=v1.zeros_initializer(), use_resource=True)
    return 2.0 * x + 1.0, tf.matmul(x, slope) + offset


def loss_of(pair: tuple[Any, Any]) -> Any:
    return v1.losses.mean_squared_error(*pair)


def tags(folder: Path) -> set[str]:
    paths = folder.glob("*tfevents*")
    return {
        value.tag for path in paths for event in v1.train.summary_iterator(str(path)) for value in event.summary.value
    }


def test_train(impl: Any, graph: Any, tmp_path: Path) -> None:
    loss = loss_of(line())
    train_op = impl.create_train_op(loss, v1.train.GradientDescentOptimizer(0.1), summarize_gradients=True)
    assert v1.get_collection(v1.GraphKeys.TRAIN_OP)[-1] is train_op
    last = impl.train(train_op, str(tmp_path), hooks=[v1.train.StopAtStepHook(last_step=120)], save_summaries_steps=50)
    assert float(last) < 1e-4
    assert v1.train.latest_checkpoint(str(tmp_path)).endswith("model.ckpt-120")
    v1.summary.FileWriterCache.clear()
    wanted = {
        f"summarize_grads/{name}_{kind}" for name in ("slope", "offset") for kind in ("gradient", "gradient_norm")
    }
    assert wanted <= tags(tmp_path)


def test_train_returns_the_last_loss(impl: Any, graph: Any) -> None:
    steps = v1.train.create_global_step()
    with tf.control_dependencies([v1.assign_add(steps, 1)]):
        train_op = tf.identity(steps.read_value())
    arguments: dict[str, Any] = {"save_checkpoint_secs": None, "save_summaries_steps": None}
    hooks = [v1.train.StopAtStepHook(num_steps=7)]
    assert impl.train(train_op, None, hooks=hooks, **arguments) == 7
    metadata = v1.RunMetadata()
    hooks = [v1.train.StopAtStepHook(num_steps=3)]
    assert impl.train(train_op, None, hooks=hooks, run_metadata=metadata, **arguments) == 3


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "logdir cannot be None when save_summaries_steps is not None"),
        ({"save_summaries_steps": None}, "logdir cannot be None when save_checkpoint_secs is not None"),
    ],
)
def test_no_logdir(impl: Any, graph: Any, arguments: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        impl.train(tf.constant(1), None, **arguments)


def gradients_after(impl: Any, transform: Any) -> list[Any]:
    """The gradients of a dense variable, of an embedding and of a variable without one, after a change."""
    dense = v1.get_variable("dense", [2], initializer=v1.ones_initializer(), use_resource=True)
    table = v1.get_variable("table", [3, 2], initializer=v1.ones_initializer(), use_resource=True)
    unused = v1.get_variable("unused", [], initializer=v1.ones_initializer(), use_resource=True)
    loss = tf.reduce_sum(3.0 * dense) + tf.reduce_sum(4.0 * tf.nn.embedding_lookup(table, [0, 2]))
    pairs = v1.train.GradientDescentOptimizer(1.0).compute_gradients(loss, [dense, table, unused])
    changed = transform(pairs)
    assert [variable.op.name for _, variable in changed] == ["dense", "table", "unused"]
    assert isinstance(changed[1][0], tf.IndexedSlices)
    assert changed[2][0] is None
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        return session.run([changed[0][0], changed[1][0].values])  # type: ignore[no-any-return]


def test_clip_gradient_norms(impl: Any, graph: Any) -> None:
    dense, table = gradients_after(impl, impl.clip_gradient_norms_fn(1.0))
    np.testing.assert_allclose(dense, [2**-0.5] * 2, rtol=1e-5)
    np.testing.assert_allclose(table, np.full((2, 2), 0.5), rtol=1e-5)


def test_multiply_gradients(impl: Any, graph: Any) -> None:
    def transform(pairs: Any) -> Any:
        for wrong, text in (
            ((tuple(pairs), {"dense": 1}), "must be a list"),
            ((pairs, {}), "is empty"),
            ((pairs, [("dense", 1)]), "must be a dict"),
            ((pairs, {"unused": 2.0}), "Requested multiple of `None` gradient"),
        ):
            with pytest.raises(ValueError, match=text):
                impl.multiply_gradients(*wrong)
        return impl.multiply_gradients(pairs, {"dense": 10.0, "table": tf.constant(0.5)})

    dense, table = gradients_after(impl, transform)
    np.testing.assert_allclose(dense, [30.0, 30.0])
    np.testing.assert_allclose(table, np.full((2, 2), 2.0))


@pytest.mark.skipif(
    os.environ.get("FASTSUP_TEST_WORLD") != "v1", reason="a variable isn't a key under TensorFlow 2 behaviour"
)
def test_multipliers_by_variable(impl: Any, graph: Any) -> None:
    weight = v1.get_variable("w", [], initializer=v1.ones_initializer(), use_resource=True)
    pairs = v1.train.GradientDescentOptimizer(1.0).compute_gradients(2.0 * weight, [weight])
    ((gradient, _),) = impl.multiply_gradients(pairs, {weight: 3.0})
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        assert session.run(gradient) == 6.0


def test_updates_run_before_the_loss(impl: Any, graph: Any, tf_log: Any) -> None:
    moving = v1.get_variable("moving", [], trainable=False, initializer=v1.zeros_initializer(), use_resource=True)
    update = v1.assign_add(moving, 1.0)
    v1.add_to_collection(v1.GraphKeys.UPDATE_OPS, update)
    weight = v1.get_variable("w", [], initializer=v1.ones_initializer(), use_resource=True)
    optimizer = v1.train.GradientDescentOptimizer(0.1)
    train_op = impl.create_train_op(tf.square(weight), optimizer)
    without = impl.create_train_op(tf.square(weight), optimizer, global_step=None, update_ops=[])
    assert any("does not contain all the" in message for message in tf_log.messages)
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        session.run([train_op])
        session.run([train_op])
        session.run([without])
        assert session.run(moving) == 2.0
        assert session.run(v1.train.get_global_step()) == 2


def test_what_is_trained(impl: Any, graph: Any) -> None:
    weight = v1.get_variable("w", [], initializer=v1.ones_initializer(), use_resource=True)
    other = v1.get_variable("other", [], initializer=v1.ones_initializer(), use_resource=True)
    fixed = v1.get_variable("fixed", [], initializer=v1.ones_initializer(), trainable=False, use_resource=True)
    optimizer = v1.train.GradientDescentOptimizer(0.1)
    loss = tf.square(weight + other + fixed)
    train_op = impl.create_train_op(loss, optimizer, variables_to_train=[other])
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        session.run(train_op)
        assert session.run([weight, fixed]) == [1.0, 1.0]
        assert session.run(other) < 1.0
    for wrong in ([fixed], []):
        with pytest.raises(AssertionError):
            impl.create_train_op(loss, optimizer, variables_to_train=wrong)


def test_a_loss_that_is_nan(impl: Any, graph: Any) -> None:
    weight = v1.get_variable("w", [], initializer=v1.ones_initializer(), use_resource=True)
    loss = v1.log(-tf.square(weight))
    optimizer = v1.train.GradientDescentOptimizer(0.1)
    train_op = impl.create_train_op(loss, optimizer)
    unchecked = impl.create_train_op(loss, optimizer, check_numerics=False)
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        with pytest.raises(tf.errors.InvalidArgumentError, match="LossTensor is inf or nan"):
            session.run(train_op)
        assert np.isnan(session.run(unchecked))


@pytest.fixture
def trained(tmp_path: Path) -> str:
    """A directory with a checkpoint of the linear model, trained for a few steps."""
    with tf.Graph().as_default():
        train_op = training.create_train_op(loss_of(line()), v1.train.GradientDescentOptimizer(0.1))
        training.train(train_op, str(tmp_path), hooks=[v1.train.StopAtStepHook(last_step=20)])
    return str(tmp_path)


def metric() -> tuple[Any, Any]:
    v1.train.get_or_create_global_step()
    labels, predicted = line()
    fed = v1.placeholder_with_default(1.0, [], name="scale")
    return v1.metrics.mean_absolute_error(labels, predicted * fed)  # type: ignore[no-any-return]


def test_evaluate_once(impl: Any, graph: Any, trained: str) -> None:
    value, update = metric()
    count = v1.get_local_variable("count", [], initializer=v1.zeros_initializer(), use_resource=True)
    add = v1.assign_add(count, 1.0)
    v1.summary.scalar("mae", value)
    path = v1.train.latest_checkpoint(trained)
    for eval_ops in ([update, add], {"a": update, "b": add}):
        hooks = [impl.StopAfterNEvalsHook(4), impl.SummaryAtEndHook(os.path.join(trained, "eval"))]
        final = impl.evaluate_once(path, eval_ops=eval_ops, final_ops={"mae": value, "count": count}, hooks=hooks)
        assert final["count"] == 4
        assert 0 < final["mae"] < 1
    v1.summary.FileWriterCache.clear()
    assert tags(Path(trained) / "eval") == {"mae"}
    scale = graph.get_tensor_by_name("scale:0")
    fed = impl.evaluate_once(
        path, eval_ops=update, feed_dict={scale: 0.0}, final_ops=value, hooks=[impl.StopAfterNEvalsHook(1)]
    )
    assert fed == pytest.approx(4.0)
    assert impl.evaluate_once(path, final_ops=scale * 2.0, final_ops_feed_dict={scale: 5.0}) == 10.0
    assert impl.evaluate_once(path) is None


def test_evaluate_repeatedly(impl: Any, graph: Any, trained: str) -> None:
    value, update = metric()
    calls: list[bool] = []

    def has_ended() -> bool:
        calls.append(True)
        return len(calls) == 2

    def evaluate(**arguments: Any) -> Any:
        return impl.evaluate_repeatedly(
            trained, eval_ops=update, final_ops=value, hooks=[impl.StopAfterNEvalsHook(2)], eval_interval_secs=0,
            **arguments,
        )  # fmt: skip

    assert 0 < evaluate(max_number_of_evaluations=1) < 1
    assert 0 < evaluate(timeout=0, timeout_fn=has_ended) < 1
    assert len(calls) == 2
    assert 0 < evaluate(timeout=0) < 1
    nothing = os.path.join(trained, "nothing")
    assert impl.evaluate_repeatedly(nothing, final_ops=value, timeout=0) is None


def test_checkpoints_iterator(impl: Any, graph: Any, tmp_path: Path) -> None:
    weight = v1.get_variable("w", [], initializer=v1.ones_initializer(), use_resource=True)
    saver = v1.train.Saver([weight])
    folder = str(tmp_path)
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())

        def save() -> None:
            for step in (1, 2):
                time.sleep(0.3)
                with graph.as_default():
                    saver.save(session, os.path.join(folder, "model"), global_step=step)

        thread = threading.Thread(target=save)
        thread.start()
        found: list[str] = []
        for path in impl.checkpoints_iterator(folder, timeout=60):
            found.append(os.path.basename(path))
            if found[-1] == "model-2":
                break
        thread.join()
    assert found in (["model-1", "model-2"], ["model-2"])
    # Without a new one it ends.
    assert list(impl.checkpoints_iterator(folder, timeout=0)) == [os.path.join(folder, "model-2")]
    assert impl.wait_for_new_checkpoint(folder, os.path.join(folder, "model-2"), timeout=0) is None
    assert impl.wait_for_new_checkpoint(folder, timeout=0).endswith("model-2")


def test_hook_of_summaries_needs_a_place(impl: Any) -> None:
    with pytest.raises(ValueError, match="One of log_dir or summary_writer should be used"):
        impl.SummaryAtEndHook()


def test_eval_step(impl: Any, graph: Any) -> None:
    step = impl.get_or_create_eval_step()
    assert impl.get_or_create_eval_step() is step
    assert step.dtype.base_dtype == tf.int64
    assert step.op.name == "eval_step"
    assert [variable.op.name for variable in v1.local_variables()] == ["eval_step"]


def test_placement_on_parameter_servers(graph: Any) -> None:
    greedy = training.GreedyLoadBalancingStrategy(3, training.byte_size_load_fn)
    setter = v1.train.replica_device_setter(ps_tasks=3, ps_strategy=greedy)
    with v1.device(setter):
        made = [
            v1.get_variable(f"v{number}", shape, tf.float64, use_resource=resource)
            for number, (shape, resource) in enumerate(
                [([10], True), ([2], False), ([3], True), ([], True), ([5], False)]
            )
        ]
    assert [variable.device for variable in made] == [f"/job:ps/task:{task}" for task in (0, 1, 2, 1, 1)]
    assert list(greedy._ps_loads) == [80.0, 64.0, 24.0]
    by_hash = training.RandomStrategy(5, seed=2)
    expected = int(hashlib.md5(b"v0_2").hexdigest(), 16) % 5
    assert by_hash(made[0].op) == expected
    with pytest.raises(ValueError, match="must have a single output"):
        training.byte_size_load_fn(tf.no_op())


def test_a_tuner_has_both_methods() -> None:
    with pytest.raises(TypeError, match="next_trial"):
        training.Tuner()  # type: ignore[abstract]
