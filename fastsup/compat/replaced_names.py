"""The TensorFlow classes and functions that fastsup replaces, and the replacement of their names."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from tensorflow.python.client import session as tf_session
from tensorflow.python.training import (
    basic_session_run_hooks,
    evaluation,
    monitored_session,
    session_manager,
    supervisor,
)

from fastsup import train
from fastsup.eager.function import tf_function
from fastsup.estimator.model.evaluate_once import StopAfterNEvalsHook
from fastsup.runtime.session import Session
from fastsup.train.session import monitored_session as our_monitored_session
from fastsup.train.supervisor import supervisor as our_supervisor

__all__ = [
    "REPLACEMENTS",
    "InteractiveSession",
    "ModulePatcher",
    "own_globals",
]


# TensorFlow's class is the last base, so that Session's constructor and `close` call its methods.
class InteractiveSession(Session, tf_session.InteractiveSession):  # type: ignore[misc]
    """A `tf.compat.v1.InteractiveSession` whose steps run through cached plans. Takes the arguments of `Session`.

    Until `close`, it is the default session of the thread, and its graph is the default graph.
    """


class _Globals(dict[str, Any]):
    """The globals of a function: some names with other values, the others with the module's current values."""

    def __init__(self, module: dict[str, Any], own: dict[str, Any]) -> None:
        super().__init__(own)
        self["__builtins__"] = module["__builtins__"]
        self._module = module

    def __missing__(self, name: str) -> Any:
        return self._module[name]


