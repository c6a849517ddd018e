"""ExportStrategy: a named function that exports an Estimator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tensorflow.python.util import function_utils

__all__ = ["ExportStrategy", "as_export_strategies"]


class _ExportStrategy(NamedTuple):
    name: Any
    export_fn: Any
    strip_default_attrs: Any


class ExportStrategy(_ExportStrategy):
    """A named function that exports an Estimator.

    Args:
      name: name of the directory under `export` for the exports.
      export_fn: function of the first two to five of (estimator, export_path, checkpoint_path, eval_result,
        strip_default_attrs). The third to the fifth are passed by name.
      strip_default_attrs: value of the argument of that name.
    """

    __slots__ = ()

    def __new__(
        cls, name: str, export_fn: Callable[..., Any], strip_default_attrs: bool | None = None
    ) -> ExportStrategy:
        return super().__new__(cls, name, export_fn, strip_default_attrs)

    def export(self, estimator: Any, export_path: Any, checkpoint_path: Any = None, eval_result: Any = None) -> Any:
        """Exports an Estimator.

        Args:
          estimator: the Estimator.
          export_path: directory for the export.
          checkpoint_path: path of the checkpoint to export. None: the newest one.
          eval_result: metrics of this checkpoint.

        Returns:
          The result of `export_fn`: the path of the exported directory.

        Raises:
          ValueError: `export_fn` has an argument eval_result and no argument checkpoint_path.
        """
        arguments = function_utils.fn_args(self.export_fn)
        named: dict[str, Any] = {}
        if "checkpoint_path" in arguments:
            named["checkpoint_path"] = checkpoint_path
        if "eval_result" in arguments:
            if "checkpoint_path" not in arguments:
                raise ValueError("An export_fn accepting eval_result must also accept checkpoint_path.")
            named["eval_result"] = eval_result
        if "strip_default_attrs" in arguments:
            named["strip_default_attrs"] = self.strip_default_attrs
        return self.export_fn(estimator, export_path, **named)


def as_export_strategies(values: Any) -> tuple[ExportStrategy, ...]:
    """Checks the export strategies that were given for an argument.

    Args:
      values: one `ExportStrategy`, an iterable of them, or None.

    Returns:
      The export strategies as a tuple.

    Raises:
      ValueError: the value is neither an `ExportStrategy` nor an iterable of them.
    """
    if not values:
        return ()
    if isinstance(values, ExportStrategy):
        return (values,)
    try:
        found = tuple(values)
    except TypeError:
        found = (values,)
    for value in found:
        if not isinstance(value, ExportStrategy):
            raise ValueError(
                "`export_strategies` must be an ExportStrategy, an iterable of ExportStrategy, or `None`, found "
                f"{value}."
            )
    return found
