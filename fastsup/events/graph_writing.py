"""Writes a graph as text in a thread, while the session does other work."""

from __future__ import annotations

import threading
from typing import Any

from fastsup.common.interpreter_end import completed_before_exit
from fastsup.events.graph_text import write_graph_as_text


class GraphWriting:
    """Writes a file with a graph in a thread, which starts at once.

    Args:
      graph_def: the GraphDef.
      directory: directory of the file; made if it doesn't exist.
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
            with completed_before_exit:
                write_graph_as_text(*args)
        except BaseException as error:
            self._error = error

    def wait(self) -> None:
        """Waits until the file is written.

        Raises:
          tf.errors.OpError: the file couldn't be written.
        """
        self._thread.join()
        if self._error is not None:
            raise self._error
