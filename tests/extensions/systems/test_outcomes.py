"""The outcomes side by side: columns, order, bars, files; and the systems: variants, mistakes, recipe and page."""

from __future__ import annotations

import inspect
import json
import re
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from own_strategy import Nowhere, OnePipeline

import dtfm_lab as lab
from dtfm_lab.extensions.systems.api import NOT_MODELLED, Outcomes, modelled, strategies, variant
from dtfm_lab.extensions.systems.outcomes import FAR, LONGEST, STACKED, bars, report_of

COLUMNS = [
    *("system", "title", "iteration_s", "times", "low_s", "high_s", "basis", "because"),
    *("nics_s", "tokens_per_s", "flop_per_s", "price_per_billion_tokens"),
    *("n_stages", "n_replicas", "tensor_parallel", "microbatch", "schedule", "sharding", "choices", "idle", "most"),
    *("mathematics", "caveat", "considered", "reason", "cite"),
]
KEYS = {"topology", "job", "global_batch", "sentence", "note", "systems", "assumptions", "not_modelled"}


@pytest.fixture(scope="module")
def found() -> Outcomes:
    systems = [Nowhere(), OnePipeline(share=1e-5), OnePipeline(), "megatron"]
    return lab.strategies("lecture-hall", "tiny", systems=systems)


def test_the_columns_and_the_keys_are_these_and_plans_simulate(found: Outcomes) -> None:
    assert lab.simulate(found["megatron"].plan).iteration_s == found["megatron"].iteration_s
    own = found["one-pipeline"]
    assert sum(own.causes.values()) == pytest.approx(own.iteration_s)
    assert list(found.to_frame()) == COLUMNS
    assert set(found.to_dict()) == KEYS
    assert json.loads(json.dumps(found.to_dict()))["systems"][-1]["iteration_s"] is None


def test_keywords_are_completed_and_a_misspelt_one_is_refused_with_the_nearest() -> None:
    shell = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell()
    shell.user_ns.update(lab=lab)
    text = "lab.strategies('lecture-hall', sys"
    with pytest.importorskip("IPython.core.completer").provisionalcompleter():
        assert "systems=" in {each.text for each in shell.Completer.completions(text, len(text))}
    with pytest.raises(lab.LabError, match=r"^no option named 'systms'; did you mean 'systems'"):
        lab.strategies("lecture-hall", systms="megatron")


def test_the_fastest_is_first_and_who_has_no_plan_last(found: Outcomes) -> None:
    seconds = [one.iteration_s for one in found if one.iteration_s is not None]
    assert seconds == sorted(seconds)
    assert found.best is found.outcomes[0]
    assert found.outcomes[-1].name == "nowhere"
    assert found.to_frame()["times"].tolist()[0] == 1
    with pytest.raises(lab.LabError, match="Nowhere has no plan here: it wants"):
        _ = found.outcomes[-1].plan


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
        assert {row.count("|") for row in rows} == {9}


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
    assert reason == "7 stages do not divide the 8 blocks of tiny; wanted a divisor"


OVERLAPPED = variant("megatron", transport="overlapped")


def asked(*systems):
    return lab.strategies("lecture-hall", "tiny", systems=systems)


def test_a_variant_has_a_name_of_its_own() -> None:
    assert OnePipeline(every=2, overlap=True, share=0.5).label == "one-pipeline (every 2, overlap, share 0.5)"
    assert variant("megatron", overlap=False).label == "megatron (no overlap)"
    assert OnePipeline(every=2).heading == "One <pipeline> (every 2)"
    changed = {each["name"]: each["source"] for each in OnePipeline(every=2).assumed}
    assert changed == {"every": "changed from 1: made up", "overlap": "made up", "share": "made up"}
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
    ("asking", "says"),
    [
        (lambda: asked("megatorn"), "no system named 'megatorn'; did you mean 'megatron'?"),
        (lambda: lab.strategies("lecture-hall", "tiny", systems=[]), "systems is empty; wanted one at least"),
        (lambda: lab.strategies("lecture-hall", "tiny", systems=3), "systems is 3; wanted names of systems"),
        (lambda: asked(3), "a system is 3; wanted the name of one, or a Strategy"),
        (lambda: asked("skippipe"), "skippipe is not modelled: micro-batches skip stages"),
        (lambda: variant("megatron", transprt="blocking"), "no assumption of megatron named 'transprt'; did you mean"),
        (lambda: variant("megatron", transport="magic"), "no transport named 'magic'; known: batched, blocking"),
    ],
)
def test_what_is_no_system_or_assumption_is_refused(asking, says) -> None:
    with pytest.raises(lab.LabError, match="^" + re.escape(says)):
        asking()


