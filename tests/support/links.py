"""A network link between two tasks that a test can cut: a TCP proxy on this machine.

A task connects to the link's port, and the link to the port of the other task. `cut` stops all bytes without closing
anything, as a lost network does: connections stay, and a new one isn't answered. `reset` closes every connection with a
TCP reset and refuses new ones. `mend` ends both. Bytes that were under way when the link was cut arrive then.

While the other task doesn't listen, the link doesn't either, so that a connection is refused as without it.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import threading
import time
from pathlib import Path

__all__ = ["Link"]

_HOST = "127.0.0.1"
_BACKLOG = 4
_CHUNK = 1 << 16
# Bytes that wait for the receiver at most, for each direction of a connection.
_MOST_PENDING = 1 << 20
_LOOK_SECS = 0.1
_RESET = struct.pack("ii", 1, 0)


def _listens(port: int) -> bool:
    """True if a process of this machine listens at a port."""
    wanted = f":{port:04X}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            _, local, _, state = line.split()[:4]
            if state == "0A" and local.endswith(wanted):
                return True
    return False


class Link:
    """One direction of connecting between two tasks: bytes go both ways.

    Args:
      port: port at which the link listens.
      target: port of the task that it leads to.
    """

    def __init__(self, port: int, target: int) -> None:
        self._port = port
        self._target = target
        self._state = "whole"
        self._listener: socket.socket | None = None
        # Connections to the own port that keep others from being answered while the link is cut.
        self._blockers: list[socket.socket] = []
        self._other: dict[socket.socket, socket.socket] = {}
        self._pending: dict[socket.socket, bytearray] = {}
        self._selector = selectors.DefaultSelector()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=f"link to {target}", daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """Stops all bytes, and closes nothing."""
        self._enter("cut")

    def reset(self) -> None:
        """Closes all connections with a reset, and refuses new ones."""
        self._enter("reset")

    def mend(self) -> None:
        """Lets bytes through again."""
        self._enter("whole")

    def close(self) -> None:
        """Ends the link."""
        self._enter("closed")
        self._thread.join(10)
        assert not self._thread.is_alive(), "the link hasn't ended"

    def _enter(self, state: str) -> None:
        with self._lock:
            self._state = state
            if state in ("reset", "closed"):
                self._drop_all()
                self._close_listener()
            elif state == "cut":
                for key in list(self._selector.get_map().values()):
                    self._selector.unregister(key.fileobj)
                self._block()
            if state != "cut":
                self._unblock()
            if state == "whole":
                if self._listener is not None and self._listener not in self._selector.get_map():
                    self._selector.register(self._listener, selectors.EVENT_READ)
                for connection in self._other:
                    self._watch(connection)

    def _run(self) -> None:
        next_look = 0.0
        with self._selector:
            while self._state != "closed":
                # The selector has sockets only while the link is whole.
                found = self._selector.select(_LOOK_SECS)
                with self._lock:
                    if self._state != "whole":
                        continue
                    if time.monotonic() >= next_look:
                        self._follow_target()
                        next_look = time.monotonic() + _LOOK_SECS
                    self._move_bytes(found)

    def _follow_target(self) -> None:
        """Listens if the target does."""
        listens = _listens(self._target)
        if listens and self._listener is None:
            self._listener = socket.create_server((_HOST, self._port), backlog=_BACKLOG)
            self._listener.setblocking(False)
            self._selector.register(self._listener, selectors.EVENT_READ)
        elif not listens:
            self._close_listener()

    def _close_listener(self) -> None:
        if self._listener is not None:
            if self._listener in self._selector.get_map():
                self._selector.unregister(self._listener)
            self._listener.close()
            self._listener = None

    def _block(self) -> None:
        """Fills the queue of connections that wait to be accepted. The system then drops further ones."""
        with contextlib.suppress(OSError):
            while self._listener is not None:
                self._blockers.append(socket.create_connection((_HOST, self._port), 0.2))

    def _unblock(self) -> None:
        for blocker in self._blockers:
            blocker.close()
        self._blockers.clear()

    def _watch(self, connection: socket.socket) -> None:
        """Has the selector look for what a connection can do next."""
        other = self._other[connection]
        wanted = selectors.EVENT_READ if len(self._pending[other]) < _MOST_PENDING else 0
        wanted |= selectors.EVENT_WRITE if self._pending[connection] else 0
        known = self._selector.get_map().get(connection)
        if known is None and wanted:
            self._selector.register(connection, wanted)
        elif known is not None and not wanted:
            self._selector.unregister(connection)
        elif known is not None and known.events != wanted:
            self._selector.modify(connection, wanted)

    def _move_bytes(self, found: list[tuple[selectors.SelectorKey, int]]) -> None:
        for key, events in found:
            if key.fileobj is self._listener:
                self._accept()
                continue
            connection: socket.socket = key.fileobj  # type: ignore[assignment]
            try:
                if events & selectors.EVENT_WRITE and connection in self._other:
                    self._send(connection)
                if events & selectors.EVENT_READ and connection in self._other:
                    self._receive(connection)
            except OSError:
                self._drop(connection)
            for end in (connection, self._other.get(connection)):
                if end in self._other:
                    self._watch(end)

    def _accept(self) -> None:
        assert self._listener is not None
        with contextlib.suppress(BlockingIOError):
            mine, _ = self._listener.accept()
            try:
                theirs = socket.create_connection((_HOST, self._target), 1)
            except OSError:
                mine.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                mine.close()
                return
            for connection, other in ((mine, theirs), (theirs, mine)):
                connection.setblocking(False)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._other[connection] = other
                self._pending[connection] = bytearray()
            self._watch(mine)
            self._watch(theirs)

    def _receive(self, connection: socket.socket) -> None:
        other = self._other[connection]
        chunk = connection.recv(_CHUNK)
        self._pending[other] += chunk
        self._send(other)
        if not chunk:
            self._drop(connection, with_reset=False)

    def _send(self, connection: socket.socket) -> None:
        pending = self._pending[connection]
        with contextlib.suppress(BlockingIOError):
            while pending:
                del pending[: connection.send(pending)]

    def _drop(self, connection: socket.socket, with_reset: bool = True) -> None:
        for end in (connection, self._other.get(connection)):
            if end is None or end not in self._other:
                continue
            del self._other[end]
            del self._pending[end]
            if end in self._selector.get_map():
                self._selector.unregister(end)
            if with_reset:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            end.close()

    def _drop_all(self) -> None:
        for connection in list(self._other):
            self._drop(connection)
