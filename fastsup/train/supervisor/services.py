"""The services of a Supervisor: threads that write summaries, measure the rate of steps and save checkpoints."""

from __future__ import annotations

import time
from typing import Any

from tensorflow.core.framework import summary_pb2
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import coordinator, training_util

__all__ = ["SVStepCounterThread", "SVSummaryThread", "SVTimerCheckpointThread", "start_services"]


class _Service(coordinator.LooperThread):  # type: ignore[misc]
    """A thread that uses the Supervisor's session at once, and then every `timer_interval_secs` seconds."""

    def __init__(self, sv: Any, sess: Any, timer_interval_secs: float) -> None:
        super().__init__(sv.coord, timer_interval_secs)
        self._sv = sv
        self._sess = sess

    def run(self) -> None:
        # A thread without a default graph executes eagerly under TF 2 behaviour, and can't use a Saver.
        with self._sv._graph.as_default():
            super().run()


class SVSummaryThread(_Service):
    """Runs the summary op every `save_summaries_secs` seconds, and writes its summary to the event file.

    Args:
      sv: the Supervisor.
      sess: the session in which the summary op runs.
    """

    def __init__(self, sv: Any, sess: Any) -> None:
        super().__init__(sv, sess, sv.save_summaries_secs)

    def run_loop(self) -> None:
        sv, step = self._sv, None
        if sv.global_step is None:
            summary = self._sess.run(sv.summary_op)
        else:
            summary, step = self._sess.run([sv.summary_op, sv.global_step])
        if sv.summary_writer:
            logging.info("Recording summary at step %s.", step)
            sv.summary_writer.add_summary(summary, step)


class SVStepCounterThread(_Service):
    """Measures the global steps per second every `save_summaries_secs` seconds, for the event file and the log.

    Args:
      sv: the Supervisor.
      sess: the session in which the step is read.
      step_counter: tensor or variable that counts steps. Defaults to the Supervisor's global step.
    """

    def __init__(self, sv: Any, sess: Any, step_counter: Any = None) -> None:
        super().__init__(sv, sess, sv.save_summaries_secs)
        self._step_counter = sv.global_step if step_counter is None else step_counter
        self._summary_tag = f"{self._step_counter.op.name}/sec"
        self._last_time = 0.0
        self._last_step = 0

    def _measure(self) -> tuple[int, float]:
        """Returns the steps and the seconds since the last measurement."""
        last_step, last_time = self._last_step, self._last_time
        self._last_step = training_util.global_step(self._sess, self._step_counter)
        self._last_time = time.time()
        return self._last_step - last_step, self._last_time - last_time

    def start_loop(self) -> None:
        self._last_time = time.time()
        self._last_step = training_util.global_step(self._sess, self._step_counter)

    def run_loop(self) -> None:
        steps, seconds = self._measure()
        # A clock that is too coarse, or was set back, gives no rate.
        rate = steps / seconds if seconds > 0.0 else float("inf")
        writer = self._sv.summary_writer
        if writer:
            summary = summary_pb2.Summary()
            summary.value.add(tag=self._summary_tag, simple_value=rate)
            writer.add_summary(summary, self._last_step)
        logging.log_first_n(logging.INFO, "%s: %g", 10, self._summary_tag, rate)


class SVTimerCheckpointThread(_Service):
    """Saves a checkpoint every `save_model_secs` seconds, and logs it in the event file.

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
            sv._event_log.log_checkpoint(sv.save_path, training_util.global_step(self._sess, sv.global_step))


def start_services(sv: Any, sess: Any) -> list[Any] | None:
    """Starts the services of a Supervisor in a session. See `Supervisor.start_standard_services`."""
    if not sv._is_chief:
        raise RuntimeError(
            "Only chief supervisor can start standard services. Because only chief supervisors can write events."
        )
    if not sv._logdir:
        logging.warning("Standard services need a 'logdir' passed to the SessionManager")
        return None
    if sv._global_step is not None and sv._summary_writer:
        sv._event_log.log_session_start(sv._checkpoints.read_step(sess, sv._global_step))
    services: list[Any] = []
    if sv._save_summaries_secs and sv._summary_writer:
        if sv._summary_op is not None:
            services.append(SVSummaryThread(sv, sess))
        if sv._global_step is not None:
            services.append(SVStepCounterThread(sv, sess))
    if sv.saver and sv._save_model_secs:
        services.append(SVTimerCheckpointThread(sv, sess))
    for service in services:
        service.start()
    return services
