"""The phases of a program add up to the time that passed, however they are nested."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from fastsup.core import timeline
from fastsup.profile.recording.phases import Timeline


class Clock:
    """Moves when it is told to."""

    def __init__(self) -> None:
        self.ns = 0

    def __call__(self) -> int:
        return self.ns


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def program(clock: Clock) -> Iterator[Timeline]:
    program = Timeline(clock)
    program.start()
    yield program
    program.stop()


def test_phases_add_up(program: Timeline, clock: Clock) -> None:
    clock.ns += 1
    with timeline.phase("import"):
        clock.ns += 20
    clock.ns += 300
    with timeline.phase("open"):
        clock.ns += 4000
    training = timeline.begin("train")
    clock.ns += 50_000
    with timeline.phase("save"):
        clock.ns += 600_000
    timeline.finish(training)
    timeline.finish(training)
    clock.ns += 7_000_000
    assert program.phases() == [
        ("import", 20, 1),
        ("build", 301, 0),
        ("open", 4000, 1),
        ("train", 50_000, 1),
        ("save", 600_000, 1),
        ("end", 7_000_000, 0),
    ]


def test_sessions_need_not_be_nested(program: Timeline, clock: Clock) -> None:
    """The one that was opened last has the time, and the other one when it is closed."""
    first = timeline.begin("train")
    clock.ns += 1
    second = timeline.begin("evaluate")
    clock.ns += 20
    timeline.finish(first)
    clock.ns += 300
    timeline.finish(second)
    clock.ns += 4000
    with timeline.phase("open"):
        pass
    assert program.phases() == [("build", 4000, 0), ("open", 0, 1), ("train", 1, 1), ("evaluate", 320, 1)]


def test_a_program_without_sessions_has_no_build(program: Timeline, clock: Clock) -> None:
    with timeline.phase("import"):
        clock.ns += 5
    clock.ns += 7
    assert program.phases() == [("import", 5, 1), ("program", 7, 0)]


def test_what_comes_after_the_end_is_no_part_of_it(program: Timeline, clock: Clock) -> None:
    """Such as writing the profile's own files."""
    with timeline.phase("train"):
        clock.ns += 5
    clock.ns += 7
    program.stop()
    clock.ns += 1_000
    assert program.phases() == program.phases() == [("train", 5, 1), ("end", 7, 0)]


def test_other_threads_have_no_part_in_it(program: Timeline, clock: Clock) -> None:
    begun: list[object] = []
    thread = threading.Thread(target=lambda: begun.append(timeline.begin("save")))
    thread.start()
    thread.join()
    clock.ns += 3
    assert begun == [None]
    assert program.phases() == [("program", 3, 0)]


def test_nothing_happens_without_a_timeline() -> None:
    assert timeline.begin("train") is None
    with timeline.phase("save"):
        timeline.finish(None)
