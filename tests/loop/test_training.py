"""`train`, the loop with what it usually needs; and batches that know their epochs."""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from processes import Processes

import fastsup
from fastsup.loop import (
    Checkpoints,
    CsvWriter,
    Epochs,
    Hook,
    NanResultError,
    StepLoop,
    StopAtStepHook,
    SummaryHook,
    every,
    train,
)


def numbers_in(directory: Path, name: str) -> list[tuple[int, float]]:
    """The steps and values of a number in the file of metrics."""
    rows = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    return [(row["step"], row["value"]) for row in rows if row["name"] == name]


class Model:
    """Counts its batches."""

    def __init__(self) -> None:
        self.state: dict[str, Any] = {"steps": 0, "seen": []}

    def step(self, batch: Any) -> float:
        self.state["steps"] += 1
        self.state["seen"].append(int(np.sum(batch)))
        return 1 / self.state["steps"]

    def evaluate(self) -> dict[str, float]:
        return {"distance": abs(self.state["steps"] - 250)}


def test_the_usual(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, data = Model(), fastsup.ArrayBatches(np.arange(10), 2, shuffle=True, epochs=None)
    options: dict[str, Any] = {"evaluate": model.evaluate, "evaluate_steps": 50, "metric": "distance", "mode": "min"}
    loop = train(model.step, data, max_steps=300, states={"model": model.state}, directory=tmp_path, **options)
    assert (loop.global_step, loop.evaluation) == (300, {"distance": 50})
    assert numbers_in(tmp_path, "loss") == [(100, 0.01), (200, 1 / 200), (300, 1 / 300)]
    assert [step for step, _ in numbers_in(tmp_path, "eval/distance")] == [50, 100, 150, 200, 250, 300]
    # The newest, and the best, of which each was saved.
    saved = Checkpoints(tmp_path, {"model": {}}).saved()
    assert [one.global_step for one in saved] == [300, 250, 200, 150, 100]
    assert "step 300 of 300" in capsys.readouterr().err.replace(",", "")
    again, data = Model(), fastsup.ArrayBatches(np.arange(10), 2, shuffle=True, epochs=None)
    loop = train(again.step, data, max_steps=310, states={"model": again.state}, directory=tmp_path, progress=False)
    assert (loop.restored_step, loop.steps, again.state["steps"]) == (300, 10, 310)
    # Each epoch has each row, as without a restart.
    assert sum(again.state["seen"][:305]) == 61 * sum(range(10))


def test_it_stops_early_and_restores_the_best(tmp_path: Path) -> None:
    model = Model()
    loop = train(
        model.step, [1, 2], max_steps=9_000, states={"model": model.state}, directory=tmp_path, progress=False,
        evaluate=model.evaluate, evaluate_steps=50, metric="distance", mode="min", patience=2,
    )  # fmt: skip
    assert (loop.global_step, model.state["steps"]) == (350, 250)


def test_evaluations_come_with_the_epochs() -> None:
    seen: list[int] = []

    def evaluate(loop: Any) -> int:
        seen.append(loop.global_step)
        return 0

    train(lambda batch: None, [1, 2, 3], max_steps=8, evaluate=evaluate, progress=False)
    assert seen == [3, 6, 8]
    seen.clear()
    train(lambda batch: None, (i for i in range(2001)), evaluate=evaluate, progress=False)
    assert seen == [1000, 2000, 2001]


def test_batches_give_arguments() -> None:
    seen: list[Any] = []
    for batch in ((1, 2), [1, 2]):
        train(lambda x, y: seen.append((x, y)), [batch], progress=False)
    train(lambda batch: seen.append(batch), [{"x": 1}, 3], progress=False)
    assert seen == [(1, 2), (1, 2), {"x": 1}, 3]


def test_data_of_tensorflow() -> None:
    import tensorflow as tf

    total = tf.Variable(0, dtype=tf.int64)

    @tf.function  # type: ignore[untyped-decorator, unused-ignore]
    def step(x: Any, y: Any) -> Any:
        return total.assign_add(x + y)

    train(step, tf.data.Dataset.range(4).map(lambda x: (x, x)), progress=False)
    assert total.numpy() == 12


def test_without_data_and_with_hooks() -> None:
    seen: list[int] = []
    hook = every(10)(lambda loop: seen.append(loop.global_step))
    loop = train(int, hooks=[hook, StopAtStepHook(25)], progress=False)
    assert (loop.global_step, seen) == (25, [10, 20])


async def coroutine(batch: Any = None) -> float:
    return 1.0


def test_numbers_are_also_written_elsewhere(tmp_path: Path) -> None:
    """As train's docstring says."""
    writer = CsvWriter(tmp_path / "metrics.csv")
    train(float, [1, 2, 3, 4], evaluate=lambda: 5.0, hooks=[SummaryHook(writer, 2)], progress=False)
    writer.close()
    rows = [line.split(",") for line in (tmp_path / "metrics.csv").read_text().splitlines()[1:]]
    assert [(row[0], *row[2:]) for row in rows] == [
        ("2", "loss", "2.0"),
        ("4", "eval/loss", "5.0"),
        ("4", "loss", "4.0"),
    ]


def test_epochs_of_data() -> None:
    steps: list[int] = []
    assert train(steps.append, [1, 2, 3], epochs=2, progress=False).global_step == 6
    assert train(steps.append, lambda epoch: [epoch], epochs=4, max_steps=3, progress=False).global_step == 3
    assert steps == [1, 2, 3, 1, 2, 3, 0, 1, 2]


def test_fewer_epochs_than_were_trained(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for epochs, last in (5, 15), (2, 15), (6, 18):
        states = {"state": {"steps": 0}}
        loop = train(float, [1, 2, 3], epochs=epochs, states=states, directory=tmp_path, progress=False)
        assert loop.global_step == last
    assert caplog.text.count("No step was run: the checkpoint of global step 15 is at the end of the data.") == 1


def test_data_that_ends_early_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    train(float, (i for i in range(3)), max_steps=100, progress=False)
    assert "The data ended at global step 3, before max_steps=100." in caplog.text
    caplog.clear()
    batches = (i for i in range(3))
    assert train(float, lambda epoch: batches, epochs=5, progress=False).global_step == 3
    assert (
        "The data ended before epoch 2 of 5: <lambda> had no batches left. A generator can be iterated" in caplog.text
    )
    caplog.clear()
    train(lambda batch: 0.5, (np.zeros((4, 2)), np.zeros((4, 1))), progress=False)
    assert "data is a tuple of 2 arrays, and each array is treated as a batch." in caplog.text
    caplog.clear()
    train(float, (1, 2), max_steps=2, progress=False)
    train(float, [1, 2], epochs=2, progress=False)
    assert caplog.text == ""


def test_what_a_hook_changes_is_in_the_best_checkpoint(tmp_path: Path) -> None:
    """The checkpoint of a step is saved after the program's hooks: a killed run goes on with their changes."""

    def run(folder: Path, last: int) -> dict[str, Any]:
        state = {"w": np.zeros(1), "rate": 1.0}

        @every(epochs=1)
        def schedule(loop: Any) -> None:
            state["rate"] *= 0.5

        def step(batch: int) -> float:
            state["w"] += state["rate"]
            made.append(batch)
            if len(made) > last:
                raise KeyError("killed")
            return 0.5

        made: list[int] = []
        with contextlib.suppress(KeyError):
            train(
                step, lambda epoch: list(range(10)), max_steps=50, states={"state": state}, directory=folder,
                evaluate=lambda: float(state["w"][0]), metric="loss", mode="max", hooks=[schedule], progress=False,
            )  # fmt: skip
        return state

    alone = run(tmp_path / "alone", 1000)
    run(tmp_path / "killed", 25)
    assert run(tmp_path / "killed", 1000) == alone


def test_nan_is_an_error_and_other_results_are_not() -> None:
    train(lambda: ("x", object()), max_steps=200, progress=False)
    with pytest.raises(NanResultError, match="NaN in the result of step 100: loss"):
        train(lambda: {"text": "x", "loss": float("nan")}, max_steps=200, progress=False)


def test_no_checkpoint_has_nan(tmp_path: Path) -> None:
    state = {"steps": 0}

    def step() -> float:
        state["steps"] += 1
        return float("nan") if state["steps"] > 120 else 0.5

    scores = iter(range(100))
    with pytest.raises(NanResultError, match="NaN in the result of step 150: loss"):
        train(
            step, max_steps=1000, states={"state": state}, directory=tmp_path, progress=False,
            evaluate=lambda: next(scores), evaluate_steps=50, metric="loss", mode="max",
        )  # fmt: skip
    assert [saved.global_step for saved in Checkpoints(tmp_path, {"state": {}}).saved()] == [100, 50]


def test_nan_at_the_end_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(NanResultError, match="NaN in the result of step 3: loss"):
        train(lambda: float("nan"), max_steps=3, states={"state": {}}, directory=tmp_path, progress=False)
    assert "also failed" not in caplog.text
    assert Checkpoints(tmp_path, {"state": {}}).saved() == []


def test_the_progress_tells_of_a_restored_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for last, told in (10, []), (20, ["The checkpoint of step 10 was restored."]):
        train(int, max_steps=last, states={"state": {}}, directory=tmp_path)
        assert [line for line in capsys.readouterr().err.splitlines() if "restored" in line] == told


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"states": {"a": {}}}, ValueError, "states={'a': {}} needs directory. Pass both, or neither."),
        ({"directory": "x"}, ValueError, "directory='x' needs states."),
        ({"metric": "a", "mode": "min"}, ValueError, "metric='a' needs evaluate."),
        ({"metric": "a", "evaluate": int}, ValueError, "metric='a' needs mode."),
        ({"patience": 3, "evaluate": int}, ValueError, "patience=3 needs metric."),
        ({"evaluate_steps": 3}, ValueError, "evaluate_steps=3 needs evaluate."),
        ({"evaluate_steps": 0, "evaluate": int}, ValueError, "evaluate_steps must be positive, got 0"),
        ({"data": {"a": [1]}}, TypeError, "data must be an iterable of batches, or a function of the epoch's number"),
        ({"states": [1], "directory": "x"}, TypeError, 'states must be a dictionary of states by name. Pass {"state"'),
        ({"save_secs": 0}, ValueError, "save_secs must be positive, got 0"),
        ({"mode": "max"}, ValueError, "mode='max' needs metric"),
        ({"metric": "a", "mode": "max", "evaluate": int}, ValueError, "metric='a' needs directory, to keep the best"),
        ({"evaluate": 3}, TypeError, "evaluate must be an evaluation function, got 3"),
        ({"epochs": 3}, ValueError, "epochs=3 needs data"),
        ({"epochs": 3, "data": iter([1])}, ValueError, "epochs=3 is for data that can be iterated several times"),
        ({"step": coroutine}, TypeError, "step must be a function whose call runs its body, got <function coroutine"),
        ({"step": coroutine, "data": [1]}, TypeError, "it is a coroutine function"),
        ({"data": 3}, TypeError, "data must be an iterable of batches, or a function of the epoch's number, got 3"),
        (
            {"data": "ab"},
            TypeError,
            "data must be an iterable of batches, or a function of the epoch's number, got 'ab'",
        ),
        ({"directory": __file__, "states": {"a": {}}}, NotADirectoryError, "Checkpoints need a directory: "),
        ({"step": 3, "data": [1]}, TypeError, "step must be callable, got 3"),
        ({"step": lambda x: 1}, TypeError, "missing a required argument: 'x'. Pass the batches as data, the second"),
        ({"progress": "bar"}, TypeError, "progress must be True or False"),
        ({"max_steps": 1.5}, TypeError, "max_steps must be an integer"),
    ],
)
def test_wrong_arguments(
    arguments: dict[str, Any],
    error: type[Exception],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error) as raised:
        train(**{"step": int, "max_steps": 3, "progress": False, **arguments})
    assert message in str(raised.value)
    assert not list(tmp_path.iterdir())


