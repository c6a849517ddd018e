"""The structures of batches without TensorFlow: as `tf.nest` has them."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from typing import Any

import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from fastsup.steps import plain_nest

Pair = namedtuple("Pair", ["left", "right"])

structures = st.recursive(
    st.integers() | st.text(max_size=2) | st.none(),
    lambda children: (
        st.lists(children, max_size=3)
        | st.lists(children, max_size=3).map(tuple)
        | st.tuples(children, children).map(lambda pair: Pair(*pair))
        | st.dictionaries(st.text(max_size=2), children, max_size=3)
        | st.dictionaries(st.text(max_size=2), children, max_size=3).map(OrderedDict)
    ),
    max_leaves=8,
)


@given(structures)
def test_as_tensorflows(structure: Any) -> None:
    assert plain_nest.is_nested(structure) == tf.nest.is_nested(structure)
    flat = tf.nest.flatten(structure)
    assert plain_nest.flatten(structure) == flat
    for ours, theirs in (
        (plain_nest.map_structure(repr, structure), tf.nest.map_structure(repr, structure)),
        (
            plain_nest.pack_sequence_as(structure, range(len(flat))),
            tf.nest.pack_sequence_as(structure, list(range(len(flat)))),
        ),
    ):
        # With the types, and the order of the keys.
        assert repr(ours) == repr(theirs)
