"""Formulas of lessons in plain text, for slides, which have no TeX."""

from __future__ import annotations

import re

SIGNS = {
    r"\alpha": "α",
    r"\beta": "β",
    r"\cdot": "·",
    r"\sqrt": "√",
    r"\ln": "ln",
    r"\left": "",
    r"\right": "",
    r"\qquad": "  ",
    r"\;": " ",
    r"\,": " ",
    r"\%": "%",
    "-": "\N{MINUS SIGN}",
}
RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
PART = r"\{([^{}]*)\}"


def in_plain_text(tex: str) -> str:
    """Return a formula on one line, such as t = α + b / β. Empty if it has something that no line can show."""
    text = re.sub(rf"\\underbrace{PART}_\{{\\text{PART}\}}", r"\1", " ".join(tex.split()))
    text = re.sub(rf"\\text{PART}", r"\1", text)
    text = re.sub(rf"\\frac{PART}{PART}", lambda found: f"{_grouped(found[1])} / {_grouped(found[2])}", text)
    text = re.sub(rf"\\sqrt{PART}", r"√(\1)", text)
    text = re.sub(r"\^(\d)", lambda found: found[1].translate(RAISED), text)
    for sign, plain in SIGNS.items():
        text = text.replace(sign, plain)
    return "" if re.search(r"[\\{}^_]", text) else " ".join(text.split())


def _grouped(part: str) -> str:
    """Return a part of a fraction, in brackets if it has several terms or factors; words stay as they are."""
    several = re.search(r"[-+ /]", part) and not re.fullmatch(r"[A-Za-z ]{4,}", part)
    return f"({part})" if several else part
