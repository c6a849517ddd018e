"""Waits of a session: the log of a wait, its limit, and the wait for the servers of a cluster."""

from __future__ import annotations

import math
import random
from numbers import Real
from typing import Any

from tensorflow.python.framework import errors
from tensorflow.python.platform import tf_logging as logging

from fastsup.cluster.peer_liveness import named_tasks, silent_tasks
from fastsup.cluster.server_probe import ServerProbe
from fastsup.cluster.task_settings import TaskType
from fastsup.cluster.tf_config import read_tf_config
from fastsup.core.checks import doubt_about
from fastsup.core.clock import steady

__all__ = [
    "WAITING_FOR_MODEL",
    "WaitLog",
    "check_recovery_wait_secs",
    "deadline_exceeded",
    "limit_text",
    "number_of_workers",
    "pause_before_look",
    "wait_for_servers",
]

# TensorFlow's line, then the process that is waited for, the seconds of the wait and its limit.
WAITING_FOR_MODEL = (
    "Waiting for model to be ready.  Ready_for_local_init_op:  %s, ready: %s. Waiting for %s; %d s so far, %s."
)
# The first pause in seconds of a wait that looks early, and the share of the wait so far that the next ones take.
_FIRST_PAUSE_SECS = 0.5
_PAUSE_SHARE = 0.25
# The most looks a second of all workers together. Each is a session on every parameter server.
_LOOKS_PER_SEC = 50.0
# Tasks that a log line names at most.
_MOST_NAMES = 8
# The longest time in seconds between two log lines of a wait.
_LONGEST_SILENCE_SECS = 600.0


def check_recovery_wait_secs(value: Any) -> None:
    """Refuses seconds between two polls that aren't finite. Warns of a negative number, which is taken for no pause.

    Args:
      value: the argument `recovery_wait_secs`.

    Raises:
      TypeError: `value` isn't a number.
      ValueError: `value` is infinite or NaN.
    """
    if not isinstance(value, Real):
        raise TypeError(f"recovery_wait_secs must be a number of seconds, got {value!r}.")
    if not float(value) < math.inf:
        raise ValueError(f"recovery_wait_secs must be finite, got {value!r}. TensorFlow's default is 30.")
    doubt = doubt_about(
        "recovery_wait_secs", value, "", "there is no pause between two checks", "sessions-and-executors"
    )
    if doubt is not None:
        logging.warning(doubt)


def number_of_workers() -> int:
    """Returns the number of workers that TF_CONFIG has; 1 if it has none, or is none: not every program uses it."""
    try:
        cluster = read_tf_config().get("cluster")
    except ValueError:
        return 1
    workers = cluster.get(TaskType.WORKER) if isinstance(cluster, dict) else None
    return max(1, len(workers)) if isinstance(workers, (list, dict)) else 1


def pause_before_look(waited_secs: float, longest_secs: float, workers: int = 1) -> float:
    """Returns the pause before the next look of a wait for the chief, in seconds.

    A chief that is being restarted is back within seconds, or not for long. So looks come early at first, and a wait is
    never longer than it had to be by more than a quarter, or half a second. Many workers, who have all lost the same
    task at the same moment, take longer pauses of different lengths, which spares the parameter servers.

    Args:
      waited_secs: seconds of the wait so far.
      longest_secs: the longest pause: the argument `recovery_wait_secs`.
      workers: number of workers that wait.
    """
    shortest = workers / _LOOKS_PER_SEC
    if shortest > _FIRST_PAUSE_SECS:
        shortest *= random.uniform(0.5, 1.5)
    return max(0.0, min(longest_secs, max(_FIRST_PAUSE_SECS, shortest, _PAUSE_SHARE * waited_secs)))


class WaitLog:
    """Logs a wait: at once, then at intervals that double.

    Args:
      interval: seconds of the first interval. 0 or less is taken as 1, even if the program polls without a pause.
    """

    def __init__(self, interval: float) -> None:
        self._started = steady()
        self._interval = interval if interval > 0 else 1.0
        self._due = self._started

    def waited(self) -> float:
        """Returns the seconds since the wait began."""
        return steady() - self._started

    def is_due(self) -> bool:
        """Returns whether `info` would log a line now."""
        return steady() >= self._due

    def info(self, text: str, *args: Any) -> None:
        """Logs a line at INFO, if a line is due.

        Args:
          text: format of the line.
          *args: arguments of the format.
        """
        if not self.is_due():
            return
        logging.info(text, *args)
        self._due = steady() + self._interval
        self._interval = min(2 * self._interval, max(_LONGEST_SILENCE_SECS, self._interval))


def limit_text(seconds: float | None) -> str:
    """Describes the limit of a wait.

    Args:
      seconds: the limit; None or infinity for no limit.
    """
    return "without a limit" if seconds is None or seconds == math.inf else f"{seconds} s at most"


def deadline_exceeded(limit: float, awaited: str) -> errors.DeadlineExceededError:
    """Makes the error of a wait that has reached its limit.

    Args:
      limit: the limit, in seconds.
      awaited: description of the process or the servers that were waited for.
    """
    text = f"Session was not ready after waiting {int(limit)} secs. Waited for {awaited}"
    return errors.DeadlineExceededError(None, None, text)


def wait_for_servers(master: str, config: Any, limit: float, log_interval: float, log: WaitLog | None = None) -> None:
    """Waits until all tasks of a cluster answer. A session's first run would block for ever without them.

    Args:
      master: the execution engine to connect to.
      config: ConfigProto of the session, or None. Its device filters say which tasks are needed.
      limit: seconds to wait at most.
      log_interval: seconds between the first two log lines.
      log: log of the wait that begins with this one; None for its own log.

    Raises:
      tf.errors.DeadlineExceededError: a task didn't answer within the limit.
    """
    probe = ServerProbe(master, config)
    log = log or WaitLog(log_interval)

    def awaited() -> str:
        tasks = named_tasks(config.device_filters if config is not None else ())
        silent = list(silent_tasks(tasks).values())
        which = f": {', '.join(silent[:_MOST_NAMES])}{', ...' if len(silent) > _MOST_NAMES else ''}" if silent else ""
        return f"an answer from every task of the cluster of {master}, one of which isn't up or can't be reached{which}"

    poll_secs = log_interval if log_interval > 0 else 1.0
    while not probe.has_answered(max(0.0, min(poll_secs, limit - log.waited()))):
        if log.waited() >= limit:
            raise deadline_exceeded(limit, awaited())
        if log.is_due():
            log.info(WAITING_FOR_MODEL, None, None, awaited(), log.waited(), limit_text(limit))
