"""Writes what the documents show of the benchmarks: tables and charts, from the files in benchmarks/results/.

    python -m website.measured

Each file names its machine, versions and date. These commands measure them, best on an idle machine:

    python -m benchmarks --json benchmarks/results/cases.json                 # docs/benchmarks.md, docs/embedding.md
    python -m benchmarks --programs --json benchmarks/results/programs.json   # docs/benchmarks.md
    python -m benchmarks --peers --json benchmarks/results/peers.json         # README.md, docs/peers.md and compiled.md
    python -m benchmarks.hook_counts --json benchmarks/results/hook_counts.json    # the chart of docs/index.md
    python -m benchmarks.savers --json benchmarks/results/savers.json         # docs/savers.md
    python -m benchmarks.trainers --json benchmarks/results/trainers.json     # docs/training-programs.md
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks import peer_table, whole_programs
from benchmarks.savers import table as saver_table
from benchmarks.savers.registry import SAVERS
from benchmarks.trainers import table as trainer_table

__all__ = ["Results", "charts", "documents", "results"]

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "benchmarks" / "results"
# One file of results, as JSON.
Results = dict[str, Any]
# The cases of docs/benchmarks.md that aren't tables elsewhere.
LOOPS = {"dispatch", "loop_python", "loop_c"}
ELSEWHERE = {*LOOPS, "async_save"}
# The loops of README.md's table with their names there: each library's loop, then fastsup's loops that replace it.
# docs/peers.md has all loops.
IN_README = {
    "TensorFlow, MonitoredTrainingSession": "TensorFlow `MonitoredTrainingSession`",
    "fastsup, MonitoredTrainingSession.run_loop": "→ **fastsup `MonitoredTrainingSession.run_loop`**",
    "tf.function in a loop of Python": "`tf.function` in a Python loop",
    "fastsup.function in a loop of Python": "→ **`fastsup.function` in a Python loop**",
    "fastsup, StepLoop of a compiled step, arrays": "→ **`StepLoop`, step compiled by XLA** (arrays)",
    "Keras fit on TensorFlow": "Keras `fit`",
    "Keras fit, fastsup.keras.accelerate": "→ **Keras `fit` with `fastsup.keras.accelerate`**",
    "JAX, a jitted step": "JAX, `jit` in a Python loop (arrays)",
    "JAX, lax.scan of 100 steps": "JAX, `lax.scan` over 100 steps (arrays)",
    "PyTorch": "PyTorch",
}
README_WORKLOADS = {
    "tiny": "ten weights",
    "digits": "digits",
    "wide_and_deep": "wide and deep",
    "one_ms": "8 matmuls",
    "twenty_ms": "160 matmuls",
}
# Those of docs/compiled.md's table.
COMPILED = {
    "fastsup, StepLoop of a compiled step, arrays",
    "JAX, lax.scan of 100 steps",
    "JAX, a jitted step",
    "Keras fit, compiled, fastsup.keras.accelerate, arrays",
    "tf.function, compiled, arrays",
    "Keras fit on TensorFlow, compiled, arrays",
    "fastsup, StepLoop of a fastsup.function",
}


def results(name: str) -> Results:
    """What a benchmark has measured.

    Args:
      name: the name of its file, without the ending.
    """
    found: Results = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return found


def table(headings: Iterable[str], rows: Iterable[Iterable[str]], texts: int = 1) -> Iterator[str]:
    """The lines of a table in Markdown.

    Args:
      headings: one for each column.
      rows: the cells.
      texts: how many columns, from the left, are texts. The others are numbers.
    """
    headings = list(headings)
    yield f"| {' | '.join(headings)} |"
    yield "|" + "---|" * texts + "--:|" * (len(headings) - texts)
    for row in rows:
        yield f"| {' | '.join(row)} |"


def micros(seconds: float) -> str:
    """Microseconds, with three digits that count."""
    value = seconds * 1e6
    return f"{value:,.0f}" if value >= 100 else f"{value:#.3g}"


def machine_line(found: Results, versions: Iterable[str] = ("python", "tensorflow", "numpy")) -> str:
    """Where and when it was measured.

    Args:
      found: the results.
      versions: those to name.
    """
    machine = found["machine"]
    names = {"python": "Python", "tensorflow": "TensorFlow", "numpy": "NumPy", "fastsup": "fastsup"}
    listed = ", ".join(f"{names[name]} {machine[name]}" for name in versions)
    system = machine["system"].partition("-")[0]
    return f"{machine['processor']}, {machine['cores']} cores, {system}; {listed}; {machine['date'][:10]}."


def costs(found: Results) -> Iterator[str]:
    """The table of README.md: a step of each workload in the loops that most people know."""
    medians = _medians(found)
    rows = [[name, *_step_times(medians, title)] for title, name in IN_README.items()]
    yield from table(["µs per step", *(README_WORKLOADS[workload] for workload in medians)], rows)
    yield ""
    yield machine_line(found)


def compiled(found: Results) -> Iterator[str]:
    """The table of docs/compiled.md: a step of each workload in loops that XLA compiles, and one that it doesn't."""
    medians = _medians(found)
    first = next(iter(medians.values()))
    titles = sorted(COMPILED, key=lambda title: first[title].step_secs)
    rows = [[f"**{title}**" if "fastsup" in title else title, *_step_times(medians, title)] for title in titles]
    yield from table(["µs per step", *(peer_table.SHORT[workload] for workload in medians)], rows)
    yield ""
    yield machine_line(found)


