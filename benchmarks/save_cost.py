"""What it costs that a checkpoint is on the disk before it is named: a save of fastsup's against one of TensorFlow's.

    python -m benchmarks.save_cost                         # 1, 10 and 100 MB, in the temporary folder
    python -m benchmarks.save_cost --folder /data --megabytes 500

Both savers write the same variables, in turns, into their own folder. The folder should be on the disk that
matters: a file system in memory flushes nothing. TensorFlow's Saver leaves the writing to the kernel; the time that a
later write then waits isn't in its column.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import tensorflow as tf
from rich.console import Console
from rich.table import Table

from fastsup import Session
from fastsup.checkpoint.durable import save_durably

v1 = tf.compat.v1
MEGABYTE = 1_000_000


def savers(megabytes: int, folder: Path) -> tuple[Session, list[Callable[[int], object]]]:
    """A session with variables of so many megabytes, and TensorFlow's save and ours of a step."""
    with tf.Graph().as_default():
        shape = [megabytes * MEGABYTE // 4]
        v1.get_variable("weights", shape, initializer=v1.zeros_initializer())
        savers = [v1.train.Saver(max_to_keep=1), v1.train.Saver(max_to_keep=1)]
        session = Session()
        session.run(v1.global_variables_initializer())
        paths = []
        for name in ("tensorflow", "fastsup"):
            (folder / name).mkdir()
            paths.append(str(folder / name / "model.ckpt"))

    def by_tensorflow(step: int) -> object:
        return savers[0].save(session, paths[0], step, write_meta_graph=False)

    def by_fastsup(step: int) -> object:
        return save_durably(savers[1], session, paths[1], step, write_meta_graph=False)

    return session, [by_tensorflow, by_fastsup]


def measured(megabytes: int, folder: Path, rounds: int) -> list[list[float]]:
    """The seconds of each save, of TensorFlow's and of ours."""
    session, saves = savers(megabytes, folder)
    seconds: list[list[float]] = [[], []]
    with session:
        for step in range(rounds + 1):
            for save, found in zip(saves, seconds, strict=True):
                begin = perf_counter()
                save(step)
                if step:  # The first one makes the folder's first files, and the graph's plans.
                    found.append(perf_counter() - begin)
    return seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="where the checkpoints are written")
    parser.add_argument("--megabytes", type=int, action="append", help="size of the variables; may be given again")
    parser.add_argument("--rounds", type=int, default=15, help="saves of each")
    options = parser.parse_args()
    columns = ("variables", "TensorFlow's Saver, ms", "fastsup, ms", "longer by, ms", "slowest of fastsup's, ms")
    table = Table(*columns, title="a save, median")
    for megabytes in options.megabytes or (1, 10, 100):
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            found = measured(megabytes, Path(folder), options.rounds)
        theirs, ours = (1000 * statistics.median(each) for each in found)
        times = (f"{each:.1f}" for each in (theirs, ours, ours - theirs, 1000 * max(found[1])))
        table.add_row(f"{megabytes} MB", *times)
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
