"""The texts of TensorFlow: the errors of functions, with the lines of the program, and the warning about retracing."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.eager.polymorphic_function import polymorphic_function

import fastsup

pytestmark = pytest.mark.timeout(120)

IMPLEMENTATIONS = {"tensorflow": tf.function, "fastsup": functools.partial(fastsup.function, fallback="raise")}


@pytest.fixture(params=IMPLEMENTATIONS)
def decorate(request: pytest.FixtureRequest) -> Any:
    return IMPLEMENTATIONS[request.param]


# Errors.


def row(index: Any) -> Any:
    return tf.gather([1.0, 2.0], index, name="row")


def make_index(decorate: Any) -> Callable[[], Any]:
    @decorate
    def call(index: Any) -> Any:
        return row(index) * 2.0

    return lambda: call(tf.constant(5))


def make_inner_function(decorate: Any) -> Callable[[], Any]:
    @decorate
    def inner(x: Any) -> Any:
        return tf.debugging.check_numerics(x, "here", name="checked")

    @decorate
    def middle(x: Any) -> Any:
        return inner(x) * 2.0

    @decorate
    def outer(x: Any) -> Any:
        return middle(x) + 1.0

    return lambda: outer(tf.constant(float("nan")))


def make_conditional(decorate: Any) -> Callable[[], Any]:
    @decorate
    def call(index: Any) -> Any:
        return row(index) if index > 0 else tf.constant(0.0)

    return lambda: call(tf.constant(5))


def make_end_of_the_data(decorate: Any) -> Callable[[], Any]:
    numbers = iter(tf.data.Dataset.range(0))

    @decorate
    def call() -> Any:
        return next(numbers) + 1

    return lambda: call()


def make_assertion(decorate: Any) -> Callable[[], Any]:
    @decorate
    def call(index: Any) -> Any:
        tf.debugging.assert_less(index, 3)
        return index

    return lambda: call(tf.constant(5))


def make_python(decorate: Any) -> Callable[[], Any]:
    @decorate
    def call(index: Any) -> Any:
        return tf.numpy_function(lambda value: 1 // int(value), [index], tf.int64)

    return lambda: call(tf.constant(0))


def make_concrete(decorate: Any) -> Callable[[], Any]:
    def call(index: Any) -> Any:
        return row(index) * 2.0

    concrete = decorate(call).get_concrete_function(tf.TensorSpec([], tf.int32))
    called = concrete if decorate is tf.function else decorate(concrete)
    return lambda: called(tf.constant(5))


def make_method(decorate: Any) -> Callable[[], Any]:
    class Model(tf.Module):
        @decorate
        def call(self, index: Any) -> Any:
            return row(index) * 2.0

    model = Model()
    return lambda: model.call(tf.constant(5))


def make_lambda(decorate: Any) -> Callable[[], Any]:
    """TensorFlow doesn't recognise the name of such a function, and says less."""
    call = decorate(lambda index: row(index) * 2.0)
    return lambda: call(tf.constant(5))


def make_under_a_tape(decorate: Any) -> Callable[[], Any]:
    inner = make_index(decorate)

    def call() -> Any:
        with tf.GradientTape():
            return inner()

    return call


def make_in_another_function(decorate: Any) -> Callable[[], Any]:
    inner = make_index(decorate)

    @tf.function
    def outer() -> Any:
        return inner()

    return lambda: outer()


def errors_of(make: Callable[[Any], Callable[[], Any]], decorate: Any) -> list[tuple[type, str]]:
    """The types and the texts of the errors of three calls, without the numbers in names of functions."""
    call = make(decorate)
    found = []
    for _ in range(3):
        with pytest.raises(tf.errors.OpError) as raised:
            call()
        text = re.sub(r"_\d+\b", "_N", raised.value.message)
        found.append((type(raised.value), re.sub(r"__autograph_generated_file\w+", "FILE", text)))
    return found


MAKES = [make for name, make in sorted(globals().items()) if name.startswith("make_")]


@pytest.mark.one_device("an accelerator's kernels make zeros of a bad index")
@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("executor", ["auto", "inline", "thread_pool"])
def test_an_error_is_the_one_of_tensorflow(make: Any, executor: str) -> None:
    ours = functools.partial(fastsup.function, fallback="raise", executor=executor)
    seen, expected = errors_of(make, ours), errors_of(make, tf.function)
    assert seen == expected
    if make is not make_lambda:
        assert "Graph execution error:\n\nDetected at node " in expected[0][1]
        assert "test_function_errors.py" in expected[0][1]
    assert f"{Path(fastsup.__file__).parent}/" not in seen[0][1]


