"""MonitoredSession and SingularMonitoredSession: making them, running in them, feeds and options that hooks add."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import tensorflow as tf

v1 = tf.compat.v1
KINDS = ("MonitoredSession", "SingularMonitoredSession")


@pytest.fixture(params=KINDS)
def open_session(impl: Any, request: pytest.FixtureRequest) -> Any:
    """The class of a monitored session."""
    return getattr(impl.train, request.param)


# Making one.


def test_initialises_variables(open_session: Any, graph: Any) -> None:
    variable = v1.get_variable("v", initializer=3.0)
    local = v1.get_local_variable("l", initializer=4.0)
    with open_session() as session:
        assert session.run([variable, local]) == [3.0, 4.0]


def test_arguments_by_position(impl: Any, graph: Any, trace: Any, tmp_path: Any) -> None:
    value = tf.constant(7)
    creator = impl.train.ChiefSessionCreator(impl.train.Scaffold(), "", v1.ConfigProto(), str(tmp_path))
    with impl.train.MonitoredSession(creator, [trace.hook("a")], 10) as session:
        assert session.run(value) == 7
    with impl.train.SingularMonitoredSession(
        [trace.hook("b")], impl.train.Scaffold(), "", v1.ConfigProto(), str(tmp_path), 10
    ) as session:
        assert session.run(value) == 7
    assert [entry for entry in trace if entry.endswith("after_run")] == ["a.after_run", "b.after_run"]


def test_hooks_none_or_any_iterable_of_hooks(open_session: Any, graph: Any, trace: Any) -> None:
    value = tf.constant(7)
    with open_session(hooks=None) as session:
        assert session.run(value) == 7
    with open_session(hooks=(trace.hook("a"), trace.hook("b"))) as session:
        session.run(value)
    assert trace[-6:] == ["a.before_run", "b.before_run", "a.after_run", "b.after_run", "a.end", "b.end"]


def test_hooks_list_may_grow_after_the_session_was_made(open_session: Any, graph: Any, trace: Any) -> None:
    """The session keeps the list that it was given, not a copy."""
    value = tf.constant(7)
    hooks = [trace.hook("a")]
    with open_session(hooks=hooks) as session:
        session.run(value)
        hooks.append(trace.hook("late"))
        session.run(value)
    assert trace == [
        "a.begin", "a.after_create_session", "a.before_run", "a.after_run",
        "a.before_run", "late.before_run", "a.after_run", "late.after_run", "a.end", "late.end",
    ]  # fmt: skip


def test_graph_property(open_session: Any, graph: Any) -> None:
    with open_session() as session:
        assert session.graph is graph
    assert session.graph is None


@pytest.mark.parametrize("finalized", [False, True])
def test_graph_is_as_final_after_as_before(open_session: Any, graph: Any, impl: Any, finalized: bool) -> None:
    v1.get_variable("v", initializer=0.0)
    if finalized:
        impl.train.Scaffold().finalize()
    with open_session():
        assert graph.finalized
        with pytest.raises(RuntimeError, match="Graph is finalized and cannot be modified"):
            tf.constant(1)
    assert graph.finalized is finalized


def test_singular_session_restores(impl: Any, graph: Any, tmp_path: Any, counting_step: Any) -> None:
    step = counting_step()
    saver = impl.train.CheckpointSaverHook(str(tmp_path), save_steps=1)
    with impl.train.SingularMonitoredSession(hooks=[saver], checkpoint_dir=str(tmp_path)) as session:
        for _ in range(3):
            session.run(step.op)
    with impl.train.SingularMonitoredSession(checkpoint_dir=str(tmp_path)) as session:
        assert session.run(step.global_step) == 3
    path = str(tmp_path / "model.ckpt-1")
    with impl.train.SingularMonitoredSession(checkpoint_filename_with_path=path) as session:
        assert session.run(step.global_step) == 1
    creator = impl.train.ChiefSessionCreator(checkpoint_filename_with_path=path)
    with impl.train.MonitoredSession(creator) as session:
        assert session.run(step.global_step) == 1


def test_both_ways_to_name_a_checkpoint(impl: Any, graph: Any, tmp_path: Any) -> None:
    v1.get_variable("v", initializer=0.0)
    with pytest.raises(ValueError, match="Can not provide both checkpoint_dir and"):
        impl.train.SingularMonitoredSession(
            checkpoint_dir=str(tmp_path), checkpoint_filename_with_path=str(tmp_path / "c")
        )


def test_session_creator_is_abstract(impl: Any) -> None:
    with pytest.raises(TypeError, match="abstract"):
        impl.train.SessionCreator()

    class Creator(impl.train.SessionCreator):
        def create_session(self) -> Any:
            return super().create_session()

    with pytest.raises(NotImplementedError, match=r"create_session is not implemented for <.*Creator object"):
        Creator().create_session()


# Running.


def test_run_returns_what_a_session_returns(open_session: Any, graph: Any, trace: Any) -> None:
    a, b = tf.constant(1), tf.constant([2.0, 3.0])
    noop = tf.no_op()
    with open_session(hooks=[trace.hook("h")]) as session:
        assert session.run(a) == 1
        assert session.run("Const:0") == 1
        assert session.run(noop) is None
        assert session.run(fetches=[]) == []
        nested = session.run({"x": [a, (b, noop)], "y": {}})
        assert nested["x"][0] == 1
        assert nested["x"][1][0].tolist() == [2.0, 3.0]
        assert nested["x"][1][1] is None
        assert nested["y"] == {}
        assert session.run(b, {a: 3}).tolist() == [2.0, 3.0]
        assert session.run(a, feed_dict={a: 5}) == 5


def test_bad_fetches_and_feeds_raise_what_a_session_raises(open_session: Any, graph: Any) -> None:
    x = v1.placeholder(tf.float32, [2], name="x")
    unfetchable = object()
    with v1.Session() as plain, open_session() as session:
        for arguments in (
            ([None],), ("no_such_tensor:0",), (unfetchable,), (x,), (x, {x: [1.0]}), (x, {"nothing:0": 1}),
            ([x], {x: "text"}),
        ):  # fmt: skip
            with pytest.raises(Exception) as expected:
                plain.run(*arguments)
            with pytest.raises(type(expected.value)) as raised:
                session.run(*arguments)
            assert raised.type is expected.type
            assert str(raised.value) == str(expected.value)
            assert not session.should_stop()


@pytest.fixture
def open_traceable(impl: Any, open_session: Any) -> Any:
    """A session that records step statistics: ours, unasked, may choose an executor that has none."""
    if impl.name == "tensorflow":
        return open_session
    if open_session is impl.train.SingularMonitoredSession:
        return partial(open_session, executor="inline")
    return lambda hooks: open_session(impl.train.ChiefSessionCreator(executor="inline"), hooks)


def test_caller_options_and_metadata(open_traceable: Any, graph: Any, trace: Any) -> None:
    value = tf.add(tf.constant(1), tf.constant(2))
    hook = trace.hook("h")
    options, metadata = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE), v1.RunMetadata()
    with open_traceable(hooks=[hook]) as session:
        assert session.run(value, options=options, run_metadata=metadata) == 3
        assert session.run(value, None, options, metadata) == 3
    assert len(metadata.step_stats.dev_stats) >= 1
    _, values = hook.arguments["after_run"][0]
    assert values.options is options
    assert values.run_metadata is metadata


def test_hooks_always_get_options_and_metadata(open_session: Any, graph: Any, trace: Any) -> None:
    hook = trace.hook("h")
    value = tf.constant(1)
    with open_session(hooks=[hook]) as session:
        session.run(value)
        session.run(value)
    for context, values in hook.arguments["after_run"]:
        assert isinstance(context, v1.train.SessionRunContext)
        assert isinstance(values, v1.train.SessionRunValues)
        assert values.results is None
        assert values.options == v1.RunOptions()
        assert values.run_metadata == v1.RunMetadata()
    contexts = [[args[0] for args in hook.arguments[callback]] for callback in ("before_run", "after_run")]
    assert all(before is after for before, after in zip(*contexts, strict=True))
    assert contexts[0][0] is not contexts[0][1]


def test_context_holds_the_original_arguments(open_session: Any, graph: Any, trace: Any, raw_session: Any) -> None:
    x = v1.placeholder_with_default(1.0, [])
    fetches, feeds = {"x": x}, {x: 2.0}
    hook = trace.hook("h")
    with open_session(hooks=[hook]) as session:
        session.run(fetches, feeds)
        session.run(x)
        (first,), (second,) = hook.arguments["before_run"]
        assert isinstance(first.original_args, v1.train.SessionRunArgs)
        assert first.original_args.fetches is fetches
        assert first.original_args.feed_dict is feeds
        assert first.original_args.options is None
        assert second.original_args == v1.train.SessionRunArgs(x)
        assert first.session is raw_session(session)
        assert first.stop_requested is False
        first.request_stop()
        assert first.stop_requested is True
        assert not session.should_stop()  # The step that this context belonged to is over.


# Hooks that feed and set options.


def feeding(train: Any, trace: Any, name: str, feeds: Any, fetches: Any = None) -> Any:
    return trace.hook(name, before_run=lambda *_: train.SessionRunArgs(fetches, feeds))


def test_feeds_of_caller_and_hooks_are_joined(impl: Any, open_session: Any, graph: Any, trace: Any) -> None:
    x, y, z = (v1.placeholder(tf.float32, []) for _ in range(3))
    total = x + y + z
    hooks = [feeding(impl.train, trace, "a", {x: 1.0}), feeding(impl.train, trace, "b", {y: 2.0}, {"t": total})]
    caller = {z: 4.0}
    with open_session(hooks=hooks) as session:
        assert session.run(total, caller) == 7.0
        assert hooks[1].arguments["after_run"][0][1].results == {"t": 7.0}
    assert caller == {z: 4.0}  # The caller's dictionary stays as it was.


@pytest.mark.parametrize("empty", [None, {}], ids=["None", "empty"])
def test_hooks_alone_feed(impl: Any, open_session: Any, graph: Any, trace: Any, empty: Any) -> None:
    x = v1.placeholder(tf.float32, [])
    hooks = [feeding(impl.train, trace, "a", {x: 1.0}), feeding(impl.train, trace, "b", empty)]
    with open_session(hooks=hooks) as session:
        assert session.run(x, empty) == 1.0


def test_two_hooks_feed_the_same_tensor(impl: Any, open_session: Any, graph: Any, trace: Any) -> None:
    x, y = (v1.placeholder(tf.float32, []) for _ in range(2))
    hooks = [feeding(impl.train, trace, name, feeds) for name, feeds in (("a", {x: 1.0, y: 1.0}), ("b", {x: 2.0}))]
    with open_session(hooks=hooks) as session:
        with pytest.raises(RuntimeError) as raised:
            session.run(y)
    assert str(raised.value).startswith(f"Same tensor is fed by two hooks. Conflict(s): {[x]}")
    assert "b.after_run" not in trace


def test_hook_and_caller_feed_the_same_tensor(impl: Any, open_session: Any, graph: Any, trace: Any) -> None:
    x = v1.placeholder(tf.float32, [])
    with open_session(hooks=[feeding(impl.train, trace, "a", {x: 1.0})]) as session:
        with pytest.raises(RuntimeError) as raised:
            session.run(x, {x: 2.0})
    assert str(raised.value).startswith(f"Same tensor is fed by a SessionRunHook and user. Conflict(s): {[x]}")


def test_options_of_caller_and_hooks_are_merged(impl: Any, wrapped: Any, trace: Any) -> None:
    """Numbers: the greatest. Booleans: any. Watches: all of them, the caller's first."""

    def options(level: int, timeout: int, pool: int, flag: bool, watch: str) -> Any:
        merged = v1.RunOptions(
            trace_level=level, timeout_in_ms=timeout, inter_op_thread_pool=pool, output_partition_graphs=flag,
            report_tensor_allocations_upon_oom=not flag,
        )  # fmt: skip
        merged.debug_options.reset_disk_byte_usage = flag
        merged.debug_options.debug_tensor_watch_opts.add().node_name = watch
        return merged

    full, software = v1.RunOptions.FULL_TRACE, v1.RunOptions.SOFTWARE_TRACE
    requests = {
        "a": options(full, 30_000, -1, False, "first"),
        "b": options(v1.RunOptions.NO_TRACE, 60_000, -2, True, "second"),
    }
    hooks = [
        trace.hook(name, before_run=lambda *_, asked=asked: impl.train.SessionRunArgs(None, None, asked))
        for name, asked in requests.items()
    ]
    hooks.append(trace.hook("none"))
    mine = options(software, 10_000, 0, False, "mine")
    seen = {}

    class OtherSession:
        """The watches name no debug server, and are not meant to run."""

        graph = tf.Graph()

        def run(self, fetches: Any, **arguments: Any) -> dict[Any, None]:
            seen.update(arguments)
            return dict.fromkeys(fetches)

    wrapped.HookedSession(OtherSession(), hooks).run("fetches", options=mine)
    assert seen["options"] is mine
    assert (mine.trace_level, mine.timeout_in_ms, mine.inter_op_thread_pool) == (full, 60_000, 0)
    assert mine.output_partition_graphs
    assert mine.report_tensor_allocations_upon_oom
    assert mine.debug_options.reset_disk_byte_usage
    assert [watch.node_name for watch in mine.debug_options.debug_tensor_watch_opts] == ["mine", "first", "second"]


def test_a_hooks_options_reach_the_run(impl: Any, open_traceable: Any, graph: Any, trace: Any) -> None:
    """And the hook that asked for a trace isn't the only one that gets it."""
    request = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
    asking = trace.hook("a", before_run=lambda *_: impl.train.SessionRunArgs(None, options=request))
    other = trace.hook("b")
    value = tf.constant(1) + tf.constant(2)
    with open_traceable(hooks=[asking, other]) as session:
        assert session.run(value) == 3
    for hook in (asking, other):
        values = hook.arguments["after_run"][0][1]
        assert values.options.trace_level == v1.RunOptions.FULL_TRACE
        assert values.options is not request
        assert len(values.run_metadata.step_stats.dev_stats) >= 1
