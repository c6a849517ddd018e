"""Determines if lifted graphs may run in this process: only with tested TensorFlow versions, after a self-test.

The C++ binding (csrc/eager_session.cc) calls C++ functions of TensorFlow that aren't part of a stable interface. It is
therefore opened only for listed versions, after a separate process has opened it and run functions. If that process
fails or crashes, this process never opens the C++ binding, and TensorFlow runs all functions. The test takes a few
seconds. A program that calls `begin_self_test` doesn't wait for it: TensorFlow runs its functions until the test has
passed.

The user's cache keeps a verdict about TensorFlow, by version and build: a success permanently, a failure for a day. If
the self-test can't finish (no memory, a signal, a missing module), the result applies only to this process.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import platform
import re
import signal
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Any

from tensorflow.python import pywrap_tensorflow
from tensorflow.python.eager import context
from tensorflow.python.framework import versions
from tensorflow.python.platform import tf_logging as logging

from fastsup.common import isolated_child
from fastsup.common.errors import is_user_error
from fastsup.common.files import replace_whole
from fastsup.common.interpreter_end import fork_reason
from fastsup.common.versions import unsupported_reason
from fastsup.eager import calls, eager_session

__all__ = ["begin_self_test", "forked_reason", "is_testing", "keep_track", "unavailable_reason"]

SELF_TEST_SECS = 180
# Maximum seconds that the end of a program waits for a self-test. Otherwise a short program would never store a
# verdict.
END_SECS = 15
_FAILURE_SECS = 24 * 3600
# The states of a self-test. BEGUN: all imports succeeded, so a later crash comes from the C++ binding.
BEGUN, PASSED, FAILED = "begun", "passed", "failed"
# Signals that indicate a crash of the C++ binding. Other signals come from a person, a scheduler or a limit.
_CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT)
# The text that C++ prints before it aborts because the process gets no memory or thread.
_EXHAUSTED = re.compile(
    "bad_alloc|pthread_create|[Oo]ut of memory|Cannot allocate memory|Resource temporarily unavailable"
)
# Lines of TensorFlow that aren't errors: log lines, and addresses of a stack.
_NO_ERROR = re.compile(r"WARNING: All log|[IW]\d{4} |\d{4}-\d\d-\d\d \S+ [IW] |\*\*\*| +@ +0x")

_SEE = "See `python -m fastsup docs functions#the-self-test`."

_lock = threading.RLock()
_outcome: str | None = None
_process = os.getpid()
# The existing lifted steps.
_steps: weakref.WeakSet[Any] = weakref.WeakSet()


class _SelfTest(threading.Thread):
    """The self-test, which the program doesn't wait for.

    Attributes:
      outcome: reason why it failed, or "" if it passed. Set when the thread has ended.
    """

    def __init__(self) -> None:
        # The thread is a daemon, because the interpreter waits for other threads before it calls the exit handlers.
        super().__init__(name="fastsup-self-test", daemon=True)
        self.outcome = ""
        self._child: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        try:
            self.outcome = _test_and_keep(self._take_child)
        except BaseException as error:
            self.outcome = f"the self-test couldn't be completed: {type(error).__name__}: {error}"

    def _take_child(self, child: subprocess.Popen[bytes]) -> None:
        self._child = child

    def end(self) -> None:
        """Waits for the test at the end of the program. Kills it if it takes too long."""
        if not self.is_alive():
            return
        logging.warning("The program is exiting. It waits for fastsup's self-test, for at most %d seconds.", END_SECS)
        self.join(END_SECS)
        if self.is_alive() and self._child is not None:
            self._child.kill()
            self.join(END_SECS)


# The self-test that the program doesn't wait for, or None.
_test: _SelfTest | None = None


def begin_self_test() -> None:
    """Starts the self-test in another thread, unless a result is known. See `is_testing`."""
    global _test
    with _lock:
        if _outcome is None and _test is None and not _why_unknown() and _kept_verdict() is None:
            logging.warning(
                "fastsup runs a self-test with this installation of TensorFlow in a child process, for a few seconds, "
                "once. TensorFlow runs the steps until the test passes. %s",
                _SEE,
            )
            test = _SelfTest()
            test.start()
            _test = test


def is_testing() -> bool:
    """Returns True while a self-test that `begin_self_test` started is running."""
    return _outcome is None and _test is not None and _test.is_alive()


def unavailable_reason() -> str:
    """Opens the C++ binding if possible. The first call may run the self-test, or wait for it, for a few seconds.

    Returns:
      Reason why no function can be lifted in this process, or "" if functions can be lifted.
    """
    global _outcome
    test = _test
    if test is not None and _outcome is None:
        # Wait without the lock, because another thread may check whether the test has finished.
        test.join()
    with _lock:
        if _outcome is None:
            failed = _why_unknown() or (_why_self_test_failed() if test is None else test.outcome)
            _outcome = failed or open_untested()
        return _outcome


def forked_reason() -> str:
    """Returns the reason why lifted functions can't be called, which is "" except in children of `os.fork()`."""
    return fork_reason(_process, "lifted")


def keep_track(step: Any) -> None:
    """Makes the end of the program empty a lifted step's slots.

    Args:
      step: the LiftedStep, or another object with its methods `leave_open` and `release_all`.
    """
    _steps.add(step)


def open_untested() -> str:
    """Opens the C++ binding without a self-test, for the self-test itself.

    Returns:
      Reason why it can't be opened, or "" if it is open.
    """
    try:
        eager_session.open_binding(_libraries())
    except ImportError as error:
        return str(error)
    context.ensure_initialized()
    here = context.context()
    if here._server_def is not None:
        return "the eager context is connected to a cluster"
    eager_session.share_context(here._handle)
    calls.share(here)
    return ""


