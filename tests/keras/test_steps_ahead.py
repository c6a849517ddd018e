"""`fit` and `evaluate` that make steps ahead of Keras's loop: the same histories, logs and weights."""

from __future__ import annotations

import gc
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import fastsup
from fastsup.keras.inputs import OrderedBatches
from fastsup.keras.model_function import ModelFunction

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.only_device("XLA compiles steps for one CPU alone"),
    pytest.mark.filterwarnings("ignore::UserWarning:keras.*"),
]

# Six batches of 16, or six of 17 of which the last one has fewer rows.
ROWS = 96
_random = np.random.default_rng(0)
X = _random.standard_normal((ROWS, 6)).astype(np.float32)
Y = _random.integers(0, 3, ROWS)
VALIDATION = X[:30] + 1, Y[:30]


def new_model(**compiled: Any) -> Any:
    keras.backend.clear_session()
    keras.utils.set_random_seed(3)
    model = keras.Sequential([keras.Input([6]), keras.layers.Dropout(0.3), keras.layers.Dense(3)])
    model.compile(
        **{
            "optimizer": keras.optimizers.SGD(0.1, momentum=0.9),
            "loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            "metrics": ["accuracy"],
            "jit_compile": True,
            **compiled,
        }
    )
    return model


class Epochs(keras.callbacks.Callback):
    """Notes the weights at the ends of epochs."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.seen.append((epoch, dict(logs or {}), [w.tobytes() for w in self.model.get_weights()]))


def batches() -> Any:
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(17)


PASSES: dict[str, Callable[[Any], Any]] = {
    "arrays, validation": lambda model: model.fit(X, Y, batch_size=16, epochs=4, verbose=2, validation_data=VALIDATION),
    "arrays in order, a progress bar": lambda model: model.fit(X, Y, batch_size=17, epochs=3, verbose=1, shuffle=False),
    "a part for validation, weights of classes": lambda model: model.fit(
        X, Y, epochs=3, verbose=0, validation_split=0.3, class_weight={0: 1.0, 1: 2.0, 2: 0.5}
    ),
    "weights of rows, steps per epoch": lambda model: model.fit(
        X, Y, batch_size=16, epochs=2, verbose=0, sample_weight=np.linspace(0, 1, ROWS), steps_per_epoch=5
    ),
    "a dataset": lambda model: model.fit(batches(), epochs=3, verbose=0),
    "a repeated dataset": lambda model: model.fit(
        batches().repeat(),
        epochs=3,
        verbose=0,
        steps_per_epoch=4,
        validation_data=batches().repeat(),
        validation_steps=2,
    ),
}


def trained(run: Callable[[Any], Any], accelerate: Callable[[Any], Any]) -> Any:
    model = accelerate(new_model())
    callback = Epochs()
    fit = model.fit
    model.fit = lambda *args, **kwargs: fit(*args, callbacks=[callback], **kwargs)
    history = run(model)
    evaluated = model.evaluate(X, Y, batch_size=16, verbose=0)
    optimizer = [np.asarray(variable).tobytes() for variable in model.optimizer.variables]
    return history.history, callback.seen, evaluated, optimizer, model


@pytest.mark.first_cases(2)
@pytest.mark.parametrize("name", PASSES)
def test_the_same(name: str) -> None:
    *expected, _ = trained(PASSES[name], lambda model: model)
    *found, model = trained(PASSES[name], lambda model: fastsup.keras.accelerate(model, fuse="always"))
    assert found == expected
    assert isinstance(model.train_function, ModelFunction)
    assert model.train_function.fused
    assert model.train_function.why_not_fused == ""
    assert model.test_function.fused
    # No step was made alone, and still it was called.
    assert str(fastsup.keras.report(model)[0]).startswith("train: lifted, ")
    assert "many steps in one compiled call" in str(fastsup.keras.report(model)[0])


def test_the_bar_has_the_logs_of_each_step() -> None:
    class Bar(keras.callbacks.ProgbarLogger):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            seen.append((batch, dict(logs or {})))

    def logs_of(accelerate: Any) -> Any:
        seen.clear()
        model = accelerate(new_model())
        # As one of Keras's own class.
        bar = Bar()
        bar.__class__ = type("ProgbarLogger", (Bar,), {})
        model.fit(X, Y, batch_size=16, epochs=2, verbose=0, callbacks=[bar])
        return list(seen)

    seen: list[Any] = []
    expected = logs_of(lambda model: model)
    assert logs_of(fastsup.keras.accelerate) == expected
    assert [batch for batch, _ in expected] == [0, 1, 2, 3, 4, 5] * 2


def test_nan_ends_training_at_its_batch() -> None:
    x = X.copy()
    x[40] = np.nan

    def run(accelerate: Any) -> Any:
        model = accelerate(new_model())
        model.fit(x, Y, batch_size=16, epochs=3, verbose=0, shuffle=False, callbacks=[keras.callbacks.TerminateOnNaN()])
        return model.stop_training, len(model.history.epoch)

    assert run(lambda model: model) == run(lambda model: fastsup.keras.accelerate(model, fuse="always")) == (True, 1)


def test_a_callback_that_looks_at_each_batch_gets_each_batch() -> None:
    class Look(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            seen.append((batch, float(logs["loss"]), self.model.get_weights()[0].tobytes()))

    def run(accelerate: Any) -> Any:
        seen.clear()
        model = accelerate(new_model())
        model.fit(X, Y, batch_size=16, epochs=2, verbose=0, callbacks=[Look()])
        return list(seen), model

    seen: list[Any] = []
    expected, _ = run(lambda model: model)
    found, model = run(lambda model: fastsup.keras.accelerate(model, fuse="always"))
    assert found == expected
    assert model.train_function.why_not_fused == "the callback Look inspects each batch"
    assert not model.train_function.fused


@pytest.mark.first_cases(1)
@pytest.mark.parametrize(("batch_freq", "steps"), [(1, None), (2, None), (4, 5)])
def test_a_callback_that_looks_at_every_nth_batch(batch_freq: int, steps: int | None) -> None:
    """It sees the weights of these batches, and in between those of some later batch; and the logs of each batch."""

    class Look(keras.callbacks.Callback):
        def __init__(self) -> None:
            super().__init__()
            self.batch_freq = batch_freq

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            weights = self.model.get_weights()[0].tobytes() if (batch + 1) % batch_freq == 0 else b""
            seen.append((batch, float(logs["loss"]), weights))

    def run(accelerate: Any) -> Any:
        seen.clear()
        model = accelerate(new_model())
        data = batches().repeat() if steps else batches()
        model.fit(data, epochs=3, verbose=0, callbacks=[Look()], steps_per_epoch=steps)
        return list(seen), model

    seen: list[Any] = []
    expected, _ = run(lambda model: model)
    found, model = run(lambda model: fastsup.keras.accelerate(model, fuse="always"))
    assert found == expected
    assert model.train_function.fused == (batch_freq > 1)


def test_a_layer_of_one_output_has_the_same_weights_but_for_the_last_bits() -> None:
    """XLA may add up a product of a matrix and a vector in another order in the loop."""

    def run(accelerate: Any) -> Any:
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input([32]), keras.layers.Dense(1)])
        model.compile("sgd", "mse", jit_compile=True)
        x = np.random.default_rng(1).random((96, 32)).astype(np.float32)
        model = accelerate(model)
        model.fit(x, x.sum(axis=1, keepdims=True), batch_size=16, verbose=0)
        return model

    expected = run(lambda model: model)
    found = run(lambda model: fastsup.keras.accelerate(model, fuse="always"))
    assert found.train_function.fused
    np.testing.assert_allclose(found.get_weights()[0], expected.get_weights()[0], rtol=1e-5)


@pytest.mark.parametrize("batch_freq", [0, True, "2"])
def test_a_wrong_batch_freq(batch_freq: Any) -> None:
    class Look(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            pass

    look = Look()
    look.batch_freq = batch_freq
    model = fastsup.keras.accelerate(new_model())
    with pytest.raises(ValueError, match=r"batch_freq of the callback Look must be a positive integer, got"):
        model.fit(X, Y, verbose=0, callbacks=[look])


PREDICTED: dict[str, Callable[[Any], Any]] = {
    "arrays": lambda model: model.predict(X, batch_size=16, verbose=0),
    "a smaller last batch": lambda model: model.predict(X, batch_size=17, verbose=0),
    "some steps": lambda model: model.predict(X, batch_size=16, steps=3, verbose=0),
    "a progress bar": lambda model: model.predict(X, batch_size=16, verbose=1),
    "a dataset": lambda model: model.predict(batches().map(lambda x, y: x), verbose=0),
    "one batch": lambda model: model.predict(X, batch_size=96, verbose=0),
}


@pytest.mark.first_cases(3)
@pytest.mark.parametrize(("name", "fuse"), [*((name, "always") for name in PREDICTED), ("arrays", "never")])
def test_predict(name: str, fuse: str) -> None:
    run = PREDICTED[name]
    expected = run(new_model())
    model = fastsup.keras.accelerate(new_model(), fuse=fuse)
    for _ in range(2):
        found = run(model)
        assert type(found) is np.ndarray
        assert found.dtype == expected.dtype
        assert found.tobytes() == expected.tobytes()
    # One batch goes a shorter way.
    made_ahead = fuse == "always" and name not in ("a dataset", "one batch")
    assert model.predict_function.fused == made_ahead


def test_predict_of_several_outputs() -> None:
    def new() -> Any:
        keras.backend.clear_session()
        keras.utils.set_random_seed(3)
        x = keras.Input([6])
        outputs = {"a": keras.layers.Dense(2)(x), "b": [keras.layers.Dense(3)(x), keras.layers.Dense(1)(x)]}
        model = keras.Model(x, outputs)
        model.compile("sgd", "mse", jit_compile=True)
        return model

    expected = new().predict(X, batch_size=7, verbose=0)
    found = fastsup.keras.accelerate(new(), fuse="always").predict(X, batch_size=7, verbose=0)
    keras.tree.assert_same_structure(found, expected)
    for left, right in zip(keras.tree.flatten(found), keras.tree.flatten(expected), strict=True):
        np.testing.assert_array_equal(left, right)


def test_predict_with_a_callback_that_takes_the_outputs() -> None:
    class Outputs(keras.callbacks.Callback):
        def on_predict_batch_end(self, batch: int, logs: Any = None) -> None:
            seen.append((batch, np.asarray(logs["outputs"]).tobytes()))
            self.model.stop_predicting = batch == 3

    def run(accelerate: Any) -> Any:
        seen.clear()
        found = accelerate(new_model()).predict(X, batch_size=16, verbose=0, callbacks=[Outputs()])
        return list(seen), found.tobytes()

    seen: list[Any] = []
    assert run(lambda model: fastsup.keras.accelerate(model, fuse="always")) == run(lambda model: model)


@pytest.mark.parametrize("outputs", [1, 2])
def test_the_outputs_that_a_callback_takes_are_of_the_same_type(outputs: int) -> None:
    """Keras makes an array of one output, and leaves several as they are: tensors."""

    class Outputs(keras.callbacks.Callback):
        batch_freq = 2

        def on_predict_batch_end(self, batch: int, logs: Any = None) -> None:
            parts = keras.tree.flatten(logs["outputs"])
            assert len(parts) == outputs
            if batch % 2:
                seen.append([(type(part), np.asarray(part).tobytes()) for part in parts])

    def run(accelerate: Any) -> Any:
        seen.clear()
        keras.utils.set_random_seed(5)
        inputs = keras.Input([6])
        layers = [keras.layers.Dense(size)(inputs) for size in range(2, 2 + outputs)]
        model = keras.Model(inputs, layers if outputs > 1 else layers[0])
        model.compile("sgd", "mse", jit_compile=True)
        accelerate(model).predict(X, batch_size=16, verbose=0, callbacks=[Outputs()])
        return list(seen)

    seen: list[Any] = []
    ahead = run(lambda model: fastsup.keras.accelerate(model, fuse="always"))
    assert ahead == run(lambda model: model) != []


def test_predict_of_a_model_that_is_not_compiled() -> None:
    keras.utils.set_random_seed(3)
    model = keras.Sequential([keras.Input([6]), keras.layers.Dense(3)])
    expected = model.predict(X, verbose=0)
    np.testing.assert_array_equal(fastsup.keras.accelerate(model).predict(X, verbose=0), expected)


def test_a_fit_of_the_program_stays() -> None:
    class Model(keras.Sequential):
        def fit(self, *args: Any, **kwargs: Any) -> Any:
            return super().fit(*args, callbacks=[keras.callbacks.LambdaCallback(on_train_batch_end=note)], **kwargs)

    def note(batch: int, logs: Any) -> None:
        seen.append((batch, model.get_weights()[0].tobytes()))

    seen: list[Any] = []
    model = Model([keras.Input([6]), keras.layers.Dense(3)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=True)
    fastsup.keras.accelerate(model, fuse="always")
    model.fit(X, Y, batch_size=16, verbose=0)
    assert [batch for batch, _ in seen] == [0, 1, 2, 3, 4, 5]
    assert len({weights for _, weights in seen}) == 6
    assert model.train_function.why_not_fused == "it isn't called by fit, evaluate or predict"


def test_what_keras_refuses_is_refused() -> None:
    def error_of(accelerate: Any, *args: Any, **kwargs: Any) -> Any:
        with pytest.raises(Exception) as caught:
            accelerate(new_model()).fit(*args, verbose=0, **kwargs)
        return type(caught.value), str(caught.value)

    for args, kwargs in (
        ((X, Y[:5]), {}),
        ((), {}),
        ((X, Y), {"nonsense": 1}),
        ((X, Y), {"sample_weight": np.ones([3, 3])}),
        ((X, Y), {"validation_data": (X, Y, Y, Y)}),
    ):
        assert error_of(fastsup.keras.accelerate, *args, **kwargs) == error_of(lambda model: model, *args, **kwargs)


@pytest.mark.parametrize("save_freq", ["epoch", 4])
def test_checkpoints(save_freq: Any, tmp_path: Path) -> None:
    def run(folder: str, accelerate: Any) -> Any:
        model = accelerate(new_model())
        path = str(tmp_path / folder / "{epoch}.weights.h5")
        saver = keras.callbacks.ModelCheckpoint(path, save_weights_only=True, save_freq=save_freq)
        model.fit(X, Y, batch_size=16, epochs=3, verbose=0, callbacks=[saver])
        saved = {}
        for file in sorted((tmp_path / folder).iterdir()):
            model.load_weights(str(file))
            saved[file.name] = [w.tobytes() for w in model.get_weights()]
        return saved, model

    expected, _ = run("keras", lambda model: model)
    found, model = run("ours", lambda model: fastsup.keras.accelerate(model, fuse="always"))
    assert expected == found
    assert model.train_function.fused


def test_a_pass_that_fails_leaves_nothing_for_the_next() -> None:
    class Fail(keras.callbacks.ProgbarLogger):
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            if epoch == 1:
                raise RuntimeError("on purpose")

    model = fastsup.keras.accelerate(new_model(), fuse="always")
    with pytest.raises(RuntimeError, match="on purpose"):
        model.fit(X, Y, batch_size=16, epochs=3, verbose=0, callbacks=[Fail()])
    before = int(model.optimizer.iterations.numpy())
    assert before == 6
    model.fit(X, Y, batch_size=16, epochs=1, verbose=0)
    model.train_on_batch(X[:16], Y[:16])
    assert int(model.optimizer.iterations.numpy()) == before + 7


def test_arrays_are_released_after_a_pass() -> None:
    model = fastsup.keras.accelerate(new_model(), fuse="always")
    x, y, other = X.copy(), Y.copy(), X[:32].copy()
    references = [weakref.ref(array) for array in (x, y, other)]
    model.fit(x, y, batch_size=16, epochs=2, verbose=0, validation_data=(other, Y[:32]))
    model.evaluate(x, y, batch_size=16, verbose=0)
    del x, y, other
    gc.collect()
    assert [reference() for reference in references] == [None, None, None]


def test_copies_of_arrays_are_released_after_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    copies: list[Any] = []
    make = OrderedBatches.__init__

    def noted(self: Any, *args: Any) -> None:
        make(self, *args)
        copies.append(weakref.ref(self))

    monkeypatch.setattr(OrderedBatches, "__init__", noted)
    for fuse in ("always", "never"):
        model = fastsup.keras.accelerate(new_model(), fuse=fuse)
        model.fit(X, Y, batch_size=16, epochs=2, verbose=0, validation_data=VALIDATION)
        model.predict(X, batch_size=16, verbose=0)
    gc.collect()
    assert [reference() for reference in copies] == 6 * [None]


def test_arrays_that_are_split_are_copied_row_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = []
    begin = OrderedBatches.begin
    monkeypatch.setattr(OrderedBatches, "begin", lambda self, order: (begun.append(self.rows), begin(self, order))[1])
    model = fastsup.keras.accelerate(new_model())
    model.fit(X, Y, batch_size=16, epochs=2, verbose=0, validation_split=0.25)
    validated = ROWS // 4
    assert begun == 2 * [ROWS - validated, validated]


@pytest.mark.parametrize("split", [0.999, "half"])
def test_a_split_that_keras_refuses(split: Any) -> None:
    errors = []
    for model in (new_model(), fastsup.keras.accelerate(new_model())):
        with pytest.raises((ValueError, TypeError)) as caught:
            model.fit(X, Y, batch_size=16, verbose=0, validation_split=split)
        errors.append((type(caught.value), str(caught.value)))
    assert errors[0] == errors[1]


def test_orders_of_many_calls_under_seeds() -> None:
    """The order of an epoch is kept for the next calls: it is Keras's, whatever other calls come between."""

    def run(accelerate: Any) -> list[list[bytes]]:
        model = accelerate(new_model(jit_compile=False))
        seen = []
        for seed, rows in [(1, 40), (1, 41), (2, 40), (1, 40), (1, 41), (2, 41)]:
            keras.utils.set_random_seed(seed)
            model.fit(X[:rows], Y[:rows], batch_size=16, epochs=2, verbose=0)
            model.fit(X[:rows], Y[:rows], batch_size=rows, verbose=0)
            seen.append([weights.tobytes() for weights in model.get_weights()])
        return seen

    assert run(fastsup.keras.accelerate) == run(lambda model: model)


