"""The services of a Supervisor: threads that write summaries, count steps and save checkpoints, each on its timer."""

from __future__ import annotations

import time
from typing import Any

from tensorflow.core.framework import summary_pb2
from tensorflow.core.util import event_pb2
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import coordinator, training_util

__all__ = ["SVStepCounterThread", "SVSummaryThread", "SVTimerCheckpointThread"]


class _Service(coordinator.LooperThread):  # type: ignore[misc]
    """A thread that does something with the supervisor's session, at once and then every so many seconds."""

    def __init__(self, sv: Any, sess: Any, timer_interval_secs: float) -> None:
        super().__init__(sv.coord, timer_interval_secs)
        self._sv = sv
        self._sess = sess

    def run(self) -> None:
        # Under TensorFlow 2 behaviour a new thread executes eagerly, and then neither the step can be read nor a
        # checkpoint be saved.
        with self._sv._graph.as_default():
            super().run()


class SVSummaryThread(_Service):
    """Runs the summary op every `save_summaries_secs` and appends what it gives to the events file.

    Args:
      sv: the Supervisor.
      sess: the session to run the summary op in.
    """

    def __init__(self, sv: Any, sess: Any) -> None:
        super().__init__(sv, sess, sv.save_summaries_secs)

    def run_loop(self) -> None:
        step = None
        if self._sv.global_step is None:
            summary = self._sess.run(self._sv.summary_op)
        else:
            summary, step = self._sess.run([self._sv.summary_op, self._sv.global_step])
        if self._sv.summary_writer:
            logging.info("Recording summary at step %s.", step)
            self._sv.summary_writer.add_summary(summary, step)


class SVStepCounterThread(_Service):
    """Appends the global steps per second, every `save_summaries_secs`, to the events file and to the log.

    Args:
      sv: the Supervisor.
      sess: the session to read the step in.
      step_counter: tensor or variable to count by. Defaults to the supervisor's global step.
    """

    def __init__(self, sv: Any, sess: Any, step_counter: Any = None) -> None:
        super().__init__(sv, sess, sv.save_summaries_secs)
        self._last_time = 0.0
        self._last_step = 0
        self._step_counter = sv.global_step if step_counter is None else step_counter
        self._summary_tag = f"{self._step_counter.op.name}/sec"

    def start_loop(self) -> None:
        self._last_time = time.time()
        self._last_step = training_util.global_step(self._sess, self._step_counter)

    def run_loop(self) -> None:
        step = training_util.global_step(self._sess, self._step_counter)
        now = time.time()
        steps, seconds = step - self._last_step, now - self._last_time
        self._last_step, self._last_time = step, now
        # A clock that was set back, or that is too coarse, tells no rate.
        rate = steps / seconds if seconds > 0.0 else float("inf")
        if self._sv.summary_writer:
            value = summary_pb2.Summary.Value(tag=self._summary_tag, simple_value=rate)
            self._sv.summary_writer.add_summary(summary_pb2.Summary(value=[value]), step)
        logging.log_first_n(logging.INFO, "%s: %g", 10, self._summary_tag, rate)


class SVTimerCheckpointThread(_Service):
    """Saves a checkpoint every `save_model_secs`, and notes it in the events file.

    Args:
      sv: the Supervisor.
      sess: the session whose variables are saved.
    """

    def __init__(self, sv: Any, sess: Any) -> None:
        super().__init__(sv, sess, sv.save_model_secs)

    def run_loop(self) -> None:
        sv = self._sv
        sv._save(self._sess, sv.saver, sv.save_path, global_step=sv.global_step)
        if sv.summary_writer and sv.global_step is not None:
            step = training_util.global_step(self._sess, sv.global_step)
            sv.summary_writer.add_session_log(
                event_pb2.SessionLog(status=event_pb2.SessionLog.CHECKPOINT, checkpoint_path=sv.save_path), step
            )
