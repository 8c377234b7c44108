"""The steps of the first minute: one at a time, only forward, and each does what its button says."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
from loops import until

import dtfm_lab as lab
from dtfm_lab.simulation import simulate
from dtfm_lab.widgets.running.playback import captions_of
from dtfm_lab.widgets.shell import first_minute
from dtfm_lab.widgets.shell.first_minute import GUESS, GUESSES, ITERATIONS, RUN_S
from dtfm_lab.widgets.workbench import Lab

TASKLETS = [["ada", "alan"], ["barbara", "claude"], ["edsger", "grace"], ["john", "katherine"]]
LINK = ("barbara", "edsger")


@dataclass
class Training:
    """As much of a run as a kill looks at."""

    losses: list[float] = field(default_factory=lambda: [5.0] * 3)
    ranks: dict[str, int] = field(default_factory=lambda: {"ada": 0, "katherine": 7})
    faults: list[str] = field(default_factory=list)
    running: bool = True
    spec: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(iterations=100))


def plan_of(name: str = "small") -> lab.Plan:
    job = lab.load_job(name, n_stages=4, n_replicas=2)
    return lab.evaluate(lab.load_topology("lecture-hall"), job, stages=TASKLETS)


def opened() -> Lab:
    """A lab with a plan, whose limiting link is known."""
    the_lab = Lab(plan_of(), autosave=False, live=False)
    the_lab.lab_state.binding = LINK
    return the_lab


def buttons(the_lab: Lab) -> list[str]:
    return [button["name"] for button in the_lab.bar.view.step["buttons"]]


def test_there_is_no_step_before_a_plan() -> None:
    assert Lab(autosave=False).bar.view.step == {}


def test_the_first_step_selects_what_limits_the_plan() -> None:
    the_lab = opened()
    assert buttons(the_lab) == ["step-pull"]
    the_lab._press("step-pull")
    assert the_lab.lab_state.selected_link == LINK
    assert buttons(the_lab) == ["step-skip"]
    the_lab.lab_state.binding = ("ada",)
    assert the_lab.bar.view.step["buttons"][0]["label"] == "Make ada faster"


def test_nobody_is_led_to_improve_what_saves_nothing() -> None:
    the_lab = opened()
    the_lab.lab_state.binding_helps = False
    assert buttons(the_lab) == ["step-train"]
    the_lab.lab_state.binding_helps = True
    assert buttons(the_lab) == ["step-pull"]


def test_an_edit_leads_on_and_another_network_does_not() -> None:
    the_lab = opened()
    the_lab.open_network("at-home")
    assert the_lab.first_minute.step == "step-pull"
    the_lab = opened()
    the_lab.lab_state.topology = the_lab.topology.with_link(2, 4, bandwidth_gbps=1)
    assert the_lab.first_minute.step == "step-train"
    the_lab.lab_state.topology = the_lab.topology.with_link(2, 4, bandwidth_gbps=0.1)
    assert the_lab.first_minute.step == "step-train", "never back"


def test_an_edited_network_is_planned_before_it_is_trained() -> None:
    the_lab = opened()
    the_lab.lab_state.topology = the_lab.topology.with_link(2, 4, bandwidth_gbps=1)
    assert the_lab.first_minute.step == "step-train"
    assert buttons(the_lab) == [], "a run would be of the old plan"
    the_lab.lab_state.plan = lab.evaluate(the_lab.topology, plan_of().job, stages=TASKLETS)
    assert buttons(the_lab) == ["step-train"]


@pytest.mark.parametrize("seconds", [0.01, 0.7, 2.4, 90.0])
def test_the_run_is_as_long_as_its_button_says(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    the_lab = opened()
    monkeypatch.setattr(first_minute, "shown_s", lambda state: seconds)
    pressed: list[str] = []
    monkeypatch.setattr(the_lab.first_minute, "_press", pressed.append)
    the_lab._press("step-skip")
    label = the_lab.bar.view.step["buttons"][0]["label"]
    the_lab._press("step-train")
    n = the_lab.run_panel.iterations.value
    assert pressed == ["run"]
    assert ITERATIONS[0] <= n <= ITERATIONS[1]
    assert abs(n * seconds - RUN_S) <= seconds / 2 or n in ITERATIONS
    assert label == f"Train it here, about {n * seconds:.0f} s"


def test_a_part_of_a_plan_is_named_and_its_seconds_are_not() -> None:
    the_lab = opened()
    the_lab.lab_state.run_part = "one pipeline of 8, with a small model"
    the_lab._press("step-skip")
    assert the_lab.bar.view.step["buttons"][0]["label"] == "Train one pipeline of 8, with a small model here"


def test_a_guess_is_asked_for_while_it_runs_and_judged_by_the_error(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("DTFM_LAB_PROGRESS", str(tmp_path))
    the_lab = opened()
    the_lab.lab_state.set_busy("run", True)
    assert buttons(the_lab) == [f"{GUESS}{words}" for words in GUESSES]
    the_lab._press(f"{GUESS}{GUESSES[1]}")
    assert GUESSES[1] in the_lab.bar.view.step["words"]
    assert buttons(the_lab) == []
    the_lab.first_minute._judge(0.03)
    assert the_lab.first_minute._judged == "The prediction was off by 3.0 %, and you were right."
    kept = lab.missions.progress().guesses
    assert [(one.guess, one.answer) for one in kept] == [(2.0, 2.0)]


@pytest.mark.parametrize(("error", "place"), [(0.0, 0), (0.0199, 0), (0.02, 1), (0.0999, 1), (0.1, 2), (5.0, 2)])
def test_each_error_has_one_answer(error: float, place: int, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("DTFM_LAB_PROGRESS", str(tmp_path))
    the_lab = opened()
    the_lab.first_minute._guess = GUESSES[place]
    the_lab.first_minute._judge(error)
    assert the_lab.first_minute._judged.endswith("you were right.")


async def test_a_page_that_records_a_kill_hears_why_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    the_lab = opened()
    told: list[dict[str, str]] = []
    monkeypatch.setattr(the_lab.bar.view, "send", told.append)
    monkeypatch.setattr(the_lab.first_minute, "_press", lambda name: None)  # the run is refused
    the_lab._press("record-kill")
    assert told == [{"kind": "kill", "why_not": "no run could start"}]
    assert the_lab.run_panel.iterations.value * the_lab.plan.iteration_s >= first_minute.RECORDED_S
    the_lab.first_minute._victim = "ada"
    the_lab._press("record-kill")
    assert told.pop() == {"kind": "kill", "why_not": "ada is about to be killed already"}
    the_lab.first_minute._victim = ""
    the_lab.run_panel.run, the_lab.run_panel.faults._may_disturb = Training(), False
    the_lab.lab_state.set_busy("run", True)
    the_lab._press("record-kill")
    assert told.pop() == {"kind": "kill", "why_not": "a mystery has a fault already"}
    the_lab._press("step-kill")
    assert the_lab.lab_state.message == "a mystery has a fault already"
    the_lab.run_panel.faults._may_disturb = True
    the_lab.run_panel.run.losses = [5.0] * 95
    the_lab._press("record-kill")
    assert told.pop()["why_not"].startswith("this run has fewer than 8 iterations left")
    the_lab.run_panel.run.running = False
    the_lab._press("record-kill")
    assert told.pop()["why_not"].startswith("the last run is still being compared")
    the_lab.lab_state.set_busy("run", False)
    the_lab.lab_state.plan = None
    the_lab._press("record-kill")
    assert told.pop() == {"kind": "kill", "why_not": "No plan yet: press Plan first"}


@pytest.mark.parametrize("ends", ["killed", "cancelled", "cancelled at once", "another run"])
async def test_a_page_that_records_hears_of_the_kill_before_it(ends: str, monkeypatch: pytest.MonkeyPatch) -> None:
    the_lab, run, told = opened(), Training(), []
    monkeypatch.setattr(first_minute, "BEFORE_KILL_S", 0.05)
    monkeypatch.setattr(the_lab.bar.view, "send", told.append)

    def act(device: str, do: str) -> None:
        told.append((device, do))
        run.faults.append(device)

    monkeypatch.setattr(the_lab.run_panel.faults, "act", act)
    the_lab.run_panel.run = run
    the_lab.lab_state.set_busy("run", True)
    at_once = ends == "cancelled at once"
    run.losses = [] if at_once else run.losses
    the_lab._press("record-kill")
    assert the_lab.first_minute._victim == "katherine"
    if at_once:
        the_lab._press("record-kill-cancel")
        await until(lambda: the_lab.first_minute._victim == "")
        assert told == []
        return
    await until(lambda: bool(told))
    assert told == [{"kind": "kill", "why_not": ""}]
    if ends == "cancelled":
        the_lab._press("record-kill-cancel")
    elif ends == "another run":
        the_lab.run_panel.run = Training()
        run.running = False
    await until(lambda: the_lab.first_minute._victim == "")
    assert told[1:] == ([("katherine", "kill")] if ends == "killed" else [])


def test_a_recovered_device_leads_to_the_link_and_a_copied_link_to_the_end() -> None:
    the_lab = opened()
    the_lab.lab_state.run_story = "ada was killed: its copy took over"
    assert buttons(the_lab) == ["step-share"]
    the_lab._press("copied")
    assert the_lab.bar.view.step["name"] == "done"


def test_a_link_that_was_copied_before_its_step_ends_nothing() -> None:
    the_lab = opened()
    the_lab._press("copied")
    assert the_lab.first_minute.step == "step-pull"


def test_captions_explain_the_dots_and_colours_that_the_plan_has() -> None:
    whole = captions_of(simulate(plan_of()))
    assert [caption["kinds"] for caption in whole] == [[], ["forward", "backward"], ["averaging"]]
    begins = [caption["from"] for caption in whole]
    assert begins == sorted(begins)
    assert begins[0] == 0.0
    row = lab.evaluate(
        lab.load_topology("lecture-hall"),
        lab.load_job("small", n_stages=4, n_replicas=1),
        stages=[[group[0]] for group in TASKLETS],
    )
    assert len(captions_of(simulate(row))) == 2, "nothing is averaged"
