"""The threads that watch the other tasks of a job of collectives: their end."""

from __future__ import annotations

import functools
import threading
import time
from typing import Any

import pytest

from fastsup.cluster.collective import watch as watch_module
from fastsup.cluster.collective.watch import TRAINING, Peer, PeerWatch, TaskStatus


def test_the_end_waits_once_for_threads_that_wait_for_a_lost_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not once for each of them."""
    monkeypatch.setattr(watch_module, "_JOIN_SECS", 1.0)
    monkeypatch.setattr(watch_module, "_WATCH_SECS", 0.01)
    answered = threading.Event()
    waiting = threading.Semaphore(0)

    def wait(result: Any) -> Any:
        waiting.release()
        answered.wait(30)
        return result

    monkeypatch.setattr(watch_module.StatusBoard, "exchange", lambda *arguments: wait({}))
    monkeypatch.setattr(Peer, "process_loss", lambda peer: wait(None))
    own, other = (Peer(number, f"worker {number}", f"/job:worker/task:{number}", "localhost:1") for number in range(2))
    status = TaskStatus("process", 1, phase=TRAINING)
    watch = PeerWatch(own, [other], status, "grpc://localhost:1", own.job, lambda name, status: None)
    joins: list[float] = []

    def note_join(join: Any, timeout: float) -> None:
        joins.append(timeout)
        join(timeout)

    for thread in watch._threads:
        monkeypatch.setattr(thread, "join", functools.partial(note_join, thread.join))
    watch.start()
    try:
        for _ in range(2):
            assert waiting.acquire(timeout=10)
        started = time.monotonic()
        watch.end()
        assert time.monotonic() - started >= 1.0
        # What was left of the time for the second is nothing. How long the two took depends on the machine, too.
        assert len(joins) == 2
        assert sum(joins) < 1.1
    finally:
        answered.set()
        watch.end()