def _why_unknown() -> str:
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return f"functions are lifted on Linux for x86-64, not on {sys.platform} for {platform.machine()}"
    return unsupported_reason(versions.__version__)


def _folder() -> Path:
    """Returns TensorFlow's folder."""
    return Path(pywrap_tensorflow.__file__).resolve().parent.parent


def _libraries() -> list[str]:
    """Returns TensorFlow's libraries that may have the symbols."""
    folder = _folder()
    names = ("libtensorflow_cc.so.2", "libtensorflow_framework.so.2", "python/_pywrap_tensorflow_internal.so",
             "python/lib_pywrap_tensorflow_common.so")  # fmt: skip
    return [str(folder / name) for name in names if (folder / name).exists()]


def _kept_verdict() -> str | None:
    """Returns the verdict of an earlier process, or None if there is none or it is outdated."""
    place = _outcome_file()
    if place is not None:
        try:
            outcome = str(json.loads(place.read_text())["outcome"])
            # The machine may have caused the failure.
            if outcome == "" or time.time() < place.stat().st_mtime + _FAILURE_SECS:
                return outcome
        except (OSError, ValueError, KeyError, TypeError):
            pass
    return None


def _why_self_test_failed() -> str:
    kept = _kept_verdict()
    if kept is not None:
        return kept
    logging.warning(
        "fastsup runs a self-test with this installation of TensorFlow in a child process. This call waits for it: a "
        "few seconds, once. %s",
        _SEE,
    )
    return _test_and_keep()


def _test_and_keep(started: Any = None) -> str:
    """Runs the self-test, and stores a verdict for later processes. Returns the reason why it failed, or ""."""
    place = _outcome_file()
    outcome, is_verdict = _self_test(started)
    if is_verdict and place is not None:
        if outcome:
            outcome = f"{outcome.rstrip('.')}. It isn't repeated for a day, unless you delete {place}"
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            replace_whole(place, json.dumps({"outcome": outcome}))
        except OSError as error:
            logging.warning(
                "fastsup can't store the result of the self-test: %s. Each process will test again. Set "
                "XDG_CACHE_HOME to a writable folder. %s",
                error,
                _SEE,
            )
    return outcome


def _build() -> str:
    """Returns a name for this build of TensorFlow, fastsup and Python, as imported in this process."""
    files = [*_libraries(), *map(str, sorted(Path(__file__).parent.glob("*.py"))), eager_session.__file__]
    build = [versions.__version__, versions.__git_version__, sys.version, platform.platform()]
    for name in files:
        status = os.stat(name)
        build += [name, str(status.st_size), str(status.st_mtime_ns)]
    digest = hashlib.sha256("\n".join(build).encode()).hexdigest()[:20]
    return f"eager-{versions.__version__}-{digest}"


def _outcome_file() -> Path | None:
    """Returns the file with the outcome for this build, or None if the user has no folder for it."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(cache):  # The specification says that relative paths are ignored.
        cache = os.path.join(os.path.expanduser("~"), ".cache")
    # If a user has no home, never use the current folder, where anyone may have put an outcome.
    return Path(cache, "fastsup", f"{_build()}.json") if os.path.isabs(cache) else None


def report(state: str, reason: str = "") -> None:
    """Reports the progress to the process that started this self-test.

    Args:
      state: BEGUN, PASSED or FAILED.
      reason: reason for a failure.
    """
    print(_build(), state, " ".join(reason.split()), flush=True)


def _self_test(started: Any = None) -> tuple[str, bool]:
    """Runs the self-test in its own process. Returns the reason of a failure, and True if TensorFlow is at fault."""
    try:
        done = isolated_child.run("fastsup.eager.self_test", SELF_TEST_SECS, started, TF_CPP_MIN_LOG_LEVEL="3")
    except subprocess.TimeoutExpired:
        return f"the self-test didn't finish within {SELF_TEST_SECS} seconds", False
    except (OSError, TypeError, ValueError) as error:  # Also caused by entries that a program added to sys.modules.
        if is_user_error(error):
            raise
        return f"the self-test couldn't be started: {error}", False
    # A report about another build comes from a child that found other files.
    lines = [line.split(maxsplit=2) for line in done.stdout.decode(errors="replace").splitlines()]
    reports = {words[1]: words[2:] for words in lines if len(words) > 1 and words[0] == _build()}
    if done.returncode == 0 and PASSED in reports:
        return "", True
    if FAILED in reports:
        return f"the self-test failed: {' '.join(reports[FAILED])}", True
    errors = done.stderr.decode(errors="replace")
    end = f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
    last = [line for line in errors.strip().splitlines() if not _NO_ERROR.match(line)][-1:]
    how = ": ".join([f"({end})", *last])
    if BEGUN in reports and -done.returncode in _CRASHES and not _EXHAUSTED.search(errors):
        return f"the self-test failed {how}", True
    return f"the self-test couldn't be completed {how}", False


def _end() -> None:
    """Prepares the exit. Lifted graphs no longer run, and iterators and tables in slots are deleted before devices."""
    calls.share(None)
    if forked_reason():
        return
    if _test is not None:
        _test.end()
    for step in list(_steps):
        step.leave_open()
        step.release_all()


def _forget() -> None:
    """Resets the state in a child of `os.fork()`, which lacks the threads of the runtime and of a self-test."""
    global _lock, _test
    _lock, _test = threading.RLock(), None
    calls.share(None)
    for step in list(_steps):
        step.leave_open()


atexit.register(_end)
os.register_at_fork(after_in_child=_forget)
