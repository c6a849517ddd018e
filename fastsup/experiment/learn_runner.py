"""learn_runner.run: makes an Experiment and does what this task has to do in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensorflow.python.platform import tf_logging as logging

from fastsup.cluster.tf_config import check_job, described, read_tf_config
from fastsup.estimator.config.run_config import TaskType
from fastsup.experiment.experiment import Experiment

__all__ = ["run"]

_SCHEDULES = {
    TaskType.MASTER: "train_and_evaluate",
    TaskType.CHIEF: "train",
    TaskType.WORKER: "train",
    TaskType.PS: "run_std_server",
    TaskType.EVALUATOR: "continuous_eval",
}


def _default_schedule(config: Any) -> str:
    """The method that a task calls, from its role. One task, or none, trains and evaluates."""
    cluster = config.cluster_spec if config else None
    tasks = sum(cluster.num_tasks(job) for job in cluster.jobs) if cluster else 0
    role = config.task_type if config else None
    if tasks <= 1 and role not in (TaskType.EVALUATOR, TaskType.PS):
        return "train_and_evaluate"
    if not role:
        raise ValueError(f"Must specify a schedule: the task has no type. {described(read_tf_config())}")
    if role not in _SCHEDULES:
        raise ValueError(
            f"No default schedule for task type: {role}. There are some for {sorted(_SCHEDULES)}. "
            f"{described(read_tf_config())}"
        )
    check_job(config)
    return _SCHEDULES[role]


def run(
    experiment_fn: Callable[..., Any],
    output_dir: str | None = None,
    schedule: str | None = None,
    run_config: Any = None,
    hparams: Any = None,
) -> Any:
    """Makes an Experiment, and calls the method that this task's role asks for.

    Args:
      experiment_fn: function that returns the `Experiment`. Called as experiment_fn(output_dir=…), or with a run_config
        as experiment_fn(run_config=…, hparams=…).
      output_dir: directory that experiment_fn gets. Either that or run_config is to be given.
      schedule: name of the method of the Experiment to call. None: chosen by the task's role.
      run_config: `RunConfig` that experiment_fn gets. It has a model_dir.
      hparams: hyperparameters that experiment_fn gets. Only with run_config.

    Returns:
      What the method returns.

    Raises:
      ValueError: of output_dir and run_config both are given, or none, or an empty one; hparams without run_config; no
        such method; no default for this role; or the job has a second evaluator, or workers without parameter servers.
      TypeError: experiment_fn isn't callable or returns something else, schedule is no string, or what it names isn't a
        method.
    """
    if output_dir is not None and run_config is not None:
        raise ValueError("Cannot provide both `output_dir` and `run_config`")
    if output_dir is None and run_config is None:
        raise ValueError("Must set value for `output_dir` or `run_config`")
    if not callable(experiment_fn):
        raise TypeError(f'Experiment builder "{experiment_fn}" is not callable.')
    if run_config is not None:
        if not getattr(run_config, "model_dir", None):
            raise ValueError(
                "Must specify a model directory `model_dir` in `run_config`, such as RunConfig(model_dir=...). Got "
                f"{run_config!r}."
            )
        experiment = experiment_fn(run_config=run_config, hparams=hparams)
    else:
        if not output_dir:
            raise ValueError(f"Must specify an output directory. Got output_dir={output_dir!r}.")
        if hparams is not None:
            raise ValueError(
                "Must set `hparams` as None for `experiment_fn` with `output_dir`. With `run_config` it gets them."
            )
        experiment = experiment_fn(output_dir=output_dir)
    if not isinstance(experiment, Experiment):
        raise TypeError(f'Experiment builder "{experiment_fn}" did not return an Experiment, but {experiment!r}.')
    schedule = schedule or _default_schedule(experiment.estimator.config)
    if not isinstance(schedule, str):
        raise TypeError(f'`schedule` must be the name of a method, such as "train", or `None`. Got {schedule!r}.')
    if schedule.startswith("_") or not hasattr(experiment, schedule):
        names = [name for name in dir(experiment) if not name.startswith("_") and callable(getattr(experiment, name))]
        logging.error("Schedule references non-existent task %s", schedule)
        logging.error("Allowed values for this experiment are: %s", names)
        raise ValueError(f"Schedule references non-existent task {schedule}. There are {names}.")
    task = getattr(experiment, schedule)
    if not callable(task):
        logging.error("Schedule references non-callable member %s", schedule)
        raise TypeError(f"Schedule references non-callable member {schedule}")
    return task()


def __dir__() -> list[str]:
    return sorted(__all__)
