"""PrometheusHook: how training goes on, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fastsup.loop.measuring_hook import METRICS, RESULT, MeasuringHook, Metric, check_labels
from fastsup.loop.numbers import Values
from fastsup.loop.shown_hooks import ShownHooks, kept_by

__all__ = ["PrometheusHook"]


class PrometheusHook(MeasuringHook):
    """Tells Prometheus how training goes on: steps, steps per second, the loss, the age of the newest checkpoint.

    The package prometheus_client asks for the measurements when they are collected, in its own thread: a step pays
    nothing. The program starts that, with `prometheus_client.start_http_server(8000)`, or pushes to a gateway.

    The metrics have the names `fastsup_global_step`, `fastsup_steps_total`, `fastsup_steps_per_second`,
    `fastsup_last_step_timestamp_seconds`, `fastsup_last_checkpoint_timestamp_seconds`, `fastsup_restarts_total`,
    `fastsup_running`, and `fastsup_result` with the label `name`.

    Args:
      labels: dictionary of labels that all metrics of this hook get, such as `{"job": "digits", "task": "worker-1"}`.
        Of hooks with the same labels, the one that began last is shown.
      registry: `prometheus_client.CollectorRegistry`; None for `prometheus_client.REGISTRY`.
      every_secs: seconds between two measurements.
      values: function that takes the result of a step and returns a number, which is named "loss", or a mapping of
        names to numbers. None to take the result if it is such itself. In a session, the hook's `fetches` say what the
        result is.
      checkpoint_dir: directory of the checkpoints, whose state file tells the age of the newest one; None to leave
        that out.

    Raises:
      ImportError: prometheus_client isn't installed.
      ValueError: `every_secs` isn't positive, or a label has no valid name.
      TypeError: an argument is of the wrong type.
    """

    def __init__(
        self,
        labels: Mapping[str, str] | None = None,
        registry: Any = None,
        every_secs: float = 10,
        values: Values | None = None,
        checkpoint_dir: Any = None,
    ) -> None:
        super().__init__(every_secs, values, checkpoint_dir)
        try:
            import prometheus_client
        except ImportError as error:
            raise ImportError(
                "PrometheusHook needs the package prometheus_client: pip install 'fastsup[prometheus]'."
            ) from error
        self._registry = prometheus_client.REGISTRY if registry is None else registry
        if not callable(getattr(self._registry, "register", None)):
            raise TypeError(f"registry must be a prometheus_client.CollectorRegistry, or None; got {registry!r}.")
        self._labels = check_labels("labels", labels)

    def begin(self, loop: Any) -> None:
        super().begin(loop)
        kept_by(self._registry, lambda: _registered(self._registry)).hooks.show(self._labels, self)


class _Collector:
    """What a registry asks for the measurements of all hooks: it takes each name of a metric once."""

    def __init__(self) -> None:
        self.hooks = ShownHooks()

    def describe(self) -> list[Any]:
        """The metrics without a sample: registries ask which names there are."""
        return [_family(metric, []) for metric in (*METRICS, RESULT)]

    def collect(self) -> Iterator[Any]:
        """The metrics, with a sample for each hook."""
        hooks = list(self.hooks)
        measured = [(labels, hook.measurements()) for labels, hook in hooks]
        for metric in METRICS:
            samples = [(labels, numbers[metric.words]) for labels, numbers in measured if metric.words in numbers]
            yield _family(metric, samples)
        numbers_of = [(labels, hook.result_numbers()) for labels, hook in hooks]
        results = [({**labels, "name": name}, value) for labels, found in numbers_of for name, value in found.items()]
        yield _family(RESULT, results)


def _family(metric: Metric, samples: list[tuple[dict[str, str], float]]) -> Any:
    from prometheus_client.core import Metric as Family

    unit = f"_{metric.unit}" if metric.unit else ""
    name = f"fastsup_{metric.words.replace(' ', '_')}{unit}"
    family = Family(name, metric.help, "counter" if metric.counts else "gauge")
    for labels, value in samples:
        family.add_sample(f"{name}_total" if metric.counts else name, labels, value)
    return family


def _registered(registry: Any) -> _Collector:
    collector = _Collector()
    registry.register(collector)
    return collector
