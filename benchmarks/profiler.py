"""The cost of the profiler, and its accuracy: `python -m benchmarks.profiler`, in about a minute.

The first part runs a step with six hooks in one session, in turns without and with a profiler that is on for the
program. A slice of each makes a pair. (Two sessions would differ by more than the cost, by the addresses of their
memory.) The second part has hooks that wait for a known time, and compares the profile with it.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from functools import partial
from statistics import median, quantiles
from typing import Any

import tensorflow as tf

import fastsup
import fastsup.train as train
from benchmarks.measure import NEVER, Contender, alternate, steps_per_slice, time_slice

v1 = tf.compat.v1

ROUNDS = 50
SLICE_SECS = 0.1
# The number of weights of the shortest step.
SMALLEST = 10
LONGER_STEP_SECS = 20e-6
BUSY_NS = (50_000, 5_000, 500)
BUSY_STEPS = 5_000


class Training:
    """A training session with six hooks.

    Args:
      size: number of weights.
      loops: True for `run_loop`, False for `run`.
    """

    def __init__(self, size: int, loops: bool) -> None:
        self._graph = tf.Graph()
        self._loops = loops
        with self._graph.as_default():
            step = v1.train.get_or_create_global_step()
            weights = v1.get_variable("weights", [size], use_resource=True)
            loss = tf.reduce_sum(weights * weights)
            v1.summary.scalar("loss", loss)
            self._op = v1.train.GradientDescentOptimizer(0.01).minimize(loss, global_step=step)
            self._session = train.MonitoredTrainingSession(
                checkpoint_dir=tempfile.mkdtemp(),
                save_checkpoint_steps=NEVER,
                save_summaries_steps=NEVER,
                log_step_count_steps=NEVER,
                hooks=[
                    train.StopAtStepHook(last_step=NEVER),
                    train.LoggingTensorHook({"loss": loss}, every_n_iter=NEVER),
                    train.FinalOpsHook(loss),
                ],
            )

    def steps(self, n: int) -> None:
        session, op = self._session, self._op
        if self._loops:
            session.run_loop(op, steps=n)
        else:
            for _ in range(n):
                session.run(op)

    def close(self) -> None:
        with self._graph.as_default():
            self._session.close()


class RecordedTraining:
    """A training session, recorded while it runs its slice.

    Args:
      training: the session, which the caller closes.
    """

    def __init__(self, training: Training) -> None:
        self._training = training
        self._profiler = fastsup.HookProfiler()

    def steps(self, n: int) -> None:
        with self._profiler:
            self._training.steps(n)

    def close(self) -> None:
        pass


def _same(contender: Contender) -> Contender:
    return contender


def size_of_step(seconds: float) -> int:
    """Returns the number of weights for a step of about that length on this machine.

    Args:
      seconds: length of the step.
    """
    size = 40_000
    for _ in range(3):  # The length isn't proportional to the size.
        training = Training(size, loops=False)
        steps = steps_per_slice(training, SLICE_SECS)
        step_secs = median(time_slice(training, steps) / steps for _ in range(5))
        training.close()
        size = max(SMALLEST, round(size * seconds / step_secs))
    return size


def cost(rounds: int = ROUNDS, slice_secs: float = SLICE_SECS) -> dict[str, list[float]]:
    """Measures and prints the cost of recording.

    Args:
      rounds: number of pairs of slices.
      slice_secs: length of a slice in seconds.

    Returns:
      For each case the ratios of all pairs: the time of a recorded step to that of one that isn't.
    """
    ratios = {}
    sizes = {"3 µs step": SMALLEST, "20 µs step": size_of_step(LONGER_STEP_SECS)}
    for name, size in sizes.items():
        for loops in (False, True):
            training = Training(size, loops)
            recorded = RecordedTraining(training)
            samples = alternate({"off": partial(_same, training), "on": partial(_same, recorded)}, rounds, slice_secs)
            case = f"{name}, six hooks, {'run_loop' if loops else 'run'}"
            ratios[case] = [on / off for off, on in zip(samples["off"], samples["on"], strict=True)]
            low, middle, high = quantiles(ratios[case])
            off, on = (1e6 * median(samples[which]) for which in ("off", "on"))
            print(
                f"{case:32} {off:7.3f} µs, recorded {on:7.3f} µs; "
                f"ratio of pairs: median {middle:.3f}, quartiles {low:.3f} and {high:.3f}"
            )
    return ratios


class Busy(train.SessionRunHook):  # type: ignore[misc]
    """Waits in `after_run`, by the profiler's clock."""

    def __init__(self, ns: int) -> None:
        self.ns = ns

    def after_run(self, run_context: Any, run_values: Any) -> None:
        now = time.perf_counter_ns
        end = now() + self.ns
        while now() < end:
            pass


def accuracy(steps: int = BUSY_STEPS) -> dict[int, float]:
    """Measures and prints the accuracy, with hooks whose cost is known.

    Args:
      steps: number of steps.

    Returns:
      The reported cost as a part of the true one, by the nanoseconds that the hook waits.
    """
    profiler = fastsup.HookProfiler(skip_steps=100)
    hooks = [Busy(ns) for ns in BUSY_NS]
    with tf.Graph().as_default():
        op = v1.assign_add(v1.train.get_or_create_global_step(), 1).op
        with train.SingularMonitoredSession(hooks=hooks, profiler=profiler) as session:
            for _ in range(100 + steps):
                session.run(op)
    rows = [row for name in ("Busy", "Busy #2", "Busy #3") for row in profiler.report().rows if row.owner == name]
    found = {}
    for hook, row in zip(hooks, [row for row in rows if row.phase == "after_run"], strict=True):
        alone = []
        for _ in range(steps):
            started = time.perf_counter_ns()
            hook.after_run(None, None)
            alone.append(time.perf_counter_ns() - started)
        truth, reported = median(alone), row.times.p50_ns or 0.0
        found[hook.ns] = reported / truth
        comparison = f"{reported:8.0f} ns: {found[hook.ns] - 1:+.1%}"
        print(f"a hook of {truth:8.0f} ns, timed on its own, is reported as {comparison}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profiler", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="pairs of slices for each case (%(default)s)")
    options = parser.parse_args()
    cost(options.rounds)
    accuracy()


if __name__ == "__main__":
    main()
