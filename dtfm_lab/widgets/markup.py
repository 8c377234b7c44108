"""Small pieces of HTML that follow JupyterLab's theme."""

import base64
import re
from html import escape
from pathlib import Path

import pandas as pd

LINKS = ("https://", "http://")
"""How the targets of links begin that are opened beside the lab."""
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


def table(frame: pd.DataFrame, css_class: str, label: str) -> str:
    """Return a table whose cells are HTML, with this CSS class; ``label`` is what is read out."""
    known = frame.astype(object).where(frame.notna(), "–")
    html = known.to_html(index=False, border=0, classes=css_class, escape=False, justify="unset")
    # it scrolls, so keys must reach it
    return f'<div class="dtfm-table" tabindex="0" role="region" aria-label="{label}">{html}</div>'


def quotation(prompt: str, text: str) -> str:
    return f'<div class="dtfm-written"><b>{escape(prompt)}</b>{escape(text)}</div>'


def download(name: str, file_name: str, data: bytes, content_type: str) -> str:
    """Return a link that saves the data as a file, without a server."""
    encoded = base64.b64encode(data).decode("ascii")
    return (
        f'<a class="dtfm-download" download="{escape(file_name)}" href="data:{content_type};base64,{encoded}">'
        f"{escape(name)}</a>"
    )


def markdown(text: str) -> str:
    """Return as HTML the little of Markdown that tasks and hints are written in; everything else as it stands.

    Paragraphs, lists, code blocks, ``code``, **bold**, *emphasis* and links.
    """
    blocks = []
    for number, part in enumerate(re.split(r"^```.*$", text, flags=re.MULTILINE)):
        if number % 2:
            blocks.append(f"<pre><code>{escape(part.strip(chr(10)))}</code></pre>")
        else:
            blocks += [_block(block) for block in re.split(r"\n\s*\n", part) if block.strip()]
    return "".join(blocks)


def _block(block: str) -> str:
    lines = block.strip().splitlines()
    for mark, tag in ((r"[-*] ", "ul"), (r"\d+\. ", "ol")):
        if re.match(mark, lines[0]):
            items = re.split(rf"^\s*{mark}", "\n".join(lines), flags=re.MULTILINE)[1:]
            return f"<{tag}>{''.join(f'<li>{inline_markdown(item)}</li>' for item in items)}</{tag}>"
    return f"<p>{inline_markdown(' '.join(line.strip() for line in lines))}</p>"


def inline_markdown(text: str) -> str:
    """Return one line of Markdown as HTML; what is between backticks is left as it is."""
    parts = re.split(r"(`+)(.+?)\1", text)
    html = ""
    for number in range(0, len(parts), 3):
        html += _words(escape(parts[number]))
        if number + 2 < len(parts):
            html += f"<code>{escape(parts[number + 2].strip())}</code>"
    return html


def _words(text: str) -> str:
    text = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", text)
    text = re.sub(r"(?<!\w)\*([^*\s][^*]*?)\*(?!\w)", r"<i>\1</i>", text)
    return re.sub(r"\[([^\]]+)\]\(([^)\s]+)\)", _link, text)


def _link(found: re.Match[str]) -> str:
    """A link to another site opens beside the lab; of one to a file, whose place is not known here, the words stay."""
    words, target = found.groups()
    return (
        f'<a href="{target}" target="_blank" rel="noopener noreferrer">{words}</a>'
        if target.startswith(LINKS)
        else words
    )
