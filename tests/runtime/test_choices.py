"""Real runs carry out a choice of the job as the model says, or refuse it in one line before anything starts."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from run_helpers import even_plan

from dtfm_lab.domain.errors import JobError, LabError
from dtfm_lab.domain.job.system import SystemOptions
from dtfm_lab.runtime.client.launch import start
from dtfm_lab.runtime.client.run_checks import PLAYED

UNPLAYED: dict[str, list[Any]] = {
    "transport": [],
    "tensor_parallel": [2],
    "sharding": ["zero-2", "zero-3"],
    "fragments": [2],
    "checkpointing": ["selective"],
    "attention": ["unfused"],
    "gradient_dtype": ["fp64"],
    "flush_every": [2],
}
"""Values that workers do not carry out."""
WITHOUT_EFFECT = {"bucket_bytes", "overlap", "fragment_delay", "memory_traffic"}
"""Fields that say how seconds are counted, or count only with another choice, or that workers carry out in full."""


def test_every_choice_of_a_job_is_carried_out_refused_or_without_effect_on_a_run() -> None:
    assert {field.name for field in fields(SystemOptions)} == UNPLAYED.keys() | WITHOUT_EFFECT
    assert UNPLAYED.keys() == PLAYED.keys()


@pytest.mark.parametrize(("choice", "value"), [(name, value) for name, values in UNPLAYED.items() for value in values])
def test_a_choice_that_workers_cannot_carry_out_is_refused_in_one_line(choice: str, value: Any) -> None:
    with pytest.raises(LabError, match=choice) as refused:
        start(even_plan(**{choice: value}))
    assert "\n" not in str(refused.value)


def test_the_refusal_names_the_choice_the_value_and_what_is_wanted() -> None:
    says = r"^job tiny: attention is unfused, which can be simulated but not run; real runs want fused$"
    with pytest.raises(JobError, match=says):
        start(even_plan(attention="unfused"))


def test_blocks_computed_again_beside_split_backwards_are_refused() -> None:
    says = (
        "checkpointing is block with schedule zb-h1, which splits backwards; real runs want stage or none, or another"
    )
    with pytest.raises(JobError, match=says):
        start(even_plan(checkpointing="block"), schedule="zb-h1")
