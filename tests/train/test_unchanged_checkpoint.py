"""A checkpoint that holds the present state is not written again over itself; all else that a save does is done."""

from __future__ import annotations

import os
from typing import Any

import pytest
import tensorflow as tf

from fastsup import train
from fastsup.checkpoint import durable

v1 = tf.compat.v1


class Program:
    """A training that saves every two steps."""

    def __init__(self, folder: Any, counting_step: Any) -> None:
        self.folder = str(folder)
        self.weight = v1.get_variable("weight", [3], initializer=v1.zeros_initializer())
        step = counting_step()
        self.step = step.global_step
        with tf.control_dependencies([v1.assign_add(self.weight, tf.ones([3]))]):
            self.op = tf.group(step.op)
        self.local = v1.get_local_variable("local", [], initializer=v1.zeros_initializer())
        self.shift = v1.assign_add(self.weight, tf.ones([3]))

    def train(self, steps: int, **arguments: Any) -> None:
        options = {"save_checkpoint_steps": 2, "save_checkpoint_secs": None, "log_step_count_steps": None, **arguments}
        with train.MonitoredTrainingSession(checkpoint_dir=self.folder, **options) as session:
            for _ in range(steps):
                session.run(self.op)

    def files(self) -> dict[str, tuple[int, int]]:
        """What writes to a file, or to another one of its name, changes."""
        found = {}
        for name in os.listdir(self.folder):
            status = os.stat(os.path.join(self.folder, name))
            found[name] = (status.st_ino, status.st_mtime_ns)
        return found


@pytest.fixture
def program(graph: Any, tmp_path: Any, counting_step: Any) -> Program:
    return Program(tmp_path, counting_step)


def rewritten(program: Program, **arguments: Any) -> set[str]:
    """The files of the newest checkpoint that a session without a step changes."""
    newest = os.path.basename(v1.train.latest_checkpoint(program.folder))
    before = {name: what for name, what in program.files().items() if name.startswith(newest + ".")}
    assert len(before) == 3
    program.train(0, **arguments)
    after = program.files()
    return {name for name in before if after.get(name) != before[name]}


@pytest.mark.parametrize("async_save", [False, True])
def test_the_restored_checkpoint_is_left_alone(program: Program, async_save: bool) -> None:
    program.train(3)
    assert rewritten(program, async_save=async_save) == set()


