"""What importing the package loads, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_core_is_imported_without_tensorflow() -> None:
    script = Path(__file__).parents[1] / "import_time.py"
    result = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_says_what_to_install_where_there_is_no_tensorflow(tmp_path: Path) -> None:
    script = (
        "import sys; sys.modules['tensorflow'] = None\ntry: import fastsup.train\nexcept ImportError as e: print(e)"
    )
    # Not from the source folder, which would be imported instead of what is installed.
    result = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )
    assert "pip install 'fastsup[cpu]'" in result.stdout
