"""Parses TF_CONFIG["cluster"]: the roles, their tasks and the tasks' addresses."""

from __future__ import annotations

import re
from typing import Any

from tensorflow.python.training import server_lib

from fastsup.cluster.tf_config import ClusterConfigTypeError

__all__ = ["parse_cluster_spec"]

# A host and a port: no scheme, no path, no list.
_ADDRESS = re.compile(r"[^\s,/]+:[0-9]{1,5}")
_ROLE = re.compile(r"[a-zA-Z][a-zA-Z0-9_]*")


def parse_cluster_spec(tf_config: dict[str, Any]) -> Any:
    """Parses the cluster of TF_CONFIG.

    Args:
      tf_config: TF_CONFIG as a dictionary.

    Returns:
      The `tf.train.ClusterSpec`, which is empty if TF_CONFIG has no cluster.

    Raises:
      ValueError: a role, an index or an address is invalid.
      ClusterConfigTypeError: a part is of the wrong type.
    """
    cluster = tf_config.get("cluster")
    if cluster is None:
        cluster = {}
    if not isinstance(cluster, dict):
        raise ClusterConfigTypeError(
            'TF_CONFIG["cluster"] must be a JSON object from roles to lists of addresses, such as '
            f'{{"chief": ["host0:2222"]}}; got {cluster!r}.'
        )
    # On a platform that starts the servers, addresses may be names.
    with_ports = tf_config.get("environment") != "google"
    key_by_address: dict[str, str] = {}
    members: dict[str, Any] = {}
    for role, tasks in cluster.items():
        members[role] = _parse_tasks(role, tasks)
        indexed = members[role].items() if isinstance(members[role], dict) else enumerate(members[role])
        for index, address in indexed:
            key = f'TF_CONFIG["cluster"]["{role}"][{index}]'
            _check_address(key, address, with_ports)
            if address in key_by_address:
                raise ValueError(
                    f"{key} and {key_by_address[address]} are the same address, {address!r}. Each task needs its own."
                )
            key_by_address[address] = key
    return server_lib.ClusterSpec(members)


def _parse_tasks(role: str, tasks: Any) -> Any:
    """The addresses of a role: a list or tuple as given, or a dictionary whose keys are made integers."""
    if not _ROLE.fullmatch(role):
        # TensorFlow's server would end the process.
        raise ValueError(
            f'TF_CONFIG["cluster"] has the role {role!r}. A role must be of letters, digits and "_", a letter first.'
        )
    if not isinstance(tasks, list | tuple | dict):
        raise ClusterConfigTypeError(
            f"The tasks for job {role!r} must be a list or a dictionary from integers to strings. "
            f'TF_CONFIG["cluster"]["{role}"] is {tasks!r}; it should be a list such as ["host0:2222"].'
        )
    if not tasks:
        raise ValueError(
            f'TF_CONFIG["cluster"]["{role}"] is empty. Give the addresses of its tasks, or leave "{role}" out.'
        )
    return _parse_indices(role, tasks) if isinstance(tasks, dict) else tasks


def _parse_indices(role: str, tasks: dict[Any, Any]) -> dict[int, Any]:
    """The addresses by index. JSON has made strings of the indices."""
    try:
        by_index = {int(index): address for index, address in tasks.items()}
    except ValueError:
        by_index = {}
    if len(by_index) < len(tasks) or min(by_index) < 0:
        raise ValueError(
            f'TF_CONFIG["cluster"]["{role}"] is an object, so its keys must be task indices, each another one, counted '
            f"from 0; got {list(tasks)}."
        )
    return by_index


def _check_address(key: str, address: Any, with_port: bool) -> None:
    if not isinstance(address, str):
        raise ClusterConfigTypeError(f'{key} must be a string such as "host0:2222", got {address!r}.')
    if with_port and not (_ADDRESS.fullmatch(address) and int(address.rpartition(":")[2]) < 65536):
        raise ValueError(f'{key} must be an address with a port, such as "host0:2222"; got {address!r}.')
