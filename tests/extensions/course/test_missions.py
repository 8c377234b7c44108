"""Laws of all missions: what wins them and what does not, what a reader is given, and what progress keeps."""

import json
import linecache
from dataclasses import fields
from pkgutil import iter_modules

import numpy as np
import pandas as pd
import pytest
from wrong_answers import WRONG, Odd

import dtfm_lab as lab
from dtfm_lab.domain.errors import FileError, UnknownName
from dtfm_lab.domain.plan import Plan
from dtfm_lab.extensions.course.api import LESSONS, Mission, missions, tasks
from dtfm_lab.extensions.course.checks import Number
from dtfm_lab.extensions.course.progress import progress_path, read_progress
from dtfm_lab.extensions.course.small_networks import equal_profile, row
from dtfm_lab.extensions.course.tasks.data_and_pipeline import bytes_between_regions

READERS = ("ada", "barbara")
TASKS = [getattr(tasks, each.name) for each in iter_modules(tasks.__path__)]
TRAINS = {"predicted-within-5", "mystery-link-measured", "survive-a-kill", "sooner-at-the-loss", "capstone-run"}
"""Missions whose answer is a real run."""
OWN_PROCESSES = {"own-ring", "own-gpipe"}
"""Missions whose answer is a program of several processes: ``test_own_processes`` tries right and wrong ones."""


def worked_answer(mission: Mission, reader: str):
    """What the worked answer comes to, for the reader who is set."""
    lab.missions.reader(reader)
    names = {"lab": lab, "given": lab.missions.given(mission.name)}
    file = f"<answer of {mission.name}>"
    linecache.cache[file] = (len(mission.answer), None, mission.answer.splitlines(keepends=True), file)
    exec(compile(mission.answer, file, "exec"), names)  # a function's source can be read, as that of a cell
    return names["answer"]


def winning_answer(mission: Mission, reader: str):
    """The worked answer, which must win. On a busy machine a real run may be far from its prediction: it is run again,
    as the mission's hint says."""
    for _ in range(10 if mission.name in TRAINS else 1):
        right = worked_answer(mission, reader)
        if verdict := mission.verdict(right, reader):
            break
    assert verdict, verdict
    return right


def number_of(mission: Mission, reader: str) -> Number:
    """What a mission whose answer is a number wants of this reader: its function is named like the mission."""
    name = mission.name.replace("-", "_")
    [wanted_of] = {getattr(module, name) for module in TASKS if hasattr(module, name)}
    return wanted_of(mission.given(reader))


def wrong_answers(mission: Mission, reader: str, right: object):
    """Answers that do not win, with words of what is said: of a number its slips, and numbers near it."""
    if mission.reason is not None:
        yield from wrong_reasons(mission, reader, right)
        return
    if mission.takes is not float:
        yield from WRONG[mission.name](mission.given(reader), right)
        return
    number = number_of(mission, reader)
    assert number.sentences, "well-known mistakes are told from others"
    for slip, sentence in number.sentences.items():
        alike = [said for other, said in number.sentences.items() if abs(other - slip) <= number.within * abs(other)]
        yield slip, alike[0] if len(alike) > 1 else sentence
    yield from ((right * (1 + far * number.within), "") for far in (-1.5, 1.5))


def wrong_reasons(mission: Mission, reader: str, right: list):
    """Wrong answers with the right number, and right ones with a wrong number."""
    is_list = isinstance(mission.begins_with, tuple) and list in mission.begins_with
    rest = right[:-1] if is_list else right[0]
    for answer, because in WRONG[mission.name](mission.given(reader), rest):
        yield ([*answer, right[-1]] if is_list else [answer, right[-1]]), because
    number = mission.reason(mission.given(reader), rest)
    assert abs(number.wanted - right[-1]) <= number.within * abs(number.wanted)
    # Of a real run, a slip may be as near to the right number as an answer that wins: devices that are equally busy are
    # as busy as their mean.
    told_apart = [
        slip for slip in number.slips.values() if abs(slip - number.wanted) > number.within * abs(number.wanted)
    ]
    assert told_apart
    yield from (([*right[:-1], slip], "the first part is right") for slip in told_apart)


@pytest.mark.parametrize(
    "mission",
    [
        pytest.param(each, id=name, marks=pytest.mark.slow if name in TRAINS else ())
        for name, each in missions.items()
        if name not in OWN_PROCESSES
    ],
)
def test_a_mission_is_won_by_its_answer_and_by_no_wrong_one(mission: Mission):
    """What one reader is given, another is not: a copied answer does not win."""
    ada, barbara = READERS
    if mission.give and mission.name not in TRAINS:
        assert (verdict := mission.verdict(worked_answer(mission, barbara), barbara)), verdict
    right = winning_answer(mission, ada)
    if mission.give:
        assert not mission.verdict(right, barbara), "a copied answer won"
    for nothing in (None, "", [], {}, True):
        assert not mission.verdict(nothing, ada), f"{nothing!r} won"
    refused = 0
    for answer, because in wrong_answers(mission, ada, right):
        verdict = mission.verdict(answer, ada)
        assert not verdict, f"{answer!r} won: {verdict.reason}"
        assert verdict.reason
        assert because in verdict.reason, verdict.reason
        refused += 1
    assert refused >= 3


