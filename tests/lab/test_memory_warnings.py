"""A plan whose devices lack memory says so when it is made, as a simulation of it does."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import dtfm_lab as lab


def big() -> lab.Job:
    return lab.load_job("llama-3-8b", n_stages=4, n_replicas=2, global_batch=16, schedule="1f1b")


def test_a_plan_and_a_placement_that_do_not_fit_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("WARNING"):
        plan = lab.evaluate("lecture-hall", big(), stages=[[0, 1], [2, 3], [4, 5], [6, 7]])
    assert f"out of memory: {lab.memory(plan).sentence}; lab.memory(plan).advice says what would fit" in caplog.text


def test_what_fits_and_what_cannot_be_simulated_is_not_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("WARNING"):
        lab.plan("lecture-hall", "tiny", steps=1)
        lab.plan("lecture-hall", lab.Job.from_bytes(4, 2, 1e9, 1e9), steps=1)
    assert caplog.text == ""


def test_the_command_line_says_so_too(shell: Callable[..., tuple[int, str, str]]) -> None:
    arguments = ["lecture-hall", "--job", "llama-3-8b", "--stages", "4", "--replicas", "2", "--batch", "16"]
    Path("mine.json").write_text(json.dumps({"stages": [[0, 1], [2, 3], [4, 5], [6, 7]]}))
    status, out, err = shell("evaluate", *arguments, "--placement", "mine.json", "-o", "plan.json")
    assert (status, err) == (0, "")
    assert "out of memory: " in out
    memory = json.loads(shell("evaluate", *arguments, "--placement", "mine.json", "--json")[1])["memory"]
    assert not memory["fits"]
    assert memory["advice"].startswith(memory["sentence"])
    assert json.loads(shell("simulate", "plan.json", "--json")[1])["memory"] == memory
    assert json.loads(shell("show", "plan.json", "--json")[1])["memory"] == memory
