"""`tensorflow` as a program of TensorFlow 1 knows it: the names of `tf.compat.v1`, without `compat.v1`."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

__all__ = ["TF1Module"]


class TF1Module(ModuleType):
    """The module.

    Args:
      tensorflow: TensorFlow itself.
    """

    def __init__(self, tensorflow: ModuleType) -> None:
        super().__init__("tensorflow", tensorflow.__doc__)
        v1 = tensorflow.compat.v1
        self.__dict__.update(
            __file__=tensorflow.__file__,
            __spec__=tensorflow.__spec__,
            __loader__=tensorflow.__loader__,
            __package__="tensorflow",
            __path__=[*tensorflow.__path__, *v1.__path__],
            __version__=v1.__version__,
            __all__=[name for name in dir(v1) if not name.startswith("_")],
            _v1=v1,
        )

    def __getattr__(self, name: str) -> Any:
        if name == "contrib":
            # Made by the import hook. The import sets the attribute.
            return importlib.import_module("tensorflow.contrib")
        try:
            return getattr(self.__dict__["_v1"], name)
        except AttributeError:
            # `tf.python`, `tf.core`: the interface hides them, imports of what is in them need them.
            submodule = sys.modules.get(f"tensorflow.{name}")
            if submodule is None:
                raise AttributeError(f"module 'tensorflow' has no attribute {name!r}", name=name) from None
            return submodule

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__["__all__"], "__version__"})
