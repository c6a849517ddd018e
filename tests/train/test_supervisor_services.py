"""The services of a Supervisor: which are started, and what they write."""

from __future__ import annotations

import os
import time
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf
from google.protobuf import text_format
from tensorflow.python.platform import tf_logging
from tensorflow.python.training import supervisor as tf_supervisor

from fastsup import train
from fastsup.train.supervisor import supervisor

v1 = tf.compat.v1

# TensorFlow's services execute eagerly under TensorFlow 2 behaviour, and fail there.
SERVICES_WORK = ["tensorflow", "fastsup"] if os.environ.get("FASTSUP_TEST_WORLD") == "v1" else ["fastsup"]


@pytest.fixture(params=SERVICES_WORK)
def impl(request: Any, both: Any) -> Any:
    return getattr(both, request.param)


@pytest.fixture
def services(impl: Any) -> Any:
    """The classes of the services' threads."""
    module = supervisor if impl.name == "fastsup" else tf_supervisor
    return SimpleNamespace(
        Summary=module.SVSummaryThread, Steps=module.SVStepCounterThread, Checkpoint=module.SVTimerCheckpointThread
    )


@pytest.fixture
def step(step: Any) -> Any:
    """The step that all tests have, in a graph with a variable and one summary."""
    v1.get_variable("w", initializer=[1.0, 2.0])
    v1.summary.scalar("loss", tf.constant(1.5))
    return step


def test_what_they_write(
    impl: Any, step: Any, tmp_path: Any, events: Any, files: Any, tf_log: Any, wait_for: Any
) -> None:
    folder = str(tmp_path / "new" / "logs")
    sv = impl.train.Supervisor(logdir=folder)
    with sv.managed_session() as session:
        assert wait_for(lambda: v1.train.latest_checkpoint(folder)) == folder + "/model.ckpt-0"
        # Every service runs once at its start, and then in minutes.
        wait_for(lambda: sv.summary_writer.flush() or len(events(folder)) == 6)
        for _ in range(3):
            session.run(step.op)
    written = events(folder)
    assert written[:3] == ["0:graph_def", "0:meta_graph_def", "0:START"]
    assert sorted(written[3:-1]) == ["0:CHECKPOINT", "0:global_step/sec", "0:loss"]
    assert written[-1] == "0:STOP"
    assert files(folder) == [
        "checkpoint", "events", "graph.pbtxt", "model.ckpt-0.data-00000-of-00001", "model.ckpt-0.index",
        "model.ckpt-0.meta",
    ]  # fmt: skip
    said = [text for text in tf_log.messages if text.startswith(("Starting", "Saving", "Recording"))]
    assert said[0] == "Starting standard services."
    assert sorted(said) == [
        "Recording summary at step 0.",
        f"Saving checkpoint to path {folder}/model.ckpt",
        "Starting queue runners.",
        "Starting standard services.",
    ]


def test_graph_that_is_written(impl: Any, step: Any, graph: Any, tmp_path: Any, raw_events: Any) -> None:
    with impl.train.Supervisor(logdir=str(tmp_path)).managed_session():
        pass
    expected = graph.as_graph_def(add_shapes=True)
    in_events = v1.GraphDef()
    (event,) = [event for event in raw_events(tmp_path) if event.HasField("graph_def")]
    in_events.ParseFromString(event.graph_def)
    assert in_events == expected
    (event,) = [event for event in raw_events(tmp_path) if event.HasField("meta_graph_def")]
    in_meta_graph = v1.MetaGraphDef()
    in_meta_graph.ParseFromString(event.meta_graph_def)
    assert in_meta_graph.graph_def == expected
    assert in_meta_graph.saver_def.restore_op_name
    assert "variables" in in_meta_graph.collection_def
    in_file = v1.GraphDef()
    text_format.Parse((tmp_path / "graph.pbtxt").read_text(), in_file)
    assert in_file == expected


def test_meta_graph_of_another_graph(step: Any, graph: Any, tmp_path: Any, raw_events: Any) -> None:
    """Its own collections, where TensorFlow writes those of the default graph."""
    with tf.Graph().as_default():
        v1.add_to_collection("of the default graph", "text")
        sv = train.Supervisor(graph, logdir=str(tmp_path))
        with sv.managed_session(start_standard_services=False):
            pass
    (event,) = [event for event in raw_events(tmp_path) if event.HasField("meta_graph_def")]
    meta_graph = v1.MetaGraphDef()
    meta_graph.ParseFromString(event.meta_graph_def)
    assert "variables" in meta_graph.collection_def
    assert "of the default graph" not in meta_graph.collection_def


