"""Which checkpoint is restored, and what is said of the others."""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.training import py_checkpoint_reader

from fastsup import train

v1 = tf.compat.v1


class Model:
    """A directory with checkpoints of one variable, whose value is the step."""

    def __init__(self, folder: Any) -> None:
        self.folder = str(folder)

    def path(self, step: int, name: str = "model.ckpt") -> str:
        return os.path.join(self.folder, f"{name}-{step}")

    def save(self, *steps: int, name: str = "model.ckpt", **arguments: Any) -> None:
        with tf.Graph().as_default(), v1.Session() as session:
            v = v1.get_variable("v", initializer=tf.constant(0.0))
            saver = v1.train.Saver(**arguments)
            for step in steps:
                session.run(v1.assign(v, step))
                saver.save(session, os.path.join(self.folder, name), step)

    def damage(self, *steps: int) -> None:
        for step in steps:
            with open(self.path(step) + ".data-00000-of-00001", "r+b") as file:
                file.write(b"\xff\xff")

    def state(self, text: str | None) -> None:
        path = os.path.join(self.folder, "checkpoint")
        if text is None:
            os.remove(path)
        else:
            with open(path, "w") as file:
                file.write(text)

    def restore(self, **arguments: Any) -> tuple[float, list[str]]:
        """The value that is restored, and the checkpoints that the saver goes on with."""
        with tf.Graph().as_default():
            v = v1.get_variable("v", initializer=tf.constant(-1.0))
            saver = v1.train.Saver()
            with train.SessionManager(**arguments).prepare_session(
                "", init_op=v.initializer, saver=saver, checkpoint_dir=self.folder
            ) as session:
                return float(session.run(v)), [os.path.relpath(path, self.folder) for path in saver.last_checkpoints]


@pytest.fixture
def model(tmp_path: Any) -> Model:
    folder = tmp_path / "model"
    folder.mkdir()
    return Model(folder)


@pytest.fixture
def warnings(tf_log: Any) -> Callable[[], list[str]]:
    """The warnings so far, without TensorFlow's notes on deprecation."""

    def messages() -> list[str]:
        found = [record.getMessage() for record in tf_log.records if record.levelname == "WARNING"]
        return [message for message in found if not message.startswith("From ")]

    return messages


def numbered(*steps: int) -> list[str]:
    return [f"model.ckpt-{step}" for step in steps]


# The order.


def test_the_newest_is_restored_and_the_rest_rotates(model: Model, warnings: Any) -> None:
    model.save(1, 2, 10)
    assert model.restore() == (10.0, numbered(1, 2, 10))
    assert warnings() == []


def test_damaged_ones_are_passed_over_and_not_rotated(model: Model, warnings: Any) -> None:
    model.save(1, 2, 10, 11)
    model.damage(10, 11)
    assert model.restore() == (2.0, numbered(1, 2))
    assert [message.split(" ")[2] for message in warnings()] == [model.path(11), model.path(10)]


def test_the_rotation_leaves_damaged_ones_alone(model: Model) -> None:
    model.save(1, 2, 3)
    model.damage(3)
    with tf.Graph().as_default():
        v = v1.get_variable("v", initializer=tf.constant(-1.0))
        saver = v1.train.Saver(max_to_keep=2)
        with train.SessionManager().prepare_session("", saver=saver, checkpoint_dir=model.folder) as session:
            assert session.run(v) == 2.0
            for step in (4, 5):
                saver.save(session, os.path.join(model.folder, "model.ckpt"), step)
    left = {name.split(".")[1] for name in os.listdir(model.folder) if name.startswith("model")}
    assert left == {"ckpt-3", "ckpt-4", "ckpt-5"}


def test_an_edited_state_file_is_obeyed(model: Model, warnings: Any) -> None:
    model.save(1, 2, 3)
    model.state(f'model_checkpoint_path: "{model.path(2)}"\nall_model_checkpoint_paths: "{model.path(2)}"')
    assert model.restore() == (2.0, numbered(2))
    assert warnings() == []
    model.damage(2)
    assert model.restore()[0] == 3.0


