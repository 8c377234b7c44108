"""dtfm-lab compare: suspects, drift and a refit from the shell."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial

import pytest
from measured_traces import lecture_hall_plan, measured, with_factor

from dtfm_lab.files import load_topology, save_plan, save_trace
from dtfm_lab.simulation.simulate import simulate


@pytest.fixture
def compare(shell: Callable) -> Callable:
    """In a folder with a plan, its prediction, and what was measured with a link at half the bandwidth."""
    plan = lecture_hall_plan()
    save_plan(plan, "plan.json")
    save_trace(simulate(plan, "1f1b"), "predicted.json")
    truth = with_factor(plan.topology, "barbara", "edsger", bandwidth=0.5)
    save_trace(measured(plan, truth=truth, noise=0.01), "measured.json")
    return partial(shell, "compare", "predicted.json", "measured.json")


def test_the_suspect_stands_above_the_tables(compare: Callable) -> None:
    status, out, _ = compare()
    lines = out.splitlines()
    assert status == 0
    assert lines[1] == "measured with virtual clock, messages by the link model, on CPU"
    assert lines[3].startswith("link barbara → edsger: messages take 2.0 times the predicted")
    assert lines[4].startswith("actions end within ")
    assert re.search(r"side the 90 % interval of the (calibrated|guessed) prediction, ", out)


def test_json_holds_suspects_drift_and_refit(compare: Callable) -> None:
    status, out, err = compare("--refit", "plan.json", "--json", "-o", "refitted.yaml")
    fitted, drawn = load_topology("refitted.yaml"), load_topology("lecture-hall")
    i, j = drawn.index("barbara"), drawn.index("edsger")
    assert fitted.bandwidth_bytes_per_s[i, j] == pytest.approx(drawn.bandwidth_bytes_per_s[i, j] / 2, rel=0.05)
    found = json.loads(out)
    assert (status, err) == (0, "")
    assert found["suspects"][0]["name"] == "barbara -> edsger"
    assert found["drift"]["devices"][0]["device"] == "barbara"
    assert abs(found["refit"]["error"]) < 0.01 < abs(found["refit"]["error_before"])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["-o", "refitted.yaml"], "wanted --refit PLAN with it"),
        (["--refit", "missing.json"], "missing.json: no such file"),
        (["--refit", "plan.json", "-o", "nowhere/refitted.yaml"], "cannot be written"),
    ],
)
@pytest.mark.usefixtures("compare")
def test_what_cannot_be_refitted_is_one_line(refuses: Callable, arguments: list[str], says: str) -> None:
    refuses(says, "compare", "predicted.json", "measured.json", *arguments)
