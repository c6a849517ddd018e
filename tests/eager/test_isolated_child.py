"""A child has the modules of its parent, however the parent has found them, and nothing of the current folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from processes import Processes

import fastsup
from fastsup.common import isolated_child

CHILD = """
import json, os, random, sys

import alpha, beta
from gamma import part

def main():
    print(json.dumps({
        "alpha": alpha.__file__, "beta": beta.__file__, "gamma": part.__file__, "random": random.__file__,
        "folder": os.getcwd(), "isolated": sys.flags.isolated, "setting": os.environ.get("SETTING"),
    }))
"""
PARENT = """
import os, sys
sys.path.append({root!r})
from fastsup.common import isolated_child
{body}
done = isolated_child.run("alpha.child", 60, SETTING="set")
print(done.stdout.decode(), end="")
sys.exit(done.stderr.decode() or done.returncode)
"""
ALL_AT_ONCE = "sys.path.insert(0, {library!r})\nimport alpha, beta, gamma.part\n"


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A folder with a package, a module and a namespace package."""
    library = tmp_path / "library"
    for folder in ("alpha", "gamma"):
        (library / folder).mkdir(parents=True)
    (library / "alpha" / "__init__.py").write_text("")
    (library / "alpha" / "child.py").write_text(CHILD)
    (library / "beta.py").write_text("")
    (library / "gamma" / "part.py").write_text("")
    return library


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    """A folder of which no module may be executed: Python's own, those of the library, and fastsup."""
    trap = tmp_path / "trap"
    for name in ("alpha/__init__", "beta", "fastsup/__init__", "gamma/part", "json", "random", "resource", "site",
                 "sitecustomize", "subprocess", "usercustomize"):  # fmt: skip
        place = trap / f"{name}.py"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"open({str(trap / 'executed')!r}, 'a').write({name!r})\nraise SystemExit('executed')\n")
    return trap


Run = Callable[..., Any]


@pytest.fixture
def run(processes: Processes) -> Run:
    """Runs a parent, and gives what its child has printed."""

    def run(body: str, *options: str, python: str = sys.executable, cwd: Path | None = None, **environment: str) -> Any:
        program = PARENT.format(root=str(Path(fastsup.__file__).parents[1]), body=body)
        # Always a new interpreter, which has imported no more than the program.
        done = processes.run(python, *options, "-c", program, env={**os.environ, **environment}, cwd=cwd)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def check(printed: Any, library: Path, **other: Path) -> None:
    """Checks what the child of a parent with the library has printed."""
    places = {"alpha": library / "alpha" / "__init__.py", "beta": library / "beta.py",
              "gamma": library / "gamma" / "part.py"}  # fmt: skip
    assert {name: Path(printed[name]) for name in places} == {**places, **other}
    assert (printed["folder"], printed["isolated"], printed["setting"]) == ("/", 1, "set")


@pytest.mark.parametrize(
    "enter",
    [
        pytest.param("sys.path = [entry for entry in sys.path if entry]", id="as with -P"),
        pytest.param("sys.path.insert(0, '')", id="as with -c"),
        pytest.param("sys.path.insert(0, os.getcwd())", id="as with -m"),
        pytest.param("sys.path.insert(0, '.')", id="by the program"),
        pytest.param("sys.path.insert(0, os.path.join(os.getcwd(), 'fastsup', '..'))", id="by another name"),
        pytest.param("os.environ['PYTHONPATH'] = os.getcwd()", id="for children"),
    ],
)
def test_nothing_of_the_current_folder_is_executed(
    run: Run, library: Path, trap: Path, tmp_path: Path, enter: str
) -> None:
    entering = f"os.chdir({str(trap)!r})\n{enter}\n"
    printed = run(ALL_AT_ONCE.format(library=str(library)) + entering, cwd=tmp_path)
    check(printed, library)
    assert not (trap / "executed").exists()
    assert Path(printed["random"]).parent == Path(os.__file__).parent


