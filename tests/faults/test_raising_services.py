"""What a raising callback costs under a Supervisor: its init_fn, a looper, and the saver of its service."""

from __future__ import annotations

import collections
from pathlib import Path
from typing import Any

import pytest
import raising_supervisors
import tensorflow as tf
from raising_callbacks import LONG, Case, Record, check_each, chosen, is_interrupt, no_new_threads
from raising_supervisors import SupervisorProgram, state

pytestmark = [pytest.mark.timeout(600 if LONG else 120)]

GROUPS: dict[str, list[Case]] = collections.defaultdict(list)
for _case in raising_supervisors.cases():
    GROUPS[_case.callback].append(_case)


def check_outcome(record: Record, case: Case) -> None:
    """The first error is raised: the end of the input ends a run well, unless its session is still being made."""
    if record.signalled:
        assert isinstance(record.outcome, SystemExit)
        assert record.outcome.code == 128 + 15
        if case.callback == "saver":
            assert record.tells(record.raised[0].error), "the error is lost"
        return
    errors = [raised for raised in record.raised if case.place != "ending" or raised.callback == "program"]
    first = errors[0].error if errors else None
    if isinstance(first, tf.errors.OutOfRangeError) and case.callback != "init_fn":
        first = None
    assert record.outcome is first


def check(case: Case, folder: Path) -> None:
    """Runs a case, and a training that goes on after it."""
    with no_new_threads():
        record = SupervisorProgram("fastsup", case, str(folder)).run()
    assert any(raised.callback == case.callback for raised in record.raised), "the callback hasn't raised"
    check_outcome(record, case)
    assert record.sessions
    assert [session for session in record.sessions if not session._closed] == []
    found = state(str(folder))
    step = 0
    if found is not None:
        step, *values = found
        assert values == [step, step], "the checkpoint isn't of one step"
    if record.signalled and case.callback != "saver":
        assert step == record.last_step, "the last step isn't saved"
    with no_new_threads():
        after = SupervisorProgram("fastsup", None, str(folder)).run()
    assert after.outcome is None
    assert after.last_step == step + 2


@pytest.mark.parametrize("callback", list(GROUPS))
def test_services(callback: str, tmp_path: Path, record_property: Any) -> None:
    check_each(chosen(GROUPS[callback], 4), tmp_path, record_property, check)


def compare(case: Case, folder: Path) -> None:
    """TensorFlow's Supervisor raises the same."""
    theirs, ours = (
        SupervisorProgram(name, case, str(folder / name), services=False).run().outcome
        for name in ("tensorflow", "fastsup")
    )
    assert type(theirs) is type(ours)
    if not is_interrupt(ours):
        assert str(theirs).splitlines()[:1] == str(ours).splitlines()[:1]


@pytest.mark.reference
@pytest.mark.parametrize("callback", ["init_fn", "looper"])
def test_services_as_tensorflow(callback: str, tmp_path: Path, record_property: Any) -> None:
    # TensorFlow handles no signals, and takes an OutOfRangeError of an init_fn for the end of the input.
    cases = [
        case
        for case in GROUPS[callback]
        if case.ending != "signal" and (callback, case.error) != ("init_fn", "OutOfRangeError")
    ]
    check_each(chosen(cases, 2), tmp_path, record_property, compare)
