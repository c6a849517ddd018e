"""Runs that follow each other in one session: what one fetched must never show in what another gets."""

from __future__ import annotations

import collections
from typing import Any

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorflow.python.client import session as session_module

tf1 = tf.compat.v1


def constants(count: int) -> list[tf.Tensor]:
    return [tf.constant([i, i], name=f"c{i}") for i in range(count)]


def test_lists_changed_between_runs(alike: Any) -> None:
    def program(new_session: Any, attempt: Any) -> None:
        a, b, c = constants(3)
        inner = [a]
        fetches = [inner, b]
        with new_session() as session:
            attempt(session.run, fetches)
            fetches[1] = c
            attempt(session.run, fetches)
            inner[0] = b
            attempt(session.run, fetches)
            fetches.append(a)
            attempt(session.run, fetches)
            inner.clear()
            attempt(session.run, fetches)
            fetches.reverse()
            attempt(session.run, fetches)
            inner.append(None)
            attempt(session.run, fetches)
            inner[0] = (b, {"c": c})
            attempt(session.run, fetches)

    assert alike(program).errors == ["", "", "", "", "", "", "TypeError", ""]


@pytest.mark.parametrize("kind", [dict, collections.OrderedDict])
def test_dictionaries_changed_between_runs(alike: Any, kind: type) -> None:
    def program(new_session: Any, attempt: Any) -> None:
        a, b, c = constants(3)
        fetches = kind(x=a, y=b)
        with new_session() as session:
            attempt(session.run, fetches)
            fetches["x"] = c
            attempt(session.run, fetches)
            fetches["x"] = fetches.pop("x")  # Now the last one.
            attempt(session.run, fetches)
            fetches["z"] = {"x": a}
            attempt(session.run, fetches)
            fetches["z"]["x"] = b
            attempt(session.run, fetches)
            del fetches["y"]
            attempt(session.run, fetches)

    assert alike(program).errors == [""] * 6


def test_structures_that_look_alike(alike: Any) -> None:
    """The same leaves in the same order, in other containers or under other keys."""

    def program(new_session: Any, attempt: Any) -> None:
        a, b = constants(2)
        pair = collections.namedtuple("pair", "x y")
        other_pair = collections.namedtuple("pair", "x y")
        with new_session() as session:
            for _ in range(2):
                for fetches in (
                    [a, b],
                    (a, b),
                    pair(a, b),
                    other_pair(a, b),
                    {"x": a, "y": b},
                    {"y": a, "x": b},
                    {"x": b, "y": a},
                    collections.OrderedDict(x=a, y=b),
                    [[a, b]],
                    [[a], b],
                    [a, [b]],
                    [[a], [b]],
                    [a, b, []],
                    [[], a, b],
                    ["c0:0", "c1:0"],
                    ["c0", "c1"],
                    {"x": "c0:0", "y": "c1:0"},
                    {"c0:0": a, "c1:0": b},
                    {a.name: {b.name: a}},
                    [a.op, b],
                    [a, b.op],
                    a,
                    [a],
                    (a,),
                    {0: a},
                    {1: a},
                ):
                    attempt(session.run, fetches)

    assert not any(alike(program).errors)


def test_keys_that_are_equal_but_not_the_same(alike: Any) -> None:
    """A result has the keys of its own fetch: 1, True, 1.0 and numpy's 1 are equal, and so are tuples of them."""

    def program(new_session: Any, attempt: Any) -> None:
        a, b = constants(2)
        with new_session() as session:
            for key in (1, True, 1.0, 1 + 0j, 0, False, 0.0, -0.0, (1, 2), (True, 2.0), (1.0, 2), (0.0,), (-0.0,)):
                attempt(session.run, {key: a, "b": b})
                attempt(session.run, [{"x": {key: a}}])
            for key in ("name", b"name"):
                attempt(session.run, {key: a})

    notes = alike(program)
    assert len({str(noted) for noted in notes}) == len(notes), "each of these results is different from the others"


