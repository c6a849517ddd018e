"""A job whose members are killed, stopped and started late at random. It must end on its own, at the right step.

    python tests/cluster/chaos.py                          # ten minutes, then the end of the job
    python tests/cluster/chaos.py --runs 30 --seed 100     # the soak of a release
    python tests/cluster/chaos.py --seconds 20 --small     # a short one
    python tests/cluster/chaos.py --only ps --busy 3       # parameter servers alone, on a busy machine
    python tests/cluster/chaos.py --faults --tiny --seconds 4 --runs 1000  # all kinds of faults, one short job a seed

Members: a chief, three workers, two parameter servers, an evaluator. At random moments one of them is killed (SIGKILL)
and started again at once or late, or stopped (SIGSTOP) for up to 30 seconds; sometimes the next loss comes while the
last one isn't over. Then the job is let run to its end. With `--faults` there are also these: the network between two
members is cut for a while, silently or with a reset; file operations of a member in the model directory fail;
its clock is set forward or back, and set right again.

A run fails if the job doesn't end on its own with exit code 0 of every task; if the last checkpoint isn't of the last
step, or isn't evaluated, or mixes the states of several; if the chief goes on from a checkpoint that is older than one
whose save was acknowledged; or if a process is left. The table says how long training stood still for each kind of
loss.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import io
import itertools
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))

from harness import Cluster, start_python
from keeper import START_SECS, STILL_SECS, Keeper, Loss
from outcome import journal_of, problems_of_end, problems_of_state, processes_in
from preload import compile_preloads
from processes import Processes

LARGE = ("chief-0", "worker-0", "worker-1", "worker-2", "ps-0", "ps-1", "evaluator-0")
SMALL = ("chief-0", "worker-0", "ps-0", "ps-1")
TINY = ("chief-0", "worker-0", "ps-0", "evaluator-0")
SAVE_STEPS = 20
STEP_SECS = 0.2
# Seconds: what the end takes.
END_SECS = 240.0
MAX_STOPPED_SECS, MAX_LATE_SECS, MAX_CUT_SECS = 30.0, 15.0, 8.0
# What becomes of a file operation, and how many operations of a kind succeed before one fails.
ERRORS = ("EIO", "ENOSPC", "ESTALE", "EACCES", "EMFILE")
MOST_OPERATIONS = {
    "any": 90,
    "create": 10,
    "open": 10,
    "write": 20,
    "read": 20,
    "fsync": 6,
    "rename": 6,
    "stat": 10,
    "access": 10,
    "list": 4,
}
SECS_OF_A_SET_CLOCK = 3600
# What a tiny job's longest absences are multiplied by.
SHORTENED = 0.2


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


def _random_loss(
    keeper: Keeper, chance: random.Random, role: str, faults: bool, shortened: float = 1.0
) -> tuple[Any, ...]:
    """The arguments of `Keeper.lose`, for a member of a role, or of any if it is "".

    Args:
      keeper: the keeper.
      chance: what is random.
      role: the role of the member; "" for any.
      faults: whether the network, files and clocks fail too.
      shortened: what the longest times are multiplied by.
    """
    tasks = keeper.cluster.tasks
    task = chance.choice([name for name in tasks if name.startswith(role)])
    others = []
    if not role and chance.random() < 0.2:
        other = chance.choice([name for name in tasks if name != task])
        others = [(other, chance.uniform(0, 5 * shortened))]
    how = chance.choice(["killed", "killed", "late", "stopped", *["cut", "reset", "files", "files", "clock"] * faults])
    most = {"killed": 0.0, "late": MAX_LATE_SECS, "stopped": MAX_STOPPED_SECS}.get(how, MAX_CUT_SECS)
    seconds = chance.uniform(min(1, most), max(1, most * shortened)) if most else 0.0
    what: Any = None
    if how in ("cut", "reset"):
        what = chance.choice([name for name in tasks if name != task and not {name, task} <= _WITHOUT_NETWORK])
    elif how == "files":
        operation, most_before = chance.choice(list(MOST_OPERATIONS.items()))
        first = chance.randint(1, most_before)
        what = f"{operation},/,{first},{chance.choice([0, first])},error {getattr(errno, chance.choice(ERRORS))}"
    elif how == "clock":
        what = chance.choice([-SECS_OF_A_SET_CLOCK, SECS_OF_A_SET_CLOCK])
    return task, "killed" if how == "late" else how, seconds, others, what


# An evaluator looks for the chief and the workers alone.
_WITHOUT_NETWORK = {"evaluator-0", "ps-0", "ps-1"}


def run_chaos(
    folder: Path,
    seconds: float,
    seed: int,
    tasks: tuple[str, ...] = LARGE,
    planned: Iterable[tuple[str, str, float]] | None = None,
    role: str = "",
    tuned: bool = True,
    starter: Callable[..., subprocess.Popen[Any]] = start_python,
    preloads: Iterable[Path] = (),
    shortened: float = 1.0,
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
      preloads: the libraries of tests/faults, with which the network, files and clocks fail too. None: they don't.
      shortened: what the longest absence is multiplied by.
    """
    chance = random.Random(seed)
    trainers = sum(task.startswith(("chief", "worker")) for task in tasks)
    # More than can be reached before the job is let run to its end.
    max_steps = int(trainers * (seconds + shortened * STILL_SECS / 2) / STEP_SECS)
    alarm_secs = int(seconds + START_SECS + STILL_SECS + END_SECS)
    found: list[Loss] = []
    problems: list[str] = []
    program = Path(__file__).with_name("chaos_task.py")
    settings = {"max_steps": max_steps, "save_steps": SAVE_STEPS, "step_secs": STEP_SECS, "alarm_secs": alarm_secs}
    settings["tuned"] = tuned
    preloads = list(preloads)
    linked = (
        [pair for pair in itertools.combinations(tasks, 2) if not set(pair) <= _WITHOUT_NETWORK] if preloads else []
    )
    with Cluster(folder, program, tasks, starter, linked, preloads, **settings) as cluster:
        cluster.start()
        keeper = Keeper(cluster)
        try:
            keeper.wait_for_steps_of_all(START_SECS)
            end = time.monotonic() + seconds
            coming = None if planned is None else iter(planned)
            while coming is not None or time.monotonic() < end:
                if coming is None:
                    loss = _random_loss(keeper, chance, role, bool(preloads), shortened)
                else:
                    loss = next(coming, None)
                if loss is None:
                    break
                print(f"  {time.strftime('%X')} {loss}", flush=True)
                found.append(keeper.lose(*loss))
                print(f"  {time.strftime('%X')} {_describe(found[-1])}", file=sys.stderr, flush=True)
                keeper.look_for(chance.uniform(0, 4 * shortened))
        except TimeoutError as error:
            problems.append(str(error))
        cluster.hurry()
        end = time.monotonic() + END_SECS
        while any(cluster.exit_code(task) != 0 for task in tasks) and time.monotonic() < end:
            keeper.look()
        problems += problems_of_end(cluster, max_steps)
        problems += problems_of_state(cluster, len(found) + keeper.restarts)
        saved, lost = journal_of(folder / "journal")
        problems += lost
    problems += [f"a process is left: {process}" for process in processes_in(folder)]
    return Outcome(found, cluster.newest_step(), max_steps, saved, keeper.restarts, problems)


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
    parser.add_argument("--tiny", action="store_true", help=f"another one, lost for shorter: {', '.join(TINY)}")
    parser.add_argument("--faults", action="store_true", help="the network, files and clocks fail too")
    parser.add_argument(
        "--only", choices=["chief", "worker", "ps", "evaluator"], default="", help="lose only members of this role"
    )
    parser.add_argument("--busy", type=int, default=0, metavar="N", help="so many busy loops run alongside the job")
    parser.add_argument("--untuned", action="store_true", help="the input's options.autotune.enabled is False")
    options = parser.parse_args(arguments)
    losses: list[Loss] = []
    failed = 0
    # Starting an interpreter with TensorFlow would take longer than a tiny job.
    processes = Processes()
    with tempfile.TemporaryDirectory(prefix="preloads-") as libraries, contextlib.ExitStack() as stack:
        stack.callback(processes.end)
        preloads = compile_preloads(Path(libraries), ("shim", "clock")) if options.faults else []
        for seed in range(options.seed, options.seed + options.runs):
            with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
                # The ends of the logs are of use if something is wrong.
                with contextlib.redirect_stdout(io.StringIO()) as logs, busy_loops(options.busy):
                    outcome = run_chaos(
                        Path(folder),
                        options.seconds,
                        seed,
                        TINY if options.tiny else SMALL if options.small else LARGE,
                        role=options.only,
                        tuned=not options.untuned,
                        starter=processes.start_python if options.tiny else start_python,
                        preloads=preloads,
                        shortened=SHORTENED if options.tiny else 1.0,
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
