"""The global step moved by hooks, listeners, other sessions and threads, and by a recovery."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.training import training_util

import fastsup

v1 = tf.compat.v1


def compare(both: Any, run: Callable[[Any], Any]) -> Any:
    """What a program does under TensorFlow, having checked that it does the same under fastsup."""
    theirs, ours = (run(impl) for impl in (both.tensorflow, both.fastsup))
    assert ours == theirs
    return theirs


# Ways to move it within a run that fire() can do itself.


def under_another_name(env: Any) -> Any:
    """A second handle of the same variable."""
    if not v1.resource_variables_enabled():
        pytest.skip("a reference variable has no handle")
    handle = tf.raw_ops.VarHandleOp(dtype=tf.int64, shape=[], shared_name="global_step")
    op = env.add(1)
    with tf.control_dependencies([op]):
        other = tf.raw_ops.AssignAddVariableOp(resource=handle, value=tf.constant(2, tf.int64))
    return lambda session, n: session.run([op, other] if n % 3 == 1 else op)


def by_a_python_function(env: Any) -> Any:
    """One that runs the session from within the run."""
    inner = env.add(1)

    def advance() -> np.float32:
        env.raw.run(inner)
        return np.float32(0)

    with env.after_read():
        op = v1.py_func(advance, [], tf.float32).op
    return lambda session, n: session.run(op)


def by_an_assignment(env: Any) -> Any:
    with env.after_read():
        op = v1.assign(env.step.global_step, env.step.read + 2).op
    return lambda session, n: session.run(op)


def by_load(env: Any) -> Any:
    op = env.add(1)

    def run(session: Any, n: int) -> None:
        if n == 4:
            env.step.global_step.load(7, env.raw)
        session.run(op)

    return run


@pytest.mark.slow
@pytest.mark.parametrize(
    "program", [under_another_name, by_a_python_function, by_an_assignment, by_load],
    ids=lambda program: program.__name__.replace("_", " "),
)  # fmt: skip
def test_other_ways_to_write_it(both: Any, fire: Any, make_hooks: Any, program: Any) -> None:
    assert fire(both.fastsup, program, make_hooks) == fire(both.tensorflow, program, make_hooks)


# Hooks and listeners that step.


@pytest.fixture
def standard(tmp_path: Any, trace: Any) -> Callable[..., Any]:
    """(hooks, trace): a checkpoint hook that saves every 3 steps, and a stop at 14, that write into the trace."""

    def make(impl: Any, **listener_actions: Any) -> tuple[list[Any], Any]:
        log = type(trace)()
        listener = log.listener("l", **listener_actions)
        saver = impl.train.CheckpointSaverHook(
            str(tmp_path / impl.name), save_steps=3, listeners=[listener], save_graph_def=False
        )
        return [saver, impl.train.StopAtStepHook(last_step=14)], log

    return make


def train(impl: Any, log: Any, hooks: list[Any], step: Any, **arguments: Any) -> list[Any]:
    """Trains until a hook asks for a stop, at most 20 steps. Returns the log."""
    with impl.train.MonitoredTrainingSession(hooks=hooks, **arguments) as session:
        for n in range(20):
            if session.should_stop():
                break
            log.append(f"run {n}")
            session.run(step.op)
    return log


@pytest.mark.slow
@pytest.mark.parametrize("place", ["first", "last"])
@pytest.mark.parametrize("callback", ["before_run", "after_run"])
def test_a_hook_that_steps(both: Any, counting_step: Any, standard: Any, callback: str, place: str) -> None:
    def run(impl: Any) -> Any:
        with tf.Graph().as_default():
            step = counting_step()
            hooks, log = standard(impl)

            def advance(number: int, context: Any, *_: Any) -> None:
                if number % 2:
                    context.session.run(step.op)

            hooks.insert(0 if place == "first" else 2, type(log)().hook("moving", **{callback: advance}))
            return train(impl, log, hooks, step)

    assert {"l.end:14", "l.end:15"} & set(compare(both, run))


@pytest.mark.parametrize("callback", ["before_save", "after_save"])
def test_a_listener_that_steps(both: Any, counting_step: Any, standard: Any, callback: str) -> None:
    def run(impl: Any) -> Any:
        with tf.Graph().as_default():
            step = counting_step()
            hooks, log = standard(impl, **{callback: lambda number, session, _: session.run(step.op)})
            return train(impl, log, hooks, step)

    assert any(entry.startswith("l.after_save") for entry in compare(both, run))


def test_hooks_around_a_step_fn(both: Any, counting_step: Any, standard: Any) -> None:
    def run(impl: Any) -> Any:
        with tf.Graph().as_default():
            step = counting_step()
            hooks, log = standard(impl)

            def step_fn(step_context: Any) -> None:
                step_context.session.run(step.op)
                step_context.run_with_hooks(step.op)
                step_context.session.run(step.op)

            with impl.train.MonitoredSession(hooks=hooks) as session:
                while not session.should_stop():
                    log.append("run")
                    session.run_step_fn(step_fn)
            return log

    assert compare(both, run).count("run") == 5


# Recovery.


@pytest.mark.slow
@pytest.mark.parametrize("fails", [[4], [1, 2], [7, 8, 12]])
def test_recovery_goes_back_to_a_checkpoint(
    both: Any, counting_step: Any, standard: Any, tmp_path: Any, fails: list[int]
) -> None:
    def run(impl: Any) -> Any:
        with tf.Graph().as_default():
            step = counting_step()
            hooks, log = standard(impl)

            def fail(number: int, *_: Any) -> None:
                if number in fails:
                    log.append("aborted")
                    raise tf.errors.AbortedError(None, None, "away")

            hooks.insert(1, type(log)().hook("failing", after_run=fail))
            return train(
                impl, log, hooks, step, checkpoint_dir=str(tmp_path / impl.name), save_checkpoint_secs=None,
                save_summaries_steps=None, log_step_count_steps=None,
            )  # fmt: skip

    assert compare(both, run).count("aborted") == len(fails)


# Other sessions and threads.


@pytest.fixture(scope="module")
def server() -> Any:
    return v1.train.Server.create_local_server()


def test_another_session_of_the_same_server(both: Any, counting_step: Any, standard: Any, server: Any) -> None:
    """As another worker does: the variable is the server's."""

    def run(impl: Any) -> Any:
        with tf.Graph().as_default() as graph, graph.container(f"other-{impl.name}"):
            step = counting_step()
            hooks, log = standard(impl)
            other = v1.Session(server.target, graph=graph)
            with impl.train.MonitoredTrainingSession(server.target, hooks=hooks) as session:
                for n in range(20):
                    if session.should_stop():
                        break
                    if n % 3 == 1:
                        other.run(step.op)
                        other.run(step.op)
                    log.append(f"run {n}")
                    session.run(step.op)
            other.close()
            return log

    log = compare(both, run)
    assert "run 7" in log
    assert "run 9" not in log


