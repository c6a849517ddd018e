"""Checkpoints of any state: what is saved and restored, damage, other programs' files, and the best ones."""

from __future__ import annotations

import collections
import dataclasses
import json
import logging
import os
import random
import signal
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import Processes

from fastsup import bind_batches
from fastsup.loop import (
    Checkpoints,
    Epochs,
    EvaluateHook,
    NoIntactCheckpointError,
    SavedCheckpoint,
    StepLoop,
    every,
)


def save(directory: Path, state: Any, step: int = 1, **options: Any) -> Checkpoints:
    """Saves a state, at the end of a loop of one step."""
    saver = Checkpoints(directory, {"state": state}, every_steps=100, **options)
    StepLoop(int, [saver], initial_step=step - 1, steps=1).run()
    return saver


def restored(directory: Path, state: Any) -> SavedCheckpoint:
    """Restores a state from the newest checkpoint."""
    found = Checkpoints(directory, {"state": state}).restore()
    assert found is not None
    return found


def counting_loop(directory: Path, **options: Any) -> tuple[StepLoop, dict[str, int], Checkpoints]:
    """A loop whose state counts its steps."""
    state = {"steps": 0}

    def step() -> int:
        state["steps"] += 1
        return state["steps"]

    options = {"every_steps": 5, **options}
    saver = Checkpoints(directory, {"state": state}, **options)
    return StepLoop(step, [saver], max_steps=12, resume_from=saver), state, saver


def steps_in(saver: Checkpoints) -> list[int]:
    return [saved.global_step for saved in saver.saved()]


# What is saved.


@dataclasses.dataclass
class Training:
    """State of a program's class."""

    weights: Any
    step_size: float


Pair = collections.namedtuple("Pair", ["first", "second"])


def test_containers_numbers_and_texts_come_back_with_their_types(tmp_path: Path) -> None:
    state = {
        "none": None, "flag": True, "whole": 1 << 80, "fraction": 0.1, "nan": float("nan"), "text": "a/b\n\ud800",
        "bytes": b"\0\xff", "complex": 1 - 2j, "tuple": (1, (2,)), "set": {1, 2}, 3: "three", (4, "x"): 0,
        "ordered": collections.OrderedDict(b=1, a=2), "counter": collections.Counter("aab"),
        "default": collections.defaultdict(list, {1: [2]}), "deque": collections.deque([1, 2], maxlen=2),
        "list": [1, [2, "x"]], "pair": Pair(1, "x"),
    }  # fmt: skip
    save(tmp_path, state)
    empty = {**dict.fromkeys(state), "default": collections.defaultdict(list), "pair": Pair(0, "")}
    restored(tmp_path, empty)
    assert repr(empty) == repr(state)
    assert list(empty) == list(state)
    assert empty["default"].default_factory is list


@pytest.mark.parametrize("dtype", ["float32", ">i2", "bool", "complex64", "<U3", "datetime64[ns]", "bfloat16", "S4"])
def test_arrays_of_every_type_come_back(tmp_path: Path, dtype: str) -> None:
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    array = np.array([[1, 0], [2, 3]]).astype(dtype)
    save(tmp_path, {"a": array, "scalar": array[0, 0], "empty": array[:0], "none": array[0, 0]})
    nothing = np.zeros_like(array)
    copy: dict[str, Any] = {"a": nothing.copy(), "scalar": None, "empty": nothing[:0], "none": np.array(nothing[0, 0])}
    restored(tmp_path, copy)
    assert copy["a"].dtype == array.dtype
    assert copy["a"].tobytes() == array.tobytes()
    assert type(copy["scalar"]) is type(array[0, 0])
    assert copy["scalar"] == copy["none"] == array[0, 0]
    assert isinstance(copy["none"], np.ndarray)


def test_names_of_arrays_are_kept_apart(tmp_path: Path) -> None:
    a, b, c, d, e = np.arange(5.0)
    state = {"a/b": a, "a": {"b": b}, "x": c, "x.npy": d, "file": e}
    save(tmp_path, state)
    copy: dict[str, Any] = {}
    restored(tmp_path, copy)
    assert copy == state


def test_arrays_may_have_any_names(tmp_path: Path) -> None:
    names = ["", "\0", "\0x", "_", "_x", "\ud800", "a\nb", "../a", "/", "\\", "x" * 100_000, "x" * 100_001]
    state = {name: np.float64(number) for number, name in enumerate(names)}
    save(tmp_path, state)
    copy: dict[str, Any] = {}
    restored(tmp_path, copy)
    assert copy == state


def test_arrays_are_set_in_place(tmp_path: Path) -> None:
    weights, inner = np.arange(3.0), [np.ones(2)]
    state = {"weights": weights, "inner": inner}
    save(tmp_path, state)
    weights[:] = 0
    inner[0][:] = 0
    first = inner[0]
    restored(tmp_path, state)
    assert weights.tolist() == [0, 1, 2]
    assert first.tolist() == [1, 1]
    assert state["weights"] is weights
    assert state["inner"] is inner
    assert inner[0] is first