def test_without_global_step(impl: Any, graph: Any, tmp_path: Any, events: Any, tf_log: Any, wait_for: Any) -> None:
    weights = v1.get_variable("w", initializer=[1.0])
    v1.summary.scalar("loss", weights[0])
    sv = impl.train.Supervisor(logdir=str(tmp_path), checkpoint_basename="mine")
    with sv.managed_session():
        wait_for(lambda: v1.train.latest_checkpoint(str(tmp_path)))
        wait_for(lambda: "Recording summary at step None." in tf_log.messages)
    assert events(tmp_path) == ["0:graph_def", "0:meta_graph_def", "0:loss", "0:STOP"]
    assert v1.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "mine")
    assert list(v1.train.load_variable(str(tmp_path), "w")) == [1.0]


ALL = ["Summary", "Steps", "Checkpoint"]
STARTED = [
    pytest.param({}, ALL, id="default"),
    pytest.param({"save_summaries_secs": 0}, ["Checkpoint"], id="no summaries"),
    pytest.param({"save_summaries_secs": None}, ["Checkpoint"], id="summaries None"),
    pytest.param({"save_model_secs": 0}, ["Summary", "Steps"], id="no checkpoints"),
    pytest.param({"save_model_secs": None}, ["Summary", "Steps"], id="checkpoints None"),
    pytest.param({"summary_op": None}, ["Steps", "Checkpoint"], id="no summary op"),
    pytest.param({"saver": None}, ["Summary", "Steps"], id="no saver"),
    pytest.param({"global_step": None}, ["Summary", "Checkpoint"], id="no global step"),
    pytest.param({"summary_writer": None}, ["Checkpoint"], id="no writer"),
    pytest.param({"summary_op": None, "saver": None, "global_step": None}, [], id="nothing"),
]


@pytest.mark.parametrize(("arguments", "started"), STARTED)
def test_which_are_started(
    impl: Any, services: Any, step: Any, tmp_path: Any, events: Any, arguments: Any, started: list[str]
) -> None:
    sv = impl.train.Supervisor(logdir=str(tmp_path), **arguments)
    session = sv.prepare_or_wait_for_session(start_standard_services=False)
    threads = sv.start_standard_services(session)
    assert [type(thread) for thread in threads] == [getattr(services, name) for name in started]
    assert all(thread.daemon for thread in threads)
    sv.stop()
    assert not any(thread.is_alive() for thread in threads)
    session.close()
    # A START needs a step, and a writer.
    assert ("0:START" in events(tmp_path)) is ("global_step" not in arguments and "summary_writer" not in arguments)


@pytest.mark.parametrize("logdir", [None, ""])
def test_without_logdir(impl: Any, step: Any, logdir: Any, tf_log: Any) -> None:
    sv = impl.train.Supervisor(logdir=logdir)
    assert sv.summary_writer is None
    with sv.managed_session() as session:
        assert sv.start_standard_services(session) is None
        with pytest.raises(RuntimeError, match=r"^Writing a summary requires a summary writer\.$"):
            sv.summary_computed(session, b"")
    text = "Standard services need a 'logdir' passed to the SessionManager"
    assert [record.levelname for record in tf_log.records if record.getMessage() == text] == ["WARNING"] * 2


def test_writer_without_logdir(impl: Any, step: Any, tmp_path: Any, events: Any) -> None:
    sv = impl.train.Supervisor(summary_writer=v1.summary.FileWriter(str(tmp_path)))
    with sv.managed_session() as session:
        session.run(step.op)
        sv.summary_computed(session, session.run(sv.summary_op))
    assert events(tmp_path) == ["0:graph_def", "0:meta_graph_def", "1:loss", "0:STOP"]
    assert len(os.listdir(tmp_path)) == 1


def test_they_go_on(impl: Any, step: Any, tmp_path: Any, events: Any) -> None:
    """Checkpoints and summaries of several steps while the loop runs, each of the step that it names."""
    sv = impl.train.Supervisor(logdir=str(tmp_path), save_model_secs=0.02, save_summaries_secs=0.02)
    with sv.managed_session() as session:
        end = time.monotonic() + 60
        while len(sv.saver.last_checkpoints) < 4:
            assert time.monotonic() < end
            assert not sv.should_stop()
            session.run(step.op)
    for path in sv.saver.last_checkpoints[1:]:
        assert v1.train.load_variable(path, "global_step") >= 0
    written = events(tmp_path)
    for what in ("loss", "CHECKPOINT", "global_step/sec"):
        steps = [int(text.split(":")[0]) for text in written if text.endswith(":" + what)]
        assert len(steps) > 1, what
        assert steps == sorted(steps), what


def test_summary_service(impl: Any, services: Any, step: Any, tmp_path: Any, events: Any, tf_log: Any) -> None:
    sv = impl.train.Supervisor(logdir=str(tmp_path))
    with sv.managed_session(start_standard_services=False) as session:
        thread = services.Summary(sv, session)
        assert thread._timer_interval_secs == 120
        session.run(step.op)
        thread.run_loop()
    assert "Recording summary at step 1." in tf_log.messages
    assert events(tmp_path) == ["0:graph_def", "0:meta_graph_def", "1:loss", "0:STOP"]