def test_the_name_of_the_data_is_taken(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="states must not have the name 'data'"):
        train(int, [1], states={"data": {}}, directory=tmp_path)


KILLED = """
import os, sys
from fastsup.loop import train

state = {"sum": 0, "steps": 0}

def step(x):
    state["sum"] = (31 * state["sum"] + x) % 1_000_003
    state["steps"] += 1
    if state["steps"] == int(sys.argv[2]):
        os.kill(os.getpid(), int(sys.argv[3]))

data = [1, 2, 3, 4, 5, 6, 7]
loop = train(step, data, max_steps=50, states={"state": state}, directory=sys.argv[1], progress=False)
assert "tensorflow" not in sys.modules
print(state["sum"], loop.restored_step)
"""


def test_it_goes_on_after_a_signal_with_the_next_batch(tmp_path: Path, processes: Processes) -> None:
    def run(folder: str, last: int, number: int = 0) -> Any:
        arguments = (tmp_path / folder, str(last), str(number))
        return processes.python("-c", KILLED, *arguments, fresh=True)

    assert run("a", 23, signal.SIGTERM).returncode == 143
    assert run("a", 30, signal.SIGKILL).returncode == -signal.SIGKILL
    printed, step = run("a", 0).stdout.split()
    assert (printed, step) == (run("b", 0).stdout.split()[0], "23")


