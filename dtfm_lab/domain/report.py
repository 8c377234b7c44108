"""A report of sentences, tables and sections. The same parts become HTML or Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

CHANGES = "†"
"""Marks rows whose method changes the training itself, so that seconds alone do not compare them."""
MARKED = re.compile(r"\*\*(.+?)\*\*")
"""Text between double stars is emphasised, such as a missed target."""
# Some rules name a class twice, because JupyterLab's rules for tables in outputs would override a single class.
STYLE = Path(__file__).with_name("report.css").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Table:
    """A heading for each column, and rows with one cell per column."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class ReportSection:
    """Parts under a title. In HTML the section is folded unless ``opened``; in Markdown it is a list."""

    title: str
    parts: Sequence[Part]
    opened: bool = False


Part = str | Table | ReportSection


def as_html(parts: Iterable[Part]) -> str:
    """Return the parts as HTML for a notebook."""
    return f'<style>{STYLE}</style><div class="dtfm-report">{"".join(map(_html, parts))}</div>'


def as_page(title: str, parts: Iterable[Part]) -> str:
    """Return the parts as a complete HTML page."""
    look = (
        "body { margin: 24px; background: Canvas; color: CanvasText; } :root { color-scheme: light dark; } "
        'h1 { font: 600 20px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }'
    )
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{look}</style></head><body><h1>{escape(title)}</h1>{as_html(parts)}</body></html>\n"
    )


def as_markdown(parts: Iterable[Part]) -> str:
    """Return the parts as Markdown, separated by blank lines."""
    return "\n\n".join("\n".join(_markdown(part)) for part in parts) + "\n"


def _html(part: Part) -> str:
    match part:
        case str():
            return f"<p>{_bold(part)}</p>"
        case Table():
            head = "".join(f"<th>{escape(cell)}</th>" for cell in part.head)
            body = "".join("<tr>" + "".join(f"<td>{_bold(cell)}</td>" for cell in row) + "</tr>" for row in part.rows)
            return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    inner = "".join(map(_html, part.parts))
    return f"<details{' open' if part.opened else ''}><summary>{_bold(part.title)}</summary>{inner}</details>"


def _bold(text: str) -> str:
    """Return a text as HTML, with each dollar sign in a separate element.

    JupyterLab would otherwise set the text between two dollars as a formula (MathJax's documentation, "TeX and LaTeX
    math delimiters").
    """
    return MARKED.sub(r"<b>\1</b>", escape(text)).replace("$", "<span>$</span>")


def _markdown(part: Part) -> list[str]:
    match part:
        case str():
            return [part]
        case Table():
            return [_row(cells) for cells in (part.head, ["---"] * len(part.head), *part.rows)]
    inner = [[f"- {one}"] if isinstance(one, str) else ["", *_markdown(one)] for one in part.parts]
    return [f"{part.title}:", "", *(line for lines in inner for line in lines)]


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(' '.join(cell.replace('|', '/').split()) for cell in cells)} |"