@pytest.mark.parametrize("options", [["-I"], ["-E"], ["-s"]], ids=str)
def test_an_isolated_parent(run: Run, library: Path, trap: Path, options: list[str]) -> None:
    cwd = trap if options == ["-I"] else library
    check(run(ALL_AT_ONCE.format(library=str(library)), *options, cwd=cwd), library)
    assert not (trap / "executed").exists()


def test_modules_of_the_current_folder_that_the_parent_has_imported(run: Run, library: Path) -> None:
    """Everything may lie in the folder of the program."""
    check(run("import alpha, beta, gamma.part", cwd=library), library)


def test_the_environment(run: Run, library: Path, tmp_path: Path) -> None:
    body = "import alpha, beta, gamma.part"
    check(run(body, cwd=tmp_path, PYTHONPATH=str(library)), library)
    # The name of a module that isn't imported yet.
    check(run("", cwd=tmp_path, PYTHONPATH=str(library)), library)


def test_a_path_that_the_program_has_changed(run: Run, library: Path, trap: Path, tmp_path: Path) -> None:
    body = ALL_AT_ONCE.format(library=str(library)) + f"sys.path.remove({str(library)!r})\n"
    check(run(body, cwd=tmp_path), library)
    check(run(f"{body}sys.path[:0] = [{str(trap)!r}, None, b'bytes', 3]", cwd=tmp_path), library)
    assert not (trap / "executed").exists()


@pytest.mark.parametrize("is_relative", [False, True])
def test_an_archive(run: Run, library: Path, tmp_path: Path, is_relative: bool) -> None:
    archive = tmp_path / "archive.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.write(library / "beta.py", "beta.py")
    (library / "beta.py").unlink()
    body = f"sys.path.insert(0, {archive.name if is_relative else str(archive)!r})\n"
    printed = run(body + ALL_AT_ONCE.format(library=str(library)), cwd=tmp_path)
    check(printed, library, beta=archive / "beta.py")


def test_an_import_hook(run: Run, library: Path, tmp_path: Path) -> None:
    """Installations in place may use one."""
    body = f"""
from importlib.util import spec_from_file_location
class Hook:
    def find_spec(name, path=None, target=None):
        if name == "alpha":
            folder = os.path.join({str(library)!r}, name)
            return spec_from_file_location(
                name, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder])
sys.meta_path.insert(0, Hook)
import alpha
sys.path.append({str(library)!r})
"""
    check(run(body, cwd=tmp_path), library)


def test_a_namespace_in_two_folders(run: Run, library: Path, tmp_path: Path) -> None:
    (tmp_path / "other" / "gamma").mkdir(parents=True)
    (library / "gamma" / "part.py").rename(tmp_path / "other" / "gamma" / "part.py")
    body = f"sys.path.append({str(tmp_path / 'other')!r})\n" + ALL_AT_ONCE.format(library=str(library))
    printed = run(f"{body}del sys.path[0], sys.path[-1]", cwd=tmp_path)
    check(printed, library, gamma=tmp_path / "other" / "gamma" / "part.py")


def test_a_virtual_environment(run: Run, processes: Processes, library: Path, tmp_path: Path) -> None:
    place = tmp_path / "environment"
    processes.run(sys.executable, "-m", "venv", "--without-pip", place, check=True)
    (packages,) = place.glob("lib/python*/site-packages")
    (packages / "library.pth").write_text(f"{library}\n")
    for body in ("", "import alpha, beta, gamma.part"):
        check(run(body, python=str(place / "bin" / "python"), cwd=tmp_path), library)


def test_packages_of_the_user(run: Run, library: Path, tmp_path: Path) -> None:
    python = os.path.realpath(sys.executable)
    user = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    (tmp_path / user).parent.mkdir(parents=True)
    library.rename(tmp_path / user)
    printed = run("import alpha, beta, gamma.part", python=python, cwd=tmp_path, PYTHONUSERBASE=str(tmp_path))
    check(printed, tmp_path / user)


