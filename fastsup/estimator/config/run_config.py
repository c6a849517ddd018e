"""RunConfig: the settings of an Estimator, with the checks of their values."""

from __future__ import annotations

import copy
import math
import os
import tempfile
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from tensorflow.core.protobuf import config_pb2, rewriter_config_pb2
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.util import function_utils

from fastsup.cluster.collective.task import parse_collective_settings
from fastsup.cluster.tf_config import TaskType, parse_task_settings, read_tf_config
from fastsup.core.checks import check_range, suggest_keywords
from fastsup.core.probe import check_profiler
from fastsup.estimator.config import distribution
from fastsup.runtime.executor import check_executor

if TYPE_CHECKING:
    from fastsup.core.probe import Profiler

__all__ = [
    "RunConfig",
    "TaskProperties",
    "TaskType",
    "check_values",
    "choose_model_dir",
    "path_to_str",
    "resolve_config",
]


class TaskProperties:
    """The role of this process in its cluster. A subclass's constructor sets the properties."""

    _cluster_spec: Any
    _evaluation_master: str
    _is_chief: bool
    _master: str
    _num_ps_replicas: int
    _num_worker_replicas: int
    _task_id: int
    _task_type: str | None

    @property
    def cluster_spec(self) -> Any:
        """The cluster that trains, as a `tf.train.ClusterSpec`."""
        return self._cluster_spec

    @property
    def evaluation_master(self) -> str:
        """The execution engine to evaluate on."""
        return self._evaluation_master

    @property
    def is_chief(self) -> bool:
        """True if this process initializes and saves the model."""
        return self._is_chief

    @property
    def master(self) -> str:
        """The execution engine to train on."""
        return self._master

    @property
    def num_ps_replicas(self) -> int:
        """Number of parameter servers."""
        return self._num_ps_replicas

    @property
    def num_worker_replicas(self) -> int:
        """Number of tasks that train, including the chief."""
        return self._num_worker_replicas

    @property
    def task_id(self) -> int:
        """Index of this process within its role."""
        return self._task_id

    @property
    def task_type(self) -> str | None:
        """Role of this process."""
        return self._task_type


def path_to_str(model_dir: Any) -> str | None:
    """Returns a model directory as a string, or None for None."""
    if model_dir is None:
        return None
    if not isinstance(model_dir, str | bytes | os.PathLike):
        raise TypeError(f"model_dir must be the path of a directory, or None for a temporary one; got {model_dir!r}.")
    return os.fsdecode(model_dir)


def choose_model_dir(tf_config: dict[str, Any], model_dir: Any) -> Any:
    """Returns the model directory from the argument or from TF_CONFIG."""
    if model_dir == "":
        raise ValueError("model_dir should be non-empty.")
    in_environment = tf_config.get("model_dir")
    if in_environment == "":
        raise ValueError("model_dir in TF_CONFIG should be non-empty.")
    if in_environment:
        if not isinstance(in_environment, str):
            raise ValueError(f'TF_CONFIG["model_dir"] must be a string, got {in_environment!r}.')
        if model_dir and in_environment != model_dir:
            raise ValueError(
                "`model_dir` provided in RunConfig construct, if set, must have the same value as the model_dir in "
                f'TF_CONFIG. model_dir: {model_dir}\nTF_CONFIG["model_dir"]: {in_environment}.\n'
            )
        logging.info("Using model_dir in TF_CONFIG: %s", in_environment)
    return model_dir or in_environment


def _is_device_fn(function: Any) -> bool:
    return callable(function) and set(function_utils.fn_args(function)) == {"op"}


