"""Hooks that report training metrics to summaries, Prometheus or OpenTelemetry."""

from __future__ import annotations

import contextlib
import math
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from fastsup.common.errors import writing_files
from fastsup.common.results import each_result
from fastsup.core.checks import suggest_keywords
from fastsup.core.clock import now, steady
from fastsup.loop.periodic import PeriodicHook, due_in

__all__ = [
    "METRICS",
    "RESULT",
    "MeasuringHook",
    "Metric",
    "OpenTelemetryHook",
    "PrometheusHook",
    "ShownHooks",
    "check_labels",
    "kept_by",
]

Values = Callable[[Any], Any]


@suggest_keywords
def named_numbers(result: Any, default_name: str = "loss") -> dict[str, float]:
    """Returns the numbers in a result, by name.

    Args:
      result: a number, or a mapping from names to numbers. A number is anything that `float` accepts: a Python or NumPy
        number, or a tensor or array with one element.
      default_name: name for a number without a name.

    Returns:
      Dictionary of names to floats.

    Raises:
      TypeError: If `result` is another kind of object.
    """
    items = result.items() if isinstance(result, Mapping) else [(default_name, result)]
    return {str(name): _number(name, value) for name, value in items}


def numbers_in(result: Any) -> dict[str, float]:
    """Returns the numbers in a result by name, like `named_numbers`, and ignores everything else.

    Args:
      result: anything.
    """
    items = result.items() if isinstance(result, Mapping) else [("loss", result)]
    found = {}
    for name, value in items:
        if not isinstance(value, str | bytes):
            with contextlib.suppress(TypeError):
                found.update(named_numbers({name: value}))
    return found


def _number(name: Any, value: Any) -> float:
    if hasattr(value, "detach"):
        value = value.detach()  # PyTorch warns about converting a tensor that requires a gradient.
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    except (TypeError, ValueError) as error:
        raise TypeError(
            "The step must return a number or a mapping of names to numbers, or values= must extract such a result. "
            f"{name}: {value!r}. In a session, the hook reads its `fetches`."
        ) from error


def check_values(values: Values | None) -> Values:
    """Checks the argument `values` of a hook.

    Args:
      values: function that extracts numbers from a result, or None.

    Returns:
      The function; for None, a function that returns the result itself.

    Raises:
      TypeError: If `values` can't be called.
    """
    if values is None:
        return lambda result: result
    if not callable(values):
        raise TypeError(f"values must be a function of the step's result, or None, got {values!r}")
    return values


Write = Callable[[str, float, int], Any]


class SummaryHook(PeriodicHook):
    """Writes the result's numbers at intervals.

    Args:
      writer: a `CsvWriter`, `JsonLinesWriter` or `TensorBoardWriter`, or another object with a method
        `add_scalar(name, value, step)`, such as PyTorch's SummaryWriter; the result of
        `tf.summary.create_file_writer`; a function that takes name, value and step; or a list of these.
      every_steps: a summary is written at the global steps that are multiples of this number, or None.
      every_secs: seconds between summaries, or None. Of several intervals, the one that passes first counts.
        Without an interval, a summary is written every 100 steps.
      values: function that takes the result and returns a number, which is named "loss", or a mapping from names to
        numbers. None if the result itself is a number or such a mapping.
      every_epochs: a summary is written at the end of each epoch whose number is a multiple of this number, or None.
        See `PeriodicHook` for the supported batches.

    Raises:
      TypeError: If `writer` isn't one of these, `values` can't be called, or an interval isn't a number.
      ValueError: If an interval isn't positive.
      ImportError: If `writer` is a tf.summary writer, and TensorBoard isn't installed.
    """

    def __init__(
        self,
        writer: Any,
        every_steps: int | None = None,
        every_secs: float | None = None,
        values: Values | None = None,
        *,
        every_epochs: int | None = None,
    ) -> None:
        if every_steps is None and every_secs is None and every_epochs is None:
            every_steps = 100
        super().__init__(every_steps, every_secs, every_epochs)
        self._write, self._flush = _writing(writer)
        self._values = check_values(values)

    def act(self, loop: Any) -> None:
        for name, number in named_numbers(self._values(loop.result)).items():
            self._write(name, number, loop.global_step)

    def on_evaluation(self, loop: Any, metrics: Mapping[str, float]) -> None:
        """Writes an evaluation's results, with "eval/" before their names.

        Args:
          loop: the `StepLoop`.
          metrics: the numbers, by name.
        """
        for name, number in metrics.items():
            self._write(f"eval/{name}", number, loop.global_step)

    def end(self, loop: Any) -> None:
        self._flush()

    def on_error(self, loop: Any, error: BaseException) -> None:
        # Write the last summaries, which help to explain the error.
        self.end(loop)


