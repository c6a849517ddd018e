"""The binding is opened where it was tested and has passed its self-test, and nowhere else."""

from __future__ import annotations

import importlib.machinery
import json
import os
import re
import shutil
import signal
import sys
import textwrap
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from processes import Processes

import fastsup
from fastsup.common import isolated_child
from fastsup.eager import self_test, tf_abi

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def run(processes: Processes) -> Callable[[str], str]:
    """Runs a program in its own process, and gives what it prints."""

    def run(program: str) -> str:
        done = processes.python("-c", textwrap.dedent(program))
        assert done.returncode == 0, done.stderr
        return str(done.stdout)

    return run


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "fastsup"


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Replaces the interpreter of the self-test by a shell script. A file has a line for each of its calls."""

    def replace(script: str) -> Path:
        place, calls = tmp_path / "python", tmp_path / "calls"
        reporting = f"report() {{ echo {tf_abi._build()} $*; }}"
        place.write_text(f"#!/bin/sh\necho called >> {calls}\n{reporting}\n{script}\n")
        place.chmod(0o755)
        monkeypatch.setattr(isolated_child, "_interpreter", lambda: str(place))
        return calls

    return replace


def test_the_self_test_passes(processes: Processes) -> None:
    done = processes.python("-m", "fastsup.eager.self_test")
    assert done.returncode == 0, done.stderr
    assert [line.split()[1] for line in done.stdout.splitlines()] == [tf_abi.BEGUN, tf_abi.PASSED]


@pytest.mark.slow
def test_nothing_of_the_current_folder_is_imported(run: Any, tmp_path: Path, cache: Path) -> None:
    """A clone of the sources that aren't compiled, and modules with names that TensorFlow imports."""
    clone = tmp_path / "clone"
    sources = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(Path(fastsup.__file__).parent, clone / "fastsup", ignore=sources)
    for name in ("random", "numpy", "tensorflow", "absl"):
        (clone / f"{name}.py").write_text(f"open('executed', 'a').write({name!r})\nraise SystemExit('executed')\n")
    program = f"""
        import os, sys

        sys.path = [entry for entry in sys.path if entry]
        import tensorflow as tf

        import fastsup

        os.chdir({str(clone)!r})
        sys.path[:0] = ["", os.getcwd()]  # As `python -c` and `python -m` have done.
        step = fastsup.function(lambda x: x + 1.0, fallback="raise")
        print(float(step(tf.ones([]))), step.lifted)
    """
    assert run(program) == "2.0 True\n"
    assert not (clone / "executed").exists()
    (outcome,) = cache.iterdir()
    assert json.loads(outcome.read_text()) == {"outcome": ""}


def test_an_unknown_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tf_abi.versions, "__version__", "2.99.1")
    assert tf_abi._why_unknown().startswith("TensorFlow 2.99.1 isn't one of the tested versions: 2.16, 2.17")


def test_an_unknown_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tf_abi.platform, "machine", lambda: "riscv64")
    assert "not on linux for riscv64" in tf_abi._why_unknown()


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("report begun; report failed no symbol; exit 1", "the self-test failed: no symbol"),
        ("report begun; kill -SEGV $$", "the self-test failed (signal 11)"),
        ("report begun; echo 'Check failed: x == y' >&2; kill -ABRT $$",
         "the self-test failed (signal 6): Check failed: x == y"),
        ("report begun; echo 'F0 Check failed: x'  >&2; echo '    @  0x7f0 f()' >&2; kill -ABRT $$",
         "the self-test failed (signal 6): F0 Check failed: x"),
        ("report begun; report passed; kill -SEGV $$", "the self-test failed (signal 11)"),
    ],
)  # fmt: skip
def test_a_verdict_is_kept_for_a_day(cache: Path, python: Any, script: str, reason: str) -> None:
    calls = python(script)
    outcome = tf_abi._outcome_file()
    assert outcome is not None
    full_reason = f"{reason}. It isn't repeated for a day, unless you delete {outcome}"
    assert tf_abi._why_self_test_failed() == full_reason
    assert tf_abi._why_self_test_failed() == full_reason
    assert calls.read_text() == "called\n"
    # What has failed yesterday is tried again.
    os.utime(outcome, (0, 0))
    assert tf_abi._why_self_test_failed() == full_reason
    assert calls.read_text() == "called\n" * 2


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        pytest.param("exit 0", "couldn't be completed (exit code 0)", id="no report"),
        pytest.param("report begun; exit 0", "couldn't be completed (exit code 0)", id="no verdict"),
        pytest.param("echo 'No module named x' >&2; exit 1", "couldn't be completed (exit code 1): No module named x",
                     id="an import"),
        pytest.param("echo another-build begun; echo another-build failed; exit 1",
                     "couldn't be completed (exit code 1)", id="another build fails"),
        pytest.param("echo another-build begun; echo another-build passed", "couldn't be completed (exit code 0)",
                     id="another build passes"),
        pytest.param("kill -SEGV $$", "couldn't be completed (signal 11)", id="a crash of an import"),
        *(pytest.param(f"report begun; kill -{name} $$", f"couldn't be completed (signal {number})", id=name,
                       marks=[pytest.mark.skipif(signal.getsignal(number) is signal.SIG_IGN, reason="as under nohup")])
          for name, number in (("HUP", 1), ("INT", 2), ("QUIT", 3), ("KILL", 9), ("TERM", 15), ("XCPU", 24))),
        *(pytest.param(f"report begun; echo '{text}' >&2; kill -ABRT $$",
                       f"couldn't be completed (signal 6): {text}", id=text)
          for text in ("what():  std::bad_alloc", "Thread tf_Compute creation via pthread_create() failed.",
                       "libgomp: Thread creation failed: Resource temporarily unavailable")),
    ],
)  # fmt: skip
def test_what_says_nothing_about_tensorflow_is_not_kept(cache: Path, python: Any, script: str, reason: str) -> None:
    calls = python(script)
    for _ in range(2):
        assert tf_abi._why_self_test_failed() == f"the self-test {reason}"
    assert calls.read_text() == "called\n" * 2
    assert not cache.exists()


