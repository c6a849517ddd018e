"""The page as a browser shows it, without a network."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from processes import Processes

from fastsup import HookProfiler
from fastsup.profile.page import _COLOURS

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no browser found: apt-get install chromium")


@pytest.fixture
def browse(processes: Processes) -> Callable[..., str]:
    """Opens a page, with no host to be found, and ends. Returns what the browser prints."""

    def browse(page: Path, *arguments: str) -> str:
        command = [
            str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage",
            "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={page.parent / 'browser'}",
            "--window-size=1000,1700", *arguments, page.as_uri(),
        ]  # fmt: skip
        return str(processes.run(*command, encoding="utf-8", check=True).stdout)

    return browse


def pixels(path: Path) -> Any:
    """The colours of a picture, an array of rows of three numbers each."""
    import tensorflow as tf

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        return session.run(tf.io.decode_png(path.read_bytes(), channels=3)).reshape(-1, 3)


def rgb(colour: str) -> list[int]:
    return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]


def test_what_is_seen(recorded: HookProfiler, tmp_path: Path, browse: Any) -> None:
    page, picture = tmp_path / "profile.html", tmp_path / "profile.png"
    recorded.write_html(page)
    browse(page, f"--screenshot={picture}")
    seen = pixels(picture)
    # At least the bars of the largest costs, in the costs, the timelines and the legend.
    for phase, at_least in (("save", 20_000), ("runtime", 1_000), ("before_run", 100)):
        assert (seen == rgb(_COLOURS[phase])).all(axis=1).sum() > at_least, phase


def test_what_is_in_it(recorded: HookProfiler, tmp_path: Path, browse: Any) -> None:
    """As the browser has understood it."""
    page = tmp_path / "profile.html"
    recorded.write_html(page)
    document = browse(page, "--dump-dom")
    data = re.search(r'<script type="application/json" id="profile">(.*?)</script>', document, re.DOTALL)
    assert data is not None
    assert json.loads(data[1])["steps"] == 100
    assert document.count("<table>") == 2
    assert "Look first at the saves of NamedHook #2" in document