def _with_globals(function: FunctionType, own: dict[str, Any]) -> FunctionType:
    copy = FunctionType(
        function.__code__,
        _Globals(function.__globals__, own),
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__qualname__, copy.__module__, copy.__doc__ = function.__qualname__, function.__module__, function.__doc__
    copy.__dict__.update(function.__dict__)
    return copy


def own_globals(kinds: Iterable[Any]) -> Iterator[tuple[type, str, FunctionType]]:
    """Yields copies of the methods that name their own class or a base class. The copies always find these classes.

    `super(MonitoredSession, self)` and `_WrappedSession.__init__(self)` look up the name in the module at call time.
    After `install`, that name is a fastsup class, which refuses objects of TensorFlow's own class or of a subclass that
    the program defined earlier.
    """
    for kind in kinds:
        if not isinstance(kind, type):
            continue
        family = {base.__name__: base for base in kind.__mro__ if base.__module__ == kind.__module__}
        for name, method in list(vars(kind).items()):
            if isinstance(method, FunctionType) and family.keys() & set(method.__code__.co_names):
                yield kind, name, _with_globals(method, family)


# For each replacement: TensorFlow's module, the names in it, and fastsup's module with these names.
_TABLE: tuple[tuple[ModuleType, tuple[str, ...], Any], ...] = (
    (
        basic_session_run_hooks,
        (
            "CheckpointSaverHook", "GlobalStepWaiterHook", "LoggingTensorHook", "NanTensorHook", "ProfilerHook",
            "SecondOrStepTimer", "StepCounterHook", "StopAtStepHook", "SummarySaverHook",
        ),
        train,
    ),
    (
        monitored_session,
        (
            "ChiefSessionCreator", "MonitoredSession", "MonitoredTrainingSession", "SingularMonitoredSession",
            "WorkerSessionCreator",
        ),
        train,
    ),
    (monitored_session, ("_MonitoredSession",), our_monitored_session),
    (session_manager, ("SessionManager",), train),
    (supervisor, ("Supervisor",), train),
    (supervisor, ("SVStepCounterThread", "SVSummaryThread", "SVTimerCheckpointThread"), our_supervisor),
)  # fmt: skip
_RENAMED: tuple[tuple[ModuleType, str, Any], ...] = (
    (monitored_session, "_WrappedSession", train.WrappedSession),
    (monitored_session, "_HookedSession", train.HookedSession),
    (monitored_session, "_CoordinatedSession", train.CoordinatedSession),
    (monitored_session, "_RecoverableSession", train.RecoverableSession),
    (evaluation, "_StopAfterNEvalsHook", StopAfterNEvalsHook),
    (tf_session, "Session", Session),
    (tf_session, "InteractiveSession", InteractiveSession),
)

# Pairs of TensorFlow's and fastsup's objects. They are read when this module is imported, before any name is replaced.
REPLACEMENTS: tuple[tuple[Any, Any], ...] = (
    *((getattr(module, name), getattr(ours, name)) for module, names, ours in _TABLE for name in names),
    *((getattr(module, name), ours) for module, name, ours in _RENAMED),
)

_OURS = {id(theirs): our for theirs, our in REPLACEMENTS}

# fastsup's Session uses TensorFlow's Session, which is looked up in this module.
_LEFT_ALONE = tf_session.__name__
# Represents the former value of a name that was added.
_ABSENT = object()


class Replaced(NamedTuple):
    """A replaced name of a module or a class."""

    owner: Any
    name: str
    before: Any
    now: Any


def _modules(library: str | None = None) -> Iterator[ModuleType]:
    """Yields each module of the process once, except fastsup's."""
    seen: set[int] = set()
    for name, module in list(sys.modules.items()):
        root = name.partition(".")[0]
        if root == "fastsup" or name == _LEFT_ALONE or (library is not None and root != library):
            continue
        if isinstance(module, ModuleType) and id(module) not in seen:
            seen.add(id(module))
            yield module


class ModulePatcher:
    """Replaces names of modules and classes, and restores them."""

    def __init__(self) -> None:
        self.replaced: list[Replaced] = []
        self._ours = dict(_OURS)
        self._theirs = {id(our): their for their, our in REPLACEMENTS}
        #: Whether `tf.function` is replaced.
        self.lifts_functions: bool = False

    def __len__(self) -> int:
        return len(self.replaced)

    def names_outside(self, packages: Collection[str]) -> list[str]:
        """Returns the replaced names in modules outside some packages, with their modules, in alphabetical order."""
        owners = [entry for entry in self.replaced if isinstance(entry.owner, ModuleType)]
        names = (f"{entry.owner.__name__}.{entry.name}" for entry in owners)
        return sorted(name for name in names if name.partition(".")[0] not in packages)

    @property
    def modules(self) -> list[str]:
        """Returns the names of the modules with replaced names, in alphabetical order."""
        return sorted({entry.owner.__name__ for entry in self.replaced})

    def patch_all(self) -> None:
        """Replaces TensorFlow's classes and functions with fastsup's in every module except fastsup's."""
        for module in _modules():
            self.patch(module)

    def patch(self, module: ModuleType) -> None:
        """Replaces TensorFlow's classes and functions in one module."""
        for name, value in list(vars(module).items()):
            if id(value) in self._ours:
                self.replace(module, name, self._ours[id(value)])

    def lift_functions(self, function: Any) -> None:
        """From the next call of `patch` or `patch_all` on, also replaces `tf.function`."""
        self.lifts_functions = True
        self._ours[id(tf_function)] = function
        self._theirs[id(function)] = tf_function

    def replace(self, owner: Any, name: str, our: Any) -> None:
        """Replaces a name of a module or a class."""
        self.replaced.append(Replaced(owner, name, vars(owner).get(name, _ABSENT), our))
        setattr(owner, name, our)

    def add(self, owner: Any, name: str, our: Any) -> None:
        """Adds a name that earlier releases had. Does nothing if the module or class has the name."""
        if name not in vars(owner):
            self.replace(owner, name, our)

    def restore(self) -> list[str]:
        """Restores each name. Returns the names that the program replaced in the meantime."""
        kept = []
        for owner, name, before, now in reversed(self.replaced):
            if vars(owner).get(name) is not now:
                kept.append(f"{owner.__name__}.{name}")
            elif before is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, before)
        self.replaced.clear()
        # TensorFlow modules that were imported later imported fastsup's classes.
        for module in _modules("tensorflow"):
            for name, value in list(vars(module).items()):
                if id(value) in self._theirs:
                    setattr(module, name, self._theirs[id(value)])
        return kept
