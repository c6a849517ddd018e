"""`python -m fastsup doctor`: installed versions, the cost of a step in each executor, and what slows steps down."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from statistics import median
from typing import Any

from fastsup.common.absent_names import SWITCH, install_command
from fastsup.common.script import add_script
from fastsup.common.versions import TENSORFLOWS, tensorflow_version, version_of
from fastsup.profile.doctor_script import examine
from fastsup.profile.numbers import cores, duration
from fastsup.profile.recording.recorder import Recorder

__all__ = ["add_parser", "warnings"]

_STEPS = 2000


def add_parser(commands: Any) -> None:
    """Adds the command to a parser. Takes the arguments of `fastsup.profile.command.add_parser`."""
    parser = commands.add_parser(
        "doctor",
        help="report the installation and how fast a step can be",
        description="Reports what is installed, how fast a step can be in each executor, and common causes of slow "
        "programs. With a script, runs it and reports on its sessions and functions.",
        usage="%(prog)s [-m] [script [argument ...]]",
        allow_abbrev=False,
    )
    add_script(parser, "a script to run, and its arguments")
    parser.set_defaults(run=run, fail=parser.error)


def run(arguments: argparse.Namespace) -> int:
    """Runs the command.

    Args:
      arguments: the parsed command line.

    Returns:
      0, or 1 if no session works. With a script, the script's exit code.
    """
    import fastsup

    if arguments.script or arguments.is_module:
        return examine(arguments)

    print(f"fastsup {fastsup.__version__} in {os.path.dirname(fastsup.__file__)}")
    print(f"Python {platform.python_version()} ({sys.implementation.name}), {platform.platform()}, {cores()} cores")
    for name in ("numpy", *TENSORFLOWS, "tensorflow-estimator", "keras", "tf_keras", "rich"):
        version = version_of(name)
        if version is not None:
            print(f"{name} {version}")
    if tensorflow_version() is not None:
        print(layers_of_keras_2())
    _print_core()
    works = _print_sessions()
    if works:
        _print_functions()
    said = warnings()
    print()
    for text in said:
        print(f"! {text}")
    if not said and works:
        print("No problems found.")
    return 0 if works else 1


def layers_of_keras_2() -> str:
    """Returns a sentence about whether tf.compat.v1.layers works here, and if not, how to make it work."""
    what = "tf.compat.v1.layers and tf.compat.v1.nn.rnn_cell"
    missing = [
        *([f"`{install_command()}`"] if version_of("tf_keras") is None else []),
        # The values that TensorFlow treats as true.
        *([SWITCH] if os.environ.get("TF_USE_LEGACY_KERAS") not in ("true", "True", "1") else []),
    ]
    if not missing:
        return f"{what}: available (tf_keras)"
    return (
        f"{what}: not available. To use them: {', and '.join(missing)}. `run --tf1` and "
        "install(tf1=True) set that variable."
    )


def _per_step(run: Any, steps: int) -> float:
    """Returns the best of several measurements, in nanoseconds per step."""
    times = []
    for _ in range(5):
        started = time.perf_counter_ns()
        run(steps)
        times.append((time.perf_counter_ns() - started) / steps)
    return min(times)


def _print_core() -> None:
    """Prints the compiled parts, and their cost."""
    from fastsup.core import StepLoop

    bare = _per_step(lambda steps: StepLoop(int, max_steps=steps).run(), 20 * _STEPS)
    recorded = _per_step(lambda steps: StepLoop(int, max_steps=steps, profiler=Recorder()).run(), 20 * _STEPS)
    print()
    print("compiled: step loop, schedules, timer, recorder (no step of these allocates)")
    print(f"StepLoop around a step that does nothing: {duration(bare)}; recorded: {duration(recorded)}")


def _print_sessions() -> bool:
    """Prints the cost of a small step in each executor. Returns False if no session works."""
    print()
    try:
        # Without TensorFlow, the error of fastsup.runtime names the extras that install it.
        from fastsup.runtime.callables import passes_buffers
        from fastsup.runtime.executor import EXECUTORS
    except ImportError as error:
        print(f"No sessions: {error}")
        return False
    import tensorflow as tf

    with tf.Graph().as_default() as graph:
        weights = tf.compat.v1.get_variable("weights", [10], use_resource=True)
        step = tf.compat.v1.assign_add(weights, [0.1] * 10).op
        init = tf.compat.v1.global_variables_initializer()
        graph.finalize()
    print("a step on ten numbers:")
    medians = {}
    chosen = None
    for executor in EXECUTORS:
        ns, session_executor = _median_step(graph, executor, init, step)
        if ns is not None:
            medians[executor] = ns
            chosen = session_executor if executor == "auto" else chosen
    for executor, ns in medians.items():
        note = f" (has chosen {chosen})" if executor == "auto" and chosen != "auto" else ""
        print(f"  {executor:16} {duration(ns)}{note}")
    if not medians:
        return False
    print(f"The floor of this machine is about {duration(min(medians.values()))} a step.")
    if not passes_buffers():
        print("fastsup can't empty this TensorFlow's buffers: a small step takes a fifth longer than necessary.")
    return True


def _print_functions() -> None:
    """Prints whether TF 2 functions can be lifted here, and the cost of a call."""
    import tensorflow as tf

    from fastsup.eager import tf_abi
    from fastsup.eager.function import function, tf_function
    from fastsup.loop import StepLoop
    from fastsup.steps.bind import bind

    unavailable_reason = tf_abi.unavailable_reason()
    if unavailable_reason:
        print(f"fastsup.function and fastsup.keras: TensorFlow runs all functions, because {unavailable_reason}.")
        return
    names = [device.name.removeprefix("/device:") for device in tf.config.list_logical_devices()]
    print(f"devices: {', '.join(names)}. fastsup.function and fastsup.keras run operations where TensorFlow would.")
    weights = tf.Variable(tf.zeros([10]))
    original = tf_function(lambda: weights.assign_add([0.1] * 10))
    lifted = function(original, fallback="silent")
    medians = []
    for step in (original, lifted):
        times = []
        for _ in range(_STEPS):
            started = time.perf_counter_ns()
            step()
            times.append(time.perf_counter_ns() - started)
        medians.append(duration(median(times[_STEPS // 4 :])))
    print(f"a function of that step: tf.function {medians[0]}, fastsup.function {medians[1]} ({lifted.executor})")
    compiled = function(lambda: weights.assign_add([0.1] * 10), jit_compile=True, fallback="silent")
    try:
        many = _per_step(lambda steps: StepLoop(bind(compiled), max_steps=steps, fuse="always").run(), 20 * _STEPS)
    except RuntimeError as error:
        print(f"many steps in one compiled call: not available: {error}")
    else:
        print(
            "many steps in one compiled call (jit_compile=True, "
            f"`python -m fastsup docs compiled`): {duration(many)} a step"
        )


def _median_step(graph: Any, executor: str, init: Any, step: Any) -> tuple[float | None, str]:
    """Returns the nanoseconds per step and the chosen executor. Prints a line and returns None if it can't run."""
    from fastsup.runtime.session import Session

    times = []
    try:
        with Session(graph=graph, executor=executor) as session:
            session.run(init)
            for _ in range(_STEPS):
                started = time.perf_counter_ns()
                session.run(step)
                times.append(time.perf_counter_ns() - started)
            return median(times[_STEPS // 4 :]), session.executor
    except Exception as error:
        print(f"  {executor:16} doesn't work here: {error}")
        return None, executor


def warnings() -> list[str]:
    """Returns sentences about problems of this environment: slow steps, or programs that can't run."""
    said = []
    installed = [name for name in TENSORFLOWS if version_of(name) is not None]
    if len(installed) > 1:
        said.append(
            f"{' and '.join(installed)} are both installed, and overwrite each other's files. Uninstall all of them, "
            "and install one."
        )
    estimator = version_of("tensorflow-estimator")
    # fastsup uses the canned models of 2.15.
    archived = (estimator or "").startswith("2.15.")
    if estimator is not None and not archived and installed and _at_least(version_of(installed[0]), 2, 16):
        said.append(
            f"tensorflow-estimator {estimator} can't be imported with TensorFlow 2.16 and later. Uninstall it; for "
            "canned models, see `python -m fastsup docs migrating`."
        )
    if cores() < 2:
        said.append("Only one core: the step and the threads of an input pipeline share it.")
    if sys.gettrace() is not None or sys.getprofile() is not None:
        said.append(
            "A debugger, coverage or a profiler traces Python: every callback of a hook costs several times more."
        )
    if os.environ.get("PYTHONMALLOC", "").endswith("debug") or sys.flags.dev_mode:
        said.append("Python's debugging memory allocator is on (PYTHONMALLOC, or -X dev): everything is slower.")
    if hasattr(sys, "gettotalrefcount"):
        said.append("This is a debug build of Python: everything is slower.")
    said += [
        f"{name}={os.environ[name]}: TensorFlow logs in every step. Unset it."
        for name in ("TF_CPP_MAX_VLOG_LEVEL", "TF_CPP_VMODULE")
        if os.environ.get(name, "0") != "0"
    ]
    if os.environ.get("CUDA_LAUNCH_BLOCKING", "0") != "0":
        said.append("CUDA_LAUNCH_BLOCKING is set: the program waits for every kernel. Unset it.")
    governor = _governor()
    if governor in ("powersave", "conservative"):
        said.append(f"The processor's governor is {governor}: short steps may run at its lowest clock rate.")
    return said


def _at_least(version: str | None, major: int, minor: int) -> bool:
    parts = (version or "0.0").split(".")
    return (int(parts[0]), int(parts[1])) >= (major, minor)


def _governor() -> str:
    try:
        with open("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""
