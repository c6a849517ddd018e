"""Trainings under a Supervisor of which one callback raises: an init_fn, a looper, or the saver."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from raising_callbacks import ERRORS, LAST, Case, Record, noted

v1 = tf.compat.v1

ENDINGS = ("leave", "input", "step_error", "block_error", "stop", "signal")
PLACES = {
    "init_fn": ("start",),
    # Before a stop is requested, or after.
    "looper": ("running", "ending"),
    "saver": ("running", "signal"),
}


def cases() -> Iterator[Case]:
    """All combinations, but for those in which the ending plays no part."""
    for callback, places in PLACES.items():
        for place in places:
            endings = {"ending": ENDINGS, "signal": ("signal",)}.get(place, ("leave",))
            for ending in endings:
                for error in ERRORS:
                    yield Case("supervisor", callback, place, ending, error)


class SupervisorProgram:
    """One run of a training.

    Args:
      implementation: "tensorflow" or "fastsup".
      case: the combination; None for a run without a raising callback, of two steps more.
      folder: the directory of the checkpoints.
      services: whether the Supervisor's own services run. Those of TensorFlow's fail under TF 2 behaviour.
    """

    def __init__(self, implementation: str, case: Case | None, folder: str, services: bool = True) -> None:
        import fastsup

        self.supervisor = fastsup.train.Supervisor if implementation == "fastsup" else v1.train.Supervisor
        self.case, self.folder = case, folder
        self.options = {} if services else {"save_model_secs": 0, "save_summaries_secs": 0}
        self.ending = case.ending if case is not None else "leave"
        self.record = Record()
        self._raises = threading.Lock()

    def is_at(self, callback: str, place: str) -> bool:
        return self.case is not None and (self.case.callback, self.case.place) == (callback, place)

    def fail(self, callback: str) -> None:
        """Raises the error of the case, once."""
        assert self.case is not None
        if self._raises.acquire(blocking=False):
            self.record.raise_error(ERRORS[self.case.error](f"raised by {callback}"), callback)

    def init_fn(self, session: Any) -> None:
        self.record.sessions.append(session)
        if self.is_at("init_fn", "start"):
            self.fail("init_fn")

    def look(self) -> None:
        """The looper's function."""
        if self.is_at("looper", "running"):
            self.fail("looper")
        elif self.is_at("looper", "ending"):
            self.sv.coord.wait_for_stop(60)
            self.fail("looper")

    def new_saver(self) -> Any:
        program = self

        class Saver(v1.train.Saver):  # type: ignore[misc]
            def save(self, *args: Any, **options: Any) -> Any:
                if program.is_at("saver", "running") or (program.is_at("saver", "signal") and program.record.signalled):
                    program.fail("saver")
                return super().save(*args, **options)

        return Saver()

    def run(self) -> Record:
        """Runs the training, and notes what leaves it."""
        with noted(self.record), tf.Graph().as_default():
            self.train()
        return self.record

    def train(self) -> None:
        weight = v1.get_variable("weight", [], tf.int64, v1.zeros_initializer())
        step = v1.train.get_or_create_global_step()
        elements = LAST if self.ending == "input" else 1_000_000
        element = v1.data.make_one_shot_iterator(tf.data.Dataset.range(elements)).get_next()
        with tf.control_dependencies([element]):
            one = tf.constant(1, tf.int64)
            op = v1.group(v1.assign_add(weight, one), v1.assign_add(step, one))
        bad = tf.debugging.check_numerics(tf.constant(float("nan")), "not a number")
        self.sv = self.supervisor(
            logdir=self.folder,
            saver=self.new_saver(),
            summary_op=None,
            init_fn=self.init_fn,
            stop_grace_secs=20,
            **self.options,
        )
        with self.sv.managed_session() as session:
            self.record.phase = "running"
            if session not in self.record.sessions:
                self.record.sessions.append(session)
            looper = self.sv.loop(0.01, self.look)
            if self.case is not None and self.case.place == "running":
                self.run_until_stopped(session, op)
                return
            last = session.run(weight) + (LAST if self.case is not None else 2)
            while self.ending == "input" or session.run(weight) < last:
                session.run(op)
                self.record.last_step = int(session.run(weight))
            self.end(session, bad)
            assert looper.is_alive() or self.sv.should_stop()

    def run_until_stopped(self, session: Any, op: Any) -> None:
        until = time.monotonic() + 30
        while not self.sv.should_stop():
            session.run(op)
            assert time.monotonic() < until, "nothing stops the run"

    def end(self, session: Any, bad: Any) -> None:
        """Ends the run in its way."""
        if self.ending == "step_error":
            try:
                session.run(bad)
            except tf.errors.InvalidArgumentError as error:
                self.record.note_error(error, "program")
                raise
        elif self.ending == "block_error":
            self.record.raise_error(KeyError("of the program"), "program")
        elif self.ending == "stop":
            self.sv.request_stop()
        elif self.ending == "signal":
            self.record.signalled = True
            signal.raise_signal(signal.SIGTERM)


def state(folder: str) -> tuple[int, int, int] | None:
    """The number of the newest checkpoint, and the step and the weight in it; None if there is none."""
    path = tf.train.latest_checkpoint(folder)
    if path is None:
        return None
    reader = tf.train.load_checkpoint(path)
    values = (int(reader.get_tensor(name)) for name in ("global_step", "weight"))
    return int(path.rpartition("-")[2]), *values  # type: ignore[return-value]
