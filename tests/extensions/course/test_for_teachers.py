"""What a teacher uses: assignments in nbgrader's format, tables, slides, the pack, and tests of concepts."""

import base64
import json
import re
from pathlib import Path

import pandas as pd
import pytest

import dtfm_lab as lab
from dtfm_lab.domain.errors import LabError, UnknownName
from dtfm_lab.extensions.course import exam
from dtfm_lab.extensions.course.api import LESSONS, missions
from dtfm_lab.extensions.course.concepts import concept_questions, gain_of
from dtfm_lab.extensions.course.deck import MOST_WORDS, deck_of, slides_of
from dtfm_lab.extensions.course.formula import in_plain_text
from dtfm_lab.extensions.course.pack import pack
from dtfm_lab.extensions.course.progress import Progress
from dtfm_lab.extensions.course.teaching import assignment, points_of
from tools.website.course import lesson_plan, made_anew

DOCS = Path(__file__).parents[3] / "docs"
NOTEBOOKS = DOCS.parent / "notebooks"
WITH_MISSIONS = sorted({each.lesson for each in missions.values()})


def sources(notebook):
    return "\n".join(cell["source"] for cell in notebook["cells"])


@pytest.mark.parametrize("lesson", WITH_MISSIONS)
def test_every_lesson_is_an_assignment(lesson):
    student, instructor = (assignment(lesson, solved=solved) for solved in (False, True))
    about = [cell["metadata"].get("nbgrader") for cell in instructor["cells"]]
    ids = [each["grade_id"] for each in about if each]
    assert len(ids) == len(set(ids))
    graded = [each for each in about if each and each["grade"]]
    names = lab.missions.names(lesson)
    assert [each["grade_id"] for each in graded] == [f"check-{name}" for name in names]
    assert all(each["locked"] and not each["solution"] for each in graded)
    assert [each["points"] for each in graded] == [points_of(missions[name]) for name in names]
    assert [cell["metadata"] for cell in student["cells"]] == [cell["metadata"] for cell in instructor["cells"]]
    assert sources(student).count("NotImplementedError") == len(names)
    for name in names:
        assert missions[name].answer in sources(instructor)
        assert missions[name].answer not in sources(student)
    assert "BEGIN SOLUTION" not in sources(student)


@pytest.mark.parametrize("lesson", WITH_MISSIONS)
def test_an_assignment_is_a_valid_notebook(lesson):
    nbformat = pytest.importorskip("nbformat", reason="jupyter is not installed")
    for solved in (False, True):
        nbformat.validate(nbformat.from_dict(assignment(lesson, solved=solved)))


def test_lessons_that_are_none_are_refused():
    with pytest.raises(UnknownName, match="lesson"):
        assignment("02_networks", solved=True)
    if empty := sorted(set(LESSONS) - set(WITH_MISSIONS)):
        with pytest.raises(LabError, match="has no missions"):
            assignment(empty[0], solved=True)


def test_the_page_is_up_to_date():
    page = (DOCS / "teach.md").read_text()
    assert made_anew(page) == page, "run make teaching"


def test_every_lesson_and_mission_is_in_the_plan():
    plan = lesson_plan()
    assert [name for name in LESSONS if f"| `{name}` |" not in plan] == []
    assert [name for name in missions if f"| `{name}` |" not in plan] == []


def cell(kind, source, **more):
    return {"cell_type": kind, "source": source, "metadata": {}, **more}


def slides(*cells):
    return list(slides_of({"cells": list(cells)}))


def n_words(slide) -> int:
    """What an audience reads: printed output is a table, and does not count."""
    return len(f"{slide.heading} {slide.text}".split())


def test_a_slide_has_few_words_and_no_code():
    long = "# Lesson\n" + " ".join(f"Sentence {n} has these words." for n in range(40))
    (one,) = slides(cell("markdown", long), cell("code", "x = 1", outputs=[{"text": "1"}]))
    assert one.heading == "Lesson"
    assert one.text.startswith("Sentence 0 has")
    assert n_words(one) <= MOST_WORDS


