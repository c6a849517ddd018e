"""The connections of a process to some tasks are ended, and no others."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from fastsup.cluster.peer_liveness import end_connections


@pytest.fixture(params=[socket.AF_INET, socket.AF_INET6])
def listeners(request: pytest.FixtureRequest) -> Iterator[list[socket.socket]]:
    loopback = "127.0.0.1" if request.param == socket.AF_INET else "::1"
    try:
        made = [socket.create_server((loopback, 0), family=request.param) for _ in range(2)]
    except OSError:
        pytest.skip("this machine has no such loopback address")
    yield made
    for listener in made:
        listener.close()


def test_connections_to_one_address_are_ended(listeners: list[socket.socket]) -> None:
    ended, other = (socket.create_connection(listener.getsockname()[:2]) for listener in listeners)
    accepted = [listener.accept()[0] for listener in listeners]
    host, port = listeners[0].getsockname()[:2]
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    assert end_connections([address]) == 1
    assert ended.recv(1) == b""
    assert accepted[0].recv(1) == b""
    other.sendall(b"x")
    assert accepted[1].recv(1) == b"x"
    for connection in (ended, other, *accepted):
        connection.close()
    assert end_connections([address]) == 0


def test_other_files_are_left_alone(listeners: list[socket.socket], monkeypatch: pytest.MonkeyPatch) -> None:
    """No descriptor is left, and a socket of another user keeps its mode, whatever the default timeout."""
    host, port = listeners[0].getsockname()[:2]
    before = len(os.listdir("/dev/fd"))
    socket.setdefaulttimeout(5)
    try:
        for _ in range(3):
            end_connections([f"{host}:{port + 1}"])
    finally:
        socket.setdefaulttimeout(None)
    assert len(os.listdir("/dev/fd")) == before
    assert all(os.get_blocking(listener.fileno()) for listener in listeners)


@pytest.mark.parametrize("address", ["", "localhost", "localhost:", "no.such.host.invalid:1", "localhost:ps"])
def test_addresses_that_are_none(address: str) -> None:
    assert end_connections([address]) == 0
