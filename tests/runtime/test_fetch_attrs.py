"""Instances of classes made by attrs as fetches: the results of TensorFlow's Session, by plans that are found again."""

from __future__ import annotations

import collections.abc
import gc
from typing import Any, NamedTuple

import attr
import attrs
import pytest
import tensorflow as tf


@attrs.define
class Both:
    left: Any
    _right: Any = None


@attrs.define
class Three(Both):
    """Decorated too: an attribute more, behind those of its base."""

    third: Any = attrs.field(kw_only=False, default=None)


class Plain(Both):
    """Not decorated: its instances have a dictionary."""

    def total(self) -> Any:
        return self.left + self._right


@attrs.frozen
class Frozen:
    left: Any


@attrs.define(slots=False)
class InDictionary:
    left: Any
    right: Any


@attr.s
class OfOldStyle:
    __left = attr.ib()
    right = attr.ib(default=None)


@attrs.frozen
class Nothing:
    pass


@attrs.define
class Named:
    name: Any


@attrs.define
class Doubled:
    left: Any = attrs.field(converter=lambda value: value if tf.is_tensor(value) else [value, value])
    sum: Any = None

    def __attrs_post_init__(self) -> None:
        if not tf.is_tensor(self.sum):
            self.sum = self.sum + 1


class Reversed(InDictionary):
    """Its own `__init__`, with other names and another meaning of their order."""

    def __init__(self, one: Any, other: Any) -> None:
        super().__init__(other, one)


@attrs.define
class WithoutInit:
    left: Any
    right: Any = attrs.field(init=False)


@attrs.define
class ByName:
    left: Any = attrs.field(kw_only=True)


@attrs.define(slots=False)
class Checked:
    left: Any = attrs.field()

    @left.validator
    def _check(self, attribute: Any, value: Any) -> None:
        if not tf.is_tensor(value):
            raise ValueError("refused")


class Computed(InDictionary):
    """An attribute that is another tensor each time."""

    @property
    def left(self) -> Any:
        return self.right + 1.0

    @left.setter
    def left(self, value: Any) -> None:
        pass


class LookedUp(InDictionary):
    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        return value * 2.0 if name == "left" and tf.is_tensor(value) else value


@attrs.define(slots=False, eq=False)
class AsMapping(collections.abc.Mapping):
    entries: Any = attrs.Factory(dict)

    def __init__(self, entries: Any) -> None:
        self.entries = dict(entries)

    def __getitem__(self, key: Any) -> Any:
        return self.entries[key]

    def __iter__(self) -> Any:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)


class Pair(NamedTuple):
    first: Any
    second: Any


def with_value(left: Any, right: Any) -> WithoutInit:
    made = WithoutInit(left)
    made.right = right
    return made


def form(write: Any, *, raises: Any = None, planned: bool = True) -> Any:
    def build(make: Any) -> Any:
        a, b, op = make.matrix(), make.scalar(), make.operation()
        return lambda: write(a, b, op)

    build.planned = planned
    return pytest.mark.form(raises=raises)(build)


alone = form(lambda a, b, op: Both(a, b))
in_a_list = form(lambda a, b, op: [Both(a, right=[b]), Frozen({"b": b})])
nested = form(lambda a, b, op: {"x": Both(Both(b, Frozen(a)), Pair(Frozen(op), [Both(a, b)]))})
with_operations = form(lambda a, b, op: Both(op, [op, a]))
an_operation_alone = form(lambda a, b, op: Frozen(op))
names = form(lambda a, b, op: Both("matrix:0", "operation"))
an_attribute_called_name = form(lambda a, b, op: Named("matrix:0"))
duplicates = form(lambda a, b, op: Both(Both(a, a), [a, Both(b, a)]))
empty = form(lambda a, b, op: [Nothing(), Both([], {}), a])
a_decorated_subclass = form(lambda a, b, op: Three(a, b, op))
a_plain_subclass = form(lambda a, b, op: Plain(a, b))
in_a_dictionary = form(lambda a, b, op: InDictionary(a, b))
of_old_style = form(lambda a, b, op: OfOldStyle(a, b))
an_init_that_converts = form(lambda a, b, op: Doubled(b, b))
an_init_of_its_own = form(lambda a, b, op: Reversed(a, b))
a_default_none = form(lambda a, b, op: Both(a), raises=TypeError, planned=False)
an_init_that_refuses = form(lambda a, b, op: Checked(b), raises=ValueError)
not_in_init = form(lambda a, b, op: with_value(a, b), raises=TypeError, planned=False)
without_a_value = form(lambda a, b, op: WithoutInit(a), raises=AttributeError, planned=False)
by_name_alone = form(lambda a, b, op: ByName(left=a), raises=TypeError, planned=False)
a_property = form(lambda a, b, op: Computed(a, a), planned=False)
a_look_up_of_its_own = form(lambda a, b, op: LookedUp(a, a), planned=False)
a_mapping = form(lambda a, b, op: AsMapping({"a": a}), planned=False)


def test_form(form: Any, alike: Any) -> None:
    form.check(alike, lambda session, fetches: session.run(fetches))


def test_a_plan_is_found_again(form: Any, both: Any, make: Any, described: Any) -> None:
    """The same body in both sessions: four runs, of two objects with the same tensors."""

    def run(session: Any, fetches: Any) -> Any:
        try:
            return described(session.run(fetches))
        except Exception as error:
            return type(error), str(error)

    with tf.Graph().as_default():
        write = form.build(make)
        written = [write(), write()]
        with both.tensorflow.Session() as session:
            expected = [run(session, fetches) for fetches in written * 2]
        with both.fastsup.Session() as session:
            assert [run(session, fetches) for fetches in written * 2] == expected
            info = session.plan_cache_info()
    assert (info.misses, info.hits) == ((1, 3) if form.build.planned else (0, 0))


