"""Ways to save for the tests of the harness, in Python alone: a careful one, and others with one mistake each."""

import contextlib
import functools
import os

import numpy
from job import EVERY, SIZE


def _write(path, data, flush=True):
    with open(path, "wb") as file:
        file.write(data)
        if flush:
            file.flush()
            os.fsync(file.fileno())


def _flush_names(folder):
    directory = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _save(folder, step, weights, flush=True):
    """Writes a new file, flushes it, gives it the name of the old one, and flushes that."""
    _write(os.path.join(folder, "new"), weights.tobytes() + bytes([step]), flush)
    os.rename(os.path.join(folder, "new"), os.path.join(folder, "state"))
    if flush:
        _flush_names(folder)


def _restore(folder):
    if "state" not in os.listdir(folder):
        return 0, numpy.zeros(SIZE, "float32")
    with open(os.path.join(folder, "state"), "rb") as file:
        data = file.read()
    return data[-1], numpy.frombuffer(data[:-1], "float32", SIZE)


def _save_in_place(folder, step, weights):
    _write(os.path.join(folder, "state"), weights.tobytes() + bytes([step]))
    _flush_names(folder)


def _save_silently(folder, step, weights):
    with contextlib.suppress(OSError):
        _save(folder, step, weights)


def _save_apart(folder, step, weights):
    """The weights and the step are in their own files."""
    for name, data in (("weights", weights.tobytes()), ("step", bytes([step]))):
        _write(os.path.join(folder, "new"), data)
        os.rename(os.path.join(folder, "new"), os.path.join(folder, name))
    _flush_names(folder)


def _restore_apart(folder):
    found = os.listdir(folder)
    if "weights" not in found:
        return 0, numpy.zeros(SIZE, "float32")
    with open(os.path.join(folder, "weights"), "rb") as file:
        weights = numpy.frombuffer(file.read(), "float32", SIZE)
    if "step" not in found:
        return 0, weights
    with open(os.path.join(folder, "step"), "rb") as file:
        return file.read()[0], weights


def _restore_if_possible(folder):
    """Takes what can't be read for a directory in which nothing was saved."""
    try:
        return _restore(folder)
    except (OSError, ValueError, IndexError):
        return 0, numpy.zeros(SIZE, "float32")


def _train(job, save=_save, restore=_restore):
    number, weights = restore(job.folder)
    job.started(number, weights)
    while number < job.last:
        number, weights = number + 1, weights + numpy.float32(1)
        if number % EVERY == 0 or number == job.last:
            save(job.folder, number, weights)
            job.returned(number)
        job.rested()


PROGRAMS = {
    "careful": _train,
    "unflushed": functools.partial(_train, save=functools.partial(_save, flush=False)),
    "in_place": functools.partial(_train, save=_save_in_place),
    "in_place_if_possible": functools.partial(_train, save=_save_in_place, restore=_restore_if_possible),
    "silent": functools.partial(_train, save=_save_silently),
    "apart": functools.partial(_train, save=_save_apart, restore=_restore_apart),
}
