"""The example of a system, which the recipe in CONTRIBUTING.md points to, is complete and holds every system's laws."""

from __future__ import annotations

import inspect
import sys
import textwrap
from types import ModuleType

import pytest

import dtfm_lab as lab
from dtfm_lab.systems import modelled, strategies


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


def test_the_example_says_why_where_it_has_no_plan(example) -> None:
    found = lab.strategies("worldwide", "gpt3-xl", systems=example)
    assert found.outcomes[0].iteration_s is None
    assert "64 stages" in found.outcomes[0].reason


def test_a_name_is_taken_once(example) -> None:
    with pytest.raises(ValueError, match="system 'megatron' is already registered"):
        strategies.register("megatron")(example)
