"""Runs small Keras programs, as they are or accelerated, and records all that such a program can see.

A program is a literal: dicts, lists, numbers and texts. Its `repr` is the report of a failure, and runs again.
`random_keras` writes random ones; the tests write others by hand.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import random
import re
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import h5py
import keras
import numpy as np
import tensorflow as tf

import fastsup

FEATURES, CLASSES, WORDS = 4, 3, 9
WAIT_SECS = 30
KINDS = {"fit": "train", "evaluate": "test", "predict": "predict"}
PASS_METHODS = [
    *(f"on_{kind}_{when}" for kind in ("train", "test", "predict") for when in ("begin", "end")),
    *(f"on_epoch_{when}" for when in ("begin", "end")),
]
BATCH_METHODS = [f"on_{kind}_batch_{when}" for kind in ("train", "test", "predict") for when in ("begin", "end")]
ERRORS: dict[str, Callable[[], BaseException]] = {
    "value": lambda: ValueError("planned"),
    "stop iteration": lambda: StopIteration("planned"),
    "out of range": lambda: tf.errors.OutOfRangeError(None, None, "planned"),
    "interrupt": lambda: KeyboardInterrupt("planned"),
}


def frozen(value: Any) -> Any:
    """A value as it is now, with its type, as something that compares and prints well."""
    if isinstance(value, dict):
        return {str(key): frozen(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [frozen(item) for item in value]
    if isinstance(value, keras.Variable):
        return ["variable", np.array(keras.ops.convert_to_numpy(value))]
    if tf.is_tensor(value):
        return ["tensor", np.array(value.numpy())]
    if isinstance(value, np.ndarray):
        return ["array", value.copy()]
    if isinstance(value, float | np.floating):
        return [type(value).__name__, np.float64(value)]
    return value if isinstance(value, int | str | bool | None) else repr(value)


def difference(one: Any, other: Any, tolerance: float = 0.0, where: str = "") -> str:
    """The first place where two records differ, in words; "" if they are the same.

    Args:
      one, other: what `frozen` returns.
      tolerance: by how much numbers may differ; 0 for not a bit.
      where: the place so far.
    """
    if type(one) is not type(other):
        return f"{where}: {one!r} != {other!r}"
    if isinstance(one, dict):
        if list(one) != list(other):
            return f"{where}: {list(one)} != {list(other)}"
        found = (difference(one[key], other[key], tolerance, f"{where}/{key}") for key in one)
        return next(filter(None, found), "")
    if isinstance(one, list):
        found = (
            difference(a, b, tolerance, f"{where}/{number}{_name_of(a)}")
            for number, (a, b) in enumerate(zip(one, other, strict=False))
        )
        first = next(filter(None, found), "")
        if not first and len(one) != len(other):
            more = one[len(other) :] or other[len(one) :]
            return f"{where}: {len(one)} entries != {len(other)}, the first more is {more[0]!r}"
        return first
    if isinstance(one, np.ndarray | np.floating):
        one, other = np.asarray(one), np.asarray(other)
        same = one.dtype == other.dtype and one.shape == other.shape
        if same and one.tobytes() != other.tobytes():
            same = tolerance > 0 and np.allclose(one, other, tolerance, tolerance, equal_nan=True)
        return "" if same else f"{where}: {one.dtype} {one.tolist()} != {other.dtype} {other.tolist()}"
    return "" if one == other else f"{where}: {one!r} != {other!r}"


def _name_of(entry: Any) -> str:
    """The name of an entry of a record, for the place of a difference."""
    return f" {entry[0]}" if isinstance(entry, list) and entry and isinstance(entry[0], str) else ""


class Turns:
    """Lets one of several threads run at a time. Each hands on at its own places, so that their order is fixed.

    Args:
      count: number of threads.
    """

    def __init__(self, count: int) -> None:
        self._changed = threading.Condition()
        self._alive = list(range(count))
        self._turn = 0

    def wait(self, me: int) -> None:
        """Waits for the turn of a thread."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._turn == me, WAIT_SECS):
                raise TimeoutError(f"thread {me} has waited for thread {self._turn}")

    def hand_on(self, me: int) -> None:
        """Hands the turn to the next thread."""
        with self._changed:
            self._turn = self._alive[(self._alive.index(me) + 1) % len(self._alive)]
            self._changed.notify_all()

    def leave(self, me: int) -> None:
        """Hands the turn on for the last time."""
        with self._changed:
            if self._turn == me:
                self._turn = self._alive[(self._alive.index(me) + 1) % len(self._alive)]
            self._alive.remove(me)
            self._changed.notify_all()


