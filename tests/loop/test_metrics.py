"""PrometheusHook and OpenTelemetryHook: what a monitoring system reads while a loop trains, and after it."""

from __future__ import annotations

import gc
import sys
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from opentelemetry.metrics import get_meter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from fastsup.loop import Hook, OpenTelemetryHook, PrometheusHook, StepLoop

Read = Callable[[], dict[Any, float]]
OFTEN = 1e-9


class Prometheus:
    """Makes hooks of one registry, and reads it as Prometheus does."""

    missing = "prometheus_client"
    make = PrometheusHook
    names: ClassVar[dict[str, str]] = {
        "global_step": "fastsup_global_step",
        "steps": "fastsup_steps_total",
        "steps_per_second": "fastsup_steps_per_second",
        "last_step_timestamp": "fastsup_last_step_timestamp_seconds",
        "last_checkpoint_timestamp": "fastsup_last_checkpoint_timestamp_seconds",
        "restarts": "fastsup_restarts_total",
        "running": "fastsup_running",
        "result": "fastsup_result",
    }

    def __init__(self) -> None:
        self._registry = CollectorRegistry(auto_describe=True)

    def hook(self, labels: Any = None, **kwargs: Any) -> Any:
        return PrometheusHook(labels, self._registry, **{"every_secs": OFTEN, **kwargs})

    def read(self) -> dict[Any, float]:
        families = text_string_to_metric_families(generate_latest(self._registry).decode())
        return {
            (sample.name, *sorted(sample.labels.items())): sample.value for one in families for sample in one.samples
        }


class OpenTelemetry:
    """Makes hooks of one meter, and reads it as an exporter does."""

    missing = "opentelemetry"
    make = OpenTelemetryHook
    names: ClassVar[dict[str, str]] = {name: f"fastsup.{name}" for name in Prometheus.names}

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self._provider = MeterProvider([self._reader])
        self._meter = self._provider.get_meter("test")

    def hook(self, labels: Any = None, **kwargs: Any) -> Any:
        return OpenTelemetryHook(labels, self._meter, **{"every_secs": OFTEN, **kwargs})

    def read(self) -> dict[Any, float]:
        data = self._reader.get_metrics_data()
        metrics = [
            metric
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
        ]
        return {
            (metric.name, *sorted(point.attributes.items())): point.value
            for metric in metrics
            for point in metric.data.data_points
        }


@pytest.fixture(params=[Prometheus, OpenTelemetry])
def system(request: pytest.FixtureRequest) -> Any:
    return request.param()


def test_what_is_read_while_a_loop_trains_and_after_it(system: Any, tmp_path: Path) -> None:
    names = system.names
    seen: list[dict[Any, float]] = []
    secs: list[float] = []

    class Reader(Hook):
        def begin(self, loop: Any) -> None:
            self.due_every_run()

        def after_step(self, loop: Any, value: Any) -> None:
            secs.append(time.perf_counter() - started)
            seen.append(system.read())

    def step() -> dict[str, Any]:
        time.sleep(0.01)
        return {"loss": np.float32(0.5), "rate": 2}

    hook = system.hook(checkpoint_dir=tmp_path)
    began, started = time.time(), time.perf_counter()
    StepLoop(step, [hook, Reader()], max_steps=3).run()
    assert [found[(names["global_step"],)] for found in seen] == [1, 2, 3]
    assert [found[(names["steps"],)] for found in seen] == [1, 2, 3]
    assert [found[(names["running"],)] for found in seen] == [1, 1, 1]
    assert [found[(names["restarts"],)] for found in seen] == [0, 0, 0]
    # A step has taken as long as it sleeps at least, and at most what has passed since the start.
    assert all(
        1 / passed <= found[(names["steps_per_second"],)] <= 100 for passed, found in zip(secs, seen, strict=True)
    )
    assert all(began <= found[(names["last_step_timestamp"],)] <= time.time() for found in seen)
    assert seen[0][(names["result"], ("name", "loss"))] == 0.5
    assert seen[0][(names["result"], ("name", "rate"))] == 2
    assert (names["last_checkpoint_timestamp"],) not in seen[0]
    (tmp_path / "checkpoint").write_text("")
    after = system.read()
    assert after[(names["running"],)] == 0
    assert after[(names["steps"],)] == 3
    assert began - 1 <= after[(names["last_checkpoint_timestamp"],)] <= time.time()


def test_a_loop_that_is_measured_now_and_then(system: Any) -> None:
    StepLoop(lambda: 1.0, [system.hook(every_secs=3_600)], max_steps=100).run()
    found = system.read()
    # At the end, whatever the interval.
    assert found[(system.names["global_step"],)] == 100
    assert found[(system.names["steps"],)] == 100
    assert found[(system.names["result"], ("name", "loss"))] == 1


