"""Laws of all missions, and what is kept of a reader's progress."""

import json
from dataclasses import fields

import pandas as pd
import pytest
from mission_cases import READERS

import dtfm_lab as lab
from dtfm_lab.course import LESSONS, Mission, missions
from dtfm_lab.course.progress import progress_path, read_progress
from dtfm_lab.domain.errors import FileError, UnknownName
from dtfm_lab.domain.plan import Plan


@pytest.mark.parametrize("mission", missions.values(), ids=lambda mission: mission.name)
def test_a_mission_says_what_to_do_and_helps_in_steps(mission: Mission):
    assert mission.lesson in LESSONS
    assert len(mission.hints) >= 2
    assert len(mission.task.split()) > 10
    assert "answer = " in mission.answer
    if mission.give:
        first, seen = str(mission.given(READERS[0])), set()
        for reader in (*READERS, *(f"reader {number}" for number in range(4))):
            seen |= {mission.task_of(reader), str(mission.given(reader))}
            if len(seen) > 2:
                break
        assert len(seen) > 2, "readers are given the same"
        assert first in seen


def test_progress_keeps_tries_hints_and_what_was_won():
    assert not lab.missions.check("half-and-half", 1.0)
    assert "Which two parts" in repr(lab.missions.hint("half-and-half"))
    given = lab.missions.given("half-and-half")
    assert lab.missions.check("half-and-half", given.latency_ms * given.bandwidth_gbps * 1e6 / 8)
    lab.missions.answer("half-and-half")
    kept = read_progress(progress_path("ada")).missions["half-and-half"]
    assert (kept.tries, kept.hints, kept.answer_shown, kept.passed_before_answer) == (2, 1, True, True)
    row = lab.missions.board().set_index("mission").loc["half-and-half"]
    assert row.passed
    assert row.tries == 2


def test_mistakes_are_one_line():
    with pytest.raises(UnknownName, match="did you mean 'half-and-half'"):
        lab.missions.check("half-and-halve", 1.0)
    progress_path("ada").parent.mkdir(parents=True)
    progress_path("ada").write_text(json.dumps({"dtfm_progress": 7}))
    with pytest.raises(FileError, match="dtfm_progress is 7; wanted 1"):
        lab.missions.board()


def test_the_board_reads_as_one_in_a_notebook_and_is_a_table():
    given = lab.missions.given("half-and-half")
    lab.missions.check("half-and-half", given.latency_ms * given.bandwidth_gbps * 1e6 / 8)
    board = lab.missions.board("02_network")
    n = len(lab.missions.names("02_network"))
    assert board.sentence.startswith(f"1 of {n} mission")
    html = board._repr_html_()
    assert "✓" in html
    assert "1 try" in html
    assert "02 The network" in html
    assert type(board.head(1)) is type(board[["title"]]) is pd.DataFrame
    assert "dataframe" in board[["title"]]._repr_html_()
    with pytest.raises(UnknownName, match="no lesson named '02_netwerk'; did you mean '02_network'"):
        lab.missions.board("02_netwerk")


def test_an_answer_is_what_its_fields_say():
    spot = lab.load_topology("spot")
    faster = spot.scaled(bandwidth=1000)
    vars(faster)["fingerprint"] = spot.fingerprint
    plan = lab.plan(faster, "dtfm-gpt3-xl", objective="communication", seed=0, steps=1)
    assert "another network" in missions["spot-under-32"].verdict(plan, "ada").reason

    class Liar(Plan):
        pass

    liar = Liar(**{each.name: getattr(plan, each.name) for each in fields(plan)})
    assert "a class of your own" in missions["spot-under-32"].verdict(liar, "ada").reason


def test_what_a_function_does_to_its_arguments_stays_with_it():
    def nothing_crosses(trace, network):
        for device in network.devices:
            object.__setattr__(device, "region", "here")
        return 0.0

    assert not missions["count-the-border"].verdict(nothing_crosses, "ada")


class Odd:
    def __eq__(self, other):
        return True

    def __ne__(self, other):
        return False

    def __str__(self):
        return "A"

    __hash__ = None


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("break-even-price", 10**400),
        ("break-even-price", float("nan")),
        ("order-of-stages", [Odd() for _ in range(6)]),
        ("most-held", lambda order: Odd()),
        ("dollars-by-hand", lambda *numbers: float("inf")),
        ("dollars-by-hand", lambda *numbers: "12"),
    ],
)
def test_odd_answers_are_refused_in_a_sentence(name, answer):
    verdict = missions[name].verdict(answer, "ada")
    assert not verdict
    assert verdict.reason


def test_what_the_check_keeps_to_itself_is_not_given():
    assert not hasattr(lab.missions.given("what-was-measured"), "_measured_with")


def test_two_readers_never_share_a_file():
    assert len({progress_path(reader) for reader in ("ada b", "ada-b", "ada/b", "x" * 60, "x" * 61)}) == 5
