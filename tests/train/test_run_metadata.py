"""Runs the tests of run_metadata.py in their own process.

A session that builds a cost model makes TensorFlow count the uses of its CPU allocator from then on. Memory that was
allocated before isn't counted, but is when it is freed: the allocator may be deleted while it is still in use.
"""

from __future__ import annotations

from pathlib import Path

from processes import Processes


def test_run_metadata(tmp_path: Path, processes: Processes) -> None:
    tests = Path(__file__).with_name("run_metadata.py")
    done = processes.python("-m", "pytest", "-q", "-m", "", "-p", "no:cacheprovider", tests, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "9 passed" in done.stdout