def test_step_counter(
    impl: Any, services: Any, step: Any, tmp_path: Any, clock: Any, raw_events: Any, tf_log: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(tf_logging, "_log_counter_per_token", {})
    sv = impl.train.Supervisor(logdir=str(tmp_path), save_summaries_secs=30)
    with sv.managed_session(start_standard_services=False) as session:
        thread = services.Steps(sv, session)
        assert thread._timer_interval_secs == 30
        thread.start_loop()
        for seconds, steps in [(2.0, 3), (0.5, 1), (4.0, 0), (0.0, 1), (-1.0, 1)] + [(1.0, 0)] * 8:
            for _ in range(steps):
                session.run(step.op)
            clock.now += seconds
            thread.run_loop()
    rates = [1.5, 2.0, 0.0, float("inf"), float("inf")] + [0.0] * 8
    summaries = [(event.step, event.summary.value[0]) for event in raw_events(tmp_path) if event.HasField("summary")]
    assert [(at, value.tag) for at, value in summaries] == [(at, "global_step/sec") for at in [3, 4, 4, 5, 6] + [6] * 8]
    assert [value.simple_value for _, value in summaries] == rates
    # The log has had enough after ten.
    said = [text for text in tf_log.messages if "/sec" in text]
    assert said == [f"global_step/sec: {rate:g}" for rate in rates[:10]]


def test_step_counter_of_something_else(
    impl: Any, services: Any, step: Any, graph: Any, tmp_path: Any, raw_events: Any
) -> None:
    with graph.as_default():
        other = v1.get_variable("games", initializer=tf.constant(5, tf.int64), use_resource=False)
        more = v1.assign_add(other, 7)
    sv = impl.train.Supervisor(logdir=str(tmp_path))
    with sv.managed_session(start_standard_services=False) as session:
        thread = services.Steps(sv, session, other)
        thread.start_loop()
        session.run(more)
        thread.run_loop()
    (event,) = [event for event in raw_events(tmp_path) if event.HasField("summary")]
    assert event.step == 12
    assert event.summary.value[0].tag == "games/sec"


def test_checkpoint_service(
    impl: Any, services: Any, step: Any, tmp_path: Any, raw_events: Any, events: Any, tf_log: Any
) -> None:
    sv = impl.train.Supervisor(logdir=str(tmp_path), save_model_secs=7, checkpoint_basename="mine")
    with sv.managed_session(start_standard_services=False) as session:
        thread = services.Checkpoint(sv, session)
        assert thread._timer_interval_secs == 7
        session.run(step.op)
        session.run(step.op)
        thread.run_loop()
    path = str(tmp_path / "mine")
    assert f"Saving checkpoint to path {path}" in tf_log.messages
    assert v1.train.latest_checkpoint(str(tmp_path)) == path + "-2"
    assert v1.train.load_variable(path + "-2", "global_step") == 2
    assert events(tmp_path)[2:] == ["2:CHECKPOINT", "0:STOP"]
    (event,) = [event for event in raw_events(tmp_path) if event.session_log.checkpoint_path]
    assert event.session_log.checkpoint_path == path


def test_saver_that_fails(impl: Any, step: Any, tmp_path: Any) -> None:
    """The loop is told to stop, and then what happened."""

    class Failing(v1.train.Saver):
        def save(self, *args: Any, **more: Any) -> str:
            raise tf.errors.ResourceExhaustedError(None, None, "the disk is full")

    sv = impl.train.Supervisor(logdir=str(tmp_path), saver=Failing())
    with pytest.raises(tf.errors.ResourceExhaustedError, match="the disk is full"):
        with sv.managed_session() as session:
            end = time.monotonic() + 60
            while not sv.should_stop():
                assert time.monotonic() < end
                session.run(step.op)


def test_every_checkpoint_goes_one_way(step: Any, tmp_path: Any, wait_for: Any) -> None:
    saved = []

    class Recording(train.Supervisor):
        def _save(self, sess: Any, saver: Any, save_path: Any, global_step: Any = None) -> Any:
            saved.append((sess, saver, save_path, global_step))
            return super()._save(sess, saver, save_path, global_step)

    sv = Recording(logdir=str(tmp_path))
    with sv.managed_session() as session:
        wait_for(lambda: v1.train.latest_checkpoint(str(tmp_path)))
    assert saved == [(session, sv.saver, sv.save_path, sv.global_step)]


@pytest.mark.parametrize("value", [True, False])
def test_async_save_is_kept(graph: Any, value: bool) -> None:
    assert train.Supervisor(async_save=value)._async_save is value


if SERVICES_WORK == ["fastsup"]:

    def test_services_of_tensorflow_under_its_2_behaviour(both: Any, step: Any, tmp_path: Any, wait_for: Any) -> None:
        """Why they are left out of the tests above."""
        sv = both.tensorflow.train.Supervisor(logdir=str(tmp_path))
        with pytest.raises((TypeError, ValueError, AttributeError)):
            with sv.managed_session():
                wait_for(sv.should_stop)
