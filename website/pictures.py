"""Makes pictures of the documents, into docs/pictures/. `website.measured` makes the charts.

python -m website.pictures hook-costs        # what `python -m fastsup profile` prints of examples/digits.py
python -m website.pictures profile-page      # its page, as a browser shows it: needs chromium
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "pictures"
EXAMPLE, STEPS = ROOT / "examples" / "digits.py", ["--steps", "20000"]
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
# rich's own picture takes its font from the network.
_TERMINAL = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, monospace; font-size: {char_height}px;
  line-height: {line_height}px; font-variant-east-asian: full-width; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: system-ui, sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def hook_costs() -> str:
    """The profile of the digits example, as a terminal shows it."""
    from rich.console import Console
    from rich.text import Text

    from fastsup import HookProfiler
    from fastsup.common.script import ScriptFile
    from fastsup.profile.command import run_profiled
    from fastsup.profile.table import WIDTH, lines_of

    profiler = HookProfiler()
    # The script ends by SystemExit.
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(SystemExit):
        shutil.copy(EXAMPLE, folder)
        os.chdir(folder)
        run_profiled(ScriptFile(EXAMPLE.name), STEPS, profiler)
    console = Console(record=True, width=WIDTH, highlight=False, file=io.StringIO())
    for line, style in lines_of(profiler.report()):
        console.print(Text(line, style=style))
    return console.export_svg(title="python -m fastsup profile digits.py", code_format=_TERMINAL, unique_id="profile")


def profile_page() -> None:
    """The page that `--html` writes of the digits example, as a browser shows it."""
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser is None:
        raise SystemExit(f"python -m website.pictures: no browser found, of {', '.join(_BROWSERS)}")
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "profile.html"
        shutil.copy(EXAMPLE, folder)
        command = [sys.executable, "-m", "fastsup", "profile", "--html", page.name, EXAMPLE.name, *STEPS]
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        subprocess.run(
            [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage",
             f"--user-data-dir={folder}/browser", "--window-size=1000,1190",
             f"--screenshot={FOLDER / 'profile-page.png'}", page.as_uri()],
            check=True, timeout=120, stderr=subprocess.DEVNULL,
        )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m website.pictures", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", choices=["hook-costs", "profile-page"], help="the picture")
    name = parser.parse_args().name
    if name == "profile-page":
        profile_page()
    else:
        (FOLDER / "hook-costs.svg").write_text(hook_costs())


if __name__ == "__main__":
    main()
