"""Writes a graph as text, which takes a while, while the session does something else."""

from __future__ import annotations

import threading
from typing import Any

from fastsup.events.graph_text import write_graph_as_text
from fastsup.runtime.interpreter_end import uninterrupted


class GraphWriting:
    """A file with a graph, being written in a thread.

    Args:
      graph_def: the GraphDef.
      directory: where to write it.
      name: name of the file.
    """

    def __init__(self, graph_def: Any, directory: str, name: str) -> None:
        self._error: BaseException | None = None
        self._thread = threading.Thread(
            target=self._write, args=(graph_def, directory, name), name=f"writing {name}", daemon=True
        )
        self._thread.start()

    def _write(self, *args: Any) -> None:
        try:
            with uninterrupted:
                write_graph_as_text(*args)
        except BaseException as error:
            self._error = error

    def wait(self) -> None:
        """Returns when the file is written.

        Raises:
          tf.errors.OpError: it couldn't be written.
        """
        self._thread.join()
        if self._error is not None:
            raise self._error
