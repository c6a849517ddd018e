"""The variables of slots: they go with their slot, also where the garbage collector runs at a bad moment."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.ops import gen_resource_variable_ops

from fastsup.eager.lift import SlotVariable

pytestmark = [pytest.mark.skipif(not tf.executing_eagerly(), reason="slots hold tensors of eager code")]


def new_slot() -> SlotVariable:
    return SlotVariable(tf.constant(1.0), tf.float32, [])


def is_there(handle: Any) -> bool:
    return bool(gen_resource_variable_ops.var_is_initialized_op(handle))


def test_the_variable_goes_with_its_box() -> None:
    slot = new_slot()
    handle = slot._variable._handle
    assert is_there(handle)
    del slot
    assert not is_there(handle)


def test_a_box_that_goes_while_a_thread_gets_its_eager_context(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is raised where the collector runs; the next slot deletes the variable."""
    slot = new_slot()
    handle = slot._variable._handle
    slots = [slot]
    del slot
    make = context._ContextSwitchStack.__init__

    def collect_and_make(self: Any, *args: Any) -> None:
        slots.clear()
        make(self, *args)

    def use() -> None:
        with context.eager_mode():  # The first access in a new thread makes its stack.
            pass

    monkeypatch.setattr(context._ContextSwitchStack, "__init__", collect_and_make)
    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert not slots
    another = new_slot()
    assert not is_there(handle)
    assert is_there(another._variable._handle)
