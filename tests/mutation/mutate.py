"""Mutation testing of the timer and of the scheduler's rules and tables: does a test fail for each change of a line?

    python tests/mutation/mutate.py                   # all mutants of all files: hours
    python tests/mutation/mutate.py --file csrc/timer.c --file csrc/due.c
    python tests/mutation/mutate.py --sample 40 --seed 7

Each mutant is one small change in one line: another comparison, another number, another sign, a condition turned
round, an assignment left out. The package is compiled with it in a copy of the sources, and the tests of the file run
on the copy. A mutant that no test notices is printed. `EQUIVALENT` names those that can't be noticed, each with the
reason. The exit code is 1 if any other is left. The packages of ".[test]" must be installed.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
COPIED = ["csrc", "fastsup", "tests", "setup.py", "pyproject.toml", "README.md", "LICENSE", "examples"]
BUILD_SECS, TEST_SECS = 600, 600
# A loop that a mutant has made endless may fill the memory long before it has taken that time.
MOST_BYTES = 8 << 30

CORE = ["tests/core/test_timer.py", "tests/core/test_loop.py", "tests/csrc"]
RULES = ["tests/train/test_step_rules.py"]
HOOKS = ["tests/train/test_hook_list.py", "tests/train/test_hooks_timer.py", "tests/train/test_loop_hooks.py"]
STEPS = ["tests/train/test_hooked_session.py", "tests/train/test_run_loop.py", "tests/train/global_step"]
STEP_HOOKS = ["tests/train/test_hooks_step_counter.py", "tests/train/test_hooks_stop.py"]
# For each file, its tests: the quick ones first. The first failure ends the run.
FILES = {
    "csrc/timer.c": [*CORE, "tests/train/test_hooks_timer.py"],
    "csrc/due.c": [*CORE, *RULES],
    "fastsup/core/timer.pyx": [
        *CORE,
        "tests/train/test_hooks_timer.py",
        "tests/train/test_interop.py",
        "tests/train/test_run_loop.py",
    ],
    "fastsup/core/schedule.pyx": [*CORE, *RULES, *HOOKS],
    "fastsup/train/run_snapshot.pxd": [*RULES, *STEPS],
    "fastsup/train/schedule.pyx": [
        *HOOKS,
        *STEP_HOOKS,
        *STEPS,
        "tests/train/test_replaced_methods.py",
        "tests/train/test_differential.py",
    ],
}
# Lines whose change no test can notice, by a part of the line, with the reason.
EQUIVALENT: dict[str, str] = {
    "len(plan.feeds) >= 0 and": "`is_fed` says the same where nothing is fed.",
    "pass  # self.no_op = no_op": "the hooks are then sorted more often: slower, and the same.",
    "has_schedule(hook, run, previous_step, True) != was_scheduled": "hooks that haven't changed are asked, too.",
    "or hook.is_after_run == was_after_run": "the hooks are then sorted more often: slower, and the same.",
    "watches_stall = False, needs_true_step = True": "hooks are then called that decide by themselves.",
    "or (hook.needs_true_step or": "hooks are then called that decide by themselves.",
    "view.moved = session.step_epoch ==": "hooks are then called that decide by themselves.",
    "session.steps_counted == view.counted + view.delta": "hooks are then called that decide by themselves.",
    "view.counted - view.delta": "hooks are then called that decide by themselves.",
    "pass  # view.counted = self.count.session.steps_counted": "hooks are then called that decide by themselves.",
    "pass  # view.epoch = self.count.session.step_epoch": "hooks are then called that decide by themselves.",
    "self.version += 2": "any other number says that it has changed.",
    "pass  # self.changes_seen = self.changes[0]": "the positions are then read in each step: slower, and the same.",
    "change_count += 2": "any other number says that it has changed.",
    "changes()[0] += 2": "any other number says that it has changed.",
    "if value is None or value < 0:": "0 gives 0 below, too.",
    "if value is None or value <= 1:": "every step from 0 on and from 1 on are the same: a step triggers once.",
    "self.c.every_steps = 1": "every step from 0 on and from 1 on are the same: a step triggers once.",
    "if value <= INT64_MAX else INT64_MAX": "the same for equal numbers.",
    "if self.c.last_step >= INT64_MAX - self.c.every_steps": "the same for equal numbers.",
    "return self.c.last_step - self.c.every_steps": "the timer is then asked in each step: slower, and the same.",
    "cdef uint64_t change_count = 1": "only differences count.",
    "cdef int overflow = 1": "the conversion sets it in any case.",
    "if overflow >= 0 else INT64_MIN": "it isn't 0 there.",
    "if view.before + 2 > earliest.global_step": "the formula below gives 1, too.",
    "if view.before - 2 >= earliest.global_step": "the formula below gives 1, too.",
    "if view.before + 3 >= earliest.global_step": "a question that comes too early: slower, and the same.",
    "== NO_STEP else view.previous + 3": "a question that comes too early: slower, and the same.",
    "self.c.last_step = 1 if value is None": "the last step isn't looked at before a trigger.",
    "return step > timer->last_step &&": "the line above has dealt with equal steps.",
    "if (other.run <= one.run)": "the same for equal numbers.",
    "if (other.global_step <= one.global_step)": "the same for equal numbers.",
    "if (other.time <= one.time)": "the same for equal numbers.",
    "self.synced_to.get(id(hook), run + 1)": "a hook that is new has missed no run: any number up to 0 says so.",
    "malloc(max(len(self.entries), 2)": "memory for one entry more is never read.",
    "COUNTED_STEP if view.delta >= 1 else": "a step that adds 0 is then read before each run: slower, and the same.",
    "COUNTED_STEP if view.delta > 0 else": "a step that adds 0 is then read before each run: slower, and the same.",
}

# What is replaced by what, wherever it stands in code.
REPLACEMENTS = [
    (r"(?<![<>=!-])>=", ">"),
    (r"(?<![<>=!*-])>(?![>=])(?! *[\w*]+\))", ">="),
    (r"(?<![<>=!])<=", "<"),
    (r"(?<= )<(?= )", "<="),
    (r"==", "!="),
    (r"!=", "=="),
    (r"\band\b", "or"),
    (r"\bor\b", "and"),
    (r"&&", "||"),
    (r"\|\|", "&&"),
    (r"(?<= )\+(?= )", "-"),
    (r"(?<= )-(?= )", "+"),
    (r"\bis not\b", "is"),
    (r"(?<!is )\bnot (?!in\b|NULL\b)", ""),
    (r"\bTrue\b", "False"),
    (r"\bFalse\b", "True"),
    (r"(?<![\w.\[-])0(?![\w.])", "1"),
    (r"(?<![\w.\[-])1(?![\w.])", "2"),
    (r"(?<![\w.\[-])2(?![\w.])", "3"),
    (r"\bmin\(", "max("),
    (r"\bmax\(", "min("),
]
ASSIGNMENT = re.compile(r"^(\s+)[\w.\[\]>-]+ [+]?= .*[^\\,(\[{]$")
NO_CODE = ("#", "//", "/*", "*", "import ", "from ", "cimport ", "cdef extern", "@", "raise ", "assert ", "class ")
DECLARATION = re.compile(r"(cdef|cpdef|def) .*(:|\()$|.*\bexcept -1$")


class Mutant(NamedTuple):
    """One change.

    Args:
      file: path from the root of the sources.
      line: number of the line, counted from 1.
      text: the line with the change.
    """

    file: str
    line: int
    text: str


def code_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The numbered lines of a file that are code: no comment, no docstring, no import, no declaration."""
    in_text = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        stripped = line.strip()
        if path.suffix in (".pyx", ".pxd"):
            quotes = line.count('"""')
            if in_text or quotes:
                in_text = in_text != (quotes % 2 == 1)
                continue
        if not stripped or stripped.startswith(NO_CODE) or DECLARATION.match(stripped):
            continue
        yield number, line