def test_an_error_without_an_operation() -> None:
    """The single-threaded executor's error of an operation that can't be found has TensorFlow's words too."""

    def body(state: Any) -> Any:
        return tf.py_function(lambda: 1 / 0, [], tf.float32) + state

    with pytest.raises(tf.errors.OpError) as raised:
        fastsup.function(body, executor="single_threaded", fallback="raise")(tf.constant(1.0))
    assert raised.value.message.startswith("Graph execution error:\n\n")
    assert re.search(r" \[Op:__inference_body_\d+\]$", raised.value.message)


@pytest.mark.parametrize("wrong", [3, "text", (), object()])
def test_what_can_be_no_function(wrong: Any) -> None:
    with pytest.raises(TypeError) as expected:
        tf.function(wrong)
    with pytest.raises(TypeError) as raised:
        fastsup.function(wrong)
    assert str(raised.value) == str(expected.value)


# The warning about retracing.


def warnings_of(tf_log: Any) -> list[str]:
    return [re.sub(r" at 0x\w+", "", line) for line in tf_log.messages if "triggered tf.function retracing" in line]


def shapes(function: Any, count: int = 6, calls: int = 1) -> None:
    for size in range(count):
        for _ in range(calls):
            function(tf.ones([size]))


def always_another_shape(decorate: Any) -> None:
    shapes(decorate(lambda x: x + 1.0))


def another_shape_after_two_calls(decorate: Any) -> None:
    shapes(decorate(lambda x: x + 1.0), calls=2)


def another_shape_after_three_calls(decorate: Any) -> None:
    shapes(decorate(lambda x: x + 1.0), calls=3)


def another_shape_after_twenty_calls(decorate: Any) -> None:
    shapes(decorate(lambda x: x + 1.0), calls=20)


def many_calls_before_the_shapes(decorate: Any) -> None:
    function = decorate(lambda x: x + 1.0)
    for _ in range(100):
        function(tf.ones([50]))
    shapes(function)


def a_function_made_again(decorate: Any) -> None:
    for _ in range(7):
        decorate(lambda x: x + 1.0)(tf.ones([2]))


def a_function_made_again_and_called_often(decorate: Any) -> None:
    for _ in range(7):
        function = decorate(lambda x: x + 1.0)
        for _ in range(12):
            function(tf.ones([2]))


def methods(decorate: Any) -> None:
    class Model:
        @decorate
        def call(self, x: Any) -> Any:
            return x + 1.0

    for _ in range(6):
        Model().call(tf.ones([2]))


def warned_of_twice(decorate: Any) -> None:
    shapes(decorate(lambda x: x + 1.0), 20)


def asked_for_traces(decorate: Any) -> None:
    """TensorFlow doesn't count these."""
    function = decorate(lambda x: x + 1.0)
    for size in range(10):
        function.get_concrete_function(tf.TensorSpec([size]))
    function(tf.ones([3]))


def under_tapes(decorate: Any) -> None:
    """Calls that TensorFlow runs are counted together with the others."""
    function = decorate(lambda x: x + 1.0)
    for size in range(6):
        with tf.GradientTape():
            function(tf.ones([size]))
        for _ in range(size):
            function(tf.ones([size]))


def a_function_that_fails(decorate: Any) -> None:
    function = decorate(lambda x: tf.debugging.check_numerics(x, "here"))
    for size in range(6):
        with pytest.raises(tf.errors.InvalidArgumentError):
            function(tf.fill([size + 1], float("nan")))


def a_function_that_makes_variables(decorate: Any) -> None:
    def make() -> Any:
        made: list[Any] = []

        def call(x: Any) -> Any:
            if not made:
                made.append(tf.Variable(1.0))
            return x + made[0]

        return decorate(call)

    for _ in range(6):
        make()(tf.ones([2]))


PROGRAMS = [
    always_another_shape,
    another_shape_after_two_calls,
    another_shape_after_three_calls,
    another_shape_after_twenty_calls,
    many_calls_before_the_shapes,
    a_function_made_again,
    a_function_made_again_and_called_often,
    methods,
    warned_of_twice,
    asked_for_traces,
    under_tapes,
    a_function_that_fails,
    a_function_that_makes_variables,
]
WARNED = {
    always_another_shape: "5 out of the last 5 calls",
    another_shape_after_two_calls: "5 out of the last 9 calls",
    many_calls_before_the_shapes: "5 out of the last 104 calls",
    a_function_made_again: "5 out of the last 5 calls",
    methods: "5 out of the last 5 calls",
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_warning_about_retracing(program: Any, tf_log: Any) -> None:
    detectors = polymorphic_function._frequent_tracing_detector_manager._detectors
    detectors.clear()
    program(tf.function)
    expected = warnings_of(tf_log)
    tf_log.clear()
    # TensorFlow counts by the code of the function, which both have.
    detectors.clear()
    program(functools.partial(fastsup.function, fallback="raise"))
    assert warnings_of(tf_log) == expected
    if program in WARNED:
        assert expected[0].startswith(WARNED[program])
