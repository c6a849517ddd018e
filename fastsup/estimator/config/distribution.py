"""The `tf.distribute` strategies of a RunConfig: which ones are supported, and the session settings they need."""

from __future__ import annotations

from typing import Any

from tensorflow.core.protobuf import config_pb2
from tensorflow.python.distribute import parameter_server_strategy_v2
from tensorflow.python.eager import context
from tensorflow.python.framework import device
from tensorflow.python.platform import tf_logging as logging

from fastsup.cluster.collective.task import training_tasks
from fastsup.cluster.tf_config import TaskType

__all__ = [
    "check_cluster",
    "check_devices",
    "evaluates_with",
    "is_multi_worker",
    "refuse_unsupported",
    "resolve_strategies",
    "session_config_for",
    "trains_collectively",
]

_MULTI_WORKER = ("CollectiveAllReduceStrategy", "CollectiveAllReduceStrategyV1", "MultiWorkerMirroredStrategy")


def is_multi_worker(strategy: Any) -> bool:
    """Returns True for a strategy that spans several processes."""
    return any(kind.__name__ in _MULTI_WORKER for kind in type(strategy).__mro__)


def trains_collectively(config: Any) -> bool:
    """Returns True for a task that trains together with other tasks."""
    trains = config.task_type in (TaskType.CHIEF, TaskType.WORKER)
    # Older configurations have no strategy.
    return bool(is_multi_worker(getattr(config, "train_distribute", None)) and config.cluster_spec and trains)


def evaluates_with(strategy: Any) -> Any:
    """Returns the strategy for evaluation, or None for one that spans a cluster, in which one task evaluates."""
    if is_multi_worker(strategy) and strategy.extended._cluster_spec:
        logging.info("eval_distribute=%r spans the tasks of a cluster: this task evaluates on its own.", strategy)
        return None
    return strategy


def refuse_unsupported(train_distribute: Any, eval_distribute: Any) -> None:
    """Rejects strategies that no Estimator supports."""
    for strategy in (train_distribute, eval_distribute):
        if strategy is not None and type(strategy) is parameter_server_strategy_v2.ParameterServerStrategyV2:
            raise ValueError(
                "Please use `tf.compat.v1.distribute.experimental.ParameterServerStrategy` for parameter server "
                "strategy with estimator."
            )


def session_config_for(session_config: Any, *strategies: Any) -> Any:
    """Returns a ConfigProto with as many CPU devices as the strategies use.

    With fewer devices, several replicas would share one device and wait for each other forever.
    """
    names = [name for strategy in strategies if strategy for name in strategy.extended.worker_devices]
    specs = [device.DeviceSpec.from_string(name) for name in names]
    cpus = max((1 + (spec.device_index or 0) for spec in specs if spec.device_type == "CPU"), default=1)
    if cpus == 1 or "CPU" in session_config.device_count:
        return session_config
    with_devices = config_pb2.ConfigProto()
    with_devices.CopyFrom(session_config)
    with_devices.device_count["CPU"] = cpus
    return with_devices


def check_devices(name: str, strategy: Any, session_config: Any) -> None:
    """Rejects a strategy whose replicas would share a device, because they would wait for each other forever."""
    wanted = [device.DeviceSpec.from_string(name) for name in strategy.extended.worker_devices]
    have = {f"{kind}:{index}" for kind, count in _device_counts(session_config).items() for index in range(count)}
    names = [f"{spec.device_type}:{spec.device_index or 0}" for spec in wanted]
    if len({name if name in have else "CPU:0" for name in names}) < len(names):
        raise ValueError(
            f"{name}={strategy!r} has {len(names)} replicas, on the devices {', '.join(names)}. The sessions of this "
            f"process have {', '.join(sorted(have))}. Create the strategy for existing devices, each once. "
            'session_config.device_count["CPU"] sets the number of CPU devices.'
        )


