"""A process with the modules of this process that uses nothing from the current folder.

`python -m` searches the current folder first. The environment, the program and import hooks affect where modules are
found. The child is therefore isolated, and gets the location of each of this process's top-level modules. This file is
also the child's program, and imports only Python's own modules.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from types import ModuleType
from typing import Any

__all__ = ["run"]

# The interpreter's file names in installations. Other values of sys.executable may be programs that embed Python.
_INTERPRETER = re.compile(r"python[\d.]*(?:d|t|td|-dbg)?")

# The file of a top-level module (None for a namespace) and the folders of its submodules (None if it isn't a package).
_Place = tuple["str | None", "list[str] | None"]


def run(
    module: str, timeout: float, started: Callable[[subprocess.Popen[bytes]], Any] | None = None, **environment: str
) -> subprocess.CompletedProcess[bytes]:
    """Calls the function `main` of a module in a child process.

    Args:
      module: the module's name.
      timeout: seconds after which the child is killed.
      started: function of the child that is called when it has started, or None.
      **environment: environment variables of the child in addition to this process's.

    Returns:
      The child's exit code and output.

    Raises:
      OSError: If the child can't be started.
      subprocess.TimeoutExpired: If the child was killed after the timeout.
    """
    task = {"module": module, "python": sys.version, "modules": _loaded_modules(), "path": _search_path()}
    with subprocess.Popen(
        [_interpreter(), "-I", "-B", __file__],
        env={**os.environ, **environment},
        cwd="/",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as child:
        try:
            if started is not None:
                started(child)
            output, errors = child.communicate(json.dumps({**task, "parent": os.getpid()}).encode(), timeout)
        except BaseException:
            child.kill()
            raise
        return subprocess.CompletedProcess(child.args, child.returncode, output, errors)


def _interpreter() -> str:
    """Returns the path of an interpreter that runs programs like this process."""
    name = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    installed = [os.path.join(prefix, "bin", name) for prefix in (sys.exec_prefix, sys.base_exec_prefix)]
    # In a program that embeds Python, sys.executable is the program itself, empty, or the first Python on the PATH.
    is_own = bool(sys.executable) and os.path.realpath(sys.executable) == os.path.realpath("/proc/self/exe")
    for path in (sys.executable, *installed) if is_own else (*installed, sys.executable):
        if path and _INTERPRETER.fullmatch(os.path.basename(path)) and os.access(path, os.X_OK):
            return path
    raise FileNotFoundError(
        f"sys.executable, {sys.executable!r}, isn't a Python interpreter, and there is no {' or '.join(installed)}"
    )


def _loaded_modules() -> dict[str, _Place]:
    """Returns the locations of this process's top-level modules, except Python's own and those without files."""
    places: dict[str, _Place] = {}
    for name, module in list(sys.modules.items()):
        is_top_level = isinstance(name, str) and "." not in name
        if not is_top_level or name in sys.stdlib_module_names or not issubclass(type(module), ModuleType):
            continue
        # Don't use getattr, which would load a lazily loaded module.
        spec = object.__getattribute__(module, "__dict__").get("__spec__")
        if not isinstance(spec, ModuleSpec) or spec.name != name:
            continue
        folders = spec.submodule_search_locations
        if folders is not None:
            # Read the list itself, because a namespace's folders are searched for again whenever they are listed.
            folders = list(map(os.fspath, getattr(folders, "_path", folders)))
        if spec.has_location and spec.origin is not None and os.path.isfile(spec.origin):
            places[name] = (os.path.abspath(spec.origin), folders)
        elif spec.origin is None and folders is not None:
            places[name] = (None, folders)
    return places


def _search_path() -> list[str]:
    """Returns the import path of this process without the current folder."""
    try:
        here = os.getcwd()
    except OSError:
        here = ""  # The current folder was removed.
    entries = [os.path.join(here, entry) for entry in sys.path if isinstance(entry, str) and entry]
    return [entry for entry in entries if os.path.isabs(entry) and os.path.realpath(entry) != here]


class _SameModules:
    """Finds top-level modules where another process found them."""

    def __init__(self, places: dict[str, _Place]) -> None:
        self._places = places

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name not in self._places:
            return None
        file, folders = self._places[name]
        if file is not None:
            return spec_from_file_location(name, file, submodule_search_locations=folders)
        namespace = ModuleSpec(name, None, is_package=True)
        namespace.submodule_search_locations = folders
        return namespace


# The Linux option that sets the signal that a process gets when the thread that started it ends.
_PR_SET_PDEATHSIG = 1


def _end_with_parent(parent: int) -> None:
    """Ends this process when its parent ends, however that happens."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("the program has ended")


def _main() -> None:
    task = json.load(sys.stdin.buffer)
    _end_with_parent(task["parent"])
    if sys.version != task["python"]:
        sys.exit(f"{sys.executable} is Python {sys.version}, and the program runs in Python {task['python']}")
    sys.meta_path.insert(0, _SameModules(task["modules"]))
    sys.path += [entry for entry in task["path"] if entry not in sys.path]
    importlib.import_module(task["module"]).main()


if __name__ == "__main__":
    _main()
