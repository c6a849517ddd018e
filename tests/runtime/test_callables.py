"""make_callable and partial_run: steps prepared ahead, as TensorFlow's Session prepares them."""

from __future__ import annotations

import collections
import types
from typing import Any

import attrs
import numpy as np
import pytest
import tensorflow as tf

tf1 = tf.compat.v1

Pair = collections.namedtuple("Pair", "left right")


@attrs.define
class Both:
    left: Any
    right: Any


class MyList(list):
    pass


class MyDict(dict):
    pass


@pytest.mark.slow
@pytest.mark.parametrize("accept_options", [False, True])
@pytest.mark.parametrize("feeds", [None, [], ()])
def test_fetches(alike: Any, feeds: Any, accept_options: bool) -> None:
    def program(new_session: Any, attempt: Any) -> None:
        v = tf1.get_variable("v", initializer=0, use_resource=True)
        reference = tf1.get_variable("r", initializer=[1.5, 2.5], use_resource=False)
        add = v.assign_add(1)
        sparse = tf.SparseTensor([[0]], [1.5], [3])
        handle = tf1.get_session_handle(reference.value())
        forms = [
            v, add, add.op, reference, "r:0", "r", b"r:0", [v], (reference,), {"v": reference, "list": [add.op, add]},
            Pair(v, reference), Both(v, [reference]), [Both(v, v)], sparse, [sparse, sparse.values], handle, [handle],
            collections.OrderedDict(b=v, a=reference), [collections.defaultdict(list, v=v)], collections.UserDict(v=v),
            MyList([v, reference]), [MyList([v])], MyDict(v=v), {"n": MyDict(v=v)}, types.MappingProxyType({"v": v}),
            [], {}, [[], {}], [v, v, [v]], None, [None], "nothing:0", 37, {v.name},
        ]  # fmt: skip
        with new_session() as session:
            session.run(tf1.global_variables_initializer())
            for form in forms:
                function = attempt(session.make_callable, form, feeds, accept_options)
                if not isinstance(function, Exception):
                    for _ in range(3):
                        attempt(function)

    raised = alike(program).errors
    assert raised.count("") > 30
    assert any(raised)


def test_feeds(alike: Any) -> None:
    def program(new_session: Any, attempt: Any) -> None:
        x = tf1.placeholder(tf.float32, [None], name="x")
        z = tf1.placeholder_with_default([5.0], [1], name="z")
        sparse = tf1.sparse_placeholder(tf.float32, name="sparse")
        y = tf.reduce_sum(x) * z
        fetches = {"y": y, "x": [x]}
        with new_session() as session:
            for feed_list in ([x], (x, z), ["x:0", "z:0"], [z, "x:0"], [x, x], [x, "nothing:0"], [sparse, x]):
                function = attempt(session.make_callable, fetches, feed_list)
                for _ in range(2):
                    attempt(function, [1.0, 2.0])
                    attempt(function, [1.0, 2.0], [3.0])
                    attempt(function, ([[0]], [1.5], [3]), [3.0])
                    attempt(function, np.array([1, 2]), [3], "one too many")
                    attempt(function)
                    attempt(function, "text")
                    attempt(function, [[1.0]])
            for feed_list in (x, "x:0", {x: 1.0}, {x.name}, iter([x])):
                attempt(session.make_callable, y, feed_list)

    raised = alike(program).errors
    assert raised.count("") > 20
    assert raised[-5:] == ["TypeError"] * 5