def test_a_start_after_an_error_is_counted(system: Any) -> None:
    steps = iter(range(5))

    def step() -> int:
        number = next(steps)
        if number == 2:
            raise ValueError("a failure")
        return number

    hook = system.hook()
    with pytest.raises(ValueError, match="a failure"):
        StepLoop(step, [hook]).run()
    found = system.read()
    assert found[(system.names["running"],)] == 0
    assert found[(system.names["restarts"],)] == 0
    StepLoop(step, [hook], max_steps=2).run()
    found = system.read()
    assert found[(system.names["restarts"],)] == 1
    # Of both loops.
    assert found[(system.names["steps"],)] == 4
    assert found[(system.names["global_step"],)] == 2


def test_hooks_have_labels(system: Any) -> None:
    for name in ("train", "eval", "train"):
        hook = system.hook({"mode": name})
        StepLoop(lambda: 1.0, [hook], max_steps=2 if name == "train" else 3).run()
    found = system.read()
    assert found[(system.names["global_step"], ("mode", "train"))] == 2
    assert found[(system.names["global_step"], ("mode", "eval"))] == 3
    assert found[(system.names["result"], ("mode", "eval"), ("name", "loss"))] == 1
    # The hook that began last is the one that is shown.
    assert found[(system.names["steps"], ("mode", "train"))] == 2


@pytest.mark.parametrize("result", [None, "text", object()])
def test_a_result_that_is_no_number(system: Any, result: Any) -> None:
    StepLoop(lambda: result, [system.hook()], max_steps=2).run()
    assert system.read()[(system.names["global_step"],)] == 2
    with pytest.raises(TypeError, match="must return a number or a mapping"):
        StepLoop(lambda: result, [system.hook(values=lambda value: value)], max_steps=2).run()


def test_the_numbers_of_a_result_are_chosen(system: Any) -> None:
    StepLoop(lambda: (1.0, 2.0), [system.hook(values=lambda value: {"second": value[1]})], max_steps=2).run()
    assert system.read()[(system.names["result"], ("name", "second"))] == 2


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"every_secs": 0}, ValueError, "every_secs must be positive"),
        ({"every_secs": "1"}, TypeError, "every_secs"),
        ({"labels": ["x"]}, TypeError, "must be a dictionary from label names to strings, or None; got"),
        ({"labels": {"x": 1}}, TypeError, "must be a dictionary from label names to strings, or None; got"),
        ({"labels": {"my-label": "x"}}, ValueError, "must have names of letters, digits and underscores"),
        (
            {"labels": {"name": "x"}},
            ValueError,
            "must have names of letters, digits and underscores, except 'name'",
        ),
        ({"values": 3}, TypeError, "values must be a function"),
        ({"checkpoint_dir": 3}, TypeError, "os.PathLike"),
    ],
)
def test_arguments_that_are_wrong(system: Any, arguments: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        system.hook(**arguments)


def test_numbers_among_other_results(system: Any) -> None:
    StepLoop(lambda: {"loss": 1.0, "text": "12", "array": np.zeros(2)}, [system.hook()], max_steps=2).run()
    assert [key for key in system.read() if key[0] == system.names["result"]] == [
        (system.names["result"], ("name", "loss"))
    ]


def test_a_counter_never_falls(system: Any) -> None:
    """One hook in two loops at once."""
    hook = system.hook()
    seen: list[float] = []

    def step() -> None:
        StepLoop(lambda: None, [hook], max_steps=3).run()
        seen.append(system.read()[(system.names["steps"],)])

    StepLoop(step, [hook], max_steps=4).run()
    assert seen == sorted(seen)


def test_a_registry_goes_with_its_hooks() -> None:
    registry = CollectorRegistry()
    StepLoop(lambda: 1.0, [PrometheusHook(registry=registry)], max_steps=2).run()
    assert b"fastsup_steps_total 2.0" in generate_latest(registry.restricted_registry(["fastsup_steps_total"]))
    reference = weakref.ref(registry)
    del registry
    gc.collect()
    assert reference() is None


def test_registries_and_meters_that_are_none() -> None:
    with pytest.raises(TypeError, match=r"registry must be a prometheus_client.CollectorRegistry, or None; got 3"):
        PrometheusHook(registry=3)
    with pytest.raises(TypeError, match=r"meter must be an opentelemetry.metrics.Meter, or None; got 3"):
        OpenTelemetryHook(meter=3)


@pytest.mark.parametrize("system", [Prometheus, OpenTelemetry])
def test_without_its_package(system: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, system.missing, None)
    with pytest.raises(ImportError, match=r"pip install 'fastsup\[(prometheus|opentelemetry)\]'"):
        system.make()


def test_the_defaults_are_those_of_the_packages() -> None:
    import prometheus_client

    StepLoop(lambda: 1.0, [PrometheusHook({"of": "test"}), OpenTelemetryHook()], max_steps=2).run()
    # The global provider exports to nothing, and takes each instrument once.
    assert OpenTelemetryHook().measurements() == {}
    StepLoop(lambda: 1.0, [OpenTelemetryHook(meter=get_meter("other"))], max_steps=2).run()
    assert prometheus_client.REGISTRY.get_sample_value("fastsup_steps_total", {"of": "test"}) == 2
