"""`run_loop` of a session whose config lets XLA compile: many steps in one run, the same as one after the other."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import Processes

from fastsup import train
from fastsup.core import Hook
from fastsup.runtime.executor import is_jit_on
from fastsup.steps.fused import FusedCalls
from fastsup.train.session import graph_loop
from fastsup.train.session.graph_loop import StepsAtOnce

v1 = tf.compat.v1

# All numbers are multiples of small powers of two: XLA's arithmetic on them is exact, as TensorFlow's is.
SLOPE = 0.25


def jit_config() -> Any:
    config = v1.ConfigProto()
    config.graph_options.optimizer_options.global_jit_level = v1.OptimizerOptions.ON_1
    return config


def level_is_on(config: Any) -> bool:
    """Stands for `is_jit_on`, without the flag: TensorFlow reads it once in a process."""
    return bool(config.graph_options.optimizer_options.global_jit_level > 0)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Leaves out the trial. Returns the numbers of steps that the runs have made."""
    runs: list[int] = []

    def noting(self: Any, limit: int, seconds: float, watched: Any) -> Any:
        made = run_steps(self, limit, seconds, watched)
        runs.append(0 if made is None else made[0])
        return made

    run_steps = StepsAtOnce.run_steps
    monkeypatch.setattr(StepsAtOnce, "run_steps", noting)
    monkeypatch.setattr(FusedCalls, "is_next", lambda self: not self.why_not_fused)
    monkeypatch.setattr(graph_loop, "is_jit_on", level_is_on)
    return runs


def build() -> dict[str, Any]:
    """A step that adds to a weight by the sign of its distance to a target that moves."""
    step = v1.train.get_or_create_global_step()
    weight = v1.get_variable("weight", [], initializer=v1.constant_initializer(0.0), use_resource=True)
    target = v1.get_variable("target", [], initializer=v1.constant_initializer(8.0), use_resource=True)
    loss = tf.identity(target - weight, name="loss")
    with tf.control_dependencies([loss]):
        moved = weight.assign_add(SLOPE * tf.sign(loss))
        with tf.control_dependencies([moved]):
            done = target.assign_add(0.125)
    with tf.control_dependencies([done]):
        train_op = v1.assign_add(step, 1).op
    return {"train_op": train_op, "loss": loss, "weight": weight, "target": target, "step": step}


class Recorder(Hook):
    """Notes the state at its steps; may fetch the loss."""

    def __init__(self, every: int, log: list[Any], model: dict[str, Any], fetches: Any = None) -> None:
        self.every, self.log, self.model, self.fetches = every, log, model, fetches

    def begin(self, loop: Any) -> None:
        self.due_at_step((loop.global_step // self.every + 1) * self.every)

    def after_step(self, loop: Any, value: Any) -> None:
        state = loop.session.run([self.model["weight"], self.model["target"]])
        self.log.append((self.every, loop.global_step, loop.steps, value, *map(float, state)))
        self.begin(loop)


def run(
    config: Any,
    intervals: Any = (),
    most: int | None = None,
    stop_at: int | None = None,
    folder: Path | None = None,
    fetches: Callable[[dict[str, Any]], Any] = lambda model: [model["train_op"], model["loss"]],
) -> Any:
    log: list[Any] = []
    with tf.Graph().as_default():
        model = build()
        hooks: list[Any] = [
            Recorder(every, log, model, model["loss"] if place == 1 else None) for place, every in enumerate(intervals)
        ]
        hooks.append(train.NanTensorHook(model["loss"]))
        hooks += [train.StopAtStepHook(num_steps=stop_at)] if stop_at else []
        with train.MonitoredTrainingSession(
            checkpoint_dir=folder and str(folder),
            hooks=hooks,
            config=config,
            save_checkpoint_steps=10,
            log_step_count_steps=None,
            save_summaries_steps=None,
            save_summaries_secs=None,
        ) as session:
            last = session.run_loop(fetches(model), most)
            raw = session.raw_session()
            state = [float(raw.run(model[name])) for name in ("weight", "target", "step")]
    saved = [] if folder is None else sorted(path.name for path in folder.glob("*.index"))
    return log, last, state, saved


@given(
    intervals=st.lists(st.integers(1, 40), max_size=3),
    most=st.integers(0, 90),
    stop_at=st.one_of(st.none(), st.integers(1, 60)),
)
@settings(deadline=None, max_examples=10)
def test_random_programs(at_once_for_module: list[int], **program: Any) -> None:
    assert run(jit_config(), **program) == run(None, **program)


@pytest.fixture(scope="module")
def at_once_for_module() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graph_loop, "is_jit_on", level_is_on)
        patch.setattr(FusedCalls, "is_next", lambda self: not self.why_not_fused)
        yield []


def test_makes_several_steps_at_once(at_once: list[int], tmp_path: Path) -> None:
    log, last, state, saved = run(jit_config(), [50], 200, folder=tmp_path / "jit")
    assert max(at_once) > 5
    assert sum(at_once) > 100
    assert state[2] == 200
    expected = run(None, [50], 200, folder=tmp_path / "plain")
    assert (log, last, state, saved) == expected
    assert len(saved) == 5


@pytest.mark.parametrize(
    "fetches",
    [
        lambda model: model["train_op"],
        lambda model: {"loss": "loss:0", "op": model["train_op"]},
        lambda model: (model["loss"], [model["train_op"], model["loss"]]),
    ],
)
def test_returns_what_a_step_returns(at_once: list[int], fetches: Any) -> None:
    got, expected = (run(config, (), 40, fetches=fetches) for config in (jit_config(), None))
    assert got == expected
    assert sum(at_once) > 20


def test_a_second_loop_of_the_session(at_once: list[int]) -> None:
    with tf.Graph().as_default():
        model = build()
        with train.MonitoredTrainingSession(config=jit_config()) as session:
            for _ in range(3):
                session.run_loop([model["train_op"], model["loss"]], 30)
            assert session.fused is False  # Without a trial nothing is chosen.
            assert session.why_not_fused == "the trial isn't over"
            assert session.run(model["step"]) == 90
    assert sum(at_once) > 60


def fed() -> Any:
    return v1.placeholder_with_default(1.0, []) + v1.placeholder(tf.float32, [])


def of_dataset() -> Any:
    dataset = tf.data.Dataset.from_tensors(1.0).repeat()
    return v1.data.make_one_shot_iterator(dataset).get_next()


def of_python() -> Any:
    return v1.py_func(lambda: np.float32(1.0), [], tf.float32)


def of_unknown_shape() -> Any:
    return tf.where(tf.constant([True, False]))


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (of_dataset, "OneShotIterator"),
        (of_python, "PyFunc"),
        (of_unknown_shape, "the shape of the result .* isn't known"),
    ],
)
def test_says_why_not(at_once: list[int], source: Callable[[], Any], reason: str) -> None:
    with tf.Graph().as_default():
        step = v1.train.get_or_create_global_step()
        fetches = [v1.assign_add(step, 1), source()]
        with train.MonitoredTrainingSession(config=jit_config()) as session:
            session.run_loop(fetches, 20)
            assert not session.fused
            assert session.run(step) == 20
            with pytest.raises(AssertionError, match=reason):
                raise AssertionError(session.why_not_fused)
    assert sum(at_once) == 0


