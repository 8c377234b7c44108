"""``dtfm-lab missions``: the board, assignments, and marks that nobody gets by editing a check."""

import csv
import json
import re

import pytest

import dtfm_lab as lab
from dtfm_lab.extensions.course.graded import read_key, variant_of
from dtfm_lab.extensions.course.guessing import GuessQuestion
from dtfm_lab.extensions.course.missions import RECORD
from dtfm_lab.extensions.course.teaching import Own, assignment

nbformat = pytest.importorskip("nbformat", reason="jupyter is not installed")
LESSON, MISSION = "02_network", "half-and-half"

pytestmark = pytest.mark.usefixtures("own_progress")


def only(notebook, mission=MISSION):
    """The notebook with the cells of one mission."""
    ours = (f"task-{mission}", f"answer-{mission}", f"check-{mission}")
    cells = [cell for cell in notebook["cells"] if cell["id"] in ("about", "reader", *ours, "record")]
    return notebook | {"cells": cells}


def hand_in(folder, student, *, tries=0, **sources):
    """Write a student's notebook, with other sources of some cells by the beginning of their id, and a record."""
    notebook = only(assignment(LESSON, solved=False))
    for cell in notebook["cells"]:
        for beginning, source in sources.items():
            if cell["id"].startswith(beginning):
                cell["source"] = source
        if cell["id"] == "record" and tries:
            record = {"reader": student, "missions": {MISSION: [tries, 1, True]}}
            cell["outputs"] = [{"output_type": "display_data", "metadata": {}, "data": {RECORD: record}}]
    path = folder / student / LESSON / f"{LESSON}.ipynb"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(notebook))


def test_the_board_is_a_table_or_json(prints, tells):
    said = prints("missions", "--lesson", LESSON)
    assert MISSION in said
    assert "passed by ada" in said
    board = tells("missions")
    assert MISSION in {row["mission"] for row in board["missions"]}
    assert tells("show", "missions") == board
    assert MISSION in prints("show", "missions")


def test_an_assignment_is_written_for_both(shell, tmp_path):
    status, _, said = shell("missions", "assignment", LESSON, "-o", str(tmp_path))
    assert status == 0
    assert said.count("wrote") == 2
    for folder in ("source", "release"):
        nbformat.validate(nbformat.read(tmp_path / folder / LESSON / f"{LESSON}.ipynb", as_version=4))


def test_each_student_gets_numbers_of_their_own_and_an_exam(shell, refuses, tmp_path):
    (tmp_path / "class.txt").write_text("ada\nbarbara\n")
    options = ("--key", str(tmp_path / "class.key"), "--students", str(tmp_path / "class.txt"), "-o", str(tmp_path))
    assert shell("missions", "assignment", LESSON, "--no-hints", *options)[0] == 0
    first = {
        name: nbformat.read(tmp_path / "release" / LESSON / f"{name}.ipynb", as_version=4).cells[1].source
        for name in ("ada", "barbara")
    }
    assert "hints=False, variant=" in first["ada"]
    assert first["ada"] != first["barbara"].replace("barbara", "ada")
    status, _, said = shell("missions", "exam", *options)
    assert (status, said.count("2 sheets")) == (0, 2)
    before = (tmp_path / "exam.html").read_text()
    assert (tmp_path / "answers.html").stat().st_mode & 0o777 == 0o600
    shell("missions", "exam", *options)
    assert (tmp_path / "exam.html").read_text() == before, "the key is kept"
    for wrong in (
        ("exam", "-o", "x"),
        ("exam", "-o", "x", *options[:2]),
        ("assignment", LESSON, "-o", "x", *options[2:4]),
    ):
        refuses("wanted", "missions", *wrong)


def test_guesses_of_a_class_are_a_page(shell, refuses, tmp_path):
    GuessQuestion("how-long", "How long?", 3.0, "s").guess(4)
    lab.missions.export(tmp_path / "handed-in")
    assert shell("missions", "guesses", str(tmp_path / "handed-in"), "-o", str(tmp_path / "page.html"))[0] == 0
    assert "1 of 1 within a factor of 2" in (tmp_path / "page.html").read_text()
    assert shell("missions", "guesses", str(tmp_path), "-o", str(tmp_path / "none.html"))[0] == 0
    (tmp_path / "empty").mkdir()
    refuses("lab.missions.export", "missions", "guesses", str(tmp_path / "empty"))


def test_mistakes_are_one_line(refuses, tmp_path):
    refuses("did you mean '02_network'", "missions", "assignment", "02_networks", "-o", str(tmp_path))
    refuses("no notebook in it", "missions", "mark", str(tmp_path))


