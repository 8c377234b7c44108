"""Small pieces of HTML that follow JupyterLab's theme, and the field's words with their explanations."""

import base64
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
    """Return one line of HTML. Its style is ``note``, ``warning``, ``figure`` or ``stale``. Empty for no text."""
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


_GLOSSARY = read_mapping(HERE / "texts" / "words.yaml")
WORDS: dict[str, str] = _GLOSSARY["words"]
"""{word: one-sentence explanation}."""
# An extension may add words, but not change the lab's words.
WORDS |= {word: sentence for word, sentence in offered("words").items() if word not in WORDS}
ALSO: dict[str, str] = _GLOSSARY["also"]
"""{other form: word in ``WORDS``}. A plural that only adds an s needs no entry."""


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
