"""Counts what the tasks of a job ask the file system and each other."""

from __future__ import annotations

import collections
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from tensorflow.python.lib.io import file_io

from fastsup.cluster import job_completion, peer_liveness

# What the tasks ask the file system, by the function that asks: TensorFlow's, and those of the tasks' own module.
_FILE_FUNCTIONS = ("read_file_to_string", "delete_file_v2", "recursive_create_dir_v2")
_TASK_FUNCTIONS = ("exists", "list_names", "write_whole")


class Counter:
    """Counts calls, in all threads, by phase and kind."""

    def __init__(self) -> None:
        self.phase = "start"
        self.calls: collections.Counter[tuple[str, str]] = collections.Counter()
        self._lock = threading.Lock()

    def count(self, kind: str) -> None:
        with self._lock:
            self.calls[self.phase, kind] += 1

    def counted(self, kind: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.count(kind)
            return function(*args, **kwargs)

        return call


@contextmanager
def counted_calls(counter: Counter) -> Iterator[None]:
    """Has the calls of the file system and the connections counted."""
    patches = [
        mock.patch.object(file_io, name, counter.counted(name, getattr(file_io, name))) for name in _FILE_FUNCTIONS
    ]
    patches += [
        mock.patch.object(job_completion, name, counter.counted(name, getattr(job_completion, name)))
        for name in _TASK_FUNCTIONS
    ]
    patches.append(
        mock.patch.object(
            peer_liveness.socket,
            "create_connection",
            counter.counted("connect", socket.create_connection),
        )
    )
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in patches:
            patch.stop()
