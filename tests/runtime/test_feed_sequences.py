"""Runs with feeds that follow each other in one session: every one is fed what it was given, and nothing else."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorflow.python.client import session as session_module

tf1 = tf.compat.v1


def test_a_placeholder_fed_and_then_not(alike: Any) -> None:
    def program(new_session: Any, attempt: Any) -> None:
        x = tf1.placeholder(tf.float32, [None, 2], name="x")
        z = tf1.placeholder_with_default([[5.0, 5.0]], [None, 2], name="z")
        y = tf.add(x, z, name="y")
        with new_session() as session:
            for _ in range(3):
                attempt(session.run, y)
                attempt(session.run, y, {x: [[1.0, 2.0]]})
                attempt(session.run, y, {})
                attempt(session.run, y, {z: [[1.0, 2.0]]})
                attempt(session.run, y, {z: [[1.0, 2.0]], x: [[3.0, 4.0]]})
                attempt(session.run, [y, x])
                attempt(session.run, {"z": z})

    notes = alike(program)
    missing, fed = "InvalidArgumentError", ""
    assert notes.errors == [missing, fed, missing, missing, fed, missing, fed] * 3
    assert "You must feed a value for placeholder tensor 'x'" in notes.texts[0]


def test_orders_of_the_feeds(alike: Any) -> None:
    """Each order of a dictionary's keys is another plan, or the same one: the values follow their keys."""

    def program(new_session: Any, attempt: Any) -> None:
        x, y, z = (tf1.placeholder(tf.int32, [], name=name) for name in "xyz")
        number = x + 10 * y + 100 * z
        orders = [(x, y, z), (z, y, x), (y, x, z), ("x:0", y, z), (z, "y:0", "x:0")]
        with new_session() as session:
            for i in range(30):
                keys = orders[i % len(orders)]
                attempt(session.run, number, {key: i + place for place, key in enumerate(keys)})
                attempt(session.run, [number], {key: i + place for place, key in enumerate(reversed(keys))})

    assert not any(alike(program).errors)


def test_dictionaries_changed_between_runs(alike: Any) -> None:
    def program(new_session: Any, attempt: Any) -> None:
        x, y = (tf1.placeholder(tf.int32, name=name) for name in "xy")
        total = x - y
        tf.constant(1.5, name="constant")
        feeds: dict[Any, Any] = {x: 1, y: 2}
        with new_session() as session:
            attempt(session.run, total, feeds)
            feeds[x] = 5
            attempt(session.run, total, feeds)
            del feeds[y]
            attempt(session.run, total, feeds)
            feeds["y:0"] = [7]
            attempt(session.run, total, feeds)
            feeds[total] = 3
            attempt(session.run, [total], feeds)
            feeds.clear()
            attempt(session.run, "constant:0", feeds)
            feeds.update({y: 2, x: 1})
            attempt(session.run, total, feeds)

    assert alike(program).errors == ["", "", "InvalidArgumentError", "", "", "", ""]


def test_good_values_after_bad_ones(alike: Any) -> None:
    def program(new_session: Any, attempt: Any) -> None:
        x = tf1.placeholder(tf.float32, [2], name="x")
        y = tf.identity(x)
        bad = [[1.0], "text", [1, "a"], object(), y, [[1.0], [2.0, 3.0]], 2**24 + 1, np.zeros([3])]
        with new_session() as session:
            for _ in range(2):
                for value in bad:
                    attempt(session.run, y, {x: value})
                    attempt(session.run, y, {x: [1, 2]})

    errors = alike(program).errors
    assert all(errors[::2])
    assert not any(errors[1::2])


def test_which_error_comes_first(alike: Any) -> None:
    """Of several mistakes the same one is reported, whichever of the two had been seen before."""

    def program(new_session: Any, attempt: Any) -> None:
        x, y = (tf1.placeholder(tf.float32, [2], name=name) for name in "xy")
        total = tf.add(x, y, name="total")
        good, short, text = [1.0, 2.0], [1.0], ["a", "b"]
        with new_session() as session:
            for _ in range(3):
                attempt(session.run, total, {x: good, y: good})
                attempt(session.run, total, {x: short, y: text})
                attempt(session.run, total, {y: text, x: short})
                attempt(session.run, total, {x: good, y: short})
                attempt(session.run, [total, None], {x: short, y: good})
                attempt(session.run, [total, None], {x: good, y: good})
                attempt(session.run, "nothing:0", {"nowhere:0": good})
                attempt(session.run, total, {x: short, "nowhere:0": good})
                attempt(session.run, total, {"nowhere:0": good, x: short})
                attempt(session.run, total, {x: short})
        attempt(session.run, "nothing:0", {"nowhere:0": good})

    assert all(error or i % 10 == 0 for i, error in enumerate(alike(program).errors))


