"""Directories of checkpoints whose names TensorFlow takes for patterns."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import fastsup
from fastsup.loop import CheckpointHook

v1 = tf.compat.v1

PATTERNS = ["a[1]", "a[!x]b", "a*b", "a?b", "a\\b"]
NO_PATTERNS = ["a[x", "a]b", "a{b}", "a b", "a#b%20", "ä~b"]


def train(impl: Any, directory: str, steps: int = 3) -> int:
    with tf.Graph().as_default():
        op = v1.assign_add(v1.train.get_or_create_global_step(), 1)
        scaffold = v1.train.Scaffold(saver=v1.train.Saver(max_to_keep=1))
        with impl.train.MonitoredTrainingSession(
            checkpoint_dir=directory, save_checkpoint_steps=1, scaffold=scaffold
        ) as session:
            for _ in range(steps):
                step = session.run(op)
    return int(step)


def in_a_session(directory: str) -> None:
    train(fastsup, directory)


def in_a_session_that_only_restores(directory: str) -> None:
    with tf.Graph().as_default():
        v1.train.get_or_create_global_step()
        fastsup.train.MonitoredSession(fastsup.train.ChiefSessionCreator(checkpoint_dir=directory))


def in_a_saver_hook(directory: str) -> None:
    fastsup.train.CheckpointSaverHook(directory, save_steps=1)


def in_a_supervisor(directory: str) -> None:
    with tf.Graph().as_default():
        v1.train.get_or_create_global_step()
        fastsup.train.Supervisor(logdir=directory)


def in_an_estimator(directory: str) -> None:
    fastsup.estimator.Estimator(lambda features: None, directory)


def in_the_config_of_an_estimator(directory: str) -> None:
    fastsup.estimator.Estimator(lambda features: None, config=fastsup.estimator.RunConfig(model_dir=directory))


def in_a_loop(directory: str) -> None:
    CheckpointHook(tf.train.Checkpoint(), every_steps=1, directory=directory)


def in_the_manager_of_a_loop(directory: str) -> None:
    CheckpointHook(tf.train.CheckpointManager(tf.train.Checkpoint(), directory, None), every_steps=1)


USES = [
    in_a_session, in_a_session_that_only_restores, in_a_saver_hook, in_a_supervisor, in_an_estimator,
    in_the_config_of_an_estimator, in_a_loop, in_the_manager_of_a_loop,
]  # fmt: skip


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("name", ["a[1]", "a*b"])
def test_are_refused_before_anything_is_saved(use: Callable[[str], None], name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"can't hold checkpoints: TensorFlow treats '(\[1\]|\*)' in it as a pattern"):
        use(str(tmp_path / name))
    # TensorFlow's manager makes its directory itself.
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("name", PATTERNS)
def test_are_refused_by_each_character(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"python -m fastsup docs dropin#checkpoints"):
        in_a_saver_hook(str(tmp_path / name / "model"))


@pytest.mark.slow
@pytest.mark.parametrize("name", NO_PATTERNS)
def test_other_names_resume(impl: Any, name: str, tmp_path: Path) -> None:
    directory = str(tmp_path / name)
    assert [train(impl, directory) for _ in range(2)] == [3, 6]
    assert len([name for name in os.listdir(directory) if name.endswith(".index")]) == 1


@pytest.mark.parametrize("name", ["a[1]", "a\\b"])
def test_tensorflow_does_not_find_them_again(both: Any, name: str, tmp_path: Path) -> None:
    """Why they are refused: if this fails, the reason is gone."""
    directory = str(tmp_path / name)
    assert train(both.tensorflow, directory) == 3
    with pytest.raises(ValueError, match="not a valid checkpoint"):
        train(both.tensorflow, directory)


def test_tensorflow_deletes_those_of_others(both: Any, tmp_path: Path) -> None:
    other = tmp_path / "run-1"
    assert train(both.tensorflow, str(other), steps=2) == 2
    before = sorted(path.name for path in other.glob("*.index"))
    train(both.tensorflow, str(tmp_path / "run-*"))
    assert sorted(path.name for path in other.glob("*.index")) != before
