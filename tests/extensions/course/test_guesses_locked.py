"""Every lesson runs, and shows no answer before the guess, neither in its cells nor in what they print.

This is the only place where the suite runs the lessons.
"""

import ast
import json
import re
from pathlib import Path

import pytest

import dtfm_lab as lab
from dtfm_lab.domain.errors import LabError
from dtfm_lab.extensions.course.answers import ANSWERS
from dtfm_lab.extensions.course.api import LESSONS

jupytext = pytest.importorskip("jupytext", reason="lessons are read by jupytext")
nbclient = pytest.importorskip("nbclient", reason="lessons are run by nbclient")

ROOT = Path(__file__).parents[3]
SOURCES = ROOT / "tools" / "lessons"
FIGURES = 3
"""Digits from which a number that is printed is no coincidence."""
ASKED = """
import json
from dtfm_lab.extensions.course.guessing import ASKED
print(json.dumps({name: [asked.compute(), list(asked.choices)] for name, asked in ASKED.items()}))
"""


def cells_of(lesson):
    return jupytext.read(SOURCES / f"{lesson}.py").cells


def asked_in(cell) -> str:
    found = re.search(r'^lab\.guess\(\s*"([\w-]+)"', cell.source, re.MULTILINE) if cell.cell_type == "code" else None
    return found[1] if found else ""


def revealed_in(cell) -> list[str]:
    found = re.search(r"^lab\.reveal\(([^)]*)\)", cell.source) if cell.cell_type == "code" else None
    return re.findall(r'"([\w-]+)"', found[1]) if found else []


@pytest.mark.parametrize("lesson", LESSONS)
def test_a_question_has_its_answer_in_the_module_and_not_in_its_cell(lesson):
    for cell in cells_of(lesson):
        if name := asked_in(cell):
            assert name in ANSWERS
            call = next(each for each in ast.walk(ast.parse(cell.source)) if is_guess(each))
            assert len(call.args) == 2, "a name and a question, and no answer"
            assert not any(isinstance(each, ast.Lambda) for each in ast.walk(call))


def is_guess(node) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "guess"


def test_no_answer_is_left_over():
    asked = {asked_in(cell) for lesson in LESSONS for cell in cells_of(lesson)} - {""}
    assert asked == set(ANSWERS)


@pytest.mark.parametrize("lesson", LESSONS)
def test_what_follows_a_question_is_locked_and_folded(lesson):
    cells = cells_of(lesson)
    for place, cell in enumerate(cells[:-1]):
        name, after = asked_in(cell), cells[place + 1]
        if not name or asked_in(after):
            continue
        if after.cell_type == "code":
            assert name in revealed_in(after), after.source[:80]
        else:
            assert after.source.startswith(("<details>", "Here are", "## ")), after.source[:80]


@pytest.mark.slow
@pytest.mark.parametrize("lesson", LESSONS)
def test_all_cells_run_and_show_no_answer_without_a_guess(lesson, tmp_path, monkeypatch):
    for variable in ("DTFM_LAB_PROGRESS", "XDG_STATE_HOME", "IPYTHONDIR"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    monkeypatch.setenv("DTFM_LAB_READER", "ada")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("DTFM_LAB_REVEAL", raising=False)
    book = jupytext.read(SOURCES / f"{lesson}.py")
    for cell in book.cells:
        cell.metadata.pop("lines_to_next_cell", None)
    book.cells.append(
        type(book.cells[-1])(cell_type="code", source=ASKED, metadata={}, outputs=[], execution_count=None)
    )
    client = nbclient.NotebookClient(book, timeout=300, kernel_name="python3", store_widget_state=False)
    client.resources = {"metadata": {"path": str(ROOT / "notebooks")}}
    client.execute()
    *lesson_cells, last = book.cells
    answers = json.loads(last.outputs[-1].text)
    locked = {name for cell in lesson_cells for name in revealed_in(cell)}
    begun: list[str] = []
    for cell in lesson_cells:
        begun += [asked_in(cell)] if asked_in(cell) else []
        shown = said_by(cell)
        if revealed_in(cell):
            assert re.fullmatch(
                r"(Guess first: answer the question '[\w-]+' above, then run this cell again\.\s*)+", shown
            )
        for name in begun:
            answer, choices = answers[name]
            assert choices or not numbers_like(answer, shown), f"{name}: {answer} in {cell.source[:200]}"
    assert {name for name in begun if name in locked}, "a lesson has questions that lock cells"


def said_by(cell) -> str:
    if cell.cell_type != "code":
        return ""
    parts = [output.get("text", "") for output in cell.outputs]
    parts += [
        str(output.get("data", {}).get(kind, "")) for output in cell.outputs for kind in ("text/plain", "text/html")
    ]
    return "\n".join(filter(None, parts))


def numbers_like(answer: float, shown: str) -> list[str]:
    """Numbers of three figures or more that are the answer, rounded as they are printed."""
    found = []
    for number in re.findall(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?![\w])", shown):
        digits = re.sub(r"[,.]", "", number).strip("0")
        decimals = len(number.partition(".")[2])
        if len(digits) >= FIGURES and abs(float(number.replace(",", "")) - answer) <= 0.5 * 10.0**-decimals:
            found.append(number)
    return found


def test_an_answer_is_looked_up_by_name_and_computed_from_what_the_lesson_passes(own_progress):
    asked = lab.guess("memory-of-zero-1", "How many bytes?", of=(8,), unit="bytes")
    assert "5.5" not in repr(asked.get_state())
    asked.guess(16)
    assert "it is 5.5 bytes" in asked.words
    with pytest.raises(LabError, match="'nobody-asked-this' has no answer"):
        lab.guess("nobody-asked-this", "How many?")


def test_a_choice_is_right_or_wrong_and_its_reason_is_kept(own_progress):
    asked = lab.guess("which", "Which link?", "b", choices=("a", "b", "c"))
    asked.received({"kind": "guess", "value": 1.0, "reason": "ok"}, [])
    assert asked.problem.startswith("Say why")
    assert asked.words == ""
    asked.received({"kind": "guess", "value": 1.0, "reason": "a has the largest latency"}, [])
    assert asked.words == "You chose: a. It is: b."
    kept = lab.missions.progress().guesses[0]
    assert (kept.choices, kept.guess, kept.answer) == (["a", "b", "c"], 1, 2)
    assert kept.reason == "a has the largest latency"
    with pytest.raises(LabError, match="wanted 1 for 'a'; 2 for 'b'"):
        asked.guess("d")


def test_cells_behind_a_lock_are_executed_and_seen_after_the_guess(own_progress, capsys):
    shell_of = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell
    shell = shell_of.instance()
    cell = 'lab.reveal("how-long")\nprint("secret")\nkept = 3\nkept'
    try:
        shell.user_ns["lab"] = lab
        shell.run_cell(cell)
        assert (
            capsys.readouterr().out == "Guess first: answer the question 'how-long' above, then run this cell again.\n"
        )
        assert shell.user_ns["kept"] == 3
        shell.run_cell("print(kept)")
        assert capsys.readouterr().out == "3\n"
        lab.guess("how-long", "How long?", 3.0).guess(4)
        shell.run_cell(cell)
        assert "secret" in capsys.readouterr().out
    finally:
        shell_of.clear_instance()
