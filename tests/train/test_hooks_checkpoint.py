"""CheckpointSaverHook: when it saves, with which saver, what it writes, and what its listeners hear."""

from __future__ import annotations

import os
from typing import Any

import pytest
import tensorflow as tf
from google.protobuf import text_format

from fastsup import train

v1 = tf.compat.v1


@pytest.fixture
def saved(tmp_path: Any) -> Any:
    """The global steps of the folder's checkpoints, of which the last five are kept, and the value in the newest."""

    def read() -> list[int]:
        state = v1.train.get_checkpoint_state(str(tmp_path))
        if state is None:
            return []
        paths = list(state.all_model_checkpoint_paths)
        assert state.model_checkpoint_path == paths[-1]
        steps = [int(path.rpartition("-")[2]) for path in paths]
        assert [tf.train.load_variable(path, "global_step") for path in paths] == steps
        return steps

    return read


class Run:
    """A hook in a hooked session that steps."""

    def __init__(self, impl: Any, wrapped: Any, step: Any, hook: Any) -> None:
        self.step, self.hook = step, hook
        hook.begin()
        scaffold = impl.train.Scaffold().finalize()
        self.session = impl.Session()
        self.session.run(scaffold.init_op)
        self.outer = wrapped.HookedSession(self.session, [hook])
        hook.after_create_session(self.session, None)

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.outer.run(self.step.op)

    def end(self) -> None:
        self.hook.end(self.session)
        self.session.close()


@pytest.fixture
def run(impl: Any, wrapped: Any, step: Any) -> Any:
    return lambda hook: Run(impl, wrapped, step, hook)


# When.


def test_every_n_steps(impl: Any, run: Any, tmp_path: Any, saved: Any) -> None:
    training = run(impl.train.CheckpointSaverHook(str(tmp_path), save_steps=3))
    assert saved() == [0]
    training.steps(2)
    assert saved() == [0]
    training.steps(1)
    assert saved() == [0, 3]
    training.steps(4)
    assert saved() == [0, 3, 6]
    training.end()
    assert saved() == [0, 3, 6, 7]


def test_every_n_secs(impl: Any, run: Any, tmp_path: Any, saved: Any, clock: Any) -> None:
    training = run(impl.train.CheckpointSaverHook(str(tmp_path), save_secs=2))
    training.steps(2)
    assert saved() == [0]
    clock.now += 1.9
    training.steps(1)
    assert saved() == [0]
    clock.now += 0.1
    training.steps(2)
    assert saved() == [0, 4]
    clock.now += 2
    training.steps(1)
    assert saved() == [0, 4, 6]
    training.end()
    assert saved() == [0, 4, 6]


def test_end_saves_what_is_new(impl: Any, run: Any, tmp_path: Any, saved: Any) -> None:
    training = run(impl.train.CheckpointSaverHook(str(tmp_path), save_steps=100))
    training.steps(3)
    training.end()
    assert saved() == [0, 3]


def test_a_run_that_leaves_the_global_step_alone_saves_nothing(
    impl: Any, run: Any, tmp_path: Any, saved: Any, clock: Any
) -> None:
    training = run(impl.train.CheckpointSaverHook(str(tmp_path), save_secs=1))
    training.steps(1)
    clock.now += 10
    training.steps(1)
    for _ in range(3):
        clock.now += 10
        training.outer.run([])
    assert saved() == [0, 2]
    training.end()


def test_steps_per_run(impl: Any, graph: Any, wrapped: Any, counting_step: Any, tmp_path: Any, saved: Any) -> None:
    hook = impl.train.CheckpointSaverHook(str(tmp_path), save_steps=10)
    hook._set_steps_per_run(4)
    training = Run(impl, wrapped, counting_step(4), hook)
    training.steps(6)
    training.end()
    assert saved() == [0, 12, 24]


