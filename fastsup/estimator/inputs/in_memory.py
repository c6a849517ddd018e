"""numpy_input_fn and pandas_input_fn: input functions over data in memory."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import numpy as np

from fastsup.core.checks import is_number
from fastsup.estimator.inputs.feeding_queue import enqueue_rows

__all__ = ["numpy_input_fn", "pandas_input_fn"]

_TARGET = "__target_key__"


def _check_arguments(shuffle: Any, batch_size: Any, num_threads: Any, num_epochs: Any, queue_capacity: Any) -> None:
    if not isinstance(shuffle, bool):
        raise ValueError(
            "shuffle must be provided and explicitly set as boolean (it is recommended to set it as True for "
            f"training); got {shuffle}"
        )
    numbers = {
        "batch_size": batch_size,
        "num_threads": num_threads,
        "num_epochs": num_epochs,
        "queue_capacity": queue_capacity,
    }
    for name, value in numbers.items():
        if value is not None and not is_number(value):
            raise TypeError(f"{name} must be a number, got {value!r}.")
        # With 0 epochs the input is empty.
        if value is not None and value < (0 if name == "num_epochs" else 1):
            raise ValueError(f"{name} must be positive, got {value!r}.")


def _read(queue: Any, batch_size: int, num_epochs: int | None) -> list[Any]:
    """Dequeues a batch, without the labels of the rows. With a number of epochs the last batch may be smaller."""
    batch = queue.dequeue_many(batch_size) if num_epochs is None else queue.dequeue_up_to(batch_size)
    return list(batch)[1:]


def _columns(x: Any, y: Any) -> tuple[dict[str, Any], list[str], Any]:
    """Checks the arrays. Returns all arrays by name, the names of the features, and the name(s) of the targets."""
    if isinstance(x, dict):
        if not x:
            raise ValueError("x cannot be an empty dict")
        columns = dict(sorted(x.items()))
    elif isinstance(x, np.ndarray):
        if x.size == 0:
            raise ValueError("x cannot be an empty array")
        columns = {"__direct_np_input__": x}
    else:
        raise TypeError(f"x must be a dict or array; got {type(x).__name__}")
    features = list(columns)
    targets: Any = None
    if isinstance(y, dict):
        if not y:
            raise ValueError("y cannot be empty dict, use None instead.")
        targets = sorted(y)
        duplicates = set(features) & set(targets)
        if duplicates:
            raise ValueError(f"{len(duplicates)} duplicate keys are found in both x and y: {duplicates}")
        columns.update((name, y[name]) for name in targets)
    elif y is not None:
        targets = _TARGET
        while targets in columns:
            targets += "_n"
        columns[targets] = y
    for name, column in columns.items():
        if not hasattr(column, "shape") or not len(column.shape):
            raise TypeError(f"x and y must hold arrays; {name!r} is {column!r} of type {type(column).__name__}.")
    if len({column.shape[0] for column in columns.values()}) != 1:
        shapes = {name: column.shape for name, column in columns.items()}
        shape_of_y = None
        if targets is not None:
            shape_of_y = shapes[targets] if isinstance(targets, str) else {name: shapes[name] for name in targets}
        raise ValueError(
            "Length of tensors in x and y is mismatched. All elements in x and y must have the same length.\n"
            f"Shapes in x: { {name: shapes[name] for name in features} }\n"
            f"Shapes in y: {shape_of_y}\n"
        )
    return columns, features, targets


def numpy_input_fn(
    x: Any,
    y: Any = None,
    batch_size: int = 128,
    num_epochs: int | None = 1,
    shuffle: bool | None = None,
    queue_capacity: int = 1000,
    num_threads: int = 1,
) -> Callable[[], Any]:
    """Makes an input_fn that reads batches of rows from NumPy arrays, through a queue.

    Args:
      x: features: an array, or a dictionary from names to arrays.
      y: targets: an array, or a dictionary from names to arrays; or None.
      batch_size: number of rows in a batch.
      num_epochs: number of passes over all rows. None: no limit.
      shuffle: True for random order, False for the order of the rows, as predictions need. Must be given.
      queue_capacity: capacity of the queue, in rows.
      num_threads: number of threads that fill the queue. With several threads the order is indefinite.

    Returns:
      Function without arguments that returns the features, or a pair of features and targets, as tensors.

    Raises:
      ValueError: `shuffle` isn't a bool. When the function is called: lengths differ, x and y have a name in common, or
        one of them is empty.
      TypeError: when the function is called: `x` is neither an array nor a dictionary.
    """
    _check_arguments(shuffle, batch_size, num_threads, num_epochs, queue_capacity)

    def input_fn() -> Any:
        columns, feature_names, targets = _columns(x, y)
        arrays = list(columns.values())
        queue = enqueue_rows(
            rows_at=lambda rows: [rows, *(array[rows] for array in arrays)],
            length=len(arrays[0]),
            types=[np.int64, *(array.dtype for array in arrays)],
            shapes=[(), *(array.shape[1:] for array in arrays)],
            capacity=queue_capacity,
            shuffle=bool(shuffle),
            min_after_dequeue=None,
            num_threads=num_threads,
            batch_size=batch_size,
            num_epochs=num_epochs,
        )
        batch = dict(zip(columns, _read(queue, batch_size, num_epochs), strict=True))
        features: Any = {name: batch[name] for name in feature_names}
        if isinstance(x, np.ndarray):
            (features,) = features.values()
        if targets is None:
            return features
        if isinstance(targets, str):
            return features, batch[targets]
        return features, {name: batch[name] for name in targets}

    return input_fn


def pandas_input_fn(
    x: Any,
    y: Any = None,
    batch_size: int = 128,
    num_epochs: int | None = 1,
    shuffle: bool | None = None,
    queue_capacity: int | None = 1000,
    num_threads: int = 1,
    target_column: str = "target",
) -> Callable[[], Any]:
    """Makes an input_fn that reads batches of rows from a pandas data frame, through a queue.

    Args:
      x: `DataFrame` of the features.
      y: `Series` or `DataFrame` of the targets, with the same index; or None.
      batch_size: number of rows in a batch.
      num_epochs: number of passes over all rows. None: no limit.
      shuffle: True for random order, False for the order of the rows, as predictions need. Must be given.
      queue_capacity: capacity of the queue, in rows. None: the number of rows, or four times that with `shuffle`.
      num_threads: number of threads that fill the queue. With several threads the order is indefinite.
      target_column: name of the target column if `y` is a `Series`.

    Returns:
      Function without arguments that returns the features by column, or a pair of features and target or targets.

    Raises:
      TypeError: pandas isn't installed, `x` or `y` isn't of pandas, or `target_column` isn't a string.
      ValueError: `shuffle` isn't a bool, x has a column named `target_column`, or the indices differ.
    """
    try:
        import pandas as pd  # type: ignore[import-untyped,unused-ignore]
    except (ImportError, OSError):
        raise TypeError("pandas_input_fn should not be called without pandas installed") from None
    _check_arguments(shuffle, batch_size, num_threads, num_epochs, queue_capacity)
    if not isinstance(target_column, str):
        raise TypeError("target_column must be a string type")
    for name, table in (("x", x), ("y", y)):
        if not hasattr(table, "iloc") and not (name == "y" and y is None):
            raise TypeError(f"{name} must be of pandas; got {type(table).__name__}. numpy_input_fn takes arrays.")
    x = x.copy()
    targets: dict[str, str] | None = None
    if y is not None:
        if target_column in x:
            raise ValueError(
                f"Cannot use name {target_column} for target column: DataFrame already has a column with that name: "
                f"{x.columns}"
            )
        if not np.array_equal(x.index, y.index):
            raise ValueError(f"Index for x and y are mismatched.\nIndex for x: {x.index}\nIndex for y: {y.index}\n")
        if isinstance(y, pd.DataFrame):
            # x may have columns of the same names.
            targets = {name: f"{name}_{uuid.uuid4()}" if name in x else name for name in y}
            x[list(targets.values())] = y
        else:
            x[target_column] = y
    if queue_capacity is None:
        queue_capacity = 4 * len(x) if shuffle else len(x)
    capacity = queue_capacity

    def rows_at(rows: list[int]) -> list[Any]:
        part = x.iloc[rows]
        return [part.index.values, *(part[name].values for name in part.columns)]

    def input_fn() -> Any:
        queue = enqueue_rows(
            rows_at=rows_at,
            length=len(x),
            types=[x.index.dtype, *x.dtypes],
            shapes=[()] * (len(x.columns) + 1),
            capacity=capacity,
            shuffle=bool(shuffle),
            min_after_dequeue=max(capacity / 4, 1),
            num_threads=num_threads,
            batch_size=batch_size,
            num_epochs=num_epochs,
        )
        features = dict(zip(x.columns, _read(queue, batch_size, num_epochs), strict=True))
        if y is None:
            return features
        if targets is None:
            target: Any = features.pop(target_column)
        else:
            target = {name: features.pop(column) for name, column in targets.items()}
        return features, target

    return input_fn
