"""The global step as hooks ask for it, known without a fetch: they get what TensorFlow's fetch gives them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.training import training_util

v1 = tf.compat.v1


class Hook(v1.train.SessionRunHook):  # type: ignore[misc]
    """Asks for something, feeds something, does something before a run; keeps what it gets."""

    def __init__(self, ask: Any = None, feed: Any = None, before: Callable[[Any], None] | None = None) -> None:
        self.ask, self.feed, self.before = ask, feed, before
        self.got: list[Any] = []

    def before_run(self, run_context: Any) -> Any:
        if self.before is not None:
            self.before(run_context.session)
        return v1.train.SessionRunArgs(self.ask, self.feed)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.got.append(run_values.results)


class Writer:
    """A summary writer that keeps the steps."""

    def __init__(self) -> None:
        self.steps: list[int] = []

    def add_summary(self, summary: Any, global_step: Any) -> None:
        self.steps.append(int(global_step))

    def add_session_log(self, session_log: Any, global_step: Any) -> None:
        pass

    def flush(self) -> None:
        pass


@pytest.fixture
def model(graph: Any) -> SimpleNamespace:
    """`.variable` and `.read`: the step, `.one` and `.two` add to it after reads of it, `.jump` adds 100, `.x` is 7."""
    variable = v1.get_variable(
        "global_step", [], tf.int64, v1.zeros_initializer(), trainable=False, use_resource=True,
        collections=[v1.GraphKeys.GLOBAL_STEP, v1.GraphKeys.GLOBAL_VARIABLES],
    )  # fmt: skip
    read = training_util._get_or_create_global_step_read()
    with tf.control_dependencies([read, graph.as_graph_element(variable)]):
        one = v1.assign_add(variable, 1).op
        with tf.control_dependencies([v1.assign_add(variable, 1)]):
            two = v1.assign_add(variable, 1).op
    jump = v1.assign_add(variable, 100).op
    return SimpleNamespace(variable=variable, read=read, one=one, two=two, jump=jump, x=tf.constant(7))


FORMS: dict[str, Callable[[Any], Any]] = {
    "alone": lambda model: model.variable,
    "read": lambda model: model.read,
    "list": lambda model: [model.variable, model.x],
    "tuple": lambda model: (model.x, model.read, model.x),
    "dictionary": lambda model: {"x": model.x, "step": model.variable, "again": model.read, "y": model.x},
    "only it in a list": lambda model: [model.variable],
    "ordered dictionary": lambda model: OrderedDict(x=model.x, step=model.variable),
    "nested": lambda model: [model.x, [model.variable]],
}


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("moved", ["one", "two", "x"])
def test_in_each_form(impl: Any, model: Any, form: str, moved: str) -> None:
    hook = Hook(FORMS[form](model))
    with impl.train.MonitoredSession(hooks=[hook]) as session:
        for _ in range(3):
            session.run(getattr(model, moved))
    by = {"one": 1, "two": 2, "x": 0}[moved]
    expected = [
        {
            "alone": n,
            "read": n,
            "list": [n, 7],
            "tuple": (7, n, 7),
            "dictionary": {"x": 7, "step": n, "again": n, "y": 7},
            "only it in a list": [n],
            "ordered dictionary": {"x": 7, "step": n},
            "nested": [7, [n]],
        }[form]
        for n in (0, by, 2 * by)
    ]
    assert hook.got == expected
    assert type(hook.got[0]) is (np.int64 if form in ("alone", "read") else type(FORMS[form](model)))
    if form == "dictionary":
        assert list(hook.got[0]) == ["x", "step", "again", "y"]
        assert {type(value) for value in hook.got[0].values()} == {np.int64, np.int32}


def test_in_a_graph_without_a_read_of_it(impl: Any, graph: Any) -> None:
    step, one = v1.train.get_or_create_global_step(), tf.constant(1)
    hook = Hook([step])
    with impl.train.MonitoredSession(hooks=[hook]) as session:
        session.run(one)
        session.run(one, {step: 42})
    assert hook.got == [[0], [42]]


@pytest.mark.parametrize("standard", [False, True])
def test_after_every_hook_has_been_called(impl: Any, model: Any, standard: bool) -> None:
    """A hook may move the step before the run, behind one that has asked for it, or in front of it."""
    hooks = [Hook(model.variable), Hook(before=lambda session: session.run(model.jump)), Hook([model.read, model.x])]
    more = [impl.train.StopAtStepHook(last_step=10**6)] if standard else []
    with impl.train.MonitoredSession(hooks=[*hooks, *more]) as session:
        for _ in range(3):
            session.run(model.x)
    assert hooks[0].got == [100, 200, 300]
    assert hooks[2].got == [[100, 7], [200, 7], [300, 7]]


def test_what_was_added_to_a_list_since(impl: Any, model: Any) -> None:
    asked = [model.read]
    hook = Hook(asked)
    with impl.train.MonitoredSession(hooks=[hook, Hook(before=lambda _: asked.append(model.x))]) as session:
        session.run(model.x)
    assert hook.got == [[0, 7]]


@pytest.mark.slow
@pytest.mark.parametrize("standard", [False, True])
@pytest.mark.parametrize("by", ["hook", "itself", "caller", "caller, options", "caller, metadata", "caller, odd fetch"])
def test_that_is_fed(impl: Any, model: Any, by: str, standard: bool) -> None:
    feed = {model.read: 42}
    asking = Hook([model.read, model.x], feed if by == "itself" else None)
    hooks = [asking, Hook(feed=feed if by == "hook" else None)]
    if standard:
        hooks.append(impl.train.StopAtStepHook(last_step=43))
    options = v1.RunOptions() if by == "caller, options" else None
    metadata = v1.RunMetadata() if by == "caller, metadata" else None
    fetches = OrderedDict(x=model.x) if by == "caller, odd fetch" else model.x
    with impl.train.MonitoredSession(hooks=hooks) as session:
        for _ in range(3):
            session.run(fetches, feed if "caller" in by else None, options=options, run_metadata=metadata)
    assert asking.got == [[42, 7]] * 3


@pytest.mark.parametrize("beside", [None, "nothing:0", 3])
def test_something_wrong_beside_it(both: Any, model: Any, beside: Any) -> None:
    errors = []
    for impl in (both.tensorflow, both.fastsup):
        session = impl.train.MonitoredSession(hooks=[Hook([model.read, beside])])
        with pytest.raises((TypeError, ValueError)) as raised:
            session.run(model.x)
        session.close()
        errors.append((raised.type, str(raised.value)))
    assert errors[0] == errors[1]


def test_that_can_not_be_fetched_any_more(both: Any, model: Any) -> None:
    errors = []
    for impl in (both.tensorflow, both.fastsup):
        session = impl.train.MonitoredSession(hooks=[Hook(model.read)])
        if not errors:
            v1.get_default_graph().prevent_fetching(model.read.op)
        with pytest.raises(ValueError, match="not fetchable") as raised:
            session.run(model.x)
        session.close()
        errors.append((raised.type, str(raised.value)))
    assert errors[0] == errors[1]


@pytest.mark.parametrize("moved", ["one", "two"])
def test_standard_hooks_where_a_hook_moves_it(both: Any, moved: str) -> None:
    """They fire on the same steps, also on those that come of a move before the run."""

    def fired(impl: Any) -> Any:
        with tf.Graph().as_default() as graph:
            step = v1.train.get_or_create_global_step()
            with tf.control_dependencies([training_util._get_or_create_global_step_read()]):
                one = v1.assign_add(step, 1)
                with tf.control_dependencies([one]):
                    two = v1.assign_add(step, 1)
            plus, runs = v1.assign_add(step, 7).op, []

            def move(session: Any) -> None:
                runs.append(1)
                if len(runs) % 5 == 0:
                    session.run(plus)

            counter, summary = Writer(), Writer()
            constant = v1.summary.scalar("constant", tf.constant(1.0))
            hooks = [
                Hook(before=move),
                impl.train.StepCounterHook(every_n_steps=10, summary_writer=counter),
                impl.train.SummarySaverHook(save_steps=10, summary_writer=summary, summary_op=constant),
                impl.train.StopAtStepHook(last_step=100),
            ]
            assert graph.get_collection(v1.GraphKeys.GLOBAL_STEP)
            with impl.train.MonitoredSession(hooks=hooks) as session:
                while not session.should_stop():
                    session.run(one.op if moved == "one" else two.op)
            return counter.steps, summary.steps, len(runs)

    assert fired(both.fastsup) == fired(both.tensorflow)


def test_while_another_thread_has_moved_it_already(impl: Any, model: Any) -> None:
    """Its run is still under way."""
    moved, go_on = threading.Event(), threading.Event()

    def wait() -> np.int64:
        moved.set()
        assert go_on.wait(60)
        return np.int64(0)

    with tf.control_dependencies([v1.assign_add(model.variable, 1)]):
        slow = v1.py_func(wait, [], tf.int64)
    hook = Hook(model.read)
    with impl.train.MonitoredSession(hooks=[hook]) as session:
        session.run(model.one)
        thread = threading.Thread(target=lambda: session.run(slow))
        thread.start()
        try:
            assert moved.wait(60)
            session.run(model.x)
            assert hook.got[-1] == 2
        finally:
            go_on.set()
            thread.join()