def test_a_larger_increment_needs_no_steps_per_run(
    impl: Any, graph: Any, wrapped: Any, counting_step: Any, tmp_path: Any, saved: Any
) -> None:
    training = Run(impl, wrapped, counting_step(4), impl.train.CheckpointSaverHook(str(tmp_path), save_steps=10))
    training.steps(7)
    training.end()
    assert saved() == [0, 12, 24, 28]


def test_resumed_training_saves_first(impl: Any, step: Any, tmp_path: Any, saved: Any) -> None:
    for _ in range(2):
        hook = impl.train.CheckpointSaverHook(str(tmp_path), save_steps=2)
        with impl.train.SingularMonitoredSession([hook], checkpoint_dir=str(tmp_path)) as session:
            for _ in range(3):
                session.run(step.op)
    assert saved() == [0, 2, 3, 5, 6]  # Both save the 3, and the second's list goes on from the first's.


# Whose saver.


def test_finds_the_graphs_saver(impl: Any, run: Any, tmp_path: Any) -> None:
    hook = impl.train.CheckpointSaverHook(str(tmp_path), save_steps=1)
    training = run(hook)
    assert hook._get_saver() is v1.get_collection(v1.GraphKeys.SAVERS)[0]
    training.end()


def test_no_saver_to_be_found(impl: Any, step: Any, tmp_path: Any) -> None:
    hook = impl.train.CheckpointSaverHook(str(tmp_path), save_steps=1)
    with pytest.raises(RuntimeError, match=r"^No items in collection savers\. Please add a saver to the collection or"):
        hook._get_saver()


def test_two_savers_to_be_found(impl: Any, step: Any, tmp_path: Any) -> None:
    for _ in range(2):
        v1.add_to_collection(v1.GraphKeys.SAVERS, v1.train.Saver())
    hook = impl.train.CheckpointSaverHook(str(tmp_path), save_steps=1)
    with pytest.raises(RuntimeError, match=r"^More than one item in collection savers\. Please indicate which one"):
        hook._get_saver()


def test_saver_and_scaffold(impl: Any, step: Any, tmp_path: Any) -> None:
    with pytest.raises(ValueError, match=r"^You cannot provide both saver and scaffold\."):
        impl.train.CheckpointSaverHook(
            str(tmp_path), save_steps=1, saver=v1.train.Saver(), scaffold=impl.train.Scaffold()
        )


@pytest.mark.parametrize("given", ["saver", "scaffold"])
def test_given_saver(impl: Any, graph: Any, step: Any, tmp_path: Any, given: str) -> None:
    other = v1.get_variable("other", initializer=1.0)
    saver = v1.train.Saver([other, step.global_step], max_to_keep=1)
    scaffold = impl.train.Scaffold(saver=saver)
    hook = impl.train.CheckpointSaverHook(
        str(tmp_path), save_steps=1, checkpoint_basename="mine", **{given: saver if given == "saver" else scaffold}
    )
    with impl.train.SingularMonitoredSession([hook], scaffold) as session:
        session.run(step.op)
        assert saver.last_checkpoints == [str(tmp_path / "mine-1")]
    assert hook._save_path == str(tmp_path / "mine")


# What it writes.


