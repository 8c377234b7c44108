"""Pieces of SVG in pixels: text, lines, markers, images of cells."""

import base64
import html
import re
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dtfm_lab.domain.units import FloatArray

INK, SOFT, GRID, PAPER = "#212121", "#616161", "#e6e6e6", "#ffffff"
LETTER_PX, LINE_PX = 6.6, 15
"""Width of a letter and height of a line of text at 12 px, on average."""
MOST_CORNERS = 250
"""Points of one curve; longer ones are thinned."""
MOST_STROKES = 1_500
"""Lines of one trace; of more, every second or third is drawn."""
MOST_LETTERS = 60
"""Letters of a label; longer ones are cut."""
MOST_CELLS = 128
"""Cells along a side of an image; of larger ones every second or third row and column is drawn."""
DASHES = {"dash": "6 4", "dot": "1 4", "dashdot": "6 3 2 3", "longdash": "10 5"}


def text(
    x: float,
    y: float,
    words: str,
    color: str = INK,
    *,
    size: float = 12,
    anchor: str = "start",
    line_px: float = LINE_PX,
    most: int = 200,
) -> str:
    """Return words in plotly's HTML as SVG: ``<br>`` ends a line, ``<b>`` makes it bold; ``most`` letters a line."""
    parts = []
    for at, line in enumerate(str(words).split("<br>")):
        plain = html.unescape(re.sub(r"</?\w+[^>]*>", "", line))
        plain = html.escape(plain if len(plain) <= most else plain[: most - 1] + "…")
        if plain.strip():
            bold = ' font-weight="600"' if "<b>" in line else ""
            font = f' font-size="{size:g}"' if size != 12 else ""
            look = f'{font}{bold}{"" if anchor == "start" else f""" text-anchor="{anchor}" """.rstrip()}'
            fill = "" if color == INK else f' fill="{color}"'
            parts.append(f'<text x="{x:.0f}" y="{y + at * line_px:.0f}"{look}{fill}>{plain}</text>')
    return "".join(parts)


def path(d: str, color: str, width: float, more: str = "") -> str:
    """Return a stroke without a fill."""
    return f'<path d="{d}" fill="none" stroke="{color}" stroke-width="{width:.3g}"{more}/>' if d else ""


def look_of(line: Mapping[str, Any], opacity: float = 1.0) -> str:
    """Return the attributes for dashes and opacity."""
    dash = DASHES.get(str(line.get("dash")))
    return (f' stroke-dasharray="{dash}" stroke-linecap="round"' if dash else "") + (
        f' opacity="{opacity:.2g}"' if opacity < 1 else ""
    )


