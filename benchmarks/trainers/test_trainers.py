"""The runner parses its command line, counts lines, changes programs and makes the table; Keras's program runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.trainers.__main__ import parse_options
from benchmarks.trainers.probes import PROBES, modified
from benchmarks.trainers.registry import PROGRAMS
from benchmarks.trainers.runs import ENDLESS, Kills, code_lines, is_installed, run
from benchmarks.trainers.table import HEADINGS, markdown

pytest_plugins = ["processes"]
KILLS = {
    "first_step_secs": [3.0, 5.0, 4.0],
    "killed": [[235, 215], [880, 860], [1525, 215]],
    "terminated": [880, 860],
    "count": 3,
    "evaluations": [6.0, 10.0],
    "accuracies": [97.56, 91.33],
    "epoch_steps": 43,
}


def test_the_programs_compile_and_can_be_changed() -> None:
    for program in PROGRAMS:
        source = program.path.read_text()
        compile(source, str(program.path), "exec")
        changed = modified(source, 7, ENDLESS, True, program.epoch_steps)
        compile(changed, str(program.path), "exec")
        assert changed.count("\n") == source.count("\n")
        assert str(ENDLESS) in changed
        assert modified(source, None, None, False, program.epoch_steps) == source
        assert program.loop in PROBES


def test_a_program_without_the_numbers_is_refused() -> None:
    with pytest.raises(ValueError, match="patience=20"):
        modified("train(max_steps=5000)", None, 5, False, 43)


def test_lines_of_code() -> None:
    source = (
        '"""Docs.\n\nMore.\n"""\n\n# A comment.\nx = """a\n\nb"""\n\n\ndef f():\n    """Docs."""\n    return (\n    )\n'
    )
    assert code_lines(source) == 6
    assert code_lines("x = 1  # A comment.\n") == 1


def test_options() -> None:
    options = parse_options(["keras", "--python", "keras=/bin/python", "--rounds", "1"])
    assert (options.programs, options.python, options.rounds) == (["keras"], {"keras": "/bin/python"}, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["jaxx"], "unknown programs: jaxx"),
        (["--python", "keras"], "must be NAME=PATH"),
        (["--python", "nothing=python"], "must be NAME=PATH"),
        (["--epochs", "1"], "at least 2"),
    ],
)
def test_options_that_are_refused(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_options(arguments)
    assert message in capsys.readouterr().err


def test_the_table() -> None:
    kept = {**KILLS, "terminated": [880, 880], "evaluations": [6.0, 6.0], "accuracies": [97.56, 97.56]}
    text = markdown(
        {
            "a": {"lines": 22, "step_secs": [2e-3, 1.2e-3, 1e-3], "kills": KILLS},
            "b": {"lines": 29, "step_secs": [67e-6], "kills": kept},
            "c": {"lines": 30, "failed": "no end after 300 seconds"},
        }
    )
    _, line, *rows = text.splitlines()
    assert all(row.count("|") == line.count("|") == len(HEADINGS) + 1 for row in rows)
    lost = "20 / 20 / 1,310"
    assert rows[0] == f"| a | 22 | 1,200 | 4.0 | {lost} | 20 | no | lost: +4 evaluations | lost: 97.6 → 91.3 % |"
    assert rows[1] == f"| b | 29 | 67 | 4.0 | {lost} | 0 | yes | kept | kept |"
    assert "no end after 300 seconds" in rows[2]


def test_names_are_their_own() -> None:
    assert len({program.name for program in PROGRAMS}) == len({program.title for program in PROGRAMS}) == len(PROGRAMS)


def test_an_interpreter_that_is_not_there(processes: Any) -> None:
    assert "can't be run" in str(is_installed(PROGRAMS[0], "/nothing/python"))


@pytest.mark.slow
def test_keras_is_killed_and_goes_on(processes: Any, tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    (program,) = (program for program in PROGRAMS if program.name == "keras")

    def start(command: list[str], **settings: Any) -> Any:
        return processes.start(*command, **settings)

    settings: dict[str, Any] = {"last_epoch": 4, "patience": ENDLESS, "start": start}
    before = run(program, sys.executable, tmp_path, mode="steps", kill_at=106, **settings)
    assert before.code == -9
    assert (before.begun_at, before.signaled_at) == (0, 106)
    assert len(before.of("evaluation")) == 2
    assert before.first_step_secs > 0
    after = run(program, sys.executable, tmp_path, mode="steps", **settings)
    assert after.begun_at == 86
    assert after.ended[0] == 172
    assert len(after.of("epoch")) == len(after.of("evaluation")) == 2
    kills = Kills(killed=[(before.signaled_at, after.begun_at)], epoch_steps=program.epoch_steps)
    assert kills.lost == [20]
    assert not kills.within_epoch
