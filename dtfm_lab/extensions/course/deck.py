"""Slides of a lesson for a projector: one file that loads nothing from a network, with few words on each slide.

A slide is a heading with its first sentences, a figure, a question, what the question reveals, or the takeaway. Code
and whole paragraphs stay in the notebook. Arrow keys, a click or a presenter's remote turn the slides. The key Z
magnifies a figure where the pointer is.
"""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from html import escape
from html.parser import HTMLParser
from typing import Any

from dtfm_lab.extensions.course.formula import in_plain_text
from dtfm_lab.extensions.course.mission import TEXTS
from dtfm_lab.files.reading import read_mapping, shipped

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
DRAWING = re.compile(r"!\[([^]]*)\]\([^)\s]*docs/pictures/([\w-]+)\.svg\)")
ITEM = re.compile(r"^(?:-|\d+\.) +", re.MULTILINE)
SHORT = 25
"""Words up to which a slide of prose has larger letters."""
ASKS, KEEPS = "Your guess?", "Takeaway"
"""Headings of the slides that ask a question, and that end a lesson."""
TALL = 1.55
"""Width over height below which a figure takes the whole height, with its heading at the left."""


@dataclass(frozen=True)
class Slide:
    """One screen of the slides."""

    heading: str
    text: str = ""
    picture: str = ""
    """A PNG in base64."""
    printed: str = ""
    items: tuple[str, ...] = ()
    """The list that the text announces."""
    formula: str = ""
    """The formula that the text announces, in plain text."""
    drawing: str = ""
    """Name of a drawing in docs/pictures."""
    alt: str = ""
    """What the figure or the drawing shows, for those who do not see it."""
    table: tuple[tuple[str, ...], ...] = ()
    """Rows of a table, the first is its head."""


def deck_of(notebook: Mapping[str, Any]) -> str:
    """Return the slides of a notebook as one HTML page."""
    found = list(slides_of(notebook))
    slides = [*found[:1], *(slide for slide in found[1:] if slide != Slide(slide.heading))]
    name = escape(slides[0].heading if slides else "Slides")
    sections = "\n".join(
        _section(slide, f"<footer>{name}<span>{number} / {len(slides)}</span></footer>", "title" if number == 1 else "")
        for number, slide in enumerate(slides, 1)
    )
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
                    yield fitted(_first_words(heading, text))
                for alt, drawing in DRAWING.findall(text):
                    yield Slide(heading, drawing=drawing, alt=" ".join(alt.split()))
                if said:
                    yield fitted(Slide(KEEPS, _plain(said[1].replace("\n> ", " "))))
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
    text = " ".join(kept)
    whole = len(kept) == len(SENTENCE.split(slide.text))
    items = slide.items if whole and sum(len(each.split()) for each in [text, *slide.items]) <= left else ()
    formula = slide.formula if whole else ""
    if not items and not formula and text.endswith(":"):
        # Nothing follows on this slide.
        text = text[:-1] + "."
    return replace(slide, text=text, items=items, formula=formula)


def _of_code(cell: Cell, source: str, heading: str) -> Iterator[Slide]:
    about = cell.get("metadata", {}).get("dtfm_lab", {})
    outputs = about.get("revealed") or cell.get("outputs", [])
    above = ""
    for output in outputs:
        data = output.get("data", {})
        markdown = _joined(data.get("text/markdown", ""))
        if ASKED.search(source) and (asked := QUESTION.search(markdown or _guess_text(data))):
            question, *choices = ITEM.split(asked[1].strip())
            yield fitted(Slide(ASKS, _plain(question.strip()), items=tuple(each.strip() for each in choices)))
        elif "image/png" in data:
            alt = " ".join(_joined(data.get("text/plain", "")).split())
            yield Slide(heading, picture=_joined(data["image/png"]).replace("\n", ""), alt=alt)
        elif about.get("revealed") and (printed := _printed(output)):
            table = _table(_joined(data.get("text/html", "")))
            if not table and printed.endswith(":"):
                # It announces the next output.
                above = printed
                continue
            yield Slide(heading, _plain(above), printed=printed, table=table)
            above = ""


def _guess_text(data: Mapping[str, Any]) -> str:
    return _joined(data.get("text/plain", "")).replace("Guess first: ", "**Guess first.** ", 1)


def _printed(output: Mapping[str, Any]) -> str:
    text = _joined(output.get("text", "")) or _joined(output.get("data", {}).get("text/plain", ""))
    text = re.sub(r"\n(?:Name: .*, )?dtype: \w+$", "", text.rstrip())
    text = re.sub(r"^<(.*)>$", r"\1", text, flags=re.DOTALL)
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


def _first_words(heading: str, body: str) -> Slide:
    """Return a slide of the first paragraph of prose in plain words, with the formula or the list that follows it."""
    paragraphs = [each.strip() for each in re.split(r"\n\s*\n", body) if each.strip()]
    for place, paragraph in enumerate(paragraphs):
        if paragraph.startswith(("|", "- ", ">", "<", "1. ", "![", "$$")):
            continue
        text = _plain(" ".join(paragraph.split()))
        following = paragraphs[place + 1] if place + 1 < len(paragraphs) else ""
        items = tuple(_plain(" ".join(each.split())) for each in ITEM.split(following)[1:])
        formula = in_plain_text(following.strip("$")) if following.startswith("$$") else ""
        if not formula and not text.endswith((".", "?", "!", ":", "*", ")")):
            # The last sentence ends in a formula that is not on the slide.
            text = " ".join(SENTENCE.split(text)[:-1])
        return Slide(heading, text, items=items if text.endswith(":") else (), formula=formula)
    return Slide(heading)


