"""The same program under TensorFlow's Session and under another, compared outcome by outcome.

A program is a function of `new_session`, which makes a session of the default graph, and `attempt`, which calls
something and notes what came of it: the value with its types, dtypes, shapes and structure, or the error with its text.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
import warnings
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, settings

# For tests in which many runs, of which hypothesis writes each, share one session: the same ones every time.
settings.register_profile(
    "sequences of runs",
    max_examples=12,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)

Attempt = Callable[..., Any]
Program = Callable[[Callable[..., Any], Attempt], None]


def type_name(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def comparable(text: str) -> str:
    """A text without what differs from one graph to the next: addresses, and numbers counted by the process."""
    text = re.sub(r"0x[0-9a-fA-F]+", "0x", text)
    text = re.sub(r"'_\d+_(\w+)'", r"'_N_\1'", text)
    return re.sub(r"(pyfunc|__inference_\w+?|_(?:true|false|cond|body|rewritten))_\d+", r"\1_N", text)


def describe_error(error: BaseException) -> tuple[Any, ...]:
    described: tuple[Any, ...] = ("raised", type_name(error), comparable(str(error)))
    if isinstance(error, tf.errors.OpError):
        op = None if error.op is None else error.op.name
        described += (error.error_code, op, comparable(str(error.node_def)), dict(error.experimental_payloads))
    return described


def describe(value: Any, seen: dict[int, int] | None = None) -> Any:
    """What a user can tell about a value, for == : types, contents, order, and which parts are the same object."""
    seen = {} if seen is None else seen
    if value is None or isinstance(value, (bool, int, str, bytes, type)):
        return type_name(value), value
    if isinstance(value, (float, complex, np.generic)):
        return type_name(value), repr(value)
    if id(value) in seen:
        return "the same object as part", seen[id(value)]
    seen[id(value)] = len(seen)
    if isinstance(value, np.ndarray):
        if value.dtype == object:
            contents: Any = [describe(item) for item in value.ravel().tolist()]
        else:
            contents = repr(value.tolist())
        flags = {name: value.flags[name] for name in ("WRITEABLE", "ALIGNED", "C_CONTIGUOUS")}
        return type_name(value), value.dtype.str, value.dtype.name, value.shape, flags, contents
    if isinstance(value, (list, tuple)):
        return type_name(value), [describe(item, seen) for item in value]
    if isinstance(value, Mapping):
        factory = value.default_factory if isinstance(value, defaultdict) else None
        return type_name(value), factory, [(describe(k, seen), describe(v, seen)) for k, v in value.items()]
    if isinstance(value, tf.compat.v1.ragged.RaggedTensorValue):
        return type_name(value), describe(value.values, seen), describe(value.row_splits, seen)
    if hasattr(type(value), "__attrs_attrs__"):
        fields = [attribute.name for attribute in type(value).__attrs_attrs__]
        return type_name(value), [(name, describe(getattr(value, name), seen)) for name in fields]
    if dataclasses.is_dataclass(value):
        return type_name(value), [describe(getattr(value, field.name), seen) for field in dataclasses.fields(value)]
    if type(value).__name__ == "TensorHandle":
        return type_name(value), value._dtype, describe(value.eval(), seen)
    if isinstance(value, tf.compat.v1.Session):
        return "a session"
    if callable(value):
        return "something to call"
    raise TypeError(f"describe() knows nothing of {type_name(value)}: {value!r}")


class Notes(list):
    """What came of each attempt of a program."""

    def attempt(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Calls the function and notes what it returned, raised and warned of. Returns the value, or the error."""
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                result = function(*args, **kwargs)
                described = None
            except Exception as error:
                described = describe_error(error)
                result = error.with_traceback(None)  # Its frames would keep sessions alive.
        described = described or describe(result)
        self.append((described, [(warning.category.__name__, str(warning.message)) for warning in warned]))
        return result

    @property
    def errors(self) -> list[str]:
        """Of each attempt: the name of the error's class, or "" where there was none."""
        return [noted[1].rpartition(".")[2] if noted[0] == "raised" else "" for noted, _ in self]

    @property
    def texts(self) -> list[str]:
        """Of each attempt: the error's text, or "" where there was none."""
        return [noted[2] if noted[0] == "raised" else "" for noted, _ in self]