def test_a_thread_that_never_rests(impl: Any, graph: Any, counting_step: Any, raw_session: Any, trace: Any,
                                   tmp_path: Any) -> None:  # fmt: skip
    """Nothing is in step here. But training ends with the first run that begins after the last step."""
    step = counting_step()
    saver = impl.train.CheckpointSaverHook(
        str(tmp_path), save_steps=50, listeners=[trace.listener("l")], save_graph_def=False
    )
    late_runs, done = 0, threading.Event()

    def advance(raw: Any) -> None:
        while not done.is_set():
            raw.run(step.op)

    with impl.train.MonitoredSession(hooks=[saver, impl.train.StopAtStepHook(last_step=300)]) as session:
        raw = raw_session(session)
        thread = threading.Thread(target=advance, args=(raw,))
        thread.start()
        try:
            while not session.should_stop():
                late_runs += bool(raw.run(step.global_step) >= 300)
                session.run(step.op)
        finally:
            done.set()
            thread.join()
        assert raw.run(step.global_step) >= 300
    assert late_runs <= 1
    saved = [int(entry.rpartition(":")[2]) for entry in trace if entry.startswith("l.after_save")]
    assert saved[0] == 0
    assert all(later - earlier >= 50 for earlier, later in itertools.pairwise(saved[:-1]))  # The last is the end's.


# Global steps of other kinds.


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64])
def test_a_global_step_of_the_programs_own(both: Any, standard: Any, dtype: Any) -> None:
    def run(impl: Any) -> Any:
        with tf.Graph().as_default() as graph:
            variable = v1.get_variable("mine", initializer=tf.constant(2, dtype), trainable=False)
            graph.add_to_collection(v1.GraphKeys.GLOBAL_STEP, variable)
            with tf.control_dependencies([training_util._get_or_create_global_step_read()]):
                op = v1.assign_add(variable, 2).op
            hooks, log = standard(impl)
            with impl.train.MonitoredSession(hooks=hooks) as session:
                while not session.should_stop():
                    log.append("run")
                    session.run(op)
            return log

    log = compare(both, run)
    assert log.count("run") == 7  # A run more than it takes: the hook looks once the step before the run is 13.
    assert "l.before_save:2" in log


def test_a_step_that_has_to_be_fetched_is_fetched_without_its_guard(graph: Any) -> None:
    """The guard against its having no value costs ten times what the read does."""
    step = v1.train.get_or_create_global_step()
    guarded = training_util._get_or_create_global_step_read()
    op = v1.assign_add(step, v1.placeholder_with_default(tf.constant(2, tf.int64), [])).op
    with fastsup.train.MonitoredTrainingSession(hooks=[fastsup.train.StopAtStepHook(last_step=100)]) as session:
        assert not session.raw_session().maker.cheaper_reads
        session.run(op)
        session.run(op)
        # A reference variable is read where it lies.
        expected = [] if step.dtype._is_ref_dtype else [guarded.name]
        assert list(session.raw_session().maker.cheaper_reads) == expected
        assert session.run_without_hooks(guarded) == 4


def test_a_loss_is_watched_beside_a_step_that_has_to_be_fetched(graph: Any) -> None:
    """The loss's hook isn't called for that, and sees a NaN all the same."""
    step = v1.train.get_or_create_global_step()
    by, loss = v1.placeholder_with_default(tf.constant(2, tf.int64), []), v1.placeholder_with_default(1.0, [])
    op = v1.assign_add(step, by).op
    profiler = fastsup.HookProfiler()
    hooks = [fastsup.train.StopAtStepHook(last_step=100), fastsup.train.NanTensorHook(loss)]
    with (
        pytest.raises(fastsup.train.NanLossDuringTrainingError),
        fastsup.train.MonitoredSession(hooks=hooks, profiler=profiler) as session,
    ):
        for _ in range(10):
            session.run(op)
        session.run_loop(op, steps=10)
        calls = {(row.owner, row.phase): row.times.calls for row in profiler.report().rows}
        # In the first run the hooks don't know yet where the step stands.
        assert calls.get(("NanTensorHook", "after_run"), 0) <= 1
        assert session.run_without_hooks(step) == 40
        session.run(op, {loss: float("nan")})
