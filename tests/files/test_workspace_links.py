"""The lab in a link: it comes back whole, and what is damaged, foreign or huge is refused in one line."""

from __future__ import annotations

import base64
import json
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dtfm_lab as lab
from dtfm_lab.domain.errors import FileError, LabError
from dtfm_lab.files.workspaces import (
    MARK,
    MOST_BYTES,
    MOST_CHARACTERS,
    WorkspaceState,
    link_of,
    state_from_link,
    workspace_to_mapping,
)

PLAN = lab.plan(lab.load_topology("lecture-hall"), lab.load_job("tiny"), steps=1)
SETTINGS = {"network": {"view": "map"}, "run": {"checkpoint_folder": "/home/ada"}}
STATE = WorkspaceState(topology=PLAN.topology, job=PLAN.job, plan=PLAN, pane="groups", settings=SETTINGS)
LINK = link_of(STATE)


def packed(data: object) -> str:
    text = data if isinstance(data, bytes) else json.dumps(data).encode()
    return MARK + base64.urlsafe_b64encode(zlib.compress(text)).decode().rstrip("=")


def test_a_link_holds_network_job_plan_and_tab_and_no_traces_nor_files_of_its_maker():
    measured = lab.simulate(PLAN)
    full = STATE.model_copy(update={"predicted": measured, "measured": measured})
    assert link_of(full) == LINK
    back = state_from_link(f"http://127.0.0.1:8866/?theme=dark{LINK}\n")
    want = STATE.model_copy(update={"settings": {"network": SETTINGS["network"]}})
    assert workspace_to_mapping(back) == workspace_to_mapping(want)
    assert len(LINK) < 4_000


@pytest.mark.parametrize(
    ("link", "said"),
    [
        ("", "the link holds no lab; wanted an address with #dtfm-lab="),
        ("https://example.org/#elsewhere", "the link holds no lab"),
        (MARK, "damaged or cut off"),
        (LINK[:-9], "damaged or cut off"),
        (LINK.replace("=", "=!", 1), "damaged or cut off"),
        (MARK + "A" * (MOST_CHARACTERS + 1), "has 100,001 characters; wanted at most 100,000"),
        (packed(b" " * (MOST_BYTES + 1)), "unpacks to more than 4,000,000 bytes"),
        (packed(b"[" * 200_000), "damaged or cut off"),
        (packed([1]), "the link holds no lab; wanted one that the lab made"),
        (packed({"dtfm_plan": 1}), "the link: no key 'dtfm_workspace'; wanted a workspace file"),
        (packed({"dtfm_workspace": 2}), "version 2; this release reads version 1"),
        (packed({"dtfm_workspace": 1, "job": {"n_stages": "many"}}), "the link: job"),
    ],
)
def test_what_is_damaged_foreign_or_huge_is_refused_in_one_line(link, said):
    with pytest.raises(FileError, match="link") as refused:
        state_from_link(link)
    assert said in str(refused.value)
    assert len(str(refused.value)) < 300


@given(st.integers(0, len(LINK) - len(MARK) - 1), st.sampled_from("Aaz09-_ %/"))
@settings(max_examples=25)
def test_a_link_with_a_wrong_character_never_opens_as_another_lab(at, wrong):
    at += len(MARK)
    try:
        back = state_from_link(LINK[:at] + wrong + LINK[at + 1 :])
    except LabError:
        return
    assert back.plan.rank_map == PLAN.rank_map  # the very same character


def test_a_lab_too_large_for_a_link_is_refused_before_it_is_copied():
    n = 200
    rng = np.random.default_rng(0)
    network = lab.Topology.from_matrices(rng.uniform(1, 100, (n, n)), rng.uniform(0.1, 10, (n, n)))
    with pytest.raises(FileError, match=r"the link would have [\d,]+ characters; wanted at most 100,000: save the lab"):
        link_of(WorkspaceState(topology=network))
