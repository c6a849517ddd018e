"""`python -m fastsup run` ends as `python` does: exit codes, tracebacks, arguments, scripts that aren't there."""

from __future__ import annotations

import functools
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = {
    "exit_code": "import sys; sys.exit(7)",
    "exit_text": "import sys; sys.exit('that is all')",
    "exit_nothing": "raise SystemExit",
    "error": "def inner():\n    raise ValueError('no value')\n\nprint('started')\ninner()\n",
    "chained": "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise RuntimeError('then') from error\n",
    "syntax": "x = = 1\n",
    "interrupt": "raise KeyboardInterrupt",
    "arguments": "import sys, neighbour\nprint(sys.argv[1:], sys.path[0], __name__, __file__, neighbour.X)",
    "group": "raise NameError('x') if '--no' in __import__('sys').argv else SystemExit(3)",
}


@pytest.fixture
def run(children: Any) -> Any:
    """Runs Python in a new interpreter, in which it is the script that imports TensorFlow, or doesn't."""
    return functools.partial(children.run, fresh=True)


@pytest.mark.parametrize("name", SCRIPTS)
def test_as_python_does(run: Any, tmp_path: Path, name: str) -> None:
    script = tmp_path / f"{name}.py"
    script.write_text(SCRIPTS[name])
    (tmp_path / "neighbour.py").write_text("X = 5")
    arguments = (script, "a", "--tf", "-m", "--", "b")
    ours, pythons = run("-m", "fastsup", "run", *arguments), run(*arguments)
    assert (ours.returncode, ours.stdout, ours.stderr) == (pythons.returncode, pythons.stdout, pythons.stderr)


@pytest.mark.parametrize("kind", ["a script", "a folder"])
@pytest.mark.parametrize("options", [[], ["-I"], ["-E"], *([["-P"]] if sys.version_info >= (3, 11) else [])], ids=str)
def test_the_import_path_is_as_python_makes_it(
    children: Any, run: Any, tmp_path: Path, options: list[str], kind: str
) -> None:
    """Isolated, Python doesn't import from the script's folder."""
    (tmp_path / "__main__.py").write_text("import json, sys\nprint(json.dumps(sys.path))")
    script = tmp_path if kind == "a folder" else tmp_path / "__main__.py"
    places = {"PYTHONPATH": os.pathsep.join([str(tmp_path / "lib"), os.environ.get("PYTHONPATH", "")])}
    alone = children.result(run(*options, script, **places))
    assert children.result(run(*options, "-m", "fastsup", "run", script, **places)) == alone


def test_a_folder(run: Any, tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "empty").mkdir()
    (tmp_path / "jobs" / "neighbour.py").write_text("X = 5")
    (tmp_path / "jobs" / "__main__.py").write_text(SCRIPTS["arguments"] + "; print(sys.argv[0], __package__ or '')")
    for name in ("jobs", str(tmp_path / "jobs"), "empty"):
        ours = run("-m", "fastsup", "run", name, "a", folder=tmp_path)
        pythons = run(name, "a", folder=tmp_path)
        assert (ours.returncode, ours.stdout, ours.stderr) == (pythons.returncode, pythons.stdout, pythons.stderr)


def test_a_module(run: Any, tmp_path: Path) -> None:
    package = tmp_path / "jobs"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "train.py").write_text("import sys; from . import data; print(sys.argv[1:], __package__, data.X)")
    (package / "data.py").write_text("X = 1")
    arguments = ("-m", "jobs.train", "--steps", "5")
    ours = run("-m", "fastsup", "run", *arguments, folder=tmp_path)
    pythons = run(*arguments, folder=tmp_path)
    assert (ours.returncode, ours.stdout, ours.stderr) == (pythons.returncode, pythons.stdout, pythons.stderr)
    assert ours.stdout == "['--steps', '5'] jobs 1\n"


