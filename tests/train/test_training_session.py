"""MonitoredTrainingSession: what each of its arguments makes of the session."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest
import tensorflow as tf

v1 = tf.compat.v1


@pytest.fixture
def train_op(graph: Any, counting_step: Any) -> Any:
    """An op that adds 1 to the global step, in a graph with one summary."""
    v1.summary.scalar("loss", tf.constant(1.5))
    return counting_step().op


def train(impl: Any, op: Any, steps: int, **arguments: Any) -> None:
    with impl.train.MonitoredTrainingSession(**arguments) as session:
        for _ in range(steps):
            session.run(op)


# Three steps, one second apart; the steps at which a checkpoint is saved.
CHECKPOINTS = [
    pytest.param({}, [0, 3], id="default: every 600 seconds"),
    pytest.param({"save_checkpoint_secs": 2}, [0, 2, 3], id="secs"),
    pytest.param({"save_checkpoint_steps": 2}, [0, 2, 3], id="steps"),
    pytest.param({"save_checkpoint_steps": 2, "save_checkpoint_secs": None}, [0, 2, 3], id="steps, secs None"),
    pytest.param({"save_checkpoint_secs": 2, "save_checkpoint_steps": None}, [0, 2, 3], id="secs, steps None"),
    pytest.param({"save_checkpoint_steps": 1}, [0, 1, 2, 3], id="every step"),
    pytest.param({"save_checkpoint_secs": None, "save_checkpoint_steps": None}, [], id="both None"),
    pytest.param({"save_checkpoint_secs": None}, [], id="secs None"),
    pytest.param({"save_checkpoint_steps": None}, [], id="steps None"),
    pytest.param({"save_checkpoint_steps": 0}, [], id="steps 0"),
    pytest.param({"save_checkpoint_secs": 0}, [], id="secs 0"),
    pytest.param({"save_checkpoint_secs": -1}, [], id="secs negative"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("arguments", "saved"), CHECKPOINTS)
def test_checkpoint_intervals(
    impl: Any, train_op: Any, tmp_path: Any, clock: Any, events: Any, arguments: Any, saved: list[int]
) -> None:
    def one_second_later(*_: Any) -> None:
        clock.now += 1

    feed_time = impl.train.FeedFnHook(one_second_later)
    train(impl, train_op, 3, checkpoint_dir=str(tmp_path), hooks=[feed_time], **arguments)
    written = [text for text in events(tmp_path) if text.endswith("CHECKPOINT")]
    assert written == [f"{step}:CHECKPOINT" for step in saved]
    assert (v1.train.latest_checkpoint(str(tmp_path)) is not None) is bool(saved)


SUMMARIES = [
    pytest.param({}, [1, 101], id="default: every 100 steps"),
    pytest.param({"save_summaries_steps": 40}, [1, 41, 81], id="steps"),
    pytest.param({"save_summaries_secs": 60}, [1, 62], id="secs"),
    pytest.param({"save_summaries_steps": 40, "save_summaries_secs": None}, [1, 41, 81], id="steps, secs None"),
    pytest.param({"save_summaries_secs": 60, "save_summaries_steps": None}, [1, 62], id="secs, steps None"),
    pytest.param({"save_summaries_steps": None, "save_summaries_secs": None}, [], id="both None"),
    pytest.param({"save_summaries_steps": None}, [], id="steps None"),
    pytest.param({"save_summaries_secs": None}, [], id="secs None"),
    pytest.param({"save_summaries_steps": 0}, [], id="steps 0"),
    pytest.param({"save_summaries_secs": 0}, [], id="secs 0"),
    pytest.param({"save_summaries_steps": -1}, [], id="steps negative"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("arguments", "saved"), SUMMARIES)
def test_summary_intervals(
    impl: Any, train_op: Any, tmp_path: Any, clock: Any, events: Any, arguments: Any, saved: list[int]
) -> None:
    def one_second_later(*_: Any) -> None:
        clock.now += 1

    feed_time = impl.train.FeedFnHook(one_second_later)
    train(impl, train_op, 102, summary_dir=str(tmp_path), log_step_count_steps=0, hooks=[feed_time], **arguments)
    found = events(tmp_path) if os.listdir(tmp_path) else []
    assert [text for text in found if "loss" in text] == [f"{step}:loss" for step in saved]
    assert ("1:START" in found) is bool(saved)
    assert v1.train.latest_checkpoint(str(tmp_path)) is None


@pytest.mark.parametrize(
    "arguments",
    [
        {"save_checkpoint_secs": 10, "save_checkpoint_steps": 10},
        {"save_summaries_secs": 10, "save_summaries_steps": 10},
    ],
    ids=["checkpoints", "summaries"],
)
def test_both_intervals_given(impl: Any, train_op: Any, tmp_path: Any, arguments: Any) -> None:
    with pytest.raises(ValueError, match=r"^Can not provide both every_secs and every_steps\."):
        train(impl, train_op, 1, checkpoint_dir=str(tmp_path), **arguments)


@pytest.mark.parametrize(
    ("every", "counted"),
    [
        pytest.param({}, [101, 201], id="default: every 100 steps"),
        pytest.param({"log_step_count_steps": 90}, [91, 181], id="90"),
        pytest.param({"log_step_count_steps": 0}, [], id="0"),
        pytest.param({"log_step_count_steps": None}, [], id="None"),
        pytest.param({"log_step_count_steps": -1}, [], id="negative"),
    ],
)
def test_log_step_count_steps(
    impl: Any, train_op: Any, tmp_path: Any, events: Any, tf_log: Any, every: Any, counted: list[int]
) -> None:
    train(impl, train_op, 205, summary_dir=str(tmp_path), save_summaries_steps=None, **every)
    found = events(tmp_path) if os.listdir(tmp_path) else []
    assert [text for text in found if "global_step" in text] == [f"{step}:global_step/sec" for step in counted]
    assert sum(message.startswith("global_step/sec: ") for message in tf_log.messages) == len(counted)


def test_without_directories_nothing_is_written(
    impl: Any, train_op: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    train(impl, train_op, 2)
    assert os.listdir(tmp_path) == []


def test_summary_dir_takes_the_summaries(impl: Any, train_op: Any, tmp_path: Any, events: Any, files: Any) -> None:
    checkpoints, summaries = tmp_path / "checkpoints", tmp_path / "summaries"
    train(
        impl, train_op, 2, checkpoint_dir=str(checkpoints), summary_dir=str(summaries), log_step_count_steps=1,
        save_checkpoint_steps=10,
    )  # fmt: skip
    assert files(summaries) == ["events"]
    assert [text for text in events(summaries) if "graph_def" not in text] == ["1:START", "1:loss", "2:global_step/sec"]
    assert [text for text in events(checkpoints) if "graph_def" not in text] == ["0:CHECKPOINT", "2:CHECKPOINT"]


@pytest.mark.parametrize("save_graph_def", [True, False])
def test_save_graph_def(impl: Any, train_op: Any, tmp_path: Any, files: Any, save_graph_def: bool) -> None:
    train(impl, train_op, 1, checkpoint_dir=str(tmp_path), save_graph_def=save_graph_def)
    data = [f"model.ckpt-{step}{suffix}" for step in (0, 1) for suffix in (".data-00000-of-00001", ".index")]
    meta = ["graph.pbtxt", "model.ckpt-0.meta", "model.ckpt-1.meta"] if save_graph_def else []
    assert files(tmp_path) == sorted(["checkpoint", "events", *data, *meta])


def test_chief_only_hooks_come_first_and_hooks_last(impl: Any, train_op: Any, tmp_path: Any, trace: Any) -> None:
    def newest(*_: Any) -> None:
        trace.append(str(v1.train.latest_checkpoint(str(tmp_path)))[-1])

    train(
        impl, train_op, 1, checkpoint_dir=str(tmp_path),
        hooks=[trace.hook("hook", after_create_session=newest, end=newest)],
        chief_only_hooks=[trace.hook("chief", after_create_session=newest, end=newest)],
    )  # fmt: skip
    assert trace == [
        "chief.begin", "hook.begin", "chief.after_create_session", "e", "hook.after_create_session", "0",
        "chief.before_run", "hook.before_run", "chief.after_run", "hook.after_run", "chief.end", "0",
        # The program's hooks end before the last checkpoint is saved, so that it has what they did.
        "hook.end", "1" if impl.name == "tensorflow" else "0",
    ]  # fmt: skip


def test_resumes_from_its_checkpoint(impl: Any, train_op: Any, tmp_path: Any) -> None:
    step = v1.train.get_global_step()
    train(impl, train_op, 3, checkpoint_dir=str(tmp_path))
    with impl.train.MonitoredTrainingSession(checkpoint_dir=str(tmp_path)) as session:
        assert session.run(step) == 3


def test_config_reaches_the_session(impl: Any, train_op: Any, raw_session: Any) -> None:
    with impl.train.MonitoredTrainingSession(config=v1.ConfigProto(device_count={"CPU": 3})) as session:
        assert len(raw_session(session).list_devices()) == 3


def test_scaffold_is_used(impl: Any, train_op: Any, tmp_path: Any) -> None:
    saver = v1.train.Saver(v1.global_variables(), max_to_keep=1)
    scaffold = impl.train.Scaffold(
        saver=saver,
        summary_op=tf.constant(v1.Summary(value=[v1.Summary.Value(tag="own", simple_value=1)]).SerializeToString()),
    )
    train(impl, train_op, 2, checkpoint_dir=str(tmp_path), scaffold=scaffold, save_checkpoint_steps=1)
    assert saver.last_checkpoints == [str(tmp_path / "model.ckpt-2")]


def test_grace_period_for_threads(impl: Any, train_op: Any, trace: Any, tf_log: Any) -> None:
    release = threading.Event()
    stray = threading.Thread(target=release.wait, name="stray")

    def register(_: int, session: Any, coord: Any) -> None:
        coord.register_thread(stray)
        stray.start()

    try:
        hooks = [trace.hook("a", after_create_session=register)]
        train(impl, train_op, 1, hooks=hooks, stop_grace_period_secs=0.01)
        assert stray.is_alive()
        assert "Coordinator stopped with threads still running: stray" in tf_log.messages
    finally:
        release.set()
        stray.join()


# Workers: sessions of the same server, in which a chief initialises what a worker waits for.


@pytest.fixture(scope="module")
def server() -> Any:
    return v1.train.Server.create_local_server()


def test_worker_waits_for_a_chief_and_runs_only_its_hooks(
    impl: Any, server: Any, tmp_path: Any, trace: Any, counting_step: Any
) -> None:
    container = f"worker-{impl.name}"
    with tf.Graph().as_default() as chief_graph, chief_graph.container(container):
        op = counting_step().op
        chief = impl.train.MonitoredTrainingSession(server.target)
        chief.run(op)
    with tf.Graph().as_default() as worker_graph, worker_graph.container(container):
        step = counting_step()
        with impl.train.MonitoredTrainingSession(
            master=server.target,
            is_chief=False,
            checkpoint_dir=str(tmp_path / "unused"),
            hooks=[trace.hook("a")],
            chief_only_hooks=[trace.hook("b")],
        ) as worker:
            worker.run(step.op)
            assert worker.run(step.global_step) == 2
        assert not worker_graph.finalized
    with chief_graph.as_default():
        chief.close()
    assert trace == ["a.begin", "a.after_create_session", *["a.before_run", "a.after_run"] * 2, "a.end"]
    assert not os.path.exists(tmp_path / "unused")


def test_worker_gives_up_after_max_wait_secs(
    impl: Any, server: Any, train_op: Any, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", clock.sleep)
    with pytest.raises(tf.errors.DeadlineExceededError) as raised:
        impl.train.MonitoredTrainingSession(master=server.target, is_chief=False, max_wait_secs=100)
    assert "Session was not ready after waiting 100 secs." in str(raised.value)
    assert 0 < sum(clock.slept) <= 100


@pytest.mark.parametrize("needs_step", [False, True])
def test_a_worker_fetches_the_step_only_for_a_hook(graph: Any, needs_step: bool) -> None:
    """Over gRPC each fetch is a message. Without a hook that counts steps, a run is that of the program's fetches."""
    from fastsup import train

    server = v1.train.Server.create_local_server()
    step = v1.train.get_or_create_global_step()
    train_op = v1.assign_add(step, 1, name="train").op
    with v1.Session(server.target) as chief:
        chief.run(v1.global_variables_initializer())
    hooks = [train.StopAtStepHook(last_step=1000)] if needs_step else []
    with train.MonitoredTrainingSession(server.target, is_chief=False, hooks=hooks) as session:
        for _ in range(5):
            session.run(train_op)
        session.run_loop(train_op, 5)
        runs = [info.fetches for info in session.raw_session().executor_info() if train_op.name in info.fetches]
    assert [len(fetches) > 1 for fetches in runs] == [needs_step]
