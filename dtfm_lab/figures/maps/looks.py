"""How a link and a device look on every picture of a network; the page has the same in links.js and gpus.js."""

import math
import re

DASHES = ((30.0, "solid"), (80.0, "longdash"), (150.0, "dash"), (math.inf, "dot"))
"""Dashes of plotly by latency, each with the milliseconds below which it holds."""
DASH_WORDS = "dashes: latency, solid below 30 ms, long below 80, short below 150, dotted above"
LAPTOP = re.compile(r"laptop|cpu|mobile|apple|\bm[1-4]\b|none|raspberry|mx\d", re.IGNORECASE)
CONSUMER = re.compile(r"rtx|gtx|geforce|titan|radeon|\brx\b|^\d{4}(\s?ti)?$", re.IGNORECASE)
WORKSTATION = re.compile(r"rtx\s?a\d|rtx\s?pro|ada generation|\brtx\s?\d{4}\s?ada", re.IGNORECASE)


def link_width(gbps: float) -> float:
    """Pixels of a line by its Gbit/s, on a logarithmic scale: 1 Gbit/s is 3.4, 100 and more are nearly 7."""
    return min(7.0, max(1.0, 3.4 + 1.4 * math.log10(max(gbps, 1e-4))))


def link_dash(latency_ms: float) -> str:
    """The plotly dash of a line by its latency."""
    return next(dash for below, dash in DASHES if latency_ms < below)


def gpu_shape(name: str) -> str:
    """``circle`` for a data-centre GPU, ``box`` for a laptop or a processor, ``triangle`` for a consumer card."""
    if not name or LAPTOP.search(name):
        return "box"
    return "triangle" if CONSUMER.search(name) and not WORKSTATION.search(name) else "circle"
