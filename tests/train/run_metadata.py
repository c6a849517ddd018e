"""What hooks find in `run_values.run_metadata` where the ConfigProto, and no RunOptions, asks for some.

test_run_metadata.py runs these tests in their own process.
"""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

v1 = tf.compat.v1


class Hook(v1.train.SessionRunHook):  # type: ignore[misc]
    """Notes which parts of the metadata there are in each run, and the step that it asks for."""

    def __init__(self, step: Any = None) -> None:
        self.step = step
        self.parts: list[list[str]] = []
        self.steps: list[Any] = []

    def before_run(self, run_context: Any) -> Any:
        return v1.train.SessionRunArgs(self.step)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.parts.append([field.name for field, _ in run_values.run_metadata.ListFields()])
        self.steps.append(run_values.results)


def seen(impl: Any, step: Any, config: Any) -> list[list[str]]:
    hook = Hook(step.read)
    value = tf.constant(1)
    with impl.train.MonitoredSession(impl.train.ChiefSessionCreator(config=config), hooks=[hook]) as session:
        for _ in range(7):
            session.run(step.op)
        session.run(step.op, {value: 1})
    assert hook.steps == list(range(8))
    return hook.parts


def test_a_cost_model(impl: Any, step: Any) -> None:
    config = v1.ConfigProto(graph_options=v1.GraphOptions(build_cost_model=3))
    parts = seen(impl, step, config)
    assert parts[:7] == [["step_stats", "cost_graph"] if run in (2, 5) else [] for run in range(7)]


def test_the_sessions_own_name(impl: Any, step: Any) -> None:
    config = v1.ConfigProto()
    config.experimental.session_metadata.name = f"named by {impl.name}"
    assert seen(impl, step, config) == [["session_metadata"]] * 8


def test_nothing(impl: Any, step: Any) -> None:
    assert seen(impl, step, v1.ConfigProto()) == [[]] * 8


@pytest.mark.parametrize("executor", ["auto", "thread_pool", "inline"])
def test_a_cost_model_in_each_executor(executor: str, both: Any, step: Any) -> None:
    config = v1.ConfigProto(graph_options=v1.GraphOptions(build_cost_model=1))
    creator = both.fastsup.train.ChiefSessionCreator(config=config, executor=executor)
    hook = Hook()
    with both.fastsup.train.MonitoredSession(creator, hooks=[hook]) as session:
        session.run_loop(step.op, 5)
    assert hook.parts == [["step_stats", "cost_graph"]] * 5
