"""Errors in the single-threaded executor: they name the operation and its line, as TensorFlow's do."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import fastsup

v1 = tf.compat.v1

pytestmark = pytest.mark.skipif(
    os.environ.get("FASTSUP_TEST_WORLD") == "v1", reason="the executor refuses reference variables and old control flow"
)

HINT = (
    '(The single-threaded executor doesn\'t name the operation. To see it, run again with executor="inline", an '
    "argument of sessions and of RunConfig.)"
)
BAD = {}


def bad(build: Any) -> Any:
    """Marks a function that builds a graph, and returns the fetches and feeds of a run that fails."""
    BAD[build.__name__] = build
    return build


def fed(shape: Any = None, dtype: Any = tf.float32) -> Any:
    return v1.placeholder(dtype, shape)


@bad
def an_addition():
    x, y = fed(), fed()
    z = tf.add(x + 1.0, y, name="sum") * 2.0
    return [z], {x: [1.0, 2.0, 3.0], y: [1.0, 2.0, 3.0, 4.0]}


@bad
def a_product_of_matrices():
    x = fed([None, None])
    return tf.matmul(x, tf.ones([4, 2]), name="product"), {x: np.ones([2, 3])}


@bad
def numbers_that_are_none():
    x = fed([])
    y = tf.debugging.check_numerics(tf.math.log(x), "the logarithm", name="checked")
    return {"y": y}, {x: -1.0}


@bad
def an_index_out_of_range():
    x = fed([None], tf.int32)
    return tf.gather(tf.constant([1.0, 2.0, 3.0]), x, name="gathered") + 1.0, {x: [0, 7]}


@bad
def a_row_of_a_variable():
    x = fed([None], tf.int32)
    table = v1.get_variable("table", [5, 2])
    return tf.nn.embedding_lookup(table, x, name="looked_up"), {x: [5]}


def an_assertion():
    x = fed([])
    with tf.control_dependencies([v1.Assert(x < 1.0, ["too large:", x], name="check")]):
        return tf.identity(x, name="behind"), {x: 5.0}


@bad
def a_reshape():
    x = fed()
    return tf.reshape(x, [2, 2], name="reshaped"), {x: [1.0, 2.0, 3.0]}


@bad
def a_concatenation():
    x = fed([2, None])
    return tf.concat([x, tf.ones([1, 3])], 0, name="joined"), {x: np.ones([2, 4])}


@bad
def a_placeholder_that_is_not_fed():
    x = v1.placeholder(tf.float32, [2, None], name="x")
    return tf.identity(x, name="y"), None


@bad
def a_variable_that_is_not_initialised():
    v = v1.get_variable("v", initializer=1.0, collections=[])
    return v + 1.0, None


@bad
def the_end_of_an_iterator():
    return v1.data.make_one_shot_iterator(tf.data.Dataset.range(0)).get_next(name="next") + 1, None


@bad
def an_iterator_that_is_not_initialised():
    return v1.data.make_initializable_iterator(tf.data.Dataset.range(2)).get_next(name="next"), None


@bad
def a_text_that_is_no_number():
    x = fed(dtype=tf.string)
    return tf.strings.to_number(x, name="number"), {x: "seven"}


@bad
def an_image_that_is_none():
    x = fed([], tf.string)
    return tf.io.decode_png(x, name="image"), {x: b"nothing"}


@bad
def bytes_of_the_wrong_length():
    x = fed([None], tf.string)
    return tf.io.decode_raw(x, tf.int32, name="raw"), {x: [b"12345"]}


@bad
def a_slice():
    x = fed([None])
    return tf.slice(x, [2], [5], name="slice"), {x: [1.0, 2.0, 3.0]}


@bad
def an_element_of_too_short_a_vector():
    x = fed([None])
    return x[7], {x: [1.0, 2.0, 3.0]}


@bad
def a_label_out_of_range():
    labels = fed([None], tf.int32)
    logits = tf.ones([2, 3])
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits, name="loss"), {labels: [1, 3]}


@bad
def a_table_that_is_not_initialised():
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a"], [1]), -1, name="table")
    return table.lookup(tf.constant(["a"]), name="found"), None


@bad
def a_file_that_is_not_there():
    return tf.io.read_file("no/such/file", name="contents"), None


@bad
def a_division_by_zero():
    x = fed([], tf.int32)
    return v1.div(tf.constant([1, 2]), x, name="quotient"), {x: 0}


@bad
def a_checkpoint_that_is_not_there():
    v1.get_variable("v", initializer=1.0)
    saver = v1.train.Saver()
    return saver.saver_def.restore_op_name, {saver.saver_def.filename_tensor_name: "no/such/checkpoint"}


def an_update_behind_a_failing_loss():
    """The step has an effect, but not before it fails."""
    x, y = fed([None]), fed([None])
    w = v1.get_variable("w", initializer=2.0)
    loss = tf.reduce_sum(tf.subtract(w * x, y, name="difference") ** 2)
    return [v1.train.GradientDescentOptimizer(0.1).minimize(loss), loss], {x: [1.0, 2.0], y: [1.0, 2.0, 3.0]}


def described(new_session: Any, build: Any, **kwargs: Any) -> tuple[Any, ...]:
    with tf.Graph().as_default():
        fetches, feeds = build()
        init = v1.global_variables_initializer()
        with new_session(**kwargs) as session:
            session.run(init)
            errors = []
            for _ in range(2):
                with pytest.raises(tf.errors.OpError) as raised:
                    session.run(fetches, feeds)
                error = raised.value
                errors.append((type(error), error.op and error.op.name, str(error.node_def), error.message))
    assert errors[0] == errors[1]
    return errors[0]


@pytest.mark.parametrize("build", BAD.values(), ids=BAD.keys())
def test_the_same_error_as_tensorflows(build: Any) -> None:
    expected, error = (
        described(new_session, build, **kwargs)
        for new_session, kwargs in ((v1.Session, {}), (fastsup.Session, {"executor": "single_threaded"}))
    )
    assert error[:3] == expected[:3]
    assert error[1] is not None
    assert error[3] == expected[3]


@pytest.mark.parametrize(
    ("build", "name"), [(an_assertion, "check/AssertGuard"), (an_update_behind_a_failing_loss, "difference")]
)
def test_what_tensorflow_says_differently(build: Any, name: str) -> None:
    """TensorFlow names an operation that the graph doesn't have; or of two that fail, whichever is first."""
    kind, op, _, message = described(fastsup.Session, build, executor="single_threaded")
    assert kind is tf.errors.InvalidArgumentError
    assert op == name
    assert f"Detected at node '{name}' defined at" in message
    assert f"in {build.__name__}" in message


