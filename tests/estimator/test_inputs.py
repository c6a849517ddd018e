"""numpy_input_fn and pandas_input_fn: what they give, and what they refuse."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
import pandas
import pytest
import tensorflow as tf

from fastsup import train
from fastsup.estimator.inputs import numpy_input_fn, pandas_input_fn

v1 = tf.compat.v1

A = np.arange(5)
B = np.arange(10.0).reshape(5, 2)


def batches(input_fn: Any, limit: int = 100) -> list[Any]:
    """What an input_fn gives until its end, as lists."""
    found = []
    with tf.Graph().as_default():
        v1.train.create_global_step()
        fetches = input_fn()
        with train.MonitoredSession() as session:
            for _ in range(limit):
                values = session.run(fetches)
                found.append(tf.nest.map_structure(lambda value: value.tolist(), values))
    return found


def test_arrays_in_order() -> None:
    found = batches(numpy_input_fn({"a": A, "b": B}, -A, batch_size=2, shuffle=False))
    assert [features["a"] for features, _ in found] == [[0, 1], [2, 3], [4]]
    assert found[0][0]["b"] == [[0.0, 1.0], [2.0, 3.0]]
    assert [labels for _, labels in found] == [[0, -1], [-2, -3], [-4]]


def test_epochs_run_into_each_other() -> None:
    found = batches(numpy_input_fn(A, batch_size=2, num_epochs=3, shuffle=False))
    assert list(chain(*found)) == [*range(5)] * 3
    assert [len(batch) for batch in found] == [2] * 7 + [1]
    assert len(batches(numpy_input_fn(A, batch_size=4, num_epochs=None, shuffle=False), limit=20)) == 20


def test_several_targets() -> None:
    ((features, labels),) = batches(numpy_input_fn(A, {"y": A, "z": B}, batch_size=5, shuffle=False))
    assert features == [0, 1, 2, 3, 4]
    assert (labels["y"], labels["z"]) == (features, B.tolist())


def test_in_random_order() -> None:
    rows = np.arange(200)
    found = list(chain(*batches(numpy_input_fn(rows, batch_size=50, shuffle=True))))
    assert sorted(found) == rows.tolist()
    assert found != sorted(found)


def test_what_numpy_input_fn_refuses(tf_log: Any) -> None:
    with pytest.raises(ValueError, match="shuffle must be provided and explicitly set as boolean"):
        numpy_input_fn(A)
    with pytest.raises(ValueError, match="queue_capacity must be positive, got 0"):
        numpy_input_fn(A, queue_capacity=0, shuffle=False)
    with pytest.raises(TypeError, match=r"^batch_size must be a number, got 'a'"):
        numpy_input_fn(A, batch_size="a", shuffle=False)
    with pytest.raises(ValueError, match="batch_size must be positive, got 0"):
        numpy_input_fn(A, shuffle=False, batch_size=0)
    for x, y, error, message in [
        ([1], None, TypeError, "x must be a dict or array; got list"),
        ({}, None, ValueError, "x cannot be an empty dict"),
        (np.array([]), None, ValueError, "x cannot be an empty array"),
        (A, {}, ValueError, "y cannot be empty dict, use None instead."),
        ({"a": A}, {"a": A}, ValueError, "1 duplicate keys are found in both x and y: {'a'}"),
        ({"a": A}, A[:3], ValueError, r"Length of tensors in x and y is mismatched(.|\n)*\(5,\)(.|\n)*y: \(3,\)"),
        (
            {"a": [1, 2]},
            None,
            TypeError,
            r"x and y must hold arrays with at least one dimension, but 'a' is \[1, 2\], of type list",
        ),
    ]:
        with tf.Graph().as_default(), pytest.raises(error, match=message):
            numpy_input_fn(x, y, shuffle=False)()
    with tf.Graph().as_default():
        numpy_input_fn(A, shuffle=False, num_threads=2)()
    assert "num_epochs is applied per thread" in tf_log.text
    assert "If you want examples read in order, use one thread" in tf_log.text


def test_data_frames() -> None:
    x = pandas.DataFrame({"a": A, "b": B[:, 0]}, index=[10, 11, 12, 13, 14])
    y = pandas.Series(-A, index=x.index)
    found = batches(pandas_input_fn(x, y, batch_size=2, shuffle=False))
    assert [features["a"] for features, _ in found] == [[0, 1], [2, 3], [4]]
    assert [labels for _, labels in found] == [[0, -1], [-2, -3], [-4]]
    both = pandas.DataFrame({"a": A * 2, "c": A * 3}, index=x.index)
    ((features, labels),) = batches(pandas_input_fn(x, both, batch_size=5, shuffle=False, queue_capacity=None))
    assert set(features) == {"a", "b"}
    assert labels == {"a": (A * 2).tolist(), "c": (A * 3).tolist()}
    assert list(x) == ["a", "b"]
    with pytest.raises(ValueError, match="Cannot use name a for target column: DataFrame already has"):
        pandas_input_fn(x, y, shuffle=False, target_column="a")
    with pytest.raises(ValueError, match="Index for x and y are mismatched"):
        pandas_input_fn(x, pandas.Series(A), shuffle=False)
    with pytest.raises(TypeError, match=r"^x must be of pandas; got ndarray\. numpy_input_fn takes arrays"):
        pandas_input_fn(A, y, shuffle=False)
    with pytest.raises(TypeError, match=r"^y must be of pandas; got ndarray"):
        pandas_input_fn(x, A, shuffle=False)
    with pytest.raises(TypeError, match="target_column must be a string type"):
        pandas_input_fn(x, y, shuffle=False, target_column=3)


def test_without_pandas(monkeypatch: Any) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(TypeError, match="pandas_input_fn should not be called without pandas installed"):
        pandas_input_fn(None, shuffle=False)


def test_no_epoch_is_an_empty_input() -> None:
    assert batches(numpy_input_fn(A, batch_size=2, num_epochs=0, shuffle=False)) == []
