"""The widget that asks for a guess: the answer comes after it, computed beside the page."""

import asyncio
import threading

import pytest
from loops import until

import dtfm_lab as lab

pytestmark = pytest.mark.usefixtures("own_progress")


def sent(view) -> str:
    return repr(view.get_state())


def test_the_answer_is_nowhere_in_the_page_before_the_guess():
    view = lab.guess("how-long", "How long does it take?", 49.5321, "s", 1, 1000)
    bundle = view._repr_mimebundle_()[0]
    assert "49.5" not in sent(view) + repr(bundle)
    assert bundle["text/markdown"] == "**Guess first.** How long does it take? [s]"
    assert view.is_log
    view.guess(12)
    assert "4.1 times too low" in view.words
    assert "49.5" in sent(view)


def test_a_cell_that_runs_again_shows_that_it_is_done():
    lab.guess("how-long", "How long?", 49.5, "s").guess(12)
    never = lab.guess("how-long", "How long?", lambda: pytest.fail("computed again"), "s")
    assert never.words == "You said 12 s, it is 49.5 s: 4.1 times too low."
    again = lab.guess("how-long", "How long?", 49.5, "s")
    again.guess(49)
    assert "Your first guess counts: 12 s." in again.words
    assert again.score == "1 guess, 0 within a factor of 2"


async def test_a_slow_answer_is_computed_beside_the_event_loop():
    may_end = threading.Event()

    def answer() -> float:
        assert may_end.wait(60)
        return 5.0

    view = lab.guess("slow", "How slow?", answer)
    view.guess(4)
    await asyncio.sleep(0.01)
    assert (view.busy, view.words) == (True, "")
    view.guess(400)  # ignored: one guess is being answered
    may_end.set()
    await until(lambda: not view.busy)
    assert view.words == "You said 4, it is 5: 20 % too low."


async def test_an_answer_that_fails_is_one_line_and_no_guess_is_kept():
    view = lab.guess("broken", "How broken?", lambda: float("nan"))
    view.guess(4)
    await until(lambda: not view.busy)
    assert view.problem == "guess 'broken': its answer is nan; wanted a finite number"
    assert lab.missions.progress().guesses == []


def test_where_nothing_can_be_written_the_answer_comes_all_the_same(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DTFM_LAB_PROGRESS", str(tmp_path / "file" / "folder"))
    view = lab.guess("how-long", "How long?", 49.5, "s")
    view.guess(12)
    assert "4.1 times too low" in view.words
    assert "not kept" in view.problem


def test_without_widgets_the_question_is_text(monkeypatch):
    def refuse(name: str) -> object:
        raise ModuleNotFoundError(f"No module named {name!r}", name="anywidget")

    monkeypatch.setattr("dtfm_lab.extensions.course.missions.import_module", refuse)
    asked = lab.guess("how-long", "How long?", 49.5, "s")
    assert repr(asked) == "Guess first: How long? [s]"
    assert "4.1 times too low" in asked.guess(12)