def test_steps_are_compared_as_numbers(model: Model, warnings: Any) -> None:
    model.save(9, 10, 100)
    model.state(None)
    assert model.restore() == (100.0, numbered(100))
    (warning,) = warnings()
    assert warning.startswith("There is no state file")
    assert train.latest_intact_checkpoint(model.folder) == model.path(100)
    model.damage(100)
    assert train.latest_intact_checkpoint(model.folder) == model.path(10)


def test_other_programs_checkpoints_are_not_meant(model: Model) -> None:
    """A state file tells which name is meant. One without a step is taken only if the state file names it."""
    model.save(1, 2)
    model.save(500, name="best", save_relative_paths=True)
    model.state(f'model_checkpoint_path: "{model.path(2)}"')
    model.damage(2)
    assert model.restore()[0] == 1.0
    shutil.rmtree(model.folder)
    os.mkdir(model.folder)
    model.save(7)
    model.state(None)
    for ending in (".index", ".data-00000-of-00001"):
        os.rename(model.path(7) + ending, os.path.join(model.folder, "pretrained" + ending))
    assert model.restore()[0] == -1.0


def test_names_without_a_step(model: Model, warnings: Any) -> None:
    for name in ("first", "second"):
        with tf.Graph().as_default(), v1.Session() as session:
            v = v1.get_variable("v", initializer=tf.constant(float(len(name))))
            session.run(v.initializer)
            v1.train.Saver().save(session, os.path.join(model.folder, name))
    os.utime(os.path.join(model.folder, "first.index"), (1, 1))
    os.remove(os.path.join(model.folder, "second.index"))
    paths = [os.path.join(model.folder, name) for name in ("first", "second")]
    model.state(
        f'model_checkpoint_path: "{paths[1]}"\nall_model_checkpoint_paths: "{paths[0]}"\n'
        f'all_model_checkpoint_paths: "{paths[1]}"'
    )
    assert model.restore() == (5.0, ["first"])
    assert len(warnings()) == 1


def test_the_old_format(model: Model, warnings: Any) -> None:
    """One file without an index, as it was before 2016."""
    with tf.Graph().as_default(), v1.Session() as session:
        v = v1.get_variable("v", initializer=tf.constant(0.0))
        saver = v1.train.Saver(write_version=v1.train.SaverDef.V1)
        for step in (1, 2):
            session.run(v1.assign(v, step))
            saver.save(session, os.path.join(model.folder, "model.ckpt"), step)
    before = len(warnings())
    assert model.restore()[0] == 2.0
    with open(model.path(2), "r+b") as file:
        file.truncate(10)
    assert model.restore()[0] == 1.0
    assert len(warnings()) == before + 1


@pytest.mark.parametrize("state_file", [True, False])
def test_shards_of_the_old_format(model: Model, warnings: Any, state_file: bool) -> None:
    """The path of such a checkpoint is a pattern. It stays in the rotation, and an older one takes its place."""
    model.save(9, 10, 11, sharded=True, write_version=v1.train.SaverDef.V1)
    if not state_file:
        model.state(None)
    paths = [f"model.ckpt-{step}-?????-of-00001" for step in (9, 10, 11)]
    assert model.restore() == (11.0, paths if state_file else paths[-1:])
    with open(model.path(11) + "-00000-of-00001", "r+b") as file:
        file.truncate(10)
    assert model.restore() == (10.0, paths[:2] if state_file else [paths[1]])
    assert [message for message in warnings() if "can't be restored and is left unchanged" in message]


# Copies.


