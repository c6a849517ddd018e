"""The archived package tensorflow-estimator 2.15: where it is installed, and the error where it isn't."""

from __future__ import annotations

import importlib.util
from importlib import metadata
from pathlib import Path

from fastsup.common.absent_names import install_command

__all__ = ["absence", "is_installed", "model_file"]

_DISTRIBUTION, _VERSION = "tensorflow-estimator", "2.15."
# The folders and modules of models. The others need what current TensorFlow lacks, and fastsup has them itself.
_MODELS = frozenset({"canned", "head", "keras_lib"})


def _folder() -> Path | None:
    """The folder of the models' modules; None if the archive isn't installed in the version that fastsup knows."""
    try:
        found = metadata.distribution(_DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return None
    if not found.version.startswith(_VERSION):
        return None
    return Path(str(found.locate_file("tensorflow_estimator/python/estimator")))


def _remedy() -> str:
    """What to install, and how."""
    return (
        "pip install 'fastsup[canned]'; where TensorFlow is tensorflow-cpu: pip install tensorflow-estimator==2.15.0, "
        f"and then {install_command()}."
    )


def absence() -> str | None:
    """What is missing for the canned models: a sentence that says what to install. None if all is there."""
    needs = f"it needs the archived package {_DISTRIBUTION} 2.15.0"
    try:
        version = metadata.version(_DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return f"{needs}, which isn't installed: {_remedy()}"
    if not version.startswith(_VERSION):
        return f"{needs}, and {version} is installed: {_remedy()}"
    if importlib.util.find_spec("tf_keras") is None:
        return f"it needs Keras 2, the package tf_keras, which isn't installed: {_remedy()}"
    return None


def is_installed() -> bool:
    """Whether the canned models can be loaded."""
    return absence() is None


def model_file(name: str) -> tuple[Path, bool] | None:
    """The file of a module of the archive, and whether the module is a package.

    Args:
      name: name of the module, below `tensorflow_estimator.python.estimator`.

    Returns:
      None if the module holds no models, the archive has no such module, or the archive isn't installed.
    """
    folder = _folder()
    if folder is None or name.partition(".")[0] not in _MODELS:
        return None
    path = folder.joinpath(*name.split("."))
    for file, is_package in ((path.with_suffix(".py"), False), (path / "__init__.py", True)):
        if file.is_file():
            return file, is_package
    return None
