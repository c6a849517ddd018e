"""Compares two profiles, row by row, in time per step."""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from textwrap import wrap
from typing import Any

from fastsup.profile.export import SCHEMA
from fastsup.profile.numbers import LOOP, duration, name_of
from fastsup.profile.recording.statistics import SESSION
from fastsup.profile.table import WIDTH, Line

__all__ = ["compare", "load"]

# Rows with a smaller relative difference are skipped, because the difference may be noise.
_SAME = 0.05
_SMALL = 0.005
_SUMS = (("profiler", "profiler_ns"), ("unaccounted", "unaccounted_ns"))
_IMPORT = "import"
_NUMBERS = ("before", "now", "now/before")
_WIDTHS = (10, 10, 12)

# The types of the compared fields. A "?" marks a field that may be missing, because schema 1 lacks some.
_PROFILE: dict[str, Any] = {
    "schema": int,
    "steps": int,
    "wall_ns": int,
    "profiler_ns": int,
    "unaccounted_ns": int,
    "rows": [{"owner": str, "phase": str, "total_ns": int, "session?": str, "detail?": str, "thread?": str}],
    "timeline?": [{"phase": str, "total_ns": int}],
    "sessions?": [{"total_ns": int, "within?": (type(None), [str])}],
    "head?": {"script?": str, "arguments?": [str], "date?": str, "versions?": {"fastsup?": str}},
}

# The key of a row: its session, owner, phase and detail.
_Key = tuple[str, str, str, str]


def load(path: str) -> dict[str, Any]:
    """Reads a profile from a JSON file.

    Args:
      path: path of the file.

    Returns:
      The profile, as a dictionary.

    Raises:
      OSError: If the file can't be read.
      ValueError: If the file isn't a profile, or was written by a later version of fastsup.
    """
    with open(path, encoding="utf-8") as file:
        try:
            profile = json.load(file)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path} isn't JSON: {error}. Pass a file written by --json.") from None
    if not isinstance(profile, dict) or not _has(profile, _PROFILE):
        raise ValueError(f"{path} isn't a profile. Pass a file written by --json.")
    if profile["schema"] > SCHEMA:
        raise ValueError(
            f"{path} was written by a later version of fastsup: its schema is {profile['schema']}, and {SCHEMA} is "
            "the last one that this version supports."
        )
    return profile


def _has(value: Any, wanted: Any) -> bool:
    """Returns True if a JSON value has a type: a class, a tuple of types, a list of one, or a dictionary of types."""
    if isinstance(wanted, tuple):
        return any(_has(value, kind) for kind in wanted)
    if isinstance(wanted, list):
        return isinstance(value, list) and all(_has(item, wanted[0]) for item in value)
    if isinstance(wanted, dict):
        return isinstance(value, dict) and all(
            _has(value[name.rstrip("?")], kind) if name.rstrip("?") in value else name.endswith("?")
            for name, kind in wanted.items()
        )
    return isinstance(value, wanted) and not isinstance(value, bool)


def compare(before: dict[str, Any], now: dict[str, Any]) -> list[Line]:
    """Compares two profiles.

    Args:
      before: the earlier profile, as `load` or `as_dict` returns it.
      now: the later one.

    Returns:
      Lines of text, each with its style.
    """
    lines: list[Line] = [(line, "bold") for line in wrap(f"compared with {_title(before)}", WIDTH)]
    if not before["steps"] or not now["steps"]:
        return [*lines, ("Nothing to compare: one of the two profiles has no steps.", "yellow")]
    old_schema = min(before["schema"], now["schema"]) < 2
    whole = (_step(before), _step(now))
    header = "".join(name.rjust(width) for name, width in zip(_NUMBERS, _WIDTHS, strict=True))
    first = WIDTH - sum(_WIDTHS)
    lines += [("", ""), ("time per step".ljust(first) + header, "dim")]
    lines.append(_compared("whole step, with the time between steps", *whole))
    if abs(before["steps"] - now["steps"]) > _SAME * now["steps"]:
        text = (
            f"{before['steps']} steps before, {now['steps']} now: one-time costs (setup, tracing, the end) are "
            "divided by these."
        )
        lines += [(line, "dim") for line in wrap(text, WIDTH)]
    per_step = [_per_step(profile, old_schema) for profile in (before, now)]
    per_step[0] = _renamed(*per_step)
    sessions: dict[str, list[tuple[float, Line]]] = defaultdict(list)
    same = 0
    for key in {**per_step[0], **per_step[1]}:
        old, new = (found.get(key, 0.0) for found in per_step)
        difference = abs(new - old)
        if difference < _SAME * max(old, new) or difference < _SMALL * max(whole):
            same += 1
        else:
            sessions[key[0]].append((difference, _compared(f" {_name(key)}", old, new)))
    # The largest differences come first, both for sessions and for rows in a session.
    for session in sorted(sessions, key=lambda name: -sum(difference for difference, _ in sessions[name])):
        lines.append(((session or "all sessions")[:WIDTH], "bold"))
        lines += [line for _, line in sorted(sessions[session], key=lambda row: -row[0])]
    if same:
        lines.append((f"{same} more rows differ by less than 5%, or by almost nothing per step.", "dim"))
    if old_schema:
        lines.append(("One profile doesn't distinguish sessions and fetches, so they are added up.", "dim"))
    return lines + _timelines(before, now, first)


