"""The spans of a sample of steps and of the slowest steps as a Chrome trace, for chrome://tracing and Perfetto."""

from __future__ import annotations

import json
from typing import Any

from fastsup.core.recorder import Recorder

__all__ = ["as_chrome_trace"]


def as_chrome_trace(recorder: Recorder) -> str:
    """Returns the trace as JSON text. Times are microseconds since the first span.

    Args:
      recorder: the recorder.
    """
    spans = recorder.trace()
    sampled = {span["step"] for span in spans}
    for slow in recorder.slow_steps():
        if slow["step"] not in sampled:
            spans += slow["spans"]
    spans.sort(key=lambda span: (span["start_ns"], -span["duration_ns"]))
    origin = spans[0]["start_ns"] if spans else 0
    events: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "fastsup"}},
    ]
    for span in spans:
        is_step = span["phase"] == "step"
        events.append(
            {
                "name": f"step {span['step']}" if is_step else f"{span['owner']}: {span['phase']}",
                "cat": "step" if is_step else "session" if span["owner"] == "session" else "hook",
                "ph": "X",
                "ts": (span["start_ns"] - origin) / 1e3,
                "dur": span["duration_ns"] / 1e3,
                "pid": 1,
                "tid": span["thread"] + 1,
                "args": {"step": span["step"]},
            }
        )
    about = {"sampled": f"one step of {recorder.sampled_every}, and the slowest"}
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ns", "otherData": about}) + "\n"