def test_a_figure_and_what_a_question_reveals_are_slides_of_their_own():
    asked = cell(
        "code", 'lab.guess("a", "How much?")', outputs=[{"data": {"text/markdown": "**Guess first.** How much?"}}]
    )
    answered = cell("code", 'lab.reveal("a")', metadata={"dtfm_lab": {"revealed": [{"text": "12 s"}]}}, outputs=[])
    drawn = cell("code", "figure", outputs=[{"data": {"image/png": "QUJD"}}])
    found = slides(cell("markdown", "## 1. Part\nWords."), asked, answered, drawn)
    assert [(each.heading, each.text, each.printed, each.picture) for each in found] == [
        ("Part", "Words.", "", ""),
        ("Your guess?", "How much?", "", ""),
        ("Part", "", "12 s", ""),
        ("Part", "", "", "QUJD"),
    ]


def test_missions_are_left_out_and_a_takeaway_is_a_slide():
    found = slides(cell("markdown", "## End\n\n> **Takeaway.** One thing\n> to keep.\n\n## Missions\nDo this."))
    assert [(each.heading, each.text) for each in found] == [("End", ""), ("Takeaway", "One thing to keep.")]


def test_a_list_and_a_formula_stay_with_the_words_that_announce_them():
    text = (
        "## 1. Cost\nA *message* takes\n\n$$t = \\alpha + \\frac{b}{\\beta}$$\n\n## 2. Ways\nTwo ways:\n\n- one\n- two"
    )
    cost, ways = slides(cell("markdown", text))
    assert (cost.text, cost.formula) == ("A *message* takes", "t = α + b / β")
    assert (ways.text, ways.items) == ("Two ways:", ("one", "two"))
    page = deck_of({"cells": [cell("markdown", text)]})
    assert "A <em>message</em> takes" in page
    assert "<li>one</li><li>two</li>" in page


def test_words_that_announce_what_no_slide_shows_are_left_out_or_end_in_a_stop():
    hard = "## 1. Cost\nEquation 1 is known. It says\n\n$$w = \\max_{d} x$$\n\n## 2. Now\nCount the bytes:"
    assert [each.text for each in slides(cell("markdown", hard))] == ["Equation 1 is known.", "Count the bytes."]


def test_a_slide_that_has_only_a_heading_is_left_out():
    page = deck_of({"cells": [cell("markdown", "# Lesson\nWords."), cell("markdown", "## Empty\n\n## Full\nMore.")]})
    assert re.findall(r"<h1>(.*?)</h1>", page) == ["Lesson", "Full"]
    assert page.count(" / 2</span>") == 2


def test_a_table_that_a_question_reveals_is_a_table_without_markup_of_its_own():
    frame = pd.DataFrame({"seconds": [1.5], "who": ["<script>x</script>"]})
    shown = {"data": {"text/html": frame.to_html(), "text/plain": str(frame)}}
    answered = cell("code", 'lab.reveal("a")', metadata={"dtfm_lab": {"revealed": [shown]}}, outputs=[])
    (slide,) = slides(answered)
    assert slide.table == (("seconds", "who"), ("1.5", "<script>x</script>"))
    assert "<td>&lt;script&gt;x&lt;/script&gt;</td>" in deck_of({"cells": [answered]})


def test_a_table_with_levels_has_one_head_and_every_cell_in_its_column():
    index = pd.MultiIndex.from_tuples([(0, "ada"), (0, "ben"), (1, "cleo")], names=["stage", "device"])
    columns = pd.MultiIndex.from_tuples([("seconds", "hall"), ("seconds", "city"), ("GPUs", "")])
    frame = pd.DataFrame([[1, 2, 3], [4, 5, 6], [7, 8, 9]], index=index, columns=columns)
    shown = {"data": {"text/html": frame.to_html(), "text/plain": str(frame)}}
    announced = [{"text": "All of them:\n"}, shown]
    answered = cell("code", 'lab.reveal("a")', metadata={"dtfm_lab": {"revealed": announced}}, outputs=[])
    (slide,) = slides(answered)
    assert slide.text == "All of them:"
    assert slide.table == (
        ("stage", "device", "seconds hall", "seconds city", "GPUs"),
        ("0", "ada", "1", "2", "3"),
        ("0", "ben", "4", "5", "6"),
        ("1", "cleo", "7", "8", "9"),
    )


