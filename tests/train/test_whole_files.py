"""Files that are written whole: they take the place of the old one, unless that is a device, a pipe or the like."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from fastsup.common import files

SHARED_MEMORY = "/dev/shm"


@pytest.mark.skipif(not os.access(SHARED_MEMORY, os.W_OK), reason="there is no shared memory that is a directory")
def test_a_file_in_shared_memory_is_one_like_others() -> None:
    """A program that is killed while it writes must leave the old file, there too."""
    with tempfile.TemporaryDirectory(dir=SHARED_MEMORY) as folder:
        path = Path(folder) / "state"
        path.write_text("old")
        with path.open() as opened:
            files.write_whole(path, "new")
            assert opened.read() == "old"
        assert path.read_text() == "new"


@pytest.mark.parametrize("directory", ["/development", "/device/runs", "/processed"])
def test_a_directory_whose_name_begins_as_that_of_devices(directory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.path.realpath", lambda path: path)
    assert not files._is_special(f"{directory}/state")
    assert files._is_special("/dev/stdout")
    assert files._is_special("/proc/self/fd/1")


def test_an_open_file_is_written_to_through_its_descriptor(tmp_path: Path) -> None:
    """As `> file` of a shell does it for /dev/stdout."""
    with (tmp_path / "output").open("w+") as output:
        files.write_whole(f"/dev/fd/{output.fileno()}", "text")
        assert (tmp_path / "output").read_text() == "text"
        assert os.listdir(tmp_path) == ["output"]