def polylines(x: FloatArray, y: FloatArray, *, steps: bool = False, closed: bool = False) -> str:
    """Return lines through points in pixels, interrupted where one is missing; equal points are drawn once."""
    there = np.isfinite(x) & np.isfinite(y)
    parts = [part[there[part]] for part in np.split(np.arange(len(x)), np.flatnonzero(~there))]
    parts = [part for part in parts if len(part) > 1]
    drawn = []
    for kept in parts[:: 1 + len(parts) // MOST_STROKES]:
        if len(kept) > MOST_CORNERS and not closed:
            kept = kept[np.unique(np.linspace(0, len(kept) - 1, MOST_CORNERS).astype(int))]
        digits = 0 if closed or len(parts) > MOST_CORNERS else 1
        (u, v), *others = _corners(np.column_stack([x[kept], y[kept]]).round(digits)).tolist()
        joined = "".join(f"H{a:g}V{b:g}" if steps else f"L{a:g} {b:g}" for a, b in others)
        if others:
            drawn.append(f"M{u:g} {v:g}{joined}{'Z' if closed else ''}")
    return "".join(drawn)


def _corners(points: FloatArray) -> FloatArray:
    """Return the ends of a straight line; of any other all points, without repetitions."""
    (x, y), (dx, dy) = points[0], points[-1] - points[0]
    aside = np.abs((points[:, 0] - x) * dy - (points[:, 1] - y) * dx)
    if (aside <= 0.6 * np.hypot(dx, dy)).all() and np.hypot(dx, dy) > 0:
        return np.asarray(points[[0, -1]])
    return np.asarray(points[np.append(True, (np.diff(points, axis=0) != 0).any(axis=1))])


def markers(x: FloatArray, y: FloatArray, marker: Mapping[str, Any], color: str) -> str:
    """Return discs or diamonds, one path for all of one look; a disc is a line of length 0 with round ends."""
    n, line = len(x), marker.get("line") or {}
    columns = (spread(marker.get("color", color), n), spread(marker.get("size", 6), n), spread(line.get("width", 0), n))
    edges, angular = spread(line.get("color", INK), n), str(marker.get("symbol", "circle")).startswith(("dia", "squ"))
    groups: dict[tuple[str, float, float, str], list[str]] = {}
    for at, (fill, size, width) in enumerate(zip(*columns, strict=True)):
        if not np.isfinite(x[at] + y[at]):
            continue
        half = float(size) / 2
        corner = f"M{x[at] - half:.1f} {y[at]:.1f}l{half:g} -{half:g} {half:g} {half:g} -{half:g} {half:g}z"
        look = (str(fill), float(size), float(width), str(edges[at]))
        groups.setdefault(look, []).append(corner if angular else f"M{x[at]:.1f} {y[at]:.1f}h0")
    drawn = []
    for (fill, size, width, edge), spots in groups.items():
        d = "".join(spots)
        if angular:
            drawn.append(f'<path d="{d}" fill="{fill}"/>')
            continue
        if width and edge not in ("rgba(0,0,0,0)", "transparent"):
            drawn.append(path(d, edge, size + 2 * width, ' stroke-linecap="round"'))
        drawn.append(path(d, fill, size, ' stroke-linecap="round"'))
    return "".join(drawn)


def image(cells: FloatArray, colors: Sequence[Sequence[Any]], low: float, high: float, box: Sequence[float]) -> str:
    """Return cells as colours, the first row on top, missing ones light grey. ``box``: left, top, right, bottom."""
    every = -(-max(cells.shape) // MOST_CELLS)
    cells = cells[::every, ::every]
    share = np.clip((cells - low) / ((high - low) or 1.0), 0.0, 1.0)
    stops = np.array([float(stop) for stop, _ in colors])
    ramp = np.array([[int(str(color)[at : at + 2], 16) for at in (1, 3, 5)] for _, color in colors], dtype=float)
    levels = np.linspace(0, 1, 64)
    palette = np.column_stack([np.interp(levels, stops, ramp[:, channel]) for channel in range(3)])
    missing = ~np.isfinite(share)
    shade = np.where(missing, 0, 1 + np.rint(np.where(missing, 0.0, share) * 63)).astype(np.uint8)
    encoded = base64.b64encode(_png(shade, np.vstack([[240, 240, 240], np.rint(palette)]).astype(np.uint8))).decode()
    left, top, right, bottom = box
    return (
        f'<image x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" height="{bottom - top:.1f}" '
        f'preserveAspectRatio="none" style="image-rendering:pixelated" href="data:image/png;base64,{encoded}"/>'
    )


def _png(shade: npt.NDArray[np.uint8], palette: npt.NDArray[np.uint8]) -> bytes:
    """Return a PNG in which each pixel is an index of the palette."""
    height, width = shade.shape
    rows = np.column_stack([np.zeros(height, np.uint8), shade])  # each row begins with its filter: none
    parts = [
        (b"IHDR", struct.pack(">2I5B", width, height, 8, 3, 0, 0, 0)),
        (b"PLTE", palette.tobytes()),
        (b"IDAT", zlib.compress(rows.tobytes(), 9)),
        (b"IEND", b""),
    ]
    chunks = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def spread(value: Any, n: int) -> list[Any]:
    """Return a value for each of ``n`` points, from one for all or one for each."""
    found = decoded(value)
    if isinstance(found, str) or np.ndim(found) == 0:
        return [found] * n
    return [*found, *[""] * n][:n]


def decoded(value: Any) -> Any:
    """Return a column of a figure, whether plotly has packed it or not."""
    if not isinstance(value, Mapping):
        return value
    flat = np.frombuffer(base64.b64decode(value["bdata"]), value["dtype"])
    return flat.reshape([int(side) for side in str(value["shape"]).split(",")]) if "shape" in value else flat


def numbers(values: Any, names: Mapping[str, int] | None = None) -> FloatArray:
    """Return values as numbers, NaN for missing ones; names of a category axis become their indices."""
    found = decoded(values)
    if not isinstance(found, np.ndarray) or found.dtype == object:
        is_column = isinstance(found, Iterable) and not isinstance(found, str)
        found = [_number(value, names or {}) for value in (found if is_column else [found])]
    return np.asarray(found, dtype=float)


def _number(value: Any, names: Mapping[str, int]) -> float:
    if value is None:
        return np.nan
    return float(names[value]) if value in names else float(value)