def test_orders_without_a_seed() -> None:
    """Each epoch has all rows. Calls of `fit` have other orders where Keras's own have, which is so up to 3.15."""

    class Model(keras.Model):
        def train_step(self, data: Any) -> Any:
            self.rows.assign(tf.concat([self.rows[16:], tf.cast(data[0][:, 0], tf.int32)], 0))
            return {"loss": tf.constant(0.0)}

    def orders(accelerate: Any) -> set[tuple[int, ...]]:
        tf.random.set_seed(None)  # type: ignore[arg-type]
        tf.keras.backend.clear_session()
        model = Model()
        model.rows = tf.Variable(tf.zeros([64], tf.int32), trainable=False)
        model.compile(optimizer="sgd", loss="mse", jit_compile=True)
        accelerate(model)
        seen = set()
        for _ in range(4):
            model.fit(np.arange(64.0).reshape(64, 1), np.zeros(64), batch_size=16, epochs=1, verbose=0)
            seen.add(tuple(model.rows.numpy().tolist()))
        return seen

    of_keras = orders(lambda model: model)
    found = orders(lambda model: fastsup.keras.accelerate(model, fuse="always"))
    assert all(sorted(order) == list(range(64)) for order in found)
    assert len(found) == len(of_keras)
    assert len(found) == 4 or found == of_keras


