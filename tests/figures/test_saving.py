"""Figures as files for a paper: their size in inches, their type, and what is needed for which ending."""

import importlib.util
import re

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
def test_a_page_is_as_wide_as_asked_and_needs_nothing(gantt, tmp_path, width):
    text = lab.figures.save(gantt, tmp_path / "gantt.html", width=width).read_text("utf-8")
    assert f'"width":{round(WIDTHS_IN[width] * PX_PER_IN)}' in text
    assert "forward" in text
    assert not re.search(r'<script[^>]*src="http', text)


def test_type_has_eight_points_and_the_title_is_left_to_the_caption(gantt):
    sized = for_paper(gantt, "column")
    assert sized.layout.title.text is None
    assert pytest.approx(8 * PX_PER_IN / 72) == TYPE_PX
    assert {sized.layout.font.size, sized.layout.legend.font.size, sized.layout.xaxis.tickfont.size} == {TYPE_PX}
    assert gantt.layout.title.text, "the figure itself stays as it is"


@pytest.mark.skipif(importlib.util.find_spec("kaleido") is not None, reason="kaleido is installed")
@pytest.mark.parametrize("ending", ["svg", "pdf"])
def test_a_picture_without_kaleido_says_in_one_line_what_to_install(gantt, tmp_path, ending):
    with pytest.raises(MissingExtra, match=rf"^gantt\.{ending} needs kaleido.*pip install 'dtfm_lab\[figures\]'$"):
        lab.figures.save(gantt, tmp_path / f"gantt.{ending}")


def test_what_cannot_be_written_is_refused(gantt, tmp_path):
    with pytest.raises(LabError, match=r"gantt\.docx ends in \.docx; wanted one of \.svg, \.pdf, \.png"):
        lab.figures.save(gantt, tmp_path / "gantt.docx")
    with pytest.raises(LabError, match="width is 'wide'; wanted one of column, text"):
        lab.figures.save(gantt, tmp_path / "gantt.html", width="wide")
    with pytest.raises(FileError, match="cannot be written"):
        lab.figures.save(gantt, tmp_path / "nowhere" / "gantt.html")
