"""`install(functions=True, keras=True)`: programs of TensorFlow 2 and Keras, unmodified, do what they do without it."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest

pytestmark = [pytest.mark.timeout(240), pytest.mark.one_world]

# Functions under several names, a method, one called too seldom, one with a random sequence; a model with callbacks.
PROGRAM = textwrap.dedent(
    """
    import inspect
    import keras
    import numpy as np
    import tensorflow as tf
    from tensorflow.python.eager.def_function import function

    tf.random.set_seed(1)
    keras.utils.set_random_seed(1)
    total = tf.Variable(0.0)


    @tf.function
    def often(x):
        total.assign_add(x)
        return total * 2.0


    @function(jit_compile=True)
    def compiled(x: float = 1.0):
        return x * 3.0


    class Net(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([], tf.float32)])
        def call(self, x):
            return often(x) + 1.0


    seldom = tf.function(lambda x: x - 1.0)
    draws = tf.function(lambda: tf.random.uniform([]))
    net = Net()
    results = [float(often(tf.constant(1.0))) for _ in range(600)]
    results += [float(compiled(tf.constant(2.0))) for _ in range(600)]
    results += [float(net.call(tf.constant(1.0))) for _ in range(600)]
    results += [float(draws()) for _ in range(20)]
    results += [float(seldom(tf.constant(1.0)))]
    kind = tf.types.experimental.PolymorphicFunction
    print(sum(results), float(total), inspect.signature(compiled), isinstance(often, kind))

    layers = keras.layers.Dense(4, "relu"), keras.layers.Dropout(0.2), keras.layers.Dense(1)
    model = keras.Sequential([keras.Input([8]), *layers])
    model.compile("adam", "mse")
    x = np.random.RandomState(1).rand(320, 8).astype("float32")
    history = model.fit(x, x.sum(1), epochs=3, verbose=0, validation_split=0.2)
    print(history.history, model.predict(x[:3], verbose=0).tolist())
    print(model.train_function is not None)
    """
)


def test_a_program_does_the_same(children: Any, tmp_path: Any) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    alone = children.run(script, fresh=True)
    assert alone.returncode == 0, alone.stderr
    lifted = children.run("-m", "fastsup", "run", "--accelerate", "--report", script, fresh=True)
    assert lifted.returncode == 0, lifted.stderr
    assert lifted.stdout == alone.stdout
    rows = {
        line.split(" (program.py:")[0]: line.split(")")[1].split()
        for line in lifted.stderr.splitlines()
        if "(program" in line
    }
    counts = {name: (int(row[0].replace(",", "")), int(row[1].replace(",", ""))) for name, row in rows.items()}
    # The first calls are TensorFlow's, until lifting has been earned.
    assert all(counts[name][0] > 300 for name in ("often", "compiled", "Net.call")), lifted.stderr
    assert counts["<lambda>"] == (0, 1) or counts["<lambda>"][0] == 19, lifted.stderr
    assert "its calls haven't yet taken as long as lifting takes" in lifted.stderr
    assert "Keras models: 1\n  sequential: train: " in lifted.stderr


SWITCHED = textwrap.dedent(
    """
    import fastsup
    import tensorflow as tf
    from tensorflow.python.eager import def_function

    originals = [tf.function]  # A name of the module would be replaced, too.
    fastsup.install()
    assert tf.function is originals[0]
    fastsup.install(functions=True, keras=True)
    import keras

    assert tf.function is def_function.function is tf.compat.v2.function
    assert tf.function is not originals[0]
    compiled = keras.Model.compile
    fastsup.install(functions=True, keras=True)
    assert keras.Model.compile is compiled
    made = tf.function(lambda x: x + 1.0)
    assert float(made(1.0)) == 2.0
    fastsup.uninstall()
    assert tf.function is def_function.function is originals[0]
    assert keras.Model.compile is not compiled
    assert type(tf.function(lambda: 1.0)) is not type(made)
    assert float(made(1.0)) == 2.0
    print("done")
    """
)


def test_uninstall_takes_it_back(children: Any) -> None:
    ended = children.run("-c", SWITCHED, fresh=True)
    assert (ended.returncode, ended.stdout) == (0, "done\n"), ended.stderr


def test_wrong_arguments(children: Any) -> None:
    ended = children.run("-m", "fastsup", "run", "--report", "x.py", fresh=True)
    assert ended.returncode == 2
    assert "add --accelerate, --functions or --keras" in ended.stderr
    import fastsup

    with pytest.raises(TypeError, match="functions must be True or False, got 'yes'"):
        fastsup.install(functions="yes")  # type: ignore[arg-type]
