"""A comparison as the pane shows it: three tiles, tables of residuals, and the suspects in sentences."""

from __future__ import annotations

from html import escape
from typing import NamedTuple

from dtfm_lab.compare import Comparison
from dtfm_lab.compare.blame import NOTABLE
from dtfm_lab.compare.errors import signed_s, signed_share
from dtfm_lab.compare.headline import headline, parts_of
from dtfm_lab.domain.trace import BY_MODEL
from dtfm_lab.figures.theme import count
from dtfm_lab.widgets import markup
from dtfm_lab.widgets.comparing.residuals import Table, tables

MOST_SENTENCES = 12
"""Most suspects that are told in a sentence each; the rest are counted."""


class Tile(NamedTuple):
    """A number with its name and a line of reasons."""

    name: str
    value: str
    reason: str
    is_alarming: bool = False


class Findings(NamedTuple):
    """What a comparison has to say."""

    headline: str
    tiles: tuple[Tile, ...]
    tables: list[Table]
    drift: str
    """Whether the error changes from iteration to iteration; empty where too few were measured."""
    sentences: tuple[str, ...]
    """The verdict, the suspects, and where the prediction is left first."""

    @classmethod
    def of(cls, comparison: Comparison) -> Findings:
        """Read a comparison. This is slow, so a thread calls it."""
        suspects = comparison.suspects["sentence"].tolist()
        more = len(suspects) - MOST_SENTENCES
        rest = [f"and {more} more, in comparison.suspects"] if more > 0 else []
        told = (
            comparison.verdict,
            comparison.inside_sentence,
            *suspects[:MOST_SENTENCES],
            *rest,
            comparison.drift.sentence,
        )
        return cls(headline(comparison), tiles_of(comparison), tables(comparison), comparison.drift.growth, told)


def tiles_of(comparison: Comparison) -> tuple[Tile, ...]:
    """Return the error, and what messages and computations make of it."""
    error_s, whole_s = comparison.error_s, comparison.predicted_iteration_s
    notable_s = NOTABLE * whole_s
    share = signed_share(comparison.iteration_error)
    where = "in its interval" if comparison.is_inside else "out of its interval"
    note = f"{share}, {where}" if comparison.inside_sentence else f"{share} of the prediction"
    error = Tile("Error", signed_s(error_s), note, abs(error_s) >= notable_s)
    parts = parts_of(comparison)
    if parts is None:
        return (error, Tile("From messages", "–", comparison.blame_missing), Tile("From computation", "–", ""))
    return (
        error,
        Tile(
            "From messages",
            signed_s(parts.messages_s),
            _suspected(parts.links, "link") + (f"; {BY_MODEL}" if comparison.measured.context.links_by_model else ""),
            bool(parts.links) and abs(parts.messages_s) >= notable_s,
        ),
        Tile(
            "From computation",
            signed_s(parts.computation_s),
            _suspected(parts.devices, "device"),
            bool(parts.devices) and abs(parts.computation_s) >= notable_s,
        ),
    )


def tiles_html(tiles: tuple[Tile, ...], *, secret: bool = False) -> str:
    """Return the tiles as HTML; ``secret`` leaves out the reasons, which name suspects."""
    inside = "".join(
        f'<div class="dtfm-tile-number{" dtfm-alarming" if tile.is_alarming else ""}"><span>{escape(tile.name)}</span>'
        f"<b>{escape(tile.value)}</b><small>{escape('' if secret and at else tile.reason)}</small></div>"
        for at, tile in enumerate(tiles)
    )
    return f'<div class="dtfm-tiles">{inside}</div>'


def sentences_html(sentences: tuple[str, ...]) -> str:
    return "".join(markup.line(escape(sentence).replace("-&gt;", "→")) for sentence in sentences if sentence)


def _suspected(names: tuple[str, ...], noun: str) -> str:
    if not names:
        return f"no {noun} stands out"
    first = names[0].replace("->", "→")
    return f"one suspect: {first}" if len(names) == 1 else f"{count(len(names), 'suspect')}, first {first}"