def test_a_copy_is_used_itself(model: Model, warnings: Any, tmp_path: Any) -> None:
    """The original may still be there, and may have moved on: it isn't looked at."""
    model.save(1, 2)
    copy = Model(tmp_path / "copy")
    shutil.copytree(model.folder, copy.folder)
    model.damage(1, 2)
    assert copy.restore() == (2.0, numbered(1, 2))
    shutil.rmtree(model.folder)
    assert copy.restore() == (2.0, numbered(1, 2))
    assert len(warnings()) == 2
    assert all("in another directory" in warning for warning in warnings())
    copy.damage(2)
    assert copy.restore() == (1.0, numbered(1))


def test_relative_paths_can_be_copied_without_a_word(model: Model, warnings: Any, tmp_path: Any) -> None:
    model.save(1, 2, save_relative_paths=True)
    copy = Model(tmp_path / "copy")
    shutil.move(model.folder, copy.folder)
    assert copy.restore() == (2.0, numbered(1, 2))
    assert warnings() == []


def test_another_place_under_the_same_name(model: Model, warnings: Any, monkeypatch: Any, tmp_path: Any) -> None:
    """A relative path of the directory, and a link to it, are no other place."""
    model.save(1, 2)
    os.symlink(model.folder, tmp_path / "link")
    assert Model(tmp_path / "link").restore()[0] == 2.0
    monkeypatch.chdir(tmp_path)
    assert Model("model").restore()[0] == 2.0
    assert warnings() == []


def test_a_state_file_may_lead_elsewhere(model: Model, warnings: Any, tmp_path: Any) -> None:
    """As in TensorFlow; but what lies elsewhere isn't this saver's to delete."""
    model.save(7)
    other = Model(tmp_path / "other")
    os.mkdir(other.folder)
    other.state(f'model_checkpoint_path: "{model.path(7)}"\nall_model_checkpoint_paths: "{model.path(7)}"')
    assert other.restore() == (7.0, [])
    assert warnings() == []
    inside = Model(os.path.join(model.folder, "inside"))
    os.mkdir(inside.folder)
    inside.save(8)
    model.state('model_checkpoint_path: "inside/model.ckpt-8"')
    assert model.restore()[0] == 8.0


# Nothing intact.


def test_none_is_intact(model: Model) -> None:
    model.save(1, 2)
    model.damage(1, 2)
    with pytest.raises(train.NoIntactCheckpointError) as raised:
        model.restore()
    error = raised.value
    assert isinstance(error, tf.errors.DataLossError)
    assert isinstance(error, ValueError)
    assert not isinstance(error, (tf.errors.OutOfRangeError, tf.errors.AbortedError, tf.errors.UnavailableError))
    assert [path for path, _ in error.failures] == [model.path(2), model.path(1)]
    for path, cause in error.failures:
        assert "Checksum does not match" in cause
        assert f"\n  {path}: {cause}\n" in error.message
    assert train.latest_intact_checkpoint(model.folder) is None
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert copy.failures == error.failures
    assert str(copy) == str(error)


def test_all_that_the_state_file_names_is_gone(model: Model) -> None:
    model.save(1, 2)
    for name in os.listdir(model.folder):
        if name != "checkpoint":
            os.remove(os.path.join(model.folder, name))
    with pytest.raises(train.NoIntactCheckpointError, match="none of its files exist"):
        model.restore()


def test_nothing_was_saved(model: Model, warnings: Any, tmp_path: Any) -> None:
    assert model.restore() == (-1.0, [])
    assert Model(tmp_path / "not there").restore() == (-1.0, [])
    assert warnings() == []
    assert train.latest_intact_checkpoint(model.folder) is None
    model.state("")
    assert model.restore() == (-1.0, [])
    assert len(warnings()) == 1
    assert (
        warnings()[0]
        .partition(" See `python")[0]
        .endswith("and the directory contains no checkpoint: there is nothing to restore.")
    )


