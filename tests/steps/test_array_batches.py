"""`fastsup.ArrayBatches`: every row once in an epoch, in an order that follows from the seed, from any position on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import fastsup
from fastsup.steps.rows import take_rows


def rows_of(batches: Any) -> list[list[int]]:
    return [batch.tolist() for batch in batches]


def test_gives_the_rows_in_their_order_as_tf_data_does() -> None:
    arrays = (
        np.arange(20.0).reshape(10, 2),
        {"label": np.arange(10), "name": np.array([str(i) for i in range(10)], object)},
    )
    ours = list(fastsup.ArrayBatches(arrays, 4))
    names = {"label": np.arange(10), "name": np.array([str(i) for i in range(10)])}
    theirs = list(tf.data.Dataset.from_tensor_slices((arrays[0], names)).batch(4).as_numpy_iterator())
    assert len(ours) == len(theirs) == 3
    for (x, named), (their_x, their_named) in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(x, their_x)
        assert x.dtype == their_x.dtype
        assert sorted(named) == sorted(their_named)
        np.testing.assert_array_equal(named["label"], their_named["label"])
        assert [name.encode() for name in named["name"]] == list(their_named["name"])


@given(
    rows=st.integers(1, 40),
    size=st.integers(1, 45),
    epochs=st.integers(1, 3),
    drop=st.booleans(),
    seed=st.none() | st.integers(0, 5),
    width=st.integers(0, 3),
    dtype=st.sampled_from(["float32", "int64", "bool", "uint8", "complex128"]),
)
@settings(deadline=None, max_examples=150)
def test_any_shape(rows: int, size: int, epochs: int, drop: bool, seed: int | None, width: int, dtype: str) -> None:
    if drop and size > rows:
        return
    numbers = np.arange(rows)
    wide = np.repeat(numbers[:, None], width, axis=1).astype(dtype)
    options: dict[str, Any] = {"shuffle": seed is not None, "seed": seed, "epochs": epochs, "drop_remainder": drop}
    batches = fastsup.ArrayBatches((numbers, wide), size, **options)
    seen = list(batches)
    per_epoch = rows // size if drop else -(-rows // size)
    assert len(seen) == epochs * per_epoch == epochs * batches.batches_per_epoch
    for x, y in seen:
        np.testing.assert_array_equal(np.repeat(x[:, None], width, axis=1).astype(dtype), y)
    for epoch in range(epochs):
        got = [number for x, _ in seen[epoch * per_epoch : (epoch + 1) * per_epoch] for number in x.tolist()]
        assert len(set(got)) == len(got) == (rows // size * size if drop else rows)
        assert seed is not None or got == sorted(got)
    # From any position on, and as blocks, the batches are the same.
    again = fastsup.ArrayBatches((numbers, wide), size, **options)
    again.position = len(seen) // 2
    for x, _ in seen[len(seen) // 2 :]:
        np.testing.assert_array_equal(next(again)[0], x)
    position = 0
    while position < len(seen):
        count = batches.full_batches_from(position, 5)
        block = [np.empty((5, size, *array.shape[1:]), array.dtype) for array in (numbers, wide)]
        batches.fill(block, position, count)
        for x, y in zip(seen[position : position + count], zip(*block, strict=True), strict=False):
            np.testing.assert_array_equal(x[0], y[0])
            np.testing.assert_array_equal(x[1], y[1])
        assert count > 0 or len(seen[position][0]) < size
        position += max(count, 1)


def test_orders() -> None:
    def orders(seed: int | None, epochs: int = 2) -> list[list[int]]:
        return rows_of(fastsup.ArrayBatches(np.arange(50), 50, shuffle=True, seed=seed, epochs=epochs))

    assert orders(3) == orders(3)
    assert orders(3) != orders(4)
    first, second = orders(3)
    assert first != second
    assert orders(None) != orders(None)


def test_all_orders_are_about_as_frequent() -> None:
    counts: dict[tuple[int, ...], int] = {}
    for batch in fastsup.ArrayBatches(np.arange(3), 3, shuffle=True, seed=7, epochs=6000):
        counts[tuple(batch.tolist())] = counts.get(tuple(batch.tolist()), 0) + 1
    assert len(counts) == 6
    # Each is a binomial of mean 1,000 and standard deviation 29.
    assert all(abs(count - 1000) < 150 for count in counts.values())


def test_a_batch_belongs_to_the_caller() -> None:
    data = np.arange(6.0)
    batches = fastsup.ArrayBatches(data, 3, epochs=None)
    first = next(batches)
    first[:] = -1
    assert data.tolist() == [0, 1, 2, 3, 4, 5]
    kept = next(batches)
    next(batches)
    assert kept.tolist() == [3, 4, 5]


def test_is_used_by_several_threads() -> None:
    from concurrent.futures import ThreadPoolExecutor

    batches = fastsup.ArrayBatches(np.arange(4000), 1, shuffle=True, epochs=1)
    with ThreadPoolExecutor(4) as threads:
        parts = list(threads.map(lambda _: [int(batch[0]) for batch in batches], range(4)))
    assert sorted(number for part in parts for number in part) == list(range(4000))


def test_a_checkpoint_has_the_position(tmp_path: Path) -> None:
    data = np.arange(100)
    batches = fastsup.ArrayBatches(data, 7, shuffle=True, epochs=3)
    for _ in range(20):
        next(batches)
    path = tf.train.Checkpoint(batches=batches).save(str(tmp_path / "ckpt"))
    rest = rows_of(batches)
    assert rest
    again = fastsup.ArrayBatches(data, 7, shuffle=True, epochs=3)
    next(again)
    tf.train.Checkpoint(batches=again).restore(path).assert_consumed()
    assert rows_of(again) == rest
    in_order = fastsup.ArrayBatches(data, 7, epochs=3)
    with pytest.raises(ValueError, match="shuffle must be True, as when the checkpoint was saved"):
        tf.train.Checkpoint(batches=in_order).restore(path)


def test_specs() -> None:
    batches = fastsup.ArrayBatches({"x": np.zeros([10, 3], np.float32), "y": np.zeros(10, np.int64)}, 4)
    assert batches.element_spec == {"x": tf.TensorSpec([None, 3]), "y": tf.TensorSpec([None], tf.int64)}
    assert batches.full_batch_spec == {"x": tf.TensorSpec([4, 3]), "y": tf.TensorSpec([4], tf.int64)}
    assert fastsup.ArrayBatches(np.zeros(8), 4).element_spec == tf.TensorSpec([4], tf.float64)
    assert (batches.rows, batches.batch_size, batches.batches_per_epoch) == (10, 4, 3)
    assert repr(batches) == "<fastsup.ArrayBatches of 10 rows, 4 a batch, at batch 0>"


def test_a_seed_without_shuffle(caplog: pytest.LogCaptureFixture) -> None:
    fastsup.ArrayBatches(np.zeros(4), 2, shuffle=True, seed=5)
    assert caplog.messages == []
    assert fastsup.ArrayBatches(np.zeros(4), 2, seed=5).seed is None
    assert caplog.messages == ["seed=5 has no effect without shuffle=True: the rows keep their order."]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (((), 3), ValueError, "arrays must hold at least one array"),
        ((np.zeros(0), 3), ValueError, "arrays must have at least one row, got 0"),
        ((5.0, 3), ValueError, "arrays must have a first dimension, which counts the rows; got 5.0"),
        (([[1, 2], [3, 4]], 2), ValueError, r"counts the rows; got 1\. For a list of rows, pass np\.asarray\(rows\)"),
        (((np.zeros(3), np.zeros(4)), 3), ValueError, "arrays must have as many rows as each other, got 3, 4"),
        ((np.zeros(3), 0), ValueError, "batch_size must be positive, got 0"),
        ((np.zeros(3), 2.5), TypeError, "batch_size must be an integer, got 2.5 of type float"),
        ((np.zeros(3), True), TypeError, "batch_size must be an integer, got True"),
    ],
)
def test_wrong_arrays(arguments: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        fastsup.ArrayBatches(*arguments)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"shuffle": 1}, TypeError, "shuffle must be True or False, got 1"),
        ({"shuffle": True, "seed": -1}, ValueError, "seed must not be negative, got -1"),
        ({"shuffle": True, "seed": "1"}, TypeError, "seed must be an integer or None, got '1' of type str"),
        ({"epochs": 0}, ValueError, "epochs must be positive, got 0"),
        ({"batch_size": 4, "drop_remainder": True}, ValueError, "batch_size must be at most the number of rows, 3"),
    ],
)
def test_wrong_options(options: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        fastsup.ArrayBatches(np.zeros(3), **{"batch_size": 2, **options})


@pytest.mark.parametrize(
    ("position", "error"), [(-1, ValueError), (3, ValueError), (1.0, TypeError), (True, TypeError)]
)
def test_wrong_positions(position: Any, error: Any) -> None:
    batches = fastsup.ArrayBatches(np.zeros(4), 2)
    with pytest.raises(error, match="position must"):
        batches.position = position
    batches.position = 2
    assert list(batches) == []


def test_rows_that_do_not_exist() -> None:
    to, source = np.zeros((2, 3), np.uint8), np.ones((4, 3), np.uint8)
    for rows in ([0, 4], [-1, 0]):
        with pytest.raises(ValueError, match="rows must lie between 0 and 3"):
            take_rows(to, source, np.array(rows))
    assert not to.any()
    with pytest.raises(ValueError, match="3 rows of 3 bytes don't fit into 2 rows of 3 bytes"):
        take_rows(to, source, np.array([0, 1, 2]))
    take_rows(to, source, np.array([3, 0]))
    assert to.all()
