"""What a step changes without having read its input: it may be done or not done in the step that finds the input's end.

A step that reads a dataset beyond its end fails with OutOfRangeError, which is how most evaluations end. Of the
operations that don't wait for the input, TensorFlow's ordinary executor nearly always runs all before it fails. The
single-threaded one runs those that happen to be sorted before the input, in an order that changes from graph to graph:
of a metric's sum and its number of values, it may update one alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensorflow.python.framework import ops

from fastsup.runtime.graph.operations import FUNCTION_CALLS, nodes_of_functions, sources_of
from fastsup.runtime.graph.variable_access import handle_source, writes_variable

READS_INPUT = frozenset({"IteratorGetNext", "IteratorGetNextSync", "MultiDeviceIteratorGetNextFromShard"})


def changes_beside_input(step: Sequence[ops.Operation]) -> bool:
    """Whether a step changes a variable before it has read its dataset, or beside reading it.

    The variable that counts evaluations doesn't count: nobody reads it after the end of the input.

    Args:
      step: the operations of a graph's steps, in the order of their creation.
    """
    after_input: set[ops.Operation] = set()
    beside_input = []
    for op in step:
        if _reads_input(op) or any(source in after_input for source in sources_of(op)):
            after_input.add(op)
        elif writes_variable(op):
            beside_input.append(op)
    if not after_input or not beside_input:
        return False
    counters = {variable.op for variable in step[0].graph.get_collection(ops.GraphKeys.EVAL_STEP)}
    return any(handle_source(op.inputs[0]) not in counters for op in beside_input)


def _reads_input(op: ops.Operation) -> bool:
    if op.type in READS_INPUT:
        return True
    return op.type in FUNCTION_CALLS and any(node.op in READS_INPUT for node in nodes_of_functions(op))
