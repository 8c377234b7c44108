"""Notebooks as Markdown, with the outputs that they were saved with: text, tables and still pictures."""

from __future__ import annotations

import base64
import html
import re
from pathlib import Path
from typing import Any

import nbformat

ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
PICTURES = {"image/svg+xml": "svg", "image/png": "png", "image/jpeg": "jpg"}

FOLDED = "<details><summary>Guess first, then open the answer</summary>"


def as_markdown(path: Path, folder: Path, *, outputs: bool = True) -> str:
    """The page of a notebook, with what its cells show if ``outputs``; pictures are written to ``folder``."""
    notebook = nbformat.read(path, as_version=4)
    parts = []
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type == "markdown":
            parts.append(cell.source)
        elif cell.cell_type == "code" and cell.source.strip():
            parts.append(fenced(cell.source, "python"))
            revealed = cell.metadata.get("dtfm_lab", {}).get("revealed")
            shown = [nbformat.from_dict(each) for each in revealed] if revealed else cell.outputs
            made = [
                _output(output, folder, f"{path.stem}-{number}-{place}")
                for place, output in enumerate(shown if outputs else ())
            ]
            parts += [FOLDED, *made, "</details>"] if revealed and any(made) else made
    return "\n\n".join(part for part in parts if part) + "\n"


def fenced(text: str, language: str) -> str:
    """A block of code, its fence longer than any in it."""
    longest = max((len(found) for found in re.findall(r"^`+", text, re.MULTILINE)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def picture(source: str, text: str) -> str:
    """A picture on a page, one for light and one for dark pages where ``source`` holds ``{theme}``."""
    said = html.escape(" ".join(text.split()), quote=True)
    if "{theme}" not in source:
        return f'<img class="picture" src="{source}" alt="{said}">'
    return "\n".join(
        f'<img class="picture only-{theme}" src="{source.format(theme=theme)}" alt="{said}">'
        for theme in ("light", "dark")
    )


def _output(output: Any, folder: Path, name: str) -> str:
    if output.output_type == "stream":
        return fenced(ESCAPES.sub("", output.text), "text") if output.text.strip() else ""
    if output.output_type not in ("display_data", "execute_result"):
        return ""
    data = output.data
    said = data.get("text/plain", "")
    for kind, ending in PICTURES.items():
        if kind in data:
            folder.mkdir(parents=True, exist_ok=True)
            content = data[kind]
            raw = content.encode("utf-8") if ending == "svg" else base64.b64decode(content)
            (folder / f"{name}.{ending}").write_bytes(raw)
            return f"![{_one_line(said)}]({name}.{ending})"
    if "text/markdown" in data:
        return str(data["text/markdown"])
    if "text/html" in data:
        return f'<div class="output">\n{_one_block(data["text/html"])}\n</div>'
    return fenced(ESCAPES.sub("", said), "text") if said.strip() else ""


def _one_line(text: str) -> str:
    return " ".join(re.sub(r"[\[\]`*_<>]", " ", text).split())


def _one_block(markup: str) -> str:
    """HTML without styles and scripts of its own, and without the blank lines at which Markdown would end it."""
    markup = re.sub(r"<(style|script)\b.*?</\1>", "", markup, flags=re.DOTALL)
    return "\n".join(line for line in markup.splitlines() if line.strip())
