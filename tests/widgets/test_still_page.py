"""The still page of a plan: what is on it is the plan's, whatever things are called, and nothing is fetched."""

from __future__ import annotations

import base64
import json
import re
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ipywidgets.widgets.widget import _instances

import dtfm_lab as lab
from dtfm_lab.lab.plans import opening_job
from dtfm_lab.widgets.shell.still_page import VIEWS, still_page
from tools.website.answers import answering_page, answers_of

HOSTILE = "</script><script>alert(1)</script><!--"


@pytest.fixture(scope="module")
def plan() -> lab.Plan:
    return lab.plan(lab.load_topology("lecture-hall"), lab.load_job("tiny"), steps=3)


def unpacked(page: str) -> tuple[dict[str, Any], bytes]:
    packed = re.search(r'<script id="dtfm-packed" type="text/plain">([A-Za-z0-9+/=]*)</script>', page)
    whole = zlib.decompress(base64.b64decode(packed[1]))
    end = 4 + int.from_bytes(whole[:4], "little")
    return json.loads(whole[4:end]), whole[end:]


def test_the_page_holds_the_built_views_and_the_iteration_that_is_simulated(plan: lab.Plan) -> None:
    page, buffers = unpacked(still_page(plan))
    models, predicted = page["models"], lab.simulate(plan)
    assert list(page["scripts"]) == list(models) == list(VIEWS)
    offset, length = models["gantt"]["end"]["buffer"]
    ends_s = np.frombuffer(buffers, "<f4", count=length // 4, offset=offset)
    assert ends_s.max() == np.float32(predicted.iteration_s)
    assert models["player"]["length_s"] == pytest.approx(predicted.iteration_s)
    tasks = models["map"]["highlight"]["tasks"]
    assert {name: s for name, (s, _) in tasks.items()} == {d: s for s, group in enumerate(plan.stages) for d in group}


def test_the_browser_may_ask_nothing_of_a_network_and_no_notebook_is_told(plan: lab.Plan) -> None:
    known = set(_instances)
    assert "default-src 'none'" in still_page(plan)
    assert set(_instances) == known


def test_no_name_becomes_markup(plan: lab.Plan) -> None:
    devices = tuple(replace(d, name=f"{d.name}{HOSTILE}", region=HOSTILE) for d in plan.topology.devices)
    hostile = plan.changed(
        topology=replace(plan.topology, devices=devices, name=HOSTILE), job=replace(plan.job, name=HOSTILE)
    )
    page = still_page(hostile)
    assert page.count("<script") == page.count("</script>") == 2
    assert "<!--" not in page
    assert unpacked(page)[0]["models"]["top_bar"]["network"][0] == HOSTILE


def test_a_plan_without_a_model_has_a_page_without_an_iteration() -> None:
    job = lab.Job.from_bytes(2, 4, 1e9, 5e8)
    models = unpacked(still_page(lab.plan(lab.load_topology("lecture-hall"), job, steps=3)))[0]["models"]
    assert models["player"]["length_s"] == 0
    assert [number["label"] for number in models["top_bar"]["numbers"]] == ["Communication cost"]


def test_a_plan_is_saved_as_a_page_by_its_ending(plan: lab.Plan, tmp_path: Path) -> None:
    path = lab.save(plan, tmp_path / "plan.HTML")
    assert unpacked(path.read_text())[0]["models"]["map"]["still"]


def test_what_a_page_answers_is_what_the_lab_finds_after_that_one_change() -> None:
    topology = lab.load_topology("lecture-hall")
    job = opening_job(topology)
    answers = list(answers_of(topology, job, batches=(8, 16), seconds=0.05))
    assert [(one.pair, one.gbps) for one in answers[1:4]] == [
        (("front", "back"), 0.01),
        (("front", "back"), 0.03),
        (("front", "back"), 0.3),
    ]
    slowest = answers[1].plan.topology
    assert slowest.bandwidth_bytes_per_s[0, 4] == slowest.bandwidth_bytes_per_s[4, 0] == 0.01e9 / 8
    assert np.array_equal(slowest.bandwidth_bytes_per_s[:4, :4], topology.bandwidth_bytes_per_s[:4, :4])
    asked = unpacked(answering_page(answers, {}, ""))[0]["asked"]
    found = [answer for _, answer in asked["pairs"]['["back","front"]']]
    for one, answer in zip(answers[1:4], found, strict=True):
        assert answer["player"]["length_s"] == pytest.approx(lab.simulate(one.plan).iteration_s)
        assert answer["top_bar"]["headline"]["lead"].startswith("back – front 0.1 → "), "what was changed, in words"
    assert [batch for batch, _ in asked["batches"]] == [8, 16]
    assert asked["batches"][1][1] == {}, "the batch that it opens with"