def check_values(config: Any) -> None:
    """Rejects properties with a wrong type or value. None stands for a property that isn't set."""
    rules: list[tuple[str, Callable[[Any], Any], str]] = [
        ("model_dir", bool, "model_dir should be non-empty"),
        ("save_summary_steps", lambda value: value >= 0, "save_summary_steps should be >= 0"),
        ("save_checkpoints_steps", lambda value: value >= 0, "save_checkpoints_steps should be >= 0"),
        ("save_checkpoints_secs", lambda value: value >= 0, "save_checkpoints_secs should be >= 0"),
        (
            "session_config",
            lambda value: isinstance(value, config_pb2.ConfigProto),
            "session_config must be instance of ConfigProto",
        ),
        ("keep_checkpoint_max", lambda value: value >= 0, "keep_checkpoint_max should be >= 0"),
        ("keep_checkpoint_max", lambda value: hasattr(value, "__index__"), "keep_checkpoint_max must be an integer"),
        ("keep_checkpoint_every_n_hours", lambda value: value > 0, "keep_checkpoint_every_n_hours should be > 0"),
        ("log_step_count_steps", lambda value: value > 0, "log_step_count_steps should be > 0"),
        ("tf_random_seed", lambda value: isinstance(value, int), "tf_random_seed must be integer."),
        (
            "experimental_max_worker_delay_secs",
            lambda value: isinstance(value, int),
            "experimental_max_worker_delay_secs must be an integer if set.",
        ),
        ("session_creation_timeout_secs", lambda value: value > 0, "session_creation_timeout_secs should be > 0"),
        ("device_fn", _is_device_fn, 'device_fn must be callable with exactly one argument "op".'),
        ("protocol", lambda value: value in ("grpc", "grpc+verbs"), "protocol should be grpc or grpc+verbs"),
        ("async_save", lambda value: isinstance(value, bool), "async_save must be True or False"),
        ("progress", lambda value: isinstance(value, bool), "progress must be True or False"),
        ("recovery_wait_secs", lambda value: 0 <= value < math.inf, "recovery_wait_secs should be >= 0, and finite"),
    ]
    for name, is_in_range, message in rules:
        value = getattr(config, name)
        if value is None and name != "recovery_wait_secs":
            continue
        check_range(
            value,
            is_in_range,
            f"{message}; got {value!r} of type {type(value).__name__}",
            f"{message} Got {value!r}." if message.endswith(".") else f"{message}; got {value!r}",
        )
    check_executor(config.executor)
    check_profiler(config.profiler)


_USE_DEFAULT: Any = object()

_REPLACEABLE = [
    "model_dir", "tf_random_seed", "save_summary_steps", "save_checkpoints_steps", "save_checkpoints_secs",
    "session_config", "keep_checkpoint_max", "keep_checkpoint_every_n_hours", "log_step_count_steps",
    "train_distribute", "device_fn", "protocol", "eval_distribute", "experimental_distribute",
    "experimental_max_worker_delay_secs", "session_creation_timeout_secs", "checkpoint_save_graph_def", "executor",
    "async_save", "recovery_wait_secs", "profiler", "progress",
]  # fmt: skip

_BOTH_INTERVALS = "`save_checkpoints_steps` and `save_checkpoints_secs` cannot be both set."


def _default_session_config(device_filters: list[str] | None = None) -> Any:
    """Returns the default ConfigProto of an Estimator."""
    rewriting = rewriter_config_pb2.RewriterConfig(meta_optimizer_iterations=rewriter_config_pb2.RewriterConfig.ONE)
    return config_pb2.ConfigProto(
        allow_soft_placement=True,
        graph_options=config_pb2.GraphOptions(rewrite_options=rewriting),
        device_filters=device_filters,
    )


def _drop_other_interval(config: Any, replaced: Iterable[str]) -> None:
    """Clears the saving interval in seconds if the interval in steps was replaced, and vice versa. Rejects both."""
    steps, secs = config.save_checkpoints_steps, config.save_checkpoints_secs
    if "save_checkpoints_steps" in replaced and "save_checkpoints_secs" in replaced:
        if steps is not None and secs is not None:
            raise ValueError(_BOTH_INTERVALS)
    elif "save_checkpoints_steps" in replaced and steps is not None:
        config._save_checkpoints_secs = None
    elif "save_checkpoints_secs" in replaced and secs is not None:
        config._save_checkpoints_steps = None