def _plain(words: str) -> str:
    """Return prose without the targets of its links, and with its formulas in plain text."""
    words = re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", words)
    words = re.sub(r"^\*\*What\.\*\* ", "", words)  # which of two is meant is seen in the notebook only
    return re.sub(r"\$([^$]+)\$", lambda found: in_plain_text(found[1]) or found[1], words)


class _TableReader(HTMLParser):
    """Reads the rows of the first table of a page as texts. A cell that spans several fills all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.n_head = 0
        self._cell: list[str] | None = None
        self._spans = 1, 1
        self._from_above: dict[int, tuple[int, str]] = {}
        """Column -> rows that the cell in it still spans, and its text."""
        self._over = False

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if self._over:
            return
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th") and self.rows:
            given = dict(attrs)
            self._spans = int(given.get("colspan") or 1), int(given.get("rowspan") or 1)
            self._cell = []

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th") and self._cell is not None:
            self._fill_from_above()
            n_columns, n_rows = self._spans
            text = "".join(self._cell).strip()
            for _ in range(n_columns):
                if n_rows > 1:
                    self._from_above[len(self.rows[-1])] = n_rows - 1, text
                self.rows[-1].append(text)
            self._cell = None
        elif tag == "thead":
            self.n_head = len(self.rows)
        self._over = self._over or tag == "table"

    def handle_data(self, data: str) -> None:
        if self._cell is not None:
            self._cell.append(data)

    def _fill_from_above(self) -> None:
        row = self.rows[-1]
        while len(row) in self._from_above:
            n_rows, text = self._from_above.pop(len(row))
            if n_rows > 1:
                self._from_above[len(row)] = n_rows - 1, text
            row.append(text)


def _table(html: str) -> tuple[tuple[str, ...], ...]:
    """Return the rows of a table of pandas, its head in one row. An index that only counts is left out."""
    if 'class="dataframe"' not in html:
        return ()
    reader = _TableReader()
    reader.feed(html)
    heads, rows = reader.rows[: reader.n_head], reader.rows[reader.n_head :]
    width = max(map(len, reader.rows), default=0)
    if not heads or any(len(row) != width for row in reader.rows):
        return ()
    names = [""] * width
    n_named = next((place for place, text in enumerate(heads[-1]) if not text), 0)
    if len(heads) > 1 and n_named and not any(heads[-1][n_named:]):  # a row with the names of the index
        names = heads.pop()
    levels = zip(*heads, strict=True)
    head = [name or " ".join(dict.fromkeys(filter(None, level))) for name, level in zip(names, levels, strict=True)]
    if not head[0] and [row[0] for row in rows] == [str(number) for number in range(len(rows))]:
        head, rows = head[1:], [row[1:] for row in rows]
    return tuple(tuple(row) for row in [head, *rows[:MOST_LINES]])


def _section(slide: Slide, footer: str, kind: str) -> str:
    text = f"<p>{_marked(slide.text)}</p>" if slide.text else ""
    items = "".join(f"<li>{_marked(each)}</li>" for each in slide.items)
    inside = text + (f"<ol>{items}</ol>" if slide.heading == ASKS else f"<ul>{items}</ul>" if items else "")
    inside += f'<p class="formula">{escape(slide.formula)}</p>' if slide.formula else ""
    kind = kind or {ASKS: "asks", KEEPS: "keeps"}.get(slide.heading, "")
    if slide.drawing or slide.picture:
        kind = "figure tall" if slide.picture and _is_tall(slide.picture) else "figure"
        inside += _image(slide)
    elif slide.table:
        head, *rows = slide.table
        lines = "".join("<tr>" + "".join(f"<td>{escape(each)}</td>" for each in row) + "</tr>" for row in rows)
        inside += f"<table><tr>{''.join(f'<th>{escape(each)}</th>' for each in head)}</tr>{lines}</table>"
    elif slide.printed:
        inside += f"<pre>{escape(slide.printed)}</pre>"
    elif not kind and not slide.items and len(slide.text.split()) <= SHORT:
        kind = "short"
    return f'<section class="{kind}"><h1>{escape(slide.heading)}</h1>{inside}{footer}</section>'


def _marked(text: str) -> str:
    """Return Markdown of one paragraph as HTML: bold, emphasis and code."""
    parts = re.split(r"`([^`]+)`", escape(text, quote=False))
    for place, part in enumerate(parts):
        if place % 2:
            parts[place] = f"<code>{part}</code>"
        else:
            bold = re.sub(r"\*\*([^*]+)\*\*", r"<b>\1</b>", part)
            parts[place] = re.sub(r"(?<!\w)\*([^*\s][^*]*)\*(?!\w)", r"<em>\1</em>", bold).replace("\n", "<br>")
    return "".join(parts)


def _image(slide: Slide) -> str:
    """Return a figure, or a drawing in its colours for light pages, because slides are white."""
    kind, data = "png", slide.picture
    if slide.drawing:
        path = shipped("docs") / "pictures" / f"{slide.drawing}.svg"
        svg = path.read_text(encoding="utf-8") if path.exists() else "<svg xmlns='http://www.w3.org/2000/svg'/>"
        light = re.sub(r"@media \(prefers-color-scheme: ?dark\)", "@media not all", svg)
        kind, data = "svg+xml", base64.b64encode(light.encode()).decode()
    return f'<img alt="{escape(slide.alt)}" src="data:image/{kind};base64,{data}">'


def _is_tall(png: str) -> bool:
    """Whether a PNG in base64 is too tall to stand below a heading. False for other data."""
    head = base64.b64decode(png[:32])[16:24]
    if len(head) < 8:
        return False
    width, height = struct.unpack(">II", head)
    return bool(width < TALL * height)


def _joined(text: Any) -> str:
    return "".join(text) if isinstance(text, list) else str(text)
