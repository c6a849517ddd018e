"""The start of a program whose steps XLA compiles: TensorFlow keeps what it has compiled for the next run."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path

import pytest
from processes import Processes

pytestmark = [pytest.mark.timeout(180), pytest.mark.one_world]

PROGRAM = textwrap.dedent(
    """
    import fastsup
    import tensorflow as tf
    from fastsup.loop import StepLoop

    weights = tf.Variable(tf.ones([4, 4]))


    @fastsup.function(jit_compile=True)
    def step():
        weights.assign(weights * 0.5 + 0.25)
        return tf.reduce_sum(weights)


    loop = StepLoop(fastsup.bind(step), max_steps=40, fuse="always")
    print("sum:", float(loop.run()), loop.fused)
    """
)


@pytest.mark.slow
def test_compiled_loops_are_kept_for_the_next_run(processes: Processes, tmp_path: Path) -> None:
    flags = f"--tf_xla_persistent_cache_directory={tmp_path}"
    said, kept = [], []
    for _ in range(2):
        ended = processes.python("-c", PROGRAM, env={**os.environ, "TF_XLA_FLAGS": flags}, fresh=True)
        assert ended.returncode == 0, ended.stderr
        said.append(ended.stdout)
        kept.append({path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()})
    assert said == ["sum: 8.0 True\n"] * 2
    assert kept[0]
    assert kept[1] == kept[0]


ARRAYS = textwrap.dedent(
    """
    import numpy as np
    import fastsup
    import tensorflow as tf
    from fastsup.loop import StepLoop

    batches = fastsup.ArrayBatches(np.ones([480, 3], np.float32), 8, epochs=3)
    weights = tf.Variable(tf.zeros([3]))


    @fastsup.function(jit_compile=True)
    def one_step(x):
        weights.assign_add(tf.reduce_mean(x, axis=0))
        return tf.reduce_sum(weights)


    loop = StepLoop(fastsup.bind_batches(one_step, batches), hooks=[], max_steps=180, fuse="always")
    print("sum:", float(loop.run()), loop.fused)
    """
)


@pytest.mark.slow
def test_a_loop_is_compiled_once_for_all_batches(processes: Processes, tmp_path: Path) -> None:
    """Calls begin at other batches of the arrays, and make other numbers of steps."""
    flags = f"--xla_dump_to={tmp_path} --xla_dump_hlo_as_text"
    ended = processes.python("-c", ARRAYS, env={**os.environ, "XLA_FLAGS": flags}, fresh=True)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "sum: 540.0 True\n"
    compiled = [path.name for path in tmp_path.glob("*.before_optimizations.txt")]
    # One without the results of all steps, and nothing else.
    assert len(compiled) == 1, compiled
