"""Small pieces of HTML that follow JupyterLab's theme, and the field's words with their explanations."""

import base64
import re
from html import escape
from pathlib import Path

import pandas as pd

from dtfm_lab.domain.extension import offered
from dtfm_lab.files.reading import read_mapping

LINKS = ("https://", "http://")
"""Prefixes of link targets that open in a new tab."""
HERE = Path(__file__).parent
CSS = (HERE / "lab.css").read_text(encoding="utf-8")
"""Styles that all panels share."""
PANES_CSS = "".join(
    path.read_text(encoding="utf-8") for path in sorted(HERE.glob("*/*.css")) if path.parent.name != "static"
)
"""Styles of the panes. They load with the lab, so a pane looks right when it is first shown."""


def line(text: str, kind: str = "note") -> str:
    """Return one line of HTML: a ``note``, ``warning``, ``figure`` or ``stale``. Empty for no text."""
    return f'<div class="dtfm-line dtfm-{kind}" role="status">{text}</div>' if text else ""


def warning(text: str) -> str:
    """Return a line with a warning sign. Empty for no text."""
    if not text:
        return ""
    sign = (
        '<svg viewBox="0 0 16 16" width="16" height="16" aria-hidden="true"><path d="M8 1.2 15.4 14.5H.6Z"/>'
        '<path class="dtfm-sign-mark" d="M8 6v4M8 11.9v1.2"/></svg>'
    )
    return f'<div class="dtfm-line dtfm-alarm" role="alert">{sign}<span>{escape(text)}</span></div>'


def table(frame: pd.DataFrame, css_class: str, label: str) -> str:
    """Return a table whose cells are HTML, with this CSS class. Screen readers read ``label``."""
    known = frame.astype(object).where(frame.notna(), "–")
    html = known.to_html(index=False, border=0, classes=css_class, escape=False, justify="unset")
    # it scrolls, so the keyboard must be able to reach it
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
    """Return the subset of Markdown that tasks and hints use as HTML. Everything else stays as it is.

    Paragraphs, lists, code blocks, ``code``, **bold**, *emphasis* and links.
    """
    blocks = []
    # Parts with an odd number are between two lines of backticks.
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
    """Return one line of Markdown as HTML. Text between backticks is not interpreted."""
    # The pattern has two groups, so every third part is outside of backticks.
    parts = re.split(r"(`+)(.+?)\1", text)
    html = ""
    for number in range(0, len(parts), 3):
        html += _words(escape(parts[number]))
        if number + 2 < len(parts):
            html += f"<code>{escape(parts[number + 2].strip())}</code>"
    return html


def _words(text: str) -> str:
    text = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", text)
    # Not next to letters or digits, so that 2*3*4 stays as it is.
    text = re.sub(r"(?<!\w)\*([^*\s][^*]*?)\*(?!\w)", r"<i>\1</i>", text)
    return re.sub(r"\[([^\]]+)\]\(([^)\s]+)\)", _link, text)


def _link(found: re.Match[str]) -> str:
    """Return a link that opens in a new tab, or only its words if it leads to a file: its place is not known here."""
    words, target = found.groups()
    link = f'<a href="{target}" target="_blank" rel="noopener noreferrer">{words}</a>'
    return link if target.startswith(LINKS) else str(words)


_GLOSSARY = read_mapping(HERE / "texts" / "words.yaml")
WORDS: dict[str, str] = _GLOSSARY["words"]
"""{word: one-sentence explanation}."""
# An extension may add words, but not change the lab's words.
WORDS |= {word: sentence for word, sentence in offered("words").items() if word not in WORDS}
ALSO: dict[str, str] = _GLOSSARY["also"]
"""Other forms of a word that can be looked up. A plural s is dropped without an entry."""


def meaning(word: str) -> str:
    """Return the sentence that explains a word in any of its forms. Empty for an unknown word."""
    key = word.strip().lower()
    for form in (key, ALSO.get(key, ""), key.removesuffix("s")):
        if form in WORDS:
            return WORDS[form]
    return ""


def word(term: str) -> str:
    """Return HTML of a word that shows its explanation on hover and focus."""
    return f'<span class="dtfm-word" data-word="{escape(term)}" tabindex="0">{escape(term)}</span>'