def from_a_dataset(elements: Any, batch_size: int = 2) -> Any:
    dataset = tf.data.Dataset.from_tensor_slices(elements).batch(batch_size)
    return v1.data.make_one_shot_iterator(dataset).get_next(name="next")


def a_sum_of_elements():
    x = from_a_dataset(tf.ones([5]), 3)
    return tf.add(tf.abs(x), tf.ones([3]), name="sum")


def a_loss_of_elements_that_is_none():
    x = from_a_dataset([1.0, 2.0, -3.0, 1.0])
    return tf.debugging.check_numerics(tf.math.log(x), "the logarithm", name="checked")


@pytest.mark.parametrize("build", [a_sum_of_elements, a_loss_of_elements_that_is_none])
def test_computed_from_an_iterator(graph: Any, build: Any) -> None:
    """The element is gone: nothing is guessed, and the message says how to see the operation."""
    fetches = build()
    init = v1.global_variables_initializer()
    with fastsup.Session(executor="single_threaded") as session:
        session.run(init)
        session.run(fetches)
        with pytest.raises(tf.errors.InvalidArgumentError) as raised:
            session.run(fetches)
        # The search has taken no element.
        with pytest.raises(tf.errors.OutOfRangeError):
            session.run(fetches)
    assert raised.value.op is None
    assert raised.value.message.endswith(HINT)


