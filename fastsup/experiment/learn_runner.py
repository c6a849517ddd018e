"""learn_runner, which builds an Experiment and runs this task's part of it, or one trial after another."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from tensorflow.python.platform import tf_logging as logging

from fastsup.cluster.tf_config import TaskType, check_job_layout, summarize_tf_config
from fastsup.estimator.config import distribution
from fastsup.experiment.experiment import Experiment

__all__ = ["run", "tune"]

_SCHEDULES = {
    TaskType.MASTER: "train_and_evaluate",
    TaskType.CHIEF: "train",
    TaskType.WORKER: "train",
    TaskType.PS: "run_std_server",
    TaskType.EVALUATOR: "continuous_eval",
}


def _default_schedule(config: Any) -> str:
    """Returns the name of the method for this task's role. A single task trains and evaluates."""
    cluster = config.cluster_spec if config else None
    num_tasks = sum(cluster.num_tasks(job) for job in cluster.jobs) if cluster else 0
    role = config.task_type if config else None
    if num_tasks <= 1 and role not in (TaskType.EVALUATOR, TaskType.PS):
        return "train_and_evaluate"
    if not role:
        raise ValueError(f"Must specify a schedule: the task has no type. {summarize_tf_config()}")
    if role not in _SCHEDULES:
        raise ValueError(
            f"No default schedule for task type: {role}. There are some for {sorted(_SCHEDULES)}. "
            f"{summarize_tf_config()}"
        )
    check_job_layout(config, distribution.trains_collectively(config))
    return _SCHEDULES[role]


def _builder_arguments(output_dir: Any, run_config: Any, hparams: Any) -> dict[str, Any]:
    """Returns the arguments of experiment_fn: an output directory, or a configuration and hyperparameters."""
    if run_config is None:
        if not output_dir:
            raise ValueError(f"Must specify an output directory. Got output_dir={output_dir!r}.")
        if hparams is not None:
            raise ValueError(
                "Must set `hparams` as None for `experiment_fn` with `output_dir`. With `run_config` it gets hparams."
            )
        return {"output_dir": output_dir}
    if not getattr(run_config, "model_dir", None):
        raise ValueError(
            "Must specify a model directory `model_dir` in `run_config`, such as RunConfig(model_dir=...). Got "
            f"{run_config!r}."
        )
    return {"run_config": run_config, "hparams": hparams}


def _method_of(experiment: Experiment, schedule: Any) -> Callable[[], Any]:
    """Returns the named method of an Experiment. Rejects a name that starts with an underscore."""
    if not isinstance(schedule, str):
        raise TypeError(f'`schedule` must be the name of a method, such as "train", or `None`. Got {schedule!r}.')
    public_names = [name for name in dir(experiment) if not name.startswith("_")]
    if schedule not in public_names:
        methods = [name for name in public_names if callable(getattr(experiment, name))]
        logging.error("Schedule references non-existent task %s", schedule)
        logging.error("Allowed values for this experiment are: %s", methods)
        raise ValueError(f"Schedule references non-existent task {schedule}. There are {methods}.")
    method = getattr(experiment, schedule)
    if callable(method):
        return method  # type: ignore[no-any-return]
    logging.error("Schedule references non-callable member %s", schedule)
    raise TypeError(f"Schedule references non-callable member {schedule}")


def _build(experiment_fn: Callable[..., Any], arguments: dict[str, Any]) -> Experiment:
    expected = _uid(arguments.get("run_config"))
    experiment = _called(experiment_fn, arguments)
    if not isinstance(experiment, Experiment):
        raise TypeError(f'Experiment builder "{experiment_fn}" did not return an Experiment, but {experiment!r}.')
    if expected is None:
        return experiment
    found = _uid(experiment.estimator.config)
    if found is None:
        raise RuntimeError(
            "Pass `run_config` argument of the `experiment_fn` to the Estimator in Experiment. It is likely a "
            "different `RunConfig` is passed to `Estimator` or the `config` constructor argument in `Estimator` is not "
            "set."
        )
    if found != expected:
        raise RuntimeError(
            "`RunConfig` instance is expected to be used by the `Estimator` inside the `Experiment`. expected "
            f"{expected}, but got {found}"
        )
    return experiment