# Epochs.


class WithoutLength:
    """Three batches, and no length."""

    def __iter__(self) -> Iterator[int]:
        return iter([1, 2, 3])


@pytest.mark.parametrize("data", [[1, 2, 3], WithoutLength()], ids=["with length", "without"])
def test_epochs_go_through_data_again_and_from_any_position(data: Any) -> None:
    whole = list(Epochs(data, 3))
    assert whole == [1, 2, 3] * 3
    for taken in range(10):
        batches = Epochs(data, 3)
        assert [next(batches) for _ in range(taken)] == whole[:taken]
        others = Epochs(data, 3)
        others.load_state_dict(json.loads(json.dumps(batches.state_dict())))
        assert others.position == taken
        assert list(others) == whole[taken:] == list(batches)
    assert Epochs([1, 2, 3]).batches_per_epoch == 3


def test_epochs_of_a_function_have_their_own_batches() -> None:
    def numbers(epoch: int) -> list[int]:
        return [10 * epoch + i for i in range(3)]

    batches = Epochs(numbers, 3)
    assert batches.batches_per_epoch == 3
    assert list(batches) == [0, 1, 2, 10, 11, 12, 20, 21, 22]
    batches.load_state_dict({"epoch": 1, "batch": 2, "position": 5})
    assert list(batches) == [12, 20, 21, 22]
    assert list(Epochs(lambda epoch: iter([epoch]), 2)) == [0, 1]
    assert train(lambda batch: batch, numbers, max_steps=5, progress=False).result == 11


