"""The waits of an evaluator between two attempts, and its idle timeout."""

from __future__ import annotations

from typing import Any

from tensorflow.python.platform import tf_logging as logging

from fastsup.estimator.jobs.eval_result import EvalResult, EvalStatus

__all__ = ["EvaluatorPacing"]

# Seconds between two attempts of an evaluator without throttle that finds no new checkpoint.
_POLL_SECS = 0.2
_NO_THROTTLE_WARNING = (
    "EvalSpec.throttle_secs is set as 0. This might overload the job before finding (next) new checkpoint. Please "
    "consider to increase it."
)


class EvaluatorPacing:
    """Decides how long an evaluator waits for its next attempt, and when it has been idle for too long.

    All times are those of `fastsup.core.clock.steady`, in seconds.

    Args:
      eval_spec: `EvalSpec`.
    """

    def __init__(self, eval_spec: Any) -> None:
        self._eval_spec = eval_spec
        # The end of the last attempt that found a new checkpoint, or the start of the first one that found none.
        self._idle_since: float | None = None

    def is_idle_too_long(self, result: EvalResult, start: float, now: float) -> bool:
        """True if there has been no new checkpoint for `EvalSpec.idle_timeout_secs`.

        Args:
          result: outcome of this attempt.
          start: time at which this attempt began.
          now: time at which this attempt ended.
        """
        if result.status not in (EvalStatus.MISSING_CHECKPOINT, EvalStatus.NO_NEW_CHECKPOINT):
            self._idle_since = now
            return False
        if self._idle_since is None:
            self._idle_since = start
        timeout_secs = self._eval_spec.idle_timeout_secs
        if timeout_secs is None or now - self._idle_since < timeout_secs:
            return False
        logging.warning(
            "Exiting evaluation, there has been no new checkpoint for %f secs (EvalSpec.idle_timeout_secs=%s).",
            now - self._idle_since,
            timeout_secs,
        )
        return True

    def secs_to_next_attempt(self, result: EvalResult, start: float, now: float, throttle_secs: float) -> float:
        """Seconds until the next attempt: to the end of the throttle, but no longer than to that of the idle timeout.

        Args:
          result: outcome of this attempt.
          start: time at which this attempt began.
          now: time at which this attempt ended.
          throttle_secs: minimum seconds from the start of one attempt to the start of the next.
        """
        wait_secs = throttle_secs - (now - start)
        if wait_secs <= 0 and result.status != EvalStatus.EVALUATED:
            if throttle_secs == 0:
                logging.warning(_NO_THROTTLE_WARNING)
            wait_secs = _POLL_SECS
        if self._idle_since is not None and self._eval_spec.idle_timeout_secs is not None:
            wait_secs = min(wait_secs, self._idle_since + self._eval_spec.idle_timeout_secs - now)
        return wait_secs
