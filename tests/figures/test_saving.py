"""Figures as files for a paper: their size in inches, their type, and what is needed for which ending."""

import importlib.util
import re

import plotly.graph_objects as go
import pytest

import dtfm_lab as lab
from dtfm_lab.domain.errors import FileError, LabError, MissingExtra
from dtfm_lab.figures.saving import PX_PER_IN, TYPE_PX, WIDTHS_IN, for_paper


@pytest.fixture(scope="module")
def plan():
    topology = lab.load_topology("lecture-hall")
    return lab.evaluate(topology, lab.load_job("small"), stages=[[0, 1], [2, 3], [4, 5], [6, 7]])


@pytest.fixture(scope="module")
def gantt(plan):
    return lab.figures.gantt(lab.simulate(plan, "1f1b"))


@pytest.mark.parametrize("width", WIDTHS_IN)
def test_svg_is_as_wide_as_asked_and_needs_nothing(gantt, tmp_path, width):
    written = lab.figures.save(gantt, tmp_path / "gantt.svg", width=width)
    text = written.read_text("utf-8")
    found = re.search(r'<svg[^>]*viewBox="0 0 ([\d.]+) ', text)
    assert float(found[1]) == pytest.approx(WIDTHS_IN[width] * PX_PER_IN, abs=1)
    assert "forward" in text


def test_type_has_eight_points_and_the_title_is_left_to_the_caption(gantt):
    sized = for_paper(gantt, "column")
    assert sized.layout.title.text is None
    assert pytest.approx(8 * PX_PER_IN / 72) == TYPE_PX
    assert {sized.layout.font.size, sized.layout.legend.font.size, sized.layout.xaxis.tickfont.size} == {TYPE_PX}
    assert gantt.layout.title.text, "the figure itself stays as it is"


def test_bars_of_a_figure_are_drawn_however_plotly_keeps_them(tmp_path):
    rows = go.Figure(go.Bar(x=list(range(1, 8)), y=list("abcdefg"), orientation="h"))
    text = lab.figures.save(rows, tmp_path / "rows.svg").read_text("utf-8")
    assert text.count("h") > 7


@pytest.mark.skipif(importlib.util.find_spec("kaleido") is not None, reason="kaleido is installed")
def test_pdf_without_kaleido_says_in_one_line_what_to_install(gantt, tmp_path):
    with pytest.raises(MissingExtra, match=r"^gantt\.pdf needs kaleido.*pip install 'dtfm_lab\[figures\]'$"):
        lab.figures.save(gantt, tmp_path / "gantt.pdf")


def test_what_cannot_be_written_is_refused(gantt, tmp_path):
    with pytest.raises(LabError, match=r"gantt\.docx ends in \.docx; wanted one of \.svg, \.pdf, \.png"):
        lab.figures.save(gantt, tmp_path / "gantt.docx")
    with pytest.raises(LabError, match="width is 'wide'; wanted one of column, text"):
        lab.figures.save(gantt, tmp_path / "gantt.svg", width="wide")
    with pytest.raises(FileError, match="cannot be written"):
        lab.figures.save(gantt, tmp_path / "nowhere" / "gantt.svg")


def test_the_critical_path_is_outlined_in_an_svg(tmp_path) -> None:
    """Its bars are clear, and each is as wide as the one that it surrounds."""
    trace = lab.simulate(lab.plan("lecture-hall", "tiny", steps=1), "1f1b")
    figure = lab.figures.gantt(trace, critical=True, messages=True)
    outline = figure.data[-3].marker.line.color
    assert outline in lab.figures.save(figure, tmp_path / "gantt.svg").read_text()


def test_notes_at_a_name_of_an_axis_are_drawn(tmp_path) -> None:
    trace = lab.simulate(lab.plan("lecture-hall", "tiny", steps=1), "1f1b")
    figure = lab.figures.comparison(lab.compare(trace, trace))
    assert "forward" in lab.figures.save(figure, tmp_path / "comparison.svg").read_text()
