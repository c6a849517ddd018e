"""What the profiler costs, and how right it is: `python -m benchmarks.profiler`.

The first part runs the step of the other benchmarks with six hooks, in two sessions in turn, one of them recorded. The
second has hooks that wait for a time in a loop, and says what the profile makes of it.
"""

from __future__ import annotations

import tempfile
import time
from typing import Any

import tensorflow as tf

import fastsup
import fastsup.train as train
from benchmarks.programs import NEVER

v1 = tf.compat.v1

ROUNDS = 60
STEPS = 4_000
BUSY_NS = (50_000, 5_000, 500)


def _session(profiler: fastsup.HookProfiler | None, size: int) -> tuple[Any, Any]:
    with tf.Graph().as_default():
        step = v1.train.get_or_create_global_step()
        weights = v1.get_variable("weights", [size], use_resource=True)
        loss = tf.reduce_sum(weights * weights)
        v1.summary.scalar("loss", loss)
        op = v1.train.GradientDescentOptimizer(0.01).minimize(loss, global_step=step)
        hooks = [train.StopAtStepHook(last_step=NEVER), train.LoggingTensorHook({"loss": loss}, every_n_iter=NEVER)]
        return (
            train.MonitoredTrainingSession(
                checkpoint_dir=tempfile.mkdtemp(),
                save_checkpoint_steps=NEVER,
                save_summaries_steps=NEVER,
                log_step_count_steps=NEVER,
                hooks=[*hooks, train.FinalOpsHook(loss)],
                profiler=profiler,
            ),
            op,
        )


def _loop(session: Any, op: Any) -> float:
    started = time.perf_counter_ns()
    session.run_loop(op, steps=STEPS)
    return (time.perf_counter_ns() - started) / STEPS


def _run(session: Any, op: Any) -> float:
    run = session.run
    started = time.perf_counter_ns()
    for _ in range(STEPS):
        run(op)
    return (time.perf_counter_ns() - started) / STEPS


def cost() -> None:
    """Prints what recording adds to a step."""
    for size in (10, 20_000):
        for name, steps in (("run_loop", _loop), ("run", _run)):
            off, on = _session(None, size), _session(fastsup.HookProfiler(), size)
            times: tuple[list[float], list[float]] = ([], [])
            for _ in range(ROUNDS):
                for session, of_it in zip((off, on), times, strict=True):
                    of_it.append(steps(*session))
            best_off, best_on = map(min, times)
            print(
                f"{name:9} on {size:6} numbers: {best_off:9,.0f} ns, recorded {best_on:9,.0f} ns: "
                f"+{best_on - best_off:.0f} ns, {100 * (best_on / best_off - 1):.1f}%"
            )
            for session, _ in (off, on):
                with session.graph.as_default():
                    session.close()


class Busy(train.SessionRunHook):  # type: ignore[misc]
    """Waits in `after_run`, by the same clock."""

    def __init__(self, ns: int) -> None:
        self.ns = ns

    def after_run(self, run_context: Any, run_values: Any) -> None:
        now = time.perf_counter_ns
        end = now() + self.ns
        while now() < end:
            pass


def accuracy() -> None:
    """Prints what the profile says of hooks whose cost is known."""
    profiler = fastsup.HookProfiler(skip_steps=100)
    hooks = [Busy(ns) for ns in BUSY_NS]
    with tf.Graph().as_default():
        op = v1.assign_add(v1.train.get_or_create_global_step(), 1).op
        with train.SingularMonitoredSession(hooks=hooks, profiler=profiler) as session:
            for _ in range(5_000):
                session.run(op)
    rows = {row.owner: row for row in profiler.report().rows if row.phase == "after_run"}
    for hook, row in zip(hooks, rows.values(), strict=True):
        alone = []
        for _ in range(2_000):
            started = time.perf_counter_ns()
            hook.after_run(None, None)
            alone.append(time.perf_counter_ns() - started)
        truth = sorted(alone)[1_000]
        said = row.times.p50_ns or 0.0
        print(f"a hook of {truth:6} ns (median, timed by itself) is reported as {said:8.0f}: {said / truth - 1:+.1%}")


if __name__ == "__main__":
    cost()
    accuracy()