class Run:
    """One run of a program.

    Args:
      program: the program.
      accelerates: whether its models are accelerated.

    Attributes:
      record: all that was seen, in its order.
    """

    def __init__(self, program: dict[str, Any], accelerates: bool) -> None:
        self.program = program
        self.accelerates = accelerates
        self.record: list[Any] = []
        self._local = threading.local()
        self._local.record = self.record
        self._local.turns = None

    def go(self) -> list[Any]:
        """Runs the program. Returns the record."""
        keras.backend.clear_session()
        keras.utils.set_random_seed(self.program.get("seed", 1))
        with tempfile.TemporaryDirectory() as self.folder, warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            self._make_arrays()
            self.models: list[Any] = []
            for spec in self.program.get("models", [{}]):
                self.models.append(self._make_model(spec))
            self._shared = [self._make_callback(spec) for spec in self.program.get("callbacks", [])]
            for number, call in enumerate(self.program.get("calls", [])):
                self.see(f"call {number}", call["do"])
                self.attempt(call)
                for model in self.models:
                    self.see("state", _state_of(model))
            self.see("arrays", self.arrays)
            self.see("draws", [np.random.random(), random.random(), tf.random.uniform([])])
            ours = [warning for warning in warned if "unclosed" not in str(warning.message)]
            self.see("warnings", sorted(f"{w.category.__name__}: {w.message}" for w in ours))
        return self.record

    def see(self, name: str, value: Any) -> None:
        self._local.record.append([name, frozen(value)])

    def attempt(self, call: dict[str, Any]) -> None:
        """Makes a call, and records what it returns or raises."""
        try:
            self.see(f"{call['do']} returned", self.do(call))
        except BaseException as error:
            if isinstance(error, SystemExit | TimeoutError):
                raise
            self.see(f"{call['do']} raised", [type(error).__name__, _text(error)])

    # What programs are made of.

    def _make_arrays(self) -> None:
        numbers = np.random.default_rng(self.program.get("seed", 1))
        self.arrays: dict[str, Any] = {}
        for name, rows in {
            "": self.program.get("rows", 11),
            "v": self.program.get("validation rows", 7),
            "p": self.program.get("predict rows", 9),
        }.items():
            part = {
                "a": numbers.standard_normal((rows, FEATURES)).astype(np.float32),
                "b": numbers.standard_normal((rows, 2)).astype(np.float32),
                "words": numbers.integers(0, WORDS, (rows, 3)).astype(np.int32),
                "y": numbers.standard_normal((rows, CLASSES)).astype(np.float32),
                "z": numbers.standard_normal((rows, 2)).astype(np.float32),
                "labels": numbers.integers(0, CLASSES, rows).astype(np.int32),
                "w": numbers.uniform(0.1, 2.0, rows).astype(np.float32),
            }
            self.arrays.update({name + key: array for key, array in part.items()})

    def _x(self, prefix: str) -> Any:
        form = self.program.get("input", "floats")
        if form == "words":
            return self.arrays[prefix + "words"]
        a, b = self.arrays[prefix + "a"], self.arrays[prefix + "b"]
        return {"floats": a, "dict": {"a": a, "b": b}, "list": [a, b]}[form]

    def _y(self, prefix: str) -> Any:
        form = self.program.get("output", "one")
        if form == "labels":
            return self.arrays[prefix + "labels"]
        y, z = self.arrays[prefix + "y"], self.arrays[prefix + "z"]
        return {"one": y, "column": y[:, :1], "two": [y, z]}[form]

    def _make_model(self, spec: dict[str, Any]) -> Any:
        model = self._layers_of(spec)
        self.compile(model, spec)
        if self.accelerates:
            options = {"fuse": self.program.get("fuse", "auto"), "executor": self.program.get("executor", "auto")}
            fastsup.keras.accelerate(model, **options)
        return model

    def _layers_of(self, spec: dict[str, Any]) -> Any:
        form, output = self.program.get("input", "floats"), self.program.get("output", "one")
        units = 1 if output == "column" else CLASSES
        if spec.get("builds late") and form == "floats" and output != "two":
            return keras.Sequential([*(LAYERS[layer]() for layer in spec.get("layers", [])), keras.layers.Dense(units)])
        if form == "words":
            inputs: Any = keras.Input([3], dtype="int32", name="words")
            x = keras.layers.Flatten()(keras.layers.Embedding(WORDS, 4)(inputs))
        else:
            a, b = keras.Input([FEATURES], name="a"), keras.Input([2], name="b")
            inputs = {"floats": a, "dict": {"a": a, "b": b}, "list": [a, b]}[form]
            x = a if form == "floats" else keras.layers.Concatenate()([a, b])
        if spec.get("contains the first") and self.models:
            x = tf.nest.flatten(self.models[0](inputs))[0]
        for layer in spec.get("layers", []):
            x = LAYERS[layer]()(x)
        outputs: Any = keras.layers.Dense(units, name="y")(x)
        if output == "two":
            outputs = [outputs, keras.layers.Dense(2, name="z")(x)]
        kind = OwnSteps if spec.get("own steps") else OwnEvaluate if spec.get("own evaluate") else keras.Model
        return kind(inputs, outputs)

    def compile(self, model: Any, spec: dict[str, Any]) -> None:
        output = self.program.get("output", "one")
        loss = "mae" if spec.get("loss") == "mae" else "mse"
        options: dict[str, Any] = {"loss": [loss, "mae"] if output == "two" else loss}
        if spec.get("metrics"):
            options["metrics"] = [["mae"], ["mse"]] if output == "two" else ["mae"]
            options["weighted_metrics"] = None if output == "two" else ["mse"]
        if output == "labels":
            options["loss"] = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            if spec.get("metrics"):
                options["metrics"], options["weighted_metrics"] = ["accuracy"], ["accuracy"]
        model.compile(
            OPTIMIZERS[spec.get("optimizer", "sgd")](),
            jit_compile=self.program.get("jit", False),
            steps_per_execution=self.program.get("steps per execution", 1),
            run_eagerly=self.program.get("eagerly", False),
            **options,
        )

    # Calls.

    def do(self, call: dict[str, Any]) -> Any:
        """Makes a call. Returns what it returns."""
        model = self.models[call.get("model", 0) % len(self.models)]
        return getattr(self, "_do_" + call["do"].replace(" ", "_"))(model, call)

    def _do_fit(self, model: Any, call: dict[str, Any]) -> Any:
        return self._pass(model, call, "fit").history

    def _do_evaluate(self, model: Any, call: dict[str, Any]) -> Any:
        return self._pass(model, call, "evaluate")

    def _do_predict(self, model: Any, call: dict[str, Any]) -> Any:
        return self._pass(model, call, "predict")

    def _do_train_on_batch(self, model: Any, call: dict[str, Any]) -> Any:
        size = call.get("size", 4)
        return model.train_on_batch(_first(self._x(""), size), _first(self._y(""), size), return_dict=True)

    def _do_test_on_batch(self, model: Any, call: dict[str, Any]) -> Any:
        size = call.get("size", 4)
        return model.test_on_batch(_first(self._x("v"), size), _first(self._y("v"), size))

    def _do_predict_on_batch(self, model: Any, call: dict[str, Any]) -> Any:
        return model.predict_on_batch(_first(self._x("p"), call.get("size", 4)))

    def _do_call(self, model: Any, call: dict[str, Any]) -> Any:
        return model(tf.nest.map_structure(tf.constant, self._x("p")))

    def _do_compile(self, model: Any, call: dict[str, Any]) -> None:
        self.compile(model, call)

    def _do_freeze(self, model: Any, call: dict[str, Any]) -> None:
        layer = next(layer for layer in model.layers if layer.trainable_weights or not layer.trainable)
        layer.trainable = not layer.trainable
        if call.get("compiles"):
            self.compile(model, call)

    def _do_weights(self, model: Any, call: dict[str, Any]) -> None:
        model.set_weights([weights * 0.5 for weights in model.get_weights()])

    def _do_rate(self, model: Any, call: dict[str, Any]) -> None:
        model.optimizer.learning_rate = 0.5 * float(model.optimizer.learning_rate)

    def _do_stop(self, model: Any, call: dict[str, Any]) -> None:
        setattr(model, "stop_" + {"train": "training", "test": "evaluating"}.get(call["of"], "predicting"), True)

    def _do_raise(self, model: Any, call: dict[str, Any]) -> None:
        raise ERRORS[call.get("error", "value")]()

    def _do_change(self, model: Any, call: dict[str, Any]) -> None:
        for name in call["arrays"]:
            array = self.arrays[name]
            array[:] = array[::-1].copy() if array.dtype == np.int32 else array * 2 + 1

    def _do_replace_function(self, model: Any, call: dict[str, Any]) -> None:
        """Has the program's own function run the steps."""
        made = model.train_function
        own = tf.function(lambda iterator: model.train_step(iterator.get_next()))
        model.train_function = (lambda iterator: made(iterator)) if call.get("wraps") else own

    def _do_copy(self, model: Any, call: dict[str, Any]) -> None:
        """Goes on with a copy of the model."""
        copy = keras.models.clone_model(model)
        copy.set_weights(model.get_weights())
        self.compile(copy, call)
        if self.accelerates:
            fastsup.keras.accelerate(copy, fuse=self.program.get("fuse", "auto"))
        self.models[self.models.index(model)] = copy

    def _do_reset_metrics(self, model: Any, call: dict[str, Any]) -> None:
        model.reset_metrics()

    def _do_accelerate(self, model: Any, call: dict[str, Any]) -> None:
        if self.accelerates:
            fastsup.keras.accelerate(model, fuse=self.program.get("fuse", "auto"))

    def _do_attempt(self, model: Any, call: dict[str, Any]) -> None:
        self.attempt(call["call"])

    def _do_threads(self, model: Any, call: dict[str, Any]) -> None:
        calls = call["calls"]
        turns = Turns(len(calls))
        records: list[list[Any]] = [[] for _ in calls]
        failed: list[BaseException] = []

        def work(number: int) -> None:
            self._local.record, self._local.turns = records[number], (turns, number, call.get("every", 1))
            try:
                turns.wait(number)
                self.attempt(calls[number])
            except BaseException as error:
                failed.append(error)
            finally:
                turns.leave(number)

        threads = [threading.Thread(target=work, args=[number], daemon=True) for number in range(len(calls))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_SECS * 2)
        for number, record in enumerate(records):
            self._local.record.append([f"thread {number}", record])
        if failed or any(thread.is_alive() for thread in threads):
            raise TimeoutError(f"the threads don't end: {failed}")

    # Passes: fit, evaluate, predict.

    def _pass(self, model: Any, call: dict[str, Any], name: str) -> Any:
        handshake = Handshake(KINDS[name])
        given, options = self._input(call, name, handshake), dict(call.get("options", {}))
        callbacks = [self._make_callback(spec) for spec in call.get("callbacks", [])]
        if self._local.turns is not None:
            callbacks.append(self._turning())
        if call.get("inner"):
            callbacks.append(handshake.callback())
        if call.get("callback list"):
            callbacks = keras.callbacks.CallbackList(
                callbacks, add_history=name == "fit", model=model, epochs=options.get("epochs", 1), steps=None
            )
        if name == "fit" and "validation" in call:
            validation = self._input({"batch_size": 3, **call["validation"]}, "validation", handshake)
            options["validation_data"] = validation.pop("x")
            if "y" in validation:
                weights = [validation["sample_weight"]] if "sample_weight" in validation else []
                options["validation_data"] = (options["validation_data"], validation["y"], *weights)
        options.setdefault("verbose", 0)
        printed = io.StringIO()
        try:
            shown = contextlib.redirect_stdout(printed) if options["verbose"] else contextlib.nullcontext()
            with shown:
                found = getattr(model, name)(**given, **options, callbacks=callbacks)
        finally:
            handshake.over.set()
        if options["verbose"]:
            # A line is printed again and again, by time. The last time counts.
            lines = [re.split("[\b\r]", line)[-1] for line in printed.getvalue().split("\n")]
            self.see("printed", [re.sub(r"\d+\w?s(/\w+)?", "TIME", line).strip() for line in lines])
        return found

    def _input(self, call: dict[str, Any], name: str, handshake: Handshake) -> dict[str, Any]:
        """The arguments of a pass that say what its batches are."""
        prefix = {"fit": "", "evaluate": "v", "validation": "v", "predict": "p"}[name]
        prefix = call.get("of", prefix)
        parts = [self._x(prefix)]
        if name != "predict":
            parts.append(self._y(prefix))
            if call.get("weights") and self.program.get("output") != "two":
                parts.append(self.arrays[prefix + "w"])
        kind, size = call.get("kind", "arrays"), call.get("batch_size", 4)
        if kind in ARRAYS:
            change = ARRAYS[kind]
            parts = [tf.nest.map_structure(change, part) for part in parts]
            sized = {} if name == "validation" else {"batch_size": size}
            return dict(zip(("x", "y", "sample_weight"), parts, strict=False)) | sized
        size = size or 4
        parts = tf.nest.map_structure(np.copy, parts)
        if name != "predict" and isinstance(parts[1], list):
            parts[1] = tuple(parts[1])
        if isinstance(parts[0], list):
            parts[0] = tuple(parts[0])
        if kind == "dataset":
            dataset = tf.data.Dataset.from_tensor_slices(tuple(parts))
            if call.get("shuffles"):
                dataset = dataset.shuffle(100, seed=call["shuffles"])
            dataset = dataset.batch(size, drop_remainder=bool(call.get("drops")))
            return {"x": dataset.repeat() if call.get("repeats") else dataset}
        rows = len(tf.nest.flatten(parts)[0])
        slices = [slice(start, start + size) for start in range(0, rows, size)]
        batches = [tuple(tf.nest.map_structure(lambda a, s=s: a[s], parts)) for s in slices]
        if kind == "py dataset":
            return {"x": Batches(batches, call.get("workers", 1), self.see)}
        return {"x": self._generator(batches, call, handshake)}

    def _generator(self, batches: list[Any], call: dict[str, Any], handshake: Handshake) -> Iterator[Any]:
        """Batches without an end, and a call in the code that makes one of them."""
        record, inner = self._local.record, call.get("inner")
        for number, batch in enumerate(itertools.cycle(batches)):
            if inner and number == inner["at"]:
                handshake.wait(number)
                if handshake.over.is_set():
                    return
                # Either in the thread that has called the pass, before it begins, or in one of tf.data's.
                turns = getattr(self._local, "turns", None)
                self._local.record, self._local.turns = [], None
                try:
                    self.attempt(inner["call"])
                finally:
                    record.append(["in the generator", self._local.record])
                    self._local.record, self._local.turns = record, turns
            yield batch

    # Callbacks.

    def _make_callback(self, spec: dict[str, Any]) -> Any:
        return getattr(self, "_callback_" + spec["kind"].replace(" ", "_"))(spec)

    def _callback_record(self, spec: dict[str, Any]) -> Any:
        """Records the callbacks. `every`: also those of batches, and the weights after every Nth."""
        every = spec.get("every")
        tag = spec.get("tag", "")

        def note(name: str) -> Callable[..., None]:
            def method(callback: Any, *args: Any, **kwargs: Any) -> None:
                self.see(tag + name, [*args, *kwargs.values()])
                model = callback.model
                if "batch" not in name or (name.endswith("batch_end") and (args[0] + 1) % every == 0):
                    self.see("weights", model.get_weights())
                if name == "on_epoch_end":
                    self.see("metrics", {metric.name: metric.result() for metric in model.metrics})
                    self.see("parameters", callback.params)

            return method

        names = PASS_METHODS + (BATCH_METHODS if every else [])
        return _callback({name: note(name) for name in names}, every)

    def _callback_act(self, spec: dict[str, Any]) -> Any:
        """Makes calls when a method is called for the nth time."""
        every = spec.get("every", 1)
        count = 0

        def act(callback: Any, *args: Any, **kwargs: Any) -> None:
            nonlocal count
            if "batch" in spec["at"] and every > 1 and (args[0] + 1) % every:
                return
            count += 1
            if count == spec.get("when", 1):
                for call in spec["calls"]:
                    self.see("acts", call["do"])
                    found = self.do(call)
                    self.see("acted", found)

        return _callback({spec["at"]: act}, every)

    def _callback_late(self, spec: dict[str, Any]) -> Any:
        """Gets its method for batches when the pass begins."""

        def seen(callback: Any) -> Any:
            return lambda batch, logs=None: self.see("late", [batch, logs, callback.model.get_weights()])

        def on_train_begin(callback: Any, logs: Any = None) -> None:
            callback.on_train_batch_end = seen(callback)

        def set_model(callback: Any, model: Any) -> None:
            keras.callbacks.Callback.set_model(callback, model)
            callback.on_train_batch_end = seen(callback)

        return _callback({spec["at"]: {"on_train_begin": on_train_begin, "set_model": set_model}[spec["at"]]})

    def _callback_lambda(self, spec: dict[str, Any]) -> Any:
        return keras.callbacks.LambdaCallback(
            on_epoch_end=lambda epoch, logs: self.see("lambda epoch", [epoch, logs]),
            on_train_batch_end=(lambda batch, logs: self.see("lambda batch", [batch, logs]))
            if spec.get("batches")
            else None,
        )

    def _callback_early_stopping(self, spec: dict[str, Any]) -> Any:
        return keras.callbacks.EarlyStopping(
            spec.get("monitor", "loss"), min_delta=10.0, patience=spec.get("patience", 0), restore_best_weights=True
        )

    def _callback_shared(self, spec: dict[str, Any]) -> Any:
        return self._shared[spec["number"]]

    def _callback_stops_at_nan(self, spec: dict[str, Any]) -> Any:
        return keras.callbacks.TerminateOnNaN()

    def _callback_schedule(self, spec: dict[str, Any]) -> Any:
        return keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.5)

    def _callback_plateau(self, spec: dict[str, Any]) -> Any:
        return keras.callbacks.ReduceLROnPlateau(spec.get("monitor", "loss"), patience=0, min_delta=10.0)

    def _callback_checkpoint(self, spec: dict[str, Any]) -> Any:
        run, folder = self, tempfile.mkdtemp(dir=self.folder)

        class Files(keras.callbacks.Callback):
            """Records the files at the end."""

            def on_train_end(self, logs: Any = None) -> None:
                for name in sorted(os.listdir(folder)):
                    run.see(f"file {name}", _arrays_in(os.path.join(folder, name)))

        freq = spec.get("save_freq", "epoch")
        name = "at-{epoch}.weights.h5" if freq == "epoch" else "at-{epoch}-{batch}.weights.h5"
        saver = keras.callbacks.ModelCheckpoint(
            os.path.join(folder, name), save_weights_only=True, save_freq=freq, verbose=0
        )
        return [saver, Files()]

    def _turning(self) -> Any:
        turns, me, every = self._local.turns

        def turn(callback: Any, batch: int, logs: Any = None) -> None:
            if (batch + 1) % every == 0:
                self.see("turn", batch)
                turns.hand_on(me)
                turns.wait(me)

        return _callback({f"on_{kind}_batch_end": turn for kind in KINDS.values()}, every)


