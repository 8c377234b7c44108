"""A comparison as the pane shows it: three tiles, tables of residuals, and the suspects in sentences.

A residual is the measured minus the predicted time, with its confidence interval. This module contains no widget.
"""

from __future__ import annotations

from html import escape
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from dtfm_lab.compare import Comparison
from dtfm_lab.compare.blame import NOTABLE
from dtfm_lab.compare.errors import ConfidenceInterval, estimate, share_of, signed_s
from dtfm_lab.domain.schedule import Lane
from dtfm_lab.domain.trace import BY_MODEL, LINK_SEPARATOR
from dtfm_lab.domain.units import counted, signed_share
from dtfm_lab.widgets import markup

MOST_SENTENCES = 12
"""Maximum number of suspects that get a sentence each. The others are only counted."""
MOST_ROWS = 200
"""Maximum rows of a table. The most suspicious rows are kept."""
ROUNDING = 1e-9
"""Relative difference up to which two durations count as equal."""
BOTH = ["duration_s_predicted", "duration_s_measured"]
HUES = {"F": "forward", "B": "backward"}
"""Hue of a link, by the last letter of the most frequent kind of its messages. Other kinds get averaging's hue."""

Table = dict[str, Any]


class Tile(NamedTuple):
    """A number with its name, and one line that explains it."""

    name: str
    value: str
    reason: str
    is_alarming: bool = False


class Findings(NamedTuple):
    """What the pane shows of a comparison, before it becomes HTML."""

    headline: str
    tiles: tuple[Tile, ...]
    tables: list[Table]
    drift: str
    """How the error changes from iteration to iteration. Empty if too few were measured."""
    links_by_model: bool
    """True if messages were not timed but emulated by the link model."""
    sentences: tuple[str, ...]
    """The error, the verdict, the prediction's interval, the suspects, and which action first ends off its prediction.
    """
    suspects: tuple[tuple[str, ...], ...] = ()
    """(source, target) of each suspected link, (name,) of each suspected device."""

    @classmethod
    def of(cls, comparison: Comparison) -> Findings:
        """Read a comparison. This is slow, so call it on a thread."""
        suspects = comparison.suspects["sentence"].tolist()
        more = len(suspects) - MOST_SENTENCES
        rest = [f"and {more} more, in comparison.suspects"] if more > 0 else []
        first = comparison.error_sentence, comparison.verdict, comparison.inside_sentence
        in_order = (*first, *suspects[:MOST_SENTENCES], *rest, comparison.drift.sentence)
        by_model = comparison.measured.context.links_by_model
        rows = comparison.suspects[["of", "name"]].values
        named = tuple(tuple(name.split(LINK_SEPARATOR, 1)) if of == "link" else (name,) for of, name in rows)
        known = comparison.headline, tiles_of(comparison), tables(comparison), comparison.drift.growth
        return cls(*known, by_model, in_order, named)


def tiles_of(comparison: Comparison) -> tuple[Tile, ...]:
    """Return three tiles: the iteration's error, and how much of it comes from messages and from computations."""
    error_s, whole_s = comparison.error_s, comparison.predicted_iteration_s
    notable_s = NOTABLE * whole_s
    share = signed_share(comparison.iteration_error)
    # An error inside the prediction's own interval is no surprise.
    where = "in its interval" if comparison.is_inside else "out of its interval"
    note = f"{share}, {where}" if comparison.inside_sentence else f"{share} of the prediction"
    part = comparison.measured.context.part
    error = Tile(
        f"Error, {part}" if part else "Error",
        signed_s(error_s),
        note,
        abs(error_s) >= notable_s and not comparison.is_inside,
    )
    if comparison.blame_missing:
        return (error, Tile("From messages", "–", comparison.blame_missing), Tile("From computation", "–", ""))
    suspects, found = comparison.suspects, comparison.blame
    links, devices = (suspects.loc[suspects["of"] == of, "name"].tolist() for of in ("link", "device"))
    by_model = f"; {BY_MODEL}" if comparison.measured.context.links_by_model else ""
    causes = (
        ("From messages", found.messages_s, links, _suspected(links, "link") + by_model),
        ("From computation", found.computation_s, devices, _suspected(devices, "device")),
    )
    tiles = [Tile(name, signed_s(s), why, bool(who) and abs(s) >= notable_s) for name, s, who, why in causes]
    return (error, *tiles)


def tiles_html(tiles: tuple[Tile, ...], *, secret: bool = False) -> str:
    """Return the tiles as HTML. With ``secret``, only the first tile keeps its reason, because the other reasons name
    suspects."""
    inside = "".join(
        f'<div class="dtfm-tile-number{" dtfm-alarming" if tile.is_alarming else ""}"><span>{escape(tile.name)}</span>'
        f"<b>{escape(tile.value)}</b><small>{escape('' if secret and at else tile.reason)}</small></div>"
        for at, tile in enumerate(tiles)
    )
    return f'<div class="dtfm-tiles">{inside}</div>'


def sentences_html(sentences: tuple[str, ...]) -> str:
    return "".join(markup.line(escape(sentence).replace("-&gt;", "→")) for sentence in sentences if sentence)


def _suspected(names: list[str], noun: str) -> str:
    if not names:
        return f"no {noun} stands out"
    first = names[0].replace("->", "→")
    return f"one suspect: {first}" if len(names) == 1 else f"{counted(len(names), 'suspect')}, first {first}"