class RunConfig(TaskProperties):
    """The settings of an Estimator. The environment variable TF_CONFIG contains the cluster and this process's role.

    TF_CONFIG is a JSON object. "cluster" maps roles to lists of addresses, and "task" contains the "type" (the role)
    and the "index" of this process. A cluster has one chief (or one master), any number of workers and parameter
    servers ("ps"). An evaluator is a task outside the cluster. Without a cluster, the process trains on its own.

    Args:
      model_dir: directory for checkpoints, events and exports. Defaults to a temporary one.
      tf_random_seed: seed of the graph, for reproducible runs.
      save_summary_steps: global steps between summaries. If 0 or None, writes no summaries.
      save_checkpoints_steps: global steps between checkpoints. Exclusive with `save_checkpoints_secs`.
      save_checkpoints_secs: seconds between checkpoints. Defaults to 600 if `save_checkpoints_steps` isn't given
        either. If both are None, saves no checkpoints.
      session_config: ConfigProto of the sessions, or None.
      keep_checkpoint_max: number of newest checkpoints to keep. If 0 or None, keeps all.
      keep_checkpoint_every_n_hours: interval in hours at which one checkpoint is kept permanently.
      log_step_count_steps: global steps between two log lines with the loss and the steps per second. If None, logs
        none.
      train_distribute: `tf.distribute.Strategy` to train with, or None.
      device_fn: function of an operation (`op`) that returns its device. Defaults to a function that distributes the
        variables over the parameter servers, if there are any.
      protocol: protocol of the server: "grpc" or "grpc+verbs". If None, uses "grpc".
      eval_distribute: `tf.distribute.Strategy` to evaluate with, or None.
      experimental_distribute: `DistributeConfig` with the strategies, or None.
      experimental_max_worker_delay_secs: maximum seconds that a worker waits before it trains. Defaults to 60.
      session_creation_timeout_secs: maximum seconds that a task of a cluster waits for others: a worker for the chief's
        model, chief and workers for the parameter servers, parameter servers and evaluator for a chief or worker.
      checkpoint_save_graph_def: Whether to also write the graph (`graph.pbtxt`, and a `.meta` file per checkpoint).
      executor: executor mode of the sessions, as for `fastsup.Session`.
      async_save: Whether training continues while a checkpoint is written. See `fastsup.train.CheckpointSaverHook`.
      recovery_wait_secs: maximum seconds between checks by a worker that waits for the chief's model.
      profiler: `fastsup.HookProfiler` that records the cost of hooks and training steps. If None, uses the profiler of
        the whole program, if one is on. Copies of the configuration share the profiler.
      progress: Whether to show the progress of training and evaluation on stderr, with a `fastsup.train.ProgressHook`.

    Raises:
      ValueError: If an argument is out of its range, or TF_CONFIG is invalid.
      TypeError: If an argument has the wrong type.
    """

    # The values of the properties. `_replace` sets them. The constructor also sets the task's index in its cluster.
    _device_fn: Callable[..., Any] | None
    _global_id_in_cluster: int | None
    _experimental_max_worker_delay_secs: int | None
    _tf_random_seed: int | None
    _save_summary_steps: int | None
    _save_checkpoints_secs: float | None
    _session_config: Any
    _save_checkpoints_steps: int | None
    _checkpoint_save_graph_def: bool
    _keep_checkpoint_max: int | None
    _session_creation_timeout_secs: float
    _keep_checkpoint_every_n_hours: float | None
    _log_step_count_steps: int | None
    _model_dir: str | None
    _service: dict[str, Any] | None
    _train_distribute: Any
    _eval_distribute: Any
    _protocol: str | None
    _executor: str
    _async_save: bool
    _recovery_wait_secs: float
    _profiler: Profiler | None
    _progress: bool

    @suggest_keywords
    def __init__(
        self,
        model_dir: Any = None,
        tf_random_seed: int | None = None,
        save_summary_steps: int | None = 100,
        save_checkpoints_steps: Any = _USE_DEFAULT,
        save_checkpoints_secs: Any = _USE_DEFAULT,
        session_config: Any = None,
        keep_checkpoint_max: int | None = 5,
        keep_checkpoint_every_n_hours: float | None = 10000,
        log_step_count_steps: int | None = 100,
        train_distribute: Any = None,
        device_fn: Any = None,
        protocol: str | None = None,
        eval_distribute: Any = None,
        experimental_distribute: Any = None,
        experimental_max_worker_delay_secs: int | None = None,
        session_creation_timeout_secs: float = 7200,
        checkpoint_save_graph_def: bool = True,
        executor: str = "auto",
        async_save: bool = False,
        recovery_wait_secs: float = 30,
        profiler: Any = None,
        progress: bool = False,
    ) -> None:
        if save_checkpoints_steps is _USE_DEFAULT and save_checkpoints_secs is _USE_DEFAULT:
            save_checkpoints_steps, save_checkpoints_secs = None, 600
        elif save_checkpoints_secs is _USE_DEFAULT:
            save_checkpoints_secs = None
        elif save_checkpoints_steps is _USE_DEFAULT:
            save_checkpoints_steps = None
        elif save_checkpoints_steps is not None and save_checkpoints_secs is not None:
            raise ValueError(_BOTH_INTERVALS)
        distribution.refuse_unsupported(train_distribute, eval_distribute)
        tf_config = read_tf_config()
        if tf_config:
            logging.info("TF_CONFIG environment variable: %s", tf_config)
        RunConfig._replace(
            self,
            allowed_properties_list=_REPLACEABLE,
            model_dir=choose_model_dir(tf_config, path_to_str(model_dir)),
            tf_random_seed=tf_random_seed,
            save_summary_steps=save_summary_steps,
            save_checkpoints_steps=save_checkpoints_steps,
            save_checkpoints_secs=save_checkpoints_secs,
            session_config=session_config,
            keep_checkpoint_max=keep_checkpoint_max,
            keep_checkpoint_every_n_hours=keep_checkpoint_every_n_hours,
            log_step_count_steps=log_step_count_steps,
            train_distribute=train_distribute,
            device_fn=device_fn,
            protocol=protocol,
            eval_distribute=eval_distribute,
            experimental_distribute=experimental_distribute,
            experimental_max_worker_delay_secs=experimental_max_worker_delay_secs,
            session_creation_timeout_secs=session_creation_timeout_secs,
            checkpoint_save_graph_def=checkpoint_save_graph_def,
            executor=executor,
            async_save=async_save,
            recovery_wait_secs=recovery_wait_secs,
            profiler=profiler,
            progress=progress,
        )
        if train_distribute or eval_distribute or experimental_distribute:
            logging.info("Initializing RunConfig with distribution strategies.")
            distribution.resolve_strategies(self, tf_config)
        self._init_distributed_setting_from_environment_var(tf_config)
        self._maybe_overwrite_session_config_for_distributed_training()
        distribution.check_cluster(self)
        if train_distribute or eval_distribute or experimental_distribute:
            logging.info("Not using Distribute Coordinator.")

    def _init_distributed_setting_from_environment_var(self, tf_config: dict[str, Any]) -> None:
        """Sets the cluster and the role of this process from TF_CONFIG."""
        parse = (
            parse_collective_settings if distribution.is_multi_worker(self.train_distribute) else parse_task_settings
        )
        for name, value in parse(tf_config)._asdict().items():
            setattr(self, "_" + name, value)

    def _maybe_overwrite_session_config_for_distributed_training(self) -> None:
        """Sets the default session configuration of a task in a cluster. A subclass may override this."""
        if not self.session_config and self.cluster_spec:
            RunConfig._replace(
                self,
                allowed_properties_list=_REPLACEABLE,
                session_config=self._get_default_session_config_distributed(),
            )

    def _get_default_session_config_distributed(self) -> Any:
        """ConfigProto with device filters for the parameter servers and this task; None for an unknown role."""
        filters_by_role: dict[str | None, list[str]] = {
            TaskType.MASTER: ["/job:ps", "/job:master"],
            TaskType.CHIEF: ["/job:ps", "/job:chief"],
            TaskType.WORKER: ["/job:ps", f"/job:worker/task:{self.task_id}"],
            TaskType.PS: ["/job:ps", "/job:worker", "/job:chief", "/job:master"],
        }
        filters = filters_by_role.get(self.task_type)
        return None if filters is None else _default_session_config(filters)

    @property
    def device_fn(self) -> Callable[..., Any] | None:
        """Function that places operations on devices, or None."""
        return self._device_fn

    @property
    def global_id_in_cluster(self) -> int | None:
        """Index of this process among all of the cluster; None for an evaluator.

        The chief comes first, then the other roles in alphabetical order, the parameter servers last.
        """
        return self._global_id_in_cluster

    @property
    def experimental_max_worker_delay_secs(self) -> int | None:
        """Maximum seconds that a worker waits before it trains, or None."""
        return self._experimental_max_worker_delay_secs

    @property
    def tf_random_seed(self) -> int | None:
        """Seed of the graph, or None."""
        return self._tf_random_seed

    @property
    def save_summary_steps(self) -> int | None:
        """Global steps between summaries."""
        return self._save_summary_steps

    @property
    def save_checkpoints_secs(self) -> float | None:
        """Seconds between checkpoints, or None."""
        return self._save_checkpoints_secs

    @property
    def session_config(self) -> Any:
        """ConfigProto of the sessions, or None."""
        return self._session_config

    @property
    def save_checkpoints_steps(self) -> int | None:
        """Global steps between checkpoints, or None."""
        return self._save_checkpoints_steps

    @property
    def checkpoint_save_graph_def(self) -> bool:
        """True to write the graph with the checkpoints."""
        return self._checkpoint_save_graph_def

    @property
    def keep_checkpoint_max(self) -> int | None:
        """Number of the newest checkpoints to keep."""
        return self._keep_checkpoint_max

    @property
    def session_creation_timeout_secs(self) -> float:
        """Maximum seconds that a task of a cluster waits for others."""
        return self._session_creation_timeout_secs

    @property
    def keep_checkpoint_every_n_hours(self) -> float | None:
        """Hours after which one more checkpoint is kept permanently."""
        return self._keep_checkpoint_every_n_hours

    @property
    def log_step_count_steps(self) -> int | None:
        """Global steps between two log lines, or None."""
        return self._log_step_count_steps

    @property
    def model_dir(self) -> str | None:
        """Directory for checkpoints, events and exports, or None."""
        return self._model_dir

    @property
    def service(self) -> dict[str, Any] | None:
        """The dictionary of the platform in TF_CONFIG, or None."""
        return self._service

    @property
    def train_distribute(self) -> Any:
        """`tf.distribute.Strategy` to train with, or None."""
        return self._train_distribute

    @property
    def eval_distribute(self) -> Any:
        """`tf.distribute.Strategy` to evaluate with, or None."""
        return self._eval_distribute

    @property
    def protocol(self) -> str | None:
        """Protocol of the server, or None."""
        return self._protocol

    @property
    def executor(self) -> str:
        """Executor mode of the sessions."""
        return self._executor

    @property
    def async_save(self) -> bool:
        """True if training continues while a checkpoint is written."""
        return self._async_save

    @property
    def recovery_wait_secs(self) -> float:
        """Seconds between checks of the chief's model."""
        return self._recovery_wait_secs

    @property
    def profiler(self) -> Profiler | None:
        """`fastsup.HookProfiler` of the training, or None."""
        return self._profiler

    @property
    def progress(self) -> bool:
        """True to show the progress of training and evaluation."""
        return self._progress

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        # A strategy counts the collectives that were created with it, and a strategy of several processes has a server.
        # A copy would have neither.
        for strategy in (self.train_distribute, self.eval_distribute):
            memo[id(strategy)] = strategy
        made = memo[id(self)] = type(self).__new__(type(self))
        vars(made).update(copy.deepcopy(vars(self), memo))
        return made

    def replace(self, **kwargs: Any) -> Any:
        """Returns a copy with new values for some properties.

        Args:
          **kwargs: the new values by name. You can replace any argument of the constructor.

        Returns:
          The copy.

        Raises:
          ValueError: If a name isn't a property, or a value is out of its range.
          TypeError: If a value has the wrong type.
        """
        return RunConfig._replace(copy.deepcopy(self), allowed_properties_list=_REPLACEABLE, **kwargs)

    @staticmethod
    def _replace(config: Any, allowed_properties_list: list[str] | None = None, **kwargs: Any) -> Any:
        """Sets properties in place, and returns the configuration. Stores property "x" in attribute "_x"."""
        allowed = allowed_properties_list or []
        for name, value in kwargs.items():
            if name not in allowed:
                raise ValueError(f"Replacing {name} is not supported. Allowed properties are {allowed}.")
            setattr(config, "_" + name, path_to_str(value) if name == "model_dir" else value)
        _drop_other_interval(config, kwargs)
        check_values(config)
        return config


def resolve_config(config: Any, model_dir: Any) -> Any:
    """Adds a session configuration and a model directory to the configuration of an Estimator."""
    if config is None:
        config = RunConfig()
        logging.info("Using default config.")
    if not isinstance(config, RunConfig):
        raise ValueError(f"config must be an instance of `RunConfig`, but provided {config}.")
    if config.session_config is None:
        config = RunConfig.replace(config, session_config=_default_session_config())
    model_dir = path_to_str(model_dir)
    if model_dir is not None and config.model_dir is not None and config.model_dir != model_dir:
        raise ValueError(
            "`model_dir` are set both in constructor and `RunConfig`, but with different values. "
            f"In constructor: '{model_dir}', in `RunConfig`: '{config.model_dir}' "
        )
    if model_dir:
        config = RunConfig.replace(config, model_dir=model_dir)
    elif config.model_dir is None:
        model_dir = tempfile.mkdtemp()
        logging.warning("Using temporary folder as model directory: %s", model_dir)
        config = RunConfig.replace(config, model_dir=model_dir)
    return config
