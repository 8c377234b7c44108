"""The figure of published numbers: what is missed is seen, and each row can be read."""

from dataclasses import replace

import numpy as np
import pytest

from dtfm_lab import figures
from dtfm_lab.extensions.published.api import Band, Ledger, Row, Source

ROW = Row(
    group="toy <i>model</i>",
    setting="2 stages",
    quantity="iteration",
    unit="s",
    published=10.0,
    predicted=10.2,
    band=Band.share(0.03),
    assumptions=("sends block",),
    cite="nobody, $table 1$",
)
ROWS = (
    ROW,
    replace(ROW, setting="4 stages", predicted=np.float64(13.0), theirs=11.0),
    replace(ROW, setting="far", predicted=900.0),
    replace(ROW, setting="idle", quantity="bubble", unit="", published=0.1, predicted=0.1, band=Band.within(0.001)),
    replace(ROW, setting="none", quantity="bubble", unit="", published=0, predicted=0, band=Band.within(0.001)),
)


@pytest.fixture(scope="module")
def figure():
    source = Source(name="toy", title="Toy", cite="nobody", licence="none", rows=lambda: iter(ROWS))
    return figures.ledger(Ledger(tuple(source), (source,)))


def test_every_row_is_a_point_that_says_what_was_assumed(figure):
    hovers = [
        (trace.hovertemplate or "%{hovertext}").replace("%{hovertext}", text)
        for trace in figure.data
        for text in trace.hovertext or ()
    ]
    for setting in ("2 stages", "4 stages", "far", "idle"):
        assert any(setting in text and "sends block" in text for text in hovers)
    assert any("their own prediction" in text and ": 11" in text for text in hovers)


def test_what_is_outside_its_band_is_drawn_as_such(figure):
    (outside,) = [trace for trace in figure.data if trace.name == "outside of it"]
    assert len(outside.x) == 2
    assert "5 measured numbers" in figure.layout.title.text
    assert "2 of 5 outside their bands" in figure.layout.title.subtitle.text


def test_names_are_shown_letter_by_letter(figure):
    assert "&lt;i&gt;" in figure.layout.yaxis.categoryarray[0]