@pytest.mark.parametrize("left", [0, 100])
def test_a_first_save_that_was_interrupted(model: Model, warnings: Any, left: int) -> None:
    """Without a state file, and with an index that has no end, nothing was ever saved: the job can start."""
    model.save(1)
    model.state(None)
    with open(model.path(1) + ".index", "r+b") as file:
        file.truncate(left)
    assert model.restore() == (-1.0, [])
    assert "nothing had been saved yet" in warnings()[-1]
    os.remove(model.path(1) + ".index")
    del warnings
    assert model.restore() == (-1.0, [])


MARK = ".first_save_under_way"


def fails_in_python(session: Any, path: Any, global_step: Any = None, **_: Any) -> None:
    raise AttributeError("planned")


def fails_with_parts_left(session: Any, path: Any, global_step: Any = None, **_: Any) -> None:
    with open(f"{path}-{global_step}.data-00000-of-00001", "wb") as file:
        file.write(b"some")
    raise tf.errors.UnknownError(None, None, "planned")


def fails_with_an_index(session: Any, path: Any, global_step: Any = None, **_: Any) -> None:
    with open(f"{path}-{global_step}.index", "wb") as file:
        file.write(b"some")
    raise tf.errors.UnknownError(None, None, "planned")


@pytest.mark.parametrize("in_background", [False, True])
@pytest.mark.parametrize("fail", [fails_in_python, fails_with_parts_left, fails_with_an_index])
def test_the_mark_of_a_first_save_that_failed(train_op: Any, tmp_path: Any, fail: Any, in_background: bool) -> None:
    """It goes with the save, unless the save has left an index, which may be torn when the power is lost."""
    saver = v1.train.Saver()
    saver.save = fail
    hook = train.CheckpointSaverHook(str(tmp_path), save_steps=1, saver=saver, async_save=in_background)
    with pytest.raises((AttributeError, tf.errors.UnknownError), match="planned"):
        with train.MonitoredSession(hooks=[hook]) as session:
            session.run(train_op)
    assert (MARK in os.listdir(tmp_path)) == (fail is fails_with_an_index)


def test_a_first_save_that_was_damaged_later(model: Model) -> None:
    model.save(1)
    model.state(None)
    model.damage(1)
    with pytest.raises(train.NoIntactCheckpointError):
        model.restore()


def test_one_checkpoint_that_is_damaged(model: Model) -> None:
    """Asked for by its path, it is the only one that will do."""
    model.save(1, 2)
    with open(model.path(2) + ".data-00000-of-00001", "r+b") as file:
        file.truncate(1)
    with tf.Graph().as_default():
        v1.get_variable("v", initializer=tf.constant(0.0))
        saver = v1.train.Saver()
        with pytest.raises(train.NoIntactCheckpointError, match="Read less bytes") as raised:
            train.SessionManager().prepare_session("", saver=saver, checkpoint_filename_with_path=model.path(2))
    assert raised.value.failures[0][0] == model.path(2)


@pytest.mark.parametrize("kind", ["MonitoredSession", "SingularMonitoredSession"])
def test_it_is_no_end_of_input(model: Model, kind: str) -> None:
    """The error leaves the `with` block, and is what leaves it: not an error of something closed."""
    model.save(1)
    model.damage(1)
    with tf.Graph().as_default():
        v1.get_variable("v", initializer=tf.constant(0.0))
        with pytest.raises(train.NoIntactCheckpointError):
            if kind == "MonitoredSession":
                train.MonitoredSession(train.ChiefSessionCreator(checkpoint_dir=model.folder))
            else:
                train.SingularMonitoredSession(checkpoint_dir=model.folder)


