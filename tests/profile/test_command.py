"""`python -m fastsup profile`, as a user runs it."""

from __future__ import annotations

import csv
import functools
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from processes import Processes

from fastsup.__main__ import main

pytestmark = pytest.mark.one_world

# Without TensorFlow, so that it starts quickly.
SCRIPT = """
import sys
from fastsup.core import Hook, StepLoop
from neighbour import STEPS

class Report(Hook):
    def begin(self, loop):
        self.due_every_run()
    def after_step(self, loop, value):
        sum(range(2000))
        if loop.steps == fails_at:
            raise RuntimeError("the script's own error")

fails_at = int(sys.argv[1]) if len(sys.argv) > 1 else -1
assert __name__ == "__main__"
assert sys.modules["__main__"].Report is Report
StepLoop(int, [Report()], max_steps=STEPS).run()
print("done", *sys.argv[1:])
if len(sys.argv) > 2:
    sys.exit(int(sys.argv[2]))
"""


@pytest.fixture
def run(run: Any) -> Any:
    """Runs a command in a new interpreter, which has imported no more than the script."""
    return functools.partial(run, fresh=True)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A script with a module alongside it."""
    folder = tmp_path / "scripts"
    folder.mkdir()
    (folder / "neighbour.py").write_text("STEPS = 50\n")
    path = folder / "train.py"
    path.write_text(SCRIPT)
    return path


def test_a_script_as_it_is(script: Path, run: Any) -> None:
    result = run("profile", script)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0] == "done"
    assert lines[1].startswith("50 steps in ")
    assert any(line.startswith("Report ") for line in lines)
    assert "Look first at Report: " in result.stdout
    assert result.stderr == ""


def test_arguments_and_exit_code_are_the_scripts(script: Path, run: Any) -> None:
    result = run("profile", "--skip-steps", 20, script, -1, 7, "--json")
    assert result.returncode == 7
    assert result.stdout.startswith("done -1 7 --json\n30 steps (20 left out before) in ")


@pytest.mark.parametrize("name", ["train", "scripts.train", "scripts"])
def test_a_module(script: Path, tmp_path: Path, name: str, run: Any, processes: Processes) -> None:
    if name.startswith("scripts"):
        script.write_text(SCRIPT.replace("neighbour", ".neighbour"))
    if name == "scripts":
        script.rename(script.with_name("__main__.py"))
    folder = script.parent if name == "train" else tmp_path
    arguments = ["-m", name, "-1", "3", "-m"]
    alone = processes.python(*arguments, fresh=True, cwd=folder)
    assert alone.stdout == "done -1 3 -m\n", alone.stderr
    result = run("profile", "--table", *arguments, cwd=folder)
    assert result.returncode == alone.returncode == 3
    assert result.stdout.startswith(alone.stdout + "50 steps in ")


def test_a_hook_that_fails(script: Path, run: Any) -> None:
    result = run("profile", script, 10)
    assert result.returncode == 1
    error, *notes = result.stderr.splitlines()[-1 if sys.version_info < (3, 11) else -2 :]
    assert error == "RuntimeError: the script's own error"
    assert all(note.startswith("Raised by the hook <__main__.Report object") for note in notes)
    assert "10 steps in " in result.stdout


def test_a_script_that_fails(script: Path, run: Any, processes: Processes) -> None:
    """Its own error, as without the profiler, and the table of the steps that ran."""
    script.write_text(SCRIPT + "\n\ndef fail():\n    raise ValueError(len(sys.argv))\n\n\nfail()\n")
    alone = processes.python(script, fresh=True)
    result = run("profile", script)
    assert result.returncode == alone.returncode == 1
    assert result.stderr == alone.stderr
    assert "ValueError: 1" in result.stderr
    assert "50 steps in " in result.stdout
    last = "The script failed; see the error above. The profile covers everything up to that point."
    assert " ".join(result.stdout.splitlines()[-2:]).endswith(last)


@pytest.mark.parametrize(
    ("module", "code", "message"),
    [
        ("sys", 2, "there is no module sys in Python that could be run"),
        ("numpy.linalg._umath_linalg", 1, "the module numpy.linalg._umath_linalg isn't in Python"),
    ],
)
def test_a_module_that_is_none(run: Any, module: str, code: int, message: str) -> None:
    result = run("profile", "-m", module)
    assert result.returncode == code
    assert message in result.stderr


def test_a_script_that_is_none(tmp_path: Path, run: Any) -> None:
    path = tmp_path / "broken.py"
    path.write_text("1 +\n")
    result = run("profile", path)
    assert result.returncode == 1
    assert "SyntaxError" in result.stderr
    assert "fastsup/profile" not in result.stderr


def test_files(script: Path, tmp_path: Path, run: Any) -> None:
    names = {kind: tmp_path / f"out.{kind}" for kind in ("json", "csv", "trace", "html")}
    options = [part for kind, path in names.items() for part in (f"--{kind}", path)]
    result = run("profile", *options, script)
    assert result.returncode == 0, result.stderr
    # Without --table the script's output is all there is.
    assert result.stdout == "done\n"
    assert json.loads(names["json"].read_text(encoding="utf-8"))["steps"] == 50
    assert json.loads(names["trace"].read_text(encoding="utf-8"))["traceEvents"]
    assert names["csv"].read_text(encoding="utf-8").startswith("owner,phase,kind,")
    assert names["html"].read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "out.csv", "out.html", "out.json", "out.trace", "scripts"
    ]  # fmt: skip


def test_a_relative_path_is_of_the_folder_at_the_start(script: Path, tmp_path: Path, run: Any) -> None:
    script.write_text("import os; os.chdir('/')\n" + SCRIPT)
    result = run("profile", "--table", "--json", "out.json", script, cwd=tmp_path)
    assert (tmp_path / "out.json").exists(), result.stderr
    assert "50 steps in " in result.stdout


@pytest.mark.parametrize("path", ["missing/out", "scripts"])
@pytest.mark.parametrize("option", ["--json", "--csv", "--trace", "--html"])
def test_unwritable_files_are_said_before_the_run(
    script: Path, tmp_path: Path, option: str, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["profile", option, str(tmp_path / path), str(script)])
    output = capsys.readouterr()
    assert raised.value.code == 2
    assert f"{option} {tmp_path / path} can't be written: " in output.err
    assert output.out == ""


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["profile", "missing.py"], "the script can't be read: "),
        (["profile", "--skip-steps", "-1", __file__], "--skip-steps must not be negative, got -1"),
        (["profile", "--skip-steps", str(2**63), __file__], "--skip-steps must fit into 64 bits"),
        (["profile", "-m", "no_such_module"], "the script can't be read: there is no module no_such_module in Python"),
        (["profile", "-m", "email"], "there is no module email.__main__ in Python"),
        (["profile", "-m", "no_such.module"], "No module named 'no_such'"),
        (
            ["profile", "--tabel", __file__],
            "python -m fastsup profile: error: unrecognized arguments: --tabel. Did you mean '--table'?",
        ),
        (["doctor", "--tabel"], "python -m fastsup doctor: error: unrecognized arguments: --tabel\n"),
        (
            ["proflie", __file__],
            "there is no command 'proflie'. Did you mean 'profile'? The commands are run, profile, doctor, docs.",
        ),
        (["xyz"], "there is no command 'xyz'. The commands are run, "),
        (["profile"], "the following arguments are required: script"),
        (
            ["profile", "--json", "x.py"],
            "required: script. x.py is the value of the option before it: put the script after",
        ),
        (["--versoin"], "there is no command '--versoin'. Did you mean '--version'?"),
        (["profile", "--table", "--"], "the following arguments are required: script"),
    ],
)
def test_wrong_arguments(arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(arguments)
    assert raised.value.code == 2
    assert text in capsys.readouterr().err


def test_no_command_prints_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    output = capsys.readouterr().err
    assert all(re.search(rf"^ +{name} +\w", output, re.MULTILINE) for name in ("run", "profile", "doctor", "docs"))


def test_a_file_that_becomes_unwritable_is_said_in_the_end(script: Path, tmp_path: Path, run: Any) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    script.write_text(SCRIPT + f"\nimport os; os.rmdir({str(folder)!r})\n")
    result = run("profile", "--json", folder / "out", "--csv", tmp_path / "out.csv", script)
    assert result.returncode == 2
    assert "could not be written" in result.stderr
    assert (tmp_path / "out.csv").exists()
    assert "50 steps in " in result.stdout  # The table keeps what the file would have kept.


def test_interrupted(script: Path, run: Any) -> None:
    script.write_text(SCRIPT + "\nimport os, signal; os.kill(os.getpid(), signal.SIGINT)\n")
    result = run("profile", script)
    assert result.returncode != 0
    assert "KeyboardInterrupt" in result.stderr
    assert " ".join(result.stdout.splitlines()[-2:]).endswith(
        "The script was interrupted. The profile covers everything up to that point."
    )
    # The script's frames alone.
    assert "train.py" in result.stderr
    assert "command.py" not in result.stderr
    assert "50 steps in " in result.stdout


def test_a_script_without_sessions(tmp_path: Path, run: Any) -> None:
    path = tmp_path / "empty.py"
    path.write_text("print('nothing to do')\n")
    result = run("profile", path)
    assert result.returncode == 0
    assert "No step was recorded: of a fastsup session or loop, of a fastsup.function or" in result.stdout


ESTIMATOR = """
import tempfile
import tensorflow as tf
import fastsup.estimator as est