@pytest.mark.parametrize("arguments", [("missing.py",), ("-m", "missing_module"), ("-m", "missing.module"), ("-m", "")])
def test_what_is_not_there(run: Any, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    ours = run("-m", "fastsup", "run", *arguments, folder=tmp_path)
    pythons = run(*arguments, folder=tmp_path)
    assert (ours.returncode, ours.stdout, ours.stderr) == (pythons.returncode, pythons.stdout, pythons.stderr)


@pytest.mark.parametrize(("arguments", "text"), [((), "required: script"), (("--quick", "x.py"), "--quick")])
def test_wrong_arguments(run: Any, arguments: tuple[str, ...], text: str) -> None:
    done = run("-m", "fastsup", "run", *arguments)
    assert done.returncode == 2
    assert text in done.stderr
    assert "usage: python -m fastsup run [--tf1] [--accelerate]" in done.stderr


def test_a_script_without_tensorflow_imports_none(run: Any, tmp_path: Path) -> None:
    script = tmp_path / "light.py"
    script.write_text("import sys; print('tensorflow' in sys.modules)")
    done = run("-m", "fastsup", "run", "--tf1", script)
    assert done.stdout == "False\n"


def test_what_a_script_sets_before_it_imports_tensorflow_counts(run: Any, tmp_path: Path) -> None:
    script = tmp_path / "early.py"
    # Read when TensorFlow is imported; and a room of fastsup that imports it first.
    script.write_text(
        "import os\nos.environ['TF_USE_LEGACY_KERAS'] = '1'\nimport fastsup.train as train\nimport tensorflow as tf\n"
        "print(tf._tf_uses_legacy_keras, tf.compat.v1.train.Supervisor is train.Supervisor, tf.estimator.RunConfig)"
    )
    done = run("-m", "fastsup", "run", script)
    assert done.stdout.startswith("True True <class 'fastsup."), done.stderr


@pytest.mark.parametrize(("environment", "legacy"), [({}, True), ({"TF_USE_LEGACY_KERAS": "0"}, False)])
def test_a_tf1_program_gets_the_keras_of_its_years(
    run: Any, tmp_path: Path, environment: dict[str, str], legacy: bool
) -> None:
    script = tmp_path / "layers.py"
    script.write_text(
        "import tensorflow as tf\nwith tf.Graph().as_default():\n"
        "    print(tf.keras.layers.Dense.__module__.split('.')[0])\n"
        "    print(tf.layers.dense(tf.zeros([2, 3]), 4, name='d').shape)"
    )
    done = run("-m", "fastsup", "run", "--tf1", script, **environment)
    if legacy:
        assert done.stdout.splitlines() == ["tf_keras", "(2, 4)"], done.stderr
    else:
        assert done.stdout == "keras\n"
        assert "not available with Keras 3. tf.compat.v1.layers and " in done.stderr
        assert "script.py" not in done.stderr  # Of the frames, only those of the program are shown.


@pytest.mark.parametrize(
    ("arguments", "line", "hint"),
    [
        (["run"], "tf.app.run(main)", "tf.app is a name of TensorFlow 1. `python -m fastsup run --tf1 SCRIPT` runs"),
        (["run"], "tf.contrib.learn", "tf.contrib is a name of TensorFlow 1."),
        (["run"], "tf.train.SessionRunHook", "tf.train.SessionRunHook is a name of TensorFlow 1."),
        (["run"], "tf.losses.get_total_loss()", "tf.losses.get_total_loss is a name of TensorFlow 1."),
        (["run"], "tf.nn.nothing", None),
        (["profile"], "tf.estimator.RunConfig()", "2.16 removed tf.estimator. `python -m fastsup run SCRIPT` runs"),
        (["run"], "tf.nothing", None),
        (["run", "--tf1"], "tf.nothing", None),
    ],
)
def test_a_program_of_tensorflow_1_is_told_how_it_runs(
    run: Any, tmp_path: Path, arguments: list[str], line: str, hint: str | None
) -> None:
    script = tmp_path / "old.py"
    script.write_text(f"import tensorflow as tf\n{line}\n")
    done = run("-m", "fastsup", *arguments, script)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    error = r"AttributeError: module '[\w.]+' has no attribute '\w+'"
    assert re.match(error, last)
    assert hint in last if hint else re.fullmatch(error, last)


def test_a_missing_keras_2_is_told_how_it_is_installed(run: Any, tmp_path: Path) -> None:
    script = tmp_path / "layers.py"
    # As if tf_keras weren't installed.
    script.write_text("import sys\nsys.modules['tf_keras'] = None\nimport tensorflow as tf\ntf.layers.dense\n")
    done = run("-m", "fastsup", "run", "--tf1", script)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "TF_USE_LEGACY_KERAS is set, which requires Keras 2: pip install --no-deps 'tf_keras==" in last


def test_under_the_profiler(children: Any, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import tensorflow as tf\n"
        "step = tf.train.get_or_create_global_step()\n"
        "add = tf.assign_add(step, 1)\n"
        "with tf.train.MonitoredTrainingSession(hooks=[tf.train.StopAtStepHook(20)]) as session:\n"
        "    while not session.should_stop():\n"
        "        session.run(add)"
    )
    done = children.run("-m", "fastsup", "profile", "-m", "fastsup", "run", "--tf1", script)
    assert done.returncode == 0, done.stderr
    assert "MonitoredTrainingSession (train), train.py:4: 20 runs" in done.stdout
    assert re.search(r"StopAtStepHook +\S", done.stdout)


def test_the_log_has_one_line_about_it(run: Any, tmp_path: Path) -> None:
    script = tmp_path / "verbose.py"
    script.write_text(
        "import logging\nlogging.getLogger('tensorflow').setLevel(logging.INFO)\n"
        "import tensorflow as tf\nfrom tensorflow.compat.v1 import estimator\nimport tensorflow_estimator"
    )
    done = run("-m", "fastsup", "run", script)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if "fastsup" in line]
    assert len(lines) == 1
    assert re.search(r"fastsup \S+ is installed in TensorFlow \S+: \d+ names in \d+ modules are fastsup's", lines[0])