def test_those_so_far_are_kept() -> None:
    def stop(found) -> None:
        raise KeyboardInterrupt

    found = lab.strategies("lecture-hall", "tiny", systems=["megatron", OVERLAPPED], progress=stop)
    assert found.stopped
    assert len(found) == 1
    assert found.sentence.startswith("of 1 of 2 systems so far, Megatron-LM is fastest")


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> type[lab.systems.Strategy]:
    """The class of the docstring, registered as long as the test runs."""
    code = inspect.getdoc(modelled).split("::\n", 1)[1].split("\n``lab.strategies")[0]
    module = ModuleType("gpipe_of_the_recipe")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(strategies, "_entries", dict(strategies._entries))
    exec(compile(textwrap.dedent(code), "recipe", "exec"), module.__dict__)
    return strategies["gpipe"]


def test_the_example_is_asked_like_any_other(example) -> None:
    found = lab.strategies("lecture-hall", "tiny", systems=["gpipe", example(microbatches=1), "megatron"])
    plan = found["gpipe"].plan
    assert (plan.job.n_stages, plan.job.n_replicas) == (8, 1)
    assert plan.placement.devices.ravel().tolist() == list(range(8))
    assert lab.simulate(plan).iteration_s == found["gpipe"].iteration_s
    assert found["gpipe (microbatches 1)"].job.microbatch > plan.job.microbatch


PAGE = (Path(__file__).parents[3] / "docs" / "system-tables.md").read_text()


def between(begin: str, end: str) -> str:
    return PAGE.split(f"<!-- {begin} -->")[1].split(f"<!-- {end} -->")[0]


def test_every_system_has_a_row_with_its_source() -> None:
    found = re.findall(r"^\| `([\w-]+)`(.*)$", between("systems", "end of the systems"), re.MULTILINE)
    rows = dict(found)
    assert len(rows) == len(found)
    assert sorted(rows) == list(strategies)
    for name, kind in strategies.items():
        assert kind.title in rows[name]
        assert kind.cite in rows[name]
        assert (kind.mathematics == "") == ("†" not in rows[name])


def test_everything_that_is_not_modelled_has_its_reason() -> None:
    listed = re.findall(r"^- \*\*(.+?)\*\*", between("not modelled", "end of not modelled"), re.MULTILINE)
    assert listed == list(NOT_MODELLED)


@pytest.mark.parametrize(("name", "reason"), NOT_MODELLED.items())
def test_a_reason_ends_with_its_source(name, reason):
    assert re.search(r"\([A-Z][^()]* \d{4}[^()]*\)$", reason)
    assert name.casefold() not in strategies


def test_systems_whose_plan_nearly_fills_a_device_are_named() -> None:
    hall = lab.load_topology("lecture-hall")
    (roomy,) = lab.strategies(hall, "tiny", systems=["ddp"])
    room = {"memory_bytes": float(roomy.memory.peak_bytes.max() / 0.95)}
    tight = replace(hall, devices=tuple(replace(device, **room) for device in hall.devices))
    says = "PyTorch DDP would use more than 90 % of a device's memory"
    assert [
        says in " ".join(map(str, report_of(lab.strategies(each, "tiny", systems=["ddp"]), assumptions=False)))
        for each in (hall, tight)
    ] == [False, True]
