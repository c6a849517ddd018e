"""`--compare`: two profiles, row by row; also one that an earlier version has written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fastsup import HookProfiler
from fastsup.core.sessions import SessionOrigin
from fastsup.profile.compare import compare, load
from fastsup.profile.export import as_dict
from fastsup.profile.recording.recorder import ManualClock
from fastsup.profile.report import report_of

# As the version before has written it.
OLD = {
    "schema": 1, "steps": 10, "skipped_steps": 0, "threads": 1, "wall_ns": 20_000, "profiler_ns": 0,
    "unaccounted_ns": 1000, "advice": "", "step_time": {"buckets": []},
    "rows": [
        {"owner": "Quick", "phase": "after_run", "kind": "hook", "basis": "measured", "calls": 10, "total_ns": 4000},
        {"owner": "Gone", "phase": "save", "kind": "hook", "basis": "measured", "calls": 1, "total_ns": 5000},
        {"owner": "session", "phase": "runtime", "kind": "session", "basis": "measured", "calls": 9, "total_ns": 10000},
    ],
}  # fmt: skip


class Quick:
    """Stands for a hook."""


def profile(
    steps: int, hook_ns: int, runtime_ns: int, line: int = 1, timeline: Any = (), file: str = "a.py"
) -> dict[str, Any]:
    clock = ManualClock()
    profiler = HookProfiler(clock=clock)
    hook = Quick()
    profiler.register(hook, profiler.new_caller(SessionOrigin("Session", "train", f"{file}:{line}")))
    for _ in range(steps):
        with profiler.step():
            with profiler.span(hook, "after_run"):
                clock.advance(hook_ns)
            with profiler.session_span("runtime"):
                clock.advance(runtime_ns)
    return as_dict(report_of(profiler, timeline=timeline))


def text(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    lines = [line for line, _ in compare(before, now)]
    assert max(map(len, lines)) <= 80
    return [" ".join(line.split()) for line in lines]


def test_rows_are_compared_by_step() -> None:
    """Whatever the number of steps; and sessions are the same whose line has moved."""
    lines = text(profile(100, 500, 1000, line=3), profile(40, 250, 1005, line=8))
    assert "whole step, with the time between steps 1.50µs 1.25µs 0.84 x" in lines
    assert "100 steps before, 40 now: one-time costs (setup, tracing, the end) are divided" in lines
    assert "Session (train), a.py" in lines
    assert "Quick: after_run 500ns 250ns 0.50 x" in lines
    assert not any(line.startswith("runtime") for line in lines)
    assert any(line.startswith("1 row") or "more rows differ by less than 5%" in line for line in lines)


def test_the_sessions_of_a_copy_of_the_script_are_the_same() -> None:
    lines = text(profile(10, 500, 1000), profile(10, 250, 1005, file="edited.py"))
    assert "Session (train), edited.py" in lines
    assert "Quick: after_run 500ns 250ns 0.50 x" in lines
    assert not any("a.py" in line for line in lines)


def test_a_long_first_line_is_wrapped() -> None:
    now = profile(10, 500, 1000)
    before = {**now, "head": {"script": "a.py", "arguments": ["--number"] * 12, "date": "2026-11-25"}}
    first, second = text(before, now)[:2]
    assert f"{first} {second}" == f"compared with a.py {'--number ' * 12}".rstrip() + ", 2026-11-25"


def test_what_is_worse_comes_first() -> None:
    lines = text(profile(10, 500, 1000), profile(10, 600, 9000))
    assert lines.index("runtime 1.00µs 9.00µs 9.00 x") < lines.index("Quick: after_run 500ns 600ns 1.20 x")


def test_a_profile_of_the_version_before() -> None:
    lines = text(OLD, profile(10, 800, 1000))
    assert lines[0] == "compared with a profile of an earlier version"
    assert "Quick: after_run 400ns 800ns 2.00 x" in lines
    assert "Gone: save 500ns - gone" in lines
    assert "One profile doesn't distinguish sessions and fetches, so they are added up." in lines


def test_phases_of_the_program_are_compared() -> None:
    now = profile(10, 500, 1000, timeline=[("import", 4000, 1), ("train", 1000, 1)])
    before = profile(10, 500, 1000, timeline=[("import", 2000, 1), ("train", 2000, 1), ("end", 1, 1)])
    lines = text(before, now)
    assert lines[-3:] == [
        "whole program 4.00µs 5.00µs 1.25 x",
        "import 2.00µs 4.00µs 2.00 x",
        "train 2.00µs 1.00µs 0.50 x",
    ]
    # How long an import takes isn't the program's.
    assert [style for _, style in compare(before, now)[-3:]] == ["red", "", "green"]
    said = text(OLD, now)[-1]
    assert said == "The phases of the whole program aren't compared: the earlier one has none."


def test_a_profile_without_steps() -> None:
    assert text(OLD, profile(0, 1, 1))[-1] == "Nothing to compare: one of the two profiles has no steps."


@pytest.mark.parametrize(
    ("written", "error"),
    [
        ("{", "isn't JSON"),
        ("[1]", "isn't a profile. Pass a file written by --json."),
        ('{"schema": 1}', "isn't a profile"),
        (json.dumps({**OLD, "schema": 99}), "its schema is 99, and 3 is the last one that this version supports"),
    ],
)
def test_what_is_no_profile_is_refused(tmp_path: Path, written: str, error: str) -> None:
    path = tmp_path / "old.json"
    path.write_text(written, encoding="utf-8")
    with pytest.raises(ValueError, match=error):
        load(str(path))


def test_a_file_that_was_written_is_read(tmp_path: Path, recorded: HookProfiler) -> None:
    recorded.write_json(tmp_path / "new.json")
    assert load(str(tmp_path / "new.json")) == json.loads(json.dumps(as_dict(recorded.report())))
