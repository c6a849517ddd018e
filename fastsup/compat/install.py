"""install() and uninstall(), which put fastsup's classes under the names of TensorFlow and `tf.estimator`."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fastsup.common.versions import ANY_VERSION, SUPPORTED_VERSIONS, unsupported_reason
from fastsup.compat.import_hook import KERAS_TRAINER, ImportHook, is_interface
from fastsup.core.checks import check_flag, suggest_keywords

if TYPE_CHECKING:
    from fastsup.compat.moved_names import MovedNames
    from fastsup.compat.replaced_names import ModulePatcher

__all__ = ["install", "install_at_import", "uninstall"]

_LIBRARIES = frozenset({"fastsup", "keras", "tensorflow", "tf_keras"})

_current: Installation | None = None


@suggest_keywords
def install(*, tf1: bool = False, functions: bool = False, keras: bool = False) -> None:
    """Replaces TensorFlow's classes with fastsup's in the places that programs use, until `uninstall`.

    `tf.compat.v1.train`, `tf.compat.v1.Session`, the modules `tensorflow.python.training.*`, and names that the program
    imported from these then refer to fastsup's sessions, hooks and Supervisor. `tf.estimator` and the package
    `tensorflow_estimator` exist again. Open sessions don't change. A second call adds its own options.

    Args:
      tf1: Whether to give the module `tensorflow` the names of `tf.compat.v1` and `tf.contrib`, and TensorFlow 1
        behavior, as `python -m fastsup run --tf1` does. TensorFlow must not have been imported before. If tf_keras is
        installed and TF_USE_LEGACY_KERAS isn't set, `tensorflow` then has Keras 2.
      functions: Whether `tf.function`, in all modules and under all its names, returns functions that are lifted as
        `fastsup.function`'s are, once their calls have taken as long as lifting takes. Functions that can't be lifted
        run as before. Existing functions don't change.
      keras: Whether to accelerate each Keras model when it is compiled, as `fastsup.keras.accelerate` does. Keras 2
        models, models with other backends and models that are already compiled don't change.

    Raises:
      ModuleNotFoundError: If TensorFlow isn't installed. The message names the fastsup extra that installs it.
      ImportError: If TensorFlow is too old or too new. The message lists the supported versions.
      RuntimeError: If `tf1` is True, and TensorFlow was imported before.
    """
    check_flag(tf1=tf1)
    check_flag(functions=functions)
    check_flag(keras=keras)
    if tf1 and not (_current is not None and _current.hook.tf1):
        if "tensorflow" in sys.modules:
            raise RuntimeError(
                "install(tf1=True) must be called before tensorflow is imported, because the import chooses its names "
                "and behavior. Call it in the first lines of the program."
            )
        install_at_import(tf1=True)
    installation = _begin(functions, keras)
    if installation.complete:
        installation.add_lifting()
    else:
        try:
            # The import notifies the import hook, unless TensorFlow was imported before.
            from fastsup.runtime import tensorflow

            installation.complete_in(tensorflow)
        except BaseException:
            uninstall()
            raise


def install_at_import(tf1: bool = False, functions: bool = False, keras: bool = False) -> None:
    """Installs fastsup when the program imports TensorFlow, so that environment variables set before take effect."""
    installation = _begin(functions, keras)
    installation.hook.tf1 = tf1
    if tf1 and importlib.util.find_spec("tf_keras") is not None:
        os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
    if "tensorflow" in sys.modules:
        installation.complete_in(sys.modules["tensorflow"])


def uninstall() -> None:
    """Restores the value of every TensorFlow name that `install` replaced.

    A name that the program replaced in the meantime keeps the program's value, and a warning lists such names. Without
    an installation, this does nothing.
    """
    global _current
    if _current is not None:
        _current.remove()
        _current = None


def _begin(functions: bool, keras: bool) -> Installation:
    global _current
    if _current is None:
        _current = Installation()
        sys.meta_path.insert(0, _current.hook)
    _current.functions |= functions
    _current.hook.keras |= keras
    return _current


class Installation:
    """The changes that `install` made, and their reversal."""

    def __init__(self) -> None:
        self.hook: ImportHook = ImportHook(self._imported)
        self.complete: bool = False
        #: Whether `tf.function` is replaced.
        self.functions: bool = False
        self._patcher: ModulePatcher
        self._moved: MovedNames
        self._tensorflow: Any

    def _imported(self, name: str) -> None:
        if name == "tensorflow":
            self.complete_in(sys.modules[name])
        elif name == KERAS_TRAINER:
            if self.complete:
                self._accelerate_models()
        elif self.complete and is_interface(name):
            self._patch(name)
        elif self.complete:
            self._moved.patch(name)

    def complete_in(self, tensorflow: Any) -> None:
        """Makes the changes once TensorFlow is imported. A second call does nothing."""
        if self.complete:
            return
        _check_version(str(tensorflow.__version__))
        from fastsup.compat.library_names import numpy_names, python_names
        from fastsup.compat.moved_names import MovedNames
        from fastsup.compat.replaced_names import REPLACEMENTS, ModulePatcher, own_globals

        self._tensorflow, self._patcher, self._moved = tensorflow, ModulePatcher(), MovedNames()
        self.complete = True
        _warn_of_what_stays(theirs for theirs, _ in REPLACEMENTS)
        self._moved.patch_all()
        self._know_functions()
        self._patcher.patch_all()
        for name in [name for name in sys.modules if is_interface(name)]:
            self._patch(name)
        if self.hook.tf1:
            from fastsup.compat.made_modules import TF1Module

            tensorflow.compat.v1.disable_v2_behavior()
            sys.modules["tensorflow"] = TF1Module(tensorflow)
        self.add_lifting()
        _log(self._patcher, str(tensorflow.__version__))
        for owner, name, value in (*numpy_names(), *python_names()):
            self._patcher.add(owner, name, value)
        renamed = [theirs for theirs, _ in REPLACEMENTS if _has_lost_its_name(theirs)]
        for owner, name, value in own_globals(renamed):
            self._patcher.replace(owner, name, value)

    def add_lifting(self) -> None:
        """Replaces `tf.function` and Keras's `compile`, if requested and not done yet."""
        if self._know_functions():
            self._patcher.patch_all()
        if self.hook.keras and KERAS_TRAINER in sys.modules:
            self._accelerate_models()

    def _know_functions(self) -> bool:
        """Replaces `tf.function` together with the other names, if requested. Returns True the first time."""
        if not self.functions or self._patcher.lifts_functions:
            return False
        from fastsup.compat.lifting import function

        self._patcher.lift_functions(function)
        return True

    def _accelerate_models(self) -> None:
        from fastsup.compat.lifting import compile_and_accelerate

        trainer = sys.modules[KERAS_TRAINER].Trainer
        if not any(entry.owner is trainer for entry in self._patcher.replaced):
            self._patcher.replace(trainer, "compile", compile_and_accelerate(trainer.compile))

    def _patch(self, name: str) -> None:
        """Adds `estimator` and fastsup's sessions to a copy of TensorFlow's interface."""
        from fastsup.estimator.experimental import CheckpointInputPipelineHook

        module: Any = sys.modules[name]
        module.estimator = importlib.import_module(self.hook.api_of(name))
        self._patcher.add(module.data.experimental, "CheckpointInputPipelineHook", CheckpointInputPipelineHook)
        self._patcher.patch(module)

    def remove(self) -> None:
        """Reverts the changes."""
        from fastsup.compat.made_modules import LazyModule

        if self.hook in sys.meta_path:
            sys.meta_path.remove(self.hook)
        if not self.complete:
            return
        if self.hook.tf1:
            sys.modules["tensorflow"] = self._tensorflow
        self._moved.restore()
        kept = self._patcher.restore()
        for name, module in list(sys.modules.items()):
            if is_interface(name) and isinstance(vars(module).get("estimator"), LazyModule):
                del module.estimator
        self.hook.remove_placed()
        if kept:
            from tensorflow.python.platform import tf_logging as logging

            logging.warning(
                "fastsup.uninstall(): the program has assigned other values to these names, which keep them: %s.",
                ", ".join(sorted(kept)),
            )


