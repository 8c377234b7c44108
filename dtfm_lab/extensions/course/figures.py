"""Figures of a class: how many guesses were too low, about right or too high, and how much the class learned."""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from typing import TYPE_CHECKING

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.units import counted
from dtfm_lab.figures.palette import CATEGORIES, GREY, LINE_GREY
from dtfm_lab.figures.theme import literal, titled, with_headings

if TYPE_CHECKING:
    import pandas as pd

STEP = math.log10(2) / 1.5
"""Width of a bar in decades. The three bars in the middle are the guesses within a factor of two."""
N_SIDE = 10
"""Number of bars on each side of the middle. The last one holds everything further away."""
N_COLUMNS = 2
QUESTION_LETTERS = 62
"""Maximum letters per line of a question."""
CHOICE_LETTERS = 40
"""Maximum letters of a choice. Longer ones are shortened."""
MOST_LINES = 3
"""Maximum lines of a panel's heading: the question, and one line with the answer."""
LINE_PX = 18
"""Height of such a line in pixels."""
MOST_TICKS = 4
PANEL_PX = 150
"""Height of a question's panel in pixels. Also the height of the figure of gains without its bars."""
GAP_PX = 108
"""Pixels between two rows of panels, with room for the headings of the lower one."""
TICKS = {-2: "100 ×<br>too low", -1: "10 ×", 0: "right", 1: "10 ×", 2: "100 ×<br>too high"}