@pytest.mark.slow
def test_marks_are_of_answers_and_not_of_checks(shell, tmp_path):
    right = "given = lab.missions.given('half-and-half')\nanswer = given.latency_ms * given.bandwidth_gbps * 1e6 / 8"
    folder = tmp_path / "submitted"
    hand_in(folder, "ada", answer=right)
    hand_in(folder, "barbara", answer=f"lab.missions.reader('ada')\n{right}")
    hand_in(folder, "carol", answer="answer = 1.0", check="assert True")
    cheat = (
        "import dtfm_lab.extensions.course.mission as m\n"
        "m.Mission.verdict = lambda self, a, r: m.Verdict(self.name, True, '')"
    )
    hand_in(folder, "dora", answer=f"{cheat}\nanswer = 1.0")
    hand_in(folder, "emmy", answer="answer = 1 / 0")
    hand_in(folder, "gerda", answer=f"exec(lab.missions.answer('{MISSION}').markdown.strip('`python'))")
    hand_in(folder, "irene", answer=f"for answer in range(5): lab.missions.check('{MISSION}', answer)", tries=7)
    hand_in(folder, "jean", answer="import os\nos.kill(os.getpid(), 9)")
    widget = (
        "import asyncio\nawait asyncio.sleep(0)\ndisplay(lab.guess('a', 'How many?', 1.0), lab.Lab('lecture-hall'))"
    )
    hand_in(folder, "lise", answer=f"{widget}\n{right}")
    hand_in(folder, "kate", answer="import os\nos._exit(0)")
    hand_in(folder, "fanny")
    (folder / "hedy.ipynb").write_text("no notebook")
    status, _, said = shell("missions", "mark", str(folder), "-o", str(tmp_path / "marks.csv"), "--seconds", "600")
    assert status == 0, said
    with (tmp_path / "marks.csv").open() as file:
        marks = {row["student"]: row for row in csv.DictReader(file) if row["mission"] in (MISSION, "")}
    assert {name: row["points"] for name, row in marks.items() if row["points"] != "0"} == {"ada": "1", "lise": "1"}
    for name, why in {
        "barbara": ("is not it",),
        "carol": ("1 is not it",),
        "dora": ("1 is not it",),
        "gerda": ("its answers are off",),
        "irene": ("4 is not it",),
        "jean": ("its process died",),
        "kate": ("its process died",),
        "emmy": ("ZeroDivisionError",),
        "fanny": ("not answered",),
        "hedy": ("no notebook",),
    }.items():
        assert any(word in marks[name]["reason"] for word in why), marks[name]
    assert (marks["irene"]["tries"], marks["irene"]["hints"], marks["irene"]["answer_shown"]) == ("12", "1", "True")
    assert marks["ada"]["tries"] == "", "nothing is known without a record"
    assert not (tmp_path / "progress").exists(), "the marker's own progress is left alone"


@pytest.mark.slow
def test_numbers_of_a_key_are_marked_with_the_key(shell, tmp_path):
    (tmp_path / "class.key").write_text("5" * 64)
    key = read_key(tmp_path / "class.key")
    right = f"given = lab.missions.given('{MISSION}')\nanswer = given.latency_ms * given.bandwidth_gbps * 1e6 / 8"
    for name, own in (("ada", "ada"), ("barbara", "ada")):
        variant = variant_of(key, LESSON, own)
        first = assignment(LESSON, solved=False, own=Own(own, variant))["cells"][1]["source"]
        hand_in(tmp_path / "submitted", name, answer=right, reader=first)
    points = []
    for options in ((), ("--key", str(tmp_path / "class.key"))):
        assert shell("missions", "mark", str(tmp_path / "submitted"), "-o", "marks.csv", *options)[0] == 0
        rows = [row for row in csv.DictReader((tmp_path / "marks.csv").open()) if row["mission"] in (MISSION, "")]
        points.append([(row["student"], row["points"], "--key" in row["reason"]) for row in rows])
    assert points[0] == [("ada", "0", True), ("barbara", "0", True)]
    assert points[1] == [("ada", "1", False), ("barbara", "0", False)]


@pytest.mark.slow
def test_an_answer_that_takes_too_long_is_ended(shell, tmp_path):
    hand_in(tmp_path / "submitted", "grace", answer="import time\ntime.sleep(3600)", reader="import dtfm_lab as lab")
    assert shell("missions", "mark", str(tmp_path / "submitted"), "-o", "marks.csv", "--seconds", "5")[0] == 0
    [row] = [row for row in csv.DictReader((tmp_path / "marks.csv").open()) if row["mission"] == MISSION]
    assert (row["points"], "took longer than 5 s" in row["reason"]) == ("0", True)


# ``dtfm-lab export --slides``


def test_a_lesson_becomes_slides(shell, tmp_path):
    status, _, said = shell("export", "--slides", "00_tour", "-o", str(tmp_path / "tour.html"))
    assert (status, said) == (0, f"wrote {tmp_path / 'tour.html'}\n")
    page = (tmp_path / "tour.html").read_text()
    assert page.count("<section") > 5
    assert "http" not in re.sub(r'src="data:[^"]*"', "", page)


def test_any_notebook_does_and_mistakes_are_one_line(shell, refuses, tmp_path):
    (path := tmp_path / "own.ipynb").write_text(
        json.dumps({"cells": [{"cell_type": "markdown", "metadata": {}, "source": ["# Mine\n", "a"]}], "metadata": {},
                    "nbformat": 4, "nbformat_minor": 4})
    )  # fmt: skip
    assert shell("export", "--slides", str(path), "-o", str(tmp_path / "own.html"))[0] == 0
    assert "Mine" in (tmp_path / "own.html").read_text()
    refuses("did you mean '00_tour'", "export", "--slides", "00_tours")
    path.write_text("{}")
    refuses("", "export", "--slides", str(path))
