"""The server of a task: what it says when it can't start."""

from __future__ import annotations

import socket
from typing import Any
from unittest import mock

import pytest
import tensorflow as tf

from fastsup.cluster.server import start_std_server
from fastsup.experiment import Experiment


@pytest.mark.parametrize("kind", ["RunConfig", "older"])
def test_a_port_that_somebody_listens_at(kind: str) -> None:
    with socket.create_server(("localhost", 0)) as taken:
        address = f"localhost:{taken.getsockname()[1]}"
        config = mock.Mock(
            cluster_spec=tf.train.ClusterSpec({"chief": ["localhost:1"], "ps": [address]}), task_type="ps", task_id=0,
            master="grpc://" + address, session_config=None, protocol=None, tf_config=None,
        )  # fmt: skip
        with pytest.raises(tf.errors.UnknownError) as raised:
            start(config, kind)
    assert "Could not start gRPC server: ps 0 can't listen at " + address in str(raised.value)


def start(config: Any, kind: str) -> None:
    if kind == "RunConfig":
        start_std_server(config)
    else:
        estimator = mock.Mock(config=config, model_dir="dir")
        Experiment(estimator, None, None)._start_server()