class Elements:
    """Makes the graph elements that most forms are about."""

    def matrix(self) -> Any:
        return tf.constant([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], name="matrix")

    def scalar(self) -> Any:
        return tf.constant(7, name="scalar")

    def operation(self) -> Any:
        return tf.no_op(name="operation")

    def floats(self, name: str = "x", shape: Any = None) -> Any:
        return tf.compat.v1.placeholder(tf.float32, shape, name=name)


@pytest.fixture
def make() -> Elements:
    """Makes graph elements: `make.matrix()`, `make.scalar()`, `make.operation()`, `make.floats(name, shape)`."""
    return Elements()


class Form(NamedTuple):
    """A way to write the arguments of `run`: what builds its part of the graph, and the error that is expected.

    `build` takes the fixture `make` if it has an argument of that name.
    """

    build: Callable[..., Callable[[], Any]]
    raises: type[Exception] | None

    def check(self, alike: Callable[[Program], Notes], run: Callable[[Any, Any], Any]) -> None:
        """Runs four times in one session, twice with the same objects and twice with ones written again.

        So the first resolution is compared as well as every cached one.
        """

        def program(new_session: Callable[..., Any], attempt: Attempt) -> None:
            write = self.build(Elements()) if "make" in inspect.signature(self.build).parameters else self.build()
            initializer = tf.compat.v1.global_variables_initializer()
            with new_session() as session:
                session.run(initializer)
                written = write()
                for arguments in (written, written, write(), write()):
                    attempt(run, session, arguments)

        assert alike(program).errors == ["" if self.raises is None else self.raises.__name__] * 4


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "form(raises=None): builds a graph and returns a function that writes arguments")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The fixture `form` is each function of the module that is marked as one."""
    if "form" not in metafunc.fixturenames:
        return
    forms = {
        name: Form(function, mark.kwargs.get("raises"))
        for name, function in vars(metafunc.module).items()
        for mark in getattr(function, "pytestmark", [])
        if mark.name == "form"
    }
    metafunc.parametrize("form", forms.values(), ids=forms.keys())


@pytest.fixture
def described() -> Callable[[Any], Any]:
    """The function that says what a user can tell about a value."""
    return describe


@pytest.fixture(params=["tensorflow", "fastsup", "fastsup-inline"])
def subject(request: pytest.FixtureRequest, both: Any) -> Any:
    """A session class to compare with TensorFlow's: that class itself, which proves that a test repeats, and ours."""
    if request.param == "tensorflow":
        return both.tensorflow.Session
    if request.param == "fastsup":
        return both.fastsup.Session
    return functools.partial(both.fastsup.Session, executor="inline")


@pytest.fixture
def alike(subject: Any, both: Any) -> Callable[[Program], Notes]:
    """Runs a program under TensorFlow's Session and under the subject, and asserts that every outcome is the same.

    Both times in a fresh graph and from the same line, so that names and stack traces in error texts are equal.
    """

    def run(program: Program) -> Notes:
        notes = [Notes(), Notes()]
        for new_session, noted in zip((both.tensorflow.Session, subject), notes, strict=True):
            with tf.Graph().as_default():
                program(new_session, noted.attempt)
        expected, found = notes
        assert len(expected) > 0, "the program attempted nothing"
        for i, (outcome, other) in enumerate(zip(expected, found, strict=False)):
            assert other == outcome, f"outcome {i} differs"
        assert len(found) == len(expected)
        return expected

    return run


@pytest.fixture
def expansions() -> Any:
    """TensorFlow's list of the types that a program may fetch and feed; as it was before, after the test."""
    from tensorflow.python.client import session

    before = list(session._REGISTERED_EXPANSIONS)
    yield session._REGISTERED_EXPANSIONS
    session._REGISTERED_EXPANSIONS[:] = before
