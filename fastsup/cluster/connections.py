"""The network connections of this process to the tasks of a cluster."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Collection

__all__ = ["end_connections"]

# Where Linux and macOS list the open files of a process.
_OPEN_FILES = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"
_MAPPED = "::ffff:"


def end_connections(addresses: Collection[str]) -> int:
    """Ends all TCP connections of this process to some addresses.

    To their users they look as if the other side had closed them. TensorFlow's runtime then fails the calls that wait
    for an answer, with `tf.errors.UnavailableError`, and connects again for the next ones.

    Args:
      addresses: HOST:PORT of each.

    Returns:
      The number of connections.
    """
    ends: set[tuple[str | int | bytes, ...]] = set()
    for address in addresses:
        host, _, port = address.rpartition(":")
        try:
            found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
        except (OSError, ValueError):
            continue
        ends |= {end[:2] for *_, end in found}
    return sum(_end_if_to(int(name), ends) for name in os.listdir(_OPEN_FILES) if name.isdigit())


def _end_if_to(descriptor: int, ends: set[tuple[str | int | bytes, ...]]) -> bool:
    """Ends the connection of a descriptor if it is one to one of some addresses. Returns whether it was."""
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return False
        blocks = os.get_blocking(descriptor)
        with socket.socket(fileno=os.dup(descriptor)) as connection:
            # `socket.setdefaulttimeout` has changed it, for the other users of the socket too.
            os.set_blocking(descriptor, blocks)
            peer = connection.getpeername()
            if not isinstance(peer, tuple) or (str(peer[0]).removeprefix(_MAPPED), peer[1]) not in ends:
                return False
            connection.shutdown(socket.SHUT_RDWR)
            return True
    except OSError:
        return False  # Not connected, or closed in the meantime.
