"""Real workers on links that are not as drawn: the comparison names the link, the refit finds what it was."""

from __future__ import annotations

import pytest
from measured_traces import lecture_hall_plan, with_factor

import dtfm_lab as lab

pytest.importorskip("torch")
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("queueing", ["pairs", "cards"])
def test_a_link_that_is_not_as_drawn_is_named_and_found(queueing: str) -> None:
    plan = lecture_hall_plan([[0], [2], [4], [6]], n_replicas=1, global_batch=8)
    other = with_factor(plan.topology, "barbara", "edsger", bandwidth=0.25, latency=3.0)
    ran = lab.run(plan, "gpipe", iterations=4, clock="virtual", emulated=other, queueing=queueing)
    comparison = lab.compare(lab.simulate(plan, like=ran), ran)
    assert comparison.suspects["name"].iloc[0] == "barbara -> edsger"
    found = comparison.refit(plan, lab.simulate)
    links = found.off[found.off["of"] == "link"].set_index("what")
    assert set(links["name"]) == {"barbara -> edsger"}
    i, j = other.index("barbara"), other.index("edsger")
    assert links.at["bandwidth_bytes_per_s", "fitted"] == pytest.approx(other.bandwidth_bytes_per_s[i, j])
    assert links.at["latency_s", "fitted"] == pytest.approx(other.latency_s[i, j])
    assert abs(found.error) < abs(found.error_before) / 2
    print(f"{queueing}: {found.sentence}")
