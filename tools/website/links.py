"""Links between pages, as GitHub follows them, turned into links of the site."""

from __future__ import annotations

import os
import posixpath
import re
import shutil
from pathlib import Path

from tools.website.moved import MOVED

LINK = re.compile(r"(?<=\]\()([^)\s]+)(?=\))")
FENCE = re.compile(r"^(```+|~~~+).*?^\1\s*$", re.MULTILINE | re.DOTALL)
PAGE_OF = {"README.md": "index.md", "topologies": "networks.md", "examples/plugin": "reference/plug-in.md"}
"""What stands on a page of another name."""


def relinked(text: str, page: str, pages: set[str], root: Path, folder: Path) -> str:
    """The text of a page with its relative links as the site needs them; files that they lead to are copied."""

    def replaced(match: re.Match[str]) -> str:
        target, _, fragment = match[1].partition("#")
        if not target or re.match(r"[a-z]+:", target):
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
        path = PAGE_OF.get(path, path)
        if path not in pages and (now := MOVED.get(path.removeprefix("docs/").removesuffix(".md"))):
            name, _, section = now.partition("#")  # the change log names pages as they were called then
            path, fragment = f"docs/{name}.md", section
        if path.startswith("notebooks/") and path.endswith(".ipynb"):
            path = path.removesuffix(".ipynb") + ".md"
        if path not in pages and path != "index.md":
            _copy(root / path, folder / path)
        new = posixpath.relpath(path, posixpath.dirname(page) or ".")
        return f"{new}#{fragment}" if fragment else new

    text = text.replace("```csv\n", "```text\n")  # which has no colours
    parts, at = [], 0
    for fence in FENCE.finditer(text):
        parts += [LINK.sub(replaced, text[at : fence.start()]), fence[0]]
        at = fence.end()
    whole = "".join(parts) + LINK.sub(replaced, text[at:])
    return re.sub(r'(<a href="[^":]+)\.md\b', r"\1.html", whole)


def _copy(source: Path, target: Path) -> None:
    """Copy a file that is no page. What is missing stays missing: the build refuses the link."""
    if source.is_file() and not target.exists():
        os.makedirs(target.parent, exist_ok=True)
        shutil.copyfile(source, target)
