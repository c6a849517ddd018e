"""`python -m fastsup doctor SCRIPT`: runs a script, shows the executors of its sessions, and gives advice."""

from __future__ import annotations

import argparse
import os
import textwrap
from collections import Counter

from fastsup.common.script import ScriptFile, ScriptModule, script_command
from fastsup.core.sessions import PlanExecutor
from fastsup.eager.function_notes import FunctionNote
from fastsup.profile.advice.steps import counterpart
from fastsup.profile.command import print_at_the_end, run_profiled
from fastsup.profile.numbers import SessionPart, duration, percent
from fastsup.profile.profiler import HookProfiler
from fastsup.profile.report import Report
from fastsup.profile.table import WIDTH, Line, runs

__all__ = ["examine", "findings"]

_MOST_PLANS = 12


def examine(arguments: argparse.Namespace) -> int:
    """Runs a script and prints the findings.

    Args:
      arguments: the parsed command line: `script`, a list, and `is_module`.

    Returns:
      The script's exit code.
    """
    command = script_command(arguments)
    if command[0].startswith("-"):
        arguments.fail(f"unrecognized arguments: {command[0]}")
    try:
        script = (ScriptModule if arguments.is_module else ScriptFile)(command[0])
    except (OSError, ImportError) as error:
        arguments.fail(f"the script can't be read: {error}")
    profiler = HookProfiler()
    process = os.getpid()
    try:
        return run_profiled(script, command[1:], profiler)
    finally:
        if os.getpid() == process:
            print_at_the_end(findings(profiler.report()))


def findings(report: Report) -> list[Line]:
    """Returns the findings about a program: its sessions, their executors, and advice.

    Args:
      report: the report of the program.

    Returns:
      Lines of text, each with its style.
    """
    lines: list[Line] = [(line, "dim") for line in report.head.lines()]
    whole = sum(ns for _, ns, _ in report.timeline)
    if whole:
        phases = ", ".join(f"{phase} {duration(ns)}" for phase, ns, _ in report.timeline)
        lines += [(line, "") for line in _wrapped(f"the program: {duration(whole)}: {phases}")]
    for part in report.sessions:
        lines += _session(report, part)
    lines += _functions(report)
    lines.append(("", ""))
    for opened in report.unrecorded_sessions:
        if opened.library == "tensorflow":
            ours = counterpart(opened.kind.partition(".")[0]) or "fastsup.Session"
            where = f" in {opened.place}" if opened.place else ""
            lines += _warning(f"{opened.kind}{where} is TensorFlow's: {ours} does the same at a lower cost.")
    for part in report.sessions:
        for kind in part.tensorflow_hooks:
            if counterpart(kind):
                lines += _warning(
                    f"The hook {kind} of {part.name} is TensorFlow's, and called in every step: "
                    f"{counterpart(kind)} is skipped in steps in which it has no work."
                )
    return lines + _warning(report.advice(), "")


def _session(report: Report, part: SessionPart) -> list[Line]:
    times = f", {part.sessions} times" if part.sessions > 1 else ""
    share = percent(report.share(part.total_ns))
    lines: list[Line] = [("", ""), (f"{part.name}{times}: {runs(part)}, {share} of the steps' time", "bold")]
    if part.asked_executors:
        lines.append((f"  executor: {' and '.join(part.asked_executors)}", ""))
    for plan in part.executors[:_MOST_PLANS]:
        lines += [(line, "") for line in _wrapped(_plan(plan), "  ", "      ")]
    if len(part.executors) > _MOST_PLANS:
        lines.append((f"  … and {len(part.executors) - _MOST_PLANS} combinations more of fetches and feeds", ""))
    return lines


def _functions(report: Report) -> list[Line]:
    if not report.functions:
        return []
    lines: list[Line] = [("", ""), ("functions of fastsup.function", "bold")]
    counted = Counter(map(_function, report.functions))
    for text, times in list(counted.items())[:_MOST_PLANS]:
        of_it = f" ({times} ConcreteFunctions)" if times > 1 else ""
        lines += [(line, "") for line in _wrapped(text + of_it, "  ", "      ")]
    if len(counted) > _MOST_PLANS:
        lines.append((f"  … and {len(counted) - _MOST_PLANS} more", ""))
    return lines


def _function(note: FunctionNote) -> str:
    if note.why_not_lifted:
        return f"{note.name}: not lifted: {note.why_not_lifted}"
    on_trial = note.executor == "auto"
    seconds = "" if note.seconds is None else f", {duration(1e9 * note.seconds)} a call"
    compiled = ", compiled by XLA" if note.is_compiled else ""
    return f"{note.name}: lifted{compiled}, {'executor still on trial' if on_trial else note.executor}{seconds}"


def _plan(plan: PlanExecutor) -> str:
    fetches = ", ".join(name.removesuffix(":0") for name in plan.fetches)
    feeds = f" fed {', '.join(name.removesuffix(':0') for name in plan.feeds)}" if plan.feeds else ""
    seconds = "" if plan.seconds is None else f", {duration(1e9 * plan.seconds)} a run"
    return f"run({fetches}){feeds}: {plan.executor}{', still on trial' if plan.on_trial else ''}{seconds}"


def _warning(text: str, mark: str = "! ") -> list[Line]:
    return [(line, "yellow") for line in _wrapped(mark + text, "", " " * len(mark))]


def _wrapped(text: str, first: str = "", others: str = "") -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=first, subsequent_indent=others, break_long_words=False, break_on_hyphens=False
    )
