"""numpy_input_fn and pandas_input_fn, which read in-memory data through a queue that threads fill."""

from __future__ import annotations

import random
import threading
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tensorflow.python.framework import dtypes, errors, ops
from tensorflow.python.ops import array_ops, data_flow_ops, math_ops
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.summary import summary
from tensorflow.python.training import queue_runner

from fastsup.core.checks import is_number

__all__ = [
    "FeedingQueueRunner",
    "RowFeed",
    "enqueue_rows",
    "numpy_input_fn",
    "pandas_input_fn",
]


class RowFeed:
    """Returns the feed dictionaries of consecutive batches of rows. The last batch may be smaller."""

    def __init__(
        self,
        placeholders: Sequence[Any],
        rows_at: Callable[[list[int]], Sequence[Any]],
        length: int,
        batch_size: int,
        random_start: bool = False,
        seed: int | None = None,
        num_epochs: int | None = None,
    ) -> None:
        self._placeholders = placeholders
        self._rows_at = rows_at
        self._length = length
        self._batch_size = batch_size
        self._start = random.Random(seed).randrange(length) if random_start else 0
        self._num_epochs = num_epochs
        self._given = 0

    def __call__(self) -> dict[Any, Any]:
        """Returns the next batch."""
        count = self._batch_size
        if self._num_epochs is not None:
            count = min(count, self._num_epochs * self._length - self._given)
            if count <= 0:
                raise errors.OutOfRangeError(None, None, f"Already emitted {self._num_epochs} epochs.")
        first = self._start + self._given
        self._given += count
        rows = [number % self._length for number in range(first, first + count)]
        return dict(zip(self._placeholders, self._rows_at(rows), strict=True))


class FeedingQueueRunner(queue_runner.QueueRunner):  # type: ignore[misc]
    """A queue runner that feeds its enqueue operations.

    Args:
      queue: the queue.
      enqueue_ops: the enqueue operations, each run in its own thread.
      feed_fns: for each operation, a function that returns the feed dictionary of a run, and raises OutOfRangeError at
        the end of the input.
    """

    def __init__(self, queue: Any, enqueue_ops: Sequence[Any], feed_fns: Sequence[Callable[[], Any]]) -> None:
        ends = (errors.OutOfRangeError, errors.CancelledError)
        super().__init__(queue, enqueue_ops, queue_closed_exception_types=ends)
        self._feed_fns = feed_fns

    def create_threads(self, sess: Any, coord: Any = None, daemon: bool = False, start: bool = False) -> list[Any]:
        """Creates the threads for a session, unless it already has threads.

        Args:
          sess: the session.
          coord: `Coordinator` that stops the threads, or None.
          daemon: Whether to create daemon threads.
          start: Whether to start the threads.

        Returns:
          The new threads.
        """
        with self._lock:
            if self._runs_per_session.get(sess, 0) > 0:
                return []
            self._runs_per_session[sess] = len(self._enqueue_ops)
            self._exceptions_raised: list[Exception] = []
        threads = [
            threading.Thread(target=self._run_fed, args=(sess, enqueue_op, feed_fn, coord))
            for enqueue_op, feed_fn in zip(self._enqueue_ops, self._feed_fns, strict=True)
        ]
        if coord:
            threads.append(threading.Thread(target=self._close_on_stop, args=(sess, self._cancel_op, coord)))
        for thread in threads:
            if coord:
                coord.register_thread(thread)
            thread.daemon = daemon
            if start:
                thread.start()
        return threads

    def _run_fed(self, sess: Any, enqueue_op: Any, feed_fn: Callable[[], Any], coord: Any) -> None:
        """Fills the queue until the input or the session ends."""
        finished = False
        try:
            while not (coord and coord.should_stop()):
                try:
                    sess.run(enqueue_op, feed_dict=feed_fn())
                except (errors.OutOfRangeError, errors.CancelledError):  # noqa: PERF203
                    finished = True
                    self._leave(sess, close=True)
                    return
        except Exception as error:
            if coord:
                coord.request_stop(error)
                return
            logging.error("Exception in QueueRunner: %s", str(error))
            with self._lock:
                self._exceptions_raised.append(error)
            raise
        finally:
            if not finished:
                self._leave(sess, close=False)

    def _leave(self, sess: Any, close: bool) -> None:
        """Removes a thread from the count. The last thread closes the queue if its input has ended."""
        with self._lock:
            self._runs_per_session[sess] -= 1
            if close and self._runs_per_session[sess] == 0:
                try:
                    sess.run(self._close_op)
                except Exception as error:
                    # The queue is closed with the session anyway.
                    logging.vlog(1, "Ignored exception: %s", str(error))

    def _init_from_proto(self, queue_runner_def: Any, import_scope: Any = None) -> None:
        raise NotImplementedError(f"{type(self).__name__} does not support initialization from proto.")

    def to_proto(self, export_scope: Any = None) -> Any:
        """Raises NotImplementedError: the feed functions can't be serialized."""
        raise NotImplementedError(f"{type(self).__name__} does not support serialization to proto.")


