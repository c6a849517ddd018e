"""The display of a loop's progress: lines in a file, a bar in a terminal."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import Any

import pytest

from fastsup.loop import Hook, ProgressHook, StepLoop, StopAtStepHook

Stepping = Callable[..., Callable[[], Any]]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def lines(file: io.StringIO) -> list[str]:
    return file.getvalue().splitlines()


def test_lines_with_rate_result_and_time_left(stepping: Stepping) -> None:
    file = io.StringIO()
    step = stepping(secs=0.5, results=[0.25] * 100)
    StepLoop(step, [ProgressHook(file=file)], max_steps=2000, initial_step=1950).run()
    assert lines(file) == [
        "step 1,970 of 2,000 (98%), 2 steps/s, loss 0.25, 0:00:15 left",
        "step 1,990 of 2,000 (100%), 2 steps/s, loss 0.25, 0:00:05 left",
        "step 2,000 of 2,000 (100%), 2 steps/s, loss 0.25",
    ]


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize(
    ("stop", "max_steps"),
    [
        ({"last_step": 2000}, None),
        ({"num_steps": 50}, None),
        ({"last_step": 2000}, 2500),
        ({"last_step": 2500}, 2000),
    ],
)
def test_the_end_of_a_stop_hook_beside_it(
    stepping: Stepping, is_first: bool, stop: dict[str, int], max_steps: int | None
) -> None:
    file = io.StringIO()
    hooks: list[Hook] = [ProgressHook(file=file), StopAtStepHook(**stop)]
    step = stepping(secs=0.5, results=[0.25] * 100)
    StepLoop(step, hooks if is_first else hooks[::-1], max_steps=max_steps, initial_step=1950).run()
    assert lines(file)[0] == "step 1,970 of 2,000 (98%), 2 steps/s, loss 0.25, 0:00:15 left"
    assert lines(file)[-1].startswith("step 2,000 of 2,000 (100%)")


def test_the_end_of_a_stop_hook_of_sessions(stepping: Stepping) -> None:
    from fastsup import train

    file = io.StringIO()
    step = stepping(secs=0.5, results=[0.25] * 100)
    StepLoop(step, [train.StopAtStepHook(num_steps=50), ProgressHook(file=file)], initial_step=1950).run()
    assert lines(file)[0] == "step 1,970 of 2,000 (98%), 2 steps/s, loss 0.25, 0:00:15 left"


def test_without_an_end_there_is_no_time_left(stepping: Stepping) -> None:
    file = io.StringIO()
    step = stepping(secs=0.125, results=["no number"] * 12)
    StepLoop(step, [ProgressHook(every_secs=1, file=file)]).run()
    assert lines(file) == ["step 8, 8 steps/s", "step 12, 8 steps/s"]


def test_values_that_were_asked_for_must_be_numbers(stepping: Stepping) -> None:
    hook = ProgressHook(every_secs=1, file=io.StringIO(), values=lambda result: {"loss": result})
    with pytest.raises(TypeError, match=r"must return a number or a mapping .* loss: 'no number'"):
        StepLoop(stepping(results=["no number"]), [hook]).run()


def test_goes_to_stderr(stepping: Stepping, capsys: pytest.CaptureFixture[str]) -> None:
    StepLoop(stepping(), [ProgressHook()], max_steps=3).run()
    assert capsys.readouterr().err == "step 3 of 3 (100%), 1 steps/s\n"


def test_a_bar_in_a_terminal(stepping: Stepping, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    terminal = Terminal()
    StepLoop(stepping(secs=0.1, results=[0.5] * 20), [ProgressHook(file=terminal)], max_steps=20).run()
    shown = terminal.getvalue()
    for part in ("step 1 of 20", "step 20 of 20", "10 steps/s", "loss 0.5", "0:00:00"):
        assert part in shown
    # Shown while it runs, and shown again when it is done.
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") == 1


def test_a_terminal_gets_its_cursor_back_after_an_error(stepping: Stepping, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    terminal = Terminal()

    def step() -> None:
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        StepLoop(step, [ProgressHook(file=terminal)]).run()
    shown = terminal.getvalue()
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")


def test_a_terminal_without_rich_gets_lines(stepping: Stepping, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich", None)
    terminal = Terminal()
    StepLoop(stepping(), [ProgressHook(total=9, file=terminal)], max_steps=3).run()
    assert lines(terminal) == ["step 3 of 9 (33%), 1 steps/s, 0:00:06 left"]


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"total": "x"}, TypeError, "total must be a global step, or None, got 'x'"),
        ({"total": -1}, ValueError, "total must be positive, or None if the end is unknown, got -1"),
        ({"file": "out.txt"}, TypeError, r"file must be a text stream, or None for sys\.stderr, got 'out\.txt'"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=f"^{text}"):
        ProgressHook(**arguments)
