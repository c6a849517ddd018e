"""ProfilerHook: which runs are traced, and what is written of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.client import timeline

v1 = tf.compat.v1


def timelines(files: Any, folder: Any) -> list[str]:
    return [name for name in files(folder) if name.startswith("timeline")]


@pytest.mark.parametrize(
    ("increment", "every", "steps"),
    [(1, 1, [2, 3, 4, 5, 6]), (1, 2, [2, 4, 6]), (1, 4, [4]), (1, 9, []), (3, 4, [9, 18])],
)
def test_every_n_steps(
    impl: Any, hooked: Any, graph: Any, counting_step: Any, tmp_path: Any, files: Any, events: Any,
    increment: int, every: int, steps: list[int],
) -> None:  # fmt: skip
    step = counting_step(increment)
    session, outer = hooked(impl.train.ProfilerHook(save_steps=every, output_dir=str(tmp_path)))
    for _ in range(6):
        outer.run(step.op)
    session.close()
    assert timelines(files, tmp_path) == sorted(f"timeline-{number}.json" for number in steps)
    found = [text for text in events(tmp_path) if "run_metadata" in text]
    assert found == [f"0:run_metadata step_{number}" for number in steps]


def test_every_n_secs(impl: Any, hooked: Any, step: Any, tmp_path: Any, files: Any, clock: Any) -> None:
    session, outer = hooked(impl.train.ProfilerHook(save_secs=3, output_dir=str(tmp_path)))
    made = []
    for passing in (0, 2, 0.9, 0.1, 0, 10, 0):
        clock.now += passing
        outer.run(step.op)
        made.append(len(timelines(files, tmp_path)))
    session.close()
    assert made == [0, 0, 0, 1, 1, 2, 2]
    assert timelines(files, tmp_path) == ["timeline-4.json", "timeline-6.json"]


def test_what_a_timeline_holds(impl: Any, hooked: Any, step: Any, tmp_path: Any) -> None:
    value = tf.add(tf.constant(1.0), tf.random.uniform([]), name="the_sum")
    session, outer = hooked(impl.train.ProfilerHook(save_steps=1, output_dir=str(tmp_path), show_memory=True))
    for _ in range(2):
        outer.run([step.op, value])
    session.close()
    trace = json.loads((tmp_path / "timeline-2.json").read_text())
    names = {event.get("args", {}).get("name") for event in trace["traceEvents"]}
    assert "the_sum" in names
    phases = {event["ph"] for event in trace["traceEvents"]}
    assert "O" in phases  # show_memory


@pytest.mark.parametrize(
    ("arguments", "asked"), [({}, (True, False)), ({"show_dataflow": False, "show_memory": True}, (False, True))]
)
def test_what_is_shown(
    impl: Any, hooked: Any, step: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, arguments: Any, asked: Any
) -> None:
    seen = []

    def generate(self: Any, show_dataflow: bool, show_memory: bool) -> str:
        seen.append((show_dataflow, show_memory))
        return "the trace"

    monkeypatch.setattr(timeline.Timeline, "generate_chrome_trace_format", generate)
    session, outer = hooked(impl.train.ProfilerHook(save_steps=1, output_dir=str(tmp_path), **arguments))
    for _ in range(2):
        outer.run(step.op)
    session.close()
    assert seen == [asked]
    assert (tmp_path / "timeline-2.json").read_text() == "the trace"


def test_only_due_runs_are_traced(impl: Any, hooked: Any, step: Any, tmp_path: Any, trace: Any) -> None:
    other = trace.hook("a")
    session, outer = hooked(impl.train.ProfilerHook(save_steps=3, output_dir=str(tmp_path)), other)
    for _ in range(5):
        outer.run(step.op)
    session.close()
    levels = [values.options.trace_level for _, values in other.arguments["after_run"]]
    none, full = v1.RunOptions.NO_TRACE, v1.RunOptions.FULL_TRACE
    assert levels == [none, none, full, none, none]
    assert [len(values.run_metadata.step_stats.dev_stats) > 0 for _, values in other.arguments["after_run"]] == [
        False, False, True, False, False,
    ]  # fmt: skip


def test_log(impl: Any, hooked: Any, step: Any, tmp_path: Any, tf_log: Any) -> None:
    session, outer = hooked(impl.train.ProfilerHook(save_steps=1, output_dir=str(tmp_path)))
    for _ in range(2):
        outer.run(step.op)
    session.close()
    assert tf_log.messages == [f"Saving timeline for 2 into '{tmp_path / 'timeline-2.json'}'."]


def test_default_is_the_current_directory(
    impl: Any, hooked: Any, step: Any, tmp_path: Any, files: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    session, outer = hooked(impl.train.ProfilerHook(save_steps=1))
    for _ in range(2):
        outer.run(step.op)
    session.close()
    assert timelines(files, tmp_path) == ["timeline-2.json"]


def test_needs_exactly_one_interval(impl: Any, graph: Any, tmp_path: Any) -> None:
    with pytest.raises(ValueError, match=r"^Can not provide both every_secs and every_steps\."):
        impl.train.ProfilerHook(save_secs=10, save_steps=20, output_dir=str(tmp_path))
    with pytest.raises(ValueError, match=r"^Either every_secs or every_steps should be provided\."):
        impl.train.ProfilerHook(output_dir=str(tmp_path))


def test_needs_a_global_step(impl: Any, graph: Any, tmp_path: Any) -> None:
    hook = impl.train.ProfilerHook(save_steps=1, output_dir=str(tmp_path))
    with pytest.raises(RuntimeError, match=r"^Global step should be created to use ProfilerHook\."):
        hook.begin()


def test_in_a_monitored_session(impl: Any, step: Any, tmp_path: Any, files: Any) -> None:
    hook = impl.train.ProfilerHook(save_steps=2, output_dir=str(tmp_path))
    with impl.train.MonitoredSession(hooks=[hook, impl.train.StopAtStepHook(last_step=6)]) as session:
        while not session.should_stop():
            session.run(step.op)
    assert timelines(files, tmp_path) == ["timeline-2.json", "timeline-4.json", "timeline-6.json"]


def test_events_keep_their_order(impl: Any, step: Any, tmp_path: Any, events: Any) -> None:
    """What other hooks have collected for the same file goes there first."""
    summary_op = v1.summary.scalar("own", 1.0)
    hooks = [
        impl.train.SummarySaverHook(save_steps=1, output_dir=str(tmp_path), summary_op=summary_op),
        impl.train.ProfilerHook(save_steps=3, output_dir=str(tmp_path)),
    ]
    with impl.train.MonitoredSession(hooks=hooks) as session:
        for _ in range(4):
            session.run(step.op)
    assert [text for text in events(tmp_path) if "graph_def" not in text] == [
        "1:START", "1:own", "2:own", "3:own", "0:run_metadata step_3", "4:own",
    ]  # fmt: skip
