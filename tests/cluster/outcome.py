"""What must hold when a job has ended: exit codes, the last checkpoint, and what its chief has started from."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from pathlib import Path

from harness import Cluster


def problems_of_end(cluster: Cluster, max_steps: int, serving: Iterable[str] = ()) -> list[str]:
    """Checks that each task has ended well, the last checkpoint is of the last step, and it is evaluated.

    Args:
      cluster: the tasks.
      max_steps: the step at which the job was to end.
      serving: tasks that don't end by themselves.
    """
    trainers = sum(task.startswith(("chief", "worker")) for task in cluster.tasks)
    problems = [
        f"{task} hasn't ended well: its exit code is {cluster.exit_code(task)}"
        for task in cluster.tasks
        if cluster.exit_code(task) != 0 and task not in serving
    ]
    last = cluster.newest_step()
    # Each of the others may be within its last step when one has made the last.
    if not max_steps <= last < max_steps + 2 * trainers:
        problems.append(f"the last checkpoint is of step {last}, and the job was to end at {max_steps}")
    if "evaluator-0" in cluster.tasks:
        evaluated = re.findall(r"Saving dict for global step (\d+)", cluster.log("evaluator-0"))
        # The step of a checkpoint may be one that another task has made while the chief saved.
        if not evaluated or not last <= int(evaluated[-1]) < last + trainers:
            problems.append(f"the last checkpoint, of step {last}, isn't evaluated: {evaluated[-1:]}")
    return problems


def problems_of_state(cluster: Cluster, interruptions: int) -> list[str]:
    """Compares the counts in the last checkpoint with its step.

    Each step adds 1 to all of them. A checkpoint may have caught each task within a step, and so may each loss have:
    the counts differ from the step by that much, and a checkpoint of parts of two by the steps between two saves.

    Args:
      cluster: the tasks.
      interruptions: how often a task may have been interrupted within a step.
    """
    import tensorflow as tf

    trainers = sum(task.startswith(("chief", "worker")) for task in cluster.tasks)
    most = trainers * (1 + interruptions)

    if cluster.newest_step() < 0:
        return []
    reader = tf.train.load_checkpoint(str(cluster.model_dir))
    step = reader.get_tensor("global_step")
    counts = [reader.get_tensor(name) for name in reader.get_variable_to_shape_map() if name.startswith("count_")]
    if abs(step - cluster.newest_step()) > most or max(abs(count - step).max() for count in counts) > most:
        return [f"the last checkpoint, of step {cluster.newest_step()}, has the step {step}, and the counts {counts}"]
    return []


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


def processes_in(folder: Path) -> list[str]:
    """The processes whose working directory is a job's folder: the job's, and what they have started."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # One that has ended has no working directory.
            if (process / "cwd").resolve() == folder.resolve():
                arguments = (process / "cmdline").read_text().split("\0")
                found.append(f"{process.name}: {' '.join(arguments)}")
    return found
