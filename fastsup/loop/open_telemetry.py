"""OpenTelemetryHook: how training goes on, for what OpenTelemetry exports to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fastsup.loop.measuring_hook import METRICS, RESULT, MeasuringHook, check_labels
from fastsup.loop.numbers import Values
from fastsup.loop.shown_hooks import ShownHooks, kept_by

__all__ = ["OpenTelemetryHook"]


class OpenTelemetryHook(MeasuringHook):
    """Tells OpenTelemetry how training goes on: steps, steps per second, the loss, the age of the newest checkpoint.

    The instruments are observable ones: OpenTelemetry asks for the measurements when it exports, in a thread of its
    own, and a step pays nothing. The program sets the exporter up, as for any program.

    The instruments have the names `fastsup.global_step`, `fastsup.steps`, `fastsup.steps_per_second`,
    `fastsup.last_step_timestamp`, `fastsup.last_checkpoint_timestamp`, `fastsup.restarts`, `fastsup.running`, and
    `fastsup.result` with the attribute `name`.

    Args:
      attributes: dictionary of attributes that all measurements of this hook get. Of hooks with the same ones, the one
        that began last is shown.
      meter: `opentelemetry.metrics.Meter`; None for one of the global provider, with the name "fastsup".
      every_secs, values, checkpoint_dir: as for `PrometheusHook`.

    Raises:
      ImportError: opentelemetry-api isn't installed.
      ValueError: `every_secs` isn't positive, or an attribute has no valid name.
      TypeError: an argument is of the wrong type.
    """

    def __init__(
        self,
        attributes: Mapping[str, str] | None = None,
        meter: Any = None,
        every_secs: float = 10,
        values: Values | None = None,
        checkpoint_dir: Any = None,
    ) -> None:
        super().__init__(every_secs, values, checkpoint_dir)
        try:
            from opentelemetry import metrics
        except ImportError as error:
            raise ImportError(
                "OpenTelemetryHook needs the package opentelemetry-api: pip install 'fastsup[opentelemetry]'."
            ) from error
        if meter is not None and not isinstance(meter, metrics.Meter):
            raise TypeError(f"meter must be an opentelemetry.metrics.Meter, or None; got {meter!r}.")
        # Each call of `get_meter` may return another object: the module stands for the meter of the global provider.
        self._owner: Any = metrics if meter is None else meter
        self._meter: Any = metrics.get_meter("fastsup") if meter is None else meter
        self._attributes = check_labels("attributes", attributes)

    def begin(self, loop: Any) -> None:
        super().begin(loop)
        kept_by(self._owner, lambda: _Instruments(self._meter)).hooks.show(self._attributes, self)


class _Instruments:
    """The instruments of a meter, for all hooks: a meter has each once.

    Args:
      meter: the meter.
    """

    def __init__(self, meter: Any) -> None:
        self.hooks = ShownHooks()
        for metric in METRICS:
            make = meter.create_observable_counter if metric.counts else meter.create_observable_gauge
            name = f"fastsup.{metric.words.replace(' ', '_')}"
            make(name, [self._callback(metric.words)], "s" if metric.unit else "1", metric.help)
        meter.create_observable_gauge("fastsup.result", [self._results], "1", RESULT.help)

    def _callback(self, words: str) -> Callable[[Any], Iterator[Any]]:
        def observe(options: Any) -> Iterator[Any]:
            from opentelemetry.metrics import Observation

            for attributes, hook in self.hooks:
                measured = hook.measurements()
                if words in measured:
                    yield Observation(measured[words], attributes)

        return observe

    def _results(self, options: Any) -> Iterator[Any]:
        from opentelemetry.metrics import Observation

        for attributes, hook in self.hooks:
            for name, value in hook.result_numbers().items():
                yield Observation(value, {**attributes, "name": name})
