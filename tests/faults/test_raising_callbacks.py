"""What a raising callback costs: each callback of a user, at each place of a run, for each way to end and to train.

FASTSUP_FAULTS=long runs all combinations. A short run takes some of each callback and way.
"""

from __future__ import annotations

import collections
from pathlib import Path
from typing import Any

import pytest
import raising_sessions
import tensorflow as tf
from raising_callbacks import (
    LONG,
    RECOVERABLE,
    Case,
    Expected,
    Record,
    check_each,
    check_outcome,
    chosen,
    expected,
    is_interrupt,
    no_new_threads,
)
from raising_sessions import OF_TENSORFLOW, new_program, recovers, state

pytestmark = [pytest.mark.timeout(3600 if LONG else 120)]


GROUPS: dict[tuple[str, str], list[Case]] = collections.defaultdict(list)
for _case in raising_sessions.cases():
    GROUPS[_case.way, _case.callback].append(_case)


def train(implementation: str, case: Case, folder: Path) -> Record:
    return new_program(implementation, case, str(folder), case.way).run()


def expected_of(record: Record, case: Case) -> Expected:
    closes = case.ending == "close"
    return expected(record, recovers(case.way), absorbs_end_of_input=not closes, ends_after_errors=closes)


def check_calls(record: Record, case: Case, follows: Expected) -> None:
    """Each callback is called as often as it has to be."""
    for hook in "arz":
        assert record.count(f"{hook}.begin") <= 1
        assert record.count(f"{hook}.end") == int(follows.ends), f"{hook}.end"
        assert record.count(f"{hook}.on_error") == reported(record, case), f"{hook}.on_error"
    for call in set(record.calls):
        if call.startswith("l.after_save:"):
            assert record.count(call) <= record.count(call.replace("l.after", "m.before")), "after_save is called twice"
    if case.way in ("run", "async", "singular"):
        save_failed = any("_save" in raised.callback for raised in follows.fails_at_end)
        for listener in "lm":
            ends = [call for call in record.calls if call.startswith(f"{listener}.end:")]
            assert len(ends) == int(follows.ends and not save_failed), f"{listener}.end"


def reported(record: Record, case: Case) -> int:
    """How many errors the hooks are told of by `on_error`."""
    in_block = case.ending != "close"
    count = 0
    for error, callback, phase in record.raised:
        if callback.endswith(".on_error"):
            # One that leaves the end of the block is told to nobody.
            count += is_interrupt(error) and case.ending != "block_error"
        elif isinstance(error, tf.errors.OutOfRangeError):
            pass
        elif phase == "running":
            count += in_block or not is_interrupt(error)
        elif phase == "making again":
            count += in_block and not isinstance(error, RECOVERABLE)
    return count


def check_checkpoint(record: Record, case: Case, follows: Expected, folder: Path) -> int | None:
    """The newest checkpoint is the last one that was begun; after a good end, that of the last step.

    Returns:
      Its step.
    """
    found = state(str(folder), case.way)
    step = None
    if found is not None:
        step, weight = found
        assert step == weight, "the checkpoint isn't of one step"
    if case.way in ("run", "async", "singular"):
        begun = record.steps_of("m.before_save")
        assert step == (begun[-1] if begun else None)
    elif record.sessions:
        assert step is not None
        assert step == record.last_step or not follows.ends
        assert step in (record.last_step, record.last_step - record.last_step % raising_sessions.EVERY)
    if follows.ends and not any(raised.callback == "l.before_save" for raised in follows.fails_at_end):
        assert step == record.last_step, "the last step isn't saved"
    return step


def check(case: Case, folder: Path) -> None:
    """Runs a case, and a training that goes on after it."""
    with no_new_threads():
        record = train("fastsup", case, folder)
    follows = expected_of(record, case)
    assert any(raised.callback == case.callback for raised in record.raised), "the callback hasn't raised"
    check_outcome(record, follows)
    check_calls(record, case, follows)
    assert [session for session in record.sessions if not session._closed] == []
    step = check_checkpoint(record, case, follows, folder)
    with no_new_threads():
        after = new_program("fastsup", None, str(folder), case.way).run()
    assert after.outcome is None
    assert state(str(folder), case.way) == ((step or 0) + 2,) * 2


@pytest.mark.parametrize(("way", "callback"), list(GROUPS))
def test_sessions(way: str, callback: str, tmp_path: Path, record_property: Any) -> None:
    check_each(chosen(GROUPS[way, callback], 2), tmp_path, record_property, check)


# TensorFlow's classes.


# It calls no `on_error`.
OF_BOTH = [(way, callback) for way, callback in GROUPS if way in OF_TENSORFLOW and callback != "r.on_error"]


def kind_of(error: BaseException | None) -> Any:
    return (type(error), getattr(error, "code", None)) if isinstance(error, SystemExit) else type(error)


def compare(case: Case, folder: Path) -> None:
    """TensorFlow's session calls the same in the same order and raises the same, but for what docs/dropin.md says."""
    theirs, ours = train("tensorflow", case, folder / "theirs"), train("fastsup", case, folder / "ours")
    assert kind_of(theirs.outcome) == kind_of(ours.outcome)
    calls = [call for call in ours.calls if not call.endswith(".on_error")]
    newest, our_newest = state(str(folder / "theirs"), case.way), state(str(folder / "ours"), case.way)
    if any(raised.phase == "ending" for raised in ours.raised):
        # "A hook whose `end` raises": what comes after it is called too.
        assert calls[: len(theirs.calls)] == theirs.calls
        assert newest == our_newest
    elif case.callback == "l.before_save" and case.place != "start" and "a.end" in calls:
        # "A save that fails": it is made up for at the end.
        assert calls[: calls.index("a.end")] == theirs.calls[: theirs.calls.index("a.end")]
        assert our_newest == (ours.last_step,) * 2
    else:
        assert calls == theirs.calls
        assert newest == our_newest


@pytest.mark.reference
@pytest.mark.parametrize(("way", "callback"), OF_BOTH)
def test_as_tensorflow(way: str, callback: str, tmp_path: Path, record_property: Any) -> None:
    # TensorFlow handles no signals.
    check_each(
        chosen([case for case in GROUPS[way, callback] if case.ending != "signal"], 1),
        tmp_path,
        record_property,
        compare,
    )
