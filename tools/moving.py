"""A moving picture of a page: frames as the browser draws them, with a line of words; waiting is left out."""

from __future__ import annotations

import base64
import io
import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image, ImageChops, ImageDraw, ImageFont

LONGEST_S = 0.8
"""A picture that stands still for longer, because the machine is busy, is shown for so long."""
FRAMES_PER_S = 6
WIDTH_PX = 1000
CAPTION_PX = 34
QUALITY = 55
"""Of the lossy WebP, 0 to 100."""


@dataclass
class Scene:
    """Frames (moment in seconds, PNG), one line of words, and how long it is shown at most."""

    words: str
    seconds: float
    frames: list[tuple[float, bytes]] = field(default_factory=list)


class Recorder:
    """Records a page scene by scene, by the browser's own screencast."""

    def __init__(self, page: Any) -> None:
        self._page, self.scenes, self.seconds = page, [], 0.0
        self._session = page.context.new_cdp_session(page)
        self._session.on("Page.screencastFrame", self._add)
        self._frame_ids: list[int] = []

    @contextmanager
    def scene(self, words: str, *, seconds: float) -> Iterator[None]:
        """What happens on the page meanwhile is recorded."""
        self.scenes.append(Scene(words, seconds))
        self._session.send("Page.startScreencast", {"format": "png", "everyNthFrame": 1})
        yield
        self._page.wait_for_timeout(200)
        self._session.send("Page.stopScreencast")
        self.scenes[-1].frames.append((time.monotonic(), self._page.screenshot()))

    def _add(self, event: dict[str, Any]) -> None:
        self.scenes[-1].frames.append((time.monotonic(), base64.b64decode(event["data"])))
        self._session.send("Page.screencastFrameAck", {"sessionId": event["sessionId"]})

    def write(self, path: Path, *, dark: bool) -> None:
        """Write an animated WebP, which begins again when it is over."""
        pictures, durations = [], []
        for picture, seconds in self._timed(dark):
            if pictures and ImageChops.difference(pictures[-1], picture).getbbox() is None:
                durations[-1] += seconds
            else:
                pictures.append(picture)
                durations.append(seconds)
        durations[-1] += 1.5
        self.seconds = sum(durations)
        pictures[0].save(
            path,
            save_all=True,
            append_images=pictures[1:],
            duration=[round(1000 * seconds) for seconds in durations],
            loop=0,
            quality=QUALITY,
            method=4,
            minimize_size=True,
        )

    def _timed(self, dark: bool) -> Iterator[tuple[Image.Image, float]]:
        """Every picture and its seconds: waiting is cut, then the scene is shown faster where it is too long."""
        for number, scene in enumerate(self.scenes, 1):
            began = [moment for moment, _ in scene.frames]
            lasts = [min(b - a, LONGEST_S) for a, b in itertools.pairwise(began)] + [LONGEST_S]
            faster = max(1.0, sum(lasts) / scene.seconds)
            owed = 0.0
            words = f"{number}  {scene.words}"
            for (_, png), seconds in zip(scene.frames, lasts, strict=True):
                owed += seconds / faster
                if owed >= 1 / FRAMES_PER_S:
                    yield captioned(png, words, dark), owed
                    owed = 0.0
            if owed:
                yield captioned(scene.frames[-1][1], words, dark), owed

    def keep_frames(self, folder: Path) -> None:
        """Write a picture of each second, to look at."""
        folder.mkdir(parents=True, exist_ok=True)
        shown_s = kept_s = 0.0
        for picture, seconds in self._timed(dark=folder.name == "dark"):
            if shown_s >= kept_s:
                picture.save(folder / f"{round(shown_s):03}.png")
                kept_s += 1.0
            shown_s += seconds


def captioned(png: bytes, words: str, dark: bool) -> Image.Image:
    """A frame in the width of the moving picture, with a line of words below."""
    frame = Image.open(io.BytesIO(png)).convert("RGB")
    frame = frame.resize((WIDTH_PX, round(WIDTH_PX * frame.height / frame.width)), Image.Resampling.LANCZOS)
    paper, ink = ("#1b1b1b", "#f0f0f0") if dark else ("#ffffff", "#202020")
    whole = Image.new("RGB", (frame.width, frame.height + CAPTION_PX), paper)
    whole.paste(frame)
    pen = ImageDraw.Draw(whole)
    pen.text((14, frame.height + CAPTION_PX / 2), words, fill=ink, font=ImageFont.load_default(17), anchor="lm")
    return whole