def a_number_of_a_variable_that_has_changed():
    w = v1.get_variable("w", initializer=1.0, use_resource=True)
    before = w.read_value()
    with tf.control_dependencies([before]):
        changed = w.assign(5.0)
    return [tf.debugging.check_numerics(tf.math.log(before - 1.0), "loss", name="checked"), changed], {}


def a_sum_with_a_variable_that_has_changed():
    v = tf.Variable(tf.ones([2]), shape=tf.TensorShape(None), name="v")
    x = fed()
    before = v.read_value()
    with tf.control_dependencies([before]):
        changed = v.assign(x, read_value=False)
    return [tf.add(before, x, name="sum"), changed], {x: [1.0, 2.0, 3.0]}


@pytest.mark.parametrize("build", [a_number_of_a_variable_that_has_changed, a_sum_with_a_variable_that_has_changed])
def test_behind_a_variable_that_the_step_changes(graph: Any, build: Any) -> None:
    """When the search begins, the variable has its new value, with which the operation doesn't fail."""
    fetches, feeds = build()
    with fastsup.Session(executor="single_threaded") as session:
        session.run(v1.global_variables_initializer())
        with pytest.raises(tf.errors.InvalidArgumentError) as raised:
            session.run(fetches, feeds)
    assert raised.value.op is None
    assert raised.value.message.endswith(HINT)


def test_an_update_of_a_variable_that_is_not_initialised(graph: Any) -> None:
    u = v1.get_variable("u", initializer=1.0, use_resource=True)
    update = u.assign_add(1.0, read_value=False)
    with fastsup.Session(executor="single_threaded") as session:
        with pytest.raises(tf.errors.OpError) as raised:
            session.run(update)
    assert raised.value.op is update


def test_no_effect_comes_twice(graph: Any) -> None:
    """Variables, random numbers and iterators stand where one run leaves them."""
    v1.set_random_seed(37)
    x = fed([None])
    w = v1.get_variable("w", initializer=0.0)
    number = tf.random.uniform([], seed=1)
    element = v1.data.make_one_shot_iterator(tf.data.Dataset.range(10)).get_next()
    with tf.control_dependencies([w.assign_add(1.0), number, element]):
        behind = tf.add(x, [1.0, 2.0], name="behind")
    before = tf.add(tf.reshape(x, [3]), 1.0)
    init = v1.global_variables_initializer()
    with fastsup.Session(executor="single_threaded") as session:
        session.run(init)
        runs = 0
        for fetches in (behind, [behind, before], [number, before]):
            with pytest.raises(tf.errors.InvalidArgumentError):
                session.run(fetches, {x: [1.0, 2.0, 3.0, 4.0]})
            runs += 1
        assert session.run(w) <= runs
        # Each run has taken one element at most.
        assert session.run(element) <= runs


def test_a_function(graph: Any) -> None:
    @tf.function
    def divide(x: Any) -> Any:
        return v1.div(10, x, name="quotient")

    x = fed([], tf.int32)
    y = divide(x)
    with fastsup.Session(executor="single_threaded") as session:
        with pytest.raises(tf.errors.InvalidArgumentError) as raised:
            session.run(y, {x: 0})
    assert "{{node" in raised.value.message or "[[node" in raised.value.message


def test_a_save_that_fails(graph: Any, tmp_path: Any) -> None:
    v1.get_variable("v", initializer=1.0)
    saver = v1.train.Saver()
    init = v1.global_variables_initializer()
    (tmp_path / "file").write_text("")
    with fastsup.Session(executor="single_threaded") as session:
        session.run(init)
        with pytest.raises(tf.errors.OpError) as raised:
            session.run(
                saver.saver_def.save_tensor_name, {saver.saver_def.filename_tensor_name: str(tmp_path / "file/x")}
            )
    assert "executor=" not in raised.value.message