def guesses(table: pd.DataFrame) -> go.Figure:
    """Plot a class's guesses at each question: a histogram of guess / answer, or a bar per choice. ``table`` is what
    ``lab.missions.guesses(folder)`` returns.

    Answers may differ by reader, so the histogram shows by which factor each guess was too low or too high. Raises
    LabError for a table without guesses.
    """
    if not len(table):
        raise LabError("there are no guesses to draw; wanted a table with one row or more")
    questions = list(table.groupby("name", sort=False))
    n_rows = math.ceil(len(questions) / N_COLUMNS)
    height_px = n_rows * (PANEL_PX + GAP_PX)
    between = {"vertical_spacing": GAP_PX / height_px if n_rows > 1 else 0, "horizontal_spacing": 0.08}
    figure = make_subplots(n_rows, N_COLUMNS, subplot_titles=[_heading(some) for _, some in questions], **between)
    for number, (_, some) in enumerate(questions):
        place = {"row": number // N_COLUMNS + 1, "col": number % N_COLUMNS + 1}
        if choices := _choices(some):
            figure.add_bar(
                x=_chosen(some, choices),
                y=list(choices),
                orientation="h",
                marker_color=[CATEGORIES[0] if at == some["answer"].iloc[0] else GREY for at in _places(choices)],
                showlegend=False,
                **place,
            )
            continue
        # On a logarithmic scale: twice too much is as wrong as half.
        steps = Counter(map(_steps, some["guess"], some["answer"]))
        positions = range(-N_SIDE, N_SIDE + 1)
        counts = [steps[where] for where in positions]
        figure.add_bar(
            x=[where * STEP for where in positions],
            y=counts,
            width=0.9 * STEP,
            marker_color=[CATEGORIES[0] if abs(where) <= 1 else GREY for where in positions],
            hovertext=[f"{_range(where)}: {_counted(n)}" for where, n in zip(positions, counts, strict=True)],
            hoverinfo="text",
            showlegend=False,
            **place,
        )
        figure.update_yaxes(rangemode="tozero", dtick=math.ceil(max(counts) / MOST_TICKS), **place)
        end = (N_SIDE + 0.7) * STEP
        figure.update_xaxes(range=[-end, end], tickvals=list(TICKS), ticktext=list(TICKS.values()), **place)
        figure.update_xaxes(showgrid=True, zeroline=True, zerolinecolor=LINE_GREY, zerolinewidth=1.5, **place)
    n_readers = table["reader"].nunique()
    note = (
        f"{counted(n_readers, 'reader')}, first guesses only; bars in colour are within a factor of two of the answer"
    )
    alt = f"{_counted(len(table))} at {counted(len(questions), 'question')}. "
    alt += " ".join(_sentence(some) for _, some in questions)
    look = {"height": height_px + LINE_PX * MOST_LINES + 60, "title_y": 1, "title_yanchor": "top", "title_pad_t": 18}
    titled(figure, "What the class guessed", note, alt=alt, **look)
    return with_headings(figure, LINE_PX * (MOST_LINES - 1))


def _choices(some: pd.DataFrame) -> tuple[str, ...]:
    """Return the choices of a question, each shortened to one line. Empty if the question asks for a number."""
    listed = some["choices"].iloc[0] if "choices" in some else ()
    return tuple(textwrap.shorten(str(each), CHOICE_LETTERS, placeholder=" …") for each in listed)


def _places(choices: tuple[str, ...]) -> list[float]:
    return [float(place) for place in range(1, len(choices) + 1)]


def _chosen(some: pd.DataFrame, choices: tuple[str, ...]) -> list[int]:
    return [int((some["guess"] == place).sum()) for place in _places(choices)]


def gain(table: pd.DataFrame) -> go.Figure:
    """Show what a class knew before and after a course, with one row per concept of ``lab.missions.gain(folder)``.

    Raises LabError for an empty table.
    """
    if not len(table):
        raise LabError("there are no concepts to draw; wanted a table with one row or more")
    figure = go.Figure()
    names = [str(name) for name in table["concept"]]
    for when, colour in (("before", GREY), ("after", CATEGORIES[0])):
        figure.add_bar(
            y=names,
            x=[100 * float(share) for share in table[when]],
            orientation="h",
            name=when,
            marker_color=colour,
            hovertext=[str(question) for question in table["question"]],
        )
    figure.update_xaxes(range=[0, 100], title_text="right answers, %")
    figure.update_yaxes(autorange="reversed")
    mean = float(table["gain"].mean())
    note = f"{counted(int(table['readers'].max()), 'reader')} answered both times; mean normalised gain {mean:.2f}"
    rows = zip(names, table["before"], table["after"], strict=True)
    alt = " ".join(f"{name}: {100 * was:.0f} % before, {100 * now:.0f} % after." for name, was, now in rows)
    return titled(figure, "What the class gained", note, alt=alt, height=PANEL_PX + 36 * len(table))


def _counted(n: int) -> str:
    return f"{n} guess" if n == 1 else f"{n} guesses"


def _steps(guess: float, answer: float) -> int:
    """Return the position of a guess's bar: 0 within a factor of 1.26, positive if the guess is too high, negative if
    it is too low. The last bar on each side takes guesses that are further away, or of another sign than the answer."""
    if guess == answer:
        return 0
    if answer == 0 or guess / answer <= 0:
        return N_SIDE if guess > answer else -N_SIDE
    return max(-N_SIDE, min(N_SIDE, round(math.log10(guess / answer) / STEP)))


def _range(position: int) -> str:
    """Return in words which guesses a bar holds."""
    nearer, further = (10 ** ((abs(position) + half) * STEP) for half in (-0.5, 0.5))
    side = "too high" if position > 0 else "too low"
    if position == 0:
        return f"right, within {100 * (further - 1):.0f} %"
    if abs(position) == N_SIDE:
        return f"more than {nearer:.0f} times {side}"
    return f"{nearer:.2g} to {further:.2g} times {side}"


def _near(some: pd.DataFrame) -> str:
    if _choices(some):
        return f"{int((some['guess'] == some['answer']).sum())} of {len(some)} right"
    near = sum(abs(_steps(*each)) <= 1 for each in zip(some["guess"], some["answer"], strict=True))
    return f"{near} of {len(some)} within a factor of 2"


def _answer(some: pd.DataFrame) -> str:
    if choices := _choices(some):
        return f"answer: {choices[int(some['answer'].iloc[0]) - 1]}"
    low, high, unit = some["answer"].min(), some["answer"].max(), some["unit"].iloc[0]
    said = f"{low:.3g}" if math.isclose(low, high, rel_tol=1e-3) else f"{low:.3g} to {high:.3g}"
    return f"answer {said} {unit}".strip()


def _heading(some: pd.DataFrame) -> str:
    question = " ".join(str(some["question"].iloc[0]).replace("`", "").replace("*", "").split())
    lines = textwrap.wrap(question, QUESTION_LETTERS, max_lines=MOST_LINES - 1, placeholder=" …")
    return "<br>".join([*map(literal, lines), f"<b>{_near(some)}</b>, {literal(_answer(some))}"])


def _sentence(some: pd.DataFrame) -> str:
    return f"{some['question'].iloc[0]} {_near(some)}, {_answer(some)}."