class MeansHook(PeriodicHook):
    """Writes the means of the numbers of all results since the last write, and the steps per second.

    The hook is called after every step, and keeps the results. It reads them only when it writes, so steps don't wait
    for the device. If one compiled call runs many steps, the hook adds up their numbers as arrays, without a Python
    call per step.

    The names are "mean/loss" for "loss", and "steps_per_sec". The loop's `Checkpoints` hook saves the sums since the
    last write, so a resumed loop writes the same means.

    Args:
      writer: as for `SummaryHook`.
      every_steps: the means are written at the global steps that are multiples of this number; or, for steps that run
        in one call, after that call. The rest is written at the end of the loop. If None, the interval is 100, unless
        `every_epochs` is given.
      values: as for `SummaryHook`.
      every_epochs: as for `SummaryHook`. Of two intervals, the one that passes first counts.

    Attributes:
      means: the last written means, by the numbers' names; empty before the first write.
      steps_per_sec: the last written rate; None before the first write.

    Raises:
      TypeError: If `writer` isn't supported, `values` can't be called, or an interval isn't a number.
      ValueError: If an interval isn't positive.
    """

    def __init__(
        self,
        writer: Any,
        every_steps: int | None = None,
        values: Values | None = None,
        *,
        every_epochs: int | None = None,
    ) -> None:
        super().__init__(100 if every_steps is None and every_epochs is None else every_steps, None, every_epochs)
        self._write, self._flush = _writing(writer)
        self._values = check_values(values)
        self._takes_result = values is None
        # The results of steps that ran one by one. For steps that ran in one call: the sum and the count of each
        # number.
        self._results: list[Any] = []
        self._sums: dict[str, tuple[float, int]] = {}
        # The sums that a checkpoint restored before the loop started.
        self._restored: dict[str, tuple[float, int]] = {}
        self.means: dict[str, float] = {}
        self.steps_per_sec: float | None = None

    def state_dict(self) -> dict[str, Any]:
        """Returns the sums, to save in a checkpoint."""
        self._add(self._columns())
        self._results = []
        return {"sums": {name: list(pair) for name, pair in self._sums.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resumes from saved sums.

        Args:
          state: the result of `state_dict`.
        """
        self._restored = {name: (total, count) for name, (total, count) in state["sums"].items()}
        self._results, self._sums = [], dict(self._restored)

    def begin(self, loop: Any) -> None:
        self._find_epochs(loop)
        self._restart(loop)
        self._sums, self._restored = self._restored, {}
        self.due_every_run()

    def after_step(self, loop: Any, value: Any) -> None:
        self._results.append(value)
        if loop.global_step >= self._next_step:
            self.act(loop)

    def after_steps(self, loop: Any, values: Any) -> None:
        """Takes the results of several steps that ran in one call.

        Args:
          loop: the `StepLoop`, whose global step is the last step's.
          values: the results, with the steps as the first dimension.
        """
        columns = _columns_of(values) if self._takes_result else None
        if columns is None:
            self._results += each_result(values)
        else:
            self._add(columns)
        if loop.global_step >= self._next_step:
            self.act(loop)

    def end(self, loop: Any) -> None:
        if loop.steps > self._steps_before:
            # Keep the sums for a checkpoint that is saved now. A resumed loop continues with them.
            self._report(loop)
        self._flush()

    def act(self, loop: Any) -> None:
        self._report(loop)
        self._restart(loop)

    def _restart(self, loop: Any) -> None:
        self._results, self._sums = [], {}
        self._time, self._steps_before = steady(), loop.steps
        self._next_step = self._next_due_step(loop.global_step)

    def _report(self, loop: Any) -> None:
        self._add(self._columns())
        self._results = []
        self.steps_per_sec = (loop.steps - self._steps_before) / max(steady() - self._time, 1e-9)
        # If some steps have no number with a certain name, the mean for this name covers the other steps.
        self.means = {name: total / count for name, (total, count) in self._sums.items()}
        for name, mean in self.means.items():
            self._write(f"mean/{name}", mean, loop.global_step)
        self._write("steps_per_sec", self.steps_per_sec, loop.global_step)

    def _add(self, columns: Mapping[str, Any]) -> None:
        for name, values in columns.items():
            total, count = self._sums.get(name, (0.0, 0))
            self._sums[name] = total + float(sum(values) if type(values) is list else values.sum()), count + len(values)

    def _columns(self) -> dict[str, list[float]]:
        """Returns the numbers of the results, by name."""
        # Check the most frequent case first, so that it costs least.
        if self._takes_result and all(type(result) is float for result in self._results):
            return {"loss": self._results}
        found: dict[str, list[float]] = {}
        for result in self._results:
            for name, value in named_numbers(self._values(result)).items():
                found.setdefault(name, []).append(value)
        return found


def _columns_of(values: Any) -> dict[str, Any] | None:
    """Returns the numbers of several steps by name, as arrays of shape [steps]; None if each result must be read."""
    import numpy as np  # A step that returns several results together has loaded NumPy.

    columns = values if isinstance(values, Mapping) else {"loss": values}
    for column in columns.values():
        if not (isinstance(column, np.ndarray) and column.ndim == 1 and column.dtype.kind in "iufb"):
            return None
    return {str(name): column.astype(np.float64) for name, column in columns.items()}


def _writing(writer: Any) -> tuple[Write, Callable[[], None]]:
    """Returns the function that writes one number, and the one that flushes the written data."""
    writers = writer if isinstance(writer, list | tuple) else [writer]
    writes = [_write_of(each) for each in writers]
    flushes = [each.flush for each in writers if hasattr(each, "flush")]

    def write_all(name: str, value: float, step: int) -> None:
        for write in writes:
            write(name, value, step)

    def flush_all() -> None:
        if flushes:
            with writing_files():
                for flush in flushes:
                    flush()

    return writes[0] if len(writes) == 1 else write_all, flush_all


def _write_of(writer: Any) -> Write:
    if callable(getattr(writer, "add_scalar", None)):
        return lambda name, value, step: writer.add_scalar(name, value, step)
    if callable(getattr(writer, "as_default", None)):
        from tensorflow import summary

        if find_spec("tensorboard") is None:
            # TensorFlow reports this only at the first summary, when the earlier steps would be lost.
            raise ImportError(
                "A writer of tf.summary needs TensorBoard, which isn't installed: pip install tensorboard."
            )

        def write(name: str, value: float, step: int) -> None:
            with writing_files(), writer.as_default():
                summary.scalar(name, value, step)

        return write
    if not callable(writer):
        raise TypeError(
            "writer must be a writer of fastsup.loop or tf.summary, have a method add_scalar(name, value, step), be a "
            f"function of these, or a list of writers; got {writer!r}."
        )
    return lambda name, value, step: writer(name, value, step)


class Metric(NamedTuple):
    """A measurement: its name, its description, its unit, and whether it only grows."""

    words: str
    help: str
    unit: str
    counts: bool


METRICS = (
    Metric("global step", "Global step of the model.", "", False),
    Metric("steps", "Steps that this program has run.", "", True),
    Metric("steps per second", "Steps per second since the previous measurement.", "", False),
    Metric("last step timestamp", "Time at which training last ran a step.", "seconds", False),
    Metric("last checkpoint timestamp", "Time at which the newest checkpoint was written.", "seconds", False),
    Metric("restarts", "Restarts of the loop after an error.", "", True),
    Metric("running", "1 while training runs, 0 after its end.", "", False),
)
RESULT = Metric("result", "Numbers from the last step result that was read, such as the loss.", "", False)


def check_labels(name: str, labels: Mapping[str, str] | None) -> dict[str, str]:
    """Returns the labels of a hook's metrics."""
    labels = {} if labels is None else labels
    if not isinstance(labels, Mapping) or not all(isinstance(text, str) for pair in labels.items() for text in pair):
        raise TypeError(f"{name} must be a dictionary from label names to strings, or None; got {labels!r}.")
    for label in labels:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", label) or label == "name":
            raise ValueError(
                f"{name} must have names of letters, digits and underscores, except 'name', which is reserved for the "
                f"numbers of the result; got {label!r}."
            )
    return dict(labels)


class MeasuringHook(PeriodicHook):
    """Takes measurements at intervals, independently of when they are read.

    Args:
      every_secs: seconds between measurements.
      values: function that takes the result of a step and returns a number, which is named "loss", or a mapping from
        names to numbers. If None, the hook uses the result itself if it is a number or such a mapping.
      checkpoint_dir: directory of the checkpoints. Its state file contains the time of the newest checkpoint. If None,
        the hook doesn't report the age.

    Raises:
      ValueError: If `every_secs` isn't positive.
      TypeError: If `every_secs` isn't a number, `checkpoint_dir` isn't a path, or `values` can't be called.
    """

    def __init__(self, every_secs: float = 10, values: Values | None = None, checkpoint_dir: Any = None) -> None:
        super().__init__(every_secs=every_secs)
        self._is_optional = values is None
        self._values = check_values(values)
        self._state_file = None if checkpoint_dir is None else Path(os.fspath(checkpoint_dir)) / "checkpoint"
        self._counts = {"steps": 0, "restarts": 0}
        self._has_failed = False
        self._last_steps, self._last_time = 0, 0.0
        self._measured: dict[str, float] = {}
        self._result: dict[str, float] = {}
        self._evaluation: dict[str, float] = {}

    def measurements(self) -> dict[str, float]:
        """Returns the last measurements, by the name of their `Metric`. Any thread may call this."""
        written = self._checkpoint_time()
        return {**self._measured, **({} if written is None else {"last checkpoint timestamp": written})}

    def result_numbers(self) -> dict[str, float]:
        """Returns the numbers of the last result read, and of the last evaluation. Any thread may call this."""
        return {**self._result, **self._evaluation}

    def begin(self, loop: Any) -> None:
        self._counts["restarts"] += self._has_failed
        self._has_failed = False
        self._last_steps, self._last_time = loop.steps, steady()
        self._measure(loop, running=1)
        self.never_due()
        # Measure after the first step, and then at intervals, so that a short program also reports its result.
        due_in(self, 0.0)

    def act(self, loop: Any) -> None:
        self._measure(loop, running=1)
        self._read(loop.result)

    def on_evaluation(self, loop: Any, metrics: Mapping[str, float]) -> None:
        """Keeps an evaluation's results, with "eval/" before their names.

        Args:
          loop: the `StepLoop`.
          metrics: the numbers, by name.
        """
        # Replace the dictionary in one assignment, because another thread may be reading it.
        self._evaluation = {**self._evaluation, **{f"eval/{name}": number for name, number in metrics.items()}}

    def end(self, loop: Any) -> None:
        self._measure(loop, running=0)
        if getattr(loop, "session", None) is None:
            self._read(loop.result)

    def on_error(self, loop: Any, error: BaseException) -> None:
        self._has_failed = True
        self._measure(loop, running=0)

    def _measure(self, loop: Any, running: int) -> None:
        time = steady()
        # Counters only grow, so the number of steps must not be negative, even if another loop has used the hook.
        steps, secs = max(loop.steps - self._last_steps, 0), time - self._last_time
        self._last_steps, self._last_time = loop.steps, time
        self._counts["steps"] += steps
        measured = {"global step": float(loop.global_step), "running": float(running), **self._counts}
        for words in ("steps per second", "last step timestamp"):
            if words in self._measured:
                measured[words] = self._measured[words]
        if steps:
            measured["last step timestamp"] = now()
        if steps or running:
            measured["steps per second"] = steps / max(secs, 1e-9)
        # Replace the dictionary in one assignment, because another thread may be reading it.
        self._measured = measured

    def _read(self, result: Any) -> None:
        # A step's result need not be numbers, unless `values` is set.
        self._result = numbers_in(result) if self._is_optional else named_numbers(self._values(result))

    def _checkpoint_time(self) -> float | None:
        try:
            return None if self._state_file is None else self._state_file.stat().st_mtime
        except OSError:
            return None  # No checkpoint has been saved yet.


_Kept = TypeVar("_Kept")
# The attribute of a registry or a meter that keeps its collector or instruments alive as long as itself.
_ATTRIBUTE = "_fastsup_shown"
_lock = threading.Lock()


class ShownHooks:
    """The hooks of a registry or meter, by their labels."""

    def __init__(self) -> None:
        self._hooks: dict[frozenset[tuple[str, str]], MeasuringHook] = {}

    def show(self, labels: dict[str, str], hook: MeasuringHook) -> None:
        """Reports the measurements of a hook from now on, instead of another hook's with the same labels."""
        # Another thread may be iterating over the hooks.
        self._hooks = {**self._hooks, frozenset(labels.items()): hook}

    def __iter__(self) -> Iterator[tuple[dict[str, str], MeasuringHook]]:
        return ((dict(labels), hook) for labels, hook in self._hooks.items())


def kept_by(owner: Any, make: Callable[[], _Kept]) -> _Kept:
    """Returns an attribute, and creates it at the first use."""
    with _lock:
        kept: _Kept | None = getattr(owner, _ATTRIBUTE, None)
        if kept is None:
            kept = make()
            setattr(owner, _ATTRIBUTE, kept)
        return kept


class PrometheusHook(MeasuringHook):
    """Reports the progress of training to Prometheus: steps, steps per second, loss, age of the newest checkpoint.

    The package prometheus_client reads the measurements when they are collected, in its own thread, at no cost per
    step. The program starts the HTTP server with `prometheus_client.start_http_server(8000)`, or pushes to a gateway.

    The metrics have the names `fastsup_global_step`, `fastsup_steps_total`, `fastsup_steps_per_second`,
    `fastsup_last_step_timestamp_seconds`, `fastsup_last_checkpoint_timestamp_seconds`, `fastsup_restarts_total`,
    `fastsup_running`, and `fastsup_result` with the label `name`.

    Args:
      labels: dictionary of labels that all metrics of this hook get, such as `{"job": "digits", "task": "worker-1"}`.
        Of hooks with the same labels, the one that started last is reported.
      registry: `prometheus_client.CollectorRegistry`; None for `prometheus_client.REGISTRY`.
      every_secs: seconds between measurements.
      values: function that takes the result of a step and returns a number, which is named "loss", or a mapping from
        names to numbers. If None, the hook uses the result itself if it is a number or such a mapping. In a session,
        the result is the value of the hook's `fetches`.
      checkpoint_dir: directory of the checkpoints. Its state file contains the time of the newest checkpoint. If None,
        the hook doesn't report the age.

    Raises:
      ImportError: If prometheus_client isn't installed.
      ValueError: If `every_secs` isn't positive, or a label has no valid name.
      TypeError: If an argument is of the wrong type.
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
    """Collects the measurements of all hooks for a registry, which accepts each metric name once."""

    def __init__(self) -> None:
        self.hooks = ShownHooks()

    def describe(self) -> list[Any]:
        """Returns the metrics without a sample, from which registries get the names."""
        return [_family(metric, []) for metric in (*METRICS, RESULT)]

    def collect(self) -> Iterator[Any]:
        """Returns the metrics, with a sample for each hook."""
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


class OpenTelemetryHook(MeasuringHook):
    """Reports the progress of training to OpenTelemetry: steps, steps per second, loss, age of the newest checkpoint.

    The instruments are observable: OpenTelemetry reads the measurements when it exports, in its own thread, at no cost
    per step. The program sets up the exporter as usual.

    The instruments have the names `fastsup.global_step`, `fastsup.steps`, `fastsup.steps_per_second`,
    `fastsup.last_step_timestamp`, `fastsup.last_checkpoint_timestamp`, `fastsup.restarts`, `fastsup.running`, and
    `fastsup.result` with the attribute `name`.

    Args:
      attributes: dictionary of attributes that all measurements of this hook get. Of hooks with the same attributes,
        the one that started last is reported.
      meter: `opentelemetry.metrics.Meter`; None for the global provider's meter named "fastsup".
      every_secs, values, checkpoint_dir: as for `PrometheusHook`.

    Raises:
      ImportError: If opentelemetry-api isn't installed.
      ValueError: If `every_secs` isn't positive, or an attribute has no valid name.
      TypeError: If an argument is of the wrong type.
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
        # Each call of `get_meter` may return a different object, so the module is the key for the global provider's
        # meter.
        self._owner: Any = metrics if meter is None else meter
        self._meter: Any = metrics.get_meter("fastsup") if meter is None else meter
        self._attributes = check_labels("attributes", attributes)

    def begin(self, loop: Any) -> None:
        super().begin(loop)
        kept_by(self._owner, lambda: _Instruments(self._meter)).hooks.show(self._attributes, self)


class _Instruments:
    """The instruments of a meter, shared by all hooks, because a meter has each instrument once."""

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