class Handshake:
    """Has a generator make its elements when the loop needs them, whatever tf.data takes ahead.

    Args:
      kind: "train", "test" or "predict".
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._begun = 0
        self._changed = threading.Condition()
        self.over = threading.Event()

    def wait(self, number: int) -> None:
        """Waits until the loop needs an element. Keras itself takes the first two before it begins."""
        if number < 2:
            return
        with self._changed:
            while self._begun <= number and not self.over.is_set():
                if not self._changed.wait(WAIT_SECS):
                    raise TimeoutError(f"batch {number} never begins")

    def callback(self) -> Any:
        def begins(callback: Any, *args: Any, **kwargs: Any) -> None:
            with self._changed:
                self._begun += 1
                self._changed.notify_all()

        def ends(callback: Any, *args: Any, **kwargs: Any) -> None:
            with self._changed:
                self.over.set()
                self._changed.notify_all()

        return _callback({f"on_{self._kind}_batch_begin": begins, f"on_{self._kind}_end": ends})


class Batches(keras.utils.PyDataset):
    """Batches of Python's, the same in each epoch."""

    def __init__(self, batches: list[Any], workers: int, see: Callable[[str, Any], None]) -> None:
        super().__init__(workers=workers)
        self._batches, self._see = batches, see

    def on_epoch_end(self) -> None:
        self._see("end of an epoch of batches", None)

    def __len__(self) -> int:
        return len(self._batches)

    def __getitem__(self, number: int) -> Any:
        return self._batches[number]


