"""The `tf.distribute` strategies of a RunConfig: which are supported, and what they need of the session."""

from __future__ import annotations

from typing import Any

from tensorflow.core.protobuf import config_pb2
from tensorflow.python.distribute import parameter_server_strategy_v2
from tensorflow.python.framework import device

__all__ = ["is_multi_worker", "refuse_unsupported", "resolve_strategies", "session_config_for"]

_MULTI_WORKER = ("CollectiveAllReduceStrategy", "CollectiveAllReduceStrategyV1", "MultiWorkerMirroredStrategy")


def is_multi_worker(strategy: Any) -> bool:
    """True for a strategy that spans several processes."""
    return any(kind.__name__ in _MULTI_WORKER for kind in type(strategy).__mro__)


def refuse_unsupported(train_distribute: Any, eval_distribute: Any) -> None:
    """Refuses strategies that no Estimator supports.

    Args:
      train_distribute: strategy to train with, or None.
      eval_distribute: strategy to evaluate with, or None.

    Raises:
      ValueError: one of the two is the parameter server strategy of TF 2.
    """
    for strategy in (train_distribute, eval_distribute):
        if strategy is not None and type(strategy) is parameter_server_strategy_v2.ParameterServerStrategyV2:
            raise ValueError(
                "Please use `tf.compat.v1.distribute.experimental.ParameterServerStrategy` for parameter server "
                "strategy with estimator."
            )


def session_config_for(session_config: Any, *strategies: Any) -> Any:
    """A ConfigProto with as many CPU devices as the strategies use.

    With fewer devices, several replicas would share one and wait for each other without limit.

    Args:
      session_config: ConfigProto. If it sets the number of CPU devices, it is returned as it is.
      *strategies: `tf.distribute` strategies, or None.

    Returns:
      The ConfigProto, or a copy with the number of CPU devices set.
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
            "cluster, with TF_CONFIG set, and without `train_distribute`."
        )


def resolve_strategies(config: Any, tf_config: dict[str, Any]) -> None:
    """Sets and checks the strategies of a RunConfig, which may come from several arguments.

    Args:
      config: the RunConfig. Its `_train_distribute` and `_eval_distribute` are set.
      tf_config: TF_CONFIG as a dictionary.

    Raises:
      TypeError: an argument is no strategy.
      ValueError: a strategy is given twice, or no Estimator supports it.
      NotImplementedError: a strategy spans the processes of a cluster.
    """
    config._distribute_coordinator_mode = None
    _take_from_distribute_config(config)
    for name in _NAMES:
        strategy = getattr(config, "_" + name)
        if strategy is not None and not hasattr(strategy, "extended"):
            raise TypeError(f"{name} must be a tf.distribute.Strategy or None, got {strategy!r}.")
    refuse_unsupported(config._train_distribute, config._eval_distribute)
    cluster = tf_config.get("cluster")
    if is_multi_worker(config._train_distribute) or (
        cluster and config._train_distribute and not (isinstance(cluster, dict) and "master" in cluster)
    ):
        raise NotImplementedError(
            f"train_distribute={config._train_distribute!r} would span the processes of a cluster, which isn't "
            "supported. Leave `train_distribute` out: the tasks of TF_CONFIG then train by between-graph replication, "
            "with their variables on the parameter servers. MirroredStrategy trains on the devices of one process."
        )
