"""Calls of an accelerated model in calls, in threads and at a time: the state of each belongs to it."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import fastsup

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.only_device("XLA compiles steps for one CPU alone"),
    pytest.mark.filterwarnings("ignore::UserWarning:keras.*"),
]

X = np.arange(8, dtype=np.float32)[:, None]
WAIT_SECS = 60


def new_model(jit_compile: bool) -> Any:
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input([1]), keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")])
    model.compile(keras.optimizers.SGD(0.01), keras.losses.MeanAbsoluteError(), jit_compile=jit_compile)
    return model


def both(run: Callable[[Any], Any], jit_compile: bool) -> tuple[Any, Any]:
    """What a program makes of Keras's model, and of an accelerated one."""
    accelerated = fastsup.keras.accelerate(new_model(jit_compile), fuse="always" if jit_compile else "auto")
    return run(new_model(jit_compile)), run(accelerated)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_fit_begins_and_ends_while_another_thread_predicts(jit_compile: bool) -> None:
    class Wait(keras.callbacks.Callback):
        def on_predict_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 0:
                went.set()
                assert back.wait(WAIT_SECS)

    class End(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            seen.append((batch, float(logs["loss"])))
            if batch == 1:
                back.set()
                thread.join(WAIT_SECS)

    def predict(model: Any) -> None:
        rows.append(model.predict(X, batch_size=2, verbose=0, callbacks=[Wait()]).ravel().tolist()[:2])

    def run(model: Any) -> Any:
        nonlocal thread
        seen.clear(), rows.clear(), went.clear(), back.clear()
        thread = threading.Thread(target=predict, args=[model])
        thread.start()
        assert went.wait(WAIT_SECS)
        model.fit(X, 2 * X, batch_size=2, shuffle=False, verbose=0, callbacks=[End()])
        thread.join(WAIT_SECS)
        return list(seen), list(rows)

    seen: list[Any] = []
    rows: list[Any] = []
    went, back = threading.Event(), threading.Event()
    thread = threading.Thread()
    expected, found = both(run, jit_compile)
    assert found == expected
    assert [batch for batch, _ in found[0]] == [0, 1, 2, 3]


@pytest.mark.parametrize("where", ["set_model", "on_train_begin", "on_epoch_begin"])
def test_a_callback_gets_its_method_for_batches_late(where: str) -> None:
    class Late(keras.callbacks.Callback):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[Any] = []

        def _look(self, batch: int, logs: Any = None) -> None:
            self.seen.append((batch, self.model.get_weights()[0].tobytes()))

    def begin(self: Late, *args: Any) -> None:
        if where == "set_model":
            keras.callbacks.Callback.set_model(self, *args)
        self.on_train_batch_end = self._look

    def run(model: Any) -> Any:
        late = Late()
        setattr(late, where, begin.__get__(late))
        model.fit(X, 2 * X, batch_size=2, shuffle=False, verbose=0, callbacks=[late])
        return late.seen

    expected, found = both(run, True)
    assert found == expected
    assert len(found) == 4


def test_predictions_of_batches_of_several_sizes() -> None:
    def run(model: Any) -> Any:
        return [model.predict(X, batch_size=size, verbose=0).tolist() for size in (1, 2, 3, 5, 2, 8)]

    expected, found = both(run, True)
    assert found == expected


@pytest.mark.parametrize("jit_compile", [False, True])
def test_arrays_are_those_of_the_time_when_keras_takes_them(jit_compile: bool) -> None:
    """Those to train with when `fit` begins, those to validate with at the end of the first epoch."""

    class Change(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            arrays["train"][:] = 100 * (epoch + 1)
            arrays["test"][:] = 7 * (epoch + 1)

        def on_predict_batch_end(self, batch: int, logs: Any = None) -> None:
            arrays["predict"][:] = 0

    def run(model: Any) -> Any:
        arrays.update({name: X.copy() for name in ("train", "test", "predict")})
        validation = arrays["test"], arrays["test"].copy()
        fitted = model.fit(
            arrays["train"], X, batch_size=2, epochs=3, verbose=0, validation_data=validation, callbacks=[Change()]
        )
        return fitted.history, model.predict(arrays["predict"], batch_size=2, verbose=0, callbacks=[Change()]).tolist()

    arrays: dict[str, Any] = {}
    expected, found = both(run, jit_compile)
    assert found == expected
    assert found[1][-1] != [0]


def test_warnings_and_errors_of_an_input_are_keras_s() -> None:
    def caught(model: Any, *args: Any, **kwargs: Any) -> Any:
        error = None
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            try:
                model.fit(*args, verbose=0, **kwargs)
            except Exception as raised:
                error = type(raised), str(raised)
        return error, [(str(warning.message), warning.filename) for warning in found]

    dataset = tf.data.Dataset.from_tensor_slices((X, X)).batch(2)
    for args, kwargs in (
        (lambda: (dataset,), {}),
        (lambda: (dataset, X), {}),
        (lambda: (dataset,), {"validation_data": (dataset, X)}),
        (lambda: (iter([]),), {}),
        (lambda: ((value for value in ()),), {}),
        (lambda: ((value for value in (1, 2)),), {"steps_per_epoch": 2}),
    ):
        expected, found = both(lambda model, args=args, kwargs=kwargs: caught(model, *args(), **kwargs), True)
        assert found == expected


def test_a_step_of_an_iterator_of_the_program_s_runs_no_other() -> None:
    """A callback of a `fit` that runs steps ahead calls the model's function itself."""

    class Extra(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            iterator = iter(tf.data.Dataset.from_tensor_slices((X, X)).batch(1))
            self.model.train_function(iterator)
            left.append(float(next(iterator)[0][0, 0]))

    def run(model: Any) -> Any:
        left.clear()
        model.fit(X, 2 * X, batch_size=2, shuffle=False, verbose=0, callbacks=[Extra()])
        return list(left), int(model.optimizer.iterations.numpy()), model.get_weights()[0].tolist()

    left: list[float] = []
    expected, found = both(run, True)
    assert found == expected
    assert found[0] == [1.0]


@pytest.mark.parametrize("is_accelerated", [False, True])
def test_a_model_is_accelerated_in_a_call(is_accelerated: bool) -> None:
    class Accelerate(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if epoch == 0:
                fastsup.keras.accelerate(self.model)

    def run(model: Any, *callbacks: Any) -> Any:
        fitted = model.fit(X, 2 * X, batch_size=3, epochs=3, verbose=0, callbacks=list(callbacks))
        return fitted.history, model.get_weights()[0].tolist()

    model = fastsup.keras.accelerate(new_model(False)) if is_accelerated else new_model(False)
    assert run(model, Accelerate()) == run(new_model(False))
    assert fastsup.keras.report(model)[0].lifted


class Own(keras.Model):
    """Has an `evaluate` of its own, which reads its arguments."""

    def evaluate(self, x: Any = None, y: Any = None, **options: Any) -> Any:
        return {**super().evaluate(x, y, **options), "sum": float(np.sum(x) + np.sum(y))}


def test_an_evaluate_of_the_program_s_gets_what_fit_got() -> None:
    def run(accelerate: Callable[[Any], Any]) -> Any:
        keras.utils.set_random_seed(1)
        given = keras.Input([1])
        model = Own(given, keras.layers.Dense(1)(given))
        model.compile("sgd", "mse")
        return accelerate(model).fit(X, X, batch_size=2, verbose=0, validation_data=(X, X), epochs=2).history

    found = run(fastsup.keras.accelerate)
    assert found == run(lambda model: model)
    assert found["val_sum"] == [56.0, 56.0]


@pytest.mark.parametrize("is_traced", [False, True])
@pytest.mark.parametrize("where", ["on_train_begin", "on_epoch_begin"])
def test_a_callback_gives_the_model_a_function_of_its_own(is_traced: bool, where: str) -> None:
    class Give(keras.callbacks.Callback):
        def __init__(self) -> None:
            super().__init__()
            setattr(self, where, self.give)

        def give(self, *args: Any) -> None:
            model, lifted = self.model, self.model.train_function
            traced = tf.function(lambda iterator: model.train_step(iterator.get_next()))
            model.train_function = traced if is_traced else lambda iterator: lifted(iterator)

    def run(model: Any) -> Any:
        return model.fit(X, 2 * X, batch_size=3, epochs=2, verbose=0, callbacks=[Give()]).history

    expected, found = both(run, False)
    assert found == expected


@pytest.mark.parametrize("other", [3, None])
def test_what_is_not_a_callback_is_refused_as_keras_refuses_it(other: Any) -> None:
    def run(model: Any) -> Any:
        with pytest.raises(AttributeError) as caught:
            model.fit(X, X, verbose=0, callbacks=[other])
        return str(caught.value)

    expected, found = both(run, False)
    assert found == expected


@pytest.mark.parametrize("jit_compile", [False, True])
def test_the_last_batch_of_an_epoch_is_run_by_the_epoch_s_trace(jit_compile: bool) -> None:
    """A call before has traced its function for the size of that batch, and Keras's means depend on the trace."""

    def run(accelerate: Callable[[Any], Any]) -> Any:
        keras.utils.set_random_seed(1)
        given = keras.Input([1])
        model = keras.Model(given, [keras.layers.Dense(1, name="one")(given), keras.layers.Dense(1, name="two")(given)])
        model.compile("sgd", ["mse", "mse"], jit_compile=jit_compile)
        accelerate(model)
        evaluated = [model.evaluate(X, [X, 2 * X], batch_size=size, verbose=0) for size in (2, 3)]
        fitted = [model.fit(X, [X, 2 * X], batch_size=size, verbose=0).history for size in (2, 3)]
        return evaluated, fitted

    expected = run(lambda model: model)
    assert run(lambda model: fastsup.keras.accelerate(model, fuse="never")) == expected


@pytest.mark.parametrize("name", ["fit", "evaluate", "predict"])
def test_a_loop_that_is_stopped_before_its_first_batch_runs_one(name: str) -> None:
    class Stop(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.model.stop_training = True

        def on_test_begin(self, logs: Any = None) -> None:
            self.model.stop_evaluating = True

        def on_predict_begin(self, logs: Any = None) -> None:
            self.model.stop_predicting = True

    def run(model: Any) -> Any:
        arrays = (X,) if name == "predict" else (X, 2 * X)
        options = {"shuffle": False} if name == "fit" else {}
        found = getattr(model, name)(*arrays, batch_size=2, verbose=0, callbacks=[Stop()], **options)
        state = [np.asarray(variable).tolist() for variable in model.optimizer.variables]
        return found.history if name == "fit" else np.asarray(found).tolist(), state, model.get_weights()[0].tolist()

    expected, found = both(run, True)
    assert found == expected


def _two_outputs() -> Any:
    inputs = keras.Input([4])
    outputs = {"mean": keras.layers.Dense(2)(inputs), "scale": keras.layers.Dense(1, "softplus")(inputs)}
    return keras.Model(inputs, outputs)


@pytest.mark.parametrize("make", [lambda: keras.Sequential([keras.Input([4]), keras.layers.Dense(2)]), _two_outputs])
def test_predict_of_one_batch_is_what_keras_returns(make: Any) -> None:
    """Acting and learning programs call it for each action. It goes a shorter way."""
    plain = make()
    plain.compile("sgd", "mse")
    fast = keras.models.clone_model(plain)
    fast.compile("sgd", "mse")
    fastsup.keras.accelerate(fast)
    random = np.random.default_rng(0)
    for rows, dtype, given in [
        (1, "float32", {}), (3, "float64", {}), (32, "float16", {}), (33, "float32", {}), (5, "int64", {}),
        (5, "float32", {"batch_size": 2}), (1, "float32", {}), (40, "float32", {"batch_size": 64}),
    ]:  # fmt: skip
        fast.set_weights([weight + 0.5 for weight in fast.get_weights()])
        plain.set_weights(fast.get_weights())
        x = (10 * random.random((rows, 4))).astype(dtype)
        results = [keras.tree.flatten(model.predict(x, verbose=0, **given)) for model in (plain, fast)]
        for theirs, ours in zip(*results, strict=True):
            assert type(ours) is np.ndarray
            assert (ours.dtype, ours.shape, ours.tobytes()) == (theirs.dtype, theirs.shape, theirs.tobytes())
            ours += 1.0  # It is the caller's.
    assert fast.stop_predicting is False
    errors = []
    for model in (plain, fast):
        with pytest.raises(Exception, match="incompatible") as raised:
            model.predict(np.zeros([1, 7], "float32"), verbose=0)
        errors.append(type(raised.value))
    assert errors[0] is errors[1]
