"""The few shapes of SVG that the pictures are drawn with."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

FONT = "system-ui, 'Segoe UI', 'Helvetica Neue', Arial, sans-serif"


def document(width: int, height: int, title: str, shapes: Iterable[str]) -> str:
    """A picture on a white ground, so that it can be read on a dark page too.

    Args:
      width: in pixels.
      height: in pixels.
      title: what a reader hears who doesn't see it.
      shapes: the shapes, from the bottom to the top.
    """
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" font-family="{FONT}" font-size="13">\n<title>{escape(title)}</title>\n'
    )
    return head + rectangle(0, 0, width, height, "#ffffff") + "".join(shapes) + "</svg>\n"


def rectangle(x: float, y: float, width: float, height: float, fill: str, stroke: str = "none", radius: int = 6) -> str:
    """A rectangle with round corners; all lengths in pixels."""
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius}" fill="{fill}" '
        f'stroke="{stroke}"/>\n'
    )


def text(x: float, y: float, content: str, size: int = 13, fill: str = "#1f2933", anchor: str = "start",
         weight: str = "normal") -> str:  # fmt: skip
    """A line of text whose base line is at y."""
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{fill}" text-anchor="{anchor}" '
        f'font-weight="{weight}">{escape(content)}</text>\n'
    )


def line(points: Iterable[tuple[float, float]], stroke: str, width: float = 1, dash: str = "") -> str:
    """A line through points."""
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<polyline points="{path}" fill="none" stroke="{stroke}" stroke-width="{width:g}"{dashes}/>\n'


def dot(x: float, y: float, fill: str) -> str:
    """A point of a line."""
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{fill}"/>\n'