def test_an_array_and_objects_with_attributes_are_states(tmp_path: Path) -> None:
    def states(value: float) -> dict[str, Any]:
        names = types.SimpleNamespace(a=np.full(2, value), b={"c": value})
        return {"array": np.full(3, value), "names": names, "training": Training(np.full(1, value), value)}

    saver = Checkpoints(tmp_path, states(2.0), every_steps=1)
    StepLoop(int, [saver], max_steps=1).run()
    found = states(0.0)
    Checkpoints(tmp_path, found).restore()
    assert repr(found) == repr(states(2.0))


def test_random_generators_go_on(tmp_path: Path) -> None:
    generators = {
        "numpy": np.random.default_rng(1),
        "philox": np.random.Generator(np.random.Philox(2)),
        "twister": np.random.Generator(np.random.MT19937(3)),
        "own": random.Random(4),
        "module": random,
    }

    def draws() -> list[float]:
        return [float(generator.random()) for generator in generators.values()]  # type: ignore[attr-defined]

    draws()
    saver = Checkpoints(tmp_path, generators, every_steps=1)
    StepLoop(int, [saver], max_steps=1).run()
    expected = draws()
    Checkpoints(tmp_path, generators).restore()
    assert draws() == expected


class Stateful:
    """State by PyTorch's protocol."""

    def __call__(self) -> None:
        """Modules can be called."""

    def __init__(self) -> None:
        self.state: dict[str, Any] = {"position": 0}

    def state_dict(self) -> dict[str, Any]:
        return dict(self.state)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.state = state


def test_objects_and_pairs_of_functions_may_change_their_structure(tmp_path: Path) -> None:
    loader, seen = Stateful(), [1]
    loader.state = {"position": 7, "buffer": [np.ones(2), np.zeros(1)]}
    states = {"loader": loader, "pair": (lambda: {"seen": seen}, lambda saved: None)}
    saver = Checkpoints(tmp_path, states, every_steps=1)
    StepLoop(int, [saver], max_steps=1).run()
    other, got = Stateful(), []
    Checkpoints(tmp_path, {"loader": other, "pair": (lambda: None, got.append)}).restore()
    assert repr(other.state) == repr(loader.state)
    assert got == [{"seen": [1]}]


def test_batches_of_arrays_go_on(tmp_path: Path) -> None:
    import fastsup

    def batches() -> Any:
        return fastsup.ArrayBatches(np.arange(20), 3, shuffle=True, epochs=None)

    first = batches()
    for _ in range(9):
        next(first)
    save(tmp_path, first)
    second = batches()
    restored(tmp_path, second)
    assert [next(second).tolist() for _ in range(9)] == [next(first).tolist() for _ in range(9)]


def test_a_checkpoint_of_tensorflow_is_a_state(tmp_path: Path) -> None:
    import tensorflow as tf

    def states(value: float) -> dict[str, Any]:
        return {"model": tf.train.Checkpoint(weights=tf.Variable([value, 1.0])), "more": {"value": value}}

    saver = Checkpoints(tmp_path, states(3.0), every_steps=1)
    StepLoop(int, [saver], max_steps=1).run()
    found = states(0.0)
    Checkpoints(tmp_path, found).restore()
    assert found["model"].weights.numpy().tolist() == [3.0, 1.0]
    assert found["more"] == {"value": 3.0}
    other = {**states(0.0), "model": tf.train.Checkpoint(bias=tf.Variable(0.0))}
    with pytest.raises(AssertionError, match=r"has no value for any of \['bias'\]"):
        Checkpoints(tmp_path, other).restore()
    assert other["more"] == {"value": 0.0}
    with pytest.raises(ValueError, match="Rename the directory"):
        Checkpoints(tmp_path / "a[1]", states(0.0))


def test_a_state_of_optax_comes_back(tmp_path: Path) -> None:
    optax, jax = pytest.importorskip("optax"), pytest.importorskip("jax")

    def state(steps: int) -> dict[str, Any]:
        optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(optax.cosine_decay_schedule(0.1, 50)))
        params = {"w": jax.numpy.ones((3, 2)), "b": jax.numpy.zeros(2)}
        moments = optimizer.init(params)
        for _ in range(steps):
            gradients = jax.tree.map(jax.numpy.ones_like, params)
            updates, moments = optimizer.update(gradients, moments, params)
            params = optax.apply_updates(params, updates)
        return {"params": params, "moments": moments}

    save(tmp_path, state(7))
    found = state(0)
    restored(tmp_path, found)
    there, here = (jax.tree_util.tree_flatten(tree) for tree in (state(7), found))
    assert there[1] == here[1]
    assert all(np.array_equal(left, right) for left, right in zip(there[0], here[0], strict=True))


