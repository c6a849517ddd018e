"""The pieces in which TensorFlow's GPU build is carried. Needs no GPU."""

from __future__ import annotations

import ctypes
import importlib.util
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def carry() -> Any:
    spec = importlib.util.spec_from_file_location("carry", Path(__file__).with_name("carry.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def pieces(carry: Any, tmp_path: Path) -> Path:
    files = []
    for name, size in (("a.whl", 2500), ("b.whl", 1000), ("empty.whl", 0)):
        files.append(tmp_path / name)
        files[-1].write_bytes(bytes(n % 251 for n in range(size)))
    carry.cut(files, tmp_path / "pieces", 1000)
    return tmp_path / "pieces"


def test_files_come_out_as_they_went_in(carry: Any, pieces: Path, tmp_path: Path) -> None:
    assert sorted(path.name for path in pieces.iterdir()) == ["0000", "0001", "0002", "0003", "manifest.json"]
    assert max(path.stat().st_size for path in pieces.glob("0*")) == 1000
    (tmp_path / "out").mkdir()
    joined = carry.join(pieces, tmp_path / "out")
    assert [path.name for path in joined] == ["a.whl", "b.whl", "empty.whl"]
    for path in joined:
        assert path.read_bytes() == (tmp_path / path.name).read_bytes()


def test_a_missing_and_a_damaged_piece_are_named(carry: Any, pieces: Path, tmp_path: Path) -> None:
    (pieces / "0001").write_bytes(b"something else")
    with pytest.raises(ValueError, match=r"0001 of a\.whl is damaged"):
        carry.join(pieces, tmp_path)
    (pieces / "0001").unlink()
    with pytest.raises(ValueError, match=r"0001 of a\.whl is missing"):
        carry.join(pieces, tmp_path)


@pytest.mark.usefixtures("processes")
def test_empty_libraries_can_be_opened(carry: Any, tmp_path: Path) -> None:
    carry.make_stubs(tmp_path, {"cufft": "libcufft.so.11"})
    ctypes.CDLL(str(tmp_path / "libcufft.so.11"))