def test_two_instances_of_a_class(both: Any, graph: Any) -> None:
    """Each has its own tensors, and so its own plan; also where the two only nest otherwise."""
    a, b = tf.constant(1), tf.constant(2)
    written = [
        *(Both(a, b), Both(b, a), Both(a, a), Both([a], b), Both(a, [b]), Both((a,), b), Plain(a, b), Pair(a, b)),
        *([Frozen(a), b], [Frozen([a, b])], [Both(Frozen(a), b)], [Both(a, Frozen(b))], [a, b]),
    ]
    with both.tensorflow.Session() as session:
        expected = [session.run(fetches) for fetches in written]
    with both.fastsup.Session() as session:
        for _ in range(3):
            found = [session.run(fetches) for fetches in written]
            assert found == expected
            assert [type(value) for value in found] == [type(value) for value in expected]
        assert session.plan_cache_info().misses == len(written)


def test_an_instance_that_contains_itself(impl: Any, graph: Any) -> None:
    fetches = Both(tf.constant(1), {})
    fetches._right["parent"] = [fetches]
    with impl.Session() as session, pytest.raises(RecursionError):
        session.run(fetches)


def test_an_instance_that_is_changed(both: Any, graph: Any) -> None:
    a, b = tf.constant(1), tf.constant(2)
    for session_class in (both.tensorflow.Session, both.fastsup.Session):
        fetches = Both(a, [b])
        with session_class() as session:
            assert session.run(fetches) == Both(1, [2])
            fetches.left = b
            assert session.run(fetches) == Both(2, [2])
            fetches._right.append(a)
            assert session.run(fetches) == Both(2, [2, 1])


def test_what_the_key_names_is_kept_alive(both: Any, graph: Any) -> None:
    """Another sparse tensor may get the address of one that is gone."""
    a, b = tf.constant([1]), tf.constant([2])
    indices, shape = tf.constant([[0]], tf.int64), tf.constant([3], tf.int64)
    with both.fastsup.Session() as session:
        for i in range(40):
            values = (a, b)[i % 2]
            found = session.run(Frozen(tf.SparseTensor(indices, values, shape)))
            assert found.left.values.tolist() == [1 + i % 2]
            del found
            gc.collect()


def test_in_a_run_that_a_hook_adds_to(impl: Any, graph: Any) -> None:
    a, b = tf.constant(1), tf.constant(2)
    seen = []

    class Asking(tf.compat.v1.train.SessionRunHook):
        def before_run(self, run_context: Any) -> Any:
            return tf.compat.v1.train.SessionRunArgs(Both(b, {"step": step}))

        def after_run(self, run_context: Any, run_values: Any) -> None:
            seen.append(run_values.results)

    step = tf.compat.v1.train.get_or_create_global_step()
    with impl.train.MonitoredSession(hooks=[Asking()]) as session:
        assert [session.run(Frozen([a])) for _ in range(3)] == [Frozen([1])] * 3
    assert seen == [Both(2, {"step": 0})] * 3


@pytest.mark.parametrize("in_loop", [False, True])
def test_a_class_that_refuses_fails_the_run(impl: Any, graph: Any, in_loop: bool) -> None:
    """As with TensorFlow's session: `after_run` isn't called, not even that of a hook that is due after the run."""
    step = tf.compat.v1.assign_add(tf.compat.v1.train.get_or_create_global_step(), 1)
    stop = impl.train.StopAtStepHook(last_step=2)
    if in_loop and impl.name == "tensorflow":
        pytest.skip("TensorFlow's session has no run_loop")
    with pytest.raises(ValueError, match="refused"), impl.train.MonitoredSession(hooks=[stop]) as session:
        session.run(step)
        with pytest.raises(ValueError, match="refused"):
            session.run_loop(Checked(step)) if in_loop else session.run(Checked(step))
        assert not session.should_stop()
        session.run(Checked(step))


def test_a_loop_makes_each_result(graph: Any) -> None:
    """The class's own code may count on that."""
    import fastsup

    made = []

    @attrs.define
    class Counting:
        value: Any

        def __attrs_post_init__(self) -> None:
            made.append(self.value)

    step = tf.compat.v1.assign_add(tf.compat.v1.train.get_or_create_global_step(), 1)
    with fastsup.train.MonitoredSession(hooks=[fastsup.train.StopAtStepHook(last_step=4)]) as session:
        session.run_loop(Counting(step))
    assert made[1:] == [1, 2, 3, 4]


@pytest.mark.parametrize("write", [lambda a, more: InDictionary(a, more), lambda a, more: Both(a, more), Pair])
def test_the_fetches_of_a_callable_are_its_own(graph: Any, write: Any) -> None:
    """A change of the object, or of a list in it, changes neither the callable nor what another run of it gives."""
    import fastsup

    a, b = tf.constant(1), tf.constant(2)
    more = [a]
    fetches = write(a, more)
    with fastsup.train.MonitoredSession() as session:
        function = session.make_callable(fetches)
        expected = write(1, [1])
        assert [function(), function()] == [expected, expected]
        more.append(b)
        assert function() == expected
        assert session.run(fetches) == write(1, [1, 2])
        assert function() == expected
