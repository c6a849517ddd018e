"""States in a checkpoint without TensorFlow: arrays, modules, random generators, and plain Python values.

Nothing is pickled, so a checkpoint from an untrusted source can't run code. A state is saved as JSON, and its arrays in
an `.npz` file, which NumPy reads. A state with PyTorch tensors is saved in a `.pt` file, which `torch.load` reads with
`weights_only=True`. The objects of a `tf.train.Checkpoint` are saved in TensorFlow's format.

A restore has three parts: it reads all states, checks that arrays fit, and then sets them. Objects with a
`load_state_dict`, and TensorFlow's objects, check their values themselves when they are set.
"""

from __future__ import annotations

import base64
import collections
import copy
import dataclasses
import io
import os
import sys
import types
import zipfile
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

from fastsup.loop.checkpoint_folder import NewCheckpoint

__all__ = ["SavedState", "misfits_of", "state_of"]

# Maximum number of misfits in a message.
_LISTED = 20
_LONGEST_NAME = 1000
_DICTS: dict[str, type] = {
    "dict": dict,
    "OrderedDict": collections.OrderedDict,
    "Counter": collections.Counter,
    "defaultdict": collections.defaultdict,
}
_MISSING: Any = object()


class SavedState:
    """One state of a checkpoint: how it is saved, read, checked and set.

    Args:
      name: its name in the program.
    """

    is_tensorflows = False
    # Whether `misfits` finds all mismatches before `set` is called.
    is_checked = False

    def __init__(self, name: str) -> None:
        self.name = name

    def check_savable(self) -> None:
        """Raises TypeError for a state that can't be saved."""

    def save(self, new: NewCheckpoint) -> Any:
        """Writes the files of the state. Returns the state's part of the checkpoint's JSON text."""
        raise NotImplementedError

    def read(self, folder: str, saved: Any) -> Any:
        """Reads the files that `save` wrote. Changes nothing."""
        raise NotImplementedError

    def misfits(self, value: Any, strict: bool) -> list[str]:
        """Returns the differences between a saved value and the program's state, as one clause each."""
        return []

    def set(self, value: Any) -> None:
        """Sets the state to a saved value."""
        raise NotImplementedError


def state_of(name: str, state: Any) -> SavedState:
    """Returns the object that saves a state.

    Args:
      name: its name.
      state: the state, as the program passed it.

    Raises:
      TypeError: If the state can't be saved.
    """
    if _is_instance(state, "numpy", "ndarray") and not state.flags.writeable:
        raise TypeError(
            f"states[{name!r}] must be state that a restore can set, got a read-only array. Pass np.array(...) of it, "
            "or keep it in a dict."
        )
    if isinstance(state, tuple) and len(state) == 2 and all(map(callable, state)):
        if any(hasattr(part, "state_dict") for part in state):
            raise TypeError(f"states[{name!r}] must be one object, got {state!r:.200}. Give each its own name.")
        return _PairState(name, *state)
    if _is_instance(state, "tensorflow", "train.Checkpoint"):
        return _TensorFlowState(name, state)
    if _has_methods(state, "state_dict", "load_state_dict"):
        return _PairState(name, state.state_dict, state.load_state_dict)
    if _has_methods(state, "getstate", "setstate"):  # The module `random` and its generators have these methods.
        return _PairState(name, state.getstate, state.setstate)
    if _is_instance(state, "numpy", "random.Generator"):
        return _PairState(name, lambda: state.bit_generator.state, lambda saved: _set_bits(state, saved))
    if _is_instance(state, "numpy", "ndarray") or _is_mutable(state) or _is_instance(state, "torch", "Tensor"):
        return _TreeState(name, state)
    raise TypeError(f"states[{name!r}] must be state that a restore can set, got {_brief(state)}. {_remedy(state)}")


def _remedy(state: Any) -> str:
    if _is_tensorflows(state):
        return "For objects of TensorFlow pass tf.train.Checkpoint(model=...) with the objects."
    return (
        "Keep it in a dict, a list or a types.SimpleNamespace, or pass a pair of functions: one that returns the "
        "state, and one that sets it."
    )