def _title(profile: dict[str, Any]) -> str:
    head = profile.get("head", {})
    about = " ".join(filter(None, (head.get("script"), *head.get("arguments", ()))))
    versions = head.get("versions", {}).get("fastsup")
    parts = (about and os.path.basename(about), head.get("date"), versions and f"fastsup {versions}")
    return ", ".join(filter(None, parts)) or "a profile of an earlier version"


def _step(profile: dict[str, Any]) -> float:
    return float(profile["wall_ns"] / profile["steps"])


def _per_step(profile: dict[str, Any], merged: bool) -> dict[_Key, float]:
    """Returns each row's nanoseconds per step. Strips line numbers from session names, because edits change them."""
    found: dict[_Key, float] = defaultdict(float)
    for row in profile["rows"]:
        session = re.sub(r":\d+", "", row.get("session", ""))
        # Before schema 3, the owner contained the thread.
        owner = name_of(row["owner"], row.get("thread", LOOP))
        key = ("", owner, row["phase"], "") if merged else (session, owner, row["phase"], row.get("detail", ""))
        found[key] += row["total_ns"] / profile["steps"]
    for owner, ns in _with_evaluations(profile).items():
        found["", owner, "with its evaluations", ""] += ns / profile["steps"]
    for phase, field in _SUMS:
        found["", "session", phase, ""] += max(profile[field], 0) / profile["steps"]
    return found


def _with_evaluations(profile: dict[str, Any]) -> dict[str, int]:
    """Returns the nanoseconds of each hook and callback that opens sessions, including these sessions."""
    found: dict[str, int] = defaultdict(int)
    for each in profile.get("sessions", ()):
        within: list[str] = each.get("within") or []
        _, owner, *_ = [*within, "", SESSION]
        if owner != SESSION:
            found[owner] += each["total_ns"]
    for row in profile["rows"]:
        if row["owner"] in found:
            found[row["owner"]] += row["total_ns"]
    return found


def _renamed(before: dict[_Key, float], now: dict[_Key, float]) -> dict[_Key, float]:
    """Renames the sessions in the earlier rows as in the later profile if only the script's name has changed.

    The call that opens such a session, with its role, must occur once among the sessions that only one profile has.
    """
    ours, theirs = ({key[0] for key in rows} for rows in (now, before))
    new_names: dict[str, str] = {}
    for name in theirs - ours:
        call = _call(name)
        same, later = ([each for each in found if _call(each) == call] for found in (theirs - ours, ours - theirs))
        if len(same) == len(later) == 1:
            new_names[name] = later[0]
    return {(new_names.get(key[0], key[0]), *key[1:]): ns for key, ns in before.items()}


def _call(session: str) -> str:
    """Strips the place from a session's name: "MonitoredSession (train), train.py" to "MonitoredSession (train)"."""
    return session.partition(", ")[0]


def _name(key: _Key) -> str:
    _, owner, phase, detail = key
    name = f"{phase} {detail}".rstrip()
    return name if owner == SESSION else f"{owner}: {name}"


def _compared(name: str, old: float, new: float) -> Line:
    if not old:
        word, style = "new", ""
    elif not new:
        word, style = "gone", ""
    else:
        ratio = new / old
        word = f"{ratio:.2f} x" if ratio < 99.5 else f"{ratio:.0f} x"
        style = "red" if ratio > 1 + _SAME else "green" if ratio < 1 - _SAME else ""
    numbers = (duration(old) if old else "-", duration(new) if new else "-", word)
    text = "".join(number.rjust(width) for number, width in zip(numbers, _WIDTHS, strict=True))
    first = WIDTH - len(text)
    shown = name if len(name) < first else f"{name[: first // 2 - 1]}…{name[-(first - first // 2 - 1) :]}"
    return (shown.ljust(first) + text, style)


def _timelines(before: dict[str, Any], now: dict[str, Any], first: int) -> list[Line]:
    """Returns the phases of the whole program."""
    both = [{phase["phase"]: phase["total_ns"] for phase in profile.get("timeline", ())} for profile in (before, now)]
    if not all(both):
        missing = "the earlier one" if both[1] else "one of them"
        return (
            [] if not any(both) else [(f"The phases of the whole program aren't compared: {missing} has none.", "dim")]
        )
    whole = tuple(sum(phases.values()) for phases in both)
    lines = [("", ""), _compared("whole program", *whole)]
    for name in {**both[0], **both[1]}:
        old, new = (phases.get(name, 0) for phases in both)
        if max(old, new) >= _SMALL * max(whole):
            text, style = _compared(f" {name}", old, new)
            # The duration of an import depends on the file system's cache.
            lines.append((text, "" if name == _IMPORT else style))
    return lines
