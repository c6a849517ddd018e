"""What is left of exports that fail or are killed."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from fastsup import estimator as est
from fastsup.estimator.export.export_folders import temporary_export

LONG_AGO = 1_000_000_000.0


def leave(folder: Path, name: str, changed: float | None = None) -> Path:
    """A folder that a killed process has left behind, with a file in its own folder."""
    path = folder / name
    (path / "variables").mkdir(parents=True)
    (path / "variables" / "variables.data").write_bytes(b"data")
    if changed is not None:
        os.utime(path / "variables", (changed, changed))
        os.utime(path, (changed, changed))
    return path


def test_the_next_export_deletes_what_was_left(make: Any, input_fn: Any, tmp_path: Path, tf_log: Any) -> None:
    model = make()
    model.train(input_fn)
    exports = tmp_path / "exports"
    stale = leave(exports, "temp-1600000000", LONG_AGO)
    kept = [leave(exports, "1500000000", LONG_AGO), leave(exports, "temp-mine", LONG_AGO)]
    being_made = leave(exports, "temp-1700000000")
    receiver = est.export.build_parsing_serving_input_receiver_fn({"x": tf.io.FixedLenFeature([2], tf.float32)})
    made = Path(model.export_saved_model(str(exports), receiver).decode())
    assert not stale.exists()
    assert sorted(exports.iterdir()) == sorted([*kept, being_made, made])
    assert f"Deleting {stale}, an export that was never finished." in tf_log.messages


def test_one_whose_parts_are_newer_is_being_made(tmp_path: Path) -> None:
    """The time of a folder is that of its own entries, not of what its folders hold."""
    folder = leave(tmp_path, "temp-1600000000")
    os.utime(folder, (LONG_AGO, LONG_AGO))
    with temporary_export(str(tmp_path / "temp-1700000000")):
        pass
    assert folder.exists()


@pytest.mark.parametrize("error", [tf.errors.OutOfRangeError(None, None, "x; File too large"), KeyboardInterrupt()])
def test_an_export_that_fails_leaves_nothing(tmp_path: Path, error: BaseException) -> None:
    expected = tf.errors.ResourceExhaustedError if isinstance(error, tf.errors.OpError) else type(error)
    path = tmp_path / "temp-1700000000"
    with pytest.raises(expected):
        with temporary_export(os.fsencode(path)):
            leave(tmp_path, path.name)
            raise error
    assert not path.exists()


def test_a_folder_that_isnt_there_yet(tmp_path: Path) -> None:
    with temporary_export(str(tmp_path / "new" / "temp-1700000000")):
        pass


def test_one_that_failed_in_this_second_and_is_still_there(make: Any, input_fn: Any, tmp_path: Path) -> None:
    """On a full disk it could not be deleted."""
    model = make()
    model.train(input_fn)
    exports = tmp_path / "exports"
    left = [leave(exports, f"temp-{int(time.time()) + seconds}") for seconds in range(3)]
    receiver = est.export.build_parsing_serving_input_receiver_fn({"x": tf.io.FixedLenFeature([2], tf.float32)})
    made = Path(model.export_saved_model(str(exports), receiver).decode())
    assert sorted(exports.iterdir()) == sorted([*left, made])
