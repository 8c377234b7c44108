"""A class's guesses as a figure: a panel a question, every guess counted once, the answer as a line."""

import pandas as pd
import pytest

import dtfm_lab as lab
from dtfm_lab.course.progress import Guess, Progress
from dtfm_lab.figures.snapshots import svg


def a_class(*said: float, answer: float = 49.5, name: str = "cost") -> list[Progress]:
    return [
        Progress(f"reader {number}", {}, [Guess(name, "What does chance cost?", each, answer, "s")])
        for number, each in enumerate(said)
    ]


def counts(figure, panel: int = 0) -> list[float]:
    return list(figure.data[2 * panel + 1].y)


@pytest.mark.parametrize("said", [(12, 30, 60, 49.5), (1, 1000, 40), (7,), (49.5,), (0, 5, -3)])
def test_every_guess_is_counted_once(said):
    figure = lab.figures.guesses(a_class(*said))
    assert sum(counts(figure)) == len(said)
    near = sum(24.75 <= each <= 99 for each in said)
    assert f"{near} of {len(said)} near" in lab.figures.alt_text(figure)
    assert svg(figure, "guesses").startswith("<svg")


def test_the_answer_is_a_line_on_the_axis():
    plain = lab.figures.guesses(a_class(20, 40, 60))
    assert plain.layout.shapes[-1].x0 == 49.5
    wide = lab.figures.guesses(a_class(1, 1000, answer=100))
    assert wide.layout.shapes[-1].x0 == pytest.approx(2)  # its power of ten


def test_where_answers_differ_guesses_are_shares_of_the_answer():
    figure = lab.figures.guesses(a_class(10, answer=20) + a_class(30, answer=60))
    assert figure.layout.shapes[-1].x0 == 1
    assert "answers differ; median guess 0.5 ×" in lab.figures.alt_text(figure)


def test_a_folder_a_table_and_a_list_of_guesses_are_the_same_figure(tmp_path, monkeypatch):
    monkeypatch.setenv("DTFM_LAB_PROGRESS", str(tmp_path / "progress"))
    for number, said in enumerate((12, 30, 60)):
        monkeypatch.setenv("DTFM_LAB_READER", f"reader {number}")
        lab.guess("cost", "What does chance cost?", 49.5, "s").guess(said)
        lab.guess("share", "Which share is latency?", 31, "%").guess(said)
        lab.missions.export(tmp_path / "class" / f"{number}")
    (tmp_path / "class" / "other.json").write_text("{}")
    figures = [lab.figures.guesses(given) for given in (tmp_path / "class", lab.guesses(tmp_path / "class"))]
    assert figures[0].to_json() == figures[1].to_json()
    assert len(figures[0].data) == 4
    assert lab.guesses(tmp_path / "class")["reader"].nunique() == 3


def test_what_holds_no_guesses_is_refused_in_a_line(tmp_path):
    with pytest.raises(lab.LabError, match="no file of a reader's progress"):
        lab.figures.guesses(tmp_path)
    with pytest.raises(lab.LabError, match="found int 3"):
        lab.figures.guesses([3])
    with pytest.raises(lab.LabError, match="no column name"):
        lab.figures.guesses(pd.DataFrame({"guess": [1.0]}))
    assert "No guesses yet" in lab.figures.alt_text(lab.figures.guesses([]))