@pytest.mark.parametrize(
    ("tex", "plain"),
    [
        (r"2 (N - 1) \left(\alpha + \frac{S}{N \beta}\right)", "2 (N − 1) (α + S / (N β))"),
        (r"\frac{10^9}{\text{tokens in a batch}}", "10⁹ / tokens in a batch"),
        (r"\sqrt{2cM}", "√(2cM)"),
        (r"\frac{cB/D}{cB/D+s}", "(cB/D) / (cB/D+s)"),
        (r"\max_{d \in C} x", ""),
    ],
)
def test_a_formula_in_plain_text_is_whole_or_not_there(tex, plain):
    assert in_plain_text(tex) == plain


@pytest.mark.parametrize("lesson", ["07", "15", "16", "19", "20"])
def test_a_lesson_and_its_deck_show_the_drawing_of_its_concept(lesson):
    (path,) = NOTEBOOKS.glob(f"{lesson}_*.ipynb")
    (drawn,) = [each for each in slides_of(json.loads(path.read_text())) if each.drawing]
    assert drawn.alt
    page = deck_of(json.loads(path.read_text()))
    (svg,) = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', page)
    assert b"<title>" in base64.b64decode(svg)
    assert b"prefers-color-scheme" not in base64.b64decode(svg)  # slides are white on every machine


@pytest.mark.parametrize("lesson", [name for name in LESSONS if (NOTEBOOKS / f"{name}.ipynb").exists()])
def test_a_deck_of_a_lesson_loads_nothing_and_can_be_read_from_the_last_row(lesson):
    notebook = json.loads((NOTEBOOKS / f"{lesson}.ipynb").read_text())
    assert max(n_words(each) for each in slides_of(notebook)) <= MOST_WORDS
    page = deck_of(notebook)
    assert re.findall(r"(?:src|href)=[\"'](?!data:)|@import|url\(", page) == []


def test_the_pack_has_every_answer_and_the_site_has_none():
    files = dict(pack())
    assert all(each.answer in files["answers.md"] for each in missions.values())
    known = [each.answer for each in exam.questions(exam.PRINTED)]
    assert all(answer in files["exam-answers.md"] for answer in known)
    pages = "\n".join(path.read_text() for path in DOCS.glob("*.md"))
    assert [answer for answer in known if len(answer) > 30 and answer in pages] == []
    assert {f"decks/{name}.html" for name in LESSONS if (NOTEBOOKS / f"{name}.ipynb").exists()} <= set(files)


def answered(reader, before, after):
    """A reader who has so many concepts right before, and so many after."""
    kept = Progress(reader, {}, [])
    for when, n_right in (("before", before), ("after", after)):
        for place, question in enumerate(concept_questions(when)):
            right = question.compute()
            guess = right if place < n_right else right % len(question.choices) + 1
            kept.note_guess(question.said(guess, right))
    return kept


def test_the_gain_is_the_share_of_what_could_be_gained():
    table = gain_of([answered("ada", 2, 8), answered("ben", 4, 6), Progress("cleo", {}, [])])
    assert table["readers"].tolist() == [2] * 8
    assert table["before"].tolist() == [1, 1, 0.5, 0.5, 0, 0, 0, 0]
    assert table["after"].tolist() == [1] * 6 + [0.5] * 2
    assert table["gain"].tolist()[2:] == [1, 1, 1, 1, 0.5, 0.5]
    assert "2 readers answered both times" in lab.figures.gain(table).layout.title.subtitle.text
    with pytest.raises(LabError, match="no reader answered"):
        gain_of([Progress("cleo", {}, [])])


def test_before_a_course_a_concept_shows_no_answer(own_progress):
    view = lab.missions.concepts("before")[0]
    view.guess(1, "I have seen it before")
    assert view.words == "Kept. The answer comes after the course."
    assert view.marks == []
    after = lab.missions.concepts("after")[0]
    after.guess(1, "I have learnt it since")
    assert after.words.startswith(("Right", "You chose"))
    with pytest.raises(LabError, match="wanted 'before' or 'after'"):
        lab.missions.concepts("during")


def test_the_gain_of_a_class_is_drawn_by_a_command(shell, tmp_path):
    from dtfm_lab.extensions.course.progress import save_progress

    for reader in ("ada", "ben"):
        save_progress(answered(reader, 2, 7), tmp_path / "in" / f"{reader}.json")
    status, _, said = shell("missions", "gain", str(tmp_path / "in"), "-o", str(tmp_path / "gain.html"))
    assert (status, said) == (0, f"wrote {tmp_path / 'gain.html'}\n")
    assert "What the class gained" in (tmp_path / "gain.html").read_text()
