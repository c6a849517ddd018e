"""Evaluation in a loop: when, who gets the results, and the end of a loop whose results get no better."""

from __future__ import annotations

import io
import math
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from fastsup.loop import (
    Checkpoints,
    EarlyStoppingHook,
    EvaluateHook,
    Hook,
    ProgressHook,
    PrometheusHook,
    StepLoop,
    SummaryHook,
    every,
)

Stepping = Callable[..., Callable[[], Any]]


class Listener(Hook):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[int, Mapping[str, float]]] = []

    def begin(self, loop: Any) -> None:
        self.never_due()

    def on_evaluation(self, loop: Any, metrics: Mapping[str, float]) -> None:
        self.told.append((loop.global_step, metrics))


def test_evaluates_at_intervals_and_at_the_end() -> None:
    listener, numbers = Listener(), iter(range(10))
    evaluate = EvaluateHook(lambda: next(numbers), every_steps=4)
    loop = StepLoop(int, [evaluate, listener], max_steps=9)
    loop.run()
    assert listener.told == [(4, {"loss": 0}), (8, {"loss": 1}), (9, {"loss": 2})]
    assert evaluate.metrics == loop.evaluation == {"loss": 2}


def test_not_twice_at_the_last_step() -> None:
    listener = Listener()
    StepLoop(int, [listener, EvaluateHook(lambda: 1, every_steps=4)], max_steps=8).run()
    assert [step for step, _ in listener.told] == [4, 8]


def test_at_the_end_alone_and_not_at_the_end() -> None:
    first, second = Listener(), Listener()
    StepLoop(int, [EvaluateHook(lambda: 1), first], max_steps=8).run()
    StepLoop(int, [EvaluateHook(lambda: 1, every_steps=3, at_end=False), second], max_steps=8).run()
    assert [step for step, _ in first.told] == [8]
    assert [step for step, _ in second.told] == [3, 6]


def test_by_time(stepping: Stepping) -> None:
    listener = Listener()
    StepLoop(stepping(2.0), [EvaluateHook(lambda: 1, every_secs=5), listener], max_steps=7).run()
    assert [step for step, _ in listener.told] == [3, 6, 7]


def test_the_function_may_take_the_loop() -> None:
    def score(loop: Any) -> dict[str, float]:
        return {"half": loop.global_step / 2}

    loop = StepLoop(int, [EvaluateHook(score, every_steps=3)], max_steps=3)
    loop.run()
    assert loop.evaluation == {"half": 1.5}


def test_a_function_with_defaults_gets_nothing() -> None:
    loop = StepLoop(int, [EvaluateHook(lambda data="test": {data: 1})], max_steps=1)
    loop.run()
    assert loop.evaluation == {"test": 1}


def test_a_share_of_the_time_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, listener = 0.0, Listener()

    def step() -> None:
        nonlocal clock
        clock += 1

    def score() -> int:
        nonlocal clock
        clock += 10
        return 1

    monkeypatch.setattr("fastsup.loop.evaluation.steady", lambda: clock)
    evaluate = EvaluateHook(score, every_steps=10, max_share=0.1)
    StepLoop(step, [evaluate, listener], max_steps=500).run()
    # 10 seconds of each 100, after the first one. The last one is at the end.
    assert [told for told, _ in listener.told] == [10, 190, 280, 370, 460, 500]
    assert evaluate.secs == 60
    assert evaluate.skipped == 50 - 5


def test_no_evaluation_at_the_end_that_a_signal_brings() -> None:
    listener = Listener()

    @every(3)
    def kill(loop: Any) -> None:
        signal.raise_signal(signal.SIGTERM)

    loop = StepLoop(int, [EvaluateHook(lambda: 1, every_steps=2), listener, kill], max_steps=9, handle_signals=True)
    with pytest.raises(SystemExit):
        loop.run()
    assert [step for step, _ in listener.told] == [2]


@pytest.mark.parametrize("result", [None, "x", {"a": [1, 2]}, [0.5, 0.9]])
def test_results_that_are_no_numbers(result: Any) -> None:
    loop = StepLoop(int, [EvaluateHook(lambda: result, every_steps=2)], max_steps=4)
    with pytest.raises(TypeError, match=r"^function must return a number or a mapping of names to numbers, got "):
        loop.run()
    assert loop.global_step == 2


def test_nan_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    results = iter([{"loss": 1.0, "auc": math.nan}, {"loss": math.nan}])
    StepLoop(int, [EvaluateHook(lambda: next(results), every_steps=2)], max_steps=4).run()
    assert [record.getMessage() for record in caplog.records] == [
        "NaN in the evaluation at global step 2: auc. Such a result never counts as better."
    ]