def test_a_pytree_of_jax_comes_back(tmp_path: Path) -> None:
    jax = pytest.importorskip("jax")
    jnp = jax.numpy

    @jax.tree_util.register_dataclass
    @dataclasses.dataclass(frozen=True)
    class Registered:
        mean: Any
        count: Any

    def state(value: float) -> dict[str, Any]:
        return {
            "params": {"w": jnp.full((2, 3), value), "b": jnp.full(2, value, jnp.bfloat16)},
            "moments": (Pair(jnp.full(1, value), None), Registered(jnp.full(2, value), jnp.asarray(int(value)))),
            "key": jax.random.key(int(value)),
            "old key": jax.random.PRNGKey(int(value)),
            "weak": jnp.asarray(value),
        }

    save(tmp_path, state(3.0))
    found = state(0.0)
    restored(tmp_path, found)
    expected = state(3.0)
    there, here = (jax.tree_util.tree_flatten(tree) for tree in (expected, found))
    assert there[1] == here[1]
    for left, right in zip(there[0], here[0], strict=True):
        assert isinstance(right, jax.Array)
        weak = [getattr(array, "weak_type", False) for array in (left, right)]  # A key has none.
        assert (left.dtype, left.shape, weak[0]) == (right.dtype, right.shape, weak[1])
        assert bool((left == right).all())
    assert bool((jax.random.normal(found["key"]) == jax.random.normal(expected["key"])).all())


def test_nothing_is_pickled(tmp_path: Path, processes: Processes) -> None:
    save(tmp_path, {"a": np.zeros(3), "b": [1, "x"]})
    (folder,) = tmp_path.iterdir()
    assert sorted(path.name for path in folder.iterdir()) == ["SHA256SUMS", "checkpoint.json", "state.npz"]
    assert json.loads((folder / "checkpoint.json").read_text())["global_step"] == 1
    assert np.load(folder / "state.npz", allow_pickle=False)["state/a"].tolist() == [0, 0, 0]
    processes.run("sha256sum", "--check", "--quiet", "SHA256SUMS", cwd=folder, check=True)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (np.broadcast_to(np.zeros(1), 2), "states['s'] must be state that a restore can set, got a read-only array"),
        (3, "states['s'] must be state that a restore can set, got 3. Keep it in a dict,"),
        ((1, 2), "states['s'] must be state that a restore can set, got (1, 2)"),
        (lambda: 1, "or pass a pair of functions"),
        ((Stateful(), Stateful()), "states['s'] must be one object, got (<"),
        ({"f": open}, "s/f is <built-in function open> of type builtin_function_or_method, which can't be saved."),
        ({"a": [Stateful()]}, "Pass an object with state_dict and load_state_dict under its own name"),
        ({"a": np.array([object()])}, "s/a is an array of Python objects."),
        ({frozenset([print]): 1}, "a key of s/0 is <built-in function print>"),
    ],
)
def test_what_cannot_be_saved_is_refused_before_the_first_step(tmp_path: Path, state: Any, message: str) -> None:
    steps: list[int] = []
    with pytest.raises(TypeError) as raised:
        StepLoop(lambda: steps.append(1), [Checkpoints(tmp_path, {"s": state})], max_steps=1).run()
    assert message in str(raised.value)
    assert not steps


