"""Small pieces of HTML that follow JupyterLab's theme."""

import base64
from html import escape
from pathlib import Path

CSS = (Path(__file__).parent / "lab.css").read_text(encoding="utf-8")
"""The style that all panels share; each panel adds its own."""


def line(text: str, kind: str = "note") -> str:
    """Return one line of HTML, a ``note``, ``warning``, ``figure`` or ``stale``; empty for no text."""
    return f'<div class="dtfm-line dtfm-{kind}" role="status">{text}</div>' if text else ""


def warning(text: str) -> str:
    """Return a line with a warning sign; empty for no text."""
    if not text:
        return ""
    sign = (
        '<svg viewBox="0 0 16 16" width="16" height="16" aria-hidden="true"><path d="M8 1.2 15.4 14.5H.6Z"/>'
        '<path class="dtfm-sign-mark" d="M8 6v4M8 11.9v1.2"/></svg>'
    )
    return f'<div class="dtfm-line dtfm-alarm" role="alert">{sign}<span>{escape(text)}</span></div>'


def quotation(prompt: str, text: str) -> str:
    return f'<div class="dtfm-written"><b>{escape(prompt)}</b>{escape(text)}</div>'


def download(name: str, file_name: str, data: bytes, content_type: str) -> str:
    """Return a link that saves the data as a file, without a server."""
    encoded = base64.b64encode(data).decode("ascii")
    return (
        f'<a class="dtfm-download" download="{escape(file_name)}" href="data:{content_type};base64,{encoded}">'
        f"{escape(name)}</a>"
    )
