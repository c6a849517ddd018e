"""The fast check of a model: it agrees with TensorFlow's reports, and costs a session one small compiled step."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.ops import resources

import fastsup
from fastsup.train.session.session_manager import ReadyCheck

v1 = tf.compat.v1


def variable(name: str, local: bool = False) -> Any:
    collections = [v1.GraphKeys.LOCAL_VARIABLES if local else v1.GraphKeys.GLOBAL_VARIABLES]
    return v1.get_variable(name, initializer=tf.constant(1.0), collections=collections, trainable=not local)


class CountingSession(fastsup.Session):
    """A session that counts its runs."""

    runs = 0

    def run(self, *args: Any, **kwargs: Any) -> Any:
        self.runs += 1
        return super().run(*args, **kwargs)


def compiled(session: Any) -> list[tuple[str, ...]]:
    """The fetches that the session has compiled."""
    return [plan.fetches for plan in session.executor_info()]


def reports(graph: Any) -> tuple[Any, Any]:
    """The two reports of a finished Scaffold: of all variables, and of those that local_init_op needs."""
    scaffold = v1.train.Scaffold(saver=v1.train.Saver(allow_empty=True)).finalize()
    return scaffold.ready_op, scaffold.ready_for_local_init_op


@pytest.mark.parametrize("local", [0, 1, 2])
@pytest.mark.parametrize("of_the_graph", [1, 3])
def test_agrees_with_the_reports(of_the_graph: int, local: int, graph: Any) -> None:
    variables = [variable(f"v{i}") for i in range(of_the_graph)] + [variable(f"l{i}", True) for i in range(local)]
    both_reports = reports(graph)
    check = ReadyCheck(*both_reports)
    with fastsup.Session() as session:
        for v in [None, *variables]:
            if v is not None:
                session.run(v.initializer)
            ready, ready_for_local_init = (session.run(report).size == 0 for report in both_reports)
            assert check.is_ready(session) is ready
            assert check.is_ready_for_local_init(session) is ready_for_local_init
        assert ready


def test_both_questions_cost_one_compiled_step(graph: Any) -> None:
    for name, local in (("b", False), ("a", True), ("c", False)):
        variable(name, local)
    check = ReadyCheck(*reports(graph))
    with fastsup.Session() as session:
        session.run([graph.get_operation_by_name(name) for name in ("b/Assign", "c/Assign")])
        before = compiled(session)
        assert check.is_ready_for_local_init(session)
        assert not check.is_ready(session)
        assert len(compiled(session)) == len(before) + 1


def test_resources_count_as_variables_do(graph: Any) -> None:
    v = variable("v")
    made = variable("made", local=True)
    resources.register_resource(made.op.outputs[0], made.initializer, v1.is_variable_initialized(made))
    check = ReadyCheck(*reports(graph))
    with fastsup.Session() as session:
        session.run(v.initializer)
        assert not check.is_ready_for_local_init(session)
        session.run(made.initializer)
        assert check.is_ready_for_local_init(session)
        assert check.is_ready(session)


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
def test_another_ready_op_is_left_to_the_caller(make: Any, graph: Any) -> None:
    variable("v")
    check = ReadyCheck(make(), make())
    with fastsup.Session() as session:
        assert not check.is_ready(session)
        assert not check.is_ready_for_local_init(session)
        assert compiled(session) == []


def test_a_report_for_local_init_of_other_variables(graph: Any) -> None:
    v, w = variable("v"), variable("w")
    check = ReadyCheck(v1.report_uninitialized_variables([v]), v1.report_uninitialized_variables([w]))
    with fastsup.Session() as session:
        session.run(w.initializer)
        assert check.is_ready_for_local_init(session)
        assert not check.is_ready(session)


def test_a_ready_model_costs_one_run(graph: Any) -> None:
    """The report is run for the names of what is missing, so only for a model that isn't ready."""
    v = variable("v")
    manager = fastsup.train.SessionManager(ready_op=v1.report_uninitialized_variables())
    with CountingSession() as session:
        assert manager._model_ready(session) == (False, "Variables not initialized: v")
        assert session.runs == 2
        session.run(v.initializer)
        assert manager._model_ready(session) == (True, None)
        assert session.runs == 4


def test_other_errors_of_the_runtime_come_out(graph: Any) -> None:
    variable("v")
    check = ReadyCheck(v1.report_uninitialized_variables(), None)
    session = fastsup.Session()
    session.close()
    with pytest.raises(RuntimeError, match="closed Session"):
        check.is_ready(session)