class Own(est.SessionRunHook):
    def after_run(self, run_context, run_values):
        sum(range(100))

def model(features, labels, mode):
    weight = tf.compat.v1.get_variable("w", [], initializer=tf.compat.v1.zeros_initializer())
    loss = tf.reduce_mean(tf.square(features * weight - 1.0))
    train = tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(loss, tf.compat.v1.train.get_global_step())
    return est.EstimatorSpec(mode, loss=loss, train_op=train)

def numbers():
    return tf.data.Dataset.from_tensors(tf.ones([4])).repeat(30)

config = est.RunConfig(model_dir=tempfile.mkdtemp(), save_checkpoints_steps=10)
est.Estimator(model, config=config).train(numbers, hooks=[Own(), tf.compat.v1.train.StopAtStepHook(num_steps=20)])
"""


def test_an_estimator(tmp_path: Path, run: Any) -> None:
    """Hooks of the Estimator's own, of TensorFlow's and of the program, without a word of the profiler in it."""
    script, output = tmp_path / "train.py", tmp_path / "out.json"
    script.write_text(ESTIMATOR)
    result = run("profile", "--json", output, "--table", script, fresh=False)
    assert result.returncode == 0, result.stderr
    written = json.loads(output.read_text(encoding="utf-8"))
    calls = {(row["owner"], row["phase"]): row["calls"] for row in written["rows"]}
    assert written["steps"] == calls["Own", "after_run"] == calls["StopAtStepHook", "after_run"] == 20
    assert calls["CheckpointSaverHook", "save"] >= 2
    assert ("NanTensorHook", "fetches") in calls
    parts = sum(row["total_ns"] for row in written["rows"]) + written["profiler_ns"] + written["unaccounted_ns"]
    assert parts == pytest.approx(written["wall_ns"], rel=0.01)
    assert "Look first at " in result.stdout


@pytest.mark.parametrize(("first", "second"), [("json", "csv"), ("trace", "html")])
def test_outputs_in_each_others_place(script: Path, tmp_path: Path, first: str, second: str, run: Any) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "out")
    result = run("profile", f"--{first}", tmp_path / "out", f"--{second}", link, script)
    assert result.returncode == 2
    assert f"overwrite --{first}: it is the same file" in result.stderr
    assert result.stdout == ""
    assert not (tmp_path / "out").exists()


def test_the_script_is_not_overwritten(script: Path, run: Any) -> None:
    result = run("profile", "--json", script, script)
    assert result.returncode == 2
    assert "overwrite the script: it is the same file" in result.stderr
    assert script.read_text() == SCRIPT


def test_what_a_path_names_stays_what_it_is(script: Path, tmp_path: Path, run: Any) -> None:
    """A link is followed, a device or a pipe is written to, a file keeps its permissions."""
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    target.chmod(0o600)
    link.symlink_to(target)
    result = run("profile", "--json", link, "--csv", "/dev/null", "--trace", "/dev/stdout", script)
    assert result.returncode == 0, result.stderr
    assert link.is_symlink()
    assert target.stat().st_mode & 0o777 == 0o600
    assert json.loads(target.read_text())["steps"] == 50
    assert not Path("/dev/null").is_file()
    assert '"traceEvents"' in result.stdout


def test_a_script_with_a_profiler_of_its_own(script: Path, run: Any) -> None:
    script.write_text(
        "import fastsup.core\n"
        "fastsup.core.StepLoop(int, max_steps=30).run()\n"
        "with fastsup.HookProfiler() as profiler:\n"
        "    fastsup.core.StepLoop(int, max_steps=20).run()\n"
        "fastsup.core.StepLoop(int, max_steps=10).run()\n"
        "print(profiler.report().steps)\n"
    )
    result = run("profile", script)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0] == "20"
    assert lines[1].startswith("40 steps in ")


def test_a_script_whose_threads_train(script: Path, run: Any) -> None:
    script.write_text(
        "import threading, time, fastsup.core\n"
        "def train():\n"
        "    time.sleep(0.3)\n"
        "    fastsup.core.StepLoop(int, max_steps=30).run()\n"
        "threading.Thread(target=train).start()\n"
    )
    result = run("profile", script)
    assert result.stdout.startswith("30 steps in "), result.stderr


def test_a_script_that_closes_its_output(script: Path, tmp_path: Path, run: Any) -> None:
    script.write_text(SCRIPT + "\nsys.stdout.close()\n")
    result = run("profile", "--table", "--json", tmp_path / "out", script)
    assert result.returncode == 0
    assert "the table could not be printed: " in result.stderr
    assert "Traceback" not in result.stderr
    assert json.loads((tmp_path / "out").read_text())["steps"] == 50


def test_all_steps_left_out(script: Path, run: Any) -> None:
    assert "All 50 steps were skipped: skip fewer of them." in run("profile", "--skip-steps", 60, script).stdout


@pytest.mark.parametrize("before", [[], ["--"], ["--table", "--"]])
def test_two_dashes_of_the_scripts_own(script: Path, before: list[str], run: Any) -> None:
    script.write_text("import sys; print(sys.argv[1:])")
    result = run("profile", *before, script, "--", "20", "--", "--json")
    assert result.stdout.splitlines()[0] == "['--', '20', '--', '--json']", result.stderr


def test_a_script_that_changes_the_folder(script: Path, run: Any, processes: Processes) -> None:
    """As without the command, it knows where it is, and so does its traceback."""
    script.write_text("import os, sys\nprint(sys.argv[0])\nos.chdir('/')\nprint(__file__)\nraise ValueError")
    alone = processes.python(script.name, fresh=True, cwd=script.parent)
    result = run("profile", "--json", "/dev/null", script.name, cwd=script.parent)
    assert result.stdout == alone.stdout == f"train.py\n{script}\n"
    assert result.stderr.replace("Written: /dev/null\n", "") == alone.stderr


def test_a_child_that_ends_as_the_script_does(script: Path, tmp_path: Path, run: Any) -> None:
    """Only the parent writes the profile."""
    script.write_text(
        "import os, sys, fastsup.core\n"
        "child = os.fork()\n"
        "fastsup.core.StepLoop(int, max_steps=7 if child == 0 else 30).run()\n"
        "if child == 0:\n"
        "    sys.exit(3)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3\n"
    )
    result = run("profile", "--table", "--json", tmp_path / "out", script)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count(" steps in ") == 1
    assert result.stdout.startswith("30 steps in ")
    assert result.stderr.count("Written: ") == 1
    assert json.loads((tmp_path / "out").read_text())["steps"] == 30


def test_without_an_output(script: Path, processes: Processes) -> None:
    result = processes.run("sh", "-c", '"$0" -m fastsup profile "$1" >&-', sys.executable, script)
    assert (result.returncode, result.stderr) == (0, "")


def test_loops_with_profilers_of_their_own_are_told_of(script: Path, run: Any) -> None:
    own = "fastsup.core.StepLoop(int, max_steps=30, profiler=fastsup.HookProfiler()).run()\n"
    script.write_text("import fastsup.core\n" + own)
    told = "This profile doesn't include sessions and loops with their own profiler, or a fit with a ProfilerCallback."
    assert told in " ".join(run("profile", script).stdout.split())
    script.write_text("import fastsup.core\n" + own + "fastsup.core.StepLoop(int, max_steps=5).run()\n")
    result = run("profile", script)
    assert result.stdout.startswith("5 steps in ")
    assert told in " ".join(result.stdout.split())
    script.write_text("import fastsup.core\nfastsup.core.StepLoop(int, max_steps=5).run()\n")
    assert told not in " ".join(run("profile", script).stdout.split())


def test_what_looks_like_an_option_among_the_scripts_arguments(script: Path, run: Any) -> None:
    script.write_text("import sys; print(sys.argv[1:])")
    result = run("profile", script, "--t", 1, "--s", "-h", "--he")
    assert result.stdout.splitlines()[0] == "['--t', '1', '--s', '-h', '--he']", result.stderr
    assert "after the script" not in result.stderr


def test_options_after_the_script_are_the_scripts(script: Path, run: Any) -> None:
    script.write_text("import sys; print(sys.argv[1:])")
    result = run("profile", script, "--json", "x", "--fail-above=a", "--mine")
    assert result.stdout.splitlines()[0] == "['--json', 'x', '--fail-above=a', '--mine']", result.stderr
    line = "python -m fastsup profile: {} after the script is an argument of the script. For fastsup, put it before the"
    for option in ("--json", "--fail-above=a"):
        assert line.format(option) in result.stderr
    assert result.stderr.count("after the script") == 2


def test_step_markers_without_tensorflow(
    script: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("fastsup.profile.profiler.find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="2"):
        main(["profile", "--step-markers", str(script)])
    assert "error: --step-markers require TensorFlow's profiler, which isn't installed" in capsys.readouterr().err


def test_the_head_is_of_the_script(script: Path, run: Any) -> None:
    result = run("profile", script, -1, "a b")
    lines = result.stdout.splitlines()
    assert lines[1].startswith("50 steps in ")
    # Lines end within a long path, too.
    head = "".join(lines[2:8]).replace(" ", "")
    assert f"{script.name}-1'ab',2" in head
    assert "fastsup" in head
    assert "Python" in head


def test_the_whole_program_adds_up(script: Path, tmp_path: Path, run: Any) -> None:
    """Imports within a function, and the program's code before and after its loop."""
    (script.parent / "slow_module.py").write_text("import time\ntime.sleep(0.2)\n")
    script.write_text(
        "import time\nbegan = time.perf_counter()\n"
        "def load():\n    import slow_module\n"
        "load()\nimport fastsup.core\ntime.sleep(0.1)\n"
        "fastsup.core.StepLoop(lambda: time.sleep(0.01), max_steps=10).run()\n"
        "time.sleep(0.05)\nprint(time.perf_counter() - began)\n"
    )
    began = time.perf_counter()
    result = run("profile", "--table", "--json", tmp_path / "out.json", script)
    elapsed = time.perf_counter() - began
    assert result.returncode == 0, result.stderr
    phases = {phase["phase"]: phase for phase in json.loads((tmp_path / "out.json").read_text())["timeline"]}
    took = float(result.stdout.splitlines()[0])
    whole = sum(phase["total_ns"] for phase in phases.values()) / 1e9
    assert took <= whole <= elapsed
    assert list(phases) == ["import", "build", "train", "end"]
    assert phases["import"]["total_ns"] >= 0.2e9
    assert phases["build"]["total_ns"] >= 0.1e9
    assert phases["train"]["total_ns"] >= 0.1e9
    assert phases["end"]["total_ns"] >= 0.05e9
    assert "whole program" in result.stdout