def _warn_of_threads(shuffle: bool, num_threads: int, num_epochs: int | None) -> None:
    if num_threads <= 1:
        return
    if num_epochs is not None:
        logging.warning(
            "enqueue_data was called with num_epochs and num_threads > 1. num_epochs is applied per thread, so this "
            "will produce more epochs than you probably intend. If you want to limit epochs, use one thread."
        )
    if shuffle and num_epochs is not None:
        logging.warning(
            "enqueue_data was called with shuffle=True, num_threads > 1, and num_epochs. This will create multiple "
            "threads, all reading the array/dataframe in order adding to the same shuffling queue; the results will "
            "likely not be sufficiently shuffled."
        )
    if not shuffle:
        logging.warning(
            "enqueue_data was called with shuffle=False and num_threads > 1. This will create multiple threads, all "
            "reading the array/dataframe in order. If you want examples read in order, use one thread; if you want "
            "multiple threads, enable shuffling."
        )


def enqueue_rows(
    rows_at: Callable[[list[int]], Sequence[Any]],
    length: int,
    types: Sequence[Any],
    shapes: Sequence[Any],
    capacity: int,
    shuffle: bool,
    min_after_dequeue: float | None,
    num_threads: int,
    batch_size: int,
    num_epochs: int | None,
    name: str = "enqueue_input",
) -> Any:
    """Adds a queue and its queue runner to the default graph."""
    with ops.name_scope(name):
        _warn_of_threads(shuffle, num_threads, num_epochs)
        types = [dtypes.as_dtype(dtype) for dtype in types]
        kept = 0
        if shuffle:
            kept = int(capacity / 4 if min_after_dequeue is None else min_after_dequeue)
            queue = data_flow_ops.RandomShuffleQueue(capacity, kept, dtypes=types, shapes=shapes)
        else:
            queue = data_flow_ops.FIFOQueue(capacity, dtypes=types, shapes=shapes)
        enqueue_ops, feeds = [], []
        for _ in range(num_threads):
            # Don't set a shape, because batches differ in size.
            placeholders = [array_ops.placeholder(dtype) for dtype in types]
            enqueue_ops.append(queue.enqueue_many(placeholders))
            feeds.append(RowFeed(placeholders, rows_at, length, batch_size, shuffle, None, num_epochs))
        queue_runner.add_queue_runner(FeedingQueueRunner(queue, enqueue_ops, feeds))
        room = capacity - kept
        waiting = math_ops.cast(math_ops.maximum(0, queue.size() - kept), dtypes.float32)
        summary.scalar(f"queue/{queue.name}fraction_over_{kept}_of_{room}_full", waiting * (1.0 / room))
    return queue


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
        # The number of epochs may be 0, which makes the input empty.
        if value is not None and value < (0 if name == "num_epochs" else 1):
            raise ValueError(f"{name} must be positive, got {value!r}.")


def _read(queue: Any, batch_size: int, num_epochs: int | None) -> list[Any]:
    """Dequeues a batch without the rows' labels. If the number of epochs is limited, the last batch may be smaller."""
    batch = queue.dequeue_many(batch_size) if num_epochs is None else queue.dequeue_up_to(batch_size)
    return list(batch)[1:]


def _columns(x: Any, y: Any) -> tuple[dict[str, Any], list[str], Any]:
    """Checks the arrays. Returns all arrays by name, the names of the features, and the name or names of targets."""
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
            raise TypeError(
                f"x and y must hold arrays with at least one dimension, but {name!r} is {column!r}, of type "
                f"{type(column).__name__}."
            )
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
    """Creates an input_fn that reads batches of rows from NumPy arrays through a queue.

    Args:
      x: features, as an array or a dictionary from names to arrays.
      y: targets, as an array or a dictionary from names to arrays; or None.
      batch_size: number of rows per batch.
      num_epochs: number of passes over all rows. If None, there is no limit.
      shuffle: Whether to read the rows in random order. Required. Pass False for predictions.
      queue_capacity: capacity of the queue, in rows.
      num_threads: number of threads that fill the queue. With several threads, the order of rows is undefined.

    Returns:
      Function without arguments that returns the features, or a pair of features and targets, as tensors.

    Raises:
      ValueError: If `shuffle` isn't a bool. When the function is called, if lengths differ, x and y share a name, or
        one of them is empty.
      TypeError: When the function is called, if `x` is neither an array nor a dictionary.
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
    """Creates an input_fn that reads batches of rows from a pandas data frame through a queue.

    Args:
      x: `DataFrame` of the features.
      y: `Series` or `DataFrame` of the targets, with the same index; or None.
      batch_size: number of rows per batch.
      num_epochs: number of passes over all rows. If None, there is no limit.
      shuffle: Whether to read the rows in random order. Required. Pass False for predictions.
      queue_capacity: capacity of the queue, in rows. Defaults to the number of rows, times four with `shuffle`.
      num_threads: number of threads that fill the queue. With several threads, the order of rows is undefined.
      target_column: name of the target column if `y` is a `Series`.

    Returns:
      Function without arguments that returns the features by column, or a pair of features and target or targets.

    Raises:
      TypeError: If pandas isn't installed, `x` or `y` isn't a pandas object, or `target_column` isn't a string.
      ValueError: If `shuffle` isn't a bool, x has a column named `target_column`, or the indices differ.
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
            # x may have columns with the same names.
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
