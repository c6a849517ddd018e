"""What a raising callback of a StepLoop's hooks costs: each callback, at each place of a run, for each way to end."""

from __future__ import annotations

import collections
from pathlib import Path
from typing import Any

import pytest
import raising_loops
import tensorflow as tf
from raising_callbacks import LONG, Case, check_each, check_outcome, chosen, expected, no_new_threads
from raising_loops import LoopProgram, state

pytestmark = [pytest.mark.timeout(1200 if LONG else 120)]

GROUPS: dict[tuple[str, str], list[Case]] = collections.defaultdict(list)
for _case in raising_loops.cases():
    GROUPS[_case.way, _case.callback].append(_case)


def check(case: Case, folder: Path) -> None:
    """Runs a case, and a loop that goes on after it."""
    with no_new_threads():
        record = LoopProgram(case, str(folder), case.way).run()
    # A loop recovers from errors of its step alone, and no error of a hook is the end of the input.
    follows = expected(record, recovers=False, absorbs_end_of_input=False, ends_after_errors=False)
    assert any(raised.callback == case.callback for raised in record.raised), "the callback hasn't raised"
    check_outcome(record, follows)
    for hook in "arz":
        was_begun = record.count(f"{hook}.begin")
        assert was_begun <= 1
        assert record.count(f"{hook}.end") == int(follows.ends), f"{hook}.end"
        is_told = follows.outcome is not None and follows.outcome is not SystemExit and was_begun
        assert record.count(f"{hook}.on_error") == int(is_told), f"{hook}.on_error"
    found = state(str(folder))
    step = None
    if found is not None:
        step, weight = found
        assert step == weight, "the checkpoint isn't of one step"
    if follows.ends and case.callback != "s.save":
        assert step == record.last_step, "the last step isn't saved"
    elif case.callback == "s.save":
        assert step == {"middle": None, "end": 4}[case.place]
    elif case.callback != "r.begin":
        # The saver comes before the hook that raises.
        assert step == (record.last_step - record.last_step % raising_loops.EVERY or None)
    with no_new_threads():
        after = LoopProgram(None, str(folder), case.way).run()
    assert after.outcome is None
    assert state(str(folder)) == ((step or 0) + 2,) * 2


@pytest.mark.skipif(not tf.executing_eagerly(), reason="the loop's variables are those of TF 2 behaviour")
@pytest.mark.parametrize(("way", "callback"), list(GROUPS))
def test_step_loops(way: str, callback: str, tmp_path: Path, record_property: Any) -> None:
    check_each(chosen(GROUPS[way, callback], 3), tmp_path, record_property, check)
