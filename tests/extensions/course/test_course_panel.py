"""The pane Course: what is on the screen is checked, hints come in steps, and progress is the reader's file."""

from __future__ import annotations

import pytest
from loops import send, until

import dtfm_lab as lab
from dtfm_lab.domain.plan import Plan
from dtfm_lab.extensions.course.api import LESSONS, missions
from dtfm_lab.extensions.course.pane import NOTHING_SHOWN, CoursePanel, candidates, typed
from dtfm_lab.extensions.course.pane.markdown import markdown
from dtfm_lab.extensions.course.progress import progress_path
from dtfm_lab.widgets.lab_state import LabState

pytestmark = pytest.mark.usefixtures("own_progress")


def a_panel(chosen: str, **state: object) -> CoursePanel:
    panel = CoursePanel(LabState(**state))
    panel.board.chosen = chosen
    return panel


async def pressed(panel: CoursePanel, kind: str, **more: str) -> dict[str, object]:
    send(panel.board, {"kind": kind, **more})
    await until(lambda: not panel.checking)
    return dict(panel.board.detail)


def test_the_board_lists_every_lesson_and_mission_in_order():
    board = a_panel("").board
    assert [lesson["name"] for lesson in board.lessons] == list(LESSONS)
    listed = [mission["name"] for lesson in board.lessons for mission in lesson["missions"]]
    assert listed == lab.missions.names()
    assert board.next == listed[0]
    assert board.caption == f"0 of {len(listed)} missions won · reader: ada"
    assert f"0 of {len(listed)}" in board.alt_text()


def test_no_answer_and_no_hint_is_in_the_page_before_it_is_asked_for():
    panel = a_panel("half-and-half")
    detail = panel.board.detail
    assert (detail["hints"], detail["answer"]) == ([], "")
    assert str(lab.missions.given("half-and-half").latency_ms) in detail["task"], "with this reader's numbers"
    assert "given.latency_ms" not in repr(panel.board.get_state())


async def test_hints_come_one_by_one_and_the_answer_last():
    panel = a_panel("half-and-half")
    n_hints = len(missions["half-and-half"].hints)
    for n in range(1, n_hints + 1):
        assert len((await pressed(panel, "hint"))["hints"]) == n
    assert lab.missions.answer_code("half-and-half") == (await pressed(panel, "answer"))["answer"]
    row = next(one for lesson in panel.board.lessons for one in lesson["missions"] if one["name"] == "half-and-half")
    assert row["note"] == f"{n_hints} hints, answer shown"
    assert not row["passed"]


async def test_what_an_assignment_turns_off_is_not_in_the_page_however_it_is_asked_for():
    lab.missions.hint("half-and-half")
    lab.missions.answer("half-and-half")
    lab.missions.assignment("02_network", hints=False, variant="f00")
    panel = a_panel("half-and-half")
    for kind in ("hint", "answer"):
        detail = await pressed(panel, kind)
        assert "off" in panel.board.problem
        assert (detail["hints"], detail["n_hints"], detail["answer"], detail["has_answer"]) == ([], 0, "", False)
    assert detail["off"] == "Graded: hints and the worked answer are off by the assignment."
    assert "given.latency_ms" not in repr(panel.board.get_state())
    assert str(lab.missions.given("half-and-half").latency_ms) in detail["task"]


async def test_a_number_is_typed_and_what_wins_stays_won():
    panel = a_panel("half-and-half")
    given = lab.missions.given("half-and-half")
    assert not (await pressed(panel, "typed", text="a lot"))["verdict"]["passed"]
    bits = given.latency_ms * given.bandwidth_gbps * 1e6
    assert "number of bits" in (await pressed(panel, "typed", text=str(bits)))["verdict"]["reason"]
    assert (await pressed(panel, "typed", text=str(bits / 8)))["verdict"]["passed"]
    again = a_panel("half-and-half").board
    assert again.n_passed == 1
    assert again.caption.startswith("1 of ")
    kept = lab.missions.progress().missions["half-and-half"]
    assert kept.tries == 3


async def test_the_plan_on_the_screen_is_checked():
    panel = a_panel("one-left-the-hall")
    assert panel.board.detail["checks"] == "the plan"
    assert panel.board.detail["why_not"] == NOTHING_SHOWN
    panel._lab_state.plan = lab.plan("lecture-hall", "tiny", seed=0, steps=1)
    assert panel.board.detail["why_not"] == ""
    assert "another network" in (await pressed(panel, "check"))["verdict"]["reason"]