class OwnSteps(keras.Model):
    """A model with steps of its own, which have results that no metric has."""

    def train_step(self, data: Any) -> Any:
        logs = dict(super().train_step(data))
        return {**logs, "rows": tf.shape(tf.nest.flatten(data)[0])[0], "norm": tf.norm(self.trainable_weights[-1])}

    def test_step(self, data: Any) -> Any:
        return {**super().test_step(data), "norm": tf.norm(self.trainable_weights[-1])}

    def predict_step(self, data: Any) -> Any:
        return tf.nest.map_structure(lambda rows: rows + 1.0, super().predict_step(data))


class OwnEvaluate(keras.Model):
    """A model whose `evaluate` reads the arrays that it gets, also from `fit`."""

    def evaluate(self, x: Any = None, y: Any = None, **options: Any) -> Any:
        found = super().evaluate(x=x, y=y, **options)
        if isinstance(found, dict) and isinstance(y, np.ndarray):
            predicted = self.predict(x, verbose=0)
            found["far"] = float(np.abs(predicted.reshape(len(y), -1)[:, 0] - y.reshape(len(y), -1)[:, 0]).max())
        return found


ARRAYS: dict[str, Callable[[Any], Any]] = {
    "arrays": lambda array: array,
    "tensors": tf.constant,
    "variables": tf.Variable,
    "strided": lambda array: np.repeat(array, 2, axis=0)[::2],
    "wide": lambda array: array.astype(np.int64 if array.dtype == np.int32 else np.float64),
    "fortran": np.asfortranarray,
}
LAYERS: dict[str, Callable[[], Any]] = {
    "dense": lambda: keras.layers.Dense(5, "relu"),
    "narrow": lambda: keras.layers.Dense(1, "tanh"),
    "penalty": lambda: keras.layers.Dense(4, "tanh", kernel_regularizer="l2"),
    "dropout": lambda: keras.layers.Dropout(0.3),
    "seeded dropout": lambda: keras.layers.Dropout(0.3, seed=5),
    "noise": lambda: keras.layers.GaussianNoise(0.1, seed=2),
    "normalization": lambda: keras.layers.BatchNormalization(),
}
OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "sgd": lambda: keras.optimizers.SGD(0.05),
    "still": lambda: keras.optimizers.SGD(0.0),
    "momentum": lambda: keras.optimizers.SGD(0.05, momentum=0.9),
    "adam": lambda: keras.optimizers.Adam(0.01),
    "average": lambda: keras.optimizers.AdamW(0.01, use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=3),
    "accumulating": lambda: keras.optimizers.Adam(0.01, gradient_accumulation_steps=2),
    "schedule": lambda: keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(0.05, 2, 0.5)),
}