def test_short_lived_elements(impl: Any, graph: tf.Graph) -> None:
    """An address is used again once its object is gone: a plan must not be taken for that of the object before."""
    first = [tf.constant([[0, i]], tf.int64) for i in range(3)]
    second = [tf.constant([float(i)]) for i in range(5)]
    shape = tf.constant([9, 9], tf.int64)
    addresses: collections.Counter[int] = collections.Counter()
    with impl.Session() as session:
        for i in range(300):
            sparse = tf.SparseTensor(first[i % 3], second[i % 5], shape)
            addresses[id(sparse)] += 1
            value = session.run(sparse if i % 2 else [sparse])
            value = value if i % 2 else value[0]
            assert value.indices.tolist() == [[0, i % 3]]
            assert value.values.tolist() == [float(i % 5)]
            del sparse, value


def test_short_lived_lists(impl: Any, graph: tf.Graph) -> None:
    parts = constants(7)
    with impl.Session() as session:
        for i in range(500):
            a, b = i % 7, i * 3 % 5
            assert [value.tolist() for value in session.run([parts[a], parts[b]])] == [[a, a], [b, b]]
            assert session.run(parts[a])[0] == a
            assert session.run({"x": [parts[b]]})["x"][0][0] == b


class Doubled:
    def __init__(self, tensor: tf.Tensor) -> None:
        self.tensor = tensor


class DoubledTwice(Doubled):
    pass


def test_conversions_of_the_program(alike: Any, expansions: list[Any]) -> None:
    """Types get their conversion while sessions that have refused them are open."""
    before = list(expansions)

    def program(new_session: Any, attempt: Any) -> None:
        expansions[:] = before
        (a,) = constants(1)
        doubled, twice = Doubled(a), DoubledTwice(a)
        sparse = tf.SparseTensor([[0]], [1.5], [3])
        with new_session() as session:
            attempt(session.run, sparse)
            attempt(session.run, [doubled])
            session_module.register_session_run_conversion_functions(
                Doubled, lambda fetch: ([fetch.tensor], lambda values: ("doubled", values[0] * 2))
            )
            for _ in range(3):
                attempt(session.run, [doubled, a])
                attempt(session.run, doubled)
                attempt(session.run, {"twice": twice})
            session_module.register_session_run_conversion_functions(
                DoubledTwice, lambda fetch: ([fetch.tensor, a], lambda values: [value * 4 for value in values])
            )
            for _ in range(3):
                attempt(session.run, {"twice": twice, "once": doubled})
                attempt(session.run, sparse)

    assert alike(program).errors == ["", "TypeError"] + [""] * 15


def test_conversion_of_a_type_that_had_another(alike: Any, expansions: list[Any]) -> None:
    """The newest registration wins, also over plans made before it."""
    before = list(expansions)

    def program(new_session: Any, attempt: Any) -> None:
        expansions[:] = before
        sparse = tf.SparseTensor([[0]], [1.5], [3])
        with new_session() as session:
            for _ in range(3):
                attempt(session.run, [sparse])
            expansions.insert(
                0, (tf.SparseTensor, lambda fetch: ([fetch.values], lambda values: values[0] * 10), None, None)
            )
            for _ in range(3):
                attempt(session.run, [sparse])

    notes = alike(program)
    assert notes[0] != notes[3]


LEAVES = ["c0:0", "c1", 0, 1, 2, 3, 4]
STRUCTURES = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.sampled_from(["c0:0", "x", 0, 1, True, 1.0, None, (1,), (True,)]), inner, max_size=3)
    ),
    max_leaves=8,
)


@pytest.mark.slow
@settings.get_profile("sequences of runs")
@given(structures=st.lists(STRUCTURES, min_size=12, max_size=24))
def test_any_structures_in_any_order(both: Any, described: Any, room_for: Any, structures: list[Any]) -> None:
    with tf.Graph().as_default():
        a, b, c = constants(3)
        elements: list[Any] = [a, b, c.op, tf.SparseTensor([[0]], [1.5], [3]), tf.no_op()]

        def written(structure: Any) -> Any:
            if isinstance(structure, (list, tuple)):
                return type(structure)(written(item) for item in structure)
            if isinstance(structure, dict):
                return {key: written(item) for key, item in structure.items()}
            return structure if isinstance(structure, str) else elements[structure]

        room_for(8)
        with both.tensorflow.Session() as reference, both.fastsup.Session() as session:
            for structure in [*structures, *structures]:
                expected = described(reference.run(written(structure)))
                assert described(session.run(written(structure))) == expected
