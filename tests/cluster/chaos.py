"""A job whose members are killed, stopped and started late at random. It must end by itself, at the right step.

    python tests/cluster/chaos.py                          # ten minutes, then the end of the job
    python tests/cluster/chaos.py --runs 30 --seed 100     # the soak of a release
    python tests/cluster/chaos.py --seconds 20 --small     # a short one
    python tests/cluster/chaos.py --only ps --busy 3       # parameter servers alone, on a busy machine

Members: a chief, three workers, two parameter servers, an evaluator. At random moments one of them is killed (SIGKILL)
and started again at once or late, or stopped (SIGSTOP) for up to 30 seconds; sometimes the next loss comes while the
last one isn't over. Then the job is let run to its end.

A run fails if the job doesn't end by itself with exit code 0 of every task; if the last checkpoint isn't of the last
step, or isn't evaluated; if the chief goes on from a checkpoint that is older than one whose save was acknowledged; or
if a process is left. The table says how long training stood still for each kind of loss.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))

from chaos_notes import Notes
from harness import Cluster, start_python

LARGE = ("chief-0", "worker-0", "worker-1", "worker-2", "ps-0", "ps-1", "evaluator-0")
SMALL = ("chief-0", "worker-0", "ps-0", "ps-1")
SAVE_STEPS = 20
STEP_SECS = 0.2
# Seconds: what everything takes to start, what the end takes, and what training may stand still after a loss is over.
START_SECS, END_SECS, STILL_SECS = 180.0, 240.0, 120.0
MAX_STOPPED_SECS, MAX_LATE_SECS = 30.0, 15.0
_LOOK_SECS = 0.02
# What is printed by a process that listens, and so is back.
_SERVES = "Start Tensorflow server."


class Loss(NamedTuple):
    """What became of one loss.

    Args:
      role: "chief", "worker", "ps" or "evaluator".
      how: "killed", "killed, started late" or "stopped".
      away_secs: from the signal until the member was back: until its new process served, or until it was continued.
      still_secs: the longest time during which no step of the job ended, from the signal until all trained again.
      all_secs: from the member's return until all members that train had made a step.
      alone: whether no other loss was under way.
    """

    role: str
    how: str
    away_secs: float
    still_secs: float
    all_secs: float
    alone: bool


class Outcome(NamedTuple):
    """What became of a run.

    Args:
      losses: the losses.
      last_step: the step of the last checkpoint.
      max_steps: the step at which the job was to end.
      saved: how many saves were acknowledged.
      restarts: how many times tasks ended with an error and were started again.
      problems: what was wrong; empty if nothing was.
    """

    losses: list[Loss]
    last_step: int
    max_steps: int
    saved: int
    restarts: int
    problems: list[str]


class Keeper:
    """Keeps the members of a job running, as a cluster's manager does, and loses them on purpose.

    Args:
      cluster: the members.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.trainers = [task for task in cluster.tasks if task.startswith(("chief", "worker"))]
        self.restarts = 0
        self._notes = {task: Notes(str(cluster.folder / f"{task}.notes")) for task in self.trainers}
        self._steps = self.steps()
        self._last_step_at = time.monotonic()
        self._longest_still = 0.0

    def steps(self) -> dict[str, int]:
        """How many steps each member that trains has made."""
        return {task: notes.read().steps for task, notes in self._notes.items()}

    def look(self, starts_failed: bool = True) -> None:
        """Watches the steps for a moment, and starts members again that have ended with an error."""
        time.sleep(_LOOK_SECS)
        steps, now = self.steps(), time.monotonic()
        if steps != self._steps:
            self._steps, self._last_step_at = steps, now
        self._longest_still = max(self._longest_still, now - self._last_step_at)
        if starts_failed:
            for task in self.cluster.tasks:
                if (self.cluster.exit_code(task) or 0) > 0:
                    self.restarts += 1
                    self.cluster.start(task)

    def look_for(self, seconds: float) -> None:
        """Looks for so long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.look()

    def wait_for_steps_of_all(self, within: float) -> None:
        """Returns when each member that trains has made a step from now on."""
        before, end = self.steps(), time.monotonic() + within
        while any(self.steps()[task] <= before[task] for task in self.trainers):
            if time.monotonic() >= end:
                idle = [task for task, steps in self.steps().items() if steps <= before[task]]
                raise TimeoutError(f"no step of {idle} within {within:.0f} s")
            self.look()

    def lose(self, task: str, how: str, seconds: float, others: Iterable[tuple[str, float]] = ()) -> Loss:
        """Loses a member, has it return, and waits until all train again.

        Args:
          task: the member.
          how: "killed" or "stopped".
          seconds: for how long it is stopped, or how late it is started again.
          others: members that are killed as well, and how many seconds later.
        """
        started = time.monotonic()
        self._longest_still = 0.0
        self._last_step_at = started
        if how == "stopped":
            self.cluster.signal(task, signal.SIGSTOP)
        else:
            self.cluster.kill(task)
        for other, later in others:
            self.look_for(later)
            if self.cluster.exit_code(other) is None:
                self.cluster.kill(other)
                self.cluster.start(other)
        self.look_for(max(0.0, seconds - (time.monotonic() - started)))
        if how == "stopped":
            self.cluster.signal(task, signal.SIGCONT)
        else:
            written = len(self.cluster.log(task))
            self.cluster.start(task)
            end = time.monotonic() + START_SECS
            while not task.startswith("evaluator") and _SERVES not in self.cluster.log(task)[written:]:
                if time.monotonic() >= end:
                    raise TimeoutError(f"{task} didn't start within {START_SECS:.0f} s")
                self.look()
        back = time.monotonic()
        self.wait_for_steps_of_all(STILL_SECS)
        kind = "killed, started late" if how == "killed" and seconds > 0 else how
        return Loss(
            task.partition("-")[0],
            kind,
            back - started,
            self._longest_still,
            time.monotonic() - back,
            not list(others),
        )


def _random_loss(keeper: Keeper, chance: random.Random, role: str) -> tuple[Any, ...]:
    """The arguments of `Keeper.lose`, for a member of a role, or of any if it is ""."""
    task = chance.choice([name for name in keeper.cluster.tasks if name.startswith(role)])
    others = []
    if not role and chance.random() < 0.2:
        other = chance.choice([name for name in keeper.cluster.tasks if name != task])
        others = [(other, chance.uniform(0, 5))]
    how = chance.choice(["killed", "killed", "late", "stopped"])
    seconds = {"killed": 0.0, "late": chance.uniform(1, MAX_LATE_SECS), "stopped": chance.uniform(1, MAX_STOPPED_SECS)}
    return task, "stopped" if how == "stopped" else "killed", seconds[how], others


def run_chaos(
    folder: Path,
    seconds: float,
    seed: int,
    tasks: tuple[str, ...] = LARGE,
    planned: Iterable[tuple[str, str, float]] | None = None,
    role: str = "",
    tuned: bool = True,
    starter: Callable[..., subprocess.Popen[Any]] = start_python,
) -> Outcome:
    """Runs a job, loses members of it at random, and lets it end.

    Args:
      folder: empty directory.
      seconds: for how long members are lost; with planned losses, about how long they take.
      seed: of what is random.
      tasks: the members.
      planned: the losses, as the arguments of `Keeper.lose`; None for random ones.
      role: the role whose members are lost; "" for all.
      tuned: whether tf.data tunes the input.
      starter: starts Python: see `Cluster`.
    """
    chance = random.Random(seed)
    trainers = sum(task.startswith(("chief", "worker")) for task in tasks)
    # More than can be reached before the job is let run to its end.
    max_steps = int(trainers * (seconds + STILL_SECS / 2) / STEP_SECS)
    alarm_secs = int(seconds + START_SECS + STILL_SECS + END_SECS)
    found: list[Loss] = []
    problems: list[str] = []
    program = Path(__file__).with_name("chaos_task.py")
    settings = {"max_steps": max_steps, "save_steps": SAVE_STEPS, "step_secs": STEP_SECS, "alarm_secs": alarm_secs}
    settings["tuned"] = tuned
    with Cluster(folder, program, tasks, starter, **settings) as cluster:
        cluster.start()
        keeper = Keeper(cluster)
        try:
            keeper.wait_for_steps_of_all(START_SECS)
            end = time.monotonic() + seconds
            coming = None if planned is None else iter(planned)
            while coming is not None or time.monotonic() < end:
                loss = _random_loss(keeper, chance, role) if coming is None else next(coming, None)
                if loss is None:
                    break
                found.append(keeper.lose(*loss))
                print(f"  {time.strftime('%X')} {_describe(found[-1])}", file=sys.stderr, flush=True)
                keeper.look_for(chance.uniform(0, 4))
        except TimeoutError as error:
            problems.append(str(error))
        cluster.hurry()
        end = time.monotonic() + END_SECS
        while any(cluster.exit_code(task) != 0 for task in tasks) and time.monotonic() < end:
            keeper.look()
        problems += _problems_of_end(cluster, max_steps, trainers)
        saved, lost = journal_of(folder / "journal")
        problems += lost
    problems += [f"a process is left: {process}" for process in _processes_in(folder)]
    return Outcome(found, cluster.newest_step(), max_steps, saved, keeper.restarts, problems)


def _problems_of_end(cluster: Cluster, max_steps: int, trainers: int) -> list[str]:
    problems = [
        f"{task} hasn't ended well: its exit code is {cluster.exit_code(task)}"
        for task in cluster.tasks
        if cluster.exit_code(task) != 0
    ]
    last = cluster.newest_step()
    # Each of the others may be within its last step when one has made the last.
    if not max_steps <= last < max_steps + 2 * trainers:
        problems.append(f"the last checkpoint is of step {last}, and the job was to end at {max_steps}")
    if "evaluator-0" in cluster.tasks:
        evaluated = re.findall(r"Saving dict for global step (\d+)", cluster.log("evaluator-0"))
        if not evaluated or int(evaluated[-1]) != last:
            problems.append(f"the last checkpoint, of step {last}, isn't evaluated: {evaluated[-1:]}")
    return problems


def journal_of(path: Path) -> tuple[int, list[str]]:
    """Returns how many saves were acknowledged, and the starts of the chief from a state older than the last one."""
    newest, saved, problems = -1, 0, []
    for line in path.read_text().splitlines() if path.exists() else []:
        what, _, step = line.partition(" ")
        if what == "saved":
            saved += 1
            newest = max(newest, int(step))
        elif int(step) < newest:
            problems.append(f"the chief went on from step {step}, though the save of step {newest} was acknowledged")
            newest = int(step)
    return saved, problems


def _processes_in(folder: Path) -> list[str]:
    """The processes whose working directory is a job's folder: the job's, and what they have started."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # One that has ended has no working directory.
            if (process / "cwd").resolve() == folder.resolve():
                arguments = (process / "cmdline").read_text().split("\0")
                found.append(f"{process.name}: {' '.join(arguments)}")
    return found