def test_objects_of_tensorflow_are_refused_with_the_remedy(tmp_path: Path) -> None:
    import tensorflow as tf

    with pytest.raises(TypeError, match=r"pass tf\.train\.Checkpoint\(model=\.\.\.\)"):
        Checkpoints(tmp_path, {"weights": tf.Variable(0.0)})
    with pytest.raises(TypeError, match=r"pass tf\.train\.Checkpoint\(model=\.\.\.\)"):
        StepLoop(int, [Checkpoints(tmp_path, {"weights": {"a": tf.Variable(0.0)}})], max_steps=1).run()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"directory": 3}, TypeError, "directory=3 must be the path of a directory"),
        ({"directory": b"x"}, TypeError, "directory must be a string or a pathlib.Path"),
        ({"directory": "gs://bucket/x"}, ValueError, "directory must be a local directory, got 'gs://bucket/x'"),
        ({"directory": ""}, ValueError, "directory must be a local directory, got ''"),
        ({"states": [1]}, TypeError, "states must be a dictionary of states by name, got [1]"),
        ({"states": {}}, ValueError, "states must have at least one state"),
        ({"states": {"a/b": {}}}, ValueError, "states must have names of letters, digits"),
        ({"states": {"hook.a": {}}}, ValueError, "which don't begin with 'hook.'; got 'hook.a'"),
        ({"states": {1: {}}}, ValueError, "got 1"),
        ({"keep": 0}, ValueError, "keep must be positive, got 0"),
        ({"keep": 1.5}, TypeError, "keep must be an integer, got 1.5"),
        ({"keep_best": 0}, ValueError, "keep_best must be positive"),
        ({"every_steps": 0}, ValueError, "every_steps must be positive"),
        ({"metric": "a"}, ValueError, "mode must be one of 'min', 'max'; got None"),
        ({"metric": 1, "mode": "min"}, TypeError, "metric must be the name of one of"),
        ({"mode": "min"}, ValueError, "mode='min' requires a metric"),
        ({"keep_best": 2}, ValueError, "keep_best=2 requires a metric"),
        ({"min_delta": 0.1}, ValueError, "min_delta=0.1 requires a metric"),
        ({"metric": "a", "mode": "min", "min_delta": -1}, ValueError, "min_delta must not be negative"),
        ({"save_at_end": 1}, TypeError, "save_at_end must be True or False"),
    ],
)
def test_wrong_arguments(tmp_path: Path, arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as raised:
        Checkpoints(**{"directory": tmp_path, "states": {"state": {}}, **arguments})
    assert message in str(raised.value)


# When, and which stay.


def test_saves_at_intervals_and_at_the_end_and_keeps_the_newest(tmp_path: Path) -> None:
    loop, _, saver = counting_loop(tmp_path, keep=2)
    loop.run()
    assert steps_in(saver) == [12, 10]
    assert saver.last_saved_step == 12
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["save-000002-step-10", "save-000003-step-12"]


def test_a_loop_goes_on(tmp_path: Path) -> None:
    counting_loop(tmp_path)[0].run()
    loop, state, saver = counting_loop(tmp_path)
    loop = StepLoop(lambda: state.update(steps=state["steps"] + 1), [saver], max_steps=20, resume_from=saver)
    loop.run()
    assert (loop.restored_step, loop.steps, state["steps"]) == (12, 8, 20)
    assert steps_in(saver) == [20, 15, 12, 10, 5]


def test_a_loop_at_its_end_saves_nothing_more(tmp_path: Path) -> None:
    counting_loop(tmp_path)[0].run()
    before = sorted(tmp_path.rglob("*"))
    loop, state, _ = counting_loop(tmp_path)
    loop.run()
    assert (loop.steps, state["steps"]) == (0, 12)
    assert sorted(tmp_path.rglob("*")) == before


def test_checkpoints_of_tensorflow_are_not_restored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "ckpt-1"')
    for _ in range(2):
        saver = Checkpoints(tmp_path, {"state": {"steps": 1}})
        StepLoop(int, [saver], max_steps=1, resume_from=saver).run()
    assert caplog.text.count("has a state file of TensorFlow's checkpoints, which Checkpoints doesn't restore.") == 1


def test_a_new_training_in_an_old_directory_is_warned_and_deletes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save(tmp_path, {"steps": 1}, step=100)
    saver = save(tmp_path, {"steps": 2}, step=7, keep=1)
    assert "has checkpoints, the newest of which is" in caplog.text
    assert "this run deletes none of them. To resume from it, pass this hook as resume_from; to train" in caplog.text
    assert steps_in(saver) == [7, 100]
    state = {"steps": 0}
    # The newest is the one that was saved last.
    assert restored(tmp_path, state).global_step == 7
    assert state == {"steps": 2}


def test_a_second_save_of_a_step_replaces_the_first_when_it_is_there(tmp_path: Path) -> None:
    state = {"steps": 0}
    saver = Checkpoints(tmp_path, {"state": state}, every_steps=1)
    for value in (1, 2):
        state["steps"] = value
        StepLoop(int, [saver], initial_step=11, steps=1).run()
    assert [path.name for path in tmp_path.iterdir()] == ["save-000002-step-12"]
    restored(tmp_path, state)
    assert state == {"steps": 2}


def test_recovery_restores_the_newest(tmp_path: Path) -> None:
    from tensorflow.errors import UnavailableError

    state, failures = {"steps": 0, "seen": []}, [7, 8]

    def step() -> None:
        state["steps"] += 1
        state["seen"].append(np.full(2, state["steps"]))
        if failures and state["steps"] == failures[0]:
            del failures[0]
            raise UnavailableError(None, None, "gone")

    saver = Checkpoints(tmp_path, {"state": state}, every_steps=5)
    loop = StepLoop(step, [saver], max_steps=10, resume_from=saver, max_recoveries=3)
    loop.run()
    assert (loop.global_step, loop.restored_step, state["steps"]) == (10, 5, 10)
    assert [int(array[0]) for array in state["seen"]] == list(range(1, 11))


def test_recovery_from_errors_of_the_program(tmp_path: Path) -> None:
    state, failures = {"steps": 0}, [ConnectionResetError(), BrokenPipeError(), ValueError("mine")]

    def step() -> None:
        state["steps"] += 1
        if state["steps"] == 7:
            raise failures.pop(0)

    saver = Checkpoints(tmp_path, {"state": state}, every_steps=5)
    loop = StepLoop(step, [saver], resume_from=saver, max_recoveries=None, recover_from=(ConnectionError, TimeoutError))
    with pytest.raises(ValueError, match="mine"):
        loop.run()
    assert (loop.global_step, loop.restored_step, state["steps"], failures) == (6, 5, 7, [])
    with pytest.raises(ValueError, match=r"recover_from=.* needs max_recoveries"):
        StepLoop(step, recover_from=ConnectionError)


def test_signals_end_the_loop_with_a_checkpoint(tmp_path: Path) -> None:
    saver = Checkpoints(tmp_path, {"state": {}}, every_steps=5)

    @every(steps=3)
    def kill(loop: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(SystemExit) as raised:
        StepLoop(int, [saver, kill], max_steps=12).run()
    assert raised.value.code == 143
    assert steps_in(saver) == [3]


# Damage, and what else is in a directory.


def damaged(path: Path, how: str) -> None:
    """Damages a checkpoint."""
    data = (path / "state.npz").read_bytes()
    if how == "flipped":
        (path / "state.npz").write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    elif how == "cut":
        (path / "state.npz").write_bytes(data[: len(data) // 2])
    elif how == "lost":
        (path / "state.npz").unlink()
    elif how == "text":
        text = (path / "checkpoint.json").read_text()
        (path / "checkpoint.json").write_text(text.replace('"global_step": 2', '"global_step": 9'))
    elif how == "sums lost":
        (path / "SHA256SUMS").unlink()
    elif how == "sums cut":
        (path / "SHA256SUMS").write_text((path / "SHA256SUMS").read_text().splitlines()[0] + "\n")
    else:
        for file in path.iterdir():
            file.unlink()


DAMAGE = ["flipped", "cut", "lost", "text", "sums lost", "sums cut", "emptied"]


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_checkpoint_is_passed_over_and_left(
    tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    state = {"a": np.zeros(2)}
    saver = Checkpoints(tmp_path, {"state": state}, every_steps=1)
    StepLoop(lambda: state["a"].__iadd__(1), [saver], max_steps=2).run()
    newest = Path(saver.saved()[0].path)
    damaged(newest, how)
    left = {path: path.read_bytes() for path in newest.iterdir()}
    found = {"a": np.zeros(2)}
    again = Checkpoints(tmp_path, {"state": found}, every_steps=1, keep=1)
    loop = StepLoop(lambda: found["a"].__iadd__(1), [again], max_steps=3, resume_from=again)
    loop.run()
    assert (loop.restored_step, found["a"].tolist()) == (1, [3, 3])
    assert f"The checkpoint {newest} can't be restored and is left unchanged" in caplog.text
    # The damaged one stays; those that were saved since are newer.
    assert {path: path.read_bytes() for path in newest.iterdir()} == left
    assert restored(tmp_path, {"a": np.zeros(2)}).global_step == 3


def test_no_intact_checkpoint_is_an_error_and_nothing_changes(tmp_path: Path) -> None:
    for step in (1, 2):
        save(tmp_path, {"a": np.ones(2)}, step)
    for path in tmp_path.iterdir():
        damaged(path, "flipped")
    state = {"a": np.zeros(2)}
    saver = Checkpoints(tmp_path, {"state": state})
    with pytest.raises(
        NoIntactCheckpointError, match=r"No checkpoint of .* can be restored; each was tried:"
    ) as raised:
        StepLoop(int, [saver], max_steps=3, resume_from=saver).run()
    assert isinstance(raised.value, RuntimeError)
    assert [Path(path).name for path, _ in raised.value.failures] == ["save-000002-step-2", "save-000001-step-1"]
    assert state["a"].tolist() == [0, 0]


@pytest.mark.parametrize("at", ["fastsup.loop.checkpoint_folder._checksum", "fastsup.loop.saved_state._read_arrays"])
def test_a_checkpoint_that_is_deleted_while_it_is_read_is_no_damage(
    tmp_path: Path, at: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An evaluation reads what a training saves and deletes."""
    state = {"a": np.zeros(2)}
    training = Checkpoints(tmp_path, {"state": state}, every_steps=1, keep=1)

    def train(steps: int) -> None:
        StepLoop(lambda: state["a"].__iadd__(1), [training], initial_step=int(state["a"][0]), steps=steps).run()

    train(1)
    real, found = {}, {"a": np.zeros(2)}
    module, _, name = at.rpartition(".")
    real[name] = getattr(sys.modules[module], name)

    def train_first(path: str) -> Any:
        monkeypatch.undo()
        train(2)
        return real[name](path)

    monkeypatch.setattr(at, train_first)
    saved = Checkpoints(tmp_path, {"state": found}).restore()
    assert saved is not None
    assert (saved.global_step, found["a"].tolist()) == (3, [3, 3])
    assert "can't be restored" not in caplog.text
    with pytest.raises(ValueError, match="or the path of a checkpoint that exists, got "):
        training.restore(tmp_path / "none")


def test_tensorflows_error_is_one_of_these() -> None:
    from fastsup import train

    assert issubclass(train.NoIntactCheckpointError, NoIntactCheckpointError)


def test_a_checkpoint_that_cannot_be_read_now_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in (1, 2):
        save(tmp_path, {"a": np.ones(2)}, step)

    def refuse(path: str) -> str:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("fastsup.loop.checkpoint_folder._checksum", refuse)
    with pytest.raises(PermissionError):
        restored(tmp_path, {"a": np.zeros(2)})


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"a": np.zeros(3)}, "state/a is float64 (2,) in the checkpoint and float64 (3,) here"),
        ({"a": np.zeros(2, np.float32)}, "state/a is float64 (2,) in the checkpoint and float32 (2,) here"),
        ({"b": np.zeros(2)}, "state/b isn't in the checkpoint; state/a isn't in the program"),
        ({"a": 1.0}, "state/a is a ndarray in the checkpoint and a float here"),
        ({"a": np.zeros(2), "c": np.zeros(1)}, "state/c isn't in the checkpoint"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused_and_nothing_changes(
    tmp_path: Path, state: dict[str, Any], message: str
) -> None:
    save(tmp_path, {"a": np.ones(2)})
    before = repr(state)
    with pytest.raises(ValueError, match="doesn't match the program") as raised:
        restored(tmp_path, state)
    assert message in str(raised.value)
    assert repr(state) == before


def test_other_names_of_states_are_refused(tmp_path: Path) -> None:
    save(tmp_path, {"a": 1})
    with pytest.raises(ValueError, match="has no state model: it has state"):
        Checkpoints(tmp_path, {"model": {"a": 1}}).restore()


def test_a_part_of_the_states_can_be_restored(tmp_path: Path) -> None:
    saver = Checkpoints(tmp_path, {"model": {"a": 1}, "optimizer": {"b": 2}}, every_steps=1)
    StepLoop(int, [saver], max_steps=1).run()
    model: dict[str, int] = {}
    Checkpoints(tmp_path, {"model": model}).restore()
    assert model == {"a": 1}


def test_the_path_of_a_copy_can_be_restored(tmp_path: Path) -> None:
    save(tmp_path / "a", {"x": 1}, step=3)
    os.rename(tmp_path / "a/save-000001-step-3", tmp_path / "copy")
    state: dict[str, int] = {}
    saved = Checkpoints(tmp_path / "b", {"state": state}).restore(tmp_path / "copy")
    assert saved is not None
    assert (saved.global_step, state) == (3, {"x": 1})


def test_a_checkpoint_of_a_newer_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastsup.loop.checkpoint_folder._FORMAT", 2)
    save(tmp_path, {"a": 1})
    monkeypatch.undo()
    with pytest.raises(ValueError, match="was written by a newer version of fastsup"):
        restored(tmp_path, {"a": 0})


def test_links_are_never_written_or_deleted_through(tmp_path: Path) -> None:
    elsewhere, directory = tmp_path / "elsewhere", tmp_path / "link"
    save(elsewhere, {"a": 1}, step=1)
    (tmp_path / "real").mkdir()
    directory.symlink_to(tmp_path / "real")
    (other,) = elsewhere.iterdir()
    (tmp_path / "real" / other.name).symlink_to(other)
    (tmp_path / "real" / ".saving-x").symlink_to(other)
    state = {"a": 0}
    saver = Checkpoints(directory, {"state": state}, every_steps=1, keep=1)
    StepLoop(int, [saver], max_steps=3, resume_from=saver).run()
    assert state == {"a": 1}
    assert sorted(path.name for path in (tmp_path / "real").iterdir()) == [".saving-x", "save-000003-step-3"]
    assert restored(elsewhere, {"a": 0}).global_step == 1


def test_what_a_killed_save_has_left_is_deleted_and_what_a_living_one_writes_is_not(tmp_path: Path) -> None:
    import fcntl

    for name in (".saving-1", ".saving-2", ".deleting-3"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("x")
    lock = os.open(tmp_path / ".saving-2", os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        save(tmp_path, {"a": 1})
    finally:
        os.close(lock)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".saving-2", "save-000001-step-1"]


def test_a_file_that_is_not_what_was_written_is_an_error_of_the_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, {"a": np.zeros(2)})
    real = os.stat

    def longer(path: Any, **options: Any) -> Any:
        if str(path).endswith("state.npz"):
            with open(path, "ab") as file:
                file.write(b"x")
        return real(path, **options)

    monkeypatch.setattr(os, "stat", longer)
    with pytest.raises(OSError, match="'s size differs from the number of bytes written"):
        save(tmp_path, {"a": np.ones(2)}, step=2)
    assert [path.name for path in tmp_path.iterdir()] == ["save-000001-step-1"]


def test_a_failed_save_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: str) -> None:
        raise OSError(28, "No space left on device", path)

    save(tmp_path, {"a": 1})
    monkeypatch.setattr("fastsup.loop.checkpoint_folder.fsync_tree", fail)
    with pytest.raises(OSError, match="No space left"):
        save(tmp_path, {"a": 2}, step=2)
    assert [path.name for path in tmp_path.iterdir()] == ["save-000001-step-1"]


@pytest.mark.parametrize("problem", ["a file", "may not be written to"])
def test_a_directory_that_cannot_be_used_is_found_before_the_first_step(
    problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "model"
    if problem == "a file":
        directory.write_text("")
    else:
        monkeypatch.setattr("os.access", lambda path, mode: path != str(directory))
    steps: list[int] = []
    with pytest.raises(OSError, match=r"heckpoints .*model"):
        StepLoop(lambda: steps.append(1), [Checkpoints(directory, {"a": {}})], max_steps=2).run()
    assert not steps


OTHER = """
import sys
from fastsup.loop import Checkpoints, StepLoop

saver = Checkpoints(sys.argv[1], {"state": {"a": 2}}, every_steps=1)
StepLoop(int, [saver], max_steps=1).run()
assert "tensorflow" not in sys.modules
"""


def test_another_training_in_the_directory_is_noticed_once(
    tmp_path: Path, processes: Processes, caplog: pytest.LogCaptureFixture
) -> None:
    @every(steps=3)
    def start_other(loop: Any) -> None:
        processes.python("-c", OTHER, tmp_path, check=True, fresh=True)

    saver = Checkpoints(tmp_path, {"state": {"a": 1}}, every_steps=1)
    StepLoop(int, [saver, start_other], max_steps=8).run()
    found = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert [text.partition(":")[0] for text in found] == [
        f"Another program has saved in {tmp_path} since this one started"
    ] * 2
    assert [saved.global_step for saved in saver.saved() if saved.global_step != 1] == [8, 7, 6, 5, 4]


# The best.


def evaluated_loop(
    directory: Path, scores: list[float], metric: str = "score", mode: str = "max", **options: Any
) -> tuple[StepLoop, Checkpoints]:
    """A loop that evaluates every second step, with these results."""
    state = {"steps": 0}
    found = iter(scores)
    saver = Checkpoints(directory, {"state": state}, every_steps=3, metric=metric, mode=mode, **options)
    evaluate = EvaluateHook(lambda: {"score": next(found), "other": 1}, every_steps=2, at_end=False)

    def step() -> None:
        state["steps"] += 1

    return StepLoop(step, [evaluate, saver], max_steps=2 * len(scores), resume_from=saver), saver


@pytest.mark.parametrize(
    ("mode", "scores", "best"),
    [
        ("max", [1, 5, 3, 4, 2], [4, 8]),
        ("min", [1, 5, 3, 4, 2], [2, 10]),
        ("max", [float("nan"), 1, float("nan"), 2, float("inf")], [10, 8]),
    ],
)
def test_the_best_stay(tmp_path: Path, mode: str, scores: list[float], best: list[int]) -> None:
    loop, saver = evaluated_loop(tmp_path, scores, mode=mode, keep=1, keep_best=2)
    loop.run()
    assert sorted(steps_in(saver)) == sorted({*best, 10})
    found = saver.restore("best")
    assert found is not None
    assert (found.global_step, found.metrics["other"]) == (best[0], 1)


def test_a_better_one_must_be_better_by_min_delta(tmp_path: Path) -> None:
    loop, saver = evaluated_loop(tmp_path, [1, 1.05, 1.2, 1.25], keep=1, min_delta=0.1, save_at_end=False)
    loop.run()
    assert steps_in(saver) == [6]


def test_a_checkpoint_that_is_not_among_the_best_has_its_numbers_too(tmp_path: Path) -> None:
    loop, saver = evaluated_loop(tmp_path, [9, 1, 1], keep=2)
    loop.run()
    assert [(saved.global_step, saved.metrics.get("score")) for saved in saver.saved()] == [(6, 1), (3, None), (2, 9)]


def test_the_best_stay_after_a_restart(tmp_path: Path) -> None:
    evaluated_loop(tmp_path, [1, 9, 2], keep=1)[0].run()
    loop, saver = evaluated_loop(tmp_path, [3, 4, 5, 6, 7, 8], keep=1)
    loop.run()
    assert loop.restored_step == 6
    assert steps_in(saver) == [12, 4]


def test_a_metric_that_is_not_in_the_results_is_an_error_at_the_first_evaluation(tmp_path: Path) -> None:
    loop, _ = evaluated_loop(tmp_path, [1, 2], metric="accuracy")
    with pytest.raises(ValueError, match=r"metric must be one of \['other', 'score'\], .* got 'accuracy'"):
        loop.run()
    assert loop.global_step == 2


def test_a_metric_needs_an_evaluation(tmp_path: Path) -> None:
    saver = Checkpoints(tmp_path, {"state": {}}, metric="score", mode="max")
    loop = StepLoop(int, [saver], max_steps=1)
    with pytest.raises(ValueError, match="has metric='score', but the loop has no EvaluateHook"):
        loop.run()
    assert loop.steps == 0


def test_the_best_of_no_metric(tmp_path: Path) -> None:
    saver = save(tmp_path, {"a": 1})
    with pytest.raises(ValueError, match='which="best" requires Checkpoints with a metric'):
        saver.restore("best")
    with pytest.raises(ValueError, match=r"checkpoint that exists, got 'bset'\. Did you mean 'best'\?"):
        saver.restore("bset")
    assert Checkpoints(tmp_path, {"state": {}}, metric="a", mode="min").restore("best") is None


KILLED = """
import os, sys
from fastsup.loop import Checkpoints, EarlyStoppingHook, EvaluateHook, StepLoop

state = {"steps": 0}
last = int(sys.argv[2])

def step():
    state["steps"] += 1
    if state["steps"] == last:
        os.kill(os.getpid(), 9)

saver = Checkpoints(sys.argv[1], {"state": state}, every_steps=5, keep=1, metric="score", mode="max")
evaluate = EvaluateHook(lambda: {"score": -abs(state["steps"] - 6)}, every_steps=3)
stop = EarlyStoppingHook("score", "max", 4, restore_best=saver)
loop = StepLoop(step, [evaluate, saver, stop], max_steps=100, resume_from=saver)
loop.run()
print(loop.restored_step, loop.global_step, stop.best_step, state["steps"])
"""


@pytest.mark.slow
def test_early_stopping_and_the_best_survive_kills(tmp_path: Path, processes: Processes) -> None:
    printed = processes.python("-c", KILLED, tmp_path / "whole", "0", check=True).stdout
    assert printed == "None 18 6 6\n"
    for last in (2, 8, 11, 17):
        killed = processes.python("-c", KILLED, tmp_path / "killed", str(last))
        assert killed.returncode == -signal.SIGKILL, killed.stderr
    printed = processes.python("-c", KILLED, tmp_path / "killed", "0", check=True).stdout
    assert printed == "15 18 6 6\n"
    # Started once more, it does nothing.
    printed = processes.python("-c", KILLED, tmp_path / "killed", "0", check=True).stdout
    assert printed == "18 18 6 6\n"


def test_it_needs_no_tensorflow(tmp_path: Path, processes: Processes) -> None:
    processes.python("-c", OTHER, tmp_path, check=True, fresh=True)
    assert "numpy" in sys.modules
    assert restored(tmp_path, {"a": 0}).global_step == 1


def test_a_save_is_seen_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When a checkpoint has its name, all of it was flushed; and older ones go after that name was."""
    calls: list[tuple[str, str]] = []
    real: dict[str, Callable[..., Any]] = {"fsync": os.fsync, "rename": os.rename}

    def fsync(descriptor: int) -> None:
        calls.append(("fsync", os.readlink(f"/proc/self/fd/{descriptor}")))
        real["fsync"](descriptor)

    def rename(source: str, target: str) -> None:
        calls.append(("rename", target))
        real["rename"](source, target)

    save(tmp_path, {"a": np.zeros(2)})
    state = {"a": np.zeros(2)}
    saver = Checkpoints(tmp_path, {"state": state}, every_steps=1, keep=1)
    saver.restore()
    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "rename", rename)
    StepLoop(int, [saver], initial_step=1, steps=1).run()
    named = next(i for i, (call, path) in enumerate(calls) if call == "rename" and "save-" in path)
    deleted = next(i for i, (call, path) in enumerate(calls) if call == "rename" and ".deleting" in path)
    flushed = {os.path.basename(path) for call, path in calls[:named] if call == "fsync"}
    assert {"checkpoint.json", "SHA256SUMS", "state.npz"} < flushed
    assert any(name.startswith(".saving-") for name in flushed)
    assert ("fsync", str(tmp_path)) in calls[named:deleted]


def test_batches_whose_position_is_not_saved_are_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    batches = Epochs([1, 2, 3], 2)
    step = bind_batches(float, batches)
    StepLoop(step, [Checkpoints(tmp_path / "a", {"state": {}, "batches": batches})], steps=1).run()
    assert caplog.text == ""
    StepLoop(step, [Checkpoints(tmp_path / "b", {"state": {}})], steps=1).run()
    assert "isn't saved: a resumed loop starts with its first batch. Add the batches to the states" in caplog.text


def test_two_of_one_directory_in_a_loop_are_refused(tmp_path: Path) -> None:
    first, second = ({"w": np.zeros(2)}, {"w": np.ones(2)})
    hooks = [Checkpoints(tmp_path / "a", {"one": first}), Checkpoints(f"{tmp_path}/b/../a", {"two": second})]
    with pytest.raises(ValueError, match="directory must be different for each Checkpoints of a loop"):
        StepLoop(float, hooks, max_steps=1).run()