def test_a_folder_that_was_removed(run: Run, library: Path, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    body = ALL_AT_ONCE.format(library=str(library)) + "os.rmdir(os.getcwd())\nsys.path[:0] = ['', '.', 'relative']"
    check(run(body, cwd=gone), library)


def test_a_module_that_is_loaded_lazily_stays_unloaded(run: Run, library: Path, tmp_path: Path) -> None:
    (library / "lazy.py").write_text("raise SystemExit('loaded')")
    body = """
import importlib.util
spec = importlib.util.find_spec("lazy")
spec.loader = importlib.util.LazyLoader(spec.loader)
sys.modules["lazy"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["lazy"])
import pathlib, types
sys.modules["none"], sys.modules["number"], sys.modules[3] = None, 3, types.ModuleType("three")
alpha.__spec__.submodule_search_locations = [pathlib.Path(folder) for folder in alpha.__path__]
"""
    check(run(ALL_AT_ONCE.format(library=str(library)) + body, cwd=tmp_path), library)


@pytest.mark.parametrize("executable", ["", None, "/bin/true", "/nowhere/python", "/app/{tmp}"], ids=str)
def test_a_program_that_embeds_python(run: Run, library: Path, tmp_path: Path, executable: str | None) -> None:
    """sys.executable isn't an interpreter, or not the one that the program embeds: the program isn't started again."""
    if executable == "/app/{tmp}":
        place = tmp_path / "python3"  # As the first Python on the PATH may be another version.
        place.write_text("#!/bin/sh\necho started\nexit 3\n")
        place.chmod(0o755)
        executable = str(place)
    body = ALL_AT_ONCE.format(library=str(library)) + f"sys.executable = {executable!r}"
    check(run(body, cwd=tmp_path), library)


def test_no_interpreter_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "executable", "/opt/app/trainer")
    monkeypatch.setattr(sys, "exec_prefix", str(tmp_path))
    monkeypatch.setattr(sys, "base_exec_prefix", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"sys.executable, '/opt/app/trainer', isn't a Python interpreter, and"):
        isolated_child.run("alpha.child", 60)


def test_another_version_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    version = sys.version
    monkeypatch.setattr(sys, "version", "3.99.0 (main)")
    done = isolated_child.run("alpha.child", 60)
    assert done.returncode == 1
    assert f"is Python {version}, and the program runs in Python 3.99.0 (main)" in done.stderr.decode()


def test_limits(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (library / "alpha" / "sleeps.py").write_text("import time\ndef main(): time.sleep(60)")
    monkeypatch.syspath_prepend(str(library))
    with pytest.raises(subprocess.TimeoutExpired):
        isolated_child.run("alpha.sleeps", 0.3)
    (library / "alpha" / "crashes.py").write_text("import os\ndef main(): os.abort()")
    assert isolated_child.run("alpha.crashes", 60).returncode == -6


def test_a_child_does_not_outlive_its_parent(library: Path, processes: Processes, wait_for: Any) -> None:
    """Also if the parent is killed, while a thread waits for the child."""
    child = library / "child_pid"
    (library / "alpha" / "child.py").write_text(
        f"import os, time\ndef main():\n    open({str(child)!r}, 'w').write(str(os.getpid()))\n    time.sleep(100)\n"
    )
    program = (
        f"import os, signal, sys, threading, time\nsys.path.insert(0, {str(library)!r})\nimport alpha\n"
        "from fastsup.common import isolated_child\n"
        "threading.Thread(target=isolated_child.run, args=('alpha.child', 100), daemon=True).start()\n"
        f"while not os.path.exists({str(child)!r}) or not open({str(child)!r}).read():\n    time.sleep(0.01)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = processes.python("-c", program, fresh=True)
    assert done.returncode == -9, done.stderr

    def has_ended() -> bool:
        status = Path(f"/proc/{child.read_text()}/status")
        # In a container, nobody may ask for the exit code of what has lost its parent.
        return not status.exists() or "\tZ" in status.read_text()

    wait_for(has_ended)