def mutants_of(file: str) -> list[Mutant]:
    """All mutants of a file."""
    found = []
    for number, line in code_lines(ROOT / file):
        code = re.sub(r"\s+(#|/\*).*$", "", line)
        for pattern, replacement in REPLACEMENTS:
            for match in re.finditer(pattern, code):
                if code.count('"', 0, match.start()) % 2:
                    continue  # Within a string.
                found.append(Mutant(file, number, line[: match.start()] + replacement + line[match.end() :]))
        assigned = ASSIGNMENT.match(code)
        if assigned and file.endswith(".pyx") and not line.strip().startswith(("cdef ", "cpdef ")):
            found.append(Mutant(file, number, f"{assigned.group(1)}pass  # {code.strip()}"))
    return [mutant for mutant in dict.fromkeys(found) if not any(part in mutant.text for part in EQUIVALENT)]


def build(folder: Path) -> bool:
    """Compiles the package in place; False if it can't be compiled."""
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    environment = {**os.environ, "CFLAGS": "-O0"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, timeout=BUILD_SECS, check=False)
    return done.returncode == 0


def failure(folder: Path, file: str) -> str:
    """The end of the output of the file's tests on what is compiled in the folder. Empty if they pass."""
    # A sanitizer takes more address space than the limit below.
    options = ["-x", "-q", "-p", "no:cacheprovider", "-k", "not under_sanitizers"]
    pytest = [sys.executable, "-m", "pytest", *options, *FILES[file]]
    command = ["bash", "-c", f'ulimit -d {MOST_BYTES >> 10}; exec "$@"', "bash", *pytest]
    environment = {**os.environ, "PYTHONPATH": str(folder), "TF_CPP_MIN_LOG_LEVEL": "3"}
    try:
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, timeout=TEST_SECS, check=False)
    except subprocess.TimeoutExpired:
        return f"The tests don't end within {TEST_SECS} seconds."
    if done.returncode not in (0, 1) and done.returncode > 0:
        raise SystemExit(f"pytest can't run:\n{done.stdout.decode()[-3000:]}{done.stderr.decode()[-3000:]}")
    return done.stdout.decode()[-2000:] or "no output" if done.returncode else ""