def _is_tensorflows(state: Any) -> bool:
    return any(kind.__module__.partition(".")[0] in ("tensorflow", "keras", "tf_keras") for kind in type(state).__mro__)


def _brief(value: Any) -> str:
    """Returns a short text of a value, for a message. An array may be large."""
    return f"a {type(value).__name__}" if hasattr(value, "shape") else f"{value!r:.200}"


def _has_methods(value: Any, *names: str) -> bool:
    return not isinstance(value, type) and all(callable(getattr(value, name, None)) for name in names)


def _is_instance(value: Any, library: str, names: str) -> bool:
    """Returns True if a value is an instance of a class in a library that the program has imported."""
    found: Any = sys.modules.get(library)
    for name in names.split("."):
        found = getattr(found, name, None)
    return isinstance(found, type) and isinstance(value, found)


def _is_mutable(value: Any) -> bool:
    """Returns True if a restore can change the parts of a container."""
    if isinstance(value, MutableMapping | list | types.SimpleNamespace | collections.deque):
        return True
    return _is_dataclass(value) and not type(value).__dataclass_params__.frozen


def _is_dataclass(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _set_bits(generator: Any, saved: Any) -> None:
    generator.bit_generator.state = saved


class _PairState(SavedState):
    """A state that one function returns and another one sets. Its structure may change from step to step."""

    def __init__(self, name: str, get: Callable[[], Any], set_: Callable[[Any], Any]) -> None:
        super().__init__(name)
        self._get = get
        self._set = set_

    def check_savable(self) -> None:
        _check_savable(self.name, self._get())

    def save(self, new: NewCheckpoint) -> Any:
        return _save_value(self.name, self._get(), new)

    def read(self, folder: str, saved: Any) -> Any:
        # Only some values need the program's value as a template, and creating that value may cost a copy.
        return _read_value(self.name, self._get, folder, saved)

    def set(self, value: Any) -> None:
        self._set(value)


class _TreeState(SavedState):
    """A container or an array whose parts are set in place."""

    is_checked = True

    def __init__(self, name: str, tree: Any) -> None:
        super().__init__(name)
        self._tree = tree

    def check_savable(self) -> None:
        _check_savable(self.name, self._tree)

    def save(self, new: NewCheckpoint) -> Any:
        return _save_value(self.name, self._tree, new)

    def read(self, folder: str, saved: Any) -> Any:
        return _read_value(self.name, lambda: self._tree, folder, saved)

    def misfits(self, value: Any, strict: bool) -> list[str]:
        return list(_misfits(self._tree, value, self.name, strict))

    def set(self, value: Any) -> None:
        _assign(self._tree, value)


class _TensorFlowState(SavedState):
    """The objects of a `tf.train.Checkpoint`."""

    is_tensorflows = True

    def __init__(self, name: str, checkpoint: Any) -> None:
        super().__init__(name)
        self._checkpoint = checkpoint

    def save(self, new: NewCheckpoint) -> Any:
        self._checkpoint.write(os.path.join(new.path, self.name))
        return {"format": "tensorflow"}

    def read(self, folder: str, saved: Any) -> Any:
        if saved["format"] != "tensorflow":
            raise ValueError(f"{self.name} was saved without TensorFlow, but is a tf.train.Checkpoint in the program.")
        return os.path.join(folder, self.name)

    def set(self, value: Any) -> None:
        from fastsup.loop.checkpoint import check_match

        check_match(self._checkpoint, self._checkpoint.read(value), value)


# Convert a state's values to JSON and arrays.


def _check_savable(name: str, value: Any) -> None:
    if _has_tensors(value):
        _check_tensors(name, value)
    else:
        _encode(value, name, {})


def _save_value(name: str, value: Any, new: NewCheckpoint) -> Any:
    if _has_tensors(value):
        import torch  # type: ignore[import-not-found, unused-ignore]

        _check_tensors(name, value)
        with new.create(f"{name}.pt") as file:
            torch.save(value, file)
        return {"format": "torch"}
    arrays: dict[str, Any] = {}
    tree = _encode(value, name, arrays)
    if arrays:
        with new.create(f"{name}.npz") as file:
            _write_arrays(file, arrays)
    return {"format": "tree", "tree": tree, "has_arrays": bool(arrays)}


def _read_value(name: str, template: Callable[[], Any], folder: str, saved: Any) -> Any:
    if saved["format"] == "torch":
        import torch

        return torch.load(os.path.join(folder, f"{name}.pt"), map_location="cpu", weights_only=True)
    if saved["format"] != "tree":
        raise ValueError(
            f"{name} was saved as a tf.train.Checkpoint, but isn't one in the program. Pass a tf.train.Checkpoint."
        )
    arrays = _read_arrays(os.path.join(folder, f"{name}.npz")) if saved["has_arrays"] else {}
    needs_template = arrays or _has_nodes(saved["tree"])
    return _decode(saved["tree"], arrays, template() if needs_template else _MISSING, name)


def _write_arrays(to: Any, arrays: dict[str, Any]) -> None:
    """Writes an `.npz` file. `numpy.savez` doesn't accept names such as "file"."""
    import numpy as np

    with zipfile.ZipFile(to, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for key, leaf in arrays.items():
            with archive.open(f"{key}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, _as_numpy(leaf), allow_pickle=False)


def _read_arrays(path: str) -> dict[str, Any]:
    import numpy as np

    with np.load(path, allow_pickle=False) as archive:
        return dict(archive.items())


def _as_numpy(leaf: Any) -> Any:
    """Converts a leaf to an array that every NumPy version reads."""
    import numpy as np

    if _is_key(leaf):
        leaf = sys.modules["jax"].random.key_data(leaf)
    array = np.asarray(leaf)
    if array.dtype.type.__module__ == "ml_dtypes":
        return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}").reshape(array.shape)
    return array


def _is_key(leaf: Any) -> bool:
    """Returns True for a typed key of `jax.random`."""
    jax: Any = sys.modules.get("jax")
    return jax is not None and isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _array_node(value: Any, path: str) -> dict[str, Any] | None:
    """Returns an array's entry in the JSON file, without its name in the `.npz` file; None for another value."""
    if _is_instance(value, "jax", "Array"):
        if not value.is_fully_addressable:
            raise TypeError(
                f"{path} is an array of several processes, which one process can't save. Save it with orbax, in a "
                "CheckpointHook(function, ...)."
            )
        if _is_key(value):
            return {"kind": "key", "dtype": str(sys.modules["jax"].random.key_impl(value))}
        # A weak type yields to the other operand's type.
        weak = {"weak": True} if value.weak_type else {}
        return {"kind": "jax", "dtype": value.dtype.name, **weak}
    if _is_instance(value, "numpy", "ndarray") or _is_instance(value, "numpy", "generic"):
        if value.dtype.hasobject:
            raise TypeError(f"{path} is an array of Python objects. Only arrays of numbers or strings are saved.")
        kind = "numpy" if _is_instance(value, "numpy", "ndarray") else "scalar"
        return {"kind": kind, "dtype": value.dtype.name}
    return None


def _encode(value: Any, path: str, arrays: dict[str, Any]) -> Any:
    """Converts a value to JSON. Adds its arrays to `arrays`, by their names in the `.npz` file.

    Raises:
      TypeError: If the value can't be saved.
    """
    node = _array_node(value, path)
    if node is not None:
        # Convert any path to a valid name in a zip file.
        key = "".join(letter if letter.isprintable() else "_" for letter in path)[:_LONGEST_NAME]
        # numpy.load would treat a name with this ending as another array's file.
        while key in arrays or key.endswith(".npy"):
            key += "~"
        arrays[key] = value
        return {"array": key, **node}
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) is bytes:
        return {"bytes": base64.b64encode(value).decode()}
    if type(value) is complex:
        return {"complex": [value.real, value.imag]}
    parts = _parts(value)
    if parts is None:
        remedy = (
            _remedy(value)
            if _is_tensorflows(value)
            else (
                "Pass an object with state_dict and load_state_dict under its own name; for anything else, pass a pair "
                "of functions: one that returns numbers, strings, arrays, lists and dicts, and one that sets the "
                "state from them."
            )
        )
        raise TypeError(f"{path} is {_brief(value)} of type {type(value).__name__}, which can't be saved. {remedy}")
    kind, items = parts
    encoded = [
        [_encode(name, f"a key of {path}", arrays) if kind in _DICTS else name, _encode(part, f"{path}/{name}", arrays)]
        for name, part in items
    ]
    if kind in _DICTS:
        return {kind: encoded}
    if kind == "node":
        return {"node": type(value).__qualname__, "parts": encoded}
    more = {"maxlen": value.maxlen} if kind == "deque" else {}
    return {kind: [part for _, part in encoded], **more}


def _parts(value: Any) -> tuple[str, list[tuple[Any, Any]]] | None:
    """Returns the kind of a container, and its parts by name; None for another value.

    The kind "node" is for containers that can only be recreated from a container of the same type.
    """
    if isinstance(value, dict) and type(value) is _DICTS.get(type(value).__name__):
        return type(value).__name__, list(value.items())
    for kind in (list, tuple, set, frozenset, collections.deque):
        if type(value) is kind:
            return kind.__name__, list(enumerate(value))
    registered = _jax_parts(value)
    if registered is not None:
        return "node", registered[0]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return "node", list(zip(value._fields, value, strict=True))
    if _is_dataclass(value):
        return "node", [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
    if isinstance(value, types.SimpleNamespace):
        return "node", list(vars(value).items())
    if isinstance(value, MutableMapping) and all(isinstance(name, str) for name in value):
        return "node", list(value.items())
    return None


def _jax_parts(value: Any) -> tuple[list[tuple[str, Any]], Any] | None:
    """Returns the named parts of a container that is registered with JAX, and its JAX tree definition."""
    jax: Any = sys.modules.get("jax")
    if jax is None or value is None or jax.tree_util.all_leaves([value]):
        return None
    keyed, definition = jax.tree_util.tree_flatten_with_path(value, is_leaf=lambda part: part is not value)
    return [(_key_name(path[0], number), part) for number, (path, part) in enumerate(keyed)], definition


def _key_name(key: Any, number: int) -> str:
    for attribute in ("key", "name", "idx"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(number)


def _has_nodes(tree: Any) -> bool:
    if isinstance(tree, dict):
        return "node" in tree or "defaultdict" in tree or any(_has_nodes(part) for part in tree.values())
    return isinstance(tree, list) and any(map(_has_nodes, tree))


def _decode(tree: Any, arrays: dict[str, Any], template: Any, path: str) -> Any:
    """Recreates a value. Doesn't change the template, which is the program's value at that path.

    Raises:
      ValueError: If the template isn't of the required type.
    """
    if not isinstance(tree, dict):
        return tree
    if "array" in tree:
        return _decode_array(tree, arrays[tree["array"]], template)
    if "bytes" in tree:
        return base64.b64decode(tree["bytes"])
    if "complex" in tree:
        return complex(*tree["complex"])
    if "node" in tree:
        return _decode_node(tree, arrays, template, path)
    (kind, content), *_ = tree.items()
    if kind in _DICTS:
        known = template if isinstance(template, MutableMapping) else {}
        pairs = [(_decode(name, {}, _MISSING, path), part) for name, part in content]
        made = {name: _decode(part, arrays, known.get(name, _MISSING), f"{path}/{name}") for name, part in pairs}
        if kind == "defaultdict":
            _check_type(kind, template, path)
            return collections.defaultdict(template.default_factory, made)
        return _DICTS[kind](made)
    examples = list(template) if isinstance(template, list | tuple | collections.deque) else []
    examples += [_MISSING] * (len(content) - len(examples))
    parts = [_decode(part, arrays, examples[number], f"{path}/{number}") for number, part in enumerate(content)]
    if kind == "deque":
        return collections.deque(parts, tree["maxlen"])
    return {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}[kind](parts)


def _decode_array(node: dict[str, Any], array: Any, template: Any) -> Any:
    kind = node["kind"]
    if kind == "key":
        import jax

        return jax.random.wrap_key_data(jax.numpy.asarray(array), impl=node["dtype"])
    array = _with_dtype(array, node["dtype"])
    # A NumPy array may replace a JAX array or a number, and vice versa.
    is_jax, is_numpy = _is_instance(template, "jax", "Array"), _is_instance(template, "numpy", "ndarray")
    if kind == "scalar" and not (is_jax or is_numpy):
        return array[()]
    if is_numpy or (kind == "numpy" and not is_jax):
        return array
    import jax

    # Use the devices on which the program placed the array.
    made = jax.device_put(array, template.sharding if is_jax and getattr(template, "committed", True) else None)
    if not node.get("weak"):
        return made
    # An array made from a Python number has a weak type, and keeps it when it is assigned to.
    weak = jax.numpy.full(made.shape, type(made.dtype.type(0).item())(0))
    return weak.at[...].set(made) if weak.dtype == made.dtype else made


def _with_dtype(array: Any, name: str) -> Any:
    if array.dtype.name == name or array.dtype.kind != "u":
        return array
    import ml_dtypes

    return array.view(getattr(ml_dtypes, name))


def _check_type(kind: str, template: Any, path: str) -> None:
    if type(template).__qualname__ == kind and template is not _MISSING:
        return
    here = "nothing" if template is _MISSING else f"a {type(template).__qualname__}"
    raise ValueError(
        f"{path} is a {kind} in the checkpoint, and {here} here. Create the state, with its initial values, before "
        "the restore."
    )


def _decode_node(tree: dict[str, Any], arrays: dict[str, Any], template: Any, path: str) -> Any:
    _check_type(tree["node"], template, path)
    known = dict((_parts(template) or ("", []))[1])
    values = {name: _decode(part, arrays, known.get(name, _MISSING), f"{path}/{name}") for name, part in tree["parts"]}
    has_any_names = isinstance(template, types.SimpleNamespace | MutableMapping)
    if values.keys() != known.keys() and not has_any_names:
        raise ValueError(
            f"{path} is a {tree['node']} of {', '.join(map(str, values))} in the checkpoint, and of "
            f"{', '.join(map(str, known))} here."
        )
    registered = _jax_parts(template)
    if registered is not None:
        return registered[1].unflatten([values[name] for name, _ in registered[0]])
    if isinstance(template, tuple):
        return type(template)(*(values[name] for name in known))
    if isinstance(template, MutableMapping):
        return values  # The parts are assigned to the template one by one.
    made = copy.copy(template)
    for name in known.keys() - values.keys():
        object.__delattr__(made, name)
    for name, value in values.items():
        object.__setattr__(made, name, value)
    return made


# Functions for PyTorch tensors.


def _has_tensors(value: Any) -> bool:
    if "torch" not in sys.modules:
        return False
    if _is_instance(value, "torch", "Tensor"):
        return True
    parts = _parts(value)
    return parts is not None and any(_has_tensors(part) for _, part in parts[1])


def _check_tensors(name: str, value: Any) -> None:
    """Rejects values that `torch.load` can't read without running code, because they couldn't be restored."""
    import torch

    if isinstance(value, torch.Tensor) or value is None or type(value) in (bool, int, float, complex, str, bytes):
        return
    if type(value) in (dict, collections.OrderedDict, list, tuple):
        for part_name, part in value.items() if isinstance(value, dict) else enumerate(value):
            _check_tensors(f"{name}/{part_name}", part)
        return
    try:
        file = io.BytesIO()
        torch.save(value, file)
        file.seek(0)
        torch.load(file, weights_only=True)
    except Exception as error:
        raise TypeError(
            f"{name} is {_brief(value)} of type {type(value).__name__}, which torch.load can't read with "
            "weights_only=True. Pass the part with tensors and the rest under two names, or a pair of functions."
        ) from error


# Compare saved values with the program's, and assign them.


def _is_array(value: Any) -> bool:
    return any(_is_instance(value, *kind) for kind in (("numpy", "ndarray"), ("jax", "Array"), ("torch", "Tensor")))


def _has_arrays(value: Any) -> bool:
    if _is_array(value):
        return True
    parts = _parts(value)
    return parts is not None and any(_has_arrays(part) for _, part in parts[1])


def _misfits(template: Any, value: Any, path: str, strict: bool) -> Iterator[str]:
    """Yields the differences between a saved value and the program's value.

    Plain values may differ. Arrays must have the same names, shapes and types. Without `strict`, a container may have
    other parts, because the program may have changed it since the save.
    """
    if not (_has_arrays(template) or _has_arrays(value)):
        return
    if all(_is_array(array) or _is_instance(array, "numpy", "generic") for array in (template, value)):
        there, here = (f"{array.dtype} {tuple(array.shape)}" for array in (value, template))
        if there != here:
            yield f"{path} is {there} in the checkpoint and {here} here"
        return
    parts, saved = _parts(template), _parts(value)
    if parts is None or saved is None:
        there, here = (type(other).__name__ for other in (value, template))
        if strict or there != here:
            yield f"{path} is a {there} in the checkpoint and a {here} here"
        return
    known, found = dict(parts[1]), dict(saved[1])
    for name, part in known.items():
        if name in found:
            yield from _misfits(part, found[name], f"{path}/{name}", strict)
        elif strict:
            yield f"{path}/{name} isn't in the checkpoint"
    # The program fills an empty container.
    if strict and known:
        yield from (f"{path}/{name} isn't in the program" for name in found if name not in known)


def _assign(template: Any, value: Any) -> Any:
    """Sets a container's parts in place. Returns the value that replaces the template."""
    if _is_instance(template, "numpy", "ndarray") and _is_instance(value, "numpy", "ndarray"):
        if template.shape == value.shape and template.dtype == value.dtype and template.flags.writeable:
            template[...] = value
            return template
        return value
    if _is_instance(template, "torch", "Tensor") and _is_instance(value, "torch", "Tensor"):
        import torch

        with torch.no_grad():
            template.copy_(value)
        return template
    if isinstance(template, MutableMapping) and isinstance(value, MutableMapping):
        for name in [name for name in template if name not in value]:
            del template[name]
        for name, part in value.items():
            template[name] = _assign(template.get(name, _MISSING), part)
        return template
    if isinstance(template, list | collections.deque) and isinstance(value, type(template)):
        examples = [*template, *[_MISSING] * len(value)]
        parts = [_assign(example, part) for example, part in zip(examples, value, strict=False)]
        template.clear()
        template.extend(parts)
        return template
    if type(template) is tuple and type(value) is tuple and len(template) == len(value):
        return tuple(_assign(example, part) for example, part in zip(template, value, strict=True))
    if _is_mutable(template) and type(template) is type(value):
        for name in vars(template).keys() - vars(value).keys():
            delattr(template, name)
        for name, part in vars(value).items():
            setattr(template, name, _assign(getattr(template, name, _MISSING), part))
        return template
    return value


def misfits_of(states: list[tuple[SavedState, Any]], strict: bool) -> list[str]:
    """Returns the differences between saved values and the program's states, up to a limit, as one clause each."""
    found = [clause for state, value in states for clause in state.misfits(value, strict)]
    more = [f"{len(found) - _LISTED} more"] if len(found) > _LISTED else []
    return found[:_LISTED] + more
