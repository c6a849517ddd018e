"""Runs a script or a module as Python itself does, with its arguments, exit code and tracebacks."""

from __future__ import annotations

import argparse
import builtins
import io
import os
import re
import sys
import traceback
from importlib.abc import InspectLoader
from importlib.util import find_spec
from types import CodeType, ModuleType, TracebackType
from typing import Any

from fastsup.common.absent_names import Keras2Hint, TensorFlow1Hint

__all__ = ["ScriptFile", "ScriptModule", "add_script", "long_options", "run_script", "script_command"]


def add_script(parser: argparse.ArgumentParser, script_help: str) -> None:
    """Adds a script and its arguments to a parser, and `-m` for a module.

    Args:
      parser: the parser.
      script_help: help text for the script.
    """
    parser.add_argument(
        "-m", dest="is_module", action="store_true", help="the script is a module's name, as for python -m"
    )
    # Parsed unchanged, because the script may have a "--" among its own arguments.
    parser.add_argument("script", nargs=argparse.REMAINDER, help=script_help)
    parser.set_defaults(parser=parser)


def long_options(parser: argparse.ArgumentParser) -> list[str]:
    """The options of a parser that begin with two dashes, except `--help`."""
    return re.findall(r"--(?!help)[a-z][a-z0-9-]*", parser.format_help())


def script_command(arguments: argparse.Namespace) -> list[str]:
    """Returns the script and its arguments. Ends the program if there is none.

    Args:
      arguments: the parsed command line, with `fail`, which reports an error and ends the program.
    """
    # A "--" before the script belongs to the command.
    command: list[str] = arguments.script[1:] if arguments.script[:1] == ["--"] else arguments.script
    if not command:
        taken = [value for value in vars(arguments).values() if isinstance(value, str) and value.endswith(".py")]
        hint = f". {taken[0]} is the value of the option before it: put the script after that value" if taken else ""
        arguments.fail(f"the following arguments are required: script{hint}")
    options = long_options(arguments.parser)
    for argument in command[1:]:
        if argument.partition("=")[0] in options:
            print(
                f"{arguments.parser.prog}: {argument} after the script is an argument of the script. For fastsup, put "
                "it before the script.",
                file=sys.stderr,
            )
    return command


class ScriptFile:
    """A script that runs as with `python path`.

    Args:
      path: path of the script, or of a folder with a `__main__.py`.

    Raises:
      OSError: If the script can't be read.
    """

    def __init__(self, path: str) -> None:
        self.path: str = path
        self.called: str = path
        self.is_folder: bool = os.path.isdir(path)
        if self.is_folder:
            path = os.path.join(path, "__main__.py")
        with io.open_code(os.path.abspath(path)) as file:
            self._source = file.read()
        self._absolute = os.path.abspath(path)
        self.names: dict[str, Any] = {"__file__": self._absolute, "__cached__": None}
        self.folder: str = os.path.dirname(self._absolute)

    def code(self) -> CodeType:
        return compile(self._source, self._absolute, "exec", dont_inherit=True)


class ScriptModule:
    """A module, or a package's `__main__`, that runs as with `python -m name`.

    Args:
      name: name of the module.

    Raises:
      ImportError: If there is no such module.
    """

    is_folder = False

    def __init__(self, name: str) -> None:
        self.called: str = f"-m {name}"
        spec = find_spec(name) if name else None  # For an empty name, find_spec would find the working directory.
        if spec is not None and spec.submodule_search_locations is not None:
            name += ".__main__"
            spec = find_spec(name)
        if spec is None or not isinstance(spec.loader, InspectLoader):
            raise ImportError(f"there is no module {name} in Python that could be run.")
        self.path: str = spec.origin or name
        self._name, self._loader = name, spec.loader
        self.names: dict[str, Any] = {
            "__file__": self.path,
            "__cached__": spec.cached,
            "__spec__": spec,
            "__loader__": spec.loader,
            "__package__": spec.parent,
        }
        self.folder: str = os.getcwd()

    def code(self) -> CodeType:
        code = self._loader.get_code(self._name)
        if code is None:
            raise ImportError(f"the module {self._name} isn't in Python: it can't be run.")
        return code


def run_script(script: ScriptFile | ScriptModule, arguments: list[str]) -> int:
    """Runs a script as Python itself does.

    Args:
      script: the script.
      arguments: its arguments.

    Returns:
      1 if an exception ended the script, which is then shown as Python shows it, otherwise 0.

    Raises:
      SystemExit: If the script ends itself.
      KeyboardInterrupt: If the script was interrupted. Python shows it without the frames of this file.
    """
    module = ModuleType("__main__")
    vars(module).update(__builtins__=builtins, **script.names)
    sys.argv[:] = [script.path, *arguments]
    if not getattr(sys.flags, "safe_path", sys.flags.isolated):
        sys.path[0] = script.folder  # `python -m` put the current folder there.
    elif script.is_folder:
        sys.path.insert(0, script.folder)  # Under -I and -P, Python adds the script's path only if it is a folder.
    sys.modules["__main__"] = module
    try:
        with Keras2Hint(), TensorFlow1Hint():
            exec(script.code(), vars(module))
    except SystemExit:
        raise
    except KeyboardInterrupt:
        # Python itself shows the traceback and ends with the status of an interrupted process.
        show = sys.excepthook

        def show_without_ours(kind: Any, error: Any, trace: Any) -> None:
            shown = _without_ours(trace)
            show(kind, error.with_traceback(shown), shown)

        sys.excepthook = show_without_ours
        raise
    except BaseException as error:
        # The script's own excepthook shows it, if there is one, without the frames of this file.
        shown = _without_ours(error.__traceback__)
        error.__traceback__ = shown
        try:
            sys.excepthook(type(error), error, shown)
        except Exception:
            traceback.print_exception(type(error), error, shown)
        return 1
    return 0


def _without_ours(trace: TracebackType | None) -> TracebackType | None:
    """Returns the part of a traceback that belongs to the script."""
    inner, rest = trace, trace
    while inner is not None:
        if inner.tb_frame.f_code.co_filename == __file__:
            rest = inner.tb_next
        inner = inner.tb_next
    return rest