def test_it_is_on_the_disk_before_it_is_named(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that wrote it may have been killed before it flushed the files."""
    program.train(2)
    order: list[str] = []
    flush, write_state = durable._flush, durable.write_state

    def note_flush(path: Any) -> bool:
        order.append(f"flush {os.path.basename(path)}")
        return flush(path)

    def note_state(*args: Any, **settings: Any) -> None:
        order.append("name")
        write_state(*args, **settings)

    monkeypatch.setattr(durable, "_flush", note_flush)
    monkeypatch.setattr(durable, "write_state", note_state)
    assert rewritten(program) == set()
    assert order[:2] == ["flush model.ckpt-2", "name"]


def test_listeners_log_and_events_are_as_ever(
    program: Program, trace: Any, tf_log: Any, tmp_path: Any, events: Any
) -> None:
    program.train(3)
    tf_log.clear()
    listener = trace.listener("listener")
    hook = train.CheckpointSaverHook(program.folder, save_steps=2, listeners=[listener])
    program.train(0, save_checkpoint_steps=None, hooks=[hook])
    assert list(trace) == ["listener.begin", "listener.before_save:3", "listener.after_save:3", "listener.end:3"]
    path = f"{program.folder}/model.ckpt-3"
    left = f"The checkpoint of step 3, {path}, already contains this state and is left unchanged. See"
    assert f"{left} `python -m fastsup docs dropin#checkpoints`." in tf_log.messages
    assert "Saving checkpoints for" not in tf_log.text
    assert [text for text in events(tmp_path) if text.endswith("CHECKPOINT")].count("3:CHECKPOINT") == 2


def test_the_next_checkpoints_are_saved(program: Program) -> None:
    program.train(2)
    program.train(3)
    with v1.Session() as session:
        v1.train.Saver().restore(session, os.path.join(program.folder, "model.ckpt-5"))
        assert session.run([program.step, program.weight])[0] == 5
        assert list(session.run(program.weight)) == [5.0] * 3
    assert {name for name in program.files() if name.endswith(".index")} == {
        f"model.ckpt-{step}.index" for step in (0, 2, 4, 5)
    }


def test_what_another_hook_changes_is_saved(program: Program) -> None:
    class Shift(v1.train.SessionRunHook):
        def after_create_session(self, session: Any, coord: Any) -> None:
            session.run(program.shift)

    program.train(2)
    # The session's own hooks come first.
    saver = train.CheckpointSaverHook(program.folder, save_steps=2)
    assert rewritten(program, save_checkpoint_steps=None, hooks=[Shift(), saver]) != set()
    with v1.Session() as session:
        v1.train.Saver().restore(session, os.path.join(program.folder, "model.ckpt-2"))
        assert list(session.run(program.weight)) == [3.0] * 3


def test_another_saver_saves(program: Program) -> None:
    program.train(2)
    saver = train.CheckpointSaverHook(program.folder, save_steps=2, saver=v1.train.Saver([program.step]))
    assert rewritten(program, save_checkpoint_steps=None, hooks=[saver]) != set()


def test_a_saver_of_somebodys_own_saves(program: Program) -> None:
    saved = []

    class Uploads(v1.train.Saver):
        def save(self, *args: Any, **kwargs: Any) -> Any:
            saved.append(args)
            return super().save(*args, **kwargs)

    scaffold = v1.train.Scaffold(saver=Uploads())
    program.train(2, scaffold=scaffold)
    del saved[:]
    assert rewritten(program, scaffold=scaffold) != set()
    assert len(saved) == 1


def test_what_a_partial_restore_has_added_is_saved(program: Program, counting_step: Any) -> None:
    program.train(2)
    with tf.Graph().as_default():
        grown = Program(program.folder, counting_step)
        v1.get_variable("new", [], initializer=v1.zeros_initializer())
        assert rewritten(grown, restore="partial") != set()
    assert "new" in dict(v1.train.list_variables(os.path.join(program.folder, "model.ckpt-2")))


def test_the_state_file_is_put_right(program: Program) -> None:
    program.train(4)
    os.remove(os.path.join(program.folder, "checkpoint"))
    program.train(0)
    state = v1.train.get_checkpoint_state(program.folder)
    assert os.path.basename(state.model_checkpoint_path) == "model.ckpt-4"
    assert [os.path.basename(path) for path in state.all_model_checkpoint_paths] == ["model.ckpt-4"]


def test_a_damaged_one_isnt_named_any_more(program: Program) -> None:
    program.train(4)
    with open(os.path.join(program.folder, "model.ckpt-4.index"), "r+b") as file:
        file.truncate(10)
    program.train(0)
    assert os.path.basename(v1.train.latest_checkpoint(program.folder)) == "model.ckpt-2"


def test_an_older_one_that_was_named_is_left_alone(program: Program) -> None:
    """To go back, a person names an older checkpoint in the first line of the state file."""
    program.train(6)
    state = os.path.join(program.folder, "checkpoint")
    with open(state, encoding="utf-8") as file:
        first, *others = file.read().splitlines()
    with open(state, "w", encoding="utf-8") as file:
        file.write("\n".join([first.replace("model.ckpt-6", "model.ckpt-2"), *others]))
    assert rewritten(program) == set()
    named = v1.train.get_checkpoint_state(program.folder)
    assert os.path.basename(named.model_checkpoint_path) == "model.ckpt-2"
    paths = [os.path.basename(path) for path in named.all_model_checkpoint_paths]
    assert sorted(paths) == ["model.ckpt-0", "model.ckpt-2", "model.ckpt-4", "model.ckpt-6"]
    # It counts as the newest, as after a save: the next ones are deleted last.
    assert paths[-1] == "model.ckpt-2"


def test_a_missing_graph_is_added(program: Program) -> None:
    program.train(2)
    meta_graph = os.path.join(program.folder, "model.ckpt-2.meta")
    os.remove(meta_graph)
    program.train(0)
    with tf.Graph().as_default() as graph:
        v1.train.import_meta_graph(meta_graph)
        assert "weight" in [op.name for op in graph.get_operations()]


def test_after_a_recovery(program: Program) -> None:
    failures = [tf.errors.AbortedError(None, None, "preempted")]
    seen: list[dict[str, Any]] = []

    class Preempted(v1.train.SessionRunHook):
        def before_run(self, run_context: Any) -> None:
            seen.append(program.files())
            if len(seen) == 5:
                raise failures.pop()

    program.train(5, hooks=[Preempted()])
    index = "model.ckpt-4.index"
    assert seen[4][index] == seen[5][index]
    assert not failures


def test_a_supervisors_service_leaves_it_alone(program: Program) -> None:
    def supervised(steps: int) -> None:
        sv = train.Supervisor(logdir=program.folder, save_model_secs=10**6, save_summaries_secs=0)
        with sv.managed_session() as session:
            for _ in range(steps):
                session.run(program.op)
            sv.saver.save(session, sv.save_path, global_step=sv.global_step)

    supervised(3)
    path = os.path.join(program.folder, "model.ckpt-3.index")
    before = os.stat(path)
    sv = train.Supervisor(logdir=program.folder, save_model_secs=10**6, save_summaries_secs=0)
    with sv.managed_session() as session:
        # The service has saved at once, in its thread.
        assert sv._save(session, sv.saver, sv.save_path, sv.global_step) == path.removesuffix(".index")
        assert (before.st_ino, before.st_mtime_ns) == (os.stat(path).st_ino, os.stat(path).st_mtime_ns)
        session.run(program.op)
        assert sv._save(session, sv.saver, sv.save_path, sv.global_step).endswith("-4")
        # And not again what it has saved itself.
        path = os.path.join(program.folder, "model.ckpt-4.index")
        before = os.stat(path)
        sv._save(session, sv.saver, sv.save_path, sv.global_step)
        assert (before.st_ino, before.st_mtime_ns) == (os.stat(path).st_ino, os.stat(path).st_mtime_ns)


def test_tensorflows_session_saves_as_ever(program: Program) -> None:
    program.train(2)
    newest = program.files()["model.ckpt-2.index"]
    hook = train.CheckpointSaverHook(program.folder, save_steps=2)
    with v1.train.MonitoredTrainingSession(
        checkpoint_dir=program.folder, save_checkpoint_secs=None, log_step_count_steps=None, hooks=[hook]
    ):
        pass
    assert program.files()["model.ckpt-2.index"] != newest
