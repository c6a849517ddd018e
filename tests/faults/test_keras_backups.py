"""Keras's BackupAndRestore under `accelerate`: what it does to the files isn't ours, so it must be what Keras does."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = [pytest.mark.one_world]


def test_accelerated_backups_do_the_same_to_the_files(faults: Any) -> None:
    """So a fault meets the same operation at the same place. docs/savers.md says what Keras leaves then."""
    plain, accelerated = faults.run("keras_backups")
    assert accelerated == pytest.approx(plain)
    operations = [(name, path) for name, path, _ in faults.operations()]

    def operations_in(folder: str) -> list[tuple[str, str]]:
        return [(name, path.removeprefix(folder)) for name, path in operations if path.startswith(folder)]

    assert len(operations_in("plain")) > 30
    assert operations_in("accelerated") == operations_in("plain")
