"""OpenTelemetryHook: how training goes on, for what OpenTelemetry exports to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fastsup.loop.measuring_hook import METRICS, RESULT, MeasuringHook, check_labels
from fastsup.loop.numbers import Values

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
        self._meter = meter
        self._attributes = check_labels("attributes", attributes)

    def begin(self, loop: Any) -> None:
        super().begin(loop)
        _instruments_of(self._meter).show(self._attributes, self)


class _Instruments:
    """The instruments of a meter, for all hooks: a meter has each once.

    Args:
      meter: the meter.
    """

    def __init__(self, meter: Any) -> None:
        self._hooks: dict[frozenset[tuple[str, str]], MeasuringHook] = {}
        for metric in METRICS:
            make = meter.create_observable_counter if metric.counts else meter.create_observable_gauge
            name = f"fastsup.{metric.words.replace(' ', '_')}"
            make(name, [self._callback(metric.words)], "s" if metric.unit else "1", metric.help)
        meter.create_observable_gauge("fastsup.result", [self._results], "1", RESULT.help)

    def show(self, attributes: dict[str, str], hook: MeasuringHook) -> None:
        """Shows the measurements of a hook from now on, in place of those of another one with the same attributes."""
        self._hooks = {**self._hooks, frozenset(attributes.items()): hook}

    def _callback(self, words: str) -> Callable[[Any], Iterator[Any]]:
        def observe(options: Any) -> Iterator[Any]:
            from opentelemetry.metrics import Observation

            for attributes, hook in self._hooks.items():
                measured = hook.measurements()
                if words in measured:
                    yield Observation(measured[words], dict(attributes))

        return observe

    def _results(self, options: Any) -> Iterator[Any]:
        from opentelemetry.metrics import Observation

        for attributes, hook in self._hooks.items():
            for name, value in hook.result_numbers().items():
                yield Observation(value, {**dict(attributes), "name": name})


# The attribute of a meter that has its instruments: both go together.
_INSTRUMENTS = "_fastsup_instruments"
_of_global_meter: list[_Instruments] = []
_lock = threading.Lock()


def _instruments_of(meter: Any) -> _Instruments:
    """The instruments of a meter. None stands for that of the global provider, which may be a new object each time."""
    with _lock:
        if meter is None:
            from opentelemetry import metrics

            if not _of_global_meter:
                _of_global_meter.append(_Instruments(metrics.get_meter("fastsup")))
            return _of_global_meter[0]
        found: _Instruments | None = vars(meter).get(_INSTRUMENTS)
        if found is None:
            found = _Instruments(meter)
            setattr(meter, _INSTRUMENTS, found)
        return found
