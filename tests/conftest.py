"""One test body, two implementations: the `impl` fixture runs a test on TensorFlow's own classes and on ours.

TensorFlow's behaviour is a switch of the whole process, so the suite runs in one world at a time:
`FASTSUP_TEST_WORLD=v1` runs it under `disable_v2_behavior()`, anything else under TF 2 behaviour inside a Graph.

So are the devices, which `FASTSUP_TEST_DEVICES` names: `tests/support/devices.py` has what it may be.
"""

from __future__ import annotations

import gc
import importlib.util
import logging
import os
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
# Several processes of the tests may be on one GPU.
os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")

import pytest

pytest_plugins = ["processes", "devices"]

WORLD = os.environ.get("FASTSUP_TEST_WORLD", "v2")


# Suites that start processes, compile, or try many cases. The default has the first test of each of their files.
SLOW_SUITES = (
    "benchmarks/", "tests/compat/test_programs.py", "tests/compat/test_run.py", "tests/embed/", "tests/ends/",
    "tests/examples/test_examples.py", "tests/examples/test_training_programs.py", "tests/examples/test_tutorials.py",
    "tests/faults/", "tests/fuzz/", "tests/gpu/", "tests/integrations/", "tests/keras/test_random_programs.py",
    "tests/train/test_signals.py",
)  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell starts what it runs in the background so, and every process of the tests would inherit it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if WORLD == "v1":
        import tensorflow as tf

        tf.compat.v1.disable_v2_behavior()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if WORLD == "v1":
        left_out = [item for item in items if item.get_closest_marker("one_world")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    root, seen = Path(__file__).parents[1], set()
    cases: Counter[tuple[Path, Any]] = Counter()
    for item in items:
        if item.path.is_relative_to(root) and str(item.path.relative_to(root)).startswith(SLOW_SUITES):
            if item.path in seen:
                item.add_marker(pytest.mark.slow)
            seen.add(item.path)
        if (first_cases := item.get_closest_marker("first_cases")) is not None:
            cases[item.path, item.originalname] += 1
            if cases[item.path, item.originalname] > first_cases.args[0]:
                item.add_marker(pytest.mark.slow)
        if getattr(item, "callspec", None) and item.callspec.params.get("impl") == "tensorflow":
            item.add_marker(pytest.mark.reference)
    _mark_off_diagonal(items)


def _mark_off_diagonal(items: list[pytest.Item]) -> None:
    """Makes the cases of tests marked `diagonal` slow, except a few that have each value of the two parameters."""
    tests: dict[Any, list[Any]] = {}
    for item in items:
        if item.get_closest_marker("diagonal") is not None:
            tests.setdefault((item.path, item.originalname), []).append(item)
    for cases in tests.values():
        sizes = {name: 1 + max(case.callspec.indices[name] for case in cases) for name in cases[0].callspec.indices}
        shorter, longer = sorted(sizes, key=sizes.__getitem__)
        for case in cases:
            place = case.callspec.indices
            if place[longer] % sizes[shorter] != place[shorter]:
                case.add_marker(pytest.mark.slow)


# Suites with functions and models that are to be lifted from the first call on, some of them in other processes.
LIFTED_SUITES = (
    "tests/eager/", "tests/examples/", "tests/gpu/", "tests/keras/", "tests/loop/", "tests/steps/",
    "tests/test_pages.py", "tests/website/",
)  # fmt: skip


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    root = Path(__file__).parents[1]
    paths = {str(item.path.relative_to(root)) for item in session.items if item.path.is_relative_to(root)}
    if any(path.startswith(LIFTED_SUITES) for path in paths):
        from fastsup.eager import tf_abi

        # In a new installation, a model doesn't wait for it.
        tf_abi._why_self_test_failed()
    # What the imports have made stays until the end: the garbage collector need not look at it again and again.
    gc.collect()
    gc.freeze()


def pytest_report_header(config: pytest.Config) -> list[str]:
    import fastsup

    return [f"fastsup: {fastsup.__file__}", f"TensorFlow behaviour: {WORLD}"]


@pytest.fixture
def new_cluster(processes: Any) -> Callable[..., Any]:
    """Makes a `Cluster` of processes: see tests/cluster/harness.py. The program is named, and is in that folder."""
    folder = Path(__file__).with_name("cluster")
    spec = importlib.util.spec_from_file_location("cluster_harness", folder / "harness.py")
    assert spec is not None
    assert spec.loader is not None
    harness = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(harness)
    start = processes.start_python
    return lambda place, program, tasks, **settings: harness.Cluster(place, folder / program, tasks, start, **settings)


def implementation(name: str) -> Any:
    """The session layer of TensorFlow or of fastsup, under the same names: `.name`, `.Session`, `.train`."""
    import tensorflow as tf

    if name == "tensorflow":
        return SimpleNamespace(name=name, Session=tf.compat.v1.Session, train=tf.compat.v1.train)
    import fastsup

    return SimpleNamespace(name=name, Session=fastsup.Session, train=fastsup.train)


@pytest.fixture(params=["tensorflow", "fastsup"])
def impl(request: pytest.FixtureRequest) -> Any:
    return implementation(request.param)


@pytest.fixture
def both() -> Any:
    """Both implementations, for tests that compare what the two do with the same program."""
    return SimpleNamespace(tensorflow=implementation("tensorflow"), fastsup=implementation("fastsup"))


@pytest.fixture
def graph() -> Any:
    """A fresh default graph."""
    import tensorflow as tf

    with tf.Graph().as_default() as graph:
        yield graph


# What is estimated for the callable of a fetch that runs one operation.
SMALLEST_CALLABLE = 30 << 10


@pytest.fixture
def room_for(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sessions made after `room_for(n)` have room for n callables that run one operation each, and for some plans."""

    def limit(callables: float, plans: int = 1000) -> None:
        size = int(callables * SMALLEST_CALLABLE)
        monkeypatch.setattr("fastsup.runtime.session._MAX_PLAN_BYTES", size)
        monkeypatch.setattr("fastsup.runtime.plans.PLAN_BYTES", max(size // 2 // plans, 1))

    return limit


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The options of each callable that is compiled, in their order."""
    from tensorflow.python.client import pywrap_tf_session

    made: list[bytes] = []
    new_buffer, make = pywrap_tf_session.TF_NewBufferFromString, pywrap_tf_session.TF_SessionMakeCallable
    options: list[bytes] = []
    monkeypatch.setattr(
        pywrap_tf_session, "TF_NewBufferFromString", lambda text: options.append(text) or new_buffer(text)
    )
    monkeypatch.setattr(
        pywrap_tf_session, "TF_SessionMakeCallable", lambda *args: made.append(options[-1]) or make(*args)
    )
    return made


def _is_no_choice_of_executor(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith("Executor of run(")


@pytest.fixture
def tf_log(caplog: pytest.LogCaptureFixture) -> Any:
    """Captures what TensorFlow's logger says at INFO and above: `tf_log.messages`, `tf_log.records`.

    But for the choice of an executor: which steps get to it, and which one is chosen, depends on the machine.
    """
    caplog.handler.addFilter(_is_no_choice_of_executor)
    logger = logging.getLogger("tensorflow")
    propagate, level = logger.propagate, logger.level
    logger.propagate = True
    with caplog.at_level(logging.INFO, logger="tensorflow"):
        yield caplog
    caplog.handler.removeFilter(_is_no_choice_of_executor)
    logger.propagate = propagate
    logger.setLevel(level)


# "I0000 00:00:1795455928.053645   30022 cudart_stub.cc:31] Could not find cuda drivers on your machine", and the
# warning that goes with the first of these lines.
_CPP_LOG = re.compile(
    r"^(WARNING: All log messages before absl::InitializeLog|[IWE]\d{4} [\d:.]+ +\d+ \S+:\d+\] ).*\n?", re.MULTILINE
)


@pytest.fixture(scope="session")
def without_cpp_log() -> Callable[[str], str]:
    """Takes the lines out of a text that TensorFlow's builds for GPUs write to stderr where there is no GPU."""
    return lambda text: _CPP_LOG.sub("", text)


@pytest.fixture
def wait_for() -> Callable[..., Any]:
    """Waits until a condition holds, and gives its value: wait_for(condition, secs=30)."""

    def wait(condition: Callable[[], Any], secs: float = 30) -> Any:
        end = time.monotonic() + secs
        while not (value := condition()):
            assert time.monotonic() < end, f"not within {secs} seconds"
            time.sleep(0.005)
        return value

    return wait


@pytest.fixture
def no_thread_left() -> Iterator[None]:
    """Fails if a thread outlives the test."""
    import tensorflow as tf

    before = set(threading.enumerate())
    yield
    tf.compat.v1.summary.FileWriterCache.clear()
    for thread in set(threading.enumerate()) - before:
        if isinstance(thread, threading._DummyThread):
            continue  # A thread of the runtime's pool, in which a py_func has run. It stays.
        thread.join(60)
        assert not thread.is_alive(), f"{thread} outlived its test"


@pytest.fixture(autouse=True, scope="session")
def _elsewhere_than_in_the_sources(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A child process imports from the folder where it is started: it must find the package that is installed."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
        yield


@pytest.fixture(autouse=True)
def _no_shared_writers() -> Any:
    """The FileWriterCache is global: what one test left in it would be used by the next."""
    yield
    import sys

    if "tensorflow" in sys.modules:
        import tensorflow as tf

        tf.compat.v1.summary.FileWriterCache.clear()
