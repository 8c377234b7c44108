"""Docstrings as Markdown: they are Markdown but for numpy's sections and for blocks after two colons."""

from __future__ import annotations

import inspect
import re
import textwrap
from typing import Any

SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}$", re.MULTILINE)


def as_markdown(text: str) -> str:
    """A docstring on a page."""
    head, *sections = SECTION.split(text)
    parts = [_prose(head)]
    for title, body in zip(sections[::2], sections[1::2], strict=True):
        parts += [f"**{title}**", _entries(body)]
    return "\n\n".join(part for part in parts if part)


def first_sentence(thing: Any) -> str:
    """The first paragraph of a docstring, in one line; for what has none of its own, nothing."""
    if isinstance(thing, dict):
        return "What is known of GPUs by name."
    text = inspect.getdoc(getattr(thing, "func", thing)) or ""
    return " ".join(text.split("\n\n")[0].split())


def _prose(text: str) -> str:
    """Paragraphs; what is indented after two colons, or is a table of two rules, is shown as it is."""
    blocks = text.strip().split("\n\n")
    shown: list[str] = []
    after_colons = False
    for block in blocks:
        indented = block.startswith("    ")
        if (after_colons and indented) or re.match(r"=+ +=+", block):
            shown.append(f"```text\n{textwrap.dedent(block)}\n```")
            continue
        after_colons = block.rstrip().endswith("::")
        block = re.sub(r"\s*::$", "" if block.strip() == "::" else ":", block.rstrip())
        if block:
            shown.append(block)
    return "\n\n".join(shown)


def _entries(body: str) -> str:
    """The entries of a section as a list; a section of plain lines as they are."""
    lines = body.strip("\n").splitlines()
    entries: list[tuple[str, list[str]]] = []
    after: list[str] = []
    for line in lines:
        if after or (line and not line.startswith(" ") and entries and lines[lines.index(line) - 1 :][0] == ""):
            after.append(line)
        elif line and not line.startswith(" "):
            entries.append((line.strip(), []))
        elif entries:
            entries[-1][1].append(line.strip())
    if not any(said for _, said in entries):
        return _prose(body)
    listed = [f"- `{name.strip('`')}`: {' '.join(' '.join(said).split())}" for name, said in entries]
    return "\n".join(listed) + ("\n\n" + _prose("\n".join(after)) if after else "")
