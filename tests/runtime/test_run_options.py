"""run(options=, run_metadata=): traces, statistics and partition graphs, before and after a step has been cached."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

tf1 = tf.compat.v1


def traced_nodes(metadata: Any) -> list[str]:
    return sorted({node.node_name for device in metadata.step_stats.dev_stats for node in device.node_stats})


def partition_nodes(metadata: Any) -> list[list[str]]:
    return [sorted(node.name for node in graph.node if node.op != "NoOp") for graph in metadata.partition_graphs]


def test_options(alike: Any) -> None:
    def program(new_session: Any, attempt: Any) -> None:
        x = tf1.placeholder(tf.float32, [2], name="x")
        v = tf1.get_variable("v", initializer=[1.0, 2.0], use_resource=True)
        add = v.assign_add([1.0, 1.0])
        y = tf.multiply(x, add, name="y")
        all_options = [
            None,
            tf1.RunOptions(),
            tf1.RunOptions(trace_level=tf1.RunOptions.FULL_TRACE),
            tf1.RunOptions(trace_level=tf1.RunOptions.SOFTWARE_TRACE),
            tf1.RunOptions(output_partition_graphs=True),
            tf1.RunOptions(timeout_in_ms=10_000),
            tf1.RunOptions(inter_op_thread_pool=-1),
            tf1.RunOptions(inter_op_thread_pool=7),
            tf1.RunOptions(report_tensor_allocations_upon_oom=True),
            "options",
            {"trace_level": 3},
        ]
        with new_session() as session:
            session.run(v.initializer)
            for _ in range(3):
                for options in all_options:
                    for metadata in (None, tf1.RunMetadata()):
                        attempt(session.run, {"y": y, "add": add.op}, {x: [1.0, 2.0]}, options, metadata)
                        if metadata is not None:
                            attempt(traced_nodes, metadata)
                            attempt(partition_nodes, metadata)
                attempt(session.run, [y, add], {x: [1.0, 2.0]})

    notes = alike(program)
    assert len({str(noted) for noted in notes}) > 30


def test_trace(impl: Any, graph: tf.Graph) -> None:
    """A step that has run many times on its own is traced when that is asked for, and its counter goes on."""
    v = tf1.get_variable("v", initializer=0, use_resource=True)
    add = v.assign_add(1)
    options = tf1.RunOptions(trace_level=tf1.RunOptions.FULL_TRACE)
    with impl.Session() as session:
        session.run(v.initializer)
        for i in range(1, 121):
            metadata = tf1.RunMetadata()
            if i % 40:
                assert session.run(add) == i
            else:
                assert session.run(add, options=options, run_metadata=metadata) == i
                assert any("AssignAdd" in name for name in traced_nodes(metadata))


def test_metadata_is_replaced(alike: Any) -> None:
    """Each run says what it did, not what an earlier one has done; a run that fails leaves it."""

    def program(new_session: Any, attempt: Any) -> None:
        a = tf.identity(tf1.placeholder_with_default(1.5, [], name="x"), name="a")
        b = tf.identity(tf1.placeholder_with_default(2.5, [], name="z"), name="b")
        options = tf1.RunOptions(trace_level=tf1.RunOptions.FULL_TRACE)
        metadata = tf1.RunMetadata()
        with new_session() as session:
            for fetches in (a, b, [a], [b], [a, b], "nothing:0"):
                attempt(session.run, fetches, None, options, metadata)
                attempt(traced_nodes, metadata)
            attempt(session.run, a, run_metadata=metadata)
            attempt(traced_nodes, metadata)
            attempt(session.run, a, run_metadata="metadata")

    assert alike(program).errors == [""] * 10 + ["ValueError", "", "", "", "AttributeError"]
