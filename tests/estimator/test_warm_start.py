"""Where a warm start and an export take their values from, and what is said where there are none."""

from __future__ import annotations

import os
import shutil
from typing import Any

import pytest
import tensorflow as tf

from fastsup import estimator as est
from fastsup import train


@pytest.fixture
def trained(make: Any, input_fn: Any) -> Any:
    """A model that was trained for a step."""
    return make().train(input_fn, steps=1)


def test_settings_of_wrong_types() -> None:
    with pytest.raises(TypeError, match=r"^ckpt_to_initialize_from must be the path of a checkpoint, got 5\.$"):
        est.WarmStartSettings(5)
    for name in ("var_name_to_vocab_info", "var_name_to_prev_var_name"):
        with pytest.raises(TypeError, match=rf"^{name} must be a dictionary from names of variables, got \['a'\]\.$"):
            est.WarmStartSettings("model", **{name: ["a"]})


def test_a_directory_without_checkpoint(make: Any, input_fn: Any, tmp_path: Any) -> None:
    (tmp_path / "old").mkdir()
    model = make(warm_start_from=str(tmp_path / "old"))
    with pytest.raises(ValueError, match=r"^There is no checkpoint for warm_start_from='.*/old'\. .*/old is empty"):
        model.train(input_fn, steps=1)


def test_a_checkpoint_that_is_not_there(make: Any, input_fn: Any) -> None:
    text = "Failed to find any matching files for /nowhere. It was passed as warm_start_from: pass the path of a check"
    with pytest.raises(tf.errors.NotFoundError, match=text):
        make(warm_start_from="/nowhere").train(input_fn, steps=1)


def test_variables_that_there_are_not(make: Any, trained: Any, input_fn: Any, tf_log: Any, tmp_path: Any) -> None:
    settings = est.WarmStartSettings(trained.model_dir, vars_to_warm_start="nothing")
    make(warm_start_from=settings, model_dir=str(tmp_path / "new")).train(input_fn, steps=1)
    assert "Nothing is warm-started: vars_to_warm_start='nothing' matches no trainable variable" in tf_log.text


def test_a_directory_whose_state_file_is_lost(make: Any, trained: Any, input_fn: Any, tf_log: Any) -> None:
    """One model, one state: training would go on from its checkpoint, and so is another model started from it."""
    os.remove(os.path.join(trained.model_dir, "checkpoint"))
    new = trained.model_dir + "-new"
    make(warm_start_from=trained.model_dir, model_dir=new).train(input_fn, steps=1)
    assert f"Warm-starting from: {trained.model_dir}/model.ckpt-1" in tf_log.messages


def test_a_copy_of_a_directory_whose_original_is_still_there(make: Any, trained: Any, tmp_path: Any) -> None:
    """The state file of a Saver names whole paths. What lies in the copy is taken, as training would go on from it."""
    state = tf.train.get_checkpoint_state(trained.model_dir)
    with open(os.path.join(trained.model_dir, "checkpoint"), "w") as file:
        file.write(f'model_checkpoint_path: "{state.model_checkpoint_path}"\n')
    assert os.path.isabs(state.model_checkpoint_path)
    copy = str(tmp_path / "copy")
    shutil.copytree(trained.model_dir, copy)
    assert make(model_dir=copy).latest_checkpoint() == f"{copy}/model.ckpt-1"
    assert trained.latest_checkpoint() == f"{trained.model_dir}/model.ckpt-1"


def test_export_of_a_damaged_checkpoint(trained: Any, tmp_path: Any) -> None:
    """TensorFlow raises OutOfRangeError, which elsewhere is the end of the input, and doesn't say which file."""
    path = trained.latest_checkpoint()
    with open(f"{path}.data-00000-of-00001", "r+b") as file:
        file.truncate(3)

    def receiver() -> Any:
        x = tf.compat.v1.placeholder(tf.float32, [None, 2])
        return est.export.ServingInputReceiver({"x": x}, {"x": x})

    with pytest.raises(
        train.NoIntactCheckpointError, match=f"{path} can't be restored, and is left unchanged: .*less bytes"
    ):
        trained.export_saved_model(str(tmp_path / "export"), receiver)