def test_what_is_not_compiled_says_so() -> None:
    model = fastsup.keras.accelerate(new_model(jit_compile=False))
    model.fit(X, Y, epochs=1, verbose=0)
    assert model.train_function.why_not_fused == "XLA doesn't compile the model: jit_compile isn't True"
    model = fastsup.keras.accelerate(new_model(), fuse="never")
    model.fit(X, Y, epochs=1, verbose=0)
    assert model.train_function.why_not_fused == 'fuse="never"'
    model = fastsup.keras.accelerate(new_model(steps_per_execution=2, jit_compile=True))
    model.fit(X, Y, epochs=1, verbose=0)
    assert "Keras itself runs 2 steps per call" in model.train_function.why_not_fused


def test_the_input_that_ends_early_warns_as_keras_does() -> None:
    def run(accelerate: Any) -> Any:
        model = accelerate(new_model())
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            history = model.fit(batches().take(3), epochs=2, verbose=0, steps_per_epoch=4)
        return history.history, [str(warning.message)[:40] for warning in caught if "ran out" in str(warning.message)]

    expected = run(lambda model: model)
    assert run(lambda model: fastsup.keras.accelerate(model, fuse="always")) == expected
    assert expected[1]


def test_wrong_fuse() -> None:
    with pytest.raises(ValueError, match="fuse must be one of 'auto', 'always', 'never'; got True"):
        fastsup.keras.accelerate(new_model(), fuse=True)
