"""Steps of many kinds give the same, bit for bit, as with `tf.function`: results, variables, errors."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import fastsup

_spec = importlib.util.spec_from_file_location("eager_steps", Path(__file__).with_name("steps.py"))
assert _spec is not None
assert _spec.loader is not None
steps = importlib.util.module_from_spec(_spec)
sys.modules["eager_steps"] = steps
_spec.loader.exec_module(steps)

CALLS = 50
OTHERS = ("auto", "thread_pool", "single_threaded")
_expected: dict[str, list[Any]] = {}

pytestmark = pytest.mark.timeout(120)


def values(structure: Any) -> list[Any]:
    """A structure as a list of its shape and its tensors' types and bytes."""
    flat = tf.nest.flatten(structure, expand_composites=True)
    found: list[Any] = [str(tf.nest.map_structure(lambda _: 0, structure)), type(structure).__name__]
    for value in flat:
        if tf.is_tensor(value):
            value = value.numpy()
        if isinstance(value, np.ndarray | np.generic):
            array = np.asarray(value)
            found.append((str(array.dtype), array.shape, array.tolist() if array.dtype == object else array.tobytes()))
        else:
            found.append(value)
    return found


def run(name: str, decorate: Any) -> tuple[list[Any], Any]:
    """Calls a step, and touches its variables in eager code now and then."""
    keras.utils.set_random_seed(11)
    step = steps.STEPS[name]()
    function = decorate(step.function)
    found: list[Any] = []
    for number in range(CALLS):
        found.append(values(function(*step.arguments(number), **step.keywords(number))))
        if number % 10 == 5:
            for variable in step.variables():
                if isinstance(variable, tf.Variable) and variable.dtype.is_floating:
                    variable.assign(variable * 0.75)
    found.append([values(tf.convert_to_tensor(variable)) for variable in step.variables()])
    step.close()
    return found, function


def expected(name: str) -> list[Any]:
    if name not in _expected:
        _expected[name] = run(name, lambda f: f if hasattr(f, "get_concrete_function") else tf.function(f))[0]
    return _expected[name]


def cases() -> list[Any]:
    """Every step in the calling thread, and in one of the other executors in turn; FASTSUP_TEST_STEPS=all: in each.

    The default tests have one executor for each step.
    """
    chosen = []
    for number, name in enumerate(steps.STEPS):
        others = [other for other in OTHERS if other != "single_threaded" or name not in steps.NOT_SINGLE_THREADED]
        if os.environ.get("FASTSUP_TEST_STEPS") != "all":
            others = [others[number % len(others)]]
        executors = ["inline", *others]
        for executor in executors:
            marks = () if executor == executors[number % 2] else pytest.mark.slow
            chosen.append(pytest.param(name, executor, id=f"{name}-{executor}", marks=marks))
    return chosen


@pytest.mark.parametrize(("name", "executor"), cases())
def test_a_step_gives_the_same_bits(name: str, executor: str) -> None:
    found, function = run(name, lambda f: fastsup.function(f, executor=executor, fallback="raise"))
    assert function.lifted
    assert found == expected(name)


def test_the_table_is_large_enough() -> None:
    assert len(steps.STEPS) >= 60