def test_what_is_written(impl: Any, run: Any, tmp_path: Any, files: Any, raw_events: Any) -> None:
    training = run(impl.train.CheckpointSaverHook(str(tmp_path), save_steps=10))
    training.steps(2)
    training.end()
    data = [f"model.ckpt-{n}{end}" for n in (0, 2) for end in (".data-00000-of-00001", ".index", ".meta")]
    assert files(tmp_path) == sorted(["checkpoint", "events", "graph.pbtxt", *data])
    graph_def = v1.GraphDef()
    text_format.Parse((tmp_path / "graph.pbtxt").read_text(), graph_def)
    expected = v1.get_default_graph().as_graph_def(add_shapes=True)
    assert [node.name for node in graph_def.node] == [node.name for node in expected.node]
    found = raw_events(tmp_path)
    assert [event.WhichOneof("what") for event in found] == [
        "file_version", "graph_def", "meta_graph_def", "graph_def", "meta_graph_def", "session_log", "session_log",
    ]  # fmt: skip
    logs = [event for event in found if event.WhichOneof("what") == "session_log"]
    assert [(event.step, event.session_log.checkpoint_path) for event in logs] == [
        (0, str(tmp_path / "model.ckpt")), (2, str(tmp_path / "model.ckpt")),
    ]  # fmt: skip
    meta = v1.MetaGraphDef.FromString([e.meta_graph_def for e in found if e.WhichOneof("what") == "meta_graph_def"][-1])
    assert meta.saver_def.save_tensor_name


def test_without_the_graph(impl: Any, run: Any, tmp_path: Any, files: Any) -> None:
    training = run(impl.train.CheckpointSaverHook(str(tmp_path), save_steps=10, save_graph_def=False))
    training.end()
    assert files(tmp_path) == ["checkpoint", "events", "model.ckpt-0.data-00000-of-00001", "model.ckpt-0.index"]


def test_log(impl: Any, run: Any, tmp_path: Any, tf_log: Any) -> None:
    training = run(impl.train.CheckpointSaverHook(str(tmp_path), save_steps=2))
    training.steps(2)
    training.end()
    path = tmp_path / "model.ckpt"
    said = [text for text in tf_log.messages if "heckpoint" in text]
    assert said == ["Create CheckpointSaverHook."] + [
        text
        for n in (0, 2)
        for text in (
            f"Calling checkpoint listeners before saving checkpoint {n}...",
            f"Saving checkpoints for {n} into {path}.",
            f"Calling checkpoint listeners after saving checkpoint {n}...",
        )
    ]


def test_makes_its_directory(impl: Any, run: Any, tmp_path: Any) -> None:
    run(impl.train.CheckpointSaverHook(str(tmp_path / "a" / "b"), save_steps=10)).end()
    assert os.path.exists(tmp_path / "a" / "b" / "checkpoint")


# Listeners.


def test_listeners_hear_of_each_save(impl: Any, run: Any, tmp_path: Any, trace: Any, saved: Any) -> None:
    newest = lambda *_: trace.append(f"newest {saved()[-1] if saved() else None}")  # noqa: E731
    listeners = [trace.listener("a", before_save=newest, after_save=newest), trace.listener("b")]
    training = run(impl.train.CheckpointSaverHook(str(tmp_path), save_steps=2, listeners=listeners))
    assert trace[:2] == ["a.begin", "b.begin"]
    training.steps(3)
    training.end()
    around = [("None", 0), ("0", 2), ("2", 3)]
    assert trace[2:] == [
        entry
        for before, n in around
        for entry in (
            f"a.before_save:{n}", f"newest {before}", f"b.before_save:{n}",
            f"a.after_save:{n}", f"newest {n}", f"b.after_save:{n}",
        )
    ] + ["a.end:3", "b.end:3"]  # fmt: skip


def test_listeners_that_are_none(run: Any, tmp_path: Any) -> None:
    with pytest.raises(AttributeError, match="listeners must be CheckpointSaverListener objects, got 'x'"):
        run(train.CheckpointSaverHook(str(tmp_path), save_steps=1, listeners=["x"]))


def test_switches_that_are_texts(graph: Any, tmp_path: Any) -> None:
    folder = str(tmp_path)
    for make in (
        lambda **switch: train.MonitoredTrainingSession(checkpoint_dir=folder, **switch),
        lambda **switch: train.Supervisor(logdir=folder, **switch),
        lambda **switch: train.CheckpointSaverHook(folder, save_steps=1, **switch),
    ):
        with pytest.raises(TypeError, match="async_save must be True or False, got 'no'"):
            make(async_save="no")
    for make in (train.MonitoredTrainingSession, train.MonitoredSession, train.Supervisor):
        with pytest.raises(TypeError, match="handle_signals must be True or False, got 'off'"):
            make(handle_signals="off")