def _check_version(version: str) -> None:
    if unsupported_reason(version):
        raise ImportError(
            f"fastsup works with TensorFlow {SUPPORTED_VERSIONS[0]} to {SUPPORTED_VERSIONS[-1]}, and this is "
            f"TensorFlow {version}. Install one of these versions: pip install 'fastsup[cpu]' (tensorflow-cpu), "
            f"'fastsup[tensorflow]' or 'fastsup[cuda]'. {ANY_VERSION}=1 in the environment lets a newer one pass."
        )


def _has_lost_its_name(theirs: Any) -> bool:
    return getattr(sys.modules.get(theirs.__module__), theirs.__name__, None) is not theirs


def _log(patcher: ModulePatcher, version: str) -> None:
    from tensorflow.python.platform import tf_logging as logging

    import fastsup

    of_program = patcher.names_outside(_LIBRARIES)
    if of_program:
        logging.warning(
            "fastsup.install(): the program imported these names earlier; they are now fastsup's: %s. Copies "
            "elsewhere, such as in default arguments, closures and attributes, are still TensorFlow's. Call "
            "install() before these imports.",
            ", ".join(of_program),
        )
    logging.info(
        "fastsup %s is installed in TensorFlow %s: %d names in %d modules are fastsup's, and tf.estimator, "
        "tensorflow_estimator and tensorflow.contrib can be imported. fastsup.uninstall() undoes that.",
        fastsup.__version__,
        version,
        len(patcher),
        len(patcher.modules),
    )


def _subclasses(kind: Any) -> Iterator[Any]:
    for subclass in kind.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


def _warn_of_what_stays(kinds: Iterator[Any]) -> None:
    """Warns about the program's classes and sessions that remain TensorFlow's."""
    from tensorflow.python.client import session as tf_session
    from tensorflow.python.platform import tf_logging as logging

    from fastsup.runtime.session import Session

    derived = {
        f"{subclass.__module__}.{subclass.__qualname__}"
        for kind in kinds
        if isinstance(kind, type)
        for subclass in _subclasses(kind)
        if subclass.__module__.partition(".")[0] not in _LIBRARIES
    }
    if derived:
        logging.warning(
            "fastsup.install(): these classes were derived from TensorFlow's earlier, and still are: %s. "
            "Call install() before they are defined.",
            ", ".join(sorted(derived)),
        )
    if not tf_session._python_session_create_counter.get_cell().value():
        return  # Skip the check of all objects, which takes a while.
    is_open = [
        session
        for session in gc.get_objects()
        # Check the type, because `__class__` of a proxy may run code of the program.
        if issubclass(type(session), tf_session.BaseSession)
        and not isinstance(session, Session)
        and type(session).__module__.partition(".")[0] != "fastsup"  # Skip sessions of lifted functions.
        and not session._closed
    ]
    if is_open:
        logging.warning(
            "fastsup.install(): %d TensorFlow sessions are open, and remain TensorFlow's. Call install() before "
            "sessions are opened.",
            len(is_open),
        )
