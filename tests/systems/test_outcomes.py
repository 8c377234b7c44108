"""The outcomes side by side: their columns, their order, their bars, and the files that they are written to."""

from __future__ import annotations

import json
import re

import pytest
from own_strategy import Nowhere, OnePipeline

import dtfm_lab as lab
from dtfm_lab.systems import Outcomes
from dtfm_lab.systems.bars import FAR, LONGEST, STACKED, bars

COLUMNS = [
    "system",
    "title",
    "iteration_s",
    "times",
    "pairs_s",
    "tokens_per_s",
    "flop_per_s",
    "price_per_billion_tokens",
    "n_stages",
    "n_replicas",
    "tensor_parallel",
    "microbatch",
    "schedule",
    "sharding",
    "choices",
    "idle",
    "most",
    "mathematics",
    "considered",
    "reason",
    "cite",
]
KEYS = {"topology", "job", "global_batch", "sentence", "systems", "assumptions", "not_modelled"}


@pytest.fixture(scope="module")
def found() -> Outcomes:
    systems = [Nowhere(), OnePipeline(share=1e-5), OnePipeline(), "megatron"]
    return lab.strategies("lecture-hall", "tiny", systems=systems)


def test_the_columns_and_the_keys_are_these(found: Outcomes) -> None:
    assert list(found.to_frame()) == COLUMNS
    assert set(found.to_dict()) == KEYS
    assert json.loads(json.dumps(found.to_dict()))["systems"][-1]["iteration_s"] is None


def test_the_fastest_is_first_and_who_has_no_plan_last(found: Outcomes) -> None:
    seconds = [one.iteration_s for one in found if one.iteration_s is not None]
    assert seconds == sorted(seconds)
    assert found.best is found.outcomes[0]
    assert found.outcomes[-1].name == "nowhere"
    assert found.to_frame()["times"].tolist()[0] == 1
    with pytest.raises(lab.LabError, match="Nowhere has no plan here: it wants"):
        _ = found.outcomes[-1].plan


def test_every_outcome_is_a_plan_that_simulates(found: Outcomes) -> None:
    assert lab.simulate(found["megatron"].plan).iteration_s == found["megatron"].iteration_s
    own = found["one-pipeline"]
    assert own.iteration_s == own.trace.iteration_s
    assert sum(own.causes.values()) == pytest.approx(own.iteration_s)


def test_bars_have_every_second_and_a_far_one_is_cut(found: Outcomes) -> None:
    drawn = {bar.outcome.name: bar for bar in bars(found)}
    slow = drawn["one-pipeline (share 1e-05)"]
    others = [bar for bar in drawn.values() if bar.parts and bar is not slow]
    median_s = sorted(one.iteration_s for one in found if one.iteration_s is not None)[1]
    assert slow.outcome.iteration_s > FAR * median_s
    assert slow.cut
    assert slow.length_s == pytest.approx(LONGEST * median_s)
    for bar in others:
        assert not bar.cut
        assert bar.length_s == pytest.approx(bar.outcome.iteration_s)
    for bar in drawn.values():
        assert sum(part_s for _, part_s, _ in bar.parts) == pytest.approx(bar.outcome.iteration_s or 0)
        assert [cause for cause, _, _ in bar.parts] == [c for c in STACKED if c in bar.outcome.causes]
    assert drawn["nowhere"].parts == ()


def test_what_changes_the_training_is_said_wherever_seconds_are(found: Outcomes) -> None:
    assert "One <pipeline> †" in [bar.name for bar in bars(found)]
    first = lab.strategies("lecture-hall", "tiny", systems=[OnePipeline(share=1.0), "megatron"])
    assert first.best.name.startswith("one-pipeline")
    assert re.search("but changes the training; Megatron-LM is fastest of those that do not", first.sentence)


@pytest.mark.parametrize("ending", ["html", "md", "csv", "json"])
def test_they_are_written(found: Outcomes, tmp_path, ending: str) -> None:
    written = found.save(tmp_path / f"systems.{ending}").read_text()
    assert "Megatron-LM" in written
    assert "share 1e-05" in written
    if ending == "html":
        assert "One &lt;pipeline&gt;" in written
        assert "<b>more</b>" not in written
    if ending == "md":
        assert "changed from 0.4: made up" in written
        rows = [line for line in written.splitlines() if line.startswith("|")]
        assert {row.count("|") for row in rows} == {7}


def test_another_ending_is_refused(found: Outcomes, tmp_path) -> None:
    with pytest.raises(lab.LabError, match=r"x.pdf ends in .pdf; wanted one of .html, .md, .csv, .json"):
        found.save(tmp_path / "x.pdf")


def test_labels_say_what_was_changed() -> None:
    assert OnePipeline().label == "one-pipeline"
    assert OnePipeline(every=2, overlap=True, share=0.5).label == "one-pipeline (every 2, overlap, share 0.5)"
    assert OnePipeline(every=2).heading == "One <pipeline> (every 2)"
    changed = {each["name"]: each["source"] for each in OnePipeline(every=2).assumed}
    assert changed == {"every": "changed from 1: made up", "overlap": "made up", "share": "made up"}


def test_every_assumption_of_every_system_has_a_sentence_and_a_source() -> None:
    for name, kind in lab.systems.strategies.items():
        system = kind()
        assert system.name == name
        assert system.title
        assert system.cite
        for one in system.assumptions:
            assert isinstance(one, lab.systems.Assumption)
            assert one.help[0].isupper()
            assert one.help.endswith(".")
            assert len(one.source) > 8


def test_what_takes_as_long_is_not_said_to_take_1_00_times_as_long() -> None:
    found = lab.strategies(
        "lecture-hall", "tiny", systems=["megatron", lab.systems.variant("megatron", attention="unfused")]
    )
    assert found.outcomes[0].iteration_s == found.outcomes[1].iteration_s
    assert "takes as long" in found.sentence
    assert "1.00" not in found.sentence


def test_a_system_without_a_shape_says_of_what() -> None:
    asked = lab.systems.variant("megatron", n_stages=7)
    reason = lab.strategies("lecture-hall", "tiny", systems=asked).outcomes[0].reason
    assert reason.startswith("none of its shapes suits 8 devices, 8 blocks and a batch of ")