@pytest.mark.parametrize(
    ("megabytes", "error"), [(1000, "failed to map segment"), (60, "MemoryError|cannot allocate|failed to map|exit")]
)
def test_a_limit_of_memory(cache: Path, python: Any, megabytes: int, error: str) -> None:
    """Of a real self-test, which can't load TensorFlow."""
    python(f'ulimit -v {megabytes * 1024}; exec {sys.executable} "$@"')
    outcome = tf_abi._why_self_test_failed()
    assert re.search(rf"^the self-test couldn't be completed .*({error})", outcome), outcome
    assert not cache.exists()


def test_modules_that_the_child_does_not_find(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "__init__.py").write_text("")
    # A package that TensorFlow imports, without what it imports of it.
    places = {**isolated_child._loaded_modules(), "google": (str(other / "__init__.py"), [str(other)])}
    monkeypatch.setattr(isolated_child, "_loaded_modules", lambda: places)
    assert tf_abi._why_self_test_failed() == (
        "the self-test couldn't be completed (exit code 1): ModuleNotFoundError: No module named 'google.protobuf'"
    )
    assert not cache.exists()


def test_modules_that_cannot_be_described(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    strange = types.ModuleType("strange")
    strange.__spec__ = importlib.machinery.ModuleSpec("strange", None)
    strange.__spec__.submodule_search_locations = [3]  # type: ignore[list-item]
    monkeypatch.setitem(sys.modules, "strange", strange)
    assert tf_abi._why_self_test_failed().startswith("the self-test couldn't be started: ")
    assert not cache.exists()


def test_no_interpreter(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("executable", "exec_prefix", "base_exec_prefix"):
        monkeypatch.setattr(sys, name, "/nowhere")
    assert tf_abi._why_self_test_failed().startswith("the self-test couldn't be started: sys.executable, '/nowhere', ")
    assert not cache.exists()


@pytest.mark.parametrize(
    ("error", "is_verdict"),
    [
        (AssertionError("self-test: threads"), True),
        (RuntimeError("step isn't lifted: InternalError: x"), True),
        (tf.errors.InternalError(None, None, "x"), True),
        (MemoryError(), False),
        (OSError(24, "Too many open files"), False),
        (ImportError("x"), False),
        (RuntimeError("can't start new thread"), False),
        (tf.errors.ResourceExhaustedError(None, None, "x"), False),
    ],
    ids=repr,
)
def test_errors_that_are_verdicts(error: Exception, is_verdict: bool) -> None:
    assert self_test._is_about_the_machine(error) is not is_verdict
    outer = RuntimeError("step isn't lifted")
    outer.__context__ = error
    assert self_test._is_about_the_machine(outer) is not is_verdict


def test_a_self_test_reports_why_it_fails(run: Any) -> None:
    program = """
        import resource

        from fastsup.eager import tf_abi, self_test

        tf_abi.open_untested = lambda: "TensorFlow's libraries have no symbol x."
        try:
            self_test.main()
        except SystemExit as end:
            print(end.code, *resource.getrlimit(resource.RLIMIT_CORE))
    """
    begun, failed, code = run(program).splitlines()
    assert (begun.split()[1], code) == (tf_abi.BEGUN, "1 0 0")
    assert failed.split(maxsplit=2)[1:] == [tf_abi.FAILED, "TensorFlow's libraries have no symbol x."]


def test_a_self_test_that_passes_is_kept(cache: Path, python: Any) -> None:
    calls = python("report begun; report passed")
    assert tf_abi._why_self_test_failed() == ""
    (outcome,) = cache.iterdir()
    os.utime(outcome, (0, 0))
    assert tf_abi._why_self_test_failed() == ""
    assert calls.read_text() == "called\n"
    outcome.write_text("{")
    assert tf_abi._why_self_test_failed() == ""
    assert calls.read_text() == "called\n" * 2
    assert json.loads(outcome.read_text()) == {"outcome": ""}


def test_a_self_test_that_hangs(cache: Path, python: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tf_abi, "SELF_TEST_SECS", 0.2)
    calls = python("report begun; exec sleep 60")
    assert tf_abi._why_self_test_failed() == "the self-test didn't finish within 0.2 seconds"
    tf_abi._why_self_test_failed()
    assert calls.read_text() == "called\n" * 2
    assert not cache.exists()


def test_another_build_is_tested_anew(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = tf_abi._outcome_file()
    assert here is not None
    assert here.parent == cache
    monkeypatch.setattr(tf_abi.versions, "__git_version__", "another")
    assert tf_abi._outcome_file() != here


def test_a_cache_that_cannot_be_written(
    tmp_path: Path, python: Any, monkeypatch: pytest.MonkeyPatch, tf_log: Any
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    python("report begun; report passed")
    assert tf_abi._why_self_test_failed() == ""
    assert f"can't store the result of the self-test: [Errno 20] Not a directory: '{tmp_path}/file" in tf_log.text
    assert "Set XDG_CACHE_HOME to a writable folder" in tf_log.text


@pytest.mark.parametrize("setting", ["cache", "", "."])
def test_a_cache_is_not_relative_to_the_current_folder(
    python: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, setting: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", setting)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    calls = python("report begun; report passed")
    assert tf_abi._why_self_test_failed() == ""
    (outcome,) = (tmp_path / "home" / ".cache" / "fastsup").iterdir()
    assert sorted(tmp_path.iterdir()) == [calls, tmp_path / "home", tmp_path / "python"]
    # A user without a home.
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    (tmp_path / "~" / ".cache" / "fastsup").mkdir(parents=True)
    (tmp_path / "~" / ".cache" / "fastsup" / outcome.name).write_text('{"outcome": "from the current folder"}')
    assert tf_abi._why_self_test_failed() == ""
    assert calls.read_text() == "called\n" * 2


def test_a_context_that_is_replaced(run: Any) -> None:
    program = """
        import tensorflow as tf
        from tensorflow.python.eager import context

        import fastsup

        step = fastsup.function(lambda x: x + 1.0, fallback="raise")
        step(tf.ones([]))
        assert step.lifted
        context._reset_context()
        step = fastsup.function(lambda x: x + 1.0, fallback="silent")
        print(float(step(tf.ones([]))), step.lifted)
    """
    assert run(program) == "2.0 False\n"


def test_the_program_is_told_that_it_waits(cache: Path, python: Any, tf_log: Any) -> None:
    python("report begun; report passed")
    for _ in range(2):
        assert tf_abi._why_self_test_failed() == ""
    (message,) = [text for text in tf_log.messages if "runs a self-test" in text]
    assert "This call waits for it: a few seconds, once." in message


# The self-test passes once a file exists.
BESIDE = """
    import os, sys, time

    import keras
    import numpy as np
    import tensorflow as tf

    import fastsup
    from fastsup.common import isolated_child
    from fastsup.eager import tf_abi

    go, place = os.path.join({folder!r}, "go"), os.path.join({folder!r}, "python")
    open(place, "w").write(
        f"#!/bin/sh\\necho $$ > {folder}/child\\nuntil [ -e {{go}} ]; do sleep 0.02; done\\n"
        f"echo {{tf_abi._build()}} begun; echo {{tf_abi._build()}} passed\\n"
    )
    os.chmod(place, 0o755)
    isolated_child._interpreter = lambda: place

    def wait():
        open(go, "w").close()
        tf_abi._test.join()
"""


@pytest.fixture
def beside(processes: Processes, tmp_path: Path, cache: Path) -> Callable[..., Any]:
    """Runs a program with a self-test that the program lets pass by `wait`."""
    head = textwrap.dedent(BESIDE.format(folder=str(tmp_path)))
    return lambda program, **settings: processes.python("-c", head + textwrap.dedent(program), **settings)


def is_there(folder: Path) -> bool:
    """Whether the child of the self-test lives."""
    child = int((folder / "child").read_text())
    return Path(f"/proc/{child}").exists()


@pytest.mark.first_cases(1)
@pytest.mark.parametrize("fuse", ["never", "auto", "always"])
def test_a_model_does_not_wait_for_the_self_test(beside: Any, tmp_path: Path, cache: Path, fuse: str) -> None:
    program = (
        f"""
        fuse, compiles = {fuse!r}, {fuse != "never"}
    """
        + """
        def accelerated(model):
            return fastsup.keras.accelerate(model, fuse=fuse)

        x = np.random.default_rng(0).random((96, 4)).astype(np.float32)

        def trained(accelerate):
            keras.utils.set_random_seed(3)
            model = accelerate(keras.Sequential([keras.Input([4]), keras.layers.Dropout(0.5), keras.layers.Dense(1)]))
            model.compile("adam", "mse", jit_compile=compiles)
            losses = []
            for part in range(4):
                if accelerate is accelerated:
                    if part == 2:
                        wait()
                    print(tf_abi.is_testing(), end=" ")
                losses += model.fit(x, x[:, :1], epochs=2, verbose=0, batch_size=4).history["loss"]
                if accelerate is accelerated:
                    row = fastsup.keras.report(model)[0]
                    print(row.lifted or row.fused, "self-test" in row.why_not_lifted)
            losses += [weight.tobytes() for weight in model.get_weights()]
            return losses

        assert trained(accelerated) == trained(lambda model: model)
    """
    )
    done = beside(program)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "True False True\nTrue False True\nFalse True False\nFalse True False\n"
    assert done.stderr.count("fastsup runs a self-test") == 1
    assert "TensorFlow runs the steps until the test passes" in done.stderr
    assert "isn't lifted" not in done.stderr
    (outcome,) = cache.iterdir()
    assert json.loads(outcome.read_text()) == {"outcome": ""}
    assert not is_there(tmp_path)


def test_random_sequences_go_on_after_the_self_test(beside: Any) -> None:
    program = """
        def draw():
            return tf.random.uniform([2], seed=3), tf.random.normal([])

        def drawn(make, wait):
            tf.random.set_seed(1)
            step = make(draw)
            found = [step() for _ in range(3)]
            wait()
            found += [step() for _ in range(3)]
            return step, [[value.numpy().tolist() for value in values] for values in found]

        tf_abi.begin_self_test()
        step, found = drawn(fastsup.function, wait)
        print(step.lifted, step.why_not_lifted)
        assert found == drawn(tf.function, lambda: None)[1]
        step, later = drawn(fastsup.function, lambda: None)
        print(step.lifted, found == later)
    """
    done = beside(program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(
        "False TensorFlow ran it during the self-test of this installation, and lifting would"
    )
    assert done.stdout.endswith("\nTrue True\n")


def test_a_function_waits_for_a_test_under_way_if_it_must(beside: Any) -> None:
    program = """
        import threading

        tf_abi.begin_self_test()
        threading.Timer(0.5, wait).start()
        step = fastsup.function(lambda x: x + 1.0, fallback="raise")
        print(tf_abi.is_testing(), float(step(1.0)), step.lifted)
    """
    done = beside(program)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "True 2.0 True\n"


@pytest.mark.first_cases(1)
@pytest.mark.parametrize("passes", [True, False])
def test_the_end_of_a_short_program(beside: Any, tmp_path: Path, cache: Path, passes: bool) -> None:
    """It waits, so that the next program has the verdict. It ends all the same, and leaves no process."""
    program = f"""
        import threading

        tf_abi.END_SECS = 60 if {passes} else 0.5
        tf_abi.begin_self_test()
        while not os.path.exists(os.path.join({str(tmp_path)!r}, "child")):
            time.sleep(0.01)
        if {passes}:
            thread = threading.Timer(1, lambda: open(go, "w").close())
            thread.daemon = True
            thread.start()
        print("done")
    """
    done = beside(program, fresh=True)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert "The program is exiting. It waits for fastsup's self-test" in done.stderr
    assert cache.exists() is passes
    assert not is_there(tmp_path)


def test_a_child_by_fork_has_no_self_test_under_way(beside: Any) -> None:
    program = """
        tf_abi.begin_self_test()
        child = os.fork()
        if child == 0:
            os._exit(3 if tf_abi.is_testing() or tf_abi._test is not None else 4)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4
        assert tf_abi.is_testing()
        wait()
    """
    done = beside(program)
    assert done.returncode == 0, done.stderr
