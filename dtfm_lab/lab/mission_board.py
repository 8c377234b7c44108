"""The board of a reader's missions: a table that a notebook shows as a board, a lesson at a time."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

import pandas as pd

from dtfm_lab.course import LESSONS

BOARD = ("lesson", "mission", "title", "minutes", "passed", "tries", "hints", "answer_shown")
"""Columns of the table."""
LEFT = ' style="text-align:left"'


class Board(pd.DataFrame):
    """A row for each mission, shown with what is won and what is next; every operation returns a plain table."""

    @property
    def _constructor(self) -> type[pd.DataFrame]:
        return pd.DataFrame

    @property
    def sentence(self) -> str:
        """``2 of 5 missions won; next: half-and-half``."""
        words = f"{int(self['passed'].sum())} of {len(self)} {'mission' if len(self) == 1 else 'missions'} won"
        left = self.loc[~self["passed"].astype(bool), "mission"]
        return f"{words}; next: {left.iloc[0]}" if len(left) else words

    def _repr_html_(self) -> str:
        if not set(BOARD) <= set(self.columns) or not len(self):
            return str(pd.DataFrame(self)._repr_html_())  # type: ignore[operator]  # pandas types it as optional
        rows = []
        for lesson, some in self.groupby("lesson", sort=False):
            won = f"{int(some['passed'].sum())} of {len(some)}"
            title = LESSONS[str(lesson)].title if lesson in LESSONS else str(lesson)
            head = f"<th colspan='3'{LEFT}>{escape(str(lesson)[:2])} {escape(title)}</th><th{LEFT}>{won}</th>"
            rows.append(f"<tr>{head}</tr>")
            rows += [_row(each) for each in some.to_dict("records")]
        return f"<p><b>{escape(self.sentence)}</b></p><table>{''.join(rows)}</table>"


def _row(mission: Mapping[Any, Any]) -> str:
    mark = "✓" if mission["passed"] else "○"
    counted = ((mission["tries"], "try", "tries"), (mission["hints"], "hint", "hints"))
    notes = [f"{n} {one if n == 1 else many}" for n, one, many in counted if n]
    notes += ["answer looked at"] if mission["answer_shown"] else []
    cells = [mark, escape(str(mission["title"])), f"<code>{escape(str(mission['mission']))}</code>"]
    cells += [", ".join(notes) or f"{mission['minutes']} min"]
    return f"<tr>{''.join(f'<td{LEFT}>{cell}</td>' for cell in cells)}</tr>"
