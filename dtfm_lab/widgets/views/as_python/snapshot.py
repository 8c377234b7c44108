"""Code as a picture, where no widget runs."""

from __future__ import annotations

from xml.sax.saxutils import escape

MOST_LINES = 40
MOST_LETTERS = 120
LINE_PX = 17


def code_svg(code: str) -> str:
    """Its first lines; empty where there is none."""
    lines = code.rstrip("\n").split("\n") if code else []
    if not lines:
        return ""
    shown = [line if len(line) <= MOST_LETTERS else line[: MOST_LETTERS - 1] + "…" for line in lines[:MOST_LINES]]
    if len(lines) > MOST_LINES:
        shown.append(f"… and {len(lines) - MOST_LINES} lines more")
    height = LINE_PX * len(shown) + 16
    texts = "".join(
        f'<text x="10" y="{LINE_PX * number + 12}" xml:space="preserve">{escape(line)}</text>'
        for number, line in enumerate(shown, 1)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 940 {height}" width="940" height="{height}" role="img" '
        f'font-family="monospace" font-size="12.5" fill="#212121"><rect width="940" height="{height}" fill="#f5f5f5"/>'
        f"{texts}</svg>"
    )