@pytest.mark.parametrize(
    "statement", ["import no_such_module", "import broken", "import importlib; importlib.reload(1)"]
)
def test_an_import_that_fails_shows_what_it_shows_without_the_profiler(
    script: Path, statement: str, run: Any, processes: Processes
) -> None:
    (script.parent / "broken.py").write_text("def fail():\n    1 / 0\nfail()\n")
    script.write_text(f"{statement}\n")
    alone = processes.python(script, fresh=True)
    result = run("profile", script)
    assert (result.returncode, result.stderr) == (alone.returncode, alone.stderr)


def test_compared_with_a_profile_before(script: Path, tmp_path: Path, run: Any) -> None:
    before = tmp_path / "before.json"
    assert run("profile", "--json", before, script).returncode == 0
    result = run("profile", "--compare", before, script)
    assert result.returncode == 0, result.stderr
    assert "compared with train.py, 2" in result.stdout
    assert "whole step, with the time between steps" in result.stdout
    # The comparison alone, without the table.
    assert "50 steps in" not in result.stdout
    assert "50 steps in" in run("profile", "--table", "--compare", before, script).stdout


@pytest.mark.parametrize(
    ("written", "text"), [(None, "No such file"), ("no json", "isn't JSON"), ("{}", "isn't a profile")]
)
def test_what_can_not_be_compared_is_said_before_the_run(
    script: Path, tmp_path: Path, written: str | None, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = tmp_path / "before.json"
    if written is not None:
        before.write_text(written)
    with pytest.raises(SystemExit) as raised:
        main(["profile", "--compare", str(before), str(script)])
    output = capsys.readouterr()
    assert raised.value.code == 2
    assert f"--compare {before} can't be used: " in output.err
    assert text in output.err
    assert output.out == ""


def test_a_script_that_only_has_tensorflows_sessions(tmp_path: Path, run: Any, tensorflow_only: str) -> None:
    path = tmp_path / "own.py"
    path.write_text(tensorflow_only)
    result = run("profile", path, fresh=False)
    assert result.returncode == 0, result.stderr
    said = " ".join(result.stdout.split())
    assert "The program opens a MonitoredTrainingSession of TensorFlow's, in own.py:6." in said
    assert "`import fastsup.train as train`, and `with train.MonitoredTrainingSession(...)`" in said


KERAS_PROGRAM = """
import numpy as np
import keras

x = np.ones((32, 2), "float32")
model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
model.compile("sgd", "mse", jit_compile=False)
model.fit(x, x[:, :1], batch_size=8, epochs=2, verbose=2)
"""


@pytest.mark.slow
def test_a_keras_program_that_imports_keras_itself(tmp_path: Path, run: Any) -> None:
    script = tmp_path / "train_keras.py"
    script.write_text(KERAS_PROGRAM)
    result = run("profile", "--csv", tmp_path / "rows.csv", script)
    assert result.returncode == 0
    with open(tmp_path / "rows.csv") as file:
        rows = list(csv.DictReader(file))
    (function,) = [row for row in rows if row["phase"] == "train_function"]
    assert (function["session"], function["calls"]) == ("Sequential.fit, train_keras.py:8", "8")
    assert {"ProgbarLogger", "History"} <= {row["owner"] for row in rows}


def test_limits_on_costs(tmp_path: Path, run: Any) -> None:
    path = tmp_path / "loop.py"
    path.write_text(
        "import sys, time\n"
        "from fastsup.core import Hook, StepLoop\n"
        "class Slow(Hook):\n"
        "    def begin(self, loop):\n"
        "        self.due_every_run()\n"
        "    def after_step(self, loop, value):\n"
        "        time.sleep(float(sys.argv[2]))\n"
        "StepLoop(lambda: 1, [Slow()], max_steps=20).run()\n"
        "sys.exit(int(sys.argv[1]))\n"
    )
    # The hook takes so long that a busy machine, which holds up the rest, doesn't change which of the two is above.
    result = run("profile", "--fail-above", "Slow 50%", "--fail-above", "runtime 60%", path, "0", "0.05")
    assert result.returncode == 3, result.stderr
    assert re.search(r"--fail-above: Slow takes [\d.]+% of the time, more than 50%\.", result.stderr)
    assert "runtime takes" not in result.stderr
    assert "Slow" in result.stdout
    assert run("profile", "--fail-above", "hooks 10 %", path, "0", "0.01").returncode == 3
    # A hook that was renamed must not switch the check off.
    for options, code in ((), 2), (("--allow-missing",), 0):
        result = run("profile", "--fail-above", "Slow 100%", "--fail-above", "slwo 1%", *options, path, "0", "0")
        assert result.returncode == code, result.stderr
        assert (
            "no row has the name 'slwo', so its limit isn't checked. Did you mean 'Slow'? The hooks, callbacks "
            "and phases "
            "are Slow, " in result.stderr
        )
    result = run("profile", "--fail-above", "Slow 50%", path, "7", "0")
    assert result.returncode == 7
    end = " ".join(result.stdout.splitlines()[-2:])
    assert end.endswith("The script exited with code 7. The profile covers everything up to that point.")
    result = run("profile", "--fail-above", "Slow", path, "0", "0")
    assert result.returncode == 2
    text = "--fail-above: a limit is a name and a percentage (0 to 100), such as 'ModelCheckpoint 5%', got 'Slow'"
    assert text in result.stderr
