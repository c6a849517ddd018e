"""Writers of numbers for `SummaryHook`: lines of text, and TensorBoard's event files without TensorFlow."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import socket
import time
from typing import Any, BinaryIO

from fastsup.common.files import naming
from fastsup.core.checks import path_argument

__all__ = ["CsvWriter", "JsonLinesWriter", "TensorBoardWriter"]


class _LinesWriter:
    """Appends a line of text for each number.

    Args:
      path: the file. Its directory is created if it doesn't exist. If a process was killed while it wrote the last
        line, the incomplete line is removed.

    Raises:
      TypeError: If `path` isn't a path.
      OSError: If the file can't be written.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path: str = path_argument("path", path, "file")
        os.makedirs(os.path.dirname(os.path.abspath(self.path)), exist_ok=True)
        self._check_header()
        _cut_unfinished_line(self.path)
        # Each line is passed to the operating system immediately, so a killed process loses none.
        self._file: BinaryIO = open(self.path, "ab", buffering=0)  # noqa: SIM115
        if not self._file.tell():
            self._write(self._header())

    def __repr__(self) -> str:
        return f"<fastsup.loop.{type(self).__name__} to {self.path}>"

    def add_scalar(self, name: str, value: float, step: int) -> None:
        """Writes a number.

        Args:
          name: its name.
          value: the number.
          step: the global step.

        Raises:
          OSError: If the file can't be written.
        """
        self._write(self._line(name, float(value), int(step), time.time()))

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def _check_header(self) -> None:
        """Rejects a file of another program, before anything is cut off or added."""
        header = self._header().encode()
        with contextlib.suppress(FileNotFoundError), open(self.path, "rb") as file:
            if not header.startswith(file.read(len(header))):
                raise ValueError(
                    f"path={self.path!r} is a file with other content: it doesn't begin with "
                    f"{self._header().strip()!r}. Pass another path."
                )

    def _write(self, text: str) -> None:
        data = text.encode()
        with naming(self.path):
            # On a full disk, only a part of the data may be written. The next attempt raises the error.
            while data:
                data = data[self._file.write(data) :]

    def _header(self) -> str:
        return ""

    def _line(self, name: str, value: float, step: int, now: float) -> str:
        raise NotImplementedError


def _cut_unfinished_line(path: str) -> None:
    try:
        file = open(path, "r+b")  # noqa: SIM115
    except FileNotFoundError:
        return
    with file:
        end = file.seek(0, os.SEEK_END)
        while end:
            start = max(0, end - 4096)
            file.seek(start)
            newline = file.read(end - start).rfind(b"\n")
            if newline >= 0:
                end = start + newline + 1
                break
            end = start
        file.truncate(end)


class JsonLinesWriter(_LinesWriter):
    """Writes one JSON object per line, with "step", "time" (seconds since 1970), "name" and "value".

        SummaryHook(JsonLinesWriter("metrics.jsonl"), every_steps=100)

    A loop that resumes from a checkpoint appends to the file. Of two lines with the same step and name, the later
    one counts. NaN and infinite values are strings, because JSON has no such numbers.

    Args:
      path: the file. Its directory is created if it doesn't exist.

    Raises:
      OSError: If the file can't be written.
    """

    def _line(self, name: str, value: float, step: int, now: float) -> str:
        number: Any = value if value - value == 0 else repr(value)
        return json.dumps({"step": step, "time": now, "name": name, "value": number}) + "\n"


class CsvWriter(_LinesWriter):
    """Writes lines with the columns step, time (seconds since 1970), name and value.

        SummaryHook(CsvWriter("metrics.csv"), every_steps=100)

    A loop that resumes from a checkpoint appends to the file. Of two lines with the same step and name, the later
    one counts.

    Args:
      path: the file. Its directory is created if it doesn't exist.

    Raises:
      ValueError: If the file has other columns.
      OSError: If the file can't be written.
    """

    def _header(self) -> str:
        return "step,time,name,value\r\n"

    def _line(self, name: str, value: float, step: int, now: float) -> str:
        text = io.StringIO(newline="")
        csv.writer(text).writerow([step, repr(now), name, repr(value)])
        return text.getvalue()


class TensorBoardWriter:
    """Writes an event file for TensorBoard with the package tensorboard. Needs no TensorFlow.

        SummaryHook(TensorBoardWriter("logs"), every_steps=100)

    Args:
      directory: folder for the file. It is created if it doesn't exist.

    Raises:
      TypeError: If `directory` isn't a path.
      ImportError: If the package tensorboard isn't installed.
      OSError: If the file can't be written.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        try:
            from tensorboard.compat.proto.event_pb2 import Event
            from tensorboard.compat.proto.summary_pb2 import Summary
            from tensorboard.summary.writer.record_writer import RecordWriter
        except ImportError as error:
            raise ImportError(
                "TensorBoardWriter needs the package tensorboard: pip install tensorboard, or the extra "
                "'fastsup[examples]'."
            ) from error
        self.directory: str = path_argument("directory", directory, "directory")
        os.makedirs(self.directory, exist_ok=True)
        self._event: Any = Event
        self._summary: Any = Summary
        name = f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}.{os.getpid()}.fastsup"
        self._path = os.path.join(self.directory, name)
        self._records: Any = RecordWriter(open(self._path, "xb"))  # noqa: SIM115
        self._write(file_version="brain.Event:2")

    def __repr__(self) -> str:
        return f"<fastsup.loop.TensorBoardWriter to {self.directory}>"

    def add_scalar(self, name: str, value: float, step: int) -> None:
        """Writes a number.

        Args:
          name: its name.
          value: the number.
          step: the global step.

        Raises:
          OSError: If the file can't be written.
        """
        number = self._summary.Value(tag=name, simple_value=float(value))
        self._write(step=int(step), summary=self._summary(value=[number]))

    def close(self) -> None:
        """Closes the file."""
        self._records.close()

    def _write(self, **content: Any) -> None:
        with naming(self._path):
            self._records.write(self._event(wall_time=time.time(), **content).SerializeToString())
            self._records.flush()
