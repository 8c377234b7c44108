"""Plotly figures and SVG as small PNG files, drawn by a Chromium on this machine; nothing is asked of a network."""

from __future__ import annotations

import base64
import io
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from PIL import Image
from playwright.sync_api import sync_playwright
from plotly.offline import get_plotlyjs

if TYPE_CHECKING:
    from playwright.sync_api import Page

WIDTH_PX = 880
"""Width of a picture where a figure says none: that of a notebook's cell on a page."""
HEIGHT_PX = 450
"""Height where a figure says none: plotly's own."""
DRAW = """async ([figure, width, height, scale]) => {
    const layout = { ...figure.layout, width, height, autosize: false };
    const url = await Plotly.toImage({ data: figure.data, layout }, { format: "png", width, height, scale });
    return url.split(",")[1];
}"""
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--font-render-hinting=none"]


class Draughtsman:
    """Draws in one page of one browser, which is kept open."""

    def __init__(self, page: Page) -> None:
        self._page = page

    def plotly_png(self, figure: Mapping[str, Any], scale: float, n_colors: int) -> bytes:
        """A figure ({"data", "layout"}) as PNG with a palette of so many colours, ``scale`` dots a pixel."""
        layout = figure.get("layout", {})
        size = [layout.get("width") or WIDTH_PX, layout.get("height") or HEIGHT_PX]
        plain = {"data": figure.get("data", []), "layout": layout}
        drawn = self._page.evaluate(DRAW, [plain, *size, scale])
        return with_palette(base64.b64decode(drawn), n_colors)

    def svg_png(self, svg: str, scale: float, n_colors: int) -> bytes:
        """A standalone SVG as PNG with a palette, on white."""
        source = json.dumps(f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}")
        drawn = self._page.evaluate(
            f"""async ([scale, mostPx]) => {{
                const image = new Image();
                image.src = {source};
                await image.decode();
                const fit = Math.min(1, mostPx / image.width) * scale;
                const canvas = document.createElement("canvas");
                [canvas.width, canvas.height] = [image.width * fit, image.height * fit];
                const context = canvas.getContext("2d");
                context.fillStyle = "#fff";
                context.fillRect(0, 0, canvas.width, canvas.height);
                context.drawImage(image, 0, 0, canvas.width, canvas.height);
                return canvas.toDataURL("image/png").split(",")[1];
            }}""",
            [scale, WIDTH_PX],
        )
        return with_palette(base64.b64decode(drawn), n_colors)


def picture_png(png: bytes, scale: float, n_colors: int) -> bytes:
    """A picture that exists already, with a palette. It keeps its size, whatever the scale: made smaller, its letters
    would blur, and a blur takes more bytes than letters."""
    return with_palette(png, n_colors)


@contextmanager
def draughtsman() -> Iterator[Draughtsman]:
    """A browser to draw with, closed afterwards: the machine's Chromium, or else playwright's own."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        try:
            page = browser.new_page()
            page.set_content("<!doctype html><title>figures</title>")
            page.add_script_tag(content=get_plotlyjs())
            yield Draughtsman(page)
        finally:
            browser.close()


def with_palette(png: bytes, n_colors: int) -> bytes:
    """The same picture in at most so many colours, without dithering: a quarter of the bytes for a drawing."""
    image = Image.open(io.BytesIO(png)).convert("RGBA")
    opaque = Image.new("RGB", image.size, "white")
    opaque.paste(image, mask=image.getchannel("A"))
    small = opaque.quantize(colors=n_colors, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    written = io.BytesIO()
    small.save(written, "PNG", optimize=True)
    return written.getvalue()
