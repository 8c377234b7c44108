"""The examples of docs/python-api.md, run once in one namespace; what they show, and pictures."""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dtfm_lab.figures import alt_text
from tools.website import pictures
from tools.website.notebooks import fenced, picture

ENTRY = re.compile(r"^### ([\w.]+)\n\n(?:(?!```)[^\n]+\n\n)?```python\n", re.MULTILINE)
"""The head of an example: a public name, and the sentence that ``tools/reference_pages.py`` writes below it."""
BLOCK = re.compile(rf"{ENTRY.pattern}(.*?)```\n|^```python\n(.*?)```\n", re.MULTILINE | re.DOTALL)
PAGE = "python-api.md"
OF_FIGURES = "figures."
"""How the headings of the figures' examples begin."""
SHORTER = ((r"\bsteps=\d+", "steps=1"), (r'"gpt2-small", tokens', '"tiny", tokens'))
"""What makes the examples of plain pages quick: pattern -> replacement."""
MOST_LINES = 14
"""Most lines of an example's output that a page shows."""


@dataclass
class Examples:
    """What each example is and shows."""

    code: dict[str, str] = field(default_factory=dict)
    """Public name -> its example."""
    shown: dict[str, str] = field(default_factory=dict)
    """Code of an example -> what it printed and what its last line is, as text; empty for a figure."""
    pictures: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Code of an example -> file of its picture, with ``{theme}`` where there is one for each, and its text."""

    def with_pictures(self, text: str, folder: str) -> str:
        """Return a page with what each example shows below it: its text, or the picture that it draws."""
        return BLOCK.sub(lambda match: match[0] + self.below(match[2] or match[3], folder), text)

    def below(self, code: str, folder: str = "") -> str:
        """What stands below an example: its text, or its picture where ``folder`` says where pictures are."""
        if folder and code in self.pictures:
            name, said = self.pictures[code]
            return "\n" + picture(f"{folder}/{name}", said) + "\n"
        shown = self.shown.get(code, "")
        return "\n" + fenced(shown, "text") + "\n" if shown and code not in self.pictures else ""


def examples_of(text: str) -> Iterator[tuple[str, str]]:
    """The heading and the code of each example of a page; the heading is empty for a block that has none."""
    for match in BLOCK.finditer(text):
        yield match[1] or "", match[2] or match[3]


def run_examples(docs: Path, folder: Path, *, plain: bool = False) -> Examples:
    """Run the examples of the page in their order; write what they draw to ``folder``.

    For ``plain`` pages, searches take one step each, for a small model, and nothing is drawn.
    """
    made, names, drawn, codes = Examples(), dict[str, Any](), dict[str, Any](), dict[str, str]()
    os.environ["DTFM_LAB_PROGRESS"] = tempfile.mkdtemp()  # guesses are not the reader's own
    for name, code in examples_of((docs / PAGE).read_text(encoding="utf-8")):
        run = code
        for pattern, shorter in SHORTER if plain else ():
            run = re.sub(pattern, shorter, run)
        shown, last = run_block(run, names)
        if not name.startswith(OF_FIGURES):
            made.code[name] = code
        elif type(last).__name__ == "Figure":
            drawn[name.removeprefix(OF_FIGURES)] = last
            codes[name.removeprefix(OF_FIGURES)] = code
        made.shown[code] = shown.replace(str(names.get("folder", "/nowhere")), "folder")
    for name, file in ({} if plain else pictures.draw_all(drawn, folder)).items():
        made.pictures[codes[name]] = file, alt_text(drawn[name])
    return made


def run_block(code: str, names: dict[str, Any]) -> tuple[str, Any]:
    """Run lines of code; returns what they print followed by the last line's value as text, and that value."""
    tree = ast.parse(code)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "example", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "example", "eval"), names)
    text = printed.getvalue() + ("" if value is None else _shortened(repr(value)))
    return text, value


def _shortened(text: str) -> str:
    lines = re.sub(r" at 0x[0-9a-f]+", "", text).splitlines()
    return "\n".join([*lines[:MOST_LINES], *(["..."] if len(lines) > MOST_LINES else [])])
