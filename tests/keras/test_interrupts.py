"""Ctrl-C in an accelerated model's `fit` where Keras and Python drop exceptions."""

from __future__ import annotations

import signal
import sys
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras.src.trainers import trainer
from keras.src.utils import python_utils

import fastsup.keras

X, Y = np.ones((32, 4), np.float32), np.ones((32, 1), np.float32)


@pytest.fixture
def model() -> Any:
    keras.backend.clear_session()
    made = keras.Sequential([keras.Input([4]), keras.layers.Dense(1)])
    made.compile("sgd", "mse", jit_compile=False)
    return made


class Batches(keras.callbacks.Callback):
    """Counts the batches that have ended."""

    def __init__(self) -> None:
        super().__init__()
        self.ended: int = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.ended += 1


@pytest.fixture
def interrupted_in_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C comes when Keras makes a number of the third batch's logs, whose exceptions it drops."""
    calls = 0

    def number(value: Any) -> float:
        nonlocal calls
        calls += not tf.is_symbolic_tensor(value)  # Old releases call it also where they trace the step.
        if calls == 3:
            signal.raise_signal(signal.SIGINT)
        return float(value)

    for module in (python_utils, trainer):  # Of new and of old releases.
        monkeypatch.setattr(module, "float", number, raising=False)


def fit(model: Any, batches: Batches) -> None:
    model.fit(X, Y, batch_size=4, epochs=2, verbose=0, callbacks=[batches])


def test_keras_drops_it(model: Any, interrupted_in_logs: None) -> None:
    """If this fails, Keras raises it: fastsup.keras.interrupts can go once older releases do."""
    batches = Batches()
    fit(model, batches)
    assert batches.ended == 16


def test_an_accelerated_model_ends_after_the_batch(model: Any, interrupted_in_logs: None) -> None:
    fastsup.keras.accelerate(model)
    batches = Batches()
    with pytest.raises(KeyboardInterrupt):
        fit(model, batches)
    assert batches.ended == 3
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    fit(model, batches)  # Only once.
    assert batches.ended == 19


def test_one_that_a_finaliser_drops_at_the_end(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python prints an exception of a finaliser. Here it comes after the last batch."""
    printed: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: printed.append(unraisable.exc_type))

    class Interrupts(keras.callbacks.Callback):
        def on_train_end(self, logs: Any = None) -> None:
            class Finalised:
                def __del__(self) -> None:
                    signal.raise_signal(signal.SIGINT)

            Finalised()

    fastsup.keras.accelerate(model)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, Y, verbose=0, callbacks=[Interrupts()])
    assert printed == [KeyboardInterrupt]


def test_what_a_callback_catches_stays_caught(model: Any) -> None:
    class Catches(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 2:
                with pytest.raises(KeyboardInterrupt):
                    signal.raise_signal(signal.SIGINT)

    fastsup.keras.accelerate(model)
    batches = Batches()
    model.fit(X, Y, batch_size=4, verbose=0, callbacks=[Catches(), batches])
    assert batches.ended == 8


def test_the_program_s_own_handler_stays(model: Any) -> None:
    got: list[int] = []

    class Sends(keras.callbacks.Callback):
        def on_train_end(self, logs: Any = None) -> None:
            signal.raise_signal(signal.SIGINT)

    def handler(number: int, frame: Any) -> None:
        got.append(number)

    fastsup.keras.accelerate(model)
    before = signal.signal(signal.SIGINT, handler)
    try:
        model.fit(X, Y, verbose=0, callbacks=[Sends()])
        assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert got == [signal.SIGINT]


def test_a_handler_that_a_callback_sets_stays(model: Any) -> None:
    class Sets(keras.callbacks.Callback):
        def on_train_begin(self, logs: Any = None) -> None:
            signal.signal(signal.SIGINT, signal.SIG_IGN)

    fastsup.keras.accelerate(model)
    try:
        model.fit(X, Y, verbose=0, callbacks=[Sets()])
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
