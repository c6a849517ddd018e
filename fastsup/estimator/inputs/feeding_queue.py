"""The queue of `numpy_input_fn` and `pandas_input_fn`, which threads fill with rows of arrays."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from typing import Any

from tensorflow.python.framework import dtypes, errors, ops
from tensorflow.python.ops import array_ops, data_flow_ops, math_ops
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.summary import summary
from tensorflow.python.training import queue_runner

__all__ = ["FeedingQueueRunner", "RowFeed", "enqueue_rows"]


class RowFeed:
    """Returns the feed dictionaries of consecutive batches of rows.

    Args:
      placeholders: placeholders of the row numbers and then of the columns.
      rows_at: function from a list of row numbers to the values for the placeholders.
      length: number of rows.
      batch_size: number of rows in a batch. The last batch may be smaller.
      random_start: True to start at a random row; False to start at row 0.
      seed: seed of the random start, or None.
      num_epochs: number of passes over all rows. None: no limit.
    """

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
        """The next batch.

        Raises:
          tf.errors.OutOfRangeError: the last batch was taken.
        """
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
    """A queue runner whose enqueue operations are fed.

    Args:
      queue: the queue.
      enqueue_ops: the enqueue operations, each run in its own thread.
      feed_fns: for each operation, a function that returns the feed dictionary of a run, and raises OutOfRangeError at
        the end.
    """

    def __init__(self, queue: Any, enqueue_ops: Sequence[Any], feed_fns: Sequence[Callable[[], Any]]) -> None:
        ends = (errors.OutOfRangeError, errors.CancelledError)
        super().__init__(queue, enqueue_ops, queue_closed_exception_types=ends)
        self._feed_fns = feed_fns

    def create_threads(self, sess: Any, coord: Any = None, daemon: bool = False, start: bool = False) -> list[Any]:
        """Makes the threads for a session, unless the session has threads.

        Args:
          sess: the session.
          coord: `Coordinator` that stops the threads, or None.
          daemon: True for daemon threads.
          start: True to start the threads.

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
                    # The end of the session closes the queue anyway.
                    logging.vlog(1, "Ignored exception: %s", str(error))

    def _init_from_proto(self, queue_runner_def: Any, import_scope: Any = None) -> None:
        raise NotImplementedError(f"{type(self).__name__} does not support initialization from proto.")

    def to_proto(self, export_scope: Any = None) -> Any:
        """Raises NotImplementedError: the feed functions can't be serialised."""
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
    """Adds a queue, and the queue runner that fills the queue, to the default graph.

    Args:
      rows_at: function from a list of row numbers to values: the labels of the rows, then the columns.
      length: number of rows.
      types: type of each value.
      shapes: shape of one row of each value.
      capacity: capacity of the queue, in rows.
      shuffle: True to dequeue in random order.
      min_after_dequeue: minimum number of rows that stay in a shuffled queue. None: a quarter of the capacity.
      num_threads: number of threads that fill the queue.
      batch_size: number of rows that a thread enqueues in one run.
      num_epochs: number of passes of each thread over all rows. None: no limit.
      name: name scope.

    Returns:
      The queue.
    """
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
            # Without a shape, because batches differ in size.
            placeholders = [array_ops.placeholder(dtype) for dtype in types]
            enqueue_ops.append(queue.enqueue_many(placeholders))
            feeds.append(RowFeed(placeholders, rows_at, length, batch_size, shuffle, None, num_epochs))
        queue_runner.add_queue_runner(FeedingQueueRunner(queue, enqueue_ops, feeds))
        room = capacity - kept
        waiting = math_ops.cast(math_ops.maximum(0, queue.size() - kept), dtypes.float32)
        summary.scalar(f"queue/{queue.name}fraction_over_{kept}_of_{room}_full", waiting * (1.0 / room))
    return queue