class WeightedRandomSampler:
    """Named as PyTorch's."""

    def __init__(self, generator: Any = None) -> None:
        self.generator = generator


class Shuffling(list[int]):
    """Has the attributes of a `DataLoader`."""

    def __init__(self, sampler: Any, in_batches: bool = False) -> None:
        super().__init__(range(4))
        if in_batches:
            self.batch_sampler = SimpleNamespace(sampler=sampler)
        else:
            self.sampler = sampler


@pytest.mark.parametrize(
    ("data", "epoch", "batch", "is_warned"),
    [
        (Shuffling(WeightedRandomSampler()), 0, 2, True),
        (Shuffling(WeightedRandomSampler()), 1, 0, False),
        (Shuffling(WeightedRandomSampler(), in_batches=True), 1, 3, True),
        (Shuffling(WeightedRandomSampler(object())), 0, 2, False),
        (Shuffling(WeightedRandomSampler(object())), 1, 2, True),
        (Shuffling(object()), 1, 2, False),
        (lambda epoch: Shuffling(WeightedRandomSampler(object())), 1, 2, False),
    ],
)
def test_rows_in_another_order(
    data: Any, epoch: int, batch: int, is_warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A random sampler draws another order after a restart, but for the first one of a seeded generator."""
    epochs = Epochs(data)
    for _ in range(2):
        epochs.load_state_dict({"epoch": epoch, "batch": batch, "position": 4 * epoch + batch})
    assert caplog.text.count(f"shuffles in another order after a restart, so the rest of epoch {epoch}") == is_warned


def test_other_data_after_a_restart(caplog: pytest.LogCaptureFixture) -> None:
    state = {"epoch": 3, "batch": 1, "position": 7}
    for data in ([1, 2], lambda epoch: [1] * (epoch + 1)):
        Epochs(data).load_state_dict(state)
    assert caplog.messages == []
    Epochs([1, 2, 3]).load_state_dict(state)
    assert "list has 3 batches per epoch, but in the checkpoint 3 epochs had 6 batches: it was saved" in caplog.text


def test_epochs_count() -> None:
    batches = Epochs([1, 2], 2)
    assert [(next(batches), batches.epoch, batches.position) for _ in range(4)] == [
        (1, 0, 1), (2, 1, 2), (1, 1, 3), (2, 2, 4)
    ]  # fmt: skip


def test_epochs_of_nothing_end(caplog: pytest.LogCaptureFixture) -> None:
    assert list(Epochs([])) == []
    assert caplog.messages == ["data has no batches, got an empty list: no step is run."]


def test_arrays_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    train(lambda row: float(row[0]), np.ones([2, 3]), progress=False)
    assert "data is an array, and each row is treated as a batch. For batches of rows pass fastsup.Arr" in caplog.text


@pytest.mark.parametrize("batch", [1.0, [1.0, 2.0, 3.0]])
def test_batches_of_another_number_of_arguments(batch: Any) -> None:
    def step(x: float, y: float) -> float:
        return x + y

    with pytest.raises(TypeError) as raised:
        train(step, [batch], progress=False)
    assert raised.value.__notes__[0].startswith("The step is called with the next batch: a tuple or a list gives")

    def failing(x: float, y: float) -> float:
        return step(x)  # type: ignore[call-arg]

    with pytest.raises(TypeError) as raised:
        train(failing, [(1, 2)], progress=False)
    assert raised.value.__notes__ == ["Raised by the step function at global step 0."]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((3,), TypeError, "data must be an iterable that can be iterated several times, got 3"),
        ((iter([1]),), TypeError, "Pass a list of batches or a DataLoader."),
        (("abc",), TypeError, "several times, got 'abc'. Pass a list of batches"),
        ((lambda epoch: None,), TypeError, "data must return an iterable of batches, got None from <function "),
        ((lambda: [1],), TypeError, "data must be a function of the number of the epoch, got"),
        (([1], 0), ValueError, "epochs must be positive, got 0"),
        (([1], 1.5), TypeError, "epochs must be an integer or None, got 1.5"),
    ],
)
def test_wrong_epochs(arguments: tuple[Any, ...], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as raised:
        Epochs(*arguments)
    assert message in str(raised.value)


def test_results_without_numbers_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    train(lambda: None, max_steps=250, progress=False)
    assert caplog.text.count("The step returned None, which contains no number") == 1
    with pytest.raises(TypeError, match=r"hooks must be a list of hooks\. Pass \[hook\] for one; got"):
        train(float, max_steps=1, hooks=Hook())  # type: ignore[arg-type]
    hooks: Any = [StopAtStepHook(1), 3]
    for make in (
        lambda: train(float, max_steps=1, directory="d", states={"s": {}}, hooks=hooks),
        lambda: StepLoop(float, hooks),
    ):
        with pytest.raises(TypeError, match=r"got 3 as hooks\[1\]$"):
            make()
    with pytest.raises(TypeError, match="hooks must be an iterable of"):
        StepLoop(float, Hook(), max_steps=1)  # type: ignore[arg-type]


def counting() -> Any:
    return lambda batch: float(np.sum(batch))


def test_a_state_that_the_program_no_longer_saves_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    states: dict[str, Any] = {"model": {"w": 1}, "optimizer": {"m": 2}}
    fastsup.loop.train(lambda: 1.0, max_steps=2, states=states, directory=tmp_path, progress=False)
    del states["optimizer"]
    fastsup.loop.train(lambda: 1.0, max_steps=4, states=states, directory=tmp_path, progress=False)
    assert "also has the state optimizer, which the program doesn't save: later checkpoints lack it" in caplog.text
    caplog.clear()
    fastsup.loop.train(lambda: 1.0, max_steps=6, states=states, directory=tmp_path, progress=False)
    assert "also has the state" not in caplog.text


@pytest.mark.parametrize("order", [1, -1])
def test_the_position_of_other_batches_is_refused(tmp_path: Path, order: int) -> None:
    data = [lambda epoch: [np.ones(2)] * 5, fastsup.ArrayBatches(np.ones(10), 2, epochs=None)][::order]
    options: dict[str, Any] = {"states": {"x": {"y": 1}}, "directory": tmp_path, "progress": False}
    fastsup.loop.train(counting(), data[0], max_steps=3, **options)
    with pytest.raises(ValueError, match=r"The checkpoint has the position of other batches, .* Resume with the same"):
        fastsup.loop.train(counting(), data[1], max_steps=6, **options)


@pytest.mark.parametrize(("rows", "batch_size", "is_told"), [(10, 2, False), (12, 2, True), (10, 5, True)])
def test_other_sizes_of_batches_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, rows: int, batch_size: int, is_told: bool
) -> None:
    options: dict[str, Any] = {"states": {"x": {"y": 1}}, "directory": tmp_path, "progress": False}
    fastsup.loop.train(counting(), fastsup.ArrayBatches(np.ones(10), 2, epochs=None), max_steps=1, **options)
    batches = fastsup.ArrayBatches(np.ones(rows), batch_size, epochs=None)
    fastsup.loop.train(counting(), batches, max_steps=2, **options)
    assert ("training continues at other rows" in caplog.text) is is_told


def test_a_finished_training_says_why_it_runs_no_step(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    options: dict[str, Any] = {"states": {"x": {"y": 1}}, "progress": False, "evaluate": lambda loop: 1.0}
    options |= {"evaluate_steps": 2, "metric": "loss", "mode": "min"}
    fastsup.loop.train(lambda: 1.0, max_steps=4, directory=tmp_path / "a", **options)
    assert not caplog.text
    fastsup.loop.train(lambda: 1.0, max_steps=3, directory=tmp_path / "a", **options)
    assert "No step was run: the checkpoint of global step 4 is not before max_steps=3." in caplog.text
    caplog.clear()
    for _ in range(2):
        fastsup.loop.train(lambda: 1.0, max_steps=40, directory=tmp_path / "b", patience=2, **options)
    assert "is where early stopping ended training. To continue training, pass a larger patience." in caplog.text
