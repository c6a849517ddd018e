"""Names that TensorFlow 2 has moved from one of its modules to another, where programs and libraries look for them."""

from __future__ import annotations

import importlib
from types import ModuleType

__all__ = ["MovedNames"]

# The module that had the names; for each module that has them now, the names. All are in tensorflow.python.
_MOVED: dict[str, dict[str, str]] = {
    "framework.ops": {
        "framework.indexed_slices": "IndexedSlices IndexedSlicesValue convert_n_to_tensor_or_indexed_slices "
        "convert_to_tensor_or_indexed_slices internal_convert_n_to_tensor_or_indexed_slices "
        "internal_convert_to_tensor_or_indexed_slices",
        "framework.stack": "default_session",
        "framework.tensor": "Tensor disable_tensor_equality enable_tensor_equality",
        "framework.tensor_conversion": "convert_to_tensor_v2",
        "framework.tensor_conversion_registry": "register_tensor_conversion_function",
    },
    "framework.tensor_util": {"ops.shape_util": "maybe_set_static_shape shape_tensor"},
    "ops.array_ops": {"ops.array_ops_stack": "stack unstack"},
    "ops.control_flow_ops": {
        "ops.cond": "cond cond_for_tf_v2",
        "ops.control_flow_assert": "Assert",
        "ops.control_flow_case": "case case_v2",
        "ops.control_flow_switch_case": "switch_case",
        "ops.while_loop": "while_loop while_loop_v2",
    },
    "ops.math_ops": {"ops.bincount_ops": "bincount_v1"},
    "ops.variable_scope": {
        "ops.resource_variables_toggle": "disable_resource_variables enable_resource_variables "
        "resource_variables_enabled",
        "ops.variable_v1": "default_variable_creator variable=VariableV1",
        "ops.variables": "default_variable_creator_v2",
    },
    "ops.variables": {
        "ops.ref_variable": "RefVariable",
        "ops.variable_v1": "VariableV1 default_variable_creator is_variable_initialized",
    },
}


def _module(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(f"tensorflow.python.{name}")
    except ModuleNotFoundError:
        return None  # Another version of TensorFlow has it elsewhere, or has not moved it yet.


class MovedNames:
    """The names that were put back where they were."""

    def __init__(self) -> None:
        self._put: list[tuple[ModuleType, str]] = []

    def put(self) -> None:
        """Gives the modules the names that they lack."""
        for old, places in _MOVED.items():
            for place, names in places.items():
                before, now = _module(old), _module(place)
                for entry in names.split():
                    name, _, other = entry.partition("=")
                    found = getattr(now, other or name, None)
                    if before is not None and found is not None and not hasattr(before, name):
                        setattr(before, name, found)
                        self._put.append((before, name))

    def take_away(self) -> None:
        """Removes the names again."""
        for module, name in self._put:
            vars(module).pop(name, None)
        self._put.clear()