@pytest.mark.parametrize("loop", ["run", "run_loop", "run_without_hooks", "run_step_fn"])
def test_it_reaches_the_caller_in_mid_run(model: Model, counting_step: Any, trace: Any, loop: str) -> None:
    with tf.Graph().as_default():
        step = counting_step()

        def damage_and_abort(*_: Any) -> None:
            for name in os.listdir(model.folder):
                if name.endswith(".index"):
                    os.truncate(os.path.join(model.folder, name), 3)
            raise tf.errors.AbortedError(None, None, "preempted")

        hook = trace.hook("late", before_run=lambda number, _: damage_and_abort() if number == 3 else None)
        calls: dict[str, Callable[[Any], Any]] = {
            "run": lambda session: session.run(step.op),
            "run_loop": lambda session: session.run_loop(step.op, steps=1),
            "run_without_hooks": lambda session: session.run(step.op),
            "run_step_fn": lambda session: session.run_step_fn(
                lambda step_context: step_context.run_with_hooks(step.op)
            ),
        }
        with pytest.raises(train.NoIntactCheckpointError) as raised:
            with train.MonitoredTrainingSession(
                checkpoint_dir=model.folder, hooks=[hook], save_checkpoint_steps=1, save_summaries_steps=None
            ) as session:
                for _ in range(3):
                    calls[loop](session)
                assert not session.should_stop()
                calls[loop](session)
                raise AssertionError("It should have failed.")
        assert len(raised.value.failures) == 4
        assert trace[-1] == "late.before_run"


# What isn't damage.


def test_errors_of_a_machine_are_no_damage(model: Model, warnings: Any) -> None:
    """A server that goes away while it restores is tried again; its checkpoint isn't given up."""
    model.save(1, 2)
    failures = [tf.errors.UnavailableError(None, None, "away"), tf.errors.AbortedError(None, None, "away")]

    class Saver(v1.train.Saver):  # type: ignore[misc]
        def restore(self, sess: Any, save_path: str) -> None:
            if failures:
                raise failures.pop()
            super().restore(sess, save_path)

    with tf.Graph().as_default():
        v = v1.get_variable("v", initializer=tf.constant(0.0))
        creator = train.ChiefSessionCreator(v1.train.Scaffold(saver=Saver()), checkpoint_dir=model.folder)
        with train.MonitoredSession(creator) as session:
            assert session.run(v) == 2.0
    assert [text for text in warnings() if "A new session will be created" not in text] == []


@pytest.mark.parametrize("error", [tf.errors.OutOfRangeError, tf.errors.DataLossError])
def test_damage_that_only_the_server_sees(model: Model, warnings: Any, error: Any) -> None:
    model.save(1, 2)

    class Saver(v1.train.Saver):  # type: ignore[misc]
        def restore(self, sess: Any, save_path: str) -> None:
            if save_path.endswith("-2"):
                raise error(None, None, "short\nread")
            super().restore(sess, save_path)

    with tf.Graph().as_default():
        v = v1.get_variable("v", initializer=tf.constant(0.0))
        with train.SessionManager().prepare_session("", saver=Saver(), checkpoint_dir=model.folder) as session:
            assert session.run(v) == 1.0
    text = f"The checkpoint {model.path(2)} can't be restored and is left unchanged: short read."
    assert warnings() == [f"{text} model.ckpt-1 is tried instead. See `python -m fastsup docs recovery`."]


def test_errors_of_the_program_are_raised_as_they_are(model: Model) -> None:
    model.save(1, 2)

    class Saver(v1.train.Saver):  # type: ignore[misc]
        def restore(self, sess: Any, save_path: str) -> None:
            raise error

    for error in (ValueError("mine"), RuntimeError("mine"), KeyError("mine"), tf.errors.InternalError(None, None, "")):
        with tf.Graph().as_default():
            v1.get_variable("v", initializer=tf.constant(0.0))
            with pytest.raises(type(error)) as raised:
                train.SessionManager().prepare_session("", saver=Saver(), checkpoint_dir=model.folder)
            assert raised.value is error