def _medians(found: Results) -> dict[str, Any]:
    """The medians of each peer's figures, by workload."""
    return {workload: peer_table.medians_of(peers) for workload, peers in peer_table.from_json(found).items()}


def _step_times(medians: dict[str, Any], title: str) -> list[str]:
    """Microseconds per step of a loop, one for each workload; an empty string if the loop has no such step."""
    return [micros(peers[title].step_secs) if title in peers else "" for peers in medians.values()]


def cases(found: Results) -> Iterator[str]:
    """The table of steps in docs/benchmarks.md."""
    rows = []
    shown = (row for row in found["rows"] if row["case"] not in ELSEWHERE)
    for _, group in groupby(shown, key=lambda row: row["case"]):
        for number, row in enumerate(group):
            # The floor of a variable's value isn't a copy of it, which a program needs.
            has_floor = not row["case"].startswith("variable_")
            rows.append(
                [
                    row["title"] if number == 0 else row["title"].replace("same,", "…", 1),
                    micros(row["tensorflow"]),
                    micros(row["floor"]) if has_floor else "",
                    micros(row["fastsup"]),
                    f"{row['times_faster']:.1f} x",
                    f"{row['against_floor']:.2f} x" if has_floor else "",
                ]
            )
    yield from table(["step", "TensorFlow", "floor", "fastsup", "times faster", "against the floor"], rows)
    yield ""
    yield machine_line(found)


def loops(found: Results) -> Iterator[str]:
    """The table of docs/embedding.md: nanoseconds of a loop without TensorFlow, and of what it is compared with."""
    rows = [
        [row["title"], f"{1e9 * row['floor']:.1f}", f"{1e9 * row['fastsup']:.1f}", f"{row['extra_ns']:+.1f}"]
        for row in found["rows"]
        if row["case"] in LOOPS
    ]
    yield from table(["loop, against another", "the other, ns per step", "the loop, ns per step", "difference"], rows)
    yield ""
    yield machine_line(found, ["python"])


def programs(found: Results) -> Iterator[str]:
    """The table of whole programs in docs/benchmarks.md."""
    runs = {
        name: {side: [whole_programs.Felt(**run) for run in felt] for side, felt in sides.items()}
        for name, sides in found["programs"].items()
    }
    rows = []
    previous = None
    for title, side, felt in whole_programs.rows_of(runs):
        seconds = f"{felt.first_step_secs:.1f}", f"{felt.end_secs:.1f}"
        name = "" if title == previous else title
        rows.append([name, side, f"{felt.steps_per_sec:,.0f}", *seconds, f"{felt.peak_mb:,.0f}"])
        previous = title
    yield from table(["program", "side", "steps/s", "first step, s", "end, s", "peak memory, MB"], rows, texts=2)
    yield ""
    yield machine_line(found)