def _callback(methods: dict[str, Any], every: int | None = None) -> Any:
    """A callback with methods. Keras calls it in the loop's thread, since it has those for the ends of batches."""
    for kind in KINDS.values():
        if f"on_{kind}_batch_begin" in methods:
            methods.setdefault(f"on_{kind}_batch_end", lambda self, *args, **kwargs: None)
    callback = type("Callback", (keras.callbacks.Callback,), methods)()
    if every and every > 1:
        callback.batch_freq = every
    return callback


def _first(structure: Any, rows: int) -> Any:
    return tf.nest.map_structure(lambda array: array[:rows], structure)


def _state_of(model: Any) -> dict[str, Any]:
    variables = [*model.variables, *model.optimizer.variables, *(v for m in model.metrics for v in m.variables)]
    state = {
        f"{number} {variable.path}": keras.ops.convert_to_numpy(variable) for number, variable in enumerate(variables)
    }
    stops = {name: getattr(model, name, None) for name in ("stop_training", "stop_evaluating", "stop_predicting")}
    return {**state, **stops, "epochs": getattr(getattr(model, "history", None), "epoch", None)}


def _text(error: BaseException) -> str:
    """What an error says, without the places in programs and graphs that are listed."""
    text = str(error).partition("Detected at node")[0]
    return re.sub(r"\{\{[^}]*\}\}|0x[0-9a-f]+|\[Op:\w+\]", "", text).strip()


def _arrays_in(path: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with h5py.File(path) as file:
        file.visititems(lambda name, part: found.update({name: part[()]}) if isinstance(part, h5py.Dataset) else None)
    return found


def compare(program: dict[str, Any], tolerance: float = 0.0) -> str:
    """Runs a program in both ways. Returns the first difference, or ""."""
    plain = Run(program, accelerates=False).go()
    accelerated = Run(program, accelerates=True).go()
    return difference(plain, accelerated, tolerance)
