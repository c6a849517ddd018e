"""Each example as its user runs it: its own process, in its own folder."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from processes import Processes

import fastsup

pytest.importorskip("rich")
pytest.importorskip("sklearn")

EXAMPLES = Path(__file__).parents[2] / "examples"
# The examples get the fastsup that this process has, and the plainest console.
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join(filter(None, (str(Path(fastsup.__file__).parents[1]), os.environ.get("PYTHONPATH")))),
    "CUDA_VISIBLE_DEVICES": "-1",
    "NO_COLOR": "1",
    "COLUMNS": "120",
}
ENDLESS = 10_000_000
SAVE_STEPS = 200


Start = Callable[..., "subprocess.Popen[str]"]
Run = Callable[..., str]


@pytest.fixture(scope="session")
def start(processes: Processes) -> Start:
    """Starts an example in a folder: start(folder, name, *arguments)."""

    def start_(folder: Path, name: str, *arguments: object) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return processes.start_python(
            EXAMPLES / name, *map(str, arguments), cwd=folder, env=ENVIRONMENT, stdout=pipe, stderr=pipe, text=True
        )

    return start_


@pytest.fixture(scope="session")
def run(start: Start) -> Run:
    """Runs an example, and gives what it printed: run(folder, name, *arguments)."""

    def run_(folder: Path, name: str, *arguments: object, exit_code: int = 0) -> str:
        process = start(folder, name, *arguments)
        output, errors = process.communicate(timeout=120)
        assert process.returncode == exit_code, output + errors
        return output + errors

    return run_


def accuracy_in(output: str) -> float:
    match = re.search(r"Test accuracy ([\d.]+)% on 450 images", output)
    assert match, output
    return float(match[1])


def checkpoint_steps(logdir: Path) -> list[int]:
    return sorted(int(path.stem.rpartition("-")[2]) for path in logdir.glob("model.ckpt-*.index"))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, run: Run) -> tuple[Path, str]:
    """The folder in which digits.py has trained once, as the README says, and what it printed."""
    folder = tmp_path_factory.mktemp("digits")
    return folder, run(folder, "digits.py")


@pytest.fixture
def killed(tmp_path: Path, start: Start) -> tuple[Path, int]:
    """A logdir whose training was killed in mid-course, and the step of its newest checkpoint."""
    logdir = tmp_path / "logs"
    process = start(tmp_path, "digits.py", "--logdir", logdir, "--steps", ENDLESS, "--save-steps", SAVE_STEPS)
    try:
        wait_for_checkpoint(process, logdir, after=SAVE_STEPS)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    return logdir, checkpoint_steps(logdir)[-1]


def wait_for_checkpoint(process: subprocess.Popen[str], logdir: Path, after: int) -> None:
    deadline = time.monotonic() + 60
    while not any(step > after for step in checkpoint_steps(logdir)):
        assert process.poll() is None, "".join(process.communicate())
        assert time.monotonic() < deadline, f"no checkpoint beyond step {after} in {os.listdir(logdir)}"
        time.sleep(0.02)


def test_digits_reaches_its_accuracy_and_says_where_everything_is(trained: tuple[Path, str]) -> None:
    folder, output = trained
    assert "Starting at step 0" in output
    assert accuracy_in(output) >= 95
    assert re.search(r"trained at [\d,]+ steps/s", output)
    logdir = folder.resolve() / "digits-logdir"
    assert f"{sys.executable} -m tensorboard.main --logdir {logdir}" in output
    assert checkpoint_steps(logdir)[-1] == 5000


def test_digits_prints_nothing_but_its_own_lines(
    trained: tuple[Path, str], without_cpp_log: Callable[[str], str]
) -> None:
    kinds = r"Starting at|step +[\d,]+   loss|Test accuracy|Checkpoints and logs are"
    strange = [line for line in without_cpp_log(trained[1]).splitlines() if not re.match(kinds, line)]
    assert strange == []


def test_digits_at_its_last_step_only_evaluates(trained: tuple[Path, str], run: Run) -> None:
    folder, output = trained
    again = run(folder, "digits.py")
    assert "has reached step 5,000 already" in again
    assert "steps/s" not in again
    assert accuracy_in(again) == accuracy_in(output)


def test_digits_goes_on_from_its_checkpoint(trained: tuple[Path, str], run: Run) -> None:
    folder, _ = trained
    output = run(folder, "digits.py", "--steps", 5500)
    assert "Resuming from step 5,000" in output
    assert accuracy_in(output) >= 95
    assert checkpoint_steps(folder / "digits-logdir")[-1] == 5500


def test_tensorboard_reads_the_logdir(trained: tuple[Path, str]) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(trained[0] / "digits-logdir"), size_guidance={"scalars": 0})
    events.Reload()
    tags: dict[str, Any] = events.Tags()
    assert {"loss", "accuracy", "global_step/sec"} <= set(tags["scalars"])
    assert tags["graph"]
    losses = [event.value for event in events.Scalars("loss")]
    assert len(losses) >= 50
    assert losses[-1] < losses[0] / 10


def test_digits_killed_goes_on_from_its_last_checkpoint(killed: tuple[Path, int], run: Run) -> None:
    logdir, step = killed
    output = run(logdir.parent, "digits.py", "--logdir", logdir, "--steps", step + 300)
    resumed = re.search(r"Resuming from step ([\d,]+)", output)
    assert resumed, output
    # Killed while the newest was being written, it goes on from the one before.
    assert SAVE_STEPS <= int(resumed[1].replace(",", "")) <= step
    assert checkpoint_steps(logdir)[-1] == step + 300


def test_digits_interrupted_says_how_to_go_on(tmp_path: Path, start: Start) -> None:
    logdir = tmp_path / "logs"
    process = start(tmp_path, "digits.py", "--logdir", logdir, "--steps", ENDLESS, "--save-steps", SAVE_STEPS)
    wait_for_checkpoint(process, logdir, after=0)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 130, output + errors
    assert "Interrupted" in output
    assert "Traceback" not in errors


def test_compare_prints_both_rates(tmp_path: Path, run: Run) -> None:
    output = run(tmp_path, "digits.py", "--compare", "--steps", 600)
    for session in ("tf.compat.v1.train, session.run", "fastsup.train, session.run", "fastsup.train, session.run_loop"):
        row = rf"{re.escape(session)} +│ +[\d,]+ │ +[\d,.]+ │ +[\d.]+ x │ +[\d.]+%"
        assert re.search(row, output), output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--steps", "0"], "argument --steps: must be above 0, got 0"),
        (["--learning-rate", "nan"], "argument --learning-rate: must be above 0, got nan"),
        (["--logdir", __file__], "argument --logdir: "),
    ],
)
def test_digits_refuses_wrong_arguments(tmp_path: Path, arguments: list[str], complaint: str, run: Run) -> None:
    output = run(tmp_path, "digits.py", *arguments, exit_code=2)
    assert complaint in output
    assert "Traceback" not in output
    assert list(tmp_path.iterdir()) == []


def test_monitored_session(tmp_path: Path, run: Run) -> None:
    output = run(tmp_path, "monitored_session.py")
    assert "loss = 35.0, step = 0" in output
    assert float(re.findall(r"last step was (.*)\.", output)[0]) < 1e-6


def test_custom_hook(tmp_path: Path, run: Run) -> None:
    output = run(tmp_path, "custom_hook.py")
    assert "loss below 0.001 after 260 steps" in output
    assert re.findall(r"step +([\d,]+)   error", output) == ["50", "100", "150", "250", "500", "750", "1,000"]
    assert "weights [ 1. -2.  3.]" in output


def test_keras_digits_reports_and_compares(tmp_path: Path, run: Run) -> None:
    output = run(tmp_path, "keras_digits.py", "--epochs", 3)
    assert accuracy_in(output) >= 95
    assert re.search(r"^train: lifted, \w+", output, re.MULTILINE), output
    assert (tmp_path / "keras-digits-logdir" / "digits.keras").exists()
    compared = run(tmp_path, "keras_digits.py", "--compare", "--epochs", 1)
    rates = re.findall(r"steps/s +([\d.]+) x  test accuracy ([\d.]+)%", compared)
    assert len(rates) == 2, compared
    assert rates[0][1] == rates[1][1]


def test_keras_digits_interrupted_goes_on_after_its_last_epoch(tmp_path: Path, start: Start, run: Run) -> None:
    process = start(tmp_path, "keras_digits.py", "--epochs", ENDLESS)
    assert process.stdout is not None
    # Keras writes the backup of an epoch when it begins to report the next one at the latest.
    while not (line := process.stdout.readline()).startswith("Epoch 3/"):
        assert line, process.communicate()
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 130, output + errors
    assert "Interrupted" in output
    assert "Traceback" not in errors
    begun = int(re.findall(r"^Epoch (\d+)/", line + output, re.MULTILINE)[-1])
    again = run(tmp_path, "keras_digits.py", "--epochs", begun + 1)
    assert "Epoch 1/" not in again
    assert accuracy_in(again) >= 95


def test_tf2_loop_interrupted_goes_on_after_its_last_step(tmp_path: Path, start: Start, run: Run) -> None:
    logdir = tmp_path / "tf2-logdir"
    process = start(tmp_path, "tf2_loop.py", "--steps", ENDLESS)
    deadline = time.monotonic() + 60
    while not list(logdir.glob("ckpt-*.index")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 130, output + errors
    assert "Traceback" not in errors
    interrupted = re.search(r"Interrupted after step ([\d,]+)", output)
    assert interrupted, output
    last_step = int(interrupted[1].replace(",", ""))
    assert (logdir / f"ckpt-{last_step}.index").exists()
    again = run(tmp_path, "tf2_loop.py", "--steps", last_step + 500)
    assert f"Trained up to step {last_step + 500:,}, resumed after step {last_step:,}." in again
    assert accuracy_in(again) >= 95


@pytest.mark.parametrize(("name", "argument"), [("keras_digits.py", "--epochs"), ("tf2_loop.py", "--steps")])
def test_examples_of_tf2_refuse_wrong_arguments(tmp_path: Path, name: str, argument: str, run: Run) -> None:
    output = run(tmp_path, name, argument, 0, exit_code=2)
    assert f"argument {argument}: must be above 0, got 0" in output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_cluster_trains_and_every_task_ends_well(tmp_path: Path, run: Run) -> None:
    logdir = tmp_path / "logs"
    output = run(tmp_path, "cluster.py", "--logdir", logdir, "--steps", 600, "--save-steps", 200, "--timeout-secs", 100)
    ended = re.findall(r"(\S+) ended with exit code (\d+)", output)
    assert sorted(ended) == [(task, "0") for task in ("chief-0", "evaluator-0", "ps-0", "worker-0", "worker-1")]
    accuracy = re.search(r"Last evaluation, global step (\d+): accuracy = ([\d.]+)", output)
    assert accuracy, output
    assert int(accuracy[1]) >= 600
    assert float(accuracy[2]) > 0.8


def test_cluster_ends_what_it_started_when_time_is_up(tmp_path: Path, run: Run) -> None:
    output = run(tmp_path, "cluster.py", "--logdir", tmp_path / "logs", "--timeout-secs", 0.5, exit_code=1)
    assert re.search(r"Still running after 0.5 s: ps-0, chief-0, worker-0, worker-1, evaluator-0", output)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--steps", "0"], "argument --steps: must be above 0, got 0"),
        (["--save-steps", "x"], "argument --save-steps: invalid int value: 'x'"),
        (["--learning-rate", "nan"], "argument --learning-rate: must be above 0, got nan"),
        (["--worker-delay-secs", "-1"], "argument --worker-delay-secs: must be 0 or more, got -1"),
        (["--timeout-secs", "nan"], "argument --timeout-secs: must be above 0, got nan"),
        (["--logdir", __file__], "argument --logdir: "),
    ],
)
def test_cluster_refuses_wrong_arguments(tmp_path: Path, arguments: list[str], complaint: str, run: Run) -> None:
    output = run(tmp_path, "cluster.py", *arguments, exit_code=2)
    assert complaint in output
    assert "Traceback" not in output


def test_a_task_of_the_cluster_needs_the_logdir_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    monkeypatch.setitem(ENVIRONMENT, "TF_CONFIG", "{}")
    assert "argument --logdir: needed with TF_CONFIG" in run(tmp_path, "cluster.py", exit_code=2)


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_cluster_that_is_ended_ends_what_it_started(
    tmp_path: Path, sent: signal.Signals, code: int, start: Start
) -> None:
    process = start(tmp_path, "cluster.py", "--logdir", tmp_path / "logs", "--steps", ENDLESS)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    started: list[str] = []
    deadline = time.monotonic() + 60
    try:
        while len(started) < 5:
            assert process.poll() is None, "".join(process.communicate())
            assert time.monotonic() < deadline, started
            time.sleep(0.05)
            started = children.read_text().split()
        process.send_signal(sent)
        output, errors = process.communicate(timeout=60)
        assert process.returncode == code, output + errors
        assert "Traceback" not in errors
        assert [child for child in started if Path("/proc", child).exists()] == []
    finally:
        process.kill()
        for child in filter(lambda child: Path("/proc", child).exists(), started):
            os.kill(int(child), signal.SIGKILL)
