"""The role of a process in its cluster, as properties of a configuration."""

from __future__ import annotations

from typing import Any

__all__ = ["TaskProperties"]


class TaskProperties:
    """The role of this process in its cluster. The constructor of a subclass sets the values of the properties."""

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
        """True if this process initialises and saves the model."""
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
        """Index of this process among those of its role."""
        return self._task_id

    @property
    def task_type(self) -> str | None:
        """Role of this process."""
        return self._task_type
