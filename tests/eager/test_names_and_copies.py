"""What a `fastsup.function` is called, and its copies: as with the `tf.function` in it."""

from __future__ import annotations

import copy
import functools
import pickle
import re
from typing import Any

import pytest
import tensorflow as tf

import fastsup

pytestmark = pytest.mark.timeout(120)


def plus_one(x: Any) -> Any:
    return x + 1.0


def captures_what_is_computed_anew() -> Any:
    """A step that can't be lifted."""
    graph = tf.compat.v1.get_default_graph()
    return graph.capture_call_time_value(lambda: tf.constant(1.0), tf.TensorSpec([])) * 2.0


class Step:
    def __call__(self) -> Any:
        return captures_what_is_computed_anew()


@pytest.mark.parametrize(
    "make", [lambda: functools.partial(captures_what_is_computed_anew), Step], ids=["partial", "object"]
)
def test_what_can_be_called_and_has_no_name(make: Any, tf_log: Any) -> None:
    """TensorFlow calls it "function"."""
    function = fastsup.function(make())
    assert function().numpy() == 2.0
    assert tf_log.messages[0].startswith("function isn't lifted: ")
    assert repr(function).startswith("<fastsup.function function of ")
    assert "<fastsup.function function of " in repr(fastsup.bind(function))
    with pytest.raises(RuntimeError, match=r"^function isn't lifted"):
        fastsup.function(make(), fallback="raise")()


def test_the_name_of_a_concrete_function() -> None:
    concrete = tf.function(plus_one).get_concrete_function(tf.TensorSpec([]))
    assert re.fullmatch(r"__inference_plus_one_\d+", fastsup.function(concrete).__name__)


@pytest.mark.parametrize("decorate", [tf.function, fastsup.function])
@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, lambda function: pickle.loads(pickle.dumps(function))])
def test_a_copy(decorate: Any, how: Any) -> None:
    original = decorate(plus_one)
    other = how(original)
    assert (type(other), other(1.0).numpy()) == (type(original), 2.0)
    if how is not copy.copy:
        with pytest.raises(TypeError, match="cannot pickle 'FuncGraph'"):
            how(other)


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy])
def test_a_copy_has_the_settings(how: Any) -> None:
    with pytest.raises(RuntimeError, match="isn't lifted"):
        how(fastsup.function(captures_what_is_computed_anew, fallback="raise"))()
    function = fastsup.function(plus_one, executor="inline")
    other = how(function)
    assert (other(1.0).numpy(), other.executor) == (2.0, "inline")
    assert (other.original == function.original) == (how is copy.copy)