def test_the_log_of_a_stop_by_nan(caplog: pytest.LogCaptureFixture) -> None:
    hooks = [EvaluateHook(lambda: {"a": math.nan}, 1), EarlyStoppingHook("a", "min", 2)]
    with caplog.at_level("INFO", logger="fastsup"):
        StepLoop(int, hooks, max_steps=9).run()
    assert "Stopping at global step 2: a was NaN in each evaluation." in caplog.text


def test_an_error_of_the_function_ends_the_loop() -> None:
    loop = StepLoop(int, [EvaluateHook(lambda: 1 // 0, every_steps=2)], max_steps=4)
    with pytest.raises(ZeroDivisionError):
        loop.run()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"function": 3}, TypeError, "function must be an evaluation function, got 3"),
        ({"function": lambda model, data: 1}, TypeError, "function must take no arguments, or the loop, got "),
        ({"every_steps": 0}, ValueError, "every_steps must be positive"),
        ({"every_secs": "x"}, TypeError, "every_secs must be a number"),
        ({"name": ""}, TypeError, "name must be a string such as 'test', or None; got"),
        ({"at_end": None}, TypeError, "at_end must be True or False"),
        ({"at_end": False}, ValueError, "at_end=False needs an interval: pass every_steps"),
        ({"max_share": 1}, ValueError, "max_share must be between 0 and 1, got 1"),
        ({"max_share": "half"}, TypeError, "max_share must be a number"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as raised:
        EvaluateHook(**{"function": lambda: 1, **arguments})
    assert message in str(raised.value)


def test_several_evaluations(caplog: pytest.LogCaptureFixture) -> None:
    def evaluate() -> dict[str, float]:
        return {"accuracy": 0.5, "loss": 1.0}

    text = io.StringIO()
    hooks = [EvaluateHook(evaluate, 2, name="a"), EvaluateHook(evaluate, 3, name="b"), ProgressHook(file=text)]
    loop = StepLoop(int, hooks, max_steps=6)
    loop.run()
    assert loop.evaluation == {"a/accuracy": 0.5, "a/loss": 1, "b/accuracy": 0.5, "b/loss": 1}
    assert "eval a/loss 1, eval b/accuracy 0.5" in text.getvalue()
    assert caplog.messages == []
    StepLoop(int, [EvaluateHook(evaluate, 2), EvaluateHook(evaluate, 3)], max_steps=12).run()
    (warning,) = caplog.messages
    assert warning.count(f"<fastsup.loop.EvaluateHook of {evaluate!r}>") == 2
    assert "both evaluate accuracy, loss, so" in warning
    assert "Pass EvaluateHook(..., name=...) to one of them." in warning


def test_summaries_progress_and_prometheus_have_the_results() -> None:
    client = pytest.importorskip("prometheus_client")
    written: list[tuple[str, float, int]] = []
    summaries = SummaryHook(lambda *summary: written.append(summary), every_steps=4)
    text, registry = io.StringIO(), client.CollectorRegistry()
    hooks = [EvaluateHook(lambda: {"accuracy": 0.5}, every_steps=3), summaries, ProgressHook(file=text)]
    StepLoop(lambda: 2.0, [*hooks, PrometheusHook(registry=registry)], max_steps=4).run()
    assert written == [("eval/accuracy", 0.5, 3), ("loss", 2.0, 4), ("eval/accuracy", 0.5, 4)]
    assert "loss 2, eval accuracy 0.5" in text.getvalue()
    assert registry.get_sample_value("fastsup_result", {"name": "eval/accuracy"}) == 0.5


def test_in_a_session_it_evaluates() -> None:
    import tensorflow as tf

    from fastsup import train

    seen: list[int] = []

    def score(loop: Any) -> int:
        seen.append(loop.global_step)
        return 1

    with tf.Graph().as_default():
        step = tf.compat.v1.assign_add(tf.compat.v1.train.get_or_create_global_step(), 1)
        hooks = [EvaluateHook(score, every_steps=2), train.StopAtStepHook(last_step=5)]
        with train.MonitoredSession(hooks=hooks) as session:
            session.run_loop(step)
    assert seen == [2, 4, 5]


# Early stopping.


def stopped_loop(scores: list[float], mode: str, patience: int, **options: Any) -> tuple[StepLoop, EarlyStoppingHook]:
    """Runs a loop that evaluates after each step, with these results."""
    found = iter(scores)
    stop = EarlyStoppingHook("score", mode, patience, **options)
    loop = StepLoop(int, [EvaluateHook(lambda: {"score": next(found)}, 1), stop], max_steps=len(scores))
    loop.run()
    return loop, stop


@pytest.mark.parametrize(
    ("scores", "mode", "patience", "options", "last", "best", "stopped"),
    [
        ([3, 2, 2, 2, 1], "min", 2, {}, 4, 2, True),
        ([3, 2, 2, 1, 1, 1], "min", 2, {}, 6, 4, True),
        ([1, 2, 1, 3, 1], "max", 2, {}, 5, 4, False),
        ([1, 1.1, 1.2, 1.3], "max", 1, {"min_delta": 0.15}, 2, 1, True),
        ([1, 1.1, 1.2, 1.3], "max", 2, {"min_delta": 0.15}, 4, 3, False),
        ([float("nan"), 1, float("nan"), float("nan"), 0], "min", 2, {}, 4, 2, True),
        ([float("nan"), float("nan"), 1], "max", 2, {}, 2, None, True),
        ([float("inf"), float("inf"), 3], "min", 2, {}, 3, 3, False),
    ],
)
def test_stops_when_the_results_get_no_better(
    scores: list[float],
    mode: str,
    patience: int,
    options: dict[str, Any],
    last: int,
    best: int | None,
    stopped: bool,
) -> None:
    loop, stop = stopped_loop(scores, mode, patience, **options)
    assert (loop.global_step, stop.best_step) == (last, best)
    assert stop.best == (None if best is None else scores[best - 1])
    assert stop.stopped is stopped


def test_restores_the_best(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    state = {"steps": 0}

    def step() -> None:
        state["steps"] += 1

    saver = Checkpoints(tmp_path, {"state": state}, every_steps=100, keep=1, metric="score", mode="min")
    stop = EarlyStoppingHook("score", "min", 3, restore_best=saver)
    loop = StepLoop(step, [EvaluateHook(lambda: {"score": abs(state["steps"] - 4)}, 2), saver, stop], max_steps=50)
    with caplog.at_level("INFO", logger="fastsup"):
        loop.run()
    assert (loop.global_step, stop.best_step, state["steps"]) == (10, 4, 4)
    assert loop.evaluation == {"score": 6}
    assert "step-4: global step 4, score 0. The loop's last step was 10." in caplog.text
    # The last state is saved, too, under its own step.
    assert [saved.global_step for saved in saver.saved()] == [10, 4]
    assert saver.restore() is not None
    assert state["steps"] == 10


def test_the_order_of_the_hooks_is_checked(tmp_path: Path) -> None:
    saver = Checkpoints(tmp_path, {"state": {}}, metric="score", mode="min")
    evaluate, stop = EvaluateHook(lambda: {"score": 1}, 2), EarlyStoppingHook("score", "min", 3, restore_best=saver)
    for hooks in ([stop, evaluate, saver], [evaluate, stop, saver], [saver, stop, evaluate], [evaluate, stop]):
        loop = StepLoop(int, hooks, max_steps=5)
        with pytest.raises(ValueError, match="before EarlyStoppingHook, which restores the best checkpoint"):
            loop.run()
        assert loop.steps == 0


def test_needs_an_evaluation_with_the_metric() -> None:
    with pytest.raises(ValueError, match="EarlyStoppingHook has metric='score', but the loop has no EvaluateHook"):
        StepLoop(int, [EarlyStoppingHook("score", "min", 1)], max_steps=1).run()
    hooks = [EvaluateHook(lambda: {"acc": 1, "loss": 2}, 1), EarlyStoppingHook("accuracy", "max", 1)]
    with pytest.raises(ValueError, match=r"metric must be one of \['acc', 'loss'\], .* got 'accuracy'"):
        StepLoop(int, hooks, max_steps=3).run()


def test_the_metric_may_be_that_of_one_of_several_evaluations() -> None:
    stop = EarlyStoppingHook("b", "max", 2)
    hooks = [EvaluateHook(lambda: {"a": 1}, 1), EvaluateHook(lambda: {"b": 1}, 2), stop]
    loop = StepLoop(int, hooks, max_steps=20)
    loop.run()
    assert (loop.global_step, stop.best_step) == (6, 2)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"metric": None}, TypeError, "metric must be the name of one of"),
        ({"mode": "auto"}, ValueError, "mode must be one of 'min', 'max'; got 'auto'"),
        ({"patience": 0}, ValueError, "patience must be positive, got 0"),
        ({"patience": 1.5}, TypeError, "patience must be an integer"),
        ({"min_delta": "x"}, TypeError, "min_delta must be a number"),
        ({"restore_best": "dir"}, TypeError, "restore_best must be the Checkpoints of the loop, or None, got 'dir'"),
    ],
)
def test_wrong_arguments_of_early_stopping(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as raised:
        EarlyStoppingHook(**{"metric": "score", "mode": "min", "patience": 1, **arguments})
    assert message in str(raised.value)


def test_restore_best_must_have_the_same_metric(tmp_path: Path) -> None:
    saver = Checkpoints(tmp_path, {"state": {}}, metric="loss", mode="min")
    with pytest.raises(ValueError, match="restore_best must have metric='score' and mode='max', like this hook"):
        EarlyStoppingHook("score", "max", 1, restore_best=saver)
