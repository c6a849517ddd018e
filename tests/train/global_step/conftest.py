"""Runs a program that moves the global step, under either implementation, and writes down what its hooks do."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf

from fastsup.runtime.graph.operations import upstream_operations

v1 = tf.compat.v1
RUNS = 12


# Hooks, that write what they do into a trace.


class Writer:
    """A summary writer that notes the step, and the speed where it is one."""

    def __init__(self, trace: list[str], name: str) -> None:
        self.trace, self.name = trace, name

    def add_summary(self, summary: Any, global_step: Any) -> None:
        speed = "" if isinstance(summary, bytes) else f" at {summary.value[0].simple_value:.4f}"
        self.trace.append(f"{self.name} {global_step}{speed}")

    def add_session_log(self, session_log: Any, global_step: Any) -> None:
        self.trace.append(f"{self.name} starts at {global_step}")

    def add_run_metadata(self, run_metadata: Any, tag: str) -> None:
        self.trace.append(f"{self.name} {tag} {len(run_metadata.step_stats.dev_stats) > 0}")

    def flush(self) -> None:
        self.trace.append(f"{self.name} ends")


class Saver:
    saver_def = None

    def __init__(self, trace: list[str]) -> None:
        self.trace = trace

    def save(self, session: Any, save_path: str, global_step: Any, write_meta_graph: bool) -> None:
        self.trace.append(f"saved {global_step}")


def stop(train: Any, env: Any) -> list[Any]:
    return [train.StopAtStepHook(last_step=9)]


def checkpoint(train: Any, env: Any) -> list[Any]:
    saver = Saver(env.trace)
    return [train.CheckpointSaverHook(env.folder, save_steps=3, saver=saver, save_graph_def=False)]


def summary(train: Any, env: Any) -> list[Any]:
    return [
        train.StepCounterHook(every_n_steps=2, summary_writer=Writer(env.trace, "counted")),
        train.SummarySaverHook(save_steps=2, summary_writer=Writer(env.trace, "summary"), summary_op=env.summary),
    ]


def profiler(train: Any, env: Any) -> list[Any]:
    hook = train.ProfilerHook(save_steps=3, output_dir=env.folder)
    hook._save = lambda step, path, stats: env.trace.append(f"profiled {step}")
    hook._file_writer = Writer(env.trace, "profile")
    return [hook]


def seconds(train: Any, env: Any) -> list[Any]:
    saver = Saver(env.trace)
    return [
        train.CheckpointSaverHook(env.folder, save_secs=3, saver=saver, save_graph_def=False),
        train.StepCounterHook(
            every_n_steps=None, every_n_secs=2, summary_writer=Writer(env.trace, "counted")
        ),
        train.SummarySaverHook(
            save_secs=2, summary_writer=Writer(env.trace, "summary"), summary_op=env.summary
        ),
    ]  # fmt: skip


def everything(train: Any, env: Any) -> list[Any]:
    asking = env.recorder(
        "python",
        before_run=lambda *_: train.SessionRunArgs(env.step.read),
        after_run=lambda _, __, values: env.trace.append(f"read {values.results}"),
    )
    variable = env.step.global_step if env.of_variable else env.step.read
    each = [
        env.recorder(
            name,
            before_run=lambda *_, form=form: train.SessionRunArgs(form()),
            after_run=lambda _, __, values: env.trace.append(f"{values.results}"),
        )
        for name, form in (
            ("variable", lambda: variable),
            ("list", lambda: [variable, env.constant]),
            ("tuple", lambda: (env.constant, variable, env.constant)),
            ("alone", lambda: [env.step.read]),
            ("dictionary", lambda: {"b": env.constant, "step": env.step.read, "a": env.constant}),
        )
    ]
    logging = train.LoggingTensorHook(
        {"step": env.step.read}, every_n_iter=3, formatter=lambda values: env.trace.append(f"logged {values}") or "."
    )
    return [
        *checkpoint(train, env), asking, *each, *summary(train, env), logging, *stop(train, env), *seconds(train, env),
    ]  # fmt: skip


HOOKS = [stop, checkpoint, summary, profiler, seconds, everything]


@pytest.fixture(params=HOOKS, ids=lambda hooks: hooks.__name__)
def make_hooks(request: pytest.FixtureRequest) -> Any:
    """A set of hooks: alone, so that none makes a session look at the global step for another; and all of them."""
    return request.param


class Environment:
    """What a program and its hooks are built with; `trace` gets what they do."""

    raw: Any  # The session under the hooked one.

    def __init__(self, trace: Any, folder: str, step: Any, ordered: bool = True) -> None:
        self.trace, self.folder, self.step, self.ordered = trace, folder, step, ordered
        self.hooks: list[Any] = []  # Hooks of the program.
        self.first: list[Any] = []  # What the program's operations wait for.
        self.recorder = type(trace)().hook
        self.constant = tf.constant(1.5)
        # What a run reads that fetches the variable itself. A reference variable is read when it likes.
        in_order = v1.resource_variables_enabled()
        self.of_variable = [v1.get_default_graph().as_graph_element(step.global_step)] if in_order else []
        self.summary = v1.summary.scalar("constant", tf.constant(1.0))

    def add(self, increment: Any) -> Any:
        """An op that adds to the global step."""
        with self.after_read():
            return v1.assign_add(self.step.global_step, tf.cast(increment, tf.int64)).op

    def after_read(self) -> Any:
        """Has what is built wait for the run's own read of the global step, where the program is an ordered one."""
        return tf.control_dependencies([*self.first, *([self.step.read, *self.of_variable] if self.ordered else [])])

    def read_last(self) -> None:
        """Has each read of the global step come after the rest of its run, where nothing orders them."""
        late = v1.py_func(lambda: time.sleep(0.02), [], [], stateful=True)
        variable = v1.get_default_graph().as_graph_element(self.step.global_step)
        for op in upstream_operations([self.step.read, variable]):
            if op.type in ("ReadVariableOp", "VarIsInitializedOp", "IsVariableInitialized", "Identity"):
                op._add_control_input(late)

    def failing(self, session: Any, fetches: Any, feeds: Any) -> None:
        try:
            session.run(fetches, feeds)
        except tf.errors.InvalidArgumentError as error:
            assert "the step is bad" in str(error)  # noqa: PT017
            self.trace.append("failed")