def tables(comparison: Comparison) -> list[Table]:
    """Return one table each for links, devices and stages. Slow.

    A table is {"key", "name", "noun", "own", "second", "measured", "count", "rows"}. ``own`` and ``second`` say what
    error_s and second_s are. ``measured`` is the heading of measured_s: "by the link model" for emulated links, which
    are not timed. ``count`` is the number of rows before some are left out. Rows, the largest error first, have

    - id, label, hue and stage (-1 for a link)
    - predicted_s, measured_s and error_s, per message, or per iteration for computations
    - low_s and high_s, the error's 95 % interval over iterations. None after a single iteration.
    - relative, the error as a share of the predicted time. None if the predicted time is 0.
    - second_s, for links: how much later than predicted the last message of an iteration arrives
    - suspect, True if the comparison suspects this link or device, or a device of this stage. Suspects are the last to
      be left out.
    """
    rows = comparison.rows
    received, computed = rows[rows["lane"] == Lane.RECEIVE.value], rows[rows["lane"] == Lane.COMPUTE.value]
    whole = computed.groupby(["stage", "device", "replica", "iteration"], as_index=False)[BOTH].sum()
    by_device = whole.groupby(["device", "iteration"], as_index=False)[BOTH].sum()
    order, suspects = _suspicion(comparison)
    later_s = received.groupby(["link", "iteration"])["end_s_error"].last().groupby("link").mean()
    # The letter of most messages on the link gives its colour.
    hues = received.groupby("link")["kind"].agg(lambda kinds: HUES.get(str(kinds.mode()[0])[-1], "averaging"))
    links = [
        row | {"second_s": float(later_s[row["id"]]), "hue": str(hues[row["id"]])} for row in _of(received, "link")
    ]
    stage_of = {device: str(stages.min()) for device, stages in whole.groupby("device")["stage"]}
    devices = [row | {"stage": int(stage_of[row["id"]])} for row in _of(by_device, "device")]
    stages = [row | {"stage": int(row["id"])} for row in _of(whole, "stage")]
    of_stage = {("stage", stage_of[name]) for of, name in suspects if of == "device"}
    found, by_model = [], comparison.measured.context.links_by_model
    for key, name, noun, own, second, its in (
        ("links", "Links", "link", "each message", "last arrival", links),
        ("devices", "Devices", "device", "extra computing per iteration", "", devices),
        ("stages", "Stages", "stage", "extra computing per iteration", "", stages),
    ):
        marked = [
            row | {"suspect": (noun, row["id"]) in suspects | of_stage, "label": _label(noun, row["id"]), "noun": noun}
            for row in its
        ]
        # suspects come first, then the other rows by suspicion; rows without a rank come last, largest error first
        ranks = {row["id"]: order.get((noun, row["id"]), len(order)) for row in marked}
        marked.sort(key=lambda row: (not row["suspect"], ranks[row["id"]], -abs(row["error_s"])))
        table = {"key": key, "name": name, "noun": noun, "own": own, "second": second}
        table["measured"] = BY_MODEL if key == "links" and by_model else "measured"
        # Chosen by suspicion, but shown by size.
        shown = sorted(marked[:MOST_ROWS], key=lambda row: -abs(row["error_s"]))
        found.append(table | {"count": len(marked), "rows": shown})
    return found


def hidden(found: list[Table]) -> list[Table]:
    """Return the tables for a mystery run, in which the user has to find the suspects.

    No suspect is marked, and rows are sorted by name.
    """
    return [
        table | {"rows": sorted((row | {"suspect": False} for row in table["rows"]), key=lambda row: row["label"])}
        for table in found
    ]


def _suspicion(comparison: Comparison) -> tuple[dict[tuple[str, str], int], set[tuple[str, str]]]:
    """Return the rank of every link and device, 0 for the most suspicious, and the set of suspects.

    Both use the key ("link" or "device", name). Both are empty if the error cannot be attributed.
    """
    if comparison.blame_missing:
        return {}, set()
    table = comparison.blame.table
    order = {(of, name): at for at, (of, name) in enumerate(zip(table["of"], table["name"], strict=True))}
    suspects = comparison.suspects
    return order, set(zip(suspects["of"], suspects["name"], strict=True))


def _of(rows: pd.DataFrame, by: str) -> list[Table]:
    """Return a row for each value of the column ``by``: its mean times, and the error with its interval."""
    found = []
    for key, group in rows.groupby(by):
        predicted, measured = (group[column].to_numpy(float) for column in BOTH)
        error = estimate(measured - predicted, group["iteration"].to_numpy(), np.mean)
        predicted_s, measured_s = float(predicted.mean()), float(measured.mean())
        error_s, has_interval = measured_s - predicted_s, np.isfinite(error.low) and np.isfinite(error.high)
        # Emulated links keep to the model, and what is left is rounding.
        if np.abs(predicted - measured).max() <= ROUNDING * abs(measured_s):
            error, error_s = ConfidenceInterval(0.0, 0.0, 0.0), 0.0
        low_s, high_s = (float(end) if has_interval else None for end in (error.low, error.high))
        relative = share_of(error_s, predicted_s) if predicted_s > 0 else None
        row = {"id": str(key), "predicted_s": predicted_s, "measured_s": measured_s, "error_s": error_s}
        row |= {"low_s": low_s, "high_s": high_s, "relative": relative}
        found.append(row | {"second_s": None, "hue": "", "stage": -1})
    return found


def _label(noun: str, key: str) -> str:
    return f"stage {key}" if noun == "stage" else key.replace("->", "→")