def _called(experiment_fn: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Passes arguments by name, or by position if the function uses other names."""
    try:
        inspect.signature(experiment_fn).bind(**arguments)
    except (TypeError, ValueError):
        if "run_config" in arguments:
            return experiment_fn(*arguments.values())
    return experiment_fn(**arguments)


def _uid(config: Any) -> Any:
    """Returns an identifier of a `fastsup.contrib.learn` configuration, or None for other configurations."""
    return config.uid() if callable(getattr(type(config), "uid", None)) else None


def run(
    experiment_fn: Callable[..., Any],
    output_dir: str | None = None,
    schedule: str | None = None,
    run_config: Any = None,
    hparams: Any = None,
) -> Any:
    """Builds an Experiment and calls its method for this task's role.

    Args:
      experiment_fn: function that returns the `Experiment`. It is called as experiment_fn(output_dir=…), or with a
        run_config as experiment_fn(run_config=…, hparams=…), by position if its parameters have other names.
      output_dir: directory to pass to experiment_fn. Exactly one of output_dir and run_config must be given.
      schedule: name of the Experiment's method to call. If None, depends on the task's role.
      run_config: `RunConfig` with a model_dir, to pass to experiment_fn.
      hparams: hyperparameters to pass to experiment_fn. Only with run_config.

    Returns:
      The result of the method.

    Raises:
      ValueError: If output_dir and run_config are both given, or both missing or empty; hparams is given without
        run_config; the Experiment has no method of that name; the role has no default method; or the job has a second
        evaluator, or workers and no parameter server.
      TypeError: If experiment_fn can't be called or returns something else, schedule isn't a string, or it names a
        member that can't be called.
      RuntimeError: If run_config is a `fastsup.contrib.learn.RunConfig`, and the Estimator has a different one.
    """
    if output_dir is None and run_config is None:
        raise ValueError("Must set value for `output_dir` or `run_config`")
    if output_dir is not None and run_config is not None:
        raise ValueError("Cannot provide both `output_dir` and `run_config`")
    if not callable(experiment_fn):
        raise TypeError(f'Experiment builder "{experiment_fn}" is not callable.')
    experiment = _build(experiment_fn, _builder_arguments(output_dir, run_config, hparams))
    return _method_of(experiment, schedule or _default_schedule(experiment.estimator.config))()


def tune(experiment_fn: Callable[..., Any], tuner: Any) -> None:
    """Runs the trials of a tuner, each with its own Experiment and hyperparameters.

    Args:
      experiment_fn: function that returns the `Experiment`. It is called as experiment_fn(run_config=…, hparams=…).
      tuner: object with two methods. `next_trial()` returns True if there is another trial. `run_experiment(function)`
        runs the trial and calls function(run_config, hparams), which returns the `Experiment`.

    Raises:
      ValueError: If the tuner passes no run_config with a model_dir, or no hparams.
      TypeError: If experiment_fn can't be called or returns something else.
    """
    if not callable(experiment_fn):
        raise TypeError(f'Experiment builder "{experiment_fn}" is not callable.')

    def build(run_config: Any, hparams: Any) -> Experiment:
        if run_config is None:
            raise ValueError("Must set value for `run_config`")
        if hparams is None:
            raise ValueError("`hparams` cannot be `None`. The tuner passes the hyperparameters of the trial.")
        return _build(experiment_fn, _builder_arguments(None, run_config, hparams))

    while tuner.next_trial():
        tuner.run_experiment(build)


def __dir__() -> list[str]:
    return sorted(__all__)