def try_mutant(folder: Path, mutant: Mutant) -> str:
    """Returns "noticed", "not compiled" or "not noticed"."""
    path = folder / mutant.file
    original = path.read_text(encoding="utf-8")
    lines = original.splitlines(keepends=True)
    lines[mutant.line - 1] = mutant.text + "\n"
    try:
        path.write_text("".join(lines), encoding="utf-8")
        if not build(folder):
            return "not compiled"
        return "noticed" if failure(folder, mutant.file) else "not noticed"
    finally:
        path.write_text(original, encoding="utf-8")


def main() -> int:
    """Tries the mutants and prints what became of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", action="append", choices=sorted(FILES), help="only the mutants of this file")
    parser.add_argument("--sample", type=int, metavar="N", help="only so many of them, by chance")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--list", action="store_true", help="print the mutants and try none")
    options = parser.parse_args()
    mutants = [mutant for file in options.file or FILES for mutant in mutants_of(file)]
    if options.sample is not None and options.sample < len(mutants):
        mutants = random.Random(options.seed).sample(mutants, options.sample)
    if options.list:
        for mutant in mutants:
            print(f"{mutant.file}:{mutant.line}: {mutant.text.strip()}")
        return 0
    counts: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("*.so", "__pycache__", "build"))
            else:
                shutil.copy(source, folder / name)
        if not build(folder):
            raise SystemExit("The package can't be compiled without a change.")
        for file in sorted({mutant.file for mutant in mutants}):
            if output := failure(folder, file):
                raise SystemExit(f"The tests of {file} fail without a change:\n{output}")
        for number, mutant in enumerate(mutants, 1):
            outcome = try_mutant(folder, mutant)
            counts[outcome] = counts.get(outcome, 0) + 1
            print(f"{number}/{len(mutants)} {outcome}: {mutant.file}:{mutant.line}: {mutant.text.strip()}", flush=True)
    print(", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())))
    return 1 if counts.get("not noticed") else 0


if __name__ == "__main__":
    sys.exit(main())
