"""Small pieces of HTML that follow JupyterLab's theme."""

from __future__ import annotations

import base64
from html import escape
from pathlib import Path

CSS = (Path(__file__).parent / "lab.css").read_text(encoding="utf-8")


def heading(number: int, title: str, hint: str) -> str:
    return (
        f'<div class="dtfm-step"><span class="dtfm-number">{number}</span><b>{escape(title)}</b>'
        f'<span class="dtfm-step-hint">{escape(hint)}</span></div>'
    )


def line(text: str, kind: str = "note") -> str:
    """One line of text: a ``note``, a ``warning`` or a ``figure`` that matters."""
    return f'<div class="dtfm-line dtfm-{kind}" role="status">{text}</div>' if text else ""


def warning(text: str) -> str:
    """A line that must not be missed; nothing where there is no text."""
    if not text:
        return ""
    sign = (
        '<svg viewBox="0 0 16 16" width="16" height="16" aria-hidden="true"><path d="M8 1.2 15.4 14.5H.6Z"/>'
        '<path class="dtfm-sign-mark" d="M8 6v4M8 11.9v1.2"/></svg>'
    )
    return f'<div class="dtfm-line dtfm-alarm" role="alert">{sign}<span>{escape(text)}</span></div>'


def quotation(before: str, text: str) -> str:
    """What a model wrote after a beginning that it was given."""
    return f'<div class="dtfm-written"><b>{escape(before)}</b>{escape(text)}</div>'


def download(name: str, file_name: str, text: str) -> str:
    """A link that saves the text as a file, without a server."""
    data = base64.b64encode(text.encode()).decode()
    return (
        f'<a class="dtfm-download" download="{escape(file_name)}" href="data:text/csv;base64,{data}">{escape(name)}</a>'
    )
