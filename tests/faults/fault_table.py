"""The table of docs/durability.md: how many faults each way to save was given, none of which lost what was saved.

    FASTSUP_FAULTS=long pytest tests/faults/test_power_loss.py tests/faults/test_each_operation.py --junitxml=faults.xml
    python tests/faults/fault_table.py faults.xml --write

Without `--write`, the table is printed. Several reports are added up: one of each part of a long run.
"""

from __future__ import annotations

import argparse
import datetime
import re
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "durability.md"
BEGIN, END = "<!-- measured: begin -->\n", "<!-- measured: end -->\n"

TITLES = {
    "session": "`MonitoredTrainingSession`",
    "async_session": "`MonitoredTrainingSession(async_save=True)`",
    "sharded_session": "`MonitoredTrainingSession`, `Saver(sharded=True)`",
    "session_with_preserved": "`MonitoredTrainingSession`, `keep_checkpoint_every_n_hours`",
    "partial_session": '`MonitoredTrainingSession(restore="partial")`',
    "session_loop": "`MonitoredTrainingSession.run_loop`",
    "singular_session": "`SingularMonitoredSession` with a `CheckpointSaverHook`",
    "supervisor": "`Supervisor`",
    "async_supervisor": "`Supervisor(async_save=True)`",
    "step_loop": "`StepLoop` with a `CheckpointHook`",
    "async_step_loop": "`StepLoop`, `CheckpointHook(async_save=True)`",
    "checkpoints": "`StepLoop` with a `Checkpoints`",
    "best_checkpoints": "`StepLoop`, `Checkpoints` of the best and `EarlyStoppingHook`",
    "estimator_train": "`Estimator.train`",
    "train_and_evaluate": "`train_and_evaluate` with a `LatestExporter`",
}


def counted(reports: Iterable[Path]) -> tuple[dict[str, Counter[str]], list[str]]:
    """Adds up the reports of pytest.

    Returns:
      (counts, failed): for "crashes" and "faults" how many each way was given; and the names of the failed tests.
    """
    counts: dict[str, Counter[str]] = {"crashes": Counter(), "faults": Counter()}
    failed = []
    for report in reports:
        for case in ElementTree.parse(report).iter("testcase"):
            found = re.search(r"\[([a-z_]+)", case.get("name", ""))
            if case.find("failure") is not None or case.find("error") is not None:
                failed.append(case.get("name", ""))
            for entry in case.iter("property"):
                if found and entry.get("name") in counts:
                    counts[entry.get("name", "")][found[1]] += int(entry.get("value", "0"))
    return counts, failed


def table(counts: dict[str, Counter[str]], date: datetime.date) -> str:
    """The table as Markdown."""
    lines = [
        f"Measured on {date}. Each number is how many were tried; none lost anything that a save had returned.",
        "",
        "| way to save | contents of a disk after a loss of power | operations that fail |",
        "|---|--:|--:|",
    ]
    crashes, faults = counts["crashes"], counts["faults"]
    for way, title in TITLES.items():
        if way in crashes or way in faults:
            lines.append(f"| {title} | {crashes[way]:,} | {faults[way]:,} |")
    lines.append(f"| together | {sum(crashes.values()):,} | {sum(faults.values()):,} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path, nargs="+", help="a report of pytest --junitxml")
    parser.add_argument("--write", action="store_true", help=f"write the table into {PAGE.name}")
    options = parser.parse_args()
    counts, failed = counted(options.report)
    if failed:
        print("These tests have failed, so there is no table:", *failed, sep="\n  ", file=sys.stderr)
        return 1
    found = table(counts, datetime.date.today())
    if options.write:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(before + BEGIN + found + END + rest.partition(END)[2])
    else:
        print(found, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