@pytest.fixture
def fire(counting_step: Any, hooked_in: Any, clock: Any, trace: Any, tmp_path: Any) -> Callable[..., list[str]]:
    """Runs a program under an implementation, one second a run, and gives what its hooks did in each run."""

    def run(impl: Any, program: Any, make_hooks: Any, ordered: bool = True) -> list[str]:
        clock.now = 1e9
        with tf.Graph().as_default():
            env = Environment(type(trace)(), str(tmp_path / impl.name), counting_step(), ordered)
            act = program(env)
            hooks = make_hooks(impl.train, env)
            env.raw, session = hooked_in(impl, *hooks)
            v1.get_default_graph().finalize()
            for n in range(RUNS):
                if session.should_stop():
                    break
                clock.now += 1
                env.trace.append(f"run {n}:")
                act(session, n)
            env.trace.append(f"ended at {env.raw.run(env.step.global_step)}:")
            for hook in hooks:
                hook.end(env.raw)
            session.close()
        return env.trace

    return run


@pytest.fixture
def fire_in_loop(counting_step: Any, clock: Any, trace: Any, tmp_path: Any) -> Callable[..., list[str]]:
    """Runs a program in a loop, one second a run: fastsup's `run_loop`, or run after run. Gives what its hooks did."""

    def pass_time() -> None:
        clock.now += 1

    def run(impl: Any, program: Any, make_hooks: Any, ordered: bool = True) -> list[str]:
        clock.now = 1e9
        with tf.Graph().as_default():
            env = Environment(type(trace)(), str(tmp_path / impl.name), counting_step(), ordered)
            env.first = [v1.py_func(pass_time, [], [], stateful=True)]
            act = program(env)
            hooks = [*make_hooks(impl.train, env), *env.hooks]
            with impl.train.MonitoredSession(hooks=hooks) as session:
                env.raw = session._tf_sess()
                if impl.name == "fastsup":
                    act(SimpleNamespace(run=lambda op: session.run_loop(op, steps=RUNS)), 0)
                else:
                    for n in range(RUNS):
                        if session.should_stop():
                            break
                        act(session, n)
                last_step = env.raw.run(env.step.read)
        return [*env.trace, f"ended at {last_step}:"]

    return run