async def test_a_reason_is_typed_for_the_plan_on_the_screen():
    panel = a_panel("spot-under-32")
    detail = panel.board.detail
    assert (detail["checks"], detail["typed"], detail["is_number"]) == ("", True, True)
    assert "NoneType" in (await pressed(panel, "typed", text="3"))["verdict"]["reason"]
    panel._lab_state.plan = lab.plan(
        "spot", "dtfm-gpt3-xl", planner="random", objective="communication", seed=0, steps=1
    )
    assert "49.5" in (await pressed(panel, "typed", text="3"))["verdict"]["reason"]
    panel._lab_state.plan = lab.plan("spot", "dtfm-gpt3-xl", objective="communication", seed=0, steps=20)
    assert "the first part is right" in (await pressed(panel, "typed", text="99"))["verdict"]["reason"]
    size = lab.missions.given("spot-under-32").size
    assert (await pressed(panel, "typed", text=str(size - 1)))["verdict"]["passed"]


def test_of_two_traces_the_measured_one_comes_first_and_nothing_else_is_handed_in():
    plan = lab.plan("lecture-hall", "tiny", steps=1)
    state = LabState(topology=plan.topology, job=plan.job, plan=plan, predicted=lab.simulate(plan))
    for mission in missions.values():
        takes = mission.takes if mission.reason is None else mission.begins_with
        kinds = takes if isinstance(takes, tuple) else (takes,)
        found = candidates(mission, state, None)
        assert all(isinstance(each, kinds) for each in found)
        assert bool(found) >= (Plan in kinds)


def test_a_text_is_the_list_or_number_that_it_stands_for():
    assert typed(missions["half-and-half"], " 1e6 ") == 1e6
    assert typed(missions["half-and-half"], "[[0, 1], [2, 3]]") == [[0, 1], [2, 3]]
    assert typed(missions["half-and-half"], "__import__('os')") == "__import__('os')"
    assert typed(missions["half-and-half"], "") is None


async def test_a_file_that_cannot_be_read_is_one_line_in_the_pane():
    path = lab.missions.export(progress_path("ada").parent)
    path.write_text("{")
    panel = a_panel("half-and-half")
    assert str(path.name) in panel.board.problem
    await pressed(panel, "hint")
    assert panel.board.problem


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("a `b < c` **d** *e*", "<p>a <code>b &lt; c</code> <b>d</b> <i>e</i></p>"),
        ("- a\n- b", "<ul><li>a\n</li><li>b</li></ul>"),
        ("2 * 3 * 4 <script>", "<p>2 * 3 * 4 &lt;script&gt;</p>"),
        (
            "[a](https://b.c) [d](e.md)",
            '<p><a href="https://b.c" target="_blank" rel="noopener noreferrer">a</a> d</p>',
        ),
        ("a\nb\n\n```python\nx = 1\n```\nc", "<p>a b</p><pre><code>x = 1</code></pre><p>c</p>"),
    ],
)
def test_the_little_of_markdown(text, html):
    assert markdown(text) == html


@pytest.mark.parametrize("name", [name for name, one in missions.items() if Plan in (one.takes, one.begins_with)])
async def test_draw_opens_the_job_that_the_check_asks_for(name):
    """Each field of the job that the check names is as it wants it, so no verdict is about the job."""
    drawn: list[tuple[lab.Topology, lab.Job]] = []
    panel = CoursePanel(LabState(), lambda *start: drawn.append(start))
    panel.board.chosen = name
    if not panel.board.detail["network"]:
        assert missions[name].lesson.endswith("capstone"), "readers draw their own"
        return
    send(panel.board, {"kind": "open"})
    await until(lambda: bool(drawn))
    [(network, job)] = drawn
    assert network.name == panel.board.detail["network"]
    shape = {"n_stages": job.n_stages or 1, "n_replicas": job.n_replicas or 1, "microbatch": job.microbatch or 1}
    job = job.with_fields(**shape)
    stages = [[s * job.n_replicas + r for r in range(job.n_replicas)] for s in range(job.n_stages)]
    answer = lab.evaluate(network, job, stages=stages)
    verdict = lab.missions.check(name, answer if missions[name].takes is Plan else [answer, 1.0])
    assert "the job has" not in verdict.reason
    assert "another network" not in verdict.reason
