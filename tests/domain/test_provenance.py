"""Every picture says where its numbers come from, in the same words."""

from dataclasses import replace

import pytest

from dtfm_lab.domain.trace import RunContext, Subplan

MEASURED = RunContext(source="measured", clock="paced", schedule="1f1b", links="emulated", devices=(("a",), ("b",)))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, "paced clock, messages by the link model, on CPU"),
        ({"source": "simulated", "clock": "model", "links": "drawn"}, "model clock, drawn links"),
        ({"clock": "real", "links": "real", "runs_on": "cuda"}, "real clock, real links, on CUDA"),
        ({"stand_in": "tiny-gpt"}, "paced clock, messages by the link model, on CPU, tiny-gpt as model"),
        (
            {"rehearsed": Subplan((0, 1, 2, 3), (0, 1), 8, 4), "stand_in": "tiny-gpt"},
            "paced clock, messages by the link model, on CPU, rehearsing stages 0 to 3 of 8, pipelines 0 and 1 of 4, "
            "tiny-gpt as model",
        ),
    ],
)
def test_clock_links_hardware_part_and_stand_in_are_named(changes, says):
    assert replace(MEASURED, **changes).provenance == says
