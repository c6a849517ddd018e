"""What is left of trainings after faults of the file system.

`python programs.py FUNCTION FOLDER ARGUMENTS` calls a function, and prints what it returns, or each value that it
yields, as JSON.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import resource
import shutil
import sys
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from mutants import FOLDER_MUTANTS, MUTANTS
from overwriting_saves import OVERWRITING, input_pipeline
from tensorflow.core.protobuf import saved_model_pb2
from ways_to_save import EVERY, SIZE, WAYS

import fastsup
from fastsup import train
from fastsup.loop import Checkpoints, NoIntactCheckpointError


def _in_one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def train_once(folder: str, way: str, last: int) -> str:
    """Trains, and returns "ended", or the error in one line."""
    try:
        WAYS[way](folder, last)
    except Exception as error:
        return _in_one_line(error)
    return "ended"


@contextlib.contextmanager
def failing(*faults: str) -> Iterator[None]:
    """With faults, a line of the shim each."""
    spec = os.environ["FAULTS_SPEC"]
    with open(spec + ".new", "w") as file:
        file.write("\n".join(faults))
    os.rename(spec + ".new", spec)
    try:
        yield
    finally:
        os.unlink(spec)


@contextlib.contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Files that become larger fail with EFBIG, as with `ulimit -f`, and on file systems with a limit."""
    del os.environ["FAULTS_LOG"]  # The log is such a file, too.
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def state(folder: str) -> list[Any]:
    """The number of the newest checkpoint, and the one value of its weights."""
    if any(name.startswith("save-") for name in os.listdir(folder)):
        weights = np.zeros(SIZE, np.float32)
        try:
            saved = Checkpoints(folder, {"weights": weights}).restore()
        except NoIntactCheckpointError:
            return [None, None]
        (value,) = set(weights.tolist())
        return [saved.global_step, value] if saved else [None, None]
    path = train.latest_intact_checkpoint(folder)
    if path is None:
        return [None, None]
    reader = tf.train.load_checkpoint(path)
    name = next(name for name in reader.get_variable_to_shape_map() if name.startswith("weights"))
    (value,) = set(reader.get_tensor(name).tolist())
    return [int(path.rpartition("-")[2]), value]


def exports(folder: str) -> list[str]:
    """For each export that has its name: "whole", or why it can't be read."""
    base = os.path.join(folder, "export", "latest")
    return [
        _about_export(os.path.join(base, name))
        for name in (sorted(os.listdir(base)) if os.path.isdir(base) else [])
        if name.isdigit()
    ]


def _about_export(path: str) -> str:
    model = saved_model_pb2.SavedModel()
    try:
        with open(os.path.join(path, "saved_model.pb"), "rb") as file:
            model.ParseFromString(file.read())
        reader = tf.train.load_checkpoint(os.path.join(path, "variables", "variables"))
        sizes = {name: reader.get_tensor(name).size for name in reader.get_variable_to_shape_map()}
    except Exception as error:
        return _in_one_line(error)
    return "whole" if len(model.meta_graphs) == 1 and SIZE in sizes.values() else "empty"


def returned(step: int) -> None:
    """Writes into the log of file operations that the save of a step has returned."""
    with open(os.environ["FAULTS_LOG"], "a") as log:
        log.write(f"returned\t{step}\t\n")


def two_trainings(folder: str, way: str, below: str = "", mutant: str = "") -> list[str]:
    """Trains to step 12, and from there to step 20.

    In the folder or in a new one below it; with a change of mutants.py if one is named.
    """
    folder = os.path.join(folder, below) if below else folder
    if mutant:
        {**MUTANTS, **FOLDER_MUTANTS}[mutant]()
    ended = []
    for last in (12, 20):
        ended.append(train_once(folder, way, last))
        returned(last)
    return ended


def saves_of_one_step(folder: str, way: str) -> list[Any]:
    """Saves step 12 three times, with the weights 1, 2 and 3. Returns what is there then."""
    for value in (1, 2, 3):
        OVERWRITING[way](folder, float(value))
        returned(value)
    return state(folder)


def _saved_once(folder: str, way: str, value: float) -> str:
    """Saves in a way of overwriting_saves.py, and returns "ended", or the error in one line."""
    try:
        OVERWRITING[way](folder, value)
    except Exception as error:
        return _in_one_line(error)
    return "ended"


def after_crashes_of_one_step(folder: str, way: str, crashes: str, count: int, trained: int) -> list[list[Any]]:
    """As `after_crashes`, after `saves_of_one_step`: each Nth saves once more then, with the weights 9."""
    found: list[list[Any]] = []
    for number in range(count):
        _take_crash(crashes, number, folder)
        restored = _state_or_error(folder)
        ended = _saved_once(folder, way, 9.0) if number % trained == 0 else None
        found.append([restored, [], ended, state(folder) if ended else None])
    return found


def inputs_of_one_step(folder: str) -> None:
    """Saves the state of an input twice at its end, which is step 12."""
    for value in (1, 2):
        input_pipeline(folder)
        returned(value)


def after_crashes_of_inputs(folder: str, crashes: str, count: int) -> list[int | str]:
    """Goes on from what crashes have left after `inputs_of_one_step`: the last step, or the error."""
    found: list[int | str] = []
    for number in range(count):
        _take_crash(crashes, number, folder)
        try:
            input_pipeline(folder)
        except Exception as error:
            found.append(_in_one_line(error))
        else:
            found.append(int(str(tf.train.latest_checkpoint(folder)).rpartition("-")[2]))
    return found


