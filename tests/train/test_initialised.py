"""Whether a model is initialised, by its flags: the answer is that of the report, which is run to name what isn't."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.ops import resources

import fastsup
from fastsup.train.session.ready_check import ReadyCheck

v1 = tf.compat.v1


def variable(name: str, local: bool = False) -> Any:
    collections = [v1.GraphKeys.LOCAL_VARIABLES if local else v1.GraphKeys.GLOBAL_VARIABLES]
    return v1.get_variable(name, initializer=tf.constant(1.0), collections=collections, trainable=not local)


class Runs(fastsup.Session):
    """A session that notes what is fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[Any] = []

    def run(self, fetches: Any, *args: Any, **kwargs: Any) -> Any:
        self.fetched.append(fetches)
        return super().run(fetches, *args, **kwargs)


def reports(graph: Any) -> tuple[Any, Any]:
    """The two of a finished Scaffold."""
    scaffold = v1.train.Scaffold(saver=v1.train.Saver(allow_empty=True)).finalize()
    return scaffold.ready_op, scaffold.ready_for_local_init_op


@pytest.mark.parametrize("local", [0, 1, 2])
@pytest.mark.parametrize("of_the_graph", [1, 3])
def test_says_what_the_reports_say(of_the_graph: int, local: int, graph: Any) -> None:
    variables = [variable(f"v{i}") for i in range(of_the_graph)] + [variable(f"l{i}", True) for i in range(local)]
    both_reports = reports(graph)
    flags = ReadyCheck(*both_reports)
    with fastsup.Session() as session:
        for v in [None, *variables]:
            if v is not None:
                session.run(v.initializer)
            all_set, first_set = (session.run(report).size == 0 for report in both_reports)
            assert flags.is_ready(session) is all_set
            assert flags.is_ready_for_local_init(session) is first_set
        assert all_set


def test_one_plan_serves_both_questions(graph: Any) -> None:
    for name, local in (("b", False), ("a", True), ("c", False)):
        variable(name, local)
    flags = ReadyCheck(*reports(graph))
    with Runs() as session:
        session.run([graph.get_operation_by_name(name) for name in ("b/Assign", "c/Assign")])
        session.fetched.clear()
        assert flags.is_ready_for_local_init(session)
        assert not flags.is_ready(session)
        assert session.fetched[0] == session.fetched[1]
        assert len(session.fetched) == 2


def test_resources_beside_variables(graph: Any) -> None:
    """What isn't a variable counts too: its flag is one among the others."""
    v = variable("v")
    made = variable("made", local=True)
    resources.register_resource(made.op.outputs[0], made.initializer, v1.is_variable_initialized(made))
    flags = ReadyCheck(*reports(graph))
    with fastsup.Session() as session:
        session.run(v.initializer)
        assert not flags.is_ready_for_local_init(session)
        session.run(made.initializer)
        assert flags.is_ready_for_local_init(session)
        assert flags.is_ready(session)


@pytest.mark.parametrize(
    "make",
    [
        lambda: None,
        lambda: tf.constant([], tf.string),
        lambda: tf.constant(["v"]),
        lambda: tf.no_op(),
        lambda: tf.strings.join([v1.report_uninitialized_variables(), "!"]),
        lambda: tf.concat([v1.report_uninitialized_variables(), tf.constant(["always"])], 0),
        lambda: tf.boolean_mask(tf.constant(["v"]), v1.placeholder_with_default([False], [1])),
        lambda: tf.gather(tf.constant(["v"]), v1.placeholder_with_default([0], [1])),
        lambda: "report_uninitialized_variables:0",
    ],
)
def test_anything_else_is_not_taken_for_a_report(make: Any, graph: Any) -> None:
    variable("v")
    flags = ReadyCheck(make(), make())
    with Runs() as session:
        assert not flags.is_ready(session)
        assert not flags.is_ready_for_local_init(session)
        assert session.fetched == []


def test_a_first_report_of_something_else_is_asked_for_itself(graph: Any) -> None:
    v, w = variable("v"), variable("w")
    flags = ReadyCheck(v1.report_uninitialized_variables([v]), v1.report_uninitialized_variables([w]))
    with fastsup.Session() as session:
        session.run(w.initializer)
        assert flags.is_ready_for_local_init(session)
        assert not flags.is_ready(session)


def test_an_initialised_model_is_not_reported_on(graph: Any) -> None:
    """The report is run where something is missing, for its names."""
    v = variable("v")
    ready = v1.report_uninitialized_variables()
    manager = fastsup.train.SessionManager(ready_op=ready)
    with Runs() as session:
        assert manager._model_ready(session) == (False, "Variables not initialized: v")
        assert session.fetched[-1] is ready
        session.run(v.initializer)
        assert manager._model_ready(session) == (True, None)
        assert session.fetched[-1] is not ready


def test_other_errors_of_the_runtime_come_out(graph: Any) -> None:
    variable("v")
    flags = ReadyCheck(v1.report_uninitialized_variables(), None)
    session = fastsup.Session()
    session.close()
    with pytest.raises(RuntimeError, match="closed Session"):
        flags.is_ready(session)
