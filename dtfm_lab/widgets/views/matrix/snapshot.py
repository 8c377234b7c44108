"""A matrix of links as SVG that stands alone; its cells are a small image inside, whatever their number."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence
from html import escape
from itertools import accumulate, pairwise

import numpy as np
import numpy.typing as npt

from dtfm_lab.domain.units import FloatArray
from dtfm_lab.figures.palette import LINE_GREY

SIDE_PX = 420
TOP = 26
LABEL_PX = 13
LONGEST = 24
"""letters of a name"""
MOST_BORDERS = 64
MOST_CELLS = 128
"""a side; of a bigger network every second or third row and column is drawn"""
SHADES = 64
NAMED_UP_TO = 24
RAMP = ("fde725", "7ad151", "22a884", "2a788e", "414487", "440154")
"""viridis, light is cheap"""
DIAGONAL = (128, 128, 128)


def matrix_picture(
    values: FloatArray, names: Sequence[str], blocks: Sequence[tuple[str, int]], title: str, *, light_is_low: bool
) -> str:
    """(N, N) values as colours by their logarithm, named by device where there are few, else by block.

    ``blocks`` are names and how many devices each has, in order.
    """
    n = len(names)
    off = ~np.eye(n, dtype=bool)
    usable = values[off & (values > 0)]
    low, high = (float(usable.min()), float(usable.max())) if usable.size else (1.0, 1.0)
    share = np.log(np.clip(values, low, high) / low) / (np.log(high / low) or 1.0)
    shade = 1 + np.rint((share if light_is_low else 1 - share) * (SHADES - 1)).astype(np.uint8)
    shade[~off] = 0
    every = -(-n // MOST_CELLS)
    image = base64.b64encode(_png(shade[::every, ::every])).decode()
    named = [(name, 1) for name in names] if n <= NAMED_UP_TO else [(name or "no region", k) for name, k in blocks]
    left = 12 + 7 * max(len(shortened(label)) for label, _ in named)
    edges = [at / n * SIDE_PX for at in accumulate(count for _, count in blocks)][:-1]
    lines = "".join(f"M{left + at:.1f} {TOP}v{SIDE_PX}M{left} {TOP + at:.1f}h{SIDE_PX}" for at in edges[:MOST_BORDERS])
    light, dark = (low, high) if light_is_low else (high, low)
    told = escape(f"{title}: light {light:.3g}, dark {dark:.3g}; from row to column")
    width = left + SIDE_PX + 12
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {SIDE_PX + 40}" width="{width}" role="img" '
        f'font-family="sans-serif" font-size="11" fill="{LINE_GREY}"><title>{told}</title>'
        f'<text x="{left}" y="16">{told}</text>{_labels(named, n, left)}'
        f'<image x="{left}" y="{TOP}" width="{SIDE_PX}" height="{SIDE_PX}" preserveAspectRatio="none" '
        f'style="image-rendering:pixelated" href="data:image/png;base64,{image}"/>'
        f'<path d="{lines}" stroke="#fff" stroke-width="1.5"/></svg>'
    )


def shortened(label: str) -> str:
    """A name, cut where it is too long for a picture."""
    return label if len(label) <= LONGEST else label[: LONGEST - 1] + "…"


def _labels(named: Sequence[tuple[str, int]], n: int, left: float) -> str:
    """Beside the middles of their rows, so many that none covers another."""
    ends = [*accumulate((count for _, count in named), initial=0)]
    middles = [(a + b) / 2 / n * SIDE_PX for a, b in pairwise(ends)]
    seldom = max(1, -(-len(named) * LABEL_PX // SIDE_PX))
    return "".join(
        f'<text x="{left - 6}" y="{TOP + middle + 4:.0f}" text-anchor="end">{escape(shortened(label))}</text>'
        for middle, (label, _) in list(zip(middles, named, strict=True))[::seldom]
    )


def _png(shade: npt.NDArray[np.uint8]) -> bytes:
    """An image of one palette colour a cell; 0 is a device with itself."""
    ends = np.array([[int(color[at : at + 2], 16) for at in (0, 2, 4)] for color in RAMP], dtype=float)
    at = np.linspace(0, len(RAMP) - 1, SHADES)
    ramp = np.column_stack([np.interp(at, np.arange(len(RAMP)), ends[:, channel]) for channel in range(3)])
    palette = np.vstack([DIAGONAL, np.rint(ramp)]).astype(np.uint8)
    height, width = shade.shape
    rows = np.column_stack([np.zeros(height, np.uint8), shade])  # each row begins with its filter: none
    parts = [
        (b"IHDR", struct.pack(">2I5B", width, height, 8, 3, 0, 0, 0)),
        (b"PLTE", palette.tobytes()),
        (b"IDAT", zlib.compress(rows.tobytes(), 9)),
        (b"IEND", b""),
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in parts)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