def peers(found: Results) -> Iterator[str]:
    """The tables of docs/peers.md."""
    for workload, of_it in peer_table.from_json(found).items():
        yield from (f"### {workload}: {peer_table.WORKLOADS[workload]}", "")
        yield from table(["loop", *peer_table.HEADINGS], peer_table.rows_of(of_it))
        yield ""
    yield from environments(found, found["versions"])


def environments(found: Results, versions: dict[str, dict[str, str]]) -> Iterator[str]:
    """Where and when it was measured, and the versions in each environment."""
    yield machine_line(found, ["fastsup"])
    yield "The environments:"
    yield ""
    for name, packages in versions.items():
        listed = ", ".join(f"{package} {version}" for package, version in sorted(packages.items()))
        yield f"- {'fastsup' if name == 'here' else name}: {listed}"


def savers(found: Results) -> Iterator[str]:
    """The table of docs/savers.md: a loss of power where POSIX's promises hold, and failing operations."""
    yield from table(saver_table.HEADINGS, saver_table.rows_of(found["savers"]))
    yield ""
    yield from environments(
        found, {each["environment"]: each["versions"] for each in found["savers"].values() if "versions" in each}
    )


def ordered_savers(found: Results) -> Iterator[str]:
    """The table of docs/savers.md for a file system that keeps the order of changes."""
    yield from table(saver_table.ORDERED_HEADINGS, saver_table.ordered_rows_of(found["savers"]))


def saver_programs(found: Results) -> Iterator[str]:
    """What each row of docs/savers.md does."""
    rows = [[saver.title, saver.does] for saver in SAVERS if saver.title in found["savers"]]
    yield from table(["saver", "how it saves; how it resumes"], rows, texts=2)


def trainers(found: Results) -> Iterator[str]:
    """The table of docs/training-programs.md."""
    yield from trainer_table.markdown(found["trainers"]).splitlines()
    yield ""
    versions = {name: each for program in found["trainers"].values() for name, each in program["versions"].items()}
    listed = ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
    yield f"{machine_line(found, ['fastsup'])} {listed}."


# The sections of documents, by file: the name of the section, the results that it shows, and how.
SECTIONS: dict[str, list[tuple[str, str, Callable[[Results], Iterator[str]]]]] = {
    "README.md": [("costs", "peers", costs)],
    "docs/benchmarks.md": [("cases", "cases", cases), ("programs", "programs", programs)],
    "docs/compiled.md": [("compiled", "peers", compiled)],
    "docs/embedding.md": [("loops", "cases", loops)],
    "docs/peers.md": [("peers", "peers", peers)],
    "docs/savers.md": [
        ("programs", "savers", saver_programs),
        ("savers", "savers", savers),
        ("ordered", "savers", ordered_savers),
    ],
    "docs/training-programs.md": [("trainers", "trainers", trainers)],
}


def charts() -> dict[str, str]:
    """Each chart as SVG, by its path, of today's results."""
    from website.charts import hook_counts, peers_chart  # The tables need no matplotlib.

    return {
        "docs/pictures/steps-by-hooks.svg": hook_counts(results("hook_counts")),
        "docs/pictures/peers.svg": peers_chart(results("peers")),
    }


def documents() -> dict[str, str]:
    """The text of each document, by its path, with the tables of today's results."""
    written = {}
    for path, sections in SECTIONS.items():
        text = (ROOT / path).read_text(encoding="utf-8")
        for section, name, lines in sections:
            begin, end = f"<!-- --8<-- [start:{section}] -->\n", f"<!-- --8<-- [end:{section}] -->\n"
            before, rest = text.split(begin)
            text = before + begin + "\n".join(lines(results(name))) + "\n" + end + rest.split(end)[1]
        written[path] = text
    return written


def main() -> None:
    """Runs the command."""
    argparse.ArgumentParser(
        prog="python -m website.measured", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    for path, text in {**charts(), **documents()}.items():
        (ROOT / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
