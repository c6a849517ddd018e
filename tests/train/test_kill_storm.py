"""A training that is killed at random moments goes on, each time, from a checkpoint that is whole and new."""

from __future__ import annotations

import importlib.util
import os

import pytest
from processes import Processes

_SPEC = importlib.util.spec_from_file_location("kill_storm", os.path.join(os.path.dirname(__file__), "kill_storm.py"))
assert _SPEC is not None
assert _SPEC.loader is not None
kill_storm = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(kill_storm)


@pytest.mark.one_world
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("kills", "async_save"), [(20, False), (6, True)])
def test_restarts_from_a_checkpoint_that_is_whole_and_new(kills: int, async_save: bool, processes: Processes) -> None:
    outcome = kill_storm.storm(kills, seed=kills, async_save=async_save, starter=processes.start_python)
    assert outcome.failed == []
    assert outcome.torn == []
    assert outcome.stale == []
    # Most of them got as far as to restore and train.
    assert outcome.restarts > kills // 2
    assert outcome.last_step > kills
