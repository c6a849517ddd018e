"""What a step that fails leaves undone.

When an operation fails, TensorFlow's ordinary executor still runs all that doesn't depend on it: a counter, the number
of values of a metric. The single-threaded executor stops at once. What it has run until then are the operations that
happen to be sorted before the one that fails, in an order that changes from graph to graph. The state after such a
step is that of the ordinary executor only if each operation with an effect runs before, or depends on, what fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from tensorflow.python.framework import ops

from fastsup.runtime.graph.operations import FUNCTION_CALLS, calls_type, sources_of
from fastsup.runtime.graph.variable_access import handle_source, writes_variable

READS_INPUT = frozenset({"IteratorGetNext", "IteratorGetNextSync", "MultiDeviceIteratorGetNextFromShard"})

Test = Callable[[ops.Operation], bool]


def changes_beside_input(step: Sequence[ops.Operation]) -> bool:
    """Whether a step changes a variable that it may leave unchanged, or not, in the run that finds the input's end.

    A step that reads a dataset beyond its end fails with OutOfRangeError, which is how most evaluations end. The
    variable that counts evaluations doesn't count: it isn't read after the end of the input.

    Args:
      step: the operations of a graph's steps.
    """
    independent = {effect for effect, _, _ in unordered(step, _reads_input, writes_variable)}
    if not independent:
        return False
    counters = {variable.op for variable in step[0].graph.get_collection(ops.GraphKeys.EVAL_STEP)}
    return any(handle_source(op.inputs[0]) not in counters for op in independent)


def unordered(
    operations: Iterable[ops.Operation], may_fail: Test, may_have_effect: Test
) -> Iterator[tuple[ops.Operation, ops.Operation, bool]]:
    """The pairs of an operation with an effect and one that can fail of which neither depends on the other.

    An operation that calls a function makes a pair with itself if both can be in the function.

    Args:
      operations: operations, with all that they depend on.
      may_fail: whether an operation can fail. It is asked of each operation after those that it depends on.
      may_have_effect: whether an operation can have an effect.

    Yields:
      The one with the effect, the one that can fail, and whether the latter depends on all that can fail and that the
      former depends on.
    """
    failing: list[ops.Operation] = []
    effects: list[ops.Operation] = []
    # Bit masks: of `failing` and of `effects`, an operation itself and those that it depends on.
    upstream_failing: dict[ops.Operation, int] = {}
    upstream_effects: dict[ops.Operation, int] = {}
    for op in _in_order_of_dependence(operations):
        mask_of_failing = mask_of_effects = 0
        for source in sources_of(op):
            mask_of_failing |= upstream_failing.get(source, 0)
            mask_of_effects |= upstream_effects.get(source, 0)
        if may_fail(op):
            mask_of_failing |= 1 << len(failing)
            failing.append(op)
        if may_have_effect(op):
            mask_of_effects |= 1 << len(effects)
            effects.append(op)
            if op.type in FUNCTION_CALLS and failing and failing[-1] is op:
                yield op, op, False
        upstream_failing[op], upstream_effects[op] = mask_of_failing, mask_of_effects
    everything = (1 << len(failing)) - 1
    for number, effect in enumerate(effects):
        mask = upstream_failing[effect]
        rest = everything & ~mask
        while rest:
            lowest = rest & -rest
            rest ^= lowest
            other = failing[lowest.bit_length() - 1]
            if not upstream_effects[other] >> number & 1:
                yield effect, other, not mask & ~upstream_failing[other]


def _in_order_of_dependence(operations: Iterable[ops.Operation]) -> Iterator[ops.Operation]:
    """Each operation after those that it depends on. Creation isn't such an order: of control inputs added later."""
    done: set[ops.Operation] = set()
    begun: set[ops.Operation] = set()
    for end in operations:
        waiting = [end]
        while waiting:
            op = waiting[-1]
            if op in begun:
                waiting.pop()
                if op not in done:
                    done.add(op)
                    yield op
            else:
                begun.add(op)
                waiting.extend(source for source in sources_of(op) if source not in begun)


def _reads_input(op: ops.Operation) -> bool:
    return op.type in READS_INPUT or calls_type(op, lambda op_type: op_type in READS_INPUT)