def test_is_off_unless_xla_is_on(at_once: list[int]) -> None:
    run(None, (), 30)
    assert at_once == []


@pytest.mark.parametrize(
    ("level", "flags", "on_cpu", "is_on"),
    [
        (0, "", True, False),
        (1, "", True, False),
        (1, "", False, True),
        (1, "--tf_xla_cpu_global_jit", True, True),
        (2, "--tf_xla_cpu_global_jit=true --tf_xla_min_cluster_size=1", True, True),
        (0, "--tf_xla_cpu_global_jit", True, False),
        (0, "--tf_xla_cpu_global_jit --tf_xla_auto_jit=2", True, True),
        (-1, "--tf_xla_cpu_global_jit --tf_xla_auto_jit=2", True, False),
        (2, "--tf_xla_cpu_global_jit=false", True, False),
    ],
)
def test_when_xla_is_on(level: int, flags: str, on_cpu: bool, is_on: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_XLA_FLAGS", flags)
    config = v1.ConfigProto()
    config.graph_options.optimizer_options.global_jit_level = level
    assert is_jit_on(config, on_cpu) == is_on


def test_reference_variables_are_left_alone(at_once: list[int]) -> None:
    with tf.Graph().as_default():
        variable = v1.get_variable("reference", [], tf.float32, use_resource=False)
        fetches = [v1.assign_add(v1.train.get_or_create_global_step(), 1), variable]
        with train.MonitoredTrainingSession(config=jit_config()) as session:
            session.run_loop(fetches, 20)
            assert "isn't a resource variable" in session.why_not_fused


def test_in_a_program_with_the_flags(processes: Processes) -> None:
    """TensorFlow clusters the single steps then, and a trial decides."""
    program = textwrap.dedent(
        """
        import fastsup.steps.fused as calls
        import fastsup.train as train
        import tensorflow as tf

        calls._FEWEST_SECS = 0.0
        v1 = tf.compat.v1
        v1.disable_v2_behavior()
        v1.enable_resource_variables()
        step = v1.train.get_or_create_global_step()
        weights = v1.get_variable("weights", [4, 4])
        loss = tf.reduce_sum((weights - 1.0) ** 2)
        train_op = v1.train.AdamOptimizer(0.01).minimize(loss, step)
        config = v1.ConfigProto()
        config.graph_options.optimizer_options.global_jit_level = v1.OptimizerOptions.ON_2
        with train.MonitoredTrainingSession(config=config) as session:
            made = 0
            while session._graph_steps is None or session._graph_steps.last._calls.trial.choice is None:
                session.run_loop([train_op, loss], 500)
                made += 500
                said = session.why_not_fused
                assert session.fused or said.startswith(("not tried yet", "the trial", "single steps are faster")), said
            assert session.run(step) == made
            print("loss went down:", session.run(loss) < 1.0, session._graph_steps.last._calls.trial.seconds)
        """
    )
    environment = {**os.environ, "TF_XLA_FLAGS": "--tf_xla_cpu_global_jit"}
    done = processes.python("-c", program, env=environment, fresh=True)
    assert "loss went down: True" in done.stdout, done.stderr
