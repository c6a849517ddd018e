"""What a raising callback costs in Estimator.train and train_and_evaluate."""

from __future__ import annotations

import collections
from pathlib import Path
from typing import Any

import pytest
import raising_estimators
import tensorflow as tf
from raising_callbacks import LONG, Case, check_each, check_outcome, chosen, expected, is_interrupt, no_new_threads
from raising_sessions import EVERY, LAST, state

pytestmark = [pytest.mark.timeout(1800 if LONG else 120)]

GROUPS: dict[str, list[Case]] = collections.defaultdict(list)
for _case in raising_estimators.cases():
    GROUPS[_case.callback].append(_case)


def newest(folder: Path) -> int | None:
    """The step of the newest checkpoint, which is of one step; None if there is none."""
    found = state(str(folder), "estimator")
    if found is None:
        return None
    step, weight = found
    assert step == weight, "the checkpoint isn't of one step"
    return step


def go_on(case: Case, folder: Path, step: int | None) -> None:
    """A training that goes on from the newest checkpoint for two steps."""
    with no_new_threads():
        after = raising_estimators.run(None, str(folder), case.way)
    assert after.outcome is None
    assert newest(folder) == (step or 0) + 2


def check(case: Case, folder: Path) -> None:
    with no_new_threads():
        record = raising_estimators.run(case, str(folder), case.way)
    follows = expected(record, recovers=True, absorbs_end_of_input=True, ends_after_errors=False)
    assert any(raised.callback == case.callback for raised in record.raised), "the callback hasn't raised"
    check_outcome(record, follows)
    for hook in "arz":
        assert record.count(f"{hook}.begin") <= 1
        assert record.count(f"{hook}.end") == int(follows.ends), f"{hook}.end"
    save_failed = any("_save" in raised.callback for raised in follows.fails_at_end)
    for listener in "lm":
        ends = [call for call in record.calls if call.startswith(f"{listener}.end:")]
        assert len(ends) == int(follows.ends and not save_failed), f"{listener}.end"
    assert [session for session in record.sessions if not session._closed] == []
    step = newest(folder)
    begun = record.steps_of("m.before_save")
    assert step == (begun[-1] if begun else None)
    if follows.ends and not any(raised.callback == "l.before_save" for raised in follows.fails_at_end):
        # After the saver, which comes before it, the first hook isn't called in a run in which a listener has raised.
        assert step in (record.last_step, record.last_step + 1), "the last step isn't saved"
    go_on(case, folder, step)


@pytest.mark.parametrize("callback", list(GROUPS))
def test_train(callback: str, tmp_path: Path, record_property: Any) -> None:
    check_each(chosen(GROUPS[callback], 1), tmp_path, record_property, check)


def check_evaluated(case: Case, folder: Path) -> None:
    """An error of an evaluation is one of the save that it follows; in the last save, one of the end."""
    with no_new_threads():
        record = raising_estimators.run(case, str(folder), case.way)
    (raised,) = record.raised
    in_run_of_evaluation = case.callback == "e.before_run"
    is_fatal = not isinstance(raised.error, (tf.errors.OutOfRangeError, tf.errors.AbortedError))
    if in_run_of_evaluation and not is_fatal:
        fails, step = False, LAST  # The evaluation itself ends, or recovers.
    elif case.place == "last":
        fails, step = True, LAST
    else:
        # In a run of the training: the first save after a step.
        fails, step = is_fatal, LAST if case.error == "AbortedError" else EVERY
    assert record.outcome is (raised.error if fails else None)
    ends = not fails or case.place == "last"
    for hook in "arz":
        assert record.count(f"{hook}.end") == int(ends), f"{hook}.end"
        told = int(case.place == "first" and not in_run_of_evaluation and case.error != "OutOfRangeError")
        told += int(case.place == "first" and in_run_of_evaluation and is_fatal)
        assert record.count(f"{hook}.on_error") == told, f"{hook}.on_error"
    assert [session for session in record.sessions if not session._closed] == []
    assert newest(folder) == step
    go_on(case, folder, step)
    assert is_fatal or not is_interrupt(record.outcome)


def test_train_and_evaluate(tmp_path: Path, record_property: Any) -> None:
    check_each(chosen(list(raising_estimators.evaluated_cases()), 3), tmp_path, record_property, check_evaluated)