def test_a_start_reads_no_checkpoint_twice(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    model.save(1, 2)
    read = []
    open_reader = tf.compat.v1.train.NewCheckpointReader

    class Reader:
        """TensorFlow's, with a record of the values that are read."""

        def __init__(self, path: str) -> None:
            self._path, self._reader = path, open_reader(path)

        def get_tensor(self, name: str) -> Any:
            read.append(self._path)
            return self._reader.get_tensor(name)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._reader, name)

    monkeypatch.setattr(py_checkpoint_reader, "NewCheckpointReader", Reader)
    model.restore()
    assert read == []
    model.damage(2)
    model.restore()
    assert read == [model.path(2)]


@pytest.mark.parametrize("ending", [".data-00000-of-00001", ".index"])
@pytest.mark.parametrize("damage", ["cut", "flipped", "missing"])
def test_over_a_server(model: Model, warnings: Any, ending: str, damage: str) -> None:
    """The errors come in other words from there."""
    model.save(1, 2)
    path = model.path(2) + ending
    if damage == "cut":
        os.truncate(path, os.path.getsize(path) // 2)
    elif damage == "missing":
        os.remove(path)
    else:
        with open(path, "r+b") as file:
            first = file.read(1)
            file.seek(0)
            file.write(bytes([first[0] ^ 4]))
    server = v1.train.Server.create_local_server()
    with tf.Graph().as_default():
        v = v1.get_variable("v", initializer=tf.constant(0.0))
        saver = v1.train.Saver()
        with train.SessionManager().prepare_session(server.target, saver=saver, checkpoint_dir=model.folder) as session:
            assert session.run(v) == 1.0
    assert len(warnings()) == 1


# Waiting for a checkpoint that somebody else is writing.


def test_a_wait_outlasts_a_save(model: Model, clock: Any, monkeypatch: pytest.MonkeyPatch, warnings: Any) -> None:
    model.save(3)
    with open(os.path.join(model.folder, "checkpoint")) as file:
        state = file.read()
    with open(model.path(3) + ".index", "rb") as file:
        index = file.read()
    model.state(None)
    os.remove(model.path(3) + ".index")

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        with open(model.path(3) + ".index", "wb") as file:
            file.write(index[: 20 * len(clock.slept)] if len(clock.slept) < 4 else index)
        if len(clock.slept) == 4:
            model.state(state)

    monkeypatch.setattr("time.sleep", sleep)
    with tf.Graph().as_default():
        v = v1.get_variable("v", initializer=tf.constant(0.0))
        manager = train.SessionManager(recovery_wait_secs=1)
        session, recovered = manager.recover_session(
            "", saver=v1.train.Saver(), checkpoint_dir=model.folder, wait_for_checkpoint=True
        )
        with session:
            assert recovered
            assert session.run(v) == 3.0
    assert clock.slept == [1, 1, 1, 1]
    assert warnings() == []


@pytest.mark.parametrize("use_resource", [True, False])
def test_another_shape_is_warned_of(tmp_path: Any, tf_log: Any, use_resource: bool) -> None:
    """A resource variable takes the shape of the checkpoint, as in TensorFlow; a reference variable refuses it."""

    def train_with(size: int) -> Any:
        with tf.Graph().as_default():
            v1.get_variable("hidden", [2, size], initializer=v1.zeros_initializer(), use_resource=use_resource)
            step = v1.assign_add(train.get_or_create_global_step(), 1)
            with train.MonitoredTrainingSession(checkpoint_dir=str(tmp_path), save_checkpoint_steps=1) as session:
                return session.run(step)

    assert train_with(3) == 1
    tf_log.clear()
    if not use_resource:
        with pytest.raises(tf.errors.InvalidArgumentError, match="shapes"):
            train_with(4)
        return
    assert train_with(4) == 2
    text = (
        f"{tmp_path / 'model.ckpt-1'} has variables with other shapes, which are used: hidden is (2, 4) in the model "
        f"and "
    )
    assert any(message.startswith(text + "(2, 3) in the checkpoint.") for message in tf_log.messages)
    tf_log.clear()
    assert train_with(3) == 3
    assert "other shapes" not in tf_log.text
