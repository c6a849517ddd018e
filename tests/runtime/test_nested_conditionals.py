"""Conditionals in conditionals: the single-threaded executor never gets a step that would wait without an end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from processes import Processes

import fastsup
from fastsup.runtime.graph.operations import upstream_operations
from fastsup.runtime.graph.placement import threads_held

v1 = tf.compat.v1


def nest(kinds: str, variable: Any) -> Any:
    """A value inside nested control flow: "c" a conditional, "s" a switch, "w" a loop, "f" a function, "n" a function
    that isn't inlined."""
    if not kinds:
        with tf.control_dependencies([variable.assign_add(1.0).op]):
            return variable.read_value()
    if kinds[0] == "c":
        return tf.cond(variable > -1.0, lambda: nest(kinds[1:], variable), variable.read_value)
    if kinds[0] == "s":
        return tf.switch_case(
            tf.cast(variable > -1.0, tf.int32), [variable.read_value, lambda: nest(kinds[1:], variable)]
        )
    if kinds[0] == "w":
        return tf.while_loop(
            lambda i, x: i < 1, lambda i, x: (i + 1, nest(kinds[1:], variable)), [0, variable.read_value()]
        )[1]
    attributes = {"_noinline": True} if kinds[0] == "n" else None
    return tf.function(lambda: nest(kinds[1:], variable), experimental_attributes=attributes)()


@pytest.fixture
def v(graph: Any) -> Any:
    return v1.get_variable("v", initializer=3.0, use_resource=True)


@pytest.mark.parametrize(
    ("kinds", "threads"),
    [
        ("", 0), ("w", 0), ("f", 0), ("wf", 0), ("c", 1), ("s", 1), ("wc", 1), ("cw", 1), ("fc", 1), ("cc", 2),
        ("cf", 2), ("cwc", 2), ("cfccc", 2), ("ccc", 3), ("scs", 3), ("ccf", 3), ("fccc", 3), ("cwcwcw", 3),
        ("nccc", 0),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("control_flow_v2")
def test_threads_held(v: Any, kinds: str, threads: int) -> None:
    held = threads_held(upstream_operations([nest(kinds, v)]))
    assert max(held.values(), default=0) == threads


@pytest.fixture
def control_flow_v2() -> Any:
    """Conditionals and loops as functions, as TensorFlow 2 has them."""
    was_enabled = v1.control_flow_v2_enabled()
    v1.enable_control_flow_v2()
    yield
    if not was_enabled:
        v1.disable_control_flow_v2()


@pytest.mark.parametrize(("depth", "mode"), [(1, "single_threaded"), (2, "auto"), (4, "auto")])
@pytest.mark.usefixtures("control_flow_v2")
def test_auto(v: Any, graph: Any, depth: int, mode: str) -> None:
    """A step that holds several threads might wait for the step of another thread."""
    value = nest("f" + depth * "c", v)
    init = v1.global_variables_initializer()
    graph.finalize()
    with fastsup.Session() as session:
        assert session.executor == mode
        session.run(init)
        assert [session.run(value) for _ in range(3)] == [4.0, 5.0, 6.0]


@pytest.mark.usefixtures("control_flow_v2")
def test_the_error(v: Any) -> None:
    value = nest("cccc", v)
    config = v1.ConfigProto(inter_op_parallelism_threads=3)
    with fastsup.Session(config=config, executor="single_threaded") as session:
        session.run(v1.global_variables_initializer())
        for _ in range(2):
            with pytest.raises(tf.errors.UnimplementedError, match=r"hold 4 threads .* the pool has 3\. Pass"):
                session.run(value)
        with pytest.raises(tf.errors.UnimplementedError, match="'cond'"):
            session.make_callable(value)
        assert session.run(v) == 3.0


# How many threads there are is settled when the first session of a process is made.
PROGRAM = """
import faulthandler, sys
import tensorflow as tf, fastsup
faulthandler.dump_traceback_later(90, exit=True)
from test_nested_conditionals import nest, v1
threads = int(sys.argv[1])
config = v1.ConfigProto(inter_op_parallelism_threads=threads)
for kinds in sys.argv[2:]:
    with tf.Graph().as_default():
        v = v1.get_variable("v", initializer=3.0, use_resource=True)
        value = nest(kinds, v)
        with fastsup.Session(config=config, executor="single_threaded") as session:
            session.run(v1.global_variables_initializer())
            try:
                session.run(value)
                print(kinds, "ran")
            except tf.errors.UnimplementedError:
                print(kinds, "refused")
"""


@pytest.mark.one_world
@pytest.mark.parametrize(
    ("threads", "runs", "refused"),
    [
        (1, "c w wf wc cw nccc", "cc cf cwc"),
        (2, "cc cwc cf cfccc ncccn", "ccc ccf cwcwc"),
        (8, "cccccccc", "ccccccccc"),
    ],
)
def test_what_is_not_refused_ends(threads: int, runs: str, refused: str, processes: Processes) -> None:
    here = Path(__file__).parent
    path = f"import sys; sys.path[:0] = {[str(here), str(here.parent / 'support')]}\n"
    done = processes.python("-c", path + PROGRAM, str(threads), *runs.split(), *refused.split())
    assert done.returncode == 0, done.stderr[-3000:]
    expected = [f"{kinds} ran" for kinds in runs.split()] + [f"{kinds} refused" for kinds in refused.split()]
    assert done.stdout.splitlines() == expected
