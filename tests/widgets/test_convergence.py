"""What the view of a search keeps and sends: all that can be seen, and no more."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loops import send

from dtfm_lab.figures.measures import MEASURES
from dtfm_lab.widgets.views.convergence import MOST_ROWS, N_COLUMNS, UNSEEN, ConvergenceView

BESTS_S, BOUNDS_S = (9, 9, 8, 8, 8, 8), (2, 2, 2, 3, 3, 3)


class Page:
    """Keeps the rows as the page does: drops so many of the newest, takes the new ones."""

    def __init__(self, view: ConvergenceView) -> None:
        self.curves: dict[str, np.ndarray] = {}
        self.bytes = self.messages = 0
        self.caption = ""
        view.send = self.receive

    def receive(self, message: dict, buffers: Sequence[bytes] = ()) -> None:
        self.messages += 1
        if message["kind"] == "reset":
            self.curves = {}
            return
        rows = np.frombuffer(buffers[0], "f4").reshape(-1, N_COLUMNS)
        self.bytes += len(buffers[0])
        self.caption = message["caption"]
        for series in message["series"]:
            held = self.curves.get(series["name"], np.empty((0, N_COLUMNS), "f4"))
            new, rows = rows[: series["count"]], rows[series["count"] :]
            self.curves[series["name"]] = np.concatenate([held[: len(held) - series["drop"]], new])


def falling(n: int, seed: int = 0) -> np.ndarray:
    """Rows of a search that improves with every one of them."""
    rng = np.random.default_rng(seed)
    best_s = 10 + 90 * np.exp(-np.linspace(0, 6, n)) - np.linspace(0, 1, n)
    return np.column_stack([np.arange(n), np.arange(n) / 100, best_s, np.full(n, 8.0), best_s + rng.random(n)])


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.integers(0, 99))
@settings(max_examples=40)
def test_the_page_has_what_the_kernel_has_however_the_rows_came(sizes, seed):
    rng = np.random.default_rng(seed)
    rows = falling(sum(sizes), seed)
    rows[:, 2:] = np.round(rows[:, 2:] / 20) * 20
    rows[rng.random(len(rows)) < 0.3, 3] = np.nan
    view = ConvergenceView()
    page = Page(view)
    for part in np.split(rows, np.cumsum(sizes)[:-1]):
        view.extend(part, "one")
    np.testing.assert_array_equal(page.curves["one"], view.points["one"].astype("f4"))
    assert (view.points["one"][-1, 0], view.points["one"][0, 0]) == (rows[-1, 0], rows[0, 0])


def test_every_change_of_best_and_bound_that_can_be_seen_is_kept():
    view = ConvergenceView()
    view.extend([[i, 0, best_s, bound_s, 9] for i, best_s, bound_s in zip(range(1, 7), BESTS_S, BOUNDS_S, strict=True)])
    assert view.points["best"][:, 0].tolist() == [1, 3, 4, 6]


def test_no_curve_is_off_by_more_than_can_be_seen():
    rows = falling(5000)
    view = ConvergenceView()
    for part in np.array_split(rows, 400):
        view.extend(part, "long")
    kept = view.points["long"]
    at = np.searchsorted(kept[:, 0], rows[:, 0], "right") - 1
    height_s = np.ptp(rows[:, 2:])
    assert np.abs(kept[at, 2] - rows[:, 2]).max() <= 5 * UNSEEN * height_s, "a pixel or less"


def test_a_search_of_any_length_leaves_memory_flat():
    view = ConvergenceView()
    page = Page(view)
    sizes = []
    for i, part in enumerate(np.array_split(falling(60_000), 600)):
        part[:, 4] += i % 7  # a median that never rests
        view.extend(part, "long")
        sizes.append(len(view.points["long"]))
    assert max(sizes) <= MOST_ROWS
    np.testing.assert_array_equal(page.curves["long"], view.points["long"].astype("f4"))


def test_a_look_that_knows_no_median_keeps_the_one_before():
    view = ConvergenceView()
    view.extend([[1, 0, 9, 2, np.nan], [2, 0, 8, 2, 8.5]])
    view.extend([[3, 0, 7, 2, np.nan]])
    assert view.points["best"][1:, 4].tolist() == [8.5, 8.5]
    assert np.isnan(view.points["best"][0, 4])


def test_a_reader_without_widgets_is_told_where_the_curves_end():
    view = ConvergenceView(title="A <search>")
    for part in np.array_split(falling(5000), 50):
        view.extend_all({"one": part, "two": part + np.array([0, 0, 3, 0, 3])})
    assert view.alt_text().startswith("A <search>: one 9.223 s, two 12.22 s; one is ")
    view.show_measure("price")
    assert (view.unit, view.bound_label) == ("$", "lower bound: no plan is cheaper")
    assert "$9.22" in view.alt_text()


def test_rows_of_all_series_and_the_caption_travel_in_one_message_and_a_late_view_is_sent_all():
    view = ConvergenceView()
    page = Page(view)
    view.extend_all({"a": falling(3), "b": falling(2)}, "so far")
    assert (page.messages, page.caption, set(page.curves)) == (1, "so far", {"a", "b"})
    view.caption = "over"
    assert (page.messages, page.caption, view.caption) == (2, "over", "over")
    late = Page(view)
    send(view, {"kind": "hello"})
    assert late.caption == "over"
    np.testing.assert_array_equal(late.curves["a"], view.points["a"].astype("f4"))


@pytest.mark.parametrize(
    ("objective", "best", "bound", "words"),
    [
        (
            "communication",
            13.13,
            12.9,
            "1.8 % above the bound; the bound says nothing cheaper than 12.9 s exists in this shape",
        ),
        ("communication", 12.9, 12.9, "communication cost proven best in this shape"),
        (
            "communication",
            12.901,
            12.9,
            "less than 0.1 % above the bound; the bound says nothing cheaper than 12.9 s exists in this shape",
        ),
        ("communication", 12.9, 0.0, "no bound yet"),
        (
            "communication",
            29.0,
            1.0,
            "29 times the bound; the bound says nothing cheaper than 1 s exists in this shape",
        ),
        (
            "communication",
            129.0,
            1.0,
            "far above the bound; the bound says nothing cheaper than 1 s exists in this shape",
        ),
        ("iteration", 24.1, 0.1, "the bound is loose; no plan is faster than 100 ms"),
        ("iteration", 24.1, 20.1, "at most 1.20 times faster with any plan of this job; no plan is faster than 20.1 s"),
        ("iteration", 20.1, 20.1, "no plan is faster"),
        ("price", 120.0, 100.0, "at most 1.20 times cheaper with any plan of this job; no plan is cheaper than $100"),
    ],
)
def test_the_gap_is_told_in_the_words_and_the_unit_of_the_objective(objective, best, bound, words):
    assert MEASURES[objective].gap_words(best, bound) == words
