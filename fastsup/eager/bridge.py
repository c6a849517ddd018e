"""Whether lifted graphs may run in this process: only with versions of TensorFlow that were tried, after a self-test.

The bridge (csrc/eager_session.cc) calls C++ functions of TensorFlow that no interface promises. So it is opened for
versions on a list alone, and before that a process of its own opens it and runs functions. If that process fails or
crashes, this one never opens the bridge, and TensorFlow runs all functions. The outcome is kept, by version and build,
in the user's cache.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import platform
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Any

from tensorflow.python import pywrap_tensorflow
from tensorflow.python.eager import context
from tensorflow.python.framework import config, versions

from fastsup.core.files import write_whole
from fastsup.eager import eager_session, lifted_calls
from fastsup.runtime.fork import fork_reason

__all__ = ["TRIED_VERSIONS", "keep_track", "why_closed", "why_foreign"]

TRIED_VERSIONS = ("2.16", "2.17", "2.18", "2.19", "2.20", "2.21")
SELF_TEST_SECS = 180
_FAILURE_SECS = 24 * 3600
SELF_TEST_PASSED = "fastsup's self-test has passed."

_lock = threading.RLock()
_outcome: str | None = None
_process = os.getpid()
# The lifted steps that there are.
_steps: weakref.WeakSet[Any] = weakref.WeakSet()


def why_closed() -> str:
    """Opens the bridge if that is possible. The first call may run the self-test, which takes some seconds.

    Returns:
      Why no function can be lifted in this process; an empty string if functions can be lifted.
    """
    global _outcome
    with _lock:
        if _outcome is None:
            _outcome = _why_unknown() or _why_self_test_failed() or open_untested()
        return _outcome


def why_foreign() -> str:
    """Why functions that were lifted can't be called at all: an empty string but for children of `os.fork()`."""
    return fork_reason(_process, "lifted")


def keep_track(step: Any) -> None:
    """Lets the end of the program empty a lifted step's boxes.

    Args:
      step: the LiftedStep, or another object with its methods `leave_open` and `empty_boxes`.
    """
    _steps.add(step)


def open_untested() -> str:
    """Opens the bridge without a self-test: for the self-test itself.

    Returns:
      Why it can't be opened; an empty string if it is open.
    """
    try:
        eager_session.open_bridge(_libraries())
    except ImportError as error:
        return str(error)
    context.ensure_initialized()
    here = context.context()
    if here._server_def is not None:
        return "the eager context is connected to a cluster"
    devices = eager_session.share_context(here._handle)
    if devices != 1:
        names = ", ".join(device.name for device in config.list_logical_devices())
        return f"the eager context has {devices} devices ({names}), and functions are lifted on one CPU alone"
    lifted_calls.share(here)
    return ""


def _why_unknown() -> str:
    version = versions.__version__
    if ".".join(version.split(".")[:2]) not in TRIED_VERSIONS:
        return f"TensorFlow {version} isn't one of the versions that were tried: {', '.join(TRIED_VERSIONS)}"
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return f"functions are lifted on Linux for x86-64, not on {sys.platform} for {platform.machine()}"
    return ""


def _folder() -> Path:
    """TensorFlow's folder."""
    return Path(pywrap_tensorflow.__file__).resolve().parent.parent


def _libraries() -> list[str]:
    """The libraries of TensorFlow that may have the symbols."""
    folder = _folder()
    names = ("libtensorflow_cc.so.2", "libtensorflow_framework.so.2", "python/_pywrap_tensorflow_internal.so",
             "python/lib_pywrap_tensorflow_common.so")  # fmt: skip
    return [str(folder / name) for name in names if (folder / name).exists()]


def _why_self_test_failed() -> str:
    place = _outcome_file()
    try:
        outcome = str(json.loads(place.read_text())["outcome"])
        # What has failed may have been the machine.
        if outcome == "" or time.time() < place.stat().st_mtime + _FAILURE_SECS:
            return outcome
    except (OSError, ValueError, KeyError, TypeError):
        pass
    outcome, is_final = _self_test()
    if is_final:
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            write_whole(place, json.dumps({"outcome": outcome}))
        except OSError:
            pass  # The next process tests again.
    return outcome


def _outcome_file() -> Path:
    """The file with the outcome for this version and build."""
    files = [*_libraries(), *map(str, sorted(Path(__file__).parent.glob("*.py"))), eager_session.__file__]
    build = [versions.__version__, versions.__git_version__, sys.version, platform.platform()]
    for name in files:
        status = os.stat(name)
        build += [name, str(status.st_size), str(status.st_mtime_ns)]
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    digest = hashlib.sha256("\n".join(build).encode()).hexdigest()[:20]
    return Path(cache) / "fastsup" / f"eager-{versions.__version__}-{digest}.json"


def _self_test() -> tuple[str, bool]:
    """Runs the self-test in a process of its own. Returns why functions can't be lifted, and whether that is final."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TF_CPP_MIN_LOG_LEVEL": "3"}
    environment.pop("PYTHONWARNINGS", None)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "fastsup.eager.self_test"],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SELF_TEST_SECS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"the self-test hasn't ended within {SELF_TEST_SECS} seconds", False
    except OSError as error:
        return f"the self-test couldn't be started: {error}", False
    if done.returncode == 0 and SELF_TEST_PASSED in done.stdout.decode(errors="replace"):
        return "", True
    said = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
    return f"the self-test has failed (exit code {done.returncode}){': '.join(['', *said])}", True


def _end() -> None:
    """The program ends: no lifted graph runs any more, and iterators and tables in boxes go before their devices."""
    lifted_calls.share(None)
    if why_foreign():
        return
    for step in list(_steps):
        step.leave_open()
        step.empty_boxes()


def _forget() -> None:
    """In a child of `os.fork()`: the runtime's threads aren't there."""
    lifted_calls.share(None)
    for step in list(_steps):
        step.leave_open()


atexit.register(_end)
os.register_at_fork(after_in_child=_forget)
