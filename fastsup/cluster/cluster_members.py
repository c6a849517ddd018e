"""What TF_CONFIG["cluster"] says: which roles have which tasks, and where."""

from __future__ import annotations

import re
from typing import Any

from tensorflow.python.training import server_lib

__all__ = ["ClusterConfigTypeError", "cluster_spec_of"]

# A host and a port: no scheme, no path, no list.
_ADDRESS = re.compile(r"[^\s,/]+:[0-9]{1,5}")
_JOB = re.compile(r"[a-zA-Z][a-zA-Z0-9_]*")


class ClusterConfigTypeError(ValueError, TypeError):
    """A part of TF_CONFIG is of the wrong type. A TypeError too, which is what TensorFlow raises for some of them."""


def _check_address(job: str, place: Any, address: Any, with_port: bool) -> None:
    where = f'TF_CONFIG["cluster"]["{job}"][{place}]'
    if not isinstance(address, str):
        raise ClusterConfigTypeError(f'{where} must be a string such as "host0:2222", got {address!r}.')
    if with_port and not (_ADDRESS.fullmatch(address) and int(address.rpartition(":")[2]) < 65536):
        raise ValueError(f'{where} must be an address with a port, such as "host0:2222"; got {address!r}.')


def cluster_spec_of(tf_config: dict[str, Any]) -> Any:
    """The tasks of a cluster and their addresses, as a `tf.train.ClusterSpec`, an empty one without a cluster.

    Args:
      tf_config: TF_CONFIG as a dictionary.

    Raises:
      ValueError: a role, an index or an address can't be what it is.
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
    seen: dict[str, str] = {}
    for job, tasks in cluster.items():
        if not _JOB.fullmatch(job):
            # TensorFlow's server would end the process.
            raise ValueError(
                f'TF_CONFIG["cluster"] has the role {job!r}. A role must be of letters, digits and "_", a letter first.'
            )
        if not isinstance(tasks, list | tuple | dict):
            raise ClusterConfigTypeError(
                f"The tasks for job {job!r} must be a list or a dictionary from integers to strings. "
                f'TF_CONFIG["cluster"]["{job}"] is {tasks!r}; it should be a list such as ["host0:2222"].'
            )
        if not tasks:
            raise ValueError(
                f'TF_CONFIG["cluster"]["{job}"] is empty. Give the addresses of its tasks, or leave "{job}" out.'
            )
        if isinstance(tasks, dict):
            cluster = {**cluster, job: _numbered(job, tasks)}
            tasks = cluster[job]
        for place, address in tasks.items() if isinstance(tasks, dict) else enumerate(tasks):
            _check_address(job, place, address, with_port=tf_config.get("environment") != "google")
            where = f'TF_CONFIG["cluster"]["{job}"][{place}]'
            if address in seen:
                raise ValueError(
                    f"{where} and {seen[address]} are the same address, {address!r}. Each task needs its own."
                )
            seen[address] = where
    return server_lib.ClusterSpec(cluster)


def _numbered(job: str, tasks: dict[Any, Any]) -> dict[int, Any]:
    """A job as a dictionary from indices to addresses, whose keys JSON has made strings."""
    try:
        numbered = {int(index): address for index, address in tasks.items()}
    except ValueError:
        numbered = {}
    if len(numbered) < len(tasks) or min(numbered) < 0:
        raise ValueError(
            f'TF_CONFIG["cluster"]["{job}"] is an object, so its keys must be task indices, each another one, counted '
            f"from 0; got {list(tasks)}."
        )
    return numbered