def test_listeners_get_the_session(impl: Any, run: Any, tmp_path: Any, trace: Any) -> None:
    sessions = []
    note = lambda _, session, __: sessions.append(session)  # noqa: E731
    listener = trace.listener("a", before_save=note, after_save=note, end=note)
    training = run(impl.train.CheckpointSaverHook(str(tmp_path), save_steps=1, listeners=[listener]))
    training.steps(1)
    training.end()
    assert sessions == [training.session] * 5


def test_a_listener_stops_training(impl: Any, run: Any, tmp_path: Any, trace: Any, tf_log: Any) -> None:
    stopping = trace.listener("a", after_save=lambda number, *_: number == 2)
    training = run(
        impl.train.CheckpointSaverHook(str(tmp_path), save_steps=1, listeners=[stopping, trace.listener("b")])
    )
    training.steps(1)
    assert not training.outer.should_stop()
    training.steps(1)
    assert training.outer.should_stop()
    assert trace[-1] == "b.after_save:2"
    assert tf_log.messages[-1] == (
        f"A CheckpointSaverListener requested that training be stopped. listener: {stopping}"
    )
    training.end()


def test_any_true_value_stops(impl: Any, run: Any, tmp_path: Any, trace: Any) -> None:
    listener = trace.listener("a", after_save=lambda *_: "yes")
    training = run(impl.train.CheckpointSaverHook(str(tmp_path), save_steps=1, listeners=[listener]))
    assert not training.outer.should_stop()  # The save of the session's beginning can't stop anything.
    training.steps(1)
    assert training.outer.should_stop()
    training.end()


def test_listeners_may_run_the_session(impl: Any, run: Any, tmp_path: Any, trace: Any, step: Any, saved: Any) -> None:
    """Even a step of training: what is saved and told is the step at which the hook became due."""
    values = []
    listener = trace.listener("a", before_save=lambda _, session, __: values.append(session.run(step.global_step)))
    training = run(impl.train.CheckpointSaverHook(str(tmp_path), save_steps=2, listeners=[listener]))
    training.steps(5)
    training.end()
    assert values == saved() == [0, 2, 4, 5]


def test_listeners_of_two_hooks(impl: Any, step: Any, tmp_path: Any, trace: Any) -> None:
    hooks = [
        impl.train.CheckpointSaverHook(str(tmp_path / name), save_steps=every, listeners=[trace.listener(name)])
        for name, every in (("a", 2), ("b", 3))
    ]
    with impl.train.MonitoredSession(hooks=hooks) as session:
        trace.clear()
        for _ in range(4):
            session.run(step.op)
    assert " ".join(entry for entry in trace if "before" not in entry) == (
        "a.after_save:0 b.after_save:0 a.after_save:2 b.after_save:3 a.after_save:4 a.end:4 b.after_save:4 b.end:4"
    ).replace("a.after_save:0 b.after_save:0 ", "")


def test_needs_a_global_step(impl: Any, graph: Any, tmp_path: Any) -> None:
    with pytest.raises(RuntimeError, match=r"^Global step should be created to use CheckpointSaverHook\."):
        impl.train.CheckpointSaverHook(str(tmp_path), save_steps=1).begin()


def test_a_path_object_for_the_directory(graph: Any, tmp_path: Any) -> None:
    """TensorFlow's fails as it writes the graph."""
    increment = tf.compat.v1.assign_add(train.get_or_create_global_step(), 1)
    with train.MonitoredTrainingSession(checkpoint_dir=tmp_path / "new") as session:
        session.run(increment)
    assert train.latest_intact_checkpoint(tmp_path / "new") == str(tmp_path / "new" / "model.ckpt-1")