def test_a_key_that_the_checkpoint_lacks(impl: Any, graph: Any, tmp_path: Any) -> None:
    v1.get_variable("v", initializer=1.0)
    init = v1.global_variables_initializer()
    settings = {"executor": "single_threaded"} if impl.name == "fastsup" else {}
    with impl.Session(**settings) as session:
        session.run(init)
        path = v1.train.Saver().save(session, str(tmp_path / "model"))
    v1.get_variable("more", initializer=1.0)
    saver = v1.train.Saver()
    with impl.Session(**settings) as session:
        with pytest.raises(tf.errors.NotFoundError, match="Key more not found in checkpoint") as raised:
            saver.restore(session, path)
    assert "RestoreV2" in raised.value.message
    assert "executor=" not in raised.value.message


def test_a_search_changes_nothing(graph: Any) -> None:
    """What an operation waits for may have an effect: the operation isn't tried again on its own then."""
    index = fed([], tf.int32)
    steps, total = (v1.get_variable(name, initializer=0.0, use_resource=True) for name in ("steps", "total"))
    with tf.control_dependencies([steps.assign_add(1.0)]):
        gathered = tf.gather(tf.constant([1.0, 2.0, 3.0]), index)
    changed = total.assign_add(gathered, read_value=False)
    with tf.control_dependencies([changed]):
        result = tf.identity(gathered)
    with fastsup.Session(executor="single_threaded") as session:
        session.run(v1.global_variables_initializer())
        with pytest.raises(tf.errors.InvalidArgumentError, match="indices = 9 is not in"):
            session.run(result, {index: 9})
        assert session.run([steps, total]) == [1.0, 0.0]


def test_what_is_no_operations_error(graph: Any) -> None:
    taken = v1.FIFOQueue(3, tf.float32, [[]], name="queue").dequeue()
    with fastsup.Session(executor="single_threaded") as session:
        closer = threading.Timer(0.3, session.close)
        closer.start()
        with pytest.raises((tf.errors.CancelledError, RuntimeError)) as raised:
            session.run(taken)
        closer.join()
    assert "executor=" not in str(raised.value)


def test_a_session_does_not_search_for_ever(graph: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever leaves failing steps out goes on."""
    x = fed([None])
    y = tf.reshape(x, [2])
    with fastsup.Session(executor="single_threaded") as session:
        texts = []
        for i in range(2):
            with pytest.raises(tf.errors.InvalidArgumentError) as raised:
                session.run(y, {x: np.ones(i + 3)})
            texts.append(raised.value.message)
            monkeypatch.setattr("fastsup.runtime.errors._MOST_SEARCH_SECS", 0.0)
    assert "[[{{node Reshape}}]]" in texts[0]
    assert "[[" not in texts[1]
    assert "doesn't name the operation. To see it, run again with executor=" in texts[1]


def test_every_way_to_run(graph: Any) -> None:
    x, y = fed([None]), fed([None])
    z = tf.add(x, y, name="sum")
    feeds = {x: [1.0, 2.0], y: [1.0, 2.0, 3.0]}
    with fastsup.Session(executor="single_threaded") as session:
        ways = [
            lambda: session.run(z, feeds),
            lambda: session.run([z], feeds, options=v1.RunOptions(report_tensor_allocations_upon_oom=True)),
            lambda: session.make_callable(z, [x, y])(*feeds.values()),
        ]
        for way in ways:
            with pytest.raises(tf.errors.InvalidArgumentError) as raised:
                way()
            assert raised.value.op is z.op


def test_a_monitored_session(graph: Any) -> None:
    x = fed([None])
    z = tf.add(x, [1.0, 2.0, 3.0], name="sum")
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        with fastsup.train.MonitoredSession() as session:
            assert session.raw_session().executor == "single_threaded"
            session.run(z, {x: [1.0, 2.0]})
    assert raised.value.op is z.op