@pytest.mark.parametrize("winner", ["ddp", "megatron", "dt-fm"])
def test_a_network_is_found_on_which_each_system_wins(winner: str) -> None:
    mission = missions["a-system-that-wins-here"]
    reader = next(name for name in map("student{}".format, range(99)) if mission.given(name).winner == winner)
    assert (verdict := mission.verdict(worked_answer(mission, reader), reader)), verdict


@pytest.mark.parametrize("mission", missions.values(), ids=missions)
def test_a_mission_says_what_to_do_and_helps_in_steps(mission: Mission):
    assert mission.lesson in LESSONS
    assert len(mission.hints) >= 2
    assert len(mission.task.split()) > 10
    assert "answer = " in mission.answer
    if mission.give:
        told = (mission.task_of(reader) + str(mission.given(reader)) for reader in (*READERS, "cleo", "dan", "emma"))
        first = next(told)
        assert any(other != first for other in told)


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
    assert "another network" in missions["spot-under-32"].verdict([plan, 1.0], "ada").reason

    class Liar(Plan):
        pass

    liar = Liar(**{each.name: getattr(plan, each.name) for each in fields(plan)})
    assert "a class of your own" in missions["spot-under-32"].verdict([liar, 1.0], "ada").reason


def test_what_a_function_does_to_its_arguments_stays_with_it():
    def emptied(latency_s, bandwidth, groups, gradient_bytes, hop_bytes):
        groups.clear()
        latency_s[:] = bandwidth[:] = 0
        return 0.0

    assert not missions["own-cost"].verdict(emptied, "ada")


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("break-even-price", 10**400),
        ("break-even-price", float("nan")),
        ("order-of-stages", [Odd() for _ in range(6)]),
        ("most-held", lambda order: Odd()),
        ("own-cost", lambda *numbers: float("inf")),
        ("own-cost", lambda *numbers: "12"),
        ("own-cost", lambda *numbers: 1 / 0),
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


def test_the_border_is_what_the_job_says():
    """With every city a stage it is the activations of the whole batch, over every boundary, both ways."""
    cities = lab.load_topology("worldwide").subset(range(16))
    job = lab.load_job(
        "gpt3-xl", n_stages=2, n_replicas=8, global_batch=64, microbatch=1, schedule="gpipe", dtype="fp16"
    )
    trace = lab.simulate(lab.evaluate(cities, job, stages=np.arange(16).reshape(2, 8).tolist()))
    crossed = bytes_between_regions(trace, cities)
    assert np.isclose(crossed, 2 * 64 * job.activation_bytes + 8 * 2 * job.embedding_bytes)


def test_what_a_shard_takes_is_what_the_lab_predicts():
    given = missions["sixteen-bytes"].given(READERS[0])
    job = lab.load_job("gpt3-xl", n_stages=1, n_replicas=given.n_replicas, sharding="zero-1")
    network = lab.load_topology("worldwide").subset(range(given.n_replicas))
    row = lab.memory(lab.evaluate(network, job, stages=[[*range(given.n_replicas)]]), "1f1b").to_frame().iloc[0]
    each = (row.parameters_bytes + row.gradients_bytes + row.optimizer_bytes) / (row.parameters_bytes / 2)
    assert abs(each - (4 + 12 / given.n_replicas)) < 1e-4


def test_the_warm_up_that_adaptive_1f1b_chooses_is_deep_enough():
    given = missions["deep-enough"].given(READERS[0])
    trace = lab.simulate(given.plan, "adaptive-1f1b", profile=given.profile)
    ahead = [order.split("B")[0].count("F") - 1 for order in trace.context.plan.orders]
    assert missions["deep-enough"].verdict(ahead, READERS[0])


@pytest.mark.parametrize(("n_devices", "n_microbatches", "hop_s"), [(8, 64, 0.6), (5, 40, 1.7), (3, 12, 0.0)])
def test_gpipe_pays_for_each_hop_once_there_and_once_back(n_devices, n_microbatches, hop_s):
    trace = lab.simulate(row([hop_s] * (n_devices - 1), n_microbatches), "gpipe", profile=equal_profile(n_devices))
    formula_s = 3 * (n_microbatches + n_devices - 1) + 2 * (n_devices - 1) * hop_s
    assert trace.iteration_s == pytest.approx(formula_s, rel=1e-6)