def _describe(loss: Loss) -> str:
    return (
        f"{loss.role} {loss.how}{'' if loss.alone else ', and another'}: away {loss.away_secs:.1f} s, training stood "
        f"still for {loss.still_secs:.1f} s, all trained {loss.all_secs:.1f} s after the return"
    )


def table_of(losses: list[Loss]) -> str:
    """The table of docs/cluster.md: medians and the worst case, in seconds, of losses that came alone."""
    lines = [
        "| loss | times | away, median | training stood still, median | most beyond the absence | all train again "
        "after the return, median | at most |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    alone = [loss for loss in losses if loss.alone]
    for role, how in sorted({(loss.role, loss.how) for loss in alone}):
        kind = [loss for loss in alone if (loss.role, loss.how) == (role, how)]
        median = statistics.median
        lines.append(
            f"| `{role}` {how} | {len(kind)} | {median(k.away_secs for k in kind):.1f} | "
            f"{median(k.still_secs for k in kind):.1f} | "
            f"{max(max(0.0, k.still_secs - k.away_secs) for k in kind):.1f} | "
            f"{median(k.all_secs for k in kind):.1f} | {max(k.all_secs for k in kind):.1f} |"
        )
    return "\n".join(lines)


@contextlib.contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Keeps processors busy with so many processes."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def main(arguments: list[str] | None = None) -> int:
    """Runs the command. Returns the exit code: 1 if something was wrong in a run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600, help="for how long members are lost, in each run")
    parser.add_argument("--seed", type=int, default=0, help="of the first run; each further run has the next one")
    parser.add_argument("--runs", type=int, default=1, help="number of runs")
    parser.add_argument("--small", action="store_true", help=f"a smaller job: {', '.join(SMALL)}")
    parser.add_argument(
        "--only", choices=["chief", "worker", "ps", "evaluator"], default="", help="lose only members of this role"
    )
    parser.add_argument("--busy", type=int, default=0, metavar="N", help="so many busy loops run beside the job")
    parser.add_argument("--untuned", action="store_true", help="the input's options.autotune.enabled is False")
    options = parser.parse_args(arguments)
    losses: list[Loss] = []
    failed = 0
    for seed in range(options.seed, options.seed + options.runs):
        with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
            tasks = SMALL if options.small else LARGE
            # The ends of the logs are of use if something is wrong.
            with contextlib.redirect_stdout(io.StringIO()) as logs, busy_loops(options.busy):
                outcome = run_chaos(
                    Path(folder), options.seconds, seed, tasks, role=options.only, tuned=not options.untuned
                )
            if outcome.problems:
                print(logs.getvalue())
        losses += outcome.losses
        failed += bool(outcome.problems)
        print(
            f"seed {seed}: {len(outcome.losses)} losses, {outcome.restarts} restarts after errors, "
            f"{outcome.saved} saves, ended at step {outcome.last_step} of {outcome.max_steps}: "
            f"{'; '.join(outcome.problems) or 'well'}",
            flush=True,
        )
    print(table_of(losses))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