def test_keyword_arguments(alike: Any) -> None:
    def program(new_session: Any, attempt: Any) -> None:
        x = tf1.placeholder_with_default(1.5, [], name="x")
        y = tf.multiply(x, 2.0, name="y")
        options = tf1.RunOptions(trace_level=tf1.RunOptions.FULL_TRACE)

        def call(function: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except TypeError:
                return "refused"  # In words that hold the function's private name.

        with new_session() as session:
            functions = [
                session.make_callable(y),
                session.make_callable([y]),
                session.make_callable(y.op),
                session.make_callable(y, accept_options=True),
                session.make_callable([y], accept_options=True),
                session.make_callable(y, [x]),
                session.make_callable(y, [x], accept_options=True),
            ]
            for function in functions:
                metadata = tf1.RunMetadata()
                attempt(call, function)
                attempt(call, function, options=options)
                attempt(call, function, options=options, run_metadata=metadata)
                attempt(lambda metadata=metadata: sorted(node_names(metadata)))
                attempt(call, function, run_metadata=None)
                attempt(call, function, 2.5)
                attempt(call, function, nonsense=1)

    assert set(alike(program).errors) == {"", "AttributeError"}


def node_names(metadata: Any) -> set[str]:
    return {node.node_name for device in metadata.step_stats.dev_stats for node in device.node_stats}


def test_fetches_changed_afterwards(alike: Any) -> None:
    """With feeds the list is read at each call, without them when the callable is made."""

    def program(new_session: Any, attempt: Any) -> None:
        a, b = tf.constant(1.5, name="a"), tf.constant(2.5, name="b")
        fetches = [a]
        with new_session() as session:
            functions = [session.make_callable(fetches), session.make_callable(fetches, [])]
            for change in (lambda: None, lambda: fetches.append(b), fetches.reverse, fetches.clear):
                change()
                for function in functions:
                    attempt(function)
            a.graph.prevent_fetching(a.op)
            fetches.append(a)
            for function in functions:
                attempt(function)

    assert alike(program).errors == [""] * 9 + ["InaccessibleTensorError"]


def test_errors(alike: Any) -> None:
    """A callable without feeds raises what the runtime says, without the place in the program that run() adds."""

    def program(new_session: Any, attempt: Any) -> None:
        v = tf1.get_variable("v", initializer=0, use_resource=True)
        quotient = tf1.div(10, v, name="quotient")
        x = tf1.placeholder(tf.int32, name="x")
        fed = tf1.div(10, x, name="fed")
        with new_session() as session:
            functions = [session.make_callable(f) for f in (quotient, [quotient], quotient.op, v, fed)]
            functions += [session.make_callable([quotient], accept_options=True), session.make_callable(fed, [x])]
            for _ in range(2):
                for function in functions:
                    attempt(function)
                session.run(v.initializer)
            attempt(functions[-1], 5)
            attempt(functions[-1], 0)

    assert alike(program).errors.count("") == 2


def test_graph_that_grows(alike: Any) -> None:
    def program(new_session: Any, attempt: Any) -> None:
        y = tf.constant(1.5)
        with new_session() as session:
            functions = []
            for i in range(5):
                y = y + float(i)
                functions.append(session.make_callable([y]))
                for function in functions:
                    attempt(function)

    assert alike(program).errors == [""] * 15


def test_callable_keeps_its_session(impl: Any, graph: tf.Graph) -> None:
    v = tf1.get_variable("v", initializer=1.5)
    session = impl.Session()
    session.run(v.initializer)
    functions = [session.make_callable(v), session.make_callable({"v": v}), session.make_callable([v], [])]
    del session
    assert [function() for function in functions] == [1.5, {"v": 1.5}, [1.5]]


def test_partial_run(alike: Any) -> None:
    def program(new_session: Any, attempt: Any) -> None:
        a, b, c = (tf1.placeholder(tf.float32, [], name=name) for name in "abc")
        first = tf.add(a, b, name="first")
        second = tf.multiply(first, c, name="second")
        with new_session() as session:
            for _ in range(2):
                attempt(session.run, [first, second], {a: 1, b: 2, c: 3})
                handle = session.partial_run_setup([first, second], [a, b, c])
                value = attempt(session.partial_run, handle, first, {a: 1, b: 2})
                attempt(session.run, first, {a: 5, b: 6})
                attempt(session.partial_run, handle, {"second": [second]}, {"c:0": value})
                attempt(session.partial_run, handle, second, {c: 1})
            handle = session.partial_run_setup([second], ["a:0", b, c])
            attempt(session.partial_run, handle, [], {a: 1.0, b: 2.0})
            attempt(session.partial_run, handle, [second, first], {c: 2.0})
            attempt(session.partial_run, handle, [second], {c: "text"})
            attempt(session.partial_run, handle, [second], {c: 2.0})
            attempt(session.partial_run_setup, [None], [a])
            attempt(session.partial_run_setup, [first], [37])
            attempt(session.partial_run, "no handle", first, {a: 1.0})

    raised = alike(program).errors
    assert raised[:5] == ["", "", "", "", "InvalidArgumentError"]
    assert raised[-3:] == ["TypeError", "AttributeError", "InvalidArgumentError"]
