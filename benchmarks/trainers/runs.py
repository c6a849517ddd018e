"""Runs programs with a probe, and measures their steps, their start, and what is left when they are killed."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import tempfile
import time
import tokenize
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from io import StringIO
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.trainers.registry import Program

__all__ = ["KILLS", "Kills", "Run", "code_lines", "is_installed", "kills", "run", "step_secs", "versions_of"]

ROOT = Path(__file__).parents[2]
WORKER = Path(__file__).with_name("worker.py")
LIMIT_SECS = 300
# One thread within an operation, of PyTorch, TensorFlow and JAX.
THREADS = {
    "OMP_NUM_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
}
# The epochs in which a program is killed, and the steps of that epoch before it.
KILLS = (5, 20, 35)
STEPS_INTO_EPOCH = 20
# The patience of the program whose steps change nothing, and the epoch in which it is killed.
FROZEN_PATIENCE, FROZEN_KILL = 5, 5
# The patience of a training with wrong labels: more than the evaluations without a better one before it.
SPOILED_PATIENCE = 36
# No training ends by this one.
ENDLESS = 1_000_000
_ENDED = re.compile(r"Step (\d+).*test accuracy ([\d.]+)%")


@dataclass(frozen=True)
class Run:
    """One run of a program.

    Args:
      started: the time when its process was started.
      code: its exit code.
      events: what its probe has written.
      output: what it has printed.
    """

    started: float
    code: int
    events: list[dict[str, Any]]
    output: str

    def of(self, event: str) -> list[dict[str, Any]]:
        """The events of a name."""
        return [each for each in self.events if each["event"] == event]

    @property
    def first_step_secs(self) -> float:
        """Seconds from the start to the end of the first step."""
        return float(self.of("first step")[0]["at"]) - self.started

    @property
    def begun_at(self) -> int:
        """The global step before the first step."""
        return int(self.of("first step")[0]["step"]) - 1

    @property
    def signaled_at(self) -> int:
        """The global step at which the process got its signal."""
        return int(self.of("signal")[0]["step"])

    @property
    def ended(self) -> tuple[int, float]:
        """The last step and the accuracy that it has printed.

        Raises:
          RuntimeError: it hasn't.
        """
        found = _ENDED.findall(self.output)
        if self.code or not found:
            raise RuntimeError(f"exit code {self.code}: {self.output.strip()[-500:]}")
        step, accuracy = found[-1]
        return int(step), float(accuracy)


def run(
    program: Program,
    python: str,
    place: Path,
    *,
    mode: str = "epochs",
    kill_at: int = 0,
    kill_by: str = "SIGKILL",
    last_epoch: int | None = None,
    patience: int | None = None,
    frozen: bool = False,
    spoiled: bool = False,
    start: Callable[..., Any] = subprocess.Popen,
) -> Run:
    """Runs a program in a fresh process.

    Args:
      program: the program.
      python: its interpreter.
      place: a folder. What the program saves lies there, and a second run goes on from it.
      mode: "epochs" to measure the time of epochs, "steps" to see each step.
      kill_at: the global step after which it gets a signal; 0 for none.
      kill_by: the name of the signal.
      last_epoch: the epoch that it ends with, in place of the program's.
      patience: its patience, in place of the program's.
      frozen: whether no step changes the model.
      spoiled: whether it trains with wrong labels.
      start: starts the process, as `subprocess.Popen` does.
    """
    events = place / "events"
    events.unlink(missing_ok=True)
    request = {
        "path": str(program.path),
        "folder": str(place / "model"),
        "loop": program.loop,
        "epoch_steps": program.epoch_steps,
        "events": str(events),
        "mode": mode,
        "kill_at": kill_at,
        "kill_by": kill_by,
        "last_epoch": last_epoch,
        "patience": patience,
        "frozen": frozen,
        "spoiled": spoiled,
    }
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": str(ROOT), **THREADS}
    environment.update(program.settings)
    with (place / "output").open("w+") as output:
        started = time.time()
        command = [python, str(WORKER), json.dumps(request)]
        process = start(command, stdout=output, stderr=subprocess.STDOUT, env=environment, cwd=place)
        try:
            code = process.wait(LIMIT_SECS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise RuntimeError(f"no end after {LIMIT_SECS} seconds") from None
        output.seek(0)
        printed = output.read()
    lines = events.read_text().splitlines() if events.exists() else []
    if not lines:
        raise RuntimeError(f"exit code {code}: {printed.strip()[-500:]}")
    return Run(started, code, [json.loads(line) for line in lines], printed)


def step_secs(program: Program, python: str, epochs: int, start: Callable[..., Any] = subprocess.Popen) -> float:
    """Seconds of a step: of the median epoch, without the first one.

    Args:
      program: the program.
      python: its interpreter.
      epochs: how many it trains.
      start: as in `run`.
    """
    with tempfile.TemporaryDirectory() as place:
        found = run(program, python, Path(place), last_epoch=epochs, patience=ENDLESS, start=start)
    _ = found.ended
    return median(each["secs"] for each in found.of("epoch")[1:]) / program.epoch_steps


@dataclass(frozen=True)
class Kills:
    """What is left after signals.

    Args:
      first_step_secs: seconds from the start to the end of the first step, of each start from nothing.
      killed: pairs of the step of `kill -9`, and the step from which the next start goes on.
      terminated: the same of SIGTERM.
      count: evaluations without a better one when the program whose steps change nothing was killed.
      evaluations: how many that program has made in all until it ended, without a kill and with one.
      accuracies: in percent, of the best checkpoint before a kill, and of the one at the end of a restart that trained
        with wrong labels.
      epoch_steps: steps in an epoch.
    """

    first_step_secs: list[float] = field(default_factory=list)
    killed: list[tuple[int, int]] = field(default_factory=list)
    terminated: tuple[int, int] = (0, 0)
    count: int = 0
    evaluations: tuple[float, float] = (0.0, 0.0)
    accuracies: tuple[float, float] = (0.0, 0.0)
    epoch_steps: int = 0

    @property
    def lost(self) -> list[int]:
        """The steps that are trained again, after each kill."""
        return [killed - resumed for killed, resumed in self.killed]

    @property
    def within_epoch(self) -> bool:
        """Whether a start has gone on in the middle of an epoch."""
        return any(resumed % self.epoch_steps for _, resumed in [*self.killed, self.terminated])

    @property
    def count_is_kept(self) -> bool:
        """Whether early stopping has ended the killed training with the same evaluation as the other one."""
        return self.evaluations[0] == self.evaluations[1]

    @property
    def best_is_kept(self) -> bool:
        """Whether the best checkpoint was still the one from before the kill, or a better one."""
        return self.accuracies[1] >= self.accuracies[0] - 0.006

    def as_json(self) -> dict[str, Any]:
        """All of it."""
        return asdict(self)


def kills(program: Program, python: str, start: Callable[..., Any] = subprocess.Popen) -> Kills:
    """Kills a program in several ways, starts it again, and sees what is left.

    Args:
      program: the program.
      python: its interpreter.
      start: as in `run`.

    Raises:
      RuntimeError: a run has failed.
    """
    length = program.epoch_steps
    firsts, killed = [], []
    accuracies = (0.0, 0.0)
    for epoch in KILLS:
        with tempfile.TemporaryDirectory() as text:
            place = Path(text)
            at = epoch * length + STEPS_INTO_EPOCH
            before = run(program, python, place, mode="steps", kill_at=at, patience=ENDLESS, start=start)
            # The last restart trains with wrong labels until early stopping ends it.
            is_last = epoch == KILLS[-1]
            stop_at = 0 if is_last else before.signaled_at + 2 * length
            after = run(
                program,
                python,
                place,
                mode="steps",
                kill_at=stop_at,
                patience=SPOILED_PATIENCE,
                spoiled=is_last,
                start=start,
            )
            firsts.append(before.first_step_secs)
            killed.append((before.signaled_at, after.begun_at))
            if is_last:
                best = max(each["accuracy"] for each in before.of("evaluation"))
                accuracies = (round(100 * best, 2), after.ended[1])
    with tempfile.TemporaryDirectory() as text:
        place = Path(text)
        at = KILLS[1] * length + STEPS_INTO_EPOCH
        before = run(program, python, place, mode="steps", kill_at=at, kill_by="SIGTERM", patience=ENDLESS, start=start)
        after = run(program, python, place, mode="steps", last_epoch=KILLS[1] + 3, patience=ENDLESS, start=start)
        terminated = (before.signaled_at, after.begun_at)
    with tempfile.TemporaryDirectory() as text:
        expected, _ = run(program, python, Path(text), patience=FROZEN_PATIENCE, frozen=True, start=start).ended
    with tempfile.TemporaryDirectory() as text:
        place = Path(text)
        at = FROZEN_KILL * length - length + STEPS_INTO_EPOCH
        run(program, python, place, mode="steps", kill_at=at, patience=FROZEN_PATIENCE, frozen=True, start=start)
        ended, _ = run(program, python, place, patience=FROZEN_PATIENCE, frozen=True, start=start).ended
    evaluations = (expected / length, ended / length)
    return Kills(firsts, killed, terminated, FROZEN_KILL - 2, evaluations, accuracies, length)


def code_lines(source: str) -> int:
    """The number of lines with code: not blank, no comment, no docstring."""
    lines: set[int] = set()
    ignored = {
        tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER
    }  # fmt: skip
    for token in tokenize.generate_tokens(StringIO(source).readline):
        if token.type not in ignored:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            lines.difference_update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(lines)


_ABSENT = """
import importlib.util, sys
print([name for name in sys.argv[1:] if importlib.util.find_spec(name) is None])
"""
_VERSIONS = """
import importlib.metadata as metadata, json, platform, sys
names = metadata.packages_distributions()
found = {name: metadata.version(names[name][0]) for name in sys.argv[1:] if name in names}
print(json.dumps({"python": platform.python_version(), **found}))
"""


def is_installed(program: Program, python: str) -> str | None:
    """What an interpreter lacks for a program, as a line; None if it lacks nothing."""
    try:
        absent = _printed(python, _ABSENT, *program.needs, "sklearn")
    except (OSError, subprocess.CalledProcessError) as error:
        return f"{python} can't be run: {error}"
    names = ast.literal_eval(absent)
    return f"{python} has no {', '.join(names)}" if names else None


def versions_of(program: Program, python: str) -> dict[str, str]:
    """The versions of what a program needs."""
    found: dict[str, str] = json.loads(_printed(python, _VERSIONS, *program.needs))
    return found


def _printed(python: str, source: str, *arguments: str) -> str:
    command = [python, "-c", source, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
