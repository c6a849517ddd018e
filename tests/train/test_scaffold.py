"""Scaffold: the pieces of a model that get it ready, found, made or given."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

v1 = tf.compat.v1
PIECES = ("init_op", "init_feed_dict", "init_fn", "ready_op", "ready_for_local_init_op", "local_init_op",
          "local_init_feed_dict", "summary_op", "saver")  # fmt: skip


def test_nothing_is_made_before_it_is_finalised(impl: Any, graph: Any) -> None:
    scaffold = impl.train.Scaffold()
    assert [getattr(scaffold, piece) for piece in PIECES] == [None] * len(PIECES)
    assert graph.get_operations() == []


@pytest.mark.parametrize("with_variable", [True, False])
def test_what_is_made(impl: Any, graph: Any, with_variable: bool) -> None:
    if with_variable:
        v1.get_variable("my_var", initializer=1.0)
    scaffold = impl.train.Scaffold()
    assert scaffold.finalize() is scaffold
    assert graph.finalized
    assert isinstance(scaffold.init_op, tf.Operation)
    assert isinstance(scaffold.local_init_op, tf.Operation)
    assert isinstance(scaffold.ready_op, tf.Tensor)
    assert isinstance(scaffold.ready_for_local_init_op, tf.Tensor)
    assert isinstance(scaffold.saver, v1.train.Saver)
    assert scaffold.init_fn is scaffold.init_feed_dict is scaffold.summary_op is None
    with impl.Session() as session:
        assert session.run(scaffold.ready_op).tolist() == ([b"my_var"] if with_variable else [])
        session.run([scaffold.init_op, scaffold.local_init_op])
        assert session.run(scaffold.ready_op).tolist() == []


def test_what_is_made_is_kept_in_the_graph(impl: Any, graph: Any) -> None:
    v1.get_variable("v", initializer=1.0)
    v1.summary.scalar("s", 1.0)
    first, second = impl.train.Scaffold().finalize(), impl.train.Scaffold().finalize()
    for piece in ("init_op", "ready_op", "ready_for_local_init_op", "local_init_op", "summary_op", "saver"):
        assert getattr(first, piece) is getattr(second, piece) is not None


def test_two_to_choose_from(impl: Any, graph: Any) -> None:
    for _ in range(2):
        v1.add_to_collection(v1.GraphKeys.INIT_OP, tf.no_op())
    with pytest.raises(RuntimeError, match="More than one item in the collection"):
        impl.train.Scaffold().finalize()


def test_what_is_given_is_used(impl: Any, graph: Any) -> None:
    v1.get_variable("v", initializer=1.0)
    given = dict.fromkeys(PIECES)
    given.update({piece: object() for piece in PIECES if piece not in ("saver", "init_fn")})
    given["saver"] = v1.train.Saver()
    given["init_fn"] = lambda scaffold, session: (scaffold, session)
    scaffold = impl.train.Scaffold(**given)
    scaffold.finalize()
    for piece in PIECES:
        if piece != "init_fn":
            assert getattr(scaffold, piece) is given[piece]
    assert scaffold.init_fn("session") == (scaffold, "session")


def test_copies_what_is_not_given(impl: Any, graph: Any) -> None:
    seen = []
    first = impl.train.Scaffold(init_op="a", ready_op="b", init_fn=lambda scaffold, _: seen.append(scaffold))
    second = impl.train.Scaffold(init_op="c", copy_from_scaffold=first)
    assert (second.init_op, second.ready_op, second.saver) == ("c", "b", None)
    second.init_fn(None)
    assert seen == [second]


def test_sessions_use_them(impl: Any, graph: Any) -> None:
    """init_op with its feeds, then init_fn, then local_init_op with its feeds."""
    value, local = v1.placeholder(tf.float32, []), v1.placeholder(tf.float32, [])
    variable = v1.get_variable("v", shape=[], use_resource=True)
    local_variable = v1.get_local_variable("l", shape=[], use_resource=True)
    seen = []

    def init_fn(scaffold: Any, session: Any) -> None:
        seen.append(session.run(variable))

    scaffold = impl.train.Scaffold(
        init_op=variable.assign(value).op,
        init_feed_dict={value: 3.0},
        init_fn=init_fn,
        local_init_op=local_variable.assign(local + variable).op,
        local_init_feed_dict={local: 10.0},
    )
    with impl.train.MonitoredSession(impl.train.ChiefSessionCreator(scaffold)) as session:
        assert session.run([variable, local_variable]) == [3.0, 13.0]
    assert seen == [3.0]


def test_a_restored_model_needs_no_init(impl: Any, graph: Any, counting_step: Any, tmp_path: Any) -> None:
    step, seen = counting_step(), []
    for _ in range(2):
        scaffold = impl.train.Scaffold(init_fn=lambda *_: seen.append(1))
        with impl.train.MonitoredTrainingSession(scaffold=scaffold, checkpoint_dir=str(tmp_path)) as session:
            session.run(step.op)
    assert seen == [1]