def _device_counts(session_config: Any) -> dict[str, int]:
    """Returns the number of devices of each kind in a local session."""
    limits = session_config.device_count
    counts = {"CPU": int(limits.get("CPU", 1))}
    virtual = session_config.gpu_options.experimental.virtual_devices
    physical = context.context().list_physical_devices()
    for kind in {each.device_type for each in physical} - {"CPU"}:
        there = sum(each.device_type == kind for each in physical)
        there = min(there, limits.get(kind, there))
        if kind == "GPU" and virtual:
            there = sum(max(1, len(each.memory_limit_mb)) for each in virtual)
        counts[kind] = there
    return counts


_NAMES = ("train_distribute", "eval_distribute")


def _take_from_distribute_config(config: Any) -> None:
    """Copies the strategies of `experimental_distribute` to `train_distribute` and `eval_distribute`."""
    given = config._experimental_distribute
    if given is None:
        return
    if not hasattr(given, "train_distribute"):
        raise TypeError(f"experimental_distribute must be a DistributeConfig or None, got {given!r}.")
    for name in _NAMES:
        strategy = getattr(given, name)
        if strategy is None:
            continue
        if getattr(config, "_" + name):
            raise ValueError(f"Either `{name}` or`experimental_distribute.{name}` can be set.")
        setattr(config, "_" + name, strategy)
    if given.remote_cluster:
        raise NotImplementedError(
            "`experimental_distribute.remote_cluster` isn't supported. Start the same program in each task of the "
            "cluster, with TF_CONFIG set. MultiWorkerMirroredStrategy trains on all of them together."
        )


def resolve_strategies(config: Any, tf_config: dict[str, Any]) -> None:
    """Sets and checks a RunConfig's `_train_distribute` and `_eval_distribute`. Several arguments can set these."""
    config._distribute_coordinator_mode = None
    _take_from_distribute_config(config)
    for name in _NAMES:
        strategy = getattr(config, "_" + name)
        if strategy is not None and not hasattr(strategy, "extended"):
            raise TypeError(f"{name} must be a tf.distribute.Strategy or None, got {strategy!r}.")
    refuse_unsupported(config._train_distribute, config._eval_distribute)
    cluster = tf_config.get("cluster")
    local = config._train_distribute and not is_multi_worker(config._train_distribute)
    if cluster and local and not (isinstance(cluster, dict) and "master" in cluster):
        raise NotImplementedError(
            f"train_distribute={config._train_distribute!r} isn't supported in a cluster, and TF_CONFIG describes a "
            "cluster. Leave `train_distribute` out: the tasks then train with between-graph replication, and the "
            "parameter servers hold the variables. Or use tf.distribute.MultiWorkerMirroredStrategy, which trains on "
            "all "
            "tasks together."
        )


def check_cluster(config: Any) -> None:
    """Rejects a strategy for another cluster than the RunConfig's, because it would place operations on other tasks."""
    strategy = config.train_distribute
    if not is_multi_worker(strategy) or config.task_type == TaskType.EVALUATOR:
        return
    extended = strategy.extended
    if not extended._cluster_spec:
        # The strategy was created for one process, or before TF_CONFIG was set. It is configured when training starts.
        return
    ours = training_tasks(config.cluster_spec), (config.task_type, config.task_id)
    theirs = training_tasks(extended._cluster_spec), (extended._task_type, extended._task_id)
    if ours != theirs:
        raise ValueError(
            f"train_distribute is for a cluster with {_described(*theirs)}. TF_CONFIG has {_described(*ours)}. Set "
            "TF_CONFIG before you create the strategy, and create it without a different cluster_resolver."
        )


def _described(tasks: dict[tuple[str, int], str], task: tuple[str, int]) -> str:
    """Describes the tasks of a cluster, and this process, for a message."""
    if not tasks:
        return "no cluster"
    listed = ", ".join(f"{role} {index} at {address}" for (role, index), address in tasks.items())
    return f"{listed}; this process is {task[0]} {task[1]}"
