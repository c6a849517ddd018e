"""What surrounds an evaluation: the listener's questions, the warnings' interval, the final export's flag."""

from __future__ import annotations

import time
from typing import Any
from unittest import mock

import pytest

from fastsup import estimator
from fastsup.estimator.jobs.evaluator import Evaluator


def no_data() -> None:
    """An input function."""


class Answers(estimator.ContinuousEvalListener):
    """Writes down what it is asked.

    Args:
      before: its answer before an evaluation.
      after: its answer after one.
    """

    def __init__(self, before: bool, after: bool) -> None:
        self.before, self.after, self.asked = before, after, ""

    def before_eval(self) -> bool:
        self.asked += "b"
        return self.before

    def after_eval(self, eval_result: Any) -> bool:
        assert eval_result.status == estimator.EvalStatus.EVALUATED
        self.asked += "a"
        return self.after


@pytest.mark.parametrize(
    ("before", "after", "stops", "saved", "ended"),
    [(True, True, None, "ba", "baba"), (True, False, True, "ba", "baba"), (False, True, True, "b", "bb")],
)
def test_a_listener_is_asked_after_a_save_and_at_the_end(
    before: bool, after: bool, stops: bool | None, saved: str, ended: str
) -> None:
    evaluator = mock.Mock()
    result = estimator.EvalResult(estimator.EvalStatus.EVALUATED, {"global_step": 1}, "checkpoint")
    evaluator.evaluate_and_export.return_value = result, []
    answers = Answers(before, after)
    listener = estimator.NewCheckpointListenerForEvaluate(evaluator, 0, answers)
    listener.begin()
    assert listener.after_save(None, 0) is None
    assert answers.asked == ""
    assert listener.after_save(None, 1) is stops
    assert answers.asked == saved
    # What was evaluated isn't evaluated again.
    listener.end(None, 1)
    assert answers.asked == (saved if before else ended)
    listener.end(None, 2)
    assert answers.asked == (ended if before else "bbb")
    assert evaluator.evaluate_and_export.call_count == answers.asked.count("a")


def test_a_master_asks_no_listener(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the reference, the listener is for `run_local` and `run_evaluator`."""
    est = mock.Mock(spec=estimator.Estimator)
    est.config = estimator.RunConfig()
    est.latest_checkpoint.return_value = None
    executor = estimator.TrainingExecutor(
        est, estimator.TrainSpec(no_data), estimator.EvalSpec(no_data), continuous_eval_listener=Answers(False, False)
    )
    given: list[Any] = []
    monkeypatch.setattr(
        executor, "_start_distributed_training", lambda saving_listeners: given.extend(saving_listeners)
    )
    executor.run_master()
    asked = given[0]._continuous_eval_listener
    assert type(asked) is estimator.ContinuousEvalListener
    assert (asked.before_eval(), asked.after_eval(None)) == (True, True)


def an_evaluator(paths: list[Any], max_steps: int) -> Evaluator:
    est = mock.Mock(spec=estimator.Estimator)
    est.model_dir = "model"
    est.latest_checkpoint.side_effect = paths
    est.evaluate.side_effect = [{"global_step": step} for step in range(1, len(paths) + 1)]
    return Evaluator(est, estimator.EvalSpec(no_data), max_steps)


def test_the_final_export_is_remembered() -> None:
    evaluator = an_evaluator(["a", "b", "c"], 2)
    for triggered in (False, True, True):
        evaluator.evaluate_and_export()
        assert evaluator.is_final_export_triggered is triggered


def test_a_look_without_checkpoint_is_a_warning_every_ten_minutes(monkeypatch: pytest.MonkeyPatch, tf_log: Any) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "time", lambda: now[0])
    evaluator = an_evaluator([None] * 4, 2)
    levels = []
    for secs in (0, 599, 1, 1):
        now[0] += secs
        evaluator.evaluate_and_export()
        levels.append(tf_log.records[-1].levelname)
    assert levels == ["WARNING", "INFO", "INFO", "WARNING"]
