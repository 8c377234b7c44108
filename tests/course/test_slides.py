"""Slides follow from a lesson's headings, and no answer stands on the slide of its question."""

from dtfm_lab.course.slide_types import with_slides


def cell(kind, source):
    return {"cell_type": kind, "id": "c", "metadata": {"kept": 1}, "source": source}


def kinds(*cells):
    made = with_slides({"cells": list(cells), "nbformat": 4})
    assert made["nbformat"] == 4
    return [(each["metadata"]["slideshow"]["slide_type"], "".join(each["source"])) for each in made["cells"]]


def test_headings_begin_slides_and_are_cut_out_of_longer_cells():
    text = "# Lesson\nWords\n## First\nMore\n```sh\n# a comment\n```\n### Below\nEnd"
    assert [kind for kind, _ in kinds(cell("markdown", text))] == ["slide", "slide", "subslide"]
    assert "".join(source for _, source in kinds(cell("markdown", text))) == text
    assert kinds(cell("markdown", "no heading"), cell("code", "1 + 1")) == [("-", "no heading"), ("-", "1 + 1")]


def test_the_answer_is_not_on_the_slide_of_its_question():
    guess = cell("code", 'def answer():\n    return 1\n\nlab.guess("a", "How much?", answer)')
    found = kinds(guess, cell("code", "answer()"), cell("code", "2"))
    assert [kind for kind, _ in found] == ["subslide", "subslide", "-"]


def test_cells_for_the_reader_are_left_out():
    for source in ("# answer = ...\n# lab.missions.check('a', answer)", ""):
        assert kinds(cell("code", source))[0][0] == "skip"


def test_metadata_is_kept():
    (one,) = with_slides({"cells": [cell("code", "1")]})["cells"]
    assert one["metadata"]["kept"] == 1
