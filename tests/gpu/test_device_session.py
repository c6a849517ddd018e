"""`fastsup.DeviceSession` on an accelerator: what its callables are given, and give, stays in its memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

STEPS = """
import ctypes
import fastsup

library = ctypes.CDLL(os.environ["ACCELERATOR_LIBRARY"])
start = np.arange(12, dtype=np.float32).reshape(3, 4)
z = tf.constant(start)
with tf.Graph().as_default():
    with tf.device("/device:ACCELERATOR:0"):
        x = tf.compat.v1.placeholder(tf.float32, [None, 4])
        weights = tf.compat.v1.get_variable("w", initializer=np.eye(4, dtype=np.float32) * 0.5, use_resource=True)
        y = x @ weights + 1.0
        update = weights.assign_add(weights * 0.5).op
    rows = tf.shape(x)
    # A trial of executors would compile the step a second time, and copy its constants to the device.
    with fastsup.DeviceSession(executor="thread_pool") as session:
        session.run(tf.compat.v1.global_variables_initializer())
        step = session.make_device_callable([y, update], [x], "ACCELERATOR:0")
        (z, none), copies = step(z), library.accelerator_copies()
        for _ in range(200):
            z, none = step(z)
        copies = library.accelerator_copies() - copies
        shape = session.make_device_callable(rows, [x], "ACCELERATOR:0")(z)
        first, second = session.make_device_callable((y, {"y": y}), [x], "ACCELERATOR:0")(start)
        try:
            session.make_device_callable(y, [x], "ACCELERATOR:1")
        except ValueError as error:
            message = str(error)
    with fastsup.DeviceSession(executor="single_threaded") as session:
        refused = []
        for device in ("ACCELERATOR:0", ""):
            try:
                session.make_device_callable(y, [x], device)
            except tf.errors.UnimplementedError as error:
                refused.append("can't run a step on several devices" in error.message)
print(json.dumps([z.backing_device, none, copies, shape.backing_device, shape.numpy().tolist(),
                  second["y"].backing_device, message, refused]))
"""


def test_nothing_is_copied_through_the_host(run: Callable[..., Any]) -> None:
    device, none, copies, host, shape, second, message, refused = run(STEPS, delay_us=50)
    assert device.endswith("/device:ACCELERATOR:0")
    assert second == device
    assert none is None
    assert copies == 0
    assert host.endswith("/device:CPU:0")
    assert shape == [3, 4]
    assert message.startswith("device must be one of ")
    assert refused == [True, True]


VALUES = """
import fastsup

start = np.arange(12, dtype=np.float32).reshape(3, 4)

def stepped(is_ours):
    with tf.Graph().as_default():
        with tf.device("/device:ACCELERATOR:0"):
            x = tf.compat.v1.placeholder(tf.float32, [None, 4])
            weights = tf.compat.v1.get_variable("w", initializer=np.eye(4, dtype=np.float32) * 0.5, use_resource=True)
            with tf.control_dependencies([weights.assign_add(weights * 0.002)]):
                y = x @ weights.read_value() + 1.0
        session = fastsup.DeviceSession() if is_ours else tf.compat.v1.Session()
        with session:
            session.run(tf.compat.v1.global_variables_initializer())
            if is_ours:
                step = session.make_device_callable(y, [x], "ACCELERATOR:0")
            else:
                step = session.make_callable(y, [x])
            z, found = start, []
            for number in range(300):
                z = step(z) if number % 5 else step(np.asarray(z) * 0.01)
                if number % 7 == 0:
                    found.append(np.asarray(z).tolist())
    return found

print(json.dumps(stepped(True) == stepped(False)))
"""


def test_values_are_those_of_a_session(run: Callable[..., Any]) -> None:
    """Each is read after some of the calls, whose work is late in the stream."""
    assert run(VALUES, delay_us=50, seed=1)
