"""The kinds of graph element that a plan may be made for: immutable, and always standing for the same tensors."""

from __future__ import annotations

from typing import Any

from tensorflow.python.client import session as tf_session
from tensorflow.python.framework import indexed_slices, ops, sparse_tensor, tensor
from tensorflow.python.ops import ref_variable, resource_variable_ops
from tensorflow.python.ops.ragged import ragged_tensor

from fastsup.runtime.fetches import (
    Fetch,
    FetchAttributes,
    FetchContracted,
    FetchDict,
    FetchList,
    FetchNamedTuple,
    FetchOne,
    FetchTuple,
)

ELEMENT_TYPES: frozenset[type] = frozenset(
    {
        ops.Operation,
        tensor.Tensor,
        getattr(ops, "SymbolicTensor", tensor.Tensor),
        ref_variable.RefVariable,
        resource_variable_ops.ResourceVariable,
        # What assign() and assign_add() return: read after the assignment when it is fetched.
        getattr(resource_variable_ops, "_UnreadVariable", resource_variable_ops.ResourceVariable),
        sparse_tensor.SparseTensor,
        indexed_slices.IndexedSlices,
        ragged_tensor.RaggedTensor,
    }
)


def structure_of(fetches: Any, graph: ops.Graph, position: dict[int, int], leaves: list[Any]) -> Fetch:
    """The structure of `fetches`, which `Session.run`'s own resolution has accepted.

    Args:
      fetches: graph elements, names, and nested lists, tuples, named tuples, dictionaries and attrs objects of them.
      graph: the graph they belong to.
      position: for the id of each tensor, its place among the values that the runtime returns.
      leaves: what is found at the leaves, and the keys of dictionaries, is appended here.
    """
    if isinstance(fetches, (list, tuple)):
        items = [structure_of(fetch, graph, position, leaves) for fetch in fetches]
        if type(fetches) is list:
            return FetchList(items)
        if type(fetches) is tuple:
            return FetchTuple(items)
        return FetchNamedTuple(type(fetches), items)
    if isinstance(fetches, dict):
        leaves.extend(fetches)
        return FetchDict(fetches, [structure_of(fetch, graph, position, leaves) for fetch in fetches.values()])
    attributes = getattr(type(fetches), "__attrs_attrs__", None)
    if attributes is not None:
        values = [getattr(fetches, attribute.name) for attribute in attributes]
        return FetchAttributes(type(fetches), [structure_of(value, graph, position, leaves) for value in values])
    leaves.append(fetches)
    for kind, expand, _, _ in tf_session._REGISTERED_EXPANSIONS:
        if isinstance(fetches, kind):
            parts, contract = expand(fetches)
            break
    elements = [graph.as_graph_element(part) for part in parts]
    if kind is object:
        element = elements[0]
        return Fetch() if isinstance(element, ops.Operation) else FetchOne(position[id(element)])
    return FetchContracted([position[id(element)] for element in elements], contract)
