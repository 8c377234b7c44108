"""``dtfm-lab export --slides``: slides of a lesson by nbconvert."""

import json

import pytest

pytest.importorskip("nbconvert", reason="jupyter is not installed")


def test_a_lesson_becomes_slides(shell, tmp_path):
    status, _, said = shell("export", "--slides", "00_tour", "-o", str(tmp_path / "tour.html"), "--reveal", "reveal.js")
    assert (status, said) == (0, f"wrote {tmp_path / 'tour.html'}\n")
    page = (tmp_path / "tour.html").read_text()
    assert page.count("<section") > 5
    assert "reveal.js/dist/reveal" in page


def test_any_notebook_does_and_mistakes_are_one_line(shell, tmp_path):
    (path := tmp_path / "own.ipynb").write_text(
        json.dumps({"cells": [{"cell_type": "markdown", "metadata": {}, "source": ["# Mine\n", "a"]}], "metadata": {},
                    "nbformat": 4, "nbformat_minor": 4})
    )  # fmt: skip
    assert shell("export", "--slides", str(path), "-o", str(tmp_path / "own.html"))[0] == 0
    assert "Mine" in (tmp_path / "own.html").read_text()
    status, _, line = shell("export", "--slides", "00_tours")
    assert (status, line.count("\n")) == (2, 1)
    assert "did you mean '00_tour'" in line
    path.write_text("{}")
    status, _, line = shell("export", "--slides", str(path))
    assert (status, line.count("\n")) == (2, 1)