def keras_backups(folder: str) -> list[list[float]]:
    """Keras's `fit` with `BackupAndRestore`, plain and accelerated: the losses and the weights of each."""
    return [_keras_backups(os.path.join(folder, name), name == "accelerated") for name in ("plain", "accelerated")]


def _keras_backups(folder: str, accelerated: bool) -> list[float]:
    """Of two epochs, and then from there of four."""
    data = np.arange(30, dtype="float32").reshape(10, 3) / 30
    numbers: list[float] = []
    for epochs in (2, 4):
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        model.compile(optimizer="sgd", loss="mse", jit_compile=False)
        if accelerated:
            fastsup.keras.accelerate(model)
        backup = keras.callbacks.BackupAndRestore(folder, save_freq=2, delete_checkpoint=False)
        settings = {"batch_size": 2, "epochs": epochs, "shuffle": False, "verbose": 0, "callbacks": [backup]}
        numbers += model.fit(data, data[:, :1], **settings).history["loss"]
        numbers += model.get_weights()[0].ravel().tolist()
    return numbers


def _take_crash(crashes: str, number: int, folder: str) -> None:
    """Puts what a crash has left in the place of the folder."""
    shutil.rmtree(folder)
    os.rename(os.path.join(crashes, str(number)), folder)


def _state_or_error(folder: str) -> list[Any]:
    try:
        return state(folder)
    except Exception as error:
        return [_in_one_line(error)]


def after_crashes(folder: str, way: str, crashes: str, count: int, trained: int) -> list[list[Any]]:
    """What is found after crashes, of each of which the folder `crashes/NUMBER` has what it has left.

    That is moved to the folder of the training, since state files may name files with their directory. Then: what can
    be restored, or the error; how the exports are; how a training to step 20 ended, for every Nth, or None; and what
    can be restored then.
    """
    found: list[list[Any]] = []
    for number in range(count):
        goes_on = number % trained == 0
        _take_crash(crashes, number, folder)
        restored = _state_or_error(folder)
        exported = exports(folder)
        ended = train_once(folder, way, 20) if goes_on else None
        found.append([restored, exported, ended, state(folder) if goes_on else None])
    return found


def without_and_with_a_limit(folder: str, way: str) -> list[list[Any]]:
    """Trains to step 12, then from there to step 20, then writes a file "marker". And the same with a limit."""
    without = [train_once(folder, way, 12), state(folder), train_once(folder, way, 20), state(folder)]
    with open(os.path.join(folder, "marker"), "w"):
        pass
    return [without, too_large(folder, way)]


def too_large(folder: str, way: str) -> list[Any]:
    """A save fails, since the file is too large. After that there is room again."""
    shutil.rmtree(folder)
    os.mkdir(folder)
    train_once(folder, way, EVERY)
    before = sorted(os.listdir(folder))
    with files_of_at_most(3 * SIZE):
        ended = train_once(folder, way, 2 * EVERY)
    left = [name for name in sorted(os.listdir(folder)) if name not in before and "tfevents" not in name]
    return [ended, left, train_once(folder, way, 12), state(folder)]


def _continued(base: str, folder: str, way: str, faults: list[str]) -> list[Any]:
    """A training to step 20 from a copy of a folder, under faults and then without: how both ended, what is there."""
    shutil.rmtree(folder)
    shutil.copytree(base, folder)
    with failing(*faults):
        under_faults = train_once(folder, way, 20)
    return [under_faults, state(folder), train_once(folder, way, 20), state(folder)]


def _trained(folder: str, way: str, last: int = 12) -> str:
    """A copy of a folder in which a training has ended, where no operation fails. With step 0: of an empty folder."""
    if last:
        train_once(folder, way, last)
    base = f"{os.path.dirname(folder)}/base"
    shutil.copytree(folder, base)
    return base


def each_fault(folder: str, way: str, faults: list[list[str]]) -> list[list[Any]]:
    """For each list of faults: a training to step 12 that is continued to step 20, under the faults and without."""
    base = _trained(folder, way)
    return [_continued(base, folder, way, lines) for lines in faults]


def _failed() -> list[str]:
    """What has failed, as the log has it: "operation name" of each."""
    with open(os.environ["FAULTS_LOG"]) as log:
        lines = [line.rstrip().split("\t") for line in log if line.startswith("failed\t")]
    return [f"{operation} {os.path.basename(path)}" for _, path, operation in lines]


def each_operation(
    folder: str, way: str, start: int, fault: str, lasting: bool, first: int, stride: int
) -> Iterator[list[Any]]:
    """A training to a step that is continued to step 20, where the Nth operation fails, or all from the Nth on.

    For N = first, first + stride, ... to the end. Each result begins with what has failed first. If the process
    crashes, another one goes on: its first result is what the crash has left.
    """
    base = f"{os.path.dirname(folder)}/base"
    if os.path.exists(base):
        yield [_failed()[-1], "crashed", state(folder), train_once(folder, way, 20), state(folder)]
    else:
        _trained(folder, way, start)
    for nth in itertools.count(first, stride):
        with open(os.environ["FAULTS_LOG"], "w"):
            pass
        result = _continued(base, folder, way, [f"any,/,{nth},{0 if lasting else nth},{fault}"])
        failed = _failed()
        if not failed:
            return
        yield [failed[0], *result]


if __name__ == "__main__":
    returned_value = globals()[sys.argv[1]](sys.argv[2], *json.loads(sys.argv[3]))
    for value in returned_value if isinstance(returned_value, Iterator) else [returned_value]:
        print(json.dumps(value), flush=True)