def test_prevented_after_a_run(alike: Any) -> None:
    """What may be fed and fetched can change while plans exist that feed and fetch it."""

    def program(new_session: Any, attempt: Any) -> None:
        graph = tf1.get_default_graph()
        x = tf1.placeholder(tf.float32, [], name="x")
        doubled = tf.multiply(x, 2.0, name="doubled")
        y = tf.identity(doubled, name="y")
        shape = tf1.placeholder_with_default(np.array([3]), [1])
        sparse = tf.SparseTensor([[0]], tf.reshape(doubled, [1]), shape)
        with new_session() as session:

            def attempt_all() -> None:
                attempt(session.run, y, {x: 1.0})
                attempt(session.run, [y], {doubled: 1.0})
                attempt(session.run, [y, "doubled:0"], {"x:0": 1.0})
                attempt(session.run, doubled.op, {x: 1.0})
                attempt(session.run, sparse, {x: 1.0})
                attempt(session.run, [y], {sparse: ([[0]], [1.0], [3]), x: 2.0})

            attempt_all()
            graph.prevent_feeding(doubled)
            attempt_all()
            graph.prevent_fetching(doubled.op)
            attempt_all()
            graph.prevent_fetching(sparse.values.op)
            attempt_all()
            graph.prevent_feeding(x)
            attempt_all()

    errors = alike(program).errors
    assert errors[:6] == [""] * 6
    assert errors[6:12] == ["", "ValueError", "", "", "", ""]
    assert errors[12:18] == ["", "ValueError", "InaccessibleTensorError", "InaccessibleTensorError", "", ""]
    assert errors[18:24] == ["", "ValueError"] + ["InaccessibleTensorError"] * 3 + [""]
    assert set(errors[24:]) == {"ValueError"}


def test_queues_keep_what_was_fed(alike: Any) -> None:
    """The arrays are gone, and their memory is used again, when the queue gives them back."""

    def program(new_session: Any, attempt: Any) -> None:
        x = tf1.placeholder(tf.float64, [100], name="x")
        queue = tf1.FIFOQueue(50, [tf.float64, tf.string], [[100], [100]])
        put = queue.enqueue((x, tf.strings.as_string(x)))
        take = queue.dequeue()
        with new_session() as session:
            for i in range(50):
                session.run(put, {x: np.full([100], i, np.float64)})
                np.full([100], -1.0)
            for _ in range(50):
                attempt(session.run, take)

    assert not any(alike(program).errors)


class Halves:
    def __init__(self, left: tf.Tensor, right: tf.Tensor) -> None:
        self.left, self.right = left, right


def test_conversions_of_the_program(alike: Any, expansions: list[Any]) -> None:
    before = list(expansions)

    def program(new_session: Any, attempt: Any) -> None:
        expansions[:] = before
        halves = Halves(*(tf1.placeholder(tf.float32, name=name) for name in ("left", "right")))
        whole = halves.left - halves.right
        with new_session() as session:
            attempt(session.run, whole, {halves.left: 1, halves.right: 2})
            attempt(session.run, whole, {halves: [3.0, 1.0]})
            session_module.register_session_run_conversion_functions(
                Halves,
                lambda fetch: ([fetch.left, fetch.right], tuple),
                lambda feed, value: [(feed.left, value[0]), (feed.right, value[1])],
            )
            for i in range(3):
                attempt(session.run, whole, {halves: [i, 1.0]})
                attempt(session.run, [halves, whole], {halves: [i, 2.0]})
                attempt(session.run, [halves, whole], {halves.right: i, halves.left: 7})
                attempt(session.run, halves, {halves: ["a", 2.0]})

    assert alike(program).errors == ["", "TypeError", *["", "", "", "ValueError"] * 3]


CASES = st.tuples(
    st.lists(st.sampled_from(["x", "y", "z", "xy", "total"]), max_size=4, unique=True),
    st.sampled_from(["name", "tensor"]),
    st.sampled_from([0, 1, 2, 3, 4]),
    st.sampled_from([1, 2.5, True, [1.0, 2.0], [[1.0]], np.float64(3.5), np.array([1, 2], np.int16), "no", None]),
)


@pytest.mark.slow
@settings.get_profile("sequences of runs")
@given(cases=st.lists(CASES, min_size=10, max_size=20))
def test_any_feeds_in_any_order(both: Any, described: Any, room_for: Any, cases: list[Any]) -> None:
    """Intermediate results are fed too, so that what has to be fed depends on what is fed and what is fetched."""
    with tf.Graph().as_default():
        tensors = collections.OrderedDict((name, tf1.placeholder(tf.float32, name=name)) for name in "xy")
        tensors["z"] = tf1.placeholder_with_default(10.0, [], name="z")
        tensors["xy"] = tf.multiply(tensors["x"], tensors["y"], name="xy")
        tensors["total"] = tf.add(tensors["xy"], tensors["z"], name="total")
        fetches: list[Any] = ["total:0", list(tensors.values()), {"xy": tensors["xy"]}, tensors["z"], ["xy", "total:0"]]

        def outcome(session: Any, keys: list[str], by: str, fetch: int, value: Any) -> Any:
            feeds = {tensors[key] if by == "tensor" else f"{key}:0": value for key in keys}
            try:
                return described(session.run(fetches[fetch], feeds))
            except tf.errors.OpError as error:
                return type(error)  # Of several placeholders that aren't fed, any may be the one that is named.
            except (TypeError, ValueError) as error:
                return type(error), str(error)

        room_for(4)
        with both.tensorflow.Session() as reference, both.fastsup.Session() as session:
            for case in [*cases, *cases]:
                expected, found = (outcome(one, *case) for one in (reference, session))
                assert found == expected
