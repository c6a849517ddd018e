"""Random states: what is restored is what was saved, whatever the program has in its place."""

from __future__ import annotations

import collections
import copy
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from fastsup.loop import Checkpoints, StepLoop

KEYS = st.one_of(st.text(max_size=4), st.integers(), st.booleans(), st.tuples(st.integers(), st.text(max_size=2)))
PLAIN = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=6), st.binary(max_size=6),
    st.complex_numbers(allow_nan=False), st.frozensets(st.integers(), max_size=3), st.sets(st.text(max_size=3)),
)  # fmt: skip
ARRAYS = arrays_of.arrays(
    st.one_of(arrays_of.scalar_dtypes(), arrays_of.unicode_string_dtypes(max_len=3)),
    arrays_of.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
)


def containers(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Containers of parts."""
    lists, names = st.lists(parts, max_size=3), st.from_regex(r"[a-z]{1,4}", fullmatch=True)
    return st.one_of(
        lists,
        lists.map(tuple),
        lists.map(collections.deque),
        st.dictionaries(KEYS, parts, max_size=3),
        st.dictionaries(KEYS, parts, max_size=3).map(collections.OrderedDict),
        st.dictionaries(names, parts, max_size=3).map(lambda values: types.SimpleNamespace(**values)),
    )


STATES = st.recursive(st.one_of(PLAIN, ARRAYS), containers, max_leaves=12)


def alike(left: Any, right: Any) -> bool:
    """Whether two values have the same types, and the same values with NaN equal to itself."""
    if type(left) is not type(right):
        return False
    if isinstance(left, np.ndarray | np.generic):
        return bool(left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes())
    if isinstance(left, types.SimpleNamespace):
        return alike(vars(left), vars(right))
    if isinstance(left, dict):
        return alike(list(left), list(right)) and alike(list(left.values()), list(right.values()))
    if isinstance(left, list | tuple | collections.deque):
        return len(left) == len(right) and all(map(alike, left, right))
    return bool(left == right) or (left != left and right != right)


def changed(state: Any) -> Any:
    """A copy with the same structure, names, shapes and types, and other values."""
    state = copy.deepcopy(state)
    waiting = [state]
    while waiting:
        part = waiting.pop()
        if isinstance(part, np.ndarray):
            part[...] = np.zeros((), part.dtype)
        elif isinstance(part, types.SimpleNamespace):
            waiting += vars(part).values()
        elif isinstance(part, dict):
            waiting += part.values()
        elif isinstance(part, list | tuple | collections.deque):
            waiting += part
    return state


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(state=st.dictionaries(KEYS, STATES, max_size=4))
def test_what_is_restored_is_what_was_saved(
    state: dict[Any, Any], tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory: Path = tmp_path_factory.mktemp("model")
    monkeypatch.setattr("os.fsync", lambda descriptor: None)  # Of hundreds of saves.
    expected = copy.deepcopy(state)
    got: list[Any] = []
    saver = Checkpoints(directory, {"tree": state, "pair": (lambda: state, got.append)}, every_steps=1)
    StepLoop(int, [saver], max_steps=1).run()
    assert alike(state, expected)
    other = changed(state)
    Checkpoints(directory, {"tree": other, "pair": (lambda: other, got.append)}).restore()
    assert alike(other, expected)
    assert alike(got, [expected])
