"""Loops around a step function, without TensorFlow: StepLoop, and a bare loop in C."""

from __future__ import annotations

import atexit
import ctypes
import io
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import fastsup
from benchmarks.measure import NEVER
from fastsup.core import Hook, NativeHook, StepLoop
from fastsup.core.hook import HOOK_SIGNATURE, STEP_SIGNATURE
from fastsup.loop import (
    Checkpoints,
    EarlyStoppingHook,
    EvaluateHook,
    MeansHook,
    NanGuardHook,
    ProgressHook,
    SummaryHook,
    every,
)
from fastsup.loop import StepLoop as TrainingLoop

# A capsule keeps a pointer to its name.
STEP_NAME, HOOK_NAME, COUNT_NAME = STEP_SIGNATURE.encode(), HOOK_SIGNATURE.encode(), b"count"


@cache
def library() -> Any:
    """Compiles and loads bare.c."""
    includes = [f"-I{fastsup.get_include()}", f"-I{sysconfig.get_path('include')}"]
    with tempfile.TemporaryDirectory(prefix="fastsup-benchmark-") as folder:
        output = f"{folder}/bare.so"
        source = str(Path(__file__).with_name("bare.c"))
        subprocess.run(["cc", "-std=c11", "-O3", "-shared", "-fPIC", *includes, "-o", output, source], check=True)
        # PyDLL, which keeps the GIL: one of the functions needs it.
        loaded = ctypes.PyDLL(output)
    loaded.bare_c.argtypes = [ctypes.c_void_p, ctypes.c_int64]
    loaded.bare_python.argtypes = [ctypes.py_object, ctypes.c_int64]
    return loaded


def address(name: str) -> int:
    """Returns the address of a function of the library."""
    return ctypes.cast(getattr(library(), name), ctypes.c_void_p).value or 0


def capsule(pointer: int, name: bytes) -> Any:
    """A capsule around a pointer. The name must live as long."""
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return new(pointer, name, None)


class Idle(Hook):
    def begin(self, loop: Any) -> None:
        self.due_at_step(NEVER)


class BareStep:
    """A step in C in a loop in C."""

    def steps(self, n: int) -> None:
        library().bare_c(address("bench_step"), n)

    def close(self) -> None:
        pass


class BarePythonStep(BareStep):
    """A callable of Python's in a loop in C."""

    def steps(self, n: int) -> None:
        library().bare_python(int, n)


class CStep(BareStep):
    """The same step in C in a StepLoop.

    Args:
      due_hooks: how many hooks in C are due after every step.
      idle_hooks: how many hooks in C never are.
      python_hooks: how many hooks in Python never are.
    """

    def __init__(self, due_hooks: int = 0, idle_hooks: int = 0, python_hooks: int = 0) -> None:
        self._count = ctypes.c_int64()
        context = capsule(ctypes.addressof(self._count), COUNT_NAME)
        hook = capsule(address("bench_hook"), HOOK_NAME)
        self._step: Any = capsule(address("bench_step"), STEP_NAME)
        self._hooks: list[Any] = [NativeHook(hook, context=context) for _ in range(due_hooks)]
        self._hooks += [NativeHook(hook, every_steps=NEVER, context=context) for _ in range(idle_hooks)]
        self._hooks += [Idle() for _ in range(python_hooks)]

    def steps(self, n: int) -> None:
        StepLoop(self._step, self._hooks, max_steps=n).run()


class PythonStep(BareStep):
    """The same callable of Python's in a StepLoop with hooks that are never due."""

    def __init__(self, count: int) -> None:
        self._hooks = [Idle() for _ in range(count)]

    def steps(self, n: int) -> None:
        StepLoop(int, self._hooks, max_steps=n).run()


def _nothing(*_: Any) -> None:
    pass


def _evaluate() -> EvaluateHook:
    return EvaluateHook(lambda: {"loss": 0.5}, NEVER, at_end=False)


def _checkpoints() -> Checkpoints:
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Checkpoints(folder, {"state": {}}, every_secs=3600.0, save_at_end=False)


# Hooks of loops as programs use them: a name for the table, and a function that makes them.
READY_HOOKS: dict[str, Callable[[], list[Any]]] = {
    "every(steps=100)": lambda: [every(steps=100)(_nothing)],
    "EvaluateHook between evaluations": lambda: [_evaluate()],
    "EvaluateHook, EarlyStoppingHook": lambda: [_evaluate(), EarlyStoppingHook("loss", "min", 3)],
    "Checkpoints between saves": lambda: [_checkpoints()],
    "SummaryHook, every 100 steps": lambda: [SummaryHook(_nothing, 100)],
    "NanGuardHook, every 100 steps": lambda: [NanGuardHook(every_steps=100)],
    "ProgressHook": lambda: [ProgressHook(file=io.StringIO())],
    "MeansHook, every 100 steps": lambda: [MeansHook(_nothing, 100)],
    "every(steps=1)": lambda: [every(steps=1)(_nothing)],
}


class ReadyHooks(BareStep):
    """A callable of Python's in a StepLoop with one of the `READY_HOOKS`.

    Args:
      name: its name; None for no hook.
    """

    def __init__(self, name: str | None) -> None:
        self._hooks = [] if name is None else READY_HOOKS[name]()

    def steps(self, n: int) -> None:
        TrainingLoop(float, self._hooks, max_steps=n, handle_signals=False).run()
