"""One accelerator, its peak, memory and price; links belong to the topology."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dtfm_lab.domain.errors import TopologyError
from dtfm_lab.domain.network.hardware import HARDWARE

PAPERS_GPU = "V100"

LONGEST_NAME = 200
"""Most characters of the name of a device, region, GPU or topology."""
MOST_DEVICES = 4096
"""Most devices of a network. Networks are dense: so many fill matrices of 134 MB each."""


@dataclass(frozen=True, kw_only=True)
class Device:
    """One accelerator that can hold one pipeline stage."""

    name: str
    region: str = ""
    gpu: str = PAPERS_GPU
    peak_flop_per_s: float = HARDWARE[PAPERS_GPU].peak_flop_per_s
    memory_bytes: float = HARDWARE[PAPERS_GPU].memory_bytes
    price_per_hour: float = 0.0
    """Price in the user's currency; 0 where unknown."""
    position: tuple[float, float] | None = None
    """Position on the canvas, without meaning for any cost."""

    def __post_init__(self) -> None:
        # plain types, so that equal devices write and hash alike whatever array they came from
        for what in ("name", "region", "gpu"):
            object.__setattr__(self, what, self._text(what, getattr(self, what)))
        if not self.name:
            raise TopologyError("a device has an empty name; every device needs one of its own")
        for what in ("peak_flop_per_s", "memory_bytes"):
            if not (number := self._number(what, getattr(self, what), "a number above 0")) > 0:
                raise TopologyError(f"device {self.name}: {what} is {number:g}; wanted a number above 0")
            object.__setattr__(self, what, number)
        if (price := self._number("price_per_hour", self.price_per_hour, "0 or more")) < 0:
            raise TopologyError(f"device {self.name}: price_per_hour is {price:g}; wanted 0 or more")
        object.__setattr__(self, "price_per_hour", price)
        if self.position is not None:
            parts = list(self.position) if isinstance(self.position, Iterable) else []
            if len(parts) != 2 or isinstance(self.position, str):
                raise TopologyError(f"device {self.name}: position is {shortened(self.position)}; wanted two numbers")
            x, y = (self._number("position", part, "two numbers") for part in parts)
            object.__setattr__(self, "position", (x, y))

    def _text(self, what: str, value: Any) -> str:
        try:
            text = str(value)
        except ValueError:  # an integer of thousands of digits
            raise TopologyError(f"a device's {what} is a number too long to write; wanted text") from None
        check_text("device" if what == "name" else f"device {self.name}: {what}", text)
        return text

    def _number(self, what: str, value: object, wanted: str) -> float:
        if (number := as_number(value)) is None or not math.isfinite(number):
            raise TopologyError(f"device {self.name}: {what} is {shortened(value)}; wanted {wanted}")
        return number


def check_text(what: str, text: str) -> None:
    """Raises TopologyError unless the text fits into one line of any error and any file."""
    if len(text) > LONGEST_NAME:
        raise TopologyError(f"{what} {shortened(text)} has {len(text)} characters; wanted at most {LONGEST_NAME}")
    if not is_plain(text):
        raise TopologyError(f"{what} {shortened(text)} holds a character that cannot be printed; wanted plain text")


def is_plain(text: str) -> bool:
    """Whether the text has no control characters, line ends or lone surrogates."""
    return not any(unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") or c in "\ufffe\uffff" for c in text)


def check_count(n: int) -> None:
    """Raises TopologyError for too many devices, before anything of size (N, N) is made."""
    if n > MOST_DEVICES:
        raise TopologyError(f"{n} devices; wanted at most {MOST_DEVICES}")


def as_number(value: Any) -> float | None:
    """A real number as a float; None for anything else, text and truth values included."""
    if isinstance(value, str | bytes | bool):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def shortened(value: object) -> str:
    """A value as short text for an error of one line."""
    try:
        text = repr(value.item() if isinstance(value, np.generic) else value)
    except (ValueError, RecursionError):  # an integer of thousands of digits; nested too deeply
        return f"an unwieldy {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."
