"""A system with an assumption changed is told apart from the system itself, and mistakes about either are one line."""

from __future__ import annotations

import pytest

import dtfm_lab as lab
from dtfm_lab.systems import strategies, variant

OVERLAPPED = variant("megatron", transport="overlapped")


def asked(*systems):
    return lab.strategies("lecture-hall", "tiny", systems=systems)


def test_a_variant_has_a_name_of_its_own() -> None:
    found = asked("megatron", OVERLAPPED)
    assert {one.name for one in found} == {"megatron", "megatron (transport overlapped)"}
    assert found["megatron (transport overlapped)"].job.transport == "overlapped"
    assert found["megatron"].job.transport == "batched"
    assert set(found.to_dict()["assumptions"]) == {one.name for one in found}
    assert set(found.to_frame()["title"]) == {"Megatron-LM", "Megatron-LM (transport overlapped)"}


def test_a_system_is_asked_once() -> None:
    megatron = strategies["megatron"]
    assert len(asked("megatron", megatron, megatron(), variant("megatron"))) == 1
    assert asked(megatron).outcomes[0].name == "megatron"


@pytest.mark.parametrize(
    ("systems", "says"),
    [
        (["megatorn"], "no system named 'megatorn'; did you mean 'megatron'?"),
        ([], "systems is empty; wanted one at least"),
        (3, "systems is 3; wanted names of systems, or Strategies"),
        ([3], "a system is 3; wanted the name of one, or a Strategy"),
    ],
)
def test_what_is_no_system_is_refused(systems, says) -> None:
    with pytest.raises(lab.LabError) as refused:
        lab.strategies("lecture-hall", "tiny", systems=systems)
    assert str(refused.value).startswith(says)


@pytest.mark.parametrize(
    ("assumptions", "says"),
    [
        ({"transprt": "blocking"}, "no assumption of megatron named 'transprt'; did you mean 'transport'?"),
        ({"transport": "magic"}, "no transport named 'magic'; known: batched, blocking, overlapped"),
    ],
)
def test_what_is_no_assumption_is_refused(assumptions, says) -> None:
    with pytest.raises(lab.LabError) as refused:
        variant("megatron", **assumptions)
    assert str(refused.value).startswith(says)


def test_those_so_far_are_kept() -> None:
    def stop(found) -> None:
        raise KeyboardInterrupt

    found = lab.strategies("lecture-hall", "tiny", systems=["megatron", OVERLAPPED], progress=stop)
    assert found.stopped
    assert len(found) == 1
    assert found.sentence.startswith("of 1 of 2 systems so far, Megatron-LM is fastest")
