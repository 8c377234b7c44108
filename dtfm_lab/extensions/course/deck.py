"""Slides of a lesson for a projector: one file that loads nothing from a network, with few words on each slide.

A slide is a heading with its first sentences, a figure, a question, what the question reveals, or the takeaway. Code
and whole paragraphs stay in the notebook. Arrow keys, a click or a presenter's remote turn the slides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

from dtfm_lab.extensions.course.mission import TEXTS
from dtfm_lab.files.reading import read_mapping

Cell = Mapping[str, Any]
MOST_WORDS = 60
"""Maximum number of words on a slide, including its heading. An audience that reads more than this stops listening."""
MOST_LINES = 12
"""Maximum number of lines that a slide shows of a cell's printed output."""
PAGE = read_mapping(TEXTS / "deck.yaml")
SENTENCE = re.compile(r"(?<=[.?!])\s+(?=[A-Z*`\[])")
HEADING = re.compile(r"^(#{1,3}) (.+)$", re.MULTILINE)
TAKEAWAY = re.compile(r"^> \*\*Takeaway\.\*\* (.+(?:\n> .+)*)", re.MULTILINE)
ASKED = re.compile(r"^lab\.guess\(", re.MULTILINE)
QUESTION = re.compile(r"\*\*Guess first\.\*\* (.+)", re.DOTALL)


@dataclass(frozen=True)
class Slide:
    """One screen of the slides."""

    heading: str
    text: str = ""
    picture: str = ""
    """A PNG in base64."""
    printed: str = ""


def deck_of(notebook: Mapping[str, Any]) -> str:
    """Return the slides of a notebook as one HTML page."""
    slides = list(slides_of(notebook))
    sections = "\n".join(_section(slide) for slide in slides)
    name = escape(slides[0].heading if slides else "Slides")
    head = f'<meta charset="utf-8"><title>{name}</title><style>\n{PAGE["style"]}\n</style>'
    script = f"<script>\n{PAGE['script']}\n</script>"
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{sections}{script}</body></html>\n'


def slides_of(notebook: Mapping[str, Any]) -> Iterator[Slide]:
    """Yield the slides of a notebook, in its order, up to its missions."""
    heading = ""
    for cell in notebook.get("cells", []):
        source = _joined(cell.get("source", ""))
        if cell.get("cell_type") == "markdown":
            for part_heading, body in _parts(source):
                # Missions are for readers to do, not to be shown.
                if part_heading == "Missions":
                    return
                heading = part_heading or heading
                text, said = TAKEAWAY.sub("", body), TAKEAWAY.search(body)
                if part_heading:
                    yield fitted(Slide(heading, _first_words(text)))
                if said:
                    yield fitted(Slide("Takeaway", said[1].replace("\n> ", " ")))
        elif cell.get("cell_type") == "code":
            yield from _of_code(cell, source, heading)


def fitted(slide: Slide) -> Slide:
    """Return a slide with as many of its sentences as ``MOST_WORDS`` allows."""
    left = MOST_WORDS - len(slide.heading.split())
    kept: list[str] = []
    for sentence in SENTENCE.split(slide.text):
        # Whole sentences only; a cut one would mean something else.
        if sum(len(each.split()) for each in [*kept, sentence]) > left:
            break
        kept.append(sentence)
    return Slide(slide.heading, " ".join(kept), slide.picture, slide.printed)


def _of_code(cell: Cell, source: str, heading: str) -> Iterator[Slide]:
    about = cell.get("metadata", {}).get("dtfm_lab", {})
    outputs = about.get("revealed") or cell.get("outputs", [])
    for output in outputs:
        data = output.get("data", {})
        markdown = _joined(data.get("text/markdown", ""))
        if ASKED.search(source) and (asked := QUESTION.search(markdown or _guess_text(data))):
            yield fitted(Slide("Your guess?", asked[1].strip()))
        elif "image/png" in data:
            yield Slide(heading, picture=_joined(data["image/png"]).replace("\n", ""))
        elif about.get("revealed") and (printed := _printed(output)):
            yield Slide(heading, printed=printed)


def _guess_text(data: Mapping[str, Any]) -> str:
    return _joined(data.get("text/plain", "")).replace("Guess first: ", "**Guess first.** ", 1)


def _printed(output: Mapping[str, Any]) -> str:
    text = _joined(output.get("text", "")) or _joined(output.get("data", {}).get("text/plain", ""))
    lines = text.rstrip().splitlines()
    return "\n".join(lines[:MOST_LINES])


def _parts(source: str) -> Iterator[tuple[str, str]]:
    """Yield headings with the text that follows each. The heading is empty for text before the first. Fenced blocks are
    left out."""
    # A line of code that begins with # would count as a heading.
    text = re.sub(r"^(```|~~~).*?^\1", "", source, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"</?(details|summary)>(After your guess</summary>)?", "", text)
    found = list(HEADING.finditer(text))
    if not found or found[0].start() > 0:
        yield "", text[: found[0].start() if found else None]
    for number, one in enumerate(found):
        end = found[number + 1].start() if number + 1 < len(found) else None
        yield re.sub(r"^\d+\. ", "", one[2]), text[one.end() : end]


def _first_words(body: str) -> str:
    """Return the first paragraph of prose in plain words, without link targets and displayed formulas."""
    for paragraph in re.split(r"\n\s*\n", re.sub(r"\$\$.*?\$\$", "", body, flags=re.DOTALL)):
        words = " ".join(paragraph.split())
        if words and not words.startswith(("|", "- ", ">", "<", "1. ", "![")):
            return re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", words).replace("$", "")
    return ""


def _section(slide: Slide) -> str:
    text = re.sub(r"\*\*([^*]+)\*\*", r"<b>\1</b>", escape(slide.text, quote=False))
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", text).replace("\n", "<br>")
    picture = f'<img alt="" src="data:image/png;base64,{slide.picture}">' if slide.picture else ""
    printed = f"<pre>{escape(slide.printed)}</pre>" if slide.printed else ""
    paragraph = f"<p>{text}</p>" if text else ""
    return f"<section><h1>{escape(slide.heading)}</h1>{paragraph}{picture}{printed}</section>"


def _joined(text: Any) -> str:
    return "".join(text) if isinstance(text, list) else str(text)
