"""The commands that measure clusters and saves do what they say, in a small form."""

from __future__ import annotations

import pytest

from benchmarks import pauses, scale
from fastsup.cluster import server


@pytest.mark.parametrize("earlier_run", [False, True])
def test_a_job_of_threads_is_counted(monkeypatch: pytest.MonkeyPatch, earlier_run: bool) -> None:
    monkeypatch.setattr(scale, "END_SECS", 0.05)
    monkeypatch.setattr(server, "_POLL_SECS", 0.02)
    monkeypatch.setenv("TF_CONFIG", "{}")
    found = scale.run_fake_job(3, 2, 0.2, earlier_run)
    calls = found["calls"]
    assert calls["end", "write_whole"] == 4
    assert calls["training", "exists"] >= 4
    assert calls["training", "list_names"] == 0
    assert calls["start", "read_file_to_string"] == (8 if earlier_run else 0)
    assert found["chief"] == 2
    assert found["ends_after"] < 30


def test_the_looks_of_waiting_workers() -> None:
    looks = scale.waiting_looks(4, wait_secs=0.3, look_secs=0.01)
    # One at once, and one after half a second.
    assert len(looks) == 8
    assert max(looks) < 20


@pytest.mark.parametrize("kind", list(pauses.PROGRAMS))
def test_snapshots_are_measured(kind: str) -> None:
    samples = pauses.snapshots(kind, 1, 2)
    assert set(samples) == {"async_save", "copies"}
    assert all(len(found) == 2 and min(min(found)) > 0 for found in samples.values())
